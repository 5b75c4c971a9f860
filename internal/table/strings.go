package table

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
)

// EachString calls visit for the text of every column of the Parquet file f
// that holds text, of whatever table: in the order of columns, and once where
// equal values follow each other. What visit is given is good until it
// returns. name is for errors.
func EachString(f *os.File, name string, visit func(column string, value []byte) error) (err error) {
	inVisit := false
	defer func() {
		if p := recover(); p != nil {
			if inVisit {
				panic(p) // the caller's own
			}
			err = fmt.Errorf("%s is damaged: %v", name, p)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkFrame(f, info.Size()); err != nil {
		return fmt.Errorf("%s is damaged: %w", name, err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return fmt.Errorf("%s is damaged: %w", name, err)
	}
	paths := file.Schema().Columns()
	values := make([]parquet.Value, batch)
	for _, group := range file.RowGroups() {
		for i, chunk := range group.ColumnChunks() {
			if chunk.Type().Kind() != parquet.ByteArray {
				continue
			}
			column := paths[i][0]
			err := eachPage(chunk, func(page parquet.Page) error {
				last, any := "", false
				for in := page.Values(); ; {
					n, err := in.ReadValues(values)
					for _, v := range values[:n] {
						text := v.ByteArray()
						if any && last == string(text) {
							continue
						}
						last, any = string(text), true
						inVisit = true
						err := visit(column, text)
						inVisit = false
						if err != nil {
							return err
						}
					}
					if errors.Is(err, io.EOF) || err == nil && n == 0 {
						return nil
					}
					if err != nil {
						return fmt.Errorf("%s is damaged: %w", name, err)
					}
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func eachPage(chunk parquet.ColumnChunk, visit func(parquet.Page) error) error {
	pages := chunk.Pages()
	defer pages.Close()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = visit(page)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
}

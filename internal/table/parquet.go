package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	// batch is how many rows pass through memory at once.
	batch = 1024
	// rowGroup bounds the memory of a writer: about 200 bytes a row.
	rowGroup = 128 << 10
)

// Write writes rows as a Parquet file at path: whole, synced and under its
// name, or not at all. meta goes into the file's key-value metadata.
func Write[T any](path string, rows iter.Seq2[T, error], meta map[string]string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	options := []parquet.WriterOption{
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.CreatedBy("kubedyno", "", ""),
	}
	for k, v := range meta {
		options = append(options, parquet.KeyValueMetadata(k, v))
	}
	w := parquet.NewGenericWriter[T](f, options...)
	pending := make([]T, 0, batch)
	for row, err := range rows {
		if err != nil {
			return err
		}
		if pending = append(pending, row); len(pending) == batch {
			if _, err := w.Write(pending); err != nil {
				return err
			}
			pending = pending[:0]
		}
	}
	if _, err := w.Write(pending); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil { // CreateTemp makes private files
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return f.Close()
}

// maxRowsPerByte bounds how many rows one byte of a file may claim to hold, so that a
// mangled footer cannot make Read ask for all memory. Run-length coded columns
// of equal rows reach some hundreds.
const maxRowsPerByte = 4096

// Read reads all rows of the Parquet file f; see Each.
func Read[T any](f *os.File, name string) (rows []T, err error) {
	share := shared[T]()
	err = each(f, name, func(n int) { rows = make([]T, 0, n) }, func(row *T) error {
		share(row)
		rows = append(rows, *row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Each calls row for every row of the Parquet file f in the file's order; what
// row points to is good until it returns. Columns are matched to T's
// by name: a column that the file lacks reads as zero, or as the field's tag
// `absent` says, and one that T lacks is ignored. name is for errors.
func Each[T any](f *os.File, name string, row func(*T) error) (err error) {
	return each(f, name, func(int) {}, row)
}

// usualBytesPerRow is what a row takes in a file at least, where nobody means
// harm: room is made in advance for so many rows, and for more as they come.
const usualBytesPerRow = 4

// each is Each, and calls expect first with the number of rows that are likely to
// come.
func each[T any](f *os.File, name string, expect func(rows int), row func(*T) error) (err error) {
	// parquet-go panics on some mangled files; to its caller that is a file
	// that cannot be read, like any other.
	inRow := false
	defer func() {
		if p := recover(); p != nil {
			if inRow {
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
	if n := file.NumRows(); n < 0 || n > info.Size()*maxRowsPerByte {
		return fmt.Errorf("%s is damaged: it claims %d rows in %d bytes", name, n, info.Size())
	}
	if err := sameKinds(file.Schema(), parquet.SchemaOf(*new(T))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fill, err := absent[T](file.Schema())
	if err != nil {
		return err
	}
	r := parquet.NewGenericReader[T](file)
	defer r.Close()
	expect(int(min(file.NumRows(), info.Size()/usualBytesPerRow)))
	var rows int64
	for buf := make([]T, batch); ; {
		n, err := r.Read(buf)
		for i := range buf[:n] {
			fill(&buf[i])
			inRow = true
			err := row(&buf[i])
			inRow = false
			if err != nil {
				return err
			}
		}
		rows += int64(n)
		clear(buf[:n]) // the rows own their strings; the next ones must not inherit values
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s is damaged: %w", name, err)
		}
		if n == 0 {
			return fmt.Errorf("%s is damaged: it ends early", name)
		}
	}
	if rows != file.NumRows() {
		return fmt.Errorf("%s is damaged: %d of %d rows", name, rows, file.NumRows())
	}
	return nil
}

// absent returns what sets the fields whose columns the file lacks to the
// numbers in their tags.
func absent[T any](file *parquet.Schema) (func(*T), error) {
	type value struct {
		field int
		v     reflect.Value
	}
	var values []value
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag, ok := f.Tag.Lookup("absent")
		column, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		if _, has := file.Lookup(column); !ok || has {
			continue
		}
		n, err := strconv.ParseFloat(tag, 64)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: tag absent: %w", typ.Name(), f.Name, err)
		}
		values = append(values, value{i, reflect.ValueOf(n).Convert(f.Type)})
	}
	return func(row *T) {
		for _, v := range values {
			reflect.ValueOf(row).Elem().Field(v.field).Set(v.v)
		}
	}, nil
}

// shared returns what gives rows one copy of each text that many of them have: of
// the columns with a dictionary. parquet-go makes a copy for each row.
func shared[T any]() func(*T) {
	var fields []int
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		_, options, _ := strings.Cut(typ.Field(i).Tag.Get("parquet"), ",")
		if typ.Field(i).Type.Kind() == reflect.String && slices.Contains(strings.Split(options, ","), "dict") {
			fields = append(fields, i)
		}
	}
	one := map[string]string{}
	return func(row *T) {
		v := reflect.ValueOf(row).Elem()
		for _, i := range fields {
			text := v.Field(i).Addr().Interface().(*string)
			if *text == "" {
				continue
			}
			same, ok := one[*text]
			if !ok {
				one[*text], same = *text, *text
			}
			*text = same
		}
	}
}

// checkFrame checks a file's first and last bytes: parquet-go would take
// the footer's length on trust, and reserve up to 4 GB for it.
func checkFrame(f io.ReaderAt, size int64) error {
	const magic = "PAR1"
	const frame = 12 // the magic, the footer, its length, the magic
	if size < frame {
		return errors.New("it is too short")
	}
	head, tail := make([]byte, 4), make([]byte, 8)
	if _, err := f.ReadAt(head, 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(tail, size-8); err != nil {
		return err
	}
	if string(head) != magic || string(tail[4:]) != magic {
		return errors.New("it does not begin and end as a Parquet file")
	}
	if n := binary.LittleEndian.Uint32(tail); int64(n) > size-frame {
		return fmt.Errorf("its footer claims %d of %d bytes", n, size)
	}
	return nil
}

// sameKinds refuses a file in which a column that we read has another type:
// conversion would give numbers that nobody wrote.
func sameKinds(file, ours *parquet.Schema) error {
	for _, path := range ours.Columns() {
		want, _ := ours.Lookup(path...)
		got, ok := file.Lookup(path...)
		if ok && got.Node.Type().Kind() != want.Node.Type().Kind() {
			return fmt.Errorf("column %s is %s, not %s", path[0], got.Node.Type(), want.Node.Type())
		}
	}
	return nil
}

package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"text/tabwriter"
)

// tableFormats are the ways to print a table.
var tableFormats = []string{"text", "csv", "json"}

// longestCell is where a cell of a text table ends: a word of 10 kB is no name.
const longestCell = 2000

// textTable is a table for people and the values behind it for programs.
type textTable struct {
	header []string
	rows   [][]string
	values []any    // structs of one type, flat
	foot   []string // lines below a text table
}

func (t *textTable) add(value any, cells ...string) {
	t.rows = append(t.rows, cells)
	t.values = append(t.values, value)
}

// print writes the table to stdout: aligned text of at most limit rows (0:
// all), or all values as CSV or as JSON, one object a line.
func (t *textTable) print(env *Env, format string, limit int) error {
	switch format {
	case "json":
		enc := json.NewEncoder(env.Stdout)
		for _, row := range t.values {
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return t.csv(env)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.header, "\t"))
	for i, row := range t.rows {
		if limit > 0 && i == limit {
			break
		}
		shown := make([]string, len(row))
		for j, cell := range row {
			shown[j] = printable(cell, longestCell)
		}
		fmt.Fprintln(w, strings.Join(shown, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := len(t.rows) - limit; limit > 0 && more > 0 {
		fmt.Fprintf(env.Stdout, "… and %d more; --limit 0 prints all\n", more)
	}
	for _, line := range t.foot {
		fmt.Fprintln(env.Stdout, line)
	}
	return nil
}

// csv names its columns as the recording's Parquet files do, or as the JSON
// does, so that what was learnt in one form holds in the others.
func (t *textTable) csv(env *Env) error {
	w := csv.NewWriter(env.Stdout)
	for i, value := range t.values {
		v := reflect.Indirect(reflect.ValueOf(value))
		var header, cells []string
		for j := range v.NumField() {
			name := columnName(v.Type().Field(j))
			if name == "" {
				continue
			}
			header = append(header, name)
			cell := fmt.Sprint(v.Field(j).Interface())
			if v.Field(j).Kind() == reflect.String {
				cell = inert(cell)
			}
			cells = append(cells, cell)
		}
		if i == 0 {
			if err := w.Write(header); err != nil {
				return err
			}
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func columnName(f reflect.StructField) string {
	for _, tag := range []string{"parquet", "json"} {
		if name, _, _ := strings.Cut(f.Tag.Get(tag), ","); name != "" && name != "-" {
			return name
		}
	}
	return ""
}

package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"
)

type row struct {
	Name  string  `parquet:"name,dict" json:"name"`
	Count int64   `parquet:"count" json:"count,omitempty"`
	Share float64 `parquet:"share" json:"share"`
}

func values(rows []row) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func read[T any](t testing.TB, path string) ([]T, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Read[T](f, path)
}

func drawRows(t *rapid.T) []row {
	return rapid.SliceOf(rapid.Custom(func(t *rapid.T) row {
		return row{rapid.String().Draw(t, "name"), rapid.Int64().Draw(t, "count"), rapid.Float64().Draw(t, "share")}
	})).Draw(t, "rows")
}

// A file of an older release lacks a column: where zero would read as "none",
// the field says what stands for unknown.
func TestMissingColumn(t *testing.T) {
	type newer struct {
		Name   string  `parquet:"name,dict"`
		Errors int64   `parquet:"errors" absent:"-1"`
		Wait   float64 `parquet:"wait" absent:"-1"`
		Count  int64   `parquet:"count" absent:"-1"`
		Late   int64   `parquet:"late"`
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	var old []row
	for i := range 3 * batch / 2 {
		old = append(old, row{"a", int64(i), 0})
	}
	if err := Write(path, values(old), nil); err != nil {
		t.Fatal(err)
	}
	got, err := read[newer](t, path)
	if err != nil || len(got) != len(old) {
		t.Fatal(len(got), err)
	}
	for i, g := range got {
		if want := (newer{"a", -1, -1, int64(i), 0}); g != want {
			t.Fatalf("row %d: %+v, want %+v", i, g, want)
		}
	}
}

func TestParquetRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	rapid.Check(t, func(rt *rapid.T) {
		want := drawRows(rt)
		if err := Write(path, values(want), nil); err != nil {
			rt.Fatal(err)
		}
		got, err := read[row](t, path)
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%v\n got %v\nwant %v", err, got, want)
		}
	})
}

func TestManyBatches(t *testing.T) {
	var want []row
	for i := range 3*batch + 7 {
		want = append(want, row{fmt.Sprint(i % 10), int64(i), 0.5})
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := Write(path, values(want), map[string]string{"kubedyno.schema": "1"}); err != nil {
		t.Fatal(err)
	}
	if got, err := read[row](t, path); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d rows, %v", len(got), err)
	}

	// A reader that knows nothing of our types sees the same.
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := file.Lookup("kubedyno.schema"); v != "1" {
		t.Errorf("key-value metadata: %q", v)
	}
	n := 0
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		buf := make([]parquet.Row, 100)
		for {
			m, err := rows.ReadRows(buf)
			for _, r := range buf[:m] {
				w := want[n]
				if r[0].String() != w.Name || r[1].Int64() != w.Count || r[2].Double() != w.Share {
					t.Fatalf("row %d: %v, want %v", n, r, w)
				}
				n++
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rows.Close()
	}
	if n != len(want) {
		t.Errorf("%d rows of %d", n, len(want))
	}
}

func TestColumnsMayComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := Write(path, values([]row{{"a", 1, 2}, {"b", 3, 4}}), nil); err != nil {
		t.Fatal(err)
	}
	type newer struct {
		New   int64  `parquet:"new"`
		Count int64  `parquet:"count"`
		Name  string `parquet:"name,dict"`
	}
	if got, err := read[newer](t, path); err != nil || !slices.Equal(got, []newer{{0, 1, "a"}, {0, 3, "b"}}) {
		t.Errorf("%v, %v", got, err)
	}
	type other struct {
		Count string `parquet:"count"`
	}
	if got, err := read[other](t, path); err == nil || !strings.Contains(err.Error(), "column count") {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWriteIsWholeOrNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	bad := errors.New("bad row")
	err := Write(path, func(yield func(row, error) bool) {
		_ = yield(row{"a", 1, 1}, nil) && yield(row{}, bad)
	}, nil)
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

func readLog(path string) (rows []row, err error) {
	err = ReadLog(path, func(r row) error {
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

func TestLogRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		want := drawRows(rt)
		want = slices.DeleteFunc(want, func(r row) bool { return r.Share != r.Share || r.Share-r.Share != 0 }) // JSON has finite numbers
		l, err := CreateLog(path)
		if err != nil {
			rt.Fatal(err)
		}
		for i, r := range want {
			if err := l.Append(r); err != nil {
				rt.Fatal(err)
			}
			if i%3 == 0 {
				if err := l.Flush(); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if lost, err := l.Close(); lost != 0 || err != nil {
			rt.Fatal(lost, err)
		}
		if got, err := readLog(path); err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%v\n got %v\nwant %v", err, got, want)
		}
	})
}

func TestLogLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		name, text string
		want       int
		err        string
	}{
		{"empty", "", 0, ""},
		{"whole", `{"name":"a"}` + "\n", 1, ""},
		{"torn", `{"name":"a"}` + "\n" + `{"na`, 1, ""},
		{"torn though it decodes", `{"name":"a"}` + "\n" + `{"name":"b"}`, 1, ""},
		{"zeros at the end", `{"name":"a"}` + "\n\x00\x00", 1, ""},
		{"long", `{"name":"` + long + `"}` + "\n", 1, ""},
		{"long and torn", `{"name":"a"}` + "\n" + `{"name":"` + long, 1, ""},
		{"mangled", `{"name":"a"}` + "\n{\n" + `{"name":"a"}` + "\n", 1, "line 2"},
		{"wrong type", `{"name":7}` + "\n", 0, "line 1"},
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := readLog(path)
		if len(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d rows, %v", c.name, len(got), err)
		}
	}
}

// TestLogAfterAnError uses a pipe that nobody reads any more for a full disk.
func TestLogAfterAnError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := &Log{file: w}
	if err := l.Append(row{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	first := l.Flush()
	if first == nil {
		t.Fatal("no error")
	}
	if err := l.Append(row{Name: "b"}); err != first {
		t.Errorf("got %v, want the first error", err)
	}
	if lost, err := l.Close(); lost != 1 || err == nil {
		t.Errorf("%d lost, %v", lost, err)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add([]byte(`{"name":"a","count":1,"share":0.5}` + "\n" + `{"na`))
	f.Add([]byte("\n\n"))
	f.Add([]byte(`{"count":1e400}` + "\n"))
	path := filepath.Join(f.TempDir(), "x.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		rows, err := readLog(path)
		if n := strings.Count(string(data), "\n"); len(rows) > n || err == nil && len(rows) != n {
			t.Errorf("%d rows of %d lines, %v", len(rows), n, err)
		}
	})
}

func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "x.parquet")
	if err := Write(path, values([]row{{"a", 1, 2}, {"b", 3, 4}, {"a", 5, 6}}), nil); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("PAR1PAR1"))
	f.Add([]byte("PAR1\xff\xff\xff\xffPAR1")) // a footer of 4 GB
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		mangled := bytes.Clone(data)
		for range 1 + r.IntN(3) {
			mangled[r.IntN(len(mangled))] = byte(r.Uint32())
		}
		f.Add(mangled)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		_, _ = read[row](t, path) // an error or rows, but no panic
	})
}

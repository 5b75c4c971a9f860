// Package recordtest makes recordings for tests of what reads them.
package recordtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/kept"
)

// Write makes a complete recording of what fill writes, and returns its folder,
// which goes with the test.
func Write(t testing.TB, meta record.Meta, fill func(*record.Writer)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	w, err := record.Create(dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	fill(w)
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Log writes a component's log.
func Log(t testing.TB, w *record.Writer, name, text string) {
	t.Helper()
	f, err := w.LogFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Open opens the recording of a folder for as long as the test runs.
func Open(t testing.TB, dir string) *record.Recording {
	t.Helper()
	rec, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	return rec
}

// Make writes a recording and opens it.
func Make(t testing.TB, meta record.Meta, fill func(*record.Writer)) *record.Recording {
	t.Helper()
	return Open(t, Write(t, meta, fill))
}

// root is where recordings of real runs are kept, from a package's folder on.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "recordings")
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("there is no go.mod above the test")
		}
		dir = up
	}
}

// Kept are the files of all recordings that testdata/recordings keeps, sorted.
func Kept(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), "*"+kept.Ext))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings are kept in %s (%v)", len(files), root(t), err)
	}
	return files
}

// Unpack is the folder of a recording that is kept, by its name, which goes with
// the test.
func Unpack(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := kept.Unpack(filepath.Join(root(t), name+kept.Ext), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

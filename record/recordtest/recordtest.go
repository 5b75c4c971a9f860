// Package recordtest makes recordings for tests of what reads them.
package recordtest

import (
	"path/filepath"
	"testing"

	"github.com/kubedyno/kubedyno/record"
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

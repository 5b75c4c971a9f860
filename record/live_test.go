package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Who follows a recording sees each pod as it was last flushed, reads no row
// twice, and takes nothing from the writer.
func TestTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w, err := Create(dir, Meta{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMeta(dir); err != nil || m.Status != StatusRunning {
		t.Fatalf("status %s, %v", m.Status, err)
	}
	if !Written(dir) {
		t.Error("nobody is said to write it")
	}
	tail := NewTail(dir)
	wait := func(pods int, running int64) {
		t.Helper()
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			if err := tail.Read(); err != nil {
				t.Fatal(err)
			}
			if got := tail.Pods(); len(got) == pods && got[0].RunningMicros == running {
				return
			}
		}
		t.Fatalf("%+v", tail.Pods())
	}
	w.Pod(Pod{Name: "a", UID: "1", CreatedMicros: 1})
	w.Pod(Pod{Name: "b", UID: "2", CreatedMicros: 2})
	wait(2, 0)
	before := tail.offset
	w.Pod(Pod{Name: "a", UID: "1", CreatedMicros: 1, RunningMicros: 9})
	wait(2, 9)
	if before == 0 || tail.offset <= before {
		t.Errorf("read from %d to %d: rows are read again", before, tail.offset)
	}
	if _, err := Open(dir); !errors.Is(err, ErrLive) {
		t.Errorf("opened: %v", err)
	}
	if err := w.Finish(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	if Written(dir) {
		t.Error("still said to be written")
	}
	if err := tail.Read(); err != nil || len(tail.Pods()) != 2 {
		t.Errorf("%d pods, %v: what was read before stays", len(tail.Pods()), err)
	}
}

// A line that is being written is read when it is whole.
func TestTailWaitsForWholeLines(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, liveDir), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, pods.name.live())
	put := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tail := NewTail(dir)
	read := func(want int) {
		t.Helper()
		if err := tail.Read(); err != nil || len(tail.Pods()) != want {
			t.Fatalf("%d pods, want %d: %v", len(tail.Pods()), want, err)
		}
	}
	read(0)
	put(`{"name":"a","uid":"1"}` + "\n" + `{"name":"b",`)
	read(1)
	put(`"uid":"2"}` + "\n")
	read(2)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	put(`{"name":"c","uid":"3"}` + "\n")
	read(1) // another run in the same place
}

package flock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTry(t *testing.T) {
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	name := filepath.Join(t.TempDir(), "lock")
	first, second := open(name), open(name)
	if err := Try(first); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); !errors.Is(err, ErrHeld) {
		t.Errorf("a second lock: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
}

package tsdb

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A store on a disk that may lack the room is not cut, says how much it wants, loses nothing, and
// is cut when there is room.
func TestCutWithoutRoom(t *testing.T) {
	disk, err := os.MkdirTemp("", "kubedyno-tsdb-mount-") // not TempDir: its removal must not reach through a mount
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Remove(disk); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Mount("kubedyno-test", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()

	s, err := Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i)
	}
	add(t, s, "x", nil, values...)
	defer func() { // the test may end early, and the disk could not be unmounted
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	free, _ := freeSpace(disk)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, free-900<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	err = s.Cut()
	var room *RoomError
	if !errors.As(err, &room) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("cut: %v", err)
	}
	if room.FreeBytes >= room.NeedBytes || room.FreeBytes < 800<<10 || room.NeedBytes < 1<<20 {
		t.Errorf("%+v", room)
	}
	if done, err := blocks(disk); err != nil || len(done) > 0 {
		t.Errorf("%v, %v", done, err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := s.Cut(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if v, ok, err := r.Increase(ctx, "x", nil, start, at(1000)); err != nil || !ok || v < 998 || v > 1000 {
		t.Errorf("%v, %v, %v", v, ok, err)
	}
}

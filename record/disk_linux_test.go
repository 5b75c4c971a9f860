package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mount mounts for the length of a test; it needs root.
func mount(t testing.TB, source, kind string, flags uintptr, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, err := os.MkdirTemp("", "kubedyno-record-mount-") // not TempDir: its removal must not reach through a mount
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(source, dir, kind, flags, options); err != nil {
		_ = os.Remove(dir)
		t.Skipf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name string
		add  func(w *Writer, i int) // one of what fills the disk
	}{
		{"rows", func(w *Writer, i int) {
			w.Request(Request{ReceivedMicros: micros(float64(i)), URI: strings.Repeat("x", 500)})
		}},
		{"samples", func(w *Writer, i int) {
			// A scrape manager goes on after an error, and so do we.
			_ = scrape(w.Metrics(), "filler_"+strings.Repeat("x", i%500), "etcd", at(float64(i)), 1.1*float64(i))
		}},
		{"log", func(w *Writer, i int) {
			log, err := w.LogFile("etcd")
			if err != nil {
				return
			}
			_, _ = log.Write(make([]byte, 10_000))
			_ = log.Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := mount(t, "kubedyno-test", "tmpfs", 0, "size=1m")
			dir := filepath.Join(disk, "r")
			w := create(t, dir, Meta{Phases: []Phase{{Name: "steady", Kind: PhaseSteady, Start: at(0)}}})
			fill(t, w)
			w.flush()
			deadline := time.Now().Add(30 * time.Second)
			for i := 20; w.Err() == nil; i++ {
				c.add(w, i)
				if i%1000 == 0 {
					w.flush()
				}
				if time.Now().After(deadline) {
					t.Fatal("the disk does not fill")
				}
			}
			if err := w.Err(); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "recording "+dir+": the disk is full; what was recorded up to now is kept") {
				t.Errorf("got %v", err)
			}
			for i := range 3000 { // collectors may take a while to hear of it
				c.add(w, 1_000_000+i)
			}
			filler := filepath.Join(disk, "filler") // what a short write has left over
			_ = os.WriteFile(filler, make([]byte, 2<<20), 0o644)

			err := w.Finish(StatusInterrupted, "disk full")
			if err == nil || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make room") {
				t.Fatalf("finish: %v", err)
			}
			if m, err := readMeta(dir); err != nil || m.Status != StatusRunning {
				t.Errorf("status %s, %v; it must stay running", m.Status, err)
			}

			// On the full disk it still opens, from a copy.
			r, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, r)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(r.home); r.home == dir || err == nil {
				t.Errorf("the copy %s is left", r.home)
			}

			// With room it is finished in its place.
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			r, err = Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, r)
			if r.home != dir {
				t.Errorf("finished in %s", r.home)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			// Only for the sake of unmounting: usually the process ends here.
			if err := w.metrics.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// whole checks that r holds all that fill wrote.
func whole(t testing.TB, r *Recording) {
	t.Helper()
	if m := r.Meta(); m.Status != StatusIncomplete || len(m.Invalid) == 0 {
		t.Errorf("%s, %v", m.Status, m.Invalid)
	}
	if ps, err := r.Pods(); len(ps) != 20 || err != nil {
		t.Errorf("%d pods, %v", len(ps), err)
	}
	if qs, err := r.Requests(); len(qs) < 20 || err != nil {
		t.Errorf("%d requests, %v", len(qs), err)
	}
	if v, ok, err := r.Increase("requests_total", nil, Window{at(-1), at(19)}); v != 190 || !ok || err != nil {
		t.Errorf("requests_total: %v, %v, %v", v, ok, err)
	}
	if len(r.Profiles()) != 1 {
		t.Errorf("profiles: %v", r.Profiles())
	}
}

func TestCreateOnAFullDisk(t *testing.T) {
	disk := mount(t, "kubedyno-test", "tmpfs", 0, "size=64k")
	_ = os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 1<<20), 0o644)
	dir := filepath.Join(disk, "r")
	if _, err := Create(dir, Meta{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something is left")
	}
}

func TestReadOnlyFolder(t *testing.T) {
	source := crashed(t)
	dir := mount(t, source, "", syscall.MS_BIND, "")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	whole(t, r)
	if r.Dir() != dir || r.home == dir {
		t.Errorf("it says %s and is in %s", r.Dir(), r.home)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.home); err == nil {
		t.Error("the copy is left")
	}
	if m, err := readMeta(source); err != nil || m.Status != StatusRunning {
		t.Errorf("the original is %s, %v", m.Status, err)
	}

	// A finished one is read where it is.
	open(t, source)
	if r, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	whole(t, r)
	if r.home != dir {
		t.Errorf("a finished one was copied to %s", r.home)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyFolderOfALiveWriter(t *testing.T) {
	w := create(t, filepath.Join(t.TempDir(), "r"), Meta{})
	defer finish(t, w)
	dir := mount(t, w.Dir(), "", syscall.MS_BIND, "")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrLive) {
		t.Errorf("got %v", err)
	}
}

package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps what a collector writes.
type recorder struct {
	mu   sync.Mutex
	logs map[string]*bytes.Buffer
	gaps []record.Gap
	full bool
}

type file struct {
	r    *recorder
	name string
}

func (f file) Write(b []byte) (int, error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.full {
		return 0, errors.New("no space left on device")
	}
	return f.r.logs[f.name].Write(b)
}
func (f file) Close() error { return nil }

func (r *recorder) LogFile(name string) (io.WriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs == nil {
		r.logs = map[string]*bytes.Buffer{}
	}
	r.logs[name] = &bytes.Buffer{}
	return file{r, name}, nil
}

func (r *recorder) Gap(g record.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, g)
}

func (r *recorder) log(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs[name] == nil {
		return ""
	}
	return r.logs[name].String()
}

// follow runs the collector while f writes.
func follow(t *testing.T, c *Collector, r *recorder, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, r) }()
	f()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString(text)
}

// eventually waits for the collector to have seen something.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !what(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come")
		}
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.log")
	appendTo(t, path, "before the run\n")
	c := New(Options{Files: []File{{Component: "etcd", Path: path}}})
	appendTo(t, path, "between New and Collect\n")
	var r recorder
	follow(t, c, &r, func() {
		appendTo(t, path, "one\nAuthorization: Bearer abcdefghijklmnop\nhal")
		eventually(t, func() bool { return strings.Contains(r.log("etcd"), "one") })
		appendTo(t, path, "f\n-----BEGIN EC PRIVATE KEY-----\nAAAAAA\n-----END EC PRIVATE KEY-----\n")
		// Rotation by renaming, the writer going on in the old file first.
		eventually(t, func() bool { return strings.Contains(r.log("etcd"), "half") })
		old, _ := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		os.Rename(path, path+".1")
		time.Sleep(300 * time.Millisecond)
		old.WriteString("late in the old file\n")
		old.Close()
		appendTo(t, path, "first in the new file\n")
		eventually(t, func() bool { return strings.Contains(r.log("etcd"), "new file") })
		os.Truncate(path, 0)
		appendTo(t, path, "after\n")
		eventually(t, func() bool { return strings.Contains(r.log("etcd"), "after") })
		appendTo(t, path, "last words without an end")
	})
	want := `between New and Collect
one
Authorization: Bearer [redacted]
half
[private key redacted]
late in the old file
first in the new file
after
last words without an end
`
	if got := r.log("etcd"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if a := c.Account(); a.Note != "etcd: rotated 1 times, truncated 1 times" || a.Samples != 11 {
		t.Errorf("account: %+v", a)
	}
}

func TestFromStartAndCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	appendTo(t, path, strings.Repeat("123456789\n", 100))
	c := New(Options{Files: []File{{Component: "x", Path: path, FromStart: true}}, MaxBytes: 55})
	var r recorder
	follow(t, c, &r, func() {})
	want := strings.Repeat("123456789\n", 5) + "kubedyno: log cut here: 95 more lines, 950 bytes, were not kept\n"
	if got := r.log("x"); got != want {
		t.Errorf("got %q", got)
	}
	if len(r.gaps) != 1 || !strings.Contains(r.gaps[0].Reason, "95 lines") {
		t.Errorf("gaps: %+v", r.gaps)
	}
}

// A line of any length, with any bytes, costs bounded memory and is kept or
// cut, never fatal.
func TestHostile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	appendTo(t, path, strings.Repeat("\x00\xff\x1b[31m", 1<<20)+"\nnext\n")
	c := New(Options{Files: []File{{Component: "x", Path: path, FromStart: true}}, MaxBytes: 3 << 20})
	var r recorder
	follow(t, c, &r, func() {})
	if n := len(r.log("x")); n > 3<<20+100 || n < 2<<20 {
		t.Errorf("%d bytes kept", n)
	}
}

// A line of 1 GiB, in a file with a hole of that size, is cut at the bound and
// counted, in bounded memory; what comes after it is not looked at again.
func TestHugeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	appendTo(t, path, "before\n")
	const size = 1 << 30
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "\nAuthorization: Bearer abcdefghijklmnop\n")
	c := New(Options{Files: []File{{Component: "x", Path: path, FromStart: true}}, MaxBytes: 3 << 20})
	var r recorder
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	follow(t, c, &r, func() {})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	got := r.log("x")
	if len(got) > 3<<20+100 || !strings.HasPrefix(got, "before\n") || !strings.Contains(got, "kubedyno: log cut here: 2 more lines") || strings.Contains(got, "abcdefgh") {
		t.Errorf("%d bytes kept, the last %q", len(got), got[max(0, len(got)-100):])
	}
}

func TestMissingFileAndNone(t *testing.T) {
	c := New(Options{Files: []File{{Component: "x", Path: filepath.Join(t.TempDir(), "no")}}})
	var r recorder
	follow(t, c, &r, func() {})
	if len(r.gaps) != 1 || r.gaps[0].Reason != "there was no log file" {
		t.Errorf("gaps: %+v", r.gaps)
	}
	c = New(Options{Missing: []Missing{{"kube-scheduler", "its log is on another machine"}}})
	r = recorder{}
	if err := c.collect(t.Context(), &r); !errors.Is(err, collect.ErrNotSupported) || len(r.gaps) != 1 {
		t.Errorf("%v, %+v", err, r.gaps)
	}
}

// A component that was started later is followed from then on, and one that is
// named when all is over does no harm.
func TestAdd(t *testing.T) {
	dir := t.TempDir()
	first, later := filepath.Join(dir, "x.log"), filepath.Join(dir, "y.log")
	appendTo(t, first, "a\n")
	appendTo(t, later, "b\n")
	c := New(Options{Files: []File{{Component: "x", Path: first, FromStart: true}}})
	var r recorder
	follow(t, c, &r, func() {
		eventually(t, func() bool { return r.log("x") == "a\n" })
		c.Add(File{Component: "y", Path: later, FromStart: true})
		eventually(t, func() bool { return r.log("y") == "b\n" })
		appendTo(t, later, "c\n")
	})
	if got := r.log("y"); got != "b\nc\n" {
		t.Errorf("%q", got)
	}
	if a := c.Account(); a.Samples != 3 {
		t.Errorf("%+v", a)
	}
	c.Add(File{Component: "z", Path: first, FromStart: true})
}

func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	appendTo(t, path, "a\n")
	r := recorder{full: true}
	err := New(Options{Files: []File{{Component: "x", Path: path, FromStart: true}}}).collect(t.Context(), &r)
	if err == nil || !strings.Contains(err.Error(), "log of x: no space left") {
		t.Errorf("%v", err)
	}
}

// The last words of a killed writer are kept.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	c := New(Options{Files: []File{{Component: "x", Path: path}}})
	var r recorder
	follow(t, c, &r, func() {
		cmd := exec.Command("sh", "-c", fmt.Sprintf("while :; do echo line >> %s; done", path))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return strings.Count(r.log("x"), "line") > 100 })
		cmd.Process.Kill()
		cmd.Wait()
	})
	want, _ := os.ReadFile(path)
	if got := r.log("x"); got != string(want) {
		t.Errorf("%d bytes kept of %d", len(got), len(want))
	}
}

package slack

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWiden(t *testing.T) {
	before := slacks(t)
	restore := Widen(3 * time.Millisecond)
	during := slacks(t)
	restore()
	if !allowed(t) {
		for thread, is := range during {
			if was := before[thread]; was != "" && is != was {
				t.Errorf("thread %s: %s ns, though others may not be set; before %s", thread, is, was)
			}
		}
		return
	}
	for thread, is := range during {
		if before[thread] != "" && is != "3000000" {
			t.Errorf("thread %s: %s ns", thread, is)
		}
	}
	for thread, is := range slacks(t) {
		if was := before[thread]; was != "" && is != was {
			t.Errorf("thread %s: %s ns, before %s", thread, is, was)
		}
	}
}

// A process that was started meanwhile has the kernel's own after Reset, and so
// have those that it starts.
func TestReset(t *testing.T) {
	if os.Getenv("SLACK_TEST_CHILD") != "" {
		Reset()
		for thread, is := range slacks(t) {
			if is != "50000" {
				t.Errorf("thread %s: %s ns", thread, is)
			}
		}
		out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
		if err != nil || strings.TrimSpace(string(out)) != "50000" {
			t.Errorf("its child: %s, %v", out, err)
		}
		return
	}
	if !allowed(t) {
		t.Skip("the slack of other threads may not be set here (CAP_SYS_NICE)")
	}
	defer Widen(3 * time.Millisecond)()
	inherited, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
	if err != nil || strings.TrimSpace(string(inherited)) != "3000000" {
		t.Fatalf("a child that does nothing about it: %s, %v", inherited, err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestReset$", "-test.v")
	child.Env = append(os.Environ(), "SLACK_TEST_CHILD=1")
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestReset") {
		t.Errorf("%v\n%s", err, out)
	}
}

// allowed says whether threads other than one's own may be set: who may read them may.
func allowed(t *testing.T) bool {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("no threads to look at here")
	}
	for _, thread := range threads {
		if _, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns")); errors.Is(err, fs.ErrPermission) {
			return false
		}
	}
	return true
}

func slacks(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("no threads to look at here")
	}
	for _, thread := range threads {
		if b, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns")); err == nil {
			all[thread.Name()] = strings.TrimSpace(string(b))
		}
	}
	return all
}

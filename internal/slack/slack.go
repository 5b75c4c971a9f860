// Package slack says how exactly the kernel must wake this process for its own
// timers.
//
// A thread of Go's runtime (sysmon) looks after the others every 20 µs while any
// of them works. A process that works for a moment hundreds of times a second
// pays more for that than for some of its work: a third of its CPU, in collectors
// on an idle cluster. The runtime has no setting for it, but the kernel has: how
// late a sleep may end.
package slack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Widen lets all sleeps of this process end that much later than asked, and
// returns how to undo it. What waits for a connection or a file is not delayed.
// Threads and processes that start later have it from the thread that starts
// them: see Reset. Where it is not allowed or not known (it needs Linux and
// CAP_SYS_NICE), it does nothing.
func Widen(by time.Duration) (restore func()) {
	set(by)
	return func() { set(kernels) }
}

// kernels is what a process has whose parents never asked for anything else.
const kernels = 50 * time.Microsecond

// Reset gives a process what the kernel gives to all, though the one that started
// it may have widened its own: whatever is measured must not have it from us.
func Reset() {
	if b, err := os.ReadFile("/proc/self/timerslack_ns"); err == nil && strings.TrimSpace(string(b)) != nanoseconds(kernels) {
		set(kernels)
	}
}

func nanoseconds(d time.Duration) string { return strconv.FormatInt(d.Nanoseconds(), 10) }

// set sets all threads, or none where others than the one that asks may not be set.
// It looks again as long as there are new ones: they have it from a thread that had
// not been set yet.
func set(to time.Duration) {
	want := nanoseconds(to)
	for range 10 {
		files, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			return
		}
		var others []string
		for _, f := range files {
			f = filepath.Join("/proc", filepath.Base(f), "timerslack_ns")
			switch is, err := os.ReadFile(f); {
			case err == nil && strings.TrimSpace(string(is)) != want:
				others = append(others, f)
			case errors.Is(err, fs.ErrPermission): // to read it takes what to write it takes
				return
			}
		}
		if len(others) == 0 {
			return
		}
		for _, f := range others {
			_ = os.WriteFile(f, []byte(want), 0) // it may have ended
		}
	}
}

// Package epoch tells how the kernel's monotonic clock, which its events carry, stands
// to the clock of a recording.
package epoch

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readings are made at most: a thread that loses its CPU between two clocks takes
	// the time that it waited for their difference.
	readings = 10
	// near is how close together the clocks are read where nothing came between.
	near = 5 * time.Microsecond
)

// Offset is what to add to CLOCK_MONOTONIC for the time since 1970, and that clock's
// time when it was read, both in ns; ok is false where there is no such clock.
func Offset() (offset, monotonic int64, ok bool) {
	return closest(func() (before, wall, after int64, ok bool) {
		var b, a unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &b) != nil {
			return 0, 0, 0, false
		}
		wall = time.Now().UnixNano()
		ok = unix.ClockGettime(unix.CLOCK_MONOTONIC, &a) == nil
		return b.Nano(), wall, a.Nano(), ok
	})
}

// closest is by the reading whose two monotonic times lie closest together.
func closest(read func() (before, wall, after int64, ok bool)) (offset, monotonic int64, ok bool) {
	least := int64(0)
	for range readings {
		before, wall, after, good := read()
		if !good {
			break
		}
		if took := after - before; !ok || took < least {
			offset, monotonic, least, ok = wall-(before+after)/2, before, took, true
		}
		if least <= near.Nanoseconds() {
			break
		}
	}
	return offset, monotonic, ok
}

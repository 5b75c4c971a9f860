package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is when this machine started, by the clock as it is now: /proc/stat
// has it in whole seconds only.
func bootTime() time.Time {
	var ts unix.Timespec
	now := time.Now()
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(ts.Nano()))
}

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

// threadCPU is the CPU that this thread has used, in seconds.
func threadCPU() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

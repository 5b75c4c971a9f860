package collect

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// CPU is the CPU-seconds that f took; 0 where that is unknown. F is a burst of
// work: it keeps its thread meanwhile, and a goroutine that waits for something
// while it holds one costs switches of threads.
func CPU(f func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, known := threadCPU()
	f()
	if after, ok := threadCPU(); known && ok {
		return after - before
	}
	return 0
}

func threadCPU() (seconds float64, ok bool) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return 0, false
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9, true
}

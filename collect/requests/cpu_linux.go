package requests

import "golang.org/x/sys/unix"

// threadCPU is the CPU that the calling thread has used, in seconds; negative
// where it is unknown.
func threadCPU() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return -1
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

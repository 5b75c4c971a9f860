//go:build !linux

package requests

// threadCPU is unknown: only Linux accounts for one thread.
func threadCPU() float64 { return -1 }

//go:build !linux

package collect

// CPU is unknown, which is 0: only Linux accounts for one thread.
func CPU(f func()) float64 {
	f()
	return 0
}

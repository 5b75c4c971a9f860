//go:build linux || darwin

package tsdb

import "syscall"

const errNoSpace = syscall.ENOSPC

// freeSpace is what may still be written below dir.
func freeSpace(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}

//go:build unix && !solaris && !aix

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Try takes the lock until f is closed. It fails with ErrHeld where another has
// it, and otherwise where the file system has no locks.
func Try(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

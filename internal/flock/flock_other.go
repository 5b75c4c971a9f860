//go:build !unix || solaris || aix

package flock

import (
	"errors"
	"os"
)

// Try fails: there are no such locks here.
func Try(*os.File) error { return errors.ErrUnsupported }

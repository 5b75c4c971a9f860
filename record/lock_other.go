//go:build !unix || solaris || aix

package record

import (
	"errors"
	"os"
)

func tryLock(*os.File) error { return errors.ErrUnsupported }

// Package flock takes locks on open files. The system takes such a lock back
// when its process dies, however that happens.
//
// Start with Try.
package flock

import "errors"

// ErrHeld says that another open file has the lock.
var ErrHeld = errors.New("lock is held")

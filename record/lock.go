package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/internal/flock"
)

// ErrLive says that a recording is still being written. The error that Open
// returns is a *LiveError.
var ErrLive = errors.New("recording is still being written")

// A LiveError names who is writing a recording.
type LiveError struct {
	Dir string
	PID int
}

func (e *LiveError) Error() string {
	return fmt.Sprintf("recording %s is still being written by process %d: wait for its end, or stop it", e.Dir, e.PID)
}

// Is makes errors.Is(err, ErrLive) true.
func (e *LiveError) Is(target error) bool { return target == ErrLive }

// owner identifies a process beyond the reuse of its PID.
type owner struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"` // field 22 of /proc/PID/stat; 0 unknown
	// Finishing tells a reader that finishes a dead writer's recording from
	// the writer itself.
	Finishing bool `json:"finishing,omitempty"`
}

func ownerOf(pid int) owner {
	o := owner{PID: pid}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return o
	}
	// The command in field 2 may hold anything but ends at the last bracket.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) > 19 {
		o.StartTicks, _ = strconv.ParseUint(fields[19], 10, 64)
	}
	return o
}

// alive reports whether that very process still runs.
func (o owner) alive() bool {
	if o.PID <= 0 || o.StartTicks == 0 {
		return false
	}
	return ownerOf(o.PID).StartTicks == o.StartTicks
}

// lock is the right to write a recording's folder. The system takes it back
// when its process dies, however that happens.
type lock struct{ file *os.File }

// takeLock takes the lock of the recording in dir. Where another one has it,
// it returns flock.ErrHeld and who took it last.
func takeLock(dir string) (*lock, owner, error) {
	path := filepath.Join(dir, lockFile)
	f, denied := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if denied != nil {
		// Even who may not write can tell whether another one does.
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, owner{}, denied
		}
	}
	var last owner
	if data, err := io.ReadAll(io.LimitReader(f, 1<<10)); err == nil {
		_ = json.Unmarshal(data, &last) // empty, or torn: nobody known
	}
	switch err := flock.Try(f); {
	case errors.Is(err, flock.ErrHeld):
		return nil, last, errors.Join(err, f.Close())
	case err != nil && last.alive() && last.PID != os.Getpid():
		// No locks on this file system: the process itself must do.
		return nil, last, errors.Join(flock.ErrHeld, f.Close())
	case denied != nil:
		return nil, last, errors.Join(denied, f.Close())
	}
	return &lock{f}, last, nil
}

// sign writes this process into the lock.
func (l *lock) sign(finishing bool) error {
	o := ownerOf(os.Getpid())
	o.Finishing = finishing
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(data, 0)
	return err
}

func (l *lock) release() error { return l.file.Close() }

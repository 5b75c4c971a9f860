package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/internal/flock"
	"github.com/kubedyno/kubedyno/internal/tsdb"
)

const (
	// finishWait is how long Open waits for another one that finishes the
	// same recording.
	finishWait = time.Minute
	// signWait is how long such another one may hold the lock before it has
	// signed it.
	signWait = 100 * time.Millisecond
)

// finishDead finishes a recording whose writer died, and returns where it is
// then: in dir, or in a copy where dir cannot be written.
func finishDead(dir string) (home string, m Meta, err error) {
	m, err = finishIn(dir)
	if err == nil || !unwritable(err) {
		return dir, m, err
	}
	temp, copyErr := os.MkdirTemp("", "kubedyno-recording-")
	if copyErr == nil {
		defer func() {
			if err != nil {
				_ = os.RemoveAll(temp)
			}
		}()
		copyErr = copyFiles(temp, dir)
	}
	if copyErr != nil {
		return "", Meta{}, fmt.Errorf("%w; nor in a temporary copy: %w", err, copyErr)
	}
	m, err = finishIn(temp)
	return temp, m, err
}

// unwritable reports whether err says that a folder takes no writes, for
// whatever reason: then a copy elsewhere may.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || noRoom(err)
}

// finishIn finishes the recording in dir under its lock.
func finishIn(dir string) (Meta, error) {
	if err := os.Mkdir(filepath.Join(dir, liveDir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return Meta{}, unfinished(dir, err)
	}
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		l, last, err := takeLock(dir)
		waited := time.Since(start)
		switch {
		case errors.Is(err, flock.ErrHeld) && waited < signWait,
			errors.Is(err, flock.ErrHeld) && last.Finishing && waited < finishWait:
			continue // another Open is at work
		case errors.Is(err, flock.ErrHeld):
			return Meta{}, &LiveError{Dir: dir, PID: last.PID}
		case errors.Is(err, fs.ErrNotExist):
			// The other one removed live/ under us: it is done.
			return readMeta(dir)
		case err != nil:
			return Meta{}, unfinished(dir, err)
		}
		m, err := readMeta(dir)
		if err == nil && m.Status == StatusRunning {
			m, err = l.finishDead(dir, m, last)
		}
		return m, errors.Join(err, l.release())
	}
}

// finishDead finishes the recording in dir, whose status was m and whose
// writer is dead.
func (l *lock) finishDead(dir string, m Meta, writer owner) (_ Meta, err error) {
	if err := l.sign(true); err != nil {
		return Meta{}, unfinished(dir, err)
	}
	metrics, err := tsdb.Recover(filepath.Join(dir, metricsDir))
	if err != nil {
		return Meta{}, unfinished(dir, fmt.Errorf("finish metrics: %w", err))
	}
	last, err := settle(dir, metrics)
	if err = errors.Join(err, metrics.Close()); err != nil {
		return Meta{}, unfinished(dir, err)
	}
	m.Status = StatusIncomplete
	m.Ended = latest(m.Started, last)
	m.EndReason = fmt.Sprintf("its writer (process %d) died; the last observation is of %s, %.1f s after the start%s",
		writer.PID, m.Ended.Format("15:04:05.000 MST"), m.Ended.Sub(m.Started).Seconds(), during(m))
	m.Invalid = append(m.Invalid, "the recording is incomplete: "+m.EndReason)
	if err := seal(dir, &m); err != nil {
		return Meta{}, unfinished(dir, err)
	}
	return m, nil
}

// during tells the phase in which a recording broke off.
func during(m Meta) string {
	for _, p := range m.Phases {
		if p.End.IsZero() && !p.Start.IsZero() {
			return ", in phase " + p.Name
		}
	}
	return ""
}

// copyFiles copies the regular files below from into the folder to.
func copyFiles(to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		return copyFile(target, path)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

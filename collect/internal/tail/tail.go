// Package tail follows a growing file line by line, across rotation and
// truncation.
//
// It polls: one stat each quarter of a second costs less than it takes to
// explain what inotify does with a renamed file on each kind of file system.
package tail

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/internal/beat"
)

const (
	// Poll is how often the file is looked at.
	Poll = 250 * time.Millisecond
	// MaxLine bounds a line. A longer one arrives in pieces, Partial set on
	// all but the last.
	MaxLine = 1 << 20
	chunk   = 256 << 10
)

// A Line is one line of the file.
type Line struct {
	Text    []byte // without its newline; valid until the function returns
	Partial bool   // the line goes on
}

// Options say where to begin and when to end.
type Options struct {
	// FromStart reads what the file holds already; otherwise reading begins
	// at its end as Follow finds it. A file that appears later is read whole.
	FromStart bool
	// Quiet is for how long the file must stay as it is before Follow
	// believes that its writer has nothing left, once ctx has ended. Zero:
	// what is there is read and that is all.
	Quiet time.Duration
	// Done, where set, ends that wait too: the file has reached what was
	// waited for.
	Done func() bool
	// Patience bounds that wait.
	Patience time.Duration
	Poll     time.Duration
	// Idle, where set, is called when all there was has been handed over.
	Idle func() error
}

// Stats tell what was met.
type Stats struct {
	Lines, Bytes         int64
	Rotated, Truncated   int
	Missing              bool    // the file never appeared
	StillBusy            bool    // the writer had not become quiet when patience ended
	UnfinishedLastLength int     // bytes of a last line without its end; it was handed over
	CPUSeconds           float64 // of reading, and of the caller's functions; 0 where unknown
}

// A Follower follows one file.
type Follower struct {
	path  string
	o     Options
	f     *os.File
	pos   int64
	buf   []byte // what was read of an unfinished line
	line  func(Line) error
	stats Stats
}

// Open fixes the place where reading begins: bytes that are written from now
// on will be read, however late Follow is called. A file that does not exist
// yet is fine.
func Open(path string, o Options) (*Follower, error) {
	if o.Poll <= 0 {
		o.Poll = Poll
	}
	t := &Follower{path: path, o: o}
	err := t.open(!o.FromStart)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return t, err
}

func (t *Follower) open(atEnd bool) error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	t.pos = 0
	if atEnd {
		if t.pos, err = f.Seek(0, io.SeekEnd); err != nil {
			f.Close()
			return err
		}
	}
	t.f = f
	return nil
}

// Follow calls line for each line until ctx ends, and then for what is left.
// It returns line's error, or one of reading.
func (t *Follower) Follow(ctx context.Context, line func(Line) error) (Stats, error) {
	t.line = line
	defer func() {
		if t.f != nil {
			t.f.Close()
			t.f = nil
		}
	}()
	tick := beat.NewTicker(t.o.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := t.look(); err != nil {
			return t.stats, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	changed := time.Now()
	for deadline := changed.Add(t.o.Patience); ; {
		n, err := t.look()
		if err != nil {
			return t.stats, err
		}
		now := time.Now()
		if n > 0 {
			changed = now
		}
		if now.Sub(changed) >= t.o.Quiet || t.o.Done != nil && t.o.Done() {
			break
		}
		if now.After(deadline) {
			t.stats.StillBusy = true
			break
		}
		time.Sleep(min(t.o.Poll, 50*time.Millisecond))
	}
	t.stats.UnfinishedLastLength = len(t.buf)
	err := t.finishLine()
	if err == nil && t.o.Idle != nil {
		err = t.o.Idle()
	}
	t.stats.Missing = t.f == nil && t.stats.Bytes == 0
	return t.stats, err
}

// look is drain, accounted for.
func (t *Follower) look() (n int64, err error) {
	t.stats.CPUSeconds += collect.CPU(func() { n, err = t.drain() })
	return n, err
}

// drain reads all there is, following the name to a new file.
func (t *Follower) drain() (n int64, err error) {
	defer func() {
		if n > 0 && err == nil && t.o.Idle != nil {
			err = t.o.Idle()
		}
	}()
	for {
		if t.f == nil {
			err := t.open(false)
			if errors.Is(err, fs.ErrNotExist) {
				return n, nil
			}
			if err != nil {
				return n, err
			}
		}
		m, err := t.read()
		n += m
		if err != nil {
			return n, err
		}
		here, err := t.f.Stat()
		if err != nil {
			return n, err
		}
		there, err := os.Stat(t.path)
		switch {
		case err == nil && os.SameFile(here, there):
			return n, nil
		case errors.Is(err, fs.ErrNotExist):
			// Renamed away, its successor is not there yet: the writer may
			// still write to what we hold.
			return n, nil
		case err != nil:
			return n, err
		}
		// Rotated. The old file may have grown since we read it.
		m, err = t.read()
		n += m
		if err == nil {
			err = t.finishLine()
		}
		t.stats.Rotated++
		t.f.Close()
		t.f = nil
		if err != nil {
			return n, err
		}
	}
}

// read reads what the open file has more.
func (t *Follower) read() (n int64, err error) {
	info, err := t.f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < t.pos {
		t.stats.Truncated++
		t.pos = 0
		if err := t.finishLine(); err != nil {
			return 0, err
		}
	}
	for {
		start := len(t.buf)
		if cap(t.buf)-start < chunk {
			grown := make([]byte, start, 2*cap(t.buf)+chunk)
			copy(grown, t.buf)
			t.buf = grown
		}
		m, err := t.f.ReadAt(t.buf[start:start+chunk], t.pos)
		t.buf = t.buf[:start+m]
		t.pos += int64(m)
		n += int64(m)
		t.stats.Bytes += int64(m)
		if e := t.split(start); e != nil {
			return n, e
		}
		if err == io.EOF || m == 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// split hands over the whole lines of t.buf; none ends before from.
func (t *Follower) split(from int) error {
	b := t.buf
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			break
		}
		if err := t.emit(b[:from+i], false); err != nil {
			return err
		}
		b, from = b[from+i+1:], 0
	}
	for len(b) >= MaxLine {
		if err := t.emit(b[:MaxLine], true); err != nil {
			return err
		}
		b = b[MaxLine:]
	}
	t.buf = t.buf[:copy(t.buf, b)]
	return nil
}

// finishLine hands over a line that will get no end.
func (t *Follower) finishLine() error {
	if len(t.buf) == 0 {
		return nil
	}
	b := t.buf
	t.buf = t.buf[:0]
	return t.emit(b, false)
}

func (t *Follower) emit(b []byte, partial bool) error {
	for len(b) > MaxLine { // a whole line that came with one read
		if err := t.emit(b[:MaxLine], true); err != nil {
			return err
		}
		b = b[MaxLine:]
	}
	if !partial {
		t.stats.Lines++
	}
	return t.line(Line{Text: b, Partial: partial})
}

package table

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	// It takes a half to a sixth of what encoding/json does for a row (BenchmarkAppend), and rows
	// were a tenth of what our process does in a run under load.
	fastjson "github.com/segmentio/encoding/json"
)

// flushAt bounds what a Log holds back between two calls of Flush.
const flushAt = 256 << 10

// A Log is an append-only file of rows, one JSON object a line. Its methods
// may be called at the same time.
//
// A row is safe from the death of the process once Flush has returned. It is
// not safe from the death of the machine: Log never syncs, because a run that
// measures disks must not add syncs of its own.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	pending []byte // not yet given to the system; starts anywhere in a line after a short write
	err     error
	lost    int64
}

// CreateLog creates the file at path, or continues it.
func CreateLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Log{file: f}, nil
}

// buffers are shared by all logs: appends from many goroutines encode at the
// same time and hold a log's lock only to copy.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Append adds a row. After the first failed write the log takes no more rows,
// so that what the file holds is a prefix of what was observed, and Append
// returns that first error.
func (l *Log) Append(row any) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	line, encodeErr := fastjson.Append((*buf)[:0], row, fastjson.SortMapKeys)
	line = append(line, '\n')
	*buf = line

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && encodeErr != nil {
		l.err = encodeErr
	}
	if l.err != nil {
		l.lost++
		return l.err
	}
	l.pending = append(l.pending, line...)
	if len(l.pending) >= flushAt {
		return l.flush()
	}
	return nil
}

// Flush hands all rows to the operating system.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return l.flush()
}

func (l *Log) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	n, err := l.file.Write(l.pending)
	l.pending = append(l.pending[:0], l.pending[n:]...)
	if err != nil {
		l.err = err
	}
	return err
}

// Close flushes and closes the file. Where an earlier write failed it tries
// once more to complete the rows that were accepted, since a full disk may
// have room again; lost counts the rows that were refused meanwhile.
func (l *Log) Close() (lost int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.flush()
	if l.err == nil {
		l.err = os.ErrClosed
	}
	return l.lost, errors.Join(err, l.file.Close())
}

// ReadLog calls row for every row of the file at path. A last line without its
// end is what a killed writer leaves and is dropped; any other line that does
// not decode is an error.
func ReadLog[T any](path string, row func(T) error) error {
	_, err := ReadLogFrom(path, 0, row)
	return err
}

// ReadLogFrom is ReadLog from a place in the file on, the start of a line, and
// returns where the last whole line ends: there the next call goes on.
func ReadLogFrom[T any](path string, offset int64, row func(T) error) (next int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return offset, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, fmt.Errorf("%s: %w", path, err)
		}
		var r T
		if err := json.Unmarshal(line, &r); err != nil {
			return offset, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		if err := row(r); err != nil {
			return offset, err
		}
		offset += int64(len(line))
	}
}

// readLine returns a line with its end. It avoids a copy where the line fits
// the buffer; the result is valid until the next call.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	rest, err := in.ReadBytes('\n')
	return append(long, rest...), err
}

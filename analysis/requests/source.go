package requests

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

// maxLine bounds a line of a log; a longer one is counted and passed over. No
// audit event at level Metadata is that long, and one with bodies is cut to
// 1 MiB and some by etcd's own limit.
const maxLine = 4 << 20

// FileStats tell what a log held.
type FileStats struct {
	Lines, Requests int64
	Bad             int64 // lines that were not understood
	Open            int64 // requests that had begun and not ended
	Source          string
}

// ErrNotALog says that a file is neither an audit log nor an API server's.
var ErrNotALog = errors.New("neither an audit log (JSON lines of audit.k8s.io/v1) nor an API server's log at -v=3 or above")

// EachInFile calls f for each request in the log at path: JSON lines of an
// audit log, or an API server's own log at -v=3 or above, compressed with gzip
// or not. Requests that are still open come last, with DoneMicros 0.
func EachInFile(path string, f func(*record.Request) error) (FileStats, error) {
	file, err := os.Open(path)
	if err != nil {
		return FileStats{}, fmt.Errorf("read requests: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return FileStats{}, fmt.Errorf("read requests: %w", err)
	}
	stats, err := EachInLog(file, info.ModTime(), f)
	if err != nil {
		return stats, fmt.Errorf("read requests from %s: %w", path, err)
	}
	return stats, nil
}

// EachInLog is EachInFile of a stream. near is a time close to the log's end:
// an API server's own log has no year, and the zone of this process.
func EachInLog(in io.Reader, near time.Time, f func(*record.Request) error) (stats FileStats, err error) {
	r := bufio.NewReaderSize(in, 256<<10)
	if head, _ := r.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return stats, err
		}
		defer z.Close()
		r = bufio.NewReaderSize(z, 256<<10)
	}
	var events audit.Events
	http := audit.HTTPLog{Near: near, Zone: time.Local}
	give := func(row *record.Request) error {
		stats.Requests++
		return f(row)
	}
	var long []byte
	skipping := false
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(long)+len(line) > maxLine {
				long, skipping = long[:0], true
			} else if !skipping {
				long = append(long, line...)
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return stats, err
		}
		last := err != nil
		switch {
		case skipping:
			skipping, line = false, nil
			stats.Lines++
			stats.Bad++
		case len(long) > 0:
			long = append(long, line...)
			line = long
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			stats.Lines++
			if line[0] == '{' {
				row, done, err := events.Line(line)
				switch {
				case err != nil:
					stats.Bad++
				case done:
					stats.Source = audit.SourceAudit
					if err := give(&row); err != nil {
						return stats, err
					}
				}
			} else {
				row, err := http.Line(line)
				switch {
				case errors.Is(err, audit.ErrNoRequest):
				case err != nil:
					stats.Bad++
				default:
					stats.Source = audit.SourceLog
					if err := give(&row); err != nil {
						return stats, err
					}
				}
			}
		}
		long = long[:0]
		if last {
			break
		}
	}
	for _, row := range events.Open() {
		stats.Open++
		stats.Source = audit.SourceAudit
		if err := give(&row); err != nil {
			return stats, err
		}
	}
	if stats.Requests == 0 {
		return stats, ErrNotALog
	}
	return stats, nil
}

package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

const (
	// headRange is longer than any run, so that all samples stay in one head
	// and end in one block.
	headRange = 10 * 365 * 24 * time.Hour
	// stripes of the head's series map. Prometheus has 16 Ki for millions of
	// series; a run has tens of thousands.
	stripes = 1 << 11
	// segmentSize is preallocated for each file of chunks in the block.
	// Prometheus' 512 MiB would fail on small disks for no reason.
	segmentSize = 16 << 20
	walSegment  = 16 << 20
	walDir      = "wal"
)

var discard = slog.New(slog.DiscardHandler)

// ErrFinished is returned for samples that come after Cut.
var ErrFinished = errors.New("metrics are finished")

// A Store takes the samples of a live run. Its methods may be called at the
// same time. Every commit is in the hands of the operating system when it
// returns, so that kill -9 loses no committed sample.
//
// While it takes samples it is the write-ahead log of a bare TSDB head, and the head
// is made of it when the store is cut: see sampleLog. A tsdb.DB would compact in the
// background when it thinks best, and panics where a full disk stops it from moving
// chunks out of memory. An hour of 25,000 series at 5 s takes some 30 MB of chunks.
type Store struct {
	dir     string
	log     *sampleLog // nil where the store was recovered
	dropped atomic.Int64

	mu   sync.Mutex // guards head
	head *tsdb.Head // nil until Cut
}

// Create starts a store in dir, which is created if it does not exist.
func Create(dir string) (*Store, error) {
	wal, err := wlog.NewSize(discard, nil, filepath.Join(dir, walDir), walSegment, compression.Snappy)
	if err != nil {
		return nil, err
	}
	return &Store{dir: dir, log: newSampleLog(wal)}, nil
}

// Recover reopens the store of a writer that died, with all that it
// committed, so that it can be cut. It takes no more samples.
func Recover(dir string) (*Store, error) {
	head, err := replay(dir)
	if err != nil {
		return nil, err
	}
	return &Store{dir: dir, head: head}, nil
}

// replay makes the head that the log in dir tells of.
//
// The log is only read, torn end and all. Prometheus would repair it first,
// by rewriting it in place: death in the middle of that would cost what the
// first death did not.
func replay(dir string) (_ *tsdb.Head, err error) {
	// Replay moves full chunks to disk, and the head panics where it cannot.
	// They take less than the log did, but for values that nothing makes smaller.
	log := filepath.Join(dir, walDir)
	if err := os.MkdirAll(log, 0o755); err != nil {
		return nil, err
	}
	size, err := dirSize(log)
	if err != nil {
		return nil, err
	}
	const slack = 1 << 20
	if free, ok := freeSpace(dir); ok && free < size+slack {
		return nil, &RoomError{Dir: dir, FreeBytes: free, NeedBytes: size + slack}
	}
	wal, err := wlog.Open(discard, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, wal.Close())
		}
	}()
	o := tsdb.DefaultHeadOptions()
	o.ChunkRange = headRange.Milliseconds()
	o.ChunkDirRoot = dir
	o.StripeSize = stripes
	o.IsolationDisabled = true // nobody reads it while it is written
	head, err := tsdb.NewHead(nil, discard, wal, nil, o, tsdb.NewHeadStats())
	if err != nil {
		return nil, err
	}
	var torn *wlog.CorruptionErr
	if err := head.Init(math.MinInt64); err != nil && !errors.As(err, &torn) {
		return nil, err
	}
	return head, nil
}

// A RoomError says that the samples of a log cannot be taken to a block, for the
// disk may not have the room. The log is as it was. It is an ENOSPC.
type RoomError struct {
	Dir                  string
	FreeBytes, NeedBytes int64
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("make a block of the metrics in %s: %.1f MiB are free, and it may take %.1f", e.Dir, float64(e.FreeBytes)/(1<<20), float64(e.NeedBytes)/(1<<20))
}

func (e *RoomError) Unwrap() error { return errNoSpace }

// A Sample is one value of one series.
type Sample struct {
	Name   string
	Labels map[string]string
	At     time.Time
	Value  float64
}

// Append commits samples. Those older than their series' last one are dropped
// and counted: the rest still counts.
func (s *Store) Append(samples []Sample) error {
	if len(samples) == 0 {
		return nil
	}
	app := s.AppenderV2(context.Background())
	var invalid error
	b := labels.NewScratchBuilder(8)
	for _, sample := range samples {
		b.Reset()
		b.Add(model.MetricNameLabel, sample.Name)
		for k, v := range sample.Labels {
			b.Add(k, v)
		}
		b.Sort()
		_, err := app.Append(0, b.Labels(), 0, millis(sample.At), sample.Value, nil, nil, storage.AOptions{})
		if outdated(err) {
			s.dropped.Add(1)
		} else if err != nil && invalid == nil {
			invalid = fmt.Errorf("sample of %s: %w", sample.Name, err)
		}
	}
	return errors.Join(invalid, app.Commit())
}

func outdated(err error) bool {
	return errors.Is(err, storage.ErrOutOfOrderSample) || errors.Is(err, storage.ErrOutOfBounds) ||
		errors.Is(err, storage.ErrDuplicateSampleForTimestamp) || errors.Is(err, storage.ErrTooOldSample)
}

// Dropped counts the samples that Append did not take for being out of order.
func (s *Store) Dropped() int64 { return s.dropped.Load() }

// AppenderV2 implements storage.AppendableV2, for a scrape manager.
func (s *Store) AppenderV2(context.Context) storage.AppenderV2 {
	if err := s.Err(); err != nil {
		return refusing{err}
	}
	return s.log.appender()
}

// Err is the error that stopped the store, such as a full disk. A store that
// failed once takes no more samples: after a torn record the log would hold
// samples that replay does not find.
func (s *Store) Err() error {
	if s.log == nil {
		return ErrFinished
	}
	return s.log.failed()
}

// refusing is the appender of a store that takes no more samples.
type refusing struct{ err error }

func (r refusing) Append(storage.SeriesRef, labels.Labels, int64, int64, float64, *histogram.Histogram, *histogram.FloatHistogram, storage.AOptions) (storage.SeriesRef, error) {
	return 0, r.err
}
func (r refusing) Commit() error   { return r.err }
func (r refusing) Rollback() error { return nil }

// MaxTime is the time of the newest sample.
func (s *Store) MaxTime() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest, ok := s.newest()
	return fromMillis(newest), ok
}

func (s *Store) newest() (int64, bool) {
	if s.head == nil {
		return s.log.newest()
	}
	return s.head.MaxTime(), s.head.NumSeries() > 0 && s.head.MaxTime() != math.MinInt64
}

// Cut ends the store: it writes all samples as one block. Without samples
// there is no block. The log stays until Clean, so that a failed Cut, or death
// right after it, loses nothing.
func (s *Store) Cut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		s.log.fail(ErrFinished)
	}
	done, err := blocks(s.dir)
	if err != nil {
		return err
	}
	if _, ok := s.newest(); !ok || len(done) > 0 {
		// A block is written whole or not at all, and only here: one that is
		// there already holds what the log holds.
		return nil
	}
	if s.head == nil {
		_ = s.log.close() // where it fails, what was committed is in the file all the same
		if s.head, err = replay(s.dir); err != nil {
			return err
		}
	}
	compactor, err := tsdb.NewLeveledCompactorWithOptions(context.Background(), nil, discard,
		[]int64{headRange.Milliseconds()}, nil, tsdb.LeveledCompactorOptions{MaxBlockChunkSegmentSize: segmentSize})
	if err != nil {
		return err
	}
	first, last := s.head.MinTime(), s.head.MaxTime()
	// A block's end is exclusive.
	_, err = compactor.Write(s.dir, tsdb.NewRangeHead(s.head, first, last), first, last+1, nil)
	return err
}

// Close frees the store. It does not cut.
//
// On a full disk the log cannot end properly: Close fails, and may be called
// again when there is room.
func (s *Store) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		err = s.log.close()
	}
	if s.head == nil {
		return err
	}
	// The head moves its chunks to disk once more, for a next start that
	// never comes, and panics where it cannot.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close metrics: %v", p)
		}
	}()
	return errors.Join(err, s.head.Close())
}

func dirSize(dir string) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

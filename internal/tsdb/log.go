package tsdb

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// sampleLog takes the samples of a live run: it writes the log that a Prometheus head
// replays, and has no head. A head's series are spread over its memory, with their
// chunks, locks and index; each scrape finds them out of the CPU's caches, and nobody
// reads a live store. It is made when the run is over, as after a death.
//
// It takes and refuses what a head does that takes no samples out of order.
type sampleLog struct {
	mu     sync.Mutex
	wal    *wlog.WL
	err    error // that stopped it
	series []loggedSeries
	// histograms are the last samples of series of histograms.
	histograms map[storage.SeriesRef]whole
	// byHash is the first series with labels of that hash, plus one; others are
	// behind it.
	byHash map[uint64]int32
	news   []record.RefSeries // not yet in the log
	some   bool               // there are samples
	at     int64              // of the newest
	buf    []byte
	spare  [][]record.RefSample // for the next appenders
	closed bool
}

type loggedSeries struct {
	labels labels.Labels
	at     int64   // of the last sample
	v      float64 // of it, where it is a float
	next   int32   // with the same hash, plus one
	kind   kind    // of the last sample
}

// kind of a sample.
type kind uint8

const (
	none kind = iota
	float
	ofIntegers // histogram
	ofFloats   // histogram
)

// whole is a sample that is a histogram, of one of both kinds.
type whole struct {
	ref storage.SeriesRef
	t   int64
	h   *histogram.Histogram
	fh  *histogram.FloatHistogram
}

func (w *whole) kind() kind {
	if w.fh != nil {
		return ofFloats
	}
	return ofIntegers
}

// seriesTogether are in one record of the log.
const seriesTogether = 256

func newSampleLog(wal *wlog.WL) *sampleLog {
	return &sampleLog{wal: wal, byHash: map[uint64]int32{}, histograms: map[storage.SeriesRef]whole{}}
}

// fail stops the log.
func (l *sampleLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *sampleLog) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// newest is the time of the newest sample in ms.
func (l *sampleLog) newest() (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.some
}

// close ends the file. Where that fails it may be called again.
func (l *sampleLog) close() error {
	l.fail(ErrFinished)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := l.wal.Close()
	l.closed = err == nil
	return err
}

// appender gathers the samples of one commit. Floats come before histograms in it.
type appender struct {
	log    *sampleLog
	floats []record.RefSample
	wholes []whole
}

func (l *sampleLog) appender() *appender {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &appender{log: l}
	if n := len(l.spare); n > 0 {
		a.floats, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	return a
}

// Append implements storage.AppenderV2. It keeps no start times, exemplars and
// metadata.
func (a *appender) Append(ref storage.SeriesRef, ls labels.Labels, _, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AOptions) (storage.SeriesRef, error) {
	if fh != nil {
		if err := fh.Validate(); err != nil {
			return 0, err
		}
	} else if h != nil {
		if err := h.Validate(); err != nil {
			return 0, err
		}
	}
	l := a.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	if l.some && t < l.at-headRange.Milliseconds()/2 {
		return 0, storage.ErrOutOfBounds
	}
	if ref == 0 || int(ref) > len(l.series) {
		var err error
		if ref, err = l.find(ls); err != nil {
			return 0, err
		}
	}
	if h != nil || fh != nil {
		w := whole{ref: ref, t: t, fh: fh}
		if fh == nil {
			w.h = h
		}
		again, err := l.mayFollow(&w)
		if err != nil {
			return 0, err
		}
		if !again {
			a.wholes = append(a.wholes, w)
		}
		return ref, nil
	}
	again, err := l.series[ref-1].mayFollow(t, v)
	if err != nil {
		return 0, err
	}
	if !again {
		a.floats = append(a.floats, record.RefSample{Ref: chunks.HeadSeriesRef(ref), T: t, V: v})
	}
	return ref, nil
}

// mayFollow says whether a float may follow the samples that there are; again,
// whether it is the last one once more.
func (s *loggedSeries) mayFollow(t int64, v float64) (again bool, err error) {
	switch {
	case s.kind == none || t > s.at:
		return false, nil
	case t < s.at:
		return false, storage.ErrOutOfOrderSample
	case s.kind != float || math.Float64bits(v) != math.Float64bits(s.v):
		return false, storage.ErrDuplicateSampleForTimestamp
	}
	return true, nil
}

// mayFollow is the same for a histogram.
func (l *sampleLog) mayFollow(w *whole) (again bool, err error) {
	s, last := &l.series[w.ref-1], l.histograms[w.ref]
	switch {
	case s.kind == none || w.t > s.at:
		return false, nil
	case w.t < s.at:
		return false, storage.ErrOutOfOrderSample
	case s.kind != w.kind() || !w.h.Equals(last.h) || !w.fh.Equals(last.fh):
		return false, storage.ErrDuplicateSampleForTimestamp
	}
	return true, nil
}

// find returns the reference of the series with these labels, which is made where
// there is none.
func (l *sampleLog) find(ls labels.Labels) (storage.SeriesRef, error) {
	ls = ls.WithoutEmpty()
	if ls.IsEmpty() {
		return 0, fmt.Errorf("empty labelset: %w", tsdb.ErrInvalidSample)
	}
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return 0, fmt.Errorf("label name %q is not unique: %w", name, tsdb.ErrInvalidSample)
	}
	hash := ls.Hash()
	first := l.byHash[hash]
	for i := first; i > 0; i = l.series[i-1].next {
		if labels.Equal(l.series[i-1].labels, ls) {
			return storage.SeriesRef(i), nil
		}
	}
	l.series = append(l.series, loggedSeries{labels: ls, next: first})
	ref := len(l.series)
	l.byHash[hash] = int32(ref)
	l.news = append(l.news, record.RefSeries{Ref: chunks.HeadSeriesRef(ref), Labels: ls})
	return storage.SeriesRef(ref), nil
}

// Commit implements storage.AppenderV2.
func (a *appender) Commit() error {
	l := a.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.write(a.floats, a.wholes)
	}
	a.free()
	return l.err
}

// Rollback implements storage.AppenderV2. Series that were met stay.
func (a *appender) Rollback() error {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	a.free()
	return nil
}

func (a *appender) free() {
	if a.floats != nil {
		a.log.spare = append(a.log.spare, a.floats[:0])
	}
	a.floats, a.wholes = nil, nil
}

// write brings samples into the log, with the series that are new.
func (l *sampleLog) write(floats []record.RefSample, wholes []whole) error {
	kept := floats[:0]
	for _, p := range floats {
		s := &l.series[p.Ref-1]
		if s.kind > float && value.IsStaleNaN(p.V) { // ends a series of histograms as one of them
			w := whole{ref: storage.SeriesRef(p.Ref), t: p.T, h: &histogram.Histogram{Sum: p.V}}
			if s.kind == ofFloats {
				w.h, w.fh = nil, &histogram.FloatHistogram{Sum: p.V}
			}
			wholes = append(wholes, w)
			continue
		}
		if again, err := s.mayFollow(p.T, p.V); again || err != nil {
			continue // another one came meanwhile
		}
		s.kind, s.at, s.v = float, p.T, p.V
		l.advance(p.T)
		kept = append(kept, p)
	}
	var integers []record.RefHistogramSample
	var broken []record.RefFloatHistogramSample
	for _, w := range wholes {
		if again, err := l.mayFollow(&w); again || err != nil {
			continue
		}
		s := &l.series[w.ref-1]
		s.kind, s.at = w.kind(), w.t
		l.histograms[w.ref] = w
		l.advance(w.t)
		if w.fh != nil {
			broken = append(broken, record.RefFloatHistogramSample{Ref: chunks.HeadSeriesRef(w.ref), T: w.t, FH: w.fh})
		} else {
			integers = append(integers, record.RefHistogramSample{Ref: chunks.HeadSeriesRef(w.ref), T: w.t, H: w.h})
		}
	}
	// All others are written at once: the log hands the last page of each call to the
	// system.
	var encoder record.Encoder
	var records [][]byte
	if len(l.news) > 0 {
		// By parts: one record of all the series of a first scrape would be megabytes of new memory.
		for part := range slices.Chunk(l.news, seriesTogether) {
			l.buf = encoder.Series(part, l.buf[:0])
			if err := l.wal.Log(l.buf); err != nil {
				return err
			}
		}
		clear(l.news)
		l.news = l.news[:0]
	}
	if len(kept) > 0 {
		l.buf = encoder.Samples(kept, l.buf[:0])
		records = append(records, l.buf)
	}
	if len(integers) > 0 {
		rec, custom := encoder.HistogramSamples(integers, nil)
		if len(rec) > 0 {
			records = append(records, rec)
		}
		if len(custom) > 0 {
			records = append(records, encoder.CustomBucketsHistogramSamples(custom, nil))
		}
	}
	if len(broken) > 0 {
		rec, custom := encoder.FloatHistogramSamples(broken, nil)
		if len(rec) > 0 {
			records = append(records, rec)
		}
		if len(custom) > 0 {
			records = append(records, encoder.CustomBucketsFloatHistogramSamples(custom, nil))
		}
	}
	if len(records) == 0 {
		return nil
	}
	return l.wal.Log(records...)
}

func (l *sampleLog) advance(t int64) {
	if !l.some || t > l.at {
		l.some, l.at = true, t
	}
}

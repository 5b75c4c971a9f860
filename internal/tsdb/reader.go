package tsdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// ErrEmpty is returned for a folder without a block.
var ErrEmpty = errors.New("no metrics")

const (
	queryTimeout = time.Minute
	querySamples = 50_000_000 // Prometheus' own limit, some 800 MB
)

// A Reader queries the blocks of a folder. Its methods may be called at the
// same time. It writes nothing, so that read-only folders work.
type Reader struct {
	blocks   []*tsdb.Block
	engine   *promql.Engine
	min, max int64 // of all samples, both inclusive

	mu     sync.RWMutex // held for reading by queries: mapped files must outlive them
	closed bool
}

// OpenReader opens the blocks in dir.
func OpenReader(dir string) (_ *Reader, err error) {
	defer rescue(&err)
	paths, err := blocks(dir)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrEmpty)
	}
	r := &Reader{min: math.MaxInt64, max: math.MinInt64}
	for _, path := range paths {
		b, err := tsdb.OpenBlock(discard, path, nil, nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s is damaged: %w", path, err), r.Close())
		}
		r.blocks = append(r.blocks, b)
		r.min, r.max = min(r.min, b.Meta().MinTime), max(r.max, b.Meta().MaxTime-1)
	}
	r.engine = promql.NewEngine(promql.EngineOpts{
		Logger:     discard,
		MaxSamples: querySamples,
		Timeout:    queryTimeout,
		Parser:     parser.NewParser(parser.Options{}),
	})
	return r, nil
}

// Close waits for running queries.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for _, b := range r.blocks {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// enter keeps the blocks open until leave is called.
func (r *Reader) enter() (leave func(), err error) {
	r.mu.RLock()
	if r.closed {
		r.mu.RUnlock()
		return nil, errors.New("metrics are closed")
	}
	return r.mu.RUnlock, nil
}

// rescue turns a panic over a damaged index or chunk into an error.
func rescue(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the metrics block is damaged: %v", p)
	}
}

// Querier implements storage.Queryable.
func (r *Reader) Querier(mint, maxt int64) (storage.Querier, error) {
	var qs []storage.Querier
	for _, b := range r.blocks {
		q, err := tsdb.NewBlockQuerier(b, mint, maxt)
		if err != nil {
			for _, q := range qs {
				err = errors.Join(err, q.Close())
			}
			return nil, err
		}
		qs = append(qs, q)
	}
	return storage.NewMergeQuerier(qs, nil, storage.ChainedSeriesMerge), nil
}

// Point is one value at one time.
type Point struct {
	Time  time.Time
	Value float64
}

// Series is a result: labels, and points or a note.
type Series struct {
	Labels map[string]string
	Points []Point
	Note   string // the value as text where it is not a number
}

// Instant evaluates a PromQL expression at one time.
func (r *Reader) Instant(ctx context.Context, expr string, at time.Time) (result []Series, err error) {
	return r.query(ctx, expr, func() (promql.Query, error) {
		return r.engine.NewInstantQuery(ctx, r, nil, expr, at)
	})
}

// Range evaluates a PromQL expression from start to end, both inclusive.
func (r *Reader) Range(ctx context.Context, expr string, start, end time.Time, step time.Duration) (result []Series, err error) {
	if step < time.Millisecond {
		return nil, fmt.Errorf("query %s: a step of %v is too short: 1ms is the least", expr, step)
	}
	if end.Before(start) {
		return nil, fmt.Errorf("query %s: the window ends before it starts", expr)
	}
	return r.query(ctx, expr, func() (promql.Query, error) {
		return r.engine.NewRangeQuery(ctx, r, nil, expr, start, end, step)
	})
}

func (r *Reader) query(ctx context.Context, expr string, prepare func() (promql.Query, error)) (result []Series, err error) {
	defer rescue(&err)
	leave, err := r.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	q, err := prepare()
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, res.Err)
	}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			one := Series{Labels: s.Metric.Map()}
			if s.H != nil {
				one.Note = s.H.String()
			} else {
				one.Points = []Point{{fromMillis(s.T), s.F}}
			}
			result = append(result, one)
		}
	case promql.Matrix:
		for _, s := range v {
			one := Series{Labels: s.Metric.Map(), Points: make([]Point, 0, len(s.Floats))}
			for _, p := range s.Floats {
				one.Points = append(one.Points, Point{fromMillis(p.T), p.F})
			}
			if n := len(s.Histograms); n > 0 {
				one.Note = s.Histograms[n-1].H.String()
			}
			result = append(result, one)
		}
	case promql.Scalar:
		result = []Series{{Labels: map[string]string{}, Points: []Point{{fromMillis(v.T), v.V}}}}
	case promql.String:
		result = []Series{{Labels: map[string]string{}, Note: v.V}}
	default:
		return nil, fmt.Errorf("query %s: unexpected result %T", expr, v)
	}
	sortSeries(result)
	return result, nil
}

// each calls visit with every matching series and its samples up to end.
// Histograms and the marks of a series' end are for visit to skip.
func (r *Reader) each(ctx context.Context, metric string, match map[string]string, end int64, visit func(labels.Labels, chunkenc.Iterator) error) (err error) {
	defer rescue(&err)
	leave, err := r.enter()
	if err != nil {
		return err
	}
	defer leave()
	matchers, err := matchersOf(metric, match)
	if err != nil {
		return err
	}
	q, err := r.Querier(r.min, min(end, r.max))
	if err != nil {
		return err
	}
	defer q.Close()
	set := q.Select(ctx, false, nil, matchers...)
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		it = s.Iterator(it)
		if err := visit(s.Labels(), it); err != nil {
			return err
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("%s: %w", metric, err)
		}
	}
	return set.Err()
}

func matchersOf(metric string, match map[string]string) ([]*labels.Matcher, error) {
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric)}
	for name, v := range match {
		kind := labels.MatchEqual
		if re, ok := strings.CutPrefix(v, "~"); ok {
			kind, v = labels.MatchRegexp, re
		}
		m, err := labels.NewMatcher(kind, name, v)
		if err != nil {
			return nil, fmt.Errorf("match %s of %s: %w", name, metric, err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// Increase sums, over all matching series, the growth from the last sample at
// or before start to the last one at or before end. A fall is a restart, and
// counts from 0; a series without a sample at or before start counts from 0
// too. ok is false where no series has a sample at or before end.
func (r *Reader) Increase(ctx context.Context, metric string, match map[string]string, start, end time.Time) (sum float64, ok bool, err error) {
	from, to := millis(start), millis(end)
	err = r.each(ctx, metric, match, to, func(_ labels.Labels, it chunkenc.Iterator) error {
		last := 0.0
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue
			}
			t, v := it.At()
			if t > to {
				break
			}
			if math.IsNaN(v) {
				continue // the mark of an end, or a value that says nothing
			}
			ok = true
			if t > from {
				if v < last {
					last = 0
				}
				sum += v - last
			}
			last = v
		}
		return nil
	})
	return sum, ok, err
}

// At sums, over all matching series, the last sample at or before at and not
// older than lookback. A series that ended does not count.
func (r *Reader) At(ctx context.Context, metric string, match map[string]string, at time.Time, lookback time.Duration) (sum float64, ok bool, err error) {
	to, oldest := millis(at), millis(at.Add(-lookback))
	err = r.each(ctx, metric, match, to, func(_ labels.Labels, it chunkenc.Iterator) error {
		last, seen := 0.0, false
		for kind := it.Seek(oldest); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue
			}
			t, v := it.At()
			if t > to {
				break
			}
			last, seen = v, !value.IsStaleNaN(v)
		}
		if seen {
			sum, ok = sum+last, true
		}
		return nil
	})
	return sum, ok, err
}

// Points returns the samples of all matching series from start up to, not
// including, end. Series without one are left out.
func (r *Reader) Points(ctx context.Context, metric string, match map[string]string, start, end time.Time) (result []Series, err error) {
	from, to := millis(start), millis(end)-1
	err = r.each(ctx, metric, match, to, func(ls labels.Labels, it chunkenc.Iterator) error {
		one := Series{Labels: ls.Map()}
		for kind := it.Seek(from); kind != chunkenc.ValNone; kind = it.Next() {
			switch kind {
			case chunkenc.ValFloat:
				t, v := it.At()
				if t <= to && !value.IsStaleNaN(v) {
					one.Points = append(one.Points, Point{fromMillis(t), v})
				}
			case chunkenc.ValHistogram, chunkenc.ValFloatHistogram:
				if t, h := it.AtFloatHistogram(nil); t <= to && !value.IsStaleNaN(h.Sum) {
					one.Note = h.String()
				}
			}
		}
		if len(one.Points) > 0 || one.Note != "" {
			result = append(result, one)
		}
		return nil
	})
	sortSeries(result)
	return result, err
}

// sortSeries orders by labels, the names first.
func sortSeries(series []Series) {
	type keyed struct {
		key    labels.Labels
		series Series
	}
	all := make([]keyed, len(series))
	for i, s := range series {
		all[i] = keyed{labels.FromMap(s.Labels), s}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return labels.Compare(a.key, b.key) })
	for i, k := range all {
		series[i] = k.series
	}
}

package tsdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// Whatever a head takes and refuses, the log takes and refuses, and what comes of both
// is the same.
func TestLogIsAHead(t *testing.T) {
	taken, refused := 0, 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		o := tsdb.DefaultHeadOptions()
		o.ChunkRange = headRange.Milliseconds()
		o.ChunkDirRoot = t.TempDir()
		o.IsolationDisabled = true
		head, err := tsdb.NewHead(nil, discard, nil, nil, o, tsdb.NewHeadStats())
		if err != nil {
			t.Fatal(err)
		}
		if err := head.Init(math.MinInt64); err != nil {
			t.Fatal(err)
		}
		s := store(t)
		refs := map[string][2]storage.SeriesRef{} // as each gave them
		now := start.UnixMilli()
		for range 60 {
			want, got := head.AppenderV2(ctx), s.AppenderV2(ctx)
			now += 1 + random.Int64N(1000)
			names := map[string]bool{}
			for range random.IntN(20) {
				name := []string{"f", "h", "g", "b"}[random.IntN(4)] + strconv.Itoa(random.IntN(4))
				if names[name] {
					continue // a scrape has each series once
				}
				names[name] = true
				ls := labels.FromStrings(model.MetricNameLabel, name, "empty", "")
				at := now
				switch random.IntN(12) {
				case 0:
					at -= random.Int64N(3000)
				case 1:
					if _, ok := s.MaxTime(); ok { // a head that has no samples yet goes by the first of a commit
						at = math.MinInt64 / 4
					}
				}
				v := []float64{0, 1, math.NaN(), math.Float64frombits(value.StaleNaN), float64(random.IntN(1000))}[random.IntN(5)]
				var h *histogram.Histogram
				var fh *histogram.FloatHistogram
				stale := random.IntN(5) == 0
				switch {
				case stale:
					v = math.Float64frombits(value.StaleNaN)
				case name[0] == 'h':
					h = tsdbutil.GenerateTestHistogram(random.Int64N(3))
				case name[0] == 'g':
					fh = tsdbutil.GenerateTestFloatHistogram(random.Int64N(3))
				case name[0] == 'b':
					h = tsdbutil.GenerateTestCustomBucketsHistogram(random.Int64N(3))
				}
				known := refs[name]
				if random.IntN(3) == 0 {
					known = [2]storage.SeriesRef{}
				}
				wantRef, wantErr := want.Append(known[0], ls, 0, at, v, h, fh, storage.AOptions{})
				gotRef, gotErr := got.Append(known[1], ls, 0, at, v, h, fh, storage.AOptions{})
				if !errors.Is(gotErr, wantErr) {
					t.Fatalf("seed %d: %s at %d: %v, a head says %v", seed, name, at, gotErr, wantErr)
				}
				if wantErr != nil {
					refused++
					continue
				}
				taken++
				refs[name] = [2]storage.SeriesRef{wantRef, gotRef}
			}
			end := func(a storage.AppenderV2) error { return a.Commit() }
			if random.IntN(6) == 0 {
				end = func(a storage.AppenderV2) error { return a.Rollback() }
			}
			if err := errors.Join(end(want), end(got)); err != nil {
				t.Fatal(err)
			}
		}
		if newest, ok := s.MaxTime(); !ok || newest.UnixMilli() != head.MaxTime() {
			t.Errorf("seed %d: newest %v, a head says %d", seed, newest, head.MaxTime())
		}
		wants := contents(t, tsdb.NewRangeHead(head, math.MinInt64, math.MaxInt64))
		if err := s.Cut(); err != nil {
			t.Fatal(err)
		}
		gots := contents(t, tsdb.NewRangeHead(s.head, math.MinInt64, math.MaxInt64))
		for name := range wants {
			if gots[name] != wants[name] {
				t.Errorf("seed %d: %s\n got %s\nwant %s", seed, name, gots[name], wants[name])
			}
		}
		if len(gots) != len(wants) {
			t.Errorf("seed %d: %d series, a head has %d", seed, len(gots), len(wants))
		}
		if err := head.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if taken < 5000 || refused < 500 {
		t.Errorf("%d taken, %d refused: too few to tell", taken, refused)
	}
}

// contents are the samples of all series that have some.
func contents(t *testing.T, b tsdb.BlockReader) map[string]string {
	t.Helper()
	q, err := tsdb.NewBlockQuerier(b, math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	all := map[string]string{}
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	for set.Next() {
		text := ""
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			switch kind {
			case chunkenc.ValFloat:
				at, v := it.At()
				text += fmt.Sprintf("%d %x\n", at, math.Float64bits(v))
			case chunkenc.ValHistogram:
				at, h := it.AtHistogram(nil)
				text += fmt.Sprintf("%d %x %v\n", at, math.Float64bits(h.Sum), h)
			case chunkenc.ValFloatHistogram:
				at, h := it.AtFloatHistogram(nil)
				text += fmt.Sprintf("%d %x %v\n", at, math.Float64bits(h.Sum), h)
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		if text != "" {
			all[set.At().Labels().String()] = text
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return all
}

// A scrape of an API server's size, and what a head takes for it.
func BenchmarkCommit(b *testing.B) {
	const series = 17_000
	sets := make([]labels.Labels, series)
	for i := range sets {
		sets[i] = labels.FromStrings(model.MetricNameLabel, "request_duration_seconds_bucket", "component", "kube-apiserver", "resource", strconv.Itoa(i/20), "le", strconv.Itoa(i%20))
	}
	run := func(b *testing.B, appender func() storage.AppenderV2) {
		refs := make([]storage.SeriesRef, series)
		at := start.UnixMilli()
		for b.Loop() {
			app := appender()
			at += 10_000
			for i, ls := range sets {
				var err error
				if refs[i], err = app.Append(refs[i], ls, 0, at, float64(at/int64(10_000*(1+i%10))), nil, nil, storage.AOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/series*1e9, "ns/sample")
	}
	b.Run("log", func(b *testing.B) {
		s := store(b)
		run(b, func() storage.AppenderV2 { return s.AppenderV2(ctx) })
	})
	b.Run("head", func(b *testing.B) {
		dir := b.TempDir()
		wal, err := wlog.NewSize(discard, nil, filepath.Join(dir, walDir), walSegment, compression.Snappy)
		if err != nil {
			b.Fatal(err)
		}
		o := tsdb.DefaultHeadOptions()
		o.ChunkRange, o.ChunkDirRoot, o.StripeSize, o.IsolationDisabled = headRange.Milliseconds(), dir, stripes, true
		head, err := tsdb.NewHead(nil, discard, wal, nil, o, tsdb.NewHeadStats())
		if err != nil {
			b.Fatal(err)
		}
		defer head.Close()
		if err := head.Init(math.MinInt64); err != nil {
			b.Fatal(err)
		}
		run(b, func() storage.AppenderV2 { return head.AppenderV2(ctx) })
	})
}

// Series that one commit makes are there for the samples of another's.
func TestLogAtOnce(t *testing.T) {
	s := store(t)
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			var refs [20]storage.SeriesRef
			for i := range int64(200) {
				app := s.AppenderV2(ctx)
				for j := range refs {
					var err error
					ls := labels.FromStrings(model.MetricNameLabel, "own", "who", strconv.Itoa(who), "j", strconv.Itoa(j))
					if refs[j], err = app.Append(refs[j], ls, 0, start.UnixMilli()+i, float64(i), nil, nil, storage.AOptions{}); err != nil {
						t.Error(err)
					}
				}
				shared := labels.FromStrings(model.MetricNameLabel, "shared", "i", strconv.Itoa(int(i)))
				if _, err := app.Append(0, shared, 0, start.UnixMilli(), 1, nil, nil, storage.AOptions{}); err != nil {
					t.Error(err)
				}
				end := app.Commit
				if i%7 == 3 {
					end = app.Rollback
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := s.Cut(); err != nil {
		t.Fatal(err)
	}
	kept := 200 - 29 // commits of each
	found := contents(t, tsdb.NewRangeHead(s.head, math.MinInt64, math.MaxInt64))
	if want := 4*20 + kept; len(found) != want {
		t.Errorf("%d series, not %d", len(found), want)
	}
	for name, text := range found {
		want := 1
		if strings.Contains(name, "own") {
			want = kept
		}
		if n := strings.Count(text, "\n"); n != want {
			t.Errorf("%s has %d samples, not %d", name, n, want)
		}
	}
}

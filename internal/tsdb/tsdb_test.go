package tsdb

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

var ctx = context.Background()

// start is off any round number, so that no block range helps by chance.
var start = time.Date(2026, 1, 2, 23, 59, 30, 0, time.UTC)

func at(sec float64) time.Time { return start.Add(time.Duration(sec * float64(time.Second))) }

func store(t testing.TB) *Store {
	t.Helper()
	s, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// reader cuts s and opens the block.
func reader(t testing.TB, s *Store) *Reader {
	t.Helper()
	if err := s.Cut(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Clean(s.dir); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func add(t testing.TB, s *Store, name string, ls map[string]string, values ...float64) {
	t.Helper()
	for i, v := range values {
		if err := s.Append([]Sample{{name, ls, at(float64(i)), v}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIncrease(t *testing.T) {
	none := math.NaN() // a second without a sample
	stale := math.Float64frombits(value.StaleNaN)
	for _, c := range []struct {
		name     string
		series   [][]float64 // one value a second
		from, to float64
		want     float64
		ok       bool
	}{
		{"between samples", [][]float64{{0, 10, 20, 30, 40}}, 1.5, 3.5, 20, true},
		{"on samples", [][]float64{{0, 10, 20, 30, 40}}, 1, 3, 20, true},
		{"constant", [][]float64{{7, 7, 7}}, 0, 2, 0, true},
		{"several series", [][]float64{{0, 1, 2}, {0, 10, 20}}, 0, 2, 22, true},
		{"born inside", [][]float64{{none, none, 5, 6}}, 0, 3, 6, true},
		{"born at the start", [][]float64{{5, 6}}, 0, 1, 1, true},
		{"born before the recording", [][]float64{{5, 6}}, -1, 1, 6, true},
		{"restart", [][]float64{{100, 110, 3, 5}}, 0, 3, 15, true},
		{"restart to a higher value is not seen", [][]float64{{1, 110}}, 0, 1, 109, true},
		{"two restarts", [][]float64{{4, 1, 2, 1}}, 0, 3, 3, true},
		{"ended before", [][]float64{{5, 6, stale, none, none}}, 3, 4, 0, true},
		{"ended inside", [][]float64{{5, 6, stale}}, 0, 4, 1, true},
		{"gap", [][]float64{{5, stale, 9}}, 0, 2, 4, true},
		{"born after", [][]float64{{none, none, none, 5}}, 0, 2, 0, false},
		{"no series", nil, 0, 2, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := store(t)
			add(t, s, "other_total", nil, 1, 2, 3, 4, 5)
			for i, values := range c.series {
				for j, v := range values {
					if math.Float64bits(v) == math.Float64bits(none) {
						continue
					}
					if err := s.Append([]Sample{{"x_total", map[string]string{"i": string(rune('a' + i))}, at(float64(j)), v}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, ok, err := reader(t, s).Increase(ctx, "x_total", nil, at(c.from), at(c.to))
			if got != c.want || ok != c.ok || err != nil {
				t.Errorf("got %v, %v, %v; want %v, %v", got, ok, err, c.want, c.ok)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	s := store(t)
	add(t, s, "x", map[string]string{"verb": "LIST", "code": "200"}, 1)
	add(t, s, "x", map[string]string{"verb": "GET", "code": "200"}, 2)
	add(t, s, "x", map[string]string{"verb": "GETS"}, 4)
	r := reader(t, s)
	for _, c := range []struct {
		match map[string]string
		want  float64
		ok    bool
	}{
		{nil, 7, true},
		{map[string]string{"verb": "GET"}, 2, true},
		{map[string]string{"verb": "~GET|LIST"}, 3, true},
		{map[string]string{"verb": "~GET"}, 2, true},
		{map[string]string{"code": ""}, 4, true},
		{map[string]string{"verb": "PUT"}, 0, false},
	} {
		got, ok, err := r.At(ctx, "x", c.match, at(1), time.Minute)
		if got != c.want || ok != c.ok || err != nil {
			t.Errorf("%v: got %v, %v, %v; want %v", c.match, got, ok, err, c.want)
		}
	}
	if _, _, err := r.At(ctx, "x", map[string]string{"verb": "~("}, at(1), time.Minute); err == nil || !strings.Contains(err.Error(), "match verb of x") {
		t.Errorf("got %v", err)
	}
}

func TestAtKnowsWhatEnded(t *testing.T) {
	s := store(t)
	add(t, s, "x", map[string]string{"i": "a"}, 1, 2, math.Float64frombits(value.StaleNaN))
	add(t, s, "x", map[string]string{"i": "b"}, 10, 20, 30)
	r := reader(t, s)
	for _, c := range []struct {
		at, want float64
		ok       bool
	}{{1.5, 22, true}, {2.5, 30, true}, {12.5, 0, false}, {-1, 0, false}} {
		got, ok, err := r.At(ctx, "x", nil, at(c.at), 10*time.Second)
		if got != c.want || ok != c.ok || err != nil {
			t.Errorf("at %v: got %v, %v, %v; want %v", c.at, got, ok, err, c.want)
		}
	}
	if got, err := r.Points(ctx, "x", nil, at(1), at(3)); err != nil || len(got) != 2 || len(got[0].Points) != 1 || len(got[1].Points) != 2 {
		t.Errorf("points: %+v, %v", got, err)
	}
}

func TestQueries(t *testing.T) {
	s := store(t)
	add(t, s, "x", map[string]string{"i": "b"}, 1, 2, 3)
	add(t, s, "x", map[string]string{"i": "a"}, 10, 20, 30)
	app := s.AppenderV2(ctx)
	if _, err := app.Append(0, labels.FromStrings(model.MetricNameLabel, "h"), 0, at(1).UnixMilli(), 0, tsdbutil.GenerateTestHistogram(1), nil, storage.AOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	r := reader(t, s)
	if got, err := r.Instant(ctx, "x", at(2)); err != nil || len(got) != 2 || got[0].Labels["i"] != "a" || got[0].Points[0] != (Point{at(2), 30}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Instant(ctx, "1 + 1", at(2)); err != nil || len(got) != 1 || got[0].Points[0].Value != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Instant(ctx, "h", at(2)); err != nil || len(got) != 1 || len(got[0].Points) != 0 || !strings.Contains(got[0].Note, "count:") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Points(ctx, "h", nil, at(0), at(3)); err != nil || len(got) != 1 || len(got[0].Points) != 0 || !strings.Contains(got[0].Note, "count:") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Range(ctx, "sum(x)", at(0), at(2), time.Second); err != nil || len(got) != 1 || len(got[0].Points) != 3 || got[0].Points[2].Value != 33 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"sum(", "x{", "nosuch(x)"} {
		if _, err := r.Instant(ctx, bad, at(2)); err == nil || !strings.Contains(err.Error(), "query "+bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := r.Range(ctx, "x", at(0), at(2), 0); err == nil {
		t.Error("a step of 0 was taken")
	}
	if _, err := r.Range(ctx, "x", at(2), at(0), time.Second); err == nil {
		t.Error("a window that ends before it starts was taken")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Instant(ctx, "x", at(2)); err == nil {
		t.Error("a closed reader answered")
	}
}

func TestOutOfOrderIsDroppedAndCounted(t *testing.T) {
	s := store(t)
	if err := s.Append([]Sample{{"x", nil, at(5), 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append([]Sample{{"x", nil, at(4), 1}, {"y", nil, at(1), 7}, {"", nil, at(9), 1}}); err == nil {
		t.Error("a sample without a name was taken")
	}
	if s.Dropped() != 1 || s.Err() != nil {
		t.Errorf("%d dropped, %v", s.Dropped(), s.Err())
	}
	if v, ok, err := reader(t, s).At(ctx, "y", nil, at(2), time.Minute); v != 7 || !ok || err != nil {
		t.Errorf("the others must come through: %v, %v, %v", v, ok, err)
	}
}

func TestOneBlockAndNothingElse(t *testing.T) {
	s := store(t)
	for h := range 50 { // two days, over midnights and Prometheus' block ranges
		add(t, s, "x", map[string]string{"h": string(rune('a' + h))}, 1)
		if err := s.Append([]Sample{{"y", nil, at(float64(h) * 3600), 1}}); err != nil {
			t.Fatal(err)
		}
	}
	reader(t, s)
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 2 || entries[1].Name() != walDir {
		t.Fatalf("%v, %v", entries, err)
	}
	// Prometheus' own reader opens it.
	db, err := tsdb.OpenDBReadOnly(s.dir, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	bs, err := db.Blocks()
	if err != nil || len(bs) != 1 {
		t.Fatalf("%v, %v", bs, err)
	}
	if m := bs[0].Meta(); m.Stats.NumSamples != 100 || m.Stats.NumSeries != 51 || m.MinTime != start.UnixMilli() || m.MaxTime != at(49*3600).UnixMilli()+1 {
		t.Errorf("%+v", m)
	}
	q, err := db.Querier(math.MinInt64, math.MaxInt64) // as promtool dump
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	set, n := q.Select(ctx, true, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "x")), 0
	for set.Next() {
		n++
	}
	if n != 50 || set.Err() != nil {
		t.Errorf("%d series, %v", n, set.Err())
	}
}

func TestRecover(t *testing.T) {
	s := store(t)
	for i := range 500 { // several chunks a series
		if err := s.Append([]Sample{{"x_total", map[string]string{"i": "a"}, at(float64(i)), float64(i)}, {"x_total", map[string]string{"i": "b"}, at(float64(i)), float64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	open := s.AppenderV2(ctx) // a scrape that never came to its end
	if _, err := open.Append(0, labels.FromStrings(model.MetricNameLabel, "z"), 0, at(1).UnixMilli(), 1, nil, nil, storage.AOptions{}); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(t.TempDir(), "m")
	if err := os.CopyFS(dead, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dead, "wal", "00000000"))
	if err != nil {
		t.Fatal(err)
	}
	torn := append(before, 1, 0, 99, 1, 2, 3)
	if err := os.WriteFile(filepath.Join(dead, "wal", "00000000"), torn, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Recover(dead)
	if err != nil {
		t.Fatal(err)
	}
	if last, ok := again.MaxTime(); !ok || !last.Equal(at(499)) {
		t.Errorf("max time %v, %v", last, ok)
	}
	if err := again.Append([]Sample{{"late", nil, at(999), 1}}); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(dead, "wal", "00000000")); len(after) != len(torn) {
		t.Error("the log was changed")
	}
	r := reader(t, again)
	if v, ok, err := r.Increase(ctx, "x_total", nil, at(0), at(499)); v != 998 || !ok || err != nil {
		t.Errorf("%v, %v, %v", v, ok, err)
	}
	if _, ok, err := r.At(ctx, "z", nil, at(1), time.Minute); ok || err != nil {
		t.Errorf("half a scrape counts: %v", err)
	}
}

func TestEmpty(t *testing.T) {
	s := store(t)
	if err := s.Cut(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(s.dir); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %v", err)
	}
	if err := s.Append([]Sample{{"x", nil, at(0), 1}}); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v", err)
	}
}

func TestFloatHistogramNotesAreText(t *testing.T) {
	s := store(t)
	app := s.AppenderV2(ctx)
	h := &histogram.FloatHistogram{Count: math.NaN(), Sum: math.Inf(1)}
	if _, err := app.Append(0, labels.FromStrings(model.MetricNameLabel, "h"), 0, at(1).UnixMilli(), 0, nil, h, storage.AOptions{}); err != nil {
		t.Skip(err) // refused where it is offered: fine too
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, err := reader(t, s).Instant(ctx, "h", at(1)); err != nil || len(got) != 1 || len(got[0].Points) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

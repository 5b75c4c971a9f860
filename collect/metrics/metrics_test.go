package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/internal/tsdb"
	"github.com/kubedyno/kubedyno/record"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that tests can read: series by their text, values in
// order, "stale" for a stale marker.
type memory struct {
	mu     sync.Mutex
	series map[string][]point
	broken error
}

type point struct {
	at int64
	v  string
}

func (m *memory) AppenderV2(context.Context) storage.AppenderV2 { return &batch{m: m} }

type batch struct {
	m   *memory
	add []struct {
		name string
		p    point
	}
}

func (b *batch) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AOptions) (storage.SeriesRef, error) {
	if b.m.broken != nil {
		return 0, b.m.broken
	}
	text := fmt.Sprint(v)
	if value.IsStaleNaN(v) {
		text = "stale"
	}
	b.add = append(b.add, struct {
		name string
		p    point
	}{ls.String(), point{t, text}})
	return 0, nil
}

func (b *batch) Commit() error {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	if b.m.series == nil {
		b.m.series = map[string][]point{}
	}
	for _, a := range b.add {
		b.m.series[a.name] = append(b.m.series[a.name], a.p)
	}
	return nil
}

func (b *batch) Rollback() error { return nil }

// values of the one series whose text contains each of the parts.
func (m *memory) values(t *testing.T, parts ...string) string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []string
	for name, points := range m.series {
		if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(name, p) }) {
			continue
		}
		var vs []string
		for i, p := range points {
			if i > 0 && p.at <= points[i-1].at {
				t.Errorf("%s: out of order", name)
			}
			vs = append(vs, p.v)
		}
		found = append(found, strings.Join(vs, " "))
	}
	if len(found) != 1 {
		t.Fatalf("%d series match %v", len(found), parts)
	}
	return found[0]
}

type gaps struct {
	mu  sync.Mutex
	all []record.Gap
}

func (g *gaps) add(x record.Gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, x)
}

// run collects until f returns.
func run(t *testing.T, c *Collector, out storage.AppendableV2, f func()) (*gaps, error) {
	t.Helper()
	var g gaps
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, out, g.add) }()
	f()
	cancel()
	err := <-done
	http.DefaultClient.CloseIdleConnections()
	return &g, err
}

func now(t *testing.T, c *Collector) {
	t.Helper()
	for {
		_, err := c.Now(t.Context())
		if !errors.Is(err, ErrNotRunning) {
			if err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Each Now is a sample at that moment; what comes and goes is marked; a
// component's own labels are kept apart from ours.
func TestNow(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") == "gzip" {
			t.Error("compression was not asked for")
		}
		i := n.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE a counter\na{component=\"x\",le=\"1\"} %d\n", i)
		if i == 2 {
			fmt.Fprint(w, "now_and_then 7\nnan NaN\n")
		}
		if i == 3 {
			fmt.Fprint(w, "nan 1\n")
		}
	}))
	defer server.Close()
	c := New(Options{Interval: time.Hour, Targets: []Target{{Component: "kube-apiserver", Instance: "i1", URL: server.URL}}})
	c.fresh = 0
	var m memory
	g, err := run(t, c, &m, func() {
		for n.Load() == 0 { // the first comes by itself
			time.Sleep(time.Millisecond)
		}
		now(t, c)
		now(t, c)
	})
	if err != nil || len(g.all) != 0 {
		t.Error(err, g.all)
	}
	if got := m.values(t, `__name__="a"`, `component="kube-apiserver"`, `exported_component="x"`, `instance="i1"`, `job="kube-apiserver"`, `le="1"`); got != "1 2 3 4" {
		t.Errorf("a: %s", got)
	}
	if got := m.values(t, `now_and_then`); got != "7 stale" {
		t.Errorf("now_and_then: %s", got)
	}
	if got := m.values(t, `"nan"`); got != "NaN 1 stale" {
		t.Errorf("nan: %s", got)
	}
	if got := m.values(t, `__name__="up"`); got != "1 1 1 1" {
		t.Errorf("up: %s", got)
	}
	if got := m.values(t, `scrape_samples_scraped`); got != "1 3 2 1" {
		t.Errorf("scrape_samples_scraped: %s", got)
	}
	if got := m.values(t, `scrape_series_added`); got != "1 2 0 0" {
		t.Errorf("scrape_series_added: %s", got)
	}
	if _, err := c.Now(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if a := c.Account(); a.Samples != 7+4*5 || !strings.Contains(a.Note, "kube-apiserver: 4 scrapes") {
		t.Errorf("account: %+v", a)
	}
}

// A target that fails is down, with its series ended; a broken answer adds
// nothing; one that never worked is a gap with the reason.
func TestFailures(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/forbidden":
			http.Error(w, "no", http.StatusForbidden)
		case "/slow":
			<-r.Context().Done()
		case "/flaky":
			switch n.Add(1) {
			case 2:
				http.Error(w, "starved", http.StatusInternalServerError)
			case 3:
				fmt.Fprint(w, "b 3\nb{ broken\n")
			default:
				fmt.Fprintf(w, "b %d\n", n.Load())
			}
		}
	}))
	defer server.Close()
	c := New(Options{Interval: time.Hour, Timeout: time.Second, Targets: []Target{
		{Component: "flaky", Instance: "f", URL: server.URL + "/flaky"},
		{Component: "forbidden", Instance: "f", URL: server.URL + "/forbidden"},
		{Component: "slow", Instance: "s", URL: server.URL + "/slow"},
		{Component: "refused", Instance: "r", URL: "http://127.0.0.1:1/metrics"},
	}, Missing: []Missing{{"etcd", "its port is not reachable through the API server"}}})
	var m memory
	c.fresh = 0
	g, err := run(t, c, &m, func() {
		for n.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		now(t, c)
		now(t, c)
		now(t, c)
	})
	if err != nil {
		t.Error(err)
	}
	// The broken answer began well, so that it is ended once more.
	if got := m.values(t, `__name__="b"`); got != "1 stale stale 4 5" {
		t.Errorf("b: %s", got)
	}
	if got := m.values(t, `"up"`, `"flaky"`); got != "1 0 0 1 1" {
		t.Errorf("up: %s", got)
	}
	if got := m.values(t, `"up"`, `"slow"`); strings.Trim(got, "0 ") != "" {
		t.Errorf("up of slow: %s", got)
	}
	var reasons []string
	for _, x := range g.all {
		reasons = append(reasons, x.Subject+": "+x.Reason)
	}
	slices.Sort(reasons)
	want := []string{
		"etcd: its port is not reachable through the API server", "flaky: metrics did not answer: ",
		"forbidden: metrics never answered: HTTP 403 Forbidden: no", "refused: metrics never answered: dial tcp 127.0.0.1:1: connect: connection refused",
		"slow: metrics never answered: context deadline exceeded",
	}
	for i := range max(len(want), len(reasons)) {
		if i >= len(reasons) || i >= len(want) || !strings.HasPrefix(reasons[i], want[i]) {
			t.Fatalf("gaps:\n%s\nwant:\n%s", strings.Join(reasons, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A component that was started again is another instance; the old one's
// series end.
func TestRestart(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "c 1\n")
		z.Close()
	}))
	defer server.Close()
	c := New(Options{Interval: time.Hour, Targets: []Target{{Component: "etcd", Instance: "1", URL: server.URL, Compress: true}}})
	var m memory
	_, err := run(t, c, &m, func() {
		now(t, c)
		c.Remove("etcd", "1")
		c.Add(Target{Component: "etcd", Instance: "2", URL: server.URL, Compress: true})
		now(t, c)
		for { // the old one's end is written by the loop
			m.mu.Lock()
			n := len(m.series)
			p := m.series[`{__name__="c", component="etcd", instance="1", job="etcd"}`]
			m.mu.Unlock()
			if n >= 12 && p[len(p)-1].v == "stale" {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if got := m.values(t, `"c"`, `instance="1"`); !strings.HasSuffix(got, "1 stale") {
		t.Errorf("the first instance: %s", got)
	}
	if got := m.values(t, `"up"`, `instance="1"`); !strings.HasSuffix(got, "1 stale") {
		t.Errorf("up of the first instance: %s", got)
	}
	if got := m.values(t, `"c"`, `instance="2"`); strings.Contains(got, "stale") {
		t.Errorf("the second instance: %s", got)
	}
}

// Scrapes go on by themselves, and are no nearer to one another than the interval.
func TestInterval(t *testing.T) {
	const interval, want = 50 * time.Millisecond, 8
	asked := make(chan time.Time, 100)
	c := New(Options{Interval: interval, Targets: []Target{Local("kubedyno", "me", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- time.Now():
		default:
		}
		fmt.Fprintln(w, "d 1")
	}))}})
	var first, last time.Time
	var m memory
	_, err := run(t, c, &m, func() {
		late := time.After(20 * time.Second)
		for n := range want {
			select {
			case last = <-asked:
			case <-late:
				t.Fatalf("%d scrapes in 20 s, one each %v was asked for", n, interval)
			}
			if n == 0 {
				first = last
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	// A scrape that stands for one due within a quarter of the interval may come that much early.
	if took := last.Sub(first); took < (want-1)*interval*3/4 {
		t.Errorf("%d scrapes in %v, one each %v was asked for", want, took, interval)
	}
}

// A phase that goes on is looked at less often, a fifth of what it has lasted, unless
// all is asked for, and the next one as often as at first.
func TestIntervalOfLongPhase(t *testing.T) {
	for _, full := range []bool{false, true} {
		c := New(Options{Interval: time.Second, Later: 5 * time.Second, Aside: 4 * time.Second, Full: full, Targets: []Target{Local("kubedyno", "me", http.NotFoundHandler())}})
		s, seldom := c.targets[0], newScraper(Target{Component: "load", Seldom: true})
		c.out = &memory{}
		c.note = func(record.Gap) {}
		want := 4 * time.Second
		if full {
			want = time.Second
		}
		if got := c.interval(s); got != want {
			t.Errorf("before anything is judged, full %v: %v", full, got)
		}
		c.Judged(true)
		for _, p := range []struct{ lasted, want time.Duration }{
			{0, time.Second}, {5 * time.Second, time.Second}, {15 * time.Second, 3 * time.Second},
			{25 * time.Second, 5 * time.Second}, {time.Hour, 5 * time.Second},
		} {
			c.edge = time.Now().Add(-p.lasted)
			if full {
				p.want = time.Second
			}
			if got := c.interval(s); got.Round(100*time.Millisecond) != p.want {
				t.Errorf("after %v, full %v: %v", p.lasted, full, got)
			}
			want := 5 * time.Second
			if full {
				want = time.Second
			}
			if got := c.interval(seldom); got != want {
				t.Errorf("after %v, full %v, of what is seldom looked at: %v", p.lasted, full, got)
			}
		}
		c.Lasts(time.Hour)
		if _, err := c.Now(t.Context()); err != nil {
			t.Error(err)
		}
		if got := c.interval(s); got != time.Second {
			t.Errorf("of the next phase: %v", got)
		}
		for _, p := range []struct{ lasted, whole, want time.Duration }{
			{2 * time.Second, 75 * time.Second, time.Second}, {6 * time.Second, time.Hour, 1200 * time.Millisecond}, {2 * time.Second, 0, time.Second},
			{12 * time.Second, 75 * time.Second, 5 * time.Second}, {12 * time.Second, 45 * time.Second, 3 * time.Second},
			{12 * time.Second, 15 * time.Second, 2400 * time.Millisecond}, {12 * time.Second, time.Hour, 5 * time.Second},
		} {
			c.edge = time.Now().Add(-p.lasted)
			c.Lasts(p.whole)
			if full {
				p.want = time.Second
			}
			if got := c.interval(s); got.Round(100*time.Millisecond) != p.want {
				t.Errorf("after %v of %v, full %v: %v", p.lasted, p.whole, full, got)
			}
		}
		c.Judged(false)
		if got := c.interval(s); got != want {
			t.Errorf("of a phase that only leads to another, full %v: %v", full, got)
		}
	}
}

// Of all that is asked for, a large answer comes less often once a phase has been looked
// at ten times, and is not asked for each second for an hour.
func TestFullOfLargeAnswers(t *testing.T) {
	for _, x := range []struct {
		name          string
		lines         int
		later, lasted time.Duration
		least, most   time.Duration
	}{
		{"at first", 20_000, 5 * time.Second, 0, time.Second, time.Second},
		{"after ten", 10_000, 5 * time.Second, 10 * time.Second, 1900 * time.Millisecond, 2100 * time.Millisecond},
		{"of a long phase", 10_000, 5 * time.Second, time.Hour, 2 * time.Second, 4 * time.Second},
		{"very large", 200_000, 5 * time.Second, time.Hour, 5 * time.Second, 5 * time.Second},
		{"small", 500, 5 * time.Second, time.Hour, time.Second, time.Second},
		{"each second was asked for", 20_000, 0, time.Hour, time.Second, time.Second},
	} {
		c := New(Options{Interval: time.Second, Later: x.later, Full: true, Targets: []Target{{Component: "kube-apiserver", Changes: true}}})
		s := c.targets[0]
		s.changes, s.lines.at = true, make([]lineAt, x.lines)
		c.edge = time.Now().Add(-x.lasted)
		if got := c.interval(s); got < x.least || got > x.most {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}

// The next phase does not wait for what was due in the last one.
func TestNextPhaseIsScrapedAtOnce(t *testing.T) {
	asked := make(chan struct{}, 100)
	c := New(Options{Interval: 20 * time.Millisecond, Later: time.Hour, Targets: []Target{Local("kubedyno", "me", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		fmt.Fprintln(w, "d 1")
	}))}})
	var m memory
	_, err := run(t, c, &m, func() {
		<-asked
		c.mu.Lock()
		c.edge = time.Now().Add(-time.Hour)
		c.mu.Unlock()
		for range 2 { // what is due is done, and the next is due in minutes
			select {
			case <-asked:
			case <-time.After(100 * time.Millisecond):
			}
		}
		if _, err := c.Now(t.Context()); err != nil {
			t.Error(err)
		}
		for n := range 4 {
			select {
			case <-asked:
			case <-time.After(20 * time.Second):
				t.Fatalf("%d scrapes of a phase in 20 s", n)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	c := New(Options{Targets: []Target{Local("kubedyno", "me", http.NotFoundHandler())}})
	m := memory{broken: errors.New("no space left on device")}
	err := c.collect(t.Context(), &m, func(record.Gap) {})
	if err == nil || !strings.Contains(err.Error(), "store metrics of kubedyno: no space left on device") {
		t.Errorf("%v", err)
	}
}

func TestNoTargets(t *testing.T) {
	c := New(Options{Missing: []Missing{{"etcd", "x"}}})
	if err := c.collect(t.Context(), &memory{}, func(record.Gap) {}); !errors.Is(err, collect.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// Through the recording's own store: the increase over a phase with a scrape
// at each edge is exact.
func TestExactIncrease(t *testing.T) {
	store, err := tsdb.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	c := New(Options{Interval: time.Hour, Targets: []Target{Local("etcd", "1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "e_total %d\nf{a=\"b\"} %v\n", n.Load(), math.Inf(1))
	}))}})
	_, err = run(t, c, store, func() {
		now(t, c)
		n.Add(1000)
		now(t, c)
	})
	if err := errors.Join(err, store.Err(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// page renders as many series as an API server has.
func page(series int) string {
	var b strings.Builder
	for i := range series / 20 {
		for j := range 20 {
			fmt.Fprintf(&b, "apiserver_request_duration_seconds_bucket{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"resource\",verb=\"V%d\",version=\"v1\",le=\"%d\"} %d\n", i, j, i*j)
		}
	}
	return b.String()
}

// What a scrape of an API server costs us, socket excluded.
func BenchmarkScrape(b *testing.B) {
	const n = 19_500
	text := page(n)
	store, err := tsdb.Create(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	s := newScraper(Local("kube-apiserver", "1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) })))
	if err := s.scrape(b.Context(), store, time.Minute, func(record.Gap) {}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := s.scrape(b.Context(), store, time.Minute, func(record.Gap) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e9, "ns/series")
}

// The debugging tier is kept on request only, and never looks like series that
// ended.
func TestTiers(t *testing.T) {
	for _, full := range []bool{false, true} {
		out := &memory{}
		c := New(Options{Interval: time.Hour, Full: full, Targets: []Target{Local("kube-apiserver", "1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "kubernetes_feature_enabled{name=\"X\"} 1\napiserver_watch_events_sizes_bucket{le=\"1\"} 2\napiserver_watch_events_sizes_sum 3\n")
		}))}})
		if _, err := run(t, c, out, func() { now(t, c) }); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(out)
		for family, kept := range map[string]bool{"kubernetes_feature_enabled": full, "apiserver_watch_events_sizes_bucket": full, "apiserver_watch_events_sizes_sum": true} {
			if got := strings.Contains(text, family); got != kept {
				t.Errorf("full %v: %s kept %v", full, family, got)
			}
		}
		if note := c.Account().Note; strings.Contains(note, "2 series of the debugging tier left out") == full {
			t.Errorf("full %v: %s", full, note)
		}
	}
}

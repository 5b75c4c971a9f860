package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type recorder struct {
	mu       sync.Mutex
	profiles map[string]*profile.Profile
	refs     []record.ProfileRef
	gaps     []record.Gap
}

func (r *recorder) ProfileMessage(ref record.ProfileRef, message []byte) error {
	p, err := profile.ParseUncompressed(message)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.profiles == nil {
		r.profiles = map[string]*profile.Profile{}
	}
	r.profiles[ref.Component+"/"+ref.Phase+"/"+ref.Kind] = p
	r.refs = append(r.refs, ref)
	return nil
}

func (r *recorder) Gap(g record.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, g)
}

func (r *recorder) reasons() string {
	var s []string
	for _, g := range r.gaps {
		s = append(s, g.Subject+": "+g.Reason)
	}
	slices.Sort(s)
	return strings.Join(s, "\n")
}

// sample is a profile with one sample of the given value.
func sample(cpu time.Duration, length time.Duration) []byte {
	f := &profile.Function{ID: 1, Name: "main.work"}
	m := &profile.Mapping{ID: 1, File: "/home/somebody/my-controller", HasFunctions: true}
	l := &profile.Location{ID: 1, Mapping: m, Line: []profile.Line{{Function: f}}}
	p := &profile.Profile{
		Mapping:    []*profile.Mapping{m},
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
		Sample:   []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{int64(cpu / 1e7), int64(cpu)}}},
		Location: []*profile.Location{l}, Function: []*profile.Function{f},
		DurationNanos: int64(length), TimeNanos: 1,
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func empty() []byte {
	p, err := profile.ParseData(sample(0, 0))
	if err != nil {
		panic(err)
	}
	p.Sample = nil
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// component serves pprof as a Go process does, a second of it in 20 ms, and
// says half a core was used.
func component(t *testing.T, busy *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "heap", "goroutine", "mutex":
			w.Write(sample(0, 0))
			return
		case "block": // not filled
			w.Write(empty())
			return
		}
		if busy != nil && busy.Add(-1) >= 0 {
			w.Header().Set("X-Go-Pprof", "1")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintln(w, "Could not enable CPU profiling: cpu profiling already in use")
			return
		}
		var n int
		fmt.Sscan(r.FormValue("seconds"), &n)
		select {
		case <-time.After(time.Duration(n) * time.Second):
		case <-r.Context().Done():
			return
		}
		w.Write(sample(time.Duration(n)*time.Second/2, time.Duration(n)*time.Second))
	}))
	t.Cleanup(s.Close)
	return s
}

func start(t *testing.T, c *Collector) (r *recorder, stop func()) {
	t.Helper()
	r = &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, r) }()
	for {
		if _, _, _, end, err := c.begin(ctx); err == nil {
			end()
			break
		}
		time.Sleep(time.Millisecond)
	}
	return r, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// A window of known length is covered to the second; all components at once,
// each with its own trouble.
func TestWindow(t *testing.T) {
	var busy, always atomic.Int64
	busy.Store(2)
	always.Store(1 << 40)
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer forbidden.Close()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer garbage.Close()
	c := New(Options{Slice: time.Second, Patience: time.Second, Targets: []Target{
		{Component: "fine", Instance: "1", URL: component(t, nil).URL + "/debug/pprof"},
		{Component: "busy first", URL: component(t, &busy).URL + "/debug/pprof"},
		{Component: "busy always", URL: component(t, &always).URL + "/debug/pprof"},
		{Component: "forbidden", URL: forbidden.URL},
		{Component: "garbage", URL: garbage.URL},
		{Component: "down", URL: "http://127.0.0.1:1/debug/pprof"},
	}, Missing: []Missing{{"etcd", "pprof is off"}}})
	r, stop := start(t, c)
	began := time.Now()
	if err := c.Capture(t.Context(), "steady", 3); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3900*time.Millisecond { // patience is a second
		t.Errorf("took %v", took)
	}
	if err := c.Snapshot(t.Context(), "steady"); err != nil {
		t.Error(err)
	}
	stop()
	p := r.profiles["fine/steady/cpu"]
	if p == nil || p.DurationNanos != 3e9 || p.Sample[0].Value[1] != 1.5e9 || len(p.Sample) != 1 {
		t.Errorf("fine: %v", p)
	}
	if !strings.Contains(fmt.Sprint(p.Comments), "3.0 of 3.") {
		t.Errorf("comments: %v", p.Comments)
	}
	if p := r.profiles["busy first/steady/cpu"]; p == nil || p.DurationNanos < 1e9 {
		t.Errorf("busy first: %v", p)
	}
	for _, k := range []string{"fine/steady/heap", "busy always/steady/goroutine"} {
		if r.profiles[k] == nil {
			t.Errorf("no %s", k)
		}
	}
	got := r.reasons()
	for _, want := range []string{
		"busy always: no CPU profile of steady: another CPU profiler is at work in it",
		"forbidden: no CPU profile of steady: profiling is refused: HTTP 403 Forbidden: no (needs get on the nonResourceURL /debug/pprof/*)",
		"down: no CPU profile of steady: dial tcp", "down: no heap profile at the start of steady: dial tcp", "down: no heap profile at the end of steady: dial tcp", "garbage: no CPU profile of steady:", "etcd: pprof is off",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("gaps:\n%s\nmiss %q", got, want)
		}
	}
	if err := c.Capture(t.Context(), "later", 1); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if a := c.Account(); !strings.Contains(a.Note, "fine: 3.0 of 3.") || a.Samples < 4 {
		t.Errorf("account: %+v", a)
	}
}

// A share of a window is looked at evenly over it, from its start on.
func TestShare(t *testing.T) {
	c := New(Options{Slice: time.Second, Share: 0.4, Targets: []Target{{Component: "x", URL: component(t, nil).URL + "/debug/pprof"}}})
	r, stop := start(t, c)
	began := time.Now()
	if err := c.Capture(t.Context(), "steady", 4); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	stop()
	p := r.profiles["x/steady/cpu"] // slices from 0 and from 2.5 s on
	if p == nil || p.DurationNanos != 2e9 || !strings.Contains(fmt.Sprint(p.Comments), "2.0 of 4.") {
		t.Fatalf("%v", p)
	}
	if took < 3500*time.Millisecond || len(r.gaps) > 0 {
		t.Errorf("took %v, gaps %s", took, r.reasons())
	}
	ref := r.refs[slices.IndexFunc(r.refs, func(r record.ProfileRef) bool { return r.Kind == "cpu" })]
	if at := ref.End.Sub(began); at < 3*time.Second {
		t.Errorf("the last slice ended after %v of 4 s", at)
	}
}

// Long windows are looked at less and less, and all of the time where that was asked for.
func TestOpens(t *testing.T) {
	for _, c := range []struct{ share, covered, opens float64 }{
		{0.25, 2, 8}, {0.25, 5, 20}, {0.25, 10, 80}, {0.25, 20, 320}, {0.5, 10, 20}, {1, 300, 300},
	} {
		got := Options{Share: c.share}.opens(time.Duration(c.covered * float64(time.Second)))
		if got.Round(time.Millisecond) != time.Duration(c.opens*float64(time.Second)) {
			t.Errorf("after %v s at a share of %v: %v, not %v s", c.covered, c.share, got, c.opens)
		}
	}
}

// A window of unknown length ends with its phase, at once, with the whole
// slices it has; so it does when the collection ends.
func TestPhaseEnds(t *testing.T) {
	for _, how := range []string{"phase", "collection"} {
		c := New(Options{Slice: time.Second, Targets: []Target{{Component: "x", URL: component(t, nil).URL + "/debug/pprof"}}})
		r, stop := start(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Capture(ctx, "steady", 0) }()
		time.Sleep(2500 * time.Millisecond)
		ended := time.Now()
		if how == "phase" {
			cancel()
		} else {
			stop()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		cancel()
		if late := time.Since(ended); late > 400*time.Millisecond { // the slice would last 500 ms more
			t.Errorf("%s: %v late", how, late)
		}
		if how == "phase" {
			stop()
		}
		if p := r.profiles["x/steady/cpu"]; p == nil || p.DurationNanos != 2e9 {
			t.Errorf("%s: %v", how, p)
		}
		if len(r.gaps) != 0 {
			t.Errorf("%s: %+v", how, r.gaps)
		}
	}
}

func TestShorterThanSlice(t *testing.T) {
	c := New(Options{Targets: []Target{{Component: "x", URL: component(t, nil).URL + "/debug/pprof"}}})
	r, stop := start(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Capture(ctx, "steady", 0); err != nil {
		t.Error(err)
	}
	stop()
	if got := r.reasons(); !strings.HasPrefix(got, "x: no CPU profile of steady: the phase took 0.1 s, less than one slice") {
		t.Errorf("gaps: %s", got)
	}
}

func TestNoTargets(t *testing.T) {
	c := New(Options{Missing: []Missing{{"etcd", "x"}}})
	if err := c.collect(t.Context(), &recorder{}); !errors.Is(err, collect.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// Locks are looked at on request, at both edges; what Go left empty is a gap
// and not "no contention".
func TestContention(t *testing.T) {
	c := New(Options{Contention: true, Targets: []Target{{Component: "x", URL: component(t, nil).URL + "/debug/pprof"}}})
	r, stop := start(t, c)
	if err := c.Capture(t.Context(), "steady", 1); err != nil {
		t.Error(err)
	}
	if err := c.Snapshot(t.Context(), "steady"); err != nil {
		t.Error(err)
	}
	stop()
	edges := map[string]int{}
	for _, ref := range r.refs {
		edges[ref.Kind]++
	}
	if fmt.Sprint(edges) != "map[cpu:1 goroutine:2 heap:2 mutex:2]" {
		t.Errorf("profiles: %v", edges)
	}
	got := r.reasons()
	for _, want := range []string{"x: no block profile: it is empty"} {
		if !strings.Contains(got, want) {
			t.Errorf("gaps:\n%s\nmiss %q", got, want)
		}
	}
	if a := c.Account(); !strings.Contains(a.Note, "pay for each contended lock") {
		t.Errorf("account: %+v", a)
	}
}

// A user's own Go process is a target like any other, by a name with a colon,
// and so through a recording.
func TestOwnController(t *testing.T) {
	c := New(Options{})
	dir := filepath.Join(t.TempDir(), "r")
	w, err := record.Create(dir, record.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Collect(ctx, w) }()
	c.Add(Target{Component: "client:my-controller", Instance: "1", URL: component(t, nil).URL + "/debug/pprof"})
	for {
		err := c.Capture(ctx, "steady", 1)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNotRunning) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(<-done, w.Finish(record.StatusComplete, "")); err != nil {
		t.Fatal(err)
	}
	rec := recordtest.Open(t, dir)
	kinds := map[string]bool{}
	for _, ref := range rec.Profiles() {
		if ref.Component != "client:my-controller" || ref.Phase != "steady" {
			t.Errorf("%+v", ref)
		}
		p, err := rec.ReadProfile(ref)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Mapping) != 1 || p.Mapping[0].File != "my-controller" {
			t.Errorf("mappings %v: a path of the machine travels", p.Mapping)
		}
		kinds[ref.Kind] = true
	}
	if !kinds["cpu"] || !kinds["heap"] || !kinds["goroutine"] {
		t.Errorf("profiles: %v", rec.Profiles())
	}
}

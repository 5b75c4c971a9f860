// Package profile records pprof profiles of components: CPU of all at the same
// time over a window, heap and goroutines at its two edges, and on request who
// waited for locks.
//
// The lock of Go's CPU profiler is per process, so that all components can be
// profiled at once. A profile that was asked for N seconds cannot be had
// earlier; since a phase's length is not known beforehand, a window is made of
// short slices, merged.
//
// Start with New, then Capture.
package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// Slice is the length of one request. It is what a phase's end can cost,
	// since a profile cannot be had before its time, and each slice costs the
	// component one symbolisation. The first two are shorter, so that a short
	// phase is not lost altogether.
	Slice = 5 * time.Second
	// Patience is for how long a busy profiler is asked again.
	Patience = 15 * time.Second
	// grace is what an answer may take beyond the slice: a starved component
	// encodes slowly.
	grace = 20 * time.Second
	// whole is for how long a window is looked at for all of Share.
	whole = 20 * time.Second
	// maxProfile bounds one answer.
	maxProfile = 64 << 20
)

// A Target is one process that serves pprof.
type Target struct {
	Component string
	Instance  string
	URL       string       // base, ends in /debug/pprof
	Client    *http.Client // with the credentials; nil is http.DefaultClient
}

// A Missing component cannot be profiled here, and why.
type Missing struct{ Component, Reason string }

// Options of a Collector.
type Options struct {
	Targets []Target // more can be added while it runs
	Missing []Missing
	// Contention takes mutex and block profiles at a window's edges too. Go
	// fills them only where the process itself asked for it
	// (runtime.SetMutexProfileFraction, SetBlockProfileRate; Kubernetes'
	// --contention-profiling, for block), and that process then pays for each contended
	// lock, and at block rate 1 for each wait.
	Contention bool
	// Share of a window that CPU profiles look at; 0 or 1 is all of it. A slice
	// costs its component the naming of what it saw, each time anew. The first
	// slice is at the window's start, so that short windows are seen too. It is the
	// share of the first `whole` of a window: see opens.
	Share    float64
	Slice    time.Duration
	Patience time.Duration
}

// A Collector takes profiles on request while it runs.
type Collector struct {
	o Options

	mu      sync.Mutex
	targets []Target
	out     sink
	acct    record.Observer
	notes   []string
	ctx     context.Context // of Collect
	started sync.WaitGroup  // captures that run
}

// ErrNotRunning is returned before Collect has begun and after it ended.
var ErrNotRunning = errors.New("profiles are not being collected")

// New returns a collector of the given targets.
func New(o Options) *Collector {
	if o.Slice <= 0 {
		o.Slice = Slice
	}
	if o.Patience <= 0 {
		o.Patience = Patience
	}
	if o.Share <= 0 || o.Share > 1 {
		o.Share = 1
	}
	return &Collector{o: o, targets: slices.Clone(o.Targets)}
}

// Add adds targets for the captures that begin later; one of the same
// component takes the older instance's place.
func (c *Collector) Add(targets ...Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range targets {
		c.targets = append(slices.DeleteFunc(c.targets, func(old Target) bool { return old.Component == t.Component }), t)
	}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "profile" }

// sink is what the collector writes to.
type sink interface {
	ProfileMessage(record.ProfileRef, []byte) error
	Gap(record.Gap)
}

// Collect implements collect.Collector. It waits for captures that run when
// ctx ends, and ends those.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error { return c.collect(ctx, w) }

func (c *Collector) collect(ctx context.Context, w sink) error {
	for _, m := range c.o.Missing {
		w.Gap(record.Gap{Collector: c.Name(), Subject: m.Component, Reason: m.Reason})
	}
	c.mu.Lock()
	if len(c.targets) == 0 && len(c.o.Missing) > 0 {
		c.mu.Unlock()
		return collect.NotSupported("no component can be profiled")
	}
	c.out, c.ctx = w, ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.out = nil
	c.mu.Unlock()
	c.started.Wait()
	return nil
}

// begin takes part in the collection, until done is called.
func (c *Collector) begin(ctx context.Context) (_ context.Context, w sink, targets []Target, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return nil, nil, nil, nil, ErrNotRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	c.started.Add(1)
	return ctx, c.out, slices.Clone(c.targets), func() { stop(); cancel(); c.started.Done() }, nil
}

// Capture profiles the CPU of all components at the same time, for so many
// seconds or, at 0, until ctx ends. The end of ctx is the phase's end and not
// an error: what was captured until then is stored. Components that could not
// be profiled become gaps. An error says that the recording cannot be written.
//
// At its start it takes what Snapshot takes at the end, so that the two can be
// subtracted: in the same seconds, for a component that answers slowly must not
// cost the window its beginning.
func (c *Collector) Capture(ctx context.Context, phase string, seconds float64) error {
	ctx, w, targets, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	var until time.Time
	if seconds > 0 {
		until = time.Now().Add(time.Duration(seconds * float64(time.Second)))
	}
	errs := make([]error, len(targets)+1)
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { errs[i] = c.cpu(ctx, w, t, phase, until) })
	}
	all.Go(func() { errs[len(targets)] = c.snapshot(ctx, w, targets, phase, "start") })
	all.Wait()
	return errors.Join(errs...)
}

// opens is how long a window has lasted when the next slice is due, of which so much was
// looked at. A sample more tells the less the more there are, for errors fall with the
// square root of their number: what is looked at grows with the square root of the
// window's length after the first part of it.
func (o Options) opens(covered time.Duration) time.Duration {
	at := time.Duration(float64(covered) / o.Share)
	if o.Share < 1 && at > whole {
		at = time.Duration(float64(at) * (float64(at) / float64(whole)))
	}
	return at
}

// cpu captures one component's window, which ends with ctx and at until.
func (c *Collector) cpu(ctx context.Context, w sink, t Target, phase string, until time.Time) error {
	began := time.Now()
	var slices []*profile.Profile
	var first, last time.Time
	var covered time.Duration
	var trouble error
	busyUntil := began.Add(c.o.Patience)
	for ctx.Err() == nil {
		length := min(c.o.Slice, time.Duration(len(slices)+2)*time.Second)
		if !until.IsZero() {
			left := time.Until(until) + 100*time.Millisecond // what the last slices took beyond their time
			if left < time.Second {                          // pprof counts in whole ones
				break
			}
			length = min(length, left.Truncate(time.Second))
		}
		at := time.Now()
		p, err := c.slice(ctx, t, length)
		if err == nil {
			if first.IsZero() {
				first = at
			}
			last = time.Now()
			covered += time.Duration(p.DurationNanos)
			slices = append(slices, p)
			pause := c.o.opens(covered) - time.Since(began)
			if !until.IsZero() {
				pause = min(pause, time.Until(until))
			}
			if c.o.Share < 1 && pause > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
			busyUntil = time.Now().Add(c.o.Patience)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		trouble = err
		if time.Now().After(busyUntil) || errors.Is(err, errRefused) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Second, c.o.Patience/5)):
		}
	}
	ended := time.Now()
	window := ended.Sub(began)
	if len(slices) == 0 {
		if trouble == nil {
			trouble = fmt.Errorf("the phase took %.1f s, less than one slice", window.Seconds())
		}
		w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: "no CPU profile of " + phase + ": " + trouble.Error(), Start: began, End: ended})
		return nil
	}
	merged, err := profile.Merge(slices)
	if err != nil {
		w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: "CPU profile of " + phase + ": " + err.Error(), Start: began, End: ended})
		return nil
	}
	share := min(1, covered.Seconds()/window.Seconds())
	note := fmt.Sprintf("%s: %.1f of %.1f s of phase %s profiled (%.0f %%), %d slices", t.Component, covered.Seconds(), window.Seconds(), phase, share*100, len(slices))
	merged.DurationNanos = covered.Nanoseconds() // per-second rates need what was looked at
	merged.Comments = append(merged.Comments, "kubedyno: "+note)
	if trouble != nil && c.o.opens(covered) < window*9/10 {
		w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: fmt.Sprintf("CPU profile of %s covers %.0f %%: %v", phase, share*100, trouble), Start: began, End: ended})
	}
	for _, m := range merged.Mapping {
		m.File = path.Base(m.File) // no machine path travels
	}
	var message bytes.Buffer
	if err := merged.WriteUncompressed(&message); err != nil {
		w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: "CPU profile of " + phase + ": " + err.Error(), Start: began, End: ended})
		return nil
	}
	return c.store(w, t, phase, "cpu", first, last, message.Bytes(), note)
}

// Snapshot takes heap and goroutine profiles of all components, as at a
// phase's end. No garbage collection is forced: the heap is that of the last.
func (c *Collector) Snapshot(ctx context.Context, phase string) error {
	ctx, w, targets, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.snapshot(ctx, w, targets, phase, "end")
}

// snapshot is of one edge of a phase. A phase that ends before its start was
// seen is too short to be told apart, and no gap.
func (c *Collector) snapshot(phaseCtx context.Context, w sink, targets []Target, phase, edge string) error {
	ctx, cancel := context.WithTimeout(phaseCtx, grace)
	defer cancel()
	kinds := []string{"heap", "goroutine"}
	if c.o.Contention {
		kinds = append(kinds, "mutex", "block")
	}
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			for _, kind := range kinds {
				at := time.Now()
				message, err := c.get(ctx, t, kind)
				samples := 0
				if err == nil {
					message, samples, err = told(message, fmt.Sprintf("kubedyno: at the %s of phase %s", edge, phase))
				}
				if err == nil && (kind == "mutex" || kind == "block") && samples == 0 {
					// It is so at each edge, and one gap tells it.
					w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: fmt.Sprintf("no %s profile: %v", kind, errNotFilled)})
					continue
				}
				if err != nil {
					if phaseCtx.Err() == nil {
						w.Gap(record.Gap{Collector: c.Name(), Subject: t.Component, Reason: fmt.Sprintf("no %s profile at the %s of %s: %v", kind, edge, phase, err), Start: at, End: time.Now()})
					}
					continue
				}
				errs[i] = errors.Join(errs[i], c.store(w, t, phase, kind, at, time.Now(), message, ""))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *Collector) store(w sink, t Target, phase, kind string, start, end time.Time, message []byte, note string) error {
	ref := record.ProfileRef{Component: t.Component, Instance: t.Instance, Phase: phase, Kind: kind, Start: start, End: end}
	if err := w.ProfileMessage(ref, message); err != nil {
		return fmt.Errorf("store %s profile of %s: %w", kind, t.Component, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acct.Samples++
	if note != "" {
		c.notes = append(c.notes, note)
	}
	return nil
}

func (c *Collector) slice(ctx context.Context, t Target, length time.Duration) (*profile.Profile, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, length+grace, fmt.Errorf("no answer %v after the slice's end", grace))
	defer cancel()
	message, err := c.get(ctx, t, fmt.Sprintf("profile?seconds=%d", max(1, int(length.Round(time.Second).Seconds()))))
	if err != nil {
		return nil, err
	}
	return profile.ParseUncompressed(message)
}

var (
	errBusy    = errors.New("another CPU profiler is at work in it")
	errRefused = errors.New("profiling is refused")
	// errNotFilled cannot tell "no contention" from "not observed": Go serves
	// the same empty profile for both.
	errNotFilled = errors.New("it is empty: Go fills it only where the process asked for it (runtime.SetMutexProfileFraction, SetBlockProfileRate; " +
		"of Kubernetes' components --contention-profiling, for block), so that nothing is known of its locks")
)

// get returns a profile's message.
func (c *Collector) get(ctx context.Context, t Target, what string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(t.URL, "/")+"/"+what, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errRefused, err)
	}
	req.Header.Set("User-Agent", "kubedyno-collect")
	client := t.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		var u *url.Error // its text repeats the URL
		if errors.As(err, &u) {
			err = u.Err
		}
		if cause := context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) && cause != nil {
			err = cause
		}
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxProfile+1))
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(b[:min(len(b), 200)]))
	switch {
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%w: HTTP %s: %s (needs get on the nonResourceURL /debug/pprof/*)", errRefused, res.Status, text)
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: HTTP %s (profiling is off)", errRefused, res.Status)
	case strings.Contains(text, "already in use"):
		return nil, errBusy
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("HTTP %s: %s", res.Status, text)
	case len(b) > maxProfile:
		return nil, fmt.Errorf("the profile is larger than %d bytes", maxProfile)
	}
	return unpack(b)
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.notes)
	notes := c.notes
	if c.o.Contention {
		notes = append(slices.Clone(notes), "mutex and block profiles were read: processes that fill them pay for each contended lock, recorded or not")
	}
	c.acct.Note = strings.Join(notes, "; ")
	return c.acct
}

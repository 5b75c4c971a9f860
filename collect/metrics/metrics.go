// Package metrics records the Prometheus metrics of components: at an
// interval, and at once where the run asks for it.
//
// It scrapes by itself, with Prometheus' own parser into Prometheus' own TSDB,
// because Prometheus' scrape manager cannot be told "now": a difference of
// counters over a phase is exact only if a scrape stands at each edge. What
// readers of Prometheus expect is kept: up, scrape_* series, stale markers,
// exported_ for labels of ours that a component uses itself.
//
// Start with New, then Now.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"github.com/prometheus/prometheus/storage"
)

// Intervals, by decision 7 of the design: a judged window must hold 10 scrapes.
const (
	Interval      = 5 * time.Second
	ShortInterval = time.Second // for phases under a minute
	longest       = 10 * time.Second
	// Timeout of one scrape. A starved API server needs seconds to render its
	// 20,000 series, and that is when its metrics matter.
	Timeout = 10 * time.Second
)

// A Target is one process whose metrics are read.
type Target struct {
	Component string
	Instance  string // this start of it
	URL       string
	Client    *http.Client // with the credentials; nil is http.DefaultClient
	// Compress asks for gzip. On one machine it costs the component more CPU
	// than it saves; through a network it is right.
	Compress bool
	// Native asks for native histograms, which come in protobuf only.
	Native bool
	// Changes asks for what has changed since the last answer, which a lab's
	// components tell for less at a socket of theirs.
	Changes bool
	// Job is the job label; Component where empty.
	Job string
	// Seldom is a target of which nobody looks at single seconds, as of the load
	// generator: it is asked at Later and where a phase begins or ends.
	Seldom bool
}

// A Missing component has no metrics here, and why.
type Missing struct{ Component, Reason string }

// Options of a Collector.
type Options struct {
	Interval time.Duration
	// Later is the interval of a phase that has lasted five times as long, where it
	// is longer than Interval. In between it is a fifth of what the phase has
	// lasted: with the scrapes at its edges a window of it holds ten at any time
	// from ten intervals on. Now and Refresh begin a phase.
	Later time.Duration
	// Aside is the interval while nothing is judged (see Judged), where it is longer
	// than Interval.
	Aside   time.Duration
	Timeout time.Duration
	Targets []Target  // more can be added while it runs
	Missing []Missing // are noted as gaps
	// Full keeps the debugging tier, and scrapes large answers nearly as often as
	// small ones; where Later is 0, exactly as often.
	Full bool
}

// A Collector scrapes its targets.
type Collector struct {
	o    Options
	wake chan struct{} // targets changed

	mu      sync.Mutex
	targets []*scraper
	gone    []*scraper // removed, for the account
	out     storage.AppendableV2
	note    func(record.Gap)
	acct    record.Observer
	edge    time.Time     // when a phase began, as far as is known here
	aside   bool          // the phase under way only leads to another
	whole   time.Duration // how long that phase will last, as it looks; 0: unknown
	begun   chan struct{} // closed when the next one begins
	fresh   time.Duration // the constant, but in tests
}

// ErrNotRunning is returned by Now before Collect has begun or after it ended.
var ErrNotRunning = errors.New("metrics are not being collected")

// New returns a collector of the given targets.
func New(o Options) *Collector {
	if o.Interval <= 0 {
		o.Interval = Interval
	}
	if o.Timeout <= 0 {
		o.Timeout = Timeout
	}
	c := &Collector{o: o, wake: make(chan struct{}, 1), fresh: fresh, begun: make(chan struct{}), aside: o.Aside > 0}
	c.Add(o.Targets...)
	return c
}

// Add adds a target, such as a component that was started again: the older
// instance of the same component is to be removed by its own name.
func (c *Collector) Add(targets ...Target) {
	c.mu.Lock()
	for _, t := range targets {
		s := newScraper(t)
		if !c.o.Full {
			s.leaveOut = Debugging
		}
		c.targets = append(c.targets, s)
	}
	c.mu.Unlock()
	c.poke()
}

// Remove ends the scraping of one instance. Its series end there.
func (c *Collector) Remove(component, instance string) {
	c.mu.Lock()
	c.targets = slices.DeleteFunc(c.targets, func(s *scraper) bool {
		if s.t.Component != component || s.t.Instance != instance {
			return false
		}
		c.gone = append(c.gone, s)
		return true
	})
	c.mu.Unlock()
	c.poke()
}

func (c *Collector) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "metrics" }

// Collect implements collect.Collector. Targets are scraped at once, then each
// at its own moment of the interval, so that their costs do not coincide, and
// once more at the end.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	return c.collect(ctx, w.Metrics(), w.Gap)
}

func (c *Collector) collect(ctx context.Context, out storage.AppendableV2, gap func(record.Gap)) error {
	c.mu.Lock()
	c.out, c.note, c.edge = out, gap, time.Now()
	n := len(c.targets)
	c.mu.Unlock()
	for _, m := range c.o.Missing {
		gap(record.Gap{Collector: c.Name(), Subject: m.Component, Reason: m.Reason})
	}
	if n == 0 && len(c.o.Missing) > 0 {
		c.finish()
		return collect.NotSupported("no component's metrics can be reached")
	}

	running := map[*scraper]context.CancelFunc{}
	var loops sync.WaitGroup
	errs := make(chan error, 1)
	var failed error
	for failed == nil && ctx.Err() == nil {
		c.mu.Lock()
		now := slices.Clone(c.targets)
		c.mu.Unlock()
		for i, s := range now {
			if running[s] != nil {
				continue
			}
			loop, end := context.WithCancel(ctx)
			running[s] = end
			offset := c.o.Interval * time.Duration(i%16) / 16
			loops.Go(func() {
				if err := c.loop(loop, s, out, offset); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			})
		}
		for s, end := range running {
			if !slices.Contains(now, s) {
				end()
				delete(running, s)
				if err := s.retire(context.WithoutCancel(ctx), out); err != nil && failed == nil {
					failed = err
				}
			}
		}
		if failed != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case failed = <-errs:
		}
	}
	for _, end := range running {
		end()
	}
	loops.Wait()
	if failed == nil {
		failed = c.Refresh(context.WithoutCancel(ctx))
	}
	c.finish()
	return failed
}

// loop scrapes one target until ctx ends.
func (c *Collector) loop(ctx context.Context, s *scraper, out storage.AppendableV2, offset time.Duration) error {
	if err := s.scrape(ctx, out, c.o.Timeout, c.note); err != nil {
		return err
	}
	next := time.NewTimer(c.interval(s) + offset)
	defer next.Stop()
	for {
		begun := c.phase()
		select {
		case <-ctx.Done():
			return nil
		case <-begun: // which scraped all
			next.Reset(c.interval(s) + offset)
			continue
		case <-next.C:
		}
		interval := c.interval(s)
		// A scrape that Now did a moment ago stands for this one.
		if age := s.age(); age < interval/4*3 {
			interval -= age
		} else if err := s.scrape(ctx, out, c.o.Timeout, c.note); err != nil {
			return err
		}
		next.Reset(interval)
	}
}

// interval is that of one target. To render its metrics costs a component some
// 23 ns a byte, and as much as it costs us again to read them: an API server
// that is asked for its 17,000 series each second has 5 % of a core less for its
// work. So that no component gives more than 0.25 % of a core, it is left alone
// for the longer the larger its answer is; where changes are told, both sides give
// 0.1 % together. Of Full it may take fullRest times that once a phase has had
// ten scrapes: with the API server's each second, 3.3 of 7.0 CPU-s that Full cost were
// for metrics.
func (c *Collector) interval(s *scraper) time.Duration {
	c.mu.Lock()
	phase, aside, whole := time.Since(c.edge), c.aside, c.whole
	c.mu.Unlock()
	if c.o.Full {
		return max(c.o.Interval, min(phase/growth, c.o.Later, s.rest()/fullRest))
	}
	if phase < ten*c.o.Interval {
		whole = 0 // an estimate that comes early may be far too long, and a window must have ten scrapes
	}
	least := max(c.o.Interval, min(max(phase/growth, whole/ofLong), c.o.Later))
	switch {
	case aside:
		least = max(c.o.Interval, c.o.Aside)
	case s.t.Seldom:
		least = max(c.o.Interval, c.o.Later)
	}
	return max(least, min(s.rest(), longest))
}

// fullRest is how many times as often as otherwise Full scrapes a large answer.
const fullRest = 2

// growth is the part of what a phase has lasted that may go by without a scrape. In n
// intervals, n > 5, there are 5 + 5 ln(n/5): nine in ten, twelve in twenty.
const growth = 5

// ten scrapes are what a judged window has at least.
const ten = 10

// ofLong is how many scrapes a phase has at least that is seen to be a long one: half as
// many again as a window must have, for it may end earlier than it looks.
const ofLong = 15

// Lasts says how long the phase under way will last in all, as it looks now. One that is
// seen to be long need not be scraped as often at its beginning as one that may end any
// moment.
func (c *Collector) Lasts(whole time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = whole
}

// Judged says whether somebody will ask what happened within the phase that is about
// to begin with Now or Refresh, or whether it only leads to others: of these there are
// few scrapes. Where Options have no Aside it says nothing.
func (c *Collector) Judged(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aside = !yes && c.o.Aside > 0
}

// phase is closed when the next phase begins.
func (c *Collector) phase() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// fresh is how old an answer may be that stands for one of this moment, where
// nothing is asked of the components in between: at the end of the collection,
// and where one phase follows another.
const fresh = 500 * time.Millisecond

// Now scrapes every target once, all at the same time, and returns when all
// have answered or failed. A target that fails is down, not an error.
//
// It returns when the last one was asked: a window that ends there has these
// samples in it.
func (c *Collector) Now(ctx context.Context) (asked time.Time, err error) {
	return c.scrapeAll(ctx, 0)
}

// Refresh is Now for the targets whose last answer is not of the last half
// second.
func (c *Collector) Refresh(ctx context.Context) error {
	_, err := c.scrapeAll(ctx, c.fresh)
	return err
}

// scrapeAll leaves out targets whose last scrape is younger than that.
func (c *Collector) scrapeAll(ctx context.Context, younger time.Duration) (asked time.Time, err error) {
	c.mu.Lock()
	out, note, targets := c.out, c.note, slices.Clone(c.targets)
	c.edge, c.whole = time.Now(), 0
	close(c.begun)
	c.begun = make(chan struct{})
	c.mu.Unlock()
	if out == nil {
		return asked, ErrNotRunning
	}
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, s := range targets {
		if s.age() < younger {
			continue
		}
		all.Go(func() { errs[i] = s.scrape(ctx, out, c.o.Timeout, note) })
	}
	all.Wait()
	for _, s := range targets {
		if at := s.asked(); at.After(asked) {
			asked = at
		}
	}
	return asked, errors.Join(errs...)
}

// finish notes what never worked, and the account.
func (c *Collector) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := record.Observer{IntervalSeconds: c.o.Interval.Seconds()}
	var notes []string
	for _, s := range append(slices.Clone(c.gone), c.targets...) {
		s.mu.Lock()
		a.Samples += s.samples
		if s.worked == 0 && s.failed > 0 {
			c.note(record.Gap{Collector: c.Name(), Subject: s.t.Component, Reason: "metrics never answered: " + s.reason})
		} else {
			if !s.downSince.IsZero() {
				c.note(record.Gap{Collector: c.Name(), Subject: s.t.Component, Reason: "metrics did not answer: " + s.reason, Start: s.downSince, End: time.Now()})
			}
			if s.worked > 0 {
				note := fmt.Sprintf("%s: %d scrapes, mean %.0f ms and %.1f MB", s.t.Component, s.worked,
					s.took.Seconds()/float64(s.worked)*1e3, float64(s.bytes)/float64(s.worked)/1e6)
				if s.failed > 0 {
					note += fmt.Sprintf(", %d failed", s.failed)
				}
				if s.skipped > 0 {
					note += fmt.Sprintf(", %d series of the debugging tier left out", s.skipped)
				}
				if s.dropped > 0 {
					note += fmt.Sprintf(", %d samples refused as duplicate or out of order", s.dropped)
				}
				notes = append(notes, note)
			}
		}
		s.mu.Unlock()
	}
	slices.Sort(notes)
	a.Note = strings.Join(notes, "; ")
	c.acct, c.out = a, nil
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

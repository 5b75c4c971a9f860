// Package requests records who asked the API server for what: from a lab's log
// of requests, from an audit log, or from what a cluster without one has: the
// server's own log at -v=3 and above, or samples of the requests in its
// priority-and-fairness filter.
//
// Start with New.
package requests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/internal/tail"
	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// Quiet and Patience: the audit backend writes in batches, so that the
	// last events arrive up to a batch's wait after their requests. On a
	// cluster that never becomes quiet, an event from after the end says that
	// those before it have arrived.
	Quiet    = 1200 * time.Millisecond
	Patience = 2500 * time.Millisecond
)

// Options of a Collector: what there is on this cluster. The best source that
// is there is used: Path, then ServerLog, then DumpURL. Each row says which in
// its source column.
type Options struct {
	// Path of a lab's log of requests, or of an audit log, JSON lines of
	// audit.k8s.io/v1 at level Metadata or above (--audit-log-path, with
	// --audit-log-format=json). It must be a file that this process can read: on
	// an existing cluster, run kubedyno on the control plane's machine, or mount
	// the log there.
	Path string
	// FromStart takes what the file at Path holds already: the API server was
	// started for this run.
	FromStart bool
	// ServerLog is the path of the API server's own log, written at -v=3 or
	// above (which PUT /debug/flags/v sets while it runs; put it back
	// afterwards, each request costs a line). It tells of no user, and of a
	// watch only when it ends.
	ServerLog string
	// Zone is that of the clock in ServerLog; nil is this process's own.
	Zone *time.Location
	// DumpURL is the API server's address, https://HOST:PORT, and DumpClient
	// sends the requests: it needs `get` on the nonResourceURL
	// /debug/api_priority_and_fairness/*. DumpInterval is between samples.
	// A request that is shorter than the interval is seen with a likelihood
	// of its duration ÷ interval, so counts are far too low and slow requests
	// over-represented. done_us is received_us and an interval for each sample
	// that had the request, which is right in sum and wrong for each. There
	// is neither a user agent nor a code.
	DumpURL      string
	DumpClient   *http.Client
	DumpInterval time.Duration

	// Reason says why there is no source, where there is none.
	Reason string
	// Quiet and Patience say when a log is read to its end; see the constants.
	Quiet, Patience time.Duration
}

// A Collector follows one source.
type Collector struct {
	o      Options
	source string // of audit's; empty: none
	missed []string
	tail   *tail.Follower
	err    error
	newest int64        // µs, newest entry of the log; Follow's goroutine only
	end    atomic.Int64 // µs, when collection was asked to end

	mu   sync.Mutex
	acct record.Observer
}

// New returns a collector. What is written to a log from now on is collected,
// though Collect is called later.
func New(o Options) *Collector {
	if o.Quiet <= 0 {
		o.Quiet = Quiet
	}
	if o.Patience <= 0 {
		o.Patience = Patience
	}
	if o.DumpInterval <= 0 {
		o.DumpInterval = DumpInterval
	}
	if o.Zone == nil {
		o.Zone = time.Local
	}
	c := &Collector{o: o}
	c.choose()
	switch c.source {
	case audit.SourceAudit:
		c.tail, c.err = tail.Open(o.Path, tail.Options{FromStart: o.FromStart, Quiet: o.Quiet, Patience: o.Patience, Done: c.passed})
	case audit.SourceLog:
		c.tail, c.err = tail.Open(o.ServerLog, tail.Options{Quiet: o.Quiet, Patience: o.Patience, Done: c.passed})
	}
	return c
}

// choose takes the best source. A file that cannot be opened is passed over
// where there is another source; alone, it may still appear.
func (c *Collector) choose() {
	usable := func(path, what string, others bool) bool {
		if path == "" {
			return false
		}
		f, err := os.Open(path)
		if err == nil {
			f.Close()
			return true
		}
		if others {
			c.missed = append(c.missed, fmt.Sprintf("%s cannot be read: %v", what, err))
		}
		return !others
	}
	switch {
	case usable(c.o.Path, "the audit log", c.o.ServerLog != "" || c.o.DumpURL != ""):
		c.source = audit.SourceAudit
	case usable(c.o.ServerLog, "the API server's log", c.o.DumpURL != ""):
		c.source = audit.SourceLog
	case c.o.DumpURL != "":
		c.source = audit.SourceDump
	}
}

// overlap is by how much events of one batch may be out of order.
const overlap = 100 * time.Millisecond

// passed reports that the log has reached the end of collection.
func (c *Collector) passed() bool {
	end := c.end.Load()
	return end != 0 && c.newest > end+overlap.Microseconds()
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "requests" }

// sink is what the collector writes to.
type sink interface {
	Observes(...record.Table)
	Request(record.Request)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
//
// A request becomes a row when it is done or has panicked. Watches and other
// long requests that are still open at the end become rows that are not done.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error { return c.collect(ctx, w) }

func (c *Collector) collect(ctx context.Context, w sink) error {
	for _, reason := range c.missed {
		w.Gap(record.Gap{Collector: c.Name(), Subject: "source", Reason: reason})
	}
	switch {
	case c.source == "" && c.o.Reason != "":
		return collect.NotSupported("%s", c.o.Reason)
	case c.source == "":
		return collect.NotSupported("requests are read from the API server's audit log, which cannot be reached on this cluster")
	case c.err != nil && c.source == audit.SourceAudit:
		return collect.NotSupported("the audit log cannot be read: %v", c.err)
	case c.err != nil:
		return collect.NotSupported("the API server's log cannot be read: %v", c.err)
	}
	var a record.Observer
	var err error
	if c.source == audit.SourceDump {
		a, err = c.sample(ctx, w)
	} else {
		a, err = c.follow(ctx, w)
	}
	c.mu.Lock()
	c.acct = a
	c.mu.Unlock()
	return err
}

// follow reads a log while it grows.
func (c *Collector) follow(ctx context.Context, w sink) (record.Observer, error) {
	name := "the audit log"
	path := c.o.Path
	f := &follower{c: c, w: w}
	line := f.event
	if c.source == audit.SourceLog {
		name, path = "the API server's log", c.o.ServerLog
		f.http = audit.HTTPLog{Near: time.Now(), Zone: c.o.Zone}
		line = f.httpLine
	} else {
		w.Observes(record.TableRequests)
	}
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { c.end.Store(time.Now().UnixMicro()) })
	defer stop()
	stats, err := c.tail.Follow(ctx, func(l tail.Line) error {
		if l.Partial || f.broken { // no entry of ours is that long
			if f.broken = l.Partial; !f.broken {
				f.bad++
			}
			return nil
		}
		if len(l.Text) > 0 {
			line(l.Text)
		}
		return nil
	})
	if err != nil {
		w.Gap(record.Gap{Collector: c.Name(), Reason: name + " could not be read to its end: " + err.Error()})
	}
	if stats.Missing {
		return record.Observer{}, collect.NotSupported("there is no %s at %s", strings.TrimPrefix(name, "the "), path)
	}
	if c.source == audit.SourceLog && f.rows == 0 {
		return record.Observer{}, collect.NotSupported("the API server's log has no lines of requests among %d: it writes them at -v=3 and above, which PUT /debug/flags/v sets while it runs", stats.Lines)
	}
	open := f.events.Open()
	for _, row := range open {
		w.Request(row)
		f.rows++
	}
	if stats.UnfinishedLastLength > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: name + " ends within a line", Start: time.Now()})
	}
	if stats.Truncated > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("%s was truncated %d times while it was read", name, stats.Truncated), Start: began, End: time.Now()})
	}
	if f.bad > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("%d of %d lines of %s could not be parsed (first: %s)", f.bad, stats.Lines, name, f.first()), Start: began, End: time.Now()})
	}
	if f.events.Lost > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("the API server could not write %d lines of its log of requests: the disk failed or was too slow", f.events.Lost), Start: began, End: time.Now()})
	}
	if f.events.Forgotten > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("%d requests that were open for long are known only if they ended: too many at a time", f.events.Forgotten)})
	}
	if f.own {
		name = "the log of requests"
	}
	notes := []string{fmt.Sprintf("%d lines, %.1f MB of %s", stats.Lines, float64(stats.Bytes)/1e6, strings.TrimPrefix(name, "the "))}
	if c.source == audit.SourceLog {
		notes = append(notes, logLimits)
		w.Gap(record.Gap{Collector: c.Name(), Subject: "source", Reason: logLimits})
	} else {
		notes = append(notes, fmt.Sprintf("%d requests still open", len(open)))
		if !f.own {
			notes = append(notes, "sizes of answers are not in an audit log", "dropped events: see apiserver_audit_error_total")
		}
	}
	if f.bad > 0 {
		notes = append(notes, fmt.Sprintf("%d lines could not be parsed", f.bad))
	}
	if f.events.Panics > 0 {
		notes = append(notes, fmt.Sprintf("%d requests panicked", f.events.Panics))
	}
	if stats.Rotated > 0 {
		notes = append(notes, fmt.Sprintf("rotated %d times", stats.Rotated))
	}
	if stats.StillBusy {
		notes = append(notes, "the log was still growing when reading ended")
	}
	return record.Observer{Samples: f.rows, CPUSeconds: stats.CPUSeconds, Note: strings.Join(notes, "; ")}, nil
}

// logLimits is what rows from the API server's own log cannot tell.
const logLimits = "rows come from the API server's log: no user, no watch that is still open, requests without a name where it was in the body"

// follower turns the lines of a log into rows.
type follower struct {
	c         *Collector
	w         sink
	events    audit.Events
	http      audit.HTTPLog
	rows, bad int64
	firstBad  string
	broken    bool // the line is in pieces
	own       bool // it is a lab's log of requests
}

func (f *follower) event(text []byte) {
	row, done, err := f.events.Line(text)
	f.c.newest = max(f.c.newest, f.events.Newest)
	switch {
	case err != nil:
		f.failed(err)
	case done:
		f.own = f.own || row.Source == audit.SourceRequests
		f.w.Request(row)
		f.rows++
	}
}

func (f *follower) httpLine(text []byte) {
	row, err := f.http.Line(text)
	switch {
	case errors.Is(err, audit.ErrNoRequest):
	case err != nil:
		f.failed(err)
	default:
		if f.rows == 0 { // before this, it may be a log at a lower verbosity
			f.w.Observes(record.TableRequests)
		}
		f.c.newest = max(f.c.newest, row.DoneMicros)
		f.w.Request(row)
		f.rows++
	}
}

func (f *follower) failed(err error) {
	if f.bad++; f.firstBad == "" {
		f.firstBad = err.Error()
	}
}

func (f *follower) first() string {
	if f.firstBad == "" {
		return fmt.Sprintf("longer than %d bytes", tail.MaxLine)
	}
	return f.firstBad
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

// Package requests records who asked the API server for what, from the audit
// log of a lab.
//
// Start with New.
package requests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/internal/tail"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// Quiet and Patience: the audit backend writes in batches, so that the
	// last events arrive up to a batch's wait after their requests. On a
	// cluster that never becomes quiet, an event from after the end says that
	// those before it have arrived.
	Quiet    = 1200 * time.Millisecond
	Patience = 2500 * time.Millisecond
	// maxOpen bounds the long-running requests that are remembered.
	maxOpen = 1 << 18
)

// Options of a Collector.
type Options struct {
	// Path of the audit log, JSON lines of audit.k8s.io/v1.
	Path string
	// FromStart takes what the file holds already.
	FromStart bool
	// Reason says why there is none where Path is empty.
	Reason          string
	Quiet, Patience time.Duration
}

// A Collector follows the audit log.
type Collector struct {
	o      Options
	tail   *tail.Follower
	err    error
	newest int64        // µs, stage of the newest event; Follow's goroutine only
	end    atomic.Int64 // µs, when collection was asked to end

	mu   sync.Mutex
	acct record.Observer
}

// New returns a collector. What is written to the log from now on is
// collected, though Collect is called later.
func New(o Options) *Collector {
	if o.Quiet <= 0 {
		o.Quiet = Quiet
	}
	if o.Patience <= 0 {
		o.Patience = Patience
	}
	c := &Collector{o: o}
	if o.Path != "" {
		c.tail, c.err = tail.Open(o.Path, tail.Options{FromStart: o.FromStart, Quiet: o.Quiet, Patience: o.Patience, Done: c.passed})
	}
	return c
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
	Request(record.Request)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
//
// A request becomes a row when it is done or has panicked. Watches and other
// long requests that are still open at the end become rows that are not done.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	if c.o.Path != "" && c.err == nil {
		w.Observes(record.TableRequests)
	}
	return c.collect(ctx, w)
}

func (c *Collector) collect(ctx context.Context, w sink) error {
	switch {
	case c.o.Path == "" && c.o.Reason != "":
		return collect.NotSupported("%s", c.o.Reason)
	case c.o.Path == "":
		return collect.NotSupported("requests are read from the API server's audit log, which cannot be reached on this cluster")
	case c.err != nil:
		return collect.NotSupported("the audit log cannot be read: %v", c.err)
	}
	d := newDecoder()
	open := map[string]record.Request{}
	var rows, bad, panics int64
	var firstBad string
	broken := false // the line is in pieces
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { c.end.Store(time.Now().UnixMicro()) })
	defer stop()
	stats, err := c.tail.Follow(ctx, func(l tail.Line) error {
		if l.Partial || broken { // no audit event at Metadata level is that long
			if broken = l.Partial; !broken {
				bad++
			}
			return nil
		}
		if len(l.Text) == 0 {
			return nil
		}
		e, err := d.decode(l.Text)
		if err != nil {
			if bad++; firstBad == "" {
				firstBad = err.Error()
			}
			return nil
		}
		c.newest = max(c.newest, e.row.DoneMicros)
		switch string(e.stage) {
		case "ResponseStarted": // the answer of a watch has begun
			if len(open) < maxOpen {
				e.row.DoneMicros = 0
				open[string(e.id)] = e.row
			}
		case "ResponseComplete", "Panic":
			if e.stage[0] == 'P' {
				panics++
			}
			delete(open, string(e.id))
			w.Request(e.row)
			rows++
		}
		return nil
	})
	if err != nil {
		w.Gap(record.Gap{Collector: c.Name(), Reason: "the audit log could not be read to its end: " + err.Error()})
	}
	if stats.Missing {
		return collect.NotSupported("there is no audit log at %s", c.o.Path)
	}
	for _, row := range sorted(open) {
		w.Request(row)
		rows++
	}
	if stats.UnfinishedLastLength > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: "the audit log ends within a line", Start: time.Now()})
	}
	if stats.Truncated > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("the audit log was truncated %d times while it was read", stats.Truncated), Start: began, End: time.Now()})
	}
	if bad > 0 {
		w.Gap(record.Gap{Collector: c.Name(), Reason: fmt.Sprintf("%d of %d lines of the audit log could not be parsed (first: %s)", bad, stats.Lines, firstBad), Start: began, End: time.Now()})
	}
	c.account(rows, bad, panics, len(open), stats)
	return nil
}

func (c *Collector) account(rows, bad, panics int64, open int, stats tail.Stats) {
	notes := []string{
		fmt.Sprintf("%d lines, %.1f MB of audit log", stats.Lines, float64(stats.Bytes)/1e6),
		fmt.Sprintf("%d requests still open", open),
		"dropped events: see apiserver_audit_error_total",
	}
	if bad > 0 {
		notes = append(notes, fmt.Sprintf("%d lines could not be parsed", bad))
	}
	if panics > 0 {
		notes = append(notes, fmt.Sprintf("%d requests panicked", panics))
	}
	if stats.Rotated > 0 {
		notes = append(notes, fmt.Sprintf("rotated %d times", stats.Rotated))
	}
	if stats.StillBusy {
		notes = append(notes, "the log was still growing when reading ended")
	}
	c.mu.Lock()
	c.acct = record.Observer{Samples: rows, Note: strings.Join(notes, "; ")}
	c.mu.Unlock()
}

func sorted(open map[string]record.Request) []record.Request {
	return slices.SortedFunc(maps.Values(open), func(a, b record.Request) int {
		if a.ReceivedMicros != b.ReceivedMicros {
			return int(a.ReceivedMicros - b.ReceivedMicros)
		}
		return strings.Compare(a.User+a.URI, b.User+b.URI)
	})
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

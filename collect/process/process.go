// Package process records the processes of the machine, and the machine
// itself, each second from /proc, and the end of each process as the kernel
// tells it.
//
// Every process gets a row when it moved; one of the run gets a row each
// second. A field that cannot be read is -1, never 0. A process that lives
// shorter than the interval has a row in the table of exits, with all that it
// used; where the kernel's events may not be read, that is a gap.
//
// Start with New.
package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/internal/beat"
	"github.com/kubedyno/kubedyno/record"
)

// Names of our own processes, which start the others: what they start is not theirs.
const (
	Self   = "kubedyno"
	Keeper = "kubedyno-keeper"
)

// Interval is the default. CPU times in /proc have a resolution of 10 ms, so
// that at one second a share is good to 1 %.
const Interval = time.Second

// A Component is a process that the run knows by name.
type Component struct {
	Name   string
	PID    int
	Cgroup string // folder that holds its cpu.stat; empty for none
}

// Options of a Collector. The zero value works.
type Options struct {
	Interval   time.Duration
	Components []Component // more can be attached while it runs
	// Redact takes secrets out of a command line.
	Redact func(args []string) []string
	// Proc and Sys stand in for /proc and /sys. The kernel's events are of this
	// machine, so that there are none with another /proc.
	Proc, Sys string

	events func() (exitSource, error) // these stand in for the kernel's
	census func() (census, error)
}

// A Collector samples all processes.
type Collector struct {
	o     Options
	mu    sync.Mutex
	known map[int32]named
	seq   int
	acct  record.Observer
	last  atomic.Pointer[scanned]
}

// scanned is what the last scan saw of the components' processes.
type scanned struct {
	at    time.Time
	names map[int32]string
	used  map[int32]float64
}

// New returns a collector that knows ourselves and the given components.
func New(o Options) *Collector {
	if o.Interval <= 0 {
		o.Interval = Interval
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Sys == "" {
		o.Sys = "/sys"
	}
	if o.Redact == nil {
		o.Redact = record.RedactArgs
	}
	if o.events == nil {
		o.events = kernelEvents
		if o.Proc != "/proc" {
			o.events = func() (exitSource, error) { return nil, fmt.Errorf("%s is not this machine's", o.Proc) }
		}
	}
	if o.census == nil {
		o.census = newCensus
		if o.Proc != "/proc" {
			o.census = func() (census, error) { return nil, nil }
		}
	}
	c := &Collector{o: o, known: map[int32]named{int32(os.Getpid()): {component: Self}}}
	c.Attach(o.Components...)
	return c
}

// Attach names processes from the next sample on. A name stays with the
// process, not with its PID: when that is used again, it is somebody else.
func (c *Collector) Attach(components ...Component) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range components {
		if x.PID > 0 {
			c.seq++
			c.known[int32(x.PID)] = named{x.Name, x.Cgroup, c.seq}
		}
	}
}

// ComponentOf names the component that a process belongs to, its own or an
// ancestor's as of the last scan; empty for none. It may be called from any
// goroutine.
func (c *Collector) ComponentOf(pid int32) string {
	c.mu.Lock()
	n, ok := c.known[pid]
	c.mu.Unlock()
	if ok {
		return n.component
	}
	last := c.last.Load()
	if last == nil {
		return ""
	}
	return last.names[pid]
}

// Used is the CPU, in seconds, that each process of a component had used by the
// last scan, and when that was; nil before the first. Callers must not change
// it. It may be called from any goroutine.
func (c *Collector) Used() (byPID map[int32]float64, at time.Time) {
	last := c.last.Load()
	if last == nil {
		return nil, time.Time{}
	}
	return last.used, last.at
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return collectorName }

const collectorName = "process"

// sink is what the collector writes to.
type sink interface {
	Process(record.ProcessSample)
	Machine(record.MachineSample)
	Core(record.CoreSample)
	Disk(record.DiskSample)
	Exit(record.ProcessExit)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	w.Observes(record.TableProcesses, record.TableMachine, record.TableCores, record.TableDisks)
	return c.collect(ctx, w, false, func(time.Time) error { return nil })
}

// collect scans each interval until ctx ends. It calls after behind each one,
// and ends with its error.
func (c *Collector) collect(ctx context.Context, w sink, all bool, after func(time.Time) error) error {
	if runtime.GOOS != "linux" {
		return collect.NotSupported("processes are read from /proc, which %s has not", runtime.GOOS)
	}
	s, err := newScanner(c.o.Proc, c.o.Sys, w, c.o.Redact)
	if err != nil {
		return collect.NotSupported("processes cannot be read: %v", err)
	}
	defer s.close()
	s.census, s.uncounted = c.o.census()
	src, err := c.o.events()
	var t *tracker
	switch {
	case err != nil:
		s.gaps.once(string(record.TableExits), "ends of processes: "+err.Error())
	default:
		defer src.close()
		t = newTracker(s, src, w)
		if o, ok := w.(interface{ Observes(...record.Table) }); ok {
			o.Observes(record.TableExits)
		}
		if why := src.partial(); why != "" {
			s.gaps.once(string(record.TableExits)+".command", why) // the table itself is there
		}
	}
	tick := time.NewTicker(c.o.Interval)
	defer tick.Stop()
	var look <-chan time.Time
	if t != nil {
		events := beat.NewTicker(min(lookEvery, c.o.Interval))
		defer events.Stop()
		look = events.C
	}
	a := record.Observer{IntervalSeconds: c.o.Interval.Seconds()}
	defer func() {
		a.Samples = s.rows
		var notes []string
		if s.hidden > 0 {
			notes = append(notes, fmt.Sprintf("the I/O of a process could not be read %d times, for lack of permission", s.hidden))
		}
		if t != nil {
			a.Samples += t.rows
			notes = append(notes, fmt.Sprintf("%d ends of processes", t.rows))
			if t.lost > 0 {
				notes = append(notes, fmt.Sprintf("%d events lost", t.lost))
			}
		}
		if s.uncounted != nil {
			notes = append(notes, "threads are read file by file: "+s.uncounted.Error())
		}
		a.Note = strings.Join(notes, "; ")
		c.mu.Lock()
		c.acct = a
		c.mu.Unlock()
	}()
	scan := true
	for last := false; ; {
		var now time.Time
		var err error
		a.CPUSeconds += collect.CPU(func() { now, err = c.once(s, t, scan, all, last) })
		if err != nil {
			return err
		}
		if scan {
			if err := after(now); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
			scan = true
		case <-look:
			scan = false
		case <-ctx.Done():
			scan, last = true, true // one more, so that the tables reach the run's end
		}
	}
}

// once reads the kernel's events, and with scan samples everything.
func (c *Collector) once(s *scanner, t *tracker, scan, all, last bool) (now time.Time, err error) {
	now = time.Now()
	c.mu.Lock()
	before := maps.Clone(c.known)
	c.mu.Unlock()
	if t != nil {
		look := t.look
		if last {
			look = func(_ time.Time, known map[int32]named) error { return t.finish(known) }
		}
		if err := look(now, before); err != nil {
			return now, err
		}
	}
	if !scan {
		return now, nil
	}
	known := maps.Clone(before) // the scan takes out what was used again
	if err = s.machine(now); err == nil {
		err = s.scan(now, known, all || last)
	}
	of := &scanned{now, map[int32]string{}, map[int32]float64{}}
	for pid, p := range s.procs {
		if p.component != "" {
			of.names[pid] = p.component
			of.used[pid] = p.last.UserSeconds + p.last.SystemSeconds
		}
	}
	c.last.Store(of)
	// A named process that is gone gives its PID up.
	c.mu.Lock()
	for pid, n := range before {
		if p := s.procs[pid]; (p == nil || p.seq != n.seq) && c.known[pid] == n {
			delete(c.known, pid)
		}
	}
	c.mu.Unlock()
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return now, collect.NotSupported("processes cannot be read: %v", err)
		}
		return now, fmt.Errorf("scan %s: %w", c.o.Proc, err)
	}
	return now, nil
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

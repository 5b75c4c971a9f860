// Package process records the processes of the machine, and the machine
// itself, each second from /proc.
//
// Every process gets a row when it moved; one of the run gets a row each
// second. A field that cannot be read is -1, never 0. A process that lives
// shorter than the interval is seen only by luck.
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
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"golang.org/x/sys/unix"
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
	// Proc and Sys stand in for /proc and /sys.
	Proc, Sys string
}

// A Collector samples all processes.
type Collector struct {
	o     Options
	mu    sync.Mutex
	known map[int32]named
	seq   int
	acct  record.Observer
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

// Name implements collect.Collector.
func (c *Collector) Name() string { return "process" }

// sink is what the collector writes to.
type sink interface {
	Process(record.ProcessSample)
	Machine(record.MachineSample)
}

// Collect implements collect.Collector.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	w.Observes(record.TableProcesses, record.TableMachine)
	return c.collect(ctx, w)
}

func (c *Collector) collect(ctx context.Context, w sink) error {
	if runtime.GOOS != "linux" {
		return collect.NotSupported("processes are read from /proc, which %s has not", runtime.GOOS)
	}
	s, err := newScanner(c.o.Proc, c.o.Sys, w, c.o.Redact)
	if err != nil {
		return collect.NotSupported("processes cannot be read: %v", err)
	}
	defer s.close()
	tick := time.NewTicker(c.o.Interval)
	defer tick.Stop()
	a := record.Observer{IntervalSeconds: c.o.Interval.Seconds()}
	defer func() {
		a.Samples = s.rows
		if s.hidden > 0 {
			a.Note = fmt.Sprintf("the I/O of a process could not be read %d times, for lack of permission", s.hidden)
		}
		c.mu.Lock()
		c.acct = a
		c.mu.Unlock()
	}()
	for last := false; ; {
		cpu, err := c.once(s, w, last)
		a.CPUSeconds += cpu
		if err != nil {
			return fmt.Errorf("scan %s: %w", c.o.Proc, err)
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			last = true // one more, so that the tables reach the run's end
		}
	}
}

// once samples everything and returns the CPU that this took.
func (c *Collector) once(s *scanner, w sink, all bool) (float64, error) {
	runtime.LockOSThread() // so that the thread's usage is the scan's
	defer runtime.UnlockOSThread()
	cpu := threadCPU()
	now := time.Now()
	c.mu.Lock()
	before := maps.Clone(c.known)
	c.mu.Unlock()
	known := maps.Clone(before) // the scan takes out what was used again
	m, err := s.machine(now)
	if err == nil {
		w.Machine(m)
		err = s.scan(now, known, all)
	}
	// A named process that is gone gives its PID up.
	c.mu.Lock()
	for pid, n := range before {
		if p := s.procs[pid]; (p == nil || p.seq != n.seq) && c.known[pid] == n {
			delete(c.known, pid)
		}
	}
	c.mu.Unlock()
	if errors.Is(err, os.ErrPermission) {
		err = collect.NotSupported("processes cannot be read: %v", err)
	}
	return threadCPU() - cpu, err
}

func threadCPU() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

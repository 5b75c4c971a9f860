// Package stacks records what every CPU of the machine is doing, some 99 times a
// second, as call stacks of user and kernel frames: all processes, those of the
// run and those beside it.
//
// It asks the kernel for samples (perf_event_open(2), the software event
// cpu-clock, one a CPU) and gives the frames their names by itself: Go
// functions from .gopclntab, which stripped binaries have too, others from ELF
// symbol tables, the kernel's from itself or /proc/kallsyms. An idle CPU leaves no
// sample, so that samples × the interval between them are CPU-seconds.
//
// Start with New.
package stacks

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// Rate is in samples per second and CPU. Kernels do things 100 and 250 times a
	// second, programs each second, two or five: a sampler in step with these, as one
	// of 99 a second is with whatever happens once a second, sees them always or never.
	// The golden ratio behind the point is out of step with all of them for good.
	Rate = 98.618034
	// drainInterval is how often the kernel's buffers are emptied. Together
	// with the writer's flush it bounds what a kill -9 loses, and it is how
	// long a process may be dead before its files are looked for.
	drainInterval = 250 * time.Millisecond
	// ringPages of 4 KiB hold what a CPU reports between two drains: 25 samples
	// take 25 KiB at most; the rest is for a storm of short processes, each of
	// which reports its mappings.
	ringPages = 128
	// maxFrames of one stack; the kernel's default limit is 127.
	maxFrames = 127
)

// Options of a Collector. The zero value works.
type Options struct {
	// Rate is in samples per second and CPU; 0 is Rate.
	Rate       float64
	Components []process.Component // more can be attached while it runs
}

// A Collector samples the call stacks of the machine.
type Collector struct {
	o Options

	mu    sync.Mutex
	known map[int32]named
	seq   int
	acct  record.Observer
}

// A named process is one that the run knows. The name stays with the process,
// not with its PID.
type named struct {
	component string
	seq       int       // tells a PID that was attached again
	at        time.Time // of Attach
}

// New returns a collector that knows ourselves and the given components.
func New(o Options) *Collector {
	if o.Rate <= 0 {
		o.Rate = Rate
	}
	c := &Collector{o: o, known: map[int32]named{int32(os.Getpid()): {component: process.Self}}}
	c.Attach(o.Components...)
	return c
}

// Attach names processes from the next samples on. What they start inherits
// the name, as in collect/process.
func (c *Collector) Attach(components ...process.Component) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range components {
		if x.PID > 0 {
			c.seq++
			c.known[int32(x.PID)] = named{x.Name, c.seq, time.Now()}
		}
	}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "stacks" }

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

// sink is what the collector writes to.
type sink interface {
	StackSample(record.StackSample)
	Stack(record.Stack)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	return c.collect(ctx, w, func() { w.Observes(record.TableStackSamples, record.TableStacks) })
}

// stackID is the stable id of a stack: 63 bits of a hash of its frames, XXH64.
func stackID(frames []byte) int64 { return int64(xxhash.Sum64(frames) >> 1) }

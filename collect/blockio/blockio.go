// Package blockio records each request to a block device with the process
// that submitted it, and each system call that makes data durable.
//
// It asks the kernel through eBPF programs on tracepoints; where these may not
// be loaded, through a tracefs instance of its own; and where that is not
// allowed either, it says what to grant. Nothing of it outlives the process
// but, after a kill, an instance that the next collector removes.
//
// A row is a request, not a write by a program: data that a program leaves to
// writeback is submitted by a kernel thread, and what the block layer merges
// is one row, of who started it.
//
// Start with New.
package blockio

import (
	"sync"

	"github.com/kubedyno/kubedyno/record"
)

// MaxRows is the default bound of rows a second: about 20 MB a second of
// recording, and one core to write them.
const MaxRows = 50_000

// A Source is a way to ask the kernel.
type Source string

// The sources, best first. The zero value takes the first one that works.
const (
	EBPF    Source = "ebpf"
	Tracefs Source = "tracefs"
)

// Options of a Collector. The zero value works.
type Options struct {
	Source Source
	// WithoutSyncs leaves out the system calls that make data durable. To
	// observe them costs each system call of the machine, whichever it is, some
	// 0.15 µs.
	WithoutSyncs bool
	// Component names the component of the run that a process belongs to, its
	// own or an ancestor's; empty for none. It is called once a row, from one
	// goroutine.
	Component func(pid int32) string
	// MaxRows bounds the rows of both tables in a second. What is above is
	// counted, and a gap.
	MaxRows int
}

// A Collector observes block devices. It is used once.
type Collector struct {
	o    Options
	mu   sync.Mutex
	acct record.Observer
}

// New returns a collector that has not looked yet.
func New(o Options) *Collector {
	if o.MaxRows <= 0 {
		o.MaxRows = MaxRows
	}
	if o.Component == nil {
		o.Component = func(int32) string { return "" }
	}
	return &Collector{o: o}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "blockio" }

// Account implements collect.Accountant. Samples are rows. CPUSeconds are of
// reading and writing them; docs/collectors.md has what the kernel's half adds
// to those who do I/O.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

// calls are the system calls, by the number that the kernel's half gives them.
var calls = [...]string{"fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync"}

// event is one request or call that is over, or never was. Times are
// nanoseconds of CLOCK_MONOTONIC; 0 is not seen.
type event struct {
	start, issued, done int64
	call                string // empty: a block request
	pid, tid            int32
	comm                string
	device              device
	operation, flags    string
	sector, bytes       int64
	errno               int32
}

// device is a block device's number.
type device struct{ major, minor uint32 }

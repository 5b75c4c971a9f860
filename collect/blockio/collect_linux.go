package blockio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/internal/epoch"
	"github.com/kubedyno/kubedyno/internal/beat"
	"github.com/kubedyno/kubedyno/record"
)

// look is how often what the kernel kept is read.
const look = 250 * time.Millisecond

// wayOut names what to do where no source works.
const wayOut = "run as root, or grant CAP_BPF and CAP_PERFMON (eBPF, on a kernel with BTF from Linux 5.11 on) or CAP_SYS_ADMIN (tracefs, from Linux 6.5 on)"

// source is a way to ask the kernel. It is used by one goroutine.
type source interface {
	// drain calls f with each event that is there. f must not keep the event.
	drain(f func(*event)) error
	// finish stops observing, and calls f with what is left, and with what is
	// not over: that has no time of its end.
	finish(f func(*event)) error
	// lost counts events that could not be kept, since the start.
	lost() int64
	note() string
	noSyncs() string // why system calls are not observed; empty: they are
	close()
}

// sink is what the collector writes to.
type sink interface {
	BlockIO(record.BlockIO)
	Sync(record.Sync)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.close()
	w.Observes(record.TableBlockIO)
	if s.noSyncs() == "" && !c.o.WithoutSyncs {
		w.Observes(record.TableSyncs)
	}
	return c.collect(ctx, s, w)
}

func (c *Collector) open() (source, error) {
	var reasons []string
	if c.o.Source != Tracefs {
		s, err := openEBPF(!c.o.WithoutSyncs)
		if err == nil {
			return s, nil
		}
		reasons = append(reasons, err.Error())
	}
	if c.o.Source != EBPF {
		s, err := openTracefs(!c.o.WithoutSyncs)
		if err == nil {
			return s, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, collect.NotSupported("block I/O by process cannot be observed: %s; %s", strings.Join(reasons, "; "), wayOut)
}

func (c *Collector) collect(ctx context.Context, s source, w sink) error {
	cpu := 0.0
	o := &observation{o: c.o, w: w, clock: offset(), disks: disks{path: "/proc/diskstats"}}
	defer func() {
		a := record.Observer{IntervalSeconds: look.Seconds(), Samples: o.rows, CPUSeconds: cpu, Note: s.note()}
		if o.leftOut.total > 0 || o.dropped.total > 0 || o.endless.total > 0 {
			a.Note += fmt.Sprintf("; %d events were lost in the kernel, %d rows have no end, %d rows were above the bound", o.dropped.total, o.endless.total, o.leftOut.total)
		}
		c.mu.Lock()
		c.acct = a
		c.mu.Unlock()
	}()
	if why := s.noSyncs(); c.o.WithoutSyncs {
		w.Gap(record.Gap{Collector: c.Name(), Subject: string(record.TableSyncs), Reason: "left out, for it costs every system call of the machine some time; --observe full observes them"})
	} else if why != "" {
		w.Gap(record.Gap{Collector: c.Name(), Subject: string(record.TableSyncs), Reason: "system calls cannot be observed: " + why})
	}
	tick := beat.NewTicker(look)
	defer tick.Stop()
	asked := time.Now() // for events that were lost
	lost := func(now time.Time) {
		o.dropped.count(s.lost()-o.dropped.total, asked, now)
		asked = now
	}
	var err error
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		cpu += collect.CPU(func() {
			now := time.Now()
			// The clock of the recording may be set while it runs.
			o.clock = offset()
			err = s.drain(o.event)
			if now.Sub(asked) >= time.Second {
				lost(now)
			}
			o.report(now, false)
		})
	}
	cpu += collect.CPU(func() {
		if err == nil {
			o.ending = true
			err = s.finish(o.event)
			lost(time.Now())
		}
		o.report(time.Now(), true)
	})
	return err
}

// observation turns events into rows.
type observation struct {
	o                Options
	w                sink
	clock            int64 // from CLOCK_MONOTONIC to the epoch, ns
	disks            disks
	rows             int64
	second           int64 // in which rows are counted, and how many
	inSecond         int
	ending           bool // what is not over now was not before the end
	dropped, leftOut loss
	endless          loss
}

func (o *observation) micros(ns int64) int64 {
	if ns == 0 {
		return 0
	}
	return (ns + o.clock) / 1e3
}

func (o *observation) event(e *event) {
	at := e.start
	if e.done != 0 {
		at = e.done
	}
	if s := at / 1e9; s != o.second {
		o.second, o.inSecond = s, 0
	}
	if o.inSecond++; o.inSecond > o.o.MaxRows {
		t := time.UnixMicro(o.micros(at))
		o.leftOut.count(1, t, t)
		return
	}
	o.rows++
	component := ""
	if e.pid > 0 {
		component = o.o.Component(e.pid)
	}
	if e.done == 0 && !o.ending {
		o.endless.count(1, time.UnixMicro(o.micros(e.start)), time.Now())
	}
	if e.call != "" {
		o.w.Sync(record.Sync{
			TimeMicros: o.micros(e.start), DoneMicros: o.micros(e.done), PID: e.pid, TID: e.tid,
			Command: e.comm, Component: component, Call: e.call, Error: e.errno,
		})
		return
	}
	o.w.BlockIO(record.BlockIO{
		TimeMicros: o.micros(e.start), IssuedMicros: o.micros(e.issued), DoneMicros: o.micros(e.done),
		PID: e.pid, Command: e.comm, Component: component, Device: o.disks.name(e.device),
		Operation: e.operation, Flags: e.flags, Sector: e.sector, Bytes: e.bytes, Error: e.errno,
	})
}

// report notes as gaps what was lost, once no more is.
func (o *observation) report(now time.Time, last bool) {
	gap := func(l *loss, reason string) {
		if l.open == 0 || !last && now.Sub(l.to) < quiet {
			return
		}
		o.w.Gap(record.Gap{Collector: "blockio", Subject: string(record.TableBlockIO), Reason: fmt.Sprintf(reason, l.open), Start: l.from, End: l.to.Add(time.Microsecond)})
		l.open = 0
	}
	gap(&o.dropped, "%d events of block I/O or syncs were lost in the kernel: more came than could be kept or read")
	gap(&o.endless, "the kernel did not tell the end of %d requests: their rows have none")
	gap(&o.leftOut, "%d rows of block I/O or syncs above "+fmt.Sprint(o.o.MaxRows)+" in a second were left out")
}

// quiet is how long nothing must be lost for a stretch to be over.
const quiet = 10 * time.Second

// loss is what was lost, in stretches.
type loss struct {
	total, open int64
	from, to    time.Time
}

func (l *loss) count(n int64, from, to time.Time) {
	if n <= 0 {
		return
	}
	if l.open == 0 {
		l.from = from
	}
	l.total += n
	l.open += n
	l.to = to
}

// offset is what to add to CLOCK_MONOTONIC for the time since the epoch, ns.
func offset() int64 {
	ns, _, _ := epoch.Offset()
	return ns
}

// disks knows devices by the names that /proc/diskstats has for them.
type disks struct {
	path  string
	names map[device]string
}

func (d *disks) name(dev device) string {
	if name, ok := d.names[dev]; ok {
		return name
	}
	if d.names == nil {
		d.names = map[device]string{}
	}
	d.names[dev] = fmt.Sprintf("%d:%d", dev.major, dev.minor) // until it is known
	b, err := os.ReadFile(d.path)
	if errors.Is(err, os.ErrNotExist) {
		return d.names[dev]
	}
	for text := range strings.Lines(string(b)) {
		var x device
		var name string
		if n, _ := fmt.Sscan(text, &x.major, &x.minor, &name); n == 3 {
			d.names[x] = name
		}
	}
	return d.names[dev]
}

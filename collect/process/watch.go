package process

import (
	"context"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// A Snapshot is what one scan saw. Counters are as in a recording.
type Snapshot struct {
	Time      time.Time
	Machine   record.MachineSample
	Cores     []record.CoreSample
	Disks     []record.DiskSample
	Processes []record.ProcessSample // all of them, moved or not
	Exits     []record.ProcessExit   // since the snapshot before
	Gaps      []record.Gap           // found since the snapshot before
}

// Watch calls f with each scan until ctx ends, when it returns nil, or f
// returns an error. It records nothing.
func (c *Collector) Watch(ctx context.Context, f func(*Snapshot) error) error {
	v := &view{}
	return c.collect(ctx, v, true, func(at time.Time) error {
		s := v.now
		v.now = Snapshot{}
		s.Time = at
		return f(&s)
	})
}

// view is a sink that keeps what one scan wrote.
type view struct{ now Snapshot }

func (v *view) Process(r record.ProcessSample) { v.now.Processes = append(v.now.Processes, r) }
func (v *view) Machine(r record.MachineSample) { v.now.Machine = r }
func (v *view) Core(r record.CoreSample)       { v.now.Cores = append(v.now.Cores, r) }
func (v *view) Disk(r record.DiskSample)       { v.now.Disks = append(v.now.Disks, r) }
func (v *view) Exit(r record.ProcessExit)      { v.now.Exits = append(v.now.Exits, r) }
func (v *view) Gap(g record.Gap)               { v.now.Gaps = append(v.now.Gaps, g) }

package objects

import (
	"context"
	"fmt"
	"time"
)

// A Stage is a point of a pod's life that is counted.
type Stage string

// The stages. Each pod is counted once in each that it has reached.
const (
	Created Stage = "created"
	Bound   Stage = "bound"
	Running Stage = "running"
	Ready   Stage = "ready"
	Deleted Stage = "deleted"
	Failed  Stage = "failed"
)

// Counts are pods by the stages they have reached. They only grow, except that
// a pod may move to another phase when its operation is told late.
type Counts struct {
	Created, Bound, Running, Ready, Deleted, Failed int
}

func (c *Counts) at(s Stage) *int {
	switch s {
	case Created:
		return &c.Created
	case Bound:
		return &c.Bound
	case Running:
		return &c.Running
	case Ready:
		return &c.Ready
	case Deleted:
		return &c.Deleted
	case Failed:
		return &c.Failed
	}
	return nil
}

func (c *Counts) add(d Counts, sign int) {
	c.Created += sign * d.Created
	c.Bound += sign * d.Bound
	c.Running += sign * d.Running
	c.Ready += sign * d.Ready
	c.Deleted += sign * d.Deleted
	c.Failed += sign * d.Failed
}

// State is how far the run's pods have come.
type State struct {
	Total  Counts
	Phases map[string]Counts
	// LastProgress is when a pod last reached a stage; zero before the first.
	LastProgress time.Time
	Connected    bool
	Late         int64 // changes that were seen late, after a disconnect
}

// State returns a copy of the state as it is now.
func (c *Collector) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Phases: make(map[string]Counts, len(c.counts)), LastProgress: c.progress, Connected: c.open, Late: c.late}
	for phase, n := range c.counts {
		s.Phases[phase] = *n
		s.Total.add(*n, 1)
	}
	return s
}

type wait struct {
	phase string
	stage Stage
	n     int
	done  chan struct{}
}

// Wait returns as soon as n pods of the phase have reached a stage; an empty
// phase stands for all.
func (c *Collector) Wait(ctx context.Context, phase string, what Stage, n int) error {
	if new(Counts).at(what) == nil {
		return fmt.Errorf("wait for pods: there is no stage %q", what)
	}
	x := &wait{phase, what, n, make(chan struct{})}
	c.mu.Lock()
	c.waits[x] = struct{}{}
	c.check()
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, x)
	}()
	select {
	case <-x.done:
		return nil
	default:
	}
	select {
	case <-x.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended:
		return ErrNotRunning
	}
}

// count needs c.mu. The zero time is for what happened before the watch.
func (c *Collector) count(x *pod, at time.Time, s Stage) {
	*x.had.at(s) = 1
	*c.phase(x.row.Phase).at(s)++
	if !at.IsZero() {
		c.progress = at
	}
	c.check()
}

func (c *Collector) phase(name string) *Counts {
	n := c.counts[name]
	if n == nil {
		n = &Counts{}
		c.counts[name] = n
	}
	return n
}

// move counts a pod for another phase.
func (c *Collector) move(x *pod, phase string) {
	c.phase(x.row.Phase).add(x.had, -1)
	x.row.Phase = phase
	c.phase(phase).add(x.had, 1)
	c.check()
}

// check ends the waits that are over.
func (c *Collector) check() {
	for x := range c.waits {
		n := 0
		if x.phase != "" {
			if k := c.counts[x.phase]; k != nil {
				n = *k.at(x.stage)
			}
		} else {
			for _, k := range c.counts {
				n += *k.at(x.stage)
			}
		}
		if n >= x.n {
			close(x.done)
			delete(c.waits, x)
		}
	}
}

package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClaimsNotWatched is returned by waits when nobody looks at claims, or the
// user may not.
var ErrClaimsNotWatched = errors.New("claims are not being watched")

// Claims tells how far the claims of a run have come. Of a claim's stages there
// are Created, Bound and Deleted.
type Claims struct {
	run string

	mu       sync.Mutex
	seen     map[string]*claim // by UID
	counts   map[string]*Counts
	waits    map[*wait]struct{}
	progress time.Time
	ended    chan struct{}
	end      sync.Once
}

// claim is what is kept of one.
type claim struct {
	phase string
	had   Counts
}

func newClaims(run string) *Claims {
	return &Claims{run: run, seen: map[string]*claim{}, counts: map[string]*Counts{}, waits: map[*wait]struct{}{}, ended: make(chan struct{})}
}

// State returns a copy of the state as it is now.
func (c *Claims) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Phases: make(map[string]Counts, len(c.counts)), LastProgress: c.progress}
	for phase, n := range c.counts {
		s.Phases[phase] = *n
		s.Total.add(*n, 1)
	}
	return s
}

// Wait returns as soon as n claims of the phase have reached a stage; an empty
// phase stands for all.
func (c *Claims) Wait(ctx context.Context, phase string, what Stage, n int) error {
	if what != Created && what != Bound && what != Deleted {
		return fmt.Errorf("wait for claims: they have no stage %q", what)
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
		return ErrClaimsNotWatched
	}
}

// observe takes one sight of a claim. What was there before is not counted:
// nobody's phase asked for it.
func (c *Claims) observe(at time.Time, s *seen, change string) {
	if string(s.labelRun) != c.run {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.seen[string(s.uid)]
	if x == nil {
		if change != changeAdded {
			return
		}
		x = &claim{phase: string(s.labelPhase)}
		c.seen[string(s.uid)] = x
		if c.counts[x.phase] == nil {
			c.counts[x.phase] = &Counts{}
		}
	}
	reach := func(stage Stage) {
		if had := x.had.at(stage); *had == 0 {
			*had = 1
			*c.counts[x.phase].at(stage)++
			c.progress = at
		}
	}
	reach(Created)
	if string(s.state) == "Bound" {
		reach(Bound)
	}
	if change == changeDeleted {
		reach(Deleted)
	}
	c.check()
}

// gone counts a claim that a list no longer has.
func (c *Claims) gone(at time.Time, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.seen[uid]; x != nil && x.had.Deleted == 0 {
		x.had.Deleted = 1
		c.counts[x.phase].Deleted++
		c.progress = at
		c.check()
	}
}

// check ends the waits that are over. c.mu is held.
func (c *Claims) check() {
	for x := range c.waits {
		n := 0
		for phase, counts := range c.counts {
			if x.phase == "" || x.phase == phase {
				n += *counts.at(x.stage)
			}
		}
		if n >= x.n {
			close(x.done)
			delete(c.waits, x)
		}
	}
}

// over ends all waits: nothing more is seen.
func (c *Claims) over() { c.end.Do(func() { close(c.ended) }) }

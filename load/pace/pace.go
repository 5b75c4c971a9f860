// Package pace decides when operations are due and sends them on time.
//
// The model is open: due times are fixed in advance, and slow answers never
// delay what comes after them. Latency counted from an operation's due time
// therefore contains all that its user would have waited.
//
// Start with Timetable, then Open.
package pace

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// A Timetable fixes when each operation is due.
type Timetable interface {
	// Due is when operation i, counted from 0, is due after the start. It
	// never falls as i grows.
	Due(i int) time.Duration
}

// Constant is a steady rate per second.
type Constant float64

// Due implements Timetable.
func (r Constant) Due(i int) time.Duration { return seconds(float64(i) / float64(r)) }

// Burst is everything at once.
type Burst struct{}

// Due implements Timetable.
func (Burst) Due(int) time.Duration { return 0 }

// Ramp goes from one rate per second to another in a straight line and then
// stays there.
type Ramp struct {
	From, To float64
	Over     time.Duration
}

// Due implements Timetable.
func (r Ramp) Due(i int) time.Duration {
	n, over := float64(i), r.Over.Seconds()
	ramped := (r.From + r.To) / 2 * over // operations due while the rate changes
	if n >= ramped {
		return seconds(over + (n-ramped)/r.To)
	}
	// n = From·t + (To-From)/(2·Over)·t², solved for t in the form that stays
	// exact where From and To are nearly equal.
	slope := (r.To - r.From) / over
	return seconds(2 * n / (r.From + math.Sqrt(r.From*r.From+2*slope*n)))
}

// seconds is s as a Duration; beyond what one holds, the longest.
func seconds(s float64) time.Duration {
	if ns := math.Round(s * 1e9); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

// A Clock tells and awaits time.
type Clock interface {
	Now() time.Time
	// Timer returns a channel that delivers once, d from now, and a function
	// that gives the timer up.
	Timer(d time.Duration) (<-chan time.Time, func())
}

// System is the machine's clock.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// Timer implements Clock.
func (System) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// DefaultInFlight is far more than an API server answers at once (600 by its
// own default flags), and few enough goroutines to cost nothing.
const DefaultInFlight = 5000

// Options of Open; the zero value works.
type Options struct {
	// Start is when the timetable begins; zero: now.
	Start time.Time
	// InFlight is how many operations may be unanswered at one time;
	// 0: DefaultInFlight.
	InFlight int
	// SendWithin is how late an operation may be sent. One that has to wait
	// longer is missed. 0: no limit.
	SendWithin time.Duration
	// Missed is called for each operation that was never sent, in order.
	Missed func(i int, due time.Time)
	// Clock defaults to System.
	Clock Clock
}

// Open runs op for n operations, each at its due time in a goroutine of its
// own, and returns when all have returned. Late operations are sent as soon
// as possible, in order, unless they are given up as missed. When ctx ends,
// what has not been sent yet is missed and the error is ctx's; op itself must
// heed its context.
func Open(ctx context.Context, t Timetable, n int, o Options, op func(ctx context.Context, i int, due time.Time)) error {
	if o.Clock == nil {
		o.Clock = System{}
	}
	if o.Start.IsZero() {
		o.Start = o.Clock.Now()
	}
	if o.InFlight <= 0 {
		o.InFlight = DefaultInFlight
	}
	if o.Missed == nil {
		o.Missed = func(int, time.Time) {}
	}
	slots := make(chan struct{}, o.InFlight)
	var running sync.WaitGroup
	defer running.Wait()
	for i := range n {
		due := o.Start.Add(t.Due(i))
		if ctx.Err() == nil {
			o.sleepUntil(ctx, due)
		}
		if ctx.Err() != nil || !o.take(ctx, slots, due) {
			o.Missed(i, due)
			continue
		}
		running.Go(func() {
			defer func() { <-slots }()
			op(ctx, i, due)
		})
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load ended early: %w", context.Cause(ctx))
	}
	return nil
}

func (o Options) sleepUntil(ctx context.Context, due time.Time) {
	wait := due.Sub(o.Clock.Now())
	if wait <= 0 {
		return
	}
	fired, stop := o.Clock.Timer(wait)
	defer stop()
	select {
	case <-fired:
	case <-ctx.Done():
	}
}

// take waits for a slot for as long as the operation due then may still be sent.
func (o Options) take(ctx context.Context, slots chan struct{}, due time.Time) bool {
	if o.SendWithin == 0 {
		select {
		case slots <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		}
	}
	left := due.Add(o.SendWithin).Sub(o.Clock.Now())
	if left < 0 {
		return false
	}
	select {
	case slots <- struct{}{}: // mostly: spares the timer
		return true
	default:
	}
	late, stop := o.Clock.Timer(left)
	defer stop()
	select {
	case slots <- struct{}{}:
		return true
	case <-late:
		return false
	case <-ctx.Done():
		return false
	}
}

// Package pace decides when operations are due and sends them on time.
//
// The model is open: due times are fixed in advance, and slow answers never
// delay what comes after them. Latency counted from an operation's due time
// therefore contains all that its user would have waited. Closed is the other
// model, for those who must have it.
//
// Start with Timetable, then Open.
package pace

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// Step is a rate per second that holds for a while.
type Step struct {
	Rate float64
	For  time.Duration
}

// Steps are rates one after another; the last goes on for ever. There is at
// least one.
type Steps []Step

// Due implements Timetable.
func (s Steps) Due(i int) time.Duration {
	left, begin := float64(i), 0.0
	for _, step := range s[:len(s)-1] {
		in := step.Rate * step.For.Seconds()
		if left < in {
			return seconds(begin + left/step.Rate)
		}
		left -= in
		begin += step.For.Seconds()
	}
	return seconds(begin + left/s[len(s)-1].Rate)
}

// Times are due times that were drawn in advance.
type Times []time.Duration

// Due implements Timetable.
func (t Times) Due(i int) time.Duration { return t[i] }

// Poisson draws n arrivals of so many per second that know nothing of each
// other: the times between them are exponential. The first is due at once.
func Poisson(rate float64, n int, seed uint64) Times {
	draw := rand.New(rand.NewPCG(seed, 0))
	t := make(Times, n)
	at := 0.0
	for i := range t {
		t[i] = seconds(at)
		at += draw.ExpFloat64() / rate
	}
	return t
}

// Cycles begins a timetable of Size operations anew at every multiple of Every.
type Cycles struct {
	Each  Timetable
	Size  int
	Every time.Duration
}

// Due implements Timetable.
func (c Cycles) Due(i int) time.Duration {
	return time.Duration(i/c.Size)*c.Every + c.Each.Due(i%c.Size)
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

// Clients are a closed loop: so many, each sending one operation at a time.
type Clients struct {
	// N is how many there are.
	N int
	// Think is how long each rests after an answer.
	Think time.Duration
	// For is how long new operations are begun; 0: until all were.
	For time.Duration
	// Clock defaults to System.
	Clock Clock
}

// Closed runs op for n operations, or where n is 0 for as long as the clients
// go on, and returns when all have returned. An operation is due when a client
// is free for it: while the cluster does not answer, nothing is sent, and what
// would have been sent is not measured. When ctx ends, no more are begun and
// the error is ctx's.
func Closed(ctx context.Context, n int, c Clients, op func(ctx context.Context, i int, due time.Time)) error {
	if c.Clock == nil {
		c.Clock = System{}
	}
	begun := c.Clock.Now()
	var next atomic.Int64
	var running sync.WaitGroup
	for range c.N {
		running.Go(func() {
			for ctx.Err() == nil {
				due := c.Clock.Now()
				if c.For > 0 && due.Sub(begun) >= c.For {
					return
				}
				i := int(next.Add(1)) - 1
				if n > 0 && i >= n {
					return
				}
				op(ctx, i, due)
				if c.Think > 0 {
					Options{Clock: c.Clock}.sleepUntil(ctx, c.Clock.Now().Add(c.Think))
				}
			}
		})
	}
	running.Wait()
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

package pace

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timetables(t *rapid.T) Timetable {
	rate := rapid.Float64Range(0.01, 10_000)
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return Burst{}
	case 1:
		return Constant(rate.Draw(t, "rate"))
	case 2: // nearly flat, where the quadratic formula would lose its digits
		r := rate.Draw(t, "rate")
		return Ramp{From: r, To: r * (1 + 1e-9), Over: time.Second}
	}
	over := rapid.Float64Range(0.001, 1000).Draw(t, "over")
	return Ramp{From: rate.Draw(t, "from"), To: rate.Draw(t, "to"), Over: time.Duration(over * 1e9)}
}

func TestDueTimesNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tt := timetables(t)
		i := rapid.IntRange(0, 100_000).Draw(t, "i")
		if tt.Due(0) != 0 {
			t.Fatalf("%#v: the first is due after %v", tt, tt.Due(0))
		}
		if a, b := tt.Due(i), tt.Due(i+1); b < a {
			t.Fatalf("%#v: %d is due at %v, %d at %v", tt, i, a, i+1, b)
		}
	})
}

// count is how many operations are due in [from, to).
func count(tt Timetable, from, to time.Duration) int {
	first := func(d time.Duration) int { // the first operation due at d or later
		lo, hi := 0, 1<<40
		for lo < hi {
			if mid := (lo + hi) / 2; tt.Due(mid) < d {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo
	}
	return first(to) - first(from)
}

func TestAnyWindowHoldsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 10_000).Draw(t, "rate")
		from := time.Duration(rapid.Int64Range(0, int64(1000*time.Second)).Draw(t, "from"))
		length := time.Duration(rapid.Int64Range(1, int64(1000*time.Second)).Draw(t, "length"))
		got, want := float64(count(Constant(rate), from, from+length)), rate*length.Seconds()
		if math.Abs(got-want) > 1+rate*2e-9 { // due times are whole nanoseconds
			t.Fatalf("%v operations at %v/s in %v from %v, want %v", got, rate, length, from, want)
		}
	})
}

func TestRampOffersWhatLiesUnderIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Ramp{From: rapid.Float64Range(0.1, 1000).Draw(t, "from"), To: rapid.Float64Range(0.1, 1000).Draw(t, "to"),
			Over: time.Duration(rapid.Float64Range(0.1, 600).Draw(t, "over") * 1e9)}
		at := rapid.Float64Range(0, 2).Draw(t, "at") * r.Over.Seconds()
		x := min(at, r.Over.Seconds())
		want := r.From*x + (r.To-r.From)*x*x/2/r.Over.Seconds() + r.To*max(at-x, 0)
		got := float64(count(r, 0, time.Duration(at*1e9)))
		if math.Abs(got-want) > 1.001+want*1e-9 {
			t.Fatalf("%#v: %v operations after %v s, want %v", r, got, at, want)
		}
	})
}

func TestVeryLateDueTimesDoNotWrap(t *testing.T) {
	if d := Constant(1e-9).Due(1 << 40); d != math.MaxInt64 {
		t.Errorf("got %v", d)
	}
}

// Every operation is either run once or missed once, never early, never before
// the one in front of it.
func TestOpenAccountsForEveryOperation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "n")
		rate := rapid.Float64Range(1, 200).Draw(rt, "rate")
		inFlight := rapid.IntRange(1, 10).Draw(rt, "in flight")
		slow := time.Duration(rapid.IntRange(0, 500).Draw(rt, "slow")) * time.Millisecond
		within := time.Duration(rapid.IntRange(0, 300).Draw(rt, "within")) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			seen := make([]int, n)
			var mu sync.Mutex
			running, most := 0, 0
			begin := time.Now()
			mark := func(i int) { mu.Lock(); seen[i]++; mu.Unlock() }
			err := Open(t.Context(), Constant(rate), n, Options{
				InFlight: inFlight, SendWithin: within,
				Missed: func(i int, due time.Time) {
					mark(i)
					if within == 0 {
						t.Errorf("%d missed without a limit", i)
					}
				},
			}, func(ctx context.Context, i int, due time.Time) {
				mark(i)
				if want := begin.Add(Constant(rate).Due(i)); !due.Equal(want) {
					t.Errorf("%d due at %v, want %v", i, due, want)
				}
				late := time.Since(due)
				if late < 0 || within > 0 && late > within {
					t.Errorf("%d sent %v after it was due", i, late)
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(slow)
				mu.Lock()
				running--
				mu.Unlock()
			})
			if err != nil || most > inFlight {
				t.Errorf("error %v, %d in flight", err, most)
			}
			for i, k := range seen {
				if k != 1 {
					t.Errorf("operation %d happened %d times", i, k)
				}
			}
		})
	})
}

// The point of the open model: with room in flight, answers that take ten
// seconds change nothing about when operations are sent.
func TestSlowAnswersDoNotDelaySending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := Open(t.Context(), Constant(100), 1000, Options{}, func(_ context.Context, i int, due time.Time) {
			if late := time.Since(due); late != 0 {
				t.Errorf("%d sent %v late", i, late)
			}
			time.Sleep(10 * time.Second)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A pause longer than SendWithin loses what was due in it, and only that.
func TestMissedDuringAFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		thaw := begin.Add(3 * time.Second)
		var missed, sent atomic.Int64
		err := Open(t.Context(), Constant(10), 60, Options{
			InFlight: 1, SendWithin: time.Second, Missed: func(int, time.Time) { missed.Add(1) },
		}, func(_ context.Context, i int, _ time.Time) {
			sent.Add(1)
			if i == 10 { // at 1 s the server freezes for 2 s
				time.Sleep(time.Until(thaw))
			}
		})
		if err != nil || missed.Load()+sent.Load() != 60 || missed.Load() < 8 || missed.Load() > 10 {
			t.Errorf("error %v, %d missed, %d sent", err, missed.Load(), sent.Load())
		}
	})
}

func TestCancelMissesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1050*time.Millisecond, cancel)
		var missed, sent atomic.Int64
		err := Open(ctx, Constant(10), 1000, Options{Missed: func(int, time.Time) { missed.Add(1) }},
			func(ctx context.Context, _ int, _ time.Time) { sent.Add(1); <-ctx.Done() })
		if !errors.Is(err, context.Canceled) || sent.Load() != 11 || missed.Load() != 989 {
			t.Errorf("error %v, %d sent, %d missed", err, sent.Load(), missed.Load())
		}
	})
}

// steps is a clock that stands still until it is waited for.
type steps struct{ now time.Time }

func (s *steps) Now() time.Time { return s.now }
func (s *steps) Timer(d time.Duration) (<-chan time.Time, func()) {
	s.now = s.now.Add(d)
	c := make(chan time.Time, 1)
	c <- s.now
	return c, func() {}
}

func TestClockIsAParameter(t *testing.T) {
	clock := &steps{now: time.Unix(1000, 0)}
	if err := Open(t.Context(), Constant(1), 3600, Options{Clock: clock}, func(context.Context, int, time.Time) {}); err != nil {
		t.Fatal(err)
	}
	if got := clock.now.Unix(); got != 1000+3599 {
		t.Errorf("the clock shows %d", got)
	}
}

func TestSteps(t *testing.T) {
	s := Steps{{Rate: 10, For: time.Second}, {Rate: 100, For: 2 * time.Second}, {Rate: 1, For: time.Second}}
	for from, want := range map[time.Duration]int{0: 10, time.Second: 100, 2 * time.Second: 100, 3 * time.Second: 1, time.Minute: 1} {
		if got := count(s, from, from+time.Second); got != want {
			t.Errorf("%d operations in the second from %v, want %d", got, from, want)
		}
	}
}

// Arrivals that know nothing of each other: the mean is the rate, and as many as
// the exponential distribution says come within a mean gap.
func TestPoisson(t *testing.T) {
	const rate, n = 50.0, 20_000
	p := Poisson(rate, n, 1)
	if took := p.Due(n - 1).Seconds(); math.Abs(took*rate/n-1) > 0.03 {
		t.Errorf("%d arrivals at %v/s took %v s", n, rate, took)
	}
	within := 0
	for i := range n - 1 {
		if (p.Due(i+1) - p.Due(i)).Seconds() < 1/rate {
			within++
		}
	}
	if share := float64(within) / n; math.Abs(share-(1-1/math.E)) > 0.015 {
		t.Errorf("%.3f of the gaps are below the mean, want %.3f", share, 1-1/math.E)
	}
	if again := Poisson(rate, n, 1); again.Due(n-1) != p.Due(n-1) {
		t.Error("the same seed draws other times")
	}
	if other := Poisson(rate, n, 2); other.Due(n-1) == p.Due(n-1) {
		t.Error("another seed draws the same times")
	}
}

func TestCycles(t *testing.T) {
	c := Cycles{Each: Constant(10), Size: 3, Every: time.Second}
	for i, want := range []time.Duration{0, 100, 200, 1000, 1100, 1200, 2000} {
		if got := c.Due(i); got != want*time.Millisecond {
			t.Errorf("operation %d is due at %v, want %v ms", i, got, int(want))
		}
	}
}

// Clients send nothing while they wait: that is what a closed loop hides.
func TestClosedLoopStopsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var sent, slow atomic.Int64
		err := Closed(t.Context(), 0, Clients{N: 4, Think: 100 * time.Millisecond, For: 10 * time.Second}, func(_ context.Context, _ int, due time.Time) {
			sent.Add(1)
			if !due.Equal(time.Now()) {
				t.Error("due at another time than sent")
			}
			if at := time.Since(begin); at >= 3*time.Second && at < 6*time.Second {
				slow.Add(1)
				time.Sleep(6*time.Second - at) // the server stands still
			}
		})
		// 7 of 10 seconds at 40/s, less the ones that wait.
		if n := sent.Load(); err != nil || n < 270 || n > 290 || slow.Load() != 4 {
			t.Errorf("error %v, %d sent, %d of them slow", err, n, slow.Load())
		}
	})
}

func TestClosedLoopOfN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make([]atomic.Int64, 100)
		if err := Closed(t.Context(), 100, Clients{N: 7}, func(_ context.Context, i int, _ time.Time) {
			seen[i].Add(1)
			time.Sleep(time.Second)
		}); err != nil {
			t.Error(err)
		}
		for i := range seen {
			if n := seen[i].Load(); n != 1 {
				t.Errorf("operation %d happened %d times", i, n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2500*time.Millisecond, cancel)
		var n atomic.Int64
		err := Closed(ctx, 100, Clients{N: 2}, func(ctx context.Context, _ int, _ time.Time) { n.Add(1); time.Sleep(time.Second) })
		if !errors.Is(err, context.Canceled) || n.Load() != 6 {
			t.Errorf("cancelled: error %v, %d sent", err, n.Load())
		}
	})
}

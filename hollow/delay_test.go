package hollow

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestDelayHasItsQuantiles(t *testing.T) {
	d := Delay{Distribution: "lognormal", Median: 0.3, P99: 1.0}
	const n = 20000
	for seed := range int64(3) {
		all := make([]float64, n)
		for i := range all {
			all[i] = d.of(seed, fmt.Sprintf("pod-%d", i), drawStart).Seconds()
		}
		slices.Sort(all)
		for q, want := range map[float64]float64{0.5: 0.3, 0.99: 1.0} {
			if got := all[int(q*n)]; math.Abs(got-want)/want > 0.06 {
				t.Errorf("seed %d: quantile %v is %.3f, want %.3f", seed, q, got, want)
			}
		}
	}
}

func TestDelayFollowsSeedKeyAndDraw(t *testing.T) {
	d := defaultStartDelay
	a := d.of(1, "uid", drawStart)
	if d.of(1, "uid", drawStart) != a {
		t.Error("the same seed, pod and draw gave two delays")
	}
	for _, b := range []time.Duration{d.of(2, "uid", drawStart), d.of(1, "uie", drawStart), d.of(1, "uid", drawStop)} {
		if a == b {
			t.Error("another seed, pod or draw gave the same delay")
		}
	}
	if got := (Delay{Distribution: "constant", Median: 0.5}).of(1, "x", 0); got != 500*time.Millisecond {
		t.Errorf("constant: %v", got)
	}
	if got := (Delay{Distribution: "none"}).of(1, "x", 0); got != 0 {
		t.Errorf("none: %v", got)
	}
}

func TestTimersFireInOrder(t *testing.T) {
	q := newTimers(nil)
	base := time.Unix(1000, 0)
	r := rand.New(rand.NewPCG(1, 2))
	const n = 5000
	for range n {
		q.add(timer{at: base.Add(time.Duration(r.IntN(100000)) * time.Microsecond)})
	}
	last := base
	for i := range n {
		tm, due, _ := q.next(base.Add(time.Second))
		if !due || tm.at.Before(last) {
			t.Fatalf("timer %d: due %v at %v after %v", i, due, tm.at, last)
		}
		last = tm.at
	}
	if _, due, _ := q.next(base.Add(time.Second)); due {
		t.Error("a timer too many")
	}
}

func TestTimersWakeForAnEarlierOne(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fired := make(chan time.Duration, 2)
	q := newTimers(func(_ timer, late time.Duration) { fired <- late })
	done := make(chan struct{})
	go func() { defer close(done); q.run(ctx) }()
	q.add(timer{at: time.Now().Add(time.Hour)})
	q.add(timer{at: time.Now().Add(10 * time.Millisecond)})
	select {
	case late := <-fired:
		if late < 0 {
			t.Errorf("fired %v early", -late)
		}
	case <-time.After(5 * time.Second):
		t.Error("did not fire")
	}
	cancel()
	<-done
}

func BenchmarkDelay(b *testing.B) {
	for b.Loop() {
		defaultStartDelay.of(1, testUID, drawStart)
	}
}

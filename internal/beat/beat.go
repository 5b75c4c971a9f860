// Package beat lets what looks at something regularly do so together.
//
// A process that waits is woken up for each of its tickers, and waking up costs it
// more than most of what it then does, for Go's scheduler and the kernel's work each
// time: some 50 µs of CPU on a slow virtual machine (docs/design/002-observing.md,
// n = 3 in turns). Tickers of this package tick at
// whole multiples of their interval on one clock, so that all of one interval, and of
// its multiples, tick at once.
package beat

import (
	"sync"
	"time"
)

// origin is the clock's zero. It is monotonic: what sets the machine's clock moves no
// beat.
var origin = time.Now()

// A Ticker ticks on the beat. Like time.Ticker it drops ticks for who is slow.
type Ticker struct {
	C <-chan time.Time // the time of each tick

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// NewTicker returns a running ticker of that interval, which must be positive. Its
// first tick comes with the next beat: within the interval, not at its end.
func NewTicker(interval time.Duration) *Ticker {
	c := make(chan time.Time, 1)
	t := &Ticker{C: c}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(rest(interval, time.Since(origin)), func() {
		select {
		case c <- time.Now():
		default:
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.stopped {
			t.timer.Reset(rest(interval, time.Since(origin)))
		}
	})
	return t
}

// Stop ends the ticks. It does not close C.
func (t *Ticker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.timer.Stop()
}

// rest is how long it is to the next beat, more than nothing and an interval at most.
func rest(interval, at time.Duration) time.Duration { return interval - at%interval }

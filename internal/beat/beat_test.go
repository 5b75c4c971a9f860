package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRest(t *testing.T) {
	for _, c := range []struct{ interval, at, want time.Duration }{
		{250, 0, 250}, {250, 1, 249}, {250, 249, 1}, {250, 250, 250}, {500, 1250, 250},
	} {
		if got := rest(c.interval, c.at); got != c.want {
			t.Errorf("rest(%d, %d) = %d, want %d", c.interval, c.at, got, c.want)
		}
	}
}

// Who begins at any moment ticks with the others.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin = time.Now()
		first := NewTicker(250 * time.Millisecond)
		defer first.Stop()
		time.Sleep(130 * time.Millisecond)
		second := NewTicker(500 * time.Millisecond)
		defer second.Stop()
		ticks := map[time.Duration]int{}
		for len(ticks) < 4 {
			select {
			case at := <-first.C:
				ticks[at.Sub(origin)]++
			case at := <-second.C:
				ticks[at.Sub(origin)] += 10
			}
		}
		for ms, want := range map[int]int{250: 1, 500: 11, 750: 1} {
			if got := ticks[time.Duration(ms)*time.Millisecond]; got != want {
				t.Errorf("at %d ms %d ticks, want %d (tens are of the slower)", ms, got, want)
			}
		}
	})
}

// A tick that nobody takes is dropped, and the next one comes when it is due.
func TestSlowTaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin = time.Now()
		tick := NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		time.Sleep(450 * time.Millisecond)
		if at := (<-tick.C).Sub(origin); at != 100*time.Millisecond {
			t.Errorf("the tick that was kept is of %v, want the first", at)
		}
		if at := (<-tick.C).Sub(origin); at != 500*time.Millisecond {
			t.Errorf("the next is of %v, want 500ms", at)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin = time.Now()
		tick := NewTicker(100 * time.Millisecond)
		time.Sleep(150 * time.Millisecond)
		<-tick.C
		tick.Stop()
		time.Sleep(time.Second)
		select {
		case at := <-tick.C:
			t.Errorf("it ticked at %v after it was stopped", at.Sub(origin))
		default:
		}
	})
}

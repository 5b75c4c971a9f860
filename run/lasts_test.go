package run

import (
	"testing"
	"time"
)

func TestLasts(t *testing.T) {
	for _, c := range []struct {
		state State
		want  time.Duration
	}{
		{State{Total: 1500, Running: 150}, 80 * time.Second},
		{State{Total: 1500, Running: 1500}, 8 * time.Second},
		{State{Total: 100, Bound: 50, Claims: true}, 16 * time.Second},
		{State{Total: 100, Bound: 50, EndsBound: true}, 16 * time.Second},
		{State{Total: 1500, Created: 100}, 0}, // nothing has come yet
		{State{Running: 10}, 0},               // nobody knows of how many
		{State{Total: 5, Running: 10}, 0},     // pods of another phase
	} {
		if got := c.state.lasts(8 * time.Second); got != c.want {
			t.Errorf("%+v: %v, want %v", c.state, got, c.want)
		}
	}
}

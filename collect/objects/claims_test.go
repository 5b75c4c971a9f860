package objects

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestClaimsAreCounted(t *testing.T) {
	c := newClaims("run")
	at := time.Unix(1, 0)
	see := func(uid, run, phase, state, change string) {
		s := &seen{state: []byte(state)}
		s.uid, s.labelRun, s.labelPhase = []byte(uid), []byte(run), []byte(phase)
		at = at.Add(time.Second)
		c.observe(at, s, change)
	}
	see("old", "run", "batch", "Pending", changeExisting)
	see("theirs", "other", "batch", "Bound", changeAdded)
	see("a", "run", "batch", "Pending", changeAdded)
	see("b", "run", "more", "Pending", changeAdded)
	see("a", "run", "batch", "Bound", changeAdded)
	see("a", "run", "batch", "Bound", changeAdded)
	if got := c.State(); got.Phases["batch"] != (Counts{Created: 1, Bound: 1}) || got.Total != (Counts{Created: 2, Bound: 1}) || !got.LastProgress.Equal(at.Add(-time.Second)) {
		t.Errorf("%+v", got)
	}
	if err := c.Wait(t.Context(), "batch", Bound, 1); err != nil {
		t.Error(err)
	}
	if err := c.Wait(t.Context(), "batch", Running, 1); err == nil {
		t.Error("claims do not run")
	}
	short, cancel := context.WithCancelCause(t.Context())
	late := errors.New("late")
	waited := make(chan error)
	go func() { waited <- c.Wait(short, "", Bound, 2) }()
	cancel(late)
	if err := <-waited; !errors.Is(err, late) {
		t.Errorf("%v", err)
	}
	go func() { waited <- c.Wait(t.Context(), "", Deleted, 2) }()
	see("b", "run", "more", "Pending", changeDeleted)
	c.gone(at, "a")
	c.gone(at, "a")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if n := c.State().Total.Deleted; n != 2 {
		t.Errorf("%d deleted", n)
	}
	go func() { waited <- c.Wait(t.Context(), "", Bound, 2) }()
	c.over()
	c.over()
	if err := <-waited; !errors.Is(err, ErrClaimsNotWatched) {
		t.Errorf("%v", err)
	}
}

package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/compare"
)

// OverheadOptions say what to build up, and how often to look.
type OverheadOptions struct {
	// Plan has the stacks: layers from the bottom up, then the others. Windows are
	// added to it.
	Plan compare.OverheadPlan
	// Settle is how long a stack is left alone before its window, Window how long
	// that lasts.
	Settle, Window time.Duration
	// Out is the folder of the recording that goes on meanwhile.
	Out string
	// Stand builds a stack, calls while as it stands, and takes it down.
	Stand func(ctx context.Context, s compare.Stack, while func(ctx context.Context) error) error
	// Pause freezes what stands. It is not asked for where no stack is paused.
	Pause func(ctx context.Context) error
	// Tell is told of each stack that is about to be built, with its number.
	Tell func(s compare.Stack, round, n, of int)
	Now  func() time.Time
}

// Overhead looks at each stack once a round. Odd rounds go up the layers and
// then to the whole, even ones the other way, so that in two of them what drifts
// straight with time cancels out, and neighbours in the stack are neighbours in
// time. What was measured is in Out after each window, also when an error ends it.
func Overhead(ctx context.Context, o OverheadOptions) (*compare.OverheadPlan, error) {
	p := o.Plan
	p.Schema = compare.OverheadSchema
	paused := map[string]compare.Stack{}
	var stacks []compare.Stack
	for _, s := range p.Stacks {
		if s.Role == compare.Paused {
			paused[s.Of] = s // in the place of what is frozen, right after it
			continue
		}
		stacks = append(stacks, s)
	}
	look := func(ctx context.Context, s compare.Stack, round int, settle time.Duration) error {
		if err := rest(ctx, settle); err != nil {
			return err
		}
		w := compare.OverheadWindow{Stack: s.Name, Round: round, Start: o.Now()}
		if err := rest(ctx, o.Window); err != nil {
			return err
		}
		w.End = o.Now()
		p.Windows = append(p.Windows, w)
		return p.Write(o.Out)
	}
	n := 0
	for round := 1; round <= p.Rounds; round++ {
		for _, s := range stacks {
			n++
			o.Tell(s, round, n, len(stacks)*p.Rounds)
			err := o.Stand(ctx, s, func(ctx context.Context) error {
				if err := look(ctx, s, round, o.Settle); err != nil {
					return err
				}
				frozen, ok := paused[s.Name]
				if !ok {
					return nil
				}
				if err := o.Pause(ctx); err != nil {
					return err
				}
				return look(ctx, frozen, round, min(o.Settle, time.Second))
			})
			if err != nil {
				return &p, fmt.Errorf("%s, round %d: %w", s.Name, round, err)
			}
		}
		slices.Reverse(stacks)
	}
	return &p, nil
}

// rest does nothing for a while.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

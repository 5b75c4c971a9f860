package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/collect/objects"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// perStep performs one phase of the experiment.
func (s *session) perStep(ctx context.Context, p experiment.Step) error {
	s.enter(p.Name, record.PhaseKind(p.Kind))
	s.exact = isJudged(p)
	if s.metrics != nil && s.exact {
		s.metrics.Judged(true)
		// The end of the phase before has just been scraped.
		if err := s.metrics.Refresh(ctx); err != nil {
			return err
		}
	}
	for _, name := range names(p) {
		if err := s.startActors(ctx, name); err != nil {
			return err
		}
	}
	profiled := p.Phase
	for _, part := range p.Parallel {
		if profiled = part.Phase; part.Kind == experiment.KindSteady {
			break // the profiles of a group are those of its first steady phase
		}
	}
	stopProfiles := s.profilePhase(ctx, profiled)
	var err error
	if p.Parallel != nil {
		err = s.together(ctx, p.Parallel)
	} else {
		err = s.act(ctx, p)
	}
	stopProfiles()
	for _, name := range names(p) {
		err = errors.Join(err, s.stopActors(ctx, name))
	}
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx)) // how to end the phase depends on why
	}
	return errors.Join(err, s.leave(ctx))
}

// names are those of a step, or of what it consists of.
func names(p experiment.Step) []string {
	if p.Parallel == nil {
		return []string{p.Name}
	}
	var all []string
	for _, part := range p.Parallel {
		all = append(all, part.Name)
	}
	return all
}

// longSettle is from when on an idle stretch is there to be looked at.
const longSettle = 10 * time.Second

// isJudged says whether sums over a phase should be exact, which takes a scrape at
// each of its edges: not where it only leads to another.
func isJudged(p experiment.Step) bool {
	return p.Kind == experiment.KindSteady || p.Settle != nil && p.Settle.For >= longSettle
}

// together performs phases that begin at the same time, each recorded as a
// phase of its own. The first that fails ends the others.
func (s *session) together(ctx context.Context, steps []experiment.Step) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	parts := make([]record.Phase, len(steps))
	errs := make([]error, len(steps))
	aside, over := context.WithCancelCause(ctx)
	defer over(nil)
	var running, beside sync.WaitGroup
	for i, p := range steps {
		parts[i] = record.Phase{Name: p.Name, Kind: record.PhaseKind(p.Kind), Start: s.o.Now()}
		group, within := &running, ctx
		if p.Beside {
			group, within = &beside, aside
		}
		group.Go(func() {
			if err := s.act(within, p); err != nil && !errors.Is(err, errOver) {
				errs[i] = fmt.Errorf("phase %s: %w", p.Name, err)
				fail(errs[i])
			}
			parts[i].End = s.o.Now()
		})
	}
	running.Wait()
	over(errOver)
	beside.Wait()
	s.mu.Lock()
	s.parts = parts
	s.mu.Unlock()
	return errors.Join(errs...)
}

// errOver ends what goes on beside phases that are over.
var errOver = errors.New("the others are over")

// act does what a phase is there for.
func (s *session) act(ctx context.Context, p experiment.Step) error {
	switch {
	case p.Settle != nil && p.Settle.Paused:
		return s.frozen(ctx, p.Name, p.Settle.For)
	case p.Settle != nil:
		return pause(ctx, p.Settle.For)
	case p.Wait != nil: // a wait of its own
		return s.wait(ctx, p.Name, *p.Until, p.Until.For == experiment.StateBound, s.all(p.Until.For))
	}
	claims := p.Claims > 0 || p.ClaimsLess > 0
	added, removed := s.ask(p)
	if err := s.offer(ctx, p.Phase); err != nil || p.Until == nil {
		return err
	}
	want := added
	if p.Until.For == experiment.StateGone {
		want = removed
	}
	return s.wait(ctx, p.Name, *p.Until, claims, want)
}

// everyPhase stands for the pods of all phases together.
const everyPhase = ""

// asked is how many pods phases have asked for, by phase, and under everyPhase
// how many they gave up again: which of a Deployment's pods go is not ours to
// say. The numbers only grow, as the watch's counts do.
type asked map[string]int

// ask notes the pods that a step asks for and gives up, and returns what to wait
// for until they have come, and until they have gone.
func (s *session) ask(p experiment.Step) (added, removed asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, of, adds, removes := s.asked, p.Name, p.Adds, p.Removes
	claims := p.Claims > 0 || p.ClaimsLess > 0
	if claims {
		// Claims are told apart by their labels, which are those of what they came of.
		a, of, adds, removes = s.askedClaims, p.Origin(), p.Claims, p.ClaimsLess
	}
	if p.PodClaims > 0 {
		s.askedClaims[p.Origin()] += p.PodClaims
	}
	a[everyPhase] += removes
	a[of] += adds
	switch {
	case adds > 0:
		s.of, s.ofClaims = of, claims
	case removes > 0:
		s.of, s.ofClaims = everyPhase, claims
	}
	return asked{of: a[of]}, asked{everyPhase: a[everyPhase]}
}

// all is what a wait of its own waits for.
func (s *session) all(state experiment.State) asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.asked)
	if state == experiment.StateBound {
		all = maps.Clone(s.askedClaims)
	}
	if state == experiment.StateGone {
		return asked{everyPhase: all[everyPhase]}
	}
	delete(all, everyPhase)
	return all
}

// offer lets the load generator send a phase's operations.
func (s *session) offer(ctx context.Context, p experiment.Phase) error {
	sum, err := s.worker.Run(ctx, p, func(op record.Operation) {
		if p.Beside && op.SentMicros == 0 && context.Cause(ctx) != nil {
			return // it was to end before this came due
		}
		s.w.Operation(op)
		if op.Pods > 0 { // only what asks for pods is where pods come from
			s.objects.Submitted(op)
		}
	})
	if err != nil {
		return err
	}
	if text := sum.LatencyText(); text != "" && sum.Planned > 1 { // one operation is no distribution
		s.note("%s: %s", p.Name, text)
	}
	if hides := sum.HidesStalls(); hides != "" {
		s.note("%s", hides)
		if err := s.w.Update(func(m *record.Meta) { m.Warnings = append(m.Warnings, hides) }); err != nil {
			return err
		}
	}
	if sum.Missed > 0 {
		s.note("%d of %d operations were not sent in time", sum.Missed, sum.Planned)
	}
	if sum.Failed > 0 {
		s.note("%d of %d operations failed; the first: %s", sum.Failed, sum.Planned, sum.FirstError)
	}
	if sum.Failed == sum.Planned && sum.Planned > 0 {
		return fmt.Errorf("all %d operations failed; the first: %s", sum.Failed, sum.FirstError)
	}
	return nil
}

// wait lasts until the pods, or claims, of phases are in a state. Running out of
// time ends the wait, not the run: pods that hang are what a diagnosis is for.
func (s *session) wait(ctx context.Context, name string, w experiment.Wait, claims bool, want asked) error {
	limit, cancel := context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("not within %v", w.Timeout))
	defer cancel()
	for _, phase := range slices.Sorted(maps.Keys(want)) {
		n := want[phase]
		err := s.waitMoving(limit, claims, phase, stageOf[w.For], n, w.Stall)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			at := s.counts(claims, phase)
			short := fmt.Errorf("phase %s: waiting for %d pods to be %s: %w (%d created, %d scheduled, %d running, %d gone)",
				name, n, w.For, err, at.Created, at.Bound, at.Running, at.Deleted)
			if claims {
				short = fmt.Errorf("phase %s: waiting for %d claims to be %s: %w (%d created, %d bound, %d gone)",
					name, n, w.For, err, at.Created, at.Bound, at.Deleted)
			}
			s.note("%v", short)
			s.mu.Lock()
			if claims && w.For == experiment.StateBound && s.judges(experiment.ClaimBound) {
				s.judged = short // that they were too slow is the objective's to say
			} else {
				s.short = append(s.short, short)
			}
			s.mu.Unlock()
			if err := s.w.Update(func(m *record.Meta) { m.Warnings = append(m.Warnings, short.Error()) }); err != nil {
				return err
			}
			return nil
		}
	}
	return nil
}

// judges says whether the experiment has an objective about something.
func (s *session) judges(i experiment.Indicator) bool {
	return slices.ContainsFunc(s.o.Experiment.Objectives, func(o experiment.Objective) bool { return o.Indicator == i })
}

// leaveOut notes the phases that a wait for claims leaves out: they build on
// what did not come.
func (s *session) leaveOut(rest []experiment.Step) error {
	pods, claims := 0, 0
	var names []string
	for _, p := range experiment.Flat(rest) {
		names = append(names, p.Name)
		if p.Kind == experiment.KindSteady {
			pods, claims = pods+p.Adds, claims+p.Claims+p.PodClaims
		}
	}
	text := fmt.Sprintf("left out, because they build on claims that were not bound: %s", strings.Join(names, ", "))
	s.note("%s", text)
	return s.w.Update(func(m *record.Meta) {
		m.Warnings = append(m.Warnings, text)
		m.Workload.ExpectedPods -= pods
		m.Workload.ExpectedClaims -= claims
	})
}

// awaited is what can be waited for: pods or claims.
type awaited interface {
	State() objects.State
	Wait(ctx context.Context, phase string, what objects.Stage, n int) error
}

func (s *session) awaited(claims bool) awaited {
	if claims && s.claims != nil {
		return s.claims
	}
	return s.objects
}

// counts are the pods, or claims, of a phase, or of every phase, by how far they
// have come.
func (s *session) counts(claims bool, phase string) objects.Counts {
	st := s.awaited(claims).State()
	if phase == everyPhase {
		return st.Total
	}
	return st.Phases[phase]
}

// stageOf names the states that a wait may wait for in the collector's words.
var stageOf = map[experiment.State]objects.Stage{
	experiment.StateCreated:   objects.Created,
	experiment.StateScheduled: objects.Bound,
	experiment.StateRunning:   objects.Running,
	experiment.StateReady:     objects.Ready,
	experiment.StateBound:     objects.Bound,
	experiment.StateGone:      objects.Deleted,
}

// waitMoving waits for n pods, or claims, of a phase to reach a stage, and gives
// up when nothing moved for as long as stall.
func (s *session) waitMoving(ctx context.Context, claims bool, phase string, stage objects.Stage, n int, stall time.Duration) error {
	on := s.awaited(claims)
	if stall <= 0 {
		return on.Wait(ctx, phase, stage, n)
	}
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	began := time.Now()
	go func() {
		tick := time.NewTicker(min(stall/4, time.Second))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				last := on.State().LastProgress
				if last.Before(began) {
					last = began
				}
				if time.Since(last) > stall {
					give(fmt.Errorf("nothing moved for %v", stall))
					return
				}
			}
		}
	}()
	return on.Wait(ctx, phase, stage, n)
}

// profilePhase takes CPU profiles over a steady phase, and heap and goroutines
// at its end. The returned function ends that.
func (s *session) profilePhase(ctx context.Context, p experiment.Phase) (stop func()) {
	if s.profile == nil || !s.o.Experiment.Observe.Profile || p.Kind != experiment.KindSteady {
		return func() {}
	}
	window, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Whatever cannot be profiled becomes a gap of the recording; the
		// phase goes on.
		_ = s.profile.Capture(window, p.Name, 0)
	}()
	return func() {
		end()
		<-done
		_ = s.profile.Snapshot(ctx, p.Name)
	}
}

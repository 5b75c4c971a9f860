package experiment

// A Step is one thing to do, recorded as one phase.
type Step struct {
	Phase
	// Until is the wait that ends the step: the action's own, or the wait
	// phase that was folded into it. Nil: the step ends when its last operation
	// was answered. It is set for a wait phase that stands alone too.
	Until *Wait
	// Pods that the step adds; negative for those that it takes away.
	Pods int
	// Total is how many pods should be there when the step is over.
	Total int
}

// Plan lists the steps of the experiment in order. A wait phase that follows a
// load of the same kind is part of that step, so that the measured stretch
// ends when its pods have arrived; a wait of another kind stands alone.
func (e *Experiment) Plan() []Step {
	type made struct{ objects, pods int }
	live := map[string]made{}
	var steps []Step
	total := 0
	for _, p := range e.Phases {
		s := Step{Phase: p}
		switch {
		case p.Create != nil:
			live[p.Name] = made{p.Create.Count, p.Create.pods()}
			s.Pods, s.Until = p.Create.pods(), p.Create.Wait
		case p.Scale != nil:
			m := live[p.Scale.Phase]
			now := m.objects * p.Scale.Replicas
			s.Pods, s.Until = now-m.pods, p.Scale.Wait
			live[p.Scale.Phase] = made{m.objects, now}
		case p.Delete != nil:
			s.Pods, s.Until = -live[p.Delete.Phase].pods, p.Delete.Wait
			delete(live, p.Delete.Phase)
		case p.Wait != nil:
			s.Until = p.Wait
			if last := len(steps) - 1; last >= 0 && steps[last].Until == nil && steps[last].Settle == nil && steps[last].Kind == p.Kind {
				steps[last].Until = p.Wait
				continue
			}
		}
		total += s.Pods
		s.Total = total
		steps = append(steps, s)
	}
	return steps
}

// ExpectedPods is how many pods the steady phases ask for.
func (e *Experiment) ExpectedPods() int {
	n := 0
	for _, s := range e.Plan() {
		if s.Kind == KindSteady {
			n += max(s.Pods, 0)
		}
	}
	return n
}

// PeakPods is the largest number of pods that should be there at one time.
func (e *Experiment) PeakPods() int {
	peak := 0
	for _, s := range e.Plan() {
		peak = max(peak, s.Total)
	}
	return peak
}

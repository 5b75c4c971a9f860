package experiment

import (
	"math"
	"slices"
	"time"
)

// A Step is one thing to do, recorded as one phase.
type Step struct {
	Phase
	// Until is the wait that ends the step: the action's own, or the wait
	// phase that was folded into it. Nil: the step ends when its last operation
	// was answered. It is set for a wait phase that stands alone too.
	Until *Wait
	// Operations that the step sends; 0 where closed clients go on for a time.
	Operations int
	// Adds and Removes are the pods that the step asks for and gives up. A
	// rolling update does both.
	Adds, Removes int
	// Total is how many pods should be there when the step is over.
	Total int
	// Claims and ClaimsLess are the claims that the step asks for and gives up.
	Claims, ClaimsLess int
	// PodClaims are those that controllers make for the step's pods: of a
	// StatefulSet's templates, and of ephemeral volumes.
	PodClaims int
	// Parallel are the steps that begin together; the step is nothing else then.
	Parallel []Step
}

// Plan lists the steps of the experiment in order. A wait phase that follows a
// load of the same kind is part of that step, so that the measured stretch
// ends when its pods have arrived; a wait of another kind stands alone.
func (e *Experiment) Plan() []Step {
	l := ledger{nodes: e.Cluster.Nodes.All(), live: map[string]*group{}}
	var steps []Step
	for _, p := range e.Phases {
		if p.Wait != nil {
			last := len(steps) - 1
			if last >= 0 && steps[last].Until == nil && steps[last].Settle == nil && steps[last].Parallel == nil && steps[last].Kind == p.Kind &&
				(p.Wait.For == StateBound) == (steps[last].Claims > 0) {
				steps[last].Until = p.Wait
				continue
			}
		}
		steps = append(steps, l.step(p))
	}
	return steps
}

// ExpectedPods is how many pods the steady phases ask for.
func (e *Experiment) ExpectedPods() int {
	n := 0
	for _, s := range flat(e.Plan()) {
		if s.Kind == KindSteady {
			n += s.Adds
		}
	}
	return n
}

// ExpectedClaims is how many claims the steady phases ask for, those included
// that come with their pods.
func (e *Experiment) ExpectedClaims() int {
	own, controllers := e.claimsBySource()
	return own + controllers
}

// claimsBySource are those that the load itself asks for in steady phases, and
// those that controllers make there.
func (e *Experiment) claimsBySource() (own, controllers int) {
	for _, s := range flat(e.Plan()) {
		if s.Kind == KindSteady {
			own, controllers = own+s.Claims, controllers+s.PodClaims
		}
	}
	return own, controllers
}

// MakesClaims reports whether any phase does.
func (e *Experiment) MakesClaims() bool {
	return slices.ContainsFunc(flat(e.Plan()), func(s Step) bool { return s.Claims+s.PodClaims > 0 })
}

// PeakPods is the largest number of pods that should be there at one time.
func (e *Experiment) PeakPods() int {
	peak := 0
	for _, s := range e.Plan() {
		peak = max(peak, s.Total)
	}
	return peak
}

// flat is the steps with those of parallel groups in place of the group.
func flat(steps []Step) []Step {
	var all []Step
	for _, s := range steps {
		if s.Parallel != nil {
			all = append(all, s.Parallel...)
		} else {
			all = append(all, s)
		}
	}
	return all
}

// Flat lists the steps that are recorded as phases.
func Flat(steps []Step) []Step { return flat(steps) }

// ledger keeps account of what phases have put on the cluster.
type ledger struct {
	nodes int
	live  map[string]*group // by the phase that made them
	total int
}

// group is what one phase has made.
type group struct {
	made        *Objects
	count       int // objects alive
	each        int // pods of one object
	claims      int // of one object
	keeps, owns int // claims that come with a pod: see claimsOfPods
	most        int // pods that one object has had
	cpu, memory float64
	next        int // index of the next object
}

func (g *group) pods() int { return g.count * g.each }

func newGroup(o *Objects, nodes int) *group {
	g := &group{made: o, count: o.Count, each: o.PodsEach(nodes), claims: o.claimsEach(), next: o.Count}
	g.keeps, g.owns = o.claimsOfPods()
	g.most = g.each
	g.cpu, g.memory = o.requests()
	return g
}

// step is what a phase does to what is there. A phase that works on objects
// that are not there does nothing; the checks report it.
func (l *ledger) step(p Phase) Step {
	s := Step{Phase: p, Until: p.wait()}
	if p.Wait != nil {
		s.Until = p.Wait
	}
	for _, inner := range p.Parallel {
		one := l.step(inner)
		s.Adds, s.Removes, s.Operations = s.Adds+one.Adds, s.Removes+one.Removes, s.Operations+one.Operations
		s.Claims, s.ClaimsLess, s.PodClaims = s.Claims+one.Claims, s.ClaimsLess+one.ClaimsLess, s.PodClaims+one.PodClaims
		s.Parallel = append(s.Parallel, one)
	}
	g := l.live[p.target()]
	switch o := p.Makes(); {
	case o != nil:
		made := newGroup(o, l.nodes)
		l.live[p.Name] = made
		s.Operations, s.Adds, s.Claims = o.Count, made.pods(), made.count*made.claims
		s.PodClaims = s.Adds * (made.keeps + made.owns)
	case p.Read != nil:
		s.Operations = p.Read.Operations()
	case g == nil:
	case p.Apply != nil:
		s.Operations = orAll(p.Apply.Count, g.count)
	case p.Patch != nil:
		s.Operations = orAll(p.Patch.Count, g.count)
	case p.Scale != nil:
		s.Operations = g.count
		change := (p.Scale.Replicas - g.each) * g.count
		s.Adds, s.Removes = max(change, 0), max(-change, 0)
		s.PodClaims = s.Adds*g.owns + max(p.Scale.Replicas-g.most, 0)*g.count*g.keeps
		g.each, g.most = p.Scale.Replicas, max(g.most, p.Scale.Replicas)
	case p.Update != nil:
		s.Operations, s.Adds, s.Removes = g.count, g.pods(), g.pods()
		s.PodClaims = s.Adds * g.owns
	case p.Churn != nil:
		batch, cycles := p.Churn.Batches(g.count)
		s.Operations = 2 * batch * cycles
		s.Adds, s.Removes = batch*cycles*g.each, batch*cycles*g.each
		s.Claims, s.ClaimsLess = batch*cycles*g.claims, batch*cycles*g.claims
		s.PodClaims = s.Adds * (g.keeps + g.owns)
		g.next += batch * cycles
	case p.Delete != nil:
		s.Operations, s.Removes, s.ClaimsLess = g.count, g.pods(), g.count*g.claims
		delete(l.live, p.Delete.Phase)
	}
	if p.Beside { // how far it comes is not known, and nobody waits for it
		s.Adds, s.Removes, s.PodClaims = 0, 0, 0
	}
	if p.Parallel == nil {
		l.total += s.Adds - s.Removes
	}
	s.Total = l.total
	return s
}

func orAll(count, all int) int {
	if count > 0 {
		return count
	}
	return all
}

// Operations is how many requests the phase sends; 0 where closed clients go
// on for a time.
func (r *Read) Operations() int {
	if r.Count > 0 || r.Clients > 0 {
		return r.Count
	}
	return r.Rate.Operations(r.For)
}

// Batches is how many of so many objects one cycle replaces, and how many
// cycles there are.
func (c *Churn) Batches(objects int) (batch, cycles int) {
	batch = 1
	if c.Percent > 0 {
		batch = max(1, int(math.Round(c.Percent/100*float64(objects))))
	}
	switch {
	case c.Cycles > 0:
		return batch, c.Cycles
	case c.Every > 0:
		return batch, int((c.For + c.Every - 1) / c.Every)
	}
	return batch, max(1, c.Rate.Operations(c.For)/(2*batch))
}

// Operations is how many operations come due in d; of Poisson arrivals the
// mean.
func (r Rate) Operations(d time.Duration) int {
	if r.Burst || r.IsZero() {
		return 0
	}
	n, at := 0.0, time.Duration(0)
	switch {
	case r.Over > 0:
		x := min(d, r.Over).Seconds()
		n = r.From*x + (r.PerSecond-r.From)*x*x/2/r.Over.Seconds()
		at = r.Over
	case len(r.Steps) > 0:
		for _, s := range r.Steps {
			n += s.PerSecond * min(max(d-at, 0), s.For).Seconds()
			at += s.For
		}
	}
	n += r.last() * max(d-at, 0).Seconds()
	return int(math.Ceil(math.Min(n, maxOperations) - 1e-9))
}

// maxOperations is beyond what any phase may send.
const maxOperations = 1e9

// last is the rate that goes on at the end.
func (r Rate) last() float64 {
	if n := len(r.Steps); n > 0 {
		return r.Steps[n-1].PerSecond
	}
	return r.PerSecond
}

// seconds is how long n operations take to come due; of Poisson arrivals the
// mean.
func (r Rate) seconds(n int) float64 {
	left, t := float64(n-1), 0.0
	if r.Over > 0 {
		t = r.Over.Seconds()
		left -= (r.From + r.PerSecond) / 2 * t
		if left <= 0 {
			return t
		}
	}
	for _, s := range r.Steps {
		if due := s.PerSecond * s.For.Seconds(); left > due {
			left -= due
			t += s.For.Seconds()
			continue
		}
		return t + max(left, 0)/s.PerSecond
	}
	if last := r.last(); !r.Burst && last > 0 && left > 0 {
		return t + left/last
	}
	return t
}

// Least is the least time that the step takes: until its last operation is due,
// or its time is over. Waiting comes on top.
func (s Step) Least() time.Duration {
	least := 0.0
	for _, inner := range s.Parallel {
		if inner.Beside {
			continue
		}
		least = max(least, inner.Least().Seconds())
	}
	switch {
	case s.Settle != nil:
		least = s.Settle.For.Seconds()
	case s.Read != nil && s.Read.For > 0:
		least = s.Read.For.Seconds()
	case s.Churn != nil && s.Churn.Every > 0:
		cycles := s.Churn.Cycles
		if cycles == 0 {
			cycles = int((s.Churn.For + s.Churn.Every - 1) / s.Churn.Every)
		}
		least = s.Churn.Every.Seconds()*float64(cycles-1) + s.Churn.Rate.seconds(s.Operations/max(cycles, 1))
	default:
		if p := s.pacing(); p != nil && p.Clients == 0 && s.Operations > 0 {
			least = p.Rate.seconds(s.Operations)
		}
	}
	return time.Duration(math.Min(least, 1e9) * float64(time.Second))
}

package experiment

import "math"

// Shorten lets the steady phases ask for about so many pods in all, if that is
// fewer than they do, with everything else as it was: a rate shows long before the
// last pod of a large load has come. It reports whether it did; an experiment in
// which other phases depend on how many there are is left alone.
func (e *Experiment) Shorten(pods int) bool {
	all := e.ExpectedPods()
	if all <= pods {
		return false
	}
	steady := map[string]bool{}
	for _, p := range e.Phases {
		if p.Create != nil && p.Kind == KindSteady {
			steady[p.Name] = true
		}
	}
	for _, p := range e.Phases {
		switch {
		case p.Create != nil, p.Wait != nil, p.Settle != nil, p.Delete != nil:
		default:
			return false
		}
	}
	share := float64(pods) / float64(all)
	fewer := func(n int) int { return max(1, int(math.Ceil(float64(n)*share))) }
	for i := range e.Phases {
		p := &e.Phases[i]
		if !steady[p.Name] {
			continue
		}
		c := *p.Create
		if c.Kind == Deployment && c.Replicas > c.Count {
			c.Replicas = fewer(c.Replicas)
		} else {
			c.Count = fewer(c.Count)
		}
		p.Create = &c
	}
	return e.ExpectedPods() < all
}

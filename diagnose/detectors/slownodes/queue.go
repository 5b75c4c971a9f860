package slownodes

import (
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

// even is by how much the gaps between pods of a node may vary, as a share of
// their mean, to come from one server: gaps of pods that start side by side vary
// as chance has it (1 and more).
const even = 0.6

// steady is by how much they vary where it is a server of the node's own, and not the
// CPU of a busy machine for which all of them wait: that comes and goes as others do.
const steady = 0.25

// longer is by how much a pod that found its node idle may take longer than the
// gap between pods that did not: where one at a time is worked on, both are what
// one takes. Pods that come evenly spaced, and all take long, go evenly spaced too.
const longer = 1.5

// A server is a node that works on one pod at a time.
type server struct {
	each  float64 // seconds
	cv    float64
	most  int // pods of a node
	nodes int
}

// oneAfterAnother says whether pods that were bound to a node at about the same
// time became running one after the other, evenly spaced. usual is what a healthy
// node takes for a pod, in seconds.
func oneAfterAnother(v *diagnose.View, usual float64) (s server, ok bool) {
	type arrival struct{ bound, running int64 }
	byNode := map[string][]arrival{}
	for _, p := range v.Pods {
		if p.Node != "" && p.RunningMicros != 0 {
			byNode[p.Node] = append(byNode[p.Node], arrival{p.BoundMicros, p.RunningMicros})
		}
	}
	var gaps, cvs, alone []float64
	for _, as := range byNode {
		s.most = max(s.most, len(as))
		if len(as) < perNode {
			continue
		}
		slices.SortFunc(as, func(a, b arrival) int { return int(min(max(a.running-b.running, -1), 1)) })
		var own []float64
		for i := range as {
			switch {
			case i == 0 || as[i].bound >= as[i-1].running:
				alone = append(alone, float64(as[i].running-as[i].bound)/1e6)
			default: // it was there, and had to wait
				own = append(own, float64(as[i].running-as[i-1].running)/1e6)
			}
		}
		if cv, has := stat.CV(own); has && len(own) >= perNode-1 {
			s.nodes++
			gaps, cvs = append(gaps, stat.Median(own)), append(cvs, cv)
		}
	}
	if s.nodes < 3 && 2*s.nodes < len(byNode) || s.nodes == 0 {
		return s, false
	}
	s.each, s.cv = stat.Median(gaps), stat.Median(cvs)
	return s, s.cv <= even && s.each > 0 && stat.Median(alone)-usual <= longer*s.each
}

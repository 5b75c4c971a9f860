package slownodes

import (
	"cmp"
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

// Reports that come a little earlier or later make single gaps uneven and leave the sum of
// some in a row as it is: where a node works on one pod at a time, rows vary by rowSteady at
// most (0.04 to 0.12 in ten runs, on full machines as on idle ones). Pods that come evenly
// run evenly as well, so that such a row says nothing unless a node's pods took behind times
// as long to run as to come: it fell behind them. Rows of other nodes that fell behind, for
// the sake of a CPU or a server, varied by 0.22 and more in sixteen runs.
const row, rowSteady, behind = 5, 0.18, 1.25

// longer is by how much a pod that found its node idle may take longer than the
// gap between pods that did not: where one at a time is worked on, both are what
// one takes. Pods that come evenly spaced, and all take long, go evenly spaced too.
const longer = 1.5

// together is the part of what the first of a node's pods took to run within which those
// that run after it waited for the same, an image say: they say nothing of how the node
// works on one.
const together = 0.1

// A server is a node that works on one pod at a time.
type server struct {
	each  float64 // seconds
	cv    float64
	rowCV float64 // of rows of gaps; 0 where there are none
	own   bool    // the node's, and not a busy machine's
	fell  bool    // behind the pods that came, while rows of gaps were steady
	most  int     // pods of a node
	nodes int
}

type arrival struct{ bound, running int64 } // µs

// oneAfterAnother says whether pods that were bound to a node at about the same
// time became running one after the other, evenly spaced. usual is what a healthy
// node takes for a pod, in seconds.
func oneAfterAnother(v *diagnose.View, usual float64) (s server, ok bool) {
	byNode := map[string][]arrival{}
	for _, p := range v.Pods {
		if p.Node != "" && p.RunningMicros != 0 {
			byNode[p.Node] = append(byNode[p.Node], arrival{p.BoundMicros, p.RunningMicros})
		}
	}
	for _, as := range byNode {
		slices.SortFunc(as, func(a, b arrival) int { return cmp.Compare(a.running, b.running) })
		s.most = max(s.most, len(as))
	}
	all, alone, ok := serve(byNode)
	all.most = s.most
	if ok && stat.Median(alone)-usual <= longer*all.each {
		return all, true
	}
	for node, as := range byNode {
		byNode[node] = as[first(as):]
	}
	later, _, ok := serve(byNode)
	later.most = s.most
	return later, ok && later.fell
}

// first is the last of the pods of a node that run together with its first.
func first(as []arrival) (i int) {
	until := as[0].running + int64(together*float64(as[0].running-as[0].bound))
	for i+1 < len(as) && as[i+1].running <= until {
		i++
	}
	return i
}

// serve says whether nodes work on one pod at a time, by the gaps between those that ran
// one after the other; alone are the seconds that those took which found their node idle.
func serve(byNode map[string][]arrival) (s server, alone []float64, ok bool) {
	var gaps, cvs, rows, spans []float64
	for _, as := range byNode {
		if len(as) < perNode {
			continue
		}
		var own, sums []float64
		inRow := 0
		for i := range as {
			switch {
			case i == 0 || as[i].bound >= as[i-1].running:
				alone = append(alone, float64(as[i].running-as[i].bound)/1e6)
				inRow = 0
			default: // it was there, and had to wait
				own = append(own, float64(as[i].running-as[i-1].running)/1e6)
				if inRow++; inRow >= row {
					sums = append(sums, float64(as[i].running-as[i-row].running)/1e6)
				}
			}
		}
		if cv, has := stat.CV(own); has && len(own) >= perNode-1 {
			s.nodes++
			gaps, cvs = append(gaps, stat.Median(own)), append(cvs, cv)
		}
		if cv, has := stat.CV(sums); has && len(sums) >= perNode-1 {
			byBound := func(a, b arrival) int { return cmp.Compare(a.bound, b.bound) }
			came := slices.MaxFunc(as, byBound).bound - slices.MinFunc(as, byBound).bound
			rows, spans = append(rows, cv), append(spans, float64(as[len(as)-1].running-as[0].running)/float64(max(1, came)))
		}
	}
	if s.nodes < 3 && 2*s.nodes < len(byNode) || s.nodes == 0 {
		return s, alone, false
	}
	s.each, s.cv = stat.Median(gaps), stat.Median(cvs)
	if 2*len(rows) >= s.nodes {
		s.rowCV = stat.Median(rows)
	}
	s.fell = s.rowCV > 0 && s.rowCV <= rowSteady && stat.Median(spans) >= behind
	s.own = s.cv <= steady || s.fell
	return s, alone, s.cv <= even && s.each > 0
}

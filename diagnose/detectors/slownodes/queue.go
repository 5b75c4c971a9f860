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

// A server is a node that works on one pod at a time.
type server struct {
	each  float64 // seconds
	cv    float64
	rowCV float64 // of rows of gaps; 0 where there are none
	own   bool    // the node's, and not a busy machine's
	most  int     // pods of a node
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
	var gaps, cvs, rows, spans, alone []float64
	for _, as := range byNode {
		s.most = max(s.most, len(as))
		if len(as) < perNode {
			continue
		}
		slices.SortFunc(as, func(a, b arrival) int { return int(min(max(a.running-b.running, -1), 1)) })
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
		return s, false
	}
	s.each, s.cv = stat.Median(gaps), stat.Median(cvs)
	if 2*len(rows) >= s.nodes {
		s.rowCV = stat.Median(rows)
	}
	s.own = s.cv <= steady || s.rowCV > 0 && s.rowCV <= rowSteady && stat.Median(spans) >= behind
	return s, s.cv <= even && s.each > 0 && stat.Median(alone)-usual <= longer*s.each
}

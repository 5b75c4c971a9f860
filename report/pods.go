package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubedyno/kubedyno/record"
)

// maxPods bounds the pods whose ways a page holds.
const maxPods = 2000

// podTable is the way of each pod, the longest first.
func podTable(c clock, pods []record.Pod) PodTable {
	length := func(p record.Pod) int64 {
		if p.RunningMicros == 0 {
			return math.MaxInt64
		}
		return p.RunningMicros - first(p)
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b record.Pod) int {
		return cmp.Or(cmp.Compare(length(b), length(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var t PodTable
	if len(sorted) > maxPods {
		t.Left = len(sorted) - maxPods
		sorted = sorted[:maxPods]
	}
	nodes := map[string]int{"": -1}
	ms := func(micros int64) int {
		if micros == 0 {
			return NotSeen
		}
		return int(math.Round(c.at(micros) * 1000))
	}
	for _, p := range sorted {
		k, ok := nodes[p.Node]
		if !ok {
			k = len(t.Nodes)
			nodes[p.Node] = k
			t.Nodes = append(t.Nodes, p.Node)
		}
		t.Names = append(t.Names, p.Namespace+"/"+p.Name)
		t.Node = append(t.Node, k)
		t.Asked = append(t.Asked, ms(first(p)))
		t.Created = append(t.Created, ms(p.CreatedMicros))
		t.Bound = append(t.Bound, ms(p.BoundMicros))
		t.Running = append(t.Running, ms(p.RunningMicros))
	}
	return t
}

package orderedpods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// fewest pods of a set show an order.
	fewest = 3
	// most is the share of the pods that must have waited for the one before them.
	most = 0.9
	// quick is the quantile of the steps that a machine with room would take, on a
	// full one: what that adds to a step is its own.
	quick, full = 0.1, 0.9
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "ordered-pods",
	Title: "A StatefulSet makes its pods one after another",
	Doc: `With podManagementPolicy OrderedReady, which is the default, a StatefulSet's next pod is created when the one before it is ready. A set of n pods takes n times what a pod takes to start, however much room there is, and no limit of the controller is in force.

**Evidence.** At least nine in ten pods of the StatefulSets with three pods and more were created after the pod before them had run, and pods lost time in stage controller. What a pod takes from its creation until it runs says how long a set must take, which is the second source.

**Charged.** For each pod the steps of those before it, at their mean pace. On a full machine it is that of the quickest tenth: what it adds to a step is its own.

**Look-alikes.** With podManagementPolicy Parallel pods are created at once, as a Deployment's are: what holds them back then is another cause. controller-limit and controller-workers: the next pod is created late, or before the last one runs.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	sets := map[string][]record.Pod{}
	for _, p := range v.Pods {
		if strings.HasPrefix(p.Owner, "StatefulSet/") && p.CreatedMicros != 0 && p.RunningMicros != 0 {
			key := p.Namespace + "/" + p.Owner
			sets[key] = append(sets[key], p)
		}
	}
	var steps []float64 // seconds from created to running, of each pod
	waits := map[int][]float64{}
	n, pods, ordered, largest := 0, 0, 0, 0
	for _, ps := range sets {
		if len(ps) < fewest {
			continue
		}
		slices.SortFunc(ps, func(a, b record.Pod) int {
			return cmp.Or(cmp.Compare(a.CreatedMicros, b.CreatedMicros), cmp.Compare(a.Name, b.Name))
		})
		n++
		largest = max(largest, len(ps))
		for i, p := range ps {
			steps = append(steps, float64(p.RunningMicros-p.CreatedMicros)/1e6)
			if i == 0 {
				continue
			}
			pods++
			if p.CreatedMicros >= ps[i-1].RunningMicros {
				ordered++
			}
			if p.AckedMicros != 0 {
				waits[i] = append(waits[i], max(0, float64(p.CreatedMicros-p.AckedMicros)/1e6))
			}
		}
	}
	switch {
	case n == 0:
		return diagnose.NotThere("no StatefulSet has %d pods or more", fewest)
	case float64(ordered) < most*float64(pods):
		return diagnose.NotThere("%d of %d pods of StatefulSets were created after the one before them ran", ordered, pods)
	}
	lost := v.Excess(diagnose.Controller)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("pods lost no time waiting for a controller")
	}
	slices.Sort(steps)
	median := stat.QuantileSorted(steps, 0.5)
	step, pace := stat.Sum(steps)/float64(len(steps)), "mean"
	if m, ok := v.MachineCPU(v.Plateau); ok && m.Share >= full {
		step, pace = stat.QuantileSorted(steps, quick), "the quickest tenth, since the machine is full"
	}
	claim := 0.0
	for i := 1; i < largest; i++ {
		slices.Sort(waits[i]) // sums of floats depend on their order
		for _, w := range waits[i] {
			claim += min(w, float64(i)*step)
		}
	}
	return diagnose.Found(diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: "policy", Sources: 2,
		Cause:   "StatefulSets make their pods one after another (podManagementPolicy OrderedReady)",
		Summary: fmt.Sprintf("StatefulSets make their pods one after another: each waits until the one before it is ready, %.2g s later, so that a set of %d takes %.2g s however much room there is.", median, largest, median*float64(largest)),
		Claims:  map[string]float64{diagnose.Controller: min(lost, claim)},
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "pods: of StatefulSets", Value: float64(ordered) / float64(pods), Unit: "1", Text: fmt.Sprintf("%d of %d pods of %d StatefulSets were created after the one before them ran", ordered, pods, n)},
			{Kind: "wait", Ref: "pods: created to running", Value: median, Unit: "s", Text: fmt.Sprintf("from a pod's creation until it runs (median; %s %.2g s)", pace, step)},
		},
		Advice:    diagnose.Advice{Text: "Set spec.podManagementPolicy: Parallel where the pods do not need one another's order (it cannot be changed in place: delete the set with --cascade=orphan and create it again). The price: pods begin at the same time, without their predecessors. Otherwise only a quicker start of each pod helps: image, volumes, readiness probe."},
		RefutedBy: "pods of such a set that are created before the one before them is ready",
	})
}

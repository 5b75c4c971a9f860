package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// fewest pods of a workload show waves, and waves is how many there must be.
	fewest, waves = 6, 3
	// filled is how full, on average, the wave must be when a pod is made: who makes
	// pods slowly has it full now and then.
	filled = 0.8
	// quick is the quantile of the steps that a machine with room would take, on a
	// full one: what that adds to a step is its own.
	quick, full = 0.1, 0.9
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "rolling-update",
	Title: "An update replaces few pods at a time",
	Doc: `A Deployment's update makes new pods as maxSurge and maxUnavailable allow (a quarter each unless set), a DaemonSet's as maxUnavailable does (1 unless set), and goes on when some of them are ready. With n pods of which k are under way at a time it takes n/k times what a pod takes to start, however much room there is, and no limit of the controller is in force.

**Evidence.** After an update of a workload with six pods and more, at most a third of its new pods were ever on their way from creation to ready, and whenever one was made that number was reached again, to 0.8 on average. Pods lost time in stage controller.

**Charged.** For each pod the waves before it, at the mean step from creation to ready. On a full machine it is the step of the quickest tenth. It comes last of the causes in this stage: a limiter, workers, a way or a full machine get theirs before.

**Look-alikes.** ordered-pods (a StatefulSet as it is created); controller-limit and controller-workers: as few pods are under way, but not the same number each time. Pods that are to be ready for minReadySeconds before they count: the steps are then shorter than the waves, and the rest is not explained.`,
	Detect: detect,
}

// A wave is what one workload's update looked like.
type wave struct {
	owner string
	pods  int
	width int     // most pods under way
	took  float64 // seconds from the creation of the first pod until the last one was ready
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	updated := map[string]bool{}
	for _, o := range v.Operations {
		if o.Verb == "update" && o.Code < 300 && o.Error == "" {
			updated[o.Phase+" "+o.Namespace+"/"+o.Name] = true
		}
	}
	if len(updated) == 0 {
		return diagnose.NotThere("no workload was updated")
	}
	byOwner := map[string][]record.Pod{}
	for _, p := range v.Pods {
		if p.CreatedMicros != 0 && ready(p) != 0 && updated[p.Phase+" "+p.Namespace+"/"+diagnose.OwnerName(p.Owner)] {
			byOwner[p.Namespace+"/"+p.Owner] = append(byOwner[p.Namespace+"/"+p.Owner], p)
		}
	}
	var steps []float64
	var held [][]record.Pod
	var all []wave
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		ps := byOwner[owner]
		slices.SortFunc(ps, func(a, b record.Pod) int {
			return cmp.Or(cmp.Compare(a.CreatedMicros, b.CreatedMicros), cmp.Compare(a.Name, b.Name))
		})
		width, fill := underWay(ps)
		if len(ps) < fewest || width*waves > len(ps) || fill < filled {
			continue
		}
		end := int64(0)
		for _, p := range ps {
			steps = append(steps, seconds(p.CreatedMicros, ready(p)))
			end = max(end, ready(p))
		}
		held = append(held, ps)
		all = append(all, wave{owner[strings.Index(owner, "/")+1:], len(ps), width, seconds(ps[0].CreatedMicros, end)})
	}
	if len(all) == 0 {
		return diagnose.NotThere("none of %d updated workloads had a third of its pods or less under way at a time, again and again", len(byOwner))
	}
	lost := v.Excess(diagnose.Controller)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("pods lost no time waiting for a controller")
	}
	slices.Sort(steps)
	median := stat.QuantileSorted(steps, 0.5)
	step := stat.Sum(steps) / float64(len(steps))
	if m, ok := v.MachineCPU(v.Plateau); ok && m.Share >= full {
		step = stat.QuantileSorted(steps, quick)
	}
	claim := 0.0
	for k, ps := range held {
		for i, p := range ps {
			if p.AckedMicros != 0 {
				claim += min(max(0, seconds(p.AckedMicros, p.CreatedMicros)), float64(i/all[k].width)*step)
			}
		}
	}
	longest := slices.MaxFunc(all, func(a, b wave) int {
		return cmp.Or(cmp.Compare(a.pods/a.width, b.pods/b.width), strings.Compare(b.owner, a.owner))
	})
	kind, name, _ := strings.Cut(longest.owner, "/")
	return diagnose.Found(diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: "policy", Sources: 1,
		Cause:   "an update replaces few pods at a time, as its strategy says",
		Summary: fmt.Sprintf("The update replaces few pods at a time: of the %d pods of %s %s at most %d %s ever under way, and more are made when one is ready, %.2g s later, so that all took %.2g s however much room there is.", longest.pods, kind, name, longest.width, map[bool]string{true: "was", false: "were"}[longest.width == 1], median, longest.took),
		Claims:  map[string]float64{diagnose.Controller: min(lost, claim)},
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "pods: created and ready, by owner", Value: float64(longest.width), Unit: "pods", Text: fmt.Sprintf("at most %d of %d pods under way at a time; few of the pods of %d of %d updated workloads", longest.width, longest.pods, len(all), len(byOwner))},
			{Kind: "wait", Ref: "pods: created to ready", Value: median, Unit: "s", Text: "from a pod's creation until it is ready (median)"},
		},
		Advice:    diagnose.Advice{Text: "Raise maxSurge (and maxUnavailable, where fewer may serve meanwhile) in the Deployment's spec.strategy.rollingUpdate, or maxUnavailable or maxSurge in the DaemonSet's spec.updateStrategy.rollingUpdate. The price: room for the additional pods, or fewer that serve. Otherwise only a quicker start of each pod helps: image, volumes, readiness probe."},
		RefutedBy: "more pods of that workload under way at a time in a run with the same strategy",
	})
}

// underWay is how many pods, sorted by their creation, were at most on their way to
// ready at a time, and which part of that on average when one was made, the first
// wave left out.
func underWay(ps []record.Pod) (width int, fill float64) {
	done := make([]int64, len(ps))
	for i, p := range ps {
		done[i] = ready(p)
	}
	slices.Sort(done)
	now := make([]int, len(ps))
	for i, p := range ps {
		before, _ := slices.BinarySearch(done, p.CreatedMicros+1) // who is ready was made before
		now[i] = i + 1 - before
		width = max(width, now[i])
	}
	if width >= len(ps) {
		return width, 0
	}
	sum := 0
	for _, n := range now[width:] {
		sum += n
	}
	return width, float64(sum) / float64(len(ps)-width) / float64(width)
}

func ready(p record.Pod) int64 { return max(p.ReadyMicros, p.RunningMicros) }

func seconds(from, until int64) float64 { return float64(until-from) / 1e6 }

package sharedquota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// stopped is the share of a quota's periods in which components must have been
// stopped over the plateau.
const stopped = 0.5

// always is the share from which components had all that the quota allows: below it they
// were idle for a part of the time.
const always = 0.9

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "shared-quota",
	Title: "A CPU quota of a group stops the control plane",
	Doc: `A quota may be set on a group of processes: a container that holds several components, a slice of the machine, a VM's stand-in. While the group is stopped nothing in it runs, on a
machine that looks idle.

**Evidence.** Components that have no quota of their own, as far as the recording knows, were stopped in at least half of the quota's periods (the cgroup's nr_throttled), and pods lost time.
Where several were stopped in the same periods they share one. Only stages that the stopped have a hand in are charged: a stopped scheduler is not why pods are made late.

**Prediction.** What the group used is what it may use; divided by the pods, that is what each costs, and the quota divided by that is the most.

**Risk.** A quota that stops them in at least half of the periods is named where nobody waits for it yet (pods lost less than 0.2 s each), and where pods wait for something else, as for a client's limit: it comes next.

**Look-alikes.** component-cpu (the quota is the component's own and known); machine-cpu (the CPUs are full, nobody is stopped); a slow disk or a long way to etcd: syncs and round trips
take long here too, since what waits for them is stopped, and are explained away.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	names, most, counted := v.GroupStopped(stopped)
	cpu := 0.0
	for _, c := range names {
		if x, ok := v.CPU(c, v.Plateau); ok {
			cpu += x
		}
	}
	switch {
	case len(names) == 0 && !counted && v.Meta.Cluster.Kind == "lab" && v.Meta.Cluster.CPU == 0:
		return diagnose.NotThere("the lab's components have no quota but their own")
	case len(names) == 0 && !counted:
		return diagnose.NotAssessed("how often cgroups stopped the components")
	case len(names) == 0:
		return diagnose.NotThere("no component was stopped by a quota that is not its own")
	}
	var lost []diagnose.Stage // of those that they hold up
	for _, s := range v.LostStages() {
		if slices.ContainsFunc(names, func(c string) bool { return diagnose.Concerns(c, s.Name) }) {
			lost = append(lost, s)
		}
	}
	if v.Plateau.Seconds() <= 0 {
		return diagnose.NotAssessed("a plateau: too few pods came")
	}
	used := cpu / v.Plateau.Seconds()
	component, whose := diagnose.Machine, fmt.Sprintf("%d components together", len(names))
	if len(names) == 1 {
		component, whose = names[0], names[0]
	}
	f := diagnose.Finding{
		Class: diagnose.Capacity, Component: component, Resource: "cpu", Sources: 2,
		Cause:   fmt.Sprintf("a CPU quota holds %s to %.2g CPUs", whose, used),
		Summary: fmt.Sprintf("The control plane is at capacity: a CPU quota stops %s in %.0f %% of its periods, so that %s had %.2f CPUs while pods waited.", strings.Join(names, ", "), 100*most, map[bool]string{true: "it", false: "they"}[len(names) == 1], used),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "processes: throttled_periods of " + strings.Join(names, ", "), Value: most, Unit: "1", Text: fmt.Sprintf("stopped in %.0f %% of the quota's periods", 100*most)},
			{Kind: "busy", Ref: "processes: user_s + system_s", Value: used, Unit: "CPUs", Text: fmt.Sprintf("%.1f CPU-seconds used in %.1f s by %s", cpu, v.Plateau.Seconds(), strings.Join(names, ", "))},
		},
		Advice:    diagnose.Advice{Text: "Raise the quota of the group that holds these processes (container limit, slice, VM size), or ask for fewer pods at a time."},
		RefutedBy: "a run with a larger quota in which pods do not come faster",
	}
	if q := v.Meta.Cluster.CPU; q > 0 {
		lift := q * 4
		if all := float64(v.Meta.Machine.CPUs); all > 0 {
			lift = min(lift, all)
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: "cluster.cpu", Value: q, Unit: "cores", Text: fmt.Sprintf("CPU quota %g for all components", q)})
		f.Advice.Set = map[string]string{"cluster.cpu": strconv.FormatFloat(lift, 'g', 4, 64)}
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	if most < always {
		f.Cause = fmt.Sprintf("a CPU quota stops %s in %.0f %% of its periods", whose, 100*most)
	}
	spare := fmt.Sprintf("The control plane has no CPU to spare: a CPU quota stops %s in %.0f %% of its periods.", strings.Join(names, ", "), 100*most)
	if !v.Felt() || len(lost) == 0 {
		f.Class, f.Claims = diagnose.Risk, nil
		f.Summary = spare + " Pods were not held up by it yet."
		return diagnose.Found(f)
	}
	if f.Stage = lost[0].Name; f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.Next = spare + diagnose.Behind
	for _, s := range lost {
		f.Claims[s.Name] = *s.ExcessSeconds
	}
	return diagnose.Found(f)
}

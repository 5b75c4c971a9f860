package schedulingloop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/plugin"
)

// busy is the utilisation of the single server from which its queue is long:
// at 0.85 a pod waits almost six times a cycle.
const busy = 0.85

// always is the utilisation of a loop that never rests, and waiting the part of
// that from which its threads lack a CPU.
const always, waiting = 0.95, 0.25

// near is the part of the loop's bound from which there is hardly room for more.
const near = 0.8

// itself is the part of the loop's time from which the CPU that the scheduler
// used says that it works and does not wait for a CPU: plugins that go over the
// nodes with many threads wait for one another on a small machine.
const itself = 0.6

// idle is the part of the loop's time that the CPU that the scheduler used may be
// for a loop that waits for something else than a CPU, and outside the part of it
// from which that something is none of the scheduler's own plugins.
const idle, outside = 0.35, 0.5

// most is the part of a choice's time from which one plugin has it.
const most = 0.5

// margin is by how much busier the loop must be than the machine's CPUs for its
// bound to be the lower one: both are sampled, and a full machine makes both full.
const margin = 0.03

// much is the part of a machine's CPU from which a plugin that uses it is why the
// CPU is full: with usual pods the whole scheduler has less than half of that.
const much = 0.2

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "scheduling-loop",
	Title: "The scheduler decides all the time",
	Doc: `The scheduler chooses a node for one pod at a time. scheduler_scheduling_algorithm_duration_seconds counts the seconds it spends on that; per second they are
the loop's utilisation, and 1/(seconds per pod) is the most pods that it can place.

**Evidence.** The sum grows by at least 0.85 s a second while pods wait in queue and decide.

A loop that uses a CPU for less than 0.35 of its time, while its threads have one, waits: for an extender, which is asked by HTTP, where at least half of the time passes outside of its plugins
(scheduler_framework_extension_point_duration_seconds), else for something that a plugin asks.

Sampled stacks tell which plugin has most of the scheduler's CPU, and which function of it; one with less than a fifth is not named. Without them the scheduler's own clocks tell: a plugin is named whose extension point takes at least half of the time.

**Risk.** Where pods have not lost much yet, a loop that is busy 95 % of the time is named if it can place fewer pods than are offered, for the queue grows as long as that lasts, or at most a quarter more than it did.

**Explaining-away.** On a full machine, or with the scheduler at its own CPU quota, cycles take longer because they wait for a CPU: those causes are settled first. Unless the loop is busy 95 % of the time and the scheduler's threads waited for
a CPU for less than a quarter of that (run-queue delay), or used one for at least 0.6 of it while the machine's CPUs were at least 3 % less busy than the loop: then the loop's bound is the lower one, and it decides all the time by itself. Or one plugin uses a fifth of all CPU that the machine has: then the CPU is full of it.

**Look-alikes.** The scheduler's client limit (pods wait in bind, the loop is idle); pods that fit nowhere (they wait in queue while the loop is idle).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	r, ok := v.Resource(diagnose.Scheduler, "loop")
	switch {
	case !ok:
		return diagnose.NotAssessed("scheduler_scheduling_algorithm_duration_seconds of kube-scheduler")
	case r.Utilisation < busy:
		return diagnose.NotThere("the loop was busy %.0f %% of the time, %.2f ms a pod", 100*r.Utilisation, 1000*r.Demand)
	case !v.Symptom() && (r.Utilisation < always || v.Meta.Workload.OfferedRate <= r.Bound && r.Reached < near):
		return diagnose.NotThere("the loop was busy %.0f %% of the time, but pods were not held up", 100*r.Utilisation)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Decide, Resource: "loop", Sources: 1,
		Cause:   fmt.Sprintf("choosing a node takes %.1f ms a pod, one pod at a time", 1000*r.Demand),
		Summary: fmt.Sprintf("The scheduler's loop is busy %.0f %% of the time: at %.1f ms a pod it can place %.0f pods/s, and the run reached %.0f.", 100*r.Utilisation, 1000*r.Demand, r.Bound, v.Rate),
		Claims:  map[string]float64{diagnose.Queue: v.Excess(diagnose.Queue), diagnose.Decide: v.Excess(diagnose.Decide)},
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: `scheduler_scheduling_algorithm_duration_seconds_sum{component="kube-scheduler"}`, Value: r.Utilisation, Unit: "1", Text: fmt.Sprintf("%.1f s of deciding in %.1f s", r.BusySeconds, v.Plateau.Seconds())},
			{Kind: "wait", Ref: "stages: queue", Value: v.Excess(diagnose.Queue), Unit: "pod-seconds", Text: fmt.Sprintf("pods lost %.0f pod-seconds in front of it", v.Excess(diagnose.Queue))},
		},
		Advice:    diagnose.Advice{Text: "Look at the scheduler's CPU profile for the plugin that takes the time; pods with affinity or spreading over many nodes are the usual reason. A lower percentageOfNodesToScore decides faster and spreads less evenly."},
		RefutedBy: "cycles that become shorter without pods coming faster",
	}
	if waited, ok := v.RunDelay(diagnose.Scheduler, v.Plateau); ok && r.Utilisation >= always && waited < waiting*r.BusySeconds {
		f.Direct, f.Sources = true, 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "processes: run_delay_s of kube-scheduler", Value: waited, Unit: "s", Text: fmt.Sprintf("its threads waited %.2f s for a CPU meanwhile, all together", waited)})
	}
	if used, ok := v.CPU(diagnose.Scheduler, v.Plateau); ok && !f.Direct && r.Utilisation >= always && used >= itself*r.BusySeconds {
		if m, known := v.MachineCPU(v.Plateau); known && m.Share <= min(1, r.Utilisation)-margin {
			f.Direct, f.Sources = true, 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "processes: " + diagnose.Scheduler, Value: used, Unit: "s", Text: fmt.Sprintf("it used %.1f CPU-seconds meanwhile: it works, and does not wait for a CPU; the machine was %.0f %% busy", used, 100*m.Share)})
		}
	}
	p, named := v.DearestPlugin()
	if m, known := v.MachineCPU(v.Plateau); known && named && !f.Direct && r.Utilisation >= always {
		if used := float64(p.Samples) * functions.PeriodOf(v.Meta); used >= much*m.Total {
			f.Direct, f.Sources = true, 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "stacks: " + p.Function, Value: used, Unit: "s", Text: fmt.Sprintf("one plugin used %.1f CPU-seconds meanwhile, %.0f %% of all that the machine has: what others lack a CPU for is its work", used, 100*used/m.Total)})
		}
	}
	if !v.Symptom() {
		f.Class, f.Claims = diagnose.Risk, nil
		if offered := v.Meta.Workload.OfferedRate; offered > r.Bound {
			f.Summary += fmt.Sprintf(" %g pods/s are offered: the queue in front of it grows with every second.", offered)
		} else {
			f.Summary += fmt.Sprintf(" Pods are not held up yet, but there is room for %.0f %% more at most.", 100*(1/r.Reached-1))
		}
	}
	if waits(v, &f, r) {
		return diagnose.Found(f)
	}
	if named {
		name, _ := plugin.Name(p.Function)
		f.CodePath = p.Function
		f.Cause += ", most of its plugins' work in " + plugin.Short(p.Function)
		f.Summary += fmt.Sprintf(" %.0f %% of its CPU is in the plugin %s, most of that in %s.", 100*p.Share, name, plugin.Short(p.Function))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "function", Ref: "stacks: " + p.Function, Value: p.Share, Unit: "1", Text: fmt.Sprintf("%.0f %% of kube-scheduler's CPU in the plugin %s (%d samples)", 100*p.Share, name, p.Samples)})
		f.Advice.Text = fmt.Sprintf("Look at what %s does for each pod and each node, and whether pods need the plugin %s. A lower percentageOfNodesToScore decides faster and spreads less evenly.", plugin.Short(p.Function), name)
		if a, ok := plugin.Advice(v, name); ok {
			f.Advice = a
		}
	} else if each, name, ok := timed(v, r); ok {
		f.Cause += fmt.Sprintf(", %.1f ms of it in %s", each, name)
		f.Summary += fmt.Sprintf(" %.1f ms of that are its plugin %s.", each, name)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "function", Ref: `scheduler_framework_extension_point_duration_seconds_sum{component="kube-scheduler"}`, Value: each / 1000, Unit: "s", Text: fmt.Sprintf("%.1f ms of each pod's time, by its own clock", each)})
		f.Advice.Text = fmt.Sprintf("Look at what %s does for each pod and each node, and whether pods need it. A lower percentageOfNodesToScore decides faster and spreads less evenly.", name)
		plain, _, _ := strings.Cut(name, " ")
		if a, ok := plugin.Advice(v, plain); ok {
			f.Advice = a
		}
	}
	return diagnose.Found(f)
}

// timed is the plugin that has most of the time in which a node is chosen, with its
// milliseconds of a pod's, by the scheduler's own clocks; ok is false where none has.
func timed(v *diagnose.View, r diagnose.Resource) (each float64, name string, ok bool) {
	work := v.SchedulerWork()
	if work == nil || work.Algorithm.Seconds <= 0 {
		return 0, "", false
	}
	_, point := deciders(work)
	name = dearestAt(work, point.Name)
	share := point.Seconds / work.Algorithm.Seconds
	return 1000 * min(1, share) * r.Demand, name, share >= most && name != point.Name
}

// deciders are the seconds that pass at the extension points through which the choice
// of a node goes, and the dearest of them.
func deciders(work *diagnose.SchedulerWork) (inside float64, dearest diagnose.SchedulerPart) {
	for _, p := range work.Points {
		if slices.Contains(deciding, p.Name) {
			inside += p.Seconds
			if p.Seconds > dearest.Seconds {
				dearest = p
			}
		}
	}
	return inside, dearest
}

// dearestAt names the plugin that has most of the time of an extension point, of the
// cycles that are timed; the point itself where none has.
func dearestAt(work *diagnose.SchedulerWork, point string) string {
	for _, p := range work.Plugins { // the dearest first
		if p.Point == point {
			return p.Name + " at " + p.Point
		}
	}
	return point
}

// deciding are the extension points that the choice of a node goes through.
var deciding = []string{"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "ScoreExtensionNormalize", "Sign"}

// waits says what a loop waits for that uses no CPU; false where it works.
func waits(v *diagnose.View, f *diagnose.Finding, r diagnose.Resource) bool {
	used, ok := v.CPU(diagnose.Scheduler, v.Plateau)
	delayed, okDelayed := v.RunDelay(diagnose.Scheduler, v.Plateau)
	work := v.SchedulerWork()
	if !ok || !okDelayed || work == nil || used >= idle*r.BusySeconds || delayed >= waiting*r.BusySeconds || v.Upstream() != "" {
		return false
	}
	inside, dearest := deciders(work)
	all := work.Algorithm.Seconds
	if inside == 0 || all <= 0 {
		return false
	}
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "processes: " + diagnose.Scheduler, Value: used, Unit: "s", Text: fmt.Sprintf("it used %.1f CPU-seconds meanwhile: it waits, and not for a CPU", used)})
	evidence := diagnose.Evidence{Kind: "wait", Ref: `scheduler_framework_extension_point_duration_seconds_sum{component="kube-scheduler"}`, Value: inside, Unit: "s", Text: fmt.Sprintf("%.1f of %.1f s passed in its plugins", inside, all)}
	if inside < (1-outside)*all {
		each := 1000 * (all - inside) / all * r.Demand
		f.CodePath = "extender"
		f.Cause += fmt.Sprintf(", %.1f ms of it waiting outside of its plugins", each)
		f.Summary += fmt.Sprintf(" It uses little CPU: for %.1f ms of a pod's time it waits outside of its plugins, as a scheduler does that asks an extender.", each)
		f.Advice.Text = "Look at the extenders in the scheduler's configuration, which it asks for each pod by HTTP, one after the other: make the answer quick, narrow it to the pods that need it (managedResources), or make a plugin of it."
		f.RefutedBy = "cycles that take as long without extenders"
	} else {
		name := dearestAt(work, dearest.Name)
		f.Cause += ", most of it waiting in " + name
		f.Summary += fmt.Sprintf(" It uses little CPU: it waits, most of the time in %s.", name)
		f.Advice.Text = fmt.Sprintf("Look at what %s waits for: a request that it sends for each pod, or a lock.", name)
	}
	f.Evidence = append(f.Evidence, evidence)
	return true
}

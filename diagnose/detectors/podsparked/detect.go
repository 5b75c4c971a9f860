package podsparked

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// most is the share of the pods pending at the scheduler that must be set aside,
	// on average, and few the least number.
	most, few = 0.5, 1
	// storm is how many victims a preemption storm has for each pod scheduled.
	storm = 0.02
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "pods-parked",
	Title: "The scheduler has set pods aside",
	Doc: `A pod that fits nowhere, whose scheduling failed or that is gated is not in the scheduler's active queue: it waits in backoff (1 s at first, doubled up to 10 s by default), among the
unschedulable until something changes, or gated until its gate is lifted. The loop is idle meanwhile.

**Evidence.** Of the pods pending at the scheduler (scheduler_pending_pods), at least half are in queue backoff, unschedulable or gated, on average over the load, and pods lose time in
stage queue. scheduler_scheduling_attempt_duration_seconds counts attempts by their result; scheduler_unschedulable_pods says which plugin refused. Where the scheduler evicted other pods
(scheduler_preemption_victims), that is said: each victim must go before its place is free.

**Claims.** The share of stage queue that these queues held.

**Look-alikes.** Pods in the active queue: the loop (scheduling-loop), a starved scheduler (component-cpu, machine-cpu). Pods that wait in bind: scheduler-limit, prebind-wait.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	stage := diagnose.Queue
	if !v.Known(diagnose.Queue) {
		stage = diagnose.Scheduling
	}
	lost := v.Excess(stage)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("pods lost no time in the scheduler's queues")
	}
	levels := v.GaugeBy(diagnose.Scheduler, "scheduler_pending_pods", "queue", nil, v.Load)
	if len(levels) == 0 {
		return diagnose.NotAssessed("scheduler_pending_pods of kube-scheduler")
	}
	total, parked := 0.0, 0.0
	main := ""
	for _, q := range []string{"active", "backoff", "gated", "unschedulable"} {
		l := levels[q]
		total += l.Mean
		if q != "active" {
			parked += l.Mean
			if main == "" || l.Mean > levels[main].Mean {
				main = q
			}
		}
	}
	if parked < few || parked < most*total {
		return diagnose.NotThere("of %.0f pods pending at the scheduler on average, %.0f were set aside", total, parked)
	}
	share := parked / total
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "backoff", Sources: 1,
		Claims: map[string]float64{stage: share * lost},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: `scheduler_pending_pods{component="kube-scheduler"}`, Value: share, Unit: "1",
				Text: fmt.Sprintf("of %.0f pending pods on average: backoff %.0f, unschedulable %.0f, gated %.0f, active %.0f", total, levels["backoff"].Mean, levels["unschedulable"].Mean, levels["gated"].Mean, levels["active"].Mean)},
		},
		RefutedBy: "pods that wait as long although none is set aside",
	}
	failed := 0.0
	for _, result := range []string{"unschedulable", "error"} {
		if n, ok := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", diagnose.Labels{"result": result}); ok && n >= 1 {
			failed += n
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`scheduler_schedule_attempts_total{component="kube-scheduler",result=%q}`, result), Value: n, Unit: "attempts", Text: fmt.Sprintf("%.0f attempts ended %s", n, result)})
		}
	}
	if failed > 0 {
		f.Sources++
	}
	plugin, refusals := "", 0.0
	for name, l := range v.GaugeBy(diagnose.Scheduler, "scheduler_unschedulable_pods", "plugin", nil, v.Load) {
		if l.Mean > refusals || l.Mean == refusals && l.Mean > 0 && name < plugin {
			plugin, refusals = name, l.Mean
		}
	}
	if plugin != "" {
		f.CodePath = "plugin " + plugin
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: `scheduler_unschedulable_pods{component="kube-scheduler"}`, Value: refusals, Unit: "pods", Text: fmt.Sprintf("plugin %s refused most of them, %.0f pods on average", plugin, refusals)})
	}
	switch main {
	case "gated":
		f.Resource = "policy"
		f.Cause = "scheduling gates hold pods"
		f.Summary = fmt.Sprintf("%.0f of the %.0f pods that waited at the scheduler were gated: whoever put a schedulingGate on them took it off late, and the scheduler has nothing to do with it.", levels["gated"].Mean, total)
		f.Advice.Text = "Look at the controller that owns the gates (spec.schedulingGates of a waiting pod names them)."
	case "backoff":
		f.Cause = "after a failed attempt pods sit out their back-off"
		f.Summary = fmt.Sprintf("Pods sit out the scheduler's back-off: %.0f of %.0f waiting pods at a time, after %.0f failed attempts, while the scheduler is idle.", levels["backoff"].Mean, total, failed)
		f.Advice.Text = "Remove what made the attempts fail; podInitialBackoffSeconds and podMaxBackoffSeconds of the scheduler's configuration (1 and 10 by default) bound the wait."
	default:
		f.Cause = "pods fit on no node"
		f.Summary = fmt.Sprintf("Pods fit on no node: %.0f of %.0f waiting pods at a time had been tried and found no place, while the scheduler is idle.", levels["unschedulable"].Mean, total)
		f.Advice.Text = "Add nodes or room on them, or change what the pods ask for."
	}
	if plugin != "" && main != "gated" {
		f.Cause += fmt.Sprintf("; %s says no", plugin)
		f.Advice.Text += fmt.Sprintf(" The plugin %s refused them.", plugin)
	}
	victims, ok := v.Increase(diagnose.Scheduler, "scheduler_preemption_victims_sum", nil)
	if ok && victims >= storm*float64(max(1, v.Counts.Bound)) && victims >= few {
		attempts, _ := v.Increase(diagnose.Scheduler, "scheduler_preemption_attempts_total", nil)
		f.Resource = "quota"
		f.Cause = fmt.Sprintf("no room: the scheduler evicts pods of lower priority, %.0f of them", victims)
		f.Summary = fmt.Sprintf("There is no room for the pods, so the scheduler evicts others first: %.0f victims in %.0f attempts; each must be gone before its place is free.", victims, attempts)
		f.Advice.Text = "Add room, or give the pods that are evicted a priority of their own; preemptionPolicy: Never lets pods wait instead."
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `scheduler_preemption_victims_sum{component="kube-scheduler"}`, Value: victims, Unit: "pods", Text: fmt.Sprintf("%.0f pods evicted in %.0f attempts", victims, attempts)})
	}
	return diagnose.Found(f)
}

package preemption

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// Victims: a number that is no accident, and a share of the pods that got a node.
	few, share = 10, 0.02
	// most is the share from which the queue moves by evictions only: a pod that
	// needs none waits behind those that do.
	most = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "preemption",
	Title: "Pods get places by the eviction of others",
	Doc: `Where a pod fits on no node, the scheduler looks for pods of lower priority whose going would make room, and evicts them. Its pod is tried again when they are gone, which takes their
grace period. Controllers make the victims anew at once: they wait in the queue as well, are tried, and take the places that come free in between, so that there can be several victims for each
pod, and much CPU is spent on pods that come and go.

**Evidence.** At least 10 victims, and 2 % of the pods that were bound (scheduler_preemption_victims_sum); attempts (scheduler_preemption_attempts_total); pods lost time in the scheduler's queues. Deletions of pods by kube-scheduler, where requests were recorded, say the same.

**Charged.** The waiting in the queue: all of it from one victim for two pods on, and in proportion below. A machine that is full of such pods is full for that reason.

**Look-alikes.** pods-parked: pods fit nowhere, and nobody is evicted. machine-cpu: the machine is full, and nobody is evicted.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	victims, ok := v.Increase(diagnose.Scheduler, "scheduler_preemption_victims_sum", nil)
	if !ok {
		return diagnose.NotAssessed("scheduler_preemption_victims of kube-scheduler")
	}
	bound := float64(max(1, v.Counts.Bound))
	if victims < few || victims < share*bound {
		return diagnose.NotThere("the scheduler evicted %.0f pods for others", victims)
	}
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	stage := diagnose.Queue
	if !v.Known(stage) {
		stage = diagnose.Scheduling
	}
	lost := v.Excess(stage)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("the scheduler evicted %.0f pods, but pods lost no time in its queues", victims)
	}
	attempts, _ := v.Increase(diagnose.Scheduler, "scheduler_preemption_attempts_total", nil)
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "quota", Sources: 1, Consumes: true,
		Cause:   fmt.Sprintf("no room: the scheduler evicts pods of lower priority, %.0f of them", victims),
		Summary: fmt.Sprintf("There is no room for the pods, so the scheduler evicts others first: %.0f victims in %.0f attempts, for %d pods that got a node; each must be gone before its place is free.", victims, attempts, v.Counts.Bound),
		Claims:  map[string]float64{stage: lost * min(1, victims/bound/most)},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: `scheduler_preemption_victims_sum{component="kube-scheduler"}`, Value: victims, Unit: "pods", Text: fmt.Sprintf("%.0f pods evicted, %.1f for each that got a node", victims, victims/bound)},
		},
		Advice: diagnose.Advice{
			Text: "Add room, or give the pods that are evicted the same priority; preemptionPolicy: Never lets pods wait instead of evicting others. Fewer replicas of what is evicted save the work of making them anew.",
		},
		RefutedBy: "a run with room for all pods in which they wait as long",
	}
	if attempts > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `scheduler_preemption_attempts_total{component="kube-scheduler"}`, Value: attempts, Unit: "attempts", Text: fmt.Sprintf("%.0f attempts", attempts)})
	}
	deleted := 0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "delete" && t.Resource == "pods" && strings.HasPrefix(t.Agent, diagnose.Scheduler)
	}) {
		deleted += t.Count
	}
	if deleted > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: delete pods by kube-scheduler", Value: float64(deleted), Unit: "requests", Text: fmt.Sprintf("kube-scheduler deleted %d pods", deleted)})
	}
	return diagnose.Found(f)
}

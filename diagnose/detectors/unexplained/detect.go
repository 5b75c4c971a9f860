package unexplained

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// rest is the share of the lost time that must be left unexplained.
	rest = 0.5
	// long is the shortest plateau in seconds to say so: a burst's ramp, slow
	// start and declared start delays fill a shorter one without any cause.
	long = 10
	// near: where a resource is this busy, the run is on its way to that
	// bound, and what is missing to it is queueing.
	near = 0.6
	// apart: pods that are late by less than this on average may be late by
	// many small things.
	apart = 1.0
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "unexplained",
	Title: "Pods wait, and no known cause explains it",
	Doc: `Not every cause has a detector. Where pods lost much time (over 1 s each), at least half of it is explained by nothing else, the load lasted over 10 s and no measured resource is even 60 % busy, something
soft holds the run back: a timer, a limiter, a lock, a webhook. The finding then names the stage that lost most, the component that owns it, and no cause.

It is always graded *possible*. Below 10 s, or with a resource that is 60 % busy, it stays silent: bursts, slow start and queueing look the same.`,
	Detect: detect,
}

// owner is the component in charge of a stage.
var owner = map[string]string{
	diagnose.Submit: "harness", diagnose.Accept: diagnose.APIServer, diagnose.Controller: diagnose.ControllerManager,
	diagnose.Queue: diagnose.Scheduler, diagnose.Decide: diagnose.Scheduler, diagnose.Bind: diagnose.Scheduler, diagnose.Scheduling: diagnose.Scheduler,
	diagnose.Start: "node", diagnose.Observe: diagnose.APIServer,
}

var look = map[string]string{
	diagnose.Submit:     "the load generator's own lateness and connection",
	diagnose.Accept:     "admission webhooks, audit, etcd latency, API priority and fairness",
	diagnose.Controller: "the controller's work queue, conflicts, quota, its lease, and what its log says",
	diagnose.Queue:      "scheduling gates, back-off, unschedulable pods, and delivery of watch events to the scheduler",
	diagnose.Decide:     "the scheduler's plugins and extenders",
	diagnose.Bind:       "PreBind plugins, Permit, volumes, and the binding request itself",
	diagnose.Scheduling: "the scheduler: its metrics were not recorded, so queue, decide and bind cannot be told apart",
	diagnose.Start:      "the nodes: delivery of watch events to them, and their start-up",
	diagnose.Observe:    "delivery of watch events to observers",
}

// waitsForVolumes points to the step of pods' volumes that takes longest: a pod
// starts once they are attached.
func waitsForVolumes(v *diagnose.View, f *diagnose.Finding) {
	if v.Claims == nil {
		return
	}
	who := map[string]string{
		"request": "the attach-detach controller of " + diagnose.ControllerManager,
		"attach":  "the storage driver: its attacher's workers and client limit, and its backend",
	}
	longest := 0.0
	for _, g := range v.Claims.Groups {
		for _, s := range g.Steps {
			if who[s.Name] == "" || s.P50 == nil {
				continue
			}
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "volumes: " + s.Name, Value: *s.P50, Unit: "s",
				Text: fmt.Sprintf("median of the step %s of %d claims of class %s", s.Name, s.N, g.Class)})
			if *s.P50 > longest {
				longest = *s.P50
				f.Advice.Text = fmt.Sprintf("Look first at %s.", who[s.Name])
				f.Summary = fmt.Sprintf("Pods lost %.0f of %.0f pod-seconds in stage %s, where they waited for their volumes (%s: %.1f s in the median), while nothing that was measured is full; the cause is unknown.",
					f.Claims[diagnose.Start], v.Lost.PodSeconds, diagnose.Start, s.Name, longest)
			}
		}
	}
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	n := float64(max(1, v.Counts.Seen))
	if !v.Symptom() || v.Lost.PodSeconds/n < apart {
		return diagnose.NotThere("pods lost %.2f s each", v.Lost.PodSeconds/n)
	}
	left := map[string]float64{}
	var total float64
	most := ""
	for _, s := range v.LostStages() { // largest first
		x := *s.ExcessSeconds
		for _, f := range earlier {
			x -= f.Claims[s.Name]
		}
		left[s.Name] = max(0, x)
		total += left[s.Name]
		if most == "" || left[s.Name] > left[most] {
			most = s.Name
		}
	}
	if total < rest*v.Lost.PodSeconds {
		return diagnose.NotThere("other findings explain all but %.0f of %.0f lost pod-seconds", total, v.Lost.PodSeconds)
	}
	if s := v.Plateau.Seconds(); s < long {
		return diagnose.NotAssessed("at least %d s of load; %.1f s of a burst can be lost to its ramp alone", long, s)
	}
	for _, r := range v.Resources {
		switch {
		case v.IsHarness(r.Component) && r.Kind == "cpu", r.Kind == "workers", r.Kind == "client-limit":
			continue
		}
		if _, quota := v.Quota(r.Component); r.Kind == "cpu" && r.Component != diagnose.Machine && !quota {
			continue // without a quota its CPU is the machine's
		}
		if r.Utilisation >= near {
			return diagnose.NotThere("%s is %.0f %% busy: the run is near that bound", r.Name, 100*r.Utilisation)
		}
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: owner[most], Stage: most, Resource: "unknown", Grade: diagnose.Possible,
		Cause:   "unknown",
		Claims:  map[string]float64{most: left[most]},
		Summary: fmt.Sprintf("Pods lost %.0f of %.0f pod-seconds in stage %s while nothing that was measured is full; the cause is unknown.", left[most], v.Lost.PodSeconds, most),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "stages: " + most, Value: left[most], Unit: "pod-seconds", Text: fmt.Sprintf("%.1f s for each pod", left[most]/n)},
		},
		Advice:    diagnose.Advice{Text: "Look at " + look[most] + "."},
		RefutedBy: "a resource that was not recorded turning out to be full",
	}
	if most == diagnose.Start {
		waitsForVolumes(v, &f)
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	if most == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	return diagnose.Found(f)
}

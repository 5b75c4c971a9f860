package unexplained

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// rest is the share of the lost time that must be left unexplained.
	rest = 0.5
	// long is the shortest plateau in seconds to say so: a burst's ramp, slow
	// start and declared start delays fill a shorter one without any cause.
	long = 10
	// near: where a resource is this busy, work that comes in bursts queues for
	// it, which nothing that is measured tells from another cause.
	near = 0.6
	// apart: pods that are late by less than this on average may be late by
	// many small things.
	apart = 1.0
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "unexplained",
	Title: "Pods wait, and no known cause explains it",
	Doc: `Not every cause has a detector. Where pods lost much time (over 1 s each), at least half of it is explained by nothing else and the load lasted over 10 s, something
soft holds the run back: a timer, a limiter, a lock, a webhook. The finding then names the stage that lost most, the component that owns it, and no cause.

It says what it saw of waiting there: seconds in queues for seats, in webhooks, in etcd, in client limiters, and for a CPU (threads that were ready to run, or stopped by a quota). Where one of these is at least 30 % of what the stage lost, its
resource and component are named with it; the cause stays unknown, since no detector recognised it.

Where none is and some resource is at least 60 % busy, the finding is one of capacity and names the fullest: bursts queue for it, and a soft cause beside it looks the same.

Where nobody asked for the pods that never came it says that, and whether those that did come name their owner: a controller makes no more before it has seen what it made.

It is always graded *possible*. Below 10 s it stays silent: bursts and slow start look the same.`,
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
	diagnose.Bind:       "PreBind plugins, Permit, volumes, an extender that binds, and the binding request itself",
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

// A waiting is time that was seen to be waited somewhere.
type waiting struct {
	component, resource string
	seconds             float64
	ref, text           string
	stages              []string // that can wait for it; none: all
}

// waitings are all that the recording knows of, the most first.
func waitings(v *diagnose.View) []waiting {
	var ws []waiting
	counter := func(component, metric string, match diagnose.Labels, resource, owner, text string, stages ...string) {
		if x, ok := v.Increase(component, metric, match); ok && x > 0 {
			ws = append(ws, waiting{owner, resource, x, metric + ` of ` + component, text, stages})
		}
	}
	counter(diagnose.APIServer, "apiserver_flowcontrol_request_wait_duration_seconds_sum", nil, "apf", diagnose.APIServer, "that requests waited for a seat of priority and fairness")
	counter(diagnose.APIServer, "apiserver_admission_webhook_admission_duration_seconds_sum", nil, "webhook", diagnose.APIServer, "in admission webhooks")
	counter(diagnose.APIServer, "etcd_request_duration_seconds_sum", nil, "unknown", diagnose.Etcd, "that the API server waited for etcd")
	counter(diagnose.ControllerManager, "rest_client_rate_limiter_duration_seconds_sum", nil, "client-limit", diagnose.ControllerManager, "in client limiters of kube-controller-manager", diagnose.Controller)
	counter(diagnose.Scheduler, "rest_client_rate_limiter_duration_seconds_sum", nil, "client-limit", diagnose.Scheduler, "in client limiters of kube-scheduler", diagnose.Bind, diagnose.Scheduling)
	for _, c := range v.Components() {
		if v.IsHarness(c) {
			continue
		}
		if x, ok := v.RunDelay(c, v.Load); ok && x > 0 {
			ws = append(ws, waiting{c, "cpu", x, "processes: run_delay_s of " + c, "that threads of " + c + " were ready to run and had no CPU", nil})
		}
		if x, stops, ok := v.Throttled(c, v.Load); ok && x > 0 {
			ws = append(ws, waiting{c, "cpu", x, "processes: throttled_s of " + c, fmt.Sprintf("that a CPU quota stopped %s, in %.0f %% of its periods", c, 100*stops), nil})
		}
	}
	slices.SortStableFunc(ws, func(a, b waiting) int { return cmp.Compare(b.seconds, a.seconds) })
	return ws
}

const (
	// shown and named are the shares of a stage's loss from which a waiting is
	// evidence, and from which it names the resource.
	shown, named = 0.05, 0.30
	// stoppedMost: a quota that stops a component in most of its periods holds it
	// back whatever the seconds, for all its threads stand still together.
	stoppedMost = 0.5
)

// nameWaiting adds what was seen of waiting, and names the resource that has most
// of it.
func nameWaiting(v *diagnose.View, f *diagnose.Finding, stage string, lost float64) (has bool) {
	for _, w := range waitings(v) {
		if len(w.stages) > 0 && !slices.Contains(w.stages, stage) {
			continue
		}
		_, stops, _ := v.Throttled(w.component, v.Load)
		stopped := w.resource == "cpu" && stops >= stoppedMost
		if w.seconds < shown*lost && !stopped {
			continue
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: w.ref, Value: w.seconds, Unit: "s", Text: w.text})
		if has || w.seconds < named*lost && !stopped {
			continue
		}
		has = true
		f.Component, f.Resource = w.component, w.resource
		f.Summary = fmt.Sprintf("Pods lost %.0f of %.0f pod-seconds in stage %s for a cause that is unknown; look first at %s: %.0f s %s.", f.Claims[stage], v.Lost.PodSeconds, stage, w.component, w.seconds, w.text)
	}
	return has
}

// fullest is the busiest resource that is near its bound. A pool of workers that
// wait is busy too, and so is a limiter: they have detectors of their own.
func fullest(v *diagnose.View) (most diagnose.Resource, ok bool) {
	for _, r := range v.Resources {
		switch {
		case v.IsHarness(r.Component) && r.Kind == "cpu", r.Kind == "workers", r.Kind == "client-limit":
			continue
		}
		if _, quota := v.CPULimit(r.Component); r.Kind == "cpu" && r.Component != diagnose.Machine && !quota {
			continue // without a quota its CPU is the machine's
		}
		if r.Utilisation >= max(near, most.Utilisation) {
			most, ok = r, true
		}
	}
	return most, ok
}

// few pods that never came may be an accident of the end, and spare is the share of them
// up to which some were asked for all the same.
const few, spare = 10, 0.05

// nobodyAsks says so where nothing even tried to create the pods that never came.
func nobodyAsks(v *diagnose.View, f *diagnose.Finding) bool {
	never, asked := 0, 0
	for _, n := range v.NeverCreated() {
		never += n
	}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "create" && t.Resource == "pods" }) {
		asked += t.Count
	}
	switch {
	case v.Counts.Seen == 0 && asked == 0:
		f.Summary = fmt.Sprintf("None of %d pods came, and nobody asked the API server to create one: the controller that makes them does not run, does not see what was asked for, or is stuck; the cause is unknown.", v.Counts.Expected)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: create pods", Value: 0, Unit: "requests", Text: "to create a pod"})
		f.Advice.Text = "Look whether the controller runs at all: --controllers of kube-controller-manager, who holds its lease, what it may list and watch, and what its log says."
		return true
	case v.Counts.Seen > 0 && never >= few && float64(asked-v.Counts.Seen) <= spare*float64(never):
		f.Summary = fmt.Sprintf("%d of %d pods never came, and nobody asked the API server to create them, while the controller made the %d others: either it leaves their workloads alone, or it stopped; the cause is unknown.", never, v.Counts.Expected, v.Counts.Seen)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: create pods", Value: float64(asked), Unit: "requests", Text: fmt.Sprintf("to create a pod, of which there are %d", v.Counts.Seen)})
		if n := v.Ownerless(); n >= few {
			f.Cause = "pods do not name the owner that they were made for"
			f.Summary = fmt.Sprintf("%d of %d pods never came, and nobody asked the API server to create them: %d that were created do not name their owner, so that their controller goes on waiting for them.", never, v.Counts.Expected, n)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "pods: owner", Value: float64(n), Unit: "pods", Text: "that controllers made have no metadata.ownerReferences"})
			// Five minutes are ExpectationsTimeout of pkg/controller, v1.36.
			f.Advice.Text = "Look at what changes pods on their way in: mutating webhooks and policies that take metadata.ownerReferences away. A controller that has made a pod and does not see it makes no more for five minutes."
			return true
		}
		f.Advice.Text = "Look at a workload without pods (kubectl get deployments, and describe one): whether it is paused (spec.paused), what its spec.replicas and its conditions say, and whether it has a ReplicaSet. If it is only the late ones that have none: at the controller's lease, its rights and its log."
		return true
	}
	return false
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	n := float64(v.Counts.Seen)
	if n == 0 { // those that were asked for wait all the same
		n = float64(max(1, v.Counts.Expected))
	}
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
	if most == diagnose.Controller && v.HasRequests && nobodyAsks(v, &f) {
		// Whatever else waited, no pod waited for it.
	} else if r, full := fullest(v); !nameWaiting(v, &f, most, left[most]) && full {
		f.Class, f.Component, f.Resource = diagnose.Capacity, r.Component, r.Kind
		f.Summary = fmt.Sprintf("Pods lost %.0f of %.0f pod-seconds in stage %s for a cause that is unknown; the fullest that was measured is %s, %.0f %% busy, for which work that comes in bursts waits.", left[most], v.Lost.PodSeconds, most, r.Name, 100*r.Utilisation)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "resources: " + r.Name, Value: r.Utilisation, Unit: "1", Text: fmt.Sprintf("%s was %.0f %% busy", r.Name, 100*r.Utilisation)})
		f.RefutedBy = "a run with more of it in which pods wait as long"
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	if most == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	return diagnose.Found(f)
}

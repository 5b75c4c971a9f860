package controllerworkers

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// busy is the utilisation of all workers together from which keys queue.
	busy = 0.85
	// waiting is the mean time in seconds that a key must wait for a worker.
	waiting = 0.25
	// limited is the share of the workers' time that waiting in the client limiter
	// may be: beyond it the limiter is the cause, and more workers would wait in
	// it as well.
	limited = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "controller-workers",
	Title: "A controller has too few workers",
	Doc: `A controller works on as many objects at a time as it has workers (--concurrent-…-syncs). Where each sync takes long and there are more objects than workers, objects wait.

**Evidence.** The workers are busy: workqueue_work_duration_seconds_sum grows by at least 0.85 s a second for each of them; keys wait at least 0.25 s for one
(workqueue_queue_duration_seconds); pods lose time in stage controller.

**Contradicting.** Answers of the API server that are slow, long on their way, or refusals for want of a seat, and a CPU that is 85 % busy, the machine's or a component's own: workers wait for them, and more workers would too. So it is where kube-controller-manager itself stood still or had no CPU. Where there are fewer workers than by default, the part of the wait that those missing would have taken away counts all the same. Less than half of the workers' time may be waiting in the client's limiter (rest_client_rate_limiter_duration_seconds); else that is the cause. One object cannot be
worked on by two workers: with a single owner of pods this cause is ruled out.

**Look-alikes.** controller-limit (the wait is inside the limiter); a slow API server (each request takes long: then the machine, its quota or etcd are found first); slow start of one ReplicaSet.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	lost := v.Excess(diagnose.Controller)
	owners := map[string]bool{}
	for _, p := range v.Pods {
		if p.Owner != "" {
			owners[p.Namespace+"/"+p.Owner] = true
		}
	}
	switch {
	case len(owners) == 0:
		return diagnose.NotThere("no controller made the pods")
	case !v.Symptom() || lost == 0:
		return diagnose.NotThere("pods lost no time waiting for a controller")
	case v.Plateau.Seconds() <= 0:
		return diagnose.NotAssessed("a longer load")
	}
	slow, answers := v.API.Slow(), v.API.String()
	for _, f := range earlier {
		far := f.Component == diagnose.ControllerManager && f.Resource == "network"
		refused := f.Resource == "apf" && f.Claims[diagnose.Controller] > 0
		stopped := f.Component == diagnose.ControllerManager && f.Resource == "cpu" && f.Claims[diagnose.Controller] > 0
		if far || refused || stopped {
			slow, answers = true, f.Cause
		}
	}
	if name, full := fullCPU(v); full && !slow {
		slow, answers = true, name
	}
	var clear string
	assessed := false
	throttled, hasThrottled := v.Increase(diagnose.ControllerManager, "rest_client_rate_limiter_duration_seconds_sum", nil)
	for _, q := range diagnose.PodControllers {
		match := diagnose.Labels{"name": q.Queue}
		work, ok := v.Increase(diagnose.ControllerManager, "workqueue_work_duration_seconds_sum", match)
		if !ok {
			continue
		}
		assessed = true
		wait, keys, ok := v.Mean(diagnose.ControllerManager, "workqueue_queue_duration_seconds", match)
		if !ok || work == 0 {
			continue
		}
		workers := q.Workers(v)
		use := work / (workers * v.Plateau.Seconds())
		switch {
		case use < busy || wait < waiting:
			clear += fmt.Sprintf("; the %g workers of %s were %.0f %% busy, a key waited %.3f s", workers, q.Queue, 100*min(1, use), wait)
			continue
		case float64(len(owners)) <= workers:
			clear += fmt.Sprintf("; %s has %g workers for %d objects: each can have one", q.Queue, workers, len(owners))
			continue
		case throttled >= limited*work:
			clear += fmt.Sprintf("; the workers of %s were busy, but with waiting in the client's limiter (%.0f of %.0f s)", q.Queue, throttled, work)
			continue
		}
		// The part of an object's time that it waited for a worker is measured, and
		// stems from nothing else unless everything is full.
		claim := lost * wait / (wait + work/keys)
		slowly := ""
		if slow && workers < q.Default {
			// Slow answers keep as many workers as there are busy. What those would have
			// done that somebody took away is no slow answer's doing.
			claim *= 1 - workers/q.Default
			slowly = fmt.Sprintf(" Its workers wait for something else (%s), but it had %g of them by default, which would have got through %.1f times as much.", answers, q.Default, q.Default/workers)
		} else if slow {
			clear += fmt.Sprintf("; the workers of %s were busy, but waiting: %s", q.Queue, answers)
			continue
		}
		more := min(float64(len(owners)), 4*workers)
		f := diagnose.Finding{
			Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: "workers", Sources: 2,
			Cause: fmt.Sprintf("--%s=%g: all workers of the %s controller are busy and objects queue", q.Flag, workers, q.Queue),
			Summary: fmt.Sprintf("The %s controller works on %g objects at a time and has no worker free %.0f %% of the time; an object waits %.1f s for one, so its pods are created late.",
				q.Queue, workers, 100*min(1, use), wait) + slowly,
			Claims: map[string]float64{diagnose.Controller: claim},
			Direct: v.Upstream() == "",
			Evidence: []diagnose.Evidence{
				{Kind: "busy", Ref: fmt.Sprintf(`workqueue_work_duration_seconds_sum{component="kube-controller-manager",name=%q}`, q.Queue), Value: min(1, use), Unit: "1", Text: fmt.Sprintf("%.1f s of work by %g workers in %.1f s", work, workers, v.Plateau.Seconds())},
				{Kind: "wait", Ref: fmt.Sprintf(`workqueue_queue_duration_seconds{component="kube-controller-manager",name=%q}`, q.Queue), Value: wait, Unit: "s", Text: fmt.Sprintf("a key waited %.2f s for a worker on average (n=%.0f)", wait, keys)},
				{Kind: "config", Ref: diagnose.ControllerManager + ".args." + q.Flag, Value: workers, Unit: "workers", Text: fmt.Sprintf("--%s=%g (default %g)", q.Flag, workers, q.Default)},
			},
			Advice: diagnose.Advice{
				Text: fmt.Sprintf("Give the controller more workers: --%s=%.0f. The price is more requests at a time to the API server.", q.Flag, more),
				Set:  map[string]string{fmt.Sprintf("%s.args.%s", diagnose.ControllerManager, q.Flag): fmt.Sprintf("%.0f", more)},
			},
			RefutedBy: "a run with more workers in which objects wait as long",
		}
		if hasThrottled {
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `rest_client_rate_limiter_duration_seconds_sum{component="kube-controller-manager"}`, Value: throttled, Unit: "s", Text: fmt.Sprintf("%.1f s of that in client limiters", throttled)})
		} else {
			f.Sources, f.Grade = 1, diagnose.Possible // workers that wait in a limiter are as busy
		}
		return diagnose.Found(f)
	}
	if !assessed {
		return diagnose.NotAssessed("workqueue_work_duration_seconds of kube-controller-manager")
	}
	if clear == "" {
		clear = "; no controller's queue was used"
	}
	return diagnose.NotThere("%s", clear[2:])
}

// fullCPU says which CPU of a server's is full that answers the workers, or theirs. A load
// of a few seconds is too short for the causes that are about a full one; to blame the
// workers, or not, it is long enough.
func fullCPU(v *diagnose.View) (name string, full bool) {
	for _, r := range v.Resources {
		if r.Kind == "cpu" && !v.IsHarness(r.Component) && r.Component != diagnose.Scheduler && r.Utilisation >= busy {
			return fmt.Sprintf("%s was %.0f %% busy", r.Name, 100*r.Utilisation), true
		}
	}
	return "", false
}

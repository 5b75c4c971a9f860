package schedulerlimit

import (
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/clientlimit"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "scheduler-client-limit",
	Title: "The scheduler waits for its own client-side rate limit",
	Doc: `The scheduler binds each pod with one POST on pods/binding, sent by a goroutine a pod through a client that allows
itself --kube-api-burst requests at once (default 100) and then --kube-api-qps a second (default 50). Its Events go through another client with a bucket of
its own, though under the same user agent, and are not counted.
A scheduler that decides faster piles up goroutines in stage bind.

**Evidence.** Pods wait in stage bind: scheduler_framework_extension_point_duration_seconds of Bind and PreBind, which hold the wait in the
limiter and the request, also where the asynchronous API dispatcher (gate SchedulerAsyncAPICalls, off by default in v1.36) is switched on.
The bindings keep one rate after the burst, within 10 % of the limit. rest_client_rate_limiter_duration_seconds of kube-scheduler
is the second source; each second of it is a pod-second, and that is what the finding claims.

Where half of its requests and more are the status of pods that fit on no node, the loop itself waits for the limiter before it decides the next pod. Then what pods wait in stage queue while requests follow each other at the limit is claimed as well.

**Without** the scheduler's metrics queue, decide and bind are only known together, and the finding rests on the shape of the bindings.

**Look-alikes.** A scheduler that is fed at a constant rate by a limited controller binds at that rate without anyone waiting; slow bindings or PreBind plugins
(no wait in the limiter); the scheduling loop (decide, not bind).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	c := clientlimit.Client{
		Component: diagnose.Scheduler, Stage: diagnose.Bind, Claim: diagnose.Bind,
		Who: "the scheduler", Per: "binding is one", DirectWait: true,
		Settings: "clientConnection of the scheduler's configuration file",
	}
	if !v.Known(diagnose.Bind) {
		if v.Together.WaitSeconds == nil {
			return diagnose.NotAssessed("stage bind: %s", v.Stage(diagnose.Bind).Reason)
		}
		c.Claim = diagnose.Scheduling
	}
	if s, others, ok := binder(v); ok {
		c.Requests, c.FromAudit = s, true
		if float64(others) >= crowded*float64(len(s)) && v.Excess(diagnose.Queue) > v.Excess(c.Claim) {
			// Its loop waits until it may say that a pod fits nowhere.
			c.Stage, c.Claim, c.DirectWait = diagnose.Queue, diagnose.Queue, false
			c.Per = fmt.Sprintf("binding is one, as is each word on a pod that fits on no node (%d of %d)", others, len(s))
		}
	} else {
		for _, p := range v.Pods {
			if p.BoundMicros != 0 {
				c.Requests = append(c.Requests, float64(p.BoundMicros-v.Load.Start.UnixMicro())/1e6)
			}
		}
	}
	o := clientlimit.Assess(v, c)
	if c.Claim == diagnose.Queue {
		for i := range o.Found {
			if x := v.Excess(diagnose.Bind); x > 0 {
				o.Found[i].Claims[diagnose.Bind] = x
			}
		}
	}
	return o
}

// crowded is the share of the requests that are about pods which fit nowhere from which
// on the scheduler's loop, and not its bindings, waits for the limiter.
const crowded = 0.5

// binder are the requests of the client that binds, from its first binding to its
// last, and how many of them are the status of pods that fit on no node. Where it has sent
// more of these before its first binding than bindings in all, it is from the first one on.
func binder(v *diagnose.View) (requests []float64, status int, ok bool) {
	var best diagnose.Stream
	for _, s := range v.Streams() {
		if s.Program == diagnose.Scheduler && len(s.Bindings) > len(best.Bindings) {
			best = s
		}
	}
	if len(best.Bindings) == 0 {
		return nil, 0, false
	}
	first, last := best.Bindings[0], best.Bindings[len(best.Bindings)-1]
	said, before := 0, 0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Agent == best.Agent() && t.Verb == "patch" && t.Resource == "pods/status"
	}) {
		for _, at := range t.Times {
			if at <= last {
				said++
			}
			if at < first {
				before++
			}
		}
	}
	if before > len(best.Bindings) {
		first = slices.Min(best.Times)
	} else {
		said -= before
	}
	for _, t := range best.Times {
		if t >= first && t <= last {
			requests = append(requests, t)
		}
	}
	return requests, said, true
}

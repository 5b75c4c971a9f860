package schedulerlimit

import (
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
	if s, ok := binder(v); ok {
		c.Requests, c.FromAudit = s, true
	} else {
		for _, p := range v.Pods {
			if p.BoundMicros != 0 {
				c.Requests = append(c.Requests, float64(p.BoundMicros-v.Load.Start.UnixMicro())/1e6)
			}
		}
	}
	return clientlimit.Assess(v, c)
}

// binder are the requests of the client that binds, from its first binding to
// its last.
func binder(v *diagnose.View) ([]float64, bool) {
	var best diagnose.Stream
	for _, s := range v.Streams() {
		if s.Program == diagnose.Scheduler && len(s.Bindings) > len(best.Bindings) {
			best = s
		}
	}
	if len(best.Bindings) == 0 {
		return nil, false
	}
	first, last := best.Bindings[0], best.Bindings[len(best.Bindings)-1]
	var ts []float64
	for _, t := range best.Times {
		if t >= first && t <= last {
			ts = append(ts, t)
		}
	}
	return ts, true
}

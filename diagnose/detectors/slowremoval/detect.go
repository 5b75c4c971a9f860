package slowremoval

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// late is the mean time in seconds that an object must wait for the collector,
	// and fewest is of how many.
	late, fewest = 2.0, 20
	// busy is the part of the workers' time from which they hold things up.
	busy = 0.8
	// flags of the controller manager, and the collector's name in metrics
	// and user agents, as of v1.36.
	queue          = "garbage_collector_attempt_to_delete"
	agent          = "generic-garbage-collector"
	workersFlag    = "concurrent-gc-syncs"
	defaultWorkers = 20.0
	// near a limit is within this part of it; flat is the part of the time that
	// the rate must keep.
	near, flat = 0.1, 0.5
	// always is how many seconds of waiting in limiters a second of a bucket that is
	// always empty has at least.
	always = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "slow-removal",
	Title: "What deleted objects leave behind is removed slowly",
	Doc: `When a Deployment is deleted, its ReplicaSets and pods stay until the garbage collector of kube-controller-manager has deleted each of them: one GET and one DELETE an object at least,
under the client limit of the controller manager (--kube-api-qps, 20 unless set), by --concurrent-gc-syncs workers (20).

**Evidence.** Objects wait 2 s or more on average in the queue of the collector (workqueue_queue_duration_seconds of garbage_collector_attempt_to_delete). With that, its requests keep the limit's rate (within 10 %, for half of the time), and
rest_client_rate_limiter_duration_seconds grows: the limit. Or its workers are busy 80 % of the time (workqueue_work_duration_seconds) and the limit is not reached: the workers.

**Charged.** Nothing waits for these objects that stages know, so no lost pod-seconds are claimed: the finding stands for the share of the time that the collector worked.

**Look-alikes.** A dead API (aggregated-api: the collector does not come to some kinds at all); a slow API server (each request takes long, the limit is not reached, and the machine or etcd are found); pods that take their grace period (the queue is empty).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	match := diagnose.Labels{"name": queue}
	wait, n, ok := v.Mean(diagnose.ControllerManager, "workqueue_queue_duration_seconds", match)
	_, recorded := v.Increase(diagnose.ControllerManager, "workqueue_queue_duration_seconds_count", match)
	switch {
	case !recorded:
		return diagnose.NotAssessed("workqueue_queue_duration_seconds of kube-controller-manager")
	case !ok || n < fewest:
		return diagnose.NotThere("the garbage collector was asked for %.0f objects", n)
	case wait < late:
		return diagnose.NotThere("objects waited %.2f s for the garbage collector on average (n=%.0f)", wait, n)
	}
	work, ok := v.Increase(diagnose.ControllerManager, "workqueue_work_duration_seconds_sum", match)
	if !ok {
		return diagnose.NotAssessed("workqueue_work_duration_seconds of kube-controller-manager")
	}
	var times []float64
	for _, s := range v.Streams() {
		if s.Program == diagnose.ControllerManager && strings.Contains(s.Role, agent) {
			times = append(times, s.Times...)
		}
	}
	if len(times) < fewest {
		return diagnose.NotAssessed("the requests of the garbage collector: they are in the audit log only")
	}
	slices.Sort(times)
	span := times[len(times)-1] - times[0]
	workers := defaultWorkers
	if x, set, _ := v.Flag(diagnose.ControllerManager, workersFlag); set {
		if n, err := strconv.ParseFloat(x, 64); err == nil && n > 0 {
			workers = n
		}
	}
	use := min(1, work/(workers*span))
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Sources: 1,
		RemovalShare: min(1, span/v.Load.Seconds()),
		Suffered:     fmt.Sprintf("%.0f objects that were to be removed waited %.1f s each for the garbage collector", n, wait),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: fmt.Sprintf(`workqueue_queue_duration_seconds{component="kube-controller-manager",name=%q}`, queue), Value: wait, Unit: "s", Text: fmt.Sprintf("an object waited %.1f s for the garbage collector on average (n=%.0f)", wait, n)},
			{Kind: "busy", Ref: fmt.Sprintf(`workqueue_work_duration_seconds_sum{component="kube-controller-manager",name=%q}`, queue), Value: use, Unit: "1", Text: fmt.Sprintf("%.1f s of work by %g workers in %.1f s", work, workers, span)},
		},
	}
	limit := v.Limit(diagnose.ControllerManager)
	p, ok := stat.PlateauOf(times, int(max(0, limit.Burst)))
	waited, counted := v.Increase(diagnose.ControllerManager, "rest_client_rate_limiter_duration_seconds_sum", nil)
	atLimit := ok && limit.QPS > 0 && p.Rate >= (1-near)*limit.QPS && p.Rate <= (1+near)*limit.QPS && p.Flat >= flat
	switch {
	case atLimit && (!counted || waited >= always*p.Seconds):
		f.Resource = "client-limit"
		f.Cause = fmt.Sprintf("client-side rate limit of the garbage collector: %g requests a second", limit.QPS)
		f.Summary = fmt.Sprintf("The garbage collector may send only %g requests a second, and removes %.1f objects a second: what %.0f deleted objects left behind waited %.1f s each.", limit.QPS, n/span, n, wait)
		f.Evidence = append(f.Evidence,
			diagnose.Evidence{Kind: "rate", Ref: "requests: userAgent of " + agent, Value: p.Rate, Unit: "1/s", Text: fmt.Sprintf("%.2f a second over %.0f s (n=%d), %.0f %% of the time within 10 %% of that", p.Rate, p.Seconds, p.N, 100*p.Flat)},
			diagnose.Evidence{Kind: "config", Ref: diagnose.ControllerManager + " --kube-api-qps", Value: limit.QPS, Unit: "1/s", Text: fmt.Sprintf("limit %g/s, burst %g (%s)", limit.QPS, limit.Burst, limit.Source)})
		if counted {
			f.Sources++
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `rest_client_rate_limiter_duration_seconds_sum{component="kube-controller-manager"}`, Value: waited, Unit: "s", Text: fmt.Sprintf("its requests waited %.0f s in client limiters", waited)})
		}
		f.Advice = diagnose.Advice{
			Text: fmt.Sprintf("Raise --kube-api-qps of %s to %g and --kube-api-burst to %g. It costs more requests to the API server at a time while something is removed, nothing else.", diagnose.ControllerManager, 10*limit.QPS, 20*limit.QPS),
			Set:  map[string]string{diagnose.ControllerManager + ".args.kube-api-qps": fmt.Sprintf("%g", 10*limit.QPS), diagnose.ControllerManager + ".args.kube-api-burst": fmt.Sprintf("%g", 20*limit.QPS)},
		}
		f.RefutedBy = "a run with a higher limit in which objects are removed no faster"
	case use >= busy && !v.API.Slow():
		f.Resource = "workers"
		f.Sources = 2
		f.Cause = fmt.Sprintf("--%s=%g: all workers of the garbage collector are busy and objects queue", workersFlag, workers)
		f.Summary = fmt.Sprintf("The garbage collector removes %g objects at a time and has no worker free %.0f %% of the time: what %.0f deleted objects left behind waited %.1f s each.", workers, 100*use, n, wait)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: diagnose.ControllerManager + ".args." + workersFlag, Value: workers, Unit: "workers", Text: fmt.Sprintf("--%s=%g (default %g)", workersFlag, workers, defaultWorkers)})
		more := max(defaultWorkers, 4*workers)
		f.Advice = diagnose.Advice{
			Text: fmt.Sprintf("Give the garbage collector more workers: --%s=%g. The price is more requests at a time to the API server.", workersFlag, more),
			Set:  map[string]string{diagnose.ControllerManager + ".args." + workersFlag: fmt.Sprintf("%g", more)},
		}
		f.RefutedBy = "a run with more workers in which objects wait as long"
	default:
		return diagnose.NotThere("%.0f objects waited %.1f s each for the garbage collector, which is neither at its limit (%.1f of %g requests a second) nor out of workers (%.0f %% busy)", n, wait, float64(len(times))/span, limit.QPS, 100*use)
	}
	return diagnose.Found(f)
}

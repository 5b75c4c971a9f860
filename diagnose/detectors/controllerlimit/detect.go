package controllerlimit

import (
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/clientlimit"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/refusal"
)

// spent is the part of the pods that a controller creates in vain from which its limit is
// not what pods wait for: most of what it allows is spent on refusals.
const spent = 0.5

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "controller-client-limit",
	Title: "A controller waits for its own client-side rate limit",
	Doc: `Every controller of kube-controller-manager has its own clientset, and client-go gives each one token bucket:
--kube-api-burst requests at once (default 30), then --kube-api-qps a second (default 20), all verbs together. A
ReplicaSet controller that has 1,500 pods to create creates 20 a second, however idle the cluster is.

**Evidence.** Pods wait in stage controller (at least 10 % of the lost pod-seconds). The requests of the controller's user agent
that creates the pods keep one rate after the burst, within 10 % of the configured limit (97 % of it where the machine or a component is
full as well: only an empty bucket then holds anyone back). Independent of that,
rest_client_rate_limiter_duration_seconds of kube-controller-manager grows: below 5 % of the time nobody waited and the cause is
ruled out, from half of the time on it counts as the second source and the finding is confirmed.

**Charged.** What pods wait there while the requests follow each other at the limit; all of it from 85 % on. A controller that waits for the
answers to one batch before it sends the next (slow admission), or for its next try (refusals), sends at the limit too, now and then.

**Without** the audit log the pods' creation times stand in; without flags a metronome (gaps vary by less than 0.5) is enough for
*possible*, with the limiter's counter for more.

**Contradicting.** At least half of the pods that it asks for are refused (creates-refused): then its limit is spent on these, and is a risk: it comes next.

**Look-alikes.** Slow start of a ReplicaSet (1, 2, 4, … doubles instead of staying flat); too few workers (no wait in the limiter); a starved API server
(rate below the limit, something is full); a generator that paces the load (stage submit, or no waiting at all); runs of fewer than 30 requests beyond the burst.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	if v.Meta.Workload.Controller == "" && allBare(v) {
		return diagnose.NotThere("bare pods: no controller creates them")
	}
	if !v.Known(diagnose.Controller) {
		return diagnose.NotAssessed("stage controller: %s", v.Stage(diagnose.Controller).Reason)
	}
	c := clientlimit.Client{
		Component: diagnose.ControllerManager, Stage: diagnose.Controller, Claim: diagnose.Controller,
		Who: "the controller that creates the pods", Per: "creates at most one pod",
		Settings: "the clientConnection of the controller manager",
	}
	if s, ok := creator(v); ok {
		c.Requests, c.FromAudit = s, true
		c.Who = "the " + name(v)
	} else {
		for _, p := range v.Pods {
			if p.CreatedMicros != 0 && p.Owner != "" {
				c.Requests = append(c.Requests, float64(p.CreatedMicros-v.Load.Start.UnixMicro())/1e6)
			}
		}
	}
	out := clientlimit.Assess(v, c)
	if made := asked(v); made.Share() >= spent {
		for i := range out.Found {
			f := &out.Found[i]
			f.Class, f.Claims = diagnose.Risk, nil
			f.Summary = "There is a " + f.Cause + "." + diagnose.Behind
		}
	}
	return out
}

// asked are the pods that controllers asked for.
func asked(v *diagnose.View) (made refusal.Count) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "create" && t.Resource == "pods" && strings.HasPrefix(t.Agent, diagnose.ControllerManager)
	}) {
		made.Add(t.Count, t.Codes)
	}
	return made
}

func allBare(v *diagnose.View) bool {
	for _, p := range v.Pods {
		if p.Owner != "" {
			return false
		}
	}
	return true
}

// stream is the client of the controller manager that creates most pods.
func stream(v *diagnose.View) (best diagnose.Stream, ok bool) {
	for _, s := range v.Streams() {
		if s.Program == diagnose.ControllerManager && len(s.Creates) > len(best.Creates) {
			best, ok = s, true
		}
	}
	return best, ok
}

// creator are its requests of all verbs, from its first pod to its last:
// before and after it has nothing to do, whatever its limit.
func creator(v *diagnose.View) ([]float64, bool) {
	s, ok := stream(v)
	if !ok {
		return nil, false
	}
	first, last := s.Creates[0], s.Creates[len(s.Creates)-1]
	var ts []float64
	for _, t := range s.Times {
		if t >= first && t <= last {
			ts = append(ts, t)
		}
	}
	return ts, true
}

func name(v *diagnose.View) string {
	s, _ := stream(v)
	if s.Role == "" {
		return "controller"
	}
	return s.Role
}

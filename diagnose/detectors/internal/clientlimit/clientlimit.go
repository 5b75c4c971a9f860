// Package clientlimit tells whether a component is held back by its own
// client-side rate limiter: the part that the detectors controllerlimit and
// schedulerlimit share.
//
// client-go gives every clientset one token bucket: burst requests at once,
// then qps a second, all verbs together. A client that always has more to ask
// than that sends at exactly qps, whatever else the machine could do: a
// metronome. That shape, the configured number and the client's own wait
// counter are three witnesses; the waiting pods are the symptom.
package clientlimit

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Client is whose limiter is judged, and where its pods would wait.
type Client struct {
	Component string
	Stage     string // that its limiter holds up
	Claim     string // the stage whose waiting it explains: Stage, or Scheduling where that is not split
	Who       string // for people: "the replicaset-controller"
	Per       string // what one request does: "creates a pod"
	Requests  []float64
	FromAudit bool // Requests are the client's, not inferred from the watch
	// DirectWait: seconds in the limiter are pod-seconds one to one, as each
	// pod waits in a goroutine of its own.
	DirectWait bool
	Settings   string // where to change it when flags are not in force
}

// Thresholds, with their reasons.
const (
	// A binding limiter sends at qps ± 2 %; 10 % covers a plateau of a few
	// dozen requests and the requests that the audit policy leaves out.
	near = 0.90
	// Where something upstream is full as well, only a bucket that is always
	// empty can be the cause: then the rate is qps itself.
	nearUpstream = 0.97
	above        = 1.10
	// Events and status updates share a controller's bucket, so that pods
	// alone, all that is seen without audit (or with a policy that leaves
	// events out), can be less than half.
	nearWithoutAudit = 0.40
	// The limiter's wait in seconds per second of the plateau: below 5 % of
	// the wall nobody was waiting (research/faults.md 3.5), above half the
	// time at least one request was.
	waitFloor, waitAlways = 0.05, 0.50
	// Flat: share of the plateau's segments within 10 % of its rate. With the
	// number known half is enough (a ReplicaSet starts each batch of 500 with
	// 1, 2, 4, …); without it the shape must carry the proof alone.
	flatKnown, flatUnknown = 0.5, 0.7
	// Gaps of a metronome vary by the jitter of the way (CV < 0.3 measured),
	// those of work by about 1.
	metronome = 0.5
	// Where a stretch of requests is closer than this to the limit the bucket is
	// empty: a second's requests vary by some, as other threads' turns do.
	emptyBucket = 0.8
	// From this share of the pods' waiting on the limit is why they wait, all of
	// the time: how the first batch begins and how the last one ends is its effect.
	nearlyAlways = 0.85
	// A limiter that held a run up for less than 3 s beyond its burst is no
	// news: the start of the pods alone takes a second.
	shortest = 3
)

// Assess judges one client.
func Assess(v *diagnose.View, c Client) diagnose.Outcome {
	excess := v.Excess(c.Claim)
	if !v.Symptom() {
		return diagnose.NotThere("pods were not held up: %.1f s lost of %.1f s on their way", v.Lost.PodSeconds, v.Lost.TotalPodSeconds)
	}
	if excess < 0.1*v.Lost.PodSeconds {
		return diagnose.NotThere("stage %s lost only %.0f of %.0f pod-seconds", c.Claim, excess, v.Lost.PodSeconds)
	}
	limit := v.Limit(c.Component)
	if limit.QPS < 0 {
		return diagnose.NotThere("%s has no client-side limit (--kube-api-qps=%g)", c.Component, limit.QPS)
	}
	waited, hasWait := v.Increase(c.Component, "rest_client_rate_limiter_duration_seconds_sum", nil)
	p, ok := stat.PlateauOf(c.Requests, int(limit.Burst))
	switch {
	case float64(len(c.Requests)) <= limit.Burst:
		return diagnose.NotThere("%s sent %d requests, and may send %g at once", c.Who, len(c.Requests), limit.Burst)
	case !ok || p.Seconds < shortest:
		return diagnose.NotThere("%s sent %d requests: after the burst of %g too few for a limiter to matter", c.Who, len(c.Requests), limit.Burst)
	}
	upstream := v.Upstream()
	known := limit.QPS > 0
	if known && p.Rate > above*limit.QPS {
		known = false // another number is in force than the recorded one
	}
	if hasWait && waited < waitFloor*p.Seconds {
		return diagnose.NotThere("%s waited %.2f s in its client limiter in %.0f s", c.Component, waited, p.Seconds)
	}
	if known {
		floor := near
		switch {
		case upstream != "":
			floor = nearUpstream
		case (!c.FromAudit || !v.AuditsEvents()) && hasWait && waited >= waitAlways*p.Seconds:
			floor = nearWithoutAudit
		}
		if p.Rate < floor*limit.QPS {
			why := fmt.Sprintf("%s sent %.1f requests/s of the %g/s that its limit allows", c.Who, p.Rate, limit.QPS)
			if upstream != "" {
				why += "; " + upstream
			}
			return diagnose.NotThere("%s", why)
		}
		if p.Flat < flatKnown {
			return diagnose.NotThere("%s sends about its limit on average, but not at a constant rate (%.0f %% of the time within 10 %%)", c.Who, 100*p.Flat)
		}
	} else {
		if upstream != "" {
			return diagnose.NotThere("the limit of %s is not recorded, and %s", c.Component, upstream)
		}
		if p.Flat < flatUnknown || p.CV > metronome {
			return diagnose.NotThere("%s does not send at a constant rate (%.0f %% of the time within 10 %% of %.1f/s, gaps vary by %.2f)", c.Who, 100*p.Flat, p.Rate, p.CV)
		}
		if hasWait && waited < waitAlways*p.Seconds {
			return diagnose.NotThere("%s waited %.2f s in its client limiter in %.0f s", c.Component, waited, p.Seconds)
		}
	}

	mass := excess
	if c.DirectWait && hasWait {
		// Each second in the limiter is a pod-second. Where it holds most of
		// the stage the rest queues behind it. The limiter counts what has left it: in a run
		// that was cut off it stands beside the bindings that had ended.
		wait := v.Stage(c.Claim).WaitSeconds
		bound, ok := v.Increase(c.Component, "scheduler_framework_extension_point_duration_seconds_sum", diagnose.Labels{"extension_point": "Bind"})
		if v.Cut && ok && wait != nil && bound > 0 {
			ended := min(*wait, bound)
			wait = &ended
		}
		if wait == nil || waited < 0.5**wait {
			mass = min(excess, waited)
		}
	}
	// It explains what pods wait while the bucket is empty. A controller that
	// waits for the answers to one batch before it sends the next, or for its next
	// try, has tokens then, although it spends them fast when it sends.
	always := true
	if !c.DirectWait {
		if share, ok := v.WaitedDuring(c.Claim, Empty(c.Requests, p.Rate, v.Load.Start)); ok && share < nearlyAlways {
			always, mass = false, share*excess
		}
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: c.Component, Stage: c.Stage, Resource: "client-limit",
		Claims: map[string]float64{c.Claim: mass},
		Direct: true, // waiting in a limiter is caused by nothing upstream
	}
	number := fmt.Sprintf("%g requests a second", limit.QPS)
	if !known {
		number = fmt.Sprintf("about %.0f requests a second", p.Rate)
	}
	f.Cause = fmt.Sprintf("client-side rate limit of %s: %s", c.Who, number)
	f.Summary = fmt.Sprintf("%s may send only %s, and each %s: pods come at %.1f/s, %s.", upper(c.Who), number, c.Per, v.Rate, idleness(v))
	if !always {
		f.Summary = fmt.Sprintf("%s may send only %s, and each %s: that is why pods wait %.0f %% of their time there, and not the rest of it. They come at %.1f/s, %s.", upper(c.Who), number, c.Per, 100*mass/excess, v.Rate, idleness(v))
	}
	f.Evidence = evidence(v, c, p, limit, known, waited, hasWait, excess)
	if !always {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "stages: " + c.Claim, Value: mass / excess, Unit: "1", Text: fmt.Sprintf("in %.0f %% of the pods' waiting there requests followed each other at the limit", 100*mass/excess)})
	}
	f.Sources = 1
	if hasWait && waited >= waitAlways*p.Seconds {
		f.Sources = 2
	} else if !known {
		f.Grade = diagnose.Possible // the shape alone
	}
	advise(v, c, p, limit, known, &f)
	f.RefutedBy = fmt.Sprintf("a run with a higher limit in which pods do not come faster, or with %g of it in which they do not come at %.1f/s", less, less*v.Rate)
	return diagnose.Found(f)
}

// Empty are the stretches of a client's requests, in seconds since start, that follow each
// other at about rate (1/s) or faster: then its bucket holds no token.
func Empty(requests []float64, rate float64, start time.Time) (windows []record.Window) {
	ts := slices.Sorted(slices.Values(requests))
	if len(ts) < 2 || rate <= 0 {
		return nil
	}
	// Ten requests or two seconds, whichever is longer, so that one that is late
	// ends no stretch.
	long := max(2, 10/rate)
	at := func(t float64) time.Time { return start.Add(time.Duration(t * float64(time.Second))) }
	next, until := 0, -1 // the first request out of reach; the last of a full stretch so far
	for i := range len(ts) - 1 {
		for next < len(ts) && ts[next] <= ts[i]+long {
			next++
		}
		if float64(next-i) >= emptyBucket*rate*long {
			until = next - 1
		}
		switch n := len(windows); {
		case i >= until:
		case n > 0 && windows[n-1].End.Equal(at(ts[i])):
			windows[n-1].End = at(ts[i+1])
		default:
			windows = append(windows, record.Window{Start: at(ts[i]), End: at(ts[i+1])})
		}
	}
	return windows
}

// idleness says what else was busy, as the first thing a reader asks.
func idleness(v *diagnose.View) string {
	if up := v.Upstream(); up != "" {
		return "and that is the cause although " + up
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		return fmt.Sprintf("while the machine's CPU is only %.0f %% busy", 100*m.Share)
	}
	return "and nothing else was seen to be full"
}

func evidence(v *diagnose.View, c Client, p stat.Plateau, l diagnose.Limit, known bool, waited float64, hasWait bool, excess float64) []diagnose.Evidence {
	table := "requests: userAgent of " + c.Who
	if !c.FromAudit {
		table = "pods: times seen by the watch"
	}
	es := []diagnose.Evidence{
		{Kind: "wait", Ref: "stages: " + c.Claim, Value: excess, Unit: "pod-seconds", Text: fmt.Sprintf("pods lost %.0f of %.0f pod-seconds in stage %s", excess, v.Lost.PodSeconds, c.Claim)},
		{Kind: "rate", Ref: table, Value: p.Rate, Unit: "1/s", Text: fmt.Sprintf("%.2f a second over %.0f s (n=%d), %.0f %% of the time within 10 %% of that, gaps vary by %.2f (0 is a metronome, 1 is chance)", p.Rate, p.Seconds, p.N, 100*p.Flat, p.CV)},
	}
	switch {
	case known:
		es = append(es, diagnose.Evidence{Kind: "config", Ref: c.Component + " --kube-api-qps", Value: l.QPS, Unit: "1/s", Text: fmt.Sprintf("limit %g/s, burst %g (%s)", l.QPS, l.Burst, l.Source)})
	case l.QPS > 0:
		es = append(es, diagnose.Evidence{Kind: "config", Ref: c.Component + " --kube-api-qps", Value: l.QPS, Unit: "1/s", Text: "the recorded limit is lower than the rate: another one is in force"})
	default:
		d := diagnose.DefaultLimit(c.Component)
		text := fmt.Sprintf("flags not recorded; the default is %g/s", d)
		if p.Rate > near*d && p.Rate < above*d {
			text += ", which is what was measured"
		}
		es = append(es, diagnose.Evidence{Kind: "config", Ref: c.Component + " --kube-api-qps", Value: d, Unit: "1/s", Text: text})
	}
	if hasWait {
		es = append(es, diagnose.Evidence{Kind: "wait", Ref: fmt.Sprintf(`rest_client_rate_limiter_duration_seconds_sum{component="%s"}`, c.Component), Value: waited, Unit: "s", Text: fmt.Sprintf("requests of %s waited %.0f s in its client limiters", c.Component, waited)})
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		es = append(es, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	return es
}

// advise gives a value that surely lifts the limit: ten times what the
// machine's CPU could carry, so that the limiter cannot be next, and still a
// stop for a controller that runs wild. The server's own priority and fairness
// protects it better than any client can.
func advise(v *diagnose.View, c Client, p stat.Plateau, l diagnose.Limit, known bool, f *diagnose.Finding) {
	now, burst := l.QPS, l.Burst
	if !known {
		now, burst = p.Rate, 2*p.Rate
	}
	perPod := 1.0
	if v.Rate > 0 {
		perPod = max(1, p.Rate/v.Rate)
	}
	could := now
	if m, ok := v.Resource(diagnose.Machine, "cpu"); ok && m.Bound > 0 {
		could = max(could, m.Bound*perPod)
	}
	qps := nice(10 * could)
	f.Advice = diagnose.Advice{
		Text: fmt.Sprintf("Raise --kube-api-qps of %s to %g and --kube-api-burst to %g: ten times what this machine could use, so that the limiter cannot be the next one, and API priority and fairness on the server remains the guard. It costs more requests to the API server at a time, nothing when idle.", c.Component, qps, 2*qps),
		Set:  set(c.Component, qps, 2*qps),
	}
	next, hasNext := v.NextBound(func(r diagnose.Resource) bool { return r.Kind == "client-limit" && r.Component == c.Component })
	if hasNext {
		f.Prediction = &diagnose.Prediction{Resource: next.Name, Rate: next.Bound, Text: "without this limit, " + next.BindsAt()}
	} else {
		f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: "what binds next was not measured in this run"}
	}
	if file, _, _ := v.Flag(c.Component, "config"); file != "" {
		// The flags would be ignored.
		f.Advice.Text = fmt.Sprintf("Raise %s to qps %g and burst %g; the flags are ignored while --config is given.", c.Settings, qps, 2*qps)
		f.Advice.Set = nil
		return
	}
	dose := func(factor float64) diagnose.Dose {
		rate := v.Rate * factor
		if hasNext {
			rate = min(rate, next.Bound)
		}
		return diagnose.Dose{Set: set(c.Component, now*factor, max(1, float64(int(burst*factor+0.5)))), PredictRate: rate}
	}
	// A rise shows that it helps, if nothing else binds before; a fall is free of
	// whatever binds next, but its run takes longer.
	up, first := 2.0, true
	if hasNext && next.Bound < up*clearance*v.Rate {
		up = 1.5
		first = next.Bound >= up*clearance*v.Rate
	}
	f.Advice.Dose = []diagnose.Dose{dose(up), dose(less)}
	if !first {
		slices.Reverse(f.Advice.Dose)
	}
}

// less is a lower dose's part of the limit: far enough from all of it to be told
// apart (compare.Tolerance), while the run does not get much longer.
const less = 0.7

// clearance is how far above a dose's rate the next bound must be, so that the dose
// is met undisturbed.
const clearance = 1.1

func set(component string, qps, burst float64) map[string]string {
	return map[string]string{
		component + ".args.kube-api-qps":   strconv.FormatFloat(qps, 'g', 6, 64),
		component + ".args.kube-api-burst": strconv.FormatFloat(burst, 'f', 0, 64),
	}
}

// nice rounds up to a number that people would write.
func nice(x float64) float64 {
	for _, n := range []float64{500, 1000, 2000, 5000, 10000} {
		if x <= n {
			return n
		}
	}
	return 20000
}

func upper(s string) string { return string(s[0]-'a'+'A') + s[1:] }

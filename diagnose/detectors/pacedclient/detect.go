package pacedclient

import (
	"fmt"
	"math"
	"slices"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// flat and metronome as of the components' own limiters: the plateau keeps one
	// rate, and its gaps do not vary by chance.
	flat, metronome = 0.7, 0.5
	// shortest plateau in seconds, and fewest requests.
	shortest, fewest = 8.0, 12
	// near a number that somebody chose.
	near = 0.05
	// always: seconds of waiting in the limiter for each second of the plateau.
	always = 0.5
	// later is by how many seconds what it does for a pod must come later at the end
	// than at the beginning.
	later = 2.0
	// eager: a client with work waiting sends its burst at once.
	eager = 1.5
)

// usual are limits that people leave or set: client-go's default of 5, and the
// common ones.
var usual = []float64{5, 10, 20, 30, 40, 50, 100}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "client-own-limit",
	Title: "A client of somebody's own is held by its own limit",
	Doc: `client-go limits each client to 5 requests a second (burst 10) unless it is told otherwise. An operator or a tool with that default works off a backlog at exactly that rate, however idle the cluster is, and neither the API server's metrics nor its own say so, unless somebody scrapes them.

**Evidence.** A client that is none of the control plane's sends a burst at once and then keeps one rate (70 % of the time within 10 %, gaps vary by less than half), at a number that limits have: 5, 10, 20, 30, 40, 50, 100. Where its own counter of waiting was recorded
(rest_client_rate_limiter_duration_seconds) the shape is confirmed or ruled out by it; from the shape alone it is *possible*. Nothing tells what waits behind it, so that no pods are charged: it is a risk.

**Look-alikes.** A client that is paced on purpose, a poller with a ticker (no burst at its start, and its counter does not grow); controllers of the controller manager and the scheduler (controller-client-limit, scheduler-client-limit); a herd of locks that has used up its limit
(lock-herd names the reason); load of our own.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: at what pace clients send is in the audit log only")
	}
	times := map[string][]float64{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Harness && !t.Long }) {
		times[t.Agent] = append(times[t.Agent], t.Times...)
	}
	var agents []string
	for a := range times {
		switch {
		case foreign(a):
			agents = append(agents, a)
		}
	}
	slices.Sort(agents)
	var found []diagnose.Finding
	for _, a := range agents {
		if slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return f.Component == "client:"+a }) {
			continue // its requests are the news, not their pace
		}
		ts := times[a]
		slices.Sort(ts)
		if f, ok := judge(v, a, ts); ok {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return diagnose.NotThere("none of %d clients sends a burst and then one rate that a limit has", len(agents))
	}
	return diagnose.Found(found...)
}

// foreign says whether a client is none of the control plane's.
func foreign(agent string) bool {
	for _, c := range []string{diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler} {
		if len(agent) >= len(c) && agent[:len(c)] == c {
			return false
		}
	}
	return true
}

// even is how little the gaps of a client with few requests must vary.
const even = 0.2

// plateau is the rate that a client keeps after its burst. One that sends a
// request in a second or two has no fifty in a load of some seconds: of it the
// gaps after its burst are looked at, one by one.
func plateau(ts []float64) (p stat.Plateau, ok bool) {
	if p, ok = stat.PlateauOf(ts, 20); ok || len(ts) < fewest {
		return p, ok
	}
	gaps := make([]float64, len(ts)-1)
	for i := range gaps {
		gaps[i] = ts[i+1] - ts[i]
	}
	typical := stat.Median(gaps)
	for len(gaps) > 0 && gaps[0] < typical/2 {
		gaps, ts = gaps[1:], ts[1:]
	}
	cv, ok := stat.InterArrivalCV(ts)
	p.N, p.CV, p.Flat = len(ts), cv, 1
	if ok = ok && len(ts) >= fewest && cv <= even; ok {
		p.Seconds = ts[len(ts)-1] - ts[0]
		p.Rate = float64(len(ts)-1) / p.Seconds
	}
	return p, ok
}

func judge(v *diagnose.View, agent string, ts []float64) (f diagnose.Finding, ok bool) {
	p, ok := plateau(ts)
	if !ok || p.Seconds < shortest || p.N < fewest || p.Flat < flat || p.CV > metronome {
		return f, false
	}
	limit := 0.0
	for _, n := range usual {
		if math.Abs(p.Rate-n) <= near*n {
			limit = n
		}
	}
	burst := 0
	for _, t := range ts {
		if t <= ts[0]+1 {
			burst++
		}
	}
	// Not every program exports client-go's counters: no series is no answer.
	waited := 0.0
	by, _ := v.IncreaseBy(agent, "rest_client_rate_limiter_duration_seconds_sum", "verb", nil)
	for _, b := range by {
		waited += b.Value
	}
	counted := len(by) > 0
	waits := counted && waited >= always*p.Seconds
	first, last, behind := lag(v, agent)
	switch {
	case counted && !waits:
		return f, false // it says itself that it does not wait
	case !waits && !behind && (limit == 0 || float64(burst) < eager*p.Rate):
		return f, false
	}
	f = diagnose.Finding{
		Class: diagnose.Risk, Component: "client:" + agent, Resource: "client-limit", Sources: 1, Grade: diagnose.Possible,
		Cause:   fmt.Sprintf("%s sends %.1f requests a second, its own limit", agent, p.Rate),
		Summary: fmt.Sprintf("%s seems to be held by its own client limit: it sends %d requests at once, and then exactly %.1f a second.", agent, burst, p.Rate),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: userAgent of " + agent, Value: p.Rate, Unit: "1/s", Text: fmt.Sprintf("over %.0f s (n=%d), %.0f %% of the time within 10 %% of that, gaps vary by %.2f (0 is a metronome, 1 is chance)", p.Seconds, p.N, 100*p.Flat, p.CV)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Raise QPS and Burst in the rest.Config of %s, or set QPS to -1 and leave it to the API server's priority and fairness. The price: more requests at a time, which the server then queues instead of the client.", agent)},
		RefutedBy: "the same client with a higher limit that sends no faster",
	}
	talks := v.TalksOf(func(t *diagnose.Talk) bool { return t.Agent == agent && !t.Long })
	f.Cost = v.CostOf(talks, "")
	if waits {
		f.Sources, f.Grade = 2, ""
		f.Summary = fmt.Sprintf("%s is held by its own client limit: it sends %.1f requests a second, whatever waits, and its requests waited %.0f s for that.", agent, p.Rate, waited)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `rest_client_rate_limiter_duration_seconds_sum{component="` + agent + `"}`, Value: waited, Unit: "s", Text: "its requests waited in its client limit"})
	}
	if behind {
		f.Sources++
		f.Grade = ""
		if !waits {
			f.Summary = fmt.Sprintf("%s falls behind: it sends exactly %.1f requests a second, its own client limit by the look of it, and what it does for a pod came %.1f s after the pod ran at first, and %.1f s after at the end.", agent, p.Rate, first, last)
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "late", Ref: "requests, pods: " + agent, Value: last, Unit: "s", Text: fmt.Sprintf("from a pod's running to its request passed %.1f s for the first fifth of the pods, and %.1f s for the last", first, last)})
	}
	return f, true
}

// lag is how long after a pod runs a client writes to it, in the median of the
// first and of the last fifth of the pods; behind says that it falls back.
func lag(v *diagnose.View, agent string) (first, last float64, behind bool) {
	running := map[string]int64{}
	for _, p := range v.Pods {
		if p.RunningMicros != 0 {
			running[p.Namespace+"/"+p.Name] = p.RunningMicros
		}
	}
	seen := map[string]bool{}
	var lags []float64
	for _, r := range v.Requests { // by time
		key := r.Namespace + "/" + r.Name
		if t, ok := running[key]; ok && !seen[key] && r.Resource == "pods" && requests.Agent(r.UserAgent) == agent {
			seen[key] = true
			lags = append(lags, float64(r.ReceivedMicros-t)/1e6)
		}
	}
	fifth := len(lags) / 5
	if len(lags) < fewest {
		return 0, 0, false
	}
	first, last = stat.Median(lags[:fifth]), stat.Median(lags[len(lags)-fifth:])
	return first, last, last >= first+later
}

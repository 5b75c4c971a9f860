// Package layer judges what every request of a kind passes through inside the
// API server (a webhook, authorization, encryption, an audit sink): the part
// that the detectors of slow layers share. Pods wait for it by the part that it
// has of the requests on their way.
package layer

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

// A Layer is what was measured of one.
type Layer struct {
	Name    string  // for people: "webhook x"
	Mean    float64 // seconds for each request that passed
	Count   float64 // requests that passed
	Ref     string
	Passes  func(*diagnose.Talk) bool // which requests pass
	Sources int
	// Who waits: the clients, where they are some of all; "" where all do.
	Who string
}

// All is what passes a layer that nothing goes round.
func All(*diagnose.Talk) bool { return true }

// Changes is what passes a layer on the way into etcd.
func Changes(t *diagnose.Talk) bool {
	return t.Verb == "create" || t.Verb == "update" || t.Verb == "patch"
}

const filters = "apiserver_request_filter_duration_seconds"

// Long are the requests among those that fits tells which can have waited a mean
// time each, count of them: rules and selectors leave others out. of is a kind of
// requests' seconds there; where these tell most of the time, it is the kinds that
// have some. Else it is those that take as long, and where these are too few, all
// that fit may have waited, by turns.
func Long(v *diagnose.View, mean, count float64, of func(*diagnose.Talk) float64, fits func(*diagnose.Talk) bool) func(*diagnose.Talk) bool {
	waits := func(t *diagnose.Talk) bool { return !t.Long && fits(t) && of(t) >= least*float64(t.Count) }
	told := 0.0
	for _, t := range v.TalksOf(waits) {
		told += of(&t)
	}
	if told >= most*mean*count {
		return waits
	}
	long := func(t *diagnose.Talk) bool { return !t.Long && fits(t) && t.Mean >= nearly*mean }
	n := 0
	for _, t := range v.TalksOf(long) {
		n += t.Count
	}
	if float64(n) < most*count {
		return fits
	}
	return long
}

// Filter is a filter of the chain before the API server's handlers, by its own
// clock. of is a kind of requests' seconds in it: where these tell most of the
// filter's time, the layer is of those kinds alone that wait there, for a mean
// over everybody hides the few who do. ok is false without the clock.
func Filter(v *diagnose.View, name string, of func(*diagnose.Talk) float64) (l Layer, ok bool) {
	mean, n, ok := v.Mean(diagnose.APIServer, filters, diagnose.Labels{"filter": name})
	l = Layer{Name: name, Mean: mean, Count: n, Ref: filters + `{filter="` + name + `"}`, Sources: 1, Passes: All}
	if !ok || of == nil {
		return l, ok
	}
	waits := func(t *diagnose.Talk) bool { return !t.Long && of(t) >= least*float64(t.Count) }
	told, seconds, count, all := 0.0, 0.0, 0, 0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long }) {
		all += t.Count
		told += of(&t)
		if waits(&t) {
			seconds += of(&t)
			count += t.Count
		}
	}
	if count == 0 || told < most*mean*n {
		return l, true
	}
	l.Mean, l.Count, l.Passes = seconds/float64(count), float64(count), waits
	if float64(count) < nearly*float64(all) {
		l.Who = consumer.Agents(v.TalksOf(waits))
	}
	return l, true
}

// Each is whose requests wait, to begin a sentence with.
func (l Layer) Each() string {
	if l.Who == "" {
		return "Each request waits"
	}
	return fmt.Sprintf("Each request of %s waits", l.Who)
}

// Thresholds, with their reasons.
const (
	// least is the shortest mean that counts: healthy layers are far below 1 ms,
	// an in-cluster webhook takes some ms (research/faults.md 3.5).
	least = 0.010
	// part is the least share of the requests' time.
	part = 0.10
	// risky is what is named although nothing suffers yet.
	risky = 0.050
	// crowded is the least mean where a CPU is full: whatever is asked waits for it
	// there, and 12 ms were measured of a webhook that takes one.
	crowded = 0.100
	// queueing is how many requests of the 5 workers that the deployment controller has
	// are under way at once, from which on others queue.
	queueing = 3.0
	// occupied is the share of a controller's workers from which on they are what the
	// others wait for, and queues how long an object must wait for one, in seconds.
	occupied, queues = 0.5, 0.1
	few              = 10 // requests, below which a mean is an accident
	// alone is the least mean of fewer requests, where many pods wait for each of them.
	alone = 0.5
	// tried is the share of refusals from which on a controller hardly ever gets beyond a
	// batch of one.
	tried = 0.2
	// most is the least part of a filter's time that requests must tell of, and of a
	// layer's calls that requests as long must account for; nearly the share of all
	// requests from which on it is everybody who waits, and of a layer's mean time
	// from which on a request is as long.
	most, nearly = 0.5, 0.9
)

// onTheWay are the requests that a pod passes, by the stage that waits for them.
var onTheWay = []passage{
	{diagnose.Accept, "create", ""},              // by the load: pods, or what owns them
	{diagnose.Controller, "create", replicaSets}, // of a Deployment, before its pods
	{diagnose.Controller, "create", "pods"},
	{diagnose.Bind, "create", "pods/binding"},
	{diagnose.Start, "create", tokens}, // of a pod, by its node, before its containers
	{diagnose.Start, "patch", "pods/status"},
	{diagnose.Start, "delete", "pods"}, // of pods that have ended, by the worker that reports others as running
}

// tokens are what the pods' volumes hold.
const tokens = "serviceaccounts/token"

// replicaSets are what pods wait for although no request of theirs does.
const replicaSets = "replicasets"

type passage struct{ stage, verb, resource string }

// holds says whether requests are those that pods pass there.
func (p passage) holds(t *diagnose.Talk) bool {
	mine := false
	switch node := diagnose.OfNode(t.Agent); p.stage {
	case diagnose.Start:
		mine = node
	case diagnose.Accept:
		mine = t.Harness && !node
	default:
		mine = !t.Harness
	}
	return mine && t.Verb == p.verb && (p.resource == "" || t.Resource == p.resource)
}

// Share is which part of the time of the requests that pass a layer has.
// known is false without an audit log.
func (l Layer) Share(v *diagnose.View) (share float64, known bool) {
	mean, n, ok := took(v, l.Passes)
	if !ok {
		return 0, false
	}
	return min(1, l.each(n)/mean), true
}

// each is what one of n requests, which are all that pass the layer, spends in it:
// one that ends in a conflict inside the API server passes it again.
func (l Layer) each(n int) float64 { return l.Mean * max(1, l.Count/float64(n)) }

func took(v *diagnose.View, fits func(*diagnose.Talk) bool) (mean float64, n int, ok bool) {
	var seconds float64
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long && t.Seconds >= 0 && fits(t) }) {
		seconds += t.Seconds
		n += t.Count
	}
	if n == 0 || seconds <= 0 {
		return 0, 0, false
	}
	return seconds / float64(n), n, true
}

// Quick says why a layer is none to speak of; "" where it is.
func (l Layer) Quick(v *diagnose.View) string {
	if l.Count < few && !(l.Mean >= alone && l.before(v)) || l.Mean < least {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests", l.Name, 1000*l.Mean, l.Count)
	}
	if up := v.Upstream(); up != "" && l.Mean < crowded {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests, and %s", l.Name, 1000*l.Mean, l.Count, up)
	}
	if share, ok := l.Share(v); ok && share < part {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests, %.0f %% of their time", l.Name, 1000*l.Mean, l.Count, 100*share)
	}
	return ""
}

// Still says why a layer inside the API server is none to speak of where the server itself
// stood still: what it had begun took until it went on.
func (l Layer) Still(earlier []diagnose.Finding) string {
	for _, f := range earlier {
		if f.ID == "standstill" && f.Component == diagnose.APIServer && l.Mean < crowded {
			return fmt.Sprintf("%s took %.1f ms of each of %.0f requests, and %s", l.Name, 1000*l.Mean, l.Count, strings.TrimSuffix(f.Cause, "."))
		}
	}
	return ""
}

// before says that a request which many pods wait for, made before any of them is,
// passes the layer: that of what owns them.
func (l Layer) before(v *diagnose.View) bool {
	return len(v.TalksOf(func(t *diagnose.Talk) bool {
		owner := onTheWay[0].holds(t) && t.Resource != "pods" || onTheWay[1].holds(t)
		return owner && l.Passes(t)
	})) > 0
}

// Finding fills in what waits for the layer. ok is false where nothing does and
// it is not slow enough to be a risk.
func (l Layer) Finding(v *diagnose.View, f *diagnose.Finding) (ok bool) {
	f.Component, f.Sources = diagnose.APIServer, max(1, l.Sources)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: l.Ref, Value: l.Mean, Unit: "s", Text: fmt.Sprintf("%s took %.0f ms on average (n=%.0f)", l.Name, 1000*l.Mean, l.Count)})
	if share, known := l.Share(v); known {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests", Value: share, Unit: "1", Text: fmt.Sprintf("%.0f %% of the time of the requests that pass it, by the API server's log of requests", 100*share)})
	}
	if m, has := v.MachineCPU(v.Plateau); has {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	text, suffers := v.Suffers()
	if suffers {
		f.Claims = l.claims(v)
		f.RequestSeconds = min(v.API.LostSeconds, l.Mean*l.Count)
		if len(f.Claims) > 0 || v.API.Slow() {
			f.Class = diagnose.Bottleneck
			longest := 0.0
			for stage, x := range f.Claims {
				if x > longest || x == longest && stage < f.Stage {
					longest, f.Stage = x, stage
				}
			}
			if f.Stage == diagnose.Scheduling {
				f.Stage = diagnose.Bind
			}
			if f.Stage == "" {
				f.Stage = l.stage(v)
			}
			f.Suffered = text
			f.Direct = true // its own clock measured it; no CPU makes a sleep shorter
			return true
		}
	}
	f.Class, f.Stage = diagnose.Risk, l.stage(v)
	return l.Mean >= risky
}

// Outcome ends a sentence about the layer with what a finding says of those who
// wait for it.
func Outcome(f *diagnose.Finding) string {
	if f.Class == diagnose.Risk && f.Stage != "" {
		return fmt.Sprintf("; pods wait for it in stage %s, for too short a time to count as lost.", f.Stage)
	}
	if f.Class == diagnose.Risk {
		return "; nothing else was held up by it."
	}
	return ": " + f.Suffered + "."
}

// onceEach is the most that pods can wait for a request that is made once for many of
// them, before any: its time each, and what they like where so many such requests are
// under way that others queue behind them.
func (l Layer) onceEach(v *diagnose.View, w passage) float64 {
	if l.seconds(v, w) >= queueing*v.Span() {
		return math.Inf(1)
	}
	return l.Mean * float64(v.Arrived())
}

// behindEach is how many pods wait for one request at a time at the most: those of its
// owner, or of its node, and where there are many owners, those whose owners wait for a
// worker.
func (l Layer) behindEach(v *diagnose.View, stage string) float64 {
	pods, owners := v.Owned()
	switch {
	case stage == diagnose.Controller && owners > 0:
		return max(1, float64(pods)/float64(owners), float64(pods)/diagnose.ReplicaSets.Workers(v))
	case stage == diagnose.Start && v.Meta.Nodes.Count > 0:
		return max(1, float64(v.Counts.Seen)/float64(v.Meta.Nodes.Count))
	}
	return 1
}

// occupies is the part of a controller's workers that wait in the layer with requests
// which no pod passes, as those that report a workload's status, while the objects of
// pods queue for one.
func (l Layer) occupies(v *diagnose.View) (share float64) {
	for _, c := range diagnose.PodControllers {
		seconds := 0.0
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
			return strings.HasSuffix(t.Agent, c.Agent) && t.Writes() && l.Passes(t) && !slices.ContainsFunc(onTheWay, func(w passage) bool { return w.holds(t) })
		}) {
			seconds += l.Mean * float64(t.Count)
		}
		wait, _, ok := v.Mean(diagnose.ControllerManager, "workqueue_queue_duration_seconds", diagnose.Labels{"name": c.Queue})
		if ok && wait >= queues && v.Plateau.Seconds() > 0 {
			share = max(share, min(1, seconds/(c.Workers(v)*v.Plateau.Seconds())))
		}
	}
	return share
}

// tries is the most that pods can wait for creates of which many are refused: between
// its tries their controller waits for its turn and for nothing else. One that was
// refused goes on with one pod at a time, so that all of its owner wait for each.
func (l Layer) tries(v *diagnose.View, w passage) float64 {
	pods, owners := v.Owned()
	return l.seconds(v, w) * float64(pods) / float64(max(1, owners))
}

// refused is the share of the requests that pods pass there and that pass the layer
// which came back with an error.
func (l Layer) refused(v *diagnose.View, w passage) float64 {
	all, refused := 0, 0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return w.holds(t) && l.Passes(t) }) {
		all += t.Count
		for code, n := range t.Codes {
			if code >= 400 {
				refused += n
			}
		}
	}
	return float64(refused) / float64(max(1, all))
}

// behind is the most that pods can wait because a node's worker is busy with requests
// of this kind: what they take of a node, each.
func (l Layer) behind(v *diagnose.View, w passage) float64 {
	return l.seconds(v, w) / float64(max(1, v.Meta.Nodes.Count)) * float64(v.Arrived())
}

// seconds are those of the requests that pods pass there and that pass the layer.
func (l Layer) seconds(v *diagnose.View, w passage) (seconds float64) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return w.holds(t) && l.Passes(t) }) {
		seconds += t.Seconds
	}
	return seconds
}

// stage is the first on a pod's way whose requests pass the layer; "" where none do.
func (l Layer) stage(v *diagnose.View) string {
	for _, w := range onTheWay {
		if len(v.TalksOf(func(t *diagnose.Talk) bool { return w.holds(t) && l.Passes(t) })) > 0 {
			return w.stage
		}
	}
	if !v.HasRequests && l.Passes(&diagnose.Talk{Verb: "create", Resource: "pods", Harness: true}) {
		return diagnose.Accept
	}
	return ""
}

// claims are, of each stage that waits for requests which pass the layer, the
// layer's part.
func (l Layer) claims(v *diagnose.View) map[string]float64 {
	claims := map[string]float64{}
	_, all, _ := took(v, l.Passes)
	for _, w := range onTheWay {
		stage := w.stage
		if stage == diagnose.Bind && !v.Known(diagnose.Bind) {
			stage = diagnose.Scheduling
		}
		excess := v.Awaited(stage)
		if excess <= 0 {
			continue
		}
		share := 0.0
		if mean, _, ok := took(v, func(t *diagnose.Talk) bool { return w.holds(t) && l.Passes(t) }); ok {
			share = min(1, l.each(all)/mean)
			switch {
			case w.resource == replicaSets:
				share = min(share, l.onceEach(v, w)/excess)
			case w.resource == tokens:
				share = min(share, l.seconds(v, w)/excess)
			case w.stage == diagnose.Controller && l.refused(v, w) >= tried:
				share = min(share, l.tries(v, w)/excess)
			case w.stage == diagnose.Start && l.refused(v, w) >= tried: // a node reports again after a while
				share = min(share, l.seconds(v, w)/excess)
			case w.verb == "delete":
				share = min(share, l.behind(v, w)/excess)
			}
			share = max(share, claims[stage]/excess)
		} else if !v.HasRequests && l.Passes(&diagnose.Talk{Verb: w.verb, Resource: w.resource}) {
			// Nobody knows who asked; the layer's own clock says it is slow, and how long all
			// of that was.
			share = min(1, l.Mean*l.Count*l.behindEach(v, stage)/excess)
		}
		if share > 0 {
			claims[stage] = share * excess
		}
	}
	if lost := v.Awaited(diagnose.Controller); lost > 0 {
		if share := l.occupies(v); share >= occupied {
			claims[diagnose.Controller] = max(claims[diagnose.Controller], share*lost)
		}
	}
	return claims
}

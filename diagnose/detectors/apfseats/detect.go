package apfseats

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	waits = "apiserver_flowcontrol_request_wait_duration_seconds"
	runs  = "apiserver_flowcontrol_request_execution_seconds"
	seats = "apiserver_flowcontrol_nominal_limit_seats"
	ended = "apiserver_request_terminations_total"

	// least is the mean wait from which requests queue rather than pass: healthy
	// ones wait some µs.
	least = 0.005
	// part is the least share of the requests' time in the API server.
	part = 0.20
	// crowded and soon are the mean wait and its share from which seats that flags make few
	// are a risk, though nobody waits long yet.
	crowded, soon = 0.001, 0.10
	// little is the share of the lost time below which pods' own requests did not wait.
	little = 0.05
	// crowding is the share of all requests from which a client fills the seats.
	crowding = 0.5
	// rejected requests a second count by themselves.
	rejected = 0.2
	// defaults of --max-requests-inflight and --max-mutating-requests-inflight.
	inflight, mutating = 400, 200
	// gone and missed are how many requests of the load, refused with 429, and which part
	// of all of its are no accident.
	gone, missed = 10, 0.05
	// pause is for how many seconds a refused client waits: the Retry-After of such an
	// answer, which client-go heeds.
	pause = 1.0
	// stopped is the share of a quota's periods from which on the API server keeps
	// requests in progress for being stopped, and its the part of the pauses that are then
	// the quota's: how many would be refused without it, this run does not tell.
	stopped, its = 0.5, 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "apf-seats",
	Title: "Requests queue for seats of priority and fairness",
	Doc: `The API server executes --max-requests-inflight + --max-mutating-requests-inflight requests at a time (400 + 200), shared out among priority levels; a request takes a seat or more (a list of many objects up to ten), waits in a queue for it up to
15 s, and is then refused with 429. With too few seats requests wait while the machine idles.

**Evidence.** Requests of a priority level wait at least 5 ms on average and 20 % of wait and execution together (apiserver_flowcontrol_request_wait_duration_seconds), or are refused in number, while the CPU has room: the machine below 90 %, no
component at its quota. The limits in the flags, below their defaults, are a second source, and so are 429s in the audit log.

**Without priority and fairness** (--enable-priority-and-fairness=false) nothing queues: what comes beyond the limits is refused at once, and asks again after a second (apiserver_request_terminations_total with code 429, beyond what priority and fairness rejected). A stage is charged with these seconds, against those that its requests took; with half of them where the API server is also stopped by a CPU quota of its own in half of the periods, for requests that take long fill the places.

**The load's own requests** that are refused count by the pods that never came: unlike client-go, whoever measures an open load does not ask again. More at once than a level has seats and places in its queues is refused on a machine with room and on a full one.

**Risk.** Where flags leave fewer seats than the defaults and requests wait 1 ms and a tenth of their time for one, though nothing was held up by it, that is what comes next.

**Look-alikes.** A full CPU: seats are taken because execution is slow, and more of them would make it slower (machine-cpu, component-cpu). Only one level full, by one client: the same finding names the level; give that client a FlowSchema of its own.

**Claims.** Each stage's requests go by flow schemas of their own: nodes', the scheduler's, the controllers', and all others, the load's among them. A stage lost what its own requests waited, or the seconds after which those that were refused came again. Where that is next to nothing, some clients only keep each other waiting, and the finding is a risk. Where one client that sends at least half of all requests was found before, its part is that finding's, unless flags leave few seats.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	levels, ok := v.IncreaseBy(diagnose.APIServer, waits+"_sum", "priority_level", nil)
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	refused, _ := v.IncreaseBy(diagnose.APIServer, "apiserver_flowcontrol_rejected_requests_total", "priority_level", nil)
	var waited, executed, count, lost float64
	worst := ""
	for _, l := range levels {
		if strings.HasPrefix(l.Label, "exempt") {
			continue
		}
		if worst == "" {
			worst = l.Label
		}
		waited += l.Value
	}
	for _, r := range refused {
		lost += r.Value
		if worst == "" {
			worst = r.Label
		}
	}
	executed, _ = v.Increase(diagnose.APIServer, runs+"_sum", diagnose.Labels{"type": "regular"})
	count, _ = v.Increase(diagnose.APIServer, waits+"_count", nil)
	mean := 0.0
	if count > 0 {
		mean = waited / count
	}
	share := 0.0
	if waited+executed > 0 {
		share = waited / (waited + executed)
	}
	slow := mean >= least && share >= part
	set := map[string]string{}
	reads, writes := seatsByFlags(v, set)
	total := reads + writes // one pool of seats
	if !slow && lost < rejected*v.Span() {
		if f, found := refusedAtOnce(v, lost); found {
			return diagnose.Found(f)
		}
		if len(set) > 0 && mean >= crowded && share >= soon {
			return diagnose.Found(comesNext(mean, count, share, total, set))
		}
		return diagnose.NotThere("requests waited %.2f ms for a seat on average, %.0f were refused", 1000*mean, lost)
	}
	if up := v.Upstream(); up != "" && len(set) == 0 {
		if f, found := tooManyAtOnce(v, refused); found {
			return diagnose.Found(f)
		}
		return diagnose.NotThere("requests waited %.0f ms for a seat, because %s and they hold their seats longer", 1000*mean, up)
	}
	text, suffers := v.Suffers()
	if !suffers && lost < rejected*v.Span() {
		if len(set) > 0 {
			return diagnose.Found(comesNext(mean, count, share, total, set))
		}
		return diagnose.NotThere("requests waited %.0f ms for a seat, and nothing was held up", 1000*mean)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.APIServer, Stage: diagnose.Accept, Resource: "apf", Sources: 1,
		Cause:   fmt.Sprintf("requests wait %.0f ms for a seat, %.0f %% of their time", 1000*mean, 100*share),
		Summary: fmt.Sprintf("Requests queue inside the API server for a seat: %.0f ms each on average, %.0f %% of their time there, most of it in priority level %s", 1000*mean, 100*share, worst),
		Claims:  map[string]float64{}, Direct: true, // waited in the queue itself
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: waits + "_sum", Value: waited, Unit: "s", Text: fmt.Sprintf("that %.0f requests waited for a seat; they executed for %.1f s", count, executed)},
		},
		RefutedBy: "a run with more seats in which requests wait as long",
	}
	switch {
	case !slow: // nothing queues: what finds no seat is refused
		worst = refused[0].Label
		f.Cause = fmt.Sprintf("priority level %s refuses %.0f requests", worst, lost)
		f.Summary = fmt.Sprintf("Priority level %s has no seat for %.0f requests and refuses them (429), after which their clients wait for a second", worst, refused[0].Value)
	case lost > 0:
		f.Summary += fmt.Sprintf(", and %.0f were refused (429)", lost)
	}
	if !slices.Contains(levelsByDefault, worst) && (!slow || partOf(levels, worst) >= owned) && (lost == 0 || partOf(refused, worst) >= owned) {
		clear(set) // more seats for all are no remedy where somebody gave one level too few
	}
	if suffers {
		f.Summary += ": " + text
	}
	f.Summary += "."
	if lost > 0 {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "apiserver_flowcontrol_rejected_requests_total", Value: lost, Unit: "requests", Text: "were refused with 429 (queue full, or 15 s in it)"})
	}
	for label, l := range v.GaugeBy(diagnose.APIServer, seats, "priority_level", nil, v.Load) {
		if label == worst {
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: seats + `{priority_level="` + label + `"}`, Value: l.Mean, Unit: "seats", Text: "of priority level " + label})
		}
	}
	if used, _, ok := v.Mean(diagnose.APIServer, "apiserver_flowcontrol_priority_level_seat_utilization", diagnose.Labels{"priority_level": worst, "phase": "executing"}); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "apiserver_flowcontrol_priority_level_seat_utilization", Value: used, Unit: "1", Text: "of its seats were taken on average"})
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	// What one client fills the seats with is its doing, and named by then.
	left := 1.0
	for _, e := range earlier {
		if len(set) == 0 && e.Consumes && e.Cost != nil && e.Cost.RequestShare >= crowding {
			left = min(left, 1-e.Cost.RequestShare)
		}
	}
	claimed := 0.0
	for _, s := range v.LostStages() {
		if s.Name == diagnose.Queue || s.Name == diagnose.Decide {
			continue // no request of the scheduler stands between a pod and its decision
		}
		x := max(shareOf(v, s.Name, share), paused(v, s.Name, lost)) * v.Awaited(s.Name)
		claimed += x
		x *= left
		f.Claims[s.Name] = x
		if x > f.Claims[f.Stage] {
			f.Stage = s.Name
		}
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.RequestSeconds = share * v.API.LostSeconds * left
	if apart := v.StagesOK && v.Symptom() && claimed < little*v.Lost.PodSeconds && !v.API.Slow(); len(set) == 0 && (apart || !suffers) {
		f.Class, f.Stage, f.Claims, f.RequestSeconds = diagnose.Risk, "", nil, 0
		f.Summary += " What pods are brought up with did not wait there: the clients of that level keep each other waiting."
	}
	if len(set) > 0 {
		f.Sources = 2
		f.Advice = raise(total, set)
		if slow {
			f.Next = comesNext(mean, count, share, total, set).Summary
		}
		if !slices.Contains(levelsByDefault, worst) {
			f.Advice.Text += fmt.Sprintf(" Priority level %s, in which most of it is, is somebody's own: its nominalConcurrencyShares say what part of them it gets.", worst)
		}
		f.Evidence = append(f.Evidence, inProgress(total))
	} else {
		f.Advice.Text = fmt.Sprintf("Find who fills priority level %s (kubedyno requests), give that client a FlowSchema and a level of its own, or raise nominalConcurrencyShares of the level. The price: shares are taken from the other levels.", worst)
	}
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("with seats enough a request takes %.0f %% less time", 100*share)}
	refusedForGood(v, &f)
	if !slow && len(set) == 0 {
		f.RefutedBy = "a run in which that level refuses nothing and pods come no faster"
		f.Prediction.Text = "who is not refused does not wait for a second"
		f.Advice.Text = fmt.Sprintf("Give priority level %s seats (nominalConcurrencyShares) and a queue (limitResponse of type Queue), or send its requests elsewhere (kubectl get flowschemas). The price: shares are taken from the other levels.", worst)
	}
	return diagnose.Found(f)
}

// comesNext is the risk that few seats by flags are where requests queue for them and nothing
// was held up by that: what makes more requests is what they hold back next.
func comesNext(mean, count, share float64, total int, set map[string]string) diagnose.Finding {
	return diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "apf", Sources: 2,
		Cause:   fmt.Sprintf("%d requests may be in progress at a time, by flags", total),
		Summary: fmt.Sprintf("The API server works on %d requests at a time, and others queue for it: %.1f ms each on average, %.0f %% of their time there. Nothing was held up by it yet; more requests would be.", total, 1000*mean, 100*share),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: waits + "_sum", Value: mean * count, Unit: "s", Text: fmt.Sprintf("that %.0f requests waited for a seat", count)},
			inProgress(total),
		},
		Advice:    raise(total, set),
		RefutedBy: "a run with more requests in which they wait no longer",
	}
}

// raise is what to do about flags that leave few seats.
func raise(total int, set map[string]string) diagnose.Advice {
	return diagnose.Advice{Set: set, Text: fmt.Sprintf("Raise --max-requests-inflight and --max-mutating-requests-inflight from %d together to the defaults, %d and %d. The price: more requests in progress at a time, which takes memory, and CPU that must be there.", total, inflight, mutating)}
}

func inProgress(total int) diagnose.Evidence {
	return diagnose.Evidence{Kind: "config", Ref: "kube-apiserver --max-requests-inflight, --max-mutating-requests-inflight", Value: float64(total), Unit: "requests", Text: "may be in progress at a time, by the flags"}
}

// refusedForGood charges a finding with the pods of those of the load's requests that
// were refused with 429. ok is false where they were few.
func refusedForGood(v *diagnose.View, f *diagnose.Finding) (requests int, ok bool) {
	all, pods := 0, 0
	for _, o := range v.Operations {
		if o.SentMicros == 0 || o.Code == 0 {
			continue
		}
		all++
		if o.Code == 429 {
			requests++
			pods += int(o.Pods)
		}
	}
	if requests < gone && requests < all || float64(requests) < missed*float64(all) || pods == 0 || v.Counts.Expected == 0 {
		return requests, false
	}
	f.Class, f.MissingShare = diagnose.Bottleneck, min(1, float64(pods)/float64(max(pods, v.Counts.Expected-v.Arrived())))
	if f.Stage == "" {
		f.Stage = diagnose.Accept
	}
	f.Suffered = fmt.Sprintf("%d pods never came", pods)
	f.Summary += fmt.Sprintf(" %d of the load's %d requests were refused, and nobody makes them again.", requests, all)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "operations: code", Value: float64(requests) / float64(all), Unit: "1", Text: fmt.Sprintf("%d of the load's %d requests were refused with 429", requests, all)})
	return requests, true
}

// tooManyAtOnce is what is found of a full machine whose requests hold their seats
// long: no more than what the load lost for good.
func tooManyAtOnce(v *diagnose.View, refused []diagnose.Part) (f diagnose.Finding, found bool) {
	if len(refused) == 0 {
		return f, false
	}
	level := refused[0]
	f = diagnose.Finding{
		Component: diagnose.APIServer, Stage: diagnose.Accept, Resource: "apf", Sources: 2,
		Summary: fmt.Sprintf("More requests came at once than priority level %s has seats and places in its queues, and it refuses what finds none (429).", level.Label),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: `apiserver_flowcontrol_rejected_requests_total{priority_level="` + level.Label + `"}`, Value: level.Value, Unit: "requests", Text: "were refused with 429 (queue full, or 15 s in it)"},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Send fewer at a time (rate, or inFlight, of the phase), or ask again after a second, as client-go does. For a client that has to send so many at once: a FlowSchema and a priority level of its own, with longer queues (queueLengthLimit) than %s has. The price: what queues there takes memory, and is refused after 15 s all the same.", level.Label)},
		RefutedBy: "a run that sends fewer at a time in which as many are refused",
	}
	n, ok := refusedForGood(v, &f)
	f.Cause = fmt.Sprintf("%d requests of the load are refused, for they come at once", n)
	return f, ok
}

// levelsByDefault are the priority levels that every API server has.
var levelsByDefault = []string{"system", "node-high", "leader-election", "workload-high", "workload-low", "global-default", "catch-all", "exempt"}

// owned is the part of all waiting and of all refusals from which they are a level's own.
const owned = 0.8

// partOf is the share of one label in a sum.
func partOf(parts []diagnose.Part, label string) float64 {
	sum, of := 0.0, 0.0
	for _, p := range parts {
		sum += p.Value
		if p.Label == label {
			of += p.Value
		}
	}
	return of / max(sum, math.SmallestNonzeroFloat64)
}

// schemas are the flow schemas through which a component's part in bringing up
// pods goes, by the stage that it has. Everybody else's requests can hold up those
// of the load, which are accepted.
var schemas = map[string][]string{
	diagnose.Controller: {"kube-controller-manager", "kube-system-service-accounts"},
	diagnose.Bind:       {"kube-scheduler"},
	diagnose.Scheduling: {"kube-scheduler"},
	diagnose.Start:      {"system-nodes", "system-node-high"},
	diagnose.Observe:    {"system-nodes", "system-node-high"},
}

// shareOf is the part of their time that a stage's requests waited for a seat;
// overall where its flow schemas are not known by their names.
func shareOf(v *diagnose.View, stage string, overall float64) float64 {
	own := schemas[stage]
	others := map[string]bool{"system-leader-election": true, "workload-leader-election": true, "exempt": true, "probes": true}
	for _, all := range schemas {
		for _, name := range all {
			others[name] = true
		}
	}
	sum := func(metric string, match diagnose.Labels) (x float64) {
		by, _ := v.IncreaseBy(diagnose.APIServer, metric, "flow_schema", match)
		for _, p := range by {
			if slices.Contains(own, p.Label) || own == nil && !others[p.Label] {
				x += p.Value
			}
		}
		return x
	}
	waited, executed := sum(waits+"_sum", nil), sum(runs+"_sum", diagnose.Labels{"type": "regular"})
	if waited+executed == 0 {
		return overall
	}
	return waited / (waited + executed)
}

// refusedAtOnce is what is found without priority and fairness: nothing queues there.
// rejected429 are the refusals that it counts itself.
func refusedAtOnce(v *diagnose.View, rejected429 float64) (f diagnose.Finding, found bool) {
	refused, _ := v.Increase(diagnose.APIServer, ended, diagnose.Labels{"code": "429"})
	refused -= rejected429
	if refused < rejected*v.Span() {
		return f, false
	}
	set := map[string]string{}
	reads, writes := seatsByFlags(v, set)
	if v.Upstream() != "" && len(set) == 0 {
		return f, false // requests hold their places longer than they need
	}
	share := "" // of all, where these are known
	if v.HasRequests {
		all := 0
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long }) {
			all += t.Count
		}
		share = fmt.Sprintf(", %.0f %% of all", 100*min(1, refused/float64(max(1, all))))
	}
	f = diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "apf", Sources: 1,
		Cause:   fmt.Sprintf("%.0f requests are refused because %d reads or %d writes are in progress", refused, reads, writes),
		Summary: fmt.Sprintf("The API server refuses with 429 what comes beyond %d reads or %d writes in progress: %.0f requests%s, each of which comes again after a second", reads, writes, refused, share),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: ended + `{code="429"}`, Value: refused, Unit: "requests", Text: "were refused with 429 and were in no queue before"},
			{Kind: "config", Ref: "kube-apiserver --max-requests-inflight, --max-mutating-requests-inflight", Value: float64(reads + writes), Unit: "requests", Text: fmt.Sprintf("%d reads and %d writes may be in progress at a time, by the flags", reads, writes)},
		},
		RefutedBy:  "a run in which nothing is refused and requests come as late",
		Prediction: &diagnose.Prediction{Resource: "unknown", Text: "who is not refused does not wait for a second"},
	}
	if on, is, _ := v.Flag(diagnose.APIServer, "enable-priority-and-fairness"); is && on == "false" {
		set[diagnose.APIServer+".args.enable-priority-and-fairness"] = "true"
		f.Summary += " (priority and fairness, which lets requests queue, is off)"
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "kube-apiserver --enable-priority-and-fairness", Text: "priority and fairness is off"})
	}
	f.Advice = diagnose.Advice{Set: set, Text: fmt.Sprintf("Leave --enable-priority-and-fairness on, so that requests queue, and the limits at their defaults, --max-requests-inflight=%d and --max-mutating-requests-inflight=%d. The price: more requests in progress at a time, which takes memory, and CPU that must be there.", inflight, mutating)}
	if v.HasRequests {
		f.Sources++ // its own record of who was refused
	}
	defer func() { refusedForGood(v, &f) }()
	text, suffers := v.Suffers()
	if !suffers {
		f.Summary += "; nothing was held up."
		return f, true
	}
	mine := 1.0
	if _, stops, ok := v.QuotaUse(diagnose.APIServer); ok && stops >= stopped {
		mine -= its
	}
	for _, s := range v.LostStages() {
		x := v.Awaited(s.Name) * paused(v, s.Name, refused) * mine
		if x > 0 {
			f.Claims[s.Name] = x
		}
		if x > f.Claims[f.Stage] {
			f.Stage = s.Name
		}
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Bind
	}
	if len(f.Claims) == 0 {
		f.Claims = nil
		f.Summary += "; what held pods up is something else."
		return f, true
	}
	f.Class, f.Direct = diagnose.Bottleneck, true // a pause is no shorter on a faster CPU
	f.Summary += ": " + text + "."
	return f, true
}

// paused is the part of the time of a stage's requests, their pauses after a refusal
// among it, that these pauses are; of all requests where nobody knows who asked.
func paused(v *diagnose.View, stage string, refused float64) float64 {
	seconds := v.AnsweredSeconds()
	if v.HasRequests {
		refused, seconds = 0, 0
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long && waitsFor(stage, t) }) {
			refused += float64(t.Codes[429])
			seconds += max(0, t.Seconds)
		}
	}
	if refused == 0 {
		return 0
	}
	return pause * refused / (pause*refused + seconds)
}

// waitsFor says whether a pod waits in a stage for such requests.
func waitsFor(stage string, t *diagnose.Talk) bool {
	reports := t.Resource == "pods/status" || t.Resource == "serviceaccounts/token"
	switch stage {
	case diagnose.Accept:
		return t.Harness && t.Verb == "create" && !reports
	case diagnose.Controller:
		return !t.Harness && t.Verb == "create" && t.Resource == "pods"
	case diagnose.Queue, diagnose.Decide, diagnose.Bind, diagnose.Scheduling:
		return t.Resource == "pods/binding"
	case diagnose.Start, diagnose.Observe:
		return reports
	}
	return false
}

// seatsByFlags is how many reads and writes may be in progress, and what lifts flags
// that are below their defaults.
func seatsByFlags(v *diagnose.View, set map[string]string) (reads, writes int) {
	limit := func(flag string, normal int) int {
		n := normal
		if x, has, _ := v.Flag(diagnose.APIServer, flag); has {
			if y, err := strconv.Atoi(x); err == nil {
				n = y
			}
		}
		if n > 0 && n < normal {
			set[diagnose.APIServer+".args."+flag] = strconv.Itoa(normal)
		}
		return n
	}
	return limit("max-requests-inflight", inflight), limit("max-mutating-requests-inflight", mutating)
}

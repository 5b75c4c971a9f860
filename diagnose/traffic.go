package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// A Talk is all requests of one kind that one client sent during the load.
type Talk struct {
	// Agent is the user agent's short form, analysis/requests.Agent.
	Agent       string
	Verb, Group string
	Resource    string // with its subresource: pods/status
	Harness     bool   // ours
	Long        bool   // takes as long as the client wants, as watches: its time is no cost

	Count   int
	Seconds float64 // summed over the requests; -1 unknown
	Mean    float64 // seconds; -1 unknown
	// Waited is how many of the Seconds are known to have gone to waiting for
	// others: for a seat of priority and fairness, for webhooks (of admission, and of
	// a custom resource's conversion), until it was known who asks, and whether
	// they may.
	Waited float64
	// Webhooks are those for webhooks alone, Authentication and Authorization the
	// last two.
	Webhooks, Authentication, Authorization float64
	Codes                                   map[int32]int
	// BodyBytes are what the Bodies of these requests had in all whose size is known.
	BodyBytes float64
	Bodies    int
	// Names is how many objects they were about, -1 where names were not
	// recorded; Users how many users sent them.
	Names, Users int
	// Busiest is the object that most of them were about.
	Busiest      string
	BusiestCount int
	// Times are of receipt, in seconds since Load.Start.
	Times []float64
	// RestRate is how many came in a second before the load; -1 unknown.
	RestRate float64
}

// Worked is how many of the Seconds the API server was busy with them, as far as is
// known. What requests cost is shared out by it: who waits needs no CPU.
func (t Talk) Worked() float64 { return max(0, t.Seconds-t.Waited) }

// Rate is requests per second of the load.
func (t Talk) Rate(v *View) float64 {
	if v.Span() <= 0 {
		return 0
	}
	return float64(t.Count) / v.Span()
}

// Share is which part of the requests was answered with a code.
func (t Talk) Share(code int32) float64 {
	if t.Count == 0 {
		return 0
	}
	return float64(t.Codes[code]) / float64(t.Count)
}

// Succeeded is how many were answered with a code below 400.
func (t Talk) Succeeded() (n int) {
	for code, k := range t.Codes {
		if code < 400 {
			n += k
		}
	}
	return n
}

// CV is how much the gaps between the requests vary: 0 is a metronome, 1 is
// chance. ok is false below three requests.
func (t Talk) CV() (float64, bool) { return stat.InterArrivalCV(t.Times) }

// Writes says whether they change objects.
func (t Talk) Writes() bool { return writes(t.Verb) }

func writes(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// What is how people would call them: "LIST pods".
func (t Talk) What() string {
	return strings.ToUpper(t.Verb) + " " + cmp.Or(t.Resource, "of paths that are no resource, such as discovery")
}

// harnessAgent says whether a user agent is of the harness. kubedyno-csi stands
// for a user's own sidecars.
func harnessAgent(agent string) bool {
	program, _, _ := strings.Cut(agent, "/")
	return program == Self || strings.HasPrefix(program, Self+"-") && program != "kubedyno-csi"
}

func resourceOf(r *record.Request) string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

type talkKey struct {
	agent, verb, group, resource string
	long                         bool
}

func keyOf(r *record.Request) talkKey {
	return talkKey{requests.Agent(r.UserAgent), r.Verb, r.Group, resourceOf(r), requests.LongRunning(r)}
}

// accountRequests sums the requests up, once. all are those of the whole
// recording: what a client read before tells a first list from a relist.
func (v *View) accountRequests(all []record.Request) {
	if !v.HasRequests {
		return
	}
	type gathered struct {
		talk         *Talk
		names, users map[string]int
		timed        bool
	}
	by := map[talkKey]*gathered{}
	for i := range v.Requests {
		r := &v.Requests[i]
		k := keyOf(r)
		g := by[k]
		if g == nil {
			g = &gathered{talk: &Talk{Agent: k.agent, Verb: k.verb, Group: k.group, Resource: k.resource, Long: k.long, Harness: harnessAgent(r.UserAgent), Codes: map[int32]int{}},
				names: map[string]int{}, users: map[string]int{}}
			by[k] = g
		}
		t := g.talk
		t.Count++
		t.Codes[r.Code]++
		t.Times = append(t.Times, v.sec(r.ReceivedMicros))
		if took := r.DoneMicros - r.ReceivedMicros; took > 0 && r.DoneMicros != 0 {
			t.Seconds += float64(took) / 1e6
			authentication, authorization := max(0, r.AuthenticationMicros), max(0, r.AuthorizationMicros)
			t.Authentication += float64(min(took, authentication)) / 1e6
			t.Authorization += float64(min(took, authorization)) / 1e6
			t.Webhooks += float64(min(took, max(0, r.WebhookMicros))) / 1e6
			t.Waited += float64(min(took, max(0, r.QueueMicros)+max(0, r.WebhookMicros)+authentication+authorization)) / 1e6
			g.timed = true
		}
		if r.RequestBytes >= 0 {
			t.BodyBytes += float64(r.RequestBytes)
			t.Bodies++
		}
		if r.Name != "" {
			g.names[r.Namespace+"/"+r.Name]++
		}
		if r.User != "" {
			g.users[r.User]++
		}
	}
	rest := map[talkKey]int{}
	for i := range v.RestRequests {
		rest[keyOf(&v.RestRequests[i])]++
	}
	for k, g := range by {
		t := g.talk
		t.Names, t.Users, t.Mean, t.RestRate = -1, len(g.users), -1, -1
		if len(g.names) > 0 {
			t.Names = len(g.names)
			for _, name := range slices.Sorted(maps.Keys(g.names)) {
				if n := g.names[name]; n > t.BusiestCount {
					t.Busiest, t.BusiestCount = name, n
				}
			}
		}
		if g.timed {
			t.Mean = t.Seconds / float64(t.Count)
		} else {
			t.Seconds = -1
		}
		if s := v.Rest.Seconds(); s > 0 {
			t.RestRate = float64(rest[k]) / s
		}
		v.Talks = append(v.Talks, *t)
	}
	slices.SortFunc(v.Talks, func(a, b Talk) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Verb, b.Verb), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
	v.accountConversions()
	v.accountWatches(all)
	v.accountLapses(all)
	lists := requests.NewLists()
	lists.From = v.Load.Start.UnixMicro()
	end := v.Load.End.UnixMicro()
	for i := range all {
		if r := &all[i]; r.ReceivedMicros <= end && !harnessAgent(r.UserAgent) {
			lists.Add(r)
		}
	}
	if !lists.Blind() {
		v.Lists = lists.Rows()
	}
	v.API = v.service()
}

// Watching is one client's watches on one resource that were open during the load,
// whenever they began.
type Watching struct {
	Agent, Group, Resource string
	Harness                bool
	N                      int
}

func (v *View) accountWatches(all []record.Request) {
	from, to := v.Load.Start.UnixMicro(), v.Load.End.UnixMicro()
	by := map[Watching]int{}
	for i := range all {
		r := &all[i]
		if r.Verb != "watch" || r.Code >= 400 || r.ReceivedMicros > to || r.DoneMicros != 0 && r.DoneMicros < from {
			continue
		}
		by[Watching{Agent: requests.Agent(r.UserAgent), Group: r.Group, Resource: resourceOf(r), Harness: harnessAgent(r.UserAgent)}]++
	}
	for w, n := range by {
		w.N = n
		v.Watches = append(v.Watches, w)
	}
	slices.SortFunc(v.Watches, func(a, b Watching) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
}

// TalksOf are the talks that fit, the most frequent first.
func (v *View) TalksOf(fits func(*Talk) bool) []Talk {
	var ts []Talk
	for i := range v.Talks {
		if fits(&v.Talks[i]) {
			ts = append(ts, v.Talks[i])
		}
	}
	return ts
}

// Answered is how many requests the API server answered during the load, long
// ones left out.
func (v *View) Answered() (n int) {
	for _, t := range v.Talks {
		if !t.Long {
			n += t.Count
		}
	}
	return n
}

// accountConversions counts what conversion webhooks took as waiting. Their clock
// knows the resource and not the request, so that all who asked for the resource
// share it, by how long they waited or worked.
func (v *View) accountConversions() {
	converted, ok := v.IncreaseBy(APIServer, "apiserver_crd_conversion_webhook_duration_seconds_sum", "crd_name", nil)
	if !ok {
		return
	}
	for _, c := range converted {
		about := func(t *Talk) bool { return !t.Long && t.Seconds > 0 && t.Of(c.Label) }
		total := 0.0
		for i := range v.Talks {
			if about(&v.Talks[i]) {
				total += v.Talks[i].Worked()
			}
		}
		if total <= 0 {
			continue
		}
		part := min(1, c.Value/total)
		for i := range v.Talks {
			if t := &v.Talks[i]; about(t) {
				t.Waited += part * t.Worked()
			}
		}
	}
}

// Of says whether requests are about a resource as its definition is named:
// widgets.example.com.
func (t Talk) Of(definition string) bool {
	plural, group, _ := strings.Cut(definition, ".")
	resource, _, _ := strings.Cut(t.Resource, "/")
	return resource == plural && t.Group == group
}

// WorkedSeconds is how many of the AnsweredSeconds the API server was busy.
func (v *View) WorkedSeconds() (s float64) {
	for _, t := range v.Talks {
		if !t.Long {
			s += t.Worked()
		}
	}
	return s
}

// AnsweredSeconds is how long these took together, by the server's clock; their
// mean number at a time is that by Span.
func (v *View) AnsweredSeconds() (s float64) {
	for _, t := range v.Talks {
		if !t.Long && t.Seconds > 0 {
			s += t.Seconds
		}
	}
	return s
}

// UpdatesPerWrite is how often the API server changed a resource in etcd for
// each update or patch of it that succeeded. Below 1, writes changed nothing and
// were not stored; above, the API server itself had to try again. writes is how
// many there were. ok is false without the API server's metrics, or without
// writes.
func (v *View) UpdatesPerWrite(resource string) (ratio, writes float64, ok bool) {
	updates, okU := v.Increase(APIServer, "etcd_requests_total", Labels{"operation": "update", "resource": resource})
	writes, okW := v.Increase(APIServer, "apiserver_request_total", Labels{"verb": "~PUT|PATCH|APPLY", "resource": resource, "code": "~2.."})
	if !okU || !okW || writes <= 0 {
		return 0, 0, false
	}
	return updates / writes, writes, true
}

// A Service is how requests fared: those on one object, which users wait for.
// The harness' own, long ones and the components' own leases are left out.
type Service struct {
	N         int
	Mean, P99 float64 // seconds, during the load; P99 -1 below 100 requests
	RestN     int
	RestMean  float64 // before it; -1 unknown
	// LostSeconds is the requests' time above what is usual: 50 ms, or three times
	// what enough requests took at rest where that is more, to 100 ms at most.
	LostSeconds float64
	Usual       float64
}

const (
	// usualLeast is above what a busy, healthy API server shows beside an idle
	// one: 2-5 ms at rest, 20 ms at 150 pods/s on 2 cores. Beyond usualMost no
	// API server is well, at rest or not. Before a load there are often two or
	// three requests, of which one may have come from a cache: from restN on they
	// are a measure.
	usualFactor = 3.0
	usualLeast  = 0.05
	usualMost   = 0.1
	restN       = 20
	// slowN is how many requests say that an API server is slow.
	slowN = 20
	// slowShare is the share of the requests' time that must be above the usual.
	slowShare = 0.3
)

// Slow says whether the API server's answers were slow, whatever pods did.
func (s Service) Slow() bool {
	return s.N >= slowN && s.LostSeconds >= slowShare*s.Mean*float64(s.N) && s.Mean > s.Usual
}

// String says it in words.
func (s Service) String() string {
	text := fmt.Sprintf("a request on one object took %s on average", ms(s.Mean))
	if s.P99 >= 0 {
		text += fmt.Sprintf(" (p99 %s, n=%d)", ms(s.P99), s.N)
	}
	if s.RestMean >= 0 {
		text += fmt.Sprintf(", %s at rest (n=%d)", ms(s.RestMean), s.RestN)
	}
	return text
}

func ms(s float64) string {
	if s >= 1 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f ms", 1000*s)
}

func (v *View) service() Service {
	took := func(rs []record.Request) (xs []float64) {
		for i := range rs {
			r := &rs[i]
			if harnessAgent(r.UserAgent) || requests.LongRunning(r) || r.Verb == "list" || r.Resource == "" || r.Resource == "leases" || r.DoneMicros <= r.ReceivedMicros {
				continue
			}
			xs = append(xs, float64(r.DoneMicros-r.ReceivedMicros)/1e6)
		}
		return xs
	}
	xs, rest := took(v.Requests), took(v.RestRequests)
	s := Service{N: len(xs), P99: -1, RestN: len(rest), RestMean: -1, Usual: usualLeast}
	if len(rest) > 0 {
		s.RestMean = stat.Mean(rest)
	}
	if len(rest) >= restN {
		s.Usual = max(usualLeast, min(usualFactor*s.RestMean, usualMost))
	}
	if len(xs) == 0 {
		return s
	}
	s.Mean = stat.Mean(xs)
	if q, ok := stat.Quantile(xs, 0.99); ok {
		s.P99 = q
	}
	for _, x := range xs {
		s.LostSeconds += max(0, x-s.Usual)
	}
	return s
}

// Suffers says in words what the run suffered from: pods that waited, requests
// that took long. ok is false where nothing did.
func (v *View) Suffers() (text string, ok bool) {
	if v.Symptom() {
		text = v.lost()
	}
	if v.API.Slow() {
		if text != "" {
			text += "; "
		}
		text += v.API.String()
	}
	return text, text != ""
}

// lost says in words how long pods waited.
func (v *View) lost() string {
	stage := ""
	if lost := v.LostStages(); len(lost) > 0 {
		stage = ", most of it in stage " + lost[0].Name
	}
	return fmt.Sprintf("pods lost %.0f of %.0f pod-seconds%s", v.Lost.PodSeconds, v.Lost.TotalPodSeconds, stage)
}

// BusyAtRest names who sent the most requests before the load, where that is no part of
// the cluster nor of the harness, at least half of all and ten a second: rate of all, both a second.
func (v *View) BusyAtRest() (agent string, rate, all float64) {
	const most, often = 0.5, 10 // of all requests, and a second
	by := map[string]float64{}
	for _, t := range v.Talks {
		x := max(0, t.RestRate)
		if all += x; !t.Harness && !OfCluster(t.Agent) {
			by[t.Agent] += x
		}
	}
	for _, a := range sortedKeys(by) {
		if by[a] > rate {
			agent, rate = a, by[a]
		}
	}
	if rate < often || rate < most*all {
		return "", 0, 0
	}
	return agent, rate, all
}

// A Stranger is a client that is no part of the cluster nor of the harness, and what it
// wrote to one kind of object.
type Stranger struct {
	Agent, Verb string
	Count       int // of the requests that were not refused
}

// Strangers are those that wrote to a resource, before the load and under it: the most
// requests first.
func (v *View) Strangers(resource string) (all []Stranger) {
	by := map[Stranger]int{}
	for _, asked := range [][]record.Request{v.RestRequests, v.Requests} {
		for i := range asked {
			r := &asked[i]
			if resourceOf(r) != resource || !writes(r.Verb) || r.Code >= 400 || harnessAgent(r.UserAgent) {
				continue
			}
			if agent := requests.Agent(r.UserAgent); !OfCluster(agent) {
				by[Stranger{Agent: agent, Verb: r.Verb}]++
			}
		}
	}
	for w, n := range by {
		w.Count = n
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Stranger) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Verb, b.Verb))
	})
	return all
}

// Creating is when at least one create of a pod that was let in was in progress, as
// windows in order that do not overlap, and the mean of what these creates took, in
// seconds; 0 where there were none.
func (v *View) Creating() (spans []record.Window, mean float64) {
	for i := range v.Requests {
		r := &v.Requests[i]
		if r.Resource == "pods" && r.Subresource == "" && r.Verb == "create" && r.Code < 400 && r.DoneMicros > r.ReceivedMicros {
			spans = append(spans, record.Window{Start: time.UnixMicro(r.ReceivedMicros), End: time.UnixMicro(r.DoneMicros)})
			mean += float64(r.DoneMicros-r.ReceivedMicros) / 1e6
		}
	}
	mean /= float64(max(1, len(spans)))
	slices.SortFunc(spans, func(a, b record.Window) int { return a.Start.Compare(b.Start) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && !s.Start.After(merged[n-1].End) {
			if s.End.After(merged[n-1].End) {
				merged[n-1].End = s.End
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged, mean
}

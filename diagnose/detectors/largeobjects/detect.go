package largeobjects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	bodies   = "apiserver_request_body_size_bytes"
	received = "etcd_network_client_grpc_received_bytes_total"
	events   = "apiserver_watch_events_sizes"
	asked    = "apiserver_admission_webhook_admission_duration_seconds_count"
	// large is the mean body of a resource's writes, and perSecond what they bring.
	// Bodies of pods, deployments and nodes have 1 to 20 kB; a hundred pods a second
	// bring some 500 kB.
	large, perSecond = 32e3, 100e3
	// least is how many writes are more than an accident.
	least = 20
	// kept is how long etcd keeps what was overwritten: the API server asks for a
	// compaction every five minutes (--etcd-compaction-interval).
	kept = 300.0
	// sent is what watches are sent of a resource in a second, in bytes, and often how
	// many events are more than an accident. A hundred pods a second, seen by five
	// watches each, are some 4 MB.
	sent, often = 1e6, 200
	// theirs is the share of a resource's writes from which on a client is who writes.
	theirs = 0.3
	// stored is the part of the bodies that etcd must have received.
	stored = 0.5
	// mostly is the share of requests from which on being refused is what they are.
	mostly = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "large-objects",
	Title: "Large objects are written again and again",
	Doc: `An object is read, checked, encoded, written and sent to its watches as a whole, whatever part of it was changed, and etcd keeps each version until the next compaction (five minutes). Ten objects of 80 kB that are written once a second are few requests, and
240 MB of history; state in ConfigMaps, reports in custom resources and endpoints of large Services do this.

**Evidence.** The bodies of one resource's writes have 32 kB and more on average and bring at least 100 kB a second, with at least 20 writes (apiserver_request_body_size_bytes). What etcd received (etcd_network_client_grpc_received_bytes_total) is the second source. Where they are smaller on average, one client's may be as large, and others' hide them: a lab's log of requests has the size of each, an audit log has none. The audit log names the client that makes 30 % of the writes and more. It is waste; where the CPU that it burns is a fifth of a full one, it is the bottleneck.

Where a request is small and the object is not, watch events tell (apiserver_watch_events_sizes): 32 kB and more on average, at least 200 of them and 1 MB a second. What makes an object grow on its way is a mutating webhook (the one that was asked most is named), or small patches that add up. Where most are refused, nothing is kept, and what they cost is CPU.

**Look-alikes.** Many small writes (greedy-client, event-flood, heartbeat-churn); many versions of the OpenAPI document (crd-churn).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	by, ok := v.IncreaseBy(diagnose.APIServer, bodies+"_sum", "resource", nil)
	if !ok || v.Span() <= 0 {
		return diagnose.NotAssessed("the API server's metric %s", bodies)
	}
	var found []diagnose.Finding
	known := map[string]bool{}
	most := "nothing was written"
	for i, r := range by {
		mean, n, ok := v.Mean(diagnose.APIServer, bodies, diagnose.Labels{"resource": r.Label})
		if !ok {
			continue
		}
		if i == 0 {
			most = fmt.Sprintf("writes of %s brought the most, %s a second, %s each", r.Label, diagnose.Bytes(r.Value/v.Span()), diagnose.Bytes(mean))
		}
		w := written{resource: r.Label, mean: mean, n: n, total: r.Value}
		if !w.large(v.Span()) {
			if w, ok = among(v, r.Label); !ok {
				continue
			}
		}
		known[r.Label] = true
		found = append(found, finding(v, w))
	}
	seen, _ := v.IncreaseBy(diagnose.APIServer, events+"_sum", "resource", nil)
	for _, r := range seen {
		mean, n, ok := v.Mean(diagnose.APIServer, events, diagnose.Labels{"resource": r.Label})
		if ok && !known[r.Label] && n >= often && mean >= large && r.Value >= sent*v.Span() {
			found = append(found, grown(v, r.Label, mean, n, r.Value))
		}
	}
	if len(found) == 0 {
		return diagnose.NotThere("%s", most)
	}
	return diagnose.Found(found...)
}

// written are the writes of a resource, or those of one client where it is named.
type written struct {
	resource, agent string
	mean, n, total  float64 // bytes each, how many, and bytes in all
}

func (w written) large(span float64) bool {
	return w.n >= least && w.mean >= large && w.total >= perSecond*span
}

// among looks for a client whose writes of a resource are large among others' that are
// not.
func among(v *diagnose.View, resource string) (most written, ok bool) {
	by := map[string]*written{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return writes(t, resource) && t.Bodies > 0 }) {
		if by[t.Agent] == nil {
			by[t.Agent] = &written{resource: resource, agent: t.Agent}
		}
		by[t.Agent].n += float64(t.Bodies)
		by[t.Agent].total += t.BodyBytes
	}
	for _, agent := range slices.Sorted(maps.Keys(by)) {
		w := by[agent]
		if w.mean = w.total / w.n; w.large(v.Span()) && w.total > most.total {
			most, ok = *w, true
		}
	}
	return most, ok
}

func writes(t *diagnose.Talk, resource string) bool {
	object, _, _ := strings.Cut(t.Resource, "/")
	return object == resource && (t.Verb == "create" || t.Verb == "update" || t.Verb == "patch")
}

func finding(v *diagnose.View, w written) diagnose.Finding {
	resource, mean, n, total := w.resource, w.mean, w.n, w.total
	rate := total / v.Span()
	told := diagnose.Evidence{Kind: "rate", Ref: bodies + `{resource="` + resource + `"}`, Value: rate, Unit: "bytes/s", Text: fmt.Sprintf("bodies of %.0f writes of %s, %s each", n, resource, diagnose.Bytes(mean))}
	if w.agent != "" {
		told.Ref, told.Text = "requests: request_bytes of "+w.agent, fmt.Sprintf("bodies of its %.0f writes of %s, %s each", n, resource, diagnose.Bytes(mean))
	}
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "disk", Sources: 1,
		Evidence:  []diagnose.Evidence{told},
		RefutedBy: "a run without these writes in which etcd's database grows as fast",
	}
	talks := v.TalksOf(func(t *diagnose.Talk) bool { return writes(t, resource) })
	who := "Clients"
	if w := cmp.Or(w.agent, writer(talks)); w != "" {
		who, f.Component = w, "client:"+w
		var own []diagnose.Talk
		for _, t := range talks {
			if t.Agent == w {
				own = append(own, t)
			}
		}
		talks = own
	}
	f.Cause = fmt.Sprintf("%s writes %s of %s", who, resource, diagnose.Bytes(mean))
	if who == "Clients" {
		f.Cause = fmt.Sprintf("%s of %s are written again and again", resource, diagnose.Bytes(mean))
	}
	f.Summary = fmt.Sprintf("%s write %s of %s each, %s a second (n=%.0f): each write is the whole object, and at that rate etcd holds %s of old versions when it compacts, every five minutes.",
		plural(who), resource, diagnose.Bytes(mean), diagnose.Bytes(rate), n, diagnose.Bytes(rate*kept))
	f.Advice = diagnose.Advice{Text: fmt.Sprintf("Write %s only when they have changed, split what changes often from what is large, or keep large data elsewhere (a volume, an object store) and a reference to it here. Who must write often should patch a small object. The price: two objects that must be kept in step.", resource)}
	if code, share := refused(talks); share > mostly {
		f.Resource = "cpu"
		f.Cause = fmt.Sprintf("%s sends %s of %s that are refused", who, resource, diagnose.Bytes(mean))
		f.Summary = fmt.Sprintf("%s send %s of %s each, %s a second (n=%.0f), and %.0f %% are refused (%d): the API server reads and decodes these, and keeps nothing of them.",
			plural(who), resource, diagnose.Bytes(mean), diagnose.Bytes(rate), n, 100*share, code)
		f.Advice.Text = fmt.Sprintf("Let the client stop when it is told no, and keep large data elsewhere (a volume, an object store): what is refused once for its size or its contents (413, 422) is refused each time. The data of a ConfigMap or a Secret may have 1 MiB, a request 3 MiB. The price: whoever sends %s must handle the error.", resource)
		f.RefutedBy = "a run without these requests in which the API server's CPU is as busy"
	}
	if in, ok := v.Increase(diagnose.Etcd, received, nil); ok {
		if in >= stored*total {
			f.Sources++
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: received, Value: in / v.Span(), Unit: "bytes/s", Text: "received by etcd in all"})
	}
	watches := 0
	for _, w := range v.Watches {
		if w.Resource == resource {
			watches += w.N
		}
	}
	if watches > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH " + resource, Value: float64(watches), Unit: "watches", Text: "were open, and are sent what they select of them"})
	}
	consumer.Judge(v, &f, talks, "")
	return f
}

// grown is the finding of objects that are larger than the requests that make them.
func grown(v *diagnose.View, resource string, mean, n, total float64) diagnose.Finding {
	rate := total / v.Span()
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "cpu", Sources: 1,
		Cause:   fmt.Sprintf("%s have %s each", resource, diagnose.Bytes(mean)),
		Summary: fmt.Sprintf("Objects of %s have %s each, and the API server sends %s of them a second to watches (n=%.0f): whoever handles a change of one reads, encodes and sends all of it.", resource, diagnose.Bytes(mean), diagnose.Bytes(rate), n),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: events + `{resource="` + resource + `"}`, Value: rate, Unit: "bytes/s", Text: fmt.Sprintf("%.0f watch events of %s, %s each", n, resource, diagnose.Bytes(mean))},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look what is large in one of these %s (kubectl get -o yaml --show-managed-fields), and move it elsewhere: a ConfigMap that pods mount instead of environment variables, a reference instead of data.", resource)},
		RefutedBy: "objects of a few kilobytes that cost as much",
	}
	if body, writes, ok := v.Mean(diagnose.APIServer, bodies, diagnose.Labels{"resource": resource}); ok && writes > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: bodies + `{resource="` + resource + `"}`, Value: body, Unit: "bytes", Text: "in the body of a write, on average"})
		if body < mean/4 {
			f.Summary += fmt.Sprintf(" Requests bring %s each; the rest is added on the way.", diagnose.Bytes(body))
		}
	}
	if hooks, _ := v.IncreaseBy(diagnose.APIServer, asked, "name", diagnose.Labels{"type": "admit"}); len(hooks) > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: fmt.Sprintf("%s{type=%q,name=%q}", asked, "admit", hooks[0].Label), Value: hooks[0].Value, Unit: "calls", Text: fmt.Sprintf("the mutating webhook %s, which may add to objects, was asked %.0f times", hooks[0].Label, hooks[0].Value)})
		f.Advice.Text += fmt.Sprintf(" The mutating webhook %s was asked %.0f times: see what it adds.", hooks[0].Label, hooks[0].Value)
	}
	consumer.Judge(v, &f, v.TalksOf(func(t *diagnose.Talk) bool {
		object, _, _ := strings.Cut(t.Resource, "/")
		return object == resource && !t.Long
	}), "")
	return f
}

// refused says which part of the requests was answered with an error, and with which most.
func refused(talks []diagnose.Talk) (code int32, share float64) {
	by, no, all := map[int32]int{}, 0, 0
	for _, t := range talks {
		all += t.Count
		for c, n := range t.Codes {
			if c >= 400 {
				by[c] += n
				no += n
			}
		}
	}
	for c, n := range by {
		if n > by[code] || n == by[code] && c < code {
			code = c
		}
	}
	return code, float64(no) / float64(max(1, all))
}

// writer is the client that makes most of the writes, "" where none makes many.
func writer(talks []diagnose.Talk) (agent string) {
	by, all := map[string]int{}, 0
	for _, t := range talks {
		by[t.Agent] += t.Count
		all += t.Count
	}
	for _, t := range talks {
		if n := by[t.Agent]; !t.Harness && float64(n) >= theirs*float64(all) && (agent == "" || n > by[agent]) {
			agent = t.Agent
		}
	}
	return agent
}

func plural(who string) string {
	if who == "Clients" {
		return who
	}
	return "Requests of " + who
}

package greedyclient

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// often and share: from so many requests a second, and so large a part of all,
	// a client is greedy. Provisioners and network plugins at work had up to 0.18.
	often, share = 20.0, 0.30
	// A smaller part is enough where the requests are so many.
	hundreds, fifth = 50.0, 0.20
	// heavy, longer and few: likewise one whose requests are few, take so large a
	// part of the time of all, and each so many times as long as those of others.
	heavy, longer, few = 0.50, 3.0, 2.0
	// mostly is the part of a client's requests from which another finding about them
	// says what there is to say of it.
	mostly = 0.5
	// fewest requests of others tell how long one usually takes.
	fewest = 20
	// written is the share of a client's requests from which its most frequent write
	// says something of it.
	written = 0.25
	// mostRefused is the share of a client's requests from which on their refusal is
	// what there is to say of it.
	mostRefused = 0.5
	// told are the kinds of requests that are worth a word.
	told = 3
	// emptying is how many namespaces a second go from which on whoever deletes them
	// answers for the work of emptying them, and alone is the part of them that must be its.
	emptying, alone = 1.0, 0.8
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "greedy-client",
	Title: "One client asks for as much as all others together",
	Doc: `The API server's work is its clients' requests. A loop without a pause, an operator that writes what has not changed, a tool that reads object by object: each request is cheap, and all of them together are not.

**Evidence.** One client that is no part of the control plane or of a node sends at least 20 requests a second and 30 % of all, or 50 a second and 20 % (healthy provisioners and network plugins send 8 to 18 %); or its requests take at least half of the time of all, and each three times as long as those of others, where waiting is left out: for a seat, for webhooks, until it is known who asks and whether they may.
Of writes, the API server's count of what it wrote to etcd is the second source.

What they cost is the time that the API server worked on them, as a part of its CPU, or, where that is more, their number times what the work around each takes by its profile (TLS, HTTP, authentication, priority and fairness): of small requests that is nearly all.

Whoever deletes a namespace a second and more answers for what that makes the namespace controller do: to empty one it lists and deletes each kind of object that there is (18 to 33 requests a namespace were seen in the lab, n=2 runs).

**Look-alikes.** Every detector that knows what is wrong with the requests comes before: list-storm, uncached-reads, event-flood, conflict-storm, lock-herd, heartbeat-churn, tug-of-war, connection-churn, large-objects. A client is left to the one that names it for at least half of its requests.`,
	Detect: detect,
}

// A client is all that one program asked for.
type client struct {
	agent   string
	talks   []diagnose.Talk // the most frequent first
	count   int
	seconds float64 // in which the API server worked for it
	emptied int     // how many of the requests the namespace controller sent, to empty what the client deleted
	deleted int     // namespaces
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests, by client")
	}
	if v.Span() <= 0 {
		return diagnose.NotAssessed("a load")
	}
	by, all := clients(v)
	if all.count == 0 {
		return diagnose.NotThere("nobody asked for anything")
	}
	var found []diagnose.Finding
	var most *client
	for _, c := range by {
		if most == nil {
			most = c
		}
		rate, part, time := float64(c.count)/v.Span(), float64(c.count)/float64(all.count), 0.0
		if all.seconds > 0 {
			time = c.seconds / all.seconds
		}
		others := all.count - c.count
		times := 0.0 // as long as those of others
		if others >= fewest && all.seconds > c.seconds {
			times = c.seconds / float64(c.count) / ((all.seconds - c.seconds) / float64(others))
		}
		greedy := rate >= often && part >= share || rate >= hundreds && part >= fifth
		if !greedy && (rate < few || time < heavy || times < longer) {
			continue
		}
		if slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return tells(f, c.agent, rate) }) {
			continue
		}
		found = append(found, finding(v, c, rate, part, time, times, greedy))
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case most == nil:
		return diagnose.NotThere("nobody but the control plane and its nodes asked for anything")
	}
	return diagnose.NotThere("%s sent the most, %.1f requests a second, %.0f %% of all", most.agent, float64(most.count)/v.Span(), 100*float64(most.count)/float64(all.count))
}

// tells says whether a finding says what is wrong with a client that sends so many
// requests a second: with most of them, where it says how many it is about.
func tells(f diagnose.Finding, agent string, rate float64) bool {
	if f.Component != "client:"+agent && !strings.Contains(f.Cause, agent+" ") {
		return false
	}
	return f.Cost == nil || f.Cost.RequestsPerSecond == 0 || f.Cost.RequestsPerSecond >= mostly*rate
}

// clients are those that are no part of the cluster, the most requests first; all
// is everybody together.
func clients(v *diagnose.View) (by []*client, all client) {
	named := map[string]*client{}
	var empties client // that the namespace controller sends
	deleted := 0       // namespaces
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long }) {
		seconds := t.Worked()
		all.count += t.Count
		all.seconds += seconds
		removes := t.Verb == "delete" && t.Resource == "namespaces"
		if removes {
			deleted += t.Count
		}
		if t.Agent == diagnose.NamespaceController {
			empties.talks = append(empties.talks, t)
			empties.count += t.Count
			empties.seconds += seconds
		}
		if t.Harness || diagnose.OfCluster(t.Agent) {
			continue
		}
		c := named[t.Agent]
		if c == nil {
			c = &client{agent: t.Agent}
			named[t.Agent] = c
			by = append(by, c)
		}
		c.talks = append(c.talks, t)
		c.count += t.Count
		c.seconds += seconds
		if removes {
			c.deleted += t.Count
		}
	}
	for _, c := range by {
		if float64(c.deleted) >= emptying*v.Span() && float64(c.deleted) >= alone*float64(deleted) {
			c.talks = append(c.talks, empties.talks...)
			c.count += empties.count
			c.seconds += empties.seconds
			c.emptied = empties.count
		}
	}
	slices.SortFunc(by, func(a, b *client) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.agent, b.agent))
	})
	return by, all
}

func finding(v *diagnose.View, c *client, rate, part, time, times float64, greedy bool) diagnose.Finding {
	first := c.talks[0]
	f := diagnose.Finding{
		Component: "client:" + c.agent, Resource: "cpu", Sources: 1,
		Cause:     fmt.Sprintf("%s sends %.0f requests a second, %.0f %% of all", c.agent, rate, 100*part),
		Summary:   fmt.Sprintf("%s sends %.0f requests a second (n=%d), %.0f %% of all that the API server answers: %s.", c.agent, rate, c.count, 100*part, kinds(c)),
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Ask who runs %s, and what for. A client that writes should write only what has changed, when it has; one that reads should watch, and read from its cache; both should rest between rounds. Until then a FlowSchema of its own, with a priority level of few seats, bounds it. The price of a limit: it gets its work done later.", c.agent)},
		RefutedBy: "a run without this client with as many requests",
	}
	if !greedy {
		f.Cause = fmt.Sprintf("the requests of %s take %.0f %% of the time of all", c.agent, 100*time)
		f.Summary = fmt.Sprintf("Requests of %s take %.0f %% of the time that the API server works on requests, each %.0f times as long as those of others: %s.", c.agent, 100*time, times, kinds(c))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests of " + c.agent, Value: c.seconds, Unit: "s", Text: fmt.Sprintf("that the API server worked on them, %s each", seconds(c.seconds/float64(c.count)))})
		f.Advice.Text = fmt.Sprintf("Look at what makes a request of %s take so long: how large the objects are, and how many of them one request is about (kubedyno requests RECORDING --by userAgent,verb,resource). ", c.agent) + f.Advice.Text
	}
	if 2*c.emptied >= c.count {
		f.Cause = fmt.Sprintf("%s deletes %.1f namespaces a second, and each must be emptied", c.agent, float64(c.deleted)/v.Span())
		f.Summary = fmt.Sprintf("%s deletes %.1f namespaces a second (n=%d). To empty one, the namespace controller lists and deletes each kind of object that there is, %.0f requests: together %.0f %% of all that the API server answers.", c.agent, float64(c.deleted)/v.Span(), c.deleted, float64(c.emptied)/float64(c.deleted), 100*part)
		f.Advice.Text = fmt.Sprintf("Ask who runs %s, and whether what it puts into a namespace each could share one, told apart by names and labels, or use emptied namespaces again. Each kind of custom resource makes a removal dearer. The price: what shares a namespace shares its quotas and rights.", c.agent)
	}
	if code, n := refused(c); float64(n) >= mostRefused*float64(c.count) {
		f.Summary = fmt.Sprintf("%s %.0f %% of them are refused (%d).", f.Summary, 100*float64(n)/float64(c.count), code)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf("requests of %s: code %d", c.agent, code), Value: float64(n) / v.Span(), Unit: "1/s", Text: "of them refused"})
		f.Advice.Text = fmt.Sprintf("Find out why it is refused (%d): %s. It should wait longer after each refusal (exponential back-off). ", code, meaning(code)) + f.Advice.Text
	}
	if first.Names > 0 && float64(first.Count) >= 2*float64(first.Names) {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests of " + c.agent, Value: float64(first.Count) / float64(first.Names), Unit: "requests", Text: fmt.Sprintf("%s for each of %d objects", first.What(), first.Names)})
	}
	if i := slices.IndexFunc(c.talks, func(t diagnose.Talk) bool { return t.Writes() && t.Resource != "" }); i >= 0 && float64(c.talks[i].Count) >= written*float64(c.count) {
		write := c.talks[i]
		resource, _, _ := strings.Cut(write.Resource, "/")
		match := diagnose.Labels{"resource": resource, "operation": "~create|update|delete"}
		if n, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", match); ok && n >= 0.5*float64(write.Count) {
			f.Sources = 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`etcd_requests_total{resource=%q}`, resource), Value: n / v.Span(), Unit: "1/s", Text: "such objects written to etcd in all"})
		}
	}
	consumer.Judge(v, &f, c.talks, "")
	return f
}

// refused is how many of a client's requests were refused with the code from 400 on
// that is the most frequent one.
func refused(c *client) (code int32, n int) {
	by := map[int32]int{}
	for _, t := range c.talks {
		for x, k := range t.Codes {
			if x >= 400 {
				by[x] += k
			}
		}
	}
	for _, x := range slices.Sorted(maps.Keys(by)) {
		if by[x] > n {
			code, n = x, by[x]
		}
	}
	return code, n
}

// meaning is what a code says of a request.
func meaning(code int32) string {
	switch code {
	case http.StatusUnauthorized:
		return "nobody knows its token or certificate"
	case http.StatusForbidden:
		return "it has no right to what it asks for"
	case http.StatusNotFound:
		return "what it asks for is not there"
	case http.StatusConflict:
		return "what it writes has changed since it was read"
	case http.StatusTooManyRequests:
		return "it is sent away for sending too many"
	}
	return cmp.Or(strings.ToLower(http.StatusText(int(code))), "its log tells")
}

// kinds says what a client asks for most.
func kinds(c *client) string {
	var parts []string
	for i, t := range c.talks {
		if i == told || float64(t.Count) < 0.05*float64(c.count) {
			break
		}
		parts = append(parts, fmt.Sprintf("%s %.0f %%", t.What(), 100*float64(t.Count)/float64(c.count)))
	}
	return strings.Join(parts, ", ")
}

func seconds(s float64) string {
	if s >= 1 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f ms", 1000*s)
}

package eventflood

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// perSecond Events of one client.
	perSecond = 5.0
	// perPod Events of one component for each pod of the run: the scheduler writes
	// one, a controller one, a kubelet four.
	perPod = 8.0
	// share of all writes to the API server.
	share = 0.10
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "event-flood",
	Title: "A client floods the cluster with Events",
	Doc: `Each Event is an object in etcd, kept for an hour: a write, a sync of the disk, an entry of a lease, later a delete. client-go's recorder merges the same ones and lets 25 pass at once for each object, then one in 5 minutes; clients that write by
themselves, or put a time or a number into each message, get past that.

**Evidence.** One client creates or patches at least 5 Events a second, 10 % of all writes, and more than 8 for each pod that the run brought up in that time. The API server's count of their writes to etcd is the second source.

**Look-alikes.** Components at work: the scheduler writes an Event for each pod that it binds, a kubelet four for each that it starts, so that many pods make many Events; retries of a write (conflict-storm).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: who writes Events is in the audit log only")
	}
	if !v.AuditsEvents() && v.Arrived() == 0 {
		return diagnose.NotThere("no Events were written")
	}
	if !v.AuditsEvents() {
		return diagnose.NotAssessed("Events in the audit log: its policy leaves them out")
	}
	writes := 0
	by := map[string][]diagnose.Talk{}
	count := map[string]int{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Writes() }) {
		writes += t.Count
		if t.Resource == "events" && !t.Harness && (t.Verb == "create" || t.Verb == "patch" || t.Verb == "update") {
			by[t.Agent] = append(by[t.Agent], t)
			count[t.Agent] += t.Count
		}
	}
	who := ""
	for agent, n := range count {
		if who == "" || n > count[who] || n == count[who] && agent < who {
			who = agent
		}
	}
	n := float64(count[who])
	rate := n / v.Span()
	pods := float64(max(1, v.Arrived()))
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "create" && (t.Resource == "pods" || t.Resource == "pods/binding")
	}) {
		pods = max(pods, float64(t.Count)) // those that were not watched, too
	}
	if who == "" || rate < perSecond || n < share*float64(writes) || n < perPod*pods && diagnose.OfCluster(who) {
		return diagnose.NotThere("the most Events were %.1f a second, by %s, %.1f for each pod", rate, nobody(who), n/pods)
	}
	if diagnose.OfCluster(who) && v.Arrived() == 0 {
		return diagnose.NotAssessed("pods that came: %s writes %.1f Events a second, which may be what they take", who, rate)
	}
	f := diagnose.Finding{
		Component: "client:" + who, Resource: "disk", Sources: 1,
		Cause:   fmt.Sprintf("%s writes %.0f Events a second", who, rate),
		Summary: fmt.Sprintf("%s floods the cluster with Events: %.0f a second, %.0f %% of all writes, each of which etcd keeps for an hour.", who, rate, 100*n/float64(max(1, writes))),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: events of " + who, Value: rate, Unit: "1/s", Text: fmt.Sprintf("Events a second (n=%.0f), %.0f %% of all writes", n, 100*n/float64(max(1, writes)))},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Let %s write by client-go's recorder, which merges what is the same, without times or numbers in the message, and only when something changed. Until then the admission plugin EventRateLimit bounds it, and --etcd-servers-overrides=/events#… gives Events an etcd of their own. The price of a limit: Events that nobody sees.", who)},
		RefutedBy: "a run without this client with as many Events",
	}
	if posts, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"resource": "events", "operation": "~create|update"}); ok && posts >= 0.5*n {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `etcd_requests_total{resource="events"}`, Value: posts / v.Span(), Unit: "1/s", Text: "Events written to etcd in all"})
	}
	consumer.Judge(v, &f, by[who], "")
	return diagnose.Found(f)
}

func nobody(who string) string {
	if who == "" {
		return "nobody"
	}
	return who
}

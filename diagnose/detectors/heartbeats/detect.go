package heartbeats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// A kubelet renews its lease every 10 s and reports its status every 5
	// minutes, or when it changes.
	lease, status = 0.1, 1.0 / 300
	// often is how many times that counts; programs of two clients on one lease
	// are not yet it.
	often = 3.0
	// perSecond of all, and objects: one leader's lease every 2 s is an election.
	perSecond = 2.0
	objects   = 5
	// pods: a node's status changes as pods come, so that a few reports for each
	// are no heartbeat.
	statusFloor = 0.1
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "heartbeat-churn",
	Title: "Heartbeats come more often than they need",
	Doc: `A node says that it lives by renewing its lease, every 10 s by default; its status it reports when it changes, at least every 5 minutes. Agents that renew every second, or patch nodes/status instead, cost a write to etcd each, and a status is sent to everybody who watches nodes: scheduler, controllers, every kube-proxy.

**Evidence.** One client writes at least 5 leases or node statuses over and over, without reading them first, each at least three times as often as a kubelet does (leases more than 0.3 times a second, nodes/status more than 0.1), 2 a second in all.

**Look-alikes.** Elections (few leases, or as many reads as writes: lock-herd); nodes that start (a few reports each); the attach-detach controller, which writes a node's status as its volumes come; nodes that were given up, which report anew (nodes-given-up); many nodes at the usual pace (each one renews in 10 s).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: how often each object is written is in the audit log only")
	}
	var found []diagnose.Finding
	most, unnamed := 0.0, false
	// A node that was given up reports anew, which is not its own wish.
	givenUp := slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return f.ID == "nodes-given-up" })
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return (t.Verb == "update" || t.Verb == "patch") && (t.Resource == "leases" || t.Resource == "nodes/status") &&
			!(givenUp && t.Resource == "nodes/status") &&
			!strings.HasPrefix(t.Agent, diagnose.ControllerManager) // reports volumes, by the node's status
	}) {
		n := t.Names
		if n < 0 {
			n = t.Users // a thinned recording: each node has a user of its own
			if t.Harness {
				n = v.Meta.Nodes.Count
			}
		}
		if n <= 0 {
			unnamed = true
			continue
		}
		each := t.Rate(v) / float64(n)
		usual, floor := lease, often*lease
		if t.Resource != "leases" {
			usual, floor = status, statusFloor
		}
		most = max(most, each)
		if n < objects || each < floor || t.Rate(v) < perSecond {
			continue
		}
		reads := 0
		for _, o := range v.TalksOf(func(o *diagnose.Talk) bool { return o.Agent == t.Agent && o.Verb == "get" && o.Resource == t.Resource }) {
			reads += o.Count
		}
		if reads > t.Count/2 {
			continue
		}
		f := diagnose.Finding{
			Component: "client:" + t.Agent, Resource: "disk", Sources: 1,
			Cause:   fmt.Sprintf("%s writes each of %d %s every %.1f s", t.Agent, n, t.Resource, 1/each),
			Summary: fmt.Sprintf("%s writes %s %.0f times a second: each of %d every %.1f s, where a kubelet does so every %.0f s.", t.Agent, t.Resource, t.Rate(v), n, 1/each, 1/usual),
			Evidence: []diagnose.Evidence{
				{Kind: "rate", Ref: "requests: " + t.What() + " of " + t.Agent, Value: t.Rate(v), Unit: "1/s", Text: fmt.Sprintf("writes of %d objects, %.2g a second each", n, each)},
			},
			Advice:    diagnose.Advice{Text: fmt.Sprintf("Let it renew a lease every 10 s (nodeLeaseDurationSeconds 40) and report a status when it changes only. Then %.0f writes a second become %.0f. The price: a node that dies is noticed up to 40 s later, as with kubelets.", t.Rate(v), float64(n)*lease)},
			RefutedBy: "a run at the usual pace with as many writes to etcd",
		}
		if updates, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"operation": "update", "resource": "~leases|nodes"}); ok && updates >= 0.5*float64(t.Succeeded()) {
			f.Sources = 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `etcd_requests_total{operation="update",resource=~"leases|nodes"}`, Value: updates / v.Span(), Unit: "1/s", Text: "such writes in etcd"})
		}
		consumer.Judge(v, &f, []diagnose.Talk{t}, "")
		found = append(found, f)
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case unnamed:
		return diagnose.NotAssessed("the names of objects in the audit log")
	}
	return diagnose.NotThere("each lease or status was written at most %.2f times a second", most)
}

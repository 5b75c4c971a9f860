package watchfanout

import (
	"fmt"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	sent, open = "apiserver_watch_events_total", "apiserver_longrunning_requests"
	// perSecond events sent. An event costs some 10-20 µs to write, so that 1,000
	// a second are 1-2 % of a core.
	perSecond = 1000.0
	// watchers of one resource that get each change; a healthy cluster has a
	// dozen, nodes' watches each get their own pods only.
	watchers = 50.0
	// burnt is the share of the API server's CPU for watches by its profile.
	burnt = 0.10
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "watch-fan-out",
	Title: "Each change is sent to very many watches",
	Doc: `A change costs the API server by the watches that it is sent to: it is encoded once for each form and written once for each watch. A daemon on each node that watches all pods, endpoints or nodes multiplies every change by the number of nodes.

**Evidence.** At least 1,000 watch events a second are sent, those of one resource to at least 50 watches each (events sent, apiserver_watch_events_total, for each write of the resource, and no more than were open), and the profile has 10 % of the API server's CPU (garbage collection left out) in watches, where it was recorded. Each resource of which 1,000 events a second are sent to as many watches is a finding of its own, with its part of the events of what watches take. The number of open watches (apiserver_longrunning_requests) is the second source, the audit log names the client.

**Look-alikes.** Lists (list-storm: requests, not events); watches that end and begin again (relist-storm); many watches without changes (they cost memory only).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	by, ok := v.IncreaseBy(diagnose.APIServer, sent, "resource", nil)
	if !ok || v.Span() <= 0 {
		return diagnose.NotAssessed("the API server's metrics")
	}
	total := 0.0
	for _, p := range by {
		total += p.Value
	}
	if len(by) == 0 || total < perSecond*v.Span() {
		return diagnose.NotThere("%.0f watch events a second were sent", total/v.Span())
	}
	var fans []fan
	for i, p := range by {
		if x := fanOf(v, p); x.each >= watchers && (i == 0 || p.Value >= perSecond*v.Span()) {
			fans = append(fans, x)
		}
	}
	if len(fans) == 0 {
		x := fanOf(v, by[0])
		return diagnose.NotThere("%.0f watch events a second were sent, each change of %s to %.0f watches", total/v.Span(), x.resource, x.each)
	}
	work, profiled := v.Work(diagnose.APIServer, functions.PathWatch)
	if profiled && work.OfWork < burnt {
		return diagnose.NotThere("each change of %s went to %.0f watches, for %.0f %% of the API server's CPU", fans[0].resource, fans[0].each, 100*work.OfWork)
	}
	var found []diagnose.Finding
	for _, x := range fans {
		found = append(found, x.finding(v, x.events/total, work.OfWork, profiled))
	}
	return diagnose.Found(found...)
}

// A fan is what is sent of one resource.
type fan struct {
	resource        string
	events, changes float64
	each            float64 // watches that a change is sent to
	watches         diagnose.Level
	hasOpen         bool
}

func fanOf(v *diagnose.View, p diagnose.Part) fan {
	x := fan{resource: p.Label, events: p.Value}
	x.changes, _ = v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"resource": p.Label, "operation": "~create|update|delete"})
	x.each = p.Value / max(1, x.changes)
	x.watches, x.hasOpen = v.Gauge(diagnose.APIServer, open, diagnose.Labels{"resource": p.Label, "verb": "WATCH"}, v.Load)
	if x.hasOpen && x.each > x.watches.Max { // the rest is what watches that begin are sent of what is there
		x.each = x.watches.Max
	}
	return x
}

// finding is of one resource, whose part of all events that is; share is what watches
// take of the API server's CPU.
func (x fan) finding(v *diagnose.View, part, share float64, profiled bool) diagnose.Finding {
	less := "a field or label selector"
	switch x.resource {
	case "pods":
		less += " (spec.nodeName)"
	case "endpoints":
		less += ", EndpointSlices instead of them"
	}
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "watch", Sources: 1,
		Cause:   fmt.Sprintf("each change of %s is sent to %.0f watches", x.resource, x.each),
		Summary: fmt.Sprintf("Each change of %s is sent to %.0f watches", x.resource, x.each),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: sent + `{resource="` + x.resource + `"}`, Value: x.events / v.Span(), Unit: "1/s", Text: fmt.Sprintf("events sent for %.1f changes a second in etcd", x.changes/v.Span())},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Let clients watch only what they need of %s: %s, metadata only; or one watcher that passes on. The price of the latter: one more thing that must run.", x.resource, less)},
		RefutedBy: "a run without these watches in which the API server uses as much CPU",
	}
	if x.hasOpen {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: open + `{verb="WATCH",resource="` + x.resource + `"}`, Value: x.watches.Mean, Unit: "watches", Text: "open on average"})
	}
	var holders []diagnose.Talk
	for _, w := range v.Watches {
		if w.Resource != x.resource || w.Harness || float64(w.N) < watchers {
			continue
		}
		f.Component = "client:" + w.Agent
		f.Summary += fmt.Sprintf(", %d of them of %s", w.N, w.Agent)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH " + x.resource, Value: float64(w.N), Unit: "watches", Text: "of " + w.Agent + " were open during the load"})
		holders = v.TalksOf(func(t *diagnose.Talk) bool {
			return t.Verb == "watch" && t.Resource == w.Resource && t.Agent == w.Agent
		})
		if len(holders) == 0 { // all began before
			holders = []diagnose.Talk{{Agent: w.Agent, Group: w.Group, Resource: w.Resource, Verb: "watch", Long: true}}
		}
		break
	}
	f.Summary += fmt.Sprintf(": %.0f events a second.", x.events/v.Span())
	path := ""
	if profiled {
		f.Sources++
		path = "watch"
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: share, Unit: "1", Text: fmt.Sprintf("of the API server's CPU went to watches, garbage collection left out; %.0f %% of all events are of %s", 100*part, x.resource)})
	}
	consumer.JudgePart(v, &f, holders, path, part)
	return f
}

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

**Evidence.** At least 1,000 watch events a second are sent, those of one resource to at least 50 watches each (events sent, apiserver_watch_events_total, for each write of the resource, and no more than were open), and the profile has 10 % of the API server's CPU (garbage collection left out) in watches, where it was recorded. The number of open watches (apiserver_longrunning_requests) is the second source, the audit log names the client.

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
	top := by[0]
	changes, _ := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"resource": top.Label, "operation": "~create|update|delete"})
	fan := top.Value / max(1, changes)
	watches, hasOpen := v.Gauge(diagnose.APIServer, open, diagnose.Labels{"resource": top.Label, "verb": "WATCH"}, v.Load)
	if hasOpen && fan > watches.Max { // the rest is what watches that begin are sent of what is there
		fan = watches.Max
	}
	if fan < watchers {
		return diagnose.NotThere("%.0f watch events a second were sent, each change of %s to %.0f watches", total/v.Span(), top.Label, fan)
	}
	work, profiled := v.Work(diagnose.APIServer, functions.PathWatch)
	if gc, ok := v.Work(diagnose.APIServer, functions.PathGC); profiled && ok && gc.Share < 1 {
		work.Share /= 1 - gc.Share // of what it does, whatever its collector burns beside
	}
	if profiled && work.Share < burnt {
		return diagnose.NotThere("each change of %s went to %.0f watches, for %.0f %% of the API server's CPU", top.Label, fan, 100*work.Share)
	}
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "watch", Sources: 1,
		Cause:   fmt.Sprintf("each change of %s is sent to %.0f watches", top.Label, fan),
		Summary: fmt.Sprintf("Each change of %s is sent to %.0f watches, %.0f events a second", top.Label, fan, total/v.Span()),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: sent + `{resource="` + top.Label + `"}`, Value: top.Value / v.Span(), Unit: "1/s", Text: fmt.Sprintf("events sent for %.1f changes a second in etcd", changes/v.Span())},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Let clients watch only what they need of %s: a field or label selector (spec.nodeName of pods), EndpointSlices instead of Endpoints, metadata only; or one watcher that passes on. The price of the latter: one more thing that must run.", top.Label)},
		RefutedBy: "a run without these watches in which the API server uses as much CPU",
	}
	if hasOpen {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: open + `{verb="WATCH",resource="` + top.Label + `"}`, Value: watches.Mean, Unit: "watches", Text: "open on average"})
	}
	var holders []diagnose.Talk
	for _, w := range v.Watches {
		if w.Resource != top.Label || w.Harness || float64(w.N) < watchers {
			continue
		}
		f.Component = "client:" + w.Agent
		f.Summary += fmt.Sprintf(", %d of them of %s", w.N, w.Agent)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH " + top.Label, Value: float64(w.N), Unit: "watches", Text: "of " + w.Agent + " were open during the load"})
		holders = v.TalksOf(func(t *diagnose.Talk) bool {
			return t.Verb == "watch" && t.Resource == w.Resource && t.Agent == w.Agent
		})
		if len(holders) == 0 { // all began before
			holders = []diagnose.Talk{{Agent: w.Agent, Group: w.Group, Resource: w.Resource, Verb: "watch", Long: true}}
		}
		break
	}
	f.Summary += "."
	path := ""
	if profiled {
		f.Sources++
		path = "watch"
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: work.Share, Unit: "1", Text: "of the API server's CPU went to watches, garbage collection left out"})
	}
	consumer.Judge(v, &f, holders, path)
	return diagnose.Found(f)
}

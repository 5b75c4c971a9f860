package uncached

import (
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// lists in etcd a second of one resource. The API server by itself lists each
	// resource once a minute or less.
	lists = 2.0
	// gets a second of one client: each GET without a version is a read of etcd.
	gets = 20.0
	// share of all requests, below which gets are of no interest.
	share = 0.25
	// perObject: how often a client reads the same object.
	perObject = 10.0
	// emptying is the part of the lists from which on they belong to the removal of namespaces.
	emptying = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "uncached-reads",
	Title: "A client reads past the API server's cache",
	Doc: `Not every read is served from the API server's cache. Lists of Events are not (they have none), nor lists of a version that is no longer known; and a GET that names no version goes to etcd each time. A client that polls so makes etcd read, and range over whole prefixes.

**Evidence.** At least 2 lists a second of one resource reach etcd (etcd_requests_total{operation="list"}), or one client sends 20 GETs a second, a quarter of all requests, each object at least ten times, and never writes what it reads. Who lists is told by the audit log.

**Look-alikes.** Lists from the cache (list-storm: etcd sees nothing of them); the namespace controller, which lists all there is in a namespace that goes (who deletes namespaces answers for it: greedy-client); clients that read before they write, as those of conflict-storm; the API server's own counts and checks (one a minute for each resource).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	by, ok := v.IncreaseBy(diagnose.APIServer, "etcd_requests_total", "resource", diagnose.Labels{"operation": "list"})
	if !ok && !v.HasRequests {
		return diagnose.NotAssessed("the API server's metrics, or the requests")
	}
	if v.Span() <= 0 {
		return diagnose.NotAssessed("a load")
	}
	all := len(by)
	by = slices.DeleteFunc(by, func(p diagnose.Part) bool { return emptied(v, p) })
	var found []diagnose.Finding
	if len(by) > 0 && by[0].Value >= lists*v.Span() {
		f := diagnose.Finding{
			Component: diagnose.APIServer, Resource: "cache", Sources: 1,
			Cause:   fmt.Sprintf("%.1f lists of %s a second reach etcd", by[0].Value/v.Span(), by[0].Label),
			Summary: fmt.Sprintf("Lists of %s pass by the API server's cache: %.1f a second are read from etcd", by[0].Label, by[0].Value/v.Span()),
			Evidence: []diagnose.Evidence{
				{Kind: "rate", Ref: `etcd_requests_total{operation="list",resource="` + by[0].Label + `"}`, Value: by[0].Value / v.Span(), Unit: "1/s", Text: "lists in etcd, pages included"},
			},
			Advice:    diagnose.Advice{Text: "Watch instead of listing; where a list must be, resourceVersion=0 takes what the cache has, with limit and a namespace. Events have no cache: an informer, or Events of one object by a field selector, is all that helps. The price of resourceVersion=0: an answer that may be some ms old."},
			RefutedBy: "a run without this client in which as many lists reach etcd",
		}
		who := v.TalksOf(func(t *diagnose.Talk) bool {
			return t.Verb == "list" && t.Resource == by[0].Label && float64(t.Count) >= 0.3*by[0].Value
		})
		if len(who) > 0 {
			f.Sources = 2
			f.Component = "client:" + who[0].Agent
			f.Summary += ", for " + who[0].Agent
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: LIST " + by[0].Label + " of " + who[0].Agent, Value: who[0].Rate(v), Unit: "1/s", Text: "lists by " + who[0].Agent})
		}
		if n, ok := v.Increase(diagnose.Etcd, "etcd_mvcc_range_total", nil); ok && n > 0 {
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "etcd_mvcc_range_total", Value: n / v.Span(), Unit: "1/s", Text: "ranges that etcd read in all"})
		}
		f.Summary += "."
		consumer.Judge(v, &f, who, "")
		found = append(found, f)
	}
	requests := float64(max(1, v.Answered()))
	most := 0.0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "get" && t.Resource != "" && !t.Harness && t.Names > 0 && t.Resource != "leases"
	}) {
		most = max(most, t.Rate(v))
		if t.Rate(v) < gets || float64(t.Count) < share*requests || float64(t.Count) < perObject*float64(t.Names) {
			continue
		}
		if len(v.TalksOf(func(o *diagnose.Talk) bool {
			return o.Agent == t.Agent && o.Resource == t.Resource && o.Writes()
		})) > 0 {
			continue
		}
		f := diagnose.Finding{
			Component: "client:" + t.Agent, Resource: "cache", Sources: 1,
			Cause:   fmt.Sprintf("%s reads the same %s again and again", t.Agent, t.Resource),
			Summary: fmt.Sprintf("%s polls %d %s with %.0f GETs a second, each of which is a read of etcd.", t.Agent, t.Names, t.Resource, t.Rate(v)),
			Evidence: []diagnose.Evidence{
				{Kind: "rate", Ref: "requests: GET " + t.Resource + " of " + t.Agent, Value: t.Rate(v), Unit: "1/s", Text: fmt.Sprintf("reads of %d objects", t.Names)},
			},
			Advice:    diagnose.Advice{Text: fmt.Sprintf("Let %s watch these %s, or read with resourceVersion=0. The price of the latter: an answer that may be some ms old.", t.Agent, t.Resource)},
			RefutedBy: "a run without this client in which etcd reads as much",
		}
		if n, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"operation": "get", "resource": t.Resource}); ok && n >= 0.5*float64(t.Count) {
			f.Sources = 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `etcd_requests_total{operation="get"}`, Value: n / v.Span(), Unit: "1/s", Text: "reads of " + t.Resource + " in etcd"})
		}
		consumer.Judge(v, &f, []diagnose.Talk{t}, "")
		found = append(found, f)
	}
	if len(found) > 0 {
		return diagnose.Found(found...)
	}
	if !ok {
		return diagnose.NotAssessed("the API server's metrics: which lists reach etcd")
	}
	reached := 0.0
	if len(by) > 0 {
		reached = by[0].Value / v.Span()
	}
	spared := ""
	if len(by) < all {
		spared = ", what is listed to empty namespaces left out"
	}
	return diagnose.NotThere("at most %.2f lists a second of a resource reached etcd%s, and one client's GETs were %.1f a second", reached, spared, most)
}

// emptied says that a resource is listed because namespaces are being emptied. A
// collection is listed before it is deleted.
func emptied(v *diagnose.View, of diagnose.Part) bool {
	n := 0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return (t.Verb == "list" || t.Verb == "deletecollection") && t.Resource == of.Label && t.Agent == diagnose.NamespaceController
	}) {
		n += t.Count
	}
	return float64(n) >= emptying*of.Value
}

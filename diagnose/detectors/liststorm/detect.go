package liststorm

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// perSecond direct lists of one client; people and dashboards stay below.
	perSecond = 0.5
	// objects a second read out of the cache for it. A core encodes some 50,000
	// small objects a second, so that this is 1-2 % of one.
	objects = 1000.0
	// burnt is the share of the API server's CPU, where profiles know it.
	burnt = 0.05
	// busy is the share of the requests' time where neither is recorded.
	busy = 0.20
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "list-storm",
	Title: "A client reads whole lists again and again",
	Doc: `A LIST costs the API server by the objects that it reads, encodes and sends, not by the request. Since v1.31 it is answered from the watch cache, so that etcd shows nothing of it. client-go's informers begin with one list, or
with none at all (a watch that asks for the initial events), and then only watch: a LIST that no WATCH follows is direct, and a client that sends many should be an informer.

**Evidence.** One client sends at least one direct LIST of a resource in 2 s, and these read at least 1,000 objects/s from the cache (apiserver_cache_list_fetched_objects_total, shared out by the lists of that resource), or
LIST handlers take 5 % of the API server's CPU in its profile; where neither is recorded, lists take 20 % of the requests' time. A list may take 100 ms on a quiet resource only to learn that the cache is fresh: time alone is no cost. It
is waste; where its CPU is a fifth of a full one, it is the bottleneck.

**Look-alikes.** Informers that start (one list, then a watch) or begin again (relist-storm); lists that reach etcd (uncached-reads, the storage's counters move instead of the cache's); the API server's own checks of its caches.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	switch {
	case !v.HasRequests:
		return diagnose.NotAssessed("the requests: who lists, and whether a watch follows, is in the audit log only")
	case v.Lists == nil && len(v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "list" && !t.Harness })) > 0:
		return diagnose.NotAssessed("what lists asked for: the recording's requests are without their queries, or from a source without open watches")
	}
	var found []diagnose.Finding
	most, who, of := 0.0, "", ""
	fetched, hasFetched := v.IncreaseBy(diagnose.APIServer, "apiserver_cache_list_fetched_objects_total", "resource", nil)
	for _, l := range v.Lists {
		direct := float64(l.Direct()+l.Pages) / v.Span()
		if l.Agent == diagnose.APIServer { // of itself, over the loopback
			continue
		}
		// Of equals it is by resource: clients have other names in an anonymised recording.
		if direct > most || direct == most && l.Resource < of {
			most, who, of = direct, fmt.Sprintf("%s of %s", l.Agent, l.Resource), l.Resource
		}
		if direct < perSecond {
			continue
		}
		talks := v.TalksOf(func(t *diagnose.Talk) bool {
			return t.Verb == "list" && t.Agent == l.Agent && t.Resource == l.Resource && t.Group == l.Group
		})
		if len(talks) == 0 {
			continue
		}
		all := 0
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "list" && t.Resource == l.Resource && t.Group == l.Group }) {
			all += t.Count
		}
		// What etcd lists itself is uncached-reads' news.
		if inEtcd, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"operation": "list", "resource": l.Resource}); ok && inEtcd >= 0.5*direct*v.Span() {
			continue
		}
		part := float64(talks[0].Count) / float64(max(1, all))
		read := -1.0
		if hasFetched {
			read = 0
			for _, p := range fetched {
				if p.Label == l.Resource {
					read = p.Value * part / v.Span()
				}
			}
		}
		work, profiled := v.Work(diagnose.APIServer, "LIST")
		if c := v.CostOf(talks, ""); !(read >= objects || profiled && work.OfWork*share(v, talks) >= burnt || read < 0 && !profiled && c.BusyShare != nil && *c.BusyShare >= busy) {
			continue
		}
		rate := diagnose.Digits(direct, 3)
		f := diagnose.Finding{
			Component: "client:" + l.Agent, Resource: "cache", Sources: 1,
			Cause: fmt.Sprintf("%s lists %s %s times a second", l.Agent, l.Resource, rate),
			Evidence: []diagnose.Evidence{
				{Kind: "rate", Ref: "requests: LIST " + l.Resource + " of " + l.Agent, Value: direct, Unit: "1/s", Text: fmt.Sprintf("lists that no watch follows (%d without a resourceVersion, %d that take any state, %d pages)", l.Quorum, l.Cached, l.Pages)},
			},
			Advice:    diagnose.Advice{Text: fmt.Sprintf("Let %s keep an informer (a list once, then a watch) and read from that; where it must list, by a selector that the API server has an index for (metadata.namespace, spec.nodeName of pods), with limit, and as protobuf. The price of an informer is the client's memory for all %s that it watches. Until then a FlowSchema of its own with few shares keeps it from crowding out others.", l.Agent, l.Resource)},
			RefutedBy: "a run without this client in which the API server uses as much CPU",
		}
		what, size := "whole lists", ""
		if read >= 0 {
			f.Sources = 2
			size = fmt.Sprintf(", for which the API server reads %.0f objects each from its cache, %.0f a second", read/max(direct, 1e-9), read)
			if read < direct { // by an index, which is cheap
				what, size = "lists", ", most of which find nothing"
			}
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `apiserver_cache_list_fetched_objects_total{resource="` + l.Resource + `"}`, Value: read, Unit: "1/s", Text: "objects read from the watch cache for it"})
		}
		f.Summary = fmt.Sprintf("%s reads %s of %s again and again: %s LISTs a second%s, where an informer would read once and then watch.", l.Agent, what, l.Resource, rate, size)
		if lists := l.Direct(); l.Pages > lists {
			f.Cause = fmt.Sprintf("%s lists %s a page at a time, %s a second", l.Agent, l.Resource, rate)
			f.Summary = fmt.Sprintf("%s reads lists of %s again and again, in %.0f pages each: %s pages a second%s, where an informer would read once and then watch.", l.Agent, l.Resource, float64(l.Pages+lists)/float64(max(1, lists)), rate, size)
			f.Advice.Text = "Where pages are small, ask for larger ones (client-go's have 500 objects): each costs what a request costs. " + f.Advice.Text
		}
		if profiled {
			x := work.Share * share(v, talks)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: x, Unit: "1", Text: "of the API server's CPU went to its lists (profile of LIST handlers, shared out by time)"})
		}
		f.Cost = v.CostOf(talks, "")
		if profiled {
			s := share(v, talks)
			seconds, part := work.CPUSeconds*s, work.Share*s
			f.Cost.ServerCPUSeconds, f.Cost.ServerCPUShare, f.Cost.Measured = &seconds, &part, true
		}
		consumer.Weigh(v, &f)
		found = append(found, f)
	}
	if len(found) == 0 {
		if who == "" {
			return diagnose.NotThere("no client sent lists without a watch")
		}
		return diagnose.NotThere("the most direct lists were %.2g a second, by %s", most, strings.TrimSpace(who))
	}
	return diagnose.Found(found...)
}

// share is the talks' part of all lists' time.
func share(v *diagnose.View, talks []diagnose.Talk) float64 {
	var mine, all float64
	for _, t := range talks {
		mine += max(0, t.Seconds)
	}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "list" }) {
		all += max(0, t.Seconds)
	}
	if all == 0 {
		return 0
	}
	return mine / all
}

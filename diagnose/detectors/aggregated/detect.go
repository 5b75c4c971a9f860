package aggregated

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "aggregated-api",
	Title: "An aggregated API is registered, and nobody serves it",
	Doc: `An APIService sends a group of the API to a server of somebody's own. Where that is away, requests for the group fail with 503, and whoever must know all kinds waits or gives up: namespaces are not finished, the garbage collector and quotas do not see new kinds, clients' discovery is slow.

**Evidence.** aggregator_unavailable_apiservice is 1 for it through most of the load. It is a risk; failures of discovery in the controller manager's log, and requests of its group that end in 503, are further sources.

**Look-alikes.** APIs that are away for a moment while the cluster starts (no finding); a namespace that is deleted slowly but goes on (client limits of the controller manager).`,
	Detect: detect,
}

// most of the load: services are checked every half a minute.
const most = 0.5

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	by := v.GaugeBy(diagnose.APIServer, "aggregator_unavailable_apiservice", "name", nil, v.Load)
	if len(by) == 0 {
		return diagnose.NotAssessed("aggregator_unavailable_apiservice of the API server")
	}
	var away []string
	for name, l := range by {
		if l.Mean >= most && l.Last > 0 {
			away = append(away, name)
		}
	}
	if len(away) == 0 {
		return diagnose.NotThere("all %d APIs are served", len(by))
	}
	slices.Sort(away)
	names := strings.Join(away, ", ")
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "unknown", Sources: 1,
		Cause:   "nobody serves " + names,
		Summary: fmt.Sprintf("Nobody serves %s: requests for it fail, and until it is back or gone no namespace can be deleted to its end, and garbage collection and discovery are incomplete.", names),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "aggregator_unavailable_apiservice", Text: "1 for " + names + " through most of the load"},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Bring back the Service behind it, or delete the APIService: kubectl delete apiservice %s. The price of the latter: its API is gone until it is installed again.", strings.Join(away, " "))},
		RefutedBy: "kubectl get apiservices that shows it Available",
	}
	groups := map[string]bool{}
	for _, name := range away {
		if _, group, ok := strings.Cut(name, "."); ok {
			groups[group] = true
		}
	}
	failed := v.TalksOf(func(t *diagnose.Talk) bool { return groups[t.Group] && t.Codes[503] > 0 })
	n := 0
	for _, t := range failed {
		n += t.Codes[503]
	}
	if n > 0 {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: code 503", Value: float64(n), Unit: "requests", Text: "for it failed"})
		f.Cost = v.CostOf(failed, "")
	}
	return diagnose.Found(f)
}

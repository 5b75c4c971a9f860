package crdchurn

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	own, all = "apiextensions_openapi_v2_regeneration_count", "aggregator_openapi_v2_regeneration_count"
	// perSecond regenerations: an installation makes some, and ends.
	perSecond = 0.2
	least     = 5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "crd-churn",
	Title: "The API's documentation is made again and again, since its kinds change",
	Doc: `Each change of a CustomResourceDefinition makes the API server build its OpenAPI documents anew, for all kinds together, and every client with a discovery cache reads them again. A loop that creates or updates definitions, or an operator that applies them without end, keeps it at that.

**Evidence.** The documents are made again at least every 5 s (apiextensions_openapi_v2_regeneration_count, aggregator_openapi_v2_regeneration_count), or writes of customresourcedefinitions come that often. The share of
OpenAPI in the API server's profile is the cost, where it was recorded.

**Look-alikes.** An installation that ends (a few, at its start); updates that change nothing (they make nothing again).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	a, okA := v.Increase(diagnose.APIServer, own, nil)
	b, okB := v.Increase(diagnose.APIServer, all, nil)
	if !okA && !okB {
		return diagnose.NotAssessed("the API server's metrics")
	}
	writes := v.TalksOf(func(t *diagnose.Talk) bool { return t.Writes() && t.Resource == "customresourcedefinitions" })
	made, changed := max(a, b), 0
	for _, t := range writes {
		changed += t.Succeeded()
	}
	often := max(made, float64(changed))
	if often < least || often < perSecond*v.Span() {
		return diagnose.NotThere("the API's documents were made again %.0f times, and definitions changed %d times", made, changed)
	}
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "cpu", Sources: 1,
		Cause:   fmt.Sprintf("definitions of kinds change %.2g times a second", often/v.Span()),
		Summary: fmt.Sprintf("The API server makes its OpenAPI documents again and again (%.0f times in %.0f s), since CustomResourceDefinitions keep changing.", made, v.Span()),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: own, Value: made / v.Span(), Unit: "1/s", Text: "regenerations a second"},
		},
		Advice:    diagnose.Advice{Text: "Apply definitions in one go and only when they differ. The price: none but a comparison."},
		RefutedBy: "a run without changes of definitions in which the API server uses as much CPU",
	}
	if made < least {
		f.Summary = fmt.Sprintf("CustomResourceDefinitions keep changing, %.1f times a second: each change is stored, told to every watcher and makes the API server serve the kind anew.", float64(changed)/v.Span())
		f.RefutedBy = "a run without changes of definitions that costs as much"
	}
	if changed > 0 {
		f.Sources = 2
		most := slices.MaxFunc(writes, func(a, b diagnose.Talk) int { return cmp.Compare(a.Succeeded(), b.Succeeded()) })
		if !strings.HasPrefix(most.Agent, diagnose.APIServer) {
			f.Component = "client:" + most.Agent
			f.Summary = strings.TrimSuffix(f.Summary, ".") + "; " + most.Agent + " changes them."
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: customresourcedefinitions", Value: float64(changed) / v.Span(), Unit: "1/s", Text: "changes of definitions, by " + consumer.Agents(writes)})
	}
	consumer.Judge(v, &f, writes, "OpenAPI")
	return diagnose.Found(f)
}

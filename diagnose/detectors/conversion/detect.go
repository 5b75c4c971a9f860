package conversion

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const histogram = "apiserver_crd_conversion_webhook_duration_seconds"

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "slow-conversion",
	Title: "A custom resource's conversion webhook is slow",
	Doc: `Objects of a CustomResourceDefinition are stored at one version. For who asks for another one the API server asks the definition's conversion webhook, while the request waits: a list for all of its objects, a watch for each event.

**Evidence.** Conversions of one resource take at least 10 ms on average (apiserver_crd_conversion_webhook_duration_seconds) and 10 % of the time of the requests about that resource by the log of requests, which is the second source. From 50 ms on it is a risk where nothing else suffers.

On a full CPU everything waits, so that there only 100 ms and more count.

**Look-alikes.** Admission webhooks (asked for writes only; their own clock); a slow etcd (every resource is slow).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	resources, ok := v.IncreaseBy(diagnose.APIServer, histogram+"_sum", "crd_name", nil)
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if len(resources) == 0 {
		return diagnose.NotThere("no custom resource was converted by a webhook")
	}
	var found []diagnose.Finding
	var why []string
	for _, r := range resources {
		mean, count, ok := v.Mean(diagnose.APIServer, histogram, diagnose.Labels{"crd_name": r.Label})
		if !ok {
			continue
		}
		l := layer.Layer{Name: "conversion of " + r.Label, Mean: mean, Count: count, Sources: 1,
			Ref:    fmt.Sprintf(`%s{crd_name="%s"}`, histogram, r.Label),
			Passes: func(t *diagnose.Talk) bool { return t.Of(r.Label) }}
		if quick := l.Quick(v); quick != "" {
			why = append(why, quick)
			continue
		}
		f := diagnose.Finding{
			Resource: "webhook", Cause: fmt.Sprintf("the conversion webhook of %s takes %.0f ms an answer", r.Label, 1000*mean),
			Advice:    diagnose.Advice{Text: fmt.Sprintf("Let clients use the version at which %s is stored, and migrate what is stored to the newest one (StorageVersionMigration): then nobody needs the webhook. Until then look at what serves it: its CPU, its replicas, what it asks in turn. The price: clients of the older version have to change.", r.Label)},
			RefutedBy: "requests at the stored version that take as long",
		}
		if !l.Finding(v, &f) {
			why = append(why, fmt.Sprintf("%s took %.0f ms, and nothing waited for it", l.Name, 1000*mean))
			continue
		}
		f.Summary = fmt.Sprintf("Requests for %s at a version that is not the stored one wait %.0f ms for its conversion webhook (n=%.0f)%s", r.Label, 1000*mean, count, layer.Outcome(&f))
		found = append(found, f)
	}
	if len(found) > 0 {
		return diagnose.Found(found...)
	}
	return diagnose.NotThere("%s", strings.Join(why, "; "))
}

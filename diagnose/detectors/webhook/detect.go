package webhook

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const histogram = "apiserver_admission_webhook_admission_duration_seconds"

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "slow-webhook",
	Title: "An admission webhook is slow",
	Doc: `A webhook is asked while a write waits: mutating ones one after another, validating ones beside each other, at most timeoutSeconds (10 by default) each. Whatever it takes, every write that its rules match takes too; a controller that
creates objects one by one, or a few at a time, creates so many fewer.

**Evidence.** A webhook's mean time (apiserver_admission_webhook_admission_duration_seconds) is at least 10 ms and 10 % of what the requests of its operation took by the audit log, which is the second source. Pods that wait
to be accepted, created, bound or reported are charged with its part of those requests. Where nothing suffers, one of 50 ms and more is a risk.

On a full CPU everything waits, so that there only 100 ms and more count.

**Look-alikes.** Policies in CEL inside the API server (policy-cost: CPU, no network); a slow etcd or a full API server (its requests are slow, the webhook's own clock is not); too few seats (apf-seats).`,
	Detect: detect,
}

// verbs are the requests that have an admission operation.
var verbs = map[string]string{"CREATE": "create", "UPDATE": "update patch", "DELETE": "delete deletecollection", "CONNECT": "connect"}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	names, ok := v.IncreaseBy(diagnose.APIServer, histogram+"_sum", "name", nil)
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if len(names) == 0 {
		return diagnose.NotThere("no webhook was asked")
	}
	var found []diagnose.Finding
	var why []string
	for _, n := range names {
		operations, _ := v.IncreaseBy(diagnose.APIServer, histogram+"_sum", "operation", diagnose.Labels{"name": n.Label})
		for _, op := range operations {
			match := diagnose.Labels{"name": n.Label, "operation": op.Label}
			mean, count, ok := v.Mean(diagnose.APIServer, histogram, match)
			if !ok {
				continue
			}
			l := layer.Layer{Name: "webhook " + n.Label, Mean: mean, Count: count, Sources: 1,
				Ref:    fmt.Sprintf(`%s{name="%s",operation="%s"}`, histogram, n.Label, op.Label),
				Passes: func(t *diagnose.Talk) bool { return strings.Contains(verbs[op.Label], t.Verb) }}
			if quick := l.Quick(v); quick != "" {
				why = append(why, quick)
				continue
			}
			f := diagnose.Finding{
				Resource: "webhook", Cause: fmt.Sprintf("webhook %s takes %.0f ms of each %s", n.Label, 1000*mean, op.Label),
				Advice:    diagnose.Advice{Text: fmt.Sprintf("Look at what serves %s (its CPU, its replicas, what it asks in turn), and ask it less: rules, matchConditions and namespaceSelector that leave out what it lets pass anyway. A shorter timeoutSeconds bounds the damage; with failurePolicy Ignore at the price that objects pass unseen, with Fail that they are refused.", n.Label)},
				RefutedBy: "a run without this webhook in which the same requests take as long",
			}
			if !l.Finding(v, &f) {
				why = append(why, fmt.Sprintf("%s took %.0f ms, and nothing waited for it", l.Name, 1000*mean))
				continue
			}
			f.Summary = fmt.Sprintf("Each %s waits %.0f ms for the admission webhook %s (n=%.0f)%s", op.Label, 1000*mean, n.Label, count, layer.Outcome(&f))
			if f.Class != diagnose.Risk {
				f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("without it each %s takes %.0f ms less", op.Label, 1000*mean)}
			}
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		return diagnose.Found(found...)
	}
	return diagnose.NotThere("%s", strings.Join(why, "; "))
}

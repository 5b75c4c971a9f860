package loadrefused

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/refusal"
	"github.com/kubedyno/kubedyno/record"
)

// share and many: refusals that are no accident; where all are refused, fewer are none.
const share, many = 0.05, 10

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "load-refused",
	Title: "The API server refuses what the load asks for",
	Doc: `Whoever makes bare pods, or Deployments and Jobs, is told no: by a webhook that fails or says no, a policy, a quota, a namespace that is being deleted. Nobody asks again for them, so that what was refused never comes. The run is not valid
then; this says who refuses.

**Evidence.** At least 5 % (and ten, or all) of the load's own requests were answered with 400, 403, 422 or 5xx. Who refuses is told as for creates-refused: by the API server's counters of webhooks, policies and admission plugins, and in the words of the answers.

**Look-alikes.** creates-refused: the load's Deployment is accepted, and a controller is refused its pods, for which it asks again. 429 is priority and fairness, 409 a conflict, 404 something that is gone: none counts here. An API server that nobody reaches answers nothing. Where etcd is full (etcd-space) or a component ended (component-ended), 5xx are its doing. 5xx that no counter of refusals knows leave the resource unknown.`,
	Detect: detect,
}

// operations are what admission calls the verbs of a load.
var operations = map[string]string{"create": "CREATE", "apply": "CREATE", "scale": "UPDATE", "patch": "UPDATE", "update": "UPDATE", "delete": "DELETE"}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasOperations {
		return diagnose.NotAssessed("the load's requests: this run made none of its own")
	}
	var counts refusal.Count
	missing := 0
	var first *record.Operation
	for i := range v.Operations {
		o := &v.Operations[i]
		if o.SentMicros == 0 || o.Code == 0 || !counts.Add(1, map[int32]int{o.Code: 1}) {
			continue
		}
		missing += int(o.Pods)
		if first == nil {
			first = o
		}
	}
	if counts.Refused < many && counts.Refused < counts.All || counts.Refused == 0 || counts.Share() < share {
		return diagnose.NotThere("%d of %d requests of the load were refused", counts.Refused, counts.All)
	}
	for _, f := range earlier {
		if f.ID == "etcd-space" || f.ID == "component-ended" {
			return diagnose.NotThere("%d of %d requests of the load were refused: %s", counts.Refused, counts.All, f.ID)
		}
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "policy", Sources: 1,
		Cause:   fmt.Sprintf("%d of %d requests of the load are refused with %d", counts.Refused, counts.All, counts.Code()),
		Summary: fmt.Sprintf("The API server refuses %d of the %d requests of the load with code %d (the first: %s %s), and nobody makes them again.", counts.Refused, counts.All, counts.Code(), first.Verb, first.Resource),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "operations: code", Value: counts.Share(), Unit: "1", Text: fmt.Sprintf("%d of %d were refused", counts.Refused, counts.All)},
		},
		Advice:    diagnose.Advice{Text: "Look at what the answer names: a webhook, a policy, a quota, or the API server's own trouble."},
		RefutedBy: "the same request made by hand (kubectl create --dry-run=server) that is accepted",
	}
	if counts.Code() >= 500 {
		f.Resource = "unknown" // of an API server in trouble, unless who refuses is known
	}
	if missing > 0 && v.Counts.Expected > 0 {
		f.Class, f.Stage = diagnose.Bottleneck, diagnose.Accept
		f.MissingShare = min(1, float64(missing)/float64(max(missing, v.Counts.Expected-v.Arrived())))
		f.Suffered = fmt.Sprintf("%d pods never came", missing)
	}
	if by, ok := refusal.By(v, refusal.Asked{Operation: operations[first.Verb], Refused: float64(counts.Refused), Of: first.Resource, Reasons: "the answers to the load"}); ok {
		f.Resource, f.Sources = by.Resource, 2
		f.Cause += ": " + by.Cause
		f.Summary += fmt.Sprintf(" It is %s.", by.Cause)
		f.Advice.Text = "Look at " + by.Look + "."
		f.Evidence = append(f.Evidence, by.Evidence)
	}
	if code, n, words := v.Refusals(); refusal.Is(code) && words != "" {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "operations: error", Value: float64(n), Unit: "requests", Text: fmt.Sprintf("with %d; the first says: %s", code, words)})
	}
	return diagnose.Found(f)
}

package nodesrefused

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/refusal"
)

const (
	// many refusals: a share of all such requests, and a number that is no accident.
	share, many = 0.05, 10
	// always is the share from which most pods meet one, and a second or a few more
	// in the kubelet's back-off with it.
	always = 0.2
)

// asking is one kind of request that nodes send before others see their pods run.
type asking struct {
	resource  string
	verbs     []string
	operation string // of admission
	what      string // to say so many of: "tokens that nodes ask for"
	of        string // what a webhook may want something of
	reasons   string // what has the reasons of refusals
	then      string // what a refusal means
}

var asks = []asking{
	{"serviceaccounts/token", []string{"create"}, "CREATE", "tokens that nodes ask for", "a token", "the FailedMount events of the pods",
		"without its token a pod's volumes are not complete and its containers not started; the kubelet tries again, and waits longer after each refusal"},
	{"pods/status", []string{"patch", "update"}, "UPDATE", "reports of nodes on their pods", "a pod's status", "the kubelets' logs",
		"pods run and nobody knows; the kubelet reports again, some seconds later"},
}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "nodes-refused",
	Title: "The API server refuses what nodes ask for their pods",
	Doc: `Between a pod's binding and its report the kubelet needs two things of the API server: a token for the pod's ServiceAccount, which stands in a volume of nearly every pod, and that its report
is taken. A webhook or policy that says no to one of them, or fails, holds pods on nodes that are in order. The kubelet tries again, and waits longer after each refusal.

**Evidence.** At least 5 % (and ten) of the nodes' requests for tokens, or of their reports of pods' status, were answered with 400, 401, 403, 422 or 5xx, and pods lost time in stage start.
The webhook, policy or admission plugin to which at least half of the refusals go back is named (apiserver_admission_webhook_rejection_count, apiserver_validating_admission_policy_check_total,
apiserver_admission_controller_admission_duration_seconds with rejected="true"). Where none is, 5xx are an API server or an etcd in trouble, of which others tell, and 403 the Node authorizer's answer for pods that are gone, or whose binding a starved API server has not seen yet.

**Charged.** The waiting for nodes: all of it from 20 % refusals on, and in proportion below.

**Look-alikes.** slow-nodes (nothing is refused); webhook (nothing is refused, and each request takes long); 409 is a conflict, 404 a pod that is gone, and 429 the API server's priority and fairness: none counts here.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	lost := v.Excess(diagnose.Start)
	switch {
	case !v.HasRequests:
		return diagnose.NotAssessed("an audit log: only it tells who was refused")
	case v.EndsBound:
		return diagnose.NotThere("nobody starts pods on seeded nodes")
	}
	var ask asking
	var worst refusal.Count
	for i, a := range asks {
		var c refusal.Count
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
			return t.Resource == a.resource && slices.Contains(a.verbs, t.Verb) && diagnose.OfNode(t.Agent)
		}) {
			c.Add(t.Count, t.Codes)
		}
		if i == 0 || c.Refused >= many && c.Share() > worst.Share() {
			ask, worst = a, c
		}
	}
	all, refused, part := worst.All, worst.Refused, worst.Share()
	switch {
	case refused < many || part < share:
		return diagnose.NotThere("%d of %d %s were refused", refused, all, ask.what)
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case !v.Symptom() || lost <= 0:
		return diagnose.NotThere("%d of %d %s were refused, but pods lost no time on their nodes", refused, all, ask.what)
	}
	code := worst.Code()
	by, named := refusal.By(v, refusal.Asked{
		Operation: ask.operation, Refused: float64(refused), Of: ask.of,
		Reasons: ask.reasons,
	})
	switch {
	case named:
	case code >= 500:
		return diagnose.NotThere("%d of %d %s ended with %d, and no webhook or policy says that it was the one", refused, all, ask.what, code)
	case code == http.StatusForbidden:
		return diagnose.NotThere("%d of %d %s were refused with %d, as those of pods that are gone, or whose binding the Node authorizer has not seen yet", refused, all, ask.what, code)
	case code == http.StatusUnauthorized:
		by.Resource, by.Cause, by.Look = "policy", "a credential that is not valid: nobody knows who asks", "the nodes' client certificates or tokens (do they end?), and what the API server's log says of authentication"
	default:
		by.Resource, by.Cause, by.Look = "policy", "an object that is not valid, or a policy that says so", "what the kubelet's log says of the refusals"
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.APIServer, Stage: diagnose.Start, Resource: by.Resource, Sources: 1,
		Direct:  true, // the nodes' own requests are counted
		Cause:   fmt.Sprintf("%d of %d %s are refused with %d: %s", refused, all, ask.what, code, by.Cause),
		Summary: fmt.Sprintf("The API server refuses %.0f %% of the %s (code %d): %s. It is %s.", 100*part, ask.what, code, ask.then, by.Cause),
		Claims:  map[string]float64{diagnose.Start: lost * min(1, part/always)},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: " + ask.resource + " by nodes", Value: part, Unit: "1", Text: fmt.Sprintf("%d of %d were refused", refused, all)},
			{Kind: "wait", Ref: "stages: start", Value: lost, Unit: "pod-seconds", Text: fmt.Sprintf("%.0f pod-seconds above what a healthy node takes", lost)},
		},
		Advice:    diagnose.Advice{Text: "Look at " + by.Look + "."},
		RefutedBy: "a run in which nothing is refused and pods start no sooner",
	}
	if named {
		f.Sources++
		f.Evidence = append(f.Evidence, by.Evidence)
	}
	if by.Resource == "webhook" {
		f.Advice.Text += ` A webhook that need not see what nodes send leaves it out with a matchConditions expression: !("system:nodes" in request.userInfo.groups). The price: it does not see a node that somebody else has taken over.`
	}
	return diagnose.Found(f)
}

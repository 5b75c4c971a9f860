package nodesrefused

import (
	"fmt"
	"net/http"

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

// asks is what nodes ask the API server for before others see their pods run.
var asks = []struct {
	resource  string
	verbs     []string
	operation string // of admission
	what      string // "tokens for pods"
	of        string // what a webhook may want something of
	then      string // what a refusal means
}{
	{"serviceaccounts/token", []string{"create"}, "CREATE", "tokens that nodes ask for", "a token", "without its token a pod's volumes are not complete and its containers not started; the kubelet tries again, and waits longer after each refusal"},
	{"pods/status", []string{"patch", "update"}, "UPDATE", "reports of nodes on their pods", "a pod's status", "pods run and nobody knows; the kubelet reports again, some seconds later"},
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

// refuses says whether an answer means no, and not that the pod is gone.
func refuses(code int32) bool { return code >= 400 && code != 404 && code != 409 && code != 429 }

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	lost := v.Excess(diagnose.Start)
	switch {
	case !v.HasRequests:
		return diagnose.NotAssessed("an audit log: only it tells who was refused")
	case v.EndsBound:
		return diagnose.NotThere("nobody starts pods on seeded nodes")
	}
	worst, all, refused := 0, 0, 0
	var codes map[int32]int
	for i, ask := range asks {
		a, r, c := 0, 0, map[int32]int{}
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == ask.resource && diagnose.OfNode(t.Agent) }) {
			if t.Verb != ask.verbs[0] && t.Verb != ask.verbs[len(ask.verbs)-1] {
				continue
			}
			a += t.Count
			for code, n := range t.Codes {
				if refuses(code) {
					r += n
					c[code] += n
				}
			}
		}
		if i == 0 || r > refused {
			worst, all, refused, codes = i, a, r, c
		}
	}
	ask := asks[worst]
	part := float64(refused) / float64(max(1, all))
	switch {
	case refused < many || part < share:
		return diagnose.NotThere("%d of %d %s were refused", refused, all, ask.what)
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case !v.Symptom() || lost <= 0:
		return diagnose.NotThere("%d of %d %s were refused, but pods lost no time on their nodes", refused, all, ask.what)
	}
	code := most(codes)
	by, named := refusal.By(v, refusal.Asked{
		Operation: ask.operation, Refused: float64(refused), Of: ask.of,
		Reasons: "its own log has, and the FailedMount events of the pods,",
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

// most is the most frequent of the codes, the lowest of equals.
func most(codes map[int32]int) (most int32) {
	for code, n := range codes {
		if n > codes[most] || n == codes[most] && code < most {
			most = code
		}
	}
	return most
}

package quotaadmission

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	seconds = "apiserver_admission_controller_admission_duration_seconds"
	// much is the part of the time of creates that counting takes, and long the mean
	// of it in seconds, from which it is a reason: a create takes 10 ms without.
	much, long = 0.3, 0.05
	fewest     = 20
	// mostly is the part of the API server's work for creates, without what waits for a
	// seat or a webhook, and some the mean in seconds, from which counting is what comes
	// next where something else lets pods come one by one. A single quota is half of a
	// create, which takes as long as an object more in etcd.
	mostly, some = 2. / 3, 0.01
	// most is the part of the writes of quotas' status from which on a webhook is what
	// they wait for.
	most = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "quota-admission",
	Title: "Pods wait to be counted against quotas",
	Doc: `Before the API server stores a pod it writes what is used now into the status of each ResourceQuota of the pod's namespace. Pods that come together are counted together where they can be; with several quotas, or
several API servers, the writes conflict and begin again, and creates wait.

**Evidence.** The admission plugin ResourceQuota takes 30 % or more of what creates of pods take, and 50 ms for each pod or more (apiserver_admission_controller_admission_duration_seconds). The API server itself writes resourcequotas/status meanwhile: the plugin's clock is one for all that is created, and without these writes it is not pods that it counts.

Where at least half of what these writes take is in admission webhooks, it is the webhook that pods wait for.

**Charged.** That part of the waiting for the controller, or for the create where pods are bare, while a create was in progress: a controller that waits after a refusal waits for nobody's counting. Creates that were refused are not counted, for quotas are asked last.

Where something else keeps pods from coming together (a client's limit, seats), and counting takes 10 ms each and two thirds of the API server's own work for their creates, it is a risk: what comes next.

**Look-alikes.** Conflicts of clients (conflict-storm); webhooks and policies (slow-webhook, policy-cost: other plugins); a full machine makes everything slow, and the plugin's part stays small.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	match := diagnose.Labels{"name": "ResourceQuota", "operation": "CREATE"}
	waited, ok := v.Increase(diagnose.APIServer, seconds+"_sum", match)
	if !ok {
		return diagnose.NotAssessed("%s of kube-apiserver", seconds)
	}
	pods, took, worked := 0, 0.0, 0.0 // of those that were let in: quotas are asked last
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == "pods" && t.Verb == "create" }) {
		pods += t.Succeeded()
		took += max(0, t.Seconds)
		worked += t.Worked()
	}
	switch {
	case !v.HasRequests:
		return diagnose.NotAssessed("an audit log: what creates of pods take")
	case pods < fewest || took == 0:
		return diagnose.NotThere("%d pods were created", pods)
	}
	share, each := min(1, waited/took), waited/float64(pods)
	slows := share >= much && each >= long
	if !slows && (waited < mostly*worked || each < some) {
		return diagnose.NotThere("counting against quotas took %.1f ms of the %.1f ms of a pod's create", 1000*each, 1000*took/float64(pods))
	}
	writes, conflicts, quotas := 0, 0, 0
	wrote, asked := 0.0, 0.0 // seconds that these took, and those of them in webhooks
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return strings.HasPrefix(t.Agent, diagnose.APIServer) && t.Resource == "resourcequotas/status"
	}) {
		writes, conflicts, quotas = writes+t.Count, conflicts+t.Codes[409], max(quotas, t.Names)
		wrote, asked = wrote+max(0, t.Seconds), asked+t.Webhooks
	}
	if writes == 0 {
		return diagnose.NotThere("the API server counted nothing against quotas: what the plugin took is of %d pods and all else that was created", pods)
	}
	stage := diagnose.Controller
	if v.Excess(stage) == 0 {
		stage = diagnose.Accept
	}
	lost := v.Excess(stage)
	switch {
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case lost == 0 || !v.Symptom():
		return diagnose.NotThere("counting against quotas took %.0f %% of what creates of pods took, but pods lost no time with it", 100*share)
	}
	spans, _ := v.Creating()
	if meanwhile, ok := v.WaitedDuring(stage, spans); ok {
		lost *= meanwhile
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.APIServer, Stage: stage, Resource: "quota", Sources: 2, Consumes: true, Direct: true, // waited in the plugin itself
		Cause:    fmt.Sprintf("creates of pods are counted against quotas for %.2f s each", each),
		Summary:  fmt.Sprintf("Each pod waits %.2f s at its creation until it is counted against the quotas of its namespace, %.0f %% of all that creates take.", each, 100*share),
		Claims:   map[string]float64{stage: lost * share},
		CodePath: "admission plugin ResourceQuota",
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: seconds + `_sum{name="ResourceQuota",operation="CREATE"}`, Value: waited, Unit: "s", Text: fmt.Sprintf("%.0f s in the plugin, of %.0f s that %d creates of pods took", waited, took, pods)},
			{Kind: "rate", Ref: "requests: resourcequotas/status of kube-apiserver", Value: float64(writes) / float64(pods), Unit: "1", Text: fmt.Sprintf("writes for each pod: %d of %d quotas, %d of them in conflict", writes, quotas, conflicts)},
		},
		Advice:    diagnose.Advice{Text: "One ResourceQuota with all limits in place of several (each is a write of its own for each pod), none for what nobody needs counted, and workloads that come together in namespaces of their own. The price: less of a fence between tenants."},
		RefutedBy: "the same load in a namespace without quotas that is as slow",
	}
	f.Next = fmt.Sprintf("Each pod takes %.0f ms at its creation to be counted against the quotas of its namespace, %.0f %% of what the API server works for it; pods that come together wait for each other there.", 1000*each, 100*min(1, waited/worked)) + diagnose.Behind
	if !slows {
		f.Claims, f.Sources = nil, 1
	}
	if asked >= most*wrote && asked > 0 {
		f.Resource = "webhook"
		f.Cause += ", most of it for an admission webhook of resourcequotas/status"
		f.Summary += fmt.Sprintf(" Most of that is an admission webhook: each time a quota's status is written it is asked, %.2f s long.", asked/float64(writes))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests: resourcequotas/status of kube-apiserver", Value: asked / wrote, Unit: "1", Text: fmt.Sprintf("%.0f of %.0f s that these writes took, in webhooks", asked, wrote)})
		f.Advice.Text = "Leave resourcequotas out of the webhook's rules: the API server itself writes their status, and stores no pod before it is written. " + f.Advice.Text
	}
	return diagnose.Found(f)
}

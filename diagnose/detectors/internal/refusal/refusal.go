// Package refusal tells who refuses requests inside the API server: the part that the
// detectors createsrefused and nodesrefused share.
package refusal

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	rejection    = "apiserver_admission_webhook_rejection_count"
	policyChecks = "apiserver_validating_admission_policy_check_total"
	plugins      = "apiserver_admission_controller_admission_duration_seconds_count"
)

// refusers are the admission plugins that refuse pods and what owns them, with what that means.
var refusers = map[string]struct{ resource, cause, look string }{
	"LimitRanger":                {"policy", "a LimitRange, whose bounds they are outside of", "the LimitRanges of the namespace, and what the pods' containers ask for"},
	"NamespaceLifecycle":         {"policy", "the namespace, which is being deleted or not there", "the namespace (kubectl get namespace): what is being deleted takes nothing new"},
	"MutatingAdmissionPolicy":    {"policy", "a MutatingAdmissionPolicy that could not be applied", "the expressions of the MutatingAdmissionPolicies, and their failurePolicy"},
	"MutatingAdmissionWebhook":   {"webhook", "a mutating admission webhook", "the mutating admission webhooks (failurePolicy, their backends, their logs)"},
	"PodSecurity":                {"policy", "Pod Security: they violate the namespace's level", "the security context of the pods, and the namespace's label pod-security.kubernetes.io/enforce"},
	"Priority":                   {"policy", "a PriorityClass that is not there", "priorityClassName of the pods, and the PriorityClasses that there are"},
	"ResourceQuota":              {"quota", "a ResourceQuota that is used up", "the ResourceQuotas of the namespace (kubectl describe quota), and what counts against them"},
	"RuntimeClass":               {"policy", "a RuntimeClass that is not there or does not fit", "runtimeClassName of the pods, and the RuntimeClasses that there are"},
	"ServiceAccount":             {"policy", "a ServiceAccount that is not there", "serviceAccountName of the pods, the namespace's ServiceAccounts, and who makes and deletes these"},
	"ValidatingAdmissionPolicy":  {"policy", "a ValidatingAdmissionPolicy that says no", "the ValidatingAdmissionPolicies and their bindings"},
	"ValidatingAdmissionWebhook": {"webhook", "a validating admission webhook", "the validating admission webhooks (failurePolicy, their backends, their logs)"},
}

// ofNodes is the plugin that refuses what nodes may not do: what concerns pods that
// are gone, day by day.
const ofNodes = "NodeRestriction"

// Is says whether an answer means no. 404 is what is gone, 409 a conflict, 429 the
// API server's priority and fairness.
func Is(code int32) bool { return code >= 400 && code != 404 && code != 409 && code != 429 }

// Count is of requests that may have been refused.
type Count struct {
	All, Refused int
	codes        map[int32]int // of refusals
}

// Add counts answers by their code; it says whether one of them was a refusal.
func (c *Count) Add(all int, codes map[int32]int) (refused bool) {
	c.All += all
	for code, n := range codes {
		if Is(code) {
			if c.codes == nil {
				c.codes = map[int32]int{}
			}
			c.Refused += n
			c.codes[code] += n
			refused = true
		}
	}
	return refused
}

// Share of the requests that were refused, 0 where there were none.
func (c *Count) Share() float64 { return float64(c.Refused) / float64(max(1, c.All)) }

// Code is that of most refusals, the lowest of equals; 0 where there were none.
func (c *Count) Code() (most int32) {
	for code, n := range c.codes {
		if n > c.codes[most] || n == c.codes[most] && code < most {
			most = code
		}
	}
	return most
}

// Answer is who said no, by the API server's own count.
type Answer struct {
	Resource string // webhook, policy or quota
	Cause    string // who it is, to go on with after "it is"
	Look     string // what to look at
	Evidence diagnose.Evidence
	General  bool // which kind of thing it is; a log may know which one
}

// Asked is what was refused.
type Asked struct {
	Operation string  // of admission: CREATE, UPDATE
	Refused   float64 // requests
	Of        string  // what a webhook or policy may want something of: "a pod"
	Reasons   string  // what has the reasons, in the plural
}

// By names the webhook, policy or admission plugin to which at least half of the
// refusals go back, if there is one.
func By(v *diagnose.View, q Asked) (a Answer, ok bool) {
	for _, c := range []struct {
		metric, label string
		match         diagnose.Labels
		resource      string
		cause, look   string // of its name
	}{
		{rejection, "name", diagnose.Labels{"operation": q.Operation, "error_type": "calling_webhook_error"}, "webhook",
			"the admission webhook %s, whose calls fail (failurePolicy Fail)", "what serves %s (its Service and endpoints, its port, its certificate, its own log), and whether pods must wait for it: failurePolicy, rules, namespaceSelector"},
		{rejection, "name", diagnose.Labels{"operation": q.Operation, "error_type": "no_error"}, "webhook",
			"the admission webhook %s, which says no", "what %s wants of " + q.Of + ": " + q.Reasons + " have its reason"},
		{policyChecks, "policy", diagnose.Labels{"enforcement_action": "deny"}, "policy",
			"the ValidatingAdmissionPolicy %s, which says no", "what the policy %s wants of " + q.Of + ": " + q.Reasons + " have its message"},
	} {
		by, _ := v.IncreaseBy(diagnose.APIServer, c.metric, c.label, c.match)
		if len(by) == 0 || by[0].Value < q.Refused/2 {
			continue
		}
		name := by[0].Label
		a.Resource, a.Cause, a.Look = c.resource, fmt.Sprintf(c.cause, name), fmt.Sprintf(c.look, name)
		a.Evidence = diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf("%s{%s=%q}", c.metric, c.label, name), Value: by[0].Value, Unit: "requests", Text: "refused by it"}
		return a, true
	}
	by, _ := v.IncreaseBy(diagnose.APIServer, plugins, "name", diagnose.Labels{"operation": q.Operation, "rejected": "true"})
	for _, p := range by {
		if p.Label == ofNodes || p.Value < q.Refused/2 {
			continue
		}
		r, ok := refusers[p.Label]
		if !ok {
			r.resource, r.cause, r.look = "policy", "the admission plugin "+p.Label, "what the admission plugin "+p.Label+" wants"
		}
		return Answer{Resource: r.resource, Cause: r.cause, Look: r.look, General: true, Evidence: diagnose.Evidence{
			Kind: "rate", Ref: fmt.Sprintf(`%s{name=%q,rejected="true"}`, plugins, p.Label), Value: p.Value, Unit: "requests", Text: "refused by the admission plugin " + p.Label,
		}}, true
	}
	return a, false
}

// ByPlugins counts what admission plugins refused of an operation, other than what
// nodes may not do. known is false where the API server did not say what it asked them.
func ByPlugins(v *diagnose.View, operation string) (refused float64, known bool) {
	if asked, ok := v.Increase(diagnose.APIServer, plugins, diagnose.Labels{"operation": operation, "rejected": "false"}); !ok || asked == 0 {
		return 0, false
	}
	by, _ := v.IncreaseBy(diagnose.APIServer, plugins, "name", diagnose.Labels{"operation": operation, "rejected": "true"})
	for _, p := range by {
		if p.Label != ofNodes {
			refused += p.Value
		}
	}
	return refused, true
}

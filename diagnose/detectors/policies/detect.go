package policies

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const (
	check = "apiserver_validating_admission_policy_check_duration_seconds"
	all   = "apiserver_admission_controller_admission_duration_seconds_sum"
	// consumed is the share of the API server's CPU from which policies are what
	// fills a machine: a third of it at most is spent on them in healthy runs.
	consumed = 0.10
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "policy-cost",
	Title: "Admission policies are expensive",
	Doc: `Validating and mutating admission policies are expressions (CEL) that the API server evaluates itself for each write that they match, parameters included. Expressions over long lists, and bindings with many parameters, multiply.

**Evidence.** A policy takes at least 10 ms for each check (apiserver_validating_admission_policy_check_duration_seconds) and 10 % of the time of the writes; the API server's profile is the second source.
v1.36 counts checks that refused or failed there. Of those that let pass, the clock of the admission plugin tells (apiserver_admission_controller_admission_duration_seconds of ValidatingAdmissionPolicy and MutatingAdmissionPolicy), held against the creates of pods; which policy it was it does not say.

**Look-alikes.** Admission webhooks (their own clock, and the API server's CPU is idle); a full CPU (everything is slow).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	l, ok := named(v)
	if !ok {
		l, ok = plugin(v)
	}
	if _, known := v.Increase(diagnose.APIServer, check+"_sum", nil); !ok && !known {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if !ok && !v.HasRequests {
		return diagnose.NotAssessed("the requests: what policies that let pass take is held against creates of pods")
	}
	if !ok {
		return diagnose.NotThere("no policy was checked")
	}
	mean := l.Mean
	if quick := l.Quick(v); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	f := diagnose.Finding{
		Resource: "policy", Cause: fmt.Sprintf("%s: %.0f ms for each object", l.Name, 1000*mean),
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Narrow what %s matches (matchConstraints, matchConditions before validations), keep long lists out of its expressions, and split parameters by namespace. The price: what is not matched is not checked.", l.Name)},
		RefutedBy: "a run without this policy in which the same writes take as long",
	}
	if w, has := v.Work(diagnose.APIServer, "admission policies"); has {
		l.Sources++
		f.Consumes = w.Share >= consumed
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: w.Share, Unit: "1", Text: "of the API server's CPU went to policies"})
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("%s took %.0f ms a check, and nothing waited for it", l.Name, 1000*mean)
	}
	f.Summary = fmt.Sprintf("Each write waits %.0f ms for %s (n=%.0f)%s", 1000*mean, l.Name, l.Count, layer.Outcome(&f))
	return diagnose.Found(f)
}

// named is the policy that takes longest by its own clock, which runs for policies
// that refuse and that fail.
func named(v *diagnose.View) (l layer.Layer, ok bool) {
	names, ok := v.IncreaseBy(diagnose.APIServer, check+"_sum", "policy", nil)
	if !ok || len(names) == 0 {
		return l, false
	}
	worst := names[0].Label
	mean, n, ok := v.Mean(diagnose.APIServer, check, diagnose.Labels{"policy": worst})
	return layer.Layer{Name: "admission policy " + worst, Mean: mean, Count: n, Ref: check + `{policy="` + worst + `"}`, Sources: 1, Passes: layer.Changes}, ok
}

// plugin is all policies of a kind together, by the clock of the admission plugin
// that checks them, as far as creates of pods took that time.
func plugin(v *diagnose.View) (l layer.Layer, ok bool) {
	pods, took := 0, 0.0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == "pods" && t.Verb == "create" }) {
		pods += t.Count
		took += max(0, t.Seconds)
	}
	if pods == 0 {
		return l, false
	}
	longest, kind := 0.0, ""
	for _, name := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		if x, ok := v.Increase(diagnose.APIServer, all, diagnose.Labels{"name": name, "operation": "CREATE"}); ok && x > longest {
			longest, kind = x, name
		}
	}
	if kind == "" {
		return l, false
	}
	return layer.Layer{Name: "the checks of all " + plural(kind), Mean: min(longest, took) / float64(pods), Count: float64(pods), Sources: 1,
		Ref:    all + `{name="` + kind + `",operation="CREATE"}`,
		Passes: func(t *diagnose.Talk) bool { return t.Verb == "create" && t.Resource == "pods" }}, true
}

func plural(kind string) string { return strings.TrimSuffix(kind, "y") + "ies" }

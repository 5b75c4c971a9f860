package policies

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const check = "apiserver_validating_admission_policy_check_duration_seconds"

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "policy-cost",
	Title: "Admission policies are expensive",
	Doc: `Validating and mutating admission policies are expressions (CEL) that the API server evaluates itself for each write that they match, parameters included. Expressions over long lists, and bindings with many parameters, multiply.

**Evidence.** A policy takes at least 10 ms for each check (apiserver_validating_admission_policy_check_duration_seconds) and 10 % of the time of the writes; the API server's profile is the second source.

**Look-alikes.** Admission webhooks (their own clock, and the API server's CPU is idle); a full CPU (everything is slow).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	names, ok := v.IncreaseBy(diagnose.APIServer, check+"_sum", "policy", nil)
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if len(names) == 0 {
		return diagnose.NotThere("no policy was checked")
	}
	worst := names[0].Label
	mean, n, ok := v.Mean(diagnose.APIServer, check, diagnose.Labels{"policy": worst})
	if !ok {
		return diagnose.NotThere("no policy was checked")
	}
	l := layer.Layer{Name: "policy " + worst, Mean: mean, Count: n, Ref: check + `{policy="` + worst + `"}`, Sources: 1, Passes: func(verb, _ string) bool {
		return verb == "create" || verb == "update" || verb == "patch"
	}}
	if quick := l.Quick(v); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	f := diagnose.Finding{
		Resource: "policy", Cause: fmt.Sprintf("admission policy %s takes %.0f ms a check", worst, 1000*mean),
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Narrow what %s matches (matchConstraints, matchConditions before validations), keep long lists out of its expressions, and split parameters by namespace. The price: what is not matched is not checked.", worst)},
		RefutedBy: "a run without this policy in which the same writes take as long",
	}
	if w, has := v.Work(diagnose.APIServer, "admission policies"); has {
		l.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: w.Share, Unit: "1", Text: "of the API server's CPU went to policies"})
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("policy %s took %.0f ms a check, and nothing waited for it", worst, 1000*mean)
	}
	f.Summary = fmt.Sprintf("Each write waits %.0f ms for admission policy %s (n=%.0f)", 1000*mean, worst, n)
	if f.Suffered != "" {
		f.Summary += ": " + f.Suffered
	}
	f.Summary += "."
	return diagnose.Found(f)
}

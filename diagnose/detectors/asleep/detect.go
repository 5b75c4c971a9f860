package asleep

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

// words are what is said of a kind of workload that its own spec holds back.
var words = []struct{ resource, field, state, kind, wake string }{
	{"deployments", "spec.paused", "paused", "Deployment", "kubectl rollout resume deployment/NAME"},
	{"jobs", "spec.suspend", "suspended", "Job", `kubectl patch job NAME --type=merge -p '{"spec":{"suspend":false}}'`},
}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "workloads-asleep",
	Title: "Workloads are paused or suspended",
	Doc: `A Deployment with spec.paused makes no new ReplicaSet, so that the pods of one that has none yet, or has got another template, never come; a Job with spec.suspend makes none at all. Everybody
works, nothing fails, nothing is logged.

**Evidence.** Pods were asked for and never created, and when the recording ended the Deployments that they belong to were paused (or the Jobs suspended), by the watch of workloads.
Who wrote such workloads beside the control plane is named, if anyone did and the audit log tells; if nobody did, they came so, from whoever made them or a mutating webhook.

**Charged.** The waiting for the controller, as far as it is of pods of these workloads.

**Look-alikes.** controller-off (nobody looks at the workloads); creates-refused (the API server says no); unexplained (a controller is stuck).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	all := 0
	for _, n := range v.NeverCreated() {
		all += n
	}
	if all == 0 {
		return diagnose.NotThere("all pods that were asked for were created")
	}
	asleep, known := v.Asleep()
	if !known {
		return diagnose.NotAssessed("the states of workloads")
	}
	most := words[0]
	for _, w := range words {
		if asleep[w.resource] > asleep[most.resource] {
			most = w
		}
	}
	pods := asleep[most.resource]
	lost := v.Excess(diagnose.Controller)
	switch {
	case pods == 0:
		return diagnose.NotThere("%d pods were never created, but no workload of theirs is paused or suspended", all)
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case !v.Symptom() || lost == 0:
		return diagnose.NotThere("%d pods of %s %ss never came, but pods lost no time waiting for a controller", pods, most.state, most.kind)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: "policy", Sources: 2,
		Direct:  true, // it stands in the workloads themselves
		Cause:   fmt.Sprintf("%ss are %s (%s)", most.kind, most.state, most.field),
		Summary: fmt.Sprintf("%ss are %s, so that nobody makes their pods: %d of the %d that never came are theirs.", most.kind, most.state, pods, all),
		Claims:  map[string]float64{diagnose.Controller: lost * float64(pods) / float64(all)},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "objects: " + most.kind + ", the last state of each", Value: float64(pods), Unit: "pods", Text: fmt.Sprintf("were asked for and never created, and their %s is %s", most.kind, most.state)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Find who sets %s, and let the workloads go on: %s.", most.field, most.wake)},
		RefutedBy: "pods that come while their workload is " + most.state,
	}
	if who, n := writer(v, most.resource); n > 0 {
		f.Summary += fmt.Sprintf(" Beside the control plane %s has written such workloads, %d times.", who, n)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: patch and update of " + most.resource + " by " + who, Value: float64(n), Unit: "requests", Text: "wrote these workloads, beside the control plane"})
		f.Advice.Text = fmt.Sprintf("Ask who runs %s whether it sets %s, and what it waits for; then let the workloads go on: %s.", who, most.field, most.wake)
	} else if v.HasRequests {
		f.Summary += " Nobody but the control plane has written them since: they came so."
		f.Advice.Text = fmt.Sprintf("Look at what makes them (%s in its manifest) and at mutating webhooks and policies for %s, and let the workloads go on: %s.", most.field, most.resource, most.wake)
	}
	return diagnose.Found(f)
}

// writer is who wrote workloads most often that is neither the load nor the control plane.
func writer(v *diagnose.View, resource string) (who string, n int) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Resource == resource && (t.Verb == "patch" || t.Verb == "update") && !t.Harness && !diagnose.OfCluster(t.Agent)
	}) {
		if done := t.Codes[200]; done > n {
			who, n = t.Agent, done
		}
	}
	return who, n
}

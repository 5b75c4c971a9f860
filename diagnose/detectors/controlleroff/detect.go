package controlleroff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// makers are the controllers of kube-controller-manager that a resource's pods need,
// by the names that --controllers knows (cmd/kube-controller-manager/names).
var makers = map[string][]string{
	"deployments":            {"deployment-controller", "replicaset-controller"},
	"replicasets":            {"replicaset-controller"},
	"replicationcontrollers": {"replicationcontroller-controller"},
	"statefulsets":           {"statefulset-controller"},
	"daemonsets":             {"daemonset-controller"},
	"jobs":                   {"job-controller"},
	"cronjobs":               {"cronjob-controller", "job-controller"},
}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "controller-off",
	Title: "The controller that makes the pods is switched off",
	Doc: `kube-controller-manager runs the controllers that its flag --controllers names: "*" are all that are on by default, "-deployment-controller" is all but that one. Nothing else tells: the
others work, the component is ready, and its log has one line from its start.

**Evidence.** Pods of a workload were asked for and never created, and the flag leaves out a controller that makes the pods of this kind.

**Charged.** The waiting for the controller, as far as it is of pods of these kinds.

**Look-alikes.** creates-refused: the controller asks for the pods, and the API server says no. A controller that runs and is stuck, or does not lead: unexplained, which says that nobody asked.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	flag, set, known := v.Flag(diagnose.ControllerManager, "controllers")
	if !known {
		return diagnose.NotAssessed("the flags of kube-controller-manager")
	}
	if !set {
		return diagnose.NotThere("all controllers are on that are on by default")
	}
	never := v.NeverCreated()
	var all, pods int
	var kinds, off []string
	for kind, n := range never {
		all += n
		missing := slices.DeleteFunc(slices.Clone(makers[kind]), func(name string) bool { return on(flag, name) })
		if len(missing) == 0 {
			continue
		}
		pods += n
		kinds = append(kinds, kind)
		off = append(off, missing...)
	}
	slices.Sort(kinds)
	slices.Sort(off)
	off = slices.Compact(off)
	if pods == 0 {
		return diagnose.NotThere("no pods are missing whose controller is off (--controllers=%s)", flag)
	}
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	lost := v.Excess(diagnose.Controller)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("pods lost no time waiting for a controller")
	}
	names, verb := strings.Join(off, " and "), "is"
	if len(off) > 1 {
		verb = "are"
	}
	return diagnose.Found(diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: "policy", Sources: 2,
		Cause:   fmt.Sprintf("%s %s switched off", names, verb),
		Summary: fmt.Sprintf("%s %s switched off in kube-controller-manager (--controllers=%s), so that nobody makes the pods of %s: %d never came.", names, verb, flag, strings.Join(kinds, " and "), pods),
		Claims:  map[string]float64{diagnose.Controller: lost * float64(pods) / float64(all)},
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "flags: kube-controller-manager --controllers", Value: float64(len(off)), Unit: "controllers", Text: "are off: " + names},
			{Kind: "wait", Ref: "pods: of " + strings.Join(kinds, ", "), Value: float64(pods), Unit: "pods", Text: "were asked for and never created"},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Take -%s out of --controllers (or put \"*\" in), or run another controller that does their work.", strings.Join(off, " and -"))},
		RefutedBy: "pods of these kinds that a controller makes although it is off",
	})
}

// on says whether the flag leaves a controller on, as IsControllerEnabled of
// k8s.io/controller-manager does for those that are on by default.
func on(flag, controller string) bool {
	star := false
	for _, name := range strings.Split(flag, ",") {
		switch strings.TrimSpace(name) {
		case controller:
			return true
		case "-" + controller:
			return false
		case "*":
			star = true
		}
	}
	return star
}

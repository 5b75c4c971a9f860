package createsrefused

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// many refusals: a share of all creates, and a number that is no accident.
	share, many = 0.05, 10
	// always is the share from which a batch hardly ever gets beyond a pod or two, so
	// that all the waiting for the controller is due to refusals.
	always = 0.2
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "creates-refused",
	Title: "The API server refuses a controller's pods",
	Doc: `A controller that is refused a pod (by a quota, a webhook, a policy) stops the batch, starts again with a batch of one, and waits longer after each failure. A few refusals
among many creates therefore cost much more than themselves.

**Evidence.** At least 5 % (and ten) of the controllers' POSTs of pods were answered with 400, 403, 422 or 5xx, and pods lost time in stage controller.
workqueue_retries_total says how often a key came back. Code 403 is a quota, an admission plugin or a policy; 5xx a webhook that failed or an API server in trouble.

**Charged.** The waiting for the controller: all of it from 20 % refusals on, where a batch hardly ever gets beyond two pods, and in proportion below. Pods that are made one at a time also cost much more CPU, so that a machine which is full of them is full for that reason.

**Look-alikes.** controller-limit and controller-workers (nothing is refused); 409 is a conflict, and 429 the API server's priority and fairness: neither counts here.`,
	Detect: detect,
}

// refusal says whether an answer means that the pod may not be.
func refusal(code int32) bool { return code >= 400 && code != 404 && code != 409 && code != 429 }

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("an audit log: only it tells who was refused")
	}
	var all, refused int
	codes := map[int32]int{}
	var who string
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "create" && t.Resource == "pods" && strings.HasPrefix(t.Agent, diagnose.ControllerManager)
	}) {
		all += t.Count
		for code, n := range t.Codes {
			if refusal(code) {
				refused += n
				codes[code] += n
				who = t.Agent
			}
		}
	}
	lost := v.Excess(diagnose.Controller)
	switch {
	case all == 0:
		return diagnose.NotThere("no controller created pods")
	case refused < many || float64(refused) < share*float64(all):
		return diagnose.NotThere("%d of %d creates of pods were refused", refused, all)
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case lost == 0 || !v.Symptom():
		return diagnose.NotThere("%d of %d creates of pods were refused, but pods lost no time waiting for a controller", refused, all)
	}
	most := int32(0)
	for code, n := range codes {
		if n > codes[most] || n == codes[most] && code < most {
			most = code
		}
	}
	resource, cause, look := "quota", "a ResourceQuota, an admission plugin or a policy", "the namespace's ResourceQuota and LimitRange, validating policies, and the FailedCreate events of its ReplicaSets, which have the reason"
	if most >= 500 {
		resource, cause, look = "webhook", "a webhook that failed, or an API server in trouble", "the admission webhooks for pods (failurePolicy, their backends), and the FailedCreate events of the ReplicaSets, which have the reason"
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: resource, Sources: 1,
		Cause: fmt.Sprintf("%d of %d creates of pods are refused with %d: %s", refused, all, most, cause),
		Summary: fmt.Sprintf("The API server refuses %.0f %% of the pods that %s creates (code %d); after each refusal the controller starts again with one pod at a time and waits longer.",
			100*float64(refused)/float64(all), who, most),
		Claims: map[string]float64{diagnose.Controller: lost * min(1, float64(refused)/float64(all)/always)},
		// Pods that come one at a time cost the API server several times as much as
		// those of a batch, so that refusals fill the machine as well.
		Consumes: true,
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: create pods by " + who, Value: float64(refused) / float64(all), Unit: "1", Text: fmt.Sprintf("%d of %d were refused", refused, all)},
		},
		Advice:    diagnose.Advice{Text: "Look at " + look + "."},
		RefutedBy: "a run in which nothing is refused and pods come no faster",
	}
	if n, ok := v.Increase(diagnose.ControllerManager, "workqueue_retries_total", diagnose.Labels{"name": "~replicaset|job|statefulset|daemonset|replicationmanager"}); ok && n > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `workqueue_retries_total{component="kube-controller-manager"}`, Value: n, Unit: "retries", Text: fmt.Sprintf("keys came back %.0f times after a failure", n)})
	}
	return diagnose.Found(f)
}

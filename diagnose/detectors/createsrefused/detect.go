package createsrefused

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/refusal"
)

const (
	// many refusals: a share of all creates, and a number that is no accident.
	share, many = 0.05, 10
	// always is the share from which a batch hardly ever gets beyond a pod or two, so
	// that all the waiting for the controller is due to refusals.
	always = 0.2
	// usual is what a create takes at most on a busy machine, in seconds: 10 ms on an idle one,
	// three to five times that where the CPUs are full.
	usual = 0.05

	create = "CREATE" // as admission calls it
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "creates-refused",
	Title: "The API server refuses a controller's pods",
	Doc: `A controller that is refused a pod (by a quota, a webhook, a policy) stops the batch, starts again with a batch of one, and waits longer after each failure. A few refusals
among many creates therefore cost much more than themselves.

**Evidence.** At least 5 % (and ten) of the controllers' POSTs of pods, or of the ReplicaSets before them, were answered with 400, 403, 422 or 5xx, and pods lost time in stage controller.
workqueue_retries_total says how often a key came back. Code 403 is a quota, an admission plugin, a policy or a missing right; 5xx a webhook that failed or an API server in trouble. The webhook or policy to which at least half of the refusals go back is named (apiserver_admission_webhook_rejection_count, apiserver_validating_admission_policy_check_total), or else the admission plugin
(apiserver_admission_controller_admission_duration_seconds with rejected="true"); where a plugin refused hardly any, 403 is a right that is missing. The controller manager's log says more, where at least half of its lines say the same: which quota is used up, which ServiceAccount is missing, which account has lost its right.

**Charged.** The waiting for the controller: all of it from 20 % refusals on, where a batch hardly ever gets beyond two pods, and in proportion below. Where pods that are let in take longer than 50 ms to be created, what they take more while one is in progress is left to whatever makes them slow. Pods that are made one at a time also cost much more CPU, so that a machine which is full of them is full for that reason.

Where nothing was loaded, and nobody knows when pods were due, it is a risk, with no pods charged.

**Look-alikes.** controller-limit and controller-workers (nothing is refused); 409 is a conflict, and 429 the API server's priority and fairness: neither counts here.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("an audit log: only it tells who was refused")
	}
	made := madeBy(v, "pods")
	if r := madeBy(v, "replicasets"); r.Share() > made.Share() && r.Refused >= many {
		made = r
	}
	all, refused, most, who := made.All, made.Refused, made.Code(), made.who
	lost := v.Excess(diagnose.Controller)
	held := v.StagesOK && lost > 0 && v.Symptom()
	switch {
	case all == 0:
		return diagnose.NotThere("no controller created pods")
	case refused < many || made.Share() < share:
		return diagnose.NotThere("%d of %d creates of %s were refused", refused, all, made.resource)
	case held:
	case v.Observed:
		// Nobody knows when these pods were due. That they do not come is news.
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	default:
		return diagnose.NotThere("%d of %d creates of %s were refused, but pods lost no time waiting for a controller", refused, all, made.resource)
	}
	resource, cause, look := "quota", "a ResourceQuota, an admission plugin, a policy, or a right that is missing", "the namespace's ResourceQuota and LimitRange, validating policies, the rights of the controller's account, and the FailedCreate events of its ReplicaSets, which have the reason"
	if most >= 500 {
		resource, cause, look = "webhook", "a webhook that failed, or an API server in trouble", "the admission webhooks for pods (failurePolicy, their backends), and the FailedCreate events of the ReplicaSets, which have the reason"
	}
	if most == http.StatusUnprocessableEntity {
		resource, cause, look = "policy", "they are not valid, or a policy says so", "what the pod template says and what mutating webhooks and policies make of it: the FailedCreate events of the ReplicaSets have the field"
	}
	outcome := fmt.Sprintf("%.0f %% of the pods that %s creates (code %d); after each refusal the controller starts again with one pod at a time and waits longer", 100*float64(refused)/float64(all), who, most)
	if refused == all {
		outcome = fmt.Sprintf("every pod that %s creates (code %d), so that none comes; after each refusal the controller waits longer", who, most)
	}
	queues := "~replicaset|job|statefulset|daemonset|replicationmanager"
	if made.resource == "replicasets" {
		queues, look = "deployment", "the admission webhooks and policies for ReplicaSets, and the log of kube-controller-manager, which has the reason"
		outcome = fmt.Sprintf("%.0f %% of the ReplicaSets that %s creates (code %d), before which there are no pods of a Deployment; after each refusal the controller waits longer", 100*made.Share(), who, most)
	}
	by, named := refusal.By(v, refusal.Asked{Operation: create, Refused: float64(refused), Of: "a pod", Reasons: "the FailedCreate events of the ReplicaSets"})
	if !named && most == http.StatusForbidden {
		by, named = nobody(v, float64(refused), made)
	}
	if named {
		resource, cause, look = by.Resource, by.Cause, by.Look
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.ControllerManager, Stage: diagnose.Controller, Resource: resource, Sources: 1,
		Cause:   fmt.Sprintf("%d of %d creates of %s are refused with %d: %s", refused, all, made.resource, most, cause),
		Summary: fmt.Sprintf("The API server refuses %s.", outcome),
		Claims:  map[string]float64{diagnose.Controller: lost * min(1, float64(refused)/float64(all)/always) * (1 - slower(v, made))},
		// Pods that come one at a time cost the API server several times as much as
		// those of a batch, so that refusals fill the machine as well.
		Consumes: true,
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: create " + made.resource + " by " + who, Value: float64(refused) / float64(all), Unit: "1", Text: fmt.Sprintf("%d of %d were refused", refused, all)},
		},
		Advice:    diagnose.Advice{Text: "Look at " + look + "."},
		RefutedBy: "a run in which nothing is refused and pods come no faster",
	}
	if !held {
		f.Class, f.Claims, f.Consumes = diagnose.Risk, nil, false
	}
	if named {
		f.Sources++
		f.Evidence = append(f.Evidence, by.Evidence)
		if !by.General {
			f.Summary += fmt.Sprintf(" It is %s.", cause)
		}
	}
	exactly := false
	if l, ok := v.Log(diagnose.ControllerManager, "create-refused"); ok && l.Count > 0 {
		exactly = told(&f, l, made.resource, named && !by.General)
	}
	if by.General && !exactly {
		f.Summary += fmt.Sprintf(" It is %s.", cause)
	}
	if held {
		f.Next = f.Summary + diagnose.Behind
	}
	if n, ok := v.Increase(diagnose.ControllerManager, "workqueue_retries_total", diagnose.Labels{"name": queues}); ok && n > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `workqueue_retries_total{component="kube-controller-manager"}`, Value: n, Unit: "retries", Text: fmt.Sprintf("keys came back %.0f times after a failure", n)})
	}
	return diagnose.Found(f)
}

// slower is the part of the waiting for a controller that is due to whatever makes a
// create take longer than usual, 0 to 1: pods that were let in were waited for as well,
// one after the other because of the refusals, but that long because of something else.
func slower(v *diagnose.View, m making) float64 {
	spans, mean := v.Creating()
	if m.resource != "pods" || mean <= usual {
		return 0
	}
	during, _ := v.WaitedDuring(diagnose.Controller, spans)
	return during * (1 - usual/mean)
}

// A making is what controllers created of a resource.
type making struct {
	refusal.Count
	resource string
	who      string // the last that was refused
}

func madeBy(v *diagnose.View, resource string) making {
	m := making{resource: resource}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "create" && t.Resource == resource && strings.HasPrefix(t.Agent, diagnose.ControllerManager)
	}) {
		if m.Add(t.Count, t.Codes) {
			m.who = t.Agent
		}
	}
	return m
}

// told adds what the controller's log says of the refusals, which names whoever is
// behind them where no metric does; it says whether it could.
func told(f *diagnose.Finding, l diagnose.Logged, resource string, named bool) (exactly bool) {
	reason := l.Most.Object
	f.Sources++
	text := "the last says: " + reason
	if l.MostCount < l.Count {
		text = fmt.Sprintf("%d of them say: %s", l.MostCount, reason)
	}
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: kube-controller-manager, create-refused", Value: float64(l.Count), Unit: "lines", Text: text})
	if 2*l.MostCount < l.Count { // no reason is most of them
		return false
	}
	if named {
		if _, words, ok := strings.Cut(reason, "denied the request: "); ok {
			f.Summary += fmt.Sprintf(" Its words: %s", sentence(words))
		} else if _, words, ok := strings.Cut(reason, "failed to call webhook: "); ok {
			f.Summary += fmt.Sprintf(" What the API server says of the calls: %s", sentence(words))
		}
		return false
	}
	policy, mutates := strings.CutPrefix(reason, "policy '")
	quota, isQuota := strings.CutPrefix(reason, "exceeded quota: ")
	missing, isAccount := strings.CutPrefix(reason, "error looking up service account ")
	user, isRight := strings.CutPrefix(reason, "User ")
	fault, isInvalid := strings.CutPrefix(reason, "is invalid: ")
	switch {
	case mutates:
		name, _, _ := strings.Cut(policy, "'")
		_, words, _ := strings.Cut(policy, "denied request: ")
		f.Resource = "policy"
		f.Cause = fmt.Sprintf("the MutatingAdmissionPolicy %s could not be applied", name)
		f.Summary += fmt.Sprintf(" It is the MutatingAdmissionPolicy %s, which could not be applied: %s", name, sentence(words))
		f.Advice.Text = fmt.Sprintf("Correct the expressions of the MutatingAdmissionPolicy %s, or set its failurePolicy to Ignore; the price of that: pods that it did not change.", name)
	case strings.HasPrefix(reason, "violates PodSecurity "):
		f.Resource = "policy"
		f.Cause = "the pods violate the namespace's Pod Security level"
		f.Summary += fmt.Sprintf(" Pod Security refuses them: it %s", sentence(reason))
		f.Advice.Text = "Give the pods the security context that the level asks for, or the namespace a lower level (label pod-security.kubernetes.io/enforce). The price of a lower level: pods that may do more."
	case isQuota:
		name, amounts, _ := strings.Cut(quota, ", ")
		f.Cause = fmt.Sprintf("the ResourceQuota %s is used up (%s)", name, amounts)
		f.Summary = fmt.Sprintf("The ResourceQuota %s is used up (%s). %s", name, amounts, f.Summary)
		f.Advice.Text = fmt.Sprintf("Raise the limits of the ResourceQuota %s, remove what else counts against it, or ask for less.", name)
	case isAccount:
		name, _, _ := strings.Cut(missing, ":")
		f.Resource = "policy"
		f.Cause = fmt.Sprintf("there is no ServiceAccount %s", name)
		f.Summary = fmt.Sprintf("Pods are to run as the ServiceAccount %s, which is not there. %s", name, f.Summary)
		f.Advice.Text = fmt.Sprintf("Create the ServiceAccount %s, or name another in the pods' serviceAccountName.", name)
	case isInvalid:
		f.Resource = "policy"
		f.Cause = fmt.Sprintf("the %s are not valid: %s", resource, fault)
		f.Summary += fmt.Sprintf(" They are not valid: %s", sentence(fault))
		f.Advice.Text = "Correct the field in the workload's template, or what changes it on the way: kubectl create --dry-run=server of the template alone tells whether a mutating webhook or policy does."
	case isRight:
		name, what, _ := strings.Cut(user, " cannot ")
		f.Resource = "policy"
		f.Cause = fmt.Sprintf("the account %s has no right to create %s", name, resource)
		if strings.Contains(what, `"`+resource+`"`) {
			f.Summary += fmt.Sprintf(" The account %s has no right to do so: it cannot %s", name, sentence(what))
		} else { // it lost other rights too, and the log tells more of these
			f.Summary += fmt.Sprintf(" The account %s has no right to do so, nor others: it cannot %s", name, sentence(what))
		}
		f.Advice.Text = fmt.Sprintf("Give the account %s the right back: look at its ClusterRoleBinding and ClusterRole. The API server puts its own system:… roles right when it starts (unless rbac.authorization.kubernetes.io/autoupdate is false).", name)
	default:
		f.Summary += fmt.Sprintf(" It says: %s", sentence(reason))
		return false
	}
	return true
}

// sentence ends somebody else's words with a full stop, unless they were cut.
func sentence(words string) string {
	if strings.HasSuffix(words, "…") {
		return words
	}
	return strings.TrimSuffix(words, ".") + "."
}

// nobody is what it means that no admission plugin refused what came back with 403:
// it got no further than to the question whether the account may do so.
func nobody(v *diagnose.View, refused float64, m making) (a refusal.Answer, ok bool) {
	said, known := refusal.ByPlugins(v, create)
	if !known || said > refused/2 {
		return a, false
	}
	account := "the account of " + m.who
	return refusal.Answer{
		Resource: "policy", General: true,
		Cause: fmt.Sprintf("a missing right: no admission plugin refused them, so that %s may not create %s", account, m.resource),
		Look:  fmt.Sprintf("the rights of %s: its ClusterRole (system:controller:…) and the ClusterRoleBinding. The API server puts its own system:… roles right when it starts (unless rbac.authorization.kubernetes.io/autoupdate is false)", account),
		Evidence: diagnose.Evidence{
			Kind: "rate", Ref: `apiserver_admission_controller_admission_duration_seconds_count{operation="CREATE",rejected="true"}`, Value: said, Unit: "requests", Text: "were refused by an admission plugin: the others got no further than to authorization",
		},
	}, true
}

package webhook

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const (
	histogram = "apiserver_admission_webhook_admission_duration_seconds"
	failOpen  = "apiserver_admission_webhook_fail_open_count"
	rejection = "apiserver_admission_webhook_rejection_count"
	// silent is the share of calls that fail from which on that is what
	// there is to say.
	silent = 0.5
	// fewest calls tell that nobody answers.
	fewest = 10
	// next is the least mean, in seconds, of one that is worth naming behind what pods
	// wait for now.
	next = 0.1
	// about is how far the requests that waited may be from its calls in number.
	about = 0.1
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "slow-webhook",
	Title: "An admission webhook is slow",
	Doc: `A webhook is asked while a write waits: mutating ones one after another, validating ones beside each other, at most timeoutSeconds (10 by default) each. Whatever it takes, every write that its rules match takes too; a controller that
creates objects one by one, or a few at a time, creates so many fewer.

**Evidence.** A webhook's mean time (apiserver_admission_webhook_admission_duration_seconds) is at least 10 ms and 10 % of what the requests of its operation took by the audit log, which is the second source. Pods that wait
to be accepted, created, bound or reported are charged with its part of those requests; so are those whose controllers' workers, half of them and more, wait in it with other requests (the status of a Deployment, say), while objects queue for one. Where nothing suffers, one of 50 ms and more is a risk; so is one of 100 ms and more behind something else that holds pods back: it comes next.

Where at least half of the calls failed (apiserver_admission_webhook_fail_open_count, and _rejection_count with error_type calling_webhook_error), the finding says so: what they took is the time limit. Where calls fail at once and objects pass unseen, that is a risk which nobody feels (where they are refused, creates-refused tells).

On a full CPU everything waits, so that there only 100 ms and more count.

**Look-alikes.** Policies in CEL inside the API server (policy-cost: CPU, no network); a slow etcd or a full API server (its requests are slow, the webhook's own clock is not); too few seats (apf-seats).`,
	Detect: detect,
}

// verbs are the requests that have an admission operation.
var verbs = map[string]string{"CREATE": "create", "UPDATE": "update patch", "DELETE": "delete deletecollection", "CONNECT": "connect"}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	names, ok := v.IncreaseBy(diagnose.APIServer, histogram+"_sum", "name", nil)
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if len(names) == 0 {
		return diagnose.NotThere("no webhook was asked")
	}
	var found []diagnose.Finding
	var why []string
	for _, n := range names {
		unanswered := noAnswer(v, n.Label)
		var slow []operation
		var quiet *layer.Layer // the first whose calls fail at once
		operations, _ := v.IncreaseBy(diagnose.APIServer, histogram+"_sum", "operation", diagnose.Labels{"name": n.Label})
		for _, op := range operations {
			match := diagnose.Labels{"name": n.Label, "operation": op.Label}
			mean, count, ok := v.Mean(diagnose.APIServer, histogram, match)
			if !ok {
				continue
			}
			fits := func(t *diagnose.Talk) bool { return strings.Contains(verbs[op.Label], t.Verb) }
			l := layer.Layer{Name: "webhook " + n.Label, Mean: mean, Count: count, Sources: 1,
				Ref:    fmt.Sprintf(`%s{name="%s",operation="%s"}`, histogram, n.Label, op.Label),
				Passes: layer.Long(v, mean, count, func(t *diagnose.Talk) float64 { return t.Webhooks }, fits)}
			if quick := l.Quick(v); quick != "" {
				if unanswered.share >= silent && unanswered.open > unanswered.refused && count >= fewest && quiet == nil {
					quiet = &l
					continue
				}
				why = append(why, quick)
				continue
			}
			o := operation{name: op.Label, layer: l}
			if !l.Finding(v, &o.finding) {
				why = append(why, fmt.Sprintf("%s took %.0f ms, and nothing waited for it", l.Name, 1000*mean))
				continue
			}
			slow = append(slow, o)
		}
		switch {
		case len(slow) > 0:
			found = append(found, together(v, n.Label, slow, unanswered))
		case quiet != nil:
			found = append(found, nobody(v, n.Label, *quiet, unanswered))
		}
	}
	if len(found) > 0 {
		return diagnose.Found(found...)
	}
	return diagnose.NotThere("%s", strings.Join(why, "; "))
}

// An operation of a webhook that is slow, and what waits for it.
type operation struct {
	name    string // CREATE
	layer   layer.Layer
	finding diagnose.Finding
}

// together is the one finding of a webhook: who asks it less asks all its operations
// less, and pods wait for some of them one after another.
func together(v *diagnose.View, name string, slow []operation, u unanswered) diagnose.Finding {
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "webhook", Class: diagnose.Risk,
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look at what serves %s (its CPU, its replicas, what it asks in turn), and ask it less: rules, matchConditions and namespaceSelector that leave out what it lets pass anyway. A shorter timeoutSeconds bounds the damage; with failurePolicy Ignore at the price that objects pass unseen, with Fail that they are refused.", name)},
		RefutedBy: "a run without this webhook in which the same requests take as long",
	}
	sort.SliceStable(slow, func(i, j int) bool { return sum(slow[i].finding.Claims) > sum(slow[j].finding.Claims) })
	var takes, waits, less, numbers []string
	for _, o := range slow {
		f.Sources = max(f.Sources, o.finding.Sources)
		for _, e := range o.finding.Evidence {
			if !slices.Contains(f.Evidence, e) {
				f.Evidence = append(f.Evidence, e)
			}
		}
		if o.finding.Class == diagnose.Bottleneck {
			f.Class, f.Direct, f.Suffered = diagnose.Bottleneck, o.finding.Direct, o.finding.Suffered
		}
		for stage, seconds := range o.finding.Claims {
			if f.Claims == nil {
				f.Claims = map[string]float64{}
			}
			f.Claims[stage] = max(f.Claims[stage], seconds)
		}
		f.RequestSeconds += o.finding.RequestSeconds
		if f.Stage == "" {
			f.Stage = o.finding.Stage
		}
		ms := fmt.Sprintf("%.0f ms", 1000*o.layer.Mean)
		takes = append(takes, fmt.Sprintf("%s of each %s", ms, o.name))
		waits = append(waits, fmt.Sprintf("each %s%s waits %s", o.name, of(v, o.layer.Passes, o.layer.Mean, o.layer.Count), ms))
		less = append(less, fmt.Sprintf("each %s takes %s less", o.name, ms))
		numbers = append(numbers, fmt.Sprintf("n=%.0f", o.layer.Count))
	}
	f.RequestSeconds = min(f.RequestSeconds, v.API.LostSeconds)
	f.Cause = fmt.Sprintf("webhook %s takes %s", name, strings.Join(takes, " and "))
	says := fmt.Sprintf("E%s for the admission webhook %s (%s)", strings.Join(waits, " and ")[1:], name, strings.Join(numbers, ", "))
	f.Summary = says + layer.Outcome(&f)
	if f.Class == diagnose.Bottleneck && slow[0].layer.Mean >= next {
		f.Next = says + "." + diagnose.Behind
	}
	if share, n := saysNo(v, name); share >= often {
		f.Cause += fmt.Sprintf(", and says no to %.0f %% of them", 100*share)
		f.Summary += fmt.Sprintf(" It says no to %.0f %% of what it is asked.", 100*share)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`%s{name="%s",error_type="no_error"}`, rejection, name), Value: n, Unit: "calls", Text: "were answered with no"})
	}
	if u.share >= silent {
		f.Summary += " " + u.text()
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`%s{name="%s"}, %s{name="%s",error_type="calling_webhook_error"}`, failOpen, name, rejection, name), Value: u.open + u.refused, Unit: "calls", Text: "failed: no answer, or none that can be used"})
		f.Advice.Text = fmt.Sprintf("Find out why calls of %s fail: its Service and endpoints, its port, its certificate, its network, its own log. Until then, take its configuration away. ", name) + f.Advice.Text
	}
	if f.Class != diagnose.Risk {
		f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: "without it " + strings.Join(less, " and ")}
	}
	return f
}

// often is the share of a webhook's calls from which its saying no is part of what is
// wrong.
const often = 0.2

// saysNo is which part of its calls a webhook answers with no, and how many.
func saysNo(v *diagnose.View, name string) (share, calls float64) {
	calls, _ = v.Increase(diagnose.APIServer, rejection, diagnose.Labels{"name": name, "error_type": "no_error"})
	all, _ := v.Increase(diagnose.APIServer, histogram+"_count", diagnose.Labels{"name": name})
	if all <= 0 {
		return 0, calls
	}
	return min(1, calls/all), calls
}

func sum(claims map[string]float64) (all float64) {
	for _, seconds := range claims {
		all += seconds
	}
	return all
}

// of says what the requests that wait for a webhook are about, where that is one
// resource and they are about as many as its calls, or waited about as long: its rules
// are not in the metrics.
func of(v *diagnose.View, waits func(*diagnose.Talk) bool, mean, calls float64) string {
	resource, n, waited := "", 0, 0.0
	for _, t := range v.TalksOf(waits) {
		if resource != "" && t.Resource != resource {
			return ""
		}
		resource = t.Resource
		n += t.Count
		waited += t.Webhooks
	}
	asMany := math.Abs(float64(n)-calls) <= about*calls
	asLong := math.Abs(waited-mean*calls) <= about*mean*calls
	if resource == "" || !asMany && !asLong {
		return ""
	}
	return " of " + resource
}

// nobody is the finding of a webhook whose calls fail at once: it holds nobody up,
// and does not do what it is there for.
func nobody(v *diagnose.View, name string, l layer.Layer, u unanswered) diagnose.Finding {
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "webhook", Sources: 1,
		Cause:   fmt.Sprintf("nobody answers for webhook %s", name),
		Summary: fmt.Sprintf("Nobody answers for the admission webhook %s. %s The calls fail at once (%.0f ms each), so that they hold nobody up.", name, u.text(), 1000*l.Mean),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: fmt.Sprintf(`%s{name="%s"}, %s{name="%s",error_type="calling_webhook_error"}`, failOpen, name, rejection, name), Value: u.open + u.refused, Unit: "calls", Text: "failed: no answer, or none that can be used"},
			{Kind: "wait", Ref: l.Ref, Value: l.Mean, Unit: "s", Text: fmt.Sprintf("%s took %.0f ms on average (n=%.0f)", l.Name, 1000*l.Mean, l.Count)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Find out why nobody answers for %s: its Service and endpoints, its port, its certificate, its network. Until then what it should check or change is not checked or changed; take its configuration away where nobody needs it.", name)},
		RefutedBy: "answers in the webhook's own log",
	}
	if calls, ok := v.Increase(diagnose.APIServer, histogram+"_count", diagnose.Labels{"name": name}); ok && calls > 0 {
		f.Sources++ // both counters agree
	}
	return f
}

// unanswered are the calls of a webhook that failed.
type unanswered struct {
	open, refused float64 // the object passed all the same; it did not
	share         float64
}

func noAnswer(v *diagnose.View, name string) (u unanswered) {
	u.open, _ = v.Increase(diagnose.APIServer, failOpen, diagnose.Labels{"name": name})
	u.refused, _ = v.Increase(diagnose.APIServer, rejection, diagnose.Labels{"name": name, "error_type": "calling_webhook_error"})
	if calls, ok := v.Increase(diagnose.APIServer, histogram+"_count", diagnose.Labels{"name": name}); ok && calls > 0 {
		u.share = (u.open + u.refused) / calls
	}
	return u
}

func (u unanswered) text() string {
	became := "and the objects passed unseen (failurePolicy Ignore)"
	if u.refused > u.open {
		became = "and the objects were refused (failurePolicy Fail)"
	}
	return fmt.Sprintf("%.0f %% of its calls failed, %s.", 100*min(1, u.share), became)
}

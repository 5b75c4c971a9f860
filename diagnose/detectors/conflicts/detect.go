package conflicts

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// share and perSecond are the floors of research/faults.md 3.5, doubled for
	// the share: controllers that start lose a tenth of their first writes.
	share, perSecond = 0.10, 1.0
	// ofCluster is the share for parts of the cluster. They write status from what
	// their informers last told them, so that where these are late a fifth of it is
	// refused: that follows from a busy machine, and is no cause.
	ofCluster = 0.50
	// feeding is the part of a controller's own writes from which somebody's writes of
	// workloads are what keeps it at work.
	feeding = 0.50
	// least is how many conflicts are more than an accident of start-up.
	least = 20
	// fewer objects than this take each other's turns; beyond it conflicts are
	// spread, and locking would not help.
	crowded = 2.0 // conflicts for each object
	// atQuota is the use of its own quota from which a component is too late with
	// everything, as in component-cpu.
	atQuota = 0.85
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "conflict-storm",
	Title: "Clients overwrite each other's changes and begin again",
	Doc: `Whoever reads an object, changes it and writes it back is refused with 409 where somebody else was faster, and begins again: with K workers on one object K-1 of K writes are thrown away, and each costs a
read from etcd as well. Block allocators of network plugins (IPAM), counters in ConfigMaps and sharded work lists do this.

**Evidence.** Of one client's updates and patches of a resource at least 10 % (of a part of the cluster 50 %) end in 409, at least one a second and 20 in all; they hit few objects (2 conflicts an object and more). The finding gives requests per
write that succeeded, objects and users. etcd's own count of updates per write that succeeded is the second source: conflicts that clients see are not stored. Where it is a controller of the cluster, who writes workloads meanwhile, half as often or more, is named. It is waste; where the CPU that it burns is a fifth of a full one, it is the bottleneck.

**Look-alikes.** Creates of what exists already (409 as well, but nothing is tried again: not counted); bindings of pods that were bound; locks of leader election, one for each object (lock-herd); what the API server and a controller count against quotas (quota-admission); two clients that
undo each other's work without conflict (tug-of-war); a component that its CPU quota stops, which works on what it read long ago (component-cpu); a built-in controller whose informers are late on a busy machine, which loses a fifth of its writes of status; retries inside the API server, which no client sees (more than one update in etcd for each write).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: who conflicts with whom is in the audit log only")
	}
	changes := v.TalksOf(func(t *diagnose.Talk) bool {
		return !t.Harness && (t.Verb == "update" || t.Verb == "patch") && t.Resource != "leases" && t.Resource != "resourcequotas/status"
	})
	var found []diagnose.Finding
	conflicts, all := 0, 0
	late := "" // what a part of the cluster lost, where that is much and no cause
	for _, t := range changes {
		n := t.Codes[409]
		conflicts += n
		all += t.Count
		if n < least || t.Share(409) < share || float64(n) < perSecond*v.Span() {
			continue
		}
		if diagnose.OfCluster(t.Agent) && t.Share(409) < ofCluster {
			if late == "" {
				late = fmt.Sprintf("; most by %s, of whose writes of %s %.0f %% were refused, as happens where informers are late", t.Agent, t.Resource, 100*t.Share(409))
			}
			continue
		}
		if t.Names > 0 && float64(n) < crowded*float64(t.Names) {
			continue
		}
		if starved(v, t.Agent) {
			continue
		}
		found = append(found, finding(v, t))
	}
	if len(found) == 0 {
		return diagnose.NotThere("%d of %d updates and patches ended in a conflict%s", conflicts, all, late)
	}
	return diagnose.Found(found...)
}

func finding(v *diagnose.View, t diagnose.Talk) diagnose.Finding {
	mine := v.TalksOf(func(o *diagnose.Talk) bool {
		return o.Agent == t.Agent && o.Resource == t.Resource && o.Group == t.Group && (o.Verb == t.Verb || o.Verb == "get")
	})
	requests, reads := 0, 0
	for _, o := range mine {
		requests += o.Count
		if o.Verb == "get" {
			reads += o.Count
		}
	}
	each := float64(requests) / float64(max(1, t.Succeeded()))
	best := 1 + min(1, float64(reads)/float64(t.Count)) // some read from an informer, and ask for nothing
	on := "its objects"
	if t.Names > 0 {
		on = fmt.Sprintf("%d objects", t.Names)
		if t.Names == 1 {
			on = "one object, " + t.Busiest
		}
	}
	f := diagnose.Finding{
		Component: "client:" + t.Agent, Stage: "", Resource: "lock", Sources: 1,
		Cause: fmt.Sprintf("%s: %.0f %% of its writes of %s end in a conflict", t.Agent, 100*t.Share(409), t.Resource),
		Summary: fmt.Sprintf("%s writes %s from stale reads: %.0f %% of its writes are refused (409) and tried again, so that each write that succeeds costs %s requests.",
			t.Agent, t.Resource, 100*t.Share(409), diagnose.Digits(each, 3)),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: code 409 of " + t.Agent, Value: float64(t.Codes[409]) / v.Span(), Unit: "1/s", Text: fmt.Sprintf("conflicts a second, %d of %d writes of %s, on %s", t.Codes[409], t.Count, t.Resource, on)},
			{Kind: "rate", Ref: "requests of " + t.Agent, Value: each, Unit: "requests", Text: fmt.Sprintf("for each of %d writes that succeeded (reads included)", t.Succeeded())},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Let one worker at a time write an object: a lock in the process or on the node, a queue with the object's name as its key, or server-side apply of the fields that are its own. Then %s needs about %s requests a write instead of %s. The price: writers of one object wait for each other, as they do now, but without the API server.", t.Agent, diagnose.Digits(best, 2), diagnose.Digits(each, 3))},
		RefutedBy: "the same client with one writer for each object that still gets conflicts: then somebody else writes them",
	}
	stored, _, _ := strings.Cut(t.Resource, "/") // a subresource is written as its object
	if updates, ok := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"operation": "update", "resource": stored}); ok {
		if updates >= 0.5*float64(t.Succeeded()) && updates < float64(t.Count)*1.5 {
			f.Sources = 2
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `etcd_requests_total{operation="update",resource="` + stored + `"}`, Value: updates, Unit: "", Text: fmt.Sprintf("updates of %s in etcd, for %d writes asked for", stored, t.Count)})
	}
	if w, ok := upstream(v, t); ok {
		f.Summary += fmt.Sprintf(" Meanwhile %s writes %s %d times, each of which gives it work.", w.Agent, w.Resource, w.Count)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: " + w.Verb + " " + w.Resource, Value: w.Rate(v), Unit: "1/s", Text: "writes of " + w.Resource + " by " + w.Agent})
		f.Advice.Text = fmt.Sprintf("Look at what %s writes again and again, and have it write what has changed only: a time in an annotation is a change. %s works on what its informers last saw, and conflicts for as long as objects change faster than it hears of it.", w.Agent, t.Agent)
		f.RefutedBy = fmt.Sprintf("as many conflicts while %s writes nothing", w.Agent)
	}
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("with one writer at a time %.0f of its %.0f requests/s go away", max(0, (float64(requests)-best*float64(t.Succeeded()))/v.Span()), float64(requests)/v.Span())}
	consumer.Judge(v, &f, mine, "")
	return f
}

// upstream is who writes workloads while a controller's writes conflict, often enough to
// be what keeps the controller at work: no part of the cluster nor of the load.
func upstream(v *diagnose.View, t diagnose.Talk) (w diagnose.Talk, ok bool) {
	if !diagnose.OfCluster(t.Agent) {
		return w, false
	}
	for _, o := range v.TalksOf(func(o *diagnose.Talk) bool {
		return o.Writes() && !o.Harness && !diagnose.OfCluster(o.Agent) && (o.Group == "apps" || o.Group == "batch")
	}) {
		if o.Count > w.Count {
			w = o
		}
	}
	return w, w.Count > 0 && float64(w.Count) >= feeding*float64(t.Succeeded())
}

// starved says whether a client is a component that its CPU quota stops: it works on
// what it read long ago, and its conflicts go with that.
func starved(v *diagnose.View, agent string) bool {
	for _, c := range v.Components() {
		if u, _, ok := v.QuotaUse(c); ok && u >= atQuota && strings.HasPrefix(agent, c) {
			return true
		}
	}
	return false
}

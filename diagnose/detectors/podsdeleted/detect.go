package podsdeleted

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Deletions: a number that is no accident, and a share of the pods.
const few, share = 20, 0.05

// fewer deletions and pods made again are no accident either, where they are that share.
const fewer = 10

// pair is the least number of pods that were taken away before they ran: of those that
// nobody makes again, each is missing for good.
const pair = 2

// beside is what is said of it where pods wait for something else.
const beside = " They take their part of what pods wait for now."

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "pods-deleted",
	Title: "A client has pods made again while others wait for them",
	Doc: `A workload's controller makes a new pod for each that is deleted, and all of them anew when the workload's template changes. Somebody who deletes pods while others wait for them (a job that
tests failures, a descheduler, an operator that restarts what it does not know), or who changes templates again and again (a reloader, two deployers that disagree), or who scales it down and up again (an autoscaler that is too quick), or who takes the labels away by which a controller knows its pods, has everything done again: created, decided, bound, started, watched. All of it looks like more load.

**Evidence.** Workloads had at least 20 pods made beyond what they asked for. Clients that are neither part of the control plane nor of the load deleted or evicted at least 10 pods, and 5 % of those that were seen, as the requests say (then 10 that were made again are enough); or
they changed workloads, and controllers made at least 3 ReplicaSets or revisions more than there are workloads; or they scaled workloads at least 3 times, without another template; or they deleted at least 3 ReplicaSets or other owners of pods; or one workload and more for good, with at least 5 pods that never ran, most of all that did not; or at least 2 pods without an owner before they ran; or they wrote to at least 20 pods, no more than twice as often as pods were made beyond what was asked for, and to no workload; or they wrote to nodes, none of which failed, and the node controller evicted as many pods, as it does for a taint with the effect NoExecute.

**Charged.** Of the waiting for a controller, what is of pods that replace others: they were due with their workload, long ago. A machine that is full is full for this work too, by its share of all pods. Pods without an owner that never ran are counted, for nobody makes them again.

**Look-alikes.** A rolling update, a drain or a node that is given up: parts of the control plane delete the pods then. preemption: the scheduler does. slow-removal: pods that are to go, and stay.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("an audit log: only it tells who deletes pods")
	}
	deleted, evicted := map[string]int{}, map[string]int{} // both among the former
	talks := v.TalksOf(func(t *diagnose.Talk) bool {
		return (deletes(t) || evicts(t)) && !t.Harness && !diagnose.OfCluster(t.Agent)
	})
	for _, t := range talks {
		n := succeeded(&t)
		deleted[t.Agent] += n
		if evicts(&t) {
			evicted[t.Agent] += n
		}
	}
	who, n := "", 0
	for agent, count := range deleted {
		if count > n || count == n && agent < who {
			who, n = agent, count
		}
	}
	if f, ok := taken(v, who, n, 2*evicted[who] > n); ok {
		return diagnose.Found(f)
	}
	r := replaced(v)
	if by, revisions, ok := changes(v); ok && n < few && r.pods >= few {
		return diagnose.Found(restarted(v, r, by, revisions))
	}
	if by, scaled := scales(v); n < few && scaled >= times && r.pods >= few {
		return diagnose.Found(rescaled(v, r, by, scaled))
	}
	if by, writes, ok := relabels(v); ok && n < few && r.pods >= few && 2*r.pods >= writes {
		return diagnose.Found(orphaned(v, r, by, writes))
	}
	by, gone, kinds := owners(v)
	if n < few && gone >= times && r.pods >= few {
		return diagnose.Found(ownerless(v, r, by, gone, kinds))
	}
	if f, ok := removed(v, by, gone, kinds); ok && r.pods < few {
		return diagnose.Found(f)
	}
	if f, ok := driven(v, r, earlier); ok && n < few {
		return diagnose.Found(f)
	}
	switch {
	case n == 0:
		return diagnose.NotThere("no client deleted pods")
	case n < fewer || float64(n) < share*float64(v.Counts.Seen):
		return diagnose.NotThere("%s deleted %d of %d pods", who, n, v.Counts.Seen)
	case r.pods < fewer:
		return diagnose.NotThere("%s deleted %d pods, of which %d were made again", who, n, r.pods)
	}
	does, did := "deletes", "deleted"
	look := "; a PodDisruptionBudget holds back those that evict instead of delete"
	if 2*evicted[who] > n {
		does, did = "evicts", "evicted"
		look = ": a descheduler, a drain, an autoscaler; a PodDisruptionBudget holds it back"
	}
	rate := 0.0
	if v.Span() > 0 {
		rate = float64(n) / v.Span()
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "client:" + who, Stage: diagnose.Controller, Resource: "cpu", Sources: 2, Consumes: true,
		Cause:   fmt.Sprintf("%s %s pods, %.2g a second, and controllers make them again", who, does, rate),
		Summary: fmt.Sprintf("%s %s pods while others are waited for: %d, %.2g a second. Their controllers made %d of %d pods again, each with all the work of a new one.", who, does, n, rate, r.pods, v.Counts.Seen),
		Claims:  map[string]float64{diagnose.Controller: v.Excess(diagnose.Controller) * r.share()},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: delete pods, create pods/eviction by " + who, Value: rate, Unit: "1/s", Text: fmt.Sprintf("%d pods %s by it", n, did)},
			{Kind: "pattern", Ref: "pods", Value: float64(r.pods), Unit: "pods", Text: fmt.Sprintf("%d of %d pods were made beyond what their workloads asked for", r.pods, v.Counts.Seen)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look at what %s %s pods for%s.", who, does, look)},
		RefutedBy: "a run without it in which as many pods are made",
	}
	f.Next = f.Summary + beside
	if !v.Symptom() || f.Claims[diagnose.Controller] == 0 {
		f.Class, f.Claims, f.Consumes, f.Stage = diagnose.Waste, nil, false, ""
		f.Cost = v.CostOf(slices.DeleteFunc(talks, func(t diagnose.Talk) bool { return t.Agent != who }), "")
	}
	return diagnose.Found(f)
}

// taken is what is found where pods without an owner were deleted before they ran.
func taken(v *diagnose.View, who string, n int, evicted bool) (f diagnose.Finding, ok bool) {
	never, bound := 0, 0
	for _, p := range v.Pods {
		if p.Owner != "" || p.RunningMicros != 0 || p.CreatedMicros == 0 || p.DeletedMicros == 0 || p.DeletedMicros > v.Load.End.UnixMicro() {
			continue
		}
		never++
		if p.BoundMicros != 0 {
			bound++
		}
	}
	if never < pair || n < never || v.EndsBound {
		return f, false
	}
	does := "deletes"
	if evicted {
		does = "evicts"
	}
	f = diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "client:" + who, Stage: diagnose.Start, Resource: "policy", Sources: 2, Direct: true,
		Cause:   fmt.Sprintf("%s %s pods before they run", who, does),
		Summary: fmt.Sprintf("%s %s pods before they run: %d of %d never did. They had no owner, and nobody makes them again.", who, does, never, v.Counts.Seen),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "pods: deleted_us", Value: float64(never), Unit: "pods", Text: fmt.Sprintf("%d of %d pods were deleted before they ran", never, v.Counts.Seen)},
			{Kind: "rate", Ref: "requests: delete pods, create pods/eviction by " + who, Value: float64(n), Unit: "requests", Text: fmt.Sprintf("%d pods deleted or evicted by it, those that ran among them", n)},
		},
		Advice:       diagnose.Advice{Text: fmt.Sprintf("Look at what %s %s pods for, and by what it chooses them: pods that have not run yet are none to clean up. Pods that must come are made by a workload, which makes another for each that is gone.", who, does)},
		RefutedBy:    "a run without it in which pods are missing too",
		MissingShare: float64(never) / float64(max(never, v.Counts.Stuck)),
		Suffered:     fmt.Sprintf("%d pods never ran", never),
	}
	if 2*bound < never {
		f.Stage = diagnose.Queue
	}
	return f, true
}

func deletes(t *diagnose.Talk) bool {
	return (t.Verb == "delete" || t.Verb == "deletecollection") && t.Resource == "pods"
}

func evicts(t *diagnose.Talk) bool { return t.Verb == "create" && t.Resource == "pods/eviction" }

// times is how often workloads must get another template.
const times = 3

// changes says which client changed workloads most, and how many ReplicaSets and
// revisions controllers made beyond the first of each.
func changes(v *diagnose.View) (by string, revisions int, ok bool) {
	changed := map[string]int{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		workload := t.Resource == "deployments" || t.Resource == "statefulsets" || t.Resource == "daemonsets"
		return workload && (t.Verb == "patch" || t.Verb == "update") && !t.Harness && !diagnose.OfCluster(t.Agent)
	}) {
		changed[t.Agent] += succeeded(&t)
	}
	for agent, n := range changed {
		if n > changed[by] || n == changed[by] && agent < by {
			by = agent
		}
	}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Verb == "create" && (t.Resource == "replicasets" || t.Resource == "controllerrevisions") && diagnose.OfCluster(t.Agent)
	}) {
		revisions += succeeded(&t)
	}
	for _, o := range v.Operations {
		if o.Verb == "create" && (o.Resource == "deployments" || o.Resource == "statefulsets" || o.Resource == "daemonsets") {
			revisions--
		}
	}
	return by, revisions, changed[by] >= times && revisions >= times
}

func succeeded(t *diagnose.Talk) (n int) {
	for code, count := range t.Codes {
		if code < 300 {
			n += count
		}
	}
	return n
}

// restarted is the finding of a client that changes what pods look like.
func restarted(v *diagnose.View, r again, by string, revisions int) diagnose.Finding {
	return r.finding(v, by,
		fmt.Sprintf("%s changes workloads, and their pods are made again", by),
		fmt.Sprintf("%s changes workloads while their pods are waited for: they got another template %d times, and %d of %d pods were made again, each with all the work of a new one.", by, revisions, r.pods, v.Counts.Seen),
		fmt.Sprintf("Look at what %s changes: an annotation with a time or a checksum in the pod template restarts all pods. kubectl rollout history, and the managedFields of the workload, show who sets which field.", by),
		diagnose.Evidence{Kind: "rate", Ref: "requests: create replicasets and controllerrevisions", Value: float64(revisions), Unit: "revisions", Text: "made by controllers beyond the first of each workload"})
}

// scales says which client changed sizes of workloads most, and how often: by their
// scale, or in a workload that got no other template for it.
func scales(v *diagnose.View) (by string, n int) {
	scaled := map[string]int{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		kind, _, _ := strings.Cut(t.Resource, "/")
		sized := kind == "deployments" || kind == "statefulsets" || kind == "replicasets" || kind == "replicationcontrollers" || kind == "jobs"
		plain := t.Resource == kind || t.Resource == kind+"/scale"
		return sized && plain && (t.Verb == "patch" || t.Verb == "update") && !t.Harness && !diagnose.OfCluster(t.Agent)
	}) {
		scaled[t.Agent] += succeeded(&t)
	}
	for agent, count := range scaled {
		if count > n || count == n && agent < by {
			by, n = agent, count
		}
	}
	return by, n
}

// rescaled is the finding of a client that scales workloads down and up again.
func rescaled(v *diagnose.View, r again, by string, n int) diagnose.Finding {
	return r.finding(v, by,
		fmt.Sprintf("%s scales workloads, and controllers make pods again that it took away", by),
		fmt.Sprintf("%s scales workloads while their pods are waited for, %d times, and none got another template: controllers made %d of %d pods beyond what was asked for, each with all the work of a new one.", by, n, r.pods, v.Counts.Seen),
		fmt.Sprintf("Look at what %s scales by: an autoscaler that scales down as soon as a measure falls takes pods away that it asks for again. Give it a longer stabilisation window, wider thresholds, or a lower bound; two that scale the same workload undo each other.", by),
		diagnose.Evidence{Kind: "rate", Ref: "requests: patch and update of workloads and their scale by " + by, Value: float64(n), Unit: "requests", Text: "changed workloads without a new revision"})
}

// owners says which client deleted most of what owns pods, how many, and of which resources.
func owners(v *diagnose.View) (by string, n int, kinds string) {
	deleted, of := map[string]int{}, map[string][]string{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		owner := t.Resource == "replicasets" || t.Resource == "deployments" || t.Resource == "statefulsets" || t.Resource == "daemonsets" || t.Resource == "jobs"
		return owner && (t.Verb == "delete" || t.Verb == "deletecollection") && !t.Harness && !diagnose.OfCluster(t.Agent)
	}) {
		deleted[t.Agent] += succeeded(&t)
		if !slices.Contains(of[t.Agent], t.Resource) {
			of[t.Agent] = append(of[t.Agent], t.Resource)
		}
	}
	for agent, count := range deleted {
		if count > n || count == n && agent < by {
			by, n = agent, count
		}
	}
	slices.Sort(of[by])
	return by, n, strings.Join(of[by], " and ")
}

// ownerless is the finding of a client that deletes what owns pods, and them with it.
func ownerless(v *diagnose.View, r again, by string, n int, kinds string) diagnose.Finding {
	return r.finding(v, by,
		fmt.Sprintf("%s deletes %s, and controllers make their pods again", by, kinds),
		fmt.Sprintf("%s deleted %d %s while pods were waited for, and with each its pods: controllers made %d of %d pods beyond what was asked for, each with all the work of a new one.", by, n, kinds, r.pods, v.Counts.Seen),
		fmt.Sprintf("Look at what %s deletes %s for: what a Deployment or a CronJob owns it makes again. To be rid of pods, scale down or delete the workload itself.", by, kinds),
		diagnose.Evidence{Kind: "rate", Ref: "requests: delete " + kinds + " by " + by, Value: float64(n), Unit: "requests", Text: "deleted what owns pods"})
}

// some is how many pods at least must be missing with the workloads that were deleted:
// those that had come before are not.
const some = 5

// driven is the finding of a client on whose word the node controller evicts pods, which
// it does where a node fails, or has a taint with the effect NoExecute.
func driven(v *diagnose.View, r again, earlier []diagnose.Finding) (f diagnose.Finding, ok bool) {
	if slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return f.ID == "nodes-given-up" }) {
		return f, false
	}
	evicted := 0
	evictions := v.TalksOf(func(t *diagnose.Talk) bool { return deletes(t) && diagnose.EvictsByTaint(t.Agent) })
	for _, t := range evictions {
		evicted += succeeded(&t)
	}
	writers := v.Strangers("nodes")
	if evicted < fewer || float64(evicted) < share*float64(v.Counts.Seen) || r.pods < fewer || len(writers) == 0 {
		return f, false
	}
	by := writers[0]
	failed := "Whether nodes failed is not known, and"
	if _, known := v.Gauge(diagnose.ControllerManager, "node_collector_unhealthy_nodes_in_zone", nil, v.Load); known {
		failed = "No node failed, and"
	}
	f = r.finding(v, by.Agent,
		fmt.Sprintf("%s writes to nodes, and pods are evicted from them and made again", by.Agent),
		fmt.Sprintf("Pods are evicted from their nodes while others are waited for: the node controller deleted %d, as it does where a node has a taint with the effect NoExecute. %s %s wrote to nodes %d times. Controllers made %d of %d pods again, each with all the work of a new one.", evicted, failed, by.Agent, by.Count, r.pods, v.Counts.Seen),
		fmt.Sprintf("Look at what %s writes to nodes (kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints; managedFields say who set them): NoSchedule keeps new pods away and leaves those that run alone. Pods that must stay tolerate the taint, for a time by tolerationSeconds.", by.Agent),
		diagnose.Evidence{Kind: "rate", Ref: "requests: delete pods by " + diagnose.ControllerManager, Value: float64(evicted), Unit: "pods", Text: "evicted by the node controller"})
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: " + by.Verb + " nodes by " + by.Agent, Value: float64(by.Count), Unit: "requests", Text: "wrote to nodes"})
	f.Grade = diagnose.Likely // the requests do not say which field was written
	if f.Class == diagnose.Waste {
		f.Cost = v.CostOf(evictions, "")
	}
	never := 0
	for _, p := range v.Pods {
		if p.RunningMicros == 0 && p.BoundMicros != 0 && p.DeletedMicros != 0 && p.DeletedMicros <= v.Load.End.UnixMicro() {
			never++
		}
	}
	if never >= pair {
		f.Summary += fmt.Sprintf(" %d were evicted before they ran.", never)
	}
	return f, true
}

// removed is the finding of a client that deletes workloads for good: their pods go, or
// never come.
func removed(v *diagnose.View, by string, n int, kinds string) (f diagnose.Finding, ok bool) {
	never := v.Counts.Lost
	for _, p := range v.Pods {
		if p.Owner != "" && p.RunningMicros == 0 && p.DeletedMicros != 0 && p.DeletedMicros <= v.Load.End.UnixMicro() {
			never++
		}
	}
	missing := v.Counts.Expected - v.Arrived()
	// As many workloads have, on average, about as many pods.
	theirs := float64(n) * float64(v.Counts.Expected) / float64(max(1, v.Counts.Requests))
	if n == 0 || never < some || 2*never < missing || 2*theirs < float64(missing) || v.EndsBound {
		return f, false
	}
	return diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "client:" + by, Stage: diagnose.Controller, Resource: "policy", Sources: 2, Direct: true,
		Cause:   fmt.Sprintf("%s deletes the %s whose pods are waited for", by, kinds),
		Summary: fmt.Sprintf("%s deletes the %s whose pods are waited for: %d of them, and %d of %d pods never ran. Nobody makes these again.", by, kinds, n, missing, v.Counts.Expected),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: delete " + kinds + " by " + by, Value: float64(n), Unit: "requests", Text: "deleted what owns pods"},
			{Kind: "pattern", Ref: "pods: deleted_us", Value: float64(never), Unit: "pods", Text: fmt.Sprintf("of %d that never ran were deleted before, or never made", missing)},
		},
		Advice:       diagnose.Advice{Text: fmt.Sprintf("Look at what %s deletes %s for, and by what it chooses them: a label or a name that also others use, an age, an owner that it believes to be gone.", by, kinds)},
		RefutedBy:    "a run without it in which pods are missing too",
		MissingShare: min(1, float64(never)/float64(max(1, missing))),
		Suffered:     fmt.Sprintf("%d pods never ran", missing),
	}, true
}

// relabels says which client wrote most to pods themselves, and how often; ok is false
// where a client wrote workloads, which may be why there are more pods.
func relabels(v *diagnose.View) (by string, writes int, ok bool) {
	wrote := map[string]int{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return (t.Verb == "patch" || t.Verb == "update") && !t.Harness && !diagnose.OfCluster(t.Agent)
	}) {
		switch t.Resource {
		case "pods":
			wrote[t.Agent] += succeeded(&t)
		case "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale", "daemonsets", "jobs", "replicationcontrollers", "replicationcontrollers/scale":
			return "", 0, false
		}
	}
	for agent, n := range wrote {
		if n > wrote[by] || n == wrote[by] && agent < by {
			by = agent
		}
	}
	return by, wrote[by], wrote[by] >= few
}

// orphaned is the finding of a client that takes pods away from their controllers.
func orphaned(v *diagnose.View, r again, by string, writes int) diagnose.Finding {
	f := r.finding(v, by,
		fmt.Sprintf("%s changes pods, and controllers make others in their place", by),
		fmt.Sprintf("%s changes pods, %d times; nobody deleted any, and yet controllers made %d of %d pods beyond what their workloads asked for, each with all the work of a new one: a pod whose labels or owner no longer fit its controller's selector does not count for it.", by, writes, r.pods, v.Counts.Seen),
		fmt.Sprintf("Look at what %s writes: a pod's labels (pod-template-hash among them) and ownerReferences belong to its controller. The managedFields of a pod show who set which field; pods that no controller owns stay until somebody deletes them.", by),
		diagnose.Evidence{Kind: "rate", Ref: "requests: patch and update pods by " + by, Value: float64(writes), Unit: "requests", Text: "wrote to pods"})
	f.Grade = diagnose.Likely // the requests do not say which field was written
	return f
}

// again is how many pods replace others, and the part of the waiting for a
// controller that is theirs.
type again struct {
	pods      int
	mine, all float64 // seconds
}

func (a again) share() float64 {
	if a.all <= 0 {
		return 0
	}
	return a.mine / a.all
}

// finding is that of a client which has pods made again; what it does is the first
// evidence.
func (a again) finding(v *diagnose.View, by, cause, summary, advice string, does diagnose.Evidence) diagnose.Finding {
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "client:" + by, Stage: diagnose.Controller, Resource: "cpu", Sources: 2, Consumes: true,
		Cause: cause, Summary: summary,
		Claims: map[string]float64{diagnose.Controller: v.Excess(diagnose.Controller) * a.share()},
		Evidence: []diagnose.Evidence{
			does,
			{Kind: "pattern", Ref: "pods", Value: float64(a.pods), Unit: "pods", Text: fmt.Sprintf("%d of %d pods were made beyond what their workloads asked for", a.pods, v.Counts.Seen)},
		},
		Advice:    diagnose.Advice{Text: advice},
		RefutedBy: "a run without it in which as many pods are made",
	}
	f.Next = f.Summary + beside
	if !v.Symptom() || f.Claims[diagnose.Controller] == 0 {
		f.Class, f.Claims, f.Consumes, f.Stage = diagnose.Waste, nil, false, ""
		f.Cost = v.CostOf(v.TalksOf(func(t *diagnose.Talk) bool { return t.Agent == by }), "")
	}
	return f
}

// replaced finds the pods of each workload beyond those that it asked for.
func replaced(v *diagnose.View) (a again) {
	asked := map[string]int{}
	for _, o := range v.Operations {
		if o.Verb == "create" && o.Resource != "pods" && o.DoneMicros != 0 && o.Error == "" {
			asked[o.Namespace+"/"+o.Name] += int(o.Pods)
		}
	}
	made := map[string][]record.Pod{}
	for _, p := range v.Pods {
		if p.Owner == "" || p.CreatedMicros == 0 || p.AckedMicros == 0 {
			continue
		}
		key := p.Namespace + "/" + diagnose.OwnerName(p.Owner)
		made[key] = append(made[key], p)
	}
	for _, key := range slices.Sorted(maps.Keys(made)) { // sums of floats depend on their order
		pods := made[key]
		slices.SortFunc(pods, func(x, y record.Pod) int {
			return cmp.Or(cmp.Compare(x.CreatedMicros, y.CreatedMicros), cmp.Compare(x.Name, y.Name))
		})
		for i, p := range pods {
			waited := max(0, float64(p.CreatedMicros-p.AckedMicros)/1e6)
			a.all += waited
			if n, known := asked[key]; known && i >= n {
				a.pods++
				a.mine += waited
			}
		}
	}
	return a
}

package podsparked

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// most is the share of the pods pending at the scheduler that must be set aside,
	// on average, and few the least number.
	most, few = 0.5, 1
	// stayed is the share of the nodes below which so many went away that it matters
	// where pods find no place.
	stayed = 0.8
)

// reasons are what it means that a plugin of the scheduler refuses a pod on every
// node, and where to look.
var reasons = map[string]struct{ means, look string }{
	"NodeResourcesFit":   {"No node has as much CPU, memory or as many places for pods left as they ask for", "Add nodes, or lower the requests of the pods, or of those that have the room now."},
	"NodeAffinity":       {"No node has the labels that they ask for", "Compare spec.nodeSelector and the node affinity of a waiting pod with the labels of the nodes."},
	"NodeName":           {"They name a node that is not there", "Look at spec.nodeName of a waiting pod."},
	"NodeUnschedulable":  {"The nodes are cordoned", "kubectl uncordon the nodes that are to take pods."},
	"TaintToleration":    {"The nodes have taints that they do not tolerate", "Compare the taints of the nodes with the tolerations of a waiting pod; node.kubernetes.io/not-ready and unreachable come from nodes that are in trouble themselves."},
	"NodePorts":          {"The ports of the nodes that they ask for are taken", "Do without hostPort: one node takes one pod with it."},
	"InterPodAffinity":   {"Their rules about other pods leave no node", "Look at the affinity and anti-affinity of a waiting pod: a required anti-affinity leaves room for one pod in each topology."},
	"PodTopologySpread":  {"Their rules of spreading leave no node", "Look at topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule, and whether each topology has nodes with room."},
	"VolumeBinding":      {"Their claims are not bound, or no node can reach the volumes", "Look at the claims of a waiting pod: whether they are there, their StorageClass and its provisioner, and the topology of their volumes."},
	"VolumeRestrictions": {"Their claims are not there, or others use the volumes", "Look at the claims of a waiting pod: whether they are there, and whether another pod has a volume that only one may use (ReadWriteOncePod)."},
	"VolumeZone":         {"Their volumes are in zones without a node for them", "Compare the zones of the volumes with those of the nodes."},
	"NodeVolumeLimits":   {"The nodes have as many volumes attached as they can", "Add nodes, or spread pods with volumes over more of them."},
	"Extender":           {"An extender takes away all nodes that the scheduler's own plugins leave", "Look at the extenders in the scheduler's configuration, and at what they answer for a waiting pod; ignorable and managedResources narrow what one may refuse."},
	"DynamicResources":   {"The devices that they claim are not to be had", "Look at the ResourceClaims of a waiting pod and the ResourceSlices of the nodes."},
}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "pods-parked",
	Title: "The scheduler has set pods aside",
	Doc: `A pod that fits nowhere, whose scheduling failed or that is gated is not in the scheduler's active queue: it waits in backoff (1 s at first, doubled up to 10 s by default), among the
unschedulable until something changes, or gated until its gate is lifted. The loop is idle meanwhile.

**Evidence.** Of the pods pending at the scheduler (scheduler_pending_pods), at least half are in queue backoff, unschedulable or gated, on average over the load, and pods lose time in
stage queue. Or none of at least 20 attempts found a node. scheduler_scheduling_attempt_duration_seconds counts attempts by their result; scheduler_unschedulable_pods says which plugin refused, and the scheduler's log what error an attempt ended with.

Where at least 20 pods wait on average, or fewer for 10 s each, and the scheduler has less than a tenth as many in all of its queues and tried none, they are not its own: they name another scheduler (spec.schedulerName), or it does not lead (leader_election_master_status).

Where at least half of the pending pods are not of the load, they are not what the load's pods wait for as such: the finding is then that the scheduler tries them in vain, where at least half of its attempts are.

Where the scheduler is busy and its pods are not set aside, but at least 20 and a fifth of its bindings are refused, as the requests say, that share of the wait is charged to the refusals: these pods are decided again.

Where a fifth of the nodes or more went away meanwhile (scheduler_cache_size, node_collector_zone_size), that is said, and who deleted them; likewise who else wrote to nodes, where pods are refused for a cordon, a taint or a label.

**Claims.** The share of stage queue that these queues held; where they hold others' pods, the share of the attempts that went to these.

**Look-alikes.** Pods in the active queue: the loop (scheduling-loop), a starved scheduler (component-cpu, machine-cpu). Pods that wait in bind: scheduler-limit, prebind-wait. Pods for which others are evicted: preemption.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	stage := diagnose.Queue
	if !v.Known(diagnose.Queue) {
		stage = diagnose.Scheduling
	}
	lost := v.Excess(stage)
	if !v.Symptom() || lost == 0 {
		return diagnose.NotThere("pods lost no time in the scheduler's queues")
	}
	levels := v.GaugeBy(diagnose.Scheduler, "scheduler_pending_pods", "queue", nil, v.Load)
	if len(levels) == 0 {
		return diagnose.NotAssessed("scheduler_pending_pods of kube-scheduler")
	}
	total, parked := 0.0, 0.0
	main := ""
	for _, q := range []string{"active", "backoff", "gated", "unschedulable"} {
		l := levels[q]
		total += l.Mean
		if q != "active" {
			parked += l.Mean
			if main == "" || l.Mean > levels[main].Mean {
				main = q
			}
		}
	}
	if f, ok := unclaimed(v, stage, lost, total); ok {
		return diagnose.Found(f)
	}
	// Where each attempt fails they take turns: those that have been tried are back in
	// the active queue before all others have been.
	hopeless, tried := inVain(v)
	if !hopeless && (parked < few || parked < most*total) {
		if f, ok := again(v, stage, lost); ok {
			return diagnose.Found(f)
		}
		return diagnose.NotThere("of %.0f pods pending at the scheduler on average, %.0f were set aside", total, parked)
	}
	share := 1.0
	if parked >= few && parked >= most*total {
		share, hopeless = parked/total, false
	}
	if mine, known := v.Waiting(stage); known && total-mine >= max(crowd, most*total) {
		if f, ok := before(v, stage, lost, total-mine, total); ok {
			return diagnose.Found(f)
		}
		return diagnose.NotThere("of %.0f pods pending at the scheduler on average, %.0f were set aside, and all but %.0f are not of this load", total, parked, mine)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "backoff", Sources: 1,
		Claims: map[string]float64{stage: share * lost},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: `scheduler_pending_pods{component="kube-scheduler"}`, Value: share, Unit: "1",
				Text: fmt.Sprintf("of %.0f pending pods on average: backoff %.0f, unschedulable %.0f, gated %.0f, active %.0f", total, levels["backoff"].Mean, levels["unschedulable"].Mean, levels["gated"].Mean, levels["active"].Mean)},
		},
		RefutedBy: "pods that wait as long although none is set aside",
	}
	failed := 0.0
	for _, result := range []string{"unschedulable", "error"} {
		if n, ok := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", diagnose.Labels{"result": result}); ok && n >= 1 {
			failed += n
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`scheduler_schedule_attempts_total{component="kube-scheduler",result=%q}`, result), Value: n, Unit: "attempts", Text: fmt.Sprintf("%.0f attempts ended %s", n, result)})
		}
	}
	if failed > 0 {
		f.Sources++
	}
	plugins, refusals := refusing(v)
	said := strings.Join(plugins, " and ")
	if said != "" {
		f.CodePath = "plugin " + said
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: `scheduler_unschedulable_pods{component="kube-scheduler"}`, Value: refusals, Unit: "pods", Text: fmt.Sprintf("plugin %s refused most of them, %.0f pods on average", said, refusals)})
	}
	switch main {
	case "gated":
		f.Resource = "policy"
		f.Cause = "scheduling gates hold pods"
		off := "took it off late"
		if gated := levels["gated"]; gated.Last >= gated.Mean {
			off = "has not taken it off"
		}
		f.Summary = fmt.Sprintf("%.0f of the %.0f pods that waited at the scheduler were gated: whoever put a schedulingGate on them %s, and the scheduler has nothing to do with it.", levels["gated"].Mean, total, off)
		f.Advice.Text = "Look at the controller that owns the gates (spec.schedulingGates of a waiting pod names them)."
	case "backoff":
		f.Cause = "after a failed attempt pods sit out their back-off"
		f.Summary = fmt.Sprintf("Pods sit out the scheduler's back-off: %.0f of %.0f waiting pods at a time, after %.0f failed attempts, while the scheduler is idle.", levels["backoff"].Mean, total, failed)
		f.Advice.Text = "Remove what made the attempts fail; podInitialBackoffSeconds and podMaxBackoffSeconds of the scheduler's configuration (1 and 10 by default) bound the wait."
		reason, e, told := refusal(v)
		asked, refused := bindings(v)
		counted := refused >= crowd && float64(refused) >= most*float64(asked)
		if told || counted {
			f.Resource = "policy"
			f.Cause = "the API server refuses the scheduler's bindings"
			f.Advice.Text = whoRefuses
			if told {
				f.Sources++
				f.Summary += fmt.Sprintf(" The API server refuses its bindings: %s.", reason)
				f.Evidence = append(f.Evidence, e)
			} else {
				f.Summary += fmt.Sprintf(" The API server refuses %.0f %% of its bindings.", 100*float64(refused)/float64(asked))
			}
			if counted {
				// On a full machine, too: these pods are set aside, and wait for no CPU.
				f.Direct = true
				f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: create pods/binding", Value: float64(refused) / float64(asked), Unit: "1", Text: fmt.Sprintf("%d of %d bindings were refused", refused, asked)})
			}
		} else if why, ok := logged(v); ok {
			f.Sources++
			f.Cause += ": " + why.Last.Detail
			f.Summary += fmt.Sprintf(" Its log says why (%d times): %s.", why.Count, strings.TrimSuffix(why.Last.Detail, "."))
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: kube-scheduler, " + why.Last.Kind, Value: float64(why.Count), Unit: "lines", Text: "the last says: " + why.Last.Detail})
		}
	default:
		f.Cause = "pods fit on no node"
		f.Summary = fmt.Sprintf("Pods fit on no node: %.0f of %.0f waiting pods at a time had been tried and found no place, while the scheduler is idle.", levels["unschedulable"].Mean, total)
		if hopeless {
			f.Summary = fmt.Sprintf("Pods fit on no node: none of %.0f attempts found a place, and %.0f pods wait at a time.", tried, total)
		}
		f.Advice.Text = "Add nodes or room on them, or change what the pods ask for."
		if means, look := explained(plugins); means != "" {
			f.Summary += " " + means
			f.Advice.Text = look
		}
	}
	if e, left, had, ok := fewer(v); ok && main != "gated" {
		f.Sources++
		f.Evidence = append(f.Evidence, e)
		look := "Look at who deletes nodes (kubedyno requests RECORDING --by userAgent,verb,resource), and register them again: a kubelet does it when it starts. "
		if left == 0 {
			f.Resource, f.Cause = "policy", "the cluster has no node"
			f.Summary = fmt.Sprintf("There is no node%s, and none of the scheduler's attempts can find a place for the %.0f pods that wait at a time.", had, total)
			f.Advice.Text = look + "If they are there (kubectl get nodes), look at what the scheduler's log says of its watches."
		} else {
			f.Cause += fmt.Sprintf(", for %.0f %% of the nodes are gone", 100*(1-left))
			f.Summary += fmt.Sprintf(" %.0f %% of the nodes went away during the load.", 100*(1-left))
			f.Advice.Text = look + f.Advice.Text
		}
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == "nodes" && strings.HasPrefix(t.Verb, "delete") }) {
			f.Summary += fmt.Sprintf(" %s deleted nodes, by %d requests.", t.Agent, t.Count)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: delete nodes", Value: float64(t.Count), Unit: "requests", Text: "node deletions by " + t.Agent})
		}
	}
	if w, ok := written(v, plugins); ok && main != "gated" {
		f.Summary += fmt.Sprintf(" %s wrote to nodes, by %d requests.", w.Agent, w.Count)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: " + w.Verb + " nodes", Value: float64(w.Count), Unit: "requests", Text: "of " + w.Agent + ", before the load and under it"})
	}
	if said != "" && main != "gated" {
		f.Cause += fmt.Sprintf("; %s %s no", said, map[bool]string{true: "says", false: "say"}[len(plugins) == 1])
		if _, ok := reasons[plugins[0]]; !ok || main == "backoff" {
			f.Advice.Text += fmt.Sprintf(" The plugin %s refused them.", said)
		}
	}
	return diagnose.Found(f)
}

// room is the plugin that refuses a pod on the nodes which no other rule excludes: it
// is told last.
const room = "NodeResourcesFit"

// alike is the part of the pods of the plugin with the most from which another one
// refuses the same pods, on other nodes.
const alike = 0.8

// refusing are the plugins that refuse most of the pods, and how many on average; a pod
// counts for each plugin that refused it on any node.
func refusing(v *diagnose.View) (plugins []string, pods float64) {
	by := v.GaugeBy(diagnose.Scheduler, "scheduler_unschedulable_pods", "plugin", nil, v.Load)
	for _, l := range by {
		pods = max(pods, l.Mean)
	}
	for name, l := range by {
		if l.Mean > 0 && l.Mean >= alike*pods {
			plugins = append(plugins, name)
		}
	}
	slices.SortFunc(plugins, func(a, b string) int {
		if (a == room) != (b == room) {
			return map[bool]int{true: 1, false: -1}[a == room]
		}
		return strings.Compare(a, b)
	})
	return plugins, pods
}

// explained is what it means that these plugins refuse pods, and where to look; empty
// where one of them is not known.
func explained(plugins []string) (means, look string) {
	var parts, looks []string
	for _, p := range plugins {
		r, ok := reasons[p]
		if !ok {
			return "", ""
		}
		parts, looks = append(parts, fmt.Sprintf("%s (plugin %s)", r.means, p)), append(looks, r.look)
	}
	switch len(parts) {
	case 0:
		return "", ""
	case 1:
		return parts[0] + ".", looks[0]
	}
	for i, p := range parts {
		parts[i] = strings.ToLower(p[:1]) + p[1:]
	}
	return fmt.Sprintf("Some nodes refuse them for one reason, the rest for another: %s.", strings.Join(parts, "; ")), strings.Join(looks, " ")
}

// whoRefuses is what to do about bindings that are refused.
const whoRefuses = "Look at who refuses: the rights of the scheduler's account (ClusterRole system:kube-scheduler and its binding), or the webhook or policy for pods/binding that the reason names."

// refusal is why bindings are refused, by the scheduler's log.
func refusal(v *diagnose.View) (reason string, e diagnose.Evidence, ok bool) {
	l, ok := v.Log(diagnose.Scheduler, "create-refused")
	if !ok || l.MostCount < crowd {
		return "", e, false
	}
	reason = strings.TrimSuffix(l.Most.Object, ".")
	return reason, diagnose.Evidence{Kind: "pattern", Ref: "logs: kube-scheduler, create-refused", Value: float64(l.Count), Unit: "lines", Text: fmt.Sprintf("%d of them say: %s", l.MostCount, reason)}, true
}

// lostWork is the share of the bindings that must be refused where the pods concerned do
// not sit out a back-off, since the scheduler is busy with deciding them again.
const lostWork = 0.2

// bindings is how often the scheduler asked to bind a pod, and how often it was refused for
// another reason than that the pod was gone or bound, or the server busy.
func bindings(v *diagnose.View) (asked, refused int) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Resource == "pods/binding" && t.Verb == "create" && strings.HasPrefix(t.Agent, diagnose.Scheduler)
	}) {
		asked += t.Count
		for code, n := range t.Codes {
			switch code {
			case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
			default:
				if code >= http.StatusBadRequest {
					refused += n
				}
			}
		}
	}
	return asked, refused
}

// again finds a busy scheduler whose decisions are lost, for its bindings are refused.
func again(v *diagnose.View, stage string, lost float64) (f diagnose.Finding, ok bool) {
	asked, refused := bindings(v)
	if refused < crowd || float64(refused) < lostWork*float64(asked) {
		return f, false
	}
	part := float64(refused) / float64(asked)
	f = diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "policy", Sources: 1,
		Direct:  true, // that much of the loop's work is lost, whatever makes it slow
		Cause:   "the API server refuses the scheduler's bindings",
		Summary: fmt.Sprintf("The API server refuses %.0f %% of the scheduler's bindings: each of these pods is decided again, %.1f times for one that is bound.", 100*part, float64(asked)/float64(max(1, asked-refused))),
		Claims:  map[string]float64{stage: lost * part},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: create pods/binding", Value: part, Unit: "1", Text: fmt.Sprintf("%d of %d bindings were refused", refused, asked)},
		},
		Advice:    diagnose.Advice{Text: whoRefuses},
		RefutedBy: "a run without refusals in which pods wait as long for the scheduler",
	}
	if reason, e, ok := refusal(v); ok {
		f.Sources++
		f.Summary += fmt.Sprintf(" The reason given: %s.", reason)
		f.Evidence = append(f.Evidence, e)
	}
	return f, true
}

const (
	// unknown is the part of the waiting pods that the scheduler has at most where
	// it does not know of them, and crowd how many wait at least: a few may be on
	// their way to it, unless each has waited for seconds that no way takes.
	unknown, crowd, seconds = 0.1, 20, 10.0
)

// unclaimed finds pods that wait for a scheduler while it has none of them: they
// name another one, it does not lead, or it has lost its watch.
func unclaimed(v *diagnose.View, stage string, lost, pending float64) (f diagnose.Finding, ok bool) {
	waiting, known := v.Waiting(stage)
	if !known || waiting < crowd && (waiting == 0 || lost < seconds*max(1, waiting)) || pending > unknown*waiting {
		return f, false
	}
	attempts, ok := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", nil)
	if !ok || attempts > unknown*waiting {
		return f, false
	}
	f = diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "policy", Sources: 2,
		// That they are not its own is sure; which of the reasons it is, is not.
		Grade:   diagnose.Likely,
		Cause:   "kube-scheduler does not have the pods: they name another scheduler, or it does not lead, or sees none",
		Summary: fmt.Sprintf("%.0f pods wait for a scheduler at a time, and kube-scheduler has %.0f in its queues and tried %.0f: they are not its own.", waiting, pending, attempts),
		Claims:  map[string]float64{stage: lost},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: `scheduler_pending_pods{component="kube-scheduler"}`, Value: pending, Unit: "pods", Text: fmt.Sprintf("of %.0f that wait on average", waiting)},
			{Kind: "rate", Ref: `scheduler_schedule_attempts_total{component="kube-scheduler"}`, Value: attempts, Unit: "attempts", Text: fmt.Sprintf("%.0f attempts in all", attempts)},
		},
		Advice:    diagnose.Advice{Text: "Look at spec.schedulerName of a waiting pod, and whether that scheduler runs; if it is default-scheduler, whether kube-scheduler holds its lease (kube-system/kube-scheduler) and what its log says of its watches."},
		RefutedBy: "attempts to schedule these pods",
	}
	leads, known := v.GaugeBy(diagnose.Scheduler, "leader_election_master_status", "name", nil, v.Load)["kube-scheduler"]
	switch {
	case known && leads.Mean < 0.5:
		f.Resource, f.Sources, f.Grade = "lock", 3, ""
		f.Cause = "kube-scheduler does not lead, and schedules nothing"
		f.Summary += " It does not hold its lease."
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: `leader_election_master_status{component="kube-scheduler"}`, Value: leads.Mean, Unit: "1", Text: "1 is a leader"})
		f.Advice.Text = "Look at who holds the lease kube-system/kube-scheduler, and what kube-scheduler's log says of renewing it."
	case known:
		f.Cause = "kube-scheduler leads and does not have the pods: they name another scheduler, or it sees none"
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: `leader_election_master_status{component="kube-scheduler"}`, Value: leads.Mean, Unit: "1", Text: "1 is a leader"})
		f.Advice.Text = "Look at spec.schedulerName of a waiting pod, and whether that scheduler runs; if it is default-scheduler, at what kube-scheduler's log says of its watches."
	}
	return f, true
}

// before finds that the scheduler was busy with pods which are not of the load and fit
// on no node: it tries each, says so in its status, and tries it again.
func before(v *diagnose.View, stage string, lost, others, total float64) (f diagnose.Finding, ok bool) {
	all, known := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", nil)
	scheduled, _ := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", diagnose.Labels{"result": "scheduled"})
	failed := all - scheduled
	if !known || failed < crowd || failed < most*all {
		return f, false
	}
	f = diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Queue, Resource: "loop", Sources: 2,
		// That it tried them is sure; whether they stood before the load's pods in the
		// queue, which is by priority and then by age, is not.
		Grade:   diagnose.Likely,
		Cause:   fmt.Sprintf("the scheduler tries %.0f pods of others that fit on no node", others),
		Summary: fmt.Sprintf("%.0f of the %.0f pods that wait at the scheduler are not of this load: it tried such pods %.0f times in vain, %.0f %% of all its attempts, while the load's pods waited for their turn.", others, total, failed, 100*failed/all),
		Claims:  map[string]float64{stage: lost * failed / all},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: `scheduler_pending_pods{component="kube-scheduler"}`, Value: total, Unit: "pods", Text: fmt.Sprintf("are pending on average, %.0f of them not of this load", others)},
			{Kind: "rate", Ref: `scheduler_schedule_attempts_total{component="kube-scheduler"}`, Value: failed, Unit: "attempts", Text: fmt.Sprintf("of %.0f found no node", all)},
		},
		Advice:    diagnose.Advice{Text: "Look at whose pods are pending (kubectl get pods -A --field-selector=status.phase=Pending) and at their priority: pods of a higher PriorityClass are tried first, also those that fit nowhere. Delete them, give them a lower class, bound them by a ResourceQuota, or hold them back with schedulingGates until there is room."},
		RefutedBy: "a run without these pods in which the others wait as long",
	}
	if plugins, refusals := refusing(v); len(plugins) > 0 {
		f.Sources++
		f.CodePath = "plugin " + strings.Join(plugins, " and ")
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: `scheduler_unschedulable_pods{component="kube-scheduler"}`, Value: refusals, Unit: "pods", Text: fmt.Sprintf("plugin %s refused most of them, on average", strings.Join(plugins, " and "))})
	}
	return f, true
}

// nodesOf counts the nodes. The scheduler goes on with a node that was deleted as long as
// it knows of pods there, so that the controller manager is asked too.
func nodesOf(v *diagnose.View) (nodes diagnose.Level, ref string, ok bool) {
	nodes, ok = v.GaugeBy(diagnose.Scheduler, "scheduler_cache_size", "type", nil, v.Load)["nodes"]
	ok = ok && nodes.N > 0
	if l, known := v.Gauge(diagnose.ControllerManager, "node_collector_zone_size", nil, v.Load); known && l.Max > 0 && (!ok || l.Last < nodes.Last) {
		return l, `node_collector_zone_size{component="kube-controller-manager"}`, true
	}
	return nodes, `scheduler_cache_size{component="kube-scheduler",type="nodes"}`, ok
}

// fewer says that nodes went away during the load. left is the share of them that there is
// in the end; had says of how many, where there is none.
func fewer(v *diagnose.View) (e diagnose.Evidence, left float64, had string, ok bool) {
	nodes, ref, known := nodesOf(v)
	if !known || nodes.Last > 0 && nodes.Last > stayed*nodes.Max {
		return e, 1, "", false
	}
	if nodes.Max > 0 {
		left, had = nodes.Last/nodes.Max, fmt.Sprintf(" any more, of %.0f", nodes.Max)
	}
	return diagnose.Evidence{Kind: "pattern", Ref: ref, Value: nodes.Last, Unit: "nodes", Text: fmt.Sprintf("%.0f nodes at the end of the load, %.0f at its begin", nodes.Last, nodes.First)}, left, had, true
}

// written names who else wrote to the nodes, where plugins refuse pods for what is written
// there: cordons, taints and labels.
func written(v *diagnose.View, plugins []string) (w diagnose.Stranger, ok bool) {
	if !slices.ContainsFunc(plugins, func(p string) bool {
		return p == "NodeUnschedulable" || p == "TaintToleration" || p == "NodeAffinity"
	}) {
		return w, false
	}
	for _, w := range v.Strangers("nodes") {
		if w.Verb == "patch" || w.Verb == "update" {
			return w, true
		}
	}
	return w, false
}

// inVain says that none of at least a crowd of attempts found a node, by the
// scheduler's own count, and how many there were.
func inVain(v *diagnose.View) (hopeless bool, attempts float64) {
	by := func(match diagnose.Labels) float64 {
		n, _ := v.Increase(diagnose.Scheduler, "scheduler_schedule_attempts_total", match)
		return n
	}
	attempts = by(nil)
	return attempts >= crowd && by(diagnose.Labels{"result": "unschedulable"}) >= attempts-0.5, attempts
}

// logged is the error that the scheduler's log has most often, of those by which an
// attempt to schedule fails.
func logged(v *diagnose.View) (most diagnose.Logged, ok bool) {
	for _, kind := range []string{"connection-refused", "timeout", "tls-handshake", "conflict"} {
		if l, has := v.Log(diagnose.Scheduler, kind); has && l.Count > most.Count {
			most = l
		}
	}
	return most, most.Count >= crowd
}

package nodesgivenup

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// sick is the share of all nodes, on average over the load, from which it is
	// no single node that broke.
	sick = 0.1
	// alive is the share of the nodes that must renew their leases: then they live.
	alive = 0.9
	// patient is how many renewals must fit into the grace period: with fewer, one
	// that is late is enough. The default is five of 10 s in 50 s.
	patient = 2.0
	// enough writes of nodes' status by a stranger are no accident.
	enough = 3
	// renewal is how often a kubelet renews its lease.
	renewal = 10 * time.Second
	// little is the part of the lost time below which nobody is said to wait for nodes.
	little = 0.1
	// grace is the default of --node-monitor-grace-period, and pass of --node-monitor-period.
	grace, pass = 50 * time.Second, 5 * time.Second
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "nodes-given-up",
	Title: "Nodes are taken for failed",
	Doc: `The node lifecycle controller takes a node for failed whose lease it has not seen renewed for --node-monitor-grace-period (50 s). It taints the node, so that no pod is placed there, and after five minutes evicts those that are. A kubelet renews every 10 s: where the period is not a few
times that, or renewals come late, healthy nodes come and go.

**Evidence.** At least a tenth of all nodes count as unhealthy on average over the load (node_collector_unhealthy_nodes_in_zone of the controller manager), and without its first two passes of --node-monitor-period, in which new nodes count so. Which pods that holds up is seen at the scheduler: those that its plugin TaintToleration refused (scheduler_unschedulable_pods).

**Whose fault.** Where the audit log has renewals of nine of ten nodes, and less than two fit into the grace period, it is the controller manager's setting. Where renewals come as they should and the period is long enough, or where they do not come, the nodes are named, and what delays them must be sought; unless leases come and a client that is no node writes the nodes' status: then it is named, as *possible*, for which of both said that they are not ready is not recorded.

**Class.** A bottleneck where pods wait for it (a tenth of what they lost), else a risk: after five minutes pods are evicted.

**Look-alikes.** Pods that fit nowhere for another reason (pods-parked, which names the plugin); nodes that start pods late (slow-nodes), whose leases come on time.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	const metric = "node_collector_unhealthy_nodes_in_zone"
	// The gauge is set once in a pass: a node that has just come counts as unhealthy until
	// the next one, and that until the next scrape.
	known := v.Load
	known.Start = known.Start.Add(2 * duration(v, "node-monitor-period", pass))
	given := sum(v.GaugeBy(diagnose.ControllerManager, metric, "zone", nil, v.Load))
	short := known.Seconds() <= 0
	if later := sum(v.GaugeBy(diagnose.ControllerManager, metric, "zone", nil, known)); !short {
		given = min(given, later)
	}
	nodes := sum(v.GaugeBy(diagnose.ControllerManager, "node_collector_zone_size", "zone", nil, v.Load))
	switch {
	case nodes == 0:
		return diagnose.NotAssessed("%s of kube-controller-manager", metric)
	case given < sick*nodes:
		return diagnose.NotThere("of %.0f nodes %.0f counted as failed on average", nodes, given)
	case short:
		return diagnose.NotAssessed("a longer load: %.0f of %.0f nodes counted as failed when it began, as new ones do", given, nodes)
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: "node", Resource: "unknown", Sources: 1,
		Cause:   fmt.Sprintf("%.0f of %.0f nodes count as failed", given, nodes),
		Summary: fmt.Sprintf("Of %.0f nodes, %.0f on average count as failed and are tainted: no pod is placed there, and after five minutes those that are there are evicted.", nodes, given),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: metric + `{component="kube-controller-manager"}`, Value: given, Unit: "nodes", Text: fmt.Sprintf("%.0f of %.0f nodes were unhealthy on average over the load", given, nodes)},
		},
		Advice:    diagnose.Advice{Text: "Look at what keeps the nodes from renewing their leases in time: their own CPU, the way to the API server, and the API server's answers to them (kubedyno requests)."},
		RefutedBy: "leases that the API server did not get for that long",
	}
	living := false
	period := duration(v, "node-monitor-grace-period", grace)
	if n, each, ok := beats(v); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: leases of nodes", Value: each.Seconds(), Unit: "s", Text: fmt.Sprintf("between two renewals of a lease, of %.0f nodes", n)},
			diagnose.Evidence{Kind: "config", Ref: "kube-controller-manager --node-monitor-grace-period", Value: period.Seconds(), Unit: "s", Text: "without a renewal make a node a failed one"})
		f.Sources++
		living = n >= alive*nodes
		if living && period.Seconds() < patient*math.Max(each.Seconds(), renewal.Seconds()) {
			f.Component = diagnose.ControllerManager
			f.Cause = fmt.Sprintf("nodes are given up after %s without a heartbeat, of which one comes every %.0f s", period, each.Seconds())
			f.Summary = fmt.Sprintf("Healthy nodes are taken for failed: the controller manager gives a node up after %s without a heartbeat, and each of them sends one every %.0f s. Of %.0f nodes, %.0f on average are tainted, so that no pod is placed there.", period, each.Seconds(), nodes, given)
			f.Advice = diagnose.Advice{Text: "Go back to --node-monitor-grace-period=50s, five heartbeats. The price: pods of a node that really fails are moved that much later.",
				Set: map[string]string{diagnose.ControllerManager + ".args.node-monitor-grace-period": "50s"}}
			f.RefutedBy = "a run with the default period in which as many nodes count as failed"
		}
	}
	if w, ok := doctored(v); ok && living && f.Component == "node" {
		// Nodes that renew their leases are failed only if their status says so. A kubelet may
		// say it too, of a runtime that is down, beside a detector that reports other things.
		f.Grade = diagnose.Possible
		f.Component, f.Resource = "client:"+w.Agent, "policy"
		f.Cause += fmt.Sprintf("; %s writes their status", w.Agent)
		f.Summary += fmt.Sprintf(" They renew their leases in time, and %s, which is no node, writes their status: %d times.", w.Agent, w.Count)
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: " + w.Verb + " nodes/status", Value: float64(w.Count), Unit: "requests", Text: "of " + w.Agent + ", which is no node"})
		f.Advice = diagnose.Advice{Text: fmt.Sprintf("Look at which conditions %s sets, and take its right to nodes/status away unless it is a problem detector that knows what it does.", w.Agent)}
		f.RefutedBy = "as many failed nodes while it writes nothing"
	}
	if lost := v.Excess(stage(v)); v.StagesOK && v.Symptom() && lost > 0 {
		pending := sum(v.GaugeBy(diagnose.Scheduler, "scheduler_pending_pods", "queue", nil, v.Load))
		refused, ok := v.Gauge(diagnose.Scheduler, "scheduler_unschedulable_pods", diagnose.Labels{"plugin": "TaintToleration"}, v.Load)
		held := 0.0
		if ok && pending > 0 {
			held = lost * min(1, refused.Mean/pending)
		}
		if held >= little*v.Lost.PodSeconds {
			f.Class, f.Stage, f.Direct = diagnose.Bottleneck, diagnose.Queue, true
			f.Claims = map[string]float64{stage(v): held}
			f.Sources++
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `scheduler_unschedulable_pods{component="kube-scheduler",plugin="TaintToleration"}`, Value: refused.Mean, Unit: "pods", Text: fmt.Sprintf("found only tainted nodes, on average, of %.0f that waited at the scheduler", pending)})
		}
	}
	return diagnose.Found(f)
}

// doctored names who writes the status of nodes most, where that is neither a node nor a
// part of the cluster.
func doctored(v *diagnose.View) (w diagnose.Stranger, ok bool) {
	if all := v.Strangers("nodes/status"); len(all) > 0 && all[0].Count >= enough {
		return all[0], true
	}
	return w, false
}

// duration is a flag of the controller manager, or its default.
func duration(v *diagnose.View, flag string, normal time.Duration) time.Duration {
	if text, set, _ := v.Flag(diagnose.ControllerManager, flag); set {
		if d, err := time.ParseDuration(text); err == nil {
			return d
		}
	}
	return normal
}

// stage is where pods wait that fit on no node.
func stage(v *diagnose.View) string {
	if v.Known(diagnose.Queue) {
		return diagnose.Queue
	}
	return diagnose.Scheduling
}

func sum(levels map[string]diagnose.Level) (mean float64) {
	for _, l := range levels {
		mean += l.Mean
	}
	return mean
}

// beats are how many nodes renew their leases, and how long each of them takes
// from one renewal to the next, by the client that renews for most.
func beats(v *diagnose.View) (nodes float64, each time.Duration, ok bool) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return t.Writes() && t.Resource == "leases" && !t.Long && (t.Harness || strings.HasPrefix(t.Agent, "kubelet"))
	}) {
		n := t.Names
		if n < 0 { // a copy without names
			if n = t.Users; t.Harness {
				n = v.Meta.Nodes.Count
			}
		}
		if rate := t.Rate(v); float64(n) > nodes && rate > 0 {
			nodes, each, ok = float64(n), time.Duration(float64(n)/rate*float64(time.Second)), true
		}
	}
	return nodes, each, ok
}

package podsfail

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// few is the least number of pods that fail, and share the part of those that were
// seen, from which on it is no accident; nearly is the part of them that has one reason,
// or one node, from which on that is what there is to say.
const few, share, nearly = 10, 0.05, 0.8

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "pods-fail",
	Title: "Pods fail on their nodes instead of running",
	Doc: `A node that cannot take a pod, or cannot start it, says so in the pod's status. A pod that was refused for good is Failed, and its controller makes another, at once and without end: each costs what a good one does. A pod whose containers cannot start waits, and is tried again after longer and longer pauses.

**Evidence.** At least 10 pods, and 5 % of those that were seen, never ran and have a reason, by the watch: status.reason of a failed one, the reason why its container waits. That workloads had more pods made than they asked for is the second source.

**Charged.** The waiting in stage start, by their part of the pods that never ran. Where they are made again and again, a machine that is full is full for that too.

**Look-alikes.** slow-nodes: pods come late, but come. pods-parked: the scheduler finds no node. pods-deleted: somebody takes pods away that could run.`,
	Detect: detect,
}

// A reason is what it means that pods fail so.
type reason struct{ resource, means, look string }

// reasonOf is what is known of a reason, by its name.
func reasonOf(name string) reason {
	switch {
	case strings.HasPrefix(name, "OutOf"):
		return reason{"policy", "the nodes that they were given have no room for them", "Look who chose the node: spec.nodeName of a template or of a webhook, a second scheduler. kube-scheduler reckons with what is there, and leaves such pods pending instead."}
	case name == "NodeAffinity" || name == "NodePorts" || name == "UnexpectedAdmissionError" || strings.HasPrefix(name, "Node"):
		return reason{"policy", "their nodes do not admit them", "Look at the message of a failed pod (kubectl get pod NAME -o jsonpath='{.status.message}'), and at who chose its node."}
	case name == "Evicted":
		return reason{"memory", "their nodes evict them, being short of memory, disk space or process numbers", "Look at the conditions of the nodes (MemoryPressure, DiskPressure, PIDPressure), and at requests that are below what pods use."}
	case strings.Contains(name, "Image"):
		return reason{"network", "their images cannot be had", "Look at the image's name, the registry, and the pull secrets of the pod's ServiceAccount."}
	case name == "CreateContainerConfigError":
		return reason{"policy", "a ConfigMap, a Secret or a key that they name is not there", "Look at the message of the waiting container, and create what it names."}
	case name == "CrashLoopBackOff" || name == "Error" || name == "OOMKilled" || strings.HasPrefix(name, "exit code ") || strings.Contains(name, "Container") || name == "StartError":
		return reason{"unknown", "their containers end, or cannot be started", "Look at the logs of a container that ended (kubectl logs --previous), and its exit code."}
	}
	return reason{"unknown", "their nodes give that reason", "Look at the message of such a pod (kubectl describe pod)."}
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	switch {
	case !v.HasPods:
		return diagnose.NotAssessed("pods")
	case v.EndsBound:
		return diagnose.NotThere("nobody starts pods on seeded nodes")
	}
	reasons, nodes := map[string]int{}, map[string]int{}
	failed, never := 0, 0
	for _, p := range v.Pods {
		if p.RunningMicros != 0 || p.BoundMicros == 0 {
			continue
		}
		never++
		// What somebody deletes has a reason of whoever did.
		if p.FailedReason == "" || p.DeletedMicros != 0 && p.DeletedMicros <= v.Load.End.UnixMicro() && !strings.HasPrefix(p.FailedReason, "OutOf") {
			continue
		}
		failed++
		reasons[p.FailedReason]++
		nodes[p.Node]++
	}
	if failed < few || float64(failed) < share*float64(v.Counts.Seen) {
		return diagnose.NotThere("%d of %d pods failed on their nodes", failed, v.Counts.Seen)
	}
	name, n := most(reasons)
	r := reasonOf(name)
	again := max(0, v.Counts.Seen-v.Counts.Expected)
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "node", Stage: diagnose.Start, Resource: r.resource, Sources: 1,
		Cause:   fmt.Sprintf("pods fail on their nodes (%s)", name),
		Summary: fmt.Sprintf("%d of %d pods fail on their nodes instead of running (%s): %s.", failed, v.Counts.Seen, name, r.means),
		Claims:  map[string]float64{diagnose.Start: v.Excess(diagnose.Start) * float64(failed) / float64(never)},
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "pods: failed_reason", Value: float64(n), Unit: "pods", Text: fmt.Sprintf("%d of %d that failed have the reason %s", n, failed, name)},
		},
		Advice:    diagnose.Advice{Text: r.look},
		RefutedBy: "such pods that run on other nodes, or with another reason",
	}
	if node, n := most(nodes); float64(n) >= nearly*float64(failed) {
		f.Summary += fmt.Sprintf(" It is the node %s for %.0f %% of them.", node, 100*float64(n)/float64(failed))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "pods: node", Value: float64(n), Unit: "pods", Text: fmt.Sprintf("%d of them on %s", n, node)})
	}
	if again >= few {
		f.Sources, f.Consumes = 2, true
		f.Summary += fmt.Sprintf(" Their controllers make others in their place: %d more than were asked for.", again)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "pods", Value: float64(again), Unit: "pods", Text: fmt.Sprintf("made beyond the %d that were asked for", v.Counts.Expected)})
	}
	if !v.StagesOK || f.Claims[diagnose.Start] == 0 {
		// That pods do not run is news without anybody's reckoning.
		f.Claims, f.Consumes, f.MissingShare = nil, false, float64(failed)/float64(never)
		f.Suffered = fmt.Sprintf("%d pods never ran", failed)
	}
	return diagnose.Found(f)
}

// most is the key that counts most, the first by name of several.
func most(counts map[string]int) (key string, n int) {
	for k, c := range counts {
		if c > n || c == n && k < key {
			key, n = k, c
		}
	}
	return key, n
}

package prebindwait

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// share of the bind stage's time that PreBind and Permit must hold.
	share = 0.5
	// behind is the share of the bind stage that an earlier finding must claim to
	// be the reason of the wait: who makes the volumes late.
	behind = 0.5
	// long is the mean wait, in seconds, from which it is one.
	long = 0.1
	// beside is the part of the wait for volumes that may pass in requests about them, in
	// watches and in threads that wait for a CPU, where a CPU is full: the rest is nobody's
	// who waits for one. hops are the changes that are watched for, one after the other:
	// node selected, volume made, claim bound, and the scheduler that sees it.
	beside, hops = 0.2, 4
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "prebind-wait",
	Title: "Pods wait before they are bound",
	Doc: `After a node was chosen, plugins may hold the pod: Permit until somebody agrees, PreBind until its volumes are there (a StorageClass with WaitForFirstConsumer) or its devices are
claimed. Each pod waits in a goroutine of its own, so that the scheduler goes on with others.

**Evidence.** The extension points PreBind and Permit hold at least half of the bind stage's time, and at least 0.1 s for each pod; Bind itself is short.

**Explaining-away.** What makes the scheduler late, or everything, as a full CPU, says why pods wait here, too. Beside a full CPU the wait for volumes is known better: where requests about them, watches (taken to be as long as ours) and threads of the controller manager and the storage driver that wait for a CPU are at most a fifth of it, the rest is the driver's and its backend's, and is charged.

**Look-alikes.** scheduler-limit (the time is in Bind, where the client's limiter is); a slow binding request (Bind, too, and the API server's own latency).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	lost := v.Excess(diagnose.Bind)
	switch {
	case !v.Known(diagnose.Bind):
		return diagnose.NotAssessed("stage bind: %s", v.Stage(diagnose.Bind).Reason)
	case !v.Symptom() || lost == 0:
		return diagnose.NotThere("pods lost no time while they were bound")
	}
	const point = "scheduler_framework_extension_point_duration_seconds_sum"
	bind, ok := v.Increase(diagnose.Scheduler, point, diagnose.Labels{"extension_point": "Bind"})
	if !ok {
		return diagnose.NotAssessed("%s of kube-scheduler", point)
	}
	pre, _ := v.Increase(diagnose.Scheduler, point, diagnose.Labels{"extension_point": "PreBind"})
	permit, _ := v.Increase(diagnose.Scheduler, "scheduler_permit_wait_duration_seconds_sum", nil)
	held := pre + permit
	each := held / float64(max(1, v.Counts.Bound))
	if held < share*(bind+held) || each < long {
		return diagnose.NotThere("PreBind and Permit held pods for %.3f s each, of %.3f s in stage bind", each, (bind+held)/float64(max(1, v.Counts.Bound)))
	}
	elsewhere := 0.0
	for _, f := range earlier {
		if f.Claims[diagnose.Bind] < behind*lost {
			continue
		}
		seconds, known := outside(v)
		if elsewhere = seconds; f.Class != diagnose.Capacity || !known || seconds > beside*held {
			return diagnose.NotThere("PreBind and Permit held pods for %.1f s each; %s says why", each, f.ID)
		}
	}
	where := "PreBind"
	if permit > pre {
		where = "Permit"
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Scheduler, Stage: diagnose.Bind, Resource: "unknown", Sources: 1, Direct: true,
		Cause:   fmt.Sprintf("plugins at %s hold pods", where),
		Summary: fmt.Sprintf("Pods are held at %s for %.1f s each after their node was chosen; binding itself takes %.3f s.", where, each, bind/float64(max(1, v.Counts.Bound))),
		Claims:  map[string]float64{diagnose.Bind: max(0, lost*held/(bind+held)-elsewhere)},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: point + `{extension_point="PreBind"}`, Value: pre, Unit: "pod-seconds", Text: fmt.Sprintf("%.0f pod-seconds at PreBind, %.0f at Permit, %.0f at Bind", pre, permit, bind)},
		},
		CodePath:  "extension point " + where,
		Advice:    diagnose.Advice{Text: "Look at what the plugin waits for."},
		RefutedBy: "pods without volumes or gates that wait as long",
	}
	if elsewhere > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests: persistentvolumes, persistentvolumeclaims; stages: observe", Value: elsewhere, Unit: "pod-seconds", Text: "of that passed in requests about volumes, in watches and in threads that waited for a CPU"})
	}
	if p, ok := dearest(v, where); ok {
		f.Sources++
		f.CodePath = fmt.Sprintf("plugin %s at %s", p.Name, where)
		f.Cause = fmt.Sprintf("plugin %s holds pods at %s", p.Name, where)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: fmt.Sprintf("scheduler_plugin_execution_duration_seconds{plugin=%q}", p.Name), Value: p.Microseconds / 1e6, Unit: "s", Text: fmt.Sprintf("%.2f s each time at %s (%d samples)", p.Microseconds/1e6, where, p.N)})
		if p.Name == "VolumeBinding" {
			f.Resource = "disk"
			f.Cause = "pods wait until their volumes are provisioned and bound"
			f.Summary = fmt.Sprintf("Pods wait %.1f s each for their volumes to be provisioned, after their node was chosen; the scheduler and binding are not what holds them.", each)
			f.Advice.Text = "Look at the provisioner of the pods' StorageClass: its workers, its client limit, its leader election, its backend."
		}
	}
	return diagnose.Found(f)
}

// outside is what of the waiting for volumes passed in requests about them, in watches and
// in threads of who makes and binds them that waited for a CPU, in pod-seconds. known is
// false where nobody asks about volumes, or it was not recorded how long that took.
func outside(v *diagnose.View) (seconds float64, known bool) {
	if !v.Known(diagnose.Observe) {
		return 0, false
	}
	seconds = hops * *v.Stage(diagnose.Observe).WaitSeconds
	who := map[string]bool{diagnose.ControllerManager: true}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return !t.Long && !diagnose.OfNode(t.Agent) && strings.HasPrefix(t.Resource, "persistentvolume")
	}) {
		if t.Seconds < 0 {
			return 0, false
		}
		seconds, known = seconds+t.Seconds, true
		for _, c := range v.Components() {
			if c != diagnose.APIServer && strings.HasPrefix(t.Agent, c) {
				who[c] = true
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(who)) {
		delay, measured := v.RunDelay(c, v.Load)
		if !measured {
			return 0, false
		}
		seconds += delay
	}
	return seconds, known
}

// dearest is the plugin that took most time at an extension point.
func dearest(v *diagnose.View, point string) (diagnose.SchedulerPart, bool) {
	w := v.SchedulerWork()
	if w == nil {
		return diagnose.SchedulerPart{}, false
	}
	for _, p := range w.Plugins { // the dearest first
		if p.Point == point {
			return p, true
		}
	}
	return diagnose.SchedulerPart{}, false
}

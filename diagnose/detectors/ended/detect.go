package ended

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "component-ended",
	Title: "A component's process ended during the load",
	Doc: `A component that ends takes its part with it: without kube-controller-manager no controller makes pods, without kube-scheduler none is bound, without etcd or the API server nothing moves. A lab ends its run then; on other clusters somebody starts it again, and it begins with an empty cache.

**Evidence.** The kernel told of the end of the component's process during the load, with its exit status, and where the run ended for it, the run's own reason is the second source. What ended within a second after it in such a run is the run's doing. One that was killed comes before what held pods up until then, and so do etcd and the API server; a controller manager or scheduler that ended by itself may have ended for that.

Where its log says that it could not renew its lease, that is why: the controller manager and the scheduler give up all they do then, so that no two lead. The lease itself is no cause: what held up its renewal is. Leases are
renewed before there is a load, so that all of the run is searched for an admission webhook that takes a second and more of updates, or refuses them; whether leases are what it is asked about, its rules say.

**Look-alikes.** standstill: the process is there and does nothing.`,
	Detect: detect,
}

// stages are where pods wait first for a component.
var stages = map[string]string{
	diagnose.APIServer: diagnose.Accept, diagnose.Etcd: diagnose.Accept,
	diagnose.ControllerManager: diagnose.Controller, diagnose.Scheduler: diagnose.Queue,
}

// killed is the exit status of a process that was ended by SIGKILL, as a shell has it.
const killed, signals = 128 + 9, 128

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	ends, ok := v.Ends()
	if !ok {
		return diagnose.NotAssessed("which processes ended")
	}
	var found []diagnose.Finding
	for _, e := range ends {
		if stages[e.Component] != "" { // other programs may end when they are done
			found = append(found, finding(v, e))
		}
	}
	if len(found) == 0 {
		return diagnose.NotThere("no component of the control plane ended during the load")
	}
	return diagnose.Found(found...)
}

func finding(v *diagnose.View, e diagnose.End) diagnose.Finding {
	at := float64(e.AtMicros-v.Load.Start.UnixMicro()) / 1e6
	how, look := fmt.Sprintf("exit status %d", e.ExitCode), "Its last lines in the log say why (kubedyno show RECORDING logs)."
	switch {
	case e.ExitCode == killed:
		how, look = "killed by SIGKILL", "Look who killed it: the kernel where memory ran out (dmesg, memory.events of its cgroup: oom_kill), a liveness probe, or a person."
	case e.ExitCode > signals:
		how, look = fmt.Sprintf("ended by signal %d", e.ExitCode-signals), "Look who sent the signal, and what its last lines in the log say."
	case e.ExitCode < 0:
		how = "exit status unknown"
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: e.Component, Stage: stages[e.Component], Resource: "unknown", Sources: 1, Direct: true,
		Cause:        fmt.Sprintf("%s ended (%s)", e.Component, how),
		Summary:      fmt.Sprintf("%s ended %.1f s after the load began (%s).", e.Component, at, how),
		RemovalShare: 1,
		Suffered:     "from then on nobody did its part",
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "exits: " + e.Component, Value: float64(e.ExitCode), Unit: "exit status", Text: fmt.Sprintf("process %d: %s, %.1f s after the load began", e.PID, how, at)},
		},
		Advice:    diagnose.Advice{Text: look + " In production run it twice, so that another takes over (leader election)."},
		RefutedBy: "samples of the same process from later on",
	}
	if lost, _ := v.Log(e.Component, "lease-lost"); lost.Count > 0 && e.ExitCode <= signals && e.ExitCode != 0 {
		f.Cause = fmt.Sprintf("%s ended: it could not renew its lease", e.Component)
		f.Summary = fmt.Sprintf("%s ended %.1f s after the load began (%s): it could not renew its lease in time, and who does not lead must not work.", e.Component, at, how)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: lease-lost of " + e.Component, Value: float64(lost.Count), Unit: "lines", Text: "its log, the last line of them: " + lost.Last.Detail})
		f.Advice.Text = "Find what holds up or refuses the update of its lease (coordination.k8s.io, in kube-system): a webhook or policy that matches leases (leave kube-system out of them), the API server's queues, etcd, or its own want of CPU. Longer leases (--leader-elect-renew-deadline) only bridge it."
		f.RefutedBy = "updates of its lease that were answered in time up to then"
		blame(v, &f)
	}
	if e.EndedRun {
		f.Sources++
		f.Summary += " The run ended with it."
		// Who was killed, or holds no lease, did not end for what held pods up before, as one
		// may that has lost its lease.
		f.Invalidates = e.ExitCode > signals || e.Component == diagnose.Etcd || e.Component == diagnose.APIServer
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "recording.json: endReason", Text: "the run ended for that reason"})
	}
	return f
}

const (
	histogram = "apiserver_admission_webhook_admission_duration_seconds"
	// long is what a webhook must take of each update, in seconds, or share what part of
	// them it must refuse, to be what a lease waits for.
	long, share = 1.0, 0.5
)

// blame names the webhook that updates wait for, if there is one.
func blame(v *diagnose.View, f *diagnose.Finding) {
	all := record.Window{Start: v.Meta.Started, End: v.Meta.Ended}
	names, _ := v.GrowthBy(diagnose.APIServer, histogram+"_count", "name", diagnose.Labels{"operation": "UPDATE"}, all)
	worst, said := 0.0, f.Summary
	for _, n := range names {
		match := diagnose.Labels{"operation": "UPDATE", "name": n.Label}
		seconds, ok := v.Growth(diagnose.APIServer, histogram+"_sum", match, all)
		if !ok || n.Value <= 0 {
			continue
		}
		match["rejected"] = "true"
		refused, _ := v.Growth(diagnose.APIServer, histogram+"_count", match, all)
		mean := seconds / n.Value
		if mean < long && refused < share*n.Value || mean <= worst {
			continue
		}
		worst = mean
		text := fmt.Sprintf("the admission webhook %s takes %s of each update that it is asked about", n.Label, took(mean))
		if refused > 0 {
			text += fmt.Sprintf(", and refused, or failed, %.0f of %.0f", refused, n.Value)
		}
		f.Resource, f.Sources = "webhook", 2
		f.Summary = fmt.Sprintf("%s: %s.", strings.TrimSuffix(said, "."), text)
		f.Cause = fmt.Sprintf("%s ended: it could not renew its lease, and webhook %s holds up updates", f.Component, n.Label)
		f.Advice.Text = fmt.Sprintf("Look whether the rules of webhook %s match leases (coordination.k8s.io): leave those, and kube-system, out of them; no webhook should stand between a leader and its lease. A shorter timeoutSeconds bounds the damage.", n.Label)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: fmt.Sprintf(`%s{name="%s",operation="UPDATE"}`, histogram, n.Label), Value: mean, Unit: "s", Text: "in all of the run: " + text})
	}
}

func took(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

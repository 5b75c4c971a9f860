package ended

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "component-ended",
	Title: "A component's process ended during the load",
	Doc: `A component that ends takes its part with it: without kube-controller-manager no controller makes pods, without kube-scheduler none is bound, without etcd or the API server nothing moves. A lab ends its run then; on other clusters somebody starts it again, and it begins with an empty cache.

**Evidence.** The kernel told of the end of the component's process during the load, with its exit status, and where the run ended for it, the run's own reason is the second source. What ended within a second after it in such a run is the run's doing. One that was killed comes before what held pods up until then; one that ended by itself may have ended for that.

Where its log says that it could not renew its lease, that is why: the controller manager and the scheduler give up all they do then, so that no two lead. The lease itself is no cause: what held up its renewal is.

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
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: lease-lost of " + e.Component, Value: float64(lost.Count), Unit: "lines", Text: "the last: " + lost.Last.Detail})
		f.Advice.Text = "Find what holds up or refuses the update of its lease (coordination.k8s.io, in kube-system): a webhook or policy that matches leases (leave kube-system out of them), the API server's queues, etcd, or its own want of CPU. Longer leases (--leader-elect-renew-deadline) only bridge it."
		f.RefutedBy = "updates of its lease that were answered in time up to then"
	}
	if e.EndedRun {
		f.Sources++
		f.Summary += " The run ended with it."
		// Who was killed did not end for what held pods up before, as one may that has
		// lost its lease.
		f.Invalidates = e.ExitCode > signals
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "recording.json: endReason", Text: "the run ended for that reason"})
	}
	return f
}

package standstill

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// waited is what the longest pod must have waited, in seconds, for the standstill
	// to have held somebody up, and few how many pods.
	waited, few = 1.0, 3
	// awake is how many simulated nodes a process must have, so that it never has
	// two seconds without anything to do: each renews a lease every 10 s.
	awake = 20
	// bounce is the part of the pods that waited which may have come through all the same:
	// samples tell the time of a standstill to the second.
	bounce = 0.1
	// seldom is the share of the moments at which a process must have been stopped, and
	// looks how many there must be: one stop of a second is no habit. All that was lost is
	// charged from the share half on, and in proportion below.
	seldom, looks, half = 0.2, 5, 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "standstill",
	Title: "A component did nothing for seconds",
	Doc: `A process that was stopped (SIGSTOP, a debugger, a frozen cgroup, a suspended machine) does nothing, answers nobody and writes no log line about it. What waits for it waits until it goes on. Averages over a run hide it: for a few seconds nothing moved, and before and after all was well.

**Evidence.** In two seconds and more the process used no CPU and none of its threads was ever put on one (voluntary and involuntary context switches): the components of a control plane have timers that fire many times a second, and an idle one makes hundreds of switches in each. That no pod came out of the component's stages meanwhile is the second source. All that pods lost that were there at the time is charged; where nobody waited it is a risk.

One that is stopped and goes on within a second, by turns, is told by its state (stopped by a signal or a debugger) in at least a fifth of the moments at which it was looked at, one a second. All that pods lost in its stages is charged where it is half of them, and in proportion below.

Simulated nodes stand still in one process. Where that process does, the run is not valid.

**Look-alikes.** A CPU quota lets its processes run in each tenth of a second (component-cpu); a full machine delays everyone (machine-cpu); a process that waits for its disk still has its timers (etcd-sync).`,
	Detect: detect,
}

// A part is a process that may stand still, and the stages that wait for it.
type part struct {
	component string
	stages    []string
}

var everything = []string{diagnose.Accept, diagnose.Controller, diagnose.Scheduling, diagnose.Start, diagnose.Observe}

var parts = []part{
	{diagnose.Etcd, everything},
	{diagnose.APIServer, everything},
	{diagnose.ControllerManager, []string{diagnose.Controller}},
	{diagnose.Scheduler, []string{diagnose.Scheduling}},
	{diagnose.Hollow, []string{diagnose.Start, diagnose.Observe}},
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	var found []diagnose.Finding
	known, states := false, false
	for _, p := range parts {
		if p.component == diagnose.Hollow && v.Meta.Nodes.Count < awake {
			continue
		}
		all, ok := v.Standstills(p.component)
		known = known || ok && p.component != diagnose.Hollow // nodes tell nothing of the control plane
		all = slices.DeleteFunc(all, func(w record.Window) bool {
			return !w.End.After(v.Load.Start) || !w.Start.Before(v.Load.End)
		})
		if len(all) > 0 {
			found = append(found, finding(v, p, all))
		} else if share, n, ok := v.Stopped(p.component, v.Load); ok {
			states = true
			if n >= looks && share >= seldom {
				found = append(found, byTurns(v, p, share, n))
			}
		}
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case !known:
		return diagnose.NotAssessed("the context switches of the control plane's processes")
	}
	if !states {
		return diagnose.NotThere("no component did nothing for two seconds; whether one was stopped for less is not known, for the states of processes were not recorded")
	}
	return diagnose.NotThere("no component did nothing for two seconds, or was stopped by turns")
}

func finding(v *diagnose.View, p part, all []record.Window) diagnose.Finding {
	seconds := 0.0
	var when []string
	for _, w := range all {
		seconds += w.Seconds()
		when = append(when, fmt.Sprintf("%.0f s to %.0f s", w.Start.Sub(v.Load.Start).Seconds(), w.End.Sub(v.Load.Start).Seconds()))
	}
	const told = 3
	again := ""
	switch n := len(when) - told; {
	case n == 1:
		again = ", and once more"
	case n > 1:
		again = fmt.Sprintf(", and %d times more", n)
	}
	when = when[:min(told, len(when))]
	name, harness := p.component, p.component == diagnose.Hollow
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: name, Resource: "cpu", Sources: 1, Direct: true,
		Cause:   fmt.Sprintf("%s stood still for %.0f s", name, seconds),
		Summary: fmt.Sprintf("%s stood still for %.0f s: none of its threads ran, from %s of the load%s", name, seconds, strings.Join(when, ", "), again),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "processes of " + name + ": voluntary and involuntary switches", Value: seconds, Unit: "s", Text: "without CPU time and without a context switch, by samples of every second"},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Find what stopped it: a signal (SIGSTOP) or a debugger, a tool that bounds CPU by stopping processes, a frozen cgroup (a paused container), a machine that was suspended or moved. It is no CPU quota, and no bound of %s: more resources change nothing. The price of letting it run: none.", name)},
		RefutedBy: fmt.Sprintf("lines in the log of %s, or CPU time of it, from that time", name),
	}
	claims, pods, longest := v.Held(all, p.stages)
	if pods < few || longest < waited {
		f.Summary += ". No pod waited for it long enough to count as lost."
		return f
	}
	f.Class, f.Claims = diagnose.Bottleneck, claims
	most := 0.0
	for _, stage := range slices.Sorted(maps.Keys(claims)) {
		if claims[stage] > most {
			f.Stage, most = stage, claims[stage]
		}
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	passed := 0
	for _, stage := range p.stages {
		passed = max(passed, v.Passed(all, stage))
	}
	if float64(passed) <= bounce*float64(pods) {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "pods", Value: float64(passed), Unit: "pods", Text: fmt.Sprintf("came further meanwhile, of %d that waited", pods)})
	}
	f.Suffered = fmt.Sprintf("%d pods waited for it, the longest for %.1f s", pods, longest)
	f.Summary += ". " + f.Suffered + "."
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("without the standstill no pod waits %.0f s for %s", longest, name)}
	if harness {
		f.Component, f.Invalidates = "node", true
		f.Summary += " The simulated nodes are a part of the harness: this is no property of the cluster."
	}
	return f
}

// byTurns is the finding of a process that is stopped and let go within a second.
func byTurns(v *diagnose.View, p part, share float64, n int) diagnose.Finding {
	name := p.component
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: name, Resource: "cpu", Sources: 2, Direct: true,
		Cause:   fmt.Sprintf("%s is stopped %.0f %% of the time", name, 100*share),
		Summary: fmt.Sprintf("%s is stopped, by a signal or a debugger, and let go by turns: it stood in %.0f of %d moments at which it was looked at, one a second", name, share*float64(n), n),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "processes of " + name + ": stopped", Value: share, Unit: "1", Text: fmt.Sprintf("of %d moments it was stopped (state T)", n)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Find who stops it: a tool that bounds CPU by stopping processes (cpulimit), a debugger or tracer, a script that sends SIGSTOP. It is no CPU quota, and no bound of %s: more resources change nothing. The price of letting it run: none.", name)},
		RefutedBy: "a run in which nobody stops it and pods wait as long",
	}
	text, suffers := v.Suffers()
	if !suffers {
		f.Summary += ". No pod waited for it long enough to count as lost."
		return f
	}
	f.Claims = map[string]float64{}
	for _, s := range v.LostStages() {
		if x := *s.ExcessSeconds * min(1, share/half); x > 0 && (slices.Contains(p.stages, s.Name) || slices.Contains(p.stages, diagnose.Scheduling) && inScheduling(s.Name)) {
			f.Claims[s.Name] = x
			if f.Stage == "" {
				f.Stage = s.Name
			}
		}
	}
	if len(f.Claims) == 0 {
		f.Claims = nil
		f.Summary += ". No pod waited for it long enough to count as lost."
		return f
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.Class, f.Suffered = diagnose.Bottleneck, text
	f.Summary += ": " + text + "."
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("without the stops %s has all of the time instead of %.0f %%", name, 100*(1-share))}
	if name == diagnose.Hollow {
		f.Component, f.Invalidates = "node", true
		f.Summary += " The simulated nodes are a part of the harness: this is no property of the cluster."
	}
	return f
}

func inScheduling(stage string) bool {
	return stage == diagnose.Queue || stage == diagnose.Decide || stage == diagnose.Bind
}

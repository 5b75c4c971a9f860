package machinecpu

import (
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
)

// full is the share of the CPUs (without what a hypervisor took) from which
// they count as full: at 0.9 of two cores a request already waits several
// times its own time.
const full = 0.9

// meanwhile is the part of the lost time that must fall into stretches in which the
// machine was full, where it was not full throughout, and surely that from which what
// else there was matters little.
const meanwhile, surely = 0.5, 0.8

// others is the share of the busy time from which processes outside of the run
// are named as consumers.
const others = 0.2

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "machine-cpu",
	Title: "The machine's CPUs are full",
	Doc: `All components and the harness share the machine's CPUs. Where they are at least 90 % busy between the first 5 % of pods created and the last 5 %
running (steal taken out, waiting for disks not counted), and pods lost time, the machine is at capacity. That is no fault: the
bound is the CPUs divided by the CPU-seconds per pod (idle consumption taken out), and the finding gives it, with the largest consumers and the bound that 4, 8 and 16 cores
would give, computed from the same demand. Where the run used a quarter of the CPUs before the load, it says whose most of the requests were then, unless it was the cluster itself. Where load comes in bursts the machine may be full while pods wait and idle in between: then at least half of the lost pod-seconds must fall into
stretches of 3 s and more in which it was, and of these what nothing else explains is charged; below 80 % of them it is *likely* at most. Processes outside of the run are named where a fifth of the busy time is theirs; where pods are not held up, they are a risk.

**Explaining-away.** Everything slows down on a full machine, so this cause is settled before all others; only waiting that was measured inside
a client's limiter is taken out first, since no CPU can lift a limiter.

**Look-alikes.** One component at its own quota on a machine that is otherwise idle (component-cpu); a limiter (the CPU is idle); a full machine whose pods do not wait (no finding, unless others fill it).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	m, ok := v.MachineCPU(v.Plateau)
	switch {
	case !v.Local():
		return diagnose.NotAssessed("the CPU of the control plane's machine: it is not this one")
	case !v.HasMachine || v.Meta.Machine.CPUs == 0:
		return diagnose.NotAssessed("the machine's CPU was not recorded")
	case !ok:
		return diagnose.NotAssessed("the load lasted %.1f s; the machine's CPU is sampled once a second and judged from 3 s on", v.Plateau.Seconds())
	case m.Share < full && v.Symptom():
		if f, ok := bursts(v, m); ok {
			return diagnose.Found(f)
		}
		return diagnose.NotThere("the machine's CPU was %.0f %% busy", 100*m.Share)
	case m.Share < full:
		return diagnose.NotThere("the machine's CPU was %.0f %% busy", 100*m.Share)
	case !v.Symptom():
		if f, ok := risk(v, m); ok {
			return diagnose.Found(f)
		}
		return diagnose.NotThere("the machine's CPU was %.0f %% busy, but pods were not held up", 100*m.Share)
	}
	lost := v.LostStages()
	if len(lost) == 0 {
		return diagnose.NotThere("no stage lost time")
	}
	r, _ := v.Resource(diagnose.Machine, "cpu")
	cause := fmt.Sprintf("all %d CPUs of the machine are busy", v.Meta.Machine.CPUs)
	summary := fmt.Sprintf("The machine is at capacity: its %d CPUs are %.0f %% busy while pods wait. A pod costs %.0f ms of CPU until it runs, so about %.0f pods/s is the most; %.0f/s came up.",
		v.Meta.Machine.CPUs, 100*m.Share, 1000*r.Demand, r.Bound, v.Done())
	if rest, much := v.AtRest(diagnose.Machine); much {
		summary = fmt.Sprintf("The machine is at capacity: its %d CPUs are %.0f %% busy while pods wait, and the run used %.1f of them before there was a load. Beside that a pod costs %.0f ms of CPU until it runs; %.0f/s came up.",
			v.Meta.Machine.CPUs, 100*m.Share, rest, 1000*r.Demand, v.Done())
	}
	switch full := fmt.Sprintf("The machine is at capacity: its %d CPUs are %.0f %% busy while pods wait", v.Meta.Machine.CPUs, 100*m.Share); {
	case v.Arrived() == 0:
		summary = full + ", and none came up."
	case r.Demand <= 0: // what was there before gave way to them
		summary = fmt.Sprintf("%s; %.0f/s came up.", full, v.Done())
	}
	f := finding(v, m, cause, summary)
	f.Stage, f.Claims = lost[0].Name, map[string]float64{}
	for _, s := range lost {
		f.Claims[s.Name] = *s.ExcessSeconds
	}
	return diagnose.Found(f)
}

// bursts is the finding of a machine that is full while pods wait, and not between.
func bursts(v *diagnose.View, m diagnose.MachineUse) (f diagnose.Finding, ok bool) {
	spans := v.FullSpans()
	claims, claimed, stage := map[string]float64{}, 0.0, ""
	for _, s := range v.LostStages() {
		share, ok := v.WaitedDuring(s.Name, spans)
		if x := share * *s.ExcessSeconds; ok && x > 0 {
			claims[s.Name] = x
			claimed += x
			if x > claims[stage] {
				stage = s.Name
			}
		}
	}
	if claimed < meanwhile*v.Lost.PodSeconds {
		return f, false
	}
	seconds := 0.0
	for _, w := range spans {
		from, to := w.Start.Sub(v.Load.Start).Seconds(), w.End.Sub(v.Load.Start).Seconds()
		seconds += max(0, min(to, v.Span())-max(0, from))
	}
	r, _ := v.Resource(diagnose.Machine, "cpu")
	summary := fmt.Sprintf("The machine is at capacity in bursts: its %d CPUs are full for %.0f of the %.0f s, and pods lost %.0f of %.0f pod-seconds in these.", v.Meta.Machine.CPUs, seconds, v.Span(), claimed, v.Lost.PodSeconds)
	if r.Demand > 0 { // else what was there before gave way to them
		summary += fmt.Sprintf(" A pod costs %.0f ms of CPU until it runs, so about %.0f pods/s is the most while a burst lasts.", 1000*r.Demand, r.Bound)
	}
	f = finding(v, m, fmt.Sprintf("all %d CPUs of the machine are busy in bursts", v.Meta.Machine.CPUs), summary)
	f.Stage, f.Claims, f.Rest = stage, claims, true
	if claimed < surely*v.Lost.PodSeconds {
		f.Sources = 1
	}
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "machine: user_s + system_s", Value: seconds, Unit: "s", Text: fmt.Sprintf("in stretches of 3 s and more in which the CPUs are at least %.0f %% busy", 100*full)})
	return f, true
}

// finding is what a full machine says, without what it claims.
func finding(v *diagnose.View, m diagnose.MachineUse, cause, summary string) diagnose.Finding {
	r, _ := v.Resource(diagnose.Machine, "cpu")
	f := diagnose.Finding{Class: diagnose.Capacity, Component: diagnose.Machine, Resource: "cpu", Cause: cause, Summary: summary, Sources: 1}
	f.Evidence = []diagnose.Evidence{
		{Kind: "busy", Ref: "machine: user_s + system_s", Value: m.Share, Unit: "1", Text: fmt.Sprintf("%.1f of %.1f CPU-seconds busy between the first 5 %% of pods created and the last 5 %% running", m.Busy, m.Total)},
	}
	if r.Demand > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine, pods", Value: r.Demand, Unit: "s", Text: fmt.Sprintf("%.1f ms of CPU per pod, idle consumption taken out", 1000*r.Demand)})
	}
	if m.Steal > 0.05*(m.Total+m.Steal) {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine: steal_s", Value: m.Steal, Unit: "s", Text: fmt.Sprintf("the hypervisor took another %.1f CPU-seconds", m.Steal)})
	}
	if _, much := v.AtRest(diagnose.Machine); much {
		if who, rate, all := v.BusyAtRest(); who != "" {
			f.Summary += fmt.Sprintf(" Before there was a load, %s asked for most: %.0f of %.0f requests a second.", who, rate, all)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests before the load, by client", Value: rate, Unit: "1/s", Text: fmt.Sprintf("requests of %s before the load, of %.0f of all", who, all)})
		}
	}
	consumers, sum := consumers(v)
	f.Evidence = append(f.Evidence, consumers...)
	f.Advice.Text = "Give it more CPUs, or ask for fewer pods at a time."
	if share, ok := foreign(v, m); ok {
		outside, known, who := outsiders(v)
		sum += known
		f.Cause += fmt.Sprintf(", %.0f %% of it with processes that do not belong to this run", 100*share)
		f.Summary += fmt.Sprintf(" %.0f %% of the busy time went to processes that do not belong to this run%s.", 100*share, who)
		f.Next = fmt.Sprintf("The machine has no CPU to spare: %.0f %% of its %d CPUs are busy, and %.0f %% of that went to processes that do not belong to this run%s.", 100*m.Share, v.Meta.Machine.CPUs, 100*share, who) + diagnose.Behind
		f.Evidence = append(f.Evidence, outside...)
		f.Advice.Text = elsewhere + " Or give the machine more CPUs, or ask for fewer pods at a time."
	}
	// The processes' own clocks are a second source: they must add up to the
	// machine's, or something that nobody saw burned it.
	if sum >= 0.6*m.Busy {
		f.Sources = 2
	}
	f.Advice.Text += ladder(v, r)
	if h := v.Harness.CPUShare; h != nil && *h >= 0.2 {
		f.Advice.Text += fmt.Sprintf(" %.0f %% of the CPU is the harness itself (load, simulated nodes, collectors): elsewhere the control plane alone would go further.", 100**h)
	}
	if r.Demand > 0 {
		f.Prediction = &diagnose.Prediction{Resource: r.Name, Rate: r.Bound * 2, Text: fmt.Sprintf("twice the CPUs: up to %.0f pods/s, unless something else binds first (computed)", 2*r.Bound)}
	}
	f.RefutedBy = "a run with more CPUs in which pods do not come faster"
	return f
}

// elsewhere is what to do about others' processes.
const elsewhere = "Move what does not belong to the control plane to another machine, or hold it back (cpu.weight, nice)."

// foreign is the share of the busy time that went to processes outside of the run,
// where that is worth a word.
func foreign(v *diagnose.View, m diagnose.MachineUse) (share float64, ok bool) {
	x, ok := v.Foreign(v.Plateau)
	return x / m.Busy, ok && x >= others*m.Busy
}

// outsiders are the two commands outside of the run that used most CPU, what all of
// them used, and in words which one it is, where one used most of it.
func outsiders(v *diagnose.View) (es []diagnose.Evidence, sum float64, who string) {
	all := v.Outside(v.Plateau)
	for i, p := range all {
		sum += p.Value
		if i < 2 {
			es = append(es, diagnose.Evidence{Kind: "busy", Ref: "processes: " + p.Label, Value: p.Value, Unit: "s", Text: fmt.Sprintf("%s used %.1f CPU-seconds", short(p.Label), p.Value)})
		}
	}
	if len(all) > 0 && all[0].Value > sum/2 {
		who = ", most of it to " + short(all[0].Label)
	}
	return es, sum, who
}

// short is a command line in a sentence: the reference to it is whole.
func short(command string) string {
	const long = 72
	if runes := []rune(command); len(runes) > long {
		return string(runes[:long-1]) + "…"
	}
	return command
}

// risk is a machine that others keep full while pods are not held up yet.
func risk(v *diagnose.View, m diagnose.MachineUse) (f diagnose.Finding, ok bool) {
	share, ok := foreign(v, m)
	if !ok {
		return f, false
	}
	outside, _, who := outsiders(v)
	return diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.Machine, Resource: "cpu", Sources: 1,
		Cause:     fmt.Sprintf("all %d CPUs of the machine are busy, %.0f %% of it with processes that do not belong to this run", v.Meta.Machine.CPUs, 100*share),
		Summary:   fmt.Sprintf("The machine has no CPU to spare: %.0f %% of its %d CPUs are busy, and %.0f %% of that went to processes that do not belong to this run%s. Pods were not held up by it yet.", 100*m.Share, v.Meta.Machine.CPUs, 100*share, who),
		Evidence:  append([]diagnose.Evidence{{Kind: "busy", Ref: "machine: user_s + system_s", Value: m.Share, Unit: "1", Text: fmt.Sprintf("%.1f of %.1f CPU-seconds busy between the first 5 %% of pods created and the last 5 %% running", m.Busy, m.Total)}}, outside...),
		Advice:    diagnose.Advice{Text: elsewhere + " The price is theirs: they take longer while pods are made."},
		RefutedBy: "the same load without these processes in which the machine is as busy",
	}, true
}

// ladder are the bounds of larger machines by the utilisation law, at the
// demand per pod of this run.
func ladder(v *diagnose.View, r diagnose.Resource) string {
	if r.Demand <= 0 {
		return ""
	}
	text := " Computed from this run's CPU per pod:"
	sep := " "
	for _, cores := range []int{4, 8, 16} {
		if cores > v.Meta.Machine.CPUs {
			text += fmt.Sprintf("%s%d cores %.0f pods/s", sep, cores, float64(cores)/r.Demand)
			sep = ", "
		}
	}
	if sep == " " {
		return ""
	}
	return text + "."
}

// consumers are the three components that used most CPU over the plateau, and
// what all of them used together.
func consumers(v *diagnose.View) ([]diagnose.Evidence, float64) {
	var es []diagnose.Evidence
	var sum float64
	for _, c := range v.Components() {
		x, ok := v.CPU(c, v.Plateau)
		if !ok {
			continue
		}
		sum += x
		es = append(es, diagnose.Evidence{Kind: "busy", Ref: "processes: " + c, Value: x, Unit: "s", Text: fmt.Sprintf("%s used %.1f CPU-seconds", c, x)})
	}
	slices.SortStableFunc(es, func(a, b diagnose.Evidence) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		}
		return 0
	})
	return es[:min(3, len(es))], sum
}

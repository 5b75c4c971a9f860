package componentcpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// A process at its quota uses 95-100 % of it on average; below 85 % its
// bursts are cut, but it catches up. Stops in half of the periods say the same
// from the quota's own side; with them 75 % is enough, as two threads that
// wait for each other cannot always use up what they have.
const (
	used        = 0.85
	usedStopped = 0.75
	stopped     = 0.5
	never       = 0.1
	// always is the share of stops from which a quota is used up, whoever else
	// holds pods back.
	always = 0.9
	// whole is the use of a quota that has all of it, and strange the part of the machine's
	// busy time that processes outside of the run take at least where they fill it.
	whole, strange = 0.95, 0.5
	// room is how busy a machine is at most on which a component that waits for a CPU is
	// kept from it.
	room = 0.8
	// full is how busy a machine is on which everybody waits, and kept how many times as
	// long as it had a CPU a component must have waited for one on a machine in between.
	full, kept = 0.95, 30.0
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "component-cpu",
	Title: "A component is at its own CPU limit",
	Doc: `A component in a cgroup with a CPU quota (a container's limit, --set <component>.cpu) is stopped for the rest of each 100 ms
once it has used its share, and everything that waits for it waits too, while the machine looks idle. So it does where Go runs fewer threads of a component at a time
(GOMAXPROCS) than the machine has CPUs.

**Evidence.** The process used at least 85 % of its quota over the plateau (75 % where it was stopped in at least half of the periods), and
pods lost time. The cgroup's own count of stops is the second source; a process that was stopped in less than 10 % of the periods is cleared. GOMAXPROCS is read from
go_sched_gomaxprocs_threads; there are no stops to count.
A starved kube-apiserver or etcd is charged with all lost time, a starved controller manager with stage controller, a
starved scheduler with queue, decide and bind. A component that has no quota, as far as the recording knows, is named where its threads were ready to run for ten times as long as they ran (five times on a machine that was less than 70 % busy), while the machine had room (at most 80 % busy, or 95 % where it waited thirty times as long): it was moved to another cgroup, or has a priority that leaves it what others do not want.

Where several quotas stop their components, also one of a group that stops the others (shared-quota), each is charged by how often it did: lifting one leaves pods to the next.

**Risk.** A quota that is used up, and stops the component in at least half of the periods, is named where nobody waits for it yet; so is one that stops it in at least 90 % of them while pods wait for something else, as for a client's limit: it comes next.

Where others' processes fill the machine, and a component gets at least 95 % of its quota and is stopped in at least 90 % of the periods, it is the quota that binds: without them it would get no more.

**Explaining-away.** A limiter that would bind at 20/s does nothing while a starved API server lets only 12/s through: the limiter is then ruled out by its own rate.

**Look-alikes.** The machine at capacity (machine-cpu, settled first); kubedyno's own processes at their quota (generator-late, nodes-late).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	quotas, judged := 0, 0
	var why string
	var found []diagnose.Finding
	var weights []float64 // of each that was found
	for _, c := range v.Meta.Cluster.Components {
		limit, has := v.CPULimit(c.Name)
		if v.IsHarness(c.Name) {
			continue
		}
		if !has {
			if f, ok := held(v, c.Name); ok {
				found, weights = append(found, f), append(weights, 1)
			}
			continue
		}
		threads, byGo := v.Processors(c.Name)
		byGo = byGo && threads == limit
		quotas++
		u, stops, ok := v.QuotaUse(c.Name)
		if !ok {
			continue
		}
		judged++
		_, _, counted := v.Throttled(c.Name, v.Plateau)
		counted = counted && !byGo
		if u < usedStopped || (u < used && stops < stopped) || (counted && stops < never) {
			if f, ok := held(v, c.Name); ok && byGo {
				found, weights = append(found, f), append(weights, 1)
				continue
			}
			why += fmt.Sprintf("; %s used %.0f %% of its %g CPU", c.Name, 100*u, limit)
			continue
		}
		stopsIt := counted && u >= used && stops >= stopped
		if stopsIt && !v.Felt() {
			found, weights = append(found, risk(c.Name, limit, u, stops)), append(weights, stops)
			continue
		}
		if !stopsIt && !v.Symptom() {
			why += fmt.Sprintf("; %s used %.0f %% of its %g CPU, but pods were not held up", c.Name, 100*u, limit)
			continue
		}
		if f, ok := finding(v, c.Name, limit, u, stops, counted); ok {
			if byGo {
				f = ofThreads(f, c.Name, limit, u, float64(v.Meta.Machine.CPUs))
			}
			found, weights = append(found, f), append(weights, max(stops, stopped))
		}
	}
	group, most, _ := v.GroupStopped(stopped)
	share(found, weights, most)
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case quotas > 0 && judged == 0:
		return diagnose.NotAssessed("the processes' CPU, or more than 3 s of load")
	case quotas > 0 && why != "":
		return diagnose.NotThere("%s", why[2:])
	case !v.Local():
		return diagnose.NotAssessed("the components' CPU quotas are not known on this cluster")
	}
	if len(group) > 0 {
		return diagnose.NotThere("no component has a CPU quota of its own; that of a group stopped %s: shared-quota", strings.Join(group, ", "))
	}
	return diagnose.NotThere("no component has a CPU quota")
}

// share parts what a stage lost among all quotas that held it up, by how often each
// stopped whom it holds: the components' own, and one of a group that stopped the
// others. Lifting one alone leaves pods to the next.
func share(found []diagnose.Finding, weights []float64, group float64) {
	all := map[string]float64{}
	for i := range found {
		for stage := range found[i].Claims {
			all[stage] += weights[i]
		}
	}
	for i := range found {
		for stage := range found[i].Claims {
			found[i].Claims[stage] *= weights[i] / (all[stage] + group)
		}
	}
}

// risk is a quota that is used up while nobody waits for it yet.
func risk(component string, quota, u, stops float64) diagnose.Finding {
	return diagnose.Finding{
		Class: diagnose.Risk, Component: component, Resource: "cpu", Sources: 2,
		Cause:   fmt.Sprintf("%s is held to %g CPU by its quota", component, quota),
		Summary: fmt.Sprintf("%s has no CPU to spare: it used %.0f %% of the %g that its quota allows, and was stopped in %.0f %% of the periods. Pods were not held up by it yet.", component, 100*u, quota, 100*stops),
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: "processes: " + component, Value: u, Unit: "1", Text: fmt.Sprintf("of %g CPU used", quota)},
			{Kind: "wait", Ref: "processes: throttled_periods of " + component, Value: stops, Unit: "1", Text: "of the quota's periods in which it was stopped"},
			{Kind: "config", Ref: component + ".cpu", Value: quota, Unit: "cores", Text: fmt.Sprintf("CPU quota %g", quota)},
		},
		Advice:    diagnose.Advice{Set: map[string]string{component + ".cpu": number(2 * quota)}, Text: "Give it twice the quota, before more load comes. The price is that much less for everything else on the machine, while it is used."},
		RefutedBy: "the same load with a larger quota of which it uses no more",
	}
}

// held is what is found of a component that something unknown keeps from the CPU.
func held(v *diagnose.View, component string) (f diagnose.Finding, ok bool) {
	m, okMachine := v.MachineCPU(v.Plateau)
	delay, cpu, starved := v.Starved(component)
	span := v.Plateau.Seconds()
	if _, stops, counted := v.Throttled(component, v.Plateau); counted && stops >= never {
		return f, false // by a quota that is known: shared-quota's
	}
	if !starved || !okMachine || m.Share >= full || m.Share >= room && delay < kept*cpu {
		return f, false
	}
	got := cpu / span
	if f, ok = finding(v, component, got, 1, 0, false); !ok || !v.Symptom() {
		f = risk(component, got, 1, 0)
	}
	f.Sources = 2
	f.Cause = fmt.Sprintf("%s gets no more than %.2g CPUs", component, got)
	f.Summary = fmt.Sprintf("Something keeps %s from the CPU: its threads were ready to run for %.0f s and ran for %.1f s, while the machine's CPU was %.0f %% busy. It has no quota that is known.", component, delay, cpu, 100*m.Share)
	f.Evidence = []diagnose.Evidence{
		{Kind: "wait", Ref: "processes: run_delay_s of " + component, Value: delay, Unit: "s", Text: fmt.Sprintf("that its threads were ready to run and had no CPU, in %.0f s", span)},
		{Kind: "busy", Ref: "processes: " + component, Value: cpu, Unit: "s", Text: fmt.Sprintf("of CPU used, %.2g CPUs", got)},
		{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)},
	}
	f.Advice = diagnose.Advice{Text: "Look at the cgroups that it is in now (/proc/PID/cgroup) and their cpu.max or cpu.cfs_quota_us, at its scheduling policy and nice value (chrt -p PID), and at the CPUs that it may use (taskset -cp PID)."}
	f.RefutedBy = "as long waits for a CPU of a process beside it that has neither quota nor priority"
	return f, true
}

// ofThreads says of a finding that it is Go's threads and no quota.
func ofThreads(f diagnose.Finding, component string, threads, u, cpus float64) diagnose.Finding {
	f.Cause = fmt.Sprintf("%s runs %g of Go's threads at a time", component, threads)
	f.Summary = fmt.Sprintf("%s is at capacity: GOMAXPROCS lets it run on %g of %g CPUs, and it used %.0f %% of that while pods waited for it.", component, threads, cpus, 100*u)
	f.Evidence[1] = diagnose.Evidence{Kind: "config", Ref: `go_sched_gomaxprocs_threads{component="` + component + `"}`, Value: threads, Unit: "threads", Text: fmt.Sprintf("of Go at a time, on a machine with %g CPUs", cpus)}
	dose := min(2*threads, cpus)
	f.Advice.Text = fmt.Sprintf("Take GOMAXPROCS away from the environment of %s, or set it to %g. The price is that much less for everything else on the machine.", component, cpus)
	f.Advice.Set = map[string]string{component + ".env.GOMAXPROCS": number(cpus)}
	f.Advice.Dose[0].Set = map[string]string{component + ".env.GOMAXPROCS": number(dose)}
	f.RefutedBy = "a run with more of Go's threads in which pods do not come faster"
	return f
}

func finding(v *diagnose.View, component string, quota, u, stops float64, counted bool) (diagnose.Finding, bool) {
	claims := map[string]float64{}
	stage := ""
	for _, s := range v.LostStages() {
		if !diagnose.Concerns(component, s.Name) {
			continue
		}
		if stage == "" {
			stage = s.Name
		}
		claims[s.Name] = *s.ExcessSeconds
	}
	if stage == "" {
		return diagnose.Finding{}, false
	}
	if stage == diagnose.Scheduling {
		stage = diagnose.Queue
	}
	r, _ := v.Resource(component, "cpu")
	f := diagnose.Finding{
		Class: diagnose.Capacity, Component: component, Stage: stage, Resource: "cpu",
		Cause:  fmt.Sprintf("%s is held to %g CPU by its quota", component, quota),
		Claims: claims, Sources: 1,
		Summary: fmt.Sprintf("%s is at capacity: it used %.0f %% of the %g CPU that its quota allows, while pods waited for it.", component, 100*u, quota) + carries(r, v.Done()),
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: "processes: " + component, Value: u, Unit: "1", Text: fmt.Sprintf("%.0f %% of %g CPU used over %.0f s", 100*u, quota, v.Plateau.Seconds())},
			{Kind: "config", Ref: component + ".cpu", Value: quota, Unit: "cores", Text: fmt.Sprintf("CPU quota %g", quota)},
		},
		RefutedBy: "a run with a larger quota in which pods do not come faster",
	}
	if counted {
		if stops >= stopped {
			f.Sources = 2
		}
		if u >= used && stops >= always {
			f.Next = fmt.Sprintf("%s has no CPU to spare: it used %.0f %% of the %g that its quota allows, and was stopped in %.0f %% of the periods.", component, 100*u, quota, 100*stops) + diagnose.Behind
		}
		// Others fill the machine, and it has all that its quota allows nevertheless: so it
		// is not they who keep it from more.
		if x, ok := v.Foreign(v.Plateau); ok && u >= whole && stops >= always {
			m, _ := v.MachineCPU(v.Plateau)
			f.Direct = x >= strange*m.Busy
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "processes: throttled_periods of " + component, Value: stops, Unit: "1", Text: fmt.Sprintf("stopped by the quota in %.0f %% of its periods", 100*stops)})
	}
	if m, ok := v.MachineCPU(v.Plateau); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	all := float64(v.Meta.Machine.CPUs)
	lift, dose := quota*4, quota*2
	if all > 0 {
		lift, dose = min(lift, all), min(dose, all)
	}
	f.Advice = diagnose.Advice{
		Text: fmt.Sprintf("Give %s more CPU: %g instead of %g. The price is that much less for everything else on the machine.", component, lift, quota),
		Set:  map[string]string{component + ".cpu": number(lift)},
	}
	next, ok := v.NextBound(func(n diagnose.Resource) bool { return n.Component == component && n.Kind == "cpu" })
	predicted := v.Rate * dose / quota
	if ok {
		predicted = min(predicted, next.Bound)
		f.Prediction = &diagnose.Prediction{Resource: next.Name, Rate: min(next.Bound, r.Bound*lift/quota), Text: "with more CPU, " + next.BindsAt()}
	}
	f.Advice.Dose = []diagnose.Dose{{Set: map[string]string{component + ".cpu": number(dose)}, PredictRate: predicted}}
	return f, true
}

// carries says what the resource could carry and what came up, where that is known.
func carries(r diagnose.Resource, done float64) string {
	if r.Bound <= 0 {
		return ""
	}
	return fmt.Sprintf(" A pod costs it %.1f ms, so about %.0f pods/s is the most; %.1f/s came up.", 1000*r.Demand, r.Bound, done)
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

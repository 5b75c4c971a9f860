package tiedcpus

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// full is a CPU that does nothing else, and spare the most that the others of the
	// machine may be busy on average: the kernel moves threads to where there is room
	// unless it must not.
	full, spare = 0.95, 0.6
	// used is the share of the full CPUs that the components together must have used.
	used = 0.75
	// waits is how long threads must wait for a CPU, in seconds a second and in times of
	// what they ran: alone on a CPU a component of Go waits for itself at most.
	waits = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "tied-cpus",
	Title: "Components are tied to CPUs that are full, and others idle",
	Doc: `A process may be tied to some of the machine's CPUs: taskset, a cpuset of its cgroup (a container's, a slice's, the kubelet's static CPU manager), numactl. Several that are tied to the same ones share them, and wait for each other on a machine that looks half idle.

**Evidence.** Over the plateau at least one of the machine's CPUs was 95 % busy while the others were 60 % busy or less on average, and pods lost time. Two or more components run fewer of Go's threads at a time than the machine has CPUs
(go_sched_gomaxprocs_threads, which follows the affinity), none more than there are full CPUs, and together they used at least 75 % of these.

Or one and more of these ran for less than that and their threads waited at least as long as they ran, half a thread all the time: others have the CPU that they are tied to, whoever they are.

**Prediction.** The CPUs that they are tied to, divided by what a pod costs all components together, is the most.

**Look-alikes.** machine-cpu (all CPUs are full); component-cpu (one component alone uses up what it has); a CPU quota (processes are stopped, and no CPU is full all the time).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	cpus, ok := v.EachCPU(v.Plateau)
	if !ok {
		return diagnose.NotAssessed("what each CPU of the control plane's machine did, for 3 s at least")
	}
	var busy []string
	rest, idle := 0.0, 0
	for _, c := range cpus {
		if c.Share >= full {
			busy = append(busy, fmt.Sprint(c.CPU))
			continue
		}
		rest += c.Share
		idle++
	}
	switch {
	case len(busy) == 0:
		return diagnose.NotThere("no CPU of the machine was %.0f %% busy", 100*full)
	case idle == 0:
		return diagnose.NotThere("all CPUs of the machine were busy")
	case rest > spare*float64(idle):
		return diagnose.NotThere("beside %s, the machine's other CPUs were %.0f %% busy: they are no refuge", named(busy), 100*rest/float64(idle))
	}
	rest /= float64(idle)
	var names []string
	cpu := 0.0
	for _, c := range v.Components() {
		threads, few := v.Processors(c)
		x, ok := v.CPU(c, v.Plateau)
		if few && ok && threads <= float64(len(busy)) {
			names = append(names, c)
			cpu += x
		}
	}
	share := cpu / (float64(len(busy)) * v.Plateau.Seconds())
	if share < used && v.Symptom() {
		if f, ok := crowded(v, names, busy, rest); ok {
			return diagnose.Found(f)
		}
	}
	switch {
	case len(names) < 2:
		return diagnose.NotThere("%s of the machine is busy, but components may run on others", named(busy))
	case share < used:
		return diagnose.NotThere("%s of the machine is busy, but %s used %.0f %% of it together", named(busy), strings.Join(names, ", "), 100*share)
	case !v.Symptom():
		return diagnose.NotThere("%s share %s of the machine, but pods were not held up", strings.Join(names, ", "), named(busy))
	}
	lost := v.LostStages()
	if len(lost) == 0 {
		return diagnose.NotThere("no stage lost time")
	}
	all := float64(v.Meta.Machine.CPUs)
	r, _ := v.Resource(diagnose.Machine, "cpu")
	f := diagnose.Finding{
		Class: diagnose.Capacity, Component: diagnose.Machine, Stage: lost[0].Name, Resource: "cpu", Sources: 2,
		Cause: fmt.Sprintf("%d components share %d of the machine's %g CPUs", len(names), len(busy), all),
		Summary: fmt.Sprintf("The control plane is at capacity: %s are tied to %s of the machine, which is full (%.0f %% of it theirs), while its other CPUs are %.0f %% busy and pods wait.",
			strings.Join(names, ", "), named(busy), 100*min(1, share), 100*rest),
		Claims: map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: "cores", Value: rest, Unit: "1", Text: fmt.Sprintf("%.0f %% busy are the machine's other CPUs, and %s %.0f %% or more", 100*rest, named(busy), 100*full)},
			{Kind: "busy", Ref: "processes: user_s + system_s", Value: cpu, Unit: "s", Text: fmt.Sprintf("%.1f CPU-seconds used in %.1f s by %s", cpu, v.Plateau.Seconds(), strings.Join(names, ", "))},
			{Kind: "config", Ref: "go_sched_gomaxprocs_threads", Value: float64(len(busy)), Unit: "threads", Text: fmt.Sprintf("of Go at a time at most, for each of them, on a machine with %g CPUs", all)},
		},
		Advice:    diagnose.Advice{Text: "Let them run on more CPUs: look at their affinity (taskset -cp PID; Cpus_allowed_list in /proc/PID/status), at the cpuset of their cgroup (cpuset.cpus.effective) and at AllowedCPUs= of their systemd slice. The price: these CPUs are no longer free for whatever they were kept for."},
		RefutedBy: "a run on all CPUs in which pods do not come faster",
	}
	if r.Bound > 0 {
		f.Prediction = &diagnose.Prediction{Resource: r.Name, Rate: r.Bound, Text: fmt.Sprintf("on all CPUs, %s", r.BindsAt())}
	}
	for _, s := range lost {
		f.Claims[s.Name] = *s.ExcessSeconds
	}
	return diagnose.Found(f)
}

// crowded is the finding of components that wait for others on the CPUs that they are
// tied to; ok is false where none does, or nothing waits for them.
func crowded(v *diagnose.View, tied, busy []string, rest float64) (f diagnose.Finding, ok bool) {
	f = diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Machine, Resource: "cpu", Sources: 2,
		Claims:    map[string]float64{},
		Evidence:  []diagnose.Evidence{{Kind: "busy", Ref: "cores", Value: rest, Unit: "1", Text: fmt.Sprintf("%.0f %% busy are the machine's other CPUs, and %s %.0f %% or more", 100*rest, named(busy), 100*full)}},
		Advice:    diagnose.Advice{Text: "Let it run on more CPUs, or take away from these what else runs there: look at its affinity (taskset -cp PID; Cpus_allowed_list in /proc/PID/status), at the cpuset of its cgroup (cpuset.cpus.effective) and at AllowedCPUs= of its systemd slice, and by top at who has these CPUs. The price: other CPUs are no longer free for whatever they were kept for."},
		RefutedBy: "a run on all CPUs in which pods do not come faster",
	}
	var names []string
	var ran, waited float64
	for _, c := range tied {
		cpu, okCPU := v.CPU(c, v.Plateau)
		delay, okDelay := v.RunDelay(c, v.Plateau)
		if !okCPU || !okDelay || delay < waits*v.Plateau.Seconds() || delay < cpu {
			continue
		}
		names = append(names, c)
		ran, waited = ran+cpu, waited+delay
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "processes: run_delay_s of " + c, Value: delay, Unit: "s", Text: fmt.Sprintf("that threads of %s were ready to run and had no CPU, and %.1f s that they ran, in %.0f s", c, cpu, v.Plateau.Seconds())})
		for _, s := range v.LostStages() {
			if !diagnose.Concerns(c, s.Name) {
				continue
			}
			if f.Stage == "" {
				f.Stage = s.Name
			}
			f.Claims[s.Name] = *s.ExcessSeconds
		}
	}
	if len(f.Claims) == 0 {
		return f, false
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	who, are := strings.Join(names, ", "), "are"
	if len(names) == 1 {
		f.Component, are = names[0], "is"
	}
	f.Cause = fmt.Sprintf("%s %s tied to %s of the machine, which others use", who, are, named(busy))
	f.Summary = fmt.Sprintf("%s %s tied to %s of the machine, and others use it as well: of %.0f s threads ran for %.1f s and waited for %.1f s, while the machine's other CPUs are %.0f %% busy and pods wait.", who, are, named(busy), v.Plateau.Seconds(), ran, waited, 100*rest)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: "go_sched_gomaxprocs_threads", Value: float64(len(busy)), Unit: "threads", Text: fmt.Sprintf("of Go at a time at most, on a machine with %d CPUs", v.Meta.Machine.CPUs)})
	if foreign, has := v.Foreign(v.Plateau); has && foreign > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine, processes", Value: foreign, Unit: "s", Text: "of CPU used by processes that do not belong to this run"})
	}
	return f, true
}

// named are CPUs by their numbers.
func named(cpus []string) string {
	if len(cpus) == 1 {
		return "CPU " + cpus[0]
	}
	return "CPUs " + strings.Join(cpus, ", ")
}

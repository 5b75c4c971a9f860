package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// measure fills the part of a round that the recording alone tells.
func measure(in rows) Round {
	pods := measured(in)
	c := clockOf(in, pods)
	m := in.meta
	r := Round{
		Recording: facts(c, m),
		Curves:    curves(c, pods, m.Workload.ExpectedPods),
		Rates:     rates(c, pods),
		CPU:       cpu(c, in),
		Tracks:    tracks(c, in),
		Functions: topTables(c, in, pods),
		Flames:    flames(c, in, pods),
		Pods:      podTable(c, pods),
		Logs:      in.logs,
		Use:       in.use,
		Heat:      in.heat,
		Claims:    in.claims,
		Invalid:   m.Invalid,
		LeftOut:   m.LeftOut,
		Warnings:  m.Warnings,
		Gaps:      in.gaps,
		Until:     "running",
		Latencies: []Latency{
			latency("Intent latency", "due", "running", pods, first, running),
			latency("Pod startup", "created", "running", pods, created, running),
			latency("Until the pod exists", "due", "created", pods, first, created),
			latency("Scheduling", "created", "bound", pods, created, bound),
			latency("Starting", "bound", "running", pods, bound, running),
		},
	}
	// The load generator's own lateness stands with the latencies that it would spoil.
	if lag := latency("Generator behind schedule", "due", "sent", pods,
		func(p record.Pod) int64 { return p.DueMicros }, func(p record.Pod) int64 { return p.SentMicros }); lag.N > 0 {
		r.Latencies = append(r.Latencies, lag)
	}
	for _, g := range m.Gaps {
		name := g.Collector
		if g.Subject != "" {
			name += " of " + g.Subject
		}
		r.Gaps = append(r.Gaps, Reason{ID: name, Why: g.Reason})
	}
	if len(timesOf(pods, running)) == 0 && len(timesOf(pods, bound)) > 0 {
		r.Until = "scheduled" // nobody stands behind the nodes, or nothing got further
	}
	r.Harness = harness(r.CPU, len(timesOf(pods, running)))
	r.Headline = headline(r, c, pods)
	return r
}

func facts(c clock, m record.Meta) Facts {
	f := Facts{
		ID: m.ID, Name: m.Name, Started: m.Started, Status: string(m.Status), EndReason: m.EndReason,
		Kubernetes: m.Cluster.Version, Cluster: m.Cluster.Kind, Profile: m.Cluster.Profile,
		Settings: m.Settings, Nodes: m.Nodes.Count, Simulated: m.Nodes.Simulated, Pods: m.Workload.ExpectedPods,
	}
	if m.Ended.After(m.Started) {
		f.Seconds = m.Ended.Sub(m.Started).Seconds()
	}
	switch {
	case m.Workload.Controller != "":
		f.Load = m.Workload.Controller + "s"
	case m.Workload.OfferedRate > 0:
		f.Load = fmt.Sprintf("bare pods at %s/s", number(m.Workload.OfferedRate))
	default:
		f.Load = "bare pods"
	}
	fact := func(label, value string) {
		if value != "" {
			f.Machine = append(f.Machine, Fact{label, value})
		}
	}
	count := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	h := m.Machine
	fact("CPUs", count(h.CPUs))
	fact("Model", h.Model)
	if h.MemoryBytes > 0 {
		fact("Memory", fmt.Sprintf("%.1f GiB", float64(h.MemoryBytes)/(1<<30)))
	}
	fact("Kernel", h.Kernel)
	fact("System", h.OS)
	fact("Virtual", h.Virtual)
	fact("cgroup", h.Cgroup)
	fact("etcd's disk", h.Disk)
	fact("GOMAXPROCS", count(h.GoMaxProcs))
	fact("Load average before", number(h.LoadAverage))

	for _, comp := range m.Cluster.Components {
		s := FlagSet{Component: comp.Name, Version: comp.Version, Quota: comp.CPU, Args: comp.Args}
		for _, set := range m.Settings {
			if strings.HasPrefix(set, comp.Name+".") {
				s.Set = append(s.Set, set)
			}
		}
		f.Components = append(f.Components, s)
	}
	for _, p := range m.Phases {
		f.Phases = append(f.Phases, Phase{
			Name: p.Name, Kind: string(p.Kind),
			From: c.at(p.Start.UnixMicro()), To: c.at(p.End.UnixMicro()),
		})
	}
	for _, o := range m.Collectors {
		f.Observers = append(f.Observers, Observer{
			Name: o.Name, Interval: o.IntervalSeconds, Samples: o.Samples, CPUSeconds: o.CPUSeconds, Note: o.Note,
		})
	}
	return f
}

// harness is our own cost from the CPU samples; a diagnosis replaces it, since
// it counts the same with the recording's full resolution.
func harness(cpu CPU, pods int) HarnessCost {
	var ours, theirs float64
	for _, s := range cpu.Series {
		switch {
		case s.Harness:
			ours += s.Seconds
		case s.Component != "other":
			theirs += s.Seconds
		}
	}
	if pods == 0 || ours+theirs == 0 {
		return HarnessCost{}
	}
	return HarnessCost{Measured: true, CPUSeconds: ours, PerPodMs: ours * 1000 / float64(pods), Share: ours / (ours + theirs)}
}

// withoutPods is the headline of a run without pods: what the cluster costs by itself,
// over the steady phases, or all along where there are none.
func withoutPods(r Round) []Indicator {
	steady := func(p Phase) bool { return p.Kind == string(record.PhaseSteady) }
	judged := func(at float64) bool {
		return !slices.ContainsFunc(r.Recording.Phases, steady) ||
			slices.ContainsFunc(r.Recording.Phases, func(p Phase) bool { return steady(p) && at >= p.From && at < p.To })
	}
	used := map[string]float64{} // cores, on average
	for _, s := range r.CPU.Series {
		sum, n := 0.0, 0
		for i, x := range s.Cores {
			if at := r.CPU.Start + (float64(i)+0.5)*r.CPU.Step; judged(at) && !math.IsNaN(x) {
				sum += x
				n++
			}
		}
		if n > 0 {
			used[s.Component] = sum / float64(n)
		}
	}
	mean := func(id, label string, of func(CPUSeries) bool) Indicator {
		i := Indicator{ID: id, Label: label, Unit: "% of a CPU", Better: "lower"}
		for _, s := range r.CPU.Series {
			if x, ok := used[s.Component]; ok && of(s) {
				sum := 100 * x
				if i.Value != nil {
					sum += *i.Value
				}
				i.Value = &sum
			}
		}
		return i
	}
	observed := func(s CPUSeries) bool { return !s.Harness && s.Component != "other" }
	plane := func(s CPUSeries) bool { return rankOf(s.Component) <= rankOf("kube-scheduler") }
	if !slices.ContainsFunc(r.CPU.Series, plane) { // a distribution that has it all in one program
		plane = observed
	}
	out := []Indicator{mean("plane-cpu", "Control plane", plane)}
	for _, s := range r.CPU.Series {
		if observed(s) {
			out = append(out, mean("cpu-"+s.Component, s.Component, func(o CPUSeries) bool { return o.Component == s.Component }))
		}
	}
	return append(out,
		mean("other-cpu", "Processes beside the run", func(s CPUSeries) bool { return s.Component == "other" }),
		mean("harness-cpu", "Harness", func(s CPUSeries) bool { return s.Harness }))
}

// headline holds the numbers by which rounds are compared.
func headline(r Round, c clock, pods []record.Pod) []Indicator {
	if r.Curves.Total == 0 && len(pods) == 0 {
		return withoutPods(r)
	}
	ran := timesOf(pods, running)
	pick := func(name string) Latency {
		i := slices.IndexFunc(r.Latencies, func(l Latency) bool { return l.Name == name })
		return r.Latencies[i]
	}
	startup, intent := pick("Pod startup"), pick("Intent latency")
	reached, lost := ran, "never seen running"
	if r.Until == "scheduled" {
		reached, lost = timesOf(pods, bound), "never seen scheduled"
		intent = latency("", "due", "bound", pods, first, bound)
	}
	out := []Indicator{
		{ID: "rate", Label: "Pods " + r.Until + ", mean rate", Unit: "pods/s", Value: meanRate(reached), N: len(reached), Better: "higher"},
		{ID: "intent", Label: "Spec to last pod " + r.Until, Unit: "s", Value: intent.Max, N: intent.N, Better: "lower"},
		{ID: "startup-p50", Label: "Pod startup, p50", Unit: "s", Value: startup.P50, N: startup.N, Better: "lower"},
		{ID: "startup-p99", Label: "Pod startup, p99", Unit: "s", Value: startup.P99, N: startup.N, Better: "lower"},
	}
	if n := max(r.Curves.Total, len(pods)) - len(reached); n > 0 {
		out[1].Note = fmt.Sprintf("%d of %d pods %s", n, r.Curves.Total, lost)
	}
	if r.Until == "scheduled" {
		out[2].Note = "no pod was seen running"
	}
	if startup.N > 0 && startup.P99 == nil {
		out[3].Note = fmt.Sprintf("no p99 below %d samples", minTail)
	}
	plane := 0.0
	seen := false
	for _, s := range r.CPU.Series {
		if !s.Harness && s.Component != "other" {
			plane += s.Seconds
			seen = true
		}
	}
	cost := Indicator{ID: "cpu-per-pod", Label: "Control plane CPU per pod", Unit: "ms", Better: "lower", N: len(ran)}
	if seen && len(ran) > 0 {
		ms := plane * 1000 / float64(len(ran))
		cost.Value = &ms
	}
	own := Indicator{ID: "harness-per-pod", Label: "Harness CPU per pod", Unit: "ms", Better: "lower", N: len(ran)}
	if r.Harness.Measured {
		own.Value = &r.Harness.PerPodMs
	}
	return append(out, cost, own)
}

// number formats for people: three significant digits but no more than four
// after the point, no trailing zeros.
func number(x float64) string {
	a := math.Abs(x)
	switch {
	case a < 5e-5:
		return "0"
	case a >= 100, math.IsNaN(x):
		return fmt.Sprintf("%.0f", x)
	}
	digits := min(4, 2-int(math.Floor(math.Log10(a))))
	return trim(fmt.Sprintf("%.*f", digits, x))
}

func trim(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

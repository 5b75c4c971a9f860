package report

import (
	"math"
	"sort"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// The components in the order in which charts stack them: the system under
// test at the bottom, what we add above it, the rest of the machine on top.
var componentOrder = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
	"kubedyno-csi", "kubedyno-hollow", "kubedyno-load", "kubedyno", "other",
}

// isHarness tells by name; recordings mark their components too.
func isHarness(component string) bool {
	// kubedyno-csi stands for a user's CSI sidecars.
	return strings.HasPrefix(component, "kubedyno") && component != "kubedyno-csi"
}

func rankOf(component string) int {
	for i, c := range componentOrder {
		if c == component {
			return i
		}
	}
	if isHarness(component) {
		return 7 // with ourselves: the keeper, say
	}
	// An unknown component of the cluster goes between the known ones and the harness.
	return 4
}

// margin is how much of the run around the measured load the CPU chart shows.
const margin = 5 // seconds

// axis is that of what is measured second by second.
func (c clock) axis() (from, step float64, n int) {
	from, to := -float64(margin), math.Ceil(c.at(c.end))+margin
	step = stepFor(to-from, 1)
	return from, step, int((to - from) / step)
}

// cpu turns the processes' counters into cores per step.
func cpu(c clock, in rows) CPU {
	from, step, n := c.axis()
	out := CPU{Start: from, Step: step, Cores: in.meta.Machine.CPUs}

	harness := map[string]bool{}
	for _, comp := range in.meta.Cluster.Components {
		harness[comp.Name] = comp.Harness
	}
	type identity struct {
		pid   int32
		start int64
	}
	processes := map[identity][]record.ProcessSample{}
	for _, s := range in.processes {
		id := identity{s.PID, s.StartMicros}
		processes[id] = append(processes[id], s)
	}
	sums := map[string]Values{}
	add := func(component string, used Values) {
		sum, ok := sums[component]
		if !ok {
			sum = unknown(n)
			sums[component] = sum
		}
		for i, x := range used {
			if math.IsNaN(x) {
				continue
			}
			if math.IsNaN(sum[i]) {
				sum[i] = 0
			}
			sum[i] += x
		}
	}
	for _, samples := range processes {
		sort.Slice(samples, func(i, j int) bool { return samples[i].TimeMicros < samples[j].TimeMicros })
		k := counter{}
		for _, s := range samples {
			k.add(c.at(s.TimeMicros), s.UserSeconds+s.SystemSeconds)
		}
		name := samples[len(samples)-1].Component
		if name == "" {
			name = "other"
		}
		add(name, k.perStep(out.Start, out.Step, n))
	}
	if len(in.machine) > 1 {
		// What no sampled process explains. Processes we do not know are part
		// of it, so their own sum is dropped.
		delete(sums, "other")
		k := counter{}
		for _, s := range in.machine {
			k.add(c.at(s.TimeMicros), s.User+s.System)
		}
		rest := k.perStep(out.Start, out.Step, n)
		for i := range rest {
			for _, sum := range sums {
				if !math.IsNaN(sum[i]) {
					rest[i] -= sum[i]
				}
			}
			rest[i] = max(rest[i], 0) // two clocks tick: never below nothing; NaN stays NaN
		}
		sums["other"] = rest
	}
	for name, v := range sums {
		s := CPUSeries{Component: name, Harness: harness[name] || isHarness(name), Cores: v}
		for i, x := range v {
			at := out.Start + float64(i)*out.Step
			if !math.IsNaN(x) && at >= 0 && at < c.at(c.end) {
				s.Seconds += x * min(out.Step, c.at(c.end)-at)
			}
		}
		out.Series = append(out.Series, s)
	}
	sort.Slice(out.Series, func(i, j int) bool {
		a, b := out.Series[i], out.Series[j]
		if ra, rb := rankOf(a.Component), rankOf(b.Component); ra != rb {
			return ra < rb
		}
		return a.Component < b.Component
	})
	return out
}

// counter is a growing quantity seen at moments.
type counter struct{ t, v []float64 }

func (k *counter) add(t, v float64) {
	if n := len(k.t); n > 0 && t <= k.t[n-1] {
		return // a duplicate sample adds nothing
	}
	k.t, k.v = append(k.t, t), append(k.v, v)
}

// perStep is the mean growth per second in each step, NaN where less than half
// of the step was observed.
func (k *counter) perStep(start, step float64, n int) Values {
	out := unknown(n)
	if len(k.t) < 2 {
		return out
	}
	first, last := k.t[0], k.t[len(k.t)-1]
	for i := range out {
		a, b := max(start+float64(i)*step, first), min(start+float64(i+1)*step, last)
		if b-a >= step/2 {
			out[i] = (k.value(b) - k.value(a)) / (b - a)
		}
	}
	return out
}

// value interpolates at t, which lies within the samples.
func (k *counter) value(t float64) float64 {
	i := sort.SearchFloat64s(k.t, t)
	if i == 0 {
		return k.v[0]
	}
	f := (t - k.t[i-1]) / (k.t[i] - k.t[i-1])
	return k.v[i-1] + f*(k.v[i]-k.v[i-1])
}

func unknown(n int) Values {
	v := make(Values, n)
	for i := range v {
		v[i] = math.NaN()
	}
	return v
}

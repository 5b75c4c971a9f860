package report

import (
	"sort"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
)

// topFunctions is how many functions by self and how many by cumulative CPU a
// component's table holds.
const topFunctions = 25

// topTables makes one table per component: all its CPU profiles of the
// measured load together.
func topTables(c clock, in rows, pods []record.Pod) []TopTable {
	byComponent := map[string][]cpuProfile{}
	for _, p := range in.profiles {
		byComponent[p.ref.Component] = append(byComponent[p.ref.Component], p)
	}
	var out []TopTable
	for component, profiles := range byComponent {
		t := TopTable{Component: component, Phase: profiles[0].ref.Phase}
		self, cum := map[string]float64{}, map[string]float64{}
		ran := 0
		for _, p := range profiles {
			sum(p.data, self, cum)
			start, end := extent(p)
			t.Seconds += float64(end-start) / 1e6
			for _, pod := range pods {
				if at := in.meta.Nodes.Arrived(pod); at >= start && at < end {
					ran++
				}
			}
		}
		for _, v := range self {
			t.CPUSeconds += v
		}
		if t.CPUSeconds > 0 {
			t.Rows = top(self, cum, t.CPUSeconds, ran)
		}
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := rankOf(out[i].Component), rankOf(out[j].Component)
		if a != b {
			return a < b
		}
		return out[i].Component < out[j].Component
	})
	return out
}

func extent(p cpuProfile) (start, end int64) {
	if !p.ref.Start.IsZero() {
		return p.ref.Start.UnixMicro(), p.ref.End.UnixMicro()
	}
	return p.data.TimeNanos / 1000, (p.data.TimeNanos + p.data.DurationNanos) / 1000
}

// sum adds a profile's CPU-seconds by function. A function counts once per
// stack, however often it recurs in it.
func sum(p *profile.Profile, self, cum map[string]float64) {
	value, scale := cpuValue(p)
	if value < 0 {
		return
	}
	for _, s := range p.Sample {
		v := float64(s.Value[value]) * scale
		seen := map[string]bool{}
		leaf := true
		for _, loc := range s.Location {
			for _, line := range loc.Line { // innermost inlined first
				if line.Function == nil {
					continue
				}
				name := line.Function.Name
				if leaf {
					self[name] += v
					leaf = false
				}
				if !seen[name] {
					seen[name] = true
					cum[name] += v
				}
			}
		}
		if leaf { // no symbol at all
			self["(unknown)"] += v
			cum["(unknown)"] += v
		}
	}
}

// cpuValue finds the profile's CPU time and its factor to seconds.
func cpuValue(p *profile.Profile) (index int, scale float64) {
	for i, t := range p.SampleType {
		switch t.Unit {
		case "nanoseconds":
			return i, 1e-9
		case "microseconds":
			return i, 1e-6
		case "milliseconds":
			return i, 1e-3
		}
	}
	return -1, 0
}

func top(self, cum map[string]float64, total float64, pods int) []Func {
	keep := map[string]bool{}
	for _, by := range []map[string]float64{self, cum} {
		names := make([]string, 0, len(by))
		for n := range by {
			names = append(names, n)
		}
		sort.Slice(names, func(i, j int) bool {
			if by[names[i]] != by[names[j]] {
				return by[names[i]] > by[names[j]]
			}
			return names[i] < names[j]
		})
		for _, n := range names[:min(topFunctions, len(names))] {
			keep[n] = true
		}
	}
	var rows []Func
	for n := range keep {
		f := Func{Name: n, Self: self[n] / total, Cum: cum[n] / total}
		if pods > 0 {
			ms := cum[n] * 1000 / float64(pods)
			f.PerMs = &ms
		}
		rows = append(rows, f)
	}
	sort.Slice(rows, func(i, j int) bool {
		if rows[i].Self != rows[j].Self {
			return rows[i].Self > rows[j].Self
		}
		return rows[i].Name < rows[j].Name
	})
	return rows
}

package functions

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
)

// KernelMark ends the name of a function of the kernel.
const KernelMark = "_[k]"

// defaultPeriod is the CPU time of one sample where the recording does not say
// (its writer died): docs/recording.md has 99 a second.
const defaultPeriod = 1.0 / 99

// Period is the CPU time that one sample stands for, in seconds.
func Period(rec *record.Recording) float64 { return PeriodOf(rec.Meta()) }

// PeriodOf is Period where only what a recording says of itself is at hand.
func PeriodOf(m record.Meta) float64 {
	for _, o := range m.Collectors {
		if o.Name == "stacks" && o.IntervalSeconds > 0 {
			return o.IntervalSeconds
		}
	}
	return defaultPeriod
}

// A Sample is how often one stack was seen in one process.
type Sample struct {
	Component string
	Command   string // the thread's name
	PID       int32
	Frames    string // outermost first, joined with ";"
	Count     int
}

// Samples counts the stacks of a component (empty: all; NoComponent: of no
// component) in a window. They are sorted, the most frequent first.
func Samples(rec *record.Recording, component string, in record.Window) ([]Sample, error) {
	rows, err := rec.StackSamples()
	if err != nil {
		return nil, err
	}
	stacks, err := rec.Stacks()
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string, len(stacks))
	for _, s := range stacks {
		names[s.ID] = s.Frames
	}
	type key struct {
		component, command string
		pid                int32
		stack              int64
	}
	counts := map[key]int{}
	for _, r := range rows {
		if !in.Contains(time.UnixMicro(r.TimeMicros)) || !selected(component, r.Component) {
			continue
		}
		counts[key{r.Component, r.Command, r.PID, r.Stack}]++
	}
	out := make([]Sample, 0, len(counts))
	for k, n := range counts {
		frames, ok := names[k.stack]
		if !ok { // the writer died between the two rows
			frames = "[unknown]"
		}
		out = append(out, Sample{k.component, k.command, k.pid, frames, n})
	}
	slices.SortFunc(out, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Command, b.Command),
			cmp.Compare(a.PID, b.PID), cmp.Compare(a.Frames, b.Frames))
	})
	return out, nil
}

func selected(want, component string) bool {
	return want == "" || want == component || (want == NoComponent && component == "")
}

// Folded writes samples as flame graph tools read them: component, thread and
// frames, joined with ";", a blank, and the count.
func Folded(w io.Writer, samples []Sample) error {
	lines := map[string]int{}
	for _, s := range samples {
		lines[owner(s)+";"+s.Frames] += s.Count
	}
	sorted := make([]string, 0, len(lines))
	for l := range lines {
		sorted = append(sorted, l)
	}
	slices.Sort(sorted)
	out := bufio.NewWriter(w)
	for _, l := range sorted {
		fmt.Fprintf(out, "%s %d\n", l, lines[l])
	}
	return out.Flush()
}

// owner is whose a sample is, for people: its component, else its thread.
func owner(s Sample) string {
	if s.Component != "" {
		return s.Component
	}
	return cmp.Or(strings.ReplaceAll(s.Command, ";", ","), "[unknown]")
}

// Profile makes samples a profile in pprof's form, with the labels component,
// command and pid. period is in seconds.
func Profile(samples []Sample, in record.Window, period float64) *profile.Profile {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: int64(period * 1e9),
		TimeNanos: in.Start.UnixNano(), DurationNanos: in.End.Sub(in.Start).Nanoseconds(), DefaultSampleType: "cpu",
	}
	user := &profile.Mapping{ID: 1, File: "[user]", HasFunctions: true}
	kernel := &profile.Mapping{ID: 2, File: "[kernel]", HasFunctions: true}
	p.Mapping = []*profile.Mapping{user, kernel}
	locations := map[string]*profile.Location{}
	location := func(name string) *profile.Location {
		l := locations[name]
		if l == nil {
			id := uint64(len(p.Location) + 1)
			f := &profile.Function{ID: id, Name: name, SystemName: name}
			// Addresses tell locations apart in viewers; these name nothing.
			l = &profile.Location{ID: id, Mapping: user, Address: id, Line: []profile.Line{{Function: f}}}
			if strings.HasSuffix(name, KernelMark) {
				l.Mapping = kernel
			}
			locations[name] = l
			p.Function = append(p.Function, f)
			p.Location = append(p.Location, l)
		}
		return l
	}
	for _, s := range samples {
		names := strings.Split(s.Frames, ";")
		x := &profile.Sample{
			Value:    []int64{int64(s.Count), int64(float64(s.Count) * period * 1e9)},
			Label:    map[string][]string{},
			NumLabel: map[string][]int64{"pid": {int64(s.PID)}},
		}
		for label, value := range map[string]string{"component": s.Component, "command": s.Command} {
			if value != "" {
				x.Label[label] = []string{value}
			}
		}
		for i := len(names) - 1; i >= 0; i-- {
			x.Location = append(x.Location, location(names[i]))
		}
		p.Sample = append(p.Sample, x)
	}
	return p
}

// A Process is what one process used.
type Process struct {
	Component  string  `json:"component,omitempty"`
	PID        int32   `json:"pid"`
	Command    string  `json:"command"` // of its busiest thread
	Samples    int     `json:"samples"`
	CPUSeconds float64 `json:"cpuSeconds"`
	Share      float64 `json:"share"`  // of all samples
	Kernel     float64 `json:"kernel"` // share of its samples that were in the kernel
}

// Processes sums samples by process, the busiest first.
func Processes(samples []Sample, period float64) []Process {
	type key struct {
		component string
		pid       int32
	}
	by := map[key]*Process{}
	threads := map[key]map[string]int{}
	total := 0
	for _, s := range samples {
		k := key{s.Component, s.PID}
		p := by[k]
		if p == nil {
			p = &Process{Component: s.Component, PID: s.PID}
			by[k], threads[k] = p, map[string]int{}
		}
		p.Samples += s.Count
		if strings.HasSuffix(s.Frames, KernelMark) {
			p.Kernel += float64(s.Count)
		}
		threads[k][s.Command] += s.Count
		total += s.Count
	}
	out := make([]Process, 0, len(by))
	for k, p := range by {
		p.CPUSeconds = float64(p.Samples) * period
		p.Share = float64(p.Samples) / float64(total)
		p.Kernel /= float64(p.Samples)
		most := 0
		for name, n := range threads[k] {
			if n > most || n == most && name < p.Command {
				p.Command, most = name, n
			}
		}
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Component, b.Component), cmp.Compare(a.PID, b.PID))
	})
	return out
}

// Merged is the profiles of a query, or its samples, as one profile. Where it
// is of several components each sample has the label component. Of heap and
// the like it is the state at the end.
func Merged(rec *record.Recording, q Query) (*profile.Profile, error) {
	if q.Source == FromStacks {
		samples, err := Samples(rec, q.Component, q.Window)
		if err != nil {
			return nil, err
		}
		return Profile(samples, q.Window, Period(rec)), nil
	}
	refs := Profiles(rec, q)
	if len(refs) == 0 {
		return nil, missing(rec, q)
	}
	var all []*profile.Profile
	for _, edges := range groups(refs, q) {
		if q.Kind != "" && q.Kind != CPU {
			edges = edges[len(edges)-1:]
		}
		for _, ref := range edges {
			p, err := rec.ReadProfile(ref)
			if err != nil {
				return nil, err
			}
			for _, s := range p.Sample {
				if s.Label == nil {
					s.Label = map[string][]string{}
				}
				s.Label["component"] = []string{ref.Component}
			}
			all = append(all, p)
		}
	}
	p, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merge %d profiles: %w", len(all), err)
	}
	return p, nil
}

package compare

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Schema is the version of the JSON form of Comparison.
const Schema = 1

// ErrNothing is returned for a side without recordings.
var ErrNothing = errors.New("nothing to compare")

const (
	level = 0.95 // of intervals
	alpha = 0.05 // of tests
)

// Comparison is a baseline against a candidate.
type Comparison struct {
	Schema    int  `json:"schema"`
	Baseline  Side `json:"baseline"`
	Candidate Side `json:"candidate"`
	// Interval is false with one run each: ratios are then observations.
	Interval bool   `json:"interval"`
	Note     string `json:"note,omitempty"` // why there is no interval
	// Changed are the settings that differ, as component.args.flag: old → new.
	Changed  []Change `json:"changed"`
	Rows     []Row    `json:"rows"`
	Warnings []string `json:"warnings"`
}

// Side is one side's runs, in the order given.
type Side struct {
	Runs []RunInfo `json:"runs"`
}

// RunInfo identifies a run.
type RunInfo struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Profile  string   `json:"profile,omitempty"`
	Version  string   `json:"version,omitempty"`
	Settings []string `json:"settings,omitempty"`
	Pods     int      `json:"pods"` // that ran
}

// Change is a flag or quota that differs between the sides.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old"` // empty: not set
	New  string `json:"new"`
}

// Group sorts rows into tables.
type Group string

// The groups, in order.
const (
	User    Group = "user"    // what a user feels
	Rate    Group = "rate"    // how fast the cluster works
	StageOf Group = "stage"   // where pods wait
	CPU     Group = "cpu"     // what the control plane costs
	Harness Group = "harness" // what we cost
)

// Verdict is what a row says.
type Verdict string

// The verdicts.
const (
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Differs Verdict = "differs"  // where neither direction is better
	Same    Verdict = "~"        // no difference that the runs can show
	Unsure  Verdict = "one run"  // no interval: one run each
	NoValue Verdict = "no value" // not measured on a side
)

// Row is one indicator.
type Row struct {
	ID        string   `json:"id"` // stable: startup.p99, stage.bind, cpu.etcd
	Group     Group    `json:"group"`
	Name      string   `json:"name"` // for people
	Unit      string   `json:"unit"`
	Lower     bool     `json:"lowerIsBetter"`
	Neutral   bool     `json:"neutral,omitempty"` // neither direction is better
	Baseline  Estimate `json:"baseline"`
	Candidate Estimate `json:"candidate"`
	// Ratio is candidate over baseline; null where either is missing or the
	// baseline is 0.
	Ratio   *float64         `json:"ratio"`
	Test    *stat.Comparison `json:"test"` // null with fewer than 2 runs on a side
	Verdict Verdict          `json:"verdict"`
}

// Estimate is an indicator over a side's runs.
type Estimate struct {
	Value    *float64       `json:"value"`    // the median over runs; null: not measured
	Interval *stat.Interval `json:"interval"` // of the median; null with fewer than 6 runs
	N        int            `json:"n"`        // runs
	Samples  int            `json:"samples"`  // pods, over all runs
	Values   []float64      `json:"values"`   // one a run
	Reason   string         `json:"reason,omitempty"`
}

// Recordings compares two sides. An error means that a recording could not be
// read.
func Recordings(baseline, candidate []*record.Recording) (Comparison, error) {
	return Sources(sources(baseline), sources(candidate))
}

func sources(rs []*record.Recording) []diagnose.Source {
	var s []diagnose.Source
	for _, r := range rs {
		s = append(s, r)
	}
	return s
}

// Sources is Recordings for anything that reads like a recording.
func Sources(baseline, candidate []diagnose.Source) (Comparison, error) {
	if len(baseline) == 0 || len(candidate) == 0 {
		return Comparison{}, fmt.Errorf("%w: %d baseline and %d candidate recordings", ErrNothing, len(baseline), len(candidate))
	}
	base, err := views(baseline)
	if err != nil {
		return Comparison{}, err
	}
	cand, err := views(candidate)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{
		Schema: Schema, Baseline: side(base), Candidate: side(cand),
		Interval: len(base) > 1 && len(cand) > 1,
		Changed:  changes(base[0], cand[0]),
		Rows:     []Row{}, Warnings: warnings(base, cand),
	}
	if !c.Interval {
		c.Note = "one run each: no interval; the ratios are what these runs showed, not what a change does"
	}
	for _, i := range indicators(slices.Concat(base, cand)) {
		if r, ok := i.row(base, cand); ok {
			c.Rows = append(c.Rows, r)
		}
	}
	return c, nil
}

func views(ss []diagnose.Source) ([]*diagnose.View, error) {
	var vs []*diagnose.View
	for _, s := range ss {
		v, err := diagnose.NewView(s)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", s.Meta().ID, err)
		}
		vs = append(vs, v)
	}
	return vs, nil
}

func side(vs []*diagnose.View) Side {
	var s Side
	for _, v := range vs {
		m := v.Meta
		s.Runs = append(s.Runs, RunInfo{ID: m.ID, Name: m.Name, Status: string(m.Status), Profile: m.Cluster.Profile, Version: m.Cluster.Version, Settings: m.Settings, Pods: v.Arrived()})
	}
	return s
}

// indicator reads one number from a run. ok is false where it was not
// measured; n is how many pods it stands on.
type indicator struct {
	id, name, unit string
	group          Group
	lower, neutral bool
	of             func(v *diagnose.View) (value float64, n int, ok bool)
	why            func(v *diagnose.View) string
}

func indicators(all []*diagnose.View) []indicator {
	latency := func(id, name string, of func(v *diagnose.View) (diagnose.LatencyOf, *float64)) indicator {
		return indicator{id: id, name: name, unit: "s", group: User, lower: true,
			of: func(v *diagnose.View) (float64, int, bool) {
				l, x := of(v)
				if x == nil {
					return 0, l.N, false
				}
				return *x, l.N, true
			},
			why: func(v *diagnose.View) string {
				l, _ := of(v)
				switch {
				case l.N == 0:
					return "no pod was observed"
				case l.Incomplete > 0:
					return fmt.Sprintf("%d of %d pods never ran", l.Incomplete, l.N)
				}
				return fmt.Sprintf("%d pods are too few", l.N)
			}}
	}
	is := []indicator{
		latency("intent.last", "intent latency, last pod", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
			return v.Latencies.Intent, v.Latencies.Intent.Max
		}),
		latency("intent.p50", "intent latency, median pod", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
			return v.Latencies.Intent, v.Latencies.Intent.P50
		}),
		latency("startup.p50", "pod startup p50", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
			return v.Latencies.PodStartup, v.Latencies.PodStartup.P50
		}),
		latency("startup.p99", "pod startup p99", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
			return v.Latencies.PodStartup, v.Latencies.PodStartup.P99
		}),
		{id: "throughput", name: "scheduling throughput, time-weighted mean", unit: "pods/s", group: Rate,
			of: func(v *diagnose.View) (float64, int, bool) {
				if v.Throughput == nil {
					return 0, v.Counts.Bound, false
				}
				return v.Throughput.Mean, v.Throughput.N, true
			},
			why: func(*diagnose.View) string { return "the load lasted less than 2 s" }},
	}
	names := slices.Clone(diagnose.StageNames)
	if slices.ContainsFunc(all, func(v *diagnose.View) bool { return !v.Known(diagnose.Bind) && v.Known(diagnose.Scheduling) }) {
		// Known together on every side, apart only on some.
		names = slices.Insert(names, slices.Index(names, diagnose.Start), diagnose.Scheduling)
	}
	for _, name := range names {
		is = append(is, indicator{id: "stage." + name, name: "wait in " + name, unit: "s/pod", group: StageOf, lower: true,
			of: func(v *diagnose.View) (float64, int, bool) {
				s := v.Stage(name)
				if s.WaitSeconds == nil || v.Counts.Seen == 0 {
					return 0, v.Counts.Seen, false
				}
				return *s.WaitSeconds / float64(v.Counts.Seen), v.Counts.Seen, true
			},
			why: func(v *diagnose.View) string { return v.Stage(name).Reason }})
	}
	notRecorded := func(*diagnose.View) string { return "processes were not recorded" }
	components := map[string]bool{}
	for _, v := range all {
		for _, p := range v.Harness.ByProcess {
			components[p.Component] = p.Harness
		}
	}
	is = append(is, indicator{id: "cpu.total", name: "control plane, all components", unit: "ms/pod", group: CPU, lower: true,
		of: func(v *diagnose.View) (float64, int, bool) {
			sum, ok := 0.0, false
			for _, p := range v.Harness.ByProcess {
				if !p.Harness {
					sum += p.MillisecondsPerPod
					ok = true
				}
			}
			return sum, v.Arrived(), ok
		}, why: notRecorded})
	for _, c := range sortedKeys(components) {
		group := CPU
		if components[c] {
			group = Harness
		}
		is = append(is, indicator{id: "cpu." + c, name: c, unit: "ms/pod", group: group, lower: true,
			of: func(v *diagnose.View) (float64, int, bool) {
				for _, p := range v.Harness.ByProcess {
					if p.Component == c {
						return p.MillisecondsPerPod, v.Arrived(), true
					}
				}
				return 0, v.Arrived(), false
			}, why: notRecorded})
	}
	optional := func(id, name, unit string, of func(v *diagnose.View) *float64) indicator {
		return indicator{id: id, name: name, unit: unit, group: Harness, lower: true, why: notRecorded,
			of: func(v *diagnose.View) (float64, int, bool) {
				if x := of(v); x != nil {
					return *x, v.Arrived(), true
				}
				return 0, v.Arrived(), false
			}}
	}
	is = append(is,
		optional("harness.cpu", "harness, all processes", "ms/pod", func(v *diagnose.View) *float64 { return v.Harness.MillisecondsPerPod }),
		optional("harness.share", "harness share of CPU", "1", func(v *diagnose.View) *float64 { return v.Harness.CPUShare }),
	)
	order := []Group{User, Rate, StageOf, CPU, Harness}
	slices.SortStableFunc(is, func(a, b indicator) int {
		return slices.Index(order, a.group) - slices.Index(order, b.group)
	})
	return is
}

// row compares one indicator. ok is false where neither side has it.
func (i indicator) row(base, cand []*diagnose.View) (Row, bool) {
	r := Row{ID: i.id, Group: i.group, Name: i.name, Unit: i.unit, Lower: i.lower, Neutral: i.neutral,
		Baseline: i.estimate(base), Candidate: i.estimate(cand)}
	if r.Baseline.Value == nil && r.Candidate.Value == nil {
		return r, false
	}
	if r.Baseline.Value == nil || r.Candidate.Value == nil {
		r.Verdict = NoValue
		return r, true
	}
	b, c := *r.Baseline.Value, *r.Candidate.Value
	if b != 0 {
		ratio := c / b
		r.Ratio = &ratio
	}
	t, ok := stat.Compare(r.Baseline.Values, r.Candidate.Values, alpha)
	switch {
	case !ok:
		r.Verdict = Unsure
	case !t.Differ || b == c:
		r.Test, r.Verdict = &t, Same
	case i.neutral:
		r.Test, r.Verdict = &t, Differs
	case (c < b) == i.lower:
		r.Test, r.Verdict = &t, Better
	default:
		r.Test, r.Verdict = &t, Worse
	}
	return r, true
}

func (i indicator) estimate(vs []*diagnose.View) Estimate {
	e := Estimate{Values: []float64{}}
	for _, v := range vs {
		x, n, ok := i.of(v)
		if !ok {
			if e.Reason == "" {
				e.Reason = i.why(v)
			}
			continue
		}
		e.Values = append(e.Values, x)
		e.N++
		e.Samples += n
	}
	if e.N == 0 {
		return e
	}
	if e.N < len(vs) {
		e.Reason = fmt.Sprintf("only %d of %d runs: %s", e.N, len(vs), e.Reason)
	}
	m := stat.Median(e.Values)
	e.Value = &m
	if ci, ok := stat.MedianCI(e.Values, level); ok {
		e.Interval = &ci
	}
	return e
}

// changes are the flags and quotas that differ between two runs.
func changes(a, b *diagnose.View) []Change {
	old, now := settings(a.Meta), settings(b.Meta)
	keys := map[string]bool{}
	for k := range old {
		keys[k] = true
	}
	for k := range now {
		keys[k] = true
	}
	cs := []Change{}
	for _, k := range sortedKeys(keys) {
		if old[k] != now[k] {
			cs = append(cs, Change{k, old[k], now[k]})
		}
	}
	return cs
}

// perRun are flags that differ between any two runs, being ports, folders and
// credentials.
var perRun = []string{"port", "dir", "file", "kubeconfig", "servers", "listen", "advertise", "initial-cluster", "address", "urls", "config", "log", "path", "token", "name"}

func settings(m record.Meta) map[string]string {
	s := map[string]string{}
	if m.Cluster.Version != "" {
		s["cluster.version"] = m.Cluster.Version
	}
	if m.Cluster.Profile != "" {
		s["profile"] = m.Cluster.Profile
	}
	for _, c := range m.Cluster.Components {
		if c.CPU > 0 {
			s[c.Name+".cpu"] = fmt.Sprintf("%g", c.CPU)
		}
		if c.Binary != "" {
			s[c.Name+".binary"] = c.Binary
		}
		for _, a := range c.Args {
			name, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
			if !strings.HasPrefix(a, "-") || slices.ContainsFunc(perRun, func(p string) bool { return strings.Contains(name, p) }) {
				continue
			}
			s[c.Name+".args."+name] = value
		}
	}
	return s
}

// warnings say what makes the sides less comparable.
func warnings(base, cand []*diagnose.View) []string {
	ws := []string{}
	add := func(w string) {
		if !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	first := base[0].Meta
	for _, v := range slices.Concat(base, cand) {
		m := v.Meta
		if m.Status != record.StatusComplete || len(m.Invalid) > 0 {
			add(fmt.Sprintf("%s is not valid: it is %s", m.ID, strings.Join(append([]string{string(m.Status)}, m.Invalid...), "; ")))
		}
		if m.Name != first.Name {
			add(fmt.Sprintf("different experiments: %s and %s", first.Name, m.Name))
		}
		if a, b := machine(first.Machine), machine(m.Machine); a != b {
			add(fmt.Sprintf("different machines: %s and %s", a, b))
		}
		if a, b := first.Workload.ExpectedPods, m.Workload.ExpectedPods; a != b {
			add(fmt.Sprintf("different loads: %d and %d pods", a, b))
		}
		if a, b := first.Nodes.Count, m.Nodes.Count; a != b {
			add(fmt.Sprintf("different clusters: %d and %d nodes", a, b))
		}
		if v.Arrived() < v.Counts.Expected {
			add(fmt.Sprintf("%s: only %d of %d pods ran", m.ID, v.Arrived(), v.Counts.Expected))
		}
	}
	if n, m := len(base), len(cand); n > 1 && m > 1 {
		if c, _ := stat.Compare(make([]float64, n), make([]float64, m), alpha); len(c.Warnings) > 0 {
			add(c.Warnings[0] + ": every row will be ~")
		}
	}
	return ws
}

func machine(m record.Machine) string {
	return strings.TrimSpace(fmt.Sprintf("%d CPUs %s %s", m.CPUs, m.Model, m.Kernel))
}

func sortedKeys[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

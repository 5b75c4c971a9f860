package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Schema is the version of the JSON form of Comparison.
const Schema = 2

// ErrNothing is returned for a side without recordings.
var ErrNothing = errors.New("nothing to compare")

// level is that of the intervals of medians.
const level = 0.95

// rowsShare of a report's alpha is for its indicators, the rest for functions.
// Shares of CPU vary far less from run to run than what a user feels, so that
// they show changes that no indicator does; they must not cost indicators much.
const rowsShare = 0.6

// Options say how sides are compared. The zero value works.
type Options struct {
	// Alpha is the chance of any false difference in the whole report; 0: 0.05.
	// Who looks again after each pair of runs gives the level of the look (see
	// stat.Looks).
	Alpha float64
	// Noise are runs without a difference between them. What they vary by is no
	// difference.
	Noise []diagnose.Source
	// Wanted is the relative difference of which it is said how many runs would
	// find it; 0: 0.05.
	Wanted float64
	Seed   uint64 // of permutations, where they are drawn
	// Details compares functions, requests, logs and the checklist of resources,
	// too. They are of recordings only.
	Details bool
	// Detectors are asked whether a run is valid: that the load generator was
	// the limit is what one finds.
	Detectors []diagnose.Detector
	Phase     string // of the functions; empty: the whole run
}

func (o Options) filled() Options {
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	if o.Wanted == 0 {
		o.Wanted = 0.05
	}
	return o
}

// Comparison is a baseline against a candidate.
type Comparison struct {
	Schema    int  `json:"schema"`
	Baseline  Side `json:"baseline"`
	Candidate Side `json:"candidate"`
	// Interval is false with one run each: ratios are then observations.
	Interval bool   `json:"interval"`
	Note     string `json:"note,omitempty"` // why there is no interval
	// Changed are the settings that differ, as component.args.flag: old → new.
	Changed []Change `json:"changed"`
	// Alpha is the chance of any false difference in the report where there is
	// none at all. RowsAlpha of it is for the rows, all together; the rest is for
	// functions.
	Alpha     float64 `json:"alpha"`
	RowsAlpha float64 `json:"rowsAlpha"`
	// Permutations is how many ways of dividing the runs the tests rest on;
	// Exhaustive: all there are.
	Permutations int  `json:"permutations,omitempty"`
	Exhaustive   bool `json:"exhaustive,omitempty"`
	// NoiseRuns is how many runs without a difference were given.
	NoiseRuns int `json:"noiseRuns,omitempty"`
	// Turns is how the runs were made, where it was in turns for this comparison.
	Turns *Turns `json:"turns,omitempty"`
	// Wanted is the relative difference that Row.Needed speaks of.
	Wanted   float64  `json:"wanted"`
	Rows     []Row    `json:"rows"`
	Details  []Detail `json:"details,omitempty"`
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
	// Started orders the runs of both sides.
	Started time.Time `json:"started,omitzero"`
	Machine string    `json:"machine,omitempty"`
	Invalid []string  `json:"invalid,omitempty"`
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
	// Negligible rows are less than a hundredth of their table, and not tested.
	Negligible Verdict = "negligible"
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
	// Ratio is candidate over baseline: of the geometric means of several runs,
	// or of one run each. Null where a side is missing or has a value that is
	// not above 0.
	Ratio *float64 `json:"ratio"`
	// RatioInterval holds together with the intervals of all other rows, with a
	// chance of 1 − RowsAlpha; null where the runs carry none.
	RatioInterval *stat.Interval `json:"ratioInterval,omitempty"`
	// Difference, in Unit, is of the means, where there is no ratio of several
	// runs.
	Difference         *float64       `json:"difference,omitempty"`
	DifferenceInterval *stat.Interval `json:"differenceInterval,omitempty"`
	Test               *Test          `json:"test"` // null with fewer than 2 runs on a side
	Verdict            Verdict        `json:"verdict"`
	// Detectable is the least effect that runs like these show as a difference in
	// 19 of 20 series: relative, or in Unit where the row has no ratio.
	Detectable *float64 `json:"detectable,omitempty"`
	// Noise is up to where, in 95 of 100 series, runs without a difference come:
	// relative, or in Unit.
	Noise *float64 `json:"noise,omitempty"`
	// WithinNoise says that the test found what Noise explains.
	WithinNoise bool `json:"withinNoise,omitempty"`
	// Needed is how many runs a side find the wanted relative difference in 19 of
	// 20 series; null where no number does that anybody would run.
	Needed *int `json:"needed,omitempty"`
}

// Test is the test of one row.
type Test struct {
	P        float64 `json:"p"`        // of this row alone
	Adjusted float64 `json:"adjusted"` // over all rows of the report
	N1       int     `json:"n1"`
	N2       int     `json:"n2"`
	// Effect is the difference in standard deviations of a run (Hedges' g).
	Effect float64 `json:"effect"`
}

// Estimate is an indicator over a side's runs.
type Estimate struct {
	Value    *float64       `json:"value"`    // the median over runs; null: not measured
	Interval *stat.Interval `json:"interval"` // of the median; null with fewer than 6 runs
	N        int            `json:"n"`        // runs
	Samples  int            `json:"samples"`  // pods, over all runs
	Values   []float64      `json:"values"`   // one a run
	Reason   string         `json:"reason,omitempty"`

	byRun []float64 // NaN where a run has none
}

// Recordings compares two sides. An error means that a recording could not be
// read.
func Recordings(baseline, candidate []*record.Recording, o Options) (Comparison, error) {
	c, err := Sources(sources(baseline), sources(candidate), o)
	if err != nil || !o.Details {
		return c, err
	}
	c.Details, err = details(baseline, candidate, c, o.filled())
	return c, err
}

func sources(rs []*record.Recording) []diagnose.Source {
	var s []diagnose.Source
	for _, r := range rs {
		s = append(s, r)
	}
	return s
}

// Sources is Recordings for anything that reads like a recording.
func Sources(baseline, candidate []diagnose.Source, o Options) (Comparison, error) {
	o = o.filled()
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
	noise, err := views(o.Noise)
	if err != nil {
		return Comparison{}, err
	}
	invalid, err := invalidRuns(slices.Concat(base, cand, noise), slices.Concat(baseline, candidate, o.Noise), o.Detectors)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{
		Schema: Schema, Baseline: side(base, invalid), Candidate: side(cand, invalid),
		Interval: len(base) > 1 && len(cand) > 1,
		Alpha:    o.Alpha, RowsAlpha: o.Alpha * rowsShare, Wanted: o.Wanted, NoiseRuns: len(noise),
		Changed: changes(base[0], cand[0]),
		Rows:    []Row{}, Warnings: warnings(base, cand, noise, invalid),
	}
	if !c.Interval {
		c.Note = "one run each: no interval; the ratios are what these runs showed, not what a change does"
		if len(base)+len(cand) > 2 {
			c.Note = "one run on a side: no interval; the ratios are what these runs showed, not what a change does"
		}
	}
	var floor []Estimate
	for _, i := range indicators(slices.Concat(base, cand)) {
		r := Row{ID: i.id, Group: i.group, Name: i.name, Unit: i.unit, Lower: i.lower, Neutral: i.neutral, Baseline: i.estimate(base), Candidate: i.estimate(cand)}
		if r.Baseline.Value == nil && r.Candidate.Value == nil {
			continue
		}
		c.Rows = append(c.Rows, r)
		floor = append(floor, i.estimate(noise))
	}
	c.judge(floor, o)
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

// invalidRuns says of each run why its numbers must not be used, if so.
func invalidRuns(vs []*diagnose.View, ss []diagnose.Source, detectors []diagnose.Detector) (map[*diagnose.View][]string, error) {
	why := map[*diagnose.View][]string{}
	for i, v := range vs {
		if len(detectors) == 0 {
			why[v] = v.Invalid()
			continue
		}
		d, err := diagnose.Run(ss[i], detectors)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", v.Meta.ID, err)
		}
		why[v] = d.InvalidReasons
	}
	return why, nil
}

func side(vs []*diagnose.View, invalid map[*diagnose.View][]string) Side {
	var s Side
	for _, v := range vs {
		m := v.Meta
		s.Runs = append(s.Runs, RunInfo{ID: m.ID, Name: m.Name, Status: string(m.Status), Profile: m.Cluster.Profile, Version: m.Cluster.Version, Settings: m.Settings, Pods: v.Arrived(), Started: m.Started, Machine: fingerprint(m.Machine), Invalid: invalid[v]})
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
		latency("intent.last", "intent latency, last", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
			return v.Latencies.Intent, v.Latencies.Intent.Max
		}),
		latency("intent.p50", "intent latency, p50", func(v *diagnose.View) (diagnose.LatencyOf, *float64) {
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
	notRecorded := func(v *diagnose.View) string {
		if len(v.Harness.ByProcess) > 0 && v.Arrived() == 0 {
			return "no pod came"
		}
		return "processes were not recorded"
	}
	components := map[string]bool{}
	for _, v := range all {
		for _, p := range v.Harness.ByProcess {
			components[p.Component] = p.Harness
		}
	}
	// CPU is that of a pod, or a part of the time where no run had any.
	const perPod = "ms/pod"
	unit, cpu := perPod, func(v *diagnose.View, s float64) float64 { return 1000 * s / float64(max(1, v.Arrived())) }
	if !slices.ContainsFunc(all, func(v *diagnose.View) bool { return v.Arrived() > 0 }) {
		unit, cpu = "% of a CPU", func(v *diagnose.View, s float64) float64 { return 100 * s / v.Span() }
	}
	counts := func(v *diagnose.View) bool { return unit != perPod || v.Arrived() > 0 }
	is = append(is, indicator{id: "cpu.total", name: "control plane, all components", unit: unit, group: CPU, lower: true,
		of: func(v *diagnose.View) (float64, int, bool) {
			sum, ok := 0.0, false
			for _, p := range v.Harness.ByProcess {
				if !p.Harness {
					sum += p.CPUSeconds
					ok = true
				}
			}
			return cpu(v, sum), v.Arrived(), ok && counts(v)
		}, why: notRecorded})
	for _, c := range sortedKeys(components) {
		group := CPU
		if components[c] {
			group = Harness
		}
		is = append(is, indicator{id: "cpu." + c, name: c, unit: unit, group: group, lower: true,
			of: func(v *diagnose.View) (float64, int, bool) {
				for _, p := range v.Harness.ByProcess {
					if p.Component == c {
						return cpu(v, p.CPUSeconds), v.Arrived(), counts(v)
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
		optional("harness.cpu", "harness, all processes", unit, func(v *diagnose.View) *float64 {
			if v.Harness.CPUSeconds == nil || unit == perPod && v.Arrived() == 0 {
				return nil
			}
			x := cpu(v, *v.Harness.CPUSeconds)
			return &x
		}),
		optional("harness.share", "harness share of CPU", "1", func(v *diagnose.View) *float64 { return v.Harness.CPUShare }),
	)
	order := []Group{User, Rate, StageOf, CPU, Harness}
	slices.SortStableFunc(is, func(a, b indicator) int {
		return slices.Index(order, a.group) - slices.Index(order, b.group)
	})
	return is
}

func (i indicator) estimate(vs []*diagnose.View) Estimate {
	e := Estimate{Values: []float64{}}
	for _, v := range vs {
		x, n, ok := i.of(v)
		if !ok {
			e.byRun = append(e.byRun, math.NaN())
			if e.Reason == "" {
				e.Reason = i.why(v)
			}
			continue
		}
		e.Values, e.byRun = append(e.Values, x), append(e.byRun, x)
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
	// Values of the environment, whole paths of binaries and fields of the
	// experiment are nowhere else.
	for _, set := range m.Settings {
		if name, value, ok := strings.Cut(set, "="); ok {
			s[strings.TrimPrefix(name, "cluster.components.")] = value
		}
	}
	return s
}

// warnings say what makes the sides less comparable.
func warnings(base, cand, noise []*diagnose.View, invalid map[*diagnose.View][]string) []string {
	ws := []string{}
	add := func(w string) {
		if !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	first := base[0].Meta
	for _, v := range slices.Concat(base, cand, noise) {
		m := v.Meta
		if why := invalid[v]; len(why) > 0 {
			add(fmt.Sprintf("%s is not valid: %s", m.ID, strings.Join(why, "; ")))
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
	if n, m := len(base), len(cand); n+m >= 4 {
		first, second := "baseline", "candidate"
		lastBase, firstCand := latest(base), earliest(cand)
		lastCand, firstBase := latest(cand), earliest(base)
		switch {
		case lastBase.Before(firstCand):
		case lastCand.Before(firstBase):
			first, second = second, first
		default:
			return ws
		}
		add(fmt.Sprintf("the sides were not interleaved: every %s run came before every %s run, so that a change of the machine in between looks like a difference", first, second))
	}
	return ws
}

func latest(vs []*diagnose.View) time.Time {
	return slices.MaxFunc(vs, func(a, b *diagnose.View) int { return a.Meta.Started.Compare(b.Meta.Started) }).Meta.Started
}

func earliest(vs []*diagnose.View) time.Time {
	return slices.MinFunc(vs, func(a, b *diagnose.View) int { return a.Meta.Started.Compare(b.Meta.Started) }).Meta.Started
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

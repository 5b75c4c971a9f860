package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// CapacityFile is the name of the file that says what a capacity was found to be.
const CapacityFile = "capacity.json"

// CapacitySchema is the version of the JSON form of Capacity.
const CapacitySchema = 1

// Capacity is the highest load that a cluster carries within objectives.
type Capacity struct {
	Schema     int                `json:"schema"`
	Experiment string             `json:"experiment"`
	Machine    record.Machine     `json:"machine"`
	Objectives []record.Objective `json:"objectives"` // as asked for
	// Find is what was turned up, Unit its unit. Saturated says that it was
	// nothing: the experiment asks for everything at once, and what came out is
	// what the cluster carries.
	Find      string `json:"find"`
	Unit      string `json:"unit"`
	Saturated bool   `json:"saturated"`
	// At are the capacities, for each number of cores that the control plane had;
	// one, with Cores 0, where that was not limited.
	At []CapacityAt `json:"at"`
	// Ladder is the capacity at other numbers of cores, worked out.
	Ladder   *Ladder  `json:"ladder"`
	Warnings []string `json:"warnings"`
}

// CapacityAt is the capacity of one control plane.
type CapacityAt struct {
	Cores float64 `json:"cores"` // 0: as many as there are
	// Value is the load at which half of the runs keep the objectives; of a
	// saturated one the mean rate. Interval is of 90 %, of a mean of 95 %.
	Value    float64        `json:"value"`
	Interval *stat.Interval `json:"interval"`
	N        int            `json:"n"` // runs that count
	// Beyond is 1 where even the highest load that was allowed is carried, -1
	// where even the lowest is not.
	Beyond int `json:"beyond"`
	// Sure says that the interval is as short as was asked for.
	Sure   bool    `json:"sure"`
	Probes []Probe `json:"probes"`
	// Binds is what holds the cluster back at the edge, in words of its diagnoses.
	Binds string `json:"binds"`
	// Bound says whether that is the control plane's CPU.
	BoundByCPU bool `json:"boundByCPU"`
	// Demands are of the runs at the edge.
	Demands []Demand `json:"demands"`
}

// Probe is one run at one load.
type Probe struct {
	Recording string  `json:"recording"` // folder, relative to the capacity's
	Load      float64 `json:"load"`
	Passed    bool    `json:"passed"`
	Valid     bool    `json:"valid"`
	// Why says which objective was missed, or why the run does not count.
	Why string `json:"why,omitempty"`

	Rate float64 `json:"rate"` // pods/s that came
	// Latencies are what the objectives say, by their names.
	Latencies map[string]float64 `json:"latencies,omitempty"`
	Binds     string             `json:"binds,omitempty"`
	// CPUPerPod is the control plane's, in CPU-seconds, and Idle the cores it uses
	// at rest; -1 unknown.
	CPUPerPod float64 `json:"cpuPerPod"`
	Idle      float64 `json:"idle"`
	// CoresUsed by the control plane under load; -1 unknown.
	CoresUsed float64           `json:"coresUsed"`
	Resources []ResourceOfProbe `json:"resources,omitempty"`
}

// ResourceOfProbe is what a pod takes of a resource in one run.
type ResourceOfProbe struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`
	Demand float64 `json:"demand"`
	Bound  float64 `json:"bound"` // pods/s; 0 unknown
}

// Demand is what a pod takes of a resource, over the runs at the edge.
type Demand struct {
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`
	Unit  string  `json:"unit"`
	Each  Average `json:"each"`  // a pod
	Bound Average `json:"bound"` // pods/s that the resource carries at most
}

// ProbeOf reads a run's diagnosis as a probe. A run counts as passed where it
// kept every objective.
func ProbeOf(d *diagnose.Diagnosis, load float64) Probe {
	p := Probe{Load: load, Valid: d.Valid, CPUPerPod: -1, Idle: -1, CoresUsed: -1, Latencies: map[string]float64{}}
	if d.Throughput != nil {
		p.Rate = d.Throughput.Mean
	}
	if !d.Valid {
		p.Why = d.Err().Error()
		return p
	}
	p.Passed = true
	for _, o := range d.Objectives {
		p.Latencies[o.Name] = o.Value
		if !o.Assessed || !o.Met {
			p.Passed = false
			p.Why = fmt.Sprintf("%s %.3g %s, limit %.3g", o.Name, o.Value, o.Unit, o.Limit)
			if !o.Assessed || o.Reason != "" {
				p.Why = o.Name + ": " + o.Reason
			}
		}
	}
	for _, f := range d.Findings {
		if f.Class == diagnose.Bottleneck || f.Class == diagnose.Capacity {
			p.Binds = f.Summary
			break
		}
	}
	used := 0.0
	known := false
	for _, c := range d.Harness.ByProcess {
		if !c.Harness {
			used, known = used+c.CPUSeconds, true
		}
	}
	if pods := d.Pods.Running; known && pods > 0 && d.Window.Seconds > 0 {
		p.CPUPerPod = used / float64(pods)
		p.CoresUsed = used / d.Window.Seconds
	}
	for _, r := range d.Resources {
		p.Resources = append(p.Resources, ResourceOfProbe{r.Name, r.Kind, r.Demand, r.Bound})
	}
	return p
}

// nearEdge is how far from the capacity a run may be and still tell what
// happens there.
const nearEdge = 0.3

// Settle works out what the probes at the edge say: what binds, and what a pod
// takes of each resource.
func (c *CapacityAt) Settle(saturated bool) {
	var edge []Probe
	for _, p := range c.Probes {
		if p.Valid && (saturated || math.Abs(p.Load/c.Value-1) <= nearEdge) {
			edge = append(edge, p)
		}
	}
	said := map[string]int{}
	for _, p := range edge {
		if p.Binds != "" && (saturated || !p.Passed) {
			said[p.Binds]++
		}
	}
	for _, p := range edge { // the first of those that were said most
		if said[p.Binds] > said[c.Binds] {
			c.Binds = p.Binds
		}
	}
	var used []float64
	for _, p := range edge {
		if p.CoresUsed >= 0 {
			used = append(used, p.CoresUsed)
		}
	}
	c.BoundByCPU = c.Cores > 0 && len(used) > 0 && stat.Mean(used) >= full*c.Cores
	by := map[string][2][]float64{}
	kinds := map[string]string{}
	var names []string
	for _, p := range edge {
		for _, r := range p.Resources {
			if kinds[r.Name] == "" {
				kinds[r.Name] = cmp.Or(r.Kind, "?")
				names = append(names, r.Name)
			}
			v := by[r.Name]
			v[0] = append(v[0], r.Demand)
			if r.Bound > 0 {
				v[1] = append(v[1], r.Bound)
			}
			by[r.Name] = v
		}
	}
	c.Demands = nil
	for _, name := range names {
		unit := "s/pod"
		if kinds[name] == "client-limit" {
			unit = "requests/pod"
		}
		c.Demands = append(c.Demands, Demand{Name: name, Kind: kinds[name], Unit: unit, Each: AverageOfAmounts(by[name][0]), Bound: AverageOfAmounts(by[name][1])})
	}
	slices.SortStableFunc(c.Demands, func(a, b Demand) int {
		return cmp.Compare(boundOr(a.Bound), boundOr(b.Bound))
	})
}

// full is the share of its quota from which a control plane counts as held by it:
// a quota stops in steps of 0.1 s, so that none is used to the last.
const full = 0.85

func boundOr(a Average) float64 {
	if a.N == 0 {
		return math.Inf(1)
	}
	return a.Value
}

// Ladder is what the utilisation law makes of the runs: throughput is at most
// cores less those that the cluster uses at rest, over the CPU of a pod. Where
// several numbers of cores were measured, the line through them says both. It is
// computed, not measured, and holds until something else binds.
type Ladder struct {
	// PerCore is pods/s that each core adds, Idle the cores at which it would be 0.
	PerCore float64 `json:"perCore"`
	Idle    float64 `json:"idle"`
	N       int     `json:"n"` // runs
	// From says what it was worked out from.
	From  string `json:"from"`
	Rungs []Rung `json:"rungs"`
	// Held are numbers of cores that were measured and kept out of the line.
	Held []HeldOut `json:"held"`
	// Next is what binds before CPU does, and from which rate on; empty where
	// nothing is known to.
	Next     string  `json:"next"`
	NextRate float64 `json:"nextRate"`
}

// Rung is the capacity at a number of cores.
type Rung struct {
	Cores    float64        `json:"cores"`
	Rate     float64        `json:"rate"`
	Interval *stat.Interval `json:"interval"` // of another run there, 95 %
	Computed bool           `json:"computed"` // always: a rung is no measurement
	// Capped says that Next binds before the CPU does.
	Capped bool `json:"capped"`
}

// HeldOut is a rung that was measured too.
type HeldOut struct {
	Rung
	Measured Average `json:"measured"`
	// Error is the prediction over what was measured, less 1.
	Error float64 `json:"error"`
}

// CorePoint is the rate of one run at a number of cores.
type CorePoint struct{ Cores, Rate float64 }

// LadderOf works out a ladder from runs at several numbers of cores, by the
// least squares of the relative error: what is twice as fast may vary by twice as
// much. ok is false below three runs, or at one number of cores only.
func LadderOf(points []CorePoint) (l Ladder, predict func(cores float64) Rung, ok bool) {
	n := float64(len(points))
	var sw, sx, sy, sxx, sxy float64
	for _, p := range points {
		if p.Rate <= 0 {
			return l, nil, false
		}
		w := 1 / (p.Rate * p.Rate)
		sw += w
		sx += w * p.Cores
		sy += w * p.Rate
		sxx += w * p.Cores * p.Cores
		sxy += w * p.Cores * p.Rate
	}
	det := sw*sxx - sx*sx
	if n < 3 || det <= 1e-9*sw*sxx {
		return l, nil, false
	}
	slope := (sw*sxy - sx*sy) / det
	at0 := (sy - slope*sx) / sw
	if slope <= 0 {
		return l, nil, false
	}
	var rss float64
	for _, p := range points {
		r := (p.Rate - at0 - slope*p.Cores) / p.Rate
		rss += r * r
	}
	sigma := math.Sqrt(rss / (n - 2))
	t := distuv.StudentsT{Sigma: 1, Nu: n - 2}.Quantile(0.975)
	l = Ladder{PerCore: slope, Idle: -at0 / slope, N: len(points)}
	return l, func(cores float64) Rung {
		rate := at0 + slope*cores
		d := cores - sx/sw
		// Of the line, and of one more run on it.
		half := t * sigma * math.Sqrt(1/sw+d*d*sw/det+rate*rate)
		return Rung{Cores: cores, Rate: rate, Interval: &stat.Interval{Lo: max(0, rate-half), Hi: rate + half, Level: 0.95}, Computed: true}
	}, true
}

// rungs are the numbers of cores beyond this machine that people ask for.
var rungs = []float64{2, 4, 8, 16}

// Climb fills in the ladder. hold is the number of cores whose runs are kept out
// of it and predicted; 0 is none.
func (c *Capacity) Climb(hold float64) {
	var points []CorePoint
	next, nextRate := "", math.Inf(1)
	left := 0
	for _, at := range c.At {
		for _, d := range at.Demands {
			if d.Kind != "cpu" && d.Kind != "workers" && d.Bound.N > 0 && d.Bound.Value < nextRate {
				next, nextRate = d.Name, d.Bound.Value
			}
		}
		if at.Cores == 0 || at.Cores == hold {
			continue
		}
		if !at.BoundByCPU {
			left++
			continue
		}
		if !c.Saturated {
			points = append(points, CorePoint{at.Cores, at.Value})
			continue
		}
		for _, p := range at.Probes {
			if p.Valid {
				points = append(points, CorePoint{at.Cores, p.Rate})
			}
		}
	}
	l, predict, ok := LadderOf(points)
	if ok {
		l.From = "the line through the measured numbers of cores"
	} else if l, predict, ok = c.fromDemand(); !ok {
		return
	}
	if left > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("at %d of the numbers of cores the control plane did not use what it had: something else binds there, and the ladder leaves them out", left))
	}
	if !math.IsInf(nextRate, 1) {
		l.Next, l.NextRate = next, nextRate
	}
	cap := func(r Rung) Rung {
		if r.Rate > nextRate {
			r.Rate, r.Capped = nextRate, true
			r.Interval = nil
		}
		return r
	}
	for _, at := range c.At {
		if at.Cores == hold && hold > 0 {
			h := HeldOut{Rung: predict(hold), Measured: Average{Value: at.Value, Interval: at.Interval, N: at.N}}
			h.Error = h.Rate/at.Value - 1
			l.Held = append(l.Held, h)
		}
	}
	for _, cores := range rungs {
		l.Rungs = append(l.Rungs, cap(predict(cores)))
	}
	c.Ladder = &l
}

// fromDemand is the ladder of the CPU that a pod takes in the runs at the edge.
func (c *Capacity) fromDemand() (l Ladder, predict func(float64) Rung, ok bool) {
	var each []float64
	for _, at := range c.At {
		for _, p := range at.Probes {
			if p.Valid && p.CPUPerPod > 0 && (c.Saturated || math.Abs(p.Load/at.Value-1) <= nearEdge) {
				each = append(each, p.CPUPerPod)
			}
		}
	}
	e := AverageOfAmounts(each)
	if e.N == 0 {
		return l, nil, false
	}
	l = Ladder{PerCore: 1 / e.Value, N: e.N, From: "the CPU that the control plane takes for a pod at the edge"}
	return l, func(cores float64) Rung {
		r := Rung{Cores: cores, Rate: cores / e.Value, Computed: true}
		if e.Interval != nil && e.Interval.Lo > 0 {
			r.Interval = &stat.Interval{Lo: cores / e.Interval.Hi, Hi: cores / e.Interval.Lo, Level: e.Interval.Level}
		}
		return r
	}, true
}

// Write keeps the capacity in its folder.
func (c *Capacity) Write(dir string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write capacity: %w", err)
	}
	name := filepath.Join(dir, CapacityFile)
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write capacity: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("write capacity: %w", err)
	}
	return nil
}

// ReadCapacity reads what is in a folder that capacity wrote.
func ReadCapacity(dir string) (*Capacity, error) {
	data, err := os.ReadFile(filepath.Join(dir, CapacityFile))
	if err != nil {
		return nil, fmt.Errorf("read capacity: %w", err)
	}
	var c Capacity
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read capacity %s: %w", filepath.Join(dir, CapacityFile), err)
	}
	if c.Schema > CapacitySchema {
		return nil, fmt.Errorf("capacity %s has schema %d, written by a newer kubedyno; this one knows up to %d", dir, c.Schema, CapacitySchema)
	}
	return &c, nil
}

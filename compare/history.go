package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// HistoryOptions say what counts as a change. The zero value works.
type HistoryOptions struct {
	MinEffect float64 // relative; 0: 0.05
	Alpha     float64 // of any false change in one experiment's series, all of them; 0: 0.05
	Seed      uint64
	// Detectors are asked whether a run is valid.
	Detectors []diagnose.Detector
	// Steps, where it is not nil, names the step that each run belongs to: releases,
	// say, or what was changed one after the other. Runs then stay in the order in
	// which they are given, and loads of different shape stand in one series, since
	// the load may be what changed.
	Steps []string
}

// History is what recordings tell of one experiment after another over time.
type History struct {
	Schema int      `json:"schema"`
	Series []Series `json:"series"`
	// LeftOut are runs whose numbers must not be used, and why.
	LeftOut []string `json:"leftOut"`
}

// Series is one indicator of one experiment on one machine. Runs of other
// machines or other loads are series of their own.
type Series struct {
	Experiment string  `json:"experiment"`
	Shape      string  `json:"shape,omitempty"` // of the load
	Machine    string  `json:"machine"`
	Indicator  string  `json:"indicator"`
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Lower      bool    `json:"lowerIsBetter"`
	Points     []Point `json:"points"`
	Steps      []Step  `json:"steps"`
	// Note says why changes could not be looked for.
	Note string `json:"note,omitempty"`
}

// Point is one run.
type Point struct {
	Run   string    `json:"run"`
	Step  string    `json:"step,omitempty"`
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
}

// Step is a change of level between two runs.
type Step struct {
	stat.Change
	Run     string  `json:"run"`   // the first one after it
	Ratio   float64 `json:"ratio"` // of the medians after and before
	Verdict Verdict `json:"verdict"`
	// Changed is what the recordings on its two sides show to differ, versions,
	// flags and settings.
	Changed []Change `json:"changed"`
}

// minSegment is the fewest runs between two changes that are looked for, minStep of
// a step that is given.
const (
	minSegment = 5
	minStep    = 3
)

// HistoryOf orders runs by time, or by the steps that are given, and finds where
// indicators changed.
func HistoryOf(runs []diagnose.Source, o HistoryOptions) (History, error) {
	if o.MinEffect == 0 {
		o.MinEffect = 0.05
	}
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	h := History{Schema: Schema, Series: []Series{}, LeftOut: []string{}}
	vs, err := views(runs)
	if err != nil {
		return h, err
	}
	invalid, err := invalidRuns(vs, runs, o.Detectors)
	if err != nil {
		return h, err
	}
	step := map[*diagnose.View]string{}
	if o.Steps != nil {
		for i, v := range vs {
			step[v] = o.Steps[i]
		}
	} else {
		slices.SortStableFunc(vs, func(a, b *diagnose.View) int {
			return cmp.Or(a.Meta.Started.Compare(b.Meta.Started), cmp.Compare(a.Meta.ID, b.Meta.ID))
		})
	}
	groups := map[string][]*diagnose.View{}
	for _, v := range vs {
		m := v.Meta
		if why := invalid[v]; len(why) > 0 {
			h.LeftOut = append(h.LeftOut, fmt.Sprintf("%s is not valid: %s", m.ID, strings.Join(why, "; ")))
			continue
		}
		shape := m.Workload.Shape
		if o.Steps != nil {
			shape = ""
		}
		k := keyOf(m.Name, shape, fingerprint(m.Machine))
		groups[k] = append(groups[k], v)
	}
	for _, k := range sortedKeys(groups) {
		part := strings.Split(k, keySeparator)
		of := groups[k]
		is := indicators(of)
		var points [][]*diagnose.View // of each series
		for _, i := range is {
			s := Series{Experiment: part[0], Shape: part[1], Machine: part[2], Indicator: i.id, Name: i.name, Unit: i.unit, Lower: i.lower, Points: []Point{}, Steps: []Step{}}
			var at []*diagnose.View
			for _, v := range of {
				if x, _, ok := i.of(v); ok {
					s.Points, at = append(s.Points, Point{v.Meta.ID, step[v], v.Meta.Started, x}), append(at, v)
				}
			}
			if len(s.Points) == 0 {
				continue
			}
			if o.Steps == nil {
				s.find(o, len(is))
			}
			h.Series = append(h.Series, s)
			points = append(points, at)
		}
		found := h.Series[len(h.Series)-len(points):]
		if o.Steps != nil {
			judgeSteps(found, o)
		}
		for i := range found {
			for j, st := range found[i].Steps {
				found[i].Steps[j].Changed = changes(points[i][st.At-1], points[i][st.At])
			}
		}
	}
	return h, nil
}

// judgeSteps compares each step with the one before it, in all series of an
// experiment, by Welch's t-test of the logarithms: where a change may be is known,
// and with four runs a step no test could speak that knows nothing of their
// distribution. Of all steps and series together any is called a change that is
// none with a chance of at most o.Alpha.
func judgeSteps(series []Series, o HistoryOptions) {
	type edge struct {
		s             *Series
		from, at, end int
	}
	var edges []edge
	var ps []float64
	for i := range series {
		s := &series[i]
		starts := []int{0}
		for k := 1; k < len(s.Points); k++ {
			if s.Points[k].Step != s.Points[k-1].Step {
				starts = append(starts, k)
			}
		}
		starts = append(starts, len(s.Points))
		if len(starts) == 2 {
			s.Note = "there is one step: nothing to compare it with"
		}
		for k := 1; k < len(starts); k++ {
			if n := starts[k] - starts[k-1]; n < minStep {
				s.Note = fmt.Sprintf("step %s has %d runs: %d are the fewest", s.Points[starts[k-1]].Step, n, minStep)
			}
		}
		if s.Note != "" {
			continue
		}
		values := s.values()
		if logs, ok := stat.Logs(values); ok {
			values = logs
		}
		for k := 1; k+1 < len(starts); k++ {
			e := edge{s, starts[k-1], starts[k], starts[k+1]}
			_, p, _ := stat.MeanShift(values[e.from:e.at], values[e.at:e.end], 1-o.Alpha)
			edges, ps = append(edges, e), append(ps, p)
		}
	}
	for i, p := range stat.Holm(ps) {
		if e := edges[i]; p <= o.Alpha {
			values := e.s.values()
			e.s.step(stat.Change{At: e.at, P: p, Before: stat.Median(values[e.from:e.at]), After: stat.Median(values[e.at:e.end])}, o)
		}
	}
}

func (s *Series) values() []float64 {
	values := make([]float64, len(s.Points))
	for i, p := range s.Points {
		values[i] = p.Value
	}
	return values
}

// step adds a change of level that somebody feels.
func (s *Series) step(c stat.Change, o HistoryOptions) {
	if math.Abs(c.After-c.Before) < o.MinEffect*math.Min(math.Abs(c.Before), math.Abs(c.After)) {
		return
	}
	st := Step{Change: c, Run: s.Points[c.At].Run, Changed: []Change{}, Verdict: Worse}
	if c.Before != 0 {
		st.Ratio = c.After / c.Before
	}
	if (c.After < c.Before) == s.Lower {
		st.Verdict = Better
	}
	s.Steps = append(s.Steps, st)
}

// fingerprint is what must be equal for numbers of two runs to stand in one
// series.
func fingerprint(m record.Machine) string {
	s := machine(m)
	if m.MemoryBytes > 0 {
		s += fmt.Sprintf(" %.0f GiB", float64(m.MemoryBytes)/(1<<30))
	}
	if m.GoMaxProcs > 0 && m.GoMaxProcs != m.CPUs {
		s += fmt.Sprintf(" GOMAXPROCS=%d", m.GoMaxProcs)
	}
	return s
}

// find fills in the steps of a series that is one of several.
func (s *Series) find(o HistoryOptions, several int) {
	if n := len(s.Points); n < 2*minSegment {
		s.Note = fmt.Sprintf("%d runs are too few for a change: %d on either side are the fewest", n, minSegment)
		return
	}
	values := s.values()
	scale := values
	logs, log := stat.Logs(values)
	if log {
		scale = logs // a ratio is a step of one height wherever it happens
	}
	alpha := o.Alpha / float64(max(1, several))
	cs := stat.Changes(scale, stat.ChangeOptions{MinSegment: minSegment, Alpha: alpha, Permutations: max(999, int(math.Ceil(4/alpha))), Seed: o.Seed})
	edges := []int{0}
	for _, c := range cs {
		edges = append(edges, c.At)
	}
	edges = append(edges, len(values))
	for i, c := range cs {
		c.Before, c.After = stat.Median(values[edges[i]:edges[i+1]]), stat.Median(values[edges[i+1]:edges[i+2]])
		s.step(c, o)
	}
}

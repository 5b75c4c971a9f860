package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

// SweepSchema is the version of the JSON form of Sweep.
const SweepSchema = 1

// Sweep is what the values of a setting cost, and what they do for a user.
type Sweep struct {
	Schema int          `json:"schema"`
	Name   string       `json:"name"` // of the experiment
	Axes   []Axis       `json:"axes"`
	Points []SweepPoint `json:"points"`
	// Planned and Made are runs of each point. Blocks that are not complete do not
	// count in what is tested.
	Planned int         `json:"planned"`
	Made    int         `json:"made"`
	Ended   string      `json:"ended,omitempty"`
	Machine string      `json:"machine,omitempty"`
	Checks  []KnobCheck `json:"checks"`
	Rows    []Sweeps    `json:"rows"`
	// Alpha is the chance of any false difference, over all points and rows.
	Alpha        float64 `json:"alpha"`
	Permutations int     `json:"permutations"`
	// Best names a point that is really better than its reference in a row, and in
	// none worse; empty where there is none.
	Best *Best `json:"best,omitempty"`
	// Prices are points that are better in one row and worse in another.
	Prices   []string `json:"prices,omitempty"`
	Warnings []string `json:"warnings"`
}

// Sweeps is one indicator over all points.
type Sweeps struct {
	ID    string      `json:"id"`
	Group Group       `json:"group"`
	Name  string      `json:"name"`
	Unit  string      `json:"unit"`
	Lower bool        `json:"lowerIsBetter"`
	Cells []SweepCell `json:"points"`
	// Within is up to where, relative, or in Unit where there are no ratios, any
	// value may lie from its reference: the farthest end of the intervals. Null
	// where the runs are too few.
	Within *float64 `json:"within,omitempty"`
	Ratios bool     `json:"ratios"` // all values are above 0: differences are ratios
	Fit    *Fit     `json:"fit,omitempty"`
	Reason string   `json:"reason,omitempty"` // why it is not tested
}

// SweepCell is an indicator at a point.
type SweepCell struct {
	Estimate
	// Ratio is to the reference, of geometric means over complete blocks; Difference
	// is of the means, in Unit, where there are no ratios.
	Ratio      *float64       `json:"ratio,omitempty"`
	Difference *float64       `json:"difference,omitempty"`
	Shift      *stat.Interval `json:"shiftInterval,omitempty"` // of either; all of the sweep hold together
	P          *float64       `json:"p,omitempty"`             // over all points and rows
	Verdict    Verdict        `json:"verdict,omitempty"`       // empty: a reference, or not tested
}

// Fit is a curve through the points of a sweep over numbers.
type Fit struct {
	Kind string `json:"kind"` // power, or line
	// Slope is the exponent of a power law, or what one more of the setting adds, in
	// Unit. Its interval holds together with those of the other rows.
	Slope    float64       `json:"slope"`
	Interval stat.Interval `json:"interval"`
	R2       float64       `json:"r2"` // of what varies within blocks
	N        int           `json:"n"`  // blocks
	Points   int           `json:"points"`
}

// Trend reports whether the slope is none by chance.
func (f Fit) Trend() bool { return f.Interval.Lo > 0 || f.Interval.Hi < 0 }

// Best is a point that is better than its reference.
type Best struct {
	Point  int    `json:"point"`
	Row    string `json:"row"` // the indicator that it is best in
	Reason string `json:"reason"`
}

// SweepRuns compares the points of a sweep, of[p][b] being the run of point p in
// block b, or nil. Points are compared with their references within blocks, and
// all of them and all rows together call a difference what is none with a chance
// of at most alpha.
func SweepRuns(axes []Axis, points []SweepPoint, of [][]diagnose.Source, o Options) (Sweep, error) {
	o = o.filled()
	s := Sweep{Schema: SweepSchema, Axes: axes, Points: points, Alpha: o.Alpha, Checks: []KnobCheck{}, Rows: []Sweeps{}, Warnings: []string{}}
	vs := make([][]*diagnose.View, len(of))
	var all []*diagnose.View
	for p := range of {
		vs[p] = make([]*diagnose.View, len(of[p]))
		for b, source := range of[p] {
			if source == nil {
				continue
			}
			v, err := diagnose.NewView(source)
			if err != nil {
				return s, fmt.Errorf("recording %s: %w", source.Meta().ID, err)
			}
			vs[p][b] = v
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return s, fmt.Errorf("%w: no run of the sweep counts", ErrNothing)
	}
	s.Name, s.Machine = all[0].Meta.Name, fingerprint(all[0].Meta.Machine)
	for _, v := range all {
		if m := fingerprint(v.Meta.Machine); m != s.Machine && len(s.Warnings) == 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("the runs are of several machines: %s and %s", s.Machine, m))
		}
	}
	var err error
	if s.Checks, err = checks(axes, points, of); err != nil {
		return s, err
	}
	s.Made = complete(vs)
	for _, i := range indicators(all) {
		if i.group == User || i.group == Rate || i.group == CPU {
			s.Rows = append(s.Rows, sweepRow(i, vs))
		}
	}
	s.test(vs, o)
	s.fit()
	s.name()
	return s, nil
}

// complete counts blocks in which every point has a run.
func complete(vs [][]*diagnose.View) int {
	n := 0
	for b := range vs[0] {
		if !slices.ContainsFunc(vs, func(runs []*diagnose.View) bool { return runs[b] == nil }) {
			n++
		}
	}
	return n
}

func sweepRow(i indicator, vs [][]*diagnose.View) Sweeps {
	row := Sweeps{ID: i.id, Group: i.group, Name: i.name, Unit: i.unit, Lower: i.lower, Ratios: true}
	for _, runs := range vs {
		e := i.estimate(slices.DeleteFunc(slices.Clone(runs), func(v *diagnose.View) bool { return v == nil }))
		byRun := make([]float64, 0, len(runs))
		for _, v := range runs {
			x := math.NaN()
			if v != nil {
				if value, _, ok := i.of(v); ok {
					x = value
				}
			}
			byRun = append(byRun, x)
			row.Ratios = row.Ratios && !(x <= 0)
		}
		e.byRun = byRun
		row.Cells = append(row.Cells, SweepCell{Estimate: e})
		if e.Value == nil && row.Reason == "" {
			row.Reason = e.Reason
		}
	}
	return row
}

// blocks are the values of a row by block and point, on the scale of the test.
func (r Sweeps) blocks() [][]float64 {
	y := make([][]float64, len(r.Cells[0].byRun))
	for b := range y {
		for _, c := range r.Cells {
			x := c.byRun[b]
			if r.Ratios {
				x = math.Log(x)
			}
			y[b] = append(y[b], x)
		}
	}
	return y
}

// test compares all points with their references, all rows together.
func (s *Sweep) test(vs [][]*diagnose.View, o Options) {
	var pairs [][2]int
	for p, point := range s.Points {
		if point.Against >= 0 {
			pairs = append(pairs, [2]int{point.Against, p})
		}
	}
	sums := map[string]float64{}
	for _, r := range s.Rows {
		sums[r.ID] = r.middle()
	}
	var y [][][]float64
	var of []int
	for i := range s.Rows {
		r := &s.Rows[i]
		switch {
		case r.Reason != "":
			continue
		case r.Group == CPU && r.middle() < leastShare*sums["cpu.total"]:
			r.Reason = "less than 1 % of the control plane's CPU"
			continue
		}
		y, of = append(y, r.blocks()), append(of, i)
	}
	f := stat.TestBlocks(y, pairs, stat.FamilyOptions{Alpha: s.Alpha, Seed: o.Seed})
	s.Permutations = f.Permutations
	if len(y) > 0 && math.IsInf(f.Critical, 1) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d complete repetitions of %d values are too few for any difference at %s %%: every value will be ~", s.Made, len(s.Points), percent(s.Alpha)))
	}
	for k := range f.Contrasts {
		r := &s.Rows[of[k]]
		within := 0.0
		for j, c := range f.Contrasts[k] {
			if !c.OK {
				within = math.Inf(1)
				continue
			}
			r.Cells[pairs[j][1]].judge(c, r.Ratios, r.Lower)
			far := max(math.Abs(c.Shift.Interval.Lo), math.Abs(c.Shift.Interval.Hi))
			if r.Ratios {
				far = math.Expm1(far)
			}
			within = max(within, far)
		}
		if !math.IsInf(within, 1) && !math.IsNaN(within) {
			r.Within = &within
		}
	}
}

func (r Sweeps) middle() float64 {
	var xs []float64
	for _, c := range r.Cells {
		xs = append(xs, c.Values...)
	}
	return stat.Mean(xs)
}

func (c *SweepCell) judge(x stat.Contrast, ratios, lower bool) {
	shift := x.Shift
	c.P, c.Verdict = &x.Adjusted, Same
	if x.Differs {
		c.Verdict = Worse
		if (shift.Estimate < 0) == lower {
			c.Verdict = Better
		}
	}
	if ratios {
		shift = shift.Exp()
		c.Ratio = &shift.Estimate
	} else {
		c.Difference = &shift.Estimate
	}
	if !math.IsInf(x.Shift.Interval.Hi, 1) {
		c.Shift = &shift.Interval
	}
}

// fit draws a curve through each row where the one axis is of numbers.
func (s *Sweep) fit() {
	if len(s.Axes) != 1 {
		return
	}
	var xs []float64
	var at []int
	positive := true
	for p, point := range s.Points {
		if x, err := strconv.ParseFloat(point.Values[0], 64); err == nil {
			xs, at = append(xs, x), append(at, p)
			positive = positive && x > 0
		}
	}
	rows := 0
	for _, r := range s.Rows {
		if r.Reason == "" {
			rows++
		}
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Reason != "" {
			continue
		}
		f := Fit{Kind: "line", Points: len(at)}
		x := slices.Clone(xs)
		if positive && r.Ratios {
			f.Kind = "power"
			for k := range x {
				x[k] = math.Log(x[k])
			}
		}
		var y [][]float64
		for b := range r.Cells[0].byRun {
			var row []float64
			for _, p := range at {
				v := r.Cells[p].byRun[b]
				if f.Kind == "power" {
					v = math.Log(v)
				}
				row = append(row, v)
			}
			y = append(y, row)
			if !slices.ContainsFunc(row, math.IsNaN) {
				f.N++
			}
		}
		// Each row's share of alpha, so that all slopes hold together.
		shift, r2, ok := stat.BlockSlope(x, y, 1-s.Alpha/float64(rows))
		if !ok {
			continue
		}
		f.Slope, f.Interval, f.R2 = shift.Estimate, shift.Interval, r2
		r.Fit = &f
	}
}

// foremost are the rows that a setting is chosen by, the first that differs
// deciding.
var foremost = []string{"intent.last", "startup.p99", "throughput", "intent.p50", "startup.p50", "cpu.total"}

// name finds the best point, and those that have a price.
func (s *Sweep) name() {
	better, worse := map[int][]string{}, map[int][]string{}
	for _, r := range s.Rows {
		for p, c := range r.Cells {
			switch c.Verdict {
			case Better:
				better[p] = append(better[p], r.Name)
			case Worse:
				worse[p] = append(worse[p], r.Name)
			}
		}
	}
	for p, point := range s.Points {
		if len(better[p]) > 0 && len(worse[p]) > 0 {
			s.Prices = append(s.Prices, fmt.Sprintf("%s is better in %s, and worse in %s", point.Name, joined(better[p]), joined(worse[p])))
		}
	}
	if !s.ActedAtAll() {
		return
	}
	for _, id := range foremost {
		i := slices.IndexFunc(s.Rows, func(r Sweeps) bool { return r.ID == id })
		if i < 0 {
			continue
		}
		r := s.Rows[i]
		best, gain := -1, 0.0
		for p, c := range r.Cells {
			if c.Verdict != Better || len(worse[p]) > 0 {
				continue
			}
			g := 0.0
			switch {
			case c.Ratio != nil:
				g = math.Abs(math.Log(*c.Ratio))
			case c.Difference != nil:
				g = math.Abs(*c.Difference)
			}
			if best < 0 || g > gain {
				best, gain = p, g
			}
		}
		if best >= 0 {
			s.Best = &Best{Point: best, Row: id, Reason: fmt.Sprintf("%s, and worse in nothing", r.Says(best))}
			return
		}
	}
}

// ActedAtAll reports whether no check says that a setting did not act.
func (s *Sweep) ActedAtAll() bool {
	return !slices.ContainsFunc(s.Checks, func(c KnobCheck) bool { return c.Effect == DidNotAct })
}

// Differs says whether any point does.
func (s *Sweep) Differs() bool {
	return slices.ContainsFunc(s.Rows, func(r Sweeps) bool {
		return slices.ContainsFunc(r.Cells, func(c SweepCell) bool { return c.Verdict == Better || c.Verdict == Worse })
	})
}

// Says is what a row says of a point beside its reference.
func (r Sweeps) Says(p int) string {
	c := r.Cells[p]
	out := r.Name
	if c.Value != nil {
		out += fmt.Sprintf(" %.3g %s", *c.Value, r.Unit)
	}
	if c.Ratio != nil {
		out += fmt.Sprintf(", ×%.3g", *c.Ratio)
	} else if c.Difference != nil {
		out += fmt.Sprintf(", %+.3g", *c.Difference)
	}
	if c.Shift != nil {
		out += fmt.Sprintf(" (%.3g…%.3g)", c.Shift.Lo, c.Shift.Hi)
	}
	if c.P != nil {
		out += fmt.Sprintf(", p=%.3f over all values and rows, n=%d", *c.P, c.N)
	}
	return out
}

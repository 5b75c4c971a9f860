package compare

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

// power is how often an effect of the size called detectable is found. At 19 of
// 20 half of it is still found in one of five, where 0.8 would promise more
// than estimates of the spread from few runs can keep.
const power = 0.95

// leastShare is the share of its table's sum below which a row is not tested:
// stages in which nobody waits and processes that do nothing vary by their own
// size, and each row that is looked at makes all others a little less sure. The
// share is of the mean of both sides, which says nothing of their difference.
const leastShare = 0.01

// judge tests all rows as one family and fills in what follows from it. noise
// holds for each row the runs without a difference.
//
// Rows are compared on the scale of logarithms wherever all of their values
// are above 0: what a machine adds to one run multiplies its times, and a
// ratio is what is asked for.
func (c *Comparison) judge(noise []Estimate, o Options) {
	var a, b [][]float64
	var logs []bool
	var of []int
	sums := c.sums()
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Baseline.Value == nil || r.Candidate.Value == nil {
			r.Verdict = NoValue
			continue
		}
		base, cand, log := logarithms(r.Baseline.byRun, r.Candidate.byRun)
		if r.Baseline.N < 2 || r.Candidate.N < 2 {
			r.Verdict = Unsure
			if *r.Baseline.Value != 0 {
				ratio := *r.Candidate.Value / *r.Baseline.Value
				r.Ratio = &ratio
			}
			continue
		}
		if sum := sums[r.Group]; sum > 0 && r.middle() < leastShare*sum {
			r.Verdict = Negligible
			continue
		}
		a, b, logs, of = append(a, base), append(b, cand), append(logs, log), append(of, i)
	}
	if len(a) == 0 {
		return
	}
	f := stat.TestFamily(a, b, stat.FamilyOptions{Alpha: c.RowsAlpha, Seed: o.Seed})
	c.Permutations, c.Exhaustive = f.Permutations, f.Exhaustive
	if math.IsInf(f.Critical, 1) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%d and %d runs are too few for any difference at %s %% over the %d rows: every row will be ~",
			len(c.Baseline.Runs), len(c.Candidate.Runs), percent(c.RowsAlpha), len(a)))
	}
	for k, m := range f.Members {
		r := &c.Rows[of[k]]
		var floor []float64
		if i := of[k]; i < len(noise) {
			floor = noise[i].Values
		}
		r.judge(m, f, logs[k], floor, len(a), o.Wanted)
	}
	c.Warnings = append(c.Warnings, c.outliers(a, b, logs, of)...)
	c.Warnings = append(c.Warnings, c.drifts(a, b, logs, of)...)
}

// sums are of the groups whose rows are parts of a whole.
func (c *Comparison) sums() map[Group]float64 {
	sums := map[Group]float64{}
	for _, r := range c.Rows {
		whole := r.ID == "cpu.total" || r.ID == "harness.cpu" || r.ID == "harness.share" || r.ID == "stage."+diagnose.Scheduling
		if (r.Group == StageOf || r.Group == CPU || r.Group == Harness) && !whole && r.Baseline.N > 0 && r.Candidate.N > 0 {
			sums[r.Group] += r.middle()
		}
	}
	return sums
}

// middle is the mean of both sides.
func (r *Row) middle() float64 {
	return (stat.Mean(r.Baseline.Values) + stat.Mean(r.Candidate.Values)) / 2
}

func percent(x float64) string { return fmt.Sprintf("%.3g", 100*x) }

// logarithms are the values' logarithms where all are above 0, or the values.
func logarithms(a, b []float64) (la, lb []float64, ok bool) {
	la, lb = slices.Clone(a), slices.Clone(b)
	for _, s := range [][]float64{la, lb} {
		for i, x := range s {
			if math.IsNaN(x) {
				continue
			}
			if x <= 0 {
				return a, b, false
			}
			s[i] = math.Log(x)
		}
	}
	return la, lb, true
}

func (r *Row) judge(m stat.Member, f stat.Family, log bool, noise []float64, rows int, wanted float64) {
	spread := m.SE / math.Sqrt(1/float64(m.N1)+1/float64(m.N2))
	r.Test = &Test{P: m.P, Adjusted: m.Adjusted, N1: m.N1, N2: m.N2}
	if spread > 0 {
		df := float64(m.N1 + m.N2 - 2)
		r.Test.Effect = m.Shift.Estimate / spread * (1 - 3/(4*df-1))
	}
	// An effect on the scale of the test, as people say it.
	said := func(x float64) *float64 {
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return nil
		}
		if log {
			x = math.Expm1(x)
		}
		return &x
	}
	shift := m.Shift
	if log {
		shift = shift.Exp()
	}
	var interval *stat.Interval
	if !math.IsInf(m.Shift.Interval.Hi, 1) {
		interval = &shift.Interval
	}
	if log {
		r.Ratio, r.RatioInterval = &shift.Estimate, interval
	} else {
		r.Difference, r.DifferenceInterval = &shift.Estimate, interval
	}
	detectable := stat.MinimumEffect(m.N1, m.N2, f.Critical, power) * spread
	if floor, ok := noiseFloor(noise, m.N1, m.N2, log); ok {
		r.Noise = said(floor)
		r.WithinNoise = m.Differs && math.Abs(m.Shift.Estimate) <= floor
		detectable = max(detectable, floor)
	}
	r.Detectable = said(detectable)
	if log && spread > 0 {
		each := stat.LevelOf(f.Critical, m.N1, m.N2)
		if each == 0 { // too few runs for any critical value: as if rows had nothing in common
			each = f.Alpha / float64(rows)
		}
		if n, ok := stat.Repetitions(math.Log1p(wanted)/spread, each, power); ok {
			r.Needed = &n
		}
	}
	switch {
	case !m.Differs || r.WithinNoise:
		r.Verdict = Same
	case r.Neutral:
		r.Verdict = Differs
	case (m.Shift.Estimate < 0) == r.Lower:
		r.Verdict = Better
	default:
		r.Verdict = Worse
	}
}

// leastNoise is the fewest runs that a noise floor can stand on.
const leastNoise = 4

// noiseFloor is how far apart the means of n1 and n2 runs come, 95 times of
// 100, by what runs without a difference vary by (Student's t).
func noiseFloor(values []float64, n1, n2 int, log bool) (floor float64, ok bool) {
	if len(values) < leastNoise {
		return 0, false
	}
	if log {
		if values, ok = stat.Logs(values); !ok {
			return 0, false
		}
	}
	// Welch's interval of the values against themselves is t·s·√(2/n).
	s, _, ok := stat.MeanShift(values, values, level)
	n := float64(len(values))
	return s.Interval.Hi * math.Sqrt(n/2*(1/float64(n1)+1/float64(n2))), ok
}

// outlierAlpha is the chance that a report accuses a healthy run.
const outlierAlpha = 0.05

// outliers names runs that stand out from their side.
func (c *Comparison) outliers(a, b [][]float64, logs []bool, of []int) (ws []string) {
	for _, side := range []struct {
		name string
		runs []RunInfo
		rows [][]float64
	}{{"baseline", c.Baseline.Runs, a}, {"candidate", c.Candidate.Runs, b}} {
		what := make([][]string, len(side.runs))
		for k, values := range side.rows {
			if slices.ContainsFunc(values, math.IsNaN) {
				continue
			}
			at, _ := stat.Outliers(values, max(1, len(values)/4), outlierAlpha/float64(2*len(side.rows)))
			for _, run := range at {
				r := c.Rows[of[k]]
				e := r.Baseline
				if side.name == "candidate" {
					e = r.Candidate
				}
				text := fmt.Sprintf("%s %.3g %s where others have %.3g", r.Name, e.byRun[run], r.Unit, *e.Value)
				what[run] = append(what[run], text)
			}
		}
		for run, texts := range what {
			if len(texts) == 0 {
				continue
			}
			more := ""
			if n := len(texts); n > 2 {
				texts, more = texts[:2], fmt.Sprintf(" and %d more", n-2)
			}
			ws = append(ws, fmt.Sprintf("%s run %s stands out: %s%s", side.name, side.runs[run].ID, joined(texts), more))
		}
	}
	return ws
}

func joined(texts []string) string {
	out := ""
	for i, t := range texts {
		if i > 0 {
			out += ", "
		}
		out += t
	}
	return out
}

// drifts tells of indicators that move with the order of the runs, whatever
// side they are of: the machine changed meanwhile.
func (c *Comparison) drifts(a, b [][]float64, logs []bool, of []int) (ws []string) {
	type drift struct {
		row   int
		total float64
	}
	var found []drift
	var ps []float64
	runs := slices.Concat(c.Baseline.Runs, c.Candidate.Runs)
	order := make([]int, len(runs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return runs[order[i]].Started.Before(runs[order[j]].Started) })
	for k := range a {
		rest := slices.Concat(without(a[k]), without(b[k]))
		var series []float64
		for _, i := range order {
			if !math.IsNaN(rest[i]) {
				series = append(series, rest[i])
			}
		}
		d, ok := stat.DriftOf(series)
		if !ok {
			continue
		}
		total := d.Total
		if logs[k] {
			total = math.Expm1(total)
		} else if m := math.Abs(*c.Rows[of[k]].Baseline.Value); m > 0 {
			total /= m
		}
		found, ps = append(found, drift{of[k], total}), append(ps, d.P)
	}
	var names []string
	for i, p := range stat.Holm(ps) {
		if p <= outlierAlpha {
			names = append(names, fmt.Sprintf("%s by %+.0f %%", c.Rows[found[i].row].Name, 100*found[i].total))
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if n := len(names); n > 3 {
		names, more = names[:3], fmt.Sprintf(" and %d more", n-3)
	}
	return []string{"the machine drifted: from the first run to the last, whatever their side, moved " + joined(names) + more}
}

// without takes a side's own mean out of its values.
func without(xs []float64) []float64 {
	var there []float64
	for _, x := range xs {
		if !math.IsNaN(x) {
			there = append(there, x)
		}
	}
	m := stat.Mean(there)
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = x - m
	}
	return out
}

// Differs says whether any indicator does.
func (c Comparison) Differs() bool {
	return slices.ContainsFunc(c.Rows, func(r Row) bool { return r.Verdict == Better || r.Verdict == Worse || r.Verdict == Differs })
}

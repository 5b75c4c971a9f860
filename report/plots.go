package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/kubedyno/kubedyno/compare"
)

// RenderSweep writes a sweep as one HTML file.
func RenderSweep(w io.Writer, s compare.Sweep, o RenderOptions) error {
	p := plain(o, "Sweep of "+s.Name, SweepVerdict(s))
	p.Sweep = sweptPage(s)
	return WritePage(w, p)
}

// RenderCapacity writes a capacity as one HTML file.
func RenderCapacity(w io.Writer, c *compare.Capacity, o RenderOptions) error {
	verdict := "Nothing was tried."
	if n := len(c.At); n > 0 { // of the most cores; each has its own below
		verdict = capacityVerdict(c, c.At[n-1])
	}
	p := plain(o, "Capacity of "+c.Experiment, verdict)
	p.Capacity = carried(c)
	return WritePage(w, p)
}

// RenderOverhead writes an overhead as one HTML file.
func RenderOverhead(w io.Writer, c *compare.Overhead, o RenderOptions) error {
	p := plain(o, "Overhead of "+c.Of, overheadVerdict(c))
	p.Overhead = atRest(c)
	p.Valid = c.Err() == nil
	return WritePage(w, p)
}

// plain is a page without rounds.
func plain(o RenderOptions, title, verdict string) Page {
	return Page{Title: cmp.Or(o.Title, title), Tool: o.Tool, Generated: o.Now, Verdict: cmp.Or(o.Verdict, verdict), Valid: true, Served: o.Served}
}

func sweptPage(s compare.Sweep) *Swept {
	out := &Swept{Runs: sweepRuns(s), Note: sweepNote(s), Prices: s.Prices, Warnings: s.Warnings}
	for _, a := range s.Axes {
		out.Axes = append(out.Axes, a.Path)
	}
	seen := seenAt(s)
	for i, p := range s.Points {
		q := SweptPoint{Name: pointName(s, i), Values: p.Values}
		if x, err := strconv.ParseFloat(p.Values[0], 64); err == nil && len(s.Axes) == 1 {
			q.At = finite(x)
		}
		if seen != nil {
			q.Seen = seen.ByPoint[i]
		}
		if p.Against >= 0 {
			q.Reference = &p.Against
		}
		out.Points = append(out.Points, q)
	}
	for _, c := range s.Checks {
		out.Checks = append(out.Checks, SweptCheck{What: c.What, Says: fmt.Sprintf("%s: %s", c.Effect, c.Why), Good: c.Effect == compare.Acted})
	}
	main := beside(s)
	for _, r := range s.Rows {
		row := SweptRow{
			ID: r.ID, Group: string(r.Group), Name: r.Name, Unit: r.Unit, Lower: r.Lower, Ratios: r.Ratios, Reason: r.Reason, Differs: differs(r),
			Main: slices.ContainsFunc(main, func(q compare.Sweeps) bool { return q.ID == r.ID }),
		}
		if r.Within != nil {
			row.Within = "± " + size(r, *r.Within)
		}
		if r.Fit != nil {
			row.Fit = fitText(r)
		}
		for _, c := range r.Cells {
			cell := SweptCell{Median: Estimated{N: c.N, Value: c.Value}, Values: c.Values, P: c.P, Verdict: string(c.Verdict), Change: cmp.Or(c.Ratio, c.Difference)}
			cell.Median.Low, cell.Median.High = ends(c.Interval)
			cell.Low, cell.High = ends(c.Shift)
			row.Cells = append(row.Cells, cell)
		}
		out.Rows = append(out.Rows, row)
	}
	if s.Best != nil {
		out.Best = &s.Best.Point
	}
	return out
}

// estimated is an average as the page draws it.
func estimated(a compare.Average) Estimated {
	e := Estimated{N: a.N}
	if a.N > 0 {
		e.Value = finite(a.Value)
	}
	e.Low, e.High = ends(a.Interval)
	return e
}

func carried(c *compare.Capacity) *Carried {
	out := &Carried{Find: c.Find, Unit: c.Unit, Saturated: c.Saturated, Warnings: c.Warnings}
	for _, o := range c.Objectives {
		out.Objectives = append(out.Objectives, Wanted{Name: o.Name, Text: askedFor(o), Unit: o.Unit, Limit: o.Limit, AtLeast: o.Unit == "1/s"})
	}
	for _, at := range c.At {
		a := CarriedAt{Cores: at.Cores, Verdict: capacityVerdict(c, at), Beyond: at.Beyond, Sure: at.Sure, Binds: at.Binds, Capacity: Estimated{N: at.N}}
		if at.Beyond == 0 {
			a.Capacity.Value = finite(at.Value)
			a.Capacity.Low, a.Capacity.High = ends(at.Interval)
		}
		probes := slices.Clone(at.Probes)
		slices.SortStableFunc(probes, func(x, y compare.Probe) int { return cmp.Compare(x.Load, y.Load) })
		for _, p := range probes {
			t := Tried{Load: p.Load, Passed: p.Passed, Valid: p.Valid, Why: p.Why, Rate: p.Rate}
			for _, o := range c.Objectives {
				v, ok := p.Latencies[o.Name]
				if !ok {
					v = math.NaN()
				}
				t.Values = append(t.Values, v)
			}
			a.Probes = append(a.Probes, t)
		}
		for _, d := range at.Demands {
			a.Demands = append(a.Demands, Demanded{Name: d.Name, Unit: d.Unit, Each: estimated(d.Each), Bound: estimated(d.Bound)})
		}
		out.At = append(out.At, a)
	}
	if l := c.Ladder; l != nil {
		out.Ladder = &Climbed{Text: ladderText(l), Next: l.Next}
		for _, r := range l.Rungs {
			out.Ladder.Rungs = append(out.Ladder.Rungs, RungOf{Cores: r.Cores, Rate: rung(r, l.N), Capped: r.Capped})
		}
		for _, h := range l.Held {
			out.Ladder.Held = append(out.Ladder.Held, HeldRung{Cores: h.Cores, Computed: rung(h.Rung, l.N), Measured: estimated(h.Measured), Error: finite(h.Error)})
		}
	}
	return out
}

func rung(r compare.Rung, n int) Estimated {
	e := Estimated{Value: finite(r.Rate), N: n}
	e.Low, e.High = ends(r.Interval)
	return e
}

func atRest(o *compare.Overhead) *AtRest {
	out := &AtRest{Of: o.Of, Command: o.Command, Note: overheadNote(o), Total: estimated(o.Total), Warnings: o.Warnings}
	if err := o.Err(); err != nil {
		out.Invalid = sentence(err.Error())
	}
	for _, l := range o.Layers {
		out.Layers = append(out.Layers, RestLayer{Name: l.Name, Cores: estimated(l.Cores), Step: estimated(l.Step), Wakeups: estimated(l.Wakeups)})
	}
	if o.Apart != nil {
		e := estimated(*o.Apart)
		out.Apart = &e
	}
	others := o.Instead
	if o.Paused != nil {
		others = append([]compare.Alternative{*o.Paused}, others...)
	}
	for _, a := range others {
		out.Instead = append(out.Instead, RestState{Name: a.Name, Set: a.Set, Cores: estimated(a.Cores), Saved: estimated(a.Saved), Share: a.Share, Than: a.Than, Sure: a.Saved.Excludes(0)})
	}
	for _, c := range o.Checks {
		out.Checks = append(out.Checks, RestCheck{Text: c.Text, Assessed: c.Assessed, OK: c.OK, Difference: estimated(c.Difference)})
	}
	for _, m := range o.Modes {
		out.Machine = append(out.Machine, RestUse{Name: m.Name, Without: estimated(m.Without), With: estimated(m.With), More: estimated(m.Difference)})
	}
	for _, p := range o.Processes {
		out.Processes = append(out.Processes, RestUse{Owner: p.Owner, Name: p.Name, Without: estimated(p.Without), With: estimated(p.With), More: estimated(p.Difference), Wakeups: estimated(p.Wakeups)})
	}
	return out
}

// finite is a number that JSON can say.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// pageDetails bounds the rows of a table that explains, on the page.
const pageDetails = 100

// RenderComparison writes two sides as one HTML file: what their runs say
// together, and of each side the middle run, beside each other. place names a
// recording in a folder that is served; nil for a file.
func RenderComparison(w io.Writer, baseline, candidate []*record.Recording, c compare.Comparison, detectors []diagnose.Detector, o RenderOptions, place func(*record.Recording) string) error {
	var inputs []Input
	for _, side := range []struct {
		name string
		recs []*record.Recording
		of   func(compare.Row) compare.Estimate
	}{
		{"Baseline", baseline, func(r compare.Row) compare.Estimate { return r.Baseline }},
		{"Candidate", candidate, func(r compare.Row) compare.Estimate { return r.Candidate }},
	} {
		i := middle(c, len(side.recs), side.of)
		rec := side.recs[i]
		d, err := diagnose.Run(rec, detectors)
		if err != nil {
			return fmt.Errorf("diagnose %s: %w", rec.Dir(), err)
		}
		name := side.name
		if n := len(side.recs); n > 1 {
			name = fmt.Sprintf("%s, run %d of %d", name, i+1, n)
		}
		in := Input{Recording: rec, Diagnosis: d, Name: name}
		if len(inputs) > 0 {
			in.Change = changedSettings(c.Changed)
		}
		inputs = append(inputs, in)
		if place != nil {
			o.Served = append(o.Served, place(rec))
		}
	}
	o.Verdict = cmp.Or(o.Verdict, ComparisonVerdict(c))
	p, err := NewPage(inputs, o)
	if err != nil {
		return err
	}
	p.Several = several(c)
	return WritePage(w, p)
}

// middle is the run of a side whose throughput is nearest to the side's median;
// without a throughput the first.
func middle(c compare.Comparison, n int, of func(compare.Row) compare.Estimate) int {
	i := slices.IndexFunc(c.Rows, func(r compare.Row) bool { return r.ID == "throughput" })
	if i < 0 {
		return 0
	}
	e := of(c.Rows[i])
	if e.Value == nil || len(e.Values) != n { // a run without one: which, is not told
		return 0
	}
	best := 0
	for i, v := range e.Values {
		if math.Abs(v-*e.Value) < math.Abs(e.Values[best]-*e.Value) {
			best = i
		}
	}
	return best
}

// changedSettings are the flags that differ, as one would set them. Empty is
// said, too: nil would make the page look for itself.
func changedSettings(cs []compare.Change) []string {
	out := []string{}
	for _, c := range cs {
		if c.New != "" {
			out = append(out, c.Path+"="+c.New)
		}
	}
	return out
}

func several(c compare.Comparison) *Several {
	s := &Several{Interval: c.Interval, Note: c.Note, Alpha: c.RowsAlpha, Changed: differences(c.Changed), Warnings: c.Warnings}
	runs := func(side compare.Side) (out []SideRun) {
		for _, r := range side.Runs {
			out = append(out, SideRun{ID: r.ID, Pods: r.Pods, Invalid: r.Invalid})
		}
		return out
	}
	s.Baseline, s.Candidate = runs(c.Baseline), runs(c.Candidate)
	for _, r := range c.Rows {
		row := SideRow{
			ID: r.ID, Group: string(r.Group), Name: r.Name, Unit: r.Unit, Lower: r.Lower, Neutral: r.Neutral,
			Baseline: spread(r.Baseline), Candidate: spread(r.Candidate), Ratio: r.Ratio, Difference: r.Difference,
			Verdict: string(r.Verdict), Detectable: r.Detectable, Needed: r.Needed,
		}
		row.RatioLow, row.RatioHigh = ends(r.RatioInterval)
		row.Low, row.High = ends(r.DifferenceInterval)
		if r.Test != nil {
			row.P = &r.Test.Adjusted
		}
		s.Rows = append(s.Rows, row)
	}
	for _, d := range c.Details {
		one := Detail{ID: d.ID, Tested: d.Tested, Alpha: d.Alpha, Why: d.Why, NotAssessed: d.NotAssessed, Looked: len(d.Rows)}
		for _, r := range d.Rows {
			if r.Verdict == compare.Same || len(one.Rows) == pageDetails || !d.Tested && d.N1 > 1 && d.N2 > 1 {
				break
			}
			row := DetailRow{Key: r.Key, Verdict: string(r.Verdict)}
			for _, m := range r.Measures {
				low, high := ends(m.Interval)
				row.Measures = append(row.Measures, Measure{Name: m.Name, Unit: m.Unit, Baseline: m.Baseline, Candidate: m.Candidate, Low: low, High: high})
			}
			one.Rows = append(one.Rows, row)
		}
		s.Details = append(s.Details, one)
	}
	return s
}

func spread(e compare.Estimate) Spread {
	s := Spread{Value: e.Value, N: e.N, Values: e.Values, Reason: e.Reason}
	s.Low, s.High = ends(e.Interval)
	return s
}

// ends are those of an interval; what is not finite is open, and not drawn.
func ends(i *stat.Interval) (low, high *float64) {
	if i == nil {
		return nil, nil
	}
	if !math.IsInf(i.Lo, 0) && !math.IsNaN(i.Lo) {
		low = &i.Lo
	}
	if !math.IsInf(i.Hi, 0) && !math.IsNaN(i.Hi) {
		high = &i.Hi
	}
	return low, high
}

func differences(cs []compare.Change) (out []Difference) {
	for _, c := range cs {
		out = append(out, Difference(c))
	}
	return out
}

// RenderHistory writes indicators over many runs as one HTML file.
func RenderHistory(w io.Writer, h compare.History, o RenderOptions) error {
	p := Page{Title: cmp.Or(o.Title, "History"), Tool: o.Tool, Generated: o.Now, Verdict: cmp.Or(o.Verdict, HistoryVerdict(h)), Valid: true, LeftOut: h.LeftOut, History: []Trend{}}
	if o.Served != nil {
		p.Served = o.Served
	}
	for _, s := range h.Series {
		t := Trend{Experiment: s.Experiment, Shape: s.Shape, Machine: s.Machine, Indicator: s.Indicator, Name: s.Name, Unit: s.Unit, Lower: s.Lower, Note: s.Note}
		for _, pt := range s.Points {
			t.Runs, t.At, t.Values = append(t.Runs, pt.Run), append(t.At, pt.At), append(t.Values, pt.Value)
			if pt.Step != "" {
				t.Labels = append(t.Labels, pt.Step)
			}
		}
		for _, st := range s.Steps {
			t.Steps = append(t.Steps, Step{At: st.At, Before: st.Before, After: st.After, Ratio: st.Ratio, P: st.P, Verdict: string(st.Verdict), Changed: differences(st.Changed)})
		}
		p.History = append(p.History, t)
	}
	return WritePage(w, p)
}

// HistoryVerdict is a history in one sentence.
func HistoryVerdict(h compare.History) string {
	runs := map[string]bool{}
	better, worse, few := 0, 0, 0
	for _, s := range h.Series {
		for _, p := range s.Points {
			runs[p.Run] = true
		}
		for _, st := range s.Steps {
			if st.Verdict == compare.Better {
				better++
			} else {
				worse++
			}
		}
		if s.Note != "" {
			few++
		}
	}
	text := fmt.Sprintf("%s, %d series: ", plural(len(runs), "valid run"), len(h.Series))
	switch {
	case len(h.Series) == 0:
		return "No valid run has an indicator that could be followed."
	case few == len(h.Series):
		return text + "too few runs to look for changes."
	case better+worse == 0:
		return text + "no change that these runs can show."
	}
	return text + fmt.Sprintf("%s for the worse, %d for the better.", plural(worse, "change"), better)
}

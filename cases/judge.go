package cases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Facts are what is known of a run: what a diagnosis said that was told nothing,
// and what was measured.
type Facts struct {
	Recording  string // its folder's name
	Turn       int    // in which it was made, from 1: each arm once, one soon after another
	Valid      bool
	Invalid    []string
	Findings   []diagnose.Finding
	Objectives []record.Objective
	Readings   map[string]Reading // by Measure.key
}

// Read takes the facts of a run that a case asks for.
func (c *Case) Read(name string, rec *record.Recording, d *diagnose.Diagnosis) Facts {
	f := Facts{Recording: name, Valid: d.Valid, Invalid: d.InvalidReasons, Findings: d.Findings, Objectives: d.Objectives, Readings: map[string]Reading{}}
	for _, m := range c.measures() {
		if _, ok := f.Readings[m.key()]; !ok {
			f.Readings[m.key()] = m.Read(rec, d)
		}
	}
	return f
}

func (c *Case) measures() []*Measure {
	var all []*Measure
	for i := range c.Expect {
		switch e := &c.Expect[i]; {
		case e.Number != nil:
			all = append(all, &e.Number.Measure)
		case e.Change != nil:
			all = append(all, &e.Change.Measure)
			if e.Change.Per != nil {
				all = append(all, e.Change.Per)
			}
		}
	}
	for i := range c.Numbers {
		all = append(all, &c.Numbers[i].Measure)
	}
	return all
}

// Outcome is what became of an expectation.
type Outcome string

// The outcomes.
const (
	Held    Outcome = "held"
	Failed  Outcome = "failed"
	Unknown Outcome = "not assessed" // which is not held
	LeftOut Outcome = "left out"     // its arm was not run, or a quick run cannot tell
)

// Verdict is what came out where an expectation said what must.
type Verdict struct {
	Row     string  `json:"row"`
	Arm     string  `json:"arm"` // two with an arrow, of a change
	Says    string  `json:"says"`
	Outcome Outcome `json:"outcome"`
	// Text is what was found, measured, or missing.
	Text string `json:"text"`
	// Ratio is that of a change, with its interval where there are runs enough.
	Ratio    *float64       `json:"ratio,omitempty"`
	Interval *stat.Interval `json:"interval,omitempty"`
}

// Passed says whether a case's verdicts are such that it passes: something was
// held, and nothing failed or could not be assessed.
func Passed(vs []Verdict) bool {
	held := false
	for _, v := range vs {
		switch v.Outcome {
		case Held:
			held = true
		case LeftOut:
		default:
			return false
		}
	}
	return held
}

// intervalRuns is how many turns an interval takes: of the spread of fewer, next to
// nothing is known.
const intervalRuns = 4

// inTurns are the values of two arms by the turns in which both were made.
func inTurns(from, to []Facts, a, b []float64) (was, is []float64) {
	for i, f := range from {
		if j := slices.IndexFunc(to, func(g Facts) bool { return g.Turn == f.Turn }); j >= 0 {
			was, is = append(was, a[i]), append(is, b[j])
		}
	}
	return was, is
}

// Judge holds what came out, by arm, against what must. A full run must have an
// interval for each change, a quick one need not.
func (c *Case) Judge(runs map[string][]Facts, quick bool) []Verdict {
	var verdicts []Verdict
	for _, e := range c.Expect {
		v := Verdict{Row: e.Row, Arm: e.Arm, Says: e.Says}
		of := runs[e.Arm]
		if e.Change != nil {
			v.Arm = e.Change.From + " → " + e.Change.To
			of = slices.Concat(runs[e.Change.From], runs[e.Change.To])
			if len(runs[e.Change.From]) == 0 || len(runs[e.Change.To]) == 0 {
				of = nil
			}
		}
		invalid := slices.IndexFunc(of, func(f Facts) bool { return !f.Valid })
		switch {
		case len(of) == 0:
			v.Outcome, v.Text = LeftOut, "not run"
		case invalid >= 0:
			v.Outcome, v.Text = Unknown, fmt.Sprintf("%s is not valid: %s", of[invalid].Recording, strings.Join(of[invalid].Invalid, "; "))
		case e.First != nil:
			e.First.first(of, &v)
		case len(e.Order) > 0:
			inOrder(e.Order, of, &v)
		case e.Found != nil:
			e.Found.found(of, &v)
		case e.Absent != nil:
			e.Absent.absent(of, &v)
		case e.Objective != nil:
			e.Objective.judge(of, &v)
		case e.Number != nil:
			e.Number.judge(of, &v)
		case e.Change != nil:
			e.Change.judge(runs[e.Change.From], runs[e.Change.To], quick, &v)
			if quick && e.Full && v.Outcome != Unknown {
				v.Outcome, v.Text = LeftOut, v.Text+"; only a full run can tell so small a difference"
			}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// String is the place in words.
func (p Place) String() string {
	var parts []string
	for _, s := range []string{p.Detector, p.Component, p.Stage, p.Resource} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if p.Names != "" {
		parts = append(parts, fmt.Sprintf("%q", p.Names))
	}
	if p.In != "" {
		parts = append(parts, "in "+p.In)
	}
	return strings.Join(parts, ", ")
}

func (p Place) matches(f diagnose.Finding) bool {
	return strings.Contains(f.Cause, p.Names) && (p.Detector == "" || p.Detector == f.ID) && (p.Component == "" || p.Component == f.Component) &&
		(p.Stage == "" || p.Stage == f.Stage) && (p.Resource == "" || p.Resource == f.Resource) && strings.Contains(f.CodePath, p.In)
}

func found(f diagnose.Finding) string {
	return Place{Detector: f.ID, Component: f.Component, Stage: f.Stage, Resource: f.Resource}.String()
}

// found: each run has the finding.
func (p Place) found(of []Facts, v *Verdict) {
	v.Outcome = Held
	for _, f := range of {
		i := slices.IndexFunc(f.Findings, p.matches)
		if i < 0 {
			v.Outcome, v.Text = Failed, fmt.Sprintf("%s: %s was not found", f.Recording, p)
			return
		}
		if v.Text == "" {
			v.Text = fmt.Sprintf("%s, number %d in %s: %s", found(f.Findings[i]), i+1, f.Recording, f.Findings[i].Summary)
		}
	}
}

// first: each run's first finding is the place.
func (p Place) first(of []Facts, v *Verdict) {
	v.Outcome = Held
	for _, f := range of {
		rank := slices.IndexFunc(f.Findings, p.matches)
		switch {
		case rank == 0:
		case len(f.Findings) == 0:
			v.Outcome, v.Text = Failed, fmt.Sprintf("%s: nothing was found; %s was to be first", f.Recording, p)
			return
		case rank > 0:
			v.Outcome, v.Text = Failed, fmt.Sprintf("%s: found, but %s stands before it", f.Recording, found(f.Findings[0]))
			return
		default:
			v.Outcome, v.Text = Failed, fmt.Sprintf("%s: not found; first is %s", f.Recording, found(f.Findings[0]))
			return
		}
	}
	v.Text = fmt.Sprintf("%s first in %s: %s", found(of[0].Findings[0]), count(len(of), "run"), of[0].Findings[0].Summary)
}

// inOrder: each run's first finding is the first place, and the others come after
// it one after another; what stands between them is no matter.
func inOrder(places []Place, of []Facts, v *Verdict) {
	v.Outcome = Held
	for _, f := range of {
		last := -1
		for i, p := range places {
			rank := slices.IndexFunc(f.Findings, p.matches)
			switch {
			case rank < 0:
				v.Outcome, v.Text = Failed, fmt.Sprintf("%s: %s was not found; %s", f.Recording, p, all(f.Findings))
				return
			case i == 0 && rank > 0, rank < last:
				v.Outcome, v.Text = Failed, fmt.Sprintf("%s: %s is number %d; %s", f.Recording, p, rank+1, all(f.Findings))
				return
			}
			last = rank
		}
	}
	v.Text = fmt.Sprintf("in %s: %s", count(len(of), "run"), all(of[0].Findings))
}

// all are findings in their order.
func all(findings []diagnose.Finding) string {
	if len(findings) == 0 {
		return "nothing was found"
	}
	var names []string
	for i, f := range findings {
		names = append(names, fmt.Sprintf("%d. %s", i+1, f.Summary))
	}
	return strings.Join(names, " ")
}

// absent: no run's findings have the place.
func (p Place) absent(of []Facts, v *Verdict) {
	for _, f := range of {
		if i := slices.IndexFunc(f.Findings, p.matches); i >= 0 {
			v.Outcome, v.Text = Failed, fmt.Sprintf("%s: found: %s", f.Recording, f.Findings[i].Summary)
			return
		}
	}
	v.Outcome, v.Text = Held, fmt.Sprintf("not found in %s", count(len(of), "run"))
	if f := of[0]; len(f.Findings) > 0 {
		v.Text += "; first is now " + found(f.Findings[0])
	} else {
		v.Text += "; nothing is"
	}
}

func (k Kept) judge(of []Facts, v *Verdict) {
	var values []string
	v.Outcome = Held
	for _, f := range of {
		i := slices.IndexFunc(f.Objectives, func(o record.Objective) bool { return o.Name == k.Name })
		if i < 0 {
			v.Outcome, v.Text = Unknown, fmt.Sprintf("%s has no objective %s", f.Recording, k.Name)
			return
		}
		o := f.Objectives[i]
		text := fmt.Sprintf("%s %s", number(o.Value), o.Unit)
		if o.Reason != "" {
			text = o.Reason
		}
		if !o.Assessed {
			v.Outcome, v.Text = Unknown, fmt.Sprintf("%s: %s: %s", f.Recording, k.Name, o.Reason)
			return
		}
		if o.Met != k.Met {
			v.Outcome = Failed
		}
		values = append(values, text)
		v.Text = fmt.Sprintf("limit %s %s; %s", number(o.Limit), o.Unit, strings.Join(values, ", "))
	}
}

// values of a measure over runs; missing says why there are none.
func values(of []Facts, m *Measure) (xs []float64, missing string) {
	for _, f := range of {
		r, ok := f.Readings[m.key()]
		switch {
		case !ok:
			return nil, f.Recording + ": not read"
		case r.Missing != "":
			return nil, f.Recording + ": " + r.Missing
		}
		xs = append(xs, r.Value)
	}
	return xs, ""
}

func (b *Bounded) judge(of []Facts, v *Verdict) {
	xs, missing := values(of, &b.Measure)
	if missing != "" {
		v.Outcome, v.Text = Unknown, missing
		return
	}
	x := stat.Median(xs)
	v.Outcome = Held
	var bounds []string
	if b.Least != nil {
		bounds = append(bounds, "at least "+number(*b.Least))
		if x < *b.Least {
			v.Outcome = Failed
		}
	}
	if b.Most != nil {
		bounds = append(bounds, "at most "+number(*b.Most))
		if x > *b.Most {
			v.Outcome = Failed
		}
	}
	v.Text = fmt.Sprintf("%s %s, %s", number(x), b.Unit(), strings.Join(bounds, " and "))
}

func (c *Change) judge(from, to []Facts, quick bool, v *Verdict) {
	a, missing := values(from, &c.Measure)
	b, none := values(to, &c.Measure)
	text := ""
	if missing == "" && none == "" && c.Per != nil {
		text = c.inWords(a, b) + "; "
		if missing = divide(a, from, c.Per); missing == "" {
			missing = divide(b, to, c.Per)
		}
	}
	if missing = cmp.Or(missing, none); missing != "" {
		v.Outcome, v.Text = Unknown, missing
		return
	}
	a, b = inTurns(from, to, a, b)
	c.compare(a, b, quick, v)
	v.Text = text + v.Text
}

// divide divides each run's value by another measure of the same run.
func divide(xs []float64, of []Facts, by *Measure) (missing string) {
	per, missing := values(of, by)
	for i, p := range per {
		if p <= 0 {
			return fmt.Sprintf("%s: %s is %s", of[i].Recording, by, number(p))
		}
		xs[i] /= p
	}
	return missing
}

// inWords are the medians of two arms.
func (c *Change) inWords(a, b []float64) string {
	return fmt.Sprintf("%s → %s %s", number(stat.Median(a)), number(stat.Median(b)), c.Unit())
}

// compare judges the ratios of values of the same turns, b's to a's: the speed of a
// machine drifts from turn to turn, often by more than what is looked for, and
// within one it is about the same for both.
func (c *Change) compare(a, b []float64, quick bool, v *Verdict) {
	if len(a) == 0 {
		v.Outcome, v.Text = Unknown, "no turn in which both were run"
		return
	}
	was, is := stat.Median(a), stat.Median(b)
	v.Text = c.inWords(a, b)
	if c.Per != nil {
		v.Text = fmt.Sprintf("divided by %s %s → %s", c.Per, number(was), number(is))
	}
	la, okA := stat.Logs(a)
	lb, okB := stat.Logs(b)
	if !okA || !okB { // there is no ratio to nothing
		v.Outcome = Unknown
		if was > 0 && is == 0 && c.Factor > 0 && c.Factor < 1 {
			v.Outcome = Held
		}
		return
	}
	ratio := is / was
	lo, hi := ratio, ratio
	with := fmt.Sprintf(", without an interval: it takes %d runs a side", intervalRuns)
	for i := range lb {
		lb[i] -= la[i]
	}
	if ci, ok := stat.MeanCI(lb, 0.95); ok && len(lb) >= intervalRuns {
		s := stat.Shift{Estimate: stat.Mean(lb), Interval: ci}.Exp()
		ratio, lo, hi = s.Estimate, s.Interval.Lo, s.Interval.Hi
		v.Interval = &s.Interval
		with = fmt.Sprintf(", %.0f %% interval %s to %s, of %d turns", 100*s.Interval.Level, number(lo), number(hi), len(lb))
	}
	v.Ratio = &ratio
	v.Text += fmt.Sprintf(", × %s%s", number(ratio), with)
	switch {
	case c.Flat > 0:
		v.Outcome = outcome(lo >= 1/(1+c.Flat) && hi <= 1+c.Flat)
		v.Text += fmt.Sprintf("; within a factor of %s", number(1+c.Flat))
	case c.Factor < 1:
		v.Outcome = outcome(ratio <= c.Factor && hi < 1)
		v.Text += fmt.Sprintf("; at most × %s", number(c.Factor))
	default:
		v.Outcome = outcome(ratio >= c.Factor && lo > 1)
		v.Text += fmt.Sprintf("; at least × %s", number(c.Factor))
	}
	if v.Interval == nil && !quick && v.Outcome == Held {
		v.Outcome = Unknown
	}
}

func outcome(held bool) Outcome {
	if held {
		return Held
	}
	return Failed
}

// number is a value with three digits.
func number(x float64) string {
	switch {
	case x >= 1000 || x <= -1000:
		return fmt.Sprintf("%.0f", x)
	case x == float64(int64(x)):
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

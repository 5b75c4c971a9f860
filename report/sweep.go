package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/compare"
)

// WriteSweep writes a sweep as text, JSON or Markdown.
func WriteSweep(w io.Writer, o Options, s compare.Sweep) error {
	switch o.Format {
	case "json":
		return writeJSON(w, s)
	case Markdown:
		_, err := io.WriteString(w, sweepMarkdown(cleaned(s)))
		return err
	}
	t := newText(o)
	t.sweep(cleaned(s))
	_, err := io.WriteString(w, t.String())
	return err
}

// beside are the rows that a sweep always shows, cost beside what a user feels.
// Where pods are too few for p99, p50 stands for it.
func beside(s compare.Sweep) []compare.Sweeps {
	var rows []compare.Sweeps
	for _, ids := range [][]string{{"cpu.total"}, {"intent.last"}, {"startup.p99", "startup.p50"}, {"throughput"}} {
		for _, id := range ids {
			if i := slices.IndexFunc(s.Rows, func(r compare.Sweeps) bool { return r.ID == id && r.Reason == "" }); i >= 0 {
				rows = append(rows, s.Rows[i])
				break
			}
		}
	}
	return rows
}

func differs(r compare.Sweeps) bool {
	return slices.ContainsFunc(r.Cells, func(c compare.SweepCell) bool { return c.Verdict == compare.Better || c.Verdict == compare.Worse })
}

// SweepVerdict is the sweep in one or two sentences.
func SweepVerdict(s compare.Sweep) string {
	axis := s.Axes[0]
	what := axis.Path
	if !s.ActedAtAll() {
		for _, c := range s.Checks {
			if c.Effect == compare.DidNotAct {
				return fmt.Sprintf("Not assessed: %s did not act: %s: %s.", c.Path, c.What, c.Why)
			}
		}
	}
	switch {
	case s.Best != nil:
		return fmt.Sprintf("Best: %s: %s.", s.Points[s.Best.Point].Name, s.Best.Reason)
	case len(s.Prices) > 0:
		return fmt.Sprintf("No value of %s is only better than %s.", what, reference(s))
	case s.Differs():
		return fmt.Sprintf("No value of %s is better than %s; some are worse.", what, reference(s))
	}
	var within []string
	for _, r := range beside(s) {
		if r.Within != nil {
			within = append(within, fmt.Sprintf("± %s on %s", size(r, *r.Within), r.Name))
		}
	}
	if len(within) == 0 {
		return fmt.Sprintf("No effect of %s that these runs could have shown: they are too few.", what)
	}
	return fmt.Sprintf("No detectable effect of %s: %s.", what, strings.Join(within, ", "))
}

// reference is what points are compared with.
func reference(s compare.Sweep) string {
	for _, p := range s.Points {
		if p.Against < 0 {
			if p.Values[0] == compare.Unset {
				return "the default"
			}
			return p.Values[0]
		}
	}
	return "the reference"
}

// size is a difference in percent, or in the row's unit.
func size(r compare.Sweeps, x float64) string {
	if r.Ratios {
		return number(100*x) + " %"
	}
	return number(x) + " " + r.Unit
}

func (t *text) sweep(s compare.Sweep) {
	t.wrapStyled(bold, SweepVerdict(s))
	for _, p := range s.Prices {
		t.wrap("", "", p)
	}
	t.wrap("", "", sweepRuns(s))
	for _, w := range s.Warnings {
		t.wrap("", t.paint(yellow, "warning: "), w)
	}
	t.wrap("", "", t.paint(dim, sweepNote(s)))

	t.head("Did it act?")
	for _, c := range s.Checks {
		text := fmt.Sprintf("%s: %s", c.What, c.Effect)
		if c.Effect == compare.Acted {
			text = fmt.Sprintf("%s: yes", c.What)
		}
		t.wrap("  ", "", text+": "+c.Why)
	}

	t.head("Cost beside what a user feels")
	rows := beside(s)
	seen := seenAt(s)
	t.line(t.paint(dim, "  "+sweepHead(s, rows, seen)))
	for p := range s.Points {
		line := pad(pointName(s, p), nameColumns(s))
		if seen != nil {
			line += left(seen.ByPoint[p], seenColumns)
		}
		for _, r := range rows {
			c := r.Cells[p]
			cell := "–"
			if c.Value != nil {
				cell = number(*c.Value)
			}
			line += left(cell+" "+mark(c.Verdict), sweepColumns)
		}
		t.line("  " + line)
	}
	t.line(t.paint(dim, "  medians; + better, - worse than the reference, ~ no difference that these runs can show"))

	var quiet []string
	for _, r := range s.Rows {
		always := slices.ContainsFunc(rows, func(q compare.Sweeps) bool { return q.ID == r.ID })
		switch {
		case always || differs(r):
			t.points(s, r)
		case r.Reason == "" && r.Within != nil:
			quiet = append(quiet, fmt.Sprintf("%s (± %s)", r.Name, size(r, *r.Within)))
		}
	}
	if len(quiet) > 0 {
		t.line("")
		t.wrap("", "~ nowhere different: ", strings.Join(quiet, ", "))
	}
	var missing []string
	for _, r := range s.Rows {
		if r.Reason != "" {
			missing = append(missing, r.Name+": "+r.Reason)
		}
	}
	if len(missing) > 0 {
		t.head("Not assessed")
		for _, m := range missing {
			t.wrap("  ", "", m)
		}
	}
}

// sweepRuns says how many runs were made.
func sweepRuns(s compare.Sweep) string {
	runs := fmt.Sprintf("%s: %s of each of %d points, in blocks of shuffled order", s.Name, plural(s.Made, "run"), len(s.Points))
	if s.Made < s.Planned {
		runs = fmt.Sprintf("%s: %d of %d runs of each of %d points, in blocks of shuffled order; ended since %s", s.Name, s.Made, s.Planned, len(s.Points), s.Ended)
	}
	return capital(sentence(runs))
}

// sweepNote explains what the numbers stand on.
func sweepNote(s compare.Sweep) string {
	return fmt.Sprintf("± x: in %s of 100 sweeps the effects of all values lie within it, in all rows together, whatever they are; with more runs it gets smaller. Differences are within blocks, against %s; n=%d. A sweep without any effect finds one with a chance of at most %s %%.",
		number(100*(1-s.Alpha)), reference(s), s.Made, number(100*s.Alpha))
}

const (
	sweepColumns = 15
	seenColumns  = 16
)

func nameColumns(s compare.Sweep) int {
	n := 0
	for p := range s.Points {
		n = max(n, utf8.RuneCountInString(pointName(s, p)))
	}
	return n
}

// pointName is the values without the path, where there is one axis only.
func pointName(s compare.Sweep, p int) string {
	if len(s.Axes) == 1 {
		return s.Points[p].Values[0]
	}
	return strings.Join(s.Points[p].Values, ", ")
}

// seenAt is the check that counted something at each point, if any did.
func seenAt(s compare.Sweep) *compare.KnobCheck {
	var found *compare.KnobCheck
	for i, c := range s.Checks {
		if len(c.ByPoint) == len(s.Points) && c.Effect != compare.NotAssessed {
			found = &s.Checks[i] // what it did comes after that it arrived
		}
	}
	return found
}

func sweepHead(s compare.Sweep, rows []compare.Sweeps, seen *compare.KnobCheck) string {
	line := pad("", nameColumns(s))
	if seen != nil {
		line += left("seen", seenColumns)
	}
	short := map[string]string{"cpu.total": "CPU", "intent.last": "last runs", "startup.p99": "startup p99", "startup.p50": "startup p50", "throughput": "rate"}
	for _, r := range rows {
		line += left(short[r.ID]+" "+r.Unit, sweepColumns)
	}
	return line
}

func mark(v compare.Verdict) string {
	switch v {
	case compare.Better:
		return "+"
	case compare.Worse:
		return "-"
	case compare.Same:
		return "~"
	}
	return " "
}

// points draws a row: each point's difference from its reference on one scale.
func (t *text) points(s compare.Sweep, r compare.Sweeps) {
	title := r.Name + ", " + r.Unit
	t.head(title)
	if r.Fit != nil {
		t.wrap("  ", "", t.paint(dim, fitText(r)))
	}
	far := 0.0
	for _, c := range r.Cells {
		if c.Shift != nil {
			far = max(far, math.Abs(onScale(r, c.Shift.Lo)), math.Abs(onScale(r, c.Shift.Hi)))
		}
	}
	for p, c := range r.Cells {
		value, change := "–", ""
		if c.Value != nil {
			value = number(*c.Value)
		}
		span := fmt.Sprintf("n=%d", c.N)
		switch {
		case c.Ratio != nil:
			change = "×" + number(*c.Ratio)
		case c.Difference != nil:
			change = signed(*c.Difference)
		}
		if c.Shift != nil {
			span = between(*c.Shift) + " " + span
		}
		plot := ""
		if c.Shift != nil && far > 0 {
			middle := 0.0
			if c.Ratio != nil {
				middle = onScale(r, *c.Ratio)
			} else if c.Difference != nil {
				middle = *c.Difference
			}
			plot = forest(onScale(r, c.Shift.Lo)/far, middle/far, onScale(r, c.Shift.Hi)/far)
		} else if s.Points[p].Against < 0 {
			plot = forest(0, 0, 0)
		}
		t.line(fmt.Sprintf("  %s %s %s %s %s  %s", pad(pointName(s, p), nameColumns(s)), left(value, 7), left(change, 7), mark(c.Verdict), pad(span, 19), plot))
	}
}

// onScale is a difference where none is 0.
func onScale(r compare.Sweeps, x float64) float64 {
	if r.Ratios {
		return math.Log(x)
	}
	return x
}

// fitText is a fitted curve in words.
func fitText(r compare.Sweeps) string {
	f := r.Fit
	chance := "no slope that these runs can show"
	if f.Trend() {
		chance = "no chance"
	}
	of := fmt.Sprintf("%d values, n=%d", f.Points, f.N)
	if f.Kind == "power" {
		twice := func(x float64) string { return number(math.Pow(2, x)) }
		return fmt.Sprintf("∝ value^%s (%s…%s), ×%s for twice the value: %s; %s, R² %s", signed(f.Slope), signed(f.Interval.Lo), signed(f.Interval.Hi), twice(f.Slope), chance, of, number(f.R2))
	}
	return fmt.Sprintf("%s %s for one more (%s…%s): %s; %s, R² %s", signed(f.Slope), r.Unit, signed(f.Interval.Lo), signed(f.Interval.Hi), chance, of, number(f.R2))
}

// forestWidth is odd, so that there is a middle.
const forestWidth = 25

// forest draws an interval on a scale from -1 to 1: no difference in the middle.
func forest(lo, middle, hi float64) string {
	at := func(x float64) int {
		return int(math.Round((max(-1, min(1, x)) + 1) / 2 * float64(forestWidth-1)))
	}
	cells := []rune(strings.Repeat(" ", forestWidth))
	for i := at(lo); i <= at(hi); i++ {
		cells[i] = '─'
	}
	if cells[forestWidth/2] = '│'; at(lo) <= forestWidth/2 && forestWidth/2 <= at(hi) && lo < hi {
		cells[forestWidth/2] = '┼'
	}
	cells[at(middle)] = '●'
	return strings.TrimRight(string(cells), " ")
}

func sweepMarkdown(s compare.Sweep) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### kubedyno: %s\n\n", inMarkdown(SweepVerdict(s)))
	for _, c := range s.Checks {
		fmt.Fprintf(&b, "- %s: %s: %s\n", inMarkdown(c.What), c.Effect, inMarkdown(c.Why))
	}
	for _, w := range slices.Concat(s.Prices, s.Warnings) {
		fmt.Fprintf(&b, "- %s\n", inMarkdown(w))
	}
	rows := beside(s)
	for _, r := range s.Rows {
		if differs(r) && !slices.ContainsFunc(rows, func(q compare.Sweeps) bool { return q.ID == r.ID }) {
			rows = append(rows, r)
		}
	}
	seen := seenAt(s)
	b.WriteString("\n| |")
	if seen != nil {
		fmt.Fprintf(&b, " %s |", inMarkdown(seen.What))
	}
	for _, r := range rows {
		fmt.Fprintf(&b, " %s, %s |", inMarkdown(r.Name), inMarkdown(r.Unit))
	}
	b.WriteString("\n|---|")
	columns := len(rows)
	if seen != nil {
		columns++
	}
	b.WriteString(strings.Repeat("--:|", columns) + "\n")
	for p := range s.Points {
		fmt.Fprintf(&b, "| %s |", inMarkdown(pointName(s, p)))
		if seen != nil {
			fmt.Fprintf(&b, " %s |", inMarkdown(seen.ByPoint[p]))
		}
		for _, r := range rows {
			c := r.Cells[p]
			cell := "–"
			if c.Value != nil {
				cell = number(*c.Value)
			}
			switch {
			case c.Ratio != nil:
				cell += " ×" + number(*c.Ratio)
			case c.Difference != nil:
				cell += " " + signed(*c.Difference)
			}
			if c.Shift != nil {
				cell += " (" + between(*c.Shift) + ")"
			}
			if c.Verdict != "" {
				cell += " " + string(c.Verdict)
			}
			fmt.Fprintf(&b, " %s |", inMarkdown(cell))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%s\n", inMarkdown(sweepNote(s)))
	return b.String()
}

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/compare"
)

// WriteComparison writes c as text or JSON.
func WriteComparison(w io.Writer, o Options, c compare.Comparison) error {
	if o.Format == "json" {
		return writeJSON(w, c)
	}
	t := newText(o)
	t.comparison(cleaned(c))
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) comparison(c compare.Comparison) {
	t.wrapStyled(bold, ComparisonVerdict(c))
	if c.Note != "" {
		t.wrap("", "", t.paint(yellow, capital(sentence(c.Note))))
	}
	for _, w := range c.Warnings {
		t.wrap("", t.paint(yellow, "warning: "), w)
	}
	t.line("")
	t.side("baseline", c.Baseline)
	t.side("candidate", c.Candidate)

	t.head("What differs in the settings")
	if len(c.Changed) == 0 {
		t.line("  nothing that the recordings show")
	}
	for _, ch := range c.Changed {
		t.line(fmt.Sprintf("  %s: %s → %s", ch.Path, orNotSet(ch.Old), orNotSet(ch.New)))
	}

	titles := map[compare.Group]string{
		compare.User: "What a user feels", compare.Rate: "Throughput", compare.StageOf: "Where pods wait",
		compare.CPU: "CPU of the control plane", compare.Harness: "CPU of the harness",
	}
	var missing []compare.Row
	var group compare.Group
	for _, r := range c.Rows {
		if r.Verdict == compare.NoValue {
			missing = append(missing, r)
			continue
		}
		if r.Group != group {
			group = r.Group
			t.head(titles[group])
			t.line(t.paint(dim, fmt.Sprintf("  %-*s %*s %*s  %s", t.nameWidth(), "", valueWidth, "baseline", valueWidth, "candidate", "ratio")))
		}
		t.row(r)
	}
	if len(missing) > 0 {
		t.head("Not assessed")
		for _, r := range missing {
			side, why := "baseline", r.Baseline.Reason
			if r.Baseline.Value != nil {
				side, why = "candidate", r.Candidate.Reason
			}
			t.wrap("  ", t.paint(yellow, r.Name)+": ", "not in the "+side+": "+why)
		}
	}
}

// valueWidth holds "75.6 ± 1.2 pods/s" and its like.
const valueWidth = 13

func (t *text) nameWidth() int { return max(16, min(42, t.width-2-2*valueWidth-2-20)) }

// vanishing says that one side is printed as 0: a ratio to almost nothing says
// more about the nothing.
func vanishing(r compare.Row) bool {
	for _, side := range []*float64{r.Baseline.Value, r.Candidate.Value} {
		if side != nil && *side < 0.0005 {
			return true
		}
	}
	return false
}

func (t *text) row(r compare.Row) {
	unit := ""
	if r.Unit != "1" {
		unit = " " + r.Unit
	}
	ratio := ""
	if r.Ratio != nil && !vanishing(r) {
		ratio = "×" + number(*r.Ratio)
	}
	mark := ""
	switch r.Verdict {
	case compare.Better:
		mark = t.paint(green, "better")
	case compare.Worse:
		mark = t.paint(red, "worse")
	case compare.Differs:
		mark = "differs"
	case compare.Same:
		// benchstat's sign: not "equal", but no difference that these runs can show.
		ratio, mark = "~", ""
	case compare.Unsure:
	}
	if r.Test != nil {
		mark = strings.TrimSpace(mark + fmt.Sprintf(" p=%.3f n=%d+%d", r.Test.P, r.Test.N1, r.Test.N2))
	} else {
		mark = strings.TrimSpace(mark + t.paint(dim, fmt.Sprintf(" n=%d+%d", r.Baseline.N, r.Candidate.N)))
	}
	name := r.Name
	if utf8.RuneCountInString(name) > t.nameWidth() {
		name, _, _ = strings.Cut(name, ", ")
		name = cut(name, t.nameWidth())
	}
	b, c := estimate(r.Baseline, ""), estimate(r.Candidate, unit)
	t.line(fmt.Sprintf("  %s %s %s  %s", pad(name, t.nameWidth()), left(b, valueWidth), left(c, valueWidth), strings.TrimSpace(ratio+"  "+mark)))
	if r.Baseline.Interval != nil || r.Candidate.Interval != nil {
		t.line(t.paint(dim, fmt.Sprintf("  %s %s %s  95 %% interval", pad("", t.nameWidth()), left(interval(r.Baseline), valueWidth), left(interval(r.Candidate), valueWidth))))
	}
}

func left(s string, columns int) string {
	return strings.Repeat(" ", max(0, columns-utf8.RuneCountInString(s))) + s
}

func estimate(e compare.Estimate, unit string) string {
	if e.Value == nil {
		return "–"
	}
	return number(*e.Value) + unit
}

func interval(e compare.Estimate) string {
	if e.Interval == nil {
		return "–"
	}
	return number(e.Interval.Lo) + "…" + number(e.Interval.Hi)
}

func (t *text) side(name string, s compare.Side) {
	var ids []string
	pods := 0
	for _, r := range s.Runs {
		ids = append(ids, r.ID)
		pods += r.Pods
	}
	if len(s.Runs) > 0 {
		t.wrap("", fmt.Sprintf("%-10s ", name), fmt.Sprintf("%s, %s, %d pods ran: %s", s.Runs[0].Name, plural(len(ids), "run"), pods, strings.Join(ids, " ")))
	}
}

func orNotSet(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

// ComparisonVerdict is the comparison in one or two sentences.
func ComparisonVerdict(c compare.Comparison) string {
	find := func(id string) *compare.Row {
		for i := range c.Rows {
			if c.Rows[i].ID == id && c.Rows[i].Baseline.Value != nil && c.Rows[i].Candidate.Value != nil {
				return &c.Rows[i]
			}
		}
		return nil
	}
	var parts []string
	for _, s := range []struct{ id, name string }{{"throughput", "throughput"}, {"intent.last", "last pod running after"}, {"cpu.total", "control plane CPU"}} {
		r := find(s.id)
		if r == nil {
			continue
		}
		p := fmt.Sprintf("%s %s → %s %s", s.name, number(*r.Baseline.Value), number(*r.Candidate.Value), r.Unit)
		switch {
		case r.Verdict == compare.Same:
			p += " (~, no difference that these runs can show)"
		case r.Ratio != nil:
			p += fmt.Sprintf(" (×%s)", number(*r.Ratio))
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return "The two sides have no main indicator in common."
	}
	s := strings.Join(parts, ", ") + "."
	return capital(s)
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

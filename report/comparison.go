package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/stat"
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
	if c.Turns != nil {
		t.wrap("", "", capital(sentence(TurnsText(*c.Turns))))
		for _, d := range c.Turns.Doubts {
			t.wrap("", t.paint(yellow, "warning: "), d)
		}
	}
	for _, w := range c.Warnings {
		t.wrap("", t.paint(yellow, "warning: "), w)
	}
	t.line("")
	t.side("baseline", c.Baseline)
	t.side("candidate", c.Candidate)
	if c.Interval {
		ways := fmt.Sprintf("%d ways", c.Permutations)
		if c.Exhaustive {
			ways = "all " + ways
		}
		t.wrap("", "", t.paint(dim, fmt.Sprintf("A report on runs without a difference finds one with a chance of at most %s %%: %s %% for the rows below, %s %% for functions. p and the intervals of ratios are of all rows together, from %s to divide these runs in two.",
			number(100*c.Alpha), number(100*c.RowsAlpha), number(100*(c.Alpha-c.RowsAlpha)), ways)))
		if c.NoiseRuns > 0 {
			t.wrap("", "", t.paint(dim, fmt.Sprintf("What %s without a difference vary by is no difference.", plural(c.NoiseRuns, "run"))))
		}
	}

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
	t.notShown(c)
	for _, d := range c.Details {
		t.detail(d)
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

// TurnsText says how runs in turns ended, and at which level they were looked at.
func TurnsText(r compare.Turns) string {
	s := fmt.Sprintf("%d of %d pairs of runs, in turns; ended since %s", r.Made, r.Planned, r.Ended)
	if r.Looks > 1 {
		s += fmt.Sprintf(". The series was looked at %d times, with a chance of at most %s %% of a false difference in any of these looks; what is left of that for this report stands below", r.Looks, number(100*r.Alpha))
	}
	return s
}

// valueWidth holds "75.6 ± 1.2 pods/s" and its like.
const valueWidth = 13

func (t *text) nameWidth() int { return max(16, min(42, t.width-2-2*valueWidth-2-27)) }

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
	case compare.Negligible:
		ratio, mark = "", t.paint(dim, "below 1 %: not tested")
	case compare.Unsure:
	}
	if r.Test == nil {
		mark = strings.TrimSpace(mark + t.paint(dim, fmt.Sprintf(" n=%d+%d", r.Baseline.N, r.Candidate.N)))
	} else if r.Verdict != compare.Same && r.Difference != nil {
		ratio = signed(*r.Difference)
	}
	if r.WithinNoise {
		mark = "within the noise of runs without a difference"
	}
	b, c := estimate(r.Baseline, ""), estimate(r.Candidate, unit)
	t.line(fmt.Sprintf("  %s %s %s  %s", pad(t.short(r.Name), t.nameWidth()), left(b, valueWidth), left(c, valueWidth), strings.TrimSpace(ratio+"  "+mark)))
	if r.Test == nil {
		return
	}
	span := ""
	switch {
	case r.RatioInterval != nil && !vanishing(r):
		span = "×" + between(*r.RatioInterval) + " "
	case r.DifferenceInterval != nil:
		span = signed(r.DifferenceInterval.Lo) + "…" + signed(r.DifferenceInterval.Hi) + " "
	}
	t.line(t.paint(dim, fmt.Sprintf("  %s %s %s  %sp=%.3f n=%d+%d", pad("", t.nameWidth()), left(interval(r.Baseline), valueWidth), left(interval(r.Candidate), valueWidth), span, r.Test.Adjusted, r.Test.N1, r.Test.N2)))
}

func signed(x float64) string {
	if x < 0 {
		return "−" + number(-x)
	}
	return "+" + number(x)
}

func between(i stat.Interval) string { return number(i.Lo) + "…" + number(i.Hi) }

// notShown says, of what did not differ, how large an effect had to be to be
// found, and how many runs would find a smaller one.
func (t *text) notShown(c compare.Comparison) {
	title := false
	for _, r := range c.Rows {
		if r.Verdict != compare.Same || vanishing(r) || (r.Detectable == nil && r.Needed == nil) {
			continue
		}
		if !title {
			t.head("What these runs could have shown")
			t.wrap("  ", "", t.paint(dim, "From this change on, a difference is found in 19 of 20 series like this one."))
			title = true
		}
		from := "none, however large"
		if r.Detectable != nil {
			from = fmt.Sprintf("from %s %s", number(*r.Detectable), r.Unit)
			if r.Ratio != nil {
				from = fmt.Sprintf("from %s %%", number(100**r.Detectable))
			}
		}
		if r.Noise != nil {
			noise := fmt.Sprintf("%s %s", number(*r.Noise), r.Unit)
			if r.Ratio != nil {
				noise = fmt.Sprintf("%s %%", number(100**r.Noise))
			}
			from += ", noise " + noise
		}
		if r.Needed != nil {
			from += fmt.Sprintf("; %s %% needs %s a side", number(100*c.Wanted), plural(*r.Needed, "run"))
		}
		t.line(fmt.Sprintf("  %s %s", pad(t.short(r.Name), t.nameWidth()), from))
	}
}

// mostDetails bounds the rows of a table that explains.
const mostDetails = 10

func (t *text) detail(d compare.Detail) {
	titles := map[string]string{
		"functions": "Functions that use more or less CPU", "requests": "Requests by user agent, verb and resource",
		"logs": "Lines of logs", "use": "Use of resources, the whole run",
	}
	t.head(titles[d.ID])
	switch {
	case d.NotAssessed != "":
		t.wrap("  ", t.paint(yellow, "not assessed: "), d.NotAssessed)
		return
	case d.Tested:
		t.wrap("  ", "", t.paint(dim, fmt.Sprintf("Means over %d and %d runs. Of the rows here a share of at most %s %% is expected to be false; %d were looked at.", d.N1, d.N2, number(100*d.Alpha), len(d.Rows))))
	case d.N1 > 1 && d.N2 > 1:
		t.wrap("  ", "", fmt.Sprintf("not searched for differences: %s (-o json has the numbers)", d.Why))
		return
	default:
		t.wrap("  ", "", t.paint(yellow, "One run on a side: what moved most, and no interval."))
	}
	shown := 0
	for _, r := range d.Rows {
		if r.Verdict == compare.Same {
			break
		}
		if shown++; shown > mostDetails {
			continue
		}
		name := make([]string, 0, len(r.Key))
		for i, k := range r.Key {
			if d.ID == "functions" && i == 1 {
				k = k[strings.LastIndexByte(k, '/')+1:]
			}
			if k != "" && !(d.ID == "use" && i > 1) {
				name = append(name, k)
			}
		}
		line := cut(strings.Join(name, "  "), t.width-2-6)
		if r.Verdict == compare.New || r.Verdict == compare.Gone {
			line += "  " + string(r.Verdict)
		}
		t.line("  " + line)
		for _, m := range r.Measures {
			if number(m.Baseline) == number(m.Candidate) {
				continue
			}
			text := fmt.Sprintf("%s → %s %s", number(m.Baseline), number(m.Candidate), m.Unit)
			if m.Interval != nil {
				text += fmt.Sprintf(" (%s, %s…%s)", signed(m.Difference()), signed(m.Interval.Lo), signed(m.Interval.Hi))
			}
			t.line(fmt.Sprintf("    %s %s", pad(m.Name, 22), text))
		}
	}
	switch {
	case shown == 0:
		t.line("  ~ no row differs")
	case shown > mostDetails:
		t.line(t.paint(dim, fmt.Sprintf("  and %d more; -o json has all", shown-mostDetails)))
	}
}

// short is a name without what follows its comma, where it is too long.
func (t *text) short(name string) string {
	if utf8.RuneCountInString(name) > t.nameWidth() {
		name, _, _ = strings.Cut(name, ", ")
		name = cut(name, t.nameWidth())
	}
	return name
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
			p += " (~, no difference that these runs can show"
			if r.Detectable != nil && r.Ratio != nil {
				p += fmt.Sprintf("; one of %s %% would be", number(100**r.Detectable))
			}
			p += ")"
		case r.Ratio != nil:
			p += fmt.Sprintf(" (×%s", number(*r.Ratio))
			if r.RatioInterval != nil {
				p += ", " + between(*r.RatioInterval)
			}
			p += ")"
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

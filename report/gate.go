package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/compare"
)

// Markdown is for a comment on a pull request.
const Markdown = "markdown"

// WriteGate writes a gate's verdict as text, JSON, JUnit or Markdown.
func WriteGate(w io.Writer, o Options, g compare.Gate) error {
	switch o.Format {
	case "json":
		return writeJSON(w, g)
	case JUnit:
		return gateJUnit(w, cleaned(g))
	case Markdown:
		_, err := io.WriteString(w, gateMarkdown(cleaned(g)))
		return err
	}
	t := newText(o)
	g = cleaned(g)
	t.wrapStyled(bold, gateVerdict(g))
	for _, r := range g.Reasons {
		t.wrap("  ", "", r)
	}
	t.line("")
	t.comparison(g.Comparison)
	_, err := io.WriteString(w, t.String())
	return err
}

func gateVerdict(g compare.Gate) string {
	c := g.Comparison
	runs := fmt.Sprintf("%d and %d runs", len(c.Baseline.Runs), len(c.Candidate.Runs))
	switch g.Outcome {
	case compare.Failed:
		return fmt.Sprintf("Failed: %s in %s.", plural(len(g.Regressions), "regression"), runs)
	case compare.Passed:
		return fmt.Sprintf("Passed: no regression that %s can show.", runs)
	case compare.Invalid:
		return "Invalid: the numbers must not be used."
	}
	return "Not assessed."
}

// gateJUnit has a case for the verdict on each row that is judged. What cannot
// be judged fails, too.
func gateJUnit(w io.Writer, g compare.Gate) error {
	s := testSuite{Name: "gate", Out: gateVerdict(g) + "\n" + strings.Join(g.Reasons, "\n")}
	if turns := g.Comparison.Turns; turns != nil {
		s.Out += "\n" + strings.Join(append([]string{TurnsText(*turns)}, turns.Doubts...), "\n")
	}
	class := "kubedyno.gate"
	first := testCase{Class: class, Name: "the runs can be judged"}
	if g.Outcome == compare.Invalid || g.Outcome == compare.NotAssessed {
		first.Failure = &failure{Type: strings.ReplaceAll(string(g.Outcome), " ", "-"), Message: gateVerdict(g), Text: strings.Join(g.Reasons, "\n")}
	}
	s.Cases = append(s.Cases, first)
	failed := map[string]bool{}
	for _, r := range g.Regressions {
		failed[r.ID] = true
	}
	for _, r := range g.Comparison.Rows {
		if r.Test == nil || !compare.Gated(r) {
			continue
		}
		c := testCase{Class: class, Name: r.ID, Out: r.Sentence()}
		if failed[r.ID] {
			c.Out, c.Failure = "", &failure{Type: "regression", Message: r.Sentence()}
		}
		s.Cases = append(s.Cases, c)
	}
	for _, c := range s.Cases {
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(testSuites{Name: "kubedyno", Tests: s.Tests, Failures: s.Failures, Suites: []testSuite{s}}); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// gateMarkdown is a verdict with a table of what is judged.
func gateMarkdown(g compare.Gate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### kubedyno: %s\n\n", gateVerdict(g))
	said := slices.Clone(g.Reasons)
	if turns := g.Comparison.Turns; turns != nil {
		said = slices.Concat(said, []string{TurnsText(*turns)}, turns.Doubts)
	}
	for _, r := range said {
		fmt.Fprintf(&b, "- %s\n", inMarkdown(r))
	}
	if len(said) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString("| indicator | base | head | ratio | interval | p | n | |\n|---|--:|--:|--:|--:|--:|--:|---|\n")
	for _, r := range g.Comparison.Rows {
		if r.Test == nil || !compare.Gated(r) {
			continue
		}
		ratio, span := "", ""
		if r.Ratio != nil && !vanishing(r) {
			ratio = "×" + number(*r.Ratio)
			if r.RatioInterval != nil {
				span = between(*r.RatioInterval)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s | %s | %.3f | %d+%d | %s |\n", inMarkdown(r.Name), number(*r.Baseline.Value), number(*r.Candidate.Value), inMarkdown(r.Unit),
			ratio, span, r.Test.Adjusted, r.Test.N1, r.Test.N2, r.Verdict)
	}
	fmt.Fprintf(&b, "\nMedians of runs; ratios of geometric means. Intervals and p hold for all %d rows of the report together; `~` is no difference that these runs can show.\n", len(g.Comparison.Rows))
	return b.String()
}

// inMarkdown keeps names from being markup.
func inMarkdown(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "`", "'", "*", `\*`, "_", `\_`, "[", `\[`, "\n", " ").Replace(s)
}

package compare

import (
	"fmt"
	"slices"
)

// Outcome is what a gate says of a change.
type Outcome string

// The outcomes. Only the first lets a change pass.
const (
	Passed      Outcome = "passed"
	Failed      Outcome = "failed"       // a regression
	Invalid     Outcome = "invalid"      // numbers that must not be used
	NotAssessed Outcome = "not assessed" // too few runs, other machines
)

// GateOptions say what a regression is.
type GateOptions struct {
	// Least is the relative change for the worse that is one; a smaller one
	// passes, however sure it is. 0: any that differs.
	Least float64
}

// Gate is a verdict on a candidate against its baseline.
type Gate struct {
	Outcome Outcome  `json:"outcome"`
	Reasons []string `json:"reasons"` // why, one a regression or doubt
	// Regressions are the rows that fail the gate.
	Regressions []Row      `json:"regressions"`
	Comparison  Comparison `json:"comparison"`
}

// fewestPairs is how many runs of each side can show any difference at all.
const fewestPairs = 4

// Gated says whether a gate judges a row. Stages explain what a user feels, and
// the harness is not what is tested.
func Gated(r Row) bool { return r.Group == User || r.Group == Rate || r.Group == CPU }

// Gate judges a comparison: it fails on a regression that differs over the
// whole report, and on nothing else. Runs must be valid, of one machine, and
// enough to show something.
func (c Comparison) Gate(o GateOptions) Gate {
	g := Gate{Comparison: c, Regressions: []Row{}, Reasons: []string{}}
	say := func(out Outcome, format string, args ...any) {
		g.Outcome, g.Reasons = out, append(g.Reasons, fmt.Sprintf(format, args...))
	}
	for _, side := range []Side{c.Baseline, c.Candidate} {
		for _, r := range side.Runs {
			if len(r.Invalid) > 0 {
				say(Invalid, "run %s is not valid: %s", r.ID, joined(r.Invalid))
			}
		}
	}
	if g.Outcome != "" {
		return g
	}
	machines := map[string]bool{}
	for _, r := range slices.Concat(c.Baseline.Runs, c.Candidate.Runs) {
		machines[r.Machine] = true
	}
	if len(machines) > 1 {
		say(NotAssessed, "the runs are of %d machines: %s", len(machines), joined(sortedKeys(machines)))
	}
	if a, b := len(c.Baseline.Runs), len(c.Candidate.Runs); a < fewestPairs || b < fewestPairs {
		say(NotAssessed, "%d and %d runs can show no difference; %d of each are the fewest", a, b, fewestPairs)
	}
	judged := 0
	for _, r := range c.Rows {
		if !Gated(r) {
			continue
		}
		switch {
		case r.Test != nil:
			judged++
		case r.Verdict == NoValue && r.Baseline.Value != nil:
			say(NotAssessed, "%s: the candidate has no value: %s", r.Name, r.Candidate.Reason)
		}
		if r.Verdict == Worse && r.worsening() >= o.Least {
			g.Regressions = append(g.Regressions, r)
		}
	}
	if judged == 0 && g.Outcome == "" {
		say(NotAssessed, "no indicator has a value on both sides")
	}
	if g.Outcome != "" {
		return g
	}
	g.Outcome = Passed
	for _, r := range g.Regressions {
		say(Failed, "%s", r.Sentence())
	}
	return g
}

// worsening is by how much a row is worse, relative to the baseline.
func (r Row) worsening() float64 {
	switch {
	case r.Ratio == nil:
		return r.Test.Effect // without a ratio any difference is taken for large
	case r.Lower:
		return *r.Ratio - 1
	default:
		return 1 / *r.Ratio - 1
	}
}

// Sentence says of a row that was tested what changed and how sure that is.
func (r Row) Sentence() string {
	s := fmt.Sprintf("%s %.3g → %.3g %s", r.Name, *r.Baseline.Value, *r.Candidate.Value, r.Unit)
	if r.Ratio != nil {
		s += fmt.Sprintf(", ×%.3g", *r.Ratio)
		if i := r.RatioInterval; i != nil {
			s += fmt.Sprintf(" (%.3g…%.3g)", i.Lo, i.Hi)
		}
	}
	if t := r.Test; t != nil {
		s += fmt.Sprintf(", p=%.3f over all rows, n=%d+%d", t.Adjusted, t.N1, t.N2)
	}
	return s
}

package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/kubedyno/kubedyno/stat"
)

// Turns is how the runs of a comparison were made, where they were made for
// it, in turns.
type Turns struct {
	Planned int `json:"planned"` // pairs
	Made    int `json:"made"`    // pairs, before it ended
	// Alpha is the chance of a false difference over all looks that were taken;
	// the comparison's own is what was left for the last one.
	Alpha float64 `json:"alpha"`
	Looks int     `json:"looks"`
	Ended string  `json:"ended"`
	// GaveUp says that too many runs do not count.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Doubts name the runs that do not count, and say whether that biases.
	Doubts []string `json:"doubts,omitempty"`
}

// Looks plans when to look at a series of pairs of runs that may end early: after
// each pair from the first that can show anything. A comparison at a look has
// the look's Level as its Options.Alpha; then all looks together have a false
// difference with a chance of at most alpha.
func Looks(pairs int, alpha float64) []stat.Look {
	return looks(pairs, pairs, alpha)
}

// looks are those of a series that ends after some of its pairs for a reason that
// lies outside of what it showed, such as its budget. All of alpha that is left
// then goes to the last look (Lan and DeMets 1983: when looks are taken is free).
func looks(made, pairs int, alpha float64) []stat.Look {
	var fractions []float64
	for k := min(fewestPairs, pairs); k <= made; k++ {
		fractions = append(fractions, float64(k)/float64(pairs))
	}
	if len(fractions) == 0 {
		return nil
	}
	last := fractions[len(fractions)-1]
	return stat.Looks(alpha, fractions, func(t, alpha float64) float64 {
		if t >= last {
			return alpha
		}
		return stat.LateSpending(t, alpha)
	})
}

// LookAfter is the look after so many of the planned pairs. final says that no
// other follows. ok is false where these are too few to show anything.
func LookAfter(made, pairs int, alpha float64, final bool) (look stat.Look, ok bool) {
	ls := Looks(pairs, alpha)
	if final {
		ls = looks(made, pairs, alpha)
	}
	i := made - min(fewestPairs, pairs)
	if i < 0 || i >= len(ls) {
		return stat.Look{Level: alpha, Spent: alpha}, false
	}
	return ls[i], true
}

// LooksUntil is how many looks were taken when so many pairs were made.
func LooksUntil(made int) int { return max(1, made-fewestPairs+1) }

// Answer says what the runs of a comparison have made clear, so that no more are
// needed; empty where nothing is. A difference is one, and so is that none can be
// as large as least, relative.
func (c Comparison) Answer(least float64) string {
	for _, r := range c.Rows {
		if Gated(r) && slices.Contains([]Verdict{Better, Worse, Differs}, r.Verdict) {
			return r.Name + " differs"
		}
	}
	if c.bounded(func(low, high float64) bool { return low >= -least && high <= least }) {
		return fmt.Sprintf("nothing that a gate judges differs by %s %% or more", percent(least))
	}
	return ""
}

// Answer says what is clear to a gate, so that no more runs are needed; empty
// where nothing is. least is the smallest relative change for the worse that is of
// interest.
func (g Gate) Answer(least float64) string {
	switch {
	case g.Outcome == Failed:
		return g.Regressions[0].Name + " is worse"
	case g.Outcome != Passed:
		return ""
	case g.Comparison.bounded(func(_, worse float64) bool { return worse <= least }):
		return fmt.Sprintf("nothing is worse by %s %% or more", percent(least))
	}
	return ""
}

// bounded asks of each row that a gate judges whether its interval is narrow
// enough: how much better (below 0) and how much worse it may be.
func (c Comparison) bounded(enough func(better, worse float64) bool) bool {
	any := false
	for _, r := range c.Rows {
		if !Gated(r) || r.Test == nil {
			continue
		}
		i := r.RatioInterval
		if i == nil || i.Lo <= 0 || math.IsInf(i.Hi, 1) {
			return false
		}
		lo, hi := i.Lo-1, i.Hi-1
		if !r.Lower {
			lo, hi = 1/i.Hi-1, 1/i.Lo-1
		}
		if !enough(lo, hi) {
			return false
		}
		any = true
	}
	return any
}

package stat

import (
	"fmt"
	"math"
	"slices"
)

// Comparison is the outcome of a two-sided test of whether two samples come
// from the same distribution.
type Comparison struct {
	P     float64 `json:"p"`
	N1    int     `json:"n1"`
	N2    int     `json:"n2"`
	Alpha float64 `json:"alpha"`
	// Differ says that P is below Alpha.
	Differ bool `json:"differ"`
	// Warnings say what weakens the test, such as too few values to ever
	// reach Alpha.
	Warnings []string `json:"warnings,omitempty"`
}

// exactMax is the largest n1+n2 for which the exact distribution is computed:
// its cost grows with the fourth power, and beyond it the normal
// approximation's error is below a thousandth.
const exactMax = 50

// Compare is the two-sided Mann-Whitney U test (Mann and Whitney 1947), which
// assumes no distribution. Up to 50 values the permutation distribution of the
// mid-ranks is enumerated, so that ties are exact too; beyond, the normal
// approximation with tie and continuity correction (Hollander and Wolfe,
// Nonparametric Statistical Methods, 4.1) is used. ok is false where a sample
// has fewer than 2 values: one run each can show a ratio, never a difference.
func Compare(a, b []float64, alpha float64) (c Comparison, ok bool) {
	c = Comparison{N1: len(a), N2: len(b), Alpha: alpha, P: 1}
	if len(a) < 2 || len(b) < 2 {
		return c, false
	}
	ranks, ties := midRanks2(a, b)
	n1, n := len(a), len(a)+len(b)
	var w int
	for _, r := range ranks[:n1] {
		w += r
	}
	if n <= exactMax {
		c.P = exactP(ranks, n1, w)
		if least := 2 / binomial(n, n1); least > alpha {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%d and %d values can never reach p < %v", c.N1, c.N2, alpha))
		}
	} else {
		c.P = normalP(float64(w)/2, n1, n-n1, ties)
	}
	c.Differ = c.P < alpha
	return c, true
}

// midRanks2 ranks a and b together, ties at their mean rank, doubled so that
// all are integers; a's come first. ties is Σ(t³−t) over the tied groups.
func midRanks2(a, b []float64) (ranks []int, ties float64) {
	all := slices.Concat(a, b)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case all[i] < all[j]:
			return -1
		case all[i] > all[j]:
			return 1
		}
		return 0
	})
	ranks = make([]int, len(all))
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = i + 1 + j // twice the mean of ranks i+1 … j
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return ranks, ties
}

// exactP is the share of the ways to choose n1 of the ranks whose sum lies as
// far from the expected one as w.
func exactP(ranks []int, n1, w int) float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	// ways[k][s]: choices of k ranks with sum s.
	ways := make([][]float64, n1+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := n1; k >= 1; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	// Distances in units of 1/n, so that they stay integers.
	n := len(ranks)
	far := abs(w*n - total*n1)
	var extreme, all float64
	for s, m := range ways[n1] {
		all += m
		if abs(s*n-total*n1) >= far {
			extreme += m
		}
	}
	return min(1, extreme/all)
}

func normalP(w float64, n1, n2 int, ties float64) float64 {
	n := float64(n1 + n2)
	mean := float64(n1) * (n + 1) / 2
	variance := float64(n1) * float64(n2) / 12 * (n + 1 - ties/(n*(n-1)))
	if variance <= 0 {
		return 1 // all values equal
	}
	z := max(0, math.Abs(w-mean)-0.5) / math.Sqrt(variance)
	return math.Erfc(z / math.Sqrt2)
}

func binomial(n, k int) float64 {
	b := 1.0
	for i := range k {
		b *= float64(n-i) / float64(k-i)
	}
	return b
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

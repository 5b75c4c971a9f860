package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Spending says how much of alpha may have been spent when a fraction t of
// the planned runs is there. It rises from 0 to alpha.
type Spending func(t, alpha float64) float64

// LateSpending spends as O'Brien and Fleming's boundary does: next to nothing
// at first, so that only what is glaring ends a series early, and nearly all
// is left for its end (Lan and DeMets 1983).
func LateSpending(t, alpha float64) float64 {
	if t <= 0 {
		return 0
	}
	// Half of alpha on either side.
	return min(alpha, 4*distuv.UnitNormal.Survival(distuv.UnitNormal.Quantile(1-alpha/4)/math.Sqrt(t)))
}

// EvenSpending spends as Pocock's boundary does: about the same level at every
// look (Lan and DeMets 1983).
func EvenSpending(t, alpha float64) float64 {
	return alpha * math.Log(1+(math.E-1)*max(0, min(t, 1)))
}

// Look is one look at a series of runs that may end it.
type Look struct {
	Fraction float64 `json:"fraction"` // of the planned runs
	Bound    float64 `json:"bound"`    // |z| from which on the series may end
	Level    float64 `json:"level"`    // two-sided, of a test at this look alone
	Spent    float64 `json:"spent"`    // of alpha, with the looks before
}

// Looks plans a group-sequential test: whoever tests at each look's Level and
// stops at the first difference is wrong with a chance of at most alpha in all
// (Lan and DeMets 1983). fractions rise, and the last one is 1. Intervals at 1 −
// Level hold at all looks together (Jennison and Turnbull 1989, repeated
// confidence intervals), so that stopping makes none too short.
//
// Bounds come from the running sum of normal values: the density of a sum that
// has not ended the series is carried from look to look (Armitage, McPherson
// and Rowe 1969). Tests that are not of normal values use the levels (Jennison
// and Turnbull 2000, Group Sequential Methods, 3.3 and 11.2); that this holds
// for TestFamily at few runs is measured by a test.
//
// E-values need no number of runs planned ahead, but pay for it: by betting on
// signs 8 pairs are the least that convince at 5 %, before any correction for
// many indicators. A campaign has a budget anyway, and 5 pairs can be enough.
func Looks(alpha float64, fractions []float64, spend Spending) []Look {
	var looks []Look
	// The density of the sum, whose variance at look k is fractions[k], at grid
	// points over the region that goes on.
	var at, weight []float64
	spent, last := 0.0, 0.0
	for i, t := range fractions {
		step := math.Sqrt(t - last)
		// The chance to go on so far and then lie beyond x.
		beyond := func(x float64) float64 {
			if i == 0 {
				return 2 * distuv.UnitNormal.Survival(x/step)
			}
			sum := 0.0
			for j, y := range at {
				sum += weight[j] * (distuv.UnitNormal.Survival((x-y)/step) + distuv.UnitNormal.CDF((-x-y)/step))
			}
			return sum
		}
		may := max(0, spend(t, alpha)-spent)
		lo, hi := 0.0, 10*math.Sqrt(t)
		for range 60 {
			if mid := (lo + hi) / 2; beyond(mid) > may {
				lo = mid
			} else {
				hi = mid
			}
		}
		spent += beyond(hi)
		z := hi / math.Sqrt(t)
		looks = append(looks, Look{t, z, 2 * distuv.UnitNormal.Survival(z), spent})
		if i == len(fractions)-1 {
			break
		}
		// Simpson's rule on a grid fine beside the step.
		const points = 601
		next, w := make([]float64, points), make([]float64, points)
		h := 2 * hi / (points - 1)
		for k := range points {
			x := -hi + float64(k)*h
			density := 0.0
			if i == 0 {
				density = distuv.UnitNormal.Prob(x/step) / step
			}
			for j, y := range at {
				density += weight[j] * distuv.UnitNormal.Prob((x-y)/step) / step
			}
			simpson := 2.0 + 2*float64(k%2)
			if k == 0 || k == points-1 {
				simpson = 1
			}
			next[k], w[k] = x, density*simpson*h/3
		}
		at, weight, last = next, w, t
	}
	return looks
}

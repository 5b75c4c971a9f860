package stat

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// Power is the chance that two samples of n1 and n2 normal values whose means
// lie effect standard deviations apart differ by at least critical standard
// errors: the tails of the noncentral t distribution (Johnson, Kotz and
// Balakrishnan 1995, Continuous Univariate Distributions 2, chapter 31),
// integrated over the spread that the samples may show.
func Power(effect float64, n1, n2 int, critical float64) float64 {
	if n1 < 2 || n2 < 2 || math.IsInf(critical, 1) {
		return 0
	}
	return spreadsOf(n1, n2).power(effect, critical)
}

// spreads are standard deviations that two samples may show over the true one,
// with how likely they are.
type spreads struct {
	sizes     float64 // √(n1·n2/(n1+n2))
	s, weight []float64
}

func spreadsOf(n1, n2 int) spreads {
	a, b := float64(n1), float64(n2)
	w := spreads{sizes: math.Sqrt(a * b / (a + b))}
	of := distuv.ChiSquared{K: a + b - 2}
	const points = 60
	w.s, w.weight = make([]float64, points), make([]float64, points)
	// 1/√(2·df) is the standard deviation of s; beyond 7 of them there is
	// nothing, and below, few degrees of freedom end at 0.
	far := 7 / math.Sqrt(2*of.K)
	quad.Legendre{}.FixedLocations(w.s, w.weight, max(0, 1-far), 1+far)
	for i, s := range w.s {
		w.weight[i] *= 2 * s * of.K * of.Prob(s*s*of.K)
	}
	return w
}

func (w spreads) power(effect, critical float64) float64 {
	away := effect * w.sizes
	sum := 0.0
	for i, s := range w.s {
		sum += w.weight[i] * (math.Erfc((critical*s-away)/math.Sqrt2) + math.Erfc((critical*s+away)/math.Sqrt2)) / 2
	}
	return min(1, sum)
}

// MinimumEffect is the least difference, in standard deviations of a run, that
// is found with the given power. It is infinite where nothing can be.
func MinimumEffect(n1, n2 int, critical, power float64) float64 {
	if n1 < 2 || n2 < 2 || math.IsInf(critical, 1) {
		return math.Inf(1)
	}
	w := spreadsOf(n1, n2)
	lo, hi := 0.0, 1.0
	for w.power(hi, critical) < power {
		if lo, hi = hi, 2*hi; hi > 1e6 {
			return math.Inf(1)
		}
	}
	for range 40 {
		if mid := (lo + hi) / 2; w.power(mid, critical) < power {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// LevelOf is the level at which a t test of n1 and n2 values has this critical
// difference: what a family leaves for each of its members.
func LevelOf(critical float64, n1, n2 int) float64 {
	if n1 < 2 || n2 < 2 || math.IsInf(critical, 1) {
		return 0
	}
	return 2 * distuv.StudentsT{Sigma: 1, Nu: float64(n1 + n2 - 2)}.Survival(critical)
}

// mostRepetitions is where Repetitions gives up: nobody runs more.
const mostRepetitions = 100_000

// Repetitions is how many runs each side needs so that a difference of effect
// standard deviations is found with the given power by a two-sided test at the
// level. ok is false where no number that anybody would run is enough.
func Repetitions(effect, level, power float64) (n int, ok bool) {
	if !(effect > 0) || !(level > 0) || level >= 1 || power >= 1 {
		return 0, false
	}
	enough := func(n int) bool {
		c := distuv.StudentsT{Sigma: 1, Nu: float64(2*n - 2)}.Quantile(1 - level/2)
		return Power(effect, n, n, c) >= power
	}
	// Normal values of known spread need a little less.
	z := distuv.UnitNormal.Quantile(1-level/2) + distuv.UnitNormal.Quantile(power)
	guess := 2 * z * z / (effect * effect)
	if guess > mostRepetitions {
		return 0, false
	}
	lo, hi := 1, max(2, int(math.Ceil(guess)))
	for !enough(hi) {
		lo, hi = hi, hi+max(1, hi/8)
	}
	if lo == 1 && hi > 2 && !enough(hi-1) {
		return hi, true
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; enough(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, true
}

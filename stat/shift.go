package stat

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Shift is by how much a second sample lies above a first one. Of logarithms
// its exponential is a ratio.
type Shift struct {
	Estimate float64  `json:"estimate"`
	Interval Interval `json:"interval"`
}

// Exp turns a shift of logarithms into a ratio.
func (s Shift) Exp() Shift {
	return Shift{math.Exp(s.Estimate), Interval{math.Exp(s.Interval.Lo), math.Exp(s.Interval.Hi), s.Interval.Level}}
}

// Logs are the logarithms of xs; ok is false where one is not above zero.
func Logs(xs []float64) (ls []float64, ok bool) {
	ls = make([]float64, len(xs))
	for i, x := range xs {
		if !(x > 0) {
			return nil, false
		}
		ls[i] = math.Log(x)
	}
	return ls, true
}

// MedianShift is the difference of the medians, b's less a's, with the
// percentile interval of the bootstrap (Efron and Tibshirani 1993, An
// Introduction to the Bootstrap, chapter 13). seed decides the resamples.
//
// The median of a few values takes few values itself, so that corrections by
// its jackknife (BCa, chapter 14) find nothing to go by. Measured at 5 to 20
// values a side they covered less, never more (docs/design/005-prove.md);
// HodgesLehmann is shorter and keeps its level by construction. ok is false for
// fewer than 4 values a side: 35 resamples are no distribution.
func MedianShift(a, b []float64, level float64, seed uint64) (s Shift, ok bool) {
	if len(a) < 4 || len(b) < 4 || level <= 0 || level >= 1 {
		return s, false
	}
	const resamples = 1999
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := func(xs, into []float64) float64 {
		for i := range into {
			into[i] = xs[rng.IntN(len(xs))]
		}
		slices.Sort(into)
		return into[(len(into)-1)/2]/2 + into[len(into)/2]/2
	}
	x, y := make([]float64, len(a)), make([]float64, len(b))
	ds := make([]float64, resamples)
	for i := range ds {
		ds[i] = draw(b, y) - draw(a, x)
	}
	slices.Sort(ds)
	tail := (1 - level) / 2
	return Shift{Median(b) - Median(a), Interval{QuantileSorted(ds, tail), QuantileSorted(ds, 1-tail), level}}, true
}

// HodgesLehmann is the median of all differences between a value of b and one
// of a (Hodges and Lehmann 1963), with the exact interval that belongs to the
// Mann-Whitney test (Moses' method: Hollander and Wolfe, Nonparametric
// Statistical Methods, 4.3). It assumes that the samples differ by a shift, no
// distribution. ok is false where no interval reaches level: below 4 values a
// side at 95 %.
func HodgesLehmann(a, b []float64, level float64) (s Shift, ok bool) {
	if len(a) == 0 || len(b) == 0 || level <= 0 || level >= 1 {
		return s, false
	}
	ds := make([]float64, 0, len(a)*len(b))
	for _, y := range b {
		for _, x := range a {
			ds = append(ds, y-x)
		}
	}
	slices.Sort(ds)
	s.Estimate = Median(ds)
	// k differences are cut off at either end: the most with P(U < k) in the tail.
	k, cover := 0, 0.0
	if len(a)+len(b) <= exactMax {
		ways := mannWhitney(len(a), len(b))
		all, below := Sum(ways), 0.0
		for k < len(ways) && below+ways[k] <= (1-level)/2*all {
			below += ways[k]
			k++
		}
		cover = 1 - 2*below/all
	} else {
		n1, n2 := float64(len(a)), float64(len(b))
		z := distuv.UnitNormal.Quantile((1 + level) / 2)
		k = int(math.Floor(n1*n2/2 - 0.5 - z*math.Sqrt(n1*n2*(n1+n2+1)/12)))
		cover = level
	}
	if k <= 0 {
		return s, false
	}
	s.Interval = Interval{ds[k-1], ds[len(ds)-k], cover}
	return s, true
}

// mannWhitney counts, for each value of U, the orders of n1 and n2 values that
// have it (Mann and Whitney 1947, their recurrence).
func mannWhitney(n1, n2 int) []float64 {
	// of[j]: counts for i values of the first sample and j of the second.
	of := make([][]float64, n2+1)
	for j := range of {
		of[j] = []float64{1}
	}
	for i := 1; i <= n1; i++ {
		next := make([][]float64, n2+1)
		next[0] = []float64{1}
		for j := 1; j <= n2; j++ {
			// The largest is of the first sample, above j others, or of the second.
			c := make([]float64, i*j+1)
			for u, w := range of[j] {
				c[u+j] += w
			}
			for u, w := range next[j-1] {
				c[u] += w
			}
			next[j] = c
		}
		of = next
	}
	return of[n2]
}

// MeanShift is the difference of the means, b's less a's, with Welch's interval
// and two-sided P value, which let the samples differ in spread (Welch 1947).
// It assumes means that are about normal. ok is false for fewer than 2 values
// a side.
func MeanShift(a, b []float64, level float64) (s Shift, p float64, ok bool) {
	n1, n2 := float64(len(a)), float64(len(b))
	if n1 < 2 || n2 < 2 || level <= 0 || level >= 1 {
		return s, 1, false
	}
	v1, v2 := deviationOf(a), deviationOf(b)
	v1, v2 = v1*v1/n1, v2*v2/n2
	s.Estimate = Mean(b) - Mean(a)
	se := math.Sqrt(v1 + v2)
	if se == 0 {
		s.Interval = Interval{s.Estimate, s.Estimate, level}
		if s.Estimate == 0 {
			return s, 1, true
		}
		return s, 0, true
	}
	df := (v1 + v2) * (v1 + v2) / (v1*v1/(n1-1) + v2*v2/(n2-1))
	t := distuv.StudentsT{Sigma: 1, Nu: df}
	half := t.Quantile((1+level)/2) * se
	s.Interval = Interval{s.Estimate - half, s.Estimate + half, level}
	return s, min(1, 2*t.Survival(math.Abs(s.Estimate)/se)), true
}

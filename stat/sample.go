package stat

import (
	"math"
	"slices"
)

// Quantile is the nearest-rank quantile: the ⌈n·q⌉-th smallest value. It never
// interpolates, so it is always a value that was observed.
//
// ok is false where the sample cannot carry the quantile: no samples at all,
// or, above the median, fewer than 1/(1−q) of them (p90 needs 10, p99 needs
// 100). Below that the answer would only be the maximum under a grander name.
func Quantile(xs []float64, q float64) (value float64, ok bool) {
	if !Carries(len(xs), q) {
		return 0, false
	}
	return QuantileSorted(sorted(xs), q), true
}

// Carries says whether n samples are enough for the quantile q.
func Carries(n int, q float64) bool {
	if n == 0 || q < 0 || q > 1 || math.IsNaN(q) {
		return false
	}
	if q == 1 || q <= 0.5 {
		return true
	}
	// The half keeps 1/(1−0.99) = 100.00000000000009 from asking for 101.
	return float64(n)+0.5 >= 1/(1-q)
}

// QuantileSorted is Quantile without its guard, for values in ascending order.
// It panics on an empty slice.
func QuantileSorted(xs []float64, q float64) float64 {
	// The tiny amount keeps 0.99·100 = 99.00000000000001 at rank 99.
	rank := int(math.Ceil(float64(len(xs))*q - 1e-9))
	return xs[min(max(rank, 1), len(xs))-1]
}

// Median is the middle value, or the mean of the two middle ones. It is NaN
// for no values.
func Median(xs []float64) float64 {
	n := len(xs)
	if n == 0 {
		return math.NaN()
	}
	s := sorted(xs)
	if n%2 == 1 {
		return s[n/2]
	}
	return s[n/2-1]/2 + s[n/2]/2
}

// Mean is the arithmetic mean, NaN for no values.
func Mean(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	return Sum(xs) / float64(len(xs))
}

// Sum adds with Neumaier's compensation, so that the order of a million small
// values does not show in the result.
func Sum(xs []float64) float64 {
	var sum, lost float64
	for _, x := range xs {
		t := sum + x
		if math.Abs(sum) >= math.Abs(x) {
			lost += (sum - t) + x
		} else {
			lost += (x - t) + sum
		}
		sum = t
	}
	return sum + lost
}

// Interval is a range that covers the true value with at least Level.
type Interval struct {
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	Level float64 `json:"level"` // what is really reached, ≥ what was asked for
}

// MedianCI is the distribution-free interval of the median by order statistics:
// the number of values below the true median is binomial(n, 1/2), so
// [x₍ₖ₎, x₍ₙ₊₁₋ₖ₎] covers it with 1 − 2·P(B ≤ k−1) (David and Nagaraja, Order
// Statistics, 7.1). ok is false where even the whole range covers less than
// level: fewer than 6 values at 95 %.
func MedianCI(xs []float64, level float64) (ci Interval, ok bool) {
	n := len(xs)
	if n == 0 || level <= 0 || level >= 1 {
		return Interval{}, false
	}
	s := sorted(xs)
	// Walk inward from the extremes while the cover stays above level.
	tail := math.Exp(-float64(n) * math.Ln2) // P(B = 0)
	term := tail
	for k := 1; k <= (n+1)/2; k++ {
		cover := 1 - 2*tail
		if cover < level {
			break
		}
		ci, ok = Interval{s[k-1], s[n-k], cover}, true
		term *= float64(n-k+1) / float64(k) // P(B = k)
		tail += term
	}
	return ci, ok
}

// madScale makes the MAD of a normal sample estimate its standard deviation.
const madScale = 1.4826

// MAD is the scaled median absolute deviation from the median: a spread that
// half of the values could be outliers of. NaN for no values.
func MAD(xs []float64) float64 {
	m := Median(xs)
	d := make([]float64, len(xs))
	for i, x := range xs {
		d[i] = math.Abs(x - m)
	}
	return madScale * Median(d)
}

// RobustZ says how many robust standard deviations x lies above the median of
// the healthy values. ok is false for fewer than 3 values or where they do not
// vary at all: then any distance would be infinitely many deviations.
func RobustZ(x float64, healthy []float64) (z float64, ok bool) {
	if len(healthy) < 3 {
		return 0, false
	}
	mad := MAD(healthy)
	if mad == 0 {
		return 0, false
	}
	return (x - Median(healthy)) / mad, true
}

// CV is the coefficient of variation: standard deviation over mean. ok is
// false for fewer than 2 values or a mean of 0.
func CV(xs []float64) (cv float64, ok bool) {
	if len(xs) < 2 {
		return 0, false
	}
	m := Mean(xs)
	if m == 0 {
		return 0, false
	}
	d := make([]float64, len(xs))
	for i, x := range xs {
		d[i] = (x - m) * (x - m)
	}
	return math.Sqrt(Sum(d)/float64(len(xs)-1)) / math.Abs(m), true
}

func sorted(xs []float64) []float64 {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s
}

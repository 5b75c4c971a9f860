package stat

import (
	"math"
	"slices"
)

// Line is a fitted straight line.
type Line struct {
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
	R2        float64 `json:"r2"` // share of the variance that the line explains
}

// LeastSquares fits y = Intercept + Slope·x. ok is false for fewer than 2
// points or where x does not vary.
func LeastSquares(x, y []float64) (l Line, ok bool) {
	if len(x) != len(y) || len(x) < 2 {
		return l, false
	}
	mx, my := Mean(x), Mean(y)
	var sxx, sxy, syy float64
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		sxx += dx * dx
		sxy += dx * dy
		syy += dy * dy
	}
	if sxx == 0 {
		return l, false
	}
	l.Slope = sxy / sxx
	l.Intercept = my - l.Slope*mx
	l.R2 = 1
	if syy > 0 {
		l.R2 = sxy * sxy / (sxx * syy)
	}
	return l, true
}

// theilSenMax bounds the pairs of TheilSen to about half a million; beyond it,
// every k-th point is used.
const theilSenMax = 1000

// TheilSen is the median slope over all pairs of points: up to 29 % of them may
// be outliers without moving it far (Sen 1968). ok is false where no two
// points differ in x.
func TheilSen(x, y []float64) (slope float64, ok bool) {
	if len(x) != len(y) {
		return 0, false
	}
	step := 1 + (len(x)-1)/theilSenMax
	var s []float64
	for i := 0; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			if x[j] != x[i] {
				s = append(s, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	if len(s) == 0 {
		return 0, false
	}
	slices.Sort(s)
	return Median(s), true
}

// Trend tests whether y goes up or down with x: Kendall's rank correlation tau
// with the normal approximation of its significance, ties in x and y reckoned
// with (Kendall 1970, Rank Correlation Methods, chapter 4). It asks nothing of
// the distribution of y, and one outlier counts as one point. p is two-sided; ok
// is false for fewer than 8 points, for which the approximation is not good,
// and where x or y does not vary.
func Trend(x, y []float64) (tau, p float64, ok bool) {
	n := len(x)
	if n < 8 || n != len(y) {
		return 0, 0, false
	}
	s := 0.0
	for i := range n {
		for j := range i {
			s += sign(x[i]-x[j]) * sign(y[i]-y[j])
		}
	}
	tx, ty := tiesOf(x), tiesOf(y)
	m := float64(n)
	pairs := m * (m - 1) / 2
	if tx.pairs == pairs || ty.pairs == pairs {
		return 0, 0, false
	}
	v := (m*(m-1)*(2*m+5) - tx.v - ty.v) / 18
	v += tx.v1 * ty.v1 / (2 * m * (m - 1))
	v += tx.v2 * ty.v2 / (9 * m * (m - 1) * (m - 2))
	// One pair more or less is half a step of the discrete statistic.
	z := (math.Abs(s) - 1) / math.Sqrt(v)
	return s / math.Sqrt((pairs-tx.pairs)*(pairs-ty.pairs)), min(1, math.Erfc(max(0, z)/math.Sqrt2)), true
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// ties are the sums over groups of t equal values that Trend needs.
type ties struct{ pairs, v, v1, v2 float64 }

func tiesOf(xs []float64) (sum ties) {
	sorted := slices.Clone(xs)
	slices.Sort(sorted)
	for i := 0; i < len(sorted); {
		j := i
		for j < len(sorted) && sorted[j] == sorted[i] {
			j++
		}
		t := float64(j - i)
		sum.pairs += t * (t - 1) / 2
		sum.v += t * (t - 1) * (2*t + 5)
		sum.v1 += t * (t - 1)
		sum.v2 += t * (t - 1) * (t - 2)
		i = j
	}
	return sum
}

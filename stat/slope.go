package stat

import "slices"

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

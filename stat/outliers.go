package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Outliers are the indexes of values that normal samples would not have, the
// farthest first: the generalised extreme Studentized deviate test for up to
// most of them (Rosner 1983), which two outliers cannot hide each other from.
// A sample without any is accused with a chance of about alpha. ok is false
// for fewer than 5 values: there every distance is usual.
func Outliers(xs []float64, most int, alpha float64) (at []int, ok bool) {
	n := len(xs)
	if n < 5 {
		return nil, false
	}
	left := make([]int, n)
	for i := range left {
		left[i] = i
	}
	var order []int
	outside := 0
	for i := 1; i <= most && len(left) > 3; i++ {
		values := make([]float64, len(left))
		for j, k := range left {
			values[j] = xs[k]
		}
		mean, spread := Mean(values), deviationOf(values)
		far, r := 0, 0.0
		for j, v := range values {
			if d := math.Abs(v - mean); d > r {
				far, r = j, d
			}
		}
		if spread == 0 {
			break
		}
		order = append(order, left[far])
		left = append(left[:far:far], left[far+1:]...)
		// n − i + 1 values are compared.
		m := float64(n - i + 1)
		t := distuv.StudentsT{Sigma: 1, Nu: m - 2}.Quantile(1 - alpha/(2*m))
		if limit := (m - 1) * t / math.Sqrt((m-2+t*t)*m); r/spread > limit {
			outside = i
		}
	}
	return order[:outside], true
}

// Drift is how a series moves with the order of its runs.
type Drift struct {
	Total float64 `json:"total"` // from the first to the last, in the series' unit
	P     float64 `json:"p"`     // of Trend
}

// DriftOf says whether values drift with the order in which they were taken:
// the slope of Theil and Sen over all of it, tested by Kendall's tau. ok is
// false where Trend is not assessed: below 8 values.
func DriftOf(xs []float64) (d Drift, ok bool) {
	order := make([]float64, len(xs))
	for i := range order {
		order[i] = float64(i)
	}
	_, p, ok := Trend(order, xs)
	if !ok {
		return d, false
	}
	slope, ok := TheilSen(order, xs)
	return Drift{slope * float64(len(xs)-1), p}, ok
}

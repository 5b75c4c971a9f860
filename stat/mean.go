package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// MeanCI is Student's interval of the mean (Student 1908): exact for normal
// values, and close for means over a stretch of time, which are sums of many
// small things. ok is false for fewer than 2 values, of whose spread nothing is
// known.
func MeanCI(xs []float64, level float64) (ci Interval, ok bool) {
	n := len(xs)
	if n < 2 || level <= 0 || level >= 1 {
		return ci, false
	}
	half := distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile(1-(1-level)/2) * deviationOf(xs) / math.Sqrt(float64(n))
	m := Mean(xs)
	return Interval{m - half, m + half, level}, true
}

package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Welch is the two-sided P value of the t-test for two means of samples that may
// vary differently (Welch 1947), with Satterthwaite's degrees of freedom; 1 for
// fewer than 2 values a side.
func Welch(a, b []float64) float64 {
	n, m := float64(len(a)), float64(len(b))
	if n < 2 || m < 2 {
		return 1
	}
	va, vb := deviationOf(a), deviationOf(b)
	va, vb = va*va/n, vb*vb/m
	d := math.Abs(Mean(a) - Mean(b))
	if va+vb == 0 {
		if d == 0 {
			return 1
		}
		return 0
	}
	nu := (va + vb) * (va + vb) / (va*va/(n-1) + vb*vb/(m-1))
	return 2 * distuv.StudentsT{Sigma: 1, Nu: nu}.Survival(d/math.Sqrt(va+vb))
}

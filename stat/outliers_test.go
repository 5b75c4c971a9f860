package stat

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Rosner's example (Technometrics 1983), also in the NIST/SEMATECH e-Handbook,
// 1.3.5.17.3: 3 of the 54 values are outliers, although tests for one or two
// of them find none.
func TestOutliers(t *testing.T) {
	xs := []float64{-0.25, 0.68, 0.94, 1.15, 1.20, 1.26, 1.26, 1.34, 1.38, 1.43, 1.49, 1.49, 1.55, 1.56, 1.58, 1.65, 1.69, 1.70, 1.76, 1.77, 1.81, 1.91, 1.94, 1.96, 1.99, 2.06, 2.09, 2.10, 2.14, 2.15, 2.23, 2.24, 2.26, 2.35, 2.37, 2.40, 2.47, 2.54, 2.62, 2.64, 2.90, 2.92, 2.92, 2.93, 3.21, 3.26, 3.30, 3.59, 3.68, 4.30, 4.64, 5.34, 5.42, 6.01}
	if at, ok := Outliers(xs, 10, 0.05); !ok || !slices.Equal(at, []int{53, 52, 51}) {
		t.Errorf("outliers at %v, %v", at, ok)
	}
	if at, _ := Outliers(xs, 1, 0.05); len(at) != 0 {
		t.Errorf("one alone: %v", at)
	}
	if _, ok := Outliers(xs[:4], 1, 0.05); ok {
		t.Error("4 values are too few")
	}
	if at, ok := Outliers([]float64{3, 3, 3, 3, 3, 3}, 2, 0.05); !ok || len(at) != 0 {
		t.Errorf("equal values: %v, %v", at, ok)
	}
	rng := rand.New(rand.NewPCG(61, 1))
	accused := 0
	for range 2000 {
		if at, _ := Outliers(draw(rng, noises["normal"], 8, 0), 2, 0.01); len(at) > 0 {
			accused++
		}
	}
	if accused > 40 { // 20 expected; the second look adds some
		t.Errorf("%d of 2000 healthy samples are accused", accused)
	}
}

func TestDriftOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(62, 1))
	xs := draw(rng, noises["normal"], 20, 100)
	for i := range xs {
		xs[i] += float64(i)
	}
	if d, ok := DriftOf(xs); !ok || d.P > 0.001 || d.Total < 15 || d.Total > 23 {
		t.Errorf("19 were planted: %+v, %v", d, ok)
	}
	if _, ok := DriftOf(xs[:7]); ok {
		t.Error("7 values are too few")
	}
}

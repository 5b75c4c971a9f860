package stat

import (
	"math/rand/v2"
	"testing"
)

func TestMeanCI(t *testing.T) {
	if _, ok := MeanCI([]float64{1}, 0.95); ok {
		t.Error("one value has an interval")
	}
	// t(0.975, 2) = 4.3027; the standard error of 1, 2, 3 is 1/√3.
	ci, ok := MeanCI([]float64{1, 2, 3}, 0.95)
	if !ok {
		t.Fatal("no interval of three values")
	}
	near(t, "lower end", ci.Lo, 2-2.4841, 1e-3)
	near(t, "upper end", ci.Hi, 2+2.4841, 1e-3)
	rng := rand.New(rand.NewPCG(1, 2))
	covered := 0
	const tries = 4000
	for range tries {
		xs := make([]float64, 4)
		for i := range xs {
			xs[i] = 5 + rng.NormFloat64()
		}
		if ci, _ := MeanCI(xs, 0.95); ci.Lo <= 5 && 5 <= ci.Hi {
			covered++
		}
	}
	if share := float64(covered) / tries; share < 0.94 || share > 0.96 {
		t.Errorf("%.1f %% of the intervals cover the mean", 100*share)
	}
}

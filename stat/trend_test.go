package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The values follow from the definition.
func TestTrend(t *testing.T) {
	up := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	down := []float64{8, 7, 6, 5, 4, 3, 2, 1}
	if tau, p, ok := Trend(up, up); !ok || tau != 1 || p > 0.001 {
		t.Errorf("the same order: tau %g, p %g, %t; want 1 and a small p", tau, p, ok)
	}
	if tau, p, ok := Trend(up, down); !ok || tau != -1 || p > 0.001 {
		t.Errorf("the opposite order: tau %g, p %g, %t; want -1 and a small p", tau, p, ok)
	}
	// 28 pairs; one swap of neighbours makes one of them discordant: 26/28.
	swapped := []float64{1, 2, 3, 4, 5, 6, 8, 7}
	if tau, _, _ := Trend(up, swapped); math.Abs(tau-26.0/28) > 1e-12 {
		t.Errorf("one swap: tau %g, want %g", tau, 26.0/28)
	}
	if _, _, ok := Trend(up[:7], up[:7]); ok {
		t.Error("7 points are too few")
	}
	if _, _, ok := Trend(up, make([]float64, 8)); ok {
		t.Error("values that are all equal have no trend")
	}
}

// Without a trend, p is below 0.05 in about 5 of 100 samples, with ties too.
func TestTrendIsCalibrated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, steps := range []int{0, 4} { // 0: no ties
		const samples = 4000
		hits := 0
		for range samples {
			x, y := make([]float64, 12), make([]float64, 12)
			for i := range x {
				x[i], y[i] = float64(i), r.Float64()
				if steps > 0 {
					y[i] = math.Floor(y[i] * float64(steps))
				}
			}
			if _, p, ok := Trend(x, y); ok && p < 0.05 {
				hits++
			}
		}
		if share := float64(hits) / samples; share < 0.025 || share > 0.065 {
			t.Errorf("%d steps: %.3f of samples without a trend had p < 0.05", steps, share)
		}
	}
}

// Theil's slope and the trend agree in sign, whatever the values.
func TestTrendAgreesWithSlope(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		x, y := make([]float64, 20), make([]float64, 20)
		for i := range x {
			x[i], y[i] = r.NormFloat64(), r.NormFloat64()
			y[i] += 2 * x[i]
		}
		tau, p, ok := Trend(x, y)
		slope, _ := TheilSen(x, y)
		if !ok || tau <= 0 || slope <= 0 || p > 0.05 {
			t.Fatalf("a slope of 2 in noise of 1: tau %g, p %g, slope %g", tau, p, slope)
		}
	}
}

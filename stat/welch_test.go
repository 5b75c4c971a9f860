package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWelch(t *testing.T) {
	a, b := []float64{1, 2, 3, 4}, []float64{2, 4, 6, 8}
	// t = 1.7321 with 4.41 degrees of freedom.
	if p := Welch(a, b); math.Abs(p-0.151) > 0.003 || p != Welch(b, a) {
		t.Errorf("p %v, the other way %v", p, Welch(b, a))
	}
	for _, x := range []struct {
		a, b []float64
		want float64
	}{{[]float64{1}, b, 1}, {nil, nil, 1}, {[]float64{2, 2}, []float64{2, 2}, 1}, {[]float64{2, 2}, []float64{3, 3}, 0}} {
		if p := Welch(x.a, x.b); p != x.want {
			t.Errorf("%v and %v: %v, want %v", x.a, x.b, p, x.want)
		}
	}
	// Samples of one distribution are taken for two as often as it says, or less.
	rng := rand.New(rand.NewPCG(1, 2))
	wrong, rounds := 0, 4000
	for range rounds {
		var a, b []float64
		for range 4 {
			a, b = append(a, rng.NormFloat64()), append(b, rng.NormFloat64())
		}
		if Welch(a, b) <= 0.05 {
			wrong++
		}
	}
	if share := float64(wrong) / float64(rounds); share > 0.06 || share < 0.02 {
		t.Errorf("wrong in %.3f", share)
	}
}

package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestPowerAgreesWithScipy(t *testing.T) {
	for _, v := range computed(t).Power {
		near(t, "power", Power(v.Effect, v.N1, v.N2, v.Critical), v.Power, 1e-6)
	}
}

// Cohen (1988, Statistical Power Analysis, table 2.4.1): 64 a side for half a
// deviation, 26 for 0.8, at 5 % and a power of 0.8.
func TestRepetitions(t *testing.T) {
	for effect, want := range map[float64]int{0.5: 64, 0.8: 26} {
		if n, ok := Repetitions(effect, 0.05, 0.8); !ok || n != want {
			t.Errorf("for %v deviations %d repetitions, want %d", effect, n, want)
		}
	}
	if _, ok := Repetitions(0, 0.05, 0.8); ok {
		t.Error("no number of runs finds nothing")
	}
	if _, ok := Repetitions(1e-9, 0.05, 0.8); ok {
		t.Error("nobody makes that many runs")
	}
}

// What is said to be found in 9 of 10 series is.
func TestMinimumEffect(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	for _, n := range []int{4, 10} {
		c := distuv.StudentsT{Sigma: 1, Nu: float64(2*n - 2)}.Quantile(0.995)
		near(t, "level", LevelOf(c, n, n), 0.01, 1e-9)
		effect := MinimumEffect(n, n, c, 0.9)
		found := 0
		const trials = 2000
		for range trials {
			a, b := draw(rng, noises["normal"], n, 0), draw(rng, noises["normal"], n, effect)
			se := math.Sqrt((deviationOf(a)*deviationOf(a) + deviationOf(b)*deviationOf(b)) / float64(n))
			if math.Abs(Mean(b)-Mean(a))/se >= c {
				found++
			}
		}
		if share := float64(found) / trials; math.Abs(share-0.9) > 0.02 {
			t.Errorf("n=%d: an effect of %.2f deviations is found in %.3f of trials", n, effect, share)
		}
	}
	if !math.IsInf(MinimumEffect(3, 3, math.Inf(1), 0.9), 1) || !math.IsInf(MinimumEffect(1, 5, 2, 0.9), 1) {
		t.Error("too few runs find nothing, however large")
	}
}

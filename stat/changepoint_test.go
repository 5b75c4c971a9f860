package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of a series with two changes both are found within a run of where they are,
// and nothing else; of one without, nothing.
func TestChanges(t *testing.T) {
	const trials = 100
	exact, more, false1 := 0, 0, 0
	for seed := range uint64(trials) {
		rng := rand.New(rand.NewPCG(51, seed))
		xs, flat := make([]float64, 40), make([]float64, 40)
		for i := range xs {
			level := 100.0
			if i >= 14 {
				level = 120
			}
			if i >= 27 {
				level = 100
			}
			xs[i], flat[i] = level*(1+0.04*rng.NormFloat64()), 100*(1+0.04*rng.NormFloat64())
		}
		o := ChangeOptions{Seed: seed, MinEffect: 0.05, Permutations: 199}
		cs := Changes(xs, o)
		if len(cs) > 2 {
			more++
		}
		if len(cs) == 2 && math.Abs(float64(cs[0].At-14)) <= 1 && math.Abs(float64(cs[1].At-27)) <= 1 {
			exact++
		}
		if len(Changes(flat, o)) > 0 {
			false1++
		}
	}
	t.Logf("both within ± 1 in %d of %d, more than two in %d; of flat ones %d with a change", exact, trials, more, false1)
	if exact < 95 || more > 3 || false1 > 4 {
		t.Errorf("both within ± 1 in %d of %d, more than two in %d; of flat ones %d with a change", exact, trials, more, false1)
	}
}

func TestChangesThatNobodyFeels(t *testing.T) {
	var xs []float64
	for i := range 30 {
		x := 100 + 0.1*float64(i%3)
		if i >= 15 {
			x += 1
		}
		xs = append(xs, x)
	}
	if cs := Changes(xs, ChangeOptions{}); len(cs) != 1 || cs[0].At != 15 || cs[0].After <= cs[0].Before {
		t.Errorf("%+v", cs)
	}
	if cs := Changes(xs, ChangeOptions{MinEffect: 0.05}); len(cs) != 0 {
		t.Errorf("1 %% is below 5 %%: %+v", cs)
	}
	if cs := Changes(xs[:9], ChangeOptions{}); len(cs) != 0 {
		t.Errorf("9 values have no two stretches of 5: %+v", cs)
	}
}

package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// sampled is a table of functions as profiles of runs have it: shares that
// vary from run to run, and rare functions that few runs happen to see.
func sampled(rng *rand.Rand, runs int, by map[string]float64) []measured {
	var out []measured
	for range runs {
		m := measured{}
		for i := range 120 {
			key := keyOf("kube-apiserver", fmt.Sprintf("f%03d", i))
			share := 0.5 + float64(i)/10
			if factor, ok := by[key]; ok {
				share *= factor
			}
			// About 20 samples to the percent.
			seen := math.Round(20*share + math.Sqrt(20*share)*rng.NormFloat64())
			if i%4 == 0 && rng.Float64() < 0.7 {
				seen = 0
			}
			if seen > 0 {
				m[key] = []float64{seen / 20}
			}
		}
		out = append(out, m)
	}
	return out
}

func shares(a, b []measured, alpha float64) Detail {
	d := Detail{ID: functionsTable, Tested: true, Alpha: alpha, N1: len(a), N2: len(b)}
	d.Rows = detailRows(a, b, []Measure{{Name: "with what it calls", Unit: "%"}}, true, 0, 0.5)
	d.test()
	return d
}

// Functions of runs without a difference hardly ever show one, rare ones that
// few runs saw included; one that takes twice the share is found, and so is
// what is new and what is gone.
func TestFunctionsThatMoved(t *testing.T) {
	const trials = 200
	for _, n := range []int{3, 5, 8} {
		rng := rand.New(rand.NewPCG(91, uint64(n)))
		wrong, found := 0, 0
		for range trials {
			if d := shares(sampled(rng, n, nil), sampled(rng, n, nil), 0.02); quiet(d.Rows[0]) == 0 {
				wrong++
			}
			d := shares(sampled(rng, n, map[string]float64{keyOf("kube-apiserver", "f102"): 0}), sampled(rng, n, map[string]float64{keyOf("kube-apiserver", "f061"): 2, keyOf("kube-apiserver", "f103"): 0}), 0.05)
			verdicts := map[string]Verdict{}
			for _, r := range d.Rows {
				verdicts[r.Key[1]] = r.Verdict
				m := r.judged()
				if r.Verdict != Same && (m.Interval.Lo <= 0 && m.Interval.Hi >= 0) {
					t.Fatalf("%v is %s with the interval %v", r.Key, r.Verdict, *m.Interval)
				}
			}
			if verdicts["f061"] == More && verdicts["f102"] == New && verdicts["f103"] == Gone {
				found++
			}
		}
		t.Logf("%d runs a side: %d of %d tables with a false difference, all three changes found in %d", n, wrong, trials, found)
		if wrong > 10 { // 4 expected, + 3 deviations
			t.Errorf("%d runs a side: %d of %d tables have a false difference", n, wrong, trials)
		}
		if n >= 5 && found < trials*9/10 {
			t.Errorf("%d runs a side: all three changes found in %d of %d", n, found, trials)
		}
	}
}

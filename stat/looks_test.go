package stat

import (
	"math/rand/v2"
	"testing"
)

// The bounds that Lan and DeMets's spending gives five equal looks at 5 %, as
// the R package ldbounds prints them (and Jennison and Turnbull 2000, table
// 7.3, to three digits).
func TestLooks(t *testing.T) {
	five := []float64{0.2, 0.4, 0.6, 0.8, 1}
	for _, tt := range []struct {
		name  string
		spend Spending
		want  []float64
	}{
		{"late", LateSpending, []float64{4.877, 3.357, 2.680, 2.290, 2.031}},
		{"even", EvenSpending, []float64{2.438, 2.427, 2.410, 2.397, 2.386}},
	} {
		looks := Looks(0.05, five, tt.spend)
		for i, want := range tt.want {
			near(t, tt.name, looks[i].Bound, want, 0.0015)
		}
		near(t, tt.name+" spends", looks[4].Spent, 0.05, 1e-5)
	}
	one := Looks(0.05, []float64{1}, LateSpending)
	near(t, "one look", one[0].Level, 0.05, 1e-6)
}

// Looking after each pair of runs from the fourth on and stopping at the first
// difference errs in 5 % of series, over all indicators, and the intervals at
// the end of a series hold.
func TestLooksHoldTheLevelOfAFamily(t *testing.T) {
	const trials, pairs, first = 300, 10, 4
	var fractions []float64
	for k := first; k <= pairs; k++ {
		fractions = append(fractions, float64(k)/pairs)
	}
	for name, noise := range noises {
		rng := rand.New(rand.NewPCG(41, 1))
		looks := Looks(0.05, fractions, LateSpending)
		none, some := make([]float64, 6), []float64{0, 0, 0, 0, 2, 2}
		wrong, missed, early := 0, 0, 0
		for range trials {
			for _, by := range [][]float64{none, some} {
				a, b := dealRuns(rng, noise, 6, pairs, none), dealRuns(rng, noise, 6, pairs, by)
				for i, look := range looks {
					n := first + i
					f := TestFamily(cut(a, n), cut(b, n), FamilyOptions{Alpha: look.Level, Permutations: 999})
					differs, misses := false, false
					for j, m := range f.Members {
						differs = differs || m.Differs
						misses = misses || m.Shift.Interval.Lo > by[j] || m.Shift.Interval.Hi < by[j]
					}
					if differs && by[5] == 0 {
						wrong++
					}
					if (differs || n == pairs) && misses && by[5] > 0 {
						missed++
					}
					if differs {
						if n < pairs && by[5] > 0 {
							early++
						}
						break
					}
				}
			}
		}
		t.Logf("%-14s %d of %d series err, %d miss, %d with a difference ended early", name, wrong, trials, missed, early)
		if wrong > 26 || missed > 26 { // 15 expected, + 3 deviations
			t.Errorf("%s: %d of %d series err, in %d an interval misses", name, wrong, trials, missed)
		}
		if name == "normal" && early < trials/3 {
			t.Errorf("only %d of %d series with a difference of 2 deviations ended early", early, trials)
		}
	}
}

func cut(rows [][]float64, n int) [][]float64 {
	out := make([][]float64, len(rows))
	for i := range rows {
		out[i] = rows[i][:n]
	}
	return out
}

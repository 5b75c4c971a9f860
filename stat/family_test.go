package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// dealRuns makes runs of indicators that share a part of their noise.
func dealRuns(r *rand.Rand, noise func(*rand.Rand) float64, indicators, runs int, by []float64) [][]float64 {
	rows := make([][]float64, indicators)
	for i := range rows {
		rows[i] = make([]float64, runs)
	}
	for k := range runs {
		shared := noise(r)
		for i := range rows {
			rows[i][k] = 0.6*shared + 0.8*noise(r) + by[i]
		}
	}
	return rows
}

// Over 12 indicators the chance of any false difference is 5 %, whatever the
// noise, and intervals hold all together where sides do differ.
func TestFamilyHoldsItsLevel(t *testing.T) {
	const trials, indicators = 400, 12
	none, some := make([]float64, indicators), make([]float64, indicators)
	for i := range some {
		some[i] = float64(i % 3)
	}
	for name, noise := range noises {
		for _, n := range []int{5, 7} {
			rng := rand.New(rand.NewPCG(21, uint64(n)))
			wrong, missed := 0, 0
			for range trials {
				f := TestFamily(dealRuns(rng, noise, indicators, n, none), dealRuns(rng, noise, indicators, n, none), FamilyOptions{Permutations: 1999})
				for _, m := range f.Members {
					if m.Differs {
						wrong++
						break
					}
				}
				f = TestFamily(dealRuns(rng, noise, indicators, n, none), dealRuns(rng, noise, indicators, n, some), FamilyOptions{Permutations: 999})
				for i, m := range f.Members {
					if m.Shift.Interval.Lo > some[i] || m.Shift.Interval.Hi < some[i] {
						missed++
						break
					}
				}
			}
			t.Logf("%-14s n=%d: %d of %d families with a false difference, %d with an interval that misses", name, n, wrong, trials, missed)
			// 20 are expected; three binomial deviations above are 33.
			if wrong > 33 {
				t.Errorf("%s, n=%d: %d of %d families have a false difference", name, n, wrong, trials)
			}
			if missed > 33 {
				t.Errorf("%s, n=%d: in %d of %d families an interval misses", name, n, missed, trials)
			}
		}
	}
}

// An interval leaves out 0 wherever the test finds a difference.
func TestFamilyAgreesWithItsIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	by := []float64{0, 0.5, 1, 2, 3, 4}
	none := make([]float64, len(by))
	found, clipped := 0, 0
	for range 100 {
		f := TestFamily(dealRuns(rng, noises["normal"], len(by), 6, none), dealRuns(rng, noises["normal"], len(by), 6, by), FamilyOptions{})
		if !f.Exhaustive || f.Permutations != 924 {
			t.Fatalf("%d permutations of 6 and 6 runs, all: %v", f.Permutations, f.Exhaustive)
		}
		for i, m := range f.Members {
			without := m.Shift.Interval.Lo > 0 || m.Shift.Interval.Hi < 0
			if without && !m.Differs {
				t.Fatalf("member %d: %+v", i, m)
			}
			if m.Differs {
				found++
				// Where the joint test says more than the interval could, the
				// interval ends at 0 and holds what was measured.
				iv, reach := m.Shift.Interval, f.Critical*m.SE
				if iv.Lo < 0 && iv.Hi > 0 || iv.Lo > m.Shift.Estimate || iv.Hi < m.Shift.Estimate {
					t.Fatalf("member %d differs by %v, and its interval is %v", i, m.Shift.Estimate, iv)
				}
				if math.Abs(m.Shift.Estimate) < reach {
					clipped++
					if iv.Lo != 0 && iv.Hi != 0 {
						t.Fatalf("member %d: %v", i, iv)
					}
				}
			}
			if m.Adjusted < m.P {
				t.Fatalf("member %d: adjusted %v below %v", i, m.Adjusted, m.P)
			}
		}
	}
	if found == 0 {
		t.Error("nothing was found")
	}
	if clipped == 0 {
		t.Error("no interval had to end at 0")
	}
}

func TestFamilySaysWhatItCannot(t *testing.T) {
	nan := math.NaN()
	a := [][]float64{{1, 2, 3, 4, 5}, {1, nan, nan, nan, nan}, {7, 7, 7, 7, 7}, {1, 1, 1, 1, 1}}
	b := [][]float64{{11, 12, 13, 14, 15}, {1, 2, 3, 4, 5}, {7, 7, 7, 7, 7}, {2, 2, 2, 2, 2}}
	f := TestFamily(a, b, FamilyOptions{})
	for i, want := range []struct{ ok, differs bool }{{true, true}, {false, false}, {true, false}, {true, true}} {
		if m := f.Members[i]; m.OK != want.ok || m.Differs != want.differs {
			t.Errorf("member %d: %+v", i, m)
		}
	}
	// Complete separation of 5 and 5 runs, and its mirror, are 2 of 252 ways.
	near(t, "P", f.Members[0].P, 2.0/252, 1e-12)
	// 3 and 3 runs can be divided in 20 ways: 2 of them are more than 5 %.
	few := TestFamily([][]float64{{1, 2, 3}}, [][]float64{{101, 102, 103}}, FamilyOptions{})
	if !math.IsInf(few.Critical, 1) || few.Members[0].Differs || !math.IsInf(few.Members[0].Shift.Interval.Hi, 1) {
		t.Errorf("3 and 3 runs: %+v", few)
	}
	if p, ok := Permutation([]float64{1}, []float64{2}, 1); ok {
		t.Errorf("one run each: %v", p)
	}
}

// Drawing permutations comes out as looking at all of them does.
func TestFamilyDrawsAsItEnumerates(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	by := []float64{0, 1, 1.5}
	a, b := dealRuns(rng, noises["normal"], 3, 7, make([]float64, 3)), dealRuns(rng, noises["normal"], 3, 7, by)
	all, some := TestFamily(a, b, FamilyOptions{}), TestFamily(a, b, FamilyOptions{Permutations: 3000, Seed: 5})
	if !all.Exhaustive || some.Exhaustive {
		t.Fatalf("%v and %v", all.Exhaustive, some.Exhaustive)
	}
	for i := range by {
		p, q := all.Members[i].Adjusted, some.Members[i].Adjusted
		if math.Abs(p-q) > 4*math.Sqrt(p*(1-p)/3000)+1.0/3000 {
			t.Errorf("member %d: %v of all, %v of some", i, p, q)
		}
	}
}

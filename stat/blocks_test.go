package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// blocksOf draws indicators of arms in blocks: what a block has in common is
// large, and indicators move together.
func blocksOf(rng *rand.Rand, indicators, blocks, arms int, effect func(indicator, arm int) float64) [][][]float64 {
	y := make([][][]float64, indicators)
	for b := range blocks {
		common := 10 * rng.NormFloat64()
		shared := make([]float64, arms)
		for a := range shared {
			shared[a] = rng.NormFloat64()
		}
		for i := range y {
			row := make([]float64, arms)
			for a := range row {
				row[a] = common + (shared[a]+rng.NormFloat64())/math.Sqrt2 + effect(i, a)
			}
			y[i] = append(y[i], row)
		}
		_ = b
	}
	return y
}

// Without a difference anything is found in at most 5 % of all sweeps, and with
// one arm that differs much the others are found as seldom.
func TestBlocksKeepTheirLevel(t *testing.T) {
	pairs := [][2]int{{0, 1}, {0, 2}, {0, 3}}
	const trials = 400
	for name, effect := range map[string]func(i, a int) float64{
		"none":    func(int, int) float64 { return 0 },
		"one arm": func(_, a int) float64 { return map[int]float64{3: 50}[a] },
	} {
		rng := rand.New(rand.NewPCG(5, 7))
		wrong, missed, uncovered := 0, 0, 0
		for n := range trials {
			f := TestBlocks(blocksOf(rng, 5, 5, 4, effect), pairs, FamilyOptions{Seed: uint64(n), Permutations: 499})
			any, out := false, false
			for i := range f.Contrasts {
				for k, c := range f.Contrasts[i] {
					truth := effect(i, pairs[k][1])
					any = any || c.Differs && truth == 0
					out = out || c.Shift.Interval.Lo > truth || c.Shift.Interval.Hi < truth
					if truth != 0 && !c.Differs {
						missed++
					}
				}
			}
			if any {
				wrong++
			}
			if out {
				uncovered++
			}
		}
		t.Logf("%s: %d of %d sweeps wrong, %d with an interval that does not hold, %d missed", name, wrong, trials, uncovered, missed)
		// 20 are expected, and 3 deviations more are 33.
		if wrong > 33 || uncovered > 40 || missed > 0 {
			t.Errorf("%s: of %d sweeps %d are wrong, %d do not cover, %d differences are missed", name, trials, wrong, uncovered, missed)
		}
	}
}

// Two arms are a paired t test.
func TestBlocksOfTwo(t *testing.T) {
	// The differences over their standard error, by hand.
	a, b := []float64{2.8, 2.7, 3.6, 3.9, 4.1, 4.0, 3.2}, []float64{3.1, 2.9, 4.2, 3.8, 5.0, 4.4, 3.9}
	const want = 3.3824
	var y [][]float64
	for i := range a {
		y = append(y, []float64{a[i], b[i]})
	}
	f := TestBlocks([][][]float64{y}, [][2]int{{0, 1}}, FamilyOptions{Permutations: 1999})
	c := f.Contrasts[0][0]
	near(t, "t", c.Shift.Estimate/c.SE, want, 1e-3)
	if !c.OK || c.N != 7 || !c.Differs || c.Adjusted > 0.05 {
		t.Errorf("%+v", c)
	}
	// A block without a value on one side is left out; one block is none.
	y[2][1] = math.NaN()
	if c := TestBlocks([][][]float64{y}, [][2]int{{0, 1}}, FamilyOptions{Permutations: 99}).Contrasts[0][0]; c.N != 6 {
		t.Errorf("%+v", c)
	}
	if c := TestBlocks([][][]float64{y[:1]}, [][2]int{{0, 1}}, FamilyOptions{Permutations: 99}).Contrasts[0][0]; c.OK || c.Differs {
		t.Errorf("%+v", c)
	}
	if f := TestBlocks(nil, nil, FamilyOptions{}); len(f.Contrasts) != 0 {
		t.Errorf("%+v", f)
	}
}

// The slope is found whatever blocks have in common, and its interval holds.
func TestBlockSlope(t *testing.T) {
	x := []float64{1, 2, 3, 4}
	rng := rand.New(rand.NewPCG(11, 3))
	const trials = 1000
	held := 0
	for range trials {
		y := blocksOf(rng, 1, 4, 4, func(_, a int) float64 { return 0.7 * x[a] })[0]
		s, _, ok := BlockSlope(x, y, 0.95)
		if !ok {
			t.Fatal("no slope")
		}
		if s.Interval.Lo <= 0.7 && 0.7 <= s.Interval.Hi {
			held++
		}
	}
	if held < trials*93/100 || held > trials*97/100 {
		t.Errorf("%d of %d intervals hold", held, trials)
	}
	if _, _, ok := BlockSlope([]float64{1, 1, 2}, [][]float64{{1, 2, 3}, {2, 3, 4}}, 0.95); ok {
		t.Error("a slope of two values")
	}
}

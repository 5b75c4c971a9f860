package stat

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// computed holds values that scipy computed; its "origin" says by what.
func computed(t *testing.T) (c struct {
	TwoSamples []struct {
		A, B                []float64
		P, Lo, Hi           float64
		Permutation         *float64
		MannWhitney, Energy float64
	}
	Power []struct {
		N1, N2                  int
		Effect, Critical, Power float64
	}
	BenjaminiHochberg struct{ P, Adjusted []float64 }
}) {
	t.Helper()
	data, err := os.ReadFile("testdata/scipy.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.TwoSamples) == 0 || len(c.Power) == 0 {
		t.Fatal("no values")
	}
	return c
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestTwoSamplesAgreesWithScipy(t *testing.T) {
	for _, v := range computed(t).TwoSamples {
		s, p, ok := MeanShift(v.A, v.B, 0.95)
		if !ok {
			t.Fatal("not ok")
		}
		near(t, "Welch's P", p, v.P, 1e-9)
		near(t, "Welch's lower end", s.Interval.Lo, v.Lo, 1e-7)
		near(t, "Welch's upper end", s.Interval.Hi, v.Hi, 1e-7)
		c, _ := Compare(v.A, v.B, 0.05)
		near(t, "Mann and Whitney's P", c.P, v.MannWhitney, 1e-9)
		if v.Permutation != nil {
			p, _ := Permutation(v.A, v.B, 1)
			near(t, "permutation P", p, *v.Permutation, 1e-9)
		}
		n, m := len(v.A), len(v.B)
		_, q := bestSplit(slices.Concat(v.A, v.B), []int{0, n + m}, min(n, m))
		if n == m { // the only split
			near(t, "energy distance", q, float64(n*m)/float64(n+m)*v.Energy*v.Energy, 1e-9)
		}
	}
	bh := computed(t).BenjaminiHochberg
	for i, p := range BenjaminiHochberg(bh.P) {
		near(t, "Benjamini and Hochberg's P", p, bh.Adjusted[i], 1e-12)
	}
}

// The 15 P values of Benjamini and Hochberg's example (1995, section 4.1): of
// them Holm's method believes 3, theirs 4.
func TestHolm(t *testing.T) {
	ps := computed(t).BenjaminiHochberg.P
	count := func(adjusted []float64) (n int) {
		for _, p := range adjusted {
			if p <= 0.05 {
				n++
			}
		}
		return n
	}
	if n := count(Holm(ps)); n != 3 {
		t.Errorf("Holm believes %d", n)
	}
	if n := count(BenjaminiHochberg(ps)); n != 4 {
		t.Errorf("Benjamini and Hochberg believe %d", n)
	}
	rapid.Check(t, func(t *rapid.T) {
		ps := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 20).Draw(t, "ps")
		h, b := Holm(ps), BenjaminiHochberg(ps)
		for i := range ps {
			if !(ps[i] <= b[i]+1e-12 && b[i] <= h[i]+1e-12 && h[i] <= 1) {
				t.Fatalf("P %v, Benjamini-Hochberg %v, Holm %v", ps[i], b[i], h[i])
			}
		}
	})
}

// The water permeability of membranes in Hollander and Wolfe, example 4.1, and
// what their examples 4.3 and 4.4 find: 0.305, and [−0.15, 0.76] at 96 %.
func TestHodgesLehmann(t *testing.T) {
	at26 := []float64{1.15, 0.88, 0.90, 0.74, 1.21}
	term := []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}
	s, ok := HodgesLehmann(at26, term, 0.95)
	if !ok {
		t.Fatal("not ok")
	}
	near(t, "estimate", s.Estimate, 0.305, 1e-9)
	near(t, "lower end", s.Interval.Lo, -0.15, 1e-9)
	near(t, "upper end", s.Interval.Hi, 0.76, 1e-9)
	near(t, "level", s.Interval.Level, 0.96, 0.002)
	if _, ok := HodgesLehmann([]float64{1, 2, 3}, []float64{4, 5, 6}, 0.95); ok {
		t.Error("3 and 3 values carry no 95 %")
	}
	// Beyond the exact sizes the approximation goes on where it left off.
	rng := rand.New(rand.NewPCG(1, 1))
	a, b := make([]float64, 26), make([]float64, 26)
	for i := range a {
		a[i], b[i] = rng.NormFloat64(), rng.NormFloat64()
	}
	exact, _ := HodgesLehmann(a[:25], b[:25], 0.95)
	normal, _ := HodgesLehmann(a, b, 0.95)
	if w, v := exact.Interval.Hi-exact.Interval.Lo, normal.Interval.Hi-normal.Interval.Lo; math.Abs(w/v-1) > 0.15 {
		t.Errorf("interval of 25 values is %v wide, of 26 %v", w, v)
	}
}

// What is true of any estimate of a shift: moving one side moves it as much,
// and exchanging the sides turns it round.
func TestShiftsFollowTheirSamples(t *testing.T) {
	kinds := map[string]func(a, b []float64) (Shift, bool){
		"HodgesLehmann": func(a, b []float64) (Shift, bool) { return HodgesLehmann(a, b, 0.95) },
		"MedianShift":   func(a, b []float64) (Shift, bool) { return MedianShift(a, b, 0.95, 1) },
		"MeanShift":     func(a, b []float64) (Shift, bool) { s, _, ok := MeanShift(a, b, 0.95); return s, ok },
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := floats(4, 12).Draw(t, "a"), floats(4, 12).Draw(t, "b")
		by := rapid.Float64Range(-1e3, 1e3).Draw(t, "by")
		moved := make([]float64, len(b))
		for i := range b {
			moved[i] = b[i] + by
		}
		for name, of := range kinds {
			s, ok := of(a, b)
			m, _ := of(a, moved)
			r, _ := of(b, a)
			if !ok || s.Interval.Lo > s.Interval.Hi {
				t.Fatalf("%s: %+v, %v", name, s, ok)
			}
			if math.Abs(m.Estimate-s.Estimate-by) > 1e-6 || math.Abs(m.Interval.Lo-s.Interval.Lo-by) > 1e-6 {
				t.Fatalf("%s moved by %v: %+v became %+v", name, by, s, m)
			}
			if math.Abs(r.Estimate+s.Estimate) > 1e-6 {
				t.Fatalf("%s exchanged: %v and %v", name, s.Estimate, r.Estimate)
			}
		}
	})
}

// noises are what runs vary by, around 0.
var noises = map[string]func(*rand.Rand) float64{
	"normal": func(r *rand.Rand) float64 { return r.NormFloat64() },
	"skewed": func(r *rand.Rand) float64 { return r.ExpFloat64() - 1 },
	"with outliers": func(r *rand.Rand) float64 {
		x := r.NormFloat64()
		if r.Float64() < 0.1 {
			x += 8 * r.Float64()
		}
		return x
	},
}

func draw(r *rand.Rand, noise func(*rand.Rand) float64, n int, by float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = noise(r) + by
	}
	return xs
}

// Intervals cover the truth as often as they say, at as few runs as they are
// given at. Samples of one shape, as repeated runs have.
func TestShiftsCover(t *testing.T) {
	for name, noise := range noises {
		for _, n := range []int{5, 10} {
			rng := rand.New(rand.NewPCG(11, uint64(n)))
			const trials = 1000
			var hl, mean, boot int
			for i := range trials {
				a, b := draw(rng, noise, n, 0), draw(rng, noise, n, 3)
				covers := func(s Shift) int {
					if s.Interval.Lo <= 3 && 3 <= s.Interval.Hi {
						return 1
					}
					return 0
				}
				s, _ := HodgesLehmann(a, b, 0.95)
				hl += covers(s)
				s, _, _ = MeanShift(a, b, 0.95)
				mean += covers(s)
				if i < 300 {
					s, _ = MedianShift(a, b, 0.95, uint64(i))
					boot += covers(s)
				}
			}
			t.Logf("%-14s n=%-2d Hodges-Lehmann %.3f, means %.3f, bootstrap of medians %.3f", name, n, float64(hl)/trials, float64(mean)/trials, float64(boot)/300)
			// Three binomial deviations below 0.95 are 0.929 of 1000, 0.912 of 300.
			if hl < 929 || mean < 929 || boot < 273 {
				t.Errorf("%s, n=%d: covered %d and %d of %d, %d of 300", name, n, hl, mean, trials, boot)
			}
		}
	}
}

// Means of four are told apart no more often than is said where nothing differs,
// whatever the values vary by: steps of a history have as few.
func TestMeanShiftOfFour(t *testing.T) {
	const trials = 4000
	for name, noise := range noises {
		rng := rand.New(rand.NewPCG(5, 4))
		wrong := 0
		for range trials {
			if _, p, ok := MeanShift(draw(rng, noise, 4, 0), draw(rng, noise, 4, 0), 0.95); ok && p <= 0.05 {
				wrong++
			}
		}
		// Three binomial deviations above 0.05 are 0.060; some power is left, too.
		if share := float64(wrong) / trials; share > 0.060 || share < 0.01 {
			t.Errorf("%s: wrong in %.3f", name, share)
		}
	}
}

package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gonum.org/v1/gonum/stat/combin"
)

// Holm adjusts P values so that believing those at or below alpha is wrong
// about any of them with a chance of at most alpha, however they depend on each
// other (Holm 1979).
func Holm(ps []float64) []float64 {
	order := byValue(ps)
	out := make([]float64, len(ps))
	worst := 0.0
	for i, k := range order {
		worst = max(worst, min(1, ps[k]*float64(len(ps)-i)))
		out[k] = worst
	}
	return out
}

// BenjaminiHochberg adjusts P values so that of those at or below q a share of
// at most q is expected to be wrong (Benjamini and Hochberg 1995). Independent
// tests are asked for, or such as rise and fall together.
func BenjaminiHochberg(ps []float64) []float64 {
	order := byValue(ps)
	out := make([]float64, len(ps))
	least := 1.0
	for i := len(order) - 1; i >= 0; i-- {
		k := order[i]
		least = min(least, ps[k]*float64(len(ps))/float64(i+1))
		out[k] = least
	}
	return out
}

// byValue are the indexes of xs, the smallest first.
func byValue(xs []float64) []int {
	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return xs[order[i]] < xs[order[j]] })
	return order
}

// FamilyOptions say how a family is tested. The zero value works.
type FamilyOptions struct {
	Alpha        float64 // of the whole family; 0: 0.05
	Seed         uint64  // of permutations that are drawn
	Permutations int     // at most, drawn where there are more; 0: 19,999
}

// Family is the outcome of testing many indicators of the same runs at once.
type Family struct {
	Alpha float64 `json:"alpha"`
	// Permutations is how many ways of dividing the runs were looked at;
	// Exhaustive says that these were all.
	Permutations int  `json:"permutations"`
	Exhaustive   bool `json:"exhaustive"`
	// Critical is the standardised difference from which on a member counts.
	// Infinite where the runs are too few for any.
	Critical float64  `json:"-"`
	Members  []Member `json:"members"` // as the indicators were given
}

// Member is one indicator of a family.
type Member struct {
	N1, N2 int     // values there are
	Shift  Shift   // simultaneous interval: all of the family's hold together
	SE     float64 // standard error of Shift.Estimate
	T      float64 // Shift.Estimate ÷ SE
	P      float64 // of this indicator alone
	// Adjusted is the chance that runs without a difference show as large a T
	// in any indicator of the family.
	Adjusted float64
	Differs  bool // Adjusted ≤ Alpha
	OK       bool // 2 values a side, at least
}

// defaultPermutations bounds the work; 10 and 10 runs can be divided in 184,756
// ways. With 20,000 a P value of 0.05 is known to ± 0.003.
const defaultPermutations = 19_999

// TestFamily compares two sides of runs in many indicators: a[i][r] is
// indicator i of the r-th run of the first side, NaN where it has none.
//
// Runs, not values, are dealt anew between the sides, so that indicators that
// move together stay together: the largest standardised difference over all of
// them has then the distribution it has when there is no difference at all
// (Westfall and Young 1993, Resampling-Based Multiple Testing, single-step
// maxT). The chance of any false difference is at most alpha for every
// distribution of the runs, provided that they could as well have come on the
// other side, and indicators that say the same cost nothing, as they would in
// a correction by their number. Standardising is Welch's, so that unequal
// spreads count as little as they can (Janssen 1997). Up to 20,000 ways
// of dividing the runs are looked at in full; of more, as many are drawn, the
// observed one counted in (Phipson and Smyth 2010).
//
// Intervals are Estimate ± Critical·SE. Critical is the larger one of two
// quantiles: of the runs as they are, which makes intervals agree with the
// test, and of the runs without the sides' own means, which holds where the
// sides do differ. The second may reach over 0 where the test, which needs it not,
// has told the sign of a difference: there an interval ends at 0.
func TestFamily(a, b [][]float64, o FamilyOptions) Family {
	o.Alpha = orDefault(o.Alpha, 0.05)
	if o.Permutations == 0 {
		o.Permutations = defaultPermutations
	}
	f := Family{Alpha: o.Alpha, Critical: math.Inf(1)}
	if len(a) == 0 || len(a) != len(b) {
		return f
	}
	n1, n2 := len(a[0]), len(b[0])
	raw, centred := newDealt(a, b, false), newDealt(a, b, true)
	identity := make([]int, n1)
	for i := range identity {
		identity[i] = i
	}
	ts := raw.standardised(identity, nil)
	alone, joint := make([]int, len(ts)), make([]int, len(ts))
	var largest, largestCentred, t, tc []float64
	count := func(chosen []int) {
		t, tc = raw.standardised(chosen, t), centred.standardised(chosen, tc)
		m, mc := 0.0, 0.0
		for i := range t {
			m, mc = max(m, math.Abs(t[i])), max(mc, math.Abs(tc[i]))
			if math.Abs(t[i]) >= math.Abs(ts[i])*(1-1e-9) {
				alone[i]++
			}
		}
		for i := range t {
			if m >= math.Abs(ts[i])*(1-1e-9) {
				joint[i]++
			}
		}
		largest, largestCentred = append(largest, m), append(largestCentred, mc)
	}
	if f.Exhaustive = n1 > 0 && n2 > 0 && binomial(n1+n2, n1) <= float64(o.Permutations+1); f.Exhaustive {
		if chosen := make([]int, n1); n1 == n2 {
			// The other half are the same with the sides exchanged.
			for g := combin.NewCombinationGenerator(n1+n2-1, n1-1); g.Next(); {
				g.Combination(chosen[1:])
				for i := range chosen[1:] {
					chosen[1+i]++
				}
				count(chosen)
			}
			f.Permutations = len(largest)
		} else {
			for g := combin.NewCombinationGenerator(n1+n2, n1); g.Next(); {
				count(g.Combination(chosen))
			}
		}
	} else {
		rng := rand.New(rand.NewPCG(o.Seed, 2))
		runs := make([]int, n1+n2)
		for i := range runs {
			runs[i] = i
		}
		count(identity)
		for range o.Permutations {
			for i := range n1 { // a partial shuffle
				j := i + rng.IntN(len(runs)-i)
				runs[i], runs[j] = runs[j], runs[i]
			}
			count(runs[:n1])
		}
	}
	f.Permutations += len(largest)
	f.Critical = max(critical(largest, o.Alpha), critical(largestCentred, o.Alpha))
	for i, row := range raw.rows {
		m := Member{N1: row.n1, N2: row.n2, T: ts[i], OK: row.n1 >= 2 && row.n2 >= 2, P: 1, Adjusted: 1}
		if m.OK {
			m.P, m.Adjusted = float64(alone[i])/float64(len(largest)), float64(joint[i])/float64(len(largest))
			m.Differs = m.Adjusted <= o.Alpha
			m.Shift.Estimate, m.SE = row.estimate, row.se
			half := f.Critical * row.se
			if math.IsNaN(half) { // values that do not vary, too few runs
				half = math.Inf(1)
			}
			m.Shift.Interval = Interval{row.estimate - half, row.estimate + half, 1 - o.Alpha}
			switch {
			case math.IsInf(half, 1):
			case m.Differs && row.estimate > 0:
				m.Shift.Interval.Lo = max(0, m.Shift.Interval.Lo)
			case m.Differs:
				m.Shift.Interval.Hi = min(0, m.Shift.Interval.Hi)
			}
		}
		f.Members = append(f.Members, m)
	}
	return f
}

// critical is the least T that a share of at most alpha of the permutations
// reaches.
func critical(largest []float64, alpha float64) float64 {
	s := sorted(largest)
	slices.Reverse(s)
	k := int(math.Floor(alpha*float64(len(s)) + 1e-9))
	for k > 0 && k < len(s) && s[k] >= s[k-1]*(1-1e-9) {
		k-- // those equal to it would be reached, too
	}
	if k == 0 {
		return math.Inf(1)
	}
	return s[k-1]
}

// dealt is a family's values, ready to be divided anew.
type dealt struct {
	rows []dealtRow
}

type dealtRow struct {
	n1, n2       int
	estimate, se float64
	x            []float64 // of all runs, around 0 and of unit spread
	has          []float64 // 1 where there is a value
	n, sum, sq   float64   // over all
}

func newDealt(a, b [][]float64, centred bool) *dealt {
	d := &dealt{}
	for i := range a {
		r := dealtRow{x: slices.Concat(a[i], b[i])}
		r.has = make([]float64, len(r.x))
		one, two := present(a[i]), present(b[i])
		r.n1, r.n2 = len(one), len(two)
		if r.n1 >= 2 && r.n2 >= 2 {
			r.estimate = Mean(two) - Mean(one)
			v1, v2 := deviationOf(one), deviationOf(two)
			r.se = math.Sqrt(v1*v1/float64(r.n1) + v2*v2/float64(r.n2))
		}
		all := slices.Concat(one, two)
		mean, spread := Mean(all), deviationOf(all)
		m1, m2 := mean, mean
		if centred {
			m1, m2 = Mean(one), Mean(two)
		}
		if spread == 0 {
			spread = 1
		}
		for j, v := range r.x {
			if math.IsNaN(v) {
				r.x[j] = 0
				continue
			}
			r.has[j] = 1
			if j < len(a[i]) {
				r.x[j] = (v - m1) / spread
			} else {
				r.x[j] = (v - m2) / spread
			}
			r.n++
			r.sum += r.x[j]
			r.sq += r.x[j] * r.x[j]
		}
		d.rows = append(d.rows, r)
	}
	return d
}

// standardised are the differences over their standard errors when the first
// side has the chosen runs.
func (d *dealt) standardised(chosen []int, into []float64) []float64 {
	into = into[:0]
	for i := range d.rows {
		r := &d.rows[i]
		var n, sum, sq float64
		for _, k := range chosen {
			x := r.x[k]
			n += r.has[k]
			sum += x
			sq += x * x
		}
		m := r.n - n
		if n < 2 || m < 2 {
			into = append(into, 0)
			continue
		}
		m1, m2 := sum/n, (r.sum-sum)/m
		v1, v2 := max(0, sq-n*m1*m1)/(n-1), max(0, r.sq-sq-m*m2*m2)/(m-1)
		// The floor is that of rounding: values that do not vary within sides.
		se := max(math.Sqrt(v1/n+v2/m), 1e-7)
		into = append(into, (m2-m1)/se)
	}
	return into
}

func present(xs []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(xs), math.IsNaN)
}

// Permutation is the two-sided permutation test of the difference of means
// (Fisher 1935, Pitman 1937), standardised as TestFamily does. ok is false for
// fewer than 2 values a side.
func Permutation(a, b []float64, seed uint64) (p float64, ok bool) {
	f := TestFamily([][]float64{a}, [][]float64{b}, FamilyOptions{Seed: seed})
	if len(f.Members) == 0 || !f.Members[0].OK {
		return 1, false
	}
	return f.Members[0].P, true
}

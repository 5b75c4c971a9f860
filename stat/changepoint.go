package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// ChangeOptions say what counts as a change. The zero value works.
type ChangeOptions struct {
	MinSegment   int     // values between changes, at least; 0: 5
	MinEffect    float64 // ratio of medians less 1, at least; 0: any
	Alpha        float64 // of the test of each change; 0: 0.01
	Permutations int     // 0: 999
	Seed         uint64
}

// Change is where a series changes its level.
type Change struct {
	At     int     `json:"at"`     // the first value after it
	P      float64 `json:"p"`      // of a permutation test
	Before float64 `json:"before"` // medians of the stretches around it
	After  float64 `json:"after"`
}

// Changes finds the changes of a series by E-divisive (Matteson and James
// 2014): among all stretches the split with the largest energy distance
// between its sides is tested by shuffling values within the stretches found so
// far, and believed while P ≤ alpha. Distances are those of all pairs
// (Rizzo and Székely 2010), so that splits near the ends are not preferred. A
// change of level is looked for, whatever the distribution.
//
// A change whose medians differ by less than MinEffect is then taken out, the
// least first: a series that is long enough shows changes that nobody feels.
func Changes(xs []float64, o ChangeOptions) []Change {
	if o.MinSegment < 2 {
		o.MinSegment = 5
	}
	if o.Permutations == 0 {
		o.Permutations = 999
	}
	o.Alpha = orDefault(o.Alpha, 0.01)
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	edges := []int{0, len(xs)} // of the stretches
	p := map[int]float64{}
	for {
		at, q := bestSplit(xs, edges, o.MinSegment)
		if at == 0 {
			break
		}
		as := 1
		shuffled := slices.Clone(xs)
		for range o.Permutations {
			for i := 1; i < len(edges); i++ {
				s := shuffled[edges[i-1]:edges[i]]
				rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
			}
			if _, r := bestSplit(shuffled, edges, o.MinSegment); r >= q*(1-1e-12) {
				as++
			}
			if float64(as) > o.Alpha*float64(o.Permutations+1) {
				break // it is not believed, whatever the rest
			}
		}
		if p[at] = float64(as) / float64(o.Permutations+1); p[at] > o.Alpha {
			break
		}
		edges = append(edges, at)
		slices.Sort(edges)
	}
	for {
		var cs []Change
		small, least := -1, o.MinEffect
		for i := 1; i < len(edges)-1; i++ {
			c := Change{At: edges[i], P: p[edges[i]], Before: Median(xs[edges[i-1]:edges[i]]), After: Median(xs[edges[i]:edges[i+1]])}
			if e := effectOf(c); e < least {
				small, least = i, e
			}
			cs = append(cs, c)
		}
		if small < 0 {
			return cs
		}
		edges = slices.Delete(edges, small, small+1)
	}
}

// effectOf is the ratio of medians less 1, whichever is the larger.
func effectOf(c Change) float64 {
	lo, hi := math.Abs(c.Before), math.Abs(c.After)
	if lo > hi {
		lo, hi = hi, lo
	}
	if c.Before*c.After <= 0 || lo == 0 {
		if c.Before == c.After {
			return 0
		}
		return math.Inf(1)
	}
	return hi/lo - 1
}

// bestSplit is where, in which stretch, the energy distance of two neighbours
// is largest. The right one may end before the stretch does, or a step up and
// down again would cancel out. at is 0 where no stretch can be split.
func bestSplit(xs []float64, edges []int, least int) (at int, best float64) {
	for e := 1; e < len(edges); e++ {
		s := xs[edges[e-1]:edges[e]]
		n := len(s)
		if n < 2*least {
			continue
		}
		// sum[i][j]: distances of all pairs below i and below j.
		sum := make([][]float64, n+1)
		sum[0] = make([]float64, n+1)
		for i := range n {
			sum[i+1] = make([]float64, n+1)
			for j := range n {
				sum[i+1][j+1] = sum[i][j+1] + sum[i+1][j] - sum[i][j] + math.Abs(s[i]-s[j])
			}
		}
		for split := least; split <= n-least; split++ {
			for end := split + least; end <= n; end++ {
				left := sum[split][split]
				right := sum[end][end] - sum[split][end] - sum[end][split] + sum[split][split]
				across := sum[split][end] - sum[split][split]
				if q := energy(across, left, right, split, end-split); q > best {
					at, best = edges[e-1]+split, q
				}
			}
		}
	}
	return at, best
}

// energy is the energy distance of samples of n and m values times nm/(n+m),
// from the sums of distances across and, each pair twice, within.
func energy(across, left, right float64, n, m int) float64 {
	a, b := float64(n), float64(m)
	return a * b / (a + b) * (2*across/(a*b) - left/(a*a) - right/(b*b))
}

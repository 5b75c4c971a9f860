package stat

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// Contrast is one arm against another over all blocks.
type Contrast struct {
	Shift Shift   // of B above A; the intervals of all contrasts hold together
	SE    float64 // standard error of Shift.Estimate
	// Adjusted is the chance that arms without a difference show as large a one,
	// in standard errors, in any contrast of any indicator.
	Adjusted float64
	N        int // complete blocks
	Differs  bool
	OK       bool // 2 complete blocks, at least
}

// Blocks is the outcome of arms that were run in blocks.
type Blocks struct {
	Alpha        float64
	Permutations int
	Critical     float64      // standard errors from which on a contrast counts
	Contrasts    [][]Contrast // of each indicator, as the pairs were given
}

// defaultShuffles is how often blocks are shuffled. A P value of 0.05 is then
// known to ± 0.004.
const defaultShuffles = 9_999

// TestBlocks compares arms that were each run once in every block: y[i][b][a] is
// indicator i of arm a in block b, NaN where there is none; then the block is
// left out for that indicator. pairs are the arms that are compared, the second
// against the first.
//
// What a block has in common, such as the hour, falls out (Fisher 1935, The
// Design of Experiments, chapter 4). Within each block the arms are shuffled,
// all indicators together, so that the largest standardised difference over all
// pairs and indicators has the distribution that it has without any difference
// (Westfall and Young 1993); standard errors are of the residuals of all arms.
// Critical is the larger one of two quantiles, as TestFamily has it: of the
// values as they are, and without the arms' own means, which holds where some
// arms do differ. Two arms need 6 blocks to differ at 5 %, four arms 3.
func TestBlocks(y [][][]float64, pairs [][2]int, o FamilyOptions) Blocks {
	o.Alpha = orDefault(o.Alpha, 0.05)
	if o.Permutations == 0 {
		o.Permutations = defaultShuffles
	}
	out := Blocks{Alpha: o.Alpha, Critical: math.Inf(1)}
	var raw, centred []blocked
	for _, rows := range y {
		b := newBlocked(rows)
		raw, centred = append(raw, b), append(centred, b.withoutMeans())
	}
	arms, blocks := 0, 0
	if len(y) > 0 && len(y[0]) > 0 {
		blocks, arms = len(y[0]), len(y[0][0])
	}
	order := make([][]int, blocks)
	for b := range order {
		order[b] = make([]int, arms)
		for a := range order[b] {
			order[b][a] = a
		}
	}
	largestOf := func(all []blocked) float64 {
		largest := 0.0
		for i := range all {
			means, se := all[i].shuffled(order)
			for _, p := range pairs {
				if all[i].n >= 2 {
					largest = max(largest, math.Abs(means[p[1]]-means[p[0]])/se)
				}
			}
		}
		return largest
	}
	for i := range raw {
		means, se := raw[i].shuffled(order)
		contrasts := make([]Contrast, len(pairs))
		for k, p := range pairs {
			contrasts[k] = Contrast{N: raw[i].n, OK: raw[i].n >= 2, SE: se, Adjusted: 1}
			if raw[i].n >= 2 {
				contrasts[k].Shift.Estimate = means[p[1]] - means[p[0]]
			}
		}
		out.Contrasts = append(out.Contrasts, contrasts)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	largest, largestCentred := []float64{largestOf(raw)}, []float64{largestOf(centred)}
	for range o.Permutations {
		for b := range order {
			rng.Shuffle(arms, func(i, j int) { order[b][i], order[b][j] = order[b][j], order[b][i] })
		}
		largest, largestCentred = append(largest, largestOf(raw)), append(largestCentred, largestOf(centred))
	}
	out.Permutations = len(largest)
	out.Critical = max(critical(largest, o.Alpha), critical(largestCentred, o.Alpha))
	for i := range out.Contrasts {
		for k := range out.Contrasts[i] {
			c := &out.Contrasts[i][k]
			if !c.OK {
				continue
			}
			t, as := math.Abs(c.Shift.Estimate)/c.SE, 0
			for _, m := range largest {
				if m >= t*(1-1e-9) {
					as++
				}
			}
			c.Adjusted = float64(as) / float64(len(largest))
			half := out.Critical * c.SE
			c.Shift.Interval = Interval{c.Shift.Estimate - half, c.Shift.Estimate + half, 1 - o.Alpha}
			c.Differs = math.Abs(c.Shift.Estimate) >= half*(1-1e-9) && c.Adjusted <= o.Alpha
		}
	}
	return out
}

// blocked is an indicator, each block around its own mean.
type blocked struct {
	z     [][]float64 // nil: the block is not complete
	n     int         // complete blocks
	total float64     // sum of squares
	scale float64
}

func newBlocked(rows [][]float64) blocked {
	var b blocked
	for _, row := range rows {
		m := Mean(row)
		if len(row) == 0 || math.IsNaN(m) || math.IsInf(m, 0) {
			b.z = append(b.z, nil)
			continue
		}
		z := make([]float64, len(row))
		for a, x := range row {
			z[a] = x - m
			b.total += z[a] * z[a]
			b.scale = max(b.scale, math.Abs(x))
		}
		b.z = append(b.z, z)
		b.n++
	}
	return b
}

// withoutMeans is the indicator with the arms' means taken out.
func (b blocked) withoutMeans() blocked {
	out := blocked{n: b.n, scale: b.scale}
	var means []float64
	for _, z := range b.z {
		for a, x := range z {
			if means == nil {
				means = make([]float64, len(z))
			}
			means[a] += x / float64(b.n)
		}
	}
	for _, z := range b.z {
		if z == nil {
			out.z = append(out.z, nil)
			continue
		}
		e := make([]float64, len(z))
		for a, x := range z {
			e[a] = x - means[a]
			out.total += e[a] * e[a]
		}
		out.z = append(out.z, e)
	}
	return out
}

// shuffled are the arms' means around that of all when order says which value of
// each block is whose, and the standard error of a difference between two.
func (b blocked) shuffled(order [][]int) (means []float64, se float64) {
	for i, z := range b.z {
		if z == nil {
			continue
		}
		if means == nil {
			means = make([]float64, len(z))
		}
		for a := range z {
			means[a] += z[order[i][a]]
		}
	}
	n, k := float64(b.n), float64(len(means))
	between := 0.0
	for a := range means {
		means[a] /= n
		between += n * means[a] * means[a]
	}
	s := math.Sqrt(max(0, b.total-between) / max(1, (n-1)*(k-1)))
	// The floor is that of rounding: values that do not vary within arms.
	return means, max(s*math.Sqrt(2/n), 1e-9*max(b.scale, math.SmallestNonzeroFloat64))
}

// BlockSlope is how much y rises with x, where each block has a value at every x:
// least squares with what a block has in common taken out, and the interval of
// Student's t. Blocks that are not complete are left out. ok is false for fewer
// than 3 different x or 2 complete blocks.
func BlockSlope(x []float64, y [][]float64, level float64) (s Shift, r2 float64, ok bool) {
	b := newBlocked(y)
	mx, sxx := Mean(x), 0.0
	different := map[float64]bool{}
	for _, v := range x {
		sxx += (v - mx) * (v - mx)
		different[v] = true
	}
	df := float64(b.n*len(x) - b.n - 1)
	if b.n < 2 || len(different) < 3 || math.IsNaN(sxx) || level <= 0 || level >= 1 {
		return s, 0, false
	}
	var xs, zs []float64
	for _, z := range b.z {
		if z != nil {
			xs, zs = append(xs, x...), append(zs, z...)
		}
	}
	line, ok := LeastSquares(xs, zs)
	if !ok {
		return s, 0, false
	}
	rest := max(0, b.total*(1-line.R2))
	half := distuv.StudentsT{Sigma: 1, Nu: df}.Quantile((1+level)/2) * math.Sqrt(rest/df/(float64(b.n)*sxx))
	s = Shift{line.Slope, Interval{line.Slope - half, line.Slope + half, level}}
	return s, line.R2, true
}

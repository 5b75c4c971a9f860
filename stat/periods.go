package stat

import (
	"math"
	"math/cmplx"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Defaults of PeriodOptions.
const (
	periodMin   = 2 // seconds: a sampler at 1 Hz tells nothing faster apart
	periodMax   = 150
	periodAlpha = 1e-3
	// fewestCycles is the least that is called a period: four gaps that happen
	// to be alike are no rhythm.
	fewestCycles = 5
)

// PeriodOptions say what to look for. The zero value works.
type PeriodOptions struct {
	Min, Max float64 // seconds; 0: 2 and 150
	// Alpha is the highest P of a period that is reported; 0: 0.001. Who tests
	// many series corrects for that (see FalseDiscovery).
	Alpha float64
	// Resolution of event times in seconds: they are known to within half of it.
	Resolution float64
}

// Period is a rhythm that a series or a list of events keeps.
type Period struct {
	Seconds float64 `json:"seconds"`
	Error   float64 `json:"error"` // standard error of Seconds
	First   float64 `json:"first"` // when the first event, or the middle of the first pulse, was due
	Cycles  int     `json:"cycles"`
	// Coverage is the share of cycles that have an event, or go with the others.
	Coverage float64 `json:"coverage"`
	Amount   float64 `json:"amount"` // above the base line, each period; 0 for events
	Base     float64 `json:"base"`   // rate of the base line; 0 for events
	Duty     float64 `json:"duty"`   // share of the period that is high; 0 for events
	// P is how likely noise shows as clear a rhythm at any period that was
	// looked at in this series.
	P float64 `json:"p"`

	log float64 // of P, which may be too small for a float64
}

func (o PeriodOptions) filled() PeriodOptions {
	o.Min, o.Max, o.Alpha = orDefault(o.Min, periodMin), orDefault(o.Max, periodMax), orDefault(o.Alpha, periodAlpha)
	return o
}

// PeriodOfEvents finds the rhythm of events at known times in seconds, in any
// order. Events close together count as one; some may be missing, some extra.
//
// Each gap is a whole number of periods and a rest. Under a Poisson process
// of the same rate the rests would be spread out as the exponential gaps are:
// P is the binomial tail of that, times the periods and widths that were tried. The period is the slope
// of times over cycle numbers, so its error shrinks with the number of cycles
// to the power 3/2 where a clock sets the times, and to the power 1/2 where
// each gap wanders by itself ("sleep 5" in a loop).
func PeriodOfEvents(times []float64, o PeriodOptions) (Period, bool) {
	o = o.filled()
	if len(times) < fewestCycles {
		return Period{}, false
	}
	s := sorted(times)
	g := sorted(gaps(s))
	var candidates []float64
	for _, q := range []float64{0.5, 0.25, 0.75, 0.9} {
		c := QuantileSorted(g, q)
		if c >= o.Min/1.3 && c <= o.Max*1.3 && !slices.ContainsFunc(candidates, func(x float64) bool { return c < 1.25*x && x < 1.25*c }) {
			candidates = append(candidates, c)
		}
	}
	best, found := Period{P: 2}, false
	for _, c := range candidates {
		p, ok := rhythm(s, c, o)
		if !ok {
			continue
		}
		if p.P = min(1, p.P*float64(len(candidates))); p.P < best.P {
			best, found = p, true
			best.log = math.Log(p.P)
		}
	}
	return best, found && best.P <= o.Alpha
}

const (
	together   = 0.3  // of a period: events that close are one
	leastShare = 0.6  // of the cycles must have an event
	mostExtra  = 0.25 // of the events may be out of rhythm
	mostSpread = 0.16 // of a period: robust standard deviation of the rests
)

// rhythm judges one candidate.
func rhythm(s []float64, candidate float64, o PeriodOptions) (p Period, ok bool) {
	var heads []float64 // the first event of each that are together
	for _, t := range s {
		if len(heads) == 0 || t-heads[len(heads)-1] >= together*candidate {
			heads = append(heads, t)
		}
	}
	if len(heads) < fewestCycles {
		return p, false
	}
	period := candidate
	var near []float64
	for range 3 {
		near = near[:0]
		for _, g := range gaps(heads) {
			if math.Round(g/period) == 1 {
				near = append(near, g)
			}
		}
		if len(near) < fewestCycles-1 {
			return p, false
		}
		period = Median(near)
	}

	var ks, ts, rests []float64
	extra, most := 0, 1.0
	last, k := heads[0], 0.0
	ks, ts = append(ks, 0), append(ts, heads[0])
	for _, t := range heads[1:] {
		m := math.Round((t - last) / period)
		if m == 0 {
			extra++
			continue
		}
		most = max(most, m)
		k += m
		rests = append(rests, (t-last)/period-m)
		ks, ts = append(ks, k), append(ts, t)
		last = t
	}
	n := len(rests)
	if n < fewestCycles-1 || float64(n) < leastShare*k || float64(extra) > mostExtra*float64(n) || madScale*Median(absolute(rests)) > mostSpread {
		return p, false
	}

	// The chance that an exponential gap falls as close to a whole number.
	rate := float64(len(heads)-1) / (heads[len(heads)-1] - heads[0])
	widths := []float64{0.02, 0.05, 0.1, 0.15, 0.2, 0.25}
	p.P = 1
	for _, w := range widths {
		within := 0
		for _, r := range rests {
			if math.Abs(r) <= w {
				within++
			}
		}
		half := w*period + o.Resolution/2
		chance := 0.0
		for m := 1.0; m <= most; m++ {
			lo, hi := max(m*period-half, 0), m*period+half
			chance += math.Exp(-rate*lo) - math.Exp(-rate*hi)
		}
		p.P = min(p.P, float64(len(widths))*binomialTail(n+extra, within, min(chance, 1)))
	}

	slope, first, se := line(ks, ts)
	rs := make([]float64, n)
	for i, r := range rests {
		rs[i] = r * period
	}
	if !pulledBack(rs) { // each gap for itself: errors add up
		se = max(se, deviationOf(rs)/math.Sqrt(float64(n)))
	}
	p.Seconds, p.Error, p.First = slope, max(se, o.Resolution/2/math.Sqrt(3)/math.Pow(float64(n), 1.5)), first
	p.Cycles, p.Coverage = int(k)+1, float64(n+1)/(k+1)
	return p, p.Seconds >= o.Min && p.Seconds <= o.Max
}

// pulledBack says whether a late event is followed by a short gap, as under a
// clock: then the rests' autocorrelation at lag 1 tends to -1/2, else to 0.
func pulledBack(rests []float64) bool {
	var num, den float64
	m := Mean(rests)
	for i, r := range rests {
		den += (r - m) * (r - m)
		if i > 0 {
			num += (r - m) * (rests[i-1] - m)
		}
	}
	return den > 0 && num/den < -0.4
}

// line is the least-squares line through (x, y) and the slope's standard error.
func line(xs, ys []float64) (slope, intercept, se float64) {
	mx, my := Mean(xs), Mean(ys)
	var sxx, sxy float64
	for i := range xs {
		sxx += (xs[i] - mx) * (xs[i] - mx)
		sxy += (xs[i] - mx) * (ys[i] - my)
	}
	if sxx == 0 {
		return 0, my, math.Inf(1)
	}
	slope = sxy / sxx
	intercept = my - slope*mx
	var rss float64
	for i := range xs {
		r := ys[i] - intercept - slope*xs[i]
		rss += r * r
	}
	if len(xs) > 2 {
		se = math.Sqrt(rss / float64(len(xs)-2) / sxx)
	}
	return slope, intercept, se
}

// PeriodOf finds the strongest rhythm of a series. Bins may be missing and need
// not be equally long.
//
// Two methods look for it, and both must bear being tried together. One takes
// the series' spikes as events, which suits short pulses far apart. The other
// takes the spectrum, in units of its own local median, so that noise of any
// colour has unit exponential power; it adds up a fundamental's harmonics and
// compares with their gamma distribution. A period so found must show in most
// of its cycles when each is compared with all the others, so that bursts,
// steps and drifts, however large, are not one.
//
// What repeats faster than twice the bins' length looks like something slower:
// a pulse each 1.25 s, read each second, leaves four full seconds and an empty
// one. A Duty above 1/2 is a sign of that.
func PeriodOf(bins []Bin, o PeriodOptions) (Period, bool) {
	o = o.filled()
	b := short(bins)
	if len(b) < 4*fewestCycles {
		return Period{}, false
	}
	step := usual(b)
	span := b[len(b)-1].End - b[0].Start
	o.Min = max(o.Min, 2*step)
	o.Max = min(o.Max, span/(fewestCycles-0.5))
	if o.Min >= o.Max {
		return Period{}, false
	}
	rates := make([]float64, len(b))
	for i := range b {
		rates[i] = b[i].Rate()
	}
	// Methods tried, for the correction of P.
	windows := []float64{spikeWindow, 6 * spikeWindow}
	if span < 2*spikeWindow {
		windows = windows[:1]
	}
	tried := float64(2 * len(windows))

	var best Period
	best.P, best.log = 2, 1
	better := func(p Period) {
		p.P *= tried
		if p.log += math.Log(tried); p.log < best.log {
			best = p
		}
	}
	for i, w := range windows {
		levels := rolling(b, w)
		from, to := o.Min, o.Max
		if i == 0 {
			to = min(to, w/3)
		}
		if i+1 < len(windows) || i > 0 {
			if i > 0 {
				from = max(from, windows[0]/3*0.9)
			}
		} else {
			to = o.Max
		}
		if from < to {
			if p, ok := spectral(b, rates, levels, step, from, to, o.Alpha/tried); ok {
				better(p)
			}
		}
		var at []float64
		for _, s := range Spikes(b, SpikeOptions{Window: w, Z: 4, MaxWidth: w / 3}) {
			at = append(at, s.At)
		}
		if p, ok := PeriodOfEvents(at, PeriodOptions{Min: max(o.Min, 3*step), Max: o.Max, Alpha: o.Alpha / tried, Resolution: step}); ok {
			better(p)
		}
	}
	if best.P > o.Alpha {
		return Period{}, false
	}
	profile(&best, b, rates, step)
	return best, true
}

// linear is up to how many spreads the series is taken as it is, nearly.
const linear = 4

// compressed is the series above its base line in units of its spread, large
// values drawn in: a burst of a hundred spreads must not drown a rhythm of five.
func compressed(rates []float64, levels []level) ([]float64, bool) {
	y := make([]float64, len(rates))
	var sum float64
	for i, r := range rates {
		y[i] = r - levels[i].median
		sum += math.Abs(y[i])
	}
	scale := MAD(y)
	if scale == 0 {
		scale = 1.2533 * sum / float64(len(y))
	}
	if scale == 0 {
		return nil, false
	}
	for i := range y {
		y[i] = math.Asinh(y[i] / (linear * scale))
	}
	m := Mean(y)
	for i := range y {
		y[i] -= m
	}
	return y, true
}

// steep is by how much the level may fall across a window before the lower half of it counts alone.
const steep = 1.4

// oversampling of the spectrum, so that no line falls between two of its points.
const oversampling = 4

// spectral looks for a comb of lines in the spectrum.
func spectral(b []Bin, rates []float64, levels []level, step, from, to, alpha float64) (p Period, ok bool) {
	y, ok := compressed(rates, levels)
	if !ok {
		return p, false
	}
	t0 := b[0].Mid()
	span := b[len(b)-1].Mid() - t0 + step
	cells := int(math.Round(span/step)) + 1
	size := 1
	for size < oversampling*cells {
		size *= 2
	}
	// What is missing is 0, the mean: it adds nothing to any line.
	grid := make([]float64, size)
	for i := range b {
		grid[int(math.Round((b[i].Mid()-t0)/step))] = y[i]
	}
	coefficients := fourier.NewFFT(size).Coefficients(nil, grid)
	df := 1 / (float64(size) * step)
	power := make([]float64, len(coefficients))
	for i, c := range coefficients {
		power[i] = real(c)*real(c) + imag(c)*imag(c)
	}
	unit := 1 / span / df // points of one independent frequency
	whitened, weight := whiten(power, unit)

	lo, hi := int(math.Ceil(1/to/df)), int(1/from/df)
	hi = min(hi, len(power)-1)
	if lo >= hi {
		return p, false
	}
	trials := float64(hi-lo)/unit + 1
	counts := []int{1, 2, 4, 8, 16}
	bestP, bestF, bestH := 1.0, 0.0, 0 // bestP is a logarithm
	for i := lo; i <= hi; i++ {
		sum, used := 0.0, 0
		for h := 1; h <= counts[len(counts)-1] && h*i < len(power); h++ {
			// A line is known to within half a point here: that grows with h.
			r := whitened[h*i]
			for d := 1; d <= h/2 && d <= int(unit/2); d++ {
				r = max(r, whitened[h*i-d], whitened[min(h*i+d, len(power)-1)])
			}
			m := weight[h*i]
			sum += m * math.Log1p(r/m) // exponential, although r's unit was estimated
			used++
			if !slices.Contains(counts, h) {
				continue
			}
			// Half of the trust goes to the fundamental alone, the rest is shared.
			// The search over neighbouring points helps noise a little as well.
			chances := 2.0
			if h > 1 {
				chances = 3 * 2 * float64(len(counts)-1)
			}
			if q := logGammaTail(used, sum) + math.Log(trials*chances); q < bestP {
				bestP, bestF, bestH = q, float64(i)*df, used
			}
		}
	}
	if bestP > math.Log(alpha) {
		return p, false
	}
	bestF, bestH = fundamental(power, whitened, bestF/df, bestH, unit)
	if bestF < float64(lo)*0.98 {
		return p, false // its rhythm is slower than what was looked for
	}
	bestF *= df
	f := refine(b, y, bestF, bestH, span)
	c := cyclesOf(b, y, f, bestH)
	if c.n < fewestCycles-1 || c.share < 0.7 || c.t < 3 {
		return p, false
	}
	p = Period{Seconds: 1 / f, Error: c.spread, Cycles: c.n, Coverage: c.share, P: math.Exp(bestP), log: bestP}
	return p, p.Seconds >= from*0.98 && p.Seconds <= to*1.02
}

// fundamental goes from a line to the one that carries the rhythm. Up: a comb
// with every second tooth empty is a comb of twice the frequency. Where pulses
// come in unequal pairs the lower line stays, as long as it is not negligible.
// Down: where a clear line lies at a fraction of it, that one carries it.
func fundamental(power, white []float64, at float64, harmonics int, unit float64) (line float64, left int) {
	peak := func(of []float64, x float64) (p float64) {
		for i := int(x - unit/2); i <= int(math.Ceil(x+unit/2)); i++ {
			if i > 0 && i < len(of) {
				p = max(p, of[i])
			}
		}
		return p
	}
	const (
		negligible = 0.3 // of a line's power
		clear      = 15  // times the level around it: one in a million by chance
	)
	for up := true; up; {
		up = false
		for m := 2; m <= 8 && at*float64(m) < float64(len(power)); m++ {
			between := 0.0
			for h := 1; h < m; h++ {
				between = max(between, peak(power, at*float64(h)))
			}
			if between < negligible*peak(power, at*float64(m)) {
				at *= float64(m)
				harmonics = max(harmonics/m, 1)
				up = true
				break
			}
		}
	}
	for m := 5; m >= 2; m-- {
		low := at / float64(m)
		if low > 3*unit && peak(white, low) > clear && peak(power, low) > negligible*peak(power, at) {
			return low, min(harmonics*m, 16)
		}
	}
	return at, harmonics
}

// whiten divides the power by its local level. The level is the median of the
// independent points around it; where those below it have more, as in red
// noise, theirs. weight is how many points the level rests on.
func whiten(power []float64, unit float64) (white, weight []float64) {
	white, weight = make([]float64, len(power)), make([]float64, len(power))
	step := max(int(math.Round(unit)), 1)
	var at []int // independent points
	for i := step; i < len(power); i += step {
		at = append(at, i)
	}
	if len(at) < 8 {
		for i := range white {
			white[i], weight[i] = 0, 1
		}
		return white, weight
	}
	around := func(from, to int) float64 {
		xs := make([]float64, 0, to-from)
		for _, i := range at[from:to] {
			xs = append(xs, power[i])
		}
		slices.Sort(xs)
		return middle(xs) / math.Ln2
	}
	// The level changes slowly: a few dozen places tell it.
	level, points := make([]float64, len(at)), make([]float64, len(at))
	for j, last := 0, -1; j < len(at); {
		w := max(24, j/2)
		lo, hi := max(j-w, 0), min(j+w+1, len(at))
		level[j] = around(lo, hi)
		// A median of n has the variance of a mean of n/2.08 exponentials.
		points[j] = float64(hi-lo) / 2.08
		if below := j - lo; below >= 3 {
			level[j] = max(level[j], around(lo, j)/steep)
		}
		for k := last + 1; k < j; k++ {
			f := float64(k-last) / float64(j-last)
			level[k] = level[max(last, 0)]*(1-f) + level[j]*f
			points[k] = points[j]
		}
		if j == len(at)-1 {
			break
		}
		last, j = j, min(j+1+j/12, len(at)-1)
	}
	for i := range power {
		x := float64(i)/float64(step) - 1
		j := min(max(int(x), 0), len(at)-1)
		k := min(j+1, len(at)-1)
		f := min(max(x-float64(j), 0), 1)
		l := level[j]*(1-f) + level[k]*f
		if l > 0 {
			white[i] = power[i] / l
		}
		weight[i] = points[j]
	}
	return white, weight
}

// refine moves a frequency to where the sum of its harmonics' power, at the
// bins' exact times, is highest.
func refine(b []Bin, y []float64, f float64, harmonics int, span float64) float64 {
	harmonics = min(harmonics, 4)
	at := func(f float64) (sum float64) {
		for h := 1; h <= harmonics; h++ {
			var c complex128
			for i := range b {
				s, co := math.Sincos(2 * math.Pi * f * float64(h) * (b[i].Mid() - b[0].Mid()))
				c += complex(y[i]*co, -y[i]*s)
			}
			sum += real(c)*real(c) + imag(c)*imag(c)
		}
		return sum
	}
	width := 0.5 / span
	for range 3 {
		bestF, best := f, -1.0
		for d := -5; d <= 5; d++ {
			x := f + float64(d)/5*width
			if v := at(x); v > best {
				bestF, best = x, v
			}
		}
		f = bestF
		width /= 5
	}
	return f
}

// agreement is how far the cycles of a period go together.
type agreement struct {
	n      int
	share  float64 // of cycles that go with the sum of the others
	t      float64 // mean over standard error of how far they do
	spread float64 // standard error of the period that the cycles' phases allow
}

func cyclesOf(b []Bin, y []float64, f float64, harmonics int) (a agreement) {
	harmonics = min(harmonics, 4)
	t0 := b[0].Start
	n := int((b[len(b)-1].End - t0) * f)
	if n < 2 {
		return a
	}
	part := make([][]complex128, n)
	filled := make([]int, n)
	for j := range part {
		part[j] = make([]complex128, harmonics)
	}
	total := make([]complex128, harmonics)
	for i := range b {
		x := (b[i].Mid() - t0) * f
		j := int(x)
		if j >= n {
			continue
		}
		filled[j]++
		for h := range harmonics {
			s, c := math.Sincos(2 * math.Pi * float64(h+1) * x)
			z := complex(y[i]*c, -y[i]*s)
			part[j][h] += z
			total[h] += z
		}
	}
	var cs, js, phases []float64
	positive := 0
	for j := range part {
		if filled[j] == 0 {
			continue
		}
		c := 0.0
		for h := range harmonics {
			c += real(part[j][h] * cmplx.Conj(total[h]-part[j][h]))
		}
		cs = append(cs, c)
		if c > 0 {
			positive++
		}
		js = append(js, float64(j))
		phases = append(phases, cmplx.Phase(part[j][0]*cmplx.Conj(total[0]))/(2*math.Pi))
	}
	if len(cs) < 2 {
		return a
	}
	a.n = len(cs)
	a.share = float64(positive) / float64(a.n)
	if sd := deviationOf(cs); sd > 0 {
		a.t = Mean(cs) / (sd / math.Sqrt(float64(a.n)))
	} else if Mean(cs) > 0 {
		a.t = math.Inf(1)
	}
	_, _, se := line(js, phases)
	// Where phases wander, errors add up.
	steps := gaps(phases)
	for i := range steps {
		steps[i] -= math.Round(steps[i])
	}
	if !pulledBack(steps) {
		se = max(se, deviationOf(steps)/math.Sqrt(float64(len(steps))))
	}
	a.spread = max(se, drift(part, total[0])) / f
	return a
}

// drift is the standard error that the phases of a few stretches of the series
// allow, in periods a cycle: noise that cycles share does not average out.
func drift(part [][]complex128, total complex128) float64 {
	const stretches = 6
	if len(part) < 4*stretches {
		return 0
	}
	var xs, phases []float64
	for k := range stretches {
		lo, hi := k*len(part)/stretches, (k+1)*len(part)/stretches
		var sum complex128
		for _, p := range part[lo:hi] {
			sum += p[0]
		}
		xs = append(xs, float64(lo+hi-1)/2)
		phases = append(phases, cmplx.Phase(sum*cmplx.Conj(total))/(2*math.Pi))
	}
	_, _, se := line(xs, phases)
	steps := gaps(phases)
	for i := range steps {
		steps[i] -= math.Round(steps[i])
	}
	return max(se, deviationOf(steps)*stretches/float64(len(part))/math.Sqrt(stretches))
}

// profile folds the series at the period: what is above the base line each
// time, for which share of it, and when the first one was due.
func profile(p *Period, b []Bin, rates []float64, step float64) {
	n := int(min(max(p.Seconds/step, 3), 24))
	sum, weight := make([]float64, n), make([]float64, n)
	t0 := b[0].Start
	// A bin counts for each part of the period that it covers.
	for i := range b {
		const parts = 8
		d := (b[i].End - b[i].Start) / parts
		for k := range parts {
			x := math.Mod((b[i].Start+d*(float64(k)+0.5)-t0)/p.Seconds, 1)
			j := min(int(x*float64(n)), n-1)
			sum[j] += rates[i] * d
			weight[j] += d
		}
	}
	mean := make([]float64, 0, n)
	for j := range sum {
		if weight[j] > 0 {
			sum[j] /= weight[j]
			mean = append(mean, sum[j])
		}
	}
	s := sorted(mean)
	p.Base = middle(s[:max(len(s)/2, 1)])
	top := s[len(s)-1]
	var centre complex128
	high := 0
	for j := range sum {
		over := sum[j] - p.Base
		p.Amount += max(over, 0) * p.Seconds / float64(n)
		if over > (top-p.Base)/2 {
			high++
			sin, cos := math.Sincos(2 * math.Pi * (float64(j) + 0.5) / float64(n))
			centre += complex(over*cos, over*sin)
		}
	}
	p.Duty = float64(high) / float64(n)
	phase := cmplx.Phase(centre) / (2 * math.Pi)
	if phase < 0 {
		phase++
	}
	p.First = t0 + phase*p.Seconds
}

// FalseDiscovery says which of many tests' P values to believe so that no more
// than the share q of what is believed is expected to be false (Benjamini and
// Hochberg, 1995). tests is how many were made; ps may hold the small ones only.
func FalseDiscovery(ps []float64, tests int, q float64) (limit float64) {
	s := sorted(ps)
	for i, p := range s {
		if p <= q*float64(i+1)/float64(max(tests, len(s))) {
			limit = p
		}
	}
	return limit
}

func absolute(xs []float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = math.Abs(x)
	}
	return out
}

func deviationOf(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	m, sum := Mean(xs), 0.0
	for _, x := range xs {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(len(xs)-1))
}

// binomialTail is P(B ≥ k) of n trials.
func binomialTail(n, k int, p float64) float64 {
	if k <= 0 || p >= 1 {
		return 1
	}
	if p <= 0 {
		return 0
	}
	ln, _ := math.Lgamma(float64(n + 1))
	sum := 0.0
	for i := k; i <= n; i++ {
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(ln - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return min(sum, 1)
}

// logGammaTail is the logarithm of the chance that n unit exponentials sum to
// at least x: e⁻ˣ Σ xⁱ/i! for i < n.
func logGammaTail(n int, x float64) float64 {
	term, sum := 1.0, 1.0
	for i := 1; i < n; i++ {
		term *= x / float64(i)
		sum += term
	}
	return min(0, math.Log(sum)-x)
}

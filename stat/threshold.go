package stat

import (
	"math"
	"slices"
)

// A Threshold is sought by trials that pass below it and fail above it, but not
// always: near it the same trial passes once and fails another time.
//
// It is a Bayesian staircase: the chance to pass falls with the logarithm of the
// load as a logistic function does, how steeply is not known either, and each
// next load is the one whose outcome is expected to tell most of where the
// threshold lies (Watson and Pelli 1983, QUEST; Kontsevich and Tyler 1999,
// Bayesian adaptive estimation of psychometric slope and threshold). So trials
// gather near the edge and repeat there by themselves, a misleading one is
// outvoted, and what is known can be told at any time as an interval.
//
// The zero value is not usable; start with NewThreshold.
type Threshold struct {
	lo, hi float64
	steps  func(float64) float64 // rounds a load to one that can be had
	theta  []float64             // logarithms of thresholds
	width  []float64             // of the logistic, in logarithms
	log    [][]float64           // log posterior, by width and theta
	trials []Trial
}

// Trial is one attempt at a load.
type Trial struct {
	Load   float64 `json:"load"`
	Passed bool    `json:"passed"`
}

// lapse is the chance that a trial's outcome says nothing: the machine was busy
// with something else.
const lapse = 0.02

// NewThreshold seeks a threshold between two loads above 0. Step is the least
// difference of loads, 0 where there is none.
func NewThreshold(lo, hi, step float64) *Threshold {
	t := &Threshold{lo: lo, hi: hi, steps: func(x float64) float64 { return x }}
	if step > 0 {
		t.steps = func(x float64) float64 { return max(step, math.Round(x/step)*step) }
	}
	// A step of 2 % at most; beyond the ends lie thresholds that are not between.
	n := max(100, int(math.Ceil(math.Log(hi/lo)/0.02)))
	edge := 0.1
	a, b := math.Log(lo)-edge, math.Log(hi)+edge
	for i := range n + 1 {
		t.theta = append(t.theta, a+(b-a)*float64(i)/float64(n))
	}
	t.width = []float64{0.003, 0.01, 0.03, 0.06, 0.12, 0.25}
	for range t.width {
		t.log = append(t.log, make([]float64, len(t.theta)))
	}
	return t
}

// passes is the chance to pass at a load.
func passes(load, theta, width float64) float64 {
	p := 1 / (1 + math.Exp((math.Log(load)-theta)/width))
	return lapse/2 + (1-lapse)*p
}

// Add tells of a trial.
func (t *Threshold) Add(load float64, passed bool) {
	t.trials = append(t.trials, Trial{load, passed})
	for i, w := range t.width {
		for j, theta := range t.theta {
			p := passes(load, theta, w)
			if !passed {
				p = 1 - p
			}
			t.log[i][j] += math.Log(p)
		}
	}
}

// Trials are those told of, in order.
func (t *Threshold) Trials() []Trial { return slices.Clone(t.trials) }

// posterior is what is known, as chances that add up to 1.
func (t *Threshold) posterior() [][]float64 {
	most := math.Inf(-1)
	for _, row := range t.log {
		most = max(most, slices.Max(row))
	}
	sum := 0.0
	out := make([][]float64, len(t.log))
	for i, row := range t.log {
		out[i] = make([]float64, len(row))
		for j, l := range row {
			out[i][j] = math.Exp(l - most)
			sum += out[i][j]
		}
	}
	for _, row := range out {
		for j := range row {
			row[j] /= sum
		}
	}
	return out
}

// Next is the load to try: of those that can be had, the one whose outcome is
// expected to leave the least doubt of the threshold.
func (t *Threshold) Next() float64 {
	post := t.posterior()
	marginal := sumRows(post)
	// Loads beyond what is believed tell nothing.
	a, b := math.Exp(t.quantile(marginal, 0.005)), math.Exp(t.quantile(marginal, 0.995))
	a, b = max(a, t.lo), min(b, t.hi)
	const candidates = 24
	best, least := math.NaN(), math.Inf(1)
	for i := range candidates + 1 {
		x := t.steps(a * math.Pow(b/a, float64(i)/candidates))
		if x < t.lo || x > t.hi {
			continue
		}
		if h := t.expected(post, x); h < least-1e-12 {
			best, least = x, h
		}
	}
	if math.IsNaN(best) { // a step is longer than what is left
		best = min(max(t.steps(math.Exp(t.quantile(marginal, 0.5))), t.lo), t.hi)
	}
	return best
}

// expected is the entropy of the threshold after a trial at x, whichever way it
// goes.
func (t *Threshold) expected(post [][]float64, x float64) float64 {
	n := len(t.theta)
	pass, fail := make([]float64, n), make([]float64, n)
	var p, q float64
	for i, w := range t.width {
		for j, theta := range t.theta {
			c := passes(x, theta, w)
			pass[j] += post[i][j] * c
			fail[j] += post[i][j] * (1 - c)
		}
	}
	for j := range n {
		p += pass[j]
		q += fail[j]
	}
	return p*entropy(pass, p) + q*entropy(fail, q)
}

func entropy(weights []float64, sum float64) float64 {
	h := 0.0
	for _, w := range weights {
		if w > 0 {
			h -= w / sum * math.Log(w/sum)
		}
	}
	return h
}

func sumRows(rows [][]float64) []float64 {
	out := make([]float64, len(rows[0]))
	for _, row := range rows {
		for j, x := range row {
			out[j] += x
		}
	}
	return out
}

func (t *Threshold) quantile(marginal []float64, q float64) float64 {
	sum := 0.0
	for j, p := range marginal {
		if sum += p; sum >= q {
			return t.theta[j]
		}
	}
	return t.theta[len(t.theta)-1]
}

// At is the load at which half of the trials pass: the median of what is
// believed, and the interval that holds it with the given chance.
func (t *Threshold) At(level float64) (at float64, ci Interval) {
	m := sumRows(t.posterior())
	e := func(q float64) float64 { return math.Exp(t.quantile(m, q)) }
	return e(0.5), Interval{e((1 - level) / 2), e(1 - (1-level)/2), level}
}

// Found says that the interval's ends are within a share of the threshold. The
// ends of the loads that may be tried bound it too, where a trial there says so.
func (t *Threshold) Found(level, within float64) bool {
	at, ci := t.At(level)
	return ci.Lo >= at*(1-within) && ci.Hi <= at*(1+within)
}

// Beyond says that the threshold lies outside of the loads that may be tried, to
// the chance of level: above all of them (1), below (-1), or between (0).
func (t *Threshold) Beyond(level float64) int {
	_, ci := t.At(level)
	m := sumRows(t.posterior())
	var below, above float64
	for j, p := range m {
		switch {
		case t.theta[j] < math.Log(t.lo):
			below += p
		case t.theta[j] > math.Log(t.hi):
			above += p
		}
	}
	// What lies beyond has no room in the grid but a tenth: the bulk is enough.
	switch {
	case above > 0.5 && ci.Lo > t.hi*0.97:
		return 1
	case below > 0.5 && ci.Hi < t.lo*1.03:
		return -1
	}
	return 0
}

package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// Labels select series of a metric as record.Recording.Increase has it: a value
// that starts with ~ is a regular expression.
type Labels = map[string]string

// regularRest is how long before the load a series' last sample may lie and
// still stand for its value at the load's start; the longest interval of
// scrapes is 10 s.
const regularRest = 30 * time.Second

// Increase is by how much a component's counters grew over the load. ok is
// false where they were not recorded. A counter that has no series although its
// component was scraped never counted: it is 0.
func (v *View) Increase(component, metric string, match Labels) (float64, bool) {
	return v.Growth(component, metric, match, v.metricWindow())
}

// Growth is Increase in another window. It is exact to a scrape: see Steps.
func (v *View) Growth(component, metric string, match Labels, w record.Window) (float64, bool) {
	x, ok, err := v.src.Increase(metric, v.of(component, match), w)
	if !v.good(metric, err) {
		return 0, false
	}
	return x, ok || v.counted(component, metric)
}

// of adds the component to a match.
func (v *View) of(component string, match Labels) Labels {
	m := Labels{"component": component}
	for k, x := range match {
		m[k] = x
	}
	return m
}

// good remembers an error that is not for want of data.
func (v *View) good(metric string, err error) bool {
	if _, _, bad := optional[struct{}](metric, nil, err); bad != nil && v.err == nil {
		v.err = bad
	}
	return err == nil
}

// counted says whether a counter that has no matching series is 0 rather than
// unknown: other series of it are there, or its component was scraped while the
// load was on, and nobody took the metric out of the recording.
func (v *View) counted(component, metric string) bool {
	if _, ok, err := v.src.Increase(metric, v.of(component, nil), v.metricWindow()); !v.good(metric, err) || ok {
		return ok
	}
	if kept := v.Meta.KeptMetrics; len(kept) > 0 && !slices.Contains(kept, metric) {
		return false
	}
	return v.scraped(component)
}

// scraped says whether a component answered to a scrape of the load.
func (v *View) scraped(component string) bool {
	for _, s := range v.points(component, scrapes, nil, v.metricWindow()) {
		for _, p := range s.Points {
			if p.Value > 0 {
				return true
			}
		}
	}
	return false
}

// scrapes is 1 at each scrape that a target answered.
const scrapes = "up"

// points are the samples of a component's series in a window.
func (v *View) points(component, metric string, match Labels, w record.Window) []record.Series {
	series, err := v.src.Points(metric, v.of(component, match), w)
	if !v.good(metric, err) {
		return nil
	}
	return series
}

// A Part is what one value of a label stands for.
type Part struct {
	Label string
	Value float64
}

// IncreaseBy is Increase for each value of a label, the largest first; what did
// not grow is left out. ok is false where the counters were not recorded.
func (v *View) IncreaseBy(component, metric, label string, match Labels) ([]Part, bool) {
	return v.GrowthBy(component, metric, label, match, v.metricWindow())
}

// GrowthBy is IncreaseBy in another window.
func (v *View) GrowthBy(component, metric, label string, match Labels, w record.Window) ([]Part, bool) {
	sums := map[string]float64{}
	for _, s := range v.points(component, metric, match, before(w)) {
		sums[s.Labels[label]] += grown(s.Points, w.Start, w.End)
	}
	if len(sums) == 0 && !v.counted(component, metric) {
		return nil, false
	}
	return parts(sums), true
}

// before is a window with what is needed to know the values at its start.
func before(w record.Window) record.Window {
	return record.Window{Start: w.Start.Add(-regularRest), End: w.End.Add(time.Millisecond)}
}

// since is a window with what a gauge showed before it.
func since(w record.Window) record.Window {
	return record.Window{Start: w.Start.Add(-regularRest), End: w.End}
}

func parts(sums map[string]float64) []Part {
	var ps []Part
	for label, x := range sums {
		if x != 0 {
			ps = append(ps, Part{label, x})
		}
	}
	slices.SortFunc(ps, func(a, b Part) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Label, b.Label)) })
	return ps
}

// grown is one counter's growth by record.Recording.Increase's rules.
func grown(ps []record.Point, start, end time.Time) (sum float64) {
	last := 0.0
	for _, p := range ps {
		if p.Time.After(end) {
			break
		}
		if p.Time.After(start) {
			if p.Value < last {
				last = 0
			}
			sum += p.Value - last
		}
		last = p.Value
	}
	return sum
}

// Mean is the mean of what a histogram counted over the load, and how many
// values that are. Histograms are named without _sum and _count. ok is false
// where it was not recorded, or counted nothing: of nothing there is no mean.
func (v *View) Mean(component, histogram string, match Labels) (mean, n float64, ok bool) {
	sum, okSum := v.Increase(component, histogram+"_sum", match)
	n, okN := v.Increase(component, histogram+"_count", match)
	if !okSum || !okN || n <= 0 {
		return 0, 0, false
	}
	return sum / n, n, true
}

// A RateAt is what a counter did at rest.
type RateAt struct {
	PerSecond float64
	Seconds   float64 // between the scrapes that it was taken from
}

// RestRate is how fast counters grew before the load, between the first and the
// last scrape of Rest. ok is false where there were no two scrapes.
func (v *View) RestRate(component, metric string, match Labels) (r RateAt, ok bool) {
	if v.Rest.Seconds() <= 0 {
		return r, false
	}
	// The load's first scrape closes the rest: until then nothing was sent.
	w := record.Window{Start: v.Rest.Start, End: v.Load.Start.Add(edge)}
	first, last := time.Time{}, time.Time{}
	for _, s := range v.points(component, scrapes, nil, w) {
		if n := len(s.Points); n > 1 {
			first, last = s.Points[0].Time, s.Points[n-1].Time
		}
	}
	series := v.points(component, metric, match, before(w))
	if last.Sub(first) < time.Second || len(series) == 0 && !v.counted(component, metric) {
		return r, false
	}
	r.Seconds = last.Sub(first).Seconds()
	for _, s := range series {
		r.PerSecond += grown(s.Points, first, last) / r.Seconds
	}
	return r, true
}

// edge is how much later than the load's start the scrape of that moment may be.
const edge = 250 * time.Millisecond

// RestMean is Mean before the load.
func (v *View) RestMean(component, histogram string, match Labels) (mean, n float64, ok bool) {
	sum, okSum := v.RestRate(component, histogram+"_sum", match)
	count, okN := v.RestRate(component, histogram+"_count", match)
	if !okSum || !okN || count.PerSecond <= 0 {
		return 0, 0, false
	}
	return sum.PerSecond / count.PerSecond, count.PerSecond * count.Seconds, true
}

// A Level is a gauge over a window: all matching series together.
type Level struct {
	Mean, Max   float64
	First, Last float64
	N           int // moments at which it was read
}

// Gauge is what a component's gauge showed in a window; without a sample inside,
// the last one before it. ok is false where there is none: unlike a counter, a
// gauge that is not there is unknown.
func (v *View) Gauge(component, metric string, match Labels, w record.Window) (Level, bool) {
	return level(v.points(component, metric, match, since(w)), w)
}

// GaugeBy is Gauge for each value of a label.
func (v *View) GaugeBy(component, metric, label string, match Labels, w record.Window) map[string]Level {
	by := map[string][]record.Series{}
	for _, s := range v.points(component, metric, match, since(w)) {
		by[s.Labels[label]] = append(by[s.Labels[label]], s)
	}
	levels := map[string]Level{}
	for label, series := range by {
		if l, ok := level(series, w); ok {
			levels[label] = l
		}
	}
	return levels
}

func level(series []record.Series, w record.Window) (l Level, ok bool) {
	var times []time.Time
	for _, s := range series {
		for _, p := range s.Points {
			times = append(times, p.Time)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	at := make([]int, len(series)) // of each series, how many samples are past
	var from []time.Time           // since when l's samples hold
	var held []float64
	inside := false
	for _, t := range times {
		x := 0.0
		for i, s := range series {
			for at[i] < len(s.Points) && !s.Points[at[i]].Time.After(t) {
				at[i]++
			}
			if at[i] > 0 {
				x += s.Points[at[i]-1].Value
			}
		}
		if t.Before(w.Start) || !inside { // what came before stands in until there is one inside
			l, from, held = Level{First: x}, nil, nil
		}
		inside = inside || !t.Before(w.Start)
		from, held = append(from, t), append(held, x)
		l.N++
		l.Max, l.Last = max(l.Max, x), x
	}
	l.Mean = overTime(from, held, w.End)
	return l, l.N > 0
}

// overTime is the mean of what holds from one time to the next, and at last until
// the end: scrapes need not be equally far apart.
func overTime(from []time.Time, held []float64, end time.Time) float64 {
	if len(held) == 0 {
		return 0
	}
	var sum, seconds float64 // sum is of what is above the first: so one that never moves is told exactly
	for i, x := range held {
		to := end
		if i+1 < len(from) {
			to = from[i+1]
		}
		d := max(0, to.Sub(from[i]).Seconds())
		sum, seconds = sum+d*(x-held[0]), seconds+d
	}
	if seconds == 0 {
		return held[len(held)-1]
	}
	return held[0] + sum/seconds
}

// A Step is a counter's growth between two scrapes, in seconds since Load.Start.
type Step struct{ From, To, Growth float64 }

// PerSecond is the step's rate.
func (s Step) PerSecond() float64 {
	if s.To <= s.From {
		return 0
	}
	return s.Growth / (s.To - s.From)
}

// Steps are a counter's growth from scrape to scrape over the load: when it
// began, whether it lasted, and how it grew. ok is false where the load has no
// two scrapes.
func (v *View) Steps(component, metric string, match Labels) ([]Step, bool) {
	w := v.metricWindow()
	series := v.points(component, metric, match, before(w))
	var times []time.Time
	for _, s := range v.points(component, scrapes, nil, before(w)) {
		for _, p := range s.Points {
			times = append(times, p.Time)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	var steps []Step
	for i := 1; i < len(times); i++ {
		if !times[i].After(w.Start) {
			continue
		}
		st := Step{From: v.sec(times[i-1].UnixMicro()), To: v.sec(times[i].UnixMicro())}
		for _, s := range series {
			st.Growth += grown(s.Points, times[i-1], times[i])
		}
		steps = append(steps, st)
	}
	if len(steps) < 2 || len(series) == 0 && !v.counted(component, metric) {
		return nil, false
	}
	return steps, true
}

// Persistent is the share of the steps' time in which a counter grew by at least
// a second's floor.
func Persistent(steps []Step, floor float64) float64 {
	var with, all float64
	for _, s := range steps {
		all += s.To - s.From
		if s.PerSecond() >= floor {
			with += s.To - s.From
		}
	}
	if all == 0 {
		return 0
	}
	return with / all
}

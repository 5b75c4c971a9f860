package use

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// reader holds what all windows of a recording share.
type reader struct {
	rec       *record.Recording
	machine   []record.MachineSample
	noMachine error
	cores     []record.CoreSample
	noCores   error
	disks     []record.DiskSample
	noDisks   error
	processes map[string][]record.ProcessSample // of each component, by time
	names     []string                          // of components with processes
	noProcess error
	noMetrics error
	series    map[string][]record.Series // of a metric, whole run
	targets   []target
	agents    map[string][]int64 // of components with a client limit: when each client's requests came
	noAgents  error
}

// target is one process that was scraped.
type target struct {
	component, instance string
	up                  []record.Point // successful scrapes
}

func newReader(rec *record.Recording) (*reader, error) {
	r := &reader{rec: rec, series: map[string][]record.Series{}, processes: map[string][]record.ProcessSample{}}
	r.machine, r.noMachine = rec.MachineSamples()
	r.cores, r.noCores = rec.Cores()
	r.disks, r.noDisks = rec.Disks()
	samples, err := rec.Processes()
	r.noProcess = err
	for _, s := range samples {
		if s.Component == "" {
			continue
		}
		if r.processes[s.Component] == nil {
			r.names = append(r.names, s.Component)
		}
		r.processes[s.Component] = append(r.processes[s.Component], s)
	}
	slices.Sort(r.names)
	m := rec.Meta()
	up, err := rec.Points("up", nil, record.Window{Start: m.Started.Add(-time.Minute), End: m.Ended.Add(time.Minute)})
	r.noMetrics = err
	for _, s := range up {
		t := target{component: s.Labels["component"], instance: s.Labels["instance"]}
		for _, p := range s.Points {
			if p.Value == 1 {
				t.up = append(t.up, p)
			}
		}
		r.targets = append(r.targets, t)
	}
	r.clients()
	for _, err := range []error{r.noMachine, r.noCores, r.noDisks, r.noProcess, r.noMetrics, r.noAgents} {
		if err != nil && !errors.Is(err, record.ErrMissing) {
			return nil, err
		}
	}
	return r, nil
}

// of are all series of a metric.
func (r *reader) of(metric string) []record.Series {
	if s, ok := r.series[metric]; ok {
		return s
	}
	m := r.rec.Meta()
	s, err := r.rec.Points(metric, nil, record.Window{Start: m.Started.Add(-time.Minute), End: m.Ended.Add(time.Minute)})
	if err != nil {
		r.noMetrics = errors.Join(r.noMetrics, err)
	}
	r.series[metric] = s
	return s
}

// scraped are the times of the first and the last scrape of a target that
// bound the window. ok is false for fewer than two.
func (t *target) scraped(w record.Window) (from, to time.Time, ok bool) {
	n := 0
	for _, p := range t.up {
		if !p.Time.After(w.Start) {
			from, n = p.Time, 1 // the last one before the window bounds it as well
			continue
		}
		if p.Time.After(w.End) {
			break
		}
		if n == 0 {
			from = p.Time
		}
		to = p.Time
		n++
	}
	return from, to, n >= 2 && to.After(from)
}

// family is a metric of one target in a window.
type family struct {
	r        *reader
	t        *target
	from, to time.Time
}

func (f *family) seconds() float64 { return f.to.Sub(f.from).Seconds() }

// grown is by how much each counter of the target grew, and how many there
// are. A series born after the first scrape counts from 0.
func (f *family) grown(metric string, each func(labels map[string]string, by float64)) (n int) {
	for _, s := range f.r.of(metric) {
		if s.Labels["instance"] != f.t.instance {
			continue
		}
		if by, ok := growth(s.Points, f.from, f.to); ok {
			n++
			each(s.Labels, by)
		}
	}
	return n
}

// total is the growth of all of them.
func (f *family) total(metric string, match func(map[string]string) bool) (sum float64, n int) {
	f.grown(metric, func(l map[string]string, by float64) {
		if match == nil || match(l) {
			sum += by
			n++
		}
	})
	return sum, n
}

// has says whether the target exposed the metric in the window.
func (f *family) has(metric string) bool {
	return f.grown(metric, func(map[string]string, float64) {}) > 0
}

// growth of a counter between two scrapes; a fall is a restart from 0.
func growth(ps []record.Point, from, to time.Time) (by float64, ok bool) {
	before, seen := 0.0, false
	for _, p := range ps {
		if p.Time.After(to) {
			break
		}
		if math.IsNaN(p.Value) {
			continue
		}
		if !p.Time.After(from) {
			before, seen = p.Value, true
			continue
		}
		if p.Value < before {
			before = 0
		}
		by += p.Value - before
		before, seen = p.Value, true
	}
	return by, seen
}

// level is a gauge in a window.
type level struct {
	max, sum, last float64
	n              int
}

func (l level) mean() float64 { return l.sum / float64(max(l.n, 1)) }

// gauge adds up the matching series at each scrape.
func (f *family) gauge(metric string, match func(map[string]string) bool) (l level) {
	at := map[int64]float64{}
	for _, s := range f.r.of(metric) {
		if s.Labels["instance"] != f.t.instance || match != nil && !match(s.Labels) {
			continue
		}
		for _, p := range s.Points {
			if !p.Time.Before(f.from) && !p.Time.After(f.to) && !math.IsNaN(p.Value) {
				at[p.Time.UnixMilli()] += p.Value
			}
		}
	}
	latest := int64(math.MinInt64)
	for t, v := range at {
		l.n++
		l.sum += v
		if l.n == 1 || v > l.max {
			l.max = v
		}
		if t > latest {
			latest, l.last = t, v
		}
	}
	return l
}

// quantile of a histogram's growth, straight inside a bucket as Prometheus
// has it. first says that it lies in the first bucket: then it is at most that.
func (f *family) quantile(metric string, q float64) (value float64, n float64, first bool) {
	by := map[float64]float64{}
	f.grown(metric+"_bucket", func(l map[string]string, x float64) {
		if le, err := strconv.ParseFloat(l["le"], 64); err == nil {
			by[le] += x
		}
	})
	var les []float64
	for le := range by {
		les = append(les, le)
	}
	slices.Sort(les)
	if len(les) < 2 {
		return 0, 0, false
	}
	n = by[les[len(les)-1]]
	if n == 0 {
		return 0, 0, false
	}
	below, low := 0.0, 0.0
	for i, le := range les {
		if by[le] >= q*n {
			if math.IsInf(le, 1) {
				return low, n, false
			}
			if i == 0 {
				return le, n, true
			}
			return low + (le-low)*(q*n-below)/(by[le]-below), n, false
		}
		below, low = by[le], le
	}
	return low, n, false
}

// highest is the upper end of the highest bucket that grew.
func (f *family) highest(metric string) (value float64, n float64) {
	v, n, _ := f.quantile(metric, 1)
	if n == 0 {
		return 0, 0
	}
	top := math.Inf(1)
	f.grown(metric+"_bucket", func(l map[string]string, _ float64) {
		if le, err := strconv.ParseFloat(l["le"], 64); err == nil && le >= v-1e-12 {
			top = min(top, le)
		}
	})
	if math.IsInf(top, 1) {
		top = v
	}
	return top, n
}

// flag is the value of a component's flag, or its default.
func (r *reader) flag(component, name, standard string) string {
	for _, c := range r.rec.Components() {
		if c.Name == component {
			if v, ok := c.Flags[name]; ok {
				return v
			}
		}
	}
	return standard
}

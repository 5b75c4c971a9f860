package scrape

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// rereader reads the metrics of an answer once more.
//
// A registry that gathers checks each metric, hashes its labels and puts all in
// order, so that what it returns is valid for the text format. That takes longer than
// to read the metrics, and finds of nearly all what it found before. Where a
// collector has all metrics of an answer that was gathered, only their values can
// differ, and there may be further metrics of the same families.
type rereader struct {
	from prometheus.Collector

	// Where metrics are in the answer: of those that were there by themselves, of
	// others by family and key, which are made when they are needed.
	places, spare map[prometheus.Metric]int
	named         map[string]int
	kinds         []dto.MetricType // by place
	families      map[string]dto.MetricType
	names         map[*prometheus.Desc]string

	// Of one reading.
	seen    []bool // by place
	values  []float64
	fresh   []*dto.MetricFamily // of one metric each
	scratch answer
}

// newRereader returns nil for a gatherer whose metrics cannot be had one by one.
// The registry of a Kubernetes component is wrapped around one where they can.
func newRereader(from prometheus.Gatherer) *rereader {
	if wrapper, ok := from.(interface{ Gatherer() prometheus.Gatherer }); ok {
		from = wrapper.Gatherer()
	}
	c, ok := from.(prometheus.Collector)
	if !ok {
		return nil
	}
	return &rereader{from: c, places: map[prometheus.Metric]int{}, spare: map[prometheus.Metric]int{},
		families: map[string]dto.MetricType{}, names: map[*prometheus.Desc]string{}}
}

// gathered is called with each answer that was not read by it.
func (r *rereader) gathered(a *answer) {
	r.named = nil
	clear(r.places)
	clear(r.families)
	r.kinds = r.kinds[:0]
	for _, f := range a.families {
		r.families[f.name] = f.kind
		for range f.metrics {
			r.kinds = append(r.kinds, f.kind)
		}
	}
}

// changes writes how the answer's lines differ by now, and makes it the answer of
// now. It returns false, and has written and changed nothing, where that is to be gathered.
func (r *rereader) changes(out *bytes.Buffer, a *answer) (ok bool) {
	defer func() {
		if !ok {
			r.gathered(a) // forgets what was begun
		}
	}()
	if !r.read(a) {
		return false
	}
	end := out.Len()
	c := changes{out: out}
	c.values(a.values, r.values)
	c.flush()
	for _, f := range r.fresh {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			out.Truncate(end)
			return false
		}
	}
	a.values, r.values = r.values, a.values
	for _, f := range r.fresh {
		a.add(f)
	}
	r.places, r.spare = r.spare, r.places
	return true
}

// read reads all metrics.
func (r *rereader) read(a *answer) bool {
	metrics := make(chan prometheus.Metric, len(a.metrics)+256)
	failed := make(chan struct{}, 1)
	go func() {
		defer close(metrics)
		defer func() {
			if recover() != nil { // gathering tells of it
				failed <- struct{}{}
			}
		}()
		r.from.Collect(metrics)
	}()
	defer func() {
		for range metrics { // so that its sender ends
		}
	}()
	r.values = slices.Grow(r.values[:0], len(a.values))[:len(a.values)]
	r.seen = slices.Grow(r.seen[:0], len(a.metrics))[:len(a.metrics)]
	clear(r.seen)
	clear(r.spare)
	r.fresh = r.fresh[:0]
	left := len(a.metrics)
	for m := range metrics {
		place, ok := r.take(a, m)
		switch {
		case !ok:
			return false
		case place == len(r.seen):
			r.seen = append(r.seen, true)
		case r.seen[place]: // two that are the same
			return false
		default:
			r.seen[place] = true
			left--
		}
	}
	return left == 0 && len(failed) == 0
}

// take takes the values of one metric over, and remembers its place: one behind all
// others where it is new.
func (r *rereader) take(a *answer, m prometheus.Metric) (place int, ok bool) {
	var out dto.Metric
	if err := m.Write(&out); err != nil || out.TimestampMs != nil {
		return 0, false
	}
	kind, ok := kindOf(&out)
	if !ok {
		return 0, false
	}
	x := metric{labels: out.Label}
	r.scratch.values = r.scratch.values[:0]
	r.scratch.take(&x, kind, &out)
	x.end = len(r.scratch.values)
	lasting := reflect.TypeOf(m).Kind() == reflect.Pointer // others may not be comparable
	known := false
	if lasting {
		place, known = r.places[m]
	}
	if !known {
		if place, ok = r.find(a, m, kind, &out, &x); !ok {
			return 0, false
		}
	}
	if place < len(a.metrics) {
		was := &a.metrics[place]
		if r.kinds[place] != kind || !was.same(&x) {
			return 0, false
		}
		copy(r.values[was.start:was.end], r.scratch.values)
	}
	if lasting {
		r.spare[m] = place
	}
	return place, true
}

// find looks a metric up by its family and labels. Of a family that was not there
// nothing is known, so it is to be gathered.
func (r *rereader) find(a *answer, m prometheus.Metric, kind dto.MetricType, out *dto.Metric, x *metric) (place int, ok bool) {
	if r.named == nil {
		r.named = make(map[string]int, len(a.metrics))
		at := 0
		for _, f := range a.families {
			for i := range f.metrics {
				r.named[f.metrics[i].keyIn(f.name)] = at
				at++
			}
		}
	}
	family, ok := r.family(m.Desc())
	if was, there := r.families[family]; !ok || !there || was != kind {
		return 0, false
	}
	key := x.keyIn(family)
	if place, ok = r.named[key]; ok {
		return place, true
	}
	place = len(a.metrics) + len(r.fresh)
	r.fresh = append(r.fresh, &dto.MetricFamily{Name: &family, Type: &kind, Metric: []*dto.Metric{out}})
	r.named[key] = place
	r.kinds = append(r.kinds, kind)
	return place, true
}

// keyIn is the metric's key among those of all families.
func (x *metric) keyIn(family string) string { return family + "\xff" + x.key() }

// maxNames bounds what is remembered of descriptors, which some collectors make anew
// each time.
const maxNames = 10_000

// family is nameOf, remembered.
func (r *rereader) family(d *prometheus.Desc) (name string, ok bool) {
	if name, ok := r.names[d]; ok {
		return name, name != ""
	}
	if len(r.names) >= maxNames {
		clear(r.names)
	}
	name = nameOf(d)
	r.names[d] = name
	return name, name != ""
}

// nameOf is the name of a descriptor's family; empty where its text does not tell.
func nameOf(d *prometheus.Desc) (name string) {
	if text, found := strings.CutPrefix(d.String(), "Desc{fqName: "); found {
		if quoted, err := strconv.QuotedPrefix(text); err == nil {
			name, _ = strconv.Unquote(quoted)
		}
	}
	return name
}

// kindOf is the kind of the family that a registry makes of such a metric.
func kindOf(m *dto.Metric) (kind dto.MetricType, ok bool) {
	switch {
	case m.Gauge != nil:
		return dto.MetricType_GAUGE, true
	case m.Counter != nil:
		return dto.MetricType_COUNTER, true
	case m.Summary != nil:
		return dto.MetricType_SUMMARY, true
	case m.Untyped != nil:
		return dto.MetricType_UNTYPED, true
	case m.Histogram != nil:
		return dto.MetricType_HISTOGRAM, true
	}
	return 0, false
}

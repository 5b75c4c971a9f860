package scrape

import (
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// answer is what is kept of an answer: of each line of the text format what it is
// about, and its value.
type answer struct {
	families []family
	metrics  []metric
	values   []float64
}

type family struct {
	name    string
	kind    dto.MetricType
	metrics []metric
}

// metric is one metric of a family, which has a line, or several: one a bucket or
// quantile, and sum and count.
type metric struct {
	// labels are the metric's own, which are made once and never change.
	labels     []*dto.LabelPair
	shape      uint64 // of the bounds of its buckets, or its quantiles
	start, end int    // of its values
}

// fill takes an answer's families in. It returns false where changes cannot be
// told, because lines have times of their own.
func (a *answer) fill(families []*dto.MetricFamily) (plain bool) {
	clear(a.metrics[:cap(a.metrics)]) // labels of what is no longer there
	a.families, a.metrics, a.values = a.families[:0], a.metrics[:0], a.values[:0]
	plain = true
	for _, f := range families {
		for _, m := range f.Metric {
			plain = plain && m.TimestampMs == nil
		}
		a.add(f)
	}
	return plain
}

// add takes one more family in, behind the others.
func (a *answer) add(f *dto.MetricFamily) {
	start := len(a.metrics)
	for _, m := range f.Metric {
		x := metric{labels: m.Label, start: len(a.values)}
		a.take(&x, f.GetType(), m)
		x.end = len(a.values)
		a.metrics = append(a.metrics, x)
	}
	a.families = append(a.families, family{f.GetName(), f.GetType(), a.metrics[start:]})
}

// take appends the values of a metric's lines, in the order in which the text
// format has them.
func (a *answer) take(x *metric, kind dto.MetricType, m *dto.Metric) {
	switch kind {
	case dto.MetricType_COUNTER:
		a.values = append(a.values, m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		a.values = append(a.values, m.GetGauge().GetValue())
	case dto.MetricType_UNTYPED:
		a.values = append(a.values, m.GetUntyped().GetValue())
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		for _, q := range s.Quantile {
			x.bound(q.GetQuantile())
			a.values = append(a.values, q.GetValue())
		}
		a.values = append(a.values, s.GetSampleSum(), float64(s.GetSampleCount()))
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		h := m.GetHistogram()
		endless := false
		for _, b := range h.Bucket {
			x.bound(b.GetUpperBound())
			endless = endless || math.IsInf(b.GetUpperBound(), 1)
			a.values = append(a.values, either(b.GetCumulativeCountFloat(), b.GetCumulativeCount()))
		}
		count := either(h.GetSampleCountFloat(), h.GetSampleCount())
		if !endless {
			a.values = append(a.values, count)
		}
		a.values = append(a.values, h.GetSampleSum(), count)
	}
}

// either is a count that is there as one of both.
func either(f float64, n uint64) float64 {
	if f != 0 {
		return f
	}
	return float64(n)
}

// bound mixes the bound of a line into the shape (FNV-1a over 64 bits at a time).
func (x *metric) bound(v float64) {
	if x.shape == 0 {
		x.shape = 14695981039346656037
	}
	x.shape = (x.shape ^ math.Float64bits(v)) * 1099511628211
}

// same says whether two metrics of one family have the same lines but for the values.
func (x *metric) same(y *metric) bool {
	if x.shape != y.shape || x.end-x.start != y.end-y.start || len(x.labels) != len(y.labels) {
		return false
	}
	if len(x.labels) == 0 || &x.labels[0] == &y.labels[0] {
		return true
	}
	for i, l := range x.labels {
		if l.GetName() != y.labels[i].GetName() || l.GetValue() != y.labels[i].GetValue() {
			return false
		}
	}
	return true
}

// key is the same for what is the same, and for nothing else in a family.
func (x *metric) key() string {
	var b strings.Builder
	for _, l := range x.labels {
		b.WriteString(l.GetName())
		b.WriteByte(0xff) // in no UTF-8
		b.WriteString(l.GetValue())
		b.WriteByte(0xff)
	}
	for _, n := range [...]uint64{x.shape, uint64(x.end - x.start)} {
		for range 8 {
			b.WriteByte(byte(n))
			n >>= 8
		}
	}
	return b.String()
}

func (a *answer) of(x *metric) []float64 { return a.values[x.start:x.end] }

// lines counts those of some metrics.
func (a *answer) lines(metrics []metric) int {
	if len(metrics) == 0 {
		return 0
	}
	return metrics[len(metrics)-1].end - metrics[0].start
}

// unmoved says whether two values have the same text.
func unmoved(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }

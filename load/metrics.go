package load

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubedyno/kubedyno/internal/introspect"
	"github.com/kubedyno/kubedyno/record"
)

// metrics are what the generator counts about its own work. The operations
// table has each operation; these are for PromQL and dashboards.
type metrics struct {
	registry *prometheus.Registry
	answered *prometheus.HistogramVec
	missed   prometheus.Counter
	late     prometheus.Histogram
}

func newMetrics() *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms … 16 s
	m := &metrics{
		registry: introspect.NewRegistry(),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubedyno_load_request_duration_seconds", Help: "Requests of the load, from sent to answered.", Buckets: buckets,
		}, []string{"verb", "resource", "code"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubedyno_load_missed_total", Help: "Operations that were due and never sent."}),
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubedyno_load_lateness_seconds", Help: "How much later than due an operation was sent.", Buckets: buckets}),
	}
	m.registry.MustRegister(m.answered, m.missed, m.late)
	return m
}

// operation counts one that is over.
func (m *metrics) operation(op *record.Operation) {
	if op.SentMicros == 0 {
		m.missed.Inc()
		return
	}
	m.late.Observe(float64(op.SentMicros-op.DueMicros) / 1e6)
	if op.DoneMicros != 0 {
		m.answered.WithLabelValues(op.Verb, op.Resource, strconv.Itoa(int(op.Code))).Observe(float64(op.DoneMicros-op.SentMicros) / 1e6)
	}
}

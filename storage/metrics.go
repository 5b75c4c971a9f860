package storage

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
	libmetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/kubedyno/kubedyno/internal/introspect"
)

// metrics are what the process serves: those of the sidecars and of the library
// by their own names, so that a query for a real driver finds them.
type metrics struct {
	registry *prometheus.Registry
	library  libmetrics.Metrics
	backend  *prometheus.HistogramVec
	leader   *prometheus.GaugeVec
}

func newMetrics(driver string) *metrics {
	m := &metrics{
		registry: introspect.NewRegistry(),
		library:  libmetrics.New("controller"),
		backend: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_sidecar_operations_seconds", Help: "Time that calls to the simulated storage backend took, by method and outcome.",
			ConstLabels: prometheus.Labels{"driver_name": driver},
			Buckets:     []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"method_name", "grpc_status_code"}),
		leader: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 of the replica that holds the lease, 0 of the others.",
		}, []string{"name"}),
	}
	m.registry.MustRegister(m.backend, m.leader,
		m.library.PersistentVolumeClaimProvisionTotal, m.library.PersistentVolumeClaimProvisionFailedTotal, m.library.PersistentVolumeClaimProvisionDurationSeconds,
		m.library.PersistentVolumeDeleteTotal, m.library.PersistentVolumeDeleteFailedTotal, m.library.PersistentVolumeDeleteDurationSeconds)
	return m
}

// instrument makes client-go tell of its limiter, requests and queues, by the
// names that Kubernetes' own components use. It is for the whole process, and
// must come before the first client.
func (m *metrics) instrument() {
	buckets := []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}
	c := clientMetrics{
		limiter: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_rate_limiter_duration_seconds", Help: "Client side rate limiter latency in seconds. Broken down by verb, and host.", Buckets: buckets,
		}, []string{"verb", "host"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Request latency in seconds. Broken down by verb, and host.", Buckets: buckets,
		}, []string{"verb", "host"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"}),
	}
	m.registry.MustRegister(c.limiter, c.latency, c.requests)
	clientmetrics.Register(clientmetrics.RegisterOpts{
		RateLimiterLatency: observer{c.limiter}, RequestLatency: observer{c.latency}, RequestResult: c,
	})
	workqueue.SetProvider(newQueueMetrics(m.registry))
}

type clientMetrics struct {
	limiter, latency *prometheus.HistogramVec
	requests         *prometheus.CounterVec
}

// Increment implements client-go's ResultMetric.
func (c clientMetrics) Increment(_ context.Context, code, method, host string) {
	c.requests.WithLabelValues(code, method, host).Inc()
}

type observer struct{ seconds *prometheus.HistogramVec }

// Observe implements client-go's LatencyMetric.
func (o observer) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	o.seconds.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

// queueMetrics implements workqueue.MetricsProvider.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waiting, working           *prometheus.HistogramVec
}

func newQueueMetrics(r *prometheus.Registry) *queueMetrics {
	label := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-4, 10, 8)}, label)
	}
	q := &queueMetrics{
		depth:      gauge("depth", "Current depth of workqueue"),
		unfinished: gauge("unfinished_work_seconds", "How many seconds of work has been done that is in progress and hasn't been observed by work_duration."),
		longest:    gauge("longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running."),
		adds:       counter("adds_total", "Total number of adds handled by workqueue"),
		retries:    counter("retries_total", "Total number of retries handled by workqueue"),
		waiting:    histogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested."),
		working:    histogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes."),
	}
	r.MustRegister(q.depth, q.unfinished, q.longest, q.adds, q.retries, q.waiting, q.working)
	return q
}

func (q *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(name)
}
func (q *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}
func (q *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.waiting.WithLabelValues(name)
}
func (q *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.working.WithLabelValues(name)
}
func (q *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}
func (q *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}
func (q *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}

package hollow

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubedyno/kubedyno/internal/introspect"
)

// A request is a kind of API call, counted by its own.
type request int

const (
	getVersion request = iota
	createNode
	getNode
	patchNode
	deleteNode
	getLease
	createLease
	updateLease
	deleteLease
	listRequest
	watchRequest
	getPod
	patchPod
	deletePod
	createEvent
	patchEvent
	createToken
	getCSINode
	createCSINode
	updateCSINode
	getClaim
	getVolume
	getAttachment
	requestKinds
)

var requestNames = [requestKinds]struct{ method, verb, resource string }{
	getVersion:   {"GET", "get", "version"},
	createNode:   {"POST", "create", "nodes"},
	getNode:      {"GET", "get", "nodes"},
	patchNode:    {"PATCH", "patch", "nodes/status"},
	deleteNode:   {"DELETE", "delete", "nodes"},
	getLease:     {"GET", "get", "leases"},
	createLease:  {"POST", "create", "leases"},
	updateLease:  {"PUT", "update", "leases"},
	deleteLease:  {"DELETE", "delete", "leases"},
	listRequest:  {"GET", "list", "any"},
	watchRequest: {"GET", "watch", "any"},
	getPod:       {"GET", "get", "pods"},
	patchPod:     {"PATCH", "patch", "pods/status"},
	deletePod:    {"DELETE", "delete", "pods"},
	createEvent:  {"POST", "create", "events"},
	patchEvent:   {"PATCH", "patch", "events"},
	createToken:  {"POST", "create", "serviceaccounts/token"},

	getCSINode:    {"GET", "get", "csinodes"},
	createCSINode: {"POST", "create", "csinodes"},
	updateCSINode: {"PUT", "update", "csinodes"},
	getClaim:      {"GET", "get", "persistentvolumeclaims"},
	getVolume:     {"GET", "get", "persistentvolumes"},
	getAttachment: {"GET", "get", "volumeattachments"},
}

func (k request) method() string { return requestNames[k].method }

// metrics are what the fleet counts about itself.
type metrics struct {
	registry *prometheus.Registry

	nodes       *prometheus.GaugeVec
	podsSeen    prometheus.Counter
	podsRunning prometheus.Counter
	podsDeleted prometheus.Counter
	podsRefused prometheus.Counter
	podsHeld    prometheus.Gauge

	patches map[string]prometheus.Counter
	answers [requestKinds]prometheus.Observer
	errors  *prometheus.CounterVec

	startLate   prometheus.Histogram
	startWait   prometheus.Histogram
	timerLate   prometheus.Histogram
	leaseLate   prometheus.Histogram
	renewals    prometheus.Counter
	reconnects  *prometheus.CounterVec
	watchDown   *prometheus.CounterVec
	relists     *prometheus.CounterVec
	watchEvents *prometheus.CounterVec
	retries     prometheus.Counter
	eventsLost  prometheus.Counter

	volumeAttached, volumeMounted prometheus.Histogram
	plugin                        prometheus.Histogram

	imagePull, sandbox prometheus.Observer // as a kubelet names and counts them
}

// patchKinds are the reasons for a pod status patch.
var patchKinds = []string{"pending", "sandbox", "init", "running", "ready", "ended", "restarted", "terminating", "stopped", "rejected", "evicted"}

func newMetrics() *metrics {
	m := &metrics{registry: introspect.NewRegistry(), patches: map[string]prometheus.Counter{}}
	add := func(c prometheus.Collector) { m.registry.MustRegister(c) }
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "kubedyno_hollow_" + name, Help: help})
		add(c)
		return c
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubedyno_hollow_" + name, Help: help}, labels)
		add(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubedyno_hollow_" + name, Help: help, Buckets: buckets})
		add(h)
		return h
	}
	late := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms … 16 s

	m.nodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubedyno_hollow_nodes", Help: "Nodes that have reached a state."}, []string{"state"})
	add(m.nodes)
	m.podsHeld = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubedyno_hollow_pods", Help: "Pods bound to our nodes and not yet gone."})
	add(m.podsHeld)
	m.podsSeen = counter("pods_seen_total", "Pods received through a watch.")
	m.podsRunning = counter("pods_running_total", "Pods whose Running status the API server acknowledged.")
	m.podsDeleted = counter("pods_deleted_total", "Pods that are gone.")
	m.podsRefused = counter("pods_rejected_total", "Pods refused because the node was full.")

	patched := vec("pod_patches_total", "Pod status patches acknowledged.", "kind")
	for _, kind := range patchKinds {
		m.patches[kind] = patched.WithLabelValues(kind)
	}
	answers := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubedyno_hollow_request_duration_seconds", Help: "API requests from sent to whole answer read.",
		Buckets: late}, []string{"verb", "resource"})
	add(answers)
	for k, name := range requestNames {
		m.answers[k] = answers.WithLabelValues(name.verb, name.resource)
	}
	m.errors = vec("request_errors_total", "API requests that failed, by HTTP code or connection.", "verb", "resource", "code")

	m.plugin = histogram("network_plugin_seconds", "What the network plugin took until a pod had its address, where it takes addresses at the API server.", late)
	m.startLate = histogram("start_lateness_seconds",
		"How much later than intended (receipt + seeded delay) a pod's Running patch was sent, less the time that its node waited for the API server's answers: what this process is to blame for.", late)
	m.startWait = histogram("start_wait_seconds",
		"How much later than intended a pod's Running patch was sent, the wait for the API server's answers included.", late)
	m.timerLate = histogram("timer_lateness_seconds",
		"How much later than due a delay ended in this process: ours alone.", late)
	long := prometheus.ExponentialBuckets(0.05, 2, 14) // 50 ms … 7 min
	m.volumeAttached = histogram("volume_attached_seconds",
		"From a pod's volume known to its node to the volume reported in use and seen attached.", long)
	m.volumeMounted = histogram("volume_mount_seconds", "From an attached volume to the volume mounted, the requests about its attachment included.", long)
	kubelet := func(name, help, label, value string, buckets []float64) prometheus.Observer {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_" + name, Help: help, Buckets: buckets}, []string{label})
		add(h)
		return h.WithLabelValues(value)
	}
	m.imagePull = kubelet("image_pull_duration_seconds", "From a pod's asking for an image that is not there to the image, the wait for other pulls included, over all nodes.",
		"image_size_in_bytes", "10MB-100MB", []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600})
	m.sandbox = kubelet("run_podsandbox_duration_seconds", "Making a pod's sandbox, the network plugin's work included, over all nodes.",
		"runtime_handler", "", prometheus.DefBuckets)
	m.leaseLate = histogram("lease_lateness_seconds", "How much later than due a lease renewal was acknowledged.", late)
	m.renewals = counter("lease_renewals_total", "Lease renewals acknowledged.")
	m.reconnects = vec("watch_reconnects_total", "Watches opened again after they had ended.", "resource")
	m.watchDown = vec("watch_down_seconds_total", "Time in which a watch that had ended was not yet opened again.", "resource")
	m.relists = vec("watch_relists_total", "Watches that began with the whole state, the first included.", "resource")
	m.watchEvents = vec("watch_events_total", "Watch events received.", "resource")
	m.retries = counter("pod_retries_total", "Pod status syncs that failed and were repeated.")
	m.eventsLost = counter("events_dropped_total", "Events dropped because a node's queue was full.")
	return m
}

func (m *metrics) answered(k request, took time.Duration) {
	if took >= 0 {
		m.answers[k].Observe(took.Seconds())
	}
}

func (m *metrics) failed(k request, code string) {
	name := requestNames[k]
	m.errors.WithLabelValues(name.verb, name.resource, code).Inc()
}

package metrics

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// A native histogram is kept beside its classic buckets, where it is offered
// and asked for, and PromQL reads both.
func TestNativeHistograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w, err := record.Create(dir, record.Meta{Name: "native"})
	if err != nil {
		t.Fatal(err)
	}
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Help: "x", Buckets: []float64{1, 10}, NativeHistogramBucketFactor: 1.1})
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	target := Local("mine", "1", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	target.Native = true
	c := New(Options{Interval: time.Hour, Targets: []Target{target}})
	for range 100 {
		h.Observe(3)
	}
	_, err = run(t, c, w.Metrics(), func() { now(t, c) })
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	rec := recordtest.Open(t, dir)
	value := func(expr string) float64 {
		v, err := rec.Query(expr, at)
		if err != nil || len(v) != 1 || len(v[0].Points) != 1 {
			t.Fatalf("%s: %v %v", expr, v, err)
		}
		return v[0].Points[0].Value
	}
	if got := value(`histogram_quantile(0.5, h)`); got < 2.7 || got > 3.3 {
		t.Errorf("median from the native histogram: %v, want 3 within its bucket", got)
	}
	if got := value(`h_bucket{le="10.0"} or h_bucket{le="10"}`); got != 100 {
		t.Errorf("classic bucket: %v", got)
	}
}

package scrape

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// gather has the values of a registry by name.
func gather(t testing.TB, r *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// A registry has the same metrics as before, and they say the same.
func TestLeanProcess(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	want := gather(t, r)
	if len(want) != 9 {
		t.Fatalf("the full collector has %d metrics", len(want))
	}
	if err := LeanProcess(r); err != nil {
		t.Fatal(err)
	}
	got := gather(t, r)
	value := func(f *dto.MetricFamily) float64 {
		return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
	}
	for name, w := range want {
		g := got[name]
		if g == nil || g.GetType() != w.GetType() || g.GetHelp() != w.GetHelp() || len(g.Metric) != 1 {
			t.Errorf("%s: %v, want %v", name, g, w)
			continue
		}
		if a, b := value(g), value(w); math.Abs(a-b) > .2*math.Abs(b) { // the process has gone on meanwhile
			t.Errorf("%s: %v, want %v", name, a, b)
		}
		switch name {
		case "process_max_fds", "process_virtual_memory_max_bytes", "process_start_time_seconds":
			if value(g) != value(w) {
				t.Errorf("%s: %v, want %v", name, value(g), value(w))
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d metrics, want %d", len(got), len(want))
	}
}

// A registry without them stays so.
func TestLeanProcessOfNone(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := LeanProcess(r); err != nil {
		t.Fatal(err)
	}
	if got := gather(t, r); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// The network's counters are read once in a while.
func TestNetworkAge(t *testing.T) {
	p, err := newProcess(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p.now = func() time.Time { return now }
	if _, _, ok := p.network(); !ok {
		t.Skip("the kernel does not tell the network's counters")
	}
	p.inBytes = -1
	now = now.Add(networkAge - 1)
	if in, _, ok := p.network(); !ok || in != -1 {
		t.Errorf("%v, %v: they were read again", in, ok)
	}
	now = now.Add(1)
	if in, _, ok := p.network(); !ok || in < 0 {
		t.Errorf("%v, %v: they were not read again", in, ok)
	}
}

// BenchmarkProcess gives what a process's own metrics cost, with either collector.
func BenchmarkProcess(b *testing.B) {
	full := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	lean, err := newProcess(full)
	if err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]prometheus.Collector{"full": full, "lean": lean} {
		b.Run(name, func(b *testing.B) {
			metrics := make(chan prometheus.Metric, 16)
			for b.Loop() {
				c.Collect(metrics)
				for len(metrics) > 0 {
					<-metrics
				}
			}
		})
	}
}

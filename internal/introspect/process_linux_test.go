package introspect

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// What we say of ourselves is what prometheus' collector says.
func TestOfProcess(t *testing.T) {
	values := func(cs ...prometheus.Collector) map[string]float64 {
		r := prometheus.NewRegistry()
		r.MustRegister(cs...)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, f := range families {
			all[f.GetName()] = f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
		return all
	}
	for x := 0.; cpuSeconds() < .2; x++ { // so that there is CPU to compare, which one of both counts in 10 ms
		math.Sqrt(x)
	}
	want, got := values(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})), values(ofProcess()...)
	if len(got) != 5 {
		t.Fatalf("%v", got)
	}
	for name, v := range got {
		if name == "process_start_time_seconds" {
			continue // that of the test binary, and of the call
		}
		if w, ok := want[name]; !ok || math.Abs(v-w) > .2*w {
			t.Errorf("%s: %v, want %v (%v)", name, v, w, ok)
		}
	}
}

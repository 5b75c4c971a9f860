package report

import (
	"fmt"
	"io"
	"strings"
)

// perfData is what perfdash, and whatever else reads the files of Kubernetes'
// own performance tests, takes of one run (kubernetes/perf-tests, perftype).
type perfData struct {
	Version   string            `json:"version"`
	DataItems []perfItem        `json:"dataItems"`
	Labels    map[string]string `json:"labels,omitempty"`
}

type perfItem struct {
	Data   map[string]float64 `json:"data"`
	Unit   string             `json:"unit"`
	Labels map[string]string  `json:"labels,omitempty"`
}

// writePerfData writes one run: the format has no place for a second one, nor
// for numbers that must not be used.
func writePerfData(w io.Writer, results []Result) error {
	if len(results) != 1 {
		return fmt.Errorf("perfdash reads one run from a file: %d were given", len(results))
	}
	r := results[0]
	d := r.Diagnosis
	if !d.Valid {
		return fmt.Errorf("run %s is not valid, and perfdash has no word for that: %s", d.Run, strings.Join(d.InvalidReasons, "; "))
	}
	out := perfData{Version: "v1", DataItems: []perfItem{}, Labels: map[string]string{}}
	for _, f := range factsOf(r) {
		out.Labels[f[0]] = f[1]
	}
	item := func(metric, unit string, factor float64, values map[string]*float64) {
		i := perfItem{Data: map[string]float64{}, Unit: unit, Labels: map[string]string{"Metric": metric}}
		for name, v := range values {
			if v != nil { // what is unknown is not there
				i.Data[name] = *v * factor
			}
		}
		if len(i.Data) > 0 {
			out.DataItems = append(out.DataItems, i)
		}
	}
	l := d.Latencies
	item("pod_startup", "ms", 1e3, map[string]*float64{"Perc50": l.PodStartup.P50, "Perc90": l.PodStartup.P90, "Perc99": l.PodStartup.P99})
	item("intent_latency", "ms", 1e3, map[string]*float64{"Perc50": l.Intent.P50, "Perc90": l.Intent.P90, "Perc99": l.Intent.P99, "Last": l.Intent.Max})
	if s := l.Scheduling; s != nil {
		item("create_to_schedule", "ms", 1e3, map[string]*float64{"Perc50": s.P50, "Perc90": s.P90, "Perc99": s.P99})
	}
	if t := d.Throughput; t != nil {
		item("scheduling_throughput", "1/s", 1, map[string]*float64{"Average": &t.Mean, "Perc50": &t.P50, "Perc90": &t.P90, "Max": &t.Max})
	}
	cpu := map[string]*float64{}
	for _, p := range d.Harness.ByProcess {
		cpu[p.Component] = p.MillisecondsPerPod
	}
	item("cpu_per_pod", "ms", 1, cpu)
	return writeJSON(w, out)
}

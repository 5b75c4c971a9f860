package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubedyno/kubedyno/diagnose"
)

// writeGoBench writes a line of Go's benchmark format for each run, so that
// benchstat compares many: kubedyno report before-* -o gobench > before.
//
// Only what was measured is written, and of a run that is not valid nothing:
// benchstat has no word for either.
func writeGoBench(w io.Writer, results []Result) error {
	var b strings.Builder
	better := map[string]string{}
	var units []string
	var body strings.Builder
	for _, r := range results {
		// benchstat makes a table for each set of keys: only what must not be
		// mixed is one, the machine. What is compared, settings and versions,
		// is not.
		about := []string{"#"}
		for _, f := range factsOf(r) {
			switch f[0] {
			case "nodes", "pods", "cpus": // in the name
			case "machine":
				fmt.Fprintf(&body, "cpu: %s\n", oneLine(f[1])) // as go test calls it
			case "kernel":
				fmt.Fprintf(&body, "kernel: %s\n", oneLine(f[1]))
			default:
				about = append(about, f[0]+"="+strconv.Quote(oneLine(f[1])))
			}
		}
		fmt.Fprintf(&body, "%s\n", strings.Join(about, " "))
		name := benchName(r)
		if !r.Diagnosis.Valid {
			fmt.Fprintf(&body, "# %s: left out, the run is not valid: %s\n", name, oneLine(strings.Join(r.Diagnosis.InvalidReasons, "; ")))
			continue
		}
		n := r.Diagnosis.Pods.Running
		if r.Diagnosis.EndsBound {
			n = r.Diagnosis.Pods.Bound
		}
		values := benchValues(r.Diagnosis)
		if n == 0 || len(values) == 0 {
			fmt.Fprintf(&body, "# %s: left out, nothing of it was measured\n", name)
			continue
		}
		fmt.Fprintf(&body, "%s\t%d", name, n)
		for _, v := range values {
			if better[v.unit] == "" {
				better[v.unit] = v.better
				units = append(units, v.unit)
			}
			fmt.Fprintf(&body, "\t%s %s", strconv.FormatFloat(v.value, 'g', 6, 64), v.unit)
		}
		body.WriteByte('\n')
	}
	for _, unit := range units {
		fmt.Fprintf(&b, "Unit %s better=%s\n", unit, better[unit])
	}
	b.WriteString(body.String())
	_, err := io.WriteString(w, b.String())
	return err
}

type benchValue struct {
	value        float64
	unit, better string
}

// benchValues are a run's numbers, the most telling first. What is unknown is
// not among them.
func benchValues(d *diagnose.Diagnosis) []benchValue {
	const higher, lower = "higher", "lower"
	var values []benchValue
	add := func(v *float64, unit, better string) {
		if v != nil {
			values = append(values, benchValue{*v, unit, better})
		}
	}
	if d.Throughput != nil {
		add(&d.Throughput.Mean, "pods/s", higher)
	}
	if d.SchedulerPerf != nil {
		add(&d.SchedulerPerf.Average, "pods/s-scheduler_perf", higher)
	}
	if l := d.Latencies.Scheduling; l != nil {
		add(l.P50, "s/p50-scheduling", lower)
		add(l.P99, "s/p99-scheduling", lower)
	}
	add(d.Latencies.PodStartup.P50, "s/p50-startup", lower)
	add(d.Latencies.PodStartup.P99, "s/p99-startup", lower)
	add(d.Latencies.Intent.Max, "s/last-intent", lower)
	if ms, ok := planePerPod(d.Harness.ByProcess); ok {
		add(&ms, "ms-cpu/pod", lower)
		add(d.Harness.MillisecondsPerPod, "ms-cpu-harness/pod", lower)
	}
	return values
}

// benchName is the experiment's name and what makes runs of it differ.
func benchName(r Result) string {
	var b strings.Builder
	b.WriteString("Benchmark")
	for part := range strings.FieldsFuncSeq(r.Meta.Name, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	for _, key := range []string{"nodes", "pods"} {
		for _, f := range factsOf(r) {
			if f[0] == key {
				fmt.Fprintf(&b, "/%s=%s", key, strings.Join(strings.Fields(f[1]), "_"))
			}
		}
	}
	if cpus := r.Meta.Machine.CPUs; cpus > 0 {
		fmt.Fprintf(&b, "-%d", cpus)
	}
	return b.String()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

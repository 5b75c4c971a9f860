package compare_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/diagnosetest"
	"github.com/kubedyno/kubedyno/report"
)

func sideOf(t *testing.T, words string, n int) (runs []diagnose.Source, out []report.Result) {
	t.Helper()
	for i := range n {
		r, err := diagnosetest.Parse(fmt.Sprintf("%s; seed %d", words, i+1))
		if err != nil {
			t.Fatal(err)
		}
		d, err := diagnose.Run(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		runs, out = append(runs, r), append(out, report.Result{Meta: r.Meta(), Diagnosis: d})
	}
	return runs, out
}

// benchstat's own mathematics, on what its parser reads of our export, comes to
// the medians and intervals that our table has.
func TestBenchstatAgreesWithComparison(t *testing.T) {
	base, baseResults := sideOf(t, "pods 300 deployment", 7)
	cand, candResults := sideOf(t, "pods 300 deployment; controller 40/s burst 60", 7)
	c, err := compare.Sources(base, cand, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	samples := func(results []report.Result) map[string][]float64 {
		var b bytes.Buffer
		if err := report.WriteResults(&b, report.GoBench, results...); err != nil {
			t.Fatal(err)
		}
		values := map[string][]float64{}
		r := benchfmt.NewReader(&b, "export")
		for r.Scan() {
			if x, ok := r.Result().(*benchfmt.Result); ok {
				for _, v := range x.Values {
					values[v.Unit] = append(values[v.Unit], v.Value)
				}
			}
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		return values
	}
	a, b := samples(baseResults), samples(candResults)
	compared := 0
	for unit, id := range map[string]string{"pods/s": "throughput", "s/p50-startup": "startup.p50", "s/p99-startup": "startup.p99", "s/last-intent": "intent.last", "ms-cpu/pod": "cpu.total"} {
		for _, r := range c.Rows {
			if r.ID != id {
				continue
			}
			for _, side := range []struct {
				values []float64
				e      compare.Estimate
			}{{a[unit], r.Baseline}, {b[unit], r.Candidate}} {
				if len(side.values) != side.e.N || side.e.N == 0 {
					t.Errorf("%s: %d values exported, %d in the table", unit, len(side.values), side.e.N)
					continue
				}
				s := benchmath.AssumeNothing.Summary(benchmath.NewSample(side.values, &benchmath.DefaultThresholds), 0.95)
				for _, v := range [][2]float64{{s.Center, *side.e.Value}, {s.Lo, side.e.Interval.Lo}, {s.Hi, side.e.Interval.Hi}} {
					if math.Abs(v[0]-v[1]) > 1e-5*math.Abs(v[1]) {
						t.Errorf("%s: benchstat has %v, the table %v", unit, v[0], v[1])
					}
				}
				compared++
			}
		}
	}
	if compared < 6 {
		t.Errorf("only %d numbers were compared", compared)
	}
}

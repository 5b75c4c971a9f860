package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/stat"
)

// tested is a row of 6 and 6 runs.
func tested(id string, group compare.Group, ratio float64, v compare.Verdict) compare.Row {
	one, cand := 1.0, ratio
	return compare.Row{ID: id, Name: id, Group: group, Unit: "s", Lower: true, Baseline: compare.Estimate{Value: &one, N: 6, Values: []float64{}}, Candidate: compare.Estimate{Value: &cand, N: 6, Values: []float64{}},
		Ratio: &ratio, RatioInterval: &stat.Interval{Lo: ratio * 0.9, Hi: ratio * 1.1, Level: 0.96}, Test: &compare.Test{P: 0.002, Adjusted: 0.01, N1: 6, N2: 6, Effect: 4}, Verdict: v}
}

func TestGateReports(t *testing.T) {
	side := compare.Side{Runs: make([]compare.RunInfo, 6)}
	g := compare.Comparison{Interval: true, Alpha: 0.05, RowsAlpha: 0.04, Baseline: side, Candidate: side, Rows: []compare.Row{
		tested("intent|last", compare.User, 1.5, compare.Worse), tested("startup", compare.User, 1.01, compare.Same), tested("bind", compare.StageOf, 3, compare.Worse), tested("etcd", compare.CPU, 0.5, compare.Better),
	}}.Gate(compare.GateOptions{})
	if g.Outcome != compare.Failed || len(g.Regressions) != 1 {
		t.Fatalf("%s %q", g.Outcome, g.Reasons)
	}
	write := func(format string) string {
		var b bytes.Buffer
		if err := WriteGate(&b, Options{Format: format}, g); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, l := range strings.Split(write("text"), "\n") {
		if n := columns(l); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	var suites testSuites
	if err := xml.Unmarshal([]byte(write(JUnit)), &suites); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for _, tc := range suites.Suites[0].Cases {
		if tc.Failure != nil {
			failures++
		}
	}
	if failures != len(g.Regressions) || suites.Failures != failures || suites.Tests != len(suites.Suites[0].Cases) {
		t.Errorf("%d failures of %d regressions, said %d of %d", failures, len(g.Regressions), suites.Failures, suites.Tests)
	}
	md := write(Markdown)
	if !strings.Contains(md, "Failed: ") || !strings.Contains(md, `| intent\|last |`) || strings.Contains(md, "bind") || !strings.Contains(md, "| worse |") {
		t.Error(md)
	}
	for _, l := range strings.Split(md, "\n") {
		if strings.HasPrefix(l, "|") && strings.Count(strings.ReplaceAll(l, `\|`, ""), "|") != 9 {
			t.Errorf("a row has another number of columns: %s", l)
		}
	}
	var back compare.Gate
	if err := json.Unmarshal([]byte(write("json")), &back); err != nil || back.Outcome != g.Outcome {
		t.Errorf("%s, %v", back.Outcome, err)
	}
}

func TestPerfData(t *testing.T) {
	all := results()
	var b bytes.Buffer
	if err := WriteResults(&b, PerfDash, all[0]); err != nil {
		t.Fatal(err)
	}
	var p perfData
	if err := json.Unmarshal(b.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]float64{}
	for _, i := range p.DataItems {
		got[i.Labels["Metric"]] = i.Data
	}
	if s := got["pod_startup"]; s["Perc50"] != 500 || s["Perc99"] != 1250 {
		t.Errorf("pod_startup %v", s)
	}
	if _, there := got["pod_startup"]["Perc90"]; there {
		t.Error("what is unknown has a number")
	}
	if got["cpu_per_pod"]["etcd"] != 2 || p.Version != "v1" || p.Labels["run"] != "run-1" {
		t.Errorf("%+v", p)
	}
	if err := WriteResults(&b, PerfDash, all[1]); err == nil {
		t.Error("a run that is not valid was written")
	}
	if err := WriteResults(&b, PerfDash, all[0], all[2]); err == nil {
		t.Error("two runs were written")
	}
}

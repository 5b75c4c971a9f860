package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// results are one of each kind: met, missed and not assessed objectives, a run
// that is not valid, and one whose pods are only scheduled.
func results() []Result {
	at := func(x float64) *float64 { return &x }
	meta := func(name string, nodes int) record.Meta {
		return record.Meta{
			Name: name, Tool: "v1", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Settings: []string{"cluster.nodes=50", "a=<b> & c"},
			Machine: record.Machine{CPUs: 2, Model: "A  CPU", Kernel: "6.12"}, Cluster: record.Cluster{Version: "v1.36.3", Profile: "stock"}, Nodes: record.Nodes{Count: nodes},
		}
	}
	density := &diagnose.Diagnosis{
		Run: "run-1", Valid: true, Window: diagnose.WindowOf{Seconds: 12.3456}, Pods: diagnose.PodCounts{Expected: 1500, Bound: 1500, Running: 1500},
		Throughput: &stat.Throughput{Mean: 43.21987654, N: 1480}, SchedulerPerf: &stat.SchedulerPerf{Average: 42.5, Samples: 30},
		Latencies: diagnose.Latencies{PodStartup: diagnose.LatencyOf{N: 1500, P50: at(0.5), P99: at(1.25)}, Intent: diagnose.LatencyOf{N: 1500, Max: at(35)}},
		Harness: diagnose.Harness{MillisecondsPerPod: at(3.5), ByProcess: []diagnose.ProcessCPU{
			{Component: "kube-apiserver", MillisecondsPerPod: at(8)}, {Component: "etcd", MillisecondsPerPod: at(2)}, {Component: "kubedyno", Harness: true, MillisecondsPerPod: at(3.5)}}},
		Findings: []diagnose.Finding{{ID: "limit", Grade: diagnose.Likely, Summary: "a client's limit \x1b[31m holds it back"}},
		Objectives: []record.Objective{
			{Name: "pod-startup", Indicator: "pod-startup", Quantile: 0.99, Limit: 5, Unit: "s", Assessed: true, Met: true, Value: 1.25, N: 1500},
			{Name: "fast", Indicator: "throughput", Limit: 100, Unit: "1/s", Assessed: true, Value: 43.2, N: 1480},
			{Name: "last", Indicator: "intent-latency", Quantile: 1, Limit: 60, Unit: "s", Reason: "there is no sample"},
		},
	}
	invalid := &diagnose.Diagnosis{
		Run: "run-2", InvalidReasons: []string{"3 of 1500 pods never ran", "the generator was late"}, Throughput: &stat.Throughput{Mean: 1},
		Pods:       diagnose.PodCounts{Expected: 1500, Running: 1497},
		Objectives: []record.Objective{{Name: "pod-startup", Indicator: "pod-startup", Quantile: 0.99, Limit: 5, Unit: "s", Reason: "the run is not valid"}},
	}
	scheduler := &diagnose.Diagnosis{
		Run: "run-3", Valid: true, EndsBound: true, Pods: diagnose.PodCounts{Expected: 1000, Bound: 1000},
		Throughput: &stat.Throughput{Mean: 250}, Latencies: diagnose.Latencies{Scheduling: &diagnose.LatencyOf{N: 1000, P50: at(1.5)}},
	}
	return []Result{{meta("density", 50), density}, {meta("density", 50), invalid}, {meta("scheduler-only", 1000), scheduler}}
}

// The file has the structure that readers of JUnit's XML share, and its counts
// are those of its cases.
func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := WriteResults(&b, JUnit, results()...); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", b.String())

	may := map[string]string{ // the element: its parent
		"testsuites": "", "testsuite": "testsuites", "properties": "testsuite", "property": "properties", "testcase": "testsuite",
		"failure": "testcase", "skipped": "testcase", "error": "testcase", "system-out": "testcase testsuite",
	}
	must := map[string][]string{
		"testsuites": {"tests", "failures"}, "testsuite": {"name", "tests", "failures", "errors", "time"}, "property": {"name", "value"},
		"testcase": {"name", "classname", "time"}, "failure": {"message", "type"},
	}
	var path []string
	counted := map[string]int{}
	said := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			name, parent := x.Name.Local, ""
			if len(path) > 0 {
				parent = path[len(path)-1]
			}
			if where, known := may[name]; !known || !strings.Contains(" "+where+" ", " "+parent+" ") && where != parent {
				t.Errorf("<%s> inside of <%s>", name, parent)
			}
			attrs := map[string]string{}
			for _, a := range x.Attr {
				attrs[a.Name.Local] = a.Value
			}
			for _, a := range must[name] {
				if _, there := attrs[a]; !there {
					t.Errorf("<%s> has no %s", name, a)
				}
			}
			if seconds, there := attrs["time"]; there {
				if v, err := strconv.ParseFloat(seconds, 64); err != nil || v < 0 {
					t.Errorf("time=%q", seconds)
				}
			}
			counted[name]++
			if name == "testsuites" {
				for _, k := range []string{"tests", "failures", "skipped", "errors"} {
					said[k], _ = strconv.Atoi(attrs[k])
				}
			}
			path = append(path, name)
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
	if counted["testcase"] != said["tests"] || counted["failure"] != said["failures"] || counted["skipped"] != said["skipped"] || said["tests"] != 7 || said["failures"] != 4 {
		t.Errorf("counted %v, said %v", counted, said)
	}
}

// benchstat's own parser reads every number, with its unit.
func TestGoBench(t *testing.T) {
	var b bytes.Buffer
	if err := WriteResults(&b, GoBench, results()...); err != nil {
		t.Fatal(err)
	}
	golden(t, "gobench.txt", b.String())

	r := benchfmt.NewReader(&b, "gobench.txt")
	type line struct {
		name   string
		iters  int
		values map[string]float64
		config map[string]string
	}
	var got []line
	units := map[string]bool{}
	for r.Scan() {
		switch x := r.Result().(type) {
		case *benchfmt.Result:
			l := line{string(x.Name), x.Iters, map[string]float64{}, map[string]string{}}
			for _, v := range x.Values {
				l.values[v.Unit] = v.Value
			}
			for _, c := range x.Config {
				l.config[c.Key] = string(c.Value)
			}
			got = append(got, l)
		case *benchfmt.UnitMetadata:
			units[x.Unit] = true
		case *benchfmt.SyntaxError:
			t.Error(x)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d lines, want those of the two valid runs: %+v", len(got), got)
	}
	density, scheduler := got[0], got[1]
	if density.name != "Density/nodes=50/pods=1500-2" || density.iters != 1500 {
		t.Errorf("%s, %d", density.name, density.iters)
	}
	for unit, want := range map[string]float64{"pods/s": 43.2199, "pods/s-scheduler_perf": 42.5, "s/p99-startup": 1.25, "s/last-intent": 35, "ms-cpu/pod": 10, "ms-cpu-harness/pod": 3.5} {
		if density.values[unit] != want {
			t.Errorf("%g %s, want %g", density.values[unit], unit, want)
		}
		if !units[unit] {
			t.Errorf("nobody says whether more %s is better", unit)
		}
	}
	// What differs between runs that are compared would keep them in tables of
	// their own.
	if len(density.config) != 2 || density.config["cpu"] != "A CPU" || density.config["kernel"] != "6.12" || len(scheduler.config) != 2 {
		t.Errorf("%v, %v", density.config, scheduler.config)
	}
	if _, there := scheduler.values["s/p99-scheduling"]; there || scheduler.values["s/p50-scheduling"] != 1.5 || scheduler.iters != 1000 || len(scheduler.values) != 2 {
		t.Errorf("what was not measured has a number: %+v", scheduler)
	}
}

package diagnose_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/diagnose/diagnosetest"
	"github.com/kubedyno/kubedyno/record"
	"pgregory.net/rapid"
)

func run(t testing.TB, words string) *diagnose.Diagnosis {
	t.Helper()
	r, err := diagnosetest.Parse(words)
	if err != nil {
		t.Fatal(err)
	}
	d, err := diagnose.Run(r, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The JSON form is a promise: DESIGN's fields first and in this order, lists
// never null, numbers that were not measured null.
func TestJSONIsStable(t *testing.T) {
	d := run(t, "pods 300 deployment; no audit; no processes")
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"schema", "run", "valid", "invalidReasons", "harness", "stages", "findings", "ruledOut", "notAssessed"}
	if got := keys(t, data)[:len(want)]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	var raw struct {
		Harness  json.RawMessage
		Stages   []json.RawMessage
		Findings []json.RawMessage
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	if len(raw.Stages) != 8 || len(raw.Findings) != 1 {
		t.Fatalf("%d stages, %d findings", len(raw.Stages), len(raw.Findings))
	}
	if got := string(raw.Harness); got != `{"cpuSeconds":null,"millisecondsPerPod":null,"cpuShare":null}` {
		t.Errorf("harness %s", got)
	}
	if got, want := keys(t, raw.Stages[0])[:5], "[name rateIn rateOut waitSeconds share]"; fmt.Sprint(got) != want {
		t.Errorf("stage keys %v, want %v", got, want)
	}
	fk := []string{"id", "class", "component", "stage", "resource", "codePath", "cause", "summary", "grade", "explains", "evidence", "advice"}
	if got := keys(t, raw.Findings[0])[:len(fk)]; fmt.Sprint(got) != fmt.Sprint(fk) {
		t.Errorf("finding keys %v, want %v", got, fk)
	}
	if observe := string(raw.Stages[7]); !strings.Contains(observe, `"waitSeconds":null`) || !strings.Contains(observe, "no audit log") {
		t.Errorf("observe %s", observe)
	}
	healthy, err := json.Marshal(run(t, "pods 100 bare 5/s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"invalidReasons", "findings", "ruledOut", "notAssessed", "resources", "objectives", "warnings"} {
		if bytes.Contains(healthy, []byte(`"`+list+`":null`)) {
			t.Errorf("%s is null", list)
		}
	}
}

// keys are an object's keys in order.
func keys(t *testing.T, object []byte) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	var out []string
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k.(string))
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestSameRecordingSameBytes(t *testing.T) {
	const words = "pods 1500 deployments 5; controller free; capacity 150/s"
	first, err := json.Marshal(run(t, words))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, err := json.Marshal(run(t, words))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, again) {
			t.Fatalf("differs:\n%s\n%s", first, again)
		}
	}
}

func TestErr(t *testing.T) {
	for _, tt := range []struct {
		words string
		want  error
	}{
		{"pods 300 bare 5/s", nil},
		{"pods 1500 deployment", diagnose.ErrFindings},
		{"pods 3000 deployment; controller free; scheduler free; capacity 120/s; machine cpu 0.97", nil}, // capacity is no bottleneck
		{"pods 1000 bare 50/s; generator 10/s", diagnose.ErrInvalid},
		{"pods 1500 deployment; status failed", diagnose.ErrInvalid},
	} {
		if err := run(t, tt.words).Err(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.words, err, tt.want)
		}
	}
}

// Whatever the configured number, the limit is named, and the measured rate
// lies within 10 % of it.
func TestAnyLimitIsRecovered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qps := rapid.Float64Range(2, 120).Draw(t, "qps")
		burst := rapid.IntRange(1, 250).Draw(t, "burst")
		scheduler := rapid.Bool().Draw(t, "scheduler")
		pods := burst + int(max(150, 6*qps))
		words := fmt.Sprintf("pods %d deployment; cores 32; controller %.1f/s burst %d; scheduler free; seed %d", pods, qps, burst, rapid.IntRange(1, 99).Draw(t, "seed"))
		component := diagnose.ControllerManager
		if scheduler {
			component = diagnose.Scheduler
			words = fmt.Sprintf("pods %d deployment; cores 32; controller free; scheduler %.1f/s burst %d; capacity 600/s", pods, qps, burst)
		}
		r, err := diagnosetest.Parse(words)
		if err != nil {
			t.Fatal(err)
		}
		d, err := diagnose.Run(r, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Findings) == 0 || d.Findings[0].Component != component || d.Findings[0].Resource != "client-limit" {
			t.Fatalf("%s\n%s", words, diagnosetest.Describe(d))
		}
		for _, e := range d.Findings[0].Evidence {
			if e.Kind == "rate" && math.Abs(e.Value-qps) > 0.1*qps {
				t.Fatalf("measured %v of %v: %s", e.Value, qps, words)
			}
		}
	})
}

// Runs without anything wrong never get a bottleneck, at any rate and size.
func TestHealthyRunsStayHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 49).Draw(t, "rate")
		pods := rapid.IntRange(20, 1500).Draw(t, "pods")
		words := fmt.Sprintf("pods %d bare %.1f/s; seed %d", pods, rate, rapid.IntRange(1, 99).Draw(t, "seed"))
		if rapid.Bool().Draw(t, "tuned") {
			busy := rapid.Float64Range(0.3, 0.89).Draw(t, "busy")
			capacity := rapid.Float64Range(60, 300).Draw(t, "capacity")
			pods = min(pods, int(9*capacity)) // a burst of up to 10 s
			words = fmt.Sprintf("pods %d deployment; controller free; scheduler free; capacity %.0f/s; machine cpu %.2f", pods, capacity, busy)
		}
		r, err := diagnosetest.Parse(words)
		if err != nil {
			t.Fatal(err)
		}
		d, err := diagnose.Run(r, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Valid || len(d.Findings) > 0 {
			t.Fatalf("%s\n%s", words, diagnosetest.Describe(d))
		}
	})
}

// Stages telescope: whatever is null, the others add up to the pods' whole way.
func TestStagesAddUp(t *testing.T) {
	for _, words := range []string{"pods 400 deployment", "pods 400 bare 30/s", "pods 400 deployment; no audit", "pods 400 deployment; no metrics", "pods 3000 bare 80/s; cores 8"} {
		d := run(t, words)
		var sum float64
		for _, s := range d.Stages {
			if s.WaitSeconds != nil {
				sum += *s.WaitSeconds
			} else if s.Reason == "" {
				t.Errorf("%s: stage %s is null without a reason", words, s.Name)
			}
		}
		if d.Unsplit != nil {
			sum += d.Unsplit.WaitSeconds
		}
		if math.Abs(sum-d.Lost.TotalPodSeconds) > 0.02*d.Lost.TotalPodSeconds {
			t.Errorf("%s: stages hold %.1f of %.1f pod-seconds", words, sum, d.Lost.TotalPodSeconds)
		}
	}
}

// faulty changes what a simulated run says.
type faulty struct {
	*diagnosetest.Run
	pods     func([]record.Pod) []record.Pod
	ops      func([]record.Operation) []record.Operation // and no pods are expected
	increase error
	gaps     []record.Gap
	start    float64 // that the nodes declare they take to start a pod, in seconds
}

func (f faulty) Meta() record.Meta {
	m := f.Run.Meta()
	m.Gaps = f.gaps
	if f.start > 0 {
		m.Nodes.StartDelayP99 = f.start
	}
	if f.ops != nil {
		m.Workload.ExpectedPods = 0
	}
	return m
}

func (f faulty) Operations() ([]record.Operation, error) {
	o, err := f.Run.Operations()
	if f.ops != nil {
		o = f.ops(append([]record.Operation(nil), o...))
	}
	return o, err
}

func (f faulty) Pods() ([]record.Pod, error) {
	p, err := f.Run.Pods()
	if f.pods != nil {
		p = f.pods(append([]record.Pod(nil), p...))
	}
	return p, err
}

func (f faulty) Increase(m string, match map[string]string, w record.Window) (float64, bool, error) {
	if f.increase != nil {
		return 0, false, f.increase
	}
	return f.Run.Increase(m, match, w)
}

func TestContradictingTimesAreRejected(t *testing.T) {
	r, err := diagnosetest.Parse("pods 400 deployment")
	if err != nil {
		t.Fatal(err)
	}
	d, err := diagnose.Run(faulty{Run: r, pods: func(ps []record.Pod) []record.Pod {
		for i := range ps {
			ps[i].BoundMicros = ps[i].CreatedMicros - 20e6
		}
		return ps
	}}, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) != 0 || d.Stages[0].WaitSeconds != nil || len(d.NotAssessed) == 0 {
		t.Errorf("%s", diagnosetest.Describe(d))
	}
	if !strings.Contains(strings.Join(d.Warnings, "\n"), "rejected") {
		t.Errorf("warnings %q", d.Warnings)
	}
}

func TestMissingMetricsAreNoErrorButBrokenOnesAre(t *testing.T) {
	r, err := diagnosetest.Parse("pods 400 deployment")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := diagnose.Run(faulty{Run: r, increase: fmt.Errorf("metrics: %w", record.ErrMissing)}, detectors.All); err != nil {
		t.Errorf("missing: %v", err)
	}
	broken := errors.New("block is damaged")
	if _, err := diagnose.Run(faulty{Run: r, increase: broken}, detectors.All); !errors.Is(err, broken) {
		t.Errorf("damaged: %v", err)
	}
}

// Seconds that the experiment itself asks of the nodes are no loss, and said.
func TestDeclaredStartIsSaid(t *testing.T) {
	for seconds, said := range map[float64]bool{1: false, 6: true} {
		r, err := diagnosetest.Parse("pods 100 bare 5/s")
		if err != nil {
			t.Fatal(err)
		}
		d, err := diagnose.Run(faulty{Run: r, start: seconds}, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(d.Warnings, "\n"), "up to 6 s to start a pod"); got != said {
			t.Errorf("%v s: said %v, %q", seconds, got, d.Warnings)
		}
	}
}

// A watch that breaks for a moment is said; one that is down for long makes the
// run invalid.
func TestWatchGaps(t *testing.T) {
	for _, tt := range []struct {
		seconds float64
		valid   bool
	}{{0.5, true}, {5, false}} {
		r, err := diagnosetest.Parse("pods 100 bare 5/s")
		if err != nil {
			t.Fatal(err)
		}
		w, _ := r.Steady()
		start := w.Start.Add(3 * time.Second)
		f := faulty{Run: r, gaps: []record.Gap{{Collector: "objects", Subject: "pods", Reason: "the watch was interrupted", Start: start, End: start.Add(time.Duration(tt.seconds * 1e9))}}}
		d, err := diagnose.Run(f, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if d.Valid != tt.valid || tt.valid && !strings.Contains(strings.Join(d.Warnings, "\n"), "s late") {
			t.Errorf("%v s: valid %v, %q %q", tt.seconds, d.Valid, d.InvalidReasons, d.Warnings)
		}
	}
}

// A load of reads, or of objects without pods, asks for none: that none came is
// no fault. That a part of it was never sent is one.
func TestLoadWithoutPods(t *testing.T) {
	for missed, valid := range map[int]bool{0: true, 3: false} {
		r, err := diagnosetest.Parse("pods 100 bare 5/s")
		if err != nil {
			t.Fatal(err)
		}
		reads := func(ops []record.Operation) []record.Operation {
			for i := range ops {
				ops[i].Pods, ops[i].Verb = 0, "stale-list"
				if i < missed {
					ops[i].SentMicros = 0
				}
			}
			return ops
		}
		d, err := diagnose.Run(faulty{Run: r, pods: func([]record.Pod) []record.Pod { return nil }, ops: reads}, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if d.Valid != valid {
			t.Errorf("%d missed: valid %v, %q", missed, d.Valid, d.InvalidReasons)
		}
	}
}

func TestNoPods(t *testing.T) {
	r, err := diagnosetest.Parse("pods 400 deployment")
	if err != nil {
		t.Fatal(err)
	}
	d, err := diagnose.Run(faulty{Run: r, pods: func([]record.Pod) []record.Pod { return nil }}, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if d.Valid || len(d.Findings) != 0 || !errors.Is(d.Err(), diagnose.ErrInvalid) {
		t.Errorf("%s", diagnosetest.Describe(d))
	}
}

func TestParseUserAgent(t *testing.T) {
	for ua, want := range map[string][2]string{
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0c1a23b/replicaset-controller":                                                   {"kube-controller-manager", "replicaset-controller"},
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0c1a23b/system:serviceaccount:kube-system:replicaset-controller":                 {"kube-controller-manager", "replicaset-controller"},
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0c1a23b/job-controller/system:serviceaccount:kube-system:job-controller-account": {"kube-controller-manager", "job-controller"},
		"kube-scheduler/v1.36.3 (linux/amd64) kubernetes/0c1a23b/scheduler":                                                                        {"kube-scheduler", "scheduler"},
		"kube-scheduler/v1.36.3 (linux/amd64) kubernetes/0c1a23b":                                                                                  {"kube-scheduler", ""},
		"kubedyno-hollow": {"kubedyno-hollow", ""},
		"":                {"", ""},
	} {
		p, r := diagnose.ParseUserAgent(ua)
		if p != want[0] || r != want[1] {
			t.Errorf("%q → %q, %q; want %q", ua, p, r, want)
		}
	}
}

func TestWordsThatMeanNothing(t *testing.T) {
	for _, words := range []string{"pods many deployment", "pods 5", "controller quick", "weather fine", "generator late soon"} {
		if _, err := diagnosetest.Parse(words); err == nil {
			t.Errorf("%q was understood", words)
		}
	}
}

// 30,000 pods must be diagnosed in seconds (issue 5, 6).
func BenchmarkRun30000(b *testing.B) {
	r, err := diagnosetest.Parse("pods 30000 deployment; controller free; scheduler free; capacity 120/s; machine cpu 0.97")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := diagnose.Run(r, detectors.All); err != nil {
			b.Fatal(err)
		}
	}
}

// refusing is a run in which the API server refused some of the load.
type refusing struct{ *diagnosetest.Run }

func (r refusing) Operations() ([]record.Operation, error) {
	ops, err := r.Run.Operations()
	ops = slices.Clone(ops)
	for i := range ops[:15] {
		ops[i].Code, ops[i].Error = 403, fmt.Sprintf("pods \"web-%d\" is forbidden:\x1b[2J gate.example.com says no", i)
		if i < 3 {
			ops[i].Code, ops[i].Error = 500, "an accident"
		}
	}
	return ops, err
}

// What the load was refused for is told in the words of whoever refused most of
// it, which name it and must not reach the terminal as they are.
func TestRefusedLoad(t *testing.T) {
	r, err := diagnosetest.Parse("pods 20 bare 5/s")
	if err != nil {
		t.Fatal(err)
	}
	d, err := diagnose.Run(refusing{r}, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	want := `15 of 20 requests of the load failed, 12 with 403: pods "web-3" is forbidden: [2J gate.example.com says no`
	if !slices.Contains(d.InvalidReasons, want) {
		t.Errorf("%q, want %q", d.InvalidReasons, want)
	}
}

// ending is a run in which processes ended.
type ending struct {
	*diagnosetest.Run
	exits []record.ProcessExit
}

func (r ending) Exits() ([]record.ProcessExit, error) { return r.exits, nil }

// A component's CPU has that of children which no sample shows, and what a
// sampled process used after its last sample, once.
func TestCPUOfShortLives(t *testing.T) {
	r, err := diagnosetest.Parse("pods 300 bare 5/s")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := diagnose.NewView(r)
	if err != nil {
		t.Fatal(err)
	}
	want, ok := plain.CPU(diagnose.Etcd, plain.Load)
	samples, err := r.Processes()
	if !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	exit := func(pid int32, from, to time.Time, cpu float64) record.ProcessExit {
		return record.ProcessExit{PID: pid, Component: diagnose.Etcd, StartMicros: from.UnixMicro(), TimeMicros: to.UnixMicro(), UserSeconds: cpu}
	}
	var exits []record.ProcessExit
	for i := range 40 {
		at := plain.Load.Start.Add(time.Duration(i) * time.Second)
		exits = append(exits, exit(int32(1000+i), at, at.Add(200*time.Millisecond), 0.1))
	}
	// Half of it before the load, and one of another component.
	exits = append(exits, exit(2000, plain.Load.Start.Add(-time.Second), plain.Load.Start.Add(time.Second), 3))
	exits = append(exits, record.ProcessExit{PID: 2001, StartMicros: plain.Load.Start.UnixMicro(), TimeMicros: plain.Load.End.UnixMicro(), UserSeconds: 99})
	// etcd itself ends after its last sample, and had used 5 s less by then.
	last := samples[len(samples)-1]
	for _, s := range samples {
		if s.Component == diagnose.Etcd {
			last = s
		}
	}
	end := exit(last.PID, time.UnixMicro(last.StartMicros+9_000), time.UnixMicro(last.TimeMicros).Add(time.Second), last.UserSeconds+last.SystemSeconds+5)
	v, err := diagnose.NewView(ending{r, append(exits, end)})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := v.CPU(diagnose.Etcd, v.Load)
	if want += 40*0.1 + 1.5; math.Abs(got-want) > 1e-6 {
		t.Errorf("etcd used %.4f s in the load, want %.4f", got, want)
	}
	after := record.Window{Start: time.UnixMicro(last.TimeMicros), End: v.Load.End.Add(time.Hour)}
	if got, _ = v.CPU(diagnose.Etcd, after); math.Abs(got-5) > 1e-6 {
		t.Errorf("etcd used %.4f s after its last sample, want 5", got)
	}
}

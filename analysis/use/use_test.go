package use

import (
	"bytes"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var update = flag.Bool("update", false, "rewrite what is generated from the thresholds")

var begin = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func made(t *testing.T, meta record.Meta, write func(w *record.Writer)) *record.Recording {
	t.Helper()
	meta.Name, meta.Started = "x", begin
	return recordtest.Make(t, meta, write)
}

func phases() []record.Phase {
	return []record.Phase{
		{Name: "idle", Kind: record.PhaseSettle, Start: begin, End: begin.Add(30 * time.Second)},
		{Name: "load", Kind: record.PhaseSteady, Start: begin.Add(30 * time.Second), End: begin.Add(60 * time.Second)},
	}
}

// one is the check of a threshold and an instance.
func one(t *testing.T, checks []Check, id, instance string) Check {
	t.Helper()
	for _, c := range checks {
		if c.ID == id && c.Instance == instance {
			return c
		}
	}
	t.Fatalf("no check %s of %q", id, instance)
	return Check{}
}

// A run of a minute, idle for the first half; every number is known.
func TestAssess(t *testing.T) {
	meta := record.Meta{
		Phases:  phases(),
		Machine: record.Machine{CPUs: 2, MemoryBytes: 100},
		Cluster: record.Cluster{Kind: "lab", Components: []record.Component{
			{Name: controllerManager, Flags: map[string]string{"concurrent-replicaset-syncs": "2"}},
		}},
	}
	rec := made(t, meta, func(w *record.Writer) {
		w.Observes(record.TableMachine, record.TableCores, record.TableDisks, record.TableProcesses, record.TableRequests)
		for i := range 61 {
			at := begin.Add(time.Duration(i) * time.Second)
			load := float64(max(i-30, 0)) // seconds of it
			us := at.UnixMicro()
			w.Machine(record.MachineSample{
				TimeMicros: us, User: 1.9 * load, Idle: 2*float64(i) - 1.9*load, MemoryAvailableBytes: 50, RunDelaySeconds: -1,
				CPUPressureSeconds: 0.1 * load, MemoryPressureSeconds: -1, OOMKills: int64(load) / 30, TCPSegmentsSent: 1000 * int64(i), TCPRetransmits: 100 * int64(load), TCPListenDrops: 0,
			})
			w.Core(record.CoreSample{TimeMicros: us, CPU: 0, UserSeconds: load, IdleSeconds: float64(i) - load})
			w.Disk(record.DiskSample{TimeMicros: us, Device: "sda", Writes: 10 * int64(i), WriteSeconds: 0.2 * float64(i), BusySeconds: 0.95 * load, QueueSeconds: 5 * load, Flushes: -1, FlushSeconds: -1})
			w.Process(record.ProcessSample{
				TimeMicros: us, PID: 7, StartMicros: 1, Component: etcd, UserSeconds: 0.1 * float64(i), RunDelaySeconds: 1.5 * load,
				Periods: 10 * int64(i), ThrottledPeriods: 5 * int64(load),
			})
			labels := func(component string, more ...string) map[string]string {
				l := map[string]string{"component": component, "instance": component + "@7"}
				for k := 0; k+1 < len(more); k += 2 {
					l[more[k]] = more[k+1]
				}
				return l
			}
			for _, c := range []string{etcd, apiServer, controllerManager} {
				w.AppendSample("up", labels(c), at, 1)
				w.AppendSample("process_open_fds", labels(c), at, 90)
				w.AppendSample("process_max_fds", labels(c), at, 100)
			}
			// A counter as of a component that ran for a year.
			w.AppendSample("etcd_disk_wal_fsync_duration_seconds_sum", labels(etcd), at, 1e6+0.9*load)
			for _, le := range []struct {
				le string
				n  float64
			}{{"0.001", 0}, {"0.128", 100 * load}, {"0.256", 100 * load}, {"+Inf", 100 * load}} {
				w.AppendSample("etcd_disk_wal_fsync_duration_seconds_bucket", labels(etcd, "le", le.le), at, 1e6+le.n)
			}
			w.AppendSample("etcd_mvcc_db_total_size_in_bytes", labels(etcd), at, 96)
			w.AppendSample("etcd_server_quota_backend_bytes", labels(etcd), at, 100)
			level := []string{"priority_level", "workload-low"}
			w.AppendSample("apiserver_flowcontrol_priority_level_seat_utilization_sum", labels(apiServer, append(level, "phase", "executing")...), at, 950*load)
			w.AppendSample("apiserver_flowcontrol_priority_level_seat_utilization_count", labels(apiServer, append(level, "phase", "executing")...), at, 1000*float64(i))
			w.AppendSample("apiserver_flowcontrol_request_wait_duration_seconds_sum", labels(apiServer, level...), at, 3*load)
			if i >= 45 { // born with the first rejection
				w.AppendSample("apiserver_flowcontrol_rejected_requests_total", labels(apiServer, level...), at, float64(i-44))
			}
			w.AppendSample("workqueue_adds_total", labels(controllerManager, "name", "replicaset"), at, 10*float64(i))
			w.AppendSample("workqueue_work_duration_seconds_sum", labels(controllerManager, "name", "replicaset"), at, 1.9*load)
			w.AppendSample("workqueue_queue_duration_seconds_sum", labels(controllerManager, "name", "replicaset"), at, 20*load)
			w.AppendSample("workqueue_work_duration_seconds_sum", labels(controllerManager, "name", "of-somebody"), at, 0.8*load)
			w.AppendSample("leader_election_master_status", labels(controllerManager), at, map[bool]float64{true: 0, false: 1}[i == 50])
			w.AppendSample("rest_client_rate_limiter_duration_seconds_sum", labels(controllerManager), at, 0.7*load)
			for k := range 20 {
				if i >= 30 {
					us := at.Add(time.Duration(k) * 50 * time.Millisecond).UnixMicro()
					w.Request(record.Request{ReceivedMicros: us, DoneMicros: us + 1, Verb: "create", UserAgent: controllerManager + "/v1 (x) kubernetes/abc/replicaset-controller"})
				}
			}
		}
		w.Gap(record.Gap{Collector: "process", Subject: "schedstat", Reason: "no schedstat here"})
		w.Gap(record.Gap{Collector: "metrics", Subject: scheduler, Reason: "the scheduler answered 403"})
	})
	checks, err := Assess(rec, "load", "idle")
	if err != nil {
		t.Fatal(err)
	}
	var load, idle []Check
	for _, c := range checks {
		if c.Phase == "load" {
			load = append(load, c)
		} else {
			idle = append(idle, c)
		}
	}
	for _, w := range []struct {
		id, instance string
		value        float64
		verdict      string
	}{
		{"cpu", "all", 0.95, Saturated},
		{"cpu-busy-seconds", "all", 1, Saturated},
		{"cpu-run-queue", "all", -1, NotMeasurable},
		{"cpu-pressure", "", 0.1, OK},
		{"cpu", "CPU 0", 1, Saturated},
		{"cpu-run-delay", etcd, 1.5, Saturated},
		{"cpu-throttled", etcd, 0.5, Saturated},
		{"memory", "", 0.5, OK},
		{"memory-pressure", "", -1, NotMeasurable},
		{"memory-oom", "", 1, Failing},
		{"network-retransmits", "", 0.1, Saturated},
		{"network", "", -1, NotMeasurable},
		{"disk", "sda", 0.95, Saturated},
		{"disk-queue", "sda", 5, Saturated},
		{"disk-latency", "sda", 0.02, Watch},
		{"disk-flush", "sda", -1, NotMeasurable},
		{"disk-errors", "sda", -1, NotMeasurable},
		{"etcd-wal", "", 0.9, Saturated},
		{"etcd-wal-p99", "", 0.12673, Saturated},
		{"etcd-commit", "", -1, NotMeasurable},
		{"etcd-quota", "", 0.96, Saturated},
		{"apf-seats", "workload-low", 0.95, Saturated},
		{"apf-queue", "workload-low", 3, Saturated},
		{"apf-rejected", "workload-low", 16, Failing},
		{"queue", "replicaset (kube-controller-manager)", 0.95, Saturated},
		{"queue-wait", "replicaset (kube-controller-manager)", 20, Saturated},
		{"queue", "of-somebody (kube-controller-manager)", -1, NotMeasurable},
		{"leases", controllerManager, 1, Failing},
		{"limiter", controllerManager, 1, Saturated},
		{"limiter-wait", controllerManager, 0.7, Saturated},
		{"fds", etcd, 0.9, Saturated},
		{"scheduling-loop", scheduler, -1, NotMeasurable},
	} {
		c := one(t, load, w.id, w.instance)
		if d := c.Value - w.value; d > 1e-3 || d < -1e-3 || c.Verdict != w.verdict {
			t.Errorf("%s %s: %g, %s; want %g, %s (%s%s)", w.id, w.instance, c.Value, c.Verdict, w.value, w.verdict, c.Detail, c.Reason)
		}
	}
	if c := one(t, load, "cpu-run-queue", "all"); c.Reason != "no schedstat here" {
		t.Errorf("reason %q", c.Reason)
	}
	if c := one(t, load, "scheduling-loop", scheduler); c.Reason != "the scheduler answered 403" {
		t.Errorf("reason %q", c.Reason)
	}
	// Before the load nothing was wrong but what is so all the time.
	for _, c := range idle {
		if bad := c.Verdict == Saturated || c.Verdict == Failing; bad && c.ID != "fds" && c.ID != "etcd-quota" {
			t.Errorf("idle: %s is %s: %g", c.What(), c.Verdict, c.Value)
		}
	}
	if s := Conclusion(load); !regexp.MustCompile(`^\d+ of \d+ checks saturated or with errors: .+ and \d+ more; \d+ to watch; \d+ not measurable\.$`).MatchString(s) || len(s) > 130 {
		t.Errorf("conclusion %q", s)
	}
	if !slices.IsSortedFunc(load, func(a, b Check) int { return slices.Index(Verdicts, a.Verdict) - slices.Index(Verdicts, b.Verdict) }) {
		t.Error("what is bad is not on top")
	}
}

// A recording without anything has no check that is ok.
func TestNothingRecorded(t *testing.T) {
	rec := made(t, record.Meta{}, func(w *record.Writer) {
		w.Gap(record.Gap{Collector: "process", Reason: "no /proc here"})
	})
	checks, err := Assess(rec, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(checks) < 20 {
		t.Errorf("only %d checks", len(checks))
	}
	for _, c := range checks {
		if c.Verdict != NotMeasurable || c.Value != -1 || c.Reason == "" {
			t.Errorf("%s: %s, %g, %q", c.What(), c.Verdict, c.Value, c.Reason)
		}
	}
	if c := one(t, checks, "cpu", ""); c.Reason != "no /proc here" {
		t.Errorf("reason %q", c.Reason)
	}
}

func TestElsewhere(t *testing.T) {
	rec := made(t, record.Meta{Cluster: record.Cluster{Kind: "existing"}}, func(w *record.Writer) {
		w.Machine(record.MachineSample{TimeMicros: begin.UnixMicro()})
		w.Machine(record.MachineSample{TimeMicros: begin.Add(time.Second).UnixMicro(), User: 8})
	})
	checks, err := Assess(rec, "")
	if err != nil {
		t.Fatal(err)
	}
	if c := one(t, checks, "cpu", ""); c.Verdict != NotMeasurable || !strings.Contains(c.Reason, "elsewhere") {
		t.Errorf("got %+v", c)
	}
	if _, err := Assess(rec, "nonsense"); err == nil || errors.Is(err, record.ErrMissing) {
		t.Errorf("a phase that is not there: %v", err)
	}
}

func TestGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Whatever a counter did, its restarts included, it grew by what was
		// added between the first and the last scrape.
		n := rapid.IntRange(1, 20).Draw(t, "scrapes")
		var ps []record.Point
		value, want := rapid.Float64Range(0, 1e6).Draw(t, "before"), 0.0
		for i := range n {
			if i > 0 {
				add := float64(rapid.IntRange(0, 100).Draw(t, "add"))
				if value > 200 && rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
					value = 0
				}
				value += add
				want += add
			}
			ps = append(ps, record.Point{Time: begin.Add(time.Duration(i) * time.Second), Value: value})
		}
		got, ok := growth(ps, begin, begin.Add(time.Hour))
		if !ok || got < want-1e-6 || got > want+1e-6 {
			t.Fatalf("grew by %v, want %v", got, want)
		}
	})
}

// Metrics whose series appear with the first event: no scrape of a healthy
// server has them.
var bornLate = []string{
	"apiserver_flowcontrol_rejected_requests_total", "apiserver_terminated_watchers_total", "apiserver_audit_error_total", "leader_election_slowpath_total",
}

// Every metric that the code names is one that v1.36 has.
func TestMetricNames(t *testing.T) {
	data, err := os.ReadFile("testdata/metrics-v1.36.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range strings.Fields(string(data)) {
		known[name] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "software.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`^(apiserver|etcd|scheduler|workqueue|rest_client|go|process|leader_election)_[a-z0-9_]+$`)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(lit.Value)
		if err != nil || !metric.MatchString(s) {
			return true
		}
		n++
		if !known[s] && !known[s+"_sum"] && !slices.Contains(bornLate, s) {
			t.Errorf("%s is not a metric of v1.36", s)
		}
		return true
	})
	if n < 40 {
		t.Errorf("only %d names found", n)
	}
}

func TestThresholds(t *testing.T) {
	seen := map[string]bool{}
	for _, th := range Thresholds {
		if seen[th.ID] {
			t.Errorf("%s is there twice", th.ID)
		}
		seen[th.ID] = true
		if th.What == "" || th.Source == "" || th.Resource == "" || th.Aspect == "" || th.Unit == "" || !slices.Contains([]string{Utilisation, Saturation, Errors}, th.Kind) {
			t.Errorf("%s lacks something: %+v", th.ID, th)
		}
		if th.Bad > 0 && th.Bad < th.Watch {
			t.Errorf("%s is bad before it is worth a look", th.ID)
		}
	}
}

// docs/use.md holds the table as it is in the code.
func TestDocument(t *testing.T) {
	const path = "../../docs/use.md"
	const from, to = "<!-- thresholds -->\n", "<!-- end of thresholds -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), from)
	old, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks its marks", path)
	}
	var b bytes.Buffer
	if err := WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+from+b.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != b.String() {
		t.Errorf("%s is not what the thresholds say: go test ./analysis/use -update", path)
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		x    float64
		unit string
		want string
	}{
		{0.705, "share", "70.5 %"}, {0.00995, "s", "9.95 ms"}, {12.34, "s", "12.3 s"}, {0, "count", "0"}, {0.00009, "requests", "<0.01 requests"},
		{3 << 20, "bytes", "3 MiB"}, {0.6, "1/s", "0.6/s"}, {1234.4, "count", "1234"}, {1, "share", "100 %"},
	} {
		if got := Format(c.x, c.unit); got != c.want {
			t.Errorf("%g %s: %q, want %q", c.x, c.unit, got, c.want)
		}
	}
}

package functions

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// origin is when the test's runs start.
var origin = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func after(seconds float64) time.Time {
	return origin.Add(time.Duration(seconds * float64(time.Second)))
}

// made makes a recording of 20 s with a phase "load" from 10 s to 20 s.
func made(t testing.TB, fill func(w *record.Writer)) *record.Recording {
	t.Helper()
	return recordtest.Make(t, record.Meta{
		Started: origin, Ended: after(20),
		Phases:     []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: after(10), End: after(20)}},
		Collectors: []record.Observer{{Name: "stacks", IntervalSeconds: 0.01}},
	}, fill)
}

// profileOf makes a profile of stacks, outermost first, with their values.
func profileOf(kind, unit string, length time.Duration, stacks map[string]int64) []byte {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: kind, Unit: unit}},
		PeriodType: &profile.ValueType{Type: kind, Unit: unit}, Period: 1, DurationNanos: int64(length), TimeNanos: 1,
	}
	known := map[string]*profile.Location{}
	for stack, value := range stacks {
		s := &profile.Sample{Value: []int64{1, value}}
		names := strings.Split(stack, ";")
		for i := len(names) - 1; i >= 0; i-- {
			l := known[names[i]]
			if l == nil {
				id := uint64(len(known) + 1)
				f := &profile.Function{ID: id, Name: names[i], SystemName: names[i], Filename: "/src/x.go"}
				l = &profile.Location{ID: id, Address: id, Line: []profile.Line{{Function: f}}}
				known[names[i]] = l
				p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			}
			s.Location = append(s.Location, l)
		}
		p.Sample = append(p.Sample, s)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func row(t testing.TB, table *Table, component, function string) Row {
	t.Helper()
	for _, r := range table.Rows {
		if r.Component == component && r.Function == function {
			return r
		}
	}
	t.Fatalf("no row of %s in %s: %+v", function, component, table.Rows)
	return Row{}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// A profile that covers half of its phase stands for twice of what it saw.
func TestScaledPerPodAndRequest(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		ref := record.ProfileRef{Component: "kube-apiserver", Phase: "load", Kind: "cpu", Start: after(11), End: after(16)}
		err := w.Profile(ref, profileOf("cpu", "nanoseconds", 5*time.Second, map[string]int64{
			"main.main;main.f;encoding/json.Marshal": 2e9, "main.main;main.f;main.f": 1e9,
		}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			w.Pod(record.Pod{Namespace: "n", Name: fmt.Sprint(i), UID: fmt.Sprint(i), RunningMicros: after(9.5 + float64(i)).UnixMicro()})
		}
		for _, verb := range []string{"list", "create", "watch"} {
			w.Request(record.Request{Verb: verb, ReceivedMicros: after(12).UnixMicro(), DoneMicros: after(13).UnixMicro()})
		}
		w.Request(record.Request{Verb: "get", ReceivedMicros: after(2).UnixMicro(), DoneMicros: after(3).UnixMicro()})
	})
	table, err := Of(rec, Query{Source: FromProfiles, Phase: "load"})
	if err != nil {
		t.Fatal(err)
	}
	if !near(table.Total, 6) || table.Pods != 3 || table.Requests != 2 || !near(table.Covered(), 0.5) || !near(table.Seconds(), 10) || table.Unit != "CPU-s" {
		t.Errorf("total %v, %d pods, %d requests, covered %v of %v s, in %s", table.Total, table.Pods, table.Requests, table.Covered(), table.Seconds(), table.Unit)
	}
	f := row(t, table, "kube-apiserver", "main.f")
	if !near(f.Self, 2) || !near(f.Cum, 6) || !near(f.SelfPerPod, 2./3) || !near(f.CumPerRequest, 3) || !near(f.CumShare, 1) || f.File != "/src/x.go" || f.Package != "main" {
		t.Errorf("main.f: %+v", f)
	}
	j := row(t, table, "kube-apiserver", "encoding/json.Marshal")
	if !near(j.Self, 4) || j.Class != "JSON and YAML" || j.Package != "encoding/json" || !near(j.SelfShare, 4./6) {
		t.Errorf("Marshal: %+v", j)
	}
	if table.Rows[0].Function != "encoding/json.Marshal" {
		t.Errorf("the first is %s", table.Rows[0].Function)
	}
	if table.Sort(true); table.Rows[0].Cum != 6 {
		t.Errorf("the first by cum is %+v", table.Rows[0])
	}
	if c := table.Classes[0]; c.Class != "JSON and YAML" || !near(c.Value, 4) || !near(c.PerPod, 4./3) {
		t.Errorf("classes: %+v", table.Classes)
	}
	if _, err := Of(rec, Query{Source: FromProfiles, Component: "etcd"}); !errors.Is(err, record.ErrMissing) {
		t.Errorf("of a component without profiles: %v", err)
	}
	if _, err := Of(rec, Query{Source: FromStacks, Window: record.Window{Start: origin, End: after(20)}}); !errors.Is(err, record.ErrMissing) {
		t.Errorf("of stacks that were not recorded: %v", err)
	}
}

// Heaps are a state, with what it grew; waiting for locks is a sum.
func TestEdges(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		for _, e := range []struct {
			kind, value, unit string
			at                float64
			stacks            map[string]int64
		}{
			{"heap", "inuse_space", "bytes", 10, map[string]int64{"main.a": 100, "main.gone": 7}},
			{"heap", "inuse_space", "bytes", 20, map[string]int64{"main.a": 150, "main.b": 5}},
			{"mutex", "delay", "nanoseconds", 10, map[string]int64{"main.a": 1e9}},
			{"mutex", "delay", "nanoseconds", 20, map[string]int64{"main.a": 3e9}},
			{"block", "delay", "nanoseconds", 20, map[string]int64{"main.a": 3e9}},
		} {
			ref := record.ProfileRef{Component: "etcd", Phase: "load", Kind: e.kind, Start: after(e.at), End: after(e.at)}
			if err := w.Profile(ref, profileOf(e.value, e.unit, 0, e.stacks)); err != nil {
				t.Fatal(err)
			}
		}
	})
	heap, err := Of(rec, Query{Source: FromProfiles, Kind: Heap})
	if err != nil {
		t.Fatal(err)
	}
	if a := row(t, heap, "etcd", "main.a"); !near(a.Self, 150) || !near(a.Growth, 50) || !a.HasGrowth {
		t.Errorf("%+v", a)
	}
	if g := row(t, heap, "etcd", "main.gone"); !near(g.Self, 0) || !near(g.Growth, -7) {
		t.Errorf("%+v", g)
	}
	if !near(heap.Total, 155) || heap.Unit != "bytes" {
		t.Errorf("%v %s", heap.Total, heap.Unit)
	}
	mutex, err := Of(rec, Query{Source: FromProfiles, Kind: Mutex})
	if err != nil {
		t.Fatal(err)
	}
	if a := row(t, mutex, "etcd", "main.a"); !near(a.Self, 2) || a.HasGrowth || !near(mutex.Total, 2) || len(mutex.Warnings) != 0 {
		t.Errorf("%+v of %v; %v", a, mutex.Total, mutex.Warnings)
	}
	block, err := Of(rec, Query{Source: FromProfiles, Kind: Block})
	if err != nil {
		t.Fatal(err)
	}
	if a := row(t, block, "etcd", "main.a"); !near(a.Self, 3) || len(block.Warnings) != 1 {
		t.Errorf("%+v; %v", a, block.Warnings)
	}
	if _, err := Of(rec, Query{Source: FromProfiles, Kind: "cpus"}); err == nil || errors.Is(err, record.ErrMissing) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// withStacks is a recording with samples of two components and of neither.
func withStacks(t testing.TB) *record.Recording {
	return made(t, func(w *record.Writer) {
		for i, s := range []string{"main.main;main.f;runtime.mallocgc", "main.main;main.f", "entry_SYSCALL_64_after_hwframe_[k];ksys_read_[k]", "main.main;main.g"} {
			w.Stack(record.Stack{ID: int64(i + 1), Frames: s})
		}
		for i := range 100 { // one each 0.2 s
			row := record.StackSample{TimeMicros: after(float64(i) / 5).UnixMicro(), PID: 7, TID: 8, Component: "etcd", Command: "etcd", Stack: int64(i%2 + 1)}
			switch {
			case i%10 == 0:
				row.PID, row.Component, row.Command, row.Stack = 9, "", "cat", 3
			case i%10 == 5:
				row.Stack = 99 // whose row was lost
			}
			w.StackSample(row)
		}
	})
}

func TestStacks(t *testing.T) {
	rec := withStacks(t)
	all := record.Window{Start: origin, End: after(20)}
	table, err := Of(rec, Query{Source: FromStacks, Window: all})
	if err != nil {
		t.Fatal(err)
	}
	if table.Samples != 100 || !near(table.Total, 1) {
		t.Errorf("%d samples, %v CPU-s", table.Samples, table.Total)
	}
	if f := row(t, table, "etcd", "main.f"); !near(f.Self, 0.4) || !near(f.Cum, 0.8) {
		t.Errorf("main.f: %+v", f)
	}
	if k := row(t, table, "", "ksys_read_[k]"); !near(k.Self, 0.1) {
		t.Errorf("ksys_read: %+v", k)
	}
	if u := row(t, table, "etcd", "[unknown]"); !near(u.Self, 0.1) || u.Note == "" {
		t.Errorf("unknown: %+v", u)
	}
	half, err := Of(rec, Query{Source: FromStacks, Component: "etcd", Window: record.Window{Start: after(10), End: after(20)}})
	if err != nil {
		t.Fatal(err)
	}
	if half.Samples != 45 {
		t.Errorf("%d samples of etcd in the second half", half.Samples)
	}
	none, err := Samples(rec, NoComponent, all)
	if err != nil || len(none) != 1 || none[0].Count != 10 || none[0].Command != "cat" {
		t.Errorf("of no component: %+v %v", none, err)
	}
	if n := len(Processes(none, 0.01)); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// The two forms for other tools say the same as the table.
func TestFoldedAndProfile(t *testing.T) {
	rec := withStacks(t)
	all := record.Window{Start: origin, End: after(20)}
	samples, err := Samples(rec, "", all)
	if err != nil {
		t.Fatal(err)
	}
	var folded bytes.Buffer
	if err := Folded(&folded, samples); err != nil {
		t.Fatal(err)
	}
	if got, want := folded.String(), `cat;entry_SYSCALL_64_after_hwframe_[k];ksys_read_[k] 10
etcd;[unknown] 10
etcd;main.main;main.f 40
etcd;main.main;main.f;runtime.mallocgc 40
`; got != want {
		t.Errorf("folded:\n%s", got)
	}
	p := Profile(samples, all, 0.01)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	s := newSums()
	for _, x := range p.Sample { // the profile's own numbers, by the same sums
		if x.NumLabel["pid"][0] == 0 || len(x.Label["command"]) != 1 {
			t.Errorf("labels %v %v", x.Label, x.NumLabel)
		}
	}
	if err := add(s, "", p, []string{"cpu"}, 1e-9); err != nil || !near(s.total, 1) {
		t.Errorf("%v CPU-s: %v", s.total, err)
	}
	processes := Processes(samples, 0.01)
	if len(processes) != 2 || processes[0].PID != 7 || !near(processes[0].CPUSeconds, 0.9) || !near(processes[1].Kernel, 1) {
		t.Errorf("%+v", processes)
	}
}

// However a profile's samples fall, self times sum to the total, no cum is
// larger, and no self larger than its cum.
func TestSumsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSums()
		var total float64
		for range rapid.IntRange(1, 30).Draw(t, "samples") {
			var frames []frame
			for range rapid.IntRange(1, 6).Draw(t, "depth") {
				frames = append(frames, frame{function: rapid.SampledFrom([]string{"a.a", "b.b", "c.c", "runtime.mallocgc", "x_[k]"}).Draw(t, "f")})
			}
			v := float64(rapid.IntRange(1, 100).Draw(t, "value"))
			total += v
			s.add("c", frames, v)
		}
		var self, work float64
		for _, r := range s.rows {
			self += r.Self
			if r.Self > r.Cum || r.Cum > total {
				t.Fatalf("%+v of %v", r, total)
			}
		}
		for _, v := range s.work {
			work += v
		}
		if !near(self, total) || !near(work, total) || !near(s.total, total) {
			t.Fatalf("self %v, work %v, total %v", self, work, total)
		}
	})
}

// The numbers are those of pprof itself, of a real profile.
func TestAgreesWithPprof(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	name := filepath.Join("testdata", "cpu.pb.gz")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	rec := made(t, func(w *record.Writer) {
		ref := record.ProfileRef{Component: "etcd", Phase: "load", Kind: "cpu", Start: after(10), End: after(20)}
		if err := w.Profile(ref, data); err != nil {
			t.Fatal(err)
		}
	})
	table, err := Of(rec, Query{Source: FromProfiles})
	if err != nil {
		t.Fatal(err)
	}
	scale := max(1, 10/(float64(p.DurationNanos)/1e9))
	cmd := exec.Command("go", "tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0", "-unit=ms", name)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("go tool pprof: %v", err)
	}
	line := regexp.MustCompile(`(?m)^\s*([\d.]+)(?:ms)?\s+[\d.]+%\s+[\d.]+%\s+([\d.]+)(?:ms)?\s+[\d.]+%\s+(.+)$`)
	n := 0
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		function := strings.TrimSuffix(m[3], " (inline)")
		function = strings.TrimSuffix(function, " (partial-inline)")
		flat, _ := strconv.ParseFloat(m[1], 64)
		cum, _ := strconv.ParseFloat(m[2], 64)
		r := row(t, table, "etcd", function)
		if math.Abs(r.Self*1e3/scale-flat) > 1e-6 || math.Abs(r.Cum*1e3/scale-cum) > 1e-6 {
			t.Errorf("%s: %.1f/%.1f ms, pprof has %.1f/%.1f", function, r.Self*1e3/scale, r.Cum*1e3/scale, flat, cum)
		}
		n++
	}
	if n < 50 || n != len(table.Rows) {
		t.Errorf("%d functions compared of %d", n, len(table.Rows))
	}
}

func TestClassify(t *testing.T) {
	for function, want := range map[string]string{
		"k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1":                   "LIST",
		"k8s.io/apiserver/pkg/storage/cacher.(*Cacher).GetList":                        "LIST",
		"k8s.io/apiserver/pkg/endpoints/handlers.(*WatchServer).HandleHTTP":            "watch",
		"k8s.io/apiserver/pkg/storage/cacher.(*Cacher).dispatchEvent":                  "watch",
		"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating.(*Plugin).Admit":       "admission",
		"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount.(*Plugin).Admit":        "admission",
		"k8s.io/api/core/v1.(*Pod).MarshalToSizedBuffer":                               "protobuf",
		"k8s.io/apimachinery/pkg/runtime/serializer/protobuf.(*Serializer).Encode":     "protobuf",
		"encoding/json.(*encodeState).marshal":                                         "JSON and YAML",
		"k8s.io/apimachinery/pkg/runtime/serializer/json.(*Serializer).Encode":         "JSON and YAML",
		"crypto/tls.(*Conn).Write":                                                     "TLS and cryptography",
		"crypto/internal/fips140/aes/gcm.gcmAesEnc":                                    "TLS and cryptography",
		"runtime.gcBgMarkWorker":                                                       "garbage collection",
		"runtime.scanobject":                                                           "garbage collection",
		"runtime.mallocgcSmallScanNoHeader":                                            "memory allocation",
		"runtime.findRunnable":                                                         "Go scheduler and timers",
		"github.com/prometheus/client_golang/prometheus.(*histogram).Observe":          "metrics",
		"internal/runtime/syscall.Syscall6":                                            "system calls and network",
		"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.(*Fit).Score": "scheduler plugin",
		"k8s.io/kubernetes/pkg/scheduler.(*Scheduler).scheduleOne":                     "scheduler",
		"go.etcd.io/bbolt.(*Tx).Commit":                                                "bbolt",
		"go.etcd.io/etcd/server/v3/storage/wal.(*WAL).Save":                            "write-ahead log",
		"go.etcd.io/etcd/server/v3/storage/mvcc.(*watchableStore).notify":              "watch",
		"go.etcd.io/raft/v3.(*raft).Step":                                              "raft",
		"sigs.k8s.io/structured-merge-diff/v6/typed.(*mergingWalker).doMap":            "field ownership",
		"k8s.io/api/core/v1.(*Pod).DeepCopyInto":                                       "deep copies and conversion",
		"k8s.io/apiserver/pkg/util/flowcontrol.(*configController).startRequest":       "priority and fairness",
		"k8s.io/apiserver/pkg/audit.(*union).ProcessEvents":                            "audit",
		"golang.org/x/net/http2.(*serverConn).serve":                                   "HTTP and gRPC",
		"tcp_sendmsg_[k]":                    "kernel: network",
		"ext4_sync_file_[k]":                 "kernel: disk and file systems",
		"futex_wait_[k]":                     "kernel: scheduling",
		"kvm_arch_vcpu_ioctl_run_[k]":        "virtual machine guest",
		"asm_exc_page_fault_[k]":             "kernel: memory",
		"ep_poll_[k]":                        "kernel: waiting for events",
		"something_else_[k]":                 "kernel: other",
		"main.main":                          Other,
		"my.company/controller.(*R).Handle":  Other,
		"[unknown]":                          Other,
		"[libc.so.6+0x1234]":                 Other,
		"std::vector<int>::push_back":        Other,
		"k8s.io/kubernetes/pkg/controller.x": "controllers",
	} {
		if got := Classify(function); got != want {
			t.Errorf("%s is %s, want %s", function, got, want)
		}
	}
}

// The whole stack's class is that of the innermost frame that says something.
func TestWork(t *testing.T) {
	for stack, want := range map[string]string{
		"main.main;encoding/json.Marshal;reflect.Value.Field":       "JSON and YAML",
		"main.main;encoding/json.Marshal;runtime.mallocgc":          "memory allocation",
		"main.main;strings.Index":                                   "formatting and text",
		"main.main":                                                 Other,
		"net.(*conn).Write;do_syscall_64_[k];tcp_sendmsg_[k];x_[k]": "kernel: network",
	} {
		var frames []frame
		for _, n := range strings.Split(stack, ";") {
			frames = append([]frame{{function: n}}, frames...)
		}
		if got := (classes{}).work(frames); got != want {
			t.Errorf("%s is %s, want %s", stack, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	for function, want := range map[string]string{
		"kvm_arch_vcpu_ioctl_run_[k]":     "guest",
		"futex_wait_queue_[k]":            "sleep",
		"do_futex_[k]":                    "not work",
		"default_idle_[k]":                "nothing to do",
		"intel_idle_mwait_[k]":            "nothing to do",
		"runtime.findRunnable":            "looks for a goroutine",
		"runtime.gcBgMarkWorker":          "garbage collection",
		"do_epoll_wait_[k]":               "waits for the network",
		"ext4_sync_file_[k]":              "fsync",
		"[unknown]":                       "without a name",
		"_raw_spin_unlock_irqrestore_[k]": "interrupts",
	} {
		if got := Explain(function); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want something about %q", function, got, want)
		}
	}
	for _, function := range []string{"main.main", "futex_wait", "default_idle", "my/runtime.findRunnable", "tcp_sendmsg_[k]"} {
		if got := Explain(function); got != "" {
			t.Errorf("%s: %q", function, got)
		}
	}
}

func TestPackage(t *testing.T) {
	for function, want := range map[string]string{
		"main.main": "main",
		"k8s.io/client-go/tools/cache.(*Reflector).list": "k8s.io/client-go/tools/cache",
		"gopkg.in/yaml%2ev3.Marshal":                     "gopkg.in/yaml.v3",
		"slices.SortFunc[...]":                           "slices",
		"sync.(*Map).Load":                               "sync",
		"tcp_sendmsg_[k]":                                "",
		"__read":                                         "",
		"[unknown]":                                      "",
		"foo::bar":                                       "",
	} {
		if got := Package(function); got != want {
			t.Errorf("%s: %q, want %q", function, got, want)
		}
	}
}

// Every pattern of every rule is reached by some name: none is hidden by an
// earlier rule.
func TestRulesAreReached(t *testing.T) {
	for _, list := range [][]rule{rules, kernelRules} {
		for _, r := range list {
			reached := false
			for _, p := range r.patterns {
				if classIn(list, strings.TrimPrefix(p, "^")) == r.class {
					reached = true
				}
			}
			if !reached {
				t.Errorf("no name leads to %s", r.class)
			}
		}
	}
}

func TestGrowing(t *testing.T) {
	const scan, parse, gc = 1, 2, 3
	rec := made(t, func(w *record.Writer) {
		w.Stack(record.Stack{ID: scan, Frames: "runtime.goexit;example.com/a.Work;example.com/a.Scan;runtime.memmove"})
		w.Stack(record.Stack{ID: parse, Frames: "runtime.goexit;example.com/a.Work;example.com/a.Parse;example.com/a.token"})
		w.Stack(record.Stack{ID: gc, Frames: "runtime.goexit;runtime.gcBgMarkWorker"})
		put := func(component string, stack int64, at float64, n int) {
			for range n {
				w.StackSample(record.StackSample{TimeMicros: after(at).UnixMicro(), Component: component, Stack: stack})
			}
		}
		put("a", scan, 10.5, 100)
		put("a", scan, 19.5, 400)
		put("a", parse, 10.5, 50)
		put("a", parse, 19.5, 50)
		put("a", gc, 19.5, 100)
		put("b", scan, 19.5, 5000) // another component
		put("a", scan, 15, 5000)   // between the two
	})
	early := Stretch{record.Window{Start: after(10), End: after(11)}, 100}
	late := Stretch{record.Window{Start: after(19), End: after(20)}, 50}
	// A sample is 10 ms. Early 100 pods: 10 and 5 ms a pod; late 50: 80, 10 and 20.
	for share, want := range map[float64]Growth{
		0.5:  {"example.com/a.Scan", 0.010, 0.080, 70.0 / 95, 400},
		0.1:  {"example.com/a.Scan", 0.010, 0.080, 70.0 / 95, 400},
		0.01: {"example.com/a.token", 0.005, 0.010, 5.0 / 95, 50}, // the innermost of all that grew
		0.75: {"example.com/a.Work", 0.015, 0.090, 75.0 / 95, 450},
	} {
		g, ok, err := Growing(rec, "a", early, late, share)
		if err != nil || !ok {
			t.Fatalf("share %v: %v, %v", share, ok, err)
		}
		if g.Function != want.Function || g.Samples != want.Samples || math.Abs(g.Early-want.Early) > 1e-9 || math.Abs(g.Late-want.Late) > 1e-9 || math.Abs(g.Share-want.Share) > 1e-9 {
			t.Errorf("share %v: got %+v, want %+v", share, g, want)
		}
	}
	if g, ok, err := Growing(rec, "a", early, late, 0.9); err != nil || ok {
		t.Errorf("no function has so much of it: %+v, %v", g, err)
	}
	if g, ok, err := Growing(rec, "a", late, early, 0.1); err != nil || ok {
		t.Errorf("what shrinks grows: %+v, %v", g, err)
	}
	if _, _, err := Growing(made(t, func(*record.Writer) {}), "a", early, late, 0.5); !errors.Is(err, record.ErrMissing) {
		t.Errorf("without stacks: %v", err)
	}
}

func TestDearest(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		w.Stack(record.Stack{ID: 1, Frames: "runtime.goexit;example.com/p/a.Run;example.com/p/a.Count;runtime.memmove"})
		w.Stack(record.Stack{ID: 2, Frames: "runtime.goexit;example.com/p/a.Run;example.com/p/a.Note"})
		w.Stack(record.Stack{ID: 3, Frames: "runtime.goexit;example.com/p/b.Run;example.com/p/a.Run;example.com/p/b.Run"})
		w.Stack(record.Stack{ID: 4, Frames: "runtime.goexit;example.com/other.Run"})
		for stack, n := range map[int64]int{1: 40, 2: 20, 3: 10, 4: 30} {
			for range n {
				w.StackSample(record.StackSample{TimeMicros: after(10.5).UnixMicro(), Component: "a", Stack: stack})
			}
		}
		w.StackSample(record.StackSample{TimeMicros: after(10.5).UnixMicro(), Component: "b", Stack: 4})
		w.StackSample(record.StackSample{TimeMicros: after(30).UnixMicro(), Component: "a", Stack: 4})
	})
	w := record.Window{Start: after(10), End: after(11)}
	if got, err := Dearest(rec, "a", w, "/p/"); err != nil || got != (Part{"example.com/p/a", "example.com/p/a.Count", 0.7, 70}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Dearest(rec, "a", w, "/q/"); err != nil || got != (Part{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Dearest(made(t, func(*record.Writer) {}), "a", w, "/p/"); !errors.Is(err, record.ErrMissing) {
		t.Errorf("without stacks: %v", err)
	}
}

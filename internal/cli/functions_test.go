package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// pprof's driver keeps its settings for the process, which for us is one
// command: flags that filter must not be in tests before others.

// profiled makes a recording with a CPU profile, two heaps and stacks.
func profiled(t *testing.T) string {
	t.Helper()
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	return recordtest.Write(t, record.Meta{
		ID: "20260304T050607Z-abcdef", Started: start, Ended: at(20),
		Phases: []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: at(10), End: at(20)}},
	}, func(w *record.Writer) {
		f := &profile.Function{ID: 1, Name: "encoding/json.Marshal"}
		l := &profile.Location{ID: 1, Address: 1, Line: []profile.Line{{Function: f}}}
		for _, kind := range []struct {
			kind, value, unit string
			v                 int64
			at                float64
		}{{"cpu", "cpu", "nanoseconds", 2e9, 10}, {"heap", "inuse_space", "bytes", 1 << 20, 10}, {"heap", "inuse_space", "bytes", 3 << 20, 20}} {
			p := &profile.Profile{
				SampleType: []*profile.ValueType{{Type: kind.value, Unit: kind.unit}}, PeriodType: &profile.ValueType{Type: kind.value, Unit: kind.unit},
				Sample:   []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{kind.v}}},
				Location: []*profile.Location{l}, Function: []*profile.Function{f}, DurationNanos: 5e9,
			}
			var b bytes.Buffer
			if err := p.Write(&b); err != nil {
				t.Fatal(err)
			}
			if err := w.Profile(record.ProfileRef{Component: "kube-apiserver", Phase: "load", Kind: kind.kind, Start: at(kind.at), End: at(kind.at)}, b.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			w.Pod(record.Pod{Namespace: "n", Name: string(rune('a' + i)), UID: string(rune('a' + i)), RunningMicros: at(12).UnixMicro()})
			w.Request(record.Request{Verb: "list", ReceivedMicros: at(12).UnixMicro(), DoneMicros: at(13).UnixMicro()})
		}
		w.Stack(record.Stack{ID: 1, Frames: "main.main;main.f"})
		w.Stack(record.Stack{ID: 2, Frames: "do_syscall_64_[k];futex_wait_[k]"})
		for i := range 99 {
			w.StackSample(record.StackSample{TimeMicros: at(10 + float64(i)/99).UnixMicro(), PID: 7, TID: 7, Component: "etcd", Command: "etcd", Stack: 1})
			w.StackSample(record.StackSample{TimeMicros: at(15 + float64(i)/99).UnixMicro(), PID: 9, TID: 9, Command: "other", Stack: 2})
		}
	})
}

// bare is a recording without any of that.
func bare(t *testing.T) string {
	t.Helper()
	return recordtest.Write(t, record.Meta{}, func(w *record.Writer) {
		w.Gap(record.Gap{Collector: "stacks", Reason: "grant CAP_PERFMON"})
	})
}

func call(ctx context.Context, tty bool, args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	env := testEnv()
	env.Stdin, env.Stdout, env.Stderr, env.StdoutTTY = strings.NewReader(""), &stdout, &stderr, tty
	code = Main(ctx, env, args)
	return stdout.String(), stderr.String(), code
}

func TestFunctionsAndStacks(t *testing.T) {
	r, none := profiled(t), bare(t)
	file := filepath.Join(t.TempDir(), "out.pb.gz")
	for _, c := range []struct {
		args string
		code int
		want []string // of stdout, or of stderr where it failed
	}{
		{"functions R --per pod", 0, []string{
			"4.00 CPU-s in 10.0 s, from profiles that looked at 50 % of it or more, scaled to the whole; 4 pods, 4 requests",
			"kube-apiserver  4.00    100.0   4.00   100.0  1000.000     1000.000    encoding/json.Marshal  JSON and YAML",
		}},
		{"functions R --per request --by class --component kube-apiserver", 0, []string{"kube-apiserver  4.00  100.0  1000.000    JSON and YAML"}},
		{"functions R --kind heap", 0, []string{"3.00 MiB in", "GREW MiB", "kube-apiserver  3.00      100.0   3.00     100.0  2.00 "}},
		{"functions R --from 10s --to 11s", 0, []string{"1.00 CPU-s in 1.0 s, from 99 samples", "etcd       1.00    100.0   1.00   100.0  main.f"}},
		{"functions R --phase load --from 5s --component none", 0, []string{"99 samples", "futex_wait_[k]", "goes to sleep"}},
		{"functions R -o json", 0, []string{`{"component":"kube-apiserver","function":"encoding/json.Marshal","package":"encoding/json","class":"JSON and YAML","self":4,`}},
		{"functions R -o csv --source stacks", 0, []string{"component,function,package,file,class,self", "etcd,main.f,main,"}},
		{"stacks R --phase load", 0, []string{"2.00 CPU-s in 10.0 s, from 198 samples", "etcd       7    etcd     1.00   50.0  0", "–          9    other    1.00   50.0  100", "main.f < main.main"}},
		{"stacks R --component etcd -o folded", 0, []string{"etcd;main.main;main.f 99\n"}},
		{"stacks R -o pprof --out " + file, 0, []string{file}},
		{"pprof R --component kube-apiserver -- -top", 0, []string{"100%", "encoding/json.Marshal"}},
		{"pprof R --source stacks --component etcd -- -top", 0, []string{"main.f"}},
		{"pprof R --kind heap -- -raw", 0, []string{"3145728"}},

		{"functions R --from 10s --source pprof", 2, []string{"cannot be cut"}},
		{"functions R --kind heap --source stacks", 2, []string{"stacks are of CPU"}},
		{"functions R --component etdc --source stacks", 2, []string{`no component "etdc", did you mean "etcd"?`}},
		{"functions R --component kubelet", 2, []string{`no component "kubelet" (valid: etcd, kube-apiserver, none)`}},
		{"functions R --kind heaps", 2, []string{`no kind of profile "heaps"`}},
		{"functions R --source perf", 2, []string{`no source "perf"`}},
		{"functions R --per node", 2, []string{`--per "node": want pod or request`}},
		{"functions R --per request --component etcd", 2, []string{"not by etcd"}},
		{"functions R --from 15s --to 11s", 2, []string{"want a start before an end"}},
		{"functions R --phase load --from 90s", 2, []string{"there are only 10.0 s"}},
		{"functions R --phase lod", 2, []string{"no phase"}},
		{"functions R --from 1s --to 2s --per pod", 1, []string{"not assessed: no pod became Running"}},
		{"functions N", 1, []string{"functions: not assessed:", "not recorded: grant CAP_PERFMON"}},
		{"functions N --kind heap", 1, []string{"functions: not assessed: heap profiles: not recorded"}},
		{"stacks N", 1, []string{"stacks: not assessed:", "grant CAP_PERFMON"}},
		{"stacks R -o svg", 2, []string{"want text or folded or pprof"}},
		{"pprof N", 1, []string{"not assessed"}},
		{"pprof R R", 2, []string{"needs one RECORDING"}},
		{"pprof R -- -nonsense", 2, []string{"flags of pprof: flag provided but not defined"}},
		{"pprof R -- -top another", 2, []string{"one too many"}},
	} {
		args := strings.Fields(strings.NewReplacer("R ", r+" ", "N ", none+" ").Replace(c.args + " "))
		out, errs, code := call(t.Context(), false, args...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.args, code, c.code, errs)
		}
		text := out
		if c.code != 0 {
			text = errs
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: miss %q in:\n%s", c.args, want, text)
			}
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := profile.ParseData(data); err != nil || len(p.Sample) != 2 {
		t.Errorf("%v: %v", p, err)
	}
	if _, errs, code := call(t.Context(), true, "stacks", r, "-o", "pprof"); code != ExitMisused || !strings.Contains(errs, "not for a terminal") {
		t.Errorf("a profile on a terminal: %d %s", code, errs)
	}
}

// syncBuffer can be read while a command writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The pages are there until the command is interrupted, and for nobody who
// calls this machine by another name.
func TestPprofPages(t *testing.T) {
	dir := profiled(t)
	ctx, stop := context.WithCancel(t.Context())
	var stdout syncBuffer
	env := testEnv()
	env.Stdin, env.Stdout, env.Stderr = strings.NewReader(""), &stdout, io.Discard
	done := make(chan int, 1)
	go func() { done <- Main(ctx, env, []string{"pprof", dir}) }()
	var page string
	for page == "" {
		select {
		case code := <-done:
			t.Fatalf("ended with %d: %s", code, stdout.String())
		case <-time.After(time.Millisecond):
			page = regexp.MustCompile(`http://127\.0\.0\.1:\d+/ui/flamegraph`).FindString(stdout.String())
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, p := range []string{page, strings.Replace(page, "flamegraph", "top", 1)} {
		res, err := client.Get(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("encoding/json.Marshal")) {
			t.Errorf("%s: %s %v", p, res.Status, err)
		}
	}
	req, err := http.NewRequest(http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "elsewhere.example:80"
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("by another name: %s", res.Status)
	}
	stop()
	if code := <-done; code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

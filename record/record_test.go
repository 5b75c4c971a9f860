package record

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/internal/tsdb"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// start is when the recordings of these tests began.
var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func micros(sec float64) int64 {
	return start.Add(time.Duration(sec * float64(time.Second))).UnixMicro()
}

func at(sec float64) time.Time { return start.Add(time.Duration(sec * float64(time.Second))) }

func create(t testing.TB, dir string, m Meta) *Writer {
	t.Helper()
	if m.Started.IsZero() {
		m.Started = start
	}
	w, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func open(t testing.TB, dir string) *Recording {
	t.Helper()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func finish(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Finish(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
}

// someProfile is a CPU profile with one sample.
func someProfile(t testing.TB) []byte {
	t.Helper()
	f := &profile.Function{ID: 1, Name: "main.work"}
	l := &profile.Location{ID: 1, Line: []profile.Line{{Function: f, Line: 7}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		Sample:     []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{1e7}}},
		Location:   []*profile.Location{l}, Function: []*profile.Function{f},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// scrape commits one sample of a counter as a scrape manager would.
func scrape(store *tsdb.Store, name, component string, at time.Time, v float64) error {
	app := store.AppenderV2(context.Background())
	ls := labels.FromStrings(model.MetricNameLabel, name, "component", component, "instance", "i-1")
	if _, err := app.Append(0, ls, 0, at.UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
		return err
	}
	return app.Commit()
}

// fill records a little of everything.
func fill(t testing.TB, w *Writer) {
	t.Helper()
	for i := range 20 {
		sec := float64(i)
		w.Pod(Pod{Namespace: "load", Name: fmt.Sprint("pod-", i), UID: fmt.Sprint("uid-", i), Phase: "steady", DueMicros: micros(sec), CreatedMicros: micros(sec + .1)})
		w.Operation(Operation{Phase: "steady", Verb: "create", Resource: "pods", Name: fmt.Sprint("pod-", i), Pods: 1, DueMicros: micros(sec), SentMicros: micros(sec), DoneMicros: micros(sec + .1), Code: 201})
		w.Process(ProcessSample{TimeMicros: micros(sec), PID: 7, Component: "etcd", Command: "etcd", UserSeconds: sec / 10})
		w.Machine(MachineSample{TimeMicros: micros(sec), User: sec})
		w.Request(Request{ReceivedMicros: micros(sec), DoneMicros: micros(sec + .05), Verb: "create", Resource: "pods", UserAgent: "kubedyno-load", Code: 201})
		w.Node(NodeSample{Name: fmt.Sprintf("node-%02d", i), CreatedMicros: micros(sec)})
		w.AppendSample("kubedyno_pods", map[string]string{"component": "kubedyno-load", "instance": "x"}, at(sec), sec)
		if err := scrape(w.Metrics(), "requests_total", "kube-apiserver", at(sec), 10*sec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Profile(ProfileRef{Component: "etcd", Phase: "steady", Kind: "cpu", Start: at(1), End: at(11)}, someProfile(t)); err != nil {
		t.Fatal(err)
	}
	log, err := w.LogFile("etcd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(log, "ready\n"); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Experiment([]byte("name: density\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(func(m *Meta) {
		m.Phases = []Phase{{Name: "warm-up", Kind: PhaseWarmUp, Start: at(0), End: at(4)}, {Name: "steady", Kind: PhaseSteady, Start: at(4)}}
	}); err != nil {
		t.Fatal(err)
	}
}

// rows draws rows of any content that a table may hold: valid text and finite
// numbers.
func rows[T any](t *rapid.T, name string) []T {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) T {
		var row T
		v := reflect.ValueOf(&row).Elem()
		for i := range v.NumField() {
			label := v.Type().Field(i).Name
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				f.SetString(rapid.String().Draw(t, label))
			case reflect.Int64:
				f.SetInt(rapid.Int64().Draw(t, label))
			case reflect.Int32:
				f.SetInt(int64(rapid.Int32().Draw(t, label)))
			case reflect.Float64:
				f.SetFloat(rapid.Float64Range(-1e18, 1e18).Draw(t, label))
			default:
				t.Fatalf("%s: no generator for %s", label, f.Kind())
			}
		}
		return row
	}), 0, 20).Draw(t, name)
}

// expected is what a table must hold after rows were appended in this order.
func expected[T any](t tableOf[T], appended []T) []T {
	kept := map[string]int{}
	var out []T
	for i, row := range appended {
		key := fmt.Sprint(i)
		if t.key != nil {
			key = t.key(&row)
		}
		if j, ok := kept[key]; ok {
			out[j] = row
			continue
		}
		kept[key] = len(out)
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b T) int { return t.compare(&a, &b) })
	return out
}

func checkTable[T any](t *rapid.T, of tableOf[T], appended []T, read func() ([]T, error)) {
	got, err := read()
	if len(appended) == 0 {
		if !errors.Is(err, ErrMissing) {
			t.Fatalf("empty %s: got %v, want ErrMissing", of.name, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := expected(of, appended); !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", of.name, got, want)
	}
}

func TestTablesRoundTrip(t *testing.T) {
	temp := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(temp, fmt.Sprint(n))
		w, err := Create(dir, Meta{})
		if err != nil {
			t.Fatal(err)
		}
		ps, os, cs := rows[Pod](t, "pods"), rows[Operation](t, "operations"), rows[ProcessSample](t, "processes")
		ms, qs, ns := rows[MachineSample](t, "machine"), rows[Request](t, "requests"), rows[NodeSample](t, "nodes")
		each(ps, w.Pod)
		each(os, w.Operation)
		each(cs, w.Process)
		each(ms, w.Machine)
		each(qs, w.Request)
		each(ns, w.Node)
		if err := w.Finish(StatusComplete, ""); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		checkTable(t, pods, ps, r.Pods)
		checkTable(t, operations, os, r.Operations)
		checkTable(t, processes, cs, r.Processes)
		checkTable(t, machine, ms, r.MachineSamples)
		checkTable(t, requests, qs, r.Requests)
		checkTable(t, nodes, ns, r.Nodes)
	})
}

func each[T any](rows []T, f func(T)) {
	for _, r := range rows {
		f(r)
	}
}

func TestLastRowOfAPodWins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	w.Pod(Pod{Name: "a", UID: "1", CreatedMicros: 5})
	w.Pod(Pod{Name: "b", UID: "2", CreatedMicros: 4})
	w.Pod(Pod{Name: "a", UID: "1", CreatedMicros: 5, RunningMicros: 9})
	w.Node(NodeSample{Name: "n", CreatedMicros: 1})
	w.Node(NodeSample{Name: "n", CreatedMicros: 1, ReadyMicros: 2})
	finish(t, w)
	r := open(t, dir)
	ps, err := r.Pods()
	if err != nil || len(ps) != 2 || ps[0].Name != "b" || ps[1].RunningMicros != 9 {
		t.Errorf("got %+v, %v", ps, err)
	}
	ns, err := r.Nodes()
	if err != nil || len(ns) != 1 || ns[0].ReadyMicros != 2 {
		t.Errorf("got %+v, %v", ns, err)
	}
}

func TestEverythingComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{Name: "density"})
	fill(t, w)
	finish(t, w)

	r := open(t, dir)
	m := r.Meta()
	if m.Status != StatusComplete || m.Name != "density" || m.Schema != Schema || m.Ended.IsZero() || len(m.Invalid) > 0 {
		t.Errorf("meta: %+v", m)
	}
	if w, ok := r.Steady(); !ok || !w.Start.Equal(at(4)) || !w.End.Equal(m.Ended) {
		t.Errorf("steady: %v, %v: an open phase must end with the recording", w, ok)
	}
	if v, err := r.Query(`sum(kubedyno_pods)`, at(19)); err != nil || len(v) != 1 || v[0].Points[0].Value != 19 {
		t.Errorf("query: %v, %v", v, err)
	}
	if v, ok, err := r.Increase("requests_total", map[string]string{"component": "~kube-.*"}, Window{at(4.5), at(10.5)}); v != 60 || !ok || err != nil {
		t.Errorf("increase: %v, %v, %v; want 60", v, ok, err)
	}
	if v, ok, err := r.GaugeAt("kubedyno_pods", nil, at(7.5)); v != 7 || !ok || err != nil {
		t.Errorf("gauge: %v, %v, %v; want 7", v, ok, err)
	}
	if s, err := r.Points("requests_total", nil, Window{at(5), at(8)}); err != nil || len(s) != 1 || len(s[0].Points) != 3 || s[0].Labels["instance"] != "i-1" {
		t.Errorf("points: %v, %v", s, err)
	}
	if mx, err := r.QueryRange(`rate(requests_total[5s])`, Window{at(10), at(12)}, time.Second); err != nil || len(mx) != 1 || len(mx[0].Points) != 3 {
		t.Errorf("range: %v, %v", mx, err)
	}
	refs := r.Profiles()
	if len(refs) != 1 || refs[0].File != "profiles/etcd-steady-cpu.pb.gz" || !refs[0].End.Equal(at(11)) {
		t.Fatalf("profiles: %+v", refs)
	}
	if p, err := r.ReadProfile(refs[0]); err != nil || p.Function[0].Name != "main.work" {
		t.Errorf("profile: %v, %v", p, err)
	}
	log, err := r.Log("etcd")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if text, _ := io.ReadAll(log); string(text) != "ready\n" || !slices.Equal(r.Logs(), []string{"etcd"}) {
		t.Errorf("log %q of %v", text, r.Logs())
	}
	if text, err := r.Experiment(); err != nil || string(text) != "name: density\n" {
		t.Errorf("experiment: %q, %v", text, err)
	}
	var names []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"experiment.yaml", "logs", "machine.parquet", "metrics", "nodes.parquet", "operations.parquet", "pods.parquet", "processes.parquet", "profiles", "recording.json", "requests.parquet"}
	if !slices.Equal(names, want) {
		t.Errorf("files: %v\nwant %v", names, want)
	}
	if blocks, _ := os.ReadDir(filepath.Join(dir, metricsDir)); len(blocks) != 2 || len(blocks[0].Name()) != 26 || blocks[1].Name() != "wal" {
		t.Errorf("metrics: %v; want one block and an empty log", blocks)
	}
}

func TestMissingIsNeverNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	w.Observes(TableOperations)
	w.Gap(Gap{Collector: "requests", Subject: "requests", Reason: "the audit log of this cluster is not ours"})
	w.Gap(Gap{Collector: "objects", Subject: "pods", Reason: "no pod was asked for", Start: at(1)})
	w.Gap(Gap{Collector: "metrics", Reason: "no permission to scrape"})
	finish(t, w)
	r := open(t, dir)
	if ops, err := r.Operations(); err != nil || len(ops) != 0 {
		t.Errorf("an observed table without rows: %v, %v; want none", ops, err)
	}
	_, err := r.Requests()
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "the audit log of this cluster is not ours") {
		t.Errorf("requests: %v", err)
	}
	if _, err = r.Nodes(); !errors.Is(err, ErrMissing) || strings.Contains(err.Error(), "pod") {
		t.Errorf("nodes: %v: another table's gap must not explain it", err)
	}
	for name, err := range map[string]error{"query": second(r.Query("up", at(0))), "points": second(r.Points("up", nil, Window{at(0), at(1)}))} {
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "no permission to scrape") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Log("etcd"); !errors.Is(err, ErrMissing) {
		t.Errorf("log: %v", err)
	}
	if _, err := r.ReadProfile(ProfileRef{File: "profiles/x.pb.gz"}); !errors.Is(err, ErrMissing) {
		t.Errorf("profile: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestCreateRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Create(dir, Meta{})
	if err == nil || !strings.Contains(err.Error(), "thesis.tex") || !strings.Contains(err.Error(), "choose another folder") {
		t.Errorf("got %v", err)
	}
	dir = filepath.Join(t.TempDir(), "a", "b")
	finish(t, create(t, dir, Meta{ID: "20260102T150405Z-ab12cd"}))
	if _, err := Create(dir, Meta{}); err == nil || !strings.Contains(err.Error(), "the recording 20260102T150405Z-ab12cd") {
		t.Errorf("got %v", err)
	}
}

func TestProfileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	ref := ProfileRef{Component: "../etcd", Phase: "ramp 1/2", Kind: "heap", End: at(1)}
	for range 2 {
		if err := w.Profile(ref, someProfile(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Profile(ref, []byte("<html>404</html>")); err == nil || w.Err() != nil {
		t.Errorf("a page instead of a profile: %v, %v; want an error that does not end the run", err, w.Err())
	}
	finish(t, w)
	var files []string
	for _, ref := range open(t, dir).Profiles() {
		files = append(files, ref.File)
	}
	if want := []string{"profiles/_etcd-ramp_1_2-heap-2.pb.gz", "profiles/_etcd-ramp_1_2-heap.pb.gz"}; !slices.Equal(files, want) {
		t.Errorf("got %v", files)
	}
}

func TestWriterIsGoroutineSafe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 200 {
				w.Request(Request{ReceivedMicros: int64(i), Code: int32(g)})
				w.AppendSample("kubedyno_x", map[string]string{"g": fmt.Sprint(g)}, at(float64(i)), float64(i))
				w.Gap(Gap{Collector: "logs", Reason: fmt.Sprint(i % 3)})
				if i%50 == 0 {
					if err := w.Update(func(m *Meta) { m.Warnings = append(m.Warnings, "w") }); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	finish(t, w)
	if err := w.Finish(StatusFailed, "again"); err != nil {
		t.Errorf("second finish: %v", err)
	}
	r := open(t, dir)
	if rs, err := r.Requests(); len(rs) != 1600 || err != nil {
		t.Errorf("%d requests, %v", len(rs), err)
	}
	if v, err := r.Query("count(kubedyno_x)", at(199)); err != nil || v[0].Points[0].Value != 8 {
		t.Errorf("%v, %v", v, err)
	}
	if m := r.Meta(); len(m.Gaps) != 3 || len(m.Warnings) != 32 || m.Status != StatusComplete {
		t.Errorf("%d gaps, %d warnings, %s", len(m.Gaps), len(m.Warnings), m.Status)
	}
}

func TestLateObservationsAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	finish(t, w)
	w.Pod(Pod{UID: "late"})
	w.AppendSample("late", nil, at(0), 1)
	if !errors.Is(w.Err(), ErrFinished) {
		t.Errorf("got %v", w.Err())
	}
	if err := w.Update(func(*Meta) {}); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v", err)
	}
	if _, err := open(t, dir).Pods(); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
}

func TestMetaGolden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, fullMeta())
	got, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	finish(t, w)
	golden := filepath.Join("testdata", "recording.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("recording.json changed; if that is meant, run with -update and look at the diff\n%s", got)
	}
	for _, secret := range []string{"hunter2", "s3cr3t"} {
		if bytes.Contains(got, []byte(secret)) {
			t.Errorf("%s is in recording.json", secret)
		}
	}
}

// fullMeta has every field set, and secrets wherever they may slip in.
func fullMeta() Meta {
	return Meta{
		ID: "20260102T150405Z-ab12cd", Name: "density", Tool: "v0.1.0", Started: start, Parent: "20260102T140000Z-000000",
		Invalid: []string{"it was a test"}, Warnings: []string{"it was cold"},
		Cluster: Cluster{Kind: "lab", Name: "one", Server: "https://admin:hunter2@127.0.0.1:6443", Version: "v1.36.3", Profile: "stock", APIReadySeconds: 3.5, CPU: 1.5,
			Components: []Component{{Name: "etcd", Instance: "etcd-1", PID: 42, Version: "3.6.8", Binary: "kubedyno-lab",
				Args: []string{"--name=one", "--initial-cluster-token=hunter2"}, Env: []string{"GOGC=off", "ETCD_TOKEN=hunter2"}, CPU: 0.5,
				Flags: map[string]string{"snapshot-count": "10000", "root-password": "hunter2"}, Harness: true}}},
		Machine: Machine{CPUs: 2, Model: "some CPU", MemoryBytes: 8 << 30, Kernel: "6.18.0", OS: "Debian 12", Virtual: "kvm", Cgroup: "v2", Disk: "ext4", GoMaxProcs: 2, LoadAverage: 0.25},
		Workload: Workload{Experiment: "experiment.yaml", ExpectedPods: 1000, ExpectedClaims: 100, Controller: "Deployment", OfferedRate: 20, Seed: 1, Shape: "0123456789ab",
			Objectives: []Objective{{Name: "startup", Indicator: "pod-startup", Quantile: 0.99, Limit: 5, Unit: "s", Value: 1.5, N: 1000, Met: true, Assessed: true, Reason: "enough"}}},
		Nodes:      Nodes{Count: 50, Identity: "own", Simulated: true, Real: 1, Seeded: 2, SeededPods: 3, SeedSeconds: 0.4, Fidelity: "× 0.8", ReadySeconds: 2.5, SchedulableSeconds: 4, ServiceSeconds: 12, StartDelayMedian: 0.3, StartDelayP99: 1},
		Phases:     []Phase{{Name: "steady", Kind: PhaseSteady, Start: at(1), End: at(61)}},
		Pauses:     []Pause{{Phase: "steady", FreezeSeconds: 0.004, ThawSeconds: 0.001, Asked: 100, Answered: 99, WorstSeconds: 0.02}},
		Collectors: []Observer{{Name: "metrics", IntervalSeconds: 1, Samples: 100, CPUSeconds: 0.5, Note: "two tiers"}},
		Gaps:       []Gap{{Collector: "requests", Subject: "requests", Reason: "no audit log", Start: at(1), End: at(2)}},
		Access:     []Access{{What: "pods", Collector: "objects", Grant: "list, watch pods", Allowed: true, Adds: "stages"}},
		LeftOut:    []string{"image pulls"}, KeptMetrics: []string{"up"},
		Settings: []string{"kube-scheduler.args.kube-api-qps=15", "etcd.env.ETCD_TOKEN=s3cr3t", "etcd.args.root-password=s3cr3t"},
	}
}

// TestFullMetaIsFull keeps fullMeta, and so the golden file, complete.
func TestFullMetaIsFull(t *testing.T) {
	setByWriter := []string{"Meta.Schema", "Meta.Status", "Meta.Ended", "Meta.EndReason"}
	var check func(v reflect.Value, path string)
	check = func(v reflect.Value, path string) {
		if v.IsZero() && !slices.Contains(setByWriter, path) {
			t.Errorf("%s is not set", path)
		}
		switch {
		case v.Type() == reflect.TypeFor[time.Time]():
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				check(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case v.Kind() == reflect.Slice && v.Len() > 0:
			check(v.Index(0), path)
		}
	}
	check(reflect.ValueOf(fullMeta()), "Meta")
}

func TestNewID(t *testing.T) {
	id := NewID(start.In(time.FixedZone("", 3600)), bytes.NewReader([]byte{0xab, 0x12, 0xcd}))
	if id != "20260102T150405Z-ab12cd" {
		t.Error(id)
	}
}

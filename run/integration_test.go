package run_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/run"
	"github.com/kubedyno/kubedyno/storage"
)

// The test binary is also the helpers that a run executes.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, map[string]labtest.Role{hollow.UserAgent: hollow.ProcessMain, load.ProcessName: load.ProcessMain, storage.ProcessName: storage.ProcessMain}); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// watcher fails the test on nothing; it only has to be safe to call.
type watcher struct {
	t      *testing.T
	phases []string
	states int
}

func (w *watcher) Phase(name string)  { w.phases = append(w.phases, name) }
func (w *watcher) Update(s run.State) { w.states++ }
func (w *watcher) Note(text string)   { w.t.Log(text) }

const phases = `
name: all-actions
cluster: {profile: tuned, nodes: 3}
observe: {profile: true}
phases:
  - {name: bare, kind: warm-up, create: {kind: Pod, count: 6, rate: 20/s, wait: running}}
  - {name: load, create: {kind: Deployment, count: 2, replicas: 10, rate: 10/s, wait: running}}
  - {name: grow, scale: {phase: load, replicas: 15, rate: 10/s, wait: running}}
  - {name: shrink, kind: drain, scale: {phase: load, replicas: 4, rate: 10/s, wait: gone}}
  - {name: clear, delete: {phase: load, rate: 10/s, wait: gone}}
  - {name: rest, settle: 1s}
objectives:
  - {name: all, indicator: intent-latency, quantile: 1, limit: 5m}
`

// One run goes through every action on a real control plane, and its recording
// holds what happened.
func TestRunEveryAction(t *testing.T) {
	t.Setenv("KUBEDYNO_LAB", labtest.Binary(t))
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	e, err := experiment.Parse("all-actions", []byte(phases))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r")
	w := &watcher{t: t}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run.Run(ctx, run.Options{
		Experiment: e, Out: out, Executable: exe, Tool: "test", Watch: w, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	rec := recordtest.Open(t, out)
	m := rec.Meta()
	if m.Status != record.StatusComplete {
		t.Errorf("status %s", m.Status)
	}
	for _, g := range m.Gaps {
		switch g.Collector {
		case "profile": // a phase may be too short for a CPU profile, and says so
		case "process", "stacks", "blockio", "lives": // what this machine and level leave out is theirs to test
		default:
			t.Errorf("gap %+v", g)
		}
	}
	if got := fmt.Sprint(w.phases); got != "[start bare load grow shrink clear rest]" || w.states == 0 {
		t.Errorf("phases %s, %d states", got, w.states)
	}
	var names []string
	for i, p := range m.Phases {
		names = append(names, p.Name)
		if !p.End.After(p.Start) || i > 0 && p.Start.Before(m.Phases[i-1].End) {
			t.Errorf("phase %s: %v to %v", p.Name, p.Start, p.End)
		}
	}
	if got := fmt.Sprint(names); got != fmt.Sprint(w.phases) {
		t.Errorf("recorded phases %s", got)
	}
	if m.Nodes.Count != 3 || m.Nodes.Identity != "own" || m.Nodes.SchedulableSeconds < m.Nodes.ReadySeconds {
		t.Errorf("nodes %+v", m.Nodes)
	}
	if m.Workload.ExpectedPods != 30 || len(m.Workload.Objectives) != 1 || m.Workload.Controller != "Deployment" {
		t.Errorf("workload %+v", m.Workload)
	}
	pods, err := rec.Pods()
	if err != nil || len(pods) != 36 {
		t.Fatalf("%d pods, want 6 bare and 30 of Deployments (%v)", len(pods), err)
	}
	gone := 0
	for _, p := range pods {
		if p.DueMicros == 0 || p.CreatedMicros < p.DueMicros || p.BoundMicros < p.CreatedMicros || p.RunningMicros < p.BoundMicros {
			t.Errorf("pod %s: due %d created %d bound %d running %d", p.Name, p.DueMicros, p.CreatedMicros, p.BoundMicros, p.RunningMicros)
		}
		if p.DeletedMicros != 0 {
			gone++
		}
	}
	if gone != 30 {
		t.Errorf("%d pods gone, want the 30 of the Deployments", gone)
	}
	for component, table := range map[string]bool{"etcd": true, "kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kubedyno-hollow": true, "kubedyno-load": false, "kubedyno": false} {
		ps, err := rec.Processes()
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, p := range ps {
			seen = seen || p.Component == component
		}
		if !seen {
			t.Errorf("no sample of process %s", component)
		}
		if !table {
			continue
		}
		if v, err := rec.Query(fmt.Sprintf("count({component=%q})", component), m.Phases[3].End); err != nil || len(v) == 0 {
			t.Errorf("no metrics of %s (%v)", component, err)
		}
	}
	requests, err := rec.Requests()
	if err != nil {
		t.Fatal(err)
	}
	binds := 0
	for _, r := range requests {
		if r.Subresource == "binding" {
			binds++
		}
	}
	if binds != 36 {
		t.Errorf("%d bindings in the audit log, want 36", binds)
	}
	profiles := map[string]bool{}
	for _, p := range rec.Profiles() {
		profiles[p.Component+" "+p.Kind] = true
	}
	for _, want := range []string{"etcd heap", "kube-apiserver heap", "kube-controller-manager goroutine", "kube-scheduler goroutine"} {
		if !profiles[want] {
			t.Errorf("no profile %s", want)
		}
	}
}

// A run whose control plane cannot start leaves no recording.
func TestRunThatNeverBegan(t *testing.T) {
	t.Setenv("KUBEDYNO_LAB", labtest.Binary(t))
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	e, err := experiment.Builtin("density", nil)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := experiment.ParseSets([]string{"kube-scheduler.args.kube-api-qps=many"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(sets); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r")
	err = run.Run(context.Background(), run.Options{Experiment: e, Out: out, Watch: &watcher{t: t}, Log: slog.New(slog.DiscardHandler)})
	var misuse *lab.MisuseError
	if !errors.As(err, &misuse) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a recording is left: %v", err)
	}
}

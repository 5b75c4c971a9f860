package run_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/run"
)

const changes = `
name: changes
cluster: {profile: tuned, nodes: 5}
observe: {profile: false}
phases:
  - {name: load, create: {kind: Deployment, count: 10, replicas: 4, rate: burst, pod: {cpu: 10m}, wait: running}}
  - {name: sets, apply: {count: 3, rate: 10/s, object: {apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 2, podManagementPolicy: Parallel,
      template: {spec: {containers: [{name: main, image: registry.k8s.io/pause:3.10}]}}}}, wait: running}}
  - {name: jobs, create: {count: 2, rate: 10/s, object: {apiVersion: batch/v1, kind: Job, spec: {completions: 3, parallelism: 3,
      template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}}}, wait: running}}
  - {name: everywhere, create: {count: 1, object: {apiVersion: apps/v1, kind: DaemonSet, spec: {template: {spec: {containers: [{name: main, image: x}]}}}}, wait: running}}
  - {name: maps, create: {count: 20, rate: 100/s, object: {apiVersion: v1, kind: ConfigMap, data: {number: "{index}"}}}}
  - {name: secrets, create: {count: 5, rate: burst, object: {apiVersion: v1, kind: Secret, stringData: {a: "{index}"}}}}
  - {name: services, create: {count: 5, rate: burst, object: {apiVersion: v1, kind: Service, spec: {selector: {a: b}, ports: [{port: 80}]}}}}
  - {name: claims, create: {count: 5, rate: burst, object: {apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: volumes, create: {count: 2, rate: burst, object: {apiVersion: v1, kind: PersistentVolume, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}}}}
  - {name: mark, patch: {phase: maps, rate: 100/s, patch: {data: {number: null, turn: "{index}"}}}}
  - {name: again, apply: {phase: sets, rate: 10/s}}
  - {name: roll, update: {phase: load, rate: 20/s, wait: running}}
  - name: busy
    parallel:
      - {name: turnover, churn: {phase: load, percent: 20, cycles: 2, rate: 20/s, wait: running}}
      - name: readers
        read:
          for: 3s
          rate: 40/s
          mix:
            - {kind: stale-list, resource: pods}
            - {kind: quorum-list, resource: deployments}
            - {kind: paged-list, resource: pods, limit: 10}
            - {kind: stale-get, phase: maps}
            - {kind: quorum-get, phase: sets}
            - {kind: watch, resource: pods, for: 500ms}
            - {kind: watch-list, resource: pods, namespace: all}
  - {name: workers, read: {mix: [{kind: quorum-list, resource: pods}], for: 1s, clients: 2}}
  - {name: fewer, kind: drain, scale: {phase: sets, replicas: 1, rate: 10/s, wait: gone}}
  - {name: no-jobs, delete: {phase: jobs, rate: burst, wait: gone}}
  - {name: clear, delete: {phase: load, rate: 20/s, wait: gone}}
`

// runLab runs an experiment on a lab and opens its recording.
func runLab(t *testing.T, text string, w run.Watcher) *record.Recording {
	t.Helper()
	t.Setenv("KUBEDYNO_LAB", labtest.Binary(t))
	e, err := experiment.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run.Run(ctx, run.Options{Experiment: e, Out: out, Executable: exe, Tool: "test", Watch: w, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return recordtest.Open(t, out)
}

// Every action does what it says on a real control plane: nothing is refused,
// and as many pods come and go as the plan has it.
func TestEveryChange(t *testing.T) {
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	rec := runLab(t, changes, &watcher{t: t})
	ops, err := rec.Operations()
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]int{}
	for _, op := range ops {
		verbs[op.Phase+" "+op.Verb]++
		if op.Error != "" {
			t.Errorf("%s %s %s in phase %s: %s", op.Verb, op.Resource, op.Name, op.Phase, op.Error)
		}
	}
	for what, want := range map[string]int{
		"load create": 10, "sets apply": 3, "jobs create": 2, "everywhere create": 1, "maps create": 20, "secrets create": 5, "services create": 5,
		"claims create": 5, "volumes create": 2, "mark patch": 20, "again apply": 3, "roll update": 10, "turnover delete": 4, "turnover create": 4,
		"fewer scale": 3, "no-jobs delete": 2, "clear delete": 10,
	} {
		if verbs[what] != want {
			t.Errorf("%d operations %s, want %d", verbs[what], what, want)
		}
	}
	for _, kind := range []string{"stale-list", "quorum-list", "paged-list", "stale-get", "quorum-get", "watch", "watch-list"} {
		if verbs["readers "+kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
	pods, err := rec.Pods()
	if err != nil {
		t.Fatal(err)
	}
	ran, gone := map[string]int{}, map[string]int{}
	for _, p := range pods {
		if p.RunningMicros != 0 {
			ran[p.Phase]++
		}
		if p.DeletedMicros != 0 {
			gone[p.Phase]++
		}
	}
	for phase, want := range map[string]int{"load": 40, "sets": 6, "jobs": 6, "everywhere": 5, "roll": 40, "turnover": 16} {
		if ran[phase] != want {
			t.Errorf("%d pods of phase %s ran, want %d", ran[phase], phase, want)
		}
	}
	if gone["load"] != 40 || gone["roll"] != 40 || gone["sets"] != 3 || gone["jobs"] != 6 {
		t.Errorf("gone: %v", gone)
	}
	m := rec.Meta()
	var names []string
	for _, p := range rec.Phases() {
		names = append(names, p.Name)
	}
	if i := slices.Index(names, "turnover"); i < 0 || slices.Contains(names, "busy") || !slices.Contains(names, "readers") {
		t.Errorf("phases %v", names)
	}
	if !slices.ContainsFunc(m.Warnings, func(w string) bool { return strings.Contains(w, "phase workers: a closed loop of 2 clients") }) {
		t.Errorf("warnings %q", m.Warnings)
	}
	if m.Workload.ExpectedPods != 113 { // 40 + 6 + 6 + 5 + 40 + 16
		t.Errorf("%d pods expected", m.Workload.ExpectedPods)
	}
}

// freezer stops the API server for a while in the middle of a phase.
type freezer struct {
	watcher
	phase string
	stall time.Duration
}

func (f *freezer) Phase(name string) {
	f.watcher.Phase(name)
	if name != f.phase {
		return
	}
	labs, err := lab.List("")
	if err != nil || len(labs) != 1 {
		f.t.Errorf("%d labs: %v", len(labs), err)
		return
	}
	server := labs[0].ControlPlane.Component("kube-apiserver")
	time.AfterFunc(time.Second, func() {
		_ = syscall.Kill(server.PID, syscall.SIGSTOP)
		time.AfterFunc(f.stall, func() { _ = syscall.Kill(server.PID, syscall.SIGCONT) })
	})
}

// An API server that stands still for 2 s is in the latencies of an open loop,
// and what could not be sent in time is counted.
func TestFrozenAPIServer(t *testing.T) {
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	const stall = 2 * time.Second
	rec := runLab(t, `
name: frozen
cluster: {profile: tuned, nodes: 1}
observe: {level: minimal}
phases:
  - {name: first, kind: warm-up, create: {count: 1, object: {apiVersion: v1, kind: ConfigMap}}}
  - {name: load, create: {count: 500, rate: 100/s, inFlight: 60, sendWithin: 500ms, object: {apiVersion: v1, kind: ConfigMap}}}
`, &freezer{watcher: watcher{t: t}, phase: "load", stall: stall})
	ops, err := rec.Operations()
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	missed := 0
	for _, op := range ops {
		switch {
		case op.Phase != "load":
		case op.SentMicros == 0:
			missed++
		default:
			took = append(took, time.Duration(op.DoneMicros-op.DueMicros)*time.Microsecond)
		}
	}
	slices.Sort(took)
	if len(took)+missed != 500 || missed == 0 {
		t.Fatalf("%d sent, %d missed", len(took), missed)
	}
	p99 := took[(len(took)*99+99)/100-1]
	t.Logf("%d sent, p99 from due to answered %v, %d missed", len(took), p99, missed)
	if p99 < stall*9/10 {
		t.Errorf("p99 is %v with a stall of %v", p99, stall)
	}
}

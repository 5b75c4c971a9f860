package run_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/run"
	"github.com/kubedyno/kubedyno/storage"
)

const claims = `
name: claims
cluster:
  profile: tuned
  nodes: 3
  storage:
    provisionDelay: 200ms
    attachDelay: 200ms
    mountDelay: 100ms
    replicas: 2
    qps: 100
    burst: 100
phases:
  - name: claims
    create:
      count: 6
      rate: burst
      object: {apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
      wait: bound
  - name: pods
    create:
      count: 6
      rate: burst
      object:
        apiVersion: v1
        kind: Pod
        spec:
          terminationGracePeriodSeconds: 0
          containers: [{name: main, image: registry.k8s.io/pause:3.10, volumeMounts: [{name: data, mountPath: /data}]}]
          volumes: [{name: data, persistentVolumeClaim: {claimName: "claims-{index}"}}]
      wait: running
  - {name: pods-go, delete: {phase: pods, rate: burst, wait: gone}}
  - {name: claims-go, delete: {phase: claims, rate: burst, wait: gone}}
  # Ten seconds until nodes take their volumes back; until then the provisioner
  # tries in vain to delete them, after 1, 3, 7 and 15 s.
  - {name: rest, settle: 24s}
objectives:
  - {name: bound, indicator: claim-bound, limit: 2m}
  - {indicator: claim-failures, limit: 0}
`

// performClaims runs an experiment with settings and returns its recording.
func performClaims(t *testing.T, text string, settings ...string) *record.Recording {
	t.Helper()
	t.Setenv("KUBEDYNO_LAB", labtest.Binary(t))
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	e, err := experiment.Parse("claims", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := experiment.ParseSets(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(sets); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run.Run(ctx, run.Options{
		Experiment: e, Out: out, Executable: exe, Tool: "test", Watch: &watcher{t: t}, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	return recordtest.Open(t, out)
}

func diagnosed(t *testing.T, rec *record.Recording) *diagnose.Diagnosis {
	t.Helper()
	d, err := diagnose.Run(rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Valid {
		t.Errorf("not valid: %v", d.InvalidReasons)
	}
	return d
}

// Claims on a real control plane are provisioned, bound, attached and used, and
// all of it is taken back.
func TestRunClaims(t *testing.T) {
	rec := performClaims(t, claims)
	d := diagnosed(t, rec)
	if c := d.Claims; c == nil || c.Expected != 6 || c.Bound != 6 || c.Pending+c.Lost+c.FailedOperations != 0 || c.Warnings == nil || *c.Warnings != 0 {
		t.Errorf("claims %+v", c)
	} else if len(c.Groups) != 1 || c.Groups[0].Class != "simulated" || c.Groups[0].Mode != "immediate" {
		t.Errorf("groups %+v", c.Groups)
	} else {
		for _, s := range c.Groups[0].Steps {
			if s.N != 6 {
				t.Errorf("step %s of %d claims, want 6", s.Name, s.N)
			}
		}
	}
	for _, o := range d.Objectives {
		if !o.Met {
			t.Errorf("objective %+v", o)
		}
	}
	all, err := volumes.Of(rec)
	if err != nil || len(all) != 6 {
		t.Fatalf("%d claims (%v)", len(all), err)
	}
	for _, c := range all {
		times := []int64{c.DueMicros, c.CreatedMicros, c.ProvisionedMicros, c.BoundMicros, c.RequestedMicros, c.AttachedMicros, c.RunningMicros, c.DeletedMicros}
		// Each kind has a watch of its own: they agree on the order but for a moment.
		inOrder := true
		for i := range times[1:] {
			inOrder = inOrder && times[i+1] >= times[i]-500_000
		}
		if slices.Contains(times, 0) || !inOrder {
			t.Errorf("claim %s: due, created, provisioned, bound, requested, attached, running, deleted at %v", c.Name, times)
		}
		// Watches may show a creation late, but nothing before it was due.
		if c.ProvisionedMicros-c.DueMicros < 200_000 || c.AttachedMicros-c.DueMicros < 400_000 {
			t.Errorf("claim %s came sooner than its backend lets it: %+v", c.Name, c)
		}
	}

	// Volumes and attachments are gone at the end: the finalizers were taken off.
	objects, err := rec.Objects()
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]int{}
	for _, o := range objects {
		if o.Change == "deleted" {
			gone[o.Kind]++
		}
	}
	if gone["PersistentVolume"] != 6 || gone["VolumeAttachment"] != 6 || gone["PersistentVolumeClaim"] != 6 {
		t.Errorf("deleted: %v, want 6 volumes, attachments and claims", gone)
	}

	// The sidecars are a component of the system, seen by all collectors.
	m := rec.Meta()
	var replicas []record.Component
	for _, c := range m.Cluster.Components {
		if c.Name == storage.ProcessName {
			replicas = append(replicas, c)
		}
	}
	if len(replicas) != 2 || replicas[0].Harness || replicas[0].Flags["kube-api-qps"] != "100" {
		t.Errorf("components %+v", replicas)
	}
	requests, err := rec.Requests()
	if err != nil {
		t.Fatal(err)
	}
	agents := map[string]int{} // by role
	for _, r := range requests {
		if program, role := diagnose.ParseUserAgent(r.UserAgent); program == storage.ProcessName {
			agents[role]++
			if !strings.HasSuffix(r.User, ":csi") {
				t.Errorf("the sidecars speak as %s", r.User)
			}
			if r.Code == 401 || r.Code == 403 {
				t.Errorf("refused: %s %s %s", r.Verb, r.Resource, r.Name)
			}
		}
	}
	if agents["provisioner"] == 0 || agents["attacher"] == 0 {
		t.Errorf("requests by role %v", agents)
	}
	provisioned, ok, err := rec.Increase("controller_persistentvolumeclaim_provision_total", map[string]string{"component": storage.ProcessName},
		record.Window{Start: m.Started, End: m.Ended})
	// It counts a claim again that it finds provisioned before its cache shows the volume.
	if err != nil || !ok || provisioned < 6 {
		t.Errorf("the library counts %v volumes (%v, %v)", provisioned, ok, err)
	}
	if log := rec.Logs(); !slices.Contains(log, storage.ProcessName) {
		t.Errorf("logs of %v", log)
	}
}

// Claims that controllers make for pods are followed like those of the load.
func TestPodClaims(t *testing.T) {
	d := diagnosed(t, performClaims(t, `
name: sets
cluster:
  profile: tuned
  nodes: 3
  storage: {provisionDelay: 100ms, attachDelay: 100ms, mountDelay: 50ms, qps: 100, burst: 100}
phases:
  - name: sets
    create:
      count: 2
      rate: burst
      object:
        apiVersion: apps/v1
        kind: StatefulSet
        spec:
          replicas: 2
          volumeClaimTemplates:
            - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
          template:
            spec:
              containers: [{name: main, image: registry.k8s.io/pause:3.10}]
              volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]
      wait: running
  - {name: more, scale: {phase: sets, replicas: 3, rate: burst, wait: running}}
  - wait: bound
objectives:
  - {indicator: claim-bound, limit: 2m}
`, "observe.level=minimal"))
	if c := d.Claims; c == nil || c.Expected != 12 || c.Bound != 12 || c.Seen != 12 || c.Missing != "" {
		t.Errorf("claims %+v", c)
	}
	if o := d.Objectives[0]; !o.Met || o.N != 12 {
		t.Errorf("objective %+v", o)
	}
}

// A backend that is too slow for the objective misses it; one that is too slow
// for the wait as well leaves out what builds on it, and the run is still a
// measurement.
func TestClaimsTooSlow(t *testing.T) {
	rec := performClaims(t, claims, "cluster.storage.provisionDelay=2s", "objectives[0].limit=1s", "phases.rest.settle.for=1s")
	o := diagnosed(t, rec).Objectives[0]
	if o.Met || !o.Assessed || o.Value < 2 || o.N != 6 {
		t.Errorf("slow: %+v", o)
	}

	rec = performClaims(t, claims, "cluster.storage.provisionDelay=1h", "phases.claims.create.wait.timeout=3s")
	d := diagnosed(t, rec)
	o = d.Objectives[0]
	if o.Met || !o.Assessed || !strings.Contains(o.Reason, "6 of 6 never were bound") {
		t.Errorf("hopeless: %+v", o)
	}
	if m := rec.Meta(); len(m.Phases) != 2 || m.Workload.ExpectedPods != 0 || m.Status != record.StatusComplete {
		t.Errorf("%d phases, %d pods expected, %s", len(m.Phases), m.Workload.ExpectedPods, m.Status)
	}
}

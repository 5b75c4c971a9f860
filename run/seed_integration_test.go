package run_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
)

const schedulerOnly = `
name: scheduler-only
cluster:
  profile: tuned
  nodes: {seeded: 50}
  node: {cpu: 4, pods: 20, zones: [north, south], taints: [{key: example.com/odd, effect: PreferNoSchedule}]}
  population: {pods: 100, pod: {cpu: 100m}}
  components: {kube-controller-manager: {off: true}}
observe: {profile: false}
phases:
  - {name: warm, kind: warm-up, create: {kind: Pod, count: 5, rate: burst, wait: scheduled}}
  - {name: gone, kind: warm-up, delete: {phase: warm, rate: burst, wait: gone}}
  - {name: sets, kind: warm-up, create: {kind: Pod, count: 9, clients: 3, namespace: others, namespaces: 3, wait: scheduled}}
  - parallel:
      - {name: load, create: {kind: Pod, count: 100, rate: 30/s, pod: {cpu: 10m}, wait: scheduled}}
      - {name: noise, beside: true, create: {count: 10000, rate: 10/s, object: {apiVersion: v1, kind: ConfigMap}}}
objectives:
  - {indicator: throughput, limit: 1/s}
`

// Nodes and pods that were put into etcd are nodes and pods to a real API server
// and a real scheduler; without a controller manager pods are let in, end, and go
// to namespaces of their own.
func TestSchedulerOnly(t *testing.T) {
	t.Setenv("KUBEDYNO_STATE", filepath.Join(t.TempDir(), "labs"))
	rec := runLab(t, schedulerOnly, &watcher{t: t})
	m := rec.Meta()
	if m.Nodes.Count != 50 || m.Nodes.Seeded != 50 || m.Nodes.SeededPods != 100 || m.Nodes.SeedSeconds <= 0 {
		t.Errorf("nodes %+v", m.Nodes)
	}
	for _, c := range m.Cluster.Components {
		if c.Name == "kube-controller-manager" {
			t.Error("the controller manager was not left out")
		}
	}
	pods, err := rec.Pods()
	if err != nil {
		t.Fatal(err)
	}
	bound, gone, namespaces := map[string]int{}, 0, map[string]bool{}
	for _, p := range pods {
		if p.BoundMicros != 0 && strings.HasPrefix(p.Node, "seeded-") {
			bound[p.Phase]++
		}
		if p.DeletedMicros != 0 {
			gone++
		}
		if p.Phase == "sets" {
			namespaces[p.Namespace] = true
		}
		if p.RunningMicros != 0 {
			t.Errorf("pod %s runs on a node that nobody stands behind", p.Name)
		}
	}
	if len(pods) != 114 || bound["load"] != 100 || bound["sets"] != 9 || gone != 5 || len(namespaces) != 3 || !namespaces["others-2"] {
		t.Errorf("%d pods, bound %v, %d gone, namespaces %v", len(pods), bound, gone, namespaces)
	}
	ops, err := rec.Operations()
	if err != nil {
		t.Fatal(err)
	}
	noise := 0
	for _, op := range ops {
		if op.Phase == "noise" {
			noise++
		}
		if op.Error != "" && !(op.Phase == "noise" && strings.Contains(op.Error, "ended early")) {
			t.Errorf("%s %s %s: %s", op.Verb, op.Resource, op.Name, op.Error)
		}
	}
	// What is beside the load goes on for as long, which is some 3 s at 10/s.
	if noise < 10 || noise > 1000 {
		t.Errorf("%d operations beside the load", noise)
	}
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if !d.EndsBound || d.Pods.Bound != 100 || d.Pods.Stuck != 0 || d.Throughput == nil || d.SchedulerPerf == nil || d.Latencies.Scheduling == nil || d.Latencies.Scheduling.N != 100 || d.Latencies.PodStartup.N != 0 {
		t.Errorf("%+v", d)
	}
	if d.Harness.CPUSeconds == nil {
		t.Error("the harness has no cost")
	}
	if w := d.Scheduler; w == nil || len(w.Attempts) == 0 || w.Attempts[0].Name != "scheduled" || w.Attempts[0].N < 90 || len(w.Points) == 0 {
		t.Errorf("the scheduler's own work: %+v", w)
	}
	for _, o := range d.Objectives {
		if d.Valid && (!o.Assessed || !o.Met) {
			t.Errorf("objective %+v", o)
		}
	}
}

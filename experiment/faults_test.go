package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const hindered = `name: whole
cluster:
  nodes: 10
  node: {startDelay: 200ms, pods: 50}
  components: {etcd: {args: {snapshot-count: 5000}, env: {GOGC: 50}}}
actors: [{name: mine, do: lister}]
phases:
  - {name: load, create: {kind: Pod, count: 10, rate: 5/s, wait: running}}
  - {settle: 5s}
faults:
  - {name: one, value: 20ms}
  - {name: two, intensity: high}
  - {name: three}
`

// What a fault changes is laid over what is there: nothing else is lost.
func TestMake(t *testing.T) {
	e, err := Parse("whole.yaml", []byte(hindered))
	if err != nil {
		t.Fatal(err)
	}
	if got := e.FaultProblem(1, "name", "what"); got.Line != 12 {
		t.Errorf("the second fault is said to be in line %d", got.Line)
	}
	as := e.Faults
	err = e.Make(as, [][]byte{
		[]byte("cluster: {components: {etcd: {args: {quota-backend-bytes: 5}, syncDelay: 20ms}, kube-scheduler: {cpu: 0.5}}, cpu: 2}"),
		[]byte("actors: [{name: noise, do: events, rate: 5/s}]\nphases:\n  - {name: before, kind: warm-up, create: {count: 3, rate: burst, object: {apiVersion: v1, kind: ConfigMap}}}\n  - {name: pause, settle: 1s}"),
		[]byte("cluster: {node: {disk: 50ms}}"),
	})
	if err == nil {
		err = e.Apply(Sets{})
	}
	if err != nil {
		t.Fatal(err)
	}
	etcd := e.Cluster.Components["etcd"]
	switch {
	case *etcd.Args["snapshot-count"] != "5000" || *etcd.Args["quota-backend-bytes"] != "5" || etcd.Env["GOGC"] != "50" || etcd.SyncDelay != 20*time.Millisecond:
		t.Errorf("etcd: %+v", etcd)
	case e.Cluster.Components["kube-scheduler"].CPU != 0.5 || e.Cluster.CPU != 2 || e.Cluster.Nodes.Hollow != 10:
		t.Errorf("cluster: %+v", e.Cluster)
	case e.Cluster.Node.Disk.Value != 50*time.Millisecond || e.Cluster.Node.Pods != 50 || e.Cluster.Node.StartDelay.Value != 200*time.Millisecond:
		t.Errorf("node: %+v", e.Cluster.Node)
	case len(e.Actors) != 2 || e.Actors[0].Name != "mine" || e.Actors[1].Do != ActEvents:
		t.Errorf("actors: %+v", e.Actors)
	case len(e.Phases) != 4 || e.Phases[0].Name != "before" || e.Phases[2].Name != "load" || e.Phases[2].Create.Count != 10:
		t.Errorf("phases: %+v", e.Phases)
	case len(e.Faults) != 0 || len(e.Made()) != 3:
		t.Errorf("faults %v, made %v", e.Faults, e.Made())
	}
	// What is written repeats the run, and does not say what was done.
	data, err := e.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yaml", data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	if strings.Contains(string(data), "faults") || again.Cluster.Components["etcd"].SyncDelay != 20*time.Millisecond || len(again.Phases) != 4 {
		t.Errorf("written as\n%s", data)
	}
	for _, want := range []string{"Put wrong on purpose: one, 20ms.", "Put wrong on purpose: two, high.", "Put wrong on purpose: three, middle.", "held to 2 cores together", "each sync to disk 20ms longer"} {
		if got := e.Explain(); !strings.Contains(got, want) {
			t.Errorf("explain does not say %q:\n%s", want, got)
		}
	}
	// Problems of moved phases are still told with their lines.
	if p := e.source.problem("phases[2].create.count", "x"); p.Line != 8 || p.File != "whole.yaml" {
		t.Errorf("phase load is said to be at %v", p)
	}
}

func TestMakeRefuses(t *testing.T) {
	for fragment, want := range map[string]string{
		"cluster: {nods: 5}":                                      "did you mean \"nodes\"",
		"cluster: {components: {etcd: {args: 5}}}":                "want a mapping",
		"actors: [{name: mine, do: events}]":                      "each actor needs a name of its own",
		"phases: [{name: load, settle: 1s}]":                      "load",
		"cluster: {components: {etcd: {latency: -5ms}}}":          "must be at least",
		"cluster: {components: {kube-apiserver: {latency: 5ms}}}": "only the way to etcd",
	} {
		e, err := Parse("whole.yaml", []byte(hindered))
		if err != nil {
			t.Fatal(err)
		}
		err = e.Make(e.Faults[:1], [][]byte{[]byte(fragment)})
		if err == nil {
			err = e.Apply(Sets{})
		}
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", fragment, err, want)
		}
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]string{"": "middle", "low": "low", "high": "high", "20ms": "20ms", "0.5": "0.5"} {
		if got := ParseFault("x", text); got.Strength() != want || got.Name != "x" {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

package experiment

import (
	"strings"
	"testing"
)

func TestImages(t *testing.T) {
	e, err := Parse("x", []byte(`
name: x
cluster: {nodes: {hollow: 2, real: 1}}
phases:
  - {name: short, create: {kind: Pod, count: 2, rate: 1/s, pod: {image: 'a:1'}}}
  - name: manifest
    create:
      count: 2
      rate: 1/s
      object:
        apiVersion: apps/v1
        kind: Deployment
        spec:
          replicas: 1
          template:
            spec:
              initContainers: [{name: i, image: 'b:1'}]
              containers: [{name: c, image: 'a:1'}, {name: d, image: 'c:{index}'}]
  - {name: new, update: {phase: manifest, rate: 1/s, pods: {spec: {containers: [{name: c, image: 'a:2'}]}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(e.Images(), " "); got != "a:1 a:2 b:1" {
		t.Errorf("got %s", got)
	}
	if e.Cluster.Nodes != (Nodes{Hollow: 2, Real: 1}) {
		t.Errorf("%+v", e.Cluster.Nodes)
	}
	data, err := e.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse("x", data); err != nil || again.Cluster.Nodes != e.Cluster.Nodes {
		t.Errorf("%v\n%s", err, data)
	}
	e.Cluster.Existing = true
	if err := e.Validate(); err == nil || !strings.Contains(err.Error(), "a real node needs a lab") {
		t.Errorf("on an existing cluster: %v", err)
	}
}

package experiment

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestShorten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"density", "density-direct"}).Draw(t, "experiment")
		e, err := Builtin(name, Params{
			"nodes": strconv.Itoa(rapid.IntRange(1, 200).Draw(t, "nodes")), "pods-per-node": strconv.Itoa(rapid.IntRange(1, 60).Draw(t, "pods per node")),
		})
		if err != nil {
			t.Fatal(err)
		}
		before, want := e.ExpectedPods(), rapid.IntRange(1, 5000).Draw(t, "pods")
		done := e.Shorten(want)
		after := e.ExpectedPods()
		if done != (after < before) || done != (want < before) || done && (after < want || after > want+1) {
			t.Fatalf("%d of %d pods wanted: %d, %v", want, before, after, done)
		}
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// Where another phase says how many there are to be, fewer would be another
// experiment.
func TestShortenLeavesAlone(t *testing.T) {
	e, err := Parse("x", []byte(`
name: x
cluster: {nodes: 10}
phases:
  - {name: load, create: {kind: Deployment, count: 1, replicas: 100, wait: running}}
  - {name: grow, scale: {phase: load, replicas: 200, wait: running}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if e.Shorten(10) || e.ExpectedPods() != 200 {
		t.Errorf("%d pods", e.ExpectedPods())
	}
}

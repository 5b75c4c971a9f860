package experiment

import "testing"

// Runs that differ in what may be wrong have one shape; those that put another
// load on have not.
func TestShape(t *testing.T) {
	shape := func(sets ...string) string {
		t.Helper()
		e, err := Builtin("density", nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseSets(sets)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Apply(parsed); err != nil {
			t.Fatal(err)
		}
		s, err := e.Shape()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := shape()
	if len(base) != 12 {
		t.Fatalf("shape %q, want twelve digits", base)
	}
	for _, set := range []string{"etcd.cpu=0.3", "kube-apiserver.args.v=10", "seed=7", "observe.level=full"} {
		if s := shape(set); s != base {
			t.Errorf("%s: shape %s, want that of the experiment, %s", set, s, base)
		}
	}
	for _, set := range []string{"cluster.nodes=77", "cluster.node.startDelay=1s"} {
		if s := shape(set); s == base {
			t.Errorf("%s: the shape is the same", set)
		}
	}
}

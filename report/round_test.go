package report

import (
	"math"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

func TestRunWithoutPodsTellsWhatTheClusterCosts(t *testing.T) {
	unseen := math.NaN()
	r := Round{
		Recording: Facts{Phases: []Phase{{Name: "start", Kind: string(record.PhaseWarmUp), From: 0, To: 2}, {Name: "idle", Kind: string(record.PhaseSteady), From: 2, To: 6}}},
		CPU: CPU{Step: 1, Series: []CPUSeries{
			{Component: "etcd", Cores: Values{1.9, 1, 0.01, 0.02, 0.03, 0.02, 3}},
			{Component: "kube-apiserver", Cores: Values{2, 2, unseen, 0.04, 0.06, unseen, 3}},
			{Component: "dns-1", Cores: Values{0, 0, 0.5, 0.5, 0.5, 0.5, 3}},
			{Component: "kubedyno", Harness: true, Cores: Values{1, 1, 0.01, 0.01, 0.01, 0.01, 3}},
			{Component: "other", Cores: Values{unseen, unseen, unseen, unseen, unseen, unseen, unseen}},
		}},
	}
	got := headline(r, clock{}, nil)
	want := []struct {
		id      string
		percent float64 // -1: not known
	}{{"plane-cpu", 7}, {"cpu-etcd", 2}, {"cpu-kube-apiserver", 5}, {"cpu-dns-1", 50}, {"other-cpu", -1}, {"harness-cpu", 1}}
	if len(got) != len(want) {
		t.Fatalf("%d numbers, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if got[i].ID != w.id || got[i].Unit != "% of a CPU" {
			t.Errorf("number %d is %s in %s, want %s", i, got[i].ID, got[i].Unit, w.id)
		}
		switch v := got[i].Value; {
		case v == nil && w.percent >= 0:
			t.Errorf("%s is not known, want %v %%", w.id, w.percent)
		case v != nil && math.Abs(*v-w.percent) > 1e-9:
			t.Errorf("%s is %v %%, want %v", w.id, *v, w.percent)
		}
	}
}

func TestEvidenceIsReadInUnitsOfPeople(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  float64
		reads string
	}{{10_188_291_636, "bytes/s", 10.2, "GB/s"}, {2_147_483_648, "bytes", 2.15, "GB"}, {12, "bytes", 12, "bytes"}, {0.9, "1", 0.9, ""}, {20, "1/s", 20, "/s"}, {3, "s", 3, "s"}} {
		value, unit := readable(diagnose.Evidence{Value: c.value, Unit: c.unit})
		if value != c.want || unit != c.reads {
			t.Errorf("%v %s reads %v %s, want %v %s", c.value, c.unit, value, unit, c.want, c.reads)
		}
	}
}

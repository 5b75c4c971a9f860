package fault_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/record"
)

func found(id, component, stage, resource string, grade diagnose.Grade) diagnose.Finding {
	return diagnose.Finding{ID: id, Component: component, Stage: stage, Resource: resource, Grade: grade}
}

var (
	limit   = found("controller-client-limit", "kube-controller-manager", "controller", "client-limit", diagnose.Confirmed)
	workers = found("controller-workers", "kube-controller-manager", "controller", "workers", diagnose.Confirmed)
	storm   = found("list-storm", "client:inventory", "", "cpu", diagnose.Likely)
	full    = found("machine-cpu", "machine", "start", "cpu", diagnose.Confirmed)
)

func try(t *testing.T, experiment, faults string, findings ...diagnose.Finding) fault.Trial {
	t.Helper()
	var made []record.Fault
	for _, name := range strings.Fields(faults) {
		name, acted, _ := strings.Cut(name, ":")
		name, intensity, _ := strings.Cut(name, "=")
		if acted == "" {
			acted = "yes"
		}
		made = append(made, record.Fault{Name: name, Intensity: intensity, Acted: acted})
	}
	trial, err := fault.Try(experiment+" "+faults, experiment, made, &diagnose.Diagnosis{Findings: findings})
	if err != nil {
		t.Fatal(err)
	}
	return trial
}

func TestTrial(t *testing.T) {
	for _, c := range []struct {
		experiment, faults string
		findings           []diagnose.Finding
		want               string
	}{
		{"rollout", "controller-limit=middle", []diagnose.Finding{limit, full}, "controller-limit=middle: right; controller-client-limit first, confirmed (kube-controller-manager, stage controller, client-limit)"},
		{"rollout", "controller-limit=high", []diagnose.Finding{full, limit}, "controller-limit=high: named, place 2; machine-cpu first, confirmed (machine, stage start, cpu)"},
		{"rollout", "controller-limit=high", nil, "controller-limit=high: not named; nothing was found"},
		{"rollout", "controller-limit=high:no", nil, "controller-limit=high: not seen to act; nothing was found"},
		{"rollout", "", []diagnose.Finding{full}, "healthy rollout: as it should be; machine-cpu first, confirmed (machine, stage start, cpu)"},
		{"arrivals", "", []diagnose.Finding{full, storm}, "healthy arrivals: unexpected: machine-cpu, list-storm; machine-cpu first, confirmed (machine, stage start, cpu)"},
		{"rollout", "frequent-snapshots=middle", []diagnose.Finding{full}, "frequent-snapshots=middle: right; machine-cpu first, confirmed (machine, stage start, cpu)"},
		{"rollout", "frequent-snapshots=middle", []diagnose.Finding{storm}, "frequent-snapshots=middle: not named; list-storm first, likely (client:inventory, cpu)"},
		{"rollout", "controller-limit=middle scheduler-limit=middle", []diagnose.Finding{limit, full}, "controller-limit=middle and scheduler-limit=middle: controller-limit named, place 1, scheduler-limit not named; controller-client-limit first, confirmed (kube-controller-manager, stage controller, client-limit)"},
	} {
		if got := try(t, c.experiment, c.faults, c.findings...).Text(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if _, err := fault.Try("r", "rollout", []record.Fault{{Name: "gone"}}, &diagnose.Diagnosis{}); err == nil || !strings.Contains(err.Error(), "recording r: unknown fault") {
		t.Errorf("a fault that is not in the catalogue any more: %v", err)
	}
}

func TestSum(t *testing.T) {
	a := fault.Sum([]fault.Trial{
		try(t, "rollout", "controller-limit=middle", limit),
		try(t, "rollout", "few-workers=middle", limit, workers), // its look-alike, and sure of it
		try(t, "arrivals", "list-storm=high", full),
		try(t, "arrivals", "list-storm=low", storm),
		try(t, "arrivals", "list-storm=middle:no"),
		try(t, "rollout", "", full),
		try(t, "arrivals", "", storm),
		try(t, "rollout", "controller-limit=middle scheduler-limit=middle", limit, found("scheduler-client-limit", "kube-scheduler", "bind", "client-limit", diagnose.Likely)),
	}, []fault.Failure{{Recording: "starved-etcd-high-1", Reason: "kube-scheduler exited"}})
	for what, c := range map[string]struct {
		got  fault.Share
		want fault.Share
	}{
		"cause":     {a.Cause, fault.Share{Right: 1, Of: 3}},
		"component": {a.Component, fault.Share{Right: 2, Of: 3}},
		"in three":  {a.InThree, fault.Share{Right: 2, Of: 3}},
		"sure":      {a.Sure, fault.Share{Right: 1, Of: 3}},
		"low":       {a.Low, fault.Share{Right: 1, Of: 1}},
		"pairs":     {a.Pairs, fault.Share{Right: 1, Of: 1}},
		"healthy":   {a.Healthy, fault.Share{Right: 1, Of: 2}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	if want := []string{"arrivals list-storm=middle:no"}; !slices.Equal(a.Idle, want) {
		t.Errorf("trials whose fault did not act: %q, want %q", a.Idle, want)
	}
	if want := []string{"arrivals list-storm=high", "rollout few-workers=middle"}; !slices.Equal(a.Misled, want) {
		t.Errorf("sure of something wrong: %q, want %q", a.Misled, want)
	}
	if got := a.Detectors["controller-client-limit"][diagnose.Confirmed]; got != (diagnose.Hits{Right: 1, Of: 2}) {
		t.Errorf("hits of controller-client-limit: %+v", got)
	}
	if got := a.Detectors["list-storm"][diagnose.Likely]; got != (diagnose.Hits{Right: 1, Of: 2}) {
		t.Errorf("hits of list-storm: %+v", got)
	}
	if got, want := a.Healthy.String(), "1 of 2 (50 %; 95 %: 9 to 91)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	md := a.Markdown()
	for _, want := range []string{"| two faults at once, both among the first three findings | 1 of 1", "| [list-storm](detectors.md#list-storm) |  | 1 of 2 |  |", "- Failed, and not counted: starved-etcd-high-1: kube-scheduler exited", "| [few-workers](faults.md#few-workers) | 1 | controller-client-limit 1 |",
		"| [controller-limit](faults.md#controller-limit) | 1 | **controller-client-limit** 1 |", "| rollout few-workers=middle |  | yes | controller-client-limit: kube-controller-manager, stage controller, client-limit | confirmed | 2 |"} {
		if !strings.Contains(md, want) {
			t.Errorf("docs/accuracy.md lacks %q:\n%s", want, md)
		}
	}
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
}

// Trials of two days are one sum, in which a recording that was diagnosed again
// counts once.
func TestMerge(t *testing.T) {
	made := func(run string, cpus int, findings ...diagnose.Finding) fault.Trial {
		trial := try(t, "rollout", "controller-limit=middle", findings...)
		trial.Origin = &fault.Origin{Run: run, Started: time.Date(2026, 1, len(run), 0, 0, 0, 0, time.UTC), CPUs: cpus, Model: "a CPU", Kernel: "6.1", Kubernetes: "v1.36.3", Tool: "v0.1.0"}
		return trial
	}
	before := made("bb", 2, limit)
	before.AtFirst = &fault.Judgement{First: "machine-cpu", Grade: diagnose.Likely}
	pair := made("dddd", 2, limit)
	pair.Faults = append(pair.Faults, pair.Faults...)
	pair.Ranks, pair.AtFirst = []int{1, 2}, &fault.Judgement{Ranks: []int{1, 4}}
	pairs := fault.Sum([]fault.Trial{pair}, nil)
	if pairs.Pairs != (fault.Share{Right: 1, Of: 1}) || pairs.PairsAtFirst != (fault.Share{Of: 1}) {
		t.Errorf("a pair that was mended is right %+v, and was %+v", pairs.Pairs, pairs.PairsAtFirst)
	}
	a := fault.Sum(fault.Merge([]fault.Trial{made("a", 2, full), before}, []fault.Trial{made("a", 2, limit), made("ccc", 2, full)}), nil)
	if got, want := a.Cause, (fault.Share{Right: 2, Of: 3}); got != want {
		t.Errorf("right: %+v, want %+v", got, want)
	}
	if want := (fault.Share{Of: 1}); a.AtFirst != want {
		t.Errorf("right before it was mended: %+v, want %+v", a.AtFirst, want)
	}
	if md, want := a.Markdown(), "3 runs: Kubernetes v1.36.3 on 2 CPUs (a CPU), kernel 6.1; made on 2026-01-01, 2026-01-02, 2026-01-03, diagnosed by kubedyno v0.1.0."; !strings.Contains(md, want) {
		t.Errorf("docs/accuracy.md lacks %q:\n%s", want, md)
	}
	rates, err := a.HitRates()
	if err != nil || rates.CPUs != 2 || rates.Version != "v1.36.3" || rates.Detectors["machine-cpu"][diagnose.Confirmed] != (diagnose.Hits{Of: 1}) {
		t.Errorf("hit rates %+v: %v", rates, err)
	}
	if _, err := fault.Sum([]fault.Trial{made("a", 2, full), made("bb", 4, full)}, nil).HitRates(); err == nil || !strings.Contains(err.Error(), "v1.36.3 on 2 CPUs and of v1.36.3 on 4") {
		t.Errorf("trials of two kinds of machine have hit rates in common: %v", err)
	}
}

func TestLookAlikes(t *testing.T) {
	for _, g := range fault.LookAlikes {
		for _, name := range g.Members {
			if f, err := fault.Find(name); err != nil || len(f.Right) == 0 {
				t.Errorf("group %q: %s: %v, or it does no harm", g.Name, name, err)
			}
		}
	}
	md := fault.Sum([]fault.Trial{
		try(t, "rollout", "controller-limit=middle", limit),
		try(t, "rollout", "few-workers=middle", limit),
		try(t, "rollout", "refused-creates=middle", full), // wrong, and no member's name
	}, nil).Markdown()
	for _, want := range []string{"controller-limit 1 of 1, few-workers 0 of 1, far-controllers not run, refused-creates 0 of 1, starved-controllers not run, operator-limit not run, no-queues not run | 1: rollout few-workers=middle for controller-limit |", "slow-volumes not run | none |"} {
		if !strings.Contains(md, want) {
			t.Errorf("docs/accuracy.md lacks %q:\n%s", want, md)
		}
	}
}

// Pairs that set one thing to two values cannot be had together; others can.
func TestOverwrites(t *testing.T) {
	find := func(name string) *fault.Fault {
		f, err := fault.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"controller-limit", "scheduler-limit", false},
		{"controller-limit", "slow-removal", true},
		{"list-storm", "relist-storm", false}, // both bring the same objects
		{"slow-fsync", "slow-webhook", false},
	} {
		if got := find(c.a).Overwrites(find(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

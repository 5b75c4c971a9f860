package compare_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/diagnosetest"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

func runs(t *testing.T, words string, seeds ...int) []diagnose.Source {
	t.Helper()
	var out []diagnose.Source
	for _, s := range seeds {
		r, err := diagnosetest.Parse(fmt.Sprintf("%s; seed %d", words, s))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func row(t *testing.T, c compare.Comparison, id string) compare.Row {
	t.Helper()
	for _, r := range c.Rows {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("no row %s", id)
	return compare.Row{}
}

func TestOneRunEach(t *testing.T) {
	c, err := compare.Sources(runs(t, "pods 600 deployment", 1), runs(t, "pods 600 deployment; controller 40/s burst 60", 1), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Interval || !strings.Contains(c.Note, "one run each: no interval") {
		t.Errorf("Interval %v, note %q", c.Interval, c.Note)
	}
	r := row(t, c, "throughput")
	if r.Ratio == nil || math.Abs(*r.Ratio-2) > 0.1 || r.Verdict != compare.Unsure || r.Test != nil {
		t.Errorf("throughput: %+v", r)
	}
	if p99 := row(t, c, "startup.p99"); p99.Baseline.Samples != 600 || p99.Baseline.N != 1 {
		t.Errorf("p99 stands on %+v", p99.Baseline)
	}
	want := []compare.Change{
		{Path: "kube-controller-manager.args.kube-api-burst", New: "60"},
		{Path: "kube-controller-manager.args.kube-api-qps", New: "40"},
	}
	if fmt.Sprint(c.Changed) != fmt.Sprint(want) {
		t.Errorf("changed %v, want %v", c.Changed, want)
	}
}

func TestManyRuns(t *testing.T) {
	seeds := []int{1, 2, 3, 4, 5, 6, 7}
	a := runs(t, "pods 300 deployment", seeds...)
	b := runs(t, "pods 300 deployment; controller 40/s burst 60", seeds...)
	c, err := compare.Sources(a, b, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := row(t, c, "throughput"); r.Verdict != compare.Better || r.Baseline.Interval == nil {
		t.Errorf("twice the limit: %+v", r)
	}
	if r := row(t, c, "stage.controller"); r.Verdict != compare.Better {
		t.Errorf("stage controller: %+v", r)
	}
	same, err := compare.Sources(a, runs(t, "pods 300 deployment", 11, 12, 13, 14, 15, 16, 17), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := row(t, same, "startup.p50"); r.Verdict != compare.Same {
		t.Errorf("A/A: %+v", r)
	}
}

func TestTooFewRunsAreSaid(t *testing.T) {
	c, err := compare.Sources(runs(t, "pods 200 deployment", 1, 2, 3), runs(t, "pods 200 deployment", 4, 5, 6), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(c.Warnings, "\n"), "too few for any difference") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestMissingIsNotZero(t *testing.T) {
	c, err := compare.Sources(runs(t, "pods 200 deployment", 1), runs(t, "pods 200 deployment; no processes; no audit", 1), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"cpu.etcd", "harness.cpu", "stage.observe"} {
		r := row(t, c, id)
		if r.Verdict != compare.NoValue || r.Candidate.Value != nil || r.Candidate.Reason == "" {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

func TestWarnings(t *testing.T) {
	c, err := compare.Sources(runs(t, "pods 200 deployment; cores 2", 1), runs(t, "pods 300 deployment; cores 4; status interrupted", 1), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(c.Warnings, "\n")
	for _, want := range []string{"not valid", "different machines", "different loads"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	if _, err := compare.Sources(nil, nil, compare.Options{}); !errors.Is(err, compare.ErrNothing) {
		t.Errorf("nothing: %v", err)
	}
}

func TestJSONHasNoNulls(t *testing.T) {
	c, err := compare.Sources(runs(t, "pods 200 deployment", 1), runs(t, "pods 200 deployment", 2), compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{`"rows":null`, `"warnings":null`, `"changed":null`, `"values":null`} {
		if strings.Contains(string(data), list) {
			t.Errorf("%s", list)
		}
	}
}

// Runs of other machines are never in one series, and what changed stands at
// the step.
func TestHistory(t *testing.T) {
	var all []diagnose.Source
	for i := range 16 {
		words := "pods 200 deployment"
		if i >= 8 {
			words += "; controller 40/s burst 60"
		}
		all = append(all, runs(t, words, i+1)...)
	}
	all = append(all, runs(t, "pods 200 deployment; cores 4", 1)...)
	all = append(all, runs(t, "pods 200 deployment; status interrupted", 1)...)
	h, err := compare.HistoryOf(all, compare.HistoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.LeftOut) != 1 || !strings.Contains(h.LeftOut[0], "interrupted") {
		t.Errorf("left out %q", h.LeftOut)
	}
	machines := map[string]int{}
	for _, s := range h.Series {
		if s.Indicator != "throughput" {
			continue
		}
		machines[s.Machine] = len(s.Points)
		if len(s.Points) != 16 {
			continue
		}
		if len(s.Steps) != 1 || s.Steps[0].At != 8 || s.Steps[0].Verdict != compare.Better || len(s.Steps[0].Changed) != 2 {
			t.Errorf("steps %+v", s.Steps)
		}
	}
	if len(machines) != 2 {
		t.Errorf("series of machines %v, want two", machines)
	}
}

// Steps are in the order in which they are given, whenever they were run and
// whatever their load; one with too few runs ends the search.
func TestHistoryOfSteps(t *testing.T) {
	before, after := runs(t, "pods 200 deployment", 1, 2, 3, 4), runs(t, "pods 400 deployment; controller 40/s burst 60", 1, 2, 3, 4)
	turns := []diagnose.Source{before[0], after[0], after[1], before[1], before[2], after[2], after[3], before[3]}
	throughput := func(o compare.HistoryOptions, all []diagnose.Source) []compare.Series {
		t.Helper()
		h, err := compare.HistoryOf(all, o)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(h.Series, func(s compare.Series) bool { return s.Indicator != "throughput" })
	}
	for _, s := range throughput(compare.HistoryOptions{}, turns) {
		if s.Note == "" {
			t.Errorf("by time: %+v", s)
		}
	}
	later := runs(t, "pods 400 deployment; controller 40/s burst 60", 5, 6, 7)
	steps := []string{"old", "old", "old", "old", "new", "new", "new", "new", "same", "same", "same"}
	all := throughput(compare.HistoryOptions{Steps: steps}, slices.Concat(before, after, later))
	if len(all) != 1 || len(all[0].Points) != 11 || all[0].Points[4].Step != "new" || len(all[0].Steps) != 1 || all[0].Steps[0].At != 4 || all[0].Steps[0].Verdict != compare.Better || len(all[0].Steps[0].Changed) == 0 {
		t.Errorf("by step: %+v", all)
	}
	steps[2], steps[3] = "odd", "odd"
	all = throughput(compare.HistoryOptions{Steps: steps}, slices.Concat(before, after, later))
	if len(all) != 1 || !strings.Contains(all[0].Note, "step odd has 2 runs") || len(all[0].Steps) > 0 {
		t.Errorf("few: %+v", all)
	}
}

// What runs without a difference vary by is no difference, however sure the
// test is.
func TestNoise(t *testing.T) {
	a, b := runs(t, "pods 300 deployment", 1, 2, 3, 4, 5, 6), runs(t, "pods 300 deployment; controller 40/s burst 60", 1, 2, 3, 4, 5, 6)
	for _, tt := range []struct {
		noise  []diagnose.Source
		within bool
	}{
		{runs(t, "pods 300 deployment", 21, 22, 23, 24, 25, 26), false},
		{slices.Concat(runs(t, "pods 300 deployment", 21, 22, 23), runs(t, "pods 300 deployment; controller 60/s burst 80", 21, 22, 23)), true},
	} {
		c, err := compare.Sources(a, b, compare.Options{Noise: tt.noise})
		if err != nil {
			t.Fatal(err)
		}
		r := row(t, c, "throughput")
		if c.NoiseRuns != 6 || r.Noise == nil || r.WithinNoise != tt.within || (r.Verdict == compare.Same) != tt.within {
			t.Errorf("within the noise %v, want %v: %+v", r.WithinNoise, tt.within, r)
		}
		if *r.Detectable < *r.Noise {
			t.Errorf("%v is said to be detectable, below the noise of %v", *r.Detectable, *r.Noise)
		}
	}
}

// What runs without pods used is a part of their time, and not of pods that there
// were none of.
func TestRunsWithoutPods(t *testing.T) {
	rec := recordtest.Open(t, recordtest.Unpack(t, "fast-elections"))
	c, err := compare.Recordings([]*record.Recording{rec}, []*record.Recording{rec}, compare.Options{Details: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := row(t, c, "cpu.total"); r.Unit != "% of a CPU" || r.Baseline.Value == nil || *r.Baseline.Value <= 0 || *r.Baseline.Value > 400 {
		t.Errorf("%+v", r)
	}
	for _, r := range c.Rows {
		if strings.HasSuffix(r.Unit, "/pod") {
			t.Errorf("%s in %s", r.Name, r.Unit)
		}
	}
	counted := 0
	for _, d := range c.Details {
		for _, r := range d.Rows {
			for _, m := range r.Measures {
				if strings.HasSuffix(m.Unit, "/pod") && d.ID != "functions" {
					t.Errorf("%s %v in %s", d.ID, r.Key, m.Unit)
				}
				if m.Unit == "1/s" {
					counted++
				}
			}
		}
	}
	if counted == 0 {
		t.Error("no requests")
	}
}

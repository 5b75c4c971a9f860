package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

func names(plan []planned) (all []string) {
	for _, p := range plan {
		all = append(all, p.name)
	}
	return all
}

func TestPlan(t *testing.T) {
	both := []experiment.Intensity{experiment.Middle, experiment.High}
	o := AccuracyOptions{Intensities: both, Repeat: 2, Healthy: 60, Pairs: 30, Seed: 1}
	plan, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	if want := len(fault.All)*4 + 60 + 30; len(plan) != want {
		t.Errorf("%d runs, want %d", len(plan), want)
	}
	sorted := slices.Sorted(slices.Values(names(plan)))
	if n := len(slices.Compact(slices.Clone(sorted))); n != len(plan) {
		t.Errorf("only %d of %d folders have names of their own", n, len(plan))
	}
	healthy := 0
	for _, p := range plan {
		e, err := p.experiment()
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if len(e.Made()) != len(p.faults) {
			t.Errorf("%s: %d of %d faults are in the experiment", p.name, len(e.Made()), len(p.faults))
		}
		if len(p.faults) == 0 {
			healthy++
		}
	}
	if healthy != 60 {
		t.Errorf("%d healthy runs", healthy)
	}
	again, _ := o.plan()
	if !slices.Equal(names(plan), names(again)) {
		t.Error("the same seed gives another order, so that a campaign would not go on where it was")
	}
	o.Seed = 2
	other, _ := o.plan()
	if slices.Equal(names(plan), names(other)) {
		t.Error("another seed gives the same order")
	}
	o.Sample = 7
	if some, _ := o.plan(); len(some) != 7 || !slices.Equal(names(some), names(other)[:7]) {
		t.Errorf("a sample is no part of the whole: %v", names(some))
	}
	if _, err := (AccuracyOptions{Faults: []string{"slow-fsync"}, Pairs: 1}).plan(); !errors.Is(err, ErrFewPairs) {
		t.Errorf("a pair of one fault: %v", err)
	}
}

// A run that fails is told of once: those after it are summed up as ever.
func TestFailedRun(t *testing.T) {
	o := AccuracyOptions{Faults: []string{"slow-fsync", "far-etcd"}, Intensities: []experiment.Intensity{experiment.Middle}, Repeat: 1, Out: t.TempDir()}
	for plan, err := o.plan(); plan[0].name != "slow-fsync-middle-1"; plan, err = o.plan() {
		if err != nil {
			t.Fatal(err)
		}
		o.Seed++
	}
	if err := os.CopyFS(filepath.Join(o.Out, "far-etcd-middle-1"), os.DirFS(recordtest.Unpack(t, "far-etcd"))); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no control plane today")
	o.Run = func(context.Context, *experiment.Experiment, []string, string, string) error { return broken }
	told := map[bool]error{}
	o.Done = func(_, _ int, before bool, _ fault.Trial, err error) { told[before] = err }
	a, err := Accuracy(t.Context(), o)
	if !errors.Is(err, broken) || !errors.Is(told[false], broken) {
		t.Errorf("the failure is not told of: %v, %v", err, told[false])
	}
	if e, ok := told[true]; !ok || e != nil {
		t.Errorf("the run that was there is said to fail: %v, %v", ok, e)
	}
	if len(a.Trials) != 1 {
		t.Errorf("%d trials", len(a.Trials))
	}
}

// A campaign can be spread over days: what an earlier part was summed up to
// stands for its recordings, unless they are there too.
func TestSpread(t *testing.T) {
	dir := t.TempDir()
	for run, kept := range map[string]string{"mon/far-etcd-middle-1": "far-etcd", "tue/slow-removal-middle-1": "slow-removal", "tue/far-etcd-middle-1": "far-etcd"} {
		if err := os.CopyFS(filepath.Join(dir, run), os.DirFS(recordtest.Unpack(t, kept))); err != nil {
			t.Fatal(err)
		}
	}
	monday, err := ReadAccuracy("v1", filepath.Join(dir, "mon"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(monday)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mon.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAccuracy("v2", file, filepath.Join(dir, "tue"))
	if err != nil {
		t.Fatal(err)
	}
	if err := keepJudgement(filepath.Join(dir, "tue", "slow-removal-middle-1"), &fault.Trial{Faults: []record.Fault{{Name: "slow-removal"}}, Ranks: []int{2}}); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadAccuracy("v2", filepath.Join(dir, "tue")); err != nil || again.Trials[1].AtFirst == nil || again.Trials[1].AtFirst.Right || !slices.Equal(again.Trials[1].AtFirst.Ranks, []int{2}) || again.Trials[0].AtFirst != nil {
		t.Errorf("how a run was judged when it was made is lost: %+v, %v", again.Trials, err)
	}
	if len(a.Trials) != 2 || a.Trials[0].Origin.Tool != "v2" || a.Trials[1].Origin.Tool != "v2" {
		t.Errorf("the recording that is in both is not counted once, as it was diagnosed last: %+v", a.Trials)
	}
	if err := os.RemoveAll(filepath.Join(dir, "tue", "far-etcd-middle-1")); err != nil {
		t.Fatal(err)
	}
	if a, err = ReadAccuracy("v2", file, filepath.Join(dir, "tue")); err != nil || len(a.Trials) != 2 || a.Trials[0].Origin.Tool != "v1" {
		t.Errorf("the trial of Monday does not stand: %+v, %v", a.Trials, err)
	}
	if err := os.WriteFile(file, []byte(`{"trials":[{"recording":"x"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAccuracy("v2", file); err == nil {
		t.Error("a trial that does not say which run it is of is counted")
	}
}

// A run that failed stays failed, so that what breaks things is not tried until
// it once goes well; it is named, and made again on request only.
func TestFailedBefore(t *testing.T) {
	o := AccuracyOptions{Faults: []string{"far-etcd"}, Intensities: []experiment.Intensity{experiment.Middle, experiment.High}, Repeat: 1, Out: t.TempDir()}
	broken := filepath.Join(o.Out, "far-etcd-high-1")
	for _, dir := range []string{broken, filepath.Join(o.Out, "far-etcd-middle-1")} {
		if err := os.CopyFS(dir, os.DirFS(recordtest.Unpack(t, "far-etcd"))); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(broken, "recording.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"status": "complete"`), []byte(`"status": "failed", "endReason": "etcd exited"`), 1)
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	runs := 0
	o.Run = func(context.Context, *experiment.Experiment, []string, string, string) error {
		runs++
		return errors.New("no control plane today")
	}
	var told []error
	o.Done = func(_, _ int, before bool, _ fault.Trial, err error) {
		if before && err != nil {
			told = append(told, err)
		}
	}
	a, err := Accuracy(t.Context(), o)
	if err != nil || runs != 0 {
		t.Errorf("%d runs were made: %v", runs, err)
	}
	if want := []fault.Failure{{Recording: "far-etcd-high-1", Reason: "etcd exited"}}; !slices.Equal(a.Failed, want) || len(a.Trials) != 1 {
		t.Errorf("failed: %+v beside %d trials, want %+v beside one", a.Failed, len(a.Trials), want)
	}
	if len(told) != 1 || !errors.Is(told[0], errFailed) {
		t.Errorf("told of %v", told)
	}
	o.Again = true
	if _, err := Accuracy(t.Context(), o); err == nil || runs != 1 {
		t.Errorf("asked to try again, %d runs were made: %v", runs, err)
	}
}

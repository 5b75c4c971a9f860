package diagnose_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
)

// bound is a recording of pods that are scheduled and never started; what it
// does not say it does not have.
type bound struct {
	diagnose.Source

	meta record.Meta
	pods []record.Pod
}

func newBound(n int, perSecond float64) *bound {
	start := time.UnixMicro(1_800_000_000_000_000)
	b := &bound{meta: record.Meta{Schema: record.Schema, ID: "x", Status: record.StatusComplete, Started: start}}
	b.meta.Nodes = record.Nodes{Count: 10, Seeded: 10, Simulated: true}
	b.meta.Workload = record.Workload{Experiment: "experiment.yaml", ExpectedPods: n, Objectives: []record.Objective{
		{Name: "rate", Indicator: "throughput", Limit: 1, Unit: "1/s"}, {Name: "start", Indicator: "pod-startup", Quantile: 0.5, Limit: 5, Unit: "s"},
	}}
	for i := range n {
		at := start.Add(time.Duration(float64(i+1) / perSecond * float64(time.Second))).UnixMicro()
		b.pods = append(b.pods, record.Pod{Phase: "load", Namespace: "n", Name: fmt.Sprint(i), DueMicros: start.UnixMicro(), SentMicros: start.UnixMicro() + 1000,
			CreatedMicros: start.UnixMicro() + 5000, BoundMicros: at + 5000})
	}
	b.meta.Phases = []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: start, End: time.UnixMicro(b.pods[n-1].BoundMicros)}}
	return b
}

func (b *bound) Meta() record.Meta                               { return b.meta }
func (b *bound) Pods() ([]record.Pod, error)                     { return b.pods, nil }
func (b *bound) Operations() ([]record.Operation, error)         { return nil, record.ErrMissing }
func (b *bound) Processes() ([]record.ProcessSample, error)      { return nil, record.ErrMissing }
func (b *bound) MachineSamples() ([]record.MachineSample, error) { return nil, record.ErrMissing }
func (b *bound) Cores() ([]record.CoreSample, error)             { return nil, record.ErrMissing }
func (b *bound) Requests() ([]record.Request, error)             { return nil, record.ErrMissing }
func (b *bound) Events() ([]record.Event, error)                 { return nil, record.ErrMissing }
func (b *bound) Logs() []string                                  { return nil }
func (b *bound) Profiles() []record.ProfileRef                   { return nil }
func (b *bound) Points(string, map[string]string, record.Window) ([]record.Series, error) {
	return nil, record.ErrMissing
}
func (b *bound) Objects() ([]record.ObjectChange, error)   { return nil, record.ErrMissing }
func (b *bound) Exits() ([]record.ProcessExit, error)      { return nil, record.ErrMissing }
func (b *bound) Calibration() (*record.Calibration, error) { return nil, record.ErrMissing }
func (b *bound) Steady() (record.Window, bool)             { return b.meta.Phases[0].Window(), true }
func (b *bound) Increase(metric string, match map[string]string, _ record.Window) (float64, bool, error) {
	switch {
	case match["component"] != diagnose.Scheduler:
	case metric == "scheduler_scheduling_algorithm_duration_seconds_count":
		return 200, true, nil
	case metric == "scheduler_scheduling_algorithm_duration_seconds_sum":
		return 0.4, true, nil
	case match["extension_point"] == "Filter" && match["plugin"] == "" && metric == "scheduler_framework_extension_point_duration_seconds_count":
		return 100, true, nil
	case match["extension_point"] == "Filter" && match["plugin"] == "" && metric == "scheduler_framework_extension_point_duration_seconds_sum":
		return 0.05, true, nil
	}
	return 0, false, nil
}

// On seeded nodes a pod's way ends when it is bound: it is not stuck, its start
// is not measured, and nothing about starting can be judged.
func TestPodsThatEndBound(t *testing.T) {
	d, err := diagnose.Run(newBound(200, 20), detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Valid || !d.EndsBound || d.Pods.Stuck != 0 || d.Pods.Running != 0 || d.Pods.Bound != 200 {
		t.Errorf("valid %t %v, %+v", d.Valid, d.InvalidReasons, d.Pods)
	}
	if d.Throughput == nil || d.Throughput.Mean < 19.5 || d.Throughput.Mean > 20.5 || d.SchedulerPerf == nil || d.SchedulerPerf.Average < 18 || d.SchedulerPerf.Average > 20.5 {
		t.Errorf("throughput %+v, %+v", d.Throughput, d.SchedulerPerf)
	}
	if l := d.Latencies.Scheduling; l == nil || l.N != 200 || *l.Max < 9.9 || *l.Max > 10.1 || d.Latencies.PodStartup.N != 0 {
		t.Errorf("latencies %+v", d.Latencies)
	}
	for _, s := range d.Stages {
		if (s.Name == diagnose.Start || s.Name == diagnose.Observe) && (s.WaitSeconds != nil || s.Reason != "nobody starts pods on seeded nodes") {
			t.Errorf("stage %+v", s)
		}
	}
	if o := d.Objectives; !o[0].Met || o[1].Assessed || o[1].Met || o[1].Reason == "" {
		t.Errorf("objectives %+v", o)
	}
	w := d.Scheduler
	if w == nil || w.Algorithm.N != 200 || w.Algorithm.Microseconds < 1999 || w.Algorithm.Microseconds > 2001 || len(w.Points) != 1 || w.Points[0].Name != "Filter" || len(w.Plugins) != 0 {
		t.Errorf("scheduler %+v", w)
	}
}

// A pod that was never scheduled is stuck there too.
func TestPodsThatAreNeverBound(t *testing.T) {
	b := newBound(200, 20)
	b.pods[7].BoundMicros = 0
	d, err := diagnose.Run(b, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if d.Valid || d.Pods.Stuck != 1 || len(d.InvalidReasons) != 1 || d.InvalidReasons[0] != "1 of 200 pods were never scheduled" {
		t.Errorf("valid %t, %v, %+v", d.Valid, d.InvalidReasons, d.Pods)
	}
}

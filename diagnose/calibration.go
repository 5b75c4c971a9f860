package diagnose

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubedyno/kubedyno/record"
)

// Features are the numbers of a run that are compared with those of healthy
// runs, by name:
//
//   - rate: pods/s that came to the end of their way;
//   - stage/NAME: seconds that a pod waits in a stage;
//   - demand/NAME: seconds of a resource that a pod takes, idle consumption
//     taken out (of a limiter: requests);
//   - work/COMPONENT/PATH: CPU-seconds of a kind of work for a pod, by profiles;
//   - rest/COMPONENT: CPUs that a component keeps busy before the load.
//
// What could not be measured is not among them.
func (v *View) Features() map[string]float64 {
	if v.features != nil {
		return v.features
	}
	f := map[string]float64{}
	n := float64(v.Arrived())
	if n > 0 && v.Span() > 0 && !v.Observed {
		f["rate"] = v.Done()
		for _, s := range v.Stages {
			if s.WaitSeconds != nil {
				f["stage/"+s.Name] = *s.WaitSeconds / n
			}
		}
	}
	for _, r := range v.Resources {
		f["demand/"+r.Name] = r.Demand
	}
	for component, cpus := range v.idle {
		f["rest/"+component] = cpus
	}
	if n > 0 && !v.Observed {
		for _, component := range v.Components() {
			for path, s := range v.Works(component) {
				f[WorkOf(component, path)] = s.PerPod
			}
		}
	}
	v.features = f
	return f
}

// readCalibration takes the calibration that the recording carries, if it is of
// runs that this one may be compared with.
func (v *View) readCalibration() error {
	c, err := v.src.Calibration()
	switch {
	case errors.Is(err, record.ErrMissing):
		return nil
	case err != nil:
		return fmt.Errorf("read calibration: %w", err)
	}
	if key, ok := v.Meta.CalibrationKey(); !ok || key != c.Of {
		v.Warnings = append(v.Warnings, "the calibration in the recording is of another machine, version or load, and was left out")
		return nil
	}
	v.calibration = c
	return nil
}

// Calibrated reports whether healthy runs are known that this one may be
// compared with.
func (v *View) Calibrated() bool { return v.calibration != nil }

// Healthy is what a feature was in healthy runs; ok is false where none are
// known, or too few.
func (v *View) Healthy(feature string) (record.Healthy, bool) {
	if v.calibration == nil {
		return record.Healthy{}, false
	}
	h, ok := v.calibration.Features[feature]
	return h, ok && h.N >= record.Enough
}

// Inflation is a feature that lies beyond what healthy runs vary by.
type Inflation struct {
	Feature string
	Value   float64
	Healthy record.Healthy
}

// Factor is how many times the healthy median the value is.
func (i Inflation) Factor() float64 { return i.Value / i.Healthy.Median }

// Inflated reports whether a feature is larger than in any healthy run, and by
// more than these vary. It is false where none are known.
func (v *View) Inflated(feature string) (Inflation, bool) {
	h, ok := v.Healthy(feature)
	x, measured := v.Features()[feature]
	if !ok || !measured || h.Median <= 0 || !h.Above(x) {
		return Inflation{}, false
	}
	return Inflation{Feature: feature, Value: x, Healthy: h}, true
}

// Compared says how a run stands beside healthy ones.
type Compared struct {
	Runs     int               `json:"runs"`
	Features []ComparedOf      `json:"features"` // those beyond what healthy runs vary by, the largest factor first
	Expected []ExpectedFinding `json:"expected"` // what healthy runs were diagnosed with
}

// ComparedOf is one feature beside healthy runs.
type ComparedOf struct {
	Feature string  `json:"feature"`
	Value   float64 `json:"value"`
	Healthy float64 `json:"healthy"` // median
	Most    float64 `json:"most"`    // of any healthy run
	Factor  float64 `json:"factor"`
}

// ExpectedFinding is a finding that healthy runs have too.
type ExpectedFinding struct {
	ID   string `json:"id"`
	Runs int    `json:"runs"` // in how many of them
}

// compared sets the run beside healthy ones; nil where none are known.
func (v *View) compared() *Compared {
	if v.calibration == nil {
		return nil
	}
	c := &Compared{Runs: len(v.calibration.Runs), Features: []ComparedOf{}, Expected: []ExpectedFinding{}}
	for _, name := range slices.Sorted(maps.Keys(v.Features())) {
		if name == "rate" { // more of it is no loss
			continue
		}
		if i, ok := v.Inflated(name); ok {
			c.Features = append(c.Features, ComparedOf{Feature: name, Value: i.Value, Healthy: i.Healthy.Median, Most: i.Healthy.Max, Factor: i.Factor()})
		}
	}
	slices.SortStableFunc(c.Features, func(a, b ComparedOf) int {
		switch {
		case a.Factor > b.Factor:
			return -1
		case a.Factor < b.Factor:
			return 1
		}
		return 0
	})
	for _, id := range slices.Sorted(maps.Keys(v.calibration.Verdicts)) {
		c.Expected = append(c.Expected, ExpectedFinding{ID: id, Runs: v.calibration.Verdicts[id]})
	}
	return c
}

// WorkOf is the name of the feature that is a component's CPU for a pod on a path
// of analysis/functions. Its number changes whenever stacks are put to other paths
// than before: healthy runs of an older kubedyno are not compared with then.
func WorkOf(component, path string) string { return "work-2/" + component + "/" + path }

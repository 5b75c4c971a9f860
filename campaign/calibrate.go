package campaign

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// CalibrateOptions say which healthy runs to make.
type CalibrateOptions struct {
	// Experiment returns a fresh copy of what is run, to be changed.
	Experiment func() (*experiment.Experiment, error)
	Settings   []string // that it has already, kept with the recordings
	Runs       int
	// Out is the folder for the recordings, which must be empty or not exist.
	Out string
	// Run performs one run and keeps it in a folder.
	Run func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	// Done is told of each run: its number, its diagnosis, and why it does not
	// count, if so.
	Done func(n int, d *diagnose.Diagnosis, why string)
}

// ErrNotHealthy is the error when too many runs cannot be called healthy.
var ErrNotHealthy = errors.New("the runs are not healthy")

// Calibrate makes healthy runs, each on a fresh control plane, and sums up what
// they looked like. A run that is not valid does not count and is made again; as
// many such runs as there should be healthy ones end it.
func Calibrate(ctx context.Context, o CalibrateOptions) (*record.Calibration, error) {
	if err := makeEmpty(o.Out, "--keep"); err != nil {
		return nil, err
	}
	c := &record.Calibration{Schema: record.CalibrationSchema, Features: map[string]record.Healthy{}, Verdicts: map[string]int{}}
	values := map[string][]float64{}
	bad := 0
	for n := 1; len(c.Runs) < o.Runs; n++ {
		e, err := o.Experiment()
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(o.Out, fmt.Sprintf("run-%02d", n))
		if err := o.Run(ctx, e, o.Settings, dir, ""); err != nil {
			return nil, fmt.Errorf("run %d: %w", n, err)
		}
		d, meta, err := diagnosed(dir)
		if err != nil {
			return nil, err
		}
		why := ""
		key, ok := meta.CalibrationKey()
		switch {
		case !d.Valid:
			why = d.Err().Error()
		case !ok:
			return nil, fmt.Errorf("run %d: a calibration is of a lab's runs under load; this was none", n)
		case len(c.Runs) > 0 && key != c.Of:
			why = "it differs from the runs before in machine, version or load"
		}
		o.Done(n, d, why)
		if why != "" {
			if bad++; bad >= o.Runs {
				return nil, fmt.Errorf("%w: %d of %d do not count, the last one since %s", ErrNotHealthy, bad, n, why)
			}
			continue
		}
		c.Of = key
		c.Runs = append(c.Runs, meta.ID)
		c.Ended = meta.Ended.UTC().Truncate(time.Second)
		for _, f := range d.Findings {
			c.Verdicts[f.ID]++
		}
		for name, x := range d.Features {
			values[name] = append(values[name], x)
		}
	}
	for name, xs := range values {
		c.Features[name] = record.HealthyOf(xs)
	}
	return c, nil
}

func diagnosed(dir string) (*diagnose.Diagnosis, record.Meta, error) {
	rec, err := record.Open(dir)
	if err != nil {
		return nil, record.Meta{}, err
	}
	defer rec.Close()
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		return nil, record.Meta{}, fmt.Errorf("diagnose %s: %w", dir, err)
	}
	return d, rec.Meta(), nil
}

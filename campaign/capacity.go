package campaign

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/stat"
)

// CapacityOptions say what to turn up, and how far.
type CapacityOptions struct {
	// Plan has what was asked for: everything but what is found.
	Plan compare.Capacity
	// Cores are the control planes to try, 0 for one without a limit.
	Cores []float64
	// Hold is the number of cores that is measured, and kept out of the ladder.
	Hold float64
	// Experiment returns a fresh copy at a load, with a control plane of so many
	// cores, and the settings that make it.
	Experiment func(load, cores float64) (e *experiment.Experiment, settings []string, err error)

	// From and To bound the loads that are tried, Step is their least difference.
	From, To, Step float64
	// Within is how close the capacity must be known, as a share of it; Probes is
	// the most runs for one control plane. Of a saturated one it is how many there are.
	Within float64
	Probes int

	// Out is the folder for the recordings.
	Out string
	// Check refuses an experiment that could not be run; nil: none is refused.
	Check func(ctx context.Context, e *experiment.Experiment) error
	// Run performs one run and keeps it in a folder.
	Run  func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	Tell CapacityTeller
	Now  func() time.Time
}

// A CapacityTeller follows the search.
type CapacityTeller interface {
	SeriesTeller
	// Probing is told before each run of a search, how many came before it, and
	// what is known until then.
	Probing(cores, load float64, n, most int, known string)
	Probed(cores float64, p compare.Probe)
}

// ErrNoCapacity is the error where no run counts.
var ErrNoCapacity = errors.New("not assessed")

// sureness of the interval that a search narrows.
const sureness = 0.9

// Capacity finds the highest load within the objectives, for each control plane.
// What was found until then is in Out after each run.
func Capacity(ctx context.Context, o CapacityOptions) (*compare.Capacity, error) {
	c := o.Plan
	c.Schema = compare.CapacitySchema
	find := o.search
	if c.Saturated {
		find = o.saturate
	}
	if err := find(ctx, &c); err != nil {
		return &c, err
	}
	for i := range c.At {
		c.At[i].Settle(c.Saturated)
	}
	c.Climb(o.Hold)
	return &c, c.Write(o.Out)
}

// saturate measures the rate at which everything at once is worked off, control
// planes in turns.
func (o CapacityOptions) saturate(ctx context.Context, c *compare.Capacity) error {
	so := SeriesOptions{
		Kind: "capacity", Blocks: o.Probes, Out: o.Out, Check: o.Check, Run: o.Run, Tell: o.Tell, Now: o.Now,
		Plan: struct {
			Objectives any
		}{c.Objectives},
	}
	name := func(cores float64) string {
		if cores == 0 {
			return "no limit"
		}
		return fmt.Sprintf("%g cores", cores)
	}
	for _, cores := range o.Cores {
		_, settings, err := o.Experiment(0, cores)
		if err != nil {
			return err
		}
		so.Arms = append(so.Arms, Arm{Name: name(cores), Settings: settings, Experiment: func() (*experiment.Experiment, error) {
			e, _, err := o.Experiment(0, cores)
			return e, err
		}})
	}
	s, err := RunSeries(ctx, so)
	if err != nil {
		return err
	}
	c.Warnings = append(c.Warnings, s.Doubts()...)
	for _, cores := range o.Cores {
		at := compare.CapacityAt{Cores: cores}
		var rates []float64
		for _, dir := range s.Recordings(name(cores)) {
			p, err := o.probe(dir, 0, c)
			if err != nil {
				return err
			}
			at.Probes = append(at.Probes, p)
			if p.Rate > 0 {
				rates = append(rates, p.Rate)
			}
		}
		a := compare.AverageOfAmounts(rates)
		if a.N == 0 {
			return fmt.Errorf("%s: %w: no run has a rate", name(cores), ErrNoCapacity)
		}
		at.Value, at.Interval, at.N = a.Value, a.Interval, a.N
		at.Sure = a.Half() <= o.Within*a.Value
		c.At = append(c.At, at)
	}
	return nil
}

// probe reads a run.
func (o CapacityOptions) probe(dir string, load float64, c *compare.Capacity) (compare.Probe, error) {
	d, meta, err := diagnosed(dir)
	if err != nil {
		return compare.Probe{}, err
	}
	c.Machine = meta.Machine
	p := compare.ProbeOf(d, load)
	p.Recording = relative(o.Out, dir)
	return p, nil
}

// mostInvalid is how many runs in a row may be no good before a search gives up.
const mostInvalid = 3

// search turns the load up and down, one control plane after the other.
func (o CapacityOptions) search(ctx context.Context, c *compare.Capacity) error {
	for _, cores := range o.Cores {
		e, _, err := o.Experiment(o.From, cores)
		if err == nil && o.Check != nil {
			err = o.Check(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	if err := makeEmpty(o.Out, "--out"); err != nil {
		return err
	}
	for _, cores := range o.Cores {
		c.At = append(c.At, compare.CapacityAt{Cores: cores})
		at := &c.At[len(c.At)-1]
		folder := "probe"
		if cores > 0 {
			folder = fmt.Sprintf("%g-cores", cores)
		}
		t := stat.NewThreshold(o.From, o.To, o.Step)
		invalid := 0
		for n := 1; ; n++ {
			at.Value, at.N = 0, len(t.Trials())
			value, ci := t.At(sureness)
			at.Value, at.Interval = value, &ci
			at.Beyond = t.Beyond(sureness)
			at.Sure = at.Beyond == 0 && t.Found(sureness, o.Within) && bothSides(t.Trials())
			if at.Sure || at.Beyond != 0 && at.N >= 2 || at.N >= o.Probes {
				break
			}
			load := t.Next()
			known := ""
			if at.N > 0 {
				known = fmt.Sprintf("%.3g (%.3g…%.3g) %s so far", value, ci.Lo, ci.Hi, c.Unit)
			}
			o.Tell.Probing(cores, load, at.N, o.Probes, known)
			e, settings, err := o.Experiment(load, cores)
			if err != nil {
				return err
			}
			dir := filepath.Join(o.Out, fmt.Sprintf("%s-%03d", folder, n))
			if err := o.Run(ctx, e, settings, dir, ""); err != nil {
				return errors.Join(fmt.Errorf("run at %.3g %s: %w", load, c.Unit, err), c.Write(o.Out))
			}
			p, err := o.probe(dir, load, c)
			if err != nil {
				return err
			}
			o.Tell.Probed(cores, p)
			at.Probes = append(at.Probes, p)
			if err := c.Write(o.Out); err != nil {
				return err
			}
			if !p.Valid {
				if invalid++; invalid >= mostInvalid {
					return fmt.Errorf("%w: %d runs in a row are no good, the last one since %s", ErrNotHealthy, invalid, p.Why)
				}
				continue
			}
			invalid = 0
			t.Add(load, p.Passed)
		}
	}
	return nil
}

// bothSides says whether there are trials that passed and such that did not: what
// is not bounded is not found.
func bothSides(trials []stat.Trial) bool {
	passed, failed := false, false
	for _, t := range trials {
		passed, failed = passed || t.Passed, failed || !t.Passed
	}
	return passed && failed
}

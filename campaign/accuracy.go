package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/record"
)

// AccuracyOptions say which runs measure how right diagnoses are.
type AccuracyOptions struct {
	Faults      []string               // names; none is all
	Intensities []experiment.Intensity // none leaves the faults out
	Repeat      int                    // runs of each fault at each intensity
	Pairs       int                    // runs with two faults, drawn at random
	Healthy     int                    // runs without a fault, over all experiments that show faults in turns
	// Sample is how many of these runs are made, drawn at random; 0 is all.
	Sample int
	Seed   uint64 // of the order and of what is drawn
	Again  bool   // make the runs again that failed
	Out    string // the folder of the recordings; what is in it already is not run again
	Tool   string // the version of kubedyno that diagnoses
	// Run performs one run and keeps it in a folder.
	Run func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	// Done is told of each run that is there: its number, how many there are to
	// be, whether it was there before, and its trial or why there is none.
	Done func(n, of int, before bool, t fault.Trial, err error)
}

// ErrFewPairs is the error of a plan with more pairs of faults than there are.
var ErrFewPairs = errors.New("not enough faults")

// planned is one run of a measurement of accuracy.
type planned struct {
	name   string // of its folder
	show   string
	faults []experiment.Fault
}

// Accuracy makes the runs, each on a fresh control plane, in random order, so
// that what the machine does over the hours falls on all alike. A run that fails
// is told of and left out, and made again next time. What is there is summed up,
// also where ctx ends it early.
func Accuracy(ctx context.Context, o AccuracyOptions) (fault.Accuracy, error) {
	plan, err := o.plan()
	if err != nil {
		return fault.Accuracy{}, err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fault.Accuracy{}, fmt.Errorf("folder for the recordings: %w", err)
	}
	var failed []error
	for i, p := range plan {
		dir := filepath.Join(o.Out, p.name)
		status, reason := ended(dir)
		before := status == record.StatusComplete || status == record.StatusFailed && !o.Again
		var t fault.Trial
		var err error
		switch {
		case !before:
			err = p.run(ctx, o, dir)
		case status == record.StatusFailed:
			err = fmt.Errorf("%w: %s", errFailed, reason)
		}
		if err == nil {
			t, err = ReadTrial(dir, o.Tool)
		}
		if err == nil && !before {
			err = keepJudgement(dir, &t)
		}
		if ctx.Err() != nil {
			failed = append(failed, ctx.Err())
			break
		}
		o.Done(i+1, len(plan), before, t, err)
		if err != nil && !before {
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	a, err := ReadAccuracy(o.Tool, o.Out)
	return a, errors.Join(append(failed, err)...)
}

// judged is the file beside a recording that keeps how its run was judged when it
// was made.
const judged = "judged.json"

// keepJudgement keeps a trial beside its recording, with which later ones, by other
// detectors, are compared.
func keepJudgement(dir string, t *fault.Trial) error {
	j := t.Judged()
	t.AtFirst = &j
	data, err := json.MarshalIndent(t, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, judged), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep how %s was judged: %w", dir, err)
	}
	return nil
}

// judgedAtFirst is what keepJudgement kept; null where it did not.
func judgedAtFirst(dir string) (*fault.Judgement, error) {
	data, err := os.ReadFile(filepath.Join(dir, judged))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var t fault.Trial
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return nil, fmt.Errorf("how %s was judged: %w", dir, err)
	}
	if t.AtFirst != nil {
		t.AtFirst.Ranks = t.Ranks
	}
	return t.AtFirst, nil
}

// errFailed is the error of a run that was made before, and failed.
var errFailed = errors.New("failed before")

// ended says how a recording ended, and why. Where there is none it is "".
func ended(dir string) (status record.Status, reason string) {
	rec, err := record.Open(dir)
	if err != nil {
		return "", ""
	}
	defer rec.Close()
	return rec.Meta().Status, rec.Meta().EndReason
}

func (p planned) run(ctx context.Context, o AccuracyOptions, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	e, err := p.experiment()
	if err != nil {
		return err
	}
	return o.Run(ctx, e, nil, dir, "")
}

// experiment is what is run, with the faults in it.
func (p planned) experiment() (*experiment.Experiment, error) {
	e, err := fault.Showing(p.show)
	if err != nil {
		return nil, err
	}
	e.Faults = p.faults
	return e, fault.Inject(e, experiment.Sets{})
}

// plan are the runs in the order in which they are made.
func (o AccuracyOptions) plan() ([]planned, error) {
	chosen := o.Faults
	if len(chosen) == 0 {
		for i := range fault.All {
			chosen = append(chosen, fault.All[i].Name)
		}
	}
	var plan []planned
	byShow := map[string][]*fault.Fault{}
	for _, name := range chosen {
		f, err := fault.Find(name)
		if err != nil {
			return nil, err
		}
		byShow[f.Show] = append(byShow[f.Show], f)
		for _, i := range o.Intensities {
			for n := range o.Repeat {
				plan = append(plan, planned{fmt.Sprintf("%s-%s-%d", f.Name, i, n+1), f.Show, []experiment.Fault{{Name: f.Name, Intensity: i}}})
			}
		}
	}
	shows := fault.Shows()
	for n := range o.Healthy {
		show := shows[n%len(shows)]
		plan = append(plan, planned{fmt.Sprintf("healthy-%s-%d", show, n/len(shows)+1), show, nil})
	}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	pairs, err := o.pairs(byShow, random)
	if err != nil {
		return nil, err
	}
	plan = append(plan, pairs...)
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	if o.Sample > 0 && o.Sample < len(plan) {
		plan = plan[:o.Sample]
	}
	return plan, nil
}

// pairs draws two faults at a time that the same experiment shows, that do harm
// and that can be had together.
func (o AccuracyOptions) pairs(byShow map[string][]*fault.Fault, random *rand.Rand) ([]planned, error) {
	var all []planned
	for _, show := range fault.Shows() {
		fs := slices.DeleteFunc(byShow[show], func(f *fault.Fault) bool { return len(f.Right) == 0 })
		for i, a := range fs {
			for _, b := range fs[i+1:] {
				p := planned{a.Name + "+" + b.Name, show, []experiment.Fault{{Name: a.Name, Intensity: experiment.Middle}, {Name: b.Name, Intensity: experiment.Middle}}}
				if a.Overwrites(b) {
					continue
				}
				if _, err := p.experiment(); err == nil {
					all = append(all, p)
				}
			}
		}
	}
	if len(all) < o.Pairs {
		return nil, fmt.Errorf("%d runs with two faults: %w: only %d pairs of the chosen ones can be had together", o.Pairs, ErrFewPairs, len(all))
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:o.Pairs], nil
}

// ReadTrial diagnoses a recording and holds it against the faults kept beside it.
// tool is the version of kubedyno that does it.
func ReadTrial(dir, tool string) (fault.Trial, error) {
	rec, err := record.Open(dir)
	if err != nil {
		return fault.Trial{}, err
	}
	defer rec.Close()
	faults, err := record.ReadFaults(dir)
	if err != nil {
		return fault.Trial{}, err
	}
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		return fault.Trial{}, fmt.Errorf("diagnose %s: %w", dir, err)
	}
	meta := rec.Meta()
	t, err := fault.Try(filepath.Base(dir), meta.Name, faults, d)
	t.Origin = &fault.Origin{Run: meta.ID, Started: meta.Started, CPUs: meta.Machine.CPUs, Model: meta.Machine.Model,
		Kernel: meta.Machine.Kernel, Kubernetes: meta.Cluster.Version, Tool: tool}
	if err == nil {
		t.AtFirst, err = judgedAtFirst(dir)
	}
	return t, err
}

// ReadAccuracy sums up campaigns. A path that ends in .json is what a sum was
// written to, and its trials stand as they are; any other is a folder of
// recordings, which are diagnosed now. tool is the version of kubedyno that does
// it. A recording that is in several counts once, as the last of them has it.
func ReadAccuracy(tool string, paths ...string) (fault.Accuracy, error) {
	var trials []fault.Trial
	var failed []fault.Failure
	var bad []error
	for _, path := range paths {
		read, none := readFolder, "no complete recording is in it"
		if strings.HasSuffix(path, ".json") {
			read, none = readSum, "it holds no runs: want what 'kubedyno fault accuracy -o json' wrote"
		}
		more, broken, err := read(path, tool)
		if err == nil && len(more) == 0 {
			err = fmt.Errorf("%s: %s", path, none)
		}
		if err != nil {
			bad = append(bad, err)
		}
		trials, failed = fault.Merge(trials, more), append(failed, broken...)
	}
	return fault.Sum(trials, failed), errors.Join(bad...)
}

// readFolder diagnoses a folder of recordings.
func readFolder(dir, tool string) ([]fault.Trial, []fault.Failure, error) {
	if i, err := os.Stat(dir); err == nil && !i.IsDir() {
		return nil, nil, fmt.Errorf("%s: neither a folder of recordings nor a file that ends in .json, which 'kubedyno fault accuracy -o json' writes", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("recordings of known faults: %w", err)
	}
	var trials []fault.Trial
	var failed []fault.Failure
	var bad []error
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		sub := filepath.Join(dir, entry.Name())
		switch status, reason := ended(sub); status {
		case record.StatusComplete:
			t, err := ReadTrial(sub, tool)
			if err != nil {
				bad = append(bad, err)
				continue
			}
			trials = append(trials, t)
		case record.StatusFailed:
			failed = append(failed, fault.Failure{Recording: entry.Name(), Reason: reason})
		}
	}
	return trials, failed, errors.Join(bad...)
}

// readSum reads the JSON form of an earlier sum.
func readSum(file, _ string) ([]fault.Trial, []fault.Failure, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("an earlier sum: %w", err)
	}
	var a fault.Accuracy
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, nil, fmt.Errorf("%s: not what 'kubedyno fault accuracy -o json' writes: %w", file, err)
	}
	for _, t := range a.Trials {
		if t.Origin == nil {
			return nil, nil, fmt.Errorf("%s: trial %s does not say which run it is of", file, t.Recording)
		}
		for _, f := range t.Faults {
			if _, err := fault.Find(f.Name); err != nil {
				return nil, nil, fmt.Errorf("%s: trial %s: %w", file, t.Recording, err)
			}
		}
	}
	return a.Trials, a.Failed, nil
}

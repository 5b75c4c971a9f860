// Package campaign makes statements that need more than one run. Prove tries
// out what a diagnosis advises, and goes on with what comes to light next.
package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// ProveOptions say what to prove, and how.
type ProveOptions struct {
	// Recording is the folder of the recording whose findings are tried out.
	Recording string
	// Out is the folder for the proof and its recordings.
	Out string
	// Sets are settings that the recording does not keep, such as values of
	// environment variables. Each run gets them.
	Sets []string
	// Rounds is the most findings to go through.
	Rounds int
	// DoseSeconds is how long a dose lasts at the rate that is predicted; 0 is 25.
	DoseSeconds float64
	// Run performs one run and keeps it in a folder.
	Run func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	// Tell is told what happens: a finding to try, a trial about to start, a
	// trial done, a round judged.
	Tell Teller
}

// A Teller follows a proof.
type Teller interface {
	Finding(round int, f diagnose.Finding, before compare.Measured)
	Trying(round int, dose bool, t compare.Trial)
	Tried(round int, dose bool, t compare.Trial)
	Judged(round int, r compare.Round)
}

// ErrNotProven is the error of a proof in which a round did not prove its finding.
var ErrNotProven = errors.New("not proven")

// ErrNothingToProve is the error when the recording's diagnosis has nothing
// that can be changed.
var ErrNothingToProve = errors.New("nothing to prove")

// Prove takes the first finding's change, runs again, compares, and goes on
// with the next finding until nothing is left or the rounds are spent. The
// proof is in Out after each round, also when an error ends it.
func Prove(ctx context.Context, o ProveOptions) (*compare.Proof, error) {
	base, err := read(o.Recording)
	if err != nil {
		return nil, err
	}
	if !base.diagnosis.Valid {
		return nil, fmt.Errorf("%s cannot be proven from: %w", o.Recording, base.diagnosis.Err())
	}
	if err := base.complete(o.Sets); err != nil {
		return nil, err
	}
	if err := makeEmpty(o.Out, "--out"); err != nil {
		return nil, err
	}
	proof := &compare.Proof{Schema: compare.ProofSchema, Baseline: relative(o.Out, o.Recording)}
	now := base
	for n := 1; ; n++ {
		f, behind, ended := next(now.diagnosis)
		switch {
		case f == nil:
			proof.Ended = ended
		case n > o.Rounds:
			proof.Ended = fmt.Sprintf("%d rounds are spent; next would be: %s", o.Rounds, f.Summary)
		}
		if proof.Ended != "" {
			break
		}
		round, after, err := tryOut(ctx, o, n, now, *f, behind)
		if err != nil {
			return proof, errors.Join(err, proof.Write(o.Out))
		}
		proof.Rounds = append(proof.Rounds, *round)
		if err := proof.Write(o.Out); err != nil {
			return proof, err
		}
		o.Tell.Judged(n, *round)
		if !round.Proven {
			proof.Ended = "round " + fmt.Sprint(n) + " is not proven: " + round.Verdict
			if behind != "" {
				proof.Ended = fmt.Sprintf("%s Round %d, behind that, did not change it: %s.", behind, n, round.Verdict)
			}
			break
		}
		now = after
	}
	proven := func(r compare.Round) bool { return r.Proven }
	refuted := func(r compare.Round) bool { return !r.Proven && r.Behind == "" }
	proof.Proved = slices.ContainsFunc(proof.Rounds, proven) && !slices.ContainsFunc(proof.Rounds, refuted)
	if err := proof.Write(o.Out); err != nil {
		return proof, err
	}
	switch {
	case proof.Proved:
		return proof, nil
	case !slices.ContainsFunc(proof.Rounds, refuted):
		return proof, fmt.Errorf("%w: %s", ErrNothingToProve, proof.Ended)
	}
	return proof, fmt.Errorf("%w: %s", ErrNotProven, proof.Ended)
}

// next is the finding to try, or why there is none. Behind a resource that is used
// up there may be one: on a full machine pods can come at the very rate of a
// limit, and which of both it is only a run without the limit can tell.
func next(d *diagnose.Diagnosis) (f *diagnose.Finding, behind, ended string) {
	if len(d.Findings) == 0 {
		return nil, "", "nothing holds this run back any more"
	}
	first := d.Findings[0]
	switch {
	case first.Class == diagnose.Capacity:
		for _, f := range d.Findings[1:] {
			if f.Class == diagnose.Bottleneck && len(f.Advice.Set) > 0 {
				return &f, first.Summary, ""
			}
		}
		return nil, "", first.Summary
	case first.Class != diagnose.Bottleneck:
		return nil, "", fmt.Sprintf("no bottleneck is left; of class %s: %s", first.Class, first.Summary)
	case len(first.Advice.Set) == 0:
		return nil, "", fmt.Sprintf("no setting of ours changes this: %s. %s", first.Summary, first.Advice.Text)
	}
	return &first, "", ""
}

// What a dose has to be, for its rate to be known: some seconds at that rate, and
// no small number of pods.
const (
	doseSeconds = 25
	dosePods    = 300
)

// state is a recording with its diagnosis.
type state struct {
	dir        string
	id         string
	settings   []string
	experiment []byte // as it ran
	diagnosis  *diagnose.Diagnosis
}

// parse returns a fresh copy of the experiment with settings, to be changed.
func (s *state) parse(settings []string) (*experiment.Experiment, error) {
	e, err := experiment.Parse(filepath.Join(s.dir, "experiment.yaml"), s.experiment)
	if err != nil {
		return nil, err
	}
	sets, err := experiment.ParseSets(settings)
	if err != nil {
		return nil, err
	}
	return e, e.Apply(sets)
}

// complete checks that nothing is withheld that a run needs.
func (s *state) complete(settings []string) error {
	e, err := s.parse(settings)
	if err != nil {
		return err
	}
	return e.Whole()
}

func read(dir string) (*state, error) {
	rec, err := record.Open(dir)
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		return nil, fmt.Errorf("diagnose %s: %w", dir, err)
	}
	data, err := rec.Experiment()
	if err != nil {
		return nil, err
	}
	return &state{dir: dir, id: rec.Meta().ID, settings: rec.Meta().Settings, experiment: data, diagnosis: d}, nil
}

// tryOut runs a finding's dose and its change.
func tryOut(ctx context.Context, o ProveOptions, n int, now *state, f diagnose.Finding, behind string) (*compare.Round, *state, error) {
	round := &compare.Round{Finding: f, Before: Measure(now.diagnosis), Behind: behind}
	o.Tell.Finding(n, f, round.Before)
	if len(f.Advice.Dose) > 0 {
		d := f.Advice.Dose[0]
		t := compare.Trial{Recording: fmt.Sprintf("round-%d-dose", n), Set: flatten(d.Set), PredictedRate: d.PredictRate}
		if _, err := trial(ctx, o, n, true, now, f, &t); err != nil {
			return nil, nil, err
		}
		round.Dose = &t
	}
	t := compare.Trial{Recording: fmt.Sprintf("round-%d", n), Set: flatten(f.Advice.Set)}
	if p := f.Prediction; p != nil {
		t.PredictedRate, t.PredictedBy = p.Rate, p.Text
	}
	after, err := trial(ctx, o, n, false, now, f, &t)
	if err != nil {
		return nil, nil, err
	}
	round.Lift = t
	round.Judge()
	return round, after, nil
}

func trial(ctx context.Context, o ProveOptions, n int, dose bool, now *state, f diagnose.Finding, t *compare.Trial) (*state, error) {
	sets, err := experiment.ParseSets(t.Set)
	if err != nil {
		return nil, fmt.Errorf("advice of %s: %w", f.ID, err)
	}
	e, err := now.parse(o.Sets)
	if err != nil {
		return nil, err
	}
	if err := e.Apply(sets); err != nil {
		return nil, fmt.Errorf("advice of %s: %w", f.ID, err)
	}
	if dose && t.PredictedRate > 0 && e.Shorten(max(dosePods, int(t.PredictedRate*cmp.Or(o.DoseSeconds, doseSeconds)))) {
		t.Pods = e.ExpectedPods()
	}
	o.Tell.Trying(n, dose, *t)
	dir := filepath.Join(o.Out, t.Recording)
	if err := o.Run(ctx, e, merge(now.settings, t.Set), dir, now.id); err != nil {
		return nil, fmt.Errorf("run %s: %w", t.Recording, err)
	}
	after, err := read(dir)
	if err != nil {
		return nil, err
	}
	t.Measured = Measure(after.diagnosis)
	t.Valid = after.diagnosis.Valid
	t.SymptomGone = !slices.ContainsFunc(after.diagnosis.Findings, func(g diagnose.Finding) bool {
		return g.ID == f.ID && g.Component == f.Component && g.Stage == f.Stage
	})
	o.Tell.Tried(n, dose, *t)
	return after, nil
}

// Measure takes from a diagnosis what rounds are compared by.
func Measure(d *diagnose.Diagnosis) compare.Measured {
	m := compare.Measured{
		IntentSeconds:  d.Latencies.Intent.Max,
		PodStartupP99:  d.Latencies.PodStartup.P99,
		LostPodSeconds: d.Lost.PodSeconds,
	}
	if d.Throughput != nil {
		m.Rate = d.Throughput.Mean
	}
	return m
}

func flatten(set map[string]string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		all = append(all, k+"="+set[k])
	}
	return all
}

// merge adds settings, a later one replacing an earlier one of the same path.
func merge(have, add []string) []string {
	paths := map[string]string{}
	var order []string
	for _, s := range slices.Concat(have, add) {
		path, _, _ := strings.Cut(s, "=")
		if _, ok := paths[path]; !ok {
			order = append(order, path)
		}
		paths[path] = s
	}
	all := make([]string, 0, len(order))
	for _, p := range order {
		all = append(all, paths[p])
	}
	return all
}

// ErrNotEmpty is the error of a folder for recordings that has something in it.
var ErrNotEmpty = errors.New("the folder is not empty")

// makeEmpty makes a folder, which must be empty where it is there already; flag
// is how another one is named.
func makeEmpty(dir, flag string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder for the recordings: %w", err)
		}
	case err != nil:
		return fmt.Errorf("folder for the recordings: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("%s: %w; name another with %s, or remove it", dir, ErrNotEmpty, flag)
	}
	return nil
}

// relative is the path of target as seen from dir, so that a proof can be
// moved together with its recordings.
func relative(dir, target string) string {
	absDir, err1 := filepath.Abs(dir)
	absTarget, err2 := filepath.Abs(target)
	if err1 != nil || err2 != nil {
		return target
	}
	rel, err := filepath.Rel(absDir, absTarget)
	if err != nil {
		return absTarget
	}
	return rel
}

package cases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// Options say how to run a case.
type Options struct {
	Quick bool
	By    Changes
	// Only names the arms that are run; none are all.
	Only []string
	// Out is the folder of the recordings and the story.
	Out string
	// Check refuses an experiment that could not be run; nil: none is refused.
	Check func(ctx context.Context, e *experiment.Experiment) error
	// Run performs one run and keeps it in a folder.
	Run func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	// Builder builds components for arms that have a patch.
	Builder Builder
	// Next is told of each run before it: its number, how many there are, its arm,
	// and about how long all that are left will take.
	Next func(n, of int, arm string, left time.Duration)
	// Bad is told of a run that does not count, and is made again.
	Bad func(arm, result, why string)
	// Explain writes a diagnosis as its user reads it.
	Explain func(d *diagnose.Diagnosis) (string, error)
	Now     func() time.Time
	Tool    string // version of kubedyno
}

// ErrNoArm is the error of an arm that a case has not.
var ErrNoArm = errors.New("no such arm")

// A turn is arms that are run equally often, in turns.
type turn struct {
	arms []*Arm
	kind
}

// A kind of turn is how often its arms are run, and the name that they give it.
type kind struct {
	runs int
	name string
}

// folder is where its recordings are, below the case's.
func (k kind) folder() string {
	if k.name == "" {
		return fmt.Sprintf("%d-each", k.runs)
	}
	return fmt.Sprintf("%s-%d-each", k.name, k.runs)
}

// plan are the arms that are run, by how often, the most often first, and those
// without a name for their turns before the others. Those that cannot be run are
// left out.
func (c *Case) plan(o Options, not map[string]string) ([]turn, error) {
	for _, name := range o.Only {
		if c.arm(name) == nil {
			return nil, fmt.Errorf("%w: %q%s", ErrNoArm, name, experiment.Suggest(name, c.armNames()))
		}
	}
	by := map[kind][]*Arm{}
	for i := range c.Arms {
		a := &c.Arms[i]
		if n := a.runs(o.Quick); n > 0 && of(o.Only, a.Name) && not[a.Name] == "" {
			k := kind{n, a.Turns}
			by[k] = append(by[k], a)
		}
	}
	var all []turn
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b kind) int {
		return cmp.Or(cmp.Compare(b.runs, a.runs), strings.Compare(a.name, b.name))
	}) {
		all = append(all, turn{by[k], k})
	}
	return all, nil
}

// Check loads all arms, so that what is wrong with settings is said before
// anything is run.
//
// fit says whether an experiment that reads well can be run.
func (c *Case) Check(o Options, fit func(*experiment.Experiment) error) error {
	plan, err := c.plan(o, nil)
	if err != nil {
		return err
	}
	if len(plan) == 0 {
		return errors.New("nothing to run: none of these arms is in a run of this kind")
	}
	for _, t := range plan {
		for _, a := range t.arms {
			e, err := c.Load(a, o.Quick, o.By)
			if err == nil {
				err = fit(e)
			}
			if err != nil {
				return fmt.Errorf("arm %s: %w", a.Name, err)
			}
		}
	}
	return nil
}

// Size is how many runs there are, and about how many minutes they take.
func (c *Case) Size(quick bool) (runs int, minutes float64) {
	for i := range c.Arms {
		n := c.Arms[i].runs(quick)
		runs += n
		minutes += float64(n) * c.Arms[i].seconds(quick) / 60
	}
	return runs, minutes
}

// Run runs a case's arms in turns, diagnoses each run, and tells the story, which
// is in Out. One that was interrupted goes on where it was.
func (c *Case) Run(ctx context.Context, o Options) (*Story, error) {
	if err := ours(o.Out); err != nil {
		return nil, err
	}
	s := c.story(o)
	not, err := c.build(ctx, o)
	if err != nil {
		return nil, err
	}
	plan, err := c.plan(o, not)
	if err != nil {
		return nil, err
	}
	runs := map[string][]Facts{}
	follow := &follower{o: o, plan: plan}
	for _, t := range plan {
		dir := filepath.Join(o.Out, t.folder())
		series, err := campaign.RunSeries(ctx, c.series(t, o, dir, follow))
		if err != nil {
			return nil, err
		}
		follow.over++
		s.Doubts = append(s.Doubts, series.Doubts()...)
		for _, a := range t.arms {
			for _, run := range series.Counted(a.Name) {
				f, err := c.take(s, o, a, filepath.Join(dir, run.Out))
				if err != nil {
					return nil, err
				}
				f.Turn = run.Block
				s.Minutes += run.Seconds / 60
				runs[a.Name] = append(runs[a.Name], f)
			}
		}
	}
	s.judge(c, runs, not)
	return s, s.Write(o.Out)
}

// build builds what arms need, and says why for those for which it cannot be had.
func (c *Case) build(ctx context.Context, o Options) (not map[string]string, err error) {
	not = map[string]string{}
	for i := range c.Arms {
		a := &c.Arms[i]
		if a.runs(o.Quick) == 0 || !of(o.Only, a.Name) {
			continue
		}
		var component, program string
		switch {
		case a.Patch != nil:
			var source []byte
			if source, err = files.ReadFile(path.Join("data", c.Name, a.Patch.Source)); err != nil {
				return nil, fmt.Errorf("source of arm %s: %w", a.Name, err)
			}
			component = a.Patch.Component
			program, err = o.Builder.Build(ctx, a.Patch, source)
		case a.Program != nil:
			component = a.Program.Component
			program, err = o.Builder.BuildProgram(ctx, a.Program)
		default:
			continue
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			not[a.Name] = fmt.Sprintf("%s was not built: %v", component, err)
		default:
			a.built = component + ".binary=" + program
		}
	}
	return not, nil
}

// series is how a turn's arms are run. The seed is fixed: it decides the order
// of the runs and nothing else.
func (c *Case) series(t turn, o Options, dir string, follow *follower) campaign.SeriesOptions {
	so := campaign.SeriesOptions{
		Kind: "case " + c.Name, Blocks: t.runs, Seed: 1, Out: dir, Check: o.Check, Run: o.Run, Tell: follow, Now: o.Now,
	}
	for _, a := range t.arms {
		so.Arms = append(so.Arms, campaign.Arm{
			Name: a.Name, Settings: kept(a.Settings(o.Quick, o.By)),
			Experiment: func() (*experiment.Experiment, error) { return c.Load(a, o.Quick, o.By) },
		})
	}
	return so
}

// A follower tells how much of a case is left.
type follower struct {
	o    Options
	plan []turn
	over int // turns
}

// Starting implements campaign.SeriesTeller.
func (f *follower) Starting(step campaign.SeriesStep) {
	left, of, before := 0.0, 0, 0
	for i, t := range f.plan {
		of += t.runs * len(t.arms)
		if i < f.over {
			before += t.runs * len(t.arms)
		}
		for _, a := range t.arms {
			if i > f.over || i == f.over && step.Left == 0 {
				left += a.seconds(f.o.Quick) * float64(t.runs)
			}
		}
	}
	f.o.Next(before+step.Run, of, step.Arm, step.Left+time.Duration(left*float64(time.Second)))
}

// Ran implements campaign.SeriesTeller.
func (f *follower) Ran(r campaign.SeriesRun) {
	if r.Result != campaign.Counts {
		f.o.Bad(r.Arm, string(r.Result), r.Why)
	}
}

// ErrNotEmpty is the error of a folder that has something else in it.
var ErrNotEmpty = errors.New("the folder is not empty")

// ours refuses a folder that is neither empty nor that of a case.
func ours(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of the case: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("folder of the case: %w", err)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), "-each") }) {
		return fmt.Errorf("%s: %w; name another with --out, or remove it", dir, ErrNotEmpty)
	}
	return nil
}

// take reads a run and adds it to the story.
func (c *Case) take(s *Story, o Options, a *Arm, dir string) (Facts, error) {
	rec, err := record.Open(dir)
	if err != nil {
		return Facts{}, err
	}
	defer rec.Close()
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		return Facts{}, fmt.Errorf("diagnose %s: %w", dir, err)
	}
	text, err := o.Explain(d)
	if err != nil {
		return Facts{}, err
	}
	name, err := filepath.Rel(o.Out, dir)
	if err != nil {
		return Facts{}, fmt.Errorf("recording %s: %w", dir, err)
	}
	s.add(a, name, rec.Meta(), d, text)
	return c.Read(name, rec, d), nil
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/run"
)

// The sides of runs in turns, and the folders of their recordings.
const (
	baseSide = "base"
	headSide = "head"
)

// seriesFlags are those of whatever runs a series.
type seriesFlags struct {
	load   runFlags
	budget time.Duration
	out    string
	dryRun bool
}

func (f *seriesFlags) register(cmd *cobra.Command) {
	f.load.registerLoad(cmd)
	fs := cmd.Flags()
	fs.DurationVar(&f.budget, "budget", 0, "end after this time, if not before: 30m")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be run, and run nothing")
	fs.StringVar(&f.out, "out", "", "`folder` for the recordings; an interrupted series that is in it goes on (default: made of the experiment's name and the time)")
}

// plan says what a series would run, and refuses what could not be run.
func (f *seriesFlags) plan(ctx context.Context, env *Env, o campaign.SeriesOptions) error {
	if err := o.Verify(ctx); err != nil {
		return Misuse(err)
	}
	least := time.Duration(0)
	t := &textTable{header: []string{"ARM", "AT LEAST", "SETTINGS"}}
	for _, a := range o.Arms {
		e, err := a.Experiment()
		if err != nil {
			return Misuse(err)
		}
		each := time.Duration(0)
		for _, s := range e.Plan() {
			each += s.Least()
		}
		least += each * time.Duration(o.Blocks)
		t.add(nil, a.Name, each.Round(time.Second).String(), dash(strings.Join(a.Settings, " ")))
	}
	fmt.Fprintf(env.Stdout, "%d runs at most, %d of each, in blocks of shuffled order, to %s. They take at least %s, and the time that control planes need to start and to work.\n",
		len(o.Arms)*o.Blocks, o.Blocks, o.Out, least.Round(time.Second))
	if o.Budget > 0 {
		fmt.Fprintf(env.Stdout, "No block begins that would end after %s.\n", o.Budget)
	}
	fmt.Fprintln(env.Stdout)
	return t.print(env, "text", 0)
}

// perform starts the runs of a series.
func (f *seriesFlags) perform(env *Env) func(context.Context, *experiment.Experiment, []string, string, string) error {
	return func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
		return performRun(ctx, env, &f.load, e, settings, dir, parent)
	}
}

// arm is an experiment with settings of its own beside those of all. What it
// would run is checked.
func (f *seriesFlags) arm(cmd *cobra.Command, name, experimentName, variant string, sets []string) (campaign.Arm, error) {
	load := f.load
	load.variant = variant
	load.sets = slices.Concat(f.load.sets, sets)
	a := campaign.Arm{Name: name, Experiment: func() (*experiment.Experiment, error) {
		fresh := load
		return fresh.load(cmd, experimentName)
	}}
	if _, err := load.load(cmd, experimentName); err != nil {
		return a, fmt.Errorf("%s: %w", name, err)
	}
	a.Settings = load.given()
	return a, nil
}

// folder is where a series is kept, if nobody says.
func (f *seriesFlags) folder(env *Env, kind, experimentName string) string {
	if f.out != "" {
		return f.out
	}
	base := strings.TrimSuffix(filepath.Base(experimentName), filepath.Ext(experimentName))
	return kind + "-" + base + "-" + env.Now().UTC().Format("20060102T150405Z")
}

// interrupted says of a series that did not come to its end how it goes on.
func interrupted(s *campaign.Series, out string, err error) error {
	switch {
	case errors.Is(err, campaign.ErrOtherSeries), errors.Is(err, campaign.ErrNotEmpty):
		return Misuse(err)
	case s == nil || len(s.Runs) == 0:
		return err
	}
	return fmt.Errorf("%w; the same command with --out %s goes on after %d of %d runs of each", err, out, s.Done(), s.Blocks)
}

// seriesTeller says on stderr which run begins, and what came of it.
type seriesTeller struct{ env *Env }

func (t *seriesTeller) Starting(s campaign.SeriesStep) {
	text := fmt.Sprintf("\nrun %d: %s, %d of %d", s.Run, s.Arm, s.Block, s.Blocks)
	if s.Again {
		text += ", again"
	}
	if s.Left > 0 {
		text += fmt.Sprintf(", %v left at most", s.Left.Round(time.Second))
	}
	fmt.Fprintln(t.env.Stderr, text)
}

func (t *seriesTeller) Ran(r campaign.SeriesRun) {
	if r.Result == campaign.Counts {
		return
	}
	fmt.Fprintf(t.env.Stderr, "run %d, %s, does not count (%s): %s\n", r.Number, r.Arm, r.Result, r.Why)
}

// turnsFlags are those of what runs two sides in turns.
type turnsFlags struct {
	seriesFlags
	run                      bool
	pairs                    int
	whole                    bool
	baseSets, headSets       []string
	baseVariant, headVariant string
}

// register adds --run and what goes with it to a command about recordings. Without
// --run, a page is written to --out by a command that has one.
func (f *turnsFlags) register(cmd *cobra.Command, page bool) {
	of := map[string]bool{}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { of[flag.Name] = true })
	f.seriesFlags.register(cmd)
	fs := cmd.Flags()
	fs.IntVarP(&f.pairs, "pairs", "n", 10, "most runs of each side")
	fs.BoolVar(&f.whole, "all", false, "make all runs, also where the answer is clear before")
	fs.StringArrayVar(&f.baseSets, "base-set", nil, "setting `PATH=VALUE` of the base alone; repeatable")
	fs.StringArrayVar(&f.headSets, "head-set", nil, "setting `PATH=VALUE` of the head alone; repeatable")
	fs.StringVar(&f.baseVariant, "base-variant", "", "variant of the experiment that is the base")
	fs.StringVar(&f.headVariant, "head-variant", "", "variant of the experiment that is the head")
	var ours []string
	fs.VisitAll(func(flag *pflag.Flag) {
		if !of[flag.Name] {
			ours = append(ours, flag.Name)
			flag.Usage = "with --run: " + flag.Usage
		}
	})
	if page {
		ours = slices.DeleteFunc(ours, func(name string) bool { return name == "out" })
		fs.Lookup("out").Usage += "; with -o html: `file` to write the page to"
	}
	fs.BoolVar(&f.run, "run", false, "run two sides in turns: EXPERIMENT with settings of each, or that of the base and that of the head")
	recordings := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.run {
			if len(args) == 1 || len(args) == 2 && !slices.Contains(args, versus) {
				return nil
			}
			return Misusef("%s --run needs one EXPERIMENT, or that of the base and that of the head", cmd.CommandPath())
		}
		for _, name := range ours {
			if cmd.Flags().Changed(name) {
				return Misusef("--%s is for runs in turns: give --run, too", name)
			}
		}
		return recordings(cmd, args)
	}
}

// checkPage checks what --out stands for.
func (f *turnsFlags) checkPage(format string) error {
	if !f.run {
		return htmlOut(format, f.out)
	}
	if format == "html" {
		return Misusef("-o html: with --run, --out is the folder of the recordings; afterwards: kubedyno compare OUT/%s %s OUT/%s -o html --out FILE.html", baseSide, versus, headSide)
	}
	return nil
}

// sides are what is run.
func (f *turnsFlags) sides(cmd *cobra.Command, args []string) ([]campaign.Arm, error) {
	base, err := f.arm(cmd, baseSide, args[0], f.baseVariant, f.baseSets)
	if err != nil {
		return nil, err
	}
	head, err := f.arm(cmd, headSide, args[len(args)-1], f.headVariant, f.headSets)
	if err != nil {
		return nil, err
	}
	return []campaign.Arm{base, head}, nil
}

// turnsAlpha is the chance of a false difference in a series, over all looks.
const turnsAlpha = 0.05

// series is what runs both sides, as often as it takes. answer says of a comparison
// what is clear.
func (f *turnsFlags) series(cmd *cobra.Command, env *Env, flags *compareFlags, args []string, answer func(compare.Comparison) string) (none campaign.SeriesOptions, err error) {
	if f.pairs < 1 {
		return none, Misusef("--pairs %d: 1 is the least", f.pairs)
	}
	if err := flags.check(); err != nil {
		return none, err
	}
	arms, err := f.sides(cmd, args)
	if err != nil {
		return none, Misuse(err)
	}
	if args[0] == args[len(args)-1] && f.baseVariant == f.headVariant && slices.Equal(f.baseSets, f.headSets) {
		fmt.Fprintln(env.Stderr, "Base and head are the same: what differs is a false difference.")
	}
	return campaign.SeriesOptions{
		Kind: cmd.Name(), Plan: map[string]any{"wanted": flags.wanted, "all": f.whole},
		Arms: arms, Blocks: f.pairs, Seed: flags.seed, Out: f.folder(env, cmd.Name(), args[0]), Budget: f.budget,
		Check: run.Check, Run: f.perform(env), Tell: &seriesTeller{env}, Now: env.Now,
		After: func(s *campaign.Series) (string, error) {
			look, ok := compare.LookAfter(s.Done(), f.pairs, turnsAlpha, false)
			if f.whole || !ok || s.Done() == f.pairs {
				return "", nil
			}
			c, err := flags.ofSeries(s, look.Level, false)
			if err != nil {
				return "", err
			}
			clear := answer(c)
			fmt.Fprintf(env.Stderr, "after %d of %d runs of each: %s\n", s.Done(), f.pairs, cmp.Or(clear, "nothing is clear yet"))
			return clear, nil
		},
	}, nil
}

// inTurns runs both sides and compares them.
func (f *turnsFlags) inTurns(ctx context.Context, flags *compareFlags, o campaign.SeriesOptions) (none compare.Comparison, err error) {
	s, err := campaign.RunSeries(ctx, o)
	if err != nil && !errors.Is(err, campaign.ErrManyBad) {
		return none, interrupted(s, o.Out, err)
	}
	if len(s.Recordings(baseSide)) == 0 || len(s.Recordings(headSide)) == 0 {
		return none, &exitError{ExitInvalid, err}
	}
	turns := &compare.Turns{Planned: f.pairs, Made: s.Done(), Alpha: turnsAlpha, Looks: 1, Ended: s.Ended, GaveUp: s.GaveUp, Doubts: s.Doubts()}
	level := turnsAlpha
	if look, ok := compare.LookAfter(s.Done(), f.pairs, turnsAlpha, !s.Clear); ok && !f.whole {
		level, turns.Looks = look.Level, compare.LooksUntil(s.Done())
	}
	c, err := flags.ofSeries(s, level, true)
	c.Turns = turns
	return c, err
}

// ofSeries compares the two sides of a series; a look is without what explains.
func (f *compareFlags) ofSeries(s *campaign.Series, level float64, last bool) (compare.Comparison, error) {
	sides, err := f.open(slices.Concat(s.Recordings(baseSide), []string{versus}, s.Recordings(headSide)))
	if err != nil {
		return compare.Comparison{}, err
	}
	defer sides.close()
	sides.options.Alpha = level
	if !last {
		sides.options.Details, sides.options.Detectors = false, nil
	}
	return compare.Recordings(sides.baseline, sides.candidate, sides.options)
}

// ended is how a command that ran two sides in turns ends, if nothing else is
// bad.
func ended(t *compare.Turns) error {
	if t != nil && t.GaveUp {
		return &exitError{ExitInvalid, fmt.Errorf("%w: %s", campaign.ErrManyBad, t.Ended)}
	}
	return nil
}

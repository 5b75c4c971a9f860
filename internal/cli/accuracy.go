package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
)

func newFaultCampaignCommand(env *Env) *cobra.Command {
	var f runFlags
	o := campaign.AccuracyOptions{}
	var intensities []string
	cmd := &cobra.Command{
		Use:   "campaign [FAULT…]",
		Short: "Measure how right diagnoses are: many faults, one run each",
		Long: `Campaign injects faults one after the other, each into the experiment that
shows it soonest, on a fresh control plane, with healthy runs and runs with two
faults among them, and holds each diagnosis against what was wrong. Recordings
stay in the folder: a campaign that was ended goes on where it was (a run that
failed stays failed, unless --again is given), and
'kubedyno fault accuracy' sums the folder up again with the detectors of another
version. A run takes about a minute.

Exit codes: 0 all runs were made, whatever the diagnoses said; 1 a run failed,
or it was ended early; 2 misused.`,
		Example: `  kubedyno fault campaign --out accuracy
  kubedyno fault campaign --out a slow-fsync disk-neighbour small-master --intensity middle,high,low --repeat 3
  kubedyno fault campaign --out healthy --intensity none --healthy 60
  kubedyno fault campaign --out sample --sample 20 --seed 7`,
		ValidArgsFunction: func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return faultNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if _, err := fault.Find(name); err != nil {
					return Misuse(err)
				}
			}
			o.Faults, o.Tool = args, Version()
			for _, i := range intensities {
				switch i {
				case "none":
				case string(experiment.Low), string(experiment.Middle), string(experiment.High):
					o.Intensities = append(o.Intensities, experiment.Intensity(i))
				default:
					return Misusef("--intensity %s: want low, middle, high or none", i)
				}
			}
			if o.Repeat < 1 || o.Healthy < 0 || o.Pairs < 0 || o.Sample < 0 {
				return Misusef("--repeat is 1 at least; --healthy, --pairs and --sample are 0 at least")
			}
			o.Run = func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
				return performRun(ctx, env, &f, e, settings, dir, parent)
			}
			o.Done = func(n, of int, before bool, t fault.Trial, err error) {
				switch {
				case err != nil:
					fmt.Fprintf(env.Stdout, "%3d of %d  failed: %v\n", n, of, err)
				case before:
					fmt.Fprintf(env.Stdout, "%3d of %d  %s (made before)\n", n, of, t.Text())
				default:
					fmt.Fprintf(env.Stdout, "%3d of %d  %s\n", n, of, t.Text())
				}
			}
			a, err := campaign.Accuracy(cmd.Context(), o)
			if errors.Is(err, campaign.ErrFewPairs) {
				return Misuse(err)
			}
			if len(a.Trials) > 0 {
				printAccuracy(env, a)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Out, "out", "accuracy", "`folder` of the recordings")
	cmd.Flags().StringSliceVar(&intensities, "intensity", []string{"middle", "high"}, "`intensities` of the faults: low, middle, high; none leaves runs with one fault out")
	cmd.Flags().IntVar(&o.Repeat, "repeat", 1, "runs of each fault at each intensity")
	cmd.Flags().IntVar(&o.Healthy, "healthy", 0, "runs without a fault")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 0, "runs with two faults, drawn at random")
	cmd.Flags().IntVar(&o.Sample, "sample", 0, "make only so many of these runs, drawn at random")
	cmd.Flags().BoolVar(&o.Again, "again", false, "make runs again that failed when they were made before")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "of the order of runs and of what is drawn")
	return cmd
}

func newFaultAccuracyCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "accuracy FOLDER|FILE.json…",
		Short: "Sum up how right the diagnoses of a campaign's recordings are",
		Long: `Accuracy diagnoses each recording of a folder with this version's detectors and
holds it against the faults that are kept beside the recording. Nothing is run.

A file is what an earlier '-o json' wrote: its trials are added as they were
judged then, so that a campaign can be spread over days and its recordings need
not be kept. A recording that is in several counts once, as the last has it.

Exit codes: 0 fine; 1 a recording cannot be read; 2 misused.`,
		Example: `  kubedyno fault accuracy accuracy
  kubedyno fault accuracy docs/accuracy.json accuracy -o markdown > docs/accuracy.md`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Misusef("FOLDER is missing: the --out of 'kubedyno fault campaign'")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json", "markdown", "hitrates"); err != nil {
				return err
			}
			a, err := campaign.ReadAccuracy(Version(), args...)
			if errors.Is(err, fs.ErrNotExist) {
				return Misuse(err)
			}
			if err != nil {
				return err
			}
			switch format {
			case "json":
				return writeIndented(env, a)
			case "hitrates":
				rates, err := a.HitRates()
				if err != nil {
					return Misuse(err)
				}
				return writeIndented(env, rates)
			case "markdown":
				_, err = fmt.Fprint(env.Stdout, a.Markdown())
				return err
			}
			for _, t := range a.Trials {
				fmt.Fprintln(env.Stdout, t.Text())
			}
			printAccuracy(env, a)
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "sum up as text, json, markdown (docs/accuracy.md) or hitrates (what findings carry)")
	completeFormats(cmd, "text", "json", "markdown", "hitrates")
	return cmd
}

func writeIndented(env *Env, x any) error {
	data, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(append(data, '\n'))
	return err
}

func printAccuracy(env *Env, a fault.Accuracy) {
	line := func(what string, s fault.Share) {
		if s.Of > 0 {
			fmt.Fprintf(env.Stdout, "%-44s %s\n", what, s)
		}
	}
	fmt.Fprintln(env.Stdout)
	line("first finding names the cause", a.Cause)
	line("  the same when each run was made", a.AtFirst)
	line("first finding names the component", a.Component)
	line("one of the first three names the cause", a.InThree)
	line("first finding is confirmed, and right", a.Sure)
	line("at the low intensity, first names the cause", a.Low)
	line("two faults, both in the first three", a.Pairs)
	line("  the same when each run was made", a.PairsAtFirst)
	line("healthy, nothing unexpected", a.Healthy)
	list := func(what string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(env.Stdout, "%s: %s\n", what, strings.Join(names, ", "))
		}
	}
	list("confirmed, and wrong", a.Misled)
	list("not seen to act, and not counted", a.Idle)
	for _, f := range a.Failed {
		fmt.Fprintf(env.Stdout, "failed, and not counted: %s: %s\n", f.Recording, f.Reason)
	}
}

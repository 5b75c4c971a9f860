package cli

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
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

func newCalibrateCommand(env *Env) *cobra.Command {
	var f runFlags
	var runs int
	var keep string
	cmd := &cobra.Command{
		Use:   "calibrate EXPERIMENT",
		Short: "Learn what healthy runs of an experiment look like on this machine",
		Long: `Calibrate runs an experiment several times with nothing wrong, and keeps what
these runs looked like in a small file: how long pods wait in each stage, what a
pod takes of each resource, what components do at rest, and which findings such
a run has by itself. Later runs of the same load, with the same profile, on the
same kind of machine carry the file's contents along, and their diagnosis says
what lies beyond what healthy runs vary by. Without a calibration a diagnosis
reckons with fixed limits alone.

Files are in $KUBEDYNO_CALIBRATION, or kubedyno/calibration in the user's
configuration folder.

Exit codes: 0 fine; 1 failed or interrupted; 2 misused; 4 too many of the runs
are invalid.`,
		Example: `  kubedyno calibrate density --profile tuned
  kubedyno calibrate my-experiment.yaml -n 20 --keep runs`,
		Args: exactlyOne("EXPERIMENT", "a built-in name or a file; see 'kubedyno experiment list'"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if runs < record.Enough {
				return Misusef("--runs %d: a calibration counts from %d healthy runs on", runs, record.Enough)
			}
			if _, err := f.load(cmd, args[0]); err != nil {
				return Misuse(err)
			}
			if f.existing() {
				return Misusef("--kubeconfig: a calibration is of a lab on this machine; on an existing cluster, compare recordings instead")
			}
			out := keep
			if out == "" {
				if out, err = os.MkdirTemp("", "kubedyno-calibrate-"); err != nil {
					return fmt.Errorf("make a folder for the recordings: %w", err)
				}
				defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
			}
			c, err := campaign.Calibrate(cmd.Context(), campaign.CalibrateOptions{
				Experiment: func() (*experiment.Experiment, error) { return f.load(cmd, args[0]) },
				Settings:   f.given(), Runs: runs, Out: out,
				Run: func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
					return performRun(ctx, env, &f, e, settings, dir, parent)
				},
				Done: func(n int, d *diagnose.Diagnosis, why string) { printHealthyRun(env, n, runs, d, why) },
			})
			if errors.Is(err, campaign.ErrNotEmpty) {
				return Misuse(err)
			}
			if errors.Is(err, campaign.ErrNotHealthy) {
				return &exitError{ExitInvalid, err}
			}
			if err != nil {
				return err
			}
			file, err := c.Write(calibrationFolder(env))
			if err != nil {
				return err
			}
			return printCalibration(env, c, file)
		},
	}
	f.register(cmd)
	cmd.Flags().IntVarP(&runs, "runs", "n", 10, "healthy runs to make")
	cmd.Flags().StringVar(&keep, "keep", "", "`folder` in which the recordings are left (default: they are removed)")
	return cmd
}

// calibrationFolder is where calibrations are kept.
func calibrationFolder(env *Env) string {
	if folder := env.Getenv("KUBEDYNO_CALIBRATION"); folder != "" {
		return folder
	}
	config := cmp.Or(env.Getenv("XDG_CONFIG_HOME"), filepath.Join(env.Getenv("HOME"), ".config"))
	return filepath.Join(config, "kubedyno", "calibration")
}

func printHealthyRun(env *Env, n, of int, d *diagnose.Diagnosis, why string) {
	found := "nothing found"
	if len(d.Findings) > 0 {
		var ids []string
		for _, f := range d.Findings {
			ids = append(ids, f.ID)
		}
		found = strings.Join(ids, ", ")
	}
	if why != "" {
		found = "does not count: " + why
	}
	fmt.Fprintf(env.Stdout, "run %d of %d: %.1f pods/s, %s\n", n, of, d.Features["rate"], found)
}

// printCalibration shows what was learnt, the features that matter most.
func printCalibration(env *Env, c *record.Calibration, file string) error {
	fmt.Fprintf(env.Stdout, "\n%d healthy runs of %s, profile %s, on %d CPUs (%s), Kubernetes %s\n\n", len(c.Runs), c.Of.Experiment, c.Of.Profile, c.Of.CPUs, c.Of.Model, c.Of.Version)
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian\tleast\tmost\truns\t")
	for _, name := range slices.Sorted(maps.Keys(c.Features)) {
		h := c.Features[name]
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.4g\t%d\t\n", name, h.Median, h.Min, h.Max, h.N)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(c.Verdicts)) {
		fmt.Fprintf(env.Stdout, "\nexpected of a healthy run: %s (in %d of %d)", id, c.Verdicts[id], len(c.Runs))
	}
	fmt.Fprintf(env.Stdout, "\nkept in %s\n", file)
	return nil
}

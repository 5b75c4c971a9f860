package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/report"
)

func newGateCommand(env *Env) *cobra.Command {
	var format string
	var least float64
	var flags compareFlags
	var turns turnsFlags
	cmd := &cobra.Command{
		Use:   "gate BASE… vs HEAD…",
		Short: "Fail on a regression, and on nothing else",
		Long: `Gate compares runs of a base and of a change, as compare does, and fails where an
indicator of what a user feels, of throughput or of the control plane's CPU is
worse. All rows together call a difference what is none with a chance of at most
5 %. Make the runs in turns on one machine, at least 4 of each.

Exit codes: 0 passed; 1 not assessed: too few runs, or of other machines;
2 not recordings; 3 a regression; 4 a run is invalid.`,
		Example: `  kubedyno gate base-* vs head-*
  kubedyno gate base-* vs head-* --least 5 -o markdown >> "$GITHUB_STEP_SUMMARY"
  kubedyno gate base-* vs head-* -o junit > gate.xml
  kubedyno gate --run density --base-set kube-scheduler.binary=/old/kube-scheduler --head-set kube-scheduler.binary=/new/kube-scheduler --out gate
  kubedyno gate --run experiment.yaml --head-variant patched --budget 30m -o markdown >> "$GITHUB_STEP_SUMMARY"`,
		Args: twoSides,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json", report.JUnit, report.Markdown); err != nil {
				return err
			}
			if least < 0 {
				return Misusef("--least %g: want a percentage from 0 on", least)
			}
			options := compare.GateOptions{Least: least / 100}
			var c compare.Comparison
			var err error
			if turns.run {
				o, wrong := turns.series(cmd, env, &flags, args, func(c compare.Comparison) string {
					return c.Gate(options).Answer(cmp.Or(least, flags.wanted) / 100)
				})
				if wrong != nil {
					return wrong
				}
				if turns.dryRun {
					return turns.plan(cmd.Context(), env, o)
				}
				c, err = turns.inTurns(cmd.Context(), &flags, o)
			} else {
				c, err = flags.recordings(args)
			}
			if err != nil {
				return err
			}
			g := c.Gate(options)
			o := textOptions(env)
			o.Format = format
			if err := report.WriteGate(env.Stdout, o, g); err != nil {
				return err
			}
			switch g.Outcome {
			case compare.Failed:
				return silently(ExitBadNews)
			case compare.Invalid:
				return silently(ExitInvalid)
			case compare.NotAssessed:
				return errors.New("gate: not assessed: " + strings.Join(g.Reasons, "; "))
			}
			return ended(c.Turns)
		},
	}
	flags.register(cmd)
	cmd.Flags().Float64Var(&least, "least", 0, "smallest change for the worse in % that is a regression")
	cmd.Flags().BoolVar(&flags.details, "details", true, "search functions, requests, logs and the use of resources for what explains it")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, json, junit, or markdown for a pull request")
	completeFormats(cmd, "text", "json", report.JUnit, report.Markdown)
	turns.register(cmd, false)
	return cmd
}

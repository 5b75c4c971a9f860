package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
)

func newProveCommand(env *Env) *cobra.Command {
	var rounds int
	var out string
	var sets []string
	cmd := &cobra.Command{
		Use:   "prove RECORDING",
		Short: "Try out what diagnose advises, and go on until nothing is left",
		Long: `Prove takes the first finding of a recording, says what its change should do,
runs the experiment again with the change, and compares. A finding is proven
when a dose of the change has the predicted effect and the whole change makes
the symptom go away. Then it goes on with what comes to light next.

Exit codes: 0 proven; 1 failed or interrupted; 2 misused, or the recording has
nothing to prove; 3 a change did not do what was predicted; 4 a run is invalid.`,
		Example: `  kubedyno prove r --out proof
  kubedyno prove r --out proof --rounds 1`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rounds < 1 {
				return Misusef("--rounds %d: at least 1 round is needed", rounds)
			}
			if out == "" {
				out = strings.TrimRight(args[0], "/") + "-proof"
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			kind := rec.Meta().Cluster.Kind
			rec.Close()
			if kind != "lab" {
				return proveElsewhere(env, args[0])
			}
			proof, err := campaign.Prove(cmd.Context(), campaign.ProveOptions{
				Recording: args[0], Out: out, Rounds: rounds, Sets: sets,
				Tell: &proofTeller{env: env},
				Run: func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
					return performRun(ctx, env, &runFlags{}, e, settings, dir, parent)
				},
			})
			if proof != nil && proof.Ended != "" {
				fmt.Fprintf(env.Stdout, "\nEnd: %s\n", proof.Ended)
			}
			if proof != nil && len(proof.Rounds) > 0 {
				printStory(env, proof)
			}
			switch {
			case errors.As(err, new(*experiment.WithheldError)), errors.Is(err, campaign.ErrNotEmpty):
				return Misuse(err)
			case errors.Is(err, campaign.ErrNothingToProve):
				return silently(ExitOK)
			case errors.Is(err, campaign.ErrNotProven):
				return &exitError{ExitBadNews, err}
			case errors.Is(err, diagnose.ErrInvalid):
				return &exitError{ExitInvalid, err}
			}
			return err
		},
	}
	cmd.Flags().IntVar(&rounds, "rounds", 3, "most findings to go through")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting `PATH=VALUE` that the recording does not keep, such as an environment variable's value; repeatable")
	cmd.Flags().StringVar(&out, "out", "", "`folder` for the proof and its recordings (default: RECORDING-proof)")
	return cmd
}

// proveElsewhere says what to change on a cluster whose components are not ours
// to restart.
func proveElsewhere(env *Env, dir string) error {
	rec, d, err := diagnoseFolder(dir)
	if err != nil {
		return err
	}
	defer rec.Close()
	for _, f := range d.Findings {
		if f.Class == diagnose.Bottleneck {
			fmt.Fprintf(env.Stdout, "%s\n\nThis cluster is not kubedyno's to change. Make this change yourself:\n  %s\n", f.Summary, f.Advice.Text)
			fmt.Fprintf(env.Stdout, "then record the same experiment again and compare:\n  kubedyno run %s --kubeconfig … --out after\n  kubedyno compare %s after\n", rec.Meta().Name, dir)
			return silently(ExitBadNews)
		}
	}
	fmt.Fprintln(env.Stdout, "Nothing to prove: no bottleneck was found.")
	return nil
}

// proofTeller announces each step of a proof on stdout: what is tried, what it
// should do, what it did.
type proofTeller struct{ env *Env }

func (p *proofTeller) Finding(round int, f diagnose.Finding, before compare.Measured) {
	fmt.Fprintf(p.env.Stdout, "\nRound %d · %s\n", round, f.Summary)
	fmt.Fprintf(p.env.Stdout, "  measured   %.1f pods/s%s\n", before.Rate, intentText(before))
}

func (p *proofTeller) Trying(_ int, dose bool, t compare.Trial) {
	what := "change"
	predicted := "predicted: the finding goes away"
	if t.PredictedBy != "" {
		predicted = "predicted: " + t.PredictedBy
	}
	if dose {
		what = "dose"
		predicted = fmt.Sprintf("predicted: %.1f pods/s", t.PredictedRate)
		if t.Pods > 0 {
			predicted += fmt.Sprintf(", with %d pods", t.Pods)
		}
	}
	fmt.Fprintf(p.env.Stdout, "  %-10s %s\n             %s\n", what, strings.Join(t.Set, " "), predicted)
}

func (p *proofTeller) Tried(_ int, dose bool, t compare.Trial) {
	note := ""
	if dose && t.Answered() {
		note = ": as predicted"
	} else if dose {
		note = ": not as predicted"
	}
	fmt.Fprintf(p.env.Stdout, "  measured   %.1f pods/s%s%s\n", t.Measured.Rate, intentText(t.Measured), note)
}

func (p *proofTeller) Judged(_ int, r compare.Round) {
	word := "NOT PROVEN"
	if r.Proven {
		word = "PROVEN"
	}
	fmt.Fprintf(p.env.Stdout, "  %s: %s\n", word, r.Verdict)
}

func intentText(m compare.Measured) string {
	if m.IntentSeconds == nil {
		return ", not all pods ran"
	}
	return fmt.Sprintf(", all pods running after %.1f s", *m.IntentSeconds)
}

// printStory is the proof in one table.
func printStory(env *Env, p *compare.Proof) {
	names := []string{"as recorded"}
	for i, r := range p.Rounds {
		names = append(names, fmt.Sprintf("round %d: %s %s lifted", i+1, r.Finding.Component, r.Finding.Resource))
	}
	wide := 0
	for _, name := range names {
		wide = max(wide, len(name))
	}
	fmt.Fprintf(env.Stdout, "\n%-*s %12s %12s\n", wide, "", "scheduled/s", "all running")
	line := func(name string, m compare.Measured) {
		intent := "–"
		if m.IntentSeconds != nil {
			intent = fmt.Sprintf("%.1f s", *m.IntentSeconds)
		}
		fmt.Fprintf(env.Stdout, "%-*s %12.1f %12s\n", wide, name, m.Rate, intent)
	}
	line(names[0], p.Rounds[0].Before)
	for i, r := range p.Rounds {
		line(names[i+1], r.Lift.Measured)
	}
	fmt.Fprintln(env.Stdout, "Pods that were bound to nodes a second, mean over time. One run each: no interval.")
}

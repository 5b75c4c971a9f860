package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/use"
	"github.com/kubedyno/kubedyno/record"
)

// allPhases is --phase for the whole run and each phase of it.
const allPhases = "all"

func newUseCommand(env *Env) *cobra.Command {
	var (
		phase, format    string
		components, only []string
	)
	cmd := &cobra.Command{
		Use:   "use RECORDING",
		Short: "Go through the USE checklist: utilisation, saturation and errors of every resource",
		Long: `Use goes through the checklist of the USE method for a recording: for every
resource of the machine and of the control plane its utilisation, saturation
and errors, with the threshold that each is compared with. What is bad stands
on top. What cannot be computed is not measurable, with the reason: never ok.

Verdicts: ` + strings.Join(use.Verdicts, ", ") + `.
Thresholds and where they come from: docs/use.md.`,
		Example: `  kubedyno use r
  kubedyno use r --phase load --only saturated,errors
  kubedyno use r --phase all --component etcd
  kubedyno use r -o json`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			for _, v := range only {
				if !slices.Contains(use.Verdicts, v) {
					return Misusef("no verdict %q; there are %s", v, strings.Join(use.Verdicts, ", "))
				}
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			phases := []string{phase}
			if phase == allPhases {
				phases = []string{""}
				for _, p := range rec.Phases() {
					phases = append(phases, p.Name)
				}
			} else if _, err := windowOf(rec, phase); err != nil {
				return err
			}
			checks, err := use.Assess(rec, phases...)
			if err != nil {
				return err
			}
			return printChecks(env, checks, phases, components, only, format)
		},
	}
	cmd.Flags().StringVar(&phase, "phase", "", "only this `phase` of the run; all: the whole run, then each phase")
	cmd.Flags().StringSliceVar(&components, "component", nil, "only these `components`; the hardware is "+use.Machine)
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these `verdicts`")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "checklist as text, csv or json (one object a line)")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(use.Verdicts, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(tableFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("phase", completePhases)
	return cmd
}

// completePhases offers the phases of the recording on the command line.
func completePhases(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := []string{allPhases}
	if len(args) > 0 {
		if rec, err := record.Open(args[0]); err == nil {
			for _, p := range rec.Phases() {
				names = append(names, p.Name)
			}
			rec.Close()
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Widths of the columns that could grow, so that a line fits 120.
const (
	whatWidth = 48
	noteWidth = 28
)

func printChecks(env *Env, checks []use.Check, phases, components, only []string, format string) error {
	known := map[string]bool{}
	for _, c := range checks {
		known[c.Component] = true
	}
	delete(known, "")
	for _, c := range components {
		if !known[c] {
			return Misusef("no checks of component %q; there are %s", c, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	wanted := func(c use.Check) bool { return len(components) == 0 || slices.Contains(components, c.Component) }
	checks = slices.DeleteFunc(checks, func(c use.Check) bool { return !wanted(c) })
	shown := func(c use.Check) bool { return len(only) == 0 || slices.Contains(only, c.Verdict) }
	if format != "text" {
		t := &textTable{}
		for _, c := range checks {
			if shown(c) {
				t.add(c)
			}
		}
		return t.print(env, format, 0)
	}
	for i, phase := range phases {
		var of []use.Check
		for _, c := range checks {
			if c.Phase == phase {
				of = append(of, c)
			}
		}
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		if len(phases) > 1 {
			name := "Whole run"
			if phase != "" {
				name = "Phase " + phase
			}
			fmt.Fprintln(env.Stdout, name)
		}
		t := &textTable{header: []string{"VERDICT", "WHAT", "KIND", "VALUE", "BAD FROM", "NOTE"}}
		for _, c := range of {
			if shown(c) {
				t.add(c, checkCells(c)...)
			}
		}
		if len(t.rows) > 0 {
			if err := t.print(env, format, 0); err != nil {
				return err
			}
		}
		fmt.Fprintln(env.Stdout, use.Conclusion(of))
	}
	return nil
}

func checkCells(c use.Check) []string {
	unit := c.Unit
	switch unit {
	case "share", "s", "bytes", "1/s":
	default:
		unit = "count" // what is counted stands in the name
	}
	value, bad, note := use.Format(c.Value, unit), "–", c.Detail
	if c.Verdict == use.NotMeasurable {
		value, note = "–", c.Reason
	}
	if c.Bad > 0 {
		bad = use.Format(c.Bad, unit)
	}
	kind := map[string]string{use.Utilisation: "util", use.Saturation: "sat", use.Errors: "err"}[c.Kind]
	return []string{c.Verdict, printable(c.What(), whatWidth-1), kind, value, bad, printable(note, noteWidth-1)}
}

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
)

func newFaultCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Put something wrong on purpose, and see whether it is found",
		Long: `A fault is something that goes wrong with control planes, as a change of an
experiment: flags, clients beside the load, quotas, delays, slow nodes. Each has
three intensities. With --fault, any run can be made with any of them.`,
	}
	cmd.AddCommand(newFaultListCommand(env), newFaultExplainCommand(env), newFaultRunCommand(env), newFaultCampaignCommand(env), newFaultAccuracyCommand(env))
	return cmd
}

func faultNames() []string {
	var names []string
	for i := range fault.All {
		names = append(names, fault.All[i].Name)
	}
	slices.Sort(names)
	return names
}

// completeFault completes NAME=INTENSITY.
func completeFault(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if name, _, ok := strings.Cut(typed, "="); ok {
		var all []string
		for _, i := range experiment.Intensities() {
			all = append(all, name+"="+i)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	return faultNames(), cobra.ShellCompDirectiveNoFileComp
}

func completeFaultName(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return faultNames(), cobra.ShellCompDirectiveNoFileComp
}

// listedFault is a fault as a table has it.
type listedFault struct {
	Name      string `json:"name"`
	Number    string `json:"number"`
	Star      bool   `json:"star"`
	Title     string `json:"title"`
	Holds     string `json:"holds"`
	How       string `json:"how"`
	Parameter string `json:"parameter"`
	Low       string `json:"low"`
	Middle    string `json:"middle"`
	High      string `json:"high"`
	Right     string `json:"right"` // what a right diagnosis names
	Alike     string `json:"alike"`
	Show      string `json:"show"`
}

func newFaultListCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Short: "List the faults", Args: cobra.NoArgs,
		Long:    "List prints the catalogue. A * marks what a published investigation was about.",
		Example: "  kubedyno fault list\n  kubedyno fault list -o json",
		RunE: func(*cobra.Command, []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			t := textTable{header: []string{"FAULT", "", "HOLDS BACK", "BY", "PARAMETER", "LOW", "MIDDLE", "HIGH"}}
			for i := range fault.All {
				f := &fault.All[i]
				star := ""
				if f.Star {
					star = "*"
				}
				p := f.Parameter
				t.add(listedFault{
					Name: f.Name, Number: f.Number, Star: f.Star, Title: f.Title, Holds: f.Holds, How: f.How(), Parameter: p.Means,
					Low: p.Low, Middle: p.Middle, High: p.High, Right: f.Places(), Alike: strings.Join(f.Alike, " "), Show: f.Show,
				}, f.Name, star, f.Holds, f.How(), p.Means, p.Low, p.Middle, p.High)
			}
			return t.print(env, format, 0)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "list as text, csv or json")
	completeFormats(cmd, tableFormats...)
	return cmd
}

func newFaultExplainCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use: "explain FAULT", Short: "Say what a fault is, what it changes and what tells it apart",
		Example:           "  kubedyno fault explain conflict-storm",
		Args:              exactlyOne("FAULT", "a name; see 'kubedyno fault list'"),
		ValidArgsFunction: completeFaultName,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := fault.Find(args[0])
			if err != nil {
				return Misuse(err)
			}
			_, err = fmt.Fprint(env.Stdout, f.Explain())
			return err
		},
	}
}

func newFaultRunCommand(env *Env) *cobra.Command {
	var f runFlags
	var with string
	cmd := &cobra.Command{
		Use:   "run FAULT[=INTENSITY|VALUE]",
		Short: "Run an experiment with a fault, and see whether the diagnosis names it",
		Long: `Run makes a run with the fault: of the experiment that shows it soonest, or of
the one that --experiment names. It says whether the fault acted, prints the
diagnosis, and compares the two.

Exit codes: 0 the fault acted, and the diagnosis names component, stage and
resource first; 1 failed or interrupted; 2 misused; 3 the fault did not act, or
the diagnosis says something else.`,
		Example: `  kubedyno fault run controller-limit
  kubedyno fault run list-storm=high --out r
  kubedyno fault run slow-node-disk=800ms --experiment density --nodes 20 --profile tuned`,
		Args:              exactlyOne("FAULT", "a name; see 'kubedyno fault list'"),
		ValidArgsFunction: completeFault,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _, _ := strings.Cut(args[0], "=")
			wanted, err := fault.Find(name)
			if err != nil {
				return Misuse(err)
			}
			f.faults = append([]string{args[0]}, f.faults...)
			var e *experiment.Experiment
			if with != "" {
				e, err = f.load(cmd, with)
			} else if e, err = wanted.Showing(); err == nil {
				e, err = f.change(cmd, e, f.sets)
			}
			if err != nil {
				return Misuse(err)
			}
			if f.out == "" {
				f.out = name + "-" + env.Now().UTC().Format("20060102T150405Z")
			}
			if err := performRun(cmd.Context(), env, &f, e, f.given(), f.out, ""); err != nil {
				return err
			}
			return judgeFault(env, wanted, f.out)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&with, "experiment", "", "`EXPERIMENT` to run in place of the one that shows the fault soonest")
	cmd.Flags().StringVar(&f.out, "out", "", "`folder` of the recording (default: the fault's name and the time)")
	return cmd
}

// judgeFault prints what a fault did, the diagnosis, and how right it is.
func judgeFault(env *Env, f *fault.Fault, dir string) error {
	if err := printEffects(env, dir); err != nil {
		return err
	}
	rec, d, err := diagnoseFolder(dir)
	if err != nil {
		return err
	}
	defer rec.Close()
	if err := report.WriteDiagnosis(env.Stdout, textOptions(env), d); err != nil {
		return err
	}
	verdict, text := f.Judge(rec.Meta().Name, d)
	fmt.Fprintf(env.Stdout, "\n%s: %s\n", f.Name, text)
	kept, err := record.ReadFaults(dir)
	if err != nil {
		return err
	}
	acted := len(kept) > 0 && kept[0].Acted == string(fault.Yes)
	switch {
	case !acted:
		return &exitError{ExitBadNews, fmt.Errorf("fault %s was not seen to act", f.Name)}
	case verdict != fault.Right:
		return &exitError{ExitBadNews, fmt.Errorf("fault %s is not what the diagnosis names first", f.Name)}
	}
	return nil
}

// keepEffects says of each fault of a run whether it acted, beside the recording.
// Where there is none, there is nothing to say.
func keepEffects(e *experiment.Experiment, dir string) error {
	in, err := fault.Of(e)
	if err != nil || len(in) == 0 {
		return err
	}
	rec, err := record.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer rec.Close()
	var kept []record.Fault
	for _, i := range in {
		k, effect := i.Record(), i.Check(rec)
		k.Acted, k.Number, k.Unit, k.Text = string(effect.Acted), effect.Number, effect.Unit, effect.Text
		kept = append(kept, k)
	}
	return record.WriteFaults(dir, kept)
}

// printEffects prints what keepEffects wrote.
func printEffects(env *Env, dir string) error {
	kept, err := record.ReadFaults(dir)
	if err != nil {
		return err
	}
	for _, k := range kept {
		strength := k.Value
		if k.Intensity != "" {
			strength += " (" + k.Intensity + ")"
		}
		fmt.Fprintf(env.Stdout, "fault %s, %s: acted: %s; %s\n", k.Name, strength, k.Acted, k.Text)
	}
	if len(kept) > 0 {
		fmt.Fprintln(env.Stdout)
	}
	return nil
}

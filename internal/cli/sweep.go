package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/run"
)

// sweepPlan is what the book of a sweep holds beside its runs.
type sweepPlan struct {
	Axes      []compare.Axis `json:"axes"`
	Reference string         `json:"reference"` // of the first axis
}

func newSweepCommand(env *Env) *cobra.Command {
	var f seriesFlags
	var axes []string
	var reference, from, format string
	var runs int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "sweep EXPERIMENT --axis PATH=VALUE,…",
		Short: "Try the values of a setting, and say what each costs and what it does for users",
		Long: `Sweep runs an experiment with each value of a setting, on fresh control planes, in
blocks: each block has every value once, in shuffled order. PATH is as in --set;
variant and the parameters of a built-in experiment (pods-per-node, rate, …) are
paths, too. a..b:log:5 are 5 values at equal ratios, a..b:lin:5 at equal distances.
Several axes make all combinations.

Values are compared with a reference: the default, which is run as well, where the
setting is of a component; else the first value; or --reference. All values and
indicators together call a difference what is none with a chance of at most 5 %. It
is checked whether the setting acted at all. A best value is named only where it is
really better and in nothing worse; else it says how large an effect may still be.

An interrupted sweep goes on with the same --out; --from reads one and runs nothing.

Exit codes: 0 fine, whatever was found; 1 failed or interrupted; 2 misused; 4 too
many runs are invalid.`,
		Example: `  kubedyno sweep density --nodes 20 --axis etcd.args.snapshot-count=500,1000,10000,100000 --out snapshots
  kubedyno sweep density --axis kube-scheduler.args.kube-api-qps=10..1000:log:5 -n 4
  kubedyno sweep experiment.yaml --axis variant=plain,patched --axis cluster.cpu=1,2
  kubedyno sweep density --axis pods-per-node=5,10,20 --nodes 20 --budget 30m --dry-run
  kubedyno sweep --from snapshots -o markdown`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case from != "" && len(args) > 0:
				return Misusef("--from reads a sweep that was made: an EXPERIMENT has no place beside it")
			case from != "":
				return nil
			}
			if err := exactlyOne("EXPERIMENT", "a built-in name or a file; see 'kubedyno experiment list'")(cmd, args); err != nil {
				return err
			}
			if len(axes) == 0 {
				return Misusef("%s needs an --axis PATH=VALUE,…", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json", "csv", report.Markdown); err != nil {
				return err
			}
			if from != "" {
				s, err := campaign.ReadSeries(from)
				if errors.Is(err, fs.ErrNotExist) {
					return Misuse(err)
				}
				if err != nil {
					return err
				}
				return printSweep(env, s, format)
			}
			plan, err := planOf(axes, reference)
			if err != nil {
				return Misuse(err)
			}
			switch {
			case runs < 0 || runs == 0 && cmd.Flags().Changed("runs"):
				return Misusef("--runs %d: 1 is the least", runs)
			case runs == 0 && len(plan.Axes) == 1 && len(plan.Axes[0].Values) == 2:
				runs = 8 // 6 are the fewest that can show anything
			case runs == 0:
				runs = 5
			}
			arms, err := f.points(cmd, args[0], plan)
			if err != nil {
				return Misuse(err)
			}
			out := f.folder(env, "sweep", args[0])
			o := campaign.SeriesOptions{
				Kind: "sweep", Plan: plan, Arms: arms, Blocks: runs, Seed: seed, Out: out, Budget: f.budget,
				Check: run.Check, Run: f.perform(env), Tell: &seriesTeller{env}, Now: env.Now,
			}
			if f.dryRun {
				return f.plan(cmd.Context(), env, o)
			}
			s, err := campaign.RunSeries(cmd.Context(), o)
			if err != nil && !errors.Is(err, campaign.ErrManyBad) {
				return interrupted(s, out, err)
			}
			if s.Done() == 0 {
				return &exitError{ExitInvalid, fmt.Errorf("no block is complete: %s", s.Ended)}
			}
			if printed := printSweep(env, s, format); printed != nil {
				return printed
			}
			if err != nil { // what there is has been printed
				return &exitError{ExitInvalid, err}
			}
			return nil
		},
	}
	f.register(cmd)
	fs := cmd.Flags()
	fs.StringArrayVar(&axes, "axis", nil, "a setting and its values, `PATH=VALUE,…`; can be given again")
	fs.StringVar(&reference, "reference", "", "`value` of the first axis that others are compared with (default: of a component's setting the default, else the first)")
	fs.IntVarP(&runs, "runs", "n", 0, "runs of each value (default: 5, or 8 where there are two values)")
	fs.Uint64Var(&seed, "seed", 0, "seed of the order of runs, and of what is shuffled in tests")
	fs.StringVar(&from, "from", "", "`folder` of a sweep that was made: print it, and run nothing")
	fs.StringVarP(&format, "output", "o", "text", "sweep as text, json, csv or markdown")
	completeFormats(cmd, "text", "json", "csv", report.Markdown)
	return cmd
}

// planOf reads axes and finds the reference.
func planOf(texts []string, reference string) (sweepPlan, error) {
	var p sweepPlan
	for _, text := range texts {
		a, err := compare.ParseAxis(text)
		if err != nil {
			return p, err
		}
		if slices.ContainsFunc(p.Axes, func(b compare.Axis) bool { return b.Path == a.Path }) {
			return p, fmt.Errorf("--axis %s is there twice", a.Path)
		}
		p.Axes = append(p.Axes, a)
	}
	first := &p.Axes[0]
	component, _, _ := strings.Cut(strings.TrimPrefix(first.Path, "cluster.components."), ".")
	switch {
	case reference == "" && slices.Contains(experiment.ComponentNames(), component), reference == compare.Unset:
		p.Reference = compare.Unset
		if !slices.Contains(first.Values, compare.Unset) {
			first.Values = slices.Insert(first.Values, 0, compare.Unset)
		}
	case reference == "":
		p.Reference = first.Values[0]
	case !slices.Contains(first.Values, reference):
		return p, fmt.Errorf("--reference %s is not among the values of %s: %s", reference, first.Path, strings.Join(first.Values, ", "))
	default:
		p.Reference = reference
	}
	if len(first.Values) < 2 {
		return p, fmt.Errorf("--axis %s has one value: there is nothing to compare it with", first.Path)
	}
	n := 1
	for _, a := range p.Axes {
		n *= len(a.Values)
	}
	if n > mostPoints {
		return p, fmt.Errorf("the axes have %d combinations, %d are the most", n, mostPoints)
	}
	return p, nil
}

// mostPoints bounds a sweep: a block of so many runs takes an hour.
const mostPoints = 64

// points are the arms of a sweep, one for each combination of values.
func (f *seriesFlags) points(cmd *cobra.Command, experimentName string, plan sweepPlan) ([]campaign.Arm, error) {
	points, err := compare.Points(plan.Axes, plan.Reference)
	if err != nil {
		return nil, err
	}
	var arms []campaign.Arm
	for _, p := range points {
		at := *f
		at.load.params = map[string]string{}
		variant := ""
		var sets []string
		for i, v := range p.Values {
			switch path := plan.Axes[i].Path; {
			case v == compare.Unset:
			case path == "variant":
				variant = v
			case slices.Contains(paramFlags, path):
				at.load.params[path] = v
			default:
				sets = append(sets, path+"="+v)
			}
		}
		a, err := at.arm(cmd, p.Name, experimentName, variant, sets)
		if err != nil {
			return nil, err
		}
		arms = append(arms, a)
	}
	return arms, nil
}

// printSweep prints what the points of a series that is a sweep say.
func printSweep(env *Env, series *campaign.Series, format string) error {
	s, err := sweepOf(series)
	if err != nil {
		return err
	}
	if format == "csv" {
		return sweepTable(s).print(env, format, 0)
	}
	o := textOptions(env)
	o.Format = format
	return report.WriteSweep(env.Stdout, o, s)
}

// sweepOf compares the points of a series that is a sweep.
func sweepOf(series *campaign.Series) (s compare.Sweep, err error) {
	var plan sweepPlan
	if err := json.Unmarshal(series.Plan, &plan); err != nil || series.Kind != "sweep" {
		return s, Misusef("the series in the folder was made by %s, and is no sweep", series.Kind)
	}
	points, err := compare.Points(plan.Axes, plan.Reference)
	if err != nil {
		return s, Misuse(err)
	}
	of := make([][]diagnose.Source, len(points))
	for p, point := range points {
		of[p] = make([]diagnose.Source, series.Blocks)
		dirs := series.Recordings(point.Name)
		for i, run := range series.Counted(point.Name) {
			rec, err := record.Open(dirs[i])
			if err != nil {
				return s, err
			}
			defer rec.Close()
			of[p][run.Block-1] = rec
		}
	}
	s, err = compare.SweepRuns(plan.Axes, points, of, compare.Options{Seed: series.Seed})
	if err != nil {
		return s, err
	}
	s.Planned, s.Ended = series.Blocks, series.Ended
	if series.Ended == "" {
		s.Ended = "it is not done yet"
	}
	s.Warnings = append(s.Warnings, series.Doubts()...)
	return s, nil
}

// sweepCell is an indicator at a point in CSV. What is not known is empty.
type sweepCell struct {
	Point     string `json:"point"`
	Reference string `json:"reference"`
	ID        string `json:"id"`
	Group     string `json:"group"`
	Name      string `json:"name"`
	Unit      string `json:"unit"`
	Median    string `json:"median"`
	N         int    `json:"n"`
	Ratio     string `json:"ratio"`
	Shift     string `json:"difference"`
	Low       string `json:"low"`
	High      string `json:"high"`
	P         string `json:"p"`
	Verdict   string `json:"verdict"`
	Seen      string `json:"seen"`
}

func sweepTable(s compare.Sweep) *textTable {
	t := &textTable{}
	value := func(x *float64) string {
		if x == nil {
			return ""
		}
		return fmt.Sprintf("%.6g", *x)
	}
	for p, point := range s.Points {
		seen := ""
		for _, c := range s.Checks {
			if len(c.ByPoint) == len(s.Points) {
				seen = c.ByPoint[p]
			}
		}
		against := ""
		if point.Against >= 0 {
			against = s.Points[point.Against].Name
		}
		for _, r := range s.Rows {
			c := r.Cells[p]
			cell := sweepCell{Point: point.Name, Reference: against, ID: r.ID, Group: string(r.Group), Name: r.Name, Unit: r.Unit, Median: value(c.Value), N: c.N,
				Ratio: value(c.Ratio), Shift: value(c.Difference), P: value(c.P), Verdict: string(c.Verdict), Seen: seen}
			if c.Shift != nil {
				cell.Low, cell.High = value(&c.Shift.Lo), value(&c.Shift.Hi)
			}
			t.add(cell)
		}
	}
	return t
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/internal/heap"
	"github.com/kubedyno/kubedyno/report"
)

func newDiagnoseCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "diagnose RECORDING",
		Short: "Say what held a run back, with evidence",
		Long: `Diagnose reads a recording and says where pods waited, what held them back,
what was ruled out, and what could not be assessed. It needs no cluster.

Exit codes: 0 nothing held the run back, or all of a resource was used;
2 not a recording; 3 a bottleneck was found; 4 the run is invalid.`,
		Example: `  kubedyno diagnose r
  kubedyno diagnose r -o json | jq '.findings[0]'`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, resultFormats...); err != nil {
				return err
			}
			heap.Bound() // the requests of a long run live until the end
			rec, d, err := diagnoseFolder(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			if isResult(format) {
				err = report.WriteResults(env.Stdout, format, report.Result{Meta: rec.Meta(), Diagnosis: d})
			} else {
				o := textOptions(env)
				o.Format = format
				err = report.WriteDiagnosis(env.Stdout, o, d)
			}
			if err != nil {
				return err
			}
			switch err := d.Err(); {
			case errors.Is(err, diagnose.ErrInvalid):
				return silently(ExitInvalid)
			case errors.Is(err, diagnose.ErrFindings):
				return silently(ExitBadNews)
			default:
				return err
			}
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "findings as text or json; objectives as junit, numbers as gobench or perfdash")
	completeFormats(cmd, resultFormats...)
	return cmd
}

func newReportCommand(env *Env) *cobra.Command {
	var out, format string
	cmd := &cobra.Command{
		Use:   "report RECORDING… --out FILE.html",
		Short: "Write one HTML page that tells the story of recordings",
		Long: `Report writes one file that opens in a browser without a network. Each argument
is a recording, or a folder that 'kubedyno prove' wrote; several stand on the
same axes in the order given. A folder that sweep, capacity or overhead wrote is
a page of its own.

With -o junit it writes a test suite for each recording, for CI: one test for
whether the run is valid, and one for each objective. An objective that could
not be assessed fails. With -o gobench it writes a line of Go's benchmark format
for each recording, for benchstat; with -o perfdash the file that perfdash reads
of one run. Without --out they go to stdout.`,
		Example: `  kubedyno report r --out report.html
  kubedyno report proof --out report.html
  kubedyno report snapshots --out sweep.html    # a folder of sweep, capacity or overhead
  kubedyno report runs/* -o junit --out junit.xml
  kubedyno report before-* -o gobench > before; benchstat before after`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Misusef("%s needs at least one recording or proof folder", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "html", report.JUnit, report.GoBench, report.PerfDash); err != nil {
				return err
			}
			if isResult(format) {
				return writeResults(env, args, format, out)
			}
			if out == "" {
				return Misusef("name the file to write with --out FILE.html")
			}
			if len(args) == 1 {
				if is, err := writeMany(env, args[0], out); is {
					return err
				}
			}
			return writeReport(env, args, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` to write")
	cmd.Flags().StringVarP(&format, "output", "o", "html", "html, junit, gobench or perfdash")
	completeFormats(cmd, "html", report.JUnit, report.GoBench, report.PerfDash)
	_ = cmd.MarkFlagFilename("out", "html", "xml")
	return cmd
}

// writeMany renders a folder that sweep, capacity or overhead wrote; is says
// whether it is one.
func writeMany(env *Env, dir, out string) (is bool, err error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	var render func(io.Writer, report.RenderOptions) error
	switch {
	case has(campaign.SeriesFile):
		series, err := campaign.ReadSeries(dir)
		if err != nil {
			return true, err
		}
		if series.Kind != "sweep" {
			return true, Misusef("%s holds the runs of %s: kubedyno compare -o html draws its sides", dir, series.Kind)
		}
		s, err := sweepOf(series)
		if err != nil {
			return true, err
		}
		render = func(w io.Writer, o report.RenderOptions) error { return report.RenderSweep(w, s, o) }
	case has(compare.CapacityFile):
		c, err := compare.ReadCapacity(dir)
		if err != nil {
			return true, err
		}
		render = func(w io.Writer, o report.RenderOptions) error { return report.RenderCapacity(w, c, o) }
	case has(compare.OverheadFile):
		c, err := overheadIn(dir)
		if err != nil {
			return true, err
		}
		render = func(w io.Writer, o report.RenderOptions) error { return report.RenderOverhead(w, c, o) }
	default:
		return false, nil
	}
	return true, writePage(env, out, render)
}

// writeReport renders recordings and proofs into one file.
func writeReport(env *Env, args []string, out string) error {
	var inputs []report.Input
	seen := map[string]bool{}
	add := func(dir string, in report.Input) error {
		key, err := filepath.Abs(dir)
		if err != nil {
			key = dir
		}
		if seen[key] {
			return nil
		}
		seen[key] = true
		rec, d, err := diagnoseFolder(dir)
		if err != nil {
			return err
		}
		in.Recording, in.Diagnosis = rec, d
		inputs = append(inputs, in)
		return nil
	}
	defer func() {
		for _, in := range inputs {
			in.Recording.Close()
		}
	}()
	for _, arg := range args {
		if _, err := os.Stat(filepath.Join(arg, compare.ProofFile)); err != nil {
			if err := add(arg, report.Input{}); err != nil {
				return err
			}
			continue
		}
		p, err := compare.ReadProof(arg)
		if err != nil {
			return Misuse(err)
		}
		dirs := p.Recordings(arg)
		if err := add(dirs[0], report.Input{Name: "Baseline"}); err != nil {
			return err
		}
		rest := dirs[1:]
		for i, r := range p.Rounds {
			prove(inputs[len(inputs)-1].Diagnosis, r)
			if r.Dose != nil {
				if err := add(rest[0], doseInput(i+1, *r.Dose)); err != nil {
					return err
				}
				rest = rest[1:]
			}
			if err := add(rest[0], liftInput(i+1, r)); err != nil {
				return err
			}
			rest = rest[1:]
		}
	}
	return writePage(env, out, func(w io.Writer, o report.RenderOptions) error { return report.Render(w, inputs, o) })
}

// htmlOut holds a page to a file, and files to pages.
func htmlOut(format, out string) error {
	switch {
	case format == "html" && out == "":
		return Misusef("name the file to write with --out FILE.html")
	case format != "html" && out != "":
		return Misusef("--out takes the page of -o html; redirect %s instead", format)
	}
	return nil
}

// writePage writes a page to a file, which appears whole or not at all.
func writePage(env *Env, out string, render func(io.Writer, report.RenderOptions) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(out), ".report-*")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer os.Remove(tmp.Name())
	err = render(tmp, report.RenderOptions{Tool: Version(), Now: env.Now()})
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write report %s: %w", out, err)
	}
	if err := os.Rename(tmp.Name(), out); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintln(env.Stdout, out)
	return nil
}

// prove gives the finding that a round proved its grade, in the diagnosis of
// the recording that has it.
func prove(d *diagnose.Diagnosis, r compare.Round) {
	for i, f := range d.Findings {
		if r.Proven && f.ID == r.Finding.ID && f.Component == r.Finding.Component {
			d.Findings[i].Grade = diagnose.Proven
		}
	}
}

func doseInput(n int, t compare.Trial) report.Input {
	outcome := fmt.Sprintf("%.1f pods/s: the dose does not answer", t.Measured.Rate)
	if t.Answered() {
		outcome = fmt.Sprintf("%.1f pods/s: the dose answers", t.Measured.Rate)
	}
	return report.Input{
		Name: fmt.Sprintf("Round %d, dose", n), Dose: true, Change: t.Set,
		Prediction: fmt.Sprintf("%.1f pods/s", t.PredictedRate), Outcome: outcome,
	}
}

func liftInput(n int, r compare.Round) report.Input {
	return report.Input{
		Name: fmt.Sprintf("Round %d", n), Change: r.Lift.Set,
		Prediction: r.Lift.PredictedBy, Outcome: r.Verdict, Lifted: &r.Finding, Proven: r.Proven,
	}
}

// tables are what `show` can print of a recording.
var showTables = []string{"pods", "operations", "processes", "requests", "logs", "spikes", "nodes", "objects", "events", "volumes", "profiles", "gaps", "access", "phases", "flags", "collectors"}

func newShowCommand(env *Env) *cobra.Command {
	var format, phase string
	var limit int
	var rawRows bool
	names := slices.Clone(showTables)
	for name := range rawTables {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	cmd := &cobra.Command{
		Use:   "show RECORDING TABLE",
		Short: "Print a table of a recording",
		Long:  "Show prints a table of a recording: " + strings.Join(names, ", ") + ".",
		Example: `  kubedyno show r pods
  kubedyno show r processes --phase load
  kubedyno show r requests -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return Misusef("%s needs a recording and a table: %s", cmd.CommandPath(), strings.Join(names, ", "))
			}
			if !slices.Contains(names, args[1]) {
				return Misusef("no table %q; there are %s", args[1], strings.Join(names, ", "))
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			return showTable(env, rec, args[1], phase, format, rawRows, limit)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "table as text, csv or json (one object a line)")
	cmd.Flags().StringVar(&phase, "phase", "", "only this phase of the run")
	cmd.Flags().BoolVar(&rawRows, "raw", false, "the rows as they were recorded, instead of sums and shares")
	cmd.Flags().IntVar(&limit, "limit", 50, "most rows of a text table; 0 prints all")
	return cmd
}

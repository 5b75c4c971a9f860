package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/cases"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/run"
)

func newCaseCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "case",
		Short: "Run published investigations again, on real components",
		Long: `A case is an investigation that somebody published, as experiments, with what
must come out: what the diagnosis of a run must find first, without being told,
and what the fix must bring. The story of a run has the authors' numbers beside
its own.`,
	}
	cmd.AddCommand(newCaseListCommand(env), newCaseExplainCommand(env), newCaseRunCommand(env), newCaseStoryCommand(env))
	return cmd
}

func completeCase(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cases.Names(), cobra.ShellCompDirectiveNoFileComp
}

// listedCase is a case as a table has it.
type listedCase struct {
	Name         string  `json:"name"`
	Title        string  `json:"title"`
	Arms         int     `json:"arms"`
	Runs         int     `json:"runs"`
	Minutes      float64 `json:"minutes"`
	QuickRuns    int     `json:"quickRuns"`
	QuickMinutes float64 `json:"quickMinutes"`
}

func newCaseListCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Short: "List the cases", Args: cobra.NoArgs,
		Example: "  kubedyno case list\n  kubedyno case list -o json",
		RunE: func(*cobra.Command, []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			t := textTable{header: []string{"CASE", "RUNS", "MINUTES", "QUICK RUNS", "QUICK MINUTES", "ABOUT"}}
			for _, name := range cases.Names() {
				c, err := cases.Find(name)
				if err != nil {
					return err
				}
				l := listedCase{Name: c.Name, Title: c.Title, Arms: len(c.Arms)}
				l.Runs, l.Minutes = c.Size(false)
				l.QuickRuns, l.QuickMinutes = c.Size(true)
				t.add(l, l.Name, fmt.Sprint(l.Runs), fmt.Sprintf("%.0f", l.Minutes), fmt.Sprint(l.QuickRuns), fmt.Sprintf("%.0f", l.QuickMinutes), l.Title)
			}
			return t.print(env, format, 0)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "list as text, csv or json")
	completeFormats(cmd, tableFormats...)
	return cmd
}

func newCaseExplainCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use: "explain CASE", Short: "Say what a case is about, what it runs and what must come out",
		Example:           "  kubedyno case explain pvc-batch",
		Args:              exactlyOne("CASE", "a name; see 'kubedyno case list'"),
		ValidArgsFunction: completeCase,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := cases.Find(args[0])
			if err != nil {
				return Misuse(err)
			}
			_, err = fmt.Fprint(env.Stdout, c.Explain())
			return err
		},
	}
}

func newCaseRunCommand(env *Env) *cobra.Command {
	var all, quick bool
	var out string
	var by cases.Changes
	var only []string
	cmd := &cobra.Command{
		Use:   "run CASE | --all",
		Short: "Run a case, and see whether what must come out does",
		Long: `Run runs the arms of a case in turns, diagnoses each run, and holds what came out
against what must. In the folder are the recordings, a page for each (report-….html), and
the story: story.md for people, story.json for programs. With --all it
runs all cases, and writes index.html over them; one that needs a real node where
none can run is left out, and said to be. A case that was interrupted
goes on where it was.

With --set or --fault something else is put in the place of what the case has:
expectations that then do not hold say what was found instead.

Exit codes: 0 what must come out did; 1 failed or interrupted; 2 misused; 3
something that must come out did not; 4 a run is invalid.`,
		Example: `  kubedyno case run pvc-batch --quick
  kubedyno case run pvc-batch --quick --set cluster.storage.locks=driver   # without the fault: it must not be found
  kubedyno case run --all --out cases`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return Misusef("%s takes a CASE or --all, not both", cmd.CommandPath())
			}
			if !all {
				return exactlyOne("CASE", "a name, or --all; see 'kubedyno case list'")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: completeCase,
		RunE: func(cmd *cobra.Command, args []string) error {
			names := args
			if all {
				names = cases.Names()
			}
			var todo []*cases.Case
			for _, name := range names {
				c, err := cases.Find(name)
				if err != nil {
					return Misuse(err)
				}
				if err := c.Check(cases.Options{Quick: quick, By: by, Only: only}, load.Check); err != nil {
					return Misuse(fmt.Errorf("case %s: %w", name, err))
				}
				todo = append(todo, c)
			}
			if out == "" {
				name := "cases"
				if !all {
					name = args[0]
				}
				out = name + "-" + env.Now().UTC().Format("20060102T150405Z")
			}
			var stories []*cases.Story
			var worst error
			for _, c := range todo {
				dir := out
				if all {
					dir = filepath.Join(out, c.Name)
				}
				s, err := runCase(cmd.Context(), env, c, cases.Options{Quick: quick, By: by, Only: only, Out: dir})
				if s == nil && all && errors.Is(err, realnode.ErrNotPossible) {
					fmt.Fprintf(env.Stderr, "case %s is left out: %v\n", c.Name, err)
					worst = cmp.Or(worst, fmt.Errorf("case %s was not run: %w", c.Name, err))
					continue
				}
				if s == nil {
					return err
				}
				stories = append(stories, s)
				if worst == nil || exitCode(err) > exitCode(worst) {
					worst = err
				}
				if all {
					if err := writeCaseIndex(out, stories); err != nil {
						return err
					}
				}
			}
			return worst
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&all, "all", false, "run all cases")
	fs.BoolVar(&quick, "quick", false, "the short form: smaller, with fewer runs")
	fs.StringVar(&out, "out", "", "`folder` for the recordings and the story (default: the case's name and the time)")
	fs.StringArrayVar(&by.Sets, "set", nil, "change one setting of every arm, PATH=VALUE, as 'kubedyno run' has it; repeatable")
	fs.StringArrayVar(&by.Faults, "fault", nil, "put something else wrong in every arm, NAME or NAME=VALUE (see 'kubedyno fault list'); repeatable")
	fs.StringArrayVar(&only, "arm", nil, "run this `ARM` only; what must come out of others is left out; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("fault", completeFault)
	return cmd
}

// exitCode is the code that an error ends the program with.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.code
	}
	return ExitFailed
}

// runCase runs one case. The story is nil where it could not be run to its end.
func runCase(ctx context.Context, env *Env, c *cases.Case, o cases.Options) (*cases.Story, error) {
	o.Tool, o.Now = Version(), env.Now
	o.Check = run.Check
	o.Builder = builder(env, c.Name)
	o.Run = func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
		return performRun(ctx, env, &runFlags{}, e, settings, dir, parent)
	}
	o.Next = func(n, of int, arm string, left time.Duration) {
		fmt.Fprintf(env.Stderr, "case %s: run %d of %d, %s; about %s left\n", c.Name, n, of, arm, left.Round(time.Second))
	}
	o.Bad = func(arm, result, why string) {
		fmt.Fprintf(env.Stderr, "case %s: a run of %s does not count (%s): %s\n", c.Name, arm, result, why)
	}
	o.Explain = func(d *diagnose.Diagnosis) (string, error) {
		var b strings.Builder
		err := report.WriteDiagnosis(&b, report.Options{Format: "text", Width: 110}, d)
		return b.String(), err
	}
	s, err := c.Run(ctx, o)
	switch {
	case errors.Is(err, cases.ErrNotEmpty), errors.Is(err, campaign.ErrOtherSeries):
		return nil, Misuse(err)
	case errors.Is(err, campaign.ErrManyBad):
		return nil, &exitError{ExitInvalid, err}
	case err != nil:
		return nil, err
	}
	quiet := *env
	quiet.Stdout = env.Stderr
	for _, arm := range s.Arms {
		for _, r := range arm.Runs {
			if err := writeReport(&quiet, []string{filepath.Join(o.Out, r.Recording)}, filepath.Join(o.Out, r.Report())); err != nil {
				return s, err
			}
		}
	}
	printStoryOf(env, s, o.Out)
	return s, caseError(s)
}

// builder builds components for arms, out of the checkout that kubedyno-lab was
// built in.
func builder(env *Env, name string) cases.Builder {
	cache := cmp.Or(env.Getenv("XDG_CACHE_HOME"), filepath.Join(env.Getenv("HOME"), ".cache"))
	b := cases.Builder{Lab: "lab", Programs: filepath.Join("cases", "programs"), Cache: filepath.Join(cache, "kubedyno", "built"), Told: func(text string) {
		fmt.Fprintf(env.Stderr, "case %s: %s\n", name, text)
	}}
	if path, err := lab.FindLab(); err == nil {
		root := filepath.Join(filepath.Dir(path), "..")
		if _, err := os.Stat(filepath.Join(root, "lab", "go.mod")); err == nil { // else it was put elsewhere
			b.Lab, b.Programs = filepath.Join(root, "lab"), filepath.Join(root, "cases", "programs")
		}
	}
	return b
}

// caseError is nil for a case that passed.
func caseError(s *cases.Story) error {
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			if !r.Valid {
				return &exitError{ExitInvalid, fmt.Errorf("case %s: run %s is not valid", s.Case, r.Recording)}
			}
		}
	}
	if s.Passed {
		return nil
	}
	i := slices.IndexFunc(s.Verdicts, func(v cases.Verdict) bool { return v.Outcome == cases.Failed || v.Outcome == cases.Unknown })
	if i < 0 {
		return &exitError{ExitBadNews, fmt.Errorf("case %s: nothing that must come out was looked at", s.Case)}
	}
	v := s.Verdicts[i]
	return &exitError{ExitBadNews, fmt.Errorf("case %s: %s (%s): %s: %s", s.Case, v.Says, v.Arm, v.Outcome, v.Text)}
}

// printStoryOf prints what came out.
func printStoryOf(env *Env, s *cases.Story, dir string) {
	fmt.Fprintf(env.Stdout, "%s: %s\n", s.Case, s.Verdict())
	if s.Quick != "" {
		fmt.Fprintf(env.Stdout, "A quick run: %s\n", strings.TrimSpace(s.Quick))
	}
	fmt.Fprintln(env.Stdout)
	for _, v := range s.Verdicts {
		fmt.Fprintf(env.Stdout, "  %-12s %-3s %s (%s)\n               %s\n", v.Outcome, v.Row, v.Says, v.Arm, v.Text)
	}
	fmt.Fprintf(env.Stdout, "\n%s\n", filepath.Join(dir, cases.TextFile))
}

func newCaseStoryCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "story DIR", Short: "Print the story of a case that was run",
		Long:    "Story prints what a folder of 'kubedyno case run' says, as a page of the documentation has it.",
		Example: "  kubedyno case story pvc-batch-run -o markdown > docs/cases/pvc-batch.md",
		Args:    exactlyOne("DIR", "the --out of 'kubedyno case run'"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "markdown"); err != nil {
				return err
			}
			s, err := cases.ReadStory(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return Misuse(err)
			}
			if err != nil {
				return err
			}
			if format == "markdown" {
				_, err = fmt.Fprint(env.Stdout, s.Markdown())
				return err
			}
			printStoryOf(env, s, args[0])
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "print as text or markdown")
	completeFormats(cmd, "text", "markdown")
	return cmd
}

var caseIndex = template.Must(template.New("index").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Cases</title>
<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}</style>
<h1>Cases</h1>
{{range $s := .}}<h2>{{.Title}}</h2>
<p><b>{{.Verdict}}</b> · {{.Date.Format "2006-01-02 15:04"}} UTC, {{printf "%.0f" .Minutes}} minutes · {{.Machine}} · Kubernetes {{.Kubernetes}}, kubedyno {{.Tool}}{{with .Quick}}<br>A quick run: {{.}}{{end}}</p>
<table>{{range .Verdicts}}<tr><td>{{.Row}}<td>{{.Says}}<td>{{.Arm}}<td><b>{{.Outcome}}</b><td>{{.Text}}{{end}}</table>
<p><a href="{{.Case}}/story.md">the story</a>{{range .Arms}}{{range .Runs}} · <a href="{{$s.Case}}/{{.Report}}">{{.Recording}}</a>{{end}}{{end}}</p>
{{end}}</html>
`))

// writeCaseIndex writes the page over all cases that were run.
func writeCaseIndex(dir string, stories []*cases.Story) (err error) {
	f, err := os.Create(filepath.Join(dir, "index.html"))
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := caseIndex.Execute(f, stories); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

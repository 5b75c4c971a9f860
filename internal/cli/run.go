package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/internal/heap"
	"github.com/kubedyno/kubedyno/internal/progress"
	"github.com/kubedyno/kubedyno/internal/slack"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/run"
)

// runFlags are what `run` and everything that runs have in common.
type runFlags struct {
	nodes, podsPerNode  int
	claims              int
	pods, initPods      int
	rate                string
	profile             string
	sets                []string
	variant             string
	kubeconfig, context string
	seed                int64
	faults              []string
	seeded              bool     // that seed is a flag of the command
	variantSets         []string // the settings of the variant
	// params are values of flags of the experiment, whatever the command line says.
	params  map[string]string
	out     string
	observe observeFlags
}

func (f *runFlags) register(cmd *cobra.Command) {
	f.registerLoad(cmd)
	fs := cmd.Flags()
	fs.Lookup("nodes").Usage += "; with --kubeconfig: none, the existing nodes are used"
	fs.StringVar(&f.variant, "variant", "", "run this variant of the experiment: its settings apply before those of --set")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "use the existing cluster of this kubeconfig instead of starting a lab")
	fs.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current one)")
	fs.Int64Var(&f.seed, "seed", 0, "seed of every random choice (default: the experiment's)")
	f.observe.registerCluster(cmd)
	f.seeded = true
}

// registerLoad has the flags that say what a lab is and what is put on it.
func (f *runFlags) registerLoad(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&f.nodes, "nodes", 0, "number of hollow nodes (default: the experiment's)")
	fs.IntVar(&f.podsPerNode, "pods-per-node", 0, "pods per node of a built-in experiment (default: its own)")
	fs.IntVar(&f.pods, "pods", 0, "pods of a built-in experiment that counts them in all (default: its own)")
	fs.IntVar(&f.initPods, "init-pods", 0, "pods that a built-in experiment has bound before it begins (default: its own)")
	fs.StringVar(&f.rate, "rate", "", "pods, or claims, per second of a built-in experiment that has a rate, such as 20/s")
	fs.IntVar(&f.claims, "claims", 0, "claims of a built-in experiment that makes them (default: its own)")
	fs.StringVar(&f.profile, "profile", "", "component flags to start from: stock or tuned")
	fs.StringArrayVar(&f.sets, "set", nil, "change one setting, PATH=VALUE: <component>.args.<flag>, .env.<NAME>, .binary, .cpu, or a field of the experiment")
	fs.StringArrayVar(&f.faults, "fault", nil, "put something wrong on purpose, NAME, NAME=low|middle|high or NAME=VALUE; can be given again (see 'kubedyno fault list')")
	_ = cmd.RegisterFlagCompletionFunc("fault", completeFault)
	f.observe.registerLab(cmd)
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions([]string{"stock", "tuned"}, cobra.ShellCompDirectiveNoFileComp))
}

// paramFlags are those that are parameters of built-in experiments. All but the
// first are of those only.
var paramFlags = []string{"nodes", "pods-per-node", "pods", "init-pods", "claims", "rate"}

// existing reports whether an existing cluster is to be used.
func (f *runFlags) existing() bool { return f.kubeconfig != "" || f.context != "" }

// load reads the experiment and applies the flags. What it returns is checked.
func (f *runFlags) load(cmd *cobra.Command, name string) (*experiment.Experiment, error) {
	changed := cmd.Flags().Changed
	builtin := slices.Contains(builtinNames(), name)
	var e *experiment.Experiment
	var err error
	if builtin {
		if _, statErr := os.Stat(name); statErr == nil && strings.ContainsAny(name, "./") {
			builtin = false
		}
	}
	// The paths that flags stand for, so that a flag is checked, and refused,
	// in the same words as a --set.
	sets := slices.Clone(f.sets)
	if builtin {
		if f.variant != "" {
			return nil, fmt.Errorf("--variant: experiment %s has no variants", name)
		}
		p := experiment.Params{}
		for _, flag := range paramFlags {
			if changed(flag) || f.params[flag] != "" {
				if !hasParam(name, flag) {
					return nil, fmt.Errorf("--%s: experiment %s has no such parameter", flag, name)
				}
				p[flag] = cmp.Or(f.params[flag], cmd.Flags().Lookup(flag).Value.String())
			}
		}
		e, err = experiment.Builtin(name, p)
	} else {
		for _, flag := range paramFlags[1:] {
			if changed(flag) || f.params[flag] != "" {
				return nil, fmt.Errorf("--%s is for built-in experiments (%s); in a file, use --set phases.NAME.create…", flag, strings.Join(builtinNames(), ", "))
			}
		}
		if _, statErr := os.Stat(name); errors.Is(statErr, os.ErrNotExist) && !strings.ContainsAny(name, "./") {
			return nil, fmt.Errorf("no experiment %q: it is neither built in (%s) nor a file", name, strings.Join(builtinNames(), ", "))
		}
		if e, err = f.parse(name); err != nil {
			return nil, err
		}
		sets = append(slices.Clone(f.variantSets), sets...)
		if changed("nodes") || f.params["nodes"] != "" {
			sets = append(sets, "cluster.nodes="+cmp.Or(f.params["nodes"], strconv.Itoa(f.nodes)))
		}
	}
	if err != nil {
		return nil, err
	}
	return f.change(cmd, e, sets)
}

// change applies to an experiment what flags say. What it returns is checked.
func (f *runFlags) change(cmd *cobra.Command, e *experiment.Experiment, sets []string) (*experiment.Experiment, error) {
	changed := cmd.Flags().Changed
	if f.existing() {
		e.Cluster.Existing = true
		if !changed("nodes") {
			e.Cluster.Nodes.Hollow = 0
		}
	}
	if err := f.observe.apply(&e.Observe); err != nil {
		return nil, err
	}
	if f.profile != "" {
		sets = append(sets, "cluster.profile="+f.profile)
	}
	if f.seeded && changed("seed") {
		sets = append(sets, fmt.Sprintf("seed=%d", f.seed))
	}
	parsed, err := experiment.ParseSets(sets)
	if err != nil {
		return nil, err
	}
	for _, text := range f.faults {
		e.AddFault("--fault", text)
	}
	if err := e.Apply(parsed); err != nil {
		return nil, err
	}
	if err := fault.Inject(e, parsed); err != nil {
		return nil, err
	}
	if err := load.Check(e); err != nil {
		return nil, err
	}
	return e, e.Whole()
}

// parse reads an experiment file with the values that flags and the variant give
// to its variables.
func (f *runFlags) parse(name string) (*experiment.Experiment, error) {
	given, err := experiment.ParseSets(f.sets)
	if err != nil {
		return nil, err
	}
	o := experiment.Options{Existing: f.existing(), Variables: given.Variables()}
	e, err := experiment.ParseFileWith(name, o)
	if err != nil || f.variant == "" {
		return e, err
	}
	if f.variantSets, err = e.Variant(f.variant); err != nil {
		return nil, fmt.Errorf("--variant: %w", err)
	}
	// What is set by hand comes after what the variant sets.
	both, err := experiment.ParseSets(append(slices.Clone(f.variantSets), f.sets...))
	if err != nil {
		return nil, err
	}
	o.Variables = both.Variables()
	return experiment.ParseFileWith(name, o)
}

func newRunCommand(env *Env) *cobra.Command {
	var f runFlags
	var format string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run EXPERIMENT",
		Short: "Run an experiment and record everything about it",
		Long: `Run starts a real control plane with simulated nodes on this machine (or takes
the cluster of a kubeconfig), puts the experiment's load on it, and writes a
recording. EXPERIMENT is a built-in name or a file.

Exit codes: 0 fine; 1 failed or interrupted; 2 misused; 3 a declared objective
was missed; 4 the run is invalid, its numbers must not be used.`,
		Example: `  kubedyno run density --out r
  kubedyno run density --nodes 100 --pods-per-node 30 --profile tuned
  kubedyno run pvc-batch --claims 200
  kubedyno run density-direct --rate 50/s --set kube-apiserver.cpu=0.5
  kubedyno run my-experiment.yaml --kubeconfig ~/.kube/config --nodes 20`,
		Args: exactlyOne("EXPERIMENT", "a built-in name or a file; see 'kubedyno experiment list'"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, resultFormats...); err != nil {
				return err
			}
			e, err := f.load(cmd, args[0])
			if err != nil {
				return Misuse(err)
			}
			if dryRun {
				return explain(env, e)
			}
			if f.out == "" {
				f.out = e.Name + "-" + env.Now().UTC().Format("20060102T150405Z")
			}
			if err := performRun(cmd.Context(), env, &f, e, f.given(), f.out, ""); err != nil {
				return err
			}
			if format == "text" {
				if err := printEffects(env, f.out); err != nil {
					return err
				}
			}
			return summarise(env, format, f.out)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would happen, and do nothing")
	cmd.Flags().StringVar(&f.out, "out", "", "`folder` of the recording (default: the experiment's name and the time)")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "result as text, json, junit or gobench")
	completeFormats(cmd, resultFormats...)
	return cmd
}

// given is what the variant and the caller set, as it is kept with the
// recording. What is kept of the experiment has its variables filled in, so that
// setting them would no longer apply.
func (f *runFlags) given() []string {
	return slices.DeleteFunc(append(slices.Clone(f.variantSets), f.sets...), func(set string) bool { return strings.HasPrefix(set, "variables.") })
}

func hasParam(experimentName, param string) bool {
	for _, b := range experiment.Builtins() {
		if b.Name == experimentName {
			return slices.ContainsFunc(b.Params, func(p experiment.Param) bool { return p.Name == param })
		}
	}
	return false
}

// builtinNames are the experiments that need no file.
func builtinNames() []string {
	var names []string
	for _, b := range experiment.Builtins() {
		names = append(names, b.Name)
	}
	return names
}

// keepSmall bounds what collectors take of the machine that they measure, of
// which the metrics' head is what lives long. Until restore is called there is
// one processor for eight: collectors wake up a thousand times a second for a
// moment each: on several processors each time would wake a thread that looks
// for more work, which costs more than the work itself. For the same reason Go's
// runtime looks after them less often: see package slack.
func keepSmall() (restore func()) {
	heap.Bound()
	narrow := slack.Widen(timerSlack)
	if os.Getenv("GOMAXPROCS") != "" {
		return narrow
	}
	before := runtime.GOMAXPROCS(max(1, runtime.NumCPU()/8))
	return func() {
		narrow()
		runtime.GOMAXPROCS(before)
	}
}

// timerSlack is nothing to whoever looks at something a few times a second.
const timerSlack = time.Millisecond

// performRun runs one experiment with live progress on stderr.
func performRun(ctx context.Context, env *Env, f *runFlags, e *experiment.Experiment, sets []string, out, parent string) error {
	if f.kubeconfig == "" {
		if err := run.Check(ctx, e); err != nil {
			return labError(err) // before anything is said of a recording
		}
	}
	defer keepSmall()()
	bar := progress.New(env.Stderr, env.StderrTTY, env.Width, env.Now)
	defer bar.Done()
	bar.Note(fmt.Sprintf("recording to %s", out))
	err := run.Run(ctx, run.Options{
		Experiment: e,
		Settings:   sets,
		Out:        out,
		Parent:     parent,
		Existing:   f.existing(),
		Kubeconfig: f.kubeconfig,
		Context:    f.context,
		AuditLog:   f.observe.auditLog,
		ServerLog:  f.observe.serverLog,
		Executable: env.Executable,
		Tool:       Version(),
		Watch:      watch{bar},
		Log:        env.Log,
		Now:        env.Now,
	})
	if err == nil {
		_, err = record.Calibrate(out, calibrationFolder(env))
	}
	return errors.Join(err, keepEffects(e, out))
}

// watch shows a run's state on the terminal.
type watch struct{ bar *progress.Progress }

func (w watch) Phase(name string) { w.bar.Phase(name) }
func (w watch) Note(text string)  { w.bar.Note(text) }
func (w watch) Update(s run.State) {
	if s.EndsBound {
		s.Running = s.Bound
	}
	w.bar.Update(progress.State{
		Claims:    s.Claims,
		EndsBound: s.EndsBound,
		Total:     s.Total, Created: s.Created, Scheduled: s.Bound, Running: s.Running, Gone: s.Gone,
		ControlPlaneCores: s.ControlPlaneCores, OwnCores: s.OwnCores,
	})
}

// diagnoseFolder opens a recording and runs all detectors over it.
func diagnoseFolder(dir string) (*record.Recording, *diagnose.Diagnosis, error) {
	rec, err := openRecording(dir)
	if err != nil {
		return nil, nil, err
	}
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("diagnose %s: %w", dir, err), rec.Close())
	}
	return rec, d, nil
}

// openRecording opens a recording; one that is not there or not one is the
// caller's mistake.
func openRecording(dir string) (*record.Recording, error) {
	rec, err := record.Open(dir)
	if err != nil {
		return nil, Misuse(err)
	}
	return rec, nil
}

// summarise prints what a finished run says, and where to go from here. A
// bottleneck is for diagnose to answer with an exit code: the run did what it
// was asked to.
func summarise(env *Env, format, dir string) error {
	rec, d, err := diagnoseFolder(dir)
	if err != nil {
		return err
	}
	defer rec.Close()
	if isResult(format) {
		if err := report.WriteResults(env.Stdout, format, report.Result{Meta: rec.Meta(), Diagnosis: d}); err != nil {
			return err
		}
	} else if format == "json" {
		if err := report.WriteDiagnosis(env.Stdout, report.Options{Format: "json"}, d); err != nil {
			return err
		}
	} else if err := report.WriteSummary(env.Stdout, textOptions(env), rec.Meta(), d, filepath.Clean(dir)); err != nil {
		return err
	}
	if err := d.Err(); errors.Is(err, diagnose.ErrInvalid) {
		return &exitError{ExitInvalid, err}
	}
	for _, o := range d.Objectives {
		if o.Assessed && !o.Met {
			return &exitError{ExitBadNews, missed(o)}
		}
		if !o.Assessed {
			return &exitError{ExitBadNews, fmt.Errorf("objective %s is not assessed, and so not met: %s", o.Name, o.Reason)}
		}
	}
	return nil
}

// missed says by how much an objective was.
func missed(o record.Objective) error {
	bound := "at most"
	if o.Unit == "1/s" {
		bound = "at least"
	}
	if o.Value == 0 && o.Unit == "s" { // nothing came that would have a latency
		return fmt.Errorf("objective %s is missed: %s; %s %.3g s was asked for", o.Name, o.Reason, bound, o.Limit)
	}
	text := fmt.Sprintf("objective %s is missed: %.3g %s, %s %.3g was asked for", o.Name, o.Value, o.Unit, bound, o.Limit)
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	return errors.New(text)
}

func textOptions(env *Env) report.Options {
	return report.Options{Format: "text", Color: env.StdoutTTY && env.Getenv("NO_COLOR") == "", Width: env.Width()}
}

// checkFormat refuses an output format that a command does not have.
func checkFormat(format string, valid ...string) error {
	if slices.Contains(valid, format) {
		return nil
	}
	return Misusef("output format %q: want %s", format, strings.Join(valid, " or "))
}

// exactlyOne requires one argument and says what it is when it is missing.
func exactlyOne(name, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 1:
			return nil
		case len(args) == 0:
			return Misusef("%s needs %s: %s", cmd.CommandPath(), name, hint)
		}
		return Misusef("%s takes one %s, not %d: %s", cmd.CommandPath(), name, len(args), strings.Join(args, " "))
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/progress"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/run"
)

// overheadFlags say what stands on the machine, how often and how long it is
// looked at.
type overheadFlags struct {
	rounds         int
	window, settle time.Duration
	instead        []string
	whole          bool
	out, from      string
	format         string
}

func newOverheadCommand(env *Env) *cobra.Command {
	var f overheadFlags
	var r runFlags
	cmd := &cobra.Command{
		Use:   "overhead [EXPERIMENT] | overhead -- COMMAND [ARGUMENT…]",
		Short: "Measure what an idle cluster, or a command, costs this machine",
		Long: `Overhead looks at this machine with nothing, with etcd, with the API server on
top, and so on up to the whole cluster of EXPERIMENT (default: idle, with one
node) and its actors as add-ons. Each layer is looked at once a round, up and
down in turns, on a fresh control plane. The result is CPU-seconds a second, for
each process and for the whole machine, minus the machine without it, with an
interval; wakeups; steal and iowait apart; and the cluster paused. The whole is
measured apart from the layers too, and they must add up to it.

--instead measures the whole with other settings too, and what they save.
After -- it is a command that is measured, with all that it starts.

Exit codes: 0 fine; 1 failed or interrupted; 2 misused; 4 the numbers do not add
up and must not be used.`,
		Example: `  kubedyno overhead
  kubedyno overhead --rounds 6 --for 30s --out idle-cost
  kubedyno overhead examples/addon-manager.yaml --instead actors.addon-manager.do=apply-on-change
  kubedyno overhead --instead kube-scheduler.args.leader-elect=false,kube-controller-manager.args.leader-elect=false
  kubedyno overhead -- minikube start --driver none
  kubedyno overhead --from idle-cost -o csv`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format, tableFormats...); err != nil {
				return err
			}
			if f.from != "" {
				if len(args) > 0 {
					return Misusef("--from reads what was measured before: nothing else can be named beside it")
				}
				return printOverhead(env, f.format, f.from)
			}
			return f.measure(cmd, env, &r, args)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.rounds, "rounds", 4, "how often each layer is looked at; an interval needs 2, and is short from 4 on")
	fs.DurationVar(&f.window, "for", 15*time.Second, "how long a layer is looked at in one round")
	fs.DurationVar(&f.settle, "settle", 15*time.Second, "how long a layer is left alone before that")
	fs.StringArrayVar(&f.instead, "instead", nil, "measure the whole with this setting too, `PATH=VALUE[,PATH=VALUE…]`; repeatable")
	fs.BoolVar(&f.whole, "whole", false, "only with and without the cluster, not its layers")
	fs.StringVar(&f.out, "out", "", "`folder` of the recording (default: overhead and the time)")
	fs.StringVar(&f.from, "from", "", "print what was measured into this `folder` before")
	fs.StringVarP(&f.format, "output", "o", "text", "format: text, csv or json")
	completeFormats(cmd, tableFormats...)
	_ = cmd.MarkFlagDirname("from")
	fs.IntVar(&r.nodes, "nodes", 1, "number of hollow nodes")
	fs.StringVar(&r.profile, "profile", "", "component flags to start from: stock or tuned")
	fs.StringArrayVar(&r.sets, "set", nil, "change one setting, PATH=VALUE, as in 'kubedyno run'")
	fs.StringArrayVar(&r.faults, "fault", nil, "put something wrong on purpose (see 'kubedyno fault list')")
	_ = cmd.RegisterFlagCompletionFunc("fault", completeFault)
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions([]string{"stock", "tuned"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// measure makes the recording, and prints what it says.
func (f *overheadFlags) measure(cmd *cobra.Command, env *Env, r *runFlags, args []string) error {
	switch {
	case f.rounds < 1:
		return Misusef("--rounds %d: at least 1 is needed", f.rounds)
	case f.window < time.Second:
		return Misusef("--for %v: CPU times have steps of 10 ms; look for 1s at least", f.window)
	case f.settle < 0:
		return Misusef("--settle %v: cannot be negative", f.settle)
	}
	subject, err := f.subject(cmd, r, args)
	if err != nil {
		return err
	}
	if err := subject.check(cmd.Context()); err != nil {
		return err
	}
	if f.out == "" {
		f.out = "overhead-" + env.Now().UTC().Format("20060102T150405Z")
	}
	defer keepSmall()()
	bar := progress.New(env.Stderr, env.StderrTTY, env.Width, env.Now)
	defer bar.Done()
	standing, err := run.StartStanding(cmd.Context(), run.Options{
		Out: f.out, Executable: env.Executable, Tool: Version(), Settings: append(r.given(), subject.faults...),
		Watch: quietly{watch{bar}}, Log: env.Log, Now: env.Now,
	}, "overhead")
	if err != nil {
		return err
	}
	bar.Note("recording to " + f.out)
	subject.plan.Rounds = f.rounds
	pace := &pacing{env: env, bar: bar}
	_, err = campaign.Overhead(cmd.Context(), campaign.OverheadOptions{
		Plan: subject.plan, Settle: f.settle, Window: f.window, Out: f.out,
		Stand: func(ctx context.Context, s compare.Stack, while func(context.Context) error) error {
			return subject.stand(ctx, standing, s, while)
		},
		Pause: standing.Pause,
		Tell: func(s compare.Stack, round, n, of int) {
			name := "the machine without anything"
			if s.Role != compare.Without && s.Role != compare.Bare {
				name = s.Name
			}
			pace.tell(fmt.Sprintf("round %d of %d: %s", round, f.rounds, name), n, of)
		},
		Now: env.Now,
	})
	if err := errors.Join(err, standing.Finish(err)); err != nil {
		if complete, rerr := compare.ReadOverhead(f.out); rerr == nil && complete.Rounds > 0 {
			err = fmt.Errorf("%w; what was measured until then: kubedyno overhead --from %s", err, f.out)
		}
		return err
	}
	bar.Done()
	return printOverhead(env, f.format, f.out)
}

// quietly leaves out the notes of control planes that come and go.
type quietly struct{ watch }

func (quietly) Note(string) {}

// pacing says how far a campaign has come, and when it will be over.
type pacing struct {
	env   *Env
	bar   *progress.Progress
	began time.Time
}

// tell says that step n of a number of them begins.
func (p *pacing) tell(text string, n, of int) {
	now := p.env.Now()
	if n == 1 {
		p.began = now
	}
	eta := ""
	if n > 1 {
		left := now.Sub(p.began) / time.Duration(n-1) * time.Duration(of-n+1)
		eta = fmt.Sprintf(", ETA %v", left.Round(time.Second))
	}
	p.bar.Note(fmt.Sprintf("%3d/%d  %s%s", n, of, text, eta))
}

// An overheadSubject is what is measured.
type overheadSubject struct {
	plan    compare.OverheadPlan
	argv    []string                 // of a command
	cluster *experiment.Experiment   // or what has a cluster
	instead []*experiment.Experiment // by the number of its stack
	faults  []string
}

func (f *overheadFlags) subject(cmd *cobra.Command, r *runFlags, args []string) (*overheadSubject, error) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		switch {
		case at > 0:
			return nil, Misusef("%s and a command exclude each other", strings.Join(args[:at], " "))
		case len(args) == 0:
			return nil, Misusef("-- needs a command")
		case len(f.instead) > 0 || f.whole || len(r.sets)+len(r.faults) > 0 || cmd.Flags().Changed("nodes") || r.profile != "":
			return nil, Misusef("a command has neither layers nor settings: --instead, --whole, --set, --fault, --nodes and --profile are for clusters")
		}
		// The whole command line may hold secrets.
		s := &overheadSubject{argv: args, plan: compare.OverheadPlan{Of: filepath.Base(args[0]), Command: true}}
		s.plan.Stacks = []compare.Stack{{Name: "without", Role: compare.Without}, {Name: s.plan.Of, Role: compare.Layered}}
		if s.plan.Of == "without" {
			s.plan.Stacks[1].Name = "command"
		}
		return s, nil
	}
	if len(args) > 1 {
		return nil, Misusef("overhead takes one EXPERIMENT, not %d: %s; a command comes after --", len(args), strings.Join(args, " "))
	}
	name := "idle"
	if len(args) == 1 {
		name = args[0]
	}
	load := func(more []string) (*experiment.Experiment, error) {
		own := *r
		if !cmd.Flags().Changed("nodes") && name == "idle" {
			own.sets = append([]string{fmt.Sprintf("cluster.nodes=%d", r.nodes)}, r.sets...)
		}
		own.sets = append(slices.Clone(own.sets), more...)
		e, err := own.load(cmd, name)
		if err != nil {
			return nil, Misuse(err)
		}
		return e, nil
	}
	e, err := load(nil)
	if err != nil {
		return nil, err
	}
	s := &overheadSubject{cluster: e, plan: compare.OverheadPlan{Of: e.Name}}
	for _, fault := range r.faults {
		s.faults = append(s.faults, "fault="+fault)
	}
	layers := run.Layers(e)
	if f.whole {
		layers = []run.Layer{layers[0], layers[len(layers)-1]}
	}
	for _, l := range layers[1:] {
		s.plan.Stacks = append(s.plan.Stacks, compare.Stack{Name: string(l), Role: compare.Layered})
	}
	s.plan.Stacks = slices.Insert(s.plan.Stacks, 0, compare.Stack{Name: "without", Role: compare.Without})
	if !f.whole {
		s.plan.Stacks = append(s.plan.Stacks, compare.Stack{Name: "whole", Role: compare.Whole})
	}
	for i, sets := range f.instead {
		more := splitSets(sets)
		other, err := load(more)
		if err != nil {
			return nil, err
		}
		s.instead = append(s.instead, other)
		s.plan.Stacks = append(s.plan.Stacks, compare.Stack{Name: fmt.Sprintf("instead %d", i+1), Role: compare.Instead, Set: more})
	}
	if !f.whole {
		s.plan.Stacks = append(s.plan.Stacks, compare.Stack{Name: "without again", Role: compare.Bare})
	}
	// Actors are no part of what is frozen, and would wait for an answer.
	frozen := layers[len(layers)-1]
	if frozen == run.LayerAddons && len(layers) > 2 {
		frozen = layers[len(layers)-2]
	}
	if frozen != run.LayerAddons {
		s.plan.Stacks = append(s.plan.Stacks, compare.Stack{Name: "paused", Role: compare.Paused, Of: string(frozen)})
	}
	return s, nil
}

// splitSets divides settings at commas that begin another PATH=VALUE.
func splitSets(text string) []string {
	var sets []string
	for _, part := range strings.Split(text, ",") {
		path, _, is := strings.Cut(part, "=")
		if is && len(sets) > 0 && !strings.ContainsAny(path, " {}[]:") && strings.Contains(path, ".") || len(sets) == 0 {
			sets = append(sets, part)
			continue
		}
		sets[len(sets)-1] += "," + part
	}
	return sets
}

// check refuses clusters that could not be started, before any is.
func (s *overheadSubject) check(ctx context.Context) error {
	if s.argv != nil {
		return nil
	}
	if err := run.Check(ctx, s.cluster); err != nil {
		return err
	}
	for i, e := range s.instead {
		if err := run.Check(ctx, e); err != nil {
			return fmt.Errorf("instead %d: %w", i+1, err)
		}
	}
	return nil
}

// stand builds up what a stack says.
func (s *overheadSubject) stand(ctx context.Context, on *run.Standing, stack compare.Stack, while func(context.Context) error) error {
	if stack.Role == compare.Without || stack.Role == compare.Bare {
		return on.Lab(ctx, s.cluster, run.LayerNothing, while)
	}
	if s.argv != nil {
		return on.Command(ctx, s.argv, while)
	}
	e, layer := s.cluster, run.Layer(stack.Name)
	switch stack.Role {
	case compare.Whole, compare.Instead:
		if stack.Role == compare.Instead {
			n := 0
			_, _ = fmt.Sscanf(stack.Name, "instead %d", &n)
			e = s.instead[n-1]
		}
		all := run.Layers(e)
		layer = all[len(all)-1]
	}
	return on.Lab(ctx, e, layer, while)
}

// overheadNumber is one number of an overhead, for programs.
type overheadNumber struct {
	Kind  string  `json:"kind"` // total, layer, apart, paused, instead, check, machine, process
	Name  string  `json:"name"`
	Owner string  `json:"owner"` // of a process: cluster, kernel, observer, others
	What  string  `json:"what"`  // with, without, more, step, saved, wakeups
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Low   string  `json:"low"` // of the 95 % interval; empty: none
	High  string  `json:"high"`
	N     int     `json:"n"`
}

// overheadIn reads what a folder says.
func overheadIn(dir string) (*compare.Overhead, error) {
	o, err := compare.ReadOverhead(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*record.LiveError)) {
			return nil, Misuse(err)
		}
		return nil, err
	}
	if o.Rounds == 0 {
		return nil, fmt.Errorf("%s: not assessed: no round was finished", dir)
	}
	return o, nil
}

// printOverhead prints what a folder says.
func printOverhead(env *Env, format, dir string) error {
	o, err := overheadIn(dir)
	if err != nil {
		return err
	}
	if format == "csv" {
		err = overheadTable(o).csv(env)
	} else {
		opts := textOptions(env)
		opts.Format = format
		err = report.WriteOverhead(env.Stdout, opts, o)
	}
	if err != nil {
		return err
	}
	if err := o.Err(); err != nil {
		return &exitError{ExitInvalid, err}
	}
	return nil
}

func overheadTable(o *compare.Overhead) *textTable {
	t := &textTable{}
	add := func(kind, name, owner, what, unit string, e compare.Average) {
		if e.N == 0 {
			return
		}
		n := overheadNumber{Kind: kind, Name: name, Owner: owner, What: what, Value: e.Value, Unit: unit, N: e.N}
		if e.Interval != nil {
			n.Low, n.High = fmt.Sprint(e.Interval.Lo), fmt.Sprint(e.Interval.Hi)
		}
		t.add(n)
	}
	const cores, wakeups = "cores", "1/s"
	add("total", o.Of, "", "more", cores, o.Total)
	for _, l := range o.Layers {
		add("layer", l.Name, "", "with", cores, l.Cores)
		add("layer", l.Name, "", "step", cores, l.Step)
		add("layer", l.Name, "", "wakeups", wakeups, l.Wakeups)
	}
	if o.Apart != nil {
		add("apart", o.Of, "", "more", cores, *o.Apart)
	}
	if o.Paused != nil {
		add("paused", o.Paused.Name, "", "more", cores, o.Paused.Cores)
		add("paused", o.Paused.Name, "", "saved", cores, o.Paused.Saved)
	}
	for _, a := range o.Instead {
		add("instead", strings.Join(a.Set, " "), "", "more", cores, a.Cores)
		add("instead", strings.Join(a.Set, " "), "", "saved", cores, a.Saved)
	}
	for _, c := range o.Checks {
		add("check", c.Name, "", "difference", cores, c.Difference)
	}
	for _, m := range o.Modes {
		add("machine", m.Name, "", "without", cores, m.Without)
		add("machine", m.Name, "", "with", cores, m.With)
		add("machine", m.Name, "", "more", cores, m.Difference)
	}
	for _, p := range o.Processes {
		add("process", p.Name, p.Owner, "without", cores, p.Without)
		add("process", p.Name, p.Owner, "with", cores, p.With)
		add("process", p.Name, p.Owner, "more", cores, p.Difference)
		add("process", p.Name, p.Owner, "wakeups", wakeups, p.Wakeups)
	}
	return t
}

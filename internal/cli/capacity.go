package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/campaign"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/run"
)

// capacityFlags say what is turned up, and how far.
type capacityFlags struct {
	slos    []string
	find    string
	between []float64
	within  float64
	probes  int
	length  time.Duration
	cores   []float64
	hold    float64
	read    string
	format  string
}

func newCapacityCommand(env *Env) *cobra.Command {
	var f capacityFlags
	var r runFlags
	cmd := &cobra.Command{
		Use:   "capacity EXPERIMENT",
		Short: "Find the highest load that a cluster carries within objectives",
		Long: `Capacity runs an experiment at one load after another and narrows down the
highest one that keeps all objectives. Runs near the edge pass once and fail
another time: the next load is always the one whose outcome tells most, and the
answer has an interval. An experiment that asks for everything at once, such as
density, is run several times instead: the rate at which it is worked off is what
the cluster carries.

--find says what is turned up: rate (pods a second), pods-per-node, nodes, or the
PATH of any number of the experiment. --slo adds objectives: INDICATOR, a
quantile, and a limit. With --cores the control plane is held to so many CPUs
together, each in turn, and a ladder says what more of them would carry; --hold
keeps one of these out of it, to see whether it is predicted.

Exit codes: 0 fine; 1 failed or interrupted; 2 misused; 3 not even the lowest
load keeps the objectives; 4 the runs are invalid.`,
		Example: `  kubedyno capacity density-direct --slo 'pod-startup p99 <= 5s' --nodes 20
  kubedyno capacity density --slo 'intent-latency <= 30s' --find pods-per-node
  kubedyno capacity density --profile tuned --cores 0.4,0.6,0.8,1.0,1.2 --hold 1.0
  kubedyno capacity my-experiment.yaml --find phases.load.create.replicas --between 100,5000
  kubedyno capacity --from density-capacity`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format, tableFormats...); err != nil {
				return err
			}
			switch {
			case f.read != "" && len(args) > 0:
				return Misusef("--from reads what was found before: %s cannot be run beside it", args[0])
			case f.read != "":
				return printCapacity(env, f.format, f.read)
			case len(args) == 0:
				return Misusef("capacity needs EXPERIMENT: a built-in name or a file; see 'kubedyno experiment list'")
			}
			return f.seek(cmd, env, &r, args[0])
		},
	}
	r.register(cmd)
	fs := cmd.Flags()
	fs.StringArrayVar(&f.slos, "slo", nil, "objective, such as 'pod-startup p99 <= 5s', 'intent-latency <= 30s' (of the last pod) or 'throughput >= 50/s'; repeatable (default: the experiment's, else pod-startup p99 <= 5s)")
	fs.StringVar(&f.find, "find", "rate", "what to turn up: rate, pods-per-node, nodes, or a `PATH` of the experiment")
	fs.Float64SliceVar(&f.between, "between", nil, "lowest and highest load to try (default: rate 1,500; pods-per-node 1,250; nodes 1,1000)")
	fs.Float64Var(&f.within, "within", 0.1, "how close the capacity is to be known, as a share of it")
	fs.IntVar(&f.probes, "probes", 0, "most runs of a search, for each of --cores (default: 16); where all is asked for at once, how many there are (default: 3)")
	fs.DurationVar(&f.length, "for", 30*time.Second, "how long pods come at a rate")
	fs.Float64SliceVar(&f.cores, "cores", nil, "CPUs that the control plane's components have together, one or more")
	fs.Float64Var(&f.hold, "hold", 0, "one of --cores that the ladder has to predict")
	fs.StringVar(&r.out, "out", "", "`folder` for the recordings (default: EXPERIMENT-capacity and the time)")
	fs.StringVar(&f.read, "from", "", "print what was found into this `folder` before")
	fs.StringVarP(&f.format, "output", "o", "text", "format: text, csv or json")
	completeFormats(cmd, tableFormats...)
	_ = cmd.MarkFlagDirname("from")
	_ = cmd.RegisterFlagCompletionFunc("find", cobra.FixedCompletions([]string{"rate", "pods-per-node", "nodes"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var sloText = regexp.MustCompile(`^([a-z][a-z-]*)(?:[ :.]+(p[0-9.]+|max|last))? *(<=|>=) *(\S+)$`)

// parseSLO reads an objective.
func parseSLO(text string) (o experiment.Objective, err error) {
	m := sloText.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return o, fmt.Errorf("--slo %q: want INDICATOR, a quantile and a limit, such as 'pod-startup p99 <= 5s' or 'throughput >= 50/s'", text)
	}
	o.Indicator = experiment.Indicator(m[1])
	switch o.Indicator {
	case experiment.PodStartup:
		o.Quantile = 0.99
	case experiment.IntentLatency, experiment.ClaimBound:
		o.Quantile = 1
	case experiment.Throughput, experiment.ClaimFailures:
	default:
		return o, fmt.Errorf("--slo %q: no indicator is named %s; there are pod-startup, intent-latency, throughput, claim-bound, claim-failures", text, m[1])
	}
	o.Name = m[1]
	if m[2] != "" {
		if o.Quantile == 0 {
			return o, fmt.Errorf("--slo %q: %s has no quantiles", text, m[1])
		}
		o.Name += "-" + m[2]
		o.Quantile = 1
		if q, isP := strings.CutPrefix(m[2], "p"); isP {
			percent, err := strconv.ParseFloat(q, 64)
			if err != nil || percent <= 0 || percent > 100 {
				return o, fmt.Errorf("--slo %q: %s is no percentile", text, m[2])
			}
			o.Quantile = percent / 100
		}
	}
	least := o.Indicator == experiment.Throughput
	if (m[3] == ">=") != least {
		return o, fmt.Errorf("--slo %q: a %s is to be %s its limit", text, m[1], map[bool]string{true: "at least (>=)", false: "at most (<=)"}[least])
	}
	switch {
	case least:
		o.Limit.Unit = "1/s"
		o.Limit.Value, err = strconv.ParseFloat(strings.TrimSuffix(m[4], "/s"), 64)
	case o.Indicator == experiment.ClaimFailures:
		o.Limit.Unit = "1"
		o.Limit.Value, err = strconv.ParseFloat(m[4], 64)
	default:
		var d time.Duration
		d, err = time.ParseDuration(m[4])
		o.Limit = experiment.Limit{Value: d.Seconds(), Unit: "s"}
	}
	if err != nil || o.Limit.Value < 0 {
		return o, fmt.Errorf("--slo %q: the limit %s is no %s", text, m[4], map[string]string{"s": "duration such as 5s", "1/s": "rate such as 50/s", "1": "number"}[o.Limit.Unit])
	}
	return o, nil
}

// seek finds the capacity and prints it.
func (f *capacityFlags) seek(cmd *cobra.Command, env *Env, r *runFlags, name string) error {
	o, err := f.options(cmd, r, name)
	if err != nil {
		return Misuse(err)
	}
	if r.out == "" {
		r.out = o.Plan.Experiment + "-capacity-" + env.Now().UTC().Format("20060102T150405Z")
	}
	o.Out, o.Now = r.out, env.Now
	o.Tell = &capacityTeller{env: env, unit: o.Plan.Unit}
	o.Check = run.Check
	o.Run = func(ctx context.Context, e *experiment.Experiment, settings []string, dir, parent string) error {
		return performRun(ctx, env, r, e, settings, dir, parent)
	}
	c, err := campaign.Capacity(cmd.Context(), o)
	switch {
	case errors.Is(err, campaign.ErrNotEmpty), errors.Is(err, campaign.ErrOtherSeries):
		return Misuse(err)
	case errors.Is(err, campaign.ErrNotHealthy), errors.Is(err, campaign.ErrManyBad), errors.Is(err, diagnose.ErrInvalid):
		return &exitError{ExitInvalid, err}
	case err != nil:
		if c != nil && len(c.At) > 0 {
			err = fmt.Errorf("%w; what was found until then: kubedyno capacity --from %s", err, r.out)
		}
		return err
	}
	return printCapacity(env, f.format, r.out)
}

// turned is what a name of --find changes in an experiment.
type turned struct {
	unit     string
	from, to float64
	step     float64
	// sets are the settings of a load; flag is the parameter of a built-in
	// experiment that is it.
	sets func(load float64) []string
	flag string
}

// options works out what is turned up.
func (f *capacityFlags) options(cmd *cobra.Command, r *runFlags, name string) (o campaign.CapacityOptions, err error) {
	switch {
	case f.within <= 0 || f.within >= 1:
		return o, fmt.Errorf("--within %g: want a share such as 0.1", f.within)
	case f.probes < 0:
		return o, fmt.Errorf("--probes %d: cannot be negative", f.probes)
	case len(f.between) != 0 && (len(f.between) != 2 || f.between[0] <= 0 || f.between[1] <= f.between[0]):
		return o, fmt.Errorf("--between %v: want the lowest and the highest load, such as 5,200", f.between)
	case len(f.cores) > 0 && r.existing():
		return o, errors.New("--cores: only a lab's control plane can be held to a number of CPUs")
	case f.hold != 0 && !slices.Contains(f.cores, f.hold):
		return o, fmt.Errorf("--hold %g is none of --cores", f.hold)
	case f.length < time.Second:
		return o, fmt.Errorf("--for %v: want 1s at least", f.length)
	}
	var slos []experiment.Objective
	for _, text := range f.slos {
		slo, err := parseSLO(text)
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(slos, func(x experiment.Objective) bool { return x.Name == slo.Name }) {
			return o, fmt.Errorf("--slo %q: there is an objective of %s already", text, slo.Name)
		}
		slos = append(slos, slo)
	}
	e, err := r.load(cmd, name)
	if err != nil {
		return o, err
	}
	t, saturated, err := f.turn(e, name)
	if err != nil {
		return o, err
	}
	if len(f.between) == 2 {
		t.from, t.to = f.between[0], f.between[1]
	} else if t.to == 0 && !saturated {
		return o, fmt.Errorf("--find %s: say between which loads, with --between LOWEST,HIGHEST", f.find)
	}
	o.Plan = compare.Capacity{Experiment: e.Name, Find: f.find, Unit: t.unit, Saturated: saturated}
	o.From, o.To, o.Step, o.Within, o.Cores, o.Hold = t.from, t.to, t.step, f.within, f.cores, f.hold
	o.Probes = f.probes
	if o.Probes == 0 {
		o.Probes = 16
		if saturated {
			o.Probes = 3
		}
	}
	if len(o.Cores) == 0 {
		o.Cores = []float64{0}
	}
	o.Experiment = func(load, cores float64) (*experiment.Experiment, []string, error) {
		own := *r
		own.sets = slices.Clone(r.sets)
		if !saturated {
			if t.flag != "" {
				if err := cmd.Flags().Set(t.flag, strconv.FormatFloat(load, 'f', -1, 64)); err != nil {
					return nil, nil, err
				}
			} else {
				own.sets = append(own.sets, t.sets(load)...)
			}
		}
		if cores > 0 {
			own.sets = append(own.sets, fmt.Sprintf("cluster.cpu=%g", cores))
		}
		e, err := own.load(cmd, name)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case len(slos) > 0:
			e.Objectives = slices.Clone(slos)
		case len(e.Objectives) == 0 && !saturated:
			slo, err := parseSLO("pod-startup <= 5s")
			if err != nil {
				return nil, nil, err
			}
			e.Objectives = []experiment.Objective{slo}
		}
		return e, own.given(), nil
	}
	first, _, err := o.Experiment(t.from, o.Cores[0])
	if err != nil {
		return o, err
	}
	for _, x := range first.Objectives {
		o.Plan.Objectives = append(o.Plan.Objectives, record.Objective{Name: x.Name, Indicator: string(x.Indicator), Quantile: x.Quantile, Limit: x.Limit.Value, Unit: x.Limit.Unit})
	}
	return o, nil
}

// turn says what --find changes. saturated is where a rate is asked for and the
// experiment has none, as it asks for everything at once.
func (f *capacityFlags) turn(e *experiment.Experiment, name string) (t turned, saturated bool, err error) {
	builtin := slices.Contains(builtinNames(), name)
	switch f.find {
	case "pods-per-node", "nodes":
		t = turned{unit: "pods/node", from: 1, to: 250, step: 1, flag: f.find}
		if f.find == "nodes" {
			t.unit, t.to = "nodes", 1000
		}
		if builtin && hasParam(name, f.find) {
			return t, false, nil
		}
		if f.find == "nodes" {
			t.flag, t.sets = "", func(x float64) []string { return []string{fmt.Sprintf("cluster.nodes=%.0f", x)} }
			return t, false, nil
		}
		return t, false, fmt.Errorf("--find pods-per-node: %s has no such parameter; name the field with --find phases.NAME.create.replicas", name)
	case "rate":
		for _, p := range experiment.Flat(e.Plan()) {
			if p.Kind != experiment.KindSteady || p.Create == nil {
				continue
			}
			if p.Create.Rate.PerSecond <= 0 {
				return turned{unit: "pods/s"}, true, nil
			}
			return turned{unit: f.rateUnit(p), from: 1, to: 500, sets: func(x float64) []string {
				return f.atRate(e, p, x)
			}}, false, nil
		}
		return t, false, fmt.Errorf("--find rate: %s makes nothing in a steady phase", name)
	}
	return turned{unit: f.find, step: 1, sets: func(x float64) []string { return []string{fmt.Sprintf("%s=%.0f", f.find, x)} }}, false, nil
}

func (f *capacityFlags) rateUnit(p experiment.Step) string {
	if o := p.Makes(); o != nil && o.KindName() == string(experiment.Pod) {
		return "pods/s"
	}
	return "operations/s"
}

// atRate makes a phase create at a rate for as long as was asked for, and gives
// nodes room for what then comes.
func (f *capacityFlags) atRate(e *experiment.Experiment, p experiment.Step, rate float64) []string {
	sets := []string{fmt.Sprintf("phases.%s.create.rate=%.4g/s", p.Name, rate)}
	count := max(1, int(math.Ceil(rate*f.length.Seconds())))
	sets = append(sets, fmt.Sprintf("phases.%s.create.count=%d", p.Name, count))
	each := 1
	if p.Operations > 0 {
		each = max(1, p.Adds/p.Operations)
	}
	if n := e.Cluster.Nodes.Hollow; n > 0 {
		if need := count*each/n + 20; need > e.Cluster.Node.Pods {
			sets = append(sets, fmt.Sprintf("cluster.node.pods=%d", need))
		}
	}
	return sets
}

// capacityTeller says how the search goes.
type capacityTeller struct {
	env   *Env
	unit  string
	began time.Time
}

func (t *capacityTeller) Probing(cores, load float64, n, most int, known string) {
	text := fmt.Sprintf("run %d of %d at most: %.4g %s", n+1, most, load, t.unit)
	if cores > 0 {
		text += fmt.Sprintf(", %g cores", cores)
	}
	if known != "" {
		text += "; " + known
	}
	if n == 0 {
		t.began = t.env.Now()
	} else {
		each := t.env.Now().Sub(t.began) / time.Duration(n)
		text += fmt.Sprintf("; ETA %v at most", (each * time.Duration(most-n)).Round(time.Second))
	}
	fmt.Fprintln(t.env.Stderr, text)
}

func (t *capacityTeller) Probed(_ float64, p compare.Probe) {
	text := fmt.Sprintf("  %.4g %s: kept", p.Load, t.unit)
	switch {
	case !p.Valid:
		text = fmt.Sprintf("  %.4g %s: does not count: %s", p.Load, t.unit, p.Why)
	case !p.Passed:
		text = fmt.Sprintf("  %.4g %s: missed: %s", p.Load, t.unit, p.Why)
	}
	fmt.Fprintln(t.env.Stderr, text)
}

func (t *capacityTeller) Starting(s campaign.SeriesStep) {
	text := fmt.Sprintf("run %d, repetition %d of %d: %s", s.Run, s.Block, s.Blocks, s.Arm)
	if s.Left > 0 {
		text += fmt.Sprintf("; ETA %v", s.Left.Round(time.Second))
	}
	fmt.Fprintln(t.env.Stderr, text)
}

func (t *capacityTeller) Ran(r campaign.SeriesRun) {
	if r.Why != "" {
		fmt.Fprintf(t.env.Stderr, "  does not count: %s\n", r.Why)
	}
}

// capacityNumber is one number of a capacity, for programs.
type capacityNumber struct {
	Kind  string  `json:"kind"` // capacity, probe, demand, bound, rung, held
	Cores float64 `json:"cores"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Low   string  `json:"low"` // of the interval; empty: none
	High  string  `json:"high"`
	N     int     `json:"n"`
	Note  string  `json:"note"`
}

// printCapacity prints what a folder says.
func printCapacity(env *Env, format, dir string) error {
	c, err := compare.ReadCapacity(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Misuse(err)
		}
		return err
	}
	if format == "csv" {
		err = capacityTable(c).csv(env)
	} else {
		opts := textOptions(env)
		opts.Format = format
		err = report.WriteCapacity(env.Stdout, opts, c)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(c.At, func(at compare.CapacityAt) bool { return at.Beyond < 0 }) {
		return silently(ExitBadNews)
	}
	return nil
}

func capacityTable(c *compare.Capacity) *textTable {
	t := &textTable{}
	add := func(kind string, cores float64, name string, a compare.Average, unit, note string) {
		n := capacityNumber{Kind: kind, Cores: cores, Name: name, Value: a.Value, Unit: unit, N: a.N, Note: note}
		if a.Interval != nil {
			n.Low, n.High = fmt.Sprint(a.Interval.Lo), fmt.Sprint(a.Interval.Hi)
		}
		t.add(n)
	}
	for _, at := range c.At {
		note := map[int]string{1: "more than the highest that was tried", -1: "less than the lowest that was tried"}[at.Beyond]
		add("capacity", at.Cores, c.Find, compare.Average{Value: at.Value, Interval: at.Interval, N: at.N}, c.Unit, note)
		for _, p := range at.Probes {
			passed := "kept"
			if !p.Passed {
				passed = p.Why
			}
			if !c.Saturated {
				add("probe", at.Cores, p.Recording, compare.Average{Value: p.Load, N: 1}, c.Unit, passed)
			}
			add("rate", at.Cores, p.Recording, compare.Average{Value: p.Rate, N: 1}, "pods/s", passed)
		}
		for _, d := range at.Demands {
			add("demand", at.Cores, d.Name, d.Each, d.Unit, "")
			if d.Bound.N > 0 {
				add("bound", at.Cores, d.Name, d.Bound, "pods/s", "computed")
			}
		}
	}
	if l := c.Ladder; l != nil {
		for _, h := range l.Held {
			add("held", h.Cores, "computed", compare.Average{Value: h.Rate, Interval: h.Interval, N: l.N}, "pods/s", "computed")
			add("held", h.Cores, "measured", h.Measured, "pods/s", "")
		}
		for _, r := range l.Rungs {
			note := "computed"
			if r.Capped {
				note += "; " + l.Next + " binds first"
			}
			add("rung", r.Cores, "control plane", compare.Average{Value: r.Rate, Interval: r.Interval, N: l.N}, "pods/s", note)
		}
	}
	return t
}

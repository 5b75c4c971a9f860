package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// stretchFlags say which part of a recording is meant.
type stretchFlags struct {
	component, phase string
	from, to         time.Duration
}

func (f *stretchFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.component, "component", "", "only this component; \"none\" is what ran beside the run")
	cmd.Flags().StringVar(&f.phase, "phase", "", "only this phase of the run")
	cmd.Flags().DurationVar(&f.from, "from", 0, "only from here on, as 10s after the start of the run, or of the phase (stacks)")
	cmd.Flags().DurationVar(&f.to, "to", 0, "only up to here (stacks)")
	_ = cmd.RegisterFlagCompletionFunc("component", completeFrom(func(rec *record.Recording) (names []string) {
		for _, c := range rec.Components() {
			names = append(names, c.Name)
		}
		return append(names, functions.NoComponent)
	}))
	_ = cmd.RegisterFlagCompletionFunc("phase", completeFrom(func(rec *record.Recording) (names []string) {
		for _, p := range rec.Phases() {
			names = append(names, p.Name)
		}
		return names
	}))
}

// completeFrom completes a flag with what the recording named before it has.
func completeFrom(values func(*record.Recording) []string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		rec, err := record.Open(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer rec.Close()
		names := values(rec)
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// part says that less than a phase is meant.
func (f *stretchFlags) part() bool { return f.from != 0 || f.to != 0 }

// window is the stretch of the recording.
func (f *stretchFlags) window(rec *record.Recording) (record.Window, error) {
	w, err := windowOf(rec, f.phase)
	if err != nil || !f.part() {
		return w, err
	}
	if f.from < 0 || f.to < 0 || (f.to != 0 && f.to <= f.from) {
		return w, Misusef("--from %v --to %v: want a start before an end, such as --from 10s --to 15s", f.from, f.to)
	}
	part := record.Window{Start: w.Start.Add(f.from), End: w.End}
	if f.to != 0 {
		part.End = w.Start.Add(f.to)
	}
	if !part.Start.Before(w.End) {
		return w, Misusef("--from %v: there are only %.1f s", f.from, w.Seconds())
	}
	if part.End.After(w.End) {
		part.End = w.End
	}
	return part, nil
}

// query is what the flags ask for; source and kind may be empty.
func (f *stretchFlags) query(rec *record.Recording, source, kind string) (functions.Query, error) {
	q := functions.Query{Component: f.component, Phase: f.phase, Kind: kind, Source: functions.Source(source)}
	if err := f.known(rec); err != nil {
		return q, err
	}
	if kind != "" && !slices.Contains(functions.Kinds, kind) {
		return q, Misusef("no kind of profile %q; there are %s", kind, strings.Join(functions.Kinds, ", "))
	}
	if source == "" {
		q.Source = functions.DefaultSource(rec, kind, f.part() || f.component == functions.NoComponent)
	}
	switch q.Source {
	case functions.FromProfiles:
		if f.part() {
			return q, Misusef("a profile of a phase cannot be cut: --from and --to need --source stacks")
		}
	case functions.FromStacks:
		if kind != "" && kind != functions.CPU {
			return q, Misusef("stacks are of CPU: --kind %s needs --source pprof", kind)
		}
	default:
		return q, Misusef("no source %q; there are pprof and stacks", source)
	}
	var err error
	q.Window, err = f.window(rec)
	return q, err
}

// known refuses a component that the recording does not have.
func (f *stretchFlags) known(rec *record.Recording) error {
	if f.component == "" || f.component == functions.NoComponent {
		return nil
	}
	names := map[string]bool{functions.NoComponent: true}
	for _, c := range rec.Components() {
		names[c.Name] = true
	}
	for _, p := range rec.Profiles() {
		names[p.Component] = true
	}
	if names[f.component] {
		return nil
	}
	// Our own processes, and what components started, are known from what they did.
	samples, err := rec.StackSamples()
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return err
	}
	for _, s := range samples {
		names[s.Component] = true
	}
	processes, err := rec.Processes()
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return err
	}
	for _, p := range processes {
		names[p.Component] = true
	}
	if names[f.component] {
		return nil
	}
	delete(names, "")
	return Misusef("the recording has no component %q%s", f.component, experiment.Suggest(f.component, slices.Sorted(maps.Keys(names))))
}

// notAssessed says of what the recording lacks that it cannot be told.
func notAssessed(what string, err error) error {
	if errors.Is(err, record.ErrMissing) {
		return fmt.Errorf("%s: not assessed: %w", what, err)
	}
	return err
}

func newFunctionsCommand(env *Env) *cobra.Command {
	var where stretchFlags
	var format, source, kind, per, order, by string
	var limit int
	cmd := &cobra.Command{
		Use:   "functions RECORDING",
		Short: "Say which functions used the CPU, memory or locks, per pod and per request",
		Long: `Functions prints what each function used itself (SELF) and with all that it
called (CUM), from the profiles of a phase or, for any stretch of seconds, from
the stacks of the machine.

Profiles look at a part of a phase; their numbers are scaled to the whole of it:
seen × length of the phase ÷ seconds looked at. Per pod divides by the pods that
became Running meanwhile, per request by the requests that the API server
finished, watches left out. Of heap and goroutines it is the state at the
phase's end, and how much that grew.`,
		Example: `  kubedyno functions r --component kube-apiserver --phase load --per pod
  kubedyno functions r --from 10s --to 15s --sort cum
  kubedyno functions r --by class --per request
  kubedyno functions r --component etcd --kind heap`,
		Args:              exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		ValidArgsFunction: completeFolders,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			for _, c := range []struct {
				flag, value string
				valid       []string
			}{{"--per", per, []string{"", "pod", "request"}}, {"--sort", order, []string{"self", "cum"}}, {"--by", by, []string{"function", "class"}}} {
				if !slices.Contains(c.valid, c.value) {
					return Misusef("%s %q: want %s", c.flag, c.value, strings.TrimPrefix(strings.Join(c.valid, " or "), " or "))
				}
			}
			if per == "request" && where.component != "" && where.component != "kube-apiserver" {
				return Misusef("--per request: requests are finished by kube-apiserver, not by %s", where.component)
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			q, err := where.query(rec, source, kind)
			if err != nil {
				return err
			}
			t, err := functions.Of(rec, q)
			if err != nil {
				return notAssessed("functions", err)
			}
			if per == "pod" && t.Pods < 1 || per == "request" && t.Requests < 1 {
				return perWhat(rec, per)
			}
			t.Sort(order == "cum")
			if format == "text" {
				fmt.Fprintln(env.Stdout, aboutFunctions(t))
			}
			table := functionTable(t, per)
			if by == "class" {
				table = classTable(t, per)
			}
			return table.print(env, format, limit)
		},
	}
	where.register(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "table as text, csv or json (one object a line)")
	cmd.Flags().StringVar(&source, "source", "", "pprof (profiles of phases) or stacks (any stretch, all processes, the kernel); default: profiles where they answer")
	cmd.Flags().StringVar(&kind, "kind", "", "cpu, heap, goroutine, mutex or block (default cpu)")
	cmd.Flags().StringVar(&per, "per", "", "divide by each pod or request")
	cmd.Flags().StringVar(&order, "sort", "self", "order by self or cum")
	cmd.Flags().StringVar(&by, "by", "function", "a row a function, or a class of work")
	cmd.Flags().IntVar(&limit, "limit", 30, "most rows of a text table; 0 prints all")
	for flag, values := range map[string][]string{
		"source": {"pprof", "stacks"}, "kind": functions.Kinds, "per": {"pod", "request"}, "sort": {"self", "cum"},
		"by": {"function", "class"}, "output": tableFormats,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// completeFolders completes the name of a recording.
func completeFolders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// perWhat says why nothing can be divided by pods, or by requests.
func perWhat(rec *record.Recording, per string) error {
	var err error
	if per == "pod" {
		_, err = rec.Pods()
	} else {
		_, err = rec.Requests()
	}
	if err != nil {
		return notAssessed("functions per "+per, err)
	}
	if per == "pod" {
		return fmt.Errorf("functions per pod: not assessed: no pod became Running in that time")
	}
	return fmt.Errorf("functions per request: not assessed: the API server finished no request in that time")
}

// aboutFunctions says what a table is of.
func aboutFunctions(t *functions.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %.1f s", amount(t.Unit, t.Total), t.Seconds())
	switch {
	case t.Source == functions.FromStacks:
		fmt.Fprintf(&b, ", from %d samples of the machine; a share of one part in a hundred is known to ± %.1f %%", t.Samples, 100*functions.Uncertainty(float64(t.Samples)*0.01)*0.01)
	case t.Kind == functions.CPU:
		fmt.Fprintf(&b, ", from profiles that looked at %.0f %% of it or more, scaled to the whole", t.Covered()*100)
	case t.Kind == functions.Heap || t.Kind == functions.Goroutine:
		b.WriteString(", at its end")
	}
	if t.Pods >= 0 {
		fmt.Fprintf(&b, "; %d pods", t.Pods)
	}
	if t.Requests >= 0 {
		fmt.Fprintf(&b, ", %d requests", t.Requests)
	}
	for _, w := range t.Warnings {
		b.WriteString("\n" + w)
	}
	return b.String()
}

// amount is a value with its unit, for people.
func amount(unit string, v float64) string {
	switch unit {
	case "bytes":
		return fmt.Sprintf("%.2f MiB", v/(1<<20))
	case "goroutines":
		return fmt.Sprintf("%.0f goroutines", v)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

// perColumn is the header, the factor and the digits of a value that was
// divided.
func perColumn(unit, per string) (header string, factor float64) {
	switch unit {
	case "bytes":
		return "KiB/" + per, 1. / 1024
	case "goroutines":
		return "per " + per, 1
	}
	return "ms/" + per, 1e3
}

func functionTable(t *functions.Table, per string) *textTable {
	unit := map[string]string{"bytes": "MiB", "CPU-s": "s", "s": "s", "goroutines": "count"}[t.Unit]
	number := func(v float64) string { return strings.Fields(amount(t.Unit, v))[0] }
	table := &textTable{header: []string{"COMPONENT", "SELF " + unit, "SELF %", "CUM " + unit, "CUM %"}}
	growth := t.Kind == functions.Heap || t.Kind == functions.Goroutine
	if growth {
		table.header = append(table.header, "GREW "+unit)
	}
	head, factor := perColumn(t.Unit, per)
	if per != "" {
		table.header = append(table.header, "SELF "+head, "CUM "+head)
	}
	table.header = append(table.header, "FUNCTION", "CLASS", "NOTE")
	divided := func(v float64) string {
		if v == -1 {
			return "–"
		}
		return fmt.Sprintf("%.3f", v*factor)
	}
	for _, r := range t.Rows {
		cells := []string{dash(r.Component), number(r.Self), fmt.Sprintf("%.1f", r.SelfShare*100), number(r.Cum), fmt.Sprintf("%.1f", r.CumShare*100)}
		if growth {
			grew := "–"
			if r.HasGrowth {
				grew = number(r.Growth)
			}
			cells = append(cells, grew)
		}
		switch per {
		case "pod":
			cells = append(cells, divided(r.SelfPerPod), divided(r.CumPerPod))
		case "request":
			cells = append(cells, divided(r.SelfPerRequest), divided(r.CumPerRequest))
		}
		class := r.Class
		if class == functions.Other {
			class = "–"
		}
		table.add(r, append(cells, r.Function, class, r.Note)...)
	}
	return table
}

func classTable(t *functions.Table, per string) *textTable {
	unit := map[string]string{"bytes": "MiB", "CPU-s": "s", "s": "s", "goroutines": "count"}[t.Unit]
	head, factor := perColumn(t.Unit, per)
	table := &textTable{header: []string{"COMPONENT", strings.ToUpper(unit[:1]) + unit[1:], "%"}}
	if per != "" {
		table.header = append(table.header, head)
	}
	table.header = append(table.header, "CLASS OF WORK")
	for _, c := range t.Classes {
		cells := []string{dash(c.Component), strings.Fields(amount(t.Unit, c.Value))[0], fmt.Sprintf("%.1f", c.Share*100)}
		v := c.PerPod
		if per == "request" {
			v = c.PerRequest
		}
		if per != "" {
			cell := "–"
			if v != -1 {
				cell = fmt.Sprintf("%.3f", v*factor)
			}
			cells = append(cells, cell)
		}
		table.add(c, append(cells, c.Class)...)
	}
	return table
}

package fault

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
)

// grades, best first, as far as a single run reaches.
var grades = []diagnose.Grade{diagnose.Confirmed, diagnose.Likely, diagnose.Possible}

// Markdown is docs/accuracy.md.
func (a Accuracy) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# How right diagnoses are

<!-- Generated from recordings: kubedyno fault accuracy FOLDER|FILE.json… -o markdown -->

Measured by putting things wrong on purpose: each fault of [the catalogue](faults.md) is injected into the experiment that shows it,
on a fresh control plane, and the first finding is held against the fault. Detectors cannot see what was injected. A fault that was
not seen to act does not count, nor does a run that failed before its end; both are named below.

%d runs: %s.

| | |
|---|---|
| the first finding names the cause (component and resource; the stage where there is one) | %s |
| the same by the detectors as they were when each run was made | %s |
| the first finding names the component | %s |
| one of the first three findings names the cause | %s |
| of first findings graded confirmed, right | %s |
| two faults at once, both among the first three findings | %s |
| the same by the detectors as they were when each run was made, where that was kept | %s |
| healthy runs without an unexpected finding | %s |
| runs whose first finding is confirmed and wrong | %s |
| low intensity, where a fault may hold nobody up: the first finding names the cause | %s |

The first four lines are over the middle and the high intensity. A detector that was mended by a run is right on it afterwards, which
proves nothing: the second line says how often it was right before anybody had seen the run.

A healthy run that asks for all pods at once is held back by the machine, and saying so is right. Everything else that is found
there counts as unexpected, and so does anything found with a fault that does no harm. Whoever wrote the detectors knew the catalogue
and looked at runs such as these, some of them the very ones: this says how well known faults are told apart, not what happens with others.

%s

`+"```sh"+`
make accuracy          # the whole campaign again: hours; it goes on where it was ended
make accuracy-sample   # some of it, drawn at random: about half an hour
`+"```"+`

## By detector

How often the first finding was right, by its grade, as it was when each run was made. Findings carry these numbers.

| detector | %s |
|---|%s
`, len(a.Trials), a.where(),
		a.Cause, a.AtFirst, a.Component, a.InThree, a.Sure, a.Pairs, a.PairsAtFirst, a.Healthy, named(a.Misled), a.Low,
		a.coverage(), joined(grades, " | "), strings.Repeat("---|", len(grades)))
	for _, name := range slices.Sorted(maps.Keys(a.Detectors)) {
		fmt.Fprintf(&b, "| [%s](detectors.md#%s) |", name, name)
		for _, g := range grades {
			cell := ""
			if s, ok := a.Detectors[name][g]; ok {
				cell = fmt.Sprintf("%d of %d", s.Right, s.Of)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	a.lookAlikes(&b)
	a.confusion(&b)
	a.apart(&b)
	b.WriteString("\n## By run\n\n| run | made | acted | named first | grade | place of the fault |\n|---|---|---|---|---|---|\n")
	for _, t := range a.Trials {
		acted := "yes"
		switch {
		case len(t.Faults) == 0:
			acted = ""
		case !t.Acted:
			acted = "no"
		}
		first := "nothing"
		if t.First != "" {
			first = fmt.Sprintf("%s: %s", t.First, t.Named)
		}
		made := ""
		if t.Origin != nil {
			made = t.Origin.Started.UTC().Format(time.DateOnly)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", t.Recording, made, acted, first, t.Grade, t.places())
	}
	return b.String()
}

// where says on which machines, when and by which versions the trials were made.
func (a Accuracy) where() string {
	on := map[string]int{}
	var days, tools []string
	for _, t := range a.Trials {
		o := t.Origin
		if o == nil {
			on["a machine that is not known"]++
			continue
		}
		on[fmt.Sprintf("Kubernetes %s on %d CPUs (%s), kernel %s", o.Kubernetes, o.CPUs, o.Model, o.Kernel)]++
		days, tools = append(days, o.Started.UTC().Format(time.DateOnly)), append(tools, o.Tool)
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(on)) {
		if len(on) > 1 {
			what += fmt.Sprintf(" (%d)", on[what])
		}
		parts = append(parts, what)
	}
	text := strings.Join(parts, "; ")
	if len(days) > 0 {
		slices.Sort(days)
		slices.Sort(tools)
		text += fmt.Sprintf("; made on %s, diagnosed by kubedyno %s",
			strings.Join(slices.Compact(days), ", "), strings.Join(slices.Compact(tools), ", "))
	}
	return text
}

// HitRates are what findings carry: they are of one kind of machine and one
// version of Kubernetes.
func (a Accuracy) HitRates() (diagnose.HitRates, error) {
	h := diagnose.HitRates{Detectors: a.Detectors}
	for _, t := range a.Trials {
		if t.Origin == nil {
			return h, fmt.Errorf("trial %s does not say on what machine it was made", t.Recording)
		}
		if h.CPUs != 0 && (h.CPUs != t.Origin.CPUs || h.Version != t.Origin.Kubernetes) {
			return h, fmt.Errorf("trials of %s on %d CPUs and of %s on %d have no hit rates in common: sum them up apart",
				h.Version, h.CPUs, t.Origin.Kubernetes, t.Origin.CPUs)
		}
		h.CPUs, h.Version = t.Origin.CPUs, t.Origin.Kubernetes
	}
	return h, nil
}

// confusion tells for each fault what stood first in its runs.
func (a Accuracy) confusion(b *strings.Builder) {
	b.WriteString("\n## What is taken for what\n\nBy fault, over the runs with one fault that acted: which findings stood first, and how often; the right ones are bold.\n\n| fault | runs | named first |\n|---|---|---|\n")
	type answer struct {
		first string
		right bool
	}
	by := map[string]map[answer]int{}
	for _, t := range a.Trials {
		if len(t.Faults) != 1 || !t.Acted {
			continue
		}
		name := t.Faults[0].Name
		if by[name] == nil {
			by[name] = map[answer]int{}
		}
		by[name][answer{cmp.Or(t.First, "nothing"), t.Right()}]++
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		firsts := slices.SortedFunc(maps.Keys(by[name]), func(x, y answer) int {
			return cmp.Or(by[name][y]-by[name][x], strings.Compare(x.first, y.first))
		})
		runs, cells := 0, []string{}
		for _, f := range firsts {
			runs += by[name][f]
			cell := f.first
			if f.right {
				cell = "**" + cell + "**"
			}
			cells = append(cells, fmt.Sprintf("%s %d", cell, by[name][f]))
		}
		fmt.Fprintf(b, "| [%s](faults.md#%s) | %d | %s |\n", name, name, runs, strings.Join(cells, ", "))
	}
}

// apart names the runs that count with a reservation, or not at all.
func (a Accuracy) apart(b *strings.Builder) {
	var invalid []string
	for _, t := range a.Trials {
		if len(t.Invalid) > 0 {
			invalid = append(invalid, t.Recording)
		}
	}
	fmt.Fprintf(b, "\n## Runs that stand apart\n\n- Not seen to act, and not counted: %s.\n- Counted, although the run is not valid and its diagnosis says so: %s.\n", named(a.Idle), named(invalid))
	if len(a.Failed) == 0 {
		b.WriteString("- Failed, and not counted: none.\n")
	}
	for _, f := range a.Failed {
		fmt.Fprintf(b, "- Failed, and not counted: %s: %s\n", f.Recording, f.Reason)
	}
}

// named is how many there are, and which.
func named(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", len(all), strings.Join(all, ", "))
}

// places are the ranks of the faults, in words.
func (t Trial) places() string {
	if len(t.Faults) == 0 {
		if len(t.Unexpected) > 0 {
			return "unexpected: " + strings.Join(t.Unexpected, ", ")
		}
		return "as it should be"
	}
	var all []string
	for _, r := range t.Ranks {
		if r == 0 {
			all = append(all, "**none**")
		} else {
			all = append(all, fmt.Sprint(r))
		}
	}
	return strings.Join(all, ", ")
}

func joined[T ~string](all []T, sep string) string {
	var texts []string
	for _, x := range all {
		texts = append(texts, string(x))
	}
	return strings.Join(texts, sep)
}

// coverage says which faults of the catalogue no trial is of.
func (a Accuracy) coverage() string {
	tried := map[string]bool{}
	for _, t := range a.Trials {
		for _, f := range t.Faults {
			tried[f.Name] = true
		}
	}
	var not []string
	for i := range All {
		if !tried[All[i].Name] {
			not = append(not, All[i].Name)
		}
	}
	if len(not) == 0 {
		return "All faults of the catalogue are among the runs."
	}
	slices.Sort(not)
	return fmt.Sprintf("**Not the whole campaign:** %d of the %d faults of the catalogue have no run here: %s.", len(not), len(All), strings.Join(not, ", "))
}

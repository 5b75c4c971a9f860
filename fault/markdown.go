package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/experiment"
)

// Markdown is docs/faults.md.
func Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Faults

<!-- Generated from the catalogue: go test ./fault -update -->

What can be put wrong with a control plane on purpose: %d faults. Each is a part of an experiment that is laid over another one
before it is run, at one of three intensities or at a value of its own, so that faults combine with each other and with any
experiment. A %s marks what a published investigation was about.

`+"```sh"+`
kubedyno fault list                                # this page as a table
kubedyno fault explain slow-fsync                  # one chapter, with what it changes
kubedyno fault run slow-fsync=high --out r         # the run that shows it, and whether the diagnosis names it
kubedyno run density --fault slow-fsync --fault list-storm=20/s   # in any experiment
kubedyno fault campaign --out runs                 # all of them in turns: how often is the diagnosis right?
kubedyno fault accuracy runs                       # the same recordings again, with this version's detectors
`+"```"+`

After the run the recording says whether the fault acted, by a number (`+"`faults.json`"+`). No detector may read it.
`+"`fault run`"+` ends with 0 where the fault acted and the diagnosis names component, stage and resource first, with 3 otherwise.
Faults that change how components or nodes are started, or what is shared in a cluster, are for labs, and are refused with `+"`--kubeconfig`"+`.
A fault never stays: it ends with the run, whatever ends that.

| fault | | holds back | by | parameter | low | middle | high |
|---|---|---|---|---|---|---|---|
`, len(All), "★")
	for i := range All {
		f := &All[i]
		star := ""
		if f.Star {
			star = "★"
		}
		p := f.Parameter
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Name, star, f.Holds, f.How(), p.Means, p.Low, p.Middle, p.High)
	}
	for i := range All {
		f := &All[i]
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n\n", f.Name, strings.ToUpper(f.Title[:1])+f.Title[1:], f.Doc)
		fmt.Fprintf(&b, "A right diagnosis names: %s.", cmp.Or(f.Places(), "nothing"))
		if len(f.Alike) > 0 {
			links := make([]string, len(f.Alike))
			for i, name := range slices.Sorted(slices.Values(f.Alike)) {
				links[i] = fmt.Sprintf("[%s](#%s)", name, name)
			}
			fmt.Fprintf(&b, " It may be mistaken for %s.", strings.Join(links, ", "))
		}
		fmt.Fprintf(&b, " Shown by the experiment `%s`. At middle it adds:\n\n```yaml\n", f.Show)
		fragment, err := f.Fragment(experiment.Middle)
		if err != nil { // a test tries all of them
			fragment = err.Error()
		}
		for line := range strings.Lines(fragment) {
			b.WriteString(shorten(strings.TrimRight(line, "\n")) + "\n")
		}
		b.WriteString("```\n")
	}
	return b.String()
}

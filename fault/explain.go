package fault

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/experiment"
)

// How says in a few words by what the fault is put there.
func (f *Fault) How() string {
	var how []string
	for _, part := range []struct{ key, word string }{
		{"args:", "flags"}, {"env:", "environment"}, {" {cpu:", "quota"}, {"cluster: {cpu:", "quota"}, {"actors:", "client"}, {"phases:", "objects"},
		{"node:", "nodes"}, {"storage:", "storage"}, {"syncDelay:", "delayed syncs"}, {"latency:", "proxy"}, {"memory:", "memory limit"}, {"files:", "file limit"},
	} {
		if strings.Contains(f.Change, part.key) && (len(how) == 0 || how[len(how)-1] != part.word) {
			how = append(how, part.word)
		}
	}
	return strings.Join(how, ", ")
}

// Explain is the fault's chapter, for a terminal.
func (f *Fault) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.\n", f.Name, f.Title)
	fmt.Fprintf(&b, "Holds back: %s.\n\n%s\n\n", f.Holds, strings.ReplaceAll(f.Doc, "**", ""))
	fmt.Fprintf(&b, "Parameter: %s. Low %s, middle %s, high %s.\n", f.Parameter.Means, f.Parameter.Low, f.Parameter.Middle, f.Parameter.High)
	fmt.Fprintf(&b, "A right diagnosis names: %s.\n", cmp.Or(f.Places(), "nothing, for it does no harm"))
	if len(f.Alike) > 0 {
		fmt.Fprintf(&b, "May be mistaken for: %s.\n", strings.Join(f.Alike, ", "))
	}
	fmt.Fprintf(&b, "Shown by: kubedyno fault run %s (experiment %s).\n\nAt middle it adds to the experiment:\n", f.Name, f.Show)
	fragment, err := f.Fragment(experiment.Middle)
	if err != nil { // a test tries all of them
		fragment = err.Error()
	}
	for line := range strings.Lines(fragment) {
		b.WriteString("  " + shorten(strings.TrimRight(line, "\n")) + "\n")
	}
	return b.String()
}

// shorten cuts what only has to weigh something.
func shorten(line string) string {
	const longest = 160
	if r := []rune(line); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return line
}

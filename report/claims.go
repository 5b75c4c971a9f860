package report

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// claims tells how the claims that the load made came to their volumes.
func (t *text) claims(d *diagnose.Diagnosis) {
	c := d.Claims
	if c == nil {
		return
	}
	t.head("Claims")
	if c.Missing != "" {
		t.wrap("  ", t.paint(yellow, "not followed")+": ", c.Missing)
		return
	}
	line := fmt.Sprintf("%d asked for, %d bound", c.Expected, c.Bound)
	for _, bad := range []struct {
		n    int
		what string
	}{{c.Pending, "never bound"}, {c.Lost, "never seen"}, {c.FailedOperations, "operations failed"}} {
		if bad.n > 0 {
			line += fmt.Sprintf(", %d %s", bad.n, bad.what)
		}
	}
	if c.MakespanSeconds != nil {
		line += fmt.Sprintf("; the last %s after the first was created", seconds(*c.MakespanSeconds))
	}
	if c.PerSecond != nil {
		line += fmt.Sprintf(", %s claims/s", number(*c.PerSecond))
	}
	switch {
	case c.Warnings == nil:
		line += "; warnings were not recorded"
	case *c.Warnings > 0:
		line += fmt.Sprintf("; %d warnings, the last %s", *c.Warnings, c.LastWarning)
	}
	t.wrap("  ", "", line+".")
	for _, g := range c.Groups {
		name := g.Class
		if g.Mode != "" {
			name += ", " + g.Mode
		}
		t.line(t.paint(dim, fmt.Sprintf("  %-43s %5s %8s %8s %8s", cut(name, 43), "n", "p50", "p99", "max")))
		for _, s := range g.Steps {
			if s.N == 0 {
				t.line(fmt.Sprintf("  %-43s %5s", stepText(s.Name), "–"))
				continue
			}
			t.line(fmt.Sprintf("  %-43s %5d %8s %8s %8s", stepText(s.Name), s.N, known(s.P50), known(s.P99), known(s.Max)))
		}
	}
}

// stepText is a step with who takes it.
func stepText(name string) string {
	who := map[string]string{
		"provision": "the provisioner makes the volume", "bind": "controller manager", "request": "attach is asked for",
		"attach": "the attacher", "start": "in use, mounted, running",
	}[name]
	return strings.TrimSpace(fmt.Sprintf("%-9s %s", name, who))
}

func known(x *float64) string {
	if x == nil {
		return "–"
	}
	return seconds(*x)
}

package report

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// shown bounds lists of which the rest is in the JSON.
const shown = 8

// healthy sets a run beside healthy ones of the same load.
func (t *text) healthy(d *diagnose.Diagnosis) {
	if d.Healthy == nil {
		return
	}
	t.head(fmt.Sprintf("Beside %d healthy runs", d.Healthy.Runs))
	if len(d.Healthy.Features) == 0 {
		t.wrap("  ", "", "Nothing lies beyond what they vary by.")
	}
	for _, c := range d.Healthy.Features[:min(shown, len(d.Healthy.Features))] {
		kind, name, _ := strings.Cut(c.Feature, "/")
		unit, what := "s", "a pod in stage "+name
		switch kind {
		case "demand":
			what = name + " per pod"
			if strings.HasPrefix(name, "client limit") {
				unit, what = "requests", name+", requests per pod"
			}
		case "rest":
			unit, what = "CPUs", name+" at rest"
		}
		amount := func(x float64) string {
			if unit == "s" {
				return seconds(x)
			}
			return number(x) + " " + unit
		}
		t.wrap("  ", "", fmt.Sprintf("%s: %s, × %.1f of the usual %s (at most %s)", what, amount(c.Value), c.Factor, amount(c.Healthy), amount(c.Most)))
	}
	if more := len(d.Healthy.Features) - shown; more > 0 {
		t.wrap("  ", "", fmt.Sprintf("and %d more (-o json)", more))
	}
}

// slopes says which costs change while pods are added.
func (t *text) slopes(d *diagnose.Diagnosis) {
	if len(d.Slopes) == 0 {
		return
	}
	t.head("What changes with the number of pods")
	for _, s := range d.Slopes[:min(shown, len(d.Slopes))] {
		t.wrap("  ", s.Name+": ", fmt.Sprintf("%s at %.0f pods, %s at %.0f (× %.1f; R² %.2f, n %d)", seconds(s.AtFrom), s.From, seconds(s.AtTo), s.To, s.Growth(), s.R2, s.N))
	}
	if more := len(d.Slopes) - shown; more > 0 {
		t.wrap("  ", "", fmt.Sprintf("and %d more (-o json)", more))
	}
}

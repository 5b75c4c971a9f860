package use

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/record"
)

// Verdicts, worst first.
const (
	Saturated     = "saturated" // of utilisation and saturation: at or above the bad value
	Failing       = "errors"    // of errors: likewise
	Watch         = "watch"
	NotMeasurable = "not measurable"
	OK            = "ok"
)

// Verdicts in order of badness.
var Verdicts = []string{Saturated, Failing, Watch, NotMeasurable, OK}

// A Check is one cell of the checklist.
type Check struct {
	Phase     string  `json:"phase,omitempty"` // empty: the whole run
	Resource  string  `json:"resource"`
	Instance  string  `json:"instance,omitempty"` // which of them
	Aspect    string  `json:"aspect"`
	Component string  `json:"component,omitempty"`
	Kind      string  `json:"kind"`
	ID        string  `json:"id"`    // of its threshold
	Value     float64 `json:"value"` // -1: not measurable
	Unit      string  `json:"unit"`
	Watch     float64 `json:"watch"` // 0: never
	Bad       float64 `json:"bad"`   // 0: never
	Source    string  `json:"source"`
	Verdict   string  `json:"verdict"`
	Detail    string  `json:"detail,omitempty"` // what else was seen
	Evidence  string  `json:"evidence"`         // table or query
	Start     float64 `json:"startSeconds"`     // of the window, since the run's start
	End       float64 `json:"endSeconds"`
	Reason    string  `json:"reason,omitempty"` // why it is not measurable
}

// Machine is the component of checks of hardware.
const Machine = "machine"

// assessment collects the checks of one window.
type assessment struct {
	r      *reader
	w      record.Window
	phase  string
	checks []Check
}

// Assess fills the checklist for the whole run, or for one phase of it.
func (r *reader) assess(w record.Window, phase string) []Check {
	a := &assessment{r: r, w: w, phase: phase}
	a.hardware()
	a.software()
	slices.SortStableFunc(a.checks, func(x, y Check) int {
		return cmp.Compare(slices.Index(Verdicts, x.Verdict), slices.Index(Verdicts, y.Verdict))
	})
	return a.checks
}

// Assess fills the checklist for each of the named phases; "" is the whole run.
func Assess(rec *record.Recording, phases ...string) ([]Check, error) {
	r, err := newReader(rec)
	if err != nil {
		return nil, err
	}
	var checks []Check
	for _, name := range phases {
		m := rec.Meta()
		w, found := record.Window{Start: m.Started, End: m.Ended.Add(time.Microsecond)}, name == ""
		for _, p := range m.Phases {
			if p.Name == name {
				w, found = p.Window(), true
			}
		}
		if !found {
			return nil, fmt.Errorf("the recording has no phase %q", name)
		}
		checks = append(checks, r.assess(w, name)...)
	}
	return checks, nil
}

// add judges a value.
func (a *assessment) add(id, instance, component string, value float64, evidence, detail string) {
	t := byID[id]
	c := a.check(t, instance, component, evidence)
	c.Value, c.Detail, c.Verdict = value, detail, OK
	switch {
	case t.Bad > 0 && value >= t.Bad:
		c.Verdict = Saturated
		if t.Kind == Errors {
			c.Verdict = Failing
		}
	case t.Watch > 0 && value >= t.Watch:
		c.Verdict = Watch
	}
	a.checks = append(a.checks, c)
}

// miss notes what could not be measured.
func (a *assessment) miss(id, instance, component, evidence, reason string) {
	c := a.check(byID[id], instance, component, evidence)
	c.Value, c.Verdict, c.Reason = -1, NotMeasurable, reason
	a.checks = append(a.checks, c)
}

func (a *assessment) check(t *Threshold, instance, component, evidence string) Check {
	started := a.r.rec.Meta().Started
	return Check{
		Phase: a.phase, Resource: t.Resource, Instance: instance, Aspect: t.Aspect, Component: component, Kind: t.Kind, ID: t.ID, Unit: t.Unit,
		Watch: t.Watch, Bad: t.Bad, Source: t.Source, Evidence: evidence,
		Start: a.w.Start.Sub(started).Seconds(), End: a.w.End.Sub(started).Seconds(),
	}
}

// What names the cell: resource, instance and aspect.
func (c Check) What() string {
	return strings.Join(slices.DeleteFunc([]string{c.Resource, c.Instance, c.Aspect}, func(s string) bool { return s == "" }), " ")
}

// Conclusion is one line on all checks of one window.
func Conclusion(checks []Check) string {
	var bad []string
	watch, missing := 0, 0
	for _, c := range checks {
		switch c.Verdict {
		case Saturated, Failing:
			bad = append(bad, c.What()+" "+Format(c.Value, c.Unit))
		case Watch:
			watch++
		case NotMeasurable:
			missing++
		}
	}
	// As many names as a line of 120 holds.
	line := ""
	for n := len(bad); n >= 0; n-- {
		names := ""
		if n > 0 {
			names = ": " + strings.Join(bad[:n], ", ")
			if n < len(bad) {
				names += fmt.Sprintf(" and %d more", len(bad)-n)
			}
		}
		line = fmt.Sprintf("%d of %d checks saturated or with errors%s; %d to watch; %d not measurable.", len(bad), len(checks), names, watch, missing)
		if utf8.RuneCountInString(line) <= 120 {
			break
		}
	}
	return line
}

// gap is why a table or column is not there, as the recording tells it.
func (r *reader) gap(fallback string, subjects ...string) string {
	for _, g := range r.rec.Meta().Gaps {
		if slices.Contains(subjects, g.Subject) {
			return g.Reason
		}
	}
	return fallback
}

// why takes from an error what a reader of the checklist needs.
func why(err error) string {
	if !errors.Is(err, record.ErrMissing) {
		return err.Error()
	}
	_, reason, found := strings.Cut(err.Error(), record.ErrMissing.Error()+": ")
	if !found {
		return "not recorded"
	}
	return reason
}

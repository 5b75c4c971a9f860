package cases

import (
	"fmt"
	"strings"
)

// Explain is the case in words.
func (c *Case) Explain() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s: %s\n", c.Name, c.Title)
	for _, text := range []string{c.Asked, c.Found, c.Rebuilt} {
		line("%s\n", strings.TrimSpace(text))
	}
	line("Told in: %s.", strings.TrimSpace(c.Source))
	if c.Needs != "" {
		line("Needs: %s", strings.TrimSpace(c.Needs))
	}
	runs, minutes := c.Size(false)
	quickRuns, quickMinutes := c.Size(true)
	line("\nArms, %s in about %.0f minutes; quick %s in about %.0f:", count(runs, "run"), minutes, count(quickRuns, "run"), quickMinutes)
	for _, a := range c.Arms {
		line("  %-18s %s, quick %d; %s", a.Name, count(a.Runs, "run"), a.QuickRuns, a.Title)
		for _, set := range a.Set {
			line("  %-18s   %s", "", set)
		}
	}
	if c.Quick != "" {
		line("\nA quick run: %s", strings.TrimSpace(c.Quick))
	}
	line("\nWhat must come out:")
	for _, e := range c.Expect {
		arm := e.Arm
		if e.Change != nil {
			arm = e.Change.From + " → " + e.Change.To
		}
		line("  %-4s %s (%s): %s", e.Row, e.Says, arm, e.text())
	}
	return b.String()
}

// text is what an expectation asks for.
func (e Expectation) text() string {
	switch {
	case e.First != nil:
		return "first is " + e.First.String()
	case len(e.Order) > 0:
		var places []string
		for _, p := range e.Order {
			places = append(places, p.String())
		}
		return "in this order: " + strings.Join(places, "; ")
	case e.Found != nil:
		return "there is " + e.Found.String()
	case e.Absent != nil:
		return "no " + e.Absent.String()
	case e.Objective != nil:
		return fmt.Sprintf("objective %s is %s", e.Objective.Name, map[bool]string{true: "met", false: "missed"}[e.Objective.Met])
	case e.Number != nil:
		var bounds []string
		if e.Number.Least != nil {
			bounds = append(bounds, "at least "+number(*e.Number.Least))
		}
		if e.Number.Most != nil {
			bounds = append(bounds, "at most "+number(*e.Number.Most))
		}
		return fmt.Sprintf("%s %s %s", e.Number.Of, strings.Join(bounds, ", "), e.Number.Unit())
	}
	of := e.Change.Of
	if e.Change.Per != nil {
		of += fmt.Sprintf(", divided by %s,", e.Change.Per)
	}
	switch {
	case e.Change.Flat > 0:
		return fmt.Sprintf("%s stays within a factor of %s", of, number(1+e.Change.Flat))
	case e.Change.Factor < 1:
		return fmt.Sprintf("%s at most × %s", of, number(e.Change.Factor))
	}
	return fmt.Sprintf("%s at least × %s", of, number(e.Change.Factor))
}

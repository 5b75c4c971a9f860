package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/record"
)

// objectTable prints changes of API objects as the watches showed them.
func objectTable(rec *record.Recording, in record.Window, at func(int64) string) (*textTable, error) {
	rows, err := rec.Objects()
	if err != nil {
		return nil, err
	}
	t := &textTable{header: []string{"AT s", "KIND", "OBJECT", "CHANGE", "STATE", "NODE", "REF", "READY", "WRITES"}}
	for _, o := range rows {
		if !in.Contains(time.UnixMicro(o.TimeMicros)) {
			continue
		}
		change, ready := o.Change, "–"
		if o.Late {
			change += " (late)"
		}
		if o.Desired != 0 || o.Ready != 0 {
			ready = fmt.Sprintf("%d/%d", o.Ready, o.Desired)
		}
		t.add(o, at(o.TimeMicros), o.Kind, qualified(o.Namespace, o.Name), change, dash(o.State), dash(o.Node), dash(clipped(o.Ref, 60)), ready, fmt.Sprint(o.Changes))
	}
	return t, nil
}

// eventTable prints the Events that the watch showed.
func eventTable(rec *record.Recording, in record.Window, at func(int64) string) (*textTable, error) {
	rows, err := rec.Events()
	if err != nil {
		return nil, err
	}
	t := &textTable{header: []string{"AT s", "TYPE", "REASON", "REPORTER", "OBJECT", "COUNT", "MESSAGE"}}
	for _, e := range rows {
		if !in.Contains(time.UnixMicro(e.TimeMicros)) {
			continue
		}
		t.add(e, at(e.TimeMicros), e.Type, e.Reason, dash(e.Reporter), e.Kind+" "+qualified(e.Namespace, e.Name), fmt.Sprint(e.Count), clipped(e.Message, 120))
	}
	return t, nil
}

// volumeTable prints the way of each claim, and what they took together. Of a
// phase, those that were created in it.
func volumeTable(rec *record.Recording, in record.Window, at func(int64) string) (*textTable, error) {
	all, err := volumes.Of(rec)
	if err != nil {
		return nil, err
	}
	m := rec.Meta()
	whole := !in.Start.After(m.Started) && !in.End.Before(m.Ended)
	t := &textTable{header: []string{"CLAIM", "STATE", "CLASS", "VOLUME", "NODE", "CREATED s", "PROVISIONED s", "BOUND s", "ATTACHED s", "RUNNING s", "BIND s", "FAILURES"}}
	var claims []volumes.Claim
	for _, c := range all {
		if c.CreatedMicros != 0 && !in.Contains(time.UnixMicro(c.CreatedMicros)) || c.CreatedMicros == 0 && !whole {
			continue
		}
		claims = append(claims, c)
		failures := "–"
		if c.Failures >= 0 {
			failures = fmt.Sprint(c.Failures)
		}
		if c.LastFailure != "" {
			failures += " " + c.LastFailure
		}
		t.add(c, qualified(c.Namespace, c.Name), c.State, dash(c.Class), dash(c.Volume), dash(c.Node), at(c.CreatedMicros), at(c.ProvisionedMicros),
			at(c.BoundMicros), at(c.AttachedMicros), at(c.RunningMicros), span(c.BindSeconds), failures)
	}
	s := volumes.Summarize(claims)
	t.foot = append(t.foot, fmt.Sprintf("%d claims, of which %d were created while recording and %d of those bound; from the first creation to the last binding %s s",
		s.Claims, s.Created, s.Bound, span(s.MakespanSeconds)))
	if s.Late > 0 {
		t.foot = append(t.foot, fmt.Sprintf("%d claims were seen late, after a watch that broke, and are not in the stages", s.Late))
	}
	if s.PerSecond >= 0 {
		t.foot = append(t.foot, fmt.Sprintf("%.2f claims bound per second of that time", s.PerSecond))
	}
	for _, st := range s.Stages {
		if st.N > 0 {
			t.foot = append(t.foot, fmt.Sprintf("created to %s: %s", st.Name, spread(st)))
		}
	}
	for _, g := range volumes.Groups(claims) {
		var steps []string
		for i, st := range volumes.Summarize(g.Claims).Steps {
			if st.N > 0 {
				steps = append(steps, fmt.Sprintf("  %-9s %s (%s)", st.Name, spread(st), volumes.Steps[i].What))
			}
		}
		if steps != nil {
			t.foot = append(t.foot, fmt.Sprintf("step by step, class %s, %s: %d claims", dash(g.Class), dash(g.Mode), len(g.Claims)))
			t.foot = append(t.foot, steps...)
		}
	}
	return t, nil
}

// spread is a stage's numbers in a line.
func spread(st volumes.Stage) string {
	return fmt.Sprintf("n %d, p50 %s s, p99 %s s, max %s s", st.N, span(st.P50), span(st.P99), span(st.MaxValue))
}

// span is a duration in seconds, which is below zero where it is unknown.
func span(seconds float64) string {
	if seconds < 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", seconds)
}

// clipped is text on one line, of at most n characters.
func clipped(text string, n int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}

// qualified is a name with its namespace, where it has one.
func qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

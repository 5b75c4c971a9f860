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
	t := &textTable{header: []string{"CLAIM", "STATE", "VOLUME", "NODE", "CREATED s", "PROVISIONED s", "BOUND s", "ATTACHED s", "RUNNING s", "BIND s", "FAILURES"}}
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
		t.add(c, qualified(c.Namespace, c.Name), c.State, dash(c.Volume), dash(c.Node), at(c.CreatedMicros), at(c.ProvisionedMicros),
			at(c.BoundMicros), at(c.AttachedMicros), at(c.RunningMicros), span(c.BindSeconds), failures)
	}
	s := volumes.Summarize(claims)
	t.foot = append(t.foot, fmt.Sprintf("%d claims, of which %d were created while recording and %d of those bound; from the first creation to the last binding %s s",
		s.Claims, s.Created, s.Bound, span(s.MakespanSeconds)))
	if s.Late > 0 {
		t.foot = append(t.foot, fmt.Sprintf("%d claims were seen late, after a watch that broke, and are not in the stages", s.Late))
	}
	for _, st := range s.Stages {
		if st.N == 0 {
			continue
		}
		t.foot = append(t.foot, fmt.Sprintf("created to %s: n %d, p50 %s s, p99 %s s, max %s s", st.Name, st.N, span(st.P50), span(st.P99), span(st.MaxValue)))
	}
	return t, nil
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

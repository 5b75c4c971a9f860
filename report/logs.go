package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/record"
)

// maxLogRows bounds the forms of log lines that a page holds: of warnings and
// errors, and of the rest.
const maxLogRows = 60

// logRows are the known events that the components' logs tell, and the forms
// of their other lines, warnings and errors before what is only told.
func logRows(rec *record.Recording, c clock) ([]LogRow, error) {
	a, err := logs.Analyze(rec, logs.Options{})
	if err != nil {
		return nil, fmt.Errorf("read the logs: %w", err)
	}
	at := func(t time.Time) *float64 {
		if t.IsZero() {
			return nil
		}
		x := c.at(t.UnixMicro())
		return &x
	}
	var out []LogRow
	for _, k := range a.Kinds {
		r := LogRow{
			Component: k.Component, Kind: k.Kind, Text: k.Doc, Count: int(k.Count), Example: k.First.Detail,
			First: at(k.First.Time), Last: at(k.Last.Time),
		}
		if k.Seconds >= 0 {
			r.Seconds = &k.Seconds
		}
		out = append(out, r)
	}
	for _, loud := range []bool{true, false} {
		n := 0
		for _, t := range a.Templates {
			if (t.Severity != 'I' && t.Severity != 'D') != loud || n == maxLogRows {
				continue
			}
			n++
			out = append(out, LogRow{
				Component: t.Component, Severity: string(rune(t.Severity)), Text: t.Text, Example: t.Example, Count: int(t.Count),
				First: at(t.First), Last: at(t.Last),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b LogRow) int { return b.Count - a.Count })
	return out, nil
}

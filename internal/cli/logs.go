package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/record"
)

// allEvents is --events without a kind.
const allEvents = "all"

func newLogsCommand(env *Env) *cobra.Command {
	var (
		components          []string
		events, grep        string
		phase, from, to     string
		templates, hasKinds bool
		format              string
		limit               int
	)
	var kinds []string
	for _, k := range logs.Kinds {
		kinds = append(kinds, k.Kind)
	}
	cmd := &cobra.Command{
		Use:   "logs RECORDING [KIND]",
		Short: "Say what the components' logs told: known events, and templates of the rest",
		Long: `Logs reads the components' logs of a recording. It counts the events that it
knows (waits for rate limits, conflicts, slow requests, lost leases …) with
their times and durations, and groups every other line into templates, in which
<num>, <dur>, <name>, <str> … stand for what varies.

Without a flag it prints the events by kind, then the most frequent templates.
With -o csv or json that is the events by kind alone. Times are seconds since
the run's start.

Kinds of events:
` + kindHelp(),
		Example: `  kubedyno logs r
  kubedyno logs r --events client-throttled --component kube-controller-manager
  kubedyno logs r --templates --phase load --limit 0
  kubedyno logs r --grep 'took too long' --from 20 --to 60`,
		Args: func(cmd *cobra.Command, args []string) error {
			hasKinds = cmd.Flags().Changed("events")
			if len(args) == 2 && hasKinds && events == allEvents { // --events KIND
				events, args = args[1], args[:1]
			}
			if len(args) != 1 {
				return Misusef("%s needs one RECORDING: a folder that 'kubedyno run' wrote", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			if hasKinds && events != allEvents && !slices.Contains(kinds, events) {
				return Misusef("no kind of event %q; there are %s", events, strings.Join(kinds, ", "))
			}
			var re *regexp.Regexp
			if grep != "" {
				var err error
				if re, err = regexp.Compile(grep); err != nil {
					return Misusef("--grep: %v", err)
				}
			}
			asked := 0
			for _, on := range []bool{hasKinds, templates, re != nil} {
				if on {
					asked++
				}
			}
			if asked > 1 {
				return Misusef("--events, --templates and --grep are three tables: ask for one at a time")
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			o := logs.Options{Components: components}
			if o.Window, err = logWindow(rec, phase, from, to); err != nil {
				return err
			}
			l := logPrinter{env: env, rec: rec, format: format, limit: limit}
			switch {
			case re != nil:
				err = l.grep(o, re)
			case hasKinds:
				err = l.events(o, events)
			case templates:
				err = l.templates(o)
			default:
				err = l.summary(o)
			}
			if errors.Is(err, record.ErrMissing) {
				return fmt.Errorf("logs: not assessed: %w", err)
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&components, "component", nil, "only these `components`")
	cmd.Flags().StringVar(&events, "events", "", "print the events, all or of one `kind`")
	cmd.Flags().Lookup("events").NoOptDefVal = allEvents
	cmd.Flags().BoolVar(&templates, "templates", false, "print the templates of all other lines")
	cmd.Flags().StringVar(&grep, "grep", "", "print the lines that match a regular `expression` (RE2)")
	cmd.Flags().StringVar(&phase, "phase", "", "only this phase of the run")
	cmd.Flags().StringVar(&from, "from", "", "only from this `time` on: seconds or a duration since the run's start")
	cmd.Flags().StringVar(&to, "to", "", "only before this `time`")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "table as text, csv or json (one object a line)")
	cmd.Flags().IntVar(&limit, "limit", 50, "most rows of a text table; 0 prints all")
	_ = cmd.RegisterFlagCompletionFunc("events", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(tableFormats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func kindHelp() string {
	var b strings.Builder
	for _, k := range logs.Kinds {
		fmt.Fprintf(&b, "  %-19s %s\n", k.Kind, k.Doc)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// logWindow is the part of the run that was asked for; zero is all, with what
// has no time.
func logWindow(rec *record.Recording, phase, from, to string) (record.Window, error) {
	if phase == "" && from == "" && to == "" {
		return record.Window{}, nil
	}
	in, err := windowOf(rec, phase)
	if err != nil {
		return record.Window{}, err
	}
	started := rec.Meta().Started
	for _, edge := range []struct {
		flag, text string
		at         *time.Time
	}{{"--from", from, &in.Start}, {"--to", to, &in.End}} {
		if edge.text == "" {
			continue
		}
		d, err := time.ParseDuration(edge.text)
		if err != nil {
			s, err := strconv.ParseFloat(edge.text, 64)
			if err != nil {
				return record.Window{}, Misusef("%s %q: want seconds or a duration since the run's start, as 12.5 or 1m30s", edge.flag, edge.text)
			}
			d = time.Duration(s * float64(time.Second))
		}
		*edge.at = started.Add(d)
	}
	if !in.Start.Before(in.End) {
		return record.Window{}, Misusef("nothing lies between --from and --to")
	}
	return in, nil
}

// logPrinter prints tables of one recording's logs.
type logPrinter struct {
	env    *Env
	rec    *record.Recording
	format string
	limit  int
}

// at is a time in seconds since the run's start.
func (l *logPrinter) at(t time.Time) (seconds float64, text string) {
	if t.IsZero() {
		return -1, "–"
	}
	seconds = t.Sub(l.rec.Meta().Started).Seconds()
	return seconds, fmt.Sprintf("%.3f", seconds)
}

// summaryTemplates is how many templates stand below the events.
const summaryTemplates = 20

func (l *logPrinter) summary(o logs.Options) error {
	a, err := logs.Analyze(l.rec, o)
	if err != nil {
		return err
	}
	if err := l.kinds(a); err != nil || l.format != "text" {
		return err
	}
	t := l.templateTable(a)
	limit := summaryTemplates
	if l.limit == 0 {
		limit = 0
	}
	total := len(t.rows)
	if limit > 0 && total > limit {
		t.rows, t.values = t.rows[:limit], t.values[:limit]
	}
	fmt.Fprintln(l.env.Stdout)
	if err := t.print(l.env, "text", 0); err != nil {
		return err
	}
	if more := total - len(t.rows); more > 0 {
		fmt.Fprintf(l.env.Stdout, "… and %d more templates; --templates prints them\n", more)
	}
	l.notes(a)
	return nil
}

func (l *logPrinter) kinds(a *logs.Analysis) error {
	type row struct {
		Kind       string  `json:"kind"`
		Component  string  `json:"component"`
		Count      int64   `json:"count"`
		Rate       float64 `json:"ratePerSecond"` // -1 unknown
		Seconds    float64 `json:"seconds"`       // -1 where none is told
		MaxSeconds float64 `json:"maxSeconds"`    // -1 where none is told
		First      float64 `json:"first"`         // seconds since the run's start; -1 unknown
		Last       float64 `json:"last"`
		AtLeast    bool    `json:"atLeast"` // the component leaves out some by design
		Doc        string  `json:"doc"`
	}
	t := &textTable{header: []string{"EVENT", "COMPONENT", "COUNT", "/s", "SECONDS", "MAX s", "FIRST s", "LAST s", "WHAT"}}
	for _, k := range a.Kinds {
		first, firstText := l.at(k.First.Time)
		last, lastText := l.at(k.Last.Time)
		count := fmt.Sprint(k.Count)
		if k.Sampled {
			count = "≥ " + count
		}
		t.add(row{k.Kind, k.Component, k.Count, k.Rate, k.Seconds, k.MaxSeconds, first, last, k.Sampled, k.Doc},
			k.Kind, printable(k.Component, 60), count, fmt.Sprintf("%.3f", k.Rate), secondsText(k.Seconds), secondsText(k.MaxSeconds), firstText, lastText, k.Doc)
	}
	if l.format == "text" && len(t.rows) == 0 {
		fmt.Fprintln(l.env.Stdout, "No events of a known kind.")
		return nil
	}
	return t.print(l.env, l.format, 0)
}

func secondsText(s float64) string {
	if s < 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", s)
}

func (l *logPrinter) events(o logs.Options, kind string) error {
	a, err := logs.Analyze(l.rec, o)
	if err != nil {
		return err
	}
	type row struct {
		Time      float64 `json:"time"` // seconds since the run's start; -1 unknown
		Component string  `json:"component"`
		Kind      string  `json:"kind"`
		Count     int64   `json:"count"`
		Seconds   float64 `json:"seconds"` // -1 where none is told
		Verb      string  `json:"verb,omitempty"`
		Object    string  `json:"object,omitempty"`
		Detail    string  `json:"detail"`
		Source    string  `json:"source,omitempty"`
		Line      int64   `json:"line"`
		Offset    int64   `json:"offset"`
	}
	t := &textTable{header: []string{"AT s", "COMPONENT", "LINE", "EVENT", "SECONDS", "VERB", "OBJECT", "DETAIL"}}
	for _, ev := range a.Events {
		if kind != allEvents && ev.Kind != kind {
			continue
		}
		at, text := l.at(ev.Time)
		t.add(row{at, ev.Component, ev.Kind, ev.Count, ev.Seconds, ev.Verb, ev.Object, ev.Detail, ev.Source, ev.Line, ev.Offset},
			text, printable(ev.Component, 60), fmt.Sprint(ev.Line), ev.Kind, secondsText(ev.Seconds), dash(printable(ev.Verb, 20)), dash(printable(ev.Object, 80)), printable(ev.Detail, 100))
	}
	if err := t.print(l.env, l.format, l.limit); err != nil || l.format != "text" {
		return err
	}
	l.notes(a)
	return nil
}

func (l *logPrinter) templates(o logs.Options) error {
	a, err := logs.Analyze(l.rec, o)
	if err != nil {
		return err
	}
	if err := l.templateTable(a).print(l.env, l.format, l.limit); err != nil || l.format != "text" {
		return err
	}
	l.notes(a)
	return nil
}

func (l *logPrinter) templateTable(a *logs.Analysis) *textTable {
	type row struct {
		Count     int64   `json:"count"`
		Component string  `json:"component"`
		Severity  string  `json:"severity,omitempty"`
		Source    string  `json:"source,omitempty"`
		First     float64 `json:"first"` // seconds since the run's start; -1 unknown
		Last      float64 `json:"last"`
		Rate      float64 `json:"ratePerSecond"` // between the first and the last; -1 unknown
		Template  string  `json:"template"`
		Example   string  `json:"example"`
		Line      int64   `json:"line"`
	}
	t := &textTable{header: []string{"COUNT", "COMPONENT", "", "SOURCE", "FIRST s", "LAST s", "/s", "TEMPLATE"}}
	for _, m := range a.Templates {
		first, firstText := l.at(m.First)
		last, lastText := l.at(m.Last)
		rate, rateText := -1.0, "–"
		if span := m.Last.Sub(m.First).Seconds(); m.Count > 1 && span > 0 {
			rate = float64(m.Count-1) / span
			rateText = fmt.Sprintf("%.2f", rate)
		}
		severity := ""
		if m.Severity != 0 {
			severity = string(m.Severity)
		}
		t.add(row{m.Count, m.Component, severity, m.Source, first, last, rate, m.Text, m.Example, m.Line},
			fmt.Sprint(m.Count), printable(m.Component, 60), severity, dash(printable(m.Source, 50)), firstText, lastText, rateText, printable(m.Text, 140))
	}
	return t
}

// notes say what the numbers leave out.
func (l *logPrinter) notes(a *logs.Analysis) {
	for _, g := range a.Logs {
		if g.Cut {
			fmt.Fprintf(l.env.Stdout, "%s: the recording has only the beginning of its log\n", printable(g.Component, 60))
		}
		if g.Lost > 0 {
			fmt.Fprintf(l.env.Stdout, "%s: %d events are counted and not listed\n", printable(g.Component, 60), g.Lost)
		}
		if g.Long > 0 {
			fmt.Fprintf(l.env.Stdout, "%s: %d lines were longer than 64 KiB and cut\n", printable(g.Component, 60), g.Long)
		}
	}
}

// grep prints lines as they are found.
func (l *logPrinter) grep(o logs.Options, re *regexp.Regexp) error {
	type row struct {
		Time      float64 `json:"time"` // seconds since the run's start; -1 unknown
		Component string  `json:"component"`
		Line      int64   `json:"line"`
		Text      string  `json:"text"`
	}
	lines := json.NewEncoder(l.env.Stdout)
	cells := csv.NewWriter(l.env.Stdout)
	if l.format == "csv" {
		_ = cells.Write([]string{"time", "component", "line", "text"})
	}
	found := 0
	err := logs.Grep(l.rec, o, re, func(m logs.Match) error {
		found++
		at, text := l.at(m.Time)
		switch l.format {
		case "json":
			return lines.Encode(row{at, m.Component, m.Line, m.Text})
		case "csv":
			return cells.Write([]string{fmt.Sprint(at), inert(m.Component), fmt.Sprint(m.Line), inert(m.Text)})
		}
		if l.limit > 0 && found > l.limit {
			return nil
		}
		_, err := fmt.Fprintf(l.env.Stdout, "%10s  %s:%d  %s\n", text, printable(m.Component, 60), m.Line, printable(m.Text, 2000))
		return err
	})
	cells.Flush()
	if err == nil {
		err = cells.Error()
	}
	if err == nil && l.format == "text" && l.limit > 0 && found > l.limit {
		fmt.Fprintf(l.env.Stdout, "… and %d more; --limit 0 prints all\n", found-l.limit)
	}
	return err
}

// templatesOf is what `show RECORDING logs` prints. The whole recording takes
// lines without a time too.
func templatesOf(rec *record.Recording, in record.Window) (*textTable, error) {
	o := logs.Options{Window: in}
	if whole, err := windowOf(rec, ""); err == nil && whole == in {
		o.Window = record.Window{}
	}
	a, err := logs.Analyze(rec, o)
	if err != nil {
		return nil, err
	}
	l := logPrinter{rec: rec}
	return l.templateTable(a), nil
}

package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

const (
	// MaxEvents bounds the events that are kept of one component. All are
	// counted.
	MaxEvents = 100_000
	// maxTraces bounds those of them that keep their trace.
	maxTraces = 2000
)

// Options of an analysis. The zero value takes everything.
type Options struct {
	// Components to read; none: all that left a log.
	Components []string
	// Window: only entries with a time inside. Zero: all, also those without
	// a time.
	Window record.Window
	// MaxEvents and MaxTemplates are for each component; 0: the constants.
	MaxEvents, MaxTemplates int
}

// An Analysis is what the logs of a recording say.
type Analysis struct {
	Logs      []Log
	Events    []Event    // by time
	Kinds     []Kind     // by kind's order, then component
	Templates []Template // most frequent first; entries that are events are in none
}

// A Log is how one component's log read.
type Log struct {
	Component string
	Stats
	// Kept and Lost are its events in Events, and those beyond the bound.
	Kept, Lost int64
	// Cut: the recording has not all of it.
	Cut bool
}

// A Kind sums the events of one kind and component.
type Kind struct {
	KindOf
	Component string
	Count     int64
	// Rate is per second of the window, or of the recording; -1 unknown.
	Rate float64
	// Seconds and MaxSeconds are over events that tell a duration; -1 where
	// none does.
	Seconds, MaxSeconds float64
	First, Last         Event
}

// A Source is what is read of a recording; *record.Recording is one.
type Source interface {
	Meta() record.Meta
	Logs() []string
	Log(component string) (io.ReadCloser, error)
}

// Analyze reads the logs of a recording.
func Analyze(rec Source, o Options) (*Analysis, error) {
	m := rec.Meta()
	a := &analyzer{o: o, clock: Clock{Started: m.Started, Ended: m.Ended}}
	if err := each(rec, o.Components, a.read); err != nil {
		return nil, err
	}
	seconds := o.Window.Seconds()
	if o.Window.Start.IsZero() {
		seconds = m.Ended.Sub(m.Started).Seconds()
	}
	return a.finish(seconds), nil
}

// analyzer gathers what logs say, one after another.
type analyzer struct {
	o     Options
	clock Clock
	out   Analysis
	kinds map[[2]string]*Kind
}

func (a *analyzer) read(in io.Reader, component string) error {
	if a.kinds == nil {
		a.kinds = map[[2]string]*Kind{}
	}
	templates := newMiner(component, cmp.Or(a.o.MaxTemplates, MaxTemplates))
	log := Log{Component: component}
	room := cmp.Or(a.o.MaxEvents, MaxEvents)
	var before Event // the last throttled request
	traces := 0
	stats, err := Read(in, component, a.clock, func(e *Entry) error {
		if !a.o.Window.Start.IsZero() && (e.Time.IsZero() || !a.o.Window.Contains(e.Time)) {
			return nil
		}
		ev, ok := e.Event()
		if !ok {
			templates.add(e)
			return nil
		}
		if ev.Kind == "log-cut" {
			log.Cut = true
		}
		if ev.Kind == "client-throttled" {
			// At -v=3 client-go logs a wait over 1 s twice in a row, once for
			// each of its two thresholds.
			if ev.Seconds == before.Seconds && ev.Object == before.Object && ev.Verb == before.Verb && ev.Line == before.Line+1 {
				return nil
			}
			before = ev
		}
		if ev.Trace != nil {
			if traces++; traces > maxTraces {
				ev.Trace = nil
			}
		}
		a.count(&ev)
		if log.Kept >= int64(room) {
			log.Lost++
			return nil
		}
		log.Kept++
		a.out.Events = append(a.out.Events, ev)
		return nil
	})
	log.Stats = stats
	a.out.Logs = append(a.out.Logs, log)
	a.out.Templates = append(a.out.Templates, templates.templates()...)
	return err
}

func (a *analyzer) count(ev *Event) {
	key := [2]string{ev.Kind, ev.Component}
	k := a.kinds[key]
	if k == nil {
		k = &Kind{KindOf: kindOf(ev.Kind), Component: ev.Component, Seconds: -1, MaxSeconds: -1, First: *ev}
		a.kinds[key] = k
	}
	k.add(ev)
}

func (k *Kind) add(ev *Event) {
	k.Count += ev.Count
	if ev.Seconds >= 0 {
		k.Seconds = max(k.Seconds, 0) + ev.Seconds
		k.MaxSeconds = max(k.MaxSeconds, ev.Seconds)
	}
	k.Last = *ev
}

func (a *analyzer) finish(seconds float64) *Analysis {
	out := &a.out
	slices.SortStableFunc(out.Events, func(x, y Event) int {
		return cmp.Or(x.Time.Compare(y.Time), strings.Compare(x.Component, y.Component), cmp.Compare(x.Line, y.Line))
	})
	for _, k := range a.kinds {
		out.Kinds = append(out.Kinds, *k)
	}
	rate(out.Kinds, seconds)
	sortKinds(out.Kinds)
	sortTemplates(out.Templates)
	return out
}

func rate(kinds []Kind, seconds float64) {
	for i := range kinds {
		kinds[i].Rate = -1
		if seconds > 0 {
			kinds[i].Rate = float64(kinds[i].Count) / seconds
		}
	}
}

func sortKinds(kinds []Kind) {
	order := map[string]int{}
	for i, k := range Kinds {
		order[k.Kind] = i
	}
	slices.SortFunc(kinds, func(x, y Kind) int {
		return cmp.Or(cmp.Compare(order[x.Kind], order[y.Kind]), strings.Compare(x.Component, y.Component))
	})
}

// In sums the events that were kept of a window: for one phase after another
// without reading the logs again.
func (a *Analysis) In(w record.Window) []Kind {
	by := map[[2]string]*Kind{}
	for i := range a.Events {
		ev := &a.Events[i]
		if ev.Time.IsZero() || !w.Contains(ev.Time) {
			continue
		}
		key := [2]string{ev.Kind, ev.Component}
		if by[key] == nil {
			by[key] = &Kind{KindOf: kindOf(ev.Kind), Component: ev.Component, Seconds: -1, MaxSeconds: -1, First: *ev}
		}
		by[key].add(ev)
	}
	kinds := make([]Kind, 0, len(by))
	for _, k := range by {
		kinds = append(kinds, *k)
	}
	rate(kinds, w.Seconds())
	sortKinds(kinds)
	return kinds
}

// each opens the logs of the components that were asked for, or all.
func each(rec Source, components []string, read func(io.Reader, string) error) error {
	names := rec.Logs()
	if len(names) == 0 {
		_, err := rec.Log("any component")
		return err // names the reason
	}
	for _, name := range components {
		if !slices.Contains(names, name) {
			return fmt.Errorf("log of %s: %w; there are logs of %s", name, record.ErrMissing, strings.Join(names, ", "))
		}
	}
	for _, name := range names {
		if len(components) > 0 && !slices.Contains(components, name) {
			continue
		}
		in, err := rec.Log(name)
		if err != nil {
			return err
		}
		err = read(in, name)
		if err = errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("log of %s in recording %s: %w", name, rec.Meta().ID, err)
		}
	}
	return nil
}

// A Match is a line that a search found.
type Match struct {
	Time      time.Time // of the entry that it is a part of; zero unknown
	Component string
	Line      int64 // number of the line in the component's log
	Text      string
}

// Grep calls f for each line that matches, the logs one after another. Lines
// are cut as Read cuts them.
func Grep(rec *record.Recording, o Options, re *regexp.Regexp, f func(Match) error) error {
	m := rec.Meta()
	return each(rec, o.Components, func(in io.Reader, component string) error {
		_, err := Read(in, component, Clock{Started: m.Started, Ended: m.Ended}, func(e *Entry) error {
			if !o.Window.Start.IsZero() && (e.Time.IsZero() || !o.Window.Contains(e.Time)) {
				return nil
			}
			if re.Match(e.Text) {
				if err := f(Match{e.Time, component, e.Line, string(e.Text)}); err != nil {
					return err
				}
			}
			if e.More == "" {
				return nil
			}
			for i, line := range strings.Split(e.More, "\n") {
				if re.MatchString(line) {
					if err := f(Match{e.Time, component, e.Line + 1 + int64(i), line}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		return err
	})
}

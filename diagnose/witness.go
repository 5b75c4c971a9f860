package diagnose

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/record"
)

// Logged is what a component's log says of one kind during the load; the kinds
// are those of analysis/logs.
type Logged struct {
	Count   int64
	Seconds float64 // that the lines tell of together; -1 where none does
	Last    logs.Event
	// Most is the last line that gives the reason (logs.Event.Object) which most of
	// them give, whatever its amounts, and MostCount how many do. Refusals only.
	Most      logs.Event
	MostCount int64
}

// Log counts a component's lines of one kind. ok is false where it left no log.
func (v *View) Log(component, kind string) (Logged, bool) {
	if v.logged == nil {
		v.readLogs()
	}
	by, ok := v.logged[component]
	return by[kind], ok
}

// readLogs counts the known lines of all logs, once.
func (v *View) readLogs() {
	v.logged = map[string]map[string]Logged{}
	names := v.src.Logs()
	if len(names) == 0 {
		return
	}
	a, err := logs.Analyze(v.src, logs.Options{Window: v.metricWindow()})
	if err != nil {
		if !errors.Is(err, record.ErrMissing) && v.err == nil {
			v.err = fmt.Errorf("read logs: %w", err)
		}
		return
	}
	for _, name := range names {
		v.logged[name] = map[string]Logged{}
	}
	for _, k := range a.Kinds {
		v.logged[k.Component][k.Kind] = Logged{Count: k.Count, Seconds: k.Seconds, Last: k.Last}
	}
	v.weighReasons(a.Events)
}

// weighReasons finds of each component's refusals the reason that most have: the
// last one may be anybody's.
func (v *View) weighReasons(events []logs.Event) {
	type reason struct{ component, text string }
	counts := map[reason]int64{}
	for _, ev := range events {
		if ev.Kind != createRefused {
			continue
		}
		key := reason{ev.Component, withoutDigits(ev.Object)}
		counts[key] += ev.Count
		if l := v.logged[ev.Component][createRefused]; counts[key] >= l.MostCount {
			l.Most, l.MostCount = ev, counts[key]
			v.logged[ev.Component][createRefused] = l
		}
	}
}

// createRefused is the kind of logs.Kinds whose lines give a reason.
const createRefused = "create-refused"

// withoutDigits is a reason without its amounts.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// Spent is what CPU a component's profile found in one class of work.
type Spent struct {
	CPUSeconds float64 // in the load
	Share      float64 // of the component's CPU, idle spinning left out
	OfWork     float64 // of what the component did beside collecting garbage
	PerPod     float64 // CPU-seconds; 0 where no pod arrived
	AtLeast    float64 // Share less two standard errors of the profile's samples
}

// Works is Work for every path that took CPU.
func (v *View) Works(component string) map[string]Spent {
	v.Work(component, "")
	p := v.paths[component]
	if p == nil {
		return nil
	}
	works := map[string]Spent{}
	for path := range p.By {
		if s, ok := v.Work(component, path); ok && s.CPUSeconds > 0 {
			works[path] = s
		}
	}
	return works
}

// Work is how much CPU of a component went to a path of analysis/functions, as
// its profiles of the load saw it. ok is false where there are none.
func (v *View) Work(component, path string) (Spent, bool) {
	return v.spent(component, func(p *functions.Spending) float64 { return p.By[path] })
}

// Class is how much CPU of a component went to a class of work of
// analysis/functions, as Work.
func (v *View) Class(component, class string) (Spent, bool) {
	return v.spent(component, func(p *functions.Spending) float64 { return p.Classes[class] })
}

func (v *View) spent(component string, on func(*functions.Spending) float64) (Spent, bool) {
	p, ok := v.paths[component]
	if !ok {
		if v.paths == nil {
			v.paths = map[string]*functions.Spending{}
		}
		phases := v.steadyPhases()
		var err error
		p, err = functions.PathsOf(v.src, component, func(ref record.ProfileRef) bool { return phases[ref.Phase] })
		if err != nil && !errors.Is(err, record.ErrMissing) && v.err == nil {
			v.err = err
		}
		v.paths[component] = p
	}
	if p == nil || p.Seconds <= 0 {
		return Spent{}, false
	}
	s := Spent{CPUSeconds: on(p), Share: on(p) / p.Seconds}
	s.OfWork = s.Share
	if work := p.Seconds - p.By[functions.PathGC]; work > 0 {
		s.OfWork = min(1, on(p)/work)
	}
	if p.Samples > 0 {
		s.AtLeast = max(0, s.Share-2*math.Sqrt(s.Share*(1-s.Share)/p.Samples))
	}
	if n := v.Arrived(); n > 0 {
		s.PerPod = s.CPUSeconds / float64(n)
	}
	return s, true
}

// Registerer is the function of a component that metrics are registered by most of
// the time, as profiles of the load saw it; "" where none is.
func (v *View) Registerer(component string) string {
	v.Work(component, "")
	best := ""
	if p := v.paths[component]; p != nil {
		for _, f := range slices.Sorted(maps.Keys(p.Registerers)) {
			if best == "" || p.Registerers[f] > p.Registerers[best] {
				best = f
			}
		}
	}
	return best
}

// Written is how many bytes a component wrote to storage in the window.
func (v *View) Written(component string, w record.Window) (bytes float64, ok bool) {
	for _, p := range v.processes[component] {
		for _, s := range p.samples {
			if s.WriteBytes < 0 {
				return 0, false
			}
		}
	}
	return v.counter(component, w, func(s record.ProcessSample) float64 { return float64(s.WriteBytes) })
}

// Writers are the processes other than etcd that wrote to storage in the window,
// of the run or not, by component or, outside of it, by command line; the
// largest first. ok is false where that was not recorded.
func (v *View) Writers(w record.Window) ([]Part, bool) {
	sums := map[string]float64{}
	ok := false
	for _, c := range v.Components() {
		if x, has := v.Written(c, w); has {
			ok = true
			if c != Etcd {
				sums[c] += x
			}
		}
	}
	for _, p := range v.outside(w, func(s record.ProcessSample) float64 { return float64(max(0, s.WriteBytes)) }) {
		sums[p.Label] += p.Value
	}
	return parts(sums), ok
}

// Outside is the CPU, in seconds, that each command line outside of this run used in
// the window; the largest first. Processes that lived less than a second are not in it.
func (v *View) Outside(w record.Window) []Part {
	return v.outside(w, func(s record.ProcessSample) float64 { return s.UserSeconds + s.SystemSeconds })
}

// outside is what a counter of each command line outside of this run grew by in the
// window, the largest first.
func (v *View) outside(w record.Window, value func(record.ProcessSample) float64) []Part {
	sums := map[string]float64{}
	for command, ps := range v.others {
		for _, p := range ps {
			times, values := make([]int64, len(p.samples)), make([]float64, len(p.samples))
			for i, s := range p.samples {
				times[i], values[i] = s.TimeMicros, value(s)
			}
			if d, has := difference(times, values, w); has {
				sums[command] += d
			}
		}
	}
	return parts(sums)
}

// RunDelay is how long a component's threads were ready to run and had no CPU, in
// the window, summed over threads.
func (v *View) RunDelay(component string, w record.Window) (seconds float64, ok bool) {
	for _, p := range v.processes[component] {
		for _, s := range p.samples {
			if s.RunDelaySeconds < 0 {
				return 0, false
			}
		}
	}
	return v.counter(component, w, func(s record.ProcessSample) float64 { return s.RunDelaySeconds })
}

// A component that nobody knows to have a quota is kept from the CPU where its threads
// waited for one ten times as long as they had it, or on a calm machine five times (up to
// 3.8 times in 127 runs on one that was less than 70 % busy), half a thread of it all the
// time.
const starved, starvedThough, calm, queued = 10.0, 5.0, 0.70, 0.5

// Starved says that something keeps a component from the CPU over the plateau, with the
// seconds that its threads were ready to run and ran.
func (v *View) Starved(component string) (delay, cpu float64, ok bool) {
	delay, okDelay := v.RunDelay(component, v.Plateau)
	cpu, okCPU := v.CPU(component, v.Plateau)
	times := starved
	if m, known := v.MachineCPU(v.Plateau); known && m.Share < calm {
		times = starvedThough
	}
	return delay, cpu, okDelay && okCPU && delay >= queued*v.Plateau.Seconds() && delay >= times*cpu
}

// Connections are the TCP connections accepted on the control plane's machine in
// the window, whoever made them.
func (v *View) Connections(w record.Window) (n float64, ok bool) {
	if !v.HasMachine || !v.Local() {
		return 0, false
	}
	times, values := make([]int64, len(v.machine)), make([]float64, len(v.machine))
	for i, s := range v.machine {
		if s.TCPOpensPassive < 0 {
			return 0, false
		}
		times[i], values[i] = s.TimeMicros, float64(s.TCPOpensPassive)
	}
	return difference(times, values, w)
}

// Rhythms are what repeats by the clock in the whole recording: commands,
// processes, components. ok is false where processes were not recorded.
func (v *View) Rhythms() ([]spikes.Row, bool) {
	if v.rhythms == nil {
		r, err := spikes.Find(v.src, spikes.Options{})
		switch {
		case errors.Is(err, record.ErrMissing):
			return nil, false
		case err != nil:
			if v.err == nil {
				v.err = fmt.Errorf("look for what repeats: %w", err)
			}
			return nil, false
		}
		v.rhythms = []spikes.Row{}
		for _, row := range r.Rows {
			if row.Kind == spikes.Repeats {
				v.rhythms = append(v.rhythms, row)
			}
		}
	}
	return v.rhythms, true
}

// A Replica is a process that lived through most of the load.
type Replica struct {
	Component  string // of the run; empty outside of it
	Command    string
	CPUSeconds float64 // in the load
}

// LongLived are the processes that were there for at least nine tenths of the
// load, in the order of components, then commands.
func (v *View) LongLived() []Replica {
	var all []Replica
	add := func(component string, ps []process) {
		for _, p := range ps {
			first, last := p.samples[0], p.samples[len(p.samples)-1]
			if float64(last.TimeMicros-first.TimeMicros)/1e6 < 0.9*v.Span() {
				continue
			}
			times, values := make([]int64, len(p.samples)), make([]float64, len(p.samples))
			for i, s := range p.samples {
				times[i], values[i] = s.TimeMicros, s.UserSeconds+s.SystemSeconds
			}
			if d, ok := difference(times, values, v.Load); ok {
				all = append(all, Replica{component, last.Command, d})
			}
		}
	}
	for _, c := range v.Components() {
		add(c, v.processes[c])
	}
	for _, command := range sortedKeys(v.others) {
		add("", v.others[command])
	}
	return all
}

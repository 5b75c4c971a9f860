package diagnose

import (
	"errors"
	"fmt"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/record"
)

// Logged is what a component's log says of one kind during the load; the kinds
// are those of analysis/logs.
type Logged struct {
	Count   int64
	Seconds float64 // that the lines tell of together; -1 where none does
	Last    logs.Event
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
}

// Spent is what CPU a component's profile found in one class of work.
type Spent struct {
	CPUSeconds float64 // in the load
	Share      float64 // of the component's CPU, idle spinning left out
	PerPod     float64 // CPU-seconds; 0 where no pod arrived
}

// Work is how much CPU of a component went to a path of analysis/functions, as
// its profiles of the load saw it. ok is false where there are none.
func (v *View) Work(component, path string) (Spent, bool) {
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
	s := Spent{CPUSeconds: p.By[path], Share: p.By[path] / p.Seconds}
	if n := v.Arrived(); n > 0 {
		s.PerPod = s.CPUSeconds / float64(n)
	}
	return s, true
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

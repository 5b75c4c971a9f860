// Package usage derives from a recording what each process used of the CPU
// between two moments, and how often it woke up, and sets that beside what the
// machine as a whole did. It states what was; who reads it judges.
//
// Start with Read, then Usage.Between.
package usage

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Kernel is the name of all kernel threads together.
const Kernel = "kernel threads"

// Unknown is a number that nothing tells.
const Unknown = -1

// Row is what the processes of one name used.
type Row struct {
	// Name is a component's, else the program's, without folder and arguments.
	Name string
	// Component says that the run knows these processes.
	Component  bool
	CPUSeconds float64
	// Wakeups is how often their threads went to sleep and were woken: voluntary
	// context switches. Those of processes that lived between two samples are
	// not in it. Unknown where one of the processes does not tell.
	Wakeups float64
	// Processes is how many there were, those that came and went included.
	Processes int
}

// Window is what was used between two moments. All but Seconds and CPUs are
// CPU-seconds.
type Window struct {
	Seconds float64
	CPUs    int
	// Busy is all of the machine's time but idle and iowait. The idle time is what
	// the kernel measures exactly; user and system time it samples at its ticks,
	// which hides who wakes up for less than one. Steal is what the hypervisor
	// took. It is partly in Busy, and partly in what counts as idle: a CPU that
	// is woken late.
	Busy, IOWait, Steal float64
	Rows                []Row // by name, components first
}

// Outside is the busy time that no process shows: interrupts, some of the stolen
// time, and processes whose end nobody told of. It may be a little below 0, as
// clocks have steps of 10 ms.
func (w Window) Outside() float64 {
	left := w.Busy
	for _, r := range w.Rows {
		left -= r.CPUSeconds
	}
	return left
}

// Usage is a recording's processes, ready to be asked.
type Usage struct {
	cpus    int
	machine []record.MachineSample
	lives   []life
}

// A life is one process from its first sight to its last. Counters rise.
type life struct {
	name      string
	component bool
	ended     bool    // somebody told so
	at        []int64 // µs
	cpu       []float64
	wakeups   []float64 // -1 unknown
}

// ErrNothing is the error of a recording without processes, or without the
// machine's own counters.
var ErrNothing = errors.New("not assessed: the recording has no samples of processes and machine")

// Read reads the processes of a recording.
func Read(rec *record.Recording) (*Usage, error) {
	samples, err := rec.Processes()
	if err == nil {
		var machine []record.MachineSample
		if machine, err = rec.MachineSamples(); err == nil {
			exits, missing := rec.Exits()
			if missing != nil && !errors.Is(missing, record.ErrMissing) {
				return nil, missing
			}
			return of(rec.Meta(), samples, machine, exits)
		}
	}
	if errors.Is(err, record.ErrMissing) {
		return nil, ErrNothing
	}
	return nil, err
}

func of(m record.Meta, samples []record.ProcessSample, machine []record.MachineSample, exits []record.ProcessExit) (*Usage, error) {
	if len(samples) == 0 || len(machine) < 2 || m.Machine.CPUs == 0 {
		return nil, ErrNothing
	}
	u := &Usage{cpus: m.Machine.CPUs, machine: slices.Clone(machine)}
	slices.SortFunc(u.machine, func(a, b record.MachineSample) int { return cmp.Compare(a.TimeMicros, b.TimeMicros) })
	began := u.machine[0].TimeMicros
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b record.ProcessSample) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartMicros, b.StartMicros), cmp.Compare(a.TimeMicros, b.TimeMicros))
	})
	ends := map[int32][]record.ProcessExit{}
	for _, e := range exits {
		ends[e.PID] = append(ends[e.PID], e)
	}
	for i := 0; i < len(samples); {
		j := i + 1
		for j < len(samples) && samples[j].PID == samples[i].PID && samples[j].StartMicros == samples[i].StartMicros {
			j++
		}
		u.lives = append(u.lives, lived(samples[i:j], began, ends))
		i = j
	}
	// Who is left lived between two samples.
	for _, of := range ends {
		for _, e := range of {
			u.lives = append(u.lives, life{
				name: nameOf(e.Component, e.Command), component: e.Component != "", ended: true,
				at:      []int64{min(e.StartMicros, e.TimeMicros-1), e.TimeMicros},
				cpu:     []float64{0, e.UserSeconds + e.SystemSeconds},
				wakeups: []float64{0, 0},
			})
		}
	}
	return u, nil
}

// lived is a process from its samples, with what it used before the first and
// after the last of them where that is known; its end is taken out of ends.
func lived(samples []record.ProcessSample, began int64, ends map[int32][]record.ProcessExit) life {
	last := samples[len(samples)-1]
	l := life{name: nameOf(last.Component, last.Command), component: last.Component != ""}
	add := func(at int64, cpu, wakeups float64) {
		l.at, l.cpu, l.wakeups = append(l.at, at), append(l.cpu, cpu), append(l.wakeups, wakeups)
	}
	if start := last.StartMicros; start >= began && start < samples[0].TimeMicros {
		add(start, 0, 0) // it started under our eyes
	}
	for _, s := range samples {
		add(s.TimeMicros, s.UserSeconds+s.SystemSeconds, float64(s.VoluntarySwitches))
	}
	of := ends[last.PID]
	i := slices.IndexFunc(of, func(e record.ProcessExit) bool { return e.Ends(last) })
	if i >= 0 {
		e := of[i]
		l.ended = true
		ends[last.PID] = slices.Delete(slices.Clone(of), i, i+1)
		if e.TimeMicros > last.TimeMicros {
			add(e.TimeMicros, max(e.UserSeconds+e.SystemSeconds, l.cpu[len(l.cpu)-1]), l.wakeups[len(l.wakeups)-1])
		}
	}
	return l
}

// nameOf is what a process is called in a table.
func nameOf(component, command string) string {
	switch {
	case component != "":
		return component
	case strings.HasPrefix(command, "["):
		return Kernel
	}
	program, _, _ := strings.Cut(command, " ")
	return strings.TrimSuffix(path.Base(program), ":")
}

// Between is what was used between two moments of the recording. Counters count
// straight between samples. It is an error where the machine was not looked at
// over the whole of it.
func (u *Usage) Between(w record.Window) (Window, error) {
	a, b := w.Start.UnixMicro(), w.End.UnixMicro()
	// An edge may lie a moment beyond the samples.
	first, last := u.machine[0].TimeMicros, u.machine[len(u.machine)-1].TimeMicros
	const slack = 1_500_000
	if a >= b || a < first-slack || b > last+slack {
		return Window{}, fmt.Errorf("not assessed: the recording's samples of the machine do not cover the %.1f s from %s", w.Seconds(), w.Start.UTC().Format("15:04:05.000"))
	}
	a, b = max(a, first), min(b, last)
	out := Window{Seconds: float64(b-a) / 1e6, CPUs: u.cpus}
	idle := u.counter(a, b, func(m record.MachineSample) float64 { return m.Idle })
	out.IOWait = max(0, u.counter(a, b, func(m record.MachineSample) float64 { return m.IOWait }))
	out.Steal = u.counter(a, b, func(m record.MachineSample) float64 { return m.Steal })
	out.Busy = out.Seconds*float64(u.cpus) - idle - out.IOWait
	rows := map[string]*Row{}
	for _, l := range u.lives {
		if l.at[len(l.at)-1] <= a && (l.ended || l.gone(b)) || l.at[0] >= b {
			continue
		}
		key := l.name
		if !l.component {
			key = "\x00" + key // somebody else's may have the same name
		}
		r := rows[key]
		if r == nil {
			r = &Row{Name: l.name, Component: l.component}
			rows[key] = r
		}
		r.Processes++
		r.CPUSeconds += stat.Interpolate(l.at, l.cpu, b) - stat.Interpolate(l.at, l.cpu, a)
		if slices.Contains(l.wakeups, Unknown) {
			r.Wakeups = Unknown
		} else if r.Wakeups != Unknown {
			r.Wakeups += stat.Interpolate(l.at, l.wakeups, b) - stat.Interpolate(l.at, l.wakeups, a)
		}
	}
	for _, r := range rows {
		out.Rows = append(out.Rows, *r)
	}
	slices.SortFunc(out.Rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(order(x.Component), order(y.Component)), cmp.Compare(x.Name, y.Name))
	})
	return out, nil
}

func order(component bool) int {
	if component {
		return 0
	}
	return 1
}

// gone reports whether a process was over long before t: an idle one has a
// sample in ten seconds only.
func (l life) gone(t int64) bool { return t-l.at[len(l.at)-1] > 12_000_000 }

func (u *Usage) counter(a, b int64, of func(record.MachineSample) float64) float64 {
	times, values := make([]int64, len(u.machine)), make([]float64, len(u.machine))
	for i, m := range u.machine {
		times[i], values[i] = m.TimeMicros, of(m)
	}
	return stat.Interpolate(times, values, b) - stat.Interpolate(times, values, a)
}

package spikes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// What a row is about.
const (
	Machine   = "machine"
	Component = "component"
	Command   = "command" // processes of one command line, which come and go
	Process   = "process"
)

// Kinds of rows.
const (
	Repeats = "period"
	Spikes  = "spike"
)

// DefaultMinShare of a core is the least that is worth a row.
const DefaultMinShare = 0.005

const (
	// shortLife is how long a process may live and still be one execution of a
	// command rather than a process with a life of its own.
	shortLife = 30.0
	// falseShare is the share of false claims among the periods of a result.
	falseShare = 0.01
	// spikeFloor is the least height of a spike in cores: below it, a counter
	// that moves in steps of 10 ms spikes by itself. A machine's is higher.
	spikeFloor        = 0.05
	machineSpikeFloor = 0.1
	// inPhase is the least share of a spike that makes it somebody's.
	inPhase = 0.2
)

// Options of Find. The zero value works.
type Options struct {
	Window     record.Window // zero: the whole recording
	Components []string      // rows of these only; the machine's are always there
	MinShare   float64       // of a core over the window; 0: DefaultMinShare
}

// Row is a rhythm, or a set of spikes, of one thing.
type Row struct {
	What         string    `json:"what"`
	Name         string    `json:"name"` // command line, component, or machine
	Component    string    `json:"component,omitempty"`
	PID          int32     `json:"pid,omitempty"`
	Kind         string    `json:"kind"`
	Period       float64   `json:"periodSeconds"` // 0: none
	PeriodError  float64   `json:"periodError"`   // standard error
	Exact        bool      `json:"exact"`         // from start times of processes, not from a series
	First        float64   `json:"firstSeconds"`  // since the run's start
	Count        int       `json:"count"`         // cycles, spikes, or executions where there is no period
	Executions   int       `json:"executions"`    // of a command; 0 else
	Each         float64   `json:"cpuSecondsEach"`
	Share        float64   `json:"shareOfCore"`
	Total        float64   `json:"cpuSeconds"`
	OfSpikes     float64   `json:"shareOfMachineSpikes"` // of the machine's spikes, those that it has a good part in; -1 where there are none
	MaybeFaster  bool      `json:"maybeFaster"`          // may be the alias of something faster than 2 s
	Starts       []float64 `json:"startSeconds"`         // of spikes or executions, since the run's start; of a series' period, when each was due
	Contributors []Part    `json:"contributors"`         // of the machine's rows: who rises in the same seconds
}

// Part is one's part in a rhythm or in spikes.
type Part struct {
	What  string  `json:"what"`
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// Result is all that was found.
type Result struct {
	Rows []Row
	// Seconds and Cores are the machine's busy CPUs over time; Marks says which
	// of them are in a spike.
	Seconds []float64
	Cores   []float64
	Marks   []bool
	Spikes  int      // of the machine
	Tested  int      // series that were asked for a period
	Notes   []string // what is not in the recording, and what that hides
}

// finder holds what the steps of Find share.
type finder struct {
	Result
	o      Options
	g      grid
	since  func(int64) float64
	span   float64
	share  float64
	spikes []stat.Spike // of the machine
	busy   []float64    // machine's CPU-seconds, by cell
	things []*thing
	claims []*claim
}

// thing is somebody whose CPU over time is known.
type thing struct {
	what, name, component string
	pid                   int32
	first                 int       // cell of the first amount
	amounts               []float64 // NaN unknown
	total                 float64
	starts                []float64 // of executions
	alike                 string    // the command line of all executions, where it is the same; else empty
}

// claim is a period that still has to stand its being one of many tests.
type claim struct {
	of    *thing
	p     stat.Period
	exact bool
}

// Source is what Find reads of a recording.
type Source interface {
	Meta() record.Meta
	MachineSamples() ([]record.MachineSample, error)
	Processes() ([]record.ProcessSample, error)
	Exits() ([]record.ProcessExit, error)
}

// Find looks for spikes and periods. An error wrapping record.ErrMissing says
// that the recording has neither processes nor a machine.
func Find(rec Source, o Options) (Result, error) {
	m := rec.Meta()
	if o.Window.Start.IsZero() {
		o.Window = record.Window{Start: m.Started, End: m.Ended.Add(time.Microsecond)}
	}
	f := &finder{o: o, since: func(us int64) float64 { return time.UnixMicro(us).Sub(m.Started).Seconds() }}
	f.share = o.MinShare
	if f.share == 0 {
		f.share = DefaultMinShare
	}
	machine, err := rec.MachineSamples()
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return Result{}, err
	}
	samples, perr := rec.Processes()
	if perr != nil && !errors.Is(perr, record.ErrMissing) {
		return Result{}, perr
	}
	exits, xerr := rec.Exits()
	if xerr != nil && !errors.Is(xerr, record.ErrMissing) {
		return Result{}, xerr
	}
	if err != nil && perr != nil {
		return Result{}, perr
	}
	f.lay(machine, samples)
	if f.g.cells() < 10 {
		return Result{}, fmt.Errorf("processes were read in %d seconds of the window: %w", len(f.g.at), record.ErrMissing)
	}
	f.span = f.g.seconds()
	if err != nil {
		f.note("the machine's spikes are not assessed: %v", err)
	} else {
		f.machine(machine)
	}
	processes := f.g.read(samples, f.since)
	if perr != nil {
		f.note("processes are not assessed: %v", perr)
	}
	if xerr != nil {
		f.note("commands that live shorter than a second are not assessed: %v", xerr)
	}
	f.others(processes, exits, xerr != nil)
	f.rows()
	return f.Result, nil
}

func (f *finder) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// lay makes the grid of the machine's samples, or of the processes' where
// there are none.
func (f *finder) lay(machine []record.MachineSample, samples []record.ProcessSample) {
	add := func(us int64) {
		at := time.UnixMicro(us)
		// A sample is the state after its second: those at the edges belong to it.
		if at.Before(f.o.Window.Start.Add(-time.Second/2)) || at.After(f.o.Window.End.Add(time.Second/2)) {
			return
		}
		if t := f.since(us); len(f.g.at) == 0 || t > f.g.at[len(f.g.at)-1]+0.3 {
			f.g.at = append(f.g.at, t)
		}
	}
	for _, s := range machine {
		add(s.TimeMicros)
	}
	if len(machine) == 0 {
		for _, s := range samples {
			add(s.TimeMicros)
		}
	}
	if n := len(f.g.at); n > 2 {
		missing := 0
		for i := 1; i < n; i++ {
			missing += max(int(math.Round(f.g.at[i]-f.g.at[i-1]))-1, 0)
		}
		if missing > 0 {
			f.note("%d of %d seconds were not read", missing, missing+n-1)
		}
	}
}

func (f *finder) machine(samples []record.MachineSample) {
	busy := make([]float64, f.g.cells())
	at, before := -1, 0.0
	for _, s := range samples {
		t := f.since(s.TimeMicros)
		if t < f.g.at[0]-0.2 || t > f.g.at[len(f.g.at)-1]+0.2 {
			continue
		}
		i, cpu := f.g.tick(t), s.User+s.System
		if at >= 0 && i > at {
			for j := at; j < i; j++ {
				busy[j] = math.NaN()
			}
			if i == at+1 {
				busy[at] = max(cpu-before, 0)
			}
		}
		if i > at {
			at, before = i, cpu
		}
	}
	f.busy = busy
	bins := f.g.bins(busy)
	f.spikes = stat.Spikes(bins, stat.SpikeOptions{Floor: machineSpikeFloor})
	f.Result.Spikes = len(f.spikes)
	for _, b := range bins {
		mark := slices.ContainsFunc(f.spikes, func(s stat.Spike) bool { return b.Mid() >= s.Start && b.Mid() < s.End })
		f.Seconds, f.Cores, f.Marks = append(f.Seconds, b.Start), append(f.Cores, b.Rate()), append(f.Marks, mark)
	}
	t := &thing{what: Machine, name: Machine, amounts: busy}
	for _, b := range bins {
		t.total += b.Amount
	}
	f.things = append(f.things, t)
}

// others makes things of processes, commands and components.
func (f *finder) others(processes []*life, exits []record.ProcessExit, noExits bool) {
	commands, components := map[string]*thing{}, map[string]*thing{}
	members := map[string]int{}
	group := func(by map[string]*thing, what, name string) *thing {
		t := by[name]
		if t == nil {
			t = &thing{what: what, name: name, amounts: make([]float64, f.g.cells())}
			by[name] = t
		}
		return t
	}
	from, to := f.g.at[0], f.g.at[len(f.g.at)-1]
	// Where the kernel told of a process's end, its exit has all of it.
	type key struct {
		pid   int32
		start int64 // in 50 ms
	}
	told := map[key]bool{}
	execute := func(start, end, cpu float64, command, component string) {
		c := group(commands, Command, Normal(command))
		if line := shown(command); len(c.starts) == 0 {
			c.alike = line
		} else if c.alike != line {
			c.alike = ""
		}
		c.component = cmp.Or(c.component, component)
		c.starts = append(c.starts, start)
		c.total += cpu
		f.g.spread(c.amounts, start, end, cpu)
		if component != "" {
			g := group(components, Component, component)
			g.total += cpu
			f.g.spread(g.amounts, start, end, cpu)
		}
	}
	for _, e := range exits {
		start, end := f.since(e.StartMicros), f.since(e.TimeMicros)
		if start < from || start >= to || end-start > shortLife {
			continue
		}
		told[key{e.PID, int64(math.Round(start * 20))}] = true
		execute(start, end, e.UserSeconds+e.SystemSeconds, e.Command, e.Component)
	}
	for _, p := range processes {
		k := key{p.pid, int64(math.Round(p.start * 20))}
		if told[k] || told[key{p.pid, k.start - 1}] || told[key{p.pid, k.start + 1}] {
			continue
		}
		end := f.g.at[p.end]
		if noExits && p.start >= from && end < to && end-p.start < shortLife {
			// All that is known of its life is what the readings showed.
			execute(p.start, end, p.total, p.command, p.component)
			continue
		}
		if p.component != "" {
			g := group(components, Component, p.component)
			members[p.component]++
			g.total += p.total
			for i, a := range p.amounts {
				g.amounts[p.first+i] += a
			}
		}
		f.things = append(f.things, &thing{
			what: Process, name: p.command, component: p.component, pid: p.pid, first: p.first, amounts: p.amounts, total: p.total,
		})
	}
	// A component of one process is that process: one of the two is enough.
	f.things = slices.DeleteFunc(f.things, func(t *thing) bool {
		return t.what == Process && t.component != "" && members[t.component] == 1
	})
	for _, by := range []map[string]*thing{components, commands} {
		for _, t := range by {
			if t.what == Component {
				t.component = t.name
			}
			t.name = cmp.Or(t.alike, t.name)
			f.things = append(f.things, t)
		}
	}
	rank := map[string]int{Machine: 0, Component: 1, Command: 2, Process: 3}
	slices.SortFunc(f.things, func(a, b *thing) int {
		return cmp.Or(cmp.Compare(rank[a.what], rank[b.what]), cmp.Compare(b.total, a.total), cmp.Compare(a.name, b.name), cmp.Compare(a.pid, b.pid))
	})
}

func (f *finder) wanted(t *thing) bool {
	return t.what == Machine || t.total >= f.share*f.span && (len(f.o.Components) == 0 || slices.Contains(f.o.Components, t.component))
}

// rows asks each thing for a period, and those without for spikes.
func (f *finder) rows() {
	var ps []float64
	for _, t := range f.things {
		if !f.wanted(t) {
			continue
		}
		f.Tested++
		c := &claim{of: t}
		var ok bool
		if t.what == Command {
			c.exact = true
			c.p, ok = stat.PeriodOfEvents(t.starts, stat.PeriodOptions{Max: f.span / 4, Alpha: falseShare})
		} else {
			c.p, ok = stat.PeriodOf(t.bins(f.g), stat.PeriodOptions{Alpha: falseShare})
		}
		if ok {
			ps = append(ps, c.p.P)
		} else {
			c.p.P = 2
		}
		f.claims = append(f.claims, c)
	}
	limit := stat.FalseDiscovery(ps, f.Tested, falseShare)
	for _, c := range f.claims {
		if c.p.P <= limit {
			f.Rows = append(f.Rows, f.period(c))
			if c.of.what != Machine {
				continue
			}
		}
		f.Rows = append(f.Rows, f.spikesOf(c.of)...)
	}
	// Rhythms first, then what costs most.
	slices.SortStableFunc(f.Rows, func(a, b Row) int {
		if a.Kind != b.Kind {
			return cmp.Compare(a.Kind, b.Kind) // period, spike
		}
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
}

func (t *thing) bins(g grid) []stat.Bin {
	return grid{at: g.at[t.first : t.first+len(t.amounts)+1]}.bins(t.amounts)
}

func (t *thing) row(kind string) Row {
	return Row{What: t.what, Name: t.name, Component: t.component, PID: t.pid, Kind: kind, OfSpikes: -1}
}

func (f *finder) period(c *claim) Row {
	t, p := c.of, c.p
	r := t.row(Repeats)
	r.Period, r.PeriodError, r.First, r.Exact = p.Seconds, p.Error, p.First, c.exact
	if c.exact {
		r.Count = max(int(math.Round(float64(p.Cycles)*p.Coverage)), 1)
		r.Executions, r.Starts, r.Total = len(t.starts), sorted(t.starts), t.total
		r.Each = t.total / float64(r.Count)
		r.First = r.Starts[0]
	} else {
		r.Count = p.Cycles
		r.Each = p.Amount
		first := p.First
		for ; first-p.Seconds >= f.g.at[t.first]; first -= p.Seconds {
		}
		for k := range p.Cycles {
			r.Starts = append(r.Starts, first+float64(k)*p.Seconds)
		}
		r.First = first
		r.Total = p.Amount * float64(p.Cycles)
		r.MaybeFaster = p.Duty > 0.6
	}
	r.Share = r.Each / p.Seconds
	if t.what == Machine {
		r.Contributors = f.contributors(f.high(p))
		return r
	}
	r.OfSpikes = f.ofSpikes(t)
	return r
}

// high are the cells in which a period is due to be high.
func (f *finder) high(p stat.Period) []bool {
	high := make([]bool, f.g.cells())
	for i := range high {
		d := math.Mod((f.g.at[i]+f.g.at[i+1])/2-p.First, p.Seconds) / p.Seconds
		d -= math.Round(d)
		high[i] = math.Abs(d)*p.Seconds <= max(p.Duty*p.Seconds/2, 0.75)
	}
	return high
}

// spikesOf is the row of a thing's spikes, or of the executions of a command
// that keeps no rhythm.
func (f *finder) spikesOf(t *thing) []Row {
	r := t.row(Spikes)
	if t.what == Command {
		r.Count, r.Executions, r.Starts, r.Total = len(t.starts), len(t.starts), sorted(t.starts), t.total
		r.First, r.Each, r.Share, r.OfSpikes = r.Starts[0], t.total/float64(len(t.starts)), t.total/f.span, f.ofSpikes(t)
		return []Row{r}
	}
	spikes := f.spikes
	if t.what != Machine {
		spikes = stat.Spikes(t.bins(f.g), stat.SpikeOptions{Floor: spikeFloor})
	}
	if len(spikes) == 0 {
		return nil
	}
	for _, s := range spikes {
		r.Starts = append(r.Starts, s.Start)
		r.Total += s.Amount
	}
	r.Count, r.First = len(spikes), spikes[0].Start
	r.Each, r.Share = r.Total/float64(r.Count), r.Total/f.span
	if t.what == Machine {
		high := make([]bool, f.g.cells())
		for i := range high {
			mid := (f.g.at[i] + f.g.at[i+1]) / 2
			high[i] = slices.ContainsFunc(spikes, func(s stat.Spike) bool { return mid >= s.Start && mid < s.End })
		}
		r.Contributors = f.contributors(high)
		return []Row{r}
	}
	r.OfSpikes = f.ofSpikes(t)
	return []Row{r}
}

// rise is how much more CPU amounts have in the high cells than these would
// have at the mean rate of the low ones nearby.
func (f *finder) rise(first int, amounts []float64, high []bool) (over float64) {
	const around = 30 // cells
	// Running sums of the low cells, so that each high one finds its
	// surroundings at once.
	n := len(amounts)
	sum, seconds := make([]float64, n+1), make([]float64, n+1)
	for i, a := range amounts {
		sum[i+1], seconds[i+1] = sum[i], seconds[i]
		if !math.IsNaN(a) && !high[first+i] {
			sum[i+1] += a
			seconds[i+1] += f.g.at[first+i+1] - f.g.at[first+i]
		}
	}
	for i, a := range amounts {
		if math.IsNaN(a) || !high[first+i] {
			continue
		}
		lo, hi := max(i-around, 0), min(i+around+1, n)
		base := 0.0
		if d := seconds[hi] - seconds[lo]; d > 0 {
			base = (sum[hi] - sum[lo]) / d
		}
		over += a - base*(f.g.at[first+i+1]-f.g.at[first+i])
	}
	return over
}

// contributors are who rises when the machine does, by their share of the rise.
func (f *finder) contributors(high []bool) []Part {
	whole := f.rise(0, f.busy, high)
	if whole <= 0 {
		return nil
	}
	var parts []Part
	for _, t := range f.things {
		if t.what == Machine || len(t.amounts) == 0 || t.what == Process && t.component != "" || t.what == Command && t.component != "" {
			continue // a component speaks for its processes
		}
		if share := f.rise(t.first, t.amounts, high) / whole; share >= 0.02 {
			parts = append(parts, Part{t.what, t.name, share})
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(b.Share, a.Share) })
	return parts[:min(len(parts), 10)]
}

// ofSpikes is the share of the machine's spikes that a thing has a good part in.
func (f *finder) ofSpikes(t *thing) float64 {
	if len(f.spikes) == 0 {
		return -1
	}
	n := 0
	high := make([]bool, f.g.cells())
	for _, s := range f.spikes {
		lo, hi := f.g.tick(s.Start), f.g.tick(s.End)
		for i := lo; i < hi; i++ {
			high[i] = true
		}
		// Only the cells around one spike matter for it.
		from, to := max(lo-10, t.first), min(hi+10, t.first+len(t.amounts))
		if from < to && f.rise(from, t.amounts[from-t.first:to-t.first], high) >= inPhase*s.Amount {
			n++
		}
		for i := lo; i < hi; i++ {
			high[i] = false
		}
	}
	return float64(n) / float64(len(f.spikes))
}

func sorted(xs []float64) []float64 {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s
}

// Package functions holds what is derived from profiles and call stacks: which
// functions used CPU, memory or locks, and what that is per pod and per
// request. It states what was; it judges nothing.
//
// # Formula
//
// A CPU profile looks at C seconds of a phase that lasts W. What it saw of a
// function, m CPU-seconds, stands for m × W ÷ C CPU-seconds of the phase, as if
// the seconds that were not looked at were like the others. Per pod is that
// divided by the pods that became Running in the phase, per request by the
// requests, but watches, that the API server finished in it.
//
// Sampled stacks look at every second, so that n samples are n × their interval in CPU-s,
// and any stretch of seconds can be asked for. From n samples of a function
// its CPU-seconds are known to about ± 1/√n of themselves.
//
// Start with Of.
package functions

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
)

// A Source is where a table of functions comes from.
type Source string

// The sources.
const (
	FromProfiles Source = "pprof"  // profiles of each component, over whole phases
	FromStacks   Source = "stacks" // samples of the machine, any stretch of it
)

// Kinds of profile.
const (
	CPU       = "cpu"
	Heap      = "heap"
	Goroutine = "goroutine"
	Mutex     = "mutex"
	Block     = "block"
)

// Kinds lists them.
var Kinds = []string{CPU, Heap, Goroutine, Mutex, Block}

// NoComponent selects what ran beside the run.
const NoComponent = "none"

// apiServer is whose work is counted in requests.
const apiServer = "kube-apiserver"

// A Query says what to look at.
type Query struct {
	Component string // empty: all
	Phase     string // of profiles; empty: all
	Window    record.Window
	Source    Source
	Kind      string // empty: CPU
}

// A Row is one function of one component.
type Row struct {
	Component string `json:"component,omitempty"`
	Function  string `json:"function"`
	Package   string `json:"package,omitempty"`
	File      string `json:"file,omitempty"` // of profiles
	Class     string `json:"class,omitempty"`
	// In the table's unit. Self is in the function's own code, Cum in what it
	// called too; a function that calls itself counts once.
	Self      float64 `json:"self"`
	Cum       float64 `json:"cum"`
	SelfShare float64 `json:"selfShare"` // of the table's total
	CumShare  float64 `json:"cumShare"`
	// Per pod and, of the API server, per request; -1 where it cannot be said.
	SelfPerPod     float64 `json:"selfPerPod"`
	CumPerPod      float64 `json:"cumPerPod"`
	SelfPerRequest float64 `json:"selfPerRequest"`
	CumPerRequest  float64 `json:"cumPerRequest"`
	// Growth is by how much Self grew over the phase: of heap and goroutines,
	// which are a state and not a sum. 0 where HasGrowth is false.
	Growth    float64 `json:"growth"`
	HasGrowth bool    `json:"hasGrowth"`
	Note      string  `json:"note,omitempty"` // what a well-known function means
}

// A Cover is how much of a stretch one component's profile looked at.
type Cover struct {
	Component      string        `json:"component"`
	Phase          string        `json:"phase"`
	Window         record.Window `json:"window"`
	CoveredSeconds float64       `json:"coveredSeconds"`
}

// Scale is by what is multiplied to speak of the whole window: W ÷ C.
func (c Cover) Scale() float64 {
	if w := c.Window.Seconds(); c.CoveredSeconds > 0 && w > c.CoveredSeconds {
		return w / c.CoveredSeconds
	}
	return 1
}

// A Table is the functions of a query.
type Table struct {
	Source   Source
	Kind     string
	Unit     string // CPU-s, bytes, goroutines, s
	Total    float64
	Covers   []Cover // of profiles
	Samples  int     // of stacks
	Windows  []record.Window
	Pods     int // that became Running in the windows; -1 unknown
	Requests int // that the API server finished in them, watches left out; -1 unknown
	Rows     []Row
	Classes  []ClassRow // the same by class of work, the most first
	Warnings []string
}

// Of makes the table of a query, sorted by Self. Where the recording lacks
// what is needed the error wraps record.ErrMissing.
func Of(rec *record.Recording, q Query) (*Table, error) {
	q.Kind = cmp.Or(q.Kind, CPU)
	t := &Table{Source: q.Source, Kind: q.Kind}
	s := newSums()
	var err error
	switch {
	case q.Source == FromProfiles:
		err = t.profiles(rec, q, s)
	case q.Kind == CPU:
		err = t.stacks(rec, q, s)
	default:
		err = fmt.Errorf("stacks are of CPU: there is no %s in them", q.Kind)
	}
	if err != nil {
		return nil, err
	}
	t.count(rec)
	t.fill(s)
	return t, nil
}

// DefaultSource is what a query is best answered from: profiles know inlined
// functions and files, stacks know every second and the kernel.
func DefaultSource(rec *record.Recording, kind string, part bool) Source {
	if kind != "" && kind != CPU {
		return FromProfiles
	}
	has := slices.ContainsFunc(rec.Profiles(), func(p record.ProfileRef) bool { return p.Kind == CPU })
	if part || !has {
		return FromStacks
	}
	return FromProfiles
}

// A frame is one function in a stack.
type frame struct{ function, file string }

type rowKey struct{ component, function string }

// sums adds up samples.
type sums struct {
	rows  map[rowKey]*Row
	work  map[rowKey]float64 // by component and class of work
	total float64
	known classes
	seen  map[string]bool
}

func newSums() *sums {
	return &sums{rows: map[rowKey]*Row{}, work: map[rowKey]float64{}, known: classes{}, seen: map[string]bool{}}
}

// add counts one sample: frames innermost first.
func (s *sums) add(component string, frames []frame, value float64) {
	s.total += value
	s.work[rowKey{component, s.known.work(frames)}] += value
	clear(s.seen)
	for i, f := range frames {
		if s.seen[f.function] {
			continue
		}
		s.seen[f.function] = true
		r := s.row(component, f)
		r.Cum += value
		if i == 0 {
			r.Self += value
		}
	}
}

func (s *sums) row(component string, f frame) *Row {
	k := rowKey{component, f.function}
	r := s.rows[k]
	if r == nil {
		r = &Row{Component: component, Function: f.function, File: f.file}
		s.rows[k] = r
	}
	return r
}

// fill derives what follows from the sums, and sorts.
func (t *Table) fill(s *sums) {
	t.Total = s.total
	for _, r := range s.rows {
		r.Package, r.Class, r.Note = Package(r.Function), Classify(r.Function), Explain(r.Function)
		if t.Total != 0 {
			r.SelfShare, r.CumShare = r.Self/t.Total, r.Cum/t.Total
		}
		r.SelfPerPod, r.SelfPerRequest = t.per(r.Component, r.Self)
		r.CumPerPod, r.CumPerRequest = t.per(r.Component, r.Cum)
		t.Rows = append(t.Rows, *r)
	}
	t.Sort(false)
	for k, v := range s.work {
		c := ClassRow{Component: k.component, Class: k.function, Value: v}
		if t.Total != 0 {
			c.Share = v / t.Total
		}
		c.PerPod, c.PerRequest = t.per(c.Component, v)
		t.Classes = append(t.Classes, c)
	}
	slices.SortFunc(t.Classes, func(a, b ClassRow) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Class, b.Class))
	})
}

// per divides a value by the pods and, of the API server, by the requests; -1
// where there were none.
func (t *Table) per(component string, value float64) (pod, request float64) {
	pod, request = -1, -1
	if t.Pods > 0 {
		pod = value / float64(t.Pods)
	}
	if t.Requests > 0 && component == apiServer {
		request = value / float64(t.Requests)
	}
	return pod, request
}

// Sort orders the rows by what functions used themselves or, by cum, with all
// they called; the most first.
func (t *Table) Sort(cum bool) {
	slices.SortFunc(t.Rows, func(a, b Row) int {
		x, y := a.Self, b.Self
		if cum {
			x, y = a.Cum, b.Cum
		}
		return cmp.Or(cmp.Compare(y, x), cmp.Compare(b.Cum, a.Cum), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Function, b.Function))
	})
}

// valueOf is the sample value that a kind of profile is about, its unit, and
// what makes that of it.
var valueOf = map[string]struct {
	types  []string
	unit   string
	factor float64
}{
	CPU:       {[]string{"cpu"}, "CPU-s", 1e-9},
	Heap:      {[]string{"inuse_space"}, "bytes", 1},
	Goroutine: {[]string{"goroutine"}, "goroutines", 1},
	Mutex:     {[]string{"delay"}, "s", 1e-9},
	Block:     {[]string{"delay"}, "s", 1e-9},
}

// profiles adds up the profiles of a query.
func (t *Table) profiles(rec *record.Recording, q Query, s *sums) error {
	v, ok := valueOf[q.Kind]
	if !ok {
		return fmt.Errorf("no kind of profile is called %q; there are %s", q.Kind, strings.Join(Kinds, ", "))
	}
	t.Unit = v.unit
	refs := Profiles(rec, q)
	if len(refs) == 0 {
		return missing(rec, q)
	}
	windows := map[string]record.Window{}
	for _, p := range rec.Phases() {
		windows[p.Name] = p.Window()
	}
	state := q.Kind == Heap || q.Kind == Goroutine
	for _, edges := range groups(refs, q) {
		first, last := edges[0], edges[len(edges)-1]
		w, known := windows[last.Phase]
		if !known {
			w = record.Window{Start: first.Start, End: last.End}
		}
		t.Windows = append(t.Windows, w)
		if q.Kind == CPU {
			for _, ref := range edges {
				p, err := read(rec, ref)
				if err != nil {
					return err
				}
				c := Cover{ref.Component, ref.Phase, w, float64(p.DurationNanos) / 1e9}
				t.Covers = append(t.Covers, c)
				if err := add(s, ref.Component, p, v.types, v.factor*c.Scale()); err != nil {
					return fmt.Errorf("%s: %w", ref.File, err)
				}
			}
			continue
		}
		p, err := read(rec, last)
		if err != nil {
			return err
		}
		end, start := newSums(), newSums()
		if err := add(end, last.Component, p, v.types, v.factor); err != nil {
			return fmt.Errorf("%s: %w", last.File, err)
		}
		if len(edges) > 1 && first.File != last.File {
			p, err := read(rec, first)
			if err != nil {
				return err
			}
			if err := add(start, first.Component, p, v.types, v.factor); err != nil {
				return fmt.Errorf("%s: %w", first.File, err)
			}
		} else if !state {
			t.Warnings = append(t.Warnings, fmt.Sprintf("%s: only one %s profile: its numbers are since the process's start", last.Component, q.Kind))
		}
		merge(s, end, start, state, len(edges) > 1)
	}
	return nil
}

// merge adds one component's profiles at both edges of its stretch: a state
// is that of the end, with its growth; a sum is what was added in between.
func merge(to, end, start *sums, state, both bool) {
	for k := range start.rows {
		if end.rows[k] == nil {
			end.row(k.component, frame{k.function, start.rows[k].File})
		}
	}
	for k, e := range end.rows {
		r := to.row(k.component, frame{k.function, e.File})
		self, cum := 0.0, 0.0
		if b := start.rows[k]; b != nil {
			self, cum = b.Self, b.Cum
		}
		if state {
			r.Self, r.Cum = r.Self+e.Self, r.Cum+e.Cum
			if both {
				r.Growth, r.HasGrowth = r.Growth+e.Self-self, true
			}
			continue
		}
		r.Self, r.Cum = r.Self+e.Self-self, r.Cum+e.Cum-cum
	}
	to.total += end.total
	for k, v := range end.work {
		to.work[k] += v
	}
	if state {
		return
	}
	to.total -= start.total
	for k, v := range start.work {
		to.work[k] -= v
	}
}

// Profiles are those that a query is about, oldest first within a component.
func Profiles(rec *record.Recording, q Query) []record.ProfileRef {
	var refs []record.ProfileRef
	for _, p := range rec.Profiles() {
		if p.Kind == cmp.Or(q.Kind, CPU) && (q.Component == "" || p.Component == q.Component) && (q.Phase == "" || p.Phase == q.Phase) {
			refs = append(refs, p)
		}
	}
	return refs
}

// groups puts profiles together whose edges belong together: those of one
// process and phase. Of states over the whole recording there is one stretch.
func groups(refs []record.ProfileRef, q Query) [][]record.ProfileRef {
	type key struct{ component, instance, phase string }
	by := map[key][]record.ProfileRef{}
	var order []key
	for _, p := range refs {
		k := key{p.Component, p.Instance, p.Phase}
		if q.Phase == "" && q.Kind != CPU {
			k.phase = ""
		}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], p)
	}
	var out [][]record.ProfileRef
	for _, k := range order {
		slices.SortStableFunc(by[k], func(a, b record.ProfileRef) int { return a.Start.Compare(b.Start) })
		out = append(out, by[k])
	}
	return out
}

func read(rec *record.Recording, ref record.ProfileRef) (*profile.Profile, error) {
	p, err := rec.ReadProfile(ref)
	if err != nil {
		return nil, err
	}
	// As every pprof does on opening: Go's heap profiles name the frames of
	// the profiler itself, to be left out.
	if err := p.RemoveUninteresting(); err != nil {
		return nil, fmt.Errorf("%s: %w", ref.File, err)
	}
	return p, nil
}

// add sums a profile's samples, each multiplied by factor.
func add(s *sums, component string, p *profile.Profile, types []string, factor float64) error {
	i := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return slices.Contains(types, v.Type) })
	if i < 0 {
		return fmt.Errorf("it has no value of type %s", strings.Join(types, " or "))
	}
	for _, sample := range p.Sample {
		if i >= len(sample.Value) || sample.Value[i] == 0 {
			continue
		}
		var frames []frame
		for _, l := range sample.Location {
			for _, line := range l.Line {
				if line.Function != nil {
					frames = append(frames, frame{line.Function.Name, line.Function.Filename})
				}
			}
			if len(l.Line) == 0 {
				frames = append(frames, frame{function: fmt.Sprintf("0x%x", l.Address)})
			}
		}
		s.add(component, frames, float64(sample.Value[i])*factor)
	}
	return nil
}

// missing is the error for profiles that are not there.
func missing(rec *record.Recording, q Query) error {
	var reasons []string
	for _, g := range rec.Meta().Gaps {
		if g.Collector == "profile" && (q.Component == "" || g.Subject == q.Component || g.Subject == "") && !slices.Contains(reasons, g.Reason) {
			reasons = append(reasons, g.Reason)
		}
	}
	of := ""
	if q.Component != "" {
		of += " of " + q.Component
	}
	if q.Phase != "" {
		of += " in phase " + q.Phase
	}
	if len(reasons) == 0 {
		return fmt.Errorf("%s profiles%s: %w", q.Kind, of, record.ErrMissing)
	}
	return fmt.Errorf("%s profiles%s: %w: %s", q.Kind, of, record.ErrMissing, strings.Join(reasons, "; "))
}

// stacks adds up the samples of a query.
func (t *Table) stacks(rec *record.Recording, q Query, s *sums) error {
	t.Unit = "CPU-s"
	t.Windows = []record.Window{q.Window}
	all, err := Samples(rec, q.Component, q.Window)
	if err != nil {
		return err
	}
	period := Period(rec)
	frames := map[string][]frame{}
	for _, x := range all {
		f, ok := frames[x.Frames]
		if !ok {
			for _, name := range strings.Split(x.Frames, ";") {
				f = append(f, frame{function: name})
			}
			slices.Reverse(f)
			frames[x.Frames] = f
		}
		t.Samples += x.Count
		s.add(x.Component, f, float64(x.Count)*period)
	}
	for _, g := range rec.Meta().Gaps {
		if g.Collector == "stacks" && g.Subject == "samples" && g.Start.Before(q.Window.End) && q.Window.Start.Before(g.End) {
			t.Warnings = append(t.Warnings, g.Reason)
		}
	}
	return nil
}

// count finds the pods and the requests of the windows.
func (t *Table) count(rec *record.Recording) {
	slices.SortFunc(t.Windows, func(a, b record.Window) int { return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End)) })
	t.Windows = slices.Compact(t.Windows)
	within := func(micros int64) bool {
		at := time.UnixMicro(micros)
		return slices.ContainsFunc(t.Windows, func(w record.Window) bool { return w.Contains(at) })
	}
	t.Pods, t.Requests = -1, -1
	if pods, err := rec.Pods(); err == nil {
		t.Pods = 0
		nodes := rec.Meta().Nodes
		for _, p := range pods {
			if at := nodes.Arrived(p); at > 0 && within(at) {
				t.Pods++
			}
		}
	}
	if requests, err := rec.Requests(); err == nil {
		t.Requests = 0
		for _, q := range requests {
			if q.DoneMicros > 0 && q.Verb != "watch" && within(q.DoneMicros) {
				t.Requests++
			}
		}
	}
}

// Seconds is the length of what the table is about.
func (t *Table) Seconds() float64 {
	var sum float64
	for _, w := range t.Windows {
		sum += w.Seconds()
	}
	return sum
}

// Covered is the least share of its phase that a component's profiles looked
// at; 1 of stacks.
func (t *Table) Covered() float64 {
	least := 1.0
	for _, c := range t.Covers {
		if w := c.Window.Seconds(); w > 0 {
			least = min(least, c.CoveredSeconds/w)
		}
	}
	return least
}

// Uncertainty is the share by which a value of a table of stacks may be off,
// from counting alone: 1 ÷ √n.
func Uncertainty(samples float64) float64 {
	if samples <= 0 {
		return 1
	}
	return 1 / math.Sqrt(samples)
}

// Package is the Go package of a function: what is before the first dot after
// the last slash. Functions of the kernel and of C have none.
func Package(function string) string {
	name, _, _ := strings.Cut(function, "[")
	if strings.HasSuffix(function, KernelMark) || name == "" || strings.Contains(name, "::") {
		return ""
	}
	slash := strings.LastIndexByte(name, '/')
	dot := strings.IndexByte(name[slash+1:], '.')
	if dot < 0 {
		return ""
	}
	return strings.ReplaceAll(name[:slash+1+dot], "%2e", ".") // so is a dot in the last element written
}

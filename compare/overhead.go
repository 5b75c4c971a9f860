package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/usage"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// OverheadFile is the name of the file that says what stood when, beside the
// recording.
const OverheadFile = "overhead.json"

// OverheadSchema is the version of the JSON forms of OverheadPlan and Overhead.
const OverheadSchema = 1

// A Role is what a stack is measured for.
type Role string

// The roles of stacks.
const (
	// Without is the machine without the cluster, the bottom of the layers.
	Without Role = "without"
	// Layered is what stands below it and one thing more.
	Layered Role = "layer"
	// Whole is all layers again, measured apart from them, and Bare the machine
	// without them again: what the layers must add up to.
	Whole Role = "whole"
	Bare  Role = "bare"
	// Paused is the cluster of the layer Of, frozen.
	Paused Role = "paused"
	// Instead is the whole with other settings.
	Instead Role = "instead"
)

// A Stack is something that stands on the machine while it is looked at.
type Stack struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Of is the layer that is paused.
	Of string `json:"of,omitempty"`
	// Set are the settings that an Instead has in addition.
	Set []string `json:"set,omitempty"`
}

// An OverheadWindow is a stretch of the recording in which a stack stood and
// nothing was asked of it.
type OverheadWindow struct {
	Stack string    `json:"stack"`
	Round int       `json:"round"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// OverheadPlan is what stood on the machine, and when.
type OverheadPlan struct {
	Schema  int              `json:"schema"`
	Of      string           `json:"of"` // an experiment's name, or a command line
	Command bool             `json:"command,omitempty"`
	Rounds  int              `json:"rounds"` // that were to be made
	Stacks  []Stack          `json:"stacks"` // layers from the bottom up, then the others
	Windows []OverheadWindow `json:"windows"`
}

// Write keeps the plan in the recording's folder. It is written after each
// window, so that what was measured until an interruption can be read.
func (p *OverheadPlan) Write(dir string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("write what stood when: %w", err)
	}
	name := filepath.Join(dir, OverheadFile)
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write what stood when: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("write what stood when: %w", err)
	}
	return nil
}

// ReadOverhead works out what a folder that overhead wrote says.
func ReadOverhead(dir string) (*Overhead, error) {
	data, err := os.ReadFile(filepath.Join(dir, OverheadFile))
	if err != nil {
		return nil, fmt.Errorf("read what stood when: %w", err)
	}
	var p OverheadPlan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, OverheadFile), err)
	}
	if p.Schema > OverheadSchema {
		return nil, fmt.Errorf("%s has schema %d, written by a newer kubedyno; this one knows up to %d", dir, p.Schema, OverheadSchema)
	}
	rec, err := record.Open(dir)
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	u, err := usage.Read(rec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var readings []OverheadReading
	for _, w := range p.Windows {
		used, err := u.Between(record.Window{Start: w.Start, End: w.End})
		if err != nil {
			return nil, fmt.Errorf("%s, %s in round %d: %w", dir, w.Stack, w.Round, err)
		}
		readings = append(readings, OverheadReading{Stack: w.Stack, Round: w.Round, Window: used})
	}
	o := OverheadOf(p, readings)
	o.Machine = rec.Meta().Machine
	for _, g := range rec.Meta().Gaps {
		if g.Collector == "process" {
			o.Warnings = append(o.Warnings, "not observed: "+g.Reason)
		}
	}
	return o, nil
}

// OverheadReading is what was used in one window.
type OverheadReading struct {
	Stack string
	Round int
	usage.Window
}

// Average is a mean over rounds. Without an interval there were too few of
// them, or the value is not known in any: then N is 0.
type Average struct {
	Value    float64        `json:"value"`
	Interval *stat.Interval `json:"interval"` // null below 2 rounds
	N        int            `json:"n"`
}

// Excludes says that the interval is there and lies on one side of x.
func (e Average) Excludes(x float64) bool {
	return e.Interval != nil && (e.Interval.Lo > x || e.Interval.Hi < x)
}

// Half is half of the interval's width.
func (e Average) Half() float64 {
	if e.Interval == nil {
		return math.Inf(1)
	}
	return (e.Interval.Hi - e.Interval.Lo) / 2
}

// sureOf is the level of every interval of an overhead.
const sureOf = 0.95

// AverageOf is the mean of values that have no order.
func AverageOf(xs []float64) Average {
	e := Average{N: len(xs)}
	if e.N == 0 {
		return e
	}
	e.Value = stat.Mean(xs)
	if ci, ok := stat.MeanCI(xs, sureOf); ok {
		e.Interval = &ci
	}
	return e
}

// AverageOfAmounts is AverageOf of what cannot be negative, nor can its mean.
func AverageOfAmounts(xs []float64) Average {
	e := AverageOf(xs)
	if e.Interval != nil {
		e.Interval.Lo = max(0, e.Interval.Lo)
	}
	return e
}

// Overhead is what a cluster, or a command, costs a machine that has nothing
// else to do. CPU is in cores: CPU-seconds a second.
type Overhead struct {
	Schema  int            `json:"schema"`
	Of      string         `json:"of"`
	Command bool           `json:"command"`
	Machine record.Machine `json:"machine"`
	// Rounds is how many were finished, Planned how many were to be.
	Rounds        int     `json:"rounds"`
	Planned       int     `json:"planned"`
	WindowSeconds float64 `json:"windowSeconds"` // of one stack in one round

	// Total is with the cluster minus without it.
	Total  Average     `json:"total"`
	Layers []LayerStep `json:"layers"` // from the bottom up, the machine without anything first
	// Apart is the whole, measured apart from the layers; nil where it was not.
	Apart *Average `json:"apart"`
	// Paused is what the cluster uses while it is frozen, and Saved what that saves.
	Paused *Alternative `json:"paused"`
	// Instead is the whole with other settings.
	Instead []Alternative `json:"instead"`
	Checks  []Check       `json:"checks"`

	Modes     []Mode        `json:"machineModes"`
	Processes []ProcessCost `json:"processes"`
	Warnings  []string      `json:"warnings"`
}

// LayerStep is one layer of the stack.
type LayerStep struct {
	Name string `json:"name"`
	// Cores are used with this layer and all below it, by the cluster's processes
	// and by kernel threads: neither our own processes nor others' are in it.
	Cores Average `json:"cores"`
	// Step is what the layer adds to the one below, in the same round.
	Step Average `json:"step"`
	// Wakeups a second that it adds: of the cluster's processes.
	Wakeups Average `json:"wakeups"`
}

// Alternative is the cluster in another state.
type Alternative struct {
	Name  string   `json:"name"`
	Set   []string `json:"set,omitempty"`
	Cores Average  `json:"cores"`
	// Saved is how much less that is than the same cluster otherwise, in the same round.
	Saved Average `json:"saved"`
	// Share is of what the cluster costs otherwise.
	Share *float64 `json:"share"`
	Than  string   `json:"than"` // what it is compared with
}

// Check is something that must hold if the numbers are to be believed.
type Check struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Difference should be 0.
	Difference Average `json:"difference"`
	OK         bool    `json:"ok"`
	// Assessed is false where there were too few rounds to tell.
	Assessed bool `json:"assessed"`
}

// Mode is a part of the machine's time, in cores.
type Mode struct {
	Name       string  `json:"name"`
	Without    Average `json:"without"`
	With       Average `json:"with"`
	Difference Average `json:"difference"`
}

// Owners of processes.
const (
	OfCluster  = "cluster"
	OfObserver = "observer" // ours: what measures
	OfKernel   = "kernel"
	OfOthers   = "others"
)

// ProcessCost is what the processes of one name used.
type ProcessCost struct {
	Name       string  `json:"name"`
	Owner      string  `json:"owner"`
	Without    Average `json:"without"` // cores
	With       Average `json:"with"`
	Difference Average `json:"difference"`
	Wakeups    Average `json:"wakeups"` // a second, with; N is 0 where unknown
}

// ownerOf says whose the processes of a row are. Simulated nodes and storage
// stand for what a real cluster has.
func ownerOf(r usage.Row) string {
	switch {
	case !r.Component && r.Name == usage.Kernel:
		return OfKernel
	case !r.Component:
		return OfOthers
	case strings.HasPrefix(r.Name, "kubedyno") && r.Name != "kubedyno-hollow" && r.Name != "kubedyno-csi":
		return OfObserver
	}
	return OfCluster
}

// sum is what the processes of an owner used, in cores.
func (r OverheadReading) sum(owner string) float64 {
	s := 0.0
	for _, row := range r.Rows {
		if ownerOf(row) == owner {
			s += row.CPUSeconds
		}
	}
	return s / r.Seconds
}

// used is what the cluster's processes and kernel threads used, in cores. Their
// clocks are exact. The machine's own are not good enough on a virtual one that
// has little to do: stolen time is partly in what counts as idle.
func (r OverheadReading) used() float64 { return r.sum(OfCluster) + r.sum(OfKernel) }

// wakeups of the cluster's processes a second; NaN where one does not tell.
func (r OverheadReading) wakeups() float64 {
	s := 0.0
	for _, row := range r.Rows {
		if ownerOf(row) != OfCluster {
			continue
		}
		if row.Wakeups == usage.Unknown {
			return math.NaN()
		}
		s += row.Wakeups
	}
	return s / r.Seconds
}

// rounds are readings by stack and round.
type rounds map[string]map[int]OverheadReading

// pairs is f of two stacks in each round that has both, the second less the first.
func (r rounds) pairs(a, b string, f func(OverheadReading) float64) []float64 {
	var ds []float64
	for _, n := range r.both(a, b) {
		if d := f(r[b][n]) - f(r[a][n]); !math.IsNaN(d) {
			ds = append(ds, d)
		}
	}
	return ds
}

func (r rounds) both(a, b string) (ns []int) {
	for n := range r[a] {
		if _, ok := r[b][n]; ok {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns
}

func (r rounds) all(a string, f func(OverheadReading) float64) []float64 {
	var xs []float64
	for _, n := range r.both(a, a) {
		if x := f(r[a][n]); !math.IsNaN(x) {
			xs = append(xs, x)
		}
	}
	return xs
}

// busyOthers is from how many cores on other people's processes are worth a
// warning: they are not counted, but they disturb.
const busyOthers = 0.05

// stolen is the same for the hypervisor.
const stolen = 0.05

// OverheadOf works out what windows say. All differences are of windows in the
// same round, so that what changes slowly cancels out.
func OverheadOf(p OverheadPlan, readings []OverheadReading) *Overhead {
	o := &Overhead{Schema: OverheadSchema, Of: p.Of, Command: p.Command, Planned: p.Rounds}
	by := rounds{}
	for _, r := range readings {
		if by[r.Stack] == nil {
			by[r.Stack] = map[int]OverheadReading{}
		}
		by[r.Stack][r.Round] = r
		o.WindowSeconds = max(o.WindowSeconds, r.Seconds)
	}
	var layers []Stack
	of := map[Role]string{}
	for _, s := range p.Stacks {
		if s.Role == Without || s.Role == Layered {
			layers = append(layers, s)
		}
		of[s.Role] = s.Name
	}
	if len(layers) < 2 {
		return o
	}
	bottom, top := layers[0].Name, layers[len(layers)-1].Name
	o.Rounds = len(by.both(bottom, top))
	for i, s := range layers {
		step := LayerStep{Name: s.Name, Cores: AverageOf(by.all(s.Name, OverheadReading.used))}
		if i > 0 {
			below := layers[i-1].Name
			step.Step = AverageOf(by.pairs(below, s.Name, OverheadReading.used))
			step.Wakeups = AverageOf(by.pairs(below, s.Name, OverheadReading.wakeups))
		}
		o.Layers = append(o.Layers, step)
	}
	o.Total = AverageOf(by.pairs(bottom, top, OverheadReading.used))
	o.apart(by, bottom, top, of[Bare], of[Whole])
	o.beside(by, bottom, top, p.Stacks, of[Whole])
	o.table(by, bottom, top)
	o.warn(by, bottom, top)
	return o
}

// apart sets the layers beside the whole, which was measured apart from them, and
// what the machine did beside what the processes did.
func (o *Overhead) apart(by rounds, bottom, top, bare, whole string) {
	if whole != "" && bare != "" {
		apart := AverageOf(by.pairs(bare, whole, OverheadReading.used))
		o.Apart = &apart
		var ds []float64
		for _, n := range by.both(bottom, top) {
			if _, ok := by[whole][n]; !ok {
				continue
			}
			if _, ok := by[bare][n]; !ok {
				continue
			}
			ds = append(ds, by[top][n].used()-by[bottom][n].used()-by[whole][n].used()+by[bare][n].used())
		}
		c := Check{Name: "layers", Difference: AverageOf(ds)}
		c.Assessed, c.OK = c.Difference.Interval != nil, !c.Difference.Excludes(0)
		c.Text = "the layers add up to the whole, which was measured apart from them"
		if !c.OK {
			c.Text = "the layers do not add up to the whole, which was measured apart from them: something else went on meanwhile"
		}
		o.Checks = append(o.Checks, c)
	}
	// What the machine did more, and what all processes did, are told by two clocks
	// of the kernel. The machine's may say more: interrupts belong to no process.
	// It may not say less, nor much more.
	c := Check{Name: "processes", Difference: AverageOf(by.pairs(bottom, top, func(r OverheadReading) float64 { return r.Outside() / r.Seconds }))}
	beyond := AverageOf(by.pairs(bottom, top, func(r OverheadReading) float64 { return (r.Outside() - r.Steal) / r.Seconds }))
	c.Assessed = c.Difference.Interval != nil
	c.OK = true
	c.Text = "the machine's own count is what its processes used, and a rest: interrupts and stolen time"
	switch {
	case !c.Assessed:
	case c.Difference.Interval.Hi < 0:
		c.OK, c.Text = false, "the machine's own count holds less than what its processes used: one of both is wrong"
	case beyond.Interval.Lo > max(leastRest, restShare*o.Total.Value):
		c.OK, c.Text = false, "the machine did much that no process shows, and that is no stolen time either"
	}
	o.Checks = append(o.Checks, c)
}

// What the machine may do for a cluster outside of processes, in cores and as a
// share of what the cluster costs.
const (
	leastRest = 0.02
	restShare = 0.25
)

// beside adds what the cluster uses in other states.
func (o *Overhead) beside(by rounds, bottom, top string, stacks []Stack, whole string) {
	for _, s := range stacks {
		than, ground := s.Of, bottom
		if s.Role == Instead {
			than = cmp.Or(whole, top)
		}
		if s.Role != Paused && s.Role != Instead || len(by[s.Name]) == 0 {
			continue
		}
		a := Alternative{
			Name: s.Name, Set: s.Set, Than: than,
			Cores: AverageOf(by.pairs(ground, s.Name, OverheadReading.used)),
			Saved: AverageOf(by.pairs(s.Name, than, OverheadReading.used)),
		}
		if cost := AverageOf(by.pairs(ground, than, OverheadReading.used)); cost.Value > 0 {
			share := a.Saved.Value / cost.Value
			a.Share = &share
		}
		if s.Role == Paused {
			o.Paused = &a
		} else {
			o.Instead = append(o.Instead, a)
		}
	}
}

// table lists the machine's modes and its processes, with and without.
func (o *Overhead) table(by rounds, bottom, top string) {
	mode := func(name string, f func(OverheadReading) float64) {
		o.Modes = append(o.Modes, Mode{name, AverageOf(by.all(bottom, f)), AverageOf(by.all(top, f)), AverageOf(by.pairs(bottom, top, f))})
	}
	mode("not idle", func(r OverheadReading) float64 { return r.Busy / r.Seconds })
	mode("iowait", func(r OverheadReading) float64 { return r.IOWait / r.Seconds })
	mode("steal", func(r OverheadReading) float64 { return r.Steal / r.Seconds })
	mode("outside of processes", func(r OverheadReading) float64 { return r.Outside() / r.Seconds })

	type key struct{ name, owner string }
	keys := map[key]bool{}
	for _, stack := range []string{bottom, top} {
		for _, r := range by[stack] {
			for _, row := range r.Rows {
				keys[key{row.Name, ownerOf(row)}] = true
			}
		}
	}
	for k := range keys {
		find := func(r OverheadReading) (usage.Row, bool) {
			i := slices.IndexFunc(r.Rows, func(row usage.Row) bool { return row.Name == k.name && ownerOf(row) == k.owner })
			if i < 0 {
				return usage.Row{}, false
			}
			return r.Rows[i], true
		}
		cores := func(r OverheadReading) float64 {
			row, _ := find(r) // one that is not there uses nothing
			return row.CPUSeconds / r.Seconds
		}
		wakeups := func(r OverheadReading) float64 {
			row, _ := find(r)
			if row.Wakeups == usage.Unknown {
				return math.NaN()
			}
			return row.Wakeups / r.Seconds
		}
		o.Processes = append(o.Processes, ProcessCost{
			Name: k.name, Owner: k.owner,
			Without: AverageOf(by.all(bottom, cores)), With: AverageOf(by.all(top, cores)),
			Difference: AverageOf(by.pairs(bottom, top, cores)), Wakeups: AverageOf(by.all(top, wakeups)),
		})
	}
	owners := []string{OfCluster, OfKernel, OfObserver, OfOthers}
	slices.SortFunc(o.Processes, func(a, b ProcessCost) int {
		return cmp.Or(cmp.Compare(slices.Index(owners, a.Owner), slices.Index(owners, b.Owner)), cmp.Compare(b.With.Value, a.With.Value), cmp.Compare(a.Name, b.Name))
	})
}

// warn says what makes the numbers less sure.
func (o *Overhead) warn(by rounds, bottom, top string) {
	if o.Rounds < o.Planned {
		o.Warnings = append(o.Warnings, fmt.Sprintf("only %d of %d rounds were finished", o.Rounds, o.Planned))
	}
	if o.Rounds < 2 {
		o.Warnings = append(o.Warnings, "one round has no interval: nothing is known of how much the numbers vary")
	}
	others := func(r OverheadReading) float64 { return r.sum(OfOthers) }
	var all []float64
	steal := 0.0
	n := 0
	names := map[string]float64{}
	for _, stack := range by {
		for _, r := range stack {
			all = append(all, others(r))
			steal += r.Steal / r.Seconds
			n++
			for _, row := range r.Rows {
				if ownerOf(row) == OfOthers {
					names[row.Name] += row.CPUSeconds / r.Seconds
				}
			}
		}
	}
	if mean := stat.Mean(all); mean >= busyOthers {
		var most []string
		for name := range names {
			most = append(most, name)
		}
		slices.SortFunc(most, func(a, b string) int { return cmp.Or(cmp.Compare(names[b], names[a]), cmp.Compare(a, b)) })
		var parts []string
		for _, name := range most[:min(3, len(most))] {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, names[name]/float64(n)))
		}
		o.Warnings = append(o.Warnings, fmt.Sprintf("processes that do not belong here used %.2f cores on average while this was measured (%s, …); they are not counted, but they disturb: intervals are wider than on a machine that is left alone", mean, strings.Join(parts, ", ")))
	}
	if d := AverageOf(by.pairs(bottom, top, others)); d.Excludes(0) {
		o.Warnings = append(o.Warnings, fmt.Sprintf("other processes used %+.3f cores (%+.3f…%+.3f, n=%d) more than without: what is measured may cause that, and it is not counted", d.Value, d.Interval.Lo, d.Interval.Hi, d.N))
	}
	if n > 0 && steal/float64(n) >= stolen {
		o.Warnings = append(o.Warnings, fmt.Sprintf("the hypervisor took %.2f cores from this machine on average; that is no cost of the cluster's", steal/float64(n)))
	}
}

// ErrDoesNotAddUp is the error of an overhead whose numbers contradict each other.
var ErrDoesNotAddUp = errors.New("the numbers do not add up")

// Err is nil where all checks hold.
func (o *Overhead) Err() error {
	for _, c := range o.Checks {
		if !c.OK {
			return fmt.Errorf("%w: %s", ErrDoesNotAddUp, c.Text)
		}
	}
	return nil
}

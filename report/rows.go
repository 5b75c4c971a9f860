package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/record"
)

// rows is what the page takes from a recording: the page's whole view of it,
// so that a test can make one in memory.
type rows struct {
	meta      record.Meta
	pods      []record.Pod
	processes []record.ProcessSample
	machine   []record.MachineSample
	profiles  []cpuProfile
	samples   []record.StackSample
	stacks    map[int64]string // frames, outermost first, joined with ";"
	period    float64          // CPU-seconds of a stack sample
	requests  []RequestGroup
	spikes    spikes.Result
	logs      []LogRow
	use       []UseCheck
	heat      Heat
	claims    ClaimTable
	gaps      []Reason // tables that could not be read
}

type cpuProfile struct {
	ref  record.ProfileRef
	data *profile.Profile
}

// read takes the rows out of r. A table that was not recorded becomes a gap of
// the page; any other failure is an error.
func read(r *record.Recording) (rows, error) {
	in := rows{meta: r.Meta()}
	missing := func(table record.Table, err error) error {
		if errors.Is(err, record.ErrMissing) {
			in.gaps = append(in.gaps, Reason{ID: string(table), Why: "not recorded"})
			return nil
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		return nil
	}
	var err error
	in.pods, err = r.Pods()
	if err := missing(record.TablePods, err); err != nil {
		return in, err
	}
	in.processes, err = r.Processes()
	if err := missing(record.TableProcesses, err); err != nil {
		return in, err
	}
	in.machine, err = r.MachineSamples()
	if err := missing(record.TableMachine, err); err != nil {
		return in, err
	}
	in.samples, err = r.StackSamples()
	if err := missing(record.TableStackSamples, err); err != nil {
		return in, err
	}
	if len(in.samples) > 0 {
		stacks, err := r.Stacks()
		if err := missing(record.TableStacks, err); err != nil {
			return in, err
		}
		in.stacks = make(map[int64]string, len(stacks))
		for _, s := range stacks {
			in.stacks[s.ID] = s.Frames
		}
		in.period = functions.Period(r)
	}
	for _, ref := range r.Profiles() {
		if ref.Kind != "cpu" {
			continue
		}
		p, err := r.ReadProfile(ref)
		if err != nil { // a profile cut short by a crash must not cost the page
			in.gaps = append(in.gaps, Reason{ID: "profile of " + ref.Component, Why: err.Error()})
			continue
		}
		in.profiles = append(in.profiles, cpuProfile{ref, p})
	}
	in.requests, err = requestGroups(r, clockOf(in, measured(in)))
	if err := missing(record.TableRequests, err); err != nil {
		return in, err
	}
	in.logs, err = logRows(r, clockOf(in, measured(in)))
	if err := missing("logs", err); err != nil {
		return in, err
	}
	at := clockOf(in, measured(in))
	if in.use, err = useChecks(r, at); err != nil {
		return in, fmt.Errorf("the checklist of resources: %w", err)
	}
	if in.heat, err = heat(r, at); err != nil {
		if err := missing(record.TableBlockIO, err); err != nil {
			return in, err
		}
	}
	if in.claims, err = claimTable(r, at); err != nil && !errors.Is(err, record.ErrMissing) {
		return in, fmt.Errorf("claims: %w", err)
	}
	if in.spikes, err = spikes.Find(r, spikes.Options{}); err != nil && !errors.Is(err, record.ErrMissing) {
		return in, fmt.Errorf("look for spikes: %w", err)
	}
	return in, nil
}

// clock is a round's time axis: seconds since the measured load began.
type clock struct {
	zero int64 // microseconds since the epoch
	end  int64 // the last pod ran, or the measured load was over
}

func (c clock) at(micros int64) float64 { return float64(micros-c.zero) / 1e6 }

// measured are the pods of the steady phases, or all where none is marked.
func measured(in rows) []record.Pod {
	steady := map[string]bool{}
	for _, p := range in.meta.Phases {
		if p.Kind == record.PhaseSteady {
			steady[p.Name] = true
		}
	}
	var pods []record.Pod
	for _, p := range in.pods {
		if steady[p.Phase] {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		return in.pods
	}
	return pods
}

// first is the earliest time at which a pod was asked for.
func first(p record.Pod) int64 {
	for _, t := range []int64{p.DueMicros, p.SentMicros, p.CreatedMicros} {
		if t != 0 {
			return t
		}
	}
	return 0
}

func clockOf(in rows, pods []record.Pod) clock {
	var c clock
	for _, p := range pods {
		if t := first(p); t != 0 && (c.zero == 0 || t < c.zero) {
			c.zero = t
		}
		c.end = max(c.end, p.CreatedMicros, p.BoundMicros, p.RunningMicros)
	}
	if c.zero == 0 { // no pod: the run itself
		c.zero, c.end = in.meta.Started.UnixMicro(), in.meta.Ended.UnixMicro()
	}
	c.end = max(c.end, c.zero+1e6)
	return c
}

// maxPoints bounds what one line of a chart holds: twice the pixels of a wide column.
const maxPoints = 900

// stepFor is the smallest round step, not below least, that needs no more
// than maxPoints for the duration.
func stepFor(seconds, least float64) float64 {
	for _, step := range []float64{0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 600} {
		if step >= least && seconds/step <= maxPoints {
			return step
		}
	}
	return 3600
}

// cumulative counts, at each step, the times that have passed.
func cumulative(c clock, step float64, n int, times []int64) Values {
	slices.Sort(times)
	v := make(Values, n)
	i := 0
	for k := range v {
		limit := c.zero + int64(float64(k)*step*1e6)
		for i < len(times) && times[i] <= limit {
			i++
		}
		v[k] = float64(i)
	}
	return v
}

// perSecond counts the times in each step, as a rate.
func perSecond(c clock, step float64, n int, times []int64) Values {
	v := make(Values, n)
	for _, t := range times {
		if k := int(c.at(t) / step); k >= 0 && k < n {
			v[k] += 1 / step
		}
	}
	return v
}

func timesOf(pods []record.Pod, of func(record.Pod) int64) []int64 {
	var t []int64
	for _, p := range pods {
		if x := of(p); x != 0 {
			t = append(t, x)
		}
	}
	return t
}

func submitted(p record.Pod) int64 {
	if p.SentMicros != 0 {
		return p.SentMicros
	}
	return p.DueMicros
}
func created(p record.Pod) int64 { return p.CreatedMicros }
func bound(p record.Pod) int64   { return p.BoundMicros }
func running(p record.Pod) int64 { return p.RunningMicros }

func curves(c clock, pods []record.Pod, expected int) Curves {
	// A little beyond the end, so that the last step up is drawn.
	seconds := c.at(c.end)
	step := stepFor(seconds, 0.1)
	n := int(math.Ceil(seconds/step)) + 2
	line := func(of func(record.Pod) int64) Values { return cumulative(c, step, n, timesOf(pods, of)) }
	return Curves{
		Step: step, Total: max(expected, len(pods)),
		Submitted: line(submitted), Created: line(created), Scheduled: line(bound), Running: line(running),
	}
}

func rates(c clock, pods []record.Pod) Rates {
	seconds := c.at(c.end)
	least := 1.0
	if seconds < 10 { // a second is too coarse to draw; judgement stays with 1 s samples
		least = 0.25
	}
	step := stepFor(seconds, least)
	n := int(seconds/step) + 1
	line := func(of func(record.Pod) int64) Values { return perSecond(c, step, n, timesOf(pods, of)) }
	return Rates{Step: step, Created: line(created), Scheduled: line(bound), Running: line(running)}
}

// minTail is the least number of samples from which a p99 is told.
const minTail = 100

func latency(name, from, to string, pods []record.Pod, a, b func(record.Pod) int64) Latency {
	l := Latency{Name: name, From: from, To: to}
	var s []float64
	for _, p := range pods {
		if x, y := a(p), b(p); x != 0 && y != 0 {
			s = append(s, float64(y-x)/1e6)
		}
	}
	l.N = len(s)
	if l.N == 0 {
		return l
	}
	sort.Float64s(s)
	rank := func(q float64) *float64 { // nearest rank
		v := s[max(0, int(math.Ceil(q*float64(len(s))))-1)]
		return &v
	}
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	mean := sum / float64(l.N)
	l.Mean, l.P50, l.P90, l.Max = &mean, rank(0.5), rank(0.9), rank(1)
	if l.N >= minTail {
		l.P99 = rank(0.99)
	}
	return l
}

// meanRate is pods per second between the first and the last of the times; nil
// where fewer than two were seen.
func meanRate(times []int64) *float64 {
	if len(times) < 2 {
		return nil
	}
	d := float64(slices.Max(times)-slices.Min(times)) / 1e6
	if d <= 0 {
		return nil
	}
	r := float64(len(times)-1) / d
	return &r
}

package diagnose

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

const (
	// still is for how many seconds at least a process must have done nothing. It stood
	// between two samples for up to two seconds more.
	still = 2.0
	// early is by how many seconds a sample may come before its time.
	early = 0.1
)

// Standstills are the stretches in which a process of a component did nothing at all:
// it used no CPU, and none of its threads was ever put on one. ok is false where that
// was not recorded of it.
func (v *View) Standstills(component string) (all []record.Window, ok bool) {
	for _, p := range v.processes[component] {
		last := p.samples[len(p.samples)-1]
		if last.VoluntarySwitches <= 0 || len(p.samples) < 2 {
			continue
		}
		ok = true
		from := p.samples[0]
		for i, s := range p.samples[1:] {
			ran := s.VoluntarySwitches < 0 || s.VoluntarySwitches != from.VoluntarySwitches || s.InvoluntarySwitches != from.InvoluntarySwitches ||
				s.UserSeconds+s.SystemSeconds > from.UserSeconds+from.SystemSeconds
			until := s
			if ran {
				until = p.samples[i] // the one before this
			}
			if ran || i == len(p.samples)-2 {
				w := record.Window{Start: time.UnixMicro(from.TimeMicros), End: time.UnixMicro(until.TimeMicros)}
				if w.Seconds() >= still-early && v.sampledIn(w) {
					all = append(all, w)
				}
				from = s
			}
		}
	}
	return all, ok
}

// sampledIn says that the machine was looked at between the ends of the window. Where it
// was not, whoever takes the samples had no CPU either, and both ends may be one moment
// in the eyes of the process.
func (v *View) sampledIn(w record.Window) bool {
	return len(v.machine) == 0 || slices.ContainsFunc(v.machine, func(s record.MachineSample) bool {
		return s.TimeMicros > w.Start.UnixMicro() && s.TimeMicros < w.End.UnixMicro()
	})
}

// Held is what pods lost, by stage, that were in the stage at some time of a window, and
// how many these are, in the stage with most of them, and what the longest waited there, in seconds.
func (v *View) Held(during []record.Window, stages []string) (claims map[string]float64, pods int, longest float64) {
	claims = map[string]float64{}
	end := v.Span()
	for _, stage := range stages {
		mine, all, n := 0.0, 0.0, 0
		for _, s := range v.steps[stage] {
			out, _ := s.left(end)
			lost := max(0, out-s.in-v.healthy[stage])
			all += lost
			if lost <= 0 || !overlaps(during, v.Load.Start, s.in, out) {
				continue
			}
			mine += lost
			n++
			longest = max(longest, out-s.in)
		}
		if mine == 0 {
			continue
		}
		pods = max(pods, n)
		parts := []string{stage}
		if stage == Scheduling && v.Known(Bind) {
			parts = []string{Queue, Decide, Bind}
		}
		for _, part := range parts {
			if x := mine / all * v.Excess(part); x > 0 {
				claims[part] = x
			}
		}
	}
	return claims, pods, longest
}

// WaitedDuring is the share of the pod-seconds in a stage that fall into windows which
// do not overlap, 0 to 1. ok is false where no pod was in the stage.
func (v *View) WaitedDuring(stage string, during []record.Window) (share float64, ok bool) {
	switch stage {
	case Queue, Decide, Bind: // in which of them a pod was at what time is not known
		stage = Scheduling
	}
	covered := coverage(v.Load.Start, during)
	end := v.Span()
	inside, all := 0.0, 0.0
	for _, s := range v.steps[stage] {
		if out, _ := s.left(end); out > s.in {
			all += out - s.in
			inside += covered(out) - covered(s.in)
		}
	}
	if all <= 0 {
		return 0, false
	}
	return min(1, inside/all), true
}

// coverage tells how many seconds of windows that do not overlap lie before a moment,
// which is in seconds after start. Of thousands of pods and windows each pod asks twice.
func coverage(start time.Time, windows []record.Window) (before func(at float64) float64) {
	type stretch struct{ from, to, before float64 }
	all := make([]stretch, len(windows))
	for i, w := range windows {
		all[i] = stretch{from: w.Start.Sub(start).Seconds(), to: w.End.Sub(start).Seconds()}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	sum := 0.0
	for i, s := range all {
		all[i].before = sum
		sum += s.to - s.from
	}
	return func(at float64) float64 {
		n, _ := slices.BinarySearchFunc(all, at, func(s stretch, at float64) int { return cmp.Compare(s.from, at) })
		if n == 0 {
			return 0
		}
		last := all[n-1]
		return last.before + min(at, last.to) - last.from
	}
}

// Passed is how many pods came out of a stage meanwhile.
func (v *View) Passed(during []record.Window, stage string) (n int) {
	for _, s := range v.steps[stage] {
		if !math.IsNaN(s.out) && overlaps(during, v.Load.Start, s.out, s.out) {
			n++
		}
	}
	return n
}

// overlaps says whether a span, in seconds since start, has a part in a window.
func overlaps(windows []record.Window, start time.Time, from, to float64) bool {
	for _, w := range windows {
		if to >= w.Start.Sub(start).Seconds() && from <= w.End.Sub(start).Seconds() {
			return true
		}
	}
	return false
}

// Stopped is in which share of the moments of a window a process of the component was
// stopped, by a signal or a debugger, and of how many. ok is false where that was not
// recorded.
func (v *View) Stopped(component string, w record.Window) (share float64, n int, ok bool) {
	stopped := 0
	for _, p := range v.processes[component] {
		for _, s := range p.samples {
			at := time.UnixMicro(s.TimeMicros)
			if s.Stopped < 0 || at.Before(w.Start) || at.After(w.End) {
				continue
			}
			n++
			stopped += int(s.Stopped)
		}
	}
	return float64(stopped) / float64(max(1, n)), n, n > 0
}

// Outages: of what is sent then at least resent is sent again, and at least few segments,
// and it is less than quiet of what is usual under the load. A full machine
// sends up to 0.016 of its segments again, for their answers come late.
const (
	resent, fewResent = 0.2, 3
	quietShare        = 0.05
	quietLeast        = 20
	// idle: while nothing arrives nobody has much to do.
	idle = 0.5
)

// Outages are the stretches of the load in which nothing arrived of what was sent over
// the machine's network, to the second: hardly anything was sent but what had been sent
// before, and the CPUs were idle. again is how many segments these were. ok is false where that was not recorded,
// or the control plane is on other machines.
func (v *View) Outages() (all []record.Window, again float64, ok bool) {
	if !v.HasMachine || !v.Local() {
		return nil, 0, false
	}
	type second struct {
		w              record.Window
		sent, repeated float64
	}
	var seconds []second
	var rates []float64
	for i := 1; i < len(v.machine); i++ {
		a, b := v.machine[i-1], v.machine[i]
		if a.TCPSegmentsSent < 0 || b.TCPSegmentsSent < 0 || a.TCPRetransmits < 0 || b.TCPRetransmits < 0 {
			return nil, 0, false
		}
		w := record.Window{Start: time.UnixMicro(a.TimeMicros), End: time.UnixMicro(b.TimeMicros)}
		if w.Seconds() <= 0 || w.End.Before(v.Load.Start) || w.Start.After(v.Load.End) {
			continue
		}
		s := second{w, float64(b.TCPSegmentsSent - a.TCPSegmentsSent), float64(b.TCPRetransmits - a.TCPRetransmits)}
		seconds = append(seconds, s)
		rates = append(rates, s.sent/w.Seconds())
	}
	if len(rates) == 0 {
		return nil, 0, true
	}
	slices.Sort(rates)
	quiet := max(quietLeast, quietShare*rates[len(rates)/2])
	for _, s := range seconds {
		if s.repeated < fewResent || s.repeated < resent*s.sent || s.sent > quiet*s.w.Seconds() {
			continue
		}
		if m, known := v.MachineCPU(s.w); known && m.Share >= idle {
			continue
		}
		again += s.repeated
		if n := len(all); n > 0 && !s.w.Start.After(all[n-1].End) {
			all[n-1].End = s.w.End
			continue
		}
		all = append(all, s.w)
	}
	return all, again, true
}

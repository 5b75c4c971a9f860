package diagnose

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// lapseMicros is the shortest time without a watch that counts: a watch that ends
	// in its normal way begins again at once.
	lapseMicros = int64(300 * time.Millisecond / time.Microsecond)
	// togetherMicros is how near to each other the watches of one connection end.
	togetherMicros = int64(200 * time.Millisecond / time.Microsecond)
	// openAtEnd is how many watches must be known to be open when the load ends, so
	// that one that is not there is known to be missing: audit logs may tell of
	// watches only once they end.
	openAtEnd = 3
)

// A Lapse is what a part of the control plane did not see: it had a watch of a
// resource, which ended, and for a time it had none.
type Lapse struct {
	// Component is the program, Agent the part of it, by analysis/requests.Agent.
	Component, Agent, Resource string
	// During is when, within the load.
	During []record.Window
	// Ends is how many of its watches ended in the load, Life how long these had
	// lasted on average, in seconds.
	Ends int
	Life float64
	// Others is how many watches of other resources the part had, and Together the
	// share of the Ends with which at least half of them ended as well: what ended
	// then was their connection.
	Others   int
	Together float64
}

// Seconds is how long it saw nothing.
func (l Lapse) Seconds() (s float64) {
	for _, w := range l.During {
		s += w.Seconds()
	}
	return s
}

// connection is the share of a watch's ends with which most others ended as well.
const connection = 0.5

// Connection says whether what ended was the connection, rather than one watch.
func (l Lapse) Connection() bool { return l.Others > 0 && l.Together >= connection }

// accountLapses finds when the controller manager and the scheduler had no watch of
// what they had one of before. all are the requests of the whole recording.
func (v *View) accountLapses(all []record.Request) {
	type key struct{ agent, resource string }
	type span struct{ from, to int64 }
	from, to := v.Load.Start.UnixMicro(), v.Load.End.UnixMicro()
	open := map[key][]span{}
	lasting := 0
	for i := range all {
		r := &all[i]
		if r.Verb != "watch" || r.Code >= 400 || r.Name != "" {
			continue
		}
		agent := requests.Agent(r.UserAgent)
		if program := programOf(agent); program != Scheduler && program != ControllerManager {
			continue
		}
		s := span{r.ReceivedMicros, r.DoneMicros}
		if s.to == 0 {
			s.to = to + 1
		}
		if s.from <= to && s.to > to {
			lasting++
		}
		k := key{agent, strings.Trim(resourceOf(r)+"."+r.Group, ".")}
		open[k] = append(open[k], s)
	}
	ended := map[key][]int64{} // when each watch ended, in order
	for k, spans := range open {
		for _, s := range spans {
			ended[k] = append(ended[k], s.to)
		}
		slices.Sort(ended[k])
	}
	for k, spans := range open {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		l := Lapse{Component: programOf(k.agent), Agent: k.agent, Resource: k.resource}
		var ends []int64
		until := spans[0].to // the latest end so far
		gap := func(next int64) {
			a, b := max(until, from), min(next, to)
			if b-a >= lapseMicros {
				l.During = append(l.During, record.Window{Start: time.UnixMicro(a), End: time.UnixMicro(b)})
			}
		}
		for i, s := range spans {
			if i > 0 {
				gap(s.from)
			}
			until = max(until, s.to)
			if s.to >= from && s.to <= to {
				ends = append(ends, s.to)
				l.Life += float64(s.to-s.from) / 1e6
			}
		}
		if lasting >= openAtEnd {
			gap(to)
		}
		if len(l.During) == 0 {
			continue
		}
		if l.Ends = len(ends); l.Ends > 0 {
			l.Life /= float64(l.Ends)
		}
		with := make([]int, len(ends))
		for other, theirs := range ended {
			if other.agent != k.agent || other == k {
				continue
			}
			l.Others++
			for i, at := range ends {
				if j, _ := slices.BinarySearch(theirs, at-togetherMicros); j < len(theirs) && theirs[j] <= at+togetherMicros {
					with[i]++
				}
			}
		}
		together := 0
		for _, n := range with {
			if 2*n >= l.Others {
				together++
			}
		}
		if l.Others > 0 && len(ends) > 0 {
			l.Together = float64(together) / float64(len(ends))
		}
		v.Lapses = append(v.Lapses, l)
	}
	slices.SortFunc(v.Lapses, func(a, b Lapse) int {
		return cmp.Or(cmp.Compare(b.Seconds(), a.Seconds()), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Resource, b.Resource))
	})
}

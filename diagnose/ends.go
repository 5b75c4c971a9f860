package diagnose

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// An End is that of a component's process during the load.
type End struct {
	Component string
	PID       int32
	AtMicros  int64
	ExitCode  int32 // as a shell has it: 128 + the signal that ended it; -1 unknown
	// EndedRun says that the run ended for it.
	EndedRun bool
}

// swept is how long after the end of a component, for which a run ends, the ends of
// others are the run's doing, in µs.
const swept = int64(time.Second / time.Microsecond)

// Ends are those of components, by time. ok is false where ends were not recorded.
func (v *View) Ends() (ends []End, ok bool) {
	for _, e := range v.ends {
		at := time.UnixMicro(e.TimeMicros)
		if at.Before(v.Load.Start) || at.After(v.Load.End) || !v.samples(e) {
			continue
		}
		ends = append(ends, End{Component: e.Component, PID: e.PID, AtMicros: e.TimeMicros, ExitCode: e.ExitCode})
	}
	slices.SortFunc(ends, func(a, b End) int {
		return cmp.Or(cmp.Compare(a.AtMicros, b.AtMicros), cmp.Compare(a.Component, b.Component))
	})
	if v.Meta.Status == record.StatusComplete {
		return ends, v.hasEnds
	}
	// Whoever ends a run ends its components. Only the one that the run gives as its
	// reason ended by itself.
	i := slices.IndexFunc(ends, func(e End) bool {
		return strings.Contains(v.Meta.EndReason, e.Component+" exited (")
	})
	if i < 0 {
		return nil, v.hasEnds
	}
	ends[i].EndedRun = true
	after := ends[i].AtMicros
	return slices.DeleteFunc(ends, func(e End) bool {
		return !e.EndedRun && e.AtMicros >= after-swept
	}), v.hasEnds
}

// samples says whether it is the end of a process that was sampled as a component's: not
// of a child that it started.
func (v *View) samples(e record.ProcessExit) bool {
	return slices.ContainsFunc(v.processes[e.Component], func(p process) bool { return e.Ends(p.samples[0]) })
}

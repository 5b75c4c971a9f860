// Package consumer judges clients that ask for more than anybody needs: the
// part that the detectors of storms share. What such a client costs is waste.
// It holds the run back only where the CPU that it burns, or the seats that it takes,
// are what the others lack, and then by as much as these would have carried.
package consumer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// full is where CPUs count as used up: as in machine-cpu and component-cpu.
	full, fullQuota = 0.9, 0.85
	// relieved is the utilisation below which queues in front of a CPU are
	// short: at 0.85 a request waits some six times its own time.
	relieved = 0.85
	// named is the least share of a full CPU for which its owner is blamed.
	named = 0.2
	// stopped is the share of a quota's periods from which on it is full, as in
	// shared-quota.
	stopped = 0.5
	// queued is the mean wait for a seat of priority and fairness, in seconds, from
	// which seats are what others lack, and crowding the share of all requests from
	// which a client takes them.
	queued, crowding = 0.05, 0.5
)

// Judge fills in what a finding about clients costs, and whether that makes it
// waste or a bottleneck. path is the class of work that only they cause, or "".
func Judge(v *diagnose.View, f *diagnose.Finding, talks []diagnose.Talk, path string) {
	JudgePart(v, f, talks, path, 1)
}

// JudgePart is Judge where only a part of that class of work is theirs.
func JudgePart(v *diagnose.View, f *diagnose.Finding, talks []diagnose.Talk, path string, part float64) {
	f.Cost = v.CostOf(talks, path)
	if path != "" {
		for _, x := range []*float64{f.Cost.ServerCPUSeconds, f.Cost.ServerCPUShare} {
			if x != nil {
				*x *= part
			}
		}
	}
	if f.Cost.RequestsPerSecond > 0 {
		n := 0
		for _, t := range talks {
			n += t.Count
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests", Value: f.Cost.RequestsPerSecond, Unit: "1/s", Text: fmt.Sprintf("%d of the %d requests of the load", n, v.Answered())})
	}
	Weigh(v, f)
}

// Weigh is Judge for a finding whose cost is known.
func Weigh(v *diagnose.View, f *diagnose.Finding) {
	f.Class = diagnose.Waste
	text, suffers := v.Suffers()
	share, of := burnt(v, f.Cost)
	said := fmt.Sprintf("It uses %.0f %% of the CPU of %s, which is full", 100*share, of)
	told := diagnose.Evidence{Kind: "busy", Ref: "processes", Value: share, Unit: "1", Text: fmt.Sprintf("its part of the CPU of %s, which is full", of)}
	if wait, ok := seats(v, f.Cost); ok && share < named {
		share = f.Cost.RequestShare
		said = fmt.Sprintf("It sends %.0f %% of all requests, and these wait %.0f ms each for a seat", 100*share, 1000*wait)
		told = diagnose.Evidence{Kind: "wait", Ref: "apiserver_flowcontrol_request_wait_duration_seconds", Value: wait, Unit: "s", Text: "that a request waits for a seat of priority and fairness"}
	}
	if !suffers || share < named {
		return
	}
	f.Class, f.Consumes, f.Spare = diagnose.Bottleneck, true, f.Summary
	f.Claims = map[string]float64{}
	held := share
	if m, ok := v.MachineCPU(v.Plateau); ok && v.Meta.Workload.OfferedRate > 0 && m.Share*(1-share) < relieved {
		held = 1 // the load has a rate of its own: without this there is room for it
	}
	for _, s := range v.LostStages() {
		f.Claims[s.Name] = held * *s.ExcessSeconds
	}
	if lost := v.LostStages(); len(lost) > 0 {
		if f.Stage = lost[0].Name; f.Stage == diagnose.Scheduling {
			f.Stage = diagnose.Queue
		}
	}
	f.RequestSeconds = held * v.API.LostSeconds
	f.Summary += fmt.Sprintf(" %s: %s.", said, text)
	f.Evidence = append(f.Evidence, told)
}

// seats is how long requests wait for a seat where that is long and most of them are
// of one client.
func seats(v *diagnose.View, c *diagnose.Cost) (wait float64, ok bool) {
	wait, _, known := v.Mean(diagnose.APIServer, "apiserver_flowcontrol_request_wait_duration_seconds", nil)
	return wait, known && wait >= queued && c.RequestShare >= crowding
}

// burnt is which part of a full CPU a cost is, and whose CPU that is.
func burnt(v *diagnose.View, c *diagnose.Cost) (share float64, of string) {
	if c.ServerCPUSeconds == nil {
		return 0, ""
	}
	if u, _, ok := v.QuotaUse(diagnose.APIServer); ok && u >= fullQuota && c.ServerCPUOf == "" {
		return *c.ServerCPUShare, diagnose.APIServer
	}
	if used, ok := shared(v); ok {
		return min(1, *c.ServerCPUSeconds/used), "a group with a quota"
	}
	m, ok := v.MachineCPU(v.Plateau)
	whole, okWhole := v.MachineCPU(v.Load)
	if !ok || !okWhole || m.Share < full || whole.Busy <= 0 {
		return 0, ""
	}
	x := *c.ServerCPUSeconds
	if c.ClientCPUSeconds != nil {
		x += *c.ClientCPUSeconds
	}
	return min(1, x/whole.Busy), "the machine"
}

// shared is the CPU over the load of components that a quota stopped for most of
// the time, and that is not their own: they share it. ok is false where the API
// server is not among them.
func shared(v *diagnose.View) (used float64, ok bool) {
	names, _, _ := v.GroupStopped(stopped)
	for _, c := range names {
		if x, known := v.CPU(c, v.Load); known {
			used += x
			ok = ok || c == diagnose.APIServer
		}
	}
	return used, ok && used > 0
}

// Agents are the names of clients, a few.
func Agents(talks []diagnose.Talk) string {
	var names []string
	for _, t := range talks {
		if !slices.Contains(names, t.Agent) {
			names = append(names, t.Agent)
		}
	}
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}

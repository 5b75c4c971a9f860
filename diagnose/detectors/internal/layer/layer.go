// Package layer judges what every request of a kind passes through inside the
// API server (a webhook, authorization, encryption, an audit sink): the part
// that the detectors of slow layers share. Pods wait for it by the part that it
// has of the requests on their way.
package layer

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

// A Layer is what was measured of one.
type Layer struct {
	Name    string  // for people: "webhook x"
	Mean    float64 // seconds for each request that passed
	Count   float64 // requests that passed
	Ref     string
	Passes  func(verb, resource string) bool // which requests pass
	Sources int
}

// Thresholds, with their reasons.
const (
	// least is the shortest mean that counts: healthy layers are far below 1 ms,
	// an in-cluster webhook takes some ms (research/faults.md 3.5).
	least = 0.010
	// part is the least share of the requests' time.
	part = 0.10
	// risky is what is named although nothing suffers yet.
	risky = 0.050
	// crowded is the least mean where a CPU is full: whatever is asked waits for it
	// there, and 12 ms were measured of a webhook that takes one.
	crowded = 0.100
	few     = 10 // requests, below which a mean is an accident
)

// onTheWay are the requests that a pod passes, by the stage that waits for them.
var onTheWay = []struct{ stage, verb, resource string }{
	{diagnose.Accept, "create", ""}, // by the load: pods, or what owns them
	{diagnose.Controller, "create", "pods"},
	{diagnose.Bind, "create", "pods/binding"},
	{diagnose.Start, "patch", "pods/status"},
}

// Share is which part of the time of the requests that pass a layer has.
// known is false without an audit log.
func (l Layer) Share(v *diagnose.View) (share float64, known bool) {
	mean, _, ok := took(v, func(t *diagnose.Talk) bool { return l.Passes(t.Verb, t.Resource) })
	if !ok {
		return 0, false
	}
	return min(1, l.Mean/mean), true
}

func took(v *diagnose.View, fits func(*diagnose.Talk) bool) (mean float64, n int, ok bool) {
	var seconds float64
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long && t.Seconds >= 0 && fits(t) }) {
		seconds += t.Seconds
		n += t.Count
	}
	if n == 0 || seconds <= 0 {
		return 0, 0, false
	}
	return seconds / float64(n), n, true
}

// Quick says why a layer is none to speak of; "" where it is.
func (l Layer) Quick(v *diagnose.View) string {
	if l.Count < few || l.Mean < least {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests", l.Name, 1000*l.Mean, l.Count)
	}
	if up := v.Upstream(); up != "" && l.Mean < crowded {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests, and %s", l.Name, 1000*l.Mean, l.Count, up)
	}
	if share, ok := l.Share(v); ok && share < part {
		return fmt.Sprintf("%s took %.1f ms of each of %.0f requests, %.0f %% of their time", l.Name, 1000*l.Mean, l.Count, 100*share)
	}
	return ""
}

// Finding fills in what waits for the layer. ok is false where nothing does and
// it is not slow enough to be a risk.
func (l Layer) Finding(v *diagnose.View, f *diagnose.Finding) (ok bool) {
	f.Component, f.Sources = diagnose.APIServer, max(1, l.Sources)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: l.Ref, Value: l.Mean, Unit: "s", Text: fmt.Sprintf("%s took %.0f ms on average (n=%.0f)", l.Name, 1000*l.Mean, l.Count)})
	if share, known := l.Share(v); known {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests", Value: share, Unit: "1", Text: fmt.Sprintf("%.0f %% of the time of the requests that pass it, by the API server's log of requests", 100*share)})
	}
	if m, has := v.MachineCPU(v.Plateau); has {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "machine", Value: m.Share, Unit: "1", Text: fmt.Sprintf("the machine's CPU was %.0f %% busy", 100*m.Share)})
	}
	text, suffers := v.Suffers()
	if suffers {
		f.Claims = l.claims(v)
		f.RequestSeconds = min(v.API.LostSeconds, l.Mean*l.Count)
		if len(f.Claims) > 0 || v.API.Slow() {
			f.Class = diagnose.Bottleneck
			most := 0.0
			for stage, x := range f.Claims {
				if x > most || x == most && stage < f.Stage {
					most, f.Stage = x, stage
				}
			}
			if f.Stage == diagnose.Scheduling {
				f.Stage = diagnose.Bind
			}
			if f.Stage == "" {
				f.Stage = diagnose.Accept
			}
			f.Suffered = text
			f.Direct = true // its own clock measured it; no CPU makes a sleep shorter
			return true
		}
	}
	f.Class, f.Stage = diagnose.Risk, diagnose.Accept
	return l.Mean >= risky
}

// claims are, of each stage that waits for requests which pass the layer, the
// layer's part.
func (l Layer) claims(v *diagnose.View) map[string]float64 {
	claims := map[string]float64{}
	for _, w := range onTheWay {
		stage := w.stage
		if stage == diagnose.Bind && !v.Known(diagnose.Bind) {
			stage = diagnose.Scheduling
		}
		excess := v.Excess(stage)
		if excess <= 0 {
			continue
		}
		share := 0.0
		fits := func(t *diagnose.Talk) bool {
			ours := t.Harness == (w.stage == diagnose.Accept || w.stage == diagnose.Start)
			return ours && t.Verb == w.verb && (w.resource == "" || t.Resource == w.resource) && l.Passes(t.Verb, t.Resource)
		}
		if mean, _, ok := took(v, fits); ok {
			share = min(1, l.Mean/mean)
		} else if !v.HasRequests && l.Passes(w.verb, w.resource) {
			share = 1 // nobody knows who asked; the layer's own clock says it is slow
		}
		if share > 0 {
			claims[stage] = share * excess
		}
	}
	return claims
}

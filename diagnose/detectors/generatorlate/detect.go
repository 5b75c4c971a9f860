package generatorlate

import (
	"fmt"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// late is when a request counts as late: timers and a busy two-core
	// machine stay well below.
	late = 0.1
	// starved: the share of its time that a quota stopped the generator. Only
	// who asks for a quota can meet it, so it may be strict, and the lateness
	// that goes with it too.
	starved    = 0.02
	lateByStop = 0.05
	// slow is a request of ours that took suspiciously long while we were
	// being stopped: it is our own TLS and encoding, not the server.
	slow = 1.0
	// share of the lost pod-seconds that lateness must hold to make a run
	// invalid; on a full machine, where everyone is late, half.
	share, shareFull = 0.10, 0.50
	// reached: a declared rate counts as offered from here on.
	reached = 0.9
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "generator-late",
	Title: "The load generator is the limit",
	Doc: `Load is open: every request has a due time fixed in advance. A generator that cannot keep up sends late, or not at all, and what then looks like a slow
cluster is a slow generator. Such a run is not valid (exit status 4), whatever else it shows.

**Evidence.** Requests sent more than 0.1 s after they were due hold at least 10 % of the lost pod-seconds (half of them where the machine is full and everyone is
late), or a declared rate was offered to less than 90 %, or requests were never sent. Stops by the generator's own CPU quota are the second source; a
generator that was stopped for 2 % of the time and late by 0.05 s, or a second slow, has failed too.

**Look-alikes.** A limited client inside the cluster (the requests arrive on time, pods wait later); a full machine (machine-cpu).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if v.HasOperations && len(v.Operations) == 0 && v.Counts.Requests > 0 {
		return diagnose.NotAssessed("requests that ask for pods: the load has none")
	}
	if !v.HasOperations || len(v.Operations) == 0 {
		return diagnose.NotAssessed("the load's own requests: the load was not ours")
	}
	var lateness, worst, slowest float64
	left, lateOps, missed := 0, 0, 0
	first, last := v.Operations[0].DueMicros, int64(0)
	for _, o := range v.Operations {
		first = min(first, o.DueMicros)
		last = max(last, o.DueMicros, o.SentMicros, o.DoneMicros)
		if o.SentMicros == 0 {
			if v.Missed(&o) {
				missed++
			}
			continue
		}
		left++
		d := float64(o.SentMicros-o.DueMicros) / 1e6
		if d > late {
			lateOps++
			lateness += (d - late) * float64(o.Pods)
		}
		worst = max(worst, d)
		if o.DoneMicros != 0 {
			slowest = max(slowest, float64(o.DoneMicros-o.SentMicros)/1e6)
		}
	}
	// The generator only matters while it has something to send.
	active := record.Window{Start: time.UnixMicro(first).Add(-500 * time.Millisecond), End: time.UnixMicro(last).Add(500 * time.Millisecond)}
	stoppedFor, _, counted := v.Throttled(diagnose.Load, active)
	quota, hasQuota := v.Quota(diagnose.Load)
	isStarved := counted && hasQuota && stoppedFor >= starved*active.Seconds()
	if hasQuota && !isStarved {
		// Where stops are not counted, use of the quota must do.
		if used, ok := v.CPU(diagnose.Load, active); ok && used >= 0.85*quota*active.Seconds() {
			isStarved = true
		}
	}
	full := v.Upstream()
	need := share
	if full != "" && !isStarved {
		need = shareFull
	}
	offered := v.Meta.Workload.OfferedRate
	sent := sentRate(v)
	behind := v.Lost.PodSeconds > 0 && lateness >= need*v.Lost.PodSeconds && v.Symptom()
	short := offered > 0 && sent > 0 && sent < reached*offered && worst > late && (full == "" || isStarved)
	failed := isStarved && (worst > lateByStop || slowest > slow)
	if !behind && !short && !failed && missed == 0 {
		text := fmt.Sprintf("all %d requests were sent, %d of them more than %.1f s late, the latest by %.3f s", left, lateOps, late, max(0, worst))
		if isStarved {
			text += "; its quota stopped it, but nothing was due then"
		}
		return diagnose.NotThere("%s", text)
	}
	f := diagnose.Finding{
		Class: diagnose.HarnessHit, Component: "harness", Stage: diagnose.Submit, Resource: "cpu",
		Direct: true, Invalidates: true, Sources: 1,
		Cause:  "the load generator cannot send what is due",
		Claims: map[string]float64{diagnose.Submit: v.Excess(diagnose.Submit)},
		Evidence: []diagnose.Evidence{
			{Kind: "late", Ref: "operations: sent_us - due_us", Value: worst, Unit: "s", Text: fmt.Sprintf("%d of %d requests were sent more than %.1f s after they were due, the latest by %.2f s", lateOps, len(v.Operations), late, worst)},
		},
		Advice:    diagnose.Advice{Text: "Give kubedyno-load more CPU, offer less, or run it on another machine; do not use this run's numbers."},
		RefutedBy: "the same lateness from a generator that has CPU to spare",
	}
	if isStarved {
		// A starved generator is also slow to finish what it sends.
		f.Claims[diagnose.Accept] = v.Excess(diagnose.Accept)
		f.Sources = 2
		f.Cause = fmt.Sprintf("the load generator is held to %g CPU by its quota", quota)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "processes: throttled_s of kubedyno-load", Value: stoppedFor, Unit: "s", Text: fmt.Sprintf("its CPU quota of %g stopped it for %.1f of %.1f s", quota, stoppedFor, active.Seconds())})
		f.Advice.Set = map[string]string{diagnose.Load + ".cpu": "1"}
	}
	f.Summary = fmt.Sprintf("The load generator was the limit: requests left up to %.2f s after they were due", worst)
	if missed > 0 {
		f.Summary += fmt.Sprintf(", and %d never did", missed)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "late", Ref: "operations: sent_us = 0", Value: float64(missed), Unit: "requests", Text: fmt.Sprintf("%d of %d requests were never sent", missed, len(v.Operations))})
	}
	if offered > 0 && sent > 0 {
		f.Summary += fmt.Sprintf("; it offered %.1f of %g pods/s", sent, offered)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "operations: sent_us", Value: sent, Unit: "1/s", Text: fmt.Sprintf("%.1f pods/s were sent where %g were declared", sent, offered)})
	}
	f.Summary += "."
	return diagnose.Found(f)
}

// sentRate is the pods per second that really left, from the first due time to
// the last request sent; 0 where that is too short to say.
func sentRate(v *diagnose.View) float64 {
	var first, last int64
	pods := 0
	for _, o := range v.Operations {
		if first == 0 || o.DueMicros < first {
			first = o.DueMicros
		}
		if o.SentMicros != 0 {
			pods += int(o.Pods)
			last = max(last, o.SentMicros)
		}
	}
	if span := float64(last-first) / 1e6; span >= 3 {
		return float64(pods) / span
	}
	return 0
}

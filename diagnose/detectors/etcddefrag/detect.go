package etcddefrag

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	took = "etcd_disk_backend_defrag_duration_seconds"
	// share is the part of the load's time from which defragmentation counts, and long
	// the seconds of it that count by themselves.
	share, long = 0.05, 1.0
	// held is the share from which all that pods lost is charged, in proportion below.
	held = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-defrag",
	Title: "etcd is defragmented while others wait for it",
	Doc: `A defragmentation writes etcd's database anew, without the free pages that deletions and compaction leave in it. The member serves nobody meanwhile: it takes as long as it takes to copy the database, seconds for some gigabytes. Somebody asks for it: a cron job, an operator, a person (etcdctl defrag).

**Evidence.** Defragmentations (etcd_disk_backend_defrag_duration_seconds) took at least 5 % of the load's time, or a second. That etcd's log has them, or that the API server waited for etcd, is the second source.

**Class.** A bottleneck where pods lose time: charged with what they lost, from half of the time on, and in proportion below. Else a risk.

**Look-alikes.** A slow disk (etcd-sync, etcd-commits): these have clocks of their own. A full database (etcd-space), for which defragmentation is the remedy.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	n, ok := v.Increase(diagnose.Etcd, took+"_count", nil)
	seconds, has := v.Increase(diagnose.Etcd, took+"_sum", nil)
	if !ok || !has || v.Span() <= 0 {
		return diagnose.NotAssessed("%s of etcd", took)
	}
	busy := min(1, seconds/v.Span())
	if busy < share && seconds < long {
		return diagnose.NotThere("etcd was defragmented %.0f times, which took %.2f s", n, seconds)
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.Etcd, Resource: "lock", Sources: 1, Direct: true,
		Cause:   fmt.Sprintf("etcd was defragmented for %.1f s", seconds),
		Summary: fmt.Sprintf("etcd was defragmented %.0f times during the load, %.1f s in all (%.0f %% of the time), in which it serves nobody", n, seconds, 100*busy),
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: took + `_sum{component="etcd"}`, Value: busy, Unit: "1", Text: fmt.Sprintf("of the time it was being defragmented, %.0f ms each (n=%.0f)", 1000*seconds/max(1, n), n)},
		},
		Advice:    diagnose.Advice{Text: "Find who asks for it (a cron job, an operator, etcdctl defrag) and have it done seldom, one member after another, at a quiet time. What it frees is room in the file: compaction alone lets pages be used again. The price of doing it seldom: a larger file."},
		RefutedBy: "a run without it in which requests take as long",
	}
	if l, ok := v.Log(diagnose.Etcd, "etcd-defrag"); ok && l.Count > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: etcd, etcd-defrag", Value: float64(l.Count), Unit: "lines", Text: "say that one ended"})
	}
	if each, count, ok := v.Mean(diagnose.APIServer, "etcd_request_duration_seconds", nil); ok && count > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "etcd_request_duration_seconds", Value: each, Unit: "s", Text: fmt.Sprintf("the API server waits for etcd on average (n=%.0f)", count)})
	}
	text, suffers := v.Suffers()
	lost := v.LostStages()
	if !suffers || !v.StagesOK || !v.Symptom() || len(lost) == 0 {
		f.Summary += ". No pod waited long for it."
		return diagnose.Found(f)
	}
	f.Class, f.Stage, f.Suffered, f.Claims = diagnose.Bottleneck, lost[0].Name, text, map[string]float64{}
	for _, s := range lost {
		f.Claims[s.Name] = min(1, busy/held) * *s.ExcessSeconds
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.RequestSeconds = min(1, busy/held) * v.API.LostSeconds
	f.Summary += ": " + text + "."
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: "without it no request waits for one to end"}
	return diagnose.Found(f)
}

package auditsink

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// unseen is the gap between what the load's requests took for it and what the
	// server's clock says, from which somebody waits behind that clock. TLS, two
	// schedulers and a full machine make up to 20 ms.
	unseen = 0.03
	few    = 20
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "audit-sink",
	Title: "Requests wait until their audit events are written",
	Doc: `With --audit-log-mode=blocking, which is the default of the log backend, a request waits for its audit event to be written, one after another through one lock: on a slow disk, or at levels that log whole objects, the audit log sets the pace of the API server. The
event of the answer is written after the server's own clock has stopped, so that the server looks fast and its clients slow.

**Evidence.** The mode is blocking by the flags, and either the filter "audit" takes at least 10 ms of each request and 10 % of its time (events of RequestReceived), or the load's own requests took at least 30 ms longer for the load than by the
server's clock. Either is enough; both, or the API server's writes to disk, are two sources.

**Look-alikes.** A slow disk of etcd (etcd-sync: writes are slow by the server's clock, reads are not); a generator that is late (generator-late: requests leave late); a full machine (both clocks are slow).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	path, on, known := v.Flag(diagnose.APIServer, "audit-log-path")
	mode, set, _ := v.Flag(diagnose.APIServer, "audit-log-mode")
	switch {
	case !known:
		return diagnose.NotAssessed("the API server's flags")
	case !on || path == "":
		return diagnose.NotThere("the API server writes no audit log")
	case set && mode != "blocking" && mode != "blocking-strict":
		return diagnose.NotThere("the audit log is written in mode %s, beside the requests", mode)
	}
	l, ok := layer.Filter(v, "audit", nil)
	l.Name = "the audit log"
	mean := l.Mean
	gap, n, hasGap := behind(v)
	before := ok && l.Quick(v) == ""
	after := hasGap && n >= few && gap >= unseen && v.Upstream() == ""
	if !before && !after {
		if !ok && !hasGap {
			return diagnose.NotAssessed("the API server's metrics, or requests that the load timed itself")
		}
		return diagnose.NotThere("the audit log is written while requests wait, and took %.1f ms of each before the work, %.1f ms after it", 1000*mean, 1000*gap)
	}
	f := diagnose.Finding{
		Resource: "disk", Cause: "the audit log is written while requests wait (mode blocking)",
		Advice: diagnose.Advice{
			Text: "Set --audit-log-mode=batch: events are then written beside the requests, at the price that the last ones are lost when the API server dies, and that a full buffer drops events (counted). Level Metadata and omitStages RequestReceived halve and more what is written; a disk of its own keeps it from etcd's.",
			Set:  map[string]string{diagnose.APIServer + ".args.audit-log-mode": "batch"},
		},
		RefutedBy: "a run in mode batch in which the load's requests take as long",
		Evidence:  []diagnose.Evidence{{Kind: "config", Ref: "kube-apiserver --audit-log-mode", Text: "blocking" + map[bool]string{true: "", false: " (default)"}[set]}},
	}
	if after {
		l.Mean += gap
		l.Count = max(l.Count, float64(n))
		l.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "operations, requests", Value: gap, Unit: "s", Text: fmt.Sprintf("that the load's requests took longer for the load than by the server's clock, in the median (n=%d)", n)})
	}
	if b, ok := v.Written(diagnose.APIServer, v.Load); ok && v.Span() > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "processes: write_bytes of kube-apiserver", Value: b / v.Span(), Unit: "bytes/s", Text: "written by the API server, whose only file is the audit log"})
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("the audit log is written while requests wait, which took %.0f ms of each and held nothing up", 1000*l.Mean)
	}
	f.Summary = fmt.Sprintf("Requests wait %.0f ms each for the audit log, which is written in mode blocking%s", 1000*l.Mean, layer.Outcome(&f))
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("in mode batch each request takes %.0f ms less", 1000*l.Mean)}
	return diagnose.Found(f)
}

// behind is how much longer the load's requests took for the load than by the
// server's clock, in the median.
func behind(v *diagnose.View) (gap float64, n int, ok bool) {
	var seen []float64
	for _, o := range v.Operations {
		if o.SentMicros != 0 && o.DoneMicros > o.SentMicros {
			seen = append(seen, float64(o.DoneMicros-o.SentMicros)/1e6)
		}
	}
	var server []float64
	for i := range v.Requests {
		if r := &v.Requests[i]; r.UserAgent == diagnose.Load && r.Verb == "create" && r.DoneMicros > r.ReceivedMicros {
			server = append(server, float64(r.DoneMicros-r.ReceivedMicros)/1e6)
		}
	}
	if len(seen) == 0 || len(server) == 0 {
		return 0, 0, false
	}
	return max(0, stat.Median(seen)-stat.Median(server)), min(len(seen), len(server)), true
}

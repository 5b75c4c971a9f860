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
event of the answer is written after the server's own clock has stopped, so that the server looks fast and its clients slow. A webhook that audit events are sent to is one more sink, with a mode of its own (--audit-webhook-mode, batch by default).

**Evidence.** The mode of one of the two is blocking by the flags, and either the filter "audit" takes at least 10 ms of each request and 10 % of its time (events of RequestReceived), or the load's own requests took at least 30 ms longer for the load than by the
server's clock, or creates of pods by the server's log than by the clock around its handlers (apiserver_request_duration_seconds), which the audit filter is outside of. Either is enough; both, or the API server's writes to disk, are two sources.

**Look-alikes.** A slow disk of etcd (etcd-sync: writes are slow by the server's clock, reads are not); a generator that is late (generator-late: requests leave late); a full machine (both clocks are slow).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	to, why := blocking(v)
	switch {
	case why == "":
	case to.name == "":
		return diagnose.NotAssessed("%s", why)
	default:
		return diagnose.NotThere("%s", why)
	}
	l, ok := layer.Filter(v, "audit", nil)
	l.Name = "the audit " + to.name
	mean := l.Mean
	gap, n, hasGap := behind(v)
	outer, m, hasOuter := outside(v)
	if hasOuter && (!hasGap || outer > gap) {
		gap, n, hasGap = outer, m, true
	}
	before := ok && l.Quick(v) == ""
	after := hasGap && n >= few && gap >= unseen && v.Upstream() == ""
	if !before && !after {
		if !ok && !hasGap {
			return diagnose.NotAssessed("the API server's metrics, or requests that the load timed itself")
		}
		return diagnose.NotThere("the audit %s is %s while requests wait, and took %.1f ms of each before the work, %.1f ms after it", to.name, to.done, 1000*mean, 1000*gap)
	}
	f := diagnose.Finding{
		Resource: to.resource, Cause: fmt.Sprintf("the audit %s is %s while requests wait (mode %s)", to.name, to.done, to.mode),
		Advice: diagnose.Advice{
			Text: fmt.Sprintf("Set --%s=batch: events are then written beside the requests, at the price that the last ones are lost when the API server dies, and that a full buffer drops events (counted). Level Metadata and omitStages RequestReceived halve and more what is written; %s.", to.flag, to.other),
			Set:  map[string]string{diagnose.APIServer + ".args." + to.flag: "batch"},
		},
		RefutedBy: "a run in mode batch in which the load's requests take as long",
		Evidence:  []diagnose.Evidence{{Kind: "config", Ref: "kube-apiserver --" + to.flag, Text: to.mode + map[bool]string{true: "", false: " (default)"}[to.set]}},
	}
	if after {
		l.Mean += gap
		l.Count = max(l.Count, float64(n))
		l.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "operations, requests, " + handlers, Value: gap, Unit: "s", Text: fmt.Sprintf("that requests took longer for their client, or by the server's log, than by the clock around its handlers (n=%d)", n)})
	}
	if b, ok := v.Written(diagnose.APIServer, v.Load); ok && v.Span() > 0 && to.resource == "disk" {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "processes: write_bytes of kube-apiserver", Value: b / v.Span(), Unit: "bytes/s", Text: "written by the API server, whose only file is the audit log"})
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("the audit %s is %s while requests wait, which took %.0f ms of each and held nothing up", to.name, to.done, 1000*l.Mean)
	}
	f.Summary = fmt.Sprintf("Requests wait %.0f ms each for the audit %s, which is %s in mode %s%s", 1000*l.Mean, to.name, to.done, to.mode, layer.Outcome(&f))
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("in mode batch each request takes %.0f ms less", 1000*l.Mean)}
	return diagnose.Found(f)
}

// A sink is where audit events go.
type sink struct {
	name, resource, flag string
	done                 string // what is done with it
	other                string // what else helps
	mode                 string
	set                  bool // by the flag
}

// blocking is the sink for which requests wait by the flags; why says that there is
// none, or with an empty sink that nobody knows.
func blocking(v *diagnose.View) (s sink, why string) {
	if _, _, known := v.Flag(diagnose.APIServer, "audit-log-path"); !known {
		return sink{}, "the API server's flags"
	}
	why = "the API server has no audit log, and sends no audit events to a webhook"
	for _, to := range []struct {
		sink
		config string
	}{
		{sink{name: "log", resource: "disk", flag: "audit-log-mode", done: "written", mode: "blocking", other: "a disk of its own keeps it from etcd's"}, "audit-log-path"},
		{sink{name: "webhook", resource: "webhook", flag: "audit-webhook-mode", done: "called", mode: "batch", other: "look at what serves it (audit-webhook-config-file names it)"}, "audit-webhook-config-file"},
	} {
		s = to.sink
		if at, on, _ := v.Flag(diagnose.APIServer, to.config); !on || at == "" {
			continue
		}
		if mode, set, _ := v.Flag(diagnose.APIServer, s.flag); set {
			s.mode, s.set = mode, true
		}
		if s.mode == "blocking" || s.mode == "blocking-strict" {
			return s, ""
		}
		why = fmt.Sprintf("the audit %s is %s in mode %s, beside the requests", s.name, s.done, s.mode)
	}
	return s, why
}

// handlers is the clock that runs inside of the audit filter: the API server's log of
// requests is written outside of it.
const handlers = "apiserver_request_duration_seconds"

// outside is how much longer creates of pods took by the server's log of requests than
// by the clock around its handlers.
func outside(v *diagnose.View) (gap float64, n int, ok bool) {
	inner, count, ok := v.Mean(diagnose.APIServer, handlers, diagnose.Labels{"verb": "POST", "resource": "pods", "subresource": ""})
	if !ok || count < few {
		return 0, 0, false
	}
	seconds := 0.0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "create" && t.Resource == "pods" && t.Seconds >= 0 }) {
		seconds += t.Seconds
		n += t.Count
	}
	if n < few {
		return 0, 0, false
	}
	return max(0, seconds/float64(n)-inner), n, true
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

package openfiles

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/way"
)

const (
	open, limit = "process_open_fds", "process_max_fds"
	refusals    = "files-out" // a kind of analysis/logs
	// full is the share of the limit from which on the next connections need what is
	// left, and many the refusals that are no accident.
	full, many = 0.95, 5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "open-files",
	Title: "A component may open no more files",
	Doc: `Each connection is an open file, and a process may have so many of them (RLIMIT_NOFILE: LimitNOFILE of a unit, ulimit -n of a shell). At the limit the kernel gives it no other: a server goes on for those who are
connected and is dead for all who come; they see timeouts of TLS handshakes, and the component's metrics and requests look well.

**Evidence.** The component's log says so at least five times (too many open files), and its own count of open files is at 95 % of its limit and more (process_open_fds, process_max_fds). Each is one source; a scrape sees the count at its
moments only. Pods are charged where the run failed before a request of its load was answered: who was connected before waits for nobody. But a connection carries so many requests at a time (HTTP/2: 100), and the next ones need another, which is not let in. Where writes of kube-controller-manager
or kube-scheduler take them 20 ms and twice as long as the API server works on them (both clocks, as in client-way), and neither a full machine nor a quota does, pods are charged with that, and it is the second source.

**Look-alikes.** An API server without CPU lets handshakes wait as well (component-cpu, machine-cpu), a dead way looks the same from outside; neither writes this line. Ports run out on the side of a client that opens many connections (connection-churn).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	known := false
	var found []diagnose.Finding
	most, who := 0.0, ""
	for _, name := range []string{diagnose.Etcd, diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler} {
		lines, hasLog := v.Log(name, refusals)
		has, okOpen := v.Gauge(name, open, nil, v.Load)
		may, okMay := v.Gauge(name, limit, nil, v.Load)
		counted := okOpen && okMay && may.Max > 0
		known = known || hasLog || counted
		share := 0.0
		if counted {
			share = has.Max / may.Max
			if share > most {
				most, who = share, name
			}
		}
		if lines.Count < many && share < full {
			continue
		}
		found = append(found, finding(v, name, lines, share, has.Max, may.Max))
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case !known:
		return diagnose.NotAssessed("the components' logs, or %s and %s", open, limit)
	case who == "":
		return diagnose.NotThere("no log tells of too many open files")
	}
	return diagnose.NotThere("the most is %.0f %% of the files that a process may open: %s", 100*most, who)
}

func finding(v *diagnose.View, name string, lines diagnose.Logged, share, has, may float64) diagnose.Finding {
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: name, Resource: "files",
		Cause:     fmt.Sprintf("%s may open no more files", name),
		Summary:   fmt.Sprintf("%s has as many files and connections open as it may", name),
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Raise what %s may open (LimitNOFILE of its unit, ulimit -n; 65,536 and more is usual), and look who holds so many connections (ss -tnp): clients that are made anew for each request, watches without end, idle connections of a proxy. The price of a higher limit: the memory of the connections that then come.", name)},
		RefutedBy: fmt.Sprintf("new connections to %s that are accepted at that time", name),
	}
	if share >= full {
		f.Sources++
		f.Summary += fmt.Sprintf(" (%.0f of %.0f)", has, may)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: open + ", " + limit, Value: share, Unit: "1", Text: fmt.Sprintf("%.0f of %.0f files were open, at a moment of a scrape", has, may)})
	}
	if lines.Count >= many {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "logs: " + refusals + " of " + name, Value: float64(lines.Count), Unit: "lines", Text: "its log, the last line of them: " + lines.Last.Detail})
		f.Summary += fmt.Sprintf(", and was told so %d times", lines.Count)
	}
	if name == diagnose.APIServer && lines.Count >= many {
		outside(v, &f)
	}
	if len(f.Claims) > 0 {
		return f
	}
	if v.Unbegun && lines.Count >= many {
		f.Class, f.Direct, f.MissingShare = diagnose.Bottleneck, true, 1
		if name == diagnose.APIServer || name == diagnose.Etcd {
			f.Stage = diagnose.Accept
		}
		f.Suffered = "the run failed before a pod was asked for"
		f.Summary += fmt.Sprintf(": %s.", f.Suffered)
		return f
	}
	f.Summary += ". Who is connected notices nothing; whoever comes waits for somebody to leave."
	return f
}

// outside charges pods with what the API server's clients wait for: to be let in. A
// connection carries a number of requests at a time, and more of them need another one.
func outside(v *diagnose.View, f *diagnose.Finding) {
	if !v.StagesOK || !v.Symptom() || !v.HasRequests || v.Upstream() != "" {
		return
	}
	claims := map[string]float64{}
	waits := ""
	longest := 0.0
	for _, c := range way.Components {
		w, why := way.Of(v, c)
		if why != "" || !w.Long() || way.QuickOf(v, c).NoneBefore() {
			continue
		}
		stage, seconds := w.Claim(v)
		if seconds <= 0 {
			continue
		}
		claims[stage] = seconds
		if seconds > longest {
			longest, f.Stage = seconds, stage
		}
		waits += fmt.Sprintf(" %s waits %.0f ms for a write that the API server works on for %.0f ms.", c, 1000*w.Client, 1000*w.Server)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: way.Requests + `_sum{component="` + c + `"}`, Value: w.Client, Unit: "s", Text: fmt.Sprintf("%.0f ms a write by the client's clock, %.0f ms by the API server's (n=%.0f)", 1000*w.Client, 1000*w.Server, w.N)})
	}
	if waits == "" {
		return
	}
	f.Class, f.Claims, f.Direct = diagnose.Bottleneck, claims, true
	f.Sources++
	f.Summary += ". A connection carries a number of requests at a time, and those beyond need another, which is not let in:" + waits
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: "with more files writes take no longer than the API server works on them"}
}

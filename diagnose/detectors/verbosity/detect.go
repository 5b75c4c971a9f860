package verbosity

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// usual is the verbosity of production; from chatty on each request is a line.
	usual, chatty = 2, 4
	// bytes a second that a component writes to its log at the usual verbosity
	// stay below a tenth of this.
	loud = 50e3
	// burnt is the share of the component's CPU, where profiles know it.
	burnt = 0.03
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "verbosity",
	Title: "A component logs more than anybody reads",
	Doc: `-v=2 is the verbosity of production. From -v=4 on a component writes a line and more for each request, from -v=8 whole bodies: formatting is CPU, and the lines are written while the request waits.

**Evidence.** The component's flags (-v of 4 and above, etcd's --log-level=debug), and that it acts: at least 50 kB/s written to storage, or 3 % of its CPU, garbage collection left out, for logging by its profile. Without either it is not assessed.
A kube-controller-manager or kube-scheduler that writes 50 kB/s without such a flag is named for that: the lines are one error's, --vmodule's, or those that GODEBUG=http2debug asks for.

**Look-alikes.** A full machine (no log growth); an audit log (the API server writes it at -v=2 as well: audit-sink).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	var found []diagnose.Finding
	known, unseen, top := false, "", 0
	for _, c := range []string{diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler, diagnose.Etcd} {
		level, flag, ok := verbosity(v, c)
		known = known || ok
		work, profiled := v.Work(c, "logging")
		written, wrote := v.Written(c, v.Load)
		rate := 0.0
		if v.Span() > 0 {
			rate = written / v.Span()
		}
		if !ok || level < chatty {
			top = max(top, level)
			// Others write more than their logs.
			if wrote && rate >= loud && (c == diagnose.ControllerManager || c == diagnose.Scheduler) {
				found = append(found, unasked(v, c, rate))
			}
			continue
		}
		if c == diagnose.Etcd { // its writes are its data
			wrote = false
		}
		if !profiled && !wrote {
			unseen = c
			continue
		}
		if !(profiled && work.OfWork >= burnt || wrote && rate >= loud) {
			continue
		}
		f := diagnose.Finding{
			Component: c, Resource: "cpu", Sources: 1,
			Cause:     fmt.Sprintf("%s logs at %s", c, flag),
			Summary:   fmt.Sprintf("%s logs at %s, which is for debugging", c, flag),
			Evidence:  []diagnose.Evidence{{Kind: "config", Ref: c + " " + flag, Value: float64(level), Unit: "1", Text: fmt.Sprintf("verbosity; %d is usual", usual)}},
			Advice:    diagnose.Advice{Text: fmt.Sprintf("Set the verbosity of %s back to %d. The price: requests are no longer in its log; the audit log has them cheaper.", c, usual), Set: map[string]string{c + ".args.v": strconv.Itoa(usual)}},
			RefutedBy: "a run at -v=2 in which the component uses as much CPU",
			Cost:      &diagnose.Cost{},
		}
		if c == diagnose.Etcd {
			f.Advice.Set = map[string]string{c + ".args.log-level": "info"}
			f.Advice.Text = "Set etcd's --log-level back to info. The price: none but the lines."
		}
		if wrote {
			f.Summary += fmt.Sprintf(", and writes %.0f kB a second", rate/1000)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "processes: write_bytes of " + c, Value: rate / 1000, Unit: "kB/s", Text: "written to storage"})
			f.Sources++
		}
		if profiled {
			f.Sources++
			f.Summary += fmt.Sprintf("; that takes %.0f %% of its CPU", 100*work.Share)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: " + c, Value: work.Share, Unit: "1", Text: fmt.Sprintf("of its CPU went to logging, %.1f CPU-seconds", work.CPUSeconds)})
			f.Cost.ServerCPUSeconds, f.Cost.ServerCPUShare, f.Cost.Measured = &work.CPUSeconds, &work.Share, true
			if c != diagnose.APIServer {
				f.Cost.ServerCPUOf = c
			}
		}
		f.Summary += "."
		consumer.Weigh(v, &f)
		found = append(found, f)
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case !known:
		return diagnose.NotAssessed("the components' flags")
	case unseen != "":
		return diagnose.NotAssessed("what %s writes, or its profile", unseen)
	}
	return diagnose.NotThere("the highest verbosity that acts is %d", top)
}

// unasked is what is found of a component that writes much although its flags do not
// ask for it.
func unasked(v *diagnose.View, component string, rate float64) diagnose.Finding {
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: component, Resource: "cpu", Sources: 1,
		Cause:     fmt.Sprintf("%s writes %.0f kB a second to its log", component, rate/1000),
		Summary:   fmt.Sprintf("%s writes %.0f kB a second to its log, where a few are usual at its verbosity.", component, rate/1000),
		Evidence:  []diagnose.Evidence{{Kind: "rate", Ref: "processes: write_bytes of " + component, Value: rate / 1000, Unit: "kB/s", Text: "written to storage"}},
		Advice:    diagnose.Advice{Text: "Look at what the log says (kubedyno show RECORDING logs): one message again and again is an error to mend, or a --vmodule; lines of the HTTP library come from GODEBUG=http2debug in its environment."},
		RefutedBy: "a log file that has not grown as much",
	}
	if c, ok := v.Component(component); ok && slices.Contains(c.Env, "GODEBUG") {
		f.Summary += " GODEBUG is set in its environment."
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: component + ".env.GODEBUG", Value: 1, Unit: "1", Text: "is set; its value is not recorded"})
	}
	return f
}

// verbosity of a component by its flags, on klog's scale.
func verbosity(v *diagnose.View, component string) (level int, flag string, known bool) {
	if component == diagnose.Etcd {
		x, _, ok := v.Flag(component, "log-level")
		if x == "debug" {
			return chatty, "--log-level=debug", ok
		}
		return usual, "--log-level", ok
	}
	x, set, ok := v.Flag(component, "v")
	if !ok || !set {
		return 0, "-v", ok
	}
	n, err := strconv.Atoi(x)
	return n, "-v=" + x, err == nil
}

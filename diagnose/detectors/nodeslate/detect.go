package nodeslate

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// Nodes declare a start delay of 0.3 s in the median; being late by a third
	// of it while their quota stops them, or by all of it without, distorts
	// what they stand for.
	lateStopped, lateFree = 0.1, 0.3
	stopped, used         = 0.5, 0.85
	share, shareFull      = 0.10, 0.50
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "nodes-late",
	Title: "The simulated nodes are the limit",
	Doc: `Simulated nodes report each pod running after a delay drawn from a declared distribution (median 0.3 s, p99 1 s). Up to that p99 the delay
is the experiment's wish and not lost. The process counts by how much it was later than it had drawn; where that is its own fault, the run is not valid (exit status 4).

**Evidence.** kubedyno_hollow_timer_lateness_seconds, by how much later than due a delay ended inside the process: 0.3 s on average, or 0.1 s where
the process is stopped by its own CPU quota, and at least 10 % of the lost pod-seconds (half of them on a full machine, where everyone is late), and pods were held up at all.
kubedyno_hollow_start_lateness_seconds stands beside it, and in its place only where the process is stopped: it also holds the wait for the API server's answers to the
same node's earlier requests, which is not the nodes' fault.

**Look-alikes.** A slow API server (reports are late, timers are not); a full machine (machine-cpu); slow delivery of watch events (the nodes are late only from the pod's receipt on); a real node's own slowness.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.Meta.Nodes.Simulated {
		return diagnose.NotThere("the nodes are not simulated")
	}
	if v.EndsBound {
		return diagnose.NotThere("the nodes were seeded: nobody simulates what they do")
	}
	u, stops, hasQuota := v.QuotaUse(diagnose.Hollow)
	isStopped := hasQuota && (stops >= stopped || u >= used)
	metric := "kubedyno_hollow_timer_lateness_seconds"
	mean, n, ok := late(v, metric)
	if !ok && isStopped {
		metric = "kubedyno_hollow_start_lateness_seconds"
		if mean, n, ok = late(v, metric); !ok {
			return diagnose.NotAssessed("kubedyno_hollow_timer_lateness_seconds of kubedyno-hollow, which its CPU quota stops")
		}
	}
	if !ok {
		return diagnose.NotAssessed("%s of kubedyno-hollow", metric)
	}
	mass := mean * float64(v.Counts.Running)
	full := v.Upstream()
	switch {
	case isStopped && mean >= lateStopped:
	case !isStopped && full == "" && mean >= lateFree && v.Lost.PodSeconds > 0 && mass >= share*v.Lost.PodSeconds:
	case !isStopped && full != "" && mean >= lateFree && mass >= shareFull*v.Lost.PodSeconds:
	default:
		why := fmt.Sprintf("delays of the simulated nodes ended %.3f s late on average", mean)
		if start, _, ok := late(v, "kubedyno_hollow_start_lateness_seconds"); ok && start > mean+lateStopped {
			why += fmt.Sprintf("; reports left %.3f s late, waiting for the API server's answers", start)
		}
		return diagnose.NotThere("%s", why)
	}
	f := diagnose.Finding{
		Class: diagnose.HarnessHit, Component: "harness", Stage: diagnose.Start, Resource: "cpu",
		Direct: true, Invalidates: true, Sources: 1,
		Cause:   "the simulated nodes cannot keep up",
		Summary: fmt.Sprintf("The simulated nodes were the limit: their delays ended %.2f s later than they meant to, on average.", mean),
		Claims:  map[string]float64{diagnose.Start: v.Excess(diagnose.Start)},
		Evidence: []diagnose.Evidence{
			{Kind: "late", Ref: metric, Value: mean, Unit: "s", Text: fmt.Sprintf("%.2f s late on average (n=%.0f)", mean, n)},
		},
		Advice:    diagnose.Advice{Text: "Give kubedyno-hollow more CPU, use fewer nodes, or a cheaper node mode; do not use this run's numbers."},
		RefutedBy: "the same lateness from nodes that have CPU to spare",
	}
	if isStopped {
		q, _ := v.Quota(diagnose.Hollow)
		f.Sources = 2
		f.Cause = fmt.Sprintf("the simulated nodes are held to %g CPU by their quota", q)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "processes: kubedyno-hollow", Value: u, Unit: "1", Text: fmt.Sprintf("%.0f %% of a quota of %g CPU used, stopped in %.0f %% of its periods", 100*u, q, 100*stops)})
	}
	return diagnose.Found(f)
}

// late is the mean of a histogram of lateness, in seconds.
func late(v *diagnose.View, metric string) (mean, n float64, ok bool) {
	sum, ok := v.Increase(diagnose.Hollow, metric+"_sum", nil)
	n, okN := v.Increase(diagnose.Hollow, metric+"_count", nil)
	if !ok || !okN || n == 0 {
		return 0, 0, false
	}
	return sum / n, n, true
}

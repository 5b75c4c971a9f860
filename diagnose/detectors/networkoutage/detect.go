package networkoutage

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// waited is what the longest pod must have waited, in seconds, for an outage to have
	// held somebody up, and few how many pods.
	waited, few = 1.0, 3
	// passing is the part of the pods that waited which may have come further all the
	// same: samples tell the time of an outage to the second.
	passing = 0.1
)

var stages = []string{diagnose.Accept, diagnose.Controller, diagnose.Scheduling, diagnose.Start, diagnose.Observe}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "network-outage",
	Title: "For seconds nothing arrived over the network",
	Doc: `Components talk by TCP, also on one machine. Where an interface is down, or a filter drops what is sent, connections stay and wait: TCP sends again, after 0.2 s and then each time twice as long after the last, so that an outage ends for a connection up to twice as late as it ended. No component logs anything of a short one.

**Evidence.** In a second and more of the load the machine sent hardly anything over TCP but segments that it had sent before (at least 3, a fifth of all), less than a twentieth of what is usual in this load, and its CPUs were less than half busy. What pods waited in these times is charged; that hardly any came further is the second source. It is known of a control plane on this machine alone.

**Look-alikes.** A component that stands still (standstill): the kernel acknowledges for it what it does not read. A full CPU: up to 1.6 % of segments are sent again there, beside all others. Connections that break (lost-watches).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	all, again, ok := v.Outages()
	if !ok {
		return diagnose.NotAssessed("the machine's TCP counters")
	}
	seconds, passed := 0.0, 0
	var when []string
	for _, w := range all {
		seconds += w.Seconds()
		when = append(when, fmt.Sprintf("%.0f s to %.0f s", w.Start.Sub(v.Load.Start).Seconds(), w.End.Sub(v.Load.Start).Seconds()))
	}
	if len(all) == 0 {
		return diagnose.NotThere("in no second of the load did the machine send only what it had sent before")
	}
	const told = 3
	if len(when) > told {
		when = append(when[:told], fmt.Sprintf("and %d times more", len(when)-told))
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: "machine", Resource: "network", Sources: 1, Direct: true,
		Cause:   fmt.Sprintf("nothing arrived over the network for %.0f s", seconds),
		Summary: fmt.Sprintf("Nothing that was sent over the machine's network arrived for %.0f s, from %s of the load: TCP sent again what it had sent", seconds, strings.Join(when, ", ")),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "machine: tcp_segments_sent, tcp_retransmits", Value: seconds, Unit: "s", Text: fmt.Sprintf("in which %.0f segments were sent again, and hardly any other", again)},
		},
		Advice:    diagnose.Advice{Text: "Find what stopped the network: an interface that was down (ip -s link, the loopback too), packet filters that were loaded anew, a table of connections that was full (dmesg: nf_conntrack), a machine that was moved. More CPUs or other limits change nothing. The price of a network that stays: none."},
		RefutedBy: "bytes on the loopback interface, or answers of the API server, from that time",
	}
	claims, pods, longest := v.Held(all, stages)
	if pods < few || longest < waited {
		f.Summary += ". No pod waited for it long enough to count as lost."
		return diagnose.Found(f)
	}
	f.Class, f.Claims = diagnose.Bottleneck, map[string]float64{}
	for stage, x := range claims {
		inside, _ := v.WaitedDuring(stage, all)
		if x = min(x, inside*v.Excess(stage)); x > 0 {
			f.Claims[stage] = x
		}
	}
	for _, stage := range stages {
		passed = max(passed, v.Passed(all, stage))
	}
	if float64(passed) <= passing*float64(pods) {
		f.Sources++
	}
	for _, s := range v.LostStages() {
		if f.Claims[s.Name] > f.Claims[f.Stage] {
			f.Stage = s.Name
		}
	}
	f.Suffered = fmt.Sprintf("%d pods waited meanwhile", pods)
	f.Summary += ". " + f.Suffered + "."
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "pods", Value: float64(passed), Unit: "pods", Text: fmt.Sprintf("came further meanwhile, of %d that waited", pods)})
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("without the outage pods come %.0f s earlier", seconds)}
	f.Next = f.Summary + " It takes its part of what pods wait for."
	return diagnose.Found(f)
}

package idletwins

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// little is the share of a CPU that one replica uses at most: a single one could
	// do the work of all many times over.
	little = 0.10
	// alike is by what factor twins may differ.
	alike = 2.0
	// few is how many nodes there may be: with more, replicas are there so that
	// one can take over when a node dies.
	few = 1
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "idle-twins",
	Title: "Replicas that nobody needs",
	Doc: `Two replicas of a DNS server, of a controller, of a proxy on a cluster with a single node watch the same objects and share a load that one of them would hardly notice; when the node dies,
both die.

**Waste.** In a recording of a cluster at its own work with at most one node: two or more processes with one command line (and names that differ by a number or a suffix only), of which none uses more than
10 % of a CPU and which use about the same (within a factor of two).

**Price of the advice.** While the one replica restarts, nobody answers.

**Look-alikes.** The control plane's own components, whose replicas are on different machines, and kubedyno's. The kernel's threads, and what a container runtime runs for each pod: their number follows
from the machine and from the pods.`,
	Detect: detect,
}

// suffix is what tells replicas of one workload apart in their names.
var suffix = regexp.MustCompile(`-[0-9]+$|-[a-f0-9]{6,10}-[a-z0-9]{5}$`)

// machinery is what the machine has of one program by its own count: the kernel's
// threads, and what a container runtime runs for each pod.
func machinery(command string) bool {
	program, _, _ := strings.Cut(command, " ")
	program = program[strings.LastIndex(program, "/")+1:]
	return strings.HasPrefix(command, "[") || strings.HasPrefix(program, "containerd-shim") || program == "conmon" || program == "pause"
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	switch {
	case !v.HasProcesses:
		return diagnose.NotAssessed("processes")
	case !v.Observed && (v.Counts.Seen > 0 || len(v.Operations) > 0):
		return diagnose.NotThere("the cluster was loaded: what its replicas are for is not seen")
	case v.Meta.Nodes.Count > few:
		return diagnose.NotThere("there are %d nodes: replicas can take over from one another", v.Meta.Nodes.Count)
	}
	groups := map[string][]diagnose.Replica{}
	for _, r := range v.LongLived() {
		switch r.Component {
		case diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler, diagnose.Etcd:
			continue
		}
		if v.IsHarness(r.Component) || machinery(r.Command) {
			continue
		}
		key := suffix.ReplaceAllString(r.Component, "") + " " + spikes.Normal(r.Command)
		groups[key] = append(groups[key], r)
	}
	var found []diagnose.Finding
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		if len(g) < 2 {
			continue
		}
		least, most, sum := g[0].CPUSeconds, g[0].CPUSeconds, 0.0
		for _, r := range g {
			least, most, sum = min(least, r.CPUSeconds), max(most, r.CPUSeconds), sum+r.CPUSeconds
		}
		if most > little*v.Span() || most > alike*least || sum <= 0 {
			continue
		}
		first := g[0]
		name := strings.TrimSpace(suffix.ReplaceAllString(first.Component, ""))
		if name == "" {
			name, _, _ = strings.Cut(spikes.Normal(first.Command), " ")
			name = name[strings.LastIndex(name, "/")+1:]
		}
		spare := sum * float64(len(g)-1) / float64(len(g))
		component := first.Component
		if component == "" {
			component = name
		}
		found = append(found, diagnose.Finding{
			Class: diagnose.Waste, Component: "client:" + component, Resource: "cpu", Sources: 1,
			Cause:   fmt.Sprintf("%d replicas of %s on a cluster with one node", len(g), name),
			Summary: fmt.Sprintf("%d replicas of %s do the work of one: each uses %.2f %% of a CPU, on a cluster with %d node; %d of them could go.", len(g), name, 100*most/v.Span(), v.Meta.Nodes.Count, len(g)-1),
			Cost:    &diagnose.Cost{ClientCPUSeconds: &spare},
			Evidence: []diagnose.Evidence{
				{Kind: "busy", Ref: "processes: " + name, Value: sum / v.Span(), Unit: "CPUs", Text: fmt.Sprintf("%d processes used %.2f CPU-seconds in %.0f s, %.2f to %.2f each", len(g), sum, v.Span(), least, most)},
			},
			Advice:    diagnose.Advice{Text: "One replica where there is one node. The price: while it restarts, nobody answers."},
			RefutedBy: "a replica that is busy at some time of the day",
		})
	}
	if len(found) == 0 {
		return diagnose.NotThere("no two processes do the same little work")
	}
	return diagnose.Found(found...)
}

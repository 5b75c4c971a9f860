package leaderelection

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// usual is how often an elector writes its lease by default: every 2 s
	// (--leader-elect-retry-period). Three times that is aggressive.
	usual, aggressive = 0.5, 1.5
	// fewest writes of a lease say how often it is written.
	fewest = 10
	// worth is the share of the API server's requests from which it is worth a
	// word at all.
	worth = 0.05
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "leader-election",
	Title: "Leader election costs more than it gives",
	Doc: `Each elector writes its Lease every 2 s, for ever. Each write is a commit of etcd: two of them are most of what an idle cluster does. On a cluster with one replica of each
component nobody can take over, so that it is for nothing.

**Waste.** Electors that write more often than every 0.7 s (--leader-elect-retry-period far below its default of 2 s); and any elector on a cluster with a single replica of the control plane and at most one node
where the elections are at least 5 % of all requests that the API server answers.

**Price of the advice.** Without leader election a second replica of the component would work beside the first and do damage: it is for clusters that never have two, single-node ones above all.

**Look-alikes.** Nodes' heartbeats are Leases too (namespace kube-node-lease, users system:node:…) and are not counted here. Many locks, one for each object: lock-herd.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("an audit log: only it tells who renews what")
	}
	if v.Span() <= 0 {
		return diagnose.NotAssessed("a longer recording")
	}
	electors := v.TalksOf(func(t *diagnose.Talk) bool {
		return strings.HasSuffix(t.Agent, "leader-election") && !t.Harness && t.Resource == "leases" && !t.Long
	})
	if len(electors) == 0 {
		return diagnose.NotThere("nobody renewed a leader's lease")
	}
	cost := v.CostOf(electors, "")
	fastest, perAgent := "", map[string]float64{}
	for _, t := range electors {
		if !t.Writes() {
			continue
		}
		perLock := t.Rate(v)
		if t.Names > 1 {
			perLock /= float64(t.Names)
		}
		perAgent[t.Agent] += perLock
		if fastest == "" || perAgent[t.Agent] > perAgent[fastest] {
			fastest = t.Agent
		}
	}
	if fastest == "" {
		return diagnose.NotThere("nobody renewed a leader's lease")
	}
	rate := perAgent[fastest]
	single := v.Replicas() == 1 && v.Meta.Nodes.Count <= 1
	often := rate >= aggressive && rate*v.Span() >= fewest
	if !often && (!single || cost.RequestShare < worth) {
		return diagnose.NotThere("electors renew their leases %.2f times a second at most, %.0f %% of the API server's requests", rate, 100*cost.RequestShare)
	}
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: component(fastest), Resource: "lock", Sources: 1, Cost: cost,
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "requests: leases by …/leader-election", Value: cost.RequestsPerSecond, Unit: "1/s", Text: fmt.Sprintf("%d electors; the busiest writes %.2f times a second", len(perAgent), rate)},
		},
		RefutedBy: "a cluster without leader election that uses as much CPU",
	}
	args := map[string]string{}
	for agent := range perAgent {
		if c := component(agent); c == diagnose.ControllerManager || c == diagnose.Scheduler {
			args[c+".args.leader-elect"] = "false"
		}
	}
	if often {
		// What it holds up is no lock: it burns CPU and writes.
		f.Resource = "cpu"
		f.Cause = fmt.Sprintf("leases are renewed %.1f times a second by %s; every 2 s is usual", rate, fastest)
		f.Summary = fmt.Sprintf("%s renews its lease %.1f times a second, %.0f times as often as usual; leader election is %.0f %% of all requests to the API server.", component(fastest), rate, rate/usual, 100*cost.RequestShare)
		f.Advice.Text = fmt.Sprintf("Go back to the defaults of leader election: --leader-elect-lease-duration=15s --leader-elect-renew-deadline=10s --leader-elect-retry-period=2s. Then each renews %.1f times a second. The price: a standby takes over 15 s after its leader is gone.", usual)
		set := map[string]string{}
		for path := range args {
			for flag, value := range map[string]string{"lease-duration": "15s", "renew-deadline": "10s", "retry-period": "2s"} {
				set[path+"-"+flag] = value
			}
		}
		f.Advice.Set = set
		if single {
			f.Advice.Text += " On a cluster that never has a second replica, --leader-elect=false saves all of it."
		}
	} else {
		f.Cause = "leader election without anybody to take over"
		f.Summary = fmt.Sprintf("%d components elect a leader although each has one replica only: %s.", len(perAgent), cost)
		f.Advice = diagnose.Advice{Text: "Switch it off on a cluster that never has a second replica (--leader-elect=false), a single-node one above all. The price: a second replica would work beside the first and do damage.", Set: args}
	}
	return diagnose.Found(f)
}

// component is the program of a user agent's short form.
func component(agent string) string {
	program, _, _ := strings.Cut(agent, "/")
	program, _, _ = strings.Cut(program, " ")
	switch program {
	case diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler, diagnose.Etcd:
		return program
	}
	return "client:" + program
}

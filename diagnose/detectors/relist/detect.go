package relist

import (
	"fmt"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// perSecond watches that begin. They live for 30 to 60 minutes, so that a
	// hundred of them begin again once in half a minute.
	perSecond = 1.0
	// shortLife of watches, by --min-request-timeout in seconds: all of them then
	// begin again by the API server's own wish.
	shortLife = 300
	// burnt: from this share of its profile on, the API server's CPU for watches is
	// that of their beginnings.
	burnt = 0.10
	// again: how often one kind of watch of one client began, beyond what
	// clients and their replicas need to begin at all, and beyond the few that a
	// burst of some seconds cuts off.
	again = 10.0
	// terminated watches a second, which the API server itself ended, are a cause
	// by themselves, from so many on; a full machine lets some watchers fall behind.
	terminated, fewest = 2.0, 20
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "relist-storm",
	Title: "Watches end and begin again",
	Doc: `A watch that begins without a version that the API server still knows starts with everything (a LIST, or the initial events): a client that cannot keep up is cut off by the API server and reads all of it again, and one that gives up its watches does so by itself.

**Evidence.** One client begins at least one watch of a resource a second, steadily through the load (not only at its start); or the API server ends at least two a second because they do not keep up
(apiserver_terminated_watchers_total) although no CPU is full; fewer are the second source. The finding tells which.

**Look-alikes.** A full CPU, on which the cluster's own watchers fall behind and are cut off: as many as begin again. Clients that start (each watch begins once); direct lists without watches (list-storm); time limits for watches that somebody shortened (short-timeouts names the flag).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	ended, hasEnded := v.Increase(diagnose.APIServer, "apiserver_terminated_watchers_total", nil)
	if !v.HasRequests && !hasEnded {
		return diagnose.NotAssessed("the requests, or the API server's metrics")
	}
	if v.Span() <= 0 {
		return diagnose.NotAssessed("a load")
	}
	if life, set, _ := v.Flag(diagnose.APIServer, "min-request-timeout"); set {
		if s, err := strconv.Atoi(life); err == nil && s < shortLife {
			return diagnose.NotThere("watches end after %d s by --min-request-timeout", s)
		}
	}
	slow := ended >= max(terminated*v.Span(), fewest) && v.Upstream() == ""
	var worst *diagnose.Talk
	steady := 0.0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "watch" && !t.Harness && t.Agent != diagnose.APIServer }) {
		// Of those that begin steadily, a half comes in the load's second half.
		late := 0
		for _, x := range t.Times {
			if x > v.Span()/2 {
				late++
			}
		}
		if x := 2 * float64(late) / v.Span(); x > steady {
			steady, worst = x, &t
		}
	}
	relists := 0.0
	for _, l := range v.Lists {
		if worst != nil && l.Agent == worst.Agent && l.Resource == worst.Resource {
			relists = min(steady, float64(l.Relists)/v.Span()) // those at the load's start are in one and not in the other
		}
	}
	storm := worst != nil && steady >= perSecond && steady*v.Span() >= again*float64(max(1, worst.Users))
	if up := v.Upstream(); storm && up != "" && diagnose.OfCluster(worst.Agent) && ended >= steady*v.Span() {
		return diagnose.NotThere("%s began %.2f watches of %s a second, and the API server ended %.0f, which fell behind because %s", worst.Agent, steady, worst.Resource, ended, up)
	}
	if !slow && !storm {
		return diagnose.NotThere("%.2f watches a second began through the load, %.0f were ended because they did not keep up", steady, ended)
	}
	f := diagnose.Finding{Resource: "watch", Component: diagnose.APIServer, Sources: 1, RefutedBy: "watches that began once and stay, in the same run"}
	var talks []diagnose.Talk
	if storm {
		talks = []diagnose.Talk{*worst}
		f.Component = "client:" + worst.Agent
		f.Cause = fmt.Sprintf("%s begins %.1f watches of %s a second", worst.Agent, steady, worst.Resource)
		f.Summary = fmt.Sprintf("%s begins its watches of %s again and again: %.1f a second through the whole load", worst.Agent, worst.Resource, steady)
		if relists > 0 {
			f.Summary += fmt.Sprintf(", %.1f of them from the start (a list or initial events)", relists)
		}
		f.Summary += "."
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH " + worst.Resource + " of " + worst.Agent, Value: steady, Unit: "1/s", Text: fmt.Sprintf("watches began, %d in all", worst.Count)})
	} else {
		f.Cause = fmt.Sprintf("the API server ended %.0f watches that did not keep up", ended)
		f.Summary = fmt.Sprintf("Clients do not keep up with their watches: the API server ended %.0f of them in %.0f s, and each begins again by reading everything.", ended, v.Span())
	}
	if hasEnded && ended > 0 {
		if storm {
			f.Sources++
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "apiserver_terminated_watchers_total", Value: ended, Unit: "watches", Text: "were ended by the API server, since they did not keep up"})
	}
	if initial, ok := v.Increase(diagnose.APIServer, "apiserver_init_events_total", nil); ok && initial > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "apiserver_init_events_total", Value: initial / v.Span(), Unit: "1/s", Text: "objects sent because watches began"})
		if initial >= 10*v.Span() {
			f.Sources++
		}
	}
	f.Advice.Text = "Let the client keep its watch, go on from the version that it has, and do its work outside of the handler of events, in a queue. The price of a queue: memory for what waits."
	if _, known := v.MachineCPU(v.Load); !known && !storm {
		f.Grade = diagnose.Possible
		f.Summary += " On a full CPU that happens to any client, and whether one was full is not known."
	}
	path := ""
	if work, ok := v.Work(diagnose.APIServer, "watch"); ok && work.Share >= burnt {
		path = "watch"
	}
	consumer.Judge(v, &f, talks, path)
	return diagnose.Found(f)
}

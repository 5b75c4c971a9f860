package lostwatches

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// blind is how long a component must have seen nothing, in seconds and as a share of
	// the load.
	blind, share = 1.0, 0.1
	// denser: what waits for a watch waits while there is none. From the share most of the
	// time on that tells nothing any more.
	denser, most = 1.3, 0.7
	// passing is the part of the pods in a stage that may have passed it all the same:
	// what a component has seen before it goes on with.
	passing = 0.1
	// waited is what the longest pod must have waited, in seconds, and few how many pods.
	waited, few = 1.0, 3
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "lost-watches",
	Title: "A component lost its watches and saw nothing for seconds",
	Doc: `The scheduler and the controllers learn by watches what there is to do. A watch that breaks is begun again, but not at once: client-go waits 0.8 s to 1.6 s, twice as long each time it happens again within two minutes, and up to 30 s. Meanwhile the component idles, and no metric of it says so.

**Evidence.** By the requests, kube-scheduler or a part of kube-controller-manager had a watch of what it works on, which ended, and for a second and a tenth of the load it had none. Pods waited in its stage in these times rather than in others; that none came through meanwhile is the second source. Where most of its other watches ended in the same moments, what broke is their
connection, and the finding says so.

**Look-alikes.** An API server or etcd that ended or stood still (component-ended, standstill): their watches end with them. On a full CPU watchers fall behind and are cut off (apiserver_terminated_watchers_total): a single watch that ends is taken for nothing else there, or where the API server ended any. Watches that it ends by its own limit (short-timeouts) begin again at once. A scheduler that is busy has its watches all the time.`,
	Detect: detect,
}

// A part is whoever waits for the events of some resources.
type part struct {
	component, stage string
	resources        []string
}

var parts = []part{
	{diagnose.Scheduler, diagnose.Queue, []string{"pods", "nodes"}},
	{diagnose.ControllerManager, diagnose.Controller, []string{"pods", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "replicationcontrollers"}},
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests")
	}
	gone := map[string]string{} // components that had no use for a watch, or could serve none
	for _, f := range earlier {
		if f.ID == "standstill" || f.ID == "component-ended" {
			gone[f.Component] = strings.TrimSuffix(f.Cause, ".")
		}
	}
	if why := cmp.Or(gone[diagnose.APIServer], gone[diagnose.Etcd]); why != "" {
		return diagnose.NotThere("watches end with their server, and %s", why)
	}
	ended, told := v.Increase(diagnose.APIServer, "apiserver_terminated_watchers_total", nil)
	_, seen := v.MachineCPU(v.Load)
	busy := v.Upstream()
	var found []diagnose.Finding
	longest, clear := 0.0, ""
	for _, p := range parts {
		// The resource that was out of sight for longest: pods wait for each of them.
		for _, l := range v.Lapses {
			if l.Component != p.component || !slices.Contains(p.resources, l.Resource) {
				continue
			}
			switch {
			case gone[p.component] != "":
				clear = gone[p.component]
				continue
			case !l.Connection() && ended > 0:
				clear = fmt.Sprintf("the API server ended %.0f watches that did not keep up", ended)
				continue
			case !l.Connection() && busy != "":
				clear = "watchers fall behind while " + busy
				continue
			}
			if longest = max(longest, l.Seconds()); l.Seconds() >= blind && l.Seconds() >= share*v.Span() {
				f := finding(v, p, l)
				if !l.Connection() && !(told && seen) {
					f.Grade = diagnose.Possible // whether it was cut off for falling behind is not known
				}
				found = append(found, f)
			}
			break
		}
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case longest > 0:
		return diagnose.NotThere("no component was without its watches for more than %.1f s", longest)
	case clear != "":
		return diagnose.NotThere("components were without watches, but %s", clear)
	}
	return diagnose.NotThere("no component was without its watches")
}

func finding(v *diagnose.View, p part, l diagnose.Lapse) diagnose.Finding {
	kind, _, _ := strings.Cut(l.Resource, ".")
	what := fmt.Sprintf("its watch of %s breaks again and again", kind)
	if l.Ends < 2 {
		what = fmt.Sprintf("its watch of %s broke", kind)
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: p.component, Resource: "watch", Sources: 1, Direct: true,
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "requests: WATCH " + kind + " of " + l.Agent, Value: l.Seconds(), Unit: "s", Text: fmt.Sprintf("of %.0f s it had none open, in %d stretches", v.Span(), len(l.During))},
		},
		Advice: diagnose.Advice{Text: fmt.Sprintf("Ask the log of %s why its watches end (\"watch ended with error\"). Who ends one watch is the client or the API server.", p.component)},
	}
	if l.Ends > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH " + kind + " of " + l.Agent, Value: float64(l.Ends), Unit: "watches", Text: fmt.Sprintf("ended, after %.1f s on average; they last for 30 to 60 minutes", l.Life)})
	}
	if l.Connection() {
		f.Resource = "network"
		what = "its connection to the API server breaks again and again"
		if l.Ends < 2 {
			what = "its connection to the API server broke"
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH of " + l.Agent, Value: l.Together, Unit: "1", Text: fmt.Sprintf("of these ends most of its %d other watches ended with it: the connection did", l.Others)})
		f.Advice.Text = fmt.Sprintf("Find what ends the connections of %s: a load balancer or proxy between it and the API server that limits how long they last or idle, a firewall or a table of connections (conntrack) that forgets them, a network that comes and goes. Its log says what it saw (\"watch ended with error\"). The price of connections that last: none.", p.component)
	}
	f.Cause = p.component + ": " + what
	f.Summary = fmt.Sprintf("%s sees nothing of the cluster for %.0f of %.0f s: %s, and it waits before it watches again, longer each time", p.component, l.Seconds(), v.Span(), what)
	f.RefutedBy = fmt.Sprintf("a run in which the watches of %s last and pods wait as long", p.component)
	inside, ok := v.WaitedDuring(p.stage, l.During)
	claims, pods, longest := v.Held(l.During, []string{standsFor(p.stage)})
	time := l.Seconds() / v.Span()
	if !ok || pods < few || longest < waited || time < most && inside < denser*time {
		f.Summary += ". No pod waited for it long enough to count as lost."
		return f
	}
	f.Class, f.Stage, f.Claims = diagnose.Bottleneck, p.stage, map[string]float64{}
	for stage, x := range claims {
		f.Claims[stage] = min(x, inside*v.Excess(stage))
	}
	if passed := v.Passed(l.During, standsFor(p.stage)); float64(passed) <= passing*float64(pods) {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "pods", Value: float64(passed), Unit: "pods", Text: fmt.Sprintf("came further meanwhile, of %d that waited", pods)})
	}
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "pods: stage " + p.stage, Value: inside, Unit: "1", Text: fmt.Sprintf("of their time in stage %s pods spent while it saw nothing", p.stage)})
	f.Suffered = fmt.Sprintf("%d pods waited for it, the longest for %.1f s", pods, longest)
	f.Summary += ". " + f.Suffered + "."
	f.Prediction = &diagnose.Prediction{Resource: "unknown", Text: fmt.Sprintf("with watches that last no pod waits %.0f s for %s", longest, p.component)}
	return f
}

// standsFor is the stage in which pods are counted: in which part of scheduling each of
// them is at a time is not known.
func standsFor(stage string) string {
	if stage == diagnose.Queue {
		return diagnose.Scheduling
	}
	return stage
}

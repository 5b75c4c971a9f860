package connections

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// perSecond new connections. Components hold theirs; probes and scrapes make
	// one or two a second.
	perSecond = 10.0
	// excess over rest, so that what the machine does anyway is not the load's.
	excess = 3.0
	// long is the shortest load to judge: each node and client connects once.
	long = 10
	// burnt is the share of the API server's CPU for handshakes by its profile. A
	// handshake is 1-2 ms of CPU, a request as little as 0.3 ms.
	burnt = 0.05
	// alike: a client's requests per connection below this say that it is the one.
	alike = 2.0
	// streams is the default of requests at a time on a connection.
	streams     = 100
	streamsFlag = "http2-max-streams-per-connection"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "connection-churn",
	Title: "A client opens a connection for each request",
	Doc: `A TLS handshake costs the API server more CPU than most requests. client-go keeps one connection for all requests of a process; scripts that run a tool for each call, clients that build a new configuration for each, or that switch keep-alive off, pay for a
handshake each time.

**Evidence.** The machine accepts at least 10 connections a second throughout a load of 10 s and more, three times what it did at rest or as often then, and handshakes take 5 % of the API server's CPU in its profile, garbage collection left out; without a profile, the machine's connections come as often as one client's requests (from
half to twice), which also names it. Where --http2-max-streams-per-connection lets a connection carry few requests, clients open more of them, and the flag is named.

**Look-alikes.** Simulated nodes that start (a connection each, before the load); a full machine (no handshakes in the profile); watches that end and begin again (one connection carries them all).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	n, ok := v.Connections(v.Load)
	work, profiled := v.Work(diagnose.APIServer, "TLS handshakes")
	if !ok {
		if !profiled {
			return diagnose.NotAssessed("the machine's TCP counters, or the API server's profile")
		}
		if work.OfWork < burnt {
			return diagnose.NotThere("handshakes took %.1f %% of the API server's CPU", 100*work.Share)
		}
	}
	if v.Span() < long {
		return diagnose.NotThere("the load lasted %.1f s, in which each client may connect once", v.Span())
	}
	// Clients that come with the load connect in its first half; those that never
	// keep a connection go on.
	rate := n / v.Span()
	half := v.Load
	half.Start = half.Start.Add(half.End.Sub(half.Start) / 2)
	if late, has := v.Connections(half); has {
		rate = min(rate, late/half.Seconds())
	}
	rest := 0.0
	if x, has := v.Connections(v.Rest); has && v.Rest.Seconds() > 0 {
		rest = x / v.Rest.Seconds()
	}
	burning := profiled && work.OfWork >= burnt
	if ok && (rate < perSecond || rate < excess*rest && !burning) {
		return diagnose.NotThere("the machine accepted %.1f connections a second, %.1f at rest", rate, rest)
	}
	more := rate - rest
	if rate < excess*rest { // whose connections they are was there before the load
		more = rate
	}
	who := caller(v, more)
	switch {
	case profiled && work.OfWork < burnt:
		return diagnose.NotThere("the machine accepted %.0f connections a second, and handshakes took %.1f %% of the API server's CPU", rate, 100*work.Share)
	case !profiled && who == nil:
		return diagnose.NotAssessed("whose the %.0f connections a second are: the API server's profile, or a client with as many requests", rate)
	}
	f := diagnose.Finding{
		Component: diagnose.APIServer, Resource: "cpu", Sources: 1,
		Cause:   fmt.Sprintf("%.0f new connections a second", rate),
		Summary: fmt.Sprintf("The API server spends its CPU on TLS handshakes: %.0f new connections a second, %.1f at rest", rate, rest),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "machine: tcp_opens_passive", Value: rate, Unit: "1/s", Text: fmt.Sprintf("connections accepted on the machine, %.1f a second at rest", rest)},
		},
		Advice:    diagnose.Advice{Text: "Let the client keep its connection: one clientset for a process, keep-alive on, no new rest.Config for each call; where that cannot be, one process that stays instead of a tool for each call. The price: none."},
		RefutedBy: "a run without this client with as many new connections",
	}
	// Go's HTTP/2 opens another connection where those that it has are full.
	if text, set, _ := v.Flag(diagnose.APIServer, streamsFlag); set {
		if n, err := strconv.Atoi(text); err == nil && n > 0 && n < streams {
			who = nil
			f.Cause += fmt.Sprintf(", of which each may carry %d requests at a time", n)
			f.Summary += fmt.Sprintf(", since each may carry %d requests at a time (--%s)", n, streamsFlag)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: diagnose.APIServer + ".args." + streamsFlag, Value: float64(n), Unit: "requests", Text: fmt.Sprintf("--%s=%d (default %d)", streamsFlag, n, streams)})
			f.Advice = diagnose.Advice{Set: map[string]string{diagnose.APIServer + ".args." + streamsFlag: "null"}, Text: fmt.Sprintf("Take --%s off the API server: with the default of %d a client needs one connection.", streamsFlag, streams)}
			f.RefutedBy = "as many new connections with the default"
		}
	}
	if profiled {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: work.Share, Unit: "1", Text: "of the API server's CPU went to handshakes"})
	}
	if who != nil {
		f.Sources++
		f.Component = "client:" + who[0].Agent
		f.Cause = fmt.Sprintf("%s opens a connection for each request", who[0].Agent)
		f.Summary = fmt.Sprintf("%s opens a new connection for each request: %.0f TLS handshakes a second, %.1f at rest", who[0].Agent, rate, rest)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests of " + who[0].Agent, Value: requests(v, who), Unit: "1/s", Text: "requests a second of " + who[0].Agent})
	}
	if profiled {
		f.Summary += fmt.Sprintf(", %.0f %% of the API server's CPU", 100*work.Share)
	}
	f.Summary += "."
	path := ""
	if profiled {
		path = "TLS handshakes"
	}
	consumer.Judge(v, &f, who, path)
	return diagnose.Found(f)
}

// caller is the client whose requests come nearest to as often as connections do; parts
// of the cluster, which hold theirs, only where it is nobody else.
func caller(v *diagnose.View, rate float64) []diagnose.Talk {
	by := map[string][]diagnose.Talk{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Harness && !t.Long }) {
		by[t.Agent] = append(by[t.Agent], t)
	}
	var best []diagnose.Talk
	for _, talks := range by {
		x := requests(v, talks)
		if x < rate/alike || x > rate*alike {
			continue
		}
		nearer := best != nil && cmp.Or(
			cmp.Compare(foreign(best), foreign(talks)),
			cmp.Compare(math.Abs(math.Log(x/rate)), math.Abs(math.Log(requests(v, best)/rate))),
			cmp.Compare(talks[0].Agent, best[0].Agent)) < 0
		if best == nil || nearer {
			best = talks
		}
	}
	return best
}

// foreign is 1 for a client that is no part of the cluster.
func foreign(talks []diagnose.Talk) int {
	if diagnose.OfCluster(talks[0].Agent) {
		return 0
	}
	return 1
}

func requests(v *diagnose.View, talks []diagnose.Talk) float64 {
	n := 0
	for _, t := range talks {
		n += t.Count
	}
	return float64(n) / v.Span()
}

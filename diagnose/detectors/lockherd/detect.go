package lockherd

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// locks of one client. A program has one, or one for each of its controllers.
	locks = 10
	// perWrite: requests for each write that succeeded. The one that holds a lock
	// renews it by one write; each other candidate asks for it by a read.
	perWrite = 1.5
	// perHolder: as many are made by one that holds its locks alone, and reads each
	// before it renews it; a candidate that stands by adds its reads to that.
	perHolder = 2.1
	// perSecond: below it nobody minds.
	perSecond = 1.0
	// unbound is the share of the claims from which on it is news that they were
	// never bound.
	unbound = 0.1
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "lock-herd",
	Title: "A client has a lock for each object, and its replicas race for all of them",
	Doc: `Leader election is made for a program: one lock, one holder. Some controllers take a lock for each object that they work on (volume provisioners before v1 had one for each claim), and all replicas race for each: every candidate asks for every
lock every 2 s, work or no work. With n objects and r replicas that is n × r / 2 requests a second; the client's own limit then lets so few through that locks expire before they are renewed, and work is begun and given up.

**Evidence.** One client reads and writes at least 10 different locks (leases, or Endpoints and ConfigMaps that it both reads and writes), reads included at least 1.5 requests for each write that succeeded, at least one a second. A steady rate
at a round number (its client limit is used up), conflicts on locks and failed renewals in its log, where that was recorded, are further witnesses. Where no write is refused, and there are two requests for each that succeeds, it is one holder of many locks, and no race. Where the run makes claims, pods that wait for their volumes wait for this, and where a tenth of the claims or more are never bound, and there are locks for at least half of those, that is the bottleneck, however many pods ran.

**Look-alikes.** Renewals of nodes' leases (only writes, each by its owner: heartbeat-churn); an election with short periods (few locks); shared objects that are not locks (conflict-storm).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: who asks for which lock is in the audit log only")
	}
	type herd struct {
		talks                  []diagnose.Talk
		gets, writes, requests int
		names, conflicts       int
	}
	by := map[string]*herd{}
	var order []string
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return !t.Harness && (t.Resource == "leases" || t.Resource == "endpoints") && (t.Verb == "get" || t.Verb == "update" || t.Verb == "create" || t.Verb == "patch")
	}) {
		key := t.Agent + " " + t.Resource
		h := by[key]
		if h == nil {
			h = &herd{}
			by[key] = h
			order = append(order, key)
		}
		h.talks = append(h.talks, t)
		h.requests += t.Count
		h.names = max(h.names, t.Names)
		h.conflicts += t.Codes[409]
		if t.Verb == "get" {
			h.gets += t.Count
		} else {
			h.writes += t.Succeeded()
		}
	}
	var found []diagnose.Finding
	most := 0
	for _, key := range order {
		h := by[key]
		most = max(most, h.names)
		rate := float64(h.requests) / v.Span()
		each := float64(h.requests) / float64(max(1, h.writes))
		if h.names < locks || h.gets < h.names || each < perWrite || rate < perSecond || h.writes == 0 && h.conflicts == 0 && h.gets == h.requests {
			continue
		}
		found = append(found, finding(v, h.talks, h.names, h.writes, h.conflicts, rate, each))
	}
	if len(found) == 0 {
		return diagnose.NotThere("no client reads and writes %d locks; the most are %d", locks, most)
	}
	return diagnose.Found(found...)
}

func finding(v *diagnose.View, talks []diagnose.Talk, names, writes, conflicts int, rate, each float64) diagnose.Finding {
	t := talks[0]
	f := diagnose.Finding{
		Component: "client:" + t.Agent, Resource: "lock", Sources: 1,
		Cause:   fmt.Sprintf("%s elects a leader for each of %d %s", t.Agent, names, t.Resource),
		Summary: fmt.Sprintf("%s has a lock for each object: its replicas race for %d %s with %s requests a second, and only one request in %.1f takes or renews a lock.", t.Agent, names, t.Resource, diagnose.Digits(rate, 3), each),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "requests of " + t.Agent, Value: float64(names), Unit: "locks", Text: fmt.Sprintf("%d different %s are read and written by one client", names, t.Resource)},
			{Kind: "rate", Ref: "requests of " + t.Agent, Value: rate, Unit: "1/s", Text: fmt.Sprintf("requests for locks; %d writes succeeded, %d lost the race (409)", writes, conflicts)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Let %s hold one lock for the whole program (one leader that works on all objects, or objects shared out among replicas), read from its informer before it asks for a lock, and back off exponentially. Then %s requests a second become one renewal in 2 s for each replica. The price: one replica works, the others only stand by.", t.Agent, diagnose.Digits(rate, 3))},
		RefutedBy: "the same client with one lock that is no faster, and no fewer requests for locks",
	}
	if conflicts == 0 && each < perHolder {
		// As many reads as one that holds them all makes before it renews: nobody
		// is seen to stand by.
		f.Cause = fmt.Sprintf("%s keeps a lock for each of %d %s", t.Agent, names, t.Resource)
		f.Summary = fmt.Sprintf("%s has a lock for each object: it reads and renews %d %s with %s requests a second, %.1f for each renewal. No other replica was seen to race it for them.", t.Agent, names, t.Resource, diagnose.Digits(rate, 3), each)
		f.Evidence[1].Text = fmt.Sprintf("requests for locks; %d writes succeeded, none was refused (409)", writes)
		f.Advice.Text = fmt.Sprintf("Let %s hold one lock for the whole program, or leave locks out where only one replica of it runs; and renew by a write alone, at the version that the last one was answered with. Then %s requests a second become one renewal in 2 s. The price of one lock: one replica works, the others only stand by.", t.Agent, diagnose.Digits(rate, 3))
	}
	for _, x := range talks {
		if cv, ok := x.CV(); ok && x.Verb == "get" && cv < 0.5 {
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "requests of " + t.Agent, Value: cv, Text: fmt.Sprintf("its reads come like a metronome (gaps vary by %.2f), as where a client limit is used up by locks", cv)})
		}
	}
	program := t.Agent
	if waited, ok := v.Increase(program, "rest_client_rate_limiter_duration_seconds_sum", nil); ok && waited > 0 {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `rest_client_rate_limiter_duration_seconds_sum{component="` + program + `"}`, Value: waited, Unit: "s", Text: "its requests waited in its own client limit"})
	}
	for _, kind := range []string{"lease-lost", "lease-slow"} {
		if l, ok := v.Log(program, kind); ok && l.Count > 0 {
			f.Sources = 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "log of " + program, Value: float64(l.Count), Unit: "lines", Text: "of its log: " + l.Last.Detail})
		}
	}
	if conflicts > 0 {
		f.Sources = max(f.Sources, 2) // who wins and who loses are told by different answers
	}
	consumer.Judge(v, &f, talks, "")
	if k := v.Claims; k != nil && k.Expected > 0 && float64(k.Pending) >= unbound*float64(k.Expected) && 2*names >= k.Pending {
		// It has locks for them, and never comes to making their volumes.
		f.Class, f.Consumes = diagnose.Bottleneck, true
		f.ClaimShare = float64(k.Pending) / float64(k.Expected)
		f.Suffered = fmt.Sprintf("%d of %d claims were never bound", k.Pending, k.Expected)
		f.Summary += " " + strings.ToUpper(f.Suffered[:1]) + f.Suffered[1:] + "."
	}
	if v.Claims == nil || !v.Symptom() {
		return f
	}
	// Pods wait for volumes that this client makes one by one: before they are
	// bound where a claim waits for its first consumer, else before they start.
	if f.Claims == nil {
		f.Claims = map[string]float64{}
	}
	if held := v.HeldBeforeBind(); held > 0 {
		f.Claims[diagnose.Bind] = max(f.Claims[diagnose.Bind], held*v.Excess(diagnose.Bind))
	} else {
		f.Claims[diagnose.Start] = max(f.Claims[diagnose.Start], v.Excess(diagnose.Start))
	}
	most := 0.0
	for _, stage := range diagnose.StageNames {
		if x := f.Claims[stage]; x > most {
			most, f.Stage, f.Class, f.Consumes = x, stage, diagnose.Bottleneck, true
		}
	}
	return f
}

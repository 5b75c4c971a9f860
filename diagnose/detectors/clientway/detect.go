package clientway

import (
	"fmt"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/way"
)

const (
	// Where at most rare of the writes, each of seconds, are this part of the whole
	// way (most), it is what happened to them and no way that others took too.
	rare, most = 0.05, 0.5
	// delayed is the part of the way that may be waiting of the client's threads for
	// a CPU.
	delayed = 0.3
	// full and throttled are from where an end of the way may be why no request is quick.
	full, throttled = 0.85, 0.1
	// stood is the share of the moments in which one of the ends was stopped, and looked
	// how many there must be.
	stood, looked = 0.1, 5
	// scarce is how many requests a connection carries at a time that the workers of
	// one controller can need at once.
	scarce      = 20
	streamsFlag = "http2-max-streams-per-connection"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "client-way",
	Title: "A component's requests take long on their way to the API server",
	Doc: `A component and the API server each time its requests by their own clocks. What the client's clock has more, without the wait in its own limiter, is the way: the network between them, a proxy, a load balancer.

**Evidence.** Writes of kube-controller-manager or kube-scheduler take it at least 20 ms longer (rest_client_request_duration_seconds without rest_client_rate_limiter_duration_seconds) than the API server works on them, by its log of requests, and at least twice as long, or half as long where no request was quick before the load either and neither end is full or throttled.
Where less than 2 % of all its requests took less than 5 ms, the distance itself is long; else they queue somewhere on the way, and the finding is likely at the most.

**Few at a time.** --http2-max-streams-per-connection bounds how many requests a connection carries at once. A controller's workers share one: below 20 the flag is named.

**Contradicting.** Where some requests were quick: a full machine, or one of which nobody knows how full it was while pods came, a quota that stops the API server or the client, threads of the client that wait for a CPU: then requests wait at either end, and not between them. Quick requests or not: one of the ends that is stopped by a signal at times, or a client that waits ten times as long for a CPU as it has one (five times on a calm machine) unless it is the controller manager, and of 500 of its requests and more not one took less than 0.1 s, a period of a CPU quota, when the way is a risk of unknown part; at most 5 % of the writes that took seconds and are most of the time.

**Claims.** Of what stage controller lost, the part that the way is of the client's time; of stage bind the way of each binding. The risk is named where nobody lost anything.

**Look-alikes.** An API server that may open no more files accepts no connection, and requests wait for one (open-files); a network on which nothing arrives for seconds (network-outage); controller-client-limit and scheduler-client-limit (the wait is in the limiter); a slow API server, webhook or etcd (the server's clock has it too); controller-workers (the workers wait for answers that are slow only for them).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("requests, by client")
	}
	for _, f := range earlier {
		if f.Component == diagnose.APIServer && f.Resource == "files" && len(f.Claims) > 0 {
			return diagnose.NotThere("the API server lets nobody in: requests wait at its door, however short the way")
		}
		if f.ID == "network-outage" {
			return diagnose.NotThere("%s: the way was no longer, but for a time there was none", f.Cause)
		}
	}
	var found []diagnose.Finding
	clear, missing := "", ""
	for _, c := range way.Components {
		w, why := way.Of(v, c)
		if why != "" {
			if missing == "" {
				missing = why
			}
			continue
		}
		text := w.String()
		q := way.QuickOf(v, c)
		halt, starved := halted(v, c)
		// A starved scheduler beside its API server had 28 of 1,026 answers in that time: too
		// few to tell it from one that is far away.
		if starved && c == diagnose.ControllerManager && q.Never() && w.Long() {
			found = append(found, behind(finding(v, w, q), w, q, halt))
			continue
		}
		if halt == "" {
			halt = outliers(v, w)
		}
		if halt != "" {
			text += ", but " + halt
		}
		not := elsewhere(v, w)
		switch {
		case halt != "":
		case w.Long() && (not == "" || q.None()), // what is full lets some pass, and was not full at rest
			w.Far(q) && !atEnds(v, w):
			found = append(found, finding(v, w, q))
			continue
		case w.Long():
			text += ", but " + not
		}
		if clear == "" {
			clear = text
		}
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case clear != "":
		return diagnose.NotThere("%s", clear)
	}
	return diagnose.NotAssessed("%s", missing)
}

// halted says which end of the way was stopped by a signal, at times, or that the client
// hardly got a CPU, which is starved: few requests are quick then, however short the way.
func halted(v *diagnose.View, component string) (why string, starved bool) {
	for _, c := range []string{component, diagnose.APIServer} {
		if share, n, ok := v.Stopped(c, v.Load); ok && share >= stood && n >= looked {
			return fmt.Sprintf("%s was stopped in %.0f %% of %d moments", c, 100*share, n), false
		}
	}
	if d, cpu, starved := v.Starved(component); starved {
		return fmt.Sprintf("its threads waited %.0f s for a CPU and ran for %.1f s", d, cpu), true
	}
	return "", false
}

// behind is what is left of a finding where the client also waits for a CPU: that the way
// is long, but not how much of a write's time it is.
func behind(f diagnose.Finding, w way.Way, q way.Quick, halt string) diagnose.Finding {
	f.Class, f.Stage, f.Claims, f.Direct, f.Next = diagnose.Risk, "", nil, false, ""
	f.Grade = diagnose.Likely
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: way.Requests + `_bucket{component="` + f.Component + `",le="` + way.Period + `"}`, Value: 0, Unit: "requests", Text: fmt.Sprintf("of all %.0f since it started took less than a tenth of a second", q.All)})
	f.Cause = fmt.Sprintf("no request of %s is quick", f.Component)
	f.Summary = fmt.Sprintf("A write takes %s %.0f ms on average, and the API server works on it for %.0f ms. Not one of its %.0f requests took less than a tenth of a second, so that the way between them is long; but %s, and how much of the time is the way is not known.",
		f.Component, 1000*w.Client, 1000*w.Server, q.All, halt)
	return f
}

// outliers says that a few writes took seconds, and the others hardly any of the time:
// connections that broke, or could not be made. It is empty where it was the way.
func outliers(v *diagnose.View, w way.Way) string {
	writes := func(le string) (n float64, ok bool) {
		return v.Increase(w.Component, way.Requests+"_bucket", diagnose.Labels{"verb": way.Writes["verb"], "le": le})
	}
	under2, ok2 := writes("2")
	under8, ok8 := writes("8")
	if !ok2 || !ok8 {
		return ""
	}
	late, later := w.N-under2, w.N-under8
	if late > rare*w.N || 2*(late-later)+8*later < most*w.Mean()*w.N {
		return ""
	}
	return fmt.Sprintf("%.0f of %.0f writes took more than 2 s, which is most of that", late, w.N)
}

// elsewhere says why requests waited at an end of the way; empty where they did not.
func elsewhere(v *diagnose.View, w way.Way) string {
	if up := v.Upstream(); up != "" {
		return up
	}
	if _, ok := v.MachineCPU(v.Plateau); v.Local() && !(ok && v.StagesOK) {
		return "how busy the machine was while pods came is not known"
	}
	if d, much := waited(v, w); much {
		return fmt.Sprintf("its threads waited %.0f s for a CPU", d)
	}
	return ""
}

// waited is how long the client's threads waited for a CPU, and whether that may be
// much of the way.
func waited(v *diagnose.View, w way.Way) (seconds float64, much bool) {
	d, ok := v.RunDelay(w.Component, v.Load)
	return d, ok && d >= delayed*w.Mean()*w.N
}

// atEnds says whether one end of the way was full or stopped by a quota, or the client's
// threads waited for a CPU: then no request may be quick, however short the way.
func atEnds(v *diagnose.View, w way.Way) bool {
	if m, ok := v.MachineCPU(v.Plateau); v.Local() && (!ok || m.Share >= full) {
		return true
	}
	for _, c := range []string{w.Component, diagnose.APIServer} {
		u, _, known := v.QuotaUse(c)
		_, stops, counted := v.Throttled(c, v.Plateau)
		if known && u >= full || counted && stops >= throttled {
			return true
		}
	}
	_, much := waited(v, w)
	return much
}

// streams is how few requests a connection to the API server carries at a time; ok
// is false where no flag makes them few.
func streams(v *diagnose.View) (n int, ok bool) {
	text, set, _ := v.Flag(diagnose.APIServer, streamsFlag)
	if !set {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n < scarce
}

func finding(v *diagnose.View, w way.Way, q way.Quick) diagnose.Finding {
	c := w.Component
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: c, Resource: "network", Sources: 2,
		Cause:   fmt.Sprintf("a request of %s is %.0f ms on its way to the API server and back", c, 1000*w.Mean()),
		Summary: fmt.Sprintf("A write takes %s %.0f ms on average, and the API server works on it for %.0f ms: the rest is the way between them.", c, 1000*w.Client, 1000*w.Server),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: way.Requests + `_sum{component="` + c + `"}`, Value: w.Client, Unit: "s", Text: fmt.Sprintf("%.0f ms a write by the client's clock, the wait in its limiter taken out (n=%.0f)", 1000*w.Client, w.N)},
			{Kind: "wait", Ref: "requests of " + c, Value: w.Server, Unit: "s", Text: fmt.Sprintf("%.0f ms by the API server's", 1000*w.Server)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Put %s beside the API server (same machine, rack or zone), and look for a proxy, a load balancer, a VPN or a lossy link between them.", c)},
		RefutedBy: "as long a time of a request that is sent to the API server from its own machine",
	}
	if q.All > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: way.Requests + `_bucket{component="` + c + `",le="` + way.Bucket + `"}`, Value: q.Quick / q.All, Unit: "1", Text: fmt.Sprintf("%.0f of all %.0f requests since it started took less than 5 ms", q.Quick, q.All)})
	}
	f.Direct = q.None()
	if f.Direct {
		f.Next = f.Summary + diagnose.Behind
	} else {
		f.Sources = 1 // of a queue that nobody saw
		f.Advice.Text += " Requests that were quick say that the distance alone is not it: look for what lets few of them through at a time."
		if n, ok := streams(v); ok {
			f.Summary += fmt.Sprintf(" A connection carries no more than %d at a time (--%s), and others wait for it.", n, streamsFlag)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: diagnose.APIServer + ".args." + streamsFlag, Value: float64(n), Unit: "requests", Text: fmt.Sprintf("at a time on a connection, by --%s", streamsFlag)})
			f.Advice = diagnose.Advice{Set: map[string]string{diagnose.APIServer + ".args." + streamsFlag: "null"}, Text: fmt.Sprintf("Take --%s off the API server: by default a connection carries 100 requests at a time. The price: none; priority and fairness bounds what is in progress.", streamsFlag)}
		}
	}
	stage, claim := w.Claim(v)
	f.Stage = stage
	if f.Claims[f.Stage] = claim; !v.StagesOK || !v.Symptom() || claim <= 0 {
		f.Class, f.Stage, f.Claims = diagnose.Risk, "", nil
	}
	return f
}

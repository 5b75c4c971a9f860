package clientway

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	took    = "rest_client_request_duration_seconds"
	limiter = "rest_client_rate_limiter_duration_seconds_sum"

	// fewest writes of a client tell, of which the server must know as many.
	fewest, agree = 50, 0.8
	// long is the least mean way in seconds, and beyond by how much of the server's
	// own time it must be longer: healthy components beside a busy API server had
	// ways up to 20 ms, and never twice its time.
	long, beyond = 0.020, 2.0
	// quick is a bucket of the histogram, in seconds, and few the part of requests
	// that may lie in it where the way itself is long: queues let some pass.
	quick, few = "0.005", 0.02
	// Where at most rare of the writes, each of seconds, are this part of the whole
	// way (most), it is what happened to them and no way that others took too.
	rare, most = 0.05, 0.5
	// delayed is the part of the way that may be waiting of the client's threads for
	// a CPU.
	delayed = 0.3
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

**Evidence.** Writes of kube-controller-manager or kube-scheduler take it at least 20 ms longer (rest_client_request_duration_seconds without rest_client_rate_limiter_duration_seconds) than the API server works on them, by its log of requests, and at least twice as long.
Where less than 2 % of all its requests took less than 5 ms, the distance itself is long; else they queue somewhere on the way, and the finding is likely at the most.

**Few at a time.** --http2-max-streams-per-connection bounds how many requests a connection carries at once. A controller's workers share one: below 20 the flag is named.

**Contradicting.** Where some requests were quick: a full machine, or one of which nobody knows how full it was while pods came, a quota that stops the API server or the client, threads of the client that wait for a CPU: then requests wait at either end, and not between them. Quick requests or not: one of the ends that is stopped by a signal at times, or a client that waits ten times as long for a CPU as it has one (five times on a calm machine); at most 5 % of the writes that took seconds and are most of the time.

**Claims.** Of what stage controller lost, the part that the way is of the client's time; of stage bind the way of each binding. The risk is named where nobody lost anything.

**Look-alikes.** controller-client-limit and scheduler-client-limit (the wait is in the limiter); a slow API server, webhook or etcd (the server's clock has it too); controller-workers (the workers wait for answers that are slow only for them).`,
	Detect: detect,
}

// A way is what a client's clock has more than the server's.
type way struct {
	component      string
	n              float64
	client, server float64 // mean seconds
}

func (w way) mean() float64 { return w.client - w.server }

func (w way) String() string {
	return fmt.Sprintf("a write takes %s %.0f ms, of which the API server works %.0f ms", w.component, 1000*w.client, 1000*w.server)
}

var stages = map[string]string{diagnose.ControllerManager: diagnose.Controller, diagnose.Scheduler: diagnose.Bind}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("requests, by client")
	}
	var found []diagnose.Finding
	clear, missing := "", ""
	for _, c := range []string{diagnose.ControllerManager, diagnose.Scheduler} {
		w, why := measure(v, c)
		if why != "" {
			if missing == "" {
				missing = why
			}
			continue
		}
		text := w.String()
		halt := halted(v, c)
		if halt == "" {
			halt = outliers(v, w)
		}
		if halt != "" {
			text += ", but " + halt
		}
		if w.mean() >= long && w.mean() >= beyond*w.server && halt == "" {
			under, all, known := floor(v, c)
			asLong := known && under <= few*all
			not := elsewhere(v, w)
			if not == "" || asLong { // what is full lets some pass, and was not full at rest
				found = append(found, finding(v, w, asLong, under, all))
				continue
			}
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

// measure holds both clocks side by side; why says what is missing.
func measure(v *diagnose.View, component string) (w way, why string) {
	writes := diagnose.Labels{"verb": "~POST|PUT|PATCH|DELETE"}
	n, ok := v.Increase(component, took+"_count", writes)
	sum, okSum := v.Increase(component, took+"_sum", writes)
	if !ok || !okSum {
		return w, took + " of " + component
	}
	waited, ok := v.Increase(component, limiter, nil)
	if !ok {
		return w, limiter + " of " + component
	}
	served, seconds := 0, 0.0
	for _, t := range v.Talks {
		// Each controller says its name after the component's.
		if strings.HasPrefix(t.Agent, component) && t.Writes() && t.Seconds >= 0 {
			served += t.Count
			seconds += t.Seconds
		}
	}
	if n < fewest || float64(served) < agree*n || agree*float64(served) > n {
		return w, fmt.Sprintf("%d writes of a component that its own clock and the API server's know alike (%s: %.0f and %d)", fewest, component, n, served)
	}
	return way{component, n, max(0, sum-waited) / n, seconds / float64(served)}, ""
}

// halted says which end of the way was stopped by a signal, at times, or that the client
// hardly got a CPU: no request is quick then, however short the way.
func halted(v *diagnose.View, component string) string {
	for _, c := range []string{component, diagnose.APIServer} {
		if share, n, ok := v.Stopped(c, v.Load); ok && share >= stood && n >= looked {
			return fmt.Sprintf("%s was stopped in %.0f %% of %d moments", c, 100*share, n)
		}
	}
	if d, cpu, starved := v.Starved(component); starved {
		return fmt.Sprintf("its threads waited %.0f s for a CPU and ran for %.1f s", d, cpu)
	}
	return ""
}

// outliers says that a few writes took seconds, and the others hardly any of the time:
// connections that broke, or could not be made. It is empty where it was the way.
func outliers(v *diagnose.View, w way) string {
	writes := func(le string) (n float64, ok bool) {
		return v.Increase(w.component, took+"_bucket", diagnose.Labels{"verb": "~POST|PUT|PATCH|DELETE", "le": le})
	}
	under2, ok2 := writes("2")
	under8, ok8 := writes("8")
	if !ok2 || !ok8 {
		return ""
	}
	late, later := w.n-under2, w.n-under8
	if late > rare*w.n || 2*(late-later)+8*later < most*w.mean()*w.n {
		return ""
	}
	return fmt.Sprintf("%.0f of %.0f writes took more than 2 s, which is most of that", late, w.n)
}

// elsewhere says why requests waited at an end of the way; empty where they did not.
func elsewhere(v *diagnose.View, w way) string {
	if up := v.Upstream(); up != "" {
		return up
	}
	if _, ok := v.MachineCPU(v.Plateau); v.Local() && !(ok && v.StagesOK) {
		return "how busy the machine was while pods came is not known"
	}
	if d, ok := v.RunDelay(w.component, v.Load); ok && d >= delayed*w.mean()*w.n {
		return fmt.Sprintf("its threads waited %.0f s for a CPU", d)
	}
	return ""
}

// floor is how many of a client's requests were quick since it started, and of how
// many.
func floor(v *diagnose.View, component string) (under, all float64, ok bool) {
	quickly, ok := v.Gauge(component, took+"_bucket", diagnose.Labels{"le": quick}, v.Load)
	count, okAll := v.Gauge(component, took+"_count", nil, v.Load)
	return quickly.Last, count.Last, ok && okAll && count.Last >= fewest
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

func finding(v *diagnose.View, w way, asLong bool, under, all float64) diagnose.Finding {
	c := w.component
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: c, Resource: "network", Sources: 2,
		Cause:   fmt.Sprintf("a request of %s is %.0f ms on its way to the API server and back", c, 1000*w.mean()),
		Summary: fmt.Sprintf("A write takes %s %.0f ms on average, and the API server works on it for %.0f ms: the rest is the way between them.", c, 1000*w.client, 1000*w.server),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: took + `_sum{component="` + c + `"}`, Value: w.client, Unit: "s", Text: fmt.Sprintf("%.0f ms a write by the client's clock, the wait in its limiter taken out (n=%.0f)", 1000*w.client, w.n)},
			{Kind: "wait", Ref: "requests of " + c, Value: w.server, Unit: "s", Text: fmt.Sprintf("%.0f ms by the API server's", 1000*w.server)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Put %s beside the API server (same machine, rack or zone), and look for a proxy, a load balancer, a VPN or a lossy link between them.", c)},
		RefutedBy: "as long a time of a request that is sent to the API server from its own machine",
	}
	if all > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: took + `_bucket{component="` + c + `",le="` + quick + `"}`, Value: under / all, Unit: "1", Text: fmt.Sprintf("%.0f of all %.0f requests since it started took less than 5 ms", under, all)})
	}
	f.Direct = asLong
	if asLong {
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
	lost := v.Excess(stages[c])
	if c == diagnose.Scheduler && !v.Known(diagnose.Bind) {
		f.Stage, lost = diagnose.Scheduling, v.Excess(diagnose.Scheduling)
	} else {
		f.Stage = stages[c]
	}
	claim := lost * w.mean() / w.client
	if c == diagnose.Scheduler {
		claim = min(lost, w.mean()*w.n)
	}
	if f.Claims[f.Stage] = claim; !v.StagesOK || !v.Symptom() || claim <= 0 {
		f.Class, f.Stage, f.Claims = diagnose.Risk, "", nil
	}
	return f
}

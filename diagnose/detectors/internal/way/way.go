// Package way holds the two clocks of a component's writes side by side, its own and
// the API server's: what the detectors of long ways and of servers that let nobody in
// share.
package way

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// Requests and Limiter are what a component counts of its requests: their time by its
// own clock, and the wait in its limiter, which is part of that.
const (
	Requests = "rest_client_request_duration_seconds"
	Limiter  = "rest_client_rate_limiter_duration_seconds_sum"
)

const (
	// fewest writes of a client tell, of which the server must know as many.
	fewest, agree = 50, 0.8
	// least is the least mean way in seconds, and beyond by how much of the server's
	// own time it must be longer: healthy components beside a busy API server had
	// ways up to 20 ms, and never twice its time.
	least, beyond = 0.020, 2.0
	// beside a slow server it may be so much shorter, where nothing else was ever quick.
	beside = 0.5
	// few is the part of requests that may be quick where the way itself is long:
	// queues let some pass.
	few = 0.02
	// many requests of which not one was answered within a period of a CPU quota tell of
	// the way even where the client is kept from the CPU: of 1,300 to 1,700 of starved
	// controller managers beside their API server a tenth to a quarter were (3 runs), and
	// of 1,600 of one that is 100 ms away none (1 run).
	many = 500
)

// Bucket is that of the histogram of Requests which quick ones are in, in seconds.
const Bucket = "0.005"

// Period is the bucket of answers within one period of a CPU quota: a client that runs in
// each of them has some of its answers in the same one.
const Period = "0.1"

// Components are those whose ways pods wait for.
var Components = []string{diagnose.ControllerManager, diagnose.Scheduler}

// Writes selects the requests that are held side by side.
var Writes = diagnose.Labels{"verb": "~POST|PUT|PATCH|DELETE"}

// A Way is what a client's clock has more than the server's.
type Way struct {
	Component      string
	N              float64 // writes
	Client, Server float64 // mean seconds
}

// Mean is how long a write is on its way and back, in seconds.
func (w Way) Mean() float64 { return w.Client - w.Server }

// Long says whether that is longer than between healthy components.
func (w Way) Long() bool { return w.Mean() >= least && w.Mean() >= beyond*w.Server }

// Far says whether the distance itself is long beside a server that is slow: no request
// was ever quick, and the way is a good part of the time.
func (w Way) Far(q Quick) bool {
	return w.Mean() >= least && w.Mean() >= beside*w.Server && q.NoneBefore()
}

func (w Way) String() string {
	return fmt.Sprintf("a write takes %s %.0f ms, of which the API server works %.0f ms", w.Component, 1000*w.Client, 1000*w.Server)
}

// Of holds both clocks of a component side by side; why says what is missing.
func Of(v *diagnose.View, component string) (w Way, why string) {
	n, ok := v.Increase(component, Requests+"_count", Writes)
	sum, okSum := v.Increase(component, Requests+"_sum", Writes)
	if !ok || !okSum {
		return w, Requests + " of " + component
	}
	waited, ok := v.Increase(component, Limiter, nil)
	if !ok {
		return w, Limiter + " of " + component
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
	return Way{component, n, max(0, sum-waited) / n, seconds / float64(served)}, ""
}

// Claim is what pods waited for the way, and in which stage: of what stage controller
// lost, the part that the way is of the client's time; of stage bind, or of scheduling
// where that is not known apart, the way of each binding.
func (w Way) Claim(v *diagnose.View) (stage string, seconds float64) {
	if w.Component != diagnose.Scheduler {
		return diagnose.Controller, v.Excess(diagnose.Controller) * w.Mean() / w.Client
	}
	stage = diagnose.Bind
	if !v.Known(stage) {
		stage = diagnose.Scheduling
	}
	return stage, min(v.Excess(stage), w.Mean()*w.N)
}

// Quick is how many of a client's requests were so since it started, and of how many.
type Quick struct {
	Quick, All float64
	before     float64 // quick ones before the load, and of how many
	allBefore  float64
	known      bool
	within     float64 // a Period
	timed      bool
}

// QuickOf counts those of a component.
func QuickOf(v *diagnose.View, component string) Quick {
	quickly, ok := v.Gauge(component, Requests+"_bucket", diagnose.Labels{"le": Bucket}, v.Load)
	all, okAll := v.Gauge(component, Requests+"_count", nil, v.Load)
	within, timed := v.Gauge(component, Requests+"_bucket", diagnose.Labels{"le": Period}, v.Load)
	return Quick{quickly.Last, all.Last, quickly.First, all.First, ok && okAll && all.Last >= fewest, within.Last, timed && okAll}
}

// None says that hardly any was: the distance itself is long.
func (q Quick) None() bool { return q.known && q.Quick <= few*q.All }

// Never says that of very many not one was answered within a Period.
func (q Quick) Never() bool { return q.timed && q.within == 0 && q.All >= many }

// NoneBefore says that hardly any was before the load either, when a way that is long
// was as long. Where none was sent before it, only those of the load tell.
func (q Quick) NoneBefore() bool { return q.None() && q.before <= few*q.allBefore }

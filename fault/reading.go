package fault

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// Answer is whether a fault acted.
type Answer string

// The answers.
const (
	Yes         Answer = "yes"
	No          Answer = "no"
	NotAssessed Answer = "not assessed"
)

// Effect is what a fault did, by one number.
type Effect struct {
	Acted  Answer
	Number float64
	Unit   string
	Text   string // the number in a sentence, or what is missing
}

// Check says from the recording of a run whether the fault acted.
func (in Injected) Check(r *record.Recording) Effect {
	re := &reading{Recording: r, meta: r.Meta()}
	re.window = re.extent()
	if re.window.Seconds() <= 0 {
		return Effect{Acted: NotAssessed, Text: "the run ended before its load began"}
	}
	return in.acted(re, in.Value)
}

// reading is a recording with the questions that checks have.
type reading struct {
	*record.Recording
	meta   record.Meta
	window record.Window
}

// extent is from the first phase with load to the end of the last.
func (r *reading) extent() record.Window {
	if w, ok := r.Steady(); ok {
		return w
	}
	var w record.Window
	for _, p := range r.Phases() {
		if p.Kind == record.PhaseStart {
			continue
		}
		if w.Start.IsZero() || p.Start.Before(w.Start) {
			w.Start = p.Start
		}
		if p.End.After(w.End) {
			w.End = p.End
		}
	}
	return w
}

// judge makes an effect of a number.
func judge(acted bool, n float64, unit, format string, args ...any) Effect {
	e := Effect{Acted: No, Number: n, Unit: unit, Text: fmt.Sprintf(format, args...)}
	if acted {
		e.Acted = Yes
	}
	return e
}

func missing(what string) Effect { return Effect{Acted: NotAssessed, Text: what + " was not recorded"} }

// on are a series' labels: those of its component, and more in pairs.
func on(component string, more ...string) map[string]string {
	m := map[string]string{"component": component}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

// increase is how much a counter grew.
func (r *reading) increase(metric string, match map[string]string) (float64, bool) {
	v, ok, err := r.Increase(metric, match, r.window)
	return v, ok && err == nil
}

// mean is the mean of what a histogram observed, and of how many.
func (r *reading) mean(metric string, match map[string]string) (mean, n float64, ok bool) {
	sum, ok1 := r.increase(metric+"_sum", match)
	n, ok2 := r.increase(metric+"_count", match)
	if !ok1 || !ok2 || n == 0 {
		return 0, n, false
	}
	return sum / n, n, true
}

// flag is a component's flag as it was started.
func (r *reading) flag(component, name string) (string, bool) {
	for _, c := range r.Components() {
		if c.Name != component {
			continue
		}
		value, found := "", false
		for _, a := range c.Args {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				value, found = v, true
			}
		}
		return value, found
	}
	return "", false
}

// requests counts those that a filter wants.
func (r *reading) requests(want func(*record.Request) bool) (n int, ok bool) {
	from, to := r.window.Start.UnixMicro(), r.window.End.UnixMicro()
	err := r.EachRequest(func(q *record.Request) error {
		if q.ReceivedMicros >= from && q.ReceivedMicros <= to && want(q) {
			n++
		}
		return nil
	})
	return n, err == nil
}

// by says that a request is of a client whose user agent begins so.
func by(agent string) func(*record.Request) bool {
	return func(q *record.Request) bool { return strings.HasPrefix(q.UserAgent, agent) }
}

// rateOf is how many requests a second a client sent.
func (r *reading) rateOf(want func(*record.Request) bool) (float64, bool) {
	n, ok := r.requests(want)
	return float64(n) / r.window.Seconds(), ok
}

// samples are a component's, within the window, by process.
func (r *reading) samples(component string) map[int32][]record.ProcessSample {
	all, err := r.Processes()
	if err != nil {
		return nil
	}
	from, to := r.window.Start.UnixMicro(), r.window.End.UnixMicro()
	found := map[int32][]record.ProcessSample{}
	for _, s := range all {
		if s.Component == component && s.TimeMicros >= from && s.TimeMicros <= to {
			found[s.PID] = append(found[s.PID], s)
		}
	}
	return found
}

// grown is how much a component's counter grew within the window.
func (r *reading) grown(component string, of func(record.ProcessSample) float64) (float64, bool) {
	total, ok := 0.0, false
	for _, s := range r.samples(component) {
		if len(s) > 1 {
			total += of(s[len(s)-1]) - of(s[0])
			ok = true
		}
	}
	return total, ok
}

func cpuOf(s record.ProcessSample) float64 { return s.UserSeconds + s.SystemSeconds }

// cores is how much CPU a component used on average.
func (r *reading) cores(component string) (float64, bool) {
	v, ok := r.grown(component, cpuOf)
	return v / r.window.Seconds(), ok
}

// setAndWaited is the check of a client limit: the flag is there, and requests
// waited for it.
func setAndWaited(component, flag string) func(*reading, Value) Effect {
	return func(r *reading, v Value) Effect {
		if got, _ := r.flag(component, flag); got != v.Text {
			return judge(false, 0, "", "%s runs with --%s=%s", component, flag, got)
		}
		waited, ok := r.increase("rest_client_rate_limiter_duration_seconds_sum", on(component))
		if !ok {
			return missing("rest_client_rate_limiter_duration_seconds of " + component)
		}
		return judge(waited > 1, waited, "s", "requests of %s waited %.1f s in all for its own limiter in %.0f s", component, waited, r.window.Seconds())
	}
}

// throttled is the check of a CPU quota: the kernel stopped who has it.
func throttled(component string) func(*reading, Value) Effect {
	return func(r *reading, _ Value) Effect {
		stopped, ok := r.grown(component, func(s record.ProcessSample) float64 { return float64(s.ThrottledPeriods) })
		periods, _ := r.grown(component, func(s record.ProcessSample) float64 { return float64(s.Periods) })
		if !ok || periods <= 0 {
			return missing("how often " + component + " was stopped by its quota")
		}
		return judge(stopped/periods > 0.1, stopped/periods, "1", "%s was stopped by its quota in %.0f %% of %.0f periods", component, 100*stopped/periods, periods)
	}
}

// sent is the check of a client that sends at a rate: it did, at least half.
func sent(agent, what string, share float64) func(*reading, Value) Effect {
	return func(r *reading, v Value) Effect {
		rate, ok := r.rateOf(by(agent))
		if !ok {
			return missing("the log of requests")
		}
		want := share * v.N
		return judge(rate >= want/2, rate, "1/s", "%s sent %.1f %s a second", agent, rate, what)
	}
}

// lasts is the window's length in words.
func (r *reading) lasts() string {
	return (time.Duration(r.window.Seconds()*10) * time.Second / 10).String()
}

package cases

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/analysis/usage"
	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// A Measure is a number that can be read from the recording of a run.
type Measure struct {
	// Of is what is measured, a name of measures.
	Of string `yaml:"of"`
	// Component narrows log-lines and function-share, Functions are ends of
	// functions' names, of which the one with most counts, Kind a kind of log line.
	Component string   `yaml:"component"`
	Functions []string `yaml:"functions"`
	Kind      string   `yaml:"kind"`
	// Command is a part of a command line, for what runs again and again.
	Command string `yaml:"command"`
	// Agents narrow requests to clients by their short names, Verbs to what they
	// asked, Resources to what of, Code to how it was answered.
	Agents    []string `yaml:"agents"`
	Verbs     []string `yaml:"verbs"`
	Resources []string `yaml:"resources"`
	Code      int32    `yaml:"code"`
}

// A Reading is what a measure says of one run.
type Reading struct {
	Value float64 `json:"value"`
	// Missing says why there is no value; empty where there is one.
	Missing string `json:"missing,omitempty"`
}

type measure struct {
	name, unit, says string
	// needs names the fields without which it means nothing.
	needs []string
	read  func(m *Measure, rec *record.Recording, d *diagnose.Diagnosis) (float64, error)
}

// measures are all kinds, sorted by name.
var measures = []measure{
	{"answers", "%", "questions to the name service that were answered while the control plane was frozen", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		asked, answered := 0, 0
		for _, p := range rec.Meta().Pauses {
			asked, answered = asked+p.Asked, answered+p.Answered
		}
		if asked == 0 {
			return 0, errors.New("nobody was asked while the control plane was frozen")
		}
		return 100 * float64(answered) / float64(asked), nil
	}},
	{"claims-bound", "%", "claims that were bound", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Claims == nil || d.Claims.Missing != "" || d.Claims.Expected == 0 {
			return 0, errors.New("claims were not followed")
		}
		return 100 * float64(d.Claims.Bound) / float64(d.Claims.Expected), nil
	}},
	{"claims-last", "s", "from the first claim's due time until all are bound", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		switch k := d.Claims; {
		case k == nil || k.Missing != "":
			return 0, errors.New("claims were not followed")
		case k.ToBound.Max == nil:
			return 0, fmt.Errorf("%d of %d claims were never bound", k.Expected-k.Bound, k.Expected)
		default:
			return *k.ToBound.Max, nil
		}
	}},
	{"claims-wait", "s", "mean wait of a claim until it is bound, or until nobody waits any more", nil, claimsWait},
	{"cpu", "CPU-s", "CPU-seconds of a component over the load", []string{"component"}, func(m *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		for _, p := range d.Harness.ByProcess {
			if p.Component == m.Component {
				return p.CPUSeconds, nil
			}
		}
		return 0, errors.New("processes were not recorded")
	}},
	{"cpu-share", "% of a CPU", "CPU that a component used over the load", []string{"component"}, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		return cpuShare(rec, func(r usage.Row) bool { return r.Component && r.Name == m.Component })
	}},
	{"enabled", "add-ons", "add-ons that somebody enabled, and that ran", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		_, ran, _, err := enabled(rec)
		return ran, err
	}},
	{"enabled-after", "s", "mean time from an add-on's file in the folder until its pod runs", nil, enabledAfter},
	{"freeze", "ms", "that the control plane took to stand still", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		return longest(rec, func(p record.Pause) float64 { return p.FreezeSeconds })
	}},
	{"cpu-per-pod", "ms", "CPU of a component for each pod that came", []string{"component"}, func(m *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Pods.Bound == 0 {
			return 0, errors.New("no pod came")
		}
		for _, p := range d.Harness.ByProcess {
			if p.Component == m.Component {
				return 1000 * p.CPUSeconds / float64(d.Pods.Bound), nil
			}
		}
		return 0, errors.New("processes were not recorded")
	}},
	{"decision", "ms", "mean time in which the scheduler chooses a node", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Scheduler == nil {
			return 0, errors.New("the scheduler's metrics were not recorded")
		}
		return d.Scheduler.Algorithm.Microseconds / 1000, nil
	}},
	{"decision-first", "ms", "the same in the first pods, by the fitted line", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		s, err := decisions(d)
		return 1000 * s.AtFrom, err
	}},
	{"decision-last", "ms", "the same in the last pods", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		s, err := decisions(d)
		return 1000 * s.AtTo, err
	}},
	{"function-per-pod", "ms", "of a component's CPU, in a function with what it calls, for each pod that came", []string{"component", "functions"}, functionPerPod},
	{"function-share", "%", "of a component's CPU, in a function with what it calls", []string{"component", "functions"}, functionShare},
	{"intent-last", "s", "from the write of the spec until the last pod runs", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		return quantile(d.Latencies.Intent, d.Latencies.Intent.Max)
	}},
	{"log-lines", "lines", "lines of a kind in a component's log", []string{"component", "kind"}, logLines},
	{"names", "objects", "different objects that such requests were about", []string{"resources"}, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		names := map[string]bool{}
		err := m.each(rec, func(r *record.Request) { names[r.Namespace+"/"+r.Name] = true })
		delete(names, "/")
		return float64(len(names)), err
	}},
	{"overhead", "% of a CPU", "CPU that all of the cluster used over the load: control plane, nodes, and clients, without kubedyno's own", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		own := map[string]bool{diagnose.Self: true, diagnose.Keeper: true, diagnose.Load: true, diagnose.Hollow: true}
		for _, c := range rec.Components() {
			own[c.Name] = own[c.Name] || c.Harness
		}
		return cpuShare(rec, func(r usage.Row) bool { return r.Component && !own[r.Name] })
	}},
	{"period", "s", "how often a command runs", []string{"command"}, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		row, err := rhythm(rec, m.Command)
		return row.Period, err
	}},
	{"period-cpu", "% of a CPU", "CPU of a command that runs again and again", []string{"command"}, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		row, err := rhythm(rec, m.Command)
		return 100 * row.Share, err
	}},
	{"requests", "requests", "requests of such a kind", nil, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		n := 0.0
		err := m.each(rec, func(*record.Request) { n++ })
		return n, err
	}},
	{"requests-per-claim", "requests", "such requests for each claim that was bound", nil, func(m *Measure, rec *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Claims == nil || d.Claims.Bound == 0 {
			return 0, errors.New("no claim was bound")
		}
		n := 0.0
		err := m.each(rec, func(*record.Request) { n++ })
		return n / float64(d.Claims.Bound), err
	}},
	{"requests-per-pod", "requests", "such requests for each pod that ran", nil, func(m *Measure, rec *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Pods.Running == 0 {
			return 0, errors.New("no pod ran")
		}
		n := 0.0
		err := m.each(rec, func(*record.Request) { n++ })
		return n / float64(d.Pods.Running), err
	}},
	{"request-p99", "ms", "99th percentile of the time that such requests took at the API server", nil, func(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		var ms []float64
		if err := m.each(rec, func(r *record.Request) {
			if !requests.LongRunning(r) {
				ms = append(ms, float64(r.DoneMicros-r.ReceivedMicros)/1000)
			}
		}); err != nil {
			return 0, err
		}
		if len(ms) < 100 {
			return 0, fmt.Errorf("%d such requests are too few for a p99", len(ms))
		}
		slices.Sort(ms)
		return ms[(len(ms)*99+99)/100-1], nil
	}},
	{"service-after", "s", "from the control plane's start until the name service answers through its Service", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		if s := rec.Meta().Nodes.ServiceSeconds; s > 0 {
			return s, nil
		}
		return 0, errors.New("no Service was waited for")
	}},
	{"startup-p50", "s", "median pod startup", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		return quantile(d.Latencies.PodStartup, d.Latencies.PodStartup.P50)
	}},
	{"startup-p90", "s", "90th percentile of pod startup", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		return quantile(d.Latencies.PodStartup, d.Latencies.PodStartup.P90)
	}},
	{"startup-p99", "s", "99th percentile of pod startup", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		return quantile(d.Latencies.PodStartup, d.Latencies.PodStartup.P99)
	}},
	{"thaw", "ms", "that the control plane took to go on", nil, func(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
		return longest(rec, func(p record.Pause) float64 { return p.ThawSeconds })
	}},
	{"throughput", "pods/s", "bindings a second, time-weighted mean", nil, func(_ *Measure, _ *record.Recording, d *diagnose.Diagnosis) (float64, error) {
		if d.Throughput == nil {
			return 0, errors.New("the load lasted less than 2 s")
		}
		return d.Throughput.Mean, nil
	}},
}

// longest is the longest time of all pauses, in ms.
func longest(rec *record.Recording, of func(record.Pause) float64) (most float64, err error) {
	if len(rec.Meta().Pauses) == 0 {
		return 0, errors.New("the control plane was not frozen")
	}
	for _, p := range rec.Meta().Pauses {
		most = max(most, 1000*of(p))
	}
	return most, nil
}

// cpuShare is what the processes of some rows used over the load, in percent of
// one CPU, those included that came and went between two samples.
func cpuShare(rec *record.Recording, of func(usage.Row) bool) (float64, error) {
	w, ok := rec.Steady()
	if !ok {
		return 0, errors.New("the run ended before its load began")
	}
	u, err := usage.Read(rec)
	if err != nil {
		return 0, err
	}
	used, err := u.Between(w)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for _, r := range used.Rows {
		if of(r) {
			sum += r.CPUSeconds
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("no such process was seen")
	}
	return 100 * sum / used.Seconds, nil
}

// rhythm is the command that runs by the clock.
func rhythm(rec *record.Recording, command string) (spikes.Row, error) {
	found, err := spikes.Find(rec, spikes.Options{})
	if err != nil {
		return spikes.Row{}, err
	}
	for _, r := range found.Rows {
		if r.What == spikes.Command && r.Period > 0 && strings.Contains(r.Name, command) {
			return r, nil
		}
	}
	return spikes.Row{}, fmt.Errorf("no command with %q ran by the clock", command)
}

// enabledAfter is the mean of what addon-user waited.
func enabledAfter(_ *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
	asked, ran, waited, err := enabled(rec)
	switch {
	case err != nil:
		return 0, err
	case ran < asked:
		return 0, fmt.Errorf("of %.0f add-ons that were enabled %.0f did not run while somebody watched", asked, asked-ran)
	}
	return waited / ran, nil
}

// enabled reads what addon-user counted: add-ons that it asked for, those that ran,
// and how long it waited for these. It is gone before the recording ends.
func enabled(rec *record.Recording) (asked, ran, waited float64, err error) {
	phases := rec.Phases()
	if len(phases) == 0 {
		return 0, 0, 0, errors.New("the run ended before its load began")
	}
	last := func(what, action string) (sum float64) {
		series, e := rec.Points("kubedyno_actor_action_duration_seconds_"+what, map[string]string{"action": action, "result": "ok"}, phases[len(phases)-1].Window())
		for _, s := range series {
			sum += s.Points[len(s.Points)-1].Value
		}
		err = errors.Join(err, e)
		return sum
	}
	asked, ran, waited = last("count", "ask"), last("count", "enable"), last("sum", "enable")
	if err == nil && asked == 0 {
		err = errors.New("nobody enabled an add-on in the last phase")
	}
	return asked, ran, waited, err
}

// claimsWait takes a claim that was never bound for bound when the load ended: it
// waited at least as long.
func claimsWait(_ *Measure, rec *record.Recording, d *diagnose.Diagnosis) (float64, error) {
	w, ok := rec.Steady()
	if !ok || d.Claims == nil || d.Claims.Expected == 0 {
		return 0, errors.New("the load made no claims")
	}
	all, err := volumes.Of(rec)
	if err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for _, c := range all {
		end := c.BoundMicros
		if end == 0 {
			end = w.End.UnixMicro()
		}
		if from := cmp.Or(c.DueMicros, c.CreatedMicros); from >= w.Start.UnixMicro() && from < w.End.UnixMicro() {
			sum += float64(end-from) / 1e6
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("no claim was seen")
	}
	return sum / float64(n), nil
}

func quantile(l diagnose.LatencyOf, x *float64) (float64, error) {
	switch {
	case x != nil:
		return *x, nil
	case l.N == 0:
		return 0, errors.New("no pod was observed")
	case l.Incomplete > 0:
		return 0, fmt.Errorf("%d of %d pods never ran", l.Incomplete, l.N)
	}
	return 0, fmt.Errorf("%d pods are too few", l.N)
}

// each visits the requests of the measured load that a measure is about.
func (m *Measure) each(rec *record.Recording, visit func(*record.Request)) error {
	w, ok := rec.Steady()
	if !ok {
		return errors.New("the run ended before its load began")
	}
	from, to := w.Start.UnixMicro(), w.End.UnixMicro()
	seen := false
	err := rec.EachRequest(func(r *record.Request) error {
		seen = true
		if r.ReceivedMicros < from || r.ReceivedMicros >= to {
			return nil
		}
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		if of(m.Agents, requests.Agent(r.UserAgent)) && of(m.Verbs, r.Verb) && of(m.Resources, resource) && (m.Code == 0 || m.Code == r.Code) {
			visit(r)
		}
		return nil
	})
	if err == nil && !seen {
		return errors.New("the audit log is empty")
	}
	return err
}

// of says whether a name is on a list; an empty one takes all.
func of(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

func functionShare(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
	row, err := m.function(rec)
	return 100 * row.CumShare, err
}

func functionPerPod(m *Measure, rec *record.Recording, d *diagnose.Diagnosis) (float64, error) {
	row, err := m.function(rec)
	switch {
	case err != nil:
		return 0, err
	case d.Pods.Bound == 0:
		return 0, errors.New("no pod came")
	}
	for _, p := range d.Harness.ByProcess {
		if p.Component == m.Component {
			return 1000 * row.CumShare * p.CPUSeconds / float64(d.Pods.Bound), nil
		}
	}
	return 0, errors.New("processes were not recorded")
}

// function is the one with most, of those that the measure names; the zero Row
// where no sample met any.
func (m *Measure) function(rec *record.Recording) (most functions.Row, err error) {
	t, err := functions.Of(rec, functions.Query{Component: m.Component, Source: functions.FromProfiles})
	if err != nil {
		return most, err
	}
	for _, r := range t.Rows {
		if slices.ContainsFunc(m.Functions, func(f string) bool { return strings.HasSuffix(r.Function, f) }) && r.CumShare > most.CumShare {
			most = r
		}
	}
	return most, nil
}

func logLines(m *Measure, rec *record.Recording, _ *diagnose.Diagnosis) (float64, error) {
	if !slices.Contains(rec.Logs(), m.Component) {
		return 0, fmt.Errorf("the log of %s was not recorded", m.Component)
	}
	a, err := logs.Analyze(rec, logs.Options{Components: []string{m.Component}})
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, k := range a.Kinds {
		if k.Kind == m.Kind && k.Component == m.Component {
			n += k.Count
		}
	}
	return float64(n), nil
}

func (m *Measure) kind() (measure, bool) {
	i := slices.IndexFunc(measures, func(k measure) bool { return k.name == m.Of })
	if i < 0 {
		return measure{}, false
	}
	return measures[i], true
}

// Unit is what it is measured in.
func (m *Measure) Unit() string {
	k, _ := m.kind()
	return k.unit
}

func (m *Measure) check() error {
	k, ok := m.kind()
	if !ok {
		var names []string
		for _, k := range measures {
			names = append(names, k.name)
		}
		return fmt.Errorf("of: no measure %q; there are %s", m.Of, strings.Join(names, ", "))
	}
	have := map[string]bool{"component": m.Component != "", "functions": len(m.Functions) > 0, "kind": m.Kind != "", "resources": len(m.Resources) > 0, "command": m.Command != ""}
	for _, need := range k.needs {
		if !have[need] {
			return fmt.Errorf("%s needs %s", m.Of, need)
		}
	}
	return nil
}

// String is the measure in words.
func (m *Measure) String() string {
	parts := slices.Concat([]string{m.Component, m.Command, m.Kind}, m.Functions, m.Agents, m.Verbs, m.Resources)
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return m.Of
	}
	return m.Of + " of " + strings.Join(parts, ", ")
}

// Read reads it from a run.
func (m *Measure) Read(rec *record.Recording, d *diagnose.Diagnosis) Reading {
	k, ok := m.kind()
	if !ok {
		return Reading{Missing: fmt.Sprintf("no measure %q", m.Of)}
	}
	x, err := k.read(m, rec, d)
	if err != nil {
		return Reading{Missing: err.Error()}
	}
	return Reading{Value: x}
}

// key is the same for the same measure.
func (m *Measure) key() string { return fmt.Sprintf("%+v", *m) }

// decisions is how the choice of a node changes with the number of pods.
func decisions(d *diagnose.Diagnosis) (diagnose.Slope, error) {
	for _, s := range d.Slopes {
		if s.Component == diagnose.Scheduler && s.Feature == "scheduler_scheduling_algorithm_duration_seconds" {
			return s, nil
		}
	}
	return diagnose.Slope{}, errors.New("no change with the number of pods is seen")
}

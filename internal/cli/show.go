package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/nodes"
	"github.com/kubedyno/kubedyno/analysis/overhead"
	"github.com/kubedyno/kubedyno/record"
)

// showTable prints one table of a recording, each row a line.
func showTable(env *Env, rec *record.Recording, name, phase, format string, rawRows bool, limit int) error {
	in, err := windowOf(rec, phase)
	if err != nil {
		return err
	}
	table := func(rec *record.Recording, in record.Window) (*textTable, error) { return tableOf(rec, name, in) }
	if r := rawTables[name]; rawRows && r == nil {
		return Misusef("--raw: %s is not one of the recording's own tables", name)
	} else if rawRows || r != nil && !slices.Contains(showTables, name) {
		table = r
	}
	t, err := table(rec, in)
	if err != nil {
		if errors.Is(err, record.ErrMissing) {
			return fmt.Errorf("%s: not assessed: %w", name, err)
		}
		return err
	}
	return t.print(env, format, limit)
}

// windowOf is the extent of a phase, or of the whole recording.
func windowOf(rec *record.Recording, phase string) (record.Window, error) {
	m := rec.Meta()
	if phase == "" {
		return record.Window{Start: m.Started, End: m.Ended.Add(time.Microsecond)}, nil
	}
	var names []string
	for _, p := range m.Phases {
		if p.Name == phase {
			return p.Window(), nil
		}
		names = append(names, p.Name)
	}
	return record.Window{}, Misusef("the recording has no phase %q; it has %s", phase, strings.Join(names, ", "))
}

func tableOf(rec *record.Recording, name string, in record.Window) (*textTable, error) {
	m := rec.Meta()
	// Times count from the run's start: nobody reads epochs.
	at := func(micros int64) string {
		if micros == 0 {
			return "–"
		}
		return fmt.Sprintf("%.3f", time.UnixMicro(micros).Sub(m.Started).Seconds())
	}
	gap := func(from, to int64) string {
		if from == 0 || to == 0 {
			return "–"
		}
		return fmt.Sprintf("%.3f", float64(to-from)/1e6)
	}
	switch name {
	case "pods":
		pods, err := rec.Pods()
		if err != nil {
			return nil, err
		}
		t := &textTable{header: []string{"POD", "PHASE", "NODE", "DUE s", "CREATED s", "BOUND s", "RUNNING s", "STARTUP s"}}
		for _, p := range pods {
			t.add(p, p.Namespace+"/"+p.Name, p.Phase, dash(p.Node), at(p.DueMicros), at(p.CreatedMicros), at(p.BoundMicros), at(p.RunningMicros), gap(p.CreatedMicros, p.RunningMicros))
		}
		return t, nil
	case "operations":
		ops, err := rec.Operations()
		if err != nil {
			return nil, err
		}
		t := &textTable{header: []string{"DUE s", "LATE s", "TOOK s", "VERB", "RESOURCE", "NAME", "CODE", "ERROR"}}
		for _, o := range ops {
			t.add(o, at(o.DueMicros), gap(o.DueMicros, o.SentMicros), gap(o.SentMicros, o.DoneMicros), o.Verb, o.Resource, o.Name, fmt.Sprint(o.Code), dash(o.Error))
		}
		return t, nil
	case "processes":
		return processTable(rec, in)
	case "requests":
		return requestTable(rec, in)
	case "logs":
		return templatesOf(rec, in)
	case "objects":
		return objectTable(rec, in, at)
	case "spikes":
		return spikeTable(rec, in)
	case "events":
		return eventTable(rec, in, at)
	case "volumes":
		return volumeTable(rec, in, at)
	case "nodes":
		rows, err := nodes.Of(rec)
		if err != nil {
			return nil, err
		}
		t := &textTable{header: []string{"NODE", "CREATED s", "READY s", "SCHEDULABLE s"}}
		for _, n := range rows {
			t.add(n, n.Name, at(n.CreatedMicros), at(n.ReadyMicros), at(n.SchedulableMicros))
		}
		return t, nil
	case "profiles":
		t := &textTable{header: []string{"FILE", "COMPONENT", "PHASE", "KIND", "SECONDS"}}
		for _, p := range rec.Profiles() {
			seconds := "–"
			if !p.Start.IsZero() {
				seconds = fmt.Sprintf("%.1f", p.End.Sub(p.Start).Seconds())
			}
			t.add(p, p.File, p.Component, p.Phase, p.Kind, seconds)
		}
		return t, nil
	case "gaps":
		t := &textTable{header: []string{"COLLECTOR", "SUBJECT", "REASON"}}
		for _, g := range m.Gaps {
			t.add(g, g.Collector, dash(g.Subject), g.Reason)
		}
		return t, nil
	case "access":
		t := &textTable{header: accessHeader}
		for _, a := range m.Access {
			t.add(a, accessCells(a)...)
		}
		return t, nil
	case "phases":
		t := &textTable{header: []string{"PHASE", "KIND", "START s", "SECONDS"}}
		for _, p := range m.Phases {
			t.add(p, p.Name, string(p.Kind), fmt.Sprintf("%.3f", p.Start.Sub(m.Started).Seconds()), fmt.Sprintf("%.3f", p.Window().Seconds()))
		}
		return t, nil
	case "flags":
		t := &textTable{header: []string{"COMPONENT", "ARGUMENT"}}
		for _, c := range m.Cluster.Components {
			for _, a := range c.Args {
				t.add(struct {
					Component string `json:"component"`
					Argument  string `json:"argument"`
				}{c.Name, a}, c.Name, a)
			}
		}
		return t, nil
	case "collectors":
		return collectorTable(rec)
	}
	return nil, fmt.Errorf("no table %q", name)
}

// collectorTable says what each collector cost.
func collectorTable(rec *record.Recording) (*textTable, error) {
	costs, err := overhead.Of(rec)
	if err != nil {
		return nil, err
	}
	t := &textTable{header: []string{"COLLECTOR", "INTERVAL s", "SAMPLES", "CPU s", "INSIDE s", "KiB", "NOTE"}}
	inside := 0.0
	for _, c := range costs.Costs {
		interval, cpu, in, note := "–", "–", "–", c.Note
		if c.IntervalSeconds > 0 {
			interval = fmt.Sprintf("%.4g", c.IntervalSeconds)
		}
		switch {
		case c.CPUSeconds == overhead.Unknown:
		case c.Sampled:
			cpu = fmt.Sprintf("~%.2f", c.CPUSeconds)
		default:
			cpu = fmt.Sprintf("%.2f", c.CPUSeconds)
		}
		if c.InsideSeconds != overhead.Unknown {
			in = fmt.Sprintf("~%.2f", c.InsideSeconds)
			inside += c.InsideSeconds
			if c.Where != "" {
				note = strings.Trim(note+"; inside: "+c.Where, "; ")
			}
		}
		t.add(c, c.Collector, interval, fmt.Sprint(c.Samples), cpu, in, fmt.Sprintf("%.0f", float64(c.Bytes)/(1<<10)), note)
	}
	sum, ok := costs.Total()
	switch {
	case costs.RunSeconds <= 0 || len(costs.Costs) == 0:
	case ok:
		own := costs.Collectors()
		t.foot = append(t.foot, fmt.Sprintf("Observing took %.2f of the %.1f CPU-s of the run (%.1f %%): %.2f in collectors and about %.2f inside what they observe (%.1f %% together),",
			sum, costs.RunSeconds, 100*sum/costs.RunSeconds, own, inside, 100*(own+inside)/costs.RunSeconds),
			fmt.Sprintf("and %.2f in the rest of kubedyno, which conducts the run, writes the recording and is woken up.", sum-inside-own))
	default:
		t.foot = append(t.foot, fmt.Sprintf("Observing took at least %.2f of the %.1f CPU-s of the run: what it did inside is not assessed without sampled stacks.", sum, costs.RunSeconds))
	}
	if len(costs.Costs) > 0 {
		t.foot = append(t.foot, "~ from sampled stacks, or by a share: see docs/collectors.md, Costs.")
	}
	return t, nil
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// processTable sums each process over a window, the busiest first.
func processTable(rec *record.Recording, in record.Window) (*textTable, error) {
	samples, err := rec.Processes()
	if err != nil {
		return nil, err
	}
	type key struct {
		pid   int32
		start int64
	}
	type use struct {
		first, last record.ProcessSample
		peak        int64
	}
	by := map[key]*use{}
	for _, s := range samples {
		// A sample is the state after its second, so the one just behind the
		// window's end still belongs to it.
		if at := time.UnixMicro(s.TimeMicros); at.Before(in.Start.Add(-time.Second)) || at.After(in.End.Add(time.Second)) {
			continue
		}
		k := key{s.PID, s.StartMicros}
		u := by[k]
		if u == nil {
			u = &use{first: s}
			by[k] = u
		}
		u.last = s
		u.peak = max(u.peak, s.RSSBytes)
	}
	type row struct {
		Component     string  `json:"component,omitempty"`
		PID           int32   `json:"pid"`
		CPUSeconds    float64 `json:"cpuSeconds"`
		UserSeconds   float64 `json:"userSeconds"`
		SystemSeconds float64 `json:"systemSeconds"`
		PeakRSSBytes  int64   `json:"peakRSSBytes"`
		WriteBytes    int64   `json:"writeBytes"` // -1 unknown
		Command       string  `json:"command"`
	}
	var rows []row
	for k, u := range by {
		user, system := u.last.UserSeconds-u.first.UserSeconds, u.last.SystemSeconds-u.first.SystemSeconds
		if u.first.StartMicros >= in.Start.UnixMicro() { // born in the window: all of it counts
			user, system = u.last.UserSeconds, u.last.SystemSeconds
		}
		written := int64(-1)
		if u.last.WriteBytes >= 0 && u.first.WriteBytes >= 0 {
			written = u.last.WriteBytes - u.first.WriteBytes
		}
		rows = append(rows, row{u.last.Component, k.pid, user + system, user, system, u.peak, written, u.last.Command})
	}
	slices.SortFunc(rows, func(a, b row) int {
		outside := func(r row) int { // of those that are alike, the run's first
			if r.Component == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(b.CPUSeconds, a.CPUSeconds), cmp.Compare(outside(a), outside(b)), cmp.Compare(a.PID, b.PID))
	})
	t := &textTable{header: []string{"COMPONENT", "PID", "CPU s", "USER s", "SYSTEM s", "PEAK MiB", "WRITTEN MiB", "COMMAND"}}
	for _, r := range rows {
		written := "–"
		if r.WriteBytes >= 0 {
			written = fmt.Sprintf("%.1f", float64(r.WriteBytes)/(1<<20))
		}
		command := r.Command
		if runes := []rune(command); len(runes) > 80 {
			command = string(runes[:79]) + "…"
		}
		t.add(r, dash(r.Component), fmt.Sprint(r.PID), fmt.Sprintf("%.2f", r.CPUSeconds), fmt.Sprintf("%.2f", r.UserSeconds),
			fmt.Sprintf("%.2f", r.SystemSeconds), fmt.Sprintf("%.0f", float64(r.PeakRSSBytes)/(1<<20)), written, command)
	}
	return t, nil
}

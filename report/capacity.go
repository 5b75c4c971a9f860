package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// WriteCapacity writes a capacity as text or JSON.
func WriteCapacity(w io.Writer, o Options, c *compare.Capacity) error {
	if o.Format == "json" {
		return writeJSON(w, c)
	}
	t := newText(o)
	t.capacity(cleaned(c))
	_, err := io.WriteString(w, t.String())
	return err
}

// askedFor is an objective as it was asked for.
func askedFor(o record.Objective) string {
	sign := "≤"
	if o.Unit == "1/s" {
		sign = "≥"
	}
	q := ""
	switch {
	case o.Quantile == 1:
		q = " of the last one"
	case o.Quantile > 0:
		q = fmt.Sprintf(" p%g", 100*o.Quantile)
	}
	unit := " " + o.Unit
	switch o.Unit {
	case "1":
		unit = ""
	case "1/s":
		unit = "/s"
	}
	return fmt.Sprintf("%s%s %s %s%s", o.Indicator, q, sign, number(o.Limit), unit)
}

// intervalOf is an interval in words.
func intervalOf(ci *stat.Interval, n int) string {
	if ci == nil {
		return fmt.Sprintf("n=%d, no interval", n)
	}
	hi := number(ci.Hi)
	if math.IsInf(ci.Hi, 1) {
		hi = "∞"
	}
	return fmt.Sprintf("%s…%s, %g %%, n=%d", number(ci.Lo), hi, 100*ci.Level, n)
}

func (t *text) capacity(c *compare.Capacity) {
	for _, at := range c.At {
		t.wrapStyled(bold, capacityVerdict(c, at))
		if !at.Sure && at.Beyond == 0 {
			t.wrap("  ", t.paint(yellow, "! "), "the interval is wider than was asked for: more runs (--probes) make it shorter")
		}
		if at.Binds != "" {
			t.wrap("  ", "at the edge  ", at.Binds)
		}
	}
	if c.Machine.CPUs > 0 {
		t.wrap("", "", t.paint(dim, fmt.Sprintf("Measured on a machine of %s, with load, nodes and control plane on it.", plural(c.Machine.CPUs, "CPU"))))
	}
	for _, at := range c.At {
		t.probes(c, at)
	}
	for _, at := range c.At {
		t.demands(at)
	}
	t.ladder(c)
	if len(c.Warnings) > 0 {
		t.head("Warnings")
		for _, w := range c.Warnings {
			t.wrap("  ", t.paint(yellow, "! "), w)
		}
	}
}

// capacityVerdict is the capacity of one control plane in one sentence.
func capacityVerdict(c *compare.Capacity, at compare.CapacityAt) string {
	within := ""
	if len(c.Objectives) > 0 {
		var all []string
		for _, o := range c.Objectives {
			all = append(all, askedFor(o))
		}
		within = " within " + strings.Join(all, " and ")
	}
	who := c.Experiment
	if at.Cores > 0 {
		who = fmt.Sprintf("%s with a control plane of %g cores", c.Experiment, at.Cores)
		if at.Cores == 1 {
			who = c.Experiment + " with a control plane of 1 core"
		}
	}
	switch {
	case at.Beyond > 0:
		return fmt.Sprintf("%s carries more than the highest load that was tried, %s %s,%s (n=%d runs).", who, number(highest(at)), c.Unit, within, at.N)
	case at.Beyond < 0:
		return fmt.Sprintf("%s does not carry even the lowest load that was tried, %s %s,%s (n=%d runs).", who, number(lowest(at)), c.Unit, within, at.N)
	case c.Saturated:
		return fmt.Sprintf("%s comes up at %s %s (%s runs) when all is asked for at once.", who, number(at.Value), c.Unit, intervalOf(at.Interval, at.N))
	}
	return fmt.Sprintf("%s carries %s %s%s (%s runs).", who, number(at.Value), c.Unit, within, intervalOf(at.Interval, at.N))
}

func highest(at compare.CapacityAt) (x float64) {
	for _, p := range at.Probes {
		x = max(x, p.Load)
	}
	return x
}

func lowest(at compare.CapacityAt) float64 {
	x := math.Inf(1)
	for _, p := range at.Probes {
		x = min(x, p.Load)
	}
	return x
}

// withCores names a section of one control plane among several.
func withCores(title string, cores float64) string {
	if cores == 0 {
		return title
	}
	return fmt.Sprintf("%s, %g cores", title, cores)
}

// probes are the runs by load: where the knee is shows.
func (t *text) probes(c *compare.Capacity, at compare.CapacityAt) {
	if len(at.Probes) == 0 {
		return
	}
	t.head(withCores("Runs", at.Cores))
	ps := slices.Clone(at.Probes)
	slices.SortStableFunc(ps, func(a, b compare.Probe) int {
		switch {
		case a.Load < b.Load:
			return -1
		case a.Load > b.Load:
			return 1
		}
		return 0
	})
	names := map[string]bool{}
	worst := map[string]float64{}
	for _, p := range ps {
		for name, v := range p.Latencies {
			names[name], worst[name] = true, max(worst[name], v)
		}
	}
	limits := map[string]record.Objective{}
	for _, o := range c.Objectives {
		limits[o.Name] = o
	}
	for _, p := range ps {
		mark := t.paint(green, "✓")
		switch {
		case !p.Valid:
			mark = t.paint(yellow, "?")
		case !p.Passed:
			mark = t.paint(red, "✗")
		}
		line := "  " + mark
		if !c.Saturated {
			line += fmt.Sprintf(" %9s %s", number(p.Load), c.Unit)
		}
		line += fmt.Sprintf("  %8s pods/s", number(p.Rate))
		for _, name := range slices.Sorted(maps.Keys(names)) {
			v, o := p.Latencies[name], limits[name]
			line += fmt.Sprintf("  %s %s", name, number(v))
			if o.Unit == "s" {
				line += " s"
			}
			if o.Unit == "s" && worst[name] > 0 && p.Valid {
				// On a scale of logarithms: a knee is a factor, not a sum.
				const width = 16
				full := int(math.Round(width * math.Log1p(v/o.Limit) / math.Log1p(max(worst[name], o.Limit)/o.Limit)))
				s := blue
				if v > o.Limit {
					s = red
				}
				line += " " + t.paint(s, strings.Repeat("█", full)) + strings.Repeat(" ", width-full)
			}
		}
		t.line(line)
		if !p.Valid {
			t.wrap("      ", "does not count: ", p.Why)
		}
	}
}

// demands are what a pod takes of what, the tightest first.
func (t *text) demands(at compare.CapacityAt) {
	if len(at.Demands) == 0 {
		return
	}
	t.head(withCores("What a pod takes, in the runs at the edge", at.Cores))
	t.line(t.paint(dim, fmt.Sprintf("  %-44s %10s %-16s %3s  %s", "", "a pod", "95 %", "n", "carries at most")))
	shown := 0
	for _, d := range at.Demands {
		if shown == 6 {
			break
		}
		if d.Bound.N == 0 {
			continue
		}
		shown++
		value, unit, scale := d.Each.Value, "ms", 1000.0
		if d.Unit == "requests/pod" {
			unit, scale = "requests", 1
		}
		interval := ""
		if d.Each.Interval != nil {
			interval = fmt.Sprintf("%s…%s", number(scale*d.Each.Interval.Lo), number(scale*d.Each.Interval.Hi))
		}
		t.line(fmt.Sprintf("  %-44s %10s %-16s %3d  %s pods/s", t.cut(d.Name, 44), number(scale*value)+" "+unit, interval, d.Each.N, number(d.Bound.Value)))
	}
}

// ladderText says what a ladder was worked out from, and while it holds.
func ladderText(l *compare.Ladder) string {
	return fmt.Sprintf("From %s (n=%d runs): each core adds %s pods/s. It holds while nothing but the control plane's CPU binds, and its CPU for a pod stays what it is.", l.From, l.N, number(l.PerCore))
}

func (t *text) ladder(c *compare.Capacity) {
	l := c.Ladder
	if l == nil {
		return
	}
	t.head("Elsewhere: computed, not measured")
	t.wrap("  ", "", ladderText(l))
	most := 0.0
	for _, r := range l.Rungs {
		most = max(most, r.Rate)
	}
	for _, h := range l.Held {
		t.wrap("  ", "", fmt.Sprintf("held out: %g cores computed %s pods/s (%s), measured %s (%s): %+.1f %%",
			h.Cores, number(h.Rate), intervalOf(h.Interval, l.N), number(h.Measured.Value), intervalOf(h.Measured.Interval, h.Measured.N), 100*h.Error))
	}
	for _, r := range l.Rungs {
		note := ""
		if r.Interval != nil {
			note = intervalOf(r.Interval, l.N)
		}
		if r.Capped {
			note = l.Next + " binds first"
		}
		t.line(fmt.Sprintf("  %3g cores %8s pods/s  %s %s", r.Cores, number(r.Rate), t.paint(dim, note), t.paint(blue, bar(0, r.Rate, most, 20))))
	}
}

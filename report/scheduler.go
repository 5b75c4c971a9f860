package report

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// arrived is how many pods came to the end of their way, in words.
func arrived(d *diagnose.Diagnosis) string {
	if d.EndsBound {
		return fmt.Sprintf("%d of %d pods were scheduled", d.Pods.Bound, d.Pods.Expected)
	}
	return fmt.Sprintf("%d of %d pods ran", d.Pods.Running, d.Pods.Expected)
}

func neverArrived(d *diagnose.Diagnosis) string {
	if d.EndsBound {
		return "never scheduled"
	}
	return "never running"
}

// scheduler adds the rows of a run that is about the scheduler alone.
func (t *text) scheduler(d *diagnose.Diagnosis, row func(label, value, note string)) {
	if p := d.SchedulerPerf; p != nil {
		row("scheduler_perf", fmt.Sprintf("average %s pods/s", number(p.Average)),
			fmt.Sprintf("upstream's rules; p50 %s, p90 %s, p95 %s, p99 %s of %d samples", number(p.Perc50), number(p.Perc90), number(p.Perc95), number(p.Perc99), p.Samples))
	} else {
		row("scheduler_perf", "not assessed", "all was bound within its first second, which upstream's rules drop")
	}
	w := d.Scheduler
	if w == nil {
		row("attempts", "not assessed", "no scheduler metrics")
		return
	}
	each := func(list []diagnose.SchedulerPart, most int) string {
		var parts []string
		for _, p := range list[:min(most, len(list))] {
			name := p.Name
			if p.Point != "" {
				name = p.Point + " of " + p.Name
			}
			parts = append(parts, fmt.Sprintf("%s %s", name, seconds(p.Microseconds/1e6)))
		}
		return strings.Join(parts, ", ")
	}
	for _, a := range w.Attempts {
		row("attempts", fmt.Sprintf("%d %s, %s each", a.N, a.Name, seconds(a.Microseconds/1e6)), "")
	}
	row("algorithm", fmt.Sprintf("%s each", seconds(w.Algorithm.Microseconds/1e6)), fmt.Sprintf("n %d", w.Algorithm.N))
	if len(w.Points) > 0 {
		row("points", each(w.Points, 5), "mean, the dearest in all first")
	}
	if len(w.Plugins) > 0 {
		row("plugins", each(w.Plugins, 5), "mean of the cycles that the scheduler times, a tenth of all")
	}
}

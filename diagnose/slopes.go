package diagnose

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// A Slope is a cost that changes while pods are added: what one pod, cycle or
// sync takes in windows of the plateau, against the pods that there are. Only
// slopes that are no chance and that matter are kept.
type Slope struct {
	Name      string `json:"name"` // cpu of kube-apiserver per pod, cycle of the scheduler, …
	Component string `json:"component"`
	// Feature is what the slope is of: cpu, or a metric's name, with its labels.
	Feature string `json:"feature"`
	Unit    string `json:"unit"`
	Against string `json:"against"` // pods: those that exist
	// From and To are the pods at the first and the last window, AtFrom and AtTo
	// the fitted values there.
	From        float64 `json:"from"`
	To          float64 `json:"to"`
	AtFrom      float64 `json:"atFrom"`
	AtTo        float64 `json:"atTo"`
	PerThousand float64 `json:"perThousand"` // change for 1,000 pods more: Theil and Sen's slope
	R2          float64 `json:"r2"`          // of the straight line by least squares
	P           float64 `json:"p"`           // of no trend (Kendall), two-sided
	N           int     `json:"n"`           // windows
}

// Growth is how many times its first value the last one is.
func (s Slope) Growth() float64 { return s.AtTo / s.AtFrom }

const (
	// slopeWindows is into how many windows of equally many pods the plateau is
	// cut, and slopeLeast the fewest that make a trend.
	slopeWindows, slopeLeast = 20, 8
	// slopePods are the fewest pods in a window: below it a single late pod is a
	// tenth of its cost.
	slopePods = 50
	// slopeQ is the share of false ones among the slopes that are named
	// (Benjamini and Hochberg), and slopeGrowth the change by which a cost
	// matters: less is what runs differ by anyway.
	slopeQ, slopeGrowth = 0.01, 1.25
	// growingShare is the part of a component's growth that makes a function the
	// one that grows, and growingSamples how often it must have been seen late:
	// 100 samples are known to a tenth.
	growingShare, growingSamples = 0.4, 100
)

// slopeWindow is a stretch of the plateau.
type slopeWindow struct {
	record.Window
	arrived float64 // pods that came to the end of their way in it
	pods    float64 // pods that there were in its middle
}

// slopeCut is the plateau in windows of equally many arrivals, each at least as
// long as two samples are apart.
func (v *View) slopeCut() []slopeWindow {
	var at []int64
	for _, p := range v.Pods {
		if t := v.arrived(p); t != 0 && v.Plateau.Contains(time.UnixMicro(t)) {
			at = append(at, t)
		}
	}
	slices.Sort(at)
	shortestWindow := 2 * v.metricWindow().End.Sub(v.Load.End)
	k := min(slopeWindows, len(at)/slopePods, int(v.Plateau.End.Sub(v.Plateau.Start)/max(shortestWindow, shortest*time.Second)))
	if k < slopeLeast {
		return nil
	}
	before := float64(v.Meta.Nodes.SeededPods)
	for _, p := range v.Pods {
		if t := v.arrived(p); t != 0 && time.UnixMicro(t).Before(v.Plateau.Start) {
			before++
		}
	}
	var cut []slopeWindow
	start, first := v.Plateau.Start, 0
	for i := range k {
		last := (i + 1) * len(at) / k
		end := time.UnixMicro(at[last-1])
		if end.Sub(start) < shortestWindow/2 { // a burst: its pods count with the next
			continue
		}
		cut = append(cut, slopeWindow{record.Window{Start: start, End: end}, float64(last - first), before + float64(first+last)/2})
		start, first = end, last
	}
	if len(cut) < slopeLeast {
		return nil
	}
	return cut
}

// accountSlopes finds costs that change with the number of pods.
func (v *View) accountSlopes() {
	cut := v.slopeCut()
	if cut == nil || v.Observed {
		return
	}
	v.SlopesAssessed = true
	var all []Slope
	var ps []float64
	try := func(s Slope, of func(slopeWindow) (float64, bool)) {
		var x, y []float64
		for _, w := range cut {
			if value, ok := of(w); ok {
				x, y = append(x, w.pods), append(y, value)
			}
		}
		slope, fitted := stat.TheilSen(x, y)
		_, p, ok := stat.Trend(x, y)
		if !ok || !fitted {
			return
		}
		// The line goes through the medians, as Theil's does.
		mx, my := stat.Median(x), stat.Median(y)
		s.From, s.To = x[0], x[len(x)-1]
		s.AtFrom, s.AtTo = my+slope*(s.From-mx), my+slope*(s.To-mx)
		s.PerThousand, s.P, s.N, s.Against = 1000*slope, p, len(x), "pods"
		if l, ok := stat.LeastSquares(x, y); ok {
			s.R2 = l.R2
		}
		all, ps = append(all, s), append(ps, p)
	}
	for _, c := range v.Components() {
		// What looked like rest right after a start may have been none: a
		// component is never less busy than at rest.
		rest := v.idle[c]
		for _, w := range cut {
			if x, ok := v.CPU(c, w.Window); ok {
				rest = min(rest, x/w.Seconds())
			}
		}
		try(Slope{Name: "cpu of " + c + " per pod", Component: c, Feature: "cpu", Unit: "s"}, func(w slopeWindow) (float64, bool) {
			x, ok := v.CPU(c, w.Window)
			return max(0, x-rest*w.Seconds()) / w.arrived, ok
		})
	}
	mean := func(name, component, metric string, match map[string]string) {
		try(Slope{Name: name, Component: component, Feature: series(metric, match), Unit: "s"}, func(w slopeWindow) (float64, bool) {
			sum, okS := v.Growth(component, metric+"_sum", match, w.Window)
			n, okN := v.Growth(component, metric+"_count", match, w.Window)
			return sum / n, okS && okN && n >= 1
		})
	}
	mean("a sync of etcd's log", Etcd, "etcd_disk_wal_fsync_duration_seconds", nil)
	mean("choosing a node", Scheduler, "scheduler_scheduling_algorithm_duration_seconds", nil)
	for _, point := range v.serialPoints() {
		mean("extension point "+point, Scheduler, "scheduler_framework_extension_point_duration_seconds", map[string]string{"extension_point": point})
	}
	for _, p := range v.dearestPlugins(5) {
		mean(fmt.Sprintf("plugin %s at %s", p.Name, p.Point), Scheduler, "scheduler_plugin_execution_duration_seconds", map[string]string{"plugin": p.Name, "extension_point": p.Point})
	}
	limit := stat.FalseDiscovery(ps, len(ps), slopeQ)
	for _, s := range all {
		if s.P > limit || s.AtFrom <= 0 || s.AtTo <= 0 || s.Growth() < slopeGrowth && s.Growth() > 1/slopeGrowth {
			continue
		}
		v.Slopes = append(v.Slopes, s)
	}
	sort.SliceStable(v.Slopes, func(i, j int) bool {
		return math.Abs(v.Slopes[i].AtTo-v.Slopes[i].AtFrom) > math.Abs(v.Slopes[j].AtTo-v.Slopes[j].AtFrom)
	})
}

// series writes a metric with its labels as a query has it.
func series(metric string, match map[string]string) string {
	if len(match) == 0 {
		return metric
	}
	text := metric + "{"
	for i, k := range sortedKeys(match) {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("%s=%q", k, match[k])
	}
	return text + "}"
}

// Slope finds the slope of a component's feature.
func (v *View) Slope(component, feature string) (Slope, bool) {
	for _, s := range v.Slopes {
		if s.Component == component && s.Feature == feature {
			return s, true
		}
	}
	return Slope{}, false
}

// serialPoints are the extension points that a pod passes in the loop, while all
// others wait.
func (v *View) serialPoints() (points []string) {
	w := v.SchedulerWork()
	if w == nil {
		return nil
	}
	for _, p := range w.Points {
		if serial(p.Name) {
			points = append(points, p.Name)
		}
	}
	slices.Sort(points)
	return points
}

// serial says whether all others wait while a pod is at an extension point.
func serial(point string) bool {
	return slices.Contains([]string{"PreFilter", "Filter", "PreScore", "Score"}, point)
}

// GrowingWork is the function of a component that works more for each pod in the
// last quarter of the plateau than in its first: the innermost that holds a good
// part of what the component's work grew by.
func (v *View) GrowingWork(component string) (g functions.Growth, ok bool) {
	cut := v.slopeCut()
	if len(cut) < slopeLeast {
		return g, false
	}
	stretch := func(part []slopeWindow) (s functions.Stretch) {
		s.Window = record.Window{Start: part[0].Start, End: part[len(part)-1].End}
		for _, w := range part {
			s.Pods += w.arrived
		}
		return s
	}
	quarter := len(cut) / 4
	g, ok, err := functions.Growing(v.src, component, stretch(cut[:quarter]), stretch(cut[len(cut)-quarter:]), growingShare)
	if err != nil && !errors.Is(err, record.ErrMissing) && v.err == nil {
		v.err = fmt.Errorf("read stacks: %w", err)
	}
	return g, ok && g.Samples >= growingSamples
}

// PluginFunctions is what the scheduler's own plugins have in the names of their
// functions.
const PluginFunctions = "/scheduler/framework/plugins/"

// pluginShare is the part of the scheduler's CPU from which a plugin is named.
const pluginShare = 0.2

// DearestPlugin is the plugin with most of the scheduler's CPU over the plateau,
// by sampled stacks. ok is false where none has much, and without stacks.
func (v *View) DearestPlugin() (p functions.Part, ok bool) {
	return v.Dearest(Scheduler, PluginFunctions, v.Plateau)
}

// Dearest is the package with most of a component's CPU in a window, of those whose
// functions have some text in their names, by sampled stacks. ok is false where none
// has much, and without stacks.
func (v *View) Dearest(component, within string, w record.Window) (p functions.Part, ok bool) {
	p, err := functions.Dearest(v.src, component, w, within)
	if err != nil && !errors.Is(err, record.ErrMissing) && v.err == nil {
		v.err = fmt.Errorf("read stacks: %w", err)
	}
	return p, p.Share >= pluginShare && p.Samples >= growingSamples
}

// dearestPlugins are the scheduler's plugins that took most time in the loop. Behind it
// pods wait side by side, for a client's limit or for volumes: that grows with the queue.
func (v *View) dearestPlugins(n int) (parts []SchedulerPart) {
	w := v.SchedulerWork()
	if w == nil {
		return nil
	}
	for _, p := range w.Plugins {
		if serial(p.Point) && len(parts) < n {
			parts = append(parts, p)
		}
	}
	return parts
}

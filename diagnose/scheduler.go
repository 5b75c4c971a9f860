package diagnose

import "slices"

// SchedulerWork is what the scheduler counted of its own work over the load.
type SchedulerWork struct {
	// Attempts to schedule a pod, by result: scheduled, unschedulable, error.
	Attempts []SchedulerPart `json:"attempts"`
	// Algorithm is the choice of a node, which is serial: its seconds of a
	// second say how busy the scheduler's loop is.
	Algorithm SchedulerPart `json:"algorithm"`
	// Points are the framework's extension points, the dearest first.
	Points []SchedulerPart `json:"extensionPoints"`
	// Plugins are timed in about a tenth of all cycles, which is the scheduler's own
	// sampling: their number is that of samples. The dearest come first.
	Plugins []SchedulerPart `json:"plugins"`
}

// SchedulerPart is one kind of work, as count and time.
type SchedulerPart struct {
	Name         string  `json:"name"`
	Point        string  `json:"extensionPoint,omitempty"` // of a plugin
	N            int     `json:"n"`
	Seconds      float64 `json:"seconds"`
	Microseconds float64 `json:"microseconds"` // of one, mean
}

// The values of labels, of pkg/scheduler/metrics and the default plugins of
// pkg/scheduler/apis/config/v1 in v1.36.3. A recording is asked for each: what
// is not in it is left out.
var (
	attemptResults  = []string{"scheduled", "unschedulable", "error"}
	extensionPoints = []string{
		"PreEnqueue", "PreFilter", "Filter", "PreFilterExtensionAddPod", "PreFilterExtensionRemovePod", "PostFilter", "PreScore", "Score",
		"ScoreExtensionNormalize", "Reserve", "Unreserve", "Permit", "PreBindPreFlight", "PreBind", "Bind", "PostBind", "Sign",
	}
	pluginNames = []string{
		"SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
		"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "DefaultPreemption",
		"NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder", "DynamicResources", "GangScheduling", "NodeDeclaredFeatures",
	}
)

// SchedulerWork reads the scheduler's own counters; nil where there are none.
func (v *View) SchedulerWork() *SchedulerWork {
	part := func(name, metric string, match map[string]string) (SchedulerPart, bool) {
		n, okN := v.Increase(Scheduler, metric+"_count", match)
		seconds, okS := v.Increase(Scheduler, metric+"_sum", match)
		if !okN || !okS || n < 1 {
			return SchedulerPart{}, false
		}
		return SchedulerPart{Name: name, N: int(n + 0.5), Seconds: seconds, Microseconds: 1e6 * seconds / n}, true
	}
	w := &SchedulerWork{Attempts: []SchedulerPart{}, Points: []SchedulerPart{}, Plugins: []SchedulerPart{}}
	var ok bool
	if w.Algorithm, ok = part("algorithm", "scheduler_scheduling_algorithm_duration_seconds", nil); !ok {
		return nil
	}
	for _, result := range attemptResults {
		if p, ok := part(result, "scheduler_scheduling_attempt_duration_seconds", map[string]string{"result": result}); ok {
			w.Attempts = append(w.Attempts, p)
		}
	}
	for _, point := range extensionPoints {
		if p, ok := part(point, "scheduler_framework_extension_point_duration_seconds", map[string]string{"extension_point": point}); ok {
			w.Points = append(w.Points, p)
		}
	}
	for _, plugin := range pluginNames {
		for _, point := range extensionPoints {
			if p, ok := part(plugin, "scheduler_plugin_execution_duration_seconds", map[string]string{"plugin": plugin, "extension_point": point}); ok {
				p.Point = point
				w.Plugins = append(w.Plugins, p)
			}
		}
	}
	dearest := func(a, b SchedulerPart) int {
		switch {
		case a.Seconds > b.Seconds:
			return -1
		case a.Seconds < b.Seconds:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(w.Points, dearest)
	slices.SortStableFunc(w.Plugins, dearest)
	return w
}

// HeldBeforeBind is the share of stage bind that plugins at PreBind and Permit
// held pods for: their volumes, say. It is 0 where that is not known.
func (v *View) HeldBeforeBind() float64 {
	const point = "scheduler_framework_extension_point_duration_seconds_sum"
	bind, ok := v.Increase(Scheduler, point, Labels{"extension_point": "Bind"})
	if !ok {
		return 0
	}
	pre, _ := v.Increase(Scheduler, point, Labels{"extension_point": "PreBind"})
	permit, _ := v.Increase(Scheduler, "scheduler_permit_wait_duration_seconds_sum", nil)
	if pre+permit <= 0 {
		return 0
	}
	return (pre + permit) / (bind + pre + permit)
}

// accountScheduling is what a user feels where pods are scheduled and never
// started.
func (v *View) accountScheduling() {
	var bound, took []float64
	missing := 0
	for _, p := range v.Pods {
		switch {
		case p.BoundMicros != 0 && p.CreatedMicros != 0:
			bound = append(bound, v.sec(p.BoundMicros))
			took = append(took, float64(p.BoundMicros-p.CreatedMicros)/1e6)
		case p.CreatedMicros != 0:
			missing++
		}
	}
	l := latencyOf(took, missing)
	v.Latencies.Scheduling = &l
	v.accountThroughput(bound)
}

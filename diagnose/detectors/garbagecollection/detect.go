package garbagecollection

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// much is the share of a component's CPU from which collecting garbage is no
	// longer what it takes anyway: with Go's default of GOGC=100 components of
	// healthy runs stand at 5-18 % here.
	much = 0.25
	// healthy is the most of it there, above which the share must lie for sure: of 30
	// samples in a profile, 8 are a quarter by chance.
	healthy = 0.18
	// usual is what stays when nothing forces it.
	usual = 0.12
	// often is the rate of collections from which it is the collector's doing:
	// healthy components collect less than once a second under full load here.
	often = 1.5
	// matters is the least share of a CPU that a component must use for this to
	// be about anything.
	matters = 0.05
	// some is how many CPU-seconds of collecting are more than what a burst of a few
	// seconds does to a small heap.
	some = 0.3
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "garbage-collection",
	Title: "A component spends its CPU on collecting garbage",
	Doc: `Go collects garbage when the heap has grown by GOGC per cent since the last collection, or when it comes near GOMEMLIMIT. With a small GOGC, or a limit close to what is in use,
it collects all the time: CPU that does no work, and goroutines that must help.

**Evidence.** The process collects at least 1.5 times a second (go_gc_cycles_total_gc_cycles_total), and that is at least 25 % of its CPU and 0.3 CPU-seconds: by its CPU profiles, with more samples than chance makes of the usual 18 %, or, without any, by the runtime's
own estimate (go_cpu_classes_gc_total_cpu_seconds_total without idle workers), which is not to be trusted for a process that is short of CPU.

**Why.** GOGC below 100, or GOMEMLIMIT within twice of what is in use after a collection (go_gc_gogc_percent, go_gc_gomemlimit_bytes, go_gc_heap_live_bytes), keep the heap small. Where neither does, it is the component that allocates too much for so
small a heap: then that is said, with the bytes a second (go_gc_heap_allocs_bytes_total) and, from sampled stacks, the function of its own that most of its CPU goes to.

**Class.** A bottleneck where the CPU is what holds pods up (the machine or the component's quota is full); the finding then claims the share of the lost time that this CPU is of all
that was used. Waste otherwise.

**Look-alikes.** Much work makes much garbage: then the share stays at 5-18 %. A full machine without it (machine-cpu). etcd does not say what it collects: for it this cause is not assessed.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	var found []diagnose.Finding
	var clear, missing string
	for _, c := range []string{diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler} {
		used, ok := v.CPU(c, v.Load)
		if !ok || used <= 0 {
			continue
		}
		n, ok := v.Increase(c, "go_gc_cycles_total_gc_cycles_total", nil)
		if !ok || v.Span() <= 0 {
			missing += ", " + c
			continue
		}
		perSecond := n / v.Span()
		gc, least, ref, ok := collecting(v, c, used)
		if !ok && perSecond >= often {
			missing += ", " + c
			continue
		}
		if share := gc / used; perSecond < often || share < much || least < healthy || used < matters*v.Span() || gc < some {
			clear += fmt.Sprintf("; %s collects %.1f times a second, with %.0f %% of its CPU", c, perSecond, 100*share)
			continue
		}
		found = append(found, finding(v, c, used, gc, perSecond, ref))
	}
	switch {
	case len(found) > 0:
		return diagnose.Found(found...)
	case clear != "":
		return diagnose.NotThere("%s", clear[2:])
	case missing != "":
		return diagnose.NotAssessed("go_cpu_classes_gc_total_cpu_seconds_total of %s", missing[2:])
	}
	return diagnose.NotAssessed("the components' CPU")
}

// collecting is the CPU that a component spent on collecting garbage: what its
// CPU profiles found or, without any, the runtime's own estimate. The
// estimate holds idle workers, which take only CPU that nobody wants, and is
// wrong for a process that is kept from running; neither is counted. least is the
// least share that the profile's samples leave room for.
func collecting(v *diagnose.View, component string, used float64) (seconds, least float64, ref string, ok bool) {
	if spent, ok := v.Work(component, functions.PathGC); ok {
		return spent.Share * used, spent.AtLeast, "profiles: " + component + ", " + functions.PathGC, true
	}
	const metric = "go_cpu_classes_gc_total_cpu_seconds_total"
	all, ok := v.Increase(component, metric, nil)
	idle, okIdle := v.Increase(component, "go_cpu_classes_gc_mark_idle_cpu_seconds_total", nil)
	if !ok || !okIdle || v.Upstream() != "" {
		return 0, 0, "", false
	}
	return max(0, all-idle), max(0, all-idle) / used, metric, true
}

func finding(v *diagnose.View, component string, used, gc, perSecond float64, ref string) diagnose.Finding {
	share := gc / used
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: component, Resource: "gc", Sources: 2,
		Cause: fmt.Sprintf("%s collects garbage for %.0f %% of its CPU time", component, 100*share),
		Summary: fmt.Sprintf("%s spends %.1f of its %.1f CPU-seconds collecting garbage (%.0f %%; 5-18 %% is usual): its heap is kept too small for its work.",
			component, gc, used, 100*share),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: fmt.Sprintf(`go_gc_cycles_total_gc_cycles_total{component=%q}`, component), Value: perSecond, Unit: "1/s", Text: fmt.Sprintf("%.1f collections per second", perSecond)},
			{Kind: "busy", Ref: ref, Value: share, Unit: "1", Text: fmt.Sprintf("%.1f of %.1f CPU-seconds", gc, used)},
		},
		Advice: diagnose.Advice{
			Text: fmt.Sprintf("Raise or remove GOMEMLIMIT and GOGC of %s; the default is GOGC=100 without a limit. The price is memory: about twice what is in use between collections.", component),
			Set:  map[string]string{component + ".env.GOGC": "100", component + ".env.GOMEMLIMIT": "off"},
		},
		RefutedBy: "a run with GOGC=100 and no GOMEMLIMIT in which the share stays",
	}
	over := max(0, gc-usual*used)
	part := over / used
	f.Cost = &diagnose.Cost{ServerCPUSeconds: &over, ServerCPUShare: &part, Measured: true}
	if component != diagnose.APIServer {
		f.Cost.ServerCPUOf = component
	}
	l, ok := v.Gauge(component, "go_gc_heap_live_bytes", nil, v.Load)
	if ok && unforced(v, component, l.Mean) {
		allocates(v, &f, used, share)
	}
	if ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: fmt.Sprintf(`go_gc_heap_live_bytes{component=%q}`, component), Value: l.Mean, Unit: "bytes", Text: fmt.Sprintf("%.0f MiB were in use after a collection, on average", l.Mean/(1<<20))})
	}
	if v.Upstream() == "" || !v.Symptom() || !v.StagesOK {
		return f
	}
	all := used
	if m, ok := v.MachineCPU(v.Load); ok {
		if _, quota := v.Quota(component); !quota {
			all = m.Busy
		}
	}
	f.Next = f.Summary + diagnose.Behind
	f.Class, f.Consumes, f.Claims = diagnose.Bottleneck, true, map[string]float64{}
	for i, s := range v.LostStages() {
		if i == 0 {
			f.Stage = s.Name
		}
		f.Claims[s.Name] = *s.ExcessSeconds * min(1, over/all)
	}
	return f
}

// usualGOGC is Go's default, and near how close to what is in use a limit must be to
// force collections: at twice of that GOGC=100 collects as often.
const usualGOGC, near = 100, 2

// unforced says that no setting makes a component collect, as far as it tells.
func unforced(v *diagnose.View, component string, live float64) bool {
	gogc, ok := v.Gauge(component, "go_gc_gogc_percent", nil, v.Load)
	limit, okLimit := v.Gauge(component, "go_gc_gomemlimit_bytes", nil, v.Load)
	return ok && okLimit && gogc.Mean >= usualGOGC && limit.Mean > near*live
}

// own is where the code of a component's own loops is.
var own = map[string]string{
	diagnose.ControllerManager: "k8s.io/kubernetes/pkg/controller/",
	diagnose.Scheduler:         diagnose.PluginFunctions,
}

// allocates makes the finding one of a component that allocates much on a small heap.
func allocates(v *diagnose.View, f *diagnose.Finding, used, share float64) {
	component := f.Component
	f.Sources = 1 // that it collects is sure; why it allocates is not
	f.Cause = fmt.Sprintf("%s allocates so much that it collects garbage for %.0f %% of its CPU time", component, 100*share)
	f.Summary = fmt.Sprintf("%s spends %.0f %% of its %.1f CPU-seconds collecting garbage (5-18 %% is usual), although GOGC and GOMEMLIMIT are as usual: it allocates much for so small a heap.", component, 100*share, used)
	f.Advice = diagnose.Advice{Text: fmt.Sprintf("Look at what %s does all the time (kubedyno functions RECORDING --component %s --sort cum), and how often: a period that was set too short is the usual reason. A higher GOGC trades memory for CPU.", component, component)}
	f.RefutedBy = "a run with GOGC=400 in which it uses as much CPU"
	if n, ok := v.Increase(component, "go_gc_heap_allocs_bytes_total", nil); ok && v.Span() > 0 {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: fmt.Sprintf(`go_gc_heap_allocs_bytes_total{component=%q}`, component), Value: n / v.Span(), Unit: "bytes/s", Text: fmt.Sprintf("%.1f MB a second are allocated", n/v.Span()/1e6)})
	}
	within, ok := own[component]
	if !ok {
		return
	}
	if p, ok := v.Dearest(component, within, v.Load); ok {
		f.CodePath = p.Function
		f.Cause += ", most of its own work in " + short(p.Function)
		f.Summary += fmt.Sprintf(" %.0f %% of its CPU is in %s.", 100*p.Share, short(p.Function))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "function", Ref: "stacks: " + p.Function, Value: p.Share, Unit: "1", Text: fmt.Sprintf("%.0f %% of its CPU with what it calls (%d samples)", 100*p.Share, p.Samples)})
	}
}

// short is a function's name without the path of its package.
func short(function string) string { return function[strings.LastIndexByte(function, '/')+1:] }

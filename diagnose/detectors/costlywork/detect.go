package costlywork

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// full is the use of the machine or of a quota from which a larger demand holds
	// pods up.
	full = 0.85
	// matters is the share of all CPU that the excess must be.
	matters = 0.10
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "costly-work",
	Title: "A pod costs more CPU than in healthy runs",
	Doc: `A full machine is no fault, as long as a pod costs what it always does. Where a component takes more CPU for each pod than in any healthy run of the same load on the same kind of machine,
something is being done that need not be: the machine is full because of it.

**Evidence.** The recording carries a calibration (see [calibration.md](calibration.md)); a component's CPU per pod lies beyond what healthy runs vary by; the machine, or the component's quota, is at
least 85 % busy and pods lose time; and the excess is at least 10 % of the CPU used. Where CPU profiles were recorded, the finding names the work that most of it goes to.

**Claims.** Of the lost time, the share that the excess is of the CPU used. What detectors of known causes have claimed before stays theirs.

**Look-alikes.** A load that is larger than the calibrated one has another shape and is not compared. At a low rate a pod costs more, since less is done in bulk: only full resources are judged.`,
	Detect: detect,
}

type excess struct {
	component string
	inflation diagnose.Inflation
	seconds   float64
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	switch {
	case v.Observed:
		return diagnose.NotThere("nothing was loaded")
	case !v.Calibrated():
		return diagnose.NotAssessed("healthy runs of this load to compare with: kubedyno calibrate")
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	m, ok := v.MachineCPU(v.Plateau)
	if !ok {
		return diagnose.NotAssessed("the machine's CPU over at least 3 s of load")
	}
	var all []excess
	used := 0.0
	for _, c := range v.Components() {
		r, ok := v.Resource(c, "cpu")
		if !ok {
			continue
		}
		used += r.BusySeconds
		if v.IsHarness(c) {
			continue
		}
		if i, ok := v.Inflated("demand/" + r.Name); ok {
			all = append(all, excess{c, i, (i.Value - i.Healthy.Median) * float64(v.Arrived())})
		}
	}
	slices.SortStableFunc(all, func(a, b excess) int { return cmp.Compare(b.seconds, a.seconds) })
	if len(all) == 0 {
		return diagnose.NotThere("no component takes more CPU for a pod than in healthy runs")
	}
	worst := all[0]
	u, _, quota := v.QuotaUse(worst.component)
	share := worst.seconds / used
	switch {
	case m.Share < full && (!quota || u < full):
		return diagnose.NotThere("%s takes × %.1f of the usual CPU for a pod, but the machine is only %.0f %% busy", worst.component, worst.inflation.Factor(), 100*m.Share)
	case !v.Symptom():
		return diagnose.NotThere("%s takes × %.1f of the usual CPU for a pod, but pods were not held up", worst.component, worst.inflation.Factor())
	case share < matters:
		return diagnose.NotThere("%s takes × %.1f of the usual CPU for a pod, %.0f %% of all that was used", worst.component, worst.inflation.Factor(), 100*share)
	}
	i := worst.inflation
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: worst.component, Resource: "cpu", Sources: 1, Consumes: true,
		Cause: fmt.Sprintf("%s takes × %.1f of the usual CPU for a pod", worst.component, i.Factor()),
		Summary: fmt.Sprintf("%s takes %.1f ms of CPU for a pod; in %d healthy runs it took %.1f (%.1f at most). Without the difference the machine would have %.0f %% of the CPU that was used to spare.",
			worst.component, 1000*i.Value, i.Healthy.N, 1000*i.Healthy.Median, 1000*i.Healthy.Max, 100*share),
		Claims: map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: "calibration.json: " + i.Feature, Value: i.Value, Unit: "s", Text: fmt.Sprintf("%.1f ms a pod, %.1f in healthy runs (n=%d, at most %.1f)", 1000*i.Value, 1000*i.Healthy.Median, i.Healthy.N, 1000*i.Healthy.Max)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look at what it does: kubedyno functions RECORDING --component %s --per pod, and who asks for it: kubedyno requests RECORDING.", worst.component)},
		RefutedBy: "a healthy run of the same load that costs as much: calibrate again",
	}
	for _, e := range all[1:] {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "calibration.json: " + e.inflation.Feature, Value: e.inflation.Value, Unit: "s", Text: fmt.Sprintf("%s: %.1f ms a pod, %.1f in healthy runs", e.component, 1000*e.inflation.Value, 1000*e.inflation.Healthy.Median)})
	}
	if g, ok := dearest(v, worst.component); ok {
		f.CodePath = g.path
		f.Cause += ", most of the difference with " + g.path
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: " + worst.component + ", " + g.path, Value: g.value, Unit: "s", Text: fmt.Sprintf("%s: %.1f ms a pod, %.1f in healthy runs", g.path, 1000*g.value, 1000*g.healthy)})
		f.Sources = 2
	}
	for k, s := range v.LostStages() {
		if k == 0 {
			f.Stage = s.Name
		}
		f.Claims[s.Name] = share * *s.ExcessSeconds
	}
	return diagnose.Found(f)
}

// A growth is a kind of work and what it takes for a pod, here and usually.
type growth struct {
	path           string
	value, healthy float64
}

// dearest is the kind of work of a component that grew most, by its profiles; one
// that no healthy run had counts from nothing.
func dearest(v *diagnose.View, component string) (worst growth, ok bool) {
	prefix := diagnose.WorkOf(component, "")
	known := false
	for _, name := range slices.Sorted(maps.Keys(v.Features())) {
		path, is := strings.CutPrefix(name, prefix)
		if !is {
			continue
		}
		g := growth{path: path, value: v.Features()[name]}
		if h, has := v.Healthy(name); has {
			known = true
			if !h.Above(g.value) {
				continue
			}
			g.healthy = h.Median
		}
		if !ok || g.value-g.healthy > worst.value-worst.healthy {
			worst, ok = g, true
		}
	}
	return worst, ok && known
}

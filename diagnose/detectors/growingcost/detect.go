package growingcost

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/plugin"
)

// twice is the growth over the run from which it is a risk that is worth a word
// although nothing is held up by it yet.
const twice = 2.0

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "growing-cost",
	Title: "A cost grows with the number of pods",
	Doc: `What is quick with a thousand pods may not be with thirty thousand: work that looks at all pods for each new one grows with them, and the throughput falls.

**Evidence.** In windows of the plateau, what one pod costs a component (CPU), or what one cycle, plugin or sync takes, goes up with the number of pods that exist: Theil and Sen's slope,
Kendall's test for a trend with the share of false ones among all slopes held to 1 %, and a change of at least a quarter (for this finding, a doubling). Sampled stacks tell which function does the work: the innermost one
that holds 40 % of what the component's CPU for each pod grew by, from the first quarter of the arrivals to the last.

**Class.** Risk: it says what will be slow with more. Where a growing cost is what holds pods up already, the detector of that resource (scheduling-loop, machine-cpu) names it as well.

**Look-alikes.** A cost per pod that rises because the throughput falls: idle work is shared by fewer pods. What a component takes at rest is therefore taken out.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if v.Observed {
		return diagnose.NotThere("no pods were added")
	}
	if !v.SlopesAssessed {
		return diagnose.NotAssessed("a longer load: eight windows of 50 pods and of two scrapes at least")
	}
	var worst *diagnose.Slope
	for i := range v.Slopes {
		s := &v.Slopes[i]
		if v.IsHarness(s.Component) || s.Growth() < twice {
			continue
		}
		if worst == nil || s.AtTo-s.AtFrom > worst.AtTo-worst.AtFrom {
			worst = s
		}
	}
	if worst == nil {
		return diagnose.NotThere("nothing that was measured doubled while pods were added")
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: worst.Component, Resource: resource(worst), Stage: stage(worst), Sources: 1,
		Cause:     fmt.Sprintf("%s grows by %.2f ms for each 1,000 pods", worst.Name, 1000*worst.PerThousand),
		Summary:   fmt.Sprintf("%s grows with the number of pods: %.2f ms at %.0f, %.2f ms at %.0f; at this pace it is %.1f ms at twice as many.", title(worst.Name), 1000*worst.AtFrom, worst.From, 1000*worst.AtTo, worst.To, 1000*(worst.AtTo+worst.PerThousand*worst.To/1000)),
		Advice:    diagnose.Advice{Text: "Look at what does the work: kubedyno functions and kubedyno stacks of the run's last part beside its first."},
		RefutedBy: "a longer run in which the cost stays",
	}
	if g, ok := v.GrowingWork(worst.Component); ok {
		f.Sources = 2
		f.CodePath = g.Function
		where := plugin.Short(g.Function)
		if name, ok := plugin.Name(g.Function); ok {
			where = fmt.Sprintf("%s (scheduler plugin %s)", where, name)
		} else if p, ok := v.DearestPlugin(); ok && worst.Component == diagnose.Scheduler {
			name, _ := plugin.Name(p.Function)
			where = fmt.Sprintf("%s (most of the scheduler's CPU is in its plugin %s, in %s)", where, name, plugin.Short(p.Function))
			f.CodePath = p.Function
		}
		f.Summary += fmt.Sprintf(" %.0f %% of what %s's work for a pod grew by is in %s.", 100*g.Share, worst.Component, where)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "function", Ref: "stacks: " + g.Function, Value: g.Late - g.Early, Unit: "s/pod",
			Text: fmt.Sprintf("%s took %.2f ms of CPU for each pod in the run's first quarter, %.2f ms in its last (%d samples)", plugin.Short(g.Function), 1000*g.Early, 1000*g.Late, g.Samples)})
		f.Advice.Text = fmt.Sprintf("Find out why %s looks at all pods for each new one, and keep a count instead. Its callers: kubedyno stacks, for the run's last part.", where)
		of, _ := plugin.Name(f.CodePath)
		if a, ok := plugin.Advice(v, of); ok {
			f.Advice = a
		}
	} else if p, ok := v.DearestPlugin(); ok && worst.Component == diagnose.Scheduler {
		// Too few samples to see one function grow; where the time goes is known.
		name, _ := plugin.Name(p.Function)
		f.CodePath = p.Function
		f.Summary += fmt.Sprintf(" %.0f %% of the scheduler's CPU is in its plugin %s, in %s.", 100*p.Share, name, plugin.Short(p.Function))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "function", Ref: "stacks: " + p.Function, Value: p.Share, Unit: "1",
			Text: fmt.Sprintf("of the scheduler's CPU was in %s (%d samples)", plugin.Short(p.Function), p.Samples)})
		if a, ok := plugin.Advice(v, name); ok {
			f.Advice = a
		}
	}
	for _, s := range v.Slopes {
		if v.IsHarness(s.Component) || s.Component != worst.Component || s.Growth() < 1 {
			continue
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "slope", Ref: s.Feature, Value: s.PerThousand, Unit: "s/1000 pods",
			Text: fmt.Sprintf("%s: %.3g ms at %.0f pods, %.3g ms at %.0f (R² %.2f, p %.2g, n=%d)", s.Name, 1000*s.AtFrom, s.From, 1000*s.AtTo, s.To, s.R2, s.P, s.N)})
	}
	return diagnose.Found(f)
}

func resource(s *diagnose.Slope) string {
	switch {
	case s.Feature == "cpu":
		return "cpu"
	case s.Component == diagnose.Etcd:
		return "disk"
	}
	return "loop"
}

func stage(s *diagnose.Slope) string {
	if s.Component == diagnose.Scheduler {
		return diagnose.Decide
	}
	return ""
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

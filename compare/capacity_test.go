package compare

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/record"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

// A control plane that takes 20 ms of CPU for a pod and 0.1 cores at rest, run
// twice at each of four numbers of cores with noise of 4 %: the ladder says what a
// fifth comes to, and its interval holds that.
func TestLadderPredictsWhatWasHeldOut(t *testing.T) {
	off, missed := 0, 0
	const tries = 300
	for seed := range uint64(tries) {
		rng := rand.New(rand.NewPCG(seed, 5))
		rate := func(cores float64) float64 { return (cores - 0.1) / 0.02 * math.Exp(0.04*rng.NormFloat64()) }
		c := Capacity{Saturated: true}
		for _, cores := range []float64{0.4, 0.6, 0.8, 1.0, 1.2} {
			at := CapacityAt{Cores: cores, BoundByCPU: true}
			var rates []float64
			for range 2 {
				p := Probe{Valid: true, Rate: rate(cores)}
				at.Probes, rates = append(at.Probes, p), append(rates, p.Rate)
			}
			a := AverageOf(rates)
			at.Value, at.N = a.Value, a.N
			c.At = append(c.At, at)
		}
		c.Climb(1.0)
		if c.Ladder == nil || len(c.Ladder.Held) != 1 || c.Ladder.N != 8 {
			t.Fatalf("%+v", c.Ladder)
		}
		h := c.Ladder.Held[0]
		if math.Abs(h.Rate/45-1) > 0.15 {
			off++
		}
		if one := rate(1.0); one < h.Interval.Lo || one > h.Interval.Hi {
			missed++
		}
	}
	if off > 0 {
		t.Errorf("%d of %d predictions are more than 15 %% off", off, tries)
	}
	if missed > tries*9/100 {
		t.Errorf("%d of %d intervals at 95 %% miss another run", missed, tries)
	}
}

func TestLadderKnowsItsLimits(t *testing.T) {
	if _, _, ok := LadderOf([]CorePoint{{1, 10}, {1, 11}, {1, 9}}); ok {
		t.Error("one number of cores has a line")
	}
	if _, _, ok := LadderOf([]CorePoint{{1, 20}, {2, 10}, {3, 5}}); ok {
		t.Error("a line that falls has a ladder")
	}
	// A client limit at 20/s: numbers of cores that it holds are left out of the
	// line, and rungs end there.
	c := Capacity{Saturated: true}
	for _, x := range []struct{ cores, rate float64 }{{0.2, 8}, {0.3, 12}, {0.4, 16}, {1, 20}} {
		c.At = append(c.At, CapacityAt{Cores: x.cores, Value: x.rate, N: 1, BoundByCPU: x.cores < 1, Probes: []Probe{{Valid: true, Rate: x.rate}},
			Demands: []Demand{{Name: "client limit of kube-controller-manager", Kind: "client-limit", Bound: Average{Value: 20, N: 1}}}})
	}
	c.Climb(0)
	l := c.Ladder
	if l == nil || l.N != 3 || math.Abs(l.PerCore-40) > 0.1 || !strings.Contains(l.Next, "client limit") {
		t.Fatalf("%+v", l)
	}
	for _, r := range l.Rungs {
		if !r.Capped || r.Rate != 20 || !r.Computed {
			t.Errorf("%+v", r)
		}
	}
	if len(c.Warnings) != 1 {
		t.Errorf("warnings: %q", c.Warnings)
	}
}

func TestProbe(t *testing.T) {
	d := &diagnose.Diagnosis{
		Valid: true, Throughput: &stat.Throughput{Mean: 19.5}, Pods: diagnose.PodCounts{Running: 100}, Window: diagnose.WindowOf{Seconds: 5},
		Objectives: []record.Objective{{Name: "a", Assessed: true, Met: true, Value: 1, Limit: 2, Unit: "s"}, {Name: "b", Assessed: true, Value: 9, Limit: 5, Unit: "s"}},
		Harness:    diagnose.Harness{ByProcess: []diagnose.ProcessCPU{{Component: "etcd", CPUSeconds: 1}, {Component: "kubedyno", Harness: true, CPUSeconds: 7}, {Component: "kube-apiserver", CPUSeconds: 2}}},
		Findings:   []diagnose.Finding{{Class: diagnose.Waste, Summary: "waste"}, {Class: diagnose.Bottleneck, Summary: "it binds"}},
	}
	p := ProbeOf(d, 20)
	if p.Passed || !strings.HasPrefix(p.Why, "b 9 s") || p.Binds != "it binds" || p.Rate != 19.5 || math.Abs(p.CPUPerPod-0.03) > 1e-9 || math.Abs(p.CoresUsed-0.6) > 1e-9 {
		t.Errorf("%+v", p)
	}
	d.Objectives[1].Met = true
	if p := ProbeOf(d, 20); !p.Passed {
		t.Errorf("all is met: %+v", p)
	}
	d.Objectives[1].Assessed = false
	if p := ProbeOf(d, 20); p.Passed {
		t.Error("what is not assessed is not met")
	}
	d.Valid, d.InvalidReasons = false, []string{"late"}
	if p := ProbeOf(d, 20); p.Passed || p.Valid || !strings.Contains(p.Why, "late") {
		t.Errorf("%+v", p)
	}
}

// Two rates that differ much leave the mean open, but never below nothing.
func TestAmountsAreNotNegative(t *testing.T) {
	rates := []float64{85.9, 52.1}
	if a := AverageOf(rates); a.Interval.Lo >= 0 {
		t.Fatalf("the interval of %v is %v: these rates prove nothing", rates, *a.Interval)
	}
	if a := AverageOfAmounts(rates); a.Interval.Lo != 0 || a.Interval.Hi < 85.9 || a.Value != 69 {
		t.Errorf("%v pods/s on average, %v", a.Value, *a.Interval)
	}
}

package compare

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/analysis/usage"
)

// planted are layers whose cost is known, on a machine on which an observer and
// others work too and which gets slower from window to window. drift is by how much. fake is the kernel's work on
// top, missing what no process shows.
func planted(rounds int, noise, drift float64, seed uint64, fake, missing map[string]float64) (OverheadPlan, []OverheadReading) {
	costs := []struct {
		name    string
		role    Role
		cluster float64 // cores of its processes
		kernel  float64 // on top
	}{
		{"without", Without, 0, 0}, {"etcd", Layered, 0.015, 0.001}, {"kube-apiserver", Layered, 0.06, 0.004},
		{"node", Layered, 0.07, 0.005}, {"add-ons", Layered, 0.10, 0.006}, {"whole", Whole, 0.10, 0.006},
		{"event-driven", Instead, 0.075, 0.005}, {"without again", Bare, 0, 0},
	}
	p := OverheadPlan{Of: "test", Rounds: rounds}
	for _, c := range costs {
		p.Stacks = append(p.Stacks, Stack{Name: c.name, Role: c.role})
	}
	p.Stacks = append(p.Stacks, Stack{Name: "paused", Role: Paused, Of: "node"})
	rng := rand.New(rand.NewPCG(seed, 7))
	var all []OverheadReading
	when := 0.0
	for round := 1; round <= rounds; round++ {
		for i := range costs {
			c := costs[i]
			if round%2 == 0 {
				c = costs[len(costs)-1-i]
			}
			when++
			const seconds = 10
			kernel := 0.01 + c.kernel + drift*when + noise*rng.NormFloat64() + fake[c.name]
			cluster := c.cluster * (1 + noise*rng.NormFloat64())
			others := 0.3 * rng.Float64()
			w := usage.Window{Seconds: seconds, CPUs: 2, Busy: seconds * (kernel + cluster + 0.02 + others + 0.003 + missing[c.name]), Rows: []usage.Row{
				{Name: "etcd", Component: true, CPUSeconds: seconds * cluster, Wakeups: seconds * 100 * c.cluster},
				{Name: "kubedyno", Component: true, CPUSeconds: seconds * 0.02},
				{Name: "cc1", CPUSeconds: seconds * others},
				{Name: usage.Kernel, CPUSeconds: seconds * kernel},
			}}
			all = append(all, OverheadReading{Stack: c.name, Round: round, Window: w})
			if c.name == "node" {
				all = append(all, OverheadReading{Stack: "paused", Round: round, Window: usage.Window{Seconds: seconds, CPUs: 2, Rows: []usage.Row{{Name: usage.Kernel, CPUSeconds: seconds * (0.01 + drift*when + noise*rng.NormFloat64())}}}})
			}
		}
	}
	return p, all
}

// Layers come out as they were planted, whatever our own processes and others do
// beside them, and a machine that drifts puts no layer at a disadvantage.
func TestOverheadFindsPlantedLayers(t *testing.T) {
	want := map[string]float64{"etcd": 0.016, "kube-apiserver": 0.048, "node": 0.011, "add-ons": 0.031}
	missed, steps := 0, 0
	for seed := range uint64(50) {
		o := OverheadOf(planted(4, 0.001, 0.0003, seed, nil, nil))
		for _, l := range o.Layers[1:] {
			steps++
			if l.Step.N != 4 || l.Step.Interval == nil {
				t.Fatalf("%s has n=%d, interval %v", l.Name, l.Step.N, l.Step.Interval)
			}
			if w := want[l.Name]; l.Step.Interval.Lo > w || l.Step.Interval.Hi < w {
				missed++
			}
			if l.Step.Half() > 0.01 {
				t.Errorf("%s: %v cores to each side say nothing", l.Name, l.Step.Half())
			}
		}
	}
	if share := float64(missed) / float64(steps); share > 0.1 {
		t.Errorf("%.0f %% of intervals at 95 %% miss what was planted", 100*share)
	}
}

func TestOverheadSaves(t *testing.T) {
	o := OverheadOf(planted(4, 0.001, 0, 1, nil, nil))
	if len(o.Instead) != 1 || !o.Instead[0].Saved.Excludes(0) || o.Instead[0].Saved.Interval.Lo > 0.026 || o.Instead[0].Saved.Interval.Hi < 0.026 {
		t.Errorf("event-driven: %+v", o.Instead)
	}
	if o.Paused == nil || o.Paused.Than != "node" || o.Paused.Saved.Interval.Lo > 0.075 || o.Paused.Saved.Interval.Hi < 0.075 {
		t.Errorf("paused: %+v", o.Paused)
	}
	if o.Layers[3].Wakeups.N != 4 {
		t.Errorf("wakeups of the node: %+v", o.Layers[3].Wakeups)
	}
}

// The checks can fail: something that was there for the whole only, and a clock
// of the machine that counts less than its processes'.
func TestOverheadThatDoesNotAddUp(t *testing.T) {
	good := 0
	for seed := range uint64(40) {
		if OverheadOf(planted(4, 0.001, 0, seed, nil, nil)).Err() == nil {
			good++
		}
	}
	if good < 34 { // two checks at 95 %
		t.Errorf("%d of 40 sound series pass", good)
	}
	err := OverheadOf(planted(4, 0.001, 0, 1, map[string]float64{"whole": 0.05}, nil)).Err()
	if !errors.Is(err, ErrDoesNotAddUp) || !strings.Contains(err.Error(), "layers") {
		t.Errorf("the whole is 0.05 more than its layers: %v", err)
	}
	err = OverheadOf(planted(4, 0.001, 0, 1, nil, map[string]float64{"add-ons": -0.05})).Err()
	if !errors.Is(err, ErrDoesNotAddUp) || !strings.Contains(err.Error(), "processes") {
		t.Errorf("the machine counts less than the processes: %v", err)
	}
	err = OverheadOf(planted(4, 0.001, 0, 1, nil, map[string]float64{"add-ons": 0.2})).Err()
	if !errors.Is(err, ErrDoesNotAddUp) || !strings.Contains(err.Error(), "no process shows") {
		t.Errorf("the machine does 0.2 more than any process shows: %v", err)
	}
	one := OverheadOf(planted(1, 0.001, 0, 1, map[string]float64{"whole": 0.05}, nil))
	if one.Err() != nil || one.Checks[0].Assessed {
		t.Errorf("one round can show nothing: %+v", one.Checks)
	}
}

func TestOverheadWarnsOfOthers(t *testing.T) {
	o := OverheadOf(planted(4, 0.001, 0, 1, nil, nil))
	if text := strings.Join(o.Warnings, "\n"); !strings.Contains(text, "do not belong here") || !strings.Contains(text, "cc1") {
		t.Errorf("others use 0.15 cores: %q", text)
	}
	for _, p := range o.Processes {
		if want := map[string]string{"etcd": OfCluster, "kubedyno": OfObserver, "cc1": OfOthers, usage.Kernel: OfKernel}[p.Name]; p.Owner != want {
			t.Errorf("%s belongs to %s", p.Name, p.Owner)
		}
	}
}

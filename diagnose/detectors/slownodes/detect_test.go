package slownodes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// A node that works on one pod at a time is told from a busy machine by its gaps, or,
// where reports come early or late, by rows of them; pods that come evenly tell nothing.
func TestOneAfterAnother(t *testing.T) {
	second := func(s float64) int64 { return int64(1e6 * (100 + s)) }
	for _, c := range []struct {
		name string
		// came and ran are when pod i of a node came and ran, in seconds.
		came, ran func(rng *rand.Rand, i int) float64
		one, own  bool
	}{
		{
			name: "one at a time", one: true, own: true,
			came: func(_ *rand.Rand, i int) float64 { return 0.1 * float64(i) },
			ran:  func(rng *rand.Rand, i int) float64 { return 0.5*float64(i+1) + 0.02*rng.Float64() },
		},
		{
			name: "one at a time, with reports that come late", one: true, own: true,
			came: func(_ *rand.Rand, i int) float64 { return 0.1 * float64(i) },
			ran:  func(rng *rand.Rand, i int) float64 { return 0.5*float64(i+1) + 0.45*rng.Float64() },
		},
		{
			name: "all late, as evenly as they come", one: true,
			came: func(_ *rand.Rand, i int) float64 { return 0.5 * float64(i) },
			ran:  func(rng *rand.Rand, i int) float64 { return 0.5*float64(i) + 0.6 + 0.45*rng.Float64() },
		},
		{
			name: "one at a time, once all have their image", one: true, own: true,
			came: func(_ *rand.Rand, i int) float64 { return 0.1 * float64(i) },
			ran: func(rng *rand.Rand, i int) float64 {
				if i < 10 { // their starts were worked on while the image was pulled
					return 5 + 0.1*rng.Float64()
				}
				return 0.5*float64(i+1) + 0.3*rng.Float64()
			},
		},
		{
			name: "all at once, when they have their image, and others as they come",
			came: func(_ *rand.Rand, i int) float64 { return 0.3 * float64(i) },
			ran: func(rng *rand.Rand, i int) float64 {
				return max(5, 0.3*float64(i)+0.4) + 0.1*rng.Float64()
			},
		},
		{
			name: "as a busy machine has it",
			came: func(_ *rand.Rand, i int) float64 { return 0.1 * float64(i) },
			ran:  func(rng *rand.Rand, i int) float64 { return 0.1*float64(i) + 20*rng.Float64() },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			v := &diagnose.View{}
			for i := range 200 {
				v.Pods = append(v.Pods, record.Pod{Node: fmt.Sprint(i % 5), BoundMicros: second(c.came(rng, i/5)), RunningMicros: second(c.ran(rng, i/5))})
			}
			q, one := oneAfterAnother(v, 0.3)
			if one != c.one || one && q.own != c.own {
				t.Errorf("one at a time %v, the node's own %v: %+v", one, q.own, q)
			}
		})
	}
}

func TestLarge(t *testing.T) {
	pull, sandbox := clocked{beyond: 30}, clocked{step: step{asks: true}, beyond: 40}
	for _, c := range []struct {
		name    string
		least   float64
		volumes bool
		want    []float64 // pod-seconds
	}{
		{name: "both", least: 30, want: []float64{40, 30}},
		{name: "the pull is too little", least: 31, want: []float64{40}},
		{name: "the sandbox may have waited for volumes", least: 30, volumes: true, want: []float64{30}},
		{name: "neither", least: 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := large([]clocked{sandbox, pull}, c.least, c.volumes)
			if len(got) != len(c.want) {
				t.Fatalf("%d steps, want %d", len(got), len(c.want))
			}
			for i, x := range got {
				if x.beyond != c.want[i] {
					t.Errorf("step %d took %g, want %g", i, x.beyond, c.want[i])
				}
			}
		})
	}
}

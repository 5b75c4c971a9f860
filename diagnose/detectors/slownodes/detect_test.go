package slownodes

import "testing"

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

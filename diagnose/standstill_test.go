package diagnose

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
)

func TestStandstills(t *testing.T) {
	const unknown = -1
	for _, c := range []struct {
		name     string
		switches []int64 // by samples of every second
		cpu      []float64
		want     []float64 // from, until
		known    bool
	}{
		{name: "runs all the time", switches: []int64{10, 20, 30, 40, 50}, known: true},
		{name: "stands and goes on", switches: []int64{10, 20, 20, 20, 20, 30}, want: []float64{1, 4}, known: true},
		{name: "stands to the end", switches: []int64{10, 20, 20, 20}, want: []float64{1, 3}, known: true},
		{name: "too short to tell", switches: []int64{10, 20, 20, 30}, known: true},
		{name: "twice", switches: []int64{10, 10, 10, 20, 20, 20}, want: []float64{0, 2, 3, 5}, known: true},
		{name: "one thread computes without a pause", switches: []int64{10, 10, 10, 10}, cpu: []float64{0, 1, 2, 3}, known: true},
		{name: "not readable", switches: []int64{unknown, unknown, unknown, unknown}},
		{name: "not readable for a while", switches: []int64{10, unknown, unknown, unknown, 40, 50}, known: true},
		{name: "never recorded", switches: []int64{0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ss []record.ProcessSample
			for i, n := range c.switches {
				s := record.ProcessSample{TimeMicros: int64(i) * 997_000, // never to the microsecond
					VoluntarySwitches: n}
				if c.cpu != nil {
					s.UserSeconds = c.cpu[i]
				}
				ss = append(ss, s)
			}
			v := &View{processes: map[string][]process{Etcd: {{ss}}}}
			got, known := v.Standstills(Etcd)
			if known != c.known || 2*len(got) != len(c.want) {
				t.Fatalf("%d stretches, known %t; want %d, %t", len(got), known, len(c.want)/2, c.known)
			}
			for i, w := range got {
				if from, until := math.Round(float64(w.Start.UnixMicro())/1e6), math.Round(float64(w.End.UnixMicro())/1e6); from != c.want[2*i] || until != c.want[2*i+1] {
					t.Errorf("stood from %.0f s to %.0f s, want %.0f to %.0f", from, until, c.want[2*i], c.want[2*i+1])
				}
			}
		})
	}
}

// A machine whose observer had no CPU for as long tells nothing of the others.
func TestNobodyLookedMeanwhile(t *testing.T) {
	at := func(seconds ...float64) (ps []record.ProcessSample, ms []record.MachineSample) {
		for _, x := range seconds {
			ps = append(ps, record.ProcessSample{TimeMicros: int64(x * 1e6), VoluntarySwitches: 10})
			ms = append(ms, record.MachineSample{TimeMicros: int64(x * 1e6)})
		}
		ps[len(ps)-1].VoluntarySwitches = 20
		return ps, ms
	}
	for _, c := range []struct {
		at   []float64
		want int
	}{
		{[]float64{0, 1, 2, 3, 4}, 1},
		{[]float64{0, 2.7, 3.7}, 0},
		{[]float64{0, 1.4, 2.7, 3.7}, 1},
	} {
		ps, ms := at(c.at...)
		v := &View{processes: map[string][]process{Etcd: {{ps}}}, machine: ms}
		if got, _ := v.Standstills(Etcd); len(got) != c.want {
			t.Errorf("samples at %v: %d stretches, want %d", c.at, len(got), c.want)
		}
	}
}

// Summed up by windows it is the same as each stretch set against each window.
func TestCoverage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1000, 0)
		at := func(s float64) time.Time { return start.Add(time.Duration(s * 1e9)) }
		var windows []record.Window
		var edges [][2]float64
		to := -5.0
		for range rapid.IntRange(0, 8).Draw(t, "windows") {
			from := to + rapid.Float64Range(0, 3).Draw(t, "gap")
			to = from + rapid.Float64Range(0, 3).Draw(t, "length")
			windows, edges = append(windows, record.Window{Start: at(from), End: at(to)}), append(edges, [2]float64{from, to})
		}
		slices.Reverse(windows) // no order is asked for
		covered := coverage(start, windows)
		in := rapid.Float64Range(-10, 30).Draw(t, "in")
		out := in + rapid.Float64Range(0, 30).Draw(t, "stay")
		want := 0.0
		for _, e := range edges {
			want += max(0, min(out, e[1])-max(in, e[0]))
		}
		if got := covered(out) - covered(in); math.Abs(got-want) > 1e-6 {
			t.Fatalf("from %g to %g: %g s, want %g, of %v", in, out, got, want, edges)
		}
	})
}

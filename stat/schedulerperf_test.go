package stat_test

import (
	"math"
	"testing"

	"github.com/kubedyno/kubedyno/stat"
)

// at lists n events in each second, spread over it, from the first event on.
func at(perSecond ...int) []float64 {
	times := []float64{100} // any clock
	for second, n := range perSecond {
		for i := range n {
			times = append(times, 100+float64(second)+float64(i+1)/float64(n+1))
		}
	}
	return times
}

func TestSchedulerPerfOf(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []float64
		want   stat.SchedulerPerf
	}{
		// The first second is an outlier by rule, however many events it has.
		{"first second dropped", at(500, 10, 20, 30), stat.SchedulerPerf{Average: 20, Perc50: 20, Perc90: 30, Perc95: 30, Perc99: 30, Samples: 3, N: 60}},
		// 40 events after one idle second are 20/s, twice.
		{"idle second spread", at(5, 10, 0, 40, 10), stat.SchedulerPerf{Average: 15, Perc50: 10, Perc90: 20, Perc95: 20, Perc99: 20, Samples: 4, N: 60}},
		{"two idle seconds", at(5, 0, 0, 30), stat.SchedulerPerf{Average: 10, Perc50: 10, Perc90: 10, Perc95: 10, Perc99: 10, Samples: 3, N: 30}},
		// Nearest rank of 1 … 20: the 10th, 18th, 19th and 20th.
		{"ranks", at(append([]int{7}, upTo(20)...)...), stat.SchedulerPerf{Average: 10.5, Perc50: 10, Perc90: 18, Perc95: 19, Perc99: 20, Samples: 20, N: 210}},
	} {
		got, ok := stat.SchedulerPerfOf(c.events)
		if !ok || math.Abs(got.Average-c.want.Average) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			continue
		}
		if got.Average = c.want.Average; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func upTo(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// What is over within its first second gives no number, as upstream says.
func TestSchedulerPerfOfTooShort(t *testing.T) {
	for _, events := range [][]float64{nil, {5}, at(300), {1, 1, 1}} {
		if got, ok := stat.SchedulerPerfOf(events); ok {
			t.Errorf("%d events: %+v", len(events), got)
		}
	}
}

package stat

import (
	"math"
	"slices"
)

// SchedulerPerf is a throughput by the rules of Kubernetes' own benchmark of its
// scheduler, test/integration/scheduler_perf, so that a number can be set beside
// upstream's. Throughput is the better one for most uses: here the mean is one
// of samples, so that a short last second weighs as much as a full one.
type SchedulerPerf struct {
	Average float64 `json:"average"`
	Perc50  float64 `json:"perc50"`
	Perc90  float64 `json:"perc90"`
	Perc95  float64 `json:"perc95"`
	Perc99  float64 `json:"perc99"`
	Samples int     `json:"samples"` // of 1 s each
	N       int     `json:"n"`       // events in them
}

// SchedulerPerfOf samples event times (seconds, any order) as upstream's
// throughputCollector does (util.go in v1.36.3), with a clock that is exact:
//
//   - A sample is taken each second from the first event on; events of the first
//     second are not in any sample.
//   - A second without an event gives no sample. The next one's events are spread
//     over all seconds since the last sample, and count as one sample for each.
//   - Average is the mean of samples, percentiles are nearest rank.
//
// Upstream's collection ends when it has seen the last pod bound, which it looks
// at once a second, so that a last second that is not over is a sample where
// the look comes after its tick. Here the second of the last event is a whole
// one. ok is false where no sample is: upstream then says that the workload is
// too short to be measured.
func SchedulerPerfOf(times []float64) (t SchedulerPerf, ok bool) {
	if len(times) == 0 {
		return t, false
	}
	s := sorted(times)
	second := func(x float64) int { return int(math.Ceil(x - s[0] - 1e-9)) } // the tick that counts it
	perTick := make([]int, max(second(s[len(s)-1]), 1)+1)
	for _, x := range s {
		perTick[max(second(x), 1)]++
	}
	var samples []float64
	idle := 0
	for _, n := range perTick[min(2, len(perTick)):] {
		idle++
		if n == 0 {
			continue
		}
		for range idle {
			samples = append(samples, float64(n)/float64(idle))
		}
		t.N += n
		idle = 0
	}
	if len(samples) == 0 {
		return SchedulerPerf{}, false
	}
	t.Samples, t.Average = len(samples), Sum(samples)/float64(len(samples))
	slices.Sort(samples)
	at := func(percent int) float64 {
		return samples[int(math.Ceil(float64(len(samples)*percent)/100))-1]
	}
	t.Perc50, t.Perc90, t.Perc95, t.Perc99 = at(50), at(90), at(95), at(99)
	return t, true
}

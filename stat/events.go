package stat

import (
	"math"
	"slices"
)

// InterArrivalCV is the coefficient of variation of the gaps between events:
// about 0 for a metronome, 1 for a Poisson process, more for bursts. Times are
// seconds in any order; ok is false for fewer than 10 events.
func InterArrivalCV(times []float64) (cv float64, ok bool) {
	if len(times) < 10 {
		return 0, false
	}
	return CV(gaps(sorted(times)))
}

func gaps(s []float64) []float64 {
	g := make([]float64, 0, len(s))
	for i := 1; i < len(s); i++ {
		g = append(g, s[i]-s[i-1])
	}
	return g
}

// MeanRate is events per second over the middle of their stretch: between the
// 5 % and the 95 % event, so that a burst at the start or stragglers at the
// end do not decide. ok is false for fewer than 20 events or all at once.
func MeanRate(times []float64) (rate float64, ok bool) {
	n := len(times)
	if n < 20 {
		return 0, false
	}
	s := sorted(times)
	lo, hi := n/20, n-1-n/20
	span := s[hi] - s[lo]
	if span <= 0 {
		return 0, false
	}
	return float64(hi-lo) / span, true
}

// Throughput is a rate over time as sig-scalability's scheduler_perf samples
// it, with the mean weighted by time.
type Throughput struct {
	// Mean is events over real time, from the end of the first sample to the
	// last event. It is the headline.
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	Max  float64 `json:"max"`
	// Samples are rates of 1 s each; an idle second carries the rate that the
	// next event spread over it.
	Samples []float64 `json:"-"`
	Seconds float64   `json:"seconds"` // that Mean covers
	N       int       `json:"n"`       // events that Mean covers
}

// ThroughputOf samples event times (seconds, any order) once a second from the
// first event on. The first sample is dropped: it holds bursts that buckets
// and queues let through. A second without events does not count as zero: the
// next one's events are spread over the real time since the last. The last
// sample ends with the last event instead of at its second. ok is false where
// events span less than 2 s: then there is no rate to speak of.
func ThroughputOf(times []float64) (t Throughput, ok bool) {
	if len(times) == 0 {
		return t, false
	}
	s := sorted(times)
	first, last := s[0], s[len(s)-1]
	if last-first < 2 {
		return t, false
	}
	upTo := func(at float64) int { // events at or before at
		i, _ := slices.BinarySearchFunc(s, at, func(x, at float64) int {
			if x <= at {
				return -1
			}
			return 1
		})
		return i
	}
	begin := first + 1
	start, have := begin, upTo(begin)
	first0 := have
	for tick := begin + 1; ; tick++ {
		end := min(tick, last)
		// A sliver at the end joins the sample before it: 2 events in 10 ms
		// are not 200 a second.
		if last-end < 0.5 {
			end = last
		}
		n := upTo(end)
		if n > have {
			rate := float64(n-have) / (end - start)
			for range max(1, int(math.Round(end-start))) {
				t.Samples = append(t.Samples, rate)
			}
			start, have = end, n
		}
		if end >= last {
			break
		}
	}
	t.N = have - first0
	t.Seconds = last - begin
	if t.N == 0 || t.Seconds <= 0 {
		return Throughput{}, false
	}
	t.Mean = float64(t.N) / t.Seconds
	r := sorted(t.Samples)
	t.P50, t.P90, t.Max = QuantileSorted(r, 0.5), QuantileSorted(r, 0.9), r[len(r)-1]
	return t, true
}

// Plateau describes a stream of events that keeps one rate.
type Plateau struct {
	Rate    float64 `json:"rate"`    // median of the segments' rates, 1/s
	N       int     `json:"n"`       // events judged
	Seconds float64 `json:"seconds"` // that they span
	CV      float64 `json:"cv"`      // of the gaps between them
	// Flat is the share of segments within 10 % of Rate: 1 for a limiter that
	// always binds, low for work that speeds up and slows down.
	Flat     float64 `json:"flat"`
	Segments int     `json:"segments"`
}

// plateauMin is the fewest events that make a plateau: three segments of ten.
const plateauMin = 30

// PlateauOf finds the rate at which a stream settles after its first skip
// events (a token bucket's burst passes at once and says nothing about its
// rate). The stream is cut into up to ten segments of equal count; each one's
// rate is the least-squares slope of the running count over time, and their
// median decides, so that a pause or a second burst does not. ok is false for
// fewer than 30 events, or less than 1 s, after the burst.
func PlateauOf(times []float64, skip int) (p Plateau, ok bool) {
	s := sorted(times)
	s = s[min(max(skip, 0), len(s)):]
	if len(s) < plateauMin || s[len(s)-1]-s[0] < 1 {
		return p, false
	}
	p.N, p.Seconds = len(s), s[len(s)-1]-s[0]
	if p.CV, ok = CV(gaps(s)); !ok {
		return Plateau{}, false
	}
	p.Segments = min(10, len(s)/10)
	var rates []float64
	for i := range p.Segments {
		seg := s[i*len(s)/p.Segments : (i+1)*len(s)/p.Segments]
		count := make([]float64, len(seg))
		for j := range count {
			count[j] = float64(j)
		}
		fit, ok := LeastSquares(seg, count)
		if !ok {
			continue // a segment all at once: a burst
		}
		rates = append(rates, fit.Slope)
	}
	if len(rates) < 3 {
		return Plateau{}, false
	}
	p.Rate = Median(rates)
	near := 0
	for _, r := range rates {
		if math.Abs(r-p.Rate) <= 0.1*p.Rate {
			near++
		}
	}
	p.Flat = float64(near) / float64(p.Segments)
	return p, true
}

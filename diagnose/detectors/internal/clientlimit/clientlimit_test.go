package clientlimit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/clientlimit"
)

func TestABucketIsEmptyWhereRequestsFollowEachOtherAtTheLimit(t *testing.T) {
	start := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(from, rate float64, n int) (ts []float64) {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			// Turns of threads delay a request; the limiter gives the next one its own time.
			ts = append(ts, from+float64(i)/rate+0.2/rate*r.Float64())
		}
		return ts
	}
	join := func(parts ...[]float64) (ts []float64) {
		for _, p := range parts {
			ts = append(ts, p...)
		}
		return ts
	}
	for _, test := range []struct {
		name     string
		requests []float64
		rate     float64
		seconds  float64 // that the bucket is empty, to a tenth
	}{
		{"all the time", at(0, 20, 400), 20, 20},
		{"of a low limit", at(0, 0.5, 20), 0.5, 38},
		{"one request that is a second late", join(at(0, 20, 200), at(11, 20, 200)), 20, 20},
		{"two batches, far from each other", join(at(0, 20, 100), at(30, 20, 100)), 20, 10},
		{"tries of some requests each", join(at(0, 20, 200), at(20, 20, 8), at(30, 20, 8), at(50, 20, 8)), 20, 10},
		{"half the limit", at(0, 10, 200), 20, 0},
		{"nothing", nil, 20, 0},
	} {
		got := 0.0
		last := time.Time{}
		for _, w := range clientlimit.Empty(test.requests, test.rate, start) {
			if w.Start.Before(last) {
				t.Errorf("%s: windows overlap", test.name)
			}
			last = w.End
			got += w.Seconds()
		}
		if got < test.seconds*0.9 || got > test.seconds*1.1 {
			t.Errorf("%s: empty for %.1f s, want %.1f", test.name, got, test.seconds)
		}
	}
}

package stacks

import (
	"math"
	"testing"
)

// What happens regularly is sampled as often as its length says, whenever it begins.
func TestRateIsInStepWithNothing(t *testing.T) {
	const length = 0.2                                                            // of the time between two samples
	for _, every := range []float64{0.004, 0.01, 0.1, 0.2, 1, 2, 5, 10, 15, 30} { // seconds
		for begin := 0.0; begin < 1; begin += 0.05 {
			hits, n := 0, 150
			for i := range n {
				if _, phase := math.Modf(begin + float64(i)*every*Rate); phase < length {
					hits++
				}
			}
			if share := float64(hits) / float64(n); math.Abs(share-length) > 0.05 {
				t.Errorf("what takes %.0f %% of a sampling interval every %g s, begun at %.2f of one, is in %.0f %% of the samples", 100*length, every, begin, 100*share)
			}
		}
	}
}

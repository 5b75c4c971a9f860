package stat_test

import (
	"math"
	"testing"

	"github.com/kubedyno/kubedyno/stat"
)

// Values of Newcombe (1998, Statistics in Medicine 17, 857), table I, method 3.
func TestProportion(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{
		{81, 263, 0.2553, 0.3662},
		{15, 148, 0.0624, 0.1605},
		{0, 20, 0, 0.1611},
		{1, 29, 0.0061, 0.1718},
		{29, 29, 0.8830, 1},
	} {
		i, ok := stat.Proportion(c.k, c.n, 0.95)
		if !ok || math.Abs(i.Lo-c.low) > 5e-5 || math.Abs(i.Hi-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, %v; want %.4f to %.4f", c.k, c.n, i.Lo, i.Hi, ok, c.low, c.high)
		}
	}
	if _, ok := stat.Proportion(0, 0, 0.95); ok {
		t.Error("no trial has an interval")
	}
}

package stat

import "testing"

func TestInterpolate(t *testing.T) {
	times, values := []int64{10, 20, 40}, []float64{1, 3, 4}
	for at, want := range map[int64]float64{0: 1, 10: 1, 15: 2, 20: 3, 30: 3.5, 40: 4, 99: 4} {
		if got := Interpolate(times, values, at); got != want {
			t.Errorf("at %d: got %v, want %v", at, got, want)
		}
	}
}

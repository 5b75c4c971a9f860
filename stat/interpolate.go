package stat

import "slices"

// Interpolate returns a series at a moment: straight between two samples, and
// beyond the first and the last of them what it was there. Times ascend, in any
// one unit; there is at least one sample.
func Interpolate(times []int64, values []float64, t int64) float64 {
	i, found := slices.BinarySearch(times, t)
	switch {
	case found:
		return values[i]
	case i == 0:
		return values[0]
	case i == len(times):
		return values[i-1]
	}
	share := float64(t-times[i-1]) / float64(times[i]-times[i-1])
	return values[i-1] + share*(values[i]-values[i-1])
}

package stat

import "math"

// Proportion is the interval of a share of which k of n were seen, after Wilson
// (1927, Journal of the American Statistical Association 22, 209): unlike the
// one around k/n it stays within 0 and 1, and says something where k is 0 or n.
// ok is false without a trial.
func Proportion(k, n int, level float64) (i Interval, ok bool) {
	if n <= 0 || k < 0 || k > n || level <= 0 || level >= 1 {
		return i, false
	}
	z := math.Sqrt2 * math.Erfinv(level)
	p, m, z2 := float64(k)/float64(n), float64(n), z*z
	mid := (p + z2/(2*m)) / (1 + z2/m)
	half := z / (1 + z2/m) * math.Sqrt(p*(1-p)/m+z2/(4*m*m))
	return Interval{Lo: max(0, mid-half), Hi: min(1, mid+half), Level: level}, true
}

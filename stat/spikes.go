package stat

import (
	"math"
	"slices"
)

// A Bin is an amount over a stretch of time, such as the CPU-seconds between
// two readings of a counter. Bins are in order of time and do not overlap;
// what lies between them is unknown, not zero.
type Bin struct {
	Start, End float64 // seconds
	Amount     float64 // in [Start, End)
}

// Rate is the amount per second.
func (b Bin) Rate() float64 { return b.Amount / (b.End - b.Start) }

// Mid is the middle of the stretch.
func (b Bin) Mid() float64 { return (b.Start + b.End) / 2 }

// Defaults of SpikeOptions.
const (
	spikeWindow   = 60 // seconds: the usual long-enough memory for a base line
	spikeZ        = 5
	spikeMaxWidth = 0.25 // of the window
)

// SpikeOptions say what counts as a spike. The zero value works.
type SpikeOptions struct {
	Window float64 // seconds around a bin that its base line comes from; 0: 60
	Z      float64 // robust standard deviations above the base line; 0: 5
	// Floor is the least rate above the base line that matters, and a third of
	// it the least spread that is believed: a series that hardly moves would
	// otherwise spike at each whim.
	Floor float64
	// MaxWidth in seconds: what stays high longer is a plateau, not a spike.
	// 0: a quarter of the window.
	MaxWidth float64
}

// Spike is a short stretch in which a rate stands out from those around it.
type Spike struct {
	Start, End float64 // seconds
	At         float64 // centre of gravity of what is above the base line
	Peak       float64 // highest rate
	Base       float64 // rate of the base line there
	Amount     float64 // above the base line
	Z          float64 // robust standard deviations of the peak above the base line
}

// Spikes finds where a rate rises for a short time above a rolling median by
// several rolling MADs. The median of a window follows a step as soon as half
// of the window is behind it, so a plateau has no spikes but those on top of
// it. Bins much longer than the usual one are holes: their amount is known but
// not when it was used, so they neither are spikes nor end one.
//
// Where more than half of a window's rates are equal its MAD is 0; then the
// mean absolute deviation stands in (Iglewicz and Hoaglin, How to Detect and
// Handle Outliers, 1993), and a constant series has no spikes.
func Spikes(bins []Bin, o SpikeOptions) []Spike {
	bins = short(bins)
	if len(bins) < 5 {
		return nil
	}
	window := orDefault(o.Window, spikeWindow)
	threshold := orDefault(o.Z, spikeZ)
	widest := orDefault(o.MaxWidth, window*spikeMaxWidth)
	levels := rolling(bins, window)

	var spikes []Spike
	for i := 0; i < len(bins); {
		above, z := levels[i].over(bins[i].Rate(), o.Floor)
		if z < threshold || above <= o.Floor {
			i++
			continue
		}
		s := Spike{Start: bins[i].Start, End: bins[i].End, Peak: bins[i].Rate(), Base: levels[i].median, Z: z}
		// A spike goes on as far as the rate stays clearly above the base line:
		// its feet are below the threshold that found its head.
		first, last := i, i
		foot := func(j int) bool {
			a, z := levels[j].over(bins[j].Rate(), o.Floor)
			return z >= threshold/2 && a > o.Floor/2
		}
		for first > 0 && bins[first-1].End >= s.Start-1e-9 && (len(spikes) == 0 || bins[first-1].Start >= spikes[len(spikes)-1].End) && foot(first-1) {
			first--
			s.Start = bins[first].Start
		}
		for last+1 < len(bins) && bins[last+1].Start <= s.End+(bins[last].End-bins[last].Start)/2 && foot(last+1) {
			last++
			s.End = bins[last].End
		}
		var moment float64
		for j := first; j <= last; j++ {
			over := (bins[j].Rate() - levels[j].median) * (bins[j].End - bins[j].Start)
			s.Amount += over
			moment += over * bins[j].Mid()
			if r := bins[j].Rate(); r > s.Peak {
				s.Peak, s.Base = r, levels[j].median
				_, s.Z = levels[j].over(r, o.Floor)
			}
		}
		s.At = moment / s.Amount
		i = last + 1
		if s.End-s.Start <= widest {
			spikes = append(spikes, s)
		}
	}
	return spikes
}

// level is the base line and the spread around one bin.
type level struct{ median, spread float64 }

// over says by how much, and by how many spreads, a rate is above the level.
func (l level) over(rate, floor float64) (above, z float64) {
	above = rate - l.median
	spread := max(l.spread, floor/3, 1e-12*math.Abs(l.median))
	switch {
	case above <= 0:
		return above, 0
	case spread == 0:
		return above, 0 // everything else is equal: no measure to say how far
	}
	return above, above / spread
}

// rolling are the levels in a window centred on each bin.
func rolling(bins []Bin, window float64) []level {
	levels := make([]level, len(bins))
	var in []float64 // rates in the window, ascending
	lo, hi := 0, 0
	for i, b := range bins {
		from, to := b.Mid()-window/2, b.Mid()+window/2
		// At the ends the window leans inward, so that it is always full.
		if first := bins[0].Start; from < first {
			from, to = first, first+window
		}
		if last := bins[len(bins)-1].End; to > last {
			from, to = last-window, last
		}
		for ; hi < len(bins) && bins[hi].Mid() <= to; hi++ {
			r := bins[hi].Rate()
			at, _ := slices.BinarySearch(in, r)
			in = slices.Insert(in, at, r)
		}
		for ; lo < hi && bins[lo].Mid() < from; lo++ {
			at, _ := slices.BinarySearch(in, bins[lo].Rate())
			in = slices.Delete(in, at, at+1)
		}
		if len(in) == 0 {
			continue
		}
		m := middle(in)
		levels[i] = level{m, madScale * deviation(in, m)}
		if levels[i].spread == 0 {
			sum := 0.0
			for _, r := range in {
				sum += math.Abs(r - m)
			}
			levels[i].spread = 1.2533 * sum / float64(len(in))
		}
	}
	return levels
}

// middle is the median of ascending values.
func middle(s []float64) float64 {
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return s[n/2-1]/2 + s[n/2]/2
}

// deviation is the median distance from m of ascending values: the distances
// on both sides of m are in order already, and merge.
func deviation(s []float64, m float64) float64 {
	r, _ := slices.BinarySearch(s, m)
	l := r - 1
	n := len(s)
	var before, d float64
	for k := 0; k <= n/2; k++ {
		before = d
		if r >= n || l >= 0 && m-s[l] <= s[r]-m {
			d = m - s[l]
			l--
		} else {
			d = s[r] - m
			r++
		}
	}
	if n%2 == 0 {
		return (before + d) / 2
	}
	return d
}

// hole is how many usual lengths make a bin a hole.
const hole = 1.6

// short leaves out the bins that say too little about when.
func short(bins []Bin) []Bin {
	step := usual(bins)
	out := make([]Bin, 0, len(bins))
	for _, b := range bins {
		if d := b.End - b.Start; d > 0 && d <= hole*step {
			out = append(out, b)
		}
	}
	return out
}

// usual is the median length of the bins.
func usual(bins []Bin) float64 {
	d := make([]float64, len(bins))
	for i, b := range bins {
		d[i] = b.End - b.Start
	}
	return Median(d)
}

func orDefault(x, d float64) float64 {
	if x == 0 {
		return d
	}
	return x
}

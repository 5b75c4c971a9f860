package cli

import (
	"fmt"
	"math"
	"strings"
)

// sparkline draws values as one line of width cells, each the mean of its
// share of them; what is not a number leaves a gap.
func sparkline(values []float64, width int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	cells := resample(values, width)
	low, high := bounds(cells)
	var b strings.Builder
	for _, v := range cells {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case high == low:
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[min(len(levels)-1, int((v-low)/(high-low)*float64(len(levels))))])
		}
	}
	return b.String()
}

// plot draws values as a curve of braille dots, two by four in each cell, with
// its scale at the left.
func plot(values []float64, width, height int) string {
	dots := resample(values, width*2)
	low, high := bounds(dots)
	if math.IsNaN(low) {
		return ""
	}
	low, high = min(low, 0), max(high, 0) // a curve far from zero looks like more than it is
	if high == low {
		high = 1
	}
	grid := make([][]rune, height)
	for y := range grid {
		grid[y] = make([]rune, width)
	}
	bits := [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}
	last := -1
	for x, v := range dots {
		if math.IsNaN(v) {
			last = -1
			continue
		}
		y := height*4 - 1 - int(math.Round((v-low)/(high-low)*float64(height*4-1)))
		from, to := y, y
		if last >= 0 { // a steep curve stays one line
			from, to = min(y, last), max(y, last)
		}
		for d := from; d <= to; d++ {
			grid[d/4][x/2] |= bits[d%4][x%2]
		}
		last = y
	}
	var b strings.Builder
	for y, row := range grid {
		label := ""
		switch y {
		case 0:
			label = shortNumber(high)
		case height - 1:
			label = shortNumber(low)
		}
		fmt.Fprintf(&b, "%10s ┤", label)
		for _, r := range row {
			b.WriteRune(0x2800 + r)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// huge bounds what is drawn, so that sums and differences stay numbers.
const huge = 1e300

// resample makes n values of any number of them. Each is the mean of those that
// fall on it, or the value that it falls on where there are fewer.
func resample(values []float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		sum, count := 0.0, 0
		for _, v := range values[from:min(max(to, from+1), len(values))] {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				sum += max(-huge, min(huge, v))
				count++
			}
		}
		out[i] = sum / float64(count) // 0/0: nothing there
	}
	return out
}

func bounds(values []float64) (low, high float64) {
	low, high = math.NaN(), math.NaN()
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = fmin(low, v), fmax(high, v)
		}
	}
	return low, high
}

func fmin(a, b float64) float64 {
	if math.IsNaN(a) || b < a {
		return b
	}
	return a
}

func fmax(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// shortNumber is a number of at most four digits and a unit prefix.
func shortNumber(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0) || a == 0:
		return fmt.Sprint(v)
	case a >= 1e15 || a < 1e-9:
		return fmt.Sprintf("%.3g", v)
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if a >= u.size {
			if u.name == "k" {
				return fmt.Sprintf("%.4gk", v/1e3)
			}
			return fmt.Sprintf("%.4g%s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.4g", v)
}

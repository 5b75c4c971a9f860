package cli

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestSparkline(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"},
		{[]float64{5, 5, 5}, 3, "▁▁▁"},
		{[]float64{0, nan, 8}, 3, "▁ █"},
		{[]float64{0, 0, 8, 8}, 2, "▁█"}, // two on a cell
		{[]float64{0, 8}, 4, "▁▁██"},     // fewer than cells
		{nil, 2, "  "},
	} {
		if got := sparkline(c.values, c.width); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

func TestPlot(t *testing.T) {
	want := "" +
		"         4 ┤⠀⠀⣠⠞\n" +
		"         0 ┤⣠⠞⠁⠀\n"
	if got := plot([]float64{0, 0.57, 1.14, 1.71, 2.29, 2.86, 3.43, 4}, 4, 2); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	if got := plot([]float64{math.NaN()}, 4, 2); got != "" {
		t.Errorf("nothing is drawn as %q", got)
	}
}

// Whatever the values, a plot has its size.
func TestPlotsHaveTheirSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.MaxFloat64}))).Draw(t, "values")
		width, height := rapid.IntRange(1, 50).Draw(t, "width"), rapid.IntRange(1, 20).Draw(t, "height")
		if s := sparkline(values, width); utf8.RuneCountInString(s) != width {
			t.Fatalf("%d cells, want %d", utf8.RuneCountInString(s), width)
		}
		text := plot(values, width, height)
		if text == "" {
			return
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for _, l := range lines {
			_, cells, _ := strings.Cut(l, "┤")
			if len(lines) != height || utf8.RuneCountInString(cells) != width {
				t.Fatalf("%d×%d, want %d×%d:\n%s", utf8.RuneCountInString(cells), len(lines), width, height, text)
			}
		}
	})
}

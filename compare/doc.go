// Package compare sets runs side by side: a baseline and a candidate, each one
// recording or several.
//
// A difference is a statement with an interval. With one run each there is
// none, and every row says so: the ratio is what two runs showed, not what a
// change does. With several, rows hold medians, the distribution-free interval
// of the median where there are enough runs, and a Mann-Whitney test; a row
// whose test does not reject is "~", no difference.
//
// P values are those of each row alone; reading many rows at 5 % finds one
// difference in twenty where there is none.
//
// Start with Recordings, then Comparison. Renderers need nothing else.
package compare

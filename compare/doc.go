// Package compare sets runs side by side: a baseline and a candidate, each one
// recording or several.
//
// A difference is a statement with an interval. With one run on a side there is
// none, and every row says so: the ratio is what the runs showed, not what a
// change does. With several, all rows are tested as one family, so that the
// chance of any false difference in the whole report is bounded; a row that
// does not differ is "~", and says how large an effect had to be to be found.
// docs/design/005-prove.md has the reasons.
//
// Start with Recordings, then Comparison. Gate judges one, HistoryOf finds
// changes in many runs. Renderers need nothing else.
package compare

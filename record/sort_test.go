package record

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Rows that are sorted by their places stand as a stable sort leaves them.
func TestSortKeepsTheOrderOfEqualRows(t *testing.T) {
	type row struct{ key, place int }
	compare := func(a, b *row) int { return cmp.Compare(a.key, b.key) }
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "keys")
		rows := make([]row, len(keys))
		for i, k := range keys {
			rows[i] = row{k, i}
		}
		want := slices.Clone(rows)
		slices.SortStableFunc(want, func(a, b row) int { return compare(&a, &b) })
		tableOf[row]{compare: compare}.sort(rows)
		if !slices.Equal(rows, want) {
			t.Fatalf("got %v\nwant %v", rows, want)
		}
	})
}

package epoch

import "testing"

// A reading in whose middle the thread lost its CPU does not count where there is a
// better one.
func TestClosest(t *testing.T) {
	for _, c := range []struct {
		name         string
		took         []int64 // of each reading, µs; the clocks are 1,000 s apart
		offset, read int64
	}{
		{"the first is good", []int64{1}, 1e12, 1},
		{"the second is", []int64{8000, 2}, 1e12, 2},
		{"none is good", []int64{8000, 7000, 900, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 1}, 1e12 - 450_000, 10},
	} {
		n, now := int64(0), int64(0)
		offset, _, ok := closest(func() (before, wall, after int64, ok bool) {
			before = now
			now += c.took[n] * 1e3
			n++
			return before, before + 1e12, now, true // the wait comes after the wall clock
		})
		// A good reading is off by half of what it took.
		if d := offset - c.offset; !ok || n != c.read || d > 2500 || d < -2500 {
			t.Errorf("%s: offset %d, want %d; %d readings, want %d", c.name, offset, c.offset, n, c.read)
		}
	}
	if _, _, ok := closest(func() (_, _, _ int64, _ bool) { return }); ok {
		t.Error("a clock that cannot be read has an offset")
	}
}

func TestOffset(t *testing.T) {
	a, first, ok1 := Offset()
	b, second, ok2 := Offset()
	if !ok1 || !ok2 || second < first || a <= 0 || b <= 0 {
		t.Errorf("%d at %d, then %d at %d", a, first, b, second)
	}
}

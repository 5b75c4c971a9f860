package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live, least uint64
		want        int
	}{
		{0, 64 * mb, 1600},
		{mb, 64 * mb, 1600},
		{16 * mb, 64 * mb, 400},
		{64 * mb, 64 * mb, 100},
		{128 * mb, 64 * mb, 50},
		{1 << 40, 64 * mb, 50},
	} {
		if got := growth(c.live, c.least); got != c.want {
			t.Errorf("growth(%d, %d) = %d, want %d", c.live, c.least, got, c.want)
		}
	}
}

// The goal follows what lives: a small heap may grow by Least, a large one by half.
func TestBound(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	Bound()
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	wait := func(what string, ok func(percent uint64) bool) {
		t.Helper()
		for range 500 {
			runtime.GC()
			metrics.Read(sample)
			if ok(sample[0].Value.Uint64()) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s: GOGC stays at %d", what, sample[0].Value.Uint64())
	}
	wait("a small heap", func(p uint64) bool { return p > 800 })
	large := make([]byte, 256<<20)
	wait("a large heap", func(p uint64) bool { return p == percent })
	runtime.KeepAlive(large)
}

// Package heap decides how far this process's heap may grow before its garbage is
// collected: by half, which bounds the memory of what lives long, but never by less
// than some tens of megabytes, since to go through a small heap each time that it has
// grown by a little is CPU for no memory that anybody would miss.
//
// Start with Bound.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// percent is the growth of a large heap, of which most lives as long as the
	// process: half of the memory that Go's 100 take, for a few per cent more CPU.
	percent = 50
	// Least is how much may be allocated between two collections at any size.
	Least = 64 << 20
)

// Bound has the collector work so until the process ends. Where the environment's GOGC says
// something else, that holds.
func Bound() {
	if os.Getenv("GOGC") != "" {
		return
	}
	once.Do(func() {
		debug.SetGCPercent(growth(0, Least))
		again(&cycle{})
	})
}

var once sync.Once

// growth is the percentage for a heap of so many bytes that live.
func growth(live, least uint64) int {
	// Go counts at least 4 MB, whatever lives.
	return max(percent, int(least*100/max(live, 4<<20)))
}

// A cycle is garbage: that it is collected tells that a collection has ended, which
// is when it is known how much lives.
type cycle struct{ _ [16]byte }

func again(c *cycle) {
	runtime.SetFinalizer(c, func(c *cycle) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		debug.SetGCPercent(growth(sample[0].Value.Uint64(), Least))
		again(c)
	})
}

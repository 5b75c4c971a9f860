// Package blockio derives from a recording what its block I/O and syncs took:
// distributions by process, component, device and operation, etcd's own view
// of the same syncs beside them, and heat maps.
//
// It states what was and judges nothing. All functions are pure.
//
// Start with Requests and Syncs.
package blockio

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// A Filter selects rows. Empty fields select all.
type Filter struct {
	Window    record.Window // rows that began inside
	Component string
	Process   string // a PID, or a process's comm
	Device    string // of requests
	Operation string // of a request, or a call
}

func (f Filter) match(at int64, component string, pid int32, command string) bool {
	if !f.Window.Start.IsZero() && at < f.Window.Start.UnixMicro() || !f.Window.End.IsZero() && at >= f.Window.End.UnixMicro() {
		return false
	}
	if f.Component != "" && f.Component != component {
		return false
	}
	return f.Process == "" || f.Process == command || f.Process == strconv.Itoa(int(pid))
}

// Select returns the requests that a filter selects, in their order.
func (f Filter) Select(rows []record.BlockIO) []record.BlockIO {
	var out []record.BlockIO
	for _, r := range rows {
		if f.match(r.TimeMicros, r.Component, r.PID, r.Command) && (f.Device == "" || f.Device == r.Device) && (f.Operation == "" || f.Operation == r.Operation) {
			out = append(out, r)
		}
	}
	return out
}

// SelectSyncs returns the calls that a filter selects, in their order. A call
// has no device, so that a filter for one selects none.
func (f Filter) SelectSyncs(rows []record.Sync) []record.Sync {
	var out []record.Sync
	for _, r := range rows {
		if f.match(r.TimeMicros, r.Component, r.PID, r.Command) && f.Device == "" && (f.Operation == "" || f.Operation == r.Call) {
			out = append(out, r)
		}
	}
	return out
}

// A Latency is a distribution of times. The percentiles are nearest ranks, in
// microseconds; -1 where N is 0.
type Latency struct {
	N                  int
	P50, P90, P99, Max float64
	// Histogram counts by power of two: Histogram[0] are times below 1 µs,
	// Histogram[i] those of [2^(i-1), 2^i) µs.
	Histogram []int
}

// LatencyOf summarises times in microseconds, which it sorts.
func LatencyOf(micros []float64) Latency {
	l := Latency{N: len(micros), P50: -1, P90: -1, P99: -1, Max: -1}
	if len(micros) == 0 {
		return l
	}
	slices.Sort(micros)
	l.P50 = stat.QuantileSorted(micros, 0.5)
	l.P90 = stat.QuantileSorted(micros, 0.9)
	l.P99 = stat.QuantileSorted(micros, 0.99)
	l.Max = micros[len(micros)-1]
	l.Histogram = make([]int, Bucket(l.Max)+1)
	for _, v := range micros {
		l.Histogram[Bucket(v)]++
	}
	return l
}

// Bucket is the index in Latency.Histogram of a time in microseconds.
func Bucket(micros float64) int {
	if micros < 1 {
		return 0
	}
	return bits.Len64(uint64(micros))
}

// BucketStart is where a bucket begins, in microseconds.
func BucketStart(i int) float64 {
	if i == 0 {
		return 0
	}
	return float64(uint64(1) << (i - 1))
}

// A Group is what one process did to one device with one operation.
type Group struct {
	Component string
	PID       int32 // 0: the block layer itself
	Command   string
	Device    string // empty: a system call
	Operation string // or the call
	Count     int
	Bytes     int64
	Errors    int
	// Unfinished were not over when the recording ended. They are in no Latency.
	Unfinished int
	// Queue is from submission to the driver, of requests that were queued;
	// InDevice from there to completion. Total is all of it: for a flush that
	// waits for the block layer's own, and for a call, there is nothing else.
	Queue, InDevice, Total Latency
}

type groupKey struct {
	pid                                   int32
	command, component, device, operation string
}

type times struct {
	group                *Group
	queue, device, total []float64
}

// Requests sums requests by process, device and operation; those that took
// most time together first.
func Requests(rows []record.BlockIO) []Group {
	by := map[groupKey]*times{}
	for _, r := range rows {
		t := of(by, groupKey{r.PID, r.Command, r.Component, r.Device, r.Operation})
		t.group.Bytes += r.Bytes
		t.count(r.TimeMicros, r.DoneMicros, r.Error)
		if r.DoneMicros > 0 && r.IssuedMicros > 0 {
			t.device = append(t.device, float64(r.DoneMicros-r.IssuedMicros))
			if r.PID != 0 { // the block layer's own flush is born as it is issued
				t.queue = append(t.queue, float64(r.IssuedMicros-r.TimeMicros))
			}
		}
	}
	return groups(by)
}

// Syncs sums system calls by process and call; those that took most time
// together first.
func Syncs(rows []record.Sync) []Group {
	by := map[groupKey]*times{}
	for _, r := range rows {
		// Threads have names of their own, and take turns at the same work.
		t := of(by, groupKey{r.PID, r.Command, r.Component, "", r.Call})
		t.count(r.TimeMicros, r.DoneMicros, r.Error)
	}
	return groups(by)
}

func of(by map[groupKey]*times, k groupKey) *times {
	t := by[k]
	if t == nil {
		t = &times{group: &Group{Component: k.component, PID: k.pid, Command: k.command, Device: k.device, Operation: k.operation}}
		by[k] = t
	}
	return t
}

func (t *times) count(from, to int64, errno int32) {
	t.group.Count++
	if errno != 0 {
		t.group.Errors++
	}
	if to == 0 {
		t.group.Unfinished++
		return
	}
	t.total = append(t.total, float64(to-from))
}

func groups(by map[groupKey]*times) []Group {
	spent := map[groupKey]float64{}
	out := make([]Group, 0, len(by))
	for k, t := range by {
		spent[k] = stat.Sum(t.total)
		g := t.group
		g.Queue, g.InDevice, g.Total = LatencyOf(t.queue), LatencyOf(t.device), LatencyOf(t.total)
		out = append(out, *g)
	}
	key := func(g Group) groupKey { return groupKey{g.PID, g.Command, g.Component, g.Device, g.Operation} }
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(cmp.Compare(spent[key(b)], spent[key(a)]), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Command, b.Command),
			cmp.Compare(a.Component, b.Component), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Operation, b.Operation))
	})
	return out
}

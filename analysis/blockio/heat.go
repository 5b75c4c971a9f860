package blockio

import (
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// A Heat counts times by when they began and how long they took: the cells of
// a heat map.
type Heat struct {
	Start time.Time
	Step  time.Duration // of a column
	// Columns[i][j] counts what began in column i and took the time of bucket
	// j of Latency.Histogram. A column is as long as its highest bucket.
	Columns [][]int
}

// HeatOfRequests counts what requests took in all.
func HeatOfRequests(rows []record.BlockIO, w record.Window, step time.Duration) Heat {
	h := newHeat(w, step)
	for _, r := range rows {
		h.add(r.TimeMicros, r.DoneMicros)
	}
	return h
}

// HeatOfSyncs counts what calls took.
func HeatOfSyncs(rows []record.Sync, w record.Window, step time.Duration) Heat {
	h := newHeat(w, step)
	for _, r := range rows {
		h.add(r.TimeMicros, r.DoneMicros)
	}
	return h
}

func newHeat(w record.Window, step time.Duration) Heat {
	h := Heat{Start: w.Start, Step: step}
	if step >= time.Microsecond && w.End.After(w.Start) {
		h.Columns = make([][]int, (w.End.Sub(w.Start)+step-1)/step)
	}
	return h
}

func (h *Heat) add(from, to int64) {
	if to == 0 || from < h.Start.UnixMicro() || len(h.Columns) == 0 {
		return
	}
	i := int((from - h.Start.UnixMicro()) / h.Step.Microseconds())
	if i >= len(h.Columns) {
		return
	}
	b := Bucket(float64(to - from))
	for len(h.Columns[i]) <= b {
		h.Columns[i] = append(h.Columns[i], 0)
	}
	h.Columns[i][b]++
}

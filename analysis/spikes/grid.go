package spikes

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// grid are the moments at which processes were read. Cell i is from at[i] to
// at[i+1].
type grid struct {
	at []float64 // seconds since the run's start
}

func (g grid) cells() int { return max(len(g.at)-1, 0) }

func (g grid) seconds() float64 {
	if len(g.at) < 2 {
		return 0
	}
	return g.at[len(g.at)-1] - g.at[0]
}

// tick is the reading nearest to t.
func (g grid) tick(t float64) int {
	i := sort.SearchFloat64s(g.at, t)
	if i == len(g.at) || i > 0 && t-g.at[i-1] < g.at[i]-t {
		i--
	}
	return i
}

// cellOf is the cell that holds t; -1 for none.
func (g grid) cellOf(t float64) int {
	i := sort.Search(len(g.at), func(i int) bool { return g.at[i] > t }) - 1
	if i >= g.cells() {
		return -1
	}
	return i
}

// bins are the cells with their amounts, without those that are not known.
func (g grid) bins(amounts []float64) []stat.Bin {
	out := make([]stat.Bin, 0, len(amounts))
	for i, a := range amounts {
		if !math.IsNaN(a) {
			out = append(out, stat.Bin{Start: g.at[i], End: g.at[i+1], Amount: a})
		}
	}
	return out
}

// spread shares an amount out over the cells that [from, to] touches.
func (g grid) spread(amounts []float64, from, to, amount float64) {
	if to-from < 1e-3 {
		to = from + 1e-3
	}
	for i := max(g.cellOf(from), 0); i < g.cells() && g.at[i] < to; i++ {
		if d := min(to, g.at[i+1]) - max(from, g.at[i]); d > 0 {
			amounts[i] += amount * d / (to - from)
		}
	}
}

// life is one process over the grid.
type life struct {
	pid        int32
	start      float64
	component  string
	command    string
	first, end int       // cells in which it lived
	amounts    []float64 // CPU-seconds of those cells; NaN unknown
	total      float64
}

// read makes processes of their samples in the window.
func (g grid) read(samples []record.ProcessSample, since func(int64) float64) []*life {
	type key struct {
		pid   int32
		start int64
	}
	by := map[key][]record.ProcessSample{}
	var order []key
	for _, s := range samples {
		k := key{s.PID, s.StartMicros}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], s)
	}
	var out []*life
	for _, k := range order {
		if p := g.process(by[k], since); p != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *life) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid)) })
	return out
}

// process lays one process's rows on the grid. A row is repeated only when
// something moved, and the last one before a move is kept: where two rows far
// apart have the same CPU time, all between was idle; where it differs, when
// it was used is unknown.
func (g grid) process(rows []record.ProcessSample, since func(int64) float64) *life {
	last := rows[len(rows)-1]
	p := &life{pid: last.PID, start: since(last.StartMicros), component: last.Component, command: last.Command}
	from, to := g.at[0], g.at[len(g.at)-1]
	cpu := func(s record.ProcessSample) float64 { return s.UserSeconds + s.SystemSeconds }
	whole := make([]float64, g.cells())
	p.first, p.end = -1, -1
	set := func(a, b int, amount float64) {
		if b <= a {
			return
		}
		if p.first < 0 {
			p.first = a
		}
		p.end = b
		p.total += amount
		switch {
		case b == a+1:
			whole[a] = amount
		case amount > 1e-9:
			for i := a; i < b; i++ {
				whole[i] = math.NaN()
			}
		}
	}
	at, before, known := 0, 0.0, false
	if p.start >= from { // its life began in the window: before it was nothing
		at, known = max(g.cellOf(p.start), 0), true
	}
	for _, s := range rows {
		t := since(s.TimeMicros)
		if t > to+0.5 {
			break
		}
		if t < from-0.5 {
			before, known = cpu(s), true
			continue
		}
		i := g.tick(t)
		if known && i <= at {
			continue // two readings at one moment: the next has it all
		}
		if known {
			set(at, i, max(cpu(s)-before, 0))
		}
		at, before, known = i, cpu(s), true
	}
	if p.first < 0 {
		return nil
	}
	p.amounts = whole[p.first:p.end]
	return p
}

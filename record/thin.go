package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons of the gaps of a copy.
const (
	leftOut    = "left out of this copy"
	fewMetrics = "only the metrics that a diagnosis reads are in this copy"
	summedUp   = "most requests to block devices are summed up in this copy"
)

// Wanted says what a thin copy keeps.
type Wanted struct {
	Metrics []string
	// Series says whether anybody reads that series of a metric.
	Series func(metric string, labels map[string]string) bool
	// Request empties what of a request nobody reads, and says whether anybody reads
	// the rest.
	Request func(*Request) bool
	// BlockIO sums up requests to block devices.
	BlockIO func([]BlockIO) []BlockIO
}

// Thin copies a finished recording into dir without its profiles and logs and with
// what is wanted only, so that it is small enough to be kept beside a test. Whatever
// was left out is a gap of the copy. Other tables than those of Wanted are copied with
// all their rows, and with UIDs that count.
func Thin(r *Recording, dir string, want Wanted) (err error) {
	m, metrics := r.Meta(), want.Metrics
	if had := m.KeptMetrics; len(had) > 0 { // a copy of a copy has no more than that
		metrics = slices.DeleteFunc(slices.Clone(metrics), func(name string) bool { return !slices.Contains(had, name) })
	}
	m.Machine.Kernel, _, _ = strings.Cut(m.Machine.Kernel, "-")
	w, err := Create(dir, m)
	if err != nil {
		return err
	}
	defer func() {
		if ferr := w.Finish(StatusComplete, ""); err == nil {
			err = ferr
		}
		if err != nil {
			err = fmt.Errorf("thin recording %s: %w", r.Dir(), err)
			return
		}
		// The copy ended when the run did, and as it did.
		now := w.Meta()
		m.Gaps = slices.DeleteFunc(slices.Clone(m.Gaps), func(g Gap) bool { return strings.HasSuffix(g.Reason, "in this copy") || g.Reason == leftOut })
		m.Gaps = append(m.Gaps,
			Gap{Collector: "profile", Reason: leftOut},
			Gap{Collector: "logs", Reason: leftOut},
			Gap{Collector: "stacks", Reason: leftOut},
			Gap{Collector: "blockio", Reason: summedUp},
			Gap{Collector: "metrics", Reason: fewMetrics})
		m.KeptMetrics = metrics
		m.Warnings = slices.Concat(m.Warnings, now.Warnings[min(len(m.Warnings), len(now.Warnings)):])
		err = writeMeta(dir, m)
	}()
	data, err := r.Experiment()
	if err != nil {
		return err
	}
	if err := w.Experiment(data); err != nil {
		return err
	}
	numbers := map[string]string{"": ""}
	number := func(uid string) string { // random ones are what no compression makes shorter
		if _, known := numbers[uid]; !known {
			numbers[uid] = fmt.Sprintf("00000000-0000-0000-0000-%012d", len(numbers))
		}
		return numbers[uid]
	}
	for _, t := range []func() error{
		func() error {
			return copyRows(w, TablePods, r.Pods, func(p Pod) {
				p.UID = number(p.UID)
				w.Pod(p)
			})
		},
		func() error { return copyRows(w, TableOperations, r.Operations, w.Operation) },
		func() error {
			return copyRows(w, TableProcesses, r.Processes, func(p ProcessSample) {
				p.Command = cmp.Or(p.Component, "other")
				w.Process(p)
			})
		},
		func() error { return copyRows(w, TableMachine, r.MachineSamples, w.Machine) },
		func() error {
			return copyRows(w, TableRequests, r.Requests, func(q Request) {
				if want.Request(&q) {
					w.Request(q)
				}
			})
		},
		func() error { return copyRows(w, TableNodes, r.Nodes, w.Node) },
		func() error {
			return copyRows(w, TableExits, r.Exits, func(e ProcessExit) {
				if e.Component == "" {
					e.Command = "other"
				}
				w.Exit(e)
			})
		},
		func() error { return copyRows(w, TableCores, r.Cores, w.Core) },
		func() error { return copyRows(w, TableDisks, r.Disks, w.Disk) },
		func() error {
			return copyRows(w, TableBlockIO, func() ([]BlockIO, error) {
				rows, err := r.BlockIO()
				return want.BlockIO(rows), err
			}, w.BlockIO)
		},
		func() error {
			return copyRows(w, TableObjects, r.Objects, func(o ObjectChange) {
				o.UID = number(o.UID)
				w.Object(o)
			})
		},
		func() error { return copyRows(w, TableEvents, r.Events, w.Event) },
	} {
		if err := t(); err != nil {
			return err
		}
	}
	type sample struct {
		name   string
		labels map[string]string
		at     time.Time
		value  float64
	}
	steady, hasSteady := r.Steady()
	rest := steady.Start
	for _, p := range m.Phases {
		if p.Kind == PhaseSettle && p.Start.Before(steady.Start) {
			rest = p.Start
		}
	}
	var samples []sample
	for _, name := range metrics {
		all, err := r.Points(name, nil, Window{m.Started, m.Ended.Add(time.Second)})
		if err != nil {
			return err
		}
		for _, s := range all {
			if !want.Series(name, s.Labels) {
				continue
			}
			if hasSteady && atRest(name, s.Points, rest) {
				continue
			}
			delete(s.Labels, "__name__")
			for _, p := range s.Points {
				samples = append(samples, sample{name, s.Labels, p.Time, p.Value})
			}
		}
	}
	// The store takes samples in the order of time only.
	slices.SortStableFunc(samples, func(a, b sample) int { return a.at.Compare(b.at) })
	for _, s := range samples {
		w.AppendSample(s.name, s.labels, s.at, s.value)
	}
	return w.Err()
}

// atRest says that a counter was there before the rest that comes before the load,
// and did not move from then on: in a copy that names its metrics it is 0 without a
// series, too.
func atRest(name string, ps []Point, rest time.Time) bool {
	if !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum") || !ps[0].Time.Before(rest) {
		return false
	}
	at := ps[0].Value
	for _, p := range ps {
		if p.Value == at {
			continue
		}
		if p.Time.After(rest) {
			return false
		}
		at = p.Value
	}
	return true
}

// copyRows copies a table; one that was not recorded stays missing, and one
// without rows stays empty.
func copyRows[T any](w *Writer, t Table, read func() ([]T, error), write func(T)) error {
	rows, err := read()
	if errors.Is(err, ErrMissing) {
		return nil
	}
	if err == nil {
		w.Observes(t)
	}
	for _, row := range rows {
		write(row)
	}
	return err
}

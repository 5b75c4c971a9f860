package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Thin copies a finished recording into dir without its profiles and logs and
// with the named metrics only, so that it is small enough to be kept beside a
// test. Whatever was left out is a gap of the copy. Tables are copied with all
// their rows, but for requests: request empties what of one nobody reads, and says
// whether anybody reads the rest. series says whether anybody reads that series of a
// metric.
func Thin(r *Recording, dir string, metrics []string, series func(metric string, labels map[string]string) bool, request func(*Request) bool) (err error) {
	m := r.Meta()
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
		m.Gaps = append(slices.Clone(m.Gaps),
			Gap{Collector: "profile", Reason: "left out of this copy"},
			Gap{Collector: "logs", Reason: "left out of this copy"},
			Gap{Collector: "stacks", Reason: "left out of this copy"},
			Gap{Collector: "blockio", Reason: "left out of this copy"},
			Gap{Collector: "metrics", Reason: fmt.Sprintf("only %d metrics are in this copy", len(metrics))})
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
	for _, t := range []func() error{
		func() error { return copyRows(r.Pods, w.Pod) },
		func() error { return copyRows(r.Operations, w.Operation) },
		func() error {
			return copyRows(r.Processes, func(p ProcessSample) {
				p.Command = cmp.Or(p.Component, "other")
				w.Process(p)
			})
		},
		func() error { return copyRows(r.MachineSamples, w.Machine) },
		func() error {
			return copyRows(r.Requests, func(q Request) {
				if request(&q) {
					w.Request(q)
				}
			})
		},
		func() error { return copyRows(r.Nodes, w.Node) },
		func() error {
			return copyRows(r.Exits, func(e ProcessExit) {
				if e.Component == "" {
					e.Command = "other"
				}
				w.Exit(e)
			})
		},
		func() error { return copyRows(r.Cores, w.Core) },
		func() error { return copyRows(r.Disks, w.Disk) },
		func() error { return copyRows(r.Objects, w.Object) },
		func() error { return copyRows(r.Events, w.Event) },
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
	var samples []sample
	for _, name := range metrics {
		all, err := r.Points(name, nil, Window{m.Started, m.Ended.Add(time.Second)})
		if err != nil {
			return err
		}
		for _, s := range all {
			if !series(name, s.Labels) {
				continue
			}
			if hasSteady && atRest(name, s.Points, steady.Start) {
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

// atRest says that a counter was there before the load and never moved: in a copy
// that names its metrics it is 0 without a series, too.
func atRest(name string, ps []Point, load time.Time) bool {
	if !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum") || !ps[0].Time.Before(load) {
		return false
	}
	for _, p := range ps {
		if p.Value != ps[0].Value {
			return false
		}
	}
	return true
}

// copyRows copies a table; one that was not recorded stays missing.
func copyRows[T any](read func() ([]T, error), write func(T)) error {
	rows, err := read()
	if errors.Is(err, ErrMissing) {
		return nil
	}
	for _, row := range rows {
		write(row)
	}
	return err
}

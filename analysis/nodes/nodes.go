// Package nodes derives when nodes came up from the lives of objects in a
// recording, where nothing that the recorder made reports it itself. It states
// what was; detectors judge.
//
// Start with Of.
package nodes

import (
	"errors"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// Of is the recording's table of nodes, sorted by name; where that is missing,
// as of every cluster whose nodes are its own, it is derived.
func Of(rec *record.Recording) ([]record.NodeSample, error) {
	rows, err := rec.Nodes()
	if !errors.Is(err, record.ErrMissing) {
		return rows, err
	}
	for _, g := range rec.Meta().Gaps {
		// A gap with times is a stretch; one without, all of the recording.
		if g.Subject == "nodes" && g.Start.IsZero() {
			return nil, err
		}
	}
	objects, cause := rec.Objects()
	if cause != nil {
		return nil, err
	}
	return Derive(objects), nil
}

// notReady is the taint that keeps pods from a node that was not seen well yet.
const notReady = "node.kubernetes.io/not-ready:"

// Derive finds when each node was created, first Ready, and first Ready without
// its not-ready taint. What it had when the recording began has no time, and
// neither has what was seen late.
func Derive(objects []record.ObjectChange) []record.NodeSample {
	type way struct {
		record.NodeSample
		ready, schedulable bool
	}
	var order []*way
	by := map[string]*way{} // by UID
	for _, o := range objects {
		if o.Kind != "Node" || o.Change == "deleted" {
			continue
		}
		n := by[o.UID]
		if n == nil {
			n = &way{NodeSample: record.NodeSample{Name: o.Name}}
			by[o.UID] = n
			order = append(order, n)
		}
		at := o.TimeMicros
		if o.Change == "existing" || o.Late {
			at = 0
		}
		if o.Change == "added" {
			n.CreatedMicros = at
		}
		if o.State == "Ready" && !n.ready {
			n.ready, n.ReadyMicros = true, at
		}
		if o.State == "Ready" && !strings.Contains(o.Ref, notReady) && !n.schedulable {
			n.schedulable, n.SchedulableMicros = true, at
		}
	}
	out := make([]record.NodeSample, len(order))
	for i, n := range order {
		out[i] = n.NodeSample
	}
	slices.SortStableFunc(out, func(a, b record.NodeSample) int { return strings.Compare(a.Name, b.Name) })
	return out
}

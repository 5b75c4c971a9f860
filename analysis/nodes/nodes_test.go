package nodes

import (
	"slices"
	"testing"

	"github.com/kubedyno/kubedyno/record"
)

func TestDerive(t *testing.T) {
	node := func(at int64, name, change, state, taints string) record.ObjectChange {
		return record.ObjectChange{TimeMicros: at, Kind: "Node", Name: name, UID: name, Change: change, State: state, Ref: taints}
	}
	late := node(9, "late", "modified", "Ready", "")
	late.Late = true
	got := Derive([]record.ObjectChange{
		node(1, "old", "existing", "Ready", ""),
		node(1, "waking", "existing", "NotReady", notReady+"NoSchedule"),
		node(2, "new", "added", "NotReady", "a:NoSchedule,"+notReady+"NoSchedule"),
		node(3, "late", "added", "NotReady", ""),
		node(4, "new", "modified", "Ready", "a:NoSchedule,"+notReady+"NoSchedule"),
		node(5, "new", "modified", "Ready", "a:NoSchedule"),
		node(6, "old", "modified", "NotReady", ""),
		node(7, "old", "modified", "Ready", ""),
		node(8, "waking", "modified", "Ready", ""),
		late,
		node(10, "new", "deleted", "Ready", ""),
		{TimeMicros: 11, Kind: "Lease", Name: "new", UID: "l", Change: "added", State: "Ready"},
	})
	want := []record.NodeSample{
		{Name: "late", CreatedMicros: 3},
		{Name: "new", CreatedMicros: 2, ReadyMicros: 4, SchedulableMicros: 5},
		{Name: "old"},
		{Name: "waking", ReadyMicros: 8, SchedulableMicros: 8},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

package volumes

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"pgregory.net/rapid"
)

const s = 1_000_000 // microseconds

func claim(at int64, name, change, state, volume, node string) record.ObjectChange {
	return record.ObjectChange{TimeMicros: at, Kind: "PersistentVolumeClaim", Namespace: "ns", Name: name, UID: "uid-" + name, Change: change, State: state, Ref: volume, Node: node}
}

func volume(at int64, name, change, ref string) record.ObjectChange {
	return record.ObjectChange{TimeMicros: at, Kind: "PersistentVolume", Name: name, UID: "uid-" + name, Change: change, Ref: ref}
}

func attachment(at int64, state, volume, node string) record.ObjectChange {
	return record.ObjectChange{TimeMicros: at, Kind: "VolumeAttachment", Name: "a-" + volume, UID: "a-" + volume, Change: "modified", State: state, Ref: volume, Node: node}
}

func warning(at int64, name string, count int32) record.Event {
	return record.Event{TimeMicros: at, Type: "Warning", Reason: "ProvisioningFailed", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: name, Count: count}
}

func TestDerive(t *testing.T) {
	late := claim(31*s, "late", "modified", "Bound", "pv-late", "")
	late.Late = true
	objects := []record.ObjectChange{
		claim(1*s, "old", "existing", "Bound", "pv-old", "n0"),
		volume(1*s, "pv-old", "existing", "ns/old"),
		volume(5*s, "pv-static", "added", ""),
		claim(10*s, "dynamic", "added", "Pending", "", ""),
		{TimeMicros: 10*s + 1, Kind: "Pod", Namespace: "ns", Name: "p", UID: "p", Change: "added", Ref: "dynamic"},
		claim(11*s, "dynamic", "modified", "Pending", "", "n1"),
		volume(13*s, "pv-1", "added", "ns/dynamic"),
		claim(14*s, "dynamic", "modified", "Bound", "pv-1", "n1"),
		attachment(15*s, "attaching", "pv-1", "n1"),
		attachment(16*s, "attached", "pv-1", "n1"),
		claim(20*s, "static", "added", "Pending", "", ""),
		volume(21*s, "pv-static", "modified", "ns/static"),
		claim(22*s, "static", "modified", "Bound", "pv-static", ""),
		claim(23*s, "stuck", "added", "Pending", "", ""),
		claim(24*s, "old", "modified", "Bound", "pv-old", "n0"),
		claim(30*s, "late", "added", "Pending", "", ""),
		late,
		claim(40*s, "static", "deleted", "Bound", "pv-static", ""),
	}
	events := []record.Event{
		warning(12*s, "dynamic", 2), warning(24*s, "stuck", 5),
		{TimeMicros: 24 * s, Type: "Normal", Reason: "Provisioning", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "stuck", Count: 9},
	}
	pods := []record.Pod{{UID: "p", RunningMicros: 18 * s}, {UID: "q", RunningMicros: 1}}
	got := Derive(objects, events, true, pods)
	want := []Claim{
		{Namespace: "ns", Name: "old", UID: "uid-old", State: "Bound", Volume: "pv-old", Node: "n0", Mode: "wait-for-first-consumer", ProvisionSeconds: -1, BindSeconds: -1, AttachSeconds: -1, RunSeconds: -1},
		{
			Namespace: "ns", Name: "dynamic", UID: "uid-dynamic", State: "Bound", Volume: "pv-1", Node: "n1", Mode: "wait-for-first-consumer",
			CreatedMicros: 10 * s, SelectedMicros: 11 * s, ProvisionedMicros: 13 * s, BoundMicros: 14 * s, AttachedMicros: 16 * s, RunningMicros: 18 * s,
			ProvisionSeconds: 3, BindSeconds: 4, AttachSeconds: 6, RunSeconds: 8, Failures: 2, LastFailure: "ProvisioningFailed",
		},
		{
			Namespace: "ns", Name: "static", UID: "uid-static", State: "deleted", Volume: "pv-static", Mode: "immediate",
			CreatedMicros: 20 * s, ProvisionedMicros: 5 * s, BoundMicros: 22 * s, DeletedMicros: 40 * s,
			ProvisionSeconds: -1, BindSeconds: 2, AttachSeconds: -1, RunSeconds: -1,
		},
		{
			Namespace: "ns", Name: "stuck", UID: "uid-stuck", State: "Pending", CreatedMicros: 23 * s,
			ProvisionSeconds: -1, BindSeconds: -1, AttachSeconds: -1, RunSeconds: -1, Failures: 5, LastFailure: "ProvisioningFailed",
		},
		{
			Namespace: "ns", Name: "late", UID: "uid-late", State: "Bound", Volume: "pv-late", CreatedMicros: 30 * s, BoundMicros: 31 * s,
			ProvisionSeconds: -1, BindSeconds: -1, AttachSeconds: -1, RunSeconds: -1, Late: true,
		},
	}
	for i := range want {
		if i >= len(got) || !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%+v\nwant %+v", got[i], want[i])
		}
	}
	sum := Summarize(got)
	if sum.Claims != 5 || sum.Created != 4 || sum.Bound != 3 || sum.Late != 1 || sum.Failures != 7 || sum.MakespanSeconds != 12 {
		t.Errorf("%+v", sum)
	}
	if b := sum.Stages[1]; b != (Stage{Name: "bound", N: 2, P50: 2, P99: -1, MaxValue: 4}) {
		t.Errorf("%+v", b)
	}
	if c := Derive(objects, nil, false, nil)[1]; c.Failures != -1 || c.RunningMicros != 0 || c.RunSeconds != -1 {
		t.Errorf("nobody looked for Events and pods: %+v", c)
	}
	if n := Summarize(Derive(objects, nil, false, nil)).Failures; n != -1 {
		t.Errorf("%d failures where nobody looked", n)
	}
}

// A claim of a name that was used before has its own Events and pods.
func TestNamesUsedAgain(t *testing.T) {
	first := []record.ObjectChange{claim(1*s, "data", "added", "Pending", "", ""), claim(2*s, "data", "deleted", "Pending", "", "")}
	second := claim(5*s, "data", "added", "Pending", "", "")
	second.UID = "second"
	ties := []record.ObjectChange{{TimeMicros: 1*s + 1, Kind: "Pod", Namespace: "ns", UID: "a", Ref: "data"}, {TimeMicros: 6 * s, Kind: "Pod", Namespace: "ns", UID: "b", Ref: "data"}}
	objects := []record.ObjectChange{first[0], ties[0], first[1], second, ties[1]}
	got := Derive(objects, []record.Event{warning(1*s+2, "data", 1), warning(7*s, "data", 3)}, true, []record.Pod{{UID: "a", RunningMicros: 1*s + 5}, {UID: "b", RunningMicros: 8 * s}})
	if len(got) != 2 || got[0].Failures != 1 || got[1].Failures != 3 || got[0].RunningMicros != 1*s+5 || got[1].RunningMicros != 8*s {
		t.Errorf("%+v", got)
	}
}

// Whatever rows come: as many claims as there are UIDs, no duration below
// zero but -1, and a quantile only of enough samples.
func TestAnyRows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var objects []record.ObjectChange
		uids := map[string]bool{}
		for i := range rapid.IntRange(0, 300).Draw(rt, "rows") {
			o := record.ObjectChange{
				TimeMicros: int64(i) * 1000,
				Kind:       rapid.SampledFrom([]string{"PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment", "Pod"}).Draw(rt, "kind"),
				Name:       fmt.Sprint(rapid.IntRange(0, 150).Draw(rt, "name")),
				Change:     rapid.SampledFrom([]string{"existing", "added", "modified", "deleted"}).Draw(rt, "change"),
				State:      rapid.SampledFrom([]string{"", "Bound", "attached"}).Draw(rt, "state"),
				Ref:        fmt.Sprint(rapid.IntRange(0, 9).Draw(rt, "ref")),
				Late:       rapid.Bool().Draw(rt, "late"),
			}
			o.UID = o.Kind + o.Name
			objects = append(objects, o)
			if o.Kind == "PersistentVolumeClaim" {
				uids[o.UID] = true
			}
		}
		claims := Derive(objects, nil, true, nil)
		if len(claims) != len(uids) {
			rt.Errorf("%d claims of %d", len(claims), len(uids))
		}
		for _, c := range claims {
			for _, v := range []float64{c.ProvisionSeconds, c.BindSeconds, c.AttachSeconds, c.RunSeconds} {
				if v < 0 && v != -1 {
					rt.Errorf("%+v", c)
				}
			}
		}
		sum := Summarize(claims)
		for _, st := range sum.Stages {
			if (st.P99 >= 0) != (st.N >= 100) || (st.P50 >= 0) != (st.N > 0) || st.P50 > st.MaxValue {
				rt.Errorf("%+v", st)
			}
		}
	})
}

// A recording whose claims nobody could watch has none to tell of.
func TestMissing(t *testing.T) {
	rec := recordtest.Make(t, record.Meta{Name: "r", Started: time.Now()}, func(w *record.Writer) {
		w.Observes(record.TableObjects)
		w.Gap(record.Gap{Collector: "lives", Subject: "persistentvolumeclaims", Reason: "grant list and watch on persistentvolumeclaims"})
	})
	if _, err := Of(rec); !errors.Is(err, record.ErrMissing) || !strings.Contains(err.Error(), "grant list") {
		t.Errorf("%v", err)
	}
}

// Each step begins where the one before it has ended, and is told by storage
// class and binding mode.
func TestSteps(t *testing.T) {
	of := func(o record.ObjectChange, class string) record.ObjectChange { o.Class = class; return o }
	added := func(o record.ObjectChange) record.ObjectChange { o.Change = "added"; return o }
	objects := []record.ObjectChange{
		of(claim(10*s, "a", "added", "Pending", "", ""), "fast"),
		{TimeMicros: 10*s + 1, Kind: "Pod", Namespace: "ns", UID: "p", Ref: "a"},
		of(claim(11*s, "a", "modified", "Pending", "", "n1"), "fast"),
		volume(14*s, "pv-a", "added", "ns/a"),
		of(claim(15*s, "a", "modified", "Bound", "pv-a", "n1"), "fast"),
		added(attachment(18*s, "attaching", "pv-a", "n1")),
		attachment(22*s, "attached", "pv-a", "n1"),
		of(claim(30*s, "b", "added", "Pending", "", ""), "slow"),
		volume(31*s, "pv-b", "added", "ns/b"),
		of(claim(33*s, "b", "modified", "Bound", "pv-b", ""), "slow"),
		{TimeMicros: 34 * s, Kind: "Pod", Namespace: "ns", UID: "q", Ref: "b"},
	}
	pods := []record.Pod{{UID: "p", BoundMicros: 16 * s, RunningMicros: 27 * s}, {UID: "q", BoundMicros: 35 * s, RunningMicros: 38 * s}}
	claims := Derive(objects, nil, true, pods)
	Due(claims, []record.Operation{
		{Verb: "create", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "a", DueMicros: 8 * s, SentMicros: 9 * s},
		{Verb: "create", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "a", DueMicros: 50 * s, SentMicros: 50 * s},
		{Verb: "delete", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "b", DueMicros: 1, SentMicros: 1},
	})
	if claims[0].DueMicros != 8*s || claims[1].DueMicros != 0 {
		t.Errorf("due at %d and %d", claims[0].DueMicros, claims[1].DueMicros)
	}
	groups := Groups(claims)
	if len(groups) != 2 || groups[0].Class != "fast" || groups[0].Mode != "wait-for-first-consumer" || groups[1].Class != "slow" || groups[1].Mode != "immediate" {
		t.Fatalf("%+v", groups)
	}
	// provision from the choice of the node, bind, request from the later of
	// bound and placed, attach, start.
	for i, want := range [][]float64{{3, 1, 2, 4, 5}, {1, 2, -1, -1, 3}} {
		var got []float64
		for _, st := range Summarize(groups[i].Claims).Steps {
			got = append(got, st.MaxValue)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: steps %v, want %v", groups[i].Class, got, want)
		}
	}
	if sum := Summarize(claims); sum.MakespanSeconds != 23 || sum.PerSecond != 2.0/23 {
		t.Errorf("%+v", sum)
	}
}

// The watches of two kinds may show what happened in the wrong order, by a
// moment; more than that is no step.
func TestWatchesOutOfStep(t *testing.T) {
	for bound, want := range map[int64]float64{2_000_000: 1, 1_000_000: 0, 999_754: 0, 600_000: 0, 400_000: -1} {
		c := Claim{CreatedMicros: 1, ProvisionedMicros: 1_000_000, BoundMicros: bound}
		if got := c.steps()[1]; got != want {
			t.Errorf("made at 1 s, bound at %d µs: %v, want %v", bound, got, want)
		}
	}
}

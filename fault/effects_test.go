package fault_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var began = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// meta is a run with ten seconds of load.
func meta() record.Meta {
	return record.Meta{
		Schema: record.Schema, ID: "20260102T150405Z-ab12cd", Name: "x", Started: began, Status: record.StatusComplete,
		Cluster: record.Cluster{Kind: "lab", Components: []record.Component{{Name: "kube-controller-manager", Args: []string{"--kube-api-qps=20"}}}},
		Phases:  []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: began, End: began.Add(10 * time.Second)}},
	}
}

// request is one of a client, so many seconds after the beginning.
func request(w *record.Writer, agent, verb, resource, name string, code int32, after float64) {
	at := began.Add(time.Duration(after * float64(time.Second))).UnixMicro()
	w.Request(record.Request{ReceivedMicros: at, DoneMicros: at + 1000, Verb: verb, Resource: resource, Name: name, UserAgent: agent, Code: code})
}

// What a fault does shows in the recording, and what it does not do shows too.
func TestEffects(t *testing.T) {
	process := func(w *record.Writer, component string, second int, periods, throttled int64) {
		w.Process(record.ProcessSample{TimeMicros: began.Add(time.Duration(second) * time.Second).UnixMicro(), PID: 7, StartMicros: began.UnixMicro(), Component: component, Periods: periods, ThrottledPeriods: throttled})
	}
	for _, c := range []struct {
		name, fault string
		fill        func(*record.Writer)
		acted       fault.Answer
		text        string
	}{
		{"a quota that stops", "starved-etcd", func(w *record.Writer) {
			process(w, "etcd", 1, 10, 5)
			process(w, "etcd", 9, 90, 65)
		}, fault.Yes, "etcd was stopped by its quota in 75 % of 80 periods"},
		{"a quota that is never reached", "starved-etcd", func(w *record.Writer) {
			process(w, "etcd", 1, 10, 5)
			process(w, "etcd", 9, 90, 6)
		}, fault.No, "in 1 % of 80 periods"},
		{"somebody else's quota", "starved-etcd", func(w *record.Writer) {
			process(w, "kube-apiserver", 1, 10, 5)
			process(w, "kube-apiserver", 9, 90, 65)
		}, fault.NotAssessed, "was not recorded"},
		{"conflicts", "conflict-storm", func(w *record.Writer) {
			for i := range 100 {
				code := int32(200)
				if i%2 == 0 {
					code = 409
				}
				request(w, "ipam", "update", "configmaps", "block", code, float64(i)/10)
			}
		}, fault.Yes, "50 of 100 writes of ipam"},
		{"conflicts of others", "conflict-storm", func(w *record.Writer) {
			for i := range 100 {
				request(w, "somebody", "update", "configmaps", "block", 409, float64(i)/10)
			}
		}, fault.No, "0 of 0 writes"},
		{"conflicts after the load", "conflict-storm", func(w *record.Writer) {
			for i := range 100 {
				request(w, "ipam", "update", "configmaps", "block", 409, 20+float64(i)/10)
			}
		}, fault.No, "0 of 0 writes"},
		{"locks", "locks-per-object", func(w *record.Writer) {
			for i := range 600 {
				request(w, "provisioner", "get", "leases", fmt.Sprintf("lock-%d", i%40), 200, float64(i)/60)
			}
		}, fault.Yes, "600 requests about 40 locks"},
		{"slow starts", "slow-node-disk", func(w *record.Writer) {
			for i := range 4 {
				at := began.Add(time.Second).UnixMicro()
				w.Pod(record.Pod{Namespace: "n", Name: fmt.Sprint(i), UID: fmt.Sprint(i), Phase: "load", CreatedMicros: at, BoundMicros: at, RunningMicros: at + int64(i+1)*1_000_000})
			}
		}, fault.Yes, "2.50 s after they were bound, on average (n=4)"},
		{"late operations", "slow-generator", func(w *record.Writer) {
			at := began.Add(time.Second).UnixMicro()
			w.Operation(record.Operation{Phase: "load", Verb: "create", Resource: "pods", Name: "p", Pods: 1, DueMicros: at, SentMicros: at + 400_000, DoneMicros: at + 500_000, Code: 201})
		}, fault.Yes, "sent up to 0.40 s late (n=1)"},
		{"operations that are late before the load", "slow-generator", func(w *record.Writer) {
			at := began.Add(-time.Minute).UnixMicro()
			w.Operation(record.Operation{Phase: "objects", Verb: "create", Resource: "configmaps", Name: "c", DueMicros: at, SentMicros: at + 400_000, DoneMicros: at + 500_000, Code: 201})
		}, fault.No, "sent up to 0.00 s late (n=0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := recordtest.Make(t, meta(), c.fill)
			got := injected(t, c.fault).Check(r)
			if got.Acted != c.acted || !strings.Contains(got.Text, c.text) {
				t.Errorf("%+v, want %s: %s", got, c.acted, c.text)
			}
		})
	}
}

// What is kept of it is read back, and the recording opens without it.
func TestKept(t *testing.T) {
	dir := recordtest.Write(t, meta(), func(*record.Writer) {})
	if kept, err := record.ReadFaults(dir); err != nil || kept != nil {
		t.Errorf("a run without faults has %v (%v)", kept, err)
	}
	want := injected(t, "slow-fsync").Record()
	want.Acted, want.Number, want.Unit, want.Text = "yes", 21, "ms", "a sync took long"
	if err := record.WriteFaults(dir, []record.Fault{want}); err != nil {
		t.Fatal(err)
	}
	kept, err := record.ReadFaults(dir)
	if err != nil || len(kept) != 1 || kept[0] != want || want.Value != "50ms" || want.Intensity != "middle" {
		t.Errorf("kept %+v (%v), want %+v", kept, err, want)
	}
	recordtest.Open(t, dir)
}

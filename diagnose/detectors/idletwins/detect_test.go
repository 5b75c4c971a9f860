package idletwins

import (
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// Of all that a node runs twice, only the replicas of a workload are twins that
// one of could do without.
func TestWhoIsATwin(t *testing.T) {
	origin := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	twice := []struct{ component, command string }{
		{"coredns", "/coredns -conf /etc/coredns/Corefile"},
		{"containerd", "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id 1439f744b3b15ed25f5f58f9"},
		{"", "[kworker/0:1H-kblockd]"},
		{"", "/pause"},
		{"kubedyno-node", "kubedyno-node"},
	}
	for _, nodes := range []int{1, 3} {
		m := record.Meta{
			Started: origin, Machine: record.Machine{CPUs: 2}, Nodes: record.Nodes{Count: nodes, Real: nodes},
			Cluster: record.Cluster{Components: []record.Component{{Name: "kubedyno-node", Harness: true}}},
			Phases:  []record.Phase{{Name: "rest", Kind: record.PhaseSteady, Start: origin, End: origin.Add(20 * time.Second)}},
		}
		rec := recordtest.Make(t, m, func(w *record.Writer) {
			w.Observes(record.TableProcesses)
			for i := range 21 {
				for n, p := range twice {
					for replica := range 2 {
						w.Process(record.ProcessSample{
							TimeMicros: origin.Add(time.Duration(i) * time.Second).UnixMicro(), StartMicros: origin.Add(-time.Minute).UnixMicro(),
							PID: int32(100 + 10*n + replica), Component: p.component, Command: p.command, UserSeconds: 1 + 0.01*float64(i),
						})
					}
				}
			}
		})
		d, err := diagnose.Run(rec, []diagnose.Detector{Detector})
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range d.Findings {
			found = append(found, f.Component)
		}
		want := "client:coredns"
		if nodes > 1 {
			want = ""
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%d nodes: found %q, want %q", nodes, got, want)
		}
	}
}

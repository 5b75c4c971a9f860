package periodicjob

import (
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// A command with a long line runs every 5 s, started by an add-on manager; the API
// server works in the same rhythm. Its cause has the whole line, its summary can be
// read, and its own CPU is not told as somebody else's.
func TestCommand(t *testing.T) {
	origin := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	us := func(seconds float64) int64 {
		return origin.Add(time.Duration(seconds * float64(time.Second))).UnixMicro()
	}
	command := "kubectl apply -f /etc/kubernetes/addons --prune=true --prune-allowlist core/v1/ConfigMap --prune-allowlist core/v1/Pod --recursive"
	const length = 60
	rec := recordtest.Make(t, record.Meta{
		Started: origin, Machine: record.Machine{CPUs: 2}, Nodes: record.Nodes{Count: 1, Real: 1},
		Phases: []record.Phase{{Name: "rest", Kind: record.PhaseSteady, Start: origin, End: origin.Add(length * time.Second)}},
	}, func(w *record.Writer) {
		w.Observes(record.TableProcesses, record.TableMachine, record.TableExits)
		server, busy := 5.0, 0.0
		for i := range length + 1 {
			s := float64(i)
			if i%5 == 3 {
				server, busy = server+0.3, busy+1.3
				w.Exit(record.ProcessExit{TimeMicros: us(s - 0.2), StartMicros: us(s - 0.9), PID: int32(1000 + i), Component: "addons", Command: command, UserSeconds: 0.5})
			}
			server += 0.01
			busy += 0.02
			w.Machine(record.MachineSample{TimeMicros: us(s), User: busy, Idle: 2*s - busy})
			w.Process(record.ProcessSample{TimeMicros: us(s), PID: 10, StartMicros: us(-50), Component: "kube-apiserver", Command: "kube-apiserver", UserSeconds: server})
			w.Process(record.ProcessSample{TimeMicros: us(s), PID: 11, StartMicros: us(-50), Component: "addons", Command: "kubedyno-actor", UserSeconds: 0.001 * s})
		}
	})
	d, err := diagnose.Run(rec, []diagnose.Detector{Detector})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Findings) != 1 {
		t.Fatalf("%d findings: %+v", len(d.Findings), d.Findings)
	}
	f := d.Findings[0]
	if f.Component != "client:kubectl" || !strings.Contains(f.Cause, "--recursive every 5.0 s") || strings.Contains(f.Summary, "--recursive") || !strings.Contains(f.Summary, "kubectl apply -f") {
		t.Errorf("%s: %s; %s", f.Component, f.Cause, f.Summary)
	}
	others := ""
	for _, e := range f.Evidence {
		if strings.Contains(e.Text, "uses another") {
			others += e.Text + "\n"
		}
	}
	if !strings.HasPrefix(others, "kube-apiserver uses another") || strings.Contains(others, "addons") {
		t.Errorf("in the same rhythm: %q", others)
	}
}

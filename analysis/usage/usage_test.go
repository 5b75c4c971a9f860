package usage

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var origin = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func us(seconds float64) int64 {
	return origin.Add(time.Duration(seconds * float64(time.Second))).UnixMicro()
}

func window(from, to float64) record.Window {
	return record.Window{Start: time.UnixMicro(us(from)), End: time.UnixMicro(us(to))}
}

// made is a machine of 2 CPUs over 10 s: etcd uses 0.1 cores and wakes 50 times
// a second, a kernel thread 0.01, somebody's shell 0.2 until its end at 4.5 s, and
// an add-on manager's kubectl lives between two samples.
func made(t *testing.T) *Usage {
	t.Helper()
	rec := recordtest.Make(t, record.Meta{Started: origin, Machine: record.Machine{CPUs: 2}}, func(w *record.Writer) {
		w.Observes(record.TableProcesses, record.TableMachine, record.TableExits)
		for i := range 11 {
			s := float64(i)
			busy := 0.1*s + 0.01*s + 0.2*min(s, 4.5) + 0.05*s // the last is of interrupts
			w.Machine(record.MachineSample{TimeMicros: us(s), Idle: 100 + 2*s - busy - 0.03*s - 0.02*s, IOWait: 7 + 0.03*s, Steal: 0.02 * s})
			w.Process(record.ProcessSample{TimeMicros: us(s), PID: 10, StartMicros: us(-5), Component: "etcd", Command: "etcd --name x", UserSeconds: 3 + 0.08*s, SystemSeconds: 1 + 0.02*s, VoluntarySwitches: int64(1000 + 50*s)})
			w.Process(record.ProcessSample{TimeMicros: us(s), PID: 2, StartMicros: us(-500), Command: "[kworker/0:1]", SystemSeconds: 9 + 0.01*s, VoluntarySwitches: int64(10 * s)})
			if i <= 4 {
				w.Process(record.ProcessSample{TimeMicros: us(s), PID: 77, StartMicros: us(-1), Command: "/bin/bash -c secret", UserSeconds: 5 + 0.2*s, VoluntarySwitches: -1})
			}
		}
		w.Exit(record.ProcessExit{TimeMicros: us(4.5), StartMicros: us(-1), PID: 77, Command: "/bin/bash -c secret", UserSeconds: 5.9})
		w.Exit(record.ProcessExit{TimeMicros: us(6.4), StartMicros: us(6.1), PID: 99, Component: "addon-manager", Command: "kubectl apply", UserSeconds: 0.2, SystemSeconds: 0.05})
	})
	u, err := Read(rec)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestBetween(t *testing.T) {
	u := made(t)
	got, err := u.Between(window(3, 8))
	if err != nil {
		t.Fatal(err)
	}
	if !near(got.Seconds, 5) || !near(got.IOWait, 0.15) || !near(got.Steal, 0.1) || !near(got.Busy, 5*0.16+0.2*1.5+0.1) {
		t.Errorf("machine: %+v", got)
	}
	want := []Row{
		{Name: "addon-manager", Component: true, CPUSeconds: 0.25, Processes: 1},
		{Name: "etcd", Component: true, CPUSeconds: 0.5, Wakeups: 250, Processes: 1},
		{Name: "bash", CPUSeconds: 0.3, Wakeups: Unknown, Processes: 1},
		{Name: Kernel, CPUSeconds: 0.05, Wakeups: 50, Processes: 1},
	}
	if len(got.Rows) != len(want) {
		t.Fatalf("%d rows: %+v", len(got.Rows), got.Rows)
	}
	for i, w := range want {
		g := got.Rows[i]
		if g.Name != w.Name || g.Component != w.Component || g.Processes != w.Processes || !near(g.CPUSeconds, w.CPUSeconds) || !near(g.Wakeups, w.Wakeups) {
			t.Errorf("row %d is %+v, want %+v", i, g, w)
		}
	}
	// kubectl's 0.25 is in no busy time of this machine; the interrupts' 0.25 and the
	// stolen 0.1 are in no process.
	if !near(got.Outside(), 0.1) {
		t.Errorf("outside of processes %v", got.Outside())
	}
}

func TestWhatEndedBeforeIsNotThere(t *testing.T) {
	got, err := made(t).Between(window(7, 9))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Rows {
		if (r.Name == "addon-manager" || r.Name == "bash") && r.CPUSeconds != 0 {
			t.Errorf("%s has ended, and used %v", r.Name, r.CPUSeconds)
		}
	}
}

// A process whose last sample was taken while it ended is one process, and what
// it used counts once.
func TestEndedWhileItWasRead(t *testing.T) {
	rec := recordtest.Make(t, record.Meta{Started: origin, Machine: record.Machine{CPUs: 2}}, func(w *record.Writer) {
		w.Observes(record.TableProcesses, record.TableMachine, record.TableExits)
		for i := range 11 {
			s := float64(i)
			w.Machine(record.MachineSample{TimeMicros: us(s), Idle: 100 + 1.6*s})
			w.Process(record.ProcessSample{TimeMicros: us(s), PID: 88, StartMicros: us(-3), Component: "kube-proxy", Command: "kube-proxy", UserSeconds: 3 + 0.4*s})
		}
		w.Exit(record.ProcessExit{TimeMicros: us(9.98), StartMicros: us(-3) + 5_000, PID: 88, Component: "kube-proxy", Command: "kube-proxy", UserSeconds: 7.001})
	})
	u, err := Read(rec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := u.Between(window(2, 7))
	if err != nil || len(got.Rows) != 1 || !near(got.Rows[0].CPUSeconds, 2) || got.Rows[0].Processes != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNotAssessed(t *testing.T) {
	if _, err := made(t).Between(window(5, 20)); err == nil {
		t.Error("10 s without a sample are assessed")
	}
	rec := recordtest.Make(t, record.Meta{Started: origin}, func(*record.Writer) {})
	if _, err := Read(rec); !errors.Is(err, ErrNothing) {
		t.Errorf("a recording without processes: %v", err)
	}
}

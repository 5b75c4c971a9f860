package spikes

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var begin = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func micros(seconds float64) int64 { return begin.Add(time.Duration(seconds * 1e9)).UnixMicro() }

// made writes a recording and opens it.
func made(t *testing.T, write func(w *record.Writer)) *record.Recording {
	t.Helper()
	return recordtest.Make(t, record.Meta{Name: "x", Started: begin}, write)
}

// applied is a machine of 300 s on which kubectl apply takes 300 ms every 5 s
// for etcd and an API server that answer it, beside a busy process without a
// rhythm and an idle one. Holes of 2 s.
func applied(t *testing.T, exits bool) *record.Recording {
	return made(t, func(w *record.Writer) {
		r := rand.New(rand.NewPCG(1, 2))
		w.Observes(record.TableProcesses, record.TableMachine)
		var machine, server, noise float64
		next := 2.37
		pid := int32(1000)
		for i := 0.0; i < 300; i++ {
			now := i + 0.01*r.Float64()
			for ; next < i; next += 5 {
				machine += 0.3
				server += 0.12
				machine += 0.12
				pid++
				if exits {
					w.Exit(record.ProcessExit{
						TimeMicros: micros(next + 0.31), StartMicros: micros(next), PID: pid, PPID: 1,
						Command:     fmt.Sprintf("kubectl apply --prune -f /tmp/addons-%d -l run=%d", pid, pid),
						UserSeconds: 0.25, SystemSeconds: 0.05, PeakRSSBytes: -1,
					})
				}
			}
			x := 0.2 + 0.03*r.NormFloat64()
			noise += x
			machine += x
			server += 0.02
			machine += 0.02
			if int(i)%50 == 31 || int(i)%50 == 32 {
				continue // not read
			}
			w.Machine(record.MachineSample{TimeMicros: micros(now), User: machine})
			row := func(pid int32, component, command string, cpu float64) {
				w.Process(record.ProcessSample{TimeMicros: micros(now), PID: pid, StartMicros: micros(-100), Component: component, Command: command, UserSeconds: cpu})
			}
			row(1, "kube-apiserver", "kube-apiserver --secure-port=6443", server)
			row(2, "", "busy --loop", noise)
			if i == 0 || i == 299 {
				row(3, "", "idle", 5)
			}
		}
	})
}

func find(t *testing.T, rec *record.Recording) Result {
	t.Helper()
	res, err := Find(rec, Options{Window: record.Window{Start: begin, End: begin.Add(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func row(t *testing.T, res Result, what, kind string) Row {
	t.Helper()
	for _, r := range res.Rows {
		if r.What == what && r.Kind == kind {
			return r
		}
	}
	t.Fatalf("no %s of a %s: %+v", kind, what, res.Rows)
	return Row{}
}

// The case that this package was made for: short processes that no reading
// shows, every 5 s, through holes of 2 s.
func TestPeriodicCommand(t *testing.T) {
	res := find(t, applied(t, true))
	c := row(t, res, Command, Repeats)
	if c.Name != "kubectl apply --prune -f /tmp/<tmp> -l run=<n>" || math.Abs(c.Period-5) > 0.001 || c.PeriodError > 0.1 || !c.Exact {
		t.Errorf("command %+v", c)
	}
	if c.Executions != 60 || c.Count != 60 || math.Abs(c.Each-0.3) > 0.001 || math.Abs(c.Share-0.06) > 0.001 || math.Abs(c.First-2.37) > 0.001 {
		t.Errorf("command %+v", c)
	}
	m := row(t, res, Machine, Repeats)
	if math.Abs(m.Period-5) > 0.05 || math.Abs(m.Each-0.42) > 0.06 {
		t.Errorf("machine %+v", m)
	}
	if len(m.Contributors) < 2 || m.Contributors[0].Name != c.Name || math.Abs(m.Contributors[0].Share-0.3/0.42) > 0.1 || m.Contributors[1].Name != "kube-apiserver" {
		t.Errorf("contributors %+v", m.Contributors)
	}
	s := row(t, res, Component, Repeats)
	if s.Name != "kube-apiserver" || math.Abs(s.Period-5) > 0.05 || math.Abs(s.Each-0.12) > 0.02 {
		t.Errorf("component %+v", s)
	}
	for _, r := range res.Rows {
		if r.Name == "busy --loop" && r.Kind == Repeats || r.Name == "idle" {
			t.Errorf("row %+v", r)
		}
	}
	if res.Spikes > 0 && c.OfSpikes < 0.9 {
		t.Errorf("%d spikes, of which %v are the command's", res.Spikes, c.OfSpikes)
	}
	if !slices.ContainsFunc(res.Notes, func(n string) bool { return n == "12 of 299 seconds were not read" }) {
		t.Errorf("notes %q", res.Notes)
	}
}

// Without exits the rhythm still shows in the machine and in who answers, and
// the result says what it cannot see.
func TestWithoutExits(t *testing.T) {
	res := find(t, applied(t, false))
	if m := row(t, res, Machine, Repeats); math.Abs(m.Period-5) > 0.05 {
		t.Errorf("machine %+v", m)
	}
	if len(res.Notes) != 2 {
		t.Errorf("notes %q", res.Notes)
	}
}

func TestComponentFilterAndShare(t *testing.T) {
	rec := applied(t, true)
	all := record.Window{Start: begin, End: begin.Add(time.Hour)}
	res, err := Find(rec, Options{Window: all, Components: []string{"etcd"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Rows {
		if r.What != Machine {
			t.Errorf("row %+v", r)
		}
	}
	if res, err = Find(rec, Options{Window: all, MinShare: 0.07}); err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Rows {
		if r.What == Command {
			t.Errorf("6 %% is below 7 %%: %+v", r)
		}
	}
}

func TestSpikesOfIrregularProcess(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		w.Observes(record.TableProcesses, record.TableMachine)
		cpu, before := 0.0, -1.0
		for i := range 200 {
			switch i {
			case 17, 60, 61, 148:
				cpu += 0.8
			}
			w.Machine(record.MachineSample{TimeMicros: micros(float64(i)), User: cpu})
			// As the collector does: only what moved, and the row before it.
			if cpu != before {
				if i > 0 {
					w.Process(record.ProcessSample{TimeMicros: micros(float64(i - 1)), PID: 7, StartMicros: micros(-5), Command: "cron", UserSeconds: before})
				}
				w.Process(record.ProcessSample{TimeMicros: micros(float64(i)), PID: 7, StartMicros: micros(-5), Command: "cron", UserSeconds: cpu})
			}
			before = cpu
		}
	})
	r := row(t, find(t, rec), Process, Spikes)
	if r.Count != 3 || !slices.Equal(r.Starts, []float64{16, 59, 147}) || math.Abs(r.Total-3.2) > 0.01 || r.OfSpikes != 1 {
		t.Errorf("got %+v", r)
	}
}

// Where all executions have the same command line, that is the command's name; else it
// is what they have in common. Whose home it is in is nobody's business.
func TestCommandLines(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		for i := range 20 {
			for n, command := range []string{"/tmp/check 300", fmt.Sprintf("/tmp/load-%d 300", i), "/home/anna/probe --port 8080"} {
				at := float64(3*i + n)
				w.Exit(record.ProcessExit{
					TimeMicros: micros(at + .3), StartMicros: micros(at), PID: int32(1000 + 3*i + n), Command: command, UserSeconds: .3,
				})
			}
		}
		for i := range 70 {
			w.Machine(record.MachineSample{TimeMicros: micros(float64(i)), User: float64(i)})
		}
	})
	var names []string
	for _, r := range find(t, rec).Rows {
		if r.What == Command {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, "|"); got != "/tmp/check 300|/tmp/load-<n> <n>|~/probe --port 8080" {
		t.Error(got)
	}
}

func TestMissing(t *testing.T) {
	rec := made(t, func(w *record.Writer) {
		w.Gap(record.Gap{Collector: "process", Reason: "no /proc here"})
	})
	if _, err := Find(rec, Options{}); !errors.Is(err, record.ErrMissing) {
		t.Errorf("got %v", err)
	}
}

func TestNormal(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"kubectl apply --prune -f /etc/kubernetes/addons -l kubernetes.io/cluster-service=true --prune=true", "kubectl apply --prune -f /etc/kubernetes/addons -l kubernetes.io/cluster-service=true --prune=true"},
		{"/home/anna/bin/kubectl --kubeconfig=/root/.kube/config get -f /srv/root/x", "~/bin/kubectl --kubeconfig=~/.kube/config get -f /srv/root/x"},
		{"kubectl --kubeconfig /tmp/tmp.Xy12Ab/kc get pod web-5d4f8c7b9-x7k2p", "kubectl --kubeconfig /tmp/<tmp> get pod web-<hex>-<id>"},
		{"runc --log /run/c/0f3a9c77b1e2d4f50f3a9c77b1e2d4f5/log.json start 0f3a9c77b1e2d4f5", "runc --log /run/c/<hex>/log.json start <hex>"},
		{"sleep 5", "sleep <n>"},
		{"/tmp/go-build217/b001/x.test -test.timeout=10m", "/tmp/x.test -test.timeout=10m"},
		{"/tmp/burn -f /tmp/burn /run/user/0/x", "/tmp/burn -f /tmp/<tmp> /run/user/<n>/<tmp>"},
		{"ps -p 4711,4712", "ps -p <n>,<n>"},
		{"backup --at 2026-01-02T15:04:05Z --id 123e4567-e89b-12d3-a456-426614174000", "backup --at <time> --id <uuid>"},
		{"python3 -m http.server", "python3 -m http.server"},
		{"[kworker/0:1-events]", "[kworker/<n>:<n>-events]"},
	} {
		if got := Normal(c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		if once := Normal(c.in); Normal(once) != once {
			t.Errorf("%q changes again to %q", once, Normal(once))
		}
	}
}

func FuzzNormal(f *testing.F) {
	f.Add("kubectl apply -f /tmp/x-1234")
	f.Add("a 0x1 -ab1cd \x00 <n>")
	f.Fuzz(func(t *testing.T, s string) {
		if n := Normal(s); len(n) > 4*len(s)+16 {
			t.Errorf("%q became %q", s, n)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	// Half an hour, 60 busy processes.
	rec := recordtest.Make(b, record.Meta{Name: "x", Started: begin}, func(w *record.Writer) {
		r := rand.New(rand.NewPCG(1, 2))
		cpu := make([]float64, 60)
		var machine float64
		for i := range 1800 {
			for p := range cpu {
				x := 0.02 * r.Float64()
				cpu[p] += x
				machine += x
				w.Process(record.ProcessSample{TimeMicros: micros(float64(i)), PID: int32(p), Command: fmt.Sprint("p", p), StartMicros: micros(-1), UserSeconds: cpu[p]})
			}
			w.Machine(record.MachineSample{TimeMicros: micros(float64(i)), User: machine})
		}
	})
	for b.Loop() {
		if _, err := Find(rec, Options{Window: record.Window{Start: begin, End: begin.Add(time.Hour)}}); err != nil {
			b.Fatal(err)
		}
	}
}

package process

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

var update = flag.Bool("update", false, "rewrite the expectations")

// rows prints what a scan wrote, one row a line, without the start, which
// depends on when this machine was.
func (s *tables) rows(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	line := func(kind string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", kind, data)
	}
	for _, r := range s.machine {
		line("machine", r)
	}
	for _, r := range s.cores {
		line("core", r)
	}
	for _, r := range s.disks {
		line("disk", r)
	}
	slices.SortFunc(s.processes, func(a, b record.ProcessSample) int { return int(a.PID - b.PID) })
	for _, r := range s.processes {
		r.StartMicros = 0
		r.RSSBytes /= int64(os.Getpagesize())
		line("process", r)
	}
	for _, g := range s.gaps {
		line("gap", g)
	}
	return b.String()
}

// One scan of a small machine with cgroup v2, stolen time and guests: every
// column, the same wherever it runs.
func TestFixtureTree(t *testing.T) {
	dir := filepath.Join("testdata", "v2")
	var got tables
	c := New(Options{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"),
		Components: []Component{{Name: "etcd", PID: 812, Cgroup: filepath.Join(dir, "cgroup", "etcd")}}})
	s, err := newScanner(c.o.Proc, c.o.Sys, &got, c.o.Redact)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	at := time.Unix(1000, 0)
	if err := s.machine(at); err != nil {
		t.Fatal(err)
	}
	if err := s.scan(at, c.known, false); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "v2.golden")
	text := got.rows(t)
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	for _, m := range got.machine {
		var sum float64
		for _, c := range got.cores {
			sum += c.UserSeconds + c.NiceSeconds + c.GuestSeconds + c.SystemSeconds + c.IRQSeconds + c.SoftIRQSeconds + c.StealSeconds + c.IOWaitSeconds + c.IdleSeconds
		}
		if all := m.User + m.System + m.Idle + m.IOWait + m.Steal; sum-all > 1e-9 || all-sum > 1e-9 {
			t.Errorf("the modes of all cores add up to %g s, the machine's to %g s", sum, all)
		}
	}
}

// The quota's account is the same number from both kinds of cgroups.
func TestThrottlingOfBothKinds(t *testing.T) {
	for _, kind := range []string{"v1", "v2"} {
		f := newFixture(t)
		f.process(5, 1, 100, 7)
		var got tables
		s := f.scanner(&got)
		if err := s.scan(time.Unix(1000, 0), map[int32]named{5: {component: "etcd", cgroup: filepath.Join("testdata", kind, "cgroup", "etcd"), seq: 1}}, false); err != nil {
			t.Fatal(err)
		}
		if r := got.processes[0]; r.ThrottledSeconds != 2.75 || r.ThrottledPeriods != 40 || r.Periods != 500 {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

// Without root, PSI, schedstat and the rest a scan goes on, and each thing that
// is missing is one gap, however often it is missed.
func TestGapsOnce(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	var got tables
	c := New(Options{Proc: f.proc, Sys: f.sys})
	s := f.scanner(&got)
	for range 3 {
		if _, err := c.once(s, nil, true, true, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(got.machine) != 3 || len(got.processes) != 3 {
		t.Errorf("%d and %d rows", len(got.machine), len(got.processes))
	}
	var subjects []string
	for _, g := range got.gaps {
		subjects = append(subjects, g.Subject)
		if g.Collector != "process" || !strings.ContainsAny(g.Reason, ";") {
			t.Errorf("a gap without a way out: %+v", g)
		}
	}
	slices.Sort(subjects)
	if want := []string{"diskstats", "meminfo", "net/dev", "net/netstat", "net/snmp", "net/sockstat", "psi", "schedstat", "vmstat"}; !slices.Equal(subjects, want) {
		t.Errorf("gaps %v, want %v", subjects, want)
	}
	m := got.machine[0]
	if m.RunDelaySeconds != -1 || m.OOMKills != -1 || m.MajorFaults != -1 || m.MemoryDirtyBytes != -1 || m.SwapUsedBytes != -1 || m.ContextSwitches != -1 ||
		m.Forks != -1 || m.Runnable != -1 || m.Blocked != -1 || m.NetReceivedBytes != -1 || m.NetErrors != -1 || m.TCPOpensActive != -1 || m.TCPListenDrops != -1 ||
		m.TCPTimeWait != -1 || m.Sockets != -1 || m.IOPressureSeconds != -1 || m.MemoryPressureSeconds != -1 {
		t.Errorf("missing is not -1: %+v", m)
	}
}

// What the exact time is divided into adds up, never falls below what was
// shown, and is what the ticks say.
func TestSplit(t *testing.T) {
	for _, c := range []struct{ user, system, runtime, u, s int64 }{
		{30, 10, 80, 60, 20},
		{0, 0, 7, 7, 0},
		{0, 10, 7, 0, 7},
		{10, 0, 7, 7, 0},
		{10, 20, 0, 10, 20},
	} {
		if u, s := split(c.user, c.system, c.runtime); u != c.u || s != c.s {
			t.Errorf("%+v: got %d, %d", c, u, s)
		}
	}
	if u, s := notBelow(1, 0.5, 0.9, 0.7); u+s < 1.6-1e-9 || u < 0.9 || s < 0.7 {
		t.Errorf("%g, %g", u, s)
	}
}

package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

// Two looks, two seconds apart.
func topSnapshots() (a, b *process.Snapshot) {
	at := time.Unix(1000, 0).UTC()
	a = &process.Snapshot{
		Time:    at,
		Machine: record.MachineSample{ContextSwitches: 100, Forks: 10, RunDelaySeconds: -1, CPUPressureSeconds: 1, MemoryPressureSeconds: 1, IOPressureSeconds: -1, MajorFaults: 5, TCPOpensActive: 10, TCPOpensPassive: -1},
		Cores:   []record.CoreSample{{CPU: 0, UserSeconds: 10, IdleSeconds: 100, IOWaitSeconds: 5}, {CPU: 1, UserSeconds: 10, IdleSeconds: 100}},
		Disks:   []record.DiskSample{{Device: "vda", Reads: 10, ReadSeconds: 1, Flushes: -1, FlushSeconds: -1}},
		Processes: []record.ProcessSample{
			{PID: 5, StartMicros: 1, Component: "etcd", Command: "etcd", UserSeconds: 1, SystemSeconds: 1, GuestSeconds: 0, RunDelaySeconds: 3, VoluntarySwitches: 10, InvoluntarySwitches: -1, ReadBytes: -1, WriteBytes: 1024},
			{PID: 6, StartMicros: 2, Command: "old", UserSeconds: 50},
			{PID: 7, StartMicros: 3, Command: "gone", UserSeconds: 2},
		},
	}
	b = &process.Snapshot{
		Time:    at.Add(2 * time.Second),
		Machine: record.MachineSample{ContextSwitches: 300, Forks: 30, RunDelaySeconds: -1, CPUPressureSeconds: 1.5, MemoryPressureSeconds: 1, IOPressureSeconds: -1, MajorFaults: 5, TCPOpensActive: 16, TCPOpensPassive: -1, Runnable: 3, MemoryAvailableBytes: 2 << 30, SwapUsedBytes: -1},
		Cores:   []record.CoreSample{{CPU: 0, UserSeconds: 11, IdleSeconds: 100.5, IOWaitSeconds: 4, GuestSeconds: 0.5}, {CPU: 1, UserSeconds: 10, IdleSeconds: 101.5, StealSeconds: 0.5}},
		Disks:   []record.DiskSample{{Device: "vda", Reads: 14, ReadSeconds: 1.02, ReadBytes: 8192, Flushes: -1, FlushSeconds: -1, BusySeconds: 0.5, QueueSeconds: 1}},
		Processes: []record.ProcessSample{
			{PID: 5, StartMicros: 1, Component: "etcd", Command: "etcd", UserSeconds: 2, SystemSeconds: 1.5, RunDelaySeconds: 3.2, VoluntarySwitches: 30, InvoluntarySwitches: -1, ReadBytes: -1, WriteBytes: 5120, RSSBytes: 3 << 20, Threads: 8, FDs: 9},
			{PID: 6, StartMicros: 9, Command: "new owner of the PID", UserSeconds: 0.1, RunDelaySeconds: -1, FDs: -1},
		},
		Exits: []record.ProcessExit{
			{PID: 7, StartMicros: 3, TimeMicros: 1001e6, Command: "gone", UserSeconds: 2.25, SystemSeconds: 0, ExitCode: 137},
			{PID: 8, StartMicros: 1001000000, TimeMicros: 1001004000, Component: "etcd", Command: "etcdctl snapshot", UserSeconds: 0.003, SystemSeconds: 0.001},
		},
	}
	return a, b
}

func TestTopRows(t *testing.T) {
	a, b := topSnapshots()
	rows := topProcesses(a, b, func(string) bool { return true })
	if len(rows) != 2 {
		t.Fatalf("%+v", rows)
	}
	r := rows[0]
	if r.PID != 5 || r.CPU != 75 || r.User != 50 || r.System != 25 || r.Wait != 10 || r.Voluntary != 10 || r.Involuntary != -1 || r.ReadKiB != -1 || r.WriteKiB != 2 {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.CPU != 5 || r.Wait != -1 || r.FDs != -1 { // all of it is new: PID 6 was another process
		t.Errorf("%+v", r)
	}
	if rows := topProcesses(a, b, func(c string) bool { return c == "etcd" }); len(rows) != 1 {
		t.Errorf("%+v", rows)
	}
	ends, came := topEnds(a, b, func(string) bool { return true })
	if len(ends) != 2 || came != 1 || ends[0].PID != 7 || ends[0].user != 0.25 || ends[1].user != 0.003 {
		t.Errorf("%d, %+v", came, ends)
	}
	m := topMachineRow(a, b, a.Time)
	if m.User != 25 || m.Guest != 12.5 || m.Idle != 50 || m.IOWait != 0 || m.Steal != 12.5 || m.Busy != 37.5 || m.Elapsed != 2 || m.Timestamp != "1970-01-01T00:16:42.000Z" {
		t.Errorf("%+v", m)
	}
}

func TestTopFrame(t *testing.T) {
	a, b := topSnapshots()
	var out bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &out}
	s := newTopScreen(env, topOptions{format: "text", rows: 20, interval: time.Second})
	s.show(a)
	if out.Len() != 0 {
		t.Errorf("the first look has no rates: %s", &out)
	}
	if err := s.show(b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 CPUs  busy 37.5 %  run queue 3  blocked 0  waiting for a CPU – of one  pressure cpu 25.0 % memory 0.0 % io –",
		"cpu1   usr   0.0  nice   0.0  sys   0.0  irq  0.0  softirq  0.0  steal  25.0  guest   0.0  iowait   0.0  idle  75.0",
		"memory 2.00 GiB available  0.00 GiB dirty  – swapped  major faults/s 0  switches/s 100  forks/s 10",
		"vda     busy 25.0 %  queue 0.50  read 4 KiB/s 5.00 ms  write 0 KiB/s –  flush –/s –",
		"tcp    opens/s 3 out – in",
		"5    etcd       75.0  50.0  25.0  0.0    10.0  10     –        3.0      –           2            8        9    etcd",
		"2 processes ended, 1 of them had begun since the last look; CPU since then: 254 ms",
		"8    etcd       4         3.0     1.0     0     etcdctl snapshot",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if got := onScreen("0123456789\nab\nc\n", 4, 2); got != "\x1b[H0123\x1b[K\r\nab\x1b[K\x1b[J" {
		t.Errorf("%q", got)
	}
}

// The terminal's own screen comes back when the command ends.
func TestTopScreenRestored(t *testing.T) {
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs, StdoutTTY: true, Getenv: func(string) string { return "" }, Now: time.Now}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := runTop(ctx, env, topOptions{interval: 100 * time.Millisecond, format: "text", rows: 5}); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.HasPrefix(s, "\x1b[?1049h") || !strings.HasSuffix(s, "\x1b[?25h\x1b[?1049l") || !strings.Contains(s, "%CPU") {
		t.Errorf("%.200q … %q", s, s[max(len(s)-40, 0):])
	}
}

// Real looks as CSV: one header, one line an interval, modes that add up.
func TestTopCSV(t *testing.T) {
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	run := func(args ...string) [][]string {
		t.Helper()
		out.Reset()
		if code := Main(t.Context(), env, append([]string{"top"}, args...)); code != 0 {
			t.Fatalf("%v: %d %s", args, code, &errs)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	rows := run("--csv", "--interval", "300ms", "--for", "2s")
	if len(rows) < 3 || strings.Join(rows[0], ",") != "timestamp,elapsed,user,nice,system,idle,iowait,irq,softirq,steal,guest,busy%" {
		t.Fatalf("%v", rows)
	}
	for _, r := range rows[1:] {
		var sum float64
		for _, cell := range r[2:11] {
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
		if sum < 99.5 || sum > 100.5 {
			t.Errorf("modes add up to %v: %v", sum, r)
		}
	}
	cmd := exec.Command("sleep", "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	found := false
	for _, r := range run("--csv", "--processes", "--interval", "300ms", "--for", "300ms")[1:] {
		found = found || r[1] == strconv.Itoa(cmd.Process.Pid) && r[len(r)-1] == "sleep 30"
	}
	if !found {
		t.Error("a process is missing")
	}
}

func TestTopMisuse(t *testing.T) {
	for _, args := range [][]string{
		{"--interval", "1ms"}, {"--for", "-1s"}, {"--for", "10ms"}, {"-n", "-1"}, {"-o", "yaml"},
		{"--processes"}, {"--csv", "-o", "json"}, {"--name", "no-such-lab"}, {"extra"},
	} {
		var out bytes.Buffer
		env := &Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }, Now: time.Now}
		if code := Main(t.Context(), env, append([]string{"top"}, args...)); code != ExitMisused {
			t.Errorf("%v: exit code %d: %s", args, code, &out)
		}
	}
}

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch os.Getenv("PROCESS_TEST_CHILD") {
	case "burn":
		burn(60 * time.Second)
		return
	case "threads":
		threads(4, 75*time.Millisecond)
		os.Exit(7)
	case "orphan":
		orphan()
		return
	}
	goleak.VerifyTestMain(m)
}

var burned int

func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := range 100000 {
			burned += i
		}
	}
}

// threads burns CPU on n threads for d each.
func threads(n int, d time.Duration) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			x := 0
			for end := time.Now().Add(d); time.Now().Before(end); {
				for i := range 10000 {
					x += i
				}
			}
			_ = x
			_ = make([]byte, 8<<20)
		})
	}
	wg.Wait()
}

// orphan leaves a child that outlives it.
func orphan() {
	cmd := exec.Command("/bin/sh", "-c", "sleep 0.3; exit 5", "grandchild")
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	fmt.Println(cmd.Process.Pid)
}

// tables keeps what a collector writes.
type tables struct {
	mu        sync.Mutex
	processes []record.ProcessSample
	machine   []record.MachineSample
	cores     []record.CoreSample
	disks     []record.DiskSample
	exits     []record.ProcessExit
	gaps      []record.Gap
}

func (s *tables) Core(r record.CoreSample) { s.cores = append(s.cores, r) }
func (s *tables) Disk(r record.DiskSample) { s.disks = append(s.disks, r) }
func (s *tables) Gap(g record.Gap)         { s.gaps = append(s.gaps, g) }

func (s *tables) Exit(r record.ProcessExit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exits = append(s.exits, r)
}

func (s *tables) Process(r record.ProcessSample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, r)
}

func (s *tables) Machine(r record.MachineSample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine = append(s.machine, r)
}

func (s *tables) of(pid int) (rows []record.ProcessSample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.processes {
		if r.PID == int32(pid) {
			rows = append(rows, r)
		}
	}
	return rows
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{
			"ordinary", "20109 (cat) R 20106 20106 16257 0 -1 4194304 102 0 7 0 11 22 0 0 20 0 3 0 91598 3133440 383 18446744073709551615 1 1 0",
			"comm=cat state=R ppid=20106 flags=4194304 majflt=7 utime=11 stime=22 threads=3 start=91598 rss=383",
		},
		{
			"parentheses and blanks in the command", "7 (a) (b c) S 1 7 7 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 13 0 0 18446744073709551615",
			"comm=a) (b c state=S ppid=1 flags=2129984 majflt=0 utime=0 stime=5 threads=1 start=13 rss=0",
		},
		{"empty", "", "error"},
		{"cut", "20109 (cat) R 20106 20106", "error"},
		{"no number", "20109 (cat) R x 20106 16257 0 -1 4194304 102 0 7 0 11 22 0 0 20 0 3 0 91598 3133440 383", "error"},
	} {
		s, err := parseStat([]byte(c.in))
		got := fmt.Sprintf("comm=%s state=%c ppid=%d flags=%d majflt=%d utime=%d stime=%d threads=%d start=%d rss=%d",
			s.comm, s.state, s.ppid, s.flags, s.majorFault, s.utime, s.stime, s.threads, s.start, s.rssPages)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestParseThrottle(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"v1", "nr_periods 10\nnr_throttled 3\nthrottled_time 1500000000\n", "10 3 1.5"},
		{"v2", "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 10\nnr_throttled 3\nthrottled_usec 1500000\nnr_bursts 0\n", "10 3 1.5"},
		{"v2 root", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n", "error"},
		{"empty", "", "error"},
	} {
		v, err := parseThrottle([]byte(c.in))
		got := fmt.Sprint(v.periods, v.throttled, v.seconds)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestParseMachineFiles(t *testing.T) {
	var cores []string
	m, err := parseMachineStat([]byte("cpu  2499 32934 12167 134229 520 3 132 37 40 50\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 1 2 3 4 5 6 7 8\nintr 5 6\nctxt 7\nbtime 8\nprocesses 9\nprocs_running 2\nprocs_blocked 1\n"),
		func(cpu int32, c cpuTimes) { cores = append(cores, fmt.Sprint(cpu, c)) })
	if want := (machineStat{cpuTimes{2499, 32934, 12167, 134229, 520, 3, 132, 37, 40, 50}, 7, 9, 2, 1}); err != nil || m != want {
		t.Errorf("stat: got %+v, %v; want %+v", m, err, want)
	}
	if got, want := strings.Join(cores, "; "), "0 {1 2 3 4 5 6 7 8 9 10}; 12 {1 2 3 4 5 6 7 8 0 0}"; got != want {
		t.Errorf("cores: got %s, want %s", got, want)
	}
	us, err := parsePressure([]byte("some avg10=1.79 avg60=12.77 avg300=21.50 total=127516686\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"))
	if err != nil || us != 127516686 {
		t.Errorf("pressure: got %d, %v", us, err)
	}
	var disks []string
	eachDisk([]byte("   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"+
		" 254       0 vda 126063 12146 4114410 42749 37346 103478 16425008 21996 0 11232 66098 16029 74 5982968 1254 3125 97\n"+
		" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\nbroken\n"), func(d disk) {
		disks = append(disks, fmt.Sprint(string(d.name), " ", d.readBytes, " ", d.writeBytes, " ", d.busyMillis, " ", d.flushes, " ", d.flushMillis, " ", d.reads, " ", d.readMillis, " ", d.writes, " ", d.writeMillis, " ", d.inFlight, " ", d.queueMillis))
	})
	got := strings.Join(disks, "; ")
	if want := "loop0 0 0 0 0 0 0 0 0 0 0 0; vda 2106577920 8409604096 11232 3125 97 126063 42749 37346 21996 0 66098; sda 1536 3584 10 -1 -1 1 4 5 8 9 11"; got != want {
		t.Errorf("disks:\n got %s\nwant %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("7 (a) (b c) S 1 7 7 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 13 0 0 1")
	f.Add("cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 5")
	f.Add("Tcp: ActiveOpens PassiveOpens\nTcp: 1 2\n")
	f.Add("  lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	f.Add("version 15\ncpu0 0 0 0 0 0 0 1 2 3\n")
	f.Add("some avg10=1.79 total=1\n")
	f.Add("nr_periods 10\nnr_throttled 3\nthrottled_time 15")
	f.Add("x\nread_bytes: 1\nwrite_bytes: 2\n")
	f.Fuzz(func(t *testing.T, s string) {
		b := []byte(s)
		parseStat(b)
		parseSchedstat(b)
		parseSwitches(b)
		parseIO(b)
		parseThrottle(b)
		parseMachineStat(b, func(int32, cpuTimes) {})
		parseRunDelay(b)
		parseNetwork(b)
		paired(b, "Tcp: ", snmpNames)
		parsePressure(b)
		eachDisk(b, func(disk) {})
		if string(b) != s {
			t.Error("a parser changed its input")
		}
	})
}

// A child that burns CPU is seen with its name, its CPU, its threads' run
// delay and its command line without the secret.
func TestRealChild(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--token=hunter2hunter2", "--name=x")
	cmd.Env = append(os.Environ(), "PROCESS_TEST_CHILD=burn", "GOMAXPROCS=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Interval: 100 * time.Millisecond, Components: []Component{{Name: "etcd", PID: cmd.Process.Pid}}})
	var got tables
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := c.collect(ctx, &got, false, ignore); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	cmd.Process.Kill()
	cmd.Wait()
	usage := cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()

	rows := got.of(cmd.Process.Pid)
	if len(rows) < 5 {
		t.Fatalf("%d rows of the child", len(rows))
	}
	last := rows[len(rows)-1]
	cpu := last.UserSeconds + last.SystemSeconds
	if cpu > usage+0.02 || cpu < usage/2 { // it went on burning until killed
		t.Errorf("CPU measured %.2f s in %.1f s, burnt %.2f s", cpu, took, usage)
	}
	if last.Component != "etcd" {
		t.Errorf("component is %q", last.Component)
	}
	if strings.Contains(last.Command, "hunter2") || !strings.Contains(last.Command, "--name=x") {
		t.Errorf("command is %q", last.Command)
	}
	if last.RunDelaySeconds < 0 || last.VoluntarySwitches < 0 || last.InvoluntarySwitches+last.VoluntarySwitches == 0 || last.Threads < 2 || last.FDs < 1 || last.RSSBytes < 1<<20 {
		t.Errorf("implausible: %+v", last)
	}
	if last.ThrottledPeriods < 0 || last.Periods < last.ThrottledPeriods { // zeros, unless the tests themselves have a quota
		t.Errorf("throttling in the groups of this test: %+v", last)
	}
	if d := time.UnixMicro(last.StartMicros).Sub(began); d < -2*time.Second || d > time.Second {
		t.Errorf("start is %v off", d)
	}
	for i := 1; i < len(rows); i++ {
		a, b := rows[i-1], rows[i]
		if b.TimeMicros <= a.TimeMicros || b.RunDelaySeconds < a.RunDelaySeconds || b.VoluntarySwitches < a.VoluntarySwitches || b.StartMicros != a.StartMicros {
			t.Errorf("a counter fell:\n%+v\n%+v", a, b)
		}
	}
	if me := got.of(os.Getpid()); len(me) < 5 || me[0].Component != Self {
		t.Errorf("%d rows of ourselves", len(me))
	}
	if n := len(got.machine); n < 5 || got.machine[n-1].Idle <= 0 || got.machine[n-1].MemoryAvailableBytes <= 0 {
		t.Errorf("machine: %d samples", n)
	}
	if a := c.Account(); a.Samples != int64(len(got.processes)+len(got.exits)) || a.CPUSeconds <= 0 {
		t.Errorf("account: %+v", a)
	}
}

// fixture is a /proc of our own.
type fixture struct {
	t         testing.TB
	proc, sys string
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{t: t, proc: filepath.Join(t.TempDir(), "proc"), sys: t.TempDir()}
	f.put("stat", "cpu  100 0 0 100 0 0 0 0 0 0\n")
	return f
}

func (f *fixture) put(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.proc, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// process writes a process of one thread.
func (f *fixture) process(pid, ppid int, start, utime int) {
	f.put(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (p%d) S %d 0 0 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 %d 0 10 0", pid, pid, ppid, utime, start))
	f.put(fmt.Sprintf("%d/cmdline", pid), fmt.Sprintf("/bin/p%d\x00-x\x00", pid))
}

func (f *fixture) scanner(out sink) *scanner {
	s, err := newScanner(f.proc, f.sys, out, record.RedactArgs)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.close() })
	return s
}

// Fields whose files are missing are -1.
func TestUnreadableIsNotZero(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	var got tables
	c := New(Options{Proc: f.proc, Sys: f.sys})
	s := f.scanner(&got)
	if _, err := c.once(s, nil, true, false, false); err != nil {
		t.Fatal(err)
	}
	r := got.processes[0]
	if r.RunDelaySeconds != -1 || r.ReadBytes != -1 || r.WriteBytes != -1 || r.VoluntarySwitches != -1 || r.InvoluntarySwitches != -1 || r.FDs != -1 || r.ThrottledSeconds != -1 || r.ThrottledPeriods != -1 || r.Periods != -1 {
		t.Errorf("%+v", r)
	}
	if r.UserSeconds != 0.07 || r.Command != "/bin/p5 -x" {
		t.Errorf("%+v", r)
	}
	m := got.machine[0]
	if m.DiskBusySeconds != -1 || m.DiskReadBytes != -1 || m.FlushCount != -1 || m.FlushSeconds != -1 || m.CPUPressureSeconds != -1 || m.MemoryAvailableBytes != -1 || m.User != 1 {
		t.Errorf("%+v", m)
	}
}

// A name stays with the process: the next owner of its PID does not get it,
// unless it is attached again. What a component starts counts for it.
func TestIdentity(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	f.process(6, 5, 101, 7)
	var got tables
	c := New(Options{Proc: f.proc, Sys: f.sys, Components: []Component{{Name: "etcd", PID: 5}}})
	s := f.scanner(&got)
	see := func(pid int) string {
		t.Helper()
		if _, err := c.once(s, nil, true, true, false); err != nil {
			t.Fatal(err)
		}
		rows := got.of(pid)
		return rows[len(rows)-1].Component
	}
	if a, b := see(5), see(6); a != "etcd" || b != "etcd" {
		t.Errorf("first: %q and its child %q", a, b)
	}
	f.process(5, 1, 200, 1)
	if a := see(5); a != "" {
		t.Errorf("the PID's next owner is %q", a)
	}
	f.process(5, 1, 300, 1)
	c.Attach(Component{Name: "etcd", PID: 5})
	if a := see(5); a != "etcd" {
		t.Errorf("attached again: %q", a)
	}
	starts := map[int64]bool{}
	for _, r := range got.of(5) {
		starts[r.StartMicros] = true
	}
	if len(starts) != 3 {
		t.Errorf("%d identities, want 3", len(starts))
	}
}

// An idle process is written rarely; when it moves, the row before the move is
// written too, so that the CPU falls into the right second.
func TestIdleRows(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	var got tables
	s := f.scanner(&got)
	at := time.Unix(1000, 0)
	step := func(n int) {
		for range n {
			if err := s.scan(at, nil, false); err != nil {
				t.Fatal(err)
			}
			at = at.Add(time.Second)
		}
	}
	step(5)
	f.process(5, 1, 100, 57)
	step(25)
	var seconds []string
	for _, r := range got.processes {
		seconds = append(seconds, fmt.Sprintf("%d:%.2f", r.TimeMicros/1e6-1000, r.UserSeconds))
	}
	if got, want := strings.Join(seconds, " "), "0:0.07 4:0.07 5:0.57 15:0.57 25:0.57"; got != want {
		t.Errorf("rows at %s, want %s", got, want)
	}
	os.RemoveAll(filepath.Join(f.proc, "5"))
	step(1)
	if r := got.processes[len(got.processes)-1]; r.TimeMicros != 1029e6 {
		t.Errorf("last row at %d, want the last second it was seen, 1029", r.TimeMicros/1e6)
	}
}

func TestThrottlingAndDisks(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	group := t.TempDir()
	os.WriteFile(filepath.Join(group, "cpu.stat"), []byte("nr_periods 10\nnr_throttled 3\nthrottled_time 1500000000\n"), 0o644)
	os.MkdirAll(filepath.Join(f.sys, "block/vda/device"), 0o755)
	os.MkdirAll(filepath.Join(f.sys, "block/vdb/device"), 0o755)
	disks := func(a, b int) {
		f.put("diskstats", fmt.Sprintf("254 0 vda 1 2 3 4 5 6 7 8 9 %d 11 0 0 0 0 30 40\n254 1 vda1 1 2 3 4 5 6 7 8 9 900000 11 0 0 0 0 30 40\n254 16 vdb 1 2 3 4 5 6 7 8 9 %d 11 0 0 0 0 30 40\n", a, b))
	}
	var got tables
	c := New(Options{Proc: f.proc, Sys: f.sys, Components: []Component{{Name: "etcd", PID: 5, Cgroup: group}}})
	s := f.scanner(&got)
	for _, d := range [][2]int{{1000, 5000}, {1900, 5100}, {2000, 6000}} {
		disks(d[0], d[1])
		c.once(s, nil, true, false, false)
	}
	var busy []float64
	for _, m := range got.machine {
		busy = append(busy, m.DiskBusySeconds)
	}
	if fmt.Sprint(busy) != "[5 5.9 6.8]" {
		t.Errorf("busy is %v; want the busiest disk of each step added to the busiest at first", busy)
	}
	if m := got.machine[0]; m.FlushCount != 60 || m.FlushSeconds != 0.08 || m.DiskReadBytes != 2*3*512 {
		t.Errorf("%+v", m)
	}
	if r := got.processes[0]; r.ThrottledSeconds != 1.5 || r.ThrottledPeriods != 3 || r.Periods != 10 {
		t.Errorf("%+v", r)
	}
}

// A quota counts whoever set it, also on a process that is moved while it is watched:
// the counters are of what happened to the process, and never fall.
func TestThrottledByOthers(t *testing.T) {
	f := newFixture(t)
	top := t.TempDir()
	group := func(name, max string, periods, throttled int, seconds float64) {
		t.Helper()
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("usage_usec 5\nnr_periods %d\nnr_throttled %d\nthrottled_usec %.0f\n", periods, throttled, 1e6*seconds)
		for file, text := range map[string]string{"cpu.max": max + "\n", "cpu.stat": stat} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.put("self/mountinfo", fmt.Sprintf("30 23 0:26 / %s rw,nosuid - cgroup2 cgroup2 rw", top))
	f.process(5, 1, 100, 7)
	group("free", "max 100000", 0, 0, 0)
	group("job", "200000 100000", 900, 90, 9)
	group("job/own", "45000 100000", 1000, 100, 5)
	group("gone", "10000 100000", 50, 40, 2)
	var got tables
	c := New(Options{Proc: f.proc, Sys: f.sys, Components: []Component{{Name: "etcd", PID: 5}}})
	s := f.scanner(&got)
	for i, step := range []struct {
		in   string
		do   func()
		want string
	}{
		{"/free", nil, "0 0 0"},
		{"/job/own", nil, "0 0 0"}, // what it did to others before is not this process's
		{"/job/own", func() { group("job/own", "45000 100000", 1010, 108, 5.5) }, "10 8 0.5"},
		{"/free", nil, "10 8 0.5"},
		{"/gone", nil, "10 8 0.5"},
		{"/gone", func() { group("gone", "10000 100000", 60, 50, 3) }, "20 18 1.5"},
		{"/gone", func() { group("gone", "10000 100000", 0, 0, 0) }, "20 18 1.5"}, // made anew
		{"/gone", func() { group("gone", "max 100000", 9, 9, 9) }, "20 18 1.5"},
		{"/../elsewhere", nil, "-1 -1 -1"},
	} {
		if step.do != nil {
			step.do()
		}
		f.put("5/cgroup", "0::"+step.in+"\n")
		if _, err := c.once(s, nil, true, true, false); err != nil {
			t.Fatal(err)
		}
		r := got.processes[len(got.processes)-1]
		if text := fmt.Sprint(r.Periods, r.ThrottledPeriods, r.ThrottledSeconds); text != step.want {
			t.Errorf("step %d, in %s: %s, want %s", i, step.in, text, step.want)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for _, n := range []int{0, 100} {
		b.Run(fmt.Sprintf("%d more processes", n), func(b *testing.B) {
			for range n {
				cmd := exec.Command("sleep", "600")
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			}
			for _, all := range []bool{false, true} {
				b.Run(fmt.Sprintf("all=%v", all), func(b *testing.B) {
					var discard nothing
					s, err := newScanner("/proc", "/sys", discard, record.RedactArgs)
					if err != nil {
						b.Fatal(err)
					}
					defer s.close()
					s.census, _ = newCensus() // as the collector has it
					s.scan(time.Now(), nil, false)
					var before, after syscall.Rusage
					syscall.Getrusage(syscall.RUSAGE_SELF, &before)
					for b.Loop() {
						now := time.Now()
						if err := s.machine(now); err != nil {
							b.Fatal(err)
						}
						if err := s.scan(now, nil, all); err != nil {
							b.Fatal(err)
						}
					}
					syscall.Getrusage(syscall.RUSAGE_SELF, &after)
					cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
					b.ReportMetric(float64(cpu)/float64(b.N)/1e3, "cpu-µs/scan")
					b.ReportMetric(float64(len(s.procs)), "processes")
				})
			}
		})
	}
}

func ignore(time.Time) error { return nil }

type nothing struct{}

func (nothing) Core(record.CoreSample)  {}
func (nothing) Disk(record.DiskSample)  {}
func (nothing) Exit(record.ProcessExit) {}
func (nothing) Gap(record.Gap)          {}

func (nothing) Process(record.ProcessSample) {}
func (nothing) Machine(record.MachineSample) {}

// Another collector asks whose a process is: the component's own, its child's,
// nobody's.
func TestComponentOf(t *testing.T) {
	sh := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sh.Process.Kill(); sh.Wait() }()
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	c := New(Options{Interval: 20 * time.Millisecond, Components: []Component{{Name: "etcd", PID: sh.Process.Pid}}})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err = c.collect(ctx, &tables{}, false, func(time.Time) error {
		if c.ComponentOf(int32(child)) == "etcd" { // known from the scan on
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{sh.Process.Pid: "etcd", child: "etcd", os.Getpid(): Self, 1: ""} {
		if got := c.ComponentOf(int32(pid)); got != want {
			t.Errorf("pid %d: %q, want %q", pid, got, want)
		}
	}
}

package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
)

// allowed skips where the kernel's events may really not be read.
func allowed(t *testing.T, open func() (exitSource, error)) {
	t.Helper()
	src, err := open()
	if err == nil {
		src.close()
		return
	}
	_, noBTF := os.Stat("/sys/kernel/btf/vmlinux")
	if os.Geteuid() != 0 || noBTF != nil || errors.Is(err, errPIDNamespace) || errors.Is(err, syscall.EPERM) {
		t.Skipf("the kernel's events cannot be read here: %v", err)
	}
	t.Fatal(err)
}

func bpfEvents() (exitSource, error) {
	t, err := newTracer()
	if err != nil {
		return nil, err
	}
	return t, nil
}

func netlinkEvents() (exitSource, error) {
	l, err := newListener()
	if err != nil {
		return nil, err
	}
	return &degraded{l, errors.New("a test wants it so")}, nil
}

// observe runs work while a collector watches, and returns what it wrote. Work may
// ask meanwhile what it has of a process.
func observe(t *testing.T, o Options, work func(c *Collector, got *tables)) *tables {
	t.Helper()
	var got tables
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := New(o)
	ready, done := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		done <- c.collect(ctx, &got, false, func(time.Time) error {
			once.Do(func() { close(ready) })
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	work(c, &got)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return &got
}

func (s *tables) exitsOf(pid int) (rows []record.ProcessExit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.exits {
		if r.PID == int32(pid) {
			rows = append(rows, r)
		}
	}
	return rows
}

func child(mode string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "PROCESS_TEST_CHILD="+mode)
	return cmd
}

// A short-lived process with many threads leaves one row with its whole command
// line, exact CPU, its exit code and the component that it belongs to.
func TestShortLife(t *testing.T) {
	for _, source := range []struct {
		name   string
		open   func() (exitSource, error)
		sparse bool
	}{{"bpf", bpfEvents, false}, {"netlink", netlinkEvents, true}} {
		t.Run(source.name, func(t *testing.T) {
			allowed(t, source.open)
			long := strings.Repeat("x", 1000)
			cmd := child("threads", "apply", "--prune", "--token=hunter2hunter2", "-f", long)
			wrapper := exec.Command("/bin/sh", "-c", `"$@"; exit $?`, "wrapper", cmd.Args[0])
			wrapper.Args = append(wrapper.Args, cmd.Args[1:]...)
			wrapper.Env = cmd.Env
			// An interval of a minute: no scan sees the processes.
			got := observe(t, Options{Interval: time.Minute, events: source.open, Components: []Component{}}, func(c *Collector, _ *tables) {
				if err := wrapper.Start(); err != nil {
					t.Fatal(err)
				}
				c.Attach(Component{Name: "addons", PID: wrapper.Process.Pid})
				wrapper.Wait()
				time.Sleep(3 * lookEvery)
			})
			usage := wrapper.ProcessState.SysUsage().(*syscall.Rusage) // its child's included
			user, system := float64(usage.Utime.Nano())/1e9, float64(usage.Stime.Nano())/1e9

			outer := got.exitsOf(wrapper.Process.Pid)
			if len(outer) != 1 {
				t.Fatalf("%d rows of the wrapper: %+v", len(outer), outer)
			}
			var inner []record.ProcessExit
			for _, r := range got.exits {
				if r.PPID == int32(wrapper.Process.Pid) {
					inner = append(inner, r)
				}
			}
			if len(inner) != 1 { // its threads are not processes
				t.Fatalf("%d rows of the child: %+v", len(inner), inner)
			}
			r := inner[0]
			t.Logf("measured %.4f user, %.4f system; getrusage %.4f, %.4f; %.120s", r.UserSeconds+outer[0].UserSeconds, r.SystemSeconds+outer[0].SystemSeconds, user, system, r.Command)
			if r.ExitCode != 7 || outer[0].ExitCode != 7 {
				t.Errorf("exit codes %d and %d, want 7", r.ExitCode, outer[0].ExitCode)
			}
			if sum := r.UserSeconds + r.SystemSeconds + outer[0].UserSeconds + outer[0].SystemSeconds; math.Abs(sum-user-system) > 0.05*(user+system) {
				t.Errorf("CPU is %.4f s, want %.4f within 5 %%", sum, user+system)
			}
			if u := r.UserSeconds + outer[0].UserSeconds; math.Abs(u-user) > 0.05*(user+system) {
				t.Errorf("user CPU is %.4f s, want %.4f", u, user)
			}
			if r.Component != "addons" {
				t.Errorf("component is %q", r.Component)
			}
			if r.PeakRSSBytes < 2<<20 || r.PeakRSSBytes > usage.Maxrss<<10+1<<20 {
				t.Errorf("peak RSS is %d, of %d", r.PeakRSSBytes, usage.Maxrss<<10)
			}
			if source.sparse {
				if !strings.HasPrefix(r.Command, "[process.test") || len(got.gaps) == 0 {
					t.Errorf("command %q, gaps %+v", r.Command, got.gaps)
				}
				return
			}
			if want := cmd.Args[0] + " apply --prune --token=REDACTED -f " + long; r.Command != want {
				t.Errorf("command:\n got %s\nwant %s", r.Command, want)
			}
			if life := r.TimeMicros - r.StartMicros; life < 75e3 {
				t.Errorf("it lived %d µs, and burnt on four threads for 75 ms", life)
			}
		})
	}
}

// Two hundred short lives at once are two hundred rows, each with its own
// command line and exit code, from the kernel that was not read meanwhile.
func TestBurst(t *testing.T) {
	allowed(t, bpfEvents)
	const n = 200
	type child struct {
		i    int
		used time.Duration // as wait(2) has it
	}
	var pids sync.Map
	got := observe(t, Options{Interval: time.Minute, events: bpfEvents}, func(*Collector, *tables) {
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < n; i += 8 {
					cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", i%100), fmt.Sprint("burst-", i))
					cmd.Run()
					pids.Store(int32(cmd.Process.Pid), child{i, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()})
				}
			})
		}
		wg.Wait()
	})
	seen := map[int]int{}
	var used, waited float64
	for _, r := range got.exits {
		x, ours := pids.Load(r.PID)
		if !ours {
			continue
		}
		c := x.(child)
		if want := fmt.Sprintf("/bin/sh -c exit %d burst-%d", c.i%100, c.i); r.Command != want {
			t.Errorf("command is %q, want %q", r.Command, want)
		}
		if r.ExitCode != int32(c.i%100) || r.TimeMicros <= r.StartMicros || r.Component != "" {
			t.Errorf("%+v", r)
		}
		used += r.UserSeconds + r.SystemSeconds
		waited += c.used.Seconds()
		seen[c.i]++
	}
	// Of a few that live for a millisecond the kernel may have booked nothing
	// (see zombies); of nearly all, what wait(2) told.
	if used < 0.8*waited || waited == 0 {
		t.Errorf("%.4f CPU-s in all, of which wait(2) told %.4f", used, waited)
	}
	if len(seen) != n {
		t.Errorf("%d of %d processes were seen", len(seen), n)
	}
	for i, times := range seen {
		if times != 1 {
			t.Errorf("process %d has %d rows", i, times)
		}
	}
}

// A component's grandchild counts for it though its parent ended first; a
// signal is an exit code as a shell has it; and what the scan knows is closed.
func TestOrphanAndSignal(t *testing.T) {
	allowed(t, bpfEvents)
	var grandchild int
	killed := child("burn")
	got := observe(t, Options{Interval: 100 * time.Millisecond, events: bpfEvents}, func(c *Collector, got *tables) {
		gate := exec.Command("/bin/sh", "-c", `read x; exec "$0"`, os.Args[0])
		gate.Env = append(os.Environ(), "PROCESS_TEST_CHILD=orphan")
		in, _ := gate.StdinPipe()
		var out strings.Builder
		gate.Stdout = &out
		if err := gate.Start(); err != nil {
			t.Fatal(err)
		}
		c.Attach(Component{Name: "etcd", PID: gate.Process.Pid})
		fmt.Fprintln(in, "go")
		gate.Wait()
		fmt.Sscan(out.String(), &grandchild)
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(20 * time.Second); len(got.of(killed.Process.Pid)) == 0 || len(got.exitsOf(grandchild)) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Error("not both a sample and the grandchild's end in 20 s")
				break
			}
		}
		killed.Process.Kill()
		killed.Wait()
		time.Sleep(200 * time.Millisecond)
	})
	rows := got.exitsOf(grandchild)
	if len(rows) != 1 || rows[0].Component != "etcd" || rows[0].ExitCode != 5 || !strings.HasSuffix(rows[0].Command, "grandchild") {
		t.Errorf("grandchild %d: %+v", grandchild, rows)
	}
	for _, r := range got.of(grandchild) {
		if r.Component != "etcd" {
			t.Errorf("the scan has it as %q", r.Component)
		}
	}
	rows = got.exitsOf(killed.Process.Pid)
	if len(rows) != 1 || rows[0].ExitCode != 128+9 {
		t.Fatalf("killed: %+v", rows)
	}
	samples := got.of(killed.Process.Pid)
	if len(samples) == 0 {
		t.Fatal("no sample of the killed one")
	}
	last, usage := samples[len(samples)-1], killed.ProcessState
	if rows[0].StartMicros != last.StartMicros || rows[0].UserSeconds < last.UserSeconds || rows[0].SystemSeconds < last.SystemSeconds {
		t.Errorf("the end %+v does not close %+v", rows[0], last)
	}
	if cpu := rows[0].UserSeconds + rows[0].SystemSeconds; math.Abs(cpu-(usage.UserTime()+usage.SystemTime()).Seconds()) > 0.01 {
		t.Errorf("CPU %.3f, want %v", cpu, usage.UserTime()+usage.SystemTime())
	}
}

// A process that nobody waits for has its row too.
func TestZombie(t *testing.T) {
	allowed(t, bpfEvents)
	cmd := exec.Command("/bin/sh", "-c", "exit 3")
	got := observe(t, Options{Interval: time.Minute, events: bpfEvents}, func(*Collector, *tables) {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(zombieAfter + 4*lookEvery)
	})
	cmd.Wait()
	rows := got.exitsOf(cmd.Process.Pid)
	if len(rows) != 1 || rows[0].ExitCode != 3 || rows[0].Command != "/bin/sh -c exit 3" {
		t.Errorf("%+v", rows)
	}
}

// Where events may not be read the scan goes on, and the gap says what to do.
func TestNoEvents(t *testing.T) {
	got := observe(t, Options{Interval: time.Minute, events: func() (exitSource, error) {
		return nil, errors.New("operation not permitted; run as root")
	}}, func(*Collector, *tables) {})
	if len(got.processes) == 0 {
		t.Error("no processes")
	}
	n := 0
	for _, g := range got.gaps {
		if g.Subject == "exits" && strings.Contains(g.Reason, "run as root") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("gaps: %+v", got.gaps)
	}
}

// User, system and context switches agree with pidstat, which reads the same
// counters its own way.
func TestPidstat(t *testing.T) {
	path, err := exec.LookPath("pidstat")
	if err != nil {
		t.Skip("pidstat is not installed (sysstat)")
	}
	// One thread, since pidstat -w knows a process's first one only. It counts,
	// and waits for a child now and then.
	cmd := exec.Command("/bin/sh", "-c", "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.002; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	time.Sleep(200 * time.Millisecond)
	pidstat := exec.Command(path, "-u", "-w", "-l", "-p", fmt.Sprint(cmd.Process.Pid), "1", "3")
	pidstat.Env = append(os.Environ(), "LC_ALL=C", "S_TIME_FORMAT=ISO")
	var first, last record.ProcessSample
	var out []byte
	c := New(Options{Proc: "/proc", events: func() (exitSource, error) { return nil, errors.New("not wanted") }})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		got <- c.Watch(ctx, func(s *Snapshot) error {
			for _, p := range s.Processes {
				if p.PID != int32(cmd.Process.Pid) {
					continue
				}
				if first.PID == 0 {
					first = p
					close(begun)
				}
				last = p
			}
			return nil
		})
	}()
	<-begun
	out, err = pidstat.Output()
	stop()
	if e := <-got; err != nil || e != nil {
		t.Fatal(err, e, string(out))
	}
	var user, system, voluntary, involuntary float64
	var section string
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "Average:" {
			continue
		}
		switch {
		case f[3] == "%usr" || f[3] == "cswch/s":
			section = f[3]
		case section == "%usr":
			fmt.Sscan(f[3], &user)
			fmt.Sscan(f[4], &system)
		case section == "cswch/s":
			fmt.Sscan(f[3], &voluntary)
			fmt.Sscan(f[4], &involuntary)
		}
	}
	seconds := float64(last.TimeMicros-first.TimeMicros) / 1e6
	rate := func(a, b float64) float64 { return (b - a) / seconds }
	mine := []float64{100 * rate(first.UserSeconds, last.UserSeconds), 100 * rate(first.SystemSeconds, last.SystemSeconds),
		rate(float64(first.VoluntarySwitches+first.InvoluntarySwitches), float64(last.VoluntarySwitches+last.InvoluntarySwitches))}
	theirs := []float64{user, system, voluntary + involuntary}
	t.Logf("%%usr %%system switches/s: ours %.1f, pidstat %.1f", mine, theirs)
	if user+system == 0 || voluntary == 0 {
		t.Fatalf("pidstat shows nothing:\n%s", out)
	}
	for i, tolerance := range []float64{10, 10, 5 + 0.3*theirs[2]} {
		if math.Abs(mine[i]-theirs[i]) > tolerance {
			t.Errorf("value %d is %.1f, pidstat has %.1f", i, mine[i], theirs[i])
		}
	}
}

// More ends than a second may have are counted, not written.
func TestLimit(t *testing.T) {
	f := newFixture(t)
	var got tables
	s := f.scanner(&got)
	src := &fake{}
	tr := newTracker(s, src, &got)
	for i := range maxExits + 50 {
		pid := int32(1000 + i)
		src.events = append(src.events, exitEvent{kind: exitedEvent, pid: pid, start: 5, time: 10, peakRSS: -1, read: -1, write: -1},
			exitEvent{kind: freedEvent, pid: pid, start: 5, runtime: 1e7, peakRSS: -1, read: -1, write: -1})
	}
	src.lost = 17
	if err := tr.finish(nil); err != nil {
		t.Fatal(err)
	}
	if len(got.exits) != maxExits || tr.rows != maxExits {
		t.Errorf("%d rows", len(got.exits))
	}
	slices.SortFunc(got.gaps, func(a, b record.Gap) int { return strings.Compare(a.Reason, b.Reason) })
	if len(got.gaps) != 2 || !strings.HasPrefix(got.gaps[0].Reason, "17 events of processes were lost") ||
		!strings.HasPrefix(got.gaps[1].Reason, "50 ends of processes with 0.50 CPU-s") || got.gaps[1].Start.IsZero() {
		t.Errorf("%+v", got.gaps)
	}
}

// Of two threads that end at once both find that none lives but they: what
// executing told of the process stays, and the later has its times.
func TestTwoLastThreads(t *testing.T) {
	f := newFixture(t)
	var got tables
	s := f.scanner(&got)
	unknown := exitEvent{pid: 1000, ppid: 1, start: 5, peakRSS: -1, read: -1, write: -1}
	executed, first, second, freed := unknown, unknown, unknown, unknown
	executed.kind, executed.args = execedEvent, []byte("kubectl\x00apply\x00")
	first.kind, first.time = exitedEvent, 10e6
	second.kind, second.time = exitedEvent, 12e6
	freed.kind, freed.runtime = freedEvent, 1e7
	tr := newTracker(s, &fake{events: []exitEvent{executed, first, second, freed}}, &got)
	if err := tr.finish(nil); err != nil {
		t.Fatal(err)
	}
	if len(got.exits) != 1 {
		t.Fatalf("%d rows: %+v", len(got.exits), got.exits)
	}
	r := got.exits[0]
	if r.Command != "kubectl apply" || r.TimeMicros-r.StartMicros < 11e3 || r.UserSeconds+r.SystemSeconds != 0.01 {
		t.Errorf("%+v", r)
	}
}

type fake struct {
	events []exitEvent
	lost   int64
}

func (f *fake) drain(do func(*exitEvent)) (int64, error) {
	for i := range f.events {
		do(&f.events[i])
	}
	f.events = nil
	return f.lost, nil
}
func (f *fake) partial() string { return "" }
func (f *fake) close() error    { return nil }

// Netlink's messages are foreign input.
func FuzzAccount(f *testing.F) {
	f.Add(make([]byte, 700))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &listener{groups: map[uint32]*exitEvent{}, layout: publishedLayout()}
		eachMessage(b, func(uint16, []byte) {})
		l.account(b, 1, func(*exitEvent) {})
		var e exitEvent
		e.decode(b)
	})
}

// What events cost: a process that starts, executes and ends, in our thread's
// time and in that of whoever runs it.
func BenchmarkExits(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) {
			var own float64
			run := func() {
				for b.Loop() {
					exec.Command("/bin/true", "--a", "--few=arguments").Run()
				}
			}
			if !watched {
				run()
				return
			}
			s, err := newScanner("/proc", "/sys", nothing{}, record.RedactArgs)
			if err != nil {
				b.Fatal(err)
			}
			defer s.close()
			src, err := newTracer()
			if err != nil {
				b.Skip(err)
			}
			defer src.close()
			tr := newTracker(s, src, nothing{})
			n := 0
			for b.Loop() {
				exec.Command("/bin/true", "--a", "--few=arguments").Run()
				if n++; n%100 == 0 {
					own += collect.CPU(func() {
						if err := tr.look(time.Now(), nil); err != nil {
							b.Fatal(err)
						}
					})
				}
			}
			b.ReportMetric(own/float64(b.N)*1e6, "cpu-µs/exit")
		})
	}
}

// The layout that this kernel's types tell is the published one where the
// version says so.
func TestAccountLayout(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("this kernel tells nothing of its types")
	}
	l, err := newAccountLayout()
	if err != nil {
		t.Fatal(err)
	}
	if p := publishedLayout(); l.code != p.code || l.flag != p.flag { // no version moved these
		t.Errorf("got %+v, published %+v", l, p)
	}
}

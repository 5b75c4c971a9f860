package stacks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

func TestMain(m *testing.M) {
	if how := os.Getenv("STACKS_TEST_CHILD"); how != "" {
		child(how)
		return
	}
	goleak.VerifyTestMain(m)
}

// child burns CPU in known functions until its stdin closes: three parts in
// burnMost, one in burnLess.
func child(how string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch how {
	case "burn":
		for {
			burnMost(3)
			burnLess(1)
		}
	case "refused":
		err := New(Options{}).collect(context.Background(), &tables{}, func() {})
		fmt.Println(err)
		if !errors.Is(err, collect.ErrNotSupported) {
			fmt.Println("not a gap")
		}
		os.Exit(0)
	case "short": // dead before anybody looks
		burnMost(300)
		os.Exit(0)
	case "parent":
		for {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "STACKS_TEST_CHILD=short")
			in, err := cmd.StdinPipe()
			if err != nil || cmd.Start() != nil {
				os.Exit(1)
			}
			_ = cmd.Wait()
			_ = in.Close()
		}
	}
}

var burned uint64

//go:noinline
func burnMost(n int) { spin(n) }

//go:noinline
func burnLess(n int) { spin(n) }

//go:noinline
func spin(n int) {
	for range n {
		rest()           // a function that calls nothing has no frame, and hides its caller
		sum := uint64(0) // the race detector would burn more at each access of burned than mixed does
		for i := range uint64(200_000) {
			sum += mixed(i)
		}
		burned += sum
	}
}

//go:noinline
func rest() {}

// mixed is small, so that the compiler inlines it into spin.
func mixed(x uint64) uint64 {
	x = (x ^ x>>7) * 0x9e3779b97f4a7c15
	x = (x ^ x>>9) * 0x9e3779b97f4a7c15
	return (x ^ x>>11) * 0x9e3779b97f4a7c15
}

// tables keeps what a collector writes.
type tables struct {
	mu      sync.Mutex
	samples []record.StackSample
	stacks  map[int64]string
	gaps    []record.Gap
}

func (s *tables) StackSample(r record.StackSample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, r)
}

func (s *tables) Stack(r record.Stack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stacks == nil {
		s.stacks = map[int64]string{}
	}
	if old, ok := s.stacks[r.ID]; ok {
		panic("stack written twice: " + old + " and " + r.Frames)
	}
	s.stacks[r.ID] = r.Frames
}

func (s *tables) Gap(g record.Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(s.gaps, g)
}

// frames are the samples' stacks that match, innermost last.
func (s *tables) frames(match func(record.StackSample) bool) (stacks [][]string) {
	for _, r := range s.samples {
		if match(r) {
			stacks = append(stacks, strings.Split(s.stacks[r.Stack], ";"))
		}
	}
	return stacks
}

// needPerf skips where the kernel really refuses.
func needPerf(t testing.TB) {
	t.Helper()
	rings, err := openRings(10 * time.Millisecond)
	if errors.Is(err, collect.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeRings(rings)
}

// sampleFor collects while work runs.
func sampleFor(t testing.TB, o Options, work func(c *Collector)) (*tables, record.Observer) {
	t.Helper()
	needPerf(t)
	c := New(o)
	out := &tables{}
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, out, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	work(c)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return out, c.Account()
}

// start runs a program until the test ends.
func start(t testing.TB, env string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// waitCPU waits until a process has used so much more CPU, however busy the
// machine is.
func waitCPU(t testing.TB, pid int, more time.Duration) {
	t.Helper()
	used := func() time.Duration {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // of all threads, in 10 ms
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		user, err1 := strconv.Atoi(f[11])
		system, err2 := strconv.Atoi(f[12])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	deadline := time.Now().Add(time.Minute)
	for before := used(); used()-before < more; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d got no %v of CPU in a minute", pid, more)
		}
	}
}

func share(stacks [][]string, holds func(frames []string) bool) float64 {
	n := 0
	for _, f := range stacks {
		if holds(f) {
			n++
		}
	}
	return float64(n) / float64(max(1, len(stacks)))
}

func has(suffix string) func([]string) bool {
	return func(frames []string) bool {
		return slices.ContainsFunc(frames, func(f string) bool { return strings.HasSuffix(f, suffix) })
	}
}

// builds makes the test binary again in the forms that programs come in.
func builds(t *testing.T) map[string]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"as it is": self}
	if _, err := exec.LookPath("go"); err != nil {
		t.Log("no go command: only this binary's own form is tried")
		return all
	}
	dir := t.TempDir()
	for name, how := range map[string]struct {
		cgo  string
		args []string
	}{
		"stripped":          {"0", []string{"-ldflags=-s -w"}},
		"stripped, pie":     {"0", []string{"-ldflags=-s -w", "-buildmode=pie"}},
		"cgo, stripped":     {"1", []string{"-ldflags=-s -w -linkmode=external", "-tags=netcgo"}},
		"cgo, pie":          {"1", []string{"-ldflags=-linkmode=external", "-tags=netcgo", "-buildmode=pie"}},
		"stripped with pie": {"1", []string{"-ldflags=-s -w -linkmode=external", "-tags=netcgo", "-buildmode=pie"}},
	} {
		if how.cgo == "1" {
			if _, err := exec.LookPath("gcc"); err != nil {
				t.Logf("%s: not tried: no gcc", name)
				continue
			}
		}
		out := filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(name))
		cmd := exec.Command("go", append(append([]string{"build", "-o", out}, how.args...), "testdata/burn.go")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+how.cgo)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, b)
		}
		all[name] = out
	}
	return all
}

// A Go program's functions are found by name and share, inlined ones too, in
// each form of binary.
func TestGoFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs programs")
	}
	needPerf(t)
	binaries := builds(t)
	for _, form := range slices.Sorted(maps.Keys(binaries)) {
		t.Run(form, func(t *testing.T) {
			cmd := start(t, "STACKS_TEST_CHILD=burn", binaries[form])
			out, acct := sampleFor(t, Options{Rate: 499, Components: []process.Component{{Name: "burner", PID: cmd.Process.Pid}}},
				func(*Collector) { waitCPU(t, cmd.Process.Pid, 700*time.Millisecond) })
			stacks := out.frames(func(r record.StackSample) bool { return r.Component == "burner" })
			if len(stacks) < 50 {
				t.Fatalf("%d samples of the child: %s", len(stacks), acct.Note)
			}
			if most := share(stacks, has(".burnMost")); most < 0.6 || most > 0.9 {
				t.Errorf("burnMost has %.0f %% of %d samples, want 75", most*100, len(stacks))
			}
			if less := share(stacks, has(".burnLess")); less < 0.1 || less > 0.4 {
				t.Errorf("burnLess has %.0f %%, want 25", less*100)
			}
			inlined := share(stacks, func(f []string) bool {
				i := slices.IndexFunc(f, func(n string) bool { return strings.HasSuffix(n, ".mixed") })
				return i > 0 && strings.HasSuffix(f[i-1], ".spin")
			})
			if inlined < 0.2 {
				t.Errorf("the inlined function is in %.0f %% of stacks: %v", inlined*100, stacks[len(stacks)/2])
			}
			outermost := share(stacks, func(f []string) bool { return strings.HasPrefix(f[0], "runtime.") || strings.HasPrefix(f[0], "main.") })
			if outermost < 0.9 {
				t.Errorf("%.0f %% of stacks begin in the runtime", outermost*100)
			}
		})
	}
}

// Processes that are dead when the buffers are read have names all the same,
// from the records of their mappings, and inherit their parent's component.
func TestShortLivedProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, "STACKS_TEST_CHILD=parent", self)
	out, _ := sampleFor(t, Options{Rate: 499, Components: []process.Component{{Name: "spawner", PID: cmd.Process.Pid}}},
		func(*Collector) { time.Sleep(2 * time.Second) })
	stacks := out.frames(func(r record.StackSample) bool {
		return r.Component == "spawner" && int(r.PID) != cmd.Process.Pid && !strings.HasPrefix(r.Command, "[")
	})
	if len(stacks) < 20 {
		t.Fatalf("%d samples of the children", len(stacks))
	}
	if most := share(stacks, has(".burnMost")); most < 0.3 {
		t.Errorf("burnMost has %.0f %% of %d samples", most*100, len(stacks))
	}
	unknown := share(stacks, func(f []string) bool { return strings.HasPrefix(f[len(f)-1], "[") })
	if unknown > 0.1 {
		t.Errorf("%.0f %% of the children's samples end in a frame without a name", unknown*100)
	}
}

// A C program's time in the kernel is the kernel's functions.
func TestKernelFrames(t *testing.T) {
	cmd := start(t, "LC_ALL=C", "dd", "if=/dev/zero", "of=/dev/null", "bs=64k")
	out, acct := sampleFor(t, Options{Rate: 499}, func(*Collector) { waitCPU(t, cmd.Process.Pid, 500*time.Millisecond) })
	stacks := out.frames(func(r record.StackSample) bool { return int(r.PID) == cmd.Process.Pid })
	if len(stacks) < 50 {
		t.Fatalf("%d samples of dd: %s", len(stacks), acct.Note)
	}
	for _, g := range out.gaps {
		if g.Subject == "kernel functions" {
			t.Skip(g.Reason)
		}
	}
	kernel := share(stacks, func(f []string) bool { return strings.HasSuffix(f[len(f)-1], kernelMark) })
	named := share(stacks, func(f []string) bool {
		return slices.ContainsFunc(f, func(n string) bool { return strings.Contains(n, "read") && strings.HasSuffix(n, kernelMark) })
	})
	if kernel < 0.7 || named < 0.5 {
		t.Errorf("%.0f %% of dd in the kernel, %.0f %% in a read: %v", kernel*100, named*100, stacks[0])
	}
	if c := out.samples[0]; c.TimeMicros < time.Now().Add(-time.Minute).UnixMicro() || c.TimeMicros > time.Now().UnixMicro() {
		t.Errorf("time %d is not now", c.TimeMicros)
	}
}

// What is sampled is what was used: a thread that counts its own CPU.
func TestSamplesAreCPUSeconds(t *testing.T) {
	var used float64
	var tid int
	out, acct := sampleFor(t, Options{}, func(*Collector) {
		used = collect.CPU(func() {
			tid = unix.Gettid()
			h := sha256.New()
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
				h.Write(make([]byte, 1<<16))
			}
		})
	})
	n := 0
	for _, r := range out.samples {
		if int(r.TID) == tid {
			n++
		}
	}
	got := float64(n) * acct.IntervalSeconds
	if got < used*0.85-0.1 || got > used*1.15+0.1 {
		t.Errorf("%d samples are %.2f CPU-s, the thread used %.2f", n, got, used)
	}
	t.Logf("%d samples, %.2f CPU-s of %.2f; %+v", n, got, used, acct)
}

// A name that is given while samples are taken holds from then on, for the
// process's children too, and ends with the process.
func TestAttachLater(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	var c *Collector
	out, _ := sampleFor(t, Options{}, func(run *Collector) {
		c = run
		cmd = start(t, "STACKS_TEST_CHILD=parent", self)
		time.Sleep(500 * time.Millisecond)
		run.Attach(process.Component{Name: "late", PID: cmd.Process.Pid})
		time.Sleep(1500 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	children := out.frames(func(r record.StackSample) bool { return r.Component == "late" && int(r.PID) != cmd.Process.Pid })
	if len(children) == 0 {
		t.Error("no sample of a child has the name")
	}
	if _, ok := c.known[int32(cmd.Process.Pid)]; ok {
		t.Error("the name outlived its process")
	}
}

// Rows come while it samples, not when it ends: a kill loses little.
func TestRowsComeSoon(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start(t, "STACKS_TEST_CHILD=burn", self)
	needPerf(t)
	out := &tables{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Options{}).collect(ctx, out, func() {}) }()
	rows := func() int {
		out.mu.Lock()
		defer out.mu.Unlock()
		return len(out.samples)
	}
	for end := time.Now().Add(time.Minute); rows() == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if rows() == 0 {
		t.Error("no row while it samples")
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A process that was named before the record of its start was read keeps the
// name; one that is given the PID later does not.
func TestNameAndPID(t *testing.T) {
	s := newSampler(&tables{})
	defer s.close()
	s.procs[1] = &proc{pid: 1}
	s.clock.offset = 0
	const pid = 1 << 30 // of nobody
	s.attach(map[int32]named{pid: {"etcd", 1, time.UnixMicro(50)}})
	s.handle(event{kind: recordFork, time: 40e3, pid: pid, tid: pid, ppid: 1, ptid: 1}, time.Now())
	if p := s.procs[pid]; p.component != "etcd" || !p.attached {
		t.Errorf("after its own start: %+v", p)
	}
	s.handle(event{kind: recordExit, time: 60e3, pid: pid, tid: pid, ppid: 1, ptid: 1}, time.Now())
	if len(s.ended) != 1 || s.ended[0] != (ended{pid, 1, 60}) {
		t.Errorf("ends: %+v", s.ended)
	}
	s.handle(event{kind: recordFork, time: 70e3, pid: pid, tid: pid, ppid: 1, ptid: 1}, time.Now())
	if p := s.procs[pid]; p.component != "" || p.attached {
		t.Errorf("the PID's next process: %+v", p)
	}
	c := New(Options{})
	c.known[pid] = named{"etcd", 1, time.UnixMicro(50)}
	c.forget([]ended{{pid, 2, 60}, {pid, 1, 40}})
	if _, ok := c.known[pid]; !ok {
		t.Error("another one's end took the name")
	}
	c.forget(s.ended)
	if _, ok := c.known[pid]; ok {
		t.Error("the name outlived its process")
	}
}

// Shares agree with those of Debian's perf, which samples beside us.
func TestAgreesWithPerf(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s")
	}
	perf, err := exec.LookPath("perf")
	if err != nil {
		t.Skip("no perf command (Debian: linux-perf)")
	}
	needPerf(t)
	// perf needs a symbol table, which test binaries have not.
	program := filepath.Join(t.TempDir(), "burn")
	if b, err := exec.Command("go", "build", "-o", program, "testdata/burn.go").CombinedOutput(); err != nil {
		t.Skipf("go build: %v: %s", err, b)
	}
	burner := start(t, "", program)
	dd := start(t, "LC_ALL=C", "dd", "if=/dev/zero", "of=/dev/null", "bs=64k")
	pids := map[int]string{burner.Process.Pid: "burner", dd.Process.Pid: "dd"}
	var differ []string
	for range 3 { // chance makes a difference of up to two points now and then
		theirs, ours := besidePerf(t, perf, pids)
		differ = nil
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			a, b := 100*theirs[name]/theirs["total"], 100*ours[name]/ours["total"]
			t.Logf("%-20s perf %5.1f %%  ours %5.1f %%", name, a, b)
			if d := a - b; d > 2 || d < -2 {
				differ = append(differ, fmt.Sprintf("%s: perf has %.1f %%, we have %.1f %%", name, a, b))
			}
		}
		if len(theirs) < 5 {
			t.Fatalf("perf names only %v", theirs)
		}
		if len(differ) == 0 {
			return
		}
	}
	t.Error(strings.Join(differ, "\n"))
}

// besidePerf counts the samples of processes that perf and we took of the same
// seconds, by what they were doing.
func besidePerf(t *testing.T, perf string, pids map[int]string) (theirs, ours map[string]float64) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "perf.data")
	var c clock
	out, _ := sampleFor(t, Options{Rate: 999}, func(*Collector) {
		cmd := exec.Command(perf, "record", "-q", "-F", "999", "-a", "-g", "-k", "mono", "-e", "cpu-clock", "-o", data, "--", "sleep", "6")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("perf record: %v: %s", err, b)
		}
		c.set()
	})
	script, err := exec.Command(perf, "script", "-i", data, "-F", "pid,time,ip,sym").Output()
	if err != nil {
		t.Skipf("perf script: %v", err)
	}
	theirs, ours = map[string]float64{}, map[string]float64{}
	count := func(to map[string]float64, pid int, inKernel bool, all []string) {
		name, ok := pids[pid]
		if !ok {
			return
		}
		to["total"]++
		to[name]++
		if inKernel {
			to[name+" in the kernel"]++
		}
		for _, f := range []string{".burnMost", ".burnLess"} {
			if has(f)(all) {
				to["burner in "+f]++
			}
		}
	}
	var first, last float64
	for _, block := range strings.Split(string(script), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		head := strings.Fields(lines[0])
		if len(head) < 2 || len(lines) < 2 {
			continue
		}
		pid, err1 := strconv.Atoi(head[0])
		at, err2 := strconv.ParseFloat(strings.TrimSuffix(head[1], ":"), 64)
		if err1 != nil || err2 != nil {
			continue
		}
		if first == 0 {
			first = at
		}
		last = max(last, at)
		var names []string
		for _, l := range lines[1:] {
			f := strings.Fields(l)
			names = append(names, f[len(f)-1])
		}
		count(theirs, pid, strings.HasPrefix(strings.TrimSpace(lines[1]), "ffffffff"), names)
	}
	for _, r := range out.samples {
		if at := float64(r.TimeMicros)/1e6 - float64(c.offset)/1e9; at < first || at > last {
			continue
		}
		f := strings.Split(out.stacks[r.Stack], ";")
		count(ours, int(r.PID), strings.HasSuffix(f[len(f)-1], kernelMark), f)
	}
	if theirs["total"] < 200 || ours["total"] < 200 {
		t.Fatalf("too few samples: perf %v, ours %v", theirs, ours)
	}
	return theirs, ours
}

// A kernel that refuses becomes a gap that names the way out.
func TestRefused(t *testing.T) {
	for _, err := range []error{unix.EACCES, unix.EPERM, unix.ENOSYS} {
		got := refusal(fmt.Errorf("sample CPU 0: %w", err))
		if !errors.Is(got, collect.ErrNotSupported) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := refusal(unix.EACCES).Error(); !strings.Contains(got, "CAP_PERFMON") || !strings.Contains(got, "perf_event_paranoid is ") {
		t.Error(got)
	}
}

// The same with a real kernel and a process without rights.
func TestRefusedToNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody without rights")
	}
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		t.Skip(err)
	}
	if level, _ := strconv.Atoi(strings.TrimSpace(string(b))); level < 1 {
		t.Skipf("perf_event_paranoid is %d: everybody may sample", level)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("/tmp", fmt.Sprintf("stacks-test-%d", os.Getpid()))
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(program) })
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "STACKS_TEST_CHILD=refused")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe() // its end would end the child
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CAP_PERFMON") || strings.Contains(string(out), "not a gap") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOnlineCPUs(t *testing.T) {
	for list, want := range map[string]string{"0": "[0]", "0-3,8": "[0 1 2 3 8]"} {
		if got, err := parseCPUs(list); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v %v", list, got, err)
		}
	}
	for _, bad := range []string{"", "x", "3-1", "0-9999999", "-1"} {
		if got, err := parseCPUs(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// What one drain costs, with the machine as busy as the benchmark makes it.
func BenchmarkSample(b *testing.B) {
	needPerf(b)
	s := newSampler(nothing{})
	defer s.close()
	s.readKernel()
	self := int32(os.Getpid())
	p := s.process(self)
	s.readMaps(p)
	pcs := make([]uintptr, 32)
	n := runtime.Callers(0, pcs)
	var chain []byte
	chain = append(chain, word(contextUser)...)
	for _, pc := range pcs[:n] {
		chain = append(chain, word(uint64(pc))...)
	}
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.sample(event{pid: self, tid: self, chain: chain})
		}
	})
	b.Run("new stack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			clear(s.chains)
			s.sample(event{pid: self, tid: self, chain: chain})
		}
	})
	b.Run("new names", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			clear(s.chains)
			for _, f := range s.files {
				if f.object != nil {
					clear(f.object.cache)
				}
			}
			s.sample(event{pid: self, tid: self, chain: chain})
		}
	})
}

type nothing struct{}

func (nothing) StackSample(record.StackSample) {}
func (nothing) Stack(record.Stack)             {}
func (nothing) Gap(record.Gap)                 {}

// The pages of a file that were read for its names go with the next sweep, and
// its names are found all the same.
func TestSweepLetsGoOfPages(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newSampler(&tables{})
	f := &file{path: exe, tried: true}
	if f.object = s.open(int32(os.Getpid()), f); f.object == nil {
		t.Fatal("the test's own binary cannot be opened")
	}
	s.files[fileKey{path: exe}] = f
	s.procs[int32(os.Getpid())] = &proc{space: &space{mappings: []mapping{{file: f}}}}
	defer s.close()
	held := func() (kB int) {
		data, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		ours := false
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 5 {
				ours = fields[1] == "r--s" && fields[5] == exe
			} else if ours && fields[0] == "Rss:" {
				n, err := strconv.Atoi(fields[1])
				if err != nil {
					t.Fatal(err)
				}
				kB += n
			}
		}
		return kB
	}
	pc, _, _, _ := runtime.Caller(0)
	before := f.object.frames(uint64(pc))
	read := held()
	if !strings.Contains(before, "TestSweepLetsGoOfPages") || read == 0 {
		t.Fatalf("%q, %d kB held", before, read)
	}
	s.sweep()
	if n := held(); n >= read { // the kernel may take some of them a moment later
		t.Errorf("%d of %d kB held after the sweep", n, read)
	}
	clear(f.object.cache)
	if after := f.object.frames(uint64(pc)); after != before {
		t.Errorf("after the sweep %q, before %q", after, before)
	}
}

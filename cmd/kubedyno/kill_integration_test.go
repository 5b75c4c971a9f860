package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/internal/cli"
	"github.com/kubedyno/kubedyno/record"
)

// leftWithin is how long anything of a killed run may still be there.
const leftWithin = 6 * time.Second

// Whatever of a run is killed in its middle, nothing of it is left, and what
// was observed until then can be read, is marked incomplete, and does not count.
func TestKilledInMidRun(t *testing.T) {
	for _, victim := range []string{"kubedyno", "kubedyno-keeper", "etcd"} {
		t.Run(victim, func(t *testing.T) {
			r := startRun(t)
			r.waitForPods(t)
			// The oldest processes of the run: those that are started later
			// are children of these.
			family := descendants(t, r.cmd.Process.Pid)
			if len(family) < 7 {
				t.Fatalf("only %d processes of the run found: %v", len(family), family)
			}
			// The keeper's number is in the name of each group that it makes.
			keeper := fmt.Sprintf("-%d-", r.pidOf(t, "kubedyno-keeper"))
			if len(cgroups(t, keeper)) == 0 {
				t.Fatal("the run has no cgroup: what is checked below is not there")
			}
			pid := r.cmd.Process.Pid
			if victim != "kubedyno" {
				pid = r.pidOf(t, victim)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			for time.Since(killed) < leftWithin && (len(alive(family)) > 0 || len(entries(r.state)) > 0) {
				time.Sleep(20 * time.Millisecond)
			}
			if left := alive(family); len(left) > 0 {
				t.Errorf("still alive %v after the kill of %s: %v", leftWithin, victim, left)
			}
			if left := entries(r.state); len(left) > 0 {
				t.Errorf("state folders left: %v", left)
			}
			if left := cgroups(t, keeper); len(left) > 0 {
				t.Errorf("cgroups left: %v", left)
			}
			err := r.cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the run ended with %v", err)
			}
			if victim != "kubedyno" {
				if exit.ExitCode() != cli.ExitFailed {
					t.Errorf("exit code %d, want %d", exit.ExitCode(), cli.ExitFailed)
				}
				if !strings.Contains(r.said(), victim) || strings.Contains(r.said(), "goroutine ") {
					t.Errorf("the run does not say in a sentence that %s died:\n%s", victim, r.said())
				}
			}
			checkIncomplete(t, r.out)
		})
	}
}

func checkIncomplete(t *testing.T, dir string) {
	t.Helper()
	rec, err := record.Open(dir)
	if err != nil {
		t.Fatalf("the recording does not open: %v", err)
	}
	defer rec.Close()
	m := rec.Meta()
	if m.Status == record.StatusComplete || m.Status == record.StatusRunning {
		t.Errorf("status %s", m.Status)
	}
	if m.EndReason == "" || !m.Ended.After(m.Started) {
		t.Errorf("the recording does not say where it ends: ended %v, reason %q", m.Ended, m.EndReason)
	}
	pods, err := rec.Pods()
	if err != nil || len(pods) == 0 {
		t.Errorf("%d pods were kept (%v)", len(pods), err)
	}
	if v, err := rec.Query("count(up)", m.Ended); err != nil || len(v) == 0 {
		t.Errorf("metrics were not kept: %v %v", v, err)
	}
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	if d.Valid || !errors.Is(d.Err(), diagnose.ErrInvalid) {
		t.Error("an incomplete run counts as valid")
	}
}

// Ctrl-C ends a run cleanly, with a recording that tells how far it came.
func TestInterrupted(t *testing.T) {
	r := startRun(t)
	r.waitForPods(t)
	family := descendants(t, r.cmd.Process.Pid)
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitFailed {
		t.Errorf("an interrupted run ended with %v", err)
	}
	if left := alive(family); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if left := entries(r.state); len(left) > 0 {
		t.Errorf("state folders left: %v", left)
	}
	if !strings.Contains(r.said(), "interrupted in phase load") {
		t.Errorf("said:\n%s", r.said())
	}
	checkIncomplete(t, r.out)
}

// moments is how often TestKilledAtAnyMoment kills; -moments 20 takes some
// three minutes.
var moments = flag.Int("moments", 4, "how often a recording is killed at a random moment")

// A recording that is killed, at whatever moment, has lost no more than its
// last two seconds.
func TestKilledAtAnyMoment(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "KUBEDYNO_LAB="+labtest.Binary(t), "KUBEDYNO_STATE="+filepath.Join(dir, "labs"))
	kubedyno := func(args ...string) *exec.Cmd {
		cmd := exec.Command(exe, args...)
		cmd.Args[0] = "kubedyno"
		cmd.Env = env
		return cmd
	}
	if out, err := kubedyno("lab", "up", "--nodes", "3").CombinedOutput(); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := kubedyno("lab", "down").CombinedOutput(); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
	})
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(0, uint64(seed)))
	for i := range *moments {
		out := filepath.Join(dir, fmt.Sprint("r", i))
		cmd := kubedyno("record", "--out", out)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// One in each quarter, so that some are late enough to have lost anything.
		at := time.Duration(i%4)*2*time.Second + time.Duration(random.Int64N(int64(2*time.Second)))
		time.Sleep(at)
		last := time.Now() // of what must be kept
		ending := i%3 == 2 // every third is killed while it finishes
		if ending {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		}
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		moment := fmt.Sprintf("after %v, finishing %v", at.Round(time.Millisecond), ending)
		_, none := os.Stat(filepath.Join(out, "recording.json"))
		began, kept, err := lastKept(out)
		switch {
		case none != nil && at < 4*time.Second: // it had not begun
			t.Logf("%s: no recording yet", moment)
		case err != nil:
			t.Errorf("%s: %v\n%s", moment, err, said.String())
		case last.Sub(began) < 3*time.Second: // collectors were still starting
			t.Logf("%s: %.1f s of recording", moment, last.Sub(began).Seconds())
		case len(kept) < 2:
			t.Errorf("%s: kept only %v", moment, kept)
		default:
			for table, end := range kept {
				lost := last.Sub(end)
				t.Logf("%s: %s lost %.2f s", moment, table, lost.Seconds())
				if lost > 2*time.Second {
					t.Errorf("%s: the last row of %s is %.2f s before", moment, table, lost.Seconds())
				}
			}
		}
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
	}
}

// lastKept opens a recording, and says when it began and of what time the last
// row of each table is that gets rows all the time; a table without rows, as
// a recording has that has just begun, is left out.
func lastKept(dir string) (began time.Time, kept map[string]time.Time, err error) {
	rec, err := record.Open(dir)
	if err != nil {
		return began, nil, err
	}
	defer rec.Close()
	kept = map[string]time.Time{}
	machine, err := rec.MachineSamples()
	for _, s := range machine {
		kept["machine"] = time.UnixMicro(s.TimeMicros)
	}
	processes, perr := rec.Processes()
	for _, s := range processes {
		if s.Component != "" && s.TimeMicros > kept["processes"].UnixMicro() {
			kept["processes"] = time.UnixMicro(s.TimeMicros)
		}
	}
	for _, e := range []error{err, perr} {
		if e != nil && !errors.Is(e, record.ErrMissing) {
			return rec.Meta().Started, nil, e
		}
	}
	return rec.Meta().Started, kept, nil
}

// theRun is a run of kubedyno as a process of its own.
type theRun struct {
	cmd        *exec.Cmd
	out, state string

	mu   sync.Mutex
	text bytes.Buffer
	pods chan struct{} // closed when pods run
}

func startRun(t *testing.T) *theRun {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lab := labtest.Binary(t)
	dir := t.TempDir()
	r := &theRun{out: filepath.Join(dir, "r"), state: filepath.Join(dir, "labs"), pods: make(chan struct{})}
	r.cmd = exec.Command(exe, "run", "density-direct", "--rate", "20/s", "--nodes", "5", "--pods-per-node", "200", "--out", r.out)
	r.cmd.Args[0] = "kubedyno"
	r.cmd.Env = append(os.Environ(), "KUBEDYNO_LAB="+lab, "KUBEDYNO_STATE="+r.state)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	go r.listen(stderr)
	return r
}

func (r *theRun) listen(stderr io.Reader) {
	running := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		r.mu.Lock()
		fmt.Fprintln(&r.text, line)
		r.mu.Unlock()
		if !running && strings.Contains(line, "of 1000 created") && !strings.Contains(line, " 0 running") {
			running = true
			close(r.pods)
		}
	}
}

func (r *theRun) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *theRun) waitForPods(t *testing.T) {
	t.Helper()
	select {
	case <-r.pods:
	case <-time.After(2 * time.Minute):
		t.Fatalf("no pod of the load ran within 2 minutes:\n%s", r.said())
	}
}

// pidOf reads from the recording, as it is being written, who is who.
func (r *theRun) pidOf(t *testing.T, component string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, "recording.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), `"name": "`+component+`"`)
	if !ok {
		t.Fatalf("the recording does not name %s", component)
	}
	_, rest, _ = strings.Cut(rest, `"pid": `)
	pid, err := strconv.Atoi(rest[:strings.IndexAny(rest, ",\n")])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// process is one process for good: numbers are used again.
type process struct {
	pid   int
	start string
	name  string
}

// descendants are the process and all below it.
func descendants(t *testing.T, root int) []process {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parent := map[int]int{}
	who := map[int]process{}
	for _, name := range all {
		p, ppid, ok := stat(name)
		if ok {
			parent[p.pid], who[p.pid] = ppid, p
		}
	}
	var family []process
	for pid, p := range who {
		for at := pid; at > 1; at = parent[at] {
			if at == root {
				family = append(family, p)
				break
			}
		}
	}
	return family
}

func stat(name string) (p process, ppid int, ok bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		return p, 0, false
	}
	open, shut := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || shut < open {
		return p, 0, false
	}
	fields := strings.Fields(string(data[shut+1:]))
	p.pid, _ = strconv.Atoi(strings.TrimSpace(string(data[:open])))
	p.name, p.start = string(data[open+1:shut]), fields[19]
	ppid, _ = strconv.Atoi(fields[1])
	return p, ppid, fields[0] != "Z"
}

func alive(family []process) []process {
	var left []process
	for _, p := range family {
		if now, _, ok := stat(fmt.Sprintf("/proc/%d/stat", p.pid)); ok && now.start == p.start {
			left = append(left, p)
		}
	}
	return left
}

func entries(dir string) []string {
	all, _ := os.ReadDir(dir) // not there: nothing is left
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func cgroups(t *testing.T, of string) []string {
	t.Helper()
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), "kubedyno") && strings.Contains(d.Name(), of) {
			groups = append(groups, path)
		}
		return nil // a group that vanishes while we look is none
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

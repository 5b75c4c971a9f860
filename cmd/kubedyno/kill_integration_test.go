package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays the child, in the manner that CHILD names.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == EnterName {
		// As in a real main: by now the goroutine may have changed its thread,
		// and the parent-death signal belongs to the first one.
		for range 10 {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintln(os.Stderr, EnterMain(os.Args[1:]))
		os.Exit(1)
	}
	if how := os.Getenv("CHILD"); how != "" {
		misbehave(how)
		return
	}
	goleak.VerifyTestMain(m)
}

func misbehave(how string) {
	fmt.Println("I am", os.Args[0], "and", how)
	switch how {
	case "well":
		touchReady()
		forever()
	case "slow":
		time.Sleep(300 * time.Millisecond)
		touchReady()
		forever()
	case "never ready":
		forever()
	case "dies":
		fmt.Fprintln(os.Stderr, "no space for me in this world")
		os.Exit(7)
	case "dies well":
		os.Exit(0)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		touchReady()
		forever()
	case "floods":
		line := strings.Repeat("x", 1000)
		for i := range 20_000 {
			fmt.Println(i, line)
		}
		fmt.Println("the last drop")
		os.Exit(3)
	case "forks", "forks and dies":
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), "CHILD=deaf", "READY=/dev/null")
		if err := child.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if err := os.WriteFile(os.Getenv("READY"), []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			os.Exit(1)
		}
		if how == "forks and dies" {
			time.Sleep(100 * time.Millisecond)
			os.Exit(1)
		}
		forever()
	case "owner": // starts a child and waits to be shot
		s := NewSpawner()
		p, err := s.spawn(Config{Name: "orphan", Path: "/proc/self/exe", Env: append(os.Environ(), "CHILD=never ready"),
			Cgroups: strings.Fields(os.Getenv("CGROUPS"))})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = os.WriteFile(os.Getenv("READY"), []byte(strconv.Itoa(p.PID())), 0o600)
		forever()
	}
}

func touchReady() { _ = os.WriteFile(os.Getenv("READY"), []byte("yes"), 0o600) }
func forever()    { time.Sleep(time.Hour) }

// child is a Config of a child that misbehaves.
func child(t *testing.T, how string) Config {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	return Config{
		Name:    "kube-patient",
		Path:    "/proc/self/exe",
		Argv0:   "kube-patient",
		Env:     append(os.Environ(), "CHILD="+how, "READY="+ready),
		LogFile: filepath.Join(dir, "log"),
		Grace:   5 * time.Second,
		Ready: func(context.Context) error {
			if b, err := os.ReadFile(ready); err != nil || len(b) == 0 {
				return errors.New("not yet")
			}
			return nil
		},
	}
}

func spawner(t *testing.T) *Spawner {
	s := NewSpawner()
	t.Cleanup(s.Close)
	return s
}

func TestStartAndStop(t *testing.T) {
	for _, how := range []string{"well", "slow"} {
		t.Run(how, func(t *testing.T) {
			p, err := spawner(t).Start(t.Context(), child(t, how))
			if err != nil {
				t.Fatal(err)
			}
			if p.Exit() != nil || !Alive(p.PID(), p.ticks) {
				t.Error("the child is reported dead while it runs")
			}
			if got := p.Tail(1); len(got) != 1 || got[0] != "I am kube-patient and "+how {
				t.Errorf("log = %q", got)
			}
			if killed := p.Stop(t.Context()); killed {
				t.Error("a willing child was killed")
			}
			if p.Exit() == nil || Alive(p.PID(), p.ticks) {
				t.Error("the child is reported alive after Stop")
			}
		})
	}
}

func TestEarlyExitIsReportedAtOnce(t *testing.T) {
	for how, want := range map[string]string{
		"dies":      "kube-patient exited (exit status 7): no space for me in this world",
		"dies well": "kube-patient exited (exit status 0): I am kube-patient and dies well",
		"floods":    "kube-patient exited (exit status 3): the last drop",
	} {
		t.Run(how, func(t *testing.T) {
			cfg := child(t, how)
			// A question that hangs must not delay the news.
			cfg.Ready = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			_, err := spawner(t).Start(t.Context(), cfg)
			var exit *ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("err = %v, want an *ExitError", err)
			}
			if err.Error() != want {
				t.Errorf("err = %q, want %q", err, want)
			}
			if len(exit.Log) > lastWords {
				t.Errorf("%d lines of log, want at most %d", len(exit.Log), lastWords)
			}
		})
	}
}

func TestNotReadyInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := spawner(t).Start(ctx, child(t, "never ready"))
	var late *NotReadyError
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("err = %v, want a *NotReadyError that wraps the deadline", err)
	}
	if !strings.Contains(err.Error(), "not yet") {
		t.Errorf("err = %q does not tell the last answer", err)
	}
}

func TestDeafChildIsKilled(t *testing.T) {
	cfg := child(t, "deaf")
	cfg.Grace = 50 * time.Millisecond
	p, err := spawner(t).Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if killed := p.Stop(t.Context()); !killed {
		t.Error("Stop says that a deaf child ended by itself")
	}
}

func TestStopEndsWithItsContext(t *testing.T) {
	cfg := child(t, "deaf")
	cfg.Grace = time.Hour
	p, err := spawner(t).Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Stop(ctx)
}

func TestGrandchildrenEndToo(t *testing.T) {
	for _, how := range []string{"forks", "forks and dies"} {
		t.Run(how, func(t *testing.T) {
			cfg := child(t, how)
			p, err := spawner(t).Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			grandchild := readPID(t, cfg)
			if how == "forks" {
				p.Stop(t.Context())
			}
			<-p.Done()
			waitGone(t, grandchild)
		})
	}
}

func TestMissingProgram(t *testing.T) {
	cfg := child(t, "well")
	cfg.Path = "/nonexistent/etcd"
	_, err := spawner(t).Start(t.Context(), cfg)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "start kube-patient: ") {
		t.Errorf("err = %v", err)
	}
	cfg.Cgroups = []string{"/nonexistent/cgroup"}
	if _, err := spawner(t).Start(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want it before the helper starts", err)
	}
}

// A folder with a cgroup.procs stands in for a cgroup: what the helper must do
// is write its pid there, and become the component under the same pid.
func TestEnterJoinsBeforeExec(t *testing.T) {
	cfg := child(t, "well")
	cfg.Cgroups = []string{fakeCgroup(t), fakeCgroup(t)}
	p, err := spawner(t).Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for _, dir := range cfg.Cgroups {
		got, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || string(got) != strconv.Itoa(p.PID()) {
			t.Errorf("%s holds %q (%v), want %d", dir, got, err, p.PID())
		}
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
	if err != nil || !strings.HasPrefix(string(cmdline), "kube-patient\x00") {
		t.Errorf("command line %q (%v)", cmdline, err)
	}
}

// A limit of open files holds from the first instruction on.
func TestFiles(t *testing.T) {
	cfg := child(t, "well")
	cfg.Files = 77
	p, err := spawner(t).Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`Max open files\s+77\s+77\s`).Match(limits) {
		t.Errorf("limits are\n%s", limits)
	}
}

func TestEnterSaysWhatFailed(t *testing.T) {
	cfg := child(t, "well")
	cfg.Cgroups = []string{"/nonexistent/cgroup"}
	_, err := spawner(t).Start(t.Context(), cfg)
	var exit *ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "join cgroup: open /nonexistent/cgroup/cgroup.procs") {
		t.Errorf("err = %v", err)
	}
}

// kill -9 of the owner: the kernel ends the child, through the helper's exec too.
func TestChildDiesWithItsOwner(t *testing.T) {
	for name, cgroups := range map[string]string{"direct": "", "through the helper": fakeCgroup(t)} {
		t.Run(name, func(t *testing.T) {
			cfg := child(t, "owner")
			cfg.Env = append(cfg.Env, "CGROUPS="+cgroups)
			p, err := spawner(t).Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			orphan := readPID(t, cfg)
			ticks, err := StartTime(orphan)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // let the helper execute
			if !Alive(orphan, ticks) {
				t.Fatal("the child died before its owner")
			}
			if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			waitGone(t, orphan)
		})
	}
}

func TestChildDiesWithItsSpawner(t *testing.T) {
	s := NewSpawner()
	p, err := s.Start(t.Context(), child(t, "deaf"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	select {
	case <-p.Done():
	case <-time.After(5 * time.Second):
		p.Kill()
		t.Error("the child outlived its spawner")
	}
	if _, err := s.Start(t.Context(), child(t, "well")); !errors.Is(err, errSpawnerClosed) {
		t.Errorf("err = %v", err)
	}
}

func fakeCgroup(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readPID(t *testing.T, cfg Config) int {
	t.Helper()
	b, err := os.ReadFile(strings.TrimSuffix(cfg.LogFile, "log") + "ready")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	for range 250 {
		ticks, err := StartTime(pid)
		if err != nil || !Alive(pid, ticks) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d is alive after 5 s", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

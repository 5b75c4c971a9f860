// Package proc runs one child process from start to last words: start, wait
// until ready, notice an early exit, stop with a grace.
//
// A child never outlives this process. It leads its own process group, so a
// terminal's Ctrl-C reaches us and not the child, and whatever it forked ends
// with it; and it dies when the Spawner that started it dies, however that
// happens. Start with Spawner, then Config, then Process.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/cluster/slow"
)

// Config describes one child.
type Config struct {
	// Name is the component's name, for errors.
	Name string
	// Path is the program.
	Path string
	// Argv0 is the name that the program is told; empty means Path.
	// client-go takes its user agent from it.
	Argv0 string
	// Args are the arguments without argv[0].
	Args []string
	// Env is the whole environment; nil means ours.
	Env []string
	Dir string
	// LogFile receives stdout and stderr, appended.
	LogFile string
	// Stdin and Stdout are handed to the child in place of /dev/null and the
	// log. The caller keeps and closes its own ends.
	Stdin, Stdout *os.File
	// Cgroups are folders that the child joins before it executes Path.
	Cgroups []string
	// Files is how many files the child may have open; 0 leaves its limit alone.
	Files uint64
	// Syncs, if not nil, delays the child's syncs. The caller serves it.
	Syncs *slow.Syncs
	// Ready is asked until it returns nil; nil means ready at once.
	Ready func(context.Context) error
	// ReadyEvery is the pause between two questions; zero means 20 ms.
	ReadyEvery time.Duration
	// Grace is how long Stop waits between SIGTERM and SIGKILL; zero means
	// defaultGrace.
	Grace time.Duration
}

const (
	// defaultReadyEvery is short beside the seconds a component starts in,
	// and long beside what a refused connection costs.
	defaultReadyEvery = 20 * time.Millisecond
	defaultGrace      = 5 * time.Second
	// lastWords is how many log lines an ExitError carries.
	lastWords = 20
)

// A Spawner starts children, all of them from one thread of its own.
//
// Pdeathsig, by which the kernel kills a child whose parent died, follows the
// *thread* that created the child, not the process (golang/go#27505): were the
// Go runtime to retire that thread, healthy children would be shot. So one
// goroutine, locked to its thread until Close, performs every start.
type Spawner struct {
	starts chan func()
	closed chan struct{}
	once   sync.Once
}

// NewSpawner returns a Spawner; Close it when its children have ended.
func NewSpawner() *Spawner {
	s := &Spawner{starts: make(chan func()), closed: make(chan struct{})}
	go func() {
		// Never unlocked: the thread ends with the goroutine, and with it,
		// by Pdeathsig, whatever child was left.
		runtime.LockOSThread()
		for {
			select {
			case f := <-s.starts:
				f()
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

// Close ends the thread. Children still running are killed by the kernel.
func (s *Spawner) Close() { s.once.Do(func() { close(s.closed) }) }

var errSpawnerClosed = errors.New("no more children are started")

// start runs cmd.Start on the spawner's thread.
func (s *Spawner) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	select {
	case s.starts <- func() { done <- cmd.Start() }:
		return <-done
	case <-s.closed:
		return errSpawnerClosed
	}
}

// A Process is a started child.
type Process struct {
	cfg     Config
	cmd     *exec.Cmd
	started time.Time
	ticks   uint64 // start time as /proc tells it

	stopping atomic.Bool
	done     chan struct{} // closed once the child and its group have ended
	exit     *ExitError    // valid after done
}

// Start starts a child and returns once it is ready. ctx bounds the wait for
// readiness; the process lives until Stop or Kill. A child that ends before it
// is ready is reported at once, as *ExitError.
func (s *Spawner) Start(ctx context.Context, cfg Config) (*Process, error) {
	p, err := s.spawn(cfg)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (s *Spawner) spawn(cfg Config) (*Process, error) {
	cmd := &exec.Cmd{
		Path: cfg.Path,
		Args: append([]string{cfg.argv0()}, cfg.Args...),
		Env:  cfg.Env,
		Dir:  cfg.Dir,
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
		},
	}
	if err := EnterOn(cmd, Terms{Cgroups: cfg.Cgroups, Files: cfg.Files, Syncs: cfg.Syncs}); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	if cfg.Stdin != nil {
		cmd.Stdin = cfg.Stdin
	}
	if cfg.LogFile != "" {
		log, err := os.OpenFile(cfg.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fmt.Errorf("log of %s: %w", cfg.Name, err)
		}
		// The child writes to the file itself: no copying goroutine, nothing
		// of ours to fill up, and a grandchild that keeps it open cannot hang us.
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	if cfg.Stdout != nil {
		cmd.Stdout = cfg.Stdout
	}
	p := &Process{cfg: cfg, cmd: cmd, started: time.Now(), done: make(chan struct{})}
	if err := s.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	if cfg.Syncs != nil {
		cfg.Syncs.Handle.Close() // the child has its own
	}
	p.ticks, _ = StartTime(cmd.Process.Pid)
	go p.wait()
	return p, nil
}

func (c *Config) argv0() string {
	if c.Argv0 != "" {
		return c.Argv0
	}
	return c.Path
}

// wait reaps the child. Its group is shot first, while the dead child still
// holds the number: afterwards another process might have it.
func (p *Process) wait() {
	defer close(p.done)
	pid := p.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	err := p.cmd.Wait()
	if err == nil {
		err = errExitedZero
	}
	p.exit = &ExitError{Component: p.cfg.Name, Err: err, Log: p.Tail(lastWords)}
}

func (p *Process) waitReady(ctx context.Context) error {
	if p.cfg.Ready == nil {
		return nil
	}
	every := p.cfg.ReadyEvery
	if every == 0 {
		every = defaultReadyEvery
	}
	// An early exit ends a question under way: it may wait for an answer that
	// the dead will never give.
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-p.done:
			stop()
		case <-asking.Done():
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := p.cfg.Ready(asking)
		select {
		case <-p.done:
			return p.exit
		default:
		}
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.done:
			return p.exit
		case <-ctx.Done():
			return &NotReadyError{
				Component: p.cfg.Name,
				After:     time.Since(p.started),
				Last:      last,
				Log:       p.Tail(lastWords),
				Err:       context.Cause(ctx),
			}
		case <-tick.C:
		}
	}
}

// Name is the component's name.
func (p *Process) Name() string { return p.cfg.Name }

// PID is the child's process and group number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Started is when the child was started.
func (p *Process) Started() time.Time { return p.started }

// Instance names this start of the component: name@pid@starttime.
func (p *Process) Instance() string {
	return fmt.Sprintf("%s@%d@%d", p.cfg.Name, p.PID(), p.ticks)
}

// LogFile is where the child's output goes.
func (p *Process) LogFile() string { return p.cfg.LogFile }

// Done is closed when the child and everything in its group have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit tells how the child ended; nil while it runs.
func (p *Process) Exit() *ExitError {
	select {
	case <-p.done:
		return p.exit
	default:
		return nil
	}
}

// Stopping says whether we asked the child to end.
func (p *Process) Stopping() bool { return p.stopping.Load() }

// Signal sends sig to the child and everything in its group.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
	}
	// The group number is the child's own, which is ours until wait reaped it;
	// the window between that and done closing is some microseconds.
	if err := syscall.Kill(-p.PID(), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal %s (pid %d): %w", p.cfg.Name, p.PID(), err)
	}
	return nil
}

// Stop ends the child: SIGTERM, and SIGKILL when its grace is over or ctx
// ends. It returns when the child has ended and says whether it had to be
// killed. A stopped child must have been continued first.
func (p *Process) Stop(ctx context.Context) (killed bool) {
	p.stopping.Store(true)
	if p.Exit() == nil {
		_ = syscall.Kill(p.PID(), syscall.SIGTERM) // the leader only: it ends its own
	}
	grace := p.cfg.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	case <-ctx.Done():
	}
	p.Kill()
	return true
}

// Kill ends the child at once and returns when it has ended.
func (p *Process) Kill() {
	p.stopping.Store(true)
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Tail returns the last n lines of the child's log.
func (p *Process) Tail(n int) []string { return tailFile(p.cfg.LogFile, n) }

var errExitedZero = errors.New("exit status 0")

// An ExitError reports a component that stopped by itself.
type ExitError struct {
	Component string
	Err       error    // from Cmd.Wait
	Log       []string // its last lines
}

func (e *ExitError) Error() string {
	if line := LastLine(e.Log); line != "" {
		return fmt.Sprintf("%s exited (%v): %s", e.Component, e.Err, line)
	}
	return fmt.Sprintf("%s exited (%v) without a word", e.Component, e.Err)
}

func (e *ExitError) Unwrap() error { return e.Err }

// A NotReadyError reports a component that runs but did not become ready.
type NotReadyError struct {
	Component string
	After     time.Duration
	Last      error    // the last answer to the question whether it is ready
	Log       []string // its last lines
	Err       error    // why we stopped asking
}

func (e *NotReadyError) Error() string {
	msg := fmt.Sprintf("%s was not ready after %.1f s", e.Component, e.After.Seconds())
	if e.Last != nil {
		msg += fmt.Sprintf(" (%v)", e.Last)
	}
	return msg + ": " + e.Err.Error()
}

func (e *NotReadyError) Unwrap() error { return e.Err }

// LastLine is the last line that says something.
func LastLine(log []string) string {
	for i := len(log) - 1; i >= 0; i-- {
		if s := strings.TrimSpace(log[i]); s != "" {
			return s
		}
	}
	return ""
}

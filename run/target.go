package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/existing"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/proc"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/load"
)

// A target is a control plane for the length of a run: a lab of its own or a
// cluster that was there before.
type target interface {
	ControlPlane() *cluster.ControlPlane
	// APIReady is how long the API server took to become ready; 0 where it
	// was before.
	APIReady() time.Duration
	// StartHollow starts the process of the simulated nodes. The channel
	// carries what it says and closes when it has ended.
	StartHollow(ctx context.Context, config json.RawMessage) (hollowProcess, error)
	// WrapLoad changes the load generator's command, to limit its CPU.
	WrapLoad(*exec.Cmd) error
	// Limits are what the experiment sets for one of our own processes: its
	// environment, nil for ours, and the cgroups that hold its quota.
	Limits(name string) (env, cgroups []string)
	// LoadCgroup is the folder whose cpu.stat tells how the load generator
	// was throttled; empty if it has no quota.
	LoadCgroup() string
	// Seed puts objects into the cluster's database, past its API server.
	Seed(ctx context.Context, objects iter.Seq[lab.Seedling]) error
	// Exited tells of a component that died by itself.
	Exited() <-chan error
	// Stop ends what the target started; fast where the run has failed
	// already and nothing is worth an orderly end. What was written, logs
	// among it, stays until Remove.
	Stop(ctx context.Context, fast bool) error
	Remove() error
}

// hollowProcess is the running process of the simulated nodes.
type hollowProcess struct {
	PID        int
	MetricsURL string
	Cgroup     string
	CPU        float64
	Events     <-chan json.RawMessage
}

// labTarget is a lab that this run started and ends.
type labTarget struct {
	*lab.Lab
	quotas map[string]experiment.Component
	exited chan error
}

// labConfig is the lab of an experiment.
func labConfig(e *experiment.Experiment) lab.Config {
	overrides := map[string]lab.Override{}
	for name, c := range e.Cluster.Components {
		overrides[name] = lab.Override{Args: c.Args, Env: c.Env, Binary: c.Binary, CPU: c.CPU, Config: c.Config, Off: c.Off, SyncDelay: c.SyncDelay, Latency: c.Latency, Files: uint64(c.Files)}
	}
	return lab.Config{Profile: string(e.Cluster.Profile), Overrides: overrides, CPU: e.Cluster.CPU}
}

// Check refuses an experiment whose own control plane or real nodes would not be
// started, such as for a flag that a component does not know. It starts nothing, so that of
// many runs none has been made when the last one's mistake is found.
func Check(ctx context.Context, e *experiment.Experiment) error {
	if err := checkReal(e.Cluster); err != nil {
		return err
	}
	return labConfig(e).Check(ctx)
}

// newLabTarget starts a lab up to a component; empty means all of them.
func newLabTarget(ctx context.Context, o Options, last string, note func(string, ...any)) (*labTarget, error) {
	config := labConfig(o.Experiment)
	config.Last, config.Log = last, o.Log
	config.OnEvent = func(e lab.Event) {
		o.Log.Debug("lab", "event", e.Event, "component", e.Component, "seconds", e.Seconds, "killed", e.Killed)
	}
	l, err := lab.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if last == "" {
		note("control plane %s: API ready after %.1f s", l.ControlPlane().Version, l.APIReady().Seconds())
	}
	t := &labTarget{Lab: l, quotas: o.Experiment.Cluster.Components, exited: make(chan error, 1)}
	go func() {
		for err := range l.Exited() {
			select {
			case t.exited <- err:
			default: // one death is enough to end a run
			}
		}
	}()
	return t, nil
}

func (t *labTarget) Exited() <-chan error { return t.exited }

func (t *labTarget) StartHollow(ctx context.Context, config json.RawMessage) (hollowProcess, error) {
	info, err := t.Lab.StartHollow(ctx, config)
	if err != nil {
		return hollowProcess{}, err
	}
	return hollowProcess{PID: info.PID, MetricsURL: info.MetricsURL, Cgroup: info.Cgroup, CPU: info.CPU, Events: t.HollowEvents()}, nil
}

// WrapLoad lets the load generator enter the cgroup that holds its quota.
func (t *labTarget) WrapLoad(cmd *exec.Cmd) error {
	env := t.quotas[load.ProcessName].Env
	for _, k := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, k+"="+env[k])
	}
	return proc.Enter(cmd, t.Cgroups(load.ProcessName))
}

func (t *labTarget) Limits(name string) (env, cgroups []string) {
	set := t.quotas[name].Env
	if len(set) > 0 {
		env = os.Environ()
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		env = append(env, k+"="+set[k])
	}
	return env, t.Cgroups(name)
}

func (t *labTarget) LoadCgroup() string {
	if dirs := t.Cgroups(load.ProcessName); len(dirs) > 0 {
		return dirs[0]
	}
	return ""
}

func (t *labTarget) Stop(ctx context.Context, fast bool) error {
	if fast {
		// A stop whose time is over before it begins kills at once.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
		_ = t.Lab.Stop(ctx)
		return nil
	}
	return t.Lab.Stop(ctx)
}

// existingTarget is a cluster that is not ours. The hollow nodes are our own
// child there.
type existingTarget struct {
	*existing.Cluster
	executable string
	hollow     *child
	exited     chan error
}

func (t *existingTarget) APIReady() time.Duration               { return 0 }
func (t *existingTarget) WrapLoad(*exec.Cmd) error              { return nil }
func (t *existingTarget) LoadCgroup() string                    { return "" }
func (t *existingTarget) Limits(string) (env, cgroups []string) { return nil, nil }
func (t *existingTarget) Exited() <-chan error                  { return t.exited }
func (t *existingTarget) Seed(context.Context, iter.Seq[lab.Seedling]) error {
	return errors.New("only a lab can be seeded")
}

func (t *existingTarget) StartHollow(ctx context.Context, config json.RawMessage) (hollowProcess, error) {
	child, err := startChild(ctx, t.executable, hollow.UserAgent, config)
	if err != nil {
		return hollowProcess{}, err
	}
	t.hollow = child
	go func() {
		<-child.done
		if !child.stopping() {
			t.exited <- fmt.Errorf("kubedyno-hollow exited: %w", child.err)
		}
	}()
	return child.hollowProcess, nil
}

func (t *existingTarget) Stop(ctx context.Context, _ bool) error {
	var err error
	if t.hollow != nil {
		err = t.hollow.stop(ctx)
	}
	return err
}

func (t *existingTarget) Remove() error { return t.Close() }

// child is one of our own roles as our own child: hollow nodes, an actor. It
// ends when its stdin closes, so it cannot outlive us.
type child struct {
	hollowProcess
	name string
	cmd  *exec.Cmd
	end  chan struct{} // closed when we want it to end
	done chan struct{} // closed when it has ended
	err  error         // valid after done
}

func startChild(ctx context.Context, executable, name string, config json.RawMessage) (*child, error) {
	cmd := exec.Command(executable)
	cmd.Args[0] = name
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches us, not it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	var words tailBuffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	events := make(chan json.RawMessage, 64)
	c := &child{
		hollowProcess: hollowProcess{PID: cmd.Process.Pid, Events: events},
		name:          name, cmd: cmd, end: make(chan struct{}), done: make(chan struct{}),
	}
	listening := make(chan string, 1)
	go func() {
		defer close(c.done)
		defer close(events)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := append(json.RawMessage(nil), lines.Bytes()...)
			var e struct{ Event, MetricsURL string }
			if json.Unmarshal(line, &e) == nil && e.Event == "listening" {
				listening <- e.MetricsURL
				continue
			}
			events <- line
		}
		if c.err = cmd.Wait(); c.err == nil && !c.stopping() {
			c.err = errors.New("exit status 0")
		}
		if w := words.LastLine(); c.err != nil && w != "" {
			c.err = fmt.Errorf("%w: %s", c.err, w)
		}
	}()
	go func() {
		<-c.end
		stdin.Close()
	}()
	if _, err := stdin.Write(append(config, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("configure %s: %w", name, err), c.stop(ctx))
	}
	select {
	case c.MetricsURL = <-listening:
		return c, nil
	case <-c.done:
		return nil, fmt.Errorf("%s: %w", name, c.err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), c.stop(context.WithoutCancel(ctx)))
	}
}

func (c *child) stopping() bool {
	select {
	case <-c.end:
		return true
	default:
		return false
	}
}

// stop closes its stdin, and kills it when it does not end by itself in time
// to delete its Node objects.
func (c *child) stop(ctx context.Context) error {
	if !c.stopping() {
		close(c.end)
	}
	go func() { // nobody reads any more; let it finish its sentence
		for range c.Events {
		}
	}()
	select {
	case <-c.done:
	case <-ctx.Done():
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	return nil
}

// tailBuffer keeps the end of what a child said.
type tailBuffer struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 4096

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if extra := len(b.text) - tailBytes; extra > 0 {
		b.text = append(b.text[:0], b.text[extra:]...)
	}
	return len(p), nil
}

// LastLine is the last line that says something.
func (b *tailBuffer) LastLine() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return proc.LastLine(strings.Split(string(b.text), "\n"))
}

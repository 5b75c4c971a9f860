// Package lab runs a private Kubernetes control plane on this machine: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as children of a
// keeper process, on loopback, with certificates of their own.
//
// A lab belongs to one command (Start: it ends with its owner) or stands by
// itself (Up, until Down). Either way its keeper ends every child and removes
// what it made, and if the keeper is killed the kernel ends the children.
//
// Start with Config, then Start and Lab; keeper.go is the other side.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/cluster/proc"
	"github.com/kubedyno/kubedyno/cluster/slow"
)

// Config says what lab to start. Its zero value is a stock lab.
type Config struct {
	// Name is the lab's; empty for Start means one that is free.
	Name string
	// Profile is one of Profiles; empty means DefaultProfile.
	Profile string
	// StateRoot is the folder that holds labs' state folders; empty means
	// DefaultStateRoot.
	StateRoot string
	// Lab is the path of kubedyno-lab; empty means FindLab.
	Lab string
	// Overrides are by component: its binary's name.
	Overrides map[string]Override
	// CPU is a quota in cores that the components have together; 0 means none.
	CPU float64
	// Last is the last component that is started, in the order of their starts;
	// empty means all. With etcd alone there is nobody to ask, and no user.
	Last string
	// StartTimeout bounds the start; zero means defaultStartTimeout.
	StartTimeout time.Duration
	// OnEvent, if not nil, is told what happens, one event at a time.
	OnEvent func(Event)
	// Log receives what is not worth an error; nil discards.
	Log *slog.Logger
}

// Override changes one component.
type Override struct {
	// Args are flags without dashes; nil removes the flag.
	Args map[string]*string `json:"args,omitempty"`
	Env  map[string]string  `json:"env,omitempty"`
	// Binary takes the place of kubedyno-lab; it gets the same flags.
	Binary string `json:"binary,omitempty"`
	// CPU is a quota in cores; 0 means none.
	CPU float64 `json:"cpu,omitempty"`
	// Config is the scheduler's KubeSchedulerConfiguration; what the profile's flags
	// say about its client is added.
	Config map[string]any `json:"config,omitempty"`
	// Off leaves the component out. Only the controller manager and the
	// scheduler can be missed.
	Off bool `json:"off,omitempty"`
	// SyncDelay is how much longer each of its syncs to disk takes.
	SyncDelay time.Duration `json:"syncDelay,omitempty"`
	// Latency is how much longer what is asked of etcd and its answer take on their
	// way; of the controller manager and the scheduler, what they ask of the API
	// server. For these three only.
	Latency time.Duration `json:"latency,omitempty"`
	// Files is how many files it may have open; 0 means as many as we.
	Files uint64 `json:"files,omitempty"`
}

// defaultStartTimeout is generous because a quota of CPU, which a user may ask
// for, stretches the 3-4 s of a start; a component that dies is told at once.
const defaultStartTimeout = 3 * time.Minute

// LabBinary is the program that holds the components.
const LabBinary = "kubedyno-lab"

// FindLab returns the path of kubedyno-lab: $KUBEDYNO_LAB, or beside this
// program.
func FindLab() (string, error) {
	if path := os.Getenv("KUBEDYNO_LAB"); path != "" {
		if err := checkExecutable(path); err != nil {
			return "", fmt.Errorf("$KUBEDYNO_LAB does not name a program: %w", err)
		}
		return filepath.Abs(path)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", LabBinary, err)
	}
	path := filepath.Join(filepath.Dir(exe), LabBinary)
	if err := checkExecutable(path); err != nil {
		return "", fmt.Errorf("%s, the program with the control plane's components, is not beside %s: build it with `make build`, or set KUBEDYNO_LAB to its path", LabBinary, exe)
	}
	return path, nil
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// Check refuses what Start would refuse before it makes anything: names, flags
// that a component does not know, a quota too small.
func (c Config) Check(ctx context.Context) error { return c.validate(ctx) }

// validate refuses what can be refused before anything is made.
func (c *Config) validate(ctx context.Context) error {
	flags, err := ProfileFlags(c.Profile)
	if err != nil {
		return err
	}
	if c.Name != "" && !validName(c.Name) {
		return misuse("lab name %q: want lower-case letters, digits and dashes, at most 40, beginning and ending with a letter or digit", c.Name)
	}
	if c.Last != "" && !slices.Contains(components, c.Last) {
		return misuse("no component is named %q%s", c.Last, didYouMean(c.Last, components))
	}
	for name, o := range c.Overrides {
		if err := o.validate(name, flags); err != nil {
			return err
		}
	}
	if c.Lab == "" {
		if c.Lab, err = FindLab(); err != nil {
			return err
		}
	} else if err := checkExecutable(c.Lab); err != nil {
		return fmt.Errorf("%s: %w", LabBinary, err)
	}
	return c.tryFlags(ctx)
}

func validName(s string) bool {
	if len(s) > 40 {
		return false
	}
	for i, r := range s {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
		case r == '-' && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}

// ownFlags are those that the lab computes, with the ports it picked.
var ownFlags = map[string][]string{
	Etcd:              {"listen-client-urls", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls", "initial-cluster", "listen-metrics-urls", "name"},
	APIServer:         {"etcd-servers", "bind-address", "secure-port"},
	ControllerManager: {"kubeconfig", "bind-address", "secure-port"},
	Scheduler:         {"kubeconfig", "bind-address", "secure-port"},
}

func (o Override) validate(name string, flags []Flag) error {
	known := append(slices.Clone(components), harness...)
	if !slices.Contains(known, name) {
		return misuse("no component is named %q%s", name, didYouMean(name, known))
	}
	if o.CPU < 0 || o.CPU != 0 && o.CPU < 0.01 {
		return misuse("%s.cpu=%g: a quota is at least 0.01 cores", name, o.CPU)
	}
	if o.Latency != 0 && name != Etcd && name != ControllerManager && name != Scheduler {
		return misuse("%s.latency: only the way to etcd, and those of %s and %s to the API server can be made longer", name, ControllerManager, Scheduler)
	}
	if o.SyncDelay != 0 {
		if err := slow.CanDelaySyncs(); err != nil {
			return misuse("%s.syncDelay: %v", name, err)
		}
	}
	if o.Off && name != ControllerManager && name != Scheduler {
		return misuse("%s.off: a lab cannot do without it; only %s and %s can be left out", name, ControllerManager, Scheduler)
	}
	if o.Config != nil && name != Scheduler {
		return misuse("%s.config: only %s is configured by a file of ours", name, Scheduler)
	}
	if slices.Contains(harness, name) {
		if len(o.Args) > 0 || o.Binary != "" || o.SyncDelay != 0 || o.Files != 0 {
			return misuse("%s is kubedyno itself: only its cpu and env can be set", name)
		}
		return nil
	}
	var set []string
	for _, f := range flags {
		if f.Component == name {
			set = append(set, f.Name)
		}
	}
	for flag, value := range o.Args {
		switch {
		case strings.HasPrefix(flag, "-"):
			return misuse("%s.args.%s: write the flag without dashes", name, flag)
		case flag == "":
			return misuse("%s.args: a flag has no name", name)
		case slices.Contains(ownFlags[name], flag):
			return misuse("%s.args.%s: the lab sets this flag itself, with the ports it picks", name, flag)
		case value == nil && !slices.Contains(set, flag):
			return misuse("%s.args.%s: there is no such flag to remove%s", name, flag, didYouMean(flag, set))
		}
	}
	if o.Binary != "" {
		if err := checkExecutable(o.Binary); err != nil {
			return misuse("%s.binary: %v", name, err)
		}
	}
	return nil
}

// tryFlags asks each component whose flags are changed to parse the changes. A
// component parses all its flags before it obeys --help, in some 0.1 s, so a
// mistyped flag is refused by who knows best, before anything starts.
func (c *Config) tryFlags(ctx context.Context) error {
	for _, name := range components {
		o := c.Overrides[name]
		args := overrideArgs(o)
		if len(args) == 0 || o.Off {
			continue
		}
		out, err := c.ask(ctx, name, append(args, "--help"))
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() < 0 {
			continue // killed for taking too long: the start will tell
		}
		said := telling(strings.Split(out, "\n"))
		if m := unknownFlag.FindStringSubmatch(said); m != nil {
			help, _ := c.ask(ctx, name, []string{"--help"})
			return misuse("%s.args.%s: %s has no such flag%s", name, m[1], name, didYouMean(m[1], flagNames(help)))
		}
		return misuse("%s.args: %s refuses: %s", name, name, shorten(said))
	}
	return c.tryConfig(ctx)
}

// tryConfig asks the scheduler to read its configuration. It makes its plugins and
// ends, in some 0.1 s, where it is to write the configuration down; its API server
// need not be there.
func (c *Config) tryConfig(ctx context.Context) (err error) {
	o := c.Overrides[Scheduler]
	if o.Config == nil || o.Off {
		return nil
	}
	dir, err := os.MkdirTemp("", "kubedyno-scheduler-")
	if err != nil {
		return fmt.Errorf("try the configuration of %s: %w", Scheduler, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
		return fmt.Errorf("try the configuration of %s: %w", Scheduler, err)
	}
	args, err := configured(o.Config, append(overrideArgs(o), "--kubeconfig="+kubeconfig), filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	out, err := c.ask(ctx, Scheduler, append(args, "--authentication-skip-lookup", "--bind-address=127.0.0.1", "--secure-port=0", "--write-config-to="+os.DevNull))
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) || exit.ExitCode() < 0 {
		return nil // killed for taking too long: the start will tell
	}
	said := strings.ReplaceAll(shorten(telling(strings.Split(out, "\n"))), "strict decoding error: ", "")
	return misuse("%s.config: %s refuses: %s", Scheduler, Scheduler, said)
}

// nowhere is a kubeconfig of which nobody answers.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: ""}}]
current-context: none
`

// ask runs a component with args and returns what it prints.
func (c *Config) ask(ctx context.Context, name string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	path := c.Lab
	if b := c.Overrides[name].Binary; b != "" {
		path = b
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = append([]string{name}, args...)
	cmd.Env = childEnv(c.Overrides[name].Env)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// flagNames finds the flags in a help text.
func flagNames(help string) []string {
	var names []string
	for line := range strings.Lines(help) {
		for field := range strings.FieldsSeq(line) {
			if flag, ok := strings.CutPrefix(field, "--"); ok {
				flag, _, _ = strings.Cut(flag, "=")
				names = append(names, strings.Trim(flag, "'\",."))
				break
			}
			if !strings.HasPrefix(field, "-") {
				break
			}
		}
	}
	return names
}

// overrideArgs returns the arguments of an override, sorted.
func overrideArgs(o Override) []string {
	var args []string
	for flag, value := range o.Args {
		if value != nil {
			args = append(args, "--"+flag+"="+*value)
		}
	}
	slices.Sort(args)
	return args
}

// A Lab is a running lab that ends with this process. Remove it in the end.
type Lab struct {
	state    *State
	apiReady time.Duration
	cgroups  map[string][]string
	onEvent  func(Event)
	log      *slog.Logger

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	sendMu sync.Mutex
	nextID int

	exited chan *proc.ExitError
	hollow chan json.RawMessage
	ready  chan Event // the one event that ends the start
	done   chan struct{}

	mu      sync.Mutex
	waiting map[int]chan Event // replies, by command
	stopped bool               // the keeper said so, or was told
	// detached: the keeper has closed its stdout and lives on.
	detached bool
}

// Start starts a lab and returns when its API is ready and its components
// serve. ctx bounds the start only; the lab lives until Stop, or until this
// process ends.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	return launch(ctx, cfg, modeRun)
}

func launch(ctx context.Context, cfg Config, mode string) (*Lab, error) {
	begin := time.Now()
	if err := cfg.validate(ctx); err != nil {
		return nil, err
	}
	root, err := stateRoot(cfg.StateRoot)
	if err != nil {
		return nil, err
	}
	sweepQuietly(root, cfg.logger())
	state, err := newState(root, cfg, mode)
	if err != nil {
		return nil, err
	}
	l := &Lab{
		state:   state,
		onEvent: cfg.OnEvent,
		log:     cfg.logger(),
		exited:  make(chan *proc.ExitError, 16),
		hollow:  make(chan json.RawMessage, 4096),
		ready:   make(chan Event, 1),
		done:    make(chan struct{}),
		waiting: map[int]chan Event{},
	}
	if err := l.startKeeper(cfg, mode); err != nil {
		return nil, errors.Join(err, os.RemoveAll(state.Dir))
	}
	ev, err := l.awaitReady(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Remove())
	}
	l.apiReady = ev.Time.Sub(begin) // replaced below by the moment itself
	if ev.APIReady.After(begin) {
		l.apiReady = ev.APIReady.Sub(begin)
	}
	l.state.ControlPlane = ev.ControlPlane
	l.cgroups = ev.Cgroups
	return l, nil
}

func (c *Config) logger() *slog.Logger {
	if c.Log != nil {
		return c.Log
	}
	return slog.New(slog.DiscardHandler)
}

// startKeeper executes this program as the keeper and sends its configuration.
func (l *Lab) startKeeper(cfg Config, mode string) error {
	logFile, err := os.OpenFile(filepath.Join(l.state.Dir, keeperLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	defer logFile.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{KeeperName}
	cmd.Dir = l.state.Dir
	cmd.Stderr = logFile
	// A session of its own: a terminal's Ctrl-C or hangup is for us alone. We
	// tell the keeper to stop, or it sees its stdin close.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if l.stdin, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	l.cmd = cmd
	go l.read(stdout)
	timeout := cfg.StartTimeout
	if timeout == 0 {
		timeout = defaultStartTimeout
	}
	return l.send(keeperConfig{
		Mode: mode, State: *l.state, Lab: cfg.Lab,
		Overrides: cfg.Overrides, CPU: cfg.CPU, Last: cfg.Last, StartSeconds: timeout.Seconds(),
	})
}

func (l *Lab) send(v any) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	// A keeper that is gone is told by the reader, with its last words.
	if err := json.NewEncoder(l.stdin).Encode(v); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return nil
}

// read passes on the keeper's events until it ends.
func (l *Lab) read(stdout io.Reader) {
	defer close(l.done)
	defer close(l.hollow)
	defer close(l.exited)
	dec := json.NewDecoder(stdout)
	for {
		var ev Event
		if err := dec.Decode(&ev); err != nil {
			break
		}
		l.handle(ev)
	}
	_, _ = io.Copy(io.Discard, stdout) // a writer must never block on us
	l.mu.Lock()
	detached := l.detached
	l.mu.Unlock()
	if detached {
		go func() { _ = l.cmd.Wait() }() // should it end before us
		return
	}
	err := l.cmd.Wait()
	l.mu.Lock()
	stopped := l.stopped
	l.mu.Unlock()
	if stopped {
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	exit := &proc.ExitError{Component: KeeperName, Err: err, Log: proc.Tail(filepath.Join(l.state.Dir, keeperLog), 20)}
	// The kernel is ending the children now; what groups it left are ours to remove.
	l.sweepCgroups()
	l.handle(Event{Event: EventExited, Time: time.Now(), Component: KeeperName, Error: err.Error(), Log: exit.Log})
}

func (l *Lab) handle(ev Event) {
	switch ev.Event {
	case EventReady, EventFailed:
		select {
		case l.ready <- ev:
		default:
		}
		if ev.Event == EventFailed {
			l.mu.Lock()
			l.stopped = true
			l.mu.Unlock()
		}
	case EventExited:
		select {
		case l.exited <- &proc.ExitError{Component: ev.Component, Err: errors.New(ev.Error), Log: []string{lastWords(ev, l.state.Dir)}}:
		default:
			l.log.Warn("nobody listens to exits", "component", ev.Component, "error", ev.Error)
		}
	case EventHollow:
		select {
		case l.hollow <- ev.Data:
		default:
			l.log.Warn("nobody listens to hollow nodes; an event is lost")
		}
	case EventStopped:
		l.mu.Lock()
		l.stopped = true
		l.mu.Unlock()
	case EventDone:
		l.mu.Lock()
		reply := l.waiting[ev.ID]
		delete(l.waiting, ev.ID)
		l.mu.Unlock()
		if reply != nil {
			reply <- ev
		}
		return
	}
	if l.onEvent != nil {
		l.onEvent(ev)
	}
}

func (l *Lab) awaitReady(ctx context.Context) (Event, error) {
	select {
	case ev := <-l.ready:
		return ev, ev.err()
	case <-l.done:
		select {
		case ev := <-l.ready: // both at once
			return ev, ev.err()
		default:
		}
		return Event{}, fmt.Errorf("the lab's keeper died while it started: %s",
			shorten(proc.LastLine(proc.Tail(filepath.Join(l.state.Dir, keeperLog), 20))))
	case <-ctx.Done():
		return Event{}, fmt.Errorf("start of the lab: %w", context.Cause(ctx))
	}
}

// call sends a command and waits for its reply.
func (l *Lab) call(ctx context.Context, c command) (Event, error) {
	reply := make(chan Event, 1)
	l.mu.Lock()
	l.nextID++
	c.ID = l.nextID
	l.waiting[c.ID] = reply
	l.mu.Unlock()
	if err := l.send(c); err != nil {
		return Event{}, err
	}
	select {
	case ev := <-reply:
		return ev, ev.err()
	case <-l.done:
		select {
		case ev := <-reply: // its last word, and its end right behind it
			return ev, ev.err()
		default:
		}
		return Event{}, fmt.Errorf("%s: the lab's keeper has ended", c.Do)
	case <-ctx.Done():
		return Event{}, fmt.Errorf("%s: %w", c.Do, context.Cause(ctx))
	}
}

// ControlPlane describes the lab to load and collectors.
func (l *Lab) ControlPlane() *cluster.ControlPlane { return l.state.ControlPlane }

// APIReady is the time from the call of Start until /readyz said ok.
func (l *Lab) APIReady() time.Duration { return l.apiReady }

// KeeperPID is the process that owns the components; its CPU is ours.
func (l *Lab) KeeperPID() int { return l.cmd.Process.Pid }

// Exited tells of components that ended by themselves, and of the keeper. It
// is closed when the lab has ended.
func (l *Lab) Exited() <-chan *proc.ExitError { return l.exited }

// Cgroups are the folders that one of our own processes must join to keep its
// quota (proc.Config.Cgroups); none without one.
func (l *Lab) Cgroups(name string) []string { return l.cgroups[name] }

// HollowInfo is the process of the simulated nodes.
type HollowInfo struct {
	PID        int       `json:"pid"`
	Instance   string    `json:"instance"`
	MetricsURL string    `json:"metricsURL,omitempty"`
	PprofURL   string    `json:"pprofURL,omitempty"`
	LogFile    string    `json:"logFile"`
	CPU        float64   `json:"cpu,omitempty"`
	Cgroup     string    `json:"cgroup,omitempty"`
	Started    time.Time `json:"started"`
}

// StartHollow makes the keeper start the simulated nodes with a configuration
// of theirs, and returns when they listen. What they say afterwards comes
// through HollowEvents.
func (l *Lab) StartHollow(ctx context.Context, config json.RawMessage) (HollowInfo, error) {
	ev, err := l.call(ctx, command{Do: doStartHollow, Config: config})
	return hollowInfo(ev, err)
}

func hollowInfo(ev Event, err error) (HollowInfo, error) {
	var info HollowInfo
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(ev.Data, &info); err != nil {
		return info, fmt.Errorf("start hollow nodes: %w", err)
	}
	return info, nil
}

// HollowEvents are the JSON lines of the simulated nodes; closed when the lab
// has ended.
func (l *Lab) HollowEvents() <-chan json.RawMessage { return l.hollow }

// Pause freezes all components; Unpause lets them go on.
func (l *Lab) Pause(ctx context.Context) error {
	_, err := l.call(ctx, command{Do: doPause})
	return err
}

// Unpause is the contrary of Pause.
func (l *Lab) Unpause(ctx context.Context) error {
	_, err := l.call(ctx, command{Do: doUnpause})
	return err
}

// Stop ends all processes in order. The state folder, with logs and audit log
// complete, stays until Remove. When ctx ends, what still runs is killed.
func (l *Lab) Stop(ctx context.Context) error {
	_, err := l.call(ctx, command{Do: doStop})
	if err != nil && ctx.Err() != nil {
		return errors.Join(err, l.kill())
	}
	return err
}

// kill closes the keeper's stdin, upon which it ends everything at once.
func (l *Lab) kill() error {
	l.mu.Lock()
	l.stopped = true // by us: not an exit to report
	l.mu.Unlock()
	l.sendMu.Lock()
	_ = l.stdin.Close()
	l.sendMu.Unlock()
	select {
	case <-l.done:
	case <-time.After(10 * time.Second):
		// It cannot be that busy. Its children die with it.
		_ = l.cmd.Process.Kill()
		<-l.done
		l.sweepCgroups()
	}
	return nil
}

// Remove ends what is left and removes the state folder. It is safe to call
// twice, and after Stop or without.
func (l *Lab) Remove() error {
	return errors.Join(l.kill(), os.RemoveAll(l.state.Dir))
}

// childEnv is the environment of components: nothing of the user's shell that
// could change them (ETCD_*, GOGC, GODEBUG, proxies), and what was asked for.
func childEnv(extra map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for k, v := range extra {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env
}

// sweepCgroups removes the groups of our keeper, which is dead.
func (l *Lab) sweepCgroups() {
	if _, err := sweepCgroups(); err != nil {
		l.log.Warn("cgroups are left", "error", err)
	}
}

// sweepCgroups removes the groups of keepers that are dead.
func sweepCgroups() (removed []string, err error) {
	host, err := cgroup.Detect()
	if err != nil {
		return nil, fmt.Errorf("cgroups are not swept: %w", err)
	}
	removed, err = host.Sweep(proc.Alive)
	if err != nil {
		err = fmt.Errorf("some cgroups of dead keepers are left: %w", err)
	}
	return removed, err
}

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/cluster/proc"
	"github.com/kubedyno/kubedyno/cluster/slow"
)

// KeeperMain is the keeper: the process that owns a lab's children. It reads
// its configuration and commands from stdin, tells events on stdout and logs
// to stderr, as protocol.go says.
//
// It returns when the lab is down and nothing of it is left: after a stop, when
// ctx ends (orderly), or when stdin closes, which means that its owner is dead
// (at once). It is a process of its own because a component cannot notice a
// dead owner by itself, and because somebody must then clean up.
func KeeperMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	return keeperMain(ctx, stdin, stdout, stderr, freePorts)
}

func keeperMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, ports func([]string) (map[string]int, error)) error {
	// The pipes' other ends vanish with the owner. A handler, unlike ignoring
	// the signal, is not inherited by children.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(broken)

	dec := json.NewDecoder(stdin)
	var cfg keeperConfig
	if err := dec.Decode(&cfg); err != nil {
		return fmt.Errorf("read configuration from stdin: %w", err)
	}
	self, err := selfID()
	if err != nil {
		return err
	}
	k := &keeper{
		cfg:      cfg,
		log:      slog.New(slog.NewTextHandler(stderr, nil)),
		out:      &eventWriter{w: stdout},
		began:    time.Now(),
		state:    cfg.State,
		children: map[string]*proc.Process{},
		requests: make(chan request),
		ports:    ports,
	}
	k.state.Keeper = self
	return k.run(ctx, dec)
}

// A keeper is the state of KeeperMain.
type keeper struct {
	hollowIn *os.File // stdin of the simulated nodes, open as long as we live
	cfg      keeperConfig
	log      *slog.Logger
	out      *eventWriter
	began    time.Time
	spawner  *proc.Spawner
	set      *cgroup.Set // nil where none can be made
	requests chan request
	ports    func(names []string) (map[string]int, error)
	detached atomic.Bool

	mu       sync.Mutex
	state    State
	children map[string]*proc.Process
	paused   bool
	proxies  []*slow.Proxy // of ways that are longer than they are
}

// A request is a command and where its reply goes.
type request struct {
	command
	reply func(Event)
}

// eventWriter writes events until it is closed.
type eventWriter struct {
	mu     sync.Mutex
	w      io.Writer
	closed bool
}

func (e *eventWriter) emit(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	ev.Time = time.Now()
	// A failed write means that the owner is gone, which its stdin tells too.
	_ = json.NewEncoder(e.w).Encode(ev)
}

// close closes the stream, so that who reads it sees its end.
func (e *eventWriter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if f, ok := e.w.(*os.File); ok {
		_ = f.Close()
	}
}

func (k *keeper) run(ctx context.Context, dec *json.Decoder) error {
	// life ends when the owner dies: what it bounds is then cut short.
	life, die := context.WithCancel(context.Background())
	defer die()
	ownerGone := make(chan struct{})
	go k.readCommands(dec, ownerGone, die)

	k.spawner = proc.NewSpawner()
	defer k.cleanUp()

	listener, err := listenSocket(k.state.Dir)
	if err != nil {
		err = fmt.Errorf("open the lab's socket: %w", err)
		k.out.emit(Event{Event: EventFailed, Error: err.Error()})
		return err
	}
	defer listener.Close()
	go k.serve(listener)
	k.update(func(*State) {})

	starting, abort := context.WithCancelCause(life)
	defer abort(nil)
	started := make(chan error, 1)
	go func() { started <- k.start(starting, abort) }()
	awaitStart := func(why error) {
		if started != nil {
			abort(why)
			<-started
			started = nil
		}
	}

	// hasStarted takes the start's end, and says so where it failed.
	hasStarted := func(err error) bool {
		started = nil
		if err != nil {
			k.killAll()
			var m *MisuseError
			k.log.Error("the lab did not start", "error", err)
			k.out.emit(Event{Event: EventFailed, Error: explain(err, k.state.Dir), Misuse: errors.As(err, &m)})
		}
		return err == nil
	}

	var stopped bool
	for {
		select {
		case err := <-started:
			if !hasStarted(err) {
				return nil // said; the owner reports it
			}

		case r := <-k.requests:
			// Who was told that the lab is ready may be here before the start has returned.
			if started != nil && k.isReady() && !hasStarted(<-started) {
				return nil
			}
			var data any
			var err error
			switch {
			case r.Do == doStop:
				awaitStart(errStopped)
				k.stopAll(life)
				stopped = true
				k.out.emit(Event{Event: EventStopped})
			case r.Do == doDetach && k.cfg.Mode == modeUp:
				k.detached.Store(true)
				ownerGone = nil
			case stopped:
				err = errors.New("the lab is stopped")
			case started != nil:
				err = errors.New("the lab is still starting")
			case r.Do == doPause:
				err = k.pause(life)
			case r.Do == doUnpause:
				err = k.unpause(life)
			case r.Do == doStartHollow:
				data, err = k.startHollow(life, r.Config)
			default:
				err = fmt.Errorf("no command is named %q", r.Do)
			}
			r.reply(reply(r.ID, data, err))
			if r.Do == doDetach && err == nil {
				k.out.close()
			}
			if stopped && k.cfg.Mode == modeUp {
				return nil
			}

		case <-ownerGone:
			// After a stop this is how the owner says that it has what it
			// wants of the state folder.
			if !stopped {
				k.log.Warn("the owner is gone; ending everything")
			}
			awaitStart(errOwnerGone)
			return nil

		case <-ctx.Done():
			awaitStart(errStopped)
			if !stopped {
				k.stopAll(life)
				k.out.emit(Event{Event: EventStopped})
			}
			return nil
		}
	}
}

// isReady says whether the lab was told to be ready.
func (k *keeper) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.Phase == PhaseReady
}

var (
	errStopped   = errors.New("the lab was told to stop")
	errOwnerGone = errors.New("the lab's owner is gone")
)

func reply(id int, data any, err error) Event {
	ev := Event{Event: EventDone, ID: id}
	var m *MisuseError
	if err != nil {
		ev.Error, ev.Misuse = err.Error(), errors.As(err, &m)
		return ev
	}
	if data != nil {
		ev.Data, err = json.Marshal(data)
		if err != nil {
			ev.Error = err.Error()
		}
	}
	return ev
}

// readCommands passes on the owner's commands; when they end, unless we are
// detached by then, the owner is dead.
func (k *keeper) readCommands(dec *json.Decoder, gone chan<- struct{}, die func()) {
	for {
		var c command
		if err := dec.Decode(&c); err != nil {
			break
		}
		k.requests <- request{c, k.out.emit}
	}
	if !k.detached.Load() {
		die()
		close(gone)
	}
}

// serve answers on the lab's socket, one command a connection.
func (k *keeper) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var c command
			if err := json.NewDecoder(conn).Decode(&c); err != nil {
				return
			}
			done := make(chan struct{})
			k.requests <- request{c, func(ev Event) {
				_ = json.NewEncoder(conn).Encode(ev)
				close(done)
			}}
			<-done
		}()
	}
}

// update changes the state and writes it down.
func (k *keeper) update(change func(*State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.state)
	if err := k.state.write(k.state.Dir); err != nil {
		k.log.Error("the state is not written", "error", err)
	}
}

// childConfig is a child and what is made slow for it.
type childConfig struct {
	proc.Config
	SyncDelay time.Duration
}

// launch starts one child and watches it.
func (k *keeper) launch(ctx context.Context, cfg childConfig, died func(*proc.ExitError)) (*proc.Process, error) {
	begin := time.Now()
	k.out.emit(Event{Event: EventStarting, Component: cfg.Name})
	if cfg.SyncDelay > 0 {
		syncs, err := slow.NewSyncs(cfg.SyncDelay)
		if err != nil {
			return nil, err
		}
		cfg.Syncs = syncs
		go func() { // until the process has ended
			if err := syncs.Serve(context.Background()); err != nil {
				k.log.Error("syncs are not delayed", "component", cfg.Name, "error", err)
			}
		}()
	}
	p, err := k.spawner.Start(ctx, cfg.Config)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.children[cfg.Name] = p
	k.mu.Unlock()
	k.update(func(s *State) {
		s.Processes = slices.DeleteFunc(s.Processes, func(p ProcessState) bool { return p.Name == cfg.Name })
		s.Processes = append(s.Processes, ProcessState{
			Name: cfg.Name, PID: p.PID(), State: processRunning, Since: p.Started(), LogFile: cfg.LogFile,
		})
		slices.SortFunc(s.Processes, func(a, b ProcessState) int { return rank(a.Name) - rank(b.Name) })
	})
	k.out.emit(Event{Event: EventServing, Component: cfg.Name, PID: p.PID(), Seconds: time.Since(begin).Seconds()})
	go func() {
		<-p.Done()
		if p.Stopping() {
			return
		}
		exit := p.Exit()
		// Told before it is written down: a busy disk holds up the writing, and
		// the first to be told of should be the first that died, not one that
		// followed it.
		k.out.emit(Event{Event: EventExited, Component: cfg.Name, PID: p.PID(), Error: exit.Err.Error(), Log: exit.Log})
		if died != nil {
			died(exit)
		}
		k.log.Error("a component ended by itself", "component", cfg.Name, "error", exit.Err)
		k.update(func(s *State) {
			if s.Phase == PhaseReady {
				s.Phase = PhaseDegraded
			}
			for i := range s.Processes {
				if q := &s.Processes[i]; q.Name == cfg.Name && q.PID == p.PID() {
					q.State, q.Since, q.Error, q.Log = processExited, time.Now(), exit.Err.Error(), exit.Log
				}
			}
		})
	}()
	return p, nil
}

// rank orders processes by their start.
func rank(name string) int {
	if i := slices.Index(components, name); i >= 0 {
		return i
	}
	return len(components)
}

// stopAll ends the children in the reverse order of their dependence: an API
// server with open watches takes long to end, and without etcd longer.
func (k *keeper) stopAll(ctx context.Context) {
	k.update(func(s *State) { s.Phase = PhaseStopping })
	if k.isPaused() {
		if err := k.unpause(ctx); err != nil { // what stands still cannot end
			k.log.Error("thaw before the stop", "error", err)
		}
		k.update(func(s *State) { s.Phase = PhaseStopping })
	}
	for _, together := range [][]string{{Hollow, Scheduler, ControllerManager}, {APIServer}, {Etcd}} {
		var wait sync.WaitGroup
		for _, name := range together {
			k.mu.Lock()
			p := k.children[name]
			delete(k.children, name)
			k.mu.Unlock()
			if p == nil || p.Exit() != nil {
				continue
			}
			wait.Go(func() {
				begin := time.Now()
				k.out.emit(Event{Event: EventStopping, Component: name, PID: p.PID()})
				killed := p.Stop(ctx)
				k.out.emit(Event{Event: EventEnded, Component: name, PID: p.PID(), Killed: killed, Seconds: time.Since(begin).Seconds()})
			})
		}
		wait.Wait()
	}
}

// killAll ends the children at once.
func (k *keeper) killAll() {
	k.mu.Lock()
	children := k.children
	k.children = map[string]*proc.Process{}
	k.paused = false
	k.mu.Unlock()
	if k.set != nil && k.set.CanFreeze() == cgroup.FreezeV1 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.set.Thaw(ctx) // or the signal waits for the thaw
	}
	var wait sync.WaitGroup
	for _, p := range children {
		wait.Go(p.Kill)
	}
	wait.Wait()
}

// cleanUp removes everything of the lab from this machine.
func (k *keeper) cleanUp() {
	k.killAll()
	for _, p := range k.proxies {
		_ = p.Close()
	}
	k.spawner.Close()
	if k.set != nil {
		if err := k.set.Remove(); err != nil {
			k.log.Error("a cgroup is left", "error", err)
		}
	}
	// An update still under way could make a file anew, once.
	for range 3 {
		if err := os.RemoveAll(k.state.Dir); err == nil {
			break
		}
	}
}

func (k *keeper) isPaused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.paused
}

// freezeTimeout bounds the wait for processes to stand still; it takes some
// milliseconds.
const freezeTimeout = 5 * time.Second

// pause freezes everything, by the cgroup if there is one that can: one write
// then covers all threads and children at once.
func (k *keeper) pause(ctx context.Context) error {
	if k.isPaused() {
		return errors.New("the lab is paused already")
	}
	if err := k.freeze(ctx, true); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	k.mu.Lock()
	k.paused = true
	k.mu.Unlock()
	k.update(func(s *State) { s.Phase = PhasePaused })
	return nil
}

func (k *keeper) unpause(ctx context.Context) error {
	if !k.isPaused() {
		return errors.New("the lab is not paused")
	}
	if err := k.freeze(ctx, false); err != nil {
		return fmt.Errorf("unpause: %w", err)
	}
	k.mu.Lock()
	k.paused = false
	k.mu.Unlock()
	k.update(func(s *State) {
		s.Phase = PhaseReady
		for _, p := range s.Processes {
			if p.State == processExited {
				s.Phase = PhaseDegraded
			}
		}
	})
	return nil
}

func (k *keeper) freeze(ctx context.Context, on bool) error {
	if k.set != nil && k.set.CanFreeze() != "" {
		ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
		defer cancel()
		if on {
			return k.set.Freeze(ctx)
		}
		return k.set.Thaw(ctx)
	}
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.children {
		if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}

// hollowTimeout is for a process that has nothing to wait for before it says
// that it listens.
const hollowTimeout = 30 * time.Second

// startHollow starts the simulated nodes: ourselves under another name. They
// get their configuration on stdin, which stays open as long as we live, and
// say on stdout, in JSON lines, first that they listen.
func (k *keeper) startHollow(ctx context.Context, config json.RawMessage) (HollowInfo, error) {
	var info HollowInfo
	k.mu.Lock()
	running := k.children[Hollow]
	k.mu.Unlock()
	if running != nil && running.Exit() == nil {
		return info, fmt.Errorf("hollow nodes run already (pid %d)", running.PID())
	}
	if len(config) == 0 {
		return info, misuse("hollow nodes: no configuration")
	}
	dirs, stat, err := k.join(Hollow)
	if err != nil {
		return info, err
	}
	in, out, theirs, err := pipes()
	if err != nil {
		return info, fmt.Errorf("start hollow nodes: %w", err)
	}
	defer theirs()
	o := k.cfg.Overrides[Hollow]
	logFile := filepath.Join(k.state.Dir, "logs", Hollow+".log")
	listening := make(chan Event, 1)
	p, err := k.launch(ctx, childConfig{Config: proc.Config{
		Name:  Hollow,
		Path:  "/proc/self/exe",
		Argv0: Hollow,
		Env:   childEnv(o.Env),
		Dir:   k.state.Dir, LogFile: logFile,
		Stdin: in.theirs, Stdout: out.theirs,
		Cgroups: dirs,
		Grace:   3 * time.Second,
	}}, nil)
	if err != nil {
		in.ours.Close()
		out.ours.Close()
		return info, err
	}
	theirs()
	// Closed by nobody: an end of file would tell them that we are dead, and
	// they end by signal. The kernel closes it with us. Held here, or the
	// garbage collector would close it for us.
	k.mu.Lock()
	k.hollowIn = in.ours
	k.mu.Unlock()
	if _, err := in.ours.Write(append(compact(config), '\n')); err != nil {
		k.log.Error("hollow nodes took no configuration", "error", err)
	}
	go k.forward(out.ours, listening)

	info = HollowInfo{
		PID: p.PID(), Instance: p.Instance(), LogFile: logFile,
		CPU: o.CPU, Cgroup: stat, Started: p.Started(),
	}
	select {
	case ev := <-listening:
		var said struct{ MetricsURL, PprofURL string }
		if err := json.Unmarshal(ev.Data, &said); err != nil {
			p.Kill()
			return info, fmt.Errorf("hollow nodes said %q: %w", ev.Data, err)
		}
		info.MetricsURL, info.PprofURL = said.MetricsURL, said.PprofURL
	case <-p.Done():
		return info, errors.New(explain(p.Exit(), k.state.Dir))
	case <-time.After(hollowTimeout):
		p.Kill()
		return info, fmt.Errorf("hollow nodes did not listen after %v", hollowTimeout)
	case <-ctx.Done():
		return info, errOwnerGone
	}
	k.update(func(s *State) { s.Hollow = &info })
	return info, nil
}

// forward passes on the hollow nodes' lines; the first that says "listening"
// goes to listening too.
func (k *keeper) forward(r io.ReadCloser, listening chan<- Event) {
	defer r.Close()
	dec := json.NewDecoder(r)
	for {
		var line json.RawMessage
		if err := dec.Decode(&line); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				k.log.Error("hollow nodes do not speak JSON", "error", err)
			}
			_, _ = io.Copy(io.Discard, r) // or they would block on a full pipe
			return
		}
		var head struct{ Event string }
		_ = json.Unmarshal(line, &head)
		ev := Event{Event: EventHollow, Component: Hollow, Data: line}
		k.out.emit(ev)
		if head.Event == "listening" {
			select {
			case listening <- ev:
			default:
			}
		}
	}
}

// A pipe has an end of ours and one of the child's.
type pipe struct{ ours, theirs *os.File }

// pipes makes a child's stdin and stdout; theirs closes the child's ends.
func pipes() (in, out pipe, theirs func(), err error) {
	if in.theirs, in.ours, err = os.Pipe(); err != nil {
		return in, out, nil, err
	}
	if out.ours, out.theirs, err = os.Pipe(); err != nil {
		in.theirs.Close()
		in.ours.Close()
		return in, out, nil, err
	}
	return in, out, func() { in.theirs.Close(); out.theirs.Close() }, nil
}

func compact(raw json.RawMessage) []byte {
	b, err := json.Marshal(raw) // one line, whatever it was
	if err != nil {
		return raw
	}
	return b
}

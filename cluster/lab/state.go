package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/proc"
)

// Files of a state folder.
const (
	stateFile  = "state.json"
	keeperLog  = "keeper.log"
	socketFile = "keeper.sock"
	newPrefix  = ".new-"
)

// A ProcID names one process for good.
type ProcID struct {
	PID   int    `json:"pid"`
	Ticks uint64 `json:"ticks"` // start time, clock ticks since boot
}

func (p ProcID) alive() bool { return proc.Alive(p.PID, p.Ticks) }

func selfID() (ProcID, error) {
	ticks, err := proc.StartTime(os.Getpid())
	return ProcID{os.Getpid(), ticks}, err
}

// Phase is what a lab is doing.
type Phase string

// Phases of a lab.
const (
	PhaseStarting Phase = "starting"
	PhaseReady    Phase = "ready"
	PhaseDegraded Phase = "degraded" // a component ended by itself
	PhasePaused   Phase = "paused"
	PhaseStopping Phase = "stopping"
	PhaseDead     Phase = "dead" // its keeper is gone
)

// State is what a lab's state folder says of it. The keeper keeps it true.
type State struct {
	Schema  int       `json:"schema"`
	Name    string    `json:"name"`
	Mode    string    `json:"mode"` // "run": belongs to a command, "up": stands by itself
	Profile string    `json:"profile"`
	Dir     string    `json:"dir"`
	Phase   Phase     `json:"phase"`
	Created time.Time `json:"created"`
	Owner   ProcID    `json:"owner"`
	Keeper  ProcID    `json:"keeper,omitzero"`
	// Cgroups are the folders that must be gone when the lab is.
	Cgroups []string `json:"cgroups,omitempty"`
	// Freezer is by what the lab is paused: a cgroup version or a signal.
	Freezer      string                `json:"freezer,omitempty"`
	APIReady     float64               `json:"apiReadySeconds,omitempty"`
	ControlPlane *cluster.ControlPlane `json:"controlPlane,omitempty"`
	Processes    []ProcessState        `json:"processes,omitempty"`
	Hollow       *HollowInfo           `json:"hollow,omitempty"`
}

// ProcessState is one child of the keeper.
type ProcessState struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	State   string    `json:"state"` // running, exited, or gone with the keeper
	Since   time.Time `json:"since"`
	Error   string    `json:"error,omitempty"`
	Log     []string  `json:"log,omitempty"` // last lines, once it exited
	LogFile string    `json:"logFile"`
}

// States of a process.
const (
	processRunning = "running"
	processExited  = "exited"
	processGone    = "gone" // with its keeper
)

// DefaultStateRoot is the folder that holds the state folders of labs:
// $KUBEDYNO_STATE, else below $XDG_STATE_HOME or ~/.local/state.
func DefaultStateRoot() (string, error) {
	if dir := os.Getenv("KUBEDYNO_STATE"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kubedyno", "labs"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for labs: %w; set KUBEDYNO_STATE to one", err)
	}
	return filepath.Join(home, ".local", "state", "kubedyno", "labs"), nil
}

// stateRoot makes the folder of labs.
func stateRoot(dir string) (string, error) {
	var err error
	if dir == "" {
		dir, err = DefaultStateRoot()
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", stateFolderError(dir, err)
	}
	return dir, nil
}

func stateFolderError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk that holds the folder for labs, %s, is full: free some space, or set KUBEDYNO_STATE to a folder on another disk", dir)
	}
	return fmt.Errorf("cannot write the folder for labs (%w): set KUBEDYNO_STATE to a folder that you can write", err)
}

// needFree is what a lab needs of its disk to live at all: etcd preallocates
// two write-ahead logs of 64 MB, and logs and the audit log grow.
const needFree = 256 << 20

// freeBytes is how much of the disk that holds a folder is free to write.
func freeBytes(dir string) (uint64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, err
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}

// newState makes a lab's state folder. It appears whole, under its name, or
// not at all: whoever sweeps must never meet one without an owner.
func newState(root string, cfg Config, mode string) (*State, error) {
	if free, err := freeBytes(root); err == nil && free < needFree {
		return nil, fmt.Errorf("only %d MB are free where labs are kept, %s, and a lab needs %d: free some space, or set KUBEDYNO_STATE to a folder on another disk", free>>20, root, needFree>>20)
	}
	owner, err := selfID()
	if err != nil {
		return nil, fmt.Errorf("make a lab's state folder: %w", err)
	}
	s := &State{
		Schema:  1,
		Name:    cfg.Name,
		Mode:    mode,
		Profile: cmp.Or(cfg.Profile, DefaultProfile),
		Phase:   PhaseStarting,
		Created: time.Now(),
		Owner:   owner,
	}
	if s.Name == "" {
		var b [3]byte
		_, _ = rand.Read(b[:]) // never fails
		s.Name = "run-" + hex.EncodeToString(b[:])
	}
	s.Dir = filepath.Join(root, s.Name)
	tmp, err := os.MkdirTemp(root, newPrefix)
	if err != nil {
		return nil, stateFolderError(root, err)
	}
	defer os.RemoveAll(tmp) // nothing is left of it after the rename
	if err := s.write(tmp); err != nil {
		return nil, stateFolderError(root, err)
	}
	for _, sub := range []string{"logs", "kubeconfig"} {
		if err := os.Mkdir(filepath.Join(tmp, sub), 0o700); err != nil {
			return nil, stateFolderError(root, err)
		}
	}
	if old, err := readState(s.Dir); err == nil {
		if old.Phase != PhaseDead {
			return nil, misuse("a lab named %s exists already (%s): `kubedyno lab down %s`, or give another --name", s.Name, old.Phase, s.Name)
		}
		if err := os.RemoveAll(s.Dir); err != nil {
			return nil, stateFolderError(root, err)
		}
	}
	if err := os.Rename(tmp, s.Dir); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
			return nil, misuse("a lab named %s exists already: give another --name", s.Name)
		}
		return nil, stateFolderError(root, err)
	}
	return s, nil
}

// write replaces the state file in dir.
func (s *State) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, stateFile+".tmp")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stateFile))
}

// readState reads a state folder and looks whether its processes still live.
func readState(dir string) (*State, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, stateFile), err)
	}
	s.Dir = dir // it may have been moved
	starting := s.Phase == PhaseStarting && s.Owner.alive()
	if !s.Keeper.alive() && !starting {
		s.Phase = PhaseDead
		for i := range s.Processes {
			if s.Processes[i].State == processRunning {
				s.Processes[i].State = processGone
			}
		}
	}
	return &s, nil
}

// Sweep removes what dead keepers and owners left, and returns the folders that
// it removed: cgroups, and the state of labs, with the logs of those that stood
// by themselves. Labs that live stay. An empty root means DefaultStateRoot.
func Sweep(root string) (removed []string, err error) {
	if root, err = existingRoot(root); err != nil {
		return nil, err
	}
	return sweep(root, true)
}

// sweepQuietly is Sweep beside other work. The folder of a lab that stood by
// itself stays until Down, for its logs.
func sweepQuietly(root string, log *slog.Logger) {
	removed, err := sweep(root, false)
	if err != nil {
		log.Warn("something is left of dead labs", "error", err)
	}
	if len(removed) > 0 {
		log.Info("removed what dead labs left", "folders", removed)
	}
}

func sweep(root string, logsToo bool) (removed []string, err error) {
	removed, err = sweepCgroups()
	errs := []error{err}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("look for dead labs: %w", err))
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		s, err := readState(dir)
		switch {
		case err == nil && s.Phase == PhaseDead && !s.Owner.alive() && (logsToo || s.Mode == modeRun || s.Keeper.PID == 0):
		case err != nil && strings.HasPrefix(e.Name(), newPrefix) && olderThan(e, time.Minute):
		default:
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the folder of a dead lab: %w", err))
			continue
		}
		removed = append(removed, dir)
	}
	return removed, errors.Join(errs...)
}

func olderThan(e fs.DirEntry, age time.Duration) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > age
}

// Up starts a lab that stands by itself, until Down. It returns when the lab
// is ready. The default name is "lab".
func Up(ctx context.Context, cfg Config) (*State, error) {
	if cfg.Name == "" {
		cfg.Name = "lab"
	}
	l, err := launch(ctx, cfg, modeUp)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.detached = true // the end of its stdout comes right behind the reply
	l.mu.Unlock()
	if _, err := l.call(ctx, command{Do: doDetach}); err != nil {
		// Detached or not, it must end: by what ends a lab that stands by itself.
		if s, stateErr := readState(l.state.Dir); stateErr == nil {
			return nil, errors.Join(err, s.Down(context.WithoutCancel(ctx)))
		}
		return nil, errors.Join(err, l.Remove())
	}
	_ = l.stdin.Close()
	<-l.done // stdout has closed; the keeper lives on
	return readState(l.state.Dir)
}

// List returns all labs, by name, those of commands and dead ones included. An
// empty root means DefaultStateRoot.
func List(root string) ([]*State, error) {
	root, err := existingRoot(root)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var labs []*State
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if s, err := readState(filepath.Join(root, e.Name())); err == nil {
			labs = append(labs, s)
		}
	}
	slices.SortFunc(labs, func(a, b *State) int { return cmp.Compare(a.Name, b.Name) })
	return labs, nil
}

func existingRoot(root string) (string, error) {
	if root != "" {
		return filepath.Abs(root)
	}
	return DefaultStateRoot()
}

// Open returns the lab of that name. With no name it returns the only lab that
// stands by itself.
func Open(root, name string) (*State, error) {
	labs, err := List(root)
	if err != nil {
		return nil, err
	}
	var names []string
	var up []*State
	for _, s := range labs {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
		if s.Mode == modeUp {
			up = append(up, s)
		}
	}
	switch {
	case name == "" && len(up) == 1:
		return up[0], nil
	case name == "" && len(up) > 1:
		return nil, misuse("there are %d labs; name one of: %s", len(up), strings.Join(names, ", "))
	case len(names) == 0:
		return nil, misuse("there is no lab; `kubedyno lab up` starts one")
	case name == "":
		return nil, misuse("no lab stands by itself; `kubedyno lab up` starts one")
	}
	return nil, misuse("there is no lab named %s%s", name, didYouMean(name, names))
}

// Down stops a lab and removes everything of it, also of one whose keeper is
// dead.
func Down(ctx context.Context, root, name string) error {
	s, err := Open(root, name)
	if err != nil {
		return err
	}
	return s.Down(ctx)
}

// OfRunningCommand says whether the lab belongs to a command that still runs,
// which will end it.
func (s *State) OfRunningCommand() bool { return s.Mode == modeRun && s.Owner.alive() }

// Down stops the lab and removes everything of it.
func (s *State) Down(ctx context.Context) error {
	if s.OfRunningCommand() {
		return misuse("lab %s belongs to a command that is running (pid %d): end that", s.Name, s.Owner.PID)
	}
	if s.Keeper.alive() {
		_, err := s.call(ctx, command{Do: doStop})
		if ctx.Err() != nil {
			return fmt.Errorf("stop lab %s: %w", s.Name, context.Cause(ctx))
		}
		if err != nil { // a keeper that does not listen still has a signal handler
			_ = syscall.Kill(s.Keeper.PID, syscall.SIGTERM)
		}
		if !s.awaitKeeper(ctx, 20*time.Second) {
			_ = syscall.Kill(s.Keeper.PID, syscall.SIGKILL)
			s.awaitKeeper(ctx, 5*time.Second)
		}
	}
	_, _ = sweepCgroups() // of dead keepers, this one's among them
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("remove lab %s: %w", s.Name, err)
	}
	return nil
}

func (s *State) awaitKeeper(ctx context.Context, most time.Duration) bool {
	deadline := time.Now().Add(most)
	for s.Keeper.alive() {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// Pause freezes all processes of the lab.
func (s *State) Pause(ctx context.Context) error {
	_, err := s.call(ctx, command{Do: doPause})
	return err
}

// Unpause lets them go on.
func (s *State) Unpause(ctx context.Context) error {
	_, err := s.call(ctx, command{Do: doUnpause})
	return err
}

// StartHollow starts simulated nodes; see Lab.StartHollow. What they say later
// is in their log.
func (s *State) StartHollow(ctx context.Context, config json.RawMessage) (HollowInfo, error) {
	return hollowInfo(s.call(ctx, command{Do: doStartHollow, Config: config}))
}

// call sends one command through the lab's socket.
func (s *State) call(ctx context.Context, c command) (Event, error) {
	fail := func(err error) (Event, error) {
		return Event{}, fmt.Errorf("%s lab %s: %w", c.Do, s.Name, err)
	}
	if !s.Keeper.alive() {
		return fail(fmt.Errorf("its keeper (pid %d) is dead; `kubedyno lab down %s` removes what is left", s.Keeper.PID, s.Name))
	}
	conn, err := dialSocket(ctx, s.Dir)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return fail(err)
	}
	var ev Event
	if err := json.NewDecoder(conn).Decode(&ev); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	if err := ev.err(); err != nil {
		return fail(err)
	}
	return ev, nil
}

// A socket's path may have 108 bytes at most, and state folders can be deep:
// an open folder has a short name below /proc/self/fd.
func shortDir(dir string) (short string, f *os.File, err error) {
	f, err = os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())), f, nil
}

func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	short, f, err := shortDir(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", short+"/"+socketFile)
}

func listenSocket(dir string) (net.Listener, error) {
	short, f, err := shortDir(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.Listen("unix", short+"/"+socketFile)
	if err != nil {
		return nil, err
	}
	// By that short name it could not be found again; the folder goes as a whole.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

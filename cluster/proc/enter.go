package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/cluster/slow"
)

// EnterName is the argv[0] under which a program that uses this package must
// call EnterMain.
const EnterName = "kubedyno-enter"

// self is executed for the helper. The kernel resolves it in the new process,
// to this very program, even if its file was replaced meanwhile.
const self = "/proc/self/exe"

// Terms are what holds for a process from its first instruction on.
type Terms struct {
	// Cgroups are folders that it joins.
	Cgroups []string `json:"cgroups,omitempty"`
	// Files is how many files it may have open; 0 leaves the limit alone.
	Files uint64 `json:"files,omitempty"`
	// Syncs, if not nil, delays its syncs.
	Syncs *slow.Syncs `json:"-"`
	Held  bool        `json:"held,omitempty"` // Syncs' handle is file 3
}

// Enter makes a command that is not started yet join cgroups before it becomes
// its program. Joining from outside, after the start, would let it run some
// milliseconds unlimited, and leave behind what it forked by then; the clone
// flag that needs no helper exists for cgroup v2 only. Without cgroups it
// leaves the command alone.
func Enter(cmd *exec.Cmd, cgroups []string) error { return EnterOn(cmd, Terms{Cgroups: cgroups}) }

// EnterOn is Enter with all that can hold for a process. Without any of it, it
// leaves the command alone.
func EnterOn(cmd *exec.Cmd, t Terms) error {
	if len(t.Cgroups) == 0 && t.Files == 0 && t.Syncs == nil {
		return nil
	}
	// The program is looked at here, where the error can name it: the helper
	// could only say so in the child's log.
	if err := executable(cmd.Path); err != nil {
		return err
	}
	if t.Syncs != nil {
		if len(cmd.ExtraFiles) > 0 {
			return fmt.Errorf("%s: its file 3 is taken", cmd.Path)
		}
		cmd.ExtraFiles, t.Held = []*os.File{t.Syncs.Handle}, true
	}
	terms, err := json.Marshal(t)
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args = self, append([]string{EnterName, string(terms), cmd.Path}, cmd.Args...)
	return nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.EACCES}
	}
	return nil
}

// The parent-death signal belongs to a thread, the one that the kernel made the
// process with, and survives an exec by that thread only. The main goroutine
// stays on it if it is bound to it this early; later it may have moved.
func init() {
	if filepath.Base(os.Args[0]) == EnterName {
		runtime.LockOSThread()
	}
}

// EnterMain is the helper: it takes the terms upon itself and becomes the
// component. It returns only if that fails. The parent-death signal survives the
// exec.
func EnterMain(args []string) error {
	var t Terms
	if len(args) < 3 || json.Unmarshal([]byte(args[0]), &t) != nil {
		return fmt.Errorf("usage: %s TERMS PATH ARGV0 [ARGUMENT…]", EnterName)
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	for _, dir := range t.Cgroups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	if t.Held {
		if err := slow.Hold(os.NewFile(3, "held")); err != nil {
			return err
		}
	}
	if t.Files > 0 {
		limit := unix.Rlimit{Cur: t.Files, Max: t.Files}
		// Through the system call itself: the Go runtime would put the limit
		// that it found at its start back before the exec.
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			return fmt.Errorf("limit open files to %d: %w", t.Files, err)
		}
	}
	path, argv := args[1], args[2:]
	if err := syscall.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}

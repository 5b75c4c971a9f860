package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// EnterName is the argv[0] under which a program that uses this package must
// call EnterMain.
const EnterName = "kubedyno-enter"

// self is executed for the helper. The kernel resolves it in the new process,
// to this very program, even if its file was replaced meanwhile.
const self = "/proc/self/exe"

// Enter makes a command that is not started yet join cgroups before it becomes
// its program. Joining from outside, after the start, would let it run some
// milliseconds unlimited, and leave behind what it forked by then; the clone
// flag that needs no helper exists for cgroup v2 only. Without cgroups it
// leaves the command alone.
func Enter(cmd *exec.Cmd, cgroups []string) error {
	if len(cgroups) == 0 {
		return nil
	}
	// The program is looked at here, where the error can name it: the helper
	// could only say so in the child's log.
	if err := executable(cmd.Path); err != nil {
		return err
	}
	argv := []string{EnterName, strconv.Itoa(len(cgroups))}
	argv = append(argv, cgroups...)
	argv = append(argv, cmd.Path)
	cmd.Path, cmd.Args = self, append(argv, cmd.Args...)
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

// EnterMain is the helper: it joins the cgroups and becomes the component. It
// returns only if that fails. The parent-death signal survives the exec.
func EnterMain(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: %s N CGROUP… PATH ARGV0 [ARGUMENT…]", EnterName)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 || len(args) < n+3 {
		return fmt.Errorf("usage: %s N CGROUP… PATH ARGV0 [ARGUMENT…]", EnterName)
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	for _, dir := range args[1 : n+1] {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	path, argv := args[n+1], args[n+2:]
	if err := syscall.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}

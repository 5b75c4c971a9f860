package slow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Syncs delays fsync and fdatasync of a process that is not started yet.
type Syncs struct {
	// Handle is for the process: it calls Hold with it before it becomes its
	// program. Close it here once the process has started.
	Handle *os.File

	ours  *os.File
	delay time.Duration
}

// NewSyncs prepares the delay of a process's syncs.
func NewSyncs(delay time.Duration) (*Syncs, error) {
	if err := CanDelaySyncs(); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("delay syncs: %w", err)
	}
	return &Syncs{ours: os.NewFile(uintptr(pair[0]), "syncs"), Handle: os.NewFile(uintptr(pair[1]), "held"), delay: delay}, nil
}

// CanDelaySyncs says why syncs cannot be delayed here.
func CanDelaySyncs() error {
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return fmt.Errorf("delay syncs: this kernel does not tell of a process's system calls (seccomp user notification, Linux 5.5 and later): %w", e)
	}
	return nil
}

// Hold makes the kernel ask before each sync of the calling thread and of the
// program that it becomes. The thread must not be left before that: see
// runtime.LockOSThread. handle is closed.
func Hold(handle *os.File) error {
	defer handle.Close()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Who gains no privileges needs none to be filtered.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("delay syncs: %w", err)
	}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&filter)))
	if e != 0 {
		return fmt.Errorf("delay syncs: filter system calls: %w", e)
	}
	defer unix.Close(int(fd))
	if err := unix.Sendmsg(int(handle.Fd()), []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("delay syncs: hand over: %w", err)
	}
	return nil
}

// notification and answer are the kernel's struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	_          [64]byte // the call and its arguments
}

type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// Serve lets each sync go after the delay, until the process has ended or ctx
// ends. From then on nobody lets a sync go: whoever ends Serve ends the process.
func (s *Syncs) Serve(ctx context.Context) error {
	defer s.ours.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(s.ours.Fd()), make([]byte, 1), oob, 0)
	if err != nil {
		return fmt.Errorf("delay syncs: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return errors.New("delay syncs: the process ended before it could be held")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return fmt.Errorf("delay syncs: %w", err)
	}
	unix.CloseOnExec(fds[0])
	defer unix.Close(fds[0])
	for ctx.Err() == nil {
		ready := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, pollMilliseconds); err != nil && err != unix.EINTR {
			return fmt.Errorf("delay syncs: %w", err)
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 { // nobody is left to be held
				return nil
			}
			continue
		}
		var call notification
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call)))
		if e == unix.EINTR || e == unix.ENOENT { // it was killed meanwhile
			continue
		}
		if e != 0 {
			return fmt.Errorf("delay syncs: %w", e)
		}
		time.AfterFunc(s.delay, func() {
			let := answer{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			// An error means that the process is gone.
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&let)))
		})
	}
	return nil
}

// pollMilliseconds bounds how long the end of a context goes unseen.
const pollMilliseconds = 200

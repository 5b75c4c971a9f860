package blockio

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tracefsSource reads the text of a trace instance of its own.
//
// The file system is mounted nowhere: fsmount(2) gives a descriptor to it that
// nobody else can see, and that is gone with the process. The instance is the
// kernel's and outlives a kill, so that its name says whose it was, and whoever
// comes next removes it. Other tracing is not touched.
type tracefsSource struct {
	root    int // of tracefs
	name    string
	pipe    int
	buf     []byte
	tail    []byte // of a line that is not complete
	match   *matcher
	missing int64 // lines that the ring lost
	reason  string
}

const instancePrefix = "kubedyno-blockio-"

var (
	blockEvents = []string{"block_io_start", "block_rq_issue", "block_rq_complete", "block_rq_merge", "block_bio_frontmerge"}
	instances   atomic.Int64
)

func openTracefs(syncs bool) (_ source, err error) {
	s := &tracefsSource{root: -1, pipe: -1, buf: make([]byte, 256<<10), match: newMatcher()}
	s.match.process, s.match.comm = processOf, commOf
	if s.root, err = mountTracefs(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	_ = removeStale(s.root) // whoever wants to know asks Sweep
	s.name = fmt.Sprintf("instances/%s%d-%d-%d", instancePrefix, os.Getpid(), startOf(os.Getpid()), instances.Add(1))
	if err := unix.Mkdirat(s.root, s.name, 0o700); err != nil {
		s.name = ""
		return nil, fmt.Errorf("make a trace instance: %w", err)
	}
	for _, set := range [][2]string{
		{"trace_clock", "mono"},
		{"options/record-tgid", "1"}, // events name the thread only
		{"options/overwrite", "1"},
		{"buffer_size_kb", "2048"}, // a CPU, about 25,000 events
	} {
		if err := s.write(set[0], set[1]); err != nil {
			return nil, err
		}
	}
	if s.pipe, err = unix.Openat(s.root, s.name+"/trace_pipe", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open the trace instance's trace_pipe: %w", err)
	}
	asked := calls[:]
	if !syncs {
		asked = nil
	}
	for _, call := range asked {
		for _, event := range []string{"sys_exit_" + call, "sys_enter_" + call} {
			if err := s.write("events/syscalls/"+event+"/enable", "1"); err != nil {
				s.reason = err.Error()
			}
		}
	}
	for _, event := range blockEvents {
		if err := s.write("events/block/"+event+"/enable", "1"); err != nil {
			if errors.Is(err, fs.ErrNotExist) && event == "block_io_start" {
				err = fmt.Errorf("the kernel is older than Linux 6.5, which has no tracepoint block_io_start: %w", err)
			}
			return nil, err
		}
	}
	return s, nil
}

// mountTracefs is a descriptor of tracefs that is mounted nowhere.
func mountTracefs() (int, error) {
	conf, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(conf)
	if err := unix.FsconfigCreate(conf); err != nil {
		return -1, fmt.Errorf("open tracefs: %w", err)
	}
	root, err := unix.Fsmount(conf, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open tracefs: %w", err)
	}
	return root, nil
}

// Sweep removes trace instances that killed processes of ours left in the kernel,
// and returns their names. Where tracefs may not be opened, there are none of ours.
func Sweep() (removed []string) {
	root, err := mountTracefs()
	if err != nil {
		return nil
	}
	defer unix.Close(root)
	return removeStale(root)
}

// removeStale removes instances whose process is gone. One that is in use,
// by a process that we cannot see, is busy and stays.
func removeStale(root int) (removed []string) {
	for _, name := range instanceNames(root) {
		var pid, start, n int64
		if _, err := fmt.Sscanf(name, instancePrefix+"%d-%d-%d", &pid, &start, &n); err != nil {
			continue
		}
		if startOf(int(pid)) != start {
			if unix.Unlinkat(root, "instances/"+name, unix.AT_REMOVEDIR) == nil {
				removed = append(removed, name)
			}
		}
	}
	return removed
}

func instanceNames(root int) []string {
	fd, err := unix.Openat(root, "instances", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), "instances")
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(s string) bool { return !strings.HasPrefix(s, instancePrefix) })
	slices.Sort(names)
	return names
}

func (s *tracefsSource) write(name, value string) error {
	fd, err := unix.Openat(s.root, s.name+"/"+name, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(value))
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("write %s of a trace instance: %w", name, err)
	}
	return nil
}

func (s *tracefsSource) note() string    { return "tracefs: queue and device times to 1 µs" }
func (s *tracefsSource) noSyncs() string { return s.reason }
func (s *tracefsSource) lost() int64     { return s.missing + s.match.skipped }

// drain calls f with each event until the deadline, or until ctx ends.
func (s *tracefsSource) drain(f func(*event)) error {
	for {
		n, err := unix.Read(s.pipe, s.buf)
		switch {
		case n > 0:
			s.lines(s.buf[:n], f)
		case err == nil || errors.Is(err, unix.EAGAIN):
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("read the trace instance: %w", err)
		}
	}
}

func (s *tracefsSource) lines(b []byte, f func(*event)) {
	for {
		head, rest, found := bytes.Cut(b, []byte{'\n'})
		if !found {
			s.tail = append(s.tail, head...)
			return
		}
		text := string(head)
		if len(s.tail) > 0 {
			text = string(s.tail) + text
			s.tail = s.tail[:0]
		}
		b = rest
		switch l, ok := parseLine(text); {
		case !ok:
			s.match.skipped++
		case l.lost != 0:
			s.missing += max(l.lost, 1)
		default:
			s.match.add(l, f)
		}
	}
}

func (s *tracefsSource) finish(f func(*event)) error {
	if err := s.write("events/enable", "0"); err != nil {
		return err
	}
	if err := s.drain(f); err != nil {
		return err
	}
	s.match.rest(f)
	return nil
}

func (s *tracefsSource) close() {
	if s.pipe >= 0 {
		unix.Close(s.pipe)
	}
	if s.name != "" {
		_ = unix.Unlinkat(s.root, s.name, unix.AT_REMOVEDIR)
	}
	if s.root >= 0 {
		unix.Close(s.root)
	}
}

// startOf is when a process started, in ticks since boot; 0 where it is gone.
func startOf(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseInt(f[19], 10, 64)
	return n
}

// processOf is the process of a thread, or the thread's own number where it
// is gone.
func processOf(tid int32) int32 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid
	}
	_, rest, _ := strings.Cut(string(b), "\nTgid:")
	group, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(group), 10, 32)
	if err != nil {
		return tid
	}
	return int32(n)
}

// commOf is a thread's command; empty where it is gone.
func commOf(tid int32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSuffix(string(b), "\n"), "\uFFFD")
}

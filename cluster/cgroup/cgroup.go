// Package cgroup limits the CPU of groups of processes and freezes them, and tells
// which limits hold a process, with cgroup v1, v2, or both mounted side by side as on
// a hybrid system.
//
// Groups are folders, so they outlive whoever made them. A Set's folders carry
// the pid and start time of their owner: Sweep finds those whose owner is dead.
// Start with Detect, then Host.NewSet, then Set.Join.
package cgroup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is what this machine offers us: the folders below which we may try to
// make groups, nearest first, empty where a hierarchy is not mounted.
type Host struct {
	cpu1, freezer1 []string // v1 controllers
	unified        []string // v2
	tops           []string // mount points of all hierarchies
	outside        []string // those of which another part than ours is mounted
	mkdir          func(string) error
}

// Detect reads where cgroup hierarchies are mounted and where we are in them.
func Detect() (*Host, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	return parse(string(mounts), string(own)), nil
}

// parse understands /proc/self/mountinfo and /proc/self/cgroup.
func parse(mountinfo, own string) *Host {
	at := map[string]string{} // controller, or "" for v2 → our path in it
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				at[c] = parts[2]
			}
		}
	}
	h := &Host{mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) }}
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /root /mount/point options… - fstype source superoptions
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		root, point := f[3], f[4]
		if (g[0] == "cgroup" || g[0] == "cgroup2") && !slices.Contains(h.tops, point) {
			h.tops = append(h.tops, point)
		}
		group := func(controller string) []string {
			dirs, inside := places(root, point, at[controller])
			if !inside {
				h.outside = append(h.outside, point)
			}
			return dirs
		}
		switch options := strings.Split(g[2], ","); {
		case g[0] == "cgroup2" && h.unified == nil:
			h.unified = group("")
		case g[0] == "cgroup" && slices.Contains(options, "cpu") && h.cpu1 == nil:
			h.cpu1 = group("cpu")
		case g[0] == "cgroup" && slices.Contains(options, "freezer") && h.freezer1 == nil:
			h.freezer1 = group("freezer")
		}
	}
	return h
}

// places lists our own group's folder and its parents up to the mount point.
// Nearest first: a limit on us, such as a CI job's, should hold for children.
func places(root, point, own string) (dirs []string, inside bool) {
	rel, inside := strings.CutPrefix(own, strings.TrimSuffix(root, "/"))
	if inside = inside && !strings.HasPrefix(rel, "/.."); !inside {
		rel = ""
	}
	for dir := filepath.Join(point, rel); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == point || len(dir) <= len(point) {
			return dirs, inside
		}
	}
}

// CPU lists the folders whose CPU quotas may hold a process, nearest first: its own
// group's, where the cpu controller is mounted, and those above. mountinfo is
// /proc/self/mountinfo and own /proc/PID/cgroup. None are listed where its group lies
// outside of what is mounted here, as from within a container.
func CPU(mountinfo, own string) []string {
	h := parse(mountinfo, own)
	dirs := h.cpu1
	if dirs == nil {
		dirs = h.unified
	}
	if len(dirs) == 0 || slices.Contains(h.outside, dirs[0]) {
		return nil
	}
	return dirs
}

// Quota is the CPU quota of the group in dir, in cores; ok is false where it has
// none. read is how its files are read.
func Quota(dir string, read func(string) ([]byte, error)) (cores float64, ok bool) {
	var quota, per string
	if b, err := read(filepath.Join(dir, "cpu.cfs_quota_us")); err == nil {
		quota = strings.TrimSpace(string(b))
		b, err := read(filepath.Join(dir, "cpu.cfs_period_us"))
		if err != nil {
			return 0, false
		}
		per = strings.TrimSpace(string(b))
	} else if b, err := read(filepath.Join(dir, "cpu.max")); err == nil {
		quota, per, _ = strings.Cut(strings.TrimSpace(string(b)), " ")
	}
	q, err1 := strconv.ParseInt(quota, 10, 64) // v1 has -1 for none, v2 "max"
	p, err2 := strconv.ParseInt(per, 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, false
	}
	return float64(q) / float64(p), true
}

// prefix marks our folders.
const prefix = "kubedyno-"

// ours matches a Set's folder: prefix, a name, the owner's pid and start time.
var ours = regexp.MustCompile(`^kubedyno-.*-(\d+)-(\d+)$`)

// A Set is the groups of one owner. Its methods are not safe for concurrent use.
type Set struct {
	host *Host
	base string // folder name within each hierarchy

	v2    string // our folder in the unified hierarchy; components are leaves of it if v2cpu
	v2cpu bool
	cpu1  string // our folder in v1's cpu hierarchy
	frz1  string // our folder in v1's freezer hierarchy

	shared map[string]bool // groups of components that share a limit
}

// NewSet prepares the groups of an owner that is the process pid, started at
// ticks (see proc.StartTime). cpu says whether a limit will be asked for. It
// fails if a limit is wanted and cannot be had. Without a freezer it does not
// fail; CanFreeze tells.
func (h *Host) NewSet(name string, pid int, ticks uint64, cpu bool) (_ *Set, err error) {
	s := &Set{host: h, base: fmt.Sprintf("%s%s-%d-%d", prefix, name, pid, ticks)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	var cpuErr error
	if cpu {
		if s.cpu1, cpuErr = h.make(h.cpu1, s.base, nil); s.cpu1 == "" {
			var err2 error
			s.v2, err2 = h.make(h.unified, s.base, enableCPU)
			s.v2cpu = s.v2 != ""
			if !s.v2cpu {
				return nil, oneOf(cpuErr, err2)
			}
		}
	}
	// v2's freezer is preferred to v1's: what it holds can still be killed, so
	// a keeper's death ends even a frozen lab.
	if s.v2 == "" {
		s.v2, _ = h.make(h.unified, s.base, nil)
	}
	if s.v2 != "" && !exists(filepath.Join(s.v2, "cgroup.freeze")) && !s.v2cpu { // kernel before 5.2
		_ = os.Remove(s.v2)
		s.v2 = ""
	}
	if s.v2 == "" {
		s.frz1, _ = h.make(h.freezer1, s.base, nil)
	}
	return s, nil
}

// oneOf is why neither hierarchy serves, in one line.
func oneOf(v1, v2 error) error {
	switch {
	case v1 != nil && v2 != nil:
		return fmt.Errorf("%w; %w", v1, v2)
	case v1 != nil || v2 != nil:
		return cmp.Or(v1, v2)
	}
	return errors.New("no cgroup hierarchy with the cpu controller is mounted")
}

// make makes the folder base in the first of dirs that allows it.
func (h *Host) make(dirs []string, base string, prepare func(parent string) error) (string, error) {
	var first error
	for _, parent := range dirs {
		err := error(nil)
		if prepare != nil {
			err = prepare(parent)
		}
		if err == nil {
			dir := filepath.Join(parent, base)
			if err = h.mkdir(dir); err == nil {
				return dir, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// enableCPU hands the cpu controller down to a folder's children. The kernel
// refuses where processes sit in the folder itself, unless it is the real root.
func enableCPU(dir string) error {
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(string(on)), "cpu") {
		return nil
	}
	return write(dir, "cgroup.subtree_control", "+cpu")
}

// Names of the ways to freeze, as CanFreeze tells them.
const (
	FreezeV2 = "cgroup v2"
	FreezeV1 = "cgroup v1"
)

// CanFreeze tells by what the set freezes; "" if it cannot.
func (s *Set) CanFreeze() string {
	switch {
	case s.v2 != "" && exists(filepath.Join(s.v2, "cgroup.freeze")):
		return FreezeV2
	case s.frz1 != "":
		return FreezeV1
	}
	return ""
}

// period is the kernel's default; a quota below a thousandth of a second is
// refused, so the smallest limit is minCores.
const (
	period   = 100_000 // µs
	minCores = 0.01
)

// Join makes the groups of one component and returns the folders that its
// process must join, and the one whose cpu.stat tells throttling ("" without a
// limit). cores 0 means no limit.
func (s *Set) Join(component string, cores float64) (dirs []string, stat string, err error) {
	if cores != 0 && cores < minCores {
		return nil, "", fmt.Errorf("a limit of %g cores is below the smallest possible, %g", cores, minCores)
	}
	quota := strconv.Itoa(int(cores * period))
	group, _, _ := strings.Cut(component, "/")
	shares := s.shared[group]
	if s.v2 != "" {
		dir := s.v2
		if s.v2cpu { // only leaves may hold processes
			if err := enableCPU(s.v2); err != nil {
				return nil, "", err
			}
			dir = filepath.Join(s.v2, component)
			if err := s.host.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, "", err
			}
			if cores != 0 {
				if err := write(dir, "cpu.max", quota+" "+strconv.Itoa(period)); err != nil {
					return nil, "", err
				}
				stat = dir
			} else if shares { // it is the group that is stopped
				stat = filepath.Dir(dir)
			}
		}
		dirs = append(dirs, dir)
	}
	if s.frz1 != "" {
		dirs = append(dirs, s.frz1)
	}
	if (cores != 0 || shares) && !s.v2cpu {
		if s.cpu1 == "" {
			return nil, "", errors.New("the set was made without limits")
		}
		dir := filepath.Join(s.cpu1, component)
		if err := s.host.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
		if dirs = append(dirs, dir); cores == 0 {
			return dirs, filepath.Dir(dir), nil
		}
		if err := write(dir, "cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
			return nil, "", err
		}
		if err := write(dir, "cpu.cfs_quota_us", quota); err != nil {
			return nil, "", err
		}
		stat = dir
	}
	return dirs, stat, nil
}

// Share makes a group whose components, joined as group/component, have cores
// together.
func (s *Set) Share(group string, cores float64) error {
	if cores < minCores {
		return fmt.Errorf("a limit of %g cores is below the smallest possible, %g", cores, minCores)
	}
	quota := strconv.Itoa(int(cores * period))
	dir := filepath.Join(s.cpu1, group)
	if s.v2cpu {
		if err := enableCPU(s.v2); err != nil {
			return err
		}
		dir = filepath.Join(s.v2, group)
	} else if s.cpu1 == "" {
		return errors.New("the set was made without limits")
	}
	if err := s.host.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if s.shared == nil {
		s.shared = map[string]bool{}
	}
	s.shared[group] = true
	if s.v2cpu {
		return errors.Join(write(dir, "cpu.max", quota+" "+strconv.Itoa(period)), enableCPU(dir))
	}
	return errors.Join(write(dir, "cpu.cfs_period_us", strconv.Itoa(period)), write(dir, "cpu.cfs_quota_us", quota))
}

// Freeze stops all processes of the set and returns when they stand still.
func (s *Set) Freeze(ctx context.Context) error { return s.freeze(ctx, true) }

// Thaw lets them run again.
func (s *Set) Thaw(ctx context.Context) error { return s.freeze(ctx, false) }

func (s *Set) freeze(ctx context.Context, on bool) error {
	switch s.CanFreeze() {
	case FreezeV2:
		return setState(ctx, s.v2, "cgroup.freeze", pick(on, "1", "0"), "cgroup.events", pick(on, "frozen 1", "frozen 0"))
	case FreezeV1:
		state := pick(on, "FROZEN", "THAWED")
		return setState(ctx, s.frz1, "freezer.state", state, "freezer.state", state)
	}
	return errors.New("no freezer here")
}

func pick(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// setState writes value to a file until another file shows want.
func setState(ctx context.Context, dir, file, value, watched, want string) error {
	for {
		if err := write(dir, file, value); err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, watched))
		if err != nil {
			return err
		}
		if strings.Contains(string(got), want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s says %q, not %q: %w", filepath.Join(dir, watched), strings.TrimSpace(string(got)), want, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Dirs are the set's top folders, for a record of what must be removed.
func (s *Set) Dirs() []string {
	var dirs []string
	for _, d := range []string{s.v2, s.cpu1, s.frz1} {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// Remove kills what is left in the set's groups and removes them.
func (s *Set) Remove() error {
	var errs []error
	for _, d := range s.Dirs() {
		errs = append(errs, remove(d))
	}
	return errors.Join(errs...)
}

// Sweep removes the groups of owners that are dead, whatever still runs in
// them, and returns their folders.
func (h *Host) Sweep(alive func(pid int, ticks uint64) bool) (swept []string, err error) {
	var errs []error
	looked := map[string]bool{}
	for _, places := range [][]string{h.cpu1, h.freezer1, h.unified, h.tops} {
		for _, parent := range places {
			if looked[parent] {
				continue
			}
			looked[parent] = true
			entries, err := os.ReadDir(parent)
			if err != nil {
				continue // not ours to read: nothing of ours in it
			}
			for _, e := range entries {
				m := ours.FindStringSubmatch(e.Name())
				if m == nil || !e.IsDir() {
					continue
				}
				pid, _ := strconv.Atoi(m[1])
				ticks, _ := strconv.ParseUint(m[2], 10, 64)
				if alive(pid, ticks) {
					continue
				}
				dir := filepath.Join(parent, e.Name())
				if err := remove(dir); err != nil {
					errs = append(errs, err)
					continue
				}
				swept = append(swept, dir)
			}
		}
	}
	slices.Sort(swept)
	return swept, errors.Join(errs...)
}

// removeTimeout bounds the wait for killed processes to leave their group.
const removeTimeout = 3 * time.Second

// remove kills all within a group folder and removes it with its children.
func remove(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for {
		err := removeOnce(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func removeOnce(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	// A process frozen by v1 cannot die. Which kind of group this is shows in
	// which of these files exists.
	_ = write(dir, "freezer.state", "THAWED")
	_ = write(dir, "cgroup.freeze", "0")
	for _, e := range entries {
		if e.IsDir() {
			if err := removeOnce(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for f := range bytes.FieldsSeq(procs) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return syscall.Rmdir(dir)
}

// write writes to a file that must exist: in a cgroup the kernel makes them.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

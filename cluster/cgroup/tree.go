package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Tree is one folder of the same name at the top of every hierarchy: what a
// kubelet needs as its cgroupRoot. Others make groups in it, so it says only
// where, and removes all of it. Its folders carry their owner's pid and start
// time as a Set's do, so Sweep finds those whose owner is dead.
type Tree struct {
	name string
	dirs []string
}

// NewTree makes a tree for an owner that is the process pid, started at ticks.
func (h *Host) NewTree(name string, pid int, ticks uint64) (_ *Tree, err error) {
	t := &Tree{name: fmt.Sprintf("%s%s-%d-%d", prefix, name, pid, ticks)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Remove())
		}
	}()
	if len(h.tops) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	for _, top := range h.tops {
		if exists(filepath.Join(top, "cgroup.controllers")) {
			delegate(top)
		}
		dir := filepath.Join(top, t.name)
		if err := h.mkdir(dir); err != nil {
			return nil, err
		}
		t.dirs = append(t.dirs, dir)
		// v1 begins with an empty cpuset, in which nothing can run.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if !exists(filepath.Join(dir, "cpuset.cpu_exclusive")) {
				break
			}
			value, err := os.ReadFile(filepath.Join(top, file))
			if err != nil {
				return nil, err
			}
			if err := write(dir, file, string(value)); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// delegate hands all controllers of a v2 group down, as far as it may: what is
// missing the kubelet names itself.
func delegate(dir string) {
	all, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for c := range strings.FieldsSeq(string(all)) {
		_ = write(dir, "cgroup.subtree_control", "+"+c)
	}
}

// Root is the tree's path within each hierarchy.
func (t *Tree) Root() string { return "/" + t.name }

// Dirs are the tree's folders.
func (t *Tree) Dirs() []string { return slices.Clone(t.dirs) }

// Remove kills what is left in the tree and removes it.
func (t *Tree) Remove() error {
	var errs []error
	for _, d := range t.dirs {
		if err := remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		mountinfo, own        string
		cpu, freezer, unified []string
	}{
		"hybrid, at the root": {
			mountinfo: `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`,
			own:     "6:freezer:/\n1:cpu:/\n0::/\n",
			cpu:     []string{"/sys/fs/cgroup/cpu"},
			freezer: []string{"/sys/fs/cgroup/freezer"},
			unified: []string{"/sys/fs/cgroup/unified"},
		},
		"v2, in a session": {
			mountinfo: "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
			own:       "0::/user.slice/session-3.scope\n",
			unified:   []string{"/sys/fs/cgroup/user.slice/session-3.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"},
		},
		"v1 with joint controllers, bound from a container's subtree": {
			mountinfo: "40 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
			own:       "1:cpu,cpuacct:/docker/abc/job\n",
			cpu:       []string{"/sys/fs/cgroup/cpu,cpuacct/job", "/sys/fs/cgroup/cpu,cpuacct"},
		},
		"nothing": {mountinfo: "22 1 254:0 / / rw - ext4 /dev/vda rw", own: ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := parse(c.mountinfo, c.own)
			if !reflect.DeepEqual(h.cpu1, c.cpu) || !reflect.DeepEqual(h.freezer1, c.freezer) || !reflect.DeepEqual(h.unified, c.unified) {
				t.Errorf("got cpu %q freezer %q unified %q", h.cpu1, h.freezer1, h.unified)
			}
		})
	}
}

func TestCPU(t *testing.T) {
	hybrid := `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`
	v2 := "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
	for name, c := range map[string]struct {
		mountinfo, own string
		want           []string
	}{
		"v1 where it has the controller": {hybrid, "1:cpu:/a/b\n0::/elsewhere\n", []string{"/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu"}},
		"v2":                             {v2, "0::/a\n", []string{"/sys/fs/cgroup/a", "/sys/fs/cgroup"}},
		"in no group":                    {v2, "0::/\n", []string{"/sys/fs/cgroup"}},
		"of another namespace":           {v2, "0::/../other\n", nil},
		"of another container":           {"40 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "1:cpu:/docker/xyz\n", nil},
		"nothing mounted":                {"22 1 254:0 / / rw - ext4 /dev/vda rw", "1:cpu:/a\n", nil},
	} {
		if got := CPU(c.mountinfo, c.own); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  float64 // 0: none
	}{
		"v1":               {map[string]string{"cpu.cfs_quota_us": "45000\n", "cpu.cfs_period_us": "100000\n"}, 0.45},
		"v1 without":       {map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 0},
		"v2":               {map[string]string{"cpu.max": "150000 50000\n"}, 3},
		"v2 without":       {map[string]string{"cpu.max": "max 100000\n"}, 0},
		"the root of v2":   {nil, 0},
		"of another shape": {map[string]string{"cpu.max": "150000\n"}, 0},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, ok := Quota(dir, os.ReadFile); got != c.want || ok != (c.want > 0) {
			t.Errorf("%s: got %g, %v, want %g", name, got, ok, c.want)
		}
	}
}

// fakeV2 is a folder tree that answers as cgroup2 does: making a group makes
// its files.
func fakeV2(t *testing.T) (*Host, string) {
	root := t.TempDir()
	mkdir := func(dir string) error {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for _, f := range []string{"cgroup.procs", "cgroup.subtree_control", "cgroup.freeze", "cgroup.events", "cpu.max"} {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	own := filepath.Join(root, "own")
	if err := mkdir(own); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The kernel refuses to hand controllers down from where processes sit.
	if err := os.Remove(filepath.Join(own, "cgroup.subtree_control")); err != nil {
		t.Fatal(err)
	}
	return &Host{unified: []string{own, root}, mkdir: mkdir}, root
}

func TestV2(t *testing.T) {
	h, root := fakeV2(t)
	s, err := h.NewSet("a", 7, 99, true)
	if err != nil {
		t.Fatal(err)
	}
	dirs, stat, err := s.Join("etcd", 0.25)
	if err != nil {
		t.Fatal(err)
	}
	leaf := filepath.Join(root, "kubedyno-a-7-99", "etcd")
	if !reflect.DeepEqual(dirs, []string{leaf}) || stat != leaf {
		t.Errorf("join %q, stat %q", dirs, stat)
	}
	if b, _ := os.ReadFile(filepath.Join(leaf, "cpu.max")); string(b) != "25000 100000" {
		t.Errorf("cpu.max = %q", b)
	}
	if b, _ := os.ReadFile(filepath.Join(root, "kubedyno-a-7-99", "cgroup.subtree_control")); string(b) != "+cpu" {
		t.Errorf("subtree_control = %q", b)
	}
	if s.CanFreeze() != FreezeV2 {
		t.Errorf("freezes by %q", s.CanFreeze())
	}
	// Without a limit the group is made where we are.
	s, err = h.NewSet("b", 7, 99, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(root, "own", "kubedyno-b-7-99")}; !reflect.DeepEqual(s.Dirs(), want) {
		t.Errorf("dirs %q, want %q", s.Dirs(), want)
	}
}

// Components that share a limit are leaves of the group that has it, whose stops
// are those of each of them.
func TestShare(t *testing.T) {
	h, root := fakeV2(t)
	s, err := h.NewSet("a", 7, 99, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Share("all", 0.5); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(root, "kubedyno-a-7-99", "all")
	if b, _ := os.ReadFile(filepath.Join(group, "cpu.max")); string(b) != "50000 100000" {
		t.Errorf("cpu.max of the group = %q", b)
	}
	for _, c := range []struct {
		cores float64
		stat  string
		limit string
	}{{0, group, ""}, {0.25, filepath.Join(group, "etcd"), "25000 100000"}} {
		dirs, stat, err := s.Join("all/etcd", c.cores)
		if err != nil {
			t.Fatal(err)
		}
		leaf := filepath.Join(group, "etcd")
		if !reflect.DeepEqual(dirs, []string{leaf}) || stat != c.stat {
			t.Errorf("with %g cores of its own: joins %q, stat %q", c.cores, dirs, stat)
		}
		if b, _ := os.ReadFile(filepath.Join(leaf, "cpu.max")); string(b) != c.limit {
			t.Errorf("with %g cores of its own: cpu.max = %q", c.cores, b)
		}
	}
	if err := s.Share("tiny", 0.001); err == nil {
		t.Error("a limit of 0.001 cores was accepted")
	}

	// In v1 a component without a limit of its own is in the hierarchy all the same.
	cpu := t.TempDir()
	files := func(dir string) error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		for _, name := range []string{"cpu.cfs_period_us", "cpu.cfs_quota_us", "cgroup.procs"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	s, err = (&Host{cpu1: []string{cpu}, mkdir: files}).NewSet("a", 7, 99, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Share("all", 0.5); err != nil {
		t.Fatal(err)
	}
	group = filepath.Join(cpu, "kubedyno-a-7-99", "all")
	dirs, stat, err := s.Join("all/etcd", 0)
	if err != nil || !reflect.DeepEqual(dirs, []string{filepath.Join(group, "etcd")}) || stat != group {
		t.Errorf("v1: joins %q, stat %q (%v)", dirs, stat, err)
	}
	if b, _ := os.ReadFile(filepath.Join(group, "cpu.cfs_quota_us")); string(b) != "50000" {
		t.Errorf("v1: quota of the group = %q", b)
	}
	if dirs, _, err := s.Join("alone", 0); err != nil || len(dirs) != 0 {
		t.Errorf("v1: who shares nothing joins %q (%v)", dirs, err)
	}
}

func TestNoPermission(t *testing.T) {
	h := &Host{cpu1: []string{"/x"}, unified: []string{"/y"}, mkdir: func(dir string) error {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrPermission}
	}}
	if _, err := h.NewSet("a", 7, 99, true); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("err = %v", err)
	}
	s, err := h.NewSet("a", 7, 99, false)
	if err != nil || s.CanFreeze() != "" || len(s.Dirs()) != 0 {
		t.Errorf("without a limit: %v, %v", s, err)
	}
	if _, err := (&Host{}).NewSet("a", 7, 99, true); err == nil || !strings.Contains(err.Error(), "no cgroup hierarchy") {
		t.Errorf("err = %v", err)
	}
}

func TestTooSmall(t *testing.T) {
	if _, _, err := (&Set{}).Join("etcd", 0.001); err == nil {
		t.Error("a limit of 0.001 cores was accepted")
	}
}

// TestTree: a folder in every hierarchy, with the processors of its parent
// where v1 begins without.
func TestTree(t *testing.T) {
	root := t.TempDir()
	cpuset, pids := filepath.Join(root, "cpuset"), filepath.Join(root, "pids")
	for _, dir := range []string{cpuset, pids} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(dir string) {
		for name, value := range map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n", "cpuset.cpu_exclusive": "0\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(cpuset)
	h := &Host{tops: []string{cpuset, pids}, mkdir: func(dir string) error {
		err := os.Mkdir(dir, 0o755)
		if err == nil && filepath.Dir(dir) == cpuset {
			fill(dir)
			err = os.WriteFile(filepath.Join(dir, "cpuset.cpus"), nil, 0o600)
		}
		return err
	}}
	tree, err := h.NewTree("node", 7, 8)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Root() != "/kubedyno-node-7-8" || len(tree.Dirs()) != 2 {
		t.Errorf("%s in %q", tree.Root(), tree.Dirs())
	}
	if b, _ := os.ReadFile(filepath.Join(cpuset, tree.Root(), "cpuset.cpus")); string(b) != "0-1\n" {
		t.Errorf("its processors are %q", b)
	}
	if m := ours.FindStringSubmatch(filepath.Base(tree.Root())); m == nil || m[1] != "7" || m[2] != "8" {
		t.Error("Sweep would not find it")
	}

	h.mkdir = func(dir string) error {
		if filepath.Dir(dir) == pids {
			return fs.ErrPermission
		}
		return os.Mkdir(dir, 0o755)
	}
	h.tops = []string{filepath.Join(root), pids}
	if _, err := h.NewTree("other", 7, 8); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a refusal: %v", err)
	}
}

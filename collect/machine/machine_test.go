package machine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHere(t *testing.T) {
	m := Fingerprint(t.TempDir())
	t.Logf("%+v", m)
	if m.CPUs < 1 || m.MemoryBytes < 1<<20 || m.Kernel == "" || m.Model == "" || m.Disk == "" {
		t.Errorf("incomplete: %+v", m)
	}
}

func TestNothingToRead(t *testing.T) {
	m := read(t.TempDir(), "/")
	if m.MemoryBytes != 0 || m.Kernel != "" || m.Cgroup != "" || m.CPUs < 1 {
		t.Errorf("%+v", m)
	}
}

func TestFixture(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/cpuinfo":                  "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t\t: fpu vme hypervisor lm\n",
		"proc/meminfo":                  "MemTotal:        8192000 kB\nMemFree: 1 kB\n",
		"proc/loadavg":                  "0.95 1.40 0.70 1/93 20114\n",
		"proc/mounts":                   "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"proc/sys/kernel/osrelease":     "6.1.0\n",
		"proc/self/mountinfo":           "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /t\\040mp rw - tmpfs tmpfs rw\n",
		"etc/os-release":                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"sys/class/dmi/id/sys_vendor":   "Google\n",
		"sys/class/dmi/id/product_name": "Google Compute Engine\n",
	} {
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := read(root, "/t mp/not/there")
	m.CPUs, m.GoMaxProcs = 0, 0
	want := m
	want.Model, want.MemoryBytes, want.Kernel, want.OS = "AMD EPYC 7B13", 8192000<<10, "6.1.0", "Debian GNU/Linux 12 (bookworm)"
	want.Virtual, want.Cgroup, want.LoadAverage = "Google Compute Engine", "v2", 0.95
	if m != want {
		t.Errorf("got %+v\nwant %+v", m, want)
	}
	for dir, want := range map[string]string{"/t mpx": "ext4 on vda", "/": "ext4 on vda"} {
		if got := fileSystem("1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /t\\040mp rw - tmpfs tmpfs rw\n", dir); got != want {
			t.Errorf("%s lies on %s, want %s", dir, got, want)
		}
	}
}

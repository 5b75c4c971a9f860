// Package machine takes the fingerprint of where a run happens: what a reader
// needs to know before comparing its numbers with another machine's.
//
// What cannot be found out stays empty. Start with Fingerprint.
package machine

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// Fingerprint describes this machine, and the file system that dir lies on.
func Fingerprint(dir string) record.Machine { return read("/", dir) }

// read does it for a machine whose files are under root.
func read(root, dir string) record.Machine {
	file := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	cpuinfo := file("proc/cpuinfo")
	m := record.Machine{
		CPUs:       runtime.NumCPU(),
		GoMaxProcs: runtime.GOMAXPROCS(0),
		Model:      value(cpuinfo, "model name", ":"),
		Kernel:     file("proc/sys/kernel/osrelease"),
		OS:         unquote(value(file("etc/os-release"), "PRETTY_NAME", "=")),
		Virtual:    virtual(file, cpuinfo),
		Cgroup:     cgroup(file("proc/mounts")),
		Disk:       fileSystem(file("proc/self/mountinfo"), dir),
	}
	if m.Model == "" { // not on x86
		m.Model = strings.TrimSpace(value(cpuinfo, "CPU implementer", ":") + " " + value(cpuinfo, "CPU part", ":"))
		if m.Model == "" {
			m.Model = runtime.GOARCH
		}
	}
	if kib, _, ok := strings.Cut(value(file("proc/meminfo"), "MemTotal", ":"), " "); ok {
		n, _ := strconv.ParseInt(kib, 10, 64)
		m.MemoryBytes = n << 10
	}
	load, _, _ := strings.Cut(file("proc/loadavg"), " ")
	m.LoadAverage, _ = strconv.ParseFloat(load, 64)
	return m
}

// value is what follows the key on its line.
func value(text, key, sep string) string {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, sep)
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func unquote(s string) string { return strings.Trim(s, `"'`) }

// virtual names the hypervisor as the firmware does. A micro-VM has no
// firmware; then the CPU's own flag tells that there is one.
func virtual(file func(string) string, cpuinfo string) string {
	vendor, product := file("sys/class/dmi/id/sys_vendor"), file("sys/class/dmi/id/product_name")
	for _, known := range [][2]string{
		{"QEMU", "KVM"}, {"KVM", "KVM"}, {"VMware", "VMware"}, {"VirtualBox", "VirtualBox"}, {"innotek", "VirtualBox"},
		{"Amazon EC2", "Amazon EC2"}, {"Google", "Google Compute Engine"}, {"Microsoft Corporation Virtual", "Hyper-V"},
		{"Xen", "Xen"}, {"DigitalOcean", "DigitalOcean"}, {"Hetzner", "Hetzner"}, {"OpenStack", "OpenStack"}, {"Parallels", "Parallels"},
	} {
		if strings.Contains(vendor+" "+product, known[0]) {
			return known[1]
		}
	}
	if t := file("sys/hypervisor/type"); t != "" {
		return t
	}
	if flags := " " + value(cpuinfo, "flags", ":") + " "; strings.Contains(flags, " hypervisor ") {
		return "virtual machine"
	}
	return ""
}

func cgroup(mounts string) string {
	var v1, v2 bool
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		switch f[2] {
		case "cgroup":
			v1 = true
		case "cgroup2":
			v2 = true
		}
	}
	switch {
	case v1 && v2:
		return "hybrid"
	case v2:
		return "v2"
	case v1:
		return "v1"
	}
	return ""
}

// fileSystem is the type of the mount that dir lies on, and its device where
// that says something.
func fileSystem(mountinfo, dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	// The folder may not exist yet: its nearest parent decides.
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			dir = real
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	best, kind := -1, ""
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(r) < 2 {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		if at != dir && !strings.HasPrefix(dir, strings.TrimSuffix(at, "/")+"/") || len(at) < best {
			continue
		}
		best, kind = len(at), r[0]
		if name, ok := strings.CutPrefix(r[1], "/dev/"); ok {
			kind += " on " + name
		}
	}
	return kind
}

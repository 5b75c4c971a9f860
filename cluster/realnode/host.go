package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A host is what this machine has of what a node is made of.
type host struct {
	containerd, ctr, runc string
	plugins               string // folder of CNI plugins
	proxyMode             string // how kube-proxy can work; empty where it cannot
}

// ErrNotPossible says that this machine, or this user, cannot have a real node.
var ErrNotPossible = errors.New("no real node can run here")

// Check says whether a real node can run here, with kube-proxy or without, and if
// not what is missing. The error wraps ErrNotPossible.
func Check(proxy bool) error {
	h, err := findHost()
	if err == nil && proxy && h.proxyMode == "" {
		err = fmt.Errorf("%w with kube-proxy: nft (package nftables) or iptables is missing: install one, or leave cluster.proxy out", ErrNotPossible)
	}
	return err
}

// pluginDirs are where Debian and everybody else put CNI plugins.
var pluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

func findHost() (host, error) {
	var h host
	if os.Geteuid() != 0 {
		return h, fmt.Errorf("%w: it needs root for namespaces, mounts and cgroups (this is user %d): run as root, or use hollow nodes", ErrNotPossible, os.Geteuid())
	}
	var missing []string
	for _, p := range []struct {
		path           *string
		name, package_ string
	}{
		{&h.containerd, "containerd", "containerd"},
		{&h.ctr, "ctr", "containerd"},
		{new(string), "containerd-shim-runc-v2", "containerd"},
		{&h.runc, "runc", "runc"},
	} {
		if *p.path = find(p.name); *p.path == "" {
			missing = append(missing, p.name+" (package "+p.package_+")")
		}
	}
	for _, dir := range pluginDirs {
		if exists(filepath.Join(dir, "bridge")) && exists(filepath.Join(dir, "host-local")) && exists(filepath.Join(dir, "loopback")) {
			h.plugins = dir
			break
		}
	}
	if h.plugins == "" {
		missing = append(missing, "the CNI plugins bridge, host-local and loopback in "+strings.Join(pluginDirs, ", ")+" (package containernetworking-plugins)")
	}
	switch { // in the order in which Kubernetes prefers them
	case find("nft") != "":
		h.proxyMode = "nftables"
	case find("iptables") != "" && find("iptables-restore") != "":
		h.proxyMode = "iptables"
	}
	if len(missing) > 0 {
		return h, fmt.Errorf("%w: %s missing: install them (Debian: apt-get install --no-install-recommends containerd runc containernetworking-plugins), or use hollow nodes",
			ErrNotPossible, strings.Join(missing, ", "))
	}
	return h, nil
}

// path is root's, whoever's shell we were started from.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func find(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for dir := range strings.SplitSeq(path, ":") {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

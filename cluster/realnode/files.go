package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedyno/kubedyno/internal/clientcert"
)

// Inside its namespaces a node has the usual paths; these are they.
const (
	kubeletDir    = "/var/lib/kubelet"
	containerdDir = "/var/lib/containerd"
	socket        = "/run/containerd/containerd.sock"
	debugSocket   = "/run/containerd/debug.sock"
	criMetrics    = "127.0.0.1:1338"
	kubeletPort   = "10250"
	apiAddress    = "127.0.0.1:6443"
	proxyPort     = "10249"
)

// Names within the state folder.
const (
	keeperLog     = "keeper.log"
	kubeletLog    = "kubelet.log"
	containerdLog = "containerd.log"
	proxyLog      = "kube-proxy.log"
	proxyFile     = "kube-proxy.kubeconfig"
	criFile       = "containerd.toml"
	netDir        = "net.d"
	kubeletSub    = "kubelet"
	containerdSub = "containerd"
)

// sandboxImage is the name under which pod sandboxes use our image.
const sandboxImage = "kubedyno.local/pause:1"

// address is the node's own, of the range for benchmarks (RFC 2544), and
// podRange its pods'. Nobody outside its network namespace sees either.
func (c *Config) address() string  { return fmt.Sprintf("198.18.0.%d", c.Number+1) }
func (c *Config) podRange() string { return fmt.Sprintf("10.88.%d.0/24", c.Number) }

func (c *Config) file(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// writeFiles writes everything that the node's programs read.
func (c *Config) writeFiles(cgroupRoot string) error {
	for _, dir := range []string{kubeletSub, containerdSub, netDir, "tmp", "sysctl"} {
		if err := os.MkdirAll(c.file(dir), 0o700); err != nil {
			return err
		}
	}
	clientCA := c.ClientCAFile
	if clientCA == "" {
		clientCA = c.NodeCA.CertFile
	}
	ca, err := os.ReadFile(clientCA)
	if err != nil {
		return fmt.Errorf("authority of the kubelet's clients: %w", err)
	}
	kubeconfig, err := c.kubeconfig("system:node:"+c.Name, "system:nodes")
	if err != nil {
		return err
	}
	images, err := c.images()
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := i.write(c.file(i.file())); err != nil {
			return fmt.Errorf("image of %s: %w", i.program, err)
		}
	}
	if c.Proxy {
		// What kubeadm gives it a service account for; the user is bound to the
		// same role by the API server itself.
		proxy, err := c.kubeconfig("system:kube-proxy")
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.file(proxyFile), proxy, 0o600); err != nil {
			return err
		}
	}
	for name, content := range map[string][]byte{
		filepath.Join(kubeletSub, "clients.crt"):    ca,
		filepath.Join(kubeletSub, "kubeconfig"):     kubeconfig,
		filepath.Join(kubeletSub, "config.yaml"):    c.kubeletConfig(cgroupRoot),
		criFile:                                     c.containerdConfig(),
		filepath.Join(netDir, "10-bridge.conflist"): c.network(),
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig makes an identity and how it reaches the API server: through the
// node's keeper, by the name that the server's certificate has.
func (c *Config) kubeconfig(user string, groups ...string) ([]byte, error) {
	server, err := url.Parse(c.Server)
	if err != nil || server.Hostname() == "" {
		return nil, fmt.Errorf("server %q is not a URL", c.Server)
	}
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("authority of the API server: %w", err)
	}
	// What TLS bootstrap would have given it.
	cert, key, err := clientcert.Sign(c.NodeCA.CertFile, c.NodeCA.KeyFile, user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"lab": {
			Server: "https://" + apiAddress, TLSServerName: server.Hostname(), CertificateAuthorityData: ca,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"node": {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"lab": {Cluster: "lab", AuthInfo: "node"}},
		CurrentContext: "lab",
	})
}

// kubeletConfig is kubeadm's, and what a node needs that shares its machine.
func (c *Config) kubeletConfig(cgroupRoot string) []byte {
	pods := c.Pods
	if pods == 0 {
		pods = 110
	}
	return []byte(fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %s/clients.crt}
authorization: {mode: Webhook}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
healthzBindAddress: 127.0.0.1
healthzPort: 10248
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
maxPods: %d
# This machine may have swap, cgroup v1 and a full disk: none of it is the node's.
failSwapOn: false
failCgroupV1: false
imageMinimumGCAge: 24h
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 0%%, imagefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.inodesFree: 0%%}
# The default would be made below /usr, which is the machine's.
volumePluginDir: %s/volumeplugins
resolvConf: ""
`, kubeletDir, socket, cgroupRoot, pods, kubeletDir))
}

// containerdConfig is of version 2, which containerd 1.6 reads and 2.x
// converts. Without restrict_oom_score_adj no sandbox starts where we may not
// lower that score, as in most virtual machines for tests.
func (c *Config) containerdConfig() []byte {
	return []byte(fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = %q
[debug]
  address = %q
[metrics]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, containerdDir, socket, debugSocket, criMetrics, sandboxImage, c.host.runc, c.host.plugins, c.file(netDir)))
}

// network joins pods by a bridge. There is no way out of it: nothing that runs
// here has business elsewhere.
func (c *Config) network() []byte {
	return []byte(fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "kubedyno", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "/var/lib/cni", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}
`, c.podRange()))
}

// fullName is an image's name as a runtime keeps it: registry and tag included.
func fullName(image string) (string, error) {
	if strings.Contains(image, "@") {
		return "", fmt.Errorf("image %s is pinned by digest, and a real node has only an image of ours, which cannot have it: name it by a tag", image)
	}
	first, _, more := strings.Cut(image, "/")
	switch {
	case !more:
		image = "docker.io/library/" + image
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		image = "docker.io/" + image
	}
	if !strings.Contains(image[strings.LastIndexByte(image, '/'):], ":") {
		image += ":latest"
	}
	return image, nil
}

// An image holds one program, under every name that was asked for.
type image struct {
	program string // its path on this machine
	entry   string // its name in the image
	names   []string
}

// file is the image's name within the state folder.
func (i image) file() string { return "image-" + i.entry + ".tar" }

// images are those that the node has: first that of kubedyno-pause.
func (c *Config) images() ([]image, error) {
	pause := map[string]bool{sandboxImage: true}
	var all []image
	for _, named := range slices.Sorted(maps.Keys(c.Programs)) {
		name, err := fullName(named)
		if err != nil {
			return nil, err
		}
		program := c.Programs[named]
		all = append(all, image{program, strings.TrimPrefix(filepath.Base(program), "kubedyno-"), []string{name}})
	}
	for _, named := range c.Images {
		name, err := fullName(named)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(i image) bool { return slices.Contains(i.names, name) }) {
			pause[name] = true
		}
	}
	return append([]image{{c.Pause, "pause", slices.Sorted(maps.Keys(pause))}}, all...), nil
}

// write writes the image as `docker save` does: one layer that holds the program.
func (i image) write(path string) error {
	program, err := os.ReadFile(i.program)
	if err != nil {
		return err
	}
	type file struct {
		name string
		mode int64
		data []byte
	}
	archive := func(w io.Writer, files ...file) error {
		t := tar.NewWriter(w)
		for _, f := range files {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))}
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			if _, err := t.Write(f.data); err != nil {
				return err
			}
		}
		return t.Close()
	}
	var layer bytes.Buffer
	if err := archive(&layer, file{i.entry, 0o755, program}); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + i.entry}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": i.names, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := archive(w, file{"manifest.json", 0o644, manifest}, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer.Bytes()}); err != nil {
		return err
	}
	return w.Close()
}

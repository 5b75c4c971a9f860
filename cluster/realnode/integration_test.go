package realnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/hollow"
)

// ownerName is the test binary's name when it starts a node and waits to be shot.
const ownerName = "realnode-owner"

// The test binary plays the lab's keeper, the node's, and those within.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, map[string]labtest.Role{
		KeeperName: KeeperMain, InsideName: InsideMain, ownerName: owner, "kubedyno-hollow": hollow.ProcessMain,
	}); ok {
		os.Exit(code)
	}
	code := m.Run()
	_ = os.RemoveAll(pauseDir)
	os.Exit(code)
}

// pauseDir holds kubedyno-pause, if a test needed it.
var pauseDir string

func owner(ctx context.Context, stdin io.Reader, stdout, _ io.Writer) error {
	var cfg Config
	if err := json.NewDecoder(stdin).Decode(&cfg); err != nil {
		return err
	}
	n, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(n.Info()); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.New("nobody shot the owner")
}

// needNode skips a test where no real node can run: it says what is missing.
func needNode(t testing.TB) {
	t.Helper()
	if err := Check(false); err != nil {
		t.Skip(err)
	}
}

// pauseBinary builds kubedyno-pause once for all tests.
var pauseBinary = sync.OnceValues(func() (string, error) {
	var err error
	if pauseDir, err = os.MkdirTemp("", "kubedyno-pause-"); err != nil {
		return "", err
	}
	path := filepath.Join(pauseDir, PauseBinary)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/kubedyno/kubedyno/cmd/kubedyno-pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// startLab starts a real control plane.
func startLab(t testing.TB, overrides map[string]lab.Override) (*cluster.ControlPlane, kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Config{Lab: labtest.Binary(t), StateRoot: t.TempDir(), Overrides: overrides})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	cp := l.ControlPlane()
	rest, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	return cp, client
}

const pauseImage = "registry.k8s.io/pause:3.10"

func nodeConfig(t testing.TB, cp *cluster.ControlPlane, name string) Config {
	t.Helper()
	pause, err := pauseBinary()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Name: name, Lab: labtest.Binary(t), Pause: pause, Images: []string{pauseImage}, Dir: filepath.Join(t.TempDir(), "n")}.For(cp)
}

func startNode(t testing.TB, cfg Config) *Node {
	t.Helper()
	n, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // again, should the test end early
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// eventually repeats f until it is true. The time is for a machine that is busy
// with other things; nothing here is judged by it.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("not after 3 minutes: %s", what)
}

func pausePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "pause", Image: pauseImage}}},
	}
}

func createPod(t testing.TB, client kubernetes.Interface, pod *v1.Pod) {
	t.Helper()
	// The default service account comes a moment after its namespace.
	eventually(t, "pod "+pod.Name+" can be created", func() bool {
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
}

func getPod(t testing.TB, client kubernetes.Interface, name string) *v1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func isReady(pod *v1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// machine is what a node could leave behind, or change while it runs.
type machine struct {
	Mounts, Links, Settings, Cgroups, Folders, Processes []string
}

func look(t testing.TB) machine {
	t.Helper()
	var m machine
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Others on this machine mount things too: these are what a node would.
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		f := strings.Fields(line)
		for _, of := range []string{"kubelet", "containerd", "netns", "overlay", "/proc/sys", "/var/", "/opt", "/run", "/" + t.Name() + "/"} {
			if strings.Contains(f[4], of) || strings.Contains(line, " - overlay ") {
				m.Mounts = append(m.Mounts, strings.Join(f[2:], " "))
				break
			}
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		m.Links = append(m.Links, l.Name)
	}
	for name := range settings {
		m.Settings = append(m.Settings, name+" = "+read("/proc/sys/"+name))
	}
	m.Settings = append(m.Settings, "ip_forward = "+read("/proc/sys/net/ipv4/ip_forward"))
	for _, pattern := range []string{"/sys/fs/cgroup/kubedyno-real-*", "/sys/fs/cgroup/*/kubedyno-real-*", "/sys/fs/cgroup/*/kubepods*", "/sys/fs/cgroup/*/k8s.io*"} {
		found, _ := filepath.Glob(pattern)
		m.Cgroups = append(m.Cgroups, found...)
	}
	for _, pattern := range []string{"/run/*", "/run/containerd/*", "/run/netns/*", "/var/lib/*", "/var/log/*", "/opt/*", "/usr/libexec/*"} {
		found, _ := filepath.Glob(pattern)
		m.Folders = append(m.Folders, found...)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		b, _ := os.ReadFile(path) // it may have ended
		line := strings.ReplaceAll(string(b), "\x00", " ")
		for _, of := range []string{KeeperName, "containerd", "kubelet --", "/pause"} {
			if strings.Contains(line, of) {
				m.Processes = append(m.Processes, line)
				break
			}
		}
	}
	for _, list := range []*[]string{&m.Mounts, &m.Links, &m.Settings, &m.Cgroups, &m.Folders, &m.Processes} {
		slices.Sort(*list)
	}
	return m
}

// same compares what two looks saw.
func same(t testing.TB, when string, before, after machine) {
	t.Helper()
	for _, c := range []struct {
		what     string
		was, now []string
	}{
		{"mounts", before.Mounts, after.Mounts}, {"links", before.Links, after.Links}, {"kernel settings", before.Settings, after.Settings},
		{"cgroups", before.Cgroups, after.Cgroups}, {"folders", before.Folders, after.Folders}, {"processes", before.Processes, after.Processes},
	} {
		if !slices.Equal(c.was, c.now) {
			t.Errorf("%s, %s differ:\nbefore %q\nafter  %q", when, c.what, c.was, c.now)
		}
	}
}

// TestLife takes a node and a pod on it through their lives, and looks at what
// is left.
func TestLife(t *testing.T) {
	needNode(t)
	cp, client := startLab(t, nil)
	before := look(t)
	cfg := nodeConfig(t, cp, "real-0")
	cfg.Labels = map[string]string{"kubedyno.io/run": "test"}
	cfg.Taints = []string{"kubedyno.io/real=yes:PreferNoSchedule"}
	if h, err := findHost(); err != nil {
		t.Fatal(err)
	} else if cfg.Proxy = h.proxyMode != ""; !cfg.Proxy {
		t.Log("without kube-proxy: neither nft nor iptables is here")
	}
	n := startNode(t, cfg)
	info := n.Info()
	t.Logf("%+v", info)

	node, err := client.CoreV1().Nodes().Get(t.Context(), "real-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["kubedyno.io/run"] != "test" || !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, "v1.") ||
		!strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "containerd://") ||
		!slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == "kubedyno.io/real" }) {
		t.Errorf("the node says of itself: labels %v, taints %v, %+v", node.Labels, node.Spec.Taints, node.Status.NodeInfo)
	}
	if node.Status.NodeInfo.KubeletVersion != cp.Version {
		t.Errorf("the kubelet calls itself %s; the control plane is %s", node.Status.NodeInfo.KubeletVersion, cp.Version)
	}
	for _, pid := range []int{info.KubeletPID, info.ContainerdPID} {
		if err := syscall.Kill(pid, 0); pid == 0 || err != nil {
			t.Errorf("%+v: no process %d (%v)", info, pid, err)
		}
	}

	createPod(t, client, pausePod("life"))
	eventually(t, "the pod is ready", func() bool { return isReady(getPod(t, client, "life")) })
	pod := getPod(t, client, "life")
	if !strings.HasPrefix(pod.Status.PodIP, "10.88.0.") {
		t.Errorf("the pod's address is %q, not of the node's range", pod.Status.PodIP)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + info.CgroupRoot + "/kubepods/*/pod*")
	if more, _ := filepath.Glob("/sys/fs/cgroup" + info.CgroupRoot + "/kubepods/*/pod*"); len(groups)+len(more) == 0 {
		t.Error("the pod has no cgroup in the node's")
	}

	if cfg.Proxy {
		if got := n.PIDs("kube-proxy"); len(got) != 1 || got[0] != info.ProxyPID {
			t.Errorf("kube-proxy is %v, and %d is said", got, info.ProxyPID)
		}
		// The API server through its Service, by a name that its certificate has.
		ca, err := os.ReadFile(cp.CA)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		eventually(t, "the API server answers through its Service", func() bool {
			conn, err := n.Dial(t.Context(), "tcp", "10.96.0.1:443")
			if err != nil {
				return false
			}
			defer conn.Close()
			return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "kubernetes.default.svc"}).HandshakeContext(t.Context()) == nil
		})
	}

	// While it runs the machine is as it was, but for processes and cgroups.
	during := look(t)
	during.Processes, during.Cgroups = before.Processes, before.Cgroups
	same(t, "while the node runs", before, during)

	if err := client.CoreV1().Pods("default").Delete(t.Context(), "life", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", func() bool { return getPod(t, client, "life") == nil })

	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for e := range n.Exited() {
		t.Errorf("ended by itself: %v", e)
	}
	same(t, "after the stop", before, look(t))
	if exists(cfg.Dir) {
		t.Errorf("%s is left", cfg.Dir)
	}
}

// TestFailedStart: a node that does not start says why and leaves nothing.
func TestFailedStart(t *testing.T) {
	needNode(t)
	cp, _ := startLab(t, nil)
	before := look(t)
	cfg := nodeConfig(t, cp, "real-0")
	cfg.Lab = "/bin/false"
	if n, err := Start(t.Context(), cfg); err == nil {
		_ = n.Stop(t.Context())
		t.Error("a node without a kubelet started")
	} else if !strings.Contains(err.Error(), "real node real-0: kubelet exited") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, nodeConfig(t, cp, "real-0")); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was called off: %v", err)
	}
	same(t, "after starts that failed", before, look(t))
	if exists(cfg.Dir) {
		t.Errorf("%s is left", cfg.Dir)
	}
}

// TestOwnerKilled shoots a node's owner while a pod runs.
func TestOwnerKilled(t *testing.T) {
	needNode(t)
	cp, client := startLab(t, nil)
	before := look(t)
	for _, victim := range []string{"owner", "keeper"} {
		t.Run(victim, func(t *testing.T) {
			cfg := nodeConfig(t, cp, "real-"+victim)
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{ownerName}
			var said strings.Builder
			cmd.Stderr = &said
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			if err := json.NewEncoder(stdin).Encode(cfg); err != nil {
				t.Fatal(err)
			}
			var info Info
			if err := json.NewDecoder(stdout).Decode(&info); err != nil {
				t.Fatalf("%v; %s", err, said.String())
			}
			name := "shot-" + victim
			pod := pausePod(name)
			pod.Spec.NodeName = cfg.Name
			createPod(t, client, pod)
			eventually(t, "the pod is ready", func() bool { return isReady(getPod(t, client, name)) })

			pid := cmd.Process.Pid
			if victim == "keeper" {
				pid = childNamed(t, pid, KeeperName)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing of the node is left", func() bool {
				now := look(t)
				if victim == "keeper" { // its owner stands, and is not to be counted
					now.Processes = slices.DeleteFunc(now.Processes, func(s string) bool { return strings.HasPrefix(s, ownerName) })
				}
				return slices.Equal(now.Processes, before.Processes) && slices.Equal(now.Cgroups, before.Cgroups)
			})
			same(t, "after the kill of the "+victim, before, look(t))
			if victim == "owner" && exists(cfg.Dir) {
				eventually(t, "the state folder is gone", func() bool { return !exists(cfg.Dir) })
			}
		})
	}
}

func childNamed(t *testing.T, parent int, name string) int {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		var pid, ppid int
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err != nil || strings.SplitN(string(b), "\x00", 2)[0] != name {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if i := strings.LastIndexByte(string(stat), ')'); i > 0 {
			_, _ = fmt.Sscanf(string(stat[i+1:]), " %1s %d", new(string), &ppid)
		}
		if ppid == parent {
			return pid
		}
	}
	t.Fatalf("process %d has no child %s", parent, name)
	return 0
}

// Package realnode runs a real node: containerd, runc, CNI plugins and a
// kubelet in private namespaces, for one control plane.
//
// It is what hollow nodes are held against, and a place where an experiment's
// pods truly start. A node has its own mount, process, network and IPC
// namespace and its own group in every cgroup hierarchy. Nothing of the machine
// is changed while it runs: its folders below /run and /var are its own, its
// links and packet rules are in a network nobody else has, and the kernel
// settings that a kubelet insists on are shown to it, not made. It leaves
// nothing: when its owner dies its keeper ends it, and when the keeper dies too
// the kernel ends the first process of its namespace, and with that all others.
//
// Start with Config, then Start and Node. keeper.go is the process that owns
// the node, inside.go the one within its namespaces.
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
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/cluster/proc"
)

// Config says what node to start. It is also the first line that the keeper
// reads.
type Config struct {
	// Name is the Node's.
	Name string `json:"name"`
	// Number tells the nodes of one control plane apart: their addresses follow
	// from it. At most maxNumber.
	Number int `json:"number,omitempty"`
	// Server and CAFile are the API server and whom to trust as one; NodeCA
	// signs the node's client certificate.
	Server string         `json:"server"`
	CAFile string         `json:"caFile"`
	NodeCA cluster.NodeCA `json:"nodeCA"`
	// ClientCAFile signs those whom the kubelet lets in to its metrics; empty
	// means NodeCA's certificate.
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// Dir is the node's state folder. It is made, and removed in the end.
	Dir string `json:"dir"`
	// Lab is the path of kubedyno-lab, which is the kubelet, and Pause that of
	// kubedyno-pause; an empty Pause means FindPause.
	Lab   string `json:"lab"`
	Pause string `json:"pause"`
	// Images are names that pods use. Each is known to the node and stands for
	// the one image that it has, of kubedyno-pause.
	Images []string `json:"images,omitempty"`
	// Programs are images that hold a program of their own, by name: its path on
	// this machine. What is in Images too stands for these.
	Programs map[string]string `json:"programs,omitempty"`
	// Proxy has the node run kube-proxy, so that Services are reached from it and
	// from its pods, the API server's own first of all.
	Proxy  bool              `json:"proxy,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are written as kubelet's --register-with-taints takes them:
	// key=value:effect.
	Taints []string `json:"taints,omitempty"`
	// Pods is how many pods the node takes; zero means a kubelet's default.
	Pods int `json:"pods,omitempty"`
	// StartTimeout bounds the start; zero means defaultStartTimeout.
	StartTimeout time.Duration `json:"startTimeout,omitempty"`

	host host // what this machine has, filled in by Check
}

// For fills in what follows from a lab.
func (c Config) For(cp *cluster.ControlPlane) Config {
	c.Server, c.CAFile, c.NodeCA = cp.Server, cp.CA, cp.NodeCA
	if c.Dir == "" {
		c.Dir = filepath.Join(cp.StateDir, "node-"+c.Name)
	}
	// A lab's collectors have an authority of their own; this file holds both.
	if both := filepath.Join(cp.StateDir, "pki", "clients.crt"); c.ClientCAFile == "" && exists(both) {
		c.ClientCAFile = both
	}
	return c
}

const (
	// defaultStartTimeout: a node takes 3 s from nothing to Ready on an idle
	// machine of two cores, and much longer on a busy one.
	defaultStartTimeout = 3 * time.Minute
	maxNumber           = 200
	// stopGrace is how long the kubelet and containerd have to end together.
	stopGrace = 6 * time.Second
)

// PauseBinary is the program in the node's image.
const PauseBinary = "kubedyno-pause"

// FindPause returns the path of kubedyno-pause: $KUBEDYNO_PAUSE, or beside lab.
func FindPause(lab string) (string, error) { return findBeside(lab, PauseBinary, "KUBEDYNO_PAUSE") }

// DNSBinary is CoreDNS, which nodes run in pods.
const DNSBinary = "kubedyno-coredns"

// FindDNS returns the path of kubedyno-coredns: $KUBEDYNO_COREDNS, or beside lab.
func FindDNS(lab string) (string, error) { return findBeside(lab, DNSBinary, "KUBEDYNO_COREDNS") }

func findBeside(lab, name, variable string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join(filepath.Dir(lab), name)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s, the program in a real node's image, is not at %s: build it with `make build`, or set %s to its path", name, path, variable)
	}
	return filepath.Abs(path)
}

// check refuses what can be refused before anything is made.
func (c *Config) check() error {
	if bad := validation.IsDNS1123Subdomain(c.Name); len(bad) > 0 {
		return fmt.Errorf("a real node's name %q: %s", c.Name, strings.Join(bad, "; "))
	}
	if c.Number < 0 || c.Number > maxNumber {
		return fmt.Errorf("real node %s has number %d: want 0 to %d", c.Name, c.Number, maxNumber)
	}
	for _, image := range c.Images {
		if _, err := fullName(image); err != nil {
			return err
		}
	}
	if c.Server == "" || c.NodeCA.CertFile == "" || c.NodeCA.KeyFile == "" {
		return errors.New("a real node needs the control plane's authority for nodes, which only a lab gives away: run without --kubeconfig")
	}
	if err := Check(c.Proxy); err != nil {
		return err
	}
	h, err := findHost()
	if err != nil {
		return err
	}
	c.host = h
	if c.Lab == "" || c.Dir == "" {
		return fmt.Errorf("real node %s: its kubelet (kubedyno-lab) and its state folder must be named", c.Name)
	}
	if c.Pause == "" {
		if c.Pause, err = FindPause(c.Lab); err != nil {
			return err
		}
	}
	return nil
}

// Info is what a running node says of itself. Process numbers are this
// machine's.
type Info struct {
	Name          string `json:"name"`
	KubeletPID    int    `json:"kubeletPID"`
	ContainerdPID int    `json:"containerdPID"`
	// ProxyPID is kube-proxy's, and ProxyMode how it works; 0 where there is none.
	ProxyPID  int    `json:"proxyPID,omitempty"`
	ProxyMode string `json:"proxyMode,omitempty"`
	// KubeletURL leads through the keeper to the kubelet's own server. Its metrics
	// need `get` on nodes/metrics, its profiles on nodes/proxy.
	KubeletURL string `json:"kubeletURL"`
	CgroupRoot string `json:"cgroupRoot"`
	// Logs are files of this machine, by program.
	Logs         map[string]string `json:"logs"`
	ReadySeconds float64           `json:"readySeconds"` // from nothing to the Node's Ready
}

// A Node is a running node that ends with this process. Stop it in the end.
type Node struct {
	info  Info
	cfg   Config
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// exited has what ended by itself: the kubelet, kube-proxy, containerd, or the keeper.
	exited chan *proc.ExitError
	events chan event
	done   chan struct{}

	mu      sync.Mutex
	stopped bool
}

// Start starts a node and returns when its Node object is Ready. ctx bounds the
// start only; the node lives until Stop, or until this process ends.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder of real node %s: %w", cfg.Name, err)
	}
	n := &Node{cfg: cfg, exited: make(chan *proc.ExitError, 4), events: make(chan event, 16), done: make(chan struct{})}
	if err := n.startKeeper(); err != nil {
		return nil, errors.Join(fmt.Errorf("start real node %s: %w", cfg.Name, err), os.RemoveAll(cfg.Dir))
	}
	if err := n.await(ctx, "ready"); err != nil {
		return nil, errors.Join(fmt.Errorf("start real node %s: %w", cfg.Name, err), n.kill())
	}
	return n, nil
}

func (n *Node) startKeeper() error {
	log, err := os.OpenFile(filepath.Join(n.cfg.Dir, keeperLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{KeeperName}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is for us alone
	if n.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd = cmd
	go n.read(stdout)
	if err := json.NewEncoder(n.stdin).Encode(n.cfg); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// read passes on the keeper's events until it ends.
func (n *Node) read(stdout io.Reader) {
	defer close(n.done)
	defer close(n.exited)
	defer close(n.events)
	dec := json.NewDecoder(stdout)
	for {
		var ev event
		if dec.Decode(&ev) != nil {
			break
		}
		if ev.Event == "exited" {
			n.tell(&proc.ExitError{Component: ev.Component, Err: errors.New(ev.Error), Log: ev.Log})
			continue
		}
		select {
		case n.events <- ev:
		default: // nobody waits any more
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	err := n.cmd.Wait()
	n.mu.Lock()
	stopped := n.stopped
	n.mu.Unlock()
	if err == nil || stopped {
		return
	}
	// A keeper that was killed could not remove what the kernel leaves.
	n.sweep()
	n.tell(&proc.ExitError{Component: KeeperName, Err: err, Log: proc.Tail(filepath.Join(n.cfg.Dir, keeperLog), 20)})
}

func (n *Node) tell(e *proc.ExitError) {
	select {
	case n.exited <- e:
	default:
	}
}

func (n *Node) sweep() {
	if host, err := cgroup.Detect(); err == nil {
		_, _ = host.Sweep(proc.Alive)
	}
}

// await waits for an event by name; "failed" and the keeper's end are errors.
func (n *Node) await(ctx context.Context, name string) error {
	for {
		select {
		case ev, ok := <-n.events:
			switch {
			case !ok:
				return fmt.Errorf("its keeper ended: %s", proc.LastLine(proc.Tail(filepath.Join(n.cfg.Dir, keeperLog), 20)))
			case ev.Event == "failed":
				return errors.New(ev.Error)
			case ev.Event == name:
				if ev.Info != nil {
					n.info = *ev.Info
				}
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Info tells of the running node.
func (n *Node) Info() Info { return n.info }

// KeeperPID is the process that owns the node; its CPU is ours.
func (n *Node) KeeperPID() int { return n.cmd.Process.Pid }

// PIDs are the node's processes with a program of that name, in pods too,
// sorted by when they were started.
func (n *Node) PIDs(name string) []int { return descendants(n.cmd.Process.Pid, name) }

// Dial reaches what listens in the node's network: its own addresses, its pods'
// and Services.
func (n *Node) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	var d net.Dialer
	err = within(n.info.KubeletPID, func() error { conn, err = d.DialContext(ctx, network, address); return err })
	return conn, err
}

// KubeletClient speaks to the kubelet's server with a certificate of one of the
// authorities in ClientCAFile. The kubelet's own is not signed by anybody: it is
// known by the file that the kubelet has left.
func (n *Node) KubeletClient(cert tls.Certificate) (*http.Client, error) {
	path := n.cfg.file(kubeletSub, "pki", "kubelet.crt")
	served, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificate of the kubelet of %s: %w", n.info.Name, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(served) {
		return nil, fmt.Errorf("certificate of the kubelet of %s: there is none in %s", n.info.Name, path)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: n.info.Name, MinVersion: tls.VersionTLS12,
	}}}, nil
}

// ContainerdURL is the address of containerd's metrics in the node's network.
func (n *Node) ContainerdURL() string { return "http://" + criMetrics }

// DialContainerd reaches the socket that containerd gives its profiles on.
func (n *Node) DialContainerd(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root%s", n.info.ContainerdPID, debugSocket))
}

// ProxyURL is kube-proxy's address in the node's network.
func (n *Node) ProxyURL() string { return "http://127.0.0.1:" + proxyPort }

// Exited tells of a kubelet, kube-proxy, containerd or keeper that ended by itself; closed
// when the node has ended.
func (n *Node) Exited() <-chan *proc.ExitError { return n.exited }

// Stop ends the node in order and removes all that it was on this machine. Its
// Node object and pods stay in the API server, as those of a machine that is
// switched off. When ctx ends, what still runs is killed. It is safe to call twice.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
		return n.left()
	case <-ctx.Done():
		return n.kill()
	}
}

// kill closes the keeper's stdin, upon which it ends everything at once.
func (n *Node) kill() error {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	_ = n.stdin.Close()
	select {
	case <-n.done:
	case <-time.After(10 * time.Second):
		_ = n.cmd.Process.Kill() // its children die with it
		<-n.done
		n.sweep()
	}
	return n.left()
}

// left removes the state folder, should the keeper not have done it.
func (n *Node) left() error {
	if err := os.RemoveAll(n.cfg.Dir); err != nil {
		return fmt.Errorf("state folder of real node %s: %w", n.cfg.Name, err)
	}
	return nil
}

package realnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/cluster/proc"
)

// KeeperName and InsideName are the names under which a program that uses this
// package must call KeeperMain and InsideMain.
const (
	KeeperName = "kubedyno-node"
	InsideName = "kubedyno-node-inside"
)

// An event is one line of the keeper's stdout, and of the inside's to it.
type event struct {
	Event     string   `json:"event"` // ready, failed, exited; from inside also serving
	Component string   `json:"component,omitempty"`
	Error     string   `json:"error,omitempty"`
	Log       []string `json:"log,omitempty"`
	Info      *Info    `json:"info,omitempty"`
}

// KeeperMain owns one node: it reads its Config from the first line of stdin,
// makes the namespaces and what is outside of them, and returns when nothing of
// the node is left. It ends the node in order when ctx ends, and at once when
// stdin closes, which means that its owner is dead.
func KeeperMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	// The kernel kills the node when the thread that made it ends, so this one
	// must not end before we do.
	runtime.LockOSThread()
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(broken)

	dec := json.NewDecoder(stdin)
	k := &keeper{out: json.NewEncoder(stdout), log: stderr, began: time.Now()}
	if err := dec.Decode(&k.cfg); err != nil {
		return fmt.Errorf("read configuration from stdin: %w", err)
	}
	ownerGone := make(chan struct{})
	go func() {
		defer close(ownerGone)
		for {
			var ignored json.RawMessage
			if dec.Decode(&ignored) != nil {
				return
			}
		}
	}()
	err := k.run(ctx, ownerGone)
	if left := k.cleanUp(); left != nil {
		err = errors.Join(err, left)
	}
	if err != nil {
		k.emit(event{Event: "failed", Error: err.Error()})
	}
	return err
}

type keeper struct {
	cfg   Config
	log   io.Writer
	tree  *cgroup.Tree
	began time.Time

	mu     sync.Mutex
	out    *json.Encoder
	closer []io.Closer // listeners

	inside *exec.Cmd
	stdin  *os.File
	ended  chan struct{}
}

func (k *keeper) emit(ev event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.out.Encode(ev) // an owner that is gone shows on stdin
}

// run starts the node and waits for what ends it.
func (k *keeper) run(ctx context.Context, ownerGone <-chan struct{}) error {
	if err := k.cfg.check(); err != nil {
		return err
	}
	timeout := k.cfg.StartTimeout
	if timeout == 0 {
		timeout = defaultStartTimeout
	}
	starting, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %v", timeout))
	defer cancel()

	ticks, err := proc.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if k.tree, err = host.NewTree(k.cfg.Name, os.Getpid(), ticks); err != nil {
		return fmt.Errorf("%w: its cgroups cannot be made (%w): run on the machine itself, or in a container that may write /sys/fs/cgroup", ErrNotPossible, err)
	}
	if err := k.cfg.writeFiles(k.tree.Root()); err != nil {
		return err
	}
	events, err := k.enter()
	if err != nil {
		return err
	}
	pid := k.inside.Process.Pid
	info := Info{Name: k.cfg.Name, CgroupRoot: k.tree.Root(), Logs: map[string]string{"kubelet": k.cfg.file(kubeletLog), "containerd": k.cfg.file(containerdLog)}}
	if k.cfg.Proxy {
		info.Logs["kube-proxy"] = k.cfg.file(proxyLog)
	}
	kubelet, err := k.connect(pid)
	if err != nil {
		return err
	}
	info.KubeletURL = "https://" + kubelet
	// Inside they wait for their configuration, and so for the network.
	if err := json.NewEncoder(k.stdin).Encode(k.cfg); err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}

	ready := make(chan error, 1)
	for {
		select {
		case ev, ok := <-events:
			switch {
			case !ok:
				return fmt.Errorf("its first process ended: %s", proc.LastLine(proc.Tail(k.cfg.file(keeperLog), 20)))
			case ev.Event == "failed":
				return errors.New(ev.Error)
			case ev.Event == "serving":
				info.KubeletPID, info.ContainerdPID = k.pidOf("kubelet"), k.pidOf("containerd")
				if k.cfg.Proxy {
					info.ProxyPID, info.ProxyMode = k.pidOf("kube-proxy"), k.cfg.host.proxyMode
				}
				go func() { ready <- k.awaitReady(starting) }()
			case ev.Event == "exited":
				k.emit(ev)
			}
		case err := <-ready:
			if err != nil {
				return fmt.Errorf("its Node is not Ready: %w", err)
			}
			info.ReadySeconds = time.Since(k.began).Seconds()
			k.emit(event{Event: "ready", Info: &info})
		case <-ctx.Done():
			k.stop(events)
			return nil
		case <-ownerGone:
			return nil
		}
	}
}

// enter starts the first process of new namespaces. It sees this machine's
// files and devices, and none of its processes and links.
func (k *keeper) enter() (<-chan event, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{InsideName}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + filepath.Dir(k.cfg.host.containerd) + ":" + path, "HOME=/root", "TMPDIR=" + k.cfg.file("tmp")}
	cmd.Stderr = k.log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
	}
	in, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	k.stdin, cmd.Stdin = ours, in
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) {
			return nil, fmt.Errorf("%w: namespaces cannot be made (%w): run on the machine itself, or in a privileged container", ErrNotPossible, err)
		}
		return nil, err
	}
	k.inside, k.ended = cmd, make(chan struct{})
	events := make(chan event, 16)
	go func() {
		defer close(k.ended)
		dec := json.NewDecoder(out)
		for {
			var ev event
			if dec.Decode(&ev) != nil {
				break
			}
			events <- ev
		}
		close(events)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	return events, nil
}

// connect gives the node its address, the way to the API server, and us the
// way to the kubelet, whose address it returns. The node's network has no other
// link to ours than these two, which are this process: sockets stay in the
// network they were made in.
func (k *keeper) connect(pid int) (kubelet string, err error) {
	server, err := url.Parse(k.cfg.Server)
	if err != nil {
		return "", err
	}
	var inside []net.Listener // the API server, to those who are on the node
	err = within(pid, func() error {
		listen := func(address string) error {
			l, err := net.Listen("tcp", address)
			if err == nil {
				inside = append(inside, l)
			}
			return err
		}
		if err := linkUp("lo:node", k.cfg.address()); err != nil {
			return err
		}
		if err := listen(apiAddress); err != nil || !k.cfg.Proxy {
			return err
		}
		// What the Service `kubernetes` leads to.
		if err := linkUp("lo:api", endpointAddress); err != nil {
			return err
		}
		// A machine has a default route, by which packets to a Service begin their
		// way before kube-proxy's rules give them another. There is none here.
		if err := route(serviceRange); err != nil {
			return err
		}
		return listen(net.JoinHostPort(endpointAddress, server.Port()))
	})
	k.mu.Lock()
	for _, l := range inside {
		k.closer = append(k.closer, l)
	}
	k.mu.Unlock()
	if err != nil {
		return "", fmt.Errorf("network of the node: %w", err)
	}
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	k.closer = append(k.closer, outside)
	k.mu.Unlock()
	for _, l := range inside {
		go forward(l, func() (net.Conn, error) { return net.Dial("tcp", server.Host) })
	}
	there := net.JoinHostPort(k.cfg.address(), kubeletPort)
	go forward(outside, func() (conn net.Conn, err error) {
		err = within(pid, func() error { conn, err = net.Dial("tcp", there); return err })
		return conn, err
	})
	return outside.Addr().String(), nil
}

// awaitReady asks for the Node, as itself, until it is Ready.
func (k *keeper) awaitReady(ctx context.Context) error {
	rest, err := clientcmd.BuildConfigFromFlags(k.cfg.Server, k.cfg.file(kubeletSub, "kubeconfig"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(rest.CAData)
	pair, err := tls.X509KeyPair(rest.CertData, rest.KeyData)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: rest.ServerName, MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := k.askReady(ctx, client)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

func (k *keeper) askReady(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(k.cfg.Server, "/")+"/api/v1/nodes/"+k.cfg.Name, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", KeeperName)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET its Node: %s; %s", resp.Status, proc.LastLine(proc.Tail(k.cfg.file(kubeletLog), 20)))
	}
	var node v1.Node
	if err := json.NewDecoder(resp.Body).Decode(&node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			if c.Status == v1.ConditionTrue {
				return nil
			}
			return errors.New(c.Message)
		}
	}
	return errors.New("it has no condition Ready")
}

// pidOf finds a child of the inside by its name: it knows its children by
// numbers that are of its namespace.
func (k *keeper) pidOf(program string) int {
	if pids := descendants(k.inside.Process.Pid, program); len(pids) > 0 {
		return pids[0]
	}
	return 0
}

// descendants are the processes below one whose program has that name, sorted.
func descendants(pid int, program string) (found []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for f := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				continue
			}
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if first, _, _ := strings.Cut(string(line), "\x00"); filepath.Base(first) == program {
				found = append(found, child)
			}
			found = append(found, descendants(child, program)...)
		}
	}
	slices.Sort(found)
	return found
}

// stop ends the node in order.
func (k *keeper) stop(events <-chan event) {
	_ = k.inside.Process.Signal(syscall.SIGTERM)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-grace.C:
			return
		}
	}
}

// cleanUp ends what is left and removes what the kernel does not.
func (k *keeper) cleanUp() error {
	if k.inside != nil {
		_ = k.inside.Process.Kill() // the first process: all others go with it
		<-k.ended
		_ = k.stdin.Close()
	}
	k.mu.Lock()
	for _, c := range k.closer {
		_ = c.Close()
	}
	k.mu.Unlock()
	var err error
	if k.tree != nil {
		err = k.tree.Remove()
	}
	if k.cfg.Dir != "" {
		err = errors.Join(err, os.RemoveAll(k.cfg.Dir))
	}
	return err
}

// within runs f on a thread that is in the network of another process. The
// thread is thrown away: the goroutine ends locked to it.
func within(pid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network of process %d: %w", pid, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// endpointAddress is what a lab's API server gives as its own, of the range for
// documentation (RFC 5737): a loopback address is refused as an endpoint.
const endpointAddress = "203.0.113.1"

// serviceRange has a lab's Services (--service-cluster-ip-range).
const serviceRange = "10.96.0.0/12"

// route sends a range of addresses to the loopback link, which is the one that
// is there before pods are.
func route(prefix string) error {
	to, err := netip.ParsePrefix(prefix)
	if err != nil {
		return err
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	attribute := func(kind uint16, value []byte) []byte {
		b := order.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
		return append(order.AppendUint16(b, kind), value...)
	}
	message := []byte{unix.AF_INET, byte(to.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0}
	message = append(message, attribute(unix.RTA_DST, to.Addr().AsSlice())...)
	message = append(message, attribute(unix.RTA_OIF, order.AppendUint32(nil, uint32(lo.Index)))...)
	header := order.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(message)))
	header = order.AppendUint16(header, unix.RTM_NEWROUTE)
	header = order.AppendUint16(header, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	header = order.AppendUint64(header, 0) // sequence and port
	if err := unix.Sendto(fd, append(header, message...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("route to %s: %w", prefix, err)
	}
	answer := make([]byte, 512)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("route to %s: the kernel's answer has %d bytes: %w", prefix, n, err)
	}
	if code := int32(order.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("route to %s: %w", prefix, syscall.Errno(-code))
	}
	return nil
}

// linkUp brings up the loopback link and gives it one more address, by an alias:
// a kubelet refuses a loopback address, not the loopback link.
func linkUp(name, address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring up the loopback link: %w", err)
	}
	alias, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr(net.ParseIP(address).To4()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return nil
}

// forward joins each connection that l accepts to one that dial makes.
func forward(l net.Listener, dial func() (net.Conn, error)) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := dial()
			if err != nil {
				return
			}
			defer to.Close()
			done := make(chan struct{}, 2)
			for _, pair := range [2][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1]) // splice(2): the bytes stay in the kernel
					done <- struct{}{}
				}()
			}
			<-done // either end closing ends both
		}()
	}
}

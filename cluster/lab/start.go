package lab

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/cluster/proc"
	"github.com/kubedyno/kubedyno/cluster/slow"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
)

// auditPolicy keeps who asked for what and when, and no bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// Ports of a lab, as the flags name them.
var portNames = []string{
	"api-port", "etcd-client-port", "etcd-peer-port", "etcd-metrics-port",
	"kube-controller-manager-port", "kube-scheduler-port",
}

// versionTimeout bounds the question what a program is.
const versionTimeout = 10 * time.Second

// portAttempts is how often ports are chosen: once, and twice again when
// somebody took one in between.
const portAttempts = 3

// start starts the control plane and tells so. abort ends ctx when a component
// that was already up dies while the next one starts.
func (k *keeper) start(ctx context.Context, abort context.CancelCauseFunc) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(k.cfg.StartSeconds*float64(time.Second)),
		fmt.Errorf("the lab's start took longer than %.0f s", k.cfg.StartSeconds))
	defer cancel()

	if err := k.makeGroups(); err != nil {
		return err
	}
	dir := k.state.Dir
	var ids *pki
	var version labVersion
	var g errgroup.Group
	g.Go(func() (err error) {
		ids, err = newPKI(filepath.Join(dir, "pki"))
		return err
	})
	g.Go(func() (err error) {
		version, err = askVersion(ctx, k.cfg.Lab)
		return err
	})
	own := k.cfg.Overrides[APIServer].Binary
	var notes string // the variable by which a program of the user's own logs requests
	g.Go(func() error {
		if own != "" {
			// A program that is not one of ours has no such variable.
			v, _ := askVersion(ctx, own)
			notes = v.RequestLog
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if own != "" {
		version.RequestLog = notes
	}
	if version.RequestLog == "" {
		if err := os.WriteFile(filepath.Join(dir, "audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
			return err
		}
	}

	for attempt := 1; ; attempt++ {
		plan, err := k.plan(ids, version)
		if err != nil {
			return err
		}
		err = k.startAll(ctx, abort, plan)
		if err == nil {
			return nil
		}
		if attempt == portAttempts || !portTaken(err) || ctx.Err() != nil {
			return err
		}
		k.log.Warn("a port was taken meanwhile; choosing others", "error", err)
		k.killAll()
		if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
			return err
		}
	}
}

// makeGroups makes the cgroups. A quota that cannot be had refuses the start
// before anything runs.
func (k *keeper) makeGroups() error {
	var limited []string
	for name, o := range k.cfg.Overrides {
		if o.CPU > 0 {
			limited = append(limited, fmt.Sprintf("%s.cpu=%g", name, o.CPU))
		}
	}
	if k.cfg.CPU > 0 {
		limited = append(limited, fmt.Sprintf("cluster.cpu=%g", k.cfg.CPU))
	}
	slices.Sort(limited)
	host, err := cgroup.Detect()
	if err == nil {
		k.set, err = host.NewSet(k.state.Name, k.state.Keeper.PID, k.state.Keeper.Ticks, len(limited) > 0)
	}
	if err == nil && k.cfg.CPU > 0 {
		err = k.set.Share(together, k.cfg.CPU)
	}
	if err == nil {
		for name := range k.cfg.Overrides { // so that every refusal comes now
			if _, _, err = k.join(name); err != nil {
				break
			}
		}
	}
	if err != nil {
		if len(limited) > 0 {
			return fmt.Errorf("%s: a CPU quota needs a cgroup, and none can be made here (%w); run as root, or leave the quota out", strings.Join(limited, ", "), err)
		}
		k.log.Warn("no cgroups; the lab is paused by signals", "error", err)
		k.set = nil
	}
	k.update(func(s *State) {
		s.Freezer = "signals"
		if k.set != nil {
			s.Cgroups = k.set.Dirs()
			s.Freezer = cmp.Or(k.set.CanFreeze(), s.Freezer)
		}
	})
	return nil
}

// together is the group of the components, where they share a quota.
const together = "control-plane"

// join returns the cgroups of one child.
func (k *keeper) join(name string) (dirs []string, stat string, err error) {
	if k.set == nil {
		return nil, "", nil
	}
	group := name
	if k.cfg.CPU > 0 && slices.Contains(components, name) {
		group = together + "/" + name
	}
	dirs, stat, err = k.set.Join(group, k.cfg.Overrides[name].CPU)
	if err != nil {
		return nil, "", fmt.Errorf("cgroup of %s: %w", name, err)
	}
	return dirs, stat, nil
}

// labVersion is what kubedyno-lab says of itself. RequestLog and Metrics are the
// environment variables that name the file of the API server's log of requests,
// and the socket at which a component tells what has changed of its metrics.
type labVersion struct{ Kubernetes, Etcd, RequestLog, Metrics string }

// longestSocket is how long the path of a Unix socket may be (sun_path in
// unix(7), with the byte that ends it).
const longestSocket = 107

func askVersion(ctx context.Context, path string) (labVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	var v labVersion
	cmd := exec.CommandContext(ctx, path, "version", "-o", "json")
	cmd.Args[0] = LabBinary
	cmd.Env = childEnv(nil)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		return v, fmt.Errorf("%s is not the program we need: its version: %w", path, err)
	}
	return v, nil
}

// A plan is everything that is decided before the first component starts.
type plan struct {
	children map[string]childConfig
	cp       *cluster.ControlPlane
	cgroups  map[string][]string // of the owner's own processes
}

func (k *keeper) plan(ids *pki, version labVersion) (*plan, error) {
	dir := k.state.Dir
	requests := "requests.log"
	if version.RequestLog == "" {
		requests = "audit.log"
	}
	ports, err := k.ports(portNames)
	if err != nil {
		return nil, err
	}
	vars := map[string]string{
		"dir":         dir,
		"pki":         filepath.Join(dir, "pki"),
		"kubeconfigs": filepath.Join(dir, "kubeconfig"),
	}
	url := map[string]string{}
	for name, port := range ports {
		vars[name] = strconv.Itoa(port)
		url[name] = "https://127.0.0.1:" + vars[name]
	}
	ways, err := k.lengthenWays(vars)
	if err != nil {
		return nil, err
	}
	server := func(user string) string {
		if port, far := ways[user]; far {
			return "https://127.0.0.1:" + port
		}
		return url["api-port"]
	}
	if err := ids.writeKubeconfigs(vars["kubeconfigs"], k.state.Name, server); err != nil {
		return nil, err
	}
	file := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	p := &plan{
		children: map[string]childConfig{},
		cgroups:  map[string][]string{},
		cp: &cluster.ControlPlane{
			Kind: cluster.KindLab, Name: k.state.Name, Server: url["api-port"],
			Version: version.Kubernetes, Profile: k.state.Profile, CPU: k.cfg.CPU,
			RequestLog: file(requests),
			Kubeconfigs: cluster.Kubeconfigs{
				Admin: file("kubeconfig", "admin"), Load: file("kubeconfig", "load"), Collect: file("kubeconfig", "collect"),
			},
			ClientCert: file("pki", "collect.crt"), ClientKey: file("pki", "collect.key"), CA: file("pki", "servers.crt"),
			NodeCA:    cluster.NodeCA{CertFile: file("pki", "ca.crt"), KeyFile: file("pki", "ca.key")},
			KeeperPID: k.state.Keeper.PID, StateDir: dir,
		},
	}
	client, err := mutualTLS(p.cp)
	if err != nil {
		return nil, err
	}
	flags, err := ProfileFlags(k.state.Profile)
	if err != nil {
		return nil, err
	}
	if version.RequestLog == "" {
		flags = slices.Concat(flags, auditing)
	}
	for _, c := range []struct {
		name, metrics, pprof, ready, version string
		grace                                time.Duration
	}{
		// etcd serves profiles on its client port only. It is asked whether it
		// lives: ready means an elected leader, a second later, and the API
		// server waits for that itself while it starts.
		{Etcd, url["etcd-metrics-port"], url["etcd-client-port"], "/livez", version.Etcd, 3 * time.Second},
		{APIServer, url["api-port"], url["api-port"], "/readyz", version.Kubernetes, 5 * time.Second},
		{ControllerManager, url["kube-controller-manager-port"], url["kube-controller-manager-port"], "/healthz", version.Kubernetes, 3 * time.Second},
		{Scheduler, url["kube-scheduler-port"], url["kube-scheduler-port"], "/healthz", version.Kubernetes, 3 * time.Second},
	} {
		o := k.cfg.Overrides[c.name]
		if k.leftOut(c.name) {
			continue
		}
		if port, far := ways[Etcd]; c.name == APIServer && far {
			vars = maps.Clone(vars)
			vars["etcd-client-port"] = port
		}
		args, err := arguments(c.name, flags, o, vars)
		if err == nil && len(o.Config) > 0 {
			args, err = configured(o.Config, args, file(c.name+".json"))
		}
		if err != nil {
			return nil, err
		}
		dirs, stat, err := k.join(c.name)
		if err != nil {
			return nil, err
		}
		binary := k.cfg.Lab
		if o.Binary != "" {
			binary, c.version = o.Binary, ""
		}
		env := maps.Clone(o.Env)
		ours := func(variable, value, what string) error {
			if _, set := env[variable]; set {
				return fmt.Errorf("%s.env.%s cannot be set: kubedyno reads the %s that it names", c.name, variable, what)
			}
			if env == nil {
				env = map[string]string{}
			}
			env[variable] = value
			return nil
		}
		if c.name == APIServer && version.RequestLog != "" {
			if err := ours(version.RequestLog, p.cp.RequestLog, "log of requests"); err != nil {
				return nil, err
			}
		}
		// A program of the user's own is asked over its own port.
		socket := file(c.name + ".metrics")
		if o.Binary != "" || version.Metrics == "" || len(socket) > longestSocket {
			socket = ""
		} else if err := ours(version.Metrics, socket, "socket"); err != nil {
			return nil, err
		}
		p.children[c.name] = childConfig{SyncDelay: o.SyncDelay, Config: proc.Config{
			Name: c.name, Path: binary, Argv0: c.name, Args: args, Env: childEnv(env), Dir: dir,
			LogFile: file("logs", c.name+".log"), Cgroups: dirs, Grace: c.grace,
			Ready: asks(client, c.metrics+c.ready), Files: o.Files,
		}}
		p.cp.Components = append(p.cp.Components, cluster.Component{
			Name: c.name, MetricsURL: c.metrics + "/metrics", MetricsSocket: socket, PprofURL: c.pprof + "/debug/pprof",
			LogFile: file("logs", c.name+".log"), Binary: binary, Args: args,
			Env: slices.Sorted(maps.Keys(o.Env)), Version: c.version, CPU: o.CPU, Cgroup: stat,
		})
	}
	for _, name := range harness {
		if k.cfg.Overrides[name].CPU == 0 {
			continue
		}
		// Our own processes are not frozen with the lab: only what limits them.
		if _, stat, err := k.join(name); err != nil {
			return nil, err
		} else if stat != "" {
			p.cgroups[name] = []string{stat}
		}
	}
	return p, nil
}

// lengthenWays opens a proxy for each way that is to be longer: in front of etcd for
// the API server, and in front of the API server for one of its clients. It returns
// their ports by whose latency it is.
func (k *keeper) lengthenWays(vars map[string]string) (map[string]string, error) {
	ways := map[string]string{}
	var opened []*slow.Proxy
	for name, target := range map[string]string{Etcd: "etcd-client-port", ControllerManager: "api-port", Scheduler: "api-port"} {
		o := k.cfg.Overrides[name]
		if o.Latency == 0 {
			continue
		}
		proxy, err := slow.Listen(o.Latency)
		if err != nil {
			for _, p := range opened {
				_ = p.Close()
			}
			return nil, err
		}
		opened = append(opened, proxy)
		go proxy.Serve(context.Background(), "127.0.0.1:"+vars[target])
		ways[name] = strconv.Itoa(proxy.Port())
	}
	k.mu.Lock()
	before := k.proxies
	k.proxies = opened
	k.mu.Unlock()
	for _, p := range before { // of an attempt with other ports
		_ = p.Close()
	}
	return ways, nil
}

// arguments are a component's flags after its overrides, in the profile's
// order, what the profile has not at the end.
func arguments(name string, flags []Flag, o Override, vars map[string]string) ([]string, error) {
	var args []string
	rest := maps.Clone(o.Args)
	for _, f := range flags {
		if f.Component != name {
			continue
		}
		value, err := expand(f.Value, vars)
		if err != nil {
			return nil, err
		}
		if own, ok := rest[f.Name]; ok {
			delete(rest, f.Name)
			if own == nil {
				continue
			}
			value = *own
		}
		args = append(args, "--"+f.Name+"="+value)
	}
	return append(args, overrideArgs(Override{Args: rest})...), nil
}

// mutualTLS is a client with the collect identity, which every component lets in.
func mutualTLS(cp *cluster.ControlPlane) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(cp.ClientCert, cp.ClientKey)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(cp.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", cp.CA)
	}
	return &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			// A kept connection would hold up the component's end.
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
		},
	}, nil
}

// asks is a question of readiness: does this URL answer 200?
func asks(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, notOK(string(body)))
	}
}

// notOK finds in a /readyz answer the checks that fail.
func notOK(body string) string {
	var failing []string
	for line := range strings.Lines(body) {
		if check, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			name, _, _ := strings.Cut(check, " ")
			failing = append(failing, name)
		}
	}
	if len(failing) > 0 {
		return "waiting for " + strings.Join(failing, ", ")
	}
	return shorten(body)
}

// startAll starts the components: etcd, the API server, and then side by side
// what talks to it.
func (k *keeper) startAll(ctx context.Context, abort context.CancelCauseFunc, plan *plan) error {
	died := func(exit *proc.ExitError) { abort(exit) }
	for _, name := range []string{Etcd, APIServer} {
		if k.leftOut(name) {
			return k.serving(ctx, plan, Event{})
		}
		p, err := k.launch(ctx, plan.children[name], died)
		if err != nil {
			return err
		}
		fill(plan.cp, name, p)
	}
	apiReady := time.Now()
	k.update(func(s *State) { s.APIReady = apiReady.Sub(k.began).Seconds() })
	ready := Event{APIReady: apiReady, APIReadySeconds: apiReady.Sub(k.began).Seconds()}
	k.out.emit(Event{Event: EventAPIReady, APIReady: ready.APIReady, APIReadySeconds: ready.APIReadySeconds})

	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.prepareAPI(gctx, plan.cp) })
	beside := slices.DeleteFunc([]string{ControllerManager, Scheduler}, k.leftOut)
	running := make([]*proc.Process, len(beside))
	for i, name := range beside {
		group.Go(func() (err error) {
			running[i], err = k.launch(gctx, plan.children[name], died)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, name := range beside {
		fill(plan.cp, name, running[i])
	}
	return k.serving(ctx, plan, ready)
}

// leftOut says whether a component is not to be started.
func (k *keeper) leftOut(name string) bool {
	return k.cfg.Overrides[name].Off || k.cfg.Last != "" && rank(name) > rank(k.cfg.Last)
}

// serving tells that everything is up.
func (k *keeper) serving(ctx context.Context, plan *plan, ready Event) error {
	if ctx.Err() != nil { // one died at the last moment
		return context.Cause(ctx)
	}
	k.update(func(s *State) {
		s.Phase = PhaseReady
		s.ControlPlane = plan.cp
	})
	ready.Event, ready.ControlPlane, ready.Cgroups = EventReady, plan.cp, plan.cgroups
	k.out.emit(ready)
	return nil
}

func fill(cp *cluster.ControlPlane, name string, p *proc.Process) {
	c := cp.Component(name)
	c.PID, c.Instance, c.Started = p.PID(), p.Instance(), p.Started()
}

// prepareAPI asks the server who it is and lets our own users in.
func (k *keeper) prepareAPI(ctx context.Context, cp *cluster.ControlPlane) error {
	cfg, err := cp.RESTConfig("admin")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the server's version: %w", err)
	}
	cp.Version = info.GitVersion
	if err := grant(ctx, client); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return errors.Join(cause, err)
		}
		return err
	}
	return nil
}

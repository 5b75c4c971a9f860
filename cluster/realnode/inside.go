package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/cluster/proc"
)

// InsideMain is the first process of a node's namespaces, and the second, its
// child: the first reaps what loses its parent, and the second makes the node,
// undisturbed by that, as who starts children with os/exec must be.
func InsideMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if os.Getpid() == 1 {
		return reap(stdin, stdout, stderr)
	}
	in := &inside{out: json.NewEncoder(stdout)}
	if err := json.NewDecoder(stdin).Decode(&in.cfg); err != nil {
		return nil // our keeper ended before it had anything for us
	}
	err := in.run(ctx)
	if err != nil {
		in.emit(event{Event: "failed", Error: err.Error()})
	}
	return err
}

// reap starts this program again and is process 1 to it until it ends.
func reap(stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{InsideName}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for range told {
			_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
		}
	}()
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid == cmd.Process.Pid || err != nil {
			return nil // what is left dies with process 1
		}
	}
}

type inside struct {
	cfg Config
	mu  sync.Mutex
	out *json.Encoder
}

func (in *inside) emit(ev event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	_ = in.out.Encode(ev) // without a keeper we are about to be killed
}

func (in *inside) run(ctx context.Context) error {
	var err error
	if in.cfg.host, err = findHost(); err != nil {
		return err
	}
	if err := in.arrange(); err != nil {
		return err
	}
	spawner := proc.NewSpawner()
	defer spawner.Close()

	containerd, err := spawner.Start(ctx, proc.Config{
		Name: "containerd", Path: in.cfg.host.containerd, Args: []string{"--config", in.cfg.file(criFile)},
		LogFile: in.cfg.file(containerdLog), Dir: in.cfg.Dir, Grace: 2 * time.Second,
		Ready: func(ctx context.Context) error { return in.ctr(ctx, "version") },
		// The question is a process of its own.
		ReadyEvery: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer containerd.Stop(context.Background())
	images, err := in.cfg.images()
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := in.importImage(ctx, in.cfg.file(i.file())); err != nil {
			return err
		}
	}
	kubelet, err := spawner.Start(ctx, proc.Config{
		Name: "kubelet", Path: in.cfg.Lab, Argv0: "kubelet", Args: in.kubeletArgs(),
		LogFile: in.cfg.file(kubeletLog), Dir: in.cfg.Dir, Grace: 3 * time.Second,
		Ready: healthy,
	})
	if err != nil {
		return err
	}
	defer kubelet.Stop(context.Background())
	all := []*proc.Process{containerd, kubelet}
	if in.cfg.Proxy {
		proxy, err := spawner.Start(ctx, proc.Config{
			Name: "kube-proxy", Path: in.cfg.Lab, Argv0: "kube-proxy", Args: in.proxyArgs(),
			LogFile: in.cfg.file(proxyLog), Dir: in.cfg.Dir, Grace: 2 * time.Second,
			Ready: func(ctx context.Context) error { return answers(ctx, "http://127.0.0.1:10256/healthz") },
		})
		if err != nil {
			return err
		}
		defer proxy.Stop(context.Background())
		all = append(all, proxy)
	}
	in.emit(event{Event: "serving"})
	for _, p := range all {
		go func() {
			<-p.Done()
			if !p.Stopping() {
				e := p.Exit()
				in.emit(event{Event: "exited", Component: p.Name(), Error: e.Err.Error(), Log: e.Log})
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// arrange makes the file system that the node sees.
func (in *inside) arrange() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	h := in.cfg.host
	if err := cover([]string{"/run", "/var/lib", "/var/log", "/opt"},
		[]string{in.cfg.Dir, in.cfg.Lab, filepath.Dir(h.containerd), filepath.Dir(h.ctr), h.runc, h.plugins}); err != nil {
		return err
	}
	for sub, dir := range map[string]string{kubeletSub: kubeletDir, containerdSub: containerdDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(in.cfg.file(sub), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	return in.pretend()
}

// cover lays an empty file system over each of dirs, in which the node's
// programs leave their traces, and brings back what of needed they would hide.
func cover(dirs, needed []string) error {
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // not here: nothing will be left in it
		}
		held := map[string]*os.File{}
		for _, path := range needed {
			if path, err = filepath.EvalSymlinks(path); err == nil && strings.HasPrefix(path, real+"/") && held[path] == nil {
				f, err := os.OpenFile(path, unix.O_PATH, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				held[path] = f
			}
		}
		if err := unix.Mount("tmpfs", real, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("cover %s: %w", real, err)
		}
		for path, f := range held {
			info, err := f.Stat()
			if err != nil {
				return err
			}
			if info.IsDir() {
				err = os.MkdirAll(path, 0o755)
			} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, nil, 0o600)
			}
			if err == nil {
				err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path, "", unix.MS_BIND, "")
			}
			if err != nil {
				return fmt.Errorf("keep %s: %w", path, err)
			}
		}
	}
	return nil
}

// settings are what a kubelet makes of the kernel's when they differ
// (pkg/kubelet/cm, setupKernelTunables). They are the whole machine's, so the
// node is shown these values and the machine keeps its own.
var settings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func (in *inside) pretend() error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		target := "/proc/sys/" + name
		if !exists(target) {
			continue
		}
		file := in.cfg.file("sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(settings[name]+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", target, err)
		}
	}
	return nil
}

func (in *inside) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, in.cfg.host.ctr, append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (in *inside) importImage(ctx context.Context, file string) error {
	err := in.ctr(ctx, "images", "import", file)
	if err != nil {
		// containerd 2 imports through a service that may be missing, unless told.
		if again := in.ctr(ctx, "images", "import", "--local", file); again != nil {
			return fmt.Errorf("import the image %s: %w", filepath.Base(file), errors.Join(err, again))
		}
	}
	return nil
}

// proxyArgs are kubeadm's settings, without those that would change limits of
// connection tracking, which are the whole machine's.
func (in *inside) proxyArgs() []string {
	return []string{
		"--kubeconfig=" + in.cfg.file(proxyFile),
		"--hostname-override=" + in.cfg.Name,
		"--proxy-mode=" + in.cfg.host.proxyMode,
		"--cluster-cidr=" + in.cfg.podRange(),
		"--metrics-bind-address=127.0.0.1:" + proxyPort,
		"--profiling",
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}
}

func (in *inside) kubeletArgs() []string {
	args := []string{
		"--config=" + kubeletDir + "/config.yaml",
		"--kubeconfig=" + kubeletDir + "/kubeconfig",
		"--cert-dir=" + kubeletDir + "/pki",
		"--hostname-override=" + in.cfg.Name,
		"--node-ip=" + in.cfg.address(),
	}
	if len(in.cfg.Labels) > 0 {
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(in.cfg.Labels)) {
			labels = append(labels, k+"="+in.cfg.Labels[k])
		}
		args = append(args, "--node-labels="+strings.Join(labels, ","))
	}
	if len(in.cfg.Taints) > 0 {
		args = append(args, "--register-with-taints="+strings.Join(in.cfg.Taints, ","))
	}
	return args
}

// healthy asks the kubelet's health endpoint.
func healthy(ctx context.Context) error { return answers(ctx, "http://127.0.0.1:10248/healthz") }

func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

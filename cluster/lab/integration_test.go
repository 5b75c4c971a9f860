package lab_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/cluster/proc"
)

// The test binary plays kubedyno's parts: the keeper, the helper that joins
// cgroups, simulated nodes, and a command that owns a lab.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, map[string]labtest.Role{lab.KeeperName: keeperMain, lab.Hollow: hollowMain, "owner": ownerMain}); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// keeperMain is a keeper with portsForTest.
func keeperMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	return lab.KeeperMainWith(ctx, stdin, stdout, stderr, portsForTest())
}

// portsForTest chooses $TAKEN_PORT first for $TAKEN_NAME, as if somebody had
// taken it after the choice.
func portsForTest() func([]string) (map[string]int, error) {
	taken, _ := strconv.Atoi(os.Getenv("TAKEN_PORT"))
	return func(names []string) (map[string]int, error) {
		ports, err := lab.FreePorts(names)
		if taken != 0 && err == nil {
			ports[os.Getenv("TAKEN_NAME")] = taken
			taken = 0
		}
		return ports, err
	}
}

// hollowMain is the protocol of simulated nodes and nothing else.
func hollowMain(ctx context.Context, stdin io.Reader, stdout, _ io.Writer) error {
	var config struct{ Say, Die string }
	if err := json.NewDecoder(stdin).Decode(&config); err != nil {
		return err
	}
	if config.Die != "" {
		return errors.New(config.Die)
	}
	fmt.Fprintln(stdout, `{"event":"listening","metricsURL":"http://127.0.0.1:1/metrics"}`)
	fmt.Fprintf(stdout, "{\"event\":\"said\",\"what\":%q}\n", config.Say)
	<-ctx.Done()
	return nil
}

// ownerMain starts a lab and waits to be killed.
func ownerMain(ctx context.Context, _ io.Reader, stdout, _ io.Writer) error {
	l, err := lab.Start(ctx, lab.Config{Name: os.Getenv("NAME"), Lab: os.Getenv("LAB"), StateRoot: os.Getenv("ROOT")})
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready", l.KeeperPID())
	time.Sleep(time.Hour)
	return nil
}

// deadline is how long after a kill a child may still be there.
const deadline = 6 * time.Second

// config is a Config of a lab in a folder of the test's own, of which nothing
// may be left in the end.
func config(t *testing.T) lab.Config {
	t.Helper()
	root, err := os.MkdirTemp("", "kubedyno-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if labs, _ := lab.List(root); len(labs) > 0 {
			t.Errorf("%d labs are left behind", len(labs))
			for _, s := range labs {
				_ = s.Down(context.Background())
			}
		}
		nothingLeft(t, root)
		os.RemoveAll(root)
	})
	begin := time.Now()
	return lab.Config{
		Lab: labtest.Binary(t), StateRoot: root,
		OnEvent: func(ev lab.Event) {
			t.Logf("%6.2f s: %s %s pid=%d %.2fs killed=%v %s %s", ev.Time.Sub(begin).Seconds(),
				ev.Event, ev.Component, ev.PID, ev.Seconds, ev.Killed, ev.Error, strings.Join(ev.Log, "\n"))
		},
	}
}

func start(t *testing.T, cfg lab.Config) *lab.Lab {
	t.Helper()
	l, err := lab.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func up(t *testing.T, cfg lab.Config) *lab.State {
	t.Helper()
	s, err := lab.Up(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// processesOf lists what runs for labs below root: components have it in their
// arguments, all have it as working directory.
func processesOf(root string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		ticks, err := proc.StartTime(pid)
		if err != nil || !proc.Alive(pid, ticks) {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.HasPrefix(cwd, root) || bytes.Contains(cmdline, []byte(root)) {
			name, _, _ := strings.Cut(string(cmdline), "\x00")
			found = append(found, fmt.Sprintf("%d %s", pid, name))
		}
	}
	return found
}

func cgroupsOf(name string) []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubedyno-", "/sys/fs/cgroup/*/kubedyno-"} {
		m, _ := filepath.Glob(pattern + name + "-*")
		found = append(found, m...)
	}
	return found
}

// within waits for something that must become true before the deadline.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > d {
			t.Errorf("not within %v: %s", d, what)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%s: after %v", what, time.Since(begin).Round(time.Millisecond))
}

func nothingLeft(t *testing.T, root string) {
	t.Helper()
	within(t, deadline, "no process is left", func() bool { return len(processesOf(root)) == 0 })
	if left := processesOf(root); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func client(t *testing.T, cp *cluster.ControlPlane, role string) kubernetes.Interface {
	t.Helper()
	cfg, err := cp.RESTConfig(role)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get reads a URL with a certificate, "" for none.
func get(t *testing.T, cp *cluster.ControlPlane, cert, url string) (int, string) {
	t.Helper()
	pem, err := os.ReadFile(cp.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	conf := &tls.Config{RootCAs: pool}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, strings.TrimSuffix(cert, ".crt")+".key")
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	tr := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// overSocket is the whole answer of a component's socket for its metrics.
func overSocket(t *testing.T, path string) string {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get("http://lab/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") == "" {
		t.Fatalf("%s: %s, ETag %q, %v", path, resp.Status, resp.Header.Get("ETag"), err)
	}
	return string(body)
}

// families are the names in an answer in the text format, without those of the
// handler of /metrics itself.
func families(t *testing.T, text string) (names []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "#" && f[1] == "TYPE" && !strings.HasPrefix(f[2], "promhttp_") {
			names = append(names, f[2])
		}
	}
	if len(names) < 50 {
		t.Errorf("%d families: %.200s", len(names), text)
	}
	return names
}

// without is a without what is in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// One lab for everything that only looks, and a second one beside it.
func TestStock(t *testing.T) {
	cfg := config(t)
	cfg.Name = "stock"
	l := start(t, cfg)
	cp := l.ControlPlane()
	t.Logf("API ready after %v", l.APIReady())
	ctx := t.Context()

	t.Run("identities", func(t *testing.T) {
		for role, want := range map[string]string{"admin": "kubernetes-admin", "load": "kubedyno-load", "collect": "kubedyno-collect"} {
			review, err := client(t, cp, role).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(role, err)
			}
			user := review.Status.UserInfo
			if user.Username != want {
				t.Errorf("%s is %s, want %s", role, user.Username, want)
			}
			if got := slices.Contains(user.Groups, "system:masters"); got != (role == "admin") {
				t.Errorf("%s: groups %q", role, user.Groups)
			}
		}
	})

	t.Run("load may create what it needs and nothing more", func(t *testing.T) {
		c := client(t, cp, "load")
		if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Verbs: []string{"get"}, Resources: []string{"nodes/proxy"}}}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("load may make a role that may do more than itself: %v", err)
		}
		for role, may := range map[string]bool{"view": true, "cluster-admin": false} {
			_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "load-gives-" + role},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "somebody"}}}, metav1.CreateOptions{})
			if may && err != nil || !may && !apierrors.IsForbidden(err) {
				t.Errorf("load binds role %s: %v", role, err)
			}
		}
	})

	t.Run("collect may look and not touch", func(t *testing.T) {
		c := client(t, cp, "collect")
		if _, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := c.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("collect may read secrets: %v", err)
		}
		_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "no"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("collect may create: %v", err)
		}
	})

	t.Run("components", func(t *testing.T) {
		load := filepath.Join(cp.StateDir, "pki", "load.crt")
		for _, c := range cp.Components {
			if code, body := get(t, cp, cp.ClientCert, c.MetricsURL); code != 200 || !strings.Contains(body, "go_sched_gomaxprocs_threads") && !strings.Contains(body, "process_cpu_seconds_total") {
				t.Errorf("%s metrics: %d %.200s", c.Name, code, body)
			}
			if code, body := get(t, cp, cp.ClientCert, c.PprofURL+"/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
				t.Errorf("%s pprof: %d %.200s", c.Name, code, body)
			}
			// The socket has what /metrics has. Families come with their first use, and never go.
			_, before := get(t, cp, cp.ClientCert, c.MetricsURL)
			socket := families(t, overSocket(t, c.MetricsSocket))
			_, after := get(t, cp, cp.ClientCert, c.MetricsURL)
			if missing := without(families(t, before), socket); len(missing) > 0 {
				t.Errorf("%s: not at the socket: %q", c.Name, missing)
			}
			if more := without(socket, families(t, after)); len(more) > 0 {
				t.Errorf("%s: at the socket only: %q", c.Name, more)
			}
			// etcd refuses in the handshake: code 0.
			if code, body := get(t, cp, load, c.MetricsURL); code == 200 {
				t.Errorf("%s shows its metrics to load: %d %.100s", c.Name, code, body)
			}
			if code, body := get(t, cp, "", c.MetricsURL); code == 200 {
				t.Errorf("%s shows its metrics to anybody: %d %.100s", c.Name, code, body)
			}
			cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.PID))
			if err != nil {
				t.Error(err)
			}
			want := strings.Join(append([]string{c.Name}, c.Args...), "\x00") + "\x00"
			if string(cmdline) != want {
				t.Errorf("%s runs as\n%q, want\n%q", c.Name, cmdline, want)
			}
			if !strings.HasPrefix(c.Instance, fmt.Sprintf("%s@%d@", c.Name, c.PID)) || c.Version == "" || c.Started.IsZero() {
				t.Errorf("%+v", c)
			}
		}
		if code, _ := get(t, cp, "", cp.Server+"/version"); code != 401 {
			t.Errorf("anybody is answered %d", code)
		}
	})

	t.Run("flags are the profile's and no more", func(t *testing.T) {
		flags, err := lab.ProfileFlags("stock")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cp.Components {
			var want, got []string
			for _, f := range flags {
				if f.Component == c.Name {
					want = append(want, f.Name)
				}
			}
			for _, a := range c.Args {
				name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				got = append(got, name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", c.Name, got, want)
			}
			for _, no := range []string{"config", "kube-api-qps", "kube-api-burst"} {
				if slices.Contains(got, no) {
					t.Errorf("stock sets %s --%s", c.Name, no)
				}
			}
		}
	})

	t.Run("nothing for others to read", func(t *testing.T) {
		err := filepath.WalkDir(cp.StateDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if path == cp.StateDir && info.Mode().Perm() != 0o700 {
				t.Errorf("%s is %v", path, info.Mode())
			}
			if strings.HasSuffix(path, ".key") && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s is %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("a second lab beside it", func(t *testing.T) {
		cfg := config(t)
		cfg.Name, cfg.Profile = "second", "tuned"
		second := start(t, cfg)
		for _, name := range []string{lab.ControllerManager, lab.Scheduler} {
			if !slices.Contains(second.ControlPlane().Component(name).Args, "--kube-api-qps=5000") {
				t.Errorf("tuned %s: %q", name, second.ControlPlane().Component(name).Args)
			}
		}
		if _, err := client(t, second.ControlPlane(), "load").CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if code, _ := get(t, cp, cp.ClientCert, second.ControlPlane().Server+"/version"); code != 0 {
			t.Errorf("the second lab's certificate is valid for the first: %d", code)
		}
	})

	t.Run("hollow nodes", func(t *testing.T) {
		_, err := l.StartHollow(ctx, json.RawMessage(`{"die":"no nodes today"}`))
		if err == nil || !strings.Contains(err.Error(), "no nodes today") {
			t.Errorf("err = %v", err)
		}
		info, err := l.StartHollow(ctx, json.RawMessage("{\n\"say\": \"hello\"}"))
		if err != nil {
			t.Fatal(err)
		}
		if info.PID == 0 || info.MetricsURL != "http://127.0.0.1:1/metrics" {
			t.Errorf("%+v", info)
		}
		timeout := time.After(deadline)
		for {
			select {
			case ev := <-l.HollowEvents():
				if strings.Contains(string(ev), "hello") {
					return
				}
			case <-timeout:
				t.Fatal("hollow nodes' events do not arrive")
			}
		}
	})

	t.Run("pause", func(t *testing.T) {
		if err := l.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := client(t, cp, "load").CoreV1().Nodes().List(short, metav1.ListOptions{}); err == nil {
			t.Error("a paused lab answers")
		}
		if err := l.Pause(ctx); err == nil {
			t.Error("a paused lab can be paused")
		}
		if err := l.Unpause(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := client(t, cp, "load").CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		// Thawed for the stop, or nothing could end.
		if err := l.Pause(ctx); err != nil {
			t.Fatal(err)
		}
	})

	begin := time.Now()
	if err := l.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %v", time.Since(begin))
	select {
	case exit, ok := <-l.Exited():
		if ok && exit.Component != lab.Hollow { // the one that died of its configuration
			t.Errorf("a stop is reported as an exit: %v", exit)
		}
	default:
	}
	requests, err := os.ReadFile(cp.RequestLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"kube-controller-manager/v1.36.", "kube-scheduler/v1.36.", `"kubedyno-load"`} {
		if !bytes.Contains(requests, []byte(agent)) {
			t.Errorf("the log of requests names no %s", agent)
		}
	}
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cp.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state folder is left: %v", err)
	}
	if left := cgroupsOf("stock"); len(left) > 0 {
		t.Errorf("cgroups are left: %q", left)
	}
}

func ptr(s string) *string { return &s }

func TestOverrides(t *testing.T) {
	cfg := config(t)
	cfg.Name = "changed"
	other := filepath.Join(t.TempDir(), "my-scheduler")
	if err := os.Symlink(cfg.Lab, other); err != nil {
		t.Fatal(err)
	}
	cfg.Overrides = map[string]lab.Override{
		lab.Scheduler:         {Args: map[string]*string{"kube-api-qps": ptr("15"), "leader-elect": ptr("false")}, Binary: other},
		lab.ControllerManager: {Args: map[string]*string{"controllers": nil}, Env: map[string]string{"GOGC": "50"}, Latency: 100 * time.Millisecond},
		lab.APIServer:         {CPU: 0.6},
		lab.Load:              {CPU: 0.05},
	}
	l := start(t, cfg)
	cp := l.ControlPlane()

	scheduler := cp.Component(lab.Scheduler)
	for _, want := range []string{"--kube-api-qps=15", "--leader-elect=false"} {
		if !slices.Contains(scheduler.Args, want) {
			t.Errorf("scheduler: %q has no %s", scheduler.Args, want)
		}
	}
	if scheduler.Binary != other || scheduler.Version != "" {
		t.Errorf("scheduler: binary %s, version %q", scheduler.Binary, scheduler.Version)
	}
	if scheduler.MetricsSocket != "" {
		t.Errorf("a program that may not be ours is asked at %s", scheduler.MetricsSocket)
	}
	kcm := cp.Component(lab.ControllerManager)
	families(t, overSocket(t, kcm.MetricsSocket))
	if args := strings.Join(kcm.Args, " "); strings.Contains(args, "--controllers") {
		t.Errorf("a removed flag is set: %s", args)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", kcm.PID))
	if err != nil || !strings.Contains(string(env), "GOGC=50\x00") || !slices.Equal(kcm.Env, []string{"GOGC"}) {
		t.Errorf("environment %q (%v), told %q", env, err, kcm.Env)
	}
	// What the controller manager asks of the API server goes a longer way.
	far, err := clientcmd.BuildConfigFromFlags("", filepath.Join(cp.StateDir, "kubeconfig", lab.ControllerManager))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := kubernetes.NewForConfigOrDie(far).Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("it takes %v, and is to take 100 ms more", took)
	}
	api := cp.Component(lab.APIServer)
	stat, err := os.ReadFile(filepath.Join(api.Cgroup, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var throttled int
	for line := range strings.Lines(string(stat)) {
		_, _ = fmt.Sscanf(line, "nr_throttled %d", &throttled)
	}
	if throttled == 0 || api.CPU != 0.6 {
		t.Errorf("a start on 0.6 cores was never throttled: cpu %g, %s", api.CPU, stat)
	}
	// Our own load generator: what joins its group gets the quota.
	groups := l.Cgroups(lab.Load)
	if len(groups) != 1 {
		t.Fatalf("groups of load: %q", groups)
	}
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := proc.Enter(cmd, groups); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, deadline, "load is throttled", func() bool {
		stat, _ := os.ReadFile(filepath.Join(groups[0], "cpu.stat"))
		return strings.Contains(string(stat), "nr_throttled") && !strings.Contains(string(stat), "nr_throttled 0\n")
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := cgroupsOf("changed"); len(left) > 0 {
		t.Errorf("cgroups are left: %q", left)
	}
}

// A lab that is built up to a component has those before it, and no other.
func TestLast(t *testing.T) {
	for _, c := range []struct {
		last string
		want []string
	}{
		{lab.Etcd, []string{lab.Etcd}},
		{lab.APIServer, []string{lab.Etcd, lab.APIServer}},
	} {
		cfg := config(t)
		cfg.Last = c.last
		l := start(t, cfg)
		var got []string
		for _, component := range l.ControlPlane().Components {
			if component.PID == 0 {
				t.Errorf("%s does not run", component.Name)
			}
			got = append(got, component.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("up to %s there are %q", c.last, got)
		}
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	}
	cfg := config(t)
	cfg.Last = "etdc"
	if _, err := lab.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `"etdc"`) {
		t.Errorf("a component that there is not: %v", err)
	}
}

func TestRefusedBeforeAnythingStarts(t *testing.T) {
	notExecutable := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notExecutable, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  lab.Config
		want string
	}{
		"component": {lab.Config{Overrides: map[string]lab.Override{"kube-apisever": {CPU: 1}}},
			`no component is named "kube-apisever"; nearest: kube-apiserver`},
		"profile": {lab.Config{Profile: "tund"}, `no profile is named "tund"; nearest: tuned`},
		"name":    {lab.Config{Name: "A/b"}, `lab name "A/b"`},
		"flag": {lab.Config{Overrides: map[string]lab.Override{lab.Scheduler: {Args: map[string]*string{"kube-api-qbs": ptr("1")}}}},
			"kube-scheduler.args.kube-api-qbs: kube-scheduler has no such flag; nearest: kube-api-qps"},
		"etcd's flag": {lab.Config{Overrides: map[string]lab.Override{lab.Etcd: {Args: map[string]*string{"snapshot-cuont": ptr("1")}}}},
			"etcd.args.snapshot-cuont: etcd has no such flag; nearest: snapshot-count"},
		"value": {lab.Config{Overrides: map[string]lab.Override{lab.Scheduler: {Args: map[string]*string{"kube-api-qps": ptr("fast")}}}},
			`kube-scheduler.args: kube-scheduler refuses: invalid argument "fast" for "--kube-api-qps" flag`},
		"configuration": {lab.Config{Overrides: map[string]lab.Override{lab.Scheduler: {Config: map[string]any{"percentageOfNodesToScor": 5}}}},
			`kube-scheduler.config: kube-scheduler refuses: unknown field "percentageOfNodesToScor"`},
		"plugin": {lab.Config{Overrides: map[string]lab.Override{lab.Scheduler: {Config: map[string]any{"profiles": []any{map[string]any{"plugins": map[string]any{"score": map[string]any{"enabled": []any{map[string]any{"name": "Nope"}}}}}}}}}},
			`ScorePlugin "Nope" does not exist`},
		"dashes": {lab.Config{Overrides: map[string]lab.Override{lab.Etcd: {Args: map[string]*string{"--name": ptr("x")}}}},
			"write the flag without dashes"},
		"own flag": {lab.Config{Overrides: map[string]lab.Override{lab.APIServer: {Args: map[string]*string{"secure-port": ptr("1")}}}},
			"the lab sets this flag itself"},
		"remove": {lab.Config{Overrides: map[string]lab.Override{lab.Etcd: {Args: map[string]*string{"snapshot-counts": nil}}}},
			"there is no such flag to remove; nearest: snapshot-count"},
		"binary": {lab.Config{Overrides: map[string]lab.Override{lab.Etcd: {Binary: notExecutable}}},
			"etcd.binary: " + notExecutable + " is not executable"},
		"cpu": {lab.Config{Overrides: map[string]lab.Override{lab.Etcd: {CPU: 0.001}}},
			"a quota is at least 0.01 cores"},
		"harness": {lab.Config{Overrides: map[string]lab.Override{lab.Hollow: {Binary: "/bin/sh"}}},
			"only its cpu and env can be set"},
	} {
		t.Run(name, func(t *testing.T) {
			base := config(t)
			c.cfg.Lab, c.cfg.StateRoot = base.Lab, base.StateRoot
			l, err := lab.Start(t.Context(), c.cfg)
			if err == nil {
				l.Remove()
				t.Fatal("it started")
			}
			var m *lab.MisuseError
			if !errors.As(err, &m) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("err = %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	fails := func(t *testing.T, cfg lab.Config, want string) {
		t.Helper()
		l, err := lab.Start(t.Context(), cfg)
		if err == nil {
			l.Remove()
			t.Fatal("it started")
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("err = %v\nwant one sentence with: %s", err, want)
		}
		t.Log(err)
	}
	t.Run("no kubedyno-lab", func(t *testing.T) {
		cfg := config(t)
		cfg.Lab = ""
		t.Setenv("KUBEDYNO_LAB", "")
		fails(t, cfg, "build it with `make build`, or set KUBEDYNO_LAB")
		t.Setenv("KUBEDYNO_LAB", "/nonexistent")
		fails(t, cfg, "$KUBEDYNO_LAB does not name a program: stat /nonexistent")
	})
	t.Run("another program", func(t *testing.T) {
		cfg := config(t)
		cfg.Lab = "/bin/true"
		fails(t, cfg, "/bin/true is not the program we need")
	})
	t.Run("state folder not writable", func(t *testing.T) {
		cfg := config(t)
		file := filepath.Join(cfg.StateRoot, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.StateRoot = filepath.Join(file, "labs")
		fails(t, cfg, "set KUBEDYNO_STATE to a folder that you can write")
	})
	t.Run("small disk", func(t *testing.T) {
		cfg := config(t)
		if err := syscall.Mount("tmpfs", cfg.StateRoot, "tmpfs", 0, "size=16m"); err != nil {
			t.Skipf("no small disk can be made here: %v", err)
		}
		defer syscall.Unmount(cfg.StateRoot, syscall.MNT_DETACH)
		fails(t, cfg, "MB are free where labs are kept")
	})
	t.Run("a component that refuses", func(t *testing.T) {
		cfg := config(t)
		cfg.Overrides = map[string]lab.Override{lab.APIServer: {Args: map[string]*string{"authorization-mode": ptr("Nope")}}}
		fails(t, cfg, `kube-apiserver did not start (exit status 1): authorization-mode "Nope" is not a valid mode`)
	})
	t.Run("a component that dies", func(t *testing.T) {
		cfg := config(t)
		cfg.Overrides = map[string]lab.Override{lab.ControllerManager: {Binary: "/bin/false"}}
		fails(t, cfg, "kube-controller-manager did not start (exit status 1): it said nothing")
	})
	t.Run("interrupted", func(t *testing.T) {
		cfg := config(t)
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		if l, err := lab.Start(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lab %v, err = %v", l, err)
		}
		if left := processesOf(cfg.StateRoot); len(left) > 0 {
			t.Errorf("Start returned before its processes had ended: %q", left)
		}
	})
	t.Run("a port taken after the choice", func(t *testing.T) {
		for _, name := range []string{"api-port", "etcd-client-port", "kube-scheduler-port"} {
			listener, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			t.Setenv("TAKEN_NAME", name)
			t.Setenv("TAKEN_PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
			l := start(t, config(t))
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
		}
	})
}

// kill -9 of each part of a running lab.
func TestKill(t *testing.T) {
	t.Run("keeper", func(t *testing.T) {
		cfg := config(t)
		cfg.Name = "headless"
		cfg.Overrides = map[string]lab.Override{lab.Etcd: {CPU: 1}}
		l := start(t, cfg)
		if err := l.Pause(t.Context()); err != nil { // frozen, at that
			t.Fatal(err)
		}
		kill(t, l.KeeperPID())
		within(t, deadline, "no child is left", func() bool { return len(processesOf(cfg.StateRoot)) == 0 })
		exit := <-l.Exited()
		if exit == nil || exit.Component != lab.KeeperName {
			t.Errorf("exit: %v", exit)
		}
		within(t, deadline, "no cgroup is left", func() bool { return len(cgroupsOf("headless")) == 0 })
		if _, err := os.Stat(l.ControlPlane().RequestLog); err != nil {
			t.Errorf("what the lab wrote is gone before Remove: %v", err)
		}
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})

	t.Run("etcd", func(t *testing.T) {
		cfg := config(t)
		l := start(t, cfg)
		kill(t, l.ControlPlane().Component(lab.Etcd).PID)
		// Others may follow it: a controller manager that is still starting does.
		timeout, told := time.After(deadline), false
		for !told {
			select {
			case exit := <-l.Exited():
				if exit.Component != lab.Etcd {
					continue
				}
				told = true
				if !strings.Contains(exit.Error(), "signal: killed") || len(exit.Log) == 0 {
					t.Errorf("exit: %v", exit)
				}
			case <-timeout:
				t.Fatal("the death of etcd is not reported")
			}
		}
		begin := time.Now()
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
		t.Logf("removed after %v", time.Since(begin))
	})

	t.Run("owner", func(t *testing.T) {
		cfg := config(t)
		root := cfg.StateRoot
		owner := exec.Command("/proc/self/exe")
		owner.Args = []string{"owner"}
		owner.Env = append(os.Environ(), "NAME=orphan", "ROOT="+root, "LAB="+cfg.Lab)
		owner.Stderr = os.Stderr
		out, err := owner.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		var keeper int
		if _, err := fmt.Fscanf(out, "ready %d", &keeper); err != nil {
			t.Fatal(err)
		}
		if n := len(processesOf(root)); n != 5 {
			t.Errorf("%d processes, want the keeper and four components: %q", n, processesOf(root))
		}
		kill(t, owner.Process.Pid)
		_ = owner.Wait()
		within(t, deadline, "no child is left", func() bool { return len(processesOf(root)) == 0 })
		if left := cgroupsOf("orphan"); len(left) > 0 {
			t.Errorf("cgroups are left: %q", left)
		}
		if entries, _ := os.ReadDir(root); len(entries) > 0 {
			t.Errorf("state folders are left: %v", entries)
		}
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestUp(t *testing.T) {
	cfg := config(t)
	cfg.Name = "standing"
	s := up(t, cfg)
	if s.Phase != lab.PhaseReady || s.Mode != "up" || len(s.Processes) != 4 || s.APIReady == 0 {
		t.Errorf("%+v", s)
	}
	if _, err := lab.Up(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "a lab named standing exists already") {
		t.Errorf("err = %v", err)
	}
	open := func() *lab.State {
		t.Helper()
		s, err := lab.Open(cfg.StateRoot, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if phase := open().Phase; phase != lab.PhasePaused {
		t.Errorf("phase %s", phase)
	}
	if err := s.Unpause(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A component that dies does not take the others along.
	kill(t, s.ControlPlane.Component(lab.Scheduler).PID)
	within(t, deadline, "the status tells of it", func() bool { return open().Phase == lab.PhaseDegraded })
	for _, p := range open().Processes {
		want := "running"
		if p.Name == lab.Scheduler {
			want = "exited"
			if len(p.Log) == 0 || p.Error != "signal: killed" {
				t.Errorf("last words of %s: %s %q", p.Name, p.Error, p.Log)
			}
		}
		if p.State != want {
			t.Errorf("%s is %s, want %s", p.Name, p.State, want)
		}
	}
	if _, err := client(t, s.ControlPlane, "admin").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}

	begin := time.Now()
	if err := s.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("down after %v", time.Since(begin))
	if left := cgroupsOf("standing"); len(left) > 0 {
		t.Errorf("cgroups are left: %q", left)
	}
	if _, err := lab.Open(cfg.StateRoot, "standing"); err == nil {
		t.Error("a lab that is down is found")
	}

	// Again, and the keeper dies.
	s = up(t, cfg)
	kill(t, s.Keeper.PID)
	within(t, deadline, "no child is left", func() bool { return len(processesOf(cfg.StateRoot)) == 0 })
	dead := open()
	if dead.Phase != lab.PhaseDead || dead.Processes[0].State != "gone" {
		t.Errorf("%+v", dead)
	}
	if err := dead.Pause(t.Context()); err == nil || !strings.Contains(err.Error(), "is dead") {
		t.Errorf("err = %v", err)
	}
	// A dead lab does not hold its name.
	s = up(t, cfg)
	if left := cgroupsOf("standing"); len(left) > len(s.Cgroups) {
		t.Errorf("the dead keeper's cgroups are left: %q", left)
	}
}

func TestBinary(t *testing.T) {
	path := labtest.Binary(t)
	out, err := exec.Command(path, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Kubernetes, Etcd, Go, BuildDate string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.Kubernetes, "v1.") || !strings.HasPrefix(v.Etcd, "v3.") || !strings.HasPrefix(v.Go, "go1.") || strings.HasPrefix(v.BuildDate, "1970") {
		t.Errorf("%+v", v)
	}
	cmd := exec.Command(path, "kube-dns")
	out, err = cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), `no component is named "kube-dns"`) {
		t.Errorf("%v: %s", err, out)
	}
}

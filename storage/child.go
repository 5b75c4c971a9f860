package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/kubedyno/kubedyno/cluster/proc"
)

// StartOptions say how to start the replicas of a driver's sidecars.
type StartOptions struct {
	Installation
	// Server is how the API server is reached. Only its address and what
	// verifies it are used: the sidecars have an account of their own.
	Server *rest.Config
	// Client may request tokens of the sidecars' account.
	Client     kubernetes.Interface
	Seed       int64
	Dir        string // private to us, for credentials
	LogFile    string // of all replicas
	Executable string
	Env        []string // nil: this process's own
	Cgroups    []string
}

// Replicas are the running processes.
type Replicas struct {
	dir     string
	spawner *proc.Spawner
	all     []*Replica
	end     context.CancelFunc // of the token's renewal
	renewed sync.WaitGroup
	exited  chan error
}

// A Replica is one process.
type Replica struct {
	*proc.Process
	MetricsURL string

	stdin   *os.File
	leading chan string
	failed  chan error
	said    chan struct{} // closed when it says nothing more
}

const (
	// startTimeout is for a process that has nothing to wait for before it
	// says that it listens.
	startTimeout = 30 * time.Second
	// leadTimeout is three leases: the first replica leads at once on a
	// cluster that answers.
	leadTimeout = 3 * leaseDuration
	stopGrace   = 3 * time.Second
)

// Start starts the replicas and returns once one of them leads. Ctx bounds the
// wait; they live until Stop, or until this process ends.
func Start(ctx context.Context, o StartOptions) (*Replicas, error) {
	r := &Replicas{dir: o.Dir, spawner: proc.NewSpawner(), exited: make(chan error, 1)}
	kubeconfig, err := r.credentials(ctx, o)
	for n := 0; err == nil && n < o.Storage.Replicas; n++ {
		err = r.start(ctx, o, kubeconfig, n)
	}
	if err == nil {
		err = r.awaitLeader(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
	}
	for _, p := range r.all {
		go func() {
			<-p.Done()
			if !p.Stopping() {
				select {
				case r.exited <- fmt.Errorf("%s: %w", ProcessName, p.Exit()):
				default: // one death is enough to end a run
				}
			}
		}()
	}
	return r, nil
}

// All lists the replicas.
func (r *Replicas) All() []*Replica { return r.all }

// Exited tells of a replica that died by itself.
func (r *Replicas) Exited() <-chan error { return r.exited }

func (r *Replicas) start(ctx context.Context, o StartOptions, kubeconfig string, n int) error {
	theirs, stdin, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", ProcessName, err)
	}
	defer theirs.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return fmt.Errorf("start %s: %w", ProcessName, err)
	}
	defer stdout.Close()
	p, err := r.spawner.Start(ctx, proc.Config{
		Name: ProcessName, Path: o.Executable, Argv0: ProcessName, Env: o.Env, LogFile: o.LogFile,
		Stdin: theirs, Stdout: stdout, Cgroups: o.Cgroups, Grace: stopGrace,
	})
	if err != nil {
		stdin.Close()
		out.Close()
		return err
	}
	c := &Replica{Process: p, stdin: stdin, leading: make(chan string, 8), failed: make(chan error, 1), said: make(chan struct{})}
	r.all = append(r.all, c)
	listening := make(chan string, 1)
	go c.listen(out, listening)
	line, err := json.Marshal(Config{
		Kubeconfig: kubeconfig, Namespace: o.Namespace, RunID: o.RunID, Seed: o.Seed, Storage: o.Storage,
		Identity: fmt.Sprintf("%s-%d", ProcessName, n),
	})
	if err == nil {
		_, err = stdin.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("configure %s: %w", ProcessName, err)
	}
	select {
	case c.MetricsURL = <-listening:
		return nil
	case err := <-c.failed:
		return fmt.Errorf("%s: %w", ProcessName, err)
	case <-p.Done():
		return p.Exit()
	case <-time.After(startTimeout):
		return fmt.Errorf("%s did not listen after %v", ProcessName, startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listen reads what a replica says until it has ended.
func (c *Replica) listen(out *os.File, listening chan<- string) {
	defer close(c.said)
	defer out.Close()
	in := json.NewDecoder(bufio.NewReader(out))
	for {
		var e Event
		if err := in.Decode(&e); err != nil {
			_, _ = io.Copy(io.Discard, out) // or it would block on a full pipe
			return
		}
		switch e.Event {
		case "listening":
			listening <- e.MetricsURL
		case "leading":
			select {
			case c.leading <- e.What:
			default: // of later terms nobody asks
			}
		case "error":
			select {
			case c.failed <- errors.New(e.Error):
			default:
			}
		}
	}
}

// awaitLeader waits until each sidecar has a replica that leads.
func (r *Replicas) awaitLeader(ctx context.Context, o StartOptions) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leadTimeout, fmt.Errorf("not after %v; its log is %s", leadTimeout, o.LogFile))
	defer cancel()
	type news struct {
		what string
		err  error
	}
	heard := make(chan news, 8)
	for _, c := range r.all {
		go func() {
			for {
				var n news
				select {
				case n.what = <-c.leading:
				case n.err = <-c.failed:
				case <-c.Done():
					n.err = c.Exit()
				case <-ctx.Done():
					return
				}
				select {
				case heard <- n:
				case <-ctx.Done():
					return
				}
				if n.err != nil {
					return
				}
			}
		}()
	}
	missing := map[string]bool{"provisioner": true}
	if o.Storage.Attach {
		missing["attacher"] = true
	}
	for len(missing) > 0 {
		select {
		case n := <-heard:
			if n.err != nil {
				return fmt.Errorf("%s: %w", ProcessName, n.err)
			}
			delete(missing, n.what)
		case <-ctx.Done():
			return fmt.Errorf("no replica of %s leads: %w", ProcessName, context.Cause(ctx))
		}
	}
	return nil
}

// Stop ends the replicas together, orderly within a grace, and forgets their
// credentials.
func (r *Replicas) Stop(ctx context.Context) error {
	if r.end != nil {
		r.end()
	}
	var stopping sync.WaitGroup
	for _, c := range r.all {
		stopping.Go(func() {
			c.Process.Stop(ctx)
			c.stdin.Close()
			<-c.said
		})
	}
	stopping.Wait()
	r.renewed.Wait()
	r.spawner.Close()
	return errors.Join(removeAll(filepath.Join(r.dir, tokenFile)), removeAll(filepath.Join(r.dir, kubeconfigFile)))
}

func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove the credentials of %s: %w", ProcessName, err)
	}
	return nil
}

// Files of the sidecars' credentials.
const (
	tokenFile      = "csi.token"
	kubeconfigFile = "csi.kubeconfig"
	// tokenLife is asked for; the API server may grant less.
	tokenLife = 24 * time.Hour
)

// credentials writes a kubeconfig with a token of the sidecars' account, and
// renews the token as the kubelet does for a pod: the file is read again each
// minute.
func (r *Replicas) credentials(ctx context.Context, o StartOptions) (string, error) {
	ca := o.Server.CAData
	if len(ca) == 0 && o.Server.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(o.Server.CAFile); err != nil {
			return "", fmt.Errorf("credentials of %s: %w", ProcessName, err)
		}
	}
	token := filepath.Join(o.Dir, tokenFile)
	expires, err := renew(ctx, o, token)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server: o.Server.Host, CertificateAuthorityData: ca,
		TLSServerName: o.Server.ServerName, InsecureSkipTLSVerify: o.Server.Insecure,
	}
	config.AuthInfos[Account] = &clientcmdapi.AuthInfo{TokenFile: token}
	config.Contexts["csi"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: Account, Namespace: o.Namespace}
	config.CurrentContext = "csi"
	path := filepath.Join(o.Dir, kubeconfigFile)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("credentials of %s: %w", ProcessName, err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	r.renewed.Go(func() {
		for {
			// The kubelet renews at four fifths of the life.
			wait := time.NewTimer(max(time.Until(expires)*4/5, time.Second))
			select {
			case <-life.Done():
				wait.Stop()
				return
			case <-wait.C:
			}
			if next, err := renew(life, o, token); err == nil {
				expires = next
			} // else again, sooner
		}
	})
	return path, nil
}

// renew writes a new token and says when it expires.
func renew(ctx context.Context, o StartOptions, path string) (time.Time, error) {
	t, err := o.Client.CoreV1().ServiceAccounts(o.Namespace).CreateToken(ctx, Account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("token of service account %s/%s: %w", o.Namespace, Account, err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(t.Status.Token), 0o600); err != nil {
		return time.Time{}, fmt.Errorf("token of service account %s/%s: %w", o.Namespace, Account, err)
	}
	if err := os.Rename(next, path); err != nil { // never half a token
		return time.Time{}, fmt.Errorf("token of service account %s/%s: %w", o.Namespace, Account, err)
	}
	return t.Status.ExpirationTimestamp.Time, nil
}

package storage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/introspect"
)

// An Event is one line of kubedyno-csi's stdout.
type Event struct {
	Event      string `json:"event"` // listening, leading, error
	MetricsURL string `json:"metricsURL,omitempty"`
	What       string `json:"what,omitempty"` // leading: provisioner or attacher
	Error      string `json:"error,omitempty"`
}

// ProcessMain is kubedyno-csi: it reads the Config from the first line of stdin,
// provisions and attaches while it leads, and returns when stdin ends or ctx
// does. stdout carries Events, one a line; stderr is its log.
func ProcessMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	klog.LogToStderr(false)
	klog.SetOutput(stderr)
	defer klog.Flush()

	var mu sync.Mutex
	out := json.NewEncoder(stdout)
	emit := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if out.Encode(e) != nil {
			cancel() // nobody listens
		}
	}
	err := serve(ctx, cancel, stdin, emit)
	if err != nil {
		emit(Event{Event: "error", Error: err.Error()})
		fmt.Fprintf(stderr, "%s: %v\n", ProcessName, err)
	}
	return err
}

func serve(ctx context.Context, cancel func(), stdin io.Reader, emit func(Event)) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if len(bytes.TrimSpace(line)) == 0 {
		return fmt.Errorf("csi config: stdin ended before the first line (%w)", err)
	}
	conf, err := parseConfig(line)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel() // the parent is gone, or wants us gone
	}()
	m := newMetrics(conf.Storage.Driver)
	m.instrument()
	url, served, err := introspect.Serve(ctx, m.registry, true)
	if err != nil {
		return err
	}
	emit(Event{Event: "listening", MetricsURL: url})
	err = lead(ctx, &conf, m, func(what string) { emit(Event{Event: "leading", What: what}) })
	cancel()
	return errors.Join(err, <-served)
}

// lead campaigns for both sidecars, and does their work while it leads.
func lead(ctx context.Context, conf *Config, m *metrics, leading func(what string)) error {
	base, err := clientcmd.BuildConfigFromFlags("", conf.Kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", conf.Kubeconfig, err)
	}
	store := newBackend(conf.Seed, m.backend)
	sidecars := []sidecar{{
		name: "provisioner", lease: conf.Storage.Driver, // as real ones call theirs
		run: func(ctx context.Context, client kubernetes.Interface, started func()) {
			(&provisioner{conf: conf, client: client, backend: store, metrics: m.library}).run(ctx, started)
		},
	}}
	if conf.Storage.Locks == experiment.LockClaim {
		sidecars[0].lease = "" // each claim has its own
		sidecars[0].run = func(ctx context.Context, client kubernetes.Interface, started func()) {
			(&provisioner{conf: conf, client: client, backend: store}).runPerClaim(ctx, started)
		}
	}
	if conf.Storage.Attach {
		sidecars = append(sidecars, sidecar{
			name: "attacher", lease: "external-attacher-leader-" + conf.Storage.Driver,
			run: func(ctx context.Context, client kubernetes.Interface, started func()) {
				(&attacher{conf: conf, client: client, backend: store}).run(ctx, started)
			},
		})
	}
	var all sync.WaitGroup
	errs := make([]error, len(sidecars))
	for i, s := range sidecars {
		all.Go(func() { errs[i] = s.campaign(ctx, conf, base, m, func() { leading(s.name) }) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// A sidecar is one of the containers that stand beside a driver. Without a lease
// all of its replicas work.
type sidecar struct {
	name, lease string
	run         func(ctx context.Context, client kubernetes.Interface, started func())
}

// The sidecars' defaults (--leader-election-lease-duration and its like).
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 5 * time.Second
)

// campaign leads whenever it is elected, until ctx ends. A real sidecar exits
// when it loses its lease, and is started again.
func (s sidecar) campaign(ctx context.Context, conf *Config, base *rest.Config, m *metrics, leading func()) error {
	cfg := rest.AddUserAgent(rest.CopyConfig(base), s.name)
	cfg.QPS, cfg.Burst = float32(conf.Storage.QPS), conf.Storage.Burst
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client of the %s: %w", s.name, err)
	}
	if s.lease == "" {
		s.run(ctx, client, leading)
		return nil
	}
	// The lease has a client of its own, so that the other's limiter does not
	// hold up its renewal; it keeps client-go's default limit.
	cfg = rest.CopyConfig(base)
	cfg.UserAgent = rest.DefaultKubernetesUserAgent() + "/" + s.name
	leases, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client of the %s's lease: %w", s.name, err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, conf.Namespace, leaseName(s.lease),
		leases.CoreV1(), leases.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: conf.Identity})
	if err != nil {
		return fmt.Errorf("lease of the %s: %w", s.name, err)
	}
	held := m.leader.WithLabelValues(s.name)
	held.Set(0)
	for ctx.Err() == nil {
		var work sync.WaitGroup
		work.Add(1)
		began := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			ReleaseOnCancel: true, Name: s.name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					defer work.Done()
					close(began)
					held.Set(1)
					s.run(ctx, client, leading)
				},
				OnStoppedLeading: func() { held.Set(0) },
			},
		})
		if err != nil {
			return fmt.Errorf("lead the %s: %w", s.name, err)
		}
		elector.Run(ctx)
		select {
		case <-began:
			work.Wait()
		default: // never elected
		}
	}
	return nil
}

// leaseName is a driver's name as the name of a lease.
func leaseName(name string) string { return strings.ReplaceAll(name, "/", "-") }

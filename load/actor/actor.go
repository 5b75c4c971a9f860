// Package actor holds background clients: programs that users of a cluster run
// beside its workloads, and that talk to the API server all the time. Add-on
// managers apply the same manifests again, controllers watch and write,
// pollers list, leader electors renew.
//
// An actor is a process of its own, kubedyno-actor, with a user and a user
// agent of its own, so that all it costs separates in every table. What it does
// is a kind (see Kinds): a function that lasts until its context ends. It
// stands for software of the user's, and so is no part of the harness.
//
// Start with ProcessMain, then kinds.go.
package actor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/internal/introspect"
)

// ProcessName is the process's argv[0].
const ProcessName = "kubedyno-actor"

// Label marks what an actor makes with the actor's name.
const Label = "kubedyno.io/actor"

// Config is the first line of the process's stdin, as JSON. How the numbers are
// meant depends on the kind; 0 stands for the kind's own.
type Config struct {
	Name       string `json:"name"` // its user agent
	Do         string `json:"do"`   // a kind
	Kubeconfig string `json:"kubeconfig"`
	Namespace  string `json:"namespace"` // where it makes things
	RunID      string `json:"run"`
	Seed       int64  `json:"seed,omitempty"`

	// Rate is how many actions a second are due, of all clients together.
	Rate float64 `json:"rate,omitempty"`
	// Count is how many clients or workers there are.
	Count int `json:"count,omitempty"`
	// Objects is how many objects it is about.
	Objects int `json:"objects,omitempty"`
	// Bytes is how large it makes each of them, beside what they are.
	Bytes int `json:"bytes,omitempty"`
	// Resource is what it reads: pods, deployments.apps.
	Resource string `json:"resource,omitempty"`
	// Stale lets it read from the API server's cache.
	Stale bool `json:"stale,omitempty"`
	// QPS and Burst are client-go's limiter; without QPS there is none.
	QPS   float32 `json:"qps,omitempty"`
	Burst int     `json:"burst,omitempty"`
	// DelaySeconds is how long an answer takes, Refuse how many of a hundred are
	// refusals.
	DelaySeconds float64 `json:"delaySeconds,omitempty"`
	Refuse       float64 `json:"refuse,omitempty"`
	// Kubectl is the program to run as kubectl, Cache a folder for what is kept.
	Kubectl string `json:"kubectl,omitempty"`
	Cache   string `json:"cache,omitempty"`
	// Folder has the add-ons of the run, Image is what those that are enabled run.
	Folder string `json:"folder,omitempty"`
	Image  string `json:"image,omitempty"`
}

// Event is a line that the process writes.
type Event struct {
	Event      string `json:"event"` // listening
	MetricsURL string `json:"metricsURL,omitempty"`
}

// A Kind is a thing that actors do.
type Kind struct {
	Name    string
	Summary string
	// Defaults are the numbers that apply where a Config has none.
	Defaults Config
	do       func(ctx context.Context, a *actor) error
}

// KindOf finds a kind by its name.
func KindOf(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Kinds lists all kinds, sorted by name.
func Kinds() []Kind { return slices.Clone(kinds) }

// complete fills in the kind's own numbers.
func (c *Config) complete(k Kind) {
	d := k.Defaults
	if c.Rate == 0 {
		c.Rate = d.Rate
	}
	if c.Count == 0 {
		c.Count = d.Count
	}
	if c.Objects == 0 {
		c.Objects = d.Objects
	}
	if c.Resource == "" {
		c.Resource = d.Resource
	}
	if c.QPS == 0 {
		c.QPS, c.Burst = d.QPS, d.Burst
	}
}

// An actor is one at work.
type actor struct {
	Config
	stderr io.Writer // for what its user should know, once
	rest   *rest.Config
	client kubernetes.Interface
	took   *prometheus.HistogramVec
	missed prometheus.Counter
}

// ProcessMain is kubedyno-actor: it reads a Config from the first line of stdin
// and acts until stdin or ctx ends. It has told stderr of the error that it returns.
func ProcessMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	err := serve(ctx, stdin, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", ProcessName, err)
	}
	return err
}

func serve(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	var c Config
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	go func() { // a parent that is gone wants no more
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	a, kind, err := newActor(c)
	if err != nil {
		return err
	}
	a.stderr = stderr
	registry := introspect.NewRegistry()
	registry.MustRegister(a.took, a.missed)
	url, served, err := introspect.Serve(ctx, registry, true)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, <-served)
	}()
	if err := json.NewEncoder(stdout).Encode(Event{Event: "listening", MetricsURL: url}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := kind.do(ctx, a); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", kind.Name, err)
	}
	return nil
}

func newActor(c Config) (*actor, Kind, error) {
	kind, ok := KindOf(c.Do)
	if !ok {
		return nil, kind, fmt.Errorf("no kind of actor is named %q", c.Do)
	}
	c.complete(kind)
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, kind, fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
	}
	rc.UserAgent, rc.QPS, rc.Burst = c.Name, -1, c.Burst
	if c.QPS > 0 {
		rc.QPS = c.QPS
	}
	rc.AcceptContentTypes, rc.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, kind, fmt.Errorf("client: %w", err)
	}
	return &actor{
		Config: c, rest: rc, client: client,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubedyno_actor_action_duration_seconds", Help: "Actions of an actor, by what they were and how they ended: ok, an HTTP code or error.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"action", "result"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubedyno_actor_missed_total", Help: "Actions that came due while all clients were busy, and were left out.",
		}),
	}, kind, nil
}

// act performs one action and counts it. Its error is for who cares.
func (a *actor) act(action string, f func() error) error {
	began := time.Now()
	err := f()
	a.took.WithLabelValues(action, result(err)).Observe(time.Since(began).Seconds())
	return err
}

func result(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &status) && status.Status().Code != 0:
		return fmt.Sprint(status.Status().Code)
	}
	return "error"
}

// each performs action at due times that are fixed in advance, by Count clients,
// each one at a time; what comes due while all are busy is missed. The number of
// the client is the action's.
func (a *actor) each(ctx context.Context, action func(ctx context.Context, client, i int)) {
	var clients sync.WaitGroup
	due := make(chan int)
	for client := range a.Count {
		clients.Go(func() {
			for i := range due {
				action(ctx, client, i)
			}
		})
	}
	every := time.Duration(float64(time.Second) / a.Rate)
	next := time.Now()
	for i := 0; ; i++ {
		if !sleep(ctx, time.Until(next)) {
			break
		}
		next = next.Add(every)
		select {
		case due <- i:
		default:
			a.missed.Inc()
		}
	}
	close(due)
	clients.Wait()
}

// sleep reports whether ctx is still alive after d.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// until repeats what must succeed before an actor can begin.
func until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || permanent(err) {
			return err
		}
		if !sleep(ctx, time.Second) {
			return fmt.Errorf("%w (last try: %w)", ctx.Err(), err)
		}
	}
}

func permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// object is the metadata of the i-th object that the actor makes.
func (a *actor) object(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", a.Name, i), Namespace: a.Namespace,
		Labels: map[string]string{Label: a.Name, "kubedyno.io/run": a.RunID},
	}
}

// made says whether an object is there after a create.
func made(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// conflicts says whether a write came too late.
func conflicts(err error) bool { return result(err) == fmt.Sprint(http.StatusConflict) }

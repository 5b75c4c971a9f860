// Package objects records the lives of a run's pods as one watch shows them,
// and tells the run how far they have come.
//
// Times are those of receipt, in microseconds, taken before an event is
// decoded. What the load generator says of its operations is merged into the
// pods that they asked for.
//
// Start with New, then Ready, Submitted and Wait.
package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"k8s.io/client-go/rest"
)

// Labels that the load generator puts on pods.
const (
	LabelRun    = "kubedyno.io/run"    // the run's ID
	LabelPhase  = "kubedyno.io/phase"  // the phase that asked for the pod
	LabelObject = "kubedyno.io/object" // name of the Deployment, or other workload, it belongs to
)

// UserAgent separates the watch from the rest in every table of requests.
const UserAgent = "kubedyno-collect"

const (
	// flushEvery is how often changed rows are written: what kill -9 can lose.
	flushEvery = 2 * time.Second
	// catchUp is for how long after a reconnect events are called late: those
	// of the time without a watch arrive at once.
	catchUp = 250 * time.Millisecond
	// brief disconnects are counted but are no gap: a server ends each watch
	// once in a while.
	brief     = 50 * time.Millisecond
	firstWait = 50 * time.Millisecond // between attempts, doubled each time
	maxWait   = 2 * time.Second
)

// ErrNotRunning is returned by waits when the collection has ended.
var ErrNotRunning = errors.New("pods are not being watched")

// Options of a Collector.
type Options struct {
	Config    *rest.Config
	Run       string // value of LabelRun; empty watches every pod
	Namespace string // empty for all
	// Transport stands in for the one that Config makes.
	Transport http.RoundTripper
}

// A Collector watches pods.
type Collector struct {
	o Options

	mu       sync.Mutex
	pods     map[string]*pod   // by UID
	owned    map[string][]*pod // by owner's or bare pod's key
	ops      map[string][]record.Operation
	counts   map[string]*Counts // by phase
	dirty    []*pod
	names    map[string]string
	waits    map[*wait]struct{}
	ready    chan struct{} // closed when the first watch is open
	ended    chan struct{}
	open     bool
	progress time.Time
	events   int64
	late     int64
	breaks   int
	acct     record.Observer
}

// pod is what is kept of one: a row, no object.
type pod struct {
	row     record.Pod
	key     string
	counted bool // as created
	failed  bool
	dirty   bool
	round   int // of the last list that had it
}

// New returns a collector.
func New(o Options) *Collector {
	return &Collector{
		o: o, pods: map[string]*pod{}, owned: map[string][]*pod{}, ops: map[string][]record.Operation{},
		counts: map[string]*Counts{}, names: map[string]string{}, waits: map[*wait]struct{}{},
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "objects" }

// sink is what the collector writes to.
type sink interface {
	Pod(record.Pod)
	Gap(record.Gap)
}

// Collect implements collect.Collector. A Collector collects once.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	w.Observes(record.TablePods)
	return c.collect(ctx, w)
}

func (c *Collector) collect(ctx context.Context, w sink) (err error) {
	defer close(c.ended)
	api, err := c.client()
	if err != nil {
		return err
	}
	flushed := make(chan struct{})
	life, end := context.WithCancel(ctx)
	go func() {
		defer close(flushed)
		tick := time.NewTicker(flushEvery)
		defer tick.Stop()
		for {
			select {
			case <-life.Done():
				return
			case <-tick.C:
				c.flush(w)
			}
		}
	}()
	defer func() {
		end()
		<-flushed
		c.flush(w)
		c.finish()
	}()
	return c.follow(ctx, api, w)
}

func (c *Collector) client() (*client, error) {
	cfg := rest.CopyConfig(c.o.Config)
	cfg.UserAgent = UserAgent
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if c.o.Transport != nil {
		h = &http.Client{Transport: c.o.Transport}
	}
	path := "/api/v1/pods"
	if c.o.Namespace != "" {
		path = "/api/v1/namespaces/" + c.o.Namespace + "/pods"
	}
	api := &client{http: h, base: strings.TrimSuffix(server.String(), "/") + path}
	if c.o.Run != "" {
		api.selector = LabelRun + "=" + c.o.Run
	}
	return api, nil
}

// follow lists and watches until ctx ends, across disconnects: from the last
// version seen, and with a new list where the server has forgotten that.
func (c *Collector) follow(ctx context.Context, api *client, w sink) error {
	version := ""
	var lost time.Time // since when there is no watch; zero at first
	var last error
	wait := firstWait
	round := 0
	for ctx.Err() == nil {
		var err error
		if version == "" {
			round++
			var seen string
			seen, err = api.list(ctx, func(p *sight) { c.listed(time.Now(), p, round) })
			if err == nil {
				c.unlisted(time.Now(), round)
				version = seen
			}
		}
		if err == nil {
			var got string
			began := time.Now()
			got, err = c.watch(ctx, api, version, !lost.IsZero(), func() {
				now := time.Now()
				if !lost.IsZero() && now.Sub(lost) >= brief {
					reason := "the watch was interrupted; what happened then was seen late"
					if last != nil {
						reason += ": " + last.Error()
					}
					w.Gap(record.Gap{Collector: c.Name(), Subject: "pods", Reason: reason, Start: lost, End: now})
				}
				c.opened(!lost.IsZero())
			})
			if got != "" && got != version {
				// It brought something, so the next one goes on from there at
				// once: a starved server closes watches that it cannot serve,
				// and each moment without one makes what happens seem later.
				version, wait = got, 0
			}
			if errors.Is(err, errGone) {
				version, wait = "", time.Millisecond // the list has not been asked yet
			}
			if c.closed() {
				lost, last = time.Now(), err
			}
			if time.Since(began) > time.Second {
				wait = firstWait
			}
		}
		if ctx.Err() != nil {
			break
		}
		var st *statusError
		if errors.As(err, &st) && (st.code == http.StatusUnauthorized || st.code == http.StatusForbidden) && lost.IsZero() {
			return collect.NotSupported("pods cannot be watched: %s (needs list and watch on pods)", st.text)
		}
		if err != nil {
			if lost.IsZero() {
				lost = time.Now()
			}
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(max(2*wait, firstWait), maxWait)
		}
	}
	if !lost.IsZero() && !c.State().Connected && time.Since(lost) > brief {
		reason := "the watch ended early"
		if last != nil {
			reason += ": " + last.Error()
		}
		w.Gap(record.Gap{Collector: c.Name(), Subject: "pods", Reason: reason, Start: lost, End: time.Now()})
	}
	return nil
}

// watch reads one stream and returns the last version it saw.
func (c *Collector) watch(ctx context.Context, api *client, version string, again bool, opened func()) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan frame, 4096) // so that decoding does not delay the clock
	done := make(chan error, 1)
	var from time.Time // from when events are in time
	go func() {
		defer close(frames)
		done <- api.watch(ctx, version, func() {
			if again {
				from = time.Now().Add(catchUp)
			}
			opened()
		}, frames)
	}()
	var p sight
	var failed error
	for f := range frames {
		kind, err := decode(f.data, &p)
		if err != nil {
			failed = err
			cancel()
			break
		}
		version = string(p.version)
		if kind != "BOOKMARK" {
			c.observe(f.at, &p, kind == "DELETED", f.at.Before(from))
		}
	}
	for range frames { // until the reader has left
	}
	if err := <-done; failed == nil {
		failed = err
	}
	return version, failed
}

func (c *Collector) opened(again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = true
	if again {
		c.breaks++
	}
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// closed reports whether a watch was open, and is not any more.
func (c *Collector) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.open
	c.open = false
	return was
}

// Ready waits until the watch is open: load that begins before is seen late.
func (c *Collector) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.ended:
		return ErrNotRunning
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listed takes a pod from a list. What it shows happened before.
func (c *Collector) listed(at time.Time, p *sight, round int) {
	c.observe(at, p, false, round > 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.pods[string(p.uid)]; x != nil {
		x.round = round
	}
}

// unlisted ends the pods that a list no longer has.
func (c *Collector) unlisted(at time.Time, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.pods {
		if x.round != round && x.row.DeletedMicros == 0 {
			x.row.DeletedMicros = at.UnixMicro()
			c.late++
			c.count(x, at, Deleted)
			c.touch(x)
		}
	}
}

// observe takes one sight of a pod.
func (c *Collector) observe(at time.Time, p *sight, deleted, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	us := at.UnixMicro()
	x := c.pods[string(p.uid)]
	changed := false
	if x == nil {
		x = c.meet(p)
		changed = true
		if !deleted { // one that is only seen to go was created unobserved
			x.row.CreatedMicros = us
		}
		c.match(x)
		c.count(x, at, Created)
		x.counted = true
	}
	if x.row.DeletedMicros != 0 {
		return // a list knew before the watch did
	}
	first := func(when *int64, s Stage) {
		if *when == 0 {
			*when = us
			changed = true
			c.count(x, at, s)
		}
	}
	if deleted {
		first(&x.row.DeletedMicros, Deleted)
	} else {
		if len(p.node) > 0 {
			x.row.Node = c.name(p.node)
			first(&x.row.BoundMicros, Bound)
		}
		if string(p.status) == "Running" {
			first(&x.row.RunningMicros, Running)
		}
		if p.ready {
			first(&x.row.ReadyMicros, Ready)
		}
	}
	if string(p.status) == "Failed" && !x.failed {
		x.failed, changed = true, true
		x.row.FailedReason = p.failure()
		c.count(x, at, Failed)
	}
	if changed {
		if late {
			c.late++
		}
		c.touch(x)
	}
}

// meet keeps a new pod.
func (c *Collector) meet(p *sight) *pod {
	x := &pod{row: record.Pod{
		Namespace: c.name(p.namespace), Name: string(p.name), UID: string(p.uid),
		Phase: c.name(p.labelPhase), Owner: c.name([]byte(p.ofOwner())),
	}}
	if x.row.Owner != "" {
		x.key = c.name([]byte(x.row.Namespace + "/" + x.row.Owner))
	} else {
		x.key = x.row.Namespace + "/Pod/" + x.row.Name
	}
	c.pods[x.row.UID] = x
	c.owned[x.key] = append(c.owned[x.key], x)
	return x
}

// kinds of what operations name by resource.
var kinds = map[string]string{
	"pods": "Pod", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet",
	"daemonsets": "DaemonSet", "jobs": "Job",
}

// Submitted tells of an operation that asked for pods, before or after they
// are seen: its times go to the pods that were created after it was sent and
// before the next operation on the same object.
func (c *Collector) Submitted(op record.Operation) {
	kind := kinds[op.Resource]
	if kind == "" || op.Verb == "delete" || op.SentMicros == 0 {
		return
	}
	key := op.Namespace + "/" + kind + "/" + op.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops[key] = append(c.ops[key], op)
	for _, x := range c.owned[key] {
		c.match(x)
	}
}

// match gives a pod the times of the operation that asked for it, and its
// phase: a Deployment that is scaled in a later phase still has the labels of
// the first.
func (c *Collector) match(x *pod) {
	var best *record.Operation
	for i := range c.ops[x.key] {
		op := &c.ops[x.key][i]
		if x.row.CreatedMicros != 0 && op.SentMicros > x.row.CreatedMicros {
			continue
		}
		if best == nil || op.SentMicros >= best.SentMicros {
			best = op
		}
	}
	if best == nil || best.SentMicros == x.row.SentMicros && best.DoneMicros == x.row.AckedMicros {
		return
	}
	x.row.DueMicros, x.row.SentMicros, x.row.AckedMicros = best.DueMicros, best.SentMicros, best.DoneMicros
	if best.Phase != "" && best.Phase != x.row.Phase {
		c.move(x, c.name([]byte(best.Phase)))
	}
	c.touch(x)
}

func (c *Collector) touch(x *pod) {
	if !x.dirty {
		x.dirty = true
		c.dirty = append(c.dirty, x)
	}
}

// flush writes the pods that changed. A later row of a pod replaces the
// earlier one.
func (c *Collector) flush(w sink) {
	c.mu.Lock()
	rows := make([]record.Pod, len(c.dirty))
	for i, x := range c.dirty {
		rows[i], x.dirty = x.row, false
	}
	c.dirty = c.dirty[:0]
	c.mu.Unlock()
	for _, r := range rows {
		w.Pod(r)
	}
}

// name keeps one copy of names that repeat.
func (c *Collector) name(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	c.names[s] = s
	return s
}

func (c *Collector) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acct = record.Observer{Samples: c.events, Note: fmt.Sprintf("%d pods; %d times the watch was opened again; %d changes were seen late", len(c.pods), c.breaks, c.late)}
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}

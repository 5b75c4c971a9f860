// Package objects records the lives of API objects as watches show them.
//
// A Collector watches the run's pods, tells the run how far they have come,
// and merges what the load generator says of its operations into the pods that
// they asked for. Lives watches everything else that tells what a control
// plane does: volumes, nodes, leases, workloads and Events.
//
// Times are those of receipt, in microseconds, taken before an event is
// decoded; in a lab those at which its API server wrote to the watch: see
// Options.Stamps.
//
// Start with New, then Ready, Submitted and Wait; then NewLives.
package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/internal/beat"
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
	// Claims also records which claims a pod uses, as rows of the table
	// objects. Set it where Lives fill that table.
	Claims bool
	// Stamps asks the API server when it wrote each event, and lets events wait for
	// others on the way: a lab's can tell. Times are the server's then. Elsewhere, and
	// where it does not answer so, they are those of receipt here.
	Stamps bool
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
	ties     []record.ObjectChange // of pods to their claims, not written yet
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
	row      record.Pod
	key      string
	had      Counts // the stages it has reached
	existing bool   // before the watch: nobody knows since when
	dirty    bool
	round    int // of the last list that had it
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
	Observes(...record.Table)
	Pod(record.Pod)
	Object(record.ObjectChange)
	Event(record.Event)
	Gap(record.Gap)
}

// Collect implements collect.Collector. A Collector collects once.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error {
	return c.collect(ctx, w)
}

func (c *Collector) collect(ctx context.Context, w sink) (err error) {
	defer close(c.ended)
	h, base, err := dial(c.o.Config, c.o.Transport)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	api := &client{http: h, base: base + namespaced("/api/v1", c.o.Namespace, "pods"), stamps: c.o.Stamps, needs: needsPod}
	if c.o.Run != "" {
		api.selector = LabelRun + "=" + c.o.Run
	}
	flushed := make(chan struct{})
	life, end := context.WithCancel(ctx)
	go func() {
		defer close(flushed)
		tick := beat.NewTicker(flushEvery)
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
	s := stream{api: api, collector: c.Name(), subject: "pods", ahead: 4096, to: &pods{c: c, w: w}, gap: w.Gap}
	return s.follow(ctx)
}

// namespaced is the path of a resource, of one namespace or of all.
func namespaced(version, namespace, resource string) string {
	if namespace == "" {
		return version + "/" + resource
	}
	return version + "/namespaces/" + namespace + "/" + resource
}

// pods is the receiver of the watch on pods.
type pods struct {
	c *Collector
	w sink
	p sight
}

func (r *pods) listed(at time.Time, object []byte, round int) error {
	if err := r.p.pod(object); err != nil {
		return err
	}
	r.c.listed(at, &r.p, round)
	return nil
}

func (r *pods) unlisted(at time.Time, round int) { r.c.unlisted(at, round) }

func (r *pods) seen(at time.Time, typ string, object []byte, late bool) ([]byte, error) {
	if err := r.p.pod(object); err != nil {
		return nil, err
	}
	r.c.observe(at, &r.p, sighting{deleted: typ == typeDeleted, late: late})
	return r.p.version, nil
}

func (r *pods) opened(again bool) {
	r.w.Observes(record.TablePods)
	r.c.opened(again)
}

func (r *pods) closed() { r.c.closed() }

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

func (c *Collector) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = false
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
	c.observe(at, p, sighting{existing: round == 1, late: round > 1})
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
		if x.round != round && x.had.Deleted == 0 {
			x.row.DeletedMicros = at.UnixMicro()
			c.late++
			c.count(x, at, Deleted)
			c.touch(x)
		}
	}
}

// sighting says how a pod was seen.
type sighting struct {
	existing bool // before the watch began
	deleted  bool
	late     bool
}

// observe takes one sight of a pod.
func (c *Collector) observe(at time.Time, p *sight, how sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	us := at.UnixMicro()
	reached := at
	if how.existing { // when it came so far is unknown
		us, reached = 0, time.Time{}
	}
	x := c.pods[string(p.uid)]
	changed := false
	if x == nil {
		x = c.meet(p)
		x.existing = how.existing
		changed = true
		if !how.deleted { // one that is only seen to go was created unobserved
			x.row.CreatedMicros = us
		}
		c.tie(at, x, p)
		c.match(x)
		c.count(x, reached, Created)
	}
	if x.had.Deleted != 0 {
		return // a list knew before the watch did
	}
	first := func(when *int64, s Stage) {
		if *x.had.at(s) == 0 {
			*when = us
			changed = true
			c.count(x, reached, s)
		}
	}
	if how.deleted {
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
	if string(p.status) == "Failed" {
		if x.had.Failed == 0 {
			changed = true
			x.row.FailedReason = p.failure()
			c.count(x, reached, Failed)
		}
	} else if trouble := p.trouble(how.deleted, x.row.FailedReason); trouble != x.row.FailedReason {
		changed = true
		x.row.FailedReason = c.name([]byte(trouble))
	}
	if changed {
		if how.late {
			c.late++
		}
		c.touch(x)
	}
}

// meet keeps a new pod.
func (c *Collector) meet(p *sight) *pod {
	x := &pod{row: record.Pod{
		Namespace: c.name(p.namespace), Name: string(p.name), UID: string(p.uid), Owner: c.name([]byte(p.ofOwner())),
	}}
	if c.o.Run != "" { // else the label is that of another run's phase
		x.row.Phase = c.name(p.labelPhase)
	}
	if x.row.Owner != "" {
		x.key = c.name([]byte(x.row.Namespace + "/" + x.row.Owner))
	} else {
		x.key = x.row.Namespace + "/Pod/" + x.row.Name
	}
	c.pods[x.row.UID] = x
	c.owned[x.key] = append(c.owned[x.key], x)
	return x
}

// tie notes the claims that a pod uses, a row each.
func (c *Collector) tie(at time.Time, x *pod, p *sight) {
	if !c.o.Claims {
		return
	}
	change := changeAdded
	if x.existing {
		change = changeExisting
	}
	// A volume that cannot be read ties nothing; the pod's own life goes on.
	_ = p.claims(func(claim string) {
		c.ties = append(c.ties, record.ObjectChange{
			TimeMicros: at.UnixMicro(), Kind: "Pod", Namespace: x.row.Namespace, Name: x.row.Name, UID: x.row.UID,
			Owner: x.row.Owner, Change: change, Ref: claim,
		})
	})
}

// kinds of what operations name by resource.
var kinds = map[string]string{
	"pods": "Pod", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet",
	"daemonsets": "DaemonSet", "jobs": "Job", "replicationcontrollers": "ReplicationController",
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
	if x.existing {
		return // nobody's operation asked for it
	}
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
	ties := c.ties
	c.ties = nil
	c.mu.Unlock()
	for _, r := range rows {
		w.Pod(r)
	}
	for _, r := range ties {
		w.Object(r)
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

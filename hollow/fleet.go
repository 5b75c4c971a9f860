package hollow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/internal/introspect"
)

// startConcurrency is how many nodes register at the same time. More would
// only queue in the API server, and in its priority level for nodes.
const startConcurrency = 16

// A Fleet is all hollow nodes of one process.
type Fleet struct {
	conf    Config
	emit    func(Event)
	metrics *metrics
	ids     *identities
	version string // of the server: what the nodes claim to be
	nodes   []*node
	byName  map[string]*node
	timers  *timers
	plugin  *plugin // nil where addresses are there

	ctx     context.Context // of all that runs, set by Run
	mu      sync.Mutex      // guards what follows
	closed  bool
	running sync.WaitGroup // what was started
	workers sync.WaitGroup // the goroutines that run it
	idle    chan func(context.Context)
	resting chan struct{} // a token for each goroutine that may wait at idle
	counts  struct{ registered, ready, schedulable, settled int }
	changed bool // counts, since the last progress event
}

// NewFleet prepares a fleet. emit receives its events one at a time.
func NewFleet(conf Config, emit func(Event)) (*Fleet, error) {
	f := &Fleet{conf: conf, metrics: newMetrics(), idle: make(chan func(context.Context)), resting: make(chan struct{}, maxResting)}
	var one sync.Mutex
	f.emit = func(e Event) {
		one.Lock()
		defer one.Unlock()
		emit(e)
	}
	ids, err := newIdentities(&f.conf, f.metrics)
	if err != nil {
		return nil, err
	}
	f.ids = ids
	if c := f.conf.Network.IPAM; c != nil {
		if f.plugin, err = newPlugin(c); err != nil {
			return nil, err
		}
	}
	f.timers = newTimers(f.fire)
	return f, nil
}

// Run registers the nodes and keeps them alive until ctx ends. It returns when
// nothing of the fleet runs any more: nil if it was only told to stop.
func (f *Fleet) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.ctx = ctx

	url, served, err := introspect.Serve(ctx, f.metrics.registry, f.conf.Pprof)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, <-served)
	}()
	f.emit(Event{Event: "listening", MetricsURL: url})

	failed := make(chan error, 1)
	f.start(f.timers.run)
	f.start(f.progress)
	f.start(func(ctx context.Context) {
		if err := f.register(ctx); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, f.stop(cancel))
}

// stop ends all goroutines and, if it was asked for, removes what we made.
func (f *Fleet) stop(cancel func()) error {
	cancel()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
	f.workers.Wait()
	var err error
	if f.conf.Cleanup {
		err = f.cleanup()
	}
	for _, n := range f.nodes {
		if n.transport != nil {
			n.transport.Close()
		}
	}
	f.ids.close()
	return err
}

// start runs fn on a goroutine of the fleet. It reports false when the fleet
// is ending and fn will not run.
func (f *Fleet) start(fn func(ctx context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.ctx.Err() != nil {
		return false
	}
	f.running.Add(1)
	select {
	case f.idle <- fn:
	default:
		f.workers.Go(func() { f.work(fn) })
	}
	return true
}

// maxResting is how many goroutines wait for more to do. A new one would first
// have to grow its stack, copying it each time, until TLS fits: a tenth of what
// a lease renewal costs.
const maxResting = 64

// work runs fn, and then what else there is.
func (f *Fleet) work(fn func(context.Context)) {
	for {
		fn(f.ctx)
		f.running.Done()
		select {
		case f.resting <- struct{}{}:
		default:
			return // enough do
		}
		select {
		case fn = <-f.idle:
			<-f.resting
		case <-f.ctx.Done():
			return
		}
	}
}

// fire is called by the timers, on their goroutine, and must not wait.
func (f *Fleet) fire(t timer, late time.Duration) {
	n := t.node
	switch t.what {
	case leaseDue:
		f.start(n.renewLease)
	case statusDue:
		f.start(n.reportStatus)
	case recoverDue:
		f.start(n.comeBack)
	case pullDue:
		n.pulled(t.image, time.Now())
	case eventsDue:
		f.start(n.sendEvents)
	case volumesDue:
		f.start(n.reportVolumes)
	default:
		f.metrics.timerLate.Observe(late.Seconds())
		n.advance(t.pod, t, time.Now())
	}
}

// register registers all nodes, in order, a few at a time.
func (f *Fleet) register(ctx context.Context) error {
	if err := f.greet(ctx); err != nil {
		return err
	}
	if f.conf.Traffic == Least {
		f.start(f.followNodes)
		f.start(f.followPods)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	todo := make(chan *node)
	for range min(startConcurrency, len(f.nodes)) {
		workers.Go(func() {
			for n := range todo {
				if err := n.register(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, n := range f.nodes {
		select {
		case todo <- n:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(todo)
	workers.Wait()
	return context.Cause(ctx)
}

// greet makes the nodes and asks the server for its version.
func (f *Fleet) greet(ctx context.Context) error {
	nodes := make([]*node, f.conf.Nodes)
	for i := range nodes {
		nodes[i] = newNode(f, i)
		var err error
		if nodes[i].client, nodes[i].transport, err = f.ids.of(i, nodes[i].name); err != nil {
			return err
		}
	}
	f.nodes, f.byName = nodes, make(map[string]*node, len(nodes))
	for _, n := range nodes {
		f.byName[n.name] = n
	}
	// Long enough for a server that is just starting, short enough for a
	// wrong address to be reported.
	const patience = 10 * time.Second
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := retry(asking, func() (err error) {
		f.version, err = nodes[0].client.gitVersion(asking)
		return err
	})
	if err != nil {
		return fmt.Errorf("API server %s does not answer: %w", f.ids.base.Host, err)
	}
	return nil
}

// counted notes that one more node has reached a state.
func (f *Fleet) counted(state string) {
	f.metrics.nodes.WithLabelValues(state).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch state {
	case "registered":
		f.counts.registered++
	case "ready":
		f.counts.ready++
	case "schedulable":
		f.counts.schedulable++
	}
	f.changed = true
}

// settled reports a node that is both ready and schedulable, and the fleet
// when it was the last one.
func (f *Fleet) settled(n *node) {
	n.mu.Lock()
	done := !n.settled && !n.readyAt.IsZero() && !n.schedulableAt.IsZero()
	if done {
		n.settled = true
	}
	e := Event{
		Event: "node", Name: n.name, CreatedMicros: n.created.UnixMicro(),
		ReadyMicros: n.readyAt.UnixMicro(), SchedulableMicros: n.schedulableAt.UnixMicro(),
	}
	n.mu.Unlock()
	if !done {
		return
	}
	f.emit(e)
	f.mu.Lock()
	f.counts.settled++
	last := f.counts.settled == f.conf.Nodes
	f.mu.Unlock()
	if last {
		f.report()
		f.emit(f.ready())
	}
}

// ready sums up how long it took, from the first node's creation.
func (f *Fleet) ready() Event {
	var first, ready, schedulable time.Time
	for _, n := range f.nodes {
		n.mu.Lock()
		if first.IsZero() || n.created.Before(first) {
			first = n.created
		}
		if n.readyAt.After(ready) {
			ready = n.readyAt
		}
		if n.schedulableAt.After(schedulable) {
			schedulable = n.schedulableAt
		}
		n.mu.Unlock()
	}
	return Event{
		Event: "ready", Nodes: f.conf.Nodes,
		ReadySeconds: ready.Sub(first).Seconds(), SchedulableSeconds: schedulable.Sub(first).Seconds(),
		LeftOut: f.conf.leftOut(),
	}
}

// progress reports the counts while they change.
func (f *Fleet) progress(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.report()
		}
	}
}

func (f *Fleet) report() {
	f.mu.Lock()
	c, changed := f.counts, f.changed
	f.changed = false
	f.mu.Unlock()
	if changed {
		f.emit(Event{Event: "progress", Progress: &Progress{c.registered, c.ready, c.schedulable}})
	}
}

// cleanup deletes the nodes and leases of this fleet. It has its own time: ctx
// has ended by now.
func (f *Fleet) cleanup() error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := f.ids.cleaner()
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	todo := make(chan *node)
	for range startConcurrency {
		workers.Go(func() {
			for n := range todo {
				by := c
				if by == nil {
					by = n.client
				}
				if err := n.remove(ctx, by); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, n := range f.nodes {
		todo <- n
	}
	close(todo)
	workers.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("cleaning up: %d nodes or leases are left, the first because: %w", len(errs), errs[0])
	}
	return nil
}

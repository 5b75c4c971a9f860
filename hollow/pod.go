package hollow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A stage is how far a pod has come on its node. Stages follow one another;
// a status that is overtaken before it was sent is never sent, as in a
// kubelet, whose status manager sends the latest.
type stage uint8

const (
	received    stage = iota
	pendingTold       // status: containers are being created, sandbox and init containers next
	started           // status: running
	ended             // the containers ended by themselves, not to start again
	terminating       // status: the deletion's generation is seen
	stopped           // status: containers ended
	settledDown       // the kubelet looks once more, nothing has changed
	finished          // the object may go
	refused           // status: rejected
)

// A pod is one pod on a node. node.mu guards all fields; the one goroutine that
// talks about this node's pods alone writes told, and so reads it without.
type pod struct {
	namespace, name, uid string
	version              string // for events, as the kubelet's copy has it
	generation           int64
	stage                stage
	queued               bool
	deleting, gone       bool
	evicting             bool
	counts               bool  // against the node's capacity
	fails                uint8 // syncs failed in a row
	ip                   string
	due                  time.Time     // intended Running: receipt + start delay + init containers
	gap                  time.Duration // between sandbox and first container, as between containers
	mounts               int           // what its volumes still wait for
	held                 bool          // its start waits for them
	heldFor              time.Duration
	waited               time.Duration        // node.waited when the start was due
	starting, networked  bool                 // the runtime works on it; so has its network plugin
	addressed, leased    bool                 // the plugin was asked for an address; it has one
	pulls                int                  // of images that it waits for
	sandboxing           time.Time            // since when the sandbox is made
	pulled               map[string]time.Time // images that it asked for, since when
	shape                *shape
	refs                 []reference
	mounting             bool // refs are watched
	account              string
	tokens               []*authenticationv1.TokenRequest
	claims, volumes      []string                  // its claims; unique names of its volumes in use
	repeated             map[string]*repeatedEvent // of a pod whose containers end

	is   view // its status
	told view // as the API server knows it
}

// watchPods watches the pods bound to this node.
func (n *node) watchPods(ctx context.Context) {
	n.follow(ctx, watched{
		resource: "pods", path: "/api/v1/pods", selector: "spec.nodeName=" + n.name, isPod: true,
		event:   n.podEvent,
		replace: n.keepOnly,
	})
}

// followPods watches the pods of all nodes of the fleet at once, for least
// traffic.
func (f *Fleet) followPods(ctx context.Context) {
	f.nodes[0].follow(ctx, watched{
		resource: "pods", path: "/api/v1/pods", selector: "spec.nodeName!=", isPod: true,
		event: func(kind string, h header, raw []byte) {
			if n := f.byName[string(podNode(raw))]; n != nil {
				n.podEvent(kind, h, raw)
			}
		},
		replace: func(uids map[string]bool) {
			for _, n := range f.nodes {
				n.keepOnly(uids)
			}
		},
	})
}

// podEvent takes in one watch event. h and raw are valid during the call.
func (n *node) podEvent(kind string, h header, raw []byte) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[string(h.uid)]
	if kind == "DELETED" {
		if p != nil {
			n.forget(p)
			delete(n.pods, p.uid)
		}
		return
	}
	if p == nil {
		p = n.receive(now, h, raw)
		if p == nil {
			return
		}
	} else if h.generation != p.generation || h.deleting != p.deleting {
		p.version = string(h.version)
	}
	if h.generation > p.generation {
		p.generation = h.generation
	}
	if h.deleting && !p.deleting && !p.gone {
		n.terminate(p, now)
	}
}

// receive begins a pod's life here. It returns nil for a pod of which there is
// nothing to do. n.mu is held.
func (n *node) receive(now time.Time, h header, raw []byte) *pod {
	phase := v1.PodPhase(h.phase)
	over := phase == v1.PodFailed || phase == v1.PodSucceeded
	if over && !h.deleting {
		return nil // ended before we came, and nobody wants it gone
	}
	// Once per pod we need most of the spec, and decode it whole.
	var object v1.Pod
	if err := object.Unmarshal(raw); err != nil {
		n.fleet.metrics.failed(watchRequest, "malformed")
		return nil
	}
	p := &pod{
		namespace: object.Namespace, name: object.Name, uid: string(object.UID),
		version: object.ResourceVersion, generation: object.Generation,
		shape: newShape(&object), is: bound(), told: bound(),
	}
	if *n.fleet.conf.Volumes {
		p.refs, p.tokens = references(&object), tokens(&object)
		p.mounts, p.account = len(p.tokens), cmp.Or(object.Spec.ServiceAccountName, "default")
	}
	if n.fleet.conf.Storage != nil {
		p.claims = claimsOf(&object)
		p.mounts += len(p.claims)
	}
	n.pods[p.uid] = p
	n.fleet.metrics.podsSeen.Inc()
	n.fleet.metrics.podsHeld.Inc()
	switch {
	case over:
		p.told.phase, p.is.phase = phase, phase
	case phase == v1.PodRunning:
		// Started by an earlier process of this fleet: go on from there.
		p.adopt(&object, now.Unix())
		n.count(p)
		n.mount(p)
	case n.active >= n.fleet.conf.Pods:
		// The message is the kubelet's word for word: operators search for it.
		reason := fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", n.active, n.fleet.conf.Pods)
		p.stage, p.is = refused, p.is.reject(p.generation, now.Unix(), "OutOfpods", "Pod was rejected: "+reason)
		n.emit(p.event(now, v1.EventTypeWarning, "OutOfpods", reason, ""))
		n.enqueue(p)
	default:
		n.count(p)
		if p.ip = n.hostIP; !p.shape.hostNetwork {
			p.ip = n.podIP()
		}
		p.is = p.is.pending(p.shape, p.generation, now.Unix(), n.hostIP)
		if n.fleet.conf.Traffic != Least {
			n.after(p, now, admitDelay, drawAdmit, admitDue)
		}
		if p.held = len(p.claims) > 0; !p.held { // else the start begins once they are mounted
			n.planStart(p, now)
		}
	}
	return p
}

// adopt takes over a pod that runs already.
func (p *pod) adopt(object *v1.Pod, now int64) {
	if t := object.Status.StartTime; t != nil {
		now = t.Unix()
	}
	p.ip = object.Status.PodIP
	v := bound().pending(p.shape, object.Status.ObservedGeneration, now, object.Status.HostIP)
	v = v.run(p.shape, now, p.ip)
	p.is, p.told = v.probed(p.shape, true, now), v.probed(p.shape, true, now)
	p.stage, p.tokens, p.mounts = started, nil, 0
}

func (n *node) count(p *pod) {
	p.counts = true
	n.active++
}

// terminate reacts to a deletion. n.mu is held.
func (n *node) terminate(p *pod, now time.Time) {
	p.deleting = true
	n.started(p)
	if p.told.phase == v1.PodFailed || p.told.phase == v1.PodSucceeded || p.stage == refused {
		// It has ended, so the API server lets it go at once, and nearly always
		// we hear of that before we would have asked for it.
		n.after(p, now, cleanupDelay, drawCleanup, cleanupDue)
		return
	}
	if n.fleet.conf.Traffic == Least {
		p.stage = finished
		n.enqueue(p)
		return
	}
	if p.is.containers == running && !p.evicting { // they are being stopped
		n.killing(p, now)
	}
	p.stage, p.is = terminating, p.is.observe(p.generation)
	n.enqueue(p)
	n.after(p, now, n.fleet.conf.StopDelay, drawStop, stopDue)
}

// killing says that the containers are being stopped. n.mu is held.
func (n *node) killing(p *pod, now time.Time) {
	for _, i := range p.shape.order {
		name := p.shape.containers[i].name
		n.emit(p.event(now, v1.EventTypeNormal, "Killing", "Stopping container "+name, name))
	}
}

// after plans a pod's next stage.
func (n *node) after(p *pod, now time.Time, d Delay, draw int, what timerKind) {
	n.fleet.timers.add(timer{at: now.Add(d.of(n.fleet.conf.Seed, p.uid, draw)), what: what, node: n, pod: p, run: p.is.restarts})
}

// advance moves a pod on when a delay has ended.
func (n *node) advance(p *pod, t timer, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.gone {
		return
	}
	at := now.Unix()
	switch t.what {
	case stopDue:
		p.stage = stopped
		if p.evicting { // what it failed of stays
			p.is = p.is.evict(p.shape, at)
		} else {
			p.is = p.is.stop(at)
		}
		n.release(p)
		n.after(p, now, settleDelay, drawSettle, settleDue)
	case settleDue:
		if p.deleting {
			p.stage = settledDown
			n.after(p, now, cleanupDelay, drawCleanup, cleanupDue)
		}
	case cleanupDue:
		n.letGo(p)
		p.stage = finished
	case retryDue: // the stage stays
	default:
		if p.deleting || t.run != p.is.restarts || !n.live(p, t.what, now) {
			return
		}
	}
	n.enqueue(p)
}

// live moves a pod on that is not being deleted, and says whether its status
// is to be told. n.mu is held.
func (n *node) live(p *pod, what timerKind, now time.Time) bool {
	at := now.Unix()
	if p.evicting && what != evictedDue {
		return false
	}
	switch what {
	case admitDue:
		if p.stage != received {
			return false
		}
		p.stage = pendingTold
		n.mount(p)
	case diskDue:
		n.planSandbox(p, now)
		return false
	case sandboxDue:
		if p.is.containers != waiting {
			return false
		}
		if p.mounts > 0 { // volumes come before the sandbox
			p.held = p.held || n.fleet.conf.stepwise()
			return false
		}
		if !n.network(p, now) {
			return false
		}
		if n.fleet.conf.stepwise() {
			n.fleet.metrics.sandbox.Observe(now.Sub(p.sandboxing).Seconds())
			n.pull(p, now)
		}
		if n.fleet.conf.Traffic == Least {
			return false
		}
		p.stage, p.is = pendingTold, p.is.sandboxed(at)
	case initDue:
		if p.mounts > 0 {
			p.held = true
			return false
		}
		n.initialise(p, now)
	case startDue:
		if p.mounts > 0 {
			p.held = true
			return false
		}
		p.stage, p.waited = started, n.waited
		if !n.syncBegan.IsZero() {
			p.waited += now.Sub(n.syncBegan) // of the sync in progress
		}
		n.run(p, now)
	case readyDue:
		if p.is.containers != running || p.is.ready {
			return false
		}
		p.is = p.is.probed(p.shape, true, at)
	case endDue:
		n.end(p, now)
	case completeDue:
		p.stage, p.is = ended, p.is.complete(at)
		n.release(p)
		n.after(p, now, settleDelay, drawSettle, settleDue)
	case evictDue:
		if p.is.containers != running || p.stage != started {
			return false // it has ended, or waits to be started again
		}
		n.emit(p.event(now, v1.EventTypeWarning, "Evicted", p.shape.eviction.message, ""))
		n.killing(p, now)
		p.evicting = true
		n.after(p, now, n.fleet.conf.StopDelay, drawStop, evictedDue)
		// A kubelet looks at the pod, and says that it failed once nothing runs.
		return n.fleet.conf.Traffic != Least
	case evictedDue:
		p.stage, p.is = ended, p.is.evict(p.shape, at)
		n.release(p)
		n.after(p, now, settleDelay, drawSettle, settleDue)
	case backOffDue:
		p.is = p.is.backOff()
		n.after(p, now, restartDelay, drawRestart, restartDue)
	case restartDue:
		n.run(p, now)
	}
	return true
}

// initialise lets init containers run, one after the other.
func (n *node) initialise(p *pod, now time.Time) {
	done := int(p.is.inits)
	if p.is.initOn {
		done++ // the one that ran has ended
	}
	p.stage = pendingTold
	for ; done < len(p.shape.inits); done++ {
		c := &p.shape.inits[done]
		n.startEvents(p, c, now)
		if !c.sidecar && p.shape.initFor > 0 {
			p.is = p.is.initialise(p.shape, done, true, now.Unix(), p.ip)
			n.fleet.timers.add(timer{at: now.Add(p.shape.initFor), what: initDue, node: n, pod: p})
			return
		}
	}
	p.is = p.is.initialise(p.shape, done, false, now.Unix(), p.ip)
	n.fleet.timers.add(timer{at: later(now, p.due), what: startDue, node: n, pod: p})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// run starts the containers, and plans what they will do.
func (n *node) run(p *pod, now time.Time) {
	n.started(p)
	p.is = p.is.run(p.shape, now.Unix(), p.ip)
	for _, i := range p.shape.order {
		n.startEvents(p, &p.shape.containers[i], now)
	}
	plan := func(after time.Duration, what timerKind) {
		n.fleet.timers.add(timer{at: now.Add(after), what: what, node: n, pod: p, run: p.is.restarts})
	}
	if p.shape.probes {
		// The probe's own clock began with the pod: the first look comes within a period.
		within := time.Duration(uniform(n.fleet.conf.Seed, p.uid, drawProbe) * float64(p.shape.period))
		plan(p.shape.probe+within, readyDue)
	}
	if p.shape.ends {
		plan(p.shape.runFor, endDue)
	}
	if p.shape.evicts {
		plan(p.shape.evictIn, evictDue)
	}
}

// end lets the containers end by themselves, and start again if they are to.
func (n *node) end(p *pod, now time.Time) {
	again := p.shape.again()
	p.is = p.is.end(p.shape, now.Unix(), p.shape.exit, again)
	plan := func(after time.Duration, what timerKind) {
		n.fleet.timers.add(timer{at: now.Add(after), what: what, node: n, pod: p, run: p.is.restarts})
	}
	if !again {
		plan(completeDelay.of(n.fleet.conf.Seed, p.uid, drawComplete), completeDue)
		return
	}
	wait := backOffAfter(p.is.restarts)
	if wait == 0 {
		plan(restartDelay.of(n.fleet.conf.Seed, p.uid, drawRestart), restartDue)
		return
	}
	for i := range p.shape.containers {
		name := p.shape.containers[i].name
		n.emit(p.event(now, v1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, p.shape.fullName), name))
	}
	plan(wait, backOffDue)
}

// startEvents are what a kubelet says of a container whose image is present.
func (n *node) startEvents(p *pod, c *containerShape, now time.Time) {
	if !*n.fleet.conf.Events {
		return
	}
	for _, e := range []struct{ reason, message string }{
		{"Pulled", n.pulledMessage(p, c, now)},
		{"Created", "Container created"}, {"Started", "Container started"},
	} {
		event := p.event(now, v1.EventTypeNormal, e.reason, e.message, c.name)
		event.init = c.init
		n.emit(event)
	}
}

func (p *pod) event(at time.Time, kind, reason, message, container string) podEvent {
	return podEvent{
		at: at, namespace: p.namespace, name: p.name, uid: p.uid, version: p.version,
		kind: kind, reason: reason, message: message, container: container,
	}
}

// release gives the pod's place on the node back. n.mu is held.
func (n *node) release(p *pod) {
	if p.counts {
		p.counts = false
		n.active--
	}
}

// forget ends a pod's life here. It stays known by its UID until the watch has
// told of its end too: events from before our DELETE may still be on their way
// and must not bring it back. n.mu is held.
func (n *node) forget(p *pod) {
	if p.gone {
		return
	}
	p.gone = true
	n.started(p)
	n.unmount(p)
	if p.leased {
		n.fleet.start(func(ctx context.Context) { n.unassign(ctx, handleID(p)) })
	}
	p.shape = nil
	n.release(p)
	n.fleet.metrics.podsDeleted.Inc()
	n.fleet.metrics.podsHeld.Dec()
}

// keepOnly forgets the pods that a complete list no longer has.
func (n *node) keepOnly(uids map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, p := range n.pods {
		if !uids[uid] {
			n.forget(p)
			delete(n.pods, uid)
		}
	}
}

// enqueue asks for a pod's status to be told. n.mu is held.
func (n *node) enqueue(p *pod) {
	if p.queued {
		return
	}
	p.queued = true
	n.queue = append(n.queue, p)
	if !n.syncing {
		n.syncing = n.fleet.start(n.syncPods)
	}
}

// syncPods tells the statuses that wait, one after the other as a kubelet's
// status manager does, and ends.
func (n *node) syncPods(ctx context.Context) {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 || ctx.Err() != nil {
			n.queue, n.syncing = nil, false
			n.mu.Unlock()
			return
		}
		p := n.queue[0]
		n.queue[0] = nil
		n.queue = n.queue[1:]
		p.queued = false
		if p.gone {
			n.mu.Unlock()
			continue
		}
		s := podSync{n: n, pod: p, shape: p.shape, view: p.is, stage: p.stage, waited: n.waited - p.waited + p.heldFor}
		n.syncBegan = time.Now()
		n.mu.Unlock()

		err := s.run(ctx)

		n.mu.Lock()
		n.waited += s.spent
		n.syncBegan = time.Time{}
		switch {
		case err == errGone:
			n.forget(p)
		case err != nil && ctx.Err() == nil:
			n.fleet.metrics.retries.Inc()
			n.fleet.timers.add(timer{
				at: time.Now().Add(backoff(int(p.fails), retryFirst, retryMost)), what: retryDue, node: n, pod: p,
			})
			p.fails = min(p.fails+1, 20)
		default:
			p.fails = 0
		}
		n.mu.Unlock()
	}
}

// A kubelet's status manager comes back to a failed pod on its ten-second
// round. We come back sooner at first, so that a short pause of the API server
// does not add ten seconds to the pods it met, and never later.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 10 * time.Second
)

// errGone says that the API server has no such pod any more.
var errGone = errors.New("pod is gone")

// A podSync tells the API server about one pod, once.
type podSync struct {
	n      *node
	pod    *pod
	shape  *shape
	view   view
	stage  stage
	waited time.Duration // for the API server since the pod's start was due
	spent  time.Duration // waiting for the API server in this sync
}

// run does what a kubelet's status manager does for one pod: read it, send the
// difference, and delete it when it has ended and was to be deleted.
func (s *podSync) run(ctx context.Context) error {
	path := "/api/v1/namespaces/" + s.pod.namespace + "/pods/" + s.pod.name
	if s.n.fleet.conf.Traffic == Least {
		if s.stage == finished {
			return s.delete(ctx, path)
		}
		err := s.patch(ctx, path)
		if isCode(err, http.StatusNotFound) {
			return errGone
		}
		if !isCode(err, http.StatusConflict) {
			return err
		}
		// Another pod of that name, or writers in our way: a look tells.
	}
	answer, err := s.do(ctx, getPod, path, noBody, nil)
	if err != nil {
		if isCode(err, http.StatusNotFound) {
			return errGone
		}
		return err
	}
	raw, err := unwrap(answer.Bytes())
	var h header
	if err == nil {
		h, err = readHeader(raw, true)
	}
	same := string(h.uid) == s.pod.uid
	release(answer)
	if err != nil {
		return err
	}
	if !same {
		return errGone // deleted, and created anew under the same name
	}
	if s.view != s.pod.told {
		if err := s.patch(ctx, path); err != nil {
			return err
		}
	}
	if s.stage != finished {
		return nil
	}
	return s.delete(ctx, path)
}

func (s *podSync) do(ctx context.Context, k request, path string, kind bodyKind, body []byte) (*bytes.Buffer, error) {
	began := time.Now()
	answer, err := s.n.client.do(ctx, k, path, kind, body)
	s.spent += time.Since(began)
	return answer, err
}

func (s *podSync) patch(ctx context.Context, path string) error {
	p, v, m := s.pod, &s.view, s.n.fleet.metrics
	body := v.appendPatch(make([]byte, 0, 2048), &p.told, s.shape, p.uid)
	starts := v.phase == v1.PodRunning && p.told.phase != v1.PodRunning
	if starts && !p.due.IsZero() {
		late := time.Since(p.due)
		m.startWait.Observe(max(0, late.Seconds()))
		m.startLate.Observe(max(0, (late - s.waited - s.spent).Seconds()))
	}
	answer, err := s.do(ctx, patchPod, path+"/status", patchBody, body)
	release(answer)
	if err != nil {
		return err
	}
	m.patches[patchKind(&p.told, v)].Inc()
	if starts {
		m.podsRunning.Inc()
	}
	if s.stage == refused {
		m.podsRefused.Inc()
	}
	s.n.mu.Lock() // the watch looks at it
	p.told = *v
	s.n.mu.Unlock()
	return nil
}

func patchKind(was, is *view) string {
	switch {
	case is.containers == untold:
		return "rejected"
	case is.reason != was.reason:
		return "evicted"
	case is.phase != was.phase && is.phase == v1.PodRunning:
		return "running"
	case is.phase != was.phase:
		return "stopped"
	case was.containers == untold:
		return "pending"
	case is.restarts != was.restarts:
		return "restarted"
	case is.containers != was.containers:
		return "ended"
	case is.inits != was.inits || is.initOn != was.initOn:
		return "init"
	case is.ready != was.ready:
		return "ready"
	case is.generation != was.generation:
		return "terminating"
	}
	return "sandbox"
}

func (s *podSync) delete(ctx context.Context, path string) error {
	grace := int64(0)
	uid := types.UID(s.pod.uid)
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid}}
	body, err := wrap("v1", "DeleteOptions", options.Size(), options.MarshalToSizedBuffer)
	if err != nil {
		return err
	}
	answer, err := s.do(ctx, deletePod, path, protobufBody, body)
	release(answer)
	if err == nil || isCode(err, http.StatusNotFound) {
		return errGone
	}
	return err
}

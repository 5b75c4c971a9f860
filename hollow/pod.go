package hollow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

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
	pendingTold       // status: containers are being created
	started           // status: running
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
	counts               bool  // against the node's capacity
	fails                uint8 // syncs failed in a row
	ip                   string
	due                  time.Time // intended Running: receipt + start delay
	seenAt, runAt        int64     // Unix seconds
	stopAt               int64
	refusal              string
	waited               time.Duration // node.waited when the start was due
	shape                *shape

	told view
}

// watchPods watches the pods bound to this node.
func (n *node) watchPods(ctx context.Context) {
	n.follow(ctx, watched{
		resource: "pods", path: "/api/v1/pods", selector: "spec.nodeName=" + n.name, isPod: true,
		event:   n.podEvent,
		replace: n.keepOnly,
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
	ended := phase == v1.PodFailed || phase == v1.PodSucceeded
	if ended && !h.deleting {
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
		seenAt: now.Unix(), shape: newShape(&object), told: bound(),
	}
	n.pods[p.uid] = p
	n.fleet.metrics.podsSeen.Inc()
	n.fleet.metrics.podsHeld.Inc()
	switch {
	case ended:
		p.told.phase = phase
	case phase == v1.PodRunning:
		// Started by an earlier process of this fleet: go on from there.
		p.adopt(&object)
		n.count(p)
	case n.active >= n.fleet.conf.Pods:
		// The message is the kubelet's word for word: operators search for it.
		reason := fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", n.active, n.fleet.conf.Pods)
		p.stage, p.refusal = refused, "Pod was rejected: "+reason
		n.emit(p.event(now, v1.EventTypeWarning, "OutOfpods", reason, ""))
		n.enqueue(p)
	default:
		n.count(p)
		if p.ip = n.hostIP; !p.shape.hostNetwork {
			p.ip = n.podIP()
		}
		n.after(p, now, admitDelay, drawAdmit, admitDue)
		p.due = now.Add(n.fleet.conf.StartDelay.of(n.fleet.conf.Seed, p.uid, drawStart))
		n.fleet.timers.add(timer{at: p.due, what: startDue, node: n, pod: p})
	}
	return p
}

// adopt takes over a pod that runs already.
func (p *pod) adopt(object *v1.Pod) {
	now := p.seenAt
	if t := object.Status.StartTime; t != nil {
		now = t.Unix()
	}
	p.ip = object.Status.PodIP
	v := bound().pending(p.shape, object.Status.ObservedGeneration, now, object.Status.HostIP)
	p.told = v.run(p.shape, now, p.ip)
	p.stage, p.runAt = started, now
}

func (n *node) count(p *pod) {
	p.counts = true
	n.active++
}

// terminate reacts to a deletion. n.mu is held.
func (n *node) terminate(p *pod, now time.Time) {
	p.deleting = true
	if p.told.phase == v1.PodFailed || p.told.phase == v1.PodSucceeded || p.stage == refused {
		p.stage = finished
		n.enqueue(p)
		return
	}
	if p.runAt != 0 {
		for i := range p.shape.containers {
			name := p.shape.containers[i].name
			n.emit(p.event(now, v1.EventTypeNormal, "Killing", "Stopping container "+name, name))
		}
	}
	p.stage = terminating
	n.enqueue(p)
	n.after(p, now, stopDelay, drawStop, stopDue)
}

// after plans a pod's next stage.
func (n *node) after(p *pod, now time.Time, d Delay, draw int, what timerKind) {
	n.fleet.timers.add(timer{at: now.Add(d.of(n.fleet.conf.Seed, p.uid, draw)), what: what, node: n, pod: p})
}

// advance moves a pod on when a delay has ended.
func (n *node) advance(p *pod, what timerKind, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.gone {
		return
	}
	switch what {
	case admitDue:
		if p.stage != received {
			return
		}
		p.stage = pendingTold
	case startDue:
		if p.deleting || p.stage >= started {
			return
		}
		p.stage, p.runAt, p.waited = started, now.Unix(), n.waited
		if !n.syncBegan.IsZero() {
			p.waited += now.Sub(n.syncBegan) // of the sync in progress
		}
		n.startEvents(p, now)
	case stopDue:
		p.stage, p.stopAt = stopped, now.Unix()
		n.release(p)
		n.after(p, now, settleDelay, drawSettle, settleDue)
	case settleDue:
		p.stage = settledDown
		n.after(p, now, cleanupDelay, drawCleanup, cleanupDue)
	case cleanupDue:
		p.stage = finished
	case retryDue: // the stage stays
	}
	n.enqueue(p)
}

// startEvents are what a kubelet says of containers whose image is present.
func (n *node) startEvents(p *pod, now time.Time) {
	if !*n.fleet.conf.Events {
		return
	}
	for _, list := range [2][]containerShape{p.shape.inits, p.shape.containers} {
		for i := range list {
			c := &list[i]
			n.emit(p.event(now, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.image), c.name))
			n.emit(p.event(now, v1.EventTypeNormal, "Created", "Container created", c.name))
			n.emit(p.event(now, v1.EventTypeNormal, "Started", "Container started", c.name))
		}
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
		s := podSync{n: n, pod: p, shape: p.shape, view: p.desired(), stage: p.stage, waited: n.waited - p.waited}
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

// desired is the view that belongs to the pod's stage. n.mu is held.
func (p *pod) desired() view {
	v := p.told
	if p.stage == refused {
		if v.phase == "" {
			v = v.reject(p.generation, p.seenAt, "OutOfpods", p.refusal)
		}
		return v
	}
	if v.phase == v1.PodFailed || v.phase == v1.PodSucceeded {
		return v
	}
	if v.containers == untold {
		v = v.pending(p.shape, p.generation, p.seenAt, "")
	}
	if p.runAt != 0 && v.containers == waiting {
		v = v.run(p.shape, p.runAt, p.ip)
	}
	if p.stage >= terminating {
		v = v.observe(p.generation)
	}
	if p.stopAt != 0 {
		v = v.stop(p.stopAt)
	}
	return v
}

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
	if s.view.containers != untold && s.view.hostIP == "" {
		s.view.hostIP = s.n.hostIP
		if s.shape.hostNetwork {
			s.view.podIP = s.n.hostIP
		}
	}
	path := "/api/v1/namespaces/" + s.pod.namespace + "/pods/" + s.pod.name
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
	case is.phase == was.phase && is.containers == waiting && was.containers == untold:
		return "pending"
	case is.phase == was.phase:
		return "terminating"
	case is.phase == v1.PodRunning:
		return "running"
	case is.containers == untold:
		return "rejected"
	}
	return "stopped"
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

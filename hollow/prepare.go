package hollow

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Between a pod's volumes and its first container a node has work that its pods
// share: the runtime's workers, the disk, the network plugin, the registry. Each
// is a model of its own and left out unless it is asked for; then a pod that is
// alone takes its start delay, and many at once wait for each other.

// Images are pulled to a node when a pod first needs them. Without a delay all
// are there.
type Images struct {
	Pull     Delay `json:"pull,omitzero"`
	Parallel int   `json:"parallel,omitempty"` // pulls at one time; 1, as kubelets have it
}

// Network is the part of the sandbox that a network plugin makes.
type Network struct {
	Delay Delay `json:"delay,omitzero"`
	// Serial lets the plugin work for one pod of the node at a time.
	Serial bool `json:"serial,omitempty"`
	// IPAM lets it take addresses at the API server; nil: they are there.
	IPAM *IPAM `json:"ipam,omitempty"`
}

func (d Delay) isSet() bool { return d.Distribution != "" && d.Distribution != "none" }

// stepwise says whether a pod's start cannot be planned when it begins.
func (c *Config) stepwise() bool {
	return c.Network.Delay.isSet() || c.Network.IPAM != nil || c.Images.Pull.isSet()
}

// prepares is what a node's pods share while they start. node.mu guards it.
type prepares struct {
	starting int    // pods that the runtime works on
	waiting  []*pod // for it, in order
	diskFree time.Time
	netFree  time.Time
	images   map[string]bool   // that are there
	pulls    map[string][]*pod // images under way or queued, and who waits for them
	queued   []string          // pulls that have not begun, in order
	pulling  int
}

// planStart plans a pod's start once its volumes are there. n.mu is held.
func (n *node) planStart(p *pod, now time.Time) {
	if most := n.fleet.conf.Starts; most > 0 {
		if n.starting >= most {
			n.waiting = append(n.waiting, p)
			return
		}
		n.starting++
		p.starting = true
	}
	if disk := n.fleet.conf.Disk; disk.isSet() {
		n.diskFree = later(n.diskFree, now).Add(disk.of(n.fleet.conf.Seed, p.uid, drawDisk))
		n.fleet.timers.add(timer{at: n.diskFree, what: diskDue, node: n, pod: p})
		return
	}
	n.planSandbox(p, now)
}

// started lets the next pod begin when one has its containers, or needs none
// any more. n.mu is held.
func (n *node) started(p *pod) {
	if !p.starting {
		return
	}
	p.starting = false
	n.starting--
	for len(n.waiting) > 0 && n.starting < n.fleet.conf.Starts {
		next := n.waiting[0]
		n.waiting[0] = nil
		n.waiting = n.waiting[1:]
		if !next.gone && !next.deleting {
			n.planStart(next, time.Now())
		}
	}
}

// planSandbox plans sandbox and containers. n.mu is held.
func (n *node) planSandbox(p *pod, now time.Time) {
	// Measured on a real node: the sandbox takes three fifths of the way.
	delay := n.fleet.conf.StartDelay.of(n.fleet.conf.Seed, p.uid, drawStart)
	p.gap = delay * 2 / 5
	sandbox := now.Add(delay - p.gap)
	if n.fleet.conf.Traffic != Least || n.fleet.conf.stepwise() {
		n.fleet.timers.add(timer{at: sandbox, what: sandboxDue, node: n, pod: p})
	}
	p.sandboxing = now
	if !n.fleet.conf.stepwise() {
		n.fleet.metrics.sandbox.Observe(sandbox.Sub(now).Seconds())
		n.planContainers(p, sandbox)
	}
}

// planContainers plans the first container of a pod that has its sandbox at a
// time. n.mu is held.
func (n *node) planContainers(p *pod, sandbox time.Time) {
	first := sandbox.Add(p.gap)
	p.due = first
	what := startDue
	if len(p.shape.inits) > 0 {
		what = initDue
		p.due = first.Add(p.gap)
		for i := range p.shape.inits {
			if !p.shape.inits[i].sidecar {
				p.due = p.due.Add(p.shape.initFor)
			}
		}
	}
	n.fleet.timers.add(timer{at: first, what: what, node: n, pod: p})
}

// network reports whether a pod's network is there, and sees to it otherwise.
// n.mu is held.
func (n *node) network(p *pod, now time.Time) bool {
	c := n.fleet.conf.Network
	if c.IPAM != nil && !p.addressed && !p.shape.hostNetwork {
		p.addressed = true // when the plugin has done its work
		n.fleet.start(func(ctx context.Context) { n.address(ctx, p) })
		return false
	}
	if p.networked || !c.Delay.isSet() {
		return true
	}
	p.networked = true // when the timer comes
	at := now
	if c.Serial {
		at = later(at, n.netFree)
	}
	at = at.Add(c.Delay.of(n.fleet.conf.Seed, p.uid, drawNetwork))
	n.netFree = at
	n.fleet.timers.add(timer{at: at, what: sandboxDue, node: n, pod: p})
	return false
}

// pull begins with what of a pod's images is not there, and plans its
// containers when all are. n.mu is held.
func (n *node) pull(p *pod, now time.Time) {
	if n.fleet.conf.Images.Pull.isSet() {
		for _, list := range [][]containerShape{p.shape.inits, p.shape.containers} {
			for i := range list {
				n.want(p, &list[i], now)
			}
		}
	}
	if p.pulls == 0 {
		n.planContainers(p, now)
	}
}

// want asks for one image. n.mu is held.
func (n *node) want(p *pod, c *containerShape, now time.Time) {
	if n.images[c.image] {
		return
	}
	if n.pulls == nil {
		n.images, n.pulls = map[string]bool{}, map[string][]*pod{}
	}
	n.emit(p.event(now, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", c.image), c.name))
	p.pulls++
	if p.pulled == nil {
		p.pulled = map[string]time.Time{}
	}
	if _, twice := p.pulled[c.image]; !twice {
		p.pulled[c.image] = now
	}
	waiting, known := n.pulls[c.image]
	n.pulls[c.image] = append(waiting, p)
	if !known {
		n.queued = append(n.queued, c.image)
		n.pullNext(now)
	}
}

// pullNext begins as many pulls as may go on at one time. n.mu is held.
func (n *node) pullNext(now time.Time) {
	c := n.fleet.conf.Images
	for len(n.queued) > 0 && n.pulling < cmp.Or(c.Parallel, 1) {
		image := n.queued[0]
		n.queued = n.queued[1:]
		n.pulling++
		took := c.Pull.of(n.fleet.conf.Seed, n.name+"/"+image, drawPull)
		n.fleet.timers.add(timer{at: now.Add(took), what: pullDue, node: n, image: image})
	}
}

// pulled lets the pods go on that waited for an image.
func (n *node) pulled(image string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pulling--
	n.images[image] = true
	waiting := n.pulls[image]
	delete(n.pulls, image)
	for _, p := range waiting {
		n.fleet.metrics.imagePull.Observe(now.Sub(p.pulled[image]).Seconds())
		if p.pulls--; p.pulls == 0 && !p.gone && !p.deleting {
			n.planContainers(p, now)
		}
	}
	n.pullNext(now)
}

// pulledMessage is what a kubelet says of an image when a container is made.
func (n *node) pulledMessage(p *pod, c *containerShape, now time.Time) string {
	if asked, ok := p.pulled[c.image]; ok {
		whole := now.Sub(asked).Round(time.Millisecond)
		took := n.fleet.conf.Images.Pull.of(n.fleet.conf.Seed, n.name+"/"+c.image, drawPull).Round(time.Millisecond)
		return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", c.image, min(took, whole), whole, imageBytes)
	}
	return fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.image)
}

// imageBytes is the size that is told of every image.
const imageBytes = 50 << 20

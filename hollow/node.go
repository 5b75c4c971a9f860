package hollow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedyno/kubedyno/internal/h2"
)

// RunLabel marks the Node objects of a fleet with its run.
const RunLabel = "kubedyno.io/run"

const leaseNamespace = "kube-node-lease"

// A node is one hollow node: what a kubelet keeps in memory, as far as the API
// server can tell. At rest it holds its connection and two watches.
type node struct {
	fleet     *Fleet
	number    int // among all nodes
	name      string
	uid       types.UID
	client    *client
	transport *h2.Transport // its own, or nil
	hostIP    string

	// These two belong to renewLease, of which one runs at a time.
	lease    *coordinationv1.Lease
	leaseDue time.Time

	mu                              sync.Mutex // guards what follows
	created, readyAt, schedulableAt time.Time
	settled                         bool            // both are reported
	recovering                      bool            // it was given up, and is about to say that it lives
	pods                            map[string]*pod // by UID
	refs                            map[reference]*referred
	prepares
	pluginLock chan struct{} // held by an invocation of the network plugin
	active     int           // pods that count against capacity
	firstIP    netip.Addr
	nextIP     uint32
	queue      []*pod        // pods whose status is to be told
	syncing    bool          // a goroutine works on queue
	syncBegan  time.Time     // of the sync in progress, or zero
	waited     time.Duration // for answers about pods, in all
	events     []podEvent
	lastEvent  time.Time
	sending    bool // a goroutine or timer works on events
	tokens     float64
	tokensAt   time.Time
	volumes    volumes
}

func newNode(f *Fleet, i int) *node {
	number := f.conf.First + i
	n := &node{
		fleet: f, number: number, name: f.conf.nodeName(i),
		pods:       map[string]*pod{},
		pluginLock: make(chan struct{}, 1),
		tokens:     eventBurst, tokensAt: time.Now(),
	}
	// 100.64.0.0/10 is carrier-grade NAT space, unlikely to be anybody's nodes.
	n.hostIP = ipv4(100<<24 | 64<<16 | uint32(number+1)).String()
	n.firstIP = ipv4(10<<24 | uint32(number)*addressesPerNode(f.conf.Pods))
	return n
}

// addressesPerNode is how many pod addresses a node draws from in turn.
func addressesPerNode(pods int) uint32 {
	n := uint32(256)
	for n < uint32(pods)+2 {
		n *= 2
	}
	return n
}

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// podIP hands out addresses in turn. n.mu is held.
func (n *node) podIP() string {
	usable := addressesPerNode(n.fleet.conf.Pods) - 2 // neither network nor broadcast
	at := n.nextIP%usable + 1
	n.nextIP++
	b := n.firstIP.As4()
	base := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return ipv4(base + at).String()
}

// object is the Node as a kubelet registers it: not ready, because it has not
// heard from its runtime yet.
func (n *node) object(now time.Time) (*v1.Node, error) {
	c := &n.fleet.conf
	cpu, err := resource.ParseQuantity(c.CPU)
	if err != nil {
		return nil, err
	}
	memory, err := resource.ParseQuantity(c.Memory)
	if err != nil {
		return nil, err
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU:                   cpu,
		v1.ResourceMemory:                memory,
		v1.ResourcePods:                  *resource.NewQuantity(int64(c.Pods), resource.DecimalSI),
		v1.ResourceEphemeralStorage:      resource.MustParse("100Gi"),
		v1.ResourceName("hugepages-2Mi"): resource.MustParse("0"),
	}
	labels := map[string]string{
		v1.LabelHostname:          n.name,
		v1.LabelOSStable:          runtime.GOOS,
		v1.LabelArchStable:        runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	if c.RunID != "" {
		labels[RunLabel] = c.RunID
	}
	if len(c.Zones) > 0 {
		labels[v1.LabelTopologyZone] = c.Zones[n.number%len(c.Zones)]
	}
	for k, v := range c.Labels {
		labels[k] = v
	}
	var taints []v1.Taint
	for _, t := range c.Taints {
		taints = append(taints, v1.Taint{Key: t.Key, Value: t.Value, Effect: v1.TaintEffect(t.Effect)})
	}
	id := string(appendHex(nil, n.name, 0))
	object := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, Labels: labels,
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: v1.NodeSpec{Taints: taints},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: n.hostIP},
				{Type: v1.NodeHostName, Address: n.name},
			},
			// The port on which logs and exec would be served: nobody is there.
			DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: 10250}},
			NodeInfo: v1.NodeSystemInfo{
				MachineID: id[:32], SystemUUID: id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:32],
				BootID:        id[32:40] + "-" + id[40:44] + "-" + id[44:48] + "-" + id[48:52] + "-" + id[52:64],
				KernelVersion: "6.12.0-kubedyno", OSImage: "kubedyno hollow node",
				ContainerRuntimeVersion: "containerd://2.1.0-hollow",
				KubeletVersion:          n.fleet.version, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
			},
		},
	}
	for _, c := range nodeConditions {
		c := v1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message,
			LastHeartbeatTime: metav1.Time{Time: now}, LastTransitionTime: metav1.Time{Time: now},
		}
		if c.Type == v1.NodeReady {
			c.Status, c.Reason = v1.ConditionFalse, "KubeletNotReady"
			c.Message = "[container runtime status check may not have completed yet, CSINode is not yet initialized]"
		}
		object.Status.Conditions = append(object.Status.Conditions, c)
	}
	return object, nil
}

// nodeConditions are a healthy kubelet's, in its order.
var nodeConditions = []struct {
	kind            v1.NodeConditionType
	status          v1.ConditionStatus
	reason, message string
}{
	{v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	{v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	{v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	{v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
}

// statusPatch is a kubelet's node status report. It says the conditions of which
// the API server has another state; of the others only the heartbeat changes.
func statusPatch(now time.Time, changed func(v1.NodeConditionType) bool) []byte {
	b := []byte(`{"status":{"$setElementOrder/conditions":[`)
	for i, c := range nodeConditions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"`...), c.kind...), `"}`...)
	}
	b = append(b, `],"conditions":[`...)
	for _, c := range nodeConditions {
		b = appendTime(append(b, `{"lastHeartbeatTime":`...), now.Unix())
		if changed(c.kind) {
			b = appendTime(append(b, `,"lastTransitionTime":`...), now.Unix())
			b = appendString(append(b, `,"message":`...), c.message)
			b = appendString(append(b, `,"reason":`...), c.reason)
			b = appendString(append(b, `,"status":`...), string(c.status))
		}
		b = append(append(append(b, `,"type":"`...), c.kind...), `"},`...)
	}
	b[len(b)-1] = ']'
	return append(b, "}}"...)
}

// unchanged is for reports without news.
func unchanged(v1.NodeConditionType) bool { return false }

// register creates the Node, reports it ready, begins its heartbeats and
// opens its watches. It repeats what fails, as a kubelet does, until ctx ends.
func (n *node) register(ctx context.Context) error {
	if err := n.create(ctx); err != nil {
		return err
	}
	n.fleet.counted("registered")
	least := n.fleet.conf.Traffic == Least
	if !least {
		n.fleet.start(n.watchNode)
	}
	n.fleet.start(n.renewLease)
	becameReady := func(k v1.NodeConditionType) bool { return k == v1.NodeReady }
	if err := retry(ctx, func() error { return n.report(ctx, becameReady) }); err != nil {
		return fmt.Errorf("node %s: ready status: %w", n.name, err)
	}
	now := time.Now()
	n.mu.Lock()
	n.readyAt = now
	n.mu.Unlock()
	n.fleet.counted("ready")
	n.fleet.settled(n)
	if !least {
		n.fleet.start(n.watchPods)
	}
	if *n.fleet.conf.Informers {
		n.inform()
	} else if n.fleet.conf.Storage != nil {
		n.fleet.start(n.makeCSINode)
	}
	n.scheduleStatus(now, true)
	return nil
}

func (n *node) create(ctx context.Context) error {
	now := time.Now()
	object, err := n.object(now)
	if err != nil {
		return err
	}
	body, err := wrap("v1", "Node", object.Size(), object.MarshalToSizedBuffer)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.created = now
	n.mu.Unlock()
	return retry(ctx, func() error {
		answer, err := n.client.do(ctx, createNode, "/api/v1/nodes", protobufBody, body)
		if isCode(err, http.StatusConflict) {
			// Registered before, by an earlier fleet or an answer that was lost.
			answer, err = n.client.do(ctx, getNode, "/api/v1/nodes/"+n.name, noBody, nil)
		}
		if err != nil {
			if isCode(err, http.StatusForbidden) || isCode(err, http.StatusUnauthorized) || isCode(err, http.StatusUnprocessableEntity) {
				return &finalError{fmt.Errorf("node %s may not register: %w", n.name, err)}
			}
			return err
		}
		defer release(answer)
		raw, err := unwrap(answer.Bytes())
		if err != nil {
			return err
		}
		h, err := readHeader(raw, false)
		n.uid = types.UID(h.uid)
		return err
	})
}

// report sends the node's status.
func (n *node) report(ctx context.Context, changed func(v1.NodeConditionType) bool) error {
	answer, err := n.client.do(ctx, patchNode, "/api/v1/nodes/"+n.name+"/status", patchBody, statusPatch(time.Now(), changed))
	release(answer)
	return err
}

// scheduleStatus plans the next report. Like a kubelet's, the first one after
// a change comes at 0.5 to 1.5 periods, so that nodes started together drift apart.
func (n *node) scheduleStatus(now time.Time, changed bool) {
	period := time.Duration(n.fleet.conf.Status) * time.Second
	if changed {
		period = time.Duration(float64(period) * (0.5 + uniform(n.fleet.conf.Seed, n.name, drawStatus)))
	}
	n.fleet.timers.add(timer{at: now.Add(period), what: statusDue, node: n})
}

func (n *node) reportStatus(ctx context.Context) {
	// A kubelet tries five times in a row and again ten seconds later.
	if err := retry(ctx, func() error { return n.report(ctx, unchanged) }); err == nil {
		n.scheduleStatus(time.Now(), false)
	}
}

// statusSync is how often a kubelet compares its status with that of its Node
// (nodeStatusUpdateFrequency).
const statusSync = 10 * time.Second

// givenUp notes that the controller manager has taken the node for failed: its
// conditions are unknown. A kubelet sets them right at its next comparison. It
// wants n.mu held.
func (n *node) givenUp(now time.Time) {
	if n.recovering || n.readyAt.IsZero() {
		return
	}
	n.recovering = true
	next := n.readyAt.Add((now.Sub(n.readyAt)/statusSync + 1) * statusSync)
	n.fleet.timers.add(timer{at: next, what: recoverDue, node: n})
}

// comeBack reports the node's conditions after it was given up.
func (n *node) comeBack(ctx context.Context) {
	all := func(v1.NodeConditionType) bool { return true }
	err := retry(ctx, func() error { return n.report(ctx, all) })
	n.mu.Lock()
	n.recovering = false
	if err != nil && ctx.Err() == nil {
		n.givenUp(time.Now())
	}
	n.mu.Unlock()
}

// scheduleLease plans the next renewal. leaseJitter is the kubelet's.
func (n *node) scheduleLease(now time.Time) {
	const leaseJitter = 0.04
	wait := time.Duration(float64(n.fleet.conf.leaseInterval()) * (1 + leaseJitter*rand.Float64()))
	n.leaseDue = now.Add(wait)
	n.fleet.timers.add(timer{at: n.leaseDue, what: leaseDue, node: n})
}

// renewLease makes sure that the lease exists and renews it. One runs at a
// time per node: the next is planned when it ends.
func (n *node) renewLease(ctx context.Context) {
	due := n.leaseDue
	defer func() {
		if ctx.Err() == nil {
			n.scheduleLease(time.Now())
		}
	}()
	path := "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases"
	for try := 0; ; try++ {
		if n.lease == nil {
			// After a failure the kubelet reads the lease again.
			answer, err := n.client.do(ctx, getLease, path+"/"+n.name, noBody, nil)
			switch {
			case isCode(err, http.StatusNotFound):
				answer, err = n.writeLease(ctx, createLease, path, n.newLease())
				if err == nil {
					n.keepLease(answer)
					return // a new lease need not be renewed
				}
			case err == nil:
				n.keepLease(answer)
			}
			if err != nil {
				if !wait(ctx, backoff(try, 200*time.Millisecond, 7*time.Second)) {
					return
				}
				continue
			}
		}
		lease := n.lease
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		answer, err := n.writeLease(ctx, updateLease, path+"/"+n.name, lease)
		if err == nil {
			n.keepLease(answer)
			n.fleet.metrics.renewals.Inc()
			n.fleet.metrics.leaseLate.Observe(time.Since(due).Seconds())
			return
		}
		n.lease = nil
		if !wait(ctx, backoff(try, 100*time.Millisecond, 7*time.Second)) {
			return
		}
	}
}

func (n *node) newLease() *coordinationv1.Lease {
	seconds := int32(n.fleet.conf.Lease)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, Namespace: leaseNamespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &n.name, LeaseDurationSeconds: &seconds,
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
}

func (n *node) writeLease(ctx context.Context, k request, path string, l *coordinationv1.Lease) (*bytes.Buffer, error) {
	body, err := wrap("coordination.k8s.io/v1", "Lease", l.Size(), l.MarshalToSizedBuffer)
	if err != nil {
		return nil, err
	}
	return n.client.do(ctx, k, path, protobufBody, body)
}

// keepLease remembers the lease as the server has it: its version is the
// precondition of the next renewal.
func (n *node) keepLease(answer *bytes.Buffer) {
	defer release(answer)
	n.lease = nil
	raw, err := unwrap(answer.Bytes())
	if err != nil {
		return
	}
	var l coordinationv1.Lease
	if l.Unmarshal(raw) == nil {
		n.lease = &l
	}
}

// watchNode watches this node's own object, as a kubelet does, and learns from
// it when the taint of a new node is gone.
func (n *node) watchNode(ctx context.Context) {
	n.follow(ctx, watched{
		resource: "nodes", path: "/api/v1/nodes", selector: "metadata.name=" + n.name,
		event: func(kind string, h header, raw []byte) {
			if kind == "DELETED" {
				return
			}
			var o v1.Node
			if o.Unmarshal(raw) != nil {
				return
			}
			n.seen(&o)
		},
	})
}

// followNodes watches all nodes at once, for least traffic, until each of the
// fleet was seen to take pods.
func (f *Fleet) followNodes(ctx context.Context) {
	f.nodes[0].follow(ctx, watched{
		resource: "nodes", path: "/api/v1/nodes",
		event: func(kind string, h header, raw []byte) {
			n := f.byName[string(h.name)]
			if n == nil || kind == "DELETED" {
				return
			}
			n.mu.Lock()
			known := !n.schedulableAt.IsZero()
			n.mu.Unlock()
			var o v1.Node
			if (!known || bytes.Contains(raw, []byte(unknownReason))) && o.Unmarshal(raw) == nil {
				n.seen(&o)
			}
		},
	})
}

// unknownReason is what the controller manager writes into the conditions of a
// node from which it has not heard.
const unknownReason = "NodeStatusUnknown"

func (n *node) seen(o *v1.Node) {
	now := time.Now()
	n.mu.Lock()
	if p, err := netip.ParsePrefix(o.Spec.PodCIDR); err == nil && p.Addr().Is4() && 1<<(32-p.Bits()) >= int(addressesPerNode(n.fleet.conf.Pods)) {
		n.firstIP = p.Masked().Addr()
	}
	tainted := false
	for _, t := range o.Spec.Taints {
		tainted = tainted || t.Key == v1.TaintNodeNotReady
	}
	isReady := false
	for _, c := range o.Status.Conditions {
		isReady = isReady || c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
		if c.Reason == unknownReason {
			n.givenUp(now)
		}
	}
	// A node just created may be seen before admission's taint counts.
	schedulable := isReady && !tainted && n.schedulableAt.IsZero()
	if schedulable {
		n.schedulableAt = now
	}
	n.seenVolumes(o)
	n.mu.Unlock()
	if schedulable {
		n.fleet.counted("schedulable")
		n.fleet.settled(n)
	}
}

// remove deletes the node's objects.
func (n *node) remove(ctx context.Context, c *client) error {
	if n.uid == "" {
		return nil
	}
	var all []error
	for _, d := range []struct {
		k    request
		path string
	}{
		{deleteNode, "/api/v1/nodes/" + n.name},
		{deleteLease, "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases/" + n.name},
	} {
		answer, err := c.do(ctx, d.k, d.path, noBody, nil)
		release(answer)
		if err != nil && !isCode(err, http.StatusNotFound) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// gitVersion asks the server for its version.
func (c *client) gitVersion(ctx context.Context) (string, error) {
	answer, err := c.do(ctx, getVersion, "/version", noBody, nil)
	if err != nil {
		return "", err
	}
	defer release(answer)
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(answer.Bytes(), &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("GET /version: no version in the answer (%w)", err)
	}
	return v.GitVersion, nil
}

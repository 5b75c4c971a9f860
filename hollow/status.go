package hollow

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A kubelet computes each status patch with strategicpatch, from two Pods
// marshalled to JSON: some hundred microseconds for two hundred bytes. A hollow
// node remembers in a few words what it told the server, and appends the
// difference. TestPatchIsKubelets holds the result against strategicpatch.

// A shape is what a pod's spec contributes to its status, rendered once.
type shape struct {
	containers  []containerShape // sorted by name, as the kubelet sorts them
	order       []int            // of containers in the spec, by which they start
	inits       []containerShape // in spec order
	unready     string           // message while containers wait
	incomplete  string           // message while init containers wait, "" without
	resources   []byte           // status.resources
	allocated   []byte           // status.allocatedResources, nil when empty
	hostNetwork bool
	sidecars    bool // some inits run beside the containers
	eviction    eviction
	course
}

// A containerShape is a container status cut at what varies:
//
//	head <state> waiting
//	head <state> created <container id> tail
type containerShape struct {
	name, image string
	init        bool
	sidecar     bool
	head        []byte // {"name":"c","state":
	waiting     []byte // from lastState to the closing brace, while waiting
	image2id    []byte // ,"image":"…","imageID":"…","containerID":"containerd://
	tail        []byte // ,"allocatedResources":… to the closing brace
}

func newShape(pod *v1.Pod) *shape {
	spec := &pod.Spec
	s := &shape{hostNetwork: spec.HostNetwork, course: courseOf(pod)}
	if s.evicts {
		s.eviction = evictionOf(spec)
	}
	var unready, incomplete []string
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		cs := newContainerShape(c)
		cs.init = true
		if cs.sidecar = c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways; cs.sidecar {
			unready = append(unready, c.Name)
			s.sidecars = true
		}
		incomplete = append(incomplete, c.Name)
		s.inits = append(s.inits, cs)
	}
	for i := range spec.Containers {
		unready = append(unready, spec.Containers[i].Name)
		s.containers = append(s.containers, newContainerShape(&spec.Containers[i]))
	}
	slices.SortFunc(s.containers, func(a, b containerShape) int { return strings.Compare(a.name, b.name) })
	for i := range spec.Containers {
		s.order = append(s.order, slices.IndexFunc(s.containers, func(c containerShape) bool { return c.name == spec.Containers[i].Name }))
	}
	s.unready = fmt.Sprintf("containers with unready status: %s", unready)
	if len(incomplete) > 0 {
		s.incomplete = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	requests := podSum(spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }, true)
	limits := podSum(spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits }, false)
	s.resources = emptyObject
	if len(requests)+len(limits) > 0 {
		s.resources = marshal(v1.ResourceRequirements{Requests: requests, Limits: limits})
	}
	if len(requests) > 0 {
		s.allocated = marshal(requests)
	}
	return s
}

var (
	emptyObject = []byte("{}")
	// runtimeUser is what containerd reports of a process running as root.
	runtimeUser = []byte(`,"user":{"linux":{"uid":0,"gid":0,"supplementalGroups":[0]}}`)
)

func newContainerShape(c *v1.Container) containerShape {
	s := containerShape{name: c.Name, image: c.Image}
	s.head = append(appendString([]byte(`{"name":`), c.Name), `,"state":`...)
	var mounts []byte
	if len(c.VolumeMounts) > 0 {
		list := make([]v1.VolumeMountStatus, len(c.VolumeMounts))
		disabled := v1.RecursiveReadOnlyDisabled
		for i, m := range c.VolumeMounts {
			list[i] = v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
			if m.ReadOnly {
				list[i].RecursiveReadOnly = &disabled
			}
		}
		mounts = append([]byte(`,"volumeMounts":`), marshal(list)...)
	}
	s.waiting = append([]byte(nil), `,"lastState":{},"ready":false,"restartCount":0,"image":`...)
	s.waiting = append(appendString(s.waiting, c.Image), `,"imageID":"","started":false`...)
	s.waiting = append(append(s.waiting, mounts...), '}')

	s.image2id = append(appendString([]byte(`,"image":`), c.Image), `,"imageID":`...)
	s.image2id = append(appendString(s.image2id, imageID(c.Image)), `,"containerID":"containerd://`...)

	if len(c.Resources.Requests) > 0 {
		s.tail = append(append(s.tail, `,"allocatedResources":`...), marshal(c.Resources.Requests)...)
	}
	resources := emptyObject
	if len(c.Resources.Requests)+len(c.Resources.Limits)+len(c.Resources.Claims) > 0 {
		resources = marshal(c.Resources)
	}
	s.tail = append(append(s.tail, `,"resources":`...), resources...)
	s.tail = append(append(append(s.tail, mounts...), runtimeUser...), '}')
	s.tail = slices.Clip(s.tail)
	return s
}

// imageID invents the digest that a runtime would report, the same for the
// same image on every node.
func imageID(image string) string {
	name := image
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	if at := strings.IndexByte(image, '@'); at >= 0 {
		return image
	}
	return name + "@sha256:" + string(appendHex(nil, image, 0))
}

// appendHex appends 64 hexadecimal digits that follow from a key.
func appendHex(dst []byte, key string, n int) []byte {
	h := fnv.New64a()
	h.Write([]byte(key))
	x := h.Sum64() + uint64(n)
	var raw [32]byte
	for i := range 4 {
		x = mix(x)
		for j := range 8 {
			raw[8*i+j] = byte(x >> (8 * j))
		}
	}
	return hex.AppendEncode(dst, raw[:])
}

// podSum is what the kubelet reports for the pod as a whole: containers and
// sidecars together, or the largest init container beside the sidecars started
// before it, whichever is more; plus overhead. Pod-level settings come first.
func podSum(spec *v1.PodSpec, of func(*v1.ResourceRequirements) v1.ResourceList, isRequest bool) v1.ResourceList {
	sum, sidecars, peak := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.Containers {
		addTo(sum, of(&spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		l := of(&c.Resources)
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			addTo(sum, l)
			addTo(sidecars, l)
			maxOf(peak, sidecars)
			continue
		}
		at := v1.ResourceList{}
		addTo(at, l)
		addTo(at, sidecars)
		maxOf(peak, at)
	}
	maxOf(sum, peak)
	if spec.Resources != nil {
		for name, q := range of(spec.Resources) {
			sum[name] = q
		}
	}
	for name, q := range spec.Overhead {
		if _, limited := sum[name]; isRequest || limited {
			addTo(sum, v1.ResourceList{name: q})
		}
	}
	return sum
}

func addTo(sum, l v1.ResourceList) {
	for name, q := range l {
		total := sum[name].DeepCopy()
		if total.IsZero() {
			total = resource.Quantity{Format: q.Format}
		}
		total.Add(q)
		sum[name] = total
	}
}

func maxOf(sum, l v1.ResourceList) {
	for name, q := range l {
		if have, ok := sum[name]; !ok || q.Cmp(have) > 0 {
			sum[name] = q
		}
	}
}

// marshal renders a value that cannot fail to.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain API types only
	}
	return b
}

// The five conditions that a kubelet owns, in its order, and one that only some
// pods have.
const (
	readyToStart = iota
	initialized
	ready
	containersReady
	scheduled
	disrupted
	conditionCount

	usual = disrupted // so many has each pod
)

var conditionTypes = [conditionCount]v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.DisruptionTarget,
}

// conditionOrder is the whole list's order, which every patch of a part names;
// disruptedOrder is that of a pod that the node's need has ended.
var conditionOrder, disruptedOrder = orderOf(conditionTypes[:usual]), orderOf(conditionTypes[:])

func orderOf(types []v1.PodConditionType) []byte {
	b := []byte(`"$setElementOrder/conditions":[`)
	for i, t := range types {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"`...), t...), `"}`...)
	}
	return append(b, ']')
}

// incompleteFrom is the message while the init containers from the n-th on are
// to come.
func (s *shape) incompleteFrom(n int) string {
	if n == 0 {
		return s.incomplete
	}
	names := []string{}
	for i := range s.inits[n:] {
		names = append(names, s.inits[n+i].name)
	}
	return fmt.Sprintf("containers with incomplete status: %s", names)
}

type condition struct {
	known           bool
	is              bool
	reason, message string
	since           int64 // Unix seconds; the API keeps no fraction
	generation      int64
}

// A view is a pod's status as far as the kubelet writes it. The zero view is a
// pod that the scheduler has just bound.
type view struct {
	phase           v1.PodPhase // "" stands for the Pending that the API server set
	reason, message string
	generation      int64
	conditions      [conditionCount]condition
	containers      containerState
	ready           bool  // the running containers are
	inits           int16 // init containers that have ended, or run beside the others
	initOn          bool  // the next init container runs
	initAt          int64 // start of the first
	startTime       int64
	hostIP, podIP   string
	runningAt       int64
	finishedAt      int64
	exit            int32 // code with which the containers ended
	restarts        int32
	last            struct { // the run before this one
		started, finished int64
		exit              int32
	}
	resources bool // status.resources was told
}

type containerState uint8

const (
	untold containerState = iota
	waiting
	running
	terminated
	backingOff // ended, and to be started again after a while
	lost       // never seen by the runtime, as when a pod is deleted before it starts
)

// bound is the view before the kubelet's first word: the scheduler has set
// PodScheduled, at a time that we keep as the server has it.
func bound() view {
	var v view
	v.conditions[scheduled] = condition{known: true, is: true}
	return v
}

func (v *view) set(i int, is bool, reason, message string, now int64) {
	c := &v.conditions[i]
	if !c.known || c.is != is {
		c.since = now
	}
	c.known, c.is, c.reason, c.message, c.generation = true, is, reason, message, v.generation
}

// pending is the first status: containers are being created.
func (v view) pending(s *shape, generation, now int64, hostIP string) view {
	v.generation = generation
	v.hostIP, v.startTime, v.containers, v.resources = hostIP, now, waiting, true
	if s.hostNetwork {
		v.podIP = hostIP
	}
	v.set(readyToStart, false, "", "", now)
	if s.incomplete != "" {
		v.set(initialized, false, "ContainersNotInitialized", s.incomplete, now)
	} else {
		v.set(initialized, true, "", "", now)
	}
	v.set(ready, false, "ContainersNotReady", s.unready, now)
	v.set(containersReady, false, "ContainersNotReady", s.unready, now)
	v.set(scheduled, true, "", "", now)
	return v
}

// sandboxed is the status once the pod has its sandbox and network.
func (v view) sandboxed(now int64) view {
	v.set(readyToStart, true, "", "", now)
	return v
}

// initialise is the status when the first done init containers have ended, and
// the next runs or not.
func (v view) initialise(s *shape, done int, on bool, now int64, podIP string) view {
	if v.initAt == 0 {
		v.initAt = now
	}
	v.podIP, v.inits, v.initOn = podIP, int16(done), on
	v.set(readyToStart, true, "", "", now)
	if done == len(s.inits) {
		v.set(initialized, true, "", "", now)
	} else {
		v.set(initialized, false, "ContainersNotInitialized", s.incompleteFrom(done), now)
	}
	return v
}

// run is the status once all containers have started, for the first time or again.
func (v view) run(s *shape, now int64, podIP string) view {
	v = v.initialise(s, len(s.inits), false, now, podIP)
	if v.containers == terminated || v.containers == backingOff {
		v.remember()
		v.restarts++
	}
	v.phase, v.containers, v.runningAt = v1.PodRunning, running, now
	v.set(scheduled, true, "", "", now)
	return v.probed(s, !s.probes, now)
}

// probed is the status when the containers are found ready or not.
func (v view) probed(s *shape, is bool, now int64) view {
	v.ready = is
	reason, message := "", ""
	if !is {
		reason, message = "ContainersNotReady", s.unready
	}
	v.set(ready, is, reason, message, now)
	v.set(containersReady, is, reason, message, now)
	return v
}

// end is the status when the containers have ended by themselves. If they are
// not to start again the pod's phase follows a round later, as complete.
func (v view) end(s *shape, now int64, code int32, again bool) view {
	v.containers, v.exit, v.finishedAt = terminated, code, now
	v = v.probed(s, false, now)
	if again {
		return v
	}
	reason := "PodCompleted"
	if code == 0 {
		v.set(initialized, true, reason, "", now)
	} else {
		reason = "PodFailed"
	}
	v.set(ready, false, reason, "", now)
	v.set(containersReady, false, reason, "", now)
	return v
}

// complete is the terminal status of a pod whose containers ended by themselves.
func (v view) complete(now int64) view {
	v.phase = v1.PodSucceeded
	if v.exit != 0 {
		v.phase = v1.PodFailed
	}
	v.set(readyToStart, false, "", "", now)
	return v
}

// evict is the terminal status of a pod that the node has evicted while its
// containers ran. They ended in order, and it failed all the same.
func (v view) evict(s *shape, now int64) view {
	v.phase, v.reason, v.message = v1.PodFailed, "Evicted", s.eviction.message
	v.containers, v.exit, v.finishedAt = terminated, 0, now
	v.ready = false
	v.set(readyToStart, false, "", "", now)
	v.set(ready, false, "PodFailed", "", now)
	v.set(containersReady, false, "PodFailed", "", now)
	if s.eviction.pressure {
		v.set(disrupted, true, v1.PodReasonTerminationByKubelet, s.eviction.message, now)
	}
	return v
}

// backOff is the status while containers that failed wait to be started again.
func (v view) backOff() view {
	v.remember()
	v.containers = backingOff
	return v
}

func (v *view) remember() {
	v.last.started, v.last.finished, v.last.exit = v.runningAt, v.finishedAt, v.exit
}

// observe is the status when only the generation has changed, as deletion
// changes it.
func (v view) observe(generation int64) view {
	v.generation = generation
	for i := range v.conditions {
		if v.conditions[i].known {
			v.conditions[i].generation = generation
		}
	}
	return v
}

// stop is the terminal status of a pod that was deleted. Containers that ran
// ended in order.
func (v view) stop(now int64) view {
	reason := "PodCompleted"
	switch v.containers {
	case running:
		v.phase, v.containers, v.exit, v.finishedAt = v1.PodSucceeded, terminated, 0, now
	case terminated, backingOff:
		v.phase, v.containers = v1.PodSucceeded, terminated
		if v.exit != 0 {
			v.phase, reason = v1.PodFailed, "PodFailed"
		}
	default:
		v.phase, v.containers, reason = v1.PodFailed, lost, "PodFailed"
		v.finishedAt = now
	}
	v.set(readyToStart, false, "", "", now)
	if v.phase == v1.PodSucceeded {
		v.set(initialized, true, reason, "", now)
	}
	v.set(ready, false, reason, "", now)
	v.set(containersReady, false, reason, "", now)
	v.set(scheduled, true, "", "", now)
	return v
}

// reject is the status of a pod that the node does not admit.
func (v view) reject(generation, now int64, reason, message string) view {
	v.generation, v.phase, v.startTime = generation, v1.PodFailed, now
	v.reason, v.message = reason, message
	return v
}

// appendPatch appends the strategic merge patch from old to v, as the kubelet
// would send it: the UID as precondition, and what differs.
func (v *view) appendPatch(dst []byte, old *view, s *shape, uid string) []byte {
	dst = appendString(append(dst, `{"metadata":{"uid":`...), uid)
	dst = append(dst, `},"status":{`...)
	empty := len(dst)
	if changed := v.appendConditions(dst, old); changed != nil {
		dst = append(changed, ',')
	}
	if v.resources && !old.resources {
		if s.allocated != nil {
			dst = append(append(append(dst, `"allocatedResources":`...), s.allocated...), ',')
		}
		dst = append(append(append(dst, `"resources":`...), s.resources...), ',')
	}
	if v.containersKey() != old.containersKey() {
		dst = append(v.appendContainers(append(dst, `"containerStatuses":`...), s, uid), ',')
	}
	if len(s.inits) > 0 && v.initsKey(s) != old.initsKey(s) {
		dst = append(v.appendInits(append(dst, `"initContainerStatuses":`...), s, uid), ',')
	}
	if v.hostIP != old.hostIP {
		dst = append(append(dst, `"hostIP":"`...), v.hostIP...)
		dst = append(append(append(dst, `","hostIPs":[{"ip":"`...), v.hostIP...), `"}],`...)
	}
	if v.podIP != old.podIP {
		dst = append(append(dst, `"podIP":"`...), v.podIP...)
		dst = append(append(append(dst, `","podIPs":[{"ip":"`...), v.podIP...), `"}],`...)
	}
	if v.message != old.message {
		dst = append(appendString(append(dst, `"message":`...), v.message), ',')
	}
	if v.reason != old.reason {
		dst = append(appendString(append(dst, `"reason":`...), v.reason), ',')
	}
	if v.generation != old.generation {
		dst = append(strconv.AppendInt(append(dst, `"observedGeneration":`...), v.generation, 10), ',')
	}
	if v.phase != old.phase {
		dst = append(append(append(dst, `"phase":"`...), v.phase...), `",`...)
	}
	if v.startTime != old.startTime {
		dst = append(appendTime(append(dst, `"startTime":`...), v.startTime), ',')
	}
	if len(dst) > empty {
		dst = dst[:len(dst)-1] // the last comma
	}
	return append(dst, "}}"...)
}

// appendConditions appends the conditions that changed, field by field, or
// returns nil.
func (v *view) appendConditions(dst []byte, old *view) []byte {
	if v.conditions == old.conditions {
		return nil
	}
	order := conditionOrder
	if v.conditions[disrupted].known {
		order = disruptedOrder
	}
	dst = append(append(dst, order...), `,"conditions":[`...)
	for i := range v.conditions {
		is, was := &v.conditions[i], &old.conditions[i]
		if *is == *was {
			continue
		}
		dst = append(dst, '{')
		if !was.known {
			dst = append(dst, `"lastProbeTime":null,`...)
		}
		if is.since != was.since {
			dst = append(appendTime(append(dst, `"lastTransitionTime":`...), is.since), ',')
		}
		dst = appendChange(dst, `"message":`, is.message, was.message)
		if is.generation != was.generation {
			dst = append(strconv.AppendInt(append(dst, `"observedGeneration":`...), is.generation, 10), ',')
		}
		dst = appendChange(dst, `"reason":`, is.reason, was.reason)
		if !was.known || is.is != was.is {
			if is.is {
				dst = append(dst, `"status":"True",`...)
			} else {
				dst = append(dst, `"status":"False",`...)
			}
		}
		dst = append(append(append(dst, `"type":"`...), conditionTypes[i]...), `"},`...)
	}
	dst[len(dst)-1] = ']'
	return dst
}

// appendChange appends a text that changed; a text that is gone becomes null.
func appendChange(dst []byte, key, is, was string) []byte {
	if is == was {
		return dst
	}
	dst = append(dst, key...)
	if is == "" {
		return append(dst, "null,"...)
	}
	return append(appendString(dst, is), ',')
}

// containersKey is what containers' statuses follow from, and initsKey the same
// for init containers: a kubelet sends each list whole, if anything in it changed.
type containersKey struct {
	state    containerState
	ready    bool
	restarts int32
	last     int64
}

func (v *view) containersKey() containersKey {
	return containersKey{v.containers, v.ready, v.restarts, v.last.started}
}

type initsKey struct {
	state containerState
	inits int16
	on    bool
}

func (v *view) initsKey(s *shape) initsKey {
	state := v.containers
	if state != untold && state != lost && !s.sidecars {
		state = waiting
	}
	return initsKey{state, v.inits, v.initOn}
}

func (v *view) appendContainers(dst []byte, s *shape, uid string) []byte {
	dst = append(dst, '[')
	for i := range s.containers {
		c := &s.containers[i]
		id := i + int(v.restarts)*runIDs
		dst = append(dst, c.head...)
		switch v.containers {
		case waiting:
			reason := "ContainerCreating"
			if len(s.inits) > 0 {
				reason = "PodInitializing"
			}
			dst = c.appendWaiting(dst, reason)
		case lost:
			dst = c.appendLost(dst)
		case running:
			dst = append(appendTime(append(dst, `{"running":{"startedAt":`...), v.runningAt), `}}`...)
			dst = c.appendRun(dst, v, uid, id, id-runIDs, v.ready, true)
		case backingOff:
			dst = append(dst, `{"waiting":{"reason":"CrashLoopBackOff","message":`...)
			dst = append(appendString(dst, s.backOffMessage(c.name, v.restarts)), `}}`...)
			dst = c.appendRun(dst, v, uid, id, id, false, false)
		default:
			dst = appendTerminated(dst, uid, id, v.exit, v.runningAt, v.finishedAt)
			dst = c.appendRun(dst, v, uid, id, id-runIDs, false, false)
		}
		dst = append(dst, ',')
	}
	return closeList(dst)
}

// Container identifiers follow from the pod's UID and a number: the container's
// place, the run, and whether it is an init container.
const (
	initIDs = 1000
	runIDs  = 10000
)

func (v *view) appendInits(dst []byte, s *shape, uid string) []byte {
	dst = append(dst, '[')
	once := view{} // init containers run once
	for i := range s.inits {
		c := &s.inits[i]
		id := i + initIDs
		started := v.initAt + int64(time.Duration(i)*s.initFor/time.Second)
		finished := v.initAt + int64(time.Duration(i+1)*s.initFor/time.Second)
		dst = append(dst, c.head...)
		switch begun := i < int(v.inits); {
		case begun && c.sidecar && v.containers != terminated:
			dst = append(appendTime(append(dst, `{"running":{"startedAt":`...), started), `}}`...)
			dst = c.appendRun(dst, &once, uid, id, id, true, true)
		case begun && c.sidecar:
			dst = appendTerminated(dst, uid, id, 0, started, v.finishedAt)
			dst = c.appendRun(dst, &once, uid, id, id, false, false)
		case begun:
			dst = appendTerminated(dst, uid, id, 0, started, finished)
			dst = c.appendRun(dst, &once, uid, id, id, true, false)
		case v.containers == lost:
			dst = c.appendLost(dst)
		case v.initOn && i == int(v.inits):
			dst = append(appendTime(append(dst, `{"running":{"startedAt":`...), started), `}}`...)
			dst = c.appendRun(dst, &once, uid, id, id, false, true)
		default:
			dst = c.appendWaiting(dst, "PodInitializing")
		}
		dst = append(dst, ',')
	}
	return closeList(dst)
}

func closeList(dst []byte) []byte {
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, ']')
}

func (c *containerShape) appendWaiting(dst []byte, reason string) []byte {
	dst = append(append(append(dst, `{"waiting":{"reason":"`...), reason...), `"}}`...)
	return append(dst, c.waiting...)
}

func (c *containerShape) appendLost(dst []byte) []byte {
	dst = append(dst, `{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown",`+
		`"message":"The container could not be located when the pod was terminated","startedAt":null,"finishedAt":null}}`...)
	return append(dst, c.waiting...)
}

// appendRun appends what follows the state of a container that has an
// identifier: what was before it, counts, and the rest.
func (c *containerShape) appendRun(dst []byte, v *view, uid string, id, lastID int, ready, started bool) []byte {
	dst = append(dst, `,"lastState":`...)
	if v.last.started != 0 {
		dst = appendTerminated(dst, uid, lastID, v.last.exit, v.last.started, v.last.finished)
	} else {
		dst = append(dst, emptyObject...)
	}
	dst = strconv.AppendBool(append(dst, `,"ready":`...), ready)
	dst = strconv.AppendInt(append(dst, `,"restartCount":`...), int64(v.restarts), 10)
	dst = appendHex(append(dst, c.image2id...), uid, id)
	dst = strconv.AppendBool(append(dst, `","started":`...), started)
	return append(dst, c.tail...)
}

func appendTerminated(dst []byte, uid string, id int, exit int32, started, finished int64) []byte {
	dst = strconv.AppendInt(append(dst, `{"terminated":{"exitCode":`...), int64(exit), 10)
	reason := "Completed"
	if exit != 0 {
		reason = "Error"
	}
	dst = append(append(append(dst, `,"reason":"`...), reason...), `","startedAt":`...)
	dst = append(appendTime(dst, started), `,"finishedAt":`...)
	dst = append(appendTime(dst, finished), `,"containerID":"containerd://`...)
	return append(appendHex(dst, uid, id), `"}}`...)
}

func appendTime(dst []byte, unix int64) []byte {
	dst = time.Unix(unix, 0).UTC().AppendFormat(append(dst, '"'), time.RFC3339)
	return append(dst, '"')
}

// appendString appends a JSON string. Nearly every text here is a name or an
// image; what is not plain goes through encoding/json.
func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return append(dst, marshal(s)...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

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
	inits       []containerShape // in spec order
	unready     string           // message while containers wait
	incomplete  string           // message while init containers wait, "" without
	resources   []byte           // status.resources
	allocated   []byte           // status.allocatedResources, nil when empty
	hostNetwork bool
}

// A containerShape is a container status cut at what varies:
//
//	head <state> waiting
//	head <state> created <container id> tail
type containerShape struct {
	name, image string
	sidecar     bool
	head        []byte // {"name":"c","state":
	waiting     []byte // from lastState to the closing brace, while waiting
	image2id    []byte // ,"image":"…","imageID":"…","containerID":"containerd://
	tail        []byte // ,"allocatedResources":… to the closing brace
}

func newShape(pod *v1.Pod) *shape {
	spec := &pod.Spec
	s := &shape{hostNetwork: spec.HostNetwork}
	var unready, incomplete []string
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		cs := newContainerShape(c)
		if cs.sidecar = c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways; cs.sidecar {
			unready = append(unready, c.Name)
		}
		incomplete = append(incomplete, c.Name)
		s.inits = append(s.inits, cs)
	}
	for i := range spec.Containers {
		unready = append(unready, spec.Containers[i].Name)
		s.containers = append(s.containers, newContainerShape(&spec.Containers[i]))
	}
	slices.SortFunc(s.containers, func(a, b containerShape) int { return strings.Compare(a.name, b.name) })
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

// The five conditions that a kubelet owns, in its order.
const (
	readyToStart = iota
	initialized
	ready
	containersReady
	scheduled
	conditionCount
)

var conditionTypes = [conditionCount]v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
}

// conditionOrder is the whole list's order, which every patch of a part names.
var conditionOrder = func() []byte {
	b := []byte(`"$setElementOrder/conditions":[`)
	for i, t := range conditionTypes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"type":"`...), t...), `"}`...)
	}
	return append(b, ']')
}()

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
	startTime       int64
	hostIP, podIP   string
	runningAt       int64
	finishedAt      int64
	resources       bool // status.resources was told
}

type containerState uint8

const (
	untold containerState = iota
	waiting
	running
	terminated
	lost // never seen by the runtime, as when a pod is deleted before it starts
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

// run is the status once all containers have started.
func (v view) run(s *shape, now int64, podIP string) view {
	v.phase, v.containers, v.runningAt, v.podIP = v1.PodRunning, running, now, podIP
	for i := range v.conditions {
		v.set(i, true, "", "", now)
	}
	return v
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

// stop is the terminal status. Containers that ran ended in order.
func (v view) stop(now int64) view {
	reason := "PodCompleted"
	if v.containers == running {
		v.phase, v.containers = v1.PodSucceeded, terminated
	} else {
		v.phase, v.containers, reason = v1.PodFailed, lost, "PodFailed"
	}
	v.finishedAt = now
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
	if v.containers != old.containers {
		dst = append(v.appendContainers(append(dst, `"containerStatuses":`...), s.containers, s, uid, false), ',')
		if len(s.inits) > 0 {
			dst = append(v.appendContainers(append(dst, `"initContainerStatuses":`...), s.inits, s, uid, true), ',')
		}
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
	dst = append(append(dst, conditionOrder...), `,"conditions":[`...)
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

func (v *view) appendContainers(dst []byte, list []containerShape, s *shape, uid string, isInit bool) []byte {
	dst = append(dst, '[')
	for i := range list {
		c := &list[i]
		n := i
		if isInit {
			n += 1000 // container ids of their own
		}
		dst = append(dst, c.head...)
		switch {
		case v.containers == waiting:
			reason := "ContainerCreating"
			if len(s.inits) > 0 {
				reason = "PodInitializing"
			}
			dst = append(append(append(dst, `{"waiting":{"reason":"`...), reason...), `"}}`...)
			dst = append(dst, c.waiting...)
		case v.containers == lost:
			dst = append(dst, `{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown",`+
				`"message":"The container could not be located when the pod was terminated","startedAt":null,"finishedAt":null}}`...)
			dst = append(dst, c.waiting...)
		case v.containers == running && (!isInit || c.sidecar):
			dst = appendTime(append(dst, `{"running":{"startedAt":`...), v.runningAt)
			dst = append(dst, `}},"lastState":{},"ready":true,"restartCount":0`...)
			dst = appendHex(append(dst, c.image2id...), uid, n)
			dst = append(append(dst, `","started":true`...), c.tail...)
		default: // terminated, and an init container that has done its work
			end := v.finishedAt
			if v.containers == running || isInit && !c.sidecar {
				end = v.runningAt
			}
			dst = append(dst, `{"terminated":{"exitCode":0,"reason":"Completed","startedAt":`...)
			dst = append(appendTime(dst, v.runningAt), `,"finishedAt":`...)
			dst = append(appendTime(dst, end), `,"containerID":"containerd://`...)
			dst = append(appendHex(dst, uid, n), `"}},"lastState":{},"ready":`...)
			dst = strconv.AppendBool(dst, isInit && !c.sidecar)
			dst = append(append(dst, `,"restartCount":0`...), c.image2id...)
			dst = append(append(appendHex(dst, uid, n), `","started":false`...), c.tail...)
		}
		dst = append(dst, ',')
	}
	if len(list) == 0 {
		return append(dst, ']')
	}
	dst[len(dst)-1] = ']'
	return dst
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

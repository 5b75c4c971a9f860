package hollow

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Annotations of a pod by which an experiment says what its containers do.
// Without them they run until the pod is deleted, and init containers take no
// time.
const (
	// RunSeconds is how long each container runs before it ends by itself.
	RunSeconds = "kubedyno.io/run-seconds"
	// ExitCode is the code with which it ends; 0 unless said.
	ExitCode = "kubedyno.io/exit-code"
	// InitSeconds is how long each init container runs.
	InitSeconds = "kubedyno.io/init-seconds"
	// EvictSeconds is how long its containers run before the node evicts it, for
	// the disk that it uses.
	EvictSeconds = "kubedyno.io/evict-seconds"
)

// A course is what the containers of a pod will do.
type course struct {
	ends     bool // by themselves
	runFor   time.Duration
	exit     int32
	initFor  time.Duration
	evicts   bool
	evictIn  time.Duration
	restart  v1.RestartPolicy
	probes   bool          // readiness waits for a probe
	probe    time.Duration // its first chance
	period   time.Duration
	fullName string // as messages name the pod
}

func courseOf(pod *v1.Pod) course {
	c := course{restart: pod.Spec.RestartPolicy, initFor: annotated(pod, InitSeconds)}
	if _, c.ends = pod.Annotations[RunSeconds]; c.ends {
		c.runFor = annotated(pod, RunSeconds)
		if code, err := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32); err == nil {
			c.exit = int32(code)
		}
		c.fullName = fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
	}
	if _, c.evicts = pod.Annotations[EvictSeconds]; c.evicts {
		c.evictIn = annotated(pod, EvictSeconds)
	}
	for i := range pod.Spec.Containers {
		// A pod is ready with its last container.
		if p := pod.Spec.Containers[i].ReadinessProbe; p != nil {
			c.probes = true
			c.probe = max(c.probe, time.Duration(p.InitialDelaySeconds)*time.Second)
			c.period = max(c.period, time.Duration(max(1, p.PeriodSeconds))*time.Second)
		}
	}
	return c
}

// annotated reads a number of seconds; what is none counts as 0.
func annotated(pod *v1.Pod, key string) time.Duration {
	s, err := strconv.ParseFloat(pod.Annotations[key], 64)
	if err != nil || !(s >= 0) || s > 1e9 {
		return 0
	}
	return seconds(s)
}

// An eviction is what a kubelet says of a pod that it evicts.
type eviction struct {
	message string
	// pressure is for one of the node's own need: a disruption, to whoever counts
	// failures. One that broke a limit of its own has itself to blame.
	pressure bool
}

// evictionOf follows from the limit that a pod can break, in the order in which a
// kubelet looks at them (localStorageEviction); without one it is the node's disk
// that ran short.
func evictionOf(spec *v1.PodSpec) eviction {
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
			return eviction{message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit)}
		}
	}
	limits := podSum(spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits }, false)
	if limit, ok := limits[v1.ResourceEphemeralStorage]; ok {
		return eviction{message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &limit)}
	}
	return eviction{message: "The node was low on resource: ephemeral-storage. ", pressure: true}
}

// again says whether containers that ended with this course's code start again.
func (c *course) again() bool {
	return c.restart != v1.RestartPolicyNever && (c.restart != v1.RestartPolicyOnFailure || c.exit != 0)
}

// A kubelet starts a container that failed again at once, and then after 10 s,
// 20 s and so on up to 5 min (pkg/kubelet: MaxContainerBackOff, initialBackOff).
const (
	firstBackOff = 10 * time.Second
	mostBackOff  = 300 * time.Second
)

// backOffAfter is the wait after the run that followed so many restarts.
func backOffAfter(restarts int32) time.Duration {
	if restarts == 0 {
		return 0
	}
	return min(mostBackOff, firstBackOff<<min(restarts-1, 10))
}

func (s *shape) backOffMessage(container string, restarts int32) string {
	return fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", backOffAfter(restarts), container, s.fullName)
}

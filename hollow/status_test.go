package hollow

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const testUID = "6a1c8a8e-0c0c-4b4e-9d8f-3c1f4b7a0001"

func testPod(change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default", UID: testUID, Generation: 1},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}},
		Status: v1.PodStatus{
			Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort,
			Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

var testPods = map[string]*v1.Pod{
	"plain": testPod(nil),
	"two containers, not in order of name": testPod(func(p *v1.Pod) {
		p.Spec.Containers = []v1.Container{{Name: "web", Image: "web@sha256:abc"}, {Name: "agent", Image: "localhost:5000/agent"}}
	}),
	"resources and mounts": testPod(func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("16Mi")},
			Limits:   v1.ResourceList{"memory": resource.MustParse("1Gi")},
		}
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "kube-api-access-x7", MountPath: "/var/run/secrets", ReadOnly: true}}
	}),
	"init container and sidecar": testPod(func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "z-init", Image: "init:1"}, {Name: "mesh", Image: "mesh:1", RestartPolicy: &always}}
	}),
	"three init containers": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{InitSeconds: "2"}
		p.Spec.InitContainers = []v1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i"}, {Name: "c", Image: "i"}}
	}),
	"readiness probe": testPod(func(p *v1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1}
	}),
	"fails": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{RunSeconds: "1", ExitCode: "7"}
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	}),
	"completes": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{RunSeconds: "1"}
		p.Spec.RestartPolicy = v1.RestartPolicyNever
	}),
	"broke its volume's limit": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{EvictSeconds: "1"}
		limit := resource.MustParse("1Mi")
		p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	}),
	"broke its disk limit": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{EvictSeconds: "1"}
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("2Mi")}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}),
	"in a node's way": testPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{EvictSeconds: "1"}
	}),
	"host network":      testPod(func(p *v1.Pod) { p.Spec.HostNetwork = true }),
	"text to be quoted": testPod(func(p *v1.Pod) { p.Spec.Containers[0].Image = "a\"b\\c\n<é>" }),
}

// typed is the status that a view stands for, as a kubelet would hold it.
func (v *view) typed(pod *v1.Pod, s *shape) v1.PodStatus {
	st := *pod.Status.DeepCopy()
	if v.phase != "" {
		st.Phase = v.phase
	}
	st.Reason, st.Message = v.reason, v.message
	st.ObservedGeneration = v.generation
	if v.containers == untold && v.phase == "" {
		return st
	}
	if v.startTime != 0 {
		t := metav1.Unix(v.startTime, 0)
		st.StartTime = &t
	}
	if v.containers == untold { // rejected
		return st
	}
	scheduledSince := st.Conditions[0].LastTransitionTime
	st.Conditions = nil
	for i, c := range v.conditions {
		if !c.known {
			continue
		}
		pc := v1.PodCondition{Type: conditionTypes[i], Status: v1.ConditionFalse, Reason: c.reason, Message: c.message, ObservedGeneration: c.generation, LastTransitionTime: metav1.Unix(c.since, 0)}
		if c.is {
			pc.Status = v1.ConditionTrue
		}
		if i == scheduled {
			pc.LastTransitionTime = scheduledSince
		}
		st.Conditions = append(st.Conditions, pc)
	}
	if v.hostIP != "" {
		st.HostIP, st.HostIPs = v.hostIP, []v1.HostIP{{IP: v.hostIP}}
	}
	if v.podIP != "" {
		st.PodIP, st.PodIPs = v.podIP, []v1.PodIP{{IP: v.podIP}}
	}
	st.Resources = &v1.ResourceRequirements{}
	for _, c := range pod.Spec.Containers { // one container at most has any
		if len(c.Resources.Requests) > 0 {
			st.Resources = c.Resources.DeepCopy()
			st.AllocatedResources = c.Resources.Requests
		}
	}
	st.ContainerStatuses = v.typedContainers(pod, s, s.containers, pod.Spec.Containers, false)
	st.InitContainerStatuses = v.typedContainers(pod, s, s.inits, pod.Spec.InitContainers, true)
	return st
}

func (v *view) typedContainers(pod *v1.Pod, s *shape, shapes []containerShape, specs []v1.Container, isInit bool) []v1.ContainerStatus {
	var all []v1.ContainerStatus
	for i, shape := range shapes {
		var spec *v1.Container
		for j := range specs {
			if specs[j].Name == shape.name {
				spec = &specs[j]
			}
		}
		n := i
		if isInit {
			n += 1000
		}
		no, yes := false, true
		cs := v1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: &no}
		for _, m := range spec.VolumeMounts {
			vm := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
			if m.ReadOnly {
				mode := v1.RecursiveReadOnlyDisabled
				vm.RecursiveReadOnly = &mode
			}
			cs.VolumeMounts = append(cs.VolumeMounts, vm)
		}
		ended := func(code int32, from, to int64, n int) *v1.ContainerStateTerminated {
			reason := "Completed"
			if code != 0 {
				reason = "Error"
			}
			return &v1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, StartedAt: metav1.Unix(from, 0), FinishedAt: metav1.Unix(to, 0),
				ContainerID: "containerd://" + string(appendHex(nil, testUID, n)),
			}
		}
		created := func(n int) {
			cs.ImageID, cs.ContainerID = imageID(spec.Image), "containerd://"+string(appendHex(nil, testUID, n))
			cs.Resources, cs.AllocatedResources = spec.Resources.DeepCopy(), spec.Resources.Requests
			cs.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{SupplementalGroups: []int64{0}}}
		}
		if !isInit {
			n += 10000 * int(v.restarts)
			cs.RestartCount = v.restarts
			if v.last.started != 0 {
				of := n - 10000
				if v.containers == backingOff {
					of = n
				}
				cs.LastTerminationState.Terminated = ended(v.last.exit, v.last.started, v.last.finished, of)
			}
		}
		wait := int64(s.initFor / time.Second)
		from, to := v.initAt+int64(i)*wait, v.initAt+int64(i+1)*wait
		switch begun := isInit && i < int(v.inits); {
		case begun && shape.sidecar && v.containers == terminated:
			created(n)
			cs.State.Terminated = ended(0, from, v.finishedAt, n)
		case begun && shape.sidecar, isInit && v.initOn && i == int(v.inits) && v.containers != lost:
			created(n)
			cs.Ready, cs.Started = begun, &yes
			cs.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.Unix(from, 0)}
		case begun:
			created(n)
			cs.State.Terminated = ended(0, from, to, n)
			cs.Ready = true
		case v.containers == lost:
			cs.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated"}
		case isInit, v.containers == waiting && len(pod.Spec.InitContainers) > 0:
			cs.State.Waiting = &v1.ContainerStateWaiting{Reason: "PodInitializing"}
		case v.containers == waiting:
			cs.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
		case v.containers == running:
			created(n)
			cs.Ready, cs.Started = v.ready, &yes
			cs.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.Unix(v.runningAt, 0)}
		case v.containers == backingOff:
			created(n)
			cs.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: s.backOffMessage(spec.Name, v.restarts)}
		default:
			created(n)
			cs.State.Terminated = ended(v.exit, v.runningAt, v.finishedAt, n)
		}
		all = append(all, cs)
	}
	return all
}

// TestPatchIsKubelets holds each patch against the one that a kubelet would
// compute from the same two statuses, and against what applying it gives.
func TestPatchIsKubelets(t *testing.T) {
	for name, pod := range testPods {
		t.Run(name, func(t *testing.T) {
			s := newShape(pod)
			first := bound().pending(s, 1, 1001, "100.64.0.1")
			ran := first.run(s, 1003, podIPFor(s))
			sequences := map[string][]view{
				"to running and gone": {bound(), first, ran, ran.observe(2), ran.observe(2).stop(1009)},
				"overtaken":           {bound(), ran, ran.observe(2).stop(1009)},
				"all within a second": {bound(), first, first.run(s, 1001, podIPFor(s))},
				"never started":       {bound(), first, first.observe(2), first.observe(2).stop(1009)},
				"step by step":        {bound(), first, first.sandboxed(1002), ran, ran.probed(s, s.probes, 1004), ran.probed(s, s.probes, 1004).observe(2)},
				"rejected":            {bound(), bound().reject(1, 1001, "OutOfpods", "Pod was rejected: full")},
			}
			if n := len(s.inits); n > 0 {
				steps := []view{bound(), first, first.sandboxed(1002)}
				v := steps[2]
				for i := range n {
					v = v.initialise(s, i, true, 1003, "10.0.0.1")
					steps = append(steps, v)
				}
				v = v.initialise(s, n, false, 1009, "10.0.0.1")
				v = v.run(s, 1010, "10.0.0.1")
				sequences["initialised"] = append(steps, v, v.observe(2), v.observe(2).stop(1011))
				sequences["deleted meanwhile"] = []view{bound(), steps[3], steps[3].observe(2), steps[3].observe(2).stop(1011)}
			}
			if s.ends && s.again() {
				ended := ran.end(s, 1005, s.exit, true)
				twice := ended.run(s, 1006, podIPFor(s))
				off := twice.end(s, 1008, s.exit, true).backOff()
				sequences["fails"] = []view{bound(), first, ran, ended, twice, twice.end(s, 1008, s.exit, true), off, off.run(s, 1018, podIPFor(s))}
				sequences["deleted while it waits"] = []view{twice, off, off.observe(2), off.observe(2).stop(1012)}
				sequences["overtaken twice"] = []view{bound(), twice, off.run(s, 1018, podIPFor(s))}
			} else if s.ends {
				ended := ran.end(s, 1005, s.exit, false)
				sequences["completes"] = []view{bound(), first, ran, ended, ended.complete(1006)}
			}
			if s.evicts {
				evicted := ran.evict(s, 1007)
				sequences["evicted"] = []view{bound(), first, ran, evicted}
				if evicted.phase != v1.PodFailed || evicted.reason != "Evicted" || evicted.message != evictions[name] {
					t.Errorf("%s %s: %q", evicted.phase, evicted.reason, evicted.message)
				}
				if is, want := evicted.conditions[disrupted].known, name == "in a node's way"; is != want {
					t.Errorf("DisruptionTarget: %v, want %v", is, want)
				}
			}
			for name, views := range sequences {
				for i := 1; i < len(views); i++ {
					checkPatch(t, name, pod, s, &views[i-1], &views[i])
				}
			}
		})
	}
}

// evictions are a kubelet's words, which operators search for.
var evictions = map[string]string{
	"broke its volume's limit": `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". `,
	"broke its disk limit":     "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
	"in a node's way":          "The node was low on resource: ephemeral-storage. ",
}

func podIPFor(s *shape) string {
	if s.hostNetwork {
		return "100.64.0.1"
	}
	return "10.0.0.1"
}

func checkPatch(t *testing.T, name string, pod *v1.Pod, s *shape, was, is *view) {
	t.Helper()
	before, after := was.typed(pod, s), is.typed(pod, s)
	oldJSON := marshal(v1.Pod{Status: before})
	newJSON := marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(testUID)}, Status: after})
	want, err := strategicpatch.CreateTwoWayMergePatch(oldJSON, newJSON, v1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	got := is.appendPatch(nil, was, s, testUID)
	if !sameJSON(t, got, want) {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
	applied, err := strategicpatch.StrategicMergePatch(oldJSON, got, v1.Pod{})
	if err != nil {
		t.Fatalf("%s: applying: %v\n%s", name, err, got)
	}
	if !sameJSON(t, applied, newJSON) {
		t.Errorf("%s: applied:\n got %s\nwant %s", name, applied, newJSON)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}

func TestNodeStatusPatch(t *testing.T) {
	for _, ready := range []bool{true, false} {
		b := statusPatch(metav1.Unix(1000, 0).Time, func(k v1.NodeConditionType) bool { return ready && k == v1.NodeReady })
		var n v1.Node
		if err := json.Unmarshal(b, &n); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		if len(n.Status.Conditions) != 4 {
			t.Errorf("%d conditions, want 4", len(n.Status.Conditions))
		}
		if is := n.Status.Conditions[3].Status == v1.ConditionTrue; is != ready {
			t.Errorf("ready patch says %v, want %v", is, ready)
		}
	}
}

func TestPodSum(t *testing.T) {
	q := func(cpu string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	always := v1.ContainerRestartPolicyAlways
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{
			{Resources: q("100m"), RestartPolicy: &always},
			{Resources: q("2")},
		},
		Containers: []v1.Container{{Resources: q("500m")}, {Resources: q("300m")}},
		Overhead:   v1.ResourceList{"cpu": resource.MustParse("50m")},
	}
	requests := func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }
	sum := podSum(spec, requests, true)
	if got := sum.Cpu().String(); got != "2150m" { // 2 + sidecar 100m + overhead
		t.Errorf("requests %s, want 2150m", got)
	}
}

func BenchmarkPatch(b *testing.B) {
	pod := testPods["resources and mounts"]
	s := newShape(pod)
	was := bound().pending(s, 1, 1001, "100.64.0.1")
	is := was.run(s, 1003, "10.0.0.1")
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = is.appendPatch(buf[:0], &was, s, testUID)
	}
}

func BenchmarkPatchAsKubelet(b *testing.B) {
	pod := testPods["resources and mounts"]
	s := newShape(pod)
	v := bound().pending(s, 1, 1001, "100.64.0.1")
	w := v.run(s, 1003, "10.0.0.1")
	was, is := v.typed(pod, s), w.typed(pod, s)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strategicpatch.CreateTwoWayMergePatch(marshal(v1.Pod{Status: was}), marshal(v1.Pod{Status: is}), v1.Pod{}); err != nil {
			b.Fatal(err)
		}
	}
}

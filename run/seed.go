package run

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// seed writes the nodes that nobody stands behind, and what they carry, into the
// lab's database, and waits until the API server shows them all.
func (s *session) seed(ctx context.Context) error {
	e := s.o.Experiment
	n := e.Cluster.Nodes.Seeded
	if n == 0 {
		return nil
	}
	began := s.o.Now()
	garden, err := newGarden(e, s.id, s.plane.Version, began)
	if err != nil {
		return fmt.Errorf("seed %d nodes: %w", n, err)
	}
	if pods := e.Cluster.Population.Pods; n+pods >= manySeeds {
		s.note("seeding %d nodes, and %d pods on them", n, pods)
	}
	if err := s.target.Seed(ctx, garden.all()); err != nil {
		return err
	}
	if err := s.awaitSeeded(ctx, n); err != nil {
		return fmt.Errorf("seed %d nodes: %w", n, err)
	}
	took := s.o.Now().Sub(began)
	text := fmt.Sprintf("%d seeded nodes", n)
	if p := e.Cluster.Population.Pods; p > 0 {
		text += fmt.Sprintf(" with %d pods", p)
	}
	s.note("%s: in etcd, and shown by the API server, after %.1f s", text, took.Seconds())
	return s.w.Update(func(m *record.Meta) {
		m.Nodes.Count += n
		m.Nodes.Seeded, m.Nodes.SeededPods = n, e.Cluster.Population.Pods
		m.Nodes.SeedSeconds = took.Seconds()
		m.Nodes.Simulated = true
		m.LeftOut = append(m.LeftOut, seededLeaveOut...)
	})
}

// manySeeds take seconds, in which somebody may wonder.
const manySeeds = 2000

// seededLeaveOut is what is not there where nodes are only objects.
var seededLeaveOut = []string{
	"seeded nodes send nothing: no leases, no status, no watches, no requests of kubelets",
	"pods on seeded nodes never start: what a pod takes after it is bound is not measured",
	"seeded objects never passed admission, and have no managed fields",
}

// seedPatience is for how long the API server may not show what is in etcd: its
// watch takes milliseconds, its first list of thousands of nodes seconds.
const seedPatience = time.Minute

// awaitSeeded waits until the API server's cache, which everybody lists and
// watches, has all nodes.
func (s *session) awaitSeeded(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, seedPatience, fmt.Errorf("the API server does not show them within %v", seedPatience))
	defer cancel()
	rc, err := s.plane.RESTConfig("admin")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		shown, err := countNodes(ctx, client)
		if err == nil && shown >= n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return fmt.Errorf("%w: it shows %d", context.Cause(ctx), shown)
		}
	}
}

// countNodes asks for as little of each node as there is.
func countNodes(ctx context.Context, client kubernetes.Interface) (int, error) {
	data, err := client.CoreV1().RESTClient().Get().Resource("nodes").Param("resourceVersion", "0").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list struct{ Items []struct{} }
	if err := json.Unmarshal(data, &list); err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// populationNamespace is where the pods are that were there before the run.
const populationNamespace = "kubedyno-population"

// garden is what is seeded.
type garden struct {
	cluster  experiment.Cluster
	run      string
	version  string
	now      metav1.Time
	capacity corev1.ResourceList
	requests corev1.ResourceList
}

func newGarden(e *experiment.Experiment, run, version string, now time.Time) (*garden, error) {
	g := &garden{cluster: e.Cluster, run: run, version: version, now: metav1.NewTime(now.Truncate(time.Second))}
	node := e.Cluster.Node
	var err error
	if g.capacity, err = quantities(node.CPU, node.Memory); err != nil {
		return nil, err
	}
	g.capacity[corev1.ResourcePods] = *resource.NewQuantity(int64(node.Pods), resource.DecimalSI)
	g.capacity[corev1.ResourceEphemeralStorage] = resource.MustParse("100Gi")
	if pod := e.Cluster.Population.Pod; pod != nil {
		if g.requests, err = quantities(pod.CPU, pod.Memory); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func quantities(cpu, memory experiment.Quantity) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]experiment.Quantity{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q == "" {
			continue
		}
		parsed, err := resource.ParseQuantity(string(q))
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", name, q, err)
		}
		list[name] = parsed
	}
	return list, nil
}

// all is everything that is seeded: nodes, and then who is on them.
func (g *garden) all() iter.Seq[lab.Seedling] {
	return func(yield func(lab.Seedling) bool) {
		for i := range g.cluster.Nodes.Seeded {
			if !yield(lab.Seedling{Key: "minions/" + seededName(i), Object: g.node(i)}) {
				return
			}
		}
		if g.cluster.Population.Pods == 0 {
			return
		}
		if !yield(lab.Seedling{Key: "namespaces/" + populationNamespace, Object: g.namespace()}) {
			return
		}
		for i := range g.cluster.Population.Pods {
			pod := g.pod(i)
			if !yield(lab.Seedling{Key: "pods/" + populationNamespace + "/" + pod.Name, Object: pod}) {
				return
			}
		}
	}
}

// seededName is unlike the names of hollow and real nodes.
func seededName(i int) string { return fmt.Sprintf("seeded-%d", i) }

// meta is what the API server gives every object.
func (g *garden) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(), CreationTimestamp: g.now}
}

// node is a Node as the API server has it of a healthy kubelet, without what
// only a kubelet would know.
func (g *garden) node(i int) *corev1.Node {
	shape, name := g.cluster.Node, seededName(i)
	meta := g.meta(name)
	meta.Labels = map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"kubedyno.io/run": g.run,
	}
	if len(shape.Zones) > 0 {
		meta.Labels[corev1.LabelTopologyZone] = shape.Zones[i%len(shape.Zones)]
	}
	maps.Copy(meta.Labels, shape.Labels)
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: meta,
		Status: corev1.NodeStatus{
			Capacity: g.capacity, Allocatable: g.capacity,
			NodeInfo: corev1.NodeSystemInfo{OSImage: "kubedyno seeded node", KubeletVersion: g.version, OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	for _, t := range shape.Taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	for _, c := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		reason string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"},
		{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"},
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, LastHeartbeatTime: g.now, LastTransitionTime: g.now,
		})
	}
	return n
}

func (g *garden) namespace() *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: g.meta(populationNamespace),
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// pod is a pod that runs on a node already. It lacks the run's label, so that it
// is in no table.
func (g *garden) pod(i int) *corev1.Pod {
	shape := g.cluster.Population.Pod
	if shape == nil {
		shape = &experiment.PodShape{Containers: 1, Image: experiment.DefaultImage}
	}
	meta := g.meta(fmt.Sprintf("population-%d", i))
	meta.Namespace = populationNamespace
	meta.Labels = map[string]string{}
	for k, v := range shape.Labels {
		meta.Labels[k] = experiment.Expand(v, "population", i)
	}
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName: seededName(i % g.cluster.Nodes.Seeded), SchedulerName: corev1.DefaultSchedulerName,
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default",
			SecurityContext: &corev1.PodSecurityContext{},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &g.now, QOSClass: corev1.PodQOSBurstable},
	}
	if len(g.requests) == 0 {
		p.Status.QOSClass = corev1.PodQOSBestEffort
	}
	for k := range max(shape.Containers, 1) {
		name := "main"
		if k > 0 {
			name = fmt.Sprintf("side-%d", k)
		}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: name, Image: shape.Image, Resources: corev1.ResourceRequirements{Requests: g.requests},
			TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: g.now})
	}
	return p
}

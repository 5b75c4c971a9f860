package run

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
)

const seededText = `
name: seeded
cluster:
  nodes: {seeded: 7}
  node: {cpu: 3, memory: 5Gi, pods: 33, zones: [north, south], labels: {tier: a}, taints: [{key: k, value: v, effect: PreferNoSchedule}]}
  population: {pods: 10, pod: {cpu: 100m, memory: 64Mi, labels: {number: "p-{index}"}}}
  components: {kube-controller-manager: {off: true}}
phases:
  - create: {kind: Pod, count: 1, wait: scheduled}
`

// What is seeded has the shape that the experiment gives it, and each object
// has a name, a key and an identity of its own.
func TestGarden(t *testing.T) {
	e, err := experiment.Parse("seeded", []byte(seededText))
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGarden(e, "run-1", "v1.36.3", time.Unix(1_800_000_000, 5))
	if err != nil {
		t.Fatal(err)
	}
	keys, uids := map[string]lab.Seedling{}, map[string]bool{}
	zones, on := map[string]int{}, map[string]int{}
	for s := range g.all() {
		if _, twice := keys[s.Key]; twice {
			t.Errorf("%s twice", s.Key)
		}
		keys[s.Key] = s
		if s.Object.GetObjectKind().GroupVersionKind().Empty() {
			t.Errorf("%s names no kind", s.Key)
		}
		switch o := s.Object.(type) {
		case *corev1.Node:
			zones[o.Labels[corev1.LabelTopologyZone]]++
			ready := false
			for _, c := range o.Status.Conditions {
				ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}
			if !ready || o.Status.Allocatable.Cpu().String() != "3" || o.Status.Allocatable.Memory().String() != "5Gi" || o.Status.Allocatable.Pods().Value() != 33 ||
				o.Labels["tier"] != "a" || o.Labels[corev1.LabelHostname] != o.Name || s.Key != "minions/"+o.Name || len(o.Spec.Taints) != 1 ||
				o.Spec.Taints[0] != (corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectPreferNoSchedule}) || o.CreationTimestamp.IsZero() {
				t.Errorf("%s: %+v", s.Key, o)
			}
			uids[string(o.UID)] = true
		case *corev1.Pod:
			on[o.Spec.NodeName]++
			if o.Labels["kubedyno.io/run"] != "" {
				t.Errorf("%s would be measured", s.Key)
			}
			if o.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" || o.Status.Phase != corev1.PodRunning || s.Key != "pods/"+o.Namespace+"/"+o.Name || o.Labels["number"] == "" {
				t.Errorf("%s: %+v", s.Key, o)
			}
			uids[string(o.UID)] = true
		case *corev1.Namespace:
			uids[string(o.UID)] = true
		default:
			t.Errorf("%s is a %T", s.Key, o)
		}
	}
	if len(keys) != 18 || len(uids) != 18 || zones["north"] != 4 || zones["south"] != 3 {
		t.Errorf("%d keys, %d identities, zones %v", len(keys), len(uids), zones)
	}
	for name, n := range on {
		if _, there := keys["minions/"+name]; !there || n > 2 {
			t.Errorf("%d pods on %s", n, name)
		}
	}
	if len(on) != 7 {
		t.Errorf("pods on %d nodes", len(on))
	}
}

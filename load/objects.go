package load

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/ptr"

	"github.com/kubedyno/kubedyno/experiment"
)

// Labels on the namespace and on every object and pod template that the
// generator makes. Values of the first two are the same for all of a phase.
const (
	LabelRun    = "kubedyno.io/run"    // the run's ID; on the namespace too
	LabelPhase  = "kubedyno.io/phase"  // the name of the phase that created it
	LabelObject = "kubedyno.io/object" // on Deployments, their ReplicaSets and pods: the Deployment's name
	LabelOwner  = "app.kubernetes.io/managed-by"
)

// HollowTaint is the taint, with value "true" and effect NoSchedule, of hollow
// nodes that stand beside a cluster's own nodes. Such nodes also carry
// LabelRun, by which pods select them.
const HollowTaint = "kubedyno.io/hollow"

// Namespace is where a run's objects go: kubedyno- and the last part of the
// run's ID.
func Namespace(runID string) string {
	short := strings.ToLower(runID[strings.LastIndex(runID, "-")+1:])
	return "kubedyno-" + short
}

// Rules are what the generator's user must be allowed, cluster-wide.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "delete"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"create", "delete"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"patch"}},
	}
}

// serializer writes the API's protobuf envelope. It needs no scheme to encode
// objects that name their own type.
var serializer = protobuf.NewSerializer(nil, nil)

func encode(o runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	if err := serializer.Encode(o, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// plan is a create phase compiled: everything but names and labels is fixed.
type plan struct {
	kind      experiment.ObjectKind
	resource  string
	path      string // of the collection
	phase     string
	pattern   string            // of names
	labels    map[string]string // of the pods, patterns in the values
	patterned bool              // some label differs from object to object
	pods      int32             // that one object asks for
	pod       *corev1.Pod
	deploy    *appsv1.Deployment
}

// compile turns a create phase into a plan.
func compile(c Config, phase string, create *experiment.Create) (*plan, error) {
	p := &plan{
		kind: create.Kind, phase: phase, pattern: create.ObjectName, pods: 1,
		labels: map[string]string{LabelRun: c.RunID, LabelPhase: phase},
	}
	for k, v := range create.Pod.Labels {
		p.labels[k] = v
		p.patterned = p.patterned || strings.Contains(v, "{")
	}
	spec, err := podSpec(c, create.Pod)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Labels: p.labels}
	switch create.Kind {
	case experiment.Pod:
		p.resource, p.path = "pods", "/api/v1/namespaces/"+c.Namespace+"/pods"
		p.pod = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: spec}
	case experiment.Deployment:
		p.resource, p.path = "deployments", "/apis/apps/v1/namespaces/"+c.Namespace+"/deployments"
		p.pods = int32(create.Replicas)
		p.deploy = &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(p.pods),
				Template: corev1.PodTemplateSpec{Spec: spec},
			},
		}
	default:
		return nil, fmt.Errorf("no way to create a %q", create.Kind)
	}
	return p, nil
}

func podSpec(c Config, shape experiment.PodShape) (corev1.PodSpec, error) {
	requests := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]experiment.Quantity{
		corev1.ResourceCPU: shape.CPU, corev1.ResourceMemory: shape.Memory,
	} {
		if q == "" {
			continue
		}
		parsed, err := resource.ParseQuantity(string(q))
		if err != nil {
			return corev1.PodSpec{}, fmt.Errorf("%s request %q: %w", name, q, err)
		}
		requests[name] = parsed
	}
	spec := corev1.PodSpec{AutomountServiceAccountToken: ptr.To(shape.Token)}
	for i := range max(shape.Containers, 1) {
		name := "main"
		if i > 0 {
			name = fmt.Sprintf("side-%d", i)
		}
		spec.Containers = append(spec.Containers, corev1.Container{
			Name: name, Image: shape.Image, Resources: corev1.ResourceRequirements{Requests: requests},
		})
	}
	if c.HollowNodes {
		spec.NodeSelector = map[string]string{LabelRun: c.RunID}
		spec.Tolerations = []corev1.Toleration{{
			Key: HollowTaint, Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}
	}
	return spec, nil
}

func (p *plan) name(i int) string { return experiment.Expand(p.pattern, p.phase, i) }

// body is object i, encoded.
func (p *plan) body(i int) ([]byte, error) {
	name := p.name(i)
	labels := p.labels
	if p.patterned || p.deploy != nil {
		labels = maps.Clone(labels)
		for k, v := range labels {
			labels[k] = experiment.Expand(v, p.phase, i)
		}
	}
	if p.pod != nil {
		pod := *p.pod
		pod.Name, pod.Labels = name, labels
		return encode(&pod)
	}
	labels[LabelObject] = name
	d := *p.deploy
	d.Name, d.Labels = name, labels
	// The selector must tell this Deployment's pods from all others.
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelRun: labels[LabelRun], LabelObject: name}}
	d.Spec.Template.Labels = labels
	return encode(&d)
}

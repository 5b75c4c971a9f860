package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/ptr"

	"github.com/kubedyno/kubedyno/experiment"
)

// Labels on the namespace and on every object and pod template that the
// generator makes. Values of the first two are the same for all of a phase.
const (
	LabelRun    = "kubedyno.io/run"    // the run's ID; on the namespace too
	LabelPhase  = "kubedyno.io/phase"  // the name of the phase that created it
	LabelObject = "kubedyno.io/object" // on workloads and their pods: the workload's name
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

// plan is what a phase makes, compiled: everything but what varies is fixed.
type plan struct {
	kind        string
	builtin     bool
	resource    string
	path        string // of the collection
	namespace   string // the run's; "": the objects have none
	objects     experiment.Objects
	pattern     text  // of names
	pods        int32 // that one object asks for
	contentType string
	create      *template
	apply       *template // as a server-side apply has it
}

func (p *plan) name(i int) string { return p.pattern.of(i) }

// in is the namespace of object i, and at the path of its collection.
func (p *plan) in(i int) string {
	if p.namespace != "" && p.objects.Namespaces > 0 {
		return p.objects.NamespaceOf(i)
	}
	return p.namespace
}

func (p *plan) at(i int) string {
	if p.namespace == "" || p.objects.Namespaces == 0 {
		return p.path
	}
	return strings.Replace(p.path, "/namespaces/"+p.namespace+"/", "/namespaces/"+p.in(i)+"/", 1)
}

// finder finds the resource of a kind of object.
type finder func(schema.GroupVersionKind) (metav1.APIResource, error)

// compile turns what a phase makes into a plan.
func compile(c Config, phase string, o experiment.Objects, find finder) (*plan, error) {
	if o.Namespace != "" {
		c.Namespace = o.Namespace
	}
	p := &plan{pods: int32(o.PodsEach(c.Nodes)), objects: o, namespace: c.Namespace, pattern: cut(o.Pattern(), phase, c.Namespace)}
	var proto any
	var err error
	if o.Object == nil {
		p.builtin = true
		proto, err = shortForm(c, phase, o)
	} else {
		proto, err = manifest(c, phase, o, find)
		_, p.builtin = proto.(runtime.Object)
	}
	if err != nil {
		return nil, err
	}
	m, data := proto.(map[string]any)
	if !data {
		if m, err = untyped(proto.(runtime.Object)); err != nil {
			return nil, err
		}
	}
	gvk := kindOf(m)
	found, err := find(gvk)
	if err != nil {
		return nil, err
	}
	p.kind, p.resource = gvk.Kind, found.Name
	p.path = collection(gvk.GroupVersion(), c.Namespace, found)
	if !found.Namespaced {
		p.namespace = ""
	}
	p.apply = newTemplate(m, json.Marshal, phase, c.Namespace)
	if p.create, p.contentType = p.apply, contentJSON; p.builtin {
		p.create, p.contentType = newTemplate(proto, encodeTyped, phase, c.Namespace), contentProtobuf
	}
	// What cannot be encoded is found out here, and not when it is due.
	for _, t := range []*template{p.create, p.apply} {
		if _, err := t.body(0); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
	}
	return p, nil
}

// collection is the path of a resource's objects.
func collection(gv schema.GroupVersion, namespace string, r metav1.APIResource) string {
	path := versionPath(gv)
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Name
}

func versionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// manifest is the object of a manifest, as the API's own type where it is
// built in.
func manifest(c Config, phase string, o experiment.Objects, find finder) (any, error) {
	m := plain(o.Object)
	found, err := find(kindOf(m))
	if err != nil {
		return nil, err
	}
	if !found.Namespaced && c.Existing {
		return nil, fmt.Errorf("a %s belongs to no namespace: on a cluster that is not a lab it is not kubedyno's to make", o.KindName())
	}
	dress(m, c, phase, o.Pattern(), found.Namespaced)
	if o.Namespaces > 0 {
		delete(part(m, "metadata"), "namespace") // as the path says
	}
	obj, ok, err := typed(m)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return obj, nil
	}
	return m, nil
}

// shortForm is the Pod or Deployment of a phase that writes no manifest.
func shortForm(c Config, phase string, o experiment.Objects) (runtime.Object, error) {
	labels := map[string]string{LabelRun: c.RunID, LabelPhase: phase}
	maps.Copy(labels, o.Pod.Labels)
	spec, err := podSpec(c, *o.Pod)
	if err != nil {
		return nil, err
	}
	name := o.Pattern()
	meta := metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: labels}
	if o.Namespaces > 0 {
		meta.Namespace = "" // as the path says
	}
	switch o.Kind {
	case experiment.Pod:
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: spec}, nil
	case experiment.Deployment:
		labels[LabelObject] = name
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(o.Replicas)),
				// The selector must tell this Deployment's pods from all others.
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelRun: c.RunID, LabelObject: name}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			},
		}, nil
	}
	return nil, fmt.Errorf("no way to create a %q", o.Kind)
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
	if c.NoKubelets {
		spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	}
	if c.HollowNodes {
		spec.NodeSelector = map[string]string{LabelRun: c.RunID}
		spec.Tolerations = []corev1.Toleration{{
			Key: HollowTaint, Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}
	}
	return spec, nil
}

// known are the kinds of the short form, which need no question to the API
// server.
var known = map[schema.GroupVersionKind]metav1.APIResource{
	{Version: "v1", Kind: "Pod"}:                       {Name: "pods", Kind: "Pod", Namespaced: true},
	{Group: "apps", Version: "v1", Kind: "Deployment"}: {Name: "deployments", Kind: "Deployment", Namespaced: true},
}

// find implements finder by asking the API server.
func (c *client) find(ctx context.Context) finder {
	return func(gvk schema.GroupVersionKind) (metav1.APIResource, error) {
		if r, ok := known[gvk]; ok {
			return r, nil
		}
		for range 2 { // a kind may have been added since the first time
			resources, err := c.resources(ctx, gvk.GroupVersion())
			if err != nil {
				return metav1.APIResource{}, err
			}
			for _, r := range resources {
				if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") {
					return r, nil
				}
			}
			c.forget(gvk.GroupVersion())
		}
		return metav1.APIResource{}, fmt.Errorf("the API server knows no kind %s in %s", gvk.Kind, gvk.GroupVersion())
	}
}

// resources lists what a version of an API group has.
func (c *client) resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	path := versionPath(gv)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.types[path]; ok {
		return r, nil
	}
	a := c.get(ctx, path, contentJSON)
	if a.err != nil {
		return nil, fmt.Errorf("ask the API server what is in %s: %w", gv, a.err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(a.body, &list); err != nil {
		return nil, fmt.Errorf("ask the API server what is in %s: %w", gv, err)
	}
	c.types[path] = list.APIResources
	return list.APIResources, nil
}

func (c *client) forget(gv schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.types, versionPath(gv))
}

// named finds a resource by its name: pods, deployments.apps or
// widgets.example.com/v1. Without a group it is one of the first of core, apps
// and batch.
func (c *client) named(ctx context.Context, name string) (schema.GroupVersion, metav1.APIResource, error) {
	plural, group, grouped := strings.Cut(name, ".")
	candidates := []schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "batch", Version: "v1"}}
	if grouped {
		group, version, versioned := strings.Cut(group, "/")
		if !versioned {
			var err error
			if version, err = c.preferred(ctx, group); err != nil {
				return schema.GroupVersion{}, metav1.APIResource{}, err
			}
		}
		candidates = []schema.GroupVersion{{Group: group, Version: version}}
	}
	for _, gv := range candidates {
		resources, err := c.resources(ctx, gv)
		if err != nil {
			return gv, metav1.APIResource{}, err
		}
		if i := slices.IndexFunc(resources, func(r metav1.APIResource) bool { return r.Name == plural }); i >= 0 {
			return gv, resources[i], nil
		}
	}
	return schema.GroupVersion{}, metav1.APIResource{}, fmt.Errorf("the API server knows no resource %s", name)
}

func (c *client) preferred(ctx context.Context, group string) (version string, err error) {
	a := c.get(ctx, "/apis/"+group, contentJSON)
	var g metav1.APIGroup
	if err := cmp.Or(a.err, json.Unmarshal(a.body, &g)); err != nil {
		return "", fmt.Errorf("ask the API server for the group %s: %w", group, err)
	}
	return g.PreferredVersion.Version, nil
}

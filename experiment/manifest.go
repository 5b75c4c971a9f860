package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Manifest is a Kubernetes object, or a part of one, as data: of map[string]any,
// []any, string, bool, int64, float64 and nil. Text in it may hold {index},
// {phase} and {namespace}.
type Manifest map[string]any

// UnmarshalJSON keeps whole numbers whole.
func (m *Manifest) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var raw map[string]any
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	*m, _ = numbers(raw).(map[string]any)
	return nil
}

func numbers(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, _ := x.Float64()
		return f
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	}
	return v
}

// deepest is far below any object of the API.
const deepest = 60

func (d *decoder) manifest(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "want a manifest, a mapping such as {apiVersion: v1, kind: ConfigMap}, got %s", describe(n))
		return
	}
	m, _ := d.any(n, path, deepest).(map[string]any)
	v.Set(reflect.ValueOf(Manifest(m)))
}

// any decodes a part of a manifest.
func (d *decoder) any(n *yaml.Node, path string, depth int) any {
	d.placed(path, n)
	switch {
	case depth == 0:
		d.fail(n, path, "is nested deeper than any object of the API")
		return nil
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.fail(n, path, "anchors and aliases are not part of the language: write the value out")
		return nil
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, path, "the tag %s is not part of the language: leave it out", n.Tag)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		if name, ok := unquoted(n); ok {
			d.fail(n, path, "a value that begins with a brace needs quotes: \"{%s}\"", name)
			return nil
		}
		m := map[string]any{}
		d.pairs(n, path, func(key, value *yaml.Node) {
			m[key.Value] = d.any(value, join(path, key.Value), depth-1)
		})
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = d.any(item, fmt.Sprintf("%s[%d]", path, i), depth-1)
		}
		return list
	}
	if n = d.filled(n, path); n == nil {
		return nil
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool", "!!int", "!!float":
		var x any
		if err := n.Decode(&x); err != nil {
			d.fail(n, path, "%s is not a value", quote(n.Value))
			return nil
		}
		switch x := x.(type) {
		case int:
			return int64(x)
		case int64, bool:
			return x
		case float64:
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				return x
			}
		}
		d.fail(n, path, "%s is no number that the API knows", n.Value)
		return nil
	}
	return n.Value
}

// unquoted recognises {index}, which without quotes is a mapping to nothing.
func unquoted(n *yaml.Node) (name string, ok bool) {
	if n.Style&yaml.FlowStyle == 0 || len(n.Content) != 2 {
		return "", false
	}
	key, value := n.Content[0], n.Content[1]
	return key.Value, value.Kind == yaml.ScalarNode && value.Value == "" && value.ShortTag() == "!!null" && variableForm.MatchString(key.Value)
}

// template reads the file that a phase names and puts its manifest in place.
func (d *decoder) template(o *Objects, path string) {
	at := join(path, "template")
	if o.Template == "" || d.source.isBad(at) {
		return
	}
	where := d.source.place[at]
	n := &yaml.Node{Line: where.line, Column: where.column}
	if d.source.templates == nil {
		d.fail(n, at, "there is no file that %s could be beside of: write the manifest out as object", quote(o.Template))
		return
	}
	if o.Object != nil && d.set == "" {
		d.fail(n, at, "a phase makes one kind of object: give object or template")
		return
	}
	data, err := d.source.templates(o.Template)
	if err != nil {
		d.fail(n, at, "read the template beside the experiment: %v", err)
		return
	}
	inner := decoder{source: d.source, set: d.set, file: o.Template}
	if root, problem := parseYAML(data); problem != nil {
		inner.report(&yaml.Node{Line: problem.Line, Column: problem.Column}, at, problem.Text)
		d.source.bad[at] = true
	} else {
		inner.value(root, reflect.ValueOf(&o.Object).Elem(), join(path, "object"))
	}
	d.problems = append(d.problems, inner.problems...)
	o.Template = ""
}

// at is the part of a manifest under keys, nil where there is none.
func (m Manifest) at(keys ...string) any {
	var v any = map[string]any(m)
	for _, k := range keys {
		part, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = part[k]
	}
	return v
}

func (m Manifest) text(keys ...string) string {
	s, _ := m.at(keys...).(string)
	return s
}

// whole is the whole number under keys, or what stands for it when left out.
func (m Manifest) whole(otherwise int, keys ...string) int {
	if n, ok := m.at(keys...).(int64); ok {
		return int(n)
	}
	return otherwise
}

// kindOf is what the language knows of a kind of object.
type kindOf struct {
	group   string
	cluster bool // has no namespace
	// Where the pod template is, and how many pods one object asks for.
	template []string
	pods     []string // the number's keys; its default is 1
	rolls    bool     // a new template replaces the pods
	scales   bool
}

var (
	podTemplate = []string{"spec", "template"}
	replicas    = []string{"spec", "replicas"}
)

// kinds are those that make pods, and those that stand outside of namespaces.
// Any other is an object without pods.
var kinds = map[string]kindOf{
	"Pod":                   {template: []string{}},
	"Deployment":            {group: "apps", template: podTemplate, pods: replicas, rolls: true, scales: true},
	"StatefulSet":           {group: "apps", template: podTemplate, pods: replicas, rolls: true, scales: true},
	"ReplicaSet":            {group: "apps", template: podTemplate, pods: replicas, scales: true},
	"ReplicationController": {template: podTemplate, pods: replicas, scales: true},
	"DaemonSet":             {group: "apps", template: podTemplate, rolls: true},
	"Job":                   {group: "batch", template: podTemplate, pods: []string{"spec", "completions"}},
	"Namespace":             {cluster: true},
	"Node":                  {cluster: true},
	"PersistentVolume":      {cluster: true},
	"StorageClass":          {group: "storage.k8s.io", cluster: true},
	"VolumeAttachment":      {group: "storage.k8s.io", cluster: true},
	"CSIDriver":             {group: "storage.k8s.io", cluster: true},
	"PriorityClass":         {group: "scheduling.k8s.io", cluster: true},
	"ClusterRole":           {group: "rbac.authorization.k8s.io", cluster: true},
	"ClusterRoleBinding":    {group: "rbac.authorization.k8s.io", cluster: true},
	"CustomResourceDefinition": {
		group: "apiextensions.k8s.io", cluster: true,
	},
}

// KindName is the kind of the objects: Pod, Deployment, or a manifest's.
func (o Objects) KindName() string {
	if o.Object != nil {
		return o.Object.text("kind")
	}
	return string(o.Kind)
}

// known is what the language knows of the objects' kind.
func (o Objects) known() kindOf {
	if o.Object == nil {
		return kinds[string(o.Kind)]
	}
	group, _, has := strings.Cut(o.Object.text("apiVersion"), "/")
	if !has {
		group = ""
	}
	if k := kinds[o.Object.text("kind")]; k.group == group {
		return k
	}
	return kindOf{}
}

// ClusterScoped reports whether the objects are of a kind that the language
// knows to have no namespace.
func (o Objects) ClusterScoped() bool { return o.known().cluster }

// Pattern is the pattern of the objects' names.
func (o Objects) Pattern() string {
	if name := o.Object.text("metadata", "name"); name != "" {
		return name
	}
	return o.ObjectName
}

// PodsEach is how many pods one object asks for, on a cluster of so many nodes.
func (o Objects) PodsEach(nodes int) int {
	switch k := o.known(); {
	case o.Object == nil && o.Kind == Deployment:
		return o.Replicas
	case k.template == nil:
		return 0
	case len(k.template) == 0:
		return 1
	case k.pods == nil: // a DaemonSet
		return nodes
	default:
		return max(o.Object.whole(1, k.pods...), 0)
	}
}

// requests are what the containers of one pod ask for, in cores and bytes.
func (o Objects) requests() (cpu, memory float64) {
	if o.Object == nil {
		if o.Pod == nil {
			return 0, 0
		}
		k := float64(o.Pod.Containers)
		return k * o.Pod.CPU.Value(), k * o.Pod.Memory.Value()
	}
	k := o.known()
	if k.template == nil {
		return 0, 0
	}
	containers, _ := o.Object.at(append(slices.Clone(k.template), "spec", "containers")...).([]any)
	for _, c := range containers {
		c, _ := c.(map[string]any)
		cpu += quantityOf(Manifest(c).at("resources", "requests", "cpu"))
		memory += quantityOf(Manifest(c).at("resources", "requests", "memory"))
	}
	return cpu, memory
}

// preempts reports whether the pods have a priority, by which they may take the
// place of others: then they need no room of their own.
func (o Objects) preempts() bool {
	k := o.known()
	if o.Object == nil || k.template == nil {
		return false
	}
	spec := append(slices.Clone(k.template), "spec")
	return o.Object.whole(0, append(slices.Clone(spec), "priority")...) > 0 || o.Object.text(append(spec, "priorityClassName")...) != ""
}

func quantityOf(v any) float64 {
	switch x := v.(type) {
	case string:
		return Quantity(x).Value()
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return 0
}

// A Maker is a phase that makes objects of a manifest.
type Maker struct {
	Path    string // of the manifest
	Phase   string
	Objects *Objects
}

// Manifests lists the phases that make objects of a manifest, in order.
func (e *Experiment) Manifests() []Maker {
	var makers []Maker
	add := func(path string, p *Phase) {
		if o := p.Makes(); o != nil && o.Object != nil {
			makers = append(makers, Maker{path + "." + p.Action() + ".object", p.Name, o})
		}
	}
	for i := range e.Phases {
		path := fmt.Sprintf("phases[%d]", i)
		add(path, &e.Phases[i])
		for j := range e.Phases[i].Parallel {
			add(fmt.Sprintf("%s.parallel[%d]", path, j), &e.Phases[i].Parallel[j])
		}
	}
	return makers
}

// ProblemAt is a problem with the value at path, with its place in the file.
func (e *Experiment) ProblemAt(path, text string) Problem { return e.source.problem(path, text) }

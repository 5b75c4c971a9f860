package load

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubedyno/kubedyno/experiment"
)

// A text is one that may differ from object to object, cut where the object's
// number goes.
type text []string

// cut fills in what is the same for all objects of a phase. {{index}} stands
// for {index} itself, and ${index} is the shell's.
func cut(pattern, phase, namespace string) text {
	return strings.Split(fill(phase, namespace).Replace(pattern), mark)
}

// mark is where the object's number goes: no YAML holds it.
const mark = "\x00"

func fill(phase, namespace string) *strings.Replacer {
	var pairs []string
	for name, value := range map[string]string{"index": mark, "phase": phase, "namespace": namespace} {
		pairs = append(pairs, "${"+name+"}", "${"+name+"}", "{{"+name+"}}", "{"+name+"}", "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...)
}

// varies reports whether the text has the object's number in it.
func (t text) varies() bool { return len(t) > 1 }

// of is the text of object i.
func (t text) of(i int) string {
	if !t.varies() {
		return t[0]
	}
	var number [20]byte
	digits := strconv.AppendInt(number[:0], int64(i), 10)
	n := len(t[0])
	for _, part := range t[1:] {
		n += len(digits) + len(part)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(t[0])
	for _, part := range t[1:] {
		b.Write(digits)
		b.WriteString(part)
	}
	return b.String()
}

// template is an object compiled: which of its texts vary is found once, and
// for each object only those are set, in a copy that is used again.
type template struct {
	proto            any // the object with its patterns: a runtime.Object, or map[string]any
	encode           func(any) ([]byte, error)
	phase, namespace string
	copies           sync.Pool // of *instance
}

// instance is a copy of the object, and its places that vary.
type instance struct {
	object any
	places []place
}

type place struct {
	text text
	set  func(string)
}

func newTemplate(proto any, encode func(any) ([]byte, error), phase, namespace string) *template {
	return &template{proto: proto, encode: encode, phase: phase, namespace: namespace}
}

// body is object i, encoded.
func (t *template) body(i int) ([]byte, error) {
	c, _ := t.copies.Get().(*instance)
	if c == nil {
		c = t.copy()
	}
	defer t.copies.Put(c)
	for _, p := range c.places {
		p.set(p.text.of(i))
	}
	return t.encode(c.object)
}

// copy makes an instance: what is the same for all objects is filled in.
func (t *template) copy() *instance {
	c := &instance{}
	found := func(pattern string, set func(string)) {
		if !strings.Contains(pattern, "{") {
			return
		}
		p := place{cut(pattern, t.phase, t.namespace), set}
		set(p.text.of(0))
		if p.text.varies() {
			c.places = append(c.places, p)
		}
	}
	if o, ok := t.proto.(runtime.Object); ok {
		o = o.DeepCopyObject()
		c.object = o
		typedTexts(reflect.ValueOf(o).Elem(), found)
		return c
	}
	c.object = runtime.DeepCopyJSONValue(t.proto)
	plainTexts(c.object, func(string) {}, found)
	return c
}

// plainTexts finds the texts of a manifest. Set replaces v.
func plainTexts(v any, set func(string), found func(string, func(string))) {
	switch x := v.(type) {
	case string:
		found(x, set)
	case map[string]any:
		for k, item := range x {
			plainTexts(item, func(s string) { x[k] = s }, found)
		}
	case []any:
		for i, item := range x {
			plainTexts(item, func(s string) { x[i] = s }, found)
		}
	}
}

// typedTexts finds the texts of a value of the API's own types.
func typedTexts(v reflect.Value, found func(string, func(string))) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			found(v.String(), v.SetString)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			typedTexts(v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				typedTexts(v.Field(i), found)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				typedTexts(v.Index(i), found)
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			item := v.MapIndex(k)
			if item.Kind() == reflect.String {
				found(item.String(), func(s string) { v.SetMapIndex(k, reflect.ValueOf(s).Convert(item.Type())) })
				continue
			}
			// A map's value cannot be changed in place.
			fresh := reflect.New(item.Type()).Elem()
			fresh.Set(item)
			typedTexts(fresh, func(pattern string, set func(string)) {
				found(pattern, func(s string) { set(s); v.SetMapIndex(k, fresh) })
			})
		}
	}
}

// typed turns a manifest into the API's own type; ok is false where the type is
// not built in. Unknown fields are errors.
func typed(m map[string]any) (o runtime.Object, ok bool, err error) {
	gvk := kindOf(m)
	if !scheme.Scheme.Recognizes(gvk) {
		return nil, false, nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, true, err
	}
	o, _, err = strict.Decode(data, &gvk, nil)
	if err != nil {
		return nil, true, err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o, true, nil
}

var strict = serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serializerjson.SerializerOptions{Strict: true})

func kindOf(m map[string]any) schema.GroupVersionKind {
	version, _ := m["apiVersion"].(string)
	kind, _ := m["kind"].(string)
	return schema.FromAPIVersionAndKind(version, kind)
}

// untyped is an object as plain data, without what was left out.
func untyped(o runtime.Object) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(m, "status")
	prune(m)
	return m, nil
}

// prune takes out nulls, which in an apply would own fields.
func prune(v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, item := range x {
			if item == nil {
				delete(x, k)
				continue
			}
			prune(item)
		}
	case []any:
		for _, item := range x {
			prune(item)
		}
	}
}

func encodeTyped(v any) ([]byte, error) { return encode(v.(runtime.Object)) }

// Kinds that make pods: those whose selector tells which are theirs, and others.
var (
	selecting = map[string]bool{"Deployment": true, "StatefulSet": true, "DaemonSet": true, "ReplicaSet": true}
	owning    = map[string]bool{"Job": true, "ReplicationController": true}
)

// dress adds to a manifest what makes its objects the run's: name, namespace,
// labels, and, on a cluster that has nodes of its own too, the way to the
// hollow ones.
func dress(m map[string]any, c Config, phase, name string, namespaced bool) {
	kind, _ := m["kind"].(string)
	own := map[string]any{LabelRun: c.RunID, LabelPhase: phase}
	if selecting[kind] || owning[kind] {
		own[LabelObject] = name
	}
	metadata := part(m, "metadata")
	metadata["name"] = name
	if namespaced {
		metadata["namespace"] = c.Namespace
	}
	maps.Copy(part(metadata, "labels"), own)
	var pod map[string]any
	labelled := func(o any) {
		if o, ok := o.(map[string]any); ok {
			maps.Copy(part(part(o, "metadata"), "labels"), own)
		}
	}
	switch {
	case kind == "Pod":
		pod = part(m, "spec")
	case selecting[kind] || owning[kind]:
		spec := part(m, "spec")
		template := part(spec, "template")
		maps.Copy(part(part(template, "metadata"), "labels"), own)
		// The selector must tell this object's pods from all others.
		if selecting[kind] && spec["selector"] == nil {
			spec["selector"] = map[string]any{"matchLabels": map[string]any{LabelRun: c.RunID, LabelObject: name}}
		}
		pod = part(template, "spec")
		// Claims that controllers make are the run's, too.
		claims, _ := spec["volumeClaimTemplates"].([]any)
		for _, claim := range claims {
			labelled(claim)
		}
	}
	volumes, _ := pod["volumes"].([]any)
	for _, v := range volumes {
		if v, ok := v.(map[string]any); ok {
			if ephemeral, ok := v["ephemeral"].(map[string]any); ok {
				labelled(ephemeral["volumeClaimTemplate"])
			}
		}
	}
	if pod != nil && c.HollowNodes {
		part(pod, "nodeSelector")[LabelRun] = c.RunID
		tolerations, _ := pod["tolerations"].([]any)
		pod["tolerations"] = append(slices.Clone(tolerations), map[string]any{
			"key": HollowTaint, "operator": "Equal", "value": "true", "effect": "NoSchedule",
		})
	}
}

// part is the mapping under a key, made where there is none.
func part(m map[string]any, key string) map[string]any {
	p, ok := m[key].(map[string]any)
	if !ok {
		p = map[string]any{}
		m[key] = p
	}
	return p
}

// plain is a copy of a manifest that may be changed.
func plain(m experiment.Manifest) map[string]any {
	return runtime.DeepCopyJSON(map[string]any(m))
}

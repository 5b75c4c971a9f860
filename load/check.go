package load

import (
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubedyno/kubedyno/experiment"
)

// Check compiles what an experiment makes without a cluster: a manifest of a
// built-in kind with fields that the API does not know is refused where they
// stand in the file. Other kinds can only be checked by the cluster.
func Check(e *experiment.Experiment) error {
	cfg := Config{RunID: "check-000000", Namespace: "kubedyno-000000", Nodes: e.Cluster.Nodes.All()}
	guess := func(gvk schema.GroupVersionKind) (metav1.APIResource, error) {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		return metav1.APIResource{Name: plural.Resource, Kind: gvk.Kind, Namespaced: true}, nil
	}
	var problems experiment.Problems
	for _, m := range e.Manifests() {
		_, err := compile(cfg, m.Phase, *m.Objects, guess)
		if err == nil {
			continue
		}
		faults := []error{err}
		if strict, ok := runtime.AsStrictDecodingError(err); ok {
			faults = strict.Errors()
		}
		for _, fault := range faults {
			path, text := m.Path, fault.Error()
			if unknown := unknownField.FindStringSubmatch(text); unknown != nil {
				path += "." + unknown[1]
				text = "unknown field of a " + m.Objects.KindName() + experiment.Suggest(lastKey(unknown[1]), fieldsAt(kindOf(m.Objects.Object), unknown[1]))
			}
			problems = append(problems, e.ProblemAt(path, text))
		}
	}
	return problems.Err()
}

var unknownField = regexp.MustCompile(`^unknown field "(.+)"$`)

func lastKey(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// fieldsAt are the fields that could stand in place of the last of the path.
func fieldsAt(gvk schema.GroupVersionKind, path string) []string {
	t, ok := scheme.Scheme.AllKnownTypes()[gvk]
	if !ok {
		return nil
	}
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		key, _, _ = strings.Cut(key, "[")
		if t = fieldType(t, key); t == nil {
			return nil
		}
	}
	var names []string
	eachField(t, func(name string, _ reflect.Type) { names = append(names, name) })
	return names
}

func fieldType(t reflect.Type, key string) reflect.Type {
	var found reflect.Type
	eachField(t, func(name string, ft reflect.Type) {
		if name != key {
			return
		}
		for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		found = ft
	})
	return found
}

// eachField calls f for the fields of a type as JSON has them.
func eachField(t reflect.Type, f func(name string, t reflect.Type)) {
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && strings.Contains(options, "inline"):
			eachField(field.Type, f)
		case name != "" && name != "-" && field.IsExported():
			f(name, field.Type)
		}
	}
}

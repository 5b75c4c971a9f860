package schedulerperf

import (
	"reflect"
	"strings"
)

// canonical gives the keys of a manifest the case that the API has. Upstream
// reads pods and nodes into Go structs, which takes keys of any case; the API
// server does not.
func canonical(v any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch x := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i := range x {
				x[i] = canonical(x[i], t.Elem())
			}
		}
	case map[string]any:
		switch t.Kind() {
		case reflect.Map:
			for k := range x {
				x[k] = canonical(x[k], t.Elem())
			}
		case reflect.Struct:
			fields := map[string]reflect.StructField{}
			jsonFields(t, fields)
			for k, value := range x {
				f, ok := fields[strings.ToLower(k)]
				if !ok {
					continue // unknown: for the API's own check to say
				}
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				delete(x, k)
				x[name] = canonical(value, f.Type)
			}
		}
	}
	return v
}

// jsonFields finds the fields of a struct as JSON has them, those of embedded
// structs among them, by their names in lower case.
func jsonFields(t reflect.Type, into map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			jsonFields(f.Type, into)
		case name != "" && name != "-":
			into[strings.ToLower(name)] = f
		}
	}
}

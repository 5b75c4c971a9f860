package schedulerperf

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// index stands for an object's number while a template is read: no YAML holds
// it.
const index = "\u2063index\u2063"

var (
	plainIndex = regexp.MustCompile(`\{\{-?\s*\.Index\s*-?\}\}`)
	anyAction  = regexp.MustCompile(`\{\{.*?\}\}`)
)

// object reads the template of so many objects: text/template with .Index and
// .Count, which becomes a manifest with {index}. A template that reckons with
// the number is not one that the language can say.
func (f *File) object(path string, count int) (map[string]any, error) {
	where, err := f.beside(path)
	if err != nil {
		return nil, err
	}
	data, err := readFile(where)
	if err != nil {
		return nil, err
	}
	text := string(data)
	if count > 1 {
		text = plainIndex.ReplaceAllString(text, index)
		for _, action := range anyAction.FindAllString(text, -1) {
			if strings.Contains(action, ".Index") {
				return nil, fmt.Errorf("%s reckons with the object's number: %s", path, action)
			}
		}
	}
	t, err := template.New(path).Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]any{"Index": 0, "Count": count}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var v any
	if err := yaml.Unmarshal(b.Bytes(), &v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	v, err = numbered(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, ok := v.(map[string]any)
	if !ok || m["kind"] == nil {
		return nil, fmt.Errorf("%s is no manifest of one object", path)
	}
	if m["kind"] == "Config" && m["apiVersion"] == "v1" {
		return nil, fmt.Errorf("%s is a kubeconfig, and no manifest", path)
	}
	return m, nil
}

// numbered puts {index} where the number goes, which can be part of a text only.
func numbered(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			if strings.Contains(k, index) {
				return nil, fmt.Errorf("the key %q has the object's number in it, and only values can", strings.ReplaceAll(k, index, "{{.Index}}"))
			}
			if x[k], err = numbered(x[k]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range x {
			if x[i], err = numbered(x[i]); err != nil {
				return nil, err
			}
		}
	case string:
		if x == index {
			return nil, fmt.Errorf("a value is the object's number itself, and the language has it as a part of text only")
		}
		return strings.ReplaceAll(x, index, "{index}"), nil
	}
	return v, nil
}

// functions are those that upstream's templates may use, of whole numbers and
// of others.
var functions = template.FuncMap{
	"AddFloat": floats(func(a, b float64) float64 { return a + b }), "AddInt": ints(func(a, b int) int { return a + b }),
	"SubtractFloat": floats(func(a, b float64) float64 { return a - b }), "SubtractInt": ints(func(a, b int) int { return a - b }),
	"MultiplyFloat": floats(func(a, b float64) float64 { return a * b }), "MultiplyInt": ints(func(a, b int) int { return a * b }),
	"DivideFloat": floats(func(a, b float64) float64 { return a / b }), "DivideInt": ints(func(a, b int) int { return a / b }),
	"Mod": ints(func(a, b int) int { return a % b }),
}

func ints(f func(a, b int) int) func(a, b any) int {
	return func(a, b any) int { return f(int(float(a)), int(float(b))) }
}

func floats(f func(a, b float64) float64) func(a, b any) float64 {
	return func(a, b any) float64 { return f(float(a), float(b)) }
}

func float(v any) float64 {
	switch x := v.(type) {
	case int:
		return float64(x)
	case float64:
		return x
	}
	return 0
}

package experiment

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const docs = "../docs/experiments.md"

func readDocs(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// mentions lists what the docs set as code outside of examples, a line each.
func mentions(t *testing.T) string {
	var code []string
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(readDocs(t), "") // tables and prose must do it
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		code = append(code, m[1])
	}
	return "\n" + strings.Join(code, "\n") + "\n"
}

// Every key and every value of the language is explained.
func TestDocsNameEveryKey(t *testing.T) {
	all := mentions(t)
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		}
		if seen[typ] {
			return
		}
		seen[typ] = true
		if e, ok := reflect.Zero(typ).Interface().(enum); ok {
			for _, v := range e.values() {
				if !strings.Contains(all, "\n"+v+"\n") && !strings.Contains(all, ": "+v+",") {
					t.Errorf("%s does not name the value %q of %s", docs, v, typ)
				}
			}
		}
		if typ.Kind() != reflect.Struct || isScalar(typ) || typ == rateType {
			return
		}
		for _, f := range fieldsOf(typ) {
			if !strings.Contains(all, "\n"+f.key+"\n") && !strings.Contains(all, f.key+": ") {
				t.Errorf("%s does not name the key %q of %s", docs, f.key, typ)
			}
			walk(typ.Field(f.index).Type)
		}
	}
	walk(reflect.TypeFor[Experiment]())
	walk(reflect.TypeFor[ramp]())
	for _, name := range ComponentNames() {
		if !strings.Contains(all, "\n"+name+"\n") {
			t.Errorf("%s does not name the component %s", docs, name)
		}
	}
}

func TestDocsExamplesParse(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readDocs(t), -1)
	if len(examples) < 3 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, m := range examples {
		if _, err := Parse("example", []byte(m[1])); err != nil {
			t.Errorf("%v\n%s", err, m[1])
		}
	}
}

// The settings shown in the docs act on their first example.
func TestDocsSettingsApply(t *testing.T) {
	text := readDocs(t)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(text)[1]
	settings := regexp.MustCompile("`--set '?([^`']+=[^`']+)'?`").FindAllStringSubmatch(text, -1)
	if len(settings) < 4 {
		t.Fatalf("%d settings", len(settings))
	}
	for _, m := range settings {
		if m[1] == "PATH=VALUE" {
			continue
		}
		e, err := Parse("example", []byte(example))
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSets([]string{m[1]})
		if err == nil {
			// The example's Deployment is a single object, of any rate.
			err = e.Apply(s)
		}
		if err != nil {
			t.Errorf("--set %s: %v", m[1], err)
		}
	}
}

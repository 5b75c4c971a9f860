package experiment

import (
	"os"
	"path/filepath"
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
		if typ.Kind() != reflect.Struct || isScalar(typ) || typ == rateType || typ == manifestType {
			return
		}
		for _, f := range fieldsOf(typ) {
			if !strings.Contains(all, "\n"+f.key+"\n") && !strings.Contains(all, f.key+": ") {
				t.Errorf("%s does not name the key %q of %s", docs, f.key, typ)
			}
			walk(typ.FieldByIndex(f.index).Type)
		}
	}
	walk(reflect.TypeFor[Experiment]())
	walk(reflect.TypeFor[ramp]())
	walk(reflect.TypeFor[poisson]())
	walk(reflect.TypeFor[rateStep]())
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
		if strings.HasSuffix(m[1], "=VALUE") { // the form, not an example
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

// The published schema is the one that the types make.
func TestPublishedSchema(t *testing.T) {
	const file = "../docs/experiment.schema.json"
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != string(data) {
		t.Errorf("%s is not what `kubedyno experiment schema` prints: -update rewrites it", file)
	}
}

// What the language takes, the schema takes too, and of what it refuses the
// schema sees wrong keys and types.
func TestSchemaAgreesWithTheLanguage(t *testing.T) {
	good := map[string][]byte{"starter": Starter()}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readDocs(t), -1) {
		good["docs: "+m[1][:30]] = []byte(m[1])
	}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseFile(name); err != nil {
			t.Error(err)
		}
		good[name] = data
	}
	for _, b := range Builtins() {
		e, err := Builtin(b.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if good[b.Name+" as printed"], err = e.YAML(); err != nil {
			t.Fatal(err)
		}
		if good[b.Name], err = BuiltinYAML(b.Name, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := loadSchema(t)
	for name, data := range good {
		if err := s.validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{
		"unknown-key-in-flow", "wrong-case-kind", "text-as-number", "phases-mapping", "no-phases", "phase-with-two-actions", "phase-without-action",
		"many-at-once", "unknown-component", "ramp-incomplete", "read-empty-mix", "clients-many", "read-shares", "repetitions", "update-key",
	} {
		data, err := os.ReadFile("testdata/bad/" + bad + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if s.validate(data) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}

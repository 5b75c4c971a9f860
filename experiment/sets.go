package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sets are parsed --set settings: PATH=VALUE, where PATH is
// <component>.args.<flag>, .env.<NAME>, .binary, .cpu or .config, or any field of the
// experiment. Where two set the same thing, the later one wins.
type Sets struct {
	// Components holds what differs, by component name.
	Components map[string]Component
	// Fields are the settings of other fields, in order.
	Fields []Field

	settings []string
	source   source // of Components
}

// Field is the setting of one field of the experiment.
type Field struct{ Path, Value string }

// Strings are the settings as they were given.
func (s Sets) Strings() []string { return slices.Clone(s.settings) }

// Variables are the settings of variables, by name. They apply while a file is
// read: see Options.
func (s Sets) Variables() map[string]string {
	var given map[string]string
	for _, f := range s.Fields {
		if name, ok := strings.CutPrefix(f.Path, variablesPath); ok {
			given = put(given, name, f.Value)
		}
	}
	return given
}

const variablesPath = "variables."

// ComponentsOnly is an error where a setting names a field of the experiment:
// a lab without an experiment has none.
func (s Sets) ComponentsOnly() error {
	var ps Problems
	for _, f := range s.Fields {
		ps = append(ps, Problem{File: "--set " + f.Path + "=" + f.Value,
			Text: "there is no experiment here to change: set " + strings.Join(ComponentNames(), ", ") + " only"})
	}
	return ps.err()
}

const componentsPath = "cluster.components."

// ParseSets reads --set settings. All errors are reported at once, as Problems.
func ParseSets(settings []string) (Sets, error) {
	s := Sets{settings: slices.Clone(settings), source: newSource("")}
	var ps Problems
	for _, setting := range settings {
		problem := func(path, text string) { ps = append(ps, Problem{File: "--set " + setting, Path: path, Text: text}) }
		path, value, ok := strings.Cut(setting, "=")
		if !ok || path == "" {
			problem("", "want PATH=VALUE, such as cluster.nodes=100 or kube-scheduler.args.kube-api-qps=200")
			continue
		}
		component := strings.TrimPrefix(path, componentsPath)
		first, rest, _ := strings.Cut(component, ".")
		top := keysOf(fieldsOf(reflect.TypeFor[Experiment]()))
		switch {
		case slices.Contains(ComponentNames(), first):
			if s.Components == nil {
				s.Components = map[string]Component{}
			}
			comp := s.Components[first]
			d := decoder{source: s.source, set: setting}
			d.setComponent(&comp, componentsPath+first, rest, value)
			if len(d.problems) == 0 {
				d.problems = checkRules(reflect.ValueOf(comp), componentsPath+first, s.source)
			}
			for i := range d.problems {
				d.problems[i].Path = strings.TrimPrefix(d.problems[i].Path, componentsPath)
			}
			ps = append(ps, d.problems...)
			if IsHarness(first) && (len(comp.Args) > 0 || comp.Binary != "") && len(d.problems) == 0 {
				problem("", first+" is part of kubedyno and takes cpu and env only")
				continue
			}
			s.Components[first] = comp
		case component != path:
			problem("", unknown("component", first, ComponentNames()))
		case slices.Contains(top, strings.Split(first, "[")[0]):
			s.Fields = append(s.Fields, Field{Path: path, Value: value})
		default:
			problem("", unknown("component or field", first, append(ComponentNames(), top...)))
		}
	}
	return s, ps.err()
}

// setComponent sets the part of c that rest names.
func (d *decoder) setComponent(c *Component, at, rest, value string) {
	part, name, named := strings.Cut(rest, ".")
	parts := keysOf(fieldsOf(reflect.TypeFor[Component]()))
	fail := func(text string) { d.report(&yaml.Node{}, at, text) }
	switch {
	case rest == "":
		fail("say which part: args.<flag>, env.<NAME>, binary, cpu, config or off")
	case part == "args" && named && name != "":
		if c.Args == nil {
			c.Args = map[string]*string{}
		}
		c.Args[name] = &value
		if value == "null" {
			c.Args[name] = nil
		}
		d.placed(at+".args."+name, nil)
	case part == "env" && named && name != "":
		if c.Env == nil {
			c.Env = map[string]string{}
		}
		c.Env[name] = value
		d.placed(at+".env."+name, nil)
	case part == "args", part == "env":
		fail(fmt.Sprintf("%s needs a name: %s.<name>=<value>", part, part))
	case named && slices.Contains(parts, part):
		fail(fmt.Sprintf("%s has no parts", part))
	case part == "binary" && value == "":
		fail("binary is empty")
	case part == "binary":
		c.Binary = value
		d.placed(at+".binary", nil)
	case part == "config":
		n, err := setNode(value, manifestType)
		if err != nil {
			fail(err.Error())
			return
		}
		d.value(n, reflect.ValueOf(&c.Config).Elem(), at+".config")
	case part == "off":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, reflect.ValueOf(&c.Off).Elem(), at+".off")
	case part == "syncDelay":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, reflect.ValueOf(&c.SyncDelay).Elem(), at+".syncDelay")
	case part == "latency":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, reflect.ValueOf(&c.Latency).Elem(), at+".latency")
	case part == "files":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, reflect.ValueOf(&c.Files).Elem(), at+".files")
	case part == "cpu":
		d.value(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, reflect.ValueOf(&c.CPU).Elem(), at+".cpu")
	default:
		fail(unknown("part", part, parts))
	}
}

// Apply changes the experiment by the settings and checks the result. After an
// error e must not be used.
func (e *Experiment) Apply(s Sets) error {
	if e.source.place == nil { // built by a program
		e.source = newSource("")
	}
	var ps Problems
	for _, name := range sortedKeys(s.Components) {
		if e.Cluster.Components == nil {
			e.Cluster.Components = map[string]Component{}
		}
		changed := e.Cluster.Components[name].with(s.Components[name])
		if s.source.present(componentsPath + name + ".off") {
			changed.Off = s.Components[name].Off
		}
		e.Cluster.Components[name] = changed
	}
	for path, pl := range s.source.place {
		e.source.place[path] = pl
	}
	for _, f := range s.Fields {
		d := decoder{source: e.source, set: f.Path + "=" + f.Value}
		if name, ok := strings.CutPrefix(f.Path, variablesPath); ok {
			if v := e.source.variables[name]; v == nil {
				ps = append(ps, Problem{File: "--set " + d.set, Text: d.unknownVariable(name)})
			} else if v.node.Value != f.Value {
				ps = append(ps, Problem{File: "--set " + d.set, Text: "the variables of this experiment are filled in already"})
			}
			continue
		}
		if err := d.setField(reflect.ValueOf(e).Elem(), f); err != nil {
			ps = append(ps, Problem{File: "--set " + d.set, Text: err.Error()})
		}
		ps = append(ps, d.problems...)
	}
	e.complete()
	return append(ps, e.problems()...).err()
}

// with is c changed by d.
func (c Component) with(d Component) Component {
	for _, flag := range sortedKeys(d.Args) {
		c.Args = put(c.Args, flag, d.Args[flag])
	}
	for _, name := range sortedKeys(d.Env) {
		c.Env = put(c.Env, name, d.Env[name])
	}
	if d.Binary != "" {
		c.Binary = d.Binary
	}
	if d.Config != nil {
		c.Config = d.Config
	}
	if d.CPU != 0 {
		c.CPU = d.CPU
	}
	if d.SyncDelay != 0 {
		c.SyncDelay = d.SyncDelay
	}
	if d.Latency != 0 {
		c.Latency = d.Latency
	}
	if d.Files != 0 {
		c.Files = d.Files
	}
	return c
}

func put[V any](m map[string]V, k string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[k] = v
	return m
}

var indexForm = regexp.MustCompile(`\[(\d+)\]`)

// away is the value that takes away what it is set on: a field has its default
// again, and an element of a list or a key of a mapping is no longer there. In
// a manifest it is a value like any other.
const away = "null"

// setField walks to the field that f names and decodes its value there.
func (d *decoder) setField(v reflect.Value, f Field) error {
	segments := strings.Split(indexForm.ReplaceAllString(f.Path, ".$1"), ".")
	path := ""
	def := newDefault(v.Type()).Elem() // what stands at the path where nobody sets it
	var owner reflect.Value            // the Objects that v is a part of
	for i := 0; i < len(segments); i++ {
		seg := segments[i]
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(newDefault(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if def.Kind() == reflect.Pointer {
			if def.IsNil() {
				def = newDefault(def.Type().Elem())
			}
			def = def.Elem()
		}
		switch {
		case v.Type() == manifestType:
			return d.setManifest(v, path, segments[i:], f.Value)
		case v.Kind() == reflect.Map:
			// A map's key may hold dots: the rest of the path is the key.
			key := strings.Join(segments[i:], ".")
			if key == "" {
				return errors.New("a key is empty")
			}
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			if f.Value == away {
				v.SetMapIndex(reflect.ValueOf(key), reflect.Value{})
				d.source.forget(join(path, key))
				return nil
			}
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(f.Value))
			d.placed(join(path, key), nil)
			return nil
		case v.Kind() == reflect.Slice:
			index, err := elementOf(v, seg)
			if err != nil {
				return err
			}
			if f.Value == away && i == len(segments)-1 {
				d.source.forget(fmt.Sprintf("%s[%d]", path, index))
				d.source.shift(path, index+1, -1)
				v.Set(reflect.AppendSlice(v.Slice3(0, index, index), v.Slice(index+1, v.Len())))
				return nil
			}
			v, path = v.Index(index), fmt.Sprintf("%s[%d]", path, index)
			def = newDefault(v.Type()).Elem()
		case v.Kind() == reflect.Struct && !isScalar(v.Type()) && v.Type() != rateType:
			fields := fieldsOf(v.Type())
			k := slices.IndexFunc(fields, func(f field) bool { return f.key == seg })
			if k < 0 {
				where := ""
				if path != "" {
					where = " in " + path
				}
				return errors.New("unknown key " + quote(seg) + where + suggest(seg, keysOf(fields)))
			}
			if o := v.FieldByName("Objects"); o.IsValid() {
				owner = o
			}
			v, path = v.FieldByIndex(fields[k].index), join(path, seg)
			def = def.FieldByIndex(fields[k].index)
		default:
			return fmt.Errorf("%s has no parts such as %q", path, seg)
		}
	}
	holder, template := strings.CutSuffix(path, ".template")
	d.source.forget(path)
	if f.Value == away && !template { // what a template made of its file stays
		v.Set(def)
		return nil
	}
	n, err := setNode(f.Value, v.Type())
	if err != nil {
		return err
	}
	switch {
	case v.Kind() == reflect.Slice:
		v.SetZero()
	case v.Kind() == reflect.Pointer && n.Kind == yaml.MappingNode:
		v.SetZero() // a mapping replaces what was there, as a scalar changes a part of it
	}
	d.value(n, v, path)
	if template {
		d.template(owner.Addr().Interface().(*Objects), holder)
	}
	return nil
}

// forget drops what an earlier value at or below a path has left, for it no
// longer counts.
func (s source) forget(path string) {
	for p := range s.place {
		if p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[") {
			delete(s.place, p)
		}
	}
}

// elementOf finds a list's element by its name or number.
func elementOf(v reflect.Value, seg string) (int, error) {
	var names []string
	for i := range v.Len() {
		if name := v.Index(i).FieldByName("Name"); name.IsValid() {
			if name.String() == seg {
				return i, nil
			}
			names = append(names, name.String())
		}
	}
	what := strings.ToLower(v.Type().Elem().Name())
	if i, err := strconv.Atoi(seg); err == nil {
		if i < v.Len() && i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("there is no %s %d: the experiment has %d, counted from 0", what, i, v.Len())
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("unknown %s %s: the experiment has none", what, quote(seg))
	}
	return 0, errors.New(unknown(what, seg, names))
}

// setManifest sets a part of a manifest. What is on the way there is made.
func (d *decoder) setManifest(v reflect.Value, path string, segments []string, value string) error {
	if v.IsNil() {
		v.Set(reflect.ValueOf(Manifest{}))
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	switch {
	case value == "":
		n.Tag = "!!str"
	case strings.ContainsAny(value, "{["):
		parsed, problem := parseYAML([]byte(value))
		if problem != nil {
			return errors.New(problem.Text)
		}
		n = parsed
	}
	var at any = map[string]any(v.Interface().(Manifest))
	for i, seg := range segments {
		last := i == len(segments)-1
		switch x := at.(type) {
		case map[string]any:
			path = join(path, seg)
			if last {
				x[seg] = d.any(n, path, deepest)
				return nil
			}
			if x[seg] == nil {
				x[seg] = map[string]any{}
			}
			at = x[seg]
		case []any:
			index, err := strconv.Atoi(seg)
			if err != nil || index < 0 || index >= len(x) {
				return fmt.Errorf("%s has %d elements, counted from 0: there is no %s", path, len(x), quote(seg))
			}
			path = fmt.Sprintf("%s[%d]", path, index)
			if last {
				x[index] = d.any(n, path, deepest)
				return nil
			}
			at = x[index]
		default:
			return fmt.Errorf("%s has no parts such as %q", path, seg)
		}
	}
	return nil
}

// setNode is a setting's value as YAML. Text is taken as it stands, so that
// description=5 needs no quotes that a shell would eat.
func setNode(value string, t reflect.Type) (*yaml.Node, error) {
	text := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if t.Kind() == reflect.String && t != quantityType || value == "" {
		return text, nil
	}
	if !bytes.ContainsAny([]byte(value), "{[") {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: value}, nil
	}
	n, problem := parseYAML([]byte(value))
	if problem != nil {
		return nil, errors.New(problem.Text)
	}
	return n, nil
}

package experiment

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ParseFault reads NAME, NAME=low, NAME=middle, NAME=high or NAME=VALUE.
func ParseFault(name, strength string) Fault {
	f := Fault{Name: name}
	if slices.Contains(Intensities(), strength) {
		f.Intensity = Intensity(strength)
	} else {
		f.Value = Literal(strength)
	}
	return f
}

// Strength is how strong the fault is, in the words of the file.
func (f Fault) Strength() string {
	switch {
	case f.Value != "" && f.Intensity != "":
		return fmt.Sprintf("%s (%s)", f.Value, f.Intensity)
	case f.Value != "":
		return string(f.Value)
	case f.Intensity != "":
		return string(f.Intensity)
	}
	return string(Middle)
}

// Made are the faults that are part of the experiment by now: what they change
// has been laid over it, and stands among its settings.
func (e *Experiment) Made() []Fault { return slices.Clone(e.made) }

// AddFault adds the fault of a flag NAME, NAME=low, NAME=middle, NAME=high or
// NAME=VALUE. What is wrong with it is said of the flag.
func (e *Experiment) AddFault(flag, text string) {
	name, strength, _ := strings.Cut(text, "=")
	e.Faults = append(e.Faults, ParseFault(name, strength))
	if e.source.place == nil {
		e.source.place = map[string]place{}
	}
	e.source.place[fmt.Sprintf("faults[%d]", len(e.Faults)-1)] = place{flag: flag + " " + text}
}

// FaultProblem is a problem with the i-th of the faults, shown where it stands.
func (e *Experiment) FaultProblem(i int, key, text string) Problem {
	return e.source.problem(join(fmt.Sprintf("faults[%d]", i), key), text)
}

// Make turns the faults into what they change: fragments holds one for each, in
// order, and f what the fault is as it applies, its intensity's value with it.
// Nothing is checked: see Apply.
func (e *Experiment) Make(as []Fault, fragments [][]byte) error {
	var ps Problems
	for i, f := range as {
		ps = append(ps, e.overlay("fault "+f.Name, fragments[i])...)
	}
	e.made = append(e.made, as...)
	e.Faults = nil
	for path := range e.source.place {
		if faultPath.MatchString(path) {
			delete(e.source.place, path)
		}
	}
	return ps.err()
}

var faultPath = regexp.MustCompile(`^faults(\[|$)`)

// overlay lays a part of an experiment over the whole: its actors come after
// those that there are, its phases before, flags and environment variables are
// added to a component's own, and any other value takes the place of what was
// there.
func (e *Experiment) overlay(name string, fragment []byte) Problems {
	if e.source.place == nil { // built by a program
		e.source = newSource("")
	}
	root, problem := parseYAML(fragment)
	if problem != nil {
		problem.File = name
		return Problems{*problem}
	}
	d := decoder{source: e.source, file: name}
	d.pairs(root, "", func(key, value *yaml.Node) {
		switch key.Value {
		case "actors":
			for _, item := range value.Content {
				a := newDefault(reflect.TypeFor[Actor]()).Elem()
				d.value(item, a, fmt.Sprintf("actors[%d]", len(e.Actors)))
				e.Actors = append(e.Actors, a.Interface().(Actor))
			}
		case "phases":
			e.source.shift("phases", 0, len(value.Content))
			var first []Phase
			for i, item := range value.Content {
				p := newDefault(reflect.TypeFor[Phase]()).Elem()
				d.value(item, p, fmt.Sprintf("phases[%d]", i))
				first = append(first, p.Interface().(Phase))
			}
			e.Phases = append(first, e.Phases...)
		case "cluster":
			d.pairs(value, "cluster", func(key, value *yaml.Node) {
				if key.Value != "components" {
					whole := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}, Line: key.Line, Column: key.Column}
					d.structure(whole, reflect.ValueOf(&e.Cluster).Elem(), "cluster")
					return
				}
				d.placed("cluster.components", value)
				d.pairs(value, "cluster.components", func(key, value *yaml.Node) {
					var c Component
					d.value(value, reflect.ValueOf(&c).Elem(), componentsPath+key.Value)
					e.Cluster.Components = put(e.Cluster.Components, key.Value, e.Cluster.Components[key.Value].with(c))
				})
			})
		default:
			whole := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}, Line: key.Line, Column: key.Column}
			d.structure(whole, reflect.ValueOf(e).Elem(), "")
		}
	})
	return d.problems
}

// shift moves the elements of a list, but those before from, by n places.
func (s source) shift(list string, from, n int) {
	form := regexp.MustCompile(`^` + regexp.QuoteMeta(list) + `\[(\d+)\]`)
	moved := map[string]place{}
	for path, pl := range s.place {
		m := form.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		i, err := strconv.Atoi(m[1])
		if err != nil || i < from {
			continue
		}
		moved[fmt.Sprintf("%s[%d]%s", list, i+n, path[len(m[0]):])] = pl
		delete(s.place, path)
	}
	for path, pl := range moved {
		s.place[path] = pl
	}
}

package experiment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Variables are filled in while a file is read. $name stands for a whole value,
// a number or a rate too; {name} stands for text inside of text. Two signs make
// one that stands for itself: $$name, {{name}}. ${name} is the shell's and is left
// alone.
//
// {index}, {phase} and {namespace} are filled in when objects are made.

var runtimeNames = []string{"index", "namespace", "phase"}

var (
	variableForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	wholeValue   = regexp.MustCompile(`^\$+[A-Za-z][A-Za-z0-9]*$`)
	inText       = regexp.MustCompile(`\$?\{+[A-Za-z][A-Za-z0-9]*\}+`)
)

// variable is one that a file declares.
type variable struct {
	node *yaml.Node // its value
	used bool
}

// declare notes the variables of a file, with the values that take the place of
// its own. What is wrong with the block itself is found when it is decoded.
func (d *decoder) declare(root *yaml.Node, given map[string]string) {
	d.source.variables = map[string]*variable{}
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		block := root.Content[i+1]
		if root.Content[i].Value != "variables" || block.Kind != yaml.MappingNode {
			continue
		}
		for j := 0; j+1 < len(block.Content); j += 2 {
			name, value := block.Content[j].Value, block.Content[j+1]
			if v, ok := given[name]; ok {
				value.Value, value.Tag, value.Style = v, "", 0
				value.Tag = value.ShortTag()
			}
			d.source.variables[name] = &variable{node: value}
		}
	}
	for _, name := range sortedKeys(given) {
		if d.source.variables[name] == nil {
			d.problems = append(d.problems, Problem{
				File: "--set variables." + name + "=" + given[name], Text: d.unknownVariable(name),
			})
		}
	}
}

func (d *decoder) unknownVariable(name string) string {
	if len(d.source.variables) == 0 {
		return "unknown variable " + quote(name) + ": the experiment declares none"
	}
	return unknown("variable", name, sortedKeys(d.source.variables))
}

// unused reports variables that nothing refers to.
func (d *decoder) unused() {
	if d.source.isBad("variables") {
		return
	}
	for _, name := range sortedKeys(d.source.variables) {
		if at := "variables." + name; !d.source.variables[name].used && !d.source.isBad(at) {
			d.problems = append(d.problems, d.source.problem(at, fmt.Sprintf("unused: nothing says $%s or {%s}", name, name)))
		}
	}
}

// filled is the node with its variables filled in; nil where it names one that
// there is not.
func (d *decoder) filled(n *yaml.Node, path string) *yaml.Node {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || strings.HasPrefix(path, "variables.") || strings.HasPrefix(path, "variants[") {
		return n
	}
	if wholeValue.MatchString(n.Value) {
		name := strings.TrimLeft(n.Value, "$")
		if len(n.Value)-len(name) > 1 {
			return withText(n, n.Value[1:])
		}
		v := d.source.variables[name]
		if v == nil {
			d.fail(n, path, "%s", d.unknownVariable(name)+" ($$"+name+" is the text itself)")
			return nil
		}
		v.used = true
		value := *v.node
		value.Line, value.Column = n.Line, n.Column
		return &value
	}
	if !strings.Contains(n.Value, "{") {
		return n
	}
	missing := ""
	text := inText.ReplaceAllStringFunc(n.Value, func(p string) string {
		name, braces := braced(p)
		switch {
		case slices.Contains(runtimeNames, name) || braces == 0:
			return p
		case braces > 1:
			return p[1 : len(p)-1]
		}
		v := d.source.variables[name]
		switch {
		case v == nil:
			missing = name
			return p
		case v.node.Kind != yaml.ScalarNode:
			return p // refused where it is declared
		}
		v.used = true
		return v.node.Value
	})
	if missing != "" {
		valid := append(sortedKeys(d.source.variables), runtimeNames...)
		hint := fmt.Sprintf(" (valid: {%s})", strings.Join(valid, "}, {"))
		if near := nearest(missing, valid); near != "" {
			hint = fmt.Sprintf(", did you mean {%s}?", near)
		}
		d.fail(n, path, "unknown placeholder {%s} in %q%s", missing, n.Value, hint)
		return nil
	}
	return withText(n, text)
}

// braced is the name in a match of inText, and how many braces it has on each
// side; 0 where they differ or belong to a shell's variable.
func braced(match string) (name string, braces int) {
	name = strings.Trim(match, "${}")
	open := strings.Index(match, name)
	if match[0] == '$' || len(match) != 2*open+len(name) {
		return name, 0
	}
	return name, open
}

func withText(n *yaml.Node, text string) *yaml.Node {
	if text == n.Value {
		return n
	}
	c := *n
	c.Tag, c.Value = "!!str", text
	return &c
}

// escape is text that filled gives back as it was.
func escape(text string) string {
	if wholeValue.MatchString(text) {
		return "$" + text
	}
	if !strings.Contains(text, "{") {
		return text
	}
	return inText.ReplaceAllStringFunc(text, func(p string) string {
		if name, braces := braced(p); slices.Contains(runtimeNames, name) || braces == 0 {
			return p
		}
		return "{" + p + "}"
	})
}

// Variant is the settings of a variant, as --set has them, sorted.
func (e *Experiment) Variant(name string) ([]string, error) {
	names := make([]string, len(e.Variants))
	for i, v := range e.Variants {
		if v.Name == name {
			return v.settings(), nil
		}
		names[i] = v.Name
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("unknown variant %s: the experiment has none", quote(name))
	}
	return nil, fmt.Errorf("%s", unknown("variant", name, names))
}

func (v Variant) settings() []string {
	settings := make([]string, 0, len(v.Set))
	for _, path := range sortedKeys(v.Set) {
		settings = append(settings, path+"="+v.Set[path])
	}
	return settings
}

// variantProblems is what is wrong with the experiments that the variants make
// of this one.
func (e *Experiment) variantProblems(root *yaml.Node, o Options) Problems {
	var ps Problems
	for i, v := range e.Variants {
		at := fmt.Sprintf("variants[%d].set", i)
		_, err := e.variant(root, o, v)
		problems, _ := err.(Problems)
		for _, p := range problems {
			// Shown at the setting, where it can be told which one it is.
			path, _, _ := strings.Cut(strings.TrimPrefix(p.File, "--set "), "=")
			text := strings.TrimPrefix(p.Error(), "--set ")
			ps = append(ps, e.source.problem(join(at, path), text))
		}
	}
	return ps
}

// variant is the experiment that a variant makes of the one in root.
func (e *Experiment) variant(root *yaml.Node, o Options, v Variant) (*Experiment, error) {
	sets, err := ParseSets(v.settings())
	if err != nil {
		return nil, err
	}
	o.variant = true
	given := sets.Variables()
	for name, value := range o.Variables {
		if _, own := given[name]; !own {
			given = put(given, name, value)
		}
	}
	o.Variables = given
	changed, err := build(e.source.file, clone(root), o)
	if err != nil {
		return nil, err
	}
	return changed, changed.Apply(sets)
}

// clone copies a document: declare writes into it.
func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = clone(child)
	}
	return &c
}

package experiment

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// YAML writes the effective experiment: every value that applies, defaults and
// settings included, variables filled in. Variants and repetitions are left
// out: they are about many runs, and this is one. Parse reads it back as the
// same experiment.
func (e *Experiment) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(encode(reflect.ValueOf(*e), defaultOf(reflect.TypeFor[Experiment]()))); err != nil {
		return nil, fmt.Errorf("write experiment: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write experiment: %w", err)
	}
	return b.Bytes(), nil
}

func encodeRate(r Rate) *yaml.Node {
	mapping := func(pairs ...string) *yaml.Node {
		n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for i := 0; i < len(pairs); i += 2 {
			add(n, pairs[i], scalar("!!str", pairs[i+1]))
		}
		return n
	}
	switch {
	case len(r.Steps) > 0:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, s := range r.Steps {
			n.Content = append(n.Content, mapping("rate", perSecond(s.PerSecond), "for", formatDuration(s.For)))
		}
		return n
	case r.Poisson:
		return mapping("poisson", perSecond(r.PerSecond))
	case r.Over > 0:
		return mapping("from", perSecond(r.From), "to", perSecond(r.PerSecond), "over", formatDuration(r.Over))
	}
	return scalar("!!str", r.String())
}

// encodeAny writes a part of a manifest.
func encodeAny(v any) *yaml.Node {
	switch x := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range sortedKeys(x) {
			add(n, k, encodeAny(x[k]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range x {
			n.Content = append(n.Content, encodeAny(item))
		}
		return n
	case string:
		return scalar("!!str", escape(x))
	case bool:
		return scalar("!!bool", strconv.FormatBool(x))
	case int64:
		return scalar("!!int", strconv.FormatInt(x, 10))
	case float64:
		text := strconv.FormatFloat(x, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0" // or it would be read as a whole number
		}
		return scalar("!!float", text)
	}
	return scalar("!!null", "null")
}

func defaultOf(t reflect.Type) reflect.Value { return newDefault(t).Elem() }

// encode turns v into a node. Def is what a file that leaves v out would get.
func encode(v, def reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		return encode(v.Elem(), defaultOf(v.Type().Elem()))
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return scalar("!!str", formatDuration(x))
	case Limit:
		return scalar("!!str", x.String())
	case Literal:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: string(x)}
	case Quantity:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: string(x)} // 16 needs no quotes
	case Rate:
		return encodeRate(x)
	case Manifest:
		return encodeAny(map[string]any(x))
	case Nodes:
		if x.Real == 0 && x.Seeded == 0 {
			return scalar("!!int", strconv.Itoa(x.Hollow))
		}
		n := encodeStruct(v, reflect.Zero(v.Type()))
		n.Style = yaml.FlowStyle
		return n
	case Distribution:
		if x.Kind == Constant {
			return scalar("!!str", formatDuration(x.Value))
		}
		n := encodeStruct(v, reflect.Zero(v.Type()))
		n.Style = yaml.FlowStyle
		return n
	}
	switch v.Kind() {
	case reflect.String:
		return scalar("!!str", escape(v.String()))
	case reflect.Bool:
		return scalar("!!bool", strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int64:
		return scalar("!!int", strconv.FormatInt(v.Int(), 10))
	case reflect.Float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: formatFloat(v.Float())}
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, encode(v.Index(i), defaultOf(v.Type().Elem())))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := map[string]reflect.Value{}
		for _, k := range v.MapKeys() {
			keys[k.String()] = v.MapIndex(k)
		}
		for _, k := range sortedKeys(keys) {
			element := keys[k]
			if element.Type() == nullableType && !element.IsNil() {
				element = element.Elem()
			}
			add(n, k, encode(element, reflect.Zero(element.Type())))
		}
		return n
	}
	return encodeStruct(v, def)
}

func encodeStruct(v, def reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		fv, fd := v.FieldByIndex(f.index), def.FieldByIndex(f.index)
		empty := fv.IsZero() || fv.Kind() == reflect.Map && fv.Len() == 0 || fv.Kind() == reflect.Slice && fv.Len() == 0
		if empty && fd.IsZero() && !f.rules.has("required") {
			continue
		}
		if f.key == "variables" || f.key == "variants" || f.key == "repetitions" {
			continue // see YAML
		}
		add(n, f.key, encode(fv, fd))
	}
	return n
}

func add(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, scalar("!!str", key), value)
}

// scalar lets the encoder quote text that would read as something else.
func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

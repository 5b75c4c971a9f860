package experiment

import (
	"encoding/json"
	"reflect"
	"strings"
)

// SchemaID names the published schema.
const SchemaID = "https://kubedyno.io/experiment.schema.json"

// Schema is the language as a JSON Schema (draft 2020-12), for editors. It is
// made from the types and tags that drive the decoder. A file that it accepts
// may still be refused: whether phases fit together is not for a schema to say.
func Schema() ([]byte, error) {
	s := schemer{definitions: object{}}
	root := s.structure(reflect.TypeFor[Experiment]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = SchemaID
	root["title"] = "kubedyno experiment"
	root["$defs"] = s.definitions
	data, err := json.MarshalIndent(root, "", "  ")
	return append(data, '\n'), err
}

type object = map[string]any

type schemer struct{ definitions object }

// A value may be $name in place of a number, a duration or a rate.
const variableReference = `^\$[A-Za-z][A-Za-z0-9]*$`

// of is the schema of a type with the rules of its field.
func (s *schemer) of(t reflect.Type, r rules) object {
	if t.Kind() == reflect.Pointer {
		if t == nullableType {
			return object{"type": []string{"string", "number", "boolean", "null"}}
		}
		return s.of(t.Elem(), r)
	}
	if e, ok := reflect.Zero(t).Interface().(enum); ok {
		return object{"anyOf": []object{{"enum": e.values()}, {"type": "string", "pattern": variableReference}}}
	}
	switch t {
	case durationType:
		return object{"type": "string", "pattern": `^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$|` + variableReference}
	case rateType:
		return s.reference("rate", s.rate)
	case perSecondType:
		return s.reference("perSecond", func() object {
			return object{"anyOf": []object{
				{"type": "number", "exclusiveMinimum": 0, "maximum": maxRate},
				{"type": "string", "pattern": `^[0-9.eE+-]+( */ *[smh])?$|` + variableReference},
			}}
		})
	case limitType:
		return object{"anyOf": []object{{"type": "string"}, {"type": "integer", "minimum": 0}}, "description": want(t)}
	case quantityType:
		return object{"anyOf": []object{{"type": "number", "minimum": 0}, {"type": "string", "pattern": `^([0-9.]+)[a-zA-Z]*$|` + variableReference}}}
	case literalType:
		return object{"type": []string{"string", "number"}}
	case manifestType:
		return object{"type": "object"}
	case distributionType:
		return object{"anyOf": []object{{"type": "string"}, s.named(t)}}
	}
	switch t.Kind() {
	case reflect.String:
		o := object{"type": "string"}
		if r.has("name") {
			o["pattern"], o["maxLength"] = nameForm.String()+`|[{$]`, maxName
		}
		return o
	case reflect.Bool:
		return orVariable(object{"type": "boolean"})
	case reflect.Int, reflect.Int64, reflect.Float64:
		o := object{"type": "integer"}
		if t.Kind() == reflect.Float64 {
			o["type"] = "number"
		}
		for rule, key := range map[string]string{"min": "minimum", "max": "maximum"} {
			if bound := r.get(rule); bound != "" {
				o[key] = json.Number(bound)
			}
		}
		return orVariable(o)
	case reflect.Slice:
		o := object{"type": "array", "items": s.of(t.Elem(), nil)}
		if r.has("required") {
			o["minItems"] = 1
		}
		return o
	case reflect.Map:
		o := object{"type": "object", "additionalProperties": s.of(t.Elem(), nil)}
		if t.Elem().Kind() == reflect.String { // written without quotes too
			o["additionalProperties"] = object{"type": []string{"string", "number", "boolean"}}
		}
		if r.get("keys") == "component" {
			o["propertyNames"] = object{"enum": ComponentNames()}
		}
		return o
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			if f.rules.has("short") {
				return object{"anyOf": []object{s.of(t.FieldByIndex(f.index).Type, f.rules), s.named(t)}}
			}
		}
		return s.named(t)
	}
	panic("experiment: no schema for " + t.String())
}

func orVariable(o object) object {
	return object{"anyOf": []object{o, {"type": "string", "pattern": variableReference}}}
}

// named is a struct that is defined once.
func (s *schemer) named(t reflect.Type) object {
	name := strings.ToLower(t.Name()[:1]) + t.Name()[1:]
	return s.reference(name, func() object { return s.structure(t) })
}

// reference refers to a definition, which is made the first time.
func (s *schemer) reference(name string, make func() object) object {
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = object{} // a phase may hold phases
		s.definitions[name] = make()
	}
	return object{"$ref": "#/$defs/" + name}
}

func (s *schemer) structure(t reflect.Type) object {
	properties := object{}
	var required []string
	for _, f := range fieldsOf(t) {
		properties[f.key] = s.of(t.FieldByIndex(f.index).Type, f.rules)
		if f.rules.has("required") {
			required = append(required, f.key)
		}
	}
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		o["required"] = required
	}
	if t == reflect.TypeFor[Phase]() {
		var one []object
		for _, action := range actionNames() {
			one = append(one, object{"required": []string{action}})
		}
		o["oneOf"] = one
	}
	return o
}

func (s *schemer) rate() object {
	steps := s.named(reflect.TypeFor[rateStep]())
	return object{"anyOf": []object{
		{"const": "burst"},
		s.of(perSecondType, nil),
		s.named(reflect.TypeFor[ramp]()),
		s.named(reflect.TypeFor[poisson]()),
		{"type": "array", "minItems": 1, "items": steps},
	}}
}

// Starter is a commented experiment file to begin with.
func Starter() []byte { return starter }

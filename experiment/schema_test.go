package experiment

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// checkedSchema is the schema as a program that knows JSON Schema reads it: all
// keywords that it uses, and an error for any other.
type checkedSchema struct{ root map[string]any }

func loadSchema(t *testing.T) checkedSchema {
	t.Helper()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s checkedSchema
	if err := json.Unmarshal(data, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s checkedSchema) validate(document []byte) error {
	var v any
	if err := yaml.Unmarshal(document, &v); err != nil {
		return err
	}
	return s.check(s.root, v, "")
}

func (s checkedSchema) check(schema map[string]any, v any, at string) error {
	for keyword, arg := range schema {
		if err := s.keyword(schema, keyword, arg, v, at); err != nil {
			return err
		}
	}
	return nil
}

func (s checkedSchema) keyword(schema map[string]any, keyword string, arg, v any, at string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s: %s", at, keyword, fmt.Sprintf(format, args...))
	}
	m, isMap := v.(map[string]any)
	list, isList := v.([]any)
	text, isText := v.(string)
	number, isNumber := numberOf(v)
	switch keyword {
	case "$schema", "$id", "$defs", "title", "description":
	case "$ref":
		name := strings.TrimPrefix(arg.(string), "#/$defs/")
		target, ok := s.root["$defs"].(map[string]any)[name].(map[string]any)
		if !ok || len(target) == 0 {
			return fail("no definition %s", name)
		}
		return s.check(target, v, at)
	case "type":
		types, many := arg.([]any)
		if !many {
			types = []any{arg}
		}
		is := map[any]bool{"object": isMap, "array": isList, "string": isText, "number": isNumber, "null": v == nil,
			"integer": isNumber && number == float64(int64(number))}
		if _, boolean := v.(bool); boolean {
			is["boolean"] = true
		}
		if !slices.ContainsFunc(types, func(t any) bool { return is[t] }) {
			return fail("%v is no %v", v, arg)
		}
	case "enum":
		if !slices.Contains(arg.([]any), v) {
			return fail("%v", v)
		}
	case "const":
		if arg != v {
			return fail("%v", v)
		}
	case "pattern":
		if isText && !regexp.MustCompile(arg.(string)).MatchString(text) {
			return fail("%q is not %s", text, arg)
		}
	case "maxLength":
		if isText && float64(len(text)) > arg.(float64) {
			return fail("%q", text)
		}
	case "minimum", "exclusiveMinimum":
		if isNumber && (number < arg.(float64) || keyword != "minimum" && number == arg.(float64)) {
			return fail("%v", v)
		}
	case "maximum":
		if isNumber && number > arg.(float64) {
			return fail("%v", v)
		}
	case "minItems":
		if isList && float64(len(list)) < arg.(float64) {
			return fail("%d", len(list))
		}
	case "items":
		for i, item := range list {
			if err := s.check(arg.(map[string]any), item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "required":
		for _, key := range arg.([]any) {
			if _, ok := m[key.(string)]; isMap && !ok {
				return fail("%v", key)
			}
		}
	case "properties":
		for key, value := range m {
			if sub, ok := arg.(map[string]any)[key].(map[string]any); ok {
				if err := s.check(sub, value, at+"."+key); err != nil {
					return err
				}
			}
		}
	case "additionalProperties":
		known, _ := schema["properties"].(map[string]any)
		for key, value := range m {
			if _, ok := known[key]; ok {
				continue
			}
			sub, ok := arg.(map[string]any)
			if !ok {
				return fail("%s", key)
			}
			if err := s.check(sub, value, at+"."+key); err != nil {
				return err
			}
		}
	case "propertyNames":
		for key := range m {
			if err := s.check(arg.(map[string]any), key, at+"."+key); err != nil {
				return err
			}
		}
	case "anyOf", "oneOf":
		var errs []string
		for _, sub := range arg.([]any) {
			if err := s.check(sub.(map[string]any), v, at); err != nil {
				errs = append(errs, err.Error())
			}
		}
		passed := len(arg.([]any)) - len(errs)
		if passed == 0 || keyword == "oneOf" && passed != 1 {
			return fail("%d pass (%s)", passed, strings.Join(errs, "; "))
		}
	default:
		return fail("a keyword that nobody checks")
	}
	return nil
}

func numberOf(v any) (float64, bool) {
	switch x := v.(type) {
	case int:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

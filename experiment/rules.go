package experiment

import (
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rules are a field's checks, from its rule tag:
//
//	required     must be there
//	short        a scalar in place of the struct sets this field
//	min=, max=   bounds of a number or duration that is there
//	positive     a quantity above 0
//	cpu, memory  what a quantity measures
//	name         a name fit for labels and file names
//	image        an image reference
//	driver       the name of a CSI driver
//	url          an http or https address without credentials
//	labels       a map of Kubernetes labels
//	labelkey     the key of a label or a taint; labelvalue: a value
//	zones        a list of label values
//	resource     a resource such as pods or widgets.example.com/v1
//	template     text with {phase} and {index}; templates: so are map values
//	keys=        what a map's keys are: component, flag, env, variable
type rules []string

func parseRules(tag string) rules {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}

func (r rules) has(name string) bool { return slices.Contains(r, name) }

func (r rules) get(name string) string {
	for _, rule := range r {
		if v, ok := strings.CutPrefix(rule, name+"="); ok {
			return v
		}
	}
	return ""
}

// checkRules checks the struct v and all that it holds against their tags.
func checkRules(v reflect.Value, path string, src source) Problems {
	var ps Problems
	for _, f := range fieldsOf(v.Type()) {
		at := join(path, f.key)
		if src.isBad(at) {
			continue
		}
		ps = append(ps, checkField(v.FieldByIndex(f.index), f, at, src)...)
	}
	return ps
}

func checkField(v reflect.Value, f field, at string, src source) Problems {
	if v.IsZero() && !src.present(at) {
		if f.rules.has("required") {
			return Problems{src.problem(parentPath(at), fmt.Sprintf("%s is missing", f.key))}
		}
		return nil
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	var ps Problems
	if text := breach(v, f.rules); text != "" {
		ps = append(ps, src.problem(at, text))
	}
	switch {
	case isScalar(v.Type()) || v.Type() == rateType || v.Type() == manifestType:
	case v.Kind() == reflect.Struct:
		ps = append(ps, checkRules(v, at, src)...)
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 && f.rules.has("required") {
			ps = append(ps, src.problem(at, "the list is empty"))
		}
		for i := range v.Len() {
			item := fmt.Sprintf("%s[%d]", at, i)
			switch {
			case src.isBad(item):
			case v.Index(i).Kind() == reflect.String:
				if text := breachOfItem(v.Index(i).String(), f.rules); text != "" {
					ps = append(ps, src.problem(item, text))
				}
			default:
				ps = append(ps, checkRules(v.Index(i), item, src)...)
			}
		}
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			if item := join(at, key.String()); !src.isBad(item) {
				ps = append(ps, checkEntry(key.String(), v.MapIndex(key), f.rules, item, src)...)
			}
		}
	}
	return ps
}

func checkEntry(key string, v reflect.Value, r rules, at string, src source) Problems {
	var ps Problems
	if text := breachOfKey(key, r); text != "" {
		return Problems{src.problem(at, text)}
	}
	if v.Kind() == reflect.Struct {
		return checkRules(v, at, src)
	}
	if r.has("labels") {
		value := v.String()
		if r.has("templates") {
			if text := templateBreach(value); text != "" {
				return Problems{src.problem(at, text)}
			}
			value = Expand(value, "x", 0)
		}
		if !labelValue.MatchString(value) || len(value) > 63 {
			ps = append(ps, src.problem(at, fmt.Sprintf(
				"%s is not a label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", quote(value))))
		}
	}
	return ps
}

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	flagForm   = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]*$`)
	envForm    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	// A resource may name its group, and a version of it.
	resourceForm = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9.-]+(/v[a-z0-9]+)?)?$`)
	driverForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	imageForm    = regexp.MustCompile(`^[a-z0-9]([a-zA-Z0-9._/:@-]*[a-zA-Z0-9])?$`)
)

// maxName leaves room for what names are built into: labels, pods of
// Deployments, files.
const maxName = 40

// maxDriver is the API's limit of a CSI driver's name.
const maxDriver = 63

// breach is how a value breaks its rules, or "".
func breach(v reflect.Value, r rules) string {
	switch {
	case v.Type() == quantityType:
		return quantityBreach(Quantity(v.String()), r)
	case v.Type() == durationType:
		d := time.Duration(v.Int())
		if lo, err := time.ParseDuration(r.get("min")); err == nil && d < lo {
			return fmt.Sprintf("must be at least %s, got %s", r.get("min"), formatDuration(d))
		}
		if hi, err := time.ParseDuration(r.get("max")); err == nil && d > hi {
			return fmt.Sprintf("can be at most %s, got %s", r.get("max"), formatDuration(d))
		}
	case v.CanInt() || v.CanFloat():
		n, text := 0.0, ""
		if v.CanInt() {
			n, text = float64(v.Int()), strconv.FormatInt(v.Int(), 10)
		} else {
			n, text = v.Float(), strconv.FormatFloat(v.Float(), 'g', -1, 64)
		}
		if math.IsNaN(n) {
			return "must be a number"
		}
		if lo := r.get("min"); lo != "" && n < mustFloat(lo) {
			return fmt.Sprintf("must be at least %s, got %s", lo, text)
		}
		if hi := r.get("max"); hi != "" && n > mustFloat(hi) {
			return fmt.Sprintf("can be at most %s, got %s", hi, text)
		}
	case v.Kind() == reflect.String:
		return textBreach(v, r)
	}
	return ""
}

func textBreach(v reflect.Value, r rules) string {
	s := v.String()
	if e, ok := v.Interface().(enum); ok {
		if valid := e.values(); !slices.Contains(valid, s) {
			return unknown("value", s, valid) // built by a program: the decoder refuses it
		}
		return ""
	}
	switch {
	case r.has("name") && (!nameForm.MatchString(s) || len(s) > maxName):
		return fmt.Sprintf("%s is not a name: at most %d lower-case letters, digits and '-', with a letter or digit at both ends", quote(s), maxName)
	case r.has("image") && !imageForm.MatchString(s):
		return fmt.Sprintf("%s is not an image reference such as registry.k8s.io/pause:3.10", quote(s))
	case r.has("driver") && (!driverForm.MatchString(s) || len(s) > maxDriver):
		return fmt.Sprintf("%s is not the name of a CSI driver, such as csi.example.com: at most %d lower-case letters, digits, '-' and '.'", quote(s), maxDriver)
	case r.has("url"):
		return urlBreach(s)
	case r.has("resource") && !resourceForm.MatchString(s):
		return fmt.Sprintf("%s is not a resource such as pods, deployments.apps or widgets.example.com/v1", quote(s))
	case r.has("labelkey") && (!labelKey.MatchString(s) || len(s) > 253):
		return quote(s) + " is not a key such as dedicated or example.com/dedicated"
	case r.has("labelvalue") && (!labelValue.MatchString(s) || len(s) > 63):
		return quote(s) + " is not a value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
	case r.has("template"):
		return templateBreach(s)
	case r.has("required") && s == "":
		return "is empty"
	}
	return ""
}

func urlBreach(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Sprintf("%s is not an address such as http://127.0.0.1:8080", quote(s))
	case u.User != nil:
		return "must not hold credentials: they would be kept with the recording"
	}
	return ""
}

func mustFloat(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("experiment: rule bound " + s)
	}
	return f
}

func quantityBreach(q Quantity, r rules) string {
	v := q.Value()
	const mega, tera = 1 << 20, 1 << 40
	unit := strings.TrimLeft(string(q), "0123456789.")
	switch {
	case r.has("positive") && v <= 0:
		return fmt.Sprintf("must be above 0, got %s", string(q))
	case r.has("cpu") && v > 1e6:
		return fmt.Sprintf("%s is more cores than there are: want cores such as 4, 0.5 or 500m", string(q))
	case r.has("cpu") && v > 0 && v < 0.001:
		return fmt.Sprintf("%s is less than 1m, the smallest amount of CPU", string(q))
	case r.has("memory") && unit == "m":
		return fmt.Sprintf("%s is thousandths of a byte, did you mean \"%sMi\"?", string(q), strings.TrimSuffix(string(q), "m"))
	case r.has("memory") && v > 0 && v < mega:
		return fmt.Sprintf("%s is %s bytes, less than any container needs: want memory such as 16Mi or 64Gi", string(q), formatFloat(v))
	case r.has("memory") && v > 1024*tera:
		return fmt.Sprintf("%s is more memory than there is", string(q))
	}
	return ""
}

// The processes that an experiment can change, by their binaries' names.
var (
	controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	harness      = []string{"kubedyno-hollow", "kubedyno-load"}
	// Of ours too, but in a user's stead, and so part of what is measured.
	sidecars = []string{"kubedyno-csi"}
)

// ComponentNames lists the valid keys of Cluster.Components, sorted.
func ComponentNames() []string {
	return append(slices.Clone(controlPlane), slices.Sorted(slices.Values(slices.Concat(harness, sidecars)))...)
}

// isOurs reports whether kubedyno itself is the component's program.
func isOurs(component string) bool {
	return IsHarness(component) || slices.Contains(sidecars, component)
}

// IsHarness reports whether the component belongs to kubedyno and not to the
// system under test.
func IsHarness(component string) bool { return slices.Contains(harness, component) }

func breachOfKey(key string, r rules) string {
	switch r.get("keys") {
	case "component":
		if names := ComponentNames(); !slices.Contains(names, key) {
			return unknown("component", key, names)
		}
	case "flag":
		if bare := strings.TrimLeft(key, "-"); bare != key && flagForm.MatchString(bare) {
			return fmt.Sprintf("flags are written without dashes: %q", bare)
		}
		if !flagForm.MatchString(key) {
			return quote(key) + " is not the name of a flag"
		}
	case "variable":
		if !variableForm.MatchString(key) {
			return quote(key) + " is not the name of a variable: letters and digits, a letter first"
		}
		if slices.Contains(runtimeNames, key) {
			return fmt.Sprintf("{%s} has a meaning of its own: choose another name", key)
		}
	case "env":
		if !envForm.MatchString(key) {
			return quote(key) + " is not the name of an environment variable"
		}
	}
	if r.has("labels") {
		name := key[strings.LastIndex(key, "/")+1:]
		if !labelKey.MatchString(key) || len(name) > 63 || len(key) > 253 {
			return quote(key) + " is not a label key such as tier or example.com/tier"
		}
		if strings.HasPrefix(key, "kubedyno.io/") {
			return "labels under kubedyno.io/ are set by kubedyno itself"
		}
	}
	return ""
}

var placeholders = []string{"index", "phase"}

var placeholderForm = regexp.MustCompile(`\{+[^{}]*\}+`)

// templateBreach is what is wrong with the placeholders in a pattern, or "".
func templateBreach(pattern string) string {
	for _, p := range placeholderForm.FindAllString(pattern, -1) {
		name := strings.Trim(p, "{} .")
		if p == "{"+name+"}" && slices.Contains(placeholders, name) {
			continue
		}
		if near := nearest(name, placeholders); near != "" {
			return fmt.Sprintf("unknown placeholder %s in %q, did you mean {%s}?", p, pattern, near)
		}
		return fmt.Sprintf("unknown placeholder %s in %q (valid: {index}, {phase})", p, pattern)
	}
	if rest := placeholderForm.ReplaceAllString(pattern, ""); strings.ContainsAny(rest, "{}") {
		return fmt.Sprintf("a brace without its partner in %q", pattern)
	}
	return ""
}

// Expand fills a pattern's placeholders.
func Expand(pattern, phase string, index int) string {
	if !strings.Contains(pattern, "{") {
		return pattern
	}
	return strings.NewReplacer("{phase}", phase, "{index}", strconv.Itoa(index)).Replace(pattern)
}

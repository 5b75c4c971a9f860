package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile is far above any experiment that people write; it bounds what a
// wrong path can cost.
const maxFile = 1 << 20

// longFile is in lines; the built-in experiments have about 60.
const longFile = 300

// Options say how to read an experiment; the zero value is for a lab.
type Options struct {
	// Existing says that the control plane is not ours: its own nodes may take
	// the pods, so that the file need not bring any.
	Existing bool
	// Variables are values of the file's variables that take the place of its
	// own.
	Variables map[string]string

	templates func(name string) ([]byte, error) // reads a file beside the experiment
	variant   bool                              // read to check a variant, which has none itself
}

// ParseFile reads and checks the experiment file at path.
func ParseFile(path string) (*Experiment, error) { return ParseFileWith(path, Options{}) }

// ParseFileWith is ParseFile with options. Templates are read from the file's
// own folder and from nowhere else: an experiment that somebody sent must not
// take other files of this machine into a recording.
func ParseFileWith(path string, o Options) (*Experiment, error) {
	o.templates = func(name string) ([]byte, error) {
		beside, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer beside.Close()
		return beside.ReadFile(name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read experiment: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read experiment: %w", err)
	}
	return parse(path, data, o)
}

// Parse decodes and checks an experiment. Name is for messages. What is wrong
// with the content comes back as Problems.
func Parse(name string, data []byte) (*Experiment, error) { return parse(name, data, Options{}) }

// ParseWith is Parse of an experiment that is not meant for a lab of its own, or
// some of whose variables have other values.
func ParseWith(name string, data []byte, o Options) (*Experiment, error) { return parse(name, data, o) }

func parse(name string, data []byte, o Options) (*Experiment, error) {
	root, problem := parseYAML(data)
	if problem != nil {
		problem.File = name
		return nil, Problems{*problem}
	}
	return build(name, root, o)
}

// build makes an experiment of a file's document.
func build(name string, root *yaml.Node, o Options) (*Experiment, error) {
	e := &Experiment{}
	e.setDefaults()
	e.Cluster.Existing = o.Existing
	d := decoder{source: newSource(name)}
	d.source.templates = o.templates
	d.declare(root, o.Variables)
	d.value(root, reflect.ValueOf(e).Elem(), "")
	d.unused()
	e.source = d.source
	e.complete()
	problems := append(d.problems, e.problems()...)
	if len(problems) == 0 && !o.variant {
		problems = e.variantProblems(root, o)
	}
	if err := problems.err(); err != nil {
		return nil, err
	}
	return e, nil
}

var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parseYAML returns the one document in data.
func parseYAML(data []byte) (*yaml.Node, *Problem) {
	if len(data) > maxFile {
		return nil, &Problem{Text: fmt.Sprintf("larger than %d KiB: this is not an experiment file", maxFile>>10)}
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) {
			return nil, &Problem{Line: i + 1, Column: 1, Text: "not valid UTF-8"}
		}
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := documents.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &Problem{Line: 1, Column: 1, Text: errNothing.Error()}
	} else if err != nil {
		return nil, syntaxProblem(data, err)
	}
	var second yaml.Node
	if err := documents.Decode(&second); err == nil {
		return nil, &Problem{Line: second.Line, Column: second.Column, Text: "a second document: a file holds one experiment"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(data, err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, &Problem{Line: 1, Column: 1, Text: errNothing.Error()}
	}
	return root, nil
}

// syntaxProblem finds the place of a YAML error. The parser's own line is that
// of the enclosing block, one too low or not there at all, so we look for the
// line with which the file stops being YAML.
func syntaxProblem(data []byte, err error) *Problem {
	lines := strings.Split(string(data), "\n")
	p := &Problem{Line: 1, Text: "not valid YAML: " + yamlPrefix.ReplaceAllString(err.Error(), "")}
	if m := yamlPrefix.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		if n, err := strconv.Atoi(m[1]); err == nil {
			p.Line = min(n, len(lines))
		}
	}
	// The search reads the file once for each line, so it is for files of
	// ordinary length.
	if len(lines) <= longFile {
		p.Line = brokenLine(lines)
	}
	line := lines[p.Line-1]
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	p.Column = len(indent) + 1
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		p.Column = tab + 1
		p.Text = "a tab in the indentation: YAML wants spaces"
	}
	return p
}

// brokenLine is the number of the first line that no longer lets the lines up
// to it be YAML.
func brokenLine(lines []string) int {
	for n := len(lines) - 1; n > 0; n-- {
		documents := yaml.NewDecoder(strings.NewReader(strings.Join(lines[:n], "\n")))
		var doc yaml.Node
		var err error
		for err == nil {
			err = documents.Decode(&doc)
		}
		if errors.Is(err, io.EOF) {
			return n + 1
		}
	}
	return 1
}

// source remembers where values came from.
type source struct {
	file  string
	place map[string]place // by path
	bad   map[string]bool  // paths that did not decode

	variables map[string]*variable
	templates func(name string) ([]byte, error) // nil: there is no file to be beside of
}

type place struct {
	file         string // the template's; empty: the experiment's
	line, column int
	set          string // the --set setting, where one gave the value
	flag         string // the flag with its value, where another gave it
}

func newSource(file string) source {
	return source{file: file, place: map[string]place{}, bad: map[string]bool{}}
}

// present reports whether the file or a setting gave the path a value.
func (s source) present(path string) bool { _, ok := s.place[path]; return ok }

// isBad reports whether the value at path, or one that holds it, was refused
// already, so that nothing more should be said about it.
func (s source) isBad(path string) bool {
	for ; path != ""; path = parentPath(path) {
		if s.bad[path] {
			return true
		}
	}
	return s.bad[""]
}

// problem is a problem with the value at path, shown where that value, or the
// nearest one that holds it, was given.
func (s source) problem(path, text string) Problem {
	p := Problem{File: s.file, Path: path, Text: text}
	for at := path; ; at = parentPath(at) {
		if pl, ok := s.place[at]; ok {
			p.Line, p.Column = pl.line, pl.column
			if pl.file != "" {
				p.File = pl.file
			}
			if pl.set != "" {
				p.File = "--set " + pl.set
			}
			if pl.flag != "" {
				return Problem{File: pl.flag, Text: text}
			}
			return p
		}
		if at == "" {
			return p
		}
	}
}

func parentPath(path string) string {
	i := strings.LastIndexAny(path, ".[")
	return path[:max(i, 0)]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// defaulter is implemented by types whose left-out fields are not zero.
type defaulter interface{ setDefaults() }

// enum is implemented by string types with a fixed set of values.
type enum interface{ values() []string }

// decoder fills Go values from YAML nodes and keeps going after an error.
type decoder struct {
	source   source
	set      string // the --set setting that is being decoded; empty: the file
	file     string // the template that is being decoded; empty: the experiment
	problems Problems
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.source.bad[path] = true
	d.report(n, path, fmt.Sprintf(format, args...))
}

func (d *decoder) report(n *yaml.Node, path, text string) {
	p := Problem{File: d.source.file, Line: n.Line, Column: n.Column, Path: path, Text: text}
	if d.file != "" {
		p.File = d.file
	}
	if d.set != "" {
		p.File, p.Line, p.Column = "--set "+d.set, 0, 0
	}
	d.problems = append(d.problems, p)
}

// placed notes where the value at path came from; in a setting, n is not used.
func (d *decoder) placed(path string, n *yaml.Node) {
	if d.set != "" {
		d.source.place[path] = place{set: d.set}
		return
	}
	d.source.place[path] = place{file: d.file, line: n.Line, column: n.Column}
}

var (
	durationType     = reflect.TypeFor[time.Duration]()
	rateType         = reflect.TypeFor[Rate]()
	perSecondType    = reflect.TypeFor[perSecondRate]()
	limitType        = reflect.TypeFor[Limit]()
	quantityType     = reflect.TypeFor[Quantity]()
	literalType      = reflect.TypeFor[Literal]()
	distributionType = reflect.TypeFor[Distribution]()
	manifestType     = reflect.TypeFor[Manifest]()
)

// value decodes n into v. Where v already holds defaults, keys that n leaves
// out keep them.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n = d.accept(n, path); n != nil {
		d.decode(n, v, path)
	}
}

// accept is the node with its variables filled in; nil, and told, where the
// language has no such node.
func (d *decoder) accept(n *yaml.Node, path string) *yaml.Node {
	d.placed(path, n)
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.fail(n, path, "anchors and aliases are not part of the language: write the value out")
		return nil
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, path, "the tag %s is not part of the language: leave it out", n.Tag)
		return nil
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		d.fail(n, path, "has no value: give it one, or leave the key out")
		return nil
	}
	return d.filled(n, path)
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(newDefault(v.Type().Elem()))
		}
		v = v.Elem()
	}
	switch v.Type() {
	case rateType:
		d.rate(n, v, path)
		return
	case manifestType:
		d.manifest(n, v, path)
		return
	case distributionType:
		v.SetZero() // a distribution is given whole: its parameters belong to its kind
	}
	if isScalar(v.Type()) {
		d.scalar(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	default:
		panic("experiment: no decoder for " + v.Type().String())
	}
}

func newDefault(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if def, ok := p.Interface().(defaulter); ok {
		def.setDefaults()
	}
	return p
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int64, reflect.Float64, reflect.Bool:
		return true
	}
	return t == limitType
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, path, "want %s, got %s", want(v.Type()), describe(n))
		return
	}
	if err := parseScalar(n, v); err != nil {
		d.fail(n, path, "%v", err)
	}
}

func want(t reflect.Type) string {
	switch t {
	case durationType:
		return "a duration such as 250ms, 5s or 2m"
	case limitType:
		return "a duration such as 5s, a rate such as 100/s or a number of failures"
	case quantityType:
		return "a quantity such as 500m, 16 or 64Gi"
	case literalType:
		return "a number, a duration or a rate"
	case perSecondType:
		return "a rate such as 20/s"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	}
	return "text"
}

// describe names what stands in the file, for "want …, got …".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "the date " + n.Value
	}
	return "the text " + quote(n.Value)
}

var (
	whole  = regexp.MustCompile(`^[+-]?(0|[1-9]\d*)$`)
	octal  = regexp.MustCompile(`^[+-]?0\d+$`)
	digits = regexp.MustCompile(`^[+-]?\d[\d_,']*$`)
)

func parseScalar(n *yaml.Node, v reflect.Value) error {
	t := v.Type()
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	mismatch := fmt.Errorf("want %s, got %s", want(t), describe(n))

	if e, ok := v.Interface().(enum); ok {
		if valid := e.values(); !slices.Contains(valid, n.Value) {
			return errors.New(unknown("value", n.Value, valid))
		}
		v.SetString(n.Value)
		return nil
	}
	switch t {
	case durationType:
		if n.ShortTag() == "!!int" || n.ShortTag() == "!!float" {
			return fmt.Errorf("want a duration with its unit, got the number %s: %ss?", n.Value, n.Value)
		}
		dur, err := time.ParseDuration(n.Value)
		if err != nil {
			return mismatch
		}
		v.SetInt(int64(dur))
		return nil
	case perSecondType:
		rate, err := parsePerSecond(n.Value)
		if err != nil {
			return fmt.Errorf("%w, got %s", err, describe(n))
		}
		v.SetFloat(rate)
		return nil
	case limitType:
		limit, err := parseLimit(n.Value)
		if err != nil {
			return fmt.Errorf("%w, got %s", err, describe(n))
		}
		v.Set(reflect.ValueOf(limit))
		return nil
	case literalType:
		if n.Value == "" {
			return mismatch
		}
		v.SetString(n.Value)
		return nil
	case quantityType:
		if _, err := Quantity(n.Value).parse(); errors.Is(err, strconv.ErrSyntax) || n.Value == "" {
			return mismatch
		} else if err != nil {
			return err
		}
		v.SetString(n.Value)
		return nil
	}
	switch t.Kind() {
	case reflect.String:
		if n.ShortTag() != "!!str" {
			return fmt.Errorf("%w: put it in quotes", mismatch)
		}
		v.SetString(n.Value)
	case reflect.Bool:
		switch {
		case plain && n.Value == "true", plain && n.Value == "false":
			v.SetBool(n.Value == "true")
		case !plain && (n.Value == "true" || n.Value == "false"):
			return fmt.Errorf("%w: leave out the quotes", mismatch)
		default:
			return mismatch
		}
	case reflect.Int, reflect.Int64:
		switch {
		case !plain && whole.MatchString(n.Value):
			return fmt.Errorf("%w: leave out the quotes", mismatch)
		case octal.MatchString(n.Value):
			return fmt.Errorf("%w: leave out the leading zeros", mismatch)
		case !whole.MatchString(n.Value) && digits.MatchString(n.Value):
			return fmt.Errorf("%w: digits only", mismatch)
		case !plain || !whole.MatchString(n.Value):
			return mismatch
		}
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return fmt.Errorf("%s is too large for any use here", n.Value)
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := parseFloat(n.Value)
		switch {
		case !plain && err == nil:
			return fmt.Errorf("%w: leave out the quotes", mismatch)
		case errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("%s is too large for any use here", n.Value)
		case !plain || err != nil:
			return mismatch
		}
		v.SetFloat(f)
	}
	return nil
}

// perSecondRate is a constant rate inside another form of rate.
type perSecondRate float64

// ramp, poisson and rateStep are the long forms of a Rate.
type ramp struct {
	From perSecondRate `yaml:"from" rule:"required"`
	To   perSecondRate `yaml:"to" rule:"required"`
	Over time.Duration `yaml:"over" rule:"required,min=1ms,max=24h"`
}

type poisson struct {
	Poisson perSecondRate `yaml:"poisson" rule:"required"`
}

type rateStep struct {
	Rate perSecondRate `yaml:"rate" rule:"required"`
	For  time.Duration `yaml:"for" rule:"required,min=1ms,max=24h"`
}

func (d *decoder) rate(n *yaml.Node, v reflect.Value, path string) {
	var r Rate
	switch {
	case n.Kind == yaml.MappingNode && meansPoisson(n):
		var long poisson
		d.long(n, &long, path)
		r = Rate{PerSecond: float64(long.Poisson), Poisson: true}
	case n.Kind == yaml.MappingNode:
		var long ramp
		d.long(n, &long, path)
		r = Rate{PerSecond: float64(long.To), From: float64(long.From), Over: long.Over}
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		d.fail(n, path, "the list of steps is empty")
		return
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			var long rateStep
			at := fmt.Sprintf("%s[%d]", path, i)
			d.placed(at, item)
			d.long(item, &long, at)
			r.Steps = append(r.Steps, RateStep{float64(long.Rate), long.For})
		}
	case n.Kind == yaml.ScalarNode:
		var err error
		if r, err = ParseRate(n.Value); err != nil {
			d.fail(n, path, "%v, got %s", err, describe(n))
			return
		}
	default:
		d.fail(n, path, "%v, got %s", errRate, describe(n))
		return
	}
	v.Set(reflect.ValueOf(r))
}

// meansPoisson reports whether a mapping was meant to be Poisson arrivals.
func meansPoisson(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if nearest(n.Content[i].Value, []string{"from", "to", "over", "poisson"}) == "poisson" {
			return true
		}
	}
	return false
}

// long decodes a long form of a Rate and checks it, because the Rate no longer
// shows what is missing.
func (d *decoder) long(n *yaml.Node, form any, path string) {
	v := reflect.ValueOf(form).Elem()
	d.structure(n, v, path)
	if d.source.isBad(path) {
		return
	}
	more := checkRules(v, path, d.source)
	for _, p := range more {
		d.source.bad[p.Path] = true
	}
	d.problems = append(d.problems, more...)
}

// field is one key of a struct.
type field struct {
	key   string
	index []int // as of reflect.Value.FieldByIndex
	rules rules
}

// fieldsOf lists the keys that the struct type t takes from a file.
func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if !f.IsExported() || key == "-" || key == "" {
			continue
		}
		if key == ",inline" {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fs = append(fs, inner)
			}
			continue
		}
		fs = append(fs, field{key: key, index: []int{i}, rules: parseRules(f.Tag.Get("rule"))})
	}
	return fs
}

func keysOf(fs []field) []string {
	keys := make([]string, len(fs))
	for i, f := range fs {
		keys[i] = f.key
	}
	return keys
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	keys := keysOf(fields)
	if n.Kind == yaml.ScalarNode {
		for _, f := range fields {
			if f.rules.has("short") {
				d.value(n, v.FieldByIndex(f.index), join(path, f.key))
				if v.Type() == distributionType {
					v.FieldByName("Kind").SetString(string(Constant))
				}
				return
			}
		}
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "want a mapping with keys such as %s, got %s", strings.Join(keys[:min(3, len(keys))], ", "), describe(n))
		return
	}
	d.pairs(n, path, func(key, value *yaml.Node) {
		i := slices.Index(keys, key.Value)
		if i < 0 {
			near := nearest(key.Value, keys)
			if near != "" {
				d.source.bad[join(path, near)] = true // or it would be missed as well
			}
			text := unknown("key", key.Value, keys)
			if elsewhere := keyElsewhere(v.Type(), key.Value); near == "" && elsewhere != "" {
				text = fmt.Sprintf("unknown key %s, did you mean %q?", quote(key.Value), elsewhere)
				d.source.bad[join(path, elsewhere)] = true
			}
			d.source.bad[join(path, key.Value)] = true
			d.report(key, path, text)
			return
		}
		d.value(value, v.FieldByIndex(fields[i].index), join(path, key.Value))
	})
	if o := v.FieldByName("Objects"); o.IsValid() && o.Type() == reflect.TypeFor[Objects]() {
		d.template(o.Addr().Interface().(*Objects), path)
	}
}

// keyElsewhere finds a key that belongs one or two levels deeper than where
// it was written: "count" in a phase is "create.count".
func keyElsewhere(t reflect.Type, key string) string {
	type level struct {
		t    reflect.Type
		path string
	}
	queue := []level{{t, ""}}
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		for _, f := range fieldsOf(l.t) {
			path := join(l.path, f.key)
			if f.key == key && l.path != "" {
				return path
			}
			ft := l.t.FieldByIndex(f.index).Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct && strings.Count(path, ".") < 2 && ft != limitType && ft != rateType {
				queue = append(queue, level{ft, path})
			}
		}
	}
	return ""
}

// pairs calls f for each key of a mapping that occurs once and is text.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.fail(key, path, "want text as a key, got %s", describe(key))
		case key.ShortTag() == "!!merge":
			d.fail(key, path, "merge keys are not part of the language: write the values out")
		case key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			d.fail(key, path, "anchors and tags are not part of the language: leave them out")
		case key.Value == "" || key.ShortTag() == "!!null":
			d.fail(key, path, "a key is empty")
		case seen[key.Value] != nil:
			d.fail(key, join(path, key.Value), "the key is here a second time; the first is in line %d", seen[key.Value].Line)
		default:
			seen[key.Value] = key
			f(key, value)
		}
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "want a list, got %s", describe(n))
		return
	}
	for i, item := range n.Content {
		element := newDefault(v.Type().Elem()).Elem()
		d.value(item, element, fmt.Sprintf("%s[%d]", path, i))
		v.Set(reflect.Append(v, element))
	}
}

var nullableType = reflect.TypeFor[*string]()

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "want a mapping of names to values, got %s", describe(n))
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	t := v.Type().Elem()
	d.pairs(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		element := newDefault(t).Elem()
		switch {
		case t == nullableType && value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			d.placed(at, value)
		case t == nullableType || t.Kind() == reflect.String:
			// Flags and environment variables are text whatever they look
			// like: kube-api-qps: 100 needs no quotes.
			if value = d.accept(value, at); value != nil {
				d.decode(asText(value), element, at)
			}
		default:
			d.value(value, element, at)
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

func asText(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Style&yaml.TaggedStyle != 0 {
		return n
	}
	text := *n
	text.Tag = "!!str"
	return &text
}

// sortedKeys serves every walk over a map whose order shows.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

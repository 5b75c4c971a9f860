// Package fault is the catalogue of what can go wrong with a control plane, each
// as something that can be put wrong on purpose.
//
// A fault is a value. What it does is a part of an experiment, with its strength
// filled in: flags, clients beside the load, quotas, delays, nodes that are
// slower than they should be. Inject lays that part over an experiment before it
// is run. So faults compose with each other and with any experiment, whoever
// starts a thing undoes it as with any other run, and a recording's experiment
// repeats the run with the fault in it.
//
// Whether a fault did anything is read from the recording afterwards (Check), and
// whether a diagnosis names it (Judge). No detector may look at either.
//
// Start with Fault and All; the catalogue is in a file for each part of a cluster.
package fault

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// A Fault is one thing that can be put wrong.
type Fault struct {
	Name string
	// Number is that of the list of causes in the project's research; empty
	// where it is not on it.
	Number string
	// Star marks what a published investigation was about.
	Star  bool
	Title string // in a few words: what is wrong
	Holds string // what it holds back, in a few words
	// Doc is for people: mechanism, what a user sees, what tells it from what
	// looks alike, and what to do about it.
	Doc string
	// Parameter is how strong it is.
	Parameter Parameter
	// Right is what a right diagnosis names: any one of these. None means that
	// the fault does no harm, and that nothing may be found.
	Right []Place
	// Alike are the names of other faults that it may be mistaken for.
	Alike []string
	// Change is the part of an experiment that puts it wrong, a text/template
	// over Value.
	Change string
	// Show names the experiment that shows it soonest, one of Shows.
	Show string
	// acted says from a recording whether it did anything.
	acted func(*reading, Value) Effect
}

// Place is where a cause is: a component, the stage of a pod that it holds up, and
// the resource that it takes, in the words of a diagnosis. An empty one is any.
type Place struct {
	Component string `json:"component"`
	Stage     string `json:"stage,omitempty"`
	Resource  string `json:"resource"`
}

func (p Place) String() string {
	s := p.Component
	if p.Stage != "" {
		s += ", stage " + p.Stage
	}
	return s + ", " + p.Resource
}

// Kind is what a parameter is measured in.
type Kind string

// The kinds.
const (
	Number    Kind = "number"
	Duration  Kind = "duration"
	PerSecond Kind = "rate"
)

// Parameter is how strong a fault is.
type Parameter struct {
	Means             string // of what the value is
	Kind              Kind
	Low, Middle, High string
}

// At is the value of an intensity.
func (p Parameter) At(i experiment.Intensity) string {
	switch i {
	case experiment.Low:
		return p.Low
	case experiment.High:
		return p.High
	}
	return p.Middle
}

// Value is a parameter's value, as text and as what it is.
type Value struct {
	Text     string
	N        float64 // a number, or per second
	Duration time.Duration
}

// Int is N as a whole number, at least 1.
func (v Value) Int() int { return max(1, int(v.N)) }

// Times is a share or multiple of the value, as text.
func (v Value) Times(f float64) string {
	if v.Duration > 0 {
		return time.Duration(float64(v.Duration) * f).String()
	}
	return strconv.FormatFloat(v.N*f, 'g', 6, 64)
}

// MiB is N mebibytes in bytes.
func (v Value) MiB() float64 { return v.N * (1 << 20) }

// Up counts from 1 to N.
func (v Value) Up() []int {
	all := make([]int, v.Int())
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// parse reads a value.
func (p Parameter) parse(text string) (Value, error) {
	v := Value{Text: text}
	var err error
	switch p.Kind {
	case Duration:
		if v.Duration, err = time.ParseDuration(text); err != nil || v.Duration <= 0 {
			return v, fmt.Errorf("%q: want a duration such as %s", text, p.Middle)
		}
	case PerSecond:
		r, err := experiment.ParseRate(text)
		if err != nil || r.Burst {
			return v, fmt.Errorf("%q: want a rate such as %s", text, p.Middle)
		}
		v.N = r.PerSecond
	default:
		if v.N, err = strconv.ParseFloat(text, 64); err != nil || v.N <= 0 {
			return v, fmt.Errorf("%q: want a number such as %s", text, p.Middle)
		}
	}
	return v, nil
}

// Find finds a fault by its name.
func Find(name string) (*Fault, error) {
	var names []string
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
		names = append(names, All[i].Name)
	}
	return nil, errors.New("unknown fault " + strconv.Quote(name) + experiment.Suggest(name, names))
}

// fragment is what a fault changes, at a value.
func (f *Fault) fragment(v Value) ([]byte, error) {
	t, err := template.New(f.Name).Option("missingkey=error").Parse(f.Change)
	if err != nil {
		return nil, fmt.Errorf("fault %s: %w", f.Name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("fault %s: %w", f.Name, err)
	}
	return b.Bytes(), nil
}

// Fragment is what a fault changes at an intensity, as a part of an experiment.
func (f *Fault) Fragment(i experiment.Intensity) (string, error) {
	v, err := f.Parameter.parse(f.Parameter.At(i))
	if err != nil {
		return "", fmt.Errorf("fault %s: %w", f.Name, err)
	}
	b, err := f.fragment(v)
	return string(b), err
}

// An Injected fault is one that is part of a run.
type Injected struct {
	*Fault
	Intensity experiment.Intensity
	Value     Value
}

// Inject turns the faults that an experiment names into changes of it. Settings
// that were made by hand come after what a fault sets: sets are those of
// components, and are applied again. What cannot be done where the experiment is
// to be run is refused.
func Inject(e *experiment.Experiment, sets experiment.Sets) error {
	if len(e.Faults) == 0 {
		return nil
	}
	var ps experiment.Problems
	var as []experiment.Fault
	var fragments [][]byte
	for i, named := range e.Faults {
		in, key, err := resolve(named)
		if err == nil {
			err = in.refuse(e)
		}
		if err != nil {
			ps = append(ps, e.FaultProblem(i, key, err.Error()))
			continue
		}
		fragment, err := in.fragment(in.Value)
		if err != nil {
			return err
		}
		as = append(as, experiment.Fault{Name: in.Name, Intensity: in.Intensity, Value: experiment.Literal(in.Value.Text)})
		fragments = append(fragments, fragment)
	}
	if err := ps.Err(); err != nil {
		return err
	}
	if err := e.Make(as, fragments); err != nil {
		return err
	}
	return e.Apply(experiment.Sets{Components: sets.Components})
}

// Of are the faults that an experiment was made with.
func Of(e *experiment.Experiment) ([]Injected, error) {
	var all []Injected
	for _, made := range e.Made() {
		in, _, err := resolve(made)
		if err != nil {
			return nil, err
		}
		all = append(all, in)
	}
	return all, nil
}

// resolve finds a fault and its value; where it cannot, it says which key is wrong.
func resolve(named experiment.Fault) (in Injected, key string, err error) {
	f, err := Find(named.Name)
	if err != nil {
		return in, "name", err
	}
	in = Injected{Fault: f, Intensity: named.Intensity}
	text := string(named.Value)
	if text == "" {
		if in.Intensity == "" {
			in.Intensity = experiment.Middle
		}
		text = f.Parameter.At(in.Intensity)
	}
	if in.Value, err = f.Parameter.parse(text); err != nil {
		return in, "value", fmt.Errorf("%s of %s: %w", f.Parameter.Means, f.Name, err)
	}
	return in, "", nil
}

// refuse says why a fault cannot be had where the experiment is to be run.
func (in Injected) refuse(e *experiment.Experiment) error {
	if !e.Cluster.Existing {
		return nil
	}
	if strings.Contains(in.Change, "cluster:") {
		return fmt.Errorf("%s changes how the control plane or its nodes are started, which only a lab's can be: run without --kubeconfig", in.Name)
	}
	if strings.Contains(in.Change, "phases:") {
		return fmt.Errorf("%s makes objects that are not the run's own alone: run without --kubeconfig", in.Name)
	}
	return nil
}

// Record is how an injected fault is kept beside a recording.
func (in Injected) Record() record.Fault {
	return record.Fault{Name: in.Name, Intensity: string(in.Intensity), Parameter: in.Parameter.Means, Value: in.Value.Text}
}

//go:embed show/*.yaml
var shows embed.FS

// Shows are the names of the experiments that show faults, sorted.
func Shows() []string {
	var names []string
	for i := range All {
		names = append(names, All[i].Show)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Showing is the experiment of this name, without any fault.
func Showing(name string) (*experiment.Experiment, error) {
	data, err := shows.ReadFile("show/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("experiment that shows faults: %w", err)
	}
	return experiment.Parse(name+".yaml", data)
}

// Showing is the experiment that shows the fault soonest, without the fault.
func (f *Fault) Showing() (*experiment.Experiment, error) { return Showing(f.Show) }

// Overwrites says that two faults cannot be had together: both set the same
// thing to another value.
func (f *Fault) Overwrites(other *Fault) bool {
	mine, theirs := f.settings(), other.settings()
	for path, value := range mine {
		if v, ok := theirs[path]; ok && v != value {
			return true
		}
	}
	return false
}

// settings are the scalars that the fault sets at the middle intensity, by path.
// What it adds to lists (actors, phases) is known by its name.
func (f *Fault) settings() map[string]string {
	set := map[string]string{}
	fragment, err := f.Fragment(experiment.Middle)
	var tree map[string]any
	if err == nil {
		err = yaml.Unmarshal([]byte(fragment), &tree)
	}
	if err != nil { // a test tries all of them
		return set
	}
	var walk func(path string, x any)
	walk = func(path string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				walk(path+"."+k, v)
			}
		case []any:
			for _, v := range x {
				if m, ok := v.(map[string]any); ok {
					set[path+"."+fmt.Sprint(m["name"])] = fmt.Sprint(m)
				}
			}
		default:
			set[path] = fmt.Sprint(x)
		}
	}
	walk("", tree)
	return set
}

// Package cases holds published investigations of control planes as experiments,
// each with what must come out.
//
// A case has arms: experiments that are run in turns, such as a fault and its fix.
// What must come out is data beside them: what a diagnosis of an arm must find
// first, what it must not find, numbers, and changes from one arm to another. No
// recording holds any of it, so that no diagnosis can read it. Run runs the arms;
// Judge holds what came out against what must, as a pure function; a Story is both,
// with the authors' numbers beside ours.
//
// Start with Case, then Judge. The cases are in data, a folder each.
package cases

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
)

//go:embed data
var files embed.FS

// A Case is one investigation, and what must come out of it.
type Case struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Source is where its authors tell of it.
	Source string `yaml:"source"`
	// Asked is what they were asked, Found what they found and did about it,
	// Rebuilt how ours is made.
	Asked   string `yaml:"asked"`
	Found   string `yaml:"found"`
	Rebuilt string `yaml:"rebuilt"`
	// Needs is what the case needs besides a lab; empty where nothing.
	Needs string `yaml:"needs"`
	// Quick says what a quick run leaves out.
	Quick string `yaml:"quick"`

	Arms    []Arm         `yaml:"arms"`
	Expect  []Expectation `yaml:"expect"`
	Numbers []Number      `yaml:"numbers"`
}

// An Arm is one of the experiments of a case.
type Arm struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Experiment is a file in the case's folder, or Builtin one that is built in,
	// with parameters.
	Experiment string            `yaml:"experiment"`
	Builtin    string            `yaml:"builtin"`
	Params     experiment.Params `yaml:"params"`
	// Set changes it, as --set does; QuickSet too in a quick run, after it.
	Set      []string `yaml:"set"`
	QuickSet []string `yaml:"quickSet"`
	// Patch is a component that is built for the arm.
	Patch *Patch `yaml:"patch"`
	// Program is a component of another version, which is built for the arm.
	Program *Program `yaml:"program"`
	// Runs is how many runs there are, QuickRuns in a quick run; 0 leaves the arm
	// out.
	Runs      int `yaml:"runs"`
	QuickRuns int `yaml:"quickRuns"`
	// Turns names arms that take turns with each other alone, since nothing else is
	// held against them: then minutes lie between two of them, in which a machine
	// changes less than in a turn of all.
	Turns string `yaml:"turns"`
	// Seconds is about how long one takes, from start to end, QuickSeconds of a
	// quick one: for the time that is left, until runs tell it.
	Seconds      float64 `yaml:"seconds"`
	QuickSeconds float64 `yaml:"quickSeconds"`

	built string // the setting that takes what was built
}

// An Expectation is one thing that must come out. Exactly one of First, Order, Found,
// Absent, Objective, Number and Change is set.
type Expectation struct {
	// Row is the row of the list of what the authors did that it stands for.
	Row  string `yaml:"row"`
	Says string `yaml:"says"`
	// Arm is whose runs it is about; all of them must have it.
	Arm string `yaml:"arm"`
	// Full says of a change that it is smaller than what single runs differ by: a quick
	// run tells it and does not judge it.
	Full bool `yaml:"full"`

	First *Place `yaml:"first"`
	// Order is what is found, the first of it first of all, and each before the next.
	Order []Place `yaml:"order"`
	// Found is a finding at any rank: of a risk, say, beside what holds pods up now.
	Found     *Place   `yaml:"found"`
	Absent    *Place   `yaml:"absent"`
	Objective *Kept    `yaml:"objective"`
	Number    *Bounded `yaml:"number"`
	Change    *Change  `yaml:"change"`
}

// Place is a finding: its detector, and where the cause is. What is empty is any.
type Place struct {
	Detector  string `yaml:"detector"`
	Component string `yaml:"component"`
	Stage     string `yaml:"stage"`
	Resource  string `yaml:"resource"`
	// Names is what its cause names, such as a command.
	Names string `yaml:"names"`
	// In is text of the code path that the finding names.
	In string `yaml:"in"`
}

// Kept is whether an objective of the experiment is met.
type Kept struct {
	Name string `yaml:"name"`
	Met  bool   `yaml:"met"`
}

// Bounded is a number of a run between bounds: their median where there are more
// runs. A nil bound is none.
type Bounded struct {
	Measure `yaml:",inline"`
	Least   *float64 `yaml:"least"`
	Most    *float64 `yaml:"most"`
}

// Change is by how much a number differs between two arms.
type Change struct {
	Measure `yaml:",inline"`
	From    string `yaml:"from"`
	To      string `yaml:"to"`
	// Factor is by how much at least: 2 is twice as much, 0.5 half as much. With an
	// interval, all of it must lie on that side of 1.
	Factor float64 `yaml:"factor"`
	// Flat, in place of Factor, is how far from 1 the ratio may be: that the change
	// does nothing that matters.
	Flat float64 `yaml:"flat"`
	// Per is what the number is divided by in each run: CPU of something that does the
	// same work in both arms, and so tells how fast the machine was during the run. A
	// virtual machine's speed differs by a tenth from one run to the next.
	Per *Measure `yaml:"per"`
}

// Number is a row of the table of numbers.
type Number struct {
	Row     string `yaml:"row"`
	Name    string `yaml:"name"`
	Measure `yaml:",inline"`
	// Authors has what the authors measured, by arm, in their words.
	Authors map[string]string `yaml:"authors"`
}

// Names lists the cases, sorted.
func Names() []string {
	entries, err := fs.ReadDir(files, "data")
	if err != nil {
		panic(err) // it is built in
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// Find reads a case.
func Find(name string) (*Case, error) {
	if names := Names(); !slices.Contains(names, name) {
		return nil, errors.New("unknown case " + fmt.Sprintf("%q", name) + experiment.Suggest(name, names))
	}
	data, err := files.ReadFile(path.Join("data", name, "case.yaml"))
	if err != nil {
		return nil, fmt.Errorf("case %s: %w", name, err)
	}
	c := &Case{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("case %s: %w", name, err)
	}
	if err := c.check(name); err != nil {
		return nil, fmt.Errorf("case %s: %w", name, err)
	}
	return c, nil
}

// check refuses what no run could answer.
func (c *Case) check(name string) error {
	if c.Name != name || c.Title == "" || c.Source == "" || c.Asked == "" || c.Found == "" || c.Rebuilt == "" {
		return errors.New("name, title, source, asked, found and rebuilt are needed")
	}
	arms := map[string]bool{}
	for _, a := range c.Arms {
		if arms[a.Name] || a.Name == "" || (a.Experiment == "") == (a.Builtin == "") || a.Runs < 0 || a.QuickRuns < 0 || a.Runs+a.QuickRuns == 0 {
			return fmt.Errorf("arm %q: it needs a name of its own, one experiment, and runs", a.Name)
		}
		if a.Patch != nil {
			if err := a.Patch.check(); err != nil {
				return fmt.Errorf("arm %q: %w", a.Name, err)
			}
		}
		if a.Program != nil {
			if err := a.Program.check(); err != nil {
				return fmt.Errorf("arm %q: %w", a.Name, err)
			}
		}
		arms[a.Name] = true
	}
	for i, e := range c.Expect {
		set := 0
		for _, is := range []bool{e.First != nil, len(e.Order) > 0, e.Found != nil, e.Absent != nil, e.Objective != nil, e.Number != nil, e.Change != nil} {
			if is {
				set++
			}
		}
		var err error
		switch {
		case set != 1:
			err = errors.New("exactly one of first, order, found, absent, objective, number and change")
		case e.Full && e.Change == nil:
			err = errors.New("full is for a change")
		case e.Number != nil && e.Number.Least == nil && e.Number.Most == nil:
			err = errors.New("a number without a bound cannot fail")
		case e.Number != nil:
			err = e.Number.check()
		case e.Change != nil:
			if err = e.Change.check(); err == nil && (e.Change.Factor > 0) == (e.Change.Flat > 0) {
				err = errors.New("a change needs a factor, or flat")
			}
			if per := e.Change.Per; err == nil && per != nil {
				if err = per.check(); err != nil {
					err = fmt.Errorf("per: %w", err)
				}
			}
		case len(e.Order) == 1:
			err = errors.New("an order of one: say first")
		case slices.Contains(e.Order, Place{}):
			err = errors.New("any finding at all")
		case e.First != nil && *e.First == Place{}, e.Found != nil && *e.Found == Place{}, e.Absent != nil && *e.Absent == Place{}:
			err = errors.New("any finding at all")
		}
		for _, arm := range e.arms() {
			if !arms[arm] {
				err = errors.Join(err, fmt.Errorf("no arm %q", arm))
			}
		}
		if err == nil && e.Change != nil && c.arm(e.Change.From).Turns != c.arm(e.Change.To).Turns {
			err = fmt.Errorf("arms %s and %s take no turns with each other", e.Change.From, e.Change.To)
		}
		if err == nil && (e.Row == "" || e.Says == "") {
			err = errors.New("row and says are needed")
		}
		if err != nil {
			return fmt.Errorf("expect[%d]: %w", i, err)
		}
	}
	for i, n := range c.Numbers {
		err := n.check()
		for arm := range n.Authors {
			if !arms[arm] {
				err = errors.Join(err, fmt.Errorf("no arm %q", arm))
			}
		}
		if err != nil {
			return fmt.Errorf("numbers[%d]: %w", i, err)
		}
	}
	return nil
}

// arm finds one by its name.
func (c *Case) arm(name string) *Arm {
	i := slices.IndexFunc(c.Arms, func(a Arm) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Arms[i]
}

func (c *Case) armNames() (names []string) {
	for _, a := range c.Arms {
		names = append(names, a.Name)
	}
	return names
}

// arms are those that an expectation is about.
func (e Expectation) arms() []string {
	if e.Change != nil {
		return []string{e.Change.From, e.Change.To}
	}
	return []string{e.Arm}
}

// runs is how many runs an arm has.
func (a *Arm) runs(quick bool) int {
	if quick {
		return a.QuickRuns
	}
	return a.Runs
}

func (a *Arm) seconds(quick bool) float64 {
	if quick {
		return a.QuickSeconds
	}
	return a.Seconds
}

// Changes are what is put in place of what a case has, by hand.
type Changes struct {
	Sets   []string // as --set
	Faults []string // as --fault
}

// Settings are those of an arm, what is set by hand last.
func (a *Arm) Settings(quick bool, by Changes) []string {
	all := slices.Clone(a.Set)
	if a.built != "" {
		all = append(all, a.built)
	}
	if quick {
		all = append(all, a.QuickSet...)
	}
	all = append(all, by.Sets...)
	// Of the same path the last one is what applies.
	path := func(set string) string { p, _, _ := strings.Cut(set, "="); return p }
	var last []string
	for i, set := range all {
		if !slices.ContainsFunc(all[i+1:], func(later string) bool { return path(later) == path(set) }) {
			last = append(last, set)
		}
	}
	return last
}

// kept are settings as a recording keeps them: the variables of its experiment
// are filled in.
func kept(settings []string) []string {
	return slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, "variables.") })
}

// Load is the experiment of an arm, fit to be run.
func (c *Case) Load(a *Arm, quick bool, by Changes) (*experiment.Experiment, error) {
	settings := a.Settings(quick, by)
	given, err := experiment.ParseSets(settings)
	if err != nil {
		return nil, err
	}
	var e *experiment.Experiment
	if a.Builtin != "" {
		e, err = experiment.Builtin(a.Builtin, a.Params)
	} else {
		name := path.Join("data", c.Name, a.Experiment)
		data, readErr := files.ReadFile(name)
		if readErr != nil {
			return nil, fmt.Errorf("experiment of arm %s: %w", a.Name, readErr)
		}
		e, err = experiment.ParseWith(a.Experiment, data, experiment.Options{Variables: given.Variables()})
	}
	if err != nil {
		return nil, err
	}
	sets, err := experiment.ParseSets(kept(settings))
	if err != nil {
		return nil, err
	}
	for _, text := range by.Faults {
		e.AddFault("--fault", text)
	}
	if err := e.Apply(sets); err != nil {
		return nil, err
	}
	return e, fault.Inject(e, sets)
}

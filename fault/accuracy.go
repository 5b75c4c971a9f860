package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// bounds are what a healthy run of an experiment that shows faults may be said to
// be held back by, or to waste: a burst fills whatever it is sent to, and an idle
// cluster on one machine elects leaders for nothing.
var bounds = map[string][]Place{
	"idle":         {{Component: controllerManager, Resource: "lock"}, {Component: kubeScheduler, Resource: "lock"}},
	"rollout":      {{Component: "machine", Resource: "cpu"}},
	"rollouts-far": {{Component: "machine", Resource: "cpu"}, {Component: etcd, Resource: "network"}, {Component: controllerManager, Resource: "workers"}},
	"terms":        {{Component: "machine", Resource: "cpu"}, {Component: kubeScheduler, Resource: "loop"}},
}

// A Trial is what a diagnosis said of a run of which it is known what was wrong.
type Trial struct {
	Recording  string         `json:"recording"` // the name of its folder
	Experiment string         `json:"experiment"`
	Faults     []record.Fault `json:"faults"` // none: a healthy run
	// Acted says that each fault was seen to do something. A trial without
	// tells nothing about the diagnosis.
	Acted bool `json:"acted"`
	// First is the detector whose finding stands first, what it names and how
	// sure it is; empty where nothing was found.
	First string         `json:"first,omitempty"`
	Named Place          `json:"named,omitzero"`
	Grade diagnose.Grade `json:"grade,omitempty"`
	// Ranks has for each fault the place, from 1, of the first finding that
	// names it; 0 is none. A fault that does no harm has 1 where nothing but
	// what healthy runs have was found.
	Ranks []int `json:"ranks"`
	// Component says that the first finding names a component of the first fault.
	Component bool `json:"component"`
	// Unexpected are the detectors that found something in a run in which
	// nothing that does harm was wrong.
	Unexpected []string `json:"unexpected,omitempty"`
	// Invalid is why the run's numbers must not be used. The trial counts
	// nevertheless: whoever ran into the fault would read this diagnosis too.
	Invalid []string `json:"invalid,omitempty"`
	// AtFirst is what the detectors of that day said when the run was made; null
	// where that was not kept.
	AtFirst *Judgement `json:"atFirst,omitempty"`
	// Origin is null where the caller of Try did not say.
	Origin *Origin `json:"origin,omitempty"`
}

// A Judgement is the first finding of a diagnosis, whether it was right, and where the
// faults were named.
type Judgement struct {
	First string         `json:"first,omitempty"` // the detector; empty where nothing was found
	Grade diagnose.Grade `json:"grade,omitempty"`
	Right bool           `json:"right"`
	Ranks []int          `json:"ranks,omitempty"` // a Trial's; empty where they were not kept
}

// Judged is how the trial is judged now.
func (t Trial) Judged() Judgement {
	j := Judgement{First: t.First, Grade: t.Grade, Right: t.Right(), Ranks: t.Ranks}
	if len(t.Faults) == 0 {
		j.Right = !slices.Contains(t.Unexpected, t.First)
	}
	return j
}

// Origin is where and when a trial's run was made, and what diagnosed it: trials
// of several campaigns, of which the recordings are gone, can be summed up then.
type Origin struct {
	Run        string    `json:"run"` // the recording's ID
	Started    time.Time `json:"started"`
	CPUs       int       `json:"cpus"`
	Model      string    `json:"model"` // of the CPU
	Kernel     string    `json:"kernel"`
	Kubernetes string    `json:"kubernetes"` // version
	Tool       string    `json:"tool"`       // version of kubedyno whose detectors diagnosed it
}

// Try holds a diagnosis against what was wrong with its run. recording is what
// the trial is called by.
func Try(recording, experiment string, faults []record.Fault, d *diagnose.Diagnosis) (Trial, error) {
	t := Trial{Recording: recording, Experiment: experiment, Faults: append([]record.Fault{}, faults...), Acted: true, Invalid: d.InvalidReasons, Ranks: []int{}}
	known := make([]*Fault, len(faults))
	for i, made := range faults {
		f, err := Find(made.Name)
		if err != nil {
			return t, fmt.Errorf("recording %s: %w", recording, err)
		}
		known[i] = f
		t.Acted = t.Acted && made.Acted == string(Yes)
	}
	findings := answers(experiment, known, d)
	if len(findings) > 0 {
		f := findings[0]
		t.First, t.Named, t.Grade = f.ID, placeOf(f), f.Grade
	}
	if len(known) == 0 || slices.ContainsFunc(known, func(f *Fault) bool { return len(f.Right) == 0 }) {
		for _, f := range unexpected(experiment, d) {
			t.Unexpected = append(t.Unexpected, f.ID)
		}
	}
	for i, f := range known {
		if len(f.Right) == 0 {
			t.Ranks = append(t.Ranks, 1-min(1, len(t.Unexpected)))
			t.Component = t.Component || i == 0 && len(t.Unexpected) == 0
			continue
		}
		t.Ranks = append(t.Ranks, slices.IndexFunc(findings, f.named)+1)
		if i == 0 && len(findings) > 0 {
			t.Component = slices.ContainsFunc(f.Right, func(p Place) bool { return p.Component == findings[0].Component })
		}
	}
	return t, nil
}

// answers are the findings of a run with faults in it that count as an answer.
// Waste that healthy runs of the experiment have as well, and that holds nobody
// up, is no wrong one.
func answers(experiment string, made []*Fault, d *diagnose.Diagnosis) []diagnose.Finding {
	return slices.DeleteFunc(slices.Clone(d.Findings), func(f diagnose.Finding) bool {
		return f.Class == diagnose.Waste && len(made) > 0 && bound(experiment, f) &&
			!slices.ContainsFunc(made, func(x *Fault) bool { return x.named(f) })
	})
}

// unexpected are the findings that no healthy run of the experiment may have.
func unexpected(experiment string, d *diagnose.Diagnosis) []diagnose.Finding {
	return slices.DeleteFunc(slices.Clone(d.Findings), func(f diagnose.Finding) bool { return bound(experiment, f) })
}

// bound says whether a healthy run of an experiment may have a finding.
func bound(experiment string, f diagnose.Finding) bool {
	return slices.ContainsFunc(bounds[experiment], func(p Place) bool { return p.matches(f) })
}

func placeOf(f diagnose.Finding) Place { return Place{f.Component, f.Stage, f.Resource} }

// named says whether a finding names the fault.
func (f *Fault) named(d diagnose.Finding) bool {
	return slices.ContainsFunc(f.Right, func(p Place) bool { return p.matches(d) })
}

// run is the ID of the trial's recording, which sorts by time; empty where it
// is not known.
func (t Trial) run() string {
	if t.Origin == nil {
		return ""
	}
	return t.Origin.Run
}

// Merge adds trials to earlier ones. A recording that is among both counts once,
// as it was diagnosed last.
func Merge(earlier, later []Trial) []Trial {
	again := map[string]bool{}
	for _, t := range later {
		again[t.run()] = t.run() != ""
	}
	return append(slices.DeleteFunc(slices.Clone(earlier), func(t Trial) bool { return again[t.run()] }), later...)
}

// Right says that the first finding is the first fault's.
func (t Trial) Right() bool { return len(t.Ranks) > 0 && t.Ranks[0] == 1 }

// Misled says that the diagnosis was sure of something that was not wrong.
func (t Trial) Misled() bool {
	if t.Grade != diagnose.Confirmed || slices.Contains(t.Ranks, 1) {
		return false
	}
	return len(t.Faults) > 0 || slices.Contains(t.Unexpected, t.First)
}

// Share is how often something was so.
type Share diagnose.Hits

func (s *Share) add(right bool) {
	s.Of++
	if right {
		s.Right++
	}
}

// String is the share with its interval at 95 %.
func (s Share) String() string {
	i, ok := stat.Proportion(s.Right, s.Of, 0.95)
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%d of %d (%.0f %%; 95 %%: %.0f to %.0f)", s.Right, s.Of, 100*float64(s.Right)/float64(s.Of), 100*i.Lo, 100*i.Hi)
}

// Accuracy sums up trials.
type Accuracy struct {
	// Cause, Component and InThree are over the trials of one fault that acted
	// at the middle or the high intensity: how often the first finding names the
	// cause, how often its component, and how often one of the first three names
	// the cause.
	Cause     Share `json:"cause"`
	Component Share `json:"component"`
	InThree   Share `json:"inThree"`
	// AtFirst is Cause as it was judged when each run was made: a detector that was
	// mended by a run is right on it, which proves nothing.
	AtFirst Share `json:"atFirst"`
	// Sure are the trials among these whose first finding is confirmed.
	Sure Share `json:"sure"`
	// Low is Cause at the low intensity, where a fault may hold nobody up.
	Low Share `json:"low"`
	// Pairs are the trials of two faults that both acted: how often the first
	// three findings name both.
	Pairs Share `json:"pairs"`
	// PairsAtFirst is Pairs as they were judged when each run was made, of those of
	// which it was kept.
	PairsAtFirst Share `json:"pairsAtFirst"`
	// Healthy is how many healthy runs have no unexpected finding.
	Healthy Share `json:"healthy"`
	// Misled are the trials, of any kind, whose first finding is confirmed and wrong.
	Misled []string `json:"misled"`
	// Idle are the trials whose fault was not seen to act. They count nowhere.
	Idle []string `json:"idle"`
	// Failed are the runs that ended before they were complete. There is no
	// diagnosis to judge.
	Failed []Failure `json:"failed"`
	// Detectors has how often a detector's finding that stands first is right, by
	// its grade, over all trials that count, as they were judged when they were made
	// where that is known: it is what findings tell their readers.
	Detectors map[string]map[diagnose.Grade]diagnose.Hits `json:"detectors"`
	Trials    []Trial                                     `json:"trials"` // sorted by recording
}

// A Failure is a run that failed.
type Failure struct {
	Recording string `json:"recording"`
	Reason    string `json:"reason"`
}

// Sum sums up trials, and names the runs that failed beside them.
func Sum(trials []Trial, failed []Failure) Accuracy {
	a := Accuracy{Misled: []string{}, Idle: []string{}, Failed: append([]Failure{}, failed...),
		Detectors: map[string]map[diagnose.Grade]diagnose.Hits{}, Trials: slices.Clone(trials)}
	slices.SortFunc(a.Trials, func(x, y Trial) int {
		return cmp.Or(strings.Compare(x.Recording, y.Recording), strings.Compare(x.run(), y.run()))
	})
	slices.SortFunc(a.Failed, func(x, y Failure) int {
		return cmp.Or(strings.Compare(x.Recording, y.Recording), strings.Compare(x.Reason, y.Reason))
	})
	a.Failed = slices.Compact(a.Failed) // one that is in a sum and in a folder
	for _, t := range a.Trials {
		if !t.Acted {
			a.Idle = append(a.Idle, t.Recording)
			continue
		}
		if t.Misled() {
			a.Misled = append(a.Misled, t.Recording)
		}
		switch len(t.Faults) {
		case 0:
			a.Healthy.add(len(t.Unexpected) == 0)
		case 1:
			if t.Faults[0].Intensity == "low" {
				a.Low.add(t.Right())
				break
			}
			a.Cause.add(t.Right())
			if t.AtFirst != nil {
				a.AtFirst.add(t.AtFirst.Right)
			}
			a.Component.add(t.Component)
			a.InThree.add(t.Ranks[0] > 0 && t.Ranks[0] <= 3)
			if t.Grade == diagnose.Confirmed {
				a.Sure.add(t.Right())
			}
		default:
			a.Pairs.add(inThree(t.Ranks))
			if t.AtFirst != nil && len(t.AtFirst.Ranks) > 0 {
				a.PairsAtFirst.add(inThree(t.AtFirst.Ranks))
			}
		}
		j := t.Judged()
		if t.AtFirst != nil {
			j = *t.AtFirst
		}
		if j.First == "" || len(t.Faults) > 1 {
			continue
		}
		grades := a.Detectors[j.First]
		if grades == nil {
			grades = map[diagnose.Grade]diagnose.Hits{}
			a.Detectors[j.First] = grades
		}
		s := Share(grades[j.Grade])
		s.add(j.Right)
		grades[j.Grade] = diagnose.Hits(s)
	}
	return a
}

// inThree says that one of the first three findings names each fault.
func inThree(ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(r int) bool { return r == 0 || r > 3 })
}

// Text says in one line what a trial was and what came out.
func (t Trial) Text() string {
	var of []string
	for _, f := range t.Faults {
		of = append(of, f.Name+"="+cmp.Or(f.Intensity, f.Value))
	}
	what := cmp.Or(strings.Join(of, " and "), "healthy "+t.Experiment)
	first := "nothing was found"
	if t.First != "" {
		first = fmt.Sprintf("%s first, %s (%s)", t.First, t.Grade, t.Named)
	}
	if len(t.Invalid) > 0 {
		what += " (run not valid)"
	}
	switch {
	case !t.Acted:
		return what + ": not seen to act; " + first
	case len(t.Faults) == 0 && len(t.Unexpected) == 0:
		return what + ": as it should be; " + first
	case len(t.Faults) == 0:
		return what + ": unexpected: " + strings.Join(t.Unexpected, ", ") + "; " + first
	}
	var ranks []string
	for i, r := range t.Ranks {
		place := "not named"
		if r > 0 {
			place = fmt.Sprintf("named, place %d", r)
		}
		if len(t.Ranks) > 1 {
			place = t.Faults[i].Name + " " + place
		}
		ranks = append(ranks, place)
	}
	if t.Right() && len(t.Ranks) == 1 {
		return what + ": right; " + first
	}
	return what + ": " + strings.Join(ranks, ", ") + "; " + first
}

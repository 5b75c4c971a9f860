package report

import (
	"encoding/json"
	"io"
	"reflect"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Folder is the page that lists the recordings of a folder.
type Folder struct {
	Tool    string  `json:"tool"`
	Name    string  `json:"name"` // of the folder, without its path
	Entries []Entry `json:"entries"`
}

// Entry is what a recording's first file tells; nothing else was opened.
type Entry struct {
	Name       string    `json:"name"` // its place below the folder
	ID         string    `json:"id"`
	Experiment string    `json:"experiment"`
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	Status     string    `json:"status"` // as recorded; of one that runs, whether its writer lives
	Pods       int       `json:"pods"`   // asked for
	Nodes      int       `json:"nodes"`
	Machine    string    `json:"machine"`
	Kubernetes string    `json:"kubernetes"`
	Settings   []string  `json:"settings"`
	Invalid    []string  `json:"invalid"`
	Damaged    string    `json:"damaged"` // why the file could not be read; empty
	Stamp      string    `json:"stamp"`   // changes when the recording does
}

// Summary is what a diagnosis says of a recording.
type Summary struct {
	Name    string   `json:"name"`
	Verdict string   `json:"verdict"`
	Valid   bool     `json:"valid"`
	Found   bool     `json:"found"`   // something held it back
	Rate    *float64 `json:"rate"`    // pods/s; null: not measured
	Reached int      `json:"reached"` // pods that got as far as Until
	Until   string   `json:"until"`   // "running", or "scheduled" where no pod ever ran
	Error   string   `json:"error"`
}

// Progress is how far a run is whose recording is still being written.
type Progress struct {
	Entry     Entry   `json:"entry"`
	Now       float64 `json:"now"` // seconds since its start
	Phase     string  `json:"phase"`
	Phases    []Phase `json:"phases"` // in seconds since its start; the one that runs ends now
	Curves    Curves  `json:"curves"` // in seconds since its start
	Created   int     `json:"created"`
	Scheduled int     `json:"scheduled"`
	Running   int     `json:"running"`
	Gaps      int     `json:"gaps"`
}

// Answer is what an expression came to over recordings.
type Answer struct {
	Expression string       `json:"expression"`
	Lines      []AnswerLine `json:"lines"`
	Left       int          `json:"left"` // series that are not here
	Error      string       `json:"error"`
}

// AnswerLine is one series of one recording, in seconds since the recording's start, or since its first pod was asked for.
type AnswerLine struct {
	Of     string  `json:"of"`
	Series string  `json:"series"`
	Start  float64 `json:"start"`
	Step   float64 `json:"step"`
	Values Values  `json:"values"`
	Note   string  `json:"note"` // instead of values: a histogram, or what went wrong
}

// EntryOf is what a recording's meta data tell of it.
func EntryOf(name string, m record.Meta) Entry {
	e := Entry{
		Name: name, ID: m.ID, Experiment: m.Name, Started: m.Started, Status: string(m.Status), Pods: m.Workload.ExpectedPods, Nodes: m.Nodes.Count,
		Machine: plural(m.Machine.CPUs, "CPU"), Kubernetes: m.Cluster.Version, Settings: m.Settings, Invalid: m.Invalid,
	}
	if m.Machine.Model != "" {
		e.Machine += ", " + m.Machine.Model
	}
	if m.Ended.After(m.Started) {
		e.Seconds = m.Ended.Sub(m.Started).Seconds()
	}
	return e
}

// SummaryOf is a diagnosis in one line of a list.
func SummaryOf(name string, d *diagnose.Diagnosis) Summary {
	s := Summary{Name: name, Verdict: Verdict(d), Valid: d.Valid, Found: len(d.Findings) > 0, Reached: d.Pods.Running, Until: "running"}
	if d.Pods.Running == 0 && d.Pods.Bound > 0 {
		s.Reached, s.Until = d.Pods.Bound, "scheduled"
	}
	if d.Throughput != nil {
		s.Rate = &d.Throughput.Mean
	}
	return s
}

// ProgressOf is how far a run is, by its meta data and the pods seen so far.
func ProgressOf(e Entry, m record.Meta, pods []record.Pod, now time.Time) Progress {
	p := Progress{Entry: e, Now: now.Sub(m.Started).Seconds(), Gaps: len(m.Gaps)}
	since := func(t time.Time) float64 { return t.Sub(m.Started).Seconds() }
	for _, ph := range m.Phases {
		one := Phase{Name: ph.Name, Kind: string(ph.Kind), From: since(ph.Start), To: p.Now}
		if ph.End.IsZero() {
			p.Phase = ph.Name
		} else {
			one.To = since(ph.End)
		}
		p.Phases = append(p.Phases, one)
	}
	steady := measured(rows{meta: m, pods: pods})
	c := clock{zero: m.Started.UnixMicro(), end: now.UnixMicro()}
	p.Created, p.Scheduled, p.Running = len(timesOf(steady, created)), len(timesOf(steady, bound)), len(timesOf(steady, running))
	p.Curves = curves(c, steady, m.Workload.ExpectedPods)
	return p
}

// WriteAnswer writes one of the models above as JSON, with empty lists where
// there are none: the page finds arrays and never null.
func WriteAnswer[T any](w io.Writer, v T) error {
	fill(reflect.ValueOf(&v))
	return json.NewEncoder(w).Encode(v)
}

// WriteFolder writes the page that lists recordings.
func WriteFolder(w io.Writer, f Folder) error {
	return writeDocument(w, document{title: f.Name + " · kubedyno", tool: f.Tool, lead: "Recordings of " + f.Name, kind: "folder", served: true}, &f)
}

// WriteProgress writes the page that follows a run.
func WriteProgress(w io.Writer, p Progress, tool string) error {
	return writeDocument(w, document{title: p.Entry.Name + " · kubedyno", tool: tool, lead: p.Entry.Name + " is being recorded", kind: "progress", served: true}, &p)
}

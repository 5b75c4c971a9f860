package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// The elements of JUnit's XML as CI servers read it: a suite for each run, a
// case for whether the run is valid and one for each objective. There is no
// standard; this is what Jenkins', GitLab's and Ant's readers have in common.
type (
	testSuites struct {
		XMLName  xml.Name    `xml:"testsuites"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     xmlSeconds  `xml:"time,attr"`
		Suites   []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name       string      `xml:"name,attr"`
		Tests      int         `xml:"tests,attr"`
		Failures   int         `xml:"failures,attr"`
		Errors     int         `xml:"errors,attr"`
		Skipped    int         `xml:"skipped,attr"`
		Time       xmlSeconds  `xml:"time,attr"`
		Timestamp  string      `xml:"timestamp,attr,omitempty"`
		Properties *properties `xml:"properties"`
		Cases      []testCase  `xml:"testcase"`
		Out        string      `xml:"system-out,omitempty"`
	}
	properties struct {
		Property []property `xml:"property"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Time    xmlSeconds `xml:"time,attr"`
		Failure *failure   `xml:"failure"`
		Out     string     `xml:"system-out,omitempty"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// xmlSeconds are seconds as JUnit has them.
type xmlSeconds float64

func (s xmlSeconds) MarshalXMLAttr(name xml.Name) (xml.Attr, error) {
	return xml.Attr{Name: name, Value: fmt.Sprintf("%.3f", float64(s))}, nil
}

// writeJUnit writes a suite for each run. Nothing is ever skipped: CI servers
// show a skipped test as green, and an objective that could not be assessed is
// as little met as one that was missed. It fails as not-assessed, which is what
// the exit code of a run says too.
func writeJUnit(w io.Writer, results []Result) error {
	all := testSuites{Name: "kubedyno"}
	for _, r := range results {
		s := suiteOf(r)
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Time += s.Time
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func suiteOf(r Result) testSuite {
	d := r.Diagnosis
	name := r.Meta.Name
	if name == "" {
		name = d.Run
	}
	s := testSuite{Name: name, Time: xmlSeconds(d.Window.Seconds), Out: said(d)}
	if !r.Meta.Started.IsZero() {
		s.Timestamp = r.Meta.Started.UTC().Format(time.RFC3339)
	}
	p := properties{}
	for _, f := range factsOf(r) {
		p.Property = append(p.Property, property{f[0], f[1]})
	}
	s.Properties = &p

	class := "kubedyno." + name
	valid := testCase{Class: class, Name: "the run is valid", Time: s.Time}
	if !d.Valid {
		valid.Failure = &failure{Type: "invalid", Message: "the numbers of this run must not be used", Text: strings.Join(d.InvalidReasons, "\n")}
	}
	s.Cases = append(s.Cases, valid)
	for _, o := range d.Objectives {
		s.Cases = append(s.Cases, caseOf(class, o))
	}
	for _, c := range s.Cases {
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
	}
	return s
}

func caseOf(class string, o record.Objective) testCase {
	c := testCase{Class: class, Name: "objective " + o.Name}
	text := fmt.Sprintf("%s, %s", objectiveText(o), fmt.Sprintf("n %d", o.N))
	if o.Reason != "" {
		text += "; " + o.Reason
	}
	switch {
	case !o.Assessed:
		c.Failure = &failure{Type: "not-assessed", Message: "not assessed, and so not met: " + o.Reason, Text: text}
	case !o.Met:
		c.Failure = &failure{Type: "missed", Message: fmt.Sprintf("%s %s, limit %s", number(o.Value), o.Unit, number(o.Limit)), Text: text}
	default:
		c.Out = text
	}
	return c
}

// objectiveText is what was asked for, and what came of it.
func objectiveText(o record.Objective) string {
	what := o.Indicator
	if o.Quantile > 0 {
		what += fmt.Sprintf(" at quantile %g", o.Quantile)
	}
	bound := "at most"
	if o.Unit == "1/s" {
		bound = "at least"
	}
	text := fmt.Sprintf("%s: %s %s %s", what, bound, number(o.Limit), o.Unit)
	if o.Assessed {
		text += fmt.Sprintf(", measured %s %s", number(o.Value), o.Unit)
	}
	return text
}

// said is the verdict and what was found, for who opens the suite.
func said(d *diagnose.Diagnosis) string {
	lines := []string{Verdict(d)}
	for _, f := range d.Findings {
		lines = append(lines, fmt.Sprintf("%s (%s): %s", f.ID, f.Grade, f.Summary))
	}
	for _, u := range d.NotAssessed {
		lines = append(lines, fmt.Sprintf("%s: not assessed: %s", u.ID, u.Missing))
	}
	return strings.Join(lines, "\n")
}

// factsOf is what a run was, in names and values.
func factsOf(r Result) [][2]string {
	m := r.Meta
	var facts [][2]string
	add := func(name, value string) {
		if value != "" && value != "0" {
			facts = append(facts, [2]string{name, value})
		}
	}
	add("run", r.Diagnosis.Run)
	add("kubernetes", m.Cluster.Version)
	add("profile", m.Cluster.Profile)
	add("nodes", fmt.Sprint(m.Nodes.Count))
	add("seeded-nodes", fmt.Sprint(m.Nodes.Seeded))
	add("pods", fmt.Sprint(r.Diagnosis.Pods.Expected))
	add("settings", strings.Join(m.Settings, " "))
	add("machine", m.Machine.Model)
	add("cpus", fmt.Sprint(m.Machine.CPUs))
	add("kernel", m.Machine.Kernel)
	add("kubedyno", m.Tool)
	return facts
}

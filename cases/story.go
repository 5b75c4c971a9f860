package cases

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// StorySchema is the version of a story's JSON form.
const StorySchema = 1

// The files of a story, in the folder of a case's recordings.
const (
	StoryFile = "story.json"
	TextFile  = "story.md"
)

// A Story is what a case's runs said, beside what its authors did.
type Story struct {
	Schema  int    `json:"schema"`
	Case    string `json:"case"`
	Title   string `json:"title"`
	Source  string `json:"source"`
	Asked   string `json:"asked"`
	Found   string `json:"found"`
	Rebuilt string `json:"rebuilt"`
	// Quick says what was left out, where it was a quick run.
	Quick string `json:"quick,omitempty"`
	// Changed is what was put in place of what the case has, by hand.
	Changed []string `json:"changed,omitempty"`

	Date       time.Time `json:"date"`
	Minutes    float64   `json:"minutes"` // that its runs took, those that count, whenever they were made
	Machine    string    `json:"machine"`
	Tool       string    `json:"tool"`
	Kubernetes string    `json:"kubernetes"`

	Passed   bool      `json:"passed"`
	Verdicts []Verdict `json:"verdicts"`
	Numbers  []Row     `json:"numbers"`
	Arms     []Told    `json:"arms"`
	// Doubts are runs that do not count, and why.
	Doubts []string `json:"doubts,omitempty"`

	quick bool
}

// Told is an arm as it was run.
type Told struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Settings []string `json:"settings,omitempty"`
	Runs     []OneRun `json:"runs"`
	// NotRun says why there are none.
	NotRun string `json:"notRun,omitempty"`
	// Transcript is what `kubedyno diagnose` says of its first run.
	Transcript string `json:"transcript"`
}

// OneRun is one run of an arm.
type OneRun struct {
	Recording  string             `json:"recording"`
	Valid      bool               `json:"valid"`
	Findings   []string           `json:"findings"` // what they name, first to last
	Objectives []record.Objective `json:"objectives,omitempty"`
}

// Report is the name of the run's page.
func (r OneRun) Report() string {
	return "report-" + strings.ReplaceAll(r.Recording, string(filepath.Separator), "-") + ".html"
}

// Row is one number: the authors' and ours.
type Row struct {
	Row   string `json:"row"`
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Cells []Cell `json:"cells"`
}

// Cell is a number of one arm.
type Cell struct {
	Arm     string    `json:"arm"`
	Authors string    `json:"authors,omitempty"`
	Values  []float64 `json:"values,omitempty"` // one a run
	Median  *float64  `json:"median"`
	Missing string    `json:"missing,omitempty"`
}

func (c *Case) story(o Options) *Story {
	s := &Story{
		Schema: StorySchema, Case: c.Name, Title: c.Title, Source: c.Source, Asked: c.Asked, Found: c.Found, Rebuilt: c.Rebuilt,
		Date: o.Now().UTC(), Tool: o.Tool, quick: o.Quick,
	}
	if o.Quick {
		s.Quick = c.Quick
	}
	s.Changed = slices.Clone(o.By.Sets)
	for _, f := range o.By.Faults {
		s.Changed = append(s.Changed, "fault "+f)
	}
	for i := range c.Arms {
		a := &c.Arms[i]
		if a.runs(o.Quick) > 0 && of(o.Only, a.Name) {
			s.Arms = append(s.Arms, Told{Name: a.Name, Title: a.Title, Settings: a.Settings(o.Quick, o.By), Runs: []OneRun{}})
		}
	}
	return s
}

// add takes a run into the story.
func (s *Story) add(a *Arm, recording string, m record.Meta, d *diagnose.Diagnosis, transcript string) {
	s.Machine = machine(m.Machine)
	s.Kubernetes = m.Cluster.Version
	r := OneRun{Recording: recording, Valid: d.Valid, Findings: []string{}, Objectives: d.Objectives}
	for _, f := range d.Findings {
		r.Findings = append(r.Findings, found(f))
	}
	i := slices.IndexFunc(s.Arms, func(t Told) bool { return t.Name == a.Name })
	t := &s.Arms[i]
	if len(t.Runs) == 0 {
		t.Transcript = transcript
	}
	t.Runs = append(t.Runs, r)
}

func machine(m record.Machine) string {
	parts := []string{count(m.CPUs, "CPU")}
	if m.Model != "" {
		parts = append(parts, m.Model)
	}
	if m.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	return strings.Join(append(parts, cmp.Or(m.OS, "Linux")+" "+m.Kernel), ", ")
}

// judge holds the runs against what must come out.
// Arms that could not be run are not assessed, for the reason given.
func (s *Story) judge(c *Case, runs map[string][]Facts, not map[string]string) {
	s.Verdicts = c.Judge(runs, s.quick)
	for i, e := range c.Expect {
		for _, arm := range e.arms() {
			if why := not[arm]; why != "" {
				s.Verdicts[i].Outcome, s.Verdicts[i].Text = Unknown, why
			}
		}
	}
	for i := range s.Arms {
		s.Arms[i].NotRun = not[s.Arms[i].Name]
	}
	s.Passed = Passed(s.Verdicts)
	for _, n := range c.Numbers {
		row := Row{Row: n.Row, Name: n.Name, Unit: n.Unit()}
		for _, t := range s.Arms {
			cell := Cell{Arm: t.Name, Authors: n.Authors[t.Name]}
			xs, missing := values(runs[t.Name], &n.Measure)
			if missing != "" || len(xs) == 0 {
				cell.Missing = cmp.Or(missing, not[t.Name], "not run")
			} else {
				m := stat.Median(xs)
				cell.Values, cell.Median = xs, &m
			}
			row.Cells = append(row.Cells, cell)
		}
		s.Numbers = append(s.Numbers, row)
	}
}

// Write puts the story into a folder, as JSON and as text.
func (s *Story) Write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, StoryFile), append(data, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, TextFile), []byte(s.Markdown()), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the story: %w", err)
	}
	return nil
}

// ReadStory reads the story of a folder.
func ReadStory(dir string) (*Story, error) {
	data, err := os.ReadFile(filepath.Join(dir, StoryFile))
	if err != nil {
		return nil, fmt.Errorf("read the story: %w", err)
	}
	s := &Story{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read the story %s: %w", filepath.Join(dir, StoryFile), err)
	}
	if s.Schema != StorySchema {
		return nil, errors.New("this kubedyno does not know stories of schema " + fmt.Sprint(s.Schema))
	}
	return s, nil
}

// Verdict is the story in a word.
func (s *Story) Verdict() string {
	switch {
	case !s.Passed:
		return "NOT PASSED"
	case slices.ContainsFunc(s.Verdicts, func(v Verdict) bool { return v.Outcome == LeftOut }):
		return "PASSED, with what was run"
	}
	return "PASSED"
}

// Markdown is the story as a page of the documentation.
func (s *Story) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s\n", s.Title)
	line("<!-- Written by `kubedyno case run %s`; again with `kubedyno case story DIR`. -->\n", s.Case)
	line("%s\n", strings.TrimSpace(s.Asked))
	line("%s\n", strings.TrimSpace(s.Found))
	line("Told in: %s.\n", strings.TrimSpace(s.Source))
	line("## Run again\n")
	line("%s\n", strings.TrimSpace(s.Rebuilt))
	command := "kubedyno case run " + s.Case
	if s.Quick != "" {
		command += " --quick"
	}
	for _, c := range s.Changed {
		if f, ok := strings.CutPrefix(c, "fault "); ok {
			command += " --fault " + f
		} else {
			command += " --set " + c
		}
	}
	line("```sh\n%s\n```\n", command)
	line("%s, %.0f minutes on %s; Kubernetes %s, kubedyno %s.", s.Date.Format("2 January 2006"), s.Minutes, s.Machine, s.Kubernetes, s.Tool)
	if s.Quick != "" {
		line("A quick run: %s", strings.TrimSpace(s.Quick))
	}
	line("\n**%s**\n", s.Verdict())
	line("| | what must come out | arm | | what came out |\n|---|---|---|---|---|")
	for _, v := range s.Verdicts {
		line("| %s | %s | %s | %s | %s |", v.Row, cell(v.Says), v.Arm, v.Outcome, cell(v.Text))
	}
	for _, d := range s.Doubts {
		line("\n%s", d)
	}
	line("\n## Numbers, the authors' and ours\n")
	s.numbers(line)
	for _, t := range s.Arms {
		line("\n## %s: %s\n", t.Name, t.Title)
		if len(t.Settings) > 0 {
			line("Set: `%s`\n", strings.Join(t.Settings, "` `"))
		}
		if len(t.Runs) == 0 {
			line("Not assessed: %s.", t.NotRun)
			continue
		}
		line("| run | findings, first to last |\n|---|---|")
		for _, r := range t.Runs {
			text := strings.Join(r.Findings, "; ")
			if !r.Valid {
				text = "NOT VALID; " + text
			}
			line("| %s | %s |", r.Recording, cell(cmp.Or(text, "nothing")))
		}
		line("\n`kubedyno diagnose %s`, without what was not assessed and what was ruled out:\n\n```\n%s\n```", t.Runs[0].Recording, findingsOf(t.Transcript))
	}
	return b.String()
}

// numbers is the table of measures, a line for each arm that the authors or we have
// one of, and after it why others have none.
func (s *Story) numbers(line func(string, ...any)) {
	line("| | | arm | authors | here |\n|---|---|---|---:|---:|")
	var without []string
	for _, n := range s.Numbers {
		title, shown := fmt.Sprintf("%s, %s", cell(n.Name), n.Unit), n.Row
		arms := map[string][]string{} // by what is missing
		for _, c := range n.Cells {
			if c.Median == nil {
				arms[c.why()] = append(arms[c.why()], c.Arm)
				if c.Authors == "" {
					continue
				}
			}
			line("| %s | %s | %s | %s | %s |", shown, title, c.Arm, cell(cmp.Or(c.Authors, "–")), c.ours())
			title, shown = "", "" // said once
		}
		for _, why := range slices.Sorted(maps.Keys(arms)) {
			without = append(without, fmt.Sprintf("- %s %s: no number of %s (%s).", n.Row, cell(n.Name), strings.Join(arms[why], ", "), cell(why)))
		}
	}
	if len(without) > 0 {
		line("\n%s", strings.Join(without, "\n"))
	}
}

// ours is the median of the runs, with the least and the most.
func (c Cell) ours() string {
	switch {
	case c.Median == nil:
		return "–"
	case len(c.Values) < 2:
		return number(*c.Median)
	}
	return fmt.Sprintf("%s (%s to %s, n=%d)", number(*c.Median), number(slices.Min(c.Values)), number(slices.Max(c.Values)), len(c.Values))
}

// why is what is missing, whichever run it was that had none.
func (c Cell) why() string {
	if recording, reason, ok := strings.Cut(c.Missing, ": "); ok && strings.Contains(recording, "/"+c.Arm+"/") {
		return reason
	}
	return c.Missing
}

// findingsOf is what a diagnosis says up to what it did not find.
func findingsOf(transcript string) string {
	for _, head := range []string{"\nNot assessed\n", "\nRuled out\n"} {
		transcript, _, _ = strings.Cut(transcript, head)
	}
	return strings.TrimSpace(transcript)
}

// cell is a text that stays within its cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

package diagnosetest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
)

var update = flag.Bool("update", false, "rewrite what is expected below the dashes")

// Update says whether the test was started with -update, for other golden
// files of a package that uses this one.
func Update() bool { return *update }

// Files runs the cases of all files that match the pattern, each as a subtest
// named by its comment.
func Files(t *testing.T, pattern string, detectors []diagnose.Detector) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text, causes := heading(string(data))
		cases, err := split(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var out strings.Builder
		out.WriteString(string(data)[:len(data)-len(text)])
		for i, c := range cases {
			title := fmt.Sprintf("%s/%s", strings.TrimSuffix(filepath.ToSlash(name), ".txt"), c.title)
			got := ""
			t.Run(title, func(t *testing.T) {
				r, err := Parse(c.words)
				if err != nil {
					t.Fatal(err)
				}
				d, err := diagnose.Run(r, detectors)
				if err != nil {
					t.Fatal(err)
				}
				got = Describe(d, append(c.causes(), causes...)...)
				if c.inFull() {
					got += sentences(d)
				}
				if !*update && got != c.want {
					t.Errorf("%s:%d: diagnosis differs (run with -update and review)\n%s\n-- want --\n%s-- got --\n%s", name, c.line, c.words, c.want, got)
				}
			})
			if i > 0 {
				out.WriteString("\n")
			}
			fmt.Fprintf(&out, "%s----\n%s", c.words, got)
		}
		if *update {
			if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// about is the word that says which causes a file or a case is about: of others
// it is not said why they were ruled out or not assessed, so that a new detector
// does not change each case there is.
const about = "about "

// heading cuts a file's first line off where it says what all its cases are about.
func heading(text string) (rest string, causes []string) {
	first, rest, _ := strings.Cut(text, "\n\n")
	if list, ok := strings.CutPrefix(first, about); ok && !strings.Contains(list, "\n") {
		return rest, strings.Fields(list)
	}
	return text, nil
}

// causes are those that a case is about.
func (c testCase) causes() (all []string) {
	for line := range strings.Lines(c.words) {
		if list, ok := strings.CutPrefix(line, about); ok {
			all = append(all, strings.Fields(list)...)
		}
	}
	return all
}

// inFull says whether what users read of a finding belongs to what is expected.
func (c testCase) inFull() bool {
	return slices.Contains(strings.Split(c.words, "\n"), "in full")
}

type testCase struct {
	title, words, want string
	line               int
}

// split cuts a file into cases: words, dashes, diagnosis, blank line.
func split(text string) ([]testCase, error) {
	var cases []testCase
	var c testCase
	inWant := false
	finish := func() {
		if strings.TrimSpace(c.words) != "" {
			cases = append(cases, c)
		}
		c, inWant = testCase{}, false
	}
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "----":
			if inWant {
				return nil, fmt.Errorf("line %d: a second ---- without a blank line between", i+1)
			}
			inWant = true
		case inWant && strings.TrimSpace(line) == "":
			finish()
		case inWant:
			c.want += line + "\n"
		case strings.TrimSpace(line) == "" && c.words == "":
		default:
			if c.words == "" {
				c.line = i + 1
			}
			if c.title == "" {
				c.title = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			}
			c.words += line + "\n"
		}
	}
	if c.words != "" && !inWant {
		return nil, fmt.Errorf("the last case has no ----")
	}
	finish()
	return cases, nil
}

// Describe writes a diagnosis as a few lines that a reviewer can judge:
// whether it is valid, each finding with its grade and advice, and which of the
// named causes were ruled out or not assessed.
func Describe(d *diagnose.Diagnosis, causes ...string) string {
	var b strings.Builder
	if !d.Valid {
		fmt.Fprintf(&b, "NOT VALID: %s\n", strings.Join(d.InvalidReasons, "; "))
	}
	fmt.Fprintf(&b, "%s pods/s", rate(d))
	for _, s := range d.Stages {
		if s.Share != nil && *s.Share >= 0.05 {
			fmt.Fprintf(&b, ", %s %.0f%%", s.Name, 100**s.Share)
		}
	}
	if d.Unsplit != nil {
		fmt.Fprintf(&b, ", %s %.0f%%", strings.Join(d.Unsplit.Stages, "+"), 100*d.Unsplit.Share)
	}
	b.WriteString("\n")
	if len(d.Findings) == 0 {
		b.WriteString("nothing found\n")
	}
	for _, f := range d.Findings {
		effect := fmt.Sprintf("explains %.0f%%", 100*f.Explains)
		if f.MissingShare > 0 {
			effect = fmt.Sprintf("explains %.0f%% of the pods that never ran", 100*f.MissingShare)
		}
		if f.RequestShare > 0 {
			effect += fmt.Sprintf(" and %.0f%% of slow requests", 100*f.RequestShare)
		}
		if f.Class == diagnose.Waste || f.Class == diagnose.Risk {
			effect = "costs nothing that is known"
			if f.Cost != nil {
				effect = "costs " + f.Cost.String()
			}
		}
		fmt.Fprintf(&b, "%s %s, %s, %s: %s\n", f.Class, strings.Join(strings.Fields(f.Component+" "+f.Stage+" "+f.Resource), " "), f.Grade, effect, f.Cause)
		if len(f.Advice.Set) > 0 {
			fmt.Fprintf(&b, "  set %s\n", settings(f.Advice.Set))
		}
		for _, x := range f.Advice.Dose {
			fmt.Fprintf(&b, "  dose %s: %.0f pods/s\n", settings(x.Set), x.PredictRate)
		}
		if f.Prediction != nil {
			fmt.Fprintf(&b, "  next %s, %.0f pods/s\n", f.Prediction.Resource, f.Prediction.Rate)
		}
	}
	for _, x := range d.NotAssessed {
		if !slices.Contains(causes, x.ID) {
			continue
		}
		fmt.Fprintf(&b, "not assessed %s: %s\n", x.ID, x.Missing)
	}
	for _, x := range d.RuledOut {
		if !slices.Contains(causes, x.ID) {
			continue
		}
		fmt.Fprintf(&b, "ruled out %s: %s\n", x.ID, x.Why)
	}
	return b.String()
}

// sentences are each finding's first ones, and what it advises.
func sentences(d *diagnose.Diagnosis) string {
	var b strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "says: %s\ndo: %s\n", f.Summary, f.Advice.Text)
	}
	return b.String()
}

func rate(d *diagnose.Diagnosis) string {
	if d.Throughput == nil {
		return "?"
	}
	return fmt.Sprintf("%.1f", d.Throughput.Mean)
}

func settings(set map[string]string) string {
	var s []string
	for k, v := range set {
		s = append(s, k+"="+v)
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

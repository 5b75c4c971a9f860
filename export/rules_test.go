package export

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/kept"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var update = flag.Bool("update", false, "write testdata anew")

// beside are metrics that no detector reads: the audit log, /proc and cgroups
// tell it what Prometheus has from elsewhere.
var beside = map[string]string{
	"apiserver_request_total":                   "the audit log",
	"process_cpu_seconds_total":                 "/proc",
	"container_cpu_cfs_periods_total":           "cgroups",
	"container_cpu_cfs_throttled_periods_total": "cgroups",
}

// metrics are the names that an expression selects by.
func metrics(t *testing.T, expr string) []string {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var names []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok && !slices.Contains(names, v.Name) {
			names = append(names, v.Name)
		}
		return nil
	})
	slices.Sort(names)
	return names
}

func TestRulesReadWhatDetectorsRead(t *testing.T) {
	used := map[string]bool{}
	for _, r := range Rules {
		for _, m := range metrics(t, r.expr(Defaults)) {
			used[m] = true
			if !slices.Contains(diagnose.Metrics, m) && beside[m] == "" {
				t.Errorf("%s asks for %s, which no detector reads", r.Alert, m)
			}
		}
	}
	for m := range beside {
		if !used[m] || slices.Contains(diagnose.Metrics, m) {
			t.Errorf("%s needs no exception", m)
		}
	}
}

func TestEachDetectorHasARuleOrAReason(t *testing.T) {
	ruled := map[string]bool{}
	for _, r := range Rules {
		ruled[r.Detector] = true
	}
	known := map[string]bool{}
	for _, d := range detectors.All {
		known[d.Name] = true
		if ruled[d.Name] == (Unsaid[d.Name] != "") {
			t.Errorf("%s: rule %v, reason for none %q", d.Name, ruled[d.Name], Unsaid[d.Name])
		}
	}
	for _, r := range Rules {
		if !known[r.Detector] {
			t.Errorf("%s is of %s, which is no detector", r.Alert, r.Detector)
		}
	}
	for d := range Unsaid {
		if !known[d] {
			t.Errorf("%s is no detector", d)
		}
	}
}

func TestRulesLoad(t *testing.T) {
	for _, o := range []Options{Defaults, {Window: 10 * time.Second}} {
		var b bytes.Buffer
		if err := WriteRules(&b, o); err != nil {
			t.Fatal(err)
		}
		groups, errs := rulefmt.Parse(b.Bytes(), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatalf("%v\n%s", errs, b.String())
		}
		n := 0
		seen := map[string]bool{}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				n++
				if seen[r.Alert] {
					t.Errorf("%s is there twice", r.Alert)
				}
				seen[r.Alert] = true
				for _, label := range []string{"severity", "detector", "component"} {
					if r.Labels[label] == "" {
						t.Errorf("%s has no label %s", r.Alert, label)
					}
				}
				for _, a := range []string{"summary", "description", "command"} {
					if r.Annotations[a] == "" {
						t.Errorf("%s has no annotation %s", r.Alert, a)
					}
				}
				if time.Duration(r.For) != o.For {
					t.Errorf("%s lasts %v, want %v", r.Alert, r.For, o.For)
				}
			}
		}
		if n != len(Rules) {
			t.Errorf("%d rules of %d", n, len(Rules))
		}
	}
	if err := WriteRules(&bytes.Buffer{}, Options{Window: 1500 * time.Millisecond}); err == nil {
		t.Error("a window of one and a half seconds was taken")
	}
}

// The tests that users get are run as promtool runs them: an alert fires when
// its expression had an answer at each evaluation for as long as it asks.
func TestRulesFire(t *testing.T) {
	exprs := map[string]string{}
	for _, r := range Rules {
		exprs[r.Alert] = r.expr(Defaults)
	}
	var b bytes.Buffer
	if err := WriteTests(&b, "rules.yaml", Defaults); err != nil {
		t.Fatal(err)
	}
	var f testFile
	if err := yaml.Unmarshal(b.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Tests) != 2*len(Rules) {
		t.Fatalf("%d tests of %d rules", len(f.Tests), len(Rules))
	}
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	for _, c := range f.Tests {
		t.Run(c.Name, func(t *testing.T) {
			load := "load " + c.Interval + "\n"
			for _, s := range c.Input {
				load += "  " + s.Series + " " + s.Values + "\n"
			}
			store := promqltest.LoadedStorage(t, load)
			alert, _, _ := strings.Cut(c.Name, " ")
			at, step := duration(t, c.Exprs[0].At), duration(t, f.Interval)
			lasted := time.Duration(-1)
			for now := time.Duration(0); now <= at; now += step {
				q, err := engine.NewInstantQuery(context.Background(), store, nil, exprs[alert], time.Unix(0, 0).Add(now))
				if err != nil {
					t.Fatal(err)
				}
				res := q.Exec(context.Background())
				v, err := res.Vector()
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case len(v) == 0:
					lasted = -1
				case lasted < 0:
					lasted = 0
				default:
					lasted += step
				}
				q.Close()
			}
			if fires := lasted >= Defaults.For; fires != (len(c.Exprs[0].Samples) == 1) {
				t.Errorf("it was true for %v at last; %d alerts wanted", lasted, len(c.Exprs[0].Samples))
			}
		})
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d)
}

// What fires over recordings of real runs: the alerts of what a diagnosis found
// must be among them wherever the recording has their metrics, and over a
// healthy one none may be.
func TestRulesOverRecordings(t *testing.T) {
	o := Options{Window: 12 * time.Second} // two scrapes of the largest answers, at least
	file := filepath.Join("testdata", "recordings.txt")
	want, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	before, name := map[string]string{}, ""
	for line := range strings.Lines(string(want)) {
		if !strings.HasPrefix(line, " ") {
			name = strings.TrimSpace(line)
		}
		before[name] += line
	}
	if len(before) < 10 && !*update {
		t.Fatalf("%s has %d recordings", file, len(before))
	}
	var all strings.Builder
	for _, packed := range recordtest.Kept(t) {
		name := kept.Name(packed)
		got := name + "\n" + strings.Join(fires(t, packed, o), "")
		all.WriteString(got)
		// One that was kept since must only hold to what its diagnosis found.
		if w := before[name]; !*update && w != "" && got != w {
			t.Errorf("got %s, %s has %s", got, file, w)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// told are findings of which no metric tells: the log of requests does, by client.
var told = map[string]string{"large-objects-among-small-ones": "large-objects"}

// fires are the alerts that fire while a recording's load is on, a line each.
func fires(t *testing.T, packed string, o Options) (lines []string) {
	t.Helper()
	rec := recordtest.Open(t, recordtest.Unpack(t, kept.Name(packed)))
	diagnosis, err := os.ReadFile(strings.TrimSuffix(packed, kept.Ext) + ".want")
	if err != nil {
		t.Fatal(err)
	}
	steady, ok := rec.Steady()
	if !ok { // the run failed before
		steady = record.Window{Start: rec.Meta().Started, End: rec.Meta().Ended}
	}
	// What was before the load is not its own: a cluster that starts lists
	// everything. Of loads that are shorter than the window the end is looked at.
	w := record.Window{Start: steady.Start.Add(o.Window), End: steady.End.Add(2 * time.Second)}
	if w.Start.After(steady.End) {
		w.Start = steady.End
	}
	silent, spoke := map[string]string{}, map[string]bool{} // by detector: some have an alert for each of their ways
	for _, r := range Rules {
		m, err := rec.QueryRange(r.expr(o), w, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range m {
			n = max(n, len(s.Points))
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("  %s (%s)\n", r.Alert, r.Detector))
		}
		if found := strings.Contains(string(diagnosis), "\nfound "+r.Detector+":"); found && n == 0 && has(t, rec, r.expr(o), w) && moves(t, rec, r.expr(o), w, o.Window) {
			silent[r.Detector] = r.Alert
		}
		spoke[r.Detector] = spoke[r.Detector] || n > 0
		if n > 0 && strings.HasPrefix(kept.Name(packed), "healthy") {
			t.Errorf("%s: %s fires", packed, r.Alert)
		}
	}
	for detector, alert := range silent {
		if !spoke[detector] && told[kept.Name(packed)] != detector {
			t.Errorf("%s: a diagnosis found %s, and %s is silent", packed, detector, alert)
		}
	}
	return lines
}

// has says whether a recording has series for all that an expression selects.
func has(t *testing.T, rec *record.Recording, expr string, w record.Window) bool {
	t.Helper()
	return all(t, rec, expr, w, w.End.Sub(w.Start), func(n parser.Node) string {
		if v, ok := n.(*parser.VectorSelector); ok {
			return "count(" + v.String() + ")"
		}
		return ""
	})
}

// moves says whether the counters that an expression selects moved while rules looked:
// an alert is about what goes on, and a diagnosis also about what was over in a moment.
func moves(t *testing.T, rec *record.Recording, expr string, w record.Window, least time.Duration) bool {
	t.Helper()
	looked := max(least, w.End.Sub(w.Start)).Milliseconds()
	return all(t, rec, expr, record.Window{Start: w.End, End: w.End}, time.Second, func(n parser.Node) string {
		if v, ok := n.(*parser.MatrixSelector); ok {
			return fmt.Sprintf("sum(changes(%s[%dms])) > 0", v.VectorSelector, looked)
		}
		return ""
	})
}

// all says whether what is asked about each part of an expression has an answer; parts
// about which the question is empty are not asked about.
func all(t *testing.T, rec *record.Recording, expr string, w record.Window, step time.Duration, ask func(parser.Node) string) bool {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	yes := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		question := ask(n)
		if question == "" || !yes {
			return nil
		}
		m, err := rec.QueryRange(question, w, step)
		if err != nil {
			t.Fatalf("%s: %v", question, err)
		}
		yes = len(m) > 0
		return nil
	})
	return yes
}

package export

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// A Rule is an alert for what a detector looks for, as far as metrics tell it.
type Rule struct {
	Alert     string
	Detector  string
	Severity  Severity
	Component string
	// Expr has the window of rates as [W].
	Expr string
	// Summary is Prometheus' template: {{ $value }} and {{ $labels.x }}.
	Summary string
	// Look is where to look, and what may look alike.
	Look string
	// Fires and Quiet are what the rule is tested with: series for which it
	// fires, and their look-alikes.
	Fires, Quiet []Line
}

// Severity is what an alert asks for.
type Severity string

const (
	Warning Severity = "warning" // somebody waits
	Info    Severity = "info"    // waste, or a risk
)

// A Line is a series of a test.
type Line struct {
	Series string
	Rate   float64 // a counter's growth in a second
	Level  float64 // a gauge's value, where Rate is 0
}

// Options of the rules.
type Options struct {
	Window time.Duration // of rates: at least four scrapes
	For    time.Duration // that a condition must last
}

// Defaults suit a cluster that is scraped every 15 to 60 s.
var Defaults = Options{Window: 5 * time.Minute, For: 10 * time.Minute}

// ErrOptions is returned for options that nothing can be made with.
var ErrOptions = errors.New("cannot be made")

func (o Options) check() error {
	if o.Window < time.Second || o.Window%time.Second != 0 {
		return fmt.Errorf("rules with a window of %v %w: want whole seconds, one at least", o.Window, ErrOptions)
	}
	if o.For < 0 || o.For%time.Second != 0 {
		return fmt.Errorf("rules for what lasts %v %w: want whole seconds", o.For, ErrOptions)
	}
	return nil
}

// expr is the rule's expression with its window.
func (r Rule) expr(o Options) string {
	return strings.ReplaceAll(strings.TrimSpace(r.Expr), "[W]", "["+model.Duration(o.Window).String()+"]")
}

type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string      `yaml:"name"`
	Rules []alertRule `yaml:"rules"`
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// WriteRules writes a file of rules for Prometheus: a group for each component.
func WriteRules(w io.Writer, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	var f ruleFile
	for _, r := range Rules {
		name := "kubedyno-" + strings.ReplaceAll(r.Component, " ", "-")
		i := slices.IndexFunc(f.Groups, func(g ruleGroup) bool { return g.Name == name })
		if i < 0 {
			i = len(f.Groups)
			f.Groups = append(f.Groups, ruleGroup{Name: name})
		}
		a := alertRule{
			Alert: r.Alert, Expr: r.expr(o),
			Labels: map[string]string{"severity": string(r.Severity), "detector": r.Detector, "component": r.Component},
			Annotations: map[string]string{
				"summary":     r.Summary,
				"description": r.Look,
				"command":     "kubedyno record --kubeconfig FILE --for 1m --out r; kubedyno diagnose r",
			},
		}
		if o.For > 0 {
			a.For = model.Duration(o.For).String()
		}
		f.Groups[i].Rules = append(f.Groups[i].Rules, a)
	}
	return writeYAML(w, "Alert rules for Prometheus, made by 'kubedyno export rules'. What each detector looks for, and what may look\nalike, is in docs/detectors.md.", f)
}

type testFile struct {
	RuleFiles []string   `yaml:"rule_files"`
	Interval  string     `yaml:"evaluation_interval"`
	Tests     []ruleTest `yaml:"tests"`
}

type ruleTest struct {
	Name     string       `yaml:"name"`
	Interval string       `yaml:"interval"`
	Input    []testSeries `yaml:"input_series"`
	Exprs    []exprTest   `yaml:"promql_expr_test"`
}

type testSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type exprTest struct {
	Expr    string       `yaml:"expr"`
	At      string       `yaml:"eval_time"`
	Samples []testSample `yaml:"exp_samples"`
}

type testSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// WriteTests writes unit tests of the rules for 'promtool test rules', which
// finds the rules in the file named.
func WriteTests(w io.Writer, rules string, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	step := max(time.Second, (o.Window / 10).Truncate(time.Second))
	n := int((o.Window+o.For)/step) + 2
	interval := model.Duration(step).String()
	at := model.Duration(time.Duration(n) * step).String()
	f := testFile{RuleFiles: []string{rules}, Interval: interval}
	for _, r := range Rules {
		firing := fmt.Sprintf(`count by (alertname) (ALERTS{alertname=%q,alertstate="firing"})`, r.Alert)
		for _, c := range []struct {
			name  string
			lines []Line
			want  []testSample
		}{
			{r.Alert + " fires", r.Fires, []testSample{{fmt.Sprintf("{alertname=%q}", r.Alert), 1}}},
			{r.Alert + " is silent", r.Quiet, []testSample{}},
		} {
			t := ruleTest{Name: c.name, Interval: interval, Exprs: []exprTest{{Expr: firing, At: at, Samples: c.want}}}
			for _, l := range c.lines {
				t.Input = append(t.Input, l.over(step, n))
			}
			f.Tests = append(f.Tests, t)
		}
	}
	return writeYAML(w, "Tests of the rules of 'kubedyno export rules', for 'promtool test rules'.", f)
}

// over is a line as promtool writes it, from 0 on.
func (l Line) over(step time.Duration, n int) testSeries {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 12, 64) }
	if l.Rate != 0 {
		return testSeries{l.Series, fmt.Sprintf("0+%sx%d", number(l.Rate*step.Seconds()), n)}
	}
	return testSeries{l.Series, fmt.Sprintf("%s+0x%d", number(l.Level), n)}
}

func writeYAML(w io.Writer, about string, v any) error {
	for _, line := range strings.Split(about, "\n") {
		if _, err := fmt.Fprintln(w, "# "+line); err != nil {
			return err
		}
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return err
	}
	return e.Close()
}

package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/stat"
)

func sweptCell(value, ratio, lo, hi float64, v compare.Verdict) compare.SweepCell {
	c := compare.SweepCell{Estimate: compare.Estimate{Value: &value, N: 5}, Verdict: v}
	if v != "" {
		c.Ratio, c.Shift = &ratio, &stat.Interval{Lo: lo, Hi: hi, Level: 0.95}
	}
	return c
}

func swept(better compare.Verdict) compare.Sweep {
	within := 0.041
	return compare.Sweep{
		Schema: compare.SweepSchema, Name: "density", Planned: 5, Made: 5, Alpha: 0.05, Warnings: []string{},
		Axes: []compare.Axis{{Path: "etcd.args.snapshot-count", Values: []string{compare.Unset, "500", "<100000>"}}},
		Points: []compare.SweepPoint{
			{Name: "default", Values: []string{compare.Unset}, Against: -1}, {Name: "500", Values: []string{"500"}}, {Name: "<100000>", Values: []string{"<100000>"}},
		},
		Checks: []compare.KnobCheck{{Path: "etcd.args.snapshot-count", What: "snapshots that etcd took", Effect: compare.Acted, Why: "from 0 to 38", ByPoint: []string{"2", "38 (37…40)", "0"}}},
		Rows: []compare.Sweeps{{ID: "cpu.total", Group: compare.CPU, Name: "control plane, all components", Unit: "ms/pod", Lower: true, Ratios: true, Within: &within,
			Fit:   &compare.Fit{Kind: "power", Slope: 0.003, Interval: stat.Interval{Lo: -0.01, Hi: 0.02}, R2: 0.1, N: 5, Points: 2},
			Cells: []compare.SweepCell{sweptCell(52.1, 1, 0, 0, ""), sweptCell(53, 1.01, 0.98, 1.04, compare.Same), sweptCell(40, 0.8, 0.7, 0.96, better)}}},
	}
}

// A sweep says what it is worth before it says its numbers: whether the setting
// acted, how large an effect may still be, and what that means.
func TestSweepReports(t *testing.T) {
	best := swept(compare.Better)
	best.Best = &compare.Best{Point: 2, Row: "cpu.total", Reason: "control plane ×0.8, and worse in nothing"}
	idle := swept(compare.Same)
	idle.Checks[0].Effect, idle.Checks[0].Why = compare.DidNotAct, "0 at every value"
	price := swept(compare.Better)
	price.Prices = []string{"<100000> is better in CPU, and worse in startup"}
	worse := swept(compare.Worse)
	for name, test := range map[string]struct {
		s    compare.Sweep
		says []string
	}{
		"nothing": {swept(compare.Same), []string{"No detectable effect of etcd.args.snapshot-count: ± 4.1 % on control plane", "snapshots that etcd took: yes: from 0 to 38", "in 95 of 100 sweeps", "no slope that these runs can show", "n=5", "●"}},
		"best":    {best, []string{"Best: <100000>: control plane ×0.8", "40 +"}},
		"idle":    {idle, []string{"Not assessed: etcd.args.snapshot-count did not act: snapshots that etcd took: 0 at every value"}},
		"price":   {price, []string{"No value of etcd.args.snapshot-count is only better than the default", "is better in CPU, and worse in startup"}},
		"worse":   {worse, []string{"is better than the default; some are worse", "40 -"}},
	} {
		t.Run(name, func(t *testing.T) {
			var text, markdown, data bytes.Buffer
			for format, b := range map[string]*bytes.Buffer{"text": &text, Markdown: &markdown, "json": &data} {
				if err := WriteSweep(b, Options{Format: format, Width: 200}, test.s); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range test.says {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			if !strings.Contains(markdown.String(), "| &lt;100000&gt; | 0 | 40 ×0.8 (0.7…0.96)") || strings.Contains(markdown.String(), "<100000>") {
				t.Errorf("%s", markdown.String())
			}
			var back compare.Sweep
			if err := json.Unmarshal(data.Bytes(), &back); err != nil || len(back.Rows) != 1 || *back.Rows[0].Cells[2].Ratio != 0.8 {
				t.Errorf("%v\n%s", err, data.String())
			}
		})
	}
}

func TestForest(t *testing.T) {
	for want, x := range map[string][3]float64{
		"            ●": {0, 0, 0},
		"────────────┼─●─────────": {-1, 0.17, 0.9},
		"            │   ──●──":    {0.3, 0.5, 0.7},
	} {
		if got := forest(x[0], x[1], x[2]); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}

// Runs in turns say how they ended, and what of their error was left.
func TestTurnsText(t *testing.T) {
	got := TurnsText(compare.Turns{Planned: 10, Made: 6, Alpha: 0.05, Looks: 3, Ended: "throughput differs"})
	for _, want := range []string{"6 of 10 pairs of runs, in turns; ended since throughput differs", "looked at 3 times", "at most 5 %"} {
		if !strings.Contains(got, want) {
			t.Error(got)
		}
	}
}

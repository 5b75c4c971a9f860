package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/analysis/use"
)

func TestSpikesInWords(t *testing.T) {
	for _, c := range []struct {
		row  spikes.Row
		want string
	}{
		{
			spikes.Row{What: spikes.Command, Name: "kubectl apply --prune", Kind: spikes.Repeats, Period: 5.0004, PeriodError: 0.0003, Each: 0.3, Count: 60, Executions: 60, First: 2.37, Share: 0.06, OfSpikes: 0.58},
			"every 5.00 s: kubectl apply --prune, 0.30 CPU-s each, 60 times from second 2.4 on, costs 6.0 % of a core; 58 % of the machine's spikes fall on it",
		},
		{
			spikes.Row{What: spikes.Process, Name: "etcd", PID: 7, Kind: spikes.Repeats, Period: 30.2, PeriodError: 0.21, Each: 0.05, Count: 9, Share: 0.0017, OfSpikes: -1, MaybeFaster: true},
			"every 30.2 s ± 0.2: etcd (PID 7), 0.050 CPU-s each, 9 times from second 0.0 on, costs 0.2 % of a core; may be the shadow of something faster than every 2 s",
		},
		{
			spikes.Row{What: spikes.Machine, Name: "machine", Kind: spikes.Spikes, Count: 1, Each: 2, Total: 2, First: 17, OfSpikes: -1},
			"1 spike of machine, 2.00 CPU-s each, 2.00 in all, first at second 17.0",
		},
		{
			spikes.Row{What: spikes.Command, Name: "evil\x1b[2J", Kind: spikes.Spikes, Count: 2, Each: 1, Total: 2, OfSpikes: 0},
			`2 executions of evil\x1b[2J, 1.00 CPU-s each, 2.00 in all, first at second 0.0; no period`,
		},
	} {
		if got := sentence(c.row); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestParseShare(t *testing.T) {
	for s, want := range map[string]float64{"0.5%": 0.005, "5 %": 0.05, "0.01": 0.01} {
		if got, err := parseShare(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1%", "0", "NaN", "Inf"} {
		if got, err := parseShare(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

// A column is the highest of its seconds; a second that was not read is blank.
func TestCPULine(t *testing.T) {
	res := spikes.Result{Seconds: []float64{0, 1, 2, 5}, Cores: []float64{0, 1, 0.5, 2}, Marks: []bool{false, false, false, true}}
	line, marks := cpuLine(res, 80)
	if line != "▁▅▃  █" || marks != "     ^" {
		t.Errorf("%q\n%q", line, marks)
	}
	if line, _ = cpuLine(res, 2); utf8.RuneCountInString(line) != 2 {
		t.Errorf("%q", line)
	}
	if line, _ = cpuLine(spikes.Result{}, 10); line != "" {
		t.Errorf("%q", line)
	}
}

// However long the names, a line of the checklist fits 120 columns.
func TestChecklistFits(t *testing.T) {
	long := strings.Repeat("very-long-name-", 10)
	var checks []use.Check
	for _, th := range use.Thresholds {
		checks = append(checks, use.Check{Resource: th.Resource, Instance: long, Aspect: th.Aspect, Kind: th.Kind, ID: th.ID, Unit: th.Unit, Watch: th.Watch, Bad: th.Bad, Value: 0.123, Verdict: use.Saturated, Detail: long})
		checks = append(checks, use.Check{Resource: th.Resource, Instance: long, Kind: th.Kind, ID: th.ID, Unit: th.Unit, Value: -1, Verdict: use.NotMeasurable, Reason: long})
	}
	env := testEnv()
	var out bytes.Buffer
	env.Stdout = &out
	if err := printChecks(env, checks, []string{""}, nil, nil, "text"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(checks)+2 {
		t.Errorf("%d lines for %d checks", len(lines), len(checks))
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 120 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

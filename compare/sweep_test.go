package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

func TestParseAxis(t *testing.T) {
	for text, want := range map[string]string{
		"etcd.args.snapshot-count=500,1000": "etcd.args.snapshot-count: 500 1000",
		"a=1..100000:log:6":                 "a: 1 10 100 1000 10000 100000",
		"a=10..1000:log:5":                  "a: 10 32 100 316 1000",
		"a=1..3:log:5":                      "a: 1 2 3",
		"a=0..1:lin:5":                      "a: 0 1", // whole numbers, as the ends are
		"etcd.cpu=0.5..2.0:lin:4":           "etcd.cpu: 0.5 1 1.5 2",
		"a=default,1..4:lin:4,9":            "a: default 1 2 3 4 9",
	} {
		a, err := ParseAxis(text)
		if got := a.Path + ": " + strings.Join(a.Values, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "a=", "=1", "a=1,,2", "a=1,1", "a=1..", "a=1..2", "a=2..1:log:3", "a=0..5:log:3", "a=1..5:cubic:3", "a=1..5:lin:1", "a=1..5:lin:x", "a=1..NaN:lin:3", "a=1..500:lin:400"} {
		if a, err := ParseAxis(text); err == nil || text != "a=1,1" && !errors.Is(err, ErrAxis) {
			t.Errorf("%s: %v, %v", text, a, err)
		}
	}
}

// Each combination is there once, and is compared with the reference of the
// first axis at the same values of all others.
func TestPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var axes []Axis
		n := 1
		for i := range rapid.IntRange(1, 3).Draw(t, "axes") {
			a := Axis{Path: fmt.Sprint("a", i)}
			for v := range rapid.IntRange(1, 4).Draw(t, "values") {
				a.Values = append(a.Values, fmt.Sprint(v))
			}
			axes = append(axes, a)
			n *= len(a.Values)
		}
		reference := rapid.SampledFrom(axes[0].Values).Draw(t, "reference")
		points, err := Points(axes, reference)
		if err != nil || len(points) != n {
			t.Fatalf("%d points, %v, want %d", len(points), err, n)
		}
		names := map[string]bool{}
		for _, p := range points {
			names[p.Name] = true
			if (p.Against < 0) != (p.Values[0] == reference) {
				t.Fatalf("%+v", p)
			}
			if p.Against >= 0 {
				if q := points[p.Against]; q.Values[0] != reference || !slices.Equal(q.Values[1:], p.Values[1:]) {
					t.Fatalf("%+v against %+v", p, q)
				}
			}
		}
		if len(names) != n {
			t.Fatal("two points have one name")
		}
	})
	if _, err := Points([]Axis{{"a", []string{"1"}}}, "2"); err == nil {
		t.Error("a reference that is no value")
	}
}

// swept is a sweep of 3 values over 4 blocks, drawn from real runs without a
// difference; planted multiplies an indicator at a point.
func (p pool) swept(rng *rand.Rand, planted map[string]map[int]float64) Sweep {
	axes := []Axis{{"x", []string{"1", "10", "100"}}}
	points, _ := Points(axes, "1")
	s := Sweep{Schema: SweepSchema, Name: "density", Axes: axes, Points: points, Planned: 4, Made: 4, Alpha: 0.05, Warnings: []string{},
		Checks: []KnobCheck{{Path: "x", What: "what it does", Effect: NotAssessed, Why: "no check is known"}}}
	runs := rng.Perm(len(p.Rows[0].Values))[:12]
	for _, row := range p.Rows {
		if row.Group != User && row.Group != Rate && row.Group != CPU {
			continue
		}
		r := Sweeps{ID: row.ID, Group: row.Group, Name: row.Name, Unit: row.Unit, Lower: row.LowerIsBetter, Ratios: true}
		for point := range points {
			c := SweepCell{}
			for b := range 4 {
				x := row.Values[runs[3*b+point]]
				if by, ok := planted[row.ID][point]; ok {
					x *= by
				}
				c.Values, c.byRun, c.N = append(c.Values, x), append(c.byRun, x), c.N+1
			}
			m := slices.Sorted(slices.Values(c.Values))
			c.Value = &m[1]
			r.Cells = append(r.Cells, c)
		}
		s.Rows = append(s.Rows, r)
	}
	s.test(nil, Options{}.filled())
	s.fit()
	s.name()
	return s
}

func (s Sweep) row(id string) Sweeps {
	return s.Rows[slices.IndexFunc(s.Rows, func(r Sweeps) bool { return r.ID == id })]
}

// On real runs without a difference sweeps find nothing and name nothing, bar one
// in twenty; what is planted is found, and named best only where it is.
func TestSweepOnRealRuns(t *testing.T) {
	p := healthy(t)
	rng := rand.New(rand.NewPCG(91, 1))
	const trials = 40
	wrong, named, slopes := 0, 0, 0
	for range trials {
		s := p.swept(rng, nil)
		if s.Differs() {
			wrong++
		}
		if s.Best != nil {
			named++
		}
		if slices.ContainsFunc(s.Rows, func(r Sweeps) bool { return r.Fit != nil && r.Fit.Trend() }) {
			slopes++
		}
		if w := s.row("cpu.total").Within; w == nil || *w <= 0 {
			t.Fatalf("nothing is said of how large an effect may be: %+v", s.row("cpu.total"))
		}
	}
	t.Logf("of %d sweeps %d find something, %d name a best value, %d have a slope", trials, wrong, named, slopes)
	if wrong > 6 || named > wrong || slopes > 6 { // 2 are expected, and 3 deviations more are 6
		t.Errorf("of %d sweeps without an effect %d find something, %d name a best value, %d have a slope", trials, wrong, named, slopes)
	}
	best, priced := 0, 0
	for range 10 {
		s := p.swept(rng, map[string]map[int]float64{"cpu.total": {1: 0.3, 2: 0.1}})
		if s.Best != nil && s.Best.Row == "cpu.total" && s.Best.Point == 2 {
			best++
		}
		if f := s.row("cpu.total").Fit; f == nil || f.Kind != "power" || !f.Trend() || f.Interval.Lo > -0.5 || f.Interval.Hi < -0.5 {
			t.Errorf("the exponent is -0.5: %+v", f)
		}
		s = p.swept(rng, map[string]map[int]float64{"cpu.total": {2: 0.1}, "intent.last": {2: 20}})
		if (s.Best == nil || s.Best.Point != 2) && len(s.Prices) == 1 && strings.Contains(s.Prices[0], "x=100 is better in control plane, all components, and worse in intent latency, last") {
			priced++
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	}
	if best < 8 { // in one of 20 something else is worse by chance
		t.Errorf("a tenth of the CPU is best in %d of 10 sweeps", best)
	}
	if priced < 8 { // four blocks do not always show what is twenty times as slow
		t.Errorf("what has a price is told of in %d of 10 sweeps", priced)
	}
	// What did not act has no best value, whatever the numbers are.
	s := p.swept(rng, nil)
	s.Checks[0].Effect = DidNotAct
	for i := range s.Rows {
		s.Rows[i].Cells[2].Verdict = Better
	}
	s.Best = nil
	s.name()
	if s.Best != nil || s.ActedAtAll() {
		t.Errorf("a setting that did not act has a best value: %+v", s.Best)
	}
}

// Whole sweeps of recordings: runs that are missing, and what is not measured.
func TestSweepRuns(t *testing.T) {
	axes := []Axis{{"phases.load.create.rate", []string{"a", "b"}}}
	points, _ := Points(axes, "a")
	one := recordtest.Open(t, recordtest.Unpack(t, "healthy-5-per-second"))
	two := recordtest.Open(t, recordtest.Unpack(t, "scheduler-limit-15"))
	of := [][]diagnose.Source{{one, one, one, nil}, {two, two, two, two}}
	s, err := SweepRuns(axes, points, of, Options{})
	if err != nil || s.Made != 3 {
		t.Fatalf("%v: %d blocks", err, s.Made)
	}
	// 3 blocks of 2 values can show nothing.
	if s.Differs() || len(s.Warnings) == 0 || !strings.Contains(strings.Join(s.Warnings, " "), "too few for any difference") {
		t.Errorf("%q", s.Warnings)
	}
	if c := s.Checks[0]; c.Effect != Acted && c.Effect != NotAssessed {
		t.Errorf("%+v", c)
	}
	if _, err := SweepRuns(axes, points, [][]diagnose.Source{{nil}, {nil}}, Options{}); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

func component(name string, args []string, cpu float64) record.Meta {
	return record.Meta{Name: "x", Cluster: record.Cluster{Kind: "lab", CPU: cpu, Components: []record.Component{{Name: name, Args: args, CPU: cpu, Binary: "etcd-new", Env: []string{"GOGC"}}}}, Nodes: record.Nodes{Count: 7}}
}

// Each check tells what acted from what did not and from what does not show.
func TestChecks(t *testing.T) {
	lines := strings.Repeat("{\"msg\":\"saved snapshot\"}\n", 3)
	make := func(value string, log string) diagnose.Source {
		return recordtest.Make(t, component("etcd", []string{"--snapshot-count=1", "--snapshot-count=" + value}, 2), func(w *record.Writer) {
			if log != "" {
				recordtest.Log(t, w, "etcd", log)
			}
		})
	}
	snap := Axis{"etcd.args.snapshot-count", []string{"500", "10000"}}
	for name, test := range map[string]struct {
		axis Axis
		runs []diagnose.Source // one for each value
		want []Outcome
		says string
	}{
		"acted":              {snap, []diagnose.Source{make("500", lines), make("10000", "started\n")}, []Outcome{Acted, Acted}, "from 0 to 3"},
		"too few writes":     {snap, []diagnose.Source{make("500", "started\n"), make("10000", "started\n")}, []Outcome{Acted, DidNotAct}, "0 at every value"},
		"not on the line":    {snap, []diagnose.Source{make("500", lines), make("9", "started\n")}, []Outcome{DidNotAct, Acted}, "10000 was set, and 9 is there"},
		"no log":             {snap, []diagnose.Source{make("500", ""), make("10000", "")}, []Outcome{Acted, NotAssessed}, "no recording shows it"},
		"unknown flag":       {Axis{"etcd.args.quota-backend-bytes", []string{"1", "2"}}, []diagnose.Source{make("500", ""), make("500", "")}, []Outcome{NotAssessed, NotAssessed}, "no check is known"},
		"quota":              {Axis{"etcd.cpu", []string{"2", "2.0"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{Acted}, "in all of 2 runs"},
		"quota of all":       {Axis{"cluster.cpu", []string{"2", "4"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{DidNotAct}, "4 was set, and 2 is there"},
		"nodes":              {Axis{"cluster.nodes", []string{"7", "8"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{DidNotAct}, "8 was set, and 7 is there"},
		"binary":             {Axis{"etcd.binary", []string{"/a/etcd-new", "/b/etcd-new"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{Acted}, "in all of 2 runs"},
		"environment":        {Axis{"etcd.env.GOGC", []string{"50", "100"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{Acted}, "in all of 2 runs"},
		"other environment":  {Axis{"etcd.env.GODEBUG", []string{"50", "100"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{NotAssessed}, "no recording shows it"},
		"pods, not recorded": {Axis{"pods-per-node", []string{"5", "10"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{NotAssessed}, "no recording shows it"},
		"nothing known":      {Axis{"seed", []string{"5", "10"}}, []diagnose.Source{make("1", ""), make("1", "")}, []Outcome{NotAssessed}, "no check is known"},
	} {
		t.Run(name, func(t *testing.T) {
			points, err := Points([]Axis{test.axis}, test.axis.Values[0])
			if err != nil {
				t.Fatal(err)
			}
			cs, err := checks([]Axis{test.axis}, points, [][]diagnose.Source{{test.runs[0]}, {test.runs[1], nil}})
			if err != nil {
				t.Fatal(err)
			}
			var got []Outcome
			says := ""
			for _, c := range cs {
				got = append(got, c.Effect)
				says += c.Why + "\n"
			}
			if !slices.Equal(got, test.want) || !strings.Contains(says, test.says) {
				t.Errorf("%v, want %v: %s", got, test.want, says)
			}
		})
	}
}

// All looks together spend alpha, wherever a series ends for reasons of its own.
func TestLastLook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs := rapid.IntRange(1, 30).Draw(t, "pairs")
		made := rapid.IntRange(1, pairs).Draw(t, "made")
		look, ok := LookAfter(made, pairs, 0.05, true)
		if ok != (made >= min(fewestPairs, pairs)) {
			t.Fatalf("after %d of %d: %v", made, pairs, ok)
		}
		if look.Spent < 0.0499 || look.Spent > 0.0501 || look.Level > 0.0501 {
			t.Fatalf("after %d of %d: %+v", made, pairs, look)
		}
		on, ok := LookAfter(made, pairs, 0.05, false)
		if ok && (on.Level > look.Level+1e-9) {
			t.Fatalf("a look that others follow has the higher level: %+v, %+v", on, look)
		}
	})
}

// A series ends when something differs, or nothing can, and not before.
func TestAnswer(t *testing.T) {
	p := healthy(t)
	rng := rand.New(rand.NewPCG(92, 1))
	clear := p.resampled(rng, 7, map[string]float64{"cpu.total": 5})
	if a := clear.Answer(0.05); a != "control plane, all components differs" {
		t.Errorf("%q", a)
	}
	if a := clear.Gate(GateOptions{}).Answer(0.05); a != "control plane, all components is worse" {
		t.Errorf("%q", a)
	}
	less := p.resampled(rng, 7, map[string]float64{"cpu.total": 0.2})
	if a := less.Gate(GateOptions{}).Answer(0.05); a != "" {
		t.Errorf("less CPU is worse, or surely nothing: %q", a)
	}
	same := p.resampled(rng, 7, nil)
	if a := same.Answer(0.05); a != "" {
		t.Errorf("7 runs exclude 5 %%: %q", a)
	}
	if a := same.Answer(100); !strings.Contains(a, "nothing that a gate judges differs by 1e+04 % or more") {
		t.Errorf("%q", a)
	}
	if a := same.Gate(GateOptions{}).Answer(100); !strings.Contains(a, "nothing is worse by 1e+04 % or more") {
		t.Errorf("%q", a)
	}
	few := p.resampled(rng, 3, nil)
	if a := few.Answer(100); a != "" {
		t.Errorf("3 runs say something: %q", a)
	}
}

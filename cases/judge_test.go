package cases

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
)

// Every case reads, its experiments can be run in both sizes, and what it asks
// for in a quick run is more than that something was left out.
func TestCases(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("there are no cases")
	}
	for _, name := range Names() {
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, quick := range []bool{false, true} {
			if err := c.Check(Options{Quick: quick}, load.Check); err != nil {
				t.Errorf("%s, quick %v: %v", name, quick, err)
			}
			if _, minutes := c.Size(quick); quick && minutes > 5 {
				t.Errorf("%s: a quick run takes %.1f minutes", name, minutes)
			}
			asked := 0
			for _, e := range c.Expect {
				for _, arm := range e.arms() {
					if c.arm(arm).runs(quick) > 0 {
						asked++
					}
				}
			}
			if asked < 3 {
				t.Errorf("%s, quick %v: only %d things are asked for", name, quick, asked)
			}
		}
		for _, e := range c.Expect {
			for _, p := range e.Order {
				detector(t, name, p.Detector)
			}
			if p := e.First; p != nil && p.Detector != "" {
				detector(t, name, p.Detector)
			}
			if p := e.Found; p != nil && p.Detector != "" {
				detector(t, name, p.Detector)
			}
			if p := e.Absent; p != nil && p.Detector != "" {
				detector(t, name, p.Detector)
			}
		}
		if text := c.Explain(); !strings.Contains(text, c.Title) || !strings.Contains(text, c.Expect[0].Says) {
			t.Errorf("%s: explained as %s", name, text)
		}
	}
}

func run(findings ...diagnose.Finding) Facts {
	return Facts{Recording: "r", Valid: true, Findings: findings, Readings: map[string]Reading{}}
}

func finding(id, component string) diagnose.Finding {
	return diagnose.Finding{ID: id, Component: component, Resource: "lock", Summary: id + " says so."}
}

func number1(x float64) Facts {
	f := run()
	f.Readings[(&Measure{Of: "claims-last"}).key()] = Reading{Value: x}
	return f
}

func numbers(xs ...float64) (fs []Facts) {
	for i, x := range xs {
		f := number1(x)
		f.Turn = i + 1
		fs = append(fs, f)
	}
	return fs
}

// beside gives each run a second number.
func beside(fs []Facts, xs ...float64) []Facts {
	for i := range fs {
		fs[i].Readings[(&Measure{Of: "cpu", Component: "etcd"}).key()] = Reading{Value: xs[i]}
	}
	return fs
}

// later are runs of later turns.
func later(fs []Facts) []Facts {
	for i := range fs {
		fs[i].Turn += 10
	}
	return fs
}

func TestJudge(t *testing.T) {
	herd, limit := finding("lock-herd", "client:p"), finding("paced-client", "client:p")
	last := Measure{Of: "claims-last"}
	ten := 10.0
	missing := run()
	missing.Readings[last.key()] = Reading{Missing: "3 of 5 claims were never bound"}
	bad := run(herd)
	bad.Valid, bad.Invalid = false, []string{"the generator was late"}
	met := run()
	met.Objectives = []record.Objective{{Name: "o", Assessed: true, Met: true, Value: 3, Limit: 5, Unit: "s"}}
	unjudged := run()
	unjudged.Objectives = []record.Objective{{Name: "o", Reason: "there is no sample"}}
	first := Expectation{Arm: "a", First: &Place{Detector: "lock-herd", Resource: "lock"}}
	order := Expectation{Arm: "a", Order: []Place{{Detector: "lock-herd", Names: "so many"}, {Detector: "paced-client"}}}
	named, other := finding("lock-herd", "client:p"), finding("heartbeats", "node")
	named.Cause = "so many locks"
	absent := Expectation{Arm: "a", Absent: &Place{Detector: "lock-herd"}}
	among := Expectation{Arm: "a", Found: &Place{Detector: "lock-herd"}}
	inside := Expectation{Arm: "a", First: &Place{Detector: "lock-herd", In: "a.Count"}}
	counting := herd
	counting.CodePath = "example.com/a.Count"
	kept := Expectation{Arm: "a", Objective: &Kept{Name: "o", Met: true}}
	missed := Expectation{Arm: "a", Objective: &Kept{Name: "o"}}
	least := Expectation{Arm: "a", Number: &Bounded{Measure: last, Least: &ten}}
	most := Expectation{Arm: "a", Number: &Bounded{Measure: last, Most: &ten}}
	half := Expectation{Change: &Change{Measure: last, From: "a", To: "b", Factor: 0.5}}
	fine := half
	fine.Full = true
	twice := Expectation{Change: &Change{Measure: last, From: "a", To: "b", Factor: 2}}
	flat := Expectation{Change: &Change{Measure: last, From: "a", To: "b", Flat: 0.25}}
	per := Expectation{Change: &Change{Measure: last, From: "a", To: "b", Flat: 0.1, Per: &Measure{Of: "cpu", Component: "etcd"}}}
	for _, c := range []struct {
		name  string
		e     Expectation
		a, b  []Facts
		quick bool
		want  Outcome
		text  string
	}{
		{"first", first, []Facts{run(herd, limit), run(herd)}, nil, false, Held, "lock-herd"},
		{"first in one run of two", first, []Facts{run(herd), run(limit, herd)}, nil, false, Failed, "paced-client, client:p, lock stands before it"},
		{"not found", first, []Facts{run(limit)}, nil, false, Failed, "first is paced-client"},
		{"nothing found", first, []Facts{run()}, nil, false, Failed, "nothing was found"},
		{"not valid", first, []Facts{run(herd), bad}, nil, false, Unknown, "the generator was late"},
		{"not run", first, nil, nil, false, LeftOut, ""},
		{"in order", order, []Facts{run(named, limit), run(named, other, limit)}, nil, false, Held, "1. lock-herd says so. 2. paced-client"},
		{"the other way round", order, []Facts{run(limit, named)}, nil, false, Failed, "lock-herd, \"so many\" is number 2"},
		{"second, and another first", order, []Facts{run(other, named, limit)}, nil, false, Failed, "is number 2; 1. heartbeats says so"},
		{"one of them in one run only", order, []Facts{run(named, limit), run(named)}, nil, false, Failed, "paced-client was not found"},
		{"found, and something else is named", order, []Facts{run(herd, limit)}, nil, false, Failed, "was not found"},
		{"absent", absent, []Facts{run(limit)}, nil, false, Held, "paced-client"},
		{"absent, and nothing else", absent, []Facts{run()}, nil, false, Held, "nothing is"},
		{"there all the same", absent, []Facts{run(), run(limit, herd)}, nil, false, Failed, "lock-herd says so"},
		{"found second", among, []Facts{run(limit, herd), run(herd)}, nil, false, Held, "number 2"},
		{"found in one run of two", among, []Facts{run(herd), run(limit)}, nil, false, Failed, "was not found"},
		{"in the function", inside, []Facts{run(counting)}, nil, false, Held, "lock-herd"},
		{"in no function", inside, []Facts{run(herd)}, nil, false, Failed, "not found; first is lock-herd"},
		{"met", kept, []Facts{met}, nil, false, Held, "limit 5 s; 3 s"},
		{"met, and was to be missed", missed, []Facts{met}, nil, false, Failed, "3 s"},
		{"not judged", kept, []Facts{unjudged}, nil, false, Unknown, "no sample"},
		{"not judged is not missed", missed, []Facts{unjudged}, nil, false, Unknown, "no sample"},
		{"no such objective", kept, []Facts{run()}, nil, false, Unknown, "no objective o"},
		{"enough", least, numbers(11, 12, 9), nil, false, Held, "11 s, at least 10"},
		{"too little", least, numbers(9), nil, false, Failed, "9 s"},
		{"little", most, numbers(9), nil, false, Held, "at most 10"},
		{"too much", most, numbers(11), nil, false, Failed, "11 s"},
		{"no number", least, []Facts{missing}, nil, false, Unknown, "never bound"},
		{"less, with an interval", half, numbers(20, 21, 22, 23), numbers(5, 6, 5.5, 6.5), false, Held, "of 4 turns"},
		{"not less by enough", half, numbers(20, 21, 22, 23), numbers(15, 16, 15.5, 16.5), false, Failed, "at most × 0.5"},
		{"less, but who knows", half, numbers(20, 21, 22, 5), numbers(5, 6, 5.5, 30), false, Failed, "interval"},
		// A machine that gets slower all the time, which is more than what changed.
		{"less in each turn", fine, numbers(10, 14, 19, 27), numbers(4.9, 6.9, 9.2, 13.4), false, Held, "× 0.49"},
		{"alike in each turn", flat, numbers(10, 14, 19, 27), numbers(10.3, 13.6, 19.2, 26.7), false, Held, "× 1"},
		{"by chance of the machine", flat, numbers(10, 14, 19, 27), numbers(27, 14, 19, 10), false, Failed, "× 1,"},
		// One whose speed changes within turns, and a number that tells how fast it was.
		{"alike by the same work", per, beside(numbers(10, 14, 19, 27), 5, 7, 9.4, 13.6), beside(numbers(14, 10, 27, 19), 7.1, 5, 13.4, 9.5), false, Held,
			"16.5 → 16.5 s; divided by cpu of etcd 2 → 2, × 0.9"},
		{"not alike by the same work", per, beside(numbers(10, 14, 19, 27), 5, 7, 9.4, 13.6), beside(numbers(14, 10, 27, 19), 5, 3.5, 9.5, 7), false, Failed, "× 1.4"},
		{"no same work", per, beside(numbers(10), 5), numbers(10), true, Unknown, "not read"},
		{"nothing to divide by", per, beside(numbers(10), 5), beside(numbers(10), 0), true, Unknown, "cpu of etcd is 0"},
		{"never in one turn", half, numbers(20), later(numbers(5)), true, Unknown, "no turn"},
		{"less, and no interval", half, numbers(20), numbers(5), false, Unknown, "without an interval"},
		{"less, quickly", half, numbers(20), numbers(5), true, Held, "without an interval"},
		{"too small for one run", fine, numbers(20), numbers(21), true, LeftOut, "× 1.05, without an interval: it takes 4 runs a side; at most × 0.5; only a full run"},
		{"and judged by more", fine, numbers(20, 21, 22, 23), numbers(20, 21, 22, 23), false, Failed, "at most × 0.5"},
		{"more", twice, numbers(5), numbers(20), true, Held, "× 4"},
		{"more the other way round", twice, numbers(20), numbers(5), true, Failed, "× 0.25"},
		{"none left", half, numbers(20), numbers(0), true, Held, "20 → 0"},
		{"none before", half, numbers(0), numbers(0), true, Unknown, "0 → 0"},
		{"nothing to compare", half, numbers(20), []Facts{missing}, true, Unknown, "never bound"},
		{"one side", half, numbers(20), nil, true, LeftOut, ""},
		{"flat", flat, numbers(20), numbers(22), true, Held, "within a factor of 1.25"},
		{"not flat", flat, numbers(20), numbers(30), true, Failed, "× 1.5"},
	} {
		k := &Case{Expect: []Expectation{c.e}}
		vs := k.Judge(map[string][]Facts{"a": c.a, "b": c.b}, c.quick)
		if v := vs[0]; v.Outcome != c.want || !strings.Contains(v.Text, c.text) {
			t.Errorf("%s: %s: %s; want %s: …%s…", c.name, v.Outcome, v.Text, c.want, c.text)
		}
	}
	for _, c := range []struct {
		vs   []Outcome
		want bool
	}{{nil, false}, {[]Outcome{LeftOut}, false}, {[]Outcome{Held, LeftOut}, true}, {[]Outcome{Held, Unknown}, false}, {[]Outcome{Held, Failed}, false}} {
		var vs []Verdict
		for _, o := range c.vs {
			vs = append(vs, Verdict{Outcome: o})
		}
		if Passed(vs) != c.want {
			t.Errorf("%v: passed %v", c.vs, !c.want)
		}
	}
}

// What is put in place by hand comes after what the case sets, and faults are
// laid over the arm.
func TestChanges(t *testing.T) {
	c, err := Find("pvc-batch")
	if err != nil {
		t.Fatal(err)
	}
	a := c.arm("before")
	load := func(by Changes) *experiment.Experiment {
		t.Helper()
		e, err := c.Load(a, true, by)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := load(Changes{}); e.Cluster.Storage.Locks != experiment.LockClaim || e.ExpectedClaims() >= 100 {
		t.Errorf("locks %s, %d claims", e.Cluster.Storage.Locks, e.ExpectedClaims())
	}
	e := load(Changes{Sets: []string{"cluster.storage.locks=driver", "variables.claims=7"}, Faults: []string{"slow-fsync=80ms"}})
	if e.Cluster.Storage.Locks != experiment.LockDriver || e.ExpectedClaims() != 7 || e.Cluster.Components["etcd"].SyncDelay.Milliseconds() != 80 {
		t.Errorf("locks %s, %d claims, etcd %+v", e.Cluster.Storage.Locks, e.ExpectedClaims(), e.Cluster.Components["etcd"])
	}
	for _, by := range []Changes{{Sets: []string{"cluster.storage.lock=driver"}}, {Faults: []string{"slow-sync"}}} {
		if _, err := c.Load(a, true, by); err == nil {
			t.Errorf("%+v is accepted", by)
		}
	}
}

func detector(t *testing.T, where, id string) {
	t.Helper()
	for _, d := range detectors.All {
		if d.Name == id {
			return
		}
	}
	t.Errorf("%s: no detector %q", where, id)
}

// Arms that are run equally often are run in turns; what is not asked for, and
// what a quick run leaves out, is not.
func TestPlan(t *testing.T) {
	c := &Case{Name: "c", Arms: []Arm{
		{Name: "p1", Runs: 4, Turns: "pair"}, {Name: "a", Runs: 4, QuickRuns: 1}, {Name: "big", Runs: 1}, {Name: "b", Runs: 4, QuickRuns: 1}, {Name: "p2", Runs: 4, Turns: "pair"},
	}}
	text := func(o Options) string {
		t.Helper()
		plan, err := c.plan(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, turn := range plan {
			s = append(s, turn.folder()+":")
			for _, a := range turn.arms {
				s = append(s, a.Name)
			}
		}
		return strings.Join(s, " ")
	}
	for _, k := range []struct {
		o    Options
		want string
	}{
		{Options{}, "4-each: a b pair-4-each: p1 p2 1-each: big"},
		{Options{Quick: true}, "1-each: a b"},
		{Options{Only: []string{"big", "b"}}, "4-each: b 1-each: big"},
		{Options{Quick: true, Only: []string{"big"}}, ""},
	} {
		if got := text(k.o); got != k.want {
			t.Errorf("%+v: %s, want %s", k.o, got, k.want)
		}
	}
	if _, err := c.plan(Options{Only: []string{"x"}}, nil); !errors.Is(err, ErrNoArm) {
		t.Error(err)
	}
}

// The arms of calico-ipam that look alike have nothing of its plugin.
func TestLookAlikes(t *testing.T) {
	c, err := Find("calico-ipam")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]experiment.IPAM{"small": experiment.IPAMBlocks, "large": experiment.IPAMBlocks, "node-disk": "", "etcd-disk": ""} {
		e, err := c.Load(c.arm(name), true, Changes{})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Cluster.Node.Network.IPAM; got != want {
			t.Errorf("%s: the plugin keeps addresses in %q, want %q", name, got, want)
		}
	}
}

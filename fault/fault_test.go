package fault_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var update = flag.Bool("update", false, "rewrite docs/faults.md")

// The words that a diagnosis has for resources.
var resources = strings.Fields("cpu gc memory files disk network client-limit workers loop apf webhook policy lock watch cache backoff quota unknown")

func TestCatalogue(t *testing.T) {
	names := map[string]bool{}
	for i := range fault.All {
		names[fault.All[i].Name] = true
	}
	if len(names) != len(fault.All) || len(names) < 35 {
		t.Errorf("%d names of %d faults; there should be 35 at least", len(names), len(fault.All))
	}
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for i := range fault.All {
		f := &fault.All[i]
		if !form.MatchString(f.Name) || f.Title == "" || f.Holds == "" || f.How() == "" || f.Parameter.Means == "" {
			t.Errorf("%q is not described: %+v", f.Name, f)
		}
		for _, part := range []string{"**What you see.**", "**What tells it apart.**", "**Remedy.**"} {
			if !strings.Contains(f.Doc, part) {
				t.Errorf("%s has no %s", f.Name, part)
			}
		}
		for _, name := range f.Alike {
			if !names[name] || name == f.Name {
				t.Errorf("%s may be mistaken for %q, which is no other fault", f.Name, name)
			}
		}
		for _, p := range f.Right {
			if p.Component == "" || !slices.Contains(resources, p.Resource) || p.Stage != "" && !slices.Contains(diagnose.StageNames, p.Stage) {
				t.Errorf("%s: %v is not in the words of a diagnosis", f.Name, p)
			}
		}
	}
}

// Each fault, at each intensity, makes an experiment that can be run, and another
// one than it was. So do all pairs that can be.
func TestInject(t *testing.T) {
	for i := range fault.All {
		f := &fault.All[i]
		written := map[string]string{}
		for _, intensity := range append([]string{""}, experiment.Intensities()...) {
			e, err := f.Showing()
			if err != nil {
				t.Fatal(err)
			}
			if intensity != "" {
				e.Faults = []experiment.Fault{experiment.ParseFault(f.Name, intensity)}
			}
			if err := fault.Inject(e, experiment.Sets{}); err != nil {
				t.Errorf("%s=%s: %v", f.Name, intensity, err)
				continue
			}
			if err := load.Check(e); err != nil {
				t.Errorf("%s=%s: %v", f.Name, intensity, err)
			}
			data, err := e.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := experiment.Parse(f.Name, data); err != nil {
				t.Errorf("%s=%s as it is kept: %v", f.Name, intensity, err)
			}
			for other, text := range written {
				if text == string(data) {
					t.Errorf("%s: %q and %q are the same", f.Name, intensity, other)
				}
			}
			written[intensity] = string(data)
		}
	}
}

func TestFaultsCompose(t *testing.T) {
	e, err := find(t, "slow-fsync").Showing()
	if err != nil {
		t.Fatal(err)
	}
	e.Faults = []experiment.Fault{{Name: "slow-fsync", Value: "7ms"}, {Name: "starved-etcd"}, {Name: "list-storm"}, {Name: "controller-limit", Intensity: experiment.High}}
	sets, err := experiment.ParseSets([]string{"kube-controller-manager.args.kube-api-qps=77"})
	if err != nil {
		t.Fatal(err)
	}
	if err := fault.Inject(e, sets); err != nil {
		t.Fatal(err)
	}
	etcd, kcm := e.Cluster.Components["etcd"], e.Cluster.Components["kube-controller-manager"]
	if etcd.SyncDelay.String() != "7ms" || etcd.CPU == 0 || len(e.Actors) != 1 {
		t.Errorf("etcd %+v, actors %+v", etcd, e.Actors)
	}
	// What is set by hand comes after what a fault sets.
	if *kcm.Args["kube-api-qps"] != "77" || *kcm.Args["kube-api-burst"] != "8" {
		t.Errorf("controller manager runs with qps %s, burst %s", *kcm.Args["kube-api-qps"], *kcm.Args["kube-api-burst"])
	}
	in, err := fault.Of(e)
	if err != nil || len(in) != 4 || in[0].Value.Text != "7ms" || in[0].Intensity != "" || in[1].Intensity != experiment.Middle || in[3].Value.N != 8 {
		t.Errorf("made with %+v (%v)", in, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		fault    experiment.Fault
		existing bool
		want     string
	}{
		{experiment.Fault{Name: "slow-fsnc"}, false, `unknown fault "slow-fsnc", did you mean "slow-fsync"?`},
		{experiment.Fault{Name: "slow-fsync", Value: "20"}, false, "want a duration such as 50ms"},
		{experiment.Fault{Name: "list-storm", Value: "5ms"}, false, "want a rate such as 15/s"},
		{experiment.Fault{Name: "controller-limit", Value: "0"}, false, "want a number such as 20"},
		{experiment.Fault{Name: "slow-fsync"}, true, "run without --kubeconfig"},
		{experiment.Fault{Name: "many-bindings"}, true, "run without --kubeconfig"},
		{experiment.Fault{Name: "slow-webhook"}, true, "run without --kubeconfig"},
		{experiment.Fault{Name: "conflict-storm"}, true, ""},
	} {
		e, err := find(t, "conflict-storm").Showing()
		if err != nil {
			t.Fatal(err)
		}
		e.Faults = []experiment.Fault{c.fault}
		if e.Cluster.Existing = c.existing; c.existing {
			e.Cluster.Nodes.Hollow = 0
		}
		err = fault.Inject(e, experiment.Sets{})
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%+v: %v, want %q", c.fault, err, c.want)
		}
	}
}

func find(t *testing.T, name string) *fault.Fault {
	t.Helper()
	f, err := fault.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A recording in which nothing was observed says that of no fault that it acted,
// nor that it did not.
func TestMissingIsNotNo(t *testing.T) {
	empty := recordtest.Make(t, meta(), func(*record.Writer) {})
	for i := range fault.All {
		f := &fault.All[i]
		in := injected(t, f.Name)
		effect := in.Check(empty)
		if effect.Acted == fault.Yes || effect.Text == "" {
			t.Errorf("%s: %+v", f.Name, effect)
		}
	}
}

func injected(t *testing.T, name string) fault.Injected {
	t.Helper()
	e, err := find(t, name).Showing()
	if err != nil {
		t.Fatal(err)
	}
	e.Faults = []experiment.Fault{{Name: name}}
	if err := fault.Inject(e, experiment.Sets{}); err != nil {
		t.Fatal(err)
	}
	in, err := fault.Of(e)
	if err != nil || len(in) != 1 {
		t.Fatalf("%v, %v", in, err)
	}
	return in[0]
}

func TestJudge(t *testing.T) {
	right := diagnose.Finding{ID: "a", Component: "kube-controller-manager", Stage: "controller", Resource: "client-limit"}
	other := diagnose.Finding{ID: "b", Component: "machine", Stage: "start", Resource: "cpu"}
	stage := right
	stage.Stage = "bind"
	for _, c := range []struct {
		fault    string
		findings []diagnose.Finding
		want     fault.Verdict
	}{
		{"controller-limit", []diagnose.Finding{right, other}, fault.Right},
		{"controller-limit", []diagnose.Finding{other, right}, fault.Second},
		{"controller-limit", []diagnose.Finding{stage}, fault.InPart},
		{"controller-limit", []diagnose.Finding{other}, fault.Wrong},
		{"controller-limit", nil, fault.Nothing},
		{"frequent-snapshots", nil, fault.Right},
		{"frequent-snapshots", []diagnose.Finding{other}, fault.Wrong},
		{"small-master", []diagnose.Finding{other}, fault.Right}, // any stage
	} {
		got, text := find(t, c.fault).Judge("arrivals", &diagnose.Diagnosis{Findings: c.findings})
		if got != c.want || text == "" {
			t.Errorf("%s with %v: %s (%s), want %s", c.fault, c.findings, got, text, c.want)
		}
	}
}

// docs/faults.md is made from the catalogue: run with -update.
func TestDocs(t *testing.T) {
	const file = "../docs/faults.md"
	want := fault.Markdown()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the catalogue says; run go test ./fault -update", file)
	}
}

package schedulerperf_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/convert/schedulerperf"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func read(t *testing.T) *schedulerperf.File {
	t.Helper()
	f, err := schedulerperf.Read("testdata/performance-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every operation is mapped to what it means, or refused by name: the golden
// file holds both, as a user would read them.
func TestConvert(t *testing.T) {
	var b strings.Builder
	for _, c := range read(t).Convert(schedulerperf.Select{}) {
		fmt.Fprintf(&b, "== %s/%s\n", c.Test, c.Workload)
		if c.YAML == nil {
			fmt.Fprintf(&b, "refused: %s\n", c.Refused)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n%s", c.FileName, strings.Join(c.Mapped, ", "), c.YAML)
		e, err := experiment.Parse(c.FileName, c.YAML)
		if err == nil {
			err = load.Check(e)
		}
		if err != nil {
			t.Errorf("%s/%s: %v", c.Test, c.Workload, err)
		}
	}
	const file = "testdata/converted.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("differs from %s (run with -update, then read the diff):\n%s", file, b.String())
	}
}

// What is converted asks for exactly as many nodes and pods.
func TestNumbers(t *testing.T) {
	want := map[string][3]int{ // nodes that are seeded, pods measured, pods at most
		"Plain/Small": {7, 20, 23}, "Plain/Large_WithGates": {4000, 2000, 2500}, "ZonesAndTaints/One": {12, 10, 10},
		"Namespaces/One": {10, 8, 28}, "Later/One": {5, 9, 9}, "Collecting/One": {5, 5, 5}, "Preempting/One": {2, 30, 90},
		"SpecialNodeFirst/One": {6, 5, 5}, "Steady/No": {5, 5, 5}, "ChurnCounted/One": {5, 5, 5}, "ChurnEndless/One": {5, 5, 5}, "ChurnAgain/One": {5, 5, 7},
	}
	for _, c := range read(t).Convert(schedulerperf.Select{}) {
		id := c.Test + "/" + c.Workload
		n, converted := want[id]
		if converted != (c.YAML != nil) {
			t.Errorf("%s: converted %t, refused %q", id, c.YAML != nil, c.Refused)
			continue
		}
		if !converted {
			continue
		}
		e, err := experiment.Parse(id, c.YAML)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]int{e.Cluster.Nodes.Seeded, e.ExpectedPods(), e.PeakPods()}; got != n {
			t.Errorf("%s: %v, want %v", id, got, n)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		s    schedulerperf.Select
		want string
	}{
		{schedulerperf.Select{Test: "Plain"}, "Plain/Small Plain/Large_WithGates"},
		{schedulerperf.Select{Test: "Plain", Workload: "Small"}, "Plain/Small"},
		{schedulerperf.Select{Labels: "nightly"}, "Plain/Small Plain/Large_WithGates"},
		{schedulerperf.Select{Labels: "+nightly, -short"}, "Plain/Large_WithGates"},
		{schedulerperf.Select{Labels: "nightly,short"}, "Plain/Small"},
		{schedulerperf.Select{Test: "None"}, ""},
	} {
		var names []string
		for _, x := range read(t).Convert(c.s) {
			names = append(names, x.Test+"/"+x.Workload)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
}

// Names stay names, however long upstream's are, and differ.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("Scheduling", 8)
	text := "- name: " + long + "\n  workloadTemplate: [{opcode: createNodes, count: 1}, {opcode: createPods, count: 2, collectMetrics: true}]\n  workloads: [{name: A_1}, {name: A_2}]\n"
	path := filepath.Join(dir, "performance-config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := schedulerperf.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range f.Convert(schedulerperf.Select{}) {
		if c.YAML == nil || len(c.Name) > 40 || seen[c.Name] || seen[c.FileName] {
			t.Errorf("%q, %q: %s", c.Name, c.FileName, c.Refused)
		}
		seen[c.Name], seen[c.FileName] = true, true
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty": "", "no list": "name: x", "unknown key": "- name: a\n  flavour: sweet\n", "no YAML": "- {", "no name": "- labels: [a]",
	} {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := schedulerperf.Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A configuration that somebody sent takes no credentials into an experiment.
func TestTemplatesFromElsewhere(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "config")
	if err := os.WriteFile(secret, []byte("apiVersion: v1\nkind: Config\nusers: [{name: a, user: {token: very-secret}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{secret, "config", "not-there.yaml"} {
		text := "- name: A\n  workloadTemplate: [{opcode: createNodes, count: 1}, {opcode: createAny, templatePath: " + path + "}, {opcode: createPods, count: 2, collectMetrics: true}]\n  workloads: [{name: B}]\n"
		file := filepath.Join(dir, "performance-config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := schedulerperf.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		c := f.Convert(schedulerperf.Select{})[0]
		if c.YAML != nil || !strings.HasPrefix(c.Refused, "createAny (operation 1): ") || strings.Contains(c.Refused, "very-secret") {
			t.Errorf("%s: %q, %s", path, c.Refused, c.YAML)
		}
	}
}

package detectors_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/diagnose/diagnosetest"
)

func TestCases(t *testing.T) {
	diagnosetest.Files(t, "testdata/*.txt", detectors.All)
}

var id = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)

func TestEveryDetectorIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range detectors.All {
		if !id.MatchString(d.Name) || seen[d.Name] {
			t.Errorf("%q is no new kebab-case name", d.Name)
		}
		seen[d.Name] = true
		if d.Title == "" || d.Detect == nil {
			t.Errorf("%s has no title or does nothing", d.Name)
		}
		if d.Name != "unexplained" && !strings.Contains(d.Doc, "**Look-alikes.**") {
			t.Errorf("%s does not say what it may be mistaken for", d.Name)
		}
	}
}

// docs/detectors.md is made from the detectors: run with -update.
func TestDocs(t *testing.T) {
	const file = "../../docs/detectors.md"
	want := detectors.Markdown()
	if diagnosetest.Update() {
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
		t.Errorf("%s is not what the detectors say; run go test ./diagnose/detectors -update", file)
	}
}

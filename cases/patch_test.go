package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A patch changes one function of a copy, adds our file beside it, and fails where
// the function is not what it was.
func TestApplyPatch(t *testing.T) {
	const body = "package p\n\nfunc Monitor(x int) int {\n\treturn x\n}\n\ntype t int\n\nfunc (t) Other() {}\n"
	apply := func(p Patch, files map[string]string) (string, error) {
		t.Helper()
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "pkg", "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, "pkg", "p", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := p.apply(dir, []byte("package p\n\nfunc note() {}\n"))
		got, _ := os.ReadFile(filepath.Join(dir, "pkg", "p", "p.go"))
		added, _ := os.ReadFile(filepath.Join(dir, "pkg", "p", "zz_case.go"))
		return string(got) + string(added), err
	}
	p := Patch{Module: "example.com/m", Package: "pkg/p", Function: "Monitor", Call: "note()"}
	got, err := apply(p, map[string]string{"p.go": body, "p_test.go": body})
	if err != nil || !strings.Contains(got, "func Monitor(x int) int {\n\tnote()\n\treturn x\n}") || !strings.HasSuffix(got, "func note() {}\n") {
		t.Errorf("%v: %s", err, got)
	}
	gone, method, elsewhere := p, p, p
	gone.Function, method.Function, elsewhere.Package = "Watch", "Other", "pkg/q"
	for want, of := range map[string]struct {
		p     Patch
		files map[string]string
	}{
		"has no function Watch any more":   {gone, map[string]string{"p.go": body}},
		"has no function Other any more":   {method, map[string]string{"p.go": body}}, // it has a receiver
		"has two functions Monitor":        {p, map[string]string{"p.go": body, "p_other.go": body}},
		"has no package pkg/q any more":    {elsewhere, map[string]string{"p.go": body}},
		"read example.com/m: ":             {p, map[string]string{"p.go": "package"}},
		"has no function Monitor any more": {p, map[string]string{"p_test.go": body}},
	} {
		if _, err := apply(of.p, of.files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Where a component cannot be built, its arm is not assessed and not passed, and
// the story says why.
func TestNotBuilt(t *testing.T) {
	c, err := Find("density-10x")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Quick: true, Only: []string{"each-request"}, Now: time.Now, Builder: Builder{Lab: t.TempDir(), Cache: t.TempDir()}}
	not, err := c.build(t.Context(), o)
	if err != nil || !strings.Contains(not["each-request"], "kube-apiserver was not built: the source of kubedyno-lab is not here") {
		t.Fatalf("%v: %q", err, not)
	}
	if plan, err := c.plan(o, not); err != nil || len(plan) != 0 {
		t.Errorf("%v: it is run all the same: %+v", err, plan)
	}
	s := c.story(o)
	s.judge(c, nil, not)
	for i, v := range s.Verdicts {
		if about := c.Expect[i].Arm == "each-request"; about != (v.Outcome == Unknown && v.Text == not["each-request"]) && c.Expect[i].Change == nil {
			t.Errorf("%s (%s): %s: %s", v.Says, v.Arm, v.Outcome, v.Text)
		}
	}
	if text := s.Markdown(); s.Passed || !strings.Contains(text, "Not assessed: kube-apiserver was not built") {
		t.Errorf("passed %v: %s", s.Passed, text)
	}
}

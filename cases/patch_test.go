package cases

import (
	"os"
	"os/exec"
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

// What an arm needs is built once, again when its source has changed, and not at all
// where the source is not.
func TestBuildProgram(t *testing.T) {
	source, built := t.TempDir(), 0
	b := Builder{Programs: source, Cache: t.TempDir(), Told: func(string) { built++ }}
	p := &Program{Component: "etcd", Folder: "other"}
	if _, err := b.BuildProgram(t.Context(), p); err == nil || !strings.Contains(err.Error(), "the source of other is not here") {
		t.Fatalf("got %v", err)
	}
	write := func(version string) {
		t.Helper()
		for name, text := range map[string]string{
			"go.mod": "module example.com/other\n\ngo 1.26\n", "go.sum": "",
			"main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Print(\"" + version + "\") }\n",
		} {
			if err := os.MkdirAll(filepath.Join(source, "other"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(source, "other", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, version := range []string{"3.5", "3.5", "3.4"} {
		write(version)
		program, err := b.BuildProgram(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), program).Output(); err != nil || string(out) != version {
			t.Errorf("%d: %q, %v", i, out, err)
		}
	}
	if built != 2 {
		t.Errorf("built %d times", built)
	}
	write("\"")
	if _, err := b.BuildProgram(t.Context(), p); err == nil || !strings.Contains(err.Error(), "go build") {
		t.Errorf("what does not compile: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(b.Cache, "*", "build*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The programs that cases name are there.
func TestPrograms(t *testing.T) {
	n := 0
	for _, name := range Names() {
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Arms {
			if a.Program == nil {
				continue
			}
			n++
			if _, err := os.Stat(filepath.Join("programs", a.Program.Folder, "main.go")); err != nil {
				t.Errorf("%s: arm %s: %v", c.Name, a.Name, err)
			}
		}
	}
	if n == 0 {
		t.Error("no arm has a program")
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

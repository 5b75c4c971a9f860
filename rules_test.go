// Package kubedyno_test holds the project's rules that a machine can check.
package kubedyno_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubedyno/kubedyno"

// pkg is what `go list` tells of a package.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func local(p pkg) string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// `go install …/cmd/kubedyno@latest` refuses a module with replace lines.
func TestRootModuleHasNoReplace(t *testing.T) {
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 0 && (f[0] == "replace" || f[0] == "exclude") {
			t.Errorf("go.mod:%d: %s: the root module must stay installable", i+1, line)
		}
	}
}

// The shape of the project: data flows one way, and the offline half never
// reaches for a cluster.
func TestImports(t *testing.T) {
	live := []string{"cluster", "load", "collect", "run", "campaign", "hollow", "fault"}
	rules := []struct {
		of     []string // package or folder
		never  []string // import path prefixes; a bare word is a folder of ours
		deps   bool     // also through others
		reason string
	}{
		{[]string{""}, []string{"k8s.io/kubernetes"}, true, "it cannot be required without replace lines; it belongs to lab/"},
		{[]string{""}, []string{"go.etcd.io/etcd/server"}, true, "the server belongs to lab/"},
		{[]string{"diagnose", "analysis", "compare", "report", "export", "serve", "record", "stat"}, live, true, "the offline half reads recordings and needs no cluster"},
		{[]string{"diagnose", "analysis", "compare", "report", "serve", "record", "stat"}, []string{"k8s.io/client-go/kubernetes"}, true, "the offline half needs no API server"},
		{[]string{"diagnose", "analysis", "compare", "report", "serve", "stat", "record"}, []string{"k8s.io/client-go"}, false, "the offline half needs no API server"},
		{[]string{"stat", "experiment", "load/pace"}, []string{"record", "diagnose", "k8s.io", "github.com/prometheus"}, true, "pure packages stand alone"},
		{[]string{"record", "diagnose", "compare", "stat", "analysis", "cluster", "load", "hollow", "collect"}, []string{"internal/cli", "report", "serve", "ui"}, true, "output is the last step"},
		{[]string{"cluster", "hollow"}, []string{"load", "collect", "run", "campaign", "diagnose"}, true, "imports follow the arrows backward"},
		{[]string{"analysis"}, []string{"diagnose", "compare"}, true, "derived tables state what was; detectors judge"},
		{[]string{"record"}, []string{"analysis"}, true, "the format does not depend on what is read out of it"},
		{[]string{"load", "collect"}, []string{"run", "campaign", "diagnose", "compare"}, true, "collectors and load record; they do not judge"},
	}
	for _, p := range packages(t) {
		for _, r := range rules {
			if !slices.ContainsFunc(r.of, func(f string) bool { return within(local(p), f) }) {
				continue
			}
			imports := p.Imports
			if r.deps {
				imports = p.Deps
			}
			for _, imp := range imports {
				for _, bad := range r.never {
					if !strings.Contains(bad, ".") {
						bad = module + "/" + bad
					}
					if within(imp, bad) {
						t.Errorf("%s imports %s: %s", p.ImportPath, imp, r.reason)
					}
				}
			}
		}
	}
	for _, heavy := range []struct{ path, home string }{
		{"github.com/prometheus/prometheus/tsdb", "internal/tsdb"},
		{"github.com/prometheus/prometheus/promql", "internal/tsdb"},
		{"github.com/parquet-go/parquet-go", "internal/table"},
	} {
		for _, p := range packages(t) {
			if within(local(p), heavy.home) {
				continue
			}
			if slices.Contains(p.Imports, heavy.path) {
				t.Errorf("%s imports %s, which stands behind %s alone: its API changes between minor versions", p.ImportPath, heavy.path, heavy.home)
			}
		}
	}
}

func within(p, folder string) bool {
	return folder == "" || p == folder || strings.HasPrefix(p, folder+"/")
}

// What was put wrong on purpose is what a diagnosis is asked to find out.
func TestDiagnosisDoesNotPeek(t *testing.T) {
	secrets := []string{"ReadFaults", "WriteFaults", "Faults", "Fault", "Experiment", "Made"}
	n := 0
	walkGo(t, func(name string, fset *token.FileSet, file *ast.File) {
		if !within(name, "diagnose") && !within(name, "analysis") || strings.HasSuffix(name, "_test.go") {
			return
		}
		n++
		ast.Inspect(file, func(node ast.Node) bool {
			switch x := node.(type) {
			case *ast.SelectorExpr:
				if of, ok := x.X.(*ast.SelectorExpr); ok && of.Sel.Name == "Workload" {
					return true // says that there was one
				}
				if slices.Contains(secrets, x.Sel.Name) {
					t.Errorf("%s: %s: a detector finds faults by what they do", fset.Position(x.Pos()), x.Sel.Name)
				}
			case *ast.BasicLit:
				if strings.Contains(x.Value, "faults.json") || strings.Contains(x.Value, "experiment.yaml") {
					t.Errorf("%s: %s: a detector finds faults by what they do", fset.Position(x.Pos()), x.Value)
				}
			}
			return true
		})
	})
	if n < 20 {
		t.Fatalf("only %d files of detectors found", n)
	}
}

// A reader learns from the first sentence what may live in a package.
func TestOnePackageDocEach(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil {
				docs = append(docs, name)
			}
		}
		if len(p.GoFiles) > 0 && len(docs) != 1 {
			t.Errorf("%s has %d package docs %v, want one", p.ImportPath, len(docs), docs)
		}
	}
}

// Only main ends the process; a library returns.
func TestOnlyMainExits(t *testing.T) {
	forbidden := map[string][]string{
		"os":  {"Exit"},
		"log": {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
	}
	walkGo(t, func(name string, fset *token.FileSet, file *ast.File) {
		if file.Name.Name == "main" || strings.HasSuffix(name, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(forbidden[x.Name], sel.Sel.Name) {
				t.Errorf("%s: %s.%s outside main", fset.Position(sel.Pos()), x.Name, sel.Sel.Name)
			}
			return true
		})
	})
}

// The terminal belongs to internal/cli, which hands out writers.
func TestOnlyTheCommandLineOwnsTheTerminal(t *testing.T) {
	walkGo(t, func(name string, fset *token.FileSet, file *ast.File) {
		if file.Name.Name == "main" || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/cli/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && (sel.Sel.Name == "Stdout" || sel.Sel.Name == "Stderr") {
				t.Errorf("%s: os.%s outside internal/cli: take an io.Writer", fset.Position(sel.Pos()), sel.Sel.Name)
			}
			return true
		})
	})
}

// Names that say nothing about what lives there attract everything.
func TestNoCatchAllPackages(t *testing.T) {
	for _, p := range packages(t) {
		switch path.Base(p.ImportPath) {
		case "util", "utils", "common", "lib", "helpers", "misc", "shared":
			t.Errorf("%s: a helper sits beside its one user until a noun for it appears", p.ImportPath)
		}
	}
}

func TestGofmt(t *testing.T) {
	walkGo(t, func(name string, _ *token.FileSet, _ *ast.File) {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(source); err != nil || !bytes.Equal(formatted, source) {
			t.Errorf("%s: gofmt -w makes it another file (%v)", name, err)
		}
	})
}

func walkGo(t *testing.T, visit func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && name != ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			return err
		}
		n++
		visit(filepath.ToSlash(name), fset, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Fatalf("only %d Go files found", n)
	}
}

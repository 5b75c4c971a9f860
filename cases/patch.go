package cases

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Patch is a component that an arm builds for itself: one function of a module
// calls one more, which is ours. Nothing of the module is kept but in the folder
// in which it is built.
type Patch struct {
	Component string `yaml:"component"`
	// Module and Package say where Function is; it has no receiver.
	Module   string `yaml:"module"`
	Package  string `yaml:"package"` // below the module
	Function string `yaml:"function"`
	// Call is the statement that comes first in it, Source a file in the case's
	// folder, which the package gets, with what is called.
	Call   string `yaml:"call"`
	Source string `yaml:"source"`
}

func (p *Patch) check() error {
	for name, s := range map[string]string{"component": p.Component, "module": p.Module, "package": p.Package, "function": p.Function, "call": p.Call, "source": p.Source} {
		if s == "" {
			return errors.New("patch: " + name + " is missing")
		}
	}
	return nil
}

// A Program is a component that an arm takes from another program than the lab's:
// another version of it.
type Program struct {
	Component string `yaml:"component"`
	// Folder is a Go module in programs, with the program in main.go.
	Folder string `yaml:"folder"`
}

func (p *Program) check() error {
	if p.Component == "" || p.Folder == "" || p.Folder != filepath.Base(p.Folder) {
		return errors.New("program: it needs a component, and a folder of programs")
	}
	return nil
}

// A Builder builds what arms need.
type Builder struct {
	// Lab is the folder of kubedyno-lab's module, Programs that of other programs.
	Lab      string
	Programs string
	// Cache is where what was built is kept: a second run finds it there.
	Cache string
	// Told is told before something is built, which takes minutes.
	Told func(text string)
}

// labModule is the module that has all components.
const labModule = "module github.com/kubedyno/kubedyno/lab\n"

// Build returns kubedyno-lab with a patch in it. The Go command and, where modules
// are not on this machine yet, a module proxy are needed.
func (b Builder) Build(ctx context.Context, p *Patch, source []byte) (string, error) {
	mod, err := os.ReadFile(filepath.Join(b.Lab, "go.mod"))
	if err != nil || !bytes.Contains(mod, []byte(labModule)) {
		return "", errors.New("the source of kubedyno-lab is not here: run this in a checkout of kubedyno, with the kubedyno-lab that was built there")
	}
	version, err := b.command(ctx, b.Lab, "go", "version")
	if err != nil {
		return "", err
	}
	flags, err := b.command(ctx, b.Lab, "sh", "hack/ldflags")
	if err != nil {
		return "", err
	}
	of := []string{version, flags, fmt.Sprintf("%+v", *p), string(source)}
	err = filepath.WalkDir(b.Lab, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err != nil || entry.IsDir() || name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" {
			return err
		}
		data, err := os.ReadFile(path)
		of = append(of, string(data))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("source of kubedyno-lab: %w", err)
	}
	return b.once(of, "kubedyno-lab", func(work string) error {
		b.Told(fmt.Sprintf("building %s with one call more in %s/%s (once; some minutes)", p.Component, p.Module, p.Package))
		module, err := b.module(ctx, p.Module)
		if err != nil {
			return err
		}
		copied := filepath.Join(work, "module")
		if err := os.CopyFS(copied, os.DirFS(module)); err != nil {
			return fmt.Errorf("copy %s: %w", p.Module, err)
		}
		if err := p.apply(copied, source); err != nil {
			return err
		}
		// The lab's own go.mod stays as it is: another one, with one replacement
		// more, takes its place for this build.
		for _, name := range []string{"go.mod", "go.sum"} {
			data, err := os.ReadFile(filepath.Join(b.Lab, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(work, name), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("copy the lab's %s: %w", name, err)
			}
		}
		modfile := filepath.Join(work, "go.mod")
		if _, err := b.command(ctx, b.Lab, "go", "mod", "edit", "-replace="+p.Module+"="+copied, modfile); err != nil {
			return err
		}
		_, err = b.command(ctx, b.Lab, "go", "build", "-modfile="+modfile, "-trimpath", "-ldflags", flags, "-o", filepath.Join(work, "kubedyno-lab"), "./cmd/kubedyno-lab")
		return err
	})
}

// BuildProgram returns the program of a folder of b.Programs. The Go command and,
// where modules are not on this machine yet, a module proxy are needed.
func (b Builder) BuildProgram(ctx context.Context, p *Program) (string, error) {
	dir := filepath.Join(b.Programs, p.Folder)
	var of []string
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("the source of %s is not here: run this in a checkout of kubedyno, with the kubedyno-lab that was built there", p.Folder)
		}
		of = append(of, string(data))
	}
	version, err := b.command(ctx, dir, "go", "version")
	if err != nil {
		return "", err
	}
	return b.once(append(of, version), p.Folder, func(work string) error {
		b.Told(fmt.Sprintf("building %s (once; a minute or two)", p.Folder))
		_, err := b.command(ctx, dir, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(work, p.Folder), ".")
		return err
	})
}

// once returns the program that build leaves under its name in a folder that it is
// given, and that one of before where it was made of the same.
func (b Builder) once(of []string, name string, build func(work string) error) (string, error) {
	sum := sha256.New()
	for _, part := range of {
		fmt.Fprintf(sum, "%d\n%s\n", len(part), part)
	}
	dir := filepath.Join(b.Cache, fmt.Sprintf("%x", sum.Sum(nil)[:8]))
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder to build in: %w", err)
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", fmt.Errorf("folder to build in: %w", err)
	}
	defer os.RemoveAll(work)
	if err := build(work); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(work, name), program); err != nil {
		return "", fmt.Errorf("keep what was built: %w", err)
	}
	return program, nil
}

// module is the folder of a module of the lab's, which is downloaded where it is
// not on this machine.
func (b Builder) module(ctx context.Context, path string) (string, error) {
	dir, err := b.command(ctx, b.Lab, "go", "list", "-m", "-f", "{{.Dir}}", path)
	if err == nil && dir == "" {
		if _, err = b.command(ctx, b.Lab, "go", "mod", "download", path); err == nil {
			dir, err = b.command(ctx, b.Lab, "go", "list", "-m", "-f", "{{.Dir}}", path)
		}
	}
	if err == nil && dir == "" {
		err = fmt.Errorf("the source of %s is not on this machine", path)
	}
	return dir, err
}

// command runs a program in a folder, as make builds the lab, and returns what it
// prints.
func (Builder) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		why := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, why[len(why)-1])
	}
	return strings.TrimSpace(out.String()), nil
}

// apply changes a copy of the module. It fails where the function is not there, or
// is there twice.
func (p *Patch) apply(module string, source []byte) error {
	dir := filepath.Join(module, filepath.FromSlash(p.Package))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s has no package %s any more", p.Module, p.Package)
	}
	var file string
	var changed []byte
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", p.Module, err)
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read %s: %w", p.Module, err)
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Name.Name != p.Function || f.Body == nil {
				continue
			}
			if file != "" {
				return fmt.Errorf("%s/%s has two functions %s", p.Module, p.Package, p.Function)
			}
			at := set.Position(f.Body.Lbrace).Offset + 1
			file = name
			changed = append(append(append(changed, data[:at]...), "\n\t"+p.Call...), data[at:]...)
		}
	}
	if file == "" {
		return fmt.Errorf("%s/%s has no function %s any more", p.Module, p.Package, p.Function)
	}
	if err := os.WriteFile(file, changed, 0o644); err != nil {
		return fmt.Errorf("change %s: %w", p.Module, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "zz_case.go"), source, 0o644); err != nil {
		return fmt.Errorf("change %s: %w", p.Module, err)
	}
	return nil
}

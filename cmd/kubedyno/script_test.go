package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/record/kept"
)

func TestMain(m *testing.M) {
	// The command line is tested as it is typed: this test binary becomes
	// kubedyno and all its helpers, by the name it is called.
	commands := map[string]func(){"kubedyno": main}
	for name := range helpers {
		commands[name] = main
	}
	testscript.Main(m, commands)
}

// TestScripts are the stories that need no control plane.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: false,
		Condition:           condition,
		Setup:               setup,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"recording": recording},
	})
}

// recording NAME FOLDER… makes folders of a recording that testdata keeps.
func recording(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: recording NAME FOLDER…")
	}
	for _, dir := range args[1:] {
		ts.Check(kept.Unpack(filepath.Join("..", "..", "testdata", "recordings", args[0]+kept.Ext), ts.MkAbs(dir)))
	}
}

// condition knows who runs the stories: some of what is observed takes rights.
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Geteuid() == 0, nil
	case "realnode":
		return realnode.Check(false) == nil, nil
	}
	return false, fmt.Errorf("no condition %q", name)
}

// setup gives a story its own state folder, and takes down what labs a failing
// one leaves in it.
func setup(env *testscript.Env) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	env.Setenv("ROOT", root)
	env.Setenv("KUBEDYNO_STATE", filepath.Join(env.WorkDir, "labs"))
	if lab := os.Getenv("KUBEDYNO_LAB"); lab != "" {
		env.Setenv("KUBEDYNO_LAB", lab)
	} else {
		env.Setenv("KUBEDYNO_LAB", filepath.Join(root, "bin", "kubedyno-lab"))
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	env.Defer(func() {
		down := exec.Command(exe, "lab", "down", "--all")
		down.Args[0] = "kubedyno"
		down.Env = env.Vars
		_ = down.Run() // a story without labs has nothing to take down
	})
	return nil
}

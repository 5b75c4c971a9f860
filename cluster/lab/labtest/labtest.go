// Package labtest helps tests that need a real control plane.
package labtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Binary returns the path of kubedyno-lab: $KUBEDYNO_LAB, or bin/kubedyno-lab
// of the repository. A test that needs it fails without it: skipped, it would
// look like a passed one.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("KUBEDYNO_LAB")
	if path == "" {
		path = filepath.Join(Root(t), "bin", "kubedyno-lab")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("this test needs kubedyno-lab: run `make build` (%v)", err)
	}
	return path
}

// Root returns the repository's folder.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "lab", "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("the repository's folder is not above the working directory")
		}
		dir = parent
	}
}

package main

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
)

var story = flag.String("story", "", "run only the live stories that match this pattern, such as 'limiter*'")

// TestLive are the stories that run a real control plane, one after another so
// that they do not measure each other.
func TestLive(t *testing.T) {
	labtest.Binary(t) // fails with what to do when it is not built
	pattern := *story
	if pattern == "" {
		pattern = "*"
	}
	files, err := filepath.Glob(filepath.Join("testdata", "live", pattern+".txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no live story matches %q (%v)", pattern, err)
	}
	for _, f := range files {
		// A call for each keeps testscript from running them in parallel.
		testscript.Run(t, testscript.Params{Files: []string{f}, Condition: condition,
			Setup: setup})
	}
}

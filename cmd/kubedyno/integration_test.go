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
	testscript.RunT(inTurn{t}, testscript.Params{Files: files, Condition: condition, Setup: setup})
}

// inTurn is a test whose parts run one after another, though testscript asks
// each of them to run beside the others.
type inTurn struct{ *testing.T }

func (inTurn) Parallel() {}

func (t inTurn) Run(name string, part func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { part(inTurn{t}) })
}

func (inTurn) Verbose() bool { return testing.Verbose() }

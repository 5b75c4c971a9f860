package report

import (
	"fmt"
	"io"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// A Result is a recording and what it says, for formats that other tools read.
type Result struct {
	Meta      record.Meta
	Diagnosis *diagnose.Diagnosis
}

// The formats of results.
const (
	JUnit   = "junit"   // for CI: objectives and validity as test cases
	GoBench = "gobench" // for benchstat

	PerfDash = "perfdash" // PerfData of Kubernetes' performance tests, one run
)

// WriteResults writes results in one of the formats, in the order given.
func WriteResults(w io.Writer, format string, results ...Result) error {
	clean := make([]Result, len(results))
	for i, r := range results {
		d := *r.Diagnosis
		clean[i] = Result{cleaned(r.Meta), &d}
		clean[i].Diagnosis = cleaned(clean[i].Diagnosis)
	}
	switch format {
	case JUnit:
		return writeJUnit(w, clean)
	case GoBench:
		return writeGoBench(w, clean)
	case PerfDash:
		return writePerfData(w, clean)
	}
	return fmt.Errorf("no format of results is called %q", format)
}

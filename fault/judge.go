package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// Verdict is how right a diagnosis is about a fault.
type Verdict string

// The verdicts, best first.
const (
	// Right: the first finding names component, stage and resource.
	Right Verdict = "right"
	// Second: a finding names them, and another stands before it.
	Second Verdict = "second"
	// InPart: the first finding names the component or the resource.
	InPart Verdict = "in part"
	// Wrong: it names something else.
	Wrong Verdict = "wrong"
	// Nothing: there is no finding.
	Nothing Verdict = "nothing"
)

// Judge compares the diagnosis of a run of an experiment with what the fault is,
// as Try does, and says so in a line.
func (f *Fault) Judge(experiment string, d *diagnose.Diagnosis) (Verdict, string) {
	if len(f.Right) == 0 {
		if wrong := unexpected(experiment, d); len(wrong) > 0 {
			return Wrong, fmt.Sprintf("%s was named (%s), but the fault does no harm", wrong[0].ID, placeOf(wrong[0]))
		}
		return Right, "nothing was found that healthy runs do not have, which is right: the fault does no harm"
	}
	findings := answers(experiment, []*Fault{f}, d)
	if len(findings) == 0 {
		return Nothing, "nothing was found; right would be " + f.Places()
	}
	first := findings[0]
	switch rank := slices.IndexFunc(findings, f.named); {
	case rank == 0:
		return Right, "named right: " + placeOf(first).String()
	case rank > 0:
		return Second, fmt.Sprintf("named right by %s (%s), but %s stands before it", findings[rank].ID, placeOf(findings[rank]), first.ID)
	}
	for _, p := range f.Right {
		if p.Component == first.Component || p.Resource == first.Resource {
			return InPart, fmt.Sprintf("named in part: %s; right would be %s", placeOf(first), f.Places())
		}
	}
	return Wrong, fmt.Sprintf("named wrong: %s; right would be %s", placeOf(first), f.Places())
}

func (p Place) matches(f diagnose.Finding) bool {
	return placeOf(f).within(p)
}

// Places are what a right diagnosis names, in words.
func (f *Fault) Places() string {
	var all []string
	for _, p := range f.Right {
		all = append(all, p.String())
	}
	return strings.Join(all, ", or ")
}

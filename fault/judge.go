package fault

import (
	"fmt"
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

// Judge compares a diagnosis with what the fault is, and says so in a line.
func (f *Fault) Judge(d *diagnose.Diagnosis) (Verdict, string) {
	if len(d.Findings) == 0 {
		if len(f.Right) == 0 {
			return Right, "nothing was found, which is right: the fault does no harm"
		}
		return Nothing, "nothing was found; right would be " + f.Places()
	}
	first := d.Findings[0]
	named := Place{first.Component, first.Stage, first.Resource}
	if len(f.Right) == 0 {
		return Wrong, fmt.Sprintf("%s was named (%s), but the fault does no harm", first.ID, named)
	}
	for i, finding := range d.Findings {
		for _, p := range f.Right {
			if !p.matches(finding) {
				continue
			}
			if i == 0 {
				return Right, "named right: " + named.String()
			}
			return Second, fmt.Sprintf("named right by %s (%s), but %s stands before it", finding.ID, Place{finding.Component, finding.Stage, finding.Resource}, first.ID)
		}
	}
	for _, p := range f.Right {
		if p.Component == first.Component || p.Resource == first.Resource {
			return InPart, fmt.Sprintf("named in part: %s; right would be %s", named, f.Places())
		}
	}
	return Wrong, fmt.Sprintf("named wrong: %s; right would be %s", named, f.Places())
}

func (p Place) matches(f diagnose.Finding) bool {
	return p.Component == f.Component && (p.Stage == "" || p.Stage == f.Stage) && p.Resource == f.Resource
}

// Places are what a right diagnosis names, in words.
func (f *Fault) Places() string {
	var all []string
	for _, p := range f.Right {
		all = append(all, p.String())
	}
	return strings.Join(all, ", or ")
}

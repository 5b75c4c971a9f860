// Package report shows what was found: a Diagnosis or a Comparison as text or
// JSON, and recordings as one HTML page that opens from file:// and asks no
// network for anything.
//
// Text leads with the verdict; what could not be assessed stands as prominent
// as what was found. The page draws a typed model (Page) that holds only what
// its charts need; ui/ draws it.
//
// Start with WriteDiagnosis, WriteComparison and Render.
package report

//go:generate go run ./gen ../ui/src/recording.ts page.go served.go

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Input is one round of the page.
type Input struct {
	Recording *record.Recording
	Diagnosis *diagnose.Diagnosis // nil: shown as measured but not diagnosed

	// Name heads the round; empty means Baseline for the first and Round N for
	// the rest, or the experiment's name where there is one round only.
	Name string
	// Change holds the PATH=VALUE settings that this round adds to the one
	// before. Nil means: find out from the recordings' own settings.
	Change []string
	// Dose marks a run that tried a smaller change only to see whether the
	// symptom answers. The page shows it beside the next round.
	Dose bool
	// Lifted is the finding that the change takes away, where a proof says so,
	// and Proven that it did. Without a proof the round before's first finding
	// is taken for it.
	Lifted *diagnose.Finding
	Proven bool
	// Prediction and Outcome are sentences: what the change should do, what it did.
	Prediction, Outcome string
}

// RenderOptions are what a page says about itself.
type RenderOptions struct {
	Title   string // empty: the experiment's name
	Verdict string // the whole story in one sentence; empty: made from the rounds
	Tool    string // version of kubedyno
	Now     time.Time
	// Served are the rounds' places in the folder that is served; nil in a file.
	Served []string
}

// Render writes the inputs, in the order in which they were run, as one HTML file.
func Render(w io.Writer, inputs []Input, o RenderOptions) error {
	p, err := NewPage(inputs, o)
	if err != nil {
		return err
	}
	return WritePage(w, p)
}

// NewPage builds the page model.
func NewPage(inputs []Input, o RenderOptions) (Page, error) {
	if len(inputs) == 0 {
		return Page{}, fmt.Errorf("a report needs at least one recording")
	}
	var rounds []Round
	for _, in := range inputs {
		taken, err := read(in.Recording)
		if err != nil {
			return Page{}, fmt.Errorf("recording %s: %w", in.Recording.Dir(), err)
		}
		rounds = append(rounds, round(taken, in))
	}
	return assemble(rounds, o), nil
}

func round(taken rows, in Input) Round {
	r := measure(taken)
	r.Verdict = "Not diagnosed."
	if in.Diagnosis != nil {
		r.judge(in.Diagnosis)
	}
	r.Name, r.Dose, r.Change, r.Prediction, r.Outcome = in.Name, in.Dose, in.Change, in.Prediction, in.Outcome
	if in.Lifted != nil && in.Proven {
		r.Took = noun(pageFinding(*in.Lifted))
	}
	return r
}

// assemble names the rounds, finds what changed between them and says the story.
func assemble(rounds []Round, o RenderOptions) Page {
	p := Page{
		Schema: PageSchema, Title: o.Title, Tool: o.Tool, Generated: o.Now,
		Verdict: o.Verdict, Valid: true, Rounds: rounds, Served: o.Served,
	}
	var before *Round // the step of the story that r follows
	steps := 0
	for i := range rounds {
		r := &rounds[i]
		p.Valid = p.Valid && r.Assessed && r.Valid
		if r.Name == "" {
			switch {
			case len(rounds) == 1:
				r.Name = r.Recording.Name
			case i == 0:
				r.Name = "Baseline"
			default:
				r.Name = fmt.Sprintf("Round %d", steps+1)
			}
		}
		if before != nil && !r.Dose && r.Outcome == "" && len(before.Findings) > 0 {
			r.Took = noun(before.Findings[0])
		}
		if before != nil && r.Change == nil {
			r.Change = added(before.Recording.Settings, r.Recording.Settings)
		}
		if r.Dose { // of a dose only the rate counts
			r.Flames = Flames{}
		} else {
			r.Warnings = append(r.Warnings, unlike(rounds[0].Recording, r.Recording)...)
			before = r
			steps++
		}
	}
	if p.Title == "" {
		p.Title = rounds[0].Recording.Name
	}
	if p.Verdict == "" {
		p.Verdict = story(rounds)
	}
	return p
}

// unlike says what makes a round less comparable with the first.
func unlike(a, b Facts) []string {
	var out []string
	differ := func(what, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("not the baseline's %s: %s, there %s", what, b, a))
		}
	}
	differ("experiment", a.Name, b.Name)
	differ("load", fmt.Sprintf("%d pods, %s", a.Pods, a.Load), fmt.Sprintf("%d pods, %s", b.Pods, b.Load))
	differ("cluster size", plural(a.Nodes, "node"), plural(b.Nodes, "node"))
	differ("Kubernetes", a.Kubernetes, b.Kubernetes)
	machine := func(f Facts) string {
		var s []string
		for _, m := range f.Machine {
			if m.Label == "CPUs" || m.Label == "Model" || m.Label == "Kernel" {
				s = append(s, m.Label+" "+m.Value)
			}
		}
		return strings.Join(s, ", ")
	}
	differ("machine", machine(a), machine(b))
	return out
}

func added(before, after []string) []string {
	var out []string
	for _, s := range after {
		if !contains(before, s) {
			out = append(out, s)
		}
	}
	return out
}

// story is the verdict over all rounds.
func story(all []Round) string {
	var rounds []Round
	for _, r := range all {
		if !r.Dose {
			rounds = append(rounds, r)
		}
	}
	if len(rounds) == 0 {
		rounds = all
	}
	last := rounds[len(rounds)-1]
	if len(rounds) == 1 {
		return last.Verdict
	}
	for _, r := range rounds {
		if r.Assessed && !r.Valid && len(rounds) > 1 {
			return fmt.Sprintf("%s is not valid, so the rounds must not be compared.", r.Name)
		}
	}
	var b strings.Builder
	from, to := rateOf(rounds[0]), rateOf(last)
	switch {
	case from == nil || to == nil:
		fmt.Fprintf(&b, "%s compared", plural(len(rounds), "run"))
	case *to >= 1.1**from:
		fmt.Fprintf(&b, "From %s to %s pods/s", number(*from), number(*to))
		if *to >= 2**from {
			fmt.Fprintf(&b, " (×%s)", factor(*to / *from))
		}
	default:
		fmt.Fprintf(&b, "%s → %s pods/s, no gain", number(*from), number(*to))
	}
	var lifted []string
	for _, r := range rounds[1:] {
		if r.Took != "" {
			lifted = append(lifted, r.Took)
		}
	}
	if len(lifted) > 0 {
		b.WriteString(": first " + strings.Join(lifted, ", then ") + " held it back")
	}
	switch {
	case len(last.Findings) > 0:
		b.WriteString("; now " + noun(last.Findings[0]) + " does")
	case last.Assessed:
		b.WriteString("; nothing found holds it back now")
	}
	return b.String() + "."
}

// factor has two digits: a factor of one run each is no better known.
func factor(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func rateOf(r Round) *float64 {
	for _, i := range r.Headline {
		if i.ID == "rate" {
			return i.Value
		}
	}
	return nil
}

// noun names what a finding blames, in few words.
func noun(f PageFinding) string {
	who := f.Component + "’s "
	if f.Component == "machine" {
		who = "this machine’s "
	}
	if f.Class == string(diagnose.HarnessHit) {
		return "the load generator"
	}
	what := map[string]string{
		"cpu": "CPU", "gc": "garbage collection", "memory": "memory", "disk": "disk", "network": "network",
		"client-limit": "client limit", "workers": "worker count", "loop": "single loop", "apf": "request priority limits",
		"webhook": "webhook", "policy": "admission policy", "lock": "lock", "watch": "watch", "cache": "cache",
		"backoff": "back-off", "quota": "CPU quota",
	}[f.Resource]
	if what == "" {
		return strings.TrimSuffix(who, "’s ")
	}
	return who + what
}

package functions

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// A Growth is how the work of one function and of what it calls changed for each
// pod, from an early stretch of a run to a late one.
type Growth struct {
	Function    string
	Early, Late float64 // CPU-seconds per pod
	// Share is its part of what the component's work for a pod grew by.
	Share   float64
	Samples int // in the late stretch
}

// stacked is what Growing reads of a recording.
type stacked interface {
	Meta() record.Meta
	StackSamples() ([]record.StackSample, error)
	Stacks() ([]record.Stack, error)
}

// A Stretch is a part of a run and the pods that came up in it.
type Stretch struct {
	record.Window
	Pods float64
}

// Growing tells by sampled stacks which function of a component works more for
// each pod late than early, with what it calls: the innermost one that holds at
// least a share of what the component's work grew by. Functions of Go's own
// library and of the kernel are not named. ok is false where there is none.
// Without stacks the error wraps record.ErrMissing.
func Growing(rec stacked, component string, early, late Stretch, share float64) (g Growth, ok bool, err error) {
	rows, err := rec.StackSamples()
	if err != nil {
		return g, false, err
	}
	stacks, err := rec.Stacks()
	if err != nil {
		return g, false, err
	}
	if early.Pods <= 0 || late.Pods <= 0 {
		return g, false, nil
	}
	frames := make(map[int64]string, len(stacks))
	for _, s := range stacks {
		frames[s.ID] = s.Frames
	}
	var seen [2]map[int64]int // how often each stack was, early and late
	seen[0], seen[1] = map[int64]int{}, map[int64]int{}
	for _, r := range rows {
		at := time.UnixMicro(r.TimeMicros)
		for i, w := range [2]Stretch{early, late} {
			if r.Component == component && w.Contains(at) {
				seen[i][r.Stack]++
			}
		}
	}
	type tally struct {
		n     [2]int
		depth int // summed over the late ones
	}
	functions := map[string]*tally{}
	var all [2]int
	for i := range seen {
		for stack, n := range seen[i] {
			all[i] += n
			met := map[string]bool{} // a recursion counts once, at its outermost
			for depth, f := range strings.Split(frames[stack], ";") {
				if domain, _, _ := strings.Cut(Package(f), "/"); !strings.Contains(domain, ".") || met[f] {
					continue
				}
				met[f] = true
				if functions[f] == nil {
					functions[f] = &tally{}
				}
				functions[f].n[i] += n
				functions[f].depth += i * n * depth
			}
		}
	}
	period := PeriodOf(rec.Meta())
	perPod := func(n [2]int) (before, after float64) {
		return float64(n[0]) * period / early.Pods, float64(n[1]) * period / late.Pods
	}
	before, after := perPod(all)
	if after <= before {
		return g, false, nil
	}
	deepest := -1.0
	for _, f := range slices.Sorted(maps.Keys(functions)) {
		t := functions[f]
		x, y := perPod(t.n)
		part := (y - x) / (after - before)
		if t.n[1] == 0 || part < share {
			continue
		}
		if depth := float64(t.depth) / float64(t.n[1]); depth > deepest {
			deepest, g, ok = depth, Growth{f, x, y, part, t.n[1]}, true
		}
	}
	return g, ok, nil
}

// A Part is what one package took of a component's work.
type Part struct {
	Package string
	// Function is the innermost one of the package that holds half of it.
	Function string
	Share    float64 // of the component's samples, with what it calls
	Samples  int
}

// Dearest tells by sampled stacks which package, of those whose functions have
// some text in their names, a component spends most of its CPU in, with what it
// calls. The zero Part is none. Without stacks the error wraps record.ErrMissing.
func Dearest(rec stacked, component string, w record.Window, within string) (Part, error) {
	rows, err := rec.StackSamples()
	if err != nil {
		return Part{}, err
	}
	stacks, err := rec.Stacks()
	if err != nil {
		return Part{}, err
	}
	seen := map[int64]int{}
	all := 0
	for _, r := range rows {
		if r.Component == component && w.Contains(time.UnixMicro(r.TimeMicros)) {
			seen[r.Stack]++
			all++
		}
	}
	type tally struct{ n, depth int }
	packages, functions := map[string]int{}, map[string]*tally{}
	for _, s := range stacks {
		n := seen[s.ID]
		if n == 0 {
			continue
		}
		in, met := map[string]bool{}, map[string]bool{}
		for depth, f := range strings.Split(s.Frames, ";") {
			if !strings.Contains(f, within) || met[f] {
				continue
			}
			met[f] = true
			if pkg := Package(f); !in[pkg] {
				in[pkg] = true
				packages[pkg] += n
			}
			if functions[f] == nil {
				functions[f] = &tally{}
			}
			functions[f].n += n
			functions[f].depth += n * depth
		}
	}
	var p Part
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if n := packages[pkg]; n > p.Samples {
			p = Part{Package: pkg, Samples: n, Share: float64(n) / float64(all)}
		}
	}
	deepest := -1.0
	for _, f := range slices.Sorted(maps.Keys(functions)) {
		t := functions[f]
		if depth := float64(t.depth) / float64(t.n); Package(f) == p.Package && 2*t.n >= p.Samples && depth > deepest {
			deepest, p.Function = depth, f
		}
	}
	return p, nil
}

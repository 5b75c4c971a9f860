package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/record"
)

// maxFrames bounds the frames of one tree: what a page draws without a delay,
// and what the file can carry for each of several rounds.
const maxFrames = 100_000

// small is the frame under which stands what was too light to keep.
const small = "(small)"

// intervals is the least length in seconds of an interval in which stack
// samples are counted: below it a selection holds too few to speak of.
const intervals = 0.1

// flames makes a tree of each CPU profile of the components, and one of all
// sampled stacks that lie on the charts' time axis.
func flames(c clock, in rows, pods []record.Pod) Flames {
	b := flameBuilder{names: map[string]int{}, classes: map[string]int{}, frames: maxFrames}
	var ran []int64
	for _, p := range pods {
		if at := in.meta.Nodes.Arrived(p); at != 0 {
			ran = append(ran, at)
		}
	}
	slices.Sort(ran)
	between := func(from, to int64) int {
		i, _ := slices.BinarySearch(ran, from)
		j, _ := slices.BinarySearch(ran, to)
		return j - i
	}
	if f, ok := b.machine(c, in); ok {
		f.Pods = between(c.micros(f.From), c.micros(f.To))
		b.out.Trees = append(b.out.Trees, f)
	}
	profiles := slices.Clone(in.profiles)
	sort.SliceStable(profiles, func(i, j int) bool {
		a, b := profiles[i].ref, profiles[j].ref
		if x, y := rankOf(a.Component), rankOf(b.Component); x != y {
			return x < y
		}
		if a.Component != b.Component {
			return a.Component < b.Component
		}
		return a.Start.Before(b.Start)
	})
	for _, p := range profiles {
		f, ok := b.profile(p)
		if !ok {
			continue
		}
		start, end := extent(p)
		f.From, f.To, f.Pods = c.at(start), c.at(end), between(start, end)
		b.out.Trees = append(b.out.Trees, f)
	}
	return b.out
}

// micros is the inverse of at.
func (c clock) micros(at float64) int64 { return c.zero + int64(math.Round(at*1e6)) }

type flameBuilder struct {
	out     Flames
	names   map[string]int
	classes map[string]int
	frames  int // the most of a tree
}

// name is the index of a function.
func (b *flameBuilder) name(function string) int {
	i, ok := b.names[function]
	if !ok {
		class := functions.Classify(function)
		k, known := b.classes[class]
		if !known {
			k = len(b.out.Classes)
			b.classes[class] = k
			b.out.Classes = append(b.out.Classes, class)
		}
		i = b.add(function, k)
		if text := functions.Explain(function); text != "" {
			b.out.Notes = append(b.out.Notes, Note{i, text})
		}
	}
	return i
}

// label is the index of a frame that is no function: a component, a thread.
func (b *flameBuilder) label(text string) int {
	i, ok := b.names[text]
	if !ok {
		i = b.add(text, -1)
	}
	return i
}

func (b *flameBuilder) add(name string, class int) int {
	i := len(b.out.Names)
	b.names[name] = i
	b.out.Names = append(b.out.Names, name)
	b.out.Class = append(b.out.Class, class)
	return i
}

// profile makes a tree of a component's own CPU profile.
func (b *flameBuilder) profile(p cpuProfile) (Flame, bool) {
	value, scale := cpuValue(p.data)
	if value < 0 {
		return Flame{}, false
	}
	unit := int64(0)
	for _, s := range p.data.Sample {
		unit = gcd(unit, s.Value[value])
	}
	if unit == 0 {
		return Flame{}, false
	}
	t := newStackTree()
	for _, s := range p.data.Sample {
		if n := s.Value[value] / unit; n != 0 {
			t.frames[t.leaf(b.framesOf(s))].self += int(n)
		}
	}
	f := Flame{Source: string(functions.FromProfiles), Component: p.ref.Component, Phase: p.ref.Phase, Unit: float64(unit) * scale}
	place := t.write(&f, b)
	f.Self = make([]int, len(f.Names))
	for i, x := range t.frames {
		if x.self != 0 && i > 0 {
			f.Self[place[i]] += x.self
		}
	}
	return f, true
}

// framesOf is a sample's stack, outermost first.
func (b *flameBuilder) framesOf(s *profile.Sample) []int {
	var frames []int
	for i := len(s.Location) - 1; i >= 0; i-- {
		l := s.Location[i]
		for j := len(l.Line) - 1; j >= 0; j-- { // innermost inlined first
			if l.Line[j].Function != nil {
				frames = append(frames, b.name(l.Line[j].Function.Name))
			}
		}
		if len(l.Line) == 0 {
			frames = append(frames, b.name(fmt.Sprintf("0x%x", l.Address)))
		}
	}
	if len(frames) == 0 {
		frames = append(frames, b.name("(unknown)"))
	}
	return frames
}

// machine makes a tree of the sampled stacks, components outermost, and keeps
// when each was seen.
func (b *flameBuilder) machine(c clock, in rows) (Flame, bool) {
	from, to := -float64(margin), math.Ceil(c.at(c.end))+margin
	step := stepFor(to-from, intervals)
	f := Flame{Source: string(functions.FromStacks), From: from, To: to, Unit: in.period, Step: step}
	t := newStackTree()
	type seen struct{ interval, leaf int }
	var all []seen
	leaves := map[string]int{}
	paths := map[string][]int{}
	for _, s := range in.samples {
		at := c.at(s.TimeMicros)
		if at < from || at >= to {
			continue
		}
		owner := s.Component
		if owner == "" {
			owner = "(" + cmp.Or(s.Command, "unknown") + ")"
		}
		frames, ok := in.stacks[s.Stack]
		if !ok { // the writer died between the two rows
			frames = "[unknown]"
		}
		key := owner + ";" + frames
		leaf, ok := leaves[key]
		if !ok {
			path, known := paths[frames]
			if !known {
				for _, name := range strings.Split(frames, ";") {
					path = append(path, b.name(name))
				}
				paths[frames] = path
			}
			leaf = t.leaf(append([]int{b.label(owner)}, path...))
			leaves[key] = leaf
		}
		t.frames[leaf].self++
		all = append(all, seen{int((at - from) / step), leaf})
	}
	if len(all) == 0 {
		return Flame{}, false
	}
	place := t.write(&f, b)
	for i := range all {
		all[i].leaf = place[all[i].leaf]
	}
	slices.SortFunc(all, func(a, b seen) int { return cmp.Or(a.interval-b.interval, a.leaf-b.leaf) })
	f.Counts = make([]int, int(math.Ceil((to-from)/step-1e-9)))
	f.Samples = make([]int, 0, len(all))
	for i, s := range all {
		before := 0
		if i > 0 && all[i-1].interval == s.interval {
			before = all[i-1].leaf
		}
		f.Samples = append(f.Samples, s.leaf-before)
		f.Counts[min(s.interval, len(f.Counts)-1)]++
	}
	return f, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// A stackTree joins stacks that begin alike. Frame 0 stands above the outermost.
type stackTree struct {
	frames   []stackFrame
	children map[stackEdge]int
}

type stackFrame struct{ parent, name, self int }

type stackEdge struct{ parent, name int }

func newStackTree() *stackTree {
	return &stackTree{frames: []stackFrame{{-1, -1, 0}}, children: map[stackEdge]int{}}
}

// leaf is the frame at the end of a path, outermost first.
func (t *stackTree) leaf(path []int) int {
	at := 0
	for _, name := range path {
		edge := stackEdge{at, name}
		next, ok := t.children[edge]
		if !ok {
			next = len(t.frames)
			t.frames = append(t.frames, stackFrame{at, name, 0})
			t.children[edge] = next
		}
		at = next
	}
	return at
}

// write puts the tree's frames into f, callers before what they call, and
// tells where each went. Where there are more than b.frames the lightest go to
// a frame (small) below their nearest caller that stays: totals stay exact.
func (t *stackTree) write(f *Flame, b *flameBuilder) []int {
	total := make([]int, len(t.frames))
	callees := make([][]int, len(t.frames))
	for i := len(t.frames) - 1; i > 0; i-- { // a frame stands behind its caller
		total[i] += t.frames[i].self
		total[t.frames[i].parent] += total[i]
	}
	for i := 1; i < len(t.frames); i++ {
		callees[t.frames[i].parent] = append(callees[t.frames[i].parent], i)
	}
	least := 0
	if len(t.frames) > b.frames {
		sorted := slices.Clone(total[1:])
		slices.SortFunc(sorted, func(a, b int) int { return b - a })
		// Room for as many frames (small) as can become necessary: one for
		// each frame that stays.
		least = sorted[b.frames/2] + 1
	}
	place := make([]int, len(t.frames))
	emit := func(name, caller int) int {
		at := len(f.Names)
		f.Names = append(f.Names, name)
		distance := 0
		if caller >= 0 {
			distance = at - caller
		}
		f.Callers = append(f.Callers, distance)
		return at
	}
	var visit func(i, at int)
	var gather func(i, at int)
	gather = func(i, at int) {
		place[i] = at
		for _, k := range callees[i] {
			gather(k, at)
		}
	}
	visit = func(i, at int) {
		place[i] = at
		rest := -1
		for _, k := range callees[i] {
			if total[k] >= least {
				visit(k, emit(t.frames[k].name, at))
			}
		}
		for _, k := range callees[i] {
			if total[k] < least {
				if rest < 0 {
					rest = emit(b.label(small), at)
				}
				f.Pruned += total[k]
				gather(k, rest)
			}
		}
	}
	visit(0, -1)
	return place
}

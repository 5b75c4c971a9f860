package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report/browsertest"
)

// realProfile is etcd's CPU profile of a real run.
func realProfile(t *testing.T) *profile.Profile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "analysis", "functions", "testdata", "cpu.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// later is the same profile as it might be after a change: one function is
// gone, others weigh more or less.
func later(t *testing.T) *profile.Profile {
	p := realProfile(t)
	p.FilterSamplesByName(nil, regexp.MustCompile(`^runtime\.mallocgc$`), nil, nil)
	for i, s := range p.Sample {
		for k := range s.Value {
			s.Value[k] *= int64(1 + i%3)
		}
	}
	return p
}

// weightsOf sums a tree by function, as pprof does: a function counts once in
// a stack.
func weightsOf(f Flame, names []string) (self, total map[string]int, all int) {
	own := f.Self
	if f.Step > 0 {
		own = make([]int, len(f.Names))
		k := 0
		for _, n := range f.Counts {
			at := 0
			for range n {
				at += f.Samples[k]
				own[at]++
				k++
			}
		}
	}
	self, total = map[string]int{}, map[string]int{}
	for i, w := range own {
		if w == 0 {
			continue
		}
		all += w
		self[names[f.Names[i]]] += w
		seen := map[string]bool{}
		for at := i; ; at -= f.Callers[at] {
			if name := names[f.Names[at]]; !seen[name] {
				seen[name] = true
				total[name] += w
			}
			if f.Callers[at] == 0 {
				break
			}
		}
	}
	return self, total, all
}

func TestFlameHoldsTheProfile(t *testing.T) {
	p := realProfile(t)
	b := flameBuilder{names: map[string]int{}, classes: map[string]int{}, frames: maxFrames}
	f, ok := b.profile(cpuProfile{ref: record.ProfileRef{Component: "etcd"}, data: p})
	if !ok {
		t.Fatal("no tree")
	}
	self, total, all := weightsOf(f, b.out.Names)
	wantSelf, wantTotal := map[string]float64{}, map[string]float64{}
	sum(p, wantSelf, wantTotal)
	near := func(n int, seconds float64) bool {
		d := float64(n)*f.Unit - seconds
		return d < 1e-9 && d > -1e-9
	}
	want := 0.0
	for name, v := range wantSelf {
		want += v
		if !near(self[name], v) {
			t.Errorf("self of %s: %v, want %v s", name, float64(self[name])*f.Unit, v)
		}
	}
	for name, v := range wantTotal {
		if !near(total[name], v) {
			t.Errorf("total of %s: %v, want %v s", name, float64(total[name])*f.Unit, v)
		}
	}
	if len(total) != len(wantTotal) || !near(all, want) || f.Pruned != 0 {
		t.Errorf("%d functions of %d, %v of %v s, %d pruned", len(total), len(wantTotal), float64(all)*f.Unit, want, f.Pruned)
	}

	// With room for few frames the light ones go, and the sum stays.
	few := flameBuilder{names: map[string]int{}, classes: map[string]int{}, frames: 200}
	g, _ := few.profile(cpuProfile{data: p})
	pruned, _, sum := weightsOf(g, few.out.Names)
	if sum != all || len(g.Names) > 200 || len(g.Names) < 50 || g.Pruned == 0 || pruned[small] != g.Pruned {
		t.Errorf("%d frames, weight %d of %d, %d pruned, %d under %s", len(g.Names), sum, all, g.Pruned, pruned[small], small)
	}
}

func TestFlameOfStacks(t *testing.T) {
	in := synthRows(2)
	pods := measured(in)
	c := clockOf(in, pods)
	fl := flames(c, in, pods)
	f := fl.Trees[0]
	if f.Source != "stacks" || f.Component != "" || len(fl.Trees) != 1+len(synthFuncs) {
		t.Fatalf("%d trees, first %s of %q", len(fl.Trees), f.Source, f.Component)
	}
	_, total, all := weightsOf(f, fl.Names)
	want, shown := map[string]int{}, 0
	for _, s := range in.samples {
		if at := c.at(s.TimeMicros); at >= f.From && at < f.To {
			want[s.Component]++
			shown++
		}
	}
	for component, n := range want {
		if total[component] != n {
			t.Errorf("%s has %d samples, want %d", component, total[component], n)
		}
	}
	if all != shown || all == 0 || f.Pods != len(pods) {
		t.Errorf("%d samples of %d, %d pods", all, shown, f.Pods)
	}
	// Samples lie in their intervals.
	interval := make([]int, len(f.Counts))
	for _, s := range in.samples {
		if k := int((c.at(s.TimeMicros) - f.From) / f.Step); k >= 0 && k < len(interval) {
			interval[k]++
		}
	}
	if !slices.Equal(interval, f.Counts) {
		t.Error("samples are counted in other intervals than they were taken in")
	}
	for i, class := range fl.Class {
		if fl.Names[i] == "etcd" && class != -1 {
			t.Error("a component counts as a function")
		}
	}
}

// flamePage is a baseline and a round after a change, each with etcd's profile.
func flamePage(t *testing.T) Page {
	t.Helper()
	var rounds []Round
	for i, p := range []*profile.Profile{realProfile(t), later(t)} {
		in := synthRows(i)
		in.profiles = []cpuProfile{{ref: record.ProfileRef{Component: "etcd", Phase: "load", Kind: "cpu"}, data: p}}
		rounds = append(rounds, round(in, Input{}))
	}
	return assemble(rounds, RenderOptions{Title: "flame"})
}

// cpuSeconds are a profile's CPU-seconds, of all or of the samples with a match.
func cpuSeconds(p *profile.Profile, match string) float64 {
	p = p.Copy()
	if match != "" {
		p.FilterSamplesByName(regexp.MustCompile(match), nil, nil, nil)
	}
	i, scale := cpuValue(p)
	total := 0.0
	for _, s := range p.Sample {
		total += float64(s.Value[i]) * scale
	}
	return total
}

// set does in the browser what a reader does with a field.
const set = `((sel, v) => {
  const e = document.querySelector(sel)
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, v)
  e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))
  return true
})(%q, %q)`

// TestFlameGraphAgreesWithPprof compares what the page shows and saves with
// what pprof makes of the same profiles.
func TestFlameGraphAgreesWithPprof(t *testing.T) {
	before, after := realProfile(t), later(t)
	file := write(t, flamePage(t))
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	dir := t.TempDir()
	browsertest.Call(t, ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: "allow", DownloadPath: dir})
	browsertest.Open(t, ctx, file, 1400, false)
	do := func(format string, a ...any) {
		t.Helper()
		if !browsertest.Eval[bool](t, ctx, fmt.Sprintf(format, a...)) {
			t.Fatalf("not done: "+format, a...)
		}
		browsertest.Rest(t, ctx)
	}
	button := func(text string) {
		t.Helper()
		do(`(b => { b?.click(); return !!b })([...document.querySelectorAll('#flame button')].find(b => b.textContent === %q))`, text)
	}
	option := func(selector int, text string) {
		t.Helper()
		key := browsertest.Eval[string](t, ctx, fmt.Sprintf(`[...document.querySelectorAll('#flame select')[%d].options].find(o => o.textContent.startsWith(%q) && o.value)?.value || ''`, selector, text))
		if key == "" {
			t.Fatalf("nothing to choose begins with %q", text)
		}
		do(set, fmt.Sprintf("#flame label:nth-of-type(%d) select", selector+1), key)
	}
	amount := func(x, of float64) string {
		share := 100 * x / of
		if share > 0 && share < 10 {
			return fmt.Sprintf("%s CPU-s (%.1f %%)", number(x), share)
		}
		return fmt.Sprintf("%s CPU-s (%.0f %%)", number(x), share)
	}
	option(0, "etcd, its CPU profile")
	for _, match := range []string{`^runtime\.mallocgc$`, `bbolt`, `runtime\.(gcDrain|scanobject)`, `syscall`} {
		do(set, "#flame input[type=search]", match)
		got := browsertest.Eval[string](t, ctx, `document.querySelector('#flame .matched').textContent`)
		if want := amount(cpuSeconds(before, match), cpuSeconds(before, "")); !strings.HasSuffix(got, want) || cpuSeconds(before, match) == 0 {
			t.Errorf("search for %s: %q, pprof has %q", match, got, want)
		}
	}
	do(set, "#flame input[type=search]", "no such function")
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('#flame .matched').textContent`); got != "no match" {
		t.Errorf("search for nothing: %q", got)
	}
	do(set, "#flame input[type=search]", "")

	// What is saved holds the profile, function by function.
	for _, b := range []string{"pprof", "folded", "speedscope", "svg"} {
		button(b)
	}
	saved := func(name string) []byte {
		t.Helper()
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(data) > 0 {
				return data
			}
		}
		t.Fatalf("%s was not saved", name)
		return nil
	}
	wantSelf, wantTotal := map[string]float64{}, map[string]float64{}
	sum(before, wantSelf, wantTotal)
	exported, err := profile.ParseData(saved("cpu.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exported.CheckValid(); err != nil {
		t.Error(err)
	}
	gotSelf, gotTotal := map[string]float64{}, map[string]float64{}
	sum(exported, gotSelf, gotTotal)
	if same := func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }; !maps.EqualFunc(gotSelf, wantSelf, same) || !maps.EqualFunc(gotTotal, wantTotal, same) {
		t.Errorf("the saved profile has %d functions, pprof's %d, and other sums", len(gotTotal), len(wantTotal))
	}
	lines := strings.Split(strings.TrimSpace(string(saved("stacks.folded"))), "\n")
	n := 0
	for _, l := range lines {
		var k int
		if _, err := fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &k); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		n += k
	}
	if got, want := float64(n)*float64(exported.Period)/1e9, cpuSeconds(before, ""); got-want > 1e-6 || want-got > 1e-6 {
		t.Errorf("folded stacks hold %v CPU-s, want %v", got, want)
	}
	var scope struct{ Profiles []struct{ EndValue float64 } }
	if err := json.Unmarshal(saved("stacks.speedscope.json"), &scope); err != nil || len(scope.Profiles) != 1 || !strings.HasPrefix(number(scope.Profiles[0].EndValue), number(cpuSeconds(before, ""))) {
		t.Errorf("speedscope: %v, %+v", err, scope)
	}
	if err := wellFormed(saved("flame.svg")); err != nil {
		t.Errorf("svg: %v", err)
	}

	// The difference, as pprof -diff_base -normalize has it: every function.
	option(1, "Round 2: etcd, its CPU profile")
	button("table")
	button("total, before → after")
	do(`(b => { b?.click(); return true })([...document.querySelectorAll('#flame button')].find(b => /^all \d/.test(b.textContent)))`)
	rows := browsertest.Eval[[]string](t, ctx, `[...document.querySelectorAll('.flametable tbody tr')].map(r => r.cells[0].textContent + '\t' + r.cells[2].textContent)`)
	afterSelf, afterTotal := map[string]float64{}, map[string]float64{}
	sum(after, afterSelf, afterTotal)
	if len(rows) != len(wantTotal) {
		t.Errorf("%d functions are compared, pprof has %d", len(rows), len(wantTotal))
	}
	vanished := false
	for _, r := range rows {
		name, got, _ := strings.Cut(r, "\t")
		// The second round is compared with the first: the reader chose the first.
		want := amount(afterTotal[name], cpuSeconds(after, "")) + " → " + amount(wantTotal[name], cpuSeconds(before, ""))
		if got != want {
			t.Errorf("%s: %q, pprof has %q", name, got, want)
		}
		vanished = vanished || afterTotal[name] == 0
	}
	if !vanished {
		t.Error("nothing vanished: the comparison shows little")
	}

	// And as the command itself prints it.
	if err := os.Remove(filepath.Join(dir, "stacks.folded")); err != nil {
		t.Fatal(err)
	}
	button("folded")
	cum := map[string]float64{}
	for _, l := range strings.Split(strings.TrimSpace(string(saved("stacks.folded"))), "\n") {
		f := strings.Fields(l)
		var was, is int
		if _, err := fmt.Sscan(f[len(f)-2]+" "+f[len(f)-1], &was, &is); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		seen := map[string]bool{}
		for _, name := range strings.Split(strings.Join(f[:len(f)-2], " "), ";") {
			if !seen[name] {
				seen[name] = true
				cum[name] += float64(is-was) * float64(exported.Period) / 1e6
			}
		}
	}
	printed := diffBase(t, after, before)
	for name, want := range printed {
		if got := cum[name]; got-want > 0.01 || want-got > 0.01 {
			t.Errorf("%s: %v ms more, pprof prints %v", name, got, want)
		}
	}
	if len(printed) < 100 {
		t.Errorf("pprof printed %d functions", len(printed))
	}
	w.Check(t, file)
}

// diffBase is what go tool pprof -diff_base prints of each function's
// cumulative milliseconds.
func diffBase(t *testing.T, base, p *profile.Profile) map[string]float64 {
	t.Helper()
	dir := t.TempDir()
	for name, p := range map[string]*profile.Profile{"base": base, "p": p} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Write(f), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0", "-unit=ms", "-diff_base="+filepath.Join(dir, "base"), filepath.Join(dir, "p"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool pprof: %v", err)
	}
	got := map[string]float64{}
	line := regexp.MustCompile(`(?m)^\s*-?[\d.]+(?:ms)?\s+-?[\d.]+%\s+-?[\d.]+%\s+(-?[\d.]+)(?:ms)?\s+-?[\d.]+%\s+(.+)$`)
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		name := strings.TrimSuffix(strings.TrimSuffix(m[2], " (inline)"), " (partial-inline)")
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = v
	}
	return got
}

func wellFormed(data []byte) error {
	d := xml.NewDecoder(bytes.NewReader(data))
	for boxes := 0; ; {
		tok, err := d.Token()
		if err == io.EOF {
			if boxes == 0 {
				return fmt.Errorf("no box in it")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if e, ok := tok.(xml.StartElement); ok {
			switch e.Name.Local {
			case "rect":
				boxes++
			case "svg", "title", "text", "g":
			default:
				return fmt.Errorf("element %s", e.Name.Local)
			}
		}
	}
}

// TestFlameGraphByKeys walks through the graph without a mouse.
func TestFlameGraphByKeys(t *testing.T) {
	file := write(t, flamePage(t))
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	name := `document.querySelector('#flame .framename code').textContent`
	press := func(keys ...string) string {
		t.Helper()
		for _, k := range keys {
			if !browsertest.Eval[bool](t, ctx, fmt.Sprintf(`(e => { e.focus(); return !e.dispatchEvent(new KeyboardEvent('keydown', {key: %q, bubbles: true, cancelable: true})) })([...document.querySelectorAll('#flame .flame')].at(-1))`, k)) {
				t.Fatalf("key %s does nothing", k)
			}
			browsertest.Rest(t, ctx)
		}
		return browsertest.Eval[string](t, ctx, name)
	}
	pixels := func() string {
		return browsertest.Eval[string](t, ctx, `[...document.querySelectorAll('#flame canvas')].map(c => c.toDataURL()).join()`)
	}
	whole := pixels()
	first := press("ArrowDown")
	if first == "all" {
		t.Fatalf("the arrow stays at %s", first)
	}
	second := press("ArrowRight")
	if second == first {
		t.Error("no frame beside the first")
	}
	if back := press("ArrowLeft"); back != first {
		t.Errorf("right and left end at %s, not %s", back, first)
	}
	press("Enter")
	zoomed := pixels()
	if press("0"); zoomed == whole || pixels() == zoomed {
		t.Error("zooming draws the same picture")
	}
	press("ArrowDown")
	if press("i"); pixels() == whole {
		t.Error("a flame looks like an icicle")
	}
	press("i", "b", "b", "r", "r", "c", "c", "t")
	if n := browsertest.Eval[int](t, ctx, `document.querySelectorAll('.flametable tbody tr').length`); n == 0 {
		t.Error("no table")
	}
	if !browsertest.Eval[bool](t, ctx, fmt.Sprintf(set, "#flame input[type=search]", "runtime")) {
		t.Fatal("no search")
	}
	browsertest.Rest(t, ctx)
	a := press("n")
	b := press("n")
	if !strings.Contains(a, "runtime") || !strings.Contains(b, "runtime") {
		t.Errorf("matches are %s and %s", a, b)
	}
	press("N", "h")
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('#flame .chips')?.textContent || ''`); !strings.Contains(got, "hidden") {
		t.Errorf("hiding leaves %q", got)
	}
	press("u", "ArrowDown", "ArrowDown", "s")
	if n := browsertest.Eval[int](t, ctx, `document.querySelectorAll('#flame canvas').length`); n != 2 {
		t.Errorf("a sandwich has %d graphs", n)
	}
	press("u", "ArrowDown", "ArrowDown", "f", "u", "ArrowDown", "x", "u")
	if press("/"); browsertest.Eval[string](t, ctx, `document.activeElement.type`) != "search" {
		t.Error("/ does not lead to the search")
	}
	w.Check(t, file)
}

// TestFlameGraphOfManyFrames draws as many frames as a tree may have. Only
// what is in sight is drawn, so that the time does not follow their number.
func TestFlameGraphOfManyFrames(t *testing.T) {
	p := flamePage(t)
	const n = maxFrames
	f := Flame{Source: "pprof", Component: "etcd", Phase: "load", To: 10, Unit: 0.01}
	for i := range n {
		caller := max(0, i-1-i%7)
		if i%500 == 0 {
			caller = i // outermost; below it 500 deep where i%7 is 0
		}
		f.Names = append(f.Names, i%len(p.Rounds[0].Flames.Names))
		f.Callers = append(f.Callers, i-caller)
		f.Self = append(f.Self, 1+i%13)
	}
	p.Rounds = p.Rounds[:1]
	p.Rounds[0].Flames.Trees = []Flame{f}
	file := write(t, p)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	times := browsertest.Eval[[]float64](t, ctx, `(() => {
	  const e = document.querySelector('#flame .flame'), out = []
	  const dot = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
	  for (let i = 0; i < 60; i++) {
	    e.scrollTop = (i % 20) * 40
	    const t = performance.now()
	    e.dispatchEvent(new Event('scroll'))
	    dot.drawImage(document.querySelector('#flame canvas'), 0, 0)
	    dot.getImageData(0, 0, 1, 1) // waits until it is drawn
	    out.push(performance.now() - t)
	  }
	  return out
	})()`)
	slices.Sort(times)
	t.Logf("draws of %d frames: p50 %.1f ms, p95 %.1f ms", n, times[len(times)/2], times[len(times)*95/100])
	if colours := browsertest.Eval[int](t, ctx, `(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)(document.querySelector('#flame canvas'))`); colours < 5 {
		t.Errorf("%d colours are drawn", colours)
	}
	w.Check(t, file)
}

// TestFlameGraphOfManySamples draws a million samples, of a component's profile
// and of the machine's stacks, one of them 500 frames deep: none is lost, and the
// deepest frame can be scrolled to.
func TestFlameGraphOfManySamples(t *testing.T) {
	const n, kinds, deep = 1_000_000, 5000, 500
	rng := rand.New(rand.NewPCG(1, 6))
	prof := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, DurationNanos: 30e9}
	for i := range 2000 {
		f := &profile.Function{ID: uint64(i + 1), Name: fmt.Sprintf("example.com/pkg%d.f%d", i%40, i)}
		prof.Function = append(prof.Function, f)
		prof.Location = append(prof.Location, &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}})
	}
	in := synthRows(0)
	in.stacks, in.samples = map[int64]string{}, nil
	var stacks [][]*profile.Location
	for i := range kinds {
		depth := 5 + rng.IntN(40)
		if i == 0 {
			depth = deep
		}
		var stack []*profile.Location
		var names []string
		for k := range depth { // outermost first; the same callers call alike
			l := prof.Location[(k*37+rng.IntN(1+k/4))%len(prof.Location)]
			stack, names = append(stack, l), append(names, l.Line[0].Function.Name)
		}
		in.stacks[int64(i+1)] = strings.Join(names, ";")
		slices.Reverse(stack)
		stacks = append(stacks, stack)
	}
	from := in.meta.Phases[2].Start.UnixMicro()
	for i := range n {
		kind := int(float64(kinds) * rng.Float64() * rng.Float64()) // some are hotter
		prof.Sample = append(prof.Sample, &profile.Sample{Location: stacks[kind], Value: []int64{1, 10e6}})
		in.samples = append(in.samples, record.StackSample{TimeMicros: from + int64(i), Component: "etcd", Stack: int64(kind + 1)})
	}
	in.profiles = []cpuProfile{{ref: record.ProfileRef{Component: "etcd", Phase: "load", Kind: "cpu"}, data: prof}}
	page := assemble([]Round{round(in, Input{})}, RenderOptions{})
	for _, f := range page.Rounds[0].Flames.Trees {
		if _, _, all := weightsOf(f, page.Rounds[0].Flames.Names); all != n || len(f.Names) > maxFrames {
			t.Errorf("%s: %d samples of %d in %d frames", f.Source, all, n, len(f.Names))
		}
	}
	file := write(t, page)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	ready := browsertest.Eval[float64](t, ctx, `performance.getEntriesByName('ready')[0].startTime`)
	info, err := os.Stat(strings.TrimPrefix(file, "file://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("two trees of a million samples: %d kB, ready after %.0f ms", info.Size()/1000, ready)
	if height := browsertest.Eval[int](t, ctx, `document.querySelector('#flame .flame').scrollHeight`); height < deep*10 {
		t.Errorf("%d pixels for %d frames on each other", height, deep)
	}
	drawn := browsertest.Eval[int](t, ctx, `(() => {
	  const e = document.querySelector('#flame .flame'), c = document.querySelector('#flame canvas')
	  e.scrollTop = e.scrollHeight
	  e.dispatchEvent(new Event('scroll'))
	  return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size
	})()`)
	if drawn < 2 {
		t.Error("nothing is drawn where the deepest frame is")
	}
	w.Check(t, file)
}

// TestSelection drags over a chart: what is below follows.
func TestSelection(t *testing.T) {
	file := write(t, synthPage())
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	head := `document.querySelector('#flame .flamehead').textContent`
	served := `document.querySelector('#requests output').textContent`
	first := `document.querySelector('#time .round .pick input').value`
	wholeHead, wholeServed := browsertest.Eval[string](t, ctx, head), browsertest.Eval[string](t, ctx, served)

	// By mouse: a quarter of the baseline's CPU chart.
	browsertest.Eval[bool](t, ctx, `(document.documentElement.style.scrollBehavior = 'auto', document.querySelectorAll('#time .plot')[3].scrollIntoView({block: 'center'}), true)`)
	box := browsertest.Eval[map[string]float64](t, ctx, `(r => ({x: r.x, y: r.y + r.height / 2, w: r.width}))(document.querySelectorAll('#time .plot .u-over')[3].getBoundingClientRect())`)
	for _, e := range []struct {
		kind input.DispatchMouseEventType
		x    float64
	}{{input.DispatchMouseEventTypeMousePressed, 0.25}, {input.DispatchMouseEventTypeMouseMoved, 0.4}, {input.DispatchMouseEventTypeMouseMoved, 0.5}, {input.DispatchMouseEventTypeMouseReleased, 0.5}} {
		button := input.MouseButtonLeft
		browsertest.Call(t, ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: e.kind, X: box["x"] + e.x*box["w"], Y: box["y"], Button: button, Buttons: 1, ClickCount: 1})
		browsertest.Rest(t, ctx)
	}
	browsertest.Rest(t, ctx)
	from := browsertest.Eval[string](t, ctx, first)
	if from == "" {
		t.Fatal("dragging selects nothing")
	}
	selected := browsertest.Eval[string](t, ctx, head)
	if selected == wholeHead || !strings.Contains(selected, "–") {
		t.Errorf("the flame graph does not follow: %s", selected)
	}
	if got := browsertest.Eval[string](t, ctx, served); got == wholeServed {
		t.Errorf("requests do not follow: %s", got)
	}

	// By keys: on, longer, and away.
	press := func(key string, shift bool) {
		t.Helper()
		browsertest.Eval[bool](t, ctx, fmt.Sprintf(`(e => { e.focus(); return e.dispatchEvent(new KeyboardEvent('keydown', {key: %q, shiftKey: %t, bubbles: true, cancelable: true})) })(document.querySelector('#time .band'))`, key, shift))
		browsertest.Rest(t, ctx)
	}
	press("ArrowRight", false)
	if got := browsertest.Eval[string](t, ctx, first); got == from {
		t.Errorf("an arrow leaves the selection at %s", got)
	}
	before := browsertest.Eval[string](t, ctx, head)
	if press("ArrowRight", true); browsertest.Eval[string](t, ctx, head) == before {
		t.Error("Shift and an arrow do not make it longer")
	}
	// What was selected is compared with the rest of the run.
	if !browsertest.Eval[bool](t, ctx, fmt.Sprintf(set, "#flame label:nth-of-type(2) select", "rest")) {
		t.Fatal("nothing to compare with")
	}
	browsertest.Rest(t, ctx)
	if got := browsertest.Eval[string](t, ctx, head); !strings.Contains(got, "not selected") || !strings.Contains(got, " → ") {
		t.Errorf("compared with the rest: %s", got)
	}
	press("Escape", false)
	if got := browsertest.Eval[string](t, ctx, head); got != wholeHead {
		t.Errorf("after Escape: %s", got)
	}

	// A finding leads to the seconds in which pods waited for it.
	if !browsertest.Eval[bool](t, ctx, `(b => { b.click(); return true })(document.querySelector('#why .show'))`) {
		t.Fatal("the finding leads nowhere")
	}
	browsertest.Rest(t, ctx)
	if browsertest.Eval[string](t, ctx, first) == "" {
		t.Error("the finding selects nothing")
	}
	w.Check(t, file)
}

package report

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report/browsertest"
	"github.com/kubedyno/kubedyno/stat"
)

// furnished is the synthetic page with what its rows do not make: a checklist,
// disks, claims, and what several runs say of two sides.
func furnished() Page {
	p := synthPage()
	r := &p.Rounds[0]
	check := func(resource, component, kind, verdict string, value float64) UseCheck {
		return UseCheck{From: -20, To: 150, Resource: resource, Component: component, Kind: kind, Aspect: "mean over the window", Value: &value, Unit: "share", Watch: 0.7, Bad: 0.9, Verdict: verdict, Evidence: "machine", Source: "a rule"}
	}
	unknown := check("disk", "machine", "errors", "not measurable", 0)
	unknown.Value, unknown.Reason = nil, "the kernel does not tell"
	r.Use = []UseCheck{check("client limit", "kube-controller-manager", "saturation", "saturated", 0.98), check("CPU", "machine", "utilisation", "watch", 0.75), unknown, check("memory", "machine", "utilisation", "ok", 0.4)}
	load := check("CPU", "machine", "utilisation", "ok", 0.6)
	load.Phase, load.From, load.To = "load", 0, 150
	r.Use = append(r.Use, load)
	r.Heat = Heat{Start: 0, Step: 1, Steps: 150}
	for i := range 18 {
		r.Heat.Edges = append(r.Heat.Edges, math.Floor(math.Pow(2, float64(i-1))))
	}
	for _, who := range []string{"etcd", "the kernel"} {
		m := HeatMap{Process: who, Kind: "syncs"}
		for i := range 150 {
			row := 10 + int(3*math.Sin(float64(i)/9))
			m.Cells = append(m.Cells, min(i, 1), row-1, 3+i%5, 0, row, 20+i%7, 0, row+2, 1)
			m.Count += 24 + i%5 + i%7
		}
		r.Heat.Maps = append(r.Heat.Maps, m)
	}
	for i := range 30 {
		r.Claims.Names = append(r.Claims.Names, fmt.Sprintf("load/data-%02d", i))
		r.Claims.Class = append(r.Claims.Class, "fast")
		at := 100 * i
		r.Claims.Created = append(r.Claims.Created, at)
		r.Claims.Provisioned = append(r.Claims.Provisioned, at+900-20*i)
		r.Claims.Bound = append(r.Claims.Bound, at+1100-20*i)
		r.Claims.Attached = append(r.Claims.Attached, at+2000-20*i)
		r.Claims.Running = append(r.Claims.Running, at+3500-20*i)
	}
	r.Claims.Running[0], r.Claims.Attached[0] = NotSeen, NotSeen
	for _, s := range []string{"provision", "bind", "attach"} {
		r.Claims.Steps = append(r.Claims.Steps, ClaimStep{Class: "fast, Immediate", Name: s, What: "who does it", N: 30, P50: ptr(0.7), Max: ptr(0.9)})
	}
	return p
}

// twoSides is the furnished page as a comparison of several runs.
func twoSides() Page {
	p := furnished()
	p.Rounds = []Round{p.Rounds[0], p.Rounds[2]}
	p.Rounds[0].Name, p.Rounds[1].Name = "Baseline, run 2 of 4", "Candidate, run 1 of 4"
	p.Verdict = "Throughput 20 → 52 pods/s (×2.6, ×2.5 to ×2.7), control plane CPU 14 → 14.2 ms/pod (~, no difference that these runs can show; one of 6 % would be)."
	spread := func(v float64) Spread {
		return Spread{Value: ptr(v), Low: ptr(0.95 * v), High: ptr(1.05 * v), N: 4, Values: Values{0.96 * v, v, 1.01 * v, 1.04 * v}}
	}
	row := func(id, group, name, unit string, a, ratio, low, high float64, verdict string) SideRow {
		return SideRow{ID: id, Group: group, Name: name, Unit: unit, Lower: group != "rate", Baseline: spread(a), Candidate: spread(a * ratio), Ratio: ptr(ratio), RatioLow: ptr(low), RatioHigh: ptr(high), P: ptr(0.004), Verdict: verdict, Detectable: ptr(0.06), Needed: ptr(6)}
	}
	one := row("stage.start", "stage", "wait in start", "s/pod", 0.4, 1.1, 0.9, 1.3, "~")
	one.RatioHigh, one.Baseline.Low = nil, nil
	none := SideRow{ID: "harness.x", Group: "harness", Name: "harness", Unit: "ms/pod", Verdict: "no value", Baseline: Spread{Reason: "not recorded"}, Difference: ptr(-3.0)}
	p.Several = &Several{
		Baseline: []SideRun{{ID: "20261120T093000Z-a", Pods: 3000}, {ID: "b"}, {ID: "c"}, {ID: "d"}}, Candidate: []SideRun{{ID: "e"}, {ID: "f"}, {ID: "g"}, {ID: "h"}},
		Interval: true, Alpha: 0.03, Changed: []Difference{{Path: "kube-controller-manager.args.kube-api-qps", New: "-1"}}, Warnings: []string{"the sides were not interleaved"},
		Rows: []SideRow{
			row("intent.last", "user", "intent latency, last", "s", 150, 0.39, 0.37, 0.41, "better"), row("startup.p99", "user", "pod startup p99", "s", 1.2, 1.4, 1.2, 1.7, "worse"),
			row("throughput", "rate", "scheduling throughput", "pods/s", 20, 2.6, 2.5, 2.7, "better"), row("cpu.total", "cpu", "control plane, all components", "ms/pod", 14, 1.02, 0.95, 1.09, "~"), one, none,
		},
		Details: []Detail{
			{ID: "functions", Tested: true, Alpha: 0.02, Looked: 140, Rows: []DetailRow{{Key: []string{"kube-apiserver", "runtime.gcBgMarkWorker"}, Verdict: "more", Measures: []Measure{{Name: "self", Unit: "%", Baseline: 3.4, Candidate: 6.6, Low: ptr(0.8), High: ptr(5.4)}}}}},
			{ID: "requests", Why: "no indicator and no function differs"}, {ID: "logs", NotAssessed: "in the baseline: not recorded"},
		},
	}
	return p
}

// trends is a page of history.
func trends() Page {
	p := Page{Title: "History", Verdict: "48 valid runs, 3 series: 1 change for the worse, 1 for the better.", Tool: "v0.1.0", Generated: synthStart, Valid: true, LeftOut: []string{"20261101T000000Z-bad is not valid: the generator was late"}}
	t := Trend{Experiment: "density", Machine: "2 CPUs", Indicator: "cpu.total", Name: "control plane, all components", Unit: "ms/pod", Lower: true}
	for i := range 24 {
		v := 14 + 0.3*math.Sin(float64(3*i))
		if i >= 14 {
			v += 2.5
		}
		t.Runs, t.At, t.Values = append(t.Runs, fmt.Sprintf("run-%02d", i)), append(t.At, synthStart.Add(time.Duration(i)*24*time.Hour)), append(t.Values, v)
	}
	t.Steps = []Step{{At: 14, Before: 14, After: 16.5, Ratio: 1.18, P: 0.001, Verdict: "worse", Changed: []Difference{{Path: "kube-apiserver.version", Old: "v1.36.2", New: "v1.36.3"}}}}
	few := t
	few.Indicator, few.Name, few.Unit, few.Lower, few.Steps, few.Note = "throughput", "scheduling throughput", "pods/s", false, nil, "7 runs are too few for a change"
	few.Runs, few.At, few.Values = few.Runs[:7], few.At[:7], Values{52, 51.2, 51.7, 52.6, 51.9, 52.3, 51.4}
	steps := t
	steps.Experiment, steps.Steps, steps.Values = "one-node", []Step{{At: 8, Before: 38, After: 16, Ratio: 0.42, P: 0.001, Verdict: "better"}}, nil
	for i := range 24 {
		steps.Labels = append(steps.Labels, []string{"as-was", "poll-30", "events", "no-election", "one-dns", "all"}[i/4])
		steps.Values = append(steps.Values, []float64{38, 37, 16, 15.5, 15.8, 15}[i/4]+math.Sin(float64(3*i)))
	}
	p.History = []Trend{t, few, steps}
	return p
}

// values is a sweep as a page.
func values() Page {
	s := swept(compare.Better)
	s.Axes[0].Values = []string{compare.Unset, "500", "1000", "10000", "100000"}
	s.Points, s.Checks[0].ByPoint = nil, []string{"2", "38 (37…40)", "19", "2", "0"}
	row := func(id string, group compare.Group, name, unit string, lower bool, medians ...float64) compare.Sweeps {
		r := compare.Sweeps{ID: id, Group: group, Name: name, Unit: unit, Lower: lower, Ratios: true, Within: ptr(0.06)}
		for i, m := range medians {
			c := sweptCell(m, m/medians[0], 0.95*m/medians[0], 1.06*m/medians[0], compare.Same)
			if x := m / medians[0]; x < 0.85 || x > 1.15 {
				c.Verdict = compare.Worse
				if (x < 1) == lower {
					c.Verdict = compare.Better
				}
			}
			if i == 0 {
				c.Ratio, c.Shift, c.Verdict = nil, nil, ""
			} else {
				c.P = ptr(0.62)
				if c.Verdict != compare.Same {
					c.P = ptr(0.012)
				}
			}
			c.Interval = &stat.Interval{Lo: 0.96 * m, Hi: 1.05 * m, Level: 0.95}
			c.Values = []float64{0.94 * m, 0.97 * m, m, 1.02 * m, 1.05 * m}
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	for i, v := range s.Axes[0].Values {
		p := compare.SweepPoint{Name: v, Values: []string{v}, Against: min(0, i-1)}
		s.Points = append(s.Points, p)
	}
	s.Rows = []compare.Sweeps{
		row("cpu.total", compare.CPU, "control plane, all components", "ms/pod", true, 14, 19.2, 16.5, 14.1, 13.9),
		row("intent.last", compare.User, "intent latency, last", "s", true, 31, 30, 31.5, 31, 24),
		row("startup.p99", compare.User, "pod startup p99", "s", true, 1.2, 1.3, 1.2, 1.1, 1.2),
		row("throughput", compare.Rate, "scheduling throughput", "pods/s", false, 48, 49, 47, 48, 61),
	}
	s.Rows[0].Fit = &compare.Fit{Kind: "power", Slope: -0.06, Interval: stat.Interval{Lo: -0.08, Hi: -0.03}, R2: 0.8, N: 5, Points: 4}
	s.Rows = append(s.Rows, compare.Sweeps{ID: "cpu.etcd", Group: compare.CPU, Name: "etcd", Unit: "ms/pod", Reason: "less than 1 % of the control plane's CPU", Cells: make([]compare.SweepCell, 5)})
	s.Best = &compare.Best{Point: 4, Row: "intent.last", Reason: "intent latency, last 24 s, ×0.77, and worse in nothing"}
	s.Warnings = []string{"run 5 does not count (invalid)"}
	p := plain(RenderOptions{Tool: "v0.1.0", Now: synthStart}, "Sweep of density", SweepVerdict(s))
	p.Sweep = sweptPage(s)
	return p
}

// knee is a capacity as a page, by rates and with a ladder.
func knee() Page {
	c := &compare.Capacity{
		Experiment: "density-direct", Find: "rate", Unit: "pods/s", Warnings: []string{"the machine is small"},
		Objectives: []record.Objective{{Name: "pod-startup", Indicator: "pod-startup", Quantile: 0.99, Limit: 5, Unit: "s"}, {Name: "throughput", Indicator: "throughput", Limit: 20, Unit: "1/s"}},
		Ladder: &compare.Ladder{PerCore: 41, N: 8, From: "the line through the measured numbers of cores", Next: "scheduling loop", NextRate: 240,
			Held: []compare.HeldOut{{Rung: compare.Rung{Cores: 1.5, Rate: 60, Interval: &stat.Interval{Lo: 54, Hi: 66, Level: 0.95}}, Measured: compare.Average{Value: 57, N: 2}, Error: 0.05}}},
	}
	for _, cores := range []float64{2, 4, 8} {
		r := compare.Rung{Cores: cores, Rate: min(240, 41*cores-2), Computed: true, Capped: 41*cores > 240}
		if !r.Capped {
			r.Interval = &stat.Interval{Lo: 0.85 * r.Rate, Hi: 1.15 * r.Rate, Level: 0.95}
		}
		c.Ladder.Rungs = append(c.Ladder.Rungs, r)
	}
	for i, cores := range []float64{1, 1.5} {
		at := compare.CapacityAt{Cores: cores, Value: 38 * cores, Interval: &stat.Interval{Lo: 35 * cores, Hi: 42 * cores, Level: 0.9}, N: 9, Sure: i == 0, Binds: "the control plane's quota is used up", BoundByCPU: true}
		for n := range 9 {
			load := (28 + 2.5*float64(n)) * cores
			late := 1 + math.Exp(load/cores-38)/3
			p := compare.Probe{Load: load, Rate: min(load, 39*cores), Valid: n != 4, Passed: late <= 5, Latencies: map[string]float64{"pod-startup": min(40, late), "throughput": min(load, 39*cores)}}
			if n == 4 {
				p.Why = "the load generator was the limit"
			} else if !p.Passed {
				p.Why = fmt.Sprintf("pod-startup %.3g s, limit 5", late)
			}
			at.Probes = append(at.Probes, p)
		}
		bound := compare.Average{Value: 40 * cores, Interval: &stat.Interval{Lo: 38 * cores, Hi: 42 * cores, Level: 0.95}, N: 4}
		at.Demands = []compare.Demand{{Name: "cpu of the control plane", Kind: "cpu", Unit: "s/pod", Each: compare.Average{Value: 0.024, N: 4}, Bound: bound}, {Name: "client limit of kube-scheduler", Kind: "client-limit", Unit: "requests/pod", Each: compare.Average{Value: 1, N: 4}, Bound: compare.Average{Value: 100 * cores, N: 4}}}
		c.At = append(c.At, at)
	}
	p := plain(RenderOptions{Tool: "v0.1.0", Now: synthStart}, "Capacity of density-direct", capacityVerdict(c, c.At[1]))
	p.Capacity = carried(c)
	return p
}

// unasked is a saturated capacity: nothing was turned up.
func unasked() Page {
	c := &compare.Capacity{Experiment: "density", Unit: "pods/s", Saturated: true, At: []compare.CapacityAt{{Value: 52, Interval: &stat.Interval{Lo: 49, Hi: 55, Level: 0.95}, N: 3, Sure: true}}}
	for _, r := range []float64{50, 52, 54} {
		c.At[0].Probes = append(c.At[0].Probes, compare.Probe{Rate: r, Valid: true, Passed: true})
	}
	p := plain(RenderOptions{Tool: "v0.1.0", Now: synthStart}, "Capacity of density", capacityVerdict(c, c.At[0]))
	p.Capacity = carried(c)
	return p
}

// resting is an overhead as a page.
func resting() Page {
	of := func(x float64) compare.Average {
		return compare.Average{Value: x, N: 6, Interval: &stat.Interval{Lo: x - 0.0012, Hi: x + 0.0012, Level: 0.95}}
	}
	o := &compare.Overhead{Of: "density", Machine: record.Machine{CPUs: 2}, Rounds: 6, Planned: 6, WindowSeconds: 30, Total: of(0.0913), Warnings: []string{"not observed: steal"}}
	below := 0.021
	for _, l := range []struct {
		name string
		step float64
	}{{"without", 0}, {"etcd", 0.0102}, {"kube-apiserver", 0.0453}, {"kube-controller-manager", 0.0163}, {"kube-scheduler", 0.0098}, {"50 simulated nodes", 0.0112}, {"leader election off", -0.0015}} {
		below += l.step
		wake := compare.Average{Value: 900 * l.step, N: 6}
		o.Layers = append(o.Layers, compare.LayerStep{Name: l.name, Cores: of(below), Step: of(l.step), Wakeups: wake})
	}
	apart := of(0.0921)
	o.Apart = &apart
	o.Paused = &compare.Alternative{Name: "paused", Cores: of(0.0005), Saved: of(0.0908), Share: ptr(0.99), Than: "all layers"}
	o.Instead = []compare.Alternative{{Name: "without leader election", Set: []string{"kube-scheduler.args.leader-elect=false"}, Cores: of(0.0904), Saved: of(0.0009), Than: "the whole"}}
	o.Checks = []compare.Check{{Name: "layers", Text: "the layers are the whole", Difference: of(0.0008), OK: true, Assessed: true}, {Name: "machine", Text: "processes are the machine's own count", Difference: of(0.0002), OK: true}}
	for i, name := range []string{"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kubedyno-hollow"} {
		x := 0.045 / float64(i+1)
		o.Processes = append(o.Processes, compare.ProcessCost{Name: name, Owner: compare.OfCluster, Without: of(0), With: of(x), Difference: of(x), Wakeups: compare.Average{Value: 120 - 20*float64(i), N: 6}})
	}
	o.Processes = append(o.Processes, compare.ProcessCost{Name: "rcu_preempt", Owner: compare.OfKernel, Without: of(0.001), With: of(0.002), Difference: of(0.001)})
	o.Modes = []compare.Mode{{Name: "user", Without: of(0.01), With: of(0.07), Difference: of(0.06)}}
	p := plain(RenderOptions{Tool: "v0.1.0", Now: synthStart}, "Overhead of density", overheadVerdict(o))
	p.Overhead = atRest(o)
	return p
}

// list is a folder, and growing a run that is being recorded.
func list() Folder {
	f := Folder{Tool: "v0.1.0", Name: "runs"}
	for i := range 12 {
		e := Entry{Name: fmt.Sprintf("density-%02d", i), ID: fmt.Sprint(i), Experiment: "density", Started: synthStart.Add(time.Duration(i) * time.Hour), Seconds: 90, Status: "complete", Pods: 3000, Nodes: 100, Machine: "2 CPUs", Kubernetes: "v1.36.3", Stamp: "1"}
		if i%4 == 1 {
			e.Settings = []string{"kube-controller-manager.args.kube-api-qps=-1"}
		}
		f.Entries = append(f.Entries, e)
	}
	f.Entries[11].Status, f.Entries[10].Status, f.Entries[10].Damaged = "running", "damaged", "recording.json is damaged"
	return f
}

func growing() Progress {
	r := synthPage().Rounds[0]
	p := Progress{Entry: list().Entries[11], Now: 80, Phase: "load", Phases: []Phase{{"start", "start", 0, 12}, {"load", "steady", 12, 80}}, Curves: r.Curves, Created: 1500, Scheduled: 1480, Running: 1450}
	return p
}

// documents are all kinds of pages that there are.
func documents(t *testing.T, change func(any)) map[string]string {
	t.Helper()
	files := map[string]string{}
	save := func(name string, b *bytes.Buffer, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(f, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		files[name] = "file://" + f
	}
	for name, p := range map[string]Page{"report": furnished(), "comparison": twoSides(), "history": trends(), "sweep": values(), "capacity": knee(), "saturated": unasked(), "overhead": resting()} {
		change(&p)
		var b bytes.Buffer
		save(name, &b, WritePage(&b, p))
	}
	f, g := list(), growing()
	g.Entry.Status = "complete" // or it would ask a server that is not there
	change(&f)
	change(&g)
	var b, c bytes.Buffer
	save("folder", &b, WriteFolder(&b, f))
	save("progress", &c, WriteProgress(&c, g, "v0.1.0"))
	return files
}

// opened shows all that can be folded out.
const opened = `(document.querySelectorAll('details').forEach(d => { d.open = true }), [...document.querySelectorAll('#flame button')].filter(b => ['table', 'call graph'].includes(b.textContent)).forEach(b => b.click()), true)`

// TestEveryViewWithHostileText puts hostile text into every text of every page.
func TestEveryViewWithHostileText(t *testing.T) {
	n := 0
	evil := func() string {
		n++
		return fmt.Sprintf(`%d"'></script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">=cmd()`, n) + "\u202eabc\u200f" + strings.Repeat("w", 500)
	}
	// What chooses between views, or is compared with what is known.
	chooses := []string{"Source", "Group", "Status", "Stamp", "Verdict"}
	var poison func(v reflect.Value, field string)
	poison = func(v reflect.Value, field string) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				poison(v.Elem(), field)
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				poison(v.Field(i), v.Type().Field(i).Name)
			}
		case reflect.Slice:
			for i := range v.Len() {
				poison(v.Index(i), field)
			}
		case reflect.String:
			if n > 20_000 {
				return // names of 3,000 pods say no more than those of a few hundred
			}
			if v.Type() == reflect.TypeFor[string]() && !slices.Contains(chooses, field) && (field != "ID" || len(v.String()) > 12) {
				v.SetString(evil())
			}
		}
	}
	files := documents(t, func(p any) {
		if page, ok := p.(*Page); ok {
			for i := range page.Rounds { // many alike
				page.Rounds[i].Pods = PodTable{Names: []string{"a"}, Nodes: []string{"n"}, Node: []int{0}, Asked: []int{0}, Created: []int{1}, Bound: []int{2}, Running: []int{3}}
			}
		}
		poison(reflect.ValueOf(p).Elem(), "")
	})
	ctx := browsertest.New(t)
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			browsertest.Open(t, ctx, file, 1000, false)
			browsertest.Eval[bool](t, ctx, opened)
			browsertest.Rest(t, ctx)
			if title := browsertest.Eval[string](t, ctx, "document.title"); title == "owned" {
				t.Error("a text ran")
			}
			if n := browsertest.Eval[int](t, ctx, "document.scripts.length + 10 * document.images.length"); n != 2 {
				t.Errorf("%d: a text became an element", n)
			}
			if n := browsertest.Eval[int](t, ctx, `[...document.body.innerText].filter(c => c === '\u202e' || c === '\u200f').length`); n != 0 {
				t.Errorf("%d marks that turn text around", n)
			}
			if wide := browsertest.Eval[int](t, ctx, tooWide); wide > 0 {
				t.Errorf("a long word makes the page %d px too wide", wide)
			}
		})
	}
}

// TestAccessible asks axe-core, with everything folded out, in both schemes.
func TestAccessible(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("..", "ui", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("axe-core is missing: run `cd ui && npm ci --no-audit --no-fund`: %v", err)
	}
	files := documents(t, func(p any) {
		if page, ok := p.(*Page); ok { // axe looks at every cell
			if page.Several == nil && len(page.Rounds) > 0 {
				page.Rounds = page.Rounds[:1]
			}
			for i := range page.Rounds {
				page.Rounds[i].Logs = page.Rounds[i].Logs[:min(5, len(page.Rounds[i].Logs))]
			}
		}
	})
	ctx := browsertest.New(t)
	for _, name := range []string{"report", "comparison", "history", "sweep", "capacity", "saturated", "overhead", "folder", "progress"} {
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dark=%t", name, dark), func(t *testing.T) {
				browsertest.Open(t, ctx, files[name], 1200, dark)
				browsertest.Eval[bool](t, ctx, opened)
				browsertest.Rest(t, ctx)
				browsertest.Eval[bool](t, ctx, string(axe)+`;
document.documentElement.judged = ''
axe.run(document, {resultTypes: ['violations']}).then(r => {
  document.documentElement.judged = r.violations.map(v => v.id + ': ' + v.help + '\n' + v.nodes.slice(0, 4).map(n => '    ' + n.target.join(' ') + ' ' + (n.any[0]?.message ?? '')).join('\n')).join('\n') || 'none'
}, e => { document.documentElement.judged = String(e) }), true`)
				browsertest.Until(t, ctx, "axe has judged", "document.documentElement.judged")
				if got := browsertest.Eval[string](t, ctx, "document.documentElement.judged"); got != "none" {
					t.Error(got)
				}
			})
		}
	}
}

// TestNewcomersWalk goes from the verdict to the code that causes it, each step
// one action.
func TestNewcomersWalk(t *testing.T) {
	p := furnished()
	p.Rounds[0].Tracks.Spikes = []Mark{{From: 20, To: 24, Text: "machine busier than around"}}
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	file := write(t, p)
	browsertest.Open(t, ctx, file, 1400, false)
	sight := func(what, selector string) {
		t.Helper()
		browsertest.Until(t, ctx, what+" in sight", fmt.Sprintf(`(r => r.bottom > 0 && r.top < innerHeight)(document.querySelector(%q).getBoundingClientRect())`, selector))
	}
	// The finding leads to its evidence: the seconds in which pods waited.
	browsertest.Click(t, ctx, "#why .finding .show")
	sight("the charts", "#time h2")
	if browsertest.Eval[string](t, ctx, `document.querySelector('#time .pick input').value`) == "" {
		t.Error("no seconds are selected")
	}
	// The spike is selected, and its stacks are those of the flame graph.
	browsertest.Click(t, ctx, `#time .pick button[title^="machine busier"]`)
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('.flamehead').innerText`); !strings.Contains(got, "20–24 s") {
		t.Errorf("the flame graph is of %.80q", got)
	}
	// Who asked for most in those seconds stands first.
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('.requests tbody th').innerText`); strings.TrimSpace(got) == "" {
		t.Error("no client")
	}
	// The difference to the rest of the run is one choice.
	browsertest.Set(t, ctx, "#flame label:nth-of-type(2) select", "rest")
	if browsertest.Eval[int](t, ctx, `document.querySelectorAll('#flame .ramp').length`) != 1 {
		t.Error("no difference is drawn")
	}
	// A link shows the same view to somebody else.
	browsertest.Until(t, ctx, "the address holds the view", `location.hash.includes('sel=') && location.hash.includes('vs=rest')`)
	before := browsertest.Eval[string](t, ctx, `document.querySelector('.flamehead').innerText`)
	link := browsertest.Eval[string](t, ctx, "location.href")
	other := browsertest.New(t)
	browsertest.Open(t, other, link, 1400, false)
	if got := browsertest.Eval[string](t, other, `document.querySelector('.flamehead').innerText`); got != before {
		t.Errorf("the link shows %.100q, not %.100q", got, before)
	}
	w.Check(t, file)
}

// TestScreenshots writes pictures of views, light and dark, to the folder that
// KUBEDYNO_SCREENSHOTS names: those for which no recording is kept. The others
// are taken by package serve, of real ones.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("KUBEDYNO_SCREENSHOTS")
	if dir == "" {
		t.Skip("writes pictures for people to look at; `make screenshots` runs it")
	}
	files := documents(t, func(any) {})
	ctx := browsertest.New(t)
	total := 0
	for _, v := range []struct{ name, file, selector, before string }{
		{"flame", "report", "#flame", ""}, {"difference", "comparison", "#difference", ""}, {"flame-difference", "comparison", "#flame", ""},
		{"callgraph", "report", ".callgraph", `[...document.querySelectorAll('#flame button')].find(b => b.textContent === 'call graph').click()`},
		{"claims", "report", "#claims", ""}, {"disk", "report", "#disk", ""}, {"history", "history", "body", ""}, {"sweep", "sweep", "body", ""}, {"capacity", "capacity", "body", ""}, {"overhead", "overhead", "body", ""},
	} {
		for _, dark := range []bool{false, true} {
			browsertest.Open(t, ctx, files[v.file], 1280, dark)
			if v.before != "" {
				browsertest.Eval[bool](t, ctx, "("+v.before+", true)")
				browsertest.Rest(t, ctx)
			}
			name := v.name
			if dark {
				name += "-dark"
			}
			total += browsertest.Picture(t, ctx, v.selector, filepath.Join(dir, name+".png"))
		}
	}
	if total > 2_000_000 {
		t.Errorf("the pictures have %d kB, more than a repository should carry", total/1000)
	}
}

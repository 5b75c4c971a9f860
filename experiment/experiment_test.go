package experiment

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the expected messages")

// Each file is wrong in its own way; the golden file has what is said of it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var b strings.Builder
	for _, f := range files {
		name := filepath.Base(f)
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(name, data)
		var ps Problems
		if !errors.As(err, &ps) || len(ps) == 0 {
			t.Errorf("%s: got %v, want Problems", f, err)
			continue
		}
		for _, p := range ps {
			if p.Line < 1 || p.Column < 1 || p.File != name {
				t.Errorf("%s: no place: %+v", f, p)
			}
		}
		fmt.Fprintf(&b, "%v\n\n", err)
	}
	golden(t, "testdata/bad.golden", b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s: first difference in line %d (-update rewrites it)\n got: %s\nwant: %s", file, i+1,
				strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""), strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
}

// same compares experiments by what they say, not by where it was said.
func same(a, b *Experiment) bool {
	x, y := *a, *b
	for _, e := range []*Experiment{&x, &y} {
		// What is about many runs is not written.
		e.source, e.Variables, e.Variants, e.Repetitions = source{}, nil, nil, 0
	}
	return reflect.DeepEqual(x, y)
}

// names draws valid names that differ by i.
func drawName(t *rapid.T, i int) string {
	return fmt.Sprintf("%s%d", rapid.StringMatching(`[a-z][-a-z0-9]{0,10}x`).Draw(t, "name"), i)
}

func drawDuration(t *rapid.T, lo, hi time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, "duration"))
}

func drawRate(t *rapid.T) Rate {
	per := rapid.Float64Range(0.1, 10_000)
	switch rapid.IntRange(0, 5).Draw(t, "rate") {
	case 4:
		return Rate{PerSecond: per.Draw(t, "mean"), Poisson: true}
	case 5:
		return Rate{Steps: []RateStep{{per.Draw(t, "first"), drawDuration(t, time.Millisecond, time.Hour)}, {per.Draw(t, "then"), time.Second}}}
	case 0:
		return Rate{Burst: true}
	case 1:
		return Rate{From: per.Draw(t, "from"), PerSecond: per.Draw(t, "to"), Over: drawDuration(t, time.Millisecond, time.Hour)}
	case 2:
		r, _ := ParseRate(fmt.Sprintf("%d/m", rapid.IntRange(6, 1000).Draw(t, "per minute")))
		return r
	}
	return Rate{PerSecond: per.Draw(t, "per second")}
}

func drawDistribution(t *rapid.T) Distribution {
	a := drawDuration(t, 1, time.Minute)
	b := a + drawDuration(t, 0, time.Minute)
	return rapid.SampledFrom([]Distribution{
		{Kind: Constant, Value: a}, {Kind: Constant}, {Kind: Uniform, Min: a, Max: b}, {Kind: LogNormal, Median: a, P99: b},
	}).Draw(t, "distribution")
}

func drawWait(t *rapid.T, s State) *Wait {
	if rapid.Bool().Draw(t, "no wait") {
		return nil
	}
	return &Wait{For: s, Timeout: drawDuration(t, time.Second, time.Hour), Stall: drawDuration(t, time.Second, time.Hour)}
}

// drawExperiment draws a valid experiment.
func drawExperiment(t *rapid.T) *Experiment {
	e := &Experiment{}
	e.setDefaults()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "null", "5", "true", "~", "a: b", "# x", " x ", "{", "a\nb", "2020-01-01", "0x1", "\t", "<<", "=", "é"}))
	e.Name = drawName(t, 0)
	e.Description = text.Draw(t, "description")
	e.Seed = rapid.Int64().Draw(t, "seed")
	e.Observe = Observe{Level: LevelFull, Profile: rapid.Bool().Draw(t, "profile")}
	if rapid.Bool().Draw(t, "apps") {
		e.Observe.Apps = []App{{Name: "mine", URL: "http://127.0.0.1:8080/x", PID: 7}, {Name: "other", Log: text.Draw(t, "log")}}
	}
	if rapid.Bool().Draw(t, "interval") {
		e.Observe.Interval = drawDuration(t, 100*time.Millisecond, time.Minute)
	}
	c := &e.Cluster
	c.Profile = Profile(rapid.SampledFrom(c.Profile.values()).Draw(t, "profile"))
	c.Nodes = Nodes{Hollow: 20_000}
	c.Node.CPU = Quantity(rapid.SampledFrom([]string{"64", "4.5", "1600m", ".5", "1k"}).Draw(t, "cpu"))
	c.Node.Memory = Quantity(rapid.SampledFrom([]string{"64Gi", "128000000000", "1.5Ti", "500M"}).Draw(t, "memory"))
	c.Node.Identity = IdentityPooled
	c.Node.Labels = map[string]string{"example.com/zone": "a.1", "t": "true", "n": "5", "e": ""}
	c.Node.StartDelay, c.Node.StopDelay = drawDistribution(t), drawDistribution(t)
	value := text.Draw(t, "value")
	c.Components = map[string]Component{
		"etcd":           {CPU: rapid.Float64Range(0.01, 64).Draw(t, "quota"), Env: map[string]string{"GOGC": "50", "X": value}},
		"kube-apiserver": {Args: map[string]*string{"kube-api-qps": &value, "off": nil}, Binary: "/x/" + value},
	}
	n := rapid.IntRange(1, 5).Draw(t, "phases")
	for i := range n {
		name := drawName(t, i+1)
		cr := &Create{}
		cr.Kind, cr.Count, cr.Rate, cr.Wait = Pod, rapid.IntRange(1, 1000).Draw(t, "count"), drawRate(t), drawWait(t, StateRunning)
		cr.Objects.complete()
		cr.Pod.Token = rapid.Bool().Draw(t, "token")
		cr.Pod.Labels = map[string]string{"app": "a{index}-{phase}"}
		if rapid.Bool().Draw(t, "deployment") {
			cr.Kind, cr.Replicas = Deployment, rapid.IntRange(1, 100).Draw(t, "replicas")
		}
		cr.SendWithin = drawDuration(t, time.Millisecond, time.Hour)
		e.Phases = append(e.Phases, Phase{Name: name, Kind: KindSteady, Create: cr})
		if cr.Kind == Deployment && rapid.Bool().Draw(t, "scale") {
			s := &Scale{Phase: name, Replicas: 0, Pacing: Pacing{Rate: drawRate(t), SendWithin: time.Second}, Wait: drawWait(t, StateGone)}
			e.Phases = append(e.Phases, Phase{Name: name + "-s", Kind: KindDrain, Scale: s})
		}
		switch rapid.IntRange(0, 2).Draw(t, "then") {
		case 0:
			d := &Delete{Phase: name, Pacing: Pacing{Rate: drawRate(t), SendWithin: time.Second}, Wait: drawWait(t, StateGone)}
			e.Phases = append(e.Phases, Phase{Name: name + "-d", Kind: KindDrain, Delete: d})
		case 1:
			e.Phases = append(e.Phases, Phase{Name: name + "-i", Kind: KindSettle, Settle: &Settle{For: drawDuration(t, time.Second, time.Hour)}},
				Phase{Name: name + "-w", Kind: KindSteady, Wait: &Wait{For: StateReady, Timeout: time.Minute, Stall: time.Minute}})
		}
	}
	e.Objectives = []Objective{
		{Name: "a", Indicator: PodStartup, Quantile: rapid.Float64Range(0.001, 1).Draw(t, "quantile"),
			Limit: Limit{Value: drawDuration(t, 1, time.Hour).Seconds(), Unit: "s"}},
		{Name: "b", Indicator: Throughput, Limit: Limit{Value: rapid.Float64Range(0.01, 1000).Draw(t, "limit"), Unit: "1/s"}},
	}
	return e
}

func TestYAMLReadsBackAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawExperiment(t)
		if err := e.Validate(); err != nil {
			t.Skip(err)
		}
		data, err := e.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("back", data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if !same(e, back) {
			again, _ := back.YAML()
			t.Fatalf("wrote\n%s\nread\n%s\n%#v\n%#v", data, again, e.Objectives, back.Objectives)
		}
	})
}

func TestBuiltins(t *testing.T) {
	for _, b := range Builtins() {
		e, err := Builtin(b.Name, nil)
		if err != nil {
			t.Fatalf("%s: %v", b.Name, err)
		}
		pods := map[string][2]int{"density": {1500, 1500}, "density-direct": {1500, 1500}, "churn": {450, 1500}, "idle": {0, 0}, "pvc-batch": {100, 100}, "scheduler": {1000, 1010}}[b.Name]
		nodes := 50
		switch b.Name {
		case "pvc-batch":
			nodes = 10
		case "scheduler":
			nodes = 1000
		}
		if e.Name != b.Name || e.ExpectedPods() != pods[0] || e.PeakPods() != pods[1] || e.Cluster.Nodes.All() != nodes {
			t.Errorf("%s: %d pods, %d at most, %d nodes", b.Name, e.ExpectedPods(), e.PeakPods(), e.Cluster.Nodes.All())
		}
		data, err := e.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(b.Name, data); err != nil || !same(e, back) {
			t.Errorf("%s does not read back: %v", b.Name, err)
		}
		p := Params{}
		for _, param := range b.Params {
			p[param.Name] = param.Default
		}
		if given, err := Builtin(b.Name, p); err != nil || !same(e, given) {
			t.Errorf("%s: the defaults given are not the defaults: %v", b.Name, err)
		}
	}
	e, err := Builtin("density-direct", Params{"nodes": "3", "pods-per-node": "200", "rate": "300/m"})
	if err != nil {
		t.Fatal(err)
	}
	load := e.Phases[3].Create
	if e.ExpectedPods() != 600 || load.Rate.PerSecond != 5 || load.Kind != Pod || e.Cluster.Node.Pods != 200 {
		t.Errorf("%d pods, %+v", e.ExpectedPods(), load)
	}
}

func TestBadParams(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Params
		want string
	}{
		{"densty", nil, `unknown experiment "densty", did you mean "density"?`},
		{"density", Params{"node": "5"}, `density: unknown parameter "node", did you mean "nodes"?`},
		{"density", Params{"nodes": "0"}, `--nodes: want a whole number from 1 to 20000, got "0"`},
		{"density", Params{"nodes": "1e3", "pods-per-node": "-1"}, "--nodes: want a whole number from 1 to 20000, got \"1e3\"\n--pods-per-node: want a whole number from 1 to 1000, got \"-1\""},
		{"density-direct", Params{"rate": "0"}, `--rate: a rate must be above 0: nothing would ever be sent, got "0"`},
		{"density-direct", Params{"rate": "1/h"}, "density-direct: phases[3].create.rate: 1500 operations at 1/h take 1499h; a phase can send for at most 24h"},
	} {
		_, err := Builtin(c.name, c.p)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %v:\n got %v\nwant %s", c.name, c.p, err, c.want)
		}
	}
}

func TestSets(t *testing.T) {
	const own = "own.yaml"
	file := []byte(`name: own
cluster: {nodes: 10, node: {cpu: 8, labels: {zone: a, disk: ssd}}, components: {kube-scheduler: {args: {v: 2, kube-api-qps: 5}}}}
phases:
  - name: load
    create: {kind: Pod, count: 20, rate: 10/s, wait: running}
objectives: [{indicator: pod-startup, limit: 5s}]
`)
	for _, c := range []struct {
		set   string
		check func(e *Experiment) bool
		want  string
	}{
		{set: "kube-scheduler.args.kube-api-qps=15", check: func(e *Experiment) bool {
			a := e.Cluster.Components["kube-scheduler"].Args
			return *a["kube-api-qps"] == "15" && *a["v"] == "2"
		}},
		{set: "kube-scheduler.args.kube-api-qps=null", check: func(e *Experiment) bool {
			v, ok := e.Cluster.Components["kube-scheduler"].Args["kube-api-qps"]
			return ok && v == nil
		}},
		{set: "cluster.components.etcd.args.feature-gates=A=true,B=false", check: func(e *Experiment) bool {
			return *e.Cluster.Components["etcd"].Args["feature-gates"] == "A=true,B=false"
		}},
		{set: "kube-scheduler.config={profiles: [{schedulerName: own}]}", check: func(e *Experiment) bool {
			return reflect.DeepEqual(e.Cluster.Components["kube-scheduler"].Config, Manifest{"profiles": []any{map[string]any{"schedulerName": "own"}}})
		}},
		{set: "kube-scheduler.config={}", check: func(e *Experiment) bool { return len(e.Cluster.Components["kube-scheduler"].Config) == 0 }},
		{set: "kube-scheduler.config=x", want: `--set kube-scheduler.config=x: kube-scheduler.config: want a manifest, a mapping such as {apiVersion: v1, kind: ConfigMap}, got the text "x"`},
		{set: "etcd.config={a: 1}", want: `--set etcd.config={a: 1}: cluster.components.etcd.config: only kube-scheduler is configured by a KubeSchedulerConfiguration`},
		{set: "kube-scheduler.config={kind: Policy}", want: `--set kube-scheduler.config={kind: Policy}: cluster.components.kube-scheduler.config.kind: want KubeSchedulerConfiguration, or leave it out`},
		{set: "kube-scheduler.config={clientConnection: {kubeconfig: x}}", want: `--set kube-scheduler.config={clientConnection: {kubeconfig: x}}: cluster.components.kube-scheduler.config.clientConnection: the lab sets the kubeconfig itself, with the ports it picks`},
		{set: "kubedyno-load.cpu=0.05", check: func(e *Experiment) bool { return e.Cluster.Components["kubedyno-load"].CPU == 0.05 }},
		{set: "etcd.env.GOGC=50", check: func(e *Experiment) bool { return e.Cluster.Components["etcd"].Env["GOGC"] == "50" }},
		{set: "etcd.binary=/usr/bin/etcd", check: func(e *Experiment) bool { return e.Cluster.Components["etcd"].Binary == "/usr/bin/etcd" }},
		{set: "cluster.profile=tuned", check: func(e *Experiment) bool { return e.Cluster.Profile == ProfileTuned }},
		{set: "name=5", want: "", check: func(e *Experiment) bool { return e.Name == "5" }},
		{set: "cluster.nodes=100", check: func(e *Experiment) bool { return e.Cluster.Nodes == Nodes{Hollow: 100} }},
		{set: "cluster.nodes.real=1", check: func(e *Experiment) bool { return e.Cluster.Nodes.Real == 1 && e.Cluster.Nodes.Hollow > 0 }},
		{set: "cluster.node.cpu=4", check: func(e *Experiment) bool { return e.Cluster.Node.CPU == "4" }},
		{set: "cluster.node.labels.topology.kubernetes.io/zone=a", check: func(e *Experiment) bool { return e.Cluster.Node.Labels["topology.kubernetes.io/zone"] == "a" }},
		{set: "cluster.node.startDelay=2s", check: func(e *Experiment) bool {
			return e.Cluster.Node.StartDelay == Distribution{Kind: Constant, Value: 2 * time.Second}
		}},
		{set: "cluster.node.startDelay={distribution: uniform, max: 1s}", want: "--set cluster.node.startDelay={distribution: uniform, max: 1s}: cluster.node.startDelay: min is missing: a uniform distribution takes min and max"},
		{set: "phases.load.create.rate=50/s", check: func(e *Experiment) bool { return e.Phases[0].Create.Rate.PerSecond == 50 }},
		{set: "phases[0].create.rate={from: 1/s, to: 9/s, over: 10s}", check: func(e *Experiment) bool {
			return reflect.DeepEqual(e.Phases[0].Create.Rate, Rate{From: 1, PerSecond: 9, Over: 10 * time.Second})
		}},
		{set: "phases.load.create.wait.timeout=1h", check: func(e *Experiment) bool {
			return *e.Phases[0].Create.Wait == Wait{For: StateRunning, Timeout: time.Hour, Stall: 2 * time.Minute}
		}},
		{set: "phases.load.create.pod.token=false", check: func(e *Experiment) bool { return !e.Phases[0].Create.Pod.Token }},
		{set: "phases.load.create.rate=null", want: "own.yaml:5:13: phases[0].create: rate is missing: say how fast the 20 operations come, such as 20/s, or burst"},
		{set: "phases.load.create.wait=null", check: func(e *Experiment) bool { return e.Phases[0].Create.Wait == nil }},
		{set: "phases.load.create.wait.timeout=null", check: func(e *Experiment) bool { return e.Phases[0].Create.Wait.Timeout == 15*time.Minute }},
		{set: "phases.load.create.pod=null", check: func(e *Experiment) bool { return e.Phases[0].Create.Pod.Image == DefaultImage }},
		{set: "cluster.node=null", check: func(e *Experiment) bool { return e.Cluster.Node.CPU == "16" }},
		{set: "cluster.node.cpu=null", check: func(e *Experiment) bool { return e.Cluster.Node.CPU == "16" }},
		{set: "cluster.node.labels.zone=null", check: func(e *Experiment) bool { return len(e.Cluster.Node.Labels) == 1 }},
		{set: "objectives.pod-startup=null", check: func(e *Experiment) bool { return len(e.Objectives) == 0 }},
		{set: "objectives=null", check: func(e *Experiment) bool { return len(e.Objectives) == 0 }},
		{set: "phases.load=null", want: "own.yaml:4:3: phases: the list is empty"},
		{set: "objectives.pod-startup.limit=3s", check: func(e *Experiment) bool { return e.Objectives[0].Limit.Value == 3 }},

		{set: "cluster.nodes", want: "--set cluster.nodes: want PATH=VALUE, such as cluster.nodes=100 or kube-scheduler.args.kube-api-qps=200"},
		{set: "kube-schedular.cpu=1", want: `--set kube-schedular.cpu=1: unknown component or field "kube-schedular", did you mean "kube-scheduler"?`},
		{set: "cluster.components.kube-proxy.cpu=1", want: `--set cluster.components.kube-proxy.cpu=1: unknown component "kube-proxy" (valid: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubedyno-csi, kubedyno-hollow, kubedyno-load)`},
		{set: "etcd.flags.v=1", want: `--set etcd.flags.v=1: etcd: unknown part "flags" (valid: args, env, binary, cpu, config, off, syncDelay, latency, files)`},
		{set: "etcd.cpu=half", want: `--set etcd.cpu=half: etcd.cpu: want a number, got the text "half"`},
		{set: "etcd.cpu=0", want: `--set etcd.cpu=0: etcd.cpu: must be at least 0.01, got 0`},
		{set: "etcd.cpu=500m", want: `--set etcd.cpu=500m: etcd.cpu: want a number, got the text "500m"`},
		{set: "etcd.args.--v=1", want: `--set etcd.args.--v=1: etcd.args.--v: flags are written without dashes: "v"`},
		{set: "kubedyno-load.binary=x", want: `--set kubedyno-load.binary=x: kubedyno-load is part of kubedyno and takes cpu and env only`},
		{set: "cluster.nods=5", want: `--set cluster.nods=5: unknown key "nods" in cluster, did you mean "nodes"?`},
		{set: "cluster.nodes.max=5", want: `--set cluster.nodes.max=5: unknown key "max" in cluster.nodes (valid: hollow, real, seeded)`},
		{set: "cluster.nodes=ten", want: `--set cluster.nodes=ten: cluster.nodes.hollow: want a whole number, got the text "ten"`},
		{set: "cluster.nodes=", want: `--set cluster.nodes=: cluster.nodes.hollow: want a whole number, got the text ""`},
		{set: "cluster.node.pods=1", want: "--set cluster.node.pods=1: cluster.node.pods: 10 nodes cannot hold 20 pods: at 1 pods a node there is room for 10"},
		{set: "phases.laod.create.count=5", want: `--set phases.laod.create.count=5: unknown phase "laod", did you mean "load"?`},
		{set: "phases[3].create.count=5", want: `--set phases[3].create.count=5: there is no phase 3: the experiment has 1, counted from 0`},
		{set: "phases.load.create.count=99999", want: "--set phases.load.create.count=99999: phases[0].create.count: 10 nodes cannot hold 99999 pods: at 110 pods a node there is room for 1100"},
		{set: "phases.load.create.kind=pod", want: `--set phases.load.create.kind=pod: phases[0].create.kind: unknown value "pod", did you mean "Pod"?`},
		{set: "phases.load.scale.replicas=5", want: "own.yaml:4:5: phases[0]: a phase has one action, this one has create and scale\nown.yaml:4:5: phases[0].scale: phase is missing"},
		{set: "phases=5", want: "--set phases=5: phases: want a list, got the number 5"},
	} {
		e, err := Parse(own, file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSets([]string{c.set})
		if err == nil {
			err = e.Apply(s)
		}
		if got := fmt.Sprint(err); c.want != "" && got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.set, got, c.want)
		} else if c.want == "" && (err != nil || !c.check(e)) {
			t.Errorf("%s: %v, did not act", c.set, err)
		}
	}
	s, err := ParseSets([]string{"etcd.cpu=1", "etcd.cpu=2", "cluster.nodes=5"})
	if err != nil || s.Components["etcd"].CPU != 2 || len(s.Strings()) != 3 {
		t.Errorf("%v, %+v", err, s)
	}
	if err := s.ComponentsOnly(); err == nil || !strings.HasPrefix(err.Error(), "--set cluster.nodes=5: there is no experiment here") {
		t.Errorf("got %v", err)
	}
}

func TestPlan(t *testing.T) {
	e, err := Parse("plan", []byte(`
name: plan
cluster: {nodes: 100}
phases:
  - {name: warm, kind: warm-up, create: {kind: Pod, count: 20, rate: 10/s, wait: running}}
  - {settle: 1s}
  - {name: load, create: {kind: Deployment, count: 2, replicas: 100, rate: burst}}
  - wait: running
  - {settle: 1s}
  - {name: more, scale: {phase: load, replicas: 300, rate: burst, wait: {for: ready, stall: 10s}}}
  - {delete: {phase: warm, rate: burst}}
  - wait: gone
  - {name: last, kind: settle, settle: 1s}
`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range e.Plan() {
		until := "-"
		if s.Until != nil {
			until = string(s.Until.For)
		}
		fmt.Fprintf(&b, "%s %s %s %+d %d %s\n", s.Name, s.Kind, s.Action(), s.Adds-s.Removes, s.Total, until)
	}
	const want = `warm warm-up create +20 20 running
settle settle settle +0 20 -
load steady create +200 220 running
settle-2 settle settle +0 220 -
more steady scale +400 620 ready
delete drain delete -20 600 gone
last settle settle +0 600 -
`
	if b.String() != want || e.ExpectedPods() != 600 || e.PeakPods() != 620 {
		t.Errorf("%d expected, %d peak\n got\n%s\nwant\n%s", e.ExpectedPods(), e.PeakPods(), b.String(), want)
	}
}

// What each action adds, takes away and takes at least.
func TestPlanOfEveryAction(t *testing.T) {
	e, err := Parse("plan", []byte(`
name: plan
cluster: {nodes: 40}
phases:
  - {name: load, create: {kind: Deployment, count: 10, replicas: 4, rate: {poisson: 3/s}}}
  - {name: sets, apply: {count: 2, rate: 1/s, object: {apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3}}}}
  - {name: jobs, create: {count: 2, rate: burst, object: {apiVersion: batch/v1, kind: Job, spec: {completions: 5}}}}
  - {name: all, create: {count: 1, object: {apiVersion: apps/v1, kind: DaemonSet}}}
  - {name: maps, create: {count: 30, rate: [{rate: 5/s, for: 2s}, {rate: 10/s, for: 1s}], object: {apiVersion: v1, kind: ConfigMap}}}
  - {name: grow, scale: {phase: load, replicas: 6, rate: burst}}
  - {name: mark, patch: {phase: maps, count: 100, rate: 10/s, patch: {data: {a: b}}}}
  - {name: roll, update: {phase: load, rate: burst, wait: running}}
  - {name: again, apply: {phase: sets, rate: 1/s}}
  - {name: turn, churn: {phase: load, percent: 25, for: 35s, every: 10s, rate: 10/s}}
  - parallel:
      - {name: one, churn: {phase: jobs, cycles: 3, rate: 2/s}}
      - {name: look, read: {mix: [{kind: stale-list, resource: pods}], for: 10s, rate: 20/s}}
  - {name: closed, read: {mix: [{kind: stale-list, resource: pods}], for: 5s, clients: 3}}
  - {name: clear, delete: {phase: load, rate: 2/s}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range e.Plan() {
		fmt.Fprintf(&b, "%s: %d operations, +%d -%d = %d, %v\n", s.Name, s.Operations, s.Adds, s.Removes, s.Total, s.Least())
		for _, p := range s.Parallel {
			fmt.Fprintf(&b, "  %s: %d operations, +%d -%d\n", p.Name, p.Operations, p.Adds, p.Removes)
		}
	}
	const want = `load: 10 operations, +40 -0 = 40, 3s
sets: 2 operations, +6 -0 = 46, 1s
jobs: 2 operations, +10 -0 = 56, 0s
all: 1 operations, +40 -0 = 96, 0s
maps: 30 operations, +0 -0 = 96, 3.9s
grow: 10 operations, +20 -0 = 116, 0s
mark: 100 operations, +0 -0 = 116, 9.9s
roll: 10 operations, +60 -60 = 116, 0s
again: 2 operations, +0 -0 = 116, 1s
turn: 24 operations, +72 -72 = 116, 30.5s
parallel: 206 operations, +15 -15 = 116, 10s
  one: 6 operations, +15 -15
  look: 200 operations, +0 -0
closed: 0 operations, +0 -0 = 116, 5s
clear: 10 operations, +0 -60 = 56, 4.5s
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if n := e.ExpectedPods(); n != 40+6+10+40+20+60+72+15 {
		t.Errorf("%d pods expected", n)
	}
}

// Claims come with pods as well: those of a StatefulSet's templates stay when it is
// scaled down, and those of ephemeral volumes go with their pod.
func TestPlanOfPodClaims(t *testing.T) {
	e, err := Parse("plan", []byte(`
name: plan
cluster: {nodes: 40, storage: {}}
phases:
  - name: sets
    create:
      count: 2
      rate: burst
      object:
        apiVersion: apps/v1
        kind: StatefulSet
        spec:
          replicas: 3
          volumeClaimTemplates: [{metadata: {name: data}}, {metadata: {name: log}}]
          template: {spec: {volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {}}}, {name: none, emptyDir: {}}]}}
      wait: running
  - {name: less, scale: {phase: sets, replicas: 1, rate: burst, wait: gone}}
  - {name: more, scale: {phase: sets, replicas: 4, rate: burst, wait: running}}
  - {name: roll, update: {phase: sets, rate: burst, wait: running}}
  - {name: turn, churn: {phase: sets, cycles: 1, rate: burst, wait: running}}
  - {name: pods, create: {count: 5, rate: burst, object: {apiVersion: v1, kind: Pod, spec: {volumes: [{name: tmp, ephemeral: {}}]}}}}
  - {name: claim, create: {count: 7, rate: burst, object: {apiVersion: v1, kind: PersistentVolumeClaim}}}
  - wait: bound
objectives:
  - {indicator: claim-bound, limit: 30s}
`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range e.Plan() {
		fmt.Fprintf(&b, "%s of %s: %+d pods, %d claims, %d with pods\n", s.Name, s.Origin(), s.Adds-s.Removes, s.Claims, s.PodClaims)
	}
	const want = `sets of sets: +6 pods, 0 claims, 18 with pods
less of sets: -4 pods, 0 claims, 0 with pods
more of sets: +6 pods, 0 claims, 10 with pods
roll of sets: +0 pods, 0 claims, 8 with pods
turn of sets: +0 pods, 0 claims, 12 with pods
pods of pods: +5 pods, 0 claims, 5 with pods
claim of claim: +0 pods, 7 claims, 0 with pods
`
	if b.String() != want || e.ExpectedClaims() != 60 {
		t.Errorf("%d claims expected\n got\n%s\nwant\n%s", e.ExpectedClaims(), b.String(), want)
	}
	text := e.Explain()
	for _, want := range []string{
		"2 StatefulSets of 3 pods each, 6 pods more with 18 claims", "5 Pods with 5 claims",
		"within 30s of when it is due, or of its creation where a controller makes it",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not said: %s\n%s", want, text)
		}
	}
}

func TestVariables(t *testing.T) {
	text := []byte(`
name: sized
description: "{count} pods, {{count}} is the text, $$count too"
variables: {count: 10, pace: 5/s, size: 30m, on: true}
cluster: {nodes: 5, components: {etcd: {args: {v: $count, x: "$$HOME", y: "${count}"}}}}
phases:
  - create: {kind: Pod, count: $count, rate: $pace, pod: {cpu: $size, token: $on, labels: {of: "{count}-{index}"}}}
  - create: {count: $count, rate: burst, object: {apiVersion: v1, kind: ConfigMap, n: $count, data: {"a b": "{count} {index} {{index}} {{count}}"}}}
variants:
  - {name: more, set: {variables.count: 20, etcd.cpu: 2}}
`)
	for given, want := range map[string]int{"": 10, "7": 7} {
		o := Options{}
		if given != "" {
			o.Variables = map[string]string{"count": given}
		}
		e, err := parse("x", text, o)
		if err != nil {
			t.Fatal(err)
		}
		n := fmt.Sprint(want)
		args := e.Cluster.Components["etcd"].Args
		if e.Description != n+" pods, {count} is the text, $$count too" || *args["v"] != n || *args["x"] != "$HOME" || *args["y"] != "${count}" {
			t.Errorf("%q, %v", e.Description, args)
		}
		c := e.Phases[0].Create
		if c.Count != want || c.Rate.PerSecond != 5 || c.Pod.CPU != "30m" || !c.Pod.Token || c.Pod.Labels["of"] != n+"-{index}" {
			t.Errorf("%+v %+v", c, c.Pod)
		}
		m := e.Phases[1].Create.Object
		if m["n"] != int64(want) || m.text("data", "a b") != n+" {index} {{index}} {count}" {
			t.Errorf("%v", m)
		}
		// What is kept says the same without variables.
		kept, err := e.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse("kept", kept); err != nil || !same(e, back) {
			t.Errorf("%v\n%s", err, kept)
		}
	}
	e, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	if sets, err := e.Variant("more"); err != nil || fmt.Sprint(sets) != "[etcd.cpu=2 variables.count=20]" {
		t.Errorf("%v, %v", sets, err)
	}
	if _, err := e.Variant("mor"); err == nil || err.Error() != `unknown variant "mor", did you mean "more"?` {
		t.Error(err)
	}
	sets, err := ParseSets([]string{"variables.count=11"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(sets); err == nil || !strings.Contains(err.Error(), "filled in already") {
		t.Errorf("a variable is set after the file was read: %v", err)
	}
}

// A template comes from the experiment's folder, and from nowhere else.
func TestTemplates(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("secret.yaml", "{apiVersion: v1, kind: Secret}")
	write("in/sub/map.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {size: \"{size}\", n: \"{index}\"}\n")
	write("in/bad.yaml", "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: {size}\n")
	if err := os.Symlink("../secret.yaml", filepath.Join(dir, "in", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	experiment := func(template string) string {
		return write("in/x.yaml", "name: x\nvariables: {size: 5}\nphases:\n- create: {count: $size, rate: burst, template: "+template+"}\n")
	}
	e, err := ParseFile(experiment("sub/map.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := e.Phases[0].Create
	if c.Template != "" || c.Object.text("data", "size") != "5" || c.KindName() != "ConfigMap" {
		t.Errorf("%+v", c.Objects)
	}
	sets, err := ParseSets([]string{"phases.create.create.object.data.more=x", "phases.create.create.object.spec.list=[1, {a: b}]"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(sets); err != nil || c.Object.text("data", "more") != "x" || fmt.Sprint(c.Object.at("spec", "list")) != "[1 map[a:b]]" {
		t.Errorf("%v: %v", err, c.Object)
	}
	for template, want := range map[string]string{
		"../secret.yaml": "escapes", "link.yaml": "escapes", filepath.Join(dir, "secret.yaml"): "escapes", "none.yaml": "no such file",
		"bad.yaml": `bad.yaml:4:6: phases[0].create.object.data.x: a value that begins with a brace needs quotes: "{size}"`,
	} {
		if _, err := ParseFile(experiment(template)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestExistingClusterHasItsOwnNodes(t *testing.T) {
	e, err := Builtin("density", nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Cluster.Nodes = Nodes{}
	if e.Validate() == nil {
		t.Error("a lab without nodes is fine")
	}
	e.Cluster.Existing = true
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
}

// A file for an existing cluster need not bring nodes; for a lab it must.
func TestFileForExistingCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	text := "name: x\ncluster: {nodes: 0}\nphases:\n- {name: load, create: {kind: Pod, count: 5, rate: 5/s}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseFile(path); err == nil || !strings.Contains(err.Error(), "set cluster.nodes") {
		t.Errorf("a lab without nodes: %v", err)
	}
	e, err := ParseFileWith(path, Options{Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(Sets{}); err != nil {
		t.Error(err)
	}
}

// What is kept of an experiment holds no secret, and cannot run by mistake
// with the placeholder in its place.
func TestWithoutSecrets(t *testing.T) {
	e, err := Builtin("density", nil)
	if err != nil {
		t.Fatal(err)
	}
	given := []string{
		"etcd.env.PROXY=http://u:hunter2@p", "kube-apiserver.args.v=3", "kube-apiserver.args.my-token=hunter2", "kube-scheduler.args.kube-api-qps=null",
	}
	apply := func(e *Experiment, settings []string) {
		sets, err := ParseSets(settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Apply(sets); err != nil {
			t.Fatal(err)
		}
	}
	apply(e, given)
	kept, err := e.WithoutSecrets(func(args []string) []string {
		if strings.Contains(args[0], "token") {
			return []string{"--my-token=REDACTED"}
		}
		return args
	}).YAML()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(kept, []byte("hunter2")) || !bytes.Contains(kept, []byte("PROXY: REDACTED")) {
		t.Errorf("kept:\n%s", kept)
	}
	if v := e.Cluster.Components["etcd"].Env["PROXY"]; v != "http://u:hunter2@p" {
		t.Errorf("the original lost its value: %q", v)
	}
	again, err := Parse("kept.yaml", kept)
	if err != nil {
		t.Fatal(err)
	}
	var withheld *WithheldError
	if err := again.Whole(); !errors.As(err, &withheld) || !slices.Equal(withheld.Paths, []string{"etcd.env.PROXY", "kube-apiserver.args.my-token"}) {
		t.Errorf("%v", err)
	}
	apply(again, given)
	if err := again.Whole(); err != nil {
		t.Error(err)
	}
	a, errA := e.YAML()
	b, errB := again.YAML()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("given again, it differs: %v %v\n%s\n%s", errA, errB, a, b)
	}
}

// The values of Secrets are not kept; their length, which is load, is.
func TestWithoutValuesOfSecrets(t *testing.T) {
	const secret = `{apiVersion: v1, kind: Secret, metadata: {annotations: {note: open}}, data: {a: aHVudGVyMg==}, stringData: {b: hunter2}}`
	e, err := Parse("x", []byte("name: x\nphases:\n- create: {count: 1, object: "+secret+"}\n- parallel:\n  - apply: {count: 1, object: "+secret+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := e.WithoutSecrets(func(args []string) []string { return args }).YAML()
	if err != nil {
		t.Fatal(err)
	}
	for text, n := range map[string]int{"hunter2": 0, "aHVudGVyMg==": 0, "AAAAAAAAAAAA\n": 2, "b: AAAAAAA\n": 2, "note: open": 2} {
		if got := bytes.Count(kept, []byte(text)); got != n {
			t.Errorf("%q is kept %d times, want %d:\n%s", text, got, n, kept)
		}
	}
	if v := e.Phases[0].Create.Object.text("stringData", "b") + e.Phases[1].Parallel[0].Apply.Object.text("stringData", "b"); v != "hunter2hunter2" {
		t.Errorf("the original lost its values: %q", v)
	}
	if again, err := Parse("kept", kept); err != nil || again.Whole() != nil {
		t.Errorf("%v, %v", err, again.Whole())
	}
}

func TestDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDistribution(t)
		a, b := rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b")
		if x, y := d.At(min(a, b)), d.At(max(a, b)); x < 0 || y < x {
			t.Fatalf("%+v: %v, then %v", d, x, y)
		}
	})
	d := Distribution{Kind: LogNormal, Median: 300 * time.Millisecond, P99: time.Second}
	for u, want := range map[float64]time.Duration{0.5: d.Median, 0.99: d.P99} {
		if got := d.At(u); math.Abs(float64(got-want)) > float64(time.Microsecond) {
			t.Errorf("at %v: %v, want %v", u, got, want)
		}
	}
}

func TestQuantities(t *testing.T) {
	for q, want := range map[Quantity]float64{"": 0, "16": 16, "500m": 0.5, "64Gi": 64 << 30, "1.5k": 1500, ".5": .5} {
		if got := q.Value(); got != want {
			t.Errorf("%s: %v, want %v", q, got, want)
		}
	}
}

func TestFileErrors(t *testing.T) {
	if _, err := ParseFile("/does/not/exist.yaml"); err == nil || err.Error() != "read experiment: open /does/not/exist.yaml: no such file or directory" {
		t.Error(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseFile(big); err == nil || !strings.Contains(err.Error(), "larger than 1024 KiB") {
		t.Error(err)
	}
	if _, err := ParseFile(t.TempDir()); err == nil {
		t.Error("a folder is an experiment")
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "phases.load.create.count=5")
	}
	for _, b := range Builtins() {
		data, err := BuiltinYAML(b.Name, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "etcd.args.v=1")
	}
	f.Add(Starter(), "variables.rate=9/s")
	examples, _ := filepath.Glob("../examples/*.yaml")
	for i, name := range examples {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []string{"phases[1].create.object.spec.replicas=7", "phases.busy.parallel.readers.read.rate={poisson: 5/s}", "variables.pace=$pace"}[i%3])
	}
	f.Fuzz(func(t *testing.T, data []byte, set string) {
		e, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		out, err := e.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse("back", out); err != nil || !same(e, back) {
			t.Fatalf("%v: does not read back:\n%s\n%s", err, data, out)
		}
		_ = e.Explain()
		if s, err := ParseSets([]string{set}); err == nil {
			_ = e.Apply(s)
		}
	})
}

// A component that a file leaves out can be put back, and the other way round.
func TestOffBySetting(t *testing.T) {
	for setting, want := range map[string]bool{"kube-scheduler.off=true": true, "kube-scheduler.off=false": false, "kube-scheduler.cpu=1": false} {
		e, err := Parse("x", []byte("name: x\ncluster: {nodes: 3, components: {kube-controller-manager: {off: true}}}\nphases: [{create: {kind: Pod, count: 1, wait: created}}]"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSets([]string{setting, "kube-controller-manager.off=false"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Apply(s); err != nil {
			t.Fatal(err)
		}
		if e.Cluster.Components["kube-scheduler"].Off != want || e.Cluster.Components["kube-controller-manager"].Off {
			t.Errorf("%s: %+v", setting, e.Cluster.Components)
		}
	}
	if _, err := ParseSets([]string{"kube-scheduler.off=maybe"}); err == nil {
		t.Error("off=maybe was taken")
	}
}

// What is seeded is said in plain words.
func TestExplainSeeded(t *testing.T) {
	e, err := Builtin("scheduler", Params{"nodes": "20", "pods": "40", "init-pods": "1", "rate": "5/s"})
	if err != nil {
		t.Fatal(err)
	}
	text := e.Explain()
	for _, want := range []string{
		"And 20 seeded nodes (16 cores, 64Gi, 110 pods each), written into etcd: pods are scheduled to them, and never start.",
		"1 pod is bound to them before the run begins", "kube-controller-manager is left out", "create 40 Pods, at 5/s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "hollow") {
		t.Errorf("hollow nodes in\n%s", text)
	}
}

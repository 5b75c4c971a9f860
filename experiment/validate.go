package experiment

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Defaults, each with its reason.
const (
	defaultSeed = 1
	// The node of Kubernetes' own scale tests holds 110 pods, the kubelet's
	// default; CPU and memory are generous so that pods bind first.
	defaultNodeCPU    = "16"
	defaultNodeMemory = "64Gi"
	defaultNodePods   = 110
	// A warmed real node starts a pause pod in about this time.
	defaultStartMedian = 300 * time.Millisecond
	defaultStopMedian  = 200 * time.Millisecond
	defaultDelayP99    = time.Second
	// DefaultImage is what pods run; hollow nodes only report it.
	DefaultImage = "registry.k8s.io/pause:3.10"
	// DefaultObjectName keeps the objects of two phases apart.
	DefaultObjectName = "{phase}-{index}"
	// Load that goes out later than this is not the load that was asked for.
	defaultSendWithin = 10 * time.Second
	// Long enough for 18,000 pods at the 20/s of a stock control plane.
	defaultTimeout = 15 * time.Minute
	// Longer than any retry or lease of a control plane that still works.
	defaultStall = 2 * time.Minute
	// maxSending bounds what a slow rate adds up to.
	maxSending = 24 * time.Hour
	// maxObjectName keeps names fit for labels, and pods' names for host names.
	maxObjectName = 63
)

func (e *Experiment) setDefaults() {
	e.Seed = defaultSeed
	e.Cluster.Profile = ProfileStock
	e.Cluster.Node = Node{
		CPU: defaultNodeCPU, Memory: defaultNodeMemory, Pods: defaultNodePods, Identity: IdentityOwn,
		StartDelay: Distribution{Kind: LogNormal, Median: defaultStartMedian, P99: defaultDelayP99},
		StopDelay:  Distribution{Kind: LogNormal, Median: defaultStopMedian, P99: defaultDelayP99},
	}
	e.Observe.Level, e.Observe.Profile = LevelDefault, true
}

func (c *Create) setDefaults() {
	c.ObjectName = DefaultObjectName
	c.Pod = PodShape{Containers: 1, Image: DefaultImage, Token: true}
	c.SendWithin = defaultSendWithin
}

func (s *Scale) setDefaults()  { s.SendWithin = defaultSendWithin }
func (d *Delete) setDefaults() { d.SendWithin = defaultSendWithin }
func (w *Wait) setDefaults()   { w.Timeout, w.Stall = defaultTimeout, defaultStall }

// complete fills what depends on other values: names and kinds of phases,
// names and quantiles of objectives.
func (e *Experiment) complete() {
	taken := map[string]bool{}
	for _, p := range e.Phases {
		taken[p.Name] = true
	}
	load := KindSteady
	for i := range e.Phases {
		p := &e.Phases[i]
		action := p.Action()
		if p.Name == "" && action != "" {
			p.Name = action
			for n := 2; taken[p.Name]; n++ {
				p.Name = fmt.Sprintf("%s-%d", action, n)
			}
			taken[p.Name] = true
		}
		if p.Kind == "" {
			switch action {
			case "create", "scale":
				p.Kind = KindSteady
			case "delete":
				p.Kind = KindDrain
			case "settle":
				p.Kind = KindSettle
			case "wait":
				p.Kind = load
			}
		}
		if action != "settle" && action != "wait" {
			load = p.Kind
		}
	}
	for i := range e.Objectives {
		o := &e.Objectives[i]
		if o.Name == "" {
			o.Name = string(o.Indicator)
		}
		if o.Quantile == 0 && !e.source.present(fmt.Sprintf("objectives[%d].quantile", i)) {
			switch o.Indicator {
			case PodStartup:
				o.Quantile = 0.99 // the SLO's
			case IntentLatency:
				o.Quantile = 1 // the last pod: when the user has what was asked for
			}
		}
	}
}

// Action names the phase's action; empty where there is none.
func (p Phase) Action() string {
	if a := p.actions(); len(a) > 0 {
		return a[0]
	}
	return ""
}

func (p Phase) actions() []string {
	var set []string
	v := reflect.ValueOf(p)
	for _, f := range fieldsOf(v.Type()) {
		if fv := v.Field(f.index); fv.Kind() == reflect.Pointer && !fv.IsNil() {
			set = append(set, f.key)
		}
	}
	return set
}

func actionNames() []string {
	var names []string
	t := reflect.TypeFor[Phase]()
	for _, f := range fieldsOf(t) {
		if t.Field(f.index).Type.Kind() == reflect.Pointer {
			names = append(names, f.key)
		}
	}
	return names
}

// Validate checks an experiment that was changed or built by a program. Parse
// and Apply have checked theirs.
func (e *Experiment) Validate() error { return e.problems().err() }

func (e *Experiment) problems() Problems {
	c := checker{e: e, src: e.source}
	c.problems = checkRules(reflect.ValueOf(*e), "", c.src)
	for _, p := range c.problems {
		c.broken = append(c.broken, p.Path)
	}
	c.components()
	c.apps()
	c.distribution("cluster.node.startDelay", e.Cluster.Node.StartDelay)
	c.distribution("cluster.node.stopDelay", e.Cluster.Node.StopDelay)
	c.phases()
	c.objectives()
	return c.problems
}

// apps checks that each app has a name of its own, and something to look at.
func (c *checker) apps() {
	taken := map[string]bool{}
	for _, name := range ComponentNames() {
		taken[name] = true
	}
	for i, a := range c.e.Observe.Apps {
		at := fmt.Sprintf("observe.apps[%d]", i)
		switch {
		case a.Name != "" && taken[a.Name]:
			c.fail(at+".name", fmt.Sprintf("%q is taken: each app needs a name of its own", a.Name))
		case a.URL == "" && a.PID == 0 && a.Log == "":
			c.fail(at, "has nothing to look at: give url, pid or log")
		}
		taken[a.Name] = true
	}
}

// checker looks at what no single field can tell.
type checker struct {
	e        *Experiment
	src      source
	broken   []string // paths that break a rule of their own
	most     float64  // pods, where the nodes have too little room
	room     func()   // reports that
	problems Problems
}

// fail reports a problem at path, unless path or any of the paths that the
// judgement rests on was refused already.
func (c *checker) fail(path, text string, on ...string) {
	for _, p := range append(on, path) {
		if c.src.isBad(p) || slices.Contains(c.broken, p) {
			return
		}
	}
	c.problems = append(c.problems, c.src.problem(path, text))
}

func (c *checker) components() {
	for _, name := range sortedKeys(c.e.Cluster.Components) {
		path := "cluster.components." + name
		if !IsHarness(name) {
			continue
		}
		comp := c.e.Cluster.Components[name]
		if len(comp.Args) > 0 {
			c.fail(path+".args", name+" is part of kubedyno and takes cpu and env only")
		}
		if comp.Binary != "" {
			c.fail(path+".binary", name+" is part of kubedyno and takes cpu and env only")
		}
	}
}

func (c *checker) distribution(path string, d Distribution) {
	used := map[DistributionKind][]string{
		Constant: {"value"}, Uniform: {"min", "max"}, LogNormal: {"median", "p99"},
	}[d.Kind]
	if used == nil {
		return // reported by the rules
	}
	for _, f := range fieldsOf(distributionType) {
		at := join(path, f.key)
		given := !reflect.ValueOf(d).Field(f.index).IsZero() || c.src.present(at)
		switch {
		case f.key == "distribution":
		case given && !slices.Contains(used, f.key):
			c.fail(at, fmt.Sprintf("unused: a %s distribution takes %s", d.Kind, strings.Join(used, " and ")))
		case !given && slices.Contains(used, f.key) && c.src.present(path):
			c.fail(path, fmt.Sprintf("%s is missing: a %s distribution takes %s", f.key, d.Kind, strings.Join(used, " and ")), at)
		}
	}
	if d.Kind == Uniform && d.Max < d.Min && (c.src.place == nil || c.src.present(path+".max")) {
		c.fail(path+".max", fmt.Sprintf("max %s is below min %s", formatDuration(d.Max), formatDuration(d.Min)), path+".min")
	}
	if d.Kind == LogNormal {
		if d.Median <= 0 && c.src.present(path+".median") {
			c.fail(path+".median", "must be above 0: for no delay write 0s in place of the distribution")
		} else if d.P99 < d.Median {
			c.fail(path+".p99", fmt.Sprintf("p99 %s is below the median %s", formatDuration(d.P99), formatDuration(d.Median)), path+".median")
		}
	}
}

// group is what one create phase has put on the cluster.
type group struct {
	index   int // of the phase
	create  *Create
	objects int
	pods    int // alive
}

func (c *checker) phases() {
	names := map[string]int{}
	live := map[string]*group{} // by phase name
	loaded := false
	for i, p := range c.e.Phases {
		path := fmt.Sprintf("phases[%d]", i)
		if c.src.isBad(path) {
			continue
		}
		if first, taken := names[p.Name]; taken && p.Name != "" {
			c.fail(path+".name", fmt.Sprintf("phase %q is here a second time; the first is phases[%d]", p.Name, first))
		} else {
			names[p.Name] = i
		}
		switch actions := p.actions(); {
		case len(actions) == 0 && !c.anyBad(path, actionNames()):
			c.fail(path, "the phase does nothing: it needs one of "+strings.Join(actionNames(), ", "))
			continue
		case len(actions) > 1:
			text := fmt.Sprintf("a phase has one action, this one has %s", strings.Join(actions, " and "))
			if slices.Contains(actions, "wait") {
				text += fmt.Sprintf(": put wait inside %s, or into a phase of its own", actions[0])
			}
			c.fail(path, text)
			continue
		}
		if p.Kind == KindSettle && p.Settle == nil && p.Action() != "" {
			c.fail(path+".kind", "settle is for idle phases: this one has the action "+p.Action())
		}
		switch {
		case p.Create != nil:
			loaded = true
			c.create(path+".create", p, i, live)
		case p.Scale != nil:
			c.scale(path+".scale", p, live)
		case p.Delete != nil:
			c.delete(path+".delete", p, live)
		case p.Wait != nil && !loaded:
			c.fail(path+".wait", "there is nothing to wait for: no phase before it creates anything")
		case p.Wait != nil && p.Wait.For == StateGone && !slices.ContainsFunc(c.e.Phases[:i], func(q Phase) bool { return q.Delete != nil || q.Scale != nil }):
			c.fail(path+".wait.for", "pods will not be gone: no phase before it deletes any")
		}
	}
	if c.room != nil {
		c.room()
	}
}

func (c *checker) anyBad(path string, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return c.src.isBad(join(path, k)) })
}

func (c *checker) create(path string, p Phase, index int, live map[string]*group) {
	cr := p.Create
	replicas := path + ".replicas"
	switch {
	case cr.Kind == Pod && (cr.Replicas != 0 || c.src.present(replicas)):
		c.fail(replicas, "unused: only a Deployment has replicas; the number of Pods is count")
	case cr.Kind == Deployment && cr.Replicas == 0 && !c.src.present(replicas):
		c.fail(path, "replicas is missing: a Deployment needs it", replicas, path+".kind")
	}
	c.rate(path, cr.Rate, cr.Count, path+".count")
	name := path + ".objectName"
	if templateBreach(cr.ObjectName) == "" {
		longest := Expand(cr.ObjectName, p.Name, max(cr.Count-1, 0))
		switch {
		case cr.Count > 1 && !strings.Contains(cr.ObjectName, "{index}"):
			c.fail(name, fmt.Sprintf("%d objects would have the same name: use {index}", cr.Count), path+".count")
		case !nameForm.MatchString(longest) || len(longest) > maxObjectName:
			c.fail(name, fmt.Sprintf("%s is not an object name: at most %d lower-case letters, digits and '-'", quote(longest), maxObjectName),
				path+".count", parentPath(path)+".name")
		}
		for _, other := range sortedKeys(live) {
			o := live[other]
			if o.create.Kind == cr.Kind && Expand(o.create.ObjectName, other, 0) == Expand(cr.ObjectName, p.Name, 0) && p.Name != other {
				c.fail(name, fmt.Sprintf("phase %q made objects of the same names: use {phase}", other))
			}
		}
	}
	if cr.Wait != nil && cr.Wait.For == StateGone {
		c.fail(path+".wait.for", "pods that were just created will not be gone")
	}
	if cr.Count > 0 && p.Name != "" {
		live[p.Name] = &group{index: index, create: cr, objects: cr.Count, pods: cr.pods()}
		c.capacity(path, live, cr)
	}
}

func (c *Create) pods() int {
	if c.Kind == Deployment {
		return c.Count * c.Replicas
	}
	return c.Count
}

// rate checks a rate against the number of operations that it paces.
func (c *checker) rate(path string, r Rate, operations int, on ...string) {
	at := path + ".rate"
	switch {
	case operations <= 1 || r.Burst:
	case r == Rate{}:
		c.fail(path, fmt.Sprintf("rate is missing: say how fast the %d operations come, such as 20/s, or burst", operations), append(on, at)...)
	default:
		seconds := r.seconds(operations)
		if seconds > maxSending.Seconds() {
			c.fail(at, fmt.Sprintf("%d operations at %s take %s; a phase can send for at most %s",
				operations, r, formatDuration(time.Duration(math.Min(seconds, 1e9))*time.Second), formatDuration(maxSending)), on...)
		}
	}
}

// seconds is how long n operations take to come due.
func (r Rate) seconds(n int) float64 {
	left, t := float64(n-1), 0.0
	if r.Over > 0 {
		t = r.Over.Seconds()
		left -= (r.From + r.PerSecond) / 2 * t
		if left <= 0 {
			return t
		}
	}
	if r.Burst || r.PerSecond <= 0 {
		return t
	}
	return t + left/r.PerSecond
}

// target finds the phase that a scale or delete refers to.
func (c *checker) target(path, name string, live map[string]*group) *group {
	if g := live[name]; g != nil {
		return g
	}
	var creates []string
	for _, p := range c.e.Phases {
		if p.Name != name {
			if p.Create != nil && p.Name != "" {
				creates = append(creates, p.Name)
			}
			continue
		}
		switch {
		case p.Create == nil:
			c.fail(path, fmt.Sprintf("phase %q creates nothing, its action is %s", name, p.Action()))
		case !slices.ContainsFunc(c.problems, func(q Problem) bool { return strings.Contains(q.Path, ".create") }):
			c.fail(path, fmt.Sprintf("the objects of phase %q are not there at this point: the phase comes later, or they were deleted", name))
		}
		return nil
	}
	if name != "" {
		if len(creates) == 0 {
			c.fail(path, fmt.Sprintf("unknown phase %s: no phase creates anything", quote(name)))
		} else {
			c.fail(path, unknown("phase", name, creates))
		}
	}
	return nil
}

func (c *checker) scale(path string, p Phase, live map[string]*group) {
	s := p.Scale
	g := c.target(path+".phase", s.Phase, live)
	if g == nil {
		return
	}
	if g.create.Kind != Deployment {
		c.fail(path+".phase", fmt.Sprintf("phase %q creates Pods, and only Deployments have replicas", s.Phase))
		return
	}
	c.rate(path, s.Rate, g.objects)
	before := g.pods
	g.pods = g.objects * s.Replicas
	if s.Wait != nil && (s.Wait.For == StateGone) != (g.pods < before) {
		text := "scaling up makes no pods go: wait for running or another state"
		if g.pods < before {
			text = "scaling down makes pods go: wait for gone"
		}
		c.fail(path+".wait.for", text, path+".replicas")
	}
	if before == g.pods {
		c.fail(path+".replicas", fmt.Sprintf("phase %q has %d replicas already", s.Phase, s.Replicas))
	}
	c.capacity(path, live, g.create)
}

func (c *checker) delete(path string, p Phase, live map[string]*group) {
	d := p.Delete
	g := c.target(path+".phase", d.Phase, live)
	if d.Wait != nil && d.Wait.For != StateGone && d.Wait.For != "" {
		c.fail(path+".wait.for", fmt.Sprintf("deleted pods will not be %s: wait for gone", d.Wait.For))
	}
	if g == nil {
		return
	}
	c.rate(path, d.Rate, g.objects)
	delete(live, d.Phase)
}

// capacity checks that the nodes can hold all live pods: that nothing waits
// for ever must be known before anything starts.
func (c *checker) capacity(path string, live map[string]*group, latest *Create) {
	if c.e.Cluster.Existing {
		return
	}
	node, nodes := c.e.Cluster.Node, float64(c.e.Cluster.Nodes)
	on := []string{path + ".count", path + ".replicas", "cluster.nodes", "cluster.node.pods", "cluster.node.cpu", "cluster.node.memory", path + ".pod.cpu", path + ".pod.memory", path + ".pod.containers"}
	where := path
	if c.src.present("cluster.nodes") {
		where = "cluster.nodes"
	}
	for _, p := range on {
		if c.src.place[p].set != "" {
			where = p // what was changed last is what is wrong
		}
	}
	var pods, cpu, memory float64
	for _, g := range live {
		n, k := float64(g.pods), float64(g.create.Pod.Containers)
		pods += n
		cpu += n * k * g.create.Pod.CPU.Value()
		memory += n * k * g.create.Pod.Memory.Value()
	}
	if nodes == 0 {
		c.overfull(pods, where, fmt.Sprintf("0 nodes cannot hold %.0f pods: set cluster.nodes", pods), on)
		return
	}
	k := float64(latest.Pod.Containers)
	perNode := func(capacity, each float64) float64 {
		if each <= 0 {
			return math.Inf(1)
		}
		return math.Floor(capacity/each + 1e-9)
	}
	fit := []struct {
		what    string
		perNode float64 // pods of the latest shape
		need    float64
		have    float64
	}{
		{"pods", float64(node.Pods), pods, nodes * float64(node.Pods)},
		{"cpu", perNode(node.CPU.Value(), k*latest.Pod.CPU.Value()), cpu, nodes * node.CPU.Value()},
		{"memory", perNode(node.Memory.Value(), k*latest.Pod.Memory.Value()), memory, nodes * node.Memory.Value()},
	}
	own := 0.0
	for _, g := range live {
		if g.create == latest {
			own = float64(g.pods)
		}
	}
	for _, f := range fit {
		if f.need <= f.have*(1+1e-9) && own <= nodes*f.perNode {
			continue
		}
		var text string
		switch {
		case f.what == "pods":
			text = fmt.Sprintf("%.0f nodes cannot hold %.0f pods: at %d pods a node there is room for %.0f", nodes, pods, node.Pods, f.have)
		case math.IsInf(f.perNode, 1) || own < pods:
			text = fmt.Sprintf("%.0f nodes cannot hold %.0f pods: their %s requests exceed what the nodes have", nodes, pods, f.what)
		default:
			text = fmt.Sprintf("%.0f nodes cannot hold %.0f pods: by their %s requests %.0f fit on a node, so there is room for %.0f", nodes, pods, f.what, f.perNode, nodes*f.perNode)
		}
		c.overfull(pods, where, text, on)
		return
	}
}

// overfull keeps the worst lack of room: one message says enough.
func (c *checker) overfull(pods float64, where, text string, on []string) {
	if pods > c.most {
		c.most = pods
		c.room = func() { c.fail(where, text, on...) }
	}
}

func (c *checker) objectives() {
	names := map[string]int{}
	for i, o := range c.e.Objectives {
		path := fmt.Sprintf("objectives[%d]", i)
		if c.src.isBad(path) {
			continue
		}
		if first, taken := names[o.Name]; taken && o.Name != "" {
			c.fail(path+".name", fmt.Sprintf("objective %q is here a second time; the first is objectives[%d]: give one of them another name", o.Name, first))
		} else {
			names[o.Name] = i
		}
		limit, quantile := path+".limit", path+".quantile"
		switch o.Indicator {
		case Throughput:
			if o.Limit.Unit == "s" {
				c.fail(limit, "the limit of a throughput is a rate such as 100/s")
			}
			if o.Quantile != 0 || c.src.present(quantile) {
				c.fail(quantile, "unused: a throughput is a mean")
			}
		case PodStartup, IntentLatency:
			if o.Limit.Unit == "1/s" {
				c.fail(limit, "the limit of a latency is a duration such as 5s")
			}
			if o.Quantile <= 0 {
				c.fail(quantile, "must be above 0, such as 0.99")
			}
		}
		if !slices.ContainsFunc(c.e.Phases, func(p Phase) bool {
			return p.Kind == KindSteady && (p.Create != nil || p.Scale != nil)
		}) && len(c.problems) == 0 {
			c.fail(path, "nothing to judge: no steady phase makes pods", "phases")
		}
	}
}

package experiment

import (
	"fmt"
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
	defaultStopMedian  = 100 * time.Millisecond
	defaultStopP99     = 400 * time.Millisecond
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
	// The page that client-go's pagers and kubectl ask for.
	defaultPage = 500
	// Long enough to hear of changes, short enough to end with the phase.
	defaultWatch = 10 * time.Second
	// maxObjectName keeps names fit for labels, and pods' names for host names.
	maxObjectName = 63
)

func (e *Experiment) setDefaults() {
	e.Seed = defaultSeed
	e.Cluster.Profile = ProfileStock
	e.Cluster.Node = Node{
		CPU: defaultNodeCPU, Memory: defaultNodeMemory, Pods: defaultNodePods, Identity: IdentityOwn, Traffic: TrafficKubelet,
		StartDelay: Distribution{Kind: LogNormal, Median: defaultStartMedian, P99: defaultDelayP99},
		StopDelay:  Distribution{Kind: LogNormal, Median: defaultStopMedian, P99: defaultStopP99},
	}
	e.Observe.Level, e.Observe.Profile = LevelDefault, true
}

func (p *PodShape) setDefaults() { p.Containers, p.Image, p.Token = 1, DefaultImage, true }
func (p *Patch) setDefaults()    { p.Type = MergePatch }
func (r *Request) setDefaults()  { r.Shares, r.Namespace = 1, ReachRun }
func (w *Wait) setDefaults()     { w.Timeout, w.Stall = defaultTimeout, defaultStall }

// complete fills what is left out of objects, which depends on their form.
func (o *Objects) complete() {
	if o.Kind != "" && o.Pod == nil {
		o.Pod = &PodShape{}
		o.Pod.setDefaults()
	}
	if o.ObjectName == "" && o.Object.text("metadata", "name") == "" {
		o.ObjectName = DefaultObjectName
	}
}

func (p *Pacing) complete() {
	if p.SendWithin == 0 && p.Clients == 0 {
		p.SendWithin = defaultSendWithin
	}
}

func (r *Request) complete() {
	switch {
	case r.Kind == PagedList && r.Limit == 0:
		r.Limit = defaultPage
	case r.Kind == WatchOpen && r.For == 0:
		r.For = defaultWatch
	}
}

// complete fills what depends on other values: names and kinds of phases,
// names and quantiles of objectives.
func (e *Experiment) complete() {
	if e.Repetitions == 0 && !e.source.present("repetitions") {
		e.Repetitions = 1
	}
	taken := map[string]bool{}
	e.each(func(p *Phase) { taken[p.Name] = true })
	load := KindSteady
	for i := range e.Phases {
		e.Phases[i].complete(taken, load)
		if action := e.Phases[i].Action(); action != "settle" && action != "wait" {
			load = e.Phases[i].Kind
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
			case IntentLatency, ClaimBound:
				o.Quantile = 1 // the last one: when the user has what was asked for
			}
		}
	}
}

// each calls f for every phase, those of parallel groups after the group.
func (e *Experiment) each(f func(*Phase)) {
	for i := range e.Phases {
		f(&e.Phases[i])
		for j := range e.Phases[i].Parallel {
			f(&e.Phases[i].Parallel[j])
		}
	}
}

// complete fills what the file left out. Load is the kind of the load before.
func (p *Phase) complete(taken map[string]bool, load PhaseKind) {
	action := p.Action()
	if p.Name == "" && action != "" {
		p.Name = action
		for n := 2; taken[p.Name]; n++ {
			p.Name = fmt.Sprintf("%s-%d", action, n)
		}
		taken[p.Name] = true
	}
	for i := range p.Parallel {
		p.Parallel[i].complete(taken, load)
	}
	if p.Kind == "" {
		switch action {
		case "create", "apply", "churn", "read", "patch":
			if p.Kind = KindSteady; p.Beside { // it is not what is measured
				p.Kind = KindWarmUp
			}
		case "delete":
			p.Kind = KindDrain
		case "settle":
			p.Kind = KindSettle
		case "wait":
			p.Kind = load
		case "parallel": // as the first of its phases
			p.Kind = p.Parallel[0].Kind
		case "":
		default:
			p.Kind = KindSteady
		}
	}
	if o := p.Makes(); o != nil {
		o.complete()
	}
	if pacing := p.pacing(); pacing != nil {
		pacing.complete()
	}
	if p.Read != nil {
		for i := range p.Read.Mix {
			p.Read.Mix[i].complete()
		}
	}
}

// Makes is what the phase makes; nil where it makes nothing.
func (p *Phase) Makes() *Objects {
	switch {
	case p.Create != nil:
		return &p.Create.Objects
	case p.Apply != nil && p.Apply.Phase == "":
		return &p.Apply.Objects
	}
	return nil
}

// pacing is how the phase's operations are sent; nil where it has none.
func (p *Phase) pacing() *Pacing {
	switch {
	case p.Create != nil:
		return &p.Create.Pacing
	case p.Apply != nil:
		return &p.Apply.Pacing
	case p.Scale != nil:
		return &p.Scale.Pacing
	case p.Patch != nil:
		return &p.Patch.Pacing
	case p.Update != nil:
		return &p.Update.Pacing
	case p.Churn != nil:
		return &p.Churn.Pacing
	case p.Read != nil:
		return &p.Read.Pacing
	case p.Delete != nil:
		return &p.Delete.Pacing
	}
	return nil
}

// target is the name of the phase whose objects this one works on.
func (p *Phase) target() string {
	switch {
	case p.Apply != nil:
		return p.Apply.Phase
	case p.Scale != nil:
		return p.Scale.Phase
	case p.Patch != nil:
		return p.Patch.Phase
	case p.Update != nil:
		return p.Update.Phase
	case p.Churn != nil:
		return p.Churn.Phase
	case p.Delete != nil:
		return p.Delete.Phase
	}
	return ""
}

// Origin is the phase that made the objects on which the phase works, and the
// phase itself where it makes its own: what comes of them carries its name.
func (p *Phase) Origin() string {
	if of := p.target(); of != "" {
		return of
	}
	return p.Name
}

// wait is the wait that is part of the phase's action.
func (p *Phase) wait() *Wait {
	switch {
	case p.Create != nil:
		return p.Create.Wait
	case p.Apply != nil:
		return p.Apply.Wait
	case p.Scale != nil:
		return p.Scale.Wait
	case p.Update != nil:
		return p.Update.Wait
	case p.Churn != nil:
		return p.Churn.Wait
	case p.Delete != nil:
		return p.Delete.Wait
	}
	return nil
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
		if fv := v.FieldByIndex(f.index); isAction(fv.Type()) && !fv.IsNil() && (fv.Kind() == reflect.Pointer || fv.Len() > 0) {
			set = append(set, f.key)
		}
	}
	return set
}

func actionNames() []string {
	var names []string
	t := reflect.TypeFor[Phase]()
	for _, f := range fieldsOf(t) {
		if isAction(t.FieldByIndex(f.index).Type) {
			names = append(names, f.key)
		}
	}
	return names
}

func isAction(t reflect.Type) bool { return t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice }

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
	if e.Cluster.Existing && e.Cluster.Nodes.Real > 0 {
		c.problems = append(c.problems, c.src.problem("cluster.nodes.real", "a real node needs a lab, which signs its certificate: leave it out, or run without --kubeconfig"))
	}
	if e.Cluster.Proxy && e.Cluster.Nodes.Real == 0 {
		c.problems = append(c.problems, c.src.problem("cluster.proxy", "kube-proxy runs on real nodes, and there is none: set cluster.nodes.real, or leave it out"))
	}
	if e.Cluster.DNS > 0 && !e.Cluster.Proxy {
		c.problems = append(c.problems, c.src.problem("cluster.dns", "CoreDNS reaches the API server through its Service: set cluster.proxy, or leave it out"))
	}
	if n := e.Cluster.Node; n.Traffic == TrafficLeast && n.Identity == IdentityOwn && c.src.present("cluster.node.identity") {
		c.problems = append(c.problems, c.src.problem("cluster.node.identity", "least traffic has one watch for the pods of all nodes, which no node's own identity may open: leave identity out, or say pooled"))
	}
	if e.Cluster.Node.Traffic == TrafficLeast && e.Cluster.Storage != nil {
		c.problems = append(c.problems, c.src.problem("cluster.node.traffic", "least traffic leaves out what a node says about volumes, so that pods would wait for theirs for ever: leave it out, or cluster.storage"))
	}
	if n := e.Cluster.Node; n.Network.IPAM != "" && (e.Cluster.Existing || n.Traffic == TrafficLeast) {
		c.problems = append(c.problems, c.src.problem("cluster.node.network.ipam", "a network plugin that keeps addresses at the API server needs a lab, and nodes that talk like kubelets: leave it out, or run without --kubeconfig and without least traffic"))
	}
	c.apps()
	c.seeded()
	c.distribution("cluster.node.startDelay", e.Cluster.Node.StartDelay)
	c.distribution("cluster.node.stopDelay", e.Cluster.Node.StopDelay)
	for path, d := range map[string]Distribution{"disk": e.Cluster.Node.Disk, "images.pull": e.Cluster.Node.Images.Pull, "network.delay": e.Cluster.Node.Network.Delay} {
		if d.Kind != "" {
			c.distribution("cluster.node."+path, d)
		}
	}
	c.storage()
	c.phases()
	c.actors()
	c.faults()
	c.objectives()
	c.variants()
	return c.problems
}

// hasScale reports whether a steady phase scales, if only to fewer.
func (e *Experiment) hasScale() bool {
	has := false
	e.each(func(p *Phase) { has = has || p.Kind == KindSteady && p.Scale != nil })
	return has
}

func (c *checker) variants() {
	names := map[string]int{}
	for i, v := range c.e.Variants {
		if first, taken := names[v.Name]; taken && v.Name != "" {
			c.fail(fmt.Sprintf("variants[%d].name", i), fmt.Sprintf("variant %q is here a second time; the first is variants[%d]", v.Name, first))
			continue
		}
		names[v.Name] = i
	}
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

// uses lists the keys that have a meaning for each kind of actor, besides those
// that all have.
var uses = map[ActorKind][]string{
	ActAddonHook:     {"rate", "objects"},
	ActAddonManager:  {"rate", "objects"},
	ActAddonUser:     {"rate", "objects"},
	ActApplyOnChange: {"rate", "objects"},
	ActConnections:   {"rate", "count"},
	ActController:    {"count", "qps", "burst"},
	ActConverter:     {"rate", "count", "objects", "delay"},
	ActDiskWriter:    {"count"},
	ActElectors:      {"count", "objects", "qps", "burst"},
	ActEvents:        {"rate", "count", "objects", "qps", "burst"},
	ActHeartbeats:    {"rate", "count", "qps", "burst"},
	ActInstaller:     {"rate", "count", "objects"},
	ActKubectlApply:  {"rate", "count", "objects"},
	ActLister:        {"rate", "count", "resource", "stale", "qps", "burst"},
	ActLockers:       {"count", "qps", "burst"},
	ActOwner:         {"count", "objects", "qps", "burst"},
	ActRelister:      {"rate", "count", "resource"},
	ActScraper:       {"rate", "count", "qps", "burst"},
	ActWatchers:      {"count", "resource"},
	ActWebhook:       {"delay", "refuse"},
	ActWriters:       {"rate", "count", "objects", "bytes", "qps", "burst"},
}

// labOnly are the kinds of actor whose work is not confined to the run's namespace.
var labOnly = []ActorKind{ActConverter, ActDiskWriter, ActInstaller, ActWebhook}

// actors checks that each has a name of its own and only what it needs.
func (c *checker) actors() {
	taken := map[string]bool{"kubedyno": true}
	for _, name := range ComponentNames() {
		taken[name] = true
	}
	for _, a := range c.e.Observe.Apps {
		taken[a.Name] = true
	}
	for i, a := range c.e.Actors {
		at := fmt.Sprintf("actors[%d]", i)
		if a.Name != "" && taken[a.Name] {
			c.fail(at+".name", fmt.Sprintf("%q is taken: each actor needs a name of its own", a.Name))
		}
		taken[a.Name] = true
		if used, known := uses[a.Do]; known {
			for _, key := range []string{"rate", "count", "objects", "bytes", "resource", "stale", "qps", "burst", "delay", "refuse"} {
				if c.src.present(at+"."+key) && !slices.Contains(used, key) {
					c.fail(at+"."+key, fmt.Sprintf("means nothing to %s, which has: %s", a.Do, strings.Join(used, ", ")))
				}
			}
		}
		if c.e.Cluster.Existing && slices.Contains(labOnly, a.Do) {
			c.fail(at+".do", fmt.Sprintf("a %s touches more than what is the run's own, which is for labs only: leave it out, or run without --kubeconfig", a.Do))
		}
		if a.Rate.Burst || a.Rate.Over != 0 || a.Rate.Poisson || a.Rate.Steps != nil {
			c.fail(at+".rate", "an actor's rate is constant: 5/s, or 12/m")
		}
		if a.Burst != 0 && a.QPS == 0 {
			c.fail(at+".burst", "needs qps: without it there is no limiter")
		}
		if a.QPS != 0 && a.Burst == 0 {
			c.fail(at, "qps needs burst: how many requests may go at once")
		}
		for j, name := range a.During {
			if _, ok := c.names[name]; !ok {
				c.fail(fmt.Sprintf("%s.during[%d]", at, j), unknown("phase", name, sortedKeys(c.names)))
			}
		}
	}
}

// faults checks that each is there once, and as strong as one thing says. Their
// names and values are for who knows them to check.
func (c *checker) faults() {
	taken := map[string]bool{}
	for i, f := range c.e.Faults {
		at := fmt.Sprintf("faults[%d]", i)
		if f.Name != "" && taken[f.Name] {
			c.fail(at+".name", fmt.Sprintf("fault %q is here a second time", f.Name))
		}
		taken[f.Name] = true
		if f.Intensity != "" && f.Value != "" {
			c.fail(at, "has an intensity and a value: leave one of them out")
		}
	}
}

// checker looks at what no single field can tell.
type checker struct {
	e      *Experiment
	src    source
	broken []string          // paths that break a rule of their own
	names  map[string]string // of phases, to their paths
	ledger ledger
	loaded bool // some phase before makes objects
	// claimed says that some phase before makes claims.
	claimed bool
	// makesNodes says that some phase before makes Node objects.
	makesNodes bool
	most       float64 // pods, where the nodes have too little room
	room       func()  // reports that
	problems   Problems
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
		comp := c.e.Cluster.Components[name]
		c.off(path, name, comp)
		if comp.Latency != 0 && name != "etcd" && name != "kube-controller-manager" && name != "kube-scheduler" {
			c.fail(path+".latency", "only the way to etcd, and those of kube-controller-manager and kube-scheduler to the API server can be made longer")
		}
		if comp.Config != nil {
			c.configuration(path, name, comp)
		}
		if !isOurs(name) {
			continue
		}
		for key, set := range map[string]bool{"syncDelay": comp.SyncDelay != 0, "files": comp.Files != 0} {
			if set {
				c.fail(path+"."+key, name+" is part of kubedyno and takes cpu and env only")
			}
		}
		if len(comp.Args) > 0 {
			c.fail(path+".args", name+" is part of kubedyno and takes cpu and env only")
		}
		if comp.Binary != "" {
			c.fail(path+".binary", name+" is part of kubedyno and takes cpu and env only")
		}
	}
}

// configuration checks what a scheduler is configured by. What a plugin makes of
// its arguments the scheduler itself says when it starts.
func (c *checker) configuration(path, name string, comp Component) {
	at := path + ".config"
	switch {
	case name != scheduler:
		c.fail(at, "only "+scheduler+" is configured by a KubeSchedulerConfiguration")
	case comp.Args["config"] != nil:
		c.fail(at, "give either config, or the flag args.config with a file of your own")
	case !slices.Contains([]any{nil, "kubescheduler.config.k8s.io/v1"}, comp.Config["apiVersion"]):
		c.fail(join(at, "apiVersion"), "want kubescheduler.config.k8s.io/v1, or leave it out")
	case !slices.Contains([]any{nil, "KubeSchedulerConfiguration"}, comp.Config["kind"]):
		c.fail(join(at, "kind"), "want KubeSchedulerConfiguration, or leave it out")
	case comp.Config.at("clientConnection", "kubeconfig") != nil:
		c.fail(join(at, "clientConnection"), "the lab sets the kubeconfig itself, with the ports it picks")
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
		given := !reflect.ValueOf(d).FieldByIndex(f.index).IsZero() || c.src.present(at)
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
		isNot := func(unit string) bool { return o.Limit.Unit != "" && o.Limit.Unit != unit } // one that is missing was reported
		switch o.Indicator {
		case Throughput:
			if isNot("1/s") {
				c.fail(limit, "the limit of a throughput is a rate such as 100/s")
			}
			if o.Quantile != 0 || c.src.present(quantile) {
				c.fail(quantile, "unused: a throughput is a mean")
			}
		case ClaimFailures:
			if isNot("1") {
				c.fail(limit, "the limit of failures is a number such as 0")
			}
			if o.Quantile != 0 || c.src.present(quantile) {
				c.fail(quantile, "unused: failures are counted")
			}
		case PodStartup, IntentLatency, ClaimBound:
			if isNot("s") {
				c.fail(limit, "the limit of a latency is a duration such as 5s")
			}
			if o.Quantile <= 0 {
				c.fail(quantile, "must be above 0, such as 0.99")
			}
		}
		if len(c.problems) > 0 {
			continue
		}
		switch aboutClaims := o.Indicator == ClaimBound || o.Indicator == ClaimFailures; {
		case aboutClaims && c.e.ExpectedClaims() == 0:
			c.fail(path, "nothing to judge: no steady phase makes claims", "phases")
		case !aboutClaims && c.e.ExpectedPods() == 0 && !c.e.hasScale():
			c.fail(path, "nothing to judge: no steady phase makes pods", "phases")
		}
	}
}

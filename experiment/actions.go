package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// phases checks the phases in order, against what those before have left.
func (c *checker) phases() {
	c.names = map[string]string{}
	c.ledger = ledger{nodes: c.e.Cluster.Nodes.All(), live: map[string]*group{}}
	for i := range c.e.Phases {
		c.phase(fmt.Sprintf("phases[%d]", i), &c.e.Phases[i], false)
	}
	if c.room != nil {
		c.room()
	}
}

func (c *checker) phase(path string, p *Phase, inner bool) {
	if c.src.isBad(path) {
		return
	}
	if first, taken := c.names[p.Name]; taken && p.Name != "" {
		c.fail(path+".name", fmt.Sprintf("phase %q is here a second time; the first is %s", p.Name, first))
	} else {
		c.names[p.Name] = path
	}
	switch actions := p.actions(); {
	case len(actions) == 0 && c.src.present(path+".parallel") && !c.anyBad(path, actionNames()):
		c.fail(path+".parallel", "the list is empty")
		return
	case len(actions) == 0 && !c.anyBad(path, actionNames()):
		c.fail(path, "the phase does nothing: it needs one of "+strings.Join(actionNames(), ", "))
		return
	case len(actions) > 1:
		text := fmt.Sprintf("a phase has one action, this one has %s", strings.Join(actions, " and "))
		if slices.Contains(actions, "wait") {
			text += fmt.Sprintf(": put wait inside %s, or into a phase of its own", actions[0])
		}
		c.fail(path, text)
		return
	}
	action := p.Action()
	if p.Settle != nil && p.Settle.Paused && c.e.Cluster.Existing {
		c.fail(path+".settle.paused", "only a lab can be frozen: leave it out, or run without --kubeconfig")
	}
	if p.Kind == KindSettle && p.Settle == nil && action != "" {
		c.fail(path+".kind", "settle is for idle phases: this one has the action "+action)
	}
	if inner && (p.Settle != nil || p.Wait != nil || p.Parallel != nil) {
		c.fail(join(path, action), fmt.Sprintf("%s has no place in a parallel group, whose phases put load on the cluster", action))
		return
	}
	at := join(path, action)
	c.beside(path, at, p, inner)
	c.awaits(at+".wait", p.wait())
	c.awaits(at, p.Wait)
	switch {
	case p.Parallel != nil:
		c.parallel(at, p)
		return
	case p.Makes() != nil:
		c.objects(at, p)
	case p.Apply != nil:
		c.applyAgain(at, p)
	case p.Scale != nil:
		c.scale(at, p)
	case p.Patch != nil:
		c.patch(at, p)
	case p.Update != nil:
		c.update(at, p)
	case p.Churn != nil:
		c.churn(at, p)
	case p.Read != nil:
		c.read(at, p)
	case p.Delete != nil:
		c.delete(at, p)
	case p.Wait != nil:
		c.wait(at, p)
	}
	c.loaded = c.loaded || p.Makes() != nil
	if o := p.Makes(); o != nil {
		kept, own := o.claimsOfPods()
		c.claimed = c.claimed || o.claimsEach()+kept+own > 0
	}
	c.makesNodes = c.makesNodes || p.Makes() != nil && p.Makes().KindName() == "Node"
	c.ledger.step(*p)
	c.capacity(at, p)
}

func (c *checker) anyBad(path string, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return c.src.isBad(join(path, k)) })
}

// parallel checks phases that begin together: none may refer to what another
// one makes, nor work on objects that another one changes.
func (c *checker) parallel(path string, p *Phase) {
	busy := map[string]int{} // target → the phase that works on it
	for i := range p.Parallel {
		q := &p.Parallel[i]
		at := fmt.Sprintf("%s[%d]", path, i)
		target := q.target()
		if j := slices.IndexFunc(p.Parallel, func(r Phase) bool { return r.Name == target }); target != "" && j >= 0 {
			c.fail(at, fmt.Sprintf("phase %q begins together with this one: its objects are not there yet", target))
			continue
		}
		if j, taken := busy[target]; target != "" && taken && (q.changes() || p.Parallel[j].changes()) {
			c.fail(at, fmt.Sprintf("phase %q works on the objects of phase %q at the same time", p.Parallel[j].Name, target))
			continue
		}
		busy[target] = i
		c.phase(at, q, true)
	}
	if !slices.ContainsFunc(p.Parallel, func(q Phase) bool { return !q.Beside }) {
		c.fail(path, "all phases of the group are beside: one must say when it is over")
	}
}

// beside checks a phase that ends when the others of its group are over.
func (c *checker) beside(path, at string, p *Phase, inner bool) {
	switch {
	case !p.Beside:
	case !inner:
		c.fail(path+".beside", "only a phase of a parallel group is beside others")
	case p.Create == nil && p.Apply == nil && p.Churn == nil && p.Read == nil && p.Patch == nil:
		c.fail(path+".beside", fmt.Sprintf("%s is done when it has been done once: only create, apply, churn, patch and read go on beside others", p.Action()))
	case p.Kind == KindSteady:
		c.fail(path+".kind", "how much a phase does that is beside others is not known in advance, so that it cannot be what is measured", path+".beside")
	case p.wait() != nil:
		c.fail(at+".wait", "how many pods there will be beside others is not known in advance: leave the wait out", path+".beside")
	}
}

// changes reports whether the phase changes which objects or pods there are.
func (p *Phase) changes() bool {
	return p.Scale != nil || p.Update != nil || p.Churn != nil || p.Delete != nil
}

// objects checks a phase that makes objects.
func (c *checker) objects(path string, p *Phase) {
	o := p.Makes()
	count := path + ".count"
	switch {
	case o.Object != nil || c.src.present(path+".object"):
		c.manifest(path, o)
	case c.src.isBad(path+".kind") || c.src.isBad(path+".object") || c.src.isBad(path+".template"):
	case o.Kind == "":
		c.fail(path, "kind is missing: give kind, or a manifest as object or template")
	default:
		c.short(path, o)
	}
	if o.Count == 0 && !c.src.present(count) {
		c.fail(path, "count is missing", count)
	}
	pacing := p.pacing()
	c.paced(path, *pacing, o.Count, count)
	c.objectNames(path, p, o)
	c.namespace(path, o)
	c.workload(path, p, o)
	switch w := p.wait(); {
	case w == nil:
	case w.For == StateGone:
		c.fail(path+".wait.for", "what was just created will not be gone")
	case o.claimsEach() > 0:
		c.awaitedClaims(path, o, w)
	case w.For == StateBound:
		c.fail(path+".wait.for", fmt.Sprintf("claims are bound, and a %s is none: wait for running or another state", o.KindName()), path+".object")
	case o.KindName() == "DaemonSet" && c.ledger.nodes == 0 && c.e.Cluster.Existing:
		c.fail(path+".wait", "how many pods a DaemonSet gets on a cluster's own nodes is not known: use --nodes, or leave the wait out", path+".object")
	case o.Object != nil && o.known().template == nil:
		c.fail(path+".wait", fmt.Sprintf("a %s makes no pods, and only pods and claims can be waited for", o.KindName()), path+".object")
	}
}

func (c *checker) short(path string, o *Objects) {
	replicas := path + ".replicas"
	switch {
	case o.Kind == Pod && (o.Replicas != 0 || c.src.present(replicas)):
		c.fail(replicas, "unused: only a Deployment has replicas; the number of Pods is count")
	case o.Kind == Deployment && o.Replicas == 0 && !c.src.present(replicas):
		c.fail(path, "replicas is missing: a Deployment needs it", replicas, path+".kind")
	}
}

// manifest checks what the language has to know of a manifest. The API's own
// rules are checked where its types are: before the first phase begins.
func (c *checker) manifest(path string, o *Objects) {
	at, m := path+".object", o.Object
	for _, key := range []string{"kind", "replicas", "pod"} {
		if c.src.present(join(path, key)) {
			c.fail(join(path, key), "unused: the manifest says it all")
		}
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if m.text(key) == "" {
			c.fail(at, fmt.Sprintf("the manifest has no %s", key), join(at, key))
		}
	}
	if strings.HasSuffix(m.text("kind"), "List") && m.at("items") != nil {
		c.fail(at+".kind", "a list of objects: a phase makes objects of one kind, each from one manifest")
	}
	if m.at("metadata", "generateName") != nil {
		c.fail(at+".metadata.generateName", "the run must know the names of its objects: use name, with {index}")
	}
	if m.text("metadata", "name") != "" && c.src.present(path+".objectName") {
		c.fail(path+".objectName", "unused: the manifest has a name")
	}
	if ns := m.at("metadata", "namespace"); ns != nil && ns != "{namespace}" {
		c.fail(at+".metadata.namespace", "objects go into the run's own namespace, so that they can be taken away: leave it out (in a lab, the action's key namespace names another)")
	}
	labels, _ := m.at("metadata", "labels").(map[string]any)
	for _, key := range sortedKeys(labels) {
		if strings.HasPrefix(key, "kubedyno.io/") {
			c.fail(at+".metadata.labels."+key, "labels under kubedyno.io/ are set by kubedyno itself")
		}
	}
	k := o.known()
	if len(k.pods) > 0 {
		if n := m.at(k.pods...); n != nil {
			if number, ok := n.(int64); !ok || number < 0 || number > 1_000_000 {
				c.fail(join(at, strings.Join(k.pods, ".")), "how many pods an object asks for must be a whole number from 0 to 1000000")
			}
		}
	}
	if k.cluster && c.e.Cluster.Existing {
		c.fail(at+".kind", fmt.Sprintf("a %s belongs to no namespace: on a cluster that is not a lab it is not kubedyno's to make", m.text("kind")))
	}
}

// objectNames checks that the names are valid and that no two are the same.
func (c *checker) objectNames(path string, p *Phase, o *Objects) {
	pattern, name := o.Pattern(), path+".objectName"
	if o.Object.text("metadata", "name") != "" {
		name = path + ".object.metadata.name"
	}
	if templateBreach(pattern) != "" {
		if name != path+".objectName" {
			c.fail(name, templateBreach(pattern))
		}
		return
	}
	dotted := []string{"APIService", "CustomResourceDefinition"} // named after a group
	longest := Expand(pattern, p.Name, max(o.Count-1, 0))
	longest = strings.ReplaceAll(longest, "{namespace}", "kubedyno-000000")
	switch {
	case o.Count > 1 && !strings.Contains(pattern, "{index}"):
		c.fail(name, fmt.Sprintf("%d objects would have the same name: use {index}", o.Count), path+".count")
	case slices.Contains(dotted, o.KindName()) && driverForm.MatchString(longest):
	case !nameForm.MatchString(longest) || len(longest) > maxObjectName:
		c.fail(name, fmt.Sprintf("%s is not an object name: at most %d lower-case letters, digits and '-'", quote(longest), maxObjectName),
			path+".count", parentPath(path)+".name")
	}
	for _, other := range sortedKeys(c.ledger.live) {
		g := c.ledger.live[other]
		if g.made.KindName() == o.KindName() && g.made.meets(*o) && Expand(g.made.Pattern(), other, 0) == Expand(pattern, p.Name, 0) && p.Name != other {
			c.fail(name, fmt.Sprintf("phase %q made objects of the same names: use {phase}", other))
		}
	}
}

// paced checks how so many operations are sent.
func (c *checker) paced(path string, p Pacing, operations int, on ...string) {
	at := path + ".rate"
	if p.Clients > 0 {
		for _, key := range []string{"rate", "sendWithin", "inFlight"} {
			if c.src.present(join(path, key)) {
				c.fail(join(path, key), "unused: each of the clients sends when it has its answer")
			}
		}
		return
	}
	if p.Think > 0 || c.src.present(path+".think") {
		c.fail(path+".think", "unused: only clients rest between requests", path+".clients")
	}
	switch {
	case operations <= 1 || p.Rate.Burst:
	case p.Rate.IsZero():
		c.fail(path, fmt.Sprintf("rate is missing: say how fast the %d operations come, such as 20/s, or burst", operations), append(on, at, path+".clients")...)
	default:
		if seconds := p.Rate.seconds(operations); seconds > maxSending.Seconds() {
			c.fail(at, fmt.Sprintf("%d operations at %s take %s; a phase can send for at most %s",
				operations, p.Rate, formatDuration(time.Duration(math.Min(seconds, 1e9))*time.Second), formatDuration(maxSending)), on...)
		}
	}
}

// target finds what the phase works on.
func (c *checker) target(path, name string) *group {
	if g := c.ledger.live[name]; g != nil {
		return g
	}
	var makers []string
	var found *Phase
	c.e.each(func(p *Phase) {
		switch {
		case p.Name == name:
			found = p
		case p.Makes() != nil && p.Name != "":
			makers = append(makers, p.Name)
		}
	})
	switch {
	case name == "":
	case found == nil && len(makers) == 0:
		c.fail(path, fmt.Sprintf("unknown phase %s: no phase creates anything", quote(name)))
	case found == nil:
		c.fail(path, unknown("phase", name, makers))
	case found.Makes() == nil:
		c.fail(path, fmt.Sprintf("phase %q creates nothing, its action is %s", name, found.Action()))
	case !slices.ContainsFunc(c.problems, func(q Problem) bool {
		return strings.Contains(q.Path, ".create") || strings.Contains(q.Path, ".apply")
	}):
		c.fail(path, fmt.Sprintf("the objects of phase %q are not there at this point: the phase comes later, or they were deleted", name))
	}
	return nil
}

// applyAgain checks an apply of objects that are there.
func (c *checker) applyAgain(path string, p *Phase) {
	for _, key := range []string{"kind", "object", "template", "replicas", "objectName", "pod"} {
		if c.src.present(join(path, key)) {
			c.fail(join(path, key), fmt.Sprintf("unused: phase %q says what its objects are", p.Apply.Phase))
		}
	}
	if p.Apply.Wait != nil {
		c.fail(path+".wait", "objects that are applied again make no new pods: there is nothing to wait for")
	}
	if g := c.target(path+".phase", p.Apply.Phase); g != nil {
		c.paced(path, p.Apply.Pacing, orAll(p.Apply.Count, g.count), path+".count")
	}
}

func (c *checker) patch(path string, p *Phase) {
	g := c.target(path+".phase", p.Patch.Phase)
	if g == nil {
		return
	}
	c.paced(path, p.Patch.Pacing, orAll(p.Patch.Count, g.count), path+".count")
	k := g.made.known()
	if len(k.pods) > 0 && p.Patch.Patch.at(k.pods...) != nil {
		c.fail(path+".patch."+strings.Join(k.pods, "."), "a patch cannot change how many pods there are: use scale")
	}
	if len(k.template) > 0 && p.Patch.Patch.at(k.template...) != nil {
		c.fail(path+".patch."+strings.Join(k.template, "."), "a patch cannot change the pods: use update")
	}
	if c.src.present(path+".patch") && len(p.Patch.Patch) == 0 {
		c.fail(path+".patch", "the patch changes nothing")
	}
}

func (c *checker) update(path string, p *Phase) {
	g := c.target(path+".phase", p.Update.Phase)
	if g == nil {
		return
	}
	if !g.made.known().rolls {
		c.fail(path+".phase", fmt.Sprintf("phase %q creates objects of kind %s, and only Deployments, StatefulSets and DaemonSets replace their pods", p.Update.Phase, g.made.KindName()))
		return
	}
	c.paced(path, p.Update.Pacing, g.count)
}

func (c *checker) churn(path string, p *Phase) {
	ch := p.Churn
	cycles, forPath, every := path+".cycles", path+".for", path+".every"
	switch {
	case ch.Cycles == 0 && ch.For == 0:
		c.fail(path, "say how long it goes on: cycles or for", cycles, forPath)
		return
	case ch.Cycles > 0 && ch.For > 0:
		c.fail(forPath, "give cycles or for, not both", cycles)
		return
	case ch.Clients > 0 && ch.For > 0:
		c.fail(forPath, "with clients give cycles: how many pods there will be must be known in advance", path+".clients")
		return
	case ch.Clients > 0 && ch.Every > 0:
		c.fail(every, "unused: each of the clients sends when it has its answer", path+".clients")
		return
	case ch.For > 0 && ch.Every == 0 && ch.Rate.Burst:
		c.fail(path+".rate", "a burst has no length: give cycles, or every", forPath, every)
		return
	case ch.For > 0 && ch.Every == 0 && ch.Rate.IsZero():
		c.fail(path, "rate is missing: say how fast the operations come, such as 20/s", path+".rate")
		return
	}
	g := c.target(path+".phase", ch.Phase)
	if g == nil {
		return
	}
	batch, n := ch.Batches(g.count)
	c.paced(path, ch.Pacing, 2*batch*n, cycles, forPath, every, path+".percent")
	if ch.Every > 0 {
		if ch.Rate.Over > 0 || ch.Rate.Poisson || len(ch.Rate.Steps) > 0 {
			c.fail(path+".rate", "with every, each cycle begins anew: give a constant rate or burst", every)
		} else if took := ch.Rate.seconds(2 * batch); took > ch.Every.Seconds() {
			c.fail(every, fmt.Sprintf("a cycle of %d operations at %s takes %s", 2*batch, ch.Rate, formatDuration(time.Duration(took*float64(time.Second)))), path+".rate", path+".percent")
		}
	}
	if replaced := batch * n; replaced > 1_000_000 {
		c.fail(path, fmt.Sprintf("%d objects would be replaced, at most 1000000 can be", replaced), cycles, forPath, every, path+".percent", path+".rate")
		return
	}
	last := Expand(g.made.Pattern(), ch.Phase, g.next+batch*n-1)
	if !strings.Contains(g.made.Pattern(), "{index}") {
		c.fail(path+".phase", fmt.Sprintf("the object that takes another's place needs a name of its own: use {index} in the names of phase %q", ch.Phase))
	} else if len(last) > maxObjectName {
		c.fail(path+".phase", fmt.Sprintf("the last object would be called %s: at most %d characters", quote(last), maxObjectName))
	}
}

func (c *checker) read(path string, p *Phase) {
	r := p.Read
	count, forPath := path+".count", path+".for"
	switch {
	case r.Count == 0 && r.For == 0:
		c.fail(path, "say how long it goes on: count or for", count, forPath)
	case r.Count > 0 && r.For > 0:
		c.fail(forPath, "give count or for, not both", count)
	case r.For > 0 && r.Clients == 0 && r.Rate.Burst:
		c.fail(path+".rate", "a burst has no length: give count", forPath)
	case r.For > 0 && r.Clients == 0 && r.Rate.IsZero():
		c.fail(path, "rate is missing: say how fast the requests come, such as 20/s, or how many clients send them", path+".rate", path+".clients", forPath)
	default:
		c.paced(path, r.Pacing, r.Operations(), count, forPath)
	}
	for i, q := range r.Mix {
		at := fmt.Sprintf("%s.mix[%d]", path, i)
		if !c.src.isBad(at) && !c.src.isBad(at+".kind") && q.Kind != "" {
			c.request(at, q)
		}
	}
}

// request checks one kind of request against what it takes.
func (c *checker) request(path string, q Request) {
	get := q.Kind == StaleGet || q.Kind == QuorumGet
	watch := q.Kind == WatchOpen || q.Kind == WatchList
	for _, k := range []struct {
		key   string
		given bool
		takes bool
		must  bool
	}{
		{"resource", q.Resource != "", !get, !get},
		{"phase", q.Phase != "", get, get},
		{"selector", q.Selector != "", !get, false},
		{"limit", q.Limit != 0, q.Kind == PagedList, false},
		{"for", q.For != 0, watch, false},
		{"namespace", q.Namespace == ReachAll, !get, false},
	} {
		at := join(path, k.key)
		switch {
		case k.given && !k.takes:
			c.fail(at, fmt.Sprintf("unused: a %s takes none", q.Kind))
		case !k.given && k.must:
			c.fail(path, fmt.Sprintf("%s is missing: a %s needs it", k.key, q.Kind), at)
		}
	}
	if get && q.Phase != "" {
		c.target(path+".phase", q.Phase)
	}
}

func (c *checker) scale(path string, p *Phase) {
	s := p.Scale
	g := c.target(path+".phase", s.Phase)
	if g == nil {
		return
	}
	if !g.made.known().scales {
		c.fail(path+".phase", fmt.Sprintf("phase %q creates %ss, and only Deployments, StatefulSets and ReplicaSets have replicas", s.Phase, g.made.KindName()))
		return
	}
	c.paced(path, s.Pacing, g.count)
	before, after := g.pods(), g.count*s.Replicas
	if s.Wait != nil && (s.Wait.For == StateGone) != (after < before) {
		text := "scaling up makes no pods go: wait for running or another state"
		if after < before {
			text = "scaling down makes pods go: wait for gone"
		}
		c.fail(path+".wait.for", text, path+".replicas")
	}
	if before == after {
		c.fail(path+".replicas", fmt.Sprintf("phase %q has %d replicas already", s.Phase, s.Replicas))
	}
}

func (c *checker) delete(path string, p *Phase) {
	d := p.Delete
	g := c.target(path+".phase", d.Phase)
	if d.Wait != nil && d.Wait.For != StateGone && d.Wait.For != "" {
		c.fail(path+".wait.for", fmt.Sprintf("what was deleted will not be %s: wait for gone", d.Wait.For))
	}
	if g == nil {
		return
	}
	c.paced(path, d.Pacing, g.count)
	if d.Wait != nil && g.each == 0 && g.claims == 0 {
		c.fail(path+".wait", fmt.Sprintf("the objects of phase %q have no pods, and only pods and claims can be waited for", d.Phase))
	}
}

// wait checks a wait that is a phase.
func (c *checker) wait(path string, p *Phase) {
	removes := false
	c.e.each(func(q *Phase) { removes = removes || q.changes() && c.names[q.Name] != "" })
	switch {
	case !c.loaded:
		c.fail(path, "there is nothing to wait for: no phase before it creates anything")
	case p.Wait.For == StateBound && !c.claimed:
		c.fail(path+".for", "there is nothing to bind: no phase before it makes claims")
	case p.Wait.For == StateGone && !removes:
		c.fail(path+".for", "pods will not be gone: no phase before it deletes any")
	}
}

// surge is how many more pods than asked for a phase may have for a while.
func (c *checker) surge(p *Phase) float64 {
	g := c.ledger.live[p.target()]
	switch {
	case g == nil:
	case p.Update != nil && g.made.KindName() == "Deployment":
		return math.Ceil(float64(g.each)/4) * float64(g.count) // maxSurge, 25 % by default
	case p.Churn != nil:
		batch, _ := p.Churn.Batches(g.count)
		return float64(batch * g.each) // whom the new ones replace may still be going
	}
	return 0
}

// capacity checks that the nodes can hold all live pods: that nothing waits
// for ever must be known before anything starts.
func (c *checker) capacity(path string, p *Phase) {
	latest := c.ledger.live[p.Name]
	if latest == nil {
		latest = c.ledger.live[p.target()]
	}
	if c.e.Cluster.Existing || latest == nil || c.e.Cluster.Nodes.Real > 0 { // what a real node holds, its machine says
		return
	}
	if c.makesNodes || latest.made.preempts() { // nodes that only manifests tell of; pods that take the place of others
		return
	}
	node, nodes := c.e.Cluster.Node, float64(c.e.Cluster.Nodes.Hollow+c.e.Cluster.Nodes.Seeded)
	on := []string{path + ".count", path + ".replicas", "cluster.nodes", "cluster.nodes.hollow", "cluster.node.pods", "cluster.node.cpu", "cluster.node.memory", path + ".pod.cpu", path + ".pod.memory", path + ".pod.containers", path + ".object"}
	where := path
	if c.src.present("cluster.nodes") {
		where = "cluster.nodes"
	}
	for _, p := range on {
		if c.src.place[p].set != "" {
			where = p // what was changed last is what is wrong
		}
	}
	extra := c.surge(p)
	pods, cpu, memory := c.e.Cluster.Population.needs()
	pods, cpu, memory = pods+extra, cpu+extra*latest.cpu, memory+extra*latest.memory
	for _, g := range c.ledger.live {
		n := float64(g.pods())
		pods += n
		cpu += n * g.cpu
		memory += n * g.memory
	}
	if pods == 0 {
		return
	}
	if nodes == 0 {
		c.overfull(pods, where, fmt.Sprintf("0 nodes cannot hold %.0f pods: set cluster.nodes", pods), on)
		return
	}
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
		{"cpu", perNode(node.CPU.Value(), latest.cpu), cpu, nodes * node.CPU.Value()},
		{"memory", perNode(node.Memory.Value(), latest.memory), memory, nodes * node.Memory.Value()},
	}
	own := float64(latest.pods()) + extra
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
		if extra > 0 {
			text += fmt.Sprintf(" (%.0f of them for as long as new pods take the place of old ones)", extra)
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

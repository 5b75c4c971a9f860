package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// Seeded nodes are Node objects that nobody stands behind, for experiments about
// the scheduler alone: the control plane has its nodes at once, nothing but the
// scheduler works, and a pod's way ends when it is bound.

// Population is the pods that are bound to seeded nodes before the run begins.
// They are put into etcd as the nodes are, and are never part of what is
// measured.
type Population struct {
	// Pods is how many there are; they go to the nodes in turn.
	Pods int       `yaml:"pods" rule:"min=0,max=1000000"`
	Pod  *PodShape `yaml:"pod"`
}

// needs is how many pods there are, and what they ask for in all.
func (p Population) needs() (pods, cpu, memory float64) {
	pods = float64(p.Pods)
	if p.Pod != nil {
		k := pods * float64(p.Pod.Containers)
		cpu, memory = k*p.Pod.CPU.Value(), k*p.Pod.Memory.Value()
	}
	return pods, cpu, memory
}

// TaintEffect is what a taint does to pods that do not tolerate it.
type TaintEffect string

// The effects of taints.
const (
	NoSchedule       TaintEffect = "NoSchedule"
	PreferNoSchedule TaintEffect = "PreferNoSchedule"
	NoExecute        TaintEffect = "NoExecute"
)

func (TaintEffect) values() []string {
	return []string{string(NoSchedule), string(PreferNoSchedule), string(NoExecute)}
}

// Taint keeps pods off nodes.
type Taint struct {
	Key    string      `yaml:"key" rule:"required,labelkey"`
	Value  string      `yaml:"value" rule:"labelvalue"`
	Effect TaintEffect `yaml:"effect" rule:"required"`
}

// breachOfItem is what is wrong with the text in a list, or "".
func breachOfItem(text string, r rules) string {
	if r.has("zones") && (text == "" || !labelValue.MatchString(text) || len(text) > 63) {
		return quote(text) + " is not the name of a zone, which is a label's value: letters, digits, '-', '_' and '.'"
	}
	return ""
}

const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// dispensable are the components that a lab can do without.
var dispensable = []string{controllerManager, scheduler}

func (e *Experiment) isOff(component string) bool { return e.Cluster.Components[component].Off }

// off checks a component that is left out.
func (c *checker) off(path, name string, comp Component) {
	at := path + ".off"
	switch {
	case !comp.Off:
	case !slices.Contains(dispensable, name):
		c.fail(at, fmt.Sprintf("a run cannot do without %s: only %s can be left out", name, strings.Join(dispensable, " and ")))
	case c.e.Cluster.Existing:
		c.fail(at, "the components of a cluster that is not a lab are not kubedyno's to leave out")
	case len(comp.Args) > 0 || len(comp.Env) > 0 || comp.Binary != "" || comp.CPU != 0:
		c.fail(path, "is left out, so that nothing else can be set of it", at)
	}
}

// storageFlags decide what the API server's objects look like in etcd, which is
// what seeding writes.
var storageFlags = []string{"etcd-prefix", "encryption-provider-config", "storage-media-type", "etcd-servers-overrides"}

// seeded checks the nodes and pods that are put into etcd.
func (c *checker) seeded() {
	cluster, at := c.e.Cluster, "cluster.nodes.seeded"
	if p := cluster.Population; p.Pods > 0 && cluster.Nodes.Seeded == 0 {
		c.fail("cluster.population.pods", "only seeded nodes have a population: set cluster.nodes.seeded", at)
	}
	if cluster.Nodes.Seeded == 0 {
		return
	}
	if cluster.Existing {
		c.fail(at, "seeding writes into etcd, which is done to a lab only: leave it out, or run without --kubeconfig")
		return
	}
	for _, flag := range storageFlags {
		if cluster.Components[apiServer].Args[flag] != nil {
			c.fail("cluster.components."+apiServer+".args."+flag, "seeded nodes are written into etcd as the API server has them by default: leave the flag out, or use hollow nodes", at)
		}
	}
	if !c.e.sparesSilentNodes() {
		c.fail(at, "nobody renews the leases of seeded nodes, so that after 50 s the node lifecycle controller would call them unreachable and evict their pods: "+
			"leave kube-controller-manager out (cluster.components.kube-controller-manager.off: true), or take that controller off (its args.controllers: \"*,-node-lifecycle-controller\")")
	}
	for i, o := range c.e.Objectives {
		if o.Indicator == PodStartup || o.Indicator == IntentLatency {
			c.fail(fmt.Sprintf("objectives[%d].indicator", i), "pods on seeded nodes never start, so that nothing of it can be judged: use throughput", at)
		}
	}
}

// sparesSilentNodes reports whether nodes without a heartbeat are left alone.
func (e *Experiment) sparesSilentNodes() bool {
	if e.isOff(controllerManager) {
		return true
	}
	list := e.Cluster.Components[controllerManager].Args["controllers"]
	if list == nil {
		return false
	}
	return slices.ContainsFunc(strings.Split(*list, ","), func(name string) bool {
		return name == "-node-lifecycle-controller" || name == "-nodelifecycle"
	})
}

// startsPods reports whether every pod that is scheduled can come to run.
func (e *Experiment) startsPods() bool { return e.Cluster.Nodes.Seeded == 0 }

// awaits checks that what a wait waits for can come at all.
func (c *checker) awaits(path string, w *Wait) {
	switch {
	case w == nil:
	case (w.For == StateRunning || w.For == StateReady) && !c.e.startsPods():
		c.fail(path+".for", fmt.Sprintf("pods on seeded nodes will not be %s, since nobody starts them: wait for scheduled", w.For), "cluster.nodes.seeded")
	case w.For != StateCreated && w.For != StateGone && c.e.isOff(scheduler):
		c.fail(path+".for", fmt.Sprintf("pods will not be %s without kube-scheduler: wait for created", w.For))
	}
}

// workload checks what a phase makes against the components that are there.
func (c *checker) workload(path string, p *Phase, o *Objects) {
	if k := o.known(); c.e.isOff(controllerManager) && (o.Kind == Deployment || len(k.template) > 0) && p.wait() != nil {
		c.fail(path+".wait", fmt.Sprintf("the pods of a %s are made by kube-controller-manager, which is left out: make Pods, or leave it in", o.KindName()))
	}
}

// namespace checks where objects go.
func (c *checker) namespace(path string, o *Objects) {
	at := path + ".namespace"
	switch {
	case o.Namespace == "" && o.Namespaces > 0:
		c.fail(path+".namespaces", "say what they are called: give namespace", at)
	case o.Namespace == "":
	case c.e.Cluster.Existing:
		c.fail(at, "on a cluster that is not a lab all objects go into the run's own namespace, so that they can be taken away: leave it out")
	case o.ClusterScoped():
		c.fail(at, fmt.Sprintf("unused: a %s belongs to no namespace", o.KindName()))
	}
}

// NamespaceOf is the namespace of object i; empty is the run's own.
func (o Objects) NamespaceOf(i int) string {
	if o.Namespaces > 0 {
		return fmt.Sprintf("%s-%d", o.Namespace, i%o.Namespaces)
	}
	return o.Namespace
}

// meets reports whether objects of both may be in one namespace.
func (o Objects) meets(other Objects) bool {
	for i := range max(o.Namespaces, 1) {
		for k := range max(other.Namespaces, 1) {
			if o.NamespaceOf(i) == other.NamespaceOf(k) {
				return true
			}
		}
	}
	return false
}

// inNamespaces is where the objects go, in words.
func (o Objects) inNamespaces() string {
	switch {
	case o.Namespace == "":
		return ""
	case o.Namespaces == 0:
		return " in namespace " + o.Namespace
	}
	return fmt.Sprintf(" in the namespaces %s to %s in turn", o.NamespaceOf(0), o.NamespaceOf(o.Namespaces-1))
}

// seeded explains nodes that are seeded, and what that means.
func (x *explainer) seeded(c Cluster) {
	n := c.Nodes.Seeded
	if n == 0 {
		return
	}
	x.line("  And %s (%s cores, %s, %d pods each), written into etcd: pods are scheduled to them, and never start.", count(n, "seeded node"), c.Node.CPU, c.Node.Memory, c.Node.Pods)
	if p := c.Population.Pods; p > 0 {
		x.line("  %s bound to them before the run begins, written likewise and not measured.", isAre(count(p, "pod"), p))
	}
}

func isAre(subject string, n int) string {
	if n == 1 {
		return subject + " is"
	}
	return subject + " are"
}

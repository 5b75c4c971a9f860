package experiment

import (
	"fmt"
	"slices"
	"time"
)

// Binding says when a claim gets its volume.
type Binding string

// The bindings, as a StorageClass's volumeBindingMode has them.
const (
	BindingImmediate     Binding = "immediate"
	BindingFirstConsumer Binding = "wait-for-first-consumer" // once a pod that uses the claim has a node
)

func (Binding) values() []string {
	return []string{string(BindingImmediate), string(BindingFirstConsumer)}
}

// Locks say for what the provisioner's replicas elect a leader.
type Locks string

// The locks.
const (
	LockDriver Locks = "driver" // one for the driver, whose holder works on all claims
	LockClaim  Locks = "claim"  // one for each claim, for which all replicas compete
)

func (Locks) values() []string { return []string{string(LockDriver), string(LockClaim)} }

// Storage is a simulated CSI driver with a StorageClass: claims of the class get
// volumes from a real provisioner, whose backend takes a drawn time and stores
// nothing.
type Storage struct {
	// Driver is the name of the CSIDriver.
	Driver string `yaml:"driver" rule:"driver"`
	// Class is the name of the StorageClass. In a lab it is also that of claims
	// that name none.
	Class   string  `yaml:"class" rule:"name"`
	Binding Binding `yaml:"binding"`
	// Attach says that volumes are attached to a node before they are mounted:
	// the CSIDriver's attachRequired.
	Attach bool `yaml:"attach"`
	// VolumesPerNode is how many volumes a node takes at most, as CSINode has it.
	VolumesPerNode int `yaml:"volumesPerNode" rule:"min=1,max=10000"`

	// ProvisionDelay is what the backend takes to make a volume, or to delete it.
	ProvisionDelay Distribution `yaml:"provisionDelay"`
	// AttachDelay is what it takes to attach a volume to a node, or to detach it.
	AttachDelay Distribution `yaml:"attachDelay"`
	// MountDelay is what a hollow node takes to mount an attached volume.
	MountDelay Distribution `yaml:"mountDelay"`

	// Replicas are the processes of the sidecars, of which one leads.
	Replicas int `yaml:"replicas" rule:"min=1,max=20"`
	// Locks say what the provisioner elects a leader for.
	Locks Locks `yaml:"locks"`
	// Workers is how many claims the provisioner works on at one time.
	Workers int `yaml:"workers" rule:"min=1,max=10000"`
	// AttachWorkers is how many attachments the attacher works on at one time.
	AttachWorkers int `yaml:"attachWorkers" rule:"min=1,max=10000"`
	// QPS and Burst limit the requests of each sidecar.
	QPS   float64 `yaml:"qps" rule:"min=0.1,max=100000"`
	Burst int     `yaml:"burst" rule:"min=1,max=100000"`
}

// Defaults of storage, each with its reason.
const (
	defaultDriver = "csi.kubedyno.io"
	defaultClass  = "simulated"
	// A network block device of a public cloud takes a second or a few for each.
	defaultBackendMedian = time.Second
	defaultBackendP99    = 3 * time.Second
	// A small file system that is there is mounted in this time.
	defaultMountMedian = 200 * time.Millisecond
	// What the device names of a virtual machine were long good for.
	defaultVolumesPerNode = 25
	// The sidecars' own: --worker-threads, --kube-api-qps and --kube-api-burst
	// of external-provisioner and external-attacher.
	defaultProvisionWorkers = 100
	defaultAttachWorkers    = 10
	defaultSidecarQPS       = 5
	defaultSidecarBurst     = 10
)

func (s *Storage) setDefaults() {
	backend := Distribution{Kind: LogNormal, Median: defaultBackendMedian, P99: defaultBackendP99}
	*s = Storage{
		Driver: defaultDriver, Class: defaultClass, Binding: BindingImmediate, Attach: true, VolumesPerNode: defaultVolumesPerNode,
		ProvisionDelay: backend, AttachDelay: backend, MountDelay: Distribution{Kind: LogNormal, Median: defaultMountMedian, P99: defaultDelayP99},
		Replicas: 1, Locks: LockDriver, Workers: defaultProvisionWorkers, AttachWorkers: defaultAttachWorkers, QPS: defaultSidecarQPS, Burst: defaultSidecarBurst,
	}
}

// claimsEach is how many claims that can be waited for one object is.
func (o Objects) claimsEach() int {
	if o.Object.text("apiVersion") == "v1" && o.Object.text("kind") == "PersistentVolumeClaim" {
		return 1
	}
	return 0
}

// claimsOfPods is how many claims come with each pod of an object: kept are those
// of a StatefulSet's templates, which the next pod of that name takes over, and
// own those of ephemeral volumes, which go with their pod.
func (o Objects) claimsOfPods() (kept, own int) {
	k := o.known()
	if o.Object == nil || k.template == nil {
		return 0, 0
	}
	if o.KindName() == "StatefulSet" {
		templates, _ := o.Object.at("spec", "volumeClaimTemplates").([]any)
		kept = len(templates)
	}
	volumes, _ := o.Object.at(append(slices.Clone(k.template), "spec", "volumes")...).([]any)
	for _, v := range volumes {
		if v, _ := v.(map[string]any); Manifest(v).at("ephemeral") != nil {
			own++
		}
	}
	return kept, own
}

// storage checks what no single field of it can tell.
func (c *checker) storage() {
	s := c.e.Cluster.Storage
	if s == nil {
		if _, set := c.e.Cluster.Components["kubedyno-csi"]; set {
			c.fail("cluster.components.kubedyno-csi", "there is no such process: it needs cluster.storage")
		}
		return
	}
	const at = "cluster.storage"
	if c.e.Cluster.Nodes.Real > 0 {
		c.fail("cluster.nodes.real", "a real node has no part of the simulated driver, and its pods would wait for their volumes for ever: leave out real nodes or cluster.storage", at)
	}
	if s.Locks == LockClaim && c.e.Cluster.Existing {
		c.fail(at+".locks", "a provisioner with a lock for each claim does not delete volumes, so that they would stay: leave it out, or run without --kubeconfig", at)
	}
	c.distribution(at+".provisionDelay", s.ProvisionDelay)
	c.distribution(at+".attachDelay", s.AttachDelay)
	c.distribution(at+".mountDelay", s.MountDelay)
}

// awaitedClaims checks a wait for claims that a phase makes.
func (c *checker) awaitedClaims(path string, o *Objects, w *Wait) {
	s := c.e.Cluster.Storage
	switch {
	case w.For != StateCreated && w.For != StateBound:
		c.fail(path+".wait.for", fmt.Sprintf("claims are not %s: wait for bound or created", w.For))
	case w.For == StateBound && s != nil && s.Binding == BindingFirstConsumer && s.takes(o.Object.at("spec", "storageClassName"), c.e.Cluster.Existing):
		c.fail(path+".wait.for", fmt.Sprintf("claims of class %s are not bound before a pod uses them: wait for created, and in a later phase, after the pods, for bound", s.Class),
			"cluster.storage", "cluster.storage.binding", "cluster.storage.class", path+".object")
	}
}

// takes reports whether claims of a class are ours; nil is that of a claim that
// names none.
func (s *Storage) takes(class any, existing bool) bool {
	return class == s.Class || class == nil && !existing
}

func (x *explainer) storage() {
	s := x.e.Cluster.Storage
	if s == nil {
		return
	}
	attached := "attached in " + s.AttachDelay.inWords() + ", "
	if !s.Attach {
		attached = "needs no attaching, "
	}
	x.line("  Storage: the class %s of a simulated driver %s, whose claims are bound %s.", s.Class, s.Driver,
		map[Binding]string{BindingImmediate: "at once", BindingFirstConsumer: "when a pod that uses them has a node"}[s.Binding])
	x.line("  A volume is made in %s, %smounted in %s; a node takes %s.", s.ProvisionDelay.inWords(), attached, s.MountDelay.inWords(), count(s.VolumesPerNode, "volume"))
	workers := count(s.Workers, "provisioner worker")
	if s.Attach {
		workers += " and " + count(s.AttachWorkers, "attacher worker")
	}
	if s.Locks == LockClaim {
		x.line("  Each claim has a lock of its own, for which all replicas of the provisioner compete.")
	}
	x.line("  Its sidecars are %s of kubedyno-csi with %s, each sidecar held to %s with a burst of %d.", count(s.Replicas, "replica"), workers, formatFloat(s.QPS)+" requests/s", s.Burst)
}

// inWords is a distribution in a sentence.
func (d Distribution) inWords() string {
	switch d.Kind {
	case Uniform:
		return formatDuration(d.Min) + " to " + formatDuration(d.Max)
	case LogNormal:
		return fmt.Sprintf("%s (p99 %s)", formatDuration(d.Median), formatDuration(d.P99))
	}
	return formatDuration(d.Value)
}

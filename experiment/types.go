package experiment

import (
	"time"
)

// Struct tags drive the decoder, the checks and the printer:
//
//	yaml:"key"     the key in the file; "-" is not part of the language, and
//	               ",inline" stands for the keys of the embedded struct
//	rule:"a,b=c"   checks, see rules.go
//
// A value that is zero and not required was left out of the file.

// Experiment is one experiment file.
type Experiment struct {
	// Name identifies the experiment in recordings and reports.
	Name        string `yaml:"name" rule:"required,name"`
	Description string `yaml:"description"`
	// Seed fixes every random choice of the run.
	Seed    int64   `yaml:"seed"`
	Cluster Cluster `yaml:"cluster"`
	Observe Observe `yaml:"observe"`
	// Actors are clients that run beside the phases.
	Actors []Actor `yaml:"actors"`
	// Faults are what is put wrong on purpose; package fault knows them by name,
	// and makes changes of this experiment of them before it is run.
	Faults     []Fault     `yaml:"faults"`
	Phases     []Phase     `yaml:"phases" rule:"required"`
	Objectives []Objective `yaml:"objectives"`

	// Variables are what the file declares, with the values that apply. They
	// are filled in while the file is read: nothing refers to them afterwards.
	Variables map[string]string `yaml:"variables" rule:"keys=variable"`
	// Variants and Repetitions are about many runs of the experiment.
	Variants    []Variant `yaml:"variants"`
	Repetitions int       `yaml:"repetitions" rule:"min=1,max=1000"`

	source source  // where each value came from, for messages
	made   []Fault // what Made says
}

// Fault is one thing that is put wrong on purpose, as strong as its intensity or
// its value says; with neither, middle.
type Fault struct {
	Name      string    `yaml:"name" rule:"required,name"`
	Intensity Intensity `yaml:"intensity"`
	// Value is of the fault's own parameter, with the unit that it has.
	Value Literal `yaml:"value"`
}

// Intensity is one of the three strengths that each fault has.
type Intensity string

// The intensities.
const (
	Low    Intensity = "low"
	Middle Intensity = "middle"
	High   Intensity = "high"
)

func (Intensity) values() []string { return Intensities() }

// Intensities lists them, the weakest first.
func Intensities() []string { return []string{string(Low), string(Middle), string(High)} }

// Literal is a number, a duration or a rate, whichever who reads it wants.
type Literal string

// Profile is a named set of component flags.
type Profile string

// The profiles.
const (
	ProfileStock Profile = "stock" // flags as kubeadm sets them
	ProfileTuned Profile = "tuned" // stock, with the known limits lifted
)

func (Profile) values() []string { return []string{string(ProfileStock), string(ProfileTuned)} }

// Cluster is the control plane and its simulated nodes.
type Cluster struct {
	Profile Profile `yaml:"profile"`
	// Nodes says how many there are; a plain number is that of hollow ones.
	Nodes Nodes `yaml:"nodes"`
	Node  Node  `yaml:"node"`
	// Population is what the seeded nodes carry before the run begins.
	Population Population `yaml:"population"`
	// Components holds what differs from the profile, by component name.
	Components map[string]Component `yaml:"components" rule:"keys=component"`
	// CPU is a quota in cores that the control plane's components have together; 0
	// is none.
	CPU float64 `yaml:"cpu" rule:"min=0.05,max=1024"`
	// Proxy has each real node run kube-proxy, and DNS is how many replicas of
	// CoreDNS run in pods, behind a Service. They are for real nodes only.
	Proxy bool `yaml:"proxy"`
	DNS   int  `yaml:"dns" rule:"min=0,max=10"`
	// Storage is a simulated CSI driver; left out, there is none.
	Storage *Storage `yaml:"storage"`

	// Existing says that the control plane is not ours, so that its own nodes
	// may take the pods. The command line sets it, not the file; with it,
	// capacity is not checked.
	Existing bool `yaml:"-"`
}

// Nodes are how many nodes there are of each kind.
type Nodes struct {
	Hollow int `yaml:"hollow" rule:"short,min=0,max=20000"`
	// Real is the number of real ones: containerd and a kubelet in namespaces of
	// their own. They are for labs only.
	Real int `yaml:"real" rule:"min=0,max=10"`
	// Seeded is the number of Node objects that are put into etcd, with nobody
	// behind them: pods are scheduled to them, and never start. For labs only.
	Seeded int `yaml:"seeded" rule:"min=0,max=20000"`
}

// All is how many nodes the experiment brings.
func (n Nodes) All() int { return n.Hollow + n.Real + n.Seeded }

// Identity says as whom hollow nodes speak to the API server.
type Identity string

// The identities of hollow nodes.
const (
	IdentityOwn    Identity = "own"    // each node its own certificate and connection, as real ones
	IdentityPooled Identity = "pooled" // nodes share a few connections: cheaper, and said with the result
)

func (Identity) values() []string { return []string{string(IdentityOwn), string(IdentityPooled)} }

// Traffic says how much hollow nodes say.
type Traffic string

// The traffic of hollow nodes.
const (
	TrafficKubelet Traffic = "kubelet" // what a kubelet says
	TrafficLeast   Traffic = "least"   // one patch for a pod to run, one DELETE for it to go: cheaper, and said with the result
)

func (Traffic) values() []string { return []string{string(TrafficKubelet), string(TrafficLeast)} }

// Node is the shape of each hollow or seeded node, and the behaviour of hollow ones.
type Node struct {
	CPU      Quantity          `yaml:"cpu" rule:"cpu,positive"`
	Memory   Quantity          `yaml:"memory" rule:"memory,positive"`
	Pods     int               `yaml:"pods" rule:"min=1,max=100000"`
	Identity Identity          `yaml:"identity"`
	Traffic  Traffic           `yaml:"traffic"`
	Labels   map[string]string `yaml:"labels" rule:"labels"`
	// Zones go to the nodes in turn, as the label topology.kubernetes.io/zone.
	Zones  []string `yaml:"zones" rule:"zones"`
	Taints []Taint  `yaml:"taints"`
	// StartDelay is from a pod seen by its node to its containers running.
	StartDelay Distribution `yaml:"startDelay"`
	// StopDelay is from a deletion seen by the node to the containers stopped.
	StopDelay Distribution `yaml:"stopDelay"`
	// Starts is how many pods a node starts at one time; 0 is any number.
	Starts int `yaml:"starts" rule:"min=1,max=10000"`
	// Disk is what a start takes of the node's disk, which serves one at a time.
	Disk Distribution `yaml:"disk"`
	// Images are pulled when a pod first needs them.
	Images Images `yaml:"images"`
	// Network is what the network plugin takes for a pod's sandbox.
	Network Network `yaml:"network"`
}

// Images say how they come to a node; without Pull all are there.
type Images struct {
	Pull     Distribution `yaml:"pull" rule:"short"`
	Parallel int          `yaml:"parallel" rule:"min=1,max=1000"` // pulls at one time
}

// IPAM says where a network plugin takes addresses.
type IPAM string

// IPAMBlocks are objects at the API server, one for each node, that the plugin
// reads and writes back for each pod.
const IPAMBlocks IPAM = "blocks"

func (IPAM) values() []string { return []string{string(IPAMBlocks)} }

// Network is a model of a network plugin.
type Network struct {
	Delay Distribution `yaml:"delay" rule:"short"`
	// Serial lets the plugin work for one pod of a node at a time.
	Serial bool `yaml:"serial"`
	// IPAM says where it takes addresses; left out, they are there.
	IPAM IPAM `yaml:"ipam"`
}

// Component is what an experiment changes about one process.
type Component struct {
	// Args maps flag names, without dashes, to values; nil takes the flag off.
	Args map[string]*string `yaml:"args" rule:"keys=flag"`
	Env  map[string]string  `yaml:"env" rule:"keys=env"`
	// Binary replaces the component's executable.
	Binary string `yaml:"binary"`
	// CPU is a quota in cores; 0 is none.
	CPU float64 `yaml:"cpu" rule:"min=0.01,max=1024"`
	// Config is the scheduler's KubeSchedulerConfiguration, without how it reaches
	// the API server.
	Config Manifest `yaml:"config"`
	// Off leaves the component out of the lab.
	Off bool `yaml:"off"`
	// SyncDelay is how much longer each fsync and fdatasync takes.
	SyncDelay time.Duration `yaml:"syncDelay" rule:"min=100us,max=10s"`
	// Latency is how much longer what is asked of etcd and its answer take on
	// their way; of the controller manager and the scheduler, what they ask of the
	// API server.
	Latency time.Duration `yaml:"latency" rule:"min=100us,max=10s"`
	// Files is how many files it may have open; 0 leaves the limit alone.
	Files int `yaml:"files" rule:"min=16,max=1000000"`
}

// Level says how closely a run is watched: what each level brings, and what it
// costs, stands in docs/collectors.md.
type Level string

// The levels.
const (
	LevelMinimal Level = "minimal" // pods and processes: enough for rates and latencies
	LevelDefault Level = "default" // every source that costs almost nothing
	LevelFull    Level = "full"    // also what costs something: see docs/collectors.md
)

func (Level) values() []string {
	return []string{string(LevelMinimal), string(LevelDefault), string(LevelFull)}
}

// Observe says how closely the run is watched.
type Observe struct {
	Level Level `yaml:"level"`
	// Interval between scrapes of metrics; 0 lets the run choose (5 s, and
	// 1 s where a phase is short).
	Interval time.Duration `yaml:"interval" rule:"min=100ms,max=1m"`
	// Profile takes CPU profiles of every component in each steady phase.
	Profile bool `yaml:"profile"`
	// Apps are processes of the user's own that are watched like components.
	Apps []App `yaml:"apps"`
}

// App is a process of the user's own, a controller say, that serves metrics or
// profiles, or that runs on this machine.
type App struct {
	Name string `yaml:"name" rule:"name,required"` // as all tables call it
	// URL is where it serves /metrics and /debug/pprof: http://127.0.0.1:8080.
	URL string `yaml:"url" rule:"url"`
	// PID is its process, where it runs on this machine; 0 is none.
	PID int `yaml:"pid" rule:"min=1,max=4194304"`
	// Log is the file that it logs to.
	Log string `yaml:"log"`
}

// ActorKind is what an actor does.
type ActorKind string

// The kinds of actor; load/actor performs them.
const (
	ActAddonHook     ActorKind = "addon-hook"      // the real kubectl, when a folder of add-ons changes
	ActAddonManager  ActorKind = "addon-manager"   // the real kubectl with that folder, by the clock
	ActAddonUser     ActorKind = "addon-user"      // puts add-ons into it
	ActApplyOnChange ActorKind = "apply-on-change" // the real kubectl, when something changed
	ActConnections   ActorKind = "connections"     // a connection for each request
	ActController    ActorKind = "controller"      // an informer on pods, and a patch for each
	ActConverter     ActorKind = "converter"       // convert a custom resource that it reads
	ActDiskWriter    ActorKind = "disk-writer"     // write to the machine's disk
	ActElectors      ActorKind = "electors"        // compete for leases
	ActEvents        ActorKind = "events"          // create Events
	ActHeartbeats    ActorKind = "heartbeats"      // renew leases
	ActInstaller     ActorKind = "installer"       // make and change CustomResourceDefinitions
	ActKubectlApply  ActorKind = "kubectl-apply"   // the real kubectl, again and again
	ActLister        ActorKind = "lister"          // lists again and again
	ActLockers       ActorKind = "lockers"         // compete for a lock for each claim
	ActOwner         ActorKind = "owner"           // put its name on objects where another's is
	ActRelister      ActorKind = "relister"        // watch everything from the beginning, again and again
	ActScraper       ActorKind = "scraper"         // read the API server's metrics
	ActWatchers      ActorKind = "watchers"        // hold watches
	ActWebhook       ActorKind = "webhook"         // judge each pod that is made
	ActWriters       ActorKind = "writers"         // write to the same objects
)

func (ActorKind) values() []string {
	return []string{
		string(ActAddonHook), string(ActAddonManager), string(ActAddonUser),
		string(ActApplyOnChange), string(ActConnections), string(ActController), string(ActConverter), string(ActDiskWriter), string(ActElectors), string(ActEvents), string(ActHeartbeats),
		string(ActInstaller), string(ActKubectlApply), string(ActLister), string(ActLockers), string(ActOwner), string(ActRelister),
		string(ActScraper), string(ActWatchers), string(ActWebhook), string(ActWriters),
	}
}

// Actor is a client that runs beside the phases, in a process and with a user
// of its own: what users have in their clusters besides workloads. A number that
// is left out is the kind's own.
type Actor struct {
	Name string    `yaml:"name" rule:"required,name"` // its user agent, and its name in all tables
	Do   ActorKind `yaml:"do" rule:"required"`
	// Rate is how many actions a second are due, of all its clients together.
	Rate Rate `yaml:"rate"`
	// Count is how many clients, workers or candidates there are.
	Count int `yaml:"count" rule:"min=1,max=10000"`
	// Objects is how many objects it is about.
	Objects int `yaml:"objects" rule:"min=1,max=100000"`
	// Bytes is how large each of them is made, beside what it is.
	Bytes int `yaml:"bytes" rule:"min=1,max=1000000"`
	// Resource is what is read: pods, deployments.apps.
	Resource string `yaml:"resource" rule:"resource"`
	// Stale reads from the API server's cache.
	Stale bool `yaml:"stale"`
	// QPS and Burst are client-go's own limiter.
	QPS   float64 `yaml:"qps" rule:"min=0.01,max=100000"`
	Burst int     `yaml:"burst" rule:"min=1,max=100000"`
	// Delay is how long an answer takes.
	Delay time.Duration `yaml:"delay" rule:"min=0s,max=30s"`
	// Refuse is how many of a hundred it refuses.
	Refuse float64 `yaml:"refuse" rule:"min=0,max=100"`
	// During names the phases in which it runs; left out, it does from the first
	// to the last.
	During []string `yaml:"during"`
}

// PhaseKind is the role of a phase in the measurement. Its values are those
// of record.PhaseKind.
type PhaseKind string

// The kinds of phase.
const (
	KindStart  PhaseKind = "start"
	KindWarmUp PhaseKind = "warm-up"
	KindSettle PhaseKind = "settle"
	KindSteady PhaseKind = "steady"
	KindDrain  PhaseKind = "drain"
)

func (PhaseKind) values() []string {
	return []string{string(KindStart), string(KindWarmUp), string(KindSettle), string(KindSteady), string(KindDrain)}
}

// Phase is one stretch of the run. Exactly one of its actions is set.
type Phase struct {
	// Name is unique in the experiment; an unnamed phase is called by its
	// action, with a number where that is taken.
	Name string `yaml:"name" rule:"name"`
	// Kind defaults by action: create and scale are steady, settle is settle,
	// delete is drain, and wait continues the load before it.
	Kind PhaseKind `yaml:"kind"`

	Create *Create `yaml:"create"`
	Apply  *Apply  `yaml:"apply"`
	Scale  *Scale  `yaml:"scale"`
	Patch  *Patch  `yaml:"patch"`
	Update *Update `yaml:"update"`
	Churn  *Churn  `yaml:"churn"`
	Read   *Read   `yaml:"read"`
	Delete *Delete `yaml:"delete"`
	Wait   *Wait   `yaml:"wait"`
	Settle *Settle `yaml:"settle"`
	// Beside, in a parallel group, ends the phase when the others are over; its
	// count or cycles are then the most that there can be.
	Beside bool `yaml:"beside"`
	// Parallel holds phases that begin together; each is recorded as one.
	Parallel []Phase `yaml:"parallel"`
}

// ObjectKind is a kind of object that has a short form.
type ObjectKind string

// The kinds of object with a short form; any other is written as a manifest.
const (
	Pod        ObjectKind = "Pod"
	Deployment ObjectKind = "Deployment"
)

func (ObjectKind) values() []string { return []string{string(Pod), string(Deployment)} }

// Objects are what a phase makes: Count of a short form or of a manifest.
type Objects struct {
	Kind ObjectKind `yaml:"kind"`
	// Object is the manifest of each object, of any kind, in place of Kind.
	Object Manifest `yaml:"object"`
	// Template is a file beside the experiment that holds the manifest. Reading
	// the experiment puts it into Object, so that what is kept stands alone.
	Template string `yaml:"template"`
	Count    int    `yaml:"count" rule:"min=1,max=1000000"`
	// Replicas of each Deployment in the short form.
	Replicas int `yaml:"replicas" rule:"min=1,max=1000000"`
	// ObjectName is the pattern of object names; a manifest may have its own.
	ObjectName string `yaml:"objectName" rule:"template"`
	// Namespace of a lab that the objects go to in place of the run's own, which
	// is made where it is not there.
	Namespace string `yaml:"namespace" rule:"name"`
	// Namespaces is how many there are, Namespace-0 and on, to which the objects
	// go in turn.
	Namespaces int       `yaml:"namespaces" rule:"min=1,max=10000"`
	Pod        *PodShape `yaml:"pod"`
}

// Pacing says when the operations of a phase are sent: at due times that are
// fixed in advance, or, closed, by clients that each wait for their answers.
type Pacing struct {
	// Rate may be left out for a single operation only.
	Rate Rate `yaml:"rate"`
	// Clients makes the loop closed: so many send, each one at a time.
	Clients int `yaml:"clients" rule:"min=1,max=5000"`
	// Think is how long each client rests after an answer.
	Think time.Duration `yaml:"think" rule:"min=0s,max=1h"`
	// SendWithin is how late an operation may be sent; later it is given up
	// and counted as missed.
	SendWithin time.Duration `yaml:"sendWithin" rule:"min=1ms,max=1h"`
	// InFlight is how many operations may be unanswered at one time; what comes
	// due beyond it waits, for SendWithin at most.
	InFlight int `yaml:"inFlight" rule:"min=1,max=20000"`
}

// Create makes objects.
type Create struct {
	Objects `yaml:",inline"`
	Pacing  `yaml:",inline"`
	// Wait makes the wait for the pods part of the phase.
	Wait *Wait `yaml:"wait"`
}

// Apply makes objects by server-side apply, or applies again what a phase made.
type Apply struct {
	// Phase names the phase whose objects are applied again; then Count is the
	// number of operations, which go round the objects.
	Phase   string `yaml:"phase"`
	Objects `yaml:",inline"`
	Pacing  `yaml:",inline"`
	Wait    *Wait `yaml:"wait"`
}

// PodShape is what the pods of a phase look like.
type PodShape struct {
	Containers int               `yaml:"containers" rule:"min=1,max=100"`
	Image      string            `yaml:"image" rule:"image"`
	CPU        Quantity          `yaml:"cpu" rule:"cpu"`       // request of each container
	Memory     Quantity          `yaml:"memory" rule:"memory"` // request of each container
	Labels     map[string]string `yaml:"labels" rule:"labels,templates"`
	// Token mounts a service account token, as pods do by default.
	Token bool `yaml:"token"`
}

// Scale sets the replicas of the workloads that a phase made.
type Scale struct {
	Phase    string `yaml:"phase" rule:"required"`
	Replicas int    `yaml:"replicas" rule:"required,min=0,max=1000000"`
	Pacing   `yaml:",inline"`
	Wait     *Wait `yaml:"wait"`
}

// PatchType is how a patch is merged.
type PatchType string

// The types of patch.
const (
	MergePatch     PatchType = "merge"     // RFC 7386: for any kind
	StrategicPatch PatchType = "strategic" // lists merge by key: for built-in kinds
)

func (PatchType) values() []string { return []string{string(MergePatch), string(StrategicPatch)} }

// Patch changes the objects that a phase made, other than the number or shape
// of their pods.
type Patch struct {
	Phase string    `yaml:"phase" rule:"required"`
	Type  PatchType `yaml:"type"`
	// Patch is what changes, as in the manifest; null takes a field away.
	Patch Manifest `yaml:"patch" rule:"required"`
	// Count is the number of operations, which go round the objects; left out,
	// each object is patched once.
	Count  int `yaml:"count" rule:"min=1,max=1000000"`
	Pacing `yaml:",inline"`
}

// Update gives the workloads that a phase made a new pod template, so that
// their controllers replace all pods.
type Update struct {
	Phase string `yaml:"phase" rule:"required"`
	// Pods is what changes in the pod template, merged strategically. Left out,
	// only an annotation does, as in a restart.
	Pods   Manifest `yaml:"pods"`
	Pacing `yaml:",inline"`
	Wait   *Wait `yaml:"wait"`
}

// Churn deletes objects that a phase made, the oldest first, and makes new
// ones in their place. Replacing one object takes two operations.
type Churn struct {
	Phase string `yaml:"phase" rule:"required"`
	// Percent of the objects are deleted, and then made anew, in each cycle.
	// Left out, a cycle is one object.
	Percent float64 `yaml:"percent" rule:"min=0.01,max=100"`
	// Cycles or For says how long it goes on.
	Cycles int           `yaml:"cycles" rule:"min=1,max=1000000"`
	For    time.Duration `yaml:"for" rule:"min=100ms,max=24h"`
	// Every is from the start of one cycle to that of the next; left out, they
	// follow each other.
	Every  time.Duration `yaml:"every" rule:"min=10ms,max=24h"`
	Pacing `yaml:",inline"`
	Wait   *Wait `yaml:"wait"`
}

// Read sends requests that change nothing.
type Read struct {
	// Mix is what is read, each kind of request with its share.
	Mix []Request `yaml:"mix" rule:"required"`
	// Count or For says how long it goes on.
	Count  int           `yaml:"count" rule:"min=1,max=10000000"`
	For    time.Duration `yaml:"for" rule:"min=100ms,max=24h"`
	Pacing `yaml:",inline"`
}

// RequestKind is a way to read.
type RequestKind string

// The ways to read.
const (
	StaleList  RequestKind = "stale-list"  // any version, from the API server's cache
	QuorumList RequestKind = "quorum-list" // the newest version
	PagedList  RequestKind = "paged-list"  // the newest, in pages of Limit
	StaleGet   RequestKind = "stale-get"   // one object of a phase, any version
	QuorumGet  RequestKind = "quorum-get"  // one object of a phase, the newest version
	WatchOpen  RequestKind = "watch"       // a watch from now on, held for a while
	WatchList  RequestKind = "watch-list"  // a watch that begins with all objects
)

func (RequestKind) values() []string {
	return []string{string(StaleList), string(QuorumList), string(PagedList), string(StaleGet), string(QuorumGet), string(WatchOpen), string(WatchList)}
}

// Request is one kind of request of a mix.
type Request struct {
	Kind RequestKind `yaml:"kind" rule:"required"`
	// Shares of this kind among all of the mix.
	Shares int `yaml:"shares" rule:"min=1,max=1000000"`
	// Resource is what is read: pods, deployments.apps or widgets.example.com/v1.
	Resource string `yaml:"resource" rule:"resource"`
	// Phase made the objects that a get is about.
	Phase string `yaml:"phase"`
	// Namespace is the run's own, or all.
	Namespace Reach `yaml:"namespace"`
	// Selector is a label selector of lists and watches.
	Selector string `yaml:"selector"`
	// Limit is the size of a page.
	Limit int `yaml:"limit" rule:"min=1,max=1000000"`
	// For is how long a watch is held.
	For time.Duration `yaml:"for" rule:"min=1ms,max=1h"`
}

// Reach is which namespaces a request is about.
type Reach string

// The reaches.
const (
	ReachRun Reach = "run"
	ReachAll Reach = "all"
)

func (Reach) values() []string { return []string{string(ReachRun), string(ReachAll)} }

// Delete removes the objects that a phase made.
type Delete struct {
	Phase  string `yaml:"phase" rule:"required"`
	Pacing `yaml:",inline"`
	Wait   *Wait `yaml:"wait"`
}

// State is what a wait waits for.
type State string

// The states of pods and claims that can be waited for.
const (
	StateCreated   State = "created"
	StateScheduled State = "scheduled" // pods
	StateRunning   State = "running"   // pods
	StateReady     State = "ready"     // pods
	StateBound     State = "bound"     // claims
	StateGone      State = "gone"
)

func (State) values() []string {
	return []string{string(StateCreated), string(StateScheduled), string(StateRunning), string(StateReady), string(StateBound), string(StateGone)}
}

// Wait lasts until pods are in a state, or claims where the action makes those:
// those of the action that it belongs to, or, in a wait that stands alone, all
// pods that were asked for so far and not deleted, and of bound all claims. See
// Plan for what belongs together.
type Wait struct {
	For State `yaml:"for" rule:"required,short"`
	// Timeout counts from the moment the last operation was sent.
	Timeout time.Duration `yaml:"timeout" rule:"min=1s,max=24h"`
	// Stall ends the wait when no pod, or no claim, made progress for this long.
	Stall time.Duration `yaml:"stall" rule:"min=1s,max=24h"`
}

// Settle does nothing for a while, so that an idle window is observed.
type Settle struct {
	For time.Duration `yaml:"for" rule:"required,short,min=100ms,max=24h"`
	// Paused freezes the control plane meanwhile. For labs only.
	Paused bool `yaml:"paused"`
}

// Indicator is what an objective judges.
type Indicator string

// The indicators; docs/experiments.md has their definitions.
const (
	PodStartup    Indicator = "pod-startup"    // seconds, at a quantile
	IntentLatency Indicator = "intent-latency" // seconds, at a quantile of the pods; 1 is the last pod
	Throughput    Indicator = "throughput"     // bindings per second, time-weighted mean, at least
	ClaimBound    Indicator = "claim-bound"    // seconds, at a quantile of the claims; 1 is the last claim
	ClaimFailures Indicator = "claim-failures" // operations that failed and warnings about claims, at most
)

func (Indicator) values() []string {
	return []string{string(PodStartup), string(IntentLatency), string(Throughput), string(ClaimBound), string(ClaimFailures)}
}

// Objective is a limit that the run should keep.
type Objective struct {
	Name      string    `yaml:"name" rule:"name"` // defaults to the indicator
	Indicator Indicator `yaml:"indicator" rule:"required"`
	Quantile  float64   `yaml:"quantile" rule:"min=0,max=1"`
	// Limit is the longest duration of a latency, the lowest rate of a
	// throughput, the largest number of failures.
	Limit Limit `yaml:"limit" rule:"required"`
}

// Limit is a duration, a rate or a number.
type Limit struct {
	Value float64 // seconds, per second, or how many
	Unit  string  // s, 1/s or 1, as in record.Objective
}

// Rate says how fast operations come due. The zero Rate was left out and
// means all at once, which only a single operation may be.
type Rate struct {
	PerSecond float64       // constant, where a ramp ends, the mean of Poisson
	From      float64       // where a ramp starts
	Over      time.Duration // how long a ramp takes; 0: no ramp
	Burst     bool          // all at once
	Poisson   bool          // arrivals that know nothing of each other
	Steps     []RateStep    // one rate after another; the last goes on
}

// RateStep is a rate that holds for a while.
type RateStep struct {
	PerSecond float64
	For       time.Duration
}

// Variant is a named set of changes to the experiment.
type Variant struct {
	Name string `yaml:"name" rule:"required,name"`
	// Set maps paths to values, as --set has them.
	Set map[string]string `yaml:"set" rule:"required"`
}

// DistributionKind names a family of delays.
type DistributionKind string

// The families.
const (
	Constant  DistributionKind = "constant"
	Uniform   DistributionKind = "uniform"
	LogNormal DistributionKind = "lognormal"
)

func (DistributionKind) values() []string {
	return []string{string(Constant), string(Uniform), string(LogNormal)}
}

// Distribution describes random delays. A plain duration in the file is a
// constant one.
type Distribution struct {
	Kind   DistributionKind `yaml:"distribution" rule:"required"`
	Value  time.Duration    `yaml:"value" rule:"short,min=0s,max=1h"` // constant
	Min    time.Duration    `yaml:"min" rule:"min=0s,max=1h"`         // uniform
	Max    time.Duration    `yaml:"max" rule:"min=0s,max=1h"`         // uniform
	Median time.Duration    `yaml:"median" rule:"min=0s,max=1h"`      // lognormal
	P99    time.Duration    `yaml:"p99" rule:"min=0s,max=1h"`         // lognormal
}

// Quantity is a Kubernetes quantity such as 500m, 16 or 64Gi.
type Quantity string

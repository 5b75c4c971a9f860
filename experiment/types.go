package experiment

import (
	"time"
)

// Struct tags drive the decoder, the checks and the printer:
//
//	yaml:"key"     the key in the file; "-" is not part of the language
//	rule:"a,b=c"   checks, see rules.go
//
// A value that is zero and not required was left out of the file.

// Experiment is one experiment file.
type Experiment struct {
	// Name identifies the experiment in recordings and reports.
	Name        string `yaml:"name" rule:"required,name"`
	Description string `yaml:"description"`
	// Seed fixes every random choice of the run.
	Seed       int64       `yaml:"seed"`
	Cluster    Cluster     `yaml:"cluster"`
	Observe    Observe     `yaml:"observe"`
	Phases     []Phase     `yaml:"phases" rule:"required"`
	Objectives []Objective `yaml:"objectives"`

	source source // where each value came from, for messages
}

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
	// Nodes is the number of hollow nodes.
	Nodes int  `yaml:"nodes" rule:"min=0,max=20000"`
	Node  Node `yaml:"node"`
	// Components holds what differs from the profile, by component name.
	Components map[string]Component `yaml:"components" rule:"keys=component"`

	// Existing says that the control plane is not ours, so that its own nodes
	// may take the pods. The command line sets it, not the file; with it,
	// capacity is not checked.
	Existing bool `yaml:"-"`
}

// Identity says as whom hollow nodes speak to the API server.
type Identity string

// The identities of hollow nodes.
const (
	IdentityOwn    Identity = "own"    // each node its own certificate and connection, as real ones
	IdentityPooled Identity = "pooled" // nodes share a few connections: cheaper, and said with the result
)

func (Identity) values() []string { return []string{string(IdentityOwn), string(IdentityPooled)} }

// Node is the shape and behaviour of each hollow node.
type Node struct {
	CPU      Quantity          `yaml:"cpu" rule:"cpu,positive"`
	Memory   Quantity          `yaml:"memory" rule:"memory,positive"`
	Pods     int               `yaml:"pods" rule:"min=1,max=100000"`
	Identity Identity          `yaml:"identity"`
	Labels   map[string]string `yaml:"labels" rule:"labels"`
	// StartDelay is from a pod seen by its node to its containers running.
	StartDelay Distribution `yaml:"startDelay"`
	// StopDelay is from a deletion seen by the node to the containers stopped.
	StopDelay Distribution `yaml:"stopDelay"`
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
	Scale  *Scale  `yaml:"scale"`
	Delete *Delete `yaml:"delete"`
	Wait   *Wait   `yaml:"wait"`
	Settle *Settle `yaml:"settle"`
}

// ObjectKind is the kind of object that a phase creates.
type ObjectKind string

// The kinds of object.
const (
	Pod        ObjectKind = "Pod"
	Deployment ObjectKind = "Deployment"
)

func (ObjectKind) values() []string { return []string{string(Pod), string(Deployment)} }

// Create makes Count objects at Rate, each due at a time fixed in advance.
type Create struct {
	Kind  ObjectKind `yaml:"kind" rule:"required"`
	Count int        `yaml:"count" rule:"required,min=1,max=1000000"`
	// Replicas of each Deployment.
	Replicas int `yaml:"replicas" rule:"min=1,max=1000000"`
	// Rate may be left out for a single object only.
	Rate Rate `yaml:"rate"`
	// ObjectName is the pattern of object names.
	ObjectName string   `yaml:"objectName" rule:"template"`
	Pod        PodShape `yaml:"pod"`
	// SendWithin is how late an operation may be sent; later it is given up
	// and counted as missed.
	SendWithin time.Duration `yaml:"sendWithin" rule:"min=1ms,max=1h"`
	// Wait makes the wait for the pods part of the phase.
	Wait *Wait `yaml:"wait"`
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

// Scale sets the replicas of the Deployments that a phase created.
type Scale struct {
	Phase      string        `yaml:"phase" rule:"required"`
	Replicas   int           `yaml:"replicas" rule:"required,min=0,max=1000000"`
	Rate       Rate          `yaml:"rate"`
	SendWithin time.Duration `yaml:"sendWithin" rule:"min=1ms,max=1h"`
	Wait       *Wait         `yaml:"wait"`
}

// Delete removes the objects that a phase created.
type Delete struct {
	Phase      string        `yaml:"phase" rule:"required"`
	Rate       Rate          `yaml:"rate"`
	SendWithin time.Duration `yaml:"sendWithin" rule:"min=1ms,max=1h"`
	Wait       *Wait         `yaml:"wait"`
}

// State is what a wait waits for.
type State string

// The states of pods that can be waited for.
const (
	StateCreated   State = "created"
	StateScheduled State = "scheduled"
	StateRunning   State = "running"
	StateReady     State = "ready"
	StateGone      State = "gone"
)

func (State) values() []string {
	return []string{string(StateCreated), string(StateScheduled), string(StateRunning), string(StateReady), string(StateGone)}
}

// Wait lasts until pods are in a state: those of the action that it belongs to,
// or, in a wait that stands alone, all that were asked for so far and not
// deleted. See Plan for what belongs together.
type Wait struct {
	For State `yaml:"for" rule:"required,short"`
	// Timeout counts from the moment the last operation was sent.
	Timeout time.Duration `yaml:"timeout" rule:"min=1s,max=24h"`
	// Stall ends the wait when no pod made progress for this long.
	Stall time.Duration `yaml:"stall" rule:"min=1s,max=24h"`
}

// Settle does nothing for a while, so that an idle window is observed.
type Settle struct {
	For time.Duration `yaml:"for" rule:"required,short,min=100ms,max=24h"`
}

// Indicator is what an objective judges.
type Indicator string

// The indicators; docs/experiments.md has their definitions.
const (
	PodStartup    Indicator = "pod-startup"    // seconds, at a quantile
	IntentLatency Indicator = "intent-latency" // seconds, at a quantile of the pods; 1 is the last pod
	Throughput    Indicator = "throughput"     // bindings per second, time-weighted mean, at least
)

func (Indicator) values() []string {
	return []string{string(PodStartup), string(IntentLatency), string(Throughput)}
}

// Objective is a limit that the run should keep.
type Objective struct {
	Name      string    `yaml:"name" rule:"name"` // defaults to the indicator
	Indicator Indicator `yaml:"indicator" rule:"required"`
	Quantile  float64   `yaml:"quantile" rule:"min=0,max=1"`
	// Limit is the longest duration of a latency, the lowest rate of a throughput.
	Limit Limit `yaml:"limit" rule:"required"`
}

// Limit is a duration or a rate.
type Limit struct {
	Value float64 // seconds or per second
	Unit  string  // s or 1/s, as in record.Objective
}

// Rate says how fast operations come due. The zero Rate was left out and
// means all at once, which only a single operation may be.
type Rate struct {
	PerSecond float64       // constant, or where a ramp ends
	From      float64       // where a ramp starts
	Over      time.Duration // how long a ramp takes; 0: no ramp
	Burst     bool          // all at once
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

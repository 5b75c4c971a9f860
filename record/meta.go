package record

import (
	"time"
)

// Schema is the version of the recording format that this package writes.
// Readers accept every schema up to their own.
const Schema = 1

// Status says how a recording ended.
type Status string

// The states of a recording. Only a complete one may be valid.
const (
	StatusRunning     Status = "running"     // being written, or its writer was killed
	StatusComplete    Status = "complete"    // the experiment ran to its end
	StatusInterrupted Status = "interrupted" // ended early on request
	StatusFailed      Status = "failed"      // ended early by an error
	StatusIncomplete  Status = "incomplete"  // the writer died; finished on opening
)

// Meta is what recording.json holds: everything about a run that is not a
// table, a series, a profile or a log.
type Meta struct {
	Schema     int        `json:"schema"`
	ID         string     `json:"id"`   // unique, sortable by start: 20260102T150405Z-ab12cd
	Name       string     `json:"name"` // the experiment's name
	Tool       string     `json:"tool"` // version of kubedyno that wrote it
	Started    time.Time  `json:"started"`
	Ended      time.Time  `json:"ended,omitzero"` // of the last observation where the writer died
	Status     Status     `json:"status"`
	EndReason  string     `json:"endReason,omitempty"` // why it ended early, for people
	Invalid    []string   `json:"invalid,omitempty"`   // reasons known while recording; diagnosis may add more
	Warnings   []string   `json:"warnings,omitempty"`
	Cluster    Cluster    `json:"cluster"`
	Machine    Machine    `json:"machine"`
	Workload   Workload   `json:"workload"`
	Nodes      Nodes      `json:"nodes"`
	Phases     []Phase    `json:"phases"`
	Pauses     []Pause    `json:"pauses,omitempty"` // of phases in which the control plane was frozen
	Collectors []Observer `json:"collectors"`       // what watched, what it cost
	Gaps       []Gap      `json:"gaps,omitempty"`
	Access     []Access   `json:"access,omitempty"`
	LeftOut    []string   `json:"leftOut,omitempty"` // what the simulation does not do
	// Settings are the --set values of the run, verbatim: what distinguishes
	// it from the experiment file.
	Settings []string `json:"settings,omitempty"`
	// KeptMetrics are the only metrics in the recording, where it is a copy
	// without the others.
	KeptMetrics []string `json:"keptMetrics,omitempty"`
	// Parent is the ID of the recording whose finding this run tries out.
	Parent string `json:"parent,omitempty"`
}

// Cluster is the control plane as it was configured.
type Cluster struct {
	Kind    string `json:"kind"` // lab or existing
	Name    string `json:"name,omitempty"`
	Server  string `json:"server"` // URL
	Version string `json:"version"`
	Profile string `json:"profile,omitempty"`
	// APIReadySeconds is from the start of etcd to the first good /readyz; 0
	// where the cluster was already there.
	APIReadySeconds float64 `json:"apiReadySeconds,omitempty"`
	// CPU is a quota in cores that the components have together; 0 = none.
	CPU        float64     `json:"cpu,omitempty"`
	Components []Component `json:"components"`
}

// Component is one process of the control plane or of the harness.
type Component struct {
	Name     string            `json:"name"` // kube-apiserver, etcd, kubedyno-load, …
	Instance string            `json:"instance"`
	PID      int               `json:"pid,omitempty"`
	Version  string            `json:"version,omitempty"`
	Binary   string            `json:"binary,omitempty"` // base name only, so that no machine path travels
	Args     []string          `json:"args,omitempty"`
	Env      []string          `json:"env,omitempty"` // names only: values may be secrets
	CPU      float64           `json:"cpu,omitempty"` // quota in cores; 0 = none
	Flags    map[string]string `json:"flags,omitempty"`
	Harness  bool              `json:"harness,omitempty"` // belongs to us, not to the system under test
}

// Machine is the fingerprint of where the run happened.
type Machine struct {
	CPUs        int     `json:"cpus"`
	Model       string  `json:"model,omitempty"`
	MemoryBytes int64   `json:"memoryBytes"`
	Kernel      string  `json:"kernel"`
	OS          string  `json:"os,omitempty"`
	Virtual     string  `json:"virtual,omitempty"` // hypervisor where one shows
	Cgroup      string  `json:"cgroup,omitempty"`  // v1, v2, hybrid
	Disk        string  `json:"disk,omitempty"`    // file system of etcd's data
	GoMaxProcs  int     `json:"goMaxProcs"`
	LoadAverage float64 `json:"loadAverage"` // 1 minute, before the run
}

// Observed reports whether the recording tells of a cluster at its own work:
// nothing was loaded.
func (m *Meta) Observed() bool { return m.Workload.Experiment == "" && m.Workload.ExpectedPods == 0 }

// Workload is what the experiment offers, in numbers that a reader of the
// recording needs without parsing the experiment.
type Workload struct {
	Experiment   string  `json:"experiment"`            // file inside the recording; empty where nothing was loaded
	ExpectedPods int     `json:"expectedPods"`          // in the measured phases
	Controller   string  `json:"controller,omitempty"`  // Deployment; empty for bare pods
	OfferedRate  float64 `json:"offeredRate,omitempty"` // pods/s of bare pods; 0 = all at once
	// ExpectedClaims is how many persistent volume claims the measured phases make.
	ExpectedClaims int         `json:"expectedClaims,omitempty"`
	Seed           int64       `json:"seed"`
	Objectives     []Objective `json:"objectives,omitempty"`
	// Shape stands for the load and its nodes, whatever flags the components
	// had: runs of one shape may be compared.
	Shape string `json:"shape,omitempty"`
}

// Objective is a declared limit on an indicator and whether the run kept it.
type Objective struct {
	Name      string  `json:"name"`
	Indicator string  `json:"indicator"`
	Quantile  float64 `json:"quantile,omitempty"`
	Limit     float64 `json:"limit"` // seconds, 1/s or a number, as Unit says
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"`
	N         int     `json:"n"`
	Met       bool    `json:"met"`
	Assessed  bool    `json:"assessed"` // false: not enough samples; never counts as met
	Reason    string  `json:"reason,omitempty"`
}

// Nodes tells how the simulated nodes came up. Times are seconds since the
// first node was created.
type Nodes struct {
	Count              int     `json:"count"`
	Real               int     `json:"real,omitempty"`        // of these, real ones beside simulated ones
	Seeded             int     `json:"seeded,omitempty"`      // of these, objects in etcd with nobody behind them
	SeededPods         int     `json:"seededPods,omitempty"`  // bound to them before the run began
	SeedSeconds        float64 `json:"seedSeconds,omitempty"` // that it took to write both
	Identity           string  `json:"identity,omitempty"`    // own, pooled, impersonated
	Simulated          bool    `json:"simulated"`
	ReadySeconds       float64 `json:"readySeconds,omitempty"`       // last node reported Ready
	SchedulableSeconds float64 `json:"schedulableSeconds,omitempty"` // last not-ready taint gone
	// ServiceSeconds is how long after the control plane began to start the cluster's
	// name service answered through its Service; 0 where there is none.
	ServiceSeconds float64 `json:"serviceSeconds,omitempty"`
	// Fidelity is what a simulated node's pods cost beside a real one's, in words.
	Fidelity string `json:"fidelity,omitempty"`
	// What the simulation declares that a pod takes to start, seconds.
	StartDelayMedian float64 `json:"startDelayMedian,omitempty"`
	StartDelayP99    float64 `json:"startDelayP99,omitempty"`
}

// Arrived is when a pod's way was over, 0 for never: when it was seen running,
// and on seeded nodes, where nobody starts pods, when it was seen bound.
func (n Nodes) Arrived(p Pod) int64 {
	if n.Seeded > 0 {
		return p.BoundMicros
	}
	return p.RunningMicros
}

// PhaseKind is the role of a phase in the measurement.
type PhaseKind string

// The kinds of phase. Detectors judge steady phases, and the warm-up in which a run
// ended before it had one.
const (
	PhaseStart  PhaseKind = "start" // cluster and nodes coming up
	PhaseWarmUp PhaseKind = "warm-up"
	PhaseSettle PhaseKind = "settle" // idle, before or after load
	PhaseSteady PhaseKind = "steady" // the measured load
	PhaseDrain  PhaseKind = "drain"  // deletion
)

// Phase is a stretch of the run.
type Phase struct {
	Name  string    `json:"name"`
	Kind  PhaseKind `json:"kind"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Window is the phase's extent.
func (p Phase) Window() Window { return Window{p.Start, p.End} }

// Pause is a stretch in which the control plane was frozen, and what became
// meanwhile of an application, the cluster's name service, that was asked through
// its Service.
type Pause struct {
	Phase         string  `json:"phase"`
	FreezeSeconds float64 `json:"freezeSeconds"` // that it took
	ThawSeconds   float64 `json:"thawSeconds"`   // to go on again
	Asked         int     `json:"asked"`
	Answered      int     `json:"answered"`
	WorstSeconds  float64 `json:"worstSeconds"` // of the answers
}

// Observer is one collector's own account.
type Observer struct {
	Name            string  `json:"name"`
	IntervalSeconds float64 `json:"intervalSeconds,omitempty"`
	Samples         int64   `json:"samples"`
	CPUSeconds      float64 `json:"cpuSeconds,omitempty"`
	Note            string  `json:"note,omitempty"`
}

// Access is something that the user may or may not see of an existing cluster.
type Access struct {
	What      string `json:"what"`
	Collector string `json:"collector"`
	Grant     string `json:"grant"` // in RBAC's words: "list, watch pods"
	Allowed   bool   `json:"allowed"`
	Adds      string `json:"adds"` // what a recording has with it
}

// Gap is something that was not observed. Readers must treat it as unknown,
// never as zero.
type Gap struct {
	Collector string    `json:"collector"`
	Subject   string    `json:"subject,omitempty"` // component, table or phase
	Reason    string    `json:"reason"`
	Start     time.Time `json:"start,omitzero"` // zero: the whole run
	End       time.Time `json:"end,omitzero"`
}

// Window is the half-open interval [Start, End).
type Window struct{ Start, End time.Time }

// Seconds is the window's length.
func (w Window) Seconds() float64 { return w.End.Sub(w.Start).Seconds() }

// Contains reports whether t lies in the window.
func (w Window) Contains(t time.Time) bool { return !t.Before(w.Start) && t.Before(w.End) }

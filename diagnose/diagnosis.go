package diagnose

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Schema is the version of the JSON form of Diagnosis.
const Schema = 1

// What Diagnosis.Err reports.
var (
	// ErrFindings: a bottleneck was found. Exit status 3.
	ErrFindings = errors.New("a bottleneck was found")
	// ErrInvalid: the run's numbers must not be used. Exit status 4.
	ErrInvalid = errors.New("the run is not valid")
)

// Class is what kind of news a finding is.
type Class string

// The classes of findings.
const (
	Bottleneck Class = "bottleneck" // something other than work holds the run back, and can be changed
	Capacity   Class = "capacity"   // a resource does all it can: add more of it, or ask for less
	Waste      Class = "waste"      // costs without use
	Risk       Class = "risk"       // nothing yet, but
	HarnessHit Class = "harness"    // our own generator or nodes were the limit: the run is not valid
)

// Grade is how sure a finding is (research/faults.md, 3.6).
type Grade string

// The grades, best first.
const (
	// Proven: a second run with the change moved the symptom as predicted.
	// Only prove gives it.
	Proven Grade = "proven"
	// Confirmed: two independent sources agree, the cause covers at least 0.6
	// of its stage's excess, the runner-up explains at most half as much, and
	// the stage accounting's identities hold.
	Confirmed Grade = "confirmed"
	// Likely: one source, and at least 0.4 of its stage's excess.
	Likely Grade = "likely"
	// Possible: worth a look.
	Possible Grade = "possible"
)

// Diagnosis is what is known about a run's speed. Its JSON form is stable:
// fields are added at the end, never changed.
type Diagnosis struct {
	Schema         int       `json:"schema"`
	Run            string    `json:"run"`
	Valid          bool      `json:"valid"`
	InvalidReasons []string  `json:"invalidReasons"`
	Harness        Harness   `json:"harness"`
	Stages         []Stage   `json:"stages"`
	Findings       []Finding `json:"findings"`
	RuledOut       []Clear   `json:"ruledOut"`
	NotAssessed    []Unknown `json:"notAssessed"`

	Name       string             `json:"name,omitempty"` // of the experiment
	Pods       PodCounts          `json:"pods"`
	Window     WindowOf           `json:"window"`
	Throughput *stat.Throughput   `json:"throughput"` // bindings per second; null where too short
	Latencies  Latencies          `json:"latencies"`
	Lost       LostTime           `json:"lost"`
	Unsplit    *Unsplit           `json:"unsplit,omitempty"` // stages only known together
	Resources  []Resource         `json:"resources"`         // lowest bound first
	Limits     []Limit            `json:"limits"`
	Objectives []record.Objective `json:"objectives"`
	Warnings   []string           `json:"warnings"`
	Claims     *Claims            `json:"claims,omitempty"` // where the load makes claims

	// SchedulerPerf is Throughput by the rules of upstream's scheduler_perf; null
	// where too short.
	SchedulerPerf *stat.SchedulerPerf `json:"schedulerPerf"`
	// Scheduler is what the scheduler says of its own work; null where its
	// metrics were not recorded.
	Scheduler *SchedulerWork `json:"scheduler"`
	// EndsBound says that a pod's way ends when it is bound, since its node is an
	// object that was seeded.
	EndsBound bool `json:"endsBound,omitempty"`
	// Healthy sets the run beside healthy ones of the same load on the same kind
	// of machine; null where the recording carries no calibration.
	Healthy *Compared `json:"healthy"`
	// Features are the numbers by which runs of one load are compared, by name;
	// View.Features says what they are.
	Features map[string]float64 `json:"features"`
	// Slopes are costs that change while pods are added, the largest change first.
	Slopes []Slope `json:"slopes"`
}

// Err is nil for a valid run without a bottleneck; else it wraps ErrInvalid or
// ErrFindings, in that order.
func (d *Diagnosis) Err() error {
	if !d.Valid {
		return fmt.Errorf("%w: %s", ErrInvalid, strings.Join(d.InvalidReasons, "; "))
	}
	for _, f := range d.Findings {
		if f.Class == Bottleneck {
			return fmt.Errorf("%w: %s", ErrFindings, f.Summary)
		}
	}
	return nil
}

// Harness is what our own processes cost, from the first pod created to the
// last one running, and over the whole load where none ran. Null where
// processes were not recorded.
type Harness struct {
	CPUSeconds         *float64 `json:"cpuSeconds"`
	MillisecondsPerPod *float64 `json:"millisecondsPerPod"`
	// CPUShare is of harness and control plane together; null also where the
	// control plane runs on another machine.
	CPUShare  *float64     `json:"cpuShare"`
	ByProcess []ProcessCPU `json:"byProcess,omitempty"`
}

// ProcessCPU is one component's CPU over the load window.
type ProcessCPU struct {
	Component          string   `json:"component"`
	Harness            bool     `json:"harness,omitempty"`
	CPUSeconds         float64  `json:"cpuSeconds"`
	MillisecondsPerPod *float64 `json:"millisecondsPerPod"` // null where no pod came
}

// The eight stages of a pod, in order.
const (
	Submit     = "submit"     // due → sent: the load generator
	Accept     = "accept"     // sent → answered (bare pods: → seen by the watch)
	Controller = "controller" // spec answered → pod seen by the watch
	Queue      = "queue"      // pod seen → the scheduler takes it up
	Decide     = "decide"     // the scheduler chooses a node
	Bind       = "bind"       // node chosen → binding seen by the watch
	Start      = "start"      // bound → the node reported Running
	Observe    = "observe"    // reported → seen by the watch
)

// StageNames are the eight stages in order.
var StageNames = []string{Submit, Accept, Controller, Queue, Decide, Bind, Start, Observe}

// Scheduling names queue, decide and bind together, where the scheduler's
// metrics are missing and only created → bound is known.
const Scheduling = "queue+decide+bind"

// Stage is where pods waited. What could not be measured is null, and Reason
// says why.
type Stage struct {
	Name        string   `json:"name"`
	RateIn      *float64 `json:"rateIn"`      // pods/s over the plateau; null also where all came at once
	RateOut     *float64 `json:"rateOut"`     // pods/s
	WaitSeconds *float64 `json:"waitSeconds"` // pod-seconds, ∫N dt
	Share       *float64 `json:"share"`       // of the pods' whole way
	// ExcessSeconds are the pod-seconds above what a healthy stage takes.
	ExcessSeconds *float64 `json:"excessSeconds"`
	Reason        string   `json:"reason,omitempty"`
}

// Unsplit holds stages that are only known together.
type Unsplit struct {
	Stages        []string `json:"stages"`
	WaitSeconds   float64  `json:"waitSeconds"`
	Share         float64  `json:"share"`
	ExcessSeconds float64  `json:"excessSeconds"`
	Reason        string   `json:"reason"`
}

// LostTime is the pod-seconds that findings share out between them.
type LostTime struct {
	// PodSeconds is the waiting above what healthy stages take.
	PodSeconds float64 `json:"podSeconds"`
	// TotalPodSeconds is the pods' whole way, from due to running.
	TotalPodSeconds float64 `json:"totalPodSeconds"`
	// Explained is the share of PodSeconds that findings claim.
	Explained float64 `json:"explained"`
}

// Finding is one cause.
type Finding struct {
	ID        string     `json:"id"` // the detector, stable
	Class     Class      `json:"class"`
	Component string     `json:"component"`
	Stage     string     `json:"stage"`
	Resource  string     `json:"resource"`
	CodePath  string     `json:"codePath"`
	Cause     string     `json:"cause"`
	Summary   string     `json:"summary"` // a first sentence that a tired operator understands
	Grade     Grade      `json:"grade"`
	Explains  float64    `json:"explains"` // share of the lost pod-seconds
	Evidence  []Evidence `json:"evidence"`
	Advice    Advice     `json:"advice"`

	MassSeconds float64     `json:"massSeconds"` // pod-seconds claimed
	Prediction  *Prediction `json:"prediction,omitempty"`
	RefutedBy   string      `json:"refutedBy,omitempty"` // what would show that this is wrong

	// HitRate says how often findings of this detector and grade were right where
	// it was known what was wrong; empty where that was not measured.
	HitRate string `json:"hitRate,omitempty"`

	// Suffered says what the run suffered from, in words; empty where nothing
	// did: of waste and risk.
	Suffered string `json:"suffered,omitempty"`
	// RequestSeconds are those of the requests' time above the usual that this
	// cause holds, and RequestShare their part of it: where the API server was
	// slow.
	RequestSeconds float64 `json:"requestSeconds,omitempty"`
	RequestShare   float64 `json:"requestShare,omitempty"`
	// RemovalShare is the part of the load during which the removal of objects
	// was held up by this cause.
	RemovalShare float64 `json:"removalShare,omitempty"`
	// MissingShare is the part of the pods that never ran, and never will, that are
	// missing because of this cause.
	MissingShare float64 `json:"missingShare,omitempty"`
	// ClaimShare is the part of the claims that were never bound because of this
	// cause: while they are not, no pod that uses them comes anywhere.
	ClaimShare float64 `json:"claimShare,omitempty"`
	Cost       *Cost   `json:"cost,omitempty"` // of waste and risk, and wherever it was worked out

	// Claims are the pod-seconds the detector attributes to this cause, by stage.
	Claims map[string]float64 `json:"-"`
	// Direct claims were measured at the cause itself and cannot stem from
	// anything upstream: waiting in a limiter, say. They are settled first.
	Direct bool `json:"-"`
	// Rest claims are settled last: everything may wait a little longer at such times,
	// and what has a cause of its own is not theirs.
	Rest bool `json:"-"`
	// Consumes says that the work of this cause is part of what fills a resource
	// that is at capacity: the cause is what can be changed about it.
	Consumes bool `json:"-"`
	// Next is the summary for where direct claims of others leave next to nothing:
	// then the finding is a risk, of what holds pods back once those are gone.
	// Without it the finding is ruled out there.
	Next string `json:"-"`
	// Spare is the summary of what is waste whether pods wait for it or not, for where
	// next to nothing is left for it: then it is that and no more.
	Spare string `json:"-"`
	// Sources counts independent sources of evidence, for the grade.
	Sources int `json:"-"`
	// Invalidates makes the run's numbers unusable.
	Invalidates bool `json:"-"`
}

// Behind ends a Finding.Next.
const Behind = " It holds pods back as soon as what they wait for now is gone."

// Evidence is one observed or configured value, with its place in the recording.
type Evidence struct {
	Kind  string  `json:"kind"` // rate, wait, busy, config, pattern, late
	Ref   string  `json:"ref"`  // a metric query, a table, or a flag
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Text  string  `json:"text"`
}

// Advice is what to change.
type Advice struct {
	Text string `json:"text"`
	// Set are --set values that lift this cause altogether. Null where no
	// setting does.
	Set map[string]string `json:"set"`
	// Dose are smaller changes whose effect is predictable: a cause that
	// answers to its dose is proven.
	Dose []Dose `json:"dose,omitempty"`
}

// Dose is a change and the throughput it should lead to.
type Dose struct {
	Set         map[string]string `json:"set"`
	PredictRate float64           `json:"predictRate"` // pods/s
}

// Prediction is the next bound once this cause is gone.
type Prediction struct {
	Resource string  `json:"resource"` // name of the resource that binds next; "unknown" where none is measured
	Rate     float64 `json:"rate"`     // pods/s at most; 0 unknown
	Text     string  `json:"text"`
}

// Clear is a cause that was looked for and is not there.
type Clear struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Unknown is a cause that could not be looked for.
type Unknown struct {
	ID      string `json:"id"`
	Missing string `json:"missing"`
}

// PodCounts tells what became of the pods that were asked for.
type PodCounts struct {
	Expected int `json:"expected"`
	Seen     int `json:"seen"`
	Bound    int `json:"bound"`
	Running  int `json:"running"`
	Lost     int `json:"lost"`     // asked for, never seen
	Stuck    int `json:"stuck"`    // seen, never running
	Failed   int `json:"failed"`   // of the stuck ones: with a reason
	Requests int `json:"requests"` // operations owed
	Missed   int `json:"missed"`   // operations never sent
	Errors   int `json:"errors"`   // operations refused
}

// WindowOf is the load window, in seconds.
type WindowOf struct {
	Seconds        float64 `json:"seconds"`        // first due to last running
	PlateauSeconds float64 `json:"plateauSeconds"` // the stretch over which resources are judged
}

// Latencies are what a user feels. Nulls are quantiles that the sample cannot
// carry. Pods that never ran count as infinitely late.
type Latencies struct {
	PodStartup LatencyOf `json:"podStartup"` // created → running, both seen by watch
	// Intent is from a spec's due time until its pods run: the median pod, and
	// the last one of all.
	Intent LatencyOf `json:"intent"`
	// Scheduling is created → bound, both seen by watch. It is given where a
	// pod's way ends there.
	Scheduling *LatencyOf `json:"scheduling,omitempty"`
}

// LatencyOf is a distribution of seconds.
type LatencyOf struct {
	N          int      `json:"n"`
	Incomplete int      `json:"incomplete"` // never arrived
	P50        *float64 `json:"p50"`
	P90        *float64 `json:"p90"`
	P99        *float64 `json:"p99"`
	Max        *float64 `json:"max"` // null where some never arrived

	sorted  []float64 // of those that arrived
	reached string    // what they did by that; empty: ran
}

// Resource is something that does work for pods, and how much of it at most.
type Resource struct {
	Name        string  `json:"name"` // cpu of machine, limit of …/replicaset-controller, …
	Component   string  `json:"component"`
	Kind        string  `json:"kind"` // a resource word of DESIGN.md: cpu, disk, loop, workers, client-limit
	BusySeconds float64 `json:"busySeconds"`
	Servers     float64 `json:"servers"`
	Utilisation float64 `json:"utilisation"`     // over the plateau
	Demand      float64 `json:"demand"`          // seconds (limiter: requests) per pod
	Bound       float64 `json:"bound,omitempty"` // pods/s that it could carry; 0 unknown
	Reached     float64 `json:"reached"`         // the run's rate as a share of Bound
	Note        string  `json:"note,omitempty"`
}

// BindsAt says in words where the resource's bound lies.
func (r Resource) BindsAt() string {
	if r.Kind == "cpu" {
		// Measured on 2 cores: the control plane takes 34 ms of CPU per pod at
		// 20 pods/s and 12 ms at 120, because work is done in bulk.
		return fmt.Sprintf("%s binds next, at %.0f pods/s or more (this run's CPU per pod, which falls as the rate rises)", r.Name, r.Bound)
	}
	return fmt.Sprintf("%s binds next, at about %.0f pods/s (from this run's demand per pod)", r.Name, r.Bound)
}

// Limit is a client-side rate limit in force.
type Limit struct {
	Component string  `json:"component"`
	QPS       float64 `json:"qps"` // 0 unknown, below 0 none
	Burst     float64 `json:"burst"`
	Source    string  `json:"source"` // flag, default, unknown
}

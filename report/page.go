package report

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// PageSchema is the version of the page model; the page refuses a newer one.
const PageSchema = 1

// Page is all that the HTML page shows. It holds only what a chart or a table
// draws: raw rows stay in the recording. ui/src/recording.ts is generated from
// this file, so a field added here is a field the page can use.
type Page struct {
	Schema    int       `json:"schema"`
	Title     string    `json:"title"`
	Tool      string    `json:"tool"`      // version of kubedyno that rendered the page
	Generated time.Time `json:"generated"` // when the page was rendered
	Verdict   string    `json:"verdict"`   // the whole story in one sentence
	Valid     bool      `json:"valid"`     // every round is valid
	Rounds    []Round   `json:"rounds"`    // in the order they were run; the first is the baseline
	Several   *Several  `json:"several"`   // what several runs say of two sides; nil: rounds of one story
	History   []Trend   `json:"history"`   // of many runs; there are no rounds then
	LeftOut   []string  `json:"leftOut"`   // runs that the history leaves out, and why
	Sweep     *Swept    `json:"sweep"`     // what values of a setting do; there are no rounds then
	Capacity  *Carried  `json:"capacity"`  // the highest load within objectives; no rounds either
	Overhead  *AtRest   `json:"overhead"`  // what a cluster costs an idle machine; no rounds either
	Served    []string  `json:"served"`    // of each round, or of each run of a history, its place in the folder that kubedyno serve shows; empty in a file
}

// Several is a comparison of two sides: what their runs say together. Each
// side's middle run is a round of the page.
type Several struct {
	Baseline  []SideRun    `json:"baseline"`
	Candidate []SideRun    `json:"candidate"`
	Interval  bool         `json:"interval"` // several runs on both sides
	Note      string       `json:"note"`     // why there is no interval
	Alpha     float64      `json:"alpha"`    // chance of any false difference among rows
	Changed   []Difference `json:"changed"`
	Rows      []SideRow    `json:"rows"`
	Details   []Detail     `json:"details"`
	Warnings  []string     `json:"warnings"`
}

// SideRun is a run of a side.
type SideRun struct {
	ID      string   `json:"id"`
	Pods    int      `json:"pods"` // that ran
	Invalid []string `json:"invalid"`
}

// Difference is a setting that two sides differ in.
type Difference struct {
	Path string `json:"path"`
	Old  string `json:"old"` // empty: not set
	New  string `json:"new"`
}

// SideRow is one indicator of both sides.
type SideRow struct {
	ID         string   `json:"id"`
	Group      string   `json:"group"`
	Name       string   `json:"name"`
	Unit       string   `json:"unit"`
	Lower      bool     `json:"lower"` // less is better
	Neutral    bool     `json:"neutral"`
	Baseline   Spread   `json:"baseline"`
	Candidate  Spread   `json:"candidate"`
	Ratio      *float64 `json:"ratio"` // candidate over baseline
	RatioLow   *float64 `json:"ratioLow"`
	RatioHigh  *float64 `json:"ratioHigh"`
	Difference *float64 `json:"difference"` // in unit, where there is no ratio
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	P          *float64 `json:"p"` // adjusted over all rows
	Verdict    string   `json:"verdict"`
	Detectable *float64 `json:"detectable"` // the least effect that such runs show
	Needed     *int     `json:"needed"`     // runs a side that would find the wanted difference
}

// Spread is an indicator over the runs of a side.
type Spread struct {
	Value  *float64 `json:"value"` // the median
	Low    *float64 `json:"low"`   // of the median's interval
	High   *float64 `json:"high"`
	N      int      `json:"n"`
	Values Values   `json:"values"` // one a run
	Reason string   `json:"reason"` // why there is none
}

// Detail is one table that explains differences.
type Detail struct {
	ID          string      `json:"id"` // functions, requests, logs, use
	Tested      bool        `json:"tested"`
	Alpha       float64     `json:"alpha"` // share of the rows that differ which may be wrong
	Why         string      `json:"why"`   // why it was not tested
	NotAssessed string      `json:"notAssessed"`
	Looked      int         `json:"looked"` // rows that were looked at
	Rows        []DetailRow `json:"rows"`   // those that differ, or that moved most
}

// DetailRow is a function, a kind of request, a form of line or a check.
type DetailRow struct {
	Key      []string  `json:"key"`
	Verdict  string    `json:"verdict"`
	Measures []Measure `json:"measures"`
}

// Measure is one number of a row, the mean over the runs of a side.
type Measure struct {
	Name      string   `json:"name"`
	Unit      string   `json:"unit"`
	Baseline  float64  `json:"baseline"`
	Candidate float64  `json:"candidate"`
	Low       *float64 `json:"low"` // of the difference
	High      *float64 `json:"high"`
}

// Estimated is a mean or a median with its interval; null where it is not known.
type Estimated struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	N     int      `json:"n"`
}

// Swept is a sweep: what each value of a setting costs, and what it does for users.
type Swept struct {
	Axes     []string     `json:"axes"`
	Points   []SweptPoint `json:"points"`
	Runs     string       `json:"runs"` // how many were made, in words
	Note     string       `json:"note"` // what the intervals are
	Checks   []SweptCheck `json:"checks"`
	Rows     []SweptRow   `json:"rows"`
	Best     *int         `json:"best"` // the point; null where none is only better
	Prices   []string     `json:"prices"`
	Warnings []string     `json:"warnings"`
}

// SweptPoint is one combination of values.
type SweptPoint struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // one of each axis
	At     *float64 `json:"at"`     // the value, where there is one axis and it is a number
	Seen   string   `json:"seen"`   // what a check counted there
	// Reference is the point that this one is compared with; null: it is one itself.
	Reference *int `json:"reference"`
}

// SweptCheck says whether a setting acted.
type SweptCheck struct {
	What string `json:"what"`
	Says string `json:"says"`
	Good bool   `json:"good"` // it acted
}

// SweptRow is one indicator over all points.
type SweptRow struct {
	ID      string      `json:"id"`
	Group   string      `json:"group"`
	Name    string      `json:"name"`
	Unit    string      `json:"unit"`
	Lower   bool        `json:"lower"` // less is better
	Main    bool        `json:"main"`  // one of those that a setting is chosen by
	Ratios  bool        `json:"ratios"`
	Reason  string      `json:"reason"` // why it is not tested
	Within  string      `json:"within"` // how large an effect may still be
	Fit     string      `json:"fit"`    // the curve through the points, in words
	Cells   []SweptCell `json:"cells"`  // one a point
	Differs bool        `json:"differs"`
}

// SweptCell is an indicator at a point.
type SweptCell struct {
	Median  Estimated `json:"median"`
	Values  Values    `json:"values"` // one a run
	Change  *float64  `json:"change"` // from the reference: a ratio, or a difference in unit
	Low     *float64  `json:"low"`
	High    *float64  `json:"high"`
	P       *float64  `json:"p"`
	Verdict string    `json:"verdict"` // empty: a reference, or not tested
}

// Carried is a capacity.
type Carried struct {
	Find       string      `json:"find"` // what was turned up
	Unit       string      `json:"unit"`
	Saturated  bool        `json:"saturated"` // nothing was turned up: all is asked for at once
	Objectives []Wanted    `json:"objectives"`
	At         []CarriedAt `json:"at"` // for each number of cores
	Ladder     *Climbed    `json:"ladder"`
	Warnings   []string    `json:"warnings"`
}

// Wanted is an objective of a capacity.
type Wanted struct {
	Name    string  `json:"name"`
	Text    string  `json:"text"`
	Unit    string  `json:"unit"`
	Limit   float64 `json:"limit"`
	AtLeast bool    `json:"atLeast"` // the limit is the least
}

// CarriedAt is the capacity of one control plane.
type CarriedAt struct {
	Cores    float64    `json:"cores"` // 0: as many as there are
	Verdict  string     `json:"verdict"`
	Capacity Estimated  `json:"capacity"`
	Beyond   int        `json:"beyond"` // 1: above all that was tried, -1 below
	Sure     bool       `json:"sure"`
	Binds    string     `json:"binds"`
	Probes   []Tried    `json:"probes"` // by load
	Demands  []Demanded `json:"demands"`
}

// Tried is one run at one load.
type Tried struct {
	Load   float64 `json:"load"`
	Passed bool    `json:"passed"`
	Valid  bool    `json:"valid"`
	Why    string  `json:"why"`
	Rate   float64 `json:"rate"`   // pods/s that came
	Values Values  `json:"values"` // one an objective
}

// Demanded is what a pod takes of a resource at the edge.
type Demanded struct {
	Name  string    `json:"name"`
	Unit  string    `json:"unit"`
	Each  Estimated `json:"each"`
	Bound Estimated `json:"bound"` // pods/s that it carries at most
}

// Climbed is what a capacity would be with other numbers of cores: computed.
type Climbed struct {
	Text  string     `json:"text"`
	Next  string     `json:"next"` // what binds before the CPU does
	Rungs []RungOf   `json:"rungs"`
	Held  []HeldRung `json:"held"`
}

// RungOf is the capacity at a number of cores.
type RungOf struct {
	Cores  float64   `json:"cores"`
	Rate   Estimated `json:"rate"`
	Capped bool      `json:"capped"`
}

// HeldRung is a rung that was measured too, and kept out of the line.
type HeldRung struct {
	Cores    float64   `json:"cores"`
	Computed Estimated `json:"computed"`
	Measured Estimated `json:"measured"`
	Error    *float64  `json:"error"` // what was computed over what was measured, less 1
}

// AtRest is an overhead: what a cluster, or a command, costs an idle machine. CPU
// is in cores.
type AtRest struct {
	Of        string      `json:"of"`
	Command   bool        `json:"command"`
	Invalid   string      `json:"invalid"` // why the numbers must not be used
	Note      string      `json:"note"`
	Total     Estimated   `json:"total"`
	Layers    []RestLayer `json:"layers"` // from the bottom up, the machine without anything first
	Apart     *Estimated  `json:"apart"`  // the whole, measured apart from the layers
	Instead   []RestState `json:"instead"`
	Checks    []RestCheck `json:"checks"`
	Processes []RestUse   `json:"processes"`
	Machine   []RestUse   `json:"machine"`
	Warnings  []string    `json:"warnings"`
}

// RestLayer is what stands below it and one thing more.
type RestLayer struct {
	Name    string    `json:"name"`
	Cores   Estimated `json:"cores"`   // of the machine
	Step    Estimated `json:"step"`    // beyond the layer below
	Wakeups Estimated `json:"wakeups"` // a second, beyond the layer below
}

// RestState is the cluster in another state, and what that saves.
type RestState struct {
	Name  string    `json:"name"`
	Set   []string  `json:"set"`
	Cores Estimated `json:"cores"`
	Saved Estimated `json:"saved"`
	Share *float64  `json:"share"` // of the cluster's cost
	Than  string    `json:"than"`
	Sure  bool      `json:"sure"` // the rounds show that it saves, or costs
}

// RestCheck says whether numbers add up.
type RestCheck struct {
	Text       string    `json:"text"`
	Assessed   bool      `json:"assessed"`
	OK         bool      `json:"ok"`
	Difference Estimated `json:"difference"`
}

// RestUse is a process, or a mode of the machine's CPUs, without and with.
type RestUse struct {
	Owner   string    `json:"owner"` // whose: cluster, kernel, observer, others; empty for the machine
	Name    string    `json:"name"`
	Without Estimated `json:"without"`
	With    Estimated `json:"with"`
	More    Estimated `json:"more"`
	Wakeups Estimated `json:"wakeups"` // a second
}

// Trend is one indicator of one experiment on one machine, run after run.
type Trend struct {
	Experiment string      `json:"experiment"`
	Shape      string      `json:"shape"`
	Machine    string      `json:"machine"`
	Indicator  string      `json:"indicator"`
	Name       string      `json:"name"`
	Unit       string      `json:"unit"`
	Lower      bool        `json:"lower"`
	Runs       []string    `json:"runs"`
	Labels     []string    `json:"labels"` // the step that each run belongs to; empty: runs are in the order of time
	At         []time.Time `json:"at"`
	Values     Values      `json:"values"`
	Steps      []Step      `json:"steps"`
	Note       string      `json:"note"` // why changes could not be looked for
}

// Step is a change of level before a run.
type Step struct {
	At      int          `json:"at"` // index of the first run after it
	Before  float64      `json:"before"`
	After   float64      `json:"after"`
	Ratio   float64      `json:"ratio"`
	P       float64      `json:"p"`
	Verdict string       `json:"verdict"`
	Changed []Difference `json:"changed"`
}

// Round is one recording and what diagnosis made of it.
type Round struct {
	Name        string        `json:"name"` // Baseline, Round 2, …
	Recording   Facts         `json:"recording"`
	Dose        bool          `json:"dose"`       // tried only to see whether the symptom answers; not a step of the story
	Change      []string      `json:"change"`     // --set values relative to the round before
	Prediction  string        `json:"prediction"` // what the change was expected to do; empty for a baseline
	Outcome     string        `json:"outcome"`    // whether it did
	Took        string        `json:"took"`       // what the change took away; empty where it did not, or nothing tells
	Verdict     string        `json:"verdict"`
	Assessed    bool          `json:"assessed"` // a diagnosis stands behind findings and validity
	Valid       bool          `json:"valid"`
	Invalid     []string      `json:"invalid"`
	Until       string        `json:"until"` // where pods are followed to: "running", or "scheduled" where none ever started
	Headline    []Indicator   `json:"headline"`
	Findings    []PageFinding `json:"findings"`
	RuledOut    []Reason      `json:"ruledOut"`
	NotAssessed []Reason      `json:"notAssessed"`
	Stages      []PageStage   `json:"stages"`
	Latencies   []Latency     `json:"latencies"`
	Curves      Curves        `json:"curves"`
	Rates       Rates         `json:"rates"`
	CPU         CPU           `json:"cpu"`
	Tracks      Tracks        `json:"tracks"`
	Functions   []TopTable    `json:"functions"`
	Flames      Flames        `json:"flames"`
	Pods        PodTable      `json:"pods"`
	Logs        []LogRow      `json:"logs"` // the most frequent first
	Use         []UseCheck    `json:"use"`  // the checklist of resources: of the whole run, then of each phase
	Heat        Heat          `json:"heat"`
	Claims      ClaimTable    `json:"claims"`
	Harness     HarnessCost   `json:"harness"`
	LeftOut     []string      `json:"leftOut"`
	Warnings    []string      `json:"warnings"`
	Gaps        []Reason      `json:"gaps"`
}

// Facts identify a recording and the machine it was made on.
type Facts struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Started    time.Time  `json:"started"`
	Seconds    float64    `json:"seconds"`
	Status     string     `json:"status"`
	EndReason  string     `json:"endReason"`
	Kubernetes string     `json:"kubernetes"`
	Cluster    string     `json:"cluster"` // lab or existing
	Profile    string     `json:"profile"`
	Settings   []string   `json:"settings"` // --set values of the run, verbatim
	Nodes      int        `json:"nodes"`
	Simulated  bool       `json:"simulated"`
	Pods       int        `json:"pods"` // asked for in the measured phases
	Load       string     `json:"load"` // Deployments, or bare pods at a rate
	Machine    []Fact     `json:"machine"`
	Components []FlagSet  `json:"components"`
	Phases     []Phase    `json:"phases"`
	Observers  []Observer `json:"observers"`
}

// Fact is a label and its value, both for people.
type Fact struct {
	Label string `json:"label"`
	Value string `json:"value"`
}

// FlagSet is a component's command line.
type FlagSet struct {
	Component string   `json:"component"`
	Version   string   `json:"version"`
	Quota     float64  `json:"quota"` // CPU quota in cores; 0 = none
	Args      []string `json:"args"`
	Set       []string `json:"set"` // the arguments that differ from the profile
}

// Phase is a stretch of the run, in seconds on the round's time axis.
type Phase struct {
	Name string  `json:"name"`
	Kind string  `json:"kind"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Observer is what one collector did and what it cost.
type Observer struct {
	Name       string  `json:"name"`
	Interval   float64 `json:"interval"` // seconds; 0 = not periodic
	Samples    int64   `json:"samples"`
	CPUSeconds float64 `json:"cpuSeconds"`
	Note       string  `json:"note"`
}

// Indicator is a number that rounds are compared by.
type Indicator struct {
	ID     string   `json:"id"`
	Label  string   `json:"label"`
	Value  *float64 `json:"value"` // nil: not measured
	Unit   string   `json:"unit"`
	N      int      `json:"n"`      // samples behind it; 0 where that has no meaning
	Better string   `json:"better"` // higher, lower or empty
	Note   string   `json:"note"`
}

// PageFinding is a finding as the page shows it.
type PageFinding struct {
	ID        string         `json:"id"`
	Class     string         `json:"class"`
	Component string         `json:"component"`
	Stage     string         `json:"stage"`
	Resource  string         `json:"resource"`
	CodePath  string         `json:"codePath"`
	Cause     string         `json:"cause"`
	Summary   string         `json:"summary"`
	Grade     string         `json:"grade"`
	Explains  float64        `json:"explains"` // share of the lost pod-seconds, 0 to 1
	Evidence  []PageEvidence `json:"evidence"`
	Advice    string         `json:"advice"`
	Set       []string       `json:"set"`       // PATH=VALUE, ready for --set
	Next      string         `json:"next"`      // what should bind once this is gone
	RefutedBy string         `json:"refutedBy"` // what would show that this is wrong
	HitRate   string         `json:"hitRate"`   // how often such findings were right, where that is known; empty
}

// PageEvidence is one observation that a finding rests on.
type PageEvidence struct {
	Kind  string   `json:"kind"`
	Ref   string   `json:"ref"`
	Value *float64 `json:"value"`
	Unit  string   `json:"unit"`
	Text  string   `json:"text"`
}

// Reason names something and says why.
type Reason struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// PageStage is one stage of a pod's way, summed over the measured pods.
type PageStage struct {
	Name        string   `json:"name"`
	Measured    bool     `json:"measured"`
	Why         string   `json:"why"` // why not measured
	WaitSeconds float64  `json:"waitSeconds"`
	Share       float64  `json:"share"`   // of the pods' whole way, 0 to 1
	RateIn      *float64 `json:"rateIn"`  // pods/s; nil also where all came at once
	RateOut     *float64 `json:"rateOut"` // pods/s
	PerPod      float64  `json:"perPod"`  // mean seconds a pod spent waiting here
}

// Latency is the distribution of one interval of a pod's life, in seconds.
type Latency struct {
	Name string   `json:"name"`
	From string   `json:"from"`
	To   string   `json:"to"`
	N    int      `json:"n"`
	Mean *float64 `json:"mean"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"` // nil below 100 samples
	Max  *float64 `json:"max"`
}

// Curves are cumulative counts of pods. Time counts from the first due
// operation of the measured load.
type Curves struct {
	Start     float64 `json:"start"`
	Step      float64 `json:"step"`
	Total     int     `json:"total"`
	Submitted Values  `json:"submitted"`
	Created   Values  `json:"created"`
	Scheduled Values  `json:"scheduled"`
	Running   Values  `json:"running"`
}

// Rates are pods per second in each step, and the limits that bound them.
type Rates struct {
	Start     float64 `json:"start"`
	Step      float64 `json:"step"`
	Created   Values  `json:"created"`
	Scheduled Values  `json:"scheduled"`
	Running   Values  `json:"running"`
	Bounds    []Bound `json:"bounds"`
}

// Bound is a known ceiling of the pod rate.
type Bound struct {
	Label     string  `json:"label"` // kube-controller-manager client limit 20/s
	Component string  `json:"component"`
	Value     float64 `json:"value"` // pods/s
}

// CPU is the CPU each process used in each step, in cores.
type CPU struct {
	Start  float64     `json:"start"`
	Step   float64     `json:"step"`
	Cores  int         `json:"cores"` // of the machine; 0 = unknown
	Series []CPUSeries `json:"series"`
}

// CPUSeries is one component's share of the CPU.
type CPUSeries struct {
	Component string  `json:"component"`
	Harness   bool    `json:"harness"` // ours, not the system under test
	Seconds   float64 `json:"seconds"` // CPU-seconds in the measured window
	Cores     Values  `json:"cores"`
}

// Tracks is what was seen beside pods and CPU, on the axis of CPU.
type Tracks struct {
	Start    float64        `json:"start"`
	Step     float64        `json:"step"`
	Disk     []Track        `json:"disk"`
	Requests []RequestGroup `json:"requests"` // what took the most time first
	Spikes   []Mark         `json:"spikes"`   // stretches in which the machine was busier than around them
	Rhythms  []Rhythm       `json:"rhythms"`
}

// Track is one line.
type Track struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Values Values `json:"values"`
}

// RequestGroup sums the requests of one kind from one client.
type RequestGroup struct {
	Agent    string  `json:"agent"` // the user agent without versions
	Verb     string  `json:"verb"`
	Resource string  `json:"resource"`
	Long     bool    `json:"long"` // as long as its client wants, as watches: no time is summed
	Count    int     `json:"count"`
	Errors   int     `json:"errors"` // answered with 400 or above
	Seconds  float64 `json:"seconds"`
	// Which part of Seconds the API server spent where, by its own clocks, from 0 to
	// 1; null where it does not tell.
	Etcd     *float64 `json:"etcd"`
	Auth     *float64 `json:"auth"`   // until it knew who asks, and whether they may
	Queued   *float64 `json:"queued"` // by priority and fairness
	Webhooks *float64 `json:"webhooks"`
	Bytes    *int64   `json:"bytes"` // of answers; null where they are not told
	Cells    []int    `json:"cells"` // step (as the difference to the one before), requests, tenths of milliseconds: of each step with any
}

// Mark is a stretch of seconds.
type Mark struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// Rhythm is something that comes again and again.
type Rhythm struct {
	Name   string    `json:"name"`
	Text   string    `json:"text"`
	Starts []float64 `json:"starts"` // seconds on the round's time axis
}

// TopTable is where one component's CPU went.
type TopTable struct {
	Component  string  `json:"component"`
	CPUSeconds float64 `json:"cpuSeconds"` // in the profile
	Seconds    float64 `json:"seconds"`    // length of the profile
	Phase      string  `json:"phase"`
	Rows       []Func  `json:"rows"`
}

// Func is one function's part of a CPU profile.
type Func struct {
	Name  string   `json:"name"`
	Self  float64  `json:"self"`  // share of the component's CPU, 0 to 1
	Cum   float64  `json:"cum"`   // the same with callees
	PerMs *float64 `json:"perMs"` // cumulative CPU ms per pod; nil where pods cannot be counted
}

// Flames are the call stacks of a round: which code used the CPU.
type Flames struct {
	Names   []string `json:"names"`   // of functions; of a machine's stacks also of components and threads
	Classes []string `json:"classes"` // of work
	Class   []int    `json:"class"`   // of each name, an index of Classes; -1: no function
	Notes   []Note   `json:"notes"`
	Trees   []Flame  `json:"trees"`
}

// Note says what a well-known function means.
type Note struct {
	Name int    `json:"name"` // an index of Flames.Names
	Text string `json:"text"`
}

// Flame is one set of call stacks as a tree of frames, each behind its caller.
// Weights are counts of a unit, so that sums are exact.
type Flame struct {
	Source    string  `json:"source"`    // pprof: a component's own profile; stacks: samples of the whole machine
	Component string  `json:"component"` // empty: several, each an outermost frame
	Phase     string  `json:"phase"`
	From      float64 `json:"from"` // seconds on the round's time axis
	To        float64 `json:"to"`
	Pods      int     `json:"pods"`    // that began to run in it
	Unit      float64 `json:"unit"`    // CPU-seconds that a weight of 1 stands for
	Names     []int   `json:"names"`   // of each frame, an index of Flames.Names
	Callers   []int   `json:"callers"` // of each frame, how many frames before it its caller stands; 0: outermost
	Self      []int   `json:"self"`    // weight of each frame without what it calls; empty where Samples tell it
	Pruned    int     `json:"pruned"`  // weight that stands under (small): its own frames were too light to keep
	Step      float64 `json:"step"`    // seconds of an interval of Counts; 0: when is not known
	Counts    []int   `json:"counts"`  // samples in each interval since From
	Samples   []int   `json:"samples"` // innermost frames, interval by interval, ascending, each as the difference to the one before
}

// NotSeen stands for a time that was not observed.
const NotSeen = 2147483647

// PodTable is each pod's way, the longest first, those that never ran before
// all. Times are milliseconds on the round's time axis.
type PodTable struct {
	Names   []string `json:"names"` // namespace/name
	Nodes   []string `json:"nodes"`
	Node    []int    `json:"node"` // of each pod, an index of Nodes; -1: none
	Asked   []int    `json:"asked"`
	Created []int    `json:"created"`
	Bound   []int    `json:"bound"`
	Running []int    `json:"running"`
	Left    int      `json:"left"` // pods with shorter ways, which are not here
}

// LogRow is a form of log line, or a kind of event that logs tell.
type LogRow struct {
	Component string   `json:"component"`
	Severity  string   `json:"severity"` // I, W, E, F
	Kind      string   `json:"kind"`     // of a known event; empty: a form of line
	Text      string   `json:"text"`
	Example   string   `json:"example"`
	Count     int      `json:"count"`
	Seconds   *float64 `json:"seconds"` // that events tell, summed
	First     *float64 `json:"first"`   // seconds on the round's time axis
	Last      *float64 `json:"last"`
}

// UseCheck is one cell of the checklist: how busy a resource was, how much
// waited for it, what went wrong.
type UseCheck struct {
	Phase     string   `json:"phase"` // empty: the whole run
	From      float64  `json:"from"`  // seconds on the round's time axis
	To        float64  `json:"to"`
	Resource  string   `json:"resource"`
	Instance  string   `json:"instance"`
	Component string   `json:"component"`
	Kind      string   `json:"kind"` // utilisation, saturation, errors
	Aspect    string   `json:"aspect"`
	Value     *float64 `json:"value"` // null: not measurable
	Unit      string   `json:"unit"`
	Watch     float64  `json:"watch"` // 0: never
	Bad       float64  `json:"bad"`   // 0: never
	Verdict   string   `json:"verdict"`
	Detail    string   `json:"detail"`
	Evidence  string   `json:"evidence"` // the table or query behind it
	Source    string   `json:"source"`   // of the threshold
	Reason    string   `json:"reason"`   // why it is not measurable
}

// Heat is how long disk requests and syncs took, over time, by process.
type Heat struct {
	Start float64   `json:"start"`
	Step  float64   `json:"step"`
	Steps int       `json:"steps"`
	Edges []float64 `json:"edges"` // where each row of cells begins, in microseconds
	Maps  []HeatMap `json:"maps"`  // the busiest process first
}

// HeatMap is what one process asked of the disks.
type HeatMap struct {
	Process string `json:"process"`
	Kind    string `json:"kind"` // requests or syncs
	Count   int    `json:"count"`
	Cells   []int  `json:"cells"` // step (as the difference to the one before), index of Edges, count: of each cell with any
}

// ClaimTable is the way of each persistent volume claim, the longest first,
// those that never ended before all. Times are milliseconds on the round's time
// axis.
type ClaimTable struct {
	Names       []string    `json:"names"` // namespace/name
	Class       []string    `json:"class"`
	Created     []int       `json:"created"`
	Provisioned []int       `json:"provisioned"`
	Bound       []int       `json:"bound"`
	Attached    []int       `json:"attached"`
	Running     []int       `json:"running"` // the first pod that uses it
	Left        int         `json:"left"`    // claims with shorter ways, which are not here
	Steps       []ClaimStep `json:"steps"`
}

// ClaimStep is how long claims took for one step of their way, in seconds.
type ClaimStep struct {
	Class string   `json:"class"` // of storage, and its binding mode
	Name  string   `json:"name"`
	What  string   `json:"what"` // who does it
	N     int      `json:"n"`
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"` // null below 100 samples
	Max   *float64 `json:"max"`
}

// HarnessCost is what kubedyno itself cost.
type HarnessCost struct {
	Measured   bool    `json:"measured"`
	CPUSeconds float64 `json:"cpuSeconds"`
	PerPodMs   float64 `json:"perPodMs"`
	Share      float64 `json:"share"` // of harness + control plane, 0 to 1
}

// Values are samples at equal steps. NaN means "not observed" and is null in
// JSON; missing data must never look like zero. Four significant digits are
// kept: no chart shows more, and the file halves.
type Values []float64

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+6*len(v))
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			b = append(b, "null"...)
		case x == math.Trunc(x) && math.Abs(x) < 1e15:
			b = strconv.AppendInt(b, int64(x), 10)
		default:
			b = strconv.AppendFloat(b, x, 'g', 4, 64)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(b []byte) error {
	var p []*float64
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*v = make(Values, len(p))
	for i, x := range p {
		(*v)[i] = math.NaN()
		if x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}

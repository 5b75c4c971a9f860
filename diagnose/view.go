package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Component names as processes and series carry them.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Etcd              = "etcd"
	Load              = "kubedyno-load"
	Hollow            = "kubedyno-hollow"
	Self              = "kubedyno" // command, collectors and page
	Keeper            = "kubedyno-keeper"
	Machine           = "machine" // in findings: the whole machine
)

// regularScrape is the interval of scrapes where the recording does not say.
const regularScrape = 5 * time.Second

// A View is a run as detectors see it: the recording's tables joined, the
// stages accounted, busy time and limits worked out. Times are seconds since
// Load.Start. A View is computed once and not changed.
type View struct {
	Meta record.Meta
	// Load is from the first measured pod's due time to the last one running
	// (or to the end of the load phase, where some never ran).
	Load record.Window
	// Plateau is where resources are judged: between the first 5 % of pods
	// created and the last 5 % running, without ramp and stragglers.
	Plateau record.Window
	// Rest is the time at rest before the load; empty where there was none.
	Rest record.Window

	Pods       []record.Pod       // of the measured phases
	Operations []record.Operation // of the measured phases
	Requests   []record.Request   // received during Load; nil unless HasRequests; not to be changed, as RestRequests
	// RestRequests were received during Rest.
	RestRequests []record.Request
	Partings     []Parting          // of measured pods that their nodes deleted, in the whole recording
	Talks        []Talk             // what Requests add up to, by client and kind
	Watches      []Watching         // that were open during the load, the most first
	Lapses       []Lapse            // what parts of the control plane did not see for a time, the longest first
	Lists        []requests.ListRow // who lists, and who watches
	API          Service            // how requests fared that are not the harness'
	Counts       PodCounts

	HasPods, HasOperations, HasRequests, HasProcesses, HasMachine bool
	// PodsWatched says that pods were looked for: where HasPods is false all the
	// same, there were none.
	PodsWatched bool
	// Observed says that nothing was loaded: the recording tells of a cluster at
	// its own work. Then Load is the whole time that was watched, and a pod
	// that is under way at its end is no fault.
	Observed bool
	// Unbegun says that the run failed before anything was asked for. Then Load is all
	// of the run.
	Unbegun bool
	// WarmUp is the phase in which the run ended before its measured load began; it is
	// judged in the load's place then. Empty where there was a load.
	WarmUp string
	// EndsBound says that a pod's way ends when it is bound: the nodes are
	// objects that were seeded, and nobody starts pods on them.
	EndsBound bool

	// Stages are the eight in order; Together is created → bound.
	Stages   []Stage
	Together Stage
	// Cut says that the run ended before its pods had come through, or that none came
	// at all: stages hold the waiting until then.
	Cut bool
	// StagesOK is false where the stage data contradicts itself; StagesWhy
	// says how. Detectors then do not assess stages.
	StagesOK  bool
	StagesWhy string
	Lost      LostTime

	Rate       float64 // pods bound per second; 0 unknown
	Throughput *stat.Throughput
	// SchedulerPerf is the same by the rules of upstream's benchmark.
	SchedulerPerf *stat.SchedulerPerf
	Latencies     Latencies
	Claims        *Claims // nil where the load makes none
	Resources     []Resource
	Limits        []Limit
	Harness       Harness
	Slopes        []Slope // costs that change while pods are added
	// SlopesAssessed is false where the load was too short to tell.
	SlopesAssessed bool
	Warnings       []string

	src       Source
	err       error
	processes map[string][]process // by component
	others    map[string][]process // outside of the run, by command line
	brief     map[string][]spell   // CPU that samples do not show, by component
	machine   []record.MachineSample
	cores     []record.CoreSample
	ends      []record.ProcessExit // of components
	blocks    *[]record.BlockIO    // requests to block devices; nil until asked for
	hasEnds   bool
	idle      map[string]float64 // CPUs busy while idle, by component; Machine too
	steps     map[string][]step  // of each pod through a stage, queue, decide and bind as one
	healthy   map[string]float64 // what a pod takes in such a stage that is not lost, in seconds

	calibration *record.Calibration // nil where no healthy runs are known
	logged      map[string]map[string]Logged
	lateScrape  *time.Time // see scrapedAfter; nil until asked for
	paths       map[string]*functions.Spending
	features    map[string]float64
	rhythms     []spikes.Row
}

type process struct{ samples []record.ProcessSample }

// spell is CPU that was used between two times.
type spell struct {
	from, to   int64 // µs
	cpuSeconds float64
}

// NewView digests a recording. An error means that it could not be read, not
// that something is missing from it.
func NewView(src Source) (*View, error) {
	v := &View{Meta: src.Meta(), src: src, StagesOK: true}
	v.Observed, v.EndsBound = v.Meta.Observed(), v.Meta.Nodes.Seeded > 0
	if err := v.read(); err != nil {
		return nil, err
	}
	v.count()
	if err := v.accountClaims(); err != nil {
		return nil, err
	}
	v.accountStages()
	v.accountLatencies()
	v.accountLimits()
	v.accountResources()
	v.accountHarness()
	v.accountSlopes()
	if err := v.readCalibration(); err != nil {
		return nil, err
	}
	return v, v.err
}

func (v *View) read() error {
	pods, err := v.src.Pods()
	v.PodsWatched = err == nil && !slices.ContainsFunc(v.Meta.Gaps, func(g record.Gap) bool { return blindCollector(g) && g.Start.IsZero() })
	pods, v.HasPods, err = optional("pods", pods, err)
	if err != nil {
		return err
	}
	ops, err := v.src.Operations()
	ops, v.HasOperations, err = optional("operations", ops, err)
	if err != nil {
		return err
	}
	v.WarmUp = warmUp(v.Meta)
	steady := v.steadyPhases()
	window, hasWindow := v.loadPhases()
	for _, p := range pods {
		at := firstSet(p.DueMicros, p.CreatedMicros)
		if measured(steady, p.Phase, window, hasWindow, at) {
			v.Pods = append(v.Pods, p)
		}
	}
	// An operation is measured where it asks for pods: reading, deleting and
	// scaling down are load, not part of a pod's way to Running. That they were
	// sent counts all the same.
	for _, o := range ops {
		if !measured(steady, o.Phase, window, hasWindow, o.DueMicros) {
			continue
		}
		if o.Pods > 0 {
			v.Operations = append(v.Operations, o)
			continue
		}
		v.Counts.Requests++
		if v.Missed(&o) {
			v.Counts.Missed++
		}
	}
	sort.SliceStable(v.Pods, func(i, j int) bool {
		a, b := v.Pods[i], v.Pods[j]
		if a.CreatedMicros != b.CreatedMicros {
			return a.CreatedMicros < b.CreatedMicros
		}
		return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
	})
	v.setWindows(window, hasWindow)
	v.Rest = v.rest()

	all, err := v.src.Requests()
	all, v.HasRequests, err = optional("requests", all, err)
	if err != nil {
		return err
	}
	// Samples of a queue are no counts: what detectors reckon with must be all.
	if slices.ContainsFunc(all, func(r record.Request) bool { return r.Source == audit.SourceDump }) {
		all, v.HasRequests = nil, false
	}
	if byReceipt := func(a, b record.Request) int { return cmp.Compare(a.ReceivedMicros, b.ReceivedMicros) }; !slices.IsSortedFunc(all, byReceipt) {
		all = slices.Clone(all)
		slices.SortStableFunc(all, byReceipt)
	}
	v.selectRequests(all)
	v.checkRequests()
	v.accountRequests(all)
	v.accountPartings(all)

	samples, err := v.src.Processes()
	samples, v.HasProcesses, err = optional("processes", samples, err)
	if err != nil {
		return err
	}
	v.groupProcesses(samples)
	ends, err := v.src.Exits()
	if ends, v.hasEnds, err = optional("exits", ends, err); err != nil {
		return err
	}
	v.groupExits(ends)
	v.ends = slices.DeleteFunc(ends, func(e record.ProcessExit) bool { return e.Component == "" })
	machine, err := v.src.MachineSamples()
	v.machine, v.HasMachine, err = optional("machine", machine, err)
	if err != nil {
		return err
	}
	cores, err := v.src.Cores()
	if v.cores, _, err = optional("cores", cores, err); err != nil {
		return err
	}
	v.machine = slices.Clone(v.machine)
	slices.SortFunc(v.machine, func(a, b record.MachineSample) int {
		return int(min(max(a.TimeMicros-b.TimeMicros, -1), 1))
	})
	return nil
}

// selectRequests takes those of the load and those at rest out of all, which stay
// where they are: a long run has hundreds of thousands.
func (v *View) selectRequests(all []record.Request) {
	from := func(late func(at time.Time) bool) int {
		return sort.Search(len(all), func(i int) bool { return late(time.UnixMicro(all[i].ReceivedMicros)) })
	}
	a := from(func(at time.Time) bool { return !at.Before(v.Load.Start) })
	b := max(a, from(func(at time.Time) bool { return at.After(v.Load.End) }))
	v.Requests = all[a:b:b]
	b = min(a, from(func(at time.Time) bool { return !at.Before(v.Rest.End) }))
	a = min(b, from(func(at time.Time) bool { return !at.Before(v.Rest.Start) }))
	v.RestRequests = all[a:b:b]
}

// warmUp is the phase in which a run ended before its load began; empty where it came
// to its load, or ended elsewhere.
func warmUp(m record.Meta) string {
	if m.Status == record.StatusComplete || loaded(m, forever) || len(m.Phases) == 0 {
		return ""
	}
	if last := m.Phases[len(m.Phases)-1]; last.Kind == record.PhaseWarmUp {
		return last.Name
	}
	return ""
}

// forever is later than any phase.
var forever = time.Unix(1<<40, 0)

// loadPhases is from the start of the first phase that is judged to the end of the
// last; false where there was none.
func (v *View) loadPhases() (record.Window, bool) {
	if v.WarmUp == "" {
		return v.src.Steady()
	}
	return v.Meta.Phases[len(v.Meta.Phases)-1].Window(), true
}

// measured says whether something belongs to the measured load. Without
// phases (a live cluster) the whole recording is the load.
func measured(steady map[string]bool, phase string, w record.Window, hasWindow bool, at int64) bool {
	if phase != "" && len(steady) > 0 {
		return steady[phase]
	}
	if !hasWindow {
		return true
	}
	return at != 0 && w.Contains(time.UnixMicro(at))
}

func firstSet(ts ...int64) int64 {
	for _, t := range ts {
		if t != 0 {
			return t
		}
	}
	return 0
}

// patience is for how long nothing has moved, at the least, when somebody ends a run
// because nothing moves.
const patience = 5 * time.Second

func (v *View) setWindows(steady record.Window, hasSteady bool) {
	var start, end, moved int64
	var created, running []int64
	unfinished := 0
	for _, p := range v.Pods {
		moved = max(moved, p.CreatedMicros, p.BoundMicros, p.RunningMicros)
		if at := firstSet(p.DueMicros, p.SentMicros, p.CreatedMicros); at != 0 && (start == 0 || at < start) {
			start = at
		}
		end = max(end, v.arrived(p))
		if p.CreatedMicros != 0 {
			created = append(created, p.CreatedMicros)
		}
		if at := v.arrived(p); at != 0 {
			running = append(running, at)
		} else {
			unfinished++
		}
	}
	unsent := false
	for _, o := range v.Operations {
		if o.DueMicros != 0 && (start == 0 || o.DueMicros < start) {
			start = o.DueMicros
		}
		unsent = unsent || o.SentMicros == 0
	}
	v.Load = record.Window{Start: time.UnixMicro(start), End: time.UnixMicro(end)}
	// Whoever ends a run early has waited for the rest only where nothing moved any more.
	waited := v.Meta.Status != record.StatusInterrupted || hasSteady && steady.End.Sub(time.UnixMicro(moved)) >= patience
	never := v.neverCreated() && waited
	going := unsent && v.Meta.Status != record.StatusComplete // the load was not over when the run was
	if (unfinished > 0 || never || going || end == 0) && hasSteady && steady.End.After(v.Load.End) {
		v.Load.End = steady.End
	}
	if start == 0 || v.Observed && hasSteady {
		v.Load = steady
	}
	if n := len(v.Meta.Phases); start == 0 && !hasSteady && v.Meta.Status == record.StatusFailed && n > 0 {
		v.Unbegun, v.Load = true, record.Window{Start: v.Meta.Phases[0].Start, End: v.Meta.Phases[n-1].End}
	}
	v.Plateau = v.Load
	if len(created) >= 20 && len(running) >= 20 {
		slices.Sort(created)
		slices.Sort(running)
		a, b := created[len(created)/20], running[len(running)-1-len(running)/20]
		if b > a {
			v.Plateau = record.Window{Start: time.UnixMicro(a), End: time.UnixMicro(b)}
		}
		stuck := float64(unfinished) > many*float64(len(v.Pods)) && waited
		if never || stuck { // what holds those back is seen after the others have come
			v.Plateau.End = v.Load.End
		}
	}
}

// sec is a time of a table in seconds since Load.Start.
func (v *View) sec(micros int64) float64 {
	return float64(micros-v.Load.Start.UnixMicro()) / 1e6
}

// Replicas is how many API servers the control plane has; 0 is unknown.
func (v *View) Replicas() (n int) {
	for _, c := range v.Meta.Cluster.Components {
		if c.Name == APIServer {
			n++
		}
	}
	return n
}

// Span is the load window's length in seconds.
func (v *View) Span() float64 { return v.Load.Seconds() }

// Done is how many pods came to run per second, from the first one due to the
// last one running. Rate counts bindings only, which may be over long before.
func (v *View) Done() float64 {
	if v.Span() <= 0 {
		return 0
	}
	return float64(v.Arrived()) / v.Span()
}

// arrived is when a pod's way was over; 0: never.
func (v *View) arrived(p record.Pod) int64 { return v.Meta.Nodes.Arrived(p) }

// Arrived is how many pods came to the end of their way.
func (v *View) Arrived() int {
	if v.EndsBound {
		return v.Counts.Bound
	}
	return v.Counts.Running
}

// brink is the last of a run that ends early: what is due then may find nobody.
const brink = time.Second

// Missed says whether the generator did not send a request that was due before the
// run was over, by its own end or by another's.
func (v *View) Missed(o *record.Operation) bool {
	if o.SentMicros != 0 {
		return false
	}
	w, ok := v.loadPhases()
	return v.Meta.Status == record.StatusComplete || !ok || o.DueMicros <= w.End.Add(-brink).UnixMicro()
}

func (v *View) count() {
	c := &v.Counts
	for _, o := range v.Operations {
		c.Requests++
		c.Expected += int(o.Pods)
		switch {
		case v.Missed(&o):
			c.Missed++
		case o.SentMicros == 0: // the run was over before
		case o.Error != "" || o.Code >= 400:
			c.Errors++
		}
	}
	if v.Meta.Workload.ExpectedPods > 0 && v.WarmUp == "" {
		c.Expected = v.Meta.Workload.ExpectedPods
	}
	for _, p := range v.Pods {
		if p.CreatedMicros != 0 {
			c.Seen++
		}
		if p.BoundMicros != 0 {
			c.Bound++
		}
		switch {
		case p.RunningMicros != 0:
			c.Running++
		case v.arrived(p) != 0:
		case p.CreatedMicros != 0:
			c.Stuck++
			if p.FailedReason != "" {
				c.Failed++
			}
		}
	}
	if !v.HasOperations && v.Meta.Workload.ExpectedPods == 0 {
		c.Expected = c.Seen // a live cluster: nobody announced anything
	}
	c.Lost = max(0, c.Expected-c.Seen)
}

// checkRequests compares the log of requests with the watch, two independent
// witnesses of the same bindings. Audit in batch mode drops events when its
// buffer is full; a log with holes must not be counted.
func (v *View) checkRequests() {
	if !v.HasRequests {
		return
	}
	bindings, bound := 0, 0
	for _, r := range v.Requests {
		if r.Resource == "pods" && r.Subresource == "binding" && r.Code < 300 {
			bindings++
		}
	}
	for _, p := range v.Pods {
		// Requests are those of the load; what came after it is not among them.
		if p.BoundMicros != 0 && !bornBound(&p) && !time.UnixMicro(p.BoundMicros).After(v.Load.End) {
			bound++
		}
	}
	if float64(bindings) < 0.98*float64(bound) {
		v.Warnings = append(v.Warnings, fmt.Sprintf("the log of requests holds %d bindings of the %d that the watch saw; it has holes and is not used", bindings, bound))
		v.HasRequests, v.Requests, v.RestRequests = false, nil, nil
	}
}

// bornBound says whether the watch first showed a pod with its node: its creator had
// chosen it, and no scheduler was asked.
func bornBound(p *record.Pod) bool { return p.BoundMicros != 0 && p.BoundMicros == p.CreatedMicros }

// Unserved is the node that the most pods came with, past the scheduler, of those on
// which no pod of the load ever ran, and how many these pods are.
func (v *View) Unserved() (node string, pods int) {
	chosen, serves := map[string]int{}, map[string]bool{}
	for i := range v.Pods {
		p := &v.Pods[i]
		if bornBound(p) {
			chosen[p.Node]++
		}
		if p.RunningMicros != 0 {
			serves[p.Node] = true
		}
	}
	for name, n := range chosen {
		if !serves[name] && (n > pods || n == pods && name < node) {
			node, pods = name, n
		}
	}
	return node, pods
}

// ThinRequests empties what of a request no part of a diagnosis reads, and says
// whether any part reads the rest: what came before the rest ahead of the load
// tells only who lists and watches. Times are cut to tenths of a millisecond,
// which no part reads either and which are most of a table's size. What the harness
// asked for is not looked at by name, but for nodes' reports and what they delete.
func ThinRequests(m record.Meta) func(*record.Request) bool {
	var from time.Time
	for _, p := range m.Phases {
		if p.Kind == record.PhaseSettle && !loaded(m, p.Start) {
			from = p.Start
		}
	}
	return func(r *record.Request) bool {
		thinRequest(r)
		return r.Verb == "list" || r.Verb == "watch" || !time.UnixMicro(r.ReceivedMicros).Before(from)
	}
}

// loaded says whether the measured load had begun by then.
func loaded(m record.Meta, by time.Time) bool {
	return slices.ContainsFunc(m.Phases, func(p record.Phase) bool { return p.Kind == record.PhaseSteady && !p.Start.After(by) })
}

func thinRequest(r *record.Request) {
	if !isStatusReport(r) && !isParting(r) && harnessAgent(r.UserAgent) {
		r.User, r.URI, r.Group, r.Name, r.Namespace = "", "", "", "", ""
	}
	r.ServerMicros, r.EtcdMicros, r.ResponseBytes = -1, -1, -1
	if r.RequestBytes > 0 {
		r.RequestBytes -= r.RequestBytes % 1000
	}
	for _, waited := range []*int64{&r.QueueMicros, &r.WebhookMicros, &r.AuthenticationMicros, &r.AuthorizationMicros} {
		if *waited > 0 {
			*waited -= *waited % 1000
		}
	}
	const grain = 100
	took := (r.DoneMicros - r.ReceivedMicros + grain - 1) / grain * grain
	r.ReceivedMicros -= r.ReceivedMicros % grain
	if r.DoneMicros != 0 {
		r.DoneMicros = r.ReceivedMicros + took
	}
}

// metricWindow is the load and one scrape more, so that the last seconds' work
// is not lost; what runs idle in that time adds almost nothing to a sum.
func (v *View) metricWindow() record.Window {
	tail := regularScrape
	for _, o := range v.Meta.Collectors {
		if o.Name == "metrics" && o.IntervalSeconds > 0 {
			tail = time.Duration(o.IntervalSeconds * float64(time.Second))
		}
	}
	w := record.Window{Start: v.Load.Start, End: v.Load.End.Add(tail)}
	if v.lateScrape == nil {
		at := v.scrapedAfter()
		v.lateScrape = &at
	}
	if v.lateScrape.After(w.End) {
		w.End = *v.lateScrape
	}
	return w
}

// latestScrape is how long after the load a scrape of it may come.
const latestScrape = 20 * time.Second

// scrapedAfter is when the API server was scraped first after the load, where that was
// later than it was due: one that is too busy to answer tells of the load afterwards. It
// is zero where nobody knows.
func (v *View) scrapedAfter() time.Time {
	for _, s := range v.points(APIServer, "go_sched_gomaxprocs_threads", nil, record.Window{Start: v.Load.End, End: v.Load.End.Add(latestScrape)}) {
		for _, p := range s.Points {
			if !p.Time.Before(v.Load.End) {
				return p.Time
			}
		}
	}
	return time.Time{}
}

// Stage is the accounting of one stage, or of Scheduling.
func (v *View) Stage(name string) Stage {
	if name == Scheduling {
		return v.Together
	}
	for _, s := range v.Stages {
		if s.Name == name {
			return s
		}
	}
	return Stage{Name: name}
}

// Excess is a stage's lost pod-seconds, 0 where unknown.
func (v *View) Excess(stage string) float64 {
	if s := v.Stage(stage); s.ExcessSeconds != nil {
		return *s.ExcessSeconds
	}
	return 0
}

// Known says whether a stage was measured.
func (v *View) Known(stage string) bool { return v.Stage(stage).WaitSeconds != nil }

// Waiting is how many pods waited in a stage at a time, on average over the load.
// known is false where the stage was not measured.
func (v *View) Waiting(stage string) (pods float64, known bool) {
	s := v.Stage(stage)
	if s.WaitSeconds == nil || v.Span() <= 0 {
		return 0, false
	}
	return *s.WaitSeconds / v.Span(), true
}

// LostStages are the stages that lost time, largest first, queue, decide and
// bind as one where they could not be told apart.
func (v *View) LostStages() []Stage {
	all := slices.Clone(v.Stages)
	if !v.Known(Bind) && v.Together.WaitSeconds != nil {
		all = append(all, v.Together)
	}
	var lost []Stage
	for _, s := range all {
		if s.ExcessSeconds != nil && *s.ExcessSeconds > 0 {
			lost = append(lost, s)
		}
	}
	slices.SortStableFunc(lost, func(a, b Stage) int {
		switch {
		case *a.ExcessSeconds > *b.ExcessSeconds:
			return -1
		case *a.ExcessSeconds < *b.ExcessSeconds:
			return 1
		}
		return 0
	})
	return lost
}

// Symptom says whether pods waited enough for anything to be a bottleneck. A
// run may keep every resource busy and still hold nobody up.
func (v *View) Symptom() bool {
	n := float64(max(1, v.Counts.Seen))
	return v.Lost.PodSeconds >= symptomShare*v.Lost.TotalPodSeconds && v.Lost.PodSeconds/n >= symptomMean
}

// Felt is Symptom where a counter says that a component was stopped: then less waiting
// is no accident.
func (v *View) Felt() bool {
	n := float64(max(1, v.Counts.Seen))
	return v.Lost.PodSeconds >= symptomShare*v.Lost.TotalPodSeconds && v.Lost.PodSeconds/n >= feltMean
}

// The symptom gate. A stage share of 10 % is the floor of research/faults.md
// 3.5; half a second a pod on average is below what a user notices in a pod
// start and above the jitter of a busy two-core machine.
const (
	symptomShare = 0.10
	symptomMean  = 0.5
	feltMean     = 0.2
)

// Component is the configuration of the first process of that name.
func (v *View) Component(name string) (record.Component, bool) {
	for _, c := range v.Meta.Cluster.Components {
		if c.Name == name {
			return c, true
		}
	}
	return record.Component{}, false
}

// Quota is the CPU quota of a component's processes together, in cores. ok is
// false where there is none.
func (v *View) Quota(component string) (cores float64, ok bool) {
	for _, c := range v.Meta.Cluster.Components {
		if c.Name == component && c.CPU > 0 {
			cores += c.CPU
			ok = true
		}
	}
	return cores, ok
}

// Flag is the value of a component's command-line flag, without dashes in its
// name. known is false where the component's flags were not recorded at all.
func (v *View) Flag(component, flag string) (value string, set, known bool) {
	c, ok := v.Component(component)
	if !ok || (len(c.Args) == 0 && len(c.Flags) == 0) {
		return "", false, false
	}
	// The last one wins, as on the command line.
	for i := len(c.Args) - 1; i >= 0; i-- {
		name, x, has := strings.Cut(strings.TrimLeft(c.Args[i], "-"), "=")
		if name != flag || !strings.HasPrefix(c.Args[i], "-") {
			continue
		}
		if !has && i+1 < len(c.Args) {
			x = c.Args[i+1]
		}
		return x, true, true
	}
	for _, name := range []string{flag, "-" + flag, "--" + flag} {
		if x, ok := c.Flags[name]; ok {
			return x, true, true
		}
	}
	return "", false, true
}

// IsHarness says whether a component belongs to us.
func (v *View) IsHarness(component string) bool {
	switch component {
	case Load, Hollow, Self, Keeper:
		return true
	}
	c, ok := v.Component(component)
	return ok && c.Harness
}

// accountLimits finds the client-side limits in force. Defaults are those of
// the components' own code: pkg/controller/apis/config/v1alpha1/defaults.go
// (20/30, per controller) and pkg/scheduler/apis/config/v1/defaults.go
// (50/100).
func (v *View) accountLimits() {
	for _, d := range []Limit{
		{Component: ControllerManager, QPS: 20, Burst: 30},
		{Component: Scheduler, QPS: 50, Burst: 100},
	} {
		v.Limits = append(v.Limits, v.limit(d))
	}
}

func (v *View) limit(d Limit) Limit {
	d.Source = "default"
	qps, set, known := v.Flag(d.Component, "kube-api-qps")
	if !known {
		return Limit{Component: d.Component, Source: "unknown"}
	}
	// The scheduler ignores these flags once it has a configuration file,
	// whose content is not in the recording.
	if file, _, _ := v.Flag(d.Component, "config"); file != "" {
		return Limit{Component: d.Component, Source: "unknown"}
	}
	if x, err := strconv.ParseFloat(qps, 64); set && err == nil {
		d.QPS, d.Source = x, "flag"
	}
	if burst, set, _ := v.Flag(d.Component, "kube-api-burst"); set {
		if x, err := strconv.ParseFloat(burst, 64); err == nil {
			d.Burst, d.Source = x, "flag"
		}
	}
	if d.QPS == 0 {
		d.QPS, d.Burst = 5, 10 // client-go's own default, rest.DefaultQPS
	}
	return d
}

// Limit is the client-side limit of a component.
func (v *View) Limit(component string) Limit {
	for _, l := range v.Limits {
		if l.Component == component {
			return l
		}
	}
	return Limit{Component: component, Source: "unknown"}
}

// DefaultLimit is what a component limits itself to when nobody set anything.
func DefaultLimit(component string) float64 {
	if component == Scheduler {
		return 50
	}
	return 20
}

func (v *View) accountLatencies() {
	if v.EndsBound {
		v.accountScheduling()
		return
	}
	var startup, intent []float64
	missingStartup, missingIntent := 0, v.Counts.Lost
	var bound []float64
	for _, p := range v.Pods {
		if p.BoundMicros != 0 {
			bound = append(bound, v.sec(p.BoundMicros))
		}
		switch {
		case p.CreatedMicros == 0:
		case p.RunningMicros == 0:
			missingStartup++
		default:
			startup = append(startup, float64(p.RunningMicros-p.CreatedMicros)/1e6)
		}
		switch {
		case p.DueMicros == 0:
		case p.RunningMicros == 0 && p.CreatedMicros != 0:
			missingIntent++
		case p.RunningMicros != 0:
			intent = append(intent, float64(p.RunningMicros-p.DueMicros)/1e6)
		}
	}
	v.Latencies = Latencies{
		PodStartup: latencyOf(startup, missingStartup),
		Intent:     latencyOf(intent, missingIntent),
	}
	v.accountThroughput(bound)
}

// accountThroughput samples the times of bindings.
func (v *View) accountThroughput(bound []float64) {
	if t, ok := stat.ThroughputOf(bound); ok {
		v.Throughput, v.Rate = &t, t.Mean
	} else if v.Span() > 0 {
		v.Rate = float64(len(bound)) / v.Span() // too short for more than that
	}
	if t, ok := stat.SchedulerPerfOf(bound); ok {
		v.SchedulerPerf = &t
	}
}

func latencyOf(xs []float64, missing int) LatencyOf {
	slices.Sort(xs)
	l := LatencyOf{N: len(xs) + missing, Incomplete: missing, sorted: xs}
	at := func(q float64) *float64 {
		if !stat.Carries(l.N, q) {
			return nil
		}
		rank := max(1, int(math.Ceil(float64(l.N)*q-1e-9)))
		if rank > len(xs) {
			return nil // it never arrived
		}
		return &xs[rank-1]
	}
	l.P50, l.P90, l.P99 = at(0.5), at(0.9), at(0.99)
	if missing == 0 {
		l.Max = at(1)
	}
	return l
}

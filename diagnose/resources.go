package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// shortest is the shortest stretch in seconds over which busy time is judged:
// samples come once a second, and two of them bound one interval.
const shortest = 3

func (v *View) groupProcesses(samples []record.ProcessSample) {
	type id struct {
		component string
		pid       int32
		start     int64
	}
	byID := map[id][]record.ProcessSample{}
	var order []id
	for _, s := range samples {
		k := id{s.Component, s.PID, s.StartMicros}
		if byID[k] == nil {
			order = append(order, k)
		}
		byID[k] = append(byID[k], s)
	}
	v.processes, v.others = map[string][]process{}, map[string][]process{}
	for _, k := range order {
		ss := byID[k]
		slices.SortFunc(ss, func(a, b record.ProcessSample) int {
			return int(min(max(a.TimeMicros-b.TimeMicros, -1), 1))
		})
		if k.component == "" {
			name := spikes.Normal(ss[len(ss)-1].Command)
			v.others[name] = append(v.others[name], process{ss})
			continue
		}
		v.processes[k.component] = append(v.processes[k.component], process{ss})
	}
}

// groupExits notes what samples do not show of a component's processes: those that
// lived between two of them, and the CPU of others before the first and after
// the last.
func (v *View) groupExits(ends []record.ProcessExit) {
	v.brief = map[string][]spell{}
	type id struct {
		component string
		pid       int32
	}
	seen := map[id][]process{} // a PID may have been used again
	for c, ps := range v.processes {
		for _, p := range ps {
			k := id{c, p.samples[0].PID}
			seen[k] = append(seen[k], p)
		}
	}
	for _, e := range ends {
		if e.Component == "" {
			continue
		}
		add := func(from, to int64, cpu float64) {
			if cpu > 0 {
				v.brief[e.Component] = append(v.brief[e.Component], spell{min(from, to-1), to, cpu})
			}
		}
		all := e.UserSeconds + e.SystemSeconds
		same := seen[id{e.Component, e.PID}]
		i := slices.IndexFunc(same, func(p process) bool { return e.Ends(p.samples[0]) })
		if i < 0 {
			add(e.StartMicros, e.TimeMicros, all)
			continue
		}
		ss := same[i].samples
		first, last := ss[0], ss[len(ss)-1]
		if e.StartMicros >= v.Meta.Started.UnixMicro() { // under our eyes
			add(e.StartMicros, first.TimeMicros, first.UserSeconds+first.SystemSeconds)
		}
		if e.TimeMicros > last.TimeMicros {
			add(last.TimeMicros, e.TimeMicros, all-last.UserSeconds-last.SystemSeconds)
		}
	}
}

// Components are the names of all processes seen, sorted.
func (v *View) Components() []string {
	var names []string
	for c := range v.processes {
		names = append(names, c)
	}
	sort.Strings(names)
	return names
}

// CPU is the CPU-seconds that a component used in the window, with those of its
// children that no sample shows.
func (v *View) CPU(component string, w record.Window) (float64, bool) {
	sum, ok := v.counter(component, w, func(s record.ProcessSample) float64 { return s.UserSeconds + s.SystemSeconds })
	for _, s := range v.brief[component] {
		if part := min(s.to, w.End.UnixMicro()) - max(s.from, w.Start.UnixMicro()); part > 0 {
			sum += s.cpuSeconds * float64(part) / float64(s.to-s.from)
			ok = true
		}
	}
	return sum, ok
}

// Throttled is how long a component's quota stopped it in the window, and in
// which share of the quota's periods it did.
func (v *View) Throttled(component string, w record.Window) (seconds, periods float64, ok bool) {
	for _, p := range v.processes[component] {
		if !slices.ContainsFunc(p.samples, func(s record.ProcessSample) bool { return s.Periods >= 0 }) {
			return 0, 0, false
		}
	}
	seconds, ok = v.counter(component, w, func(s record.ProcessSample) float64 { return s.ThrottledSeconds })
	if !ok {
		return 0, 0, false
	}
	hit, _ := v.counter(component, w, func(s record.ProcessSample) float64 { return float64(s.ThrottledPeriods) })
	all, _ := v.counter(component, w, func(s record.ProcessSample) float64 { return float64(s.Periods) })
	if all > 0 {
		periods = hit / all
	}
	return seconds, periods, true
}

// GroupStopped are the components, the harness' left out, that a quota which is not
// their own stopped in at least a share of its periods during the plateau: they share
// it. most is the largest such share; counted is false where no cgroup told.
func (v *View) GroupStopped(least float64) (names []string, most float64, counted bool) {
	for _, c := range v.Components() {
		if _, own := v.Quota(c); own || v.IsHarness(c) {
			continue
		}
		_, share, ok := v.Throttled(c, v.Plateau)
		counted = counted || ok
		if ok && share >= least {
			names, most = append(names, c), max(most, share)
		}
	}
	return names, most, counted
}

// Concerns says whose starvation holds up which stage: everything passes the API
// server and etcd, the others only have their own.
func Concerns(component, stage string) bool {
	switch component {
	case ControllerManager:
		return stage == Controller
	case Scheduler:
		return stage == Queue || stage == Decide || stage == Bind || stage == Scheduling
	}
	return true
}

// counter is how much the processes of a component added in the window to what only
// grows. Samples that do not know it have -1, and are passed over.
func (v *View) counter(component string, w record.Window, of func(record.ProcessSample) float64) (sum float64, ok bool) {
	for _, p := range v.processes[component] {
		times := make([]int64, 0, len(p.samples))
		values := make([]float64, 0, len(p.samples))
		for _, s := range p.samples {
			if x := of(s); x >= 0 {
				times, values = append(times, s.TimeMicros), append(values, x)
			}
		}
		if d, has := difference(times, values, w); has {
			sum += d
			ok = true
		}
	}
	return sum, ok
}

// difference is a counter's growth over the window, straight between samples.
// A process that started or ended inside counts for the part it was seen.
func difference(times []int64, values []float64, w record.Window) (float64, bool) {
	if len(times) < 2 {
		return 0, false
	}
	a, b := w.Start.UnixMicro(), w.End.UnixMicro()
	if b <= times[0] || a >= times[len(times)-1] {
		return 0, false
	}
	return stat.Interpolate(times, values, b) - stat.Interpolate(times, values, a), true
}

// Local says whether the control plane ran on the machine that was recorded.
// With an existing cluster the recorded machine is only the harness's.
func (v *View) Local() bool {
	return v.Meta.Cluster.Kind != "existing" || len(v.processes[APIServer]) > 0
}

// AuditsEvents says whether the audit log holds requests for Events at all;
// policies often leave them out, and a client's stream then has holes.
func (v *View) AuditsEvents() bool {
	return slices.ContainsFunc(v.Requests, func(r record.Request) bool { return r.Resource == "events" })
}

// MachineUse is the machine's CPU over a window.
type MachineUse struct {
	Busy   float64 // CPU-seconds, user and system
	Steal  float64 // CPU-seconds that the hypervisor took
	Total  float64 // CPU-seconds that there were, without steal
	Share  float64 // Busy of Total
	IOWait float64
}

// MachineCPU is what the control plane's machine did in the window. ok is false
// where it was not recorded, or for less than 3 s: a share of one sample is no
// share.
func (v *View) MachineCPU(w record.Window) (u MachineUse, ok bool) {
	if !v.HasMachine || !v.Local() || w.Seconds() < shortest || v.Meta.Machine.CPUs == 0 {
		return u, false
	}
	times := make([]int64, len(v.machine))
	col := func(of func(record.MachineSample) float64) float64 {
		values := make([]float64, len(v.machine))
		for i, s := range v.machine {
			times[i], values[i] = s.TimeMicros, of(s)
		}
		d, has := difference(times, values, w)
		ok = has
		return d
	}
	u.Busy = col(func(s record.MachineSample) float64 { return s.User + s.System })
	u.Steal = col(func(s record.MachineSample) float64 { return s.Steal })
	u.IOWait = col(func(s record.MachineSample) float64 { return s.IOWait })
	if !ok {
		return MachineUse{}, false
	}
	u.Total = w.Seconds()*float64(v.Meta.Machine.CPUs) - u.Steal
	if u.Total <= 0 {
		return MachineUse{}, false
	}
	u.Share = min(1, u.Busy/u.Total)
	return u, true
}

// FullSpans are the stretches in which the machine's CPUs were full: all of 3 s that
// were at least 90 % busy, joined. Work that comes in bursts fills a machine that is idle
// between them, which no mean tells.
func (v *View) FullSpans() (spans []record.Window) {
	if !v.HasMachine || !v.Local() || v.Meta.Machine.CPUs == 0 {
		return nil
	}
	to := 0
	for _, a := range v.machine {
		for to < len(v.machine) && v.machine[to].TimeMicros-a.TimeMicros < (shortest-early)*1e6 {
			to++
		}
		if to == len(v.machine) {
			break
		}
		b := v.machine[to]
		total := float64(b.TimeMicros-a.TimeMicros)/1e6*float64(v.Meta.Machine.CPUs) - (b.Steal - a.Steal)
		if total <= 0 || b.User+b.System-a.User-a.System < saturated*total {
			continue
		}
		span := record.Window{Start: time.UnixMicro(a.TimeMicros), End: time.UnixMicro(b.TimeMicros)}
		if last := len(spans) - 1; last >= 0 && !span.Start.After(spans[last].End) {
			spans[last].End = span.End
		} else {
			spans = append(spans, span)
		}
	}
	return spans
}

// CPUUse is what one CPU of the machine did.
type CPUUse struct {
	CPU   int32
	Share float64 // busy, of what a hypervisor left
}

// EachCPU is MachineCPU for each CPU of the machine, by number.
func (v *View) EachCPU(w record.Window) (uses []CPUUse, ok bool) {
	if len(v.cores) == 0 || !v.Local() || w.Seconds() < shortest {
		return nil, false
	}
	type series struct {
		times        []int64
		steal, spare []float64
	}
	of := map[int32]*series{}
	for _, s := range v.cores { // sorted by time
		c := of[s.CPU]
		if c == nil {
			c = &series{}
			of[s.CPU] = c
		}
		c.times = append(c.times, s.TimeMicros)
		c.steal = append(c.steal, s.StealSeconds)
		c.spare = append(c.spare, s.IdleSeconds+s.IOWaitSeconds)
	}
	for cpu, c := range of {
		steal, okSteal := difference(c.times, c.steal, w)
		spare, okSpare := difference(c.times, c.spare, w)
		total := w.Seconds() - steal
		if !okSteal || !okSpare || total <= 0 {
			return nil, false
		}
		uses = append(uses, CPUUse{CPU: cpu, Share: min(1, max(0, 1-spare/total))})
	}
	slices.SortFunc(uses, func(a, b CPUUse) int { return cmp.Compare(a.CPU, b.CPU) })
	return uses, true
}

// foreignShare of the machine's CPU used by others is worth a word: kernel
// threads and interrupts, which belong to nobody, stay below it.
const foreignShare = 0.15

// Foreign are the CPU-seconds that processes outside of this run used.
func (v *View) Foreign(w record.Window) (seconds float64, ok bool) {
	m, ok := v.MachineCPU(w)
	if !ok || len(v.processes[APIServer]) == 0 {
		return 0, false
	}
	own := 0.0
	for _, c := range v.Components() {
		if x, has := v.CPU(c, w); has {
			own += x
		}
	}
	return max(0, m.Busy-own), true
}

// rest is the last idle phase before the load; one ahead of the nodes says
// nothing of them.
func (v *View) rest() (w record.Window) {
	for _, p := range v.Meta.Phases {
		if p.Kind == record.PhaseSettle && !p.End.After(v.Load.Start.Add(time.Second)) && p.Window().Seconds() >= shortest {
			w = p.Window()
		}
	}
	return w
}

// idleRates are the CPUs busy before the load, by component and for the
// machine: leases, scrapes and watches go on under load too, and are no pod's
// demand. Without an idle phase of 3 s they are unknown and count as 0.
func (v *View) idleRates() {
	v.idle = map[string]float64{}
	w := v.Rest
	if w.Seconds() < shortest {
		return
	}
	for _, c := range v.Components() {
		if x, ok := v.CPU(c, w); ok {
			v.idle[c] = x / w.Seconds()
		}
	}
	if m, ok := v.MachineCPU(w); ok {
		foreign, _ := v.Foreign(w)
		v.idle[Machine] = (m.Busy - foreign) / w.Seconds()
	}
}

// AtRest is how many CPUs a component, or the machine's run, used before the load.
// Where that is much, what a pod costs is a guess, for nobody knows how much of it
// goes on under load: much is said then.
func (v *View) AtRest(component string) (cpus float64, much bool) {
	cpus = v.idle[component]
	return cpus, cpus >= restless*float64(v.Meta.Machine.CPUs)
}

// accountResources works out, for each resource, its busy time, its demand per
// pod and so the most it could carry (the utilisation law: X ≤ servers/demand).
func (v *View) accountResources() {
	v.idleRates()
	n := float64(v.Arrived())
	span := v.Span()
	if n == 0 || span <= 0 {
		return
	}
	add := func(r Resource) {
		if r.Bound > 0 && v.Rate > 0 {
			r.Reached = v.Rate / r.Bound
		}
		v.Resources = append(v.Resources, r)
	}
	cpu := func(name, component string, busy, own, servers, utilisation float64, note string) {
		r := Resource{Name: name, Component: component, Kind: "cpu", BusySeconds: busy, Servers: servers, Utilisation: utilisation, Note: note}
		idle := min(v.idle[component], 0.9*servers)
		r.Demand = max(0, own-idle*span) / n
		if r.Demand > 0 {
			r.Bound = (servers - idle) / r.Demand
		}
		if idle >= restless*servers {
			text := fmt.Sprintf("%.0f %% busy before the load: what of that goes on under load is not known, so the bound is a guess", 100*v.idle[component]/servers)
			r.Note = strings.TrimPrefix(r.Note+"; "+text, "; ")
		}
		add(r)
	}
	if whole, ok := v.MachineCPU(v.Load); ok {
		u := whole.Share
		note := ""
		if p, ok := v.MachineCPU(v.Plateau); ok {
			u = p.Share
			if p.Steal > 0.1*(p.Total+p.Steal) {
				note = fmt.Sprintf("the hypervisor took %.0f %% of the CPU", 100*p.Steal/(p.Total+p.Steal))
			}
		}
		// A pod's demand is what the run's own processes used. Whatever else
		// runs on the machine is no pod's cost, and its share of the CPU is
		// not for ever lost: the bound is for the machine to itself.
		own := whole.Busy
		if foreign, ok := v.Foreign(v.Load); ok {
			own -= foreign
			if foreign >= foreignShare*whole.Total {
				text := fmt.Sprintf("processes that do not belong to this run used %.0f %% of the machine's CPU", 100*foreign/whole.Total)
				v.Warnings = append(v.Warnings, text)
				note = strings.TrimPrefix(note+"; "+text, "; ")
			}
		}
		cpu("cpu of machine", Machine, whole.Busy, own, whole.Total/span, u, note)
	}
	for _, c := range v.Components() {
		busy, ok := v.CPU(c, v.Load)
		if !ok {
			continue
		}
		servers, note := float64(v.Meta.Machine.CPUs), ""
		if q, has := v.CPULimit(c); has {
			servers, note = q, fmt.Sprintf("held to %g CPU", q)
		}
		if servers == 0 {
			continue
		}
		u := busy / (span * servers)
		if p, ok := v.CPU(c, v.Plateau); ok && v.Plateau.Seconds() >= shortest {
			u = p / (v.Plateau.Seconds() * servers)
		}
		cpu("cpu of "+c, c, busy, busy, servers, min(u, 1), note)
	}
	v.accountGroup(cpu)
	// Counters are read over the whole load, so that a scrape at the edge does
	// not matter; what they count happens while pods are on their way.
	single := func(name, component, kind, metric string, match map[string]string, servers float64, note string) {
		busy, ok := v.Increase(component, metric, match)
		if !ok || busy <= 0 {
			return
		}
		r := Resource{Name: name, Component: component, Kind: kind, BusySeconds: busy, Servers: servers,
			Utilisation: min(1, busy/(v.Plateau.Seconds()*servers)), Demand: busy / n, Note: note}
		r.Bound = servers / r.Demand
		add(r)
	}
	single("scheduling loop", Scheduler, "loop", "scheduler_scheduling_algorithm_duration_seconds_sum", nil, 1, "one pod at a time")
	if busy, ok := v.Increase(Etcd, "etcd_disk_wal_fsync_duration_seconds_sum", nil); ok && busy > 0 {
		// Other writes than pods' go on all the time, so the share is of the
		// whole stretch that was read.
		add(Resource{Name: "WAL sync of etcd", Component: Etcd, Kind: "disk", BusySeconds: busy, Servers: 1, Demand: busy / n,
			Utilisation: min(1, busy/v.metricWindow().Seconds()), Note: "one sync carries all writes that wait, so no bound follows from it"})
	}
	single("replicaset workers", ControllerManager, "workers", "workqueue_work_duration_seconds_sum", map[string]string{"name": ReplicaSets.Queue}, ReplicaSets.Workers(v), "a worker waits in the client limiter too")

	for _, s := range v.Streams() {
		l := v.Limit(s.Program)
		if l.QPS <= 0 {
			continue
		}
		// Only clients that create or bind are on a pod's way.
		if float64(max(len(s.Creates), len(s.Bindings))) < 0.5*n {
			continue
		}
		demand := float64(len(s.Times)) / n
		r := Resource{Name: "client limit of " + s.Name(), Component: s.Program, Kind: "client-limit", BusySeconds: float64(len(s.Times)) / l.QPS,
			Servers: 1, Demand: demand, Bound: l.QPS / demand, Note: fmt.Sprintf("%g requests/s, burst %g (%s)", l.QPS, l.Burst, l.Source)}
		if p, ok := stat.PlateauOf(s.Times, int(l.Burst)); ok {
			r.Utilisation = min(1, p.Rate/l.QPS)
		}
		add(r)
	}
	if !v.HasRequests {
		v.assumeLimits(add)
	}
	sort.SliceStable(v.Resources, func(i, j int) bool {
		return bound(v.Resources[i]) < bound(v.Resources[j])
	})
}

// Group is whose resource the CPU quota is that the control plane's components share.
const Group = "control plane"

// accountGroup gives the quota that the components have together to cpu, where
// the recording knows of one.
func (v *View) accountGroup(cpu func(name, component string, busy, own, servers, utilisation float64, note string)) {
	quota := v.Meta.Cluster.CPU
	if quota <= 0 {
		return
	}
	busy, plateau, idle := 0.0, 0.0, 0.0
	for _, c := range []string{Etcd, APIServer, ControllerManager, Scheduler} {
		x, _ := v.CPU(c, v.Load)
		p, _ := v.CPU(c, v.Plateau)
		busy, plateau, idle = busy+x, plateau+p, idle+v.idle[c]
	}
	if busy == 0 {
		return
	}
	v.idle[Group] = idle
	used := busy / (v.Span() * quota)
	if s := v.Plateau.Seconds(); s >= shortest {
		used = plateau / (s * quota)
	}
	cpu("cpu quota of the "+Group, Group, busy, busy, quota, min(used, 1), fmt.Sprintf("%g CPU together", quota))
}

// assumeLimits stands in for the streams where there is no audit log: one
// request a pod is the least that a controller and the scheduler send.
func (v *View) assumeLimits(add func(Resource)) {
	for _, l := range v.Limits {
		if l.QPS <= 0 || l.Component == ControllerManager && v.Meta.Workload.Controller == "" {
			continue
		}
		add(Resource{Name: "client limit of " + l.Component, Component: l.Component, Kind: "client-limit", Servers: 1, Demand: 1,
			Bound: l.QPS, Utilisation: min(1, v.Rate/l.QPS), Note: fmt.Sprintf("%g requests/s, burst %g (%s); no audit log: one request a pod assumed", l.QPS, l.Burst, l.Source)})
	}
}

func bound(r Resource) float64 {
	if r.Bound <= 0 {
		return math.Inf(1)
	}
	return r.Bound
}

// Resource finds a resource by component and kind.
func (v *View) Resource(component, kind string) (Resource, bool) {
	for _, r := range v.Resources {
		if r.Component == component && r.Kind == kind {
			return r, true
		}
	}
	return Resource{}, false
}

// saturated is the utilisation from which a resource counts as full. One
// second's samples of a busy machine wander by some per cent; a queue in front
// of a server at 0.9 is already nine times the service time.
const saturated = 0.9

// restless is the share of a CPU's time at rest from which a pod's demand, which is
// a difference to that, says little: a storm gives way to the load.
const restless = 0.25

// halfStopped is the share of a quota's periods from which being stopped is what
// a process does.
const halfStopped = 0.5

// Upstream names what is so busy that it alone may slow everything: the
// machine, or a component at its own quota. Empty where nothing is, or where
// it is unknown.
func (v *View) Upstream() string {
	if m, ok := v.MachineCPU(v.Plateau); ok && m.Share >= saturated {
		return fmt.Sprintf("the machine's CPU is %.0f %% busy", 100*m.Share)
	}
	for _, c := range v.Components() {
		if v.IsHarness(c) {
			continue
		}
		if u, _, ok := v.QuotaUse(c); ok && u >= saturated {
			return fmt.Sprintf("%s uses %.0f %% of its CPU quota", c, 100*u)
		}
		// A quota that nobody told us of, its container's or a group's, still
		// stops it.
		if _, stops, ok := v.Throttled(c, v.Plateau); ok && stops >= halfStopped {
			return fmt.Sprintf("%s was stopped by a CPU quota in %.0f %% of its periods", c, 100*stops)
		}
	}
	if v.Plateau.Seconds() < shortest {
		return v.fullBriefly()
	}
	return ""
}

// fullBriefly is Upstream of a load that is too short for a share to be a finding: to
// take no other cause's word for it, its few samples are enough.
func (v *View) fullBriefly() string {
	for _, r := range v.Resources {
		_, held := v.CPULimit(r.Component)
		if r.Kind == "cpu" && (r.Component == Machine || r.Component == Group || held && !v.IsHarness(r.Component)) && r.Utilisation >= saturated {
			return fmt.Sprintf("%s was %.0f %% busy", r.Name, 100*r.Utilisation)
		}
	}
	return ""
}

// CPULimit is what a component's process can use of the CPUs at most, in cores: its
// quota, or the threads that Go runs at a time (GOMAXPROCS), where these are fewer
// than the machine's CPUs. ok is false where it has all of them.
func (v *View) CPULimit(component string) (cores float64, ok bool) {
	cores, ok = v.Quota(component)
	if p, few := v.Processors(component); few && (!ok || p < cores) {
		cores, ok = p, true
	}
	return cores, ok
}

// Processors is how many threads of Go code a component runs at a time, where
// that is fewer than the machine has CPUs. Go sees a quota by itself, and may run
// a thread more than that allows.
func (v *View) Processors(component string) (n float64, fewer bool) {
	cpus := float64(v.Meta.Machine.CPUs)
	if cpus <= 0 || v.IsHarness(component) || !v.Local() {
		return 0, false
	}
	l, ok := v.Gauge(component, "go_sched_gomaxprocs_threads", nil, v.Load)
	return l.Max, ok && l.Max >= 1 && l.Max < cpus
}

// QuotaUse is the share of its own CPU quota, or other CPULimit, that a component
// used over the plateau, and the share of quota periods in which it was stopped.
func (v *View) QuotaUse(component string) (used, stopped float64, ok bool) {
	q, has := v.CPULimit(component)
	if !has || v.Plateau.Seconds() < shortest {
		return 0, 0, false
	}
	x, ok := v.CPU(component, v.Plateau)
	if !ok {
		return 0, 0, false
	}
	_, stopped, _ = v.Throttled(component, v.Plateau)
	return x / (q * v.Plateau.Seconds()), stopped, true
}

// NextBound is the lowest bound of the resources that except does not name.
func (v *View) NextBound(except func(Resource) bool) (Resource, bool) {
	for _, r := range v.Resources { // lowest first
		if r.Bound <= 0 || except(r) || v.IsHarness(r.Component) {
			continue
		}
		// A worker's time holds its waits in the limiter, and a limiter's
		// bound is one of the others: workers bound nothing by themselves here.
		if r.Kind == "workers" {
			continue
		}
		return r, true
	}
	return Resource{}, false
}

// A Stream is all requests of one client in the order of receipt, in seconds
// since Load.Start. All verbs of one client share one bucket.
type Stream struct {
	Program, Role string
	Times         []float64
	Creates       []float64 // of them: POST pods
	Bindings      []float64 // of them: POST pods/binding
}

// Name is the client's program, and its role within it.
func (s Stream) Name() string {
	if s.Role == "" {
		return s.Program
	}
	return s.Program + "/" + s.Role
}

// Agent is the short form of its user agent, by analysis/requests.Agent.
func (s Stream) Agent() string {
	if s.Role == "" {
		return s.Program
	}
	return s.Program + " … " + s.Role
}

// Streams are the clients seen by the audit log, by name. Watches are left
// out: the components open them through other clients.
func (v *View) Streams() []Stream {
	byName := map[string]*Stream{}
	for _, r := range v.Requests {
		if r.Verb == "watch" {
			continue
		}
		program, role := ParseUserAgent(r.UserAgent)
		// The scheduler sends Events through a second clientset with a bucket
		// of its own, but under the same user agent: AddUserAgent changes the
		// configuration that both are made from (cmd/kube-scheduler/app/options,
		// createClients; seen so in v1.36.3's audit log).
		if program == Scheduler && r.Resource == "events" {
			role = strings.TrimPrefix(role+" events", " ")
		}
		s := byName[program+"/"+role]
		if s == nil {
			s = &Stream{Program: program, Role: role}
			byName[program+"/"+role] = s
		}
		t := v.sec(r.ReceivedMicros)
		s.Times = append(s.Times, t)
		if r.Resource == "pods" && r.Verb == "create" {
			switch r.Subresource {
			case "":
				s.Creates = append(s.Creates, t)
			case "binding":
				s.Bindings = append(s.Bindings, t)
			}
		}
	}
	var all []Stream
	for _, s := range byName {
		all = append(all, *s)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all
}

func (v *View) accountHarness() {
	var first, last int64
	for _, p := range v.Pods {
		if p.CreatedMicros != 0 && (first == 0 || p.CreatedMicros < first) {
			first = p.CreatedMicros
		}
		last = max(last, v.arrived(p))
	}
	w := record.Window{Start: time.UnixMicro(first), End: time.UnixMicro(last)}
	if v.Observed || first == 0 || last <= first { // whether pods came or not
		w = v.Load
	}
	if !v.HasProcesses || w.Seconds() <= 0 {
		return
	}
	var own, plane float64
	ownSeen, planeSeen := false, false
	perPod := func(cpu float64) *float64 {
		if v.Arrived() == 0 {
			return nil
		}
		ms := 1000 * cpu / float64(v.Arrived())
		return &ms
	}
	for _, c := range v.Components() {
		x, ok := v.CPU(c, w)
		if !ok {
			continue
		}
		h := v.IsHarness(c)
		if h {
			own += x
			ownSeen = true
		} else {
			plane += x
			planeSeen = true
		}
		v.Harness.ByProcess = append(v.Harness.ByProcess, ProcessCPU{Component: c, Harness: h, CPUSeconds: x, MillisecondsPerPod: perPod(x)})
	}
	if !ownSeen {
		return
	}
	v.Harness.CPUSeconds, v.Harness.MillisecondsPerPod = &own, perPod(own)
	if planeSeen && own+plane > 0 {
		share := own / (own + plane)
		v.Harness.CPUShare = &share
	}
}

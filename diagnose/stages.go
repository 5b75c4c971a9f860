package diagnose

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// What a healthy stage takes per pod, in seconds; only waiting above it counts
// as lost. Each is several times what an idle two-core machine shows, so that
// jitter never looks like a cause.
const (
	healthySubmit     = 0.1 // the generator's timer and one request ahead
	healthyAccept     = 0.1 // a create is 2-10 ms, with etcd on a plain disk
	healthyController = 0.5 // Deployment → ReplicaSet → slow start 1, 2, 4, …: a dozen round trips
	healthyScheduling = 0.5 // watch delivery, one cycle, one binding, all in the shadow of others
	healthyObserve    = 0.1 // one watch event
	// Pods with claims wait for their volumes: two controllers, a provisioner and an
	// attacher hand each other objects until a volume is bound, and a kubelet looks
	// whether it is attached after 0.5, 1, 2, … s and with its status, every 10 s.
	healthyVolumeBound = 3.0
	healthyVolumeStart = 12.0

	// Simulated nodes declare their start delay: median 0.3 s, p99 1 s. Up to
	// that p99 it is the experiment's wish, not a loss.
	simulatedStart = 1.0
	// A real node may take what the start-up SLO grants.
	realStart = 5.0
)

const (
	identityTolerance = 0.02 // Σ stages against end to end
	littleTolerance   = 0.20 // ∫N dt against X·R
)

// step is one pod's way through a stage. out is NaN where it never came out; gone is
// when it was deleted, 0 where it was not: who is gone waits no longer.
type step struct{ in, out, gone float64 }

// left is when a pod was in the stage no more, at the latest at the end; sure is false
// where it was still in it.
func (s step) left(end float64) (at float64, sure bool) {
	switch {
	case !math.IsNaN(s.out):
		return s.out, true
	case s.gone > s.in:
		return min(s.gone, max(end, s.in)), true
	}
	return max(end, s.in), false
}

// accountStages integrates the waiting of every stage from the pods' own
// timestamps: ∫N dt = Σ (out − in). Gauges of components are not used: a
// ReplicaSet's queue depth is 0 or 1 while hundreds of its pods wait.
func (v *View) accountStages() {
	steps := map[string][]step{}
	reasons := map[string]string{}
	end := v.Span()
	var total, negative float64
	patches := v.statusPatches()
	matched, ran := 0, 0
	owned := 0
	v.Cut = v.Meta.Status != record.StatusComplete && v.Meta.Status != "" ||
		v.noneCame() || v.neverCreated()
	for _, p := range v.Pods {
		if p.Owner != "" {
			owned++
		}
		if p.CreatedMicros == 0 {
			continue
		}
		at := func(t int64) float64 {
			if t == 0 {
				return math.NaN()
			}
			return v.sec(t)
		}
		created := at(p.CreatedMicros)
		if p.DueMicros != 0 && p.SentMicros != 0 {
			due, sent := at(p.DueMicros), at(p.SentMicros)
			steps[Submit] = append(steps[Submit], step{in: due, out: sent})
			if p.Owner == "" {
				// A bare pod's own answer may arrive after the watch event;
				// the watch is the next stage's start, so it is this one's end.
				steps[Accept] = append(steps[Accept], step{in: sent, out: created})
			} else {
				acked := at(firstSet(p.AckedMicros, p.SentMicros))
				acked = min(acked, created) // the first pods can overtake the answer
				steps[Accept] = append(steps[Accept], step{in: sent, out: acked})
				steps[Controller] = append(steps[Controller], step{in: acked, out: created})
			}
		}
		bound, running, gone := at(p.BoundMicros), at(p.RunningMicros), 0.0
		if p.DeletedMicros != 0 {
			gone = v.sec(p.DeletedMicros)
		}
		steps[Scheduling] = append(steps[Scheduling], step{created, bound, gone})
		if p.BoundMicros != 0 {
			reported := math.NaN()
			if p.RunningMicros != 0 && !v.EndsBound {
				ran++
				if t, ok := lastBefore(patches[p.Namespace+"/"+p.Name], p.RunningMicros); ok {
					matched++
					reported = min(max(v.sec(t), bound), running)
				} else {
					reported = running
				}
				steps[Observe] = append(steps[Observe], step{in: reported, out: running})
			}
			if !v.EndsBound {
				steps[Start] = append(steps[Start], step{bound, reported, gone})
			}
		}
		first := created
		if p.DueMicros != 0 && p.SentMicros != 0 {
			first = at(p.DueMicros)
		}
		last := at(v.arrived(p))
		if math.IsNaN(last) {
			// One that came after the load's end has its way there behind it.
			last = max(end, created)
			if p.BoundMicros != 0 {
				last = max(last, bound)
			}
			if gone > first {
				last = min(gone, last)
			}
		}
		total += last - first
		for _, pair := range [][2]int64{{p.DueMicros, p.SentMicros}, {p.SentMicros, p.CreatedMicros}, {p.CreatedMicros, p.BoundMicros}, {p.BoundMicros, p.RunningMicros}} {
			if pair[0] != 0 && pair[1] != 0 && pair[1] < pair[0] {
				negative += float64(pair[0]-pair[1]) / 1e6
			}
		}
	}
	if v.Cut {
		for _, late := range v.unborn() {
			due, sent, acked := v.sec(late.op.DueMicros), v.sec(late.op.SentMicros), v.sec(late.op.DoneMicros)
			for range late.pods {
				steps[Submit] = append(steps[Submit], step{in: due, out: sent})
				steps[Accept] = append(steps[Accept], step{in: sent, out: acked})
				steps[Controller] = append(steps[Controller], step{in: acked, out: math.NaN()})
			}
			owned += late.pods
			total += float64(late.pods) * (end - due)
		}
	}
	v.Lost.TotalPodSeconds = total

	switch {
	case !v.HasPods && !v.noneCame():
		v.rejectStages("no pods were recorded")
	case total <= 0:
		v.rejectStages("no pod was observed from start to end")
	case negative > identityTolerance*total:
		v.rejectStages(fmt.Sprintf("timestamps run backwards for %.1f of %.1f pod-seconds: the clocks or the tables disagree", negative, total))
	}

	if len(steps[Submit]) == 0 {
		const why = "the load was not ours: nobody knows when the pods were due"
		reasons[Submit], reasons[Accept], reasons[Controller] = why, why, why
	} else if owned == 0 {
		reasons[Controller] = "bare pods have no controller"
	}
	if v.EndsBound {
		const why = "nobody starts pods on seeded nodes"
		reasons[Start], reasons[Observe] = why, why
	}
	observed := v.EndsBound || v.HasRequests && ran > 0 && float64(matched) >= 0.9*float64(ran)
	if !observed {
		switch {
		case !v.HasRequests:
			reasons[Observe] = "no audit log: the nodes' status reports are not timed, so start holds both"
		default:
			reasons[Observe] = fmt.Sprintf("the audit log holds a status report for only %d of %d pods, so start holds both", matched, ran)
		}
		// start takes it all, to the watch's receipt.
		steps[Start] = nil
		for _, p := range v.Pods {
			if p.BoundMicros == 0 {
				continue
			}
			s := step{in: v.sec(p.BoundMicros), out: math.NaN()}
			if p.RunningMicros != 0 {
				s.out = v.sec(p.RunningMicros)
			}
			if p.DeletedMicros != 0 {
				s.gone = v.sec(p.DeletedMicros)
			}
			steps[Start] = append(steps[Start], s)
		}
		delete(steps, Observe)
	}

	start := realStart
	if v.Meta.Nodes.Simulated {
		start = simulatedStart
		if declared := v.Meta.Nodes.StartDelayP99; declared > 0 {
			start = declared
		}
		if start > simulatedStart {
			v.Warnings = append(v.Warnings, fmt.Sprintf("the simulated nodes take up to %.3g s to start a pod (99 of 100), as the experiment has it (cluster.node.startDelay): that is not counted as lost", start))
		}
	}
	scheduling := healthyScheduling
	if v.attaches() {
		scheduling, start = max(scheduling, healthyVolumeBound), max(start, healthyVolumeStart)
	}
	healthy := map[string]float64{
		Submit: healthySubmit, Accept: healthyAccept, Controller: healthyController,
		Scheduling: scheduling, Start: start, Observe: healthyObserve,
	}
	v.steps, v.healthy = steps, healthy
	var sum float64
	account := func(name string) Stage {
		s := Stage{Name: name, Reason: reasons[name]}
		if s.Reason != "" || len(steps[name]) == 0 || !v.StagesOK {
			if s.Reason == "" {
				s.Reason = v.StagesWhy
			}
			if s.Reason == "" {
				s.Reason = "no pod got this far"
			}
			return s
		}
		w, excess, why := integrate(steps[name], healthy[name], end)
		switch {
		case why != "" && v.Cut:
			// They had no time to come out, and where they wait is known all the same.
			v.Warnings = append(v.Warnings, fmt.Sprintf("not all pods came to their end, so that of stage %s, %s", name, why))
		case why != "":
			s.Reason = why
			v.rejectStages(name + ": " + why)
			return s
		}
		sum += w
		share := 0.0
		if total > 0 {
			share = w / total
		}
		s.WaitSeconds, s.ExcessSeconds, s.Share = &w, &excess, &share
		s.RateIn, s.RateOut = rates(steps[name])
		return s
	}
	byName := map[string]Stage{}
	for _, name := range []string{Submit, Accept, Controller, Scheduling, Start, Observe} {
		byName[name] = account(name)
	}
	v.Together = byName[Scheduling]
	if v.StagesOK && math.Abs(sum-total) > identityTolerance*total {
		v.rejectStages(fmt.Sprintf("the stages hold %.1f pod-seconds, the pods' whole way %.1f", sum, total))
	}
	queue, decide, bind := v.splitScheduling(total)
	byName[Queue], byName[Decide], byName[Bind] = queue, decide, bind

	for _, name := range StageNames {
		s := byName[name]
		if !v.StagesOK {
			s = Stage{Name: name, Reason: v.StagesWhy}
		}
		v.Stages = append(v.Stages, s)
	}
	if !v.StagesOK {
		v.Together = Stage{Name: Scheduling, Reason: v.StagesWhy}
		return
	}
	for _, s := range v.LostStages() {
		v.Lost.PodSeconds += *s.ExcessSeconds
	}
}

// OwnerName is the name of a pod's owner, record.Pod.Owner, without its kind.
func OwnerName(owner string) string {
	_, name, _ := strings.Cut(owner, "/")
	return name
}

// unborn are pods that were asked for and that no controller had created when the
// run ended.
func (v *View) unborn() (all []struct {
	op   *record.Operation
	pods int
}) {
	seen, ownerless := map[string]int{}, v.ownerless()
	for _, p := range v.Pods {
		if p.CreatedMicros != 0 {
			seen[p.Namespace+"/"+OwnerName(p.Owner)]++
		}
	}
	for i := range v.Operations {
		o := &v.Operations[i]
		n := int(o.Pods) - seen[o.Namespace+"/"+o.Name]
		if makesOwner(o) && n > 0 { // whose they are is not written on these
			mine := min(n, ownerless[o.Namespace])
			n -= mine
			ownerless[o.Namespace] -= mine
		}
		if n > 0 && makesOwner(o) {
			all = append(all, struct {
				op   *record.Operation
				pods int
			}{o, n})
		}
	}
	return all
}

// ownerless counts the pods that a controller has made and that do not name it, by
// namespace: those of a load that has made none itself.
func (v *View) ownerless() map[string]int {
	n := map[string]int{}
	if !v.HasOperations || slices.ContainsFunc(v.Operations, func(o record.Operation) bool { return o.Resource == "pods" }) {
		return n
	}
	for _, p := range v.Pods {
		if p.CreatedMicros != 0 && p.Owner == "" {
			n[p.Namespace]++
		}
	}
	return n
}

// Ownerless is how many pods of controllers do not name their owner.
func (v *View) Ownerless() (pods int) {
	for _, n := range v.ownerless() {
		pods += n
	}
	return pods
}

// Awaited is what pods lost in a stage while requests for them were made: Excess, without
// the time that pods which never came have waited after the last create of any was
// granted. Who does not ask waits for no answer.
func (v *View) Awaited(stage string) float64 {
	lost := v.Excess(stage)
	if stage != Controller || lost == 0 || !v.HasRequests {
		return lost
	}
	var last *record.Request
	for i := range v.Requests {
		if r := &v.Requests[i]; r.Verb == "create" && (r.Resource == "pods" || r.Resource == "replicasets") && r.Subresource == "" && !harnessAgent(r.UserAgent) {
			last = r
		}
	}
	if last == nil || last.DoneMicros == 0 || last.Code >= 400 { // it may be about to try again
		return lost
	}
	silent := 0.0
	for _, late := range v.unborn() {
		silent += float64(late.pods) * max(0, v.Span()-v.sec(max(last.DoneMicros, late.op.DoneMicros)))
	}
	return max(0, lost-silent)
}

// NeverCreated counts the pods that were asked for and that no controller created, by
// the resource of which they are.
func (v *View) NeverCreated() map[string]int {
	pods := map[string]int{}
	for _, late := range v.unborn() {
		pods[late.op.Resource] += late.pods
	}
	return pods
}

// Asleep counts the pods that were asked for and that no controller created because
// their workload says so itself, by the resource of which they are: Deployments that
// are paused, Jobs that are suspended, at the end of the recording. known is false where
// workloads were not watched.
func (v *View) Asleep() (pods map[string]int, known bool) {
	objects, err := v.src.Objects()
	rows, known, err := optional("objects", objects, err)
	if err != nil {
		v.err = err
	}
	if !known {
		return nil, false
	}
	states := map[string]string{}
	for i := range rows {
		if o := &rows[i]; o.Kind == "Deployment" || o.Kind == "Job" {
			states[o.Kind+" "+o.Namespace+"/"+o.Name] = o.State
		}
	}
	pods = map[string]int{}
	for _, late := range v.unborn() {
		name := late.op.Namespace + "/" + late.op.Name
		if late.op.Resource == "deployments" && states["Deployment "+name] == "paused" || late.op.Resource == "jobs" && states["Job "+name] == "suspended" {
			pods[late.op.Resource] += late.pods
		}
	}
	return pods, len(states) > 0
}

// many is the share of the pods that were asked for from which those that were
// never created are no accident of the recording.
const many = 0.05

// Owned counts the pods that controllers were asked for, and the workloads of which
// they are.
func (v *View) Owned() (pods, owners int) {
	for i := range v.Operations {
		if o := &v.Operations[i]; makesOwner(o) && o.Pods > 0 {
			pods += int(o.Pods)
			owners++
		}
	}
	return pods, owners
}

// makesOwner says that an operation has made what a controller creates pods for.
func makesOwner(o *record.Operation) bool {
	return o.Verb == "create" && o.Resource != "pods" && o.DoneMicros != 0 && o.Error == "" && o.Code < 300
}

// neverCreated says that controllers have not created many of the pods that they
// were asked for. It counts by workload: what a rollout made once more elsewhere is
// no pod of one that has none.
func (v *View) neverCreated() bool {
	expected, _ := v.Owned()
	never := 0
	for _, late := range v.unborn() {
		never += late.pods
	}
	return float64(never) > many*float64(expected)
}

// noneCame says that no pod that was asked for came to be: the watch showed none,
// and the API server created none either. The watch alone may have been blind.
func (v *View) noneCame() bool {
	return v.PodsWatched && !v.Observed && v.Counts.Seen == 0 && v.Counts.Expected > 0 && v.HasRequests &&
		!slices.ContainsFunc(v.Requests, func(r record.Request) bool {
			return r.Verb == "create" && r.Resource == "pods" && r.Subresource == "" && r.Code < 300
		})
}

func (v *View) rejectStages(why string) {
	if v.StagesOK {
		v.StagesOK, v.StagesWhy = false, why
	}
}

// integrate is ∫N dt of a stage and the part above healthy seconds a pod; why
// is set where Little's law fails: the pods that came out then say nothing
// about those that went in.
func integrate(steps []step, healthy, end float64) (wait, excess float64, why string) {
	var waits, excesses, done []float64
	for _, s := range steps {
		out, left := s.left(end)
		if left {
			done = append(done, out-s.in)
		}
		d := max(0, out-s.in)
		waits = append(waits, d)
		excesses = append(excesses, max(0, d-healthy))
	}
	wait, excess = stat.Sum(waits), stat.Sum(excesses)
	// N̄·T is the integral with the pods still inside; X·R·T is what those
	// that left have waited. A second a pod of slack for tiny stages.
	passed := stat.Sum(done)
	if wait-passed > littleTolerance*wait && wait-passed > 1+0.01*float64(len(steps)) {
		why = fmt.Sprintf("pods that never came out hold %.0f of %.0f pod-seconds", wait-passed, wait)
	}
	return wait, excess, why
}

func rates(steps []step) (in, out *float64) {
	var ins, outs []float64
	for _, s := range steps {
		ins = append(ins, s.in)
		if !math.IsNaN(s.out) {
			outs = append(outs, s.out)
		}
	}
	if r, ok := stat.MeanRate(ins); ok {
		in = &r
	}
	if r, ok := stat.MeanRate(outs); ok {
		out = &r
	}
	return in, out
}

// splitScheduling tells queue, decide and bind apart by the scheduler's own
// counters. In Kubernetes v1.36.3:
//
//   - scheduler_scheduling_algorithm_duration_seconds covers a cycle from the
//     pod's pop to the chosen node (schedule_one.go, schedulingAlgorithm). The
//     cycle is serial.
//   - Binding runs in a goroutine a pod (schedule_one.go, runBindingCycle). Its
//     extension points PreBind and Bind are timed around the plugins, and
//     DefaultBinder.Bind returns when the POST has returned, so that Bind holds
//     the wait in the client's limiter and the request.
//   - The asynchronous API dispatcher (gate SchedulerAsyncAPICalls) is off by
//     default (kube_features.go: 1.34, beta, Default: false). Switched on, Bind
//     still waits for the call (WaitOnFinish), so that the split holds.
//
// Where an extender binds (bindVerb), no plugin does, and Bind has no count: what an
// attempt that succeeded took beyond its cycle is binding then.
//
// All of them count what has ended. In a run that was cut off hundreds of pods may still
// be binding: the gauge of the goroutines that do (metrics.Goroutines, operation
// "binding") has these, a scrape's interval apart.
//
// Waiting on Permit is counted with bind. What is left is queue: watch delivery
// to the scheduler and its queues, and watch delivery of the binding.
func (v *View) splitScheduling(total float64) (queue, decide, bind Stage) {
	reject := func(why string) (Stage, Stage, Stage) {
		return Stage{Name: Queue, Reason: why}, Stage{Name: Decide, Reason: why}, Stage{Name: Bind, Reason: why}
	}
	if v.Together.WaitSeconds == nil {
		return reject(v.Together.Reason)
	}
	whole, n := *v.Together.WaitSeconds, float64(v.Counts.Bound)
	for i := range v.Pods {
		if bornBound(&v.Pods[i]) {
			n--
		}
	}
	const cycle, point = "scheduler_scheduling_algorithm_duration_seconds", "scheduler_framework_extension_point_duration_seconds"
	d, okD := v.Increase(Scheduler, cycle+"_sum", nil)
	cycles, okN := v.Increase(Scheduler, cycle+"_count", nil)
	b, okB := v.Increase(Scheduler, point+"_sum", map[string]string{"extension_point": "~Bind|PreBind"})
	if !okD || !okB || !okN {
		return reject("no scheduler metrics: only created → bound is known")
	}
	if permit, ok := v.Increase(Scheduler, "scheduler_permit_wait_duration_seconds_sum", nil); ok {
		b += permit
	}
	if bound, ok := v.Increase(Scheduler, point+"_count", map[string]string{"extension_point": "Bind"}); !ok || bound < 0.5*n {
		// No plugin bound them, so that an extender did, whose time only the attempts have.
		if all, ok := v.Increase(Scheduler, "scheduler_scheduling_attempt_duration_seconds_sum", map[string]string{"result": "scheduled"}); ok {
			b = max(b, all-d)
		}
	}
	if busy, ok := v.Gauge(Scheduler, "scheduler_goroutines", Labels{"operation": "binding"}, v.Load); ok && v.Cut {
		b = max(b, min(busy.Mean*v.Span(), whole-d))
	}
	if cycles < 0.9*n {
		return reject(fmt.Sprintf("the scheduler's metrics count %.0f cycles for %.0f pods: scrapes are missing", cycles, n))
	}
	rest := whole - d - b
	// Two sources, two clocks: a scrape more or less, and the last cycles.
	if rest < -identityTolerance*whole-0.01*n {
		return reject(fmt.Sprintf("the scheduler's metrics hold %.1f pod-seconds, the watch %.1f: they disagree", d+b, whole))
	}
	rest = max(0, rest)
	if over := d + b + rest; over > whole && over > 0 {
		d, b = d*whole/over, b*whole/over
	}
	// The healthy allowance is for the three together; each gets its part.
	excess := *v.Together.ExcessSeconds
	part := func(name string, w float64) Stage {
		share, e := 0.0, 0.0
		if total > 0 {
			share = w / total
		}
		if whole > 0 {
			e = excess * w / whole
		}
		return Stage{Name: name, WaitSeconds: &w, Share: &share, ExcessSeconds: &e}
	}
	queue, decide, bind = part(Queue, rest), part(Decide, d), part(Bind, b)
	queue.RateIn, bind.RateOut = v.Together.RateIn, v.Together.RateOut
	return queue, decide, bind
}

// statusPatches are the times at which nodes' status reports were answered, by
// pod, in order.
func (v *View) statusPatches() map[string][]record.Request {
	m := map[string][]record.Request{}
	for _, r := range v.Requests {
		if isStatusReport(&r) {
			key := r.Namespace + "/" + r.Name
			m[key] = append(m[key], r)
		}
	}
	return m
}

func isStatusReport(r *record.Request) bool {
	return r.Resource == "pods" && r.Subresource == "status" && (r.Verb == "patch" || r.Verb == "update") && r.Code < 300 && r.Name != ""
}

// lastBefore is the answer time of the last report that the server had received
// when the watch showed the pod running: the one that said so.
func lastBefore(reports []record.Request, running int64) (int64, bool) {
	i := slices.IndexFunc(reports, func(r record.Request) bool { return r.ReceivedMicros > running })
	if i < 0 {
		i = len(reports)
	}
	if i == 0 {
		return 0, false
	}
	return reports[i-1].DoneMicros, true
}

// attaches says whether most pods have volumes that must be attached.
func (v *View) attaches() bool {
	if v.Claims != nil {
		return true
	}
	n := 0
	for i := range v.Requests {
		if r := &v.Requests[i]; r.Resource == "volumeattachments" && r.Verb == "create" && r.Code < 300 {
			n++
		}
	}
	return n > 0 && 2*n >= len(v.Pods)
}

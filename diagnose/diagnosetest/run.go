package diagnosetest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Run is a simulated recording. It is a diagnose.Source.
type Run struct {
	meta      record.Meta
	pods      []record.Pod
	ops       []record.Operation
	requests  []record.Request
	processes []record.ProcessSample
	machine   []record.MachineSample
	objects   []record.ObjectChange
	coreTable []record.CoreSample
	exits     []record.ProcessExit
	counters  []counter
	steady    record.Window
	unsteady  bool    // it was no steady phase
	end       float64 // of the load, seconds
	missing   map[string]bool

	calibration *record.Calibration // nil: no healthy runs are known
	logs        map[string]string
	profiles    map[string]*profile.Profile
	samples     []record.StackSample
	stacks      []record.Stack
	blocks      []record.BlockIO
}

// A counter is a series: what a counter grew by evenly over the load and, a
// second, before it; or, of a gauge, what it shows.
type counter struct {
	metric   string
	labels   map[string]string
	value    float64
	rest     float64
	gauge    bool
	from, to float64
	// course, where it is there, is the counter's growth from the load's start.
	course func(t float64) float64
}

// at is the series' value at a time.
func (c counter) at(t, end float64) float64 {
	if c.gauge {
		if t < 0 {
			return c.rest
		}
		return c.from + (c.to-c.from)*min(1, t/max(end, 1))
	}
	if c.course != nil {
		return c.course(t)
	}
	return c.rest*(min(t, 0)+settle) + c.value*min(1, max(0, t)/max(end, 1e-9))
}

// script is what the words of a case say.
type script struct {
	pods, deployments     int
	bareRate              float64
	cores                 int
	controller, scheduler limit
	works                 float64
	still                 map[string]stretch // by component
	halted                map[string]float64 // share of moments, by component
	ended                 *ending
	decides, bind, accept time.Duration
	decidesMore           time.Duration // for each 1,000 pods
	decidesOutside        bool          // of its plugins
	bindPoint             string        // the extension point that bind is of; "" for Bind
	parked                time.Duration
	capacity              float64
	busy, others          float64
	full                  stretch   // of the machine
	cpus                  []float64 // busy share of each
	quotas                map[string]quota
	generatorRate         float64
	generatorLate         time.Duration
	generatorMissed       int
	nodesLate, nodesWait  time.Duration
	syncs                 float64
	syncTime              time.Duration
	stuck, lost           int
	lostCode              int32 // the answer to the load's request for a lost pod
	taken                 bool  // the stuck ones were deleted
	refused               int32 // the code of each answer to a controller's pod; 0: none is refused
	refusedFor            float64
	warmUp                bool    // the run ended in its warm-up, and the pods are of that
	pausedFor             float64 // how long Deployments were paused, to the end; 0: none was
	watchedFor            float64 // nothing is loaded
	status                record.Status
	no                    map[string]bool
	seed                  uint64

	series      []words // metric and gauge
	talks       []talk  // requests
	lines       []line  // log
	work        []work  // profile
	sampled     []work  // stack
	blocks      []block
	written     map[string]float64 // bytes a second
	delayed     map[string]float64 // share of the load
	connections float64
	flags       map[string][]string
	healthy     map[string]float64 // features of healthy runs, seconds
}

type limit struct {
	qps, burst float64
	flag       bool
	config     bool
}

type quota struct {
	cores, used, stopped float64
	others               bool // set it, so that the recording does not name it
}

var numberUnit = regexp.MustCompile(`^([0-9.]+)/s$`)

// Parse reads the words of one case and simulates the run.
func Parse(text string) (*Run, error) {
	s := script{
		pods: 1500, deployments: 1, cores: 2, busy: -1,
		controller: limit{qps: 20, burst: 30}, scheduler: limit{qps: 50, burst: 100},
		decides: time.Millisecond, quotas: map[string]quota{}, written: map[string]float64{}, delayed: map[string]float64{}, flags: map[string][]string{}, still: map[string]stretch{}, halted: map[string]float64{}, healthy: map[string]float64{}, status: record.StatusComplete, no: map[string]bool{}, seed: 1,
	}
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#") // a comment may hold a semicolon
		if strings.HasPrefix(line, "log ") {
			lines = append(lines, line)
			continue
		}
		lines = append(lines, strings.Split(line, ";")...)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if done, err := s.observe(words); err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		} else if done {
			continue
		}
		if err := s.say(words); err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return s.simulate(), nil
}

func (s *script) say(w []string) (err error) {
	fail := func(e error) {
		if err == nil {
			err = e
		}
	}
	word := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		fail(fmt.Errorf("word %d is missing", i+1))
		return ""
	}
	num := func(i int) float64 {
		x, e := strconv.ParseFloat(word(i), 64)
		fail(e)
		return x
	}
	perSecond := func(i int) float64 {
		m := numberUnit.FindStringSubmatch(word(i))
		if m == nil {
			fail(fmt.Errorf("%q is not a rate such as 20/s", word(i)))
			return 0
		}
		x, e := strconv.ParseFloat(m[1], 64)
		fail(e)
		return x
	}
	dur := func(i int) time.Duration {
		d, e := time.ParseDuration(word(i))
		fail(e)
		return d
	}
	client := func(l *limit) {
		switch word(1) {
		case "free":
			*l = limit{qps: 5000, burst: 10000, flag: true}
		case "config":
			l.config = true
		default:
			l.qps, l.flag = perSecond(1), true
			if len(w) > 2 && word(2) == "burst" {
				l.burst = num(3)
			}
		}
	}
	if len(w) > 2 && w[1] == "quota" {
		q := quota{cores: num(2), used: 0.5}
		for i := 3; i+1 < len(w); i += 2 {
			switch w[i] {
			case "used":
				q.used = num(i + 1)
			case "stopped":
				q.stopped = num(i + 1)
			case "by":
				if q.others = w[i+1] == "others"; !q.others {
					fail(fmt.Errorf("unknown word %q", w[i+1]))
				}
			default:
				fail(fmt.Errorf("unknown word %q", w[i]))
			}
		}
		s.quotas[w[0]] = q
		return err
	}
	switch w[0] {
	case "ended": // COMPONENT 137 at 5s
		s.ended = &ending{word(1), int32(num(2)), dur(4).Seconds()}
		s.status = record.StatusFailed
	case "stopped":
		s.halted[word(1)] = num(2)
	case "still": // COMPONENT 10s to 15s
		s.still[word(1)] = stretch{dur(2).Seconds(), dur(4).Seconds()}
	case "pods":
		s.pods = int(num(1))
		switch word(2) {
		case "deployment":
			s.deployments = 1
		case "deployments":
			s.deployments = int(num(3))
		case "bare":
			s.deployments, s.bareRate = 0, perSecond(3)
		default:
			fail(fmt.Errorf("pods of what?"))
		}
	case "cores":
		s.cores = int(num(1))
	case "controller":
		if word(1) == "works" {
			s.works = perSecond(2)
		} else {
			client(&s.controller)
		}
	case "scheduler":
		if word(1) == "decides" {
			s.decides = dur(2)
			switch {
			case len(w) > 4 && word(3) == "growing":
				s.decidesMore = dur(4)
			case len(w) > 3 && word(3) == "outside":
				s.decidesOutside = true
			}
		} else {
			client(&s.scheduler)
		}
	case "parked":
		s.parked = dur(1)
	case "bind":
		s.bind = dur(2)
		if len(w) > 3 {
			s.bindPoint = word(4)
		}
	case "accept":
		s.accept = dur(2)
	case "capacity":
		s.capacity = perSecond(1)
	case "machine":
		if word(1) == "full" {
			s.full = stretch{dur(2).Seconds(), dur(4).Seconds()}
			break
		}
		s.busy = num(2)
		if len(w) > 4 && word(3) == "others" {
			s.others = num(4)
		}
	case "cpus":
		for i := range w[1:] {
			s.cpus = append(s.cpus, num(i+1))
		}
	case "generator":
		switch word(1) {
		case "late":
			s.generatorLate = dur(2)
		case "missed":
			s.generatorMissed = int(num(2))
		default:
			s.generatorRate = perSecond(1)
		}
	case "nodes":
		if word(1) == "wait" {
			s.nodesWait = dur(2)
		} else {
			s.nodesLate = dur(2)
		}
	case "etcd":
		s.syncs = num(2)
		if len(w) > 4 {
			s.syncTime = dur(4)
		}
	case "stuck":
		s.stuck, s.taken = int(num(1)), len(w) > 2 && word(2) == "deleted"
	case "lost":
		s.lost = int(num(1))
		if len(w) > 3 && word(2) == "refused" {
			s.lostCode = int32(num(3))
		}
	case "watched":
		s.pods, s.deployments, s.bareRate = 0, 0, 1
		s.watchedFor = dur(1).Seconds()
	case "refused":
		s.refused, s.refusedFor = int32(num(1)), dur(3).Seconds()
	case "paused":
		s.pausedFor = dur(2).Seconds()
	case "warm-up":
		s.warmUp, s.status = true, record.StatusFailed
	case "status":
		s.status = record.Status(word(1))
	case "no":
		what := word(1)
		if len(w) == 4 {
			what += " of " + w[3]
		}
		s.no[what] = true
	case "seed":
		s.seed = uint64(num(1))
	default:
		fail(fmt.Errorf("unknown word %q; see the package's documentation", w[0]))
	}
	return err
}

// tokens is client-go's token bucket: burst at once, then qps a second.
type tokens struct {
	qps, burst float64
	have, at   float64
	waited     float64 // seconds, over all requests
}

func newTokens(l limit) *tokens { return &tokens{qps: l.qps, burst: l.burst, have: l.burst} }

// take says when a request that is ready at t may go.
func (b *tokens) take(t float64) float64 {
	if t > b.at {
		b.have = min(b.burst, b.have+(t-b.at)*b.qps)
		b.at = t
	}
	b.have--
	go1 := t // with a token left it goes at once, though another came later
	if b.have < 0 {
		go1 = max(t, b.at-b.have/b.qps)
	}
	b.waited += go1 - t
	return go1
}

// server does one thing at a time, irregularly.
type server struct {
	rng  *rand.Rand
	mean float64
	free float64
}

func (s *server) pass(t float64) float64 {
	if s.mean == 0 {
		return t
	}
	s.free = max(s.free, t) + s.mean*s.rng.ExpFloat64()
	return s.free
}

// epoch is when simulated loads start. Any time does; this one is fixed so
// that the same words make the same recording.
var epoch = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

const settle = 10.0 // idle seconds recorded before the load

func micros(sec float64) int64 { return epoch.UnixMicro() + int64(math.Round(sec*1e6)) }

const (
	uaController = "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0c1a23b/system:serviceaccount:kube-system:replicaset-controller"
	uaScheduler  = "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/0c1a23b/scheduler"
	uaHollow     = "kubedyno-hollow"
	uaLoad       = "kubedyno-load"
)

type simPod struct {
	owner             int // -1: bare
	due, sent, acked  float64
	created           float64
	decided, bound    float64
	running           float64
	reported, patched float64
}

func (s *script) simulate() *Run {
	r := &Run{missing: map[string]bool{}}
	rng := rand.New(rand.NewPCG(s.seed, 2))
	jitter := func(ms float64) float64 { return ms / 1000 * (0.5 + rng.Float64()) }
	request := func(at, took float64, verb, resource, sub, name, ua string) {
		r.requests = append(r.requests, record.Request{ReceivedMicros: micros(at), DoneMicros: micros(at + took), Verb: verb, Resource: resource, Subresource: sub, Namespace: "default", Name: name, UserAgent: ua, Code: 201})
	}
	accept := s.accept.Seconds()

	// Submit and accept.
	pods := make([]simPod, s.pods)
	free := 0.0
	if s.deployments > 0 {
		per := s.pods / s.deployments
		for k := range s.deployments {
			sent := s.generatorLate.Seconds() + jitter(1)
			acked := sent + jitter(5)
			for i := range pods {
				if min(i/max(1, per), s.deployments-1) == k {
					pods[i].owner, pods[i].sent, pods[i].acked = k, sent, acked
				}
			}
			r.ops = append(r.ops, record.Operation{Phase: "load", Verb: "create", Namespace: "default", Resource: "deployments", Name: fmt.Sprintf("web-%d", k), Pods: int32(per), DueMicros: micros(0), SentMicros: micros(sent), DoneMicros: micros(acked), Code: 201})
		}
	} else {
		gap, sentPods := 0.0, s.pods
		if s.generatorRate > 0 {
			gap = 1 / s.generatorRate
		}
		for i := range pods {
			due := float64(i) / s.bareRate
			sent := max(due, free) + s.generatorLate.Seconds() + jitter(0.5)
			free = max(due, free) + gap
			pods[i] = simPod{owner: -1, due: due, sent: sent, acked: sent + jitter(5) + accept}
			op := record.Operation{Phase: "load", Verb: "create", Namespace: "default", Resource: "pods", Name: fmt.Sprintf("web-%d", i), Pods: 1, DueMicros: micros(due), SentMicros: micros(sent), DoneMicros: micros(pods[i].acked), Code: 201}
			if unsent := i >= s.pods-s.generatorMissed || s.ended != nil && due > s.ended.at; unsent {
				sentPods = min(sentPods, i)
				op.SentMicros, op.DoneMicros, op.Code = 0, 0, 0
			} else {
				if s.lostCode != 0 && i >= s.pods-s.lost {
					op.Code, op.Error = s.lostCode, fmt.Sprintf("pods %q is forbidden", op.Name)
				}
				request(sent, pods[i].acked-sent, "create", "pods", "", op.Name, uaLoad)
			}
			r.ops = append(r.ops, op)
		}
		pods = pods[:sentPods]
	}

	end := s.watchedFor
	if s.refused != 0 {
		end = s.refusedFor
		for range s.deployments {
			// A key that failed comes back after 5 ms, 10 ms, 20 ms, …
			for at, wait := jitter(10), 0.005; at < end; at, wait = at+wait, 2*wait {
				request(at, 0.004+accept, "create", "pods", "", "", uaController)
				r.requests[len(r.requests)-1].Code = s.refused
			}
		}
		pods = nil
	}
	if s.pausedFor != 0 {
		end, pods = s.pausedFor, nil
		for k := range s.deployments {
			r.objects = append(r.objects, record.ObjectChange{TimeMicros: micros(0.1), Kind: "Deployment", Namespace: "default", Name: fmt.Sprintf("web-%d", k), Change: "added", State: "paused", Changes: 1})
		}
	}

	// Controller: slow start in batches of 500, then its bucket, which its
	// events share, then whatever limits it otherwise.
	bucket := newTokens(s.controller)
	rate := s.works
	if s.capacity > 0 && (rate == 0 || s.capacity < rate) {
		rate = s.capacity
	}
	work := &server{rng: rng}
	if rate > 0 {
		work.mean = 1 / rate
	}
	events, made := map[int]int{}, map[int]int{}
	batchStart, lastPost := map[int]float64{}, map[int]float64{}
	for i := range pods {
		p := &pods[i]
		if p.owner < 0 {
			p.created = work.pass(p.acked) + jitter(2)
			continue
		}
		j := made[p.owner] % 500
		made[p.owner]++
		if j == 0 {
			batchStart[p.owner] = max(p.acked, lastPost[p.owner])
		}
		ready := batchStart[p.owner] + 0.006*math.Floor(math.Log2(float64(j+1)))
		at := work.pass(bucket.take(ready))
		request(at, 0.004+accept, "create", "pods", "", "", uaController)
		if events[p.owner] < 25 { // the event recorder's spam filter
			events[p.owner]++
			sent := bucket.take(at)
			if !s.no["events of audit"] {
				request(sent, 0.003, "create", "events", "", "", uaController)
			}
		}
		p.created = at + accept + jitter(5)
		lastPost[p.owner] = max(lastPost[p.owner], at)
	}
	// Scheduler: one decision at a time, then a goroutine a pod.
	order := make([]*simPod, len(pods))
	for i := range pods {
		order[i] = &pods[i]
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].created < order[j].created })
	binds := newTokens(s.scheduler)
	var decideSum, bindSum, loopFree float64
	var decided [][2]float64 // when, and the sum until then
	sigma := math.Log(1/0.3) / 2.326
	last := len(order) - 1 - s.stuck - s.lost
	for i, p := range order {
		start := max(p.created+jitter(2)+s.parked.Seconds(), loopFree)
		if w, ok := s.still[diagnose.Scheduler]; ok && start > w.from {
			start = max(start, w.until)
		}
		d := (s.decides.Seconds() + s.decidesMore.Seconds()*float64(i)/1000) * (0.8 + 0.4*rng.Float64())
		loopFree = start + d
		decideSum += d
		p.decided = loopFree
		decided = append(decided, [2]float64{p.decided, decideSum})
		at := binds.take(p.decided)
		done := at + jitter(4) + s.bind.Seconds()
		bindSum += done - p.decided
		request(at, done-at, "create", "pods", "binding", fmt.Sprintf("web-%d", i), uaScheduler)
		if !s.no["events of audit"] { // through a client of its own
			request(p.decided, 0.003, "create", "events", "", "", uaScheduler)
		}
		p.bound = done + jitter(2)
		delay := 0.3 * math.Exp(sigma*rng.NormFloat64())
		p.reported = p.bound + delay + s.nodesLate.Seconds() + s.nodesWait.Seconds()
		p.patched = p.reported + jitter(4)
		request(p.reported, p.patched-p.reported, "patch", "pods", "status", fmt.Sprintf("web-%d", i), uaHollow)
		p.running = p.patched + jitter(2)
		end = max(end, p.running)

		owner := ""
		if p.owner >= 0 {
			owner = fmt.Sprintf("Deployment/web-%d", p.owner)
		}
		row := record.Pod{Namespace: "default", Name: fmt.Sprintf("web-%d", i), Phase: "load", Owner: owner, Node: "node-1",
			DueMicros: micros(p.due), SentMicros: micros(p.sent), AckedMicros: micros(p.acked), CreatedMicros: micros(p.created),
			BoundMicros: micros(p.bound), RunningMicros: micros(p.running), ReadyMicros: micros(p.running)}
		switch {
		case i > last+s.stuck:
			continue // lost
		case i > last:
			row.RunningMicros, row.ReadyMicros = 0, 0
			if s.taken {
				row.DeletedMicros = row.BoundMicros + 1000
			}
		}
		r.pods = append(r.pods, row)
	}
	r.steady = record.Window{Start: epoch.Add(-time.Millisecond), End: time.UnixMicro(micros(end + 1))}
	if s.status == record.StatusInterrupted {
		var moved int64
		for _, p := range r.pods {
			moved = max(moved, p.CreatedMicros, p.BoundMicros, p.RunningMicros)
		}
		r.steady.End = time.UnixMicro(moved).Add(time.Second)
	}
	if s.ended != nil {
		r.steady.End = time.UnixMicro(micros(s.ended.at + 0.1))
	}

	count := func(component, metric string, value float64, labels ...string) {
		l := map[string]string{"component": component, "instance": component + "-1"}
		for i := 0; i+1 < len(labels); i += 2 {
			l[labels[i]] = labels[i+1]
		}
		if !s.no["metrics"] && !s.no["metrics of "+component] {
			r.counters = append(r.counters, counter{metric: metric, labels: l, value: value})
		}
	}
	n := float64(len(order))
	cycles := func(t float64) int {
		return sort.Search(len(decided), func(i int) bool { return decided[i][0] > t })
	}
	grow := func(metric string, course func(t float64) float64) {
		count(diagnose.Scheduler, metric, 0)
		if c := &r.counters; len(*c) > 0 && (*c)[len(*c)-1].metric == metric {
			(*c)[len(*c)-1].course = course
		}
	}
	grow("scheduler_scheduling_algorithm_duration_seconds_sum", func(t float64) float64 {
		if i := cycles(t); i > 0 {
			return decided[i-1][1]
		}
		return 0
	})
	grow("scheduler_scheduling_algorithm_duration_seconds_count", func(t float64) float64 { return float64(cycles(t)) })
	count(diagnose.Scheduler, "scheduler_framework_extension_point_duration_seconds_sum", bindSum, "extension_point", cmp.Or(s.bindPoint, "Bind"))
	inside := decideSum
	if s.decidesOutside {
		inside /= 50
	}
	count(diagnose.Scheduler, "scheduler_framework_extension_point_duration_seconds_sum", inside, "extension_point", "Filter")
	count(diagnose.Scheduler, "rest_client_rate_limiter_duration_seconds_sum", binds.waited)
	count(diagnose.ControllerManager, "rest_client_rate_limiter_duration_seconds_sum", min(bucket.waited, 250*end))
	syncs := s.syncs
	if syncs == 0 {
		syncs = 0.05
	}
	syncTime := 0.001
	if s.syncTime > 0 {
		syncTime = s.syncTime.Seconds()
	}
	count(diagnose.Etcd, "etcd_disk_wal_fsync_duration_seconds_sum", syncs*(end+5))
	count(diagnose.Etcd, "etcd_disk_wal_fsync_duration_seconds_count", syncs*(end+5)/syncTime)
	count(diagnose.Hollow, "kubedyno_hollow_start_lateness_seconds_sum", n*(s.nodesLate.Seconds()+s.nodesWait.Seconds()+0.002))
	count(diagnose.Hollow, "kubedyno_hollow_start_lateness_seconds_count", n)
	count(diagnose.Hollow, "kubedyno_hollow_timer_lateness_seconds_sum", 2*n*(s.nodesLate.Seconds()+0.001))
	count(diagnose.Hollow, "kubedyno_hollow_timer_lateness_seconds_count", 2*n)

	r.end = end
	s.observed(r)
	s.processTables(r, end)
	s.describe(r)
	return r
}

// An ending is that of a component, and of the run.
type ending struct {
	component string
	code      int32
	at        float64 // seconds since the load began
}

// A stretch is of seconds since the load began.
type stretch struct{ from, until float64 }

// shares is how the busy time of the machine splits among processes.
var shares = []struct {
	component string
	share     float64
}{
	{diagnose.APIServer, 0.40}, {diagnose.Etcd, 0.12}, {diagnose.ControllerManager, 0.12}, {diagnose.Scheduler, 0.08},
	{diagnose.Hollow, 0.15}, {diagnose.Load, 0.03}, {diagnose.Self, 0.09}, {diagnose.Keeper, 0.01},
}

func (s *script) processTables(r *Run, end float64) {
	busy := s.busy
	if busy < 0 {
		busy = min(0.98, 0.012*float64(s.pods)/end/float64(s.cores)+0.05)
	}
	const idle = 0.05                            // CPUs, before the load
	others := busy * float64(s.cores) * s.others // before the load too
	for t := -settle; t <= end+2; t++ {
		load := min(max(t, 0), end)
		total := idle*(t+settle) + load*(busy*float64(s.cores)*(1-s.others)-idle) + max(0, min(load, s.full.until)-s.full.from)*(1-busy)*float64(s.cores)
		r.machine = append(r.machine, record.MachineSample{TimeMicros: micros(t), User: 0.7*total + others*(t+settle), System: 0.3 * total, Idle: (t+settle)*(float64(s.cores)-others) - total, TCPOpensPassive: int64(s.connections * load)})
		for i := range s.cores {
			share := busy
			if i < len(s.cpus) {
				share = s.cpus[i]
			}
			used := idle/float64(s.cores)*(t+settle) + load*(share-idle/float64(s.cores))
			r.coreTable = append(r.coreTable, record.CoreSample{TimeMicros: micros(t), CPU: int32(i), UserSeconds: used, IdleSeconds: t + settle - used})
		}
		if others > 0 {
			r.processes = append(r.processes, record.ProcessSample{TimeMicros: micros(t), PID: 99, StartMicros: micros(-60), Command: "stress --cpu 2", UserSeconds: others * (t + settle), RunDelaySeconds: -1, ThrottledSeconds: -1, ThrottledPeriods: -1, Periods: -1})
		}
		for i, x := range shares {
			cpu := x.share * total
			row := record.ProcessSample{TimeMicros: micros(t), PID: int32(100 + i), StartMicros: micros(-60), Component: x.component, Command: x.component, RunDelaySeconds: -1, ThrottledSeconds: -1, ThrottledPeriods: -1, Periods: -1}
			if q, ok := s.quotas[x.component]; ok {
				cpu = 0.1*q.cores*(t+settle) + load*q.cores*(q.used-0.1)
				row.Periods = int64(10 * (t + settle))
				row.ThrottledPeriods = int64(10 * load * q.stopped)
				row.ThrottledSeconds = 0.08 * 10 * load * q.stopped
			}
			row.UserSeconds, row.SystemSeconds = 0.7*cpu, 0.3*cpu
			row.VoluntarySwitches = int64(300 * (t + settle + 60))
			if w, ok := s.still[x.component]; ok && t > w.from {
				// It stands where it stood, and goes on from there.
				stood := min(t, w.until) - w.from
				row.VoluntarySwitches -= int64(300 * stood)
				if t <= w.until {
					cpu = x.share * (idle*(w.from+settle) + w.from*(busy*float64(s.cores)*(1-s.others)-idle))
					row.UserSeconds, row.SystemSeconds = 0.7*cpu, 0.3*cpu
				}
			}
			if share := s.halted[x.component]; t > 0 && t <= end && math.Floor((t+1)*share) > math.Floor(t*share) {
				row.Stopped = 1
			}
			row.WriteBytes = int64(s.written[x.component] * load)
			if share, ok := s.delayed[x.component]; ok {
				row.RunDelaySeconds = share * load
			}
			r.processes = append(r.processes, row)
		}
	}
}

func (s *script) describe(r *Run) {
	m := record.Meta{
		Schema: record.Schema, ID: "20260102T150000Z-test01", Name: "test", Started: epoch.Add(-time.Minute), Ended: r.steady.End, Status: s.status,
		Cluster:  record.Cluster{Kind: "lab", Version: "v1.36.3"},
		Machine:  record.Machine{CPUs: s.cores},
		Workload: record.Workload{ExpectedPods: s.pods, OfferedRate: s.bareRate, Shape: "test"},
		Nodes:    record.Nodes{Count: 50, Identity: "own", Simulated: true},
		Phases: []record.Phase{
			{Name: "settle", Kind: record.PhaseSettle, Start: epoch.Add(-settle * time.Second), End: epoch},
			{Name: "load", Kind: record.PhaseSteady, Start: r.steady.Start, End: r.steady.End},
		},
	}
	if s.warmUp {
		r.unsteady, m.Phases[1].Kind = true, record.PhaseWarmUp
		m.Workload.ExpectedPods = 10 * s.pods // of the load, which never began
	}
	if s.deployments > 0 {
		m.Workload.Controller = "Deployment"
	}
	for _, x := range shares {
		c := record.Component{Name: x.component, Instance: x.component + "-1", Args: []string{"--v=2"}, Harness: strings.HasPrefix(x.component, "kubedyno"), CPU: s.quotas[x.component].cores}
		if s.quotas[x.component].others {
			c.CPU = 0
		}
		c.Args = append(c.Args, s.flags[x.component]...)
		switch x.component {
		case diagnose.ControllerManager:
			c.Args = append(c.Args, flags(s.controller)...)
		case diagnose.Scheduler:
			c.Args = append(c.Args, flags(s.scheduler)...)
		}
		m.Cluster.Components = append(m.Cluster.Components, c)
	}
	if s.no["flags"] { // an existing cluster: only the harness runs here
		m.Cluster.Kind = "existing"
		m.Cluster.Components = slices.DeleteFunc(m.Cluster.Components, func(c record.Component) bool { return !c.Harness })
		r.processes = slices.DeleteFunc(r.processes, func(p record.ProcessSample) bool { return !strings.HasPrefix(p.Component, "kubedyno") })
	}
	if e := s.ended; e != nil {
		m.EndReason = e.component + " exited (signal: killed): its last line"
		for _, p := range r.processes {
			if p.Component == e.component {
				r.exits = append(r.exits, record.ProcessExit{TimeMicros: micros(e.at), StartMicros: p.StartMicros, PID: p.PID, Component: p.Component, Command: p.Command, ExitCode: e.code})
				break
			}
		}
	}
	r.missing["exits"] = s.ended == nil
	for what, table := range map[string]string{"audit": "requests", "processes": "processes", "machine": "machine"} {
		if s.no[what] {
			r.missing[table] = true
		}
	}
	r.meta = m
	if key, ok := m.CalibrationKey(); ok && len(s.healthy) > 0 {
		r.calibration = &record.Calibration{Of: key, Features: map[string]record.Healthy{}}
		for name, x := range s.healthy {
			r.calibration.Features[name] = record.HealthyOf([]float64{0.95 * x, 0.98 * x, x, 1.02 * x, 1.05 * x})
		}
	}
}

func flags(l limit) []string {
	var args []string
	if l.flag {
		args = append(args, fmt.Sprintf("--kube-api-qps=%g", l.qps), fmt.Sprintf("--kube-api-burst=%g", l.burst))
	}
	if l.config {
		args = append(args, "--config=/etc/scheduler.yaml")
	}
	return args
}

func (r *Run) Meta() record.Meta                    { return r.meta }
func (r *Run) Steady() (record.Window, bool)        { return r.steady, !r.unsteady }
func (r *Run) Exits() ([]record.ProcessExit, error) { return table(r, "exits", r.exits) }
func (r *Run) Calibration() (*record.Calibration, error) {
	if r.calibration == nil {
		return nil, record.ErrMissing
	}
	return r.calibration, nil
}
func (r *Run) Pods() ([]record.Pod, error)             { return r.pods, nil }
func (r *Run) Operations() ([]record.Operation, error) { return r.ops, nil }

func (r *Run) Processes() ([]record.ProcessSample, error) {
	return table(r, "processes", r.processes)
}

func (r *Run) MachineSamples() ([]record.MachineSample, error) {
	return table(r, "machine", r.machine)
}

func (r *Run) Cores() ([]record.CoreSample, error) { return table(r, "machine", r.coreTable) }

func (r *Run) Objects() ([]record.ObjectChange, error) {
	if len(r.objects) == 0 {
		return nil, fmt.Errorf("table objects: %w", record.ErrMissing)
	}
	return r.objects, nil
}

func (r *Run) Events() ([]record.Event, error) {
	return nil, fmt.Errorf("table events: %w", record.ErrMissing)
}

func (r *Run) Requests() ([]record.Request, error) { return table(r, "requests", r.requests) }

func table[T any](r *Run, name string, rows []T) ([]T, error) {
	if r.missing[name] {
		return nil, fmt.Errorf("table %s: %w", name, record.ErrMissing)
	}
	return slices.Clone(rows), nil
}

// Increase is what the matching counters grew by in the window.
func (r *Run) Increase(metric string, match map[string]string, w record.Window) (value float64, ok bool, err error) {
	for _, c := range r.counters {
		if c.metric != metric || !matches(c.labels, match) {
			continue
		}
		value += c.at(seconds(w.End), r.end) - c.at(max(-settle, seconds(w.Start)), r.end)
		ok = true
	}
	return value, ok, nil
}

// Points are one a second, from the time at rest to a scrape after the load.
func (r *Run) Points(metric string, match map[string]string, w record.Window) ([]record.Series, error) {
	var all []record.Series
	for _, c := range r.counters {
		if c.metric != metric || !matches(c.labels, match) {
			continue
		}
		s := record.Series{Labels: c.labels}
		for t := -settle; t < r.end+6; t++ {
			if at := time.UnixMicro(micros(t)); w.Contains(at) {
				s.Points = append(s.Points, record.Point{Time: at, Value: c.at(t, r.end)})
			}
		}
		if len(s.Points) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

func seconds(t time.Time) float64 { return t.Sub(epoch).Seconds() }

func matches(labels, match map[string]string) bool {
	for k, want := range match {
		if pattern, ok := strings.CutPrefix(want, "~"); ok {
			if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(labels[k]) {
				return false
			}
		} else if labels[k] != want {
			return false
		}
	}
	return true
}

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/access"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/collect/logs"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/objects"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/collect/stacks"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
)

// session is one run under way.
type session struct {
	o  Options
	id string
	w  *record.Writer
	// madeOut says that the recording's folder was not there before.
	madeOut bool
	// watching is a session without a load, of a lab that is up or an existing
	// cluster; lab is that one's name, length for how long.
	watching bool
	lab      string
	length   time.Duration

	target  target
	plane   *cluster.ControlPlane
	hollow  hollowProcess
	csi     *csi // nil where there is no storage
	real    []*realnode.Node
	onNodes []metrics.Target // processes on them that are asked
	began   time.Time        // when the control plane began to be started
	actors  map[string]*child
	folder  string // of the actors, where there is no lab to hold it
	worker  *load.Worker
	objects *objects.Collector
	claims  *objects.Claims // nil where nobody watches claims
	metrics *metrics.Collector
	logs    *logs.Collector
	process *process.Collector
	profile *profile.Collector
	stacks  *stacks.Collector

	fail     context.CancelCauseFunc // ends the run
	exact    bool                    // the phase under way is scraped at its edges
	endedIn  string                  // the phase in which the run ended
	mu       sync.Mutex
	phase    record.Phase   // the one under way
	parts    []record.Phase // what it consisted of, where its phases ran together
	of       string         // the phase whose pods are shown
	ofClaims bool           // its claims, that is
	own      []int          // our processes

	spent       []spent // by the phases that are over
	asked       asked
	askedClaims asked
	short       []error // waits that ran out, reported at the end
	judged      error   // a wait that ran out and is an objective's to judge
}

// run brings everything up, performs the phases, and takes everything down.
func (s *session) run(ctx context.Context) (err error) {
	s.asked, s.askedClaims = asked{}, asked{}
	s.enter("start", record.PhaseStart)
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.fail = fail

	if err := checkReal(s.o.Experiment.Cluster); err != nil { // before a control plane is started for it
		return err
	}
	s.began = s.o.Now()
	if s.target, err = s.startTarget(work); err != nil {
		return err
	}
	s.plane = s.target.ControlPlane()
	defer func() { err = errors.Join(err, s.target.Remove()) }()
	go func() {
		select {
		case e := <-s.target.Exited():
			fail(&diedError{e})
		case <-work.Done():
		}
	}()
	if err := s.describeCluster(); err != nil {
		return err
	}
	s.checkAccess(work)
	defer func() { err = errors.Join(err, s.removeStorage()) }()
	if err := s.prepareStorage(); err != nil {
		return err
	}

	asking, reading, err := s.startCollectors(work)
	if asking == nil {
		return err
	}
	// Those that read logs end after the control plane has had its last word.
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, asking.Stop(), s.target.Stop(stop, err != nil), reading.Stop())
	}()
	if err != nil {
		return err
	}
	watched := asking.Context() // ends with work, and when a collector fails
	var beside sync.WaitGroup
	defer beside.Wait()
	defer fail(nil)
	beside.Go(func() { s.watchDisk(watched, fail) })
	beside.Go(func() { s.tell(watched) })

	if s.watching {
		err = s.observe(watched)
	} else {
		err = s.perform(watched)
	}
	// The cause says more than the "context canceled" of whatever was under
	// way when a component died or a collector failed.
	if cause := context.Cause(watched); err != nil && cause != nil {
		err = cause
	}
	s.endedIn = s.phaseName()
	var died *diedError
	if errors.As(err, &died) {
		// Nobody answers any more, or soon. Those who ask must not wait for it.
		return errors.Join(err, s.target.Stop(ctx, true), s.close(ctx, false))
	}
	// The last scrape and the end of the phase, while the components live.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastScrape)
	defer cancel()
	return errors.Join(err, s.close(last, true))
}

// lastScrape bounds the scrape at the end of a run that was interrupted: who
// presses Ctrl-C does not want to wait.
const lastScrape = 3 * time.Second

// A diedError says that a process of the run ended by itself.
type diedError struct{ err error }

func (e *diedError) Error() string { return e.err.Error() }
func (e *diedError) Unwrap() error { return e.err }

// startTarget gets the control plane of the run.
func (s *session) startTarget(ctx context.Context) (target, error) {
	switch {
	case s.watching:
		return s.find(ctx)
	case !s.o.Existing:
		return newLabTarget(ctx, s.o, "", s.note)
	}
	return s.connect(ctx)
}

// checkAccess notes what the user may see of a cluster that is not ours. Who may
// not even ask still gets a recording of what answers.
func (s *session) checkAccess(ctx context.Context) {
	if s.plane.Kind == cluster.KindLab {
		return
	}
	grants, err := s.grants(ctx)
	if err != nil {
		s.w.Gap(record.Gap{Collector: "access", Reason: err.Error()})
		return
	}
	_ = s.w.Update(func(m *record.Meta) { // a disk that is full ends the run elsewhere
		for _, g := range grants.List {
			m.Access = append(m.Access, record.Access{What: g.What, Collector: g.Collector, Grant: g.Target(), Allowed: g.Allowed, Adds: g.Adds})
		}
	})
}

func (s *session) grants(ctx context.Context) (access.Grants, error) {
	rc, err := s.plane.RESTConfig("collect")
	if err != nil {
		return access.Grants{}, err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return access.Grants{}, fmt.Errorf("check access: %w", err)
	}
	return access.Check(ctx, client, access.Needs())
}

// perform is the run between cluster and collectors up and down.
func (s *session) perform(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.stopRealNodes(ctx)) }()
	ctx, fail := context.WithCancelCause(ctx)
	defer func() {
		var died *diedError
		if errors.As(context.Cause(ctx), &died) {
			err = died // says more than what it did to whatever was under way
		}
		fail(nil)
	}()
	defer func() { err = errors.Join(err, s.stopStorage(ctx)) }()
	if err := s.startStorage(ctx, fail); err != nil {
		return err
	}
	if err := s.startNodes(ctx); err != nil {
		return err
	}
	worker, err := load.Start(ctx, load.StartOptions{
		Config: load.Config{
			Kubeconfig:  s.plane.Kubeconfigs.Load,
			RunID:       s.id,
			Seed:        s.o.Experiment.Seed,
			Nodes:       s.o.Experiment.Cluster.Nodes.All(),
			Existing:    s.o.Existing,
			HollowNodes: s.o.Existing && s.o.Experiment.Cluster.Nodes.Hollow > 0,
			NoAccounts:  s.o.Experiment.Cluster.Components[lab.ControllerManager].Off,
			NoKubelets:  s.o.Experiment.Cluster.Nodes.Seeded > 0,
		},
		Executable: s.o.Executable,
		Wrap:       s.target.WrapLoad,
	})
	if err != nil {
		return fmt.Errorf("start the load generator: %w", err)
	}
	s.worker = worker
	defer func() {
		// On a cluster that is not ours nothing of the run may stay. A lab
		// goes as a whole.
		if s.o.Existing {
			kept := context.WithoutCancel(ctx)
			clean, cancel := context.WithTimeout(kept, cleanupTimeout)
			defer cancel()
			s.note("removing the run's objects")
			err = errors.Join(err, worker.Cleanup(clean), s.namespaceGone(kept, worker.Namespace()))
		}
		if s.metrics != nil { // nobody will answer any more
			s.metrics.Remove(load.ProcessName, loadInstance(worker))
		}
		err = errors.Join(err, worker.Stop())
	}()
	s.attach(process.Component{Name: load.ProcessName, PID: worker.PID(), Cgroup: s.target.LoadCgroup()})
	if s.metrics != nil {
		s.metrics.Add(metrics.Target{Component: load.ProcessName, Instance: loadInstance(worker), URL: worker.MetricsURL(), Seldom: true})
	}
	if err := s.addHarness(record.Component{
		Name: load.ProcessName, PID: worker.PID(), CPU: s.o.Experiment.Cluster.Components[load.ProcessName].CPU,
	}); err != nil {
		return err
	}
	if err := worker.Check(ctx, s.o.Experiment.Phases); err != nil {
		return fmt.Errorf("check what the experiment makes: %w", err)
	}
	if err := s.leave(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stopActors(ctx, everyPhase)) }()
	if err := s.startActors(ctx, everyPhase); err != nil {
		return err
	}
	steps := s.o.Experiment.Plan()
	for i, p := range steps {
		if err := s.perStep(ctx, p); err != nil {
			return fmt.Errorf("phase %s: %w", p.Name, err)
		}
		if s.judged != nil && i+1 < len(steps) {
			return errors.Join(append(s.short, s.leaveOut(steps[i+1:]))...)
		}
	}
	return errors.Join(s.short...)
}

func loadInstance(w *load.Worker) string { return fmt.Sprintf("%s@%d", load.ProcessName, w.PID()) }

// cleanupTimeout is how long the deletion of a run's objects from a cluster that is
// not ours may stand still.
const cleanupTimeout = 5 * time.Minute

// namespaceGone waits until the API server has removed the run's namespace. The
// hollow nodes have to live as long: they are the ones who let its pods go.
func (s *session) namespaceGone(ctx context.Context, name string) error {
	rc, err := s.plane.RESTConfig("load")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err == nil {
		err = waitGone(ctx, client, name, s.o.Now)
	}
	if err != nil {
		return fmt.Errorf("wait for namespace %s to go: %w; kubedyno clean --run %s takes it away", name, err, s.id)
	}
	return nil
}

// waitGone waits until an API server has no such namespace, as long as less is left
// of it all the time: tens of thousands of pods take many minutes.
func waitGone(ctx context.Context, client kubernetes.Interface, name string, now func() time.Time) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	least, moved := remains{pods: math.MaxInt64, objects: math.MaxInt64}, now()
	for {
		left, gone := whatIsLeft(ctx, client, name)
		if gone {
			return nil
		}
		if left.pods < least.pods || left.objects < least.objects {
			moved = now()
		}
		least.pods, least.objects = min(least.pods, left.pods), min(least.objects, left.objects)
		if left.text != "" {
			least.text = left.text
		}
		if now().Sub(moved) > cleanupTimeout {
			return fmt.Errorf("it was deleted, but nothing more of it has gone for %v%s", cleanupTimeout, least.text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// remains is what there still is of a namespace. Each number is math.MaxInt64 where
// the API server did not tell it, so that the first that it tells counts as progress.
type remains struct {
	// pods is how many there are now, objects how many of all kinds the namespace
	// controller counted when it last looked.
	pods, objects int64
	// text says it, for an error.
	text string
}

// instances is how the namespace controller words what it still finds, by resource.
var instances = regexp.MustCompile(`has (\d+) resource instances`)

// whatIsLeft says what an API server tells of a namespace that is on its way out.
func whatIsLeft(ctx context.Context, client kubernetes.Interface, name string) (left remains, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	left = remains{pods: math.MaxInt64, objects: math.MaxInt64}
	ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return left, apierrors.IsNotFound(err)
	}
	if pods, err := client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
		n := int64(len(pods.Items))
		if more := pods.RemainingItemCount; more != nil {
			n += *more
		}
		left.pods = n
		left.text = fmt.Sprintf("; pods left: %d", n)
	}
	for _, c := range ns.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		left.text += "; " + c.Message
		counts := instances.FindAllStringSubmatch(c.Message, -1)
		if c.Type == corev1.NamespaceContentRemaining && len(counts) > 0 {
			left.objects = 0
			for _, m := range counts {
				n, _ := strconv.ParseInt(m[1], 10, 64)
				left.objects += n
			}
		}
	}
	return left, false
}

// enter begins a phase of the recording.
func (s *session) enter(name string, kind record.PhaseKind) {
	s.mu.Lock()
	s.phase = record.Phase{Name: name, Kind: kind, Start: s.o.Now()}
	s.mu.Unlock()
	s.o.Watch.Phase(name)
}

// leave ends it. Where the phase is judged, counters are scraped at the edge, so
// that differences over it are exact.
func (s *session) leave(ctx context.Context) error { return s.close(ctx, true) }

// close ends the phase under way, with a scrape unless nobody would answer.
func (s *session) close(ctx context.Context, scrape bool) error {
	s.mu.Lock()
	p, parts := s.phase, s.parts
	s.phase, s.parts = record.Phase{}, nil
	s.mu.Unlock()
	if p.Name == "" {
		return nil
	}
	p.End = s.o.Now()
	s.spent = append(s.spent, spent{p.Name, p.End.Sub(p.Start)})
	if s.metrics != nil && scrape && s.exact {
		s.metrics.Judged(false)
		// What does not answer any more is down, and no reason not to end. The
		// samples belong to the phase, unless one is late because another scrape
		// was under way.
		if asked, err := s.metrics.Now(ctx); err == nil && asked.After(p.End) && asked.Sub(p.End) < edge {
			p.End = asked
		}
	}
	if parts == nil {
		parts = []record.Phase{p}
	} else {
		parts[len(parts)-1].End = p.End // the samples at the end belong to one of them
	}
	return s.w.Update(func(m *record.Meta) { m.Phases = append(m.Phases, parts...) })
}

// edge is how much longer a phase may be said to be for the samples at its end
// to be in it.
const edge = 100 * time.Millisecond

func (s *session) phaseName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase.Name == "" {
		return "the end"
	}
	return "phase " + s.phase.Name
}

func (s *session) note(format string, args ...any) { s.o.Watch.Note(fmt.Sprintf(format, args...)) }

// startNodes starts the nodes of the run and waits until pods can go to them.
func (s *session) startNodes(ctx context.Context) error {
	nodes := s.o.Experiment.Cluster.Nodes
	if nodes.All() == 0 {
		return s.existingNodes(ctx)
	}
	if nodes.Hollow > 0 {
		if err := s.startHollowNodes(ctx); err != nil {
			return err
		}
	}
	if err := s.seed(ctx); err != nil {
		return err
	}
	return s.startRealNodes(ctx, nodes.Real)
}

func (s *session) startHollowNodes(ctx context.Context) error {
	e := s.o.Experiment
	conf := s.hollowConfig()
	var err error
	if conf.Network.IPAM, err = s.prepareIPAM(ctx); err != nil {
		return err
	}
	config, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("configure hollow nodes: %w", err)
	}
	if s.hollow, err = s.target.StartHollow(ctx, config); err != nil {
		return fmt.Errorf("start hollow nodes: %w", err)
	}
	if err := s.joinHollow(s.hollow); err != nil {
		return err
	}
	n := e.Cluster.Nodes.Hollow
	ready := make(chan hollow.Event, 1)
	came := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		for line := range s.hollow.Events {
			var ev hollow.Event
			if err := json.Unmarshal(line, &ev); err != nil {
				continue
			}
			switch ev.Event {
			case "node":
				s.w.Node(record.NodeSample{Name: ev.Name, CreatedMicros: ev.CreatedMicros, ReadyMicros: ev.ReadyMicros, SchedulableMicros: ev.SchedulableMicros})
				select {
				case came <- struct{}{}:
				default:
				}
			case "ready":
				ready <- ev
			case "error":
				select {
				case failed <- errors.New(ev.Error):
				default:
				}
			}
		}
	}()
	// The node controller takes the not-ready taints off as fast as its own
	// client limit lets it, which an experiment may set to almost nothing: only
	// a standstill is a failure.
	stalled := time.NewTimer(nodePatience)
	defer stalled.Stop()
	var ev hollow.Event
	for waiting := true; waiting; {
		select {
		case <-came:
			stalled.Reset(nodePatience)
		case ev = <-ready:
			waiting = false
		case err := <-failed:
			return fmt.Errorf("hollow nodes: %w", err)
		case <-stalled.C:
			return s.unschedulable(ctx, n)
		case <-ctx.Done():
			return fmt.Errorf("hollow nodes: %w", context.Cause(ctx))
		}
	}
	s.note("%d nodes: Ready after %.1f s, schedulable after %.1f s", n, ev.ReadySeconds, ev.SchedulableSeconds)
	return s.w.Update(func(m *record.Meta) {
		m.Nodes = record.Nodes{
			Count: n, Simulated: true, Identity: string(s.identity()),
			ReadySeconds: ev.ReadySeconds, SchedulableSeconds: ev.SchedulableSeconds,
		}
		if delay := e.Cluster.Node.StartDelay; delay.Kind != "" {
			m.Nodes.StartDelayMedian, m.Nodes.StartDelayP99 = delay.At(0.5).Seconds(), delay.At(0.99).Seconds()
		}
		m.LeftOut = append(m.LeftOut, ev.LeftOut...)
		m.Nodes.Fidelity = hollow.Fidelity(s.hollowConfig().Traffic)
	})
}

// joinHollow makes the process of the simulated nodes one that is watched.
func (s *session) joinHollow(h hollowProcess) error {
	s.attach(process.Component{Name: hollow.UserAgent, PID: h.PID, Cgroup: h.Cgroup})
	if s.metrics != nil {
		s.metrics.Add(metrics.Target{Component: hollow.UserAgent, Instance: fmt.Sprintf("%s@%d", hollow.UserAgent, h.PID), URL: h.MetricsURL, Seldom: true})
	}
	return s.addHarness(record.Component{Name: hollow.UserAgent, PID: h.PID, CPU: h.CPU})
}

// nodePatience is for how long no node may become schedulable before a run
// gives up. A stock control plane does 20 a second, a starved one still some.
const nodePatience = time.Minute

// existingNodes counts the nodes of a cluster that is not ours. Without any, the
// run would wait for pods that nobody can start.
func (s *session) existingNodes(ctx context.Context) error {
	rc, err := s.plane.RESTConfig("load")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("count nodes: %w", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err): // who may not look at nodes may still create pods
		s.w.Gap(record.Gap{Collector: "nodes", Reason: "this user may not list nodes"})
		return nil
	case err != nil:
		return fmt.Errorf("count nodes: %w", err)
	case len(nodes.Items) == 0:
		return &noNodesError{s.plane.Name}
	}
	return s.w.Update(func(m *record.Meta) { m.Nodes = record.Nodes{Count: len(nodes.Items)} })
}

type noNodesError struct{ cluster string }

func (e *noNodesError) Error() string {
	return e.cluster + " has no node; add simulated ones with --nodes N"
}

func (s *session) identity() hollow.Identity {
	switch {
	case s.o.Experiment.Cluster.Node.Identity == experiment.IdentityPooled || s.o.Experiment.Cluster.Node.Traffic == experiment.TrafficLeast:
		return hollow.Pooled
	case s.plane.NodeCA.CertFile == "":
		return hollow.Impersonated
	}
	return hollow.Own
}

func (s *session) hollowConfig() hollow.Config {
	e := s.o.Experiment
	node := e.Cluster.Node
	c := hollow.Config{
		Kubeconfig: s.plane.Kubeconfigs.Admin,
		Identity:   s.identity(),
		Nodes:      e.Cluster.Nodes.Hollow,
		RunID:      s.id,
		CPU:        string(node.CPU),
		Memory:     string(node.Memory),
		Pods:       node.Pods,
		Labels:     node.Labels,
		Zones:      node.Zones,
		Seed:       e.Seed,
		StartDelay: hollowDelay(node.StartDelay),
		StopDelay:  hollowDelay(node.StopDelay),
		Traffic:    hollow.Traffic(node.Traffic),
		Starts:     node.Starts,
		Disk:       hollowDelay(node.Disk),
		Images:     hollow.Images{Pull: hollowDelay(node.Images.Pull), Parallel: node.Images.Parallel},
		Network:    hollow.Network{Delay: hollowDelay(node.Network.Delay), Serial: node.Network.Serial},
		Pprof:      true,
		Storage:    hollowStorage(e.Cluster.Storage),
	}
	for _, t := range node.Taints {
		c.Taints = append(c.Taints, hollow.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if c.Identity == hollow.Own {
		c.Server, c.CAFile = s.plane.Server, s.plane.CA
		c.NodeCA = &hollow.KeyPair{CertFile: s.plane.NodeCA.CertFile, KeyFile: s.plane.NodeCA.KeyFile}
	}
	if s.o.Existing {
		// Nobody else's pods may come to nodes that run nothing, and nothing
		// of ours may stay.
		c.NamePrefix = "kubedyno-" + s.id[len(s.id)-6:] + "-"
		c.Taints = append(c.Taints, hollow.Taint{Key: load.HollowTaint, Value: "true", Effect: "NoSchedule"})
		c.Cleanup = true
	}
	return c
}

// hollowDelay translates the experiment's distribution.
func hollowDelay(d experiment.Distribution) hollow.Delay {
	switch d.Kind {
	case experiment.Constant:
		return hollow.Delay{Distribution: "constant", Median: d.Value.Seconds()}
	case experiment.LogNormal:
		return hollow.Delay{Distribution: "lognormal", Median: d.Median.Seconds(), P99: d.P99.Seconds()}
	case experiment.Uniform:
		return hollow.Delay{Distribution: "uniform", Min: d.Min.Seconds(), Max: d.Max.Seconds()}
	}
	return hollow.Delay{}
}

// watchDisk ends the run when the recording cannot be written any more.
func (s *session) watchDisk(ctx context.Context, fail context.CancelCauseFunc) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.w.Err(); err != nil {
				fail(err)
				return
			}
		}
	}
}

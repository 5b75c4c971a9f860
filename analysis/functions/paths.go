package functions

import (
	"fmt"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/record"
)

// A path says what a component was doing for whom: which handler of the API
// server, which loop of etcd or the scheduler a stack came through. Classes say
// what the innermost function does; a path is looked for in all of a stack.
type path struct {
	name     string
	patterns []string // anywhere in a function's name
}

// Paths that detectors ask for.
const (
	PathList      = "LIST"
	PathWatch     = "watch"
	PathHandshake = "TLS handshakes"
	PathAdmission = "admission"
	PathPolicy    = "admission policies"
	PathAudit     = "audit"
	PathAuthz     = "authorization"
	PathLogging   = "logging"
	PathOpenAPI   = "OpenAPI"
	PathEncrypt   = "encryption at rest"
	PathMetrics   = "metrics"
	PathRegister  = "metrics registration"
	PathGC        = "garbage collection"
	PathSpin      = "idle spinning"
	PathCounts    = "object counts"
)

// pathRules are tried in turn, so that a part of a request comes before the
// request, and watches before lists, whose handler they come through. Names are
// those of Kubernetes v1.36 and etcd v3.6.
var pathRules = []path{
	{PathSpin, []string{"runtime.findRunnable", "runtime.stealWork"}},
	{PathGC, []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge"}},
	{PathHandshake, []string{"crypto/tls.(*Conn).serverHandshake", "crypto/tls.(*Conn).clientHandshake"}},
	{PathMetrics, []string{"promhttp.", "kubedyno/lab/scrape.", "prometheus.(*Registry).Gather"}},
	{PathCounts, []string{"registry.(*Store).startObservingCount"}},
	{PathRegister, []string{"prometheus.(*Registry).Register", "component-base/metrics.(*kubeRegistry).", "collectors.NewGoCollector", "collectors.NewProcessCollector"}},
	{PathLogging, []string{"k8s.io/klog", "server/httplog.(*respLogger).Log", "go.uber.org/zap."}},
	{"log of requests", []string{"requestlog.(*answer).line", "requestlog.(*Log).put", "requestlog.(*Log).flush", "requestlog.nameIn"}},
	{PathAudit, []string{"apiserver/pkg/audit.", "apiserver/plugin/pkg/audit/", "filters.evaluatePolicyAndCreateAuditEvent", "filters.(*auditResponseWriter).processCode"}},
	{PathOpenAPI, []string{"kube-openapi/pkg/builder", "kube-openapi/pkg/aggregator", "apiextensions-apiserver/pkg/controller/openapi"}},
	{PathAuthz, []string{"rbac.(*RBACAuthorizer).Authorize", "node.(*NodeAuthorizer).Authorize", "authorizer/webhook.(*WebhookAuthorizer)"}},
	{PathPolicy, []string{"admission/plugin/policy", "cel-go"}},
	{PathAdmission, []string{"webhook/mutating.(*mutatingDispatcher).Dispatch", "webhook/validating.(*validatingDispatcher).Dispatch"}},
	{PathEncrypt, []string{"storage/value/encrypt", "storage/value.(*prefixTransformers)"}},
	{PathWatch, []string{"handlers.(*WatchServer).HandleHTTP", "handlers.(*watchEncoder).doEncode", "cacher.(*cacheWatcher).process", "cacher.(*cacheWatcher).convertToWatchEvent", "handlers.handleWatch"}},
	{PathList, []string{"endpoints.restfulListResource", "handlers.ListResource"}},
	{"watch cache", []string{"cacher.(*Cacher).dispatchEvents", "cacher.(*watchCache).processEvent", "etcd3.(*watchChan)."}},
	{"GET", []string{"endpoints.restfulGetResource", "handlers.GetResource"}},
	{"CREATE", []string{"endpoints.restfulCreateResource", "endpoints.restfulCreateNamedResource", "handlers.createHandler", "Resource.createHandler.", "handlers.(*namedCreaterAdapter)"}},
	{"PATCH", []string{"endpoints.restfulPatchResource", "handlers.PatchResource", "handlers.(*patcher)."}},
	{"UPDATE", []string{"endpoints.restfulUpdateResource", "handlers.UpdateResource"}},
	{"DELETE", []string{"endpoints.restfulDeleteResource", "endpoints.restfulDeleteCollection", "handlers.DeleteResource", "handlers.DeleteCollection"}},
	{"HTTP/2 connections", []string{"http2.(*serverConn).serve", "http2.(*serverConn).readFrames", "http2.(*serverConn).writeFrameAsync", "http2.(*clientConnReadLoop)"}},
	{"gRPC connections", []string{"grpc/internal/transport.(*loopyWriter)", "grpc/internal/transport.(*http2Client).reader", "grpc/internal/transport.(*http2Server).HandleStreams"}},
	{"etcd compaction", []string{"mvcc.(*store).scheduleCompaction", "mvcc.(*treeIndex).Compact"}},
	{"etcd watch", []string{"mvcc.(*watchableStore).notify", "mvcc.(*watchableStore).syncWatchers"}},
	{"etcd commit", []string{"bbolt.(*Tx).Commit", "bbolt.(*node).spill", "bbolt.(*node).rebalance"}},
	{"etcd defragmentation", []string{"backend.(*backend).defrag"}},
	{"etcd range", []string{"mvcc.(*treeIndex).Revisions", "etcdserver.(*EtcdServer).Range", "txn.executeRange", "txn.Range"}},
	{"etcd apply", []string{"etcdserver.(*EtcdServer).applyEntries", "etcdserver.(*EtcdServer).applyAll"}},
	{"scheduler preemption", []string{"preemption.(*Evaluator)"}},
	{"scheduler topology spread", []string{"podtopologyspread."}},
	{"scheduler pod affinity", []string{"interpodaffinity."}},
	{"scheduler filter", []string{"findNodesThatPassFilters", "findNodesThatFitPod"}},
	{"scheduler score", []string{"scheduler.prioritizeNodes"}},
	{"scheduler snapshot", []string{"cache.(*cacheImpl).UpdateSnapshot"}},
	{"scheduler queue", []string{"queue.(*PriorityQueue)."}},
	{"scheduler cycle", []string{"scheduler.(*Scheduler).schedulePod"}},
}

// Path is what a stack was done for; Other where no frame says.
func Path(functions []string) string {
	p, _ := pathOf(functions)
	return p
}

// pathOf is Path, with the place of a function that says so; -1 where none does.
func pathOf(functions []string) (name string, at int) {
	for _, p := range pathRules {
		for _, pattern := range p.patterns {
			for i, f := range functions {
				if strings.Contains(f, pattern) {
					return p.name, i
				}
			}
		}
	}
	return Other, -1
}

// registerer is the function that registers metrics, of a stack with the innermost
// first: the first one outside of the packages that do it for others.
func registerer(functions []string, at int) string {
	for _, f := range functions[at:] {
		if pkg := Package(f); pkg != "" && !strings.HasPrefix(pkg, "github.com/prometheus/") && !strings.HasPrefix(pkg, "k8s.io/component-base/metrics") {
			return f
		}
	}
	return ""
}

// Spending is one component's CPU by path, scaled to the whole of the phases
// that its profiles looked at; idle spinning is left out.
type Spending struct {
	Seconds float64
	// Samples are how many times the profiler looked, which says how far chance goes.
	Samples float64
	By      map[string]float64
	// Classes are the same seconds by the class of work.
	Classes map[string]float64
	// Registerers are the functions that metrics were registered by.
	Registerers map[string]float64
}

// profiled is what PathsOf reads of a recording.
type profiled interface {
	Meta() record.Meta
	Profiles() []record.ProfileRef
	ReadProfile(ref record.ProfileRef) (*profile.Profile, error)
}

// PathsOf adds up a component's CPU profiles that in accepts. Without any the
// error wraps record.ErrMissing.
func PathsOf(rec profiled, component string, in func(record.ProfileRef) bool) (*Spending, error) {
	windows := map[string]record.Window{}
	for _, p := range rec.Meta().Phases {
		windows[p.Name] = p.Window()
	}
	var s *Spending
	for _, ref := range rec.Profiles() {
		if ref.Kind != CPU || ref.Component != component || !in(ref) {
			continue
		}
		p, err := rec.ReadProfile(ref)
		if err != nil {
			return nil, err
		}
		if s == nil {
			s = &Spending{By: map[string]float64{}, Classes: map[string]float64{}, Registerers: map[string]float64{}}
		}
		scale := Cover{Window: windows[ref.Phase], CoveredSeconds: float64(p.DurationNanos) / 1e9}.Scale()
		s.add(p, scale)
	}
	if s == nil {
		return nil, fmt.Errorf("CPU profiles of %s: %w", component, record.ErrMissing)
	}
	return s, nil
}

func (s *Spending) add(p *profile.Profile, scale float64) {
	column := -1
	for i, t := range p.SampleType {
		if t.Type == "cpu" {
			column = i
		}
	}
	if column < 0 {
		return
	}
	period := float64(p.Period) // nanoseconds
	if period <= 0 {
		period = 1e7 // Go's 100 a second
	}
	var names []string
	var frames []frame
	known := classes{}
	for _, sample := range p.Sample {
		names, frames = names[:0], frames[:0]
		for _, l := range sample.Location {
			for _, line := range l.Line {
				if line.Function != nil {
					names = append(names, line.Function.Name)
					frames = append(frames, frame{function: line.Function.Name})
				}
			}
		}
		x := float64(sample.Value[column]) / 1e9 * scale
		path, at := pathOf(names)
		switch path {
		case PathSpin:
			continue
		case PathRegister:
			s.Registerers[registerer(names, at)] += x
		}
		s.Seconds += x
		s.Samples += float64(sample.Value[column]) / period
		s.By[path] += x
		s.Classes[known.work(frames)] += x
	}
}

package unusualwork

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

// compression is the class of work that package functions calls so.
const compression = "compression"

// matters is the share of one CPU from which it is worth a word, and mattersSet that
// from which a flag is that makes it.
const matters, mattersSet = 0.05, 0.02

// least is the part of the API server's CPU that must be left beside what else was found
// for shares of it to say anything.
const least = 0.1

// A kind of work that is small beside requests.
type kind struct {
	path     string // or class, which is what is done, where the path says what for
	class    bool
	share    float64 // of the API server's CPU above which it is not small; 0: only its flag tells
	healthy  int     // the largest share of healthy runs here, in %
	asked    bool    // is done for requests, and never for the events of a watch
	resource string
	knownBy  []string // detectors that know more about it
	does     string
	look     string
	flag     *flag
}

// A flag that makes work is believed from a smaller share on: above what any
// healthy run has, and no longer three times that.
type flag struct {
	name, holds   string // it makes the work where its value holds this
	share         float64
	cause         string
	summary       string // of the value, the share in % and the CPU-seconds
	usual         string // its default
	advice, price string
}

// kinds with about three times the largest share of healthy runs, but 5 % at least.
// That of the audit log is one at level Metadata.
var kinds = []kind{
	{path: functions.PathMetrics, share: 0.10, healthy: 2, resource: "cpu", does: "answers scrapes of its metrics",
		look: "who scrapes it, how often (every 10 s or more is usual) and whether several do; a metrics allow list makes each answer smaller"},
	{path: functions.PathRegister, share: 0.05, resource: "cpu", does: "registers metrics while it serves requests",
		look: "the function that registers them: that belongs to a program's start, and not to each request"},
	{path: functions.PathHandshake, share: 0.08, healthy: 1, resource: "cpu", knownBy: []string{"connection-churn"}, does: "shakes hands with clients that connect",
		look: "clients that make a connection for each request: let them keep one clientset, and HTTP/2 on"},
	{path: functions.PathAuthz, share: 0.12, healthy: 4, asked: true, resource: "cpu", does: "finds out whether users may do what they ask for",
		look: "the number of RoleBindings and ClusterRoleBindings and of subjects in them: groups instead of users make them few"},
	{path: functions.PathPolicy, share: 0.10, healthy: 2, asked: true, resource: "policy", knownBy: []string{"policy-cost"}, does: "evaluates admission policies",
		look: "which ValidatingAdmissionPolicies match many requests, and their expressions: narrow matchConstraints, matchConditions before validations"},
	{path: functions.PathLogging, share: 0.10, healthy: 1, resource: "cpu", knownBy: []string{"verbosity"}, does: "writes its log",
		look: "its verbosity: --v=2 is usual"},
	{path: functions.PathOpenAPI, share: 0.08, healthy: 1, resource: "cpu", knownBy: []string{"crd-churn"}, does: "makes the documents of its API again",
		look: "who creates and changes CustomResourceDefinitions, and how often"},
	{path: functions.PathAudit, share: 0.25, healthy: 10, resource: "cpu", knownBy: []string{"audit-sink"}, does: "writes its audit log",
		look: "the levels of its audit policy: Request and RequestResponse encode each object once more, where Metadata notes who did what; rules of level None for what nobody reads"},
	{path: "JSON and YAML", class: true, share: 0.15, healthy: 5, resource: "cpu", knownBy: []string{"list-storm", "large-objects"}, does: "reads and writes JSON",
		look: "--storage-media-type, which is protobuf unless somebody changed it; clients that ask for JSON and could have protobuf (the requests by user agent); and custom resources, which have nothing else",
		flag: &flag{name: "storage-media-type", holds: "json", share: 0.08, usual: "application/vnd.kubernetes.protobuf", // 6 % at most
			cause:   "kube-apiserver keeps its objects as JSON in etcd",
			summary: "kube-apiserver keeps its objects as JSON in etcd (--storage-media-type=%s), and reads and writes it with %.0f %% of its CPU (%.1f CPU-seconds).",
			advice:  "Leave --storage-media-type at its default, application/vnd.kubernetes.protobuf. Objects that are written from then on are kept so; the others stay as they are until they are written again.",
			price:   "It costs nothing but that who reads etcd by hand sees no text."}},
	{path: compression, class: true, share: 0.10, healthy: 1, resource: "cpu", knownBy: []string{"list-storm"}, does: "compresses its answers",
		look: "clients that list much and often, or read the API's documents again and again (kubedyno requests RECORDING --by userAgent,verb,resource has their bytes): answers above 128 KiB are compressed for who accepts it, as client-go does unless DisableCompression is set"},
	{path: "tracing", class: true, share: 0.08, healthy: 2, resource: "cpu", does: "traces requests",
		look: "--tracing-config-file and its samplingRatePerMillion"},
	{path: functions.PathCounts, resource: "cpu",
		flag: &flag{name: "etcd-count-metric-poll-period", share: 0.03, usual: "1m0s", // 0.1 % at most
			cause:   "kube-apiserver counts the objects in etcd again and again",
			summary: "kube-apiserver asks etcd every %s how many objects of each kind there are, with %.0f %% of its CPU (%.1f CPU-seconds), and etcd answers each time.",
			advice:  "Leave --etcd-count-metric-poll-period at its default of a minute.",
			price:   "apiserver_resource_objects, and what priority and fairness knows of the size of lists, are up to a minute old then."}},
	{path: "watch cache", resource: "cache",
		flag: &flag{name: "watch-cache", holds: "false", share: 0.04, usual: "true", // 2.6 % at most
			cause:   "the watch cache is switched off, and each watch is served from etcd",
			summary: "kube-apiserver runs without its watch cache (--watch-cache=%s): each watch is one of etcd's, decodes each change for itself, and takes %.0f %% of its CPU (%.1f CPU-seconds) for that alone.",
			advice:  "Leave --watch-cache on, as it is by default.",
			price:   "The price is memory: each object once."}},
}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "unusual-work",
	Title: "The API server spends its CPU on something that is small elsewhere",
	Doc: `Most of an API server's CPU goes to requests and watches. Some kinds of work are small in every healthy run: answering scrapes, registering metrics, handshakes, authorization, admission policies, logging,
documents of the API, the audit log, JSON, compression, tracing. Where one of them is not, it need not be.

**Evidence.** CPU profiles of the load: of all stacks, the share that came through the work's functions, at least about three times the largest share of healthy runs (8-12 %; 5 % for registering metrics, which belongs to the start alone), and at
least 5 % of a CPU. Of registering, the function that does it is named.

Where a client makes the API server send it events without end (watch-fan-out), authorization and policies, which no event needs, are a share of the rest. Where it collects garbage all the time (garbage-collection), each kind is a share of what it does beside that.

Where a flag makes the work, a smaller share is enough, and 2 % of a CPU: 8 % for JSON with --storage-media-type=application/json, 4 % for reading watches' changes from etcd with --watch-cache=false, 3 % for counting objects with --etcd-count-metric-poll-period.

**Who.** Of scrapes, the client is named that sends three of five reads that are of no resource, where it is no component. Of compression, it is the one for whose reads the API server takes three fifths of the time that it takes for reads,
and as much as it takes to compress; where that is who scrapes, and what it reads are metrics, it is left at the scrapes.

**Class.** Waste; a bottleneck where the CPU is full and this is at least a fifth of it.

**Look-alikes.** Where a detector knows more of that work (connection-churn, policy-cost, verbosity, crd-churn, list-storm, large-objects) and found it, this one leaves it to it. Garbage collection has its own.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if v.Span() <= 0 {
		return diagnose.NotAssessed("a longer recording")
	}
	if _, ok := v.Work(diagnose.APIServer, ""); !ok {
		return diagnose.NotAssessed("CPU profiles of kube-apiserver")
	}
	known := map[string]bool{}
	for _, f := range earlier {
		known[f.ID] = true
	}
	var found []diagnose.Finding
	more := takenBy(v, earlier)
	for _, k := range kinds {
		if slices.ContainsFunc(k.knownBy, func(id string) bool { return known[id] }) {
			continue
		}
		if f, ok := k.find(v, found, more); ok {
			consumer.Weigh(v, &f)
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return diagnose.NotThere("scrapes, registration of metrics, handshakes, authorization, policies, logging, OpenAPI, audit, JSON, compression and tracing take what they usually do")
	}
	return diagnose.Found(found...)
}

// taken is the share of the API server's CPU that was found to go to what no kind of
// work is part of.
type taken struct {
	events  float64 // to watches with too many readers
	garbage float64 // to the collection of garbage, where that is more than usual
}

// takenBy is what earlier findings know of it.
func takenBy(v *diagnose.View, earlier []diagnose.Finding) (t taken) {
	for _, f := range earlier {
		switch {
		case f.ID == "watch-fan-out" && f.Cost != nil && f.Cost.Measured && f.Cost.ServerCPUOf == "" && f.Cost.ServerCPUShare != nil:
			t.events = max(t.events, *f.Cost.ServerCPUShare)
		case f.ID == "garbage-collection" && f.Component == diagnose.APIServer:
			if w, ok := v.Work(diagnose.APIServer, functions.PathGC); ok {
				t.garbage = w.Share
			}
		}
	}
	return t
}

// rest is the share that is left for a kind of work, and beside what. It is 1 where
// nothing was found, and where next to nothing is left.
func (t taken) rest(asked bool) (share float64, beside string) {
	share = 1 - t.garbage
	var parts []string
	if asked && t.events > 0 {
		share -= t.events
		parts = append(parts, "its watches")
	}
	if t.garbage > 0 {
		parts = append(parts, "collecting garbage")
	}
	if share < least || len(parts) == 0 {
		return 1, ""
	}
	return share, strings.Join(parts, " and ")
}

// find is the finding of a kind of work that is not small, after those found before,
// and beside what was found to take much of the CPU.
func (k *kind) find(v *diagnose.View, before []diagnose.Finding, more taken) (f diagnose.Finding, ok bool) {
	work := v.Work
	if k.class {
		work = v.Class
	}
	value, made := k.flag.makes(v)
	enough := matters
	if made {
		enough = mattersSet
	}
	w, ok := work(diagnose.APIServer, k.path)
	if !ok || w.CPUSeconds < enough*v.Span() {
		return f, false
	}
	f = diagnose.Finding{
		Component: diagnose.APIServer, Resource: k.resource, CodePath: k.path, Sources: 1,
		Cost: &diagnose.Cost{ServerCPUSeconds: &w.CPUSeconds, ServerCPUShare: &w.Share, Measured: true},
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: "profiles: kube-apiserver, " + k.path, Value: w.Share, Unit: "1", Text: fmt.Sprintf("%.1f CPU-seconds of the load, %.2f ms a pod", w.CPUSeconds, 1000*w.PerPod)},
		},
		RefutedBy: "a healthy run of the same load with the same share",
	}
	if made && w.Share >= k.flag.share {
		f.Sources = 2
		f.Cause = k.flag.cause
		f.Summary = fmt.Sprintf(k.flag.summary, value, 100*w.Share, w.CPUSeconds)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "kube-apiserver --" + k.flag.name, Text: value + "; the default is " + k.flag.usual})
		f.Advice = diagnose.Advice{Text: k.flag.advice + " " + k.flag.price, Set: map[string]string{diagnose.APIServer + ".args." + k.flag.name: k.flag.usual}}
		return f, true
	}
	share, beside := w.Share, ""
	if rest, what := more.rest(k.asked); what != "" {
		if w.AtLeast/rest < float64(k.healthy)/100 {
			return f, false // as the few samples that are left may show of a healthy one
		}
		share = min(1, w.Share/rest)
		beside = fmt.Sprintf(", %.0f %% of what it did beside %s", 100*share, what)
	}
	if k.share == 0 || share < k.share {
		return f, false
	}
	f.Cause = fmt.Sprintf("kube-apiserver %s with %.0f %% of its CPU", k.does, 100*w.Share)
	f.Summary = fmt.Sprintf("kube-apiserver %s with %.0f %% of its CPU (%.1f CPU-seconds)%s; in healthy runs it is %d %% at most.", k.does, 100*w.Share, w.CPUSeconds, beside, k.healthy)
	f.Advice = diagnose.Advice{Text: "Look at " + k.look + "."}
	switch by := v.Registerer(diagnose.APIServer); {
	case k.path == functions.PathMetrics:
		nameScraper(v, &f)
	case k.path == compression:
		// The answers to scrapes are large and compressed: that is part of what these cost.
		if k.nameReader(v, &f, w) == "" && slices.ContainsFunc(before, func(b diagnose.Finding) bool {
			return b.CodePath == functions.PathMetrics && b.Component == f.Component && b.Component != diagnose.APIServer
		}) {
			return f, false
		}
	case k.path == functions.PathRegister && by != "":
		f.CodePath, f.Sources = by, 2
		f.Summary = fmt.Sprintf("kube-apiserver registers metrics while it serves requests, with %.0f %% of its CPU, %.2f ms for each pod: %s does it.", 100*w.Share, 1000*w.PerPod, by)
		f.Cause += ", in " + by
	}
	return f, true
}

// makes says whether the API server runs with the value that makes the work.
func (g *flag) makes(v *diagnose.View) (value string, ok bool) {
	if g == nil {
		return "", false
	}
	value, set, _ := v.Flag(diagnose.APIServer, g.name)
	return value, set && strings.Contains(value, g.holds)
}

// most is the part of the reads of no resource, or of the time for all reads, from
// which one client is the one who makes the work.
const most = 0.6

// nameReader names the client for whose reads the API server takes most of the
// time that it takes for reads, where that is time enough for the work, and returns the
// resource that it reads most; empty for paths that are none.
func (k *kind) nameReader(v *diagnose.View, f *diagnose.Finding, w diagnose.Spent) (resource string) {
	type reader struct {
		seconds float64
		most    diagnose.Talk // what it reads that takes longest
	}
	readers := map[string]*reader{}
	all := 0.0
	var best *reader
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Long && (t.Verb == "get" || t.Verb == "list") }) {
		r := readers[t.Agent]
		if r == nil {
			r = &reader{}
			readers[t.Agent] = r
		}
		r.seconds += t.Worked()
		all += t.Worked()
		if t.Worked() > r.most.Worked() {
			r.most = t
		}
		if best == nil || r.seconds > best.seconds {
			best = r
		}
	}
	if best == nil || best.seconds < most*all || best.seconds < w.CPUSeconds {
		return ""
	}
	t := best.most
	switch t.Agent {
	case "", diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler:
		return ""
	}
	if t.Harness {
		return ""
	}
	f.Component, f.Sources = "client:"+t.Agent, f.Sources+1
	f.Cause = fmt.Sprintf("%s reads large answers, and kube-apiserver compresses them with %.0f %% of its CPU", t.Agent, 100*w.Share)
	f.Summary = fmt.Sprintf("%s sends %.1f %s a second, and kube-apiserver compresses its answers with %.0f %% of its CPU (%.1f CPU-seconds); in healthy runs it is %d %% at most.", t.Agent, t.Rate(v), t.What(), 100*w.Share, w.CPUSeconds, k.healthy)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "requests: GET and LIST, by " + t.Agent, Value: best.seconds, Unit: "s", Text: fmt.Sprintf("of the %.1f s that all reads took", all)})
	if t.Resource == "" {
		f.Advice = diagnose.Advice{Text: "Let " + t.Agent + " keep what it read: the documents of the API change with CustomResourceDefinitions and aggregated APIs only, and carry an ETag by which a client asks whether they have."}
	} else {
		f.Advice = diagnose.Advice{Text: "Let " + t.Agent + " read with a watch (an informer) what it reads again and again. DisableCompression in its client saves the work where it is near the API server, for more bytes on the way."}
	}
	return t.Resource
}

// nameScraper names the client that scrapes.
func nameScraper(v *diagnose.View, f *diagnose.Finding) {
	all := 0
	var best diagnose.Talk
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == "" && t.Verb == "get" }) {
		all += t.Count
		if t.Count > best.Count {
			best = t
		}
	}
	switch best.Agent {
	case "", diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler:
		return
	}
	if best.Harness || float64(best.Count) < most*float64(all) {
		return
	}
	f.Component, f.Sources = "client:"+best.Agent, f.Sources+1
	f.Summary = fmt.Sprintf("%s reads the API server's metrics %.1f times a second, which takes %s", best.Agent, float64(best.Count)/v.Span(), strings.Replace(strings.TrimPrefix(f.Summary, "kube-apiserver answers scrapes of its metrics with "), "of its CPU", "of the server's CPU", 1))
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: of no resource, by " + best.Agent, Value: float64(best.Count) / v.Span(), Unit: "1/s", Text: fmt.Sprintf("%d of %d reads of no resource are its own", best.Count, all)})
}

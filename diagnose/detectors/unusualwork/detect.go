package unusualwork

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

// matters is the share of one CPU from which it is worth a word.
const matters = 0.05

// kinds of work that are small beside requests, with the share of the API
// server's CPU above which they are not, about three times the largest of healthy
// runs here (metrics 2 %, their registration 0 %, handshakes 1 %, authorization 4 %, policies 2 %,
// logging 1 %, OpenAPI 1 %, JSON 5 %, compression 1 %, tracing 2 %; audit 10 % at the
// level Metadata).
var kinds = []struct {
	path     string // or class
	share    float64
	resource string
	knownBy  string // the detector that knows more about it
	does     string
	look     string
}{
	{functions.PathMetrics, 0.10, "cpu", "", "answers scrapes of its metrics", "who scrapes it, how often (every 10 s or more is usual) and whether several do; a metrics allow list makes each answer smaller"},
	{functions.PathRegister, 0.05, "cpu", "", "registers metrics while it serves requests", "the function that registers them: that belongs to a program's start, and not to each request"},
	{functions.PathHandshake, 0.08, "cpu", "connection-churn", "shakes hands with clients that connect", "clients that make a connection for each request: let them keep one clientset, and HTTP/2 on"},
	{functions.PathAuthz, 0.12, "cpu", "", "finds out whether users may do what they ask for", "the number of RoleBindings and ClusterRoleBindings and of subjects in them: groups instead of users make them few"},
	{functions.PathPolicy, 0.10, "policy", "policy-cost", "evaluates admission policies", "which ValidatingAdmissionPolicies match many requests, and their expressions: narrow matchConstraints, matchConditions before validations"},
	{functions.PathLogging, 0.10, "cpu", "verbosity", "writes its log", "its verbosity: --v=2 is usual"},
	{functions.PathOpenAPI, 0.08, "cpu", "crd-churn", "makes the documents of its API again", "who creates and changes CustomResourceDefinitions, and how often"},
	{functions.PathAudit, 0.25, "cpu", "audit-sink", "writes its audit log", "the levels of its audit policy: Request and RequestResponse encode each object once more, where Metadata notes who did what; rules of level None for what nobody reads"},
	{classJSON, 0.15, "cpu", "list-storm", "reads and writes JSON", "--storage-media-type, which is protobuf unless somebody changed it; clients that ask for JSON and could have protobuf (the requests by user agent); and custom resources, which have nothing else"},
	{"compression", 0.10, "cpu", "list-storm", "compresses its answers", "clients that list much and often: answers above 128 KiB are compressed for who accepts it, as client-go does unless DisableCompression is set"},
	{"tracing", 0.08, "cpu", "", "traces requests", "--tracing-config-file and its samplingRatePerMillion"},
}

// classJSON is named where the storage is kept in it.
const classJSON = "JSON and YAML"

// A flag that makes work is believed from a smaller share on: above what any
// healthy run has, and no longer three times that.
const (
	shareJSON  = 0.08 // 6 % at most
	shareWatch = 0.04 // 2.6 % at most
)

// byClass are the kinds that are classes of work and no paths: what they are
// done for is said by the path.
var byClass = []string{classJSON, "compression", "tracing"}

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "unusual-work",
	Title: "The API server spends its CPU on something that is small elsewhere",
	Doc: `Most of an API server's CPU goes to requests and watches. Some kinds of work are small in every healthy run: answering scrapes, registering metrics, handshakes, authorization, admission policies, logging,
documents of the API, the audit log, JSON, compression, tracing. Where one of them is not, it need not be.

**Evidence.** CPU profiles of the load: of all stacks, the share that came through the work's functions, at least about three times the largest share of healthy runs (8-12 %; 5 % for registering metrics, which belongs to the start alone), and at
least 5 % of a CPU. Of registering, the function that does it is named.

Where a flag makes the work, a smaller share is enough: 8 % for JSON with --storage-media-type=application/json, 4 % for reading watches' changes from etcd with --watch-cache=false.

**Who.** Of scrapes, the client is named that sends three of five reads that are of no resource, where it is no component.

**Class.** Waste; a bottleneck where the CPU is full and this is at least a fifth of it.

**Look-alikes.** Where a detector knows more of that work (connection-churn, policy-cost, verbosity, crd-churn) and found it, this one leaves it to it. Garbage collection has its own.`,
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
	for _, k := range kinds {
		w, ok := v.Work(diagnose.APIServer, k.path)
		if slices.Contains(byClass, k.path) {
			w, ok = v.Class(diagnose.APIServer, k.path)
		}
		least := k.share
		media, set, _ := v.Flag(diagnose.APIServer, "storage-media-type")
		asJSON := k.path == classJSON && set && strings.Contains(media, "json")
		if asJSON {
			least = shareJSON
		}
		if !ok || w.Share < least || w.CPUSeconds < matters*v.Span() || known[k.knownBy] {
			continue
		}
		f := diagnose.Finding{
			Component: diagnose.APIServer, Resource: k.resource, CodePath: k.path, Sources: 1,
			Cause:   fmt.Sprintf("kube-apiserver %s with %.0f %% of its CPU", k.does, 100*w.Share),
			Summary: fmt.Sprintf("kube-apiserver %s with %.0f %% of its CPU (%.1f CPU-seconds); in healthy runs that is a third of it at most.", k.does, 100*w.Share, w.CPUSeconds),
			Cost:    &diagnose.Cost{ServerCPUSeconds: &w.CPUSeconds, ServerCPUShare: &w.Share, Measured: true},
			Evidence: []diagnose.Evidence{
				{Kind: "busy", Ref: "profiles: kube-apiserver, " + k.path, Value: w.Share, Unit: "1", Text: fmt.Sprintf("%.1f CPU-seconds of the load, %.2f ms a pod", w.CPUSeconds, 1000*w.PerPod)},
			},
			Advice:    diagnose.Advice{Text: "Look at " + k.look + "."},
			RefutedBy: "a healthy run of the same load with the same share",
		}
		switch by := v.Registerer(diagnose.APIServer); {
		case k.path == functions.PathMetrics:
			name(v, &f)
		case k.path == functions.PathRegister && by != "":
			f.CodePath, f.Sources = by, 2
			f.Summary = fmt.Sprintf("kube-apiserver registers metrics while it serves requests, with %.0f %% of its CPU, %.2f ms for each pod: %s does it.", 100*w.Share, 1000*w.PerPod, by)
			f.Cause += ", in " + by
		}
		if asJSON {
			f.Sources = 2
			f.Summary = fmt.Sprintf("kube-apiserver keeps its objects as JSON in etcd (--storage-media-type=%s), and reads and writes it with %.0f %% of its CPU (%.1f CPU-seconds).", media, 100*w.Share, w.CPUSeconds)
			f.Cause += ", in which it keeps its objects"
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "kube-apiserver --storage-media-type", Text: media + "; the default is application/vnd.kubernetes.protobuf"})
			f.Advice = diagnose.Advice{Text: "Leave --storage-media-type at its default, application/vnd.kubernetes.protobuf. Objects that are written from then on are kept so; the others stay as they are until they are written again. It costs nothing but that who reads etcd by hand sees no text.",
				Set: map[string]string{"kube-apiserver.args.storage-media-type": "application/vnd.kubernetes.protobuf"}}
		}
		consumer.Weigh(v, &f)
		found = append(found, f)
	}
	if f, ok := uncached(v); ok {
		found = append(found, f)
	}
	if len(found) == 0 {
		return diagnose.NotThere("scrapes, registration of metrics, handshakes, authorization, policies, logging, OpenAPI, audit, JSON, compression and tracing take what they usually do")
	}
	return diagnose.Found(found...)
}

// uncached finds an API server that serves each watch from etcd.
func uncached(v *diagnose.View) (f diagnose.Finding, ok bool) {
	x, set, _ := v.Flag(diagnose.APIServer, "watch-cache")
	w, profiled := v.Work(diagnose.APIServer, "watch cache")
	if !set || x != "false" || !profiled || w.Share < shareWatch || w.CPUSeconds < matters*v.Span() {
		return f, false
	}
	f = diagnose.Finding{
		Component: diagnose.APIServer, Resource: "cache", CodePath: "watch cache", Sources: 2,
		Cause:   "the watch cache is switched off, and each watch is served from etcd",
		Summary: fmt.Sprintf("kube-apiserver runs without its watch cache (--watch-cache=false): each watch is one of etcd's, decodes each change for itself, and takes %.0f %% of its CPU (%.1f CPU-seconds) for that alone.", 100*w.Share, w.CPUSeconds),
		Cost:    &diagnose.Cost{ServerCPUSeconds: &w.CPUSeconds, ServerCPUShare: &w.Share, Measured: true},
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "kube-apiserver --watch-cache", Text: "false; the default is true"},
			{Kind: "busy", Ref: "profiles: kube-apiserver, watch cache", Value: w.Share, Unit: "1", Text: fmt.Sprintf("%.1f CPU-seconds of the load, %.2f ms a pod", w.CPUSeconds, 1000*w.PerPod)},
		},
		Advice: diagnose.Advice{Text: "Leave --watch-cache on, as it is by default. The price is memory: each object once.",
			Set: map[string]string{diagnose.APIServer + ".args.watch-cache": "true"}},
		RefutedBy: "a run with the cache in which the API server works as much for a pod",
	}
	consumer.Weigh(v, &f)
	return f, true
}

// most is the part of the reads of no resource from which one client is the one
// that scrapes.
const most = 0.6

// name names the client that scrapes.
func name(v *diagnose.View, f *diagnose.Finding) {
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

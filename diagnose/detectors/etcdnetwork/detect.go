package etcdnetwork

import (
	"fmt"
	"math"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// far is the mean, in seconds, that a read of one key must take beyond etcd's
	// own work: on one machine, or in one rack, it takes 0.3-1 ms.
	far = 0.003
	// quick is a bucket of the histogram, in seconds, and few the part of reads that
	// may lie in it where the way is long: the fault of the clock and of a restart.
	quick, few = "0.005", 0.02
	// fewest reads tell.
	fewest = 50
	// own is by how much reads must lie above etcd's applying and syncing, which
	// reads wait for in part.
	own = 3
	// busy is the machine's use from which requests wait for a CPU, here and there.
	busy = 0.85
	// little is the share of the lost time below which the way is a risk, where
	// something else is full.
	little = 0.1
)

const metric = "etcd_request_duration_seconds"

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-network",
	Title: "The way from the API server to etcd is long",
	Doc: `Every write, and every read that is not served from the watch cache, is a round trip to etcd. A pod makes about ten of them one after the other, so that milliseconds between the two add up.

**Evidence.** The API server's clock and etcd's own disagree: a get takes it at least 3 ms on average (etcd_request_duration_seconds), and at least three times as long as etcd needs to apply a request
(etcd_server_apply_duration_seconds). A way is as long for each request, while queues, syncs and full CPUs let some pass: less than 2 % of the reads since the API server started take less than 5 ms (healthy runs on a full machine had 12 % there, a starved etcd 11 %, an etcd 30 ms away none of 2,600).
Where the histogram's buckets were not recorded, a read must take as long at rest, longer than etcd needs to sync its log, and neither the machine nor a quota may be full.

On a full machine, or beside a quota that is used up, reads must have been as long before the load, and what is charged is ten round trips a pod of the least that a read took.

**Risk.** Where nobody suffered (yet), the distance is named as a risk.

**Look-alikes.** etcd-sync (writes are slow, reads much less, and etcd's own sync times say so); a starved etcd (its quota, run-queue delay); a full machine.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	get, n, ok := v.Mean(diagnose.APIServer, metric, diagnose.Labels{"operation": "get"})
	if !ok {
		return diagnose.NotAssessed("%s of kube-apiserver", metric)
	}
	if get < far {
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms", 1000*get)
	}
	apply, _, okApply := v.Mean(diagnose.Etcd, "etcd_server_apply_duration_seconds", nil)
	if !okApply {
		return diagnose.NotAssessed("etcd's own times (etcd_server_apply_duration_seconds)")
	}
	if get < own*apply {
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but etcd needs %.1f ms to apply a request itself", 1000*get, 1000*apply)
	}
	asLong, not := floor(v, get)
	if not != nil && not.Missing != "" {
		asLong, not = rest(v, get)
	}
	if not != nil {
		return *not
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Etcd, Resource: "network", Sources: 2,
		Cause:   fmt.Sprintf("a round trip from the API server to etcd takes %.1f ms", 1000*get),
		Summary: fmt.Sprintf("The API server waits %.1f ms for each read of etcd, while etcd itself works on a request for %.1f ms: the way between them is long, and each pod goes it about ten times.", 1000*get, 1000*apply),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="get"}`, Value: get, Unit: "s", Text: fmt.Sprintf("%.1f ms a get on average, by the API server's clock (n=%.0f)", 1000*get, n)},
			asLong,
			{Kind: "wait", Ref: `etcd_server_apply_duration_seconds{component="etcd"}`, Value: apply, Unit: "s", Text: fmt.Sprintf("%.2f ms to apply a request, by etcd's", 1000*apply)},
		},
		Advice:    diagnose.Advice{Text: "Put etcd beside the API server (same machine, rack or zone), and look for a proxy, a VPN or a lossy link between them."},
		RefutedBy: "the same time of a get measured beside etcd",
	}
	if create, n, ok := v.Mean(diagnose.APIServer, metric, diagnose.Labels{"operation": "create"}); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="create"}`, Value: create, Unit: "s", Text: fmt.Sprintf("%.1f ms a create (n=%.0f)", 1000*create, n)})
	}
	if v.StagesOK {
		up := v.Upstream()
		full, least := up != "", way(v)
		for i, s := range v.LostStages() {
			if i == 0 {
				f.Stage = s.Name
			}
			f.Claims[s.Name] = *s.ExcessSeconds
			if full {
				f.Claims[s.Name] = min(*s.ExcessSeconds, trips[s.Name]*least*float64(v.Counts.Running))
			}
		}
		if full {
			// The rest of what a read takes may be waiting for a CPU.
			f.Direct = true
			f.Cause = fmt.Sprintf("a round trip from the API server to etcd takes %.0f ms at least", 1000*least)
			f.Summary = fmt.Sprintf("Next to no read of etcd comes back to the API server within %.0f ms (it takes %.0f ms on average while %s), and etcd itself works on a request for %.1f ms: the way between them is long, and each pod goes it about ten times.", 1000*least, 1000*get, up, 1000*apply)
		}
	}
	f.Next = f.Summary + diagnose.Behind
	if v.API.Slow() {
		f.RequestSeconds = v.API.LostSeconds
	}
	charged := 0.0
	for _, x := range f.Claims {
		charged += x
	}
	if _, suffers := v.Suffers(); !suffers || f.Direct && charged < little*v.Lost.PodSeconds && !v.API.Slow() {
		f.Direct, f.Class, f.Stage, f.Claims, f.RequestSeconds = false, diagnose.Risk, "", nil, 0
	}
	return diagnose.Found(f)
}

// trips are the round trips to etcd that a pod waits for in each stage, one after the
// other: its object and its owner's, the binding (read and write), its token, and its
// node's reports (likewise).
var trips = map[string]float64{diagnose.Accept: 1, diagnose.Controller: 2, diagnose.Bind: 2, diagnose.Scheduling: 2, diagnose.Start: 5}

// way is the least that a read of etcd took, in seconds: the largest bucket of the
// histogram with next to none in it.
func way(v *diagnose.View) (seconds float64) {
	count, _ := v.Gauge(diagnose.APIServer, metric+"_count", diagnose.Labels{"operation": "get"}, v.Load)
	for le, l := range v.GaugeBy(diagnose.APIServer, metric+"_bucket", "le", diagnose.Labels{"operation": "get"}, v.Load) {
		if bound, err := strconv.ParseFloat(le, 64); err == nil && !math.IsInf(bound, 0) && l.Last <= few*count.Last {
			seconds = max(seconds, bound)
		}
	}
	return seconds
}

// floor says whether no read is quick, and so that the way is long; the outcome is
// not nil where that is not so or cannot be told.
func floor(v *diagnose.View, get float64) (e diagnose.Evidence, o *diagnose.Outcome) {
	// Since the API server started: a machine that is full for the whole of a short
	// load lets none pass, but it was not full all the time.
	lowest, ok := v.Gauge(diagnose.APIServer, metric+"_bucket", diagnose.Labels{"operation": "get", "le": quick}, v.Load)
	count, okCount := v.Gauge(diagnose.APIServer, metric+"_count", diagnose.Labels{"operation": "get"}, v.Load)
	if !ok || !okCount {
		return e, missing("%s_bucket of kube-apiserver", metric)
	}
	under, n := lowest.Last, count.Last
	switch {
	case n < fewest:
		return e, missing("more reads of etcd than %.0f", n)
	case under > few*n:
		o := diagnose.NotThere("a read of etcd takes the API server %.1f ms, but %.0f %% of them take less than 5 ms: what makes them wait lets some pass, as no long way does", 1000*get, 100*under/n)
		return e, &o
	}
	// A long load on a full machine leaves next to nothing of the quick ones.
	if up := v.Upstream(); up != "" {
		rest, _, ok := v.RestMean(diagnose.APIServer, metric, diagnose.Labels{"operation": "get"})
		long := ok && rest >= far
		if !ok {
			// Nothing was before the load but the start, in which a machine is not full all the time.
			long = count.First >= fewest && lowest.First <= few*count.First
		}
		if !long {
			o := diagnose.NotThere("a read of etcd takes the API server %.1f ms, but %s, and none was seen to take long at rest", 1000*get, up)
			return e, &o
		}
	}
	return diagnose.Evidence{Kind: "wait", Ref: metric + `_bucket{component="kube-apiserver",operation="get",le="` + quick + `"}`, Value: under / n, Unit: "1", Text: fmt.Sprintf("%.0f of all %.0f gets since it started took less than 5 ms: queues would let some pass", under, n)}, nil
}

// rest says whether reads take as long before the load, for recordings that have
// no buckets.
func rest(v *diagnose.View, get float64) (e diagnose.Evidence, o *diagnose.Outcome) {
	clear := func(format string, args ...any) (diagnose.Evidence, *diagnose.Outcome) {
		o := diagnose.NotThere("a read of etcd takes the API server %.1f ms, but "+format, append([]any{1000 * get}, args...)...)
		return e, &o
	}
	rest, _, okRest := v.RestMean(diagnose.APIServer, metric, diagnose.Labels{"operation": "get"})
	sync, _, okSync := v.Mean(diagnose.Etcd, "etcd_disk_wal_fsync_duration_seconds", nil)
	switch {
	case !okRest:
		return e, missing("%s_bucket of kube-apiserver, or its times before the load: a read takes %.1f ms under it", metric, 1000*get)
	case rest < far:
		return clear("%.1f ms at rest", 1000*rest)
	case !okSync:
		return e, missing("etcd's own times (etcd_disk_wal_fsync_duration_seconds)")
	case get < sync:
		return clear("a sync of its log takes %.1f ms", 1000*sync)
	case v.Upstream() != "":
		return clear("%s", v.Upstream())
	}
	if m, ok := v.MachineCPU(v.Plateau); ok && m.Share >= busy {
		return clear("the machine's CPU is %.0f %% busy", 100*m.Share)
	}
	return diagnose.Evidence{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="get"}, before the load`, Value: rest, Unit: "s", Text: fmt.Sprintf("%.1f ms at rest, too", 1000*rest)}, nil
}

func missing(format string, args ...any) *diagnose.Outcome {
	o := diagnose.NotAssessed(format, args...)
	return &o
}

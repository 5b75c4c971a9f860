package etcdnetwork

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// far is the mean, in seconds, that a read of one key must take beyond etcd's
	// own work: on one machine, or in one rack, it takes 0.3-1 ms.
	far = 0.003
	// own is by how much reads must lie above etcd's applying and syncing, which
	// reads wait for in part.
	own = 3
	// busy is the machine's use from which requests wait for a CPU, here and there.
	busy = 0.85
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-network",
	Title: "The way from the API server to etcd is long",
	Doc: `Every write, and every read that is not served from the watch cache, is a round trip to etcd. A pod makes about ten of them one after the other, so that milliseconds between the two add up.

**Evidence.** The API server's clock and etcd's own disagree: a get takes it at least 3 ms on average (etcd_request_duration_seconds), and at least three times as long as etcd needs to apply a request
(etcd_server_apply_duration_seconds) and more than it needs to sync its log, while neither the machine nor a quota is full. It takes as long at rest: a way does not get longer by load, as queues do.

**Look-alikes.** etcd-sync (writes are slow, reads much less, and etcd's own sync times say so); a starved etcd (its quota, run-queue delay); a full machine.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	const metric = "etcd_request_duration_seconds"
	get, n, ok := v.Mean(diagnose.APIServer, metric, diagnose.Labels{"operation": "get"})
	if !ok {
		return diagnose.NotAssessed("%s of kube-apiserver", metric)
	}
	if get < far {
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms", 1000*get)
	}
	apply, _, okApply := v.Mean(diagnose.Etcd, "etcd_server_apply_duration_seconds", nil)
	sync, _, okSync := v.Mean(diagnose.Etcd, "etcd_disk_wal_fsync_duration_seconds", nil)
	// The way is as long at rest; work that piles up is not there then.
	rest, _, okRest := v.RestMean(diagnose.APIServer, metric, diagnose.Labels{"operation": "get"})
	switch {
	case !okRest:
		return diagnose.NotAssessed("%s of kube-apiserver before the load: a read takes %.1f ms under it", metric, 1000*get)
	case rest < far:
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms under load, but %.1f ms at rest", 1000*get, 1000*rest)
	case !okApply || !okSync:
		return diagnose.NotAssessed("etcd's own times (etcd_server_apply_duration_seconds, etcd_disk_wal_fsync_duration_seconds)")
	case get < own*apply:
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but etcd needs %.1f ms to apply a request itself", 1000*get, 1000*apply)
	case get < sync:
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but a sync of its log takes %.1f ms", 1000*get, 1000*sync)
	case v.Upstream() != "":
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but %s", 1000*get, v.Upstream())
	}
	if m, ok := v.MachineCPU(v.Plateau); ok && m.Share >= busy {
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but the machine's CPU is %.0f %% busy", 1000*get, 100*m.Share)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Etcd, Resource: "network", Sources: 2,
		Cause:   fmt.Sprintf("a round trip from the API server to etcd takes %.1f ms", 1000*get),
		Summary: fmt.Sprintf("The API server waits %.1f ms for each read of etcd, while etcd itself works on a request for %.1f ms: the way between them is long, and each pod goes it about ten times.", 1000*get, 1000*apply),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="get"}`, Value: get, Unit: "s", Text: fmt.Sprintf("%.1f ms a get on average, by the API server's clock (n=%.0f)", 1000*get, n)},
			{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="get"}, before the load`, Value: rest, Unit: "s", Text: fmt.Sprintf("%.1f ms at rest, too", 1000*rest)},
			{Kind: "wait", Ref: `etcd_server_apply_duration_seconds{component="etcd"}`, Value: apply, Unit: "s", Text: fmt.Sprintf("%.2f ms to apply a request, by etcd's", 1000*apply)},
			{Kind: "wait", Ref: `etcd_disk_wal_fsync_duration_seconds{component="etcd"}`, Value: sync, Unit: "s", Text: fmt.Sprintf("%.2f ms to sync its log", 1000*sync)},
		},
		Advice:    diagnose.Advice{Text: "Put etcd beside the API server (same machine, rack or zone), and look for a proxy, a VPN or a lossy link between them."},
		RefutedBy: "the same time of a get measured beside etcd",
	}
	if create, n, ok := v.Mean(diagnose.APIServer, metric, diagnose.Labels{"operation": "create"}); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: metric + `{component="kube-apiserver",operation="create"}`, Value: create, Unit: "s", Text: fmt.Sprintf("%.1f ms a create (n=%.0f)", 1000*create, n)})
	}
	if v.StagesOK {
		for i, s := range v.LostStages() {
			if i == 0 {
				f.Stage = s.Name
			}
			f.Claims[s.Name] = *s.ExcessSeconds
		}
	}
	if v.API.Slow() {
		f.RequestSeconds = v.API.LostSeconds
	}
	if _, suffers := v.Suffers(); !suffers {
		return diagnose.NotThere("a read of etcd takes the API server %.1f ms, but nothing suffered", 1000*get)
	}
	return diagnose.Found(f)
}

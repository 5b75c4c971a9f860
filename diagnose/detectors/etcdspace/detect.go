package etcdspace

import (
	"fmt"
	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	size, inUse = "etcd_mvcc_db_total_size_in_bytes", "etcd_mvcc_db_total_size_in_use_in_bytes"
	quota       = "etcd_server_quota_backend_bytes"
	// alarms counts requests that were refused, and not alarms that were raised.
	alarms  = "etcd_debugging_server_alarms"
	refused = "etcd_request_errors_total"
	// full is the share of the quota at which the next write is refused, near the
	// one from which it is time to act, and many the refusals that are no accident.
	full, near, many = 0.98, 0.8, 5
	// usual is etcd's default quota, and largest the one that it advises at most.
	usual, largest = 2 << 30, 8 << 30
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-space",
	Title: "etcd has used up its space",
	Doc: `etcd keeps its database below a quota (--quota-backend-bytes, 2 GiB unless set). The write that would go beyond raises the alarm NOSPACE, and from then on etcd refuses every write, also after there
is space again, until somebody disarms it. Reads work, so that everything looks alive: pods are bound to nothing, statuses stay as they were, leases cannot be renewed and leaders end.

**Evidence.** The database is at 98 % of its quota and more (etcd_mvcc_db_total_size_in_bytes, etcd_server_quota_backend_bytes), and writes fail: the API server's etcd_request_errors_total, or etcd's own
etcd_debugging_server_alarms, which counts the requests that the alarm refused. All lost time is charged: clients that try again fill the machine as well. From 80 % on without refusals it is a risk.

**Look-alikes.** machine-cpu (retries fill the CPUs); creates-refused (an admission plugin refuses, and only some); a single object that is too large, which is refused by itself.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	most, ok := v.Gauge(diagnose.Etcd, quota, nil, v.Load)
	have, okSize := v.Gauge(diagnose.Etcd, size, nil, v.Load)
	if !ok || !okSize || most.Max <= 0 {
		return diagnose.NotAssessed("%s and %s of etcd", size, quota)
	}
	share := have.Max / most.Max
	failed, _ := v.Increase(diagnose.APIServer, refused, diagnose.Labels{"operation": "~create|update|delete"})
	alarm, _ := v.Increase(diagnose.Etcd, alarms, diagnose.Labels{"alarm_type": "NOSPACE"})
	stopped := max(failed, alarm) >= many && share >= full
	if !stopped && share < near {
		return diagnose.NotThere("etcd's database takes %.0f %% of its %s", 100*share, diagnose.Bytes(most.Max))
	}
	f := diagnose.Finding{
		Class: diagnose.Risk, Component: diagnose.Etcd, Resource: "quota", Sources: 1,
		Cause:   fmt.Sprintf("etcd's database takes %.0f %% of its quota", 100*share),
		Summary: fmt.Sprintf("etcd's database takes %s of %s; at the quota etcd refuses every write, and goes on to after there is space again.", diagnose.Bytes(have.Max), diagnose.Bytes(most.Max)),
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: size, Value: have.Max, Unit: "bytes", Text: fmt.Sprintf("the database's size, of a quota of %.0f", most.Max)},
		},
		Advice: diagnose.Advice{
			Text: "Find what grows (apiserver_resource_objects, apiserver_resource_size_estimate_bytes) and delete it; then compact, defragment, and disarm the alarm (etcdctl compact, defrag, alarm disarm), or give a larger --quota-backend-bytes. The price of the latter: memory and a longer start; 8 GiB is the most that etcd advises.",
			Set:  map[string]string{"etcd.args.quota-backend-bytes": strconv.FormatInt(int64(min(largest, max(usual, 2*most.Max))), 10)},
		},
		RefutedBy: "writes that fail with a larger quota too",
	}
	if used, ok := v.Gauge(diagnose.Etcd, inUse, nil, v.Load); ok {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: inUse, Value: used.Max, Unit: "bytes", Text: "of it in use; the rest is what defragmenting would give back"})
	}
	if !stopped {
		return diagnose.Found(f)
	}
	if alarm >= many {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: alarms + `{alarm_type="NOSPACE"}`, Value: alarm, Unit: "requests", Text: "were refused by the alarm NOSPACE"})
	}
	if failed >= many {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: refused, Value: failed, Unit: "requests", Text: "of the API server to etcd that were to change something failed"})
	}
	f.Cause = "etcd has used up its space quota and refuses writes"
	f.Summary = fmt.Sprintf("etcd refuses writes: its database has reached its quota of %s, and %.0f requests failed. Reads work, so that everything looks alive; nothing can be changed until there is space and the alarm is disarmed.", diagnose.Bytes(most.Max), max(failed, alarm))
	if _, suffers := v.Suffers(); !suffers {
		return diagnose.Found(f)
	}
	f.Class, f.Direct, f.Consumes = diagnose.Bottleneck, true, true
	f.Claims = map[string]float64{}
	for i, s := range v.LostStages() {
		if i == 0 {
			f.Stage = s.Name
		}
		f.Claims[s.Name] = *s.ExcessSeconds
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.RequestSeconds = v.API.LostSeconds
	return diagnose.Found(f)
}

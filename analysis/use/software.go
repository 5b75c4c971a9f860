package use

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// Names of components.
const (
	apiServer         = "kube-apiserver"
	etcd              = "etcd"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// software checks the control plane.
func (a *assessment) software() {
	for _, c := range []string{etcd, apiServer, controllerManager, scheduler} {
		if !slices.ContainsFunc(a.r.targets, func(t target) bool { return t.component == c }) {
			reason := "no metrics of it were recorded"
			if a.r.noMetrics != nil {
				reason = why(a.r.noMetrics)
			}
			a.unscraped(c, a.r.gap(reason, c))
		}
	}
	for i := range a.r.targets {
		t := &a.r.targets[i]
		from, to, ok := t.scraped(a.w)
		if !ok {
			a.unscraped(t.component, fmt.Sprintf("the window of %.1f s has fewer than two good scrapes of it", a.w.Seconds()))
			continue
		}
		f := &family{a.r, t, from, to}
		switch t.component {
		case apiServer:
			a.fairness(f)
			a.server(f)
			a.watchCache(f)
		case etcd:
			a.etcd(f)
		case scheduler:
			a.scheduler(f)
		}
		a.clientLimiter(f)
		a.queues(f)
		a.process(f)
	}
	a.clientRate()
}

// unscraped notes the checks that rest on a component's metrics.
func (a *assessment) unscraped(component, reason string) {
	ids := []string{"gc", "fds"}
	switch component {
	case apiServer:
		ids = append(ids, "apf-seats", "apf-queue", "inflight", "api-errors", "watch-read-wait", "watch-terminated")
	case etcd:
		ids = append(ids, "etcd-wal", "etcd-wal-p99", "etcd-commit-p99", "etcd-apply", "etcd-quota")
	case scheduler:
		ids = append(ids, "scheduling-loop", "scheduler-pending", "limiter-wait", "leases")
	case controllerManager:
		ids = append(ids, "queue", "queue-wait", "limiter-wait", "leases")
	}
	for _, id := range ids {
		a.miss(id, component, component, "/metrics of "+component, reason)
	}
}

// born adds a counter whose series appear with the first event. Where its
// sibling, which is there all the time, is missing too, nobody counts.
func (a *assessment) born(f *family, id, metric string, match func(map[string]string) bool, sibling string) {
	c := f.t.component
	sum, n := f.total(metric, match)
	if n == 0 && !f.has(sibling) {
		a.miss(id, "", c, metric, "neither it nor "+sibling+" is there")
		return
	}
	a.add(id, "", c, sum, metric, "")
}

// label matches series by one label's value.
func label(name string, values ...string) func(map[string]string) bool {
	return func(l map[string]string) bool { return slices.Contains(values, l[name]) }
}

func (a *assessment) fairness(f *family) {
	type use struct{ sum, n, waited, rejected float64 }
	levels := map[string]*use{}
	at := func(l map[string]string) *use {
		name := l["priority_level"]
		if levels[name] == nil {
			levels[name] = &use{}
		}
		return levels[name]
	}
	executing := func(l map[string]string) bool { return l["phase"] == "executing" }
	f.grown("apiserver_flowcontrol_priority_level_seat_utilization_sum", func(l map[string]string, x float64) {
		if executing(l) {
			at(l).sum += x
		}
	})
	f.grown("apiserver_flowcontrol_priority_level_seat_utilization_count", func(l map[string]string, x float64) {
		if executing(l) {
			at(l).n += x
		}
	})
	if len(levels) == 0 {
		a.miss("apf-seats", "", apiServer, "apiserver_flowcontrol_priority_level_seat_utilization", "the server has no such metric: priority and fairness may be off")
		return
	}
	f.grown("apiserver_flowcontrol_request_wait_duration_seconds_sum", func(l map[string]string, x float64) { at(l).waited += x })
	f.grown("apiserver_flowcontrol_rejected_requests_total", func(l map[string]string, x float64) { at(l).rejected += x })
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		u := levels[name]
		ours := label("priority_level", name)
		if name != "exempt" { // it has no limit, no queue and rejects nothing
			if u.n > 0 {
				seats := f.gauge("apiserver_flowcontrol_current_executing_seats", ours).max
				limit := f.gauge("apiserver_flowcontrol_current_limit_seats", ours)
				a.add("apf-seats", name, apiServer, u.sum/u.n, `apiserver_flowcontrol_priority_level_seat_utilization{phase="executing"}`,
					fmt.Sprintf("at most %s seats seen in use, limit %s", trim(seats), trim(limit.last)))
			}
			queued := f.gauge("apiserver_flowcontrol_current_inqueue_requests", ours).max
			a.add("apf-queue", name, apiServer, u.waited/f.seconds(), "apiserver_flowcontrol_request_wait_duration_seconds_sum", fmt.Sprintf("at most %s seen waiting", trim(queued)))
			a.add("apf-rejected", name, apiServer, u.rejected, "apiserver_flowcontrol_rejected_requests_total", "")
		}
	}
}

func (a *assessment) server(f *family) {
	for _, k := range []struct{ kind, flag, standard string }{
		{"readOnly", "max-requests-inflight", "400"}, {"mutating", "max-mutating-requests-inflight", "200"},
	} {
		limit, err := strconv.ParseFloat(a.r.flag(apiServer, k.flag, k.standard), 64)
		g := f.gauge("apiserver_current_inflight_requests", label("request_kind", k.kind))
		evidence := fmt.Sprintf("apiserver_current_inflight_requests{request_kind=%q}", k.kind)
		switch {
		case err != nil || limit <= 0:
			a.miss("inflight", k.kind, apiServer, evidence, "--"+k.flag+" sets no limit")
		case g.n == 0:
			a.miss("inflight", k.kind, apiServer, evidence, "the metric is not there")
		default:
			a.add("inflight", k.kind, apiServer, g.max/limit, evidence, fmt.Sprintf("%s of %s (--%s)", trim(g.max), trim(limit), k.flag))
		}
	}
	all, n := f.total("apiserver_request_total", nil)
	failed, _ := f.total("apiserver_request_total", func(l map[string]string) bool { return strings.HasPrefix(l["code"], "5") })
	if n > 0 && all > 0 {
		a.add("api-errors", "", apiServer, failed/all, `apiserver_request_total{code=~"5.."}`, fmt.Sprintf("%.0f of %.0f", failed, all))
	}
	a.born(f, "audit-errors", "apiserver_audit_error_total", nil, "apiserver_audit_event_total")
}

func (a *assessment) watchCache(f *family) {
	sum, _ := f.total("apiserver_watch_cache_read_wait_seconds_sum", nil)
	n, series := f.total("apiserver_watch_cache_read_wait_seconds_count", nil)
	const evidence = "apiserver_watch_cache_read_wait_seconds"
	switch {
	case series == 0:
		a.miss("watch-read-wait", "", apiServer, evidence, "the metric is not there")
	case n == 0:
		a.add("watch-read-wait", "", apiServer, 0, evidence, "no consistent reads")
	default:
		a.add("watch-read-wait", "", apiServer, sum/n, evidence, fmt.Sprintf("mean of %.0f reads", n))
	}
	a.born(f, "watch-fallback", "apiserver_watch_cache_consistent_read_total", label("fallback", "true"), "apiserver_watch_cache_consistent_read_total")
	a.born(f, "watch-terminated", "apiserver_terminated_watchers_total", nil, "apiserver_watch_cache_initializations_total")
	// The first filling of a cache is no failure of it.
	again := 0.0
	for _, s := range a.r.of("apiserver_watch_cache_initializations_total") {
		if s.Labels["instance"] != f.t.instance {
			continue
		}
		if by, ok := growth(s.Points, f.from, f.to); ok && len(s.Points) > 0 {
			if s.Points[0].Time.After(f.from) {
				by--
			}
			again += max(by, 0)
		}
	}
	if !f.has("apiserver_watch_cache_initializations_total") {
		a.miss("watch-init", "", apiServer, "apiserver_watch_cache_initializations_total", "the metric is not there")
		return
	}
	a.add("watch-init", "", apiServer, again, "apiserver_watch_cache_initializations_total", "")
}

func (a *assessment) etcd(f *family) {
	busy := func(id, metric, instance string) {
		if sum, n := f.total(metric+"_sum", nil); n > 0 {
			a.add(id, instance, etcd, sum/f.seconds(), metric+"_sum", "")
		} else {
			a.miss(id, instance, etcd, metric, "the metric is not there")
		}
	}
	p99 := func(id, metric, instance string) {
		switch v, n, first := f.quantile(metric, 0.99); {
		case n < 100:
			a.miss(id, instance, etcd, metric, fmt.Sprintf("%.0f of them: a p99 needs 100", n))
		case first:
			a.add(id, instance, etcd, v, metric, "at most: all in the first bucket")
		default:
			a.add(id, instance, etcd, v, metric, fmt.Sprintf("n %.0f", n))
		}
	}
	busy("etcd-wal", "etcd_disk_wal_fsync_duration_seconds", "")
	p99("etcd-wal-p99", "etcd_disk_wal_fsync_duration_seconds", "")
	busy("etcd-commit", "etcd_disk_backend_commit_duration_seconds", "")
	p99("etcd-commit-p99", "etcd_disk_backend_commit_duration_seconds", "")
	busy("etcd-apply", "etcd_server_apply_duration_seconds", "")
	if slow, n := f.total("etcd_server_slow_apply_total", nil); n > 0 {
		a.add("etcd-slow-apply", "", etcd, slow/f.seconds(), "etcd_server_slow_apply_total", fmt.Sprintf("%.0f", slow))
	}
	if g := f.gauge("etcd_server_proposals_pending", nil); g.n > 0 {
		a.add("etcd-proposals", "", etcd, g.max, "etcd_server_proposals_pending", fmt.Sprintf("mean %s", trim(g.mean())))
	}
	if x, n := f.total("etcd_server_proposals_failed_total", nil); n > 0 {
		a.add("etcd-failed", "", etcd, x, "etcd_server_proposals_failed_total", "")
	}
	if g := f.gauge("etcd_server_leader_changes_seen_total", nil); g.n > 0 {
		changes, _ := f.total("etcd_server_leader_changes_seen_total", nil)
		a.add("etcd-leader", "", etcd, changes, "etcd_server_leader_changes_seen_total", "")
	}
	size, quota := f.gauge("etcd_mvcc_db_total_size_in_bytes", nil), f.gauge("etcd_server_quota_backend_bytes", nil)
	if size.n > 0 && quota.last > 0 {
		a.add("etcd-quota", "", etcd, size.max/quota.last, "etcd_mvcc_db_total_size_in_bytes ÷ etcd_server_quota_backend_bytes",
			fmt.Sprintf("%s of %s", Format(size.max, "bytes"), Format(quota.last, "bytes")))
	} else {
		a.miss("etcd-quota", "", etcd, "etcd_mvcc_db_total_size_in_bytes", "the metric is not there")
	}
}

func (a *assessment) scheduler(f *family) {
	if sum, n := f.total("scheduler_scheduling_algorithm_duration_seconds_sum", nil); n > 0 {
		decided, _ := f.total("scheduler_scheduling_algorithm_duration_seconds_count", nil)
		a.add("scheduling-loop", "", scheduler, sum/f.seconds(), "scheduler_scheduling_algorithm_duration_seconds_sum", fmt.Sprintf("%.0f decisions", decided))
	} else {
		a.miss("scheduling-loop", "", scheduler, "scheduler_scheduling_algorithm_duration_seconds", "the metric is not there: nothing was scheduled yet")
	}
	if g := f.gauge("scheduler_pending_pods", label("queue", "active", "backoff")); g.n > 0 {
		a.add("scheduler-pending", "", scheduler, g.mean(), `scheduler_pending_pods{queue=~"active|backoff"}`, "at most "+trim(g.max))
	}
	if g := f.gauge("scheduler_pending_pods", label("queue", "unschedulable")); g.n > 0 {
		a.add("scheduler-unschedulable", "", scheduler, g.max, `scheduler_pending_pods{queue="unschedulable"}`, "")
	}
	a.born(f, "scheduler-errors", "scheduler_schedule_attempts_total", label("result", "error"), "scheduler_schedule_attempts_total")
}

func (a *assessment) clientLimiter(f *family) {
	c := f.t.component
	if waited, n := f.total("rest_client_rate_limiter_duration_seconds_sum", nil); n > 0 {
		a.add("limiter-wait", c, c, waited/f.seconds(), "rest_client_rate_limiter_duration_seconds_sum", fmt.Sprintf("%.1f s waited, all clients of the process", waited))
	}
	if all, n := f.total("rest_client_requests_total", nil); n > 0 && all > 0 {
		failed, _ := f.total("rest_client_requests_total", func(l map[string]string) bool {
			return strings.HasPrefix(l["code"], "5") || l["code"] == "429" || l["code"] == "<error>"
		})
		a.add("client-errors", c, c, failed/all, `rest_client_requests_total{code=~"5..|429|<error>"}`, fmt.Sprintf("%.0f of %.0f", failed, all))
	}
}

// clientLimits are the rates that components limit each of their clients to.
var clientLimits = []struct{ component, flag, standard string }{
	{controllerManager, "kube-api-qps", "20"},
	{scheduler, "kube-api-qps", "50"},
}

// clients sorts the requests of components with a limit by client.
func (r *reader) clients() {
	r.agents = map[string][]int64{}
	r.noAgents = r.rec.EachRequest(func(q *record.Request) error {
		for _, l := range clientLimits {
			if strings.HasPrefix(q.UserAgent, l.component+"/") {
				r.agents[q.UserAgent] = append(r.agents[q.UserAgent], q.ReceivedMicros)
			}
		}
		return nil
	})
	for _, ts := range r.agents {
		slices.Sort(ts)
	}
}

// clientRate compares each client's requests with its configured rate: each
// controller has a limiter of its own, and metrics add them up.
func (a *assessment) clientRate() {
	const evidence = "table requests, by user agent"
	for _, l := range clientLimits {
		if a.r.noAgents != nil {
			a.miss("limiter", l.component, l.component, evidence, why(a.r.noAgents))
			continue
		}
		if l.component == scheduler && a.r.flag(scheduler, "config", "") != "" {
			a.miss("limiter", l.component, l.component, evidence, "its limit is in the file of --config, which is not in the recording")
			continue
		}
		qps, err := strconv.ParseFloat(a.r.flag(l.component, l.flag, l.standard), 64)
		if err != nil || qps <= 0 {
			a.miss("limiter", l.component, l.component, evidence, "--"+l.flag+" sets no limit")
			continue
		}
		const span = 10 // seconds: in less, a full bucket lets any rate pass
		if a.w.Seconds() < span {
			a.miss("limiter", l.component, l.component, evidence, fmt.Sprintf("the window is shorter than %d s: bursts are allowed", span))
			continue
		}
		busiest, who := 0.0, ""
		for agent, ts := range a.r.agents {
			if !strings.HasPrefix(agent, l.component+"/") {
				continue
			}
			if r := busiestRate(ts, a.w, span); r > busiest || r == busiest && agent < who {
				busiest, who = r, agent
			}
		}
		if who == "" {
			a.miss("limiter", l.component, l.component, evidence, "no requests of it in the window")
			continue
		}
		role := who[strings.LastIndex(who, "/")+1:]
		a.add("limiter", l.component, l.component, busiest/qps, evidence, fmt.Sprintf("%s, %s/s of %s", role, trim(busiest), trim(qps)))
	}
}

// busiestRate is the highest rate over span seconds.
func busiestRate(ts []int64, w record.Window, span float64) (rate float64) {
	lo, _ := slices.BinarySearch(ts, w.Start.UnixMicro())
	hi, _ := slices.BinarySearch(ts, w.End.UnixMicro())
	width := int64(span * 1e6)
	if width <= 0 {
		return 0
	}
	for i, j := lo, lo; i < hi; i++ {
		for j < hi && ts[j] < ts[i]+width {
			j++
		}
		rate = max(rate, float64(j-i)/span)
	}
	return rate
}

// workers say which flag sets how many workers a queue of the controller
// manager has, with its default in v1.36.
var workers = map[string]struct {
	flag     string
	standard float64
}{
	"deployment":                          {"concurrent-deployment-syncs", 5},
	"replicaset":                          {"concurrent-replicaset-syncs", 5},
	"daemonset":                           {"concurrent-daemonset-syncs", 2},
	"statefulset":                         {"concurrent-statefulset-syncs", 5},
	"job":                                 {"concurrent-job-syncs", 5},
	"cronjob":                             {"concurrent-cron-job-syncs", 5},
	"endpoint":                            {"concurrent-endpoint-syncs", 5},
	"endpoint_slice":                      {"concurrent-service-endpoint-syncs", 5},
	"garbage_collector_attempt_to_delete": {"concurrent-gc-syncs", 20},
	"namespace":                           {"concurrent-namespace-syncs", 10},
	"horizontalpodautoscaler":             {"concurrent-horizontal-pod-autoscaler-syncs", 5},
	"resourcequota_primary":               {"concurrent-resource-quota-syncs", 5},
	"ttl_jobs_to_delete":                  {"concurrent-ttl-after-finished-syncs", 5},
}

// queue is a workqueue in a window.
type queue struct {
	adds, work, waited, retries float64
	depth, longest              float64
}

func (a *assessment) queues(f *family) {
	c := f.t.component
	by := map[string]*queue{}
	into := func(metric string, set func(*queue, float64)) {
		f.grown(metric, func(l map[string]string, x float64) {
			if by[l["name"]] == nil {
				by[l["name"]] = &queue{}
			}
			set(by[l["name"]], x)
		})
	}
	into("workqueue_adds_total", func(q *queue, x float64) { q.adds += x })
	into("workqueue_work_duration_seconds_sum", func(q *queue, x float64) { q.work += x })
	into("workqueue_queue_duration_seconds_sum", func(q *queue, x float64) { q.waited += x })
	into("workqueue_retries_total", func(q *queue, x float64) { q.retries += x })
	if len(by) == 0 {
		return
	}
	highest := func(metric string, set func(*queue, float64)) {
		for _, s := range a.r.of(metric) {
			q := by[s.Labels["name"]]
			if s.Labels["instance"] != f.t.instance || q == nil {
				continue
			}
			for _, p := range s.Points {
				if !p.Time.Before(f.from) && !p.Time.After(f.to) && !math.IsNaN(p.Value) {
					set(q, p.Value)
				}
			}
		}
	}
	highest("workqueue_depth", func(q *queue, x float64) { q.depth = max(q.depth, x) })
	highest("workqueue_longest_running_processor_seconds", func(q *queue, x float64) { q.longest = max(q.longest, x) })

	// Queues with next to nothing to do are one row: most of a controller
	// manager's fifty are.
	const little = 0.01
	quiet, quietWork := 0, 0.0
	for _, name := range slices.Sorted(maps.Keys(by)) {
		q := by[name]
		busy, waiting := q.work/f.seconds(), q.waited/f.seconds()
		instance := name + " (" + c + ")"
		if q.longest >= byID["queue-stuck"].Watch {
			a.add("queue-stuck", instance, c, q.longest, "workqueue_longest_running_processor_seconds", "")
		}
		if busy < little && waiting < little {
			quiet++
			quietWork += busy
			continue
		}
		const evidence = "workqueue_work_duration_seconds_sum"
		n, known := 0.0, false
		if w, has := workers[name]; has && c == controllerManager {
			n, known = w.standard, true
			if x, err := strconv.ParseFloat(a.r.flag(c, w.flag, ""), 64); err == nil && x > 0 {
				n = x
			}
		}
		switch t := byID["queue"]; {
		case known:
			a.add("queue", instance, c, busy/n, evidence, fmt.Sprintf("%s workers", trim(n)))
		case busy < t.Watch: // even one worker would have time left
			a.add("queue", instance, c, busy, evidence, "workers unknown: at most this, with one")
		default:
			a.miss("queue", instance, c, evidence, fmt.Sprintf("workers unknown; %s of them worked in the mean", trim(busy)))
		}
		a.add("queue-wait", instance, c, waiting, "workqueue_queue_duration_seconds_sum", "deepest seen "+trim(q.depth))
		if q.adds > 0 {
			a.add("queue-retries", instance, c, q.retries/q.adds, "workqueue_retries_total ÷ workqueue_adds_total", fmt.Sprintf("%.0f of %.0f", q.retries, q.adds))
		}
	}
	if quiet > 0 {
		a.add("queue", fmt.Sprintf("%d quiet queues (%s)", quiet, c), c, quietWork, "workqueue_work_duration_seconds_sum", "all together, as if they had one worker")
	}
}

// process checks what every component has.
func (a *assessment) process(f *family) {
	c := f.t.component
	a.goroutines(f)
	const gc = "go_cpu_classes_gc_total_cpu_seconds_total"
	if spent, n := f.total(gc, nil); n > 0 {
		all, _ := f.total("go_cpu_classes_total_cpu_seconds_total", nil)
		idle, _ := f.total("go_cpu_classes_idle_cpu_seconds_total", nil)
		idleGC, _ := f.total("go_cpu_classes_gc_mark_idle_cpu_seconds_total", nil)
		if used := all - idle; used > 0 {
			// What it did with CPUs that were idle anyway took nothing away.
			a.add("gc", c, c, (spent-idleGC)/used, gc, "the runtime's estimate, without marking on idle CPUs")
		} else {
			a.miss("gc", c, c, gc, "no collection in the window: the runtime updates its estimate with each")
		}
	} else {
		a.miss("gc", c, c, gc, "it exposes Go's base metrics only")
	}
	if top, n := f.highest("go_gc_pauses_seconds"); n > 0 {
		a.add("gc-pause", c, c, top, "go_gc_pauses_seconds_bucket", fmt.Sprintf("of %.0f pauses", n))
	} else if g := f.gauge("go_gc_duration_seconds", label("quantile", "1.0", "1")); g.n > 0 {
		a.add("gc-pause", c, c, g.max, `go_gc_duration_seconds{quantile="1.0"}`, "since its start")
	}
	open, limit := f.gauge("process_open_fds", nil), f.gauge("process_max_fds", nil)
	if open.n > 0 && limit.last > 0 {
		a.add("fds", c, c, open.max/limit.last, "process_open_fds ÷ process_max_fds", fmt.Sprintf("%s of %s", trim(open.max), trim(limit.last)))
	} else {
		a.miss("fds", c, c, "process_open_fds", "the metric is not there")
	}
	a.leases(f)
}

func (a *assessment) goroutines(f *family) {
	var ps []record.Point
	for _, s := range a.r.of("go_goroutines") {
		if s.Labels["instance"] != f.t.instance {
			continue
		}
		for _, p := range s.Points {
			if !p.Time.Before(f.from) && !p.Time.After(f.to) && !math.IsNaN(p.Value) {
				ps = append(ps, p)
			}
		}
	}
	if len(ps) < 2 {
		return
	}
	tenth := max(len(ps)/10, 1)
	mean := func(ps []record.Point) (sum float64) {
		for _, p := range ps {
			sum += p.Value
		}
		return sum / float64(len(ps))
	}
	// The first half has the start of the component, or of the load.
	half := len(ps) / 2
	first, last := mean(ps[half:min(half+tenth, len(ps))]), mean(ps[len(ps)-tenth:])
	grown := 0.0
	if last-first >= 500 && first > 0 {
		grown = last/first - 1
	}
	a.add("goroutines", f.t.component, f.t.component, grown, "go_goroutines", fmt.Sprintf("from %.0f to %.0f", first, last))
}

func (a *assessment) leases(f *family) {
	c := f.t.component
	lost, seen := 0, false
	for _, s := range a.r.of("leader_election_master_status") {
		if s.Labels["instance"] != f.t.instance {
			continue
		}
		before := math.NaN()
		for _, p := range s.Points {
			if p.Time.Before(f.from) || p.Time.After(f.to) {
				continue
			}
			seen = true
			if before == 1 && p.Value == 0 {
				lost++
			}
			before = p.Value
		}
	}
	if !seen {
		return
	}
	a.add("leases", c, c, float64(lost), "leader_election_master_status", "")
	slow, _ := f.total("leader_election_slowpath_total", nil)
	a.add("lease-slow", c, c, slow, "leader_election_slowpath_total", "")
}

package use

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Kinds of checks.
const (
	Utilisation = "utilisation"
	Saturation  = "saturation"
	Errors      = "errors"
)

// A Threshold says from where on a value is worth a look, and from where on it
// is bad. 0 stands for "never": the value is then for information.
type Threshold struct {
	ID       string
	Resource string
	Aspect   string // of the resource; empty where resource and kind say it
	Kind     string
	Unit     string // share is of 1
	Watch    float64
	Bad      float64
	What     string // a sentence: what is measured, and what it means
	Source   string // of the numbers
}

// Where a threshold has no better source than queueing theory.
const (
	single = "a single server's queue doubles at 50 % and is five times as long at 80 % (M/M/1: 1/(1−U))"
	little = "Little's law: waiting time summed, per second, is the mean number that wait"
)

// Thresholds are all that checks compare with, in the order of the checklist.
var Thresholds = []Threshold{
	{"cpu", "cpu", "busy", Utilisation, "share", 0.7, 0.9, "Busy time (user and system) of all CPUs, or of one.", "queues of several servers grow steeply from 70 % to 90 % (M/M/c); node-exporter's mixin: NodeCPUHighUsage, 90 %"},
	{"cpu-busy-seconds", "cpu", "seconds at 90 %", Saturation, "share", 0.1, 0.5, "Seconds in which at least 90 % of all CPUs were busy: a mean hides short saturation.", "a tenth of the time is what a p90 sees, half of it what a median sees"},
	{"cpu-run-delay", "cpu", "run delay", Saturation, "threads", 0.25, 1, "Mean number of a component's threads that could run and waited for a CPU.", little},
	{"cpu-run-queue", "cpu", "run queue", Saturation, "tasks/CPU", 0.5, 1, "Mean number of runnable tasks that wait, for each CPU.", little},
	{"cpu-pressure", "cpu", "PSI", Saturation, "share", 0.2, 0.5, "Time in which at least one task waited for a CPU (PSI some).", "kernel documentation, accounting/psi; half of the time is what a median sees"},
	{"cpu-steal", "cpu", "steal", Saturation, "share", 0.05, 0.1, "CPU time that the hypervisor gave to others.", "from 10 % on the diagnosis of CPU speaks of another machine's load"},
	{"cpu-throttled", "cpu", "throttling", Saturation, "share", 0.05, 0.25, "Periods of its cgroup's CPU quota in which a component was stopped.", "kubernetes-mixin: CPUThrottlingHigh, 25 %"},
	{"cpu-errors", "cpu", "machine checks", Errors, "count", 0, 0, "Machine checks.", "—"},
	{"memory", "memory", "used", Utilisation, "share", 0.8, 0.95, "Memory that is not available without swapping, highest second.", "node-exporter's mixin: NodeMemoryHighUtilization, 90 %, set apart on both sides"},
	{"memory-pressure", "memory", "PSI", Saturation, "share", 0.02, 0.1, "Time in which at least one task waited for memory (PSI some).", "kernel documentation, accounting/psi; systemd-oomd acts at 60 % full"},
	{"memory-swap", "memory", "swap growth", Saturation, "bytes", 1, 64 << 20, "By how much used swap grew.", "the control plane's memory is hot: none of it belongs to swap"},
	{"memory-faults", "memory", "major faults", Saturation, "1/s", 10, 100, "Major faults: pages that had to be read from disk.", "at 10 ms a fault, 100 a second fill a thread"},
	{"memory-oom", "memory", "OOM kills", Errors, "count", 1, 1, "Processes that the kernel killed for lack of memory.", "one is too many"},
	{"disk", "disk", "busy", Utilisation, "share", 0.6, 0.9, "Time with at least one request. A device that serves many at once has room left at 100 %.", "iostat(1): %util; Gregg, USE checklist for Linux"},
	{"disk-queue", "disk", "queue", Saturation, "requests", 1, 4, "Mean number of requests at the device.", "iostat(1): aqu-sz above 1 is a queue on a device that serves one at a time"},
	{"disk-latency", "disk", "latency", Saturation, "s", 0.01, 0.05, "Mean time of a read or write, waiting included.", "etcd's FAQ wants an fsync, which is several of these, below 10 ms"},
	{"disk-flush", "disk", "flush", Saturation, "s", 0.01, 0.025, "Mean time of a flush request.", "etcd's FAQ: fsync p99 below 10 ms"},
	{"disk-pressure", "disk", "PSI", Saturation, "share", 0.1, 0.4, "Time in which at least one task waited for I/O (PSI some).", "kernel documentation, accounting/psi"},
	{"disk-errors", "disk", "failed requests", Errors, "count", 0, 0, "Failed requests.", "—"},
	{"network", "network", "throughput", Utilisation, "share", 0.5, 0.8, "Throughput as a share of the interface's speed.", "Gregg, USE checklist for Linux"},
	{"network-retransmits", "network", "retransmits", Saturation, "share", 0.005, 0.02, "TCP segments that were sent again.", "above 1 % TCP's throughput falls with the square root of the loss (Mathis et al., 1997)"},
	{"network-errors", "network", "errors and drops", Errors, "1/s", 0.1, 10, "Errors and drops of all interfaces.", "on loopback and inside a rack there are none"},
	{"network-listen", "network", "listen drops", Errors, "count", 1, 1, "Connections dropped because a listener's queue was full.", "each costs its client a second or more"},

	{"apf-seats", "APF", "seats", Utilisation, "share", 0.5, 0.9, "Seats in use of those that a priority level has, mean over time.", single},
	{"apf-queue", "APF", "queue", Saturation, "requests", 0.1, 1, "Mean number of requests that wait in a priority level's queues.", little},
	{"apf-rejected", "APF", "rejected", Errors, "count", 1, 1, "Requests that a priority level rejected (429).", "one is too many: its client waits at least a second"},
	{"inflight", "kube-apiserver", "in flight", Utilisation, "share", 0.7, 0.9, "Highest number of requests in flight, of --max-requests-inflight or --max-mutating-requests-inflight.", "highest value, not mean: 90 % leaves no room for a burst"},
	{"api-errors", "kube-apiserver", "5xx", Errors, "share", 0.0001, 0.01, "Requests that the server answered with 5xx.", "kubernetes-mixin: the API server's objective is 99 % without"},
	{"audit-errors", "kube-apiserver", "lost audit events", Errors, "count", 1, 1, "Audit events that were not written.", "each is a request that nobody will find"},
	{"watch-read-wait", "watch cache", "read wait", Saturation, "s", 0.15, 1, "Mean time that a consistent read waits for the watch cache to be fresh.", "a read on a quiet resource waits up to 100 ms for etcd's progress notification (progressRequestPeriod)"},
	{"watch-fallback", "watch cache", "reads from etcd", Saturation, "count", 1, 100, "Consistent reads that gave up on the watch cache and went to etcd.", "after 3 s without news (blockTimeout)"},
	{"watch-terminated", "watch cache", "closed watchers", Errors, "count", 1, 10, "Watchers that were closed because they did not keep up.", "each makes its client list again"},
	{"watch-init", "watch cache", "filled again", Errors, "count", 1, 10, "Watch caches that were filled again: until then they are not ready.", "once each at the start, never after"},

	{"etcd-wal", "etcd", "WAL fsync", Utilisation, "share", 0.5, 0.8, "Time that the write-ahead log was in fsync. There is one writer.", single},
	{"etcd-wal-p99", "etcd", "WAL fsync p99", Saturation, "s", 0.01, 0.1, "p99 of an fsync of the write-ahead log.", "etcd's FAQ: below 10 ms; etcd-mixin: etcdHighFsyncDurations, 500 ms"},
	{"etcd-commit", "etcd", "backend commit", Utilisation, "share", 0.5, 0.8, "Time that the backend was in commit.", single},
	{"etcd-commit-p99", "etcd", "backend commit p99", Saturation, "s", 0.025, 0.25, "p99 of a backend commit.", "etcd's FAQ: below 25 ms; etcd-mixin: etcdHighCommitDurations, 250 ms"},
	{"etcd-apply", "etcd", "apply", Utilisation, "share", 0.5, 0.8, "Time spent in applying entries, which is done one after another.", single},
	{"etcd-slow-apply", "etcd", "slow applies", Saturation, "1/s", 0.01, 1, "Requests that took longer than 100 ms to apply.", "etcd warns of each; one a second is a steady state"},
	{"etcd-proposals", "etcd", "pending proposals", Saturation, "proposals", 5, 50, "Highest number of proposals that wait to be committed.", "they share fsyncs: a few are normal, fifty are a queue"},
	{"etcd-failed", "etcd", "failed proposals", Errors, "count", 1, 5, "Proposals that failed.", "etcd-mixin: etcdHighNumberOfFailedProposals, 5 in 15 minutes"},
	{"etcd-leader", "etcd", "leader changes", Errors, "count", 1, 4, "Changes of leader.", "etcd-mixin: etcdHighNumberOfLeaderChanges, 4 in 15 minutes"},
	{"etcd-quota", "etcd", "database of quota", Utilisation, "share", 0.8, 0.95, "Size of the database, of its quota.", "etcd-mixin: etcdDatabaseQuotaLowSpace, 95 %"},

	{"limiter", "client limiter", "rate", Utilisation, "share", 0.7, 0.95, "Requests of the busiest 10 s of the busiest client, of its configured rate.", "95 % over 10 s is an empty bucket; below, it fills again"},
	{"limiter-wait", "client limiter", "wait", Saturation, "requests", 0.05, 0.5, "Mean number of requests that wait for a component's own limiter.", little + "; 5 % is what a detector calls nobody waiting"},
	{"client-errors", "client limiter", "errors", Errors, "share", 0.01, 0.1, "A component's requests that ended with 429, 5xx or without an answer.", "kubernetes-mixin: KubeClientErrors, 1 %"},
	{"queue", "workqueue", "workers", Utilisation, "share", 0.7, 0.9, "Working time of a queue's workers, of the time that they had.", "several servers: as for CPUs"},
	{"queue-wait", "workqueue", "waiting", Saturation, "keys", 1, 10, "Mean number of keys that wait in a queue. Keys are not objects: one may stand for much work.", little},
	{"queue-stuck", "workqueue", "longest run", Saturation, "s", 10, 60, "Longest time that one key has been worked on.", "a sync that takes a minute is stuck, or waits for a limiter"},
	{"queue-retries", "workqueue", "retries", Errors, "share", 0.3, 0, "Keys put back after a failure, of those added. Some controllers do so in good order.", "none: for comparison"},
	{"scheduling-loop", "scheduler", "loop", Utilisation, "share", 0.5, 0.8, "Time that the scheduling loop decides (scheduler_scheduling_algorithm_duration_seconds). It is one goroutine; the duration of attempts would count binding, which runs beside it.", single},
	{"scheduler-pending", "scheduler", "pending pods", Saturation, "pods", 10, 100, "Mean number of pods in the queues active and backoff.", "ten pods are a tenth of a second of a healthy scheduler, a hundred a second"},
	{"scheduler-unschedulable", "scheduler", "unschedulable pods", Saturation, "pods", 1, 0, "Highest number of pods that fit on no node.", "a matter of capacity, not of speed"},
	{"scheduler-errors", "scheduler", "attempts", Errors, "count", 1, 1, "Scheduling attempts that ended in an error.", "none should"},

	{"goroutines", "goroutines", "growth", Saturation, "share", 0.5, 2, "By how much a component's goroutines grew in the second half of the window. Below 500 more it does not count.", "what waits has a goroutine: growth that does not stop is a leak or a queue"},
	{"gc", "GC", "CPU share", Utilisation, "share", 0.15, 0.25, "Share of a component's CPU time that went to garbage collection.", "Go's collector aims at 25 % of a core while it runs; an eighth of the whole is usual under load"},
	{"gc-pause", "GC", "longest pause", Saturation, "s", 0.01, 0.1, "Longest pause, to the upper end of its bucket; of etcd since its start.", "10 ms are as long as an fsync"},
	{"fds", "fds", "open", Utilisation, "share", 0.5, 0.8, "Open files and sockets, of the limit.", "each connection takes one, and a refused one is an outage"},
	{"leases", "leader election", "lost", Errors, "count", 1, 1, "Times that a component lost its lease.", "the component stops working until somebody has it again"},
	{"lease-slow", "leader election", "slow renewals", Saturation, "count", 1, 10, "Renewals that had to read the lease again.", "each is a write that met another one, or an answer that was lost"},
}

var byID = func() map[string]*Threshold {
	m := map[string]*Threshold{}
	for i := range Thresholds {
		m[Thresholds[i].ID] = &Thresholds[i]
	}
	return m
}()

// WriteTable writes the thresholds as a table in Markdown.
func WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| id | resource | aspect | kind | what | unit | watch | bad | source |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, t := range Thresholds {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n", t.ID, t.Resource, t.Aspect, t.Kind, t.What, t.Unit, t.limit(t.Watch), t.limit(t.Bad), t.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Threshold) limit(x float64) string {
	if x == 0 {
		return "–"
	}
	return Format(x, t.Unit)
}

// Format writes a value with its unit for people.
func Format(x float64, unit string) string {
	switch unit {
	case "share":
		return trim(100*x) + " %"
	case "s":
		if x < 1 && x > 0 {
			return trim(1000*x) + " ms"
		}
		return trim(x) + " s"
	case "bytes":
		if x >= 10<<30 {
			return trim(x/(1<<30)) + " GiB"
		}
		if x >= 1<<20 {
			return trim(x/(1<<20)) + " MiB"
		}
		return trim(x) + " B"
	case "1/s":
		return trim(x) + "/s"
	case "count":
		return trim(x)
	}
	return trim(x) + " " + unit
}

// trim is three digits at most.
func trim(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x < 0.005 && x > 0:
		return "<0.01"
	}
	s := strconv.FormatFloat(x, 'f', 2, 64)
	if x >= 10 {
		s = strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

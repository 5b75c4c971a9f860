package fault

import "strconv"

// What goes wrong with the API server.
var apiserver = []Fault{
	{
		Name: "few-seats", Number: "F14", Title: "the API server works on too few requests at a time", Holds: "every request, in the queues of priority and fairness",
		Parameter: Parameter{Means: "requests in flight, reads and writes together", Kind: Number, Low: "20", Middle: "8", High: "4"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "apf"}},
		Alike:     []string{"starved-apiserver", "starved-level", "slow-webhook"},
		Doc: `Priority and fairness gives each level a share of the requests that may be worked on at one time. With few in all, most levels have one seat, and requests wait in queues though nobody is busy.

**What you see.** Everything is slow, CPUs are idle, and some clients are told 429.

**What tells it apart.** Waiting in the queues is long and work on a request short. Where the API server has too little CPU it is the work itself that takes long, and seats fill up because of that.

**Remedy.** Raise --max-requests-inflight and --max-mutating-requests-inflight, as far as CPU and etcd have room.`,
		Change: `cluster: {components: {kube-apiserver: {args: {max-requests-inflight: {{.Int}}, max-mutating-requests-inflight: {{.Times 0.5}}}}}}`,
		Show:   "rollout",
		acted: func(r *reading, _ Value) Effect {
			sum, ok := r.increase("apiserver_flowcontrol_request_wait_duration_seconds_sum", on(kubeAPIServer))
			if !ok {
				return missing("apiserver_flowcontrol_request_wait_duration_seconds")
			}
			return judge(sum > r.window.Seconds()/2, sum, "s", "requests waited %.1f s in all for a seat in %s", sum, r.lasts())
		},
	},
	{
		Name: "starved-apiserver", Number: "F29", Title: "the API server gets too little CPU", Holds: "every request",
		Parameter: Parameter{Means: "cores that it may use", Kind: Number, Low: "0.6", Middle: "0.35", High: "0.2"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "cpu"}},
		Alike:     []string{"small-master", "few-seats"},
		Doc: `A quota lets the API server run for a part of each tenth of a second. Cached reads, writes and watches all wait for the rest.

**What you see.** Everything is slow, also what never reaches etcd.

**What tells it apart.** The cgroup counts how often it was stopped; the machine as a whole is not busy.

**Remedy.** Raise the limit, or find who asks for so much.`,
		Change: "cluster: {components: {kube-apiserver: {cpu: {{.Text}}}}}",
		Show:   "rollout",
		acted:  throttled(kubeAPIServer),
	},
	{
		Name: "verbose-log", Number: "F21", Title: "the API server logs everything", Holds: "the API server's CPU",
		Parameter: Parameter{Means: "verbosity", Kind: Number, Low: "4", Middle: "8", High: "10"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "cpu"}, {Component: kubeAPIServer, Resource: "disk"}},
		Alike:     []string{"starved-apiserver"},
		Doc: `From -v=6 on the API server writes lines for each request, from 8 on with bodies. Each is formatted and written while the request waits.

**What you see.** All requests are a little slower and cost more CPU; the disk fills up.

**What tells it apart.** The log grows by megabytes a second, and the profile has klog in it.

**Remedy.** -v=2. It can be changed while the server runs (PUT /debug/flags/v).`,
		Change: `cluster: {components: {kube-apiserver: {args: {v: {{.Int}}}}}}`,
		Show:   "arrivals",
		acted: func(r *reading, v Value) Effect {
			wrote, ok := r.grown(kubeAPIServer, func(s recordSample) float64 { return float64(s.WriteBytes) })
			if got, _ := r.flag(kubeAPIServer, "v"); got != strconv.Itoa(v.Int()) {
				return judge(false, 0, "", "kube-apiserver runs with --v=%s", got)
			}
			if !ok || wrote < 0 {
				return missing("what kube-apiserver writes")
			}
			rate := wrote / r.window.Seconds()
			return judge(rate > 200e3, rate/1e6, "MB/s", "kube-apiserver wrote %.1f MB a second", rate/1e6)
		},
	},
	{
		Name: "busy-collector", Number: "F30", Title: "the API server's heap is kept too small", Holds: "the API server's CPU, by garbage collection",
		Parameter: Parameter{Means: "GOGC: by how many per cent the heap may grow", Kind: Number, Low: "20", Middle: "5", High: "2"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "gc"}},
		Alike:     []string{"starved-apiserver", "list-storm"},
		Doc: `The collector of garbage runs whenever the heap has grown by GOGC per cent. With a low value, or a memory limit (GOMEMLIMIT) near what is in use, it runs all the time.

**What you see.** The API server uses a lot of CPU for little work.

**What tells it apart.** go_gc_cycles_total grows many times a second, and gcBgMarkWorker fills the profile, with requests as ever.

**Remedy.** Leave GOGC at 100; give the process memory.`,
		Change: `cluster: {components: {kube-apiserver: {env: {GOGC: "{{.Int}}"}}}}`,
		Show:   "arrivals",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.increase("go_gc_cycles_total_gc_cycles_total", on(kubeAPIServer))
			if !ok {
				n, ok = r.increase("go_gc_duration_seconds_count", on(kubeAPIServer))
			}
			if !ok {
				return missing("how often kube-apiserver collects garbage")
			}
			rate := n / r.window.Seconds()
			return judge(rate > 3, rate, "1/s", "kube-apiserver collected garbage %.1f times a second", rate)
		},
	},
	{
		Name: "short-watches", Number: "F32", Title: "watches end after seconds", Holds: "the API server's CPU, and what informers know",
		Parameter: Parameter{Means: "least seconds that a watch lasts (--min-request-timeout)", Kind: Number, Low: "30", Middle: "4", High: "1"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "watch"}},
		Alike:     []string{"relist-storm"},
		Doc: `The server ends each watch after a time between once and twice --min-request-timeout. Every informer of every kubelet, controller and operator then opens it again.

**What you see.** Many WATCH requests, a little more CPU, nodes that hear of their pods late.

**What tells it apart.** Watches are opened at a rate of watchers over timeout, by everybody, and none was told that its version is too old.

**Remedy.** The default of 1800 s.`,
		Change: `cluster: {components: {kube-apiserver: {args: {min-request-timeout: {{.Int}}}}}}`,
		Show:   "arrivals",
		acted: func(r *reading, _ Value) Effect {
			rate, ok := r.rateOf(func(q *recordRequest) bool { return q.Verb == "watch" })
			if !ok {
				return missing("the audit log")
			}
			return judge(rate > 5, rate, "1/s", "%.1f watches a second ended", rate)
		},
	},
}

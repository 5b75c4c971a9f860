package fault

import "strings"

// What goes wrong with the controller manager.
var controllers = []Fault{
	{
		Name: "controller-limit", Number: "F36", Star: true, Title: "controllers hold their own requests back", Holds: "the creation of pods",
		Parameter: Parameter{Means: "requests a second that each controller's client lets through", Kind: Number, Low: "50", Middle: "20", High: "8"},
		Right:     []Place{{controllerManager, "controller", "client-limit"}},
		Alike:     []string{"few-workers", "refused-creates", "few-seats", "slow-generator"},
		Doc: `Each controller of the controller manager has a client of its own that lets --kube-api-qps requests a second through, 20 unless set. Pods, their Events and the status of the ReplicaSet share them.

**What you see.** One Deployment grows by 20 pods a second at most, and everything is idle.

**What tells it apart.** Requests wait in the limiter, and POSTs of pods come like a clock. With too few workers nobody waits there; slow start doubles.

**Remedy.** Raise --kube-api-qps and --kube-api-burst; priority and fairness protects the server.`,
		Change: `cluster: {components: {kube-controller-manager: {args: {kube-api-qps: {{.Int}}, kube-api-burst: {{.Int}}}}}}`,
		Show:   "rollout",
		acted:  setAndWaited(controllerManager, "kube-api-qps"),
	},
	{
		Name: "starved-controllers", Number: "F29", Title: "the controller manager gets too little CPU", Holds: "the creation of pods",
		Parameter: Parameter{Means: "cores that it may use", Kind: Number, Low: "0.08", Middle: "0.05", High: "0.03"},
		Right:     []Place{{Component: controllerManager, Resource: "cpu"}},
		Alike:     []string{"few-workers", "controller-limit"},
		Doc: `A quota stops the controller manager for most of each tenth of a second.

**What you see.** Deployments grow slowly, in steps.

**What tells it apart.** The cgroup counts stops; no request waits in a limiter.

**Remedy.** Raise the limit.`,
		Change: "cluster: {components: {kube-controller-manager: {cpu: {{.Text}}}}}",
		Show:   "rollouts",
		acted:  throttled(controllerManager),
	},
	{
		Name: "far-controllers", Title: "the controller manager is far away from the API server", Holds: "the creation of pods, where there are many small workloads",
		Parameter: Parameter{Means: "what a request and its answer take longer on the way", Kind: Duration, Low: "20ms", Middle: "100ms", High: "400ms"},
		Right:     []Place{{Component: controllerManager, Resource: "network"}},
		Alike:     []string{"few-workers", "controller-limit", "far-etcd"},
		Doc: `Each request of the controller manager takes a way there and back: another zone, a proxy or a load balancer between them. A worker waits for each answer, and makes several requests one after the other for each object.

**What you see.** Many small Deployments come one after the other; everything is idle, and the API server answers everybody quickly.

**What tells it apart.** rest_client_request_duration_seconds of the controller manager is long without its limiter's part, and the API server's own clock for the same requests is short. With too few workers the answers are quick; with a far etcd the API server's clock is long, too.

**Remedy.** The controller manager beside the API server; mend the network. More workers hide it.`,
		Change: "cluster: {components: {kube-controller-manager: {latency: {{.Text}}}}}",
		Show:   "rollouts",
		acted: func(r *reading, v Value) Effect {
			mean, n, ok := r.mean("rest_client_request_duration_seconds", on(controllerManager, "verb", "~POST|PUT|PATCH"))
			if !ok {
				return missing("rest_client_request_duration_seconds of " + controllerManager)
			}
			return judge(mean >= v.Duration.Seconds(), 1000*mean, "ms", "a write of the controller manager took %.0f ms on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "few-workers", Number: "F53", Title: "controllers have too few workers", Holds: "the creation of pods, where there are many small workloads",
		Parameter: Parameter{Means: "workers of the Deployment and of the ReplicaSet controller", Kind: Number, Low: "3", Middle: "2", High: "1"},
		Right:     []Place{{controllerManager, "controller", "workers"}},
		Alike:     []string{"controller-limit", "refused-creates", "starved-controllers"},
		Doc: `A controller works on so many objects at a time (--concurrent-replicaset-syncs and others, 5 unless set). A worker waits for each answer of the API server, so that a slow answer and few workers bound the rate.

**What you see.** Many small Deployments come one after the other; everything is idle.

**What tells it apart.** workqueue_work_duration_seconds says that all workers are busy all the time, and objects wait in the queue; no request waits in a client's limiter.

**Remedy.** More workers; faster answers.`,
		Change: `cluster: {components: {kube-controller-manager: {args: {concurrent-replicaset-syncs: {{.Int}}, concurrent-deployment-syncs: {{.Int}}}}}}`,
		Show:   "rollouts-far",
		acted: func(r *reading, v Value) Effect {
			work, ok := r.increase("workqueue_work_duration_seconds_sum", on(controllerManager, "name", "replicaset"))
			waited, ok2 := r.increase("workqueue_queue_duration_seconds_sum", on(controllerManager, "name", "replicaset"))
			if !ok || !ok2 {
				return missing("workqueue_work_duration_seconds of the ReplicaSet controller")
			}
			return judge(waited > work && work > 1, waited, "s", "ReplicaSets waited %.1f s in all for %d workers, which worked %.1f s", waited, v.Int(), work)
		},
	},
	{
		Name: "refused-creates", Number: "F54", Title: "some of the pods are refused", Holds: "the creation of pods",
		Parameter: Parameter{Means: "per cent that are refused", Kind: Number, Low: "10", Middle: "40", High: "50"},
		Right:     []Place{{controllerManager, "controller", "backoff"}, {controllerManager, "controller", "quota"}, {client("policy"), "controller", "backoff"}, {kubeAPIServer, "controller", "webhook"}, {controllerManager, "controller", "webhook"}},
		Alike:     []string{"controller-limit", "few-workers", "slow-webhook"},
		Doc: `A ReplicaSet creates 1, 2, 4, 8, … pods at a time and stops for this time at the first refusal. It comes back after a pause that doubles with each failure.

**What you see.** A Deployment grows by fits and starts; Events say FailedCreate.

**What tells it apart.** Answers 403 to POSTs of pods by the replicaset-controller, and workqueue_retries_total. A limit is a flat rate without errors.

**Remedy.** Find who refuses: a quota, a webhook.`,
		Change: `actors:
  - {name: policy, do: webhook, refuse: {{.N}}}
`,
		Show: "rollout",
		acted: func(r *reading, v Value) Effect {
			refused, ok := r.requests(func(q *recordRequest) bool { return q.Resource == "pods" && q.Verb == "create" && q.Code == 403 })
			if !ok {
				return missing("the log of requests")
			}
			return judge(refused > 5, float64(refused), "1", "%d pods were refused", refused)
		},
	},
	{
		Name: "slow-removal", Number: "F55", Title: "what belongs to deleted objects goes slowly", Holds: "the removal of pods",
		Parameter: Parameter{Means: "requests a second that each controller's client lets through, with one worker of the garbage collector", Kind: Number, Low: "40", Middle: "15", High: "8"},
		Right:     []Place{{Component: controllerManager, Resource: "client-limit"}, {Component: controllerManager, Resource: "workers"}},
		Alike:     []string{"controller-limit", "dead-api"},
		Doc: `The garbage collector deletes what an object leaves behind, one request for each, under the limit of its client and by so many workers.

**What you see.** Pods of deleted Deployments stay for minutes.

**What tells it apart.** workqueue_depth of garbage_collector_attempt_to_delete falls slowly but steadily. With a dead API it does not fall for some kinds at all.

**Remedy.** More requests a second, --concurrent-gc-syncs.`,
		Change: `cluster: {components: {kube-controller-manager: {args: {kube-api-qps: {{.Int}}, kube-api-burst: {{.Int}}, concurrent-gc-syncs: 1}}}}`,
		Show:   "removal",
		acted: func(r *reading, _ Value) Effect {
			waited, ok := r.increase("workqueue_queue_duration_seconds_sum", on(controllerManager, "name", "garbage_collector_attempt_to_delete"))
			if !ok {
				return missing("workqueue_queue_duration_seconds of the garbage collector")
			}
			return judge(waited > 20, waited, "s", "objects waited %.0f s in all for the garbage collector", waited)
		},
	},
	{
		Name: "false-node-failures", Number: "F58", Title: "nodes are given up too soon", Holds: "scheduling: healthy nodes are tainted",
		Parameter: Parameter{Means: "time without a heartbeat after which a node is given up", Kind: Duration, Low: "9s", Middle: "6s", High: "4s"},
		Right:     []Place{{Component: controllerManager, Resource: "unknown"}, {Component: "node", Resource: "unknown"}},
		Alike:     []string{"slow-node-disk"},
		Doc: `Kubelets renew their lease every ten seconds. A controller manager that waits less than that takes nodes for dead between two renewals, taints them, and after a while evicts their pods.

**What you see.** Nodes that are NotReady for seconds, pods that stay pending or move.

**What tells it apart.** PATCHes of nodes by the node controller, node_collector_unhealthy_nodes_in_zone, and leases that are renewed on time.

**Remedy.** --node-monitor-grace-period of 50 s, the default; mend late heartbeats first.`,
		Change: `cluster: {components: {kube-controller-manager: {args: {node-monitor-grace-period: {{.Text}}, node-monitor-period: 1s}}}}`,
		Show:   "arrivals",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.requests(func(q *recordRequest) bool {
				return q.Resource == "nodes" && (q.Verb == "patch" || q.Verb == "update") && strings.Contains(q.UserAgent, "kube-controller-manager")
			})
			if !ok {
				return missing("the log of requests")
			}
			return judge(n > 10, float64(n), "1", "the controller manager changed nodes %d times in %s", n, r.lasts())
		},
	},
}

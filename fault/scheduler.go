package fault

import "strconv"

func itoa(i int) string { return strconv.Itoa(i) }

// What goes wrong with the scheduler.
var scheduler = []Fault{
	{
		Name: "scheduler-limit", Number: "F37", Star: true, Title: "the scheduler holds its own requests back", Holds: "bindings",
		Parameter: Parameter{Means: "requests a second that its client lets through", Kind: Number, Low: "50", Middle: "20", High: "8"},
		Right:     []Place{{kubeScheduler, "bind", "client-limit"}},
		Alike:     []string{"controller-limit", "slow-volumes", "slow-fsync"},
		Doc: `The scheduler's client lets --kube-api-qps requests a second through. Decisions are made, and bindings queue up inside the process.

**What you see.** Pods get nodes at a flat rate while nothing is busy.

**What tells it apart.** No pod is pending in the scheduler's queues, goroutines that bind pile up, and the Bind point takes far longer than the POST of a binding in the audit log.

**Remedy.** Raise clientConnection.qps; priority and fairness protects the server.`,
		Change: `cluster: {components: {kube-scheduler: {args: {kube-api-qps: {{.Int}}, kube-api-burst: {{.Int}}}}}}`,
		Show:   "rollout",
		acted:  setAndWaited(kubeScheduler, "kube-api-qps"),
	},
	{
		Name: "starved-scheduler", Number: "F29", Title: "the scheduler gets too little CPU", Holds: "decisions",
		Parameter: Parameter{Means: "cores that it may use", Kind: Number, Low: "0.05", Middle: "0.03", High: "0.02"},
		Right:     []Place{{Component: kubeScheduler, Resource: "cpu"}},
		Alike:     []string{"crowded-terms", "scheduler-limit"},
		Doc: `A quota stops the scheduler for most of each tenth of a second.

**What you see.** Pods stay pending; the queue is full, the machine idle.

**What tells it apart.** The cgroup counts stops. A loop that has too much to do uses all the CPU it wants.

**Remedy.** Raise the limit.`,
		Change: "cluster: {components: {kube-scheduler: {cpu: {{.Text}}}}}",
		Show:   "rollout",
		acted:  throttled(kubeScheduler),
	},
	{
		Name: "crowded-terms", Number: "F46", Star: true, Title: "each decision looks at all pods there are", Holds: "the scheduler's loop",
		Parameter: Parameter{Means: "pods with terms of their own that are there before", Kind: Number, Low: "2500", Middle: "4500", High: "6000"},
		Right:     []Place{{kubeScheduler, "decide", "loop"}, {kubeScheduler, "queue", "loop"}},
		Alike:     []string{"starved-scheduler", "fast-scrapes"},
		Doc: `Preferred affinity and soft spreading are scored over all pods of all nodes, for each pod that is scheduled. The scheduler decides about one pod at a time, so that the time of a decision is the rate.

**What you see.** Scheduling gets slower the more pods there are.

**What tells it apart.** The time of a decision grows with scheduler_cache_size{type="pods"}, and Score and PreScore take it. Where it grows with nodes alone it is filtering.

**Remedy.** Narrow terms (fewer pods match), required terms in place of preferred ones, default spreading constraints off.`,
		Change: `phases:
  - name: neighbours
    kind: warm-up
    create:
      count: {{.Int}}
      rate: burst
      inFlight: 200
      sendWithin: 2m
      object:
        apiVersion: v1
        kind: Pod
        metadata: {labels: {group: a}}
        spec:
          containers: [{name: main, image: registry.k8s.io/pause:3.10}]
          affinity:
            podAffinity:
              preferredDuringSchedulingIgnoredDuringExecution:
                - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 1, podAffinityTerm: {topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 1, podAffinityTerm: {topologyKey: topology.kubernetes.io/region, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/os, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/arch, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 2, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 2, podAffinityTerm: {topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 2, podAffinityTerm: {topologyKey: topology.kubernetes.io/region, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 2, podAffinityTerm: {topologyKey: kubernetes.io/os, labelSelector: {matchLabels: {group: a}}}}
                - {weight: 2, podAffinityTerm: {topologyKey: kubernetes.io/arch, labelSelector: {matchLabels: {group: a}}}}
      wait: {for: scheduled, timeout: 3m, stall: 40s}
`,
		Show: "terms",
		acted: func(r *reading, _ Value) Effect {
			mean, n, ok := r.mean("scheduler_scheduling_algorithm_duration_seconds", on(kubeScheduler))
			if !ok {
				return missing("scheduler_scheduling_algorithm_duration_seconds")
			}
			// A fast machine decides in time for the pods that are offered, however many terms it looks at.
			whole, _, ok := r.mean("scheduler_pod_scheduling_sli_duration_seconds", on(kubeScheduler))
			if !ok {
				return missing("scheduler_pod_scheduling_sli_duration_seconds")
			}
			return judge(mean > 0.004 && whole > 0.1, 1000*mean, "ms", "a decision took %.1f ms on average, a pod's scheduling %.0f ms (n=%.0f)", 1000*mean, 1000*whole, n)
		},
	},
}

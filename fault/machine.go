package fault

// What goes wrong with the machine, and with who measures.
var machine = []Fault{
	{
		Name: "small-master", Number: "F29", Star: true, Title: "the control plane has too little CPU", Holds: "everything",
		Parameter: Parameter{Means: "cores that the components have together", Kind: Number, Low: "1", Middle: "0.6", High: "0.35"},
		Right:     []Place{{Component: "machine", Resource: "cpu"}, {Component: kubeAPIServer, Resource: "cpu"}},
		Alike:     []string{"starved-apiserver", "starved-etcd", "slow-fsync", "few-seats"},
		Doc: `All components share a quota, as on a machine that is too small for them.

**What you see.** Everything is slow: writes, cached reads, syncs of etcd (whose thread waits for a CPU, not for the disk), leader election.

**What tells it apart.** All components wait for a CPU, or their group is stopped. A slow disk leaves cached reads fast.

**Remedy.** More CPU. Or less work: see who asks for most.`,
		Change: "cluster: {cpu: {{.Text}}}",
		Show:   "rollout",
		acted:  throttled(kubeAPIServer),
	},
	{
		Name: "slow-generator", Number: "F45", Title: "the load generator itself is too slow", Holds: "the load, and so the measurement",
		Parameter: Parameter{Means: "cores that the generator may use", Kind: Number, Low: "0.03", Middle: "0.015", High: "0.01"},
		Right:     []Place{{"harness", "submit", "cpu"}},
		Alike:     []string{"controller-limit", "starved-apiserver"},
		Doc: `A generator with too little CPU sends late. What is measured then is the generator.

**What you see.** Throughput that no change to the cluster moves.

**What tells it apart.** Operations are sent after their due time, and every server is idle. The run is not valid.

**Remedy.** A generator on a machine of its own; load that has due times, so that being late shows.`,
		Change: "cluster: {components: {kubedyno-load: {cpu: {{.Text}}}}}",
		Show:   "arrivals",
		acted: func(r *reading, _ Value) Effect {
			ops, err := r.Operations()
			if err != nil {
				return missing("operations")
			}
			// What is late before the load holds up nothing that is measured.
			from, to := r.window.Start.UnixMicro(), r.window.End.UnixMicro()
			n, latest := 0, 0.0
			for _, o := range ops {
				if o.SentMicros != 0 && o.DueMicros >= from && o.DueMicros <= to {
					n++
					latest = max(latest, float64(o.SentMicros-o.DueMicros)/1e6)
				}
			}
			// Beside pods that start in 0.3 s.
			return judge(latest > 0.05, latest, "s", "operations were sent up to %.2f s late (n=%d)", latest, n)
		},
	},
}

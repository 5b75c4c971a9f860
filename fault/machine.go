package fault

// What goes wrong with the machine, and with who measures.
var machine = []Fault{
	{
		Name: "slow-generator", Number: "F45", Title: "the load generator itself is too slow", Holds: "the load, and so the measurement",
		Parameter: Parameter{Means: "cores that the generator may use", Kind: Number, Low: "0.05", Middle: "0.02", High: "0.01"},
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
			n, late := 0, 0.0
			for _, o := range ops {
				if o.SentMicros != 0 {
					n++
					late += float64(o.SentMicros-o.DueMicros) / 1e6
				}
			}
			mean := late / float64(max(1, n))
			return judge(mean > 0.05, mean, "s", "operations were sent %.2f s late on average (n=%d)", mean, n)
		},
	},
}

package fault

// What goes wrong with etcd and its disk.
var storage = []Fault{
	{
		Name: "starved-etcd", Number: "F07", Title: "etcd gets too little CPU", Holds: "every write, and reads of the newest version",
		Parameter: Parameter{Means: "cores that etcd may use", Kind: Number, Low: "0.2", Middle: "0.08", High: "0.04"},
		Right:     []Place{{Component: etcd, Resource: "cpu"}},
		Alike:     []string{"small-master"},
		Doc: `A quota lets etcd run for a part of each tenth of a second and stops it for the rest. What comes meanwhile waits: requests that write, and those that ask for the newest version.

**What you see.** Everything that writes is slow, in steps of up to 100 ms. Reads from the API server's cache are as fast as ever.

**What tells it apart.** etcd's own times of syncs and applies grow as with a slow disk, but the disk is idle and the cgroup counts how often etcd was stopped. Where the whole machine is short of CPU, other processes wait for it too.

**Remedy.** Raise etcd's limit, or take it off; give etcd cores of its own.`,
		Change: "cluster: {components: {etcd: {cpu: {{.Text}}}}}",
		Show:   "rollout",
		acted:  throttled(etcd),
	},
	{
		Name: "frequent-snapshots", Number: "F11", Star: true, Title: "etcd takes snapshots often", Holds: "nothing that can be measured",
		Parameter: Parameter{Means: "applied entries between two snapshots", Kind: Number, Low: "2000", Middle: "500", High: "50"},
		Doc: `etcd notes its members and cuts its raft log every so many entries. Old releases wrote the whole store then, and lowering or raising the number was a known trick. Since 3.6 a snapshot holds the members only.

**What you see.** A little more CPU of etcd, and more lines in its log. Pods come as fast as before: this fault is here so that nobody is told otherwise.

**What tells it apart.** Snapshots are counted (etcd_snap_fsync_duration_seconds), and throughput does not follow.

**Remedy.** None is needed: leave the default of 10,000.`,
		Change: "cluster: {components: {etcd: {args: {snapshot-count: {{.Text}}}}}}",
		Show:   "rollout",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.increase("etcd_snap_fsync_duration_seconds_count", on(etcd))
			if !ok {
				return missing("etcd_snap_fsync_duration_seconds")
			}
			return judge(n >= 1, n, "1", "etcd took %.0f snapshots in %s", n, r.lasts())
		},
	},
}

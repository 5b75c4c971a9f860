package fault

// What goes wrong with etcd and its disk.
var storage = []Fault{
	{
		Name: "slow-fsync", Number: "F01", Star: true, Title: "etcd's disk takes long to sync", Holds: "every write",
		Parameter: Parameter{Means: "what each sync takes longer", Kind: Duration, Low: "10ms", Middle: "50ms", High: "200ms"},
		Right:     []Place{{Component: etcd, Resource: "disk"}},
		Alike:     []string{"disk-neighbour", "starved-etcd", "far-etcd", "small-master"},
		Doc: `etcd appends each batch of changes to its log and waits until the disk has it, one batch at a time. All writes of the cluster queue in front of that.

**What you see.** Everything that writes is slow. What the API server answers from its cache is as fast as ever.

**What tells it apart.** The mean of etcd_disk_wal_fsync_duration_seconds is milliseconds, and its sum grows by almost a second a second, while CPUs are idle. With a neighbour on the disk it comes in bursts, together with what the other one writes; with too little CPU cached reads are slow too; with a long way to etcd its own times are short.

**Remedy.** A disk of its own with short syncs for --data-dir, or at least --wal-dir. Never --unsafe-no-fsync where data matters.`,
		Change: "cluster: {components: {etcd: {syncDelay: {{.Text}}}}}",
		Show:   "rollouts",
		acted: func(r *reading, v Value) Effect {
			mean, n, ok := r.mean("etcd_disk_wal_fsync_duration_seconds", on(etcd))
			if !ok {
				return missing("etcd_disk_wal_fsync_duration_seconds")
			}
			return judge(mean >= v.Duration.Seconds(), 1000*mean, "ms", "a sync of etcd's log took %.1f ms on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "disk-neighbour", Number: "F02", Star: true, Title: "another program writes to etcd's disk", Holds: "every write, in bursts",
		Parameter: Parameter{Means: "writers that wait for the disk at the same time", Kind: Number, Low: "4", Middle: "16", High: "64"},
		Right:     []Place{{Component: "machine", Resource: "disk"}, {Component: client("archive"), Resource: "disk"}, {Component: etcd, Resource: "disk"}},
		Alike:     []string{"slow-fsync"},
		Doc: `A database, an archive of logs or the pull of an image on the same disk: etcd's syncs queue behind what others flush.

**What you see.** Writes are slow at times.

**What tells it apart.** Long syncs in the very seconds in which other processes write, and a busy disk. A slow disk is slow with nobody else on it.

**Remedy.** A disk of its own for etcd; audit and container logs elsewhere; weights for I/O.`,
		Change: `actors:
  - {name: archive, do: disk-writer, count: {{.Int}}}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			wrote, ok := r.grown("archive", func(s recordSample) float64 { return float64(s.WriteBytes) })
			mean, n, known := r.mean("etcd_disk_wal_fsync_duration_seconds", on(etcd))
			if !ok || !known {
				return missing("what archive writes, or etcd_disk_wal_fsync_duration_seconds,")
			}
			rate := wrote / r.window.Seconds() / 1e6
			// Below 5 ms nobody waits: a fast disk carries many such neighbours.
			return judge(rate > 1 && mean >= 0.005, 1000*mean, "ms", "a sync of etcd's log took %.1f ms on average (n=%.0f), while archive wrote %.0f MB a second", 1000*mean, n, rate)
		},
	},
	{
		Name: "far-etcd", Number: "F08", Title: "etcd is far away from the API server", Holds: "every write, and reads of the newest version",
		Parameter: Parameter{Means: "what a request and its answer take longer on the way", Kind: Duration, Low: "5ms", Middle: "30ms", High: "100ms"},
		Right:     []Place{{Component: etcd, Resource: "network"}, {Component: kubeAPIServer, Resource: "network"}},
		Alike:     []string{"slow-fsync", "starved-etcd"},
		Doc: `Each request to etcd takes a way there and back. Where the two stand in different zones, or something between them is slow, every operation takes that much longer, and an update takes it twice.

**What you see.** Writes are slow by the same time each, and so are GETs.

**What tells it apart.** etcd_request_duration_seconds of the API server has a floor for every operation, while etcd's own times of syncs and applies are short.

**Remedy.** etcd beside the API server; mend the network.`,
		Change: "cluster: {components: {etcd: {latency: {{.Text}}}}}",
		Show:   "rollouts",
		acted: func(r *reading, v Value) Effect {
			mean, n, ok := r.mean("etcd_request_duration_seconds", on(kubeAPIServer))
			if !ok {
				return missing("etcd_request_duration_seconds")
			}
			return judge(mean >= v.Duration.Seconds(), 1000*mean, "ms", "a request to etcd took %.1f ms on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "frequent-compaction", Number: "F04", Title: "etcd compacts all the time, in one piece", Holds: "nothing that can be measured",
		Parameter: Parameter{Means: "time between two compactions", Kind: Duration, Low: "60s", Middle: "5s", High: "1s"},
		Alike:     []string{"apply-loop", "slow-fsync"},
		Doc: `The API server asks etcd every five minutes to forget old revisions. etcd deletes them in batches, under the lock that writes need. Huge batches without a pause hold it long, where there are hundreds of thousands of revisions.

**What you see.** In a run of a minute, nothing: a compaction deletes a thousand revisions in some milliseconds, and pods come as fast as before. This fault is here so that nobody is told otherwise. In a store with years of churn latency is like a saw.

**What tells it apart.** Spikes come with etcd_debugging_mvcc_db_compaction_keys_total.

**Remedy.** The default interval and batches; less churn.`,
		Change: `cluster:
  components:
    kube-apiserver: {args: {etcd-compaction-interval: {{.Text}}}}
    etcd: {args: {compaction-batch-limit: 100000, compaction-sleep-interval: 1ns}}
`,
		Show: "rollout",
		acted: func(r *reading, v Value) Effect {
			n, ok := r.increase("etcd_debugging_mvcc_db_compaction_keys_total", on(etcd))
			if !ok {
				return missing("etcd_debugging_mvcc_db_compaction_keys_total")
			}
			return judge(n > 100, n, "1", "etcd's compactions deleted %.0f revisions in %s", n, r.lasts())
		},
	},
	{
		Name: "small-batches", Number: "F03", Title: "etcd commits each change by itself", Holds: "every write",
		Parameter: Parameter{Means: "changes in a commit of etcd's database", Kind: Number, Low: "10", Middle: "2", High: "1"},
		Right:     []Place{{Component: etcd, Resource: "disk"}},
		Alike:     []string{"slow-fsync", "disk-neighbour"},
		Doc: `etcd gathers changes and commits them to its database every 100 ms or 10,000 changes. With small batches each change waits for a commit, which syncs twice.

**What you see.** Writes are slow, though a single sync takes as long as ever.

**What tells it apart.** etcd_disk_backend_commit_duration_seconds counts hundreds of commits a second, with an ordinary mean. On a slow disk the mean is what grows.

**Remedy.** The defaults of --backend-batch-limit and --backend-batch-interval.`,
		Change: `cluster: {components: {etcd: {args: {backend-batch-limit: {{.Int}}}}}}`,
		Show:   "rollouts",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.increase("etcd_disk_backend_commit_duration_seconds_count", on(etcd))
			if !ok {
				return missing("etcd_disk_backend_commit_duration_seconds")
			}
			rate := n / r.window.Seconds()
			return judge(rate > 40, rate, "1/s", "etcd committed its database %.0f times a second", rate)
		},
	},
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

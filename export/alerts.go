package export

// Rules are the alerts, in the detectors' order of causes. Thresholds are
// those of the detectors. A detector also asks whether somebody waited, and
// whether a full CPU explains it, which metrics alone do not tell: an alert is
// a reason to look, a diagnosis is the answer.
var Rules = []Rule{
	{
		Alert: "SimulatedNodesLate", Detector: "nodes-late", Severity: Warning, Component: "kubedyno-hollow",
		Expr: `sum by (job) (rate(kubedyno_hollow_timer_lateness_seconds_sum[W]))
  / sum by (job) (rate(kubedyno_hollow_timer_lateness_seconds_count[W])) >= 0.3`,
		Summary: "Simulated nodes are {{ $value | humanizeDuration }} late on average: the numbers of this load are not to be used",
		Look:    "The CPU and the quota of kubedyno-hollow. A full machine delays everybody alike.",
		Fires:   []Line{{Series: `kubedyno_hollow_timer_lateness_seconds_sum{job="kubedyno-hollow"}`, Rate: 20}, {Series: `kubedyno_hollow_timer_lateness_seconds_count{job="kubedyno-hollow"}`, Rate: 50}},
		Quiet:   []Line{{Series: `kubedyno_hollow_timer_lateness_seconds_sum{job="kubedyno-hollow"}`, Rate: 5}, {Series: `kubedyno_hollow_timer_lateness_seconds_count{job="kubedyno-hollow"}`, Rate: 50}},
	},
	{
		Alert: "EtcdIsAlmostFull", Detector: "etcd-space", Severity: Warning, Component: "etcd",
		Expr: `max by (job, instance) (etcd_mvcc_db_total_size_in_bytes)
  / max by (job, instance) (etcd_server_quota_backend_bytes) >= 0.8`,
		Summary: "etcd's database takes {{ $value | humanizePercentage }} of its quota; at 100 % etcd refuses every write until somebody disarms the alarm",
		Look:    "What grows: apiserver_resource_objects and apiserver_resource_size_estimate_bytes. Then delete, compact, defragment, or raise --quota-backend-bytes.",
		Fires:   []Line{{Series: `etcd_mvcc_db_total_size_in_bytes{job="kube-etcd"}`, Level: 1.9e9}, {Series: `etcd_server_quota_backend_bytes{job="kube-etcd"}`, Level: 2147483648}},
		Quiet:   []Line{{Series: `etcd_mvcc_db_total_size_in_bytes{job="kube-etcd"}`, Level: 9e8}, {Series: `etcd_server_quota_backend_bytes{job="kube-etcd"}`, Level: 2147483648}},
	},
	{
		Alert: "NoMoreOpenFiles", Detector: "open-files", Severity: Warning, Component: "control plane",
		Expr:    `max by (job, instance) (process_open_fds) / max by (job, instance) (process_max_fds) >= 0.95`,
		Summary: "{{ $labels.job }} has {{ $value | humanizePercentage }} of the files and connections open that it may; at 100 % nobody new can connect to it",
		Look:    "LimitNOFILE of its unit (ulimit -n of its shell), and who holds so many connections: ss -tnp.",
		Fires:   []Line{{Series: `process_open_fds{job="apiserver"}`, Level: 128}, {Series: `process_max_fds{job="apiserver"}`, Level: 130}},
		Quiet:   []Line{{Series: `process_open_fds{job="apiserver"}`, Level: 100}, {Series: `process_max_fds{job="apiserver"}`, Level: 130}},
	},
	{
		Alert: "LargeObjectsAreWritten", Detector: "large-objects", Severity: Info, Component: "kube-apiserver",
		Expr: `sum by (job, resource) (rate(apiserver_request_body_size_bytes_sum[W]))
  / sum by (job, resource) (rate(apiserver_request_body_size_bytes_count[W])) >= 32000
  and sum by (job, resource) (rate(apiserver_request_body_size_bytes_sum[W])) >= 100000
  or sum by (job, resource) (rate(apiserver_watch_events_sizes_sum[W]))
  / sum by (job, resource) (rate(apiserver_watch_events_sizes_count[W])) >= 32000
  and sum by (job, resource) (rate(apiserver_watch_events_sizes_sum[W])) >= 1000000`,
		Summary: "writes or watch events of {{ $labels.resource }} have {{ $value | humanize }}B each, and there are many; etcd keeps each version until its next compaction",
		Look:    "Who writes them, and whether anything in them changed: the API server's audit log. Keep what changes often apart from what is large.",
		Fires:   []Line{{Series: `apiserver_request_body_size_bytes_sum{job="apiserver",resource="configmaps"}`, Rate: 8e5}, {Series: `apiserver_request_body_size_bytes_count{job="apiserver",resource="configmaps"}`, Rate: 10}},
		Quiet:   []Line{{Series: `apiserver_request_body_size_bytes_sum{job="apiserver",resource="configmaps"}`, Rate: 1.5e5}, {Series: `apiserver_request_body_size_bytes_count{job="apiserver",resource="configmaps"}`, Rate: 100}},
	},
	{
		Alert: "ControlPlaneCollectsGarbage", Detector: "garbage-collection", Severity: Info, Component: "control plane",
		Expr: `sum by (job, instance) (rate(go_gc_cycles_total_gc_cycles_total[W])) >= 1.5
  and (sum by (job, instance) (rate(go_cpu_classes_gc_total_cpu_seconds_total[W]))
    - sum by (job, instance) (rate(go_cpu_classes_gc_mark_idle_cpu_seconds_total[W])))
  / sum by (job, instance) (rate(process_cpu_seconds_total[W])) >= 0.25`,
		Summary: "{{ $labels.job }} collects garbage {{ $value | humanize }} times a second, which takes a quarter of its CPU and more",
		Look:    "GOGC and GOMEMLIMIT of the component, and its memory limit. The runtime's own estimate is not to be trusted for a process that is short of CPU.",
		Fires: []Line{{Series: `go_gc_cycles_total_gc_cycles_total{job="apiserver"}`, Rate: 3}, {Series: `go_cpu_classes_gc_total_cpu_seconds_total{job="apiserver"}`, Rate: 0.5},
			{Series: `go_cpu_classes_gc_mark_idle_cpu_seconds_total{job="apiserver"}`, Rate: 0.1}, {Series: `process_cpu_seconds_total{job="apiserver"}`, Rate: 1}},
		Quiet: []Line{{Series: `go_gc_cycles_total_gc_cycles_total{job="apiserver"}`, Rate: 3}, {Series: `go_cpu_classes_gc_total_cpu_seconds_total{job="apiserver"}`, Rate: 0.5},
			{Series: `go_cpu_classes_gc_mark_idle_cpu_seconds_total{job="apiserver"}`, Rate: 0.4}, {Series: `process_cpu_seconds_total{job="apiserver"}`, Rate: 1}},
	},
	{
		Alert: "WritesConflict", Detector: "conflict-storm", Severity: Info, Component: "clients",
		Expr: `sum by (job, resource) (rate(apiserver_request_total{verb=~"PUT|PATCH",code="409"}[W])) >= 1
  and sum by (job, resource) (rate(apiserver_request_total{verb=~"PUT|PATCH",code="409"}[W]))
  / sum by (job, resource) (rate(apiserver_request_total{verb=~"PUT|PATCH"}[W])) >= 0.1`,
		Summary: "{{ $value | humanize }} writes of {{ $labels.resource }} a second are refused with 409 and begin again",
		Look:    "Who writes them, and how many write the same object (kubedyno requests). Locks of leader election and counts of quotas conflict too.",
		Fires: []Line{{Series: `apiserver_request_total{job="apiserver",resource="ipamblocks",verb="PUT",code="409"}`, Rate: 8},
			{Series: `apiserver_request_total{job="apiserver",resource="ipamblocks",verb="PUT",code="200"}`, Rate: 12}},
		Quiet: []Line{{Series: `apiserver_request_total{job="apiserver",resource="pods",verb="POST",code="409"}`, Rate: 8},
			{Series: `apiserver_request_total{job="apiserver",resource="pods",verb="PATCH",code="409"}`, Rate: 2}, {Series: `apiserver_request_total{job="apiserver",resource="pods",verb="PATCH",code="200"}`, Rate: 40}},
	},
	{
		Alert: "ListsReadManyObjects", Detector: "list-storm", Severity: Info, Component: "clients",
		Expr:    `sum by (job, resource) (rate(apiserver_cache_list_fetched_objects_total[W])) >= 1000`,
		Summary: "Lists of {{ $labels.resource }} read {{ $value | humanize }} objects a second from the API server's cache",
		Look:    "Which client lists instead of watching (kubedyno requests). Informers that start list once each.",
		Fires:   []Line{{Series: `apiserver_cache_list_fetched_objects_total{job="apiserver",resource="pods"}`, Rate: 5000}},
		Quiet:   []Line{{Series: `apiserver_cache_list_fetched_objects_total{job="apiserver",resource="pods"}`, Rate: 600}, {Series: `apiserver_cache_list_fetched_objects_total{job="apiserver",resource="nodes"}`, Rate: 600}},
	},
	{
		Alert: "EventsFlood", Detector: "event-flood", Severity: Info, Component: "clients",
		Expr: `sum(rate(etcd_requests_total{resource="events",operation=~"create|update"}[W])) >= 5
  and sum(rate(etcd_requests_total{resource="events",operation=~"create|update"}[W]))
  >= 0.1 * sum(rate(etcd_requests_total{operation=~"create|update|delete"}[W]))
  and sum(rate(etcd_requests_total{resource="events",operation=~"create|update"}[W]))
  > 3 * sum(rate(etcd_requests_total{resource="pods",operation=~"create|update"}[W]))`,
		Summary: "{{ $value | humanize }} Events a second are written, more than pods that start take",
		Look:    "Who writes them: kubectl get events -A --sort-by=.lastTimestamp. A pod that starts takes six, and is itself written four or five times.",
		Fires: []Line{{Series: `etcd_requests_total{job="apiserver",resource="events",operation="create"}`, Rate: 40}, {Series: `etcd_requests_total{job="apiserver",resource="leases",operation="update"}`, Rate: 10},
			{Series: `etcd_requests_total{job="apiserver",resource="pods",operation="create"}`, Rate: 1}},
		Quiet: []Line{{Series: `etcd_requests_total{job="apiserver",resource="events",operation="create"}`, Rate: 40}, {Series: `etcd_requests_total{job="apiserver",resource="leases",operation="update"}`, Rate: 10},
			{Series: `etcd_requests_total{job="apiserver",resource="pods",operation="create"}`, Rate: 7}, {Series: `etcd_requests_total{job="apiserver",resource="pods",operation="update"}`, Rate: 25}},
	},
	{
		Alert: "ListsReachEtcd", Detector: "uncached-reads", Severity: Info, Component: "clients",
		Expr:    `sum by (job, resource) (rate(etcd_requests_total{operation="list"}[W])) >= 2`,
		Summary: "{{ $value | humanize }} lists of {{ $labels.resource }} a second reach etcd",
		Look:    "Who lists past the cache (kubedyno requests): Events have no cache, nor has a version that is no longer known.",
		Fires:   []Line{{Series: `etcd_requests_total{job="apiserver",resource="events",operation="list"}`, Rate: 3}},
		Quiet:   []Line{{Series: `etcd_requests_total{job="apiserver",resource="events",operation="list"}`, Rate: 1}, {Series: `etcd_requests_total{job="apiserver",resource="events",operation="get"}`, Rate: 30}},
	},
	{
		Alert: "WatchesFanOut", Detector: "watch-fan-out", Severity: Info, Component: "clients",
		Expr: `sum by (job, resource) (rate(apiserver_watch_events_total[W])) >= 1000
  and sum by (job, resource) (rate(apiserver_watch_events_total[W]))
  >= 50 * sum by (job, resource) (rate(etcd_requests_total{operation=~"create|update|delete"}[W]))
  and sum by (job, resource) (apiserver_longrunning_requests{verb="WATCH"}) >= 50`,
		Summary: "{{ $value | humanize }} watch events of {{ $labels.resource }} a second are sent, each change to 50 watches and more",
		Look:    "Who watches all of them (kubedyno requests), and whether a field selector or EndpointSlices would do.",
		Fires: []Line{{Series: `apiserver_watch_events_total{job="apiserver",resource="endpoints"}`, Rate: 4000}, {Series: `etcd_requests_total{job="apiserver",resource="endpoints",operation="update"}`, Rate: 10},
			{Series: `apiserver_longrunning_requests{job="apiserver",resource="endpoints",verb="WATCH"}`, Level: 400}},
		Quiet: []Line{{Series: `apiserver_watch_events_total{job="apiserver",resource="pods"}`, Rate: 4000}, {Series: `etcd_requests_total{job="apiserver",resource="pods",operation="update"}`, Rate: 800},
			{Series: `apiserver_longrunning_requests{job="apiserver",resource="pods",verb="WATCH"}`, Level: 400},
			{Series: `apiserver_watch_events_total{job="apiserver",resource="leases"}`, Rate: 4000}, {Series: `etcd_requests_total{job="apiserver",resource="leases",operation="update"}`, Rate: 10},
			{Series: `apiserver_longrunning_requests{job="apiserver",resource="leases",verb="WATCH"}`, Level: 5}},
	},
	{
		Alert: "EtcdCommitsOften", Detector: "etcd-commits", Severity: Info, Component: "etcd",
		Expr:    `rate(etcd_disk_backend_commit_duration_seconds_count[W]) >= 30`,
		Summary: "{{ $labels.instance }} commits its database {{ $value | humanize }} times a second, where ten times are usual",
		Look:    "--backend-batch-limit and --backend-batch-interval of etcd: 10000 and 100ms by default.",
		Fires:   []Line{{Series: `etcd_disk_backend_commit_duration_seconds_count{job="etcd",instance="a"}`, Rate: 80}},
		Quiet:   []Line{{Series: `etcd_disk_backend_commit_duration_seconds_count{job="etcd",instance="a"}`, Rate: 10}},
	},
	{
		Alert: "OthersAskEtcd", Detector: "etcd-clients", Severity: Warning, Component: "etcd",
		Expr: `sum(rate(grpc_server_handled_total{grpc_service="etcdserverpb.KV"}[W])) - 2 * sum(rate(etcd_requests_total[W])) >= 20
  and sum(rate(etcd_requests_total[W])) > 0`,
		Summary: "etcd answers {{ $value | humanize }} requests a second more than twice what the API servers ask",
		Look:    "Who is connected to etcd's client port besides the API servers (ss -tnp on its machine): a backup, an exporter, an operator.",
		Fires:   []Line{{Series: `grpc_server_handled_total{job="etcd",grpc_service="etcdserverpb.KV",grpc_method="Range"}`, Rate: 1600}, {Series: `etcd_requests_total{job="apiserver",operation="get"}`, Rate: 250}},
		Quiet:   []Line{{Series: `grpc_server_handled_total{job="etcd",grpc_service="etcdserverpb.KV",grpc_method="Range"}`, Rate: 280}, {Series: `etcd_requests_total{job="apiserver",operation="get"}`, Rate: 250}},
	},
	{
		Alert: "EtcdIsDefragmentedOften", Detector: "etcd-defrag", Severity: Info, Component: "etcd",
		Expr:    `rate(etcd_disk_backend_defrag_duration_seconds_sum[W]) >= 0.05`,
		Summary: "{{ $labels.instance }} is defragmented {{ $value | humanizePercentage }} of the time, in which it serves nobody",
		Look:    "Who asks for it: a cron job, an operator, etcdctl defrag.",
		Fires:   []Line{{Series: `etcd_disk_backend_defrag_duration_seconds_sum{job="etcd",instance="a"}`, Rate: 0.2}},
		Quiet:   []Line{{Series: `etcd_disk_backend_defrag_duration_seconds_sum{job="etcd",instance="a"}`, Rate: 0.001}},
	},
	{
		Alert: "NodesAreGivenUp", Detector: "nodes-given-up", Severity: Warning, Component: "kube-controller-manager",
		Expr: `sum by (job) (node_collector_unhealthy_nodes_in_zone) >= 0.1 * sum by (job) (node_collector_zone_size)
  and sum by (job) (node_collector_unhealthy_nodes_in_zone) > 0`,
		Summary: "{{ $value | humanize }} nodes, a tenth of all and more, count as failed: no pod is placed on them",
		Look:    "Whether the nodes renew their leases (kubectl get leases -n kube-node-lease), and --node-monitor-grace-period of the controller manager, 50 s by default.",
		Fires:   []Line{{Series: `node_collector_unhealthy_nodes_in_zone{job="controllers"}`, Level: 4}, {Series: `node_collector_zone_size{job="controllers"}`, Level: 20}},
		Quiet:   []Line{{Series: `node_collector_unhealthy_nodes_in_zone{job="controllers"}`, Level: 1}, {Series: `node_collector_zone_size{job="controllers"}`, Level: 20}},
	},
	{
		Alert: "WatchesAreCutOff", Detector: "relist-storm", Severity: Info, Component: "clients",
		Expr:    `sum by (job) (rate(apiserver_terminated_watchers_total[W])) >= 2`,
		Summary: "The API server ends {{ $value | humanize }} watches a second that do not keep up; each begins with everything",
		Look:    "Whether the API server or the clients are short of CPU, and which client begins watches steadily (kubedyno requests).",
		Fires:   []Line{{Series: `apiserver_terminated_watchers_total{job="apiserver",resource="pods"}`, Rate: 1.5}, {Series: `apiserver_terminated_watchers_total{job="apiserver",resource="nodes"}`, Rate: 1.5}},
		Quiet:   []Line{{Series: `apiserver_terminated_watchers_total{job="apiserver",resource="pods"}`, Rate: 0.1}},
	},
	{
		Alert: "KindsKeepChanging", Detector: "crd-churn", Severity: Info, Component: "kube-apiserver",
		Expr: `sum by (job) (rate(etcd_requests_total{resource="customresourcedefinitions",operation=~"create|update|delete"}[W])) >= 0.2
  or sum by (job) (rate(apiextensions_openapi_v2_regeneration_count[W])) >= 0.2`,
		Summary: "CustomResourceDefinitions change {{ $value | humanize }} times a second, and the API's documents are made again for each",
		Look:    "Who writes customresourcedefinitions (kubedyno requests): a loop that applies them without end.",
		Fires:   []Line{{Series: `etcd_requests_total{job="apiserver",resource="customresourcedefinitions",operation="update"}`, Rate: 2}},
		Quiet:   []Line{{Series: `etcd_requests_total{job="apiserver",resource="customresourcedefinitions",operation="update"}`, Rate: 0.01}, {Series: `apiextensions_openapi_v2_regeneration_count{job="apiserver",crd="a"}`, Rate: 0.01}},
	},
	{
		Alert: "CreatesAreRefused", Detector: "creates-refused", Severity: Warning, Component: "kube-controller-manager",
		Expr: `sum by (job) (rate(apiserver_request_total{resource="pods",subresource="",verb="POST",code=~"400|403|422|5.."}[W])) >= 0.1
  and sum by (job) (rate(apiserver_request_total{resource="pods",subresource="",verb="POST",code=~"400|403|422|5.."}[W]))
  / sum by (job) (rate(apiserver_request_total{resource="pods",subresource="",verb="POST"}[W])) >= 0.05`,
		Summary: "{{ $value | humanize }} creates of pods a second are refused; after each refusal a controller starts again with one pod and waits longer",
		Look:    "The FailedCreate events of ReplicaSets, which have the reason: a quota (403), a policy or a webhook that fails (5xx).",
		Fires: []Line{{Series: `apiserver_request_total{job="apiserver",resource="pods",subresource="",verb="POST",code="403"}`, Rate: 2},
			{Series: `apiserver_request_total{job="apiserver",resource="pods",subresource="",verb="POST",code="201"}`, Rate: 10}},
		Quiet: []Line{{Series: `apiserver_request_total{job="apiserver",resource="pods",subresource="",verb="POST",code="409"}`, Rate: 2},
			{Series: `apiserver_request_total{job="apiserver",resource="pods",subresource="",verb="POST",code="201"}`, Rate: 10}},
	},
	{
		Alert: "NodesAreRefused", Detector: "nodes-refused", Severity: Warning, Component: "kube-apiserver",
		Expr: `sum by (job) (rate(apiserver_request_total{resource="serviceaccounts",subresource="token",verb="POST",code=~"400|401|422|5.."}[W])) >= 0.1
  and sum by (job) (rate(apiserver_request_total{resource="serviceaccounts",subresource="token",verb="POST",code=~"400|401|422|5.."}[W]))
  / sum by (job) (rate(apiserver_request_total{resource="serviceaccounts",subresource="token",verb="POST"}[W])) >= 0.05`,
		Summary: "{{ $value | humanize }} tokens a second are refused; without its token no pod starts, and the kubelet waits longer after each refusal",
		Look:    "The FailedMount events of pods, which have the reason: a webhook for serviceaccounts/token that fails or says no.",
		Fires: []Line{{Series: `apiserver_request_total{job="apiserver",resource="serviceaccounts",subresource="token",verb="POST",code="500"}`, Rate: 2},
			{Series: `apiserver_request_total{job="apiserver",resource="serviceaccounts",subresource="token",verb="POST",code="201"}`, Rate: 10}},
		Quiet: []Line{{Series: `apiserver_request_total{job="apiserver",resource="serviceaccounts",subresource="token",verb="POST",code="403"}`, Rate: 2},
			{Series: `apiserver_request_total{job="apiserver",resource="serviceaccounts",subresource="token",verb="POST",code="201"}`, Rate: 10}},
	},
	{
		Alert: "QuotasAreCountedSlowly", Detector: "quota-admission", Severity: Warning, Component: "kube-apiserver",
		Expr: `sum by (job) (rate(apiserver_admission_controller_admission_duration_seconds_sum{name="ResourceQuota",operation="CREATE"}[W]))
  / (sum by (job) (rate(etcd_requests_total{resource="pods",operation="create"}[W])) > 0.1) >= 0.05`,
		Summary: "Counting against quotas takes {{ $value | humanizeDuration }} of each create of a pod",
		Look:    "How many objects a second are created in one namespace, and what else writes its ResourceQuota (kubedyno requests).",
		Fires: []Line{{Series: `apiserver_admission_controller_admission_duration_seconds_sum{job="apiserver",name="ResourceQuota",operation="CREATE"}`, Rate: 4},
			{Series: `etcd_requests_total{job="apiserver",resource="pods",operation="create"}`, Rate: 20}},
		Quiet: []Line{{Series: `apiserver_admission_controller_admission_duration_seconds_sum{job="apiserver",name="ResourceQuota",operation="CREATE"}`, Rate: 0.2},
			{Series: `etcd_requests_total{job="apiserver",resource="pods",operation="create"}`, Rate: 20}},
	},
	{
		Alert: "ControlPlaneIsThrottled", Detector: "component-cpu", Severity: Warning, Component: "control plane",
		Expr: `sum by (namespace, pod, container) (rate(container_cpu_cfs_throttled_periods_total{container=~"etcd|kube-apiserver|kube-controller-manager|kube-scheduler"}[W]))
  / sum by (namespace, pod, container) (rate(container_cpu_cfs_periods_total{container=~"etcd|kube-apiserver|kube-controller-manager|kube-scheduler"}[W])) >= 0.5`,
		Summary: "{{ $labels.container }} is stopped by its CPU quota in {{ $value | humanizePercentage }} of the periods",
		Look:    "Its CPU limit, and who makes it work so hard: clients that list, conflict or flood come before more CPU.",
		Fires: []Line{{Series: `container_cpu_cfs_throttled_periods_total{namespace="kube-system",pod="p",container="kube-apiserver"}`, Rate: 8},
			{Series: `container_cpu_cfs_periods_total{namespace="kube-system",pod="p",container="kube-apiserver"}`, Rate: 10}},
		Quiet: []Line{{Series: `container_cpu_cfs_throttled_periods_total{namespace="shop",pod="p",container="web"}`, Rate: 8},
			{Series: `container_cpu_cfs_periods_total{namespace="shop",pod="p",container="web"}`, Rate: 10}},
	},
	{
		Alert: "EtcdWaitsForItsDisk", Detector: "etcd-sync", Severity: Warning, Component: "etcd",
		Expr: `sum by (job, instance) (rate(etcd_disk_wal_fsync_duration_seconds_sum[W])) >= 0.7
  and sum by (job, instance) (rate(etcd_disk_wal_fsync_duration_seconds_sum[W]))
  / sum by (job, instance) (rate(etcd_disk_wal_fsync_duration_seconds_count[W])) >= 0.005`,
		Summary: "etcd spends {{ $value | humanizePercentage }} of the time waiting for its disk, and all writes queue behind it",
		Look:    "What else writes to the disk of --wal-dir, and its latency (kubedyno blockio). Waiting for a CPU counts as syncing too.",
		Fires:   []Line{{Series: `etcd_disk_wal_fsync_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.9}, {Series: `etcd_disk_wal_fsync_duration_seconds_count{job="kube-etcd"}`, Rate: 40}},
		Quiet:   []Line{{Series: `etcd_disk_wal_fsync_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.9}, {Series: `etcd_disk_wal_fsync_duration_seconds_count{job="kube-etcd"}`, Rate: 900}},
	},
	{
		Alert: "EtcdCommitsSlowly", Detector: "etcd-sync", Severity: Warning, Component: "etcd",
		Expr: `sum by (job, instance) (rate(etcd_disk_backend_commit_duration_seconds_sum[W]))
  / sum by (job, instance) (rate(etcd_disk_backend_commit_duration_seconds_count[W])) >= 0.025`,
		Summary: "etcd's database takes {{ $value | humanizeDuration }} for a commit",
		Look:    "The disk of --data-dir, and the database's size; etcd asks for 25 ms at the 99 % quantile.",
		Fires:   []Line{{Series: `etcd_disk_backend_commit_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.4}, {Series: `etcd_disk_backend_commit_duration_seconds_count{job="kube-etcd"}`, Rate: 10}},
		Quiet:   []Line{{Series: `etcd_disk_backend_commit_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.02}, {Series: `etcd_disk_backend_commit_duration_seconds_count{job="kube-etcd"}`, Rate: 10}},
	},
	{
		Alert: "EtcdIsFar", Detector: "etcd-network", Severity: Info, Component: "etcd",
		Expr: `sum(rate(etcd_request_duration_seconds_sum{operation="get"}[W])) / sum(rate(etcd_request_duration_seconds_count{operation="get"}[W])) >= 0.003
  and sum(rate(etcd_request_duration_seconds_sum{operation="get"}[W])) / sum(rate(etcd_request_duration_seconds_count{operation="get"}[W]))
  >= 3 * sum(rate(etcd_server_apply_duration_seconds_sum[W])) / sum(rate(etcd_server_apply_duration_seconds_count[W]))
  and sum(etcd_request_duration_seconds_bucket{operation="get",le="0.005"})
  < 0.02 * (sum(etcd_request_duration_seconds_count{operation="get"}) >= 50)`,
		Summary: "A read of etcd takes the API server {{ $value | humanizeDuration }}, and hardly any since its start took less than 5 ms, while etcd itself is quick",
		Look:    "The way between them: another zone, a proxy, a VPN or a lossy link.",
		Fires: []Line{{Series: `etcd_request_duration_seconds_sum{job="apiserver",operation="get"}`, Rate: 0.6}, {Series: `etcd_request_duration_seconds_count{job="apiserver",operation="get"}`, Rate: 60},
			{Series: `etcd_request_duration_seconds_bucket{job="apiserver",operation="get",le="0.005"}`, Rate: 0.5},
			{Series: `etcd_server_apply_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.02}, {Series: `etcd_server_apply_duration_seconds_count{job="kube-etcd"}`, Rate: 100}},
		Quiet: []Line{{Series: `etcd_request_duration_seconds_sum{job="apiserver",operation="get"}`, Rate: 0.6}, {Series: `etcd_request_duration_seconds_count{job="apiserver",operation="get"}`, Rate: 60},
			{Series: `etcd_request_duration_seconds_bucket{job="apiserver",operation="get",le="0.005"}`, Rate: 40},
			{Series: `etcd_server_apply_duration_seconds_sum{job="kube-etcd"}`, Rate: 0.02}, {Series: `etcd_server_apply_duration_seconds_count{job="kube-etcd"}`, Rate: 100}},
	},
	layer("RequestsWaitForAudit", "audit-sink", "apiserver_request_filter_duration_seconds", `filter="audit"`, "", "Requests wait {{ $value | humanizeDuration }} each until their audit event is written",
		"--audit-log-mode: batch writes beside the requests; and the disk that the log is on."),
	{
		Alert: "RequestsQueueForSeats", Detector: "apf-seats", Severity: Warning, Component: "kube-apiserver",
		Expr: `sum by (job, priority_level) (rate(apiserver_flowcontrol_request_wait_duration_seconds_sum{priority_level!="exempt"}[W]))
  / sum by (job, priority_level) (rate(apiserver_flowcontrol_request_wait_duration_seconds_count{priority_level!="exempt"}[W])) >= 0.005
  and sum by (job, priority_level) (rate(apiserver_flowcontrol_request_wait_duration_seconds_sum{priority_level!="exempt"}[W]))
  / (sum by (job, priority_level) (rate(apiserver_flowcontrol_request_wait_duration_seconds_sum{priority_level!="exempt"}[W]))
    + sum by (job, priority_level) (rate(apiserver_flowcontrol_request_execution_seconds_sum{priority_level!="exempt",type="regular"}[W]))) >= 0.2`,
		Summary: "Requests of priority level {{ $labels.priority_level }} wait {{ $value | humanizeDuration }} each for a seat",
		Look:    "Who fills the level (kubedyno requests). With a full CPU seats are taken because execution is slow, and more of them would make it slower.",
		Fires: []Line{{Series: `apiserver_flowcontrol_request_wait_duration_seconds_sum{job="apiserver",priority_level="workload-low"}`, Rate: 2}, {Series: `apiserver_flowcontrol_request_wait_duration_seconds_count{job="apiserver",priority_level="workload-low"}`, Rate: 100},
			{Series: `apiserver_flowcontrol_request_execution_seconds_sum{job="apiserver",priority_level="workload-low",type="regular"}`, Rate: 1}},
		Quiet: []Line{{Series: `apiserver_flowcontrol_request_wait_duration_seconds_sum{job="apiserver",priority_level="exempt"}`, Rate: 2}, {Series: `apiserver_flowcontrol_request_wait_duration_seconds_count{job="apiserver",priority_level="exempt"}`, Rate: 100},
			{Series: `apiserver_flowcontrol_request_wait_duration_seconds_sum{job="apiserver",priority_level="workload-low"}`, Rate: 0.6}, {Series: `apiserver_flowcontrol_request_wait_duration_seconds_count{job="apiserver",priority_level="workload-low"}`, Rate: 100},
			{Series: `apiserver_flowcontrol_request_execution_seconds_sum{job="apiserver",priority_level="workload-low",type="regular"}`, Rate: 10}},
	},
	{
		Alert: "RequestsAreRejected", Detector: "apf-seats", Severity: Warning, Component: "kube-apiserver",
		Expr:    `sum by (job, priority_level, flow_schema) (rate(apiserver_flowcontrol_rejected_requests_total[W])) >= 0.2`,
		Summary: "{{ $value | humanize }} requests of flow schema {{ $labels.flow_schema }} a second are refused with 429",
		Look:    "Who sends them (kubedyno requests), and whether that client should have a priority level of its own.",
		Fires:   []Line{{Series: `apiserver_flowcontrol_rejected_requests_total{job="apiserver",priority_level="workload-low",flow_schema="service-accounts",reason="queue-full"}`, Rate: 1}},
		Quiet:   []Line{{Series: `apiserver_flowcontrol_rejected_requests_total{job="apiserver",priority_level="workload-low",flow_schema="service-accounts",reason="queue-full"}`, Rate: 0.05}},
	},
	{
		Alert: "RequestsAreRefusedAtOnce", Detector: "apf-seats", Severity: Warning, Component: "kube-apiserver",
		Expr: `sum by (job) (rate(apiserver_request_terminations_total{code="429"}[W]))
  - (sum by (job) (rate(apiserver_flowcontrol_rejected_requests_total[W])) or 0 * sum by (job) (rate(apiserver_request_terminations_total{code="429"}[W]))) >= 0.2`,
		Summary: "{{ $value | humanize }} requests a second are refused with 429 and were in no queue before",
		Look:    "--enable-priority-and-fairness: without it nothing queues, and whoever is refused waits for a second; --max-requests-inflight and --max-mutating-requests-inflight.",
		Fires:   []Line{{Series: `apiserver_request_terminations_total{job="apiserver",code="429",resource="pods",verb="POST"}`, Rate: 1}},
		Quiet: []Line{{Series: `apiserver_request_terminations_total{job="apiserver",code="429",resource="pods",verb="POST"}`, Rate: 1},
			{Series: `apiserver_flowcontrol_rejected_requests_total{job="apiserver",priority_level="workload-low",flow_schema="service-accounts",reason="queue-full"}`, Rate: 1}},
	},
	layer("RequestsWaitForAuthentication", "authentication", "apiserver_request_filter_duration_seconds", `filter="authentication"`, "", "Requests wait {{ $value | humanizeDuration }} each until their client is known",
		"Who is asked about tokens: the authentication webhook, the OpenID provider; and how long its answers are kept."),
	layer("RequestsWaitForAuthorization", "authorization", "apiserver_request_filter_duration_seconds", `filter="authorization"`, "", "Requests wait {{ $value | humanizeDuration }} each to be authorized",
		"The authorization webhook's answers, and how many role bindings one namespace has."),
	{
		Alert: "NobodyAnswersForWebhook", Detector: "slow-webhook", Severity: Warning, Component: "kube-apiserver",
		Expr: `sum by (job, name) (rate(apiserver_admission_webhook_fail_open_count[W]))
  / sum by (job, name) (rate(apiserver_admission_webhook_admission_duration_seconds_count[W])) >= 0.5`,
		Summary: "{{ $value | humanizePercentage }} of the calls of webhook {{ $labels.name }} get no answer, and the objects pass unseen",
		Look:    "What should answer: its Service and endpoints, its port, its certificate, its network.",
		Fires:   []Line{{Series: `apiserver_admission_webhook_fail_open_count{job="apiserver",name="a"}`, Rate: 5}, {Series: `apiserver_admission_webhook_admission_duration_seconds_count{job="apiserver",name="a"}`, Rate: 5}},
		Quiet:   []Line{{Series: `apiserver_admission_webhook_fail_open_count{job="apiserver",name="a"}`, Rate: 1}, {Series: `apiserver_admission_webhook_admission_duration_seconds_count{job="apiserver",name="a"}`, Rate: 5}},
	},
	layer("WebhookIsSlow", "slow-webhook", "apiserver_admission_webhook_admission_duration_seconds", "", "name, operation", "Each {{ $labels.operation }} waits {{ $value | humanizeDuration }} for the webhook {{ $labels.name }}",
		"What serves the webhook: its CPU, its replicas, what it asks in turn; and matchConditions that leave out what it lets pass anyway."),
	layer("ConversionIsSlow", "slow-conversion", "apiserver_crd_conversion_webhook_duration_seconds", "", "crd_name", "Requests for {{ $labels.crd_name }} wait {{ $value | humanizeDuration }} each for its conversion webhook",
		"Clients that ask for another version than the stored one; what serves the webhook: its CPU, its replicas."),
	{
		// The policies' own clock, apiserver_validating_admission_policy_check_duration_seconds,
		// runs in v1.36 for checks that refuse only; the plugin's runs for all.
		Alert: "PolicyIsSlow", Detector: "policy-cost", Severity: Warning, Component: "kube-apiserver",
		Expr:    `sum by (job, name) (rate(apiserver_admission_controller_admission_duration_seconds_sum{name=~"(Validating|Mutating)AdmissionPolicy",operation="CREATE"}[W])) >= 0.5`,
		Summary: "Creates wait {{ $value | humanize }} s a second in all for admission policies ({{ $labels.name }})",
		Look:    "Which policies match what is created, and long lists in their expressions; matchConditions that leave out what need not be checked.",
		Fires:   []Line{{Series: `apiserver_admission_controller_admission_duration_seconds_sum{job="apiserver",name="ValidatingAdmissionPolicy",operation="CREATE"}`, Rate: 2}},
		Quiet:   []Line{{Series: `apiserver_admission_controller_admission_duration_seconds_sum{job="apiserver",name="ValidatingAdmissionPolicy",operation="CREATE"}`, Rate: 0.2}, {Series: `apiserver_admission_controller_admission_duration_seconds_sum{job="apiserver",name="ResourceQuota",operation="CREATE"}`, Rate: 2}},
	},
	layer("EncryptionIsSlow", "encryption", "apiserver_storage_transformation_duration_seconds", "", "transformation_type", "Encryption at rest takes {{ $value | humanizeDuration }} an object",
		"The KMS plugin's answers; KMS v2 asks for a key once and not for each object."),
	{
		Alert: "AggregatedAPIIsDead", Detector: "aggregated-api", Severity: Info, Component: "kube-apiserver",
		Expr:    `max by (job, name) (min_over_time(aggregator_unavailable_apiservice[W])) == 1`,
		Summary: "The API {{ $labels.name }} is registered, and nobody serves it",
		Look:    "kubectl get apiservice {{ $labels.name }}: namespaces are not deleted and discovery is slow until it is served or removed.",
		Fires:   []Line{{Series: `aggregator_unavailable_apiservice{job="apiserver",name="v1beta1.metrics.k8s.io"}`, Level: 1}},
		Quiet:   []Line{{Series: `aggregator_unavailable_apiservice{job="apiserver",name="v1beta1.metrics.k8s.io"}`, Level: 0}},
	},
	{
		Alert: "ControllerManagerWaitsForItsClientLimit", Detector: "controller-client-limit", Severity: Warning, Component: "kube-controller-manager",
		Expr:    `sum by (job, instance) (rate(rest_client_rate_limiter_duration_seconds_sum{job=~".*kube-controller-manager.*"}[W])) >= 0.5`,
		Summary: "Controllers wait {{ $value | humanize }} s a second for their own client-side limit, however idle the cluster is",
		Look:    "--kube-api-qps and --kube-api-burst of kube-controller-manager (20 and 30 unless set): raise them, and see what holds next.",
		Fires:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-controller-manager",verb="POST"}`, Rate: 0.9}},
		Quiet:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-controller-manager",verb="POST"}`, Rate: 0.01}, {Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-scheduler",verb="POST"}`, Rate: 5}},
	},
	{
		Alert: "ControllerHasTooFewWorkers", Detector: "controller-workers", Severity: Warning, Component: "kube-controller-manager",
		Expr: `sum by (job, instance, name) (rate(workqueue_queue_duration_seconds_sum{job=~".*kube-controller-manager.*",name!~"garbage_collector.*"}[W]))
  / sum by (job, instance, name) (rate(workqueue_queue_duration_seconds_count{job=~".*kube-controller-manager.*",name!~"garbage_collector.*"}[W])) >= 0.25
  and sum by (job, instance, name) (rate(workqueue_work_duration_seconds_sum{job=~".*kube-controller-manager.*"}[W])) >= 0.85
  unless on (job, instance) sum by (job, instance) (rate(rest_client_rate_limiter_duration_seconds_sum{job=~".*kube-controller-manager.*"}[W])) >= 0.5`,
		Summary: "Keys of the controller {{ $labels.name }} wait {{ $value | humanizeDuration }} each for a worker",
		Look:    "--concurrent-…-syncs of that controller, and why a sync takes long. A slow API server makes workers wait, and more of them would too.",
		Fires: []Line{{Series: `workqueue_queue_duration_seconds_sum{job="kube-controller-manager",name="replicaset"}`, Rate: 10}, {Series: `workqueue_queue_duration_seconds_count{job="kube-controller-manager",name="replicaset"}`, Rate: 5},
			{Series: `workqueue_work_duration_seconds_sum{job="kube-controller-manager",name="replicaset"}`, Rate: 0.98}},
		Quiet: []Line{{Series: `workqueue_queue_duration_seconds_sum{job="kube-controller-manager",name="replicaset"}`, Rate: 10}, {Series: `workqueue_queue_duration_seconds_count{job="kube-controller-manager",name="replicaset"}`, Rate: 5},
			{Series: `workqueue_work_duration_seconds_sum{job="kube-controller-manager",name="replicaset"}`, Rate: 0.98}, {Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-controller-manager",verb="POST"}`, Rate: 0.9}},
	},
	{
		Alert: "RemovalIsSlow", Detector: "slow-removal", Severity: Warning, Component: "kube-controller-manager",
		Expr: `sum by (job, instance) (rate(workqueue_queue_duration_seconds_sum{name="garbage_collector_attempt_to_delete"}[W]))
  / sum by (job, instance) (rate(workqueue_queue_duration_seconds_count{name="garbage_collector_attempt_to_delete"}[W])) >= 2`,
		Summary: "What deleted objects leave behind waits {{ $value | humanizeDuration }} for the garbage collector",
		Look:    "The client limit of kube-controller-manager, then --concurrent-gc-syncs; and an API that nobody serves.",
		Fires:   []Line{{Series: `workqueue_queue_duration_seconds_sum{job="kube-controller-manager",name="garbage_collector_attempt_to_delete"}`, Rate: 60}, {Series: `workqueue_queue_duration_seconds_count{job="kube-controller-manager",name="garbage_collector_attempt_to_delete"}`, Rate: 10}},
		Quiet:   []Line{{Series: `workqueue_queue_duration_seconds_sum{job="kube-controller-manager",name="garbage_collector_attempt_to_delete"}`, Rate: 5}, {Series: `workqueue_queue_duration_seconds_count{job="kube-controller-manager",name="garbage_collector_attempt_to_delete"}`, Rate: 10}},
	},
	{
		Alert: "SchedulerWaitsForItsClientLimit", Detector: "scheduler-client-limit", Severity: Warning, Component: "kube-scheduler",
		Expr:    `sum by (job, instance) (rate(rest_client_rate_limiter_duration_seconds_sum{job=~".*kube-scheduler.*"}[W])) >= 0.5`,
		Summary: "Bindings wait {{ $value | humanize }} s a second for the scheduler's own client-side limit",
		Look:    "clientConnection.qps and burst in the scheduler's configuration file (50 and 100 unless set).",
		Fires:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-scheduler",verb="POST"}`, Rate: 20}},
		Quiet:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-scheduler",verb="POST"}`, Rate: 0.02}, {Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-controller-manager",verb="POST"}`, Rate: 5}},
	},
	{
		Alert: "PodsWaitBeforeBinding", Detector: "prebind-wait", Severity: Warning, Component: "kube-scheduler",
		Expr: `sum by (job) (rate(scheduler_framework_extension_point_duration_seconds_sum{extension_point=~"PreBind|Permit"}[W]))
  / sum by (job) (rate(scheduler_framework_extension_point_duration_seconds_count{extension_point="PreBind"}[W])) >= 0.1
  and sum by (job) (rate(scheduler_framework_extension_point_duration_seconds_sum{extension_point=~"PreBind|Permit"}[W]))
  >= 0.5 * sum by (job) (rate(scheduler_framework_extension_point_duration_seconds_sum{extension_point=~"PreBind|Permit|Bind"}[W]))`,
		Summary: "Each pod waits {{ $value | humanizeDuration }} for volumes or devices before it is bound",
		Look:    "The provisioner of the StorageClass, and scheduler_plugin_execution_duration_seconds for which plugin waits.",
		Fires: []Line{{Series: `scheduler_framework_extension_point_duration_seconds_sum{job="kube-scheduler",extension_point="PreBind"}`, Rate: 8}, {Series: `scheduler_framework_extension_point_duration_seconds_count{job="kube-scheduler",extension_point="PreBind"}`, Rate: 5},
			{Series: `scheduler_framework_extension_point_duration_seconds_sum{job="kube-scheduler",extension_point="Bind"}`, Rate: 0.1}},
		Quiet: []Line{{Series: `scheduler_framework_extension_point_duration_seconds_sum{job="kube-scheduler",extension_point="PreBind"}`, Rate: 0.6}, {Series: `scheduler_framework_extension_point_duration_seconds_count{job="kube-scheduler",extension_point="PreBind"}`, Rate: 5},
			{Series: `scheduler_framework_extension_point_duration_seconds_sum{job="kube-scheduler",extension_point="Bind"}`, Rate: 10}},
	},
	{
		Alert: "PodsAreParked", Detector: "pods-parked", Severity: Warning, Component: "kube-scheduler",
		Expr: `sum by (job) (avg_over_time(scheduler_pending_pods{queue!="active"}[W])) >= 1
  and sum by (job) (avg_over_time(scheduler_pending_pods{queue!="active"}[W]))
  >= 0.5 * sum by (job) (avg_over_time(scheduler_pending_pods[W]))
or sum by (job) (avg_over_time(scheduler_pending_pods[W])) >= 1
  and sum by (job) (increase(scheduler_schedule_attempts_total{result="unschedulable"}[W])) >= 20
  unless sum by (job) (increase(scheduler_schedule_attempts_total{result="scheduled"}[W])) >= 1`,
		Summary: "The scheduler has set {{ $value | humanize }} pods aside: they fit nowhere, sit out a back-off, or are gated",
		Look:    "scheduler_unschedulable_pods says which plugin refuses them, and the pods' own events why.",
		Fires:   []Line{{Series: `scheduler_pending_pods{job="kube-scheduler",queue="unschedulable"}`, Level: 40}, {Series: `scheduler_pending_pods{job="kube-scheduler",queue="active"}`, Level: 3}},
		Quiet:   []Line{{Series: `scheduler_pending_pods{job="kube-scheduler",queue="unschedulable"}`, Level: 4}, {Series: `scheduler_pending_pods{job="kube-scheduler",queue="active"}`, Level: 300}},
	},
	{
		Alert: "PodsAreEvictedForOthers", Detector: "preemption", Severity: Warning, Component: "kube-scheduler",
		Expr: `sum by (job) (rate(scheduler_preemption_victims_sum[W])) >= 0.1
  and sum by (job) (rate(scheduler_preemption_victims_sum[W]))
  >= 0.1 * sum by (job) (rate(scheduler_schedule_attempts_total{result="scheduled"}[W]))`,
		Summary: "The scheduler evicts {{ $value | humanize }} pods a second to make room for others",
		Look:    "Which priorities compete for the nodes' room; controllers make again what is evicted, and it waits in the same queue.",
		Fires:   []Line{{Series: `scheduler_preemption_victims_sum{job="kube-scheduler"}`, Rate: 5}, {Series: `scheduler_schedule_attempts_total{job="kube-scheduler",result="scheduled"}`, Rate: 10}},
		Quiet:   []Line{{Series: `scheduler_preemption_victims_sum{job="kube-scheduler"}`, Rate: 0.2}, {Series: `scheduler_schedule_attempts_total{job="kube-scheduler",result="scheduled"}`, Rate: 10}},
	},
	{
		Alert: "ClientWaitsForItsOwnLimit", Detector: "client-own-limit", Severity: Info, Component: "clients",
		Expr:    `sum by (job, instance) (rate(rest_client_rate_limiter_duration_seconds_sum{job!~".*kube-(controller-manager|scheduler).*"}[W])) >= 0.5`,
		Summary: "{{ $labels.job }} waits {{ $value | humanize }} s a second for its own client-side limit",
		Look:    "QPS and Burst of its client (client-go: 5 and 10 unless set), and whether it should send fewer requests.",
		Fires:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="operator",verb="PATCH"}`, Rate: 0.9}},
		Quiet:   []Line{{Series: `rest_client_rate_limiter_duration_seconds_sum{job="operator",verb="PATCH"}`, Rate: 0.1}, {Series: `rest_client_rate_limiter_duration_seconds_sum{job="kube-scheduler",verb="POST"}`, Rate: 9}},
	},
	{
		Alert: "SchedulerDecidesAllTheTime", Detector: "scheduling-loop", Severity: Warning, Component: "kube-scheduler",
		Expr:    `sum by (job, instance) (rate(scheduler_scheduling_algorithm_duration_seconds_sum[W])) >= 0.85`,
		Summary: "The scheduling loop is busy {{ $value | humanizePercentage }} of the time: it places no more pods",
		Look:    "scheduler_plugin_execution_duration_seconds for the plugin that takes it, and whether the scheduler is short of CPU, which makes cycles longer.",
		Fires:   []Line{{Series: `scheduler_scheduling_algorithm_duration_seconds_sum{job="kube-scheduler"}`, Rate: 0.97}},
		Quiet:   []Line{{Series: `scheduler_scheduling_algorithm_duration_seconds_sum{job="kube-scheduler"}`, Rate: 0.5}},
	},
}

// layer is the rule for something that each request passes on its way: it
// takes 10 ms and more of each, and a tenth of a second a second from all.
func layer(alert, detector, metric, match, by, summary, look string) Rule {
	labels := "job"
	braces := ""
	example := `job="apiserver"`
	if match != "" {
		braces = "{" + match + "}"
		example += "," + match
	}
	if by != "" {
		labels += ", " + by
		example += `,name="a",operation="CREATE",crd_name="b.c",transformation_type="to_storage"`
	}
	sum := "sum by (" + labels + ") (rate(" + metric + "_sum" + braces + "[W]))"
	count := "sum by (" + labels + ") (rate(" + metric + "_count" + braces + "[W]))"
	return Rule{
		Alert: alert, Detector: detector, Severity: Warning, Component: "kube-apiserver",
		Expr:    sum + "\n  / " + count + " >= 0.01\n  and " + sum + " >= 0.1",
		Summary: summary,
		Look:    look,
		Fires:   []Line{{Series: metric + "_sum{" + example + "}", Rate: 2}, {Series: metric + "_count{" + example + "}", Rate: 50}},
		Quiet:   []Line{{Series: metric + "_sum{" + example + "}", Rate: 0.2}, {Series: metric + "_count{" + example + "}", Rate: 50}},
	}
}

// Unsaid are the detectors without a rule, and what they need that metrics do
// not have.
var Unsaid = map[string]string{
	"generator-late":     "when the load's requests were due",
	"load-refused":       "whose requests were refused; CreatesAreRefused tells of all who create pods",
	"greedy-client":      "who sends which requests: the audit log",
	"client-way":         "how long the API server works on one client's requests: its log of requests",
	"lock-herd":          "who asks for which lock: the audit log",
	"tug-of-war":         "whose write follows whose: the audit log",
	"connection-churn":   "connections a second: the machine's counters and a CPU profile",
	"heartbeat-churn":    "who writes which lease how often: the audit log",
	"verbosity":          "the log's volume and a CPU profile",
	"unusual-work":       "CPU profiles, and those of healthy runs",
	"costly-work":        "healthy runs of the same load",
	"controller-off":     "the flags of kube-controller-manager",
	"workloads-asleep":   "the specs of workloads; kube-state-metrics has kube_deployment_spec_paused and kube_job_spec_suspend",
	"ordered-pods":       "when each pod was created and ran, and of which workload it is",
	"rolling-update":     "when each pod was created and ready, and of which workload it is",
	"kept-by-finalizers": "when a node has deleted its pod, and when that was gone: the audit log and a watch",
	"pods-fail":          "why pods fail: their status; kube-state-metrics has kube_pod_status_reason",
	"pods-deleted":       "who deletes pods: the audit log",
	"machine-cpu":        "the machine's own CPU; Prometheus' node exporter has alerts for it",
	"component-ended":    "which process ended, and how; a target that does not answer shows as up == 0",
	"standstill":         "context switches of processes; a target that does not answer shows as up == 0",
	"lost-watches":       "when each watch ended and began: the audit log",
	"network-outage":     "TCP segments that a machine sends again: node_netstat_Tcp_RetransSegs of the node exporter",
	"tied-cpus":          "what each CPU of a machine did: node_cpu_seconds_total of the node exporter, by cpu",
	"shared-quota":       "a quota that several components share: the cgroup's own counters",
	"disk-neighbour":     "who else writes to etcd's disk: block I/O by process",
	"short-timeouts":     "the API server's flags",
	"slow-nodes":         "when each pod was bound and ran; the kubelets' kubelet_pod_start_sli_duration_seconds tells it on real nodes",
	"periodic-job":       "when each process started and each request came",
	"leader-election":    "how many electors there are, and whether anyone could take over",
	"idle-twins":         "which processes are replicas of one another",
	"growing-cost":       "what a pod cost as pods became more",
	"unexplained":        "where pods waited, and what all other detectors said",
}

package anonymise

import (
	"net/netip"
	"regexp"
	"strings"
)

// words are names of our own and of Kubernetes, and words that its components
// use in what they print. As the name of somebody's object they say nothing,
// and in a text they are no names: a Deployment called "server" is renamed
// wherever a name stands, but not in "Starting server".
var words = setOf(`
	a an and any are as at by for from in is it its no not of off on or out the then to up was with
	access account accounts action active adapter add added addon addons address addresses admin admission agent aggregate aggregated
	aggregation aggregator alarm alert all allocation allocator allow allowed analytics annotation annotations anonymous api apis apiserver apiservers app approval
	approved approver apps archive arg args array assign assigned async attach attachdetach attached attempt audit auth authentication
	authorization authorizer auto automation autoregister autoscaler autoscaling available backend backoff backup bare base bash basic batch bind binding bindings bootstrap
	bootstrapping bound box broadcast broken browser bucket budget buffer build builder builtin bundle bundles burst cache caches cacher call callback cancel canceled capacities capacity
	body bodies cert certificate certificates certs change changed changes channel check checker class classes clean cleaner cleanup clear client clients clock cloud cluster clusters
	code codec collect collected collection collector collision command commands comment commit common compact compaction complete completed component components
	condition conditions config configmap configmaps configuration configured connect connected connection connections consistency constraint container containers content context
	control controller controllermanager controllers controlplane conversion conversions converter copy core coredns cost count counter cpu create created creating creation creator credential credentials critical cronjob crd crds csi csr current custom
	daemon daemonset daemonsets data database date day db dead deadline debug decode default defaults defrag degraded delay delete deleted deleting deletion demo density deploy deployment deployments
	desired detach detached detector dev device devices devtmpfs dialer dial disabled discovery disk dispatch disruption distributed dns docker done down drain driver drivers drop dropped dry dual dump
	duration dynamic each echo edge edit election empty enable enabled end endpoint endpoints endpointslice endpointslices engine entry env environment ephemeral equal error errors establishing
	etcd etcdserver eval event events evict evicted eviction example exec executing exempt existing exit expand expansion expired experiment export exporter extension external
	factory fail failed failure failures fair fairness false fanout fast feature fetch field fields file files filesystem filter final finalizer finalizers finished first flag flags flow flowcontrol flush
	found free front frontend fsync full func function gap garbage gate gateway gc generate generation generator generic get global go goroutine goroutines group groups grpc gone grow
	guard handle handled handler handlers head header headers health healthy healthz heap heartbeat held helper high history hit hollow holder hook host hostname hosts hot hour http https
	id idle identities identity ignore image images impersonation import inactive index info informer informers ingress init initial initializing install instance instances int intent interface internal invalid
	io ip ipaddresses ipam job jobs join json keeper kernel key keys kill kind kube kubeadm kubeconfig kubectl kubedyno kubelet kubelets kubernetes
	label labels last latency lb leader lease leases leave legacy length less level levels library lifecycle light limit limited limiter limits line link linux list listen listener live livez load loaded loader loading loadbalancer local localhost lock
	locked locking log logger logging logs long lookup loop low machine main maintenance manager manifest map master match max maximum media member members memory memstats message metadata meter method metric
	metrics migration migrator min minimum minute mirror mirroring miss missing mode model module monitor monitoring mount mounted multi mutating name named names namespace namespaces native net network networking networkpolicies never new next
	nil nobody node nodes none normal not notify null num number object objects observe observed off offline ok old one online only open openapi operation operations operator option options order orphan other overlay owner
	package page panic parameter parent parse part partial patch path paths pause paused peer peers pending perf period permission permit persistent persistentvolume persistentvolumeclaim phase pid ping pipe
	plain plan platform plugin plugins pod poddisruptionbudget pods podsandbox podtemplate policies policy poll pool port ports post pprof pre prefix preemption prepare priority priorityclasses private privileged probe probes process processed processes
	processing processor prod production profile program progress proto protobuf protection protocol provider provisioned provisioner proxy public publish published publisher pull push put pvc pvs python query queue queued queues quorum quota quotas
	raft range rate ratio raw rbac read reader readiness ready readyz reason reconcile reconciler received record recorder recording recover recycler redirect reflect reflector refresh register registered registration registry
	rejected release released remote remove removed repair replace replica replicas replicaset replicasets replication report reporter request requestheader requests require reserve reset resize resolve resolver resource resourcequota resourceclaim
	resources rest restart restarted result results resume resync retry return review reviews revision revoked ring role rolebinding rolebindings roles roll rollout rolling root rotate round route router rule rules run running runtime
	sample sandbox save scale scaled scaler scaling scan schedule scheduled scheduler scheduling schema scope script search second seconds secret secrets secure select selector self send sender sent serve server servers service serviceaccount serviceaccounts
	servicecidrs services serving session set sets setting settle settings setup shard share shared shell short shutdown sidecar sign signal signer signers signing simple simulated single size sizes skip sleep slice slot slow small snap snapshot socket source spec speed split stack stage staging
	stale standby start started starting startup stat state stateful statefulset statefulsets static status steady stop stopped stopping storage storageclass store stream stress string strong sub subject submit success successful successfully suite sum summary support suspend swap
	switch sync synced syncer syncing sys system table tag taint target task team temp template templates terminated terminating terminator test testing tests text thread threads three throttle throttled throttling tick time timeout timer timestamp tls
	tmp token tokens tombstone tool tools top topic topology total trace tracer tracing tracking traffic trail train transaction transport tree trigger true trust ttl tuned stock two txn type types
	udp unary unbound undo unhealthy unit unix unknown unlock unschedulable unset update updated updates upgrade upload upstream url usage use user username users util utils
	validate validating validation value values var version versions view visitor volume volumes wait waiting wal warm warmup warning watch watcher watches watching web webhook webhooks when window windows without work worker workers working workload workloads workqueue
	ca pv claim claims clusterrole clusterroles clusterrolebinding endpointslicemirroring horizontal binder cidr cidrs after finished podautoscaler gc daemonset ttlafterfinished csrsigning csrapproving csrcleaner
	direct own pooled impersonated lognormal median gaps uniform constant recreate rollingupdate intent running etc usr lib bin sbin opt var run ssl fd dev proc already exists been be can cannot do does did fails has have into more most only over than this that these those using will would
	aborts advertise algorithm allocs apiextensions apiservice apply attacher attempts cafile certfile concurrent cycles elect encryption envelope execution extra fetched framework gates interval issuer keyfile lateness
	longrunning mark maxsize mvcc nominal percent point preferred regeneration rejection renew retries seat seats syncs terminations transformation trusted unavailable urls utilization victims watchers alarms debugging electors gogc gomaxprocs gomemlimit heartbeats installer lister lockers relister sched scraper writers
	cpus mem iops bytes req resp kb mb gb ms us ns p50 p90 p99 p999 n sec secs min mins deletecollection clientset coordinated scheduling nodelifecycle taints tolerations eviction podgc podgroup device capacity crb impersonate unix pprof
	amd64 arm64 darwin x86 i386 riscv64 s390x ppc64le wrapper write writer writes wrong yaml year zero zone zones
`)

// wellKnown are whole names that stay: those that Kubernetes, etcd and kubedyno
// give.
var wellKnown = setOf(`
	kube-system kube-public kube-node-lease default kubernetes
	etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl kubectl-dispatcher kubeadm kube-aggregator kube-addon-manager cloud-controller-manager
	kubedyno kubedyno-lab kubedyno-load kubedyno-hollow kubedyno-csi kubedyno-keeper kubedyno-collect kubedyno-cgroup etcdctl coredns kwok kwok-controller
	default-scheduler metrics-server containerd containerd-shim containerd-shim-runc-v2 dockerd crio cri-o runc systemd systemd-journald systemd-logind systemd-udevd systemd-networkd systemd-resolved dbus-daemon
	admin edit view cluster-admin kubernetes-admin kubernetes-super-admin kube-apiserver-kubelet-client kube-apiserver-etcd-client front-proxy-client system:anonymous anonymous root nobody
	kube-root-ca.crt extension-apiserver-authentication extension-apiserver-authentication-reader kube-apiserver-legacy-service-account-token-tracking cluster-info kubeadm-config kubelet-config kube-dns
	system-node-critical system-cluster-critical exempt probes system-leader-election workload-leader-election endpoint-controller kube-system-service-accounts
	service-accounts system-node-high system-nodes global-default catch-all leader-election workload-high workload-low node-high system
	/proc/self/exe other openshift localhost metrics.k8s.io custom.metrics.k8s.io external.metrics.k8s.io
	go-http-client prometheus-operator curl python-requests mozilla wget kube-probe k6 apachebench kube-state-metrics
	docker.io quay.io ghcr.io gcr.io registry.k8s.io k8s.gcr.io public.ecr.aws mcr.microsoft.com
`)

// programs are what everybody runs, and threads of the kernel.
var programs = setOf(`
	exe [exited] exited bash sh dash zsh fish go gofmt python python3 perl ruby node java git make gcc cc ld as clang cat cp ls mv rm ps top htop sed awk grep find sort head tail tee cut wc xargs tr seq dd
	sleep timeout tar gzip gunzip zstd curl wget ssh sshd sudo su cron crond vim vi nano less more tmux screen perf bpftrace strace init tini dumb-init env nice nohup watch date id uname
	compile link asm cgo vet staticcheck golangci-lint prometheus promtool grafana docker podman nerdctl crictl ctr helm jq yq which readlink dirname basename mktemp touch mkdir chmod chown mount umount df du free stat
	jbd2 kthreadd ksoftirqd kworker kcompactd kswapd khugepaged ksmd kauditd kdevtmpfs khungtaskd hwrng cpuhp migration rcu_preempt rcu_sched rcu_gp rcu_par_gp rcu_tasks_kthre rcu_tasks_rude_ rcu_tasks_trace
	oom_reaper writeback kblockd kintegrityd watchdogd kthrotld scsi_eh_0 edac-poller netns slub_flushwq mm_percpu_wq inet_frag_wq kdamond irq idle_inject swapper
	kube-rbac-proxy local-path-provisioner kindnetd calico-node cilium-agent flanneld node_exporter cadvisor fluent-bit
`)

// components are those whose names begin names of pods: kube-apiserver-NODE.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "cloud-controller-manager", "etcd", "coredns",
	"kubelet", "kubedyno-load", "kubedyno-hollow", "kubedyno-csi", "kubedyno-keeper", "kubedyno-collect", "kubedyno", "apiserver", "metrics-server", "kube-root-ca.crt"}

// kinds are the built-in kinds by the names of their resources.
var kinds = func() map[string]string {
	m := map[string]string{}
	for _, k := range strings.Fields(`
		APIService CertificateSigningRequest ClusterRole ClusterRoleBinding ClusterTrustBundle ConfigMap ControllerRevision CronJob CSIDriver CSINode
		CSIStorageCapacity CustomResourceDefinition DaemonSet Deployment DeviceClass Endpoints EndpointSlice Event FlowSchema HorizontalPodAutoscaler Ingress
		IngressClass IPAddress Job Lease LimitRange MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration Namespace NetworkPolicy
		Node PersistentVolume PersistentVolumeClaim Pod PodDisruptionBudget PodTemplate PriorityClass PriorityLevelConfiguration ReplicaSet ReplicationController
		ResourceClaim ResourceClaimTemplate ResourceQuota ResourceSlice Role RoleBinding RuntimeClass Secret SelfSubjectReview SelfSubjectAccessReview SelfSubjectRulesReview LocalSubjectAccessReview Service ServiceAccount ServiceCIDR
		StatefulSet StorageClass SubjectAccessReview TokenReview TokenRequest ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
		VolumeAttachment VolumeAttributesClass Binding ComponentStatus PodGroup Workload LeaseCandidate StorageVersion StorageVersionMigration PodCertificateRequest DeviceTaintRule Eviction Scale Status`) {
		low := strings.ToLower(k)
		m[low] = low
		switch {
		case low == "endpoints":
			m["endpointss"] = low // likewise
		case strings.HasSuffix(low, "s"), strings.HasSuffix(low, "x"):
			m[low+"es"] = low
			m[low+"s"] = low // as metrics of storage have it
		case strings.HasSuffix(low, "y"):
			m[low[:len(low)-1]+"ies"] = low
			m[low+"s"] = low
		default:
			m[low+"s"] = low
		}
	}
	for _, r := range strings.Fields("apiserveripinfo apiserverpeeripinfo servicenodeportallocations controller any version minions specs masterleases ranges") {
		m[r] = ""
	}
	return m
}()

// classOf kinds whose names have a class of their own.
var classOf = map[string]string{"namespace": "ns", "persistentvolumeclaim": "claim", "persistentvolume": "volume", "pod": "pod", "node": "node",
	"deployment": "deployment", "replicaset": "replicaset", "statefulset": "statefulset", "daemonset": "daemonset", "job": "job", "cronjob": "cronjob",
	"replicationcontroller": "replicaset", "service": "service", "lease": "lease", "csinode": "node", "serviceaccount": "account", "customresourcedefinition": definition}

// builtinGroups are the API groups without a k8s.io at their end.
var builtinGroups = setOf("apps batch autoscaling policy extensions core events")

// ourOwnNamespaces hold objects of Kubernetes' own beside others.
var ourOwnNamespaces = setOf("kube-system kube-public")

// ownPaths begin paths of an API server, etcd and other components that are not
// of resources.
var ownPaths = setOf("debug metrics healthz livez readyz openapi version configz flagz statusz swagger openid health")

// publicDomains say nothing of who uses them.
var publicDomains = strings.Fields(`k8s.io kubernetes.io cluster.local golang.org go.dev google.golang.org go.etcd.io etcd.io github.com githubusercontent.com gopkg.in grpc.io
	opentelemetry.io prometheus.io coreos.com kubedyno.io sigs.k8s.io go.uber.org docker.io quay.io ghcr.io gcr.io public.ecr.aws mcr.microsoft.com googleapis.com go.yaml.in`)

// publicNames are names of services that every cluster has.
var publicNames = setOf("kubernetes.default.svc.cluster.local kubernetes.default kubernetes.default.svc svc.cluster.local cluster.local localhost.localdomain metadata.google.internal")

// domains are the last parts of names that are taken for those of hosts. Two
// letters are a country, unless they end a file's name.
var domains = setOf("com net org edu gov mil int info biz dev app cloud local localdomain internal intranet lan home corp private test example invalid tech systems site online xyz svc cluster consul")
var notDomains = setOf("go py rs sh so md pb gz js ts cc db rb pl ps mk am to id is in it as at by do my no us me be")

// extensions end names of files.
var extensions = setOf("go crt key pem yaml yml json log txt conf cfg sock pid db snap wal gz tar zip so sh py js ts md html csv parquet proto pub token kubeconfig service socket toml xml rs c h cc")

// enumerations are the labels of metrics whose values come from the code of
// the component that exports them.
var enumerations = setOf(`le quantile verb code method action attempts binary bound build_date client_api_version cluster_version code_path compiler decision
	deprecated_version emulation event execute exported_component extension_point fallback filter git_commit git_tree_state git_version go_version
	grpc_code grpc_method grpc_service grpc_type hinted level major minor min_compat mode op operation phase platform plugin policy_level
	policy_version queue reason rejected request_kind request_operation result scope server_go_version server_version stability_level stage state status
	subresource success type version component job kind error error_type rejection_code enforcement_action cause severity dry_run usage request_type interface collector cpu quorum direction
	table_type migrated operator_name revision index queue_name work_type profile field_validation served_storage_version encoding stat outcome branch goarch goos goversion tags`)

// identities are the labels of metrics, and the keys of log lines, that name
// something, and the class of what.
var identities = map[string]string{
	"namespace": "ns", "ns": "ns", "exported_namespace": "ns", "pod_namespace": "ns",
	"pod": "pod", "pod_name": "pod", "exported_pod": "pod", "podname": "pod", "pods": "pod",
	"node": "node", "nodename": "node", "node_name": "node", "exported_node": "node", "kubernetes_node": "node",
	"deployment": "deployment", "replicaset": "replicaset", "statefulset": "statefulset", "daemonset": "daemonset", "cronjob": "cronjob", "job_name": "job",
	"container": "container", "container_name": "container", "pvc": "claim", "persistentvolumeclaim": "claim", "claim": "claim", "pv": "volume", "persistentvolume": "volume", "volumename": "volume",
	"service": "service", "lease": "lease", "lock": "lease", "object": "object", "user": "user", "username": "user", "serviceaccount": "account",
	"host": "host", "hostname": "host", "holder": "host", "newleader": "host", "identity": "host",
	"image": "image", "cluster_name": "cluster", "customresource_group": "group", "customresource_kind": "kind",
	"user_agent": "client", "useragent": "client", "user-agent": "client", "client": "client",
}

// namingFlags are the flags whose values name something.
var namingFlags = setOf(`name cluster-name node-name hostname-override external-hostname initial-cluster-token namespace leader-elect-resource-namespace identity
	lease-name scheduler-name user username context cluster as tenant project account`)

var (
	number    = regexp.MustCompile(`^[+-]?(\d+(\.\d+)?)([eE][+-]?\d+)?([a-zA-Zµ%]{0,3})?$`)
	duration  = regexp.MustCompile(`^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d))+$`)
	versionRE = regexp.MustCompile(`^(v\d+(\.\d+)*|\d+(\.\d+){0,2})((alpha|beta|rc)\d+)?(-(alpha|beta|rc)\.?\d+)?$`)
	agentWord = regexp.MustCompile(`[A-Za-z0-9_.:@-]+`)
	runID     = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-f]{6}$`)
	random    = regexp.MustCompile(`^([bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}|[0-9a-f]{8,})$`)
	podLike   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	email     = regexp.MustCompile(`^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)
	device    = regexp.MustCompile(`^(sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|dm-\d+|md\d+|loop\d+|sr\d+|mmcblk\d+|nbd\d+|rbd\d+|zram\d+|ram\d+)(p?\d+)?$`)
	objectish = regexp.MustCompile(`^[a-z0-9]([a-z0-9.:_-]*[a-z0-9])?$`)
)

var keptPrefixes = func() []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range strings.Fields(`127.0.0.0/8 0.0.0.0/32 255.255.255.255/32 169.254.169.254/32 192.0.2.0/24 198.51.100.0/24 203.0.113.0/24
		10.96.0.0/32 10.96.0.1/32 10.96.0.10/32 ::1/128 ::/128`) {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}()

func setOf(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// isWord says that s alone names nothing: as a name it is not looked for in
// texts.
func isWord(s string) bool {
	return len(s) < minName || words[strings.ToLower(s)] || isKnown(s) || plain(s)
}

// isKnown says that s is a name that stays.
func isKnown(s string) bool {
	return s == "" || wellKnown[s] || wellKnown[strings.ToLower(s)] || builtinGroup(s) && strings.Contains(s, ".") || publicNames[s]
}

// plain says that s is a number, a version or the like.
func plain(s string) bool {
	return number.MatchString(s) || duration.MatchString(s) || versionRE.MatchString(s) || runID.MatchString(s)
}

// familiar says that s is made of words alone: generic-garbage-collector.
func familiar(s string) bool {
	if isKnown(s) || plain(s) {
		return true
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return false
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return false
	}
	for _, w := range splitWords(s) {
		if !words[w] && !kindOf(w) && len(w) > 1 && !plain(w) {
			return false
		}
	}
	return true
}

// splitWords splits at whatever is no letter or digit, and inside CamelCase.
func splitWords(s string) []string {
	var out []string
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, strings.ToLower(s[start:end]))
		}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case !alnum(c):
			flush(i)
			start = i + 1
		case i > start && upper(c) && (!upper(s[i-1]) || i+1 < len(s) && lower(s[i+1])):
			flush(i)
			start = i
		}
	}
	flush(len(s))
	return out
}

func upper(c byte) bool { return 'A' <= c && c <= 'Z' }
func lower(c byte) bool { return 'a' <= c && c <= 'z' }
func digit(c byte) bool { return '0' <= c && c <= '9' }
func alnum(c byte) bool { return upper(c) || lower(c) || digit(c) || c >= 0x80 }

func builtinGroup(g string) bool {
	return builtinGroups[g] || g == "" || strings.HasSuffix(g, ".k8s.io") || g == "k8s.io" || strings.HasSuffix(g, ".kubernetes.io")
}

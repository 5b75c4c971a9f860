package fault

import "github.com/kubedyno/kubedyno/record"

type (
	recordSample  = record.ProcessSample
	recordRequest = record.Request
)

// What programs beside the workloads do to a cluster.
var clients = []Fault{
	{
		Name: "list-storm", Number: "F16", Star: true, Title: "a client lists everything again and again", Holds: "the API server's CPU",
		Parameter: Parameter{Means: "lists a second", Kind: PerSecond, Low: "4/s", Middle: "15/s", High: "40/s"},
		Right:     []Place{{Component: client("inventory"), Resource: "cpu"}, {Component: client("inventory"), Resource: "cache"}},
		Alike:     []string{"uncached-lists", "relist-storm", "watch-fanout", "starved-apiserver"},
		Doc: `A program asks for all objects of a kind in place of watching them. The API server answers from its cache, but takes each object through conversion and encoding, megabytes each time.

**What you see.** The API server is busy and everything else slow, though few requests are counted.

**What tells it apart.** LISTs without a resourceVersion by one user agent; apiserver_cache_list_fetched_objects_total grows by thousands a second. A storm of relists shows as watches that open; lists that reach etcd show in apiserver_storage_list_total.

**Remedy.** An informer in place of polling; or resourceVersion=0, a limit and selectors; a FlowSchema with few seats for the client meanwhile.`,
		Change: `phases:
  - name: inventory
    kind: warm-up
    create:
      count: 3000
      rate: 600/s
      object: {apiVersion: v1, kind: ConfigMap, metadata: {name: "item-{index}"}, data: {about: "` + filler + `"}}
actors:
  - {name: inventory, do: lister, rate: {{.Text}}, count: 24, resource: configmaps}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			objects, ok := r.increase("apiserver_cache_list_fetched_objects_total", on(kubeAPIServer, "resource", "configmaps"))
			rate, audited := r.rateOf(func(q *recordRequest) bool { return q.Verb == "list" && by("inventory")(q) })
			if !ok || !audited {
				return missing("apiserver_cache_list_fetched_objects_total, or the log of requests,")
			}
			return judge(rate > 1 && objects/r.window.Seconds() > 2000, rate, "1/s", "inventory listed %.1f times a second, %.0f objects a second in all", rate, objects/r.window.Seconds())
		},
	},
	{
		Name: "apply-loop", Number: "F41", Star: true, Title: "manifests are applied again and again", Holds: "CPU, at regular times",
		Parameter: Parameter{Means: "runs of kubectl apply a second", Kind: PerSecond, Low: "6/m", Middle: "12/m", High: "60/m"},
		Right:     []Place{{Component: client("kubectl"), Resource: "cpu"}, {Component: client("addon-manager"), Resource: "cpu"}},
		Alike:     []string{"frequent-compaction"},
		Doc: `An add-on manager runs kubectl apply every few seconds whether anything changed or not. Each run starts a process, reads discovery and the API's documentation, and reads and patches each object to what it is already.

**What you see.** CPU that goes up and down every few seconds on a cluster that nobody uses.

**What tells it apart.** Processes that live shortly and a period in the CPU; GETs and PATCHes by kubectl that change nothing. Compaction comes every five minutes.

**Remedy.** Apply when something changed. Minikube gave its add-on manager up for this.`,
		Change: `actors:
  - {name: addon-manager, do: kubectl-apply, rate: {{.Text}}, objects: 20}
`,
		Show: "idle",
		acted: func(r *reading, v Value) Effect {
			n, ok := r.requests(func(q *recordRequest) bool { return q.Verb == "get" && by("kubectl")(q) })
			if !ok {
				return missing("the log of requests")
			}
			runs := float64(n) / 20
			return judge(runs >= v.N*r.window.Seconds()/2, runs, "1", "kubectl read 20 objects %.1f times in %s", runs, r.lasts())
		},
	},
	{
		Name: "conflict-storm", Number: "F42", Star: true, Title: "many clients write the same object", Holds: "those clients, and CPU of API server and etcd",
		Parameter: Parameter{Means: "changes a second that are tried", Kind: PerSecond, Low: "30/s", Middle: "180/s", High: "300/s"},
		Right:     []Place{{Component: client("ipam"), Resource: "lock"}},
		Alike:     []string{"fighting-controllers", "locks-per-object"},
		Doc: `Clients read an object, change it and write it back if nobody was faster; who was too late begins again. With many of them most work is done in vain, as when the network plugin of each pod of a node claims an address in the same block.

**What you see.** Pods wait for addresses; API server and etcd are busy with reads of the newest version.

**What tells it apart.** Answers 409 to PUT on few objects by one client, and several requests for each change that came through. Two controllers that fight see no 409.

**Remedy.** One writer at a time (a lock on the node), batches, a pause with jitter before the next try.`,
		Change: `actors:
  - {name: ipam, do: writers, rate: {{.Text}}, count: 32, objects: 2}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			puts, ok := r.requests(func(q *recordRequest) bool { return q.Verb == "update" && by("ipam")(q) })
			late, _ := r.requests(func(q *recordRequest) bool { return q.Verb == "update" && q.Code == 409 && by("ipam")(q) })
			if !ok {
				return missing("the log of requests")
			}
			share := float64(late) / float64(max(1, puts))
			return judge(late > 20 && share > 0.05, share, "1", "%d of %d writes of ipam were refused because another was faster", late, puts)
		},
	},
	{
		Name: "locks-per-object", Number: "F39", Star: true, Title: "a lock for each object, and many who want it", Holds: "the API server, and who waits for the locks",
		Parameter: Parameter{Means: "candidates for each lock", Kind: Number, Low: "4", Middle: "12", High: "40"},
		Right:     []Place{{Component: client("provisioner"), Resource: "lock"}, {Component: client("provisioner"), Resource: "cpu"}},
		Alike:     []string{"conflict-storm", "fast-elections"},
		Doc: `Replicas of a controller compete by leader election for each single object that they work on. Everybody who has not got the lock reads it every two seconds.

**What you see.** With a hundred claims the API server answers reads of locks, and claims take minutes.

**What tells it apart.** As many names of leases as objects, many reads for each write, and conflicts on them. Fast elections are few names at a high rate.

**Remedy.** One lock for each controller, a cache of claims, a pause that grows (external-provisioner#68).`,
		Change: `actors:
  - {name: provisioner, do: lockers, count: {{.Int}}}
`,
		Show: "claims",
		acted: func(r *reading, v Value) Effect {
			locks := map[string]bool{}
			n, ok := r.requests(func(q *recordRequest) bool {
				hit := q.Resource == "leases" && by("provisioner")(q)
				if hit && q.Name != "" {
					locks[q.Name] = true
				}
				return hit
			})
			if !ok {
				return missing("the log of requests")
			}
			return judge(len(locks) >= 20 && n > 10*len(locks), float64(n), "1", "%d requests about %d locks in %s", n, len(locks), r.lasts())
		},
	},
	{
		Name: "fast-elections", Number: "F40", Star: true, Title: "leaders renew their lease all the time", Holds: "CPU of an idle cluster",
		Parameter: Parameter{Means: "pause between two renewals", Kind: Duration, Low: "500ms", Middle: "100ms", High: "20ms"},
		Right:     []Place{{Component: kubeScheduler, Resource: "cpu"}, {Component: controllerManager, Resource: "cpu"}},
		Alike:     []string{"heartbeat-storm", "locks-per-object"},
		Doc: `Leader election writes a lease every --leader-elect-retry-period. With a short one, for quick failover, an idle cluster writes to etcd all day, and a loaded one loses its leader.

**What you see.** CPU and disk writes of an idle cluster.

**What tells it apart.** PUTs on two leases by user agents that end in leader-election. Heartbeats are of many leases in kube-node-lease.

**Remedy.** The defaults of 15 s, 10 s and 2 s; no election where there is one replica.`,
		Change: `cluster:
  components:
    kube-controller-manager: {args: {leader-elect-retry-period: {{.Text}}, leader-elect-renew-deadline: {{.Times 20}}, leader-elect-lease-duration: {{.Times 50}}}}
    kube-scheduler: {args: {leader-elect-retry-period: {{.Text}}, leader-elect-renew-deadline: {{.Times 20}}, leader-elect-lease-duration: {{.Times 50}}}}
`,
		Show: "idle",
		acted: func(r *reading, v Value) Effect {
			rate, ok := r.rateOf(func(q *recordRequest) bool {
				return q.Resource == "leases" && (q.Name == kubeScheduler || q.Name == controllerManager) && q.Verb == "update"
			})
			if !ok {
				return missing("the log of requests")
			}
			return judge(rate > 2/v.Duration.Seconds()/2, rate, "1/s", "leases of leaders were written %.1f times a second", rate)
		},
	},
	{
		Name: "fast-scrapes", Number: "F35", Star: true, Title: "metrics are scraped many times a second", Holds: "CPU of the API server",
		Parameter: Parameter{Means: "scrapes a second", Kind: PerSecond, Low: "1/s", Middle: "5/s", High: "20/s"},
		Right:     []Place{{Component: client("monitoring"), Resource: "cpu"}},
		Alike:     []string{"list-storm", "starved-apiserver"},
		Doc: `Each scrape of the API server's metrics renders some ten thousand series, megabytes of text.

**What you see.** The API server uses CPU while nobody asks it for objects.

**What tells it apart.** Rendering of metrics fills its profile, and GETs of /metrics its bytes.

**Remedy.** Every 15 s or more, one scraper; drop series at the source.`,
		Change: `actors:
  - {name: monitoring, do: scraper, rate: {{.Text}}, count: 8}
`,
		Show:  "arrivals",
		acted: sent("monitoring", "requests", 1),
	},
	{
		Name: "redundant-replicas", Number: "F60", Star: true, Title: "replicas that nobody needs", Holds: "CPU and memory of an idle cluster",
		Parameter: Parameter{Means: "replicas", Kind: Number, Low: "2", Middle: "4", High: "8"},
		Right:     []Place{{Component: client("dns-1"), Resource: "cpu"}, {Component: client("dns-2"), Resource: "cpu"}},
		Doc: `Two replicas of a DNS server on a cluster with one node: both watch the same objects and answer to nobody.

**What you see.** CPU, memory and watches of an idle cluster, twice.

**What tells it apart.** Processes that are twins: the same watches, the same little CPU. It is waste, never what holds anything back.

**Remedy.** One replica where there is one node, and a word about what is lost: nobody takes over.`,
		Change: `actors:
{{range .Up}}  - {name: dns-{{.}}, do: watchers, count: 3, resource: configmaps}
{{end}}`,
		Show: "idle",
		acted: func(r *reading, v Value) Effect {
			twins, used := 0, 0.0
			for _, i := range v.Up() {
				if cores, ok := r.cores("dns-" + itoa(i)); ok {
					twins++
					used += cores
				}
			}
			return judge(twins == v.Int(), 1000*used, "mCPU", "%d replicas ran, and used %.1f thousandths of a core together", twins, 1000*used)
		},
	},
	{
		Name: "uncached-lists", Number: "F12", Title: "a client lists what the API server does not cache", Holds: "etcd and the API server's CPU",
		Parameter: Parameter{Means: "lists a second", Kind: PerSecond, Low: "4/s", Middle: "15/s", High: "40/s"},
		Right:     []Place{{Component: client("event-viewer"), Resource: "cpu"}, {Component: client("event-viewer"), Resource: "cache"}},
		Alike:     []string{"list-storm"},
		Doc: `Events are the one common kind without a watch cache. Each list of them is a range over etcd, which is read, sent, decoded and encoded.

**What you see.** etcd and API server are busy together.

**What tells it apart.** apiserver_storage_list_total{resource="events"} grows, and etcd serves ranges. A list from the cache leaves etcd alone.

**Remedy.** Watch Events, or read them with a limit; keep them for a shorter time (--event-ttl).`,
		Change: `phases:
  - name: told
    kind: warm-up
    create:
      count: 2000
      rate: 400/s
      object:
        apiVersion: v1
        kind: Event
        metadata: {name: "told-{index}"}
        involvedObject: {apiVersion: v1, kind: ConfigMap, namespace: "{namespace}", name: "told-{index}"}
        type: Normal
        reason: Told
        message: Told about it
actors:
  - {name: event-viewer, do: lister, rate: {{.Text}}, count: 24, resource: events}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.increase("apiserver_storage_list_total", on(kubeAPIServer, "resource", "events"))
			if !ok {
				return missing("apiserver_storage_list_total")
			}
			rate := n / r.window.Seconds()
			return judge(rate > 1, rate, "1/s", "events were listed from etcd %.1f times a second", rate)
		},
	},
	{
		Name: "event-flood", Number: "F10", Title: "a program tells of everything it does", Holds: "etcd's writes",
		Parameter: Parameter{Means: "Events a second", Kind: PerSecond, Low: "50/s", Middle: "300/s", High: "800/s"},
		Right:     []Place{{Component: client("chatter"), Resource: "cpu"}, {Component: client("chatter"), Resource: "disk"}},
		Alike:     []string{"fighting-controllers", "heartbeat-storm"},
		Doc: `Each Event is an object of its own in the cluster's etcd, with a lease that removes it after an hour.

**What you see.** etcd writes and grows, and other writes wait behind.

**What tells it apart.** POSTs of events by one client are most of all writes.

**Remedy.** Mend who talks so much; the admission plugin EventRateLimit; an etcd of their own for Events (--etcd-servers-overrides).`,
		Change: `actors:
  - {name: chatter, do: events, rate: {{.Text}}, count: 60}
`,
		Show:  "arrivals",
		acted: sent("chatter", "Events", 0.6),
	},
	{
		Name: "heartbeat-storm", Number: "F44", Title: "leases are renewed far too often", Holds: "etcd's writes and the API server's CPU",
		Parameter: Parameter{Means: "renewals a second", Kind: PerSecond, Low: "50/s", Middle: "300/s", High: "800/s"},
		Right:     []Place{{Component: client("agents"), Resource: "cpu"}, {Component: client("agents"), Resource: "disk"}},
		Alike:     []string{"fast-elections", "event-flood"},
		Doc: `Agents on each node renew a lease of their own, as kubelets do every ten seconds. At a second or less, a cluster of some hundred nodes does little else.

**What you see.** CPU and disk writes that grow with the nodes, idle or not.

**What tells it apart.** PUTs of many leases, each at the same pace, by one user agent.

**Remedy.** Ten seconds or more.`,
		Change: `actors:
  - {name: agents, do: heartbeats, rate: {{.Text}}, count: 300}
`,
		Show:  "arrivals",
		acted: sent("agents", "renewals", 0.6),
	},
	{
		Name: "hot-loop", Title: "an operator rewrites its objects without a pause", Holds: "the API server's CPU and etcd's writes",
		Parameter: Parameter{Means: "rounds a second, each of a read and a write", Kind: PerSecond, Low: "30/s", Middle: "120/s", High: "400/s"},
		Right:     []Place{{Component: client("operator"), Resource: "cpu"}, {Component: client("operator"), Resource: "disk"}},
		Alike:     []string{"conflict-storm", "fighting-controllers", "heartbeat-storm", "event-flood"},
		Doc: `An operator that writes a time or a counter into the status of its objects is told of its own change, and writes again. No request fails and nobody disagrees with it: it is busy with itself.

**What you see.** Hundreds of reads and writes a second on a cluster where nothing happens; everybody else's requests are slower.

**What tells it apart.** One user agent sends more than everybody else together, to objects that nobody else writes, without conflicts. Two controllers that fight are two user agents; heartbeats are leases.

**Remedy.** Compare before the write; react to changes of the spec only (a GenerationChangedPredicate); read from the informer's cache; a rate limit for each object.`,
		Change: `actors:
  - {name: operator, do: writers, rate: {{.Text}}, count: 32, objects: 64}
`,
		Show:  "arrivals",
		acted: sent("operator", "requests", 1.2),
	},
	{
		Name: "large-objects", Title: "a large object is written again and again", Holds: "etcd's space and log, and the API server's CPU",
		Parameter: Parameter{Means: "how large each of the objects is, of which ten a second are written", Kind: Number, Low: "50000", Middle: "200000", High: "800000"},
		Right:     []Place{{Component: client("reporter"), Resource: "disk"}, {Component: client("reporter"), Resource: "cpu"}},
		Alike:     []string{"hot-loop"},
		Doc: `A controller keeps its state, or a report, in one ConfigMap or custom resource, and writes all of it whenever a line changes. etcd keeps each version until the next compaction, five minutes, and every watch is sent the whole.

**What you see.** etcd's database and its log grow by megabytes a second, with few requests.

**What tells it apart.** Bodies of a hundred kilobytes and more (apiserver_request_body_size_bytes) at a few writes a second. A hot loop is many small ones.

**Remedy.** One object for each report; what changes often apart from what is large; write when it changed; a volume or an object store for the rest.`,
		Change: `actors:
  - {name: reporter, do: writers, rate: 10/s, count: 4, objects: 20, bytes: {{.Int}}}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			sum, ok := r.increase("apiserver_request_body_size_bytes_sum", on(kubeAPIServer, "resource", "configmaps"))
			if !ok {
				return missing("apiserver_request_body_size_bytes_sum")
			}
			rate := sum / r.window.Seconds()
			return judge(rate > 4*v.N, rate, "bytes/s", "ConfigMaps of %.0f bytes were written, %.2f MB a second in all", v.N, rate/1e6)
		},
	},
	{
		Name: "fighting-controllers", Number: "F43", Title: "two controllers undo each other's work", Holds: "etcd's writes and the API server's CPU",
		Parameter: Parameter{Means: "objects that they fight about", Kind: Number, Low: "1", Middle: "4", High: "16"},
		Right:     []Place{{Component: client("tenant-a"), Resource: "cpu"}, {Component: client("tenant-b"), Resource: "cpu"}, {Component: client("tenant-a"), Resource: "lock"}, {Component: client("tenant-b"), Resource: "lock"}},
		Alike:     []string{"conflict-storm", "event-flood"},
		Doc: `Two controllers want different values in the same field. Each is told of the other's change and puts its own back, as fast as the cluster lets them.

**What you see.** Hundreds of writes a second to a few objects, on a cluster where nothing happens.

**What tells it apart.** The same objects are written by two user agents in turn, and every write succeeds.

**Remedy.** One owner for each field (server-side apply tells), or a check before the write.`,
		Change: `actors:
  - {name: tenant-a, do: owner, objects: {{.Int}}, count: 8}
  - {name: tenant-b, do: owner, objects: {{.Int}}, count: 8}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			a, ok := r.rateOf(by("tenant-a"))
			b, _ := r.rateOf(by("tenant-b"))
			if !ok {
				return missing("the log of requests")
			}
			return judge(a > 5 && b > 5, a+b, "1/s", "tenant-a wrote %.0f and tenant-b %.0f times a second", a, b)
		},
	},
	{
		Name: "relist-storm", Number: "F28", Title: "clients begin their watches again and again", Holds: "the API server's CPU",
		Parameter: Parameter{Means: "beginnings a second", Kind: PerSecond, Low: "4/s", Middle: "15/s", High: "40/s"},
		Right:     []Place{{Component: client("agents"), Resource: "watch"}, {Component: client("agents"), Resource: "cpu"}},
		Alike:     []string{"list-storm", "watch-fanout"},
		Doc: `A client that lost its watch, because it read too slowly or was told that its version is too old, asks for everything from the beginning. Agents on all nodes that do so together ask for the whole cluster many times over.

**What you see.** The API server is busy after a restart, or all the time.

**What tells it apart.** Watches that open with sendInitialEvents and end soon; apiserver_init_events_total. A storm of lists shows as LIST.

**Remedy.** Clients that keep up; bookmarks; a pause with jitter.`,
		Change: `phases:
  - name: inventory
    kind: warm-up
    create:
      count: 3000
      rate: 600/s
      object: {apiVersion: v1, kind: ConfigMap, metadata: {name: "item-{index}"}, data: {about: "` + filler + `"}}
actors:
  - {name: agents, do: relister, rate: {{.Text}}, count: 24, resource: configmaps}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			rate, ok := r.rateOf(func(q *recordRequest) bool { return q.Verb == "watch" && by("agents")(q) })
			if !ok {
				return missing("the log of requests")
			}
			return judge(rate > 1, rate, "1/s", "agents began %.1f watches a second", rate)
		},
	},
	{
		Name: "endpoint-fanout", Number: "F56", Title: "every change of a large Service goes to every node", Holds: "the API server's CPU",
		Parameter: Parameter{Means: "watches on EndpointSlices", Kind: Number, Low: "200", Middle: "800", High: "1600"},
		Right:     []Place{{Component: client("proxies"), Resource: "watch"}, {Component: client("proxies"), Resource: "cpu"}},
		Alike:     []string{"watch-fanout"},
		Doc: `Each pod of a Service that comes or goes changes an EndpointSlice of up to a hundred addresses, which is sent whole to the proxy of each node.

**What you see.** The API server is busy while a large Service is rolled out.

**What tells it apart.** apiserver_watch_events_total and its sizes of endpointslices.

**Remedy.** --endpointslice-updates-batch-period, which gathers changes; headless Services for what needs no proxy.`,
		Change: `phases:
  - name: service
    kind: warm-up
    create: {count: 1, object: {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}}
actors:
  - {name: proxies, do: watchers, count: {{.Int}}, resource: endpointslices.discovery.k8s.io}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			n, ok := r.increase("apiserver_watch_events_total", on(kubeAPIServer, "resource", "endpointslices"))
			if !ok {
				return missing("apiserver_watch_events_total of endpointslices")
			}
			rate := n / r.window.Seconds()
			return judge(rate > v.N, rate, "1/s", "%.0f changes of EndpointSlices were sent a second", rate)
		},
	},
	{
		Name: "watch-fanout", Number: "F27", Title: "too many watches on pods", Holds: "the API server's CPU, at every change of a pod",
		Parameter: Parameter{Means: "watches", Kind: Number, Low: "200", Middle: "600", High: "1200"},
		Right:     []Place{{Component: client("agents"), Resource: "watch"}, {Component: client("agents"), Resource: "cpu"}},
		Alike:     []string{"list-storm", "relist-storm"},
		Doc: `Each change of a pod is sent to everybody who watches all pods. An agent on each node that does costs nodes times changes.

**What you see.** The API server is busy as soon as pods come or go.

**What tells it apart.** apiserver_watch_events_total is hundreds of times the changes there were; few requests are counted.

**Remedy.** Watch with a field selector for the own node; one watcher that passes on; EndpointSlices in place of Endpoints.`,
		Change: `actors:
  - {name: agents, do: watchers, count: {{.Int}}, resource: pods}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			n, ok := r.increase("apiserver_watch_events_total", on(kubeAPIServer, "resource", "pods"))
			if !ok {
				n, ok = r.increase("apiserver_watch_events_total", on(kubeAPIServer))
			}
			if !ok {
				return missing("apiserver_watch_events_total")
			}
			rate := n / r.window.Seconds()
			return judge(rate > 5*v.N, rate, "1/s", "%.0f changes a second were sent to watches", rate)
		},
	},
	{
		Name: "connection-churn", Number: "F26", Title: "a connection for each request", Holds: "the API server's CPU, by handshakes",
		Parameter: Parameter{Means: "connections a second", Kind: PerSecond, Low: "30/s", Middle: "150/s", High: "400/s"},
		Right:     []Place{{Component: client("scripts"), Resource: "cpu"}, {Component: client("scripts"), Resource: "network"}},
		Alike:     []string{"starved-apiserver", "verbose-log"},
		Doc: `Scripts, and clients that are made anew for each call, open a TLS connection for a single request. The handshake costs more than the request.

**What you see.** The API server is busy with few requests.

**What tells it apart.** Connections accepted are as many as requests; serverHandshake fills the profile. No metric counts them.

**Remedy.** One client that is kept; ECDSA certificates.`,
		Change: `actors:
  - {name: scripts, do: connections, rate: {{.Text}}, count: 40}
`,
		Show:  "arrivals",
		acted: sent("scripts", "requests, each on a connection of its own,", 1),
	},
	{
		Name: "operator-limit", Number: "F38", Title: "an operator holds itself back", Holds: "the operator's own work",
		Parameter: Parameter{Means: "requests a second that its client lets through", Kind: PerSecond, Low: "20/s", Middle: "5/s", High: "1/s"},
		Right:     []Place{{Component: client("operator"), Resource: "client-limit"}},
		Alike:     []string{"controller-limit"},
		Doc: `client-go lets five requests a second through where nobody sets anything else. An operator that writes to each pod then falls behind at more.

**What you see.** What the operator does for a pod comes minutes late. The cluster is fine.

**What tells it apart.** Its requests come like a clock, at exactly its limit.

**Remedy.** Set QPS, or take the limiter off and let priority and fairness protect the server.`,
		Change: `actors:
  - {name: operator, do: controller, count: 2, qps: {{.N}}, burst: {{.Int}}}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			rate, ok := r.rateOf(func(q *recordRequest) bool { return q.Verb == "patch" && by("operator")(q) })
			if !ok {
				return missing("the log of requests")
			}
			return judge(rate > v.N/2 && rate < 1.5*v.N+1, rate, "1/s", "operator patched %.1f pods a second; its limit is %s", rate, v.Text)
		},
	},
}

// filler is what an object weighs.
const filler = "a kilobyte of settings, as objects have it: " +
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz" +
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz" +
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz" +
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"

package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// What goes wrong with the API server.
var apiserver = []Fault{
	{
		Name: "few-seats", Number: "F14", Title: "the API server works on too few requests at a time", Holds: "every request, in the queues of priority and fairness",
		Parameter: Parameter{Means: "requests in flight, reads and writes together", Kind: Number, Low: "8", Middle: "4", High: "2"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "apf"}},
		Alike:     []string{"starved-apiserver", "slow-webhook"},
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
		Name: "no-queues", Title: "the API server refuses what it has no place for, instead of letting it queue", Holds: "every request, by pauses of a second",
		Parameter: Parameter{Means: "reads in flight, and writes in flight, beyond which requests are refused", Kind: Number, Low: "20", Middle: "12", High: "8"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "apf"}},
		Alike:     []string{"few-seats", "few-workers", "refused-creates"},
		Doc: `Without priority and fairness there are no queues: a request that comes while as many are in flight as may be is told 429, and to come again after a second. Clients do, all at the same moment.

**What you see.** Controllers, scheduler and nodes are slow in steps of a second, all workers of controllers are busy, and nothing else is: no queue, no limiter, no CPU.

**What tells it apart.** apiserver_request_terminations_total with code 429 grows, while priority and fairness counts no waiting and no rejection. More workers would be refused as well.

**Remedy.** Leave --enable-priority-and-fairness on; raise --max-requests-inflight and --max-mutating-requests-inflight.`,
		Change: `cluster: {components: {kube-apiserver: {args: {enable-priority-and-fairness: false, max-requests-inflight: {{.Int}}, max-mutating-requests-inflight: {{.Int}}}}}}`,
		Show:   "rollout",
		acted: func(r *reading, _ Value) Effect {
			refused, ok := r.increase("apiserver_request_terminations_total", on(kubeAPIServer, "code", "429"))
			if !ok {
				return missing("apiserver_request_terminations_total")
			}
			return judge(refused > r.window.Seconds(), refused, "1", "%.0f requests were refused with 429 in %s", refused, r.lasts())
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
		Name: "slow-webhook", Number: "F17", Title: "an admission webhook takes long", Holds: "the creation of pods",
		Parameter: Parameter{Means: "what an answer takes", Kind: Duration, Low: "300ms", Middle: "1s", High: "3s"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "webhook"}, {Component: client("policy"), Resource: "webhook"}},
		Alike:     []string{"heavy-policy", "slow-fsync", "far-etcd"},
		Doc: `The API server asks a webhook about each pod before it is stored, and waits for the answer. Controllers create pods in turns, each as long as the slowest answer.

**What you see.** Pods are created slowly, nothing is busy.

**What tells it apart.** apiserver_admission_webhook_admission_duration_seconds has the time, and apiserver_request_sli_duration_seconds, which leaves webhooks out, has not. A policy that takes long uses the API server's own CPU.

**Remedy.** Narrow its rules and match conditions, give it more replicas, a short timeout, or make a ValidatingAdmissionPolicy of it.`,
		Change: `actors:
  - {name: policy, do: webhook, delay: {{.Text}}}
`,
		Show:  "rollout",
		acted: webhookTook,
	},
	{
		Name: "slow-conversion", Title: "a conversion webhook takes long", Holds: "who reads a custom resource at an older version",
		Parameter: Parameter{Means: "what an answer takes", Kind: Duration, Low: "100ms", Middle: "500ms", High: "2s"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "webhook"}, {Component: client("widgets"), Resource: "webhook"}},
		Alike:     []string{"slow-webhook", "far-etcd"},
		Doc: `Objects of a CustomResourceDefinition are stored at one version. Who asks for another, or sends another, waits while the API server asks the definition's conversion webhook: a list waits for all of its objects, and a watch for each event.

**What you see.** Clients of one custom resource are slow, reads as much as writes; everything else is quick.

**What tells it apart.** apiserver_crd_conversion_webhook_duration_seconds, which names the resource. Admission webhooks are asked for writes only; a slow etcd is slow for every resource.

**Remedy.** Move clients to the version that is stored, and stored objects to the newest one (StorageVersionMigration); conversion that asks nobody else; replicas of the webhook near the API server.`,
		Change: `actors:
  - {name: widgets, do: converter, delay: {{.Text}}}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			mean, n, ok := r.mean("apiserver_crd_conversion_webhook_duration_seconds", on(kubeAPIServer))
			if !ok {
				return missing("apiserver_crd_conversion_webhook_duration_seconds")
			}
			return judge(mean >= v.Duration.Seconds(), 1000*mean, "ms", "a conversion took %.0f ms on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "heavy-policy", Number: "F19", Title: "admission policies take a lot of work", Holds: "the creation of pods, and the API server's CPU",
		Parameter: Parameter{Means: "policies", Kind: Number, Low: "1", Middle: "3", High: "6"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "policy"}},
		Alike:     []string{"slow-webhook", "starved-apiserver"},
		Doc: `A ValidatingAdmissionPolicy is an expression that the API server evaluates itself, for each object that it matches. Nested loops over lists cost milliseconds of CPU each time.

**What you see.** Pods are created slowly, and the API server is busy.

**What tells it apart.** apiserver_admission_controller_admission_duration_seconds of ValidatingAdmissionPolicy, and cel in the profile. A webhook's time is waiting.

**Remedy.** Simpler expressions, match conditions before them, fewer resources matched.`,
		Change: `phases:
  - name: policies
    kind: warm-up
    create:
      count: {{.Int}}
      rate: burst
      object:
        apiVersion: admissionregistration.k8s.io/v1
        kind: ValidatingAdmissionPolicy
        metadata: {name: "sums-{index}"}
        spec:
          failurePolicy: Ignore
          matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
          validations:
            - expression: "` + loops + `"
  - name: bindings
    kind: warm-up
    create:
      count: {{.Int}}
      rate: burst
      object:
        apiVersion: admissionregistration.k8s.io/v1
        kind: ValidatingAdmissionPolicyBinding
        metadata: {name: "sums-{index}"}
        spec: {policyName: "sums-{index}", validationActions: [Deny]}
  - {name: published, settle: 3s}
`,
		Show: "rollout",
		acted: func(r *reading, _ Value) Effect {
			mean, n, ok := r.mean("apiserver_admission_controller_admission_duration_seconds", on(kubeAPIServer, "name", "ValidatingAdmissionPolicy", "operation", "CREATE"))
			if !ok {
				return missing("apiserver_admission_controller_admission_duration_seconds of policies")
			}
			return judge(mean > 0.001, 1000*mean, "ms", "policies took %.1f ms of each object that was made, on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "crd-churn", Number: "F33", Title: "CustomResourceDefinitions change all the time", Holds: "the API server's CPU",
		Parameter: Parameter{Means: "changes a second", Kind: PerSecond, Low: "1/s", Middle: "5/s", High: "20/s"},
		Right:     []Place{{Component: client("operator-installer"), Resource: "cpu"}},
		Alike:     []string{"apply-loop", "starved-apiserver"},
		Doc: `Each change of a CustomResourceDefinition lets the API server build its documentation of all kinds anew, and serve the kind anew.

**What you see.** The API server is busy while operators are installed.

**What tells it apart.** apiextensions_openapi_v2_regeneration_count, and kube-openapi in the profile.

**Remedy.** Install in one go; do not write definitions that are as they should be.`,
		Change: `actors:
  - {name: operator-installer, do: installer, rate: {{.Text}}, count: 6, objects: 40}
`,
		Show: "arrivals",
		acted: func(r *reading, v Value) Effect {
			n, ok := r.rateOf(func(q *recordRequest) bool {
				return q.Resource == "customresourcedefinitions" && q.Verb == "patch" && by("operator-installer")(q)
			})
			if !ok {
				return missing("the log of requests")
			}
			return judge(n >= v.N/3, n, "1/s", "%.1f CustomResourceDefinitions changed a second", n)
		},
	},
	{
		Name: "many-bindings", Number: "F34", Title: "thousands of role bindings", Holds: "every request, while it is authorised",
		Parameter: Parameter{Means: "bindings, of 100 users each", Kind: Number, Low: "1000", Middle: "3000", High: "6000"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "cpu"}},
		Alike:     []string{"starved-apiserver", "verbose-log"},
		Doc: `For each request the API server looks through all ClusterRoleBindings, and the RoleBindings of the namespace, for one that allows it.

**What you see.** Every request costs a little more, and the API server is busy sooner.

**What tells it apart.** authorization_duration_seconds, and VisitRulesFor in the profile.

**Remedy.** Bind groups in place of users; take bindings away that nobody needs.`,
		Change: `phases:
  - name: bindings
    kind: warm-up
    create:
      count: {{.Int}}
      rate: 400/s
      object:
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRoleBinding
        metadata: {name: "a-team-{index}"}
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
        subjects: [` + users(100) + `]
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			mean, n, ok := r.mean("apiserver_authorization_duration_seconds", on(kubeAPIServer))
			if !ok {
				mean, n, ok = r.mean("authorization_duration_seconds", on(kubeAPIServer))
			}
			if !ok {
				return missing("authorization_duration_seconds")
			}
			return judge(mean > 0.0005, 1000*mean, "ms", "a request was authorised in %.2f ms on average (n=%.0f)", 1000*mean, n)
		},
	},
	{
		Name: "dead-api", Number: "F24", Title: "an aggregated API has nobody behind it", Holds: "discovery, and the removal of namespaces",
		Parameter: Parameter{Means: "APIs", Kind: Number, Low: "1", Middle: "3", High: "10"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "unknown"}},
		Alike:     []string{"slow-removal"},
		Doc: `An APIService tells the API server to pass a group on to a service. Where that is gone, the group answers 503, and whoever has to know all groups (garbage collection, quota, the removal of namespaces) fails or goes on without.

**What you see.** Namespaces that never go, though pods come and go as ever.

**What tells it apart.** aggregator_unavailable_apiservice is 1, and the controller manager's log has groups that could not be discovered. A backlog of removal makes progress.

**Remedy.** Delete the APIService, or bring its service back.`,
		Change: `phases:
  - name: apis
    kind: warm-up
    create:
      count: {{.Int}}
      rate: burst
      object:
        apiVersion: apiregistration.k8s.io/v1
        kind: APIService
        metadata: {name: "v1.gone{index}.kubedyno.io"}
        spec: {group: "gone{index}.kubedyno.io", version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: default, name: gone}}
  - {name: noticed, settle: 3s}
`,
		Show: "arrivals",
		acted: func(r *reading, _ Value) Effect {
			at, err := r.Query(`sum(aggregator_unavailable_apiservice{component="kube-apiserver"})`, r.window.End)
			if err != nil || len(at) == 0 || len(at[0].Points) == 0 {
				return missing("aggregator_unavailable_apiservice")
			}
			n := at[0].Points[0].Value
			return judge(n >= 1, n, "1", "%.0f aggregated APIs were unavailable", n)
		},
	},
	{
		Name: "quota-conflicts", Number: "F57", Title: "every pod counts against quotas", Holds: "the creation of pods in one namespace",
		Parameter: Parameter{Means: "quotas in the namespace", Kind: Number, Low: "1", Middle: "5", High: "20"},
		Right:     []Place{{Component: kubeAPIServer, Resource: "quota"}},
		Alike:     []string{"conflict-storm", "slow-webhook", "few-workers"},
		Doc: `For each pod the API server writes what is used into the status of each ResourceQuota of the namespace, before it stores the pod. Pods that come together are counted together where they can be, and wait for each other.

**What you see.** Pods of one namespace are created more slowly than those of others.

**What tells it apart.** Updates of resourcequotas/status by the API server itself, and etcd updates that begin again. Conflicts of a client are answered with 409.

**Remedy.** One quota with all limits in place of many; fewer, larger namespaces are not better.`,
		Change: `phases:
  - name: quotas
    kind: warm-up
    create:
      count: {{.Int}}
      rate: burst
      object: {apiVersion: v1, kind: ResourceQuota, metadata: {name: "quota-{index}"}, spec: {hard: {pods: "100000", requests.cpu: "100000"}}}
  - {name: counted, settle: 3s}
`,
		Show: "rollout",
		acted: func(r *reading, _ Value) Effect {
			n, ok := r.increase("etcd_requests_total", on(kubeAPIServer, "operation", "update", "resource", "resourcequotas"))
			if !ok {
				return missing("etcd_requests_total of resourcequotas")
			}
			return judge(n > 50, n, "1", "quotas were written %.0f times in %s", n, r.lasts())
		},
	},
}

// loops is an expression that takes some ten thousand steps, and is true.
const loops = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19].all(a, [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19].all(b, [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19].all(c, a + b + c >= 0)))"

// users are subjects that nobody is.
func users(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("{apiGroup: rbac.authorization.k8s.io, kind: User, name: somebody-%d@example.com}", i)
	}
	return strings.Join(all, ", ")
}

// webhookTook is the check of a webhook: its answers took what they should.
func webhookTook(r *reading, v Value) Effect {
	mean, n, ok := r.mean("apiserver_admission_webhook_admission_duration_seconds", on(kubeAPIServer, "name", "policy.kubedyno.io"))
	if !ok {
		return missing("apiserver_admission_webhook_admission_duration_seconds")
	}
	return judge(mean >= v.Duration.Seconds(), mean, "s", "an answer of the webhook took %.2f s on average (n=%.0f)", mean, n)
}

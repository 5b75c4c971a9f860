package report

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// The story of the demo, made up: 3,000 pods of 10 Deployments on 100 nodes,
// held first by the controller manager's limit, then by the scheduler's, then
// by the machine.

type scenario struct {
	controller, scheduler float64 // pods/s each can pass on
	settings              []string
	cpuPerPod             map[string]float64 // seconds
}

var scenarios = []scenario{
	{20, 400, nil, nil},
	{400, 52, []string{"kube-controller-manager.args.kube-api-qps=-1"}, nil},
	{155, 152, []string{"kube-controller-manager.args.kube-api-qps=-1", "kube-scheduler.args.kube-api-qps=-1"}, nil},
}

const synthPods = 3000

var synthStart = time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)

func synthRows(i int) rows {
	s := scenarios[i]
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	start := synthStart.Add(time.Duration(i) * 10 * time.Minute)
	load := start.Add(25 * time.Second)
	us := func(sec float64) int64 { return load.UnixMicro() + int64(sec*1e6) }

	var pods []record.Pod
	var create, bind, end float64
	for n := range synthPods {
		jitter := func(x float64) float64 { return x * (0.6 + 0.8*rng.Float64()) }
		create = max(create, 0.05) + jitter(1/s.controller)
		bind = max(bind, create+0.004) + jitter(1/s.scheduler)
		run := bind + 0.35 + 0.25*rng.ExpFloat64()
		end = max(end, run)
		d := n * 10 / synthPods
		pods = append(pods, record.Pod{
			Namespace: "density", Name: fmt.Sprintf("density-%d-%05d", d, n), Phase: "load", Owner: fmt.Sprintf("Deployment/density-%d", d),
			Node:      fmt.Sprintf("hollow-%03d", n%100),
			DueMicros: us(0.002 * float64(d)), SentMicros: us(0.002*float64(d) + 0.0007), AckedMicros: us(0.002*float64(d) + 0.009),
			CreatedMicros: us(create), BoundMicros: us(bind), RunningMicros: us(run), ReadyMicros: us(run),
		})
	}
	rate := float64(synthPods) / end

	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubedyno-hollow", "kubedyno-load", "kubedyno"}
	idle := []float64{0.02, 0.06, 0.015, 0.008, 0.02, 0.001, 0.012}
	perPod := []float64{0.0016, 0.0062, 0.0016, 0.0013, 0.0021, 0.0001, 0.0003}
	var processes []record.ProcessSample
	var machine []record.MachineSample
	used := make([]float64, len(names))
	total := 3.0
	for sec := -24; sec < int(end)+12; sec++ {
		busy := 0.0
		if sec >= 0 && float64(sec) < end {
			busy = rate * min(1, end-float64(sec))
		}
		at := us(float64(sec + 1))
		for k, name := range names {
			x := (idle[k] + perPod[k]*busy) * (0.85 + 0.3*rng.Float64())
			if name == "etcd" && sec%17 == 3 {
				x += 0.12
			}
			used[k] += x
			total += x
			processes = append(processes, record.ProcessSample{
				TimeMicros: at, PID: int32(100 + k), StartMicros: us(-100), Component: name, Command: name + " --flags",
				UserSeconds: used[k] * 0.8, SystemSeconds: used[k] * 0.2,
			})
		}
		total += 0.05 * (0.8 + 0.4*rng.Float64())
		machine = append(machine, record.MachineSample{
			TimeMicros: at, User: total * 0.8, System: total * 0.2,
			DiskReadBytes: 1 << 20, DiskWriteBytes: int64(total * 3e6), DiskBusySeconds: total * 0.04,
		})
	}

	m := record.Meta{
		Schema: 1, ID: start.Format("20060102T150405Z") + "-ab12c" + fmt.Sprint(i), Name: "density", Tool: "v0.1.0",
		Started: start, Ended: load.Add(time.Duration((end + 12) * 1e9)), Status: record.StatusComplete,
		Cluster: record.Cluster{Kind: "lab", Server: "https://127.0.0.1:40001", Version: "v1.36.3", Profile: "stock", Components: []record.Component{
			{Name: "etcd", Version: "3.6.8", Args: []string{"--data-dir=…", "--listen-client-urls=https://127.0.0.1:40000", "--enable-pprof=true"}},
			{Name: "kube-apiserver", Version: "v1.36.3", Args: []string{"--etcd-servers=https://127.0.0.1:40000", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--audit-log-mode=batch"}},
			{Name: "kube-controller-manager", Version: "v1.36.3", Args: []string{"--leader-elect=true", "--controllers=*,bootstrapsigner,tokencleaner"}},
			{Name: "kube-scheduler", Version: "v1.36.3", Args: []string{"--leader-elect=true"}},
			{Name: "kubedyno-hollow", Harness: true}, {Name: "kubedyno-load", Harness: true}, {Name: "kubedyno", Harness: true},
		}},
		Machine:  record.Machine{CPUs: 2, Model: "Intel Xeon @ 2.70GHz", MemoryBytes: 8 << 30, Kernel: "6.18.2", OS: "Debian 12", Virtual: "kvm", Cgroup: "v1", Disk: "ext4", GoMaxProcs: 2, LoadAverage: 0.21},
		Workload: record.Workload{ExpectedPods: synthPods, Controller: "Deployment", Seed: 1},
		Nodes:    record.Nodes{Count: 100, Identity: "own", Simulated: true, ReadySeconds: 2.1, SchedulableSeconds: 6.9},
		Phases: []record.Phase{
			{Name: "start", Kind: record.PhaseStart, Start: start, End: start.Add(12 * time.Second)},
			{Name: "settle", Kind: record.PhaseSettle, Start: start.Add(12 * time.Second), End: load},
			{Name: "load", Kind: record.PhaseSteady, Start: load, End: load.Add(time.Duration(end * 1e9))},
		},
		Collectors: []record.Observer{
			{Name: "process", IntervalSeconds: 1, Samples: int64(len(processes)), CPUSeconds: 0.9},
			{Name: "metrics", IntervalSeconds: 5, Samples: 90_000, CPUSeconds: 1.4},
			{Name: "objects", Samples: 9000, CPUSeconds: 1.1},
		},
		Gaps:     []record.Gap{{Collector: "blockio", Reason: "eBPF needs CAP_BPF, which this process does not have"}},
		LeftOut:  []string{"image pulls and container start", "pod network (CNI) and volumes (CSI)", "high availability: one etcd member, one apiserver", "an aged database: etcd starts empty"},
		Settings: s.settings,
	}
	if i > 0 {
		m.Parent = "before"
	}
	in := rows{meta: m, pods: pods, processes: processes, machine: machine, profiles: synthProfiles(load, end, rate, names, perPod)}
	in.stacks, in.period = map[int64]string{}, 1.0/99
	for k, name := range names {
		leaves := synthFuncs[name]
		for j, leaf := range leaves {
			in.stacks[int64(100*k+j)] = "runtime.goexit;main.main;" + leaf
		}
		for sec := 0; sec < int(end) && len(leaves) > 0; sec++ {
			for range int(perPod[k] * rate * 99) {
				in.samples = append(in.samples, record.StackSample{
					TimeMicros: us(float64(sec) + rng.Float64()), PID: int32(100 + k), Component: name, Command: name, Stack: int64(100*k + rng.IntN(len(leaves))),
				})
			}
		}
	}
	slices.SortStableFunc(in.samples, func(a, b record.StackSample) int { return cmp.Compare(a.TimeMicros, b.TimeMicros) })
	sums := newRequestSums(clockOf(in, pods))
	for _, r := range synthRequests(in) {
		sums.add(&r)
	}
	in.requests = sums.groups()
	return in
}

// synthRequests are those that create, bind and report the pods.
func synthRequests(in rows) []record.Request {
	var out []record.Request
	for i, p := range in.pods {
		one := func(agent, verb, subresource string, done, took int64) {
			r := record.Request{
				ReceivedMicros: done - took, DoneMicros: done, Verb: verb, Resource: "pods", Subresource: subresource, Namespace: p.Namespace, Name: p.Name,
				User: "system:" + agent, UserAgent: agent + "/v1.36.3 (linux/amd64) kubernetes/0123abc", Code: 200,
				ServerMicros: took, EtcdMicros: -1, QueueMicros: took / 20, WebhookMicros: 0, ResponseBytes: 1500,
			}
			if i%50 == 0 {
				r.Code = 409
			}
			out = append(out, r)
		}
		one("kube-controller-manager", "create", "", p.CreatedMicros, 6000)
		one("kube-scheduler", "create", "binding", p.BoundMicros, 4000)
		one("kubedyno-hollow", "patch", "status", p.RunningMicros, 5000)
	}
	at := in.pods[0].CreatedMicros
	out = append(out, record.Request{ReceivedMicros: at, DoneMicros: at + 60e6, Verb: "watch", Resource: "pods", UserAgent: "kubedyno-hollow/v1", Code: 200, ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, ResponseBytes: 900_000})
	slices.SortStableFunc(out, func(a, b record.Request) int { return cmp.Compare(a.ReceivedMicros, b.ReceivedMicros) })
	return out
}

var synthFuncs = map[string][]string{
	"etcd":                    {"runtime.futex", "internal/runtime/syscall.Syscall6", "go.etcd.io/bbolt.(*node).write", "go.etcd.io/etcd/server/v3/storage/mvcc.(*treeIndex).Get", "go.etcd.io/raft/v3.(*raft).Step", "runtime.scanobject", "crypto/tls.(*Conn).Write", "google.golang.org/grpc/internal/transport.(*loopyWriter).run"},
	"kube-apiserver":          {"runtime.scanobject", "runtime.mallocgc", "encoding/json.checkValid", "sigs.k8s.io/structured-merge-diff/v6/typed.(*mergingWalker).visitMapItems", "k8s.io/apimachinery/pkg/runtime/serializer/protobuf.(*Serializer).doEncode", "k8s.io/apiserver/pkg/storage/cacher.(*cacheWatcher).add", "k8s.io/api/core/v1.(*PodSpec).MarshalToSizedBuffer", "crypto/internal/fips140/aes/gcm.gcmAesEnc", "internal/runtime/syscall.Syscall6", "golang.org/x/net/http2.(*serverConn).processHeaders", "k8s.io/apimachinery/pkg/util/managedfields/internal.(*structuredMergeManager).Update", "compress/flate.(*compressor).deflate", "runtime.memclrNoHeapPointers", "runtime.findObject", "k8s.io/apiserver/pkg/authorization/authorizer.(*Node).Authorize", "reflect.Value.call", "runtime.mapaccess2_faststr"},
	"kube-controller-manager": {"runtime.scanobject", "k8s.io/kubernetes/pkg/controller/replicaset.(*ReplicaSetController).manageReplicas", "k8s.io/client-go/tools/cache.(*threadSafeMap).Update", "encoding/json.(*encodeState).reflectValue", "golang.org/x/net/http2.(*Framer).WriteData", "runtime.mallocgc", "k8s.io/client-go/tools/cache.(*DeltaFIFO).Pop"},
	"kube-scheduler":          {"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.(*Fit).Filter", "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulingCycle", "runtime.scanobject", "k8s.io/kubernetes/pkg/scheduler/backend/cache.(*cacheImpl).UpdateSnapshot", "runtime.mapassign", "k8s.io/client-go/tools/cache.(*DeltaFIFO).Pop", "golang.org/x/net/http2.(*Framer).WriteHeaders"},
	"kubedyno-hollow":         {"encoding/json.Marshal", "runtime.scanobject", "crypto/tls.(*Conn).Write", "github.com/kubedyno/kubedyno/hollow.(*Node).sync"},
}

func synthProfiles(load time.Time, end, rate float64, names []string, perPod []float64) []cpuProfile {
	var out []cpuProfile
	for k, name := range names {
		leaves := synthFuncs[name]
		if leaves == nil {
			continue
		}
		from, to := load.Add(time.Second), load.Add(time.Duration(min(end-1, 31)*1e9))
		p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, TimeNanos: from.UnixNano(), DurationNanos: to.Sub(from).Nanoseconds()}
		fn := func(n string) *profile.Location {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: n}
			p.Function = append(p.Function, f)
			l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
			p.Location = append(p.Location, l)
			return l
		}
		root, mid := fn("runtime.goexit"), fn("main.main")
		total := perPod[k] * rate * to.Sub(from).Seconds()
		left := 1.0
		for j, leaf := range leaves {
			w := left * 0.22
			if j == len(leaves)-1 {
				w = left
			}
			left -= w
			stack := []*profile.Location{fn(leaf), root}
			if j%2 == 1 {
				stack = []*profile.Location{stack[0], mid, root}
			}
			p.Sample = append(p.Sample, &profile.Sample{Location: stack, Value: []int64{int64(w * total * 100), int64(w * total * 1e9)}})
		}
		out = append(out, cpuProfile{ref: record.ProfileRef{Component: name, Phase: "load", Kind: "cpu", Start: from, End: to}, data: p})
	}
	return out
}

func ptr[T any](x T) *T { return &x }

func synthDiagnosis(i int, in rows) *diagnose.Diagnosis {
	r := measure(in)
	rate := *rateOf(r)
	d := &diagnose.Diagnosis{
		Schema: 1, Run: in.meta.ID, Name: "density", Valid: true,
		Harness: diagnose.Harness{CPUSeconds: ptr(r.Harness.CPUSeconds), MillisecondsPerPod: ptr(r.Harness.PerPodMs), CPUShare: ptr(r.Harness.Share)},
		Pods:    diagnose.PodCounts{Expected: synthPods, Seen: synthPods, Bound: synthPods, Running: synthPods, Requests: 10},
		Window:  diagnose.WindowOf{Seconds: *r.Headline[1].Value, PlateauSeconds: *r.Headline[1].Value * 0.8},
		RuledOut: []diagnose.Clear{
			{ID: "etcd-disk", Why: "fsync p99 4.1 ms, 8 % busy"},
			{ID: "apiserver-apf", Why: "no request waited for a seat"},
			{ID: "load-generator", Why: "all 10 operations sent within 1 ms of their due time"},
		},
		NotAssessed: []diagnose.Unknown{{ID: "block-io", Missing: "no block I/O was recorded (eBPF needs CAP_BPF)"}},
		Throughput:  &stat.Throughput{Mean: rate, P50: rate, P90: rate * 1.1, Max: rate * 1.2, N: synthPods, Seconds: *r.Headline[1].Value},
	}
	total := r.Latencies[0].N
	sumOf := func(k int) float64 { return *r.Latencies[k].Mean * float64(total) }
	sched := sumOf(3)
	waits := map[string]float64{"submit": 0.7, "accept": 9, "controller": sumOf(2) - 10, "queue": sched * 0.55, "decide": sched * 0.05, "bind": sched * 0.4, "start": sumOf(4)}
	way := 0.0
	for _, w := range waits {
		way += w
	}
	for _, name := range diagnose.StageNames {
		s := diagnose.Stage{Name: name}
		if w, ok := waits[name]; ok {
			s.WaitSeconds, s.Share, s.RateOut = ptr(w), ptr(w/way), ptr(rate)
			if name == "queue" || name == "bind" || name == "start" || name == "decide" {
				s.RateIn = ptr(math.Min(scenarios[i].controller, rate*2))
			}
		} else {
			s.Reason = "needs the audit log, which was not recorded"
		}
		d.Stages = append(d.Stages, s)
	}
	d.Lost = diagnose.LostTime{PodSeconds: way * 0.95, TotalPodSeconds: way, Explained: 0.93}
	limit := func(c string, v float64) diagnose.Resource {
		return diagnose.Resource{Name: "limit of " + c, Component: c, Kind: "client-limit", Bound: v, Utilisation: rate / v, Reached: rate / v, Demand: 1, Servers: 1}
	}
	d.Limits = []diagnose.Limit{{Component: "kube-controller-manager", QPS: 20, Burst: 30, Source: "default"}, {Component: "kube-scheduler", QPS: 50, Burst: 100, Source: "default"}}
	machine := diagnose.Resource{Name: "cpu of machine", Component: "machine", Kind: "cpu", Bound: 158, Servers: 2, Utilisation: rate / 158, Reached: rate / 158, Demand: 2 / 158.0}
	switch i {
	case 0:
		d.Resources = []diagnose.Resource{limit("kube-controller-manager", 20), limit("kube-scheduler", 50), machine}
		d.Findings = []diagnose.Finding{{
			ID: "kcm-client-limit", Class: diagnose.Bottleneck, Component: "kube-controller-manager", Stage: "controller", Resource: "client-limit",
			CodePath: "k8s.io/client-go/util/flowcontrol.(*tokenBucketRateLimiter).Wait",
			Summary:  "kube-controller-manager creates pods no faster than its own client limit of 20 requests a second allows",
			Cause:    "Its client waits in a token bucket before each request; the API server never sees the queue.",
			Grade:    diagnose.Confirmed, Explains: 0.93,
			Evidence: []diagnose.Evidence{
				{Kind: "rate", Ref: "rest_client_requests_total", Value: rate, Unit: "pods/s", Text: "pods created over the plateau"},
				{Kind: "config", Ref: "--kube-api-qps", Value: 20, Unit: "/s", Text: "limit in force (default; the flag is not set)"},
				{Kind: "wait", Ref: "rest_client_rate_limiter_duration_seconds", Value: 2960, Unit: "s", Text: "waited in the limiter by 5 workers"},
			},
			Advice:     diagnose.Advice{Text: "Raise the controller manager's client limit; the API server's priority and fairness protects it.", Set: map[string]string{"kube-controller-manager.args.kube-api-qps": "-1"}},
			Prediction: &diagnose.Prediction{Resource: "limit of kube-scheduler", Rate: 50, Text: "the scheduler's client limit binds next, at about 50 pods/s"},
			RefutedBy:  "half the limit not giving half the rate",
		}}
	case 1:
		d.Resources = []diagnose.Resource{limit("kube-scheduler", 50), machine}
		d.Findings = []diagnose.Finding{{
			ID: "scheduler-client-limit", Class: diagnose.Bottleneck, Component: "kube-scheduler", Stage: "bind", Resource: "client-limit",
			Summary: "kube-scheduler binds pods no faster than its own client limit of 50 requests a second allows", Grade: diagnose.Confirmed, Explains: 0.88,
			Evidence: []diagnose.Evidence{{Kind: "rate", Ref: "scheduler_schedule_attempts_total", Value: rate, Unit: "pods/s", Text: "pods bound over the plateau"},
				{Kind: "config", Ref: "clientConnection.qps", Value: 50, Unit: "/s", Text: "limit in force (default)"}},
			Advice:     diagnose.Advice{Text: "Raise the scheduler's client limit.", Set: map[string]string{"kube-scheduler.args.kube-api-qps": "-1"}},
			Prediction: &diagnose.Prediction{Resource: "cpu of machine", Rate: 158, Text: "this machine's CPU binds next, at about 158 pods/s"},
		}}
	case 2:
		d.Resources = []diagnose.Resource{machine}
		d.Findings = []diagnose.Finding{{
			ID: "machine-cpu", Class: diagnose.Capacity, Component: "machine", Stage: "controller", Resource: "cpu",
			Summary: "This machine's 2 CPUs are at capacity: 97 % busy", Grade: diagnose.Likely, Explains: 0.61,
			Evidence: []diagnose.Evidence{{Kind: "busy", Ref: "machine", Value: 97, Unit: "%", Text: "CPU busy over the plateau, steal 0 %"}},
			Advice:   diagnose.Advice{Text: "More cores, or fewer pods at once. kube-apiserver takes 46 % of the CPU."},
		}}
	}
	return d
}

func synthPage() Page {
	predictions := []string{"", "about 50 pods/s, held by the scheduler's own limit", "about 158 pods/s, held by this machine's CPU"}
	outcomes := []string{"", "as predicted: proven, and half the limit gave half the rate", "as predicted: proven"}
	var rounds []Round
	for i := range scenarios {
		in := synthRows(i)
		input := Input{Diagnosis: synthDiagnosis(i, in), Prediction: predictions[i], Outcome: outcomes[i]}
		if i > 0 {
			input.Lifted, input.Proven = &synthDiagnosis(i-1, synthRows(i-1)).Findings[0], true
		}
		rounds = append(rounds, round(in, input))
	}
	// A dose stands between the baseline and the round that it speaks for.
	dose := rounds[0]
	dose.Name, dose.Dose, dose.Change = "Round 2, dose", true, []string{"kube-controller-manager.args.kube-api-qps=40"}
	dose.Prediction, dose.Outcome = "40 pods/s", "39.7 pods/s: the dose answers"
	dose.Curves.Step /= 2
	rounds = slices.Insert(rounds, 1, dose)
	rounds[0].Findings[0].Grade, rounds[2].Findings[0].Grade = "proven", "proven"
	return assemble(rounds, RenderOptions{Title: "density: 3,000 pods by Deployment on 100 nodes", Tool: "v0.1.0", Now: synthStart.Add(time.Hour)})
}

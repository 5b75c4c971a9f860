package hollow

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"go.uber.org/goleak"
)

// A process is kubedyno-hollow in a goroutine, spoken to as its parent does.
type process struct {
	t      testing.TB
	stdin  *io.PipeWriter
	events chan Event
	done   chan error
	seen   []Event
}

func startProcess(t testing.TB, conf Config) *process {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p := &process{t: t, stdin: stdin, events: make(chan Event, 10000), done: make(chan error, 1)}
	go func() {
		p.done <- ProcessMain(context.Background(), in, out, io.Discard)
		out.Close()
	}()
	go func() {
		defer close(p.events)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("%v in %s", err, lines.Bytes())
			}
			p.events <- e
		}
	}()
	b, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) await(name string) Event {
	p.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case e, ok := <-p.events:
			if !ok {
				p.t.Fatalf("ended before %q: %+v", name, p.seen)
			}
			p.seen = append(p.seen, e)
			if e.Event == name {
				return e
			}
			if e.Event == "error" {
				p.t.Fatalf("before %q: %s", name, e.Error)
			}
		case <-timeout:
			p.t.Fatalf("no %q", name)
		}
	}
}

// stop closes stdin, as a dying parent does, and wants a quick end.
func (p *process) stop(within time.Duration) {
	p.t.Helper()
	began := time.Now()
	p.stdin.Close()
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("process: %v", err)
		}
		if took := time.Since(began); took > within {
			p.t.Errorf("stopping took %v", took)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatal("does not stop")
	}
	for range p.events {
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func TestFleet(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	api := newFakeAPI(t)
	defer api.server.Close()
	conf := api.config(3)
	conf.Pods = 10
	conf.StartDelay.Median = 1 // so late that no Pending is overtaken on a busy machine
	p := startProcess(t, conf)
	url := p.await("listening").MetricsURL
	if e := p.await("ready"); e.Nodes != 3 || e.ReadySeconds <= 0 || e.SchedulableSeconds <= 0 || len(e.LeftOut) == 0 {
		t.Errorf("ready event %+v", e)
	}
	nodes := 0
	for _, e := range p.seen {
		if e.Event == "node" {
			nodes++
			if e.CreatedMicros == 0 || e.ReadyMicros < e.CreatedMicros || e.SchedulableMicros < e.CreatedMicros {
				t.Errorf("times of %s: %+v", e.Name, e)
			}
		}
	}
	if nodes != 3 {
		t.Errorf("%d node events, want 3", nodes)
	}

	// Ten pods fit on a node; the eleventh is refused.
	for node := range 3 {
		for i := range 11 {
			api.bind(fmt.Sprintf("p-%d-%d", node, i), fmt.Sprintf("hollow-%d", node))
		}
	}
	eventually(t, "30 running and 3 failed", func() bool {
		return maps.Equal(api.phases(), map[v1.PodPhase]int{v1.PodRunning: 30, v1.PodFailed: 3})
	})
	api.mu.Lock()
	ips := map[string]bool{}
	for name, pod := range api.pods {
		if pod.Status.Phase == v1.PodFailed {
			if pod.Status.Reason != "OutOfpods" || !strings.HasPrefix(pod.Status.Message, "Pod was rejected: Node didn't have enough resource: pods") {
				t.Errorf("%s: %s, %s", name, pod.Status.Reason, pod.Status.Message)
			}
			continue
		}
		ips[pod.Status.PodIP] = true
	}
	if len(ips) != 30 {
		t.Errorf("%d different pod addresses, want 30", len(ips))
	}
	api.mu.Unlock()

	// A node counts a pod when its answer has come, a moment after the API server
	// has it.
	wanted := []string{"kubedyno_hollow_pods_running_total 30", `kubedyno_hollow_pod_patches_total{kind="pending"} 30`, "kubedyno_hollow_start_lateness_seconds_count 30", "go_goroutines", "process_cpu_seconds_total"}
	eventually(t, fmt.Sprintf("metrics with each of %q", wanted), func() bool {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return !slices.ContainsFunc(wanted, func(want string) bool { return !strings.Contains(string(b), want) })
	})
	http.DefaultClient.CloseIdleConnections()

	for node := range 3 {
		for i := range 11 {
			api.remove(fmt.Sprintf("p-%d-%d", node, i))
		}
	}
	eventually(t, "no pod", func() bool { return len(api.phases()) == 0 })
	eventually(t, "all events", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.events) == 30*3+3+30 // Pulled, Created, Started; OutOfpods; Killing
	})

	api.mu.Lock()
	var got []string
	for _, r := range api.requests {
		if strings.Contains(r, "pods/p-0-0") {
			method, path, _ := strings.Cut(r, " ")
			if strings.HasSuffix(path, "status") {
				method += " status"
			}
			got = append(got, method)
		}
	}
	api.mu.Unlock()
	want := "GET PATCH status GET PATCH status GET PATCH status GET PATCH status GET PATCH status GET GET DELETE"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("requests of one pod's life:\n got %s\nwant %s", s, want)
	}

	p.stop(time.Second)
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.nodes)+len(api.leases) != 0 {
		t.Errorf("%d nodes and %d leases are left", len(api.nodes), len(api.leases))
	}
}

func TestFleetSurvivesItsServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	api := newFakeAPI(t)
	defer api.server.Close()
	p := startProcess(t, api.config(4))
	p.await("ready")
	api.bind("before", "hollow-0")
	api.bind("vanishing", "hollow-1")
	eventually(t, "running", func() bool { return api.phases()[v1.PodRunning] == 2 })

	// Everything fails, then connections break, then history is lost. What
	// happened meanwhile is learned from the new list.
	tries := 0
	api.mu.Lock()
	api.refuse = func(r *http.Request) int {
		tries++
		return []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusForbidden}[tries%4]
	}
	delete(api.pods, "default/vanishing")
	api.mu.Unlock()
	api.bind("meanwhile", "hollow-2")
	time.Sleep(300 * time.Millisecond)
	api.server.CloseClientConnections()
	time.Sleep(300 * time.Millisecond)
	api.mu.Lock()
	api.refuse = nil
	api.mu.Unlock()
	eventually(t, "meanwhile is running", func() bool { return api.phases()[v1.PodRunning] == 2 })

	eventually(t, "all watches are back", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.watchers) == 8
	})
	api.expire()
	api.bind("after", "hollow-1")
	api.remove("before")
	eventually(t, "after is running, before is gone", func() bool {
		return maps.Equal(api.phases(), map[v1.PodPhase]int{v1.PodRunning: 2})
	})
	p.stop(time.Second)
}

// TestSlowWatcherComesBack: a busy server ends the streams that do not keep up.
// Each time the node comes back as soon as after the first time.
func TestSlowWatcherComesBack(t *testing.T) {
	api := newFakeAPI(t)
	p := startProcess(t, api.config(1))
	p.await("ready")
	// Waits that double would have come to two minutes.
	const ends = 10
	for i := range ends {
		eventually(t, "the watch of pods is open", func() bool {
			api.mu.Lock()
			defer api.mu.Unlock()
			return slices.Contains(slices.Collect(maps.Values(api.watchers)), "pods hollow-0")
		})
		api.bind(fmt.Sprint("pod-", i), "hollow-0")
		eventually(t, "the pod runs", func() bool { return api.phases()[v1.PodRunning] == i+1 })
		api.end("pods hollow-0")
	}
	p.stop(time.Second)
}

// TestDeletedBeforeItStarts: the containers never existed, and the pod fails.
func TestDeletedBeforeItStarts(t *testing.T) {
	api := newFakeAPI(t)
	conf := api.config(1)
	conf.StartDelay = Delay{Distribution: "constant", Median: 3600}
	p := startProcess(t, conf)
	p.await("ready")
	api.bind("early", "hollow-0")
	eventually(t, "pending is told", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.pods["default/early"].Status.ContainerStatuses) == 1
	})
	api.remove("early")
	failed := false
	eventually(t, "no pod", func() bool {
		phases := api.phases()
		failed = failed || phases[v1.PodFailed] == 1
		return len(phases) == 0
	})
	if !failed {
		t.Error("it did not fail")
	}
	p.stop(time.Second)
}

// TestContainersThatEnd: annotations say what containers do, the restart policy
// what becomes of the pod.
func TestContainersThatEnd(t *testing.T) {
	api := newFakeAPI(t)
	p := startProcess(t, api.config(1))
	p.await("ready")
	pods := map[string]struct {
		restart  v1.RestartPolicy
		code     string
		phase    v1.PodPhase
		restarts int32
	}{
		"completes":        {v1.RestartPolicyNever, "0", v1.PodSucceeded, 0},
		"fails":            {v1.RestartPolicyNever, "3", v1.PodFailed, 0},
		"need not restart": {v1.RestartPolicyOnFailure, "0", v1.PodSucceeded, 0},
		"restarts":         {v1.RestartPolicyOnFailure, "3", v1.PodRunning, 1}, // the second time only after 10 s
	}
	for name, c := range pods {
		api.bindPod(strings.ReplaceAll(name, " ", "-"), "hollow-0", func(p *v1.Pod) {
			p.Annotations = map[string]string{RunSeconds: "0.2", ExitCode: c.code}
			p.Spec.RestartPolicy = c.restart
		})
	}
	for name, c := range pods {
		eventually(t, name, func() bool {
			api.mu.Lock()
			defer api.mu.Unlock()
			s := &api.pods["default/"+strings.ReplaceAll(name, " ", "-")].Status
			if s.Phase != c.phase || s.ContainerStatuses[0].RestartCount != c.restarts || s.ContainerStatuses[0].State.Terminated == nil {
				return false
			}
			if got := fmt.Sprint(s.ContainerStatuses[0].State.Terminated.ExitCode); got != c.code {
				t.Errorf("%s: exit code %s, want %s", name, got, c.code)
			}
			return true
		})
	}
	for name := range pods {
		api.remove(strings.ReplaceAll(name, " ", "-"))
	}
	eventually(t, "no pod", func() bool { return len(api.phases()) == 0 })
	p.stop(time.Second)
}

// TestEviction: a pod that is evicted has failed and stays until it is deleted,
// and its place on the node is free.
func TestEviction(t *testing.T) {
	api := newFakeAPI(t)
	conf := api.config(1)
	conf.Pods = 1
	p := startProcess(t, conf)
	p.await("ready")
	api.bindPod("first", "hollow-0", func(p *v1.Pod) {
		p.Annotations = map[string]string{EvictSeconds: "0.2"}
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	})
	evicted := func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		s := &api.pods["default/first"].Status
		return s.Phase == v1.PodFailed && s.Reason == "Evicted" && s.ContainerStatuses[0].State.Terminated != nil
	}
	eventually(t, "evicted", evicted)
	api.bindPod("second", "hollow-0", func(*v1.Pod) {})
	eventually(t, "the second runs", func() bool { return api.phases()[v1.PodRunning] == 1 })
	if !evicted() {
		t.Error("it did not stay as it was")
	}
	for _, name := range []string{"first", "second"} {
		api.remove(name)
	}
	eventually(t, "no pod", func() bool { return len(api.phases()) == 0 })
	p.stop(time.Second)
}

// TestDeletedWhileEvicted: a pod that is deleted while its containers are stopped
// has failed all the same, and they are told to stop once.
func TestDeletedWhileEvicted(t *testing.T) {
	api := newFakeAPI(t)
	conf := api.config(1)
	conf.StopDelay = Delay{Distribution: "constant", Median: 1}
	var last v1.PodStatus
	api.refuse = func(r *http.Request) int {
		if p := api.pods["default/first"]; p != nil && r.Method == http.MethodDelete {
			last = p.Status
		}
		return 0
	}
	p := startProcess(t, conf)
	p.await("ready")
	api.bindPod("first", "hollow-0", func(p *v1.Pod) {
		p.Annotations = map[string]string{EvictSeconds: "0.2"}
	})
	told := func(reason string) (n int) {
		api.mu.Lock()
		defer api.mu.Unlock()
		for _, e := range api.events {
			if e.Reason == reason {
				n++
			}
		}
		return n
	}
	eventually(t, "the eviction is told", func() bool { return told("Evicted") == 1 && told("Killing") > 0 })
	kills := told("Killing")
	api.remove("first")
	eventually(t, "no pod", func() bool { return len(api.phases()) == 0 })
	p.stop(time.Second)
	if last.Phase != v1.PodFailed || last.Reason != "Evicted" {
		t.Errorf("it ended as %s %q", last.Phase, last.Reason)
	}
	if n := told("Killing"); n != kills {
		t.Errorf("its containers were told to stop %d times, %d of them before it was deleted", n, kills)
	}
}

// TestStartWaitsForToken: a kubelet mounts before it starts anything.
func TestStartWaitsForToken(t *testing.T) {
	api := newFakeAPI(t)
	refused := 0
	api.refuse = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/serviceaccounts/default/token") && refused < 3 {
			refused++
			return http.StatusForbidden
		}
		return 0
	}
	p := startProcess(t, api.config(1))
	p.await("ready")
	api.bindPod("mounts", "hollow-0", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
	})
	eventually(t, "it runs", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		running := api.pods["default/mounts"].Status.Phase == v1.PodRunning
		if running && refused < 3 {
			t.Errorf("it ran after %d refusals of its token, before it had one", refused)
		}
		return running
	})
	p.stop(time.Second)
}

func TestStopCommandAndBadInput(t *testing.T) {
	api := newFakeAPI(t)
	p := startProcess(t, api.config(2))
	p.await("ready")
	io.WriteString(p.stdin, "{\"do\":\"stop\"}\n")
	select {
	case err := <-p.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("does not stop")
	}

	for in, want := range map[string]string{
		"":                                     "stdin ended",
		"{\"node\":1":                          "unexpected EOF",
		"{\"nods\":1}\n":                       "unknown field",
		"{\"nodes\":0,\"kubeconfig\":\"x\"}\n": "nodes is 0",
		"{\"nodes\":1}\n":                      "needs a kubeconfig",
		"{\"nodes\":1,\"kubeconfig\":\"/does/not/exist\"}\n":                                        "kubeconfig /does/not/exist",
		"{\"nodes\":1,\"identity\":\"own\",\"server\":\"x\"}\n":                                     "needs nodeCA",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"identity\":\"me\"}\n":                                  "want own, impersonated or pooled",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"namePrefix\":\"A_\"}\n":                                "namePrefix",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"cpu\":\"-1\"}\n":                                       "positive quantity",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"startDelay\":{\"distribution\":\"normal\"}}\n":         "startDelay",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"startDelay\":{\"distribution\":\"lognormal\"}}\n":      "lognormal needs",
		"{\"nodes\":70000,\"kubeconfig\":\"x\"}\n":                                                  "addresses",
		"{\"nodes\":1,\"kubeconfig\":\"x\",\"labels\":{\"a b\":\"c\"}}\n":                           "label",
		"{\"nodes\":1,\"server\":\"https://127.0.0.1:1\",\"nodeCA\":{\"certFile\":\"/nowhere\"}}\n": "node CA",
	} {
		var out, words strings.Builder
		err := ProcessMain(t.Context(), strings.NewReader(in), &out, &words)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
		if !strings.Contains(out.String(), `"event":"error"`) {
			t.Errorf("%q: no error event in %q", in, out.String())
		}
		if !strings.Contains(words.String(), want) {
			t.Errorf("%q: last words %q, want %q", in, words.String(), want)
		}
	}
}

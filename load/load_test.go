package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// parentEnv makes the test binary play a parent that waits to be killed.
const parentEnv = "KUBEDYNO_LOAD_TEST_PARENT"

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == ProcessName:
		if err := ProcessMain(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(parentEnv) != "":
		w, err := Start(context.Background(), StartOptions{Config: Config{Kubeconfig: os.Getenv(parentEnv), RunID: testRun}})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(w.PID())
		p := podPhase(t0Count, "1/s")
		_, _ = w.Run(context.Background(), p, func(record.Operation) {})
		os.Exit(0)
	}
	// The race detector makes every process sleep a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	testRun = "20260102T150405Z-ab12cd"
	testNS  = "kubedyno-ab12cd"
	t0Count = 1000
)

// request is one that the fake API server saw.
type request struct {
	method, path, contentType, accept, agent string
	body                                     []byte
	object                                   runtime.Object
	at                                       time.Time
}

// fakeAPI speaks as much of the API as the generator needs to hear.
type fakeAPI struct {
	kubeconfig string
	server     *httptest.Server

	mu       sync.Mutex
	requests []request
	answer   func(r request) (code int, message string) // nil: all is well
	delay    time.Duration
	noSA     int // requests for the service account to refuse first
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a phase's end cuts off
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	kc := clientcmdapi.NewConfig()
	kc.Clusters["c"] = &clientcmdapi.Cluster{Server: f.server.URL, InsecureSkipTLSVerify: true}
	kc.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	kc.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kc.CurrentContext = "x"
	f.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kc, f.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := request{method: r.Method, path: r.URL.Path, contentType: r.Header.Get("Content-Type"), accept: r.Header.Get("Accept"),
		agent: r.UserAgent(), body: body, at: time.Now()}
	if q.contentType == contentProtobuf {
		q.object, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	}
	f.mu.Lock()
	f.requests = append(f.requests, q)
	delay, answer := f.delay, f.answer
	code, message := http.StatusOK, ""
	switch {
	case strings.HasSuffix(q.path, "/serviceaccounts/default") && f.noSA > 0:
		f.noSA--
		code, message = http.StatusNotFound, `serviceaccounts "default" not found`
	case answer != nil:
		if code, message = answer(q); code == 0 {
			code = http.StatusOK
		}
	}
	f.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", contentProtobuf)
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success", Message: message, Code: int32(code)}
	if code >= 300 {
		status.Status = "Failure"
	}
	out, err := encode(status)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(code)
	_, _ = w.Write(out)
}

func (f *fakeAPI) set(change func()) { f.mu.Lock(); defer f.mu.Unlock(); change() }

// seen lists the requests with the method, to paths that end so.
func (f *fakeAPI) seen(method, suffix string) []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var rs []request
	for _, r := range f.requests {
		if r.method == method && strings.HasSuffix(r.path, suffix) {
			rs = append(rs, r)
		}
	}
	return rs
}

func (f *fakeAPI) generator(t *testing.T, change func(*Config)) *generator {
	t.Helper()
	cfg := Config{Kubeconfig: f.kubeconfig, RunID: testRun, Namespace: testNS}
	if change != nil {
		change(&cfg)
	}
	c, err := newClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return &generator{cfg: cfg, client: c}
}

// phases parses the phases of an experiment, as a run would get them.
func phases(t testing.TB, text string) []experiment.Phase {
	t.Helper()
	e, err := experiment.Parse("test", []byte("name: test\ncluster: {nodes: 1000}\nphases:\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return e.Phases
}

func podPhase(count int, rate string) experiment.Phase {
	r, err := experiment.ParseRate(rate)
	if err != nil {
		panic(err)
	}
	return experiment.Phase{Name: "load", Kind: experiment.KindSteady, Create: &experiment.Create{
		Objects: experiment.Objects{
			Kind: experiment.Pod, Count: count, ObjectName: experiment.DefaultObjectName,
			Pod: &experiment.PodShape{Containers: 1, Image: experiment.DefaultImage},
		},
		Pacing: experiment.Pacing{Rate: r, SendWithin: 10 * time.Second},
	}}
}

// runPhase runs a phase in this process and returns its operations by name.
func runPhase(t *testing.T, g *generator, p experiment.Phase) (Summary, []record.Operation) {
	t.Helper()
	var mu sync.Mutex
	var ops []record.Operation
	s, err := g.run(t.Context(), p, &counters{}, func(op record.Operation) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, op)
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(ops, func(a, b record.Operation) int { return int(a.DueMicros - b.DueMicros) })
	return s, ops
}

func TestKindsAreTheRecords(t *testing.T) {
	for ours, theirs := range map[experiment.PhaseKind]record.PhaseKind{
		experiment.KindStart: record.PhaseStart, experiment.KindWarmUp: record.PhaseWarmUp, experiment.KindSettle: record.PhaseSettle,
		experiment.KindSteady: record.PhaseSteady, experiment.KindDrain: record.PhaseDrain,
	} {
		if string(ours) != string(theirs) {
			t.Errorf("experiment has %q, record has %q", ours, theirs)
		}
	}
}

func TestPodsAsSent(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, func(c *Config) { c.HollowNodes = true })
	p := phases(t, `
- name: load
  create: {kind: Pod, count: 20, rate: 500/s, objectName: "web-{index}", pod: {containers: 2, cpu: 10m, memory: 16Mi, token: false, labels: {app: "a{index}"}}}`)[0]
	s, ops := runPhase(t, g, p)
	if s.Planned != 20 || s.Sent != 20 || s.Failed != 0 || s.Missed != 0 || s.Pods != 20 {
		t.Errorf("summary %+v", s)
	}
	reqs := f.seen("POST", "/api/v1/namespaces/"+testNS+"/pods")
	if len(reqs) != 20 {
		t.Fatalf("%d requests", len(reqs))
	}
	names := map[string]bool{}
	for _, r := range reqs {
		if r.agent != "kubedyno-load" || r.contentType != contentProtobuf || !strings.HasPrefix(r.accept, contentProtobuf) {
			t.Errorf("agent %q, content type %q, accept %q", r.agent, r.contentType, r.accept)
		}
		pod, ok := r.object.(*corev1.Pod)
		if !ok {
			t.Fatalf("got %T", r.object)
		}
		names[pod.Name] = true
		i := strings.TrimPrefix(pod.Name, "web-")
		want := map[string]string{LabelRun: testRun, LabelPhase: "load", "app": "a" + i}
		if fmt.Sprint(pod.Labels) != fmt.Sprint(want) {
			t.Errorf("labels %v, want %v", pod.Labels, want)
		}
		if len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Image != experiment.DefaultImage ||
			pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "10m" || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("spec %+v", pod.Spec)
		}
		if pod.Spec.NodeSelector[LabelRun] != testRun || pod.Spec.Tolerations[0].Key != HollowTaint {
			t.Errorf("not kept on hollow nodes: %+v", pod.Spec)
		}
	}
	if len(names) != 20 {
		t.Errorf("%d names", len(names))
	}
	for i, op := range ops {
		if op.Phase != "load" || op.Verb != "create" || op.Resource != "pods" || op.Namespace != testNS || op.Pods != 1 || op.Code != 200 {
			t.Errorf("operation %+v", op)
		}
		if due := int64(i) * 2000; op.DueMicros-ops[0].DueMicros != due || op.SentMicros < op.DueMicros || op.DoneMicros < op.SentMicros {
			t.Errorf("operation %d: due %d (want %d) sent %d done %d", i, op.DueMicros-ops[0].DueMicros, due, op.SentMicros, op.DoneMicros)
		}
	}
}

func TestDeploymentsThroughTheirLife(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, nil)
	ps := phases(t, `
- name: load
  create: {kind: Deployment, count: 3, replicas: 5, rate: burst}
- scale: {phase: load, replicas: 7, rate: 100/s}
- delete: {phase: load, rate: burst}`)
	const base = "/apis/apps/v1/namespaces/" + testNS + "/deployments"

	s, _ := runPhase(t, g, ps[0])
	if s.Pods != 15 {
		t.Errorf("summary %+v", s)
	}
	for _, r := range f.seen("POST", base) {
		d := r.object.(*appsv1.Deployment)
		if *d.Spec.Replicas != 5 || d.Labels[LabelObject] != d.Name || d.Spec.Template.Labels[LabelObject] != d.Name ||
			d.Spec.Template.Labels[LabelPhase] != "load" || d.Spec.Template.Labels[LabelRun] != testRun {
			t.Errorf("deployment %+v", d)
		}
		for k, v := range d.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("the selector %s=%s misses its pods", k, v)
			}
		}
		if d.Spec.Selector.MatchLabels[LabelObject] != d.Name {
			t.Errorf("the selector takes in others' pods: %v", d.Spec.Selector.MatchLabels)
		}
	}

	s, ops := runPhase(t, g, ps[1])
	if s.Sent != 3 || ops[0].Verb != "scale" || ops[0].Pods != 7 {
		t.Errorf("scale: %+v, %+v", s, ops[0])
	}
	if r := f.seen("PATCH", base+"/load-1/scale"); len(r) != 1 || string(r[0].body) != `{"spec":{"replicas":7}}` || r[0].contentType != contentMergePatch {
		t.Errorf("scale requests %+v", r)
	}

	s, ops = runPhase(t, g, ps[2])
	if s.Sent != 3 || ops[0].Verb != "delete" || s.Pods != 0 || len(f.seen("DELETE", base+"/load-2")) != 1 {
		t.Errorf("delete: %+v, %+v", s, ops)
	}
}

// A server that answers late must not make the generator send late.
func TestSlowServerDoesNotDelayLoad(t *testing.T) {
	f := newFakeAPI(t)
	f.delay = 500 * time.Millisecond
	g := f.generator(t, nil)
	s, ops := runPhase(t, g, podPhase(200, "200/s"))
	if took := s.End.Sub(s.Start); took < 1400*time.Millisecond {
		t.Errorf("200 operations at 200/s with 0.5 s an answer took %v", took)
	}
	if s.Missed != 0 || s.Failed != 0 {
		t.Errorf("summary %+v", s)
	}
	// At 200/s and 0.5 s an answer 100 are under way, and more where the machine
	// is slow to send; as many as it has connections where it waits for answers.
	most := 0
	for _, at := range ops {
		n := 0
		for _, o := range ops {
			if o.SentMicros <= at.SentMicros && at.SentMicros < o.DoneMicros {
				n++
			}
		}
		most = max(most, n)
	}
	if most < 80 {
		t.Errorf("at most %d operations were under way at a time: %+v", most, s)
	}
	if last := ops[199]; last.DoneMicros-last.DueMicros < 500_000 {
		t.Errorf("latency of the last: %d µs", last.DoneMicros-last.DueMicros)
	}
}

func TestErrorsAreRecordedAndNotRetried(t *testing.T) {
	f := newFakeAPI(t)
	codes := map[string]int{"load-0": 409, "load-1": 429, "load-2": 500, "load-3": 503}
	f.answer = func(r request) (int, string) {
		pod, ok := r.object.(*corev1.Pod)
		if !ok {
			return 0, ""
		}
		return codes[pod.Name], fmt.Sprintf("pods %q went wrong", pod.Name)
	}
	g := f.generator(t, nil)
	s, ops := runPhase(t, g, podPhase(6, "100/s"))
	if s.Sent != 6 || s.Failed != 4 || s.Pods != 2 {
		t.Errorf("summary %+v", s)
	}
	if n := len(f.seen("POST", "/pods")); n != 6 {
		t.Errorf("%d requests for 6 operations", n)
	}
	if op := ops[0]; op.Code != 409 || op.Error != `409 pods "…" went wrong` {
		t.Errorf("operation %+v", op)
	}
	if want := `create pods kubedyno-ab12cd/load-0: 409 pods "…" went wrong`; s.FirstError != want {
		t.Errorf("first error %q, want %q", s.FirstError, want)
	}
	// Only what was created is deleted.
	s, _ = runPhase(t, g, phases(t, `
- {name: load, create: {kind: Pod, count: 6, rate: burst}}
- {delete: {phase: load, rate: burst}}`)[1])
	if s.Planned != 2 {
		t.Errorf("delete: %+v", s)
	}
}

func TestConnectionRefused(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, nil)
	f.server.Close()
	s, ops := runPhase(t, g, podPhase(3, "burst"))
	if s.Failed != 3 || ops[0].Code != 0 || !strings.Contains(ops[0].Error, "connection refused") || strings.Contains(ops[0].Error, "https://") {
		t.Errorf("summary %+v, operation %+v", s, ops[0])
	}
}

func TestNamespaceIsReadyFirst(t *testing.T) {
	f := newFakeAPI(t)
	f.noSA = 3
	w := start(t, f)
	if w.Namespace() != testNS {
		t.Errorf("namespace %q", w.Namespace())
	}
	ns := f.seen("POST", "/api/v1/namespaces")[0].object.(*corev1.Namespace)
	if ns.Name != testNS || ns.Labels[LabelRun] != testRun {
		t.Errorf("namespace %+v", ns)
	}
	if n := len(f.seen("GET", "/serviceaccounts/default")); n != 4 {
		t.Errorf("asked %d times for the service account", n)
	}
}

func start(t *testing.T, f *fakeAPI) *Worker {
	t.Helper()
	w, err := Start(t.Context(), StartOptions{Config: Config{Kubeconfig: f.kubeconfig, RunID: testRun}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	f := newFakeAPI(t)
	f.answer = func(r request) (int, string) {
		if r.method == "POST" {
			return 403, "namespaces is forbidden"
		}
		return 404, "not found"
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"forbidden":     {Config{Kubeconfig: f.kubeconfig, RunID: testRun}, "create namespace kubedyno-ab12cd: 403 namespaces is forbidden"},
		"no kubeconfig": {Config{Kubeconfig: "/does/not/exist", RunID: testRun}, "no such file or directory"},
		"no context":    {Config{Kubeconfig: f.kubeconfig, Context: "other", RunID: testRun}, `context "other" does not exist`},
	} {
		_, err := Start(t.Context(), StartOptions{Config: c.cfg})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	_, err := Start(t.Context(), StartOptions{Executable: "/does/not/exist"})
	if err == nil || !strings.HasPrefix(err.Error(), "start kubedyno-load: ") {
		t.Errorf("no executable: %v", err)
	}
	_, err = Start(t.Context(), StartOptions{Wrap: func(*exec.Cmd) error { return errors.New("no cgroup") }})
	if err == nil || err.Error() != "start kubedyno-load: no cgroup" {
		t.Errorf("wrap: %v", err)
	}
}

func TestWorkerRunsPhases(t *testing.T) {
	f := newFakeAPI(t)
	w := start(t, f)
	var ops []record.Operation
	s, err := w.Run(t.Context(), podPhase(300, "1000/s"), func(op record.Operation) { ops = append(ops, op) })
	if err != nil {
		t.Fatal(err)
	}
	if s.Sent != 300 || len(ops) != 300 || len(f.seen("POST", "/pods")) != 300 {
		t.Errorf("%d operations, summary %+v", len(ops), s)
	}
	if p := w.Progress(); p.Phase != "load" || p.Planned != 300 || p.Done != 300 {
		t.Errorf("progress %+v", p)
	}
	if err := w.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	// The fake's namespace does not carry our label, so it must be left alone.
	if n := len(f.seen("DELETE", testNS)); n != 0 {
		t.Errorf("%d deletions of a namespace that is not ours", n)
	}
	if _, err := w.Run(t.Context(), experiment.Phase{Name: "x", Settle: &experiment.Settle{}}, nil); err == nil ||
		err.Error() != `phase "x" has no load: its action is "settle"` {
		t.Errorf("settle: %v", err)
	}
}

func TestCancelEndsAPhaseAndNotTheProcess(t *testing.T) {
	f := newFakeAPI(t)
	w := start(t, f)
	f.set(func() { f.delay = time.Minute })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	began := time.Now()
	n := 0
	s, err := w.Run(ctx, podPhase(1000, "50/s"), func(record.Operation) { n++ })
	if took := time.Since(began); took > 10*time.Second { // the phase takes 20 s, an answer a minute
		t.Errorf("took %v", took)
	}
	if !errors.Is(err, context.Canceled) || s.Sent == 0 || s.Failed != s.Sent || s.Sent+s.Missed != 1000 || n != 1000 {
		t.Errorf("error %v, %d operations, summary %+v", err, n, s)
	}
	f.set(func() { f.delay = 0 })
	if s, err := w.Run(t.Context(), podPhase(5, "burst"), nil); err != nil || s.Pods != 5 {
		t.Errorf("after a cancelled phase: %v, %+v", err, s)
	}
}

func TestStopInMidPhase(t *testing.T) {
	f := newFakeAPI(t)
	w := start(t, f)
	f.set(func() { f.delay = time.Minute })
	time.AfterFunc(200*time.Millisecond, func() {
		began := time.Now()
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second { // the phase takes 20 s, an answer a minute
			t.Errorf("stopping took %v", took)
		}
	})
	if _, err := w.Run(t.Context(), podPhase(1000, "50/s"), nil); err == nil {
		t.Error("a stopped phase has no error")
	}
	if w.Stop() != nil {
		t.Error("the second stop fails")
	}
}

func TestKilledGeneratorIsToldOf(t *testing.T) {
	f := newFakeAPI(t)
	w := start(t, f)
	time.AfterFunc(200*time.Millisecond, func() { _ = syscall.Kill(w.PID(), syscall.SIGKILL) })
	_, err := w.Run(t.Context(), podPhase(1000, "50/s"), nil)
	var exit *ExitError
	if !errors.As(err, &exit) || err.Error() != "kubedyno-load exited early (signal: killed)" {
		t.Errorf("got %v", err)
	}
	select {
	case <-w.Done():
	default:
		t.Error("not done")
	}
	if _, err := w.Run(t.Context(), podPhase(1, "burst"), nil); !errors.As(err, &exit) {
		t.Errorf("afterwards: %v", err)
	}
}

// A parent that is killed cannot end its child: the closed pipe must.
func TestKilledParentEndsGenerator(t *testing.T) {
	f := newFakeAPI(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+f.kubeconfig)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || convErr != nil {
		t.Fatalf("parent said %q: %v", line, errors.Join(err, parent.Process.Kill(), parent.Wait()))
	}
	time.Sleep(300 * time.Millisecond) // into the phase
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // signal: killed
	for began := time.Now(); running(pid); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("the generator (pid %d) outlives its parent", pid)
		}
	}
}

// running reports whether the process exists and is no zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// A reader that does not read must not hold up whoever sends.
func TestOutboxNeverBlocks(t *testing.T) {
	r, w := io.Pipe()
	o := newOutbox(w, func(error) {})
	for i := range 10_000 {
		o.send(event{Op: &record.Operation{Name: strconv.Itoa(i)}})
	}
	got := make(chan int)
	go func() {
		n := 0
		for dec := json.NewDecoder(r); ; n++ {
			var e event
			if dec.Decode(&e) != nil {
				break
			}
			if e.Op.Name != strconv.Itoa(n) {
				t.Errorf("event %d is %q", n, e.Op.Name)
			}
		}
		got <- n
	}()
	o.close()
	w.Close()
	if n := <-got; n != 10_000 {
		t.Errorf("%d events of 10000", n)
	}
}

// What it costs to make the bodies of requests: compiling is not in it.
func BenchmarkBody(b *testing.B) {
	for name, text := range map[string]string{
		"pod":        `{kind: Pod, count: 6, rate: burst, pod: {cpu: 10m, memory: 16Mi}}`,
		"deployment": `{kind: Deployment, count: 6, replicas: 10, rate: burst, pod: {cpu: 10m, memory: 16Mi}}`,
		"manifest":   `{count: 6, rate: burst, object: {apiVersion: v1, kind: Pod, metadata: {labels: {app: "a{index}"}}, spec: {containers: [{name: main, image: x, resources: {requests: {cpu: 10m, memory: 16Mi}}}]}}}`,
		"custom":     `{count: 6, rate: burst, object: {apiVersion: example.com/v1, kind: Widget, metadata: {labels: {app: "a{index}"}}, spec: {size: 5, text: "x {index}"}}}`,
	} {
		b.Run(name, func(b *testing.B) {
			ps := phases(b, "- {name: load, create: "+text+"}")
			p, err := compile(Config{RunID: testRun, Namespace: testNS}, "load", ps[0].Create.Objects, offline)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := p.create.body(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// offline knows every kind.
func offline(gvk schema.GroupVersionKind) (metav1.APIResource, error) {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return metav1.APIResource{Name: plural.Resource, Kind: gvk.Kind, Namespaced: true}, nil
}

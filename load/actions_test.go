package load

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// discovery answers what the API server knows, by path.
var discovery = map[string]any{
	"/api/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "pods/status", Kind: "Pod", Namespaced: true},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "secrets", Kind: "Secret", Namespaced: true},
		{Name: "services", Kind: "Service", Namespaced: true},
		{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true},
		{Name: "persistentvolumes", Kind: "PersistentVolume"},
	}},
	"/apis/apps/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "deployments", Kind: "Deployment", Namespaced: true}, {Name: "statefulsets", Kind: "StatefulSet", Namespaced: true},
		{Name: "daemonsets", Kind: "DaemonSet", Namespaced: true},
	}},
	"/apis/batch/v1":       metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true}}},
	"/apis/example.com/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "widgetries", Kind: "Widget", Namespaced: true}}},
	"/apis/example.com":    metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}},
}

// discover lets the fake tell what it knows, and hands other requests on.
func discover(f *fakeAPI) {
	next := f.server.Config.Handler
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known, ok := discovery[r.URL.Path]; ok {
			w.Header().Set("Content-Type", contentJSON)
			_ = json.NewEncoder(w).Encode(known)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func manifestPhase(t *testing.T, text string) experiment.Phase {
	return phases(t, "- name: load\n  create:\n    count: 2\n    rate: burst\n    object:\n"+indent(text, "      "))[0]
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by) + "\n"
}

// Objects of any kind arrive as the manifest has them, with the run's own
// labels, each with its number, as protobuf where the kind is built in.
func TestManifestsAsSent(t *testing.T) {
	const pod = `
  template:
    metadata: {labels: {app: "a{index}"}}
    spec: {containers: [{name: main, image: x}]}
`
	for _, c := range []struct {
		manifest, path string
		pods           int
		check          func(t *testing.T, r request)
	}{
		{"apiVersion: apps/v1\nkind: StatefulSet\nspec:\n  replicas: 3\n  serviceName: s\n" + pod[1:], "/apis/apps/v1/namespaces/" + testNS + "/statefulsets", 3,
			func(t *testing.T, r request) {
				s := r.object.(*appsv1.StatefulSet)
				if *s.Spec.Replicas != 3 || s.Spec.Selector.MatchLabels[LabelObject] != s.Name || s.Spec.Template.Labels[LabelObject] != s.Name ||
					s.Spec.Template.Labels["app"] != "a"+strings.TrimPrefix(s.Name, "load-") || s.Spec.Template.Labels[LabelPhase] != "load" {
					t.Errorf("%+v", s)
				}
			}},
		{"apiVersion: apps/v1\nkind: StatefulSet\nspec:\n  template: {spec: {volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {metadata: {labels: {of: me}}}}}]}}\n  volumeClaimTemplates: [{metadata: {name: data}}]\n",
			"/apis/apps/v1/namespaces/" + testNS + "/statefulsets", 1,
			func(t *testing.T, r request) { // its claims are told from others by labels
				s := r.object.(*appsv1.StatefulSet)
				kept, own := s.Spec.VolumeClaimTemplates[0].Labels, s.Spec.Template.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Labels
				if kept[LabelRun] != testRun || kept[LabelPhase] != "load" || own[LabelRun] != testRun || own[LabelPhase] != "load" || own["of"] != "me" {
					t.Errorf("%v, %v", kept, own)
				}
			}},
		{"apiVersion: apps/v1\nkind: DaemonSet\nspec:\n" + pod[1:], "/apis/apps/v1/namespaces/" + testNS + "/daemonsets", 7,
			func(t *testing.T, r request) {
				if d := r.object.(*appsv1.DaemonSet); d.Spec.Template.Spec.Tolerations[0].Key != HollowTaint {
					t.Errorf("%+v", d)
				}
			}},
		{"apiVersion: batch/v1\nkind: Job\nspec:\n  completions: 4\n" + pod[1:], "/apis/batch/v1/namespaces/" + testNS + "/jobs", 4,
			func(t *testing.T, r request) {
				if j := r.object.(*batchv1.Job); j.Spec.Selector != nil || j.Spec.Template.Labels[LabelRun] != testRun {
					t.Errorf("%+v", j)
				}
			}},
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"c{index}\", annotations: {at: \"{namespace}/{phase}\"}}\ndata: {who: \"number {index} of {phase}\", raw: \"{{index}} ${x}\"}\n",
			"/api/v1/namespaces/" + testNS + "/configmaps", 0,
			func(t *testing.T, r request) {
				m := r.object.(*corev1.ConfigMap)
				if i := strings.TrimPrefix(m.Name, "c"); m.Data["who"] != "number "+i+" of load" || m.Data["raw"] != "{index} ${x}" || m.Annotations["at"] != testNS+"/load" {
					t.Errorf("%+v", m)
				}
			}},
		{"apiVersion: v1\nkind: Secret\nstringData: {password: \"x{index}\"}\n", "/api/v1/namespaces/" + testNS + "/secrets", 0,
			func(t *testing.T, r request) {
				if s := r.object.(*corev1.Secret); s.StringData["password"] != "x"+strings.TrimPrefix(s.Name, "load-") {
					t.Errorf("%+v", s)
				}
			}},
		{"apiVersion: v1\nkind: Service\nspec: {selector: {app: \"a{index}\"}, ports: [{port: 80, targetPort: web}]}\n", "/api/v1/namespaces/" + testNS + "/services", 0,
			func(t *testing.T, r request) {
				if s := r.object.(*corev1.Service); s.Spec.Ports[0].TargetPort.StrVal != "web" {
					t.Errorf("%+v", s)
				}
			}},
		{"apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n", "/api/v1/namespaces/" + testNS + "/persistentvolumeclaims", 0,
			func(t *testing.T, r request) {
				if p := r.object.(*corev1.PersistentVolumeClaim); p.Spec.Resources.Requests.Storage().String() != "1Gi" {
					t.Errorf("%+v", p)
				}
			}},
		{"apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, hostPath: {path: \"/x/{index}\"}}\n", "/api/v1/persistentvolumes", 0,
			func(t *testing.T, r request) {
				if p := r.object.(*corev1.PersistentVolume); p.Namespace != "" || p.Spec.HostPath.Path != "/x/"+strings.TrimPrefix(p.Name, "load-") {
					t.Errorf("%+v", p)
				}
			}},
		{"apiVersion: example.com/v1\nkind: Widget\nspec: {size: 5, parts: [{name: \"p{index}\"}]}\n", "/apis/example.com/v1/namespaces/" + testNS + "/widgetries", 0,
			func(t *testing.T, r request) {
				var m map[string]any
				if err := json.Unmarshal(r.body, &m); err != nil || r.contentType != contentJSON || !strings.Contains(string(r.body), `"size":5`) {
					t.Errorf("%v %s", err, r.body)
				}
			}},
	} {
		f := newFakeAPI(t)
		discover(f)
		g := f.generator(t, func(cfg *Config) { cfg.HollowNodes, cfg.Nodes = true, 7 })
		s, ops := runPhase(t, g, manifestPhase(t, c.manifest))
		if s.Failed != 0 || s.Sent != 2 || s.Pods != 2*c.pods {
			t.Errorf("%s: %+v", c.path, s)
			continue
		}
		reqs := f.seen("POST", c.path)
		if len(reqs) != 2 || ops[0].Name == ops[1].Name || bytes.Equal(reqs[0].body, reqs[1].body) {
			t.Errorf("%s: %d requests, %+v", c.path, len(reqs), ops)
			continue
		}
		for _, r := range reqs {
			if r.object == nil && r.contentType == contentProtobuf {
				t.Fatalf("%s: cannot be decoded", c.path)
			}
			c.check(t, r)
		}
	}
}

// Bodies are made by many goroutines at once from a few copies.
func TestBodiesDoNotMix(t *testing.T) {
	p, err := compile(Config{RunID: testRun, Namespace: testNS}, "load", manifestPhase(t, "apiVersion: v1\nkind: ConfigMap\ndata: {a: \"{index}\", b: \"x{index}y{index}\"}").Create.Objects, offline)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for w := range 8 {
		go func() {
			for i := w; i < 4000; i += 8 {
				body, err := p.apply.body(i)
				if want := fmt.Sprintf(`"data":{"a":"%d","b":"x%dy%d"}`, i, i, i); err != nil || !bytes.Contains(body, []byte(want)) || !bytes.Contains(body, fmt.Appendf(nil, `"name":"load-%d"`, i)) {
					done <- fmt.Errorf("%d: %v %s", i, err, body)
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestClusterScopedOnlyInLabs(t *testing.T) {
	f := newFakeAPI(t)
	discovery["/apis/wide.example.com/v1"] = metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "worlds", Kind: "World"}}}
	discover(f)
	p := manifestPhase(t, "apiVersion: wide.example.com/v1\nkind: World")
	for existing, want := range map[bool]string{true: "a World belongs to no namespace", false: ""} {
		g := f.generator(t, func(c *Config) { c.Existing = existing })
		if err := g.check(t.Context(), []experiment.Phase{p}); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("existing %v: %v", existing, err)
		}
	}
	err := f.generator(t, nil).check(t.Context(), []experiment.Phase{manifestPhase(t, "apiVersion: example.com/v1\nkind: Gadget")})
	if err == nil || err.Error() != `phase "load": the API server knows no kind Gadget in example.com/v1` {
		t.Error(err)
	}
}

func TestPatchUpdateApply(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, nil)
	ps := phases(t, `
- {name: load, apply: {kind: Deployment, count: 2, replicas: 5, rate: burst}}
- {name: mark, patch: {phase: load, count: 5, rate: burst, patch: {metadata: {annotations: {turn: "{index}", old: null}}}}}
- {name: roll, update: {phase: load, rate: burst, pods: {spec: {containers: [{name: main, image: "y{index}"}]}}}}
- {name: again, apply: {phase: load, count: 4, rate: burst}}`)
	const base = "/apis/apps/v1/namespaces/" + testNS + "/deployments"

	s, ops := runPhase(t, g, ps[0])
	applied := f.seen("PATCH", base+"/load-1")
	if s.Pods != 10 || len(applied) != 1 || applied[0].contentType != contentApplyPatch || ops[0].Verb != "apply" {
		t.Errorf("apply: %+v %+v", s, ops)
	}
	if body := string(applied[0].body); strings.Contains(body, "null") || !strings.Contains(body, `"kind":"Deployment"`) || !strings.Contains(body, `"replicas":5`) || strings.Contains(body, "status") {
		t.Errorf("applied %s", body)
	}
	s, ops = runPhase(t, g, ps[1])
	if s.Sent != 5 || s.Pods != 0 || len(f.seen("PATCH", base+"/load-0")) != 4 || ops[0].Verb != "patch" {
		t.Errorf("patch: %+v, %d requests", s, len(f.seen("PATCH", base+"/load-0")))
	}
	if r := f.seen("PATCH", base+"/load-1")[1]; string(r.body) != `{"metadata":{"annotations":{"old":null,"turn":"1"}}}` || r.contentType != contentMergePatch {
		t.Errorf("patched %s as %s", r.body, r.contentType)
	}
	s, ops = runPhase(t, g, ps[2])
	if r := f.seen("PATCH", base+"/load-1")[3]; s.Pods != 10 || ops[0].Pods != 5 || r.contentType != contentStrategicPatch ||
		string(r.body) != `{"spec":{"template":{"metadata":{"annotations":{"kubedyno.io/update":"roll"}},"spec":{"containers":[{"image":"y1","name":"main"}]}}}}` {
		t.Errorf("update: %+v %s", s, r.body)
	}
	s, ops = runPhase(t, g, ps[3])
	if s.Sent != 4 || s.Pods != 0 || ops[0].Pods != 0 {
		t.Errorf("apply again: %+v", s)
	}
}

// The oldest go first, new ones get new names, and what is deleted afterwards is
// what is left.
func TestChurn(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, nil)
	ps := phases(t, `
- {name: load, create: {kind: Deployment, count: 10, replicas: 2, rate: burst}}
- {name: turn, churn: {phase: load, percent: 30, cycles: 4, rate: 1000/s}}
- {name: clear, delete: {phase: load, rate: burst}}`)
	runPhase(t, g, ps[0])
	s, ops := runPhase(t, g, ps[1])
	var verbs, deleted, created []string
	for _, op := range ops {
		verbs = append(verbs, op.Verb)
		if op.Verb == "delete" {
			deleted = append(deleted, strings.TrimPrefix(op.Name, "load-"))
		} else {
			created = append(created, strings.TrimPrefix(op.Name, "load-"))
		}
	}
	if want := strings.Repeat("delete delete delete create create create ", 4); strings.Join(verbs, " ")+" " != want || s.Pods != 24 {
		t.Errorf("%v, %+v", verbs, s)
	}
	if fmt.Sprint(deleted) != "[0 1 2 3 4 5 6 7 8 9 10 11]" || fmt.Sprint(created) != "[10 11 12 13 14 15 16 17 18 19 20 21]" {
		t.Errorf("deleted %v, created %v", deleted, created)
	}
	_, ops = runPhase(t, g, ps[2])
	var left []string
	for _, op := range ops {
		left = append(left, strings.TrimPrefix(op.Name, "load-"))
	}
	slices.Sort(left)
	if fmt.Sprint(left) != "[12 13 14 15 16 17 18 19 20 21]" {
		t.Errorf("left %v", left)
	}
}

// Each cycle begins at its own time.
func TestChurnEvery(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, nil)
	ps := phases(t, `
- {name: load, create: {kind: Pod, count: 4, rate: burst}}
- {name: turn, churn: {phase: load, percent: 50, for: 500ms, every: 200ms, rate: burst}}`)
	runPhase(t, g, ps[0])
	s, ops := runPhase(t, g, ps[1])
	if s.Sent != 12 {
		t.Fatalf("%+v", s)
	}
	for i, op := range ops {
		if due := int64(i/4) * 200_000; op.DueMicros-ops[0].DueMicros != due {
			t.Errorf("operation %d is due at %d µs, want %d", i, op.DueMicros-ops[0].DueMicros, due)
		}
	}
}

// reads answers reads as an API server does, in pages of its own choosing.
func reads(f *fakeAPI, seen *[]url.Values) {
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f.mu.Lock()
		*seen = append(*seen, q)
		f.mu.Unlock()
		if q.Get("watch") != "" {
			w.Header().Set("Content-Type", contentProtobuf+";stream=watch")
			w.WriteHeader(200)
			if q.Get("sendInitialEvents") != "" {
				// The mark comes in two parts, after a lot of other bytes.
				_, _ = w.Write(bytes.Repeat([]byte("x"), 70_000))
				mark := []byte(metav1.InitialEventsAnnotationKey)
				_, _ = w.Write(mark[:5])
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
				_, _ = w.Write(mark[5:])
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]corev1.Pod, 40)}
		for i := range list.Items {
			list.Items[i].Name = strings.Repeat("long", 100)
		}
		if q.Get("limit") != "" && q.Get("continue") != "page-3" {
			list.Continue = map[string]string{"": "page-2", "page-2": "page-3"}[q.Get("continue")]
		}
		if strings.Contains(r.URL.Path, "widgetries") {
			w.Header().Set("Content-Type", contentJSON)
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		w.Header().Set("Content-Type", contentProtobuf)
		body, _ := encode(list)
		_, _ = w.Write(body)
	})
}

func TestReads(t *testing.T) {
	for kind, c := range map[string]struct {
		extra    string
		requests int // for one operation
		check    func(q url.Values) bool
	}{
		"stale-list":  {"", 1, func(q url.Values) bool { return q.Get("resourceVersion") == "0" }},
		"quorum-list": {"selector: \"app=a\"", 1, func(q url.Values) bool { return !q.Has("resourceVersion") && q.Get("labelSelector") == "app=a" }},
		"paged-list":  {"limit: 40", 3, func(q url.Values) bool { return q.Get("limit") == "40" }},
		"watch":       {"for: 50ms", 1, func(q url.Values) bool { return q.Get("watch") == "true" && !q.Has("sendInitialEvents") }},
		"watch-list":  {"", 1, func(q url.Values) bool { return q.Get("resourceVersionMatch") == "NotOlderThan" }},
	} {
		for _, resource := range []string{"pods", "widgetries.example.com"} {
			f := newFakeAPI(t)
			var seen []url.Values
			reads(f, &seen)
			discover(f)
			g := f.generator(t, nil)
			s, ops := runPhase(t, g, phases(t, fmt.Sprintf(`
- {name: look, read: {mix: [{kind: %s, resource: %s, %s}], count: 3, rate: 100/s}}`, kind, resource, strings.TrimSuffix(c.extra+", ", ", ")))[0])
			if s.Failed != 0 || len(seen) != 3*c.requests || ops[0].Verb != kind || ops[0].Namespace != testNS || s.Latency[kind].N != 3 {
				t.Errorf("%s of %s: %+v, %d requests, %+v", kind, resource, s, len(seen), ops[0])
			}
			for _, q := range seen {
				if !c.check(q) {
					t.Errorf("%s of %s: asked %v", kind, resource, q)
				}
			}
			if took := ops[0].DoneMicros - ops[0].SentMicros; kind == "watch-list" && took < 20_000 {
				t.Errorf("%s of %s was answered after %d µs, before its mark came", kind, resource, took)
			}
		}
	}
}

// Gets name objects that are there, and a mix keeps its shares.
func TestMixOfReads(t *testing.T) {
	f := newFakeAPI(t)
	discover(f)
	g := f.generator(t, nil)
	ps := phases(t, `
- {name: load, create: {kind: Pod, count: 5, rate: burst}}
- {name: look, read: {mix: [{kind: stale-get, shares: 3, phase: load}, {kind: quorum-list, resource: pods, namespace: all}], count: 400, rate: burst}}`)
	runPhase(t, g, ps[0])
	run := func() (gets int, names string) {
		_, ops := runPhase(t, g, ps[1])
		for _, op := range ops {
			if op.Verb == "stale-get" {
				gets++
				names += op.Name
			} else if op.Namespace != "" || op.Name != "" {
				t.Errorf("%+v", op)
			}
		}
		return gets, names
	}
	gets, _ := run()
	if gets < 260 || gets > 340 {
		t.Errorf("%d of 400 are gets, want about 300", gets)
	}
	if again, _ := run(); again != gets {
		t.Errorf("the same seed draws %d gets, then %d", gets, again)
	}
	for i := range 5 {
		if len(f.seen("GET", fmt.Sprintf("/pods/load-%d", i))) == 0 {
			t.Errorf("load-%d was never read", i)
		}
	}
}

// frozen is an API server that answers at once, but for a stretch in which it
// answers nothing, as one under SIGSTOP.
func frozen(f *fakeAPI, from, until time.Duration) {
	next := f.server.Config.Handler
	began := time.Now()
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := time.Since(began); at > from && at < until {
			time.Sleep(until - at)
		}
		next.ServeHTTP(w, r)
	})
}

// A stall of 2 s is in the 99th percentile of an open loop, and what could not be
// sent in time is counted. The same stall shows as a few slow operations of a
// closed loop, which says so.
func TestFrozenServer(t *testing.T) {
	const stall = 2 * time.Second
	pod := `kind: Pod, count: 900`
	open := phases(t, `- {name: load, create: {`+pod+`, rate: 300/s, inFlight: 100, sendWithin: 300ms}}`)[0]
	f := newFakeAPI(t)
	frozen(f, 500*time.Millisecond, 500*time.Millisecond+stall)
	s, ops := runPhase(t, f.generator(t, nil), open)
	l := s.Latency["create"]
	if l.N != 900 || l.P99 < stall*9/10 || l.Max < stall*9/10 || l.Unanswered != s.Missed {
		t.Errorf("p99 of %d operations is %v, with a stall of %v", l.N, l.P99, stall)
	}
	var answered []time.Duration // what was sent, from when it was due
	missed := 0
	for _, op := range ops {
		if op.SentMicros == 0 {
			missed++
			continue
		}
		answered = append(answered, time.Duration(op.DoneMicros-op.DueMicros)*time.Microsecond)
	}
	if want := fmt.Sprintf("%d without an answer (n=900)", s.Missed); !strings.HasSuffix(s.LatencyText(), want) {
		t.Errorf("%q does not end in %q", s.LatencyText(), want)
	}
	slices.Sort(answered)
	if p99 := nearestRank(answered, 0.99); p99 < stall*9/10 || p99 == Never {
		t.Errorf("p99 of what was sent is %v", p99)
	}
	if s.Missed != missed || missed < 100 || s.Sent+s.Missed != 900 {
		t.Errorf("%d are missed, %d in the operations, of %d", s.Missed, missed, s.Planned)
	}
	if s.HidesStalls() != "" {
		t.Errorf("an open loop says %q", s.HidesStalls())
	}

	closed := phases(t, `- {name: load, create: {`+pod+`, clients: 3, think: 5ms}}`)[0]
	f = newFakeAPI(t)
	frozen(f, 500*time.Millisecond, 500*time.Millisecond+stall)
	s, ops = runPhase(t, f.generator(t, nil), closed)
	slow := 0
	for _, op := range ops {
		if op.DoneMicros-op.DueMicros > stall.Microseconds()/2 {
			slow++
		}
	}
	if l := s.Latency["create"]; l.P99 > stall/2 || slow > 3 || slow == 0 || s.Missed != 0 {
		t.Errorf("closed: p99 %v, %d slow operations, %d missed", l.P99, slow, s.Missed)
	}
	if text := s.HidesStalls(); !strings.Contains(text, "closed loop of 3 clients") || !strings.Contains(text, "coordinated omission") {
		t.Errorf("a closed loop says %q", text)
	}
}

// A closed loop of reads goes on for its time and knows then how many it were.
func TestClosedReads(t *testing.T) {
	f := newFakeAPI(t)
	discover(f)
	f.delay = 20 * time.Millisecond
	s, ops := runPhase(t, f.generator(t, nil), phases(t, `- {name: look, read: {mix: [{kind: stale-list, resource: pods}], for: 300ms, clients: 2}}`)[0])
	if s.Planned != len(ops) || s.Sent != len(ops) || len(ops) < 4 || len(ops) > 32 {
		t.Errorf("%d operations, %+v", len(ops), s)
	}
}

// Phases of a group run at the same time in one process.
func TestPhasesTogether(t *testing.T) {
	f := newFakeAPI(t)
	w := start(t, f)
	f.set(func() { f.delay = 200 * time.Millisecond })
	type result struct {
		s   Summary
		ops []record.Operation
		err error
	}
	results := make(chan result, 3)
	for i := range 3 {
		go func() {
			p := podPhase(50, "50/s")
			p.Name = fmt.Sprintf("p%d", i)
			var r result
			r.s, r.err = w.Run(t.Context(), p, func(op record.Operation) { r.ops = append(r.ops, op) })
			results <- r
		}()
	}
	var lastBegan int64
	firstEnded := int64(math.MaxInt64)
	for range 3 {
		r := <-results
		if r.err != nil || r.s.Sent != 50 || len(r.ops) != 50 || r.ops[0].Phase != r.s.Phase {
			t.Fatalf("%v %+v, %d operations", r.err, r.s, len(r.ops))
		}
		began, ended := int64(math.MaxInt64), int64(0)
		for _, op := range r.ops {
			if op.SentMicros == 0 || op.DoneMicros == 0 {
				t.Fatalf("an operation without a moment: %+v", op)
			}
			began, ended = min(began, op.SentMicros), max(ended, op.DoneMicros)
		}
		lastBegan, firstEnded = max(lastBegan, began), min(firstEnded, ended)
	}
	if lastBegan > firstEnded {
		t.Errorf("one sent its first request %d µs after another had its last answer", lastBegan-firstEnded)
	}
}

// A manifest's mistakes are told with their place and the nearest field, before
// there is a cluster.
func TestCheckManifests(t *testing.T) {
	e, err := experiment.Parse("x.yaml", []byte(`name: x
cluster: {nodes: 10}
phases:
  - name: load
    create:
      count: 2
      rate: burst
      object:
        apiVersion: apps/v1
        kind: StatefulSet
        spec:
          replcas: 5
          template:
            spec:
              containers:
                - {name: main, imge: x}
  - name: other
    create: {count: 1, object: {apiVersion: v1, kind: ConfigMap, data: {a: 5}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	err = Check(e)
	var ps experiment.Problems
	if !errors.As(err, &ps) || len(ps) != 3 {
		t.Fatalf("%v", err)
	}
	for i, want := range []string{
		`x.yaml:12:20: phases[0].create.object.spec.replcas: unknown field of a StatefulSet, did you mean "replicas"?`,
		`x.yaml:16:38: phases[0].create.object.spec.template.spec.containers[0].imge: unknown field of a StatefulSet, did you mean "image"?`,
		`x.yaml:18:32: phases[1].create.object: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`,
	} {
		if ps[i].Error() != want {
			t.Errorf("got  %s\nwant %s", ps[i].Error(), want)
		}
	}
}

// The rules are what the requests of an experiment need, and no more.
func TestRulesAreTheLeast(t *testing.T) {
	e, err := experiment.Parse("x", []byte(`
name: x
cluster: {nodes: 100}
phases:
- {name: a, create: {kind: Deployment, count: 1, replicas: 1}}
- {name: b, create: {count: 1, object: {apiVersion: batch/v1, kind: Job, spec: {}}}}
- {scale: {phase: a, replicas: 2}}
- parallel:
  - {update: {phase: a}}
  - {read: {mix: [{kind: stale-list, resource: pods}, {kind: watch-list, resource: jobs}, {kind: quorum-get, phase: b}], count: 5, rate: burst}}
- {delete: {phase: b}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range Rules(e) {
		got = append(got, fmt.Sprintf("%s/%s %s", r.APIGroups[0], r.Resources[0], strings.Join(r.Verbs, ",")))
	}
	want := []string{"/namespaces create,delete,get", "/pods list", "/serviceaccounts get", "apps/deployments create,patch",
		"apps/deployments/scale patch", "batch/jobs create,delete,get,list,watch"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// What the language says of a rate, how many operations come in a time, is what
// the timetable does.
func TestRatesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.Float64Range(0.1, 500)
		length := rapid.Int64Range(int64(time.Millisecond), int64(time.Minute))
		r := experiment.Rate{PerSecond: per.Draw(t, "rate")}
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 1:
			r.From, r.Over = per.Draw(t, "from"), time.Duration(length.Draw(t, "over"))
		case 2:
			r = experiment.Rate{}
			for range rapid.IntRange(1, 4).Draw(t, "steps") {
				r.Steps = append(r.Steps, experiment.RateStep{PerSecond: per.Draw(t, "step"), For: time.Duration(length.Draw(t, "for"))})
			}
		}
		d := time.Duration(length.Draw(t, "time"))
		n := r.Operations(d)
		due := timetable(r, n, 0)
		const exact = time.Microsecond
		if n > 0 && due.Due(n-1) > d+exact || due.Due(n) < d-exact {
			t.Fatalf("%v: %d operations in %v, due at %v and %v", r, n, d, due.Due(max(n-1, 0)), due.Due(n))
		}
	})
}

// A watch that the server ends before it has sent all objects begins again, as
// reflectors do; one that it refuses says why.
func TestWatchListEndedEarly(t *testing.T) {
	refusal := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Message: "too old resource version", Code: http.StatusGone}
	inProtobuf := func() []byte {
		var envelope bytes.Buffer
		envelope.Write(protobufMagic)
		unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}}
		unknown.Raw, _ = refusal.Marshal()
		raw, _ := unknown.Marshal()
		envelope.Write(raw)
		event, _ := (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: envelope.Bytes()}}).Marshal()
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
	}
	inJSON := func() []byte {
		object, _ := json.Marshal(refusal)
		event, _ := json.Marshal(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object}})
		return event
	}
	for name, c := range map[string]struct {
		early    int // tries that the server ends
		says     []byte
		requests int
		err      string
	}{
		"twice":            {2, nil, 3, ""},
		"always":           {1000, nil, watchTries, "watch: the server ended it before all objects were sent"},
		"refused":          {1, inProtobuf(), 1, "watch: Expired: too old resource version"},
		"refused, as JSON": {1, inJSON(), 1, "watch: Expired: too old resource version"},
	} {
		f := newFakeAPI(t)
		var requests atomic.Int32
		f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentProtobuf+";stream=watch")
			if int(requests.Add(1)) <= c.early {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 65_000))
				_, _ = w.Write(c.says)
				return
			}
			_, _ = w.Write(initialEventsEnd)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		discover(f)
		g := f.generator(t, nil)
		s, ops := runPhase(t, g, phases(t, `
- {name: look, read: {mix: [{kind: watch-list, resource: pods}], count: 1, rate: 100/s}}`)[0])
		if int(requests.Load()) != c.requests || ops[0].Error != c.err || s.Failed != map[bool]int{true: 1}[c.err != ""] {
			t.Errorf("%s: %d requests, want %d; error %q, want %q; %+v", name, requests.Load(), c.requests, ops[0].Error, c.err, s)
		}
	}
}

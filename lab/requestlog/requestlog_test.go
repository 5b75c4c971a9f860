package requestlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
)

// sink keeps what is written; while broken is set, writing fails half-way.
type sink struct {
	mu     sync.Mutex
	b      bytes.Buffer
	broken bool
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		n, _ := s.b.Write(p[:len(p)/2])
		return n, errors.New("no space left on device")
	}
	return s.b.Write(p)
}

func (s *sink) events(t *testing.T) []auditv1.Event {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []auditv1.Event
	for line := range strings.Lines(s.b.String()) {
		var e auditv1.Event
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

var long = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString())

// chain is the part of an API server's chain that the log hangs in.
func chain(l *Log, inner http.Handler) http.Handler {
	known := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		name := req.Header.Get("Name")
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
	})
	refused := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	h := filters.WithAuthentication(inner, l.Authenticator(known), refused, nil, nil)
	h = genericfilters.WithTimeoutForNonLongRunningRequests(h, long)
	h = filters.WithLatencyTrackers(h)
	h = filters.WithRequestInfo(h, l.Resolver(&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}))
	return l.Handler(filters.WithAuditInit(h))
}

func ask(h http.Handler, method, url, name string) *httptest.ResponseRecorder {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("a pod")
	}
	req := httptest.NewRequest(method, url, body)
	req.Header.Set("Name", name)
	req.Header.Set("User-Agent", "kubelet/v1.36 (linux) \"quoted\" \\ é")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// A body whose length the client does not tell is not none.
func TestBodyOfUnknownLength(t *testing.T) {
	var s sink
	l := New(&s, long)
	h := chain(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/pods", io.MultiReader(strings.NewReader("a pod")))
	req.Header.Set("Name", "load")
	h.ServeHTTP(httptest.NewRecorder(), req)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if all := s.events(t); len(all) != 1 || all[0].Annotations["kubedyno.io/request-bytes"] != "-1" {
		t.Errorf("%+v", all)
	}
}

func TestLines(t *testing.T) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Name: "web-x7f2p", Namespace: "default"}}
	var proto, plain bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: marshal(t, pod)}, &proto); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(&plain).Encode(pod); err != nil {
		t.Fatal(err)
	}
	created := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			request.TrackStorageLatency(req.Context(), 7*time.Millisecond)
			request.TrackAPFQueueWaitLatency(req.Context(), 1500*time.Microsecond)
			request.TrackAuthorizationLatency(req.Context(), 30*time.Millisecond)
			request.TrackAuthenticationLatency(req.Context(), 20*time.Millisecond)
			w.WriteHeader(http.StatusCreated)
			w.Write(b)
		}
	}
	for name, c := range map[string]struct {
		method, url, user string
		handler           http.HandlerFunc
		want              auditv1.Event
		bytes             string
	}{
		"created, protobuf": {"POST", "/api/v1/namespaces/default/pods?fieldManager=a%22b", "kubedyno:load", created(proto.Bytes()), auditv1.Event{
			Verb: "create", RequestURI: "/api/v1/namespaces/default/pods?fieldManager=a%22b", ResponseStatus: &metav1.Status{Code: 201},
			ObjectRef: &auditv1.ObjectReference{Resource: "pods", Namespace: "default", Name: "web-x7f2p", APIVersion: "v1"},
		}, "-"},
		"created, JSON": {"POST", "/api/v1/namespaces/default/pods", "kubedyno:load", created(plain.Bytes()), auditv1.Event{
			Verb: "create", RequestURI: "/api/v1/namespaces/default/pods", ResponseStatus: &metav1.Status{Code: 201},
			ObjectRef: &auditv1.ObjectReference{Resource: "pods", Namespace: "default", Name: "web-x7f2p", APIVersion: "v1"},
		}, "-"},
		"binding": {"POST", "/api/v1/namespaces/default/pods/web-1/binding", "system:kube-scheduler", created(plain.Bytes()), auditv1.Event{
			Verb: "create", RequestURI: "/api/v1/namespaces/default/pods/web-1/binding", ResponseStatus: &metav1.Status{Code: 201},
			ObjectRef: &auditv1.ObjectReference{Resource: "pods", Namespace: "default", Name: "web-1", APIVersion: "v1", Subresource: "binding"},
		}, "-"},
		"list": {"GET", "/apis/apps/v1/replicasets?limit=500&resourceVersion=0", "é\"\\\n", func(w http.ResponseWriter, req *http.Request) {
			request.TrackStorageLatency(req.Context(), 7*time.Millisecond)
			io.WriteString(w, "12345")
		}, auditv1.Event{
			Verb: "list", RequestURI: "/apis/apps/v1/replicasets?limit=500&resourceVersion=0", ResponseStatus: &metav1.Status{Code: 200},
			ObjectRef: &auditv1.ObjectReference{Resource: "replicasets", APIGroup: "apps", APIVersion: "v1"},
		}, "5"},
		"nothing written": {"GET", "/readyz?verbose", "probe", func(http.ResponseWriter, *http.Request) {}, auditv1.Event{
			Verb: "get", RequestURI: "/readyz?verbose", ResponseStatus: &metav1.Status{Code: 200},
		}, "0"},
		"not let in": {"GET", "/api/v1/nodes/a", "", nil, auditv1.Event{
			Verb: "get", RequestURI: "/api/v1/nodes/a", ResponseStatus: &metav1.Status{Code: 401},
			ObjectRef: &auditv1.ObjectReference{Resource: "nodes", Name: "a", APIVersion: "v1"},
		}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			var s sink
			l := New(&s, long)
			got := ask(chain(l, c.handler), c.method, c.url, c.user)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			all := s.events(t)
			if len(all) != 1 {
				t.Fatalf("%d lines", len(all))
			}
			e := all[0]
			if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.Level != "Metadata" || e.Stage != "ResponseComplete" {
				t.Errorf("%+v", e)
			}
			if e.AuditID == "" || string(e.AuditID) != got.Header().Get("Audit-Id") {
				t.Errorf("audit ID %q, answered %q", e.AuditID, got.Header().Get("Audit-Id"))
			}
			if e.Verb != c.want.Verb || e.RequestURI != c.want.RequestURI || e.User.Username != c.user || e.UserAgent != "kubelet/v1.36 (linux) \"quoted\" \\ é" || e.ResponseStatus.Code != c.want.ResponseStatus.Code {
				t.Errorf("got %+v, status %+v", e, e.ResponseStatus)
			}
			if (e.ObjectRef == nil) != (c.want.ObjectRef == nil) || e.ObjectRef != nil && *e.ObjectRef != *c.want.ObjectRef {
				t.Errorf("object %+v, want %+v", e.ObjectRef, c.want.ObjectRef)
			}
			if e.StageTimestamp.Before(&e.RequestReceivedTimestamp) || e.RequestReceivedTimestamp.IsZero() {
				t.Errorf("from %v to %v", e.RequestReceivedTimestamp, e.StageTimestamp)
			}
			if size := e.Annotations["kubedyno.io/response-bytes"]; c.bytes != "-" && size != c.bytes {
				t.Errorf("%s bytes, want %s", size, c.bytes)
			}
			if size := e.Annotations["kubedyno.io/request-bytes"]; size != map[string]string{"POST": "5", "GET": ""}[c.method] {
				t.Errorf("a body of %q bytes", size)
			}
			if c.want.ResponseStatus.Code == 201 && (e.Annotations["apiserver.latency.k8s.io/etcd"] != "" || e.Annotations["apiserver.latency.k8s.io/apf-queue-wait"] != "1500us") {
				t.Errorf("annotations %v", e.Annotations)
			}
			// The filter's own microseconds come to the 20 ms.
			authentication, _ := time.ParseDuration(e.Annotations["apiserver.latency.k8s.io/authentication"])
			authorization := e.Annotations["apiserver.latency.k8s.io/authorization"]
			if waited := c.want.ResponseStatus.Code == 201; waited != (authentication >= 20*time.Millisecond) || waited != (authorization == "30000us") || !waited && authorization != "" {
				t.Errorf("authentication %v, authorization %q", authentication, authorization)
			}
			if etcd := e.Annotations["apiserver.latency.k8s.io/etcd"]; c.want.Verb == "list" && etcd != "7000us" || name == "nothing written" && etcd != "0us" {
				t.Errorf("%s from etcd", etcd)
			}
			if took, err := time.ParseDuration(e.Annotations["apiserver.latency.k8s.io/total"]); err != nil || took < 0 {
				t.Errorf("total: %v, %v", took, err)
			}
		})
	}
}

func marshal(t *testing.T, pod *corev1.Pod) []byte {
	b, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWatch(t *testing.T) {
	var s sink
	l := New(&s, long)
	server := httptest.NewServer(chain(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		io.WriteString(w, "event")
		io.WriteString(w, "event")
	})))
	defer server.Close()
	req, err := http.NewRequest("GET", server.URL+"/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Name", "kubelet")
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "eventevent" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
	server.Close()
	l.Close()
	all := s.events(t)
	if len(all) != 2 || all[0].Stage != "ResponseStarted" || all[1].Stage != "ResponseComplete" || all[0].AuditID != all[1].AuditID || all[1].Verb != "watch" {
		t.Fatalf("%+v", all)
	}
	if all[1].Annotations["kubedyno.io/response-bytes"] != "10" || all[1].Annotations["apiserver.latency.k8s.io/total"] != "" {
		t.Errorf("%v", all[1].Annotations)
	}
}

func TestPanic(t *testing.T) {
	var s sink
	l := New(&s, long)
	func() {
		defer func() {
			if r := recover(); r != http.ErrAbortHandler {
				t.Errorf("the panic became %v", r)
			}
		}()
		ask(chain(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })), "GET", "/api/v1/pods?watch=1", "a")
	}()
	l.Close()
	if all := s.events(t); len(all) != 1 || all[0].Stage != "Panic" || all[0].ResponseStatus.Code != 500 {
		t.Errorf("%+v", all)
	}
}

// The chain answers for a handler that takes too long and that goes on.
func TestTimedOut(t *testing.T) {
	var s sink
	l := New(&s, long)
	still := make(chan struct{})
	h := chain(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		<-still
		request.TrackStorageLatency(req.Context(), time.Second)
		io.WriteString(w, "too late")
	}))
	req := httptest.NewRequest("GET", "/api/v1/pods", nil)
	req.Header.Set("Name", "a")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	h.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx))
	close(still)
	l.Close()
	if all := s.events(t); len(all) != 1 || all[0].ResponseStatus.Code != 504 || all[0].User.Username != "a" {
		t.Errorf("%+v", all)
	}
}

// Lines are written a moment later without anybody's doing; what cannot be
// written is written when it can be.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sink{broken: true}
		l := New(&s, long)
		h := chain(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask(h, "GET", "/readyz", "a")
		time.Sleep(2 * flushAfter)
		s.mu.Lock()
		s.broken = false
		s.mu.Unlock()
		ask(h, "GET", "/readyz", "b")
		time.Sleep(2 * flushAfter)
		synctest.Wait()
		if all := s.events(t); len(all) != 2 || all[1].User.Username != "b" {
			t.Errorf("%+v", all)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What cannot be kept is counted, and the log says so once it can be written.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sink{broken: true}
		l := New(&s, long)
		line := append(bytes.Repeat([]byte{' '}, maxKept/4-1), '\n')
		for range 9 {
			l.put(line)
		}
		time.Sleep(2 * flushAfter)
		s.mu.Lock()
		s.broken = false
		s.mu.Unlock()
		l.put([]byte("\n")) // the first half was written, so that there is room
		time.Sleep(2 * flushAfter)
		l.put([]byte("\n"))
		if err := l.Close(); err == nil || err.Error() != "5 lines were lost: no space left on device" {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if text := strings.TrimSpace(s.b.String()); text != `{"kind":"Lost","lines":5}` {
			t.Errorf("%.200q", text)
		}
	})
}

// What is pending at the end and cannot be written is lost, too.
func TestLostAtTheEnd(t *testing.T) {
	l := New(&sink{broken: true}, long)
	for range 8 {
		l.put([]byte("0123456789\n"))
	}
	if err := l.Close(); err == nil || !strings.HasPrefix(err.Error(), "4 lines were lost: ") {
		t.Error(err)
	}
}

// slowWriter takes until it is let go.
type slowWriter struct{ writing, letGo chan struct{} }

func (s slowWriter) Write(b []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.letGo
	return len(b), nil
}

// A disk that stalls holds up no request.
func TestStall(t *testing.T) {
	w := slowWriter{make(chan struct{}), make(chan struct{})}
	l := New(w, long)
	h := chain(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask(h, "GET", "/readyz", "a")
	<-w.writing
	for range 10 {
		ask(h, "GET", "/readyz", "b") // with a lock that writing holds, this never returns
	}
	go func() { <-w.writing }()
	close(w.letGo)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Disks that are too slow without failing lose lines, too.
func TestTooSlow(t *testing.T) {
	w := slowWriter{make(chan struct{}), make(chan struct{})}
	l := New(w, long)
	l.put([]byte("\n"))
	<-w.writing
	line := make([]byte, maxKept/2)
	for range 3 {
		l.put(line)
	}
	go func() { <-w.writing }()
	close(w.letGo)
	if err := l.Close(); err == nil || err.Error() != "2 lines were lost: writing did not keep up" {
		t.Error(err)
	}
}

// Times are written as package time would write them.
func TestTimestamp(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(1e9, 999_999_999), time.Date(2026, 1, 2, 3, 4, 5, 6_789, time.FixedZone("", 7200)), time.Date(999, 12, 31, 23, 59, 59, 1_000, time.UTC),
	} {
		if got, want := string(timestamp(nil, at)), at.UTC().Format(`"2006-01-02T15:04:05.000000Z"`); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNameIn(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x7f2p"}}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: marshal(t, pod)}
	b, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole := append([]byte("k8s\x00"), b...)
	for n := range whole { // an answer comes in pieces of any size
		if got := nameIn(whole[:n]); got != "" && got != "web-x7f2p" {
			t.Fatalf("%q of %d bytes", got, n)
		}
	}
	if got := nameIn(whole); got != "web-x7f2p" {
		t.Errorf("%q", got)
	}
	for _, b := range []string{"", "k8s\x00", `{"kind":"Status","metadata":{},"name":"x"}`, `{"metadata":{"name":"a\"b"}}`, "k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if got := nameIn([]byte(b)); got != "" {
			t.Errorf("%q in %q", got, b)
		}
	}
}

func FuzzNameIn(f *testing.F) {
	f.Add([]byte("k8s\x00\x0a\x02\x0a\x00\x12\x04\x0a\x02\x0a\x00"))
	f.Add([]byte(`{"metadata":{"name":"a`))
	f.Fuzz(func(_ *testing.T, b []byte) { nameIn(b) })
}

func BenchmarkLine(b *testing.B) {
	l := New(io.Discard, long)
	req := httptest.NewRequest("GET", "/api/v1/namespaces/default/pods/web-1", nil)
	req.Header.Set("Name", "system:node:a")
	info, _ := (&request.RequestInfoFactory{APIPrefixes: sets.NewString("api"), GrouplessAPIPrefixes: sets.NewString("api")}).NewRequestInfo(req)
	a := &answer{ResponseWriter: httptest.NewRecorder(), log: l, req: req, asked: &asked{}, began: time.Now(), code: 200}
	a.asked.info.Store(info)
	for b.Loop() {
		a.line("ResponseComplete")
	}
}

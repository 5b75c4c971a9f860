package hollow

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// A fakeAPI answers a fleet as an API server does, in memory.
type fakeAPI struct {
	t      testing.TB
	server *httptest.Server
	dir    string

	mu       sync.Mutex
	version  int
	nodes    map[string]*v1.Node
	pods     map[string]*v1.Pod // by namespace/name
	leases   map[string]*coordinationv1.Lease
	events   []v1.Event
	requests []string // "PATCH alice pods/status" …
	watchers map[chan []byte]string
	refuse   func(r *http.Request) int // an HTTP code instead of an answer, or 0
	noTaint  bool
}

var proto = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func newFakeAPI(t testing.TB) *fakeAPI {
	f := &fakeAPI{
		t: t, dir: t.TempDir(), version: 100, nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
		leases: map[string]*coordinationv1.Lease{}, watchers: map[chan []byte]string{},
	}
	ca := f.writeCA()
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	f.server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	f.write("server.crt", "CERTIFICATE", f.server.Certificate().Raw)
	return f
}

func (f *fakeAPI) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fakeAPI) write(name, kind string, der []byte) {
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(f.path(name), b, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeAPI) writeCA() *x509.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nodes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("ca.crt", "CERTIFICATE", der)
	f.write("ca.key", "PRIVATE KEY", raw)
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		f.t.Fatal(err)
	}
	return ca
}

func (f *fakeAPI) config(nodes int) Config {
	no := false
	return Config{
		Informers: &no, // what a real API server is for
		Server:    f.server.URL, CAFile: f.path("server.crt"), NodeCA: &KeyPair{f.path("ca.crt"), f.path("ca.key")},
		Nodes: nodes, Seed: 1, StartDelay: Delay{Distribution: "constant", Median: 0.05}, Cleanup: true,
	}
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	user := strings.TrimPrefix(r.TLS.PeerCertificates[0].Subject.CommonName, "system:node:")
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	if f.refuse != nil {
		if code := f.refuse(r); code != 0 {
			f.mu.Unlock()
			f.status(w, code)
			return
		}
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	if r.URL.Query().Get("watch") != "true" {
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	}
	switch {
	case r.URL.Path == "/version":
		f.mu.Unlock()
		fmt.Fprint(w, `{"gitVersion":"v1.36.3"}`)
	case r.URL.Query().Get("watch") == "true":
		f.watch(w, r) // unlocks
	case len(parts) >= 3 && parts[2] == "nodes":
		defer f.mu.Unlock()
		f.serveNode(w, r, parts, body)
	case strings.Contains(r.URL.Path, "/leases"):
		defer f.mu.Unlock()
		f.serveLease(w, r, last, body)
	case last == "token":
		f.mu.Unlock()
		var t authenticationv1.TokenRequest
		f.decode(body, &t)
		if t.Spec.BoundObjectRef == nil || t.Spec.BoundObjectRef.Kind != "Pod" {
			f.t.Errorf("a token that is not bound to a pod: %+v", t.Spec)
		}
		f.answer(w, http.StatusCreated, &v1.Pod{}, "Pod") // nobody reads it
	case r.Method == http.MethodPatch && len(parts) == 6 && parts[4] == "events":
		f.mu.Unlock()
		f.answer(w, http.StatusOK, &v1.Event{}, "Event")
	case last == "events":
		defer f.mu.Unlock()
		var e v1.Event
		f.decode(body, &e)
		f.events = append(f.events, e)
		f.answer(w, http.StatusCreated, &e, "Event")
	case len(parts) >= 6 && parts[4] == "pods":
		defer f.mu.Unlock()
		if want := f.pods[parts[3]+"/"+parts[5]]; want != nil && want.Spec.NodeName != user {
			f.t.Errorf("%s asks for the pod of %s", user, want.Spec.NodeName)
		}
		f.servePod(w, r, parts[3]+"/"+parts[5], body)
	default:
		f.mu.Unlock()
		f.t.Errorf("unexpected %s %s", r.Method, r.URL)
		f.status(w, http.StatusNotFound)
	}
}

func (f *fakeAPI) decode(body []byte, into runtime.Object) {
	if _, _, err := proto.Decode(body, nil, into); err != nil {
		f.t.Errorf("body of %T: %v", into, err)
	}
}

func (f *fakeAPI) next(m *metav1.ObjectMeta) {
	f.version++
	m.ResourceVersion = fmt.Sprint(f.version)
}

func (f *fakeAPI) answer(w http.ResponseWriter, code int, o runtime.Object, kind string) {
	o.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(kind))
	w.Header().Set("Content-Type", protobufType)
	w.WriteHeader(code)
	if err := proto.Encode(o, w); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeAPI) status(w http.ResponseWriter, code int) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "0")
	}
	f.answer(w, code, &metav1.Status{Code: int32(code), Message: "fake: " + http.StatusText(code)}, "Status")
}

func (f *fakeAPI) serveNode(w http.ResponseWriter, r *http.Request, parts []string, body []byte) {
	if r.Method == http.MethodPost {
		var n v1.Node
		f.decode(body, &n)
		if f.nodes[n.Name] != nil {
			f.status(w, http.StatusConflict)
			return
		}
		n.UID = types.UID("uid-" + n.Name)
		f.next(&n.ObjectMeta)
		if !f.noTaint {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule})
		}
		f.nodes[n.Name] = &n
		f.answer(w, http.StatusCreated, &n, "Node")
		return
	}
	n := f.nodes[parts[3]]
	if n == nil {
		f.status(w, http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodPatch:
		old, _ := json.Marshal(n)
		b, err := strategicpatch.StrategicMergePatch(old, body, v1.Node{})
		if err != nil {
			f.t.Errorf("%v: %s", err, body)
		}
		n = &v1.Node{}
		if err := json.Unmarshal(b, n); err != nil {
			f.t.Error(err)
		}
		// The node controller takes the taint off a ready node.
		n.Spec.Taints = nil
		f.next(&n.ObjectMeta)
		f.nodes[n.Name] = n
		f.tell("nodes "+n.Name, "MODIFIED", n, "Node")
	case http.MethodDelete:
		delete(f.nodes, n.Name)
	}
	f.answer(w, http.StatusOK, n, "Node")
}

func (f *fakeAPI) serveLease(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	var l coordinationv1.Lease
	switch r.Method {
	case http.MethodPost, http.MethodPut:
		f.decode(body, &l)
		if old := f.leases[l.Name]; old != nil && old.ResourceVersion != l.ResourceVersion {
			f.status(w, http.StatusConflict)
			return
		}
		f.next(&l.ObjectMeta)
		f.leases[l.Name] = &l
	default:
		have := f.leases[name]
		if have == nil {
			f.status(w, http.StatusNotFound)
			return
		}
		l = *have
		if r.Method == http.MethodDelete {
			delete(f.leases, name)
		}
	}
	f.answer(w, http.StatusOK, &l, "Lease")
}

func (f *fakeAPI) servePod(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	p := f.pods[key]
	if p == nil {
		f.status(w, http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodPatch:
		old, _ := json.Marshal(p)
		b, err := strategicpatch.StrategicMergePatch(old, body, v1.Pod{})
		if err != nil {
			f.t.Errorf("%v: %s", err, body)
		}
		q := &v1.Pod{}
		if err := json.Unmarshal(b, q); err != nil {
			f.t.Error(err)
		}
		if q.UID != p.UID {
			f.status(w, http.StatusConflict)
			return
		}
		p = q
		f.next(&p.ObjectMeta)
		f.pods[key] = p
		f.tell("pods "+p.Spec.NodeName, "MODIFIED", p, "Pod")
	case http.MethodDelete:
		var o metav1.DeleteOptions
		f.decode(body, &o)
		if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil || *o.Preconditions.UID != p.UID {
			f.t.Errorf("delete options %+v", o)
		}
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			f.t.Errorf("%s deleted in phase %s", key, p.Status.Phase)
		}
		delete(f.pods, key)
		f.next(&p.ObjectMeta)
		f.tell("pods "+p.Spec.NodeName, "DELETED", p, "Pod")
	}
	f.answer(w, http.StatusOK, p, "Pod")
}

// tell sends an event to the watchers of a topic. f.mu is held.
func (f *fakeAPI) tell(topic, kind string, o runtime.Object, gvk string) {
	o.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(gvk))
	b := frame(f.t, kind, o)
	for ch, t := range f.watchers {
		if t == topic {
			ch <- b
		}
	}
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	resource := "pods"
	if strings.HasSuffix(r.URL.Path, "nodes") {
		resource = "nodes"
	}
	_, name, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	topic := resource + " " + name
	ch := make(chan []byte, 10000)
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if initial {
		end := &v1.Pod{}
		if n := f.nodes[name]; n != nil && resource == "nodes" {
			n.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Node"))
			ch <- frame(f.t, "ADDED", n)
		}
		for _, p := range f.pods {
			if p.Spec.NodeName == name && resource == "pods" {
				p.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Pod"))
				ch <- frame(f.t, "ADDED", p)
			}
		}
		end.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Pod"))
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		end.ResourceVersion = fmt.Sprint(f.version)
		ch <- frame(f.t, "BOOKMARK", end)
	}
	f.watchers[ch] = topic
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	if !initial && r.URL.Query().Get("resourceVersion") == "" {
		f.t.Errorf("a watch from nowhere: %s", r.URL)
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case b, ok := <-ch:
			if !ok {
				return
			}
			size := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
			w.Write(append(size, b...))
			w.(http.Flusher).Flush()
		}
	}
}

// expire ends all watches, as a server that has lost its history.
func (f *fakeAPI) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := &metav1.Status{Code: http.StatusGone, Message: "too old resource version"}
	gone.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Status"))
	for ch := range f.watchers {
		ch <- frame(f.t, "ERROR", gone)
		close(ch)
		delete(f.watchers, ch)
	}
}

// end ends the watches of a topic, as a busy server does with who does not keep up.
func (f *fakeAPI) end(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch, of := range f.watchers {
		if of == topic {
			close(ch)
			delete(f.watchers, ch)
		}
	}
}

// bind creates a pod on a node, as the scheduler leaves it.
func (f *fakeAPI) bind(name, node string) { f.bindPod(name, node, func(*v1.Pod) {}) }

func (f *fakeAPI) bindPod(name, node string, change func(*v1.Pod)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := testPod(func(p *v1.Pod) {
		p.Name, p.UID, p.Spec.NodeName = name, types.UID("uid-"+name), node
		change(p)
	})
	f.next(&p.ObjectMeta)
	f.pods["default/"+name] = p
	f.tell("pods "+node, "ADDED", p, "Pod")
}

// remove begins a graceful deletion.
func (f *fakeAPI) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods["default/"+name].DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp, p.Generation = &now, 2
	f.next(&p.ObjectMeta)
	f.pods["default/"+name] = p
	f.tell("pods "+p.Spec.NodeName, "MODIFIED", p, "Pod")
}

func (f *fakeAPI) phases() map[v1.PodPhase]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[v1.PodPhase]int{}
	for _, p := range f.pods {
		all[p.Status.Phase]++
	}
	return all
}

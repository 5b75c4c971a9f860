package objects

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// object is what a store holds.
type object interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// store is an API server for one resource: it keeps a history of events,
// serves it from any version that it has not forgotten, and can drop its
// watchers.
type store struct {
	mu      sync.Mutex
	cond    *sync.Cond
	kind    string
	objects map[string]object
	history []event
	version int
	oldest  int // versions below are gone
	epoch   int // changes when watchers are dropped
	refuse  int // status of every answer
	lists   int
	watches int
	agents  map[string]bool
	// stamp, where it is set, gives what a watch gets the server's clock.
	stamp func(w io.Writer, b []byte)
}

type event struct {
	version int
	frame   []byte
}

func newStore(kind string) *store {
	s := &store{kind: kind, objects: map[string]object{}, version: 10, agents: map[string]bool{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// server is an API server that has the pods of a run alone.
type server struct {
	*store
	http *httptest.Server
	run  string // the selector that it expects
}

func newServer(t testing.TB) *server {
	s := &server{store: newStore("Pod"), run: "r1"}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() { s.drop(0); s.http.Close() })
	return s
}

func wrap(kind string, m interface{ Marshal() ([]byte, error) }) []byte {
	raw, err := m.Marshal()
	if err != nil {
		panic(err)
	}
	b, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	if err != nil {
		panic(err)
	}
	return append(bytes.Clone(magic), b...)
}

func framed(typ string, object []byte) []byte {
	b, err := (&metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// put adds or changes a pod; the empty change deletes it.
func (s *server) put(name string, change func(*corev1.Pod)) {
	s.store.put(name, func() object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Labels: map[string]string{LabelRun: "r1", LabelPhase: "steady"},
		}}
	}, func(o object) {
		change(o.(*corev1.Pod))
	}, change == nil)
}

// put makes, changes or deletes an object.
func (s *store) put(name string, create func() object, change func(object), remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	typ := "MODIFIED"
	o := s.objects[name]
	switch {
	case remove:
		typ = "DELETED"
		delete(s.objects, name)
	case o == nil:
		typ = "ADDED"
		o = create()
		o.SetName(name)
		o.SetUID(types.UID(fmt.Sprintf("uid-%s-%d", name, s.version)))
		s.objects[name] = o
	}
	if !remove {
		change(o)
	}
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.history = append(s.history, event{s.version, framed(typ, wrap(s.kind, o))})
	s.cond.Broadcast()
}

// drop ends all watches; code is what the next requests get, 0 for an answer.
func (s *store) drop(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.refuse = code
	s.cond.Broadcast()
}

func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version + 1
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	selector := ""
	if s.run != "" {
		selector = LabelRun + "=" + s.run
	}
	if r.URL.Path != "/api/v1/pods" || r.FormValue("labelSelector") != selector {
		http.Error(w, "unexpected "+r.URL.String(), http.StatusBadRequest)
		return
	}
	s.store.ServeHTTP(w, r)
}

// list is a list's message; of all lists, metadata is field 1 and items are 2.
func (s *store) list() []byte {
	head, err := (&metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}).Marshal()
	if err != nil {
		panic(err)
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), head)
	for _, o := range s.objects {
		item, err := o.Marshal()
		if err != nil {
			panic(err)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), item)
	}
	return b
}

// message is one that is encoded already.
type message []byte

func (m message) Marshal() ([]byte, error) { return m, nil }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents[r.UserAgent()] = true
	if s.refuse != 0 {
		w.WriteHeader(s.refuse)
		w.Write(wrap("Status", &metav1.Status{Message: strings.ToLower(s.kind) + "s is forbidden", Code: int32(s.refuse)}))
		return
	}
	if r.FormValue("watch") == "" {
		s.lists++
		w.Write(wrap(s.kind+"List", message(s.list())))
		return
	}
	s.watches++
	from, _ := strconv.Atoi(r.FormValue("resourceVersion"))
	if from < s.oldest-1 {
		w.Write(framed("ERROR", wrap("Status", &metav1.Status{Code: http.StatusGone, Message: "too old"})))
		return
	}
	epoch := s.epoch
	stop := context.AfterFunc(r.Context(), func() { s.mu.Lock(); s.cond.Broadcast(); s.mu.Unlock() })
	defer stop()
	write := func(b []byte) { w.Write(b) }
	if s.stamp != nil && r.Header.Get(stampsHeader) != "" {
		w.Header().Set(stampsHeader, r.Header.Get(stampsHeader))
		write = func(b []byte) { s.stamp(w, b) }
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for s.epoch == epoch && r.Context().Err() == nil {
		for _, e := range s.history {
			if e.version > from {
				write(e.frame)
				from = e.version
			}
		}
		write(framed("BOOKMARK", wrap("Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}})))
		w.(http.Flusher).Flush()
		s.cond.Wait()
	}
}

type recorder struct {
	mu       sync.Mutex
	pods     map[string]record.Pod // by UID, the last row
	objects  []record.ObjectChange
	events   []record.Event
	gaps     []record.Gap
	observed map[record.Table]bool
}

func (r *recorder) Observes(tables ...record.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observed == nil {
		r.observed = map[record.Table]bool{}
	}
	for _, t := range tables {
		r.observed[t] = true
	}
}

func (r *recorder) Object(o record.ObjectChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = append(r.objects, o)
}

func (r *recorder) Event(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) Pod(p record.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods = map[string]record.Pod{}
	}
	r.pods[p.UID] = p
}

func (r *recorder) Gap(g record.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, g)
}

func (r *recorder) named(t *testing.T, name string) record.Pod {
	t.Helper()
	var found []record.Pod
	for _, p := range r.pods {
		if p.Name == name {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d pods are named %s", len(found), name)
	}
	return found[0]
}

// start collects until stop is called.
func start(t *testing.T, s *server) (c *Collector, r *recorder, stop func()) {
	t.Helper()
	return startWith(t, s, Options{Claims: true})
}

func startWith(t *testing.T, s *server, o Options) (c *Collector, r *recorder, stop func()) {
	t.Helper()
	o.Config, o.Run = &rest.Config{Host: s.http.URL}, s.run
	c = New(o)
	r = &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, r) }()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, r, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.http.CloseClientConnections()
	}
}

func wait4(t *testing.T, c *Collector, phase string, s Stage, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Wait(ctx, phase, s, n); err != nil {
		t.Fatalf("wait for %d %s: %v; %+v", n, s, err, c.State())
	}
}

func bind(p *corev1.Pod)    { p.Spec.NodeName = "n1" }
func running(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}
func none(*corev1.Pod) {}

func TestLife(t *testing.T) {
	s := newServer(t)
	c, r, stop := start(t, s)
	before := time.Now().UnixMicro()
	s.put("a", none)
	wait4(t, c, "steady", Created, 1)
	s.put("a", bind)
	wait4(t, c, "steady", Bound, 1)
	s.put("a", running)
	wait4(t, c, "", Running, 1)
	s.put("a", ready)
	s.put("a", func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} })
	wait4(t, c, "steady", Ready, 1)
	s.put("a", nil)
	s.put("f", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
	wait4(t, c, "steady", Deleted, 1)
	wait4(t, c, "steady", Failed, 1)
	if st := c.State(); st.Total != (Counts{2, 1, 1, 1, 1, 1}) || st.Phases["steady"] != st.Total || !st.Connected || time.Since(st.LastProgress) > time.Minute {
		t.Errorf("%+v", st)
	}
	stop()
	p := r.named(t, "a")
	times := []int64{before, p.CreatedMicros, p.BoundMicros, p.RunningMicros, p.ReadyMicros, p.DeletedMicros, time.Now().UnixMicro()}
	if !slices.IsSorted(times) || p.CreatedMicros == 0 || p.Node != "n1" || p.Phase != "steady" || p.Owner != "" || p.DueMicros != 0 {
		t.Errorf("%+v", p)
	}
	if f := r.named(t, "f"); f.FailedReason != "Evicted" || f.RunningMicros != 0 {
		t.Errorf("%+v", f)
	}
	if !s.agents[UserAgent] || len(s.agents) != 1 || len(r.gaps) != 0 {
		t.Errorf("agents %v, gaps %+v", s.agents, r.gaps)
	}
	if err := c.Wait(t.Context(), "", Created, 100); !errors.Is(err, ErrNotRunning) {
		t.Errorf("wait after the end: %v", err)
	}
}

func owned(by string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.Labels["pod-template-hash"] = "abc12"
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: by + "-abc12", Controller: &yes}}
	}
}

// Operations and pods meet in any order; a later operation on the same owner
// claims the pods that it made, and their phase.
// The times of a server that tells them are those of the pods, however its records cut
// the events.
func TestServersClock(t *testing.T) {
	for _, piece := range []int{1, 3, 1000, 1 << 20} {
		s := newServer(t)
		origin, n := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixMicro(), 0
		s.stamp = func(w io.Writer, b []byte) {
			n++
			for piece := range slices.Chunk(b, piece) {
				head := binary.BigEndian.AppendUint64(nil, uint64(origin+int64(n)))
				w.Write(append(binary.BigEndian.AppendUint32(head, uint32(len(piece))), piece...))
			}
			w.Write(append(binary.BigEndian.AppendUint64(nil, 0), 0, 0, 0, 0)) // a record of nothing
		}
		c, r, stop := startWith(t, s, Options{Stamps: true})
		s.put("p", func(*corev1.Pod) {})
		wait4(t, c, "steady", Created, 1)
		s.put("p", bind)
		wait4(t, c, "steady", Bound, 1)
		s.put("p", running)
		wait4(t, c, "steady", Running, 1)
		stop()
		if len(r.pods) != 1 || len(r.gaps) != 0 {
			t.Fatalf("pieces of %d: %d pods, gaps %v", piece, len(r.pods), r.gaps)
		}
		for _, p := range r.pods { // between the events are bookmarks
			created, bound, ran := p.CreatedMicros-origin, p.BoundMicros-origin, p.RunningMicros-origin
			if created < 1 || bound <= created || ran <= bound || ran > int64(n) {
				t.Errorf("pieces of %d: created at %d, bound at %d, running at %d of %d", piece, created, bound, ran, n)
			}
		}
	}
}

// One that does not tell them is read as ever.
func TestServerWithoutClock(t *testing.T) {
	s := newServer(t)
	before := time.Now().UnixMicro()
	c, r, stop := startWith(t, s, Options{Stamps: true})
	s.put("p", running)
	wait4(t, c, "steady", Running, 1)
	stop()
	for _, p := range r.pods {
		if p.CreatedMicros < before || p.CreatedMicros > time.Now().UnixMicro() {
			t.Errorf("created at %d, not since %d", p.CreatedMicros, before)
		}
	}
	if len(r.pods) != 1 {
		t.Errorf("%d pods", len(r.pods))
	}
}

func TestOperations(t *testing.T) {
	s := newServer(t)
	c, r, stop := start(t, s)
	micros := func() int64 { time.Sleep(time.Millisecond); return time.Now().UnixMicro() }
	op := func(phase, verb, resource, name string, due, sent, done int64) record.Operation {
		return record.Operation{Phase: phase, Verb: verb, Resource: resource, Namespace: "default", Name: name, DueMicros: due, SentMicros: sent, DoneMicros: done}
	}
	t1 := micros()
	s.put("bare", none)
	wait4(t, c, "", Created, 1)
	c.Submitted(op("steady", "create", "pods", "bare", t1-5, t1, t1+7)) // after the pod

	t2 := micros()
	c.Submitted(op("steady", "create", "deployments", "web", t2-3, t2, t2+9)) // before its pods
	s.put("web-1", owned("web"))
	wait4(t, c, "steady", Created, 2)
	t3 := micros()
	s.put("web-2", owned("web"))
	wait4(t, c, "steady", Created, 3)
	c.Submitted(op("grow", "scale", "deployments", "web", t3, t3, t3+1))
	wait4(t, c, "grow", Created, 1)
	c.Submitted(op("grow", "delete", "deployments", "web", t3, t3, t3+1))
	c.Submitted(op("grow", "create", "services", "web", t3, t3, t3+1))
	missed := op("grow", "create", "pods", "bare", t3, 0, 0)
	c.Submitted(missed)
	if st := c.State(); st.Phases["steady"].Created != 2 || st.Phases["grow"].Created != 1 {
		t.Errorf("%+v", st)
	}
	stop()
	for _, w := range []struct {
		name, owner, phase string
		due, sent, acked   int64
	}{
		{"bare", "", "steady", t1 - 5, t1, t1 + 7},
		{"web-1", "Deployment/web", "steady", t2 - 3, t2, t2 + 9},
		{"web-2", "Deployment/web", "grow", t3, t3, t3 + 1},
	} {
		p := r.named(t, w.name)
		if p.Owner != w.owner || p.Phase != w.phase || p.DueMicros != w.due || p.SentMicros != w.sent || p.AckedMicros != w.acked {
			t.Errorf("%+v\nwant %+v", p, w)
		}
	}
}

// The pods of every kind of controller have the times of what asked for them.
func TestControllersPods(t *testing.T) {
	s := newServer(t)
	c, r, stop := start(t, s)
	of := map[string]string{
		"replicasets": "ReplicaSet", "replicationcontrollers": "ReplicationController", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet", "jobs": "Job",
	}
	for resource, kind := range of {
		sent := time.Now().UnixMicro()
		c.Submitted(record.Operation{Phase: "steady", Verb: "create", Resource: resource, Namespace: "default", Name: resource, SentMicros: sent, DoneMicros: sent + 1})
		s.put(resource+"-1", func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: resource, Controller: &yes}}
		})
	}
	wait4(t, c, "steady", Created, len(of))
	stop()
	for resource, kind := range of {
		if p := r.named(t, resource+"-1"); p.Owner != kind+"/"+resource || p.SentMicros == 0 {
			t.Errorf("%+v", p)
		}
	}
}

// Across disconnects nothing is lost and nothing counts twice. What happened
// meanwhile is late, and the stretch is a gap.
func TestDisconnects(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgotten=%v", gone), func(t *testing.T) {
			s := newServer(t)
			c, r, stop := start(t, s)
			for i := range 20 {
				s.put(fmt.Sprint("p", i), none)
			}
			wait4(t, c, "steady", Created, 20)
			s.drop(http.StatusServiceUnavailable)
			s.put("p0", bind)
			s.put("p1", nil)
			s.put("p20", none)
			s.put("p21", none)
			s.put("p21", nil) // nobody can know of it once it is forgotten
			time.Sleep(200 * time.Millisecond)
			if gone {
				s.forget()
			}
			s.drop(0)
			want := Counts{Created: 22, Bound: 1, Deleted: 2}
			if gone {
				want = Counts{Created: 21, Bound: 1, Deleted: 1}
			}
			wait4(t, c, "steady", Created, want.Created)
			wait4(t, c, "steady", Deleted, want.Deleted)
			wait4(t, c, "steady", Bound, 1)
			s.put("p2", bind)
			wait4(t, c, "steady", Bound, 2)
			want.Bound = 2
			st := c.State()
			if st.Total != want || st.Late < 3 {
				t.Errorf("%+v, want %+v", st, want)
			}
			stop()
			// That the version is forgotten is learnt on a new watch, which parts the gap.
			if len(r.gaps) == 0 || len(r.gaps) > 2 || r.gaps[0].End.Sub(r.gaps[0].Start) < 200*time.Millisecond || !strings.Contains(r.gaps[0].Reason, "seen late") {
				t.Errorf("gaps: %+v", r.gaps)
			}
			if gone && s.lists != 2 || !gone && s.lists != 1 {
				t.Errorf("%d lists", s.lists)
			}
			if len(r.pods) != want.Created {
				t.Errorf("%d rows, want %d", len(r.pods), want.Created)
			}
		})
	}
}

// Many short watches, as a server under pressure ends them.
func TestManyDisconnects(t *testing.T) {
	s := newServer(t)
	c, r, stop := start(t, s)
	var load sync.WaitGroup
	load.Go(func() {
		for i := range 200 {
			name := fmt.Sprint("p", i)
			s.put(name, none)
			s.put(name, bind)
			s.put(name, running)
			time.Sleep(time.Millisecond)
		}
	})
	load.Go(func() {
		for range 8 {
			time.Sleep(25 * time.Millisecond)
			s.drop(0)
		}
	})
	wait4(t, c, "steady", Running, 200)
	load.Wait()
	if st := c.State(); st.Total != (Counts{Created: 200, Bound: 200, Running: 200}) {
		t.Errorf("%+v", st)
	}
	stop()
	if len(r.pods) != 200 {
		t.Errorf("%d rows", len(r.pods))
	}
	for _, p := range r.pods {
		if p.CreatedMicros == 0 || p.BoundMicros < p.CreatedMicros || p.RunningMicros < p.BoundMicros {
			t.Errorf("%+v", p)
		}
	}
}

// Where nothing is loaded, pods are there before the watch: since when, and how
// they got so far, is unknown and not "now". What they do later is known.
func TestExistingPods(t *testing.T) {
	s := newServer(t)
	s.run = ""
	s.put("old", func(p *corev1.Pod) { bind(p); running(p); ready(p) })
	s.put("pending", none)
	s.put("broken", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
	c, r, stop := start(t, s)
	if st := c.State(); st.Phases[""] != (Counts{Created: 3, Bound: 1, Running: 1, Ready: 1, Failed: 1}) || !st.LastProgress.IsZero() {
		t.Errorf("%+v", st)
	}
	began := time.Now().UnixMicro()
	s.put("pending", bind)
	s.put("new", none)
	s.put("old", func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} })
	s.put("old", nil)
	wait4(t, c, "", Bound, 2)
	wait4(t, c, "", Deleted, 1)
	wait4(t, c, "", Created, 4)
	c.Submitted(record.Operation{Phase: "load", Verb: "create", Resource: "pods", Namespace: "default", Name: "old", SentMicros: 5, DoneMicros: 6})
	stop()
	if len(r.pods) != 4 || !r.observed[record.TablePods] {
		t.Errorf("%d rows", len(r.pods))
	}
	old := r.named(t, "old")
	if old.CreatedMicros != 0 || old.BoundMicros != 0 || old.RunningMicros != 0 || old.ReadyMicros != 0 || old.DeletedMicros < began || old.Node != "n1" || old.SentMicros != 0 {
		t.Errorf("%+v", old)
	}
	if p := r.named(t, "pending"); p.CreatedMicros != 0 || p.BoundMicros < began || p.RunningMicros != 0 {
		t.Errorf("%+v", p)
	}
	if p := r.named(t, "broken"); p.FailedReason != "Evicted" || p.CreatedMicros != 0 {
		t.Errorf("%+v", p)
	}
	if p := r.named(t, "new"); p.CreatedMicros < began {
		t.Errorf("%+v", p)
	}
	for _, p := range r.pods {
		if p.Phase != "" {
			t.Errorf("%s is said to be of phase %s, which is another run's", p.Name, p.Phase)
		}
	}
}

// Why a pod does not come up is told while that lasts; what ended it stays.
func TestTrouble(t *testing.T) {
	s := newServer(t)
	c, r, stop := start(t, s)
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	pending := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, waiting(reason) }
	}
	s.put("image", pending("ContainerCreating"))
	s.put("image", pending("ErrImagePull"))
	s.put("image", pending("ImagePullBackOff"))
	s.put("mended", pending("ErrImagePull"))
	s.put("mended", func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, nil })
	s.put("starting", pending("PodInitializing"))
	s.put("init", func(p *corev1.Pod) {
		p.Status.Phase, p.Status.InitContainerStatuses = corev1.PodPending, waiting("CrashLoopBackOff")
	})
	s.put("failed-init", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}
	})
	s.put("drained", func(p *corev1.Pod) {
		running(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	})
	s.put("drained", nil)
	wait4(t, c, "", Deleted, 1)
	if n := c.State().Total.Failed; n != 1 {
		t.Errorf("%d pods failed for good", n)
	}
	stop()
	for name, want := range map[string]string{
		"image": "ErrImagePull", "mended": "", "starting": "", "init": "CrashLoopBackOff", "failed-init": "Error", "drained": "EvictionByEvictionAPI",
	} {
		if p := r.named(t, name); p.FailedReason != want {
			t.Errorf("%s: %q, want %q", name, p.FailedReason, want)
		}
	}
}

// A pod is tied to the claims of its volumes.
func TestClaims(t *testing.T) {
	s := newServer(t)
	s.put("old", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	c, r, stop := start(t, s)
	s.put("none", none)
	s.put("new", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-0"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		}
	})
	s.put("new", bind)
	wait4(t, c, "", Bound, 1)
	stop()
	var got []string
	for _, o := range r.objects {
		if o.Kind != "Pod" || o.Namespace != "default" || o.UID == "" || o.Changes != 0 || o.TimeMicros == 0 {
			t.Errorf("%+v", o)
		}
		got = append(got, o.Name+" "+o.Change+" "+o.Ref)
	}
	if want := []string{"old existing data", "new added data-0", "new added new-scratch"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestForbidden(t *testing.T) {
	s := newServer(t)
	s.drop(http.StatusForbidden)
	c := New(Options{Config: &rest.Config{Host: s.http.URL}, Run: "r1"})
	r := &recorder{}
	err := c.collect(t.Context(), r)
	if r.observed[record.TablePods] {
		t.Error("no pod could be seen, and still the table says that there was none")
	}
	if !errors.Is(err, collect.ErrNotSupported) || err.Error() != "pods cannot be watched: pods is forbidden; grant list and watch on pods" {
		t.Errorf("%v", err)
	}
	if err := c.Ready(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("ready: %v", err)
	}
}

func TestWaitEnds(t *testing.T) {
	s := newServer(t)
	c, _, stop := start(t, s)
	defer stop()
	ctx, cancel := context.WithCancelCause(t.Context())
	stalled := errors.New("stalled")
	time.AfterFunc(20*time.Millisecond, func() { cancel(stalled) })
	if err := c.Wait(ctx, "steady", Running, 1); !errors.Is(err, stalled) {
		t.Errorf("%v", err)
	}
	if err := c.Wait(t.Context(), "steady", "runing", 1); err == nil {
		t.Error("a stage that does not exist was waited for")
	}
}

// A pod as the load generator makes it and a kubelet fills it.
func fullPod() *corev1.Pod {
	now := metav1.Now()
	cond := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "density-0-6d4cf56db6-x2x9z", Namespace: "default", UID: "4b1f3c1e-5b0e-4b0e-9b0e-5b0e4b0e9b0e", ResourceVersion: "12345", CreationTimestamp: now,
			Labels:          map[string]string{LabelRun: "r1", LabelPhase: "steady", LabelObject: "density-0", "pod-template-hash": "6d4cf56db6"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "density-0-6d4cf56db6", UID: "x", Controller: &yes, BlockOwnerDeletion: &yes}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:metadata":{"f:labels":{}}}`, 30))},
				{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:status":{"f:conditions":{}}}`, 30))},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "hollow-12", ServiceAccountName: "default", SchedulerName: "default-scheduler",
			Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10", VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}},
			Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {ConfigMap: &corev1.ConfigMapProjection{Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}}}}}}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.2.3", StartTime: &now,
			Conditions:        []corev1.PodCondition{cond("PodReadyToStartContainers"), cond("Initialized"), cond("Ready"), cond("ContainersReady"), cond("PodScheduled")},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, Image: "registry.k8s.io/pause:3.10", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
		},
	}
}

// The walker takes what the typed decoder would.
func TestDecode(t *testing.T) {
	failed := fullPod()
	failed.Status.Phase = corev1.PodFailed
	failed.OwnerReferences = nil
	failed.Status.Conditions[2].Status = corev1.ConditionFalse
	failed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	evicted := failed.DeepCopy()
	evicted.Status.Reason = "Evicted"
	code := failed.DeepCopy()
	code.Status.ContainerStatuses[0].State.Terminated.Reason = ""
	job := fullPod()
	job.OwnerReferences[0].Kind, job.OwnerReferences[0].Name = "Job", "j"
	unlabelled := fullPod()
	delete(unlabelled.Labels, LabelObject)
	for _, c := range []struct {
		name          string
		pod           *corev1.Pod
		owner, failed string
		ready         bool
	}{
		{"empty", &corev1.Pod{}, "", "Failed", false},
		{"of a Deployment", fullPod(), "Deployment/density-0", "Failed", true},
		{"of a Deployment that has no label", unlabelled, "Deployment/density-0", "Failed", true},
		{"of a Job", job, "Job/j", "Failed", true},
		{"failed", failed, "", "OOMKilled", false},
		{"evicted", evicted, "", "Evicted", false},
		{"exit code", code, "", "exit code 137", false},
	} {
		var s sight
		kind, object, err := decode(framed("MODIFIED", wrap("Pod", c.pod))[4:])
		if err != nil || kind != "MODIFIED" {
			t.Errorf("%s: %s, %v", c.name, kind, err)
		}
		if err := s.pod(object); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		p := c.pod
		if string(s.uid) != string(p.UID) || string(s.name) != p.Name || string(s.namespace) != p.Namespace || string(s.version) != p.ResourceVersion ||
			string(s.node) != p.Spec.NodeName || string(s.status) != string(p.Status.Phase) || string(s.labelPhase) != p.Labels[LabelPhase] ||
			s.ofOwner() != c.owner || s.failure() != c.failed || s.ready != c.ready {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(framed("MODIFIED", wrap("Pod", fullPod()))[4:])
	f.Add(framed("ERROR", wrap("Status", &metav1.Status{Code: 410}))[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		_, object, err := decode(b)
		if err != nil {
			object = b
		}
		var s sight
		if s.pod(object) == nil {
			s.ofOwner()
			s.failure()
			s.trouble(false, "")
			s.claims(func(string) {})
		}
		var o seen
		for i := range lifeKinds {
			o.object(&lifeKinds[i], object)
		}
		var e occurrence
		if e.read(object) == nil {
			e.row(time.Time{}, 1)
		}
		decodeList(b, func([]byte) error { return nil })
	})
}

func BenchmarkPodEvent(b *testing.B) {
	data := framed("MODIFIED", wrap("Pod", fullPod()))[4:]
	s := stream{to: &pods{c: New(Options{})}}
	at := time.Now()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.take(frame{at, data}, false, nil); err != nil {
			b.Fatal(err)
		}
	}
}

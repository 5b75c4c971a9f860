package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
)

// hub is an API server for all kinds that Lives follow.
type hub struct {
	stores map[string]*store // by path
	http   *httptest.Server
}

const eventsPath = "/api/v1/events"

type tester interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
	Cleanup(func())
}

func newHub(t tester) *hub {
	h := &hub{stores: map[string]*store{eventsPath: newStore("Event")}}
	for _, k := range lifeKinds {
		h.stores[k.version+"/"+k.resource] = newStore(k.name)
	}
	h.http = httptest.NewServer(h)
	t.Cleanup(h.close)
	return h
}

func (h *hub) close() {
	for _, s := range h.stores {
		s.drop(0)
	}
	h.http.CloseClientConnections()
	h.http.Close()
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.stores[r.URL.Path]
	if s == nil {
		http.NotFound(w, r)
		return
	}
	s.ServeHTTP(w, r)
}

// put makes or changes an object of a kind.
func put[T any, P interface {
	*T
	object
}](h *hub, kind, name string, change func(P)) {
	h.of(kind).put(name, func() object { return P(new(T)) }, func(o object) { change(o.(P)) }, false)
}

func (h *hub) remove(kind, name string) { h.of(kind).put(name, nil, nil, true) }

func (h *hub) of(kind string) *store {
	for _, s := range h.stores {
		if s.kind == kind {
			return s
		}
	}
	panic("no kind " + kind)
}

// live collects until stop is called.
func live(t tester, h *hub, o LivesOptions) (l *Lives, r *recorder, stop func()) {
	t.Helper()
	o.Config = &rest.Config{Host: h.http.URL}
	l, r = NewLives(o), &recorder{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.collect(ctx, r) }()
	ready, give := context.WithTimeout(ctx, 10*time.Second)
	defer give()
	if err := l.Ready(ready); err != nil {
		t.Fatalf("%v", err)
	}
	return l, r, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%v", err)
		}
	}
}

// shown waits until as many objects have been seen.
func shown(t tester, l *Lives, n int64) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); l.shown.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d objects were seen, want %d", l.shown.Load(), n)
		}
	}
}

// line is a row without what differs from run to run.
func line(o record.ObjectChange) string {
	s := fmt.Sprintf("%s %s %s", o.Change, o.Kind, o.Name)
	for _, c := range []struct{ name, value string }{{"state", o.State}, {"node", o.Node}, {"ref", o.Ref}, {"owner", o.Owner}} {
		if c.value != "" {
			s += " " + c.name + "=" + c.value
		}
	}
	if o.Desired+o.Ready > 0 {
		s += fmt.Sprintf(" %d/%d", o.Ready, o.Desired)
	}
	return s + fmt.Sprintf(" +%d", o.Changes)
}

func lines(r *recorder, kind string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.objects {
		if o.Kind == kind {
			out = append(out, line(o))
		}
	}
	return out
}

func wants(t *testing.T, r *recorder, kind string, want ...string) {
	t.Helper()
	if got := lines(r, kind); !slices.Equal(got, want) {
		t.Errorf("rows of %s:\n%s\nwant\n%s", kind, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestVolumes(t *testing.T) {
	h := newHub(t)
	put(h, "PersistentVolume", "old", func(p *corev1.PersistentVolume) { p.Status.Phase = corev1.VolumeAvailable })
	l, r, stop := live(t, h, LivesOptions{})
	claim := func(f func(*corev1.PersistentVolumeClaim)) { put(h, "PersistentVolumeClaim", "data", f) }
	claim(func(p *corev1.PersistentVolumeClaim) {
		p.Namespace, p.Status.Phase = "default", corev1.ClaimPending
		p.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n1"}
	})
	claim(func(p *corev1.PersistentVolumeClaim) { p.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	claim(func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "pv" })
	claim(func(p *corev1.PersistentVolumeClaim) { p.Status.Phase = corev1.ClaimBound })
	volume := func(f func(*corev1.PersistentVolume)) { put(h, "PersistentVolume", "pv", f) }
	volume(func(p *corev1.PersistentVolume) {
		p.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	})
	volume(func(p *corev1.PersistentVolume) { p.Status.Phase = corev1.VolumeBound })
	name := "pv"
	attach := func(f func(*storagev1.VolumeAttachment)) { put(h, "VolumeAttachment", "csi-1", f) }
	attach(func(a *storagev1.VolumeAttachment) {
		a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = "n1", &name
	})
	attach(func(a *storagev1.VolumeAttachment) {
		a.Status.AttachError = &storagev1.VolumeError{Message: "no"}
	})
	attach(func(a *storagev1.VolumeAttachment) { a.Status.AttachError, a.Status.Attached = nil, true })
	attach(func(a *storagev1.VolumeAttachment) { now := metav1.Now(); a.DeletionTimestamp = &now })
	h.remove("VolumeAttachment", "csi-1")
	shown(t, l, 12)
	stop()
	wants(t, r, "PersistentVolumeClaim",
		"added PersistentVolumeClaim data state=Pending node=n1 +1",
		"modified PersistentVolumeClaim data state=Pending node=n1 ref=pv +2",
		"modified PersistentVolumeClaim data state=Bound node=n1 ref=pv +1")
	wants(t, r, "PersistentVolume",
		"existing PersistentVolume old state=Available +0",
		"added PersistentVolume pv ref=default/data +1",
		"modified PersistentVolume pv state=Bound ref=default/data +1")
	wants(t, r, "VolumeAttachment",
		"added VolumeAttachment csi-1 state=attaching node=n1 ref=pv +1",
		"modified VolumeAttachment csi-1 state=failed node=n1 ref=pv +1",
		"modified VolumeAttachment csi-1 state=attached node=n1 ref=pv +1",
		"modified VolumeAttachment csi-1 state=detaching node=n1 ref=pv +1",
		"deleted VolumeAttachment csi-1 state=detaching node=n1 ref=pv +1")
	if len(r.gaps) != 0 || !r.observed[record.TableObjects] || !r.observed[record.TableEvents] {
		t.Errorf("gaps %+v, tables %v", r.gaps, r.observed)
	}
	for _, s := range h.stores {
		if len(s.agents) != 1 || !s.agents[UserAgent] {
			t.Errorf("agents of %s: %v", s.kind, s.agents)
		}
	}
}

func TestNodesAndLeases(t *testing.T) {
	h := newHub(t)
	l, r, stop := live(t, h, LivesOptions{})
	node := func(status corev1.ConditionStatus, taints ...string) {
		put(h, "Node", "n1", func(n *corev1.Node) {
			n.Spec.Taints = nil
			for _, key := range taints {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status}}
		})
	}
	node(corev1.ConditionFalse, "node.kubernetes.io/not-ready", "a")
	node(corev1.ConditionTrue, "a")
	node(corev1.ConditionTrue, "a")
	node(corev1.ConditionTrue)
	node(corev1.ConditionUnknown)
	renew := func(namespace, name, holder string) {
		put(h, "Lease", name, func(l *coordinationv1.Lease) {
			now := metav1.NowMicro()
			l.Namespace, l.Spec.RenewTime, l.Spec.HolderIdentity = namespace, &now, &holder
		})
	}
	for range 5 {
		renew("kube-node-lease", "n1", "n1")
	}
	renew("kube-system", "kube-scheduler", "a")
	renew("kube-system", "kube-scheduler", "a")
	renew("kube-system", "kube-scheduler", "b")
	renew("kube-system", "kube-scheduler", "")
	shown(t, l, 14)
	before := len(lines(r, "Lease"))
	stop()
	wants(t, r, "Node",
		"added Node n1 state=NotReady ref=a:NoSchedule,node.kubernetes.io/not-ready:NoSchedule +1",
		"modified Node n1 state=Ready ref=a:NoSchedule +1",
		"modified Node n1 state=Ready +2",
		"modified Node n1 state=Unknown +1")
	if before != 4 {
		t.Errorf("%d rows of leases before the end: a renewal is no row", before)
	}
	wants(t, r, "Lease",
		"added Lease n1 state=n1 node=n1 +1",
		"added Lease kube-scheduler state=a +1",
		"modified Lease kube-scheduler state=b +2",
		"modified Lease kube-scheduler +1",
		"modified Lease n1 state=n1 node=n1 +4")
}

func TestWorkloads(t *testing.T) {
	h := newHub(t)
	l, r, stop := live(t, h, LivesOptions{})
	three, yes := int32(3), true
	put(h, "Deployment", "web", func(d *appsv1.Deployment) { d.Generation, d.Spec.Replicas = 1, &three })
	put(h, "Deployment", "web", func(d *appsv1.Deployment) {
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 2}
	})
	put(h, "Deployment", "web", func(d *appsv1.Deployment) { d.Status.ReadyReplicas, d.Status.AvailableReplicas = 3, 3 })
	put(h, "Deployment", "web", func(d *appsv1.Deployment) { d.Generation = 2 })
	put(h, "Deployment", "web", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	put(h, "Deployment", "web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
	put(h, "Deployment", "web", func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
	})
	put(h, "ReplicaSet", "web-1", func(s *appsv1.ReplicaSet) {
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: &yes}}
		s.Spec.Replicas = &three
		s.Status = appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	})
	put(h, "StatefulSet", "db", func(s *appsv1.StatefulSet) {
		s.Generation, s.Spec.Replicas = 1, &three
		s.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 2}
	})
	put(h, "StatefulSet", "db", func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 3 })
	put(h, "DaemonSet", "agent", func(s *appsv1.DaemonSet) {
		s.Generation = 1
		s.Status = appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 5, UpdatedNumberScheduled: 5, NumberReady: 4, NumberAvailable: 4}
	})
	put(h, "DaemonSet", "agent", func(s *appsv1.DaemonSet) { s.Status.NumberReady, s.Status.NumberAvailable = 5, 5 })
	put(h, "Job", "sum", func(j *batchv1.Job) { j.Spec.Completions = &three })
	put(h, "Job", "sum", func(j *batchv1.Job) { j.Status.Active = 2 })
	put(h, "Job", "sum", func(j *batchv1.Job) {
		j.Status.Succeeded = 3
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	})
	put(h, "Job", "bad", func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	})
	h.remove("Job", "bad")
	shown(t, l, 15)
	stop()
	wants(t, r, "Deployment",
		"added Deployment web state=progressing 0/3 +1",
		"modified Deployment web state=progressing 2/3 +1",
		"modified Deployment web state=complete 3/3 +1",
		"modified Deployment web state=progressing 3/3 +1",
		"modified Deployment web state=paused 3/3 +1",
		"modified Deployment web state=progressing 3/3 +1",
		"modified Deployment web state=failed 3/3 +1")
	wants(t, r, "ReplicaSet", "added ReplicaSet web-1 state=complete owner=Deployment/web 3/3 +1")
	wants(t, r, "StatefulSet", "added StatefulSet db state=progressing 3/3 +1", "modified StatefulSet db state=complete 3/3 +1")
	wants(t, r, "DaemonSet", "added DaemonSet agent state=progressing 4/5 +1", "modified DaemonSet agent state=complete 5/5 +1")
	wants(t, r, "Job",
		"added Job sum state=progressing 0/3 +1",
		"modified Job sum state=complete 3/3 +2",
		"added Job bad state=failed 0/1 +1",
		"deleted Job bad state=failed 0/1 +1")
}

func TestEvents(t *testing.T) {
	h := newHub(t)
	say := func(name, message string, count int32) {
		put(h, "Event", name, func(e *corev1.Event) {
			e.Type, e.Reason, e.Message, e.Count = "Warning", "FailedScheduling", message, count
			e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"}
			e.Source.Component = "default-scheduler"
			e.FirstTimestamp, e.LastTimestamp = metav1.Unix(1000, 0), metav1.Unix(1000+int64(count), 0)
		})
	}
	say("old", "from before", 7)
	say("idle", "from before", 7)
	l, r, stop := live(t, h, LivesOptions{MaxEvents: 6})
	say("a", "no node", 1)
	say("a", "no node", 4)
	say("a", "no node", 4) // a write that reports nothing more
	say("old", "from before", 9)
	say("s", "login with token=c2VjcmV0c2VjcmV0 failed", 1)
	put(h, "Event", "new-style", func(e *corev1.Event) {
		e.EventTime = metav1.NewMicroTime(time.UnixMicro(2_000_000_123))
		e.ReportingController = "kubelet"
		e.Series = &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(time.UnixMicro(2_000_005_000))}
		e.Message = strings.Repeat("ä", 600)
	})
	h.remove("Event", "a")
	shown(t, l, 6)
	h.of("Event").drop(http.StatusServiceUnavailable)
	say("missed", "while nobody watched", 1)
	time.Sleep(100 * time.Millisecond)
	h.of("Event").forget()
	h.of("Event").drop(0)
	shown(t, l, 7)
	say("b", "left out", 1)
	say("c", "left out", 1)
	shown(t, l, 9)
	stop()
	var got []string
	for _, e := range r.events {
		got = append(got, fmt.Sprintf("%s/%s %d", e.Reporter, e.Message[:min(10, len(e.Message))], e.Count))
		if e.TimeMicros == 0 {
			t.Errorf("%+v", e)
		}
	}
	want := []string{
		"default-scheduler/no node 1", "default-scheduler/no node 3", "default-scheduler/from befor 1", "default-scheduler/login with 1",
		"kubelet/äääää 3", "default-scheduler/while nobo 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if e := r.events[0]; e.FirstMicros != 1000e6 || e.LastMicros != 1001e6 || e.Kind != "Pod" || e.Namespace != "default" || e.Name != "p" || e.Type != "Warning" || e.Reason != "FailedScheduling" {
		t.Errorf("%+v", e)
	}
	if m := r.events[3].Message; strings.Contains(m, "c2VjcmV0") {
		t.Errorf("a secret stays: %s", m)
	}
	if e := r.events[4]; e.FirstMicros != 2_000_000_123 || e.LastMicros != 2_000_005_000 || len(e.Message) != maxMessage {
		t.Errorf("%+v (%d bytes)", e, len(e.Message))
	}
	var cut []string
	for _, g := range r.gaps {
		if !strings.Contains(g.Reason, "interrupted") {
			cut = append(cut, g.Subject+": "+g.Reason)
		}
	}
	if !slices.Equal(cut, []string{"events: 2 Events more were left out: 6 are kept"}) {
		t.Errorf("%+v", r.gaps)
	}
}

// What may not be watched, or is not there, is one gap each, with the way out.
func TestRefusedKinds(t *testing.T) {
	h := newHub(t)
	delete(h.stores, "/apis/storage.k8s.io/v1/volumeattachments")
	h.of("Node").drop(http.StatusForbidden)
	h.of("Event").drop(http.StatusForbidden)
	_, r, stop := live(t, h, LivesOptions{})
	put(h, "Lease", "l", func(*coordinationv1.Lease) {})
	stop()
	var got []string
	for _, g := range r.gaps {
		got = append(got, g.Collector+" "+g.Subject+": "+g.Reason)
	}
	want := []string{
		"lives volumeattachments.storage.k8s.io: the server has no volumeattachments.storage.k8s.io",
		"lives nodes: nodes cannot be watched: nodes is forbidden; grant list and watch on nodes",
		"lives events: events cannot be watched: events is forbidden; grant list and watch on events",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if r.observed[record.TableEvents] || !r.observed[record.TableObjects] {
		t.Errorf("%v", r.observed)
	}
	for _, s := range h.stores {
		s.drop(http.StatusForbidden)
	}
	_, r, stop = live(t, h, LivesOptions{})
	stop()
	last := r.gaps[len(r.gaps)-1]
	if len(r.gaps) != 12 || last.Subject != "objects" || !strings.Contains(last.Reason, "grant list and watch on leases.coordination.k8s.io") || len(r.observed) != 0 {
		t.Errorf("%d gaps, the last %+v, tables %v", len(r.gaps), last, r.observed)
	}
}

// After a watch that broke, what it missed is late; what a list no longer has
// is gone, and what did not change is no row.
func TestLivesBreak(t *testing.T) {
	h := newHub(t)
	set := func(name string, phase corev1.PersistentVolumeClaimPhase) {
		put(h, "PersistentVolumeClaim", name, func(p *corev1.PersistentVolumeClaim) { p.Status.Phase = phase })
	}
	l, r, stop := live(t, h, LivesOptions{})
	set("stays", corev1.ClaimPending)
	set("binds", corev1.ClaimPending)
	set("goes", corev1.ClaimPending)
	shown(t, l, 3)
	s := h.of("PersistentVolumeClaim")
	s.drop(http.StatusServiceUnavailable)
	set("binds", corev1.ClaimBound)
	set("comes", corev1.ClaimPending)
	h.remove("PersistentVolumeClaim", "goes")
	s.forget()
	time.Sleep(100 * time.Millisecond)
	s.drop(0)
	shown(t, l, 6)
	stop()
	var late []string
	for _, o := range r.objects[3:] {
		if !o.Late {
			t.Errorf("in time: %+v", o)
		}
		late = append(late, line(o))
	}
	slices.Sort(late)
	if want := []string{
		"added PersistentVolumeClaim comes state=Pending +1",
		"deleted PersistentVolumeClaim goes state=Pending +1",
		"modified PersistentVolumeClaim binds state=Bound +1",
	}; !slices.Equal(late, want) {
		t.Errorf("%q\nwant %q", late, want)
	}
	if len(r.gaps) == 0 || r.gaps[0].Subject != "persistentvolumeclaims" {
		t.Errorf("%+v", r.gaps)
	}
}

// However writes come, and however often watches break: the rows' changes sum
// up to the writes, and two rows of an object that follow each other differ,
// the one at the end aside.
func TestChangesAreWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHub(rt)
		defer h.close()
		l, r, stop := live(rt, h, LivesOptions{})
		s := h.of("Lease")
		holders := []string{"", "a", "b"}
		n := rapid.IntRange(1, 60).Draw(rt, "writes")
		for range n {
			name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "lease")
			switch what := rapid.IntRange(0, 19).Draw(rt, "what"); {
			case what == 0:
				s.drop(0)
				fallthrough
			case what < 3 && s.has(name):
				if s.has(name) {
					h.remove("Lease", name)
					break
				}
				fallthrough
			default:
				put(h, "Lease", name, func(l *coordinationv1.Lease) {
					holder := rapid.SampledFrom(holders).Draw(rt, "holder")
					l.Spec.HolderIdentity = &holder
				})
			}
		}
		shown(rt, l, int64(n))
		stop()
		sum := map[string]int32{}
		last := map[string]record.ObjectChange{}
		total := int32(0)
		for _, o := range r.objects {
			before, known := last[o.UID]
			if known == (o.Change == changeAdded) {
				rt.Errorf("%s after %+v", line(o), before)
			}
			if o.TimeMicros < before.TimeMicros {
				rt.Errorf("%s goes back in time", line(o))
			}
			last[o.UID] = o
			sum[o.Name] += o.Changes
			total += o.Changes
		}
		if total != int32(n) {
			rt.Errorf("rows tell of %d writes, there were %d: %v", total, n, sum)
		}
		if len(r.objects) > n {
			rt.Errorf("%d rows of %d writes", len(r.objects), n)
		}
	})
}

func (s *store) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name] != nil
}

// tape is a watch that was recorded: its stream is played as fast as it is read.
type tape struct {
	data []byte
	list []byte
}

func (p *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	body := p.list
	if r.URL.Query().Get("watch") != "" {
		body = p.data
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// As a kubelet renews: 1,000 leases, from the stream's bytes to their counts.
func BenchmarkLeaseRenewals(b *testing.B) {
	const leases = 1000
	var data []byte
	for i := range leases {
		name, seconds := fmt.Sprint("hollow-", i), int32(40)
		now := metav1.NowMicro()
		data = append(data, framed("MODIFIED", wrap("Lease", &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "kube-node-lease", UID: "4b1f3c1e-5b0e-4b0e-9b0e-5b0e4b0e9b0e", ResourceVersion: fmt.Sprint(1000 + i), CreationTimestamp: metav1.Now(),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: "x"}},
				ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:spec":{"f:renewTime":{}}}`, 8))}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}))...)
	}
	l := NewLives(LivesOptions{})
	k := l.kinds[slices.IndexFunc(lifeKinds, func(k kind) bool { return k.name == "Lease" })]
	k.w = &recorder{}
	s := stream{api: &client{http: &http.Client{Transport: &tape{data: data}}, base: "http://x"}, ahead: 256, to: k}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.watch(b.Context(), "1", false, func() {}); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/leases, "ns/renewal")
}

func BenchmarkNodeStatus(b *testing.B) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "1"}}
	for i := range 40 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.k8s.io/image-%d@sha256:%064d", i, i)}})
	}
	for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status"})
	}
	benchmarkKind(b, "Node", n)
}

func BenchmarkDeploymentStatus(b *testing.B) {
	three := int32(3)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", ResourceVersion: "1", ManagedFields: fullPod().ManagedFields}}
	d.Spec = appsv1.DeploymentSpec{Replicas: &three, Template: corev1.PodTemplateSpec{Spec: fullPod().Spec}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 2}
	benchmarkKind(b, "Deployment", d)
}

func benchmarkKind(b *testing.B, name string, o interface{ Marshal() ([]byte, error) }) {
	data := framed("MODIFIED", wrap(name, o))[4:]
	k := NewLives(LivesOptions{}).kinds[slices.IndexFunc(lifeKinds, func(k kind) bool { return k.name == name })]
	k.w = &recorder{}
	s := stream{to: k}
	at := time.Now()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.take(frame{at, data}, false, nil); err != nil {
			b.Fatal(err)
		}
	}
}

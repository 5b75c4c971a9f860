package objects

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, nil); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// The lives of objects on a real control plane, whose own controllers bind,
// scale and run; and a user without rights, who gets a gap a kind.
func TestLivesOfARealControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	l, err := lab.Start(t.Context(), lab.Config{Lab: labtest.Binary(t), StateRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Stop(context.Background()); l.Remove() })
	cp := l.ControlPlane()
	admin, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	nobody := rest.CopyConfig(admin)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	gaps := observing(t, ctx, nobody, func(*Lives) {})
	meta := gaps.Meta()
	if len(meta.Gaps) != len(lifeKinds)+2 {
		t.Errorf("%d gaps of a user without rights: %+v", len(meta.Gaps), meta.Gaps)
	}
	for _, g := range meta.Gaps {
		if !strings.Contains(g.Reason, "grant list and watch on ") {
			t.Errorf("a gap without a way out: %+v", g)
		}
	}
	if _, err := gaps.Objects(); !errors.Is(err, record.ErrMissing) || !strings.Contains(err.Error(), "persistentvolumeclaims is forbidden") {
		t.Errorf("objects of a user without rights: %v", err)
	}
	if _, err := gaps.Events(); !errors.Is(err, record.ErrMissing) || !strings.Contains(err.Error(), "grant list and watch on events") {
		t.Errorf("events of a user without rights: %v", err)
	}

	collector, err := cp.RESTConfig("collect")
	if err != nil {
		t.Fatal(err)
	}
	rec := observing(t, ctx, collector, func(*Lives) { act(t, ctx, api) })
	if m := rec.Meta(); len(m.Gaps) != 0 {
		t.Errorf("gaps: %+v", m.Gaps)
	}
	for _, o := range rec.Meta().Collectors {
		t.Logf("%+v", o)
	}
	rows, err := rec.Objects()
	if err != nil {
		t.Fatal(err)
	}
	states := map[string][]string{} // of kind/name, as they followed
	for _, o := range rows {
		if o.Late || o.TimeMicros == 0 || o.UID == "" {
			t.Errorf("%+v", o)
		}
		key := o.Kind + "/" + o.Name
		if n := len(states[key]); n == 0 || states[key][n-1] != o.State {
			states[key] = append(states[key], o.State)
		}
	}
	for key, want := range map[string]string{
		"PersistentVolumeClaim/data":       "Pending Bound",
		"PersistentVolumeClaim/impossible": "Pending",
		"Deployment/web":                   "progressing",
		"Job/sum":                          "progressing",
		"Lease/leader":                     "a b",
		"Node/n1":                          "NotReady Ready",
		"VolumeAttachment/csi-data":        "attaching attached",
	} {
		if got := strings.Join(states[key], " "); got != want {
			t.Errorf("%s was %q, want %q", key, got, want)
		}
	}
	if s := states["PersistentVolume/pv-data"]; len(s) == 0 || s[len(s)-1] != "Bound" {
		t.Errorf("the volume was %q", s)
	}
	var ownedBy, bound, renewals int
	for _, o := range rows {
		switch {
		case o.Kind == "ReplicaSet" && o.Owner == "Deployment/web" && o.Desired == 2:
			ownedBy++
		case o.Kind == "PersistentVolumeClaim" && o.State == "Bound" && o.Ref == "pv-data":
			bound++
		case o.Kind == "Lease" && o.Name == "leader":
			renewals += int(o.Changes)
		}
	}
	if ownedBy == 0 || bound == 0 || renewals != 5 {
		t.Errorf("replica sets of web %d, claim bound to the volume %d, writes of the lease %d of 5", ownedBy, bound, renewals)
	}
	events, err := rec.Events()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, e := range events {
		found[e.Reason] = true
		if e.Reason == "Tested" && (e.Message != "by hand" || e.Kind != "Pod" || e.Name != "p" || e.Count != 1) {
			t.Errorf("%+v", e)
		}
	}
	if !found["Tested"] || !found["ScalingReplicaSet"] || !found["ProvisioningFailed"] {
		t.Errorf("reasons of Events: %v", found)
	}
}

// observing records while during runs.
func observing(t *testing.T, ctx context.Context, config *rest.Config, during func(*Lives)) *record.Recording {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "recording")
	w, err := record.Create(dir, record.Meta{Name: "lives"})
	if err != nil {
		t.Fatal(err)
	}
	// Whether the server tells its clock, and sends what is read alone, is up to it; that it does is checked here.
	config = rest.CopyConfig(config)
	var told, watches atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(req)
			if err == nil && res.StatusCode == http.StatusOK && req.URL.Query().Has("watch") {
				watches.Add(1)
				if res.Header.Get(stampsHeader) != "" && res.Header.Get(fieldsHeader) == req.Header.Get(fieldsHeader) && req.Header.Get(fieldsHeader) != "" {
					told.Add(1)
				}
			}
			return res, err
		})
	})
	t.Cleanup(func() {
		if told.Load() != watches.Load() {
			t.Errorf("%d of %d watches had the server's clock and the fields asked for", told.Load(), watches.Load())
		}
	})
	l := NewLives(LivesOptions{Config: config, Stamps: true})
	g := collect.Start(ctx, w, l)
	if err := l.Ready(g.Context()); err != nil {
		t.Error(err)
	}
	during(l)
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return recordtest.Open(t, dir)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// act makes objects of each kind and waits for what controllers make of them.
func act(t *testing.T, ctx context.Context, api kubernetes.Interface) {
	t.Helper()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	none := ""
	spec := func(class *string) corev1.PersistentVolumeClaimSpec {
		return corev1.PersistentVolumeClaimSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}
	}
	created := metav1.CreateOptions{}
	claims := api.CoreV1().PersistentVolumeClaims("default")
	ok(api.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-data"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}, created))
	ok(claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: spec(&none)}, created))
	missing := "missing"
	ok(claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "impossible"}, Spec: spec(&missing)}, created))

	labels := map[string]string{"app": "web"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "pause"}}}}
	two := int32(2)
	ok(api.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod},
	}, created))
	once := pod
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	ok(api.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, Spec: batchv1.JobSpec{Template: once}}, created))

	leases := api.CoordinationV1().Leases("default")
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr("a")}}, created)
	if err != nil {
		t.Fatal(err)
	}
	for i, holder := range []string{"a", "a", "a", "b"} {
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, ptr(int32(i+1))
		if lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}}}
	node, err = api.CoreV1().Nodes().Create(ctx, node, created)
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	node.ResourceVersion = ""
	ok(api.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}))
	attachment, err := api.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-data"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr("pv-data")}},
	}, created)
	if err != nil {
		t.Fatal(err)
	}
	attachment.Status.Attached = true
	ok(api.StorageV1().VolumeAttachments().UpdateStatus(ctx, attachment, metav1.UpdateOptions{}))
	ok(api.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "tested"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
		Type: "Normal", Reason: "Tested", Message: "by hand", Count: 1,
	}, created))

	for {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		web, err := api.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		said, err := api.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=ProvisioningFailed"})
		if err != nil {
			t.Fatal(err)
		}
		if claim.Status.Phase == corev1.ClaimBound && web.Status.ObservedGeneration > 0 && web.Status.Replicas == 2 && len(said.Items) > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // for the watches to bring it
}

func ptr[T any](v T) *T { return &v }

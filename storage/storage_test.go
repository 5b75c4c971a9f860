package storage

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/kubedyno/kubedyno/experiment"
)

func constant(d time.Duration) experiment.Distribution {
	return experiment.Distribution{Kind: experiment.Constant, Value: d}
}

func testConfig() *Config {
	return &Config{RunID: "r", Identity: "kubedyno-csi-0", Seed: 1, Storage: experiment.Storage{
		Driver: "csi.example.com", Class: "fast", Binding: experiment.BindingImmediate, Attach: true, Workers: 2, AttachWorkers: 2, QPS: 5, Burst: 10,
		ProvisionDelay: constant(0), AttachDelay: constant(0),
	}}
}

func TestDraw(t *testing.T) {
	d := experiment.Distribution{Kind: experiment.Uniform, Min: time.Second, Max: 2 * time.Second}
	seen := map[time.Duration]bool{}
	for _, key := range []struct {
		seed           int64
		uid, operation string
	}{{1, "a", drawCreate}, {1, "a", drawDelete}, {1, "b", drawCreate}, {2, "a", drawCreate}} {
		got := draw(key.seed, key.uid, key.operation, d)
		if got < time.Second || got > 2*time.Second || seen[got] {
			t.Errorf("%v: %v, seen before: %v", key, got, seen[got])
		}
		if again := draw(key.seed, key.uid, key.operation, d); again != got {
			t.Errorf("%v: %v, then %v", key, got, again)
		}
		seen[got] = true
	}
}

// A call that is not answered in time fails, and the operation goes on: a later
// call finds it done.
func TestBackendOutlivesItsCallers(t *testing.T) {
	b := newBackend(1, newMetrics("d").backend)
	now := time.Unix(0, 0)
	b.clock = func() time.Time { return now }
	call := func(ctx context.Context, patience time.Duration) error {
		return b.do(ctx, "CreateVolume", "uid", drawCreate, constant(time.Hour), patience)
	}
	if err := call(t.Context(), time.Millisecond); !errors.Is(err, errDeadline) {
		t.Errorf("%v, want a deadline", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := call(ended, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	now = now.Add(time.Hour) // since the first call
	if err := call(t.Context(), time.Millisecond); err != nil {
		t.Errorf("an operation that is done: %v", err)
	}
}

func TestConfig(t *testing.T) {
	c := testConfig()
	c.Kubeconfig, c.Namespace = "k", "n"
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseConfig(line)
	if err != nil || got != *c {
		t.Errorf("%+v (%v)", got, err)
	}
	for _, bad := range []string{`{}`, `{"kubeconfig":"k","namespace":"n","identity":"i"}`, `{"worker":1}`, `[`} {
		if _, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestProvision(t *testing.T) {
	conf := testConfig()
	p := &provisioner{conf: conf, backend: newBackend(1, newMetrics("d").backend), attached: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byVolume: volumeOf})}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	class := Installation{Storage: conf.Storage, RunID: "r"}.class()
	volume, state, err := p.Provision(t.Context(), controller.ProvisionOptions{PVName: "pvc-u", PVC: claim, StorageClass: class})
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	if s := volume.Spec; volume.Name != "pvc-u" || volume.Labels[LabelRun] != "r" || s.CSI.Driver != "csi.example.com" || s.CSI.VolumeHandle != "pvc-u" ||
		s.Capacity.Storage().Cmp(resource.MustParse("1Gi")) != 0 || s.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || !slices.Equal(s.AccessModes, claim.Spec.AccessModes) {
		t.Errorf("%+v", volume)
	}
	if err := p.attached.Add(attachment("a", "pvc-u", "n1")); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), volume); err == nil || !strings.Contains(err.Error(), "attached to node n1") {
		t.Errorf("a volume that is attached is deleted: %v", err)
	}
	if err := p.attached.Delete(attachment("a", "pvc-u", "n1")); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), volume); err != nil {
		t.Error(err)
	}
}

func attachment(name, volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "x"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "csi.example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(volume)},
	}}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// An attachment's life: attached under finalizers, detached when it is to go;
// the volume is let go after it.
func TestAttacher(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Finalizers: []string{"kubernetes.io/pv-protection"}}}
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "id-1"}}}}
	client := fake.NewClientset([]runtime.Object{volume, node, attachment("a", "pv", "n1"), attachment("lost", "pv", "n2"), func() *storagev1.VolumeAttachment {
		theirs := attachment("theirs", "pv", "n1")
		theirs.Spec.Attacher = "other"
		return theirs
	}()}...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&attacher{conf: testConfig(), client: client, backend: newBackend(1, newMetrics("d").backend)}).run(ctx, func() {})
	}()
	defer func() { cancel(); <-done }()
	get := func(name string) *storagev1.VolumeAttachment {
		a, err := client.StorageV1().VolumeAttachments().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	held := func() []string {
		v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return v.Finalizers
	}
	finalizer := Finalizer("csi.example.com")
	eventually(t, "a is attached", func() bool { return get("a").Status.Attached })
	if a := get("a"); !slices.Equal(a.Finalizers, []string{finalizer}) || a.Annotations[nodeID] != "id-1" {
		t.Errorf("%+v", a.ObjectMeta)
	}
	if !slices.Equal(held(), []string{"kubernetes.io/pv-protection", finalizer}) {
		t.Errorf("the volume is held by %v", held())
	}
	eventually(t, "an unknown node is told", func() bool { return get("lost").Status.AttachError != nil })
	if get("theirs").Status.Attached {
		t.Error("somebody else's attachment is attached")
	}

	going := get("a")
	going.DeletionTimestamp = ptr.To(metav1.Now())
	if _, err := client.StorageV1().VolumeAttachments().Update(t.Context(), going, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a is detached and let go", func() bool {
		// The fake server keeps it: deletion is the real one's.
		a, err := client.StorageV1().VolumeAttachments().Get(t.Context(), "a", metav1.GetOptions{})
		return err != nil || len(a.Finalizers) == 0 && !a.Status.Attached
	})
	for _, name := range []string{"a", "lost", "theirs"} {
		_ = client.StorageV1().VolumeAttachments().Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v.DeletionTimestamp = ptr.To(metav1.Now())
	if _, err := client.CoreV1().PersistentVolumes().Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is let go", func() bool { return !slices.Contains(held(), finalizer) })
}

func TestInstall(t *testing.T) {
	i := Installation{Storage: testConfig().Storage, RunID: "r", Namespace: "kubedyno-r-csi", Default: true}
	i.Storage.Binding = experiment.BindingFirstConsumer
	client := fake.NewClientset()
	if err := i.Install(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	class, err := client.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	if err != nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || class.Provisioner != "csi.example.com" ||
		class.Labels[LabelRun] != "r" || class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
		t.Errorf("%+v (%v)", class, err)
	}
	driver, err := client.StorageV1().CSIDrivers().Get(t.Context(), "csi.example.com", metav1.GetOptions{})
	if err != nil || !*driver.Spec.AttachRequired || driver.Labels[LabelRun] != "r" {
		t.Errorf("%+v (%v)", driver, err)
	}
	second := Installation{Storage: i.Storage, RunID: "s", Namespace: "kubedyno-s-csi"}
	if err := second.Install(t.Context(), client); err == nil || !strings.Contains(err.Error(), "CSIDriver csi.example.com") {
		t.Errorf("a driver of that name is there: %v", err)
	}
	for range 2 { // what is gone is no error
		if err := i.Remove(t.Context(), client); err != nil {
			t.Error(err)
		}
	}
	if classes, err := client.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{}); err != nil || len(classes.Items) != 0 {
		t.Errorf("%d classes (%v)", len(classes.Items), err)
	}
}

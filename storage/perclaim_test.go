package storage

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// Two replicas compete for a claim's own lock, one makes the volume, and both let
// go of a claim that is bound. A claim that wants no volume yet, or another
// driver's, is left alone.
func TestPerClaim(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	claim := func(name, driver string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "uid-a"},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")},
		}
		if driver != "" {
			c.Annotations = map[string]string{annProvisioner: driver}
		}
		return c
	}
	conf := testConfig()
	conf.Namespace = "locks"
	client := fake.NewClientset(Installation{Storage: conf.Storage, RunID: "r"}.class(), claim("a", ""))
	ctx, cancel := context.WithCancel(t.Context())
	var replicas, ready sync.WaitGroup
	for _, name := range []string{"kubedyno-csi-0", "kubedyno-csi-1"} {
		mine := *conf
		mine.Identity = name
		ready.Add(1)
		replicas.Go(func() {
			(&provisioner{conf: &mine, client: client, backend: newBackend(1, newMetrics("d").backend)}).runPerClaim(ctx, ready.Done)
		})
	}
	defer func() { cancel(); replicas.Wait() }()
	ready.Wait()
	update := func(c *corev1.PersistentVolumeClaim) {
		t.Helper()
		if _, err := client.CoreV1().PersistentVolumeClaims("n").Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	volumes := func() []corev1.PersistentVolume {
		t.Helper()
		all, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return all.Items
	}
	update(claim("a", "csi.other.com"))
	update(claim("a", conf.Storage.Driver))
	eventually(t, "the claim has a volume", func() bool { return len(volumes()) == 1 })
	if v := volumes()[0]; v.Name != "pvc-uid-a" || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Name != "a" || v.Spec.StorageClassName != "fast" || v.Annotations[annProvisionedBy] != conf.Storage.Driver {
		t.Errorf("%+v", v)
	}
	lock, err := client.CoordinationV1().Leases("locks").Get(t.Context(), "provision-uid-a", metav1.GetOptions{})
	if err != nil || lock.Spec.HolderIdentity == nil || *lock.Spec.HolderIdentity == "" {
		t.Errorf("the claim's lock: %+v (%v)", lock, err)
	}
	eventually(t, "it is told", func() bool {
		events, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0
	})
	bound := claim("a", conf.Storage.Driver)
	bound.Spec.VolumeName = "pvc-uid-a"
	update(bound)
}

// Who competes for nothing has let go of what was bound.
func TestPerClaimLetsGo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conf := testConfig()
	c := &perClaim{provisioner: &provisioner{conf: conf, client: fake.NewClientset(), backend: newBackend(1, newMetrics("d").backend)}, known: map[types.UID]context.CancelFunc{}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "u"}}
	c.see(ctx, claim)
	if len(c.known) != 0 {
		t.Error("a claim is competed for that wants no volume yet")
	}
	told := claim.DeepCopy()
	told.Annotations = map[string]string{annProvisioner: "csi.other.com"}
	c.see(ctx, told)
	if len(c.known) != 0 {
		t.Error("another driver's claim is competed for")
	}
	told.Annotations[annProvisioner] = conf.Storage.Driver
	told.Spec.VolumeName = "v"
	c.see(ctx, told)
	if len(c.known) != 0 {
		t.Error("a bound claim is competed for")
	}
	ended := false
	c.known["u"] = func() { ended = true }
	c.see(ctx, told)
	if !ended || len(c.known) != 0 {
		t.Error("a claim that is bound is still competed for")
	}
}

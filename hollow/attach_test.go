package hollow

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func TestVolumesPatch(t *testing.T) {
	was := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"kubernetes.io/csi/d^old"}}}
	for _, c := range nodeConditions {
		was.Status.Conditions = append(was.Status.Conditions, v1.NodeCondition{Type: c.kind, Status: c.status, Reason: c.reason})
	}
	before, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range [][]string{{"kubernetes.io/csi/d^a", "kubernetes.io/csi/d^b"}, {}} {
		after, err := strategicpatch.StrategicMergePatch(before, volumesPatch(time.Unix(1000, 0), use), &v1.Node{})
		if err != nil {
			t.Fatalf("%v in %s", err, volumesPatch(time.Unix(1000, 0), use))
		}
		var n v1.Node
		if err := json.Unmarshal(after, &n); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range n.Status.VolumesInUse {
			got = append(got, string(name))
		}
		if !slices.Equal(got, use) || len(n.Status.Conditions) != 4 || n.Status.Conditions[3].LastHeartbeatTime.Unix() != 1000 {
			t.Errorf("%v became %s", use, after)
		}
	}
}

func TestStorageConfig(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"nodes":1,"kubeconfig":"k","storage":{"driver":"d","attach":true,"limit":5,"mountDelay":{"distribution":"constant","medianSeconds":1}}}`: true,
		`{"nodes":1,"kubeconfig":"k","storage":{"driver":"d"}}`:                                         true,
		`{"nodes":1,"kubeconfig":"k","storage":{}}`:                                                     false,
		`{"nodes":1,"kubeconfig":"k","storage":{"driver":"d","limit":-1}}`:                              false,
		`{"nodes":1,"kubeconfig":"k","storage":{"driver":"d","mountDelay":{"distribution":"poisson"}}}`: false,
		`{"nodes":1,"kubeconfig":"k","storage":{"driver":"d","mountDelays":{"distribution":"none"}}}`:   false,
	} {
		if _, err := ParseConfig([]byte(line)); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestVolumesAgainstRealControlPlane drives a volume through the real
// attach-detach controller: the test is its attacher.
func TestVolumesAgainstRealControlPlane(t *testing.T) {
	cp, _, client := startLab(t, "tuned")
	const driver, volume = "csi.example.com", "pv-1"
	if _, err := client.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	conf := labConfig(cp, 1)
	conf.Storage = &Storage{Driver: driver, Attach: true, Limit: 7, MountDelay: Delay{Distribution: "constant", Median: 0.1}}
	p := startProcess(t, conf)
	url := p.await("listening").MetricsURL
	p.await("ready")
	eventually(t, "CSINode has the driver", func() bool {
		n, err := client.StorageV1().CSINodes().Get(t.Context(), "hollow-0", metav1.GetOptions{})
		return err == nil && len(n.Spec.Drivers) == 1 && n.Spec.Drivers[0].Name == driver && *n.Spec.Drivers[0].Allocatable.Count == 7
	})
	bindVolume(t, client, driver, volume)
	pod := pausePod("user")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	eventually(t, "pod can be created", func() bool {
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})

	node := func() *v1.Node {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "hollow-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	name := v1.UniqueVolumeName(uniqueName(driver, "handle-1"))
	eventually(t, "the volume is reported in use", func() bool { return slices.Contains(node().Status.VolumesInUse, name) })
	attachment := attachmentName("handle-1", driver, "hollow-0")
	eventually(t, "the attachment is asked for, by the name that the node will look for", func() bool {
		_, err := client.StorageV1().VolumeAttachments().Get(t.Context(), attachment, metav1.GetOptions{})
		return err == nil
	})
	if runningPods(t, client) != 0 {
		t.Error("the pod runs before its volume is attached")
	}
	eventually(t, "it is attached, and the pod runs", func() bool {
		a, err := client.StorageV1().VolumeAttachments().Get(t.Context(), attachment, metav1.GetOptions{})
		if err == nil && !a.Status.Attached {
			a.Status.Attached = true
			_, _ = client.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), a, metav1.UpdateOptions{}) // else the next time
		}
		return runningPods(t, client) == 1
	})
	if m := scrape(t, url); m["kubedyno_hollow_volume_mount_seconds_count"] != 1 || m["kubedyno_hollow_volume_mount_seconds_sum"] < 0.1 {
		t.Errorf("mounted: %v in %v s", m["kubedyno_hollow_volume_mount_seconds_count"], m["kubedyno_hollow_volume_mount_seconds_sum"])
	}

	if err := client.CoreV1().Pods("default").Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is not in use, and detached", func() bool {
		_, err := client.StorageV1().VolumeAttachments().Get(t.Context(), attachment, metav1.GetOptions{})
		return err != nil && len(node().Status.VolumesInUse) == 0
	})
	p.stop(5 * time.Second)
}

// bindVolume makes a claim and the volume that it is bound to.
func bindVolume(t *testing.T, client kubernetes.Interface, driver, volume string) {
	t.Helper()
	gi := resource.MustParse("1Gi")
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: v1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: v1.ResourceList{v1.ResourceStorage: gi},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle-1"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: volume, StorageClassName: ptr.To(""),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: gi}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

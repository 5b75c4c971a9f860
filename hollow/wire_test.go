package hollow

import (
	"bytes"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// frame is a watch event as an API server sends it, without its length.
func frame(tb testing.TB, kind string, object runtime.Object) []byte {
	tb.Helper()
	var raw bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &raw); err != nil {
		tb.Fatal(err)
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw.Bytes()}}
	b, err := e.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func fullPod() *v1.Pod {
	pod := testPods["resources and mounts"].DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	now := metav1.NewTime(time.Unix(2000, 0))
	pod.ResourceVersion, pod.Generation, pod.DeletionTimestamp = "4711", 3, &now
	pod.Labels = map[string]string{"a": "b"}
	pod.Annotations = map[string]string{"x": "y"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}}
	pod.Spec.NodeName = "hollow-1"
	pod.Status.Phase = v1.PodRunning
	return pod
}

func TestWatchEvent(t *testing.T) {
	kind, raw, err := watchEvent(frame(t, "MODIFIED", fullPod()))
	if err != nil || string(kind) != "MODIFIED" {
		t.Fatalf("kind %q, %v", kind, err)
	}
	h, err := readHeader(raw, true)
	if err != nil {
		t.Fatal(err)
	}
	if string(h.name) != "web-0" || string(h.namespace) != "default" || string(h.uid) != testUID || string(h.version) != "4711" ||
		h.generation != 3 || !h.deleting || string(h.phase) != "Running" || h.initialEnd {
		t.Errorf("header %+v", h)
	}
	var pod v1.Pod
	if err := pod.Unmarshal(raw); err != nil || pod.Spec.NodeName != "hollow-1" {
		t.Errorf("what follows the walk is not the pod: %v", err)
	}
}

func TestInitialEventsEnd(t *testing.T) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	pod.ResourceVersion = "9"
	_, raw, err := watchEvent(frame(t, "BOOKMARK", pod))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := readHeader(raw, true); err != nil || !h.initialEnd || string(h.version) != "9" {
		t.Errorf("header %+v, %v", h, err)
	}
}

func TestWrapIsUnwrapped(t *testing.T) {
	pod := fullPod()
	b, err := wrap("v1", "Pod", pod.Size(), pod.MarshalToSizedBuffer)
	if err != nil {
		t.Fatal(err)
	}
	// The API machinery's own decoder has to accept it.
	got, kind, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(b, nil, nil)
	if err != nil || kind.Kind != "Pod" || got.(*v1.Pod).Name != pod.Name {
		t.Fatalf("%v %v", kind, err)
	}
	raw, err := unwrap(b)
	if err != nil || len(raw) != pod.Size() {
		t.Errorf("unwrapped %d bytes of %d, %v", len(raw), pod.Size(), err)
	}
}

func TestItems(t *testing.T) {
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}, Items: []v1.Pod{*fullPod(), *fullPod()}}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	version, err := items(raw, func(b []byte) error {
		h, err := readHeader(b, true)
		if string(h.uid) == testUID {
			n++
		}
		return err
	})
	if err != nil || version != "77" || n != 2 {
		t.Errorf("version %q, %d items, %v", version, n, err)
	}
}

// FuzzWatchEvent: no input may panic, and what the walker accepts as a pod has
// the UID that full decoding finds.
func FuzzWatchEvent(f *testing.F) {
	seed := frame(f, "ADDED", fullPod())
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, raw, err := watchEvent(b)
		if err != nil {
			return
		}
		h, err := readHeader(raw, true)
		if err != nil {
			return
		}
		var pod v1.Pod
		if pod.Unmarshal(raw) == nil && (string(pod.UID) != string(h.uid) || string(pod.Status.Phase) != string(h.phase)) {
			t.Errorf("walker: %s %s, decoder: %s %s", h.uid, h.phase, pod.UID, pod.Status.Phase)
		}
	})
}

func BenchmarkReadHeader(b *testing.B) {
	in := frame(b, "MODIFIED", fullPod())
	b.ReportAllocs()
	for b.Loop() {
		_, raw, _ := watchEvent(in)
		if _, err := readHeader(raw, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFullDecode(b *testing.B) {
	in := frame(b, "MODIFIED", fullPod())
	b.ReportAllocs()
	for b.Loop() {
		_, raw, _ := watchEvent(in)
		var pod v1.Pod
		if err := pod.Unmarshal(raw); err != nil {
			b.Fatal(err)
		}
	}
}

package run

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What is left of a namespace changes as its pods go, and it is gone when the API
// server knows it no more.
func TestWhatIsLeft(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: name}}
	}
	client := fake.NewClientset(pod("a"), pod("b"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "load"}, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse, Message: "all is well"},
		{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "Some resources are remaining: configmaps. has 3 resource instances, pods. has 40 resource instances"},
	}}})
	const rest = "; Some resources are remaining: configmaps. has 3 resource instances, pods. has 40 resource instances"
	if left, gone := whatIsLeft(t.Context(), client, "load"); gone || left != (remains{2, 43, "; pods left: 2" + rest}) {
		t.Errorf("%+v, gone %v", left, gone)
	}
	if err := client.CoreV1().Pods("load").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if left, gone := whatIsLeft(t.Context(), client, "load"); gone || left != (remains{1, 43, "; pods left: 1" + rest}) {
		t.Errorf("%+v, gone %v", left, gone)
	}
	unknown := remains{pods: math.MaxInt64, objects: math.MaxInt64}
	if left, gone := whatIsLeft(t.Context(), client, "other"); !gone || left != unknown {
		t.Errorf("%+v, gone %v", left, gone)
	}
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("down")
	})
	if left, gone := whatIsLeft(t.Context(), client, "load"); gone || left != unknown {
		t.Errorf("an API server that does not answer: %+v, gone %v", left, gone)
	}
}

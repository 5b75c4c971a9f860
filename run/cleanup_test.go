package run

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// What is left of a namespace changes as its pods go, and it is gone when the API
// server knows it no more.
func TestWhatIsLeft(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: name}}
	}
	client := fake.NewClientset(pod("a"), pod("b"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "load"}, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse, Message: "all is well"},
		{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "some remain"},
	}}})
	if text, gone := whatIsLeft(t.Context(), client, "load"); gone || text != "; pods left: 2; some remain" {
		t.Errorf("%q, gone %v", text, gone)
	}
	if err := client.CoreV1().Pods("load").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, gone := whatIsLeft(t.Context(), client, "load"); gone || text != "; pods left: 1; some remain" {
		t.Errorf("%q, gone %v", text, gone)
	}
	if text, gone := whatIsLeft(t.Context(), client, "other"); !gone || text != "" {
		t.Errorf("%q, gone %v", text, gone)
	}
}

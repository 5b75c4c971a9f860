package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

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
	worded := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "load"}, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "pods: 40 remain"},
	}}})
	if left, _ := whatIsLeft(t.Context(), worded, "load"); left != (remains{0, math.MaxInt64, "; pods left: 0; pods: 40 remain"}) {
		t.Errorf("a wording that nobody knows: %+v", left)
	}
}

// A namespace is waited for as long as something of it goes, however long that is.
func TestWaitGone(t *testing.T) {
	const pods = 3
	for _, c := range []struct {
		name  string
		every time.Duration // a pod goes
		want  string
	}{
		{"slow", cleanupTimeout - time.Second, ""},
		{"stuck", cleanupTimeout + time.Second, "it was deleted, but nothing more of it has gone for 5m0s; pods left: 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				start := time.Now()
				gone := func() int { return int(time.Since(start) / c.every) }
				client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					if gone() > pods {
						return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "load")
					}
					return true, &corev1.Namespace{}, nil
				})
				client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, &corev1.PodList{Items: make([]corev1.Pod, max(pods-gone(), 0))}, nil
				})
				err := waitGone(t.Context(), client, "load", time.Now)
				if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if waited := time.Since(start); c.want == "" && waited < pods*c.every {
					t.Errorf("waited %v only", waited)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				start = time.Now()
				if err := waitGone(ctx, client, "load", time.Now); !errors.Is(err, context.Canceled) {
					t.Errorf("interrupted: %v", err)
				}
			})
		})
	}
}

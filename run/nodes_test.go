package run

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatKeepsNodesFromPods(t *testing.T) {
	node := func(ready corev1.ConditionStatus, message string, taints ...string) corev1.Node {
		var n corev1.Node
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Kubelet", Message: message}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	for _, test := range []struct {
		name  string
		nodes []corev1.Node
		want  int
		says  string
	}{
		{"nothing", []corev1.Node{node(corev1.ConditionTrue, "")}, 1, ""},
		{"none came", nil, 3, "3 are not registered"},
		{
			"the node controller is not there",
			[]corev1.Node{node(corev1.ConditionTrue, "", "node.kubernetes.io/not-ready"), node(corev1.ConditionTrue, "", "node.kubernetes.io/not-ready")}, 2,
			"2 carry the taint node.kubernetes.io/not-ready, which the node controllers of kube-controller-manager take off",
		},
		{
			"somebody says they are not ready",
			[]corev1.Node{node(corev1.ConditionFalse, "no network", "node.kubernetes.io/not-ready"), node(corev1.ConditionTrue, "", "node.kubernetes.io/not-ready")}, 2,
			"2 carry the taint node.kubernetes.io/not-ready, which the node controllers of kube-controller-manager take off; 1 are Ready=False (Kubelet: no network)",
		},
		{"a taint of somebody's own", []corev1.Node{node(corev1.ConditionTrue, "", "corp.example/new")}, 1, ""},
		{
			"each says something else",
			[]corev1.Node{node(corev1.ConditionFalse, "a"), node(corev1.ConditionFalse, "b"), node(corev1.ConditionFalse, "c"), node(corev1.ConditionFalse, "d"), node(corev1.ConditionFalse, "e"), node(corev1.ConditionFalse, "f")}, 6,
			"1 are Ready=False (Kubelet: a); 1 are Ready=False (Kubelet: b); 1 are Ready=False (Kubelet: c); 1 are Ready=False (Kubelet: d); and 2 other reasons",
		},
		{"not all there yet", []corev1.Node{{}}, 2, "1 are not registered; 1 have no Ready condition"},
	} {
		if got := whatKeeps(test.nodes, test.want); got != test.says {
			t.Errorf("%s: %q, want %q", test.name, got, test.says)
		}
	}
}

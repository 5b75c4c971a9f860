package run

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// unschedulable is the error of a fleet of want nodes of which none became
// schedulable for a while. It says what keeps them, as the API server tells it.
func (s *session) unschedulable(ctx context.Context, want int) error {
	stall := fmt.Errorf("hollow nodes: not all of %d nodes became schedulable, and none did for %v", want, nodePatience)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rc, err := s.plane.RESTConfig("admin")
	if err != nil {
		return fmt.Errorf("%w; look what keeps them: %w", stall, err)
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("%w; look what keeps them: %w", stall, err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("%w; look what keeps them: %w", stall, err)
	}
	if why := whatKeeps(nodes.Items, want); why != "" {
		return fmt.Errorf("%w: %s", stall, why)
	}
	return stall
}

// mostReasons bounds what is said of nodes each of which says something else.
const mostReasons = 4

// whatKeeps says what keeps nodes from counting as schedulable, the most
// frequent reason first: that they are not there at all, that they are not Ready
// and what they say of it, the taint each begins with. Other taints may be meant
// so. It is empty where nothing keeps them.
func whatKeeps(nodes []corev1.Node, want int) string {
	counts := map[string]int{}
	if missing := want - len(nodes); missing > 0 {
		counts["are not registered"] = missing
	}
	for i := range nodes {
		node := &nodes[i]
		ready := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		switch {
		case ready < 0:
			counts["have no Ready condition"]++
		case node.Status.Conditions[ready].Status != corev1.ConditionTrue:
			c := node.Status.Conditions[ready]
			counts[fmt.Sprintf("are Ready=%s (%s)", c.Status, strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, func(s string) bool { return s == "" }), ": "))]++
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady {
				counts["carry the taint "+taint.Key+", which the node controllers of kube-controller-manager take off"]++
			}
		}
	}
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	more := ""
	if n := len(reasons) - mostReasons; n > 0 {
		reasons, more = reasons[:mostReasons], fmt.Sprintf("; and %d other reasons", n)
	}
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", counts[reason], reason)
	}
	return strings.Join(reasons, "; ") + more
}

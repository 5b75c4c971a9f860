package access

import (
	"context"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewer answers reviews as an API server does for a user that has these
// grants, each "verb group/resource" or "verb /path".
func reviewer(user string, grants ...string) *fake.Clientset {
	c := fake.NewClientset()
	c.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}}}}, nil
	})
	c.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		var asked string
		if n := r.Spec.NonResourceAttributes; n != nil {
			asked = n.Verb + " " + n.Path
		} else {
			asked = r.Spec.ResourceAttributes.Verb + " " + r.Spec.ResourceAttributes.Group + "/" + r.Spec.ResourceAttributes.Resource
		}
		r.Status.Allowed = slices.Contains(grants, asked) || slices.Contains(grants, "*")
		return true, r, nil
	})
	return c
}

func TestCheck(t *testing.T) {
	g, err := Check(context.Background(), reviewer("system:serviceaccount:ops:viewer", "list /pods", "watch /pods", "list /nodes", "get /metrics"), Needs())
	if err != nil {
		t.Fatal(err)
	}
	if len(g.List) != len(Needs()) {
		t.Fatalf("%d grants", len(g.List))
	}
	for _, grant := range g.List {
		want := grant.Resource == "pods" || grant.Path == "/metrics"
		if grant.Allowed != want {
			t.Errorf("%s: allowed %v", grant.Target(), grant.Allowed)
		}
		if grant.Resource == "nodes" && !slices.Equal(grant.Missing, []string{"watch"}) {
			t.Errorf("nodes: %v", grant.Missing)
		}
	}
	got, err := g.RBAC()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kind: ClusterRole\n", "kind: ClusterRoleBinding\n", "- kind: ServiceAccount\n  name: viewer\n  namespace: ops\n",
		"- nonResourceURLs:\n  - /debug/pprof/*\n  - /debug/api_priority_and_fairness/*\n  verbs:\n  - get\n",
		"- apiGroups:\n  - \"\"\n  resources:\n  - nodes\n  verbs:\n  - watch\n",
		"  - deployments\n  - replicasets\n  - statefulsets\n  - daemonsets\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the RBAC lacks\n%s\nit is\n%s", want, got)
		}
	}
	for _, never := range []string{"/metrics\n", "- pods\n", "create", "update", "delete", "'*'"} {
		if strings.Contains(got, never) {
			t.Errorf("the RBAC has %q:\n%s", never, got)
		}
	}
}

func TestNothingMissing(t *testing.T) {
	g, err := Check(context.Background(), reviewer("admin", "*"), Needs())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := g.RBAC(); text != "" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

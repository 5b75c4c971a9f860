package lab

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var (
	readVerbs = []string{"get", "list", "watch"}
	allVerbs  = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
)

// roles are what our own users may do: what load creates, and what collectors
// read. Secrets are not among what collectors read.
var roles = map[string][]rbacv1.PolicyRule{
	loadUser: {
		{APIGroups: []string{""}, Verbs: allVerbs, Resources: []string{
			"namespaces", "nodes", "pods", "configmaps", "secrets", "services", "serviceaccounts", "endpoints",
			"persistentvolumeclaims", "persistentvolumes", "replicationcontrollers", "resourcequotas", "limitranges"}},
		{APIGroups: []string{"apps"}, Verbs: allVerbs, Resources: []string{
			"deployments", "replicasets", "statefulsets", "daemonsets", "deployments/scale", "replicasets/scale", "statefulsets/scale"}},
		{APIGroups: []string{"batch"}, Verbs: allVerbs, Resources: []string{"jobs", "cronjobs"}},
		{APIGroups: []string{"networking.k8s.io"}, Verbs: allVerbs, Resources: []string{"networkpolicies", "ingresses"}},
		{APIGroups: []string{"policy"}, Verbs: allVerbs, Resources: []string{"poddisruptionbudgets"}},
		{APIGroups: []string{"autoscaling"}, Verbs: allVerbs, Resources: []string{"horizontalpodautoscalers"}},
		{APIGroups: []string{"storage.k8s.io"}, Verbs: allVerbs, Resources: []string{"storageclasses"}},
		{APIGroups: []string{"scheduling.k8s.io"}, Verbs: allVerbs, Resources: []string{"priorityclasses"}},
		{APIGroups: []string{"coordination.k8s.io"}, Verbs: allVerbs, Resources: []string{"leases"}},
		{APIGroups: []string{""}, Verbs: []string{"create"}, Resources: []string{"pods/eviction", "pods/binding", "events"}},
		// What experiments put wrong on purpose, in a lab that is theirs alone.
		// Nobody gets rights by it that load has not, but for those of role view.
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Verbs: allVerbs, Resources: []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Verbs: []string{"bind"}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}},
		{APIGroups: []string{"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}, Verbs: allVerbs, Resources: []string{"*"}},
		{APIGroups: []string{""}, Verbs: readVerbs, Resources: []string{"events", "pods/status"}},
		{APIGroups: []string{"discovery.k8s.io"}, Verbs: readVerbs, Resources: []string{"endpointslices"}},
	},
	collectUser: append(slices.Clone(readRules),
		// Of a real node: a kubelet gives its profiles to whoever may use its proxy.
		rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"get"}, Resources: []string{"nodes/metrics", "nodes/proxy"}}),
}

// readRules are to read everything but secrets.
var readRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Verbs: readVerbs, Resources: []string{
		"namespaces", "nodes", "pods", "events", "configmaps", "services", "endpoints", "serviceaccounts",
		"persistentvolumeclaims", "persistentvolumes", "replicationcontrollers", "resourcequotas", "limitranges", "componentstatuses"}},
	{APIGroups: []string{
		"apps", "batch", "policy", "autoscaling", "discovery.k8s.io", "coordination.k8s.io", "events.k8s.io",
		"networking.k8s.io", "storage.k8s.io", "scheduling.k8s.io", "node.k8s.io", "resource.k8s.io",
		"flowcontrol.apiserver.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"},
		Verbs: readVerbs, Resources: []string{"*"}},
	{NonResourceURLs: []string{
		"/metrics", "/metrics/*", "/debug/*", "/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*",
		"/flagz", "/statusz", "/configz", "/version"}, Verbs: []string{"get"}},
}

// ActorGroup is the group of users of actors: clients that run beside a load.
const ActorGroup = "kubedyno:actors"

// actorRules are what actors may do: read everything but secrets, and write what
// their kinds write.
var actorRules = append([]rbacv1.PolicyRule{
	{APIGroups: []string{""}, Verbs: allVerbs, Resources: []string{"configmaps", "events", "services", "endpoints"}},
	{APIGroups: []string{"apps"}, Verbs: allVerbs, Resources: []string{"deployments", "daemonsets", "statefulsets"}},
	{APIGroups: []string{"coordination.k8s.io"}, Verbs: allVerbs, Resources: []string{"leases"}},
	{APIGroups: []string{""}, Verbs: []string{"patch"}, Resources: []string{"pods"}},
	{APIGroups: []string{"admissionregistration.k8s.io"}, Verbs: allVerbs, Resources: []string{"validatingwebhookconfigurations"}},
	{APIGroups: []string{"apiextensions.k8s.io"}, Verbs: allVerbs, Resources: []string{"customresourcedefinitions"}},
	{APIGroups: []string{"crd.projectcalico.org"}, Verbs: allVerbs, Resources: []string{"ipamblocks", "blockaffinities", "ipamhandles"}},
	{APIGroups: []string{"converter.kubedyno.io"}, Verbs: allVerbs, Resources: []string{"*"}},
}, readRules...)

// grant makes the roles of our own users and binds them.
func grant(ctx context.Context, client kubernetes.Interface) error {
	type grantee struct {
		kind, name, role string
		rules            []rbacv1.PolicyRule
	}
	all := []grantee{{rbacv1.GroupKind, ActorGroup, ActorGroup, actorRules}}
	for user, rules := range roles {
		all = append(all, grantee{rbacv1.UserKind, user, "kubedyno:" + user, rules})
	}
	for _, g := range all {
		user, name, rules := g.name, g.role, g.rules
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create role of %s: %w", user, err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: g.kind, Name: user}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind role of %s: %w", user, err)
		}
	}
	return nil
}

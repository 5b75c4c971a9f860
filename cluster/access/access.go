// Package access finds out what a user may see of a cluster, what each further
// grant would add to a recording, and the least RBAC for it.
//
// Start with Check, then RBAC.
package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// A Need is what one source of observations takes: verbs on a resource, or on a
// path that is not a resource's.
type Need struct {
	What      string // for people: "pods", "profiles of kube-apiserver"
	Collector string // whom it serves
	Adds      string // what a recording has with it
	Verbs     []string
	Group     string
	Resource  string
	Path      string // instead of a resource; may end in *
}

// Needs are what observing a cluster takes, the most telling first. Nothing is
// ever written.
func Needs() []Need {
	watch := func(what, group, resource, adds string) Need {
		return Need{What: what, Collector: "objects", Adds: adds, Verbs: []string{"list", "watch"}, Group: group, Resource: resource}
	}
	get := func(what, collector, path, adds string) Need {
		return Need{What: what, Collector: collector, Adds: adds, Verbs: []string{"get"}, Path: path}
	}
	return []Need{
		watch("pods", "", "pods", "each pod's way from creation to Running: stages, latencies, throughput"),
		get("metrics of kube-apiserver", "metrics", "/metrics", "request rates and latencies, priority and fairness, etcd as the API server sees it, clients' limiters"),
		get("profiles of kube-apiserver", "profile", "/debug/pprof/*", "CPU by function, heap, goroutines"),
		get("requests in the API server's queues", "requests", "/debug/api_priority_and_fairness/*", "samples of who asks for what, where no audit log can be read"),
		watch("nodes", "", "nodes", "how many nodes, and when they were not Ready"),
		watch("events", "", "events", "what components said about objects: failed scheduling, mounts, probes"),
		watch("leases", "coordination.k8s.io", "leases", "who leads, lost leaderships, node heartbeats"),
		watch("Deployments", "apps", "deployments", "when a rollout began and was complete"),
		watch("ReplicaSets", "apps", "replicasets", "which rollout a pod belongs to"),
		watch("StatefulSets", "apps", "statefulsets", "when they were complete"),
		watch("DaemonSets", "apps", "daemonsets", "when they were complete"),
		watch("Jobs", "batch", "jobs", "when they ended, and how"),
		watch("PersistentVolumeClaims", "", "persistentvolumeclaims", "each claim's way from creation to Bound"),
		watch("PersistentVolumes", "", "persistentvolumes", "when volumes were provisioned"),
		watch("VolumeAttachments", "storage.k8s.io", "volumeattachments", "when volumes were attached"),
	}
}

// A Grant is a need and whether the user has it.
type Grant struct {
	Need
	Allowed bool
	Missing []string // the verbs that are not allowed
}

// Grants say what a user may see.
type Grants struct {
	User   string
	Groups []string
	List   []Grant
}

// Check asks the API server about each need. It writes nothing: reviews are
// answered, not stored.
func Check(ctx context.Context, client kubernetes.Interface, needs []Need) (Grants, error) {
	var g Grants
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return g, fmt.Errorf("ask the API server who this user is: %w", err)
	}
	g.User, g.Groups = me.Status.UserInfo.Username, me.Status.UserInfo.Groups
	for _, n := range needs {
		grant := Grant{Need: n}
		for _, verb := range n.Verbs {
			review := &authorizationv1.SelfSubjectAccessReview{}
			if n.Path != "" {
				// A review is about one path; a star stands for what is below.
				review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: strings.TrimSuffix(n.Path, "*"), Verb: verb}
			} else {
				review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Group: n.Group, Resource: n.Resource}
			}
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return g, fmt.Errorf("ask the API server whether %s may %s %s: %w", g.User, verb, cmp.Or(n.Path, n.Resource), err)
			}
			if !answer.Status.Allowed {
				grant.Missing = append(grant.Missing, verb)
			}
		}
		grant.Allowed = len(grant.Missing) == 0
		g.List = append(g.List, grant)
	}
	return g, nil
}

// Target is the grant in RBAC's words, such as "list, watch pods".
func (n Need) Target() string {
	on := n.Path
	if on == "" {
		on = n.Resource
		if n.Group != "" {
			on += "." + n.Group
		}
	}
	return strings.Join(n.Verbs, ", ") + " " + on
}

// RBAC is the least that adds what is missing: one role and its binding to
// this user, as YAML for kubectl. It is empty where nothing is missing.
func (g Grants) RBAC() (string, error) {
	var rules []rbacv1.PolicyRule
	for _, grant := range g.List {
		if grant.Allowed {
			continue
		}
		rule := rbacv1.PolicyRule{Verbs: grant.Missing}
		if grant.Path != "" {
			rule.NonResourceURLs = []string{grant.Path}
		} else {
			rule.APIGroups, rule.Resources = []string{grant.Group}, []string{grant.Resource}
		}
		// Rules that differ only in their resource or path are one.
		i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Verbs, rule.Verbs) && slices.Equal(r.APIGroups, rule.APIGroups) && (r.NonResourceURLs == nil) == (rule.NonResourceURLs == nil)
		})
		if i < 0 {
			rules = append(rules, rule)
			continue
		}
		rules[i].Resources = append(rules[i].Resources, rule.Resources...)
		rules[i].NonResourceURLs = append(rules[i].NonResourceURLs, rule.NonResourceURLs...)
	}
	if len(rules) == 0 {
		return "", nil
	}
	const name = "kubedyno-observer"
	role := rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
	binding := rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{subject(g.User)},
	}
	var docs []string
	for _, o := range []any{role, binding} {
		data, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		docs = append(docs, strings.ReplaceAll(string(data), "  creationTimestamp: null\n", ""))
	}
	return strings.Join(docs, "---\n"), nil
}

// subject is a user as RBAC names it: a service account's user name tells its
// namespace and name.
func subject(user string) rbacv1.Subject {
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

package load

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubedyno/kubedyno/experiment"
)

// Rules are the least that the generator's user must be allowed, cluster-wide,
// to put the load of an experiment on a cluster.
func Rules(e *experiment.Experiment) []rbacv1.PolicyRule {
	need := needs{}
	need.add("", "namespaces", "create", "get", "delete")
	need.add("", "serviceaccounts", "get")
	makers := map[string]schema.GroupResource{}
	for _, s := range experiment.Flat(e.Plan()) {
		p := s.Phase
		if o := p.Makes(); o != nil {
			makers[p.Name] = resourceOf(*o)
		}
		on := func(phase, sub string, verbs ...string) {
			r := makers[phase]
			need.add(r.Group, r.Resource+sub, verbs...)
		}
		switch {
		case p.Create != nil:
			on(p.Name, "", "create")
		case p.Apply != nil && p.Apply.Phase == "":
			on(p.Name, "", "create", "patch") // an apply that makes something is both
		case p.Apply != nil:
			on(p.Apply.Phase, "", "patch")
		case p.Scale != nil:
			on(p.Scale.Phase, "/scale", "patch")
		case p.Patch != nil:
			on(p.Patch.Phase, "", "patch")
		case p.Update != nil:
			on(p.Update.Phase, "", "patch")
		case p.Churn != nil:
			on(p.Churn.Phase, "", "create", "delete")
		case p.Delete != nil:
			on(p.Delete.Phase, "", "delete")
		case p.Read != nil:
			for _, q := range p.Read.Mix {
				switch q.Kind {
				case experiment.StaleGet, experiment.QuorumGet:
					on(q.Phase, "", "get")
				case experiment.WatchOpen:
					need.read(q.Resource, "watch")
				case experiment.WatchList:
					need.read(q.Resource, "list", "watch")
				default:
					need.read(q.Resource, "list")
				}
			}
		}
	}
	return need.rules()
}

// resourceOf guesses the resource of a kind as the API's own types and most
// others have it.
func resourceOf(o experiment.Objects) schema.GroupResource {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: o.KindName()}
	switch {
	case o.Object != nil:
		gvk = kindOf(plain(o.Object))
	case o.Kind == experiment.Deployment:
		gvk.Group = "apps"
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource()
}

// needs are verbs by group and resource.
type needs map[schema.GroupResource]map[string]bool

func (n needs) add(group, resource string, verbs ...string) {
	r := schema.GroupResource{Group: group, Resource: resource}
	if n[r] == nil {
		n[r] = map[string]bool{}
	}
	for _, v := range verbs {
		n[r][v] = true
	}
}

// read adds what is read of a resource by its name in an experiment.
func (n needs) read(name string, verbs ...string) {
	plural, group, grouped := strings.Cut(name, ".")
	group, _, _ = strings.Cut(group, "/")
	if !grouped {
		group = groupOf[plural]
	}
	n.add(group, plural, verbs...)
}

// groupOf is where a resource without a group is found, after the core group:
// see client.named.
var groupOf = map[string]string{
	"deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "daemonsets": "apps", "controllerrevisions": "apps",
	"jobs": "batch", "cronjobs": "batch",
}

func (n needs) rules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for r, verbs := range n {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: slices.Sorted(maps.Keys(verbs))})
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return strings.Compare(a.APIGroups[0]+"/"+a.Resources[0], b.APIGroups[0]+"/"+b.Resources[0])
	})
	return rules
}

package hollow

import (
	"context"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A reference is a ConfigMap or Secret that pods of a node use. A kubelet
// watches each as long as there is one.
type reference struct{ resource, namespace, name string }

// A referred is a reference with the pods that have it.
type referred struct {
	pods   int
	cancel context.CancelFunc
}

// mount asks for what the pod's volumes and environment refer to, as a kubelet
// does before it makes the sandbox. n.mu is held.
func (n *node) mount(p *pod) {
	for _, r := range p.refs {
		n.refer(r)
	}
	p.mounting = true
	for _, t := range p.tokens {
		n.fleet.start(func(ctx context.Context) { n.token(ctx, p, t) })
	}
	p.tokens = nil
	if p.mounts > 0 {
		n.mountClaims(p)
	}
}

// unmount lets go of what the pod referred to. n.mu is held.
func (n *node) unmount(p *pod) {
	n.letGo(p)
	if !p.mounting {
		return
	}
	for _, r := range p.refs {
		if u := n.refs[r]; u != nil {
			if u.pods--; u.pods == 0 {
				u.cancel()
				delete(n.refs, r)
			}
		}
	}
	p.refs = nil
}

// refer watches a reference unless that is done. n.mu is held.
func (n *node) refer(r reference) {
	if u := n.refs[r]; u != nil {
		u.pods++
		return
	}
	ctx, cancel := context.WithCancel(n.fleet.ctx)
	if n.refs == nil {
		n.refs = map[reference]*referred{}
	}
	n.refs[r] = &referred{pods: 1, cancel: cancel}
	n.fleet.start(func(context.Context) {
		defer cancel()
		n.follow(ctx, watched{
			resource: r.resource, path: "/api/v1/namespaces/" + r.namespace + "/" + r.resource,
			selector: "metadata.name=" + r.name, event: func(string, header, []byte) {},
		})
	})
}

// references lists the ConfigMaps and Secrets of a pod, each once.
func references(object *v1.Pod) (all []reference) {
	add := func(resource, name string) {
		r := reference{resource, object.Namespace, name}
		if name != "" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		if v.ConfigMap != nil {
			add("configmaps", v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add("secrets", v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					add("configmaps", s.ConfigMap.Name)
				}
				if s.Secret != nil {
					add("secrets", s.Secret.Name)
				}
			}
		}
	}
	for _, list := range [][]v1.Container{object.Spec.InitContainers, object.Spec.Containers} {
		for i := range list {
			for _, e := range list[i].EnvFrom {
				if e.ConfigMapRef != nil {
					add("configmaps", e.ConfigMapRef.Name)
				}
				if e.SecretRef != nil {
					add("secrets", e.SecretRef.Name)
				}
			}
			for _, e := range list[i].Env {
				if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
					add("configmaps", e.ValueFrom.ConfigMapKeyRef.Name)
				}
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					add("secrets", e.ValueFrom.SecretKeyRef.Name)
				}
			}
		}
	}
	for _, s := range object.Spec.ImagePullSecrets {
		add("secrets", s.Name)
	}
	return all
}

// tokens are the requests for the pod's projected service account tokens.
func tokens(object *v1.Pod) (all []*authenticationv1.TokenRequest) {
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken == nil {
				continue
			}
			t := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: s.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: object.Name, UID: object.UID},
			}}
			if a := s.ServiceAccountToken.Audience; a != "" {
				t.Spec.Audiences = []string{a}
			}
			all = append(all, t)
		}
	}
	return all
}

// token requests one token, until it has it or the pod is gone, and then lets
// the pod start if it was only waiting for that.
func (n *node) token(ctx context.Context, p *pod, t *authenticationv1.TokenRequest) {
	body, err := wrap("authentication.k8s.io/v1", "TokenRequest", t.Size(), t.MarshalToSizedBuffer)
	if err != nil {
		return
	}
	path := "/api/v1/namespaces/" + p.namespace + "/serviceaccounts/" + p.account + "/token"
	for fails := 0; ; fails++ {
		answer, err := n.client.do(ctx, createToken, path, protobufBody, body)
		release(answer)
		n.mu.Lock()
		gone := p.gone || p.deleting
		if err == nil {
			p.mounts--
			n.mounted(p)
		}
		n.mu.Unlock()
		// A kubelet repeats a failed mount after 0.5 s, twice as long each time, up to 2 min.
		if err == nil || gone || !wait(ctx, backoff(fails, 500*time.Millisecond, 2*time.Minute)) {
			return
		}
	}
}

// mounted lets a pod go on that was held. n.mu is held.
func (n *node) mounted(p *pod) {
	if p.mounts > 0 || !p.held || p.gone || p.deleting {
		return
	}
	now := time.Now()
	if len(p.claims) > 0 {
		p.held = false
		n.planStart(p, now)
		return
	}
	if n.fleet.conf.stepwise() {
		p.held = false
		n.fleet.timers.add(timer{at: now, what: sandboxDue, node: n, pod: p})
		return
	}
	p.held, p.heldFor = false, now.Sub(p.due)
	what := startDue
	if len(p.shape.inits) > 0 {
		what = initDue
	}
	if n.live(p, what, now) {
		n.enqueue(p)
	}
}

// inform opens the watches that a kubelet has whatever its pods are, and makes
// the node's CSINode.
func (n *node) inform() {
	for _, w := range []watched{
		{resource: "services", path: "/api/v1/services"},
		{resource: "runtimeclasses", path: "/apis/node.k8s.io/v1/runtimeclasses"},
		{resource: "csidrivers", path: "/apis/storage.k8s.io/v1/csidrivers"},
	} {
		w.event = func(string, header, []byte) {}
		n.fleet.start(func(ctx context.Context) { n.follow(ctx, w) })
	}
	n.fleet.start(n.makeCSINode)
}

func (n *node) csiNode(ctx context.Context) error {
	const path = "/apis/storage.k8s.io/v1/csinodes"
	answer, err := n.client.do(ctx, getCSINode, path+"/"+n.name, noBody, nil)
	release(answer)
	if !isCode(err, http.StatusNotFound) {
		return err
	}
	object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            n.name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: types.UID(n.uid)}},
	}}
	body, err := wrap("storage.k8s.io/v1", "CSINode", object.Size(), object.MarshalToSizedBuffer)
	if err != nil {
		return err
	}
	answer, err = n.client.do(ctx, createCSINode, path, protobufBody, body)
	release(answer)
	if isCode(err, http.StatusConflict) {
		return nil
	}
	return err
}

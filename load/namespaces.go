package load

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubedyno/kubedyno/experiment"
)

// makeNamespaces makes those that objects go to beside the run's own. Only a
// lab has them, and it goes as a whole, so that nobody takes them away.
func (c *client) makeNamespaces(ctx context.Context, cfg Config, o experiment.Objects) error {
	if o.Namespace == "" {
		return nil
	}
	if cfg.Existing {
		return fmt.Errorf("namespace %s: on a cluster that is not a lab objects go into the run's own", o.Namespace)
	}
	for i := range max(o.Namespaces, 1) {
		name := o.NamespaceOf(i)
		if c.knowsNamespace(name) {
			continue
		}
		if err := c.post(ctx, "/api/v1/namespaces", &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelRun: cfg.RunID, LabelOwner: "kubedyno"}},
		}); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
		account := c.awaitAccount
		if cfg.NoAccounts {
			account = c.makeAccount
		}
		if err := account(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// knowsNamespace reports whether the name was asked for before.
func (c *client) knowsNamespace(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces[name] {
		return true
	}
	if c.namespaces == nil {
		c.namespaces = map[string]bool{}
	}
	c.namespaces[name] = true
	return false
}

// makeAccount makes the service account that admission wants each pod to have,
// where there is no controller to do it.
func (c *client) makeAccount(ctx context.Context, namespace string) error {
	if err := c.post(ctx, "/api/v1/namespaces/"+namespace+"/serviceaccounts", &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace},
	}); err != nil {
		return fmt.Errorf("create the default service account in %s: %w", namespace, err)
	}
	return nil
}

// post creates an object that may be there already.
func (c *client) post(ctx context.Context, path string, o runtime.Object) error {
	body, err := encode(o)
	if err != nil {
		return err
	}
	a := c.do(ctx, call{method: http.MethodPost, path: path, contentType: contentProtobuf, body: body})
	if a.code == http.StatusConflict {
		return nil
	}
	return a.err
}

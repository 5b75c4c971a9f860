package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
)

// ipamAgent is the name, user and user agent of the nodes' network plugin where
// it takes addresses at the API server. It stands for software of the user's.
const ipamAgent = "calico-ipam"

// ipamReady bounds the time until the API server serves the plugin's objects.
const ipamReady = 30 * time.Second

// prepareIPAM makes the kinds of objects in which the network plugin keeps
// addresses, and a user for it.
func (s *session) prepareIPAM(ctx context.Context) (*hollow.IPAM, error) {
	if s.o.Experiment.Cluster.Node.Network.IPAM != experiment.IPAMBlocks {
		return nil, nil
	}
	rc, err := s.plane.RESTConfig("admin")
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the network plugin: %w", err)
	}
	api := client.CoreV1().RESTClient()
	for _, kind := range []struct{ plural, singular, kind string }{
		{"ipamblocks", "ipamblock", "IPAMBlock"}, {"blockaffinities", "blockaffinity", "BlockAffinity"}, {"ipamhandles", "ipamhandle", "IPAMHandle"},
	} {
		if err := makeKind(ctx, api, kind.plural, kind.singular, kind.kind); err != nil {
			return nil, fmt.Errorf("make %s of the network plugin: %w", kind.kind, err)
		}
	}
	c := &hollow.IPAM{Agent: ipamAgent}
	c.Kubeconfig, err = s.actorKubeconfig(ipamAgent)
	return c, err
}

// makeKind makes a CustomResourceDefinition, and waits until it is served.
func makeKind(ctx context.Context, api rest.Interface, plural, singular, kind string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + hollow.IPAMGroup},
		"spec": map[string]any{
			"group": hollow.IPAMGroup, "scope": "Cluster", "names": map[string]any{"plural": plural, "singular": singular, "kind": kind},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}},
			}}},
		},
	})
	if err != nil {
		return err
	}
	err = api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ipamReady)
	defer cancel()
	for {
		err := api.Get().AbsPath("/apis/"+hollow.IPAMGroup+"/v1/"+plural).SetHeader("Accept", "application/json").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not served after %v: %w", ipamReady, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

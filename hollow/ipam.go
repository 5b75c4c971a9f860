package hollow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// IPAM is a network plugin that takes each pod's address out of a block which
// belongs to the pod's node and is an object at the API server, as Calico's does.
// For each pod one invocation reads the block, picks an address that nobody has,
// makes a handle for it, and writes the block back under the version that it read.
// Who was too late takes the handle back and begins again, at once. With
// Network.Serial a lock on the node lets one invocation at a time do so.
type IPAM struct {
	Kubeconfig string `json:"kubeconfig"` // of the plugin's own user
	Agent      string `json:"agent"`      // its user agent
}

const (
	// IPAMGroup is the group of the plugin's objects.
	IPAMGroup = "crd.projectcalico.org"
	ipamPath  = "/apis/" + IPAMGroup + "/v1/"

	blockSize     = 64  // addresses of a block: a /26, Calico's default
	blockTries    = 100 // of one invocation
	sandboxFirst  = time.Second
	sandboxAtMost = 30 * time.Second
)

// ipamMeta is of each of its objects what the plugin needs.
type ipamMeta struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

type ipamBlock struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   ipamMeta `json:"metadata"`
	Spec       struct {
		Affinity    string   `json:"affinity"`
		CIDR        string   `json:"cidr"`
		Allocations []*int   `json:"allocations"` // by ordinal, an index of attributes
		Attributes  []handle `json:"attributes"`
	} `json:"spec"`
}

type handle struct {
	ID string `json:"handle_id"`
}

type ipamAffinity struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   ipamMeta `json:"metadata"`
	Spec       struct {
		State string `json:"state"`
		Node  string `json:"node"`
		CIDR  string `json:"cidr"`
	} `json:"spec"`
}

type ipamHandle struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   ipamMeta `json:"metadata"`
	Spec       struct {
		HandleID string         `json:"handleID"`
		Block    map[string]int `json:"block"`
	} `json:"spec"`
}

// plugin is what all nodes have of an IPAM: the client.
type plugin struct {
	http *http.Client
	base *url.URL
	conf *IPAM
}

func newPlugin(c *IPAM) (*plugin, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s of the network plugin: %w", c.Kubeconfig, err)
	}
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("client of the network plugin: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, fmt.Errorf("client of the network plugin: %w", err)
	}
	return &plugin{client, base, c}, nil
}

// send sends an object and decodes the answer into another; nil is none.
func (p *plugin) send(ctx context.Context, method, path string, body, answer any) error {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	u := *p.base
	u.Path = strings.TrimSuffix(u.Path, "/") + ipamPath + path
	r, err := http.NewRequestWithContext(ctx, method, u.String(), in)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", p.conf.Agent)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return &statusError{method + " " + path, resp.StatusCode, statusMessage(data)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}

// blockName is that of a node's i-th block, and its first address.
func (n *node) blockName(i int) (name, cidr string, first uint32) {
	b := n.firstIP.As4()
	first = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) + uint32(i*blockSize)
	text := ipv4(first).String()
	return strings.ReplaceAll(text, ".", "-") + "-26", text + "/26", first
}

// handleID is the name under which a pod has its address.
func handleID(p *pod) string { return "k8s-pod-network." + p.uid }

// address lets the plugin take an address for a pod, and lets the pod go on when
// it has one. A kubelet that gets none makes the sandbox anew after a while.
func (n *node) address(ctx context.Context, p *pod) {
	began, id := time.Now(), handleID(p)
	for fails := 0; ; fails++ {
		ip, err := n.assign(ctx, id)
		n.mu.Lock()
		gone := p.gone || p.deleting
		if err == nil && !gone {
			p.ip, p.leased = ip, true
			n.fleet.metrics.plugin.Observe(time.Since(began).Seconds())
			n.fleet.timers.add(timer{at: time.Now(), what: sandboxDue, node: n, pod: p})
		}
		n.mu.Unlock()
		if err == nil && gone {
			n.unassign(ctx, id)
		}
		if err == nil || gone || !wait(ctx, backoff(fails, sandboxFirst, sandboxAtMost)) {
			return
		}
	}
}

// locked does what only one invocation of a node may do at a time, where the
// plugin has a lock.
func (n *node) locked(ctx context.Context, do func() error) error {
	if n.fleet.conf.Network.Serial {
		select {
		case n.pluginLock <- struct{}{}:
			defer func() { <-n.pluginLock }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return do()
}

// assign is one invocation for a pod that comes.
func (n *node) assign(ctx context.Context, id string) (ip string, err error) {
	err = n.locked(ctx, func() (err error) {
		for range blockTries {
			if ip, err = n.try(ctx, id); err == nil || !isCode(err, http.StatusConflict) {
				return err
			}
		}
		return err
	})
	return ip, err
}

// errFull is the error of a block without a free address.
var errFull = errors.New("no address is free")

// try takes an address once. A conflict means that another invocation was faster.
func (n *node) try(ctx context.Context, id string) (string, error) {
	for i := range int(addressesPerNode(n.fleet.conf.Pods)) / blockSize {
		ip, err := n.from(ctx, i, id)
		if !errors.Is(err, errFull) {
			return ip, err
		}
	}
	return "", fmt.Errorf("blocks of node %s: %w", n.name, errFull)
}

// from takes an address out of the node's i-th block, which it claims where nobody
// has yet.
func (n *node) from(ctx context.Context, i int, id string) (string, error) {
	plugin := n.fleet.plugin
	name, cidr, first := n.blockName(i)
	var block ipamBlock
	if err := plugin.send(ctx, http.MethodGet, "ipamblocks/"+name, nil, &block); err != nil {
		if !isCode(err, http.StatusNotFound) {
			return "", err
		}
		if block, err = n.claim(ctx, name, cidr); err != nil {
			return "", err
		}
	}
	ordinal := slices.Index(block.Spec.Allocations, nil)
	if ordinal < 0 {
		return "", errFull
	}
	h := ipamHandle{APIVersion: IPAMGroup + "/v1", Kind: "IPAMHandle", Metadata: ipamMeta{Name: id}}
	h.Spec.HandleID, h.Spec.Block = id, map[string]int{cidr: 1}
	if err := plugin.send(ctx, http.MethodPost, "ipamhandles", h, nil); err != nil && !isCode(err, http.StatusConflict) {
		return "", err
	}
	attribute := len(block.Spec.Attributes)
	block.Spec.Attributes = append(block.Spec.Attributes, handle{id})
	block.Spec.Allocations[ordinal] = &attribute
	if err := plugin.send(ctx, http.MethodPut, "ipamblocks/"+name, block, nil); err != nil {
		if undo := plugin.send(ctx, http.MethodDelete, "ipamhandles/"+id, nil, nil); undo != nil && !isCode(undo, http.StatusNotFound) {
			return "", undo
		}
		return "", err
	}
	return ipv4(first + uint32(ordinal)).String(), nil
}

// claim makes a block the node's: an affinity that is pending, the block, and the
// affinity confirmed.
func (n *node) claim(ctx context.Context, name, cidr string) (ipamBlock, error) {
	plugin := n.fleet.plugin
	a := ipamAffinity{APIVersion: IPAMGroup + "/v1", Kind: "BlockAffinity", Metadata: ipamMeta{Name: n.name + "-" + name}}
	a.Spec.State, a.Spec.Node, a.Spec.CIDR = "pending", n.name, cidr
	b := ipamBlock{APIVersion: IPAMGroup + "/v1", Kind: "IPAMBlock", Metadata: ipamMeta{Name: name}}
	b.Spec.Affinity, b.Spec.CIDR = "host:"+n.name, cidr
	b.Spec.Allocations, b.Spec.Attributes = make([]*int, blockSize), []handle{}
	if err := plugin.send(ctx, http.MethodPost, "blockaffinities", a, &a); err != nil {
		return b, err
	}
	if err := plugin.send(ctx, http.MethodPost, "ipamblocks", b, &b); err != nil {
		return b, err
	}
	a.Spec.State = "confirmed"
	return b, plugin.send(ctx, http.MethodPut, "blockaffinities/"+a.Metadata.Name, a, nil)
}

// unassign is one invocation for a pod that goes. What it cannot give back stays
// taken, as with a plugin that was killed.
func (n *node) unassign(ctx context.Context, id string) {
	plugin := n.fleet.plugin
	_ = n.locked(ctx, func() error {
		for range blockTries {
			err := n.give(ctx, id)
			if err == nil {
				return plugin.send(ctx, http.MethodDelete, "ipamhandles/"+id, nil, nil)
			}
			if !isCode(err, http.StatusConflict) {
				return err
			}
		}
		return nil
	})
}

// give gives back what a handle has taken, once.
func (n *node) give(ctx context.Context, id string) error {
	var h ipamHandle
	if err := n.fleet.plugin.send(ctx, http.MethodGet, "ipamhandles/"+id, nil, &h); err != nil {
		return err
	}
	for i := range int(addressesPerNode(n.fleet.conf.Pods)) / blockSize {
		name, cidr, _ := n.blockName(i)
		if h.Spec.Block[cidr] == 0 {
			continue
		}
		var block ipamBlock
		if err := n.fleet.plugin.send(ctx, http.MethodGet, "ipamblocks/"+name, nil, &block); err != nil {
			return err
		}
		for ordinal, a := range block.Spec.Allocations {
			if a != nil && *a < len(block.Spec.Attributes) && block.Spec.Attributes[*a].ID == id {
				block.Spec.Allocations[ordinal] = nil
				block.Spec.Attributes[*a].ID = ""
			}
		}
		if err := n.fleet.plugin.send(ctx, http.MethodPut, "ipamblocks/"+name, block, nil); err != nil {
			return err
		}
	}
	return nil
}

package hollow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// versioned keeps objects as an API server does: who writes must have read the
// last version.
type versioned struct {
	mu        sync.Mutex
	version   int
	objects   map[string]map[string]any
	requests  int
	conflicts int
	think     time.Duration // between a request's arrival and its answer
}

func (s *versioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(s.think)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	refuse := func(code int) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": http.StatusText(code)})
	}
	var body map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			refuse(http.StatusBadRequest)
			return
		}
	}
	path := strings.TrimPrefix(r.URL.Path, ipamPath)
	name := func() string { return body["metadata"].(map[string]any)["name"].(string) }
	switch have := s.objects[path]; r.Method {
	case http.MethodPost:
		path += "/" + name()
		if s.objects[path] != nil {
			refuse(http.StatusConflict)
			return
		}
		s.store(path, body)
	case http.MethodPut:
		if have == nil {
			refuse(http.StatusNotFound)
			return
		}
		if body["metadata"].(map[string]any)["resourceVersion"] != have["metadata"].(map[string]any)["resourceVersion"] {
			s.conflicts++
			refuse(http.StatusConflict)
			return
		}
		s.store(path, body)
	case http.MethodDelete:
		delete(s.objects, path)
	default:
		if have == nil {
			refuse(http.StatusNotFound)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(s.objects[path])
}

func (s *versioned) store(path string, body map[string]any) {
	s.version++
	body["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	s.objects[path] = body
}

// count is how many objects of a kind there are, and how many addresses blocks
// say are taken.
func (s *versioned) count(kind string) (objects, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, o := range s.objects {
		if !strings.HasPrefix(path, kind+"/") {
			continue
		}
		objects++
		if all, ok := o["spec"].(map[string]any)["allocations"].([]any); ok {
			for _, a := range all {
				if a != nil {
					taken++
				}
			}
		}
	}
	return objects, taken
}

func newPluginNode(t *testing.T, server string, serial bool) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: %q}}]\ncontexts: [{name: x, context: {cluster: x}}]\n", server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &Fleet{conf: Config{Pods: 110, NamePrefix: "n", Network: Network{Serial: serial, IPAM: &IPAM{Kubeconfig: file, Agent: "ipam"}}}, metrics: newMetrics()}
	var err error
	if f.plugin, err = newPlugin(f.conf.Network.IPAM); err != nil {
		t.Fatal(err)
	}
	return newNode(f, 0)
}

// Pods of a node that come together each get an address of their own; without a
// lock on the node they get in each other's way, with one they do not.
func TestIPAM(t *testing.T) {
	for _, serial := range []bool{false, true} {
		api := &versioned{objects: map[string]map[string]any{}, think: time.Millisecond}
		server := httptest.NewServer(api)
		defer server.Close()
		n := newPluginNode(t, server.URL, serial)
		const pods = 70 // more than a block has
		ips := make([]string, pods)
		var all sync.WaitGroup
		for i := range pods {
			all.Go(func() {
				for ips[i] == "" {
					var err error
					if ips[i], err = n.assign(t.Context(), fmt.Sprint("pod-", i)); err != nil && !isCode(err, http.StatusConflict) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		seen := map[string]bool{}
		for i, ip := range ips {
			if seen[ip] || ip == "" {
				t.Errorf("pod %d has %q, as another one", i, ip)
			}
			seen[ip] = true
		}
		blocks, taken := api.count("ipamblocks")
		handles, _ := api.count("ipamhandles")
		if blocks != 2 || taken != pods || handles != pods {
			t.Errorf("serial %v: %d blocks with %d addresses taken, %d handles", serial, blocks, taken, handles)
		}
		if serial != (api.conflicts == 0) {
			t.Errorf("serial %v: %d conflicts in %d requests", serial, api.conflicts, api.requests)
		}
		for i := range pods / 2 {
			n.unassign(t.Context(), fmt.Sprint("pod-", i))
		}
		_, taken = api.count("ipamblocks")
		if handles, _ = api.count("ipamhandles"); taken != pods/2 || handles != pods/2 {
			t.Errorf("half of the pods are gone: %d addresses and %d handles are left", taken, handles)
		}
		if ip, err := n.assign(t.Context(), "late"); err != nil || ip != ips[0] && !seen[ip] {
			t.Errorf("an address that was given back: %s (%v)", ip, err)
		}
	}
}

// Somebody else's failure is not tried again at once.
func TestIPAMFails(t *testing.T) {
	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tries++
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	n := newPluginNode(t, server.URL, true)
	if ip, err := n.assign(t.Context(), "pod"); !isCode(err, http.StatusForbidden) || ip != "" || tries != 1 {
		t.Errorf("%q, %v, after %d tries", ip, err, tries)
	}
}

package load

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Objects go to the namespaces of their phase in turn, which are made once, with
// a service account where no controller makes one.
func TestNamespaces(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, func(c *Config) { c.NoAccounts, c.NoKubelets = true, true })
	ps := phases(t, `
  - {name: some, create: {kind: Pod, count: 7, rate: burst, namespace: team, namespaces: 3}}
  - {name: more, create: {kind: Pod, count: 2, rate: burst, namespace: team-1, pod: {cpu: 10m}}}
  - {name: end, delete: {phase: some, rate: burst}}
`)
	for _, p := range ps[:2] {
		if s, _ := runPhase(t, g, p); s.Failed != 0 {
			t.Fatalf("%+v", s)
		}
	}
	_, ops := runPhase(t, g, ps[2])
	in := map[string]int{}
	for _, op := range ops {
		in[op.Namespace]++
	}
	if in["team-0"] != 3 || in["team-1"] != 2 || in["team-2"] != 2 {
		t.Errorf("deleted in %v", in)
	}
	made := map[string]int{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		path, _, _ := strings.Cut(r.path, "?")
		switch {
		case r.method == http.MethodPost:
			made[path]++
		case r.method == http.MethodDelete && !strings.HasPrefix(path, "/api/v1/namespaces/team-"):
			t.Errorf("%s %s", r.method, r.path)
		}
	}
	for path, want := range map[string]int{
		"/api/v1/namespaces/team-0/pods": 3, "/api/v1/namespaces/team-1/pods": 4, "/api/v1/namespaces/team-2/pods": 2,
		"/api/v1/namespaces/team-0/serviceaccounts": 1, "/api/v1/namespaces/team-1/serviceaccounts": 1,
	} {
		if made[path] != want {
			t.Errorf("%d requests to %s, want %d", made[path], path, want)
		}
	}
}

// On a cluster that is not a lab there is the run's own namespace only.
func TestNoOtherNamespaceElsewhere(t *testing.T) {
	f := newFakeAPI(t)
	g := f.generator(t, func(c *Config) { c.Existing = true })
	p := phases(t, "  - {name: a, create: {kind: Pod, count: 1, namespace: b}}")[0]
	if _, err := g.work(context.Background(), p); err == nil || !strings.Contains(err.Error(), "not a lab") {
		t.Errorf("%v", err)
	}
	if got := f.seen(http.MethodPost, "/namespaces"); slices.ContainsFunc(got, func(r request) bool { return strings.Contains(string(r.body), "b") }) {
		t.Error("it was made")
	}
}

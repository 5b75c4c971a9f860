package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretIsNeverPrinted(t *testing.T) {
	s := Secret("hunter2")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("got", "key", s, "in", struct{ S Secret }{s})
	text, err := json.Marshal(map[string]any{"s": s})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		all += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, struct{ S Secret }{s})
	}
	for _, leak := range []string{"hunter2", "68756e74", "68756E74", "104 117", "aHVudGVy"} {
		if strings.Contains(all, leak) {
			t.Errorf("%q leaked: %s", leak, all)
		}
	}
}

func TestRESTConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	const text = `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := &ControlPlane{Kind: KindLab, Name: "a", Kubeconfigs: Kubeconfigs{Load: path}}
	cfg, err := cp.RESTConfig("load")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.UserAgent != "kubedyno-load" || cfg.QPS != -1 || cfg.Host != "https://127.0.0.1:1" {
		t.Errorf("agent %q, qps %v, host %q", cfg.UserAgent, cfg.QPS, cfg.Host)
	}
	for role, want := range map[string]string{
		"collect": `lab "a" has no kubeconfig for role collect`,
		"root":    `no role is named "root"`,
	} {
		if _, err := cp.RESTConfig(role); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("role %s: err = %v, want %q", role, err, want)
		}
	}
}

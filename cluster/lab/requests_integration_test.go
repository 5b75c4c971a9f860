package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

// Each request of a lab stands in the server's log of requests as it stands in
// its audit log, where the lab has one.
func TestLogOfRequests(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	audited := filepath.Join(dir, "audit.log")
	cfg := config(t)
	cfg.Overrides = map[string]lab.Override{lab.APIServer: {Args: map[string]*string{
		"audit-log-path": &audited, "audit-policy-file": &policy, "audit-log-mode": ptr("blocking"),
	}}}
	l := start(t, cfg)
	cp := l.ControlPlane()
	if filepath.Base(cp.RequestLog) != "requests.log" {
		t.Errorf("the log of requests is %s", cp.RequestLog)
	}
	askAll(t, cp)
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	want, got := requestsIn(t, audited), requestsIn(t, cp.RequestLog)
	named, sized, bodies, timed := 0, 0, 0, 0
	for id, w := range want {
		g, ok := got[id]
		if !ok {
			t.Errorf("not in the log of requests: %s", say(w))
			continue
		}
		// The server names what it creates, which an audit log does not tell; of what
		// was refused an audit log has the name that was asked for.
		if w.Verb == "create" && w.Name != g.Name && (w.Name == "" && g.Code == http.StatusCreated || g.Name == "" && g.Code >= 400) {
			if g.Name != "" {
				named++
			}
			w.Name, g.Name = "", ""
		}
		if say(w) != say(g) {
			t.Errorf("log of requests: %s\n      audit log: %s", say(g), say(w))
		}
		// The audit log begins a request a few filters later.
		if late := w.ReceivedMicros - g.ReceivedMicros; late < -1 || late > time.Second.Microseconds() {
			t.Errorf("%s: received %d µs before the audit log says so", say(w), late)
		}
		if g.ResponseBytes > 0 {
			sized++
		}
		if g.RequestBytes > 0 {
			bodies++
			if g.Verb == "get" || g.Verb == "list" || g.Verb == "watch" {
				t.Errorf("%s: a body of %d bytes", say(g), g.RequestBytes)
			}
		}
		if g.EtcdMicros > 0 && g.EtcdMicros <= g.ServerMicros {
			timed++
		}
	}
	refused := 0
	for id, g := range got {
		if _, ok := want[id]; ok {
			continue
		}
		// An audit log has only the begin of the answer to who was not let in.
		if refused++; g.Code != http.StatusUnauthorized {
			t.Errorf("not in the audit log: %s", say(g))
		}
	}
	t.Logf("%d requests in both logs; %d with a name that the audit log has not, %d with a size, %d with a body, %d with etcd's time", len(want), named, sized, bodies, timed)
	if len(want) < 200 || named == 0 || sized < len(want)/2 || bodies < 20 || timed < 50 || refused == 0 {
		t.Errorf("too little was compared: %d not let in", refused)
	}
}

// say is what both logs tell of a request.
func say(r record.Request) string {
	return fmt.Sprintf("%s %s/%s/%s %s/%s ?%s by %s (%s): %d", r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name, r.URI, r.User, r.UserAgent, r.Code)
}

// requestsIn reads the requests that were served, by their audit IDs.
func requestsIn(t *testing.T, path string) map[string]record.Request {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]record.Request{}
	d := audit.NewDecoder()
	for line := range bytes.Lines(b) {
		e, err := d.Decode(bytes.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v in %s", path, err, line)
		}
		if string(e.Stage) == "ResponseComplete" {
			all[string(e.ID)] = e.Row
		}
	}
	return all
}

// askAll sends one of each kind of request.
func askAll(t *testing.T, cp *cluster.ControlPlane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	within(t, deadline, "the account of pods is there", func() bool {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		cfg, err := cp.RESTConfig("admin")
		if err != nil {
			t.Fatal(err)
		}
		cfg.ContentType, cfg.UserAgent = encoding, "asks/"+encoding+" \"é\\"
		if cfg.ContentType != "application/json" {
			cfg.AcceptContentTypes = encoding + ",application/json"
		}
		askAs(ctx, t, cfg)
	}
	// Somebody whom nobody knows.
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.BearerToken = "x"
	if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a stranger was let in")
	}
}

func askAs(ctx context.Context, t *testing.T, cfg *rest.Config) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cfg)
	should := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused := func(what string, err error) {
		if err == nil {
			t.Errorf("%s was not refused", what)
		}
	}
	maps := client.CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	should("create", err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: made.Name}}, metav1.CreateOptions{})
	refused("a second of the name", err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "No Name"}}, metav1.CreateOptions{})
	refused("a bad name", err)
	_, err = maps.Patch(ctx, made.Name, types.MergePatchType, []byte(`{"data":{"a":"c"}}`), metav1.PatchOptions{})
	should("patch", err)
	_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	refused("an update of what has changed", err)
	_, err = maps.Get(ctx, "nobody", metav1.GetOptions{})
	refused("what is not there", err)
	_, err = maps.List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: "a=b,c in (d)"})
	should("list", err)
	watching, stop := context.WithCancel(ctx)
	w, err := maps.Watch(watching, metav1.ListOptions{ResourceVersion: "0", AllowWatchBookmarks: true})
	should("watch", err)
	<-w.ResultChan()
	stop()
	w.Stop()
	should("delete", maps.Delete(ctx, made.Name, metav1.DeleteOptions{}))
	should("delete all", maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=y"}))
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	should("pod", err)
	refused("a binding to nowhere", client.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}, Target: corev1.ObjectReference{Kind: "Node", Name: "a"}}, metav1.CreateOptions{}))
	_, err = client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).DoRaw(ctx)
	should("logs of a pod that runs nowhere", err)
	should("delete the pod", client.CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	role, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}, metav1.CreateOptions{})
	should("role", err)
	should("delete the role", client.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}))
	other := rest.CopyConfig(cfg)
	other.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	_, err = kubernetes.NewForConfigOrDie(other).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	refused("nobody", err)
	for _, path := range []string{"/readyz", "/metrics", "/api", "/apis/apps/v1", "/openapi/v3", "/no/such/path", "/apis/no.such.group/v1/things"} {
		_, _ = client.RESTClient().Get().AbsPath(path).Param("verbose", "").DoRaw(ctx)
	}
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").Param("watch", "1").Param("timeoutSeconds", "1").Stream(ctx)
	should("a watch that ends by itself", err)
	if err == nil {
		_, _ = io.Copy(io.Discard, body)
		body.Close()
	}
}

// An API server that is not of ours has an audit log, as anywhere.
func TestLogOfRequestsOfAnother(t *testing.T) {
	cfg := config(t)
	cfg.Last = lab.APIServer
	other := filepath.Join(t.TempDir(), "my-apiserver")
	script := "#!/bin/sh\n[ \"$1\" != version ] || { echo unknown command >&2; exit 1; }\nexec " + cfg.Lab + " kube-apiserver \"$@\"\n"
	if err := os.WriteFile(other, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.Overrides = map[string]lab.Override{lab.APIServer: {Binary: other}}
	l := start(t, cfg)
	cp := l.ControlPlane()
	if filepath.Base(cp.RequestLog) != "audit.log" || !strings.Contains(strings.Join(cp.Component(lab.APIServer).Args, " "), "--audit-log-path="+cp.RequestLog) {
		t.Errorf("the log of requests is %s", cp.RequestLog)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := requestsIn(t, cp.RequestLog); len(all) < 50 {
		t.Errorf("%d requests in the audit log", len(all))
	}
}

// Where the log and the sockets are is kubedyno's own to say.
func TestLogOfRequestsElsewhere(t *testing.T) {
	for _, c := range []struct{ component, variable string }{{lab.APIServer, "KUBEDYNO_REQUEST_LOG"}, {lab.Etcd, "KUBEDYNO_METRICS"}} {
		cfg := config(t)
		cfg.Last = lab.APIServer
		cfg.Overrides = map[string]lab.Override{c.component: {Env: map[string]string{c.variable: filepath.Join(t.TempDir(), "mine")}}}
		l, err := lab.Start(t.Context(), cfg)
		if err == nil {
			_ = l.Stop(t.Context())
			t.Fatal("it starts")
		}
		if !strings.Contains(err.Error(), c.component+".env."+c.variable+" cannot be set") {
			t.Error(err)
		}
	}
}

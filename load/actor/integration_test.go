package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/internal/clientcert"
)

// The test binary plays the lab's keeper and its helper.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, nil); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// kubeconfig is an actor's, as a run writes it.
func kubeconfig(t *testing.T, cp *cluster.ControlPlane, name string) string {
	t.Helper()
	cert, key, err := clientcert.Sign(cp.NodeCA.CertFile, cp.NodeCA.KeyFile, name, lab.ActorGroup)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(cp.CA)
	if err != nil {
		t.Fatal(err)
	}
	b, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"lab": {Server: cp.Server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"lab": {Cluster: "lab", AuthInfo: name}},
		CurrentContext: "lab",
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs an actor as its process would, until the test ends, and returns
// what reads its metrics.
func start(t *testing.T, c Config) (metrics func() string) {
	t.Helper()
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	stdin, feed := io.Pipe()
	said, stdout := io.Pipe()
	var words bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- ProcessMain(t.Context(), stdin, stdout, &words) }()
	go func() { _, _ = feed.Write(append(line, '\n')) }()
	listening := make(chan Event, 1)
	go func() {
		var e Event
		if json.NewDecoder(said).Decode(&e) == nil {
			listening <- e
		}
	}()
	t.Cleanup(func() {
		feed.Close() // as a parent that ends
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", c.Do, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s lives on after its stdin ended", c.Do)
		}
		if words.Len() > 0 {
			t.Errorf("%s said: %s", c.Do, words.String())
		}
	})
	select {
	case e := <-listening:
		return func() string {
			resp, err := http.Get(e.MetricsURL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return string(b)
		}
	case err := <-done:
		done <- nil
		t.Fatalf("%s: %v", c.Do, err)
	}
	return nil
}

// Each kind does on a real API server what it says.
func TestKinds(t *testing.T) {
	binary := labtest.Binary(t)
	t.Setenv("KUBEDYNO_LAB", binary)
	t.Setenv("KUBEDYNO_STATE", t.TempDir())
	l, err := lab.Start(t.Context(), lab.Config{Profile: "tuned"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	cp := l.ControlPlane()
	rc, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	const ns = "default"
	ctx := t.Context()
	// A pod that says that it runs, and a claim that nobody binds.
	eventually(t, "the pod is there", func() bool {
		_, err := client.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "runs"},
			Spec:       corev1.PodSpec{NodeName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}, metav1.CreateOptions{})
		return err == nil
	})
	pod, err := client.CoreV1().Pods(ns).Get(ctx, "runs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := client.CoreV1().Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Somebody else's pod, which no actor may write to.
	theirs := pod.DeepCopy()
	theirs.ObjectMeta = metav1.ObjectMeta{Name: "theirs", Namespace: "kube-system"}
	eventually(t, "their pod is there", func() bool {
		made, err := client.CoreV1().Pods("kube-system").Create(ctx, theirs, metav1.CreateOptions{})
		if err == nil {
			made.Status.Phase = corev1.PodRunning
			_, err = client.CoreV1().Pods("kube-system").UpdateStatus(ctx, made, metav1.UpdateOptions{})
		}
		return err == nil
	})
	none := "none"
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "waits"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	did := func(text, action, result string) bool {
		return strings.Contains(text, fmt.Sprintf("kubedyno_actor_action_duration_seconds_count{action=%q,result=%q}", action, result))
	}
	hooked, enabled := t.TempDir(), t.TempDir()
	tested := map[string]bool{}
	for _, c := range []struct {
		Config
		done func(metrics string) bool
	}{
		{Config{Do: "addon-hook", Objects: 2, Kubectl: binary, Cache: t.TempDir(), Folder: hooked}, func(m string) bool {
			// An add-on whose file goes is taken away, and the other stays.
			list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: Label + "=the-addon-hook"})
			if err == nil && len(list.Items) == 2 {
				if err := os.Remove(filepath.Join(hooked, "the-addon-hook-1.json")); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			}
			return err == nil && len(list.Items) == 1 && list.Items[0].Name == "the-addon-hook-0" && did(m, "apply", "ok") && !did(m, "apply", "error")
		}},
		{Config{Do: "addon-manager", Rate: 2, Objects: 3, Kubectl: binary, Cache: t.TempDir(), Folder: t.TempDir()}, func(m string) bool {
			list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: Label + "=the-addon-manager"})
			return err == nil && len(list.Items) == 3 && did(m, "apply", "ok") && !did(m, "apply", "error")
		}},
		{Config{Do: "addon-user", Rate: 5, Objects: 1, Cache: t.TempDir(), Folder: enabled, Image: "x"}, func(m string) bool {
			// We are who applies what it puts there, and who runs it.
			b, err := os.ReadFile(filepath.Join(enabled, "the-addon-user-0.json"))
			if err != nil {
				return false
			}
			var d appsv1.Deployment
			if err := json.Unmarshal(b, &d); err != nil {
				t.Fatal(err)
			}
			if _, err := client.AppsV1().Deployments(ns).Create(ctx, &d, metav1.CreateOptions{}); err == nil && did(m, "enable", "ok") {
				t.Error("counted before it ran")
			}
			// Controllers tell the Deployment's status by its pods, and would take back ours.
			pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=the-addon-user-0"})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.Items {
				if p.Status.Phase == corev1.PodRunning {
					continue
				}
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				if _, err := client.CoreV1().Pods(ns).UpdateStatus(ctx, &p, metav1.UpdateOptions{}); err != nil {
					t.Log(err) // the scheduler wrote it meanwhile: again
				}
			}
			return did(m, "ask", "ok") && did(m, "enable", "ok")
		}},
		{Config{Do: "connections", Rate: 20}, func(m string) bool { return did(m, "connect", "ok") && !did(m, "connect", "error") }},
		{Config{Do: "controller"}, func(m string) bool {
			p, err := client.CoreV1().Pods(ns).Get(ctx, "runs", metav1.GetOptions{})
			return did(m, "patch", "ok") && err == nil && p.Labels[Label] == "the-controller"
		}},
		{Config{Do: "apply-on-change", Objects: 2, Kubectl: binary, Cache: t.TempDir()}, func(m string) bool {
			// Whoever changes what it applied sees it come back; nothing else makes it apply.
			maps := client.CoreV1().ConfigMaps(ns)
			one, err := maps.Get(ctx, "the-apply-on-change-1", metav1.GetOptions{})
			if err != nil {
				return false
			}
			if one.Annotations["changed"] == "" {
				one.Data["index"], one.Annotations = "nine", map[string]string{"changed": "yes", corev1.LastAppliedConfigAnnotation: one.Annotations[corev1.LastAppliedConfigAnnotation]}
				_, err = maps.Update(ctx, one, metav1.UpdateOptions{})
				if err != nil {
					t.Log(err)
				}
				return false
			}
			return one.Data["index"] == "1" && did(m, "apply", "ok")
		}},
		{Config{Do: "converter", Rate: 20, Objects: 2}, func(m string) bool {
			return did(m, "convert", "ok") && did(m, "get", "ok") && !did(m, "get", "404")
		}},
		{Config{Do: "disk-writer", Count: 2, Cache: t.TempDir()}, func(m string) bool { return did(m, "write", "ok") && !did(m, "write", "error") }},
		{Config{Do: "electors", Count: 2, Objects: 2}, func(string) bool {
			for i := range 2 {
				lease, err := client.CoordinationV1().Leases(ns).Get(ctx, fmt.Sprintf("the-electors-%d", i), metav1.GetOptions{})
				if err != nil || lease.Spec.HolderIdentity == nil || !strings.HasPrefix(*lease.Spec.HolderIdentity, "the-electors-") {
					return false
				}
			}
			return true
		}},
		{Config{Do: "events", Rate: 50}, func(string) bool {
			list, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{LabelSelector: Label + "=the-events"})
			return err == nil && len(list.Items) > 10
		}},
		{Config{Do: "heartbeats", Count: 3, Rate: 30}, func(m string) bool {
			list, err := client.CoordinationV1().Leases(ns).List(ctx, metav1.ListOptions{LabelSelector: Label + "=the-heartbeats"})
			return err == nil && len(list.Items) == 3 && did(m, "renew", "ok")
		}},
		{Config{Do: "installer", Rate: 5, Objects: 2}, func(m string) bool {
			b, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").DoRaw(ctx)
			return err == nil && strings.Contains(string(b), "parts1.installer.kubedyno.io") && did(m, "change", "ok")
		}},
		{Config{Do: "kubectl-apply", Rate: 2, Objects: 3, Kubectl: binary, Cache: t.TempDir()}, func(m string) bool {
			list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: Label + "=the-kubectl-apply"})
			return err == nil && len(list.Items) == 3 && did(m, "apply", "ok")
		}},
		{Config{Do: "lister", Rate: 20, Resource: "deployments.apps"}, func(m string) bool { return did(m, "list", "ok") }},
		{Config{Do: "lockers", Count: 2}, func(string) bool {
			lease, err := client.CoordinationV1().Leases(ns).Get(ctx, "lock-waits", metav1.GetOptions{})
			return err == nil && lease.Spec.HolderIdentity != nil
		}},
		{Config{Do: "owner", Objects: 2}, func(string) bool {
			for i := range 2 {
				c, err := client.CoreV1().ConfigMaps(ns).Get(ctx, fmt.Sprintf("disputed-%d", i), metav1.GetOptions{})
				if err != nil || c.Data["owner"] != "the-owner" {
					return false
				}
			}
			return true
		}},
		{Config{Do: "relister", Rate: 5, Resource: "configmaps"}, func(m string) bool { return did(m, "watch", "ok") && !did(m, "watch", "error") }},
		{Config{Do: "scraper", Rate: 5}, func(m string) bool { return did(m, "scrape", "ok") && !did(m, "scrape", "403") }},
		{Config{Do: "webhook", Refuse: 100}, func(m string) bool {
			_, err := client.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return did(m, "judge", "ok") && err != nil && strings.Contains(err.Error(), "not this time")
		}},
		{Config{Do: "watchers", Count: 20}, func(string) bool { return watches(ctx, client, "the-watchers") }},
		{Config{Do: "writers", Rate: 100, Count: 8}, func(m string) bool {
			return did(m, "update", "ok") && did(m, "update", "409") && did(m, "intent", "ok") && !did(m, "intent", "409")
		}},
	} {
		tested[c.Do] = true
		t.Run(c.Do, func(t *testing.T) {
			c.Name, c.Namespace, c.RunID = "the-"+c.Do, ns, "test"
			c.Kubeconfig = kubeconfig(t, cp, c.Name)
			metrics := start(t, c.Config)
			eventually(t, c.Do+" did what it says", func() bool { return c.done(metrics()) })
		})
	}
	for _, k := range Kinds() {
		if !tested[k.Name] {
			t.Errorf("kind %s is not tested", k.Name)
		}
	}
	// What others need a webhook for does not stay when its process has gone.
	if b, err := client.CoreV1().RESTClient().Get().AbsPath(crds).DoRaw(ctx); err != nil || strings.Contains(string(b), "converter.kubedyno.io") {
		t.Errorf("the custom resource of the converter is left (%v)", err)
	}
	if list, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("%d webhooks are left (%v)", len(list.Items), err)
	}

	if p, err := client.CoreV1().Pods("kube-system").Get(ctx, "theirs", metav1.GetOptions{}); err != nil || len(p.Labels) > 0 {
		t.Errorf("somebody else's pod has labels %v (%v)", p.Labels, err)
	}

	// Who may not is not silent about it.
	var words bytes.Buffer
	bad := Config{Name: "x", Do: "writers", Kubeconfig: kubeconfig(t, cp, "x"), Namespace: "not-there"}
	line, _ := json.Marshal(bad)
	hold, feed := io.Pipe()
	defer feed.Close()
	go func() { _, _ = feed.Write(append(line, '\n')) }()
	if err := ProcessMain(ctx, hold, io.Discard, &words); err == nil || !strings.Contains(words.String(), "not-there") {
		t.Errorf("writers in a namespace that is not there: %v, %q", err, words.String())
	}
}

// watches says whether the API server serves twenty watches on pods.
func watches(ctx context.Context, client kubernetes.Interface, _ string) bool {
	b, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return false
	}
	n := 0.0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="pods"`) && strings.Contains(line, `scope="cluster"`) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err == nil {
				n += v
			}
		}
	}
	return n >= 20
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func TestBadConfigs(t *testing.T) {
	for line, want := range map[string]string{
		"":   "read config: EOF",
		"{}": `no kind of actor is named ""`,
		`{"do":"lister","name":"x","kubeconfig":"/not/there"}`: "kubeconfig /not/there",
		"{": "read config",
	} {
		var words bytes.Buffer
		if err := ProcessMain(t.Context(), strings.NewReader(line+"\n"), io.Discard, &words); line != "" && (err == nil || !strings.Contains(words.String(), want)) {
			t.Errorf("%q: %v, said %q; want %q", line, err, words.String(), want)
		}
	}
}

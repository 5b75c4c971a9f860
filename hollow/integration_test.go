package hollow

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
)

// The test binary plays the lab's keeper and its helper, and kubedyno-hollow.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, map[string]labtest.Role{childName: ProcessMain}); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// startLab starts a real control plane and returns it with an administrator's client.
func startLab(t testing.TB, profile string) (*cluster.ControlPlane, *lab.Lab, kubernetes.Interface) {
	t.Helper()
	// Waits for its API server to be ready: as long as it takes on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Config{Lab: labtest.Binary(t), StateRoot: t.TempDir(), Profile: profile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	cp := l.ControlPlane()
	rest, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	return cp, l, client
}

func labConfig(cp *cluster.ControlPlane, nodes int) Config {
	return Config{
		Kubeconfig: cp.Kubeconfigs.Admin, Server: cp.Server, CAFile: cp.CA,
		NodeCA: &KeyPair{cp.NodeCA.CertFile, cp.NodeCA.KeyFile},
		Nodes:  nodes, Seed: 1, RunID: "test", Lease: 4, Cleanup: true,
	}
}

// scrape reads the fleet's own metrics, keyed as they are written.
func scrape(t testing.TB, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if n, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64); err == nil {
				all[line[:i]] = n
			}
		}
	}
	return all
}

func pausePod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "hollow-test"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}},
	}
}

// runningPods counts the pods that are Running and Ready with all that a kubelet
// says of such a pod.
func runningPods(t testing.TB, client kubernetes.Interface) (n int) {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		s := &list.Items[i].Status
		if s.Phase != v1.PodRunning {
			continue
		}
		n++
		if s.PodIP == "" || s.HostIP == "" || s.StartTime == nil || s.ObservedGeneration != 1 || len(s.ContainerStatuses) != 1 || !s.ContainerStatuses[0].Ready {
			t.Errorf("%s is running with status %+v", list.Items[i].Name, s)
		}
		for _, c := range s.Conditions {
			if c.Status != v1.ConditionTrue || c.ObservedGeneration != 1 || c.LastTransitionTime.IsZero() {
				t.Errorf("%s is running with condition %+v", list.Items[i].Name, c)
			}
		}
		if len(s.Conditions) != usual {
			t.Errorf("%s has %d conditions, want %d", list.Items[i].Name, len(s.Conditions), usual)
		}
	}
	return n
}

// TestAgainstRealControlPlane drives twenty nodes and their pods through a life.
func TestAgainstRealControlPlane(t *testing.T) {
	cp, l, client := startLab(t, "")
	const nodes, pods = 20, 60
	p := startProcess(t, labConfig(cp, nodes))
	began := time.Now()
	url := p.await("listening").MetricsURL
	if e, took := p.await("ready"), time.Since(began).Seconds(); e.ReadySeconds <= 0 || e.ReadySeconds > took+1 {
		t.Errorf("ready after %.1f s, in a process that said so after %.1f s", e.ReadySeconds, took)
	}
	for i := range pods {
		// The default service account comes a moment after its namespace.
		eventually(t, "pod can be created", func() bool {
			_, err := client.CoreV1().Pods("default").Create(t.Context(), pausePod(fmt.Sprintf("p-%d", i)), metav1.CreateOptions{})
			return err == nil
		})
	}
	eventually(t, "all pods are running", func() bool { return runningPods(t, client) == pods })

	t.Run("leases are renewed", func(t *testing.T) {
		before, err := client.CoordinationV1().Leases(leaseNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(before.Items) != nodes {
			t.Fatalf("%d leases, want %d (%v)", len(before.Items), nodes, err)
		}
		for i := range before.Items {
			old := &before.Items[i]
			if len(old.OwnerReferences) != 1 || old.OwnerReferences[0].Kind != "Node" {
				t.Errorf("%s is owned by %v", old.Name, old.OwnerReferences)
			}
			eventually(t, old.Name+" is renewed", func() bool {
				now, err := client.CoordinationV1().Leases(leaseNamespace).Get(t.Context(), old.Name, metav1.GetOptions{})
				return err == nil && now.Spec.RenewTime.After(old.Spec.RenewTime.Time)
			})
		}
	})

	t.Run("a frozen API server is survived", func(t *testing.T) {
		if err := l.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := l.Unpause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pausePod("after-pause"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a pod created afterwards runs", func() bool { return runningPods(t, client) == pods+1 })
	})

	t.Run("a node that was given up comes back", func(t *testing.T) {
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d nodes: %v", len(list.Items), err)
		}
		gone := list.Items[0]
		for i := range gone.Status.Conditions { // as the node lifecycle controller does it
			gone.Status.Conditions[i].Status, gone.Status.Conditions[i].Reason = v1.ConditionUnknown, unknownReason
		}
		if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), &gone, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, gone.Name+" says again what it is", func() bool {
			now, err := client.CoreV1().Nodes().Get(t.Context(), gone.Name, metav1.GetOptions{})
			if err != nil || len(now.Status.Conditions) != len(nodeConditions) {
				return false
			}
			for i, c := range nodeConditions {
				if now.Status.Conditions[i].Type != c.kind || now.Status.Conditions[i].Status != c.status {
					return false
				}
			}
			return true
		})
	})

	zero := metav1.DeletePropagationBackground
	if err := client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &zero}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all pods are gone", func() bool {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	for key, n := range scrape(t, url) {
		// What is asked for a new pod's sake may overtake the node authorizer's
		// own watch; nothing else may be refused.
		early := strings.Contains(key, `resource="pods",verb="get"`) || strings.Contains(key, `resource="serviceaccounts/token"`) || strings.Contains(key, `verb="watch"`)
		if strings.HasPrefix(key, "kubedyno_hollow_request_errors_total") && strings.Contains(key, `code="403"`) && !early {
			t.Errorf("refused: %s %v", key, n)
		}
	}
	p.stop(5 * time.Second)
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d nodes are left (%v)", len(list.Items), err)
	}
}

// TestPooledAndImpersonated covers the identities of clusters whose authority
// we do not have, and the traffic that needs one of them.
func TestPooledAndImpersonated(t *testing.T) {
	cp, _, client := startLab(t, "tuned")
	life := func(t *testing.T, change func(*Config)) map[string]float64 {
		conf := labConfig(cp, 5)
		conf.NodeCA, conf.Server, conf.CAFile = nil, "", ""
		change(&conf)
		p := startProcess(t, conf)
		url := p.await("listening").MetricsURL
		p.await("ready")
		const pods = 10
		for i := range pods {
			eventually(t, "pod can be created", func() bool {
				_, err := client.CoreV1().Pods("default").Create(t.Context(), pausePod(fmt.Sprintf("p-%d", i)), metav1.CreateOptions{})
				return err == nil
			})
		}
		eventually(t, "pods run", func() bool { return runningPods(t, client) == pods })
		if err := client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "pods are gone", func() bool {
			list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			return err == nil && len(list.Items) == 0
		})
		eventually(t, "the nodes know", func() bool { return scrape(t, url)["kubedyno_hollow_pods"] == 0 })
		m := scrape(t, url)
		p.stop(5 * time.Second)
		return m
	}
	for _, identity := range []Identity{Impersonated, Pooled} {
		t.Run(string(identity), func(t *testing.T) {
			life(t, func(c *Config) { c.Identity = identity })
		})
	}
	t.Run("least traffic", func(t *testing.T) {
		m := life(t, func(c *Config) { c.Traffic = Least })
		count := func(resource, verb string) float64 {
			return m[fmt.Sprintf("kubedyno_hollow_request_duration_seconds_count{resource=%q,verb=%q}", resource, verb)]
		}
		if n := count("pods/status", "patch"); n != 10 {
			t.Errorf("%v status patches for 10 pods, want one each", n)
		}
		if n := count("pods", "delete"); n != 10 {
			t.Errorf("%v DELETEs for 10 pods, want one each", n)
		}
		if n := count("pods", "get") + count("events", "create") + count("serviceaccounts/token", "create") + count("csinodes", "create"); n != 0 {
			t.Errorf("%v requests that least traffic leaves out", n)
		}
		if n := count("leases", "create"); n != 5 {
			t.Errorf("%v leases made for 5 nodes", n)
		}
		if n := m[`kubedyno_hollow_watch_relists_total{resource="pods"}`]; n != 1 {
			t.Errorf("%v watches of pods began, want 1", n)
		}
	})
}

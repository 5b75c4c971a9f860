package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/internal/cli"
	"github.com/kubedyno/kubedyno/load"
)

// However a run on somebody's cluster ends, clean leaves nothing of it, and
// everything else.
func TestCleanAfterAnyEnd(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	state := filepath.Join(dir, "labs")
	env := append(os.Environ(), "KUBEDYNO_LAB="+labtest.Binary(t), "KUBEDYNO_STATE="+state)
	kubedyno := func(args ...string) *exec.Cmd {
		cmd := exec.Command(exe, args...)
		cmd.Args[0] = "kubedyno"
		cmd.Env = env
		return cmd
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := kubedyno(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubedyno %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	must("lab", "up", "--profile", "tuned")
	t.Cleanup(func() {
		if out, err := kubedyno("lab", "down").CombinedOutput(); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
	})
	kubeconfig := filepath.Join(state, "lab", "kubeconfig", "admin")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	// Somebody else's, though they carry a label of ours.
	labels := map[string]string{load.LabelRun: "20260102T030405Z-abcdef"}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "their-node", Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	churn := filepath.Join(dir, "churn.yaml")
	if err := os.WriteFile(churn, []byte(churning), 0o644); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(0, uint64(time.Now().UnixNano())))
	left := 0
	for i := range *moments {
		run := kubedyno("run", churn, "--kubeconfig", kubeconfig, "--nodes", "3", "--out", filepath.Join(dir, "r"))
		var said bytes.Buffer
		run.Stderr = &said
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		at := time.Duration(1+i%4)*2*time.Second + time.Duration(random.Int64N(int64(2*time.Second)))
		time.Sleep(at)
		how := []string{"killed", "interrupted while the API server does not answer", "interrupted"}[i%3]
		switch i % 3 {
		case 0:
			_ = run.Process.Kill()
		case 1:
			// It cannot take its own away, and is not waited for.
			must("lab", "pause")
			_ = run.Process.Signal(os.Interrupt)
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
			_ = run.Process.Kill()
			_ = run.Wait()
			must("lab", "unpause")
		case 2:
			_ = run.Process.Signal(os.Interrupt)
		}
		_ = run.Wait() // ended by us
		listed := must("clean", "--kubeconfig", kubeconfig, "--dry-run")
		said.Reset()
		if strings.Contains(listed, "Namespace") {
			left++
			// Nobody says yes: nothing goes.
			refused := kubedyno("clean", "--kubeconfig", kubeconfig)
			refused.Stdin = strings.NewReader("")
			if out, err := refused.CombinedOutput(); err == nil || refused.ProcessState.ExitCode() != cli.ExitMisused {
				t.Errorf("clean without an answer: %v\n%s", err, out)
			}
			if again := must("clean", "--kubeconfig", kubeconfig, "--dry-run"); !strings.Contains(again, "Namespace") {
				t.Errorf("a refused clean has deleted:\n%s", again)
			}
		}
		t.Logf("%s after %v:\n%s", how, at.Round(time.Millisecond), listed)
		must("clean", "--kubeconfig", kubeconfig, "--yes")
		checkClean(t, client, how)
		if err := os.RemoveAll(filepath.Join(dir, "r")); err != nil {
			t.Fatal(err)
		}
	}
	if left == 0 {
		t.Error("no end has left anything: the test tests less than it says")
	}
	if out := must("clean"); !strings.Contains(out, "is up and stays") {
		t.Errorf("clean of the machine, with a lab that is up:\n%s", out)
	}
}

// churning has Deployments that come and go for as long as nobody ends it, and
// clients beside it that make things of their own.
const churning = `name: churning
cluster: {nodes: 3} # on a cluster: --nodes
actors:
  - {name: elector, do: electors, objects: 3}
  - {name: speaker, do: events, rate: 10/s}
  - {name: writer, do: writers, rate: 20/s, objects: 2}
phases:
  - {name: load, kind: warm-up, create: {kind: Deployment, count: 20, replicas: 5, rate: 20/s, pod: {cpu: 10m, memory: 16Mi}, wait: running}}
  - {name: turnover, churn: {phase: load, percent: 20, for: 5m, rate: 10/s}}
`

// checkClean looks whether only what is not ours is there.
func checkClean(t *testing.T, client kubernetes.Interface, how string) {
	t.Helper()
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: load.LabelRun})
	if err != nil {
		t.Fatal(err)
	}
	if len(namespaces.Items) != 1 || namespaces.Items[0].Name != "theirs" || namespaces.Items[0].DeletionTimestamp != nil {
		t.Errorf("%s: namespaces %v", how, namespaces.Items)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "their-node" {
		t.Errorf("%s: %d nodes", how, len(nodes.Items))
	}
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) > 0 || len(leases.Items) > 0 {
		t.Errorf("%s: %d pods, %d leases of nodes are left", how, len(pods.Items), len(leases.Items))
	}
}

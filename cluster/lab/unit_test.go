package lab

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/cluster/proc"
)

var update = flag.Bool("update", false, "write generated files anew")

func TestProfilesDoc(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "profiles.md")
	want := ProfilesMarkdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/profiles.md is not what profile.go says (%v): go test ./cluster/lab -run TestProfilesDoc -update", err)
	}
}

func TestEveryFlagHasASource(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range slices.Concat(stock, tuned) {
		if f.Why == "" || f.Source == "" || !slices.Contains(components, f.Component) {
			t.Errorf("%+v", f)
		}
		if f.Source == SourceKubeadm && !strings.Contains(f.Why, ".go:") {
			t.Errorf("%s --%s: no place in kubeadm's source", f.Component, f.Name)
		}
		if f.Source != SourceTuned && seen[f.Component+f.Name] {
			t.Errorf("%s --%s twice", f.Component, f.Name)
		}
		seen[f.Component+f.Name] = true
	}
}

func TestTelling(t *testing.T) {
	for want, log := range map[string]string{
		"unknown flag: --bogus": "Usage:\n  kube-scheduler [flags]\n\n  -h, --help\n\nError: unknown flag: --bogus\n",
		"--secure-port -5 must be between 1 and 65535": `I1120 16:48:01.946521   20493 options.go:263] external host was not specified
E1120 16:48:01.947360   20493 run.go:72] "command failed" err="--secure-port -5 must be between 1 and 65535"`,
		"discovery failed: bad": `{"level":"info","msg":"starting"}
{"level":"fatal","ts":"2026","msg":"discovery failed","error":"bad","stacktrace":"x"}`,
		"flag provided but not defined: -bogus": "flag provided but not defined: -bogus\nUsage:\n\n  etcd [flags]\n",
		"oops":                                  "I1120 16:48:01.946521   20493 a.go:1] fine\npanic: oops\n\ngoroutine 1 [running]:\nmain.main()",
		"join cgroup: open /x: no such file":    "kubedyno-enter: join cgroup: open /x: no such file",
		"nothing that we know":                  "first\nnothing that we know\n\n",
	} {
		if got := telling(strings.Split(log, "\n")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLastWords: who ended by itself says why, in a sentence; of one that was killed an
// older complaint is no reason.
func TestLastWords(t *testing.T) {
	log := []string{
		"E1120 16:48:01.946521   20493 a.go:1] refused once",
		`{"level":"fatal","msg":"failed to commit tx","error":"write db: file too large","stacktrace":"` + strings.Repeat("batchTx.commit", 100) + `"}`,
		"bye",
	}
	for err, want := range map[string]string{
		"exit status 1":  "failed to commit tx: write db: file too large",
		"signal: killed": "bye",
	} {
		if got := lastWords(Event{Error: err, Log: log}, t.TempDir()); got != want {
			t.Errorf("%s: %q, want %q", err, got, want)
		}
	}
	unknown := Event{Error: "exit status 1", Log: []string{`{"level":"info","ts":"x","msg":"trace[1]","detail":"{}"}`}}
	if got, want := lastWords(unknown, t.TempDir()), "info: trace[1]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestExplain(t *testing.T) {
	for want, log := range map[string]string{
		"kube-apiserver cannot listen on 127.0.0.1:443: the port is taken by another process":                                                 `E1120 16:48:01.1 1 run.go:72] "command failed" err="failed to create listener: failed to listen on 127.0.0.1:443: listen tcp 127.0.0.1:443: bind: address already in use"`,
		"kube-apiserver ended because the disk is full (state folder /d): free some space, or set KUBEDYNO_STATE to a folder on another disk": "panic: write /d/x: no space left on device",
		"kube-apiserver did not start (exit status 1): unknown flag: --x":                                                                     "Error: unknown flag: --x",
	} {
		err := &proc.ExitError{Component: APIServer, Err: errors.New("exit status 1"), Log: strings.Split(log, "\n")}
		if got := explain(err, "/d"); got != want {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range [][2]string{{"kube-schduler", "; nearest: kube-scheduler"}, {"xyz", "; valid: etcd, kube-apiserver, kube-controller-manager, kube-scheduler"}} {
		if got := didYouMean(c[0], components); got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "lab-2": true, "": false, "-a": false, "a-": false, "A": false, "../x": false, "a b": false, strings.Repeat("a", 41): false,
	} {
		if validName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestPortsDiffer(t *testing.T) {
	ports, err := freePorts(portNames)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for name, port := range ports {
		if seen[port] {
			t.Errorf("%s has the port of another", name)
		}
		seen[port] = true
	}
}

// Beside a configuration the scheduler reads no flag about its client: what they
// say goes with it, unless it says so itself.
func TestConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.json")
	config := map[string]any{"profiles": []any{}, "clientConnection": map[string]any{"burst": 7}}
	args, err := configured(config, []string{"--kubeconfig=/k", "--kube-api-qps=5000", "--kube-api-burst=9", "--profiling=false", "--v=2"}, file)
	if err != nil || args[len(args)-1] != "--config="+file || len(args) != 6 {
		t.Fatalf("%v: %q", err, args)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": []any{}, "enableProfiling": false,
		"clientConnection": map[string]any{"kubeconfig": "/k", "qps": 5000.0, "burst": 7.0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(config) != 2 || len(config["clientConnection"].(map[string]any)) != 1 {
		t.Errorf("the experiment's own configuration was changed: %v", config)
	}
}

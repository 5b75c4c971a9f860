package schedulerperf_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/convert/schedulerperf"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
)

// upstream is where lab/ has Kubernetes' source, if it is on this machine.
const upstream = "k8s.io/kubernetes@v1.36.3/test/integration/scheduler_perf"

// Each workload of upstream's own files is an experiment that our parser and the
// API's types accept, or is refused with the operation and a reason.
func TestUpstreamsOwnFiles(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Skipf("no Go to ask where modules are: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(upstream))
	if _, err := os.Stat(root); err != nil {
		t.Skipf("Kubernetes' source is not on this machine (`cd lab && go mod download k8s.io/kubernetes` brings it): %v", err)
	}
	converted, refused := 0, map[string]int{}
	names := map[string]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "performance-config.yaml" {
			return err
		}
		f, err := schedulerperf.Read(path)
		if err != nil {
			t.Error(err)
			return nil
		}
		for _, c := range f.Convert(schedulerperf.Select{}) {
			id := c.Test + "/" + c.Workload
			if c.YAML == nil {
				code, _, ok := strings.Cut(c.Refused, ":")
				if !ok || c.Refused == "" || strings.Contains(c.Refused, "unknown opcode") || strings.Contains(c.Refused, "cannot unmarshal") {
					t.Errorf("%s is refused without a reason that names an operation: %q", id, c.Refused)
				}
				refused[code]++
				t.Logf("%s: %s", id, c.Refused)
				continue
			}
			converted++
			e, err := experiment.Parse(c.FileName, c.YAML)
			if err == nil {
				err = load.Check(e)
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", id, err, c.YAML)
				continue
			}
			if e.ExpectedPods() == 0 || e.Name != c.Name {
				t.Errorf("%s: %d pods are measured, named %q", id, e.ExpectedPods(), e.Name)
			}
			if other, taken := names[c.Name]; taken {
				t.Errorf("%s and %s have the same name %s", id, other, c.Name)
			}
			names[c.Name] = id
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d converted; refused: %v", converted, refused)
	if converted < 50 {
		t.Errorf("only %d workloads are converted", converted)
	}
}

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

func TestShowLives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	start := time.Now().Add(-time.Minute)
	w, err := record.Create(dir, record.Meta{Name: "r", Started: start})
	if err != nil {
		t.Fatal(err)
	}
	at := func(seconds int64) int64 { return start.UnixMicro() + seconds*1e6 }
	claim := func(seconds int64, change, state, volume string) {
		w.Object(record.ObjectChange{TimeMicros: at(seconds), Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", UID: "1", Change: change, State: state, Ref: volume, Changes: 1})
	}
	claim(2, "added", "Pending", "")
	claim(5, "modified", "Bound", "pv")
	w.Object(record.ObjectChange{TimeMicros: at(1), Kind: "Node", Name: "n1", UID: "2", Change: "existing", State: "Ready"})
	w.Object(record.ObjectChange{TimeMicros: at(6), Kind: "Deployment", Namespace: "ns", Name: "web", UID: "3", Change: "added", State: "progressing", Desired: 3, Ready: 1, Changes: 1, Late: true})
	w.Event(record.Event{TimeMicros: at(3), Type: "Warning", Reason: "ProvisioningFailed", Reporter: "pv", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", Message: "no\nroom", Count: 4})
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{
		"objects": `AT s   KIND                   OBJECT   CHANGE        STATE        NODE  REF  READY  WRITES
1.000  Node                   n1       existing      Ready        –     –    –      0
2.000  PersistentVolumeClaim  ns/data  added         Pending      –     –    –      1
5.000  PersistentVolumeClaim  ns/data  modified      Bound        –     pv   –      1
6.000  Deployment             ns/web   added (late)  progressing  –     –    1/3    1
`,
		"events": `AT s   TYPE     REASON              REPORTER  OBJECT                         COUNT  MESSAGE
3.000  Warning  ProvisioningFailed  pv        PersistentVolumeClaim ns/data  4      no room
`,
		"volumes": `CLAIM    STATE  CLASS  VOLUME  NODE  CREATED s  PROVISIONED s  BOUND s  ATTACHED s  RUNNING s  BIND s  FAILURES
ns/data  Bound  –      pv      –     2.000      –              5.000    –           –          3.000   4 ProvisioningFailed
1 claims, of which 1 were created while recording and 1 of those bound; from the first creation to the last binding 3.000 s
0.33 claims bound per second of that time
created to bound: n 1, p50 3.000 s, p99 – s, max 3.000 s
`,
		"nodes": `NODE  CREATED s  READY s  SCHEDULABLE s
n1    –          –        –
`,
	} {
		var out bytes.Buffer
		env := testEnv()
		env.Stdout = &out
		rec, err := record.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := showTable(env, rec, table, "", "text", false, 0); err != nil {
			t.Errorf("%s: %v", table, err)
		}
		rec.Close()
		if out.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", table, out.String(), want)
		}
	}
	empty := filepath.Join(t.TempDir(), "r")
	if w, err = record.Create(empty, record.Meta{Name: "r"}); err != nil {
		t.Fatal(err)
	}
	w.Gap(record.Gap{Collector: "lives", Subject: "objects", Reason: "grant list and watch on nodes"})
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Open(empty)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	for _, table := range []string{"objects", "volumes"} {
		if err := showTable(testEnv(), rec, table, "", "text", false, 0); err == nil || !strings.Contains(err.Error(), "not assessed") || !strings.Contains(err.Error(), "grant list") {
			t.Errorf("%s of a recording without: %v", table, err)
		}
	}
}

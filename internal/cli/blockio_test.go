package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

func blockRecording(t *testing.T, observed bool) string {
	t.Helper()
	started := time.Unix(1000, 0).UTC()
	return recordtest.Write(t, record.Meta{Started: started}, func(w *record.Writer) {
		if !observed {
			w.Gap(record.Gap{Collector: "blockio", Reason: "run as root"})
		} else {
			at := started.UnixMicro()
			for i := range int64(100) {
				w.BlockIO(record.BlockIO{TimeMicros: at + i*1000, IssuedMicros: at + i*1000 + 10, DoneMicros: at + i*1000 + 210, PID: 7, Command: "etcd", Component: "etcd", Device: "vda", Operation: "write", Bytes: 4096})
			}
			w.BlockIO(record.BlockIO{TimeMicros: at, IssuedMicros: at, DoneMicros: at + 50, Device: "vda", Operation: "flush"})
			w.Sync(record.Sync{TimeMicros: at, DoneMicros: at + 3000, PID: 7, TID: 8, Command: "etcd", Component: "etcd", Call: "fdatasync"})
		}
	})
}

func runBlockIO(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := System()
	env.Stdout, env.Stderr = &out, &errs
	code = Main(context.Background(), env, append([]string{"blockio"}, args...))
	return code, out.String(), errs.String()
}

func TestBlockIO(t *testing.T) {
	dir := blockRecording(t, true)
	_, out, _ := runBlockIO(t, dir, "--histogram")
	for _, want := range []string{
		"etcd       etcd           7    vda     write      100    0.39  0.010      0.010  0.200       0.200  0.200  0.200  0.210      0.210  0.210\n",
		"–          (block layer)  –    vda     flush      1      0.00  –",
		"etcd     7    fdatasync  1      3.000  –    –    3.000\n",
		"not assessed:",
		"etcd etcd 7, write on vda\n  ≥ 128 µs      100  ████████████████████████████████████████\n",
		"etcd etcd 7, fdatasync\n ≥ 2.05 ms        1  █",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if _, out, _ := runBlockIO(t, dir, "--operation", "fdatasync", "-o", "json"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"maxMilliseconds":3`) || !strings.Contains(out, `"bytes":-1`) {
		t.Errorf("one call as JSON:\n%s", out)
	}
	if _, out, _ := runBlockIO(t, dir, "--events=requests", "--from", "0.0985", "-o", "csv"); strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, "time_us,issued_us,done_us,pid,") {
		t.Errorf("the last request as CSV:\n%s", out)
	}
	for _, args := range [][]string{{dir, "--operation", "x"}, {dir, "--events=x"}, {dir, "--events", "--histogram"}, {dir, "-o", "xml"}, {dir, "--phase", "x"}, {}} {
		if code, out, _ := runBlockIO(t, args...); code != ExitMisused || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
}

// Without the tables there is a reason, and no zero.
func TestBlockIONotAssessed(t *testing.T) {
	dir := blockRecording(t, false)
	code, out, errs := runBlockIO(t, dir)
	if code == 0 || out != "" || !strings.Contains(errs, "not assessed") || !strings.Contains(errs, "run as root") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

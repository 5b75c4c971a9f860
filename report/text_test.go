package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (run with -update, then read the diff):\n%s", file, got)
	}
}

func TestDiagnosisText(t *testing.T) {
	invalid := synthDiagnosis(1, synthRows(1))
	invalid.Valid = false
	invalid.InvalidReasons = []string{"the load generator sent 412 of 3000 requests more than 1 s late", "the recording is incomplete"}
	nothing := &diagnose.Diagnosis{Valid: true, NotAssessed: []diagnose.Unknown{{ID: "kcm-client-limit", Missing: "rest_client_rate_limiter_duration_seconds of kube-controller-manager"}}}
	for name, d := range map[string]*diagnose.Diagnosis{
		"limiter": synthDiagnosis(0, synthRows(0)), "capacity": synthDiagnosis(2, synthRows(2)), "invalid": invalid, "nothing": nothing,
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteDiagnosis(&b, Options{}, d); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", b.String())
			for _, l := range strings.Split(b.String(), "\n") {
				if n := columns(l); n > 80 && !strings.Contains(l, "--set") {
					t.Errorf("%d columns: %s", n, l)
				}
			}
			var c bytes.Buffer
			if err := WriteDiagnosis(&c, Options{Color: true}, d); err != nil {
				t.Fatal(err)
			}
			if strip(c.String()) != b.String() {
				t.Error("colour changes more than colour")
			}
		})
	}
}

func strip(s string) string {
	var b strings.Builder
	escape := false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func TestSummaryText(t *testing.T) {
	in := synthRows(0)
	var b bytes.Buffer
	if err := WriteSummary(&b, Options{}, in.meta, synthDiagnosis(0, in), "my runs/r"); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.txt", b.String())
}

func TestTextIsInert(t *testing.T) {
	d := synthDiagnosis(0, synthRows(0))
	d.Findings[0].Summary = "\x1b[2J\x1b[31mowned\u202e\r"
	d.NotAssessed[0].Missing = "a\x07b"
	var b bytes.Buffer
	if err := WriteDiagnosis(&b, Options{}, d); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\x07\r\u202e") {
		t.Errorf("control characters reach the terminal: %q", b.String())
	}
	if !strings.Contains(d.Findings[0].Summary, "\x1b") {
		t.Error("the caller's diagnosis was changed")
	}
}

func TestDiagnosisJSON(t *testing.T) {
	d := synthDiagnosis(0, synthRows(0))
	var b bytes.Buffer
	if err := WriteDiagnosis(&b, Options{Format: "json"}, d); err != nil {
		t.Fatal(err)
	}
	var back diagnose.Diagnosis
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Findings[0].Advice.Set["kube-controller-manager.args.kube-api-qps"] != "-1" {
		t.Errorf("%+v", back.Findings[0].Advice)
	}
}

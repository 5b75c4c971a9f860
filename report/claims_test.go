package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

func TestClaimsInWords(t *testing.T) {
	at := func(x float64) *float64 { return &x }
	two := 2
	d := &diagnose.Diagnosis{Valid: true, Claims: &diagnose.Claims{
		Expected: 4, Seen: 3, Bound: 2, Pending: 1, Lost: 1, Warnings: &two, LastWarning: "ProvisioningFailed",
		MakespanSeconds: at(12.5), PerSecond: at(0.16),
		Groups: []diagnose.ClaimGroup{{Class: "fast", Mode: "immediate", Claims: 3, Steps: []diagnose.ClaimStep{
			{Name: "provision", N: 2, P50: at(3), Max: at(4)}, {Name: "attach"},
		}}},
	}, Objectives: []record.Objective{
		{Name: "bound", Unit: "s", Limit: 10, N: 4, Assessed: true, Reason: "4 of 4 never were bound"},
		{Name: "clean", Unit: "1", Limit: 0, N: 4, Assessed: true, Value: 2},
	}}
	var b bytes.Buffer
	if err := WriteSummary(&b, Options{}, record.Meta{}, d, "r"); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"2 of 4 claims were bound.",
		"4 asked for, 2 bound, 1 never bound, 1 never seen; the last 12.5 s after the first was created, 0.16 claims/s; 2 warnings, the last ProvisioningFailed.",
		"fast, immediate n p50 p99 max",
		"provision the provisioner makes the volume 2 3 s – 4 s",
		"attach the attacher –",
		"bound (MISSED: –, limit 10, n 4; 4 of 4 never were bound)",
		"clean (MISSED: 2, limit 0, n 4)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not there: %s\n%s", want, b.String())
		}
	}
	d.Claims = &diagnose.Claims{Expected: 4, Missing: "persistentvolumeclaims is forbidden"}
	b.Reset()
	if err := WriteSummary(&b, Options{}, record.Meta{}, d, "r"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "not followed: persistentvolumeclaims is forbidden") {
		t.Error(b.String())
	}
}

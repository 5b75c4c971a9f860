package diagnose

import (
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/record"
)

const second = 1_000_000

func boundAfter(seconds ...int64) (claims []volumes.Claim) {
	for _, s := range seconds {
		c := volumes.Claim{Class: "fast", DueMicros: 10 * second, CreatedMicros: 11 * second}
		if s > 0 {
			c.BoundMicros = (10 + s) * second
		}
		claims = append(claims, c)
	}
	return claims
}

func TestClaimObjectives(t *testing.T) {
	bound := record.Objective{Indicator: indicatorClaims, Quantile: 1, Limit: 5, Unit: "s"}
	failures := record.Objective{Indicator: indicatorFailures, Limit: 0, Unit: "1"}
	for _, c := range []struct {
		name        string
		claims      *Claims
		seen        []volumes.Claim
		watched     bool
		o           record.Objective
		assessed    bool
		met         bool
		value       float64
		reasonHolds string
	}{
		{"from the due time", &Claims{Expected: 3}, boundAfter(2, 4, 3), true, bound, true, true, 4, ""},
		{"the last one counts", &Claims{Expected: 3}, boundAfter(2, 9, 3), true, bound, true, false, 9, ""},
		{"never bound", &Claims{Expected: 3}, boundAfter(2, 0, 3), true, bound, true, false, 3, "1 of 3 never were bound"},
		{"never seen", &Claims{Expected: 4}, boundAfter(2, 2, 3), true, bound, true, false, 3, "1 of 4 never were bound"},
		{"no failure", &Claims{Expected: 1}, boundAfter(2), true, failures, true, true, 0, ""},
		{"a failed operation", &Claims{Expected: 1, FailedOperations: 1}, boundAfter(2), true, failures, true, false, 1, "1 operations failed"},
		{"nobody looked for warnings", &Claims{Expected: 1}, boundAfter(2), false, failures, false, false, 0, "unknown"},
		{"nobody looked, and it is missed all the same", &Claims{Expected: 1, FailedOperations: 2}, boundAfter(2), false, failures, true, false, 2, "2 operations"},
	} {
		c.claims.follow(c.seen, c.watched)
		v := &View{Claims: c.claims}
		v.Meta.Workload.Objectives = []record.Objective{c.o}
		got := v.judgeObjectives(true)[0]
		if got.Assessed != c.assessed || got.Met != c.met || got.Value != c.value || !strings.Contains(got.Reason, c.reasonHolds) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	warned := boundAfter(2)
	warned[0].Failures, warned[0].LastFailure = 3, "ProvisioningFailed"
	k := &Claims{Expected: 1}
	k.follow(warned, true)
	if o := k.judgeFailures(failures); o.Met || o.Value != 3 || !strings.Contains(o.Reason, "ProvisioningFailed") {
		t.Errorf("%+v", o)
	}
	v := &View{}
	v.Meta.Workload.Objectives = []record.Objective{bound}
	if o := v.judgeObjectives(true)[0]; o.Assessed || !strings.Contains(o.Reason, "no claims") {
		t.Errorf("%+v", o)
	}
}

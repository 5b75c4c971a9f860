package compare

import (
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
)

// A round proves its finding only if the dose did what was predicted and the
// change made the symptom go away.
func TestJudge(t *testing.T) {
	dose := func(rate float64) *Trial {
		return &Trial{Set: []string{"x.args.qps=40"}, PredictedRate: 40, Measured: Measured{Rate: rate}, Valid: true}
	}
	lift := func(rate float64, gone bool) Trial {
		return Trial{Measured: Measured{Rate: rate}, SymptomGone: gone, Valid: true}
	}
	for name, tt := range map[string]struct {
		dose   *Trial
		lift   Trial
		proven bool
		says   string
	}{
		"as predicted":            {dose(39), lift(52, true), true, "the dose answers (39.0 pods/s, 40.0 were predicted); with the change the finding is gone and the rate went from 20.0 to 52.0 pods/s, × 2.6"},
		"at the tolerance":        {dose(32), lift(52, true), true, "the dose answers"},
		"dose too weak":           {dose(31), lift(52, true), false, "the dose does not answer"},
		"dose too strong":         {dose(49), lift(52, true), false, "the dose does not answer"},
		"symptom stays":           {dose(40), lift(52, false), false, "the finding is still there"},
		"nothing gained":          {dose(40), lift(21, true), false, "moved the rate by a factor of 1.05 only"},
		"no dose":                 {nil, lift(52, true), false, "no dose could be tried"},
		"the dose's run is bad":   {&Trial{PredictedRate: 40, Measured: Measured{Rate: 40}}, lift(52, true), false, "the dose's run is not valid"},
		"the change's run is bad": {dose(40), Trial{Measured: Measured{Rate: 52}, SymptomGone: true}, false, "the run with the change is not valid"},
		"nothing was predicted":   {&Trial{Measured: Measured{Rate: 40}, Valid: true}, lift(52, true), false, "the dose does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Round{Finding: diagnose.Finding{Grade: diagnose.Confirmed}, Before: Measured{Rate: 20}, Dose: tt.dose, Lift: tt.lift}
			r.Judge()
			if r.Proven != tt.proven || !strings.Contains(r.Verdict, tt.says) {
				t.Errorf("proven %v: %s", r.Proven, r.Verdict)
			}
			if (r.Finding.Grade == diagnose.Proven) != tt.proven {
				t.Errorf("grade %s", r.Finding.Grade)
			}
		})
	}
}

func TestProofFile(t *testing.T) {
	dir := t.TempDir()
	p := &Proof{Schema: ProofSchema, Baseline: "../base", Ended: "done", Rounds: []Round{
		{Dose: &Trial{Recording: "round-1-dose"}, Lift: Trial{Recording: "round-1"}},
		{Lift: Trial{Recording: "round-2"}},
	}}
	if err := p.Write(dir); err != nil {
		t.Fatal(err)
	}
	q, err := ReadProof(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(q.Recordings("/p"), " ")
	if want := "/base /p/round-1-dose /p/round-1 /p/round-2"; got != want {
		t.Errorf("recordings %s, want %s", got, want)
	}
	p.Schema++
	if err := p.Write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProof(dir); err == nil || !strings.Contains(err.Error(), "newer kubedyno") {
		t.Errorf("a proof of the future: %v", err)
	}
}

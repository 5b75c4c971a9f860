package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A gate fails on twice what the runs could show, in 10 series of 10, and
// passes where nothing was planted.
func TestGateOnRealRuns(t *testing.T) {
	p := healthy(t)
	rng := rand.New(rand.NewPCG(81, 1))
	for i := range 10 {
		clean := p.resampled(rng, 6, nil)
		if g := clean.Gate(GateOptions{}); g.Outcome != Passed {
			t.Errorf("series %d without a change: %s %q", i, g.Outcome, g.Reasons)
		}
		by := 1 + 2**clean.of("cpu.total").Detectable
		g := p.resampled(rng, 6, map[string]float64{"cpu.total": by}).Gate(GateOptions{Least: 0.05})
		if g.Outcome != Failed || g.Regressions[0].ID != "cpu.total" || !strings.Contains(g.Reasons[0], "ms/pod, ×") {
			t.Errorf("series %d with ×%.2f CPU: %s %q", i, by, g.Outcome, g.Reasons)
		}
		if g := p.resampled(rng, 6, map[string]float64{"cpu.total": 1 / by}).Gate(GateOptions{}); g.Outcome != Passed {
			t.Errorf("series %d with less CPU: %s %q", i, g.Outcome, g.Reasons)
		}
		if g := p.resampled(rng, 6, map[string]float64{"cpu.total": by}).Gate(GateOptions{Least: 100}); g.Outcome != Passed {
			t.Errorf("series %d, a regression that is small enough: %s %q", i, g.Outcome, g.Reasons)
		}
	}
}

func TestGateSaysWhatItCannotJudge(t *testing.T) {
	p := healthy(t)
	rng := rand.New(rand.NewPCG(82, 1))
	check := func(c Comparison, want Outcome, says string) {
		t.Helper()
		if g := c.Gate(GateOptions{}); g.Outcome != want || !strings.Contains(strings.Join(g.Reasons, "\n"), says) {
			t.Errorf("%s %q, want %s, %q", g.Outcome, g.Reasons, want, says)
		}
	}
	check(p.resampled(rng, 3, nil), NotAssessed, "3 and 3 runs can show no difference")
	c := p.resampled(rng, 6, nil)
	c.Candidate.Runs[2].Invalid = []string{"it was interrupted"}
	check(c, Invalid, "it was interrupted")
	c = p.resampled(rng, 6, nil)
	c.Candidate.Runs[2].Machine = "another"
	check(c, NotAssessed, "2 machines")
	c = p.resampled(rng, 6, nil)
	c.Rows = nil
	check(c, NotAssessed, "no indicator has a value")
}

// A series may be looked at after each pair without more false alarms, and
// ends before its budget does where a change is plain.
func TestGateAfterEachPair(t *testing.T) {
	p := healthy(t)
	const pairs, trials = 6, 100
	looks := Looks(pairs, 0.05)
	if len(looks) != 3 || looks[0].Level >= looks[2].Level {
		t.Fatalf("looks %+v", looks)
	}
	rng := rand.New(rand.NewPCG(83, 1))
	wrong, early := 0, 0
	for range trials {
		for _, by := range []float64{1, 2.5} {
			whole := p.resampled(rng, pairs, map[string]float64{"cpu.total": by})
			for i, look := range looks {
				c := whole.first(fewestPairs+i, look.Level)
				if c.Gate(GateOptions{}).Outcome != Failed {
					continue
				}
				if by == 1 {
					wrong++
				} else if i < len(looks)-1 {
					early++
				}
				break
			}
		}
	}
	if wrong > 12 || early < trials/2 { // 5 expected at most, + 3 deviations
		t.Errorf("%d of %d series without a change fail, %d of those with 2.5 times the CPU end early", wrong, trials, early)
	}
}

// first is the comparison after n pairs, at the level of its look.
func (c Comparison) first(n int, alpha float64) Comparison {
	out := Comparison{Alpha: alpha, RowsAlpha: alpha * rowsShare, Baseline: Side{c.Baseline.Runs[:n]}, Candidate: Side{c.Candidate.Runs[:n]}}
	for _, r := range c.Rows {
		cut := Row{ID: r.ID, Group: r.Group, Name: r.Name, Unit: r.Unit, Lower: r.Lower, Baseline: r.Baseline, Candidate: r.Candidate}
		for _, e := range []*Estimate{&cut.Baseline, &cut.Candidate} {
			e.Values, e.byRun, e.N = e.Values[:n], e.byRun[:n], n
		}
		out.Rows = append(out.Rows, cut)
	}
	out.judge(nil, Options{}.filled())
	return out
}

// 40 runs with two changes of a quarter, made of the residuals of real ones:
// both are found within a run, and nothing else.
func TestHistoryFindsWhatChanged(t *testing.T) {
	p := healthy(t)
	var cpu []float64
	for _, r := range p.Rows {
		if r.ID == "cpu.total" {
			cpu = r.Values
		}
	}
	mean := 0.0
	for _, x := range cpu {
		mean += math.Log(x) / float64(len(cpu))
	}
	const trials = 20
	good, quiet := 0, 0
	for seed := range uint64(trials) {
		rng := rand.New(rand.NewPCG(84, seed))
		s, flat := Series{Lower: true}, Series{Lower: true}
		for i := range 40 {
			level := 50.0
			if i >= 13 {
				level *= 1.35
			}
			if i >= 26 {
				level /= 1.35 * 1.35
			}
			r := math.Exp(math.Log(cpu[rng.IntN(len(cpu))]) - mean)
			at := Point{Run: fmt.Sprint(i), At: time.Unix(int64(i), 0), Value: level * r}
			s.Points = append(s.Points, at)
			at.Value = 50 * r
			flat.Points = append(flat.Points, at)
		}
		o := HistoryOptions{MinEffect: 0.05, Alpha: 0.05, Seed: seed}
		s.find(o, 20)
		flat.find(o, 20)
		if len(s.Steps) == 2 && math.Abs(float64(s.Steps[0].At-13)) <= 1 && math.Abs(float64(s.Steps[1].At-26)) <= 1 && s.Steps[0].Verdict == Worse && s.Steps[1].Verdict == Better {
			good++
		}
		if len(flat.Steps) == 0 {
			quiet++
		}
	}
	t.Logf("both changes and nothing else in %d of %d, nothing in %d without any", good, trials, quiet)
	if good < 19 || quiet < 19 {
		t.Errorf("both changes and nothing else in %d of %d, nothing in %d without any", good, trials, quiet)
	}
	short := Series{Points: make([]Point, 9)}
	if short.find(HistoryOptions{}, 1); short.Note == "" {
		t.Error("9 runs are too few, which must be said")
	}
}

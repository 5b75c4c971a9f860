package compare

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/stat"
)

// pool is what real runs without a difference measured.
type pool struct {
	Rows []struct {
		ID, Name, Unit string
		Group          Group
		LowerIsBetter  bool
		Values         []float64 // in the order of the runs
	}
}

func healthy(t *testing.T) pool {
	t.Helper()
	data, err := os.ReadFile("testdata/healthy.json")
	if err != nil {
		t.Fatal(err)
	}
	var p pool
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Rows) < 15 || len(p.Rows[0].Values) < 12 {
		t.Fatalf("only %d rows", len(p.Rows))
	}
	return p
}

// resampled is a comparison of n runs a side, none twice, drawn from the pool.
// planted multiplies an indicator of the candidate.
func (p pool) resampled(rng *rand.Rand, n int, planted map[string]float64) Comparison {
	runs := rng.Perm(len(p.Rows[0].Values))[:2*n]
	c := Comparison{Alpha: 0.05, RowsAlpha: 0.05 * rowsShare}
	start := time.Unix(0, 0)
	for i, run := range runs {
		info := RunInfo{ID: fmt.Sprint(run), Status: "complete", Started: start.Add(time.Duration(2*(i%n)+i/n) * time.Minute)}
		if i < n {
			c.Baseline.Runs = append(c.Baseline.Runs, info)
		} else {
			c.Candidate.Runs = append(c.Candidate.Runs, info)
		}
	}
	for _, row := range p.Rows {
		r := Row{ID: row.ID, Group: row.Group, Name: row.Name, Unit: row.Unit, Lower: row.LowerIsBetter}
		for i, run := range runs {
			e, x := &r.Baseline, row.Values[run]
			if i >= n {
				e = &r.Candidate
				if by, ok := planted[row.ID]; ok {
					x *= by
				}
			}
			e.Values, e.byRun, e.N = append(e.Values, x), append(e.byRun, x), e.N+1
		}
		for _, e := range []*Estimate{&r.Baseline, &r.Candidate} {
			m := stat.Median(e.Values)
			e.Value = &m
		}
		c.Rows = append(c.Rows, r)
	}
	c.judge(nil, Options{}.filled())
	return c
}

// A run that is unlike the others of its side is named, and a machine that
// gets slower is said, of runs that have neither nothing is.
func TestOutliersAndDriftAreSaid(t *testing.T) {
	p := healthy(t)
	rng := rand.New(rand.NewPCG(73, 1))
	steady := func(by func(run int) float64) Comparison {
		q := pool{Rows: slices.Clone(p.Rows)}
		for i := range q.Rows {
			q.Rows[i].Values = make([]float64, 14)
			for run := range q.Rows[i].Values {
				q.Rows[i].Values[run] = 100 * (1 + 0.03*rng.NormFloat64()) * by(run)
			}
		}
		return q.resampled(rng, 7, nil)
	}
	quiet := 0
	for range 20 {
		c := steady(func(int) float64 { return 1 })
		if len(c.Warnings) == 0 {
			quiet++
		}
	}
	if quiet < 16 { // each warning is false with a chance of at most 5 %
		t.Errorf("only %d of 20 healthy comparisons have no warning", quiet)
	}
	c := steady(func(run int) float64 {
		if run == 3 {
			return 1.8
		}
		return 1
	})
	if all := strings.Join(c.Warnings, "\n"); !strings.Contains(all, "run 3 stands out: ") {
		t.Errorf("an outlier: %q", all)
	}
	// In the order in which the runs were made.
	c = steady(func(int) float64 { return 1 })
	for i := range c.Rows {
		for _, side := range []struct {
			e    *Estimate
			runs []RunInfo
		}{{&c.Rows[i].Baseline, c.Baseline.Runs}, {&c.Rows[i].Candidate, c.Candidate.Runs}} {
			for k := range side.e.byRun {
				by := 1 + float64(side.runs[k].Started.Unix())/3600
				side.e.byRun[k] *= by
				side.e.Values[k] *= by
			}
		}
	}
	c.Warnings = nil
	c.judge(nil, Options{}.filled())
	if all := strings.Join(c.Warnings, "\n"); !strings.Contains(all, "the machine drifted") {
		t.Errorf("a drift of 20 %%: %q", all)
	}
}

func (c Comparison) of(id string) Row {
	for _, r := range c.Rows {
		if r.ID == id {
			return r
		}
	}
	return Row{}
}

// Of 200 reports on real runs without a difference at most 18 may have any:
// 6 are expected of the rows, whose part of the 5 % is 3 %, and the rest is left
// to functions.
func TestRealRunsWithoutADifference(t *testing.T) {
	p := healthy(t)
	for _, n := range []int{5, 6} {
		rng := rand.New(rand.NewPCG(71, uint64(n)))
		wrong, missed := 0, 0
		for range 200 {
			c := p.resampled(rng, n, nil)
			if c.Differs() {
				wrong++
			}
			for _, r := range c.Rows {
				if i := r.RatioInterval; i != nil && (i.Lo > 1 || i.Hi < 1) {
					missed++
					break
				}
			}
		}
		t.Logf("%d runs a side: %d of 200 reports with a false difference, %d with an interval without the truth", n, wrong, missed)
		if wrong > 18 || missed > 18 {
			t.Errorf("%d runs a side: %d of 200 reports with a false difference, %d with an interval without the truth", n, wrong, missed)
		}
	}
}

// What a report says that it could have shown is shown by the next one: more
// CPU by half of it, all of it and twice as much, in 20, 75 and 97 of 100 series.
func TestPlantedEffectsAreFound(t *testing.T) {
	p := healthy(t)
	const trials, n = 200, 6
	const id = "cpu.total"
	planted := []struct{ times, least float64 }{{0.5, 0.20}, {1, 0.75}, {2, 0.97}}
	found, covered := make([]int, len(planted)), make([]int, len(planted))
	rng := rand.New(rand.NewPCG(72, 1))
	for range trials {
		said := p.resampled(rng, n, nil).of(id).Detectable
		if said == nil {
			t.Fatal("nothing is said to be detectable")
		}
		for i, tt := range planted {
			by := 1 + tt.times**said
			r := p.resampled(rng, n, map[string]float64{id: by}).of(id)
			if r.Verdict == Worse {
				found[i]++
			}
			if span := r.RatioInterval; span.Lo <= by && by <= span.Hi {
				covered[i]++
			}
		}
	}
	for i, tt := range planted {
		share, cover := float64(found[i])/trials, float64(covered[i])/trials
		t.Logf("%s: %v times the detectable effect is found in %.3f, intervals cover %.3f", id, tt.times, share, cover)
		if share < tt.least {
			t.Errorf("%s: %v times the detectable effect is found in %.3f of %d series", id, tt.times, share, trials)
		}
		if cover < 0.93 { // nominal 0.97 of all rows together, less three deviations
			t.Errorf("%s: intervals cover in %.3f of %d series", id, cover, trials)
		}
	}
}

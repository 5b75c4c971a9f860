package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// seek lets a threshold be found by simulated trials, and returns how many it took.
func seek(t *Threshold, truth, noise float64, most int, rng *rand.Rand) int {
	for n := range most {
		if t.Found(0.9, 0.1) {
			return n
		}
		x := t.Next()
		t.Add(x, x <= truth*math.Exp(noise*rng.NormFloat64()))
	}
	return most
}

// Thresholds planted anywhere, with as much noise from trial to trial as runs on a
// shared machine have, are found within a tenth, as sure as is said, and in few
// trials.
func TestThresholdIsFound(t *testing.T) {
	for _, c := range []struct {
		noise float64
		mean  float64 // trials on average, at most
	}{{0, 13}, {0.03, 15}, {0.08, 19}} {
		rng := rand.New(rand.NewPCG(3, uint64(1000*c.noise)))
		const tries = 60
		found, within, covered, trials := 0, 0, 0, 0
		for range tries {
			truth := 5 * math.Pow(80, rng.Float64())
			th := NewThreshold(4, 500, 0)
			trials += seek(th, truth, c.noise, 40, rng)
			at, ci := th.At(0.9)
			if th.Found(0.9, 0.1) {
				found++
			}
			if math.Abs(at/truth-1) <= 0.1 {
				within++
			}
			if ci.Lo <= truth && truth <= ci.Hi {
				covered++
			}
		}
		t.Logf("noise %.2f: found %d, within a tenth %d, covered %d of %d; %.1f trials each", c.noise, found, within, covered, tries, float64(trials)/tries)
		if found < tries*95/100 || within < tries*90/100 || covered < tries*83/100 {
			t.Errorf("noise %.2f: found %d, within a tenth %d, covered %d of %d", c.noise, found, within, covered, tries)
		}
		if mean := float64(trials) / tries; mean > c.mean {
			t.Errorf("noise %.2f: %.1f trials on average, more than %.0f", c.noise, mean, c.mean)
		}
	}
}

// One trial that lies, far from the edge, is outvoted.
func TestThresholdOutvotesALie(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	off := 0
	for range 50 {
		th := NewThreshold(1, 100, 0)
		th.Add(10, false) // it is 40
		seek(th, 40, 0.02, 40, rng)
		if at, _ := th.At(0.9); math.Abs(at/40-1) > 0.1 {
			off++
		}
	}
	if off > 3 {
		t.Errorf("%d of 50 believe the lie", off)
	}
}

func TestThresholdBeyondTheEnds(t *testing.T) {
	for _, c := range []struct {
		truth float64
		want  int
	}{{1000, 1}, {0.1, -1}, {30, 0}} {
		th := NewThreshold(1, 100, 0)
		for range 12 {
			x := th.Next()
			th.Add(x, x <= c.truth)
		}
		if got := th.Beyond(0.9); got != c.want {
			at, ci := th.At(0.9)
			t.Errorf("a threshold of %v lies %d of 1…100, want %d (believed %.1f, %v)", c.truth, got, c.want, at, ci)
		}
	}
}

// Steps are kept: nobody can run half a pod.
func TestThresholdKeepsSteps(t *testing.T) {
	th := NewThreshold(1, 60, 1)
	for range 10 {
		x := th.Next()
		if x != math.Round(x) || x < 1 || x > 60 {
			t.Fatalf("tries %v", x)
		}
		th.Add(x, x <= 23)
	}
	if at, _ := th.At(0.9); math.Abs(at-23) > 2.5 {
		t.Errorf("found %v", at)
	}
}

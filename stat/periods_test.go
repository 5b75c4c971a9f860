package stat_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/stat"
)

// sampled integrates a rate into bins of about a second, as a sampler of a
// counter has them: not quite regular, and with holes of 2 s.
func sampled(r *rand.Rand, seconds float64, holes bool, amount func(from, to float64) float64) []stat.Bin {
	var bins []stat.Bin
	from := 0.0
	for i := 1.0; i <= seconds; i++ {
		if holes && len(bins) > 0 && r.Float64() < 0.01 && i < seconds-3 {
			i += 2
		}
		to := i + (r.Float64()-0.5)*0.02
		bins = append(bins, stat.Bin{Start: from, End: to, Amount: amount(from, to)})
		from = to
	}
	return bins
}

// rhythm is a synthetic series: pulses of height 5 over noise of standard
// deviation 1.
type rhythm struct {
	period, duty, seconds float64
	jitter                string // none, clock: each pulse is early or late; wander: each gap is short or long
}

func (x rhythm) bins(r *rand.Rand) []stat.Bin {
	width := max(1, x.duty*x.period)
	offset := r.Float64() * x.period
	var at []float64
	for k, t := 0.0, offset; offset+k*x.period < x.seconds; k++ {
		switch x.jitter {
		case "clock":
			at = append(at, offset+(k+(2*r.Float64()-1)*0.1)*x.period)
		case "wander":
			at = append(at, t)
			t += x.period * (1 + (2*r.Float64()-1)*0.1)
		default:
			at = append(at, offset+k*x.period)
		}
	}
	return sampled(r, x.seconds, true, func(from, to float64) float64 {
		sum := (10 + r.NormFloat64()/math.Sqrt(to-from)) * (to - from)
		for _, p := range at {
			sum += 5 * max(0, min(to, p+width)-max(from, p))
		}
		return sum
	})
}

func TestPeriodRecall(t *testing.T) {
	const each = 60
	found, all := 0, 0
	for _, jitter := range []string{"none", "clock", "wander"} {
		for _, in := range [][2]float64{{2, 4}, {4, 10}, {10, 30}, {30, 120}} {
			hits, wrong := 0, ""
			for seed := range uint64(each) {
				r := rand.New(rand.NewPCG(seed, 1))
				x := rhythm{period: in[0] + (in[1]-in[0])*r.Float64(), duty: 0.05 + 0.45*r.Float64(), jitter: jitter}
				x.seconds = min(max(120, x.period*(6.5+20*r.Float64())), 1800)
				p, ok := stat.PeriodOf(x.bins(r), stat.PeriodOptions{})
				switch {
				case ok && math.Abs(p.Seconds/x.period-1) < 0.05:
					hits++
				case ok:
					wrong += fmt.Sprintf(" %.2f→%.2f", x.period, p.Seconds)
				}
			}
			all += each
			found += hits
			if hits < each*88/100 {
				t.Errorf("jitter %s, periods %v: found %d of %d", jitter, in, hits, each)
			}
			if len(wrong) > 40 {
				t.Errorf("jitter %s, periods %v: wrong:%s", jitter, in, wrong)
			}
		}
	}
	t.Logf("found %d of %d", found, all)
	if float64(found) < 0.95*float64(all) {
		t.Errorf("found %d of %d periods, want 95 %%", found, all)
	}
}

// noises are series without a period.
var noises = map[string]func(r *rand.Rand, n float64) func(i float64) float64{
	"white": func(r *rand.Rand, _ float64) func(float64) float64 {
		return func(float64) float64 { return r.NormFloat64() }
	},
	"autoregressive": func(r *rand.Rand, _ float64) func(float64) float64 {
		x, a := 0.0, 0.5+0.49*r.Float64()
		return func(float64) float64 { x = a*x + r.NormFloat64(); return x }
	},
	"drift": func(r *rand.Rand, _ float64) func(float64) float64 {
		x := 0.0
		return func(float64) float64 { x += r.NormFloat64(); return x }
	},
	"1/f": func(r *rand.Rand, _ float64) func(float64) float64 {
		var octaves [12]float64
		return func(i float64) (x float64) {
			for k := range octaves {
				if int(i)%(1<<k) == 0 {
					octaves[k] = r.NormFloat64()
				}
				x += octaves[k]
			}
			return x
		}
	},
	"step": func(r *rand.Rand, n float64) func(float64) float64 {
		at, height := n*r.Float64(), 20*r.Float64()
		return func(i float64) float64 {
			if i > at {
				return height + r.NormFloat64()
			}
			return r.NormFloat64()
		}
	},
	"ramp": func(r *rand.Rand, n float64) func(float64) float64 {
		height := 50 * r.Float64()
		return func(i float64) float64 { return height*i/n + r.NormFloat64() }
	},
	"burst": func(r *rand.Rand, n float64) func(float64) float64 {
		at, width, height := n*r.Float64(), 1+40*r.Float64(), 100*r.Float64()
		return func(i float64) float64 {
			if i > at && i < at+width {
				return height + r.NormFloat64()
			}
			return r.NormFloat64()
		}
	},
	"random spikes": func(r *rand.Rand, n float64) func(float64) float64 {
		rate := 3 / n * math.Pow(n/10, r.Float64())
		return func(float64) float64 {
			if r.Float64() < rate {
				return 8 + r.NormFloat64()
			}
			return r.NormFloat64()
		}
	},
	"idle with ticks": func(r *rand.Rand, n float64) func(float64) float64 {
		rate := 3 / n * math.Pow(n/10, r.Float64())
		return func(float64) float64 {
			if r.Float64() < rate {
				return 0.01 * float64(1+r.IntN(5))
			}
			return 0
		}
	},
	"heavy tail": func(r *rand.Rand, _ float64) func(float64) float64 {
		return func(float64) float64 { return math.Exp(1.2 * r.NormFloat64()) }
	},
}

func TestPeriodFalseClaims(t *testing.T) {
	const each = 150
	claimed := 0
	for name, noise := range noises {
		n := 0
		for seed := range uint64(each) {
			r := rand.New(rand.NewPCG(seed, 2))
			seconds := 60 * math.Pow(30, r.Float64())
			of := noise(r, seconds)
			if _, ok := stat.PeriodOf(sampled(r, seconds, true, func(from, to float64) float64 { return (10 + of(to)) * (to - from) }), stat.PeriodOptions{}); ok {
				n++
			}
		}
		claimed += n
		if n > each*3/100 {
			t.Errorf("%s: %d periods claimed in %d series", name, n, each)
		}
	}
	t.Logf("%d false claims in %d series", claimed, each*len(noises))
	if claimed > each*len(noises)/100 {
		t.Errorf("%d false claims in %d series, want at most 1 %%", claimed, each*len(noises))
	}
}

func TestPeriodOfEvents(t *testing.T) {
	// Under a clock, wandering, with missing events, with pairs: the
	// fundamental, and nothing in a Poisson process.
	for _, kind := range []string{"clock", "wander", "missing", "pairs"} {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 3))
			period := 2 + 60*r.Float64()
			var at []float64
			for k, x := 0.0, 1000*r.Float64(); k < 40; k++ {
				switch kind {
				case "clock":
					at = append(at, x+k*period+0.2*period*(r.Float64()-0.5))
				case "wander":
					at = append(at, x)
					x += period * (0.98 + 0.04*r.Float64())
				case "missing":
					if r.Float64() < 0.8 {
						at = append(at, x+k*period)
					}
				case "pairs":
					at = append(at, x+k*period, x+k*period+0.1*period)
				}
			}
			p, ok := stat.PeriodOfEvents(at, stat.PeriodOptions{})
			if !ok || math.Abs(p.Seconds/period-1) > 0.02 {
				t.Errorf("%s: period %.3f: got %.3f, %v", kind, period, p.Seconds, ok)
			} else if math.Abs(p.Seconds-period) > 5*p.Error+1e-6*period {
				t.Errorf("%s: period %.3f: got %.3f ± %.3f", kind, period, p.Seconds, p.Error)
			}
		}
	}
	claimed := 0
	const all = 1000
	for seed := range uint64(all) {
		r := rand.New(rand.NewPCG(seed, 4))
		var at []float64
		for x, n := 0.0, 6+r.IntN(60); len(at) < n; {
			x += 10 * r.ExpFloat64()
			at = append(at, x)
		}
		if _, ok := stat.PeriodOfEvents(at, stat.PeriodOptions{}); ok {
			claimed++
		}
	}
	if claimed > all/100 {
		t.Errorf("%d of %d Poisson processes have a period", claimed, all)
	}
}

// A known shape comes out with its amount, its duty and its phase.
func TestPeriodProfile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	bins := sampled(r, 600, true, func(from, to float64) float64 {
		sum := 0.1 * (to - from)
		for p := 3.2; p < 600; p += 10 {
			sum += 0.5 * max(0, min(to, p+2)-max(from, p))
		}
		return sum
	})
	p, ok := stat.PeriodOf(bins, stat.PeriodOptions{})
	if !ok {
		t.Fatal("no period")
	}
	if math.Abs(p.Seconds-10) > 0.05 || math.Abs(p.Amount-1) > 0.05 || math.Abs(p.Base-0.1) > 0.02 || math.Abs(p.First-4.2) > 0.6 || p.Duty < 0.1 || p.Duty > 0.4 {
		t.Errorf("got %+v", p)
	}
}

// A shape with two humps that repeats exactly, with the same hole each time:
// its period, and no fraction of it.
func TestPeriodWithoutNoise(t *testing.T) {
	shape := []float64{.39, .27, .32, .33, .51, 1.22, 1.37, .97, .19, .18, .20, 1.74, 1.33, .08, .19, .38, .07, .10, .06}
	for _, period := range []int{19, 20, 22, 25, 31} {
		var bins []stat.Bin
		for k := range 40 {
			for i, rate := range shape {
				at := float64(k*period + i)
				bins = append(bins, stat.Bin{Start: at, End: at + 1, Amount: rate})
			}
		}
		if p, ok := stat.PeriodOf(bins, stat.PeriodOptions{}); !ok || math.Abs(p.Seconds-float64(period)) > 0.1 {
			t.Errorf("period %d: got %+v, %v", period, p, ok)
		}
	}
}

func TestSpikes(t *testing.T) {
	flat := func(rate func(i int) float64) []stat.Bin {
		var bins []stat.Bin
		for i := range 200 {
			bins = append(bins, stat.Bin{Start: float64(i), End: float64(i + 1), Amount: rate(i)})
		}
		return bins
	}
	r := rand.New(rand.NewPCG(1, 6))
	for _, c := range []struct {
		name string
		rate func(i int) float64
		want int
	}{
		{"constant", func(int) float64 { return 0.3 }, 0},
		{"all zero", func(int) float64 { return 0 }, 0},
		{"one spike on nothing", func(i int) float64 {
			if i == 77 {
				return 1
			}
			return 0
		}, 1},
		{"a plateau", func(i int) float64 {
			if i > 60 && i < 140 {
				return 2 + 0.1*r.NormFloat64()
			}
			return 0.2 + 0.02*r.NormFloat64()
		}, 0},
		{"spikes on a plateau", func(i int) float64 {
			switch {
			case i == 90 || i == 110 || i == 111:
				return 4
			case i > 60 && i < 140:
				return 2 + 0.1*r.NormFloat64()
			}
			return 0.2 + 0.02*r.NormFloat64()
		}, 2},
		{"below the floor", func(i int) float64 {
			if i%50 == 10 {
				return 0.04
			}
			return 0
		}, 0},
	} {
		s := stat.Spikes(flat(c.rate), stat.SpikeOptions{Floor: 0.05})
		if len(s) != c.want {
			t.Errorf("%s: %d spikes, want %d: %+v", c.name, len(s), c.want, s)
		}
	}
	s := stat.Spikes(flat(func(i int) float64 {
		if i == 50 || i == 51 {
			return 1.5
		}
		return 0.5
	}), stat.SpikeOptions{})
	if len(s) != 1 || s[0].Start != 50 || s[0].End != 52 || s[0].Amount != 2 || s[0].At != 51 || s[0].Base != 0.5 {
		t.Errorf("got %+v", s)
	}
}

// Whatever the series: spikes are in order, apart, inside it, and above their
// base; a period is within its bounds.
func TestSpikesAndPeriodsAreSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 3), rapid.Just(1e6)), rapid.IntRange(0, 150).Draw(t, "least"), 150).Draw(t, "amounts")
		var bins []stat.Bin
		at := rapid.Float64Range(0, 2e9).Draw(t, "start")
		for _, a := range amounts {
			if rapid.IntRange(0, 20).Draw(t, "hole") == 0 {
				at += 3
			}
			bins = append(bins, stat.Bin{Start: at, End: at + 1, Amount: a})
			at++
		}
		last := math.Inf(-1)
		for _, s := range stat.Spikes(bins, stat.SpikeOptions{}) {
			if s.Start < last || s.End <= s.Start || s.Peak < s.Base || s.Amount <= 0 || s.Start < bins[0].Start || s.End > at {
				t.Fatalf("spike %+v after %v", s, last)
			}
			last = s.End
		}
		if p, ok := stat.PeriodOf(bins, stat.PeriodOptions{}); ok {
			if !(p.Seconds >= 1.9 && p.Seconds <= 160) || !(p.P >= 0 && p.P <= 1e-3) || math.IsNaN(p.Error+p.First+p.Amount+p.Base+p.Duty) {
				t.Fatalf("period %+v", p)
			}
		}
	})
}

func TestFalseDiscovery(t *testing.T) {
	ps := []float64{0.0001, 0.04, 0.0019, 0.0095}
	if got := stat.FalseDiscovery(ps, 4, 0.01); got != 0.0019 {
		t.Errorf("limit %v", got)
	}
	if got := stat.FalseDiscovery(ps, 1000, 0.01); got != 0 {
		t.Errorf("of a thousand tests: limit %v", got)
	}
}

func BenchmarkPeriodOf(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 7))
	bins := rhythm{period: 5, duty: 0.1, seconds: 1800}.bins(r)
	for b.Loop() {
		stat.PeriodOf(bins, stat.PeriodOptions{})
	}
}

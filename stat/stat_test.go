package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func floats(min, max int) *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), min, max)
}

func TestQuantileNearestRank(t *testing.T) {
	var xs []float64
	for i := range 100 {
		xs = append(xs, float64(100-i))
	}
	for q, want := range map[float64]float64{0: 1, 0.01: 1, 0.5: 50, 0.9: 90, 0.99: 99, 1: 100} {
		if got, ok := Quantile(xs, q); !ok || got != want {
			t.Errorf("Quantile(1..100, %v) = %v, %v; want %v", q, got, ok, want)
		}
	}
	if _, ok := Quantile(xs[:99], 0.99); ok {
		t.Error("p99 of 99 samples must not be given")
	}
	if _, ok := Quantile(nil, 0.5); ok {
		t.Error("the median of nothing must not be given")
	}
}

func TestQuantileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := floats(1, 300).Draw(t, "xs")
		q1 := rapid.Float64Range(0, 1).Draw(t, "q1")
		q2 := rapid.Float64Range(0, 1).Draw(t, "q2")
		s := sorted(xs)
		a, b := QuantileSorted(s, min(q1, q2)), QuantileSorted(s, max(q1, q2))
		if a > b {
			t.Fatalf("quantiles fall: q%v=%v q%v=%v", q1, a, q2, b)
		}
		if !slices.Contains(xs, a) {
			t.Fatalf("%v is not an observed value", a)
		}
		// At least a share q of the values is at or below the q-quantile.
		below := 0
		for _, x := range xs {
			if x <= b {
				below++
			}
		}
		if float64(below) < max(q1, q2)*float64(len(xs))-1e-6 {
			t.Fatalf("only %d of %d values at or below q%v", below, len(xs), max(q1, q2))
		}
	})
}

func TestMedianCI(t *testing.T) {
	// Known cover: the whole range of 6 values covers 1 − 2/64.
	ci, ok := MedianCI([]float64{6, 5, 4, 3, 2, 1}, 0.95)
	if !ok || ci.Lo != 1 || ci.Hi != 6 || math.Abs(ci.Level-(1-2.0/64)) > 1e-12 {
		t.Errorf("MedianCI of 1..6 = %+v, %v", ci, ok)
	}
	if _, ok := MedianCI([]float64{1, 2, 3, 4, 5}, 0.95); ok {
		t.Error("5 values cannot carry 95 %")
	}
	// n=20: [x6, x15] at 95.9 % (David and Nagaraja's table).
	var xs []float64
	for i := range 20 {
		xs = append(xs, float64(i+1))
	}
	ci, ok = MedianCI(xs, 0.95)
	if !ok || ci.Lo != 6 || ci.Hi != 15 || math.Abs(ci.Level-0.9586) > 1e-4 {
		t.Errorf("MedianCI of 1..20 = %+v, %v", ci, ok)
	}
}

func TestMedianCICovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const trials = 2000
	covered := 0
	for range trials {
		xs := make([]float64, 15)
		for i := range xs {
			xs[i] = rng.ExpFloat64()
		}
		ci, ok := MedianCI(xs, 0.95)
		if ok && ci.Lo <= math.Ln2 && math.Ln2 <= ci.Hi {
			covered++
		}
	}
	// Nominal ≥ 0.95; three binomial deviations of 2000 trials are 1.5 %.
	if share := float64(covered) / trials; share < 0.935 {
		t.Errorf("covers %v of the time", share)
	}
}

func TestMADAndRobustZ(t *testing.T) {
	if got := MAD([]float64{1, 1, 2, 2, 4, 6, 9}); math.Abs(got-madScale) > 1e-12 {
		t.Errorf("MAD = %v", got)
	}
	if _, ok := RobustZ(5, []float64{3, 3, 3}); ok {
		t.Error("no spread, no z")
	}
	rapid.Check(t, func(t *rapid.T) {
		xs := floats(3, 50).Draw(t, "xs")
		shift := rapid.Float64Range(-1e3, 1e3).Draw(t, "shift")
		moved := make([]float64, len(xs))
		for i := range xs {
			moved[i] = xs[i] + shift
		}
		if d := math.Abs(MAD(xs) - MAD(moved)); d > 1e-6 {
			t.Fatalf("MAD moves by %v with the data", d)
		}
	})
}

func TestSlopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Float64Range(-100, 100).Draw(t, "intercept")
		b := rapid.Float64Range(-10, 10).Draw(t, "slope")
		n := rapid.IntRange(10, 200).Draw(t, "n")
		var x, y []float64
		for i := range n {
			x = append(x, float64(i))
			y = append(y, a+b*float64(i))
		}
		if l, ok := LeastSquares(x, y); !ok || math.Abs(l.Slope-b) > 1e-6 || math.Abs(l.Intercept-a) > 1e-6 {
			t.Fatalf("LeastSquares = %+v, %v", l, ok)
		}
		y[n/2] += 1e6 // one outlier moves the one, not the other
		if s, ok := TheilSen(x, y); !ok || math.Abs(s-b) > 1e-6 {
			t.Fatalf("TheilSen = %v, %v; want %v", s, ok, b)
		}
	})
}

// bucket lets n waiting requests through a token bucket.
func bucket(n int, qps float64, burst int) []float64 {
	var out []float64
	for i := range n {
		out = append(out, max(0, float64(i-burst+1)/qps))
	}
	return out
}

func TestPlateauRecoversAnyRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qps := rapid.Float64Range(0.5, 300).Draw(t, "qps")
		burst := rapid.IntRange(1, 200).Draw(t, "burst")
		n := burst + rapid.IntRange(max(60, int(2*qps)), 2000).Draw(t, "n")
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 1))
		times := bucket(n, qps, burst)
		for i := range times {
			times[i] += 0.003 * rng.Float64() // the way to the server
		}
		p, ok := PlateauOf(times, burst)
		if !ok || math.Abs(p.Rate-qps) > 0.05*qps {
			t.Fatalf("rate %v of %v (n=%d, burst=%d): %+v, %v", p.Rate, qps, n, burst, p, ok)
		}
		if p.Flat < 0.9 {
			t.Fatalf("not flat: %+v", p)
		}
	})
}

func TestPlateauTellsAMetronomeFromWork(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var poisson []float64
	at := 0.0
	for range 1000 {
		at += rng.ExpFloat64() / 50
		poisson = append(poisson, at)
	}
	p, ok := PlateauOf(poisson, 0)
	if !ok || p.CV < 0.8 {
		t.Errorf("Poisson arrivals: %+v, %v", p, ok)
	}
	p, ok = PlateauOf(bucket(1000, 50, 100), 100)
	if !ok || p.CV > 0.05 {
		t.Errorf("metronome: %+v, %v", p, ok)
	}
	if _, ok := PlateauOf(bucket(50, 20, 30), 30); ok {
		t.Error("20 events after the burst are no plateau")
	}
}

func TestThroughput(t *testing.T) {
	// 30 at once, then 20 a second: the burst is dropped with the first sample.
	got, ok := ThroughputOf(bucket(230, 20, 30))
	if !ok || math.Abs(got.Mean-20) > 0.5 {
		t.Errorf("mean %v, %v; want 20", got.Mean, ok)
	}
	// Idle seconds are spread over real time, never counted as zero.
	var times []float64
	for i := range 10 {
		times = append(times, float64(5*i))
	}
	got, ok = ThroughputOf(times)
	if !ok || got.P50 < 0.15 || got.P50 > 0.25 {
		t.Errorf("one event in 5 s: %+v, %v", got, ok)
	}
	if _, ok := ThroughputOf([]float64{0, 0.1, 1}); ok {
		t.Error("a second is too short")
	}
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Float64Range(0, 60), 20, 400).Draw(t, "times")
		got, ok := ThroughputOf(times)
		if !ok {
			return
		}
		if got.Mean <= 0 || got.N > len(times) || got.Max < got.P50 {
			t.Fatalf("%+v", got)
		}
		if d := math.Abs(got.Mean*got.Seconds - float64(got.N)); d > 1e-6 {
			t.Fatalf("mean × time ≠ events: %+v", got)
		}
	})
}

func TestCompare(t *testing.T) {
	a := []float64{10, 11, 10, 12, 11, 10, 11}
	b := []float64{20, 21, 22, 20, 21, 23, 20}
	if c, ok := Compare(a, b, 0.05); !ok || !c.Differ {
		t.Errorf("clearly different: %+v, %v", c, ok)
	}
	if c, ok := Compare(a, a, 0.05); !ok || c.Differ {
		t.Errorf("the same: %+v, %v", c, ok)
	}
	if _, ok := Compare(a[:1], b[:1], 0.05); ok {
		t.Error("one run each must not be tested")
	}
	if !slices.Equal(a, []float64{10, 11, 10, 12, 11, 10, 11}) {
		t.Error("Compare must not reorder its input")
	}
}

// Complete separation is one of C(n, n1) ways, and its mirror another.
func TestCompareExact(t *testing.T) {
	for _, tt := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{1, 2, 2}, []float64{3, 4, 4}, 0.1},
		{[]float64{5, 5, 5}, []float64{5, 5, 5}, 1},
	} {
		c, ok := Compare(tt.a, tt.b, 0.05)
		if !ok || math.Abs(c.P-tt.p) > 1e-12 {
			t.Errorf("Compare(%v, %v) = %v, %v; want %v", tt.a, tt.b, c.P, ok, tt.p)
		}
	}
}

// Under the null hypothesis a test at 5 % may err in at most 5 % of trials, on
// both sides of the change from exact to normal.
func TestCompareHoldsItsLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{8, 40} {
		wrong := 0
		for range 400 {
			a, b := make([]float64, n), make([]float64, n)
			for i := range n {
				a[i], b[i] = rng.ExpFloat64(), rng.ExpFloat64()
			}
			c, _ := Compare(a, b, 0.05)
			if c.Differ {
				wrong++
			}
			if back, _ := Compare(b, a, 0.05); math.Abs(back.P-c.P) > 1e-9 {
				t.Fatalf("not symmetric: %v and %v", c.P, back.P)
			}
		}
		if wrong > 34 { // 20 expected, + 3 deviations
			t.Errorf("n=%d: %d of 400 false differences", n, wrong)
		}
	}
}

func TestSumIsCompensated(t *testing.T) {
	if got := Sum([]float64{1, 1e100, 1, -1e100}); got != 2 {
		t.Errorf("Sum = %v", got)
	}
}

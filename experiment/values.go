package experiment

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ParseRate reads "20/s", "600/m", "36000/h", a plain number per second, or
// "burst". Ramps, steps and Poisson arrivals have no short form.
func ParseRate(s string) (Rate, error) {
	if s == "burst" {
		return Rate{Burst: true}, nil
	}
	n, err := parsePerSecond(s)
	return Rate{PerSecond: n}, err
}

var errRate = errors.New(`want a rate such as 20/s, 600/m, 0.5 (per second), burst, {from: 1/s, to: 50/s, over: 30s}, [{rate: 5/s, for: 1m}, …] or {poisson: 20/s}`)

func parsePerSecond(s string) (float64, error) {
	number, unit, has := strings.Cut(s, "/")
	per := 1.0
	if has {
		switch strings.TrimSpace(unit) {
		case "s":
		case "m":
			per = 60
		case "h":
			per = 3600
		default:
			return 0, errRate
		}
	}
	n, err := parseFloat(strings.TrimSpace(number))
	if err != nil {
		return 0, errRate
	}
	n /= per
	switch {
	case n <= 0:
		return 0, errors.New("a rate must be above 0: nothing would ever be sent")
	case n > maxRate:
		return 0, fmt.Errorf("a rate can be at most %d/s", maxRate)
	case n < minRate:
		return 0, errors.New("a rate must be at least 1/h")
	}
	return n, nil
}

// The fastest rate that one process can hope to keep, and the slowest that
// still ends some day.
const (
	maxRate = 100_000
	minRate = 1.0 / 3600
)

// IsZero reports whether the rate was left out.
func (r Rate) IsZero() bool { return !r.Burst && r.PerSecond == 0 && r.Over == 0 && len(r.Steps) == 0 }

// String is the rate as the file writes it; empty for a rate that was left out.
func (r Rate) String() string {
	switch {
	case len(r.Steps) > 0:
		steps := make([]string, len(r.Steps))
		for i, s := range r.Steps {
			steps[i] = fmt.Sprintf("{rate: %s, for: %s}", perSecond(s.PerSecond), formatDuration(s.For))
		}
		return "[" + strings.Join(steps, ", ") + "]"
	case r.Poisson:
		return fmt.Sprintf("{poisson: %s}", perSecond(r.PerSecond))
	case r.Burst:
		return "burst"
	case r.Over > 0:
		return fmt.Sprintf("{from: %s, to: %s, over: %s}", perSecond(r.From), perSecond(r.PerSecond), formatDuration(r.Over))
	case r.PerSecond == 0:
		return ""
	}
	return perSecond(r.PerSecond)
}

// perSecond prints a rate so that it reads back as the same number.
func perSecond(n float64) string {
	for _, u := range []struct {
		per  float64
		name string
	}{{1, "/s"}, {60, "/m"}, {3600, "/h"}} {
		if m := math.Round(n*u.per*1000) / 1000; m >= 0.1 && m/u.per == n {
			return formatFloat(m) + u.name
		}
	}
	return formatFloat(n) + "/s"
}

func formatFloat(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

var decimal = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`)

// parseFloat is strconv.ParseFloat without hexadecimal, underscores, infinity
// and not-a-number: an experiment has no use for them.
func parseFloat(s string) (float64, error) {
	if !decimal.MatchString(s) {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, strconv.ErrRange
	}
	return n, nil
}

// formatDuration is Duration.String without zero parts: 15m, not 15m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseLimit(s string) (Limit, error) {
	if strings.Contains(s, "/") {
		n, err := parsePerSecond(s)
		return Limit{Value: n, Unit: "1/s"}, err
	}
	if whole.MatchString(s) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return Limit{}, fmt.Errorf("%s is no number of failures", s)
		}
		return Limit{Value: float64(n), Unit: "1"}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return Limit{}, errors.New("want a duration such as 5s for a latency, a rate such as 100/s for a throughput, or a number of failures")
	}
	if d <= 0 {
		return Limit{}, errors.New("a limit must be above 0")
	}
	return Limit{Value: d.Seconds(), Unit: "s"}, nil
}

// String is the limit as the file writes it.
func (l Limit) String() string {
	switch l.Unit {
	case "1/s":
		return perSecond(l.Value)
	case "1":
		return formatFloat(l.Value)
	}
	return formatDuration(time.Duration(math.Round(l.Value * float64(time.Second))))
}

var quantityForm = regexp.MustCompile(`^(\d+(?:\.\d*)?|\.\d+)([a-zA-Z]*)$`)

var quantityUnits = map[string]float64{
	"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// Value is the quantity as a number: cores or bytes. An empty or malformed
// quantity is 0; decoded ones are well formed.
func (q Quantity) Value() float64 {
	v, err := q.parse()
	if err != nil {
		return 0
	}
	return v
}

func (q Quantity) parse() (float64, error) {
	if q == "" {
		return 0, nil
	}
	if strings.HasPrefix(string(q), "-") {
		return 0, fmt.Errorf("must not be negative, got %s", string(q))
	}
	m := quantityForm.FindStringSubmatch(string(q))
	if m == nil {
		return 0, strconv.ErrSyntax
	}
	unit, ok := quantityUnits[m[2]]
	if !ok {
		return 0, strconv.ErrSyntax
	}
	n, err := parseFloat(m[1])
	return n * unit, err
}

// At is the delay at u, which the caller draws evenly from [0, 1): the
// distribution's quantile function. Delays are never negative.
func (d Distribution) At(u float64) time.Duration {
	switch d.Kind {
	case Uniform:
		return d.Min + time.Duration(u*float64(d.Max-d.Min))
	case LogNormal:
		if d.Median <= 0 || d.P99 <= d.Median {
			return d.Median
		}
		sigma := math.Log(float64(d.P99)/float64(d.Median)) / z99
		// Cut at about ±4 sigma: u near 0 or 1 must not yield hours.
		u = min(max(u, 3e-5), 1-3e-5)
		z := math.Sqrt2 * math.Erfinv(2*u-1)
		return time.Duration(float64(d.Median) * math.Exp(sigma*z))
	}
	return d.Value
}

// z99 is the standard normal distribution's quantile at 0.99.
const z99 = 2.3263478740408408

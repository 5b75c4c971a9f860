package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Axis is a setting and the values that a sweep gives it.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

// Unset is the value of an axis that leaves the setting alone.
const Unset = "default"

// mostValues bounds an axis: nobody waits for more.
const mostValues = 64

// ErrAxis is the error of an axis that cannot be read.
var ErrAxis = errors.New("want PATH=v1,v2,… or PATH=a..b:log:5")

// ParseAxis reads PATH=v1,v2,…. A value a..b:log:n stands for n values from a to b
// whose ratios are equal, a..b:lin:n for n at equal distances; both are whole
// numbers where a and b are, and those of the first have three digits that count.
func ParseAxis(text string) (Axis, error) {
	path, list, ok := strings.Cut(text, "=")
	if !ok || path == "" || list == "" {
		return Axis{}, fmt.Errorf("axis %s: %w", text, ErrAxis)
	}
	a := Axis{Path: path}
	for _, part := range strings.Split(list, ",") {
		values := []string{part}
		if strings.Contains(part, "..") {
			var err error
			if values, err = scale(part); err != nil {
				return Axis{}, fmt.Errorf("axis %s: %w", path, err)
			}
		}
		for _, v := range values {
			switch {
			case v == "":
				return Axis{}, fmt.Errorf("axis %s: a value is empty: %w", path, ErrAxis)
			case slices.Contains(a.Values, v):
				return Axis{}, fmt.Errorf("axis %s: %s is there twice", path, v)
			}
			a.Values = append(a.Values, v)
		}
	}
	if len(a.Values) > mostValues {
		return Axis{}, fmt.Errorf("axis %s: %d values, %d are the most", path, len(a.Values), mostValues)
	}
	return a, nil
}

// scale reads a..b:log:n.
func scale(text string) ([]string, error) {
	bad := func(why string) ([]string, error) { return nil, fmt.Errorf("%s: %s: %w", text, why, ErrAxis) }
	ends, kind, _ := strings.Cut(text, ":")
	kind, steps, _ := strings.Cut(kind, ":")
	from, to, _ := strings.Cut(ends, "..")
	a, err1 := strconv.ParseFloat(from, 64)
	b, err2 := strconv.ParseFloat(to, 64)
	n, err3 := strconv.Atoi(steps)
	whole := !strings.ContainsAny(from+to, ".eE")
	switch {
	case err1 != nil || err2 != nil || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsNaN(a) || math.IsNaN(b) || a >= b:
		return bad("want two numbers, the smaller one first")
	case kind != "log" && kind != "lin":
		return bad("want log or lin")
	case err3 != nil || n < 2 || n > mostValues:
		return bad(fmt.Sprintf("want a number of values from 2 to %d", mostValues))
	case kind == "log" && a <= 0:
		return bad("ratios need numbers above 0")
	}
	var values []string
	for i := range n {
		t := float64(i) / float64(n-1)
		x := a + t*(b-a)
		if kind == "log" {
			x = a * math.Pow(b/a, t)
			if i > 0 && i < n-1 {
				unit := math.Pow(10, math.Floor(math.Log10(x))-2)
				x = math.Round(x/unit) * unit
			}
		}
		if i == n-1 {
			x = b
		}
		v := strconv.FormatFloat(x, 'g', 12, 64)
		if whole {
			v = strconv.FormatFloat(math.Round(x), 'f', -1, 64)
		}
		if !slices.Contains(values, v) { // 1..3:log:5 has no five whole numbers
			values = append(values, v)
		}
	}
	return values, nil
}

// SweepPoint is one combination of values.
type SweepPoint struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // one of each axis
	// Against is the point that this one is compared with: the same values but the
	// first axis' reference. -1: it is a reference itself.
	Against int `json:"against"`
}

// Points are all combinations of the axes' values, the last axis first in turn.
// The reference is a value of the first axis.
func Points(axes []Axis, reference string) ([]SweepPoint, error) {
	if len(axes) == 0 || !slices.Contains(axes[0].Values, reference) {
		return nil, fmt.Errorf("reference %s is not among the values of the axis", reference)
	}
	points := []SweepPoint{{}}
	for _, a := range axes {
		var next []SweepPoint
		for _, p := range points {
			for _, v := range a.Values {
				next = append(next, SweepPoint{Values: append(slices.Clone(p.Values), v)})
			}
		}
		points = next
	}
	for i := range points {
		p := &points[i]
		p.Name, p.Against = p.name(axes), -1
		if p.Values[0] == reference {
			continue
		}
		p.Against = slices.IndexFunc(points, func(q SweepPoint) bool {
			return q.Values[0] == reference && slices.Equal(q.Values[1:], p.Values[1:])
		})
	}
	return points, nil
}

func (p SweepPoint) name(axes []Axis) string {
	var parts []string
	for i, v := range p.Values {
		path := axes[i].Path
		if v == Unset {
			parts = append(parts, path+" "+Unset)
		} else {
			parts = append(parts, path+"="+v)
		}
	}
	return strings.Join(parts, ", ")
}

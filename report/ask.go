package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// Ask evaluates a PromQL expression at so many moments of a recording, on the
// time axis of its page: seconds since the first pod was asked for, so that
// runs lie over each other.
func Ask(rec *record.Recording, expr string, moments int) ([]AnswerLine, error) {
	m := rec.Meta()
	w := record.Window{Start: m.Started, End: m.Ended}
	step := max(time.Second, w.End.Sub(w.Start)/time.Duration(moments)).Round(time.Second)
	matrix, err := rec.QueryRange(expr, w, step)
	if err != nil {
		return nil, err
	}
	pods, err := rec.Pods()
	if err != nil {
		pods = nil // its own start is the axis then
	}
	in := rows{meta: m, pods: pods}
	c := clockOf(in, measured(in))
	n := int(w.End.Sub(w.Start)/step) + 1
	var lines []AnswerLine
	for _, s := range matrix {
		l := AnswerLine{Series: seriesName(s.Labels), Start: c.at(w.Start.UnixMicro()), Step: step.Seconds(), Values: make(Values, n), Note: s.Note}
		for i := range l.Values {
			l.Values[i] = math.NaN()
		}
		for _, p := range s.Points {
			if i := int((p.Time.Sub(w.Start) + step/2) / step); i >= 0 && i < n {
				l.Values[i] = p.Value
			}
		}
		lines = append(lines, l)
	}
	// The largest first: of hundreds those are worth a look.
	slices.SortStableFunc(lines, func(a, b AnswerLine) int { return cmp.Compare(most(b.Values), most(a.Values)) })
	return lines, nil
}

func most(v Values) float64 {
	m := math.Inf(-1)
	for _, x := range v {
		if !math.IsNaN(x) && x > m {
			m = x
		}
	}
	return m
}

// seriesName is a series as PromQL writes it.
func seriesName(labels map[string]string) string {
	var parts []string
	for k, v := range labels {
		if k != "__name__" {
			parts = append(parts, k+"="+strconv.Quote(v))
		}
	}
	slices.Sort(parts)
	if name := labels["__name__"]; len(parts) == 0 && name != "" {
		return name
	}
	return labels["__name__"] + "{" + strings.Join(parts, ", ") + "}"
}

package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/analysis/use"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Detail is one table that explains differences: functions, requests, logs,
// the checklist of resources.
type Detail struct {
	ID   string      `json:"id"` // functions, requests, logs, use
	Rows []DetailRow `json:"rows"`
	// Tested says that rows have intervals: of those that differ, a share of at
	// most Alpha is expected to be wrong. Why says why they have none.
	Tested bool    `json:"tested"`
	Alpha  float64 `json:"alpha"`
	Why    string  `json:"why,omitempty"`
	// NotAssessed is what a side lacks; there are no rows then.
	NotAssessed string `json:"notAssessed,omitempty"`
	N1          int    `json:"n1"`
	N2          int    `json:"n2"`
}

// DetailRow is a function, a kind of request, a log template or a check.
type DetailRow struct {
	Key      []string  `json:"key"` // component and function; user agent, verb and resource; …
	Measures []Measure `json:"measures"`
	P        *float64  `json:"p,omitempty"`        // of the last measure alone
	Adjusted *float64  `json:"adjusted,omitempty"` // over the table
	Verdict  Verdict   `json:"verdict"`
}

// Verdicts of rows that explain. More is neither good nor bad by itself.
const (
	More Verdict = "more"
	Less Verdict = "less"
	New  Verdict = "new"  // in no run of the baseline
	Gone Verdict = "gone" // in no run of the candidate
)

// Measure is one number of a row, the mean over the runs of a side.
type Measure struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	Baseline  float64 `json:"baseline"`
	Candidate float64 `json:"candidate"`
	// Interval is of the difference, candidate less baseline, in Unit.
	Interval *stat.Interval `json:"interval,omitempty"`

	a, b []float64
}

// Difference is candidate less baseline.
func (m Measure) Difference() float64 { return m.Candidate - m.Baseline }

// measured is what one recording has for a table: by key, the values in the
// order of the table's measures.
type measured map[string][]float64

const functionsTable = "functions"

const keySeparator = "\x00"

func keyOf(parts ...string) string { return strings.Join(parts, keySeparator) }

// tables are those that explain. The last of a row's measures is what it is
// judged by: of functions the share, from which the speed of the machine
// cancels out; the others are beside it.
func tables(per divisor) []table {
	counted := func(of func(*record.Recording, float64) (measured, error)) func(*record.Recording, Options) (measured, error) {
		return func(rec *record.Recording, _ Options) (measured, error) { return of(rec, per.by(rec)) }
	}
	return []table{
		{functionsTable, []Measure{{Name: "self", Unit: "ms/pod"}, {Name: "with what it calls", Unit: "ms/pod"}, {Name: "self", Unit: "%"}, {Name: "with what it calls", Unit: "%"}}, functionsOf, true, 4, 1},
		{"requests", []Measure{{Name: "time in the API server", Unit: "ms/" + per.unit}, {Name: "requests", Unit: "1/" + per.unit}}, counted(requestsOf), true, 1, 0.01},
		{"logs", []Measure{{Name: "lines", Unit: "1/" + per.unit}}, counted(logsOf), true, 0, 0.01},
		{"use", []Measure{{Name: "value"}}, useOf, false, 0, math.Inf(-1)},
	}
}

type table struct {
	id       string
	measures []Measure // name and unit
	of       func(*record.Recording, Options) (measured, error)
	// zero: what a run does not have did not happen in it.
	zero bool
	// least is what the value at weight comes to at least, on the mean of both
	// sides, which says nothing of their difference (Bourgon, Gentleman and
	// Huber 2010): what is rarer is a few samples.
	weight int
	least  float64
}

// A divisor is what counts are divided by to be those of runs of any length: pods, and
// seconds where runs were to have none.
type divisor struct {
	unit string
	by   func(*record.Recording) float64
}

func divisorOf(recs []*record.Recording) divisor {
	if slices.ContainsFunc(recs, func(r *record.Recording) bool { return r.Meta().Workload.ExpectedPods == 0 }) {
		return divisor{"s", func(r *record.Recording) float64 { return max(1, wholeRun(r).Seconds()) }}
	}
	return divisor{"pod", func(r *record.Recording) float64 { return float64(r.Meta().Workload.ExpectedPods) }}
}

// details compares what explains. Functions have a part of the report's alpha
// of their own. The other tables are searched only where something differs:
// whoever looks through hundreds of rows of runs without a difference finds some.
func details(base, cand []*record.Recording, c Comparison, o Options) ([]Detail, error) {
	differs := c.Differs()
	var ds []Detail
	for _, t := range tables(divisorOf(slices.Concat(base, cand))) {
		d := Detail{ID: t.id, Rows: []DetailRow{}, Alpha: c.Alpha, N1: len(base), N2: len(cand)}
		a, why, err := each(base, o, t.of)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", t.id, err)
		}
		b, whyNot, err := each(cand, o, t.of)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", t.id, err)
		}
		switch {
		case len(a) < len(base):
			d.NotAssessed = "in the baseline: " + why
		case len(b) < len(cand):
			d.NotAssessed = "in the candidate: " + whyNot
		default:
			d.Rows = detailRows(a, b, t.measures, t.zero, t.weight, t.least)
			switch {
			case len(base) < 2 || len(cand) < 2:
				d.Why = "one run on a side"
			case t.id == functionsTable:
				// Once an indicator differs there is no report without a difference,
				// and alpha is what it is in the other tables.
				if d.Tested = true; !differs {
					d.Alpha = c.Alpha - c.RowsAlpha
				}
			case !differs:
				d.Why = "no indicator and no function differs"
			default:
				d.Tested = true
			}
			d.test()
			differs = differs || d.Tested && len(d.Rows) > 0 && quiet(d.Rows[0]) == 0
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// each reads a table of every recording of a side. Where one lacks it, fewer
// come back, and why.
func each(recs []*record.Recording, o Options, of func(*record.Recording, Options) (measured, error)) (all []measured, why string, err error) {
	for _, rec := range recs {
		m, err := of(rec, o)
		switch {
		case errors.Is(err, record.ErrMissing):
			return nil, fmt.Sprintf("%s: %v", rec.Meta().ID, err), nil
		case err != nil:
			return nil, "", fmt.Errorf("recording %s: %w", rec.Meta().ID, err)
		}
		all = append(all, m)
	}
	return all, "", nil
}

func detailRows(a, b []measured, measures []Measure, zero bool, weight int, least float64) []DetailRow {
	keys := map[string]bool{}
	for _, m := range slices.Concat(a, b) {
		for k := range m {
			keys[k] = true
		}
	}
	rows := []DetailRow{}
	for _, k := range sortedKeys(keys) {
		row := DetailRow{Key: strings.Split(k, keySeparator)}
		if (stat.Mean(column(a, k, weight, zero))+stat.Mean(column(b, k, weight, zero)))/2 < least {
			continue
		}
		for i, m := range measures {
			m.a, m.b = column(a, k, i, zero), column(b, k, i, zero)
			if len(m.a) == 0 || len(m.b) == 0 {
				continue
			}
			m.Baseline, m.Candidate = stat.Mean(m.a), stat.Mean(m.b)
			if m.Unit == "" { // the last part of the key
				m.Unit = row.Key[len(row.Key)-1]
			}
			row.Measures = append(row.Measures, m)
		}
		if len(row.Measures) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

func column(runs []measured, key string, i int, zero bool) (xs []float64) {
	for _, m := range runs {
		v, ok := m[key]
		switch {
		case ok && !math.IsNaN(v[i]):
			xs = append(xs, v[i])
		case !ok && zero:
			xs = append(xs, 0)
		}
	}
	return xs
}

// test gives rows their P values, intervals and verdicts, and sorts them: what
// differs first, then what moved most. Values are sums over many samples, so
// that Welch's test is used; what is believed is bounded by Benjamini and
// Hochberg's method over all rows of the table, and intervals of what is
// believed cover as often (Benjamini and Yekutieli 2005).
func (d *Detail) test() {
	var ps []float64
	var of []int
	for i := range d.Rows {
		r := &d.Rows[i]
		r.Verdict = Unsure
		if !d.Tested {
			continue
		}
		r.Verdict = Same
		m := r.judged()
		if _, p, ok := stat.MeanShift(m.a, m.b, level); ok {
			if sometimes(m.a) || sometimes(m.b) {
				// What few runs have is far from normal, and ranks know it.
				t, _ := stat.Compare(m.a, m.b, d.Alpha)
				p = max(p, t.P)
			}
			ps, of = append(ps, p), append(of, i)
		}
	}
	adjusted := stat.BenjaminiHochberg(ps)
	believed := 1
	for _, q := range adjusted {
		if q <= d.Alpha {
			believed++
		}
	}
	for k, i := range of {
		r := &d.Rows[i]
		r.P, r.Adjusted = &ps[k], &adjusted[k]
		for j := range r.Measures {
			m := &r.Measures[j]
			if s, _, ok := stat.MeanShift(m.a, m.b, 1-d.Alpha*float64(min(believed, len(ps)))/float64(len(ps))); ok {
				m.Interval = &s.Interval
			}
		}
		m := r.judged()
		switch {
		case adjusted[k] > d.Alpha:
		case m.Baseline == 0:
			r.Verdict = New
		case m.Candidate == 0:
			r.Verdict = Gone
		case m.Candidate > m.Baseline:
			r.Verdict = More
		default:
			r.Verdict = Less
		}
	}
	slices.SortStableFunc(d.Rows, func(a, b DetailRow) int {
		return cmp.Or(cmp.Compare(quiet(a), quiet(b)), cmp.Compare(b.moved(), a.moved()), slices.Compare(a.Key, b.Key))
	})
}

// sometimes says that some runs of a side have it and some do not.
func sometimes(xs []float64) bool {
	return slices.Contains(xs, 0) && slices.ContainsFunc(xs, func(x float64) bool { return x != 0 })
}

// judged is the measure that decides.
func (r DetailRow) judged() Measure { return r.Measures[len(r.Measures)-1] }

func quiet(r DetailRow) int {
	if r.Verdict == Same {
		return 1
	}
	return 0
}

// moved is by how much the row did; of different units by its ratio.
func (r DetailRow) moved() float64 {
	m := r.judged()
	for _, other := range r.Measures {
		if other.Name == m.Name && other.Unit == "ms/pod" { // of functions
			return math.Abs(other.Difference())
		}
	}
	if m.Unit == "%" || strings.HasPrefix(m.Unit, "1/") {
		return math.Abs(m.Difference())
	}
	lo, hi := math.Abs(m.Baseline), math.Abs(m.Candidate)
	if lo > hi {
		lo, hi = hi, lo
	}
	if hi == 0 {
		return 0
	}
	return 1 - lo/hi
}

// functionsOf are what a pod costs and shares of the component's CPU, and last
// the share of that of all components, by which functions are chosen.
func functionsOf(rec *record.Recording, o Options) (measured, error) {
	t, err := functions.Of(rec, functions.Query{Source: functions.DefaultSource(rec, functions.CPU, false), Phase: o.Phase, Window: wholeRun(rec)})
	if err != nil {
		return nil, err
	}
	total := map[string]float64{}
	all := 0.0
	for _, r := range t.Rows {
		if r.Component != functions.NoComponent {
			total[r.Component] += r.Self
			all += r.Self
		}
	}
	m := measured{}
	for _, r := range t.Rows {
		of := total[r.Component]
		if of <= 0 || r.Component == functions.NoComponent {
			continue
		}
		v := []float64{math.NaN(), math.NaN(), 100 * r.Self / of, 100 * r.Cum / of, 100 * r.Cum / all}
		if t.Pods > 0 {
			v[0], v[1] = 1e3*r.SelfPerPod, 1e3*r.CumPerPod
		}
		m[keyOf(r.Component, r.Function)] = v
	}
	return m, nil
}

func wholeRun(rec *record.Recording) record.Window {
	m := rec.Meta()
	return record.Window{Start: m.Started, End: m.Ended}
}

// requestsOf are requests and their time, divided by per.
func requestsOf(rec *record.Recording, per float64) (measured, error) {
	rows, err := rec.Requests()
	if err != nil {
		return nil, err
	}
	a, err := requests.NewAggregator([]string{"userAgent", "verb", "resource"})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		a.Add(&rows[i])
	}
	m := measured{}
	for _, r := range a.Rows("count") {
		v := []float64{1e3 * r.Seconds / per, float64(r.Count) / per}
		if r.Long { // as watches: their time is no cost
			v[0] = math.NaN()
		}
		m[keyOf(r.Key...)] = v
	}
	return m, nil
}

// logsOf are lines, divided by per.
func logsOf(rec *record.Recording, per float64) (measured, error) {
	if len(rec.Logs()) == 0 {
		return nil, fmt.Errorf("logs: %w", record.ErrMissing)
	}
	a, err := logs.Analyze(rec, logs.Options{})
	if err != nil {
		return nil, err
	}
	m := measured{}
	add := func(n int64, key ...string) {
		k := keyOf(key...)
		if m[k] == nil {
			m[k] = []float64{0}
		}
		m[k][0] += float64(n) / per
	}
	for _, t := range a.Templates {
		// The place in the source is the same in every run; a template is what
		// this run's lines had in common.
		text := t.Source
		if text == "" {
			text = t.Text
		}
		add(t.Count, t.Component, string(t.Severity), text)
	}
	for _, k := range a.Kinds {
		add(k.Count, k.Component, "", k.Kind)
	}
	return m, nil
}

func useOf(rec *record.Recording, _ Options) (measured, error) {
	checks, err := use.Assess(rec, "")
	if err != nil {
		return nil, err
	}
	m := measured{}
	for _, c := range checks {
		if c.Verdict != use.NotMeasurable {
			m[keyOf(cmp.Or(c.Component, use.Machine), c.What(), c.ID, c.Unit)] = []float64{c.Value}
		}
	}
	return m, nil
}

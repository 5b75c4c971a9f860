package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/record"
)

func newQueryCommand(env *Env) *cobra.Command {
	var (
		phase, format string
		at            = time.Duration(-1)
		step          time.Duration
		isRange       bool
		limit         int
	)
	cmd := &cobra.Command{
		Use:   "query RECORDING PROMQL",
		Short: "Evaluate a PromQL expression over a recording's metrics",
		Long: `Query evaluates a PromQL expression over the metrics of a recording: at one
moment, by default the end of the last steady phase, or with --range all through
a phase or the recording, as a plot.

Every series has the labels component and instance. Series of our own start with
kubedyno_.`,
		Example: `  kubedyno query r 'sum by (component) (rate(process_cpu_seconds_total[20s]))'
  kubedyno query r 'sum(rate(apiserver_request_total[30s]))' --range
  kubedyno query r 'histogram_quantile(0.99, sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[1m])))' --at 30s -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return Misusef("%s needs a recording and one PromQL expression, in quotes", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			if isRange && cmd.Flags().Changed("at") {
				return Misusef("--at is one moment and --range is many: give one of them")
			}
			if step < 0 || cmd.Flags().Changed("step") && step == 0 {
				return Misusef("--step %v: want a duration above 0", step)
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			in, err := windowOf(rec, phase)
			if err != nil {
				return err
			}
			var q queried
			if isRange {
				q.step = step
				if q.step == 0 {
					q.step = max(time.Second, in.End.Sub(in.Start)/200).Round(time.Second)
				}
				q.start, q.window = rec.Meta().Started, in
				var m record.Matrix
				m, err = rec.QueryRange(args[1], in, q.step)
				q.series = m
			} else {
				moment := in.End
				switch steady, ok := rec.Steady(); {
				case at >= 0:
					moment = rec.Meta().Started.Add(at)
				case phase == "" && ok:
					moment = steady.End
				}
				q.start = rec.Meta().Started
				var v record.Vector
				v, err = rec.Query(args[1], moment)
				q.series = v
			}
			if err != nil {
				return queryError(args[1], err)
			}
			switch format {
			case "json":
				return q.json(env)
			case "csv":
				return q.csv(env)
			}
			if isRange {
				return q.plot(env, limit)
			}
			return q.table(env, limit)
		},
	}
	cmd.Flags().BoolVar(&isRange, "range", false, "all through the phase or the recording, as a plot")
	cmd.Flags().DurationVar(&at, "at", at, "moment, from the recording's start, such as 30s (default: the end of the last steady phase)")
	cmd.Flags().DurationVar(&step, "step", 0, "between the moments of a range (default: 1s, or what makes 200 of them)")
	cmd.Flags().StringVar(&phase, "phase", "", "only this phase of the run")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "result as text, csv or json")
	cmd.Flags().IntVar(&limit, "limit", 20, "most series in text; 0 prints all")
	cmd.Flags().Lookup("at").DefValue = ""
	return cmd
}

// queryError says what is wrong with an expression that did not parse: that is
// misuse, where a recording without metrics is not.
func queryError(expr string, err error) error {
	if strings.Contains(err.Error(), "parse error") || strings.Contains(err.Error(), "unknown position") {
		return Misusef("%q: %s", expr, err)
	}
	return err
}

// queried is what a query gave.
type queried struct {
	series []record.Series
	start  time.Time // of the recording
	window record.Window
	step   time.Duration
}

// name is a series as PromQL writes it.
func seriesName(labels map[string]string) string {
	keys := make([]string, 0, len(labels))
	for k := range labels {
		if k != "__name__" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = k + "=" + strconv.Quote(labels[k])
	}
	switch {
	case len(parts) > 0:
		return labels["__name__"] + "{" + strings.Join(parts, ", ") + "}"
	case labels["__name__"] != "":
		return labels["__name__"]
	}
	return "{}"
}

func (q *queried) json(env *Env) error {
	type point [2]any // seconds since the epoch, value as text: NaN is none of JSON's numbers
	type series struct {
		Labels map[string]string `json:"labels"`
		Values []point           `json:"values"`
		Note   string            `json:"note,omitempty"`
	}
	enc := json.NewEncoder(env.Stdout)
	for _, s := range q.series {
		row := series{Labels: s.Labels, Note: s.Note, Values: []point{}}
		if row.Labels == nil {
			row.Labels = map[string]string{}
		}
		for _, p := range s.Points {
			row.Values = append(row.Values, point{float64(p.Time.UnixMilli()) / 1e3, strconv.FormatFloat(p.Value, 'g', -1, 64)})
		}
		if err := enc.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func (q *queried) csv(env *Env) error {
	w := csv.NewWriter(env.Stdout)
	if err := w.Write([]string{"series", "time_us", "value"}); err != nil {
		return err
	}
	for _, s := range q.series {
		for _, p := range s.Points {
			if err := w.Write([]string{seriesName(s.Labels), strconv.FormatInt(p.Time.UnixMicro(), 10), strconv.FormatFloat(p.Value, 'g', -1, 64)}); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

// table prints an instant's values, the largest first.
func (q *queried) table(env *Env, limit int) error {
	if q.nothing(env) {
		return nil
	}
	last := func(s record.Series) float64 {
		if len(s.Points) == 0 {
			return math.Inf(-1)
		}
		return s.Points[len(s.Points)-1].Value
	}
	slices.SortStableFunc(q.series, func(a, b record.Series) int {
		switch x, y := last(a), last(b); {
		case x > y || math.IsNaN(y) && !math.IsNaN(x):
			return -1
		case x < y || math.IsNaN(x) && !math.IsNaN(y):
			return 1
		}
		return 0
	})
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VALUE\tSERIES")
	for i, s := range q.series {
		if limit > 0 && i == limit {
			break
		}
		value := s.Note
		if value == "" && len(s.Points) > 0 {
			value = strconv.FormatFloat(last(s), 'g', 6, 64)
			if len(s.Points) > 1 {
				value += fmt.Sprintf(" (last of %d)", len(s.Points))
			}
		}
		fmt.Fprintf(w, "%s\t%s\n", value, seriesName(s.Labels))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	q.more(env, limit)
	return nil
}

// plot draws one series large, several as a line each.
func (q *queried) plot(env *Env, limit int) error {
	if q.nothing(env) {
		return nil
	}
	width := 80
	if env.Width != nil && env.Width() > 0 {
		width = max(20, min(env.Width(), 120)-14)
	}
	from, to := q.window.Start.Sub(q.start).Seconds(), q.window.End.Sub(q.start).Seconds()
	if len(q.series) == 1 {
		fmt.Fprintf(env.Stdout, "%s\n%s", seriesName(q.series[0].Labels), plot(q.values(q.series[0]), width, 12))
		fmt.Fprintf(env.Stdout, "%12s%-*s%*s\n", "", width/2, fmt.Sprintf("%.0f s", from), width-width/2, fmt.Sprintf("%.0f s", to))
		low, high := bounds(q.values(q.series[0]))
		fmt.Fprintf(env.Stdout, "%12smin %s, mean %s, max %s, each %v\n", "", shortNumber(low), shortNumber(meanOf(q.values(q.series[0]))), shortNumber(high), q.step)
		return nil
	}
	slices.SortStableFunc(q.series, func(a, b record.Series) int {
		return -compareNumbers(meanOf(q.values(a)), meanOf(q.values(b)))
	})
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%.0f s … %.0f s\tMIN\tMEAN\tMAX\tSERIES\n", from, to)
	for i, s := range q.series {
		if limit > 0 && i == limit {
			break
		}
		v := q.values(s)
		low, high := bounds(v)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", sparkline(v, 30), shortNumber(low), shortNumber(meanOf(v)), shortNumber(high), seriesName(s.Labels))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	q.more(env, limit)
	return nil
}

func (q *queried) nothing(env *Env) bool {
	if len(q.series) == 0 {
		fmt.Fprintln(env.Stdout, "No series matches.")
	}
	return len(q.series) == 0
}

func (q *queried) more(env *Env, limit int) {
	if n := len(q.series) - limit; limit > 0 && n > 0 {
		fmt.Fprintf(env.Stdout, "… and %d more; --limit 0 prints all\n", n)
	}
}

// values are a series' points at each step of the window; NaN where it has none.
func (q *queried) values(s record.Series) []float64 {
	n := int(q.window.End.Sub(q.window.Start)/q.step) + 1
	v := make([]float64, n)
	for i := range v {
		v[i] = math.NaN()
	}
	for _, p := range s.Points {
		if i := int((p.Time.Sub(q.window.Start) + q.step/2) / q.step); i >= 0 && i < n {
			v[i] = p.Value
		}
	}
	return v
}

func meanOf(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	return sum / float64(n)
}

func compareNumbers(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b), a == b:
		return 0
	case math.IsNaN(a) || a < b:
		return -1
	}
	return 1
}

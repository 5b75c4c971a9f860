package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/record"
)

func newSpikesCommand(env *Env) *cobra.Command {
	var (
		phase, format, share string
		components           []string
		limit                int
	)
	cmd := &cobra.Command{
		Use:   "spikes RECORDING",
		Short: "Say what uses CPU in spikes, what repeats with which period, and what it costs",
		Long: `Spikes looks for CPU that comes in spikes and for what repeats: each process,
each command line whose processes come and go, each component, and the machine.
Of command lines the start times are exact; everything else is read once a
second, so what repeats faster than every 2 s is not told apart.

In the line of the machine's CPU, ^ marks spikes.`,
		Example: `  kubedyno spikes r
  kubedyno spikes r --phase idle --min-share 0.1%
  kubedyno spikes r --component kube-apiserver,etcd
  kubedyno spikes r -o json`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			least, err := parseShare(share)
			if err != nil {
				return Misusef("--min-share %q: want a share of a core, such as 0.5%%", share)
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
			res, err := spikes.Find(rec, spikes.Options{Window: in, Components: components, MinShare: least})
			if err != nil {
				if errors.Is(err, record.ErrMissing) {
					return fmt.Errorf("spikes: not assessed: %w", err)
				}
				return err
			}
			if format != "text" {
				return spikeRows(res).print(env, format, 0)
			}
			printSpikes(env, res, limit)
			return nil
		},
	}
	cmd.Flags().StringVar(&phase, "phase", "", "only this `phase` of the run")
	cmd.Flags().StringSliceVar(&components, "component", nil, "only these `components`, beside the machine")
	cmd.Flags().StringVar(&share, "min-share", "0.5%", "least `share` of a core that is worth a line")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "rows as text, csv or json (one object a line)")
	cmd.Flags().IntVar(&limit, "limit", 20, "most lines of text of each kind; 0 prints all")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(tableFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("phase", completePhases)
	return cmd
}

// parseShare reads 0.5% or 0.005.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("no share: %q", s)
	}
	if percent {
		x /= 100
	}
	return x, nil
}

func printSpikes(env *Env, res spikes.Result, limit int) {
	out := env.Stdout
	if line, marks := cpuLine(res, min(max(env.Width()-20, 20), 100)); line != "" {
		top := 0.0
		for _, c := range res.Cores {
			top = max(top, c)
		}
		fmt.Fprintf(out, "machine CPU  %s  up to %.2f cores\n", line, top)
		if res.Spikes > 0 {
			fmt.Fprintf(out, "             %s  %s\n", marks, plural(res.Spikes, "spike"))
		}
		fmt.Fprintln(out)
	}
	for _, kind := range []string{spikes.Repeats, spikes.Spikes} {
		n, more := 0, 0
		for _, r := range res.Rows {
			if r.Kind != kind {
				continue
			}
			if limit > 0 && n == limit {
				more++
				continue
			}
			n++
			fmt.Fprintln(out, sentence(r))
			if len(r.Contributors) > 0 {
				fmt.Fprintln(out, "    with it: "+contributors(r.Contributors))
			}
		}
		switch {
		case n == 0 && kind == spikes.Repeats:
			fmt.Fprintf(out, "Nothing repeats with a period, of %s looked at.\n", plural(res.Tested, "process, command or component", "processes, commands and components"))
		case n == 0:
			fmt.Fprintln(out, "No spikes outside of these.")
		}
		if more > 0 {
			fmt.Fprintf(out, "… and %d more; --limit 0 prints all\n", more)
		}
		if kind == spikes.Repeats {
			fmt.Fprintln(out)
		}
	}
	for _, n := range res.Notes {
		fmt.Fprintln(out, "note: "+printable(n, 300))
	}
}

func plural(n int, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// sentence says a row in words.
func sentence(r spikes.Row) string {
	name := printable(r.Name, 100)
	if r.What == spikes.Process {
		name += fmt.Sprintf(" (PID %d)", r.PID)
	}
	var b strings.Builder
	if r.Kind == spikes.Repeats {
		fmt.Fprintf(&b, "every %s: %s, %s CPU-s each, %s from second %.1f on, costs %.1f %% of a core", seconds(r.Period, r.PeriodError), name, cpuSeconds(r.Each), plural(r.Count, "time"), r.First, 100*r.Share)
		if r.Executions > r.Count {
			fmt.Fprintf(&b, "; %.1f processes each time", float64(r.Executions)/float64(r.Count))
		}
	} else {
		what := "spike"
		if r.What == spikes.Command {
			what = "execution"
		}
		fmt.Fprintf(&b, "%s of %s, %s CPU-s each, %s in all, first at second %.1f", plural(r.Count, what), name, cpuSeconds(r.Each), cpuSeconds(r.Total), r.First)
		if r.What == spikes.Command {
			b.WriteString("; no period")
		}
	}
	if r.OfSpikes >= 0.005 {
		fmt.Fprintf(&b, "; %.0f %% of the machine's spikes fall on it", 100*r.OfSpikes)
	}
	if r.MaybeFaster {
		b.WriteString("; may be the shadow of something faster than every 2 s")
	}
	return b.String()
}

// seconds writes a period with no more digits than its error allows.
func seconds(x, err float64) string {
	digits := 1
	for limit := 0.05; digits < 3 && err < limit; limit /= 10 {
		digits++
	}
	if err < math.Pow10(-digits)/2 {
		return fmt.Sprintf("%.*f s", digits-1, x)
	}
	return fmt.Sprintf("%.*f s ± %.*f", digits, x, digits, err)
}

func cpuSeconds(x float64) string {
	if x < 0.1 {
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func contributors(parts []spikes.Part) string {
	var names []string
	for _, p := range parts[:min(len(parts), 5)] {
		names = append(names, fmt.Sprintf("%s %.0f %%", printable(p.Name, 60), 100*p.Share))
	}
	return strings.Join(names, ", ")
}

// cpuLine draws the machine's CPU in at most width columns, each the highest
// of its seconds, and below it where spikes are.
func cpuLine(res spikes.Result, width int) (line, marks string) {
	n := len(res.Cores)
	if n == 0 {
		return "", ""
	}
	const levels = "▁▂▃▄▅▆▇█"
	top := 0.0
	for _, c := range res.Cores {
		top = max(top, c)
	}
	first, last := res.Seconds[0], res.Seconds[n-1]
	width = min(width, int(last-first)+1)
	cells, marked, known := make([]float64, width), make([]bool, width), make([]bool, width)
	for i, c := range res.Cores {
		j := 0
		if last > first {
			j = min(int((res.Seconds[i]-first)/(last-first+1)*float64(width)), width-1)
		}
		cells[j], known[j] = max(cells[j], c), true
		marked[j] = marked[j] || res.Marks[i]
	}
	glyphs := []rune(levels)
	var a, b strings.Builder
	for j, c := range cells {
		switch {
		case !known[j]:
			a.WriteRune(' ') // not read: not low
		case top == 0:
			a.WriteRune(glyphs[0])
		default:
			a.WriteRune(glyphs[min(int(c/top*float64(len(glyphs))), len(glyphs)-1)])
		}
		if marked[j] {
			b.WriteByte('^')
		} else {
			b.WriteByte(' ')
		}
	}
	return a.String(), b.String()
}

// spikeRows is what `show RECORDING spikes` prints.
func spikeRows(res spikes.Result) *textTable {
	t := &textTable{header: []string{"WHAT", "KIND", "PERIOD s", "±", "FIRST s", "COUNT", "CPU s EACH", "CPU s", "OF A CORE", "NAME"}}
	for _, r := range res.Rows {
		period, off := "–", "–"
		if r.Kind == spikes.Repeats {
			period, off = fmt.Sprintf("%.3f", r.Period), fmt.Sprintf("%.3f", r.PeriodError)
		}
		t.add(r, r.What, r.Kind, period, off, fmt.Sprintf("%.1f", r.First), fmt.Sprint(r.Count), cpuSeconds(r.Each), fmt.Sprintf("%.2f", r.Total),
			fmt.Sprintf("%.1f %%", 100*r.Share), printable(r.Name, 80))
	}
	return t
}

func spikeTable(rec *record.Recording, in record.Window) (*textTable, error) {
	res, err := spikes.Find(rec, spikes.Options{Window: in})
	if err != nil {
		return nil, err
	}
	return spikeRows(res), nil
}

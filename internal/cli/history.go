package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/report"
)

// headlines are the indicators that history prints unless asked for others.
var headlines = []string{"throughput", "intent.last", "startup.p99", "cpu.total"}

func newHistoryCommand(env *Env) *cobra.Command {
	var format, out string
	var indicators []string
	var least float64
	var seed uint64
	var steps bool
	cmd := &cobra.Command{
		Use:   "history RECORDING…",
		Short: "Say when indicators changed over many runs, and what changed then",
		Long: `History orders recordings by time and finds where an indicator changed its level:
for each experiment, load and machine by itself, since runs that differ in one of
them say nothing of each other. A folder of recordings stands for all in it. A
change needs 5 runs on either side; beside it stands what its two neighbours
differ in: versions, flags, settings. Runs that are not valid are left out.

With --steps each argument is a step, in the order given, whenever its runs were
made: releases, or what was changed one after the other, such as the arms of a
case. Each is compared with the one before; a step needs 3 runs.

All series of an experiment together show a change where there is none with a
chance of at most 5 %.`,
		Example: `  kubedyno history runs/
  kubedyno history runs/ --indicator cpu.etcd,cpu.kube-apiserver
  kubedyno history runs/ --indicator all -o json
  kubedyno history --steps v1.35/ v1.36/ v1.37/ -o html --out releases.html
  kubedyno history runs/ -o html --out history.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Misusef("%s needs recordings, or a folder of them", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json", "csv", "html"); err != nil {
				return err
			}
			if err := htmlOut(format, out); err != nil {
				return err
			}
			if least < 0 {
				return Misusef("--least %g: want a percentage from 0 on", least)
			}
			s := &sides{}
			defer s.close()
			o := compare.HistoryOptions{MinEffect: least / 100, Seed: seed, Detectors: detectors.All}
			var runs []diagnose.Source
			for i, arg := range args {
				recs, err := s.each(args[i : i+1])
				if err != nil {
					return err
				}
				for _, r := range recs {
					runs = append(runs, r)
					if steps {
						o.Steps = append(o.Steps, filepath.Base(filepath.Clean(arg)))
					}
				}
			}
			h, err := compare.HistoryOf(runs, o)
			if err != nil {
				return err
			}
			if !slices.Contains(indicators, "all") {
				known := map[string]bool{}
				for _, s := range h.Series {
					known[s.Indicator] = true
				}
				for _, i := range indicators {
					if !known[i] && !slices.Contains(headlines, i) {
						return Misusef("no indicator %q in these recordings; 'all' prints what there is", i)
					}
				}
				h.Series = slices.DeleteFunc(h.Series, func(s compare.Series) bool { return !slices.Contains(indicators, s.Indicator) })
			}
			switch format {
			case "json":
				e := json.NewEncoder(env.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(h)
			case "html":
				return writePage(env, out, func(w io.Writer, o report.RenderOptions) error { return report.RenderHistory(w, h, o) })
			case "csv":
				return historyTable(h).print(env, format, 0)
			}
			printHistory(env, h)
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&indicators, "indicator", headlines, "indicators to print, by their names in 'compare -o json', or all")
	cmd.Flags().BoolVar(&steps, "steps", false, "each argument is a step, in the order given, whenever its runs were made")
	cmd.Flags().Float64Var(&least, "least", 5, "smallest change in % that is told")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the permutations that test a change")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, json, csv (a row a run and indicator) or html (one page, to --out)")
	cmd.Flags().StringVar(&out, "out", "", "`file` to write the page to")
	completeFormats(cmd, "text", "json", "csv", "html")
	_ = cmd.MarkFlagFilename("out", "html")
	return cmd
}

func printHistory(env *Env, h compare.History) {
	last := ""
	for _, s := range h.Series {
		about := fmt.Sprintf("%s on %s", s.Experiment, s.Machine)
		if key := about + s.Shape; key != last {
			if last != "" {
				fmt.Fprintln(env.Stdout)
			}
			last = key
			first, end := s.Points[0], s.Points[len(s.Points)-1]
			fmt.Fprintf(env.Stdout, "%s: %d runs from %s to %s\n", about, len(s.Points), cmp.Or(first.Step, first.At.UTC().Format("2006-01-02 15:04")), cmp.Or(end.Step, end.At.UTC().Format("2006-01-02 15:04")))
		}
		lo, hi := s.Points[0].Value, s.Points[0].Value
		for _, p := range s.Points {
			lo, hi = min(lo, p.Value), max(hi, p.Value)
		}
		fmt.Fprintf(env.Stdout, "  %-24s %s  %.3g…%.3g %s, n=%d\n", cutName(s.Name), seriesLine(s, lo, hi), lo, hi, s.Unit, len(s.Points))
		switch {
		case s.Note != "":
			fmt.Fprintf(env.Stdout, "    not assessed: %s\n", s.Note)
		case len(s.Steps) == 0:
			fmt.Fprintln(env.Stdout, "    ~ no change that these runs can show")
		}
		for _, st := range s.Steps {
			fmt.Fprintf(env.Stdout, "    %s  %s: %.3g → %.3g %s (×%.3g), p=%.4f, from run %s on\n", cmp.Or(s.Points[st.At].Step, s.Points[st.At].At.UTC().Format("2006-01-02 15:04")), st.Verdict, st.Before, st.After, s.Unit, st.Ratio, st.P, st.Run)
			for _, c := range st.Changed {
				fmt.Fprintf(env.Stdout, "      %s: %s → %s\n", c.Path, unset(c.Old), unset(c.New))
			}
			if len(st.Changed) == 0 {
				fmt.Fprintln(env.Stdout, "      nothing changed that the recordings show")
			}
		}
	}
	if len(h.Series) == 0 {
		fmt.Fprintln(env.Stdout, "No series: no valid run has these indicators.")
	}
	for _, l := range h.LeftOut {
		fmt.Fprintln(env.Stdout, "left out "+l)
	}
}

func unset(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

func cutName(s string) string {
	if len(s) > 24 {
		s, _, _ = strings.Cut(s, ",")
	}
	return s
}

// seriesLine draws a series, a bar before each change, and a gap between steps.
func seriesLine(s compare.Series, lo, hi float64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for i, p := range s.Points {
		switch {
		case slices.ContainsFunc(s.Steps, func(st compare.Step) bool { return st.At == i }):
			b.WriteRune('│')
		case i > 0 && p.Step != s.Points[i-1].Step:
			b.WriteRune(' ')
		}
		level := 0
		if hi > lo {
			level = int((p.Value - lo) / (hi - lo) * float64(len(blocks)-1))
		}
		b.WriteRune(blocks[level])
	}
	return b.String()
}

// historyRow is one run's value in CSV.
type historyRow struct {
	Experiment string  `json:"experiment"`
	Machine    string  `json:"machine"`
	Indicator  string  `json:"indicator"`
	Unit       string  `json:"unit"`
	Run        string  `json:"run"`
	At         string  `json:"at"`
	Value      float64 `json:"value"`
	Change     string  `json:"change"` // the verdict, at the first run after one
}

func historyTable(h compare.History) *textTable {
	t := &textTable{}
	for _, s := range h.Series {
		for i, p := range s.Points {
			row := historyRow{Experiment: s.Experiment, Machine: s.Machine, Indicator: s.Indicator, Unit: s.Unit, Run: p.Run, At: p.At.UTC().Format("2006-01-02T15:04:05Z"), Value: p.Value}
			for _, st := range s.Steps {
				if st.At == i {
					row.Change = string(st.Verdict)
				}
			}
			t.add(row)
		}
	}
	return t
}

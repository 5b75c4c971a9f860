package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
)

// versus stands between the recordings of two sides.
const versus = "vs"

// compareFlags are those of what sets sides beside each other.
type compareFlags struct {
	noise   []string
	wanted  float64
	details bool
	phase   string
	seed    uint64
}

func (f *compareFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.noise, "noise", nil, "recordings without a difference between them, or a `folder` of them: what they vary by is no difference; repeatable")
	fs.Float64Var(&f.wanted, "wanted", 5, "difference in % of which it is said how many runs would find it")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the permutations that are drawn, where there are too many to look at, and of the order of runs")
}

// sides are the recordings of a comparison, open.
type sides struct {
	baseline, candidate []*record.Recording
	options             compare.Options
	all                 []*record.Recording
}

func (s *sides) close() {
	for _, r := range s.all {
		r.Close()
	}
}

func (f *compareFlags) check() error {
	if f.wanted <= 0 {
		return Misusef("--wanted %g: want a difference above 0 %%", f.wanted)
	}
	return nil
}

func (f *compareFlags) open(args []string) (s *sides, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	s = &sides{options: compare.Options{Wanted: f.wanted / 100, Details: f.details, Phase: f.phase, Seed: f.seed, Detectors: detectors.All}}
	opened := s
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	base, cand := args[:1], args[1:]
	if i := slices.Index(args, versus); i >= 0 {
		base, cand = args[:i], args[i+1:]
	}
	if s.baseline, err = s.each(base); err != nil {
		return nil, err
	}
	if s.candidate, err = s.each(cand); err != nil {
		return nil, err
	}
	noise, err := s.each(f.noise)
	if err != nil {
		return nil, err
	}
	for _, r := range noise {
		s.options.Noise = append(s.options.Noise, diagnose.Source(r))
	}
	return s, nil
}

// each opens recordings, and those in folders of recordings.
func (s *sides) each(args []string) ([]*record.Recording, error) {
	dirs, err := recordingsIn(args)
	if err != nil {
		return nil, err
	}
	var recs []*record.Recording
	for _, dir := range dirs {
		rec, err := openRecording(dir)
		if err != nil {
			return nil, err
		}
		recs, s.all = append(recs, rec), append(s.all, rec)
	}
	return recs, nil
}

// recordingsIn are the recordings that are named, and those in folders that
// are none themselves.
func recordingsIn(args []string) ([]string, error) {
	var dirs []string
	for _, arg := range args {
		if _, err := os.Stat(filepath.Join(arg, record.MetaFile)); err == nil {
			dirs = append(dirs, arg)
			continue
		}
		within, err := filepath.Glob(filepath.Join(arg, "*", record.MetaFile))
		if err != nil || len(within) == 0 {
			dirs = append(dirs, arg) // opening it says what is wrong
			continue
		}
		for _, file := range within {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs, nil
}

// twoSides checks arguments: BASELINE… vs CANDIDATE…, or two recordings.
func twoSides(cmd *cobra.Command, args []string) error {
	i := slices.Index(args, versus)
	if i < 0 && len(args) == 2 || i > 0 && i < len(args)-1 && slices.Index(args[i+1:], versus) < 0 {
		return nil
	}
	return Misusef("%s needs two recordings, baseline and candidate, or several of each: BASELINE… %s CANDIDATE…", cmd.CommandPath(), versus)
}

// recordings compares what arguments name.
func (f *compareFlags) recordings(args []string) (compare.Comparison, error) {
	s, err := f.open(args)
	if err != nil {
		return compare.Comparison{}, err
	}
	defer s.close()
	return compare.Recordings(s.baseline, s.candidate, s.options)
}

// page writes a comparison of what arguments name as one page.
func (f *compareFlags) page(env *Env, out string, args []string, c compare.Comparison) error {
	s, err := f.open(args)
	if err != nil {
		return err
	}
	defer s.close()
	return writePage(env, out, func(w io.Writer, o report.RenderOptions) error {
		return report.RenderComparison(w, s.baseline, s.candidate, c, detectors.All, o, nil)
	})
}

func newCompareCommand(env *Env) *cobra.Command {
	var format string
	var flags compareFlags
	var turns turnsFlags
	cmd := &cobra.Command{
		Use:   "compare BASELINE… [vs] CANDIDATE…",
		Short: "Set recordings of two sides beside each other",
		Long: `Compare prints each indicator of both sides with its ratio. Two recordings need
no more; "vs" stands between several of each side, and a folder of recordings
stands for all that are in it.

With one run on a side there is no interval, and it says so. With several, each
ratio has one, and all rows together call a difference what is none with a chance
of at most 5 %: "~" is no difference that these runs can show, and below it says
how large it would have to be, and how many runs find a smaller one. --noise
takes runs without a difference: what they vary by is no difference either.

Where an indicator differs, functions, requests, lines of logs and the use of
resources are searched for what explains it.

With --run both sides are run first, on fresh control planes, in turns whose order
is random and balanced: an experiment with settings or a variant of each side, or
two experiments. The series ends when the answer is clear: an indicator differs,
or none can differ by --wanted; or when -n runs of each or the --budget are spent.
It may look after each pair, since intervals reckon with that. What does not count
is named, and run again. An interrupted series goes on with the same --out.

Exit codes: 0 fine, whatever differs; 1 failed or interrupted; 2 misused; 4 too
many runs are invalid.`,
		Example: `  kubedyno compare before after
  kubedyno compare before-* vs after-*
  kubedyno compare before-* vs after-* --noise same/ --wanted 2
  kubedyno compare before after -o json
  kubedyno compare before-* vs after-* -o html --out difference.html
  kubedyno compare --run a.yaml b.yaml -n 10 --budget 30m --out ab
  kubedyno compare --run density --nodes 20 --head-set kube-apiserver.env.GOGC=50`,
		Args: twoSides,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, "text", "json", "csv", "html"); err != nil {
				return err
			}
			if err := turns.checkPage(format); err != nil {
				return err
			}
			var c compare.Comparison
			var err error
			if turns.run {
				o, wrong := turns.series(cmd, env, &flags, args, func(c compare.Comparison) string { return c.Answer(flags.wanted / 100) })
				if wrong != nil {
					return wrong
				}
				if turns.dryRun {
					return turns.plan(cmd.Context(), env, o)
				}
				c, err = turns.inTurns(cmd.Context(), &flags, o)
			} else {
				c, err = flags.recordings(args)
			}
			if err != nil {
				return err
			}
			switch format {
			case "csv":
				err = comparisonTable(c).print(env, format, 0)
			case "html":
				return flags.page(env, turns.out, args, c)
			default:
				o := textOptions(env)
				o.Format = format
				err = report.WriteComparison(env.Stdout, o, c)
			}
			return errors.Join(err, ended(c.Turns))
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&flags.details, "details", true, "compare functions, requests, logs and the use of resources, too")
	cmd.Flags().StringVar(&flags.phase, "phase", "", "compare the functions of this phase only")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "comparison as text, json, csv (indicators) or html (one page, to --out)")
	completeFormats(cmd, "text", "json", "csv", "html")
	turns.register(cmd, true)
	return cmd
}

// comparisonRow is an indicator in CSV. What is not known is empty.
type comparisonRow struct {
	ID            string `json:"id"`
	Group         string `json:"group"`
	Name          string `json:"name"`
	Unit          string `json:"unit"`
	Baseline      string `json:"baseline_median"`
	BaselineLow   string `json:"baseline_low"`
	BaselineHigh  string `json:"baseline_high"`
	BaselineN     int    `json:"baseline_n"`
	Candidate     string `json:"candidate_median"`
	CandidateLow  string `json:"candidate_low"`
	CandidateHigh string `json:"candidate_high"`
	CandidateN    int    `json:"candidate_n"`
	Ratio         string `json:"ratio"`
	RatioLow      string `json:"ratio_low"`
	RatioHigh     string `json:"ratio_high"`
	P             string `json:"p"`
	PReport       string `json:"p_report"`
	Effect        string `json:"effect_sd"`
	Detectable    string `json:"detectable"`
	Verdict       string `json:"verdict"`
}

func comparisonTable(c compare.Comparison) *textTable {
	t := &textTable{}
	value := func(x *float64) string {
		if x == nil {
			return ""
		}
		return fmt.Sprintf("%.6g", *x)
	}
	for _, r := range c.Rows {
		row := comparisonRow{ID: r.ID, Group: string(r.Group), Name: r.Name, Unit: r.Unit, BaselineN: r.Baseline.N, CandidateN: r.Candidate.N,
			Baseline: value(r.Baseline.Value), Candidate: value(r.Candidate.Value), Ratio: value(r.Ratio), Detectable: value(r.Detectable), Verdict: string(r.Verdict)}
		if i := r.Baseline.Interval; i != nil {
			row.BaselineLow, row.BaselineHigh = value(&i.Lo), value(&i.Hi)
		}
		if i := r.Candidate.Interval; i != nil {
			row.CandidateLow, row.CandidateHigh = value(&i.Lo), value(&i.Hi)
		}
		if i := r.RatioInterval; i != nil {
			row.RatioLow, row.RatioHigh = value(&i.Lo), value(&i.Hi)
		}
		if x := r.Test; x != nil {
			row.P, row.PReport, row.Effect = value(&x.P), value(&x.Adjusted), value(&x.Effect)
		}
		t.add(row)
	}
	return t
}

// inert keeps a cell from being taken for a formula by a spreadsheet: names in
// recordings are whatever clients call themselves (OWASP, CSV injection).
func inert(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/convert/schedulerperf"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
)

func newConvertCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{Use: "convert", Short: "Make experiments of other tools' files"}
	cmd.AddCommand(newConvertSchedulerPerfCommand(env))
	return cmd
}

func newConvertSchedulerPerfCommand(env *Env) *cobra.Command {
	var s schedulerperf.Select
	var out string
	cmd := &cobra.Command{
		Use:   "scheduler-perf FILE",
		Short: "Make experiments of the workloads of Kubernetes' scheduler_perf",
		Long: `Convert reads a performance-config.yaml of test/integration/scheduler_perf in
Kubernetes' source, with the templates that it names, and makes an experiment of
each test and workload. It says of each what was mapped and what is not done as
upstream does it, or refuses it and names the operation and the reason: what
cannot be said in full is not converted in part.

A single workload goes to stdout; several need --out.

Exit codes: 0 something was converted; 2 nothing was.`,
		Example: `  kubedyno convert scheduler-perf misc/performance-config.yaml --test SchedulingBasic --workload 5000Nodes > basic.yaml
  kubedyno convert scheduler-perf misc/performance-config.yaml --labels performance,-short --out experiments`,
		Args: exactlyOne("FILE", "a performance-config.yaml of scheduler_perf"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := schedulerperf.Read(args[0])
			if err != nil {
				return Misuse(err)
			}
			all := f.Convert(s)
			if len(all) == 0 {
				return Misusef("%s has no such workload: it has %s", args[0], strings.Join(testNames(f), ", "))
			}
			return writeConversions(env, all, out)
		},
	}
	cmd.Flags().StringVar(&s.Test, "test", "", "only this test")
	cmd.Flags().StringVar(&s.Workload, "workload", "", "only workloads of this name")
	cmd.Flags().StringVar(&s.Labels, "labels", "", "only workloads with these labels, and without those after a dash: performance,-short")
	cmd.Flags().StringVar(&out, "out", "", "`folder` to write the experiments to")
	complete := func(of func(*schedulerperf.File) []string) cobra.CompletionFunc {
		return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			f, err := schedulerperf.Read(args[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return of(f), cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = cmd.RegisterFlagCompletionFunc("test", complete(testNames))
	_ = cmd.RegisterFlagCompletionFunc("workload", complete(func(f *schedulerperf.File) []string {
		var names []string
		for _, t := range f.Tests {
			if s.Test == "" || s.Test == t.Name {
				for _, w := range t.Workloads {
					names = append(names, w.Name)
				}
			}
		}
		return names
	}))
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

func testNames(f *schedulerperf.File) []string {
	var names []string
	for _, t := range f.Tests {
		names = append(names, t.Name)
	}
	return names
}

// writeConversions writes what was converted, and says of each what became of
// it: a line on stdout, or on stderr where the experiment itself goes to stdout.
func writeConversions(env *Env, all []schedulerperf.Conversion, out string) error {
	converted := 0
	for i := range all {
		c := &all[i]
		if c.YAML != nil {
			if err := checkConverted(c); err != nil {
				c.YAML, c.Refused = nil, err.Error()
				continue
			}
			converted++
		}
	}
	lines := env.Stdout
	if out == "" {
		lines = env.Stderr
		if converted > 1 {
			return Misusef("%d workloads can be converted: name a folder with --out, or one of them with --test and --workload", converted)
		}
	} else if converted > 0 {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("make a folder for experiments: %w", err)
		}
	}
	for _, c := range all {
		name := c.Test + "/" + c.Workload
		if c.YAML == nil {
			fmt.Fprintf(lines, "refused    %s: %s\n", name, c.Refused)
			continue
		}
		where := ""
		if out == "" {
			if _, err := env.Stdout.Write(c.YAML); err != nil {
				return err
			}
		} else {
			path := filepath.Join(out, c.FileName)
			if err := os.WriteFile(path, c.YAML, 0o644); err != nil {
				return fmt.Errorf("write experiment: %w", err)
			}
			where = " → " + path
		}
		text := fmt.Sprintf("converted  %s: %s%s", name, strings.Join(c.Mapped, ", "), where)
		if len(c.Changed) > 0 {
			text += "; changed: " + strings.Join(c.Changed, "; ")
		}
		fmt.Fprintln(lines, text)
	}
	fmt.Fprintf(env.Stderr, "%d converted, %d refused\n", converted, len(all)-converted)
	if converted == 0 {
		return silently(ExitMisused)
	}
	return nil
}

// checkConverted holds what was converted to the API's own types.
func checkConverted(c *schedulerperf.Conversion) error {
	e, err := experiment.Parse(c.FileName, c.YAML)
	if err == nil {
		err = load.Check(e)
	}
	var ps experiment.Problems
	if errors.As(err, &ps) && len(ps) > 0 {
		return fmt.Errorf("the experiment would be refused: %s: %s", ps[0].Path, ps[0].Text)
	}
	return err
}

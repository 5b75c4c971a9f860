package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/functions"
)

// shownFrames are the innermost frames that a text table has of a stack.
const shownFrames = 6

func newStacksCommand(env *Env) *cobra.Command {
	var where stretchFlags
	var format, out string
	var limit int
	formats := []string{"text", "folded", "pprof"}
	cmd := &cobra.Command{
		Use:   "stacks RECORDING",
		Short: "Show what every CPU of the machine was doing, in any stretch of seconds",
		Long: `Stacks prints the call stacks that were sampled some 99 times a second on every CPU:
the busiest processes and the hottest stacks as text, all of them folded (a line
a stack, as flame graph tools read it), or as a profile that go tool pprof opens,
with the labels component, command and pid.`,
		Example: `  kubedyno stacks r --phase load
  kubedyno stacks r --from 10s --to 15s --component etcd -o folded
  kubedyno stacks r -o pprof --out stacks.pb.gz`,
		Args:              exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		ValidArgsFunction: completeFolders,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, formats...); err != nil {
				return err
			}
			if format == "pprof" && out == "" && env.StdoutTTY {
				return Misusef("a profile is not for a terminal: name a file with --out, or pipe it")
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			in, err := where.window(rec)
			if err != nil {
				return err
			}
			samples, err := functions.Samples(rec, where.component, in)
			if err != nil {
				return notAssessed("stacks", err)
			}
			period := functions.Period(rec)
			return writeOut(env, out, func(w io.Writer) error {
				switch format {
				case "folded":
					return functions.Folded(w, samples)
				case "pprof":
					return functions.Profile(samples, in, period).Write(w)
				}
				to := *env
				to.Stdout = w
				return printStacks(&to, samples, period, in.Seconds(), limit)
			})
		},
	}
	where.register(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, folded or pprof")
	cmd.Flags().StringVar(&out, "out", "", "write to this file")
	cmd.Flags().IntVar(&limit, "limit", 20, "most rows of each text table; 0 prints all")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeOut writes to a file, which appears when it is whole, or to stdout.
func writeOut(env *Env, name string, write func(io.Writer) error) error {
	if name == "" {
		return write(env.Stdout)
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".stacks-*")
	if err != nil {
		return Misuse(err)
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(tmp.Name(), name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	fmt.Fprintln(env.Stdout, name)
	return nil
}

// printStacks prints the busiest processes and the hottest stacks.
func printStacks(env *Env, samples []functions.Sample, period, seconds float64, limit int) error {
	total := 0
	for _, s := range samples {
		total += s.Count
	}
	fmt.Fprintf(env.Stdout, "%.2f CPU-s in %.1f s, from %d samples\n\n", float64(total)*period, seconds, total)
	processes := &textTable{header: []string{"COMPONENT", "PID", "COMMAND", "CPU s", "%", "KERNEL %"}}
	for _, p := range functions.Processes(samples, period) {
		processes.add(p, dash(p.Component), fmt.Sprint(p.PID), p.Command, fmt.Sprintf("%.2f", p.CPUSeconds), fmt.Sprintf("%.1f", p.Share*100), fmt.Sprintf("%.0f", p.Kernel*100))
	}
	if err := processes.print(env, "text", limit); err != nil {
		return err
	}
	// The same stack in several threads and processes of a component is one.
	type key struct{ component, frames string }
	at := map[key]int{}
	var hot []functions.Sample
	for _, s := range samples {
		k := key{s.Component, s.Frames}
		i, ok := at[k]
		if !ok {
			i = len(hot)
			at[k] = i
			hot = append(hot, s)
			continue
		}
		hot[i].Count += s.Count
	}
	sortSamples(hot)
	fmt.Fprintln(env.Stdout)
	stacks := &textTable{header: []string{"CPU s", "%", "COMPONENT", "STACK, INNERMOST FIRST", "NOTE"}}
	for _, s := range hot {
		names := strings.Split(s.Frames, ";")
		var shown []string
		for i := len(names) - 1; i >= 0 && len(shown) < shownFrames; i-- {
			shown = append(shown, shortFunction(names[i]))
		}
		line := strings.Join(shown, " < ")
		if len(names) > shownFrames {
			line += " < …"
		}
		owner := s.Component
		if owner == "" {
			owner = "(" + s.Command + ")"
		}
		stacks.add(s, fmt.Sprintf("%.2f", float64(s.Count)*period), fmt.Sprintf("%.1f", 100*float64(s.Count)/float64(max(1, total))), owner, line, functions.Explain(names[len(names)-1]))
	}
	return stacks.print(env, "text", limit)
}

// shortFunction leaves the folders out of a Go function's package.
func shortFunction(name string) string {
	head, _, _ := strings.Cut(name, "[")
	if i := strings.LastIndexByte(head, '/'); i >= 0 {
		return name[i+1:]
	}
	return name
}

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/report"
)

// resultFormats are how what a run says can be printed.
var resultFormats = []string{"text", "json", report.JUnit, report.GoBench, report.PerfDash}

// isResult reports whether the format is one that other tools read.
func isResult(format string) bool {
	return format == report.JUnit || format == report.GoBench || format == report.PerfDash
}

func completeFormats(cmd *cobra.Command, formats ...string) {
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// writeResults writes recordings, and those of proofs, in a format that other
// tools read, to a file or to stdout.
func writeResults(env *Env, args []string, format, out string) error {
	var dirs []string
	for _, arg := range args {
		if _, err := os.Stat(filepath.Join(arg, compare.ProofFile)); err != nil {
			dirs = append(dirs, arg)
			continue
		}
		p, err := compare.ReadProof(arg)
		if err != nil {
			return Misuse(err)
		}
		dirs = append(dirs, p.Recordings(arg)...)
	}
	var results []report.Result
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			continue
		}
		rec, d, err := diagnoseFolder(dir)
		if err != nil {
			return err
		}
		results = append(results, report.Result{Meta: rec.Meta(), Diagnosis: d})
		if err := rec.Close(); err != nil {
			return err
		}
	}
	if out == "" {
		return report.WriteResults(env.Stdout, format, results...)
	}
	var b bytes.Buffer
	if err := report.WriteResults(&b, format, results...); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".report-*")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write report %s: %w", out, err)
	}
	if err := os.Rename(tmp.Name(), out); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintln(env.Stdout, out)
	return nil
}

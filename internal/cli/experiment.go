package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/fault"
	"github.com/kubedyno/kubedyno/load"
)

func newExperimentCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{Use: "experiment", Short: "Begin, explain, print and check experiments"}
	cmd.AddCommand(newExplainCommand(env), newSchemaCommand(env), newInitCommand(env))
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List the built-in experiments", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, b := range experiment.Builtins() {
				fmt.Fprintf(env.Stdout, "%-16s %s\n", b.Name, b.Summary)
			}
			return nil
		},
	})
	var f runFlags
	show := &cobra.Command{
		Use: "show EXPERIMENT", Short: "Print an experiment with all settings applied, ready to copy",
		Example: "  kubedyno experiment show density --nodes 100 > mine.yaml",
		Args:    exactlyOne("EXPERIMENT", "a built-in name or a file"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := f.load(cmd, args[0])
			if err != nil {
				return Misuse(err)
			}
			data, err := e.YAML()
			if err != nil {
				return err
			}
			_, err = env.Stdout.Write(data)
			return err
		},
	}
	f.register(show)
	cmd.AddCommand(show)
	cmd.AddCommand(&cobra.Command{
		Use: "check FILE…", Short: "Check experiment files without running them",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Misusef("%s needs at least one file", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				e, err := experiment.ParseFile(name)
				if err == nil {
					err = fault.Inject(e, experiment.Sets{})
				}
				if err == nil {
					err = load.Check(e)
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(env.Stdout, "%s: fine\n", name)
			}
			if len(errs) > 0 {
				return Misuse(errors.Join(errs...))
			}
			return nil
		},
	})
	return cmd
}

func newExplainCommand(env *Env) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "explain EXPERIMENT",
		Short: "Say in plain words what an experiment will do",
		Long: `Explain prints what will happen, in order: phases, how many objects and pods, at
which rate, how long at least, and what is judged. It touches nothing.`,
		Example: `  kubedyno experiment explain density --nodes 100
  kubedyno experiment explain mine.yaml --variant tuned`,
		Args: exactlyOne("EXPERIMENT", "a built-in name or a file"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return builtinNames(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := f.load(cmd, args[0])
			if err != nil {
				return Misuse(err)
			}
			return explain(env, e)
		},
	}
	f.register(cmd)
	return cmd
}

// explain prints what an experiment will do, and on a cluster that is not ours
// what its load must be allowed.
func explain(env *Env, e *experiment.Experiment) error {
	if _, err := fmt.Fprint(env.Stdout, e.Explain()); err != nil || !e.Cluster.Existing {
		return err
	}
	fmt.Fprintln(env.Stdout, "The load needs, cluster-wide:")
	for _, r := range load.Rules(e) {
		resource := r.Resources[0]
		if r.APIGroups[0] != "" {
			resource += " of " + r.APIGroups[0]
		}
		fmt.Fprintf(env.Stdout, "  %s %s\n", strings.Join(r.Verbs, ", "), resource)
	}
	return nil
}

func newSchemaCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of experiment files, for editors",
		Long: `Schema prints a JSON Schema (draft 2020-12) of experiment files. With the YAML
language server of an editor, it completes and explains keys:

  # yaml-language-server: $schema=experiment.schema.json`,
		Example: "  kubedyno experiment schema > experiment.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			data, err := experiment.Schema()
			if err != nil {
				return err
			}
			_, err = env.Stdout.Write(data)
			return err
		},
	}
}

func newInitCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented experiment to start from",
		Long:  "Init writes a commented experiment to FILE (default: experiment.yaml). It overwrites nothing.",
		Example: `  kubedyno experiment init mine.yaml
  kubedyno experiment explain mine.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "experiment.yaml"
			if len(args) == 1 {
				name = args[0]
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			switch {
			case errors.Is(err, fs.ErrExist):
				return Misusef("%s is there already and is not overwritten", name)
			case err != nil:
				return Misuse(fmt.Errorf("write a starter: %w", err))
			}
			if _, err := f.Write(experiment.Starter()); err != nil {
				return errors.Join(fmt.Errorf("write a starter: %w", err), f.Close())
			}
			if err := f.Close(); err != nil {
				return fmt.Errorf("write a starter: %w", err)
			}
			fmt.Fprintf(env.Stdout, "%s: a commented experiment; see kubedyno experiment explain %s\n", name, name)
			return nil
		},
	}
}

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/progress"
	"github.com/kubedyno/kubedyno/run"
)

// observeFlags are what `run` and `record` have in common.
type observeFlags struct {
	level string
	apps  []string
}

func (f *observeFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.level, "observe", "", "how closely to watch: minimal, default or full")
	fs.StringArrayVar(&f.apps, "app", nil, "watch a process of your own like a component, `NAME=URL[,pid=N][,log=FILE]`; URL serves /metrics and /debug/pprof; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("observe", cobra.FixedCompletions([]string{"minimal", "default", "full"}, cobra.ShellCompDirectiveNoFileComp))
}

// apply changes what an experiment observes; whoever calls it validates.
func (f *observeFlags) apply(o *experiment.Observe) error {
	if f.level != "" {
		switch o.Level = experiment.Level(f.level); o.Level {
		case experiment.LevelMinimal, experiment.LevelDefault, experiment.LevelFull:
		default:
			return fmt.Errorf("--observe %s: want minimal, default or full", f.level)
		}
	}
	for _, text := range f.apps {
		app, err := parseApp(text)
		if err != nil {
			return err
		}
		o.Apps = append(o.Apps, app)
	}
	return nil
}

func parseApp(text string) (experiment.App, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || name == "" || rest == "" {
		return experiment.App{}, fmt.Errorf("--app %s: want NAME=URL[,pid=N][,log=FILE]", text)
	}
	app := experiment.App{Name: name}
	for _, part := range strings.Split(rest, ",") {
		key, value, pair := strings.Cut(part, "=")
		switch {
		case pair && key == "pid":
			if _, err := fmt.Sscan(value, &app.PID); err != nil || app.PID <= 0 {
				return app, fmt.Errorf("--app %s: %q is not the number of a process", text, value)
			}
		case pair && key == "log":
			app.Log = value
		case app.URL == "":
			app.URL = part
		default:
			return app, fmt.Errorf("--app %s: %q is neither pid=N nor log=FILE", text, part)
		}
	}
	return app, nil
}

func newRecordCommand(env *Env) *cobra.Command {
	var (
		f    observeFlags
		o    run.RecordOptions
		out  string
		last time.Duration
	)
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Observe a lab or an existing cluster without loading it",
		Long: `Record watches a control plane at its own work and writes a recording: of a lab
that 'kubedyno lab up' started, or of the cluster of a kubeconfig. It changes
nothing there. Without --for it goes on until Ctrl-C.

What a kubeconfig does not let it see is noted in the recording as gaps, with
what would fill them.`,
		Example: `  kubedyno record --for 5m --out r
  kubedyno record --name mylab --observe full
  kubedyno record --for 1m --kubeconfig ~/.kube/config --app my-controller=http://127.0.0.1:8080`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Misusef("%s takes no arguments, got %q; see '%s --help'", cmd.CommandPath(), args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 || last > 0 && last < time.Second {
				return Misusef("--for %v: at least 1s is needed", last)
			}
			o.Existing = o.Kubeconfig != "" || o.Context != ""
			if o.Existing && o.Lab != "" {
				return Misusef("--name is for labs, --kubeconfig for existing clusters: give one of them")
			}
			// The defaults and rules are those of an experiment's file.
			e, err := experiment.Builtin("density", nil)
			if err != nil {
				return err
			}
			if err := f.apply(&e.Observe); err != nil {
				return Misuse(err)
			}
			if err := e.Validate(); err != nil {
				return Misuse(err)
			}
			if !o.Existing { // known before a folder is made
				if _, err := lab.Open("", o.Lab); err != nil {
					return labError(err)
				}
			}
			if out == "" {
				out = "record-" + env.Now().UTC().Format("20060102T150405Z")
			}
			bar := progress.New(env.Stderr, env.StderrTTY, env.Width, env.Now)
			defer bar.Done()
			bar.Note("recording to " + out)
			o.For, o.Observe = last, e.Observe
			o.Out, o.Executable, o.Tool, o.Watch, o.Log, o.Now = out, env.Executable, Version(), watch{bar}, env.Log, env.Now
			if err := run.Record(cmd.Context(), o); err != nil {
				return err
			}
			bar.Done()
			fmt.Fprintf(env.Stdout, "recorded to %s; look with\n  kubedyno diagnose %s\n  kubedyno use %s\n  kubedyno show %s processes\n", out, out, out, out)
			return nil
		},
	}
	fs := cmd.Flags()
	f.register(cmd)
	fs.DurationVar(&last, "for", 0, "for how long, such as 5m (default: until Ctrl-C)")
	fs.StringVar(&o.Lab, "name", "", "lab to watch (default: the only one)")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "watch the existing cluster of this kubeconfig")
	fs.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
	fs.StringVar(&out, "out", "", "`folder` of the recording (default: record- and the time)")
	return cmd
}

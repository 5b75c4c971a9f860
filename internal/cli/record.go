package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster/access"
	"github.com/kubedyno/kubedyno/cluster/existing"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/progress"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/run"
)

// observeFlags are what `run` and `record` have in common.
type observeFlags struct {
	level               string
	apps                []string
	auditLog, serverLog string
}

func (f *observeFlags) register(cmd *cobra.Command) {
	f.registerLab(cmd)
	f.registerCluster(cmd)
}

// registerCluster has those of clusters that are there already.
func (f *observeFlags) registerCluster(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.auditLog, "audit-log", "", "audit log `file` of an existing cluster, JSON lines, where it can be read from here")
	fs.StringVar(&f.serverLog, "server-log", "", "log `file` of an existing cluster's API server at -v=3 or above, in place of an audit log")
}

// registerLab has the flags that mean something to a lab.
func (f *observeFlags) registerLab(cmd *cobra.Command) {
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

		check, rbac bool
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
  kubedyno record --check --kubeconfig ~/.kube/config     # what may this user see?
  kubedyno record --rbac --kubeconfig ~/.kube/config      # the least RBAC for the rest
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
			if check || rbac {
				if !o.Existing {
					return Misusef("--check and --rbac are about an existing cluster: give --kubeconfig or --context")
				}
				return checkAccess(cmd.Context(), env, o.Kubeconfig, o.Context, rbac)
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
			defer keepSmall()()
			bar := progress.New(env.Stderr, env.StderrTTY, env.Width, env.Now)
			defer bar.Done()
			bar.Note("recording to " + out)
			o.For, o.Observe = last, e.Observe
			o.AuditLog, o.ServerLog = f.auditLog, f.serverLog
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
	fs.BoolVar(&check, "check", false, "record nothing: print what this user may see, and what each further grant would add")
	fs.BoolVar(&rbac, "rbac", false, "record nothing: print the least RBAC that adds what is missing")
	fs.StringVar(&out, "out", "", "`folder` of the recording (default: record- and the time)")
	return cmd
}

// checkAccess tells what a kubeconfig's user may see.
func checkAccess(ctx context.Context, env *Env, kubeconfig, contextName string, rbac bool) error {
	c, err := existing.Connect(ctx, kubeconfig, contextName)
	if err != nil {
		return err
	}
	defer c.Close()
	rc, err := c.ControlPlane().RESTConfig("collect")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("check access: %w", err)
	}
	g, err := access.Check(ctx, client, access.Needs())
	if err != nil {
		return err
	}
	text, err := g.RBAC()
	if err != nil {
		return err
	}
	if rbac {
		if text == "" {
			fmt.Fprintf(env.Stderr, "%s lacks nothing.\n", g.User)
		}
		fmt.Fprint(env.Stdout, text)
		return nil
	}
	fmt.Fprintf(env.Stdout, "%s (%s) at %s\n\n", g.User, strings.Join(g.Groups, ", "), c.ControlPlane().Server)
	t := &textTable{header: accessHeader}
	missing := 0
	for _, grant := range g.List {
		a := record.Access{What: grant.What, Collector: grant.Collector, Grant: grant.Target(), Allowed: grant.Allowed, Adds: grant.Adds}
		t.add(a, accessCells(a)...)
		if !grant.Allowed {
			missing++
		}
	}
	if err := t.print(env, "text", 0); err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, "\nMetrics, profiles and logs of other components: not through a kubeconfig. Run kubedyno where they run, or declare their addresses with --app.")
	if missing > 0 {
		fmt.Fprintf(env.Stdout, "The least RBAC for the %d that are missing: add --rbac.\n", missing)
	}
	return nil
}

var accessHeader = []string{"MAY", "SEE", "GRANT", "ADDS"}

func accessCells(a record.Access) []string {
	may := "no"
	if a.Allowed {
		may = "yes"
	}
	return []string{may, a.What, a.Grant, a.Adds}
}

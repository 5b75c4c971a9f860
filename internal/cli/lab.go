package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
)

func newLabCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Start, look at and stop private control planes on this machine",
		Long: `A lab is a private Kubernetes control plane on this machine: etcd,
kube-apiserver, kube-controller-manager and kube-scheduler as processes on
loopback, with certificates of their own. ` + "`kubedyno run`" + ` starts one for itself;
these commands are for one that stays.`,
		Example: `  kubedyno lab up --nodes 10
  kubedyno lab kubectl -- get nodes
  eval "$(kubedyno lab env)"
  kubedyno lab down`,
	}
	cmd.AddCommand(
		newLabUpCommand(env), newLabDownCommand(env), newLabListCommand(env), newLabStatusCommand(env),
		newLabPauseCommand(env), newLabUnpauseCommand(env), newLabKubectlCommand(env), newLabEnvCommand(env),
	)
	return cmd
}

// labError marks what was the caller's mistake.
func labError(err error) error {
	var m *lab.MisuseError
	if errors.As(err, &m) {
		return Misuse(err)
	}
	return err
}

// nameArg is the lab that an optional argument names; "" means the only one.
func nameArg(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return ""
}

func newLabUpCommand(env *Env) *cobra.Command {
	var name, profile, traffic string
	var nodes int
	var sets []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab that stays until `kubedyno lab down`",
		Example: `  kubedyno lab up
  kubedyno lab up --name slow --set kube-apiserver.cpu=0.5
  kubedyno lab up --profile tuned --set kube-scheduler.args.kube-api-qps=15`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			overrides, err := labOverrides(sets)
			if err != nil {
				return Misuse(err)
			}
			if nodes < 0 {
				return Misusef("--nodes %d: cannot be negative", nodes)
			}
			if name == "" {
				return Misusef("--name is empty")
			}
			if !slices.Contains(hollow.Traffics(), traffic) {
				return Misusef("--traffic %s: want %s", traffic, strings.Join(hollow.Traffics(), " or "))
			}
			state, err := lab.Up(cmd.Context(), lab.Config{
				Name: name, Profile: profile, Overrides: overrides, Log: env.Log,
				OnEvent: func(ev lab.Event) {
					if ev.Event == lab.EventServing {
						fmt.Fprintf(env.Stderr, "%s answers after %.1f s\n", ev.Component, ev.Seconds)
					}
				},
			})
			if err != nil {
				return labError(err)
			}
			if nodes > 0 {
				if err := addNodes(cmd.Context(), env, state, nodes, hollow.Traffic(traffic)); err != nil {
					// Half a lab is not what was asked for. Ctrl-C must not
					// leave it either.
					stop, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 30*time.Second)
					defer cancel()
					return errors.Join(err, state.Down(stop))
				}
			}
			fmt.Fprintf(env.Stdout, "lab %s is up: Kubernetes %s, profile %s, API ready after %.1f s, %s\n",
				state.Name, state.ControlPlane.Version, state.Profile, state.APIReady, state.ControlPlane.Server)
			hint := ""
			if state.Name != "lab" {
				hint = " --name " + state.Name
			}
			fmt.Fprintf(env.Stdout, "  kubedyno lab kubectl%s -- get nodes\n  eval \"$(kubedyno lab env%s)\"\n  kubedyno lab down %s\n",
				hint, strings.TrimPrefix(hint, " --name"), state.Name)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&name, "name", "lab", "name of the lab")
	fs.StringVar(&profile, "profile", lab.DefaultProfile, "component flags to start from: "+strings.Join(lab.Profiles(), " or "))
	fs.IntVar(&nodes, "nodes", 0, "number of hollow nodes")
	fs.StringVar(&traffic, "traffic", string(hollow.Kubelet), "what hollow nodes say: "+strings.Join(hollow.Traffics(), " or "))
	fs.StringArrayVar(&sets, "set", nil, "change a component, PATH=VALUE: <component>.args.<flag>, .env.<NAME>, .binary, .cpu")
	_ = cmd.RegisterFlagCompletionFunc("traffic", cobra.FixedCompletions(hollow.Traffics(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(lab.Profiles(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func labOverrides(sets []string) (map[string]lab.Override, error) {
	parsed, err := experiment.ParseSets(sets)
	if err != nil {
		return nil, err
	}
	if err := parsed.ComponentsOnly(); err != nil {
		return nil, err
	}
	overrides := map[string]lab.Override{}
	for name, c := range parsed.Components {
		overrides[name] = lab.Override{Args: c.Args, Env: c.Env, Binary: c.Binary, CPU: c.CPU, Config: c.Config, Off: c.Off, SyncDelay: c.SyncDelay, Latency: c.Latency, Files: uint64(c.Files)}
	}
	return overrides, nil
}

// nodesTimeout bounds the wait for n nodes to be ready.
func nodesTimeout(n int) time.Duration { return time.Minute + time.Duration(n)*100*time.Millisecond }

// addNodes starts hollow nodes in a lab and waits until they are ready.
func addNodes(ctx context.Context, env *Env, state *lab.State, n int, traffic hollow.Traffic) error {
	cp := state.ControlPlane
	config, err := json.Marshal(hollow.Config{
		Traffic:    traffic,
		Kubeconfig: cp.Kubeconfigs.Admin,
		Server:     cp.Server,
		CAFile:     cp.CA,
		NodeCA:     &hollow.KeyPair{CertFile: cp.NodeCA.CertFile, KeyFile: cp.NodeCA.KeyFile},
		Nodes:      n,
		Pprof:      true,
	})
	if err != nil {
		return err
	}
	if _, err := state.StartHollow(ctx, config); err != nil {
		return labError(err)
	}
	cfg, err := cp.RESTConfig("admin")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nodesTimeout(n), fmt.Errorf("not all ready after %v", nodesTimeout(n)))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		fail(diedHollow(ctx, state.Name))
	}()
	begin := time.Now()
	ready := map[string]bool{}
	allReady := errors.New("all are ready")
	look := func(o any) {
		if node, ok := o.(*corev1.Node); ok && isReady(node) {
			if ready[node.Name] = true; len(ready) >= n {
				fail(allReady)
			}
		}
	}
	// A watch, as thousands of nodes listed again and again would slow down
	// what is waited for.
	_, nodes := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }},
	})
	nodes.RunWithContext(ctx)
	if err := context.Cause(ctx); !errors.Is(err, allReady) {
		return fmt.Errorf("hollow nodes: %d of %d are ready: %w", len(ready), n, err)
	}
	fmt.Fprintf(env.Stderr, "%d nodes ready after %.1f s\n", n, time.Since(begin).Seconds())
	return nil
}

// diedHollow waits until the lab's hollow nodes end by themselves, and says
// why; nil once ctx has ended.
func diedHollow(ctx context.Context, name string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		now, err := lab.Open("", name)
		if err != nil {
			continue
		}
		for _, p := range now.Processes {
			if p.Name == lab.Hollow && p.Error != "" {
				return fmt.Errorf("hollow nodes ended (%s): %s", p.Error, strings.Join(p.Log, "; "))
			}
		}
	}
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func newLabDownCommand(env *Env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [NAME]",
		Short: "Stop a lab and remove everything of it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all {
				s, err := lab.Open("", nameArg(args))
				if err == nil {
					err = s.Down(cmd.Context())
				}
				if err != nil {
					return labError(err)
				}
				fmt.Fprintf(env.Stdout, "lab %s is down\n", s.Name)
				return nil
			}
			if len(args) > 0 {
				return Misusef("--all and a name exclude each other")
			}
			labs, err := lab.List("")
			if err != nil {
				return err
			}
			var errs []error
			for _, s := range labs {
				if s.OfRunningCommand() {
					fmt.Fprintf(env.Stderr, "lab %s belongs to a command that is running (pid %d) and stays\n", s.Name, s.Owner.PID)
					continue
				}
				if err := s.Down(cmd.Context()); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(env.Stdout, "lab %s is down\n", s.Name)
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all labs that no command is using")
	return cmd
}

// outputFlag adds -o text|json to a command.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "text", "format: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

func checkOutput(format string) error {
	if format != "text" && format != "json" {
		return Misusef("-o %s: the formats are text and json", format)
	}
	return nil
}

func printJSON(env *Env, v any) error {
	enc := json.NewEncoder(env.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func newLabListCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List labs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			labs, err := lab.List("")
			if err != nil {
				return err
			}
			if format == "json" {
				if labs == nil {
					labs = []*lab.State{}
				}
				return printJSON(env, labs)
			}
			if len(labs) == 0 {
				fmt.Fprintln(env.Stderr, "no lab; `kubedyno lab up` starts one")
				return nil
			}
			w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tPHASE\tPROFILE\tAGE\tSERVER\tOWNER")
			for _, s := range labs {
				owner, server := "itself", "-"
				if s.Mode == "run" {
					owner = "pid " + strconv.Itoa(s.Owner.PID)
				}
				if s.ControlPlane != nil {
					server = s.ControlPlane.Server
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Phase, s.Profile, age(env, s.Created), server, owner)
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func age(env *Env, t time.Time) string { return env.Now().Sub(t).Round(time.Second).String() }

func newLabStatusCommand(env *Env) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show a lab's processes, and the last words of those that ended",
		Long: `Status shows a lab's processes, and the last words of those that ended by
themselves. It ends with 3 where a component or the lab's keeper is dead.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			s, err := lab.Open("", nameArg(args))
			if err != nil {
				return labError(err)
			}
			if format == "json" {
				err = printJSON(env, s)
			} else {
				err = printStatus(env, s)
			}
			if err == nil && (s.Phase == lab.PhaseDegraded || s.Phase == lab.PhaseDead) {
				return silently(ExitBadNews)
			}
			return err
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func printStatus(env *Env, s *lab.State) error {
	fmt.Fprintf(env.Stdout, "lab %s: %s, profile %s, %s old\n", s.Name, s.Phase, s.Profile, age(env, s.Created))
	if s.ControlPlane != nil {
		fmt.Fprintf(env.Stdout, "Kubernetes %s at %s\n", s.ControlPlane.Version, s.ControlPlane.Server)
	}
	if s.Phase == lab.PhaseDead {
		fmt.Fprintf(env.Stdout, "its keeper (pid %d) is dead, and its processes with it; `kubedyno lab down %s` removes what is left\n", s.Keeper.PID, s.Name)
	}
	fmt.Fprintln(env.Stdout)
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tPID\tSTATE\tSINCE\tCPU QUOTA\tLOG")
	for _, p := range s.Processes {
		quota := "-"
		if s.ControlPlane != nil {
			if c := s.ControlPlane.Component(p.Name); c != nil && c.CPU > 0 {
				quota = strconv.FormatFloat(c.CPU, 'g', -1, 64)
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", p.Name, p.PID, p.State, age(env, p.Since), quota, p.LogFile)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range s.Processes {
		if p.Error == "" {
			continue
		}
		fmt.Fprintf(env.Stdout, "\n%s ended by itself (%s). Its last lines:\n", p.Name, p.Error)
		for _, line := range p.Log {
			fmt.Fprintf(env.Stdout, "  %s\n", line)
		}
	}
	return nil
}

func newLabPauseCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "pause [NAME]",
		Short: "Freeze all processes of a lab",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onLab(args, func(s *lab.State) error {
				if err := s.Pause(cmd.Context()); err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "lab %s is paused\n", s.Name)
				return nil
			})
		},
	}
}

func newLabUnpauseCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "unpause [NAME]",
		Short: "Let a paused lab go on",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onLab(args, func(s *lab.State) error {
				if err := s.Unpause(cmd.Context()); err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "lab %s goes on\n", s.Name)
				return nil
			})
		},
	}
}

func onLab(args []string, do func(*lab.State) error) error {
	s, err := lab.Open("", nameArg(args))
	if err == nil {
		err = do(s)
	}
	return labError(err)
}

func newLabKubectlCommand(env *Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "kubectl [--name NAME] -- ARGUMENT…",
		Short: "Run kubectl against a lab, as its administrator",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := liveLab(name)
			if err != nil {
				return labError(err)
			}
			path, err := lab.FindLab()
			if err != nil {
				return err
			}
			// No context: Ctrl-C reaches kubectl by itself, and it may be
			// something interactive.
			kubectl := exec.Command(path)
			kubectl.Args = append([]string{"kubectl"}, args...)
			kubectl.Env = append(os.Environ(), "KUBECONFIG="+s.ControlPlane.Kubeconfigs.Admin)
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = env.Stdin, env.Stdout, env.Stderr
			err = kubectl.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return silently(cmp.Or(max(exit.ExitCode(), 0), ExitFailed))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the lab (default: the only one)")
	cmd.Flags().SetInterspersed(false) // from kubectl's command on all flags are its own
	return cmd
}

// liveLab is a lab that can be talked to.
func liveLab(name string) (*lab.State, error) {
	s, err := lab.Open("", name)
	if err != nil {
		return nil, err
	}
	if s.Phase == lab.PhaseDead || s.ControlPlane == nil {
		return nil, fmt.Errorf("lab %s is %s", s.Name, s.Phase)
	}
	return s, nil
}

func newLabEnvCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "env [NAME]",
		Short:   "Print what makes a shell's kubectl talk to a lab",
		Example: `  eval "$(kubedyno lab env)"`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := liveLab(nameArg(args))
			if err != nil {
				return labError(err)
			}
			fmt.Fprintf(env.Stdout, "export KUBECONFIG='%s'\n", strings.ReplaceAll(s.ControlPlane.Kubeconfigs.Admin, "'", `'\''`))
			return nil
		},
	}
}

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster/existing"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/collect/blockio"
	"github.com/kubedyno/kubedyno/run"
)

func newCleanCommand(env *Env) *cobra.Command {
	var o cleanOptions
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed runs and labs have left",
		Long: `A run takes away what it made, also when it is interrupted. What a kill -9 or a
cluster that died in its middle prevents, this does afterwards.

Without --kubeconfig it is about this machine: folders and cgroups of labs whose
keeper is dead, private copies of kubeconfigs, trace instances in the kernel. Labs
and runs that live stay.

With --kubeconfig it is about that cluster: namespaces, simulated nodes, and
storage drivers with their volumes that runs made, told by their labels, names
and taints. It lists them and asks before
it deletes them. A run that is under way cannot be told from one that was killed:
look at the ages, or name one with --run.`,
		Example: `  kubedyno clean                                     # this machine
  kubedyno clean --kubeconfig ~/.kube/config         # a cluster: lists, asks, deletes
  kubedyno clean --kubeconfig ~/.kube/config --dry-run
  kubedyno clean --kubeconfig ~/.kube/config --run 20261121T091010Z-3fa2b1 --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(o.format); err != nil {
				return err
			}
			o.onCluster = cmd.Flags().Changed("kubeconfig") || o.context != ""
			if !o.onCluster {
				if o.run != "" || o.yes || o.dryRun {
					return Misusef("--run, --yes and --dry-run are about a cluster: give --kubeconfig or --context")
				}
				return cleanMachine(env)
			}
			return o.cleanCluster(cmd.Context(), env)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "clean the existing cluster of this kubeconfig")
	fs.StringVar(&o.context, "context", "", "context of the kubeconfig (default: its current one)")
	fs.StringVar(&o.run, "run", "", "only what the run with this `ID` made (recording.json has it)")
	fs.BoolVarP(&o.yes, "yes", "y", false, "delete without asking")
	fs.BoolVar(&o.dryRun, "dry-run", false, "list what would be deleted, and delete nothing")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long the cluster may take to let everything go")
	outputFlag(cmd, &o.format)
	return cmd
}

type cleanOptions struct {
	kubeconfig, context, run, format string
	yes, dryRun, onCluster           bool
	timeout                          time.Duration
}

func cleanMachine(env *Env) error {
	removed, err := lab.Sweep("")
	copies, errCopies := existing.Sweep()
	for _, dir := range copies {
		removed = append(removed, "private copy of a kubeconfig "+dir)
	}
	err = errors.Join(err, errCopies)
	for _, name := range blockio.Sweep() {
		removed = append(removed, "trace instance "+name)
	}
	for _, what := range removed {
		fmt.Fprintf(env.Stdout, "removed %s\n", what)
	}
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		fmt.Fprintln(env.Stdout, "nothing is left of killed runs and labs")
	}
	labs, err := lab.List("")
	if err != nil {
		return err
	}
	for _, l := range labs {
		if l.OfRunningCommand() {
			fmt.Fprintf(env.Stderr, "lab %s belongs to a command that is running (pid %d) and stays\n", l.Name, l.Owner.PID)
			continue
		}
		fmt.Fprintf(env.Stderr, "lab %s is up and stays; `kubedyno lab down %s` takes it down\n", l.Name, l.Name)
	}
	return nil
}

func (o *cleanOptions) cleanCluster(ctx context.Context, env *Env) error {
	c, err := existing.Connect(ctx, o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	defer c.Close()
	rc, err := c.ControlPlane().RESTConfig("admin")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	left, err := run.Leftovers(ctx, client, o.run)
	if err != nil {
		return fmt.Errorf("clean %s: %w", c.ControlPlane().Server, err)
	}
	t := &textTable{header: []string{"KIND", "NAME", "RUN", "AGE", "PODS"}}
	pods := 0
	for _, l := range left {
		age, n := time.Duration(0), "–"
		if !l.Created.IsZero() {
			age = env.Now().Sub(l.Created).Round(time.Second)
		}
		if l.Kind == "Namespace" {
			n = fmt.Sprint(l.Pods)
			pods += l.Pods
		}
		t.add(l, l.Kind, l.Name, l.Run, age.String(), n)
	}
	if len(left) > 0 || o.format == "json" {
		if err := t.print(env, o.format, 0); err != nil {
			return err
		}
	}
	switch {
	case len(left) == 0:
		fmt.Fprintf(env.Stderr, "%s: nothing that a run made is left\n", c.ControlPlane().Server)
		return nil
	case o.dryRun:
		return nil
	case !o.yes:
		ok, err := ask(env, fmt.Sprintf("Delete these %d objects, %d pods with them, from %s?", len(left), pods, c.ControlPlane().Server))
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintln(env.Stderr, "nothing was deleted")
			return nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not within %v", o.timeout))
	defer cancel()
	return run.Clean(ctx, client, left, func(l run.Leftover) {
		fmt.Fprintf(env.Stderr, "%s %s is gone\n", strings.ToLower(l.Kind), l.Name)
	})
}

// ask asks a yes or no question. Nobody to answer it is a misuse: a script says
// what it means.
func ask(env *Env, question string) (bool, error) {
	fmt.Fprintf(env.Stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(env.Stderr)
		return false, Misuse(errors.New("nobody is there to answer; add --yes to delete without being asked, or --dry-run to look only"))
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

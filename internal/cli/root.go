package cli

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
)

// ranAnnotation is set on the root command when a command's own code started.
const ranAnnotation = "ran"

func commandRan(root *cobra.Command) bool { return root.Annotations[ranAnnotation] != "" }

func newRootCommand(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubedyno",
		Short: "Put a Kubernetes control plane on the dyno: load it, see what holds it back, prove the fix",
		Long: `kubedyno starts a real Kubernetes control plane with simulated nodes on this
machine, or takes a cluster by its kubeconfig. It loads it, records what
happens, names what holds it back, and proves the fix by running it.`,
		Example: `  kubedyno run density --out r                 # 1,500 pods on 50 nodes, stock flags
  kubedyno diagnose r                          # what held it back?
  kubedyno prove r --out proof                 # change it, run again, compare
  kubedyno report r proof/* --out report.html  # one page to look at`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{},
		Version:       Version(),
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			cmd.Root().Annotations[ranAnnotation] = "yes"
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Misusef("%s; see '%s --help'", plainFlagError(err), cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: "live", Title: "Touch a cluster:"},
		&cobra.Group{ID: "offline", Title: "Read recordings:"},
	)
	for _, c := range []*cobra.Command{newLabCommand(env), newTopCommand(env), newRunCommand(env), newFaultCommand(env), newCaseCommand(env), newRecordCommand(env), newProveCommand(env), newSweepCommand(env), newCalibrateCommand(env), newOverheadCommand(env), newCapacityCommand(env), newCleanCommand(env)} {
		c.GroupID = "live"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{newDiagnoseCommand(env), newCompareCommand(env), newGateCommand(env), newHistoryCommand(env), newReportCommand(env), newServeCommand(env), newShowCommand(env), newQueryCommand(env), newFunctionsCommand(env), newStacksCommand(env), newPprofCommand(env), newRequestsCommand(env), newLogsCommand(env), newBlockIOCommand(env), newSpikesCommand(env), newUseCommand(env), newAnonymiseCommand(env), newExperimentCommand(env), newConvertCommand(env), newExportCommand(env)} {
		c.GroupID = "offline"
		root.AddCommand(c)
	}
	for _, c := range root.Commands() {
		refuseUnknown(c)
	}
	return root
}

// refuseUnknown makes a command that only has commands refuse what is none of
// them, for which the library prints its help and succeeds.
func refuseUnknown(c *cobra.Command) {
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		var like string
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			like = fmt.Sprintf(" (did you mean '%s %s'?)", c.CommandPath(), near[0])
		}
		return Misusef("%q is no command of '%s'%s; see '%s --help'", args[0], c.CommandPath(), like, c.CommandPath())
	}
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
}

var flagValue = regexp.MustCompile(`^invalid argument "(.*)" for "(?:-\w, )?(--[\w-]+)" flag: strconv\.Parse(\w+): .*$`)

// plainFlagError says what a flag wants without the name of the Go function
// that could not read it.
func plainFlagError(err error) string {
	m := flagValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error()
	}
	want := map[string]string{"Int": "a whole number", "Float": "a number", "Bool": "true or false"}[m[3]]
	if want == "" {
		return err.Error()
	}
	return fmt.Sprintf("%s %q: want %s", m[2], m[1], want)
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/export"
)

func newExportCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{Use: "export", Short: "Write alert rules for Prometheus and dashboards for Grafana"}
	cmd.AddCommand(newExportRulesCommand(env), newExportGrafanaCommand(env))
	return cmd
}

func newExportRulesCommand(env *Env) *cobra.Command {
	o := export.Defaults
	var tests string
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Write alert rules for Prometheus from the detectors that metrics can say",
		Long: `Rules writes a file of alert rules for Prometheus: one or more for each detector
that can be said in PromQL, with its thresholds. An alert says that something is
as it is when that cause acts; whether somebody waits for it, and what else may
explain it, a diagnosis says.

With --tests it writes unit tests of these rules, for 'promtool test rules',
instead.`,
		Example: `  kubedyno export rules > kubedyno-rules.yaml
  kubedyno export rules --tests kubedyno-rules.yaml > tests.yaml && promtool test rules tests.yaml
  kubedyno export rules --window 10s --for 0s > lab-rules.yaml   # for a lab that is scraped each second`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write := func(w io.Writer) error { return export.WriteRules(w, o) }
			if cmd.Flags().Changed("tests") {
				if tests == "" {
					return Misusef("--tests wants the name of the file of rules")
				}
				write = func(w io.Writer) error { return export.WriteTests(w, tests, o) }
			}
			if err := write(env.Stdout); errors.Is(err, export.ErrOptions) {
				return Misuse(err)
			} else if err != nil {
				return fmt.Errorf("write rules: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&o.Window, "window", o.Window, "of rates: at least four scrapes")
	cmd.Flags().DurationVar(&o.For, "for", o.For, "that a condition must last")
	cmd.Flags().StringVar(&tests, "tests", "", "write tests of the rules, which are in this `file`")
	return cmd
}

func newExportGrafanaCommand(env *Env) *cobra.Command {
	var window time.Duration
	cmd := &cobra.Command{
		Use:   "grafana",
		Short: "Write a dashboard for Grafana",
		Long: `Grafana writes a dashboard in Grafana's own JSON, for versions 11 and later. Its
datasource is a variable: a Prometheus that scrapes a cluster, or one that was
pointed at a copy of a recording's metrics.`,
		Example: `  kubedyno export grafana > kubedyno.json      # import it in Grafana
  cp -r r/metrics data && prometheus --config.file=/dev/null --storage.tsdb.path=data`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := export.WriteDashboard(env.Stdout, window); errors.Is(err, export.ErrOptions) {
				return Misuse(err)
			} else if err != nil {
				return fmt.Errorf("write dashboard: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&window, "window", 0, "of rates (default: what suits Grafana's scrape interval)")
	cmd.Flags().Lookup("window").DefValue = ""
	return cmd
}

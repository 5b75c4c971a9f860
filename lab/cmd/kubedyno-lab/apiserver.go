package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/kubedyno/kubedyno/lab/requestlog"
	"github.com/kubedyno/kubedyno/lab/stamps"
)

// requestLogEnv names the file to which the API server writes a line about each
// request. Without it the command is kube-apiserver's own.
const requestLogEnv = "KUBEDYNO_REQUEST_LOG"

// newAPIServerCommand is kube-apiserver, with a request log where one is asked for, and
// stamps for watchers that ask for these.
func newAPIServerCommand() *cobra.Command {
	path := os.Getenv(requestLogEnv)
	if path == "" {
		return apiserver.NewAPIServerCommand()
	}
	s := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	gate := s.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return s.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(*cobra.Command, []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(s.Logs, gate); err != nil {
				return err
			}
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return errors.Join(errs...)
			}
			gate.(featuregate.MutableFeatureGate).AddMetrics()
			s.GenericServerRunOptions.ComponentGlobalsRegistry.AddMetrics()
			return runAPIServer(ctx, completed, path)
		},
	}
	cmd.SetContext(ctx)
	sets := s.Flags()
	s.Flagz = flagz.NamedFlagSetsReader{FlagSets: sets}
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	return cmd
}

// runAPIServer serves until ctx ends.
func runAPIServer(ctx context.Context, o options.CompletedOptions, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of requests: %w", err)
	}
	defer file.Close()
	config, err := apiserver.NewConfig(o)
	if err != nil {
		return err
	}
	// The aggregator comes first: each request passes its chain, and no other's.
	generic := &config.Aggregator.GenericConfig.Config
	log := requestlog.New(file, generic.LongRunningFunc)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		noting := *c
		noting.RequestInfoResolver = log.Resolver(c.RequestInfoResolver)
		noting.Authentication.Authenticator = log.Authenticator(c.Authentication.Authenticator)
		return stamps.Handler(log.Handler(build(handler, &noting)))
	}
	err = serve(ctx, config)
	if why := log.Close(); why != nil {
		err = errors.Join(err, fmt.Errorf("write the log of requests: %w", why))
	}
	return err
}

func serve(ctx context.Context, config *apiserver.Config) error {
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := apiserver.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// Command kubedyno-lab is a whole Kubernetes control plane in one binary: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, and kubelet
// and kube-proxy for a real node beside the simulated ones.
//
// It runs as one process per component, named by argv[0] or by the first
// argument:
//
//	kubedyno-lab kube-apiserver --etcd-servers=…
//	ln -s kubedyno-lab kube-apiserver && ./kube-apiserver --etcd-servers=…
//
// Metric registries, feature gates and klog are global to a process, and CPU,
// heap and /proc of a component mean something only when it has a process of
// its own; one binary serves because four would hold the same code four times.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	_ "time/tzdata" // CronJob time zones, as the components' own mains link it

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plug-ins
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/kubedyno/kubedyno/lab/scrape"
)

// self is the name under which the component is the first argument.
const self = "kubedyno-lab"

// metricsEnv names the socket at which a component of the control plane tells
// what has changed of its metrics, beside its own /metrics (package scrape).
// Without it a component is what its own main makes of it.
const metricsEnv = "KUBEDYNO_METRICS"

// A registry is where a component's metrics are.
type registry struct {
	prometheus.Gatherer
	prometheus.Registerer
}

var ofKubernetes = &registry{legacyregistry.DefaultGatherer, legacyregistry.Registerer()}

// components in the order in which a control plane starts them.
var components = []struct {
	name    string
	metrics *registry // what its /metrics has
	run     func(argv []string) int
}{
	{"etcd", &registry{prometheus.DefaultGatherer, prometheus.DefaultRegisterer}, func(argv []string) int { etcdmain.Main(argv); return 0 }},
	{"kube-apiserver", ofKubernetes, command(newAPIServerCommand)},
	{"kube-controller-manager", ofKubernetes, command(controllermanager.NewControllerManagerCommand)},
	{"kube-scheduler", ofKubernetes, command(func() *cobra.Command { return scheduler.NewSchedulerCommand() })},
	{"kubelet", nil, command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })},
	{"kube-proxy", nil, command(proxy.NewProxyCommand)},
	{"kubectl", nil, runKubectl},
}

// command runs a component as its own main does. Those mains read os.Args.
func command(newCommand func() *cobra.Command) func([]string) int {
	return func(argv []string) int {
		os.Args = argv
		return cli.Run(newCommand())
	}
}

// runKubectl is kubectl's own main: it words and prints its errors itself.
func runKubectl(argv []string) int {
	os.Args = argv
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func main() {
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

func run(argv []string, stdout, stderr io.Writer) int {
	if isComponent(filepath.Base(argv[0])) {
		return runComponent(filepath.Base(argv[0]), argv, stderr)
	}
	argv = argv[1:]
	if len(argv) == 0 {
		fmt.Fprintln(stderr, usage())
		return 2
	}
	if isComponent(argv[0]) {
		return runComponent(argv[0], argv, stderr)
	}
	switch argv[0] {
	case "version":
		return printVersion(argv[1:], stdout, stderr)
	case "help", "-h", "--help":
		fmt.Fprintln(stdout, usage())
		return 0
	}
	fmt.Fprintf(stderr, "%s: no component is named %q\n%s\n", self, argv[0], usage())
	return 2
}

func isComponent(name string) bool {
	for _, c := range components {
		if c.name == name {
			return true
		}
	}
	return false
}

func runComponent(name string, argv []string, stderr io.Writer) int {
	for _, c := range components {
		if c.name != name {
			continue
		}
		if path := os.Getenv(metricsEnv); path != "" && c.metrics != nil {
			os.Unsetenv(metricsEnv) // it is not that of what the component starts
			err := scrape.LeanProcess(c.metrics.Registerer)
			var stop func()
			if err == nil {
				stop, err = scrape.Listen(path, c.metrics.Gatherer)
			}
			if err != nil {
				fmt.Fprintf(stderr, "%s: %v\n", name, err)
				return 1
			}
			defer stop()
		}
		return c.run(argv)
	}
	panic("no component is named " + name)
}

func usage() string {
	names := make([]string, len(components))
	for i, c := range components {
		names[i] = c.name
	}
	return fmt.Sprintf("usage: %s %s [ARGUMENT…]\n       %s version [-o json]", self, strings.Join(names, "|"), self)
}

// versions is what `kubedyno-lab version -o json` prints.
type versions struct {
	Kubernetes string `json:"kubernetes"`
	GitCommit  string `json:"gitCommit"`
	BuildDate  string `json:"buildDate"`
	Etcd       string `json:"etcd"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	// RequestLog is the variable that names the file of the API server's request log.
	RequestLog string `json:"requestLog"`
	// Metrics is the variable that names a component's socket for its metrics.
	Metrics string `json:"metrics"`
}

func printVersion(args []string, stdout, stderr io.Writer) int {
	k := version.Get()
	v := versions{
		Kubernetes: k.GitVersion,
		GitCommit:  k.GitCommit,
		BuildDate:  k.BuildDate,
		Etcd:       "v" + etcdversion.Version,
		Go:         runtime.Version(),
		Platform:   k.Platform,
		RequestLog: requestLogEnv,
		Metrics:    metricsEnv,
	}
	switch strings.Join(args, " ") {
	case "":
		fmt.Fprintf(stdout, "kubernetes %s\netcd %s\ngo %s\n", v.Kubernetes, v.Etcd, v.Go)
	case "-o json", "-o=json", "-ojson", "--output json", "--output=json":
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", self, err)
			return 1
		}
	default:
		fmt.Fprintln(stderr, usage())
		return 2
	}
	return 0
}

// Package cluster describes a control plane to those who load and observe it,
// however it was obtained.
//
// Its folders obtain one: lab starts a private one on this machine, existing
// takes one by its kubeconfig. Start with ControlPlane, then Component.
package cluster

import (
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Component is one process of the control plane, as collectors and reports
// see it.
type Component struct {
	// Name is that of its binary: kube-apiserver, etcd, …
	Name string `json:"name"`
	// Instance is unique per process start: name@pid@starttime, or a host.
	Instance string `json:"instance"`
	// PID is 0 where the process is not on this machine.
	PID        int    `json:"pid,omitempty"`
	MetricsURL string `json:"metricsURL,omitempty"` // full URL of /metrics
	// MetricsSocket is a Unix socket at which it tells for less what its /metrics
	// has: what has changed (docs/lab.md, Metrics). Empty where there is none.
	MetricsSocket string `json:"metricsSocket,omitempty"`
	PprofURL      string `json:"pprofURL,omitempty"` // base, ends in /debug/pprof
	LogFile       string `json:"logFile,omitempty"`
	Binary        string `json:"binary,omitempty"`
	// Args are the arguments without argv[0].
	Args []string `json:"args,omitempty"`
	// Env are the names of the variables set for it; values may be secret.
	Env     []string `json:"env,omitempty"`
	Version string   `json:"version,omitempty"`
	// CPU is its quota in cores; 0 means none.
	CPU float64 `json:"cpu,omitempty"`
	// Cgroup is the folder whose cpu.stat tells throttling.
	Cgroup  string    `json:"cgroup,omitempty"`
	Started time.Time `json:"started"`
}

// ControlPlane is what load and collectors need to know of one.
type ControlPlane struct {
	Kind       string      `json:"kind"` // KindLab or KindExisting
	Name       string      `json:"name"`
	Server     string      `json:"server"`
	Version    string      `json:"version"` // the server's
	Profile    string      `json:"profile,omitempty"`
	Components []Component `json:"components"`
	// CPU is a quota in cores that the components have together; 0 is none.
	CPU float64 `json:"cpu,omitempty"`
	// RequestLog is a file with a line about each request that the API server
	// served, in the form of audit.k8s.io/v1: the server's own log of them, or an
	// audit log where its program has none.
	RequestLog string `json:"requestLog,omitempty"`
	// Kubeconfigs by identity. For an existing cluster all are the user's own.
	Kubeconfigs Kubeconfigs `json:"kubeconfigs"`
	// ClientCert, ClientKey and CA are the files with which the metrics and
	// pprof ports of components are read, as the collect identity. They are
	// empty where the kubeconfig must serve.
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
	CA         string `json:"ca,omitempty"`
	// NodeCA signs the identities of hollow nodes; lab only.
	NodeCA NodeCA `json:"nodeCA,omitzero"`
	// KeeperPID is the process that owns the components, 0 if there is none.
	KeeperPID int    `json:"keeperPID,omitempty"`
	StateDir  string `json:"stateDir,omitempty"`
}

// Kinds of control planes.
const (
	KindLab      = "lab"
	KindExisting = "existing"
)

// Kubeconfigs are paths, by who acts.
type Kubeconfigs struct {
	Admin   string `json:"admin"`
	Load    string `json:"load"`
	Collect string `json:"collect"`
}

// NodeCA is the certificate authority whose system:node: certificates the API
// server accepts.
type NodeCA struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// User agents by role, so that the harness separates from the system in every
// table of requests.
var userAgents = map[string]string{
	"admin":   "kubedyno",
	"load":    "kubedyno-load",
	"collect": "kubedyno-collect",
}

// RESTConfig returns a client configuration for a role: "admin", "load" or
// "collect". It has no client-side limiter: whoever sends decides the rate.
func (c *ControlPlane) RESTConfig(role string) (*rest.Config, error) {
	path := map[string]string{
		"admin":   c.Kubeconfigs.Admin,
		"load":    c.Kubeconfigs.Load,
		"collect": c.Kubeconfigs.Collect,
	}[role]
	agent, ok := userAgents[role]
	if !ok {
		return nil, fmt.Errorf("client configuration: no role is named %q (admin, load, collect)", role)
	}
	if path == "" {
		return nil, fmt.Errorf("client configuration: %s %q has no kubeconfig for role %s", c.Kind, c.Name, role)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cfg.UserAgent = agent
	cfg.QPS = -1
	return cfg, nil
}

// Component returns the component of that name, nil if there is none.
func (c *ControlPlane) Component(name string) *Component {
	for i := range c.Components {
		if c.Components[i].Name == name {
			return &c.Components[i]
		}
	}
	return nil
}

// Secret is bytes that must not be printed. Every way of printing it, logs
// included, shows that something is there and nothing of it.
type Secret []byte

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format covers the verbs that String does not, %x among them.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// Package existing takes a control plane that is already there, by kubeconfig
// and context. It changes nothing in it.
package existing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/cluster"
)

// connectTimeout bounds the first answer of the API server. A healthy one
// takes milliseconds, one behind a slow VPN a second or two.
const connectTimeout = 10 * time.Second

// A ConfigError is a kubeconfig that cannot be used: the caller's to mend, and
// known before anything was asked of the network.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

func badConfig(format string, args ...any) error {
	return &ConfigError{fmt.Errorf(format, args...)}
}

// A Cluster is an existing control plane and the private copy of the
// credentials with which it is reached.
type Cluster struct {
	plane cluster.ControlPlane
	copy  *private
}

// Connect reads the kubeconfig, checks it, and asks the API server for its
// version. An empty path means what kubectl would take; an empty context means
// the file's current one. The caller closes the Cluster.
func Connect(ctx context.Context, kubeconfig, contextName string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	where := kubeconfig
	if where == "" {
		where = strings.Join(rules.GetLoadingPrecedence(), ", ")
	}
	raw, err := rules.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, badConfig("kubeconfig %s does not exist; name another with --kubeconfig", where)
	case err != nil:
		return nil, badConfig("kubeconfig %s cannot be read: %w", where, err)
	case len(raw.Clusters) == 0:
		return nil, badConfig("kubeconfig %s names no cluster; name another with --kubeconfig", where)
	}
	if contextName == "" {
		contextName = raw.CurrentContext
	}
	if contextName == "" || raw.Contexts[contextName] == nil {
		var names []string
		for name := range raw.Contexts {
			names = append(names, name)
		}
		slices.Sort(names)
		if contextName == "" {
			return nil, badConfig("kubeconfig %s has no current context; choose one of %s with --context", where, strings.Join(names, ", "))
		}
		return nil, badConfig("kubeconfig %s has no context %q; it has %s", where, contextName, strings.Join(names, ", "))
	}
	raw.CurrentContext = contextName
	client, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, badConfig("kubeconfig %s, context %s: %w", where, contextName, err)
	}
	if err := checkClientCertificate(client, time.Now()); err != nil {
		return nil, fmt.Errorf("kubeconfig %s, context %s: %w", where, contextName, err)
	}
	client.QPS = -1
	client.Timeout = connectTimeout
	client.UserAgent = "kubedyno"
	info, err := serverVersion(client)
	if err != nil {
		return nil, fmt.Errorf("context %s of kubeconfig %s: %w", contextName, where, explain(client.Host, err))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	host, err := url.Parse(client.Host)
	if err != nil {
		return nil, fmt.Errorf("server of context %s: %w", contextName, err)
	}
	_, _ = Sweep() // what cannot go is no reason to stay away from this cluster
	mine, err := privateCopy(raw, contextName)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(client.Host, "/")
	return &Cluster{copy: mine, plane: cluster.ControlPlane{
		Kind:    "existing",
		Name:    contextName,
		Server:  client.Host,
		Version: info.GitVersion,
		Components: []cluster.Component{{
			Name:       "kube-apiserver",
			Instance:   "kube-apiserver@" + host.Host,
			MetricsURL: base + "/metrics",
			PprofURL:   base + "/debug/pprof",
			Version:    info.GitVersion,
		}},
		Kubeconfigs: cluster.Kubeconfigs{Admin: mine.path, Load: mine.path, Collect: mine.path},
		StateDir:    mine.dir,
	}}, nil
}

// ControlPlane describes the cluster to load and collectors.
func (c *Cluster) ControlPlane() *cluster.ControlPlane { return &c.plane }

// Close removes the private copy of the credentials.
func (c *Cluster) Close() error { return c.copy.remove() }

func serverVersion(c *rest.Config) (*version.Info, error) {
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	return set.Discovery().ServerVersion()
}

func checkClientCertificate(c *rest.Config, now time.Time) error {
	data := c.CertData
	if len(data) == 0 && c.CertFile != "" {
		var err error
		if data, err = os.ReadFile(c.CertFile); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	if now.After(cert.NotAfter) {
		return fmt.Errorf("the client certificate of %q expired on %s; renew it or use another user",
			cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return nil
}

// explain turns what the network and TLS layers say into what is wrong.
func explain(server string, err error) error {
	var (
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		record   tls.RecordHeaderError
		dns      *net.DNSError
		op       *net.OpError
		timeout  interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s has expired, or this machine's clock is wrong: %w", server, invalid)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s has a certificate that the kubeconfig's CA did not sign; is this the right cluster?", server)
	case errors.As(err, &hostname):
		return fmt.Errorf("%s has a certificate for another name: %w", server, hostname)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%s does not speak TLS; is the port right?", server)
	case errors.As(err, &dns):
		return fmt.Errorf("%s: the name %s cannot be resolved", server, dns.Name)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not accept the kubeconfig's credentials (401); log in again", server)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s refuses to tell its version (403): %w", server, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not answer within %v; is it reachable from here?", server, connectTimeout)
	case errors.As(err, &op):
		return fmt.Errorf("%s cannot be reached: %w; is it running, and is the address right?", server, op.Err)
	}
	return fmt.Errorf("%s: %w", server, err)
}

package hollow

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/internal/h2"
)

// nodesPerConnection bounds how many nodes share one transport when they do not
// have their own: it makes a second connection where it has the 100 streams that
// API servers allow by default.
const nodesPerConnection = 40

// identities makes the clients of a fleet: one connection per node when each
// node is itself, a few shared ones otherwise.
type identities struct {
	conf    *Config
	base    *url.URL
	metrics *metrics

	ca     *x509.Certificate
	caKey  crypto.Signer
	server *tls.Config // how to trust the server

	admin *rest.Config // the kubeconfig, nil without one
	group *h2.Group
	pool  []*h2.Transport
	trips []http.RoundTripper // pool, with the kubeconfig's credentials
}

func newIdentities(conf *Config, m *metrics) (*identities, error) {
	ids := &identities{conf: conf, metrics: m, group: h2.NewGroup()}
	if conf.Kubeconfig != "" {
		admin, err := clientcmd.BuildConfigFromFlags(conf.Server, conf.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", conf.Kubeconfig, err)
		}
		if conf.CAFile != "" {
			admin.TLSClientConfig.CAFile, admin.TLSClientConfig.CAData = conf.CAFile, nil
		}
		admin.UserAgent = UserAgent
		ids.admin = admin
	}
	server := conf.Server
	if server == "" {
		server = ids.admin.Host
	}
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	base, err := url.Parse(server)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL", server)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	ids.base = base

	if conf.Identity == Own {
		return ids, ids.loadCA()
	}
	return ids, ids.fillPool((conf.Nodes + nodesPerConnection - 1) / nodesPerConnection)
}

func (ids *identities) loadCA() error {
	pair, err := tls.LoadX509KeyPair(ids.conf.NodeCA.CertFile, ids.conf.NodeCA.KeyFile)
	if err != nil {
		return fmt.Errorf("node CA: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return errors.New("node CA: its key cannot sign")
	}
	if ids.ca, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return fmt.Errorf("node CA: %w", err)
	}
	ids.caKey = signer
	ids.server = &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case ids.conf.CAFile != "":
		pem, err := os.ReadFile(ids.conf.CAFile)
		if err != nil {
			return fmt.Errorf("server CA: %w", err)
		}
		ids.server.RootCAs = x509.NewCertPool() // parsed once for all nodes
		if !ids.server.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("server CA: no certificate in %s", ids.conf.CAFile)
		}
	case ids.admin != nil:
		t, err := rest.TLSConfigFor(ids.admin)
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		if t != nil {
			ids.server.RootCAs, ids.server.ServerName = t.RootCAs, t.ServerName
			ids.server.InsecureSkipVerify = t.InsecureSkipVerify
		}
	}
	return nil
}

// fillPool makes shared connections with the kubeconfig's credentials.
func (ids *identities) fillPool(n int) error {
	for range n {
		t, err := rest.TLSConfigFor(ids.admin)
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		proxy := http.ProxyFromEnvironment
		if ids.admin.Proxy != nil {
			proxy = ids.admin.Proxy
		}
		transport := ids.group.Transport(t, proxy)
		trip, err := rest.HTTPWrappersForConfig(ids.admin, transport)
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		ids.pool = append(ids.pool, transport)
		ids.trips = append(ids.trips, trip)
	}
	return nil
}

// of makes the client of the i-th node.
func (ids *identities) of(i int, name string) (*client, *h2.Transport, error) {
	switch ids.conf.Identity {
	case Own:
		cert, err := ids.sign("system:node:"+name, "system:nodes")
		if err != nil {
			return nil, nil, err
		}
		t := ids.server.Clone()
		t.Certificates = []tls.Certificate{cert}
		transport := ids.group.Transport(t, http.ProxyFromEnvironment)
		return newClient(transport, ids.base, ids.metrics, nil), transport, nil
	case Impersonated:
		k := i % len(ids.pool)
		return newClient(ids.trips[k], ids.base, ids.metrics, http.Header{
			"Impersonate-User":  {"system:node:" + name},
			"Impersonate-Group": {"system:nodes", "system:authenticated"},
		}), nil, nil
	default:
		k := i % len(ids.pool)
		return newClient(ids.trips[k], ids.base, ids.metrics, nil), nil, nil
	}
}

// cleaner is the client that may delete nodes: the kubeconfig's user, as a
// node may not delete itself. It is nil without a kubeconfig.
func (ids *identities) cleaner() (*client, error) {
	if ids.admin == nil {
		return nil, nil
	}
	if len(ids.pool) == 0 {
		if err := ids.fillPool(1); err != nil {
			return nil, err
		}
	}
	return newClient(ids.trips[0], ids.base, ids.metrics, nil), nil
}

func (ids *identities) close() {
	for _, t := range ids.pool {
		t.Close()
	}
}

// sign makes a client certificate in memory. ECDSA P-256: signing and both
// handshakes cost a tenth of RSA's.
func (ids *identities) sign(user, group string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user, Organization: []string{group}},
		NotBefore:    now.Add(-5 * time.Minute), // clocks may differ
		NotAfter:     now.Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ids.ca, key.Public(), ids.caKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate for %s: %w", user, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

package existing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificate makes a self-signed one for 127.0.0.1 that ends at notAfter.
func certificate(t *testing.T, name string, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// server answers as an API server does, with a certificate of that end.
func server(t *testing.T, notAfter time.Time, answer http.HandlerFunc) (url string, ca []byte) {
	t.Helper()
	cert, key := certificate(t, "server", notAfter)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(answer)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what we test
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, cert
}

func tellVersion(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" {
		http.Error(w, "not asked for", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"` + map[int]string{401: "Unauthorized", 403: "Forbidden"}[code] + `","code":` + map[int]string{401: "401", 403: "403"}[code] + `}`))
	}
}

func kubeconfig(t *testing.T, url string, ca, cert, key []byte) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["here"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	c.AuthInfos["me"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts["ctx"] = &clientcmdapi.Context{Cluster: "here", AuthInfo: "me"}
	c.CurrentContext = "ctx"
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConnect(t *testing.T) {
	url, ca := server(t, time.Now().Add(time.Hour), tellVersion)
	c, err := Connect(context.Background(), kubeconfig(t, url, ca, nil, nil), "")
	if err != nil {
		t.Fatal(err)
	}
	p := c.ControlPlane()
	if p.Version != "v1.36.3" || p.Kind != "existing" || p.Name != "ctx" || p.Component("kube-apiserver") == nil {
		t.Errorf("%+v", p)
	}
	if removed, err := Sweep(); len(removed) > 0 || err != nil {
		t.Errorf("the copy of a process that lives was swept: %q, %v", removed, err)
	}
	// The private copy serves alone, is nobody else's to read, and goes.
	info, err := os.Stat(p.Kubeconfigs.Load)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private kubeconfig: %v %v", info.Mode(), err)
	}
	if _, err := p.RESTConfig("load"); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private copy is still there: %v", err)
	}
}

// A process that is killed leaves somebody's credentials: the next one removes them.
func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	url, ca := server(t, time.Now().Add(time.Hour), tellVersion)
	config := kubeconfig(t, url, ca, nil, nil)
	killed, err := Connect(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.copy.lock.Close(); err != nil { // as the system does
		t.Fatal(err)
	}
	next, err := Connect(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, err := os.Stat(killed.ControlPlane().StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the killed one's copy is still there: %v", err)
	}
	if _, err := os.Stat(next.ControlPlane().Kubeconfigs.Load); err != nil {
		t.Error(err)
	}
}

// What is wrong is said in one sentence that names it, and whose mistake it is.
func TestConnectRefusals(t *testing.T) {
	good := time.Now().Add(time.Hour)
	url, ca := server(t, good, tellVersion)
	unauthorized, ca401 := server(t, good, status(401))
	forbidden, ca403 := server(t, good, status(403))
	expired, caOld := server(t, time.Now().Add(-time.Hour), tellVersion)
	plain := httptest.NewServer(http.HandlerFunc(tellVersion))
	t.Cleanup(plain.Close)
	_, otherCA := server(t, good, tellVersion)
	oldCert, oldKey := certificate(t, "jane", time.Now().Add(-time.Hour))
	for name, tt := range map[string]struct {
		config string
		want   string
		blame  bool // the kubeconfig
	}{
		"client certificate": {kubeconfig(t, url, ca, oldCert, oldKey), `the client certificate of "jane" expired on `, false},
		"server certificate": {kubeconfig(t, expired, caOld, nil, nil), "has expired, or this machine's clock is wrong", false},
		"another CA":         {kubeconfig(t, url, otherCA, nil, nil), "is this the right cluster?", false},
		"401":                {kubeconfig(t, unauthorized, ca401, nil, nil), "does not accept the kubeconfig's credentials (401)", false},
		"403":                {kubeconfig(t, forbidden, ca403, nil, nil), "refuses to tell its version (403)", false},
		"not TLS":            {kubeconfig(t, strings.Replace(plain.URL, "http:", "https:", 1), nil, nil, nil), "does not speak TLS", false},
		"nobody there":       {kubeconfig(t, "https://127.0.0.1:1", nil, nil, nil), "connection refused; is it running", false},
		"no such name":       {kubeconfig(t, "https://no-such-host.invalid", nil, nil, nil), "the name no-such-host.invalid cannot be resolved", false},
		"no file":            {filepath.Join(t.TempDir(), "none"), "does not exist", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Connect(context.Background(), tt.config, "")
			if err == nil {
				_ = c.Close()
				t.Fatal("connected")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			var config *ConfigError
			if errors.As(err, &config) != tt.blame {
				t.Errorf("blames the kubeconfig: %v, want %v", !tt.blame, tt.blame)
			}
		})
	}
}

package run

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// authority is a CA of its own, with one certificate of a client.
func authority(t *testing.T, name string) (*x509.CertPool, tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A server that has just started asks for the certificates of nobody we know. A
// connection of that time stays anonymous; it must not be kept.
func TestIntroduced(t *testing.T) {
	ours, cert := authority(t, "ours")
	theirs, _ := authority(t, "theirs")
	var asksFor atomic.Pointer[x509.CertPool]
	asksFor.Store(theirs)
	var handshakes atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		handshakes.Add(1)
		c := server.TLS.Clone()
		c.ClientCAs = asksFor.Load()
		return c, nil
	}
	server.StartTLS()
	defer server.Close()

	transport := server.Client().Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = []tls.Certificate{cert}
	client := &http.Client{Transport: &introduced{to: transport}}
	var got []int
	for range 6 {
		res, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		got = append(got, res.StatusCode)
		asksFor.Store(ours)
	}
	// The second request still goes over the connection of the first.
	if want := []int{403, 403, 200, 200, 200, 200}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	if n := handshakes.Load(); n != 2 {
		t.Errorf("%d handshakes, want 2: one connection is kept while it is good", n)
	}
}

package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity of a lab's certificates: as kubeadm's.
const validity = 365 * 24 * time.Hour

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  *ecdsa.PrivateKey
}

// An identity is a certificate with its key, in PEM.
type identity struct {
	cert []byte
	key  cluster.Secret
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(name, nil)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, pem: encodePEM("CERTIFICATE", der), key: key}, nil
}

// issue signs a certificate; hosts, names or addresses, make it a server's.
func (a *authority) issue(name string, groups, hosts []string, usage ...x509.ExtKeyUsage) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := template(name, groups)
	if err != nil {
		return nil, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = usage
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := marshalKey(key)
	if err != nil {
		return nil, err
	}
	return &identity{cert: encodePEM("CERTIFICATE", der), key: keyPEM}, nil
}

func template(name string, groups []string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(validity),
	}, nil
}

func marshalKey(key crypto.PrivateKey) (cluster.Secret, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Users that are not system:masters: that group is exempt from API Priority
// and Fairness and from authorization.
const (
	loadUser    = "kubedyno-load"
	collectUser = "kubedyno-collect"
)

// A pki is all identities of a lab: the files, and those that kubeconfigs hold.
type pki struct {
	caPEM []byte
	users map[string]*identity // by kubeconfig file name
}

// newPKI makes the identities that kubeadm makes, and those of our own roles,
// and writes them to dir.
//
// The collect identity has an authority of its own. etcd must let it in, since
// it serves its profiles on the client port; trusting the cluster's authority
// there would let in every node.
func newPKI(dir string) (*pki, error) {
	saKey := make(chan *rsa.PrivateKey, 1)
	saErr := make(chan error, 1)
	go func() { // the slowest of all: hundreds of milliseconds at times
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		saKey <- key
		saErr <- err
	}()

	w := &pkiWriter{dir: dir}
	w.err = os.MkdirAll(dir, 0o700)
	ca := w.authority("ca", "kubernetes")
	etcdCA := w.authority("etcd-ca", "etcd-ca")
	frontCA := w.authority("front-proxy-ca", "front-proxy-ca")
	collectCA := w.authority("collect-ca", "kubedyno-collect-ca")
	if w.err != nil {
		return nil, fmt.Errorf("make certificates: %w", w.err)
	}
	w.write("clients.crt", append(append([]byte{}, ca.pem...), collectCA.pem...), 0o600)
	w.write("etcd-clients.crt", append(append([]byte{}, etcdCA.pem...), collectCA.pem...), 0o600)
	w.write("servers.crt", append(append([]byte{}, ca.pem...), etcdCA.pem...), 0o600)

	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	local := []string{"localhost", "127.0.0.1"}
	w.issue(ca, "apiserver", "kube-apiserver", nil, append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.96.0.1", "203.0.113.1",
	}, local...), server)
	w.issue(ca, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", []string{"kubeadm:cluster-admins"}, nil, client)
	w.issue(ca, ControllerManager, ControllerManager, nil, local, server)
	w.issue(ca, Scheduler, Scheduler, nil, local, server)
	w.issue(frontCA, "front-proxy-client", "front-proxy-client", nil, nil, client)
	w.issue(etcdCA, "etcd-server", "kubedyno", nil, local, server, client)
	w.issue(etcdCA, "etcd-peer", "kubedyno", nil, local, server, client)
	w.issue(etcdCA, "apiserver-etcd-client", "kube-apiserver-etcd-client", nil, nil, client)
	p := &pki{users: map[string]*identity{
		"admin":           w.issue(ca, "admin", "kubernetes-admin", []string{"system:masters"}, nil, client),
		"load":            w.issue(ca, "load", loadUser, nil, nil, client),
		"collect":         w.issue(collectCA, "collect", collectUser, nil, nil, client),
		ControllerManager: w.issue(ca, "", "system:"+ControllerManager, nil, nil, client),
		Scheduler:         w.issue(ca, "", "system:"+Scheduler, nil, nil, client),
	}, caPEM: ca.pem}

	key := <-saKey
	if err := <-saErr; err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	w.serviceAccountKey(key)
	if w.err != nil {
		return nil, fmt.Errorf("make certificates: %w", w.err)
	}
	return p, nil
}

// pkiWriter writes identities until the first error.
type pkiWriter struct {
	dir string
	err error
}

func (w *pkiWriter) write(name string, b []byte, mode os.FileMode) {
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join(w.dir, name), b, mode)
	}
}

func (w *pkiWriter) authority(file, name string) *authority {
	if w.err != nil {
		return nil
	}
	var a *authority
	if a, w.err = newAuthority(name); w.err != nil {
		return nil
	}
	key, err := marshalKey(a.key)
	if err != nil {
		w.err = err
		return nil
	}
	w.write(file+".crt", a.pem, 0o600)
	w.write(file+".key", key, 0o600)
	return a
}

// issue writes an identity to files, unless file is empty, and returns it.
func (w *pkiWriter) issue(a *authority, file, name string, groups, hosts []string, usage ...x509.ExtKeyUsage) *identity {
	if w.err != nil {
		return nil
	}
	var id *identity
	if id, w.err = a.issue(name, groups, hosts, usage...); w.err != nil {
		return nil
	}
	if file != "" {
		w.write(file+".crt", id.cert, 0o600)
		w.write(file+".key", id.key, 0o600)
	}
	return id
}

func (w *pkiWriter) serviceAccountKey(key *rsa.PrivateKey) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		w.err = err
		return
	}
	w.write("sa.pub", encodePEM("PUBLIC KEY", public), 0o600)
	w.write("sa.key", encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), 0o600)
}

// writeKubeconfigs writes one file per user to dir. Everything is inside, so a
// copy of the file works elsewhere. server is where a user finds the API server.
func (p *pki) writeKubeconfigs(dir, name string, server func(user string) string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	for user, id := range p.users {
		context := "kubedyno-" + name
		cfg := clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{context: {Server: server(user), CertificateAuthorityData: p.caPEM}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: id.cert, ClientKeyData: id.key}},
			Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: context, AuthInfo: user}},
			CurrentContext: context,
		}
		b, err := clientcmd.Write(cfg)
		if err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
		if err := os.WriteFile(filepath.Join(dir, user), b, 0o600); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

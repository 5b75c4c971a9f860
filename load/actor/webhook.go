package actor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhook judges the pods that are made in the run's namespace: each answer takes
// a delay, and some are a refusal. It is registered as long as it serves; should
// it die, the API server goes on without it.
func webhook(ctx context.Context, a *actor) (err error) {
	pair, authority, err := selfSigned()
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	draws := mathrand.New(mathrand.NewPCG(uint64(a.Seed), 0))
	var drawing sync.Mutex
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = a.act("judge", func() error {
				var review admissionv1.AdmissionReview
				if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
					http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
					return errors.Join(err, errors.New("not an AdmissionReview"))
				}
				sleep(r.Context(), time.Duration(a.DelaySeconds*float64(time.Second)))
				drawing.Lock()
				allowed := 100*draws.Float64() >= a.Refuse
				drawing.Unlock()
				review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
				if !allowed {
					review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "not this time"}
				}
				review.Request = nil
				w.Header().Set("Content-Type", "application/json")
				return json.NewEncoder(w).Encode(review)
			})
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	defer func() {
		_ = server.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}()
	url, ignore, none := fmt.Sprintf("https://%s/", listener.Addr()), admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	meta := a.object(0)
	meta.Namespace = ""
	seconds := int32(30) // the most that there is
	api := a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         a.Name + ".kubedyno.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": a.Namespace}},
			FailurePolicy:     &ignore, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	err = until(ctx, func() error {
		_, err := api.Create(ctx, registration, metav1.CreateOptions{})
		return made(err)
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := api.Delete(last, meta.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("unregister: %w", err)
	}
	return nil
}

// selfSigned is a certificate of this machine's loopback, and in PEM who vouches
// for it.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubedyno webhook"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

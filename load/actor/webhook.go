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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhook judges the pods that are made in the run's namespace: each answer takes
// a delay, and some are a refusal. It is registered as long as it serves; should
// it die, the API server goes on without it.
func webhook(ctx context.Context, a *actor) (err error) {
	draws := mathrand.New(mathrand.NewPCG(uint64(a.Seed), 0))
	var drawing sync.Mutex
	hook, err := a.hook("judge", func(r *http.Request) (any, error) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			return nil, errors.Join(err, errors.New("not an AdmissionReview"))
		}
		drawing.Lock()
		allowed := 100*draws.Float64() >= a.Refuse
		drawing.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
		if !allowed {
			review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "not this time"}
		}
		review.Request = nil
		return review, nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hook.close()) }()
	ignore, none := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	meta := a.object(0)
	meta.Namespace = ""
	seconds := int32(30) // the most that there is
	api := a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         a.Name + ".kubedyno.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &hook.url, CABundle: hook.authority},
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

// converter is a custom resource that is stored at v2 and read at v1: for each
// such read the API server asks a webhook to convert what it found, whose answers
// take a delay. The resource is gone when it ends, so that nothing that nobody can
// convert is left.
func converter(ctx context.Context, a *actor) (err error) {
	const group = "converter.kubedyno.io"
	hook, err := a.hook("convert", func(r *http.Request) (any, error) {
		var review struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    *struct {
				UID               string           `json:"uid"`
				DesiredAPIVersion string           `json:"desiredAPIVersion"`
				Objects           []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			return nil, errors.Join(err, errors.New("not a ConversionReview"))
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.DesiredAPIVersion
		}
		return map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": metav1.StatusSuccess},
		}}, nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hook.close()) }()
	plural := "widgets-" + a.Name
	full, kind := plural+"."+group, "Widget"
	version := func(name string, stored bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": stored, "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}
	}
	api := a.client.CoreV1().RESTClient()
	send := func(ctx context.Context, path string, body any) error {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		return made(api.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(data).Do(ctx).Error())
	}
	err = until(ctx, func() error {
		return send(ctx, crds, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": full, "labels": a.object(0).Labels},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced",
				"names":    map[string]any{"plural": plural, "singular": "widget-" + a.Name, "kind": kind},
				"versions": []any{version("v2", true), version("v1", false)},
				"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
					"clientConfig": map[string]any{"url": hook.url, "caBundle": hook.authority}, "conversionReviewVersions": []string{"v1"}}},
			},
		})
	})
	if err != nil {
		return fmt.Errorf("make a CustomResourceDefinition: %w", err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if e := api.Delete().AbsPath(crds, full).Do(last).Error(); e != nil {
			err = errors.Join(err, fmt.Errorf("remove the CustomResourceDefinition: %w", e))
		}
	}()
	at := func(version string) string {
		return "/apis/" + group + "/" + version + "/namespaces/" + a.Namespace + "/" + plural
	}
	for i := range a.Objects {
		meta := a.object(i)
		// A new resource is not found until it is established.
		for ready := false; !ready; {
			err := send(ctx, at("v2"), map[string]any{"apiVersion": group + "/v2", "kind": kind, "metadata": map[string]any{"name": meta.Name, "labels": meta.Labels}, "spec": addon(i)})
			ready = err == nil
			if !ready && !apierrors.IsNotFound(err) && permanent(err) {
				return fmt.Errorf("make a %s: %w", kind, err)
			}
			if !ready && !sleep(ctx, 200*time.Millisecond) {
				return fmt.Errorf("make a %s: %w (last try: %w)", kind, ctx.Err(), err)
			}
		}
	}
	a.each(ctx, func(ctx context.Context, _, i int) {
		_ = a.act("get", func() error { return api.Get().AbsPath(at("v1"), a.object(i%a.Objects).Name).Do(ctx).Error() })
	})
	return nil
}

// A hook is what the API server asks over HTTPS.
type hook struct {
	url       string
	authority []byte // who vouches for it, in PEM
	close     func() error
}

// hook serves answers, each after the actor's delay, until it is closed.
func (a *actor) hook(action string, answer func(*http.Request) (any, error)) (hook, error) {
	pair, authority, err := selfSigned()
	if err != nil {
		return hook{}, fmt.Errorf("certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return hook{}, err
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = a.act(action, func() error {
				body, err := answer(r)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return err
				}
				sleep(r.Context(), time.Duration(a.DelaySeconds*float64(time.Second)))
				w.Header().Set("Content-Type", "application/json")
				return json.NewEncoder(w).Encode(body)
			})
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	return hook{url: fmt.Sprintf("https://%s/", listener.Addr()), authority: authority, close: func() error {
		err := server.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}}, nil
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

package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	contentProtobuf       = "application/vnd.kubernetes.protobuf"
	contentJSON           = "application/json"
	contentMergePatch     = "application/merge-patch+json"
	contentStrategicPatch = "application/strategic-merge-patch+json"
	contentApplyPatch     = "application/apply-patch+yaml" // JSON is YAML
)

const (
	// An API server gives up on a request after 60 s; a little more lets us
	// hear that from it.
	requestTimeout = 65 * time.Second
	// The service account controller needs milliseconds; a controller manager
	// that is still electing its leader, 15 s.
	accountTimeout = time.Minute
	accountPoll    = 50 * time.Millisecond
	// maxAnswer bounds what we keep of an answer that is read.
	maxAnswer = 256 << 10
)

// client speaks to one API server. Transport, TLS and credentials are
// client-go's; requests are our own, because client-go's retry on 429 and 5xx
// and pass limiters, and an operation's sent time must be exact.
type client struct {
	http    *http.Client
	streams *http.Client // of answers that go on and on
	base    *url.URL
	now     func() time.Time

	mu         sync.Mutex
	types      map[string][]metav1.APIResource // by the path of their version
	namespaces map[string]bool                 // that were made beside the run's own
}

func newClient(c Config) (*client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.Context},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.UserAgent = ProcessName
	cfg.Timeout = requestTimeout
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	streams := &http.Client{Transport: hc.Transport}
	return &client{http: hc, streams: streams, base: base, now: time.Now, types: map[string][]metav1.APIResource{}}, nil
}

// answer is what became of one request.
type answer struct {
	sent, done time.Time
	code       int
	body       []byte // of errors, and as much as was asked for
	err        error  // nil for 2xx
}

// call is one request.
type call struct {
	method, path, query string
	contentType         string
	body                []byte
	accept              string // "": protobuf, or JSON where a type has none
	// subject is the object's name, which is kept out of error texts so that
	// equal errors are equal text.
	subject string
	// keep is how much of a good answer is kept; the rest is read and dropped.
	keep int64
}

func (c *client) request(ctx context.Context, q call) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + q.path
	u.RawQuery = q.query
	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.body == nil {
		req.Body, req.GetBody = nil, nil
	} else {
		req.Header.Set("Content-Type", q.contentType)
	}
	if q.accept == "" {
		q.accept = contentProtobuf + ",application/json"
	}
	req.Header.Set("Accept", q.accept)
	return req, nil
}

// do sends one request, once.
func (c *client) do(ctx context.Context, q call) answer {
	req, err := c.request(ctx, q)
	if err != nil {
		return c.unsent(err)
	}
	a := answer{sent: c.now()}
	resp, err := c.http.Do(req)
	if err != nil {
		a.done, a.err = c.now(), transportError(err)
		return a
	}
	defer resp.Body.Close()
	a.code = resp.StatusCode
	keep := q.keep
	good := a.code >= 200 && a.code < 300
	if !good {
		keep = maxAnswer
	}
	if keep > 0 {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, keep))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	a.done = c.now()
	switch {
	case !good:
		a.err = statusError(a.code, a.body, q.subject)
	case err != nil:
		a.err = fmt.Errorf("read answer: %w", transportError(err))
	}
	return a
}

// unsent is the answer to a request that could not be made.
func (c *client) unsent(err error) answer {
	now := c.now()
	return answer{sent: now, done: now, err: err}
}

// get reads something small.
func (c *client) get(ctx context.Context, path, accept string) answer {
	return c.do(ctx, call{method: http.MethodGet, path: path, accept: accept, keep: maxAnswer})
}

// transportError drops the method and address that net/http adds: they differ
// from request to request and hide what happened.
func transportError(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("given up: the phase ended early")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", requestTimeout)
	}
	return err
}

func statusError(code int, body []byte, subject string) error {
	var text string
	if obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if status, ok := obj.(*metav1.Status); ok {
			text = status.Message
		}
	}
	if text == "" {
		text = strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 200)]), "?"))
	}
	if text == "" {
		text = http.StatusText(code)
	}
	if subject != "" {
		text = strings.ReplaceAll(text, subject, "…")
	}
	return fmt.Errorf("%d %s", code, text)
}

// prepare creates the run's namespace and waits until pods may go there:
// admission refuses them until the default service account exists.
func (c *client) prepare(ctx context.Context, cfg Config) error {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: cfg.Namespace, Labels: map[string]string{LabelRun: cfg.RunID, LabelOwner: "kubedyno"}},
	}
	body, err := encode(ns)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", cfg.Namespace, err)
	}
	a := c.do(ctx, call{method: http.MethodPost, path: "/api/v1/namespaces", contentType: contentProtobuf, body: body})
	if a.code == http.StatusConflict && c.ours(ctx, cfg) {
		a.err = nil // a restarted generator finds its own
	}
	if a.err != nil {
		return fmt.Errorf("create namespace %s: %w", cfg.Namespace, a.err)
	}
	if cfg.NoAccounts {
		return c.makeAccount(ctx, cfg.Namespace)
	}
	return c.awaitAccount(ctx, cfg.Namespace)
}

func (c *client) awaitAccount(ctx context.Context, namespace string) error {
	limited, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	tick := time.NewTicker(accountPoll)
	defer tick.Stop()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/default"
	for {
		a := c.get(limited, path, "")
		if a.err == nil {
			return nil
		}
		if a.code == http.StatusForbidden || a.code == http.StatusUnauthorized {
			return fmt.Errorf("wait for the default service account in %s: %w", namespace, a.err)
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("wait for the default service account in %s: %w", namespace, err)
			}
			return fmt.Errorf("no default service account in namespace %s after %v: does kube-controller-manager run, and its serviceaccount-controller (--controllers)? %w",
				namespace, accountTimeout, a.err)
		}
	}
}

// ours reports whether the namespace that exists already is this run's.
func (c *client) ours(ctx context.Context, cfg Config) bool {
	a := c.get(ctx, "/api/v1/namespaces/"+cfg.Namespace, "")
	if a.err != nil {
		return false
	}
	var obj runtime.Object
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
	ns, ok := obj.(*corev1.Namespace)
	return err == nil && ok && ns.Labels[LabelRun] == cfg.RunID && ns.DeletionTimestamp == nil
}

// cleanup asks for the deletion of the run's namespace, if it is the run's.
func (c *client) cleanup(ctx context.Context, cfg Config) error {
	if !c.ours(ctx, cfg) {
		return nil
	}
	a := c.do(ctx, call{method: http.MethodDelete, path: "/api/v1/namespaces/" + cfg.Namespace})
	if a.err != nil && a.code != http.StatusNotFound {
		return fmt.Errorf("delete namespace %s: %w", cfg.Namespace, a.err)
	}
	return nil
}

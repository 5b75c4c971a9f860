package authentication

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const filter = "apiserver_request_filter_duration_seconds"

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "authentication",
	Title: "Each request waits until its client is known",
	Doc: `Before anything else the API server finds out who asks: by the client's certificate, by the signature of a service account's token, or by asking somebody else, an OpenID provider or a webhook. Answers about tokens are kept for ten seconds; who comes with a new token each time waits each time.

**Evidence.** The filter "authentication" takes at least 10 ms of each request and 10 % of its time by the log of requests, which is the second source (apiserver_request_filter_duration_seconds).

**Look-alikes.** Authorization (its own filter, after this one); a full CPU (every filter is slow, and the machine is full: only 100 ms and more count there); handshakes (connection-churn: no filter has that time).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	mean, n, ok := v.Mean(diagnose.APIServer, filter, diagnose.Labels{"filter": "authentication"})
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	l := layer.Layer{Name: "authentication", Mean: mean, Count: n, Ref: filter + `{filter="authentication"}`, Sources: 1, Passes: func(string, string) bool { return true }}
	if quick := l.Quick(v); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	f := diagnose.Finding{
		Resource: "policy", Cause: fmt.Sprintf("finding out who asks takes %.0f ms a request", 1000*mean),
		Advice:    diagnose.Advice{Text: "Look at who is asked about tokens (--authentication-token-webhook-config-file, --authentication-config with its issuers): its CPU, its replicas, how far away it is. Keep its answers longer (--authentication-token-webhook-cache-ttl) and let clients use one token for many requests, or certificates and service accounts' tokens, which the API server checks by itself. The price of longer: a token that is taken back works for that time."},
		RefutedBy: "a run whose clients come with certificates in which requests take as long",
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("authentication took %.0f ms of each request, and nothing waited for it", 1000*mean)
	}
	f.Summary = fmt.Sprintf("Each request waits %.0f ms until the API server knows who asks (n=%.0f)", 1000*mean, n)
	if f.Suffered != "" {
		f.Summary += ": " + f.Suffered
	}
	f.Summary += "."
	return diagnose.Found(f)
}

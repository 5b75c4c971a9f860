package authentication

import (
	"cmp"
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "authentication",
	Title: "Each request waits until its client is known",
	Doc: `Before anything else the API server finds out who asks: by the client's certificate, by the signature of a service account's token, or by asking somebody else, an OpenID provider or a webhook. Answers about tokens are kept for ten seconds; who comes with a new token each time waits each time.

**Evidence.** The filter "authentication" takes at least 10 ms of each request (apiserver_request_filter_duration_seconds) and 10 % of its time by the log of requests, which is the second source, and which says whose requests wait: only theirs are counted, where it tells. From 50 ms on it is a risk where nothing else suffers.

**Look-alikes.** Authorization (its own filter, after this one); a full CPU (every filter is slow, and the machine is full: only 100 ms and more count there); handshakes (connection-churn: no filter has that time).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	l, ok := layer.Filter(v, "authentication", func(t *diagnose.Talk) float64 { return t.Authentication })
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	if quick := cmp.Or(l.Quick(v), l.Still(earlier)); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	f := diagnose.Finding{
		Resource: "policy", Cause: fmt.Sprintf("finding out who asks takes %.0f ms a request", 1000*l.Mean),
		Advice:    diagnose.Advice{Text: "Look at who is asked about tokens (--authentication-token-webhook-config-file, --authentication-config with its issuers): its CPU, its replicas, how far away it is. Keep its answers longer (--authentication-token-webhook-cache-ttl) and let clients use one token for many requests, or certificates and service accounts' tokens, which the API server checks by itself. The price of longer: a token that is taken back works for that time."},
		RefutedBy: "a run whose clients come with certificates in which requests take as long",
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("authentication took %.0f ms of each request, and nothing waited for it", 1000*l.Mean)
	}
	f.Summary = fmt.Sprintf("%s %.0f ms until the API server knows who asks (n=%.0f)%s", l.Each(), 1000*l.Mean, l.Count, layer.Outcome(&f))
	return diagnose.Found(f)
}
